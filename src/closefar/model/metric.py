"""The learned metric: a Mahalanobis metric with its thresholds and its noise."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from closefar.arrays import FloatArray, IndexArray
from closefar.errors import InvalidValueError, either, setting
from closefar.model.modelfile import ModelFileError, read, write
from closefar.model.scores import answer_probabilities
from closefar.noise import NOISES, FlipRate, Noise, flip_mixture, get_noise
from closefar.rows import column_scales, pair_rows, rows_of

ZERO = "M is zero: no direction separates close from far."

_DATA_SCALE = ("data_factor", "data_eigenvalues")
_ROWS_OF_M_AT_ONCE = 512  # that are compared: M is large if there are many columns

_NO_THRESHOLD = (
    "this needs a threshold, and comparisons determine none; got a metric without one. Fit one "
    "to labelled pairs with "
    + either("ComparisonMetricLearner.calibrate_threshold(pairs, labels)", "calibrate_threshold in Python")
    + "."
)


# ---------------------------------------------------------------------------------------------------------------------
# The directions of a metric, in the order used everywhere.


class Directions(NamedTuple):
    """Columns D with M = D D', longest first, and their squared lengths, in the scale in which they are orthogonal.

    In the scale of the training pairs, the squared length of a direction is the mean squared
    distance along it; for points around an origin, their variance.
    """

    columns: FloatArray
    values: FloatArray
    is_data_scale: bool
    measure: str = "mean squared distance"  # what the values are, and are shares of

    @property
    def shares(self) -> FloatArray:
        """The share of each value in their sum."""
        return self.values / max(float(self.values.sum()), np.finfo(float).tiny)


_TIED = 1e-6  # loadings, and lengths of directions, that differ by a smaller share are treated as equal


def canonical(factor: FloatArray) -> FloatArray:
    """Rotate A to orthogonal columns, longest first, largest loading positive; drop directions of length zero.

    Rows are scaled to one to decide which directions are zero, so the decision does not depend on
    units.  A V is formed rather than U S, so that each row keeps its own relative accuracy.
    """
    size = np.abs(factor).max(axis=1, initial=0.0, keepdims=True)
    _, lengths, turn = np.linalg.svd(factor / np.where(size > 0, size, 1.0), full_matrices=False)
    return rotated(factor @ turn[lengths > 1e-13 * lengths.max(initial=0.0)].T)


def rotated(factor: FloatArray) -> FloatArray:
    """Rotate A to orthogonal columns, longest first, largest loading positive."""
    if factor.size == 0:
        return factor
    scale = np.abs(factor).max()
    turned = factor @ np.linalg.svd(factor / scale, full_matrices=False)[2].T
    return with_positive_loadings(turned[:, np.argsort(-np.sum((turned / scale) ** 2, axis=0), kind="stable")])


def with_positive_loadings(factor: FloatArray, scales: FloatArray | None = None) -> FloatArray:
    """Flip the sign of columns so that the largest loading of each is positive.

    Loadings are entries times the `scales` of their rows, if given.  Of loadings that are equal but
    for rounding, the first decides.
    """
    if factor.size == 0:
        return factor
    sizes = np.abs(factor if scales is None else factor * scales[:, None])
    largest = np.argmax(sizes >= (1.0 - _TIED) * sizes.max(axis=0), axis=0)
    positive: FloatArray = factor * np.where(factor[largest, range(factor.shape[1])] < 0, -1.0, 1.0)
    return positive


def as_directions(
    columns: FloatArray, values: FloatArray, scales: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return columns of these squared lengths, longest first, as directions that are unique.

    Columns of equal length are determined only up to a rotation: they are rotated so that their
    loadings are orthogonal, largest first.  The largest loading of each is positive.
    """
    columns, values = columns.copy(), values.copy()
    starts = np.flatnonzero(values[:-1] - values[1:] > _TIED * values[:-1]) + 1
    for tied in np.split(np.arange(len(values)), starts):
        if len(tied) > 1:
            block = columns[:, tied] if scales is None else columns[:, tied] * scales[:, None]
            largest = np.abs(block).max() or 1.0
            columns[:, tied] = columns[:, tied] @ np.linalg.svd(block / largest, full_matrices=False)[2].T
            values[tied] = values[tied].mean()
    return with_positive_loadings(columns, scales), values


def root_of(second_moment: FloatArray) -> FloatArray:
    """R with R'R = S."""
    values, vectors = np.linalg.eigh(second_moment)
    root: FloatArray = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    return root


