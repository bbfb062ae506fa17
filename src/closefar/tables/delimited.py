"""Text files with separators: pyarrow splits them into columns, and Python's csv module says what is wrong with one.

A field is text until all fields of its column prove to be numbers, so that no digit of an id is lost.
"""

from __future__ import annotations

import csv
import re
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from closefar.errors import setting
from closefar.tables.errors import Place, TableError, counted, listed, quote
from closefar.tables.inputs import Input
from closefar.tables.values import (
    BOOLEAN_WORDS,
    MissingValues,
    TableFile,
    is_number,
    joined_columns,
    pa,
    pa_csv,
    pc,
    trimmed,
)

_BLOCK_BYTES = 1 << 22  # parsed at a time, 4 MiB, and the longest row; 16 MiB took a third more CPU on a million rows
_SAMPLE_LINES = 20  # enough to see which separator splits all rows evenly
# Where two would give as many columns: commas are the likeliest to stand inside a name or a number.
_SEPARATORS = ("\t", ";", "|", ",")
_OWN_REFERENCES = 3  # to an object that a function was given: by the caller, by the function and by the question itself
_MOST_WAITS = 100  # of a millisecond each, as a traceback may refer to it for ever
_EXCEL_SEPARATOR = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
_NOT_TEXT = re.compile("[\0\udc80-\udcff]")  # NUL, and what Python decodes bytes to that are not UTF-8


class LostTextError(Exception):
    """Columns that were read as numbers have text further below, so the rows must be read again."""


class DelimitedFile(TableFile):
    """A text file with a row of column names; its rows are read when they are asked for.

    Parameters
    ----------
    source : Input
    missing : MissingValues
    decimal : {".", ","}
        The decimal mark of numbers.
    """

    def __init__(self, source: Input, missing: MissingValues, decimal: str = ".") -> None:
        self._source, self._decimal, self._layout = source, decimal, _find_layout(source, decimal)
        super().__init__(Place(source.name, self._layout.first_row), missing)
        self.names = self._layout.names
        self._not_numbers: set[str] = set()  # columns that have been found to have text

    def stored(self, names: list[str], as_text: Collection[str]) -> dict[str, Any]:
        while True:
            with suppress(LostTextError):
                tables = list(self.tables(names, as_text))
                return {name: joined_columns([table.column(name) for table in tables]) for name in names}

    def converted(self, stored: Any, name: str, *, as_text: bool, is_id: bool = False) -> Any:
        column = super().converted(stored, name, as_text=as_text, is_id=is_id)
        return column if as_text or is_id or column.dtype.kind != "O" else _booleans(column)

    def tables(self, wanted: list[str], as_text: Collection[str]) -> Iterator[Any]:
        """Yield tables of pyarrow, some rows each: trimmed strings in columns with text, numbers in the others.

        LostTextError where a column of numbers has text after all; it has strings when the rows are read again.
        """
        n_rows = 0
        for batch in self._batches(wanted):
            columns, are_text = [], {*as_text, *self._not_numbers}
            for name, strings in zip(wanted, batch.columns, strict=True):
                column = None if name in are_text else self._numbers(strings)
                if column is None and name not in as_text:
                    self._not_numbers.add(name)
                columns.append(self._words(strings, name, as_text) if column is None else column)
            if n_rows and not are_text >= self._not_numbers:
                raise LostTextError
            n_rows += len(batch)
            yield pa.Table.from_arrays(columns, names=wanted)
        if n_rows == 0:
            raise self._without_rows()

    def _numbers(self, strings: Any) -> Any:
        """A column as numbers, null where one is missing; None where a value is not a number."""
        words = _with_point(strings, self._decimal)
        for is_trimmed in (False, True):  # most numbers have no space around them, which takes its time to remove
            words = trimmed(words, self.missing.words) if is_trimmed else words
            with suppress(pa.ArrowInvalid):
                return words.cast(pa.float64())
        found = self.missing.numbers_from(words.to_pylist())  # what only Python reads, such as other digits
        if found is None:
            return None
        return pa.Array.from_buffers(pa.float64(), len(found), [None, pa.py_buffer(found)])

    def _words(self, strings: Any, name: str, as_text: Collection[str]) -> Any:
        if pc.any(pc.match_substring_regex(strings, '^ +"')).as_py():
            raise TableError(
                f"{self.path}: column {quote(name)} has quotes after a space, which would be part of the text. Remove "
                "the spaces that follow separators."
            )
        words = trimmed(strings, self.missing.words)
        return words if name in as_text or self._decimal == "." else self._pointed(words, name)

    def _pointed(self, words: Any, name: str) -> Any:
        """The words of a column of numbers and text, its numbers with a decimal point."""
        numbers = r"^[+-]?\d*%s\d*(e[+-]?\d+)?$"
        other = words.filter(pc.match_substring_regex(words, numbers % r"\.", ignore_case=True))
        if len(other):
            raise TableError(
                f"{self.path}: column {quote(name)} has {quote(other[0].as_py())}, with a decimal point, although "
                + setting(decimal=self._decimal)
                + " is set. Write all numbers alike, without other separators, or set "
                + setting(decimal=".")
                + " for decimal points."
            )
        are_numbers = pc.match_substring_regex(words, numbers % self._decimal, ignore_case=True)
        return pc.if_else(are_numbers, _with_point(words, self._decimal), words)

    def _batches(self, wanted: list[str]) -> Iterator[Any]:
        """The rows as strings, null for the usual words of missing values."""
        layout, n_rows, trouble = self._layout, 0, None
        with self._source.open_decompressed() as file:
            content = _Content(file)
            try:
                reader = pa_csv.open_csv(
                    content,
                    pa_csv.ReadOptions(
                        column_names=self.names, skip_rows=layout.n_lines, block_size=_BLOCK_BYTES, use_threads=False
                    ),
                    pa_csv.ParseOptions(delimiter=layout.separator, newlines_in_values=True),
                    pa_csv.ConvertOptions(
                        column_types=dict.fromkeys(wanted, pa.string()),
                        include_columns=wanted,
                        null_values=sorted(self.missing.words),
                        strings_can_be_null=True,
                    ),
                )
                for batch in reader:
                    n_rows += len(batch)
                    yield batch
            except ValueError as error:  # of pyarrow too
                trouble = error
            finally:
                reader = None
                _wait_until_free(content)
        # Also where pyarrow is content: it skips blank lines, and reads all after an open quote as one field.
        if trouble or layout.n_lines + n_rows != content.n_lines or content.n_quotes % 2:
            self._refuse_fault()
        if trouble:
            raise TableError(
                f"{self.path} can't be split into columns: {quote(trouble)}. Check its quotes, and that no row has "
                f"more than {_BLOCK_BYTES >> 20} MiB."
            ) from trouble

    def _refuse_fault(self) -> None:
        """Refuse what Python's csv module, which is slower but strict, finds wrong."""
        layout, path = self._layout, self.path
        number, blank = layout.first_row - 1, 0
        with self._source.open_text() as text:
            lines = islice(_lines(path, text), layout.n_lines, None)
            rows = csv.reader(lines, delimiter=layout.separator, strict=True)
            try:
                for number, row in enumerate(rows, layout.first_row):
                    if len(row) <= 1 and not "".join(row).strip():
                        blank = blank or number
                    elif blank:
                        raise TableError(f"{path}: row {blank} is blank, but more rows follow. Remove it.")
                    elif len(row) != len(layout.names):
                        raise TableError(f"{path}: {_about_width(row, number, layout)}")
            except csv.Error as error:
                raise TableError(
                    f"{path}: row {number + 1} can't be split into columns ({error}). Check that every quote is closed."
                ) from error
        if number < layout.first_row or blank == layout.first_row:
            raise self._without_rows()

    def _without_rows(self) -> TableError:
        return TableError(f"{self.path} has column names but no rows. Add at least one row of values.")


