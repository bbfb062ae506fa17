"""Confidence intervals for a metric, its distances and its probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import expit, logit

from closefar import packed
from closefar.arrays import FloatArray
from closefar.model import Metric
from closefar.noise import with_flips
from closefar.questions.label_model import LabelModel

__all__ = ["Confidence", "Interval", "Reach", "Spread"]

_LARGEST_MARGIN = 1e4  # labels are certain there under every noise
_LEAST_RATE = 1e-6  # the least flip rate, so that log odds stay finite

_ROUNDING = 1e-12  # eigenvalues up to this multiple of the largest are zero

# Eigenvalues are distinct if they differ by more than this many standard errors of the difference.
_APART = 2.0


@dataclass(frozen=True, eq=False)
class Interval:
    """An estimate, its standard error, and the two ends of its confidence interval, as numbers or arrays.

    The estimate is the fit's own and need not be in the middle: with few labels it is biased, and on
    the boundary of the positive semidefinite matrices it can err to one side only.
    """

    estimate: Any
    standard_error: Any
    low: Any
    high: Any

    def _map(self, function: Callable[[Any], Any], standard_error: Any = None) -> Interval:
        error = self.standard_error if standard_error is None else standard_error
        return Interval(function(self.estimate), error, function(self.low), function(self.high))

    def _from_zero(self) -> Interval:
        return Interval(self.estimate, self.standard_error, np.maximum(self.low, 0.0), np.maximum(self.high, 0.0))


@dataclass(frozen=True, eq=False)
class Reach:
    """Where the parameters may be: a centre, and a covariance root @ root.T around it.

    `shift` is the centre minus the parameters of the fit, and an interval extends `quantile` standard
    errors to either side of the centre.
    """

    shift: FloatArray
    root: FloatArray
    quantile: float


@dataclass(frozen=True, eq=False)
class Spread:
    """Where the parameters may be in unit-free coordinates, and the transformation to the user's units.

    An interval contains the estimate and the interval of each of `reaches`; without any it is unbounded.
    Parameters are (packed M, tau) and, with `has_flip_parameter`, the flip rate.
    """

    reaches: tuple[Reach, ...]
    transform: FloatArray
    has_flip_parameter: bool = False

    def interval(self, estimate: Any, gradients: FloatArray) -> Interval:
        """A Wald interval for numbers with these gradients in the parameters."""
        shape = np.shape(estimate)
        error, low, high = np.zeros(shape), np.array(estimate, dtype=float), np.array(estimate, dtype=float)
        for reach in self.reaches:
            centre = estimate + np.reshape(gradients @ reach.shift, shape)
            errors = np.linalg.norm(gradients @ reach.root, axis=1).reshape(shape)
            error = np.maximum(error, errors)
            low = np.minimum(low, centre - reach.quantile * errors)
            high = np.maximum(high, centre + reach.quantile * errors)
        if not self.reaches:
            error, low, high = np.full(shape, np.inf), np.full(shape, -np.inf), np.full(shape, np.inf)
        return Interval(estimate, error[()], low[()], high[()])

    def squared_distances(self, z: Any, estimate: Any, slope: float) -> Interval:
        """Intervals for z'Mz + slope tau."""
        return self.interval(estimate, self._gradients(z, slope))

    def threshold(self, metric: Metric) -> Interval:
        nothing = np.zeros((1, len(self.transform)))
        return self.squared_distances(nothing, np.float64(metric.known_threshold), slope=1.0)._from_zero()

    def matrix(self, metric: Metric) -> Interval:
        d = len(metric.factor)
        i, j = np.indices((d, d)).reshape(2, -1)
        on_matrix = packed.form_gradients(self.transform[i], self.transform[j])
        entries = self.interval(metric.matrix, self._extended(on_matrix, 0.0))
        on_diagonal = np.eye(d, dtype=bool)
        low = np.where(on_diagonal, np.maximum(entries.low, 0.0), entries.low)
        return Interval(entries.estimate, entries.standard_error, low, entries.high)

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
        return Interval(estimate, each.standard_error, low, high)._from_zero()

    def flip_rate(self, metric: Metric) -> Interval | None:
        if not self.has_flip_parameter:
            return None
        gradient = self._extended(np.zeros((1, self._n_on_matrix)), 0.0)
        gradient[:, -1] = 1.0
        return self.interval(np.float64(metric.one_flip_rate), gradient)._map(_as_rate)

    def probability_far(self, metric: Metric, z: Any) -> Interval:
        """From the margin if the flip rate is known or zero, otherwise from the log odds."""
        margin = self.squared_distances(z, metric.margin(z), slope=-1.0)
        model = LabelModel.at(_bounded(margin.estimate), metric.noise, metric.one_flip_rate)

        def probability(value: Any) -> Any:
            return with_flips(metric.noise.cdf(_bounded(value)), metric.flip_rate)[()]

        if not self.reaches:
            unknown = np.full(np.shape(margin.estimate), np.inf)[()]
            return Interval(model.far[()], unknown, 0.0 * model.far[()], 0.0 * model.far[()] + 1.0)
        if not self.has_flip_parameter:
            return margin._map(probability, model.slope * margin.standard_error)
        ends = [self._log_odds(reach, metric, z, margin.estimate) for reach in self.reaches]
        odds = logit(model.far)
        low, high = np.min([odds, *(low for low, _, _ in ends)], axis=0), np.max([odds, *(e[1] for e in ends)], axis=0)
        error = np.max([each for _, _, each in ends], axis=0) * model.variance
        return Interval(model.far[()], error[()], expit(low)[()], expit(high)[()])

    def _log_odds(self, reach: Reach, metric: Metric, z: Any, margin: Any) -> tuple[Any, Any, Any]:
        """The two ends of the interval of the log odds of far, and its standard error."""
        gradients = self._gradients(z, -1.0)
        centre = _bounded(margin + np.reshape(gradients @ reach.shift, np.shape(margin)))
        model = LabelModel.at(
            centre, metric.noise, max(float(_as_rate(metric.flip_rate + reach.shift[-1])), _LEAST_RATE)
        )
        gradients = gradients * np.reshape(model.slope, (-1, 1))
        gradients[:, -1] = np.ravel(model.flip_slope)
        error = np.linalg.norm(gradients @ reach.root, axis=1).reshape(np.shape(margin)) / model.variance
        odds = logit(model.far)
        return odds - reach.quantile * error, odds + reach.quantile * error, error

    @property
    def _n_on_matrix(self) -> int:
        return packed.packed_size(self.transform.shape[1])

    def _gradients(self, z: Any, slope: float) -> FloatArray:
        rows = np.atleast_2d(np.asarray(z, dtype=np.float64)) @ self.transform
        return self._extended(packed.form_gradients(rows), slope)

    def _extended(self, on_matrix: FloatArray, slope: float) -> FloatArray:
        """Gradients in all parameters: these in M, `slope` in tau, and zero in the flip rate."""
        rest = np.zeros((len(on_matrix), 1 + self.has_flip_parameter))
        rest[:, 0] = slope
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