def data_scale_of(
    factor: FloatArray, data_factor: FloatArray, data_eigenvalues: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return B and its eigenvalues for a factor A = B_0 Q, with orthonormal columns in Q and a known B_0."""
    left, right = with_common_scales(factor, data_factor)
    turn, _, back = np.linalg.svd(np.linalg.lstsq(right, left, rcond=None)[0], full_matrices=False)
    _, lengths, rotation = np.linalg.svd(np.sqrt(data_eigenvalues)[:, None] * (turn @ back), full_matrices=False)
    return as_directions(factor @ rotation.T, lengths**2)


def with_common_scales(factor: FloatArray, other: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Both factors with each row divided by its largest entry, so that a comparison does not depend on units."""
    size = np.maximum(np.abs(factor).max(axis=1, initial=0.0), np.abs(other).max(axis=1, initial=0.0))[:, None]
    size[size == 0] = 1.0
    return factor / size, other / size


def has_ordered_orthogonal_columns(factor: FloatArray) -> bool:
    scale = np.abs(factor).max(initial=0.0)
    if scale == 0:
        return True
    products = (factor / scale).T @ (factor / scale)
    lengths = np.diag(products)
    slack = 1e-8 * lengths.max()
    return bool(np.all(np.abs(products - np.diag(lengths)) <= slack) and np.all(np.diff(lengths) <= slack))


def loadings(factor: FloatArray, scales: FloatArray) -> FloatArray:
    """The loadings of each direction: rows times their scales, columns normalised to length one."""
    scaled = factor * scales[:, None]
    lengths = np.linalg.norm(scaled, axis=0)
    unit: FloatArray = scaled / np.where(lengths > 0, lengths, 1.0)
    return unit


# ---------------------------------------------------------------------------------------------------------------------
# The thresholds and the flip rates of a metric.


def check_thresholds(threshold: Any) -> tuple[float, ...]:
    """Return all thresholds, lowest first, of one number, a sequence of them, or None."""
    if threshold is None:
        return ()
    if not isinstance(threshold, Sequence | np.ndarray) or np.ndim(threshold) == 0:
        if not np.isfinite(threshold):
            raise ValueError(f"threshold must be a finite number; got {threshold!r}.")
        return (float(threshold),)
    values = tuple(float(value) for value in threshold)
    if not (np.all(np.isfinite(values)) and np.all(np.diff(values) >= 0)):
        raise ValueError(f"thresholds must be finite numbers, lowest first; got {list(values)}. Sort them.")
    return values


def check_flip_rate(flip_rate: Any, n_levels: int) -> FlipRate:
    """Return one rate, or the rates of close and of far pairs, as floats."""
    if not isinstance(flip_rate, tuple | list | np.ndarray):
        most = (n_levels - 1) / n_levels  # of answers that are all drawn at random
        if not (isinstance(flip_rate, numbers.Real) and 0 <= float(flip_rate) < most):
            raise InvalidValueError("flip_rate", f"must be at least 0 and below {most:.3g}", flip_rate)
        return float(flip_rate)
    is_pair = len(flip_rate) == 2 and all(isinstance(rate, numbers.Real) and 0 <= float(rate) < 1 for rate in flip_rate)
    if n_levels != 2 or not is_pair or not sum(flip_rate) < 1:
        raise ValueError(
            "two flip rates, P(called far | close) and P(called close | far), must be numbers from 0 to below 1 that "
            f"sum to less than 1, and are for close and far only; got {flip_rate!r} for {n_levels} levels."
        )
    return float(flip_rate[0]), float(flip_rate[1])


def one_rate(flip_rate: FlipRate) -> float:
    """The flip rate of both sides; an error if they differ."""
    if isinstance(flip_rate, tuple):
        raise ValueError(
            "this needs one flip rate for both sides; got two. Fit with " + setting(flip_rate="estimate") + "."
        )
    return flip_rate


# ---------------------------------------------------------------------------------------------------------------------
# The metric.


@dataclass(frozen=True, eq=False)
class Metric:
    """The distance sqrt((x - y)' M (x - y)) with M = A A', and thresholds on its square.

    A metric learned from close/far labels has one threshold, one learned from K levels has K - 1, and
    one learned from comparisons has none.

    Metrics are immutable.  `Metric.from_factor` and `Metric.from_matrix` build one from any A or M;
    learners also add the scale of the data (`Metric.from_data_scale`).

    Parameters
    ----------
    factor : array of shape (d, k)
        A, with orthogonal columns, longest first, in the units of the data.
    threshold : float, sequence of float or None
        tau: a pair whose squared distance is at least tau is called far.  Several numbers, lowest
        first, are the thresholds between levels (`thresholds`); the attribute is then None.
    noise : str or Noise
        The noise model that converts a margin to a probability.
    feature_names : tuple of str, optional
    origin : array of shape (d,), optional
        The point from which single points are measured, if one was learned.
    flip_rate : float or (float, float), default=0.0
        q: the share of labels that are flipped regardless of the distance, so that a pair is
        labelled far with probability q + (1 - 2q) Phi(margin).  Two rates a and b are
        P(called far | close) and P(called close | far): the probability is a + (1 - a - b) Phi(margin).
        With K levels it is the share of answers that are wrong because they are drawn from all
        levels alike.
    data_factor : array of shape (d, k), optional
        B, with M = B B' like A, but with columns that are orthogonal in the scale of the data,
        longest first: B' S B is diagonal, where S is the second moment of the training differences.
    data_eigenvalues : array of shape (k,), optional
        That diagonal: the eigenvalues of M in the scale of the data, which do not depend on units.
        Each is the mean of z'Mz along its direction, and their sum is the mean of z'Mz
        (if the fit gave enormous rows less weight, so do these means).
    level_thresholds : tuple of float, optional
        The thresholds of three levels or more; usually given as `threshold`.

    Examples
    --------
    >>> import closefar as cf
    >>> metric = cf.Metric([[1.0], [0.5]], threshold=1.0)
    >>> float(metric.distance([0.0, 2.0], [0.0, 0.0]))
    1.0
    """

    factor: FloatArray
    threshold: float | None
    noise: Noise = "logistic"  # type: ignore[assignment]
    feature_names: tuple[str, ...] | None = None
    origin: FloatArray | None = None
    flip_rate: FlipRate = 0.0
    data_factor: FloatArray | None = None
    data_eigenvalues: FloatArray | None = None
    level_thresholds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        factor = _frozen(self.factor)
        if factor.ndim != 2 or not np.all(np.isfinite(factor)):
            raise ValueError(f"factor must be a d x k array of finite numbers; got shape {factor.shape}.")
        if not has_ordered_orthogonal_columns(factor):
            raise ValueError(
                "factor must have orthogonal columns, longest first. Use Metric.from_factor for any other factor."
            )
        thresholds = check_thresholds(self.level_thresholds if self.threshold is None else self.threshold)
        names = None if self.feature_names is None else tuple(str(name) for name in self.feature_names)
        if names is not None and len(names) != len(factor):
            raise ValueError(f"there must be one feature name per row of factor; got {len(names)} for {len(factor)}.")
        origin = None if self.origin is None else _frozen(self.origin)
        if origin is not None and (origin.shape != (len(factor),) or not np.all(np.isfinite(origin))):
            raise ValueError(f"origin must be {len(factor)} finite numbers; got shape {origin.shape}.")
        flip_rate = check_flip_rate(self.flip_rate, max(len(thresholds) + 1, 2))
        data_factor, data_eigenvalues = _check_data_scale(factor, self.data_factor, self.data_eigenvalues)
        vars(self).update(  # which a frozen class allows before it is used
            factor=factor,
            threshold=thresholds[0] if len(thresholds) == 1 else None,
            level_thresholds=thresholds if len(thresholds) > 1 else (),
            noise=get_noise(self.noise),
            feature_names=names,
            origin=origin,
            flip_rate=flip_rate,
            data_factor=data_factor,
            data_eigenvalues=data_eigenvalues,
        )

    @classmethod
    def from_factor(cls, factor: Any, threshold: Any, noise: str | Noise = "logistic", **kwargs: Any) -> Metric:
        """Build from any A with M = A A'; its columns are rotated and ordered, with positive largest loadings."""
        factor = np.asarray(factor, dtype=np.float64)
        if factor.ndim == 2 and np.all(np.isfinite(factor)):
            factor = canonical(factor)
        return cls(factor, threshold, get_noise(noise), **kwargs)

    @classmethod
    def from_matrix(cls, matrix: Any, threshold: Any, noise: str | Noise = "logistic", **kwargs: Any) -> Metric:
        """Build from a positive semidefinite M."""
        matrix = np.asarray(matrix, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.all(np.isfinite(matrix)):
            raise ValueError(f"matrix must be square, symmetric and finite; got shape {matrix.shape}.")
        scale = np.sqrt(np.abs(np.diag(matrix)))
        scale[scale == 0] = 1.0
        scaled = matrix / scale / scale[:, None]
        if not np.allclose(scaled, scaled.T, rtol=0.0, atol=1e-8):
            raise ValueError("matrix must be symmetric; got an asymmetric one. Use (matrix + matrix.T) / 2.")
        values, vectors = np.linalg.eigh(scaled)
        if values[0] < -1e-8 * max(values[-1], 0.0):
            raise ValueError(
                f"matrix must be positive semidefinite; got the eigenvalue {values[0]:.3g} with the diagonal scaled "
                "to one."
            )
        keep = values > 1e-13 * values[-1]
        return cls.from_factor(scale[:, None] * vectors[:, keep] * np.sqrt(values[keep]), threshold, noise, **kwargs)

    @classmethod
    def from_data_scale(
        cls,
        transform: Any,
        factor: Any,
        threshold: Any,
        noise: str | Noise = "logistic",
        *,
        second_moment: Any = None,
        column_scales: Any = None,
        **kwargs: Any,
    ) -> Metric:
        """Build from a factor W for the coordinates w = T'z, in which the scale of the data is known.

        M = T W W' T'.  `second_moment` is that of w over the training differences, by default
        the identity.  `column_scales` are the root mean squares of the columns of z; the largest
        loading of each direction in these units is positive.
        """
        transform, factor = np.asarray(transform, dtype=np.float64), np.asarray(factor, dtype=np.float64)
        moment = np.eye(len(factor)) if second_moment is None else np.asarray(second_moment, dtype=np.float64)
        root = moment if second_moment is None else root_of(moment)
        _, lengths, turn = np.linalg.svd(root @ factor, full_matrices=False)
        # A metric that is shrunk to the plain distance has directions along which no training difference varies.
        sizes = lengths if second_moment is None else np.linalg.norm(factor @ turn.T, axis=0)
        keep = sizes > 1e-13 * sizes.max(initial=0.0)
        turned = transform @ (factor @ turn[keep].T)
        scales = None if column_scales is None else np.asarray(column_scales, dtype=np.float64)
        lengths = np.where(lengths > 1e-13 * lengths.max(initial=0.0), lengths, 0.0)
        columns, values = as_directions(turned, lengths[keep] ** 2, scales)
        kwargs |= {"data_factor": columns, "data_eigenvalues": values}
        return cls(rotated(turned), threshold, get_noise(noise), **kwargs)

    @property
    def thresholds(self) -> tuple[float, ...]:
        """All thresholds, lowest first: one for close/far, K - 1 for K levels, and none for comparisons."""
        return self.level_thresholds if self.threshold is None else (self.threshold,)

    @property
    def n_levels(self) -> int:
        """The number of levels that the thresholds divide distances into: two for close and far."""
        return len(self.thresholds) + 1

    @property
    def known_threshold(self) -> float:
        """The threshold; an error if there is none, or more than one."""
        if self.threshold is not None:
            return self.threshold
        if not self.thresholds:
            raise ValueError(_NO_THRESHOLD)
        raise ValueError(
            f"this needs one threshold; got a metric of {self.n_levels} levels, which has {self.n_levels - 1}. Use "
            f"dichotomy(k) of the metric, with k from 1 to {self.n_levels - 1}: far then means level k or higher."
        )

    @property
    def cut(self) -> float:
        """What margins are measured from: the threshold, or zero for comparisons."""
        return self.known_threshold if self.thresholds else 0.0

    @property
    def flip_rates(self) -> tuple[float, float]:
        """P(called far | close) and P(called close | far)."""
        if self.level_thresholds:
            _ = self.known_threshold
        return self.flip_rate if isinstance(self.flip_rate, tuple) else (self.flip_rate, self.flip_rate)

    @property
    def one_flip_rate(self) -> float:
        """The flip rate; an error if that of far pairs differs."""
        return one_rate(self.flip_rate)

    @property
    def compared_flip_rate(self) -> float:
        """The flip rate of comparisons: as many of their answers are at random as of those about pairs."""
        if isinstance(self.flip_rate, tuple):
            return 0.5 * float(self.flip_rate[0] + self.flip_rate[1])
        if not self.thresholds:
            return self.flip_rate
        return 0.5 * (1.0 - float(flip_mixture(self.flip_rate, self.n_levels)[1]))

    def probability_as_given(self, margin: Any) -> Any:
        """Return the probability that the first leg of a comparison with this margin is called the shorter one."""
        (floor, _), kept = flip_mixture(self.compared_flip_rate, 2)
        return floor + kept * self.noise.cdf(margin)

    def probability_at(self, margin: Any) -> Any:
        """Return the probability that a pair with this margin is labelled far.

        For comparisons, the margin is the difference of the squared distances of the two legs, and the
        probability that of the answer as given: that the first leg is the shorter one.
        """
        _ = self.cut
        (_, floor), kept = flip_mixture(self.flip_rate, 2)
        return floor + kept * self.noise.cdf(margin)

    def probabilities_at(self, squared: FloatArray, flip_rate: Any = None) -> FloatArray:
        """Return the probability of each level, closest first, at each squared distance: shape (n, K).

        The flip rate of an annotator, or an array with that of each pair, replaces that of the metric.
        """
        if not self.thresholds:
            raise ValueError(_NO_THRESHOLD)
        rate = self.flip_rate if flip_rate is None else flip_rate
        return answer_probabilities(self.noise, squared[:, None] - np.array(self.thresholds), rate)

    def levels_at(self, squared: FloatArray) -> IndexArray:
        """Return the most probable level at each squared distance: 0 is the closest; a tie goes to the higher one."""
        if len(self.thresholds) == 1:
            return (squared >= self.thresholds[0]).astype(np.intp)
        probabilities = self.probabilities_at(squared, 0.0)
        levels: IndexArray = len(self.thresholds) - np.argmax(probabilities[:, ::-1], axis=1)
        return levels

    @property
    def matrix(self) -> FloatArray:
        """M, d x d."""
        return self.factor @ self.factor.T

    @property
    def column_names(self) -> tuple[str, ...]:
        """The feature names, or x0, x1, ... if there are none."""
        return self.feature_names or tuple(f"x{index}" for index in range(len(self.factor)))

    @property
    def rank(self) -> int:
        """The rank of M."""
        return int(self.factor.shape[1])

    @property
    def eigenvalues(self) -> FloatArray:
        """The d eigenvalues of M, largest first, in the units of M."""
        values = np.zeros(len(self.factor))
        values[: self.rank] = np.sum(self.factor**2, axis=0)
        return values

    @property
    def components(self) -> FloatArray:
        """The directions of M as rows, k x d, in the order of `directions`.

        ``x @ components.T`` maps points to a space where the metric is Euclidean.
        """
        return self.directions().columns.T

    def directions(self, scale: str | None = None) -> Directions:
        """Return directions 1, 2, ..., k, in the order used by `components`, `truncate` and all output.

        Those of a learned metric are ordered by the mean squared distance that each explains on the
        training pairs: the columns of `data_factor` with `data_eigenvalues`.  Without the scale of
        the data, or with scale="units", they are the columns of `factor`, in the units of M.
        """
        self.check_scale(scale)
        if scale != "units" and self.data_factor is not None and self.data_eigenvalues is not None:
            measure = "mean squared distance" if self.origin is None else "variance"
            return Directions(self.data_factor, self.data_eigenvalues, True, measure)
        return Directions(self.factor, self.eigenvalues[: self.rank], False, "eigenvalues in raw units")

    def distance(self, x: Any, y: Any) -> Any:
        """Return the distance between two points, or between each row of two tables."""
        difference = np.asarray(x, dtype=np.float64) - np.asarray(y, dtype=np.float64)
        mapped = self._checked(difference) @ self.factor
        return np.sqrt(np.sum(mapped * mapped, axis=-1))[()]

    def squared_distance(self, z: Any) -> Any:
        """Return z'Mz for each difference z; single points are measured from `origin`, if there is one."""
        z = self._checked(np.asarray(z))
        if z.ndim == 1:
            return self.squared_distance(z[None])[0]
        return self.measure(z)

    def margin(self, z: Any) -> Any:
        """Return z'Mz - tau, which is positive for far pairs."""
        return self.squared_distance(z) - self.known_threshold

    def probability_far(self, z: Any) -> Any:
        """Return the probability that a pair with difference z is labelled far."""
        return self.probability_at(self.margin(z))

    def probabilities(self, z: Any) -> Any:
        """Return the probability of each level, closest first, of a pair with difference z: shape (n, K)."""
        squared = self.squared_distance(z)
        return self.probabilities_at(squared) if np.ndim(squared) else self.probabilities_at(squared[None])[0]

    def dichotomy(self, k: int) -> Metric:
        """Return the close/far metric in which far means level k or higher, for k from 1 to K - 1."""
        if len(self.thresholds) == 1 and k == 1:
            return self
        most = len(self.thresholds)
        if not most:
            raise ValueError(_NO_THRESHOLD)
        if not (isinstance(k, numbers.Integral) and 1 <= k <= most):
            raise ValueError(f"k must be a whole number from 1 to {most}, the number of thresholds; got {k!r}.")
        (each, *_), _ = flip_mixture(self.one_flip_rate, most + 1)
        rates = ((most + 1 - int(k)) * each, int(k) * each) if each else 0.0
        return replace(self, threshold=self.thresholds[k - 1], level_thresholds=(), flip_rate=rates)

    def truncate(self, k: int, scale: str | None = None) -> Metric:
        """Keep directions 1 to k, those of the largest eigenvalues of M; thresholds do not change.

        `scale` is the scale in which eigenvalues are compared.  "data": that of the training data,
        so that the result does not depend on units.  "units": the units of M, as in the paper.  The
        default is "data" if the metric has the scale of the data, as learned metrics do, and
        "units" otherwise.
        """
        if not (isinstance(k, numbers.Integral) and 0 <= k <= len(self.factor)):
            raise ValueError(
                f"k must be a whole number from 0 to {len(self.factor)}, the number of columns; got {k!r}."
            )
        self.check_scale(scale)
        if k >= self.rank:
            return self
        if self.data_factor is None or self.data_eigenvalues is None:
            return replace(self, factor=self.factor[:, :k])
        if scale == "units":
            factor = self.factor[:, :k]
            data_factor, values = data_scale_of(factor, self.data_factor, self.data_eigenvalues)
            return replace(self, factor=factor, data_factor=data_factor, data_eigenvalues=values)
        return self._with_data_scale(self.data_factor[:, :k], self.data_eigenvalues[:k])

    def check_scale(self, scale: str | None) -> None:
        """Raise an error for a scale that this metric does not have."""
        if scale not in (None, "data", "units"):
            raise InvalidValueError("scale", either('must be "data", "units" or None', "must be data or units"), scale)
        if scale == "data" and self.data_factor is None:
            raise ValueError(
                setting(scale="data")
                + " needs the scale of the training data, which this metric does not have, as it was not "
                "learned from any. Use " + setting(scale="units") + ", or closefar.model.in_data_scale."
            )

    def change_units(self, units: Any) -> Metric:
        """Return the same metric for data z_new = U z (section "Invariance to Changes in Unit of Input").

        `units` is the d x d matrix U, or d factors, one per column.  Feature names are kept.
        """
        units = np.asarray(units, dtype=np.float64)
        d = len(self.factor)
        if not np.all(np.isfinite(units)) or (units.ndim == 1 and np.any(units == 0)):
            raise ValueError(f"units must be finite, and factors must not be zero; got {units}.")
        factor = self.factor if self.data_factor is None else self.data_factor
        if units.shape == (d,):
            factor = factor / units[:, None]
            origin = None if self.origin is None else self.origin * units
        elif units.shape == (d, d):
            try:
                factor = np.linalg.solve(units.T, factor)
            except np.linalg.LinAlgError as error:
                raise ValueError("units must be an invertible matrix; got a singular one.") from error
            origin = None if self.origin is None else units @ self.origin
        else:
            raise ValueError(f"units must be {d} factors or a {d} x {d} matrix; got shape {units.shape}.")
        moved = replace(self, origin=origin)
        if self.data_eigenvalues is None:
            return replace(moved, factor=canonical(factor))
        return moved._with_data_scale(factor, self.data_eigenvalues)

    def save(self, path: str | Path) -> None:
        """Write a model file (safetensors with a version and a checksum) atomically."""
        write(path, *self.contents())

    def contents(self) -> tuple[dict[str, FloatArray], dict[str, Any]]:
        """Return the arrays and the header of the model file."""
        arrays = {"factor": self.factor, "threshold": np.array(self.thresholds)}
        arrays |= {name: getattr(self, name) for name in ("origin", *_DATA_SCALE) if getattr(self, name) is not None}
        if self.flip_rate:
            arrays["flip_rate"] = np.atleast_1d(self.flip_rate)
        if NOISES.get(self.noise.name) != self.noise:
            raise ValueError(f"only the noise models of closefar.noise can be saved; got {self.noise!r}.")
        return arrays, {"noise": self.noise.name, "feature_names": self.feature_names}

    def to_onnx(self, kind: str | None = None) -> Any:
        """Return an ONNX model that computes this metric without closefar or Python (extra `onnx`).

        It computes in float64, except for the last step of normal and hyperbolic-secant probabilities.
        Its columns are raw, in the order of the feature names, which are among its properties.

        Parameters
        ----------
        kind : {"pairs", "points", "triplets", "quadruplets", "transform"}, optional
            What the model computes.  "pairs": from two points per row, `x` and `y` of shape (n, d)
            (a single row of either is compared with all rows of the other), the `squared_distance`,
            `distance`, `probability_far` and `is_far`, n each.  A metric of K levels gives the most
            probable `level` (0 is the closest) and `probabilities` of shape (n, K) instead of the last
            two, and a metric without a threshold gives neither.  "points": the same for single
            points or differences `x`, measured from the origin, or from zero if there is
            none.  "triplets" and "quadruplets", of a metric learned from comparisons: from the points
            `a`, `b`, `c` the `margin`, which is the squared distance of a and c less that of a and b, and
            the `probability` of the answer that a is closer to b; of `a`, `b`, `c`, `e` those of a and b
            being closer than c and e.  "transform": from points `x` their coordinates along each
            direction, `transformed`, where the metric is Euclidean.
            The default is "points" if the metric has an origin, "triplets" if it has no threshold, and
            "pairs" otherwise.

        Returns
        -------
        onnx.ModelProto

        Examples
        --------
        >>> import closefar as cf
        >>> model = cf.Metric([[1.0], [0.5]], threshold=1.0).to_onnx()
        >>> [value.name for value in model.graph.input]
        ['x', 'y']
        """
        return _onnx_model(self, kind)

    def to_faiss(self, points: Any = None) -> Any:
        """Return a FAISS index over raw points whose squared L2 distances are the learned ones (extra `faiss`).

        FAISS supports float32 only, also for points and queries.  The index subtracts the mean of
        `points` (or the origin), and then maps by `components`.  If a column has a large offset for its
        spread, subtract the same numbers from points and queries in float64 first.

        Parameters
        ----------
        points : array or frame of shape (n, d), optional
            Points to add; their ids are the row numbers.

        Returns
        -------
        faiss.IndexPreTransform

        Examples
        --------
        >>> import numpy as np
        >>> import closefar as cf
        >>> index = cf.Metric([[1.0], [0.5]], threshold=1.0).to_faiss([[0.0, 0.0], [3.0, 2.0]])
        >>> squared, nearest = index.search(np.array([[0.0, 2.0]], dtype=np.float32), 2)
        >>> squared.tolist(), nearest.tolist()
        ([[1.0, 9.0]], [[0, 1]])
        """
        return _faiss_index(self, points)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Metric):
            return NotImplemented
        values, arrays = ("thresholds", "noise", "feature_names", "flip_rate"), ("factor", "origin", *_DATA_SCALE)
        return all(getattr(self, name) == getattr(other, name) for name in values) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in arrays
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild copies with the constructor, so that they are immutable, too."""
        return Metric, tuple(getattr(self, field.name) for field in fields(self))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        numbers_of = ", ".join(f"{threshold:.4g}" for threshold in self.thresholds)
        thresholds = f"threshold{'s' if self.level_thresholds else ''} {numbers_of}" if numbers_of else "no threshold"
        flips = "".join(f", flip rate {rate:.4g}" for rate in [self.flip_rate] if not isinstance(rate, tuple) and rate)
        if isinstance(self.flip_rate, tuple):
            flips = ", flip rates {:.4g} of close and {:.4g} of far".format(*self.flip_rate)
        return f"Metric({len(self.factor)} features, rank {self.rank}, {thresholds}, {self.noise.name} noise{flips})"

    def measure(self, data: Any) -> FloatArray:
        """Return the squared distance of each row of differences (n, d) or pairs (n, 2, d), of any array library.

        For comparisons, (n, 3, d) or (n, 4, d), it is the squared distance of the second leg less that of the
        first.  Both may be given by index: as anything that has `points` and an `index` of shape (n, 2) to (n, 4).
        """
        rows = rows_of(data, self.origin)
        return rows.gather(rows.squared_distances(self.factor))

    def coordinates(self, data: Any, directions: FloatArray) -> FloatArray:
        """Return the coordinate of each row along each direction, a column of `directions`: shape (n, k)."""
        return pair_rows(data, self.origin).projected(directions)

    def _with_data_scale(self, columns: FloatArray, values: FloatArray) -> Metric:
        """The same metric with another B."""
        return replace(self, factor=rotated(columns), data_factor=columns, data_eigenvalues=values)

    def _checked(self, z: FloatArray) -> FloatArray:
        if z.ndim not in (1, 2) or z.shape[-1] != len(self.factor):
            raise ValueError(
                f"each row must have the metric's {len(self.factor)} columns; got shape {z.shape}. "
                "For pairs (n, 2, d) pass the differences pairs[:, 0] - pairs[:, 1]."
            )
        return z


def _check_data_scale(
    factor: FloatArray, data_factor: Any, data_eigenvalues: Any
) -> tuple[FloatArray | None, FloatArray | None]:
    """Check that B B' is M, that its lengths are ordered, and that both or neither are given."""
    if data_factor is None and data_eigenvalues is None:
        return None, None
    if data_factor is None or data_eigenvalues is None:
        raise ValueError("data_factor and data_eigenvalues must both be given, or neither; got one of them.")
    data_factor, values = _frozen(data_factor), _frozen(data_eigenvalues)
    if data_factor.shape != factor.shape or not np.all(np.isfinite(data_factor)):
        raise ValueError(
            f"data_factor must be finite and of the shape of factor, {factor.shape}; got shape {data_factor.shape}."
        )
    ordered = values.shape == factor.shape[1:] and bool(np.all(np.isfinite(values) & (values >= 0)))
    if not (ordered and np.all(np.diff(values) <= 0)):
        raise ValueError(
            f"data_eigenvalues must be {factor.shape[1]} finite numbers >= 0, largest first; got {values}."
        )
    left, right = with_common_scales(factor, data_factor)
    for start in range(0, len(left), _ROWS_OF_M_AT_ONCE):  # M is large if there are many columns
        some = slice(start, start + _ROWS_OF_M_AT_ONCE)
        difference = left[some] @ left[start:].T - right[some] @ right[start:].T
        if np.abs(difference).max(initial=0.0) > 1e-8:
            raise ValueError("data_factor must give the same M as factor (B B' = A A'). Use Metric.from_data_scale.")
    return data_factor, values


def _frozen(array: Any) -> FloatArray:
    frozen = np.array(array, dtype=np.float64)
    frozen.setflags(write=False)
    return frozen


# ---------------------------------------------------------------------------------------------------------------------
# Adding the scale of some data to a metric.


def in_data_scale(metric: Metric, data: Any, weights: Any = None) -> Metric:
    """Return the metric with `data_factor` and `data_eigenvalues` in the scale of these differences.

    `data` holds differences (n, d) or pairs (n, 2, d).  For a metric with an origin it holds single
    points, and the scale is their covariance.
    """
    data = data if hasattr(data, "shape") else np.asarray(data)
    n = int(data.shape[0])
    weights = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    if weights.shape != (n,) or not np.all(weights >= 0) or not weights.sum() > 0:
        raise ValueError(
            f"weights must be numbers >= 0, not all 0, one per pair; got shape {weights.shape} for {n} pairs."
        )
    shares = weights / weights.sum()
    mapped = metric.coordinates(data, metric.factor)
    if metric.origin is not None:
        mapped = mapped - shares @ mapped
    values, vectors = np.linalg.eigh((mapped * shares[:, None]).T @ mapped)
    scales = column_scales(rows_of(data), shares, centred=metric.origin is not None)
    columns, values = as_directions(metric.factor @ vectors[:, ::-1], np.maximum(values[::-1], 0.0), scales)
    return replace(metric, data_factor=columns, data_eigenvalues=values)


# ---------------------------------------------------------------------------------------------------------------------
# Reading a metric back from its model file.


# The arrays of a metric in a model file, with their numbers of dimensions.
_REQUIRED = {"factor": 2, "threshold": 1}
_OPTIONAL = {"origin": 1, "data_factor": 2, "data_eigenvalues": 1, "flip_rate": 1}

# Metrics that a file may hold beside its own: the plain distance, and the one that M was shrunk to if it was given.
BESIDE = ("plain", "prior")


def load(path: str | Path) -> Metric:
    """Read a metric that `Metric.save` wrote.

    Raises `ModelFileError` if the file is not a model, or is damaged, truncated, too large or
    written by a later version.  Nothing in the file is executed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import closefar as cf
    >>> metric = cf.Metric([[1.0], [0.5]], threshold=1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     metric.save(Path(folder) / "model.closefar")
    ...     cf.load(Path(folder) / "model.closefar") == metric
    True
    """
    return load_with_header(path)[0]


def load_with_header(path: str | Path) -> tuple[Metric, dict[str, Metric], dict[str, Any]]:
    """Read a metric, the metrics beside it by name, and the header of its file."""
    axes = _REQUIRED | _OPTIONAL
    beside = {f"{name}.{array}": axes[array] for name in BESIDE for array in axes}
    arrays, header = read(path, required=_REQUIRED, optional=_OPTIONAL | beside)
    try:
        found = {
            name: _metric(arrays, header[name], f"{name}.")
            for name in BESIDE
            if any(array.startswith(f"{name}.") for array in arrays)
        }
        return _metric(arrays, header), found, header
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path} does not describe a metric: {error}") from error


