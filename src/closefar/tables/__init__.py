"""From files that people have to pairs that the learner takes."""

from closefar.tables.encoding import Encoding
from closefar.tables.errors import TableError
from closefar.tables.pair_table import PairTable
from closefar.tables.pairs import read_pairs
from closefar.tables.points import PointTable, read_points
from closefar.tables.sources import Source
from closefar.tables.table import Table, open_table, read_table
from closefar.tables.writing import encode_table

__all__ = [
    "Encoding",
    "PairTable",
    "PointTable",
    "Source",
    "Table",
    "TableError",
    "encode_table",
    "open_table",
    "read_pairs",
    "read_points",
    "read_table",
]
