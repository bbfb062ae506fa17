"""Pairs given by index: points are projected once, and differences are never formed."""

from __future__ import annotations

from closefar.arrays import Array, FloatArray, IndexArray, as_float64
from closefar.rows.blocks import BlockRows

__all__ = ["IndexedRows"]


class IndexedRows(BlockRows):
    """The differences x_i - x_j of points, for each (i, j) of an index of shape (n, 2)."""

    def __init__(self, points: FloatArray, index: IndexArray) -> None:
        super().__init__(len(index), int(points.shape[1]))
        self._points = points
        self._index = index

    def read(self, where: slice) -> Array:
        left, right = self._index[where].T
        return (as_float64(self._points[left]) - as_float64(self._points[right])).T

    def take_rows(self, indices: IndexArray) -> IndexedRows:
        return IndexedRows(self._points, self._index[indices])
