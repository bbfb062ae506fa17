"""From data to the source of their rows, wherever they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from closefar.arrays import (
    LEGS,
    Array,
    FloatArray,
    as_float64,
    is_in_partitions,
    is_indexed,
    is_mapped,
    is_tensor,
    release,
)
from closefar.rows.backends import rows_here
from closefar.rows.blocks import COPY_BYTES, RELEASED_BYTES, BlockRows, FromOrigin, SingleDifferences
from closefar.rows.graph_rows import GraphRows
from closefar.rows.indexed import IndexedRows
from closefar.rows.legs import LegRows, Rows
from closefar.rows.partitioned import PartitionedRows

if TYPE_CHECKING:
    from closefar.judgements import Judgements

# ---------------------------------------------------------------------------------------------------------------------
# The legs of comparisons as rows: the near and the far difference of each triplet or quadruplet, one by one.


_POINTS = {size: [*near, *far] for size, (near, far) in LEGS.items()}  # of both legs


def legs_of(data: Any) -> BlockRows:
    """Return the legs of comparisons: an array of shape (n, 3, d) or (n, 4, d), or such tuples by index."""
    if not is_indexed(data):
        return ComparedLegs(data)
    rows = GraphRows.of if is_tensor(data.points) else IndexedRows
    return rows(data.points, data.index[:, _POINTS[int(data.index.shape[1])]].reshape((-1, 2)))


class ComparedLegs(BlockRows):
    """The differences a - b and a - c of triplets, or a - b and c - e of quadruplets, read block by block.

    `data` may be an array of any library, or a memory map.
    """

    n_together = 2

    def __init__(self, data: Array) -> None:
        super().__init__(2 * int(data.shape[0]), int(data.shape[-1]))
        self._data = data
        self._is_mapped = is_mapped(data)
        self._unreleased = 0

    def read(self, where: slice) -> Array:
        first, last = where.start // 2, -(-where.stop // 2)
        if self._is_mapped:
            self._release_some(last - first)
        legs = self._legs(first, last)
        start = where.start - 2 * first
        return legs[start : start + where.stop - where.start, :].T

    def in_single(self) -> BlockRows | None:
        if str(self._data.dtype).endswith("float32"):
            return _SingleLegs(self._data)
        if not is_numpy_array(self._data) or 4 * self.n_rows * self.n_columns > COPY_BYTES:
            return None
        copy = np.empty((self.n_rows, self.n_columns), dtype=np.float32)
        for where, block in self.blocks():
            copy[where] = block.T
        single = SingleDifferences(copy)
        single.n_together = self.n_together
        return single

    def _legs(self, first: int, last: int) -> Array:
        """The legs of these comparisons, an array of shape (2 m, d)."""
        a, b, c, e = (self._data[first:last, point, :] for point in _POINTS[int(self._data.shape[1])])
        if not is_numpy_array(self._data):
            xp = array_namespace(a)
            both = [self._as_read(a) - self._as_read(b), self._as_read(c) - self._as_read(e)]
            return xp.reshape(xp.stack(both, axis=1), (2 * (last - first), self.n_columns))
        legs = np.empty((2 * (last - first), self.n_columns), dtype=self._as_read(a[:0]).dtype)
        np.subtract(a, b, out=legs[0::2], dtype=legs.dtype)
        np.subtract(c, e, out=legs[1::2], dtype=legs.dtype)
        return legs

    def _as_read(self, points: Array) -> Array:
        """Points in the precision that legs are computed in."""
        return as_float64(points)

    def _release_some(self, n: int) -> None:
        """Release the pages that were read before, if they are many."""
        self._unreleased += n * self._data[:1].nbytes
        if self._unreleased > RELEASED_BYTES:
            release(self._data)
            self._unreleased = 0


class _SingleLegs(ComparedLegs):
    """Legs that are computed with in single precision; sums over blocks of them are in double precision."""

    n_fold = 2

    def _as_read(self, points: Array) -> Array:
        return points


def rows_of(data: Any, origin: FloatArray | None = None) -> Rows:
    """Return differences, pairs, pairs by index, rows in partitions or a source as rows; or comparisons.

    Single points are measured from an origin, if one is given; in the difference of a pair it cancels.
    """
    if _are_compared(data):
        return LegRows(legs_of(data), 0, int(data.shape[0]))
    return pair_rows(data, origin)


def pair_rows(data: Any, origin: FloatArray | None = None) -> BlockRows:
    """Return the same, of anything but comparisons: rows that are one difference each."""
    if _are_compared(data):
        raise ValueError(
            f"this needs pairs, which have one difference each; got comparisons of shape {tuple(data.shape)}. "
            "Give pairs (n, 2, d) or differences (n, d)."
        )
    if is_in_partitions(data):
        source: BlockRows = PartitionedRows.of_data(data)
    else:
        source = rows_here(data)
    has_two_sides = is_indexed(data) or data.ndim == 3 or not getattr(data, "is_single", True)
    return source if origin is None or has_two_sides else FromOrigin(source, origin)


def judged_rows(judgements: Judgements, comparison_noise: float = 1.0) -> Rows:
    """Return the rows of judgements; of pairs with comparisons, the pairs first.

    `comparison_noise` is the noise of comparisons, relative to that of pairs.
    """
    if _are_compared(judgements.data):
        return LegRows(legs_of(judgements.data), 0, len(judgements), 1.0 / comparison_noise)
    pairs = pair_rows(judgements.data)
    if judgements.comparisons is None:
        return pairs.at_hand()
    return LegRows.mixed(pairs, legs_of(judgements.comparisons.data), 1.0 / comparison_noise)


def _are_compared(data: Any) -> bool:
    """Whether these are triplets or quadruplets."""
    return getattr(data, "ndim", 2) == 3 and int(data.shape[1]) in (3, 4)
