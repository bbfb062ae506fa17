"""The learned thing itself: a Mahalanobis metric with its threshold and its noise."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from closefar import modelfile
from closefar.arrays import FloatArray
from closefar.noise import NOISES, Noise, get_noise
from closefar.pairs import Differences

__all__ = ["Metric", "load"]


@dataclass(frozen=True, eq=False)
class Metric:
    """The distance sqrt((x - y)' M (x - y)) with M = A A', and the threshold tau on its square.

    Immutable.  `Metric.from_factor` and `Metric.from_matrix` build one from any A or M.

    Parameters
    ----------
    factor : array of shape (d, k)
        A, with orthogonal columns, longest first; ``x @ factor`` maps points to a space
        where the metric is Euclidean.
    threshold : float
        tau: a pair whose squared distance is at least tau is called far.
    noise : str or Noise
        The noise model that turns a margin into a probability.
    feature_names : tuple of str, optional
    origin : array of shape (d,), optional
        The point from which single points are measured, where one was learned.

    Examples
    --------
    >>> import closefar as cf
    >>> metric = cf.Metric([[1.0], [0.5]], threshold=1.0)
    >>> float(metric.distance([0.0, 2.0], [0.0, 0.0]))
    1.0
    """

    factor: FloatArray
    threshold: float
    noise: Noise = "logistic"  # type: ignore[assignment]
    feature_names: tuple[str, ...] | None = None
    origin: FloatArray | None = None

    def __post_init__(self) -> None:
        factor = _frozen(self.factor)
        if factor.ndim != 2 or not np.all(np.isfinite(factor)):
            raise ValueError(f"factor must be a d x k array of finite numbers; got shape {factor.shape}.")
        if not _has_ordered_orthogonal_columns(factor):
            raise ValueError(
                "factor must have orthogonal columns, longest first; use Metric.from_factor for any other."
            )
        if not np.isfinite(self.threshold):
            raise ValueError(f"threshold must be a finite number; got {self.threshold!r}.")
        names = None if self.feature_names is None else tuple(str(name) for name in self.feature_names)
        if names is not None and len(names) != len(factor):
            raise ValueError(f"there must be one feature name a row of factor; got {len(names)} for {len(factor)}.")
        origin = None if self.origin is None else _frozen(self.origin)
        if origin is not None and (origin.shape != (len(factor),) or not np.all(np.isfinite(origin))):
            raise ValueError(f"origin must be {len(factor)} finite numbers; got shape {origin.shape}.")
        for name, value in (
            ("factor", factor),
            ("threshold", float(self.threshold)),
            ("noise", get_noise(self.noise)),
            ("feature_names", names),
            ("origin", origin),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def from_factor(cls, factor: Any, threshold: float, noise: str | Noise = "logistic", **kwargs: Any) -> Metric:
        """Build from any A with M = A A': its columns are rotated and ordered, largest loading positive."""
        factor = np.asarray(factor, dtype=np.float64)
        if factor.ndim == 2 and np.all(np.isfinite(factor)):
            factor = _canonical(factor)
        return cls(factor, threshold, get_noise(noise), **kwargs)

    @classmethod
    def from_matrix(cls, matrix: Any, threshold: float, noise: str | Noise = "logistic", **kwargs: Any) -> Metric:
        """Build from a positive semidefinite M."""
        matrix = np.asarray(matrix, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.all(np.isfinite(matrix)):
            raise ValueError(f"matrix must be square, symmetric and finite; got shape {matrix.shape}.")
        scale = np.sqrt(np.abs(np.diag(matrix)))
        scale[scale == 0] = 1.0
        scaled = matrix / scale / scale[:, None]
        if not np.allclose(scaled, scaled.T, rtol=0.0, atol=1e-8):
            raise ValueError("matrix must be square, symmetric and finite; use (matrix + matrix.T) / 2.")
        values, vectors = np.linalg.eigh(scaled)
        if values[0] < -1e-8 * max(values[-1], 0.0):
            raise ValueError(
                "matrix must be positive semidefinite; with its diagonal scaled to one it has the eigenvalue "
                f"{values[0]:.3g}."
            )
        keep = values > 1e-13 * values[-1]
        return cls.from_factor(scale[:, None] * vectors[:, keep] * np.sqrt(values[keep]), threshold, noise, **kwargs)

    @property
    def matrix(self) -> FloatArray:
        """M, d x d."""
        return self.factor @ self.factor.T

    @property
    def rank(self) -> int:
        """The number of directions that M weighs."""
        return int(self.factor.shape[1])

    @property
    def eigenvalues(self) -> FloatArray:
        """The d eigenvalues of M, largest first."""
        values = np.zeros(len(self.factor))
        values[: self.rank] = np.sum(self.factor**2, axis=0)
        return values

    def distance(self, x: Any, y: Any) -> Any:
        """Return the distance between two points, or between each row of two tables."""
        difference = np.asarray(x, dtype=np.float64) - np.asarray(y, dtype=np.float64)
        mapped = self._checked(difference) @ self.factor
        return np.sqrt(np.sum(mapped * mapped, axis=-1))[()]

    def squared_distance(self, z: Any) -> Any:
        """Return z'Mz for each difference z; single points are measured from `origin` if there is one."""
        z = self._checked(np.asarray(z))
        if z.ndim == 1:
            return self.squared_distance(z[None])[0]
        return self.forms(Differences(z))

    def margin(self, z: Any) -> Any:
        """Return z'Mz - tau: positive is far."""
        return self.squared_distance(z) - self.threshold

    def probability_far(self, z: Any) -> Any:
        """Return the probability that a pair with difference z is labelled far."""
        return self.noise.cdf(self.margin(z))

    def truncate(self, k: int) -> Metric:
        """Keep the k largest eigenvalues of M, in the units that it is in."""
        if not (isinstance(k, numbers.Integral) and 0 <= k <= len(self.factor)):
            raise ValueError(f"k must be a whole number from 0 to the {len(self.factor)} columns; got {k!r}.")
        return replace(self, factor=self.factor[:, :k])

    def change_units(self, units: Any) -> Metric:
        """Return the same metric for data z_new = U z (section "Invariance to Changes in Unit of Input").

        `units` is the d x d matrix U, or d factors, one a column.  Feature names are kept.
        """
        units = np.asarray(units, dtype=np.float64)
        d = len(self.factor)
        if not np.all(np.isfinite(units)) or (units.ndim == 1 and np.any(units == 0)):
            raise ValueError(f"units must be finite, and factors not zero; got {units}.")
        if units.shape == (d,):
            factor = self.factor / units[:, None]
            origin = None if self.origin is None else self.origin * units
        elif units.shape == (d, d):
            try:
                factor = np.linalg.solve(units.T, self.factor)
            except np.linalg.LinAlgError as error:
                raise ValueError("units must be an invertible matrix; got a singular one.") from error
            origin = None if self.origin is None else units @ self.origin
        else:
            raise ValueError(f"units must be {d} factors or a {d} x {d} matrix; got shape {units.shape}.")
        return Metric.from_factor(factor, self.threshold, self.noise, feature_names=self.feature_names, origin=origin)

    def save(self, path: str | Path) -> None:
        """Write a model file: safetensors with a version and a checksum, in one atomic step."""
        arrays = {"factor": self.factor, "threshold": np.array([self.threshold])}
        if self.origin is not None:
            arrays["origin"] = self.origin
        modelfile.write(path, arrays, {"noise": self._registered_noise(), "feature_names": self.feature_names})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Metric):
            return NotImplemented
        same = [getattr(self, name) == getattr(other, name) for name in ("threshold", "noise", "feature_names")]
        arrays = [(self.factor, other.factor), (self.origin, other.origin)]
        return all(same) and all(_equal(*pair) for pair in arrays)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies are made by the constructor, so they are as immutable as this."""
        return Metric, (self.factor, self.threshold, self.noise, self.feature_names, self.origin)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"Metric({len(self.factor)} features, rank {self.rank}, threshold {self.threshold:.4g}, "
            f"{self.noise.name} noise)"
        )

    def forms(self, differences: Differences) -> FloatArray:
        """The squared distance of each row, block by block."""

        def squared(block: FloatArray) -> FloatArray:
            mapped = (block if self.origin is None else block - self.origin) @ self.factor
            lengths: FloatArray = np.einsum("ij,ij->i", mapped, mapped)
            return lengths

        return differences.map(squared)

    def _checked(self, z: FloatArray) -> FloatArray:
        if z.ndim not in (1, 2) or z.shape[-1] != len(self.factor):
            raise ValueError(
                f"each row must have the metric's {len(self.factor)} columns; got shape {z.shape}. "
                "Of pairs (n, 2, d) give the differences pairs[:, 0] - pairs[:, 1]."
            )
        return z

    def _registered_noise(self) -> str:
        if NOISES.get(self.noise.name) != self.noise:
            raise ValueError(f"only the noise models of closefar.noise can be saved; got {self.noise!r}.")
        return self.noise.name


def load(path: str | Path) -> Metric:
    """Read a metric that `Metric.save` wrote.

    Raises `ModelFileError` for anything that is not exactly such a file: damaged, cut
    short, too large or written by a later version.  Nothing in the file is executed.
    """
    arrays, header = modelfile.read(path, required={"factor": 2, "threshold": 1}, optional={"origin": 1})
    try:
        return Metric(
            arrays["factor"],
            arrays["threshold"].item(),
            header["noise"],
            header["feature_names"],
            arrays.get("origin"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise modelfile.ModelFileError(f"{path} does not describe a metric: {error}") from error


def _canonical(factor: FloatArray) -> FloatArray:
    """Rotate A to orthogonal columns, longest first, largest loading positive; drop directions of length zero.

    Which directions are zero is decided with every row scaled to one, so it does not depend
    on units.  A V is formed rather than U S: each row keeps its own relative accuracy.
    """
    size = np.abs(factor).max(axis=1, initial=0.0, keepdims=True)
    _, lengths, turn = np.linalg.svd(factor / np.where(size > 0, size, 1.0), full_matrices=False)
    factor = factor @ turn[lengths > 1e-13 * lengths.max(initial=0.0)].T
    if factor.shape[1] == 0:
        return factor
    scale = np.abs(factor).max()
    rotated = factor @ np.linalg.svd(factor / scale, full_matrices=False)[2].T
    rotated = rotated[:, np.argsort(-np.sum((rotated / scale) ** 2, axis=0), kind="stable")]
    largest = np.abs(rotated).argmax(axis=0)
    signs = np.where(rotated[largest, range(rotated.shape[1])] < 0, -1.0, 1.0)
    canonical: FloatArray = rotated * signs
    return canonical


def _has_ordered_orthogonal_columns(factor: FloatArray) -> bool:
    scale = np.abs(factor).max(initial=0.0)
    products = (factor / scale).T @ (factor / scale) if scale > 0 else np.zeros((0, 0))
    lengths = np.diag(products)
    slack = 1e-8 * lengths.max(initial=0.0)
    return bool(np.all(np.abs(products - np.diag(lengths)) <= slack) and np.all(np.diff(lengths) <= slack))


def _equal(left: FloatArray | None, right: FloatArray | None) -> bool:
    return left is right or (left is not None and right is not None and np.array_equal(left, right))


def _frozen(array: Any) -> FloatArray:
    frozen = np.array(array, dtype=np.float64)
    frozen.setflags(write=False)
    return frozen
