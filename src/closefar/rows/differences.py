"""The differences z = x - y of pairs, in the user's own columns."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from closefar.arrays import (
    Array,
    FloatArray,
    IndexArray,
    as_float64,
    is_mapped,
    is_on_gpu,
    is_tensor,
    like,
    release,
    take_rows,
    to_numpy,
)
from closefar.rows.blocks import KEEP_BYTES, NARROW, BlockRows, HeldRows

__all__ = ["COPY_BYTES", "RELEASED_BYTES", "Differences", "FromOrigin", "SingleDifferences"]

# Up to this size, rows in double precision are copied to single precision for the steps that approach an optimum.
COPY_BYTES = 1 << 27

# Pages of a memory map that were read count as memory in use; they are released in portions of this size.
RELEASED_BYTES = 1 << 26


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

    @property
    def stored_in_single(self) -> Array | None:
        data = self._data
        is_single = is_tensor(data) and data.ndim == 2 and str(data.dtype) == "torch.float32"
        return data if is_single and data.is_contiguous() else None

    def read(self, where: slice) -> Array:
        """Return these differences without reading the others."""
        if self._is_mapped:
            self._release_some(where)
        if self._data.ndim == 2:
            return as_float64(self._data[where, :]).T
        return (as_float64(self._data[where, 0, :]) - as_float64(self._data[where, 1, :])).T

    def at_hand(self) -> Differences:
        """Subtract the points of pairs once, if the differences of many columns take little memory."""
        data = self._data
        is_subtracted = data.ndim == 2 or not is_numpy_array(data) or self._is_mapped or data.dtype != np.float64
        if is_subtracted or self.n_columns <= NARROW or 8 * self.n_rows * self.n_columns > KEEP_BYTES:
            return self
        return Differences(data[:, 0] - data[:, 1])

    def _release_some(self, where: slice) -> None:
        """Before these rows are read, release what was read before, if it is much."""
        self._unreleased += (where.stop - where.start) * self._data[:1].nbytes
        if self._unreleased > RELEASED_BYTES:
            release(self._data)
            self._unreleased = 0

    def take_rows(self, indices: IndexArray) -> BlockRows:
        if not is_on_gpu(self._data):
            return super().take_rows(indices)
        return HeldRows(Differences(take_rows(self._data, indices)).read(slice(0, len(indices))))

    def largest(self, centre: FloatArray) -> FloatArray:
        if self._data.ndim != 2 or not is_on_gpu(self._data):
            return super().largest(centre)
        xp = array_namespace(self._data)  # without a copy in double precision
        lowest, highest = (to_numpy(as_float64(reduce(self._data, axis=0))) for reduce in (xp.min, xp.max))
        found: FloatArray = np.maximum(highest - centre, centre - lowest)
        return found

    def in_single(self) -> BlockRows | None:
        if str(self._data.dtype).endswith("float32"):
            return SingleDifferences(self._data)
        if not is_numpy_array(self._data):
            return None
        if 4 * self.n_rows * self.n_columns > COPY_BYTES:
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