def contents_of(metric: Metric, beside: dict[str, Metric]) -> tuple[dict[str, FloatArray], dict[str, Any]]:
    """The arrays and the header of a file with metrics beside a metric."""
    arrays, header = metric.contents()
    for name, other in beside.items():
        own, header[name] = other.contents()
        arrays |= {f"{name}.{array}": values for array, values in own.items()}
    return arrays, header


def _metric(arrays: dict[str, FloatArray], header: dict[str, Any], start: str = "") -> Metric:
    """The metric whose arrays have names with this start."""
    rates = arrays.get(f"{start}flip_rate", np.zeros(1))
    return Metric(
        arrays[f"{start}factor"],
        cast("Any", arrays[f"{start}threshold"]),
        header["noise"],
        header["feature_names"],
        arrays.get(f"{start}origin"),
        rates.item() if len(rates) == 1 else cast("Any", tuple(rates.tolist())),  # one rate, or those of the two sides
        arrays.get(f"{start}data_factor"),
        arrays.get(f"{start}data_eigenvalues"),
    )


# ---------------------------------------------------------------------------------------------------------------------
# The metric for other programs: a FAISS index, and an ONNX model.


def _import_extra(name: str, needed_by: str) -> Any:
    """Import a package from the extra of the same name; the error says how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"{needed_by} needs {name}: run pip install 'closefar[{name}]'.") from error


def _faiss_index(metric: Metric, points: Any = None) -> Any:
    """Return a FAISS index in which L2 search is the learned metric; see `Metric.to_faiss`."""
    faiss = _import_extra("faiss", needed_by="to_faiss")
    d, k = metric.factor.shape
    if k == 0:
        raise ValueError(
            "to_faiss needs a metric of rank 1 or more; got rank 0, where all distances are zero. Fit again with a "
            "smaller alpha, or truncate less."
        )
    rows = None if points is None else np.asarray(points, dtype=np.float64)
    if rows is not None and (rows.ndim != 2 or rows.shape[1] != d):
        raise ValueError(f"points must have the metric's {d} columns; got shape {rows.shape}.")
    if rows is not None and not np.all(np.isfinite(rows)):
        raise ValueError("points must be finite; got NaN or infinity. Leave those rows out, or fill them in.")
    centre = np.mean(rows, axis=0) if rows is not None and len(rows) else metric.origin
    linear = faiss.LinearTransform(d, k, False)
    faiss.copy_array_to_vector(_single(metric.components, "the metric's components").ravel(), linear.A)
    linear.is_trained = True
    index = faiss.IndexPreTransform(linear, faiss.IndexFlatL2(k))
    if centre is not None:
        # Subtracted before the map, not by its bias: near the centre, float32 subtraction is exact.
        centring = faiss.CenteringTransform(d)
        faiss.copy_array_to_vector(_single(centre, "the centre of the points"), centring.mean)
        centring.is_trained = True
        index.prepend_transform(centring)
    if rows is not None:
        index.add(_single(rows, "points"))
    return index


def _single(values: FloatArray, what: str) -> Any:
    """The values as float32, the only type that FAISS supports."""
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(values, dtype=np.float32)
    if not np.all(np.isfinite(single)):
        largest = np.max(np.abs(values))
        raise ValueError(
            f"FAISS works in float32, whose largest number is 3.4e38; got {largest:.3g} in {what}. Choose other "
            "units, and convert the metric with Metric.change_units."
        )
    return single


# Opset 13 and IR version 7 are those of ONNX 1.8: they have every operator below, and old runtimes support them.
_MODEL = '<ir_version: 7, opset_import: ["" : 13]> closefar ({inputs}) => ({outputs}) {{ {nodes} }}'

_DISTANCE = """
    mapped = MatMul(difference, factor)
    squared_distance = ReduceSumSquare <axes = [1], keepdims = 0> (mapped)
    distance = Sqrt(squared_distance)
