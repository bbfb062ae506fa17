"""The rows of a text file, block by block, as tables of pyarrow.

pyarrow splits what is plain: RFC 4180 without blank lines.  From the first block that is not, Python's
csv module reads on, which is slower; it knows all rules, and names the row that breaks one.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from closefar.tables.arrow import has_nan
from closefar.tables.errors import TableError
from closefar.tables.layout import Layout, records
from closefar.tables.text_files import BadByteError, checked_lines, text_of

_BLOCK_BYTES = 1 << 24
_MOST_BLOCKS = 8  # that a single row may take
_PARSED_BYTES = 1 << 20  # by one thread at a time
_COUNTED_BYTES = 1 << 18  # stays in cache
_MANY_COLUMNS = 1000
_SLOW_ROWS = 20_000
_QUOTE, _LINE_ENDS = ord('"'), b"\r\n"
_BLANK_LINE = re.compile(rb"\n\n|\r\r|\n\r")

Types = Mapping[int, Any]  # of pyarrow, by the position of the column


class _NotPlainError(Exception):
    """These bytes need the slow reader."""


def read_blocks(
    path: str, file: BinaryIO, layout: Layout, types: Callable[[], Types], missing: list[str]
) -> Iterator[Any]:
    """Give tables of pyarrow, with the wanted columns named by their positions.

    A column is of the type that is wanted of it at that time, or else all are strings.
    """
    offset, first_row = layout.start, layout.first_row
    file.seek(offset)
    try:
        for block in _plain_blocks(file, layout):
            table = _parsed(block, layout, types(), missing)
            offset, first_row = offset + len(block), first_row + len(table)
            yield table
    except _NotPlainError:
        file.seek(offset)
        yield from _read_slowly(path, file, layout, first_row, types)


def _plain_blocks(file: BinaryIO, layout: Layout) -> Iterator[bytearray]:
    """Whole rows at a time, up to the first that are not plain."""
    if len(layout.names) == 1:  # a blank line would be a value
        raise _NotPlainError
    rest = bytearray()
    while content := file.read(_BLOCK_BYTES):
        block = rest + content
        quotes = _quotes(block)
        end = _end_of_rows(block, quotes)
        rest = block[end:]
        if end:
            del block[end:]  # in place, as a copy would take longer than to split some blocks
            _check_plain(block, quotes[quotes < end], layout.separator)
            yield block
        elif len(block) >= _MOST_BLOCKS * _BLOCK_BYTES:
            raise _NotPlainError
    if rest.strip(b" " + _LINE_ENDS):
        _check_plain(rest, _quotes(rest), layout.separator)
        yield rest


def _quotes(block: bytearray) -> NDArray[np.intp]:
    if b'"' not in block:
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == _QUOTE)


def _end_of_rows(block: bytearray, quotes: NDArray[np.intp]) -> int:
    """Where the last whole row ends, if the quotes are those of RFC 4180: after every second one a field ends."""
    line_end = b"\n" if b"\n" in block else b"\r"
    end = len(block) - 1 if line_end == b"\r" else len(block)  # a line feed may follow that carriage return
    while (found := block.rfind(line_end, 0, end)) >= 0:
        before = int(np.searchsorted(quotes, found))
        if before % 2 == 0:
            return found + 1
        end = int(quotes[before - 1])
    return 0


def _check_plain(block: bytearray, quotes: NDArray[np.intp], separator: str) -> None:
    """Refuse bytes that are no text, blank lines, and quotes other than around a whole field or doubled inside one."""
    if b"\0" in block or block[0] in _LINE_ENDS:
        raise _NotPlainError
    if not block.isascii():
        try:
            block.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _NotPlainError from error
    if len(quotes):
        blank = [found.start() for found in _BLANK_LINE.finditer(block)]
        if np.any(np.searchsorted(quotes, blank) % 2 == 0):
            raise _NotPlainError
        letters = np.frombuffer(block, dtype=np.uint8)
        around = np.frombuffer(separator.encode() + _LINE_ENDS + b'"', dtype=np.uint8)
        opening, closing = quotes[::2], quotes[1::2]
        before, after = letters[opening[opening > 0] - 1], letters[closing[closing < len(block) - 1] + 1]
        if len(quotes) % 2 or not np.all(np.isin(before, around)) or not np.all(np.isin(after, around)):
            raise _NotPlainError


def _parsed(block: bytearray, layout: Layout, types: Types, missing: list[str]) -> Any:
    """The wanted columns by pyarrow; as strings where a value is not of its type."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    size = len(block) + 1 if len(layout.names) > _MANY_COLUMNS else _PARSED_BYTES
    names = [str(position) for position in range(len(layout.names))]
    wanted = {str(position): kind for position, kind in types.items()}
    strings = dict.fromkeys(wanted, pa.string())
    for column_types in (wanted, strings):
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(block),
                read_options=arrow_csv.ReadOptions(column_names=names, block_size=size),
                parse_options=arrow_csv.ParseOptions(delimiter=layout.separator, newlines_in_values=b'"' in block),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=column_types,
                    include_columns=list(wanted),
                    null_values=missing,
                    strings_can_be_null=True,
                    check_utf8=False,
                ),
            )
        except pa.ArrowInvalid:
            continue
        if b'"' not in block and len(table) != _n_lines(block):  # pyarrow skips blank lines
            raise _NotPlainError
        if not any(has_nan(column) for column in table.columns if str(column.type) == "double"):
            return table
    raise _NotPlainError


