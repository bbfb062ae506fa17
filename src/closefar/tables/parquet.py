"""Reading Parquet with pyarrow, one column at a time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.tables.arrow import decoded, load_arrow, numbers_of, shared_texts, texts_of
from closefar.tables.errors import Place, TableError, listed, not_a_column, too_large, without_values
from closefar.tables.ids import as_id_column
from closefar.tables.inputs import Input
from closefar.tables.values import MissingValues

__all__ = ["ParquetFile"]

_PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # pandas' row numbers, which nobody measured


class ParquetFile:
    """A Parquet file; its columns are read when they are asked for."""

    first_column_may_be_ids = True

    def __init__(self, source: Input, missing: MissingValues) -> None:
        self.path = source.name
        self.place = Place(self.path, first_row=0)
        self._source, self._missing = source, missing
        self._arrow = load_arrow(self.path)
        with self._opened() as file:
            schema, n_rows = file.schema_arrow, file.metadata.num_rows
        self.names = [name for name in schema.names if not _PANDAS_INDEX.fullmatch(name)]
        repeated = sorted({name for name in self.names if self.names.count(name) > 1})
        if repeated or not all(self.names):
            raise TableError(
                f"{self.path}: every column must have a unique name; got {listed(schema.names)}. Rename them."
            )
        if not self.names or n_rows == 0:
            raise without_values(self.path, len(self.names))

    def read(self, only: Collection[str], as_text: Collection[str], as_ids: Collection[str] = ()) -> dict[str, Any]:
        """Read these columns; those `as_text` become text, 17 as "17", and those `as_ids` stay pyarrow's."""
        wanted = [name for name in self.names if name in only]
        with self._opened() as file, self._readable("its data is damaged"):
            table = file.read(columns=wanted)
        columns = {name: table.column(name) for name in wanted}
        del table
        return {
            name: self._read_column(columns.pop(name), name, as_text=name in as_text, is_id=name in as_ids)
            for name in wanted
        }

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        with self._source.open() as file, self._readable("it is not a Parquet file, or it is damaged"):
            yield self._arrow.parquet.ParquetFile(file)

    @contextmanager
    def _readable(self, trouble: str) -> Iterator[None]:
        try:
            yield
        except MemoryError as error:  # of pyarrow too
            raise too_large(self.path) from error
        except (self._arrow.ArrowException, OSError) as error:
            if isinstance(error, TableError):
                raise
            raise TableError(f"{self.path} can't be read: {trouble}. Write it again.") from error

    def _read_column(self, column: Any, name: str, *, as_text: bool, is_id: bool) -> Any:
        try:
            return as_id_column(column, self._missing.words) if is_id else self._converted(column, as_text=as_text)
        except TypeError as error:
            raise not_a_column(self.path, name, error, is_id=is_id) from error

    def _converted(self, column: Any, *, as_text: bool) -> NDArray[Any]:
        """A column of pyarrow as one of the kinds of `closefar.tables.values`."""
        types, column = self._arrow.types, decoded(column)
        if types.is_string(column.type):
            return shared_texts(column, self._missing.words)
        if types.is_boolean(column.type) and not as_text and not column.null_count:
            return np.asarray(column.to_numpy())
        if as_text or types.is_boolean(column.type):
            return self._missing.in_column(texts_of(column))
        return self._missing.in_column(numbers_of(column))
