"""Statistics of a fit on its training pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import Array, FloatArray
from closefar.model import Scored, ScoredLevels
from closefar.noise import Noise, with_flips

__all__ = ["FitStatistics", "count_parameters", "count_uncertain", "sums_of_margins"]


def count_parameters(
    n_directions: int, rank: int | None, *, has_origin: bool = False, with_flips: int = 0, n_thresholds: int = 1
) -> int:
    """The number of free parameters: M of at most that rank, thresholds and, if estimated, origin and flip rates."""
    k = min(rank or n_directions, n_directions)
    return n_directions * k - k * (k - 1) // 2 + n_thresholds + n_directions * int(has_origin) + int(with_flips)


def count_uncertain(scored: Scored | ScoredLevels, repeats: FloatArray | None = None) -> float:
    """The sum of 4 p (1 - p), with p the probability of a label without flips; one at even odds counts as one.

    Of levels, p is for the threshold in most doubt.

    `repeats` is the number of observations that each judgement represents; by default only the ratios
    of the weights matter, and they count as (sum w)^2 / sum w^2 observations.
    """
    if repeats is None:
        repeats = scored.judgements.effective_number * scored.judgements.shares
    return float(repeats @ scored.in_doubt)


@dataclass(frozen=True)
class FitStatistics:
    """Statistics of the training pairs, weighted as in the fit.

    `null_loss` is the loss of the best constant probability; `wrong_share` is the expected
    share of labels on the wrong side of the threshold, under the fitted noise; `column_scales`
    are the root mean squares of the columns of the differences (with a learned origin, the standard
    deviations).  `n_parameters` is the number of free parameters.  `uncertain_labels` is the sum of
    4 p (1 - p) over the labels, with p the probability of each: labels that are almost certain carry
    almost no information.

    With levels, `share_far` is the share of all levels but the closest, `accuracy` that of levels that are the most
    probable one, `wrong_share` the expected share of others, and `level_shares` are the shares of all levels.  With
    comparisons alone, they are what `n_pairs` counts, and `null_loss` is that of even odds.  With both, `n_comparisons`
    and `comparison_accuracy` are those of the comparisons.
    """

    n_pairs: int
    share_far: float
    null_loss: float
    accuracy: float
    wrong_share: float
    column_scales: tuple[float, ...]
    n_parameters: int
    uncertain_labels: float
    level_shares: tuple[float, ...] = ()
    n_comparisons: int = 0
    comparison_accuracy: float | None = None

    @property
    def uncertain_per_parameter(self) -> float:
        """Uncertain labels per parameter; below about ten, large-sample approximations may fail."""
        return self.uncertain_labels / self.n_parameters

    @classmethod
    def from_sums(
        cls, sums: FloatArray, n_pairs: int, flip_rate: float, column_scales: FloatArray, n_parameters: int
    ) -> FitStatistics:
        """The statistics from `sums_of_margins` of all judgements."""
        total, squares, far, right, wrong, doubt = sums.tolist()
        share_far = far / total
        shares = [share for share in (share_far, 1.0 - share_far) if share > 0.0]
        return cls(
            n_pairs=n_pairs,
            share_far=share_far,
            null_loss=-sum(share * math.log(share) for share in shares),
            accuracy=right / total,
            wrong_share=float(with_flips(wrong / total, flip_rate)),
            column_scales=tuple(column_scales.tolist()),
            n_parameters=n_parameters,
            uncertain_labels=total / squares * doubt,
        )


def sums_of_margins(
    squared: Array, signs: Array, weights: Array = None, *, noise: Noise, threshold: float
) -> FloatArray:
    """The weights of some judgements, their squares, and the weights times each statistic; by default they are one."""
    xp = array_namespace(squared)
    margin = squared - threshold
    rarer = noise.cdf(-xp.abs(margin))
    is_far = signs > 0
    indicators = [xp.astype(each, xp.float64) for each in (is_far, (margin >= 0) == is_far)]
    statistics = [*indicators, rarer, 4.0 * rarer * (1.0 - rarer)]
    if weights is None:
        n = float(margin.shape[0])
        return np.array([n, n, *(float(xp.sum(each)) for each in statistics)])
    sums = (float(xp.vecdot(weights, each)) for each in (xp.ones_like(rarer), weights, *statistics))
    return np.array(list(sums))
