"""The spread of fitted parameters, and the intervals that follow from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from closefar import packed
from closefar.arrays import FloatArray
from closefar.model import Metric
from closefar.questions.legs import by_legs
from closefar.questions.probability_intervals import ProbabilityIntervals, as_rates
from closefar.questions.reach import Interval, Reach, from_zero, mapped, of_complement, wald
from closefar.rows import Rows

__all__ = ["Spread"]

_ROUNDING = 1e-12  # eigenvalues up to this multiple of the largest are zero

# Eigenvalues are distinct if they differ by more than this many standard errors of the difference.
_APART = 2.0

_ENDS = ("estimate", "standard_error", "low", "high")


@dataclass(frozen=True, eq=False)
class Spread:
    """Where the parameters may be in unit-free coordinates, and the transformation to the user's units.

    An interval contains the estimate and the interval of each of `reaches`; without any it is unbounded.
    Parameters are (packed M, thresholds) and, at the end, `n_rates` flip rates; the thresholds of levels come before
    the strictness of annotators.
    """

    reaches: tuple[Reach, ...]
    transform: FloatArray
    n_thresholds: int = 1
    n_rates: int = 0

    def interval(self, estimate: Any, gradients: FloatArray) -> Interval:
        """A Wald interval for numbers with these gradients in the parameters."""
        return wald(self.reaches, estimate, gradients)

    def squared_distances(self, z: Any, estimate: Any, slope: float, cut: int = 0) -> Interval:
        """Intervals for z'Mz + slope tau, where tau is the threshold of this number."""
        return self.interval(estimate, self._gradients(z, slope, cut))

    def thresholds(self, metric: Metric) -> Interval:
        n = len(metric.thresholds)
        gradients = np.zeros((n, self._n_on_matrix + self.n_thresholds + self.n_rates))
        gradients[:, self._n_on_matrix : self._n_on_matrix + n] = np.eye(n)
        return from_zero(self.interval(np.array(metric.thresholds), gradients))

    def matrix(self, metric: Metric) -> Interval:
        d = len(metric.factor)
        i, j = np.indices((d, d)).reshape(2, -1)
        on_matrix = packed.form_gradients(self.transform[i], self.transform[j])
        entries = self.interval(metric.matrix, self._extended(on_matrix, 0.0))
        on_diagonal = np.eye(d, dtype=bool)
        low = np.where(on_diagonal, np.maximum(entries.low, 0.0), entries.low)
        return Interval(entries.estimate, entries.standard_error, low, entries.high)

    def relative_matrix(self, metric: Metric) -> Interval:
        """Intervals for M / tr M, in the units of the data."""
        d, trace = len(metric.factor), float(metric.eigenvalues.sum())
        if trace == 0.0:
            unknown = np.full((d, d), np.nan)
            return Interval(unknown, unknown, unknown, unknown)
        i, j = np.indices((d, d)).reshape(2, -1)
        of_entries = packed.form_gradients(self.transform[i], self.transform[j])
        estimate = metric.matrix / trace
        on_matrix = (of_entries - np.outer(estimate.ravel(), packed.form_gradients(self.transform).sum(axis=0))) / trace
        return self.interval(estimate, self._extended(on_matrix, 0.0))

    def eigenvalues(self, metric: Metric) -> Interval:
        """Intervals for the eigenvalues of M in the units of the data, largest first."""
        values, vectors = self._centre(metric)
        return self._of_eigenvalues(metric.eigenvalues, values, self._gradients(vectors.T, 0.0))

    def directions(self, matrix: FloatArray, root: FloatArray) -> Interval:
        """The mean squared distance along each direction: the eigenvalues of R W R', largest first.

        `matrix` is W, M in unit-free coordinates, and `root` is R, with R'R the second moment of the
        training pairs there, treated as known.  d lambda = v' R dW R' v for an eigenvector v.
        """
        centre = matrix
        if self.reaches:
            centre = matrix + packed.unpack(self.reaches[0].shift[: self._n_on_matrix], len(matrix))
        values, vectors = np.linalg.eigh(root @ centre @ root.T)
        gradients = self._extended(packed.form_gradients(vectors[:, ::-1].T @ root), 0.0)
        found = np.linalg.eigvalsh(root @ matrix @ root.T)[::-1]
        rounding = _ROUNDING * found[0]
        estimate = np.where(found > rounding, found, 0.0)
        interval = self._of_eigenvalues(estimate, values[::-1], gradients)
        error, high = (np.where(size <= rounding, 0.0, size) for size in (interval.standard_error, interval.high))
        return Interval(estimate, error, interval.low, high)

    def _of_eigenvalues(self, estimate: FloatArray, values: FloatArray, gradients: FloatArray) -> Interval:
        """Intervals for eigenvalues with these gradients; those that are not distinct share one interval."""
        each = self._from_centre().interval(values, gradients)
        low, high = np.minimum(each.low, estimate), np.maximum(each.high, estimate)
        error = self.interval(values[1:], gradients[:-1] - gradients[1:]).standard_error
        for those in np.split(np.arange(len(values)), np.flatnonzero(values[:-1] - values[1:] > _APART * error) + 1):
            low[those], high[those] = low[those].min(), high[those].max()
        return from_zero(Interval(estimate, each.standard_error, low, high))

    def flip_rate(self, metric: Metric) -> Interval | None:
        if not self.n_rates:
            return None
        gradient = np.zeros((self.n_rates, self._n_on_matrix + self.n_thresholds + self.n_rates))
        gradient[:, -self.n_rates :] = np.eye(self.n_rates)
        found = self.interval(np.array(metric.flip_rate, dtype=float), gradient)
        return mapped(found, as_rates)

    def probability_far(self, metric: Metric, z: Any) -> Interval:
        """From the margin if the flip rate is known or zero, otherwise from the log odds."""
        return self._probabilities(metric).beyond(metric.margin(z), self._gradients(z, -1.0), 1)

    def probabilities(self, metric: Metric, z: Any) -> Interval:
        """Of each level, (n, K): from the margins of the first and the last, otherwise from the log odds."""
        every, last = self._probabilities(metric), len(metric.thresholds)
        squared = np.atleast_1d(metric.squared_distance(z))
        gradients = [self._gradients(z, -1.0, cut) for cut in range(last)]
        margins = [squared - tau for tau in metric.thresholds]
        first = every.beyond(margins[0], gradients[0], 1)
        between = [every.between(margins[k - 1 : k + 1], gradients[k - 1 : k + 1]) for k in range(1, last)]
        found = [of_complement(first), *between, every.beyond(margins[-1], gradients[-1], last)]
        ends = (np.column_stack([getattr(each, name) for each in found]) for name in _ENDS)
        return Interval(*(end[0] if np.ndim(z) == 1 else end for end in ends))

    def probability_as_given(self, metric: Metric, rows: Rows) -> Interval:
        """That the answer to each comparison is as given."""
        parts = [found for _, found in by_legs(rows, lambda block: packed.form_gradients(block.T @ self.transform))]
        margin = rows.gather(rows.squared_distances(metric.factor))
        return self._probabilities(metric).beyond(margin, self._extended(np.concatenate(parts), 0.0), None)

    def _probabilities(self, metric: Metric) -> ProbabilityIntervals:
        return ProbabilityIntervals(self.reaches, metric, self.n_rates)

    @property
    def _n_on_matrix(self) -> int:
        return packed.packed_size(self.transform.shape[1])

    def _gradients(self, z: Any, slope: float, cut: int = 0) -> FloatArray:
        rows = np.atleast_2d(np.asarray(z, dtype=np.float64)) @ self.transform
        return self._extended(packed.form_gradients(rows), slope, cut)

    def _extended(self, on_matrix: FloatArray, slope: float, cut: int = 0) -> FloatArray:
        """Gradients in all parameters: these in M, `slope` in the threshold of this number, and otherwise zero."""
        rest = np.zeros((len(on_matrix), self.n_thresholds + self.n_rates))
        if slope != 0.0:
            rest[:, cut] = slope
        return np.column_stack([on_matrix, rest])

    def _from_centre(self) -> Spread:
        """The same, relative to the first of the centres."""
        reaches = [replace(reach, shift=reach.shift - self.reaches[0].shift) for reach in self.reaches]
        return replace(self, reaches=tuple(reaches))

    def _centre(self, metric: Metric) -> tuple[FloatArray, FloatArray]:
        """Eigenvalues and eigenvectors, largest first, of M at the first of the centres."""
        vectors = np.linalg.svd(metric.factor, full_matrices=True)[0] if metric.rank else np.eye(len(metric.factor))
        if not self.reaches or not np.any(self.reaches[0].shift):
            return metric.eigenvalues, vectors
        shift = packed.unpack(self.reaches[0].shift[: self._n_on_matrix], self.transform.shape[1])
        values, vectors = np.linalg.eigh(metric.matrix + self.transform @ shift @ self.transform.T)
        return values[::-1], vectors[:, ::-1]
