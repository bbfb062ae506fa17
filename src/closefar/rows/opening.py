"""From data to the source of their rows, wherever they are."""

from __future__ import annotations

from typing import Any

from closefar.arrays import FloatArray, is_in_partitions, is_indexed
from closefar.rows.blocks import BlockRows
from closefar.rows.differences import FromOrigin
from closefar.rows.ladder import rows_here
from closefar.rows.partitioned import PartitionedRows

__all__ = ["rows_of"]


def rows_of(data: Any, origin: FloatArray | None = None) -> BlockRows:
    """Return differences, pairs, pairs by index, rows in partitions or a source as rows.

    Single points are measured from an origin, if one is given; in the difference of a pair it cancels.
    """
    if is_in_partitions(data):
        source: BlockRows = PartitionedRows.of_data(data)
    else:
        source = rows_here(data)
    has_two_sides = is_indexed(data) or data.ndim == 3 or not getattr(data, "is_single", True)
    return source if origin is None or has_two_sides else FromOrigin(source, origin)
