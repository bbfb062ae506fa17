"""The differences z = x - y of pairs, in the user's own columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import is_numpy_array

from closefar.arrays import Array, FloatArray, as_float64, is_indexed, is_mapped, like, release
from closefar.rows.blocks import BlockRows
from closefar.rows.indexed import IndexedRows
from closefar.rows.source import RowSource

__all__ = ["Differences", "FromOrigin", "rows_here"]

# Up to this size, rows in double precision are copied to single precision for the steps that approach an optimum.
_COPY_BYTES = 1 << 27

# Pages of a memory map that were read count as memory in use; they are released in portions of this size.
_RELEASED_BYTES = 1 << 26


class Differences(BlockRows):
    """The rows of an (n, d) array of differences or points, or of an (n, 2, d) array of pairs.

    `data` may be an array of any library, or a memory map.
    """

    def __init__(self, data: Array) -> None:
        super().__init__(int(data.shape[0]), int(data.shape[-1]))
        self._data = data
        self._is_mapped = is_mapped(data)
        self._unreleased = 0

    @property
    def is_held(self) -> bool:
        data = self._data
        if not is_numpy_array(data) or data.ndim != 2 or data.dtype != np.float64:
            return False
        return bool(data.flags.c_contiguous)

    def read(self, where: slice) -> Array:
        """Return these differences without reading the others."""
        if self._is_mapped:
            self._release_some(where)
        if self._data.ndim == 2:
            return as_float64(self._data[where, :]).T
        return (as_float64(self._data[where, 0, :]) - as_float64(self._data[where, 1, :])).T

    def _release_some(self, where: slice) -> None:
        """Before these rows are read, release what was read before, if it is much."""
        self._unreleased += (where.stop - where.start) * self._data[:1].nbytes
        if self._unreleased > _RELEASED_BYTES:
            release(self._data)
            self._unreleased = 0

    def in_single(self) -> BlockRows | None:
        if not is_numpy_array(self._data):
            return None
        if self._data.dtype == np.float32:
            return SingleDifferences(self._data)
        if 4 * self.n_rows * self.n_columns > _COPY_BYTES:
            return None
        copy = np.empty((self.n_rows, self.n_columns), dtype=np.float32)
        for where, block in self.blocks():
            copy[where] = block.T
        return SingleDifferences(copy)


class SingleDifferences(Differences):
    """Differences that are computed with in single precision; sums over blocks of them are in double precision."""

    n_fold = 2

    def read(self, where: slice) -> Array:
        if self._is_mapped:
            self._release_some(where)
        if self._data.ndim == 2:
            return self._data[where, :].T
        return (self._data[where, 0, :] - self._data[where, 1, :]).T


class FromOrigin(BlockRows):
    """The rows of another source, measured from an origin."""

    def __init__(self, source: BlockRows, origin: FloatArray) -> None:
        super().__init__(source.n_rows, source.n_columns)
        self._source = source
        self._origin = origin

    def read(self, where: slice) -> Array:
        block = self._source.read(where)
        return block - like(block, self._origin)[:, None]


def rows_here(data: Any) -> BlockRows:
    """Return differences, pairs, pairs by index or a source as rows, in the process that has them in memory."""
    if is_indexed(data):
        return IndexedRows(data.points, data.index)
    if isinstance(data, RowSource) and not isinstance(data, BlockRows):
        raise TypeError(
            f"rows must be readable in blocks to find their coordinates; got {type(data).__name__}. "
            "Derive its class from closefar.rows.BlockRows."
        )
    return data if isinstance(data, BlockRows) else Differences(data)
