"""Confidence intervals for a metric, its distances and its probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from closefar.model import Metric
from closefar.questions.reach import Interval, from_zero, mapped
from closefar.questions.spread import Spread
from closefar.rows import BlockRows, LegRows, rows_of

__all__ = ["Confidence"]


@dataclass(frozen=True, eq=False)
class Confidence:
    """Confidence intervals for a fitted metric, as returned by `confidence`.

    Attributes
    ----------
    method : {"sandwich", "jackknife", "bootstrap", "none"}
        The method used.  "none": the pairs do not determine the metric, and every interval is
        unbounded.
    valid : bool
        Whether the intervals can be trusted.
    flaws : tuple of str
        The reasons why they can't, one sentence each; empty if they can.
    statement : str
        Which method was used and why, what it is valid for, or why none is valid.
    level : float
        The nominal coverage: the share of samples whose interval should contain the true value.
    metric : Metric
        The fitted metric; for a learner with a penalty, the one fitted without it.
    threshold : Interval or None
        For tau; None for levels, which have several, and for comparisons, which have none.
    thresholds : Interval
        For every threshold, lowest first: one for close/far labels, K - 1 for K levels, none for comparisons.
    directions : Interval
        For the mean squared distance along each direction, in the order of `metric.directions()`
        and, beyond its rank, zeros: one for every direction in which the pairs vary.  They do not
        depend on units; the second moment of the pairs is treated as known.  Directions that are not
        clearly distinct share one interval.
    matrix, eigenvalues : Interval
        For each entry of M and for its eigenvalues, largest first; both depend on the units of the
        data.
    relative_matrix : Interval
        For M / tr M, which does not depend on the scale of the noise: the only part of M that two fits without a
        common threshold, such as those of comparisons by different people, can be compared in.  It depends on the units
        of the data, too.
    flip_rate : Interval or None
        For the share of flipped labels, if it was estimated; with ``flip_rate="two"`` two numbers, of close pairs
        called far and of far pairs called close.
    """

    method: str
    valid: bool
    flaws: tuple[str, ...]
    statement: str
    level: float
    metric: Metric
    threshold: Interval | None
    thresholds: Interval
    directions: Interval
    matrix: Interval
    eigenvalues: Interval
    relative_matrix: Interval
    flip_rate: Interval | None
    _spread: Spread = field(repr=False)
    _comparison_noise: float = field(default=1.0, repr=False)

    def squared_distance(self, z: Any) -> Interval:
        """Return z'Mz for each difference z, with its interval."""
        return from_zero(self._spread.squared_distances(z, self.metric.squared_distance(z), slope=0.0))

    def distance(self, z: Any) -> Interval:
        """Return the length of each difference z in the metric, with its interval."""
        squared = self.squared_distance(z)
        length = np.sqrt(squared.estimate)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(squared.standard_error > 0, 0.5 * squared.standard_error / length, 0.0)[()]
        return mapped(squared, np.sqrt, error)

    def probability_far(self, z: Any) -> Interval:
        """Return the probability that a pair with difference z is labelled far, with its interval."""
        return self._spread.probability_far(self.metric, z)

    def probabilities(self, z: Any) -> Interval:
        """Return the probability of each level, closest first, of a pair with difference z: arrays of shape (n, K).

        For annotators, they are those of the typical one.
        """
        if not self.metric.thresholds:
            _ = self.metric.known_threshold
        return self._spread.probabilities(self.metric, z)

    def probability_as_given(self, comparisons: Any) -> Interval:
        """Return the probability that the first leg of each comparison is called the shorter one, with its interval.

        `comparisons` are triplets (n, 3, d) or quadruplets (n, 4, d), also by index.
        """
        rows = rows_of(comparisons)
        if isinstance(rows, BlockRows):
            raise ValueError(
                "comparisons must be triplets (n, 3, d) or quadruplets (n, 4, d); got shape "
                f"{tuple(comparisons.shape)}. Use probability_far for pairs."
            )
        scaled = LegRows(rows.legs, 0, rows.n_comparisons, 1.0 / self._comparison_noise)
        return self._spread.probability_as_given(self.metric, scaled)