class _Content:
    """A file as pyarrow reads it, without blank lines at its end; what must not be overlooked is noted."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._held = file, b""
        self._n_ends = Counter[bytes]()
        self.n_quotes = 0

    def read(self, size: int) -> bytes:
        content = b""
        while not content and (block := self._file.read(size)):
            if b"\0" in block:
                raise ValueError("a NUL byte")
            block = self._held + block
            content = block.rstrip(b"\r\n ")
            self._held = block[len(content) :]
        for end in (b"\n", b"\r"):
            self._n_ends[end] += content.count(end)
        self.n_quotes += content.count(b'"')
        return content

    @property
    def n_lines(self) -> int:
        """The lines, if they end alike."""
        return max(self._n_ends.values()) + 1

    def close(self) -> None:
        """Whoever opened the file closes it."""


def _wait_until_free(content: _Content) -> None:
    """Wait for pyarrow's thread, which reads ahead, to let go of what it reads: it would abort a program that ends."""
    for _ in range(_MOST_WAITS):
        if sys.getrefcount(content) <= _OWN_REFERENCES:
            return
        time.sleep(0.001)


def _with_point(strings: Any, decimal: str) -> Any:
    """Numbers with a decimal point; those that had one where it should be a comma become text."""
    if decimal == ".":
        return strings
    return pc.replace_substring(pc.replace_substring(strings, ".", "_"), decimal, ".")


def _booleans(column: NDArray[np.object_]) -> NDArray[Any]:
    """The column as true and false, where it has only these words and none is missing."""
    if not {str(text).lower() for text in set(column)} <= BOOLEAN_WORDS.keys():
        return column
    return np.array([BOOLEAN_WORDS[text.lower()] for text in column])


# ---------------------------------------------------------------------------------------------------------------------
# Which character separates the columns, what they are called, and where the rows begin.


class _Layout(NamedTuple):
    separator: str
    names: list[str]
    n_lines: int  # that end with the names, of which quoted ones may take several
    first_row: int  # the number of the first row of values: 2, or more where other lines stand above the names


