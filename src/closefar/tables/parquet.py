"""Reading Parquet with pyarrow: a file, or a folder of them, whole columns or some rows at a time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from closefar.tables.arrow import decoded, load_arrow, numbers_of, shared_texts, texts_of
from closefar.tables.errors import Place, TableError, listed, not_a_column, too_large, without_values
from closefar.tables.ids import as_id_column
from closefar.tables.inputs import Input, Unchanged
from closefar.tables.values import MissingValues

_PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # pandas' row numbers, which nobody measured
_PAGE_BYTES = 1 << 16  # read at a time, so that a row group is never in memory as a whole


class ParquetFile:
    """A Parquet file, or the files of a folder below each other; its columns are read when they are asked for."""

    first_column_may_be_ids = True

    def __init__(self, source: Input, missing: MissingValues, place: Place | None = None) -> None:
        self.path = source.name if place is None else place.path
        self.place = Place(self.path, first_row=0) if place is None else place
        self._missing = missing
        self._parts = source.parts()
        self._unchanged = Unchanged(self._parts)
        self._schema, self._groups = self._look()
        self.names = [name for name in self._schema.names if not _PANDAS_INDEX.fullmatch(name)]
        repeated = sorted({name for name in self.names if self.names.count(name) > 1})
        if repeated or not all(self.names):
            raise TableError(
                f"{self.path}: every column must have a unique name; got {listed(self._schema.names)}. Rename them."
            )
        if not self.names or self.n_rows == 0:
            raise without_values(self.path, len(self.names))

    @property
    def _arrow(self) -> Any:
        return load_arrow(self.path)

    @property
    def n_rows(self) -> int:
        return sum(n_rows for _, _, n_rows in self._groups)

    @property
    def starts(self) -> NDArray[np.int64]:
        """The number of the first row of each row group."""
        return np.cumsum([0, *(n_rows for _, _, n_rows in self._groups)])[:-1]

    def read(self, only: Collection[str], as_text: Collection[str], as_ids: Collection[str] = ()) -> dict[str, Any]:
        """Read these columns; those `as_text` become text, 17 as "17", and those `as_ids` stay pyarrow's."""
        wanted = [name for name in self.names if name in only]
        tables: list[Any] = []
        self._unchanged.check()
        for part in self._parts:
            with self._opened(part) as file, self._readable(part, "its data is damaged"):
                groups = self._groups_of(len(tables))
                is_whole = len(groups) == file.num_row_groups
                tables.append(file.read(columns=wanted) if is_whole else file.read_row_groups(groups, columns=wanted))
        table = tables[0] if len(tables) == 1 else self._arrow.concat_tables(tables)
        columns = {name: table.column(name) for name in wanted}
        del table, tables
        return {
            name: self.converted(columns.pop(name), name, as_text=name in as_text, is_id=name in as_ids)
            for name in wanted
        }

    def batches(self, only: Sequence[str], first_group: int, n_rows: int) -> Iterator[Any]:
        """Give tables of these columns, at most `n_rows` rows each, from a row group on."""
        self._unchanged.check()
        for number, part in enumerate(self._parts):
            groups = self._groups_of(number, first_group)
            if groups:
                with self._opened(part) as file, self._readable(part, "its data is damaged"):
                    yield from file.iter_batches(n_rows, row_groups=groups, columns=list(only), use_threads=False)

    def pieces(self, most_rows: int) -> list[Self]:
        """Return each file by itself, or consecutive row groups of one that has more rows; each can be read alone."""
        found: list[list[tuple[int, int, int]]] = []
        for group in self._groups:
            starts_file = not found or found[-1][0][0] != group[0]
            if starts_file or sum(n_rows for _, _, n_rows in found[-1]) + group[2] > most_rows:
                found.append([])
            found[-1].append(group)
        return [self._piece(groups) for groups in found]

    def _piece(self, groups: list[tuple[int, int, int]]) -> Self:
        number, first, _ = groups[0]
        piece, part = copy(self), self._parts[number]
        is_whole = len(groups) == len(self._groups_of(number))
        piece.path = part.name if is_whole else f"{part.name}, from row group {first} on"
        piece.place = Place(piece.path, first_row=0)
        piece._parts, piece._unchanged = [part], self._unchanged.only(part)
        piece._groups = [(0, group, n_rows) for _, group, n_rows in groups]
        return piece

    def _groups_of(self, number: int, first: int = 0) -> list[int]:
        """The row groups of one of the files."""
        return [group for of, group, _ in self._groups[first:] if of == number]

    def number_type(self, name: str) -> np.dtype[Any] | None:
        """The type of a column of plain numbers, none of which stands for a missing value; None for any other."""
        types, kind = self._arrow.types, self._schema.field(name).type
        is_plain = types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind)
        return np.dtype(kind.to_pandas_dtype()) if is_plain and not self._missing.has_numbers else None

    def release_memory(self) -> None:
        """Return what pyarrow keeps for columns that were read as a whole."""
        self._arrow.default_memory_pool().release_unused()

    def close(self) -> None:
        """Nothing is open between passes."""

    def converted(self, column: Any, name: str, *, as_text: bool, is_id: bool = False) -> Any:
        """Values of pyarrow as a column of one of the kinds of `closefar.tables.values`, or as ids."""
        missing = self._missing_in(name)
        try:
            return as_id_column(column, missing.words) if is_id else self._values(column, missing, as_text=as_text)
        except TypeError as error:
            raise not_a_column(self.path, name, error, is_id=is_id) from error

    def _missing_in(self, name: str) -> MissingValues:
        return self._missing

    def _look(self) -> tuple[Any, list[tuple[int, int, int]]]:
        """The columns, which all parts must have, and the row groups: the number of the part, its own, and its rows."""
        schema: Any = None
        groups: list[tuple[int, int, int]] = []
        for number, part in enumerate(self._parts):
            with self._opened(part) as file:
                own, metadata = file.schema_arrow.remove_metadata(), file.metadata
            groups += [(number, group, metadata.row_group(group).num_rows) for group in range(metadata.num_row_groups)]
            schema = own if schema is None else schema
            if own != schema:
                raise TableError(
                    f"{self.path}: all files must have the same columns, of the same types; {part.name} has "
                    f"{listed(f'{field.name} ({field.type})' for field in own)}, and {self._parts[0].name} "
                    f"{listed(f'{field.name} ({field.type})' for field in schema)}. Write them again with one schema."
                )
        return schema, groups

    @contextmanager
    def _opened(self, part: Input) -> Iterator[Any]:
        open_file, trouble = self._arrow.parquet.ParquetFile, "it is not a Parquet file, or it is damaged"
        if part.is_stream:
            with part.open() as file, self._readable(part, trouble):
                yield open_file(file)
            return
        with self._readable(part, trouble), open_file(part.name, pre_buffer=False, buffer_size=_PAGE_BYTES) as opened:
            yield opened

    @contextmanager
    def _readable(self, part: Input, trouble: str) -> Iterator[None]:
        try:
            yield
        except MemoryError as error:  # of pyarrow too
            raise too_large(self.path) from error
        except (self._arrow.ArrowException, OSError) as error:
            if isinstance(error, TableError):
                raise
            raise TableError(f"{part.name} can't be read: {trouble}. Write it again.") from error

    def _values(self, column: Any, missing: MissingValues, *, as_text: bool) -> NDArray[Any]:
        types = self._arrow.types
        column = decoded(column if hasattr(column, "chunks") else self._arrow.chunked_array([column]))
        if types.is_string(column.type):
            return shared_texts(column, missing.words)
        if types.is_boolean(column.type) and not as_text and not column.null_count:
            return np.asarray(column.to_numpy())
        if as_text or types.is_boolean(column.type):
            return missing.in_column(texts_of(column))
        return missing.in_column(numbers_of(column))
