"""From files that people have to pairs that the learner takes."""

from typing import TYPE_CHECKING, Any

from closefar.tables.encoding import Encoding
from closefar.tables.errors import TableError
from closefar.tables.files import Table, open_table, read_table
from closefar.tables.large_files import Pairs, labels_of, others_of, read_or_open_pairs, read_or_open_points
from closefar.tables.pairs import PairTable, read_pairs, read_points, read_raw_points
from closefar.tables.recorded import (
    RecordedAnswers,
    check_recorded,
    create_recorded,
    fingerprint_columns,
    is_recorded,
    note_unsure,
    point_differences,
    read_recorded,
    readable,
    recorded_columns,
    recorded_task,
)
from closefar.tables.source import Source
from closefar.tables.writing import csv_parts, encode_table, write_table

if TYPE_CHECKING:
    from closefar.tables.opened import ClusterPairs, IndexedPairs, PairFile, open_pairs

__all__ = ["Encoding", "Table", "TableError", "open_table", "read_table"]
__all__ += ["Pairs", "labels_of", "others_of", "read_or_open_pairs", "read_or_open_points"]
__all__ += ["PairTable", "read_pairs", "read_points", "read_raw_points"]
__all__ += ["RecordedAnswers", "check_recorded", "create_recorded", "fingerprint_columns", "is_recorded", "note_unsure"]
__all__ += ["Source", "point_differences", "read_recorded", "readable", "recorded_columns", "recorded_task"]
__all__ += ["ClusterPairs", "IndexedPairs", "PairFile", "csv_parts", "encode_table", "open_pairs", "write_table"]


def __getattr__(name: str) -> Any:
    """Import opened pairs when they are used: they are rows of the learner, and scikit-learn takes its time."""
    if name not in __all__:
        raise AttributeError(f"module 'closefar.tables' has no attribute {name!r}")
    from closefar.tables import opened

    return getattr(opened, name)
