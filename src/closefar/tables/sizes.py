"""Which files are too large to be held in memory."""

from __future__ import annotations

import os

from closefar.tables.errors import TEXT_SUFFIXES
from closefar.tables.inputs import Input
from closefar.tables.parquet import ParquetFile
from closefar.tables.source import Source
from closefar.tables.values import MissingValues

MOST_BYTES = 1 << 30  # of numbers in double precision; reading takes two to three times as much
_SHARE_OF_MEMORY = 1 / 8
_COMPRESSION = 4  # of text, about


def is_large(source: Source) -> bool:
    """Whether one file has all data, can be read in parts, and is too large to be read as a whole."""
    if source.judgements is not None:
        return False
    if source.points is not None and (source.pairs is not None or source.comparisons is not None):
        return False
    file = Input(source.points or source.pairs or "")
    if file.is_stream or not os.path.exists(file):
        return False
    return _n_bytes(file) > min(MOST_BYTES, _SHARE_OF_MEMORY * _memory())


def _n_bytes(file: Input) -> int:
    """About how much memory the numbers take; 0 for formats that are not read in parts."""
    name, size = file.name.lower(), os.path.getsize(file)
    if name.endswith(".npy"):
        return 2 * size
    if name.removesuffix(".gz").endswith(TEXT_SUFFIXES):
        return size * (_COMPRESSION if name.endswith(".gz") else 1)
    if name.endswith(".npz") or not file.parts():
        return 0
    if sum(os.path.getsize(part) for part in file.parts()) * 100 < MOST_BYTES:
        return 0  # however well it is compressed
    opened = ParquetFile(file, MissingValues())
    return 8 * opened.n_rows * len(opened.names)


def _memory() -> float:
    """The memory of the machine, in bytes; infinite where it is not told."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
