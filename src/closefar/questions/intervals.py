"""Confidence intervals of a metric, and of the distances and probabilities that follow from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from closefar import packed
from closefar.arrays import FloatArray
from closefar.model import Metric

__all__ = ["Confidence", "Interval", "Spread"]

_LARGEST_MARGIN = 1e4  # where the labels of every noise are certain


@dataclass(frozen=True, eq=False)
class Interval:
    """An estimate, its standard error, and the two ends of its confidence interval: numbers or arrays."""

    estimate: Any
    standard_error: Any
    low: Any
    high: Any

    def _map(self, function: Callable[[Any], Any], standard_error: Any) -> Interval:
        return Interval(function(self.estimate), standard_error, function(self.low), function(self.high))

    def _from_zero(self) -> Interval:
        return Interval(self.estimate, self.standard_error, np.maximum(self.low, 0.0), np.maximum(self.high, 0.0))


@dataclass(frozen=True, eq=False)
class Spread:
    """The covariance root @ root.T of the parameters, in unit-free coordinates, and the way to the user's units.

    Of several roots the one with the largest standard error counts, for each number; without
    any it is unbounded.
    """

    roots: tuple[FloatArray, ...]
    transform: FloatArray
    quantile: float

    def interval(self, estimate: Any, gradients: FloatArray) -> Interval:
        """A Wald interval for numbers with these derivatives in the parameters."""
        errors = [np.linalg.norm(gradients @ root, axis=1) for root in self.roots] or [np.full(len(gradients), np.inf)]
        error = np.max(errors, axis=0).reshape(np.shape(estimate))
        reach = self.quantile * error
        return Interval(estimate, error[()], (estimate - reach)[()], (estimate + reach)[()])

    def forms(self, z: Any, estimate: Any, slope: float) -> Interval:
        """For z'Mz + slope tau."""
        on_matrix = packed.form_gradients(np.atleast_2d(np.asarray(z, dtype=np.float64)) @ self.transform)
        return self.interval(estimate, _with_threshold(on_matrix, slope))

    def threshold(self, metric: Metric) -> Interval:
        nothing = np.zeros((1, packed.packed_size(self.transform.shape[1])))
        return self.interval(np.float64(metric.threshold), _with_threshold(nothing, 1.0))._from_zero()

    def matrix(self, metric: Metric) -> Interval:
        d = len(metric.factor)
        i, j = np.indices((d, d)).reshape(2, -1)
        on_matrix = packed.form_gradients(self.transform[i], self.transform[j])
        entries = self.interval(metric.matrix, _with_threshold(on_matrix, 0.0))
        on_diagonal = np.eye(d, dtype=bool)
        low = np.where(on_diagonal, np.maximum(entries.low, 0.0), entries.low)
        return Interval(entries.estimate, entries.standard_error, low, entries.high)

    def eigenvalues(self, metric: Metric) -> Interval:
        directions = np.linalg.svd(metric.factor, full_matrices=True)[0] if metric.rank else np.eye(len(metric.factor))
        return self.forms(directions.T, metric.eigenvalues, slope=0.0)._from_zero()


def _with_threshold(on_matrix: FloatArray, slope: float) -> FloatArray:
    """Derivatives in (packed M, tau) of numbers that have these in M and this one in tau."""
    return np.column_stack([on_matrix, np.full(len(on_matrix), slope)])


@dataclass(frozen=True, eq=False)
class Confidence:
    """Confidence intervals for a fitted metric; `confidence` makes one.

    Attributes
    ----------
    method : {"sandwich", "bootstrap", "none"}
        What gave the standard errors.  "none": the pairs do not determine the metric, and
        every interval is unbounded.
    valid : bool
        Whether the intervals can be trusted.
    flaws : tuple of str
        Why neither method is valid here, a sentence each; none where one is.
    statement : str
        Which method was used and why, what it is valid for, or why none is.
    level : float
        The share of samples whose interval should hold the true value.
    metric : Metric
        The fitted metric.
    threshold, matrix, eigenvalues : Interval
        For tau, for each entry of M and for its eigenvalues, largest first, in the units of
        the data.  Eigenvalues nearer to each other than their standard errors can't be told
        apart, and theirs are too short.
    """

    method: str
    valid: bool
    flaws: tuple[str, ...]
    statement: str
    level: float
    metric: Metric
    threshold: Interval
    matrix: Interval
    eigenvalues: Interval
    _spread: Spread = field(repr=False)

    def squared_distance(self, z: Any) -> Interval:
        """Return z'Mz for each difference z, with its interval."""
        return self._spread.forms(z, self.metric.squared_distance(z), slope=0.0)._from_zero()

    def distance(self, z: Any) -> Interval:
        """Return the length of each difference z in the metric, with its interval."""
        squared = self.squared_distance(z)
        length = np.sqrt(squared.estimate)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(squared.standard_error > 0, 0.5 * squared.standard_error / length, 0.0)[()]
        return squared._map(np.sqrt, error)

    def probability_far(self, z: Any) -> Interval:
        """Return the probability that a pair with difference z is labelled far, with its interval."""
        margin = self._spread.forms(z, self.metric.margin(z), slope=-1.0)
        density = self.metric.noise.pdf(margin.estimate)

        def probability(value: Any) -> Any:
            return self.metric.noise.cdf(np.clip(value, -_LARGEST_MARGIN, _LARGEST_MARGIN))[()]

        return margin._map(probability, density * margin.standard_error)
