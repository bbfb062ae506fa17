"""Reading CSV and its kin: a block of rows at a time becomes arrays, so the text is never held whole."""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.arrow import (
    array_of_numbers,
    as_numbers,
    chained,
    exact_integers,
    has_text,
    load_arrow,
    parts_of,
    shared_texts,
    trimmed,
)
from closefar.tables.csv_blocks import Types, read_blocks
from closefar.tables.errors import Place, TableError
from closefar.tables.inputs import Input
from closefar.tables.layout import Layout, find_layout
from closefar.tables.text_files import open_bytes
from closefar.tables.values import BOOLEAN_WORDS, MissingValues

_SPARE = 1.1  # memory that is not used is not taken either


class DelimitedFile:
    """A text file with a row of column names; its rows are read when they are asked for."""

    first_column_may_be_ids = True

    def __init__(self, source: Input, missing: MissingValues) -> None:
        self.path = source.name
        self._source, self.missing = source, missing
        self._arrow = load_arrow(self.path)
        with open_bytes(source) as file:
            self._layout = find_layout(self.path, file)
        self.names = self._layout.names
        self.place = Place(self.path, first_row=self._layout.first_row)

    def read(self, only: Collection[str], as_text: Collection[str], as_ids: Collection[str] = ()) -> dict[str, Any]:
        """Read these columns; those `as_text` stay as they are written, and those `as_ids` stay pyarrow's too."""
        as_ids = set(as_ids)
        columns = self._columns(only, as_text, as_ids)
        n_rows = sum(self._blocks(columns))
        self._require_rows(n_rows)
        lost = [self.names[position] for position, column in columns.items() if column.has_lost_text]
        again = self.read(lost, lost) if lost else {}
        self._arrow.default_memory_pool().release_unused()
        found: dict[str, Any] = {}
        for position in list(columns):
            name, column = self.names[position], columns.pop(position)  # what is joined needs no blocks any more
            if name not in lost:
                found[name] = column.ids() if name in as_ids else column.joined()
        return {name: found[name] if name in found else again[name] for name in self.names if name in only}

    def tables(self, only: Collection[str], as_text: Collection[str]) -> Iterator[Any]:
        """Give tables of pyarrow: numbers, or trimmed strings in those `as_text` and where the first rows have text.

        None for a block where an earlier one became numbers in a column that has text: `LostTextError` names those
        columns at the end, which have to be read as text.
        """
        columns = self._columns(only, as_text, ())
        n_rows = 0
        for n_block in self._blocks(columns):
            n_rows += n_block
            drained = {self.names[position]: column.drained() for position, column in columns.items()}
            yield None if None in drained.values() else self._arrow.table(drained)
        self._require_rows(n_rows)
        lost = [self.names[position] for position, column in columns.items() if column.has_lost_text]
        if lost:
            raise LostTextError(lost)

    def _columns(self, only: Collection[str], as_text: Collection[str], as_ids: Collection[str]) -> dict[int, _Column]:
        """The columns to read, by position, with what their first rows tell."""
        wanted, texts, ids = set(only), set(as_text), set(as_ids)
        columns = {
            position: _Column(self.missing, stays_text=name in texts, is_id=name in ids)
            for position, name in enumerate(self.names)
            if name in wanted
        }
        for row in self._layout.sample:
            for position, column in columns.items():
                column.expect(row[position])
        return columns

    def _blocks(self, columns: Mapping[int, _Column]) -> Iterator[int]:
        """Add one block after another to the columns; gives the number of rows of each."""

        def types() -> Types:
            return {position: self._arrow.type_for_alias(column.type) for position, column in columns.items()}

        words = sorted(self.missing.words - self.missing.signs)
        with open_bytes(self._source) as file:
            n_expected = _n_expected(file, self._layout)
            for table in read_blocks(self.path, file, self._layout, types, words):
                for position, column in columns.items():
                    column.add(table.column(str(position)), n_expected)
                yield len(table)

    def _require_rows(self, n_rows: int) -> None:
        if n_rows == 0:
            raise TableError(f"{self.path} has column names but no rows. Add at least one row of values.")


