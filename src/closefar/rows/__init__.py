"""Row sources: one interface for solvers, wherever the rows are stored."""

from closefar.rows.blocks import BlockRows
from closefar.rows.coordinates import ENORMOUS, Coordinates
from closefar.rows.devices import check_device, on_device
from closefar.rows.differences import Differences
from closefar.rows.graph_rows import GraphRows
from closefar.rows.indexed import IndexedRows
from closefar.rows.opening import rows_of
from closefar.rows.partitioned import PartitionedRows
from closefar.rows.source import RowSource, slices
from closefar.rows.streamed import Chunks, StreamedRows
from closefar.rows.unit_free import column_scales, factor_in_rows, find_coordinates, unit_free

__all__ = [
    "ENORMOUS",
    "BlockRows",
    "Chunks",
    "Coordinates",
    "Differences",
    "GraphRows",
    "IndexedRows",
    "PartitionedRows",
    "RowSource",
    "StreamedRows",
    "check_device",
    "column_scales",
    "factor_in_rows",
    "find_coordinates",
    "on_device",
    "rows_of",
    "slices",
    "unit_free",
]
