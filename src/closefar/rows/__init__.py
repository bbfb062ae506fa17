"""Row sources: one interface for solvers, wherever the rows are stored."""

from closefar.rows.blocks import BlockRows, Differences
from closefar.rows.coordinates import column_scales, factor_in_rows, find_coordinates, second_moment, unit_free
from closefar.rows.indexed import GraphRows, IndexedRows
from closefar.rows.legs import LegRows, Rows, StackedRows
from closefar.rows.opening import check_device, judged_rows, on_device, pair_rows, rows_of
from closefar.rows.partitioned import PartitionedRows
from closefar.rows.source import ENORMOUS, Coordinates, RowSource, slices
from closefar.rows.streamed import Chunks, StreamedRows

__all__ = [
    "ENORMOUS",
    "BlockRows",
    "Chunks",
    "Coordinates",
    "Differences",
    "GraphRows",
    "IndexedRows",
    "LegRows",
    "PartitionedRows",
    "RowSource",
    "Rows",
    "StackedRows",
    "StreamedRows",
    "check_device",
    "column_scales",
    "factor_in_rows",
    "find_coordinates",
    "judged_rows",
    "on_device",
    "pair_rows",
    "rows_of",
    "second_moment",
    "slices",
    "unit_free",
]