class LostTextError(Exception):
    """Columns have text after blocks that were read as numbers."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        super().__init__(names)


class _Column:
    """One column, block by block: numbers until the first block that has other text."""

    def __init__(self, missing: MissingValues, *, stays_text: bool, is_id: bool) -> None:
        self._missing = missing
        self._stays_text, self._is_id = stays_text, is_id
        self._is_text = stays_text or is_id
        self._are_integers = is_id  # so far
        self._has_odd_numbers = False  # that only Python can read
        self._numbers: FloatArray = np.empty(0)
        self._n_numbers = 0
        self._was_drained = False
        self._texts: list[Any] = []
        self.has_lost_text = False  # an earlier block became numbers, so the file must be read again as text

    @property
    def type(self) -> str:
        """What pyarrow should read it as."""
        return "string" if self._is_text or self._has_odd_numbers else "double"

    def expect(self, cell: str) -> None:
        """Learn from a cell of the first rows: a column with text in one is read as text at once."""
        self._is_text |= self._missing.numbers_from([cell]) is None

    def add(self, values: Any, n_expected: int) -> None:
        """Add the values of a block, numbers or strings of pyarrow; so many values are expected in all."""
        if str(values.type) == "double":
            self._add_numbers(parts_of(values, np.float64, np.nan), n_expected)
            return
        if not self._is_text:
            numbers = self._numbers_in(values)
            if numbers is not None:
                self._add_numbers([numbers], n_expected)
                return
            self.has_lost_text = self._n_numbers > 0 or self._was_drained
            self._is_text = True
        if self._is_id:
            self._add_ids(values)
        elif not self.has_lost_text:
            self._texts.append(values)

    def _add_numbers(self, parts: list[FloatArray], n_expected: int) -> None:
        """Add numbers to those of earlier blocks while they are in cache."""
        start = self._n_numbers
        self._n_numbers += sum(map(len, parts))
        if self._n_numbers > len(self._numbers):
            longer = np.empty(max(self._n_numbers, n_expected, 2 * len(self._numbers)))
            longer[:start] = self._numbers[:start]
            self._numbers = longer
        for part in parts:
            self._numbers[start : start + len(part)] = self._missing.in_numbers(part)
            start += len(part)

    def _add_ids(self, values: Any) -> None:
        """Add ids: as integers as long as all are, else as strings."""
        integers = exact_integers(values) if self._are_integers else None
        if self._are_integers and integers is None:
            self._texts = [earlier.cast(values.type) for earlier in self._texts]
            self._are_integers = False
        self._texts.append(values if integers is None else integers)

    def _numbers_in(self, values: Any) -> FloatArray | None:
        """The numbers in strings; None where one is neither a number nor missing."""
        numbers = as_numbers(values)
        if numbers is None:
            self._has_odd_numbers = True
            words = trimmed(values, self._missing.words)
            numbers = as_numbers(words)
            if numbers is None:
                return self._missing.numbers_from(words.to_pylist())
        return numbers

    def joined(self) -> NDArray[Any]:
        """All values as a column of one of the kinds of `closefar.tables.values`."""
        if not self._is_text:
            return self._numbers[: self._n_numbers]
        texts = shared_texts(self.ids())
        return texts if self._stays_text else _booleans(texts)

    def drained(self) -> Any:
        """What was added since the last time, as pyarrow has it; None where text was lost."""
        if self.has_lost_text:
            return None
        self._was_drained = True
        if self._is_text:
            texts, self._texts = self._texts, []
            return trimmed(chained(texts), self._missing.words - self._missing.signs)
        numbers, self._n_numbers = self._numbers[: self._n_numbers].copy(), 0
        return array_of_numbers(numbers)

    def ids(self) -> Any:
        """All values as strings of pyarrow, or integers, null where one is missing."""
        if self._are_integers:
            return chained(self._texts)
        texts = trimmed(chained(self._texts), self._missing.words - self._missing.signs)
        return texts if has_text(texts, "+") else trimmed(texts, self._missing.signs)


def _n_expected(file: BinaryIO, layout: Layout) -> int:
    """About how many rows there are, judged by the first ones; 0 where the size of the file is not known."""
    size = os.fstat(file.fileno()).st_size if isinstance(file, io.BufferedReader) else 0
    sampled = sum(sum(map(len, row)) + len(row) for row in layout.sample)
    return int(_SPARE * len(layout.sample) * size / sampled) if sampled else 0


def _booleans(column: NDArray[np.object_]) -> NDArray[Any]:
    """The column as true and false, where it has only these words and none is missing."""
    known = {text: BOOLEAN_WORDS.get(text.lower()) if text else None for text in set(column)}
    if None in known.values():
        return column
    return np.fromiter(map(known.__getitem__, column), dtype=bool, count=len(column))
