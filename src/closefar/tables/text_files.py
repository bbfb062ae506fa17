"""Opening a text file: what its bytes must be, and which character separates its columns."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import BinaryIO, TextIO, cast

from closefar.tables.errors import TableError, UnreadableError, listed, quoted
from closefar.tables.values import is_number

__all__ = ["check_is_text", "find_layout", "open_lines", "records"]

_SAMPLE_BYTES = 1 << 16
_SAMPLE_LINES = 20
# Where two would give as many columns: commas are the likeliest to stand inside a name or a number.
_SEPARATORS = ("\t", ";", "|", ",")
_UTF_16_OR_32 = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_OTHER_FORMATS = {
    b"\x1f\x8b": "a gzip file: give its name the ending .gz",
    b"PK\x03\x04": "a zip or Excel file: save the table as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel file: save the table as CSV",
    b"PAR1": "a Parquet file: give its name the ending .parquet",
    b"\x93NUMPY": "a NumPy file: give its name the ending .npy",
}
_CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1a\x1b"))


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Turn what goes wrong with the file itself into a TableError."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise TableError(
            f"{path} is not UTF-8 text: it has the byte 0x{error.object[error.start]:02x}. Save it as UTF-8."
        ) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TableError(f"{path} is not a gzip file, or it is damaged ({error}). Make it again.") from error
    except OSError as error:
        raise UnreadableError(f"{path} can't be read: {error.strerror or error}.") from error


@contextmanager
def _open_bytes(path: str) -> Iterator[BinaryIO]:
    opened = gzip.open(path, "rb") if path.lower().endswith(".gz") else open(path, "rb")  # noqa: SIM115 - below
    with opened as file:
        yield cast(BinaryIO, file)


@contextmanager
def open_lines(path: str) -> Iterator[TextIO]:
    """Open for reading lines; what is wrong with the file is a TableError, also while it is read."""
    opener = gzip.open if path.lower().endswith(".gz") else open
    with _readable(path), opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        yield cast(TextIO, file)


def check_is_text(path: str) -> None:
    """Refuse an empty file and one whose first bytes are not UTF-8 text."""
    with _readable(path), _open_bytes(path) as file:
        start = file.read(_SAMPLE_BYTES)
    for magic, what in _OTHER_FORMATS.items():
        if start.startswith(magic):
            raise TableError(f"{path} is not a text file but {what}.")
    if start.startswith(_UTF_16_OR_32) or b"\0" in start:
        raise TableError(f"{path} is UTF-16 text or a binary file. Save it as UTF-8 text.")
    if len(start.translate(None, _CONTROL)) < len(start):
        raise TableError(f"{path} is not text: it has control characters. Save the table as CSV, in UTF-8.")
    if not start.removeprefix(b"\xef\xbb\xbf").strip():
        raise TableError(f"{path} is empty. It must have a row of column names and at least one row of values.")


def records(lines: Iterator[str], separator: str) -> Iterator[list[str]]:
    """The fields of each row; quoted ones may hold separators and line ends."""
    return csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)


def find_layout(path: str) -> tuple[str, list[str]]:
    """The separator and the column names, both checked."""
    check_is_text(path)
    with open_lines(path) as file:
        lines = list(islice(file, _SAMPLE_LINES))
    if not lines[0].strip():
        raise TableError(f"{path}: row 1 is blank. The first row must name the columns.")
    separator = max(_SEPARATORS, key=lambda candidate: _fitness(lines, candidate, path))
    with open_lines(path) as file:
        try:
            names = [name.strip() for name in next(records(file, separator))]
        except csv.Error as error:
            raise TableError(f"{path}: row 1 can't be split into columns ({error}). Check its quotes.") from error
    _check_names(path, names)
    return separator, names


def _fitness(lines: list[str], separator: str, path: str) -> tuple[bool, int, bool]:
    """How well a separator splits the first rows: evenly, into many columns, as the file's name says."""
    try:
        rows = list(csv.reader(lines, delimiter=separator, skipinitialspace=True))
    except csv.Error:
        return False, 0, False
    widths = [len(row) for row in rows if row]
    whole = widths[:-1] if len(lines) == _SAMPLE_LINES and len(widths) > 1 else widths  # the last row may be cut
    usual = "\t" if path.lower().removesuffix(".gz").endswith(".tsv") else ","
    several = widths[0] > 1
    return several and len(set(whole)) == 1, widths[0], not several and separator == usual


def _check_names(path: str, names: list[str]) -> None:
    for position, name in enumerate(names, start=1):
        if not name:
            raise TableError(
                f"{path}: column {position} of {len(names)} has no name in row 1. Name it or remove it; pandas leaves "
                "out its row numbers with to_csv(..., index=False)."
            )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise TableError(f"{path}: row 1 has a column name more than once: {listed(repeated)}. Rename the columns.")
    numbered = names == [str(number) for number in range(len(names))]
    if all(map(is_number, names)) and not numbered:
        raise TableError(
            f"{path}: row 1 must name the columns; it has only numbers, the first is {quoted(names[0])}. "
            "Add a row of column names at the top."
        )
