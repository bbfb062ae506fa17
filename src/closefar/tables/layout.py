"""How a text file is laid out: which character separates its columns, what they are called, where its rows begin."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, BinaryIO

from closefar.tables.errors import TableError, listed, quoted
from closefar.tables.headers import find_value
from closefar.tables.text_files import BadByteError, check_is_text, checked_lines, text_of
from closefar.tables.values import is_number

_SAMPLE_LINES = 20
# Where two would give as many columns: commas are the likeliest to stand inside a name or a number.
_SEPARATORS = ("\t", ";", "|", ",")
_EXCEL_SEPARATOR = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)


@dataclass(frozen=True)
class Layout:
    """The layout of a text file.

    Parameters
    ----------
    separator : str
    names : list of str
        Of the columns.
    start : int
        Where the first row of values begins, in bytes.
    first_row : int
        The number of that row in the file: 2, or more where other lines stand above the names.
    sample : list of lists of str
        The first rows of values.
    """

    separator: str
    names: list[str]
    start: int
    first_row: int
    sample: list[list[str]]


def find_layout(path: str, file: BinaryIO) -> Layout:
    """Find the layout, and check the column names."""
    check_is_text(path, file)
    begin = file.tell()
    text = text_of(file)
    try:
        return _find_layout(path, begin, _Counted(text))
    finally:
        text.detach()


class _Counted:
    """Lines, with the number of bytes that they took."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = checked_lines(lines)
        self.sizes: list[int] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.sizes.append(len(line.encode("utf-8")))
        return line


def _find_layout(path: str, begin: int, lines: _Counted) -> Layout:
    try:
        above, sample = _preamble(lines)
        sample += islice(lines, _SAMPLE_LINES)
    except BadByteError as error:
        raise error.at(path, len(lines.sizes) + 1) from error
    if not sample:
        raise TableError(f"{path} has comments only. Add a row of column names and at least one row of values.")
    if not sample[0].strip():
        raise TableError(f"{path}: row {len(above) + 1} is blank. The first row must name the columns.")
    told = _EXCEL_SEPARATOR.fullmatch(above[0]) if above else None
    separator = told[1] if told else max(_SEPARATORS, key=lambda candidate: _fitness(sample, candidate, path))
    if above and _is_header(above[-1], sample, separator):
        sample.insert(0, _without_mark(above.pop(), separator))
    row = len(above) + 1
    names, n_lines = _names(path, row, chain(sample, lines), separator)
    if len(names) == 1:
        _refuse_more_fields(path, row, names[0], sample[n_lines:], told is not None)
    rows = [cells for cells in _split(sample[n_lines:], separator) if len(cells) == len(names)]
    _check_names(path, row, names, rows)
    return Layout(separator, names, begin + sum(lines.sizes[: len(above) + n_lines]), row + 1, rows)


def _preamble(lines: Iterator[str]) -> tuple[list[str], list[str]]:
    """The lines above the column names: Excel's "sep=;", and comments; and the first one below."""
    above: list[str] = []
    for line in lines:
        if not line.startswith("#") and not (not above and _EXCEL_SEPARATOR.fullmatch(line)):
            return above, [line]
        above.append(line)
    return above, []


def _is_header(comment: str, sample: list[str], separator: str) -> bool:
    """Whether the last comment holds the column names, as in "#id,age" or what numpy.savetxt writes."""
    if not comment.startswith("#"):
        return False
    names, *_ = _split([comment], separator)
    first, *rows = _split(sample, separator)
    if len(names) != len(first) or len(first) < 2:
        return False
    alike = [row for row in rows if len(row) == len(first)]
    return comment[1:2] != " " or all(map(is_number, first)) or find_value(first, alike) is not None


def _without_mark(header: str, separator: str) -> str:
    name, found, rest = header.partition(separator)
    return (name.lstrip("#").lstrip() or name) + found + rest


def _names(path: str, row: int, lines: Iterable[str], separator: str) -> tuple[list[str], int]:
    """The column names, and the number of lines that they take."""
    reader = records(iter(lines), separator)
    try:
        return [name.strip() for name in next(reader)], reader.line_num
    except csv.Error as error:
        raise TableError(f"{path}: row {row} can't be split into columns ({error}). Check its quotes.") from error
    except BadByteError as error:
        raise error.at(path, row) from error


def records(lines: Iterator[str], separator: str) -> Any:
    """The fields of each row; quoted ones may hold separators and line ends."""
    return csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)


def _split(lines: list[str], separator: str) -> list[list[str]]:
    """The fields of the first rows, as far as they can be told."""
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend(csv.reader(lines, delimiter=separator, skipinitialspace=True))
    return rows or [[]]


def _fitness(lines: list[str], separator: str, path: str) -> tuple[bool, int, bool]:
    """How well a separator splits the first rows: evenly, into many columns, as the file's name says."""
    widths = [len(row) for row in _split(lines, separator) if row]
    if not widths:
        return False, 0, False
    whole = widths[:-1] if len(lines) >= _SAMPLE_LINES and len(widths) > 1 else widths  # the last row may be cut
    usual = "\t" if path.lower().removesuffix(".gz").endswith(".tsv") else ","
    several = widths[0] > 1
    return several and len(set(whole)) == 1, widths[0], not several and separator == usual


def _refuse_more_fields(path: str, row: int, name: str, below: list[str], is_told: bool) -> None:
    """Refuse a single name above rows of several columns: a title, or another separator than "sep=" says."""
    best = max(_SEPARATORS, key=lambda candidate: _fitness(below, candidate, path))
    is_even, width, _ = _fitness(below, best, path)
    if is_told and best in name:
        raise TableError(
            f"{path}: row 1 gives another separator than row {row} has, which is {best!r}. Correct row 1, or remove it."
        )
    if is_even:
        raise TableError(
            f"{path}: row {row} must name the columns; it has a single name, {quoted(name)}, above rows of {width} "
            f"fields (separator {best!r}). Remove what stands above the column names, or begin it with #."
        )


def _check_names(path: str, row: int, names: list[str], rows: Sequence[Sequence[str]]) -> None:
    for position, name in enumerate(names, start=1):
        if not name:
            hint = "; pandas leaves out its row numbers with to_csv(..., index=False)" if position == 1 else ""
            raise TableError(
                f"{path}: column {position} of {len(names)} has no name in row {row}. Name it or remove it{hint}."
            )
    advice = "Add a row of column names at the top."
    numbered = names == [str(number) for number in range(len(names))]
    if all(map(is_number, names)) and not numbered:
        raise TableError(
            f"{path}: row {row} must name the columns; it has only numbers, the first is {quoted(names[0])}. {advice}"
        )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    value = None if numbered else find_value(names, rows)
    if repeated and not any(map(is_number, repeated)):
        raise TableError(f"{path}: row {row} repeats the column name {listed(repeated)}. Rename the columns.")
    if repeated or value is not None:
        raise TableError(
            f"{path}: row {row} must name the columns, but {quoted(repeated[0] if repeated else value)} looks like a "
            f"value. {advice} If it is a name, rename that column."
        )