def _find_layout(source: Input, decimal: str) -> _Layout:
    path = source.name
    with source.open_text() as text:
        lines = _lines(path, text)
        above, sample = _preamble(lines)
        sample += islice(lines, _SAMPLE_LINES)
        if not "".join(sample).strip():
            what = "has comments only" if above else "is empty"
            raise TableError(f"{path} {what}. It must have a row of column names and at least one row of values.")
        if not sample[0].strip():
            raise TableError(f"{path}: row {len(above) + 1} is blank. The first row must name the columns.")
        told = _EXCEL_SEPARATOR.fullmatch(above[0]) if above else None
        candidates = (told[1],) if told and told[1] in sample[0] else _SEPARATORS
        fitness = {separator: _fitness(sample, separator, path) for separator in candidates}
        separator = max(fitness, key=lambda each: (fitness[each][0], each != decimal, *fitness[each]))
        if above and _is_header(above[-1], sample[0], separator):
            name, found, rest = above.pop().partition(separator)
            sample.insert(0, (name.lstrip("#").lstrip() or name) + found + rest)
        row = len(above) + 1
        rows = csv.reader(chain(sample, lines), delimiter=separator, skipinitialspace=True, strict=True)
        try:
            names = [name.strip() for name in next(rows)]
        except csv.Error as error:
            raise TableError(f"{path}: row {row} can't be split into columns ({error}). Check its quotes.") from error
    width = fitness[separator][2]
    if len(names) == 1 < width:
        raise TableError(
            f"{path}: row {row} must name the columns; it has a single name, {quote(names[0])}, above rows of {width} "
            f"fields (separator {separator!r}). Remove what stands above the column names, or begin it with #."
        )
    _check_names(path, row, names)
    return _Layout(separator, names, len(above) + rows.line_num, row + 1)


def _lines(path: str, text: Iterable[str]) -> Iterator[str]:
    """The lines; TableError at the first that is not UTF-8 text."""
    for number, line in enumerate(text, 1):
        if wrong := _NOT_TEXT.search(line):
            raise TableError(
                f"{path} is not UTF-8 text: line {number} has the byte 0x{ord(wrong[0]) & 0xFF:02x}. If it is Latin-1 "
                "or UTF-16, save it as UTF-8; if it is a gzip, Parquet, NumPy or Excel file, correct its ending or "
                "save it as CSV."
            )
        yield line


def _preamble(lines: Iterator[str]) -> tuple[list[str], list[str]]:
    """The lines above the column names: Excel's "sep=;", and comments; and the first one below."""
    above: list[str] = []
    for line in lines:
        if not line.startswith("#") and not (not above and _EXCEL_SEPARATOR.fullmatch(line)):
            return above, [line]
        above.append(line)
    return above, []


def _is_header(comment: str, below: str, separator: str) -> bool:
    """Whether the last comment holds the column names, as in "#id,age" or what numpy.savetxt writes."""
    names, first = csv.reader([comment, below], delimiter=separator)
    if not comment.startswith("#") or len(names) != len(first) or len(first) < 2:
        return False
    return comment[1:2] != " " or all(map(is_number, first))


def _fitness(lines: list[str], separator: str, path: str) -> tuple[bool, int, int, bool]:
    """How well a separator splits the first rows: evenly, into many columns, as the file's name says."""
    widths: list[int] = []
    with suppress(csv.Error):
        widths.extend(len(row) for row in csv.reader(lines, delimiter=separator, skipinitialspace=True) if row)
    if len(lines) > _SAMPLE_LINES and len(widths) > 1:
        widths.pop()  # the last row may be cut
    usual = "\t" if path.lower().removesuffix(".gz").endswith(".tsv") else ","
    first, most = (widths[0], max(widths)) if widths else (0, 0)
    return 1 < min(widths, default=0) == most, first, most, most <= 1 and separator == usual


def _check_names(path: str, row: int, names: list[str]) -> None:
    if "" in names:
        position = names.index("") + 1
        hint = "; pandas leaves out its row numbers with to_csv(..., index=False)" if position == 1 else ""
        raise TableError(
            f"{path}: column {position} of {len(names)} has no name in row {row}. Name it or remove it{hint}."
        )
    numbered = names == [str(number) for number in range(len(names))]  # as pandas names them
    if all(map(is_number, names)) and not numbered:
        raise TableError(
            f"{path}: row {row} must name the columns; it has only numbers, the first is {quote(names[0])}. Add a row "
            "of column names at the top."
        )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise TableError(f"{path}: row {row} repeats the column name {listed(repeated)}. Rename the columns.")


def _about_width(row: list[str], number: int, layout: _Layout) -> str:
    expected, separator = len(layout.names), layout.separator
    if row[0].startswith("#"):
        return f"row {number} is a comment, which may stand above the column names only. Remove it."
    return (
        f"row {number} has {counted(len(row), 'field')} where row {layout.first_row - 1} has "
        f"{counted(expected, 'name')} (separator {separator!r}). Use one separator throughout, quote fields that "
        "contain it, and give every row as many fields as there are names."
    )
