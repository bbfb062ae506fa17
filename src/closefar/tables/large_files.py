"""Pairs and points of files that may be too large for memory: read if they are not, otherwise opened."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from closefar.tables.encoding import Encoding, Features
from closefar.tables.errors import TEXT_SUFFIXES
from closefar.tables.files import ParquetFile
from closefar.tables.inputs import PARQUET_SUFFIXES, Input
from closefar.tables.pairs import PairTable, read_pairs, read_points
from closefar.tables.source import Source, find_id
from closefar.tables.values import MissingValues

if TYPE_CHECKING:
    from closefar.tables.opened import PairFile

Pairs: TypeAlias = "PairTable | PairFile"  # in memory, or in a file

MOST_BYTES = 1 << 29  # of numbers in double precision that are read whole; reading takes two to three times as much
_COMPRESSION = 4  # times that gzip makes a text of numbers smaller, about


def is_large(source: Source) -> bool:
    """Whether one file has all data, can be read in parts, and is too large to be read as a whole."""
    file, others = Input(source.judged), (source.comparisons, source.judgements, source.pairs and source.points)
    if others != (None, None, None) or file.is_stream or not os.path.exists(file):
        return False
    return _n_bytes(file) > MOST_BYTES


def _n_bytes(file: Input) -> int:
    """About how much memory the numbers take; 0 for formats that are not read in parts."""
    name, size = file.name.lower(), os.path.getsize(file)
    if name.endswith(".npy"):
        return 2 * size
    if name.removesuffix(".gz").endswith(TEXT_SUFFIXES):
        return size * (_COMPRESSION if name.endswith(".gz") else 1)
    parts = file.parts()  # of a folder, its Parquet files
    if not parts or not all(part.name.lower().endswith(PARQUET_SUFFIXES) for part in parts):
        return 0
    opened = ParquetFile(file, MissingValues())
    return 8 * opened.n_rows * len(opened.names)


def read_or_open_pairs(source: Source, *, labelled: bool, **options: Any) -> Pairs:
    """Read pairs as `read_pairs` does or, of a file that is too large to be held in memory, open them.

    That is one whose numbers take more than half a gigabyte.
    """
    if not is_large(source):
        return read_pairs(source, labelled=labelled, **options)
    from closefar.tables.opened import open_source  # rows of the learner, which take a second to import

    return open_source(source, Features(**options), labelled=labelled)


def read_or_open_points(source: Source, *, encoding: Encoding) -> Pairs:
    """Read points as `read_points` does or, of a file that is too large to be held in memory, open them."""
    if not is_large(source):
        return read_points(source, encoding=encoding)
    from closefar.tables.opened import open_source

    id_name, _ = find_id(source.open(source.judged), source.id, encoding.column_names)
    return open_source(replace(source, id=id_name), Features(encoding), labelled=False)


def labels_of(table: Pairs) -> Any:
    """The labels as a learner takes them; the answers of comparisons are 1 and -1, or None if all are as given."""
    return table.labels.astype(float) if table.are_comparisons and table.labels is not None else table.labels


def others_of(table: Pairs) -> dict[str, Any]:
    """What else a learner is fitted to: annotators, and comparisons beside pairs."""
    others: dict[str, Any] = {}
    if table.annotators is not None:
        others["annotators"] = table.annotators
    if table.comparisons is not None:
        compared = table.comparisons
        others["comparisons"] = (compared.data, labels_of(compared), compared.weights)
    return others