def _bounded(margin: Any) -> Any:
    return np.clip(margin, -_LARGEST_MARGIN, _LARGEST_MARGIN)


def _as_rate(value: Any) -> Any:
    return np.clip(value, 0.0, 0.5)[()]


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
    threshold : Interval
        For tau.
    directions : Interval
        For the mean squared distance along each direction, in the order of `metric.directions()`
        and, beyond its rank, zeros: one for every direction in which the pairs vary.  They do not
        depend on units; the second moment of the pairs is treated as known.  Directions that are not
        clearly distinct share one interval.
    matrix, eigenvalues : Interval
        For each entry of M and for its eigenvalues, largest first; both depend on the units of the
        data.
    flip_rate : Interval or None
        For the share of flipped labels, if it was estimated.
    """

    method: str
    valid: bool
    flaws: tuple[str, ...]
    statement: str
    level: float
    metric: Metric
    threshold: Interval
    directions: Interval
    matrix: Interval
    eigenvalues: Interval
    flip_rate: Interval | None
    _spread: Spread = field(repr=False)

    def squared_distance(self, z: Any) -> Interval:
        """Return z'Mz for each difference z, with its interval."""
        return self._spread.squared_distances(z, self.metric.squared_distance(z), slope=0.0)._from_zero()

    def distance(self, z: Any) -> Interval:
        """Return the length of each difference z in the metric, with its interval."""
        squared = self.squared_distance(z)
        length = np.sqrt(squared.estimate)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(squared.standard_error > 0, 0.5 * squared.standard_error / length, 0.0)[()]
        return squared._map(np.sqrt, error)

    def probability_far(self, z: Any) -> Interval:
        """Return the probability that a pair with difference z is labelled far, with its interval."""
        return self._spread.probability_far(self.metric, z)
