"""Row sources: one interface for solvers, wherever the rows are stored."""

from closefar.rows.blocks import BlockRows, Differences
from closefar.rows.coordinates import column_scales, factor_in_rows, find_coordinates, second_moment, unit_free
from closefar.rows.indexed import GraphRows, IndexedRows
from closefar.rows.legs import LegRows, Rows, StackedRows
from closefar.rows.opening import check_device, judged_rows, on_device, pair_rows, rows_of
from closefar.rows.partitioned import PartitionedRows
from closefar.rows.source import ENORMOUS, Coordinates, Joined, KernelCall, RowSource, Terms, Trait, slices
from closefar.rows.streamed import Chunks, StreamedRows

__all__ = ["BlockRows", "Differences"]
__all__ += ["column_scales", "factor_in_rows", "find_coordinates", "second_moment", "unit_free"]
__all__ += ["GraphRows", "IndexedRows", "LegRows", "Rows", "StackedRows"]
__all__ += ["PartitionedRows", "check_device", "judged_rows", "on_device", "pair_rows", "rows_of"]
__all__ += ["ENORMOUS", "Chunks", "Coordinates", "Joined", "KernelCall", "RowSource", "StreamedRows", "Terms", "Trait"]
__all__ += ["slices"]
