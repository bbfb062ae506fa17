"""Row sources: one interface for solvers, wherever the rows are stored."""

from closefar.rows.blocks import BlockRows, Differences
from closefar.rows.devices import check_device, on_device
from closefar.rows.graph_rows import GraphRows
from closefar.rows.indexed import IndexedRows
from closefar.rows.legs import LegRows, Rows, StackedRows
from closefar.rows.opening import judged_rows, pair_rows, rows_of
from closefar.rows.partitioned import PartitionedRows
from closefar.rows.source import ENORMOUS, Coordinates, RowSource, slices
from closefar.rows.streamed import Chunks, StreamedRows
from closefar.rows.unit_free import column_scales, factor_in_rows, find_coordinates, second_moment, unit_free

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
