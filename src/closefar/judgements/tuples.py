"""Pairs, triplets and quadruplets by index: points once, and which of them each tuple consists of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray, IndexArray

__all__ = ["Tuples"]

_SIZES = (2, 3, 4)


class Tuples:
    """Tuples of points, given by index: they act as an array of shape (n, k, d) that is never formed.

    A slice, an index array or a mask selects tuples, which share the points; two or three subscripts
    and `numpy.asarray` form the array that they select.

    Parameters
    ----------
    points : array or frame of shape (n_points, d)
        Each point once: NumPy, pandas, polars, or a memory map.
    index : array of int, of shape (n, 2), (n, 3) or (n, 4)
        The row numbers of the points of each tuple.

    Examples
    --------
    >>> import closefar as cf
    >>> points = [[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]]
    >>> pairs = cf.Tuples(points, [[0, 1], [1, 2]])
    >>> pairs.shape, len(pairs[:1])
    ((2, 2, 2), 1)
    """

    def __init__(self, points: Any, index: Any) -> None:
        names = getattr(points, "columns", None)
        self.points: FloatArray = _checked_points(points)
        self.index: IndexArray = _checked_index(index, len(self.points))
        self.feature_names: tuple[str, ...] | None = None if names is None else tuple(str(name) for name in names)

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.index), int(self.index.shape[1]), int(self.points.shape[1])

    @property
    def ndim(self) -> int:
        return 3

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.points.dtype

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"Tuples({len(self.points)} points, {len(self)} tuples of {self.shape[1]})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("Tuples must be copied to become an array; got copy=False.")
        return np.asarray(self.points[self.index], dtype=dtype)

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        keys = tuple(each for each in keys if each is not Ellipsis)
        if len(keys) == 1 and np.ndim(keys[0]) == 1 or isinstance(keys[0], slice) and len(keys) == 1:
            return self._with_index(self.index[keys[0]])
        return self.points[self.index[keys[:2]]][(..., *keys[2:])]

    def take_rows(self, where: IndexArray) -> Tuples:
        """Return the tuples at these indices."""
        return self._with_index(self.index[where])

    def _with_index(self, index: IndexArray) -> Tuples:
        part = object.__new__(Tuples)
        part.points, part.index, part.feature_names = self.points, index, self.feature_names
        return part


def _checked_points(points: Any) -> FloatArray:
    array = np.asanyarray(points)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"points must have shape (n_points, d), with at least one column; got {array.shape}.")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    return array


def _checked_index(index: Any, n_points: int) -> IndexArray:
    array = np.asarray(index)
    if array.ndim != 2 or array.shape[1] not in _SIZES:
        raise ValueError(f"index must have shape (n, 2), (n, 3) or (n, 4); got {array.shape}.")
    if array.dtype.kind not in "iu":
        raise ValueError(f"index must hold whole numbers, the rows of points; got {array.dtype}.")
    if array.size and not (array.min() >= 0 and array.max() < n_points):
        wrong = int(array.min()) if array.min() < 0 else int(array.max())
        raise ValueError(f"index must hold row numbers from 0 to {n_points - 1}; got {wrong}.")
    return array
