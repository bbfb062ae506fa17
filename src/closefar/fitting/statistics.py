"""Statistics of a fit on its training pairs."""

from __future__ import annotations

from dataclasses import dataclass

from closefar.arrays import FloatArray
from closefar.model.scored import Scored

__all__ = ["FitStatistics", "count_parameters", "count_uncertain"]


def count_parameters(n_directions: int, rank: int | None, *, has_origin: bool = False, with_flips: bool = False) -> int:
    """The number of free parameters: M of at most that rank, tau and, if estimated, the origin and the flip rate."""
    k = min(rank or n_directions, n_directions)
    return n_directions * k - k * (k - 1) // 2 + 1 + n_directions * int(has_origin) + int(with_flips)


def count_uncertain(scored: Scored, repeats: FloatArray | None = None) -> float:
    """The sum of 4 p (1 - p), with p the probability of a label without flips; one at even odds counts as one.

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
    """

    n_pairs: int
    share_far: float
    null_loss: float
    accuracy: float
    wrong_share: float
    column_scales: tuple[float, ...]
    n_parameters: int
    uncertain_labels: float

    @property
    def uncertain_per_parameter(self) -> float:
        """Uncertain labels per parameter; below about ten, large-sample approximations may fail."""
        return self.uncertain_labels / self.n_parameters

    @classmethod
    def of(cls, scored: Scored, column_scales: FloatArray, n_parameters: int) -> FitStatistics:
        return cls(
            n_pairs=len(scored),
            share_far=scored.share_far,
            null_loss=scored.null_loss,
            accuracy=scored.accuracy,
            wrong_share=scored.judgements.mean(scored.probability_wrong),
            column_scales=tuple(column_scales.tolist()),
            n_parameters=n_parameters,
            uncertain_labels=count_uncertain(scored),
        )
