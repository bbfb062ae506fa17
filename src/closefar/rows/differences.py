"""The differences z = x - y of pairs, in the user's own columns."""

from __future__ import annotations

from closefar.arrays import Array, FloatArray, as_float64, like
from closefar.rows.source import RowSource

__all__ = ["Differences"]


class Differences(RowSource):
    """The rows of an (n, d) array of differences or points, or of an (n, 2, d) array of pairs.

    `data` may be of any array library, and a memory map.  Rows are measured from `origin`,
    where one is given.
    """

    def __init__(self, data: Array, origin: FloatArray | None = None) -> None:
        super().__init__(int(data.shape[0]), int(data.shape[-1]))
        self.data = data
        self.origin = origin

    def read(self, where: slice) -> Array:
        """Return these differences without touching the others."""
        if self.data.ndim == 2:
            rows = as_float64(self.data[where, :])
        else:
            rows = as_float64(self.data[where, 0, :]) - as_float64(self.data[where, 1, :])
        return (rows if self.origin is None else rows - like(rows, self.origin)).T
