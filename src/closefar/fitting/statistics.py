"""Statistics of a fit on its training pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace
from sklearn.exceptions import ConvergenceWarning

from closefar.arrays import Array, BoolArray, FloatArray, IndexArray, to_numpy
from closefar.errors import setting
from closefar.judgements import Judgements
from closefar.model import Scored, ScoredLevels
from closefar.noise import Noise, with_flips
from closefar.rows import ENORMOUS, BlockRows


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


# ---------------------------------------------------------------------------------------------------------------------
# Identifiability: the parts of the metric that the data do not determine, however well a fit converged.


# A column is part of a combination if its share, in standard deviations, is at least this.
_INVOLVED = 0.05
_MOST_NAMED = 6
_MOST_COMBINATIONS = 3

# A difference this many times as large as usual in its column is probably in another unit.
_LONG = 1000.0
_ENOUGH_ROWS = 10_000

# Below this, a light penalty at least halved the excess loss on new labels in simulations.
_FEW_UNCERTAIN = 1.0


class IdentifiabilityWarning(ConvergenceWarning):  # type: ignore[misc]
    """The data do not determine part of the metric, however well the fit converged.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> import closefar as cf
    >>> pairs, labels, *_ = cf.datasets.make_pairs(500, 2, random_state=0)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", cf.IdentifiabilityWarning)
    ...     learner = cf.LinearMetricLearner(alpha=0).fit(np.pad(pairs, ((0, 0), (0, 0), (0, 1))), labels)
    >>> print(str(caught[0].message).split(",")[0])
    column 'x2' does not vary in these pairs
    """


def find_problems(
    names: Sequence[str],
    null_directions: FloatArray,
    counts: tuple[int, ...],
    n_directions: int,
    *,
    rank: int | None = None,
    has_origin: bool = False,
    penalised: bool = False,
    n_thresholds: int = 1,
    uncertain_per_parameter: float = math.inf,
) -> list[str]:
    """Return a sentence, with advice, for each reason why the data do not determine the metric.

    Parameters
    ----------
    names : sequence of str
        The names of the columns.
    null_directions : array of shape (d, m)
        Combinations of the columns, in standard deviations, that do not vary.
    counts : tuple of int
        The numbers of pairs that are labelled close and far, or that of levels or comparisons.
    n_directions : int
        The number of directions that vary.
    rank : int, optional
        The largest rank of M.
    has_origin, penalised : bool
        Whether an origin is learned, and whether there is a penalty.
    n_thresholds : int
        One for close/far labels, more for levels, none for comparisons.
    uncertain_per_parameter : float
        As in `FitStatistics`; infinite if it is meaningless, as for separable labels.
    """
    # With a penalty, a direction that does not vary has no weight, and no label is needed for each direction.
    null_directions = null_directions[:, :0] if penalised else null_directions
    things, terms, verb = ("pairs", "labels", "label") if n_thresholds > 0 else ("comparisons", "answers", "make")
    problems = [
        f"{name_columns(names, direction)} does not vary in these {things}, so nothing is learned about it: M is zero "
        f"there. Leave a column out, or add {things} in which it varies."
        for direction in null_directions.T[:_MOST_COMBINATIONS]
    ]
    more = null_directions.shape[1] - _MOST_COMBINATIONS
    if more > 0:
        them = "combinations of columns do" if more > 1 else "combination of columns does"
        problems.append(f"{more} more {them} not vary; {n_directions} directions remain.")
    n, k = sum(counts), min(rank or n_directions, n_directions)
    n_parameters = count_parameters(n_directions, rank, has_origin=has_origin, n_thresholds=n_thresholds)
    n_rarer = min(counts)
    if n_rarer < n_directions and len(counts) == 2 and not penalised:
        rarer = "far" if counts[1] == n_rarer else "close"
        problems.append(
            f"only {n_rarer} of {n} pairs are labelled {rarer}, for {n_directions} directions of M. "
            f"Label more {rarer} pairs."
        )
    if n < n_parameters and not penalised:
        problems.append(
            f"there are {n} {things} for {n_parameters} parameters (M with {n_directions} directions and "
            f"rank {k}{', tau' if n_thresholds == 1 else ''}). Set "
            + setting(alpha="auto")
            + f", or {verb} at least {4 * n_parameters} {things}."
        )
    elif uncertain_per_parameter < _FEW_UNCERTAIN and n_rarer >= n_directions and not penalised:
        problems.append(
            f"there are only {uncertain_per_parameter:.1f} uncertain {terms} per parameter: without a "
            "penalty the fit probably overfits, and its probabilities are too extreme. Set "
            + setting(alpha="auto")
            + f", or {verb} more {things}."
        )
    return problems


def find_enormous(source: BlockRows, judgements: Judgements, enormous: IndexArray) -> list[str]:
    """Return a sentence, with advice, if some of the enormous differences are labelled close."""
    if len(enormous) == 0:
        return []
    close = enormous[to_numpy(source.pick(judgements.signs_in(source), enormous)) < 0]
    row_numbers = judgements.numbers_of(close[_are_long(source, close)]) if len(close) else close
    if len(row_numbers) == 0:
        return []
    named = ", ".join(map(str, row_numbers[:_MOST_NAMED].tolist()))
    more = f" and {len(row_numbers) - _MOST_NAMED} more" if len(row_numbers) > _MOST_NAMED else ""
    rows, are, it = ("row", "is", "it") if len(row_numbers) == 1 else ("rows", "are", "they")
    return [
        f"{rows} {named}{more}, labelled close, {are} more than {ENORMOUS:,.0f} times as long as a typical difference, "
        f"so {it} alone determine{'s' if it == 'it' else ''} what is learned in that direction. Check the units, or "
        f"leave {'it' if it == 'it' else 'them'} out."
    ]


def _are_long(rows: BlockRows, chosen: IndexArray) -> BoolArray:
    """Whether a difference is far larger in some column than nonzero ones usually are; in a rare 0/1 column none is."""
    indices = np.union1d(chosen, np.arange(0, rows.n_rows, 1 + rows.n_rows // _ENOUGH_ROWS))
    sizes = np.abs(to_numpy(rows.take_rows(indices).read(slice(0, len(indices)))))
    long = sizes[:, np.searchsorted(indices, chosen)]
    sizes[sizes == 0.0] = np.nan
    varies = ~np.all(np.isnan(sizes), axis=1)
    is_long: BoolArray = np.any(long[varies] > _LONG * np.nanmedian(sizes[varies], axis=1)[:, None], axis=0)
    return is_long


def name_columns(names: Sequence[str], direction: FloatArray) -> str:
    """Name the columns with a large loading on a direction, given in standard deviations."""
    direction = direction / np.linalg.norm(direction)
    involved = [index for index in np.argsort(-np.abs(direction), kind="stable") if abs(direction[index]) >= _INVOLVED]
    if len(involved) == 1:
        return f"column {names[involved[0]]!r}"
    named = ", ".join(repr(names[index]) for index in involved[:_MOST_NAMED])
    more = f" and {len(involved) - _MOST_NAMED} more" if len(involved) > _MOST_NAMED else ""
    return f"a combination of the columns {named}{more}"