"""
_CLOSE_OR_FAR = """
    margin = Sub(squared_distance, threshold)
    is_far = GreaterOrEqual(margin, zero)
    {cdf}
    probability = Clip(cdf, zero, one)
    unflipped = Mul(probability, unflipped_share)
    probability_far = Add(unflipped, flip_rate)
"""
# Column k of `cdf` is the probability of level k + 1 or higher.
_LEVELS = """
    squared_column = Unsqueeze(squared_distance, one_axis)
    margin = Sub(squared_column, threshold)
    {cdf}
    higher = Clip(cdf, zero, one)
    from_level = Pad(higher, pad_before, one)
    above_level = Pad(higher, pad_after, zero)
    signed = Sub(from_level, above_level)
    probability = Max(signed, zero)
    level = ArgMax <axis = 1, keepdims = 0, select_last_index = 1> (probability)
    unflipped = Mul(probability, unflipped_share)
    probabilities = Add(unflipped, flip_rate)
"""
_COMPARISON = """
    near_mapped = MatMul(near, factor)
    near_squared = ReduceSumSquare <axes = [1], keepdims = 0> (near_mapped)
    far_mapped = MatMul(far, factor)
    far_squared = ReduceSumSquare <axes = [1], keepdims = 0> (far_mapped)
    margin = Sub(far_squared, near_squared)
    {cdf}
    clipped = Clip(cdf, zero, one)
    unflipped = Mul(clipped, unflipped_share)
    probability = Add(unflipped, flip_rate)
