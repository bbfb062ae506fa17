"""Reading CSV and its kin: a chunk of rows at a time becomes arrays, so the text is never held whole."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice, repeat
from operator import contains
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.errors import TableError
from closefar.tables.text_files import find_layout, open_lines, records
from closefar.tables.values import BOOLEAN_WORDS, MISSING_WORDS, numbers_from, text_column

__all__ = ["DelimitedFile"]

_CHUNK_ROWS = 50_000
_CHUNK_CELLS = 500_000
_FEWEST_ROWS = 200  # fewer rows of very many columns would cost more for the columns than for the cells
_FIRST_ROW = 2


class DelimitedFile:
    """A text file with a row of column names; its rows are read when they are asked for."""

    first_column_may_be_ids = True

    def __init__(self, path: str) -> None:
        self.path = path
        self._separator, self.names = find_layout(path)
        self._chunk_rows = min(_CHUNK_ROWS, max(_FEWEST_ROWS, _CHUNK_CELLS // len(self.names)))

    def read(self, only: Collection[str], as_text: Collection[str]) -> dict[str, NDArray[Any]]:
        """Read these columns; those `as_text` stay as they are written, also where they hold numbers."""
        only, as_text = set(only), set(as_text)
        columns = {name: _Column(stays_text=name in as_text) for name in self.names if name in only}
        with open_lines(self.path) as file:
            next(records(file, self._separator))
            n_rows = 0
            while lines := list(islice(file, self._chunk_rows)):
                n_rows += self._read_chunk(lines, file, _FIRST_ROW + n_rows, columns)
        if n_rows == 0:
            raise TableError(f"{self.path} has column names but no rows. Add at least one row of values.")
        lost = [name for name, column in columns.items() if column.has_lost_text]
        again = self.read(lost, lost) if lost else {}
        return {name: again[name] if name in again else column.joined() for name, column in columns.items()}

    def _read_chunk(self, lines: list[str], file: TextIO, first_row: int, columns: dict[str, _Column]) -> int:
        if any(map(contains, lines, repeat("\0"))):
            raise TableError(f"{self.path} has NUL characters after row {first_row}: it is damaged. Make it again.")
        table = self._parse_plain(lines, columns)
        if table is not None:
            for position, name in enumerate(self.names):
                if name in columns:
                    cells = table[_field(position)]
                    columns[name].add(cells if cells.dtype.kind == "f" else cells.tolist())
            return len(table)
        # A quoted field may span lines: then the rows of this chunk take lines beyond it, all of the last row's.
        rows = self._parse_any(chain(lines, file), len(lines), first_row)
        cells_of = dict(zip(self.names, zip(*self._filled(rows, file, first_row), strict=True), strict=False))
        for name, column in columns.items():
            column.add(cells_of.get(name, ()))
        return len(next(iter(cells_of.values()), ()))

    def _parse_plain(self, lines: list[str], columns: dict[str, _Column]) -> NDArray[Any] | None:
        """The rows by NumPy's own parser, some times faster; None where they are not all plain.

        Plain: no quotes, no blank lines, as many fields as names, and only numbers where
        there were only numbers before.
        """
        if not lines[0].strip() or any(map(contains, lines, repeat('"'))):
            return None
        kinds = [(columns[name].plain_kind if name in columns else "U1") for name in self.names]
        layout = [(_field(position), kind) for position, kind in enumerate(kinds)]
        try:
            table = np.loadtxt(lines, dtype=layout, delimiter=self._separator, comments=None, ndmin=1)
        except ValueError:
            return None
        return table if len(table) == len(lines) else None

    def _parse_any(self, lines: Iterator[str], most: int, first_row: int) -> list[list[str]]:
        rows: list[list[str]] = []
        try:
            rows.extend(islice(records(lines, self._separator), most))
        except csv.Error as error:
            raise TableError(
                f"{self.path}: row {first_row + len(rows)} can't be split into columns ({error}). "
                "Check that each quote is closed."
            ) from error
        return rows

    def _filled(self, rows: list[list[str]], file: TextIO, first_row: int) -> list[list[str]]:
        """The rows without blank lines at the end of the file; others must have a field for each name."""
        expected = len(self.names)
        if set(map(len, rows)) == {expected}:
            return rows
        position = next(position for position, row in enumerate(rows) if len(row) != expected)
        if not _is_blank(rows[position]):
            raise TableError(self._ragged(rows[position], first_row + position))
        if not all(map(_is_blank, rows[position:])) or any(line.strip() for line in file):
            raise TableError(f"{self.path}: row {first_row + position} is blank, and rows follow. Remove it.")
        return rows[:position]

    def _ragged(self, row: list[str], number: int) -> str:
        expected, separator = len(self.names), self._separator
        others = [
            other for other in ",;\t|" if other != separator and len(separator.join(row).split(other)) == expected
        ]
        advice = (
            f"It looks separated by {others[0]!r}: use one separator throughout."
            if others
            else f"Put a field that holds {separator!r} in quotes, and give every row as many fields as names."
        )
        found = "1 field" if len(row) == 1 else f"{len(row)} fields"
        rule = f"row {number} has {found} where row 1 has {expected} names"
        return f"{self.path}: {rule} (separator {separator!r}). {advice}"


class _Column:
    """One column, chunk by chunk: numbers until the first chunk that has other text."""

    def __init__(self, *, stays_text: bool) -> None:
        self._stays_text = self._is_text = stays_text
        self._lacks_values = False
        self._numbers = _Growing()
        self._texts: list[NDArray[np.object_]] = []
        self.has_lost_text = False  # an earlier chunk became numbers, so the file must be read again as text

    @property
    def plain_kind(self) -> str:
        return "O" if self._is_text or self._lacks_values else "f8"

    def add(self, cells: FloatArray | Sequence[str]) -> None:
        numbers = cells if isinstance(cells, np.ndarray) else None if self._is_text else numbers_from(cells)
        if numbers is not None:
            self._lacks_values |= bool(np.any(np.isnan(numbers)))
            self._numbers.add(numbers)
            return
        if not self._is_text:
            before = self._numbers.joined()
            self.has_lost_text = not np.all(np.isnan(before))
            self._texts = [np.full(len(before), None)]
            self._is_text = True
        if not self.has_lost_text:
            self._texts.append(text_column(cells, MISSING_WORDS))

    def joined(self) -> NDArray[Any]:
        if not self._is_text:
            return self._numbers.joined()
        column = np.concatenate(self._texts)
        return column if self._stays_text else _booleans(column)


class _Growing:
    """Numbers that grow in place, so that they are never held twice."""

    def __init__(self) -> None:
        self._values: FloatArray = np.empty(0)
        self._length = 0

    def add(self, numbers: FloatArray) -> None:
        end = self._length + len(numbers)
        if end > len(self._values):
            self._values.resize(max(end, len(self._values) * 9 // 8), refcheck=False)
        self._values[self._length : end] = numbers
        self._length = end

    def joined(self) -> FloatArray:
        self._values.resize(self._length, refcheck=False)
        return self._values


def _booleans(column: NDArray[np.object_]) -> NDArray[Any]:
    """The column as true and false, where it has only these words and none is missing."""
    known = {text: BOOLEAN_WORDS.get(text.lower()) if text else None for text in set(column)}
    if None in known.values():
        return column
    return np.fromiter(map(known.__getitem__, column), dtype=bool, count=len(column))


def _field(position: int) -> str:
    return f"f{position}"


def _is_blank(row: list[str]) -> bool:
    return len(row) <= 1 and not "".join(row).strip()