def _n_lines(block: bytearray) -> int:
    feeds, returns = (_count(end, block) if end in block else 0 for end in b"\n\r")
    if returns not in (0, feeds) and feeds:  # ends of several kinds
        return len(block.splitlines())
    return max(feeds, returns) + (block[-1] not in _LINE_ENDS)


def _count(byte: int, block: bytearray) -> int:
    """As `block.count` does, but several times as fast."""
    letters = np.frombuffer(block, dtype=np.uint8)
    parts = (letters[start : start + _COUNTED_BYTES] for start in range(0, len(block), _COUNTED_BYTES))
    return sum(int(np.count_nonzero(part == byte)) for part in parts)


def _read_slowly(
    path: str, file: BinaryIO, layout: Layout, first_row: int, types: Callable[[], Types]
) -> Iterator[Any]:
    import pyarrow as pa

    text = text_of(file)
    try:
        lines = checked_lines(text)
        reader = records(lines, layout.separator)
        while rows := _some_rows(path, reader, first_row):
            whole = _checked_rows(path, rows, lines, layout, first_row)
            columns = list(zip(*whole, strict=True)) or [()] * len(layout.names)
            yield pa.table({str(position): pa.array(columns[position], pa.string()) for position in types()})
            first_row += len(whole)
    finally:
        text.detach()


def _some_rows(path: str, reader: Iterator[list[str]], first_row: int) -> list[list[str]]:
    rows: list[list[str]] = []
    try:
        rows.extend(islice(reader, _SLOW_ROWS))
    except csv.Error as error:
        raise TableError(
            f"{path}: row {first_row + len(rows)} can't be split into columns ({error}). "
            "Check that every quote is closed."
        ) from error
    except BadByteError as error:
        raise error.at(path, first_row + len(rows)) from error
    return rows


def _checked_rows(
    path: str, rows: list[list[str]], lines: Iterator[str], layout: Layout, first_row: int
) -> list[list[str]]:
    """The rows without blank lines at the end of the file; others must have a field for each name."""
    expected = len(layout.names)
    if set(map(len, rows)) == {expected}:
        return rows
    position = next(position for position, row in enumerate(rows) if len(row) != expected)
    if not _is_blank(rows[position]):
        raise TableError(f"{path}: {_about_width(rows[position], first_row + position, layout)}")
    if not all(map(_is_blank, rows[position:])) or any(line.strip() for line in lines):
        raise TableError(f"{path}: row {first_row + position} is blank, but more rows follow. Remove it.")
    return rows[:position]


def _about_width(row: list[str], number: int, layout: Layout) -> str:
    expected, separator = len(layout.names), layout.separator
    others = [other for other in ",;\t|" if other != separator and len(separator.join(row).split(other)) == expected]
    if row[0].startswith("#"):
        return f"row {number} is a comment, which may stand above the column names only. Remove it."
    advice = (
        f"It looks separated by {others[0]!r}: use one separator throughout."
        if others
        else f"Quote fields that contain {separator!r}, and give every row as many fields as there are names."
    )
    found = "1 field" if len(row) == 1 else f"{len(row)} fields"
    return (
        f"row {number} has {found} where row {layout.first_row - 1} has {expected} names "
        f"(separator {separator!r}). {advice}"
    )


def _is_blank(row: list[str]) -> bool:
    return len(row) <= 1 and not "".join(row).strip()
