"""From data to the source of their rows, wherever they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from closefar.arrays import FloatArray, is_in_partitions, is_indexed
from closefar.rows.blocks import BlockRows
from closefar.rows.compared import legs_of
from closefar.rows.differences import FromOrigin
from closefar.rows.ladder import rows_here
from closefar.rows.legs import LegRows, Rows
from closefar.rows.partitioned import PartitionedRows

if TYPE_CHECKING:  # metrics are loaded and applied without scikit-learn, which takes a second to import
    from closefar.judgements import Judgements

__all__ = ["judged_rows", "pair_rows", "rows_of"]


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