"""
_LEGS = {
    "triplets": (("a", "b", "c"), "near = Sub(a, b) far = Sub(a, c)"),
    "quadruplets": (("a", "b", "c", "e"), "near = Sub(a, b) far = Sub(c, e)"),
}

# The constants that the nodes of a noise may use, besides its own parameters.
_CONSTANTS = {
    "zero": 0.0,
    "half": 0.5,
    "one": 1.0,
    "root_half": math.sqrt(0.5),
    "half_pi": 0.5 * math.pi,
    "lowest": -80.0,  # exp and erf of these are at their limits, and finite in float32
    "highest": 80.0,
}


def _onnx_model(metric: Metric, kind: str | None = None) -> Any:
    """Return the metric as an ONNX model; see `Metric.to_onnx`."""
    onnx = _import_extra("onnx", needed_by="to_onnx")
    usual = "pairs" if metric.thresholds else "triplets"
    kind = kind or (usual if metric.origin is None else "points")
    _check_kind(metric, kind)
    inputs, outputs, nodes = _graph(metric, kind)
    model = onnx.parser.parse_model(_MODEL.format(inputs=inputs, outputs=outputs, nodes=nodes))
    used = {name for node in model.graph.node for name in node.input}
    for name, value in _values(metric).items():
        if name in used:
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    model.producer_name, model.producer_version = "closefar", version("closefar")
    onnx.helper.set_model_props(model, _properties(metric, kind))
    onnx.checker.check_model(model, full_check=True)
    return model


def _check_kind(metric: Metric, kind: str) -> None:
    if kind not in ("pairs", "points", *_LEGS, "transform"):
        raise ValueError(f'kind must be "pairs", "points", "triplets", "quadruplets" or "transform"; got {kind!r}.')
    if kind == "pairs" and metric.origin is not None:
        raise ValueError(
            'kind="pairs" needs a threshold for pairs; got a metric with an origin, whose threshold applies to the '
            'distance of single points from it. Use kind="points", or kind="transform" and Euclidean distance.'
        )
    if kind in _LEGS and metric.thresholds:
        raise ValueError(
            f'kind="{kind}" needs a metric that was learned from comparisons alone; got one with a threshold, whose '
            'noise is that of pairs. Use kind="pairs" and compare its distances.'
        )
    is_distance_alone = kind == "transform" or not (metric.thresholds or kind in _LEGS)
    if not is_distance_alone and NOISES.get(metric.noise.name) != metric.noise:
        raise ValueError(
            f"only the noise models of closefar.noise ({list(NOISES)}) can be exported; got {metric.noise!r}. "
            'Use kind="transform" for the linear map alone.'
        )


def _graph(metric: Metric, kind: str) -> tuple[str, str, str]:
    """The inputs, outputs and nodes of the model in the text format of ONNX."""
    d, n_levels, cdf = len(metric.factor), metric.n_levels, metric.noise.onnx_cdf
    if kind == "transform":
        return f"double[n, {d}] x", f"double[n, {max(metric.rank, 1)}] transformed", "transformed = MatMul(x, factor)"
    if kind in _LEGS:
        points, differences = _LEGS[kind]
        inputs = ", ".join(f"double[n_{point}, {d}] {point}" for point in points)
        return inputs, "double[rows] margin, double[rows] probability", differences + _COMPARISON.format(cdf=cdf)
    inputs, nodes = f"double[n, {d}] x", "difference = Sub(x, origin)" + _DISTANCE
    if kind == "pairs":
        inputs, nodes = f"{inputs}, double[m, {d}] y", "difference = Sub(x, y)" + _DISTANCE
    outputs = "double[rows] squared_distance, double[rows] distance"
    if n_levels == 2:
        outputs, nodes = f"{outputs}, double[rows] probability_far, bool[rows] is_far", nodes + _CLOSE_OR_FAR
    elif n_levels > 2:
        outputs, nodes = f"{outputs}, double[rows, {n_levels}] probabilities, int64[rows] level", nodes + _LEVELS
    return inputs, outputs, nodes.format(cdf=cdf)


def _values(metric: Metric) -> dict[str, Any]:
    """The constants that the nodes of a model may use."""
    thresholds, rate = np.array(metric.thresholds), metric.flip_rate
    (*_, least), unflipped_share = flip_mixture(rate, max(len(thresholds) + 1, 2))
    numbers = {
        **_CONSTANTS,
        **vars(metric.noise),
        # For rank 0 a column of zeros, because some runtimes reject tensors without columns.
        "factor": metric.components.T if metric.rank else np.zeros((len(metric.factor), 1)),
        "origin": np.zeros(len(metric.factor)) if metric.origin is None else metric.origin,
        "threshold": thresholds[0] if len(thresholds) == 1 else thresholds,
        "flip_rate": least,
        "unflipped_share": unflipped_share,
    }
    axes = {"one_axis": [1], "pad_before": [0, 1, 0, 0], "pad_after": [0, 0, 0, 1]}
    return {name: np.array(value, dtype=np.float64, order="C") for name, value in numbers.items()} | {
        name: np.asarray(value, dtype=np.int64) for name, value in axes.items()
    }


def _properties(metric: Metric, kind: str) -> dict[str, str]:
    names = {} if metric.feature_names is None else {"feature_names": json.dumps(metric.feature_names)}
    if len(metric.thresholds) == 1:
        thresholds = {"threshold": repr(metric.thresholds[0])}
    else:
        thresholds = {"thresholds": json.dumps(metric.thresholds)}
    return {"kind": kind, "noise": metric.noise.name, **thresholds, "flip_rate": json.dumps(metric.flip_rate), **names}
