"""Which pairs have a point in common: (n, 2, d) data shows it, whether or not somebody says so."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import Array, FloatArray, is_source, to_numpy

__all__ = ["SharedPointsWarning", "find_points", "resolve_groups"]

# Rows that are equal more often than this many times what chance explains are the same point.
_BEYOND_CHANCE = 10.0

_ROWS_AT_ONCE = 1 << 16


class SharedPointsWarning(UserWarning):
    """Pairs share points, so they are not independent; what is asked of them is answered by point."""


def resolve_groups(groups: Any, data: Array, *, stacklevel: int = 2) -> NDArray[Any] | None:
    """Check which pairs depend on each other: one group id per pair, or the ids of its two points, or None.

    Where nothing is said, the data may show that pairs share points: those are then the groups,
    with a warning.
    """
    n = int(data.shape[0])
    if groups is not None:
        ids = np.asarray(groups)
        if ids.shape not in ((n,), (n, 2)):
            raise ValueError(
                f"groups must hold one group id per pair, or the ids of its two points in shape ({n}, 2); "
                f"got shape {ids.shape}."
            )
        return ids
    points = find_points(data)
    if points is not None:
        warnings.warn(
            f"these {n} pairs have only {int(points.max()) + 1} different points, so they are not independent: folds "
            "and standard errors are by point. Give groups to say which pairs depend on each other; groups=range(n) "
            "says that none do.",
            SharedPointsWarning,
            stacklevel=stacklevel + 1,
        )
    return points


def find_points(data: Array) -> NDArray[np.intp] | None:
    """Number the points of pairs, shape (n, 2); None where no two pairs share one, or where that can't be told.

    Equal rows are one point unless columns have so few values that different points would often
    be equal: as often as if columns were independent.
    """
    if is_source(data) or data.ndim != 3:
        return None
    n, _, d = data.shape
    points = to_numpy(data).reshape(2 * n, d)
    first, inverse = np.unique(_digests(points), return_index=True, return_inverse=True)[1:]
    ids: NDArray[np.intp] = inverse.reshape(n, 2)
    is_elsewhere = _degrees(ids) > 1
    if not np.any(is_elsewhere):
        return None
    n_points = len(first)
    n_equal = 0.5 * float(np.sum(np.bincount(inverse) * (np.bincount(inverse) - 1.0)))
    by_chance = 0.5 * (2.0 * n) * (2.0 * n - 1.0) * _chance_of_equal_rows(points[first])
    return ids if n_points > 2 and n_equal > _BEYOND_CHANCE * by_chance else None


def _degrees(ids: NDArray[np.intp]) -> NDArray[np.intp]:
    """In how many pairs each point is."""
    left, right = ids.T
    return np.bincount(left, minlength=ids.max() + 1) + np.bincount(right[left != right], minlength=ids.max() + 1)


def _digests(points: FloatArray) -> NDArray[np.uint64]:
    """A number for each row, the same for equal rows and for hardly any others."""
    factors = np.random.default_rng(0).integers(1, 2**63, points.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(
        1
    )
    digests = np.empty(len(points), dtype=np.uint64)
    for start in range(0, len(points), _ROWS_AT_ONCE):
        block = points[start : start + _ROWS_AT_ONCE].astype(np.float64) + 0.0  # minus zero is zero
        bits = block.view(np.uint64)
        digests[start : start + len(bits)] = ((bits ^ (bits >> np.uint64(32))) * factors).sum(axis=1, dtype=np.uint64)
    return digests


def _chance_of_equal_rows(points: FloatArray) -> float:
    """That two points are equal, if columns were independent."""
    chance = 1.0
    for column in points.T:
        counts = np.unique(column, return_counts=True)[1]
        chance *= float(np.sum((counts / len(column)) ** 2))
    return chance
