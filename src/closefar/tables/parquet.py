"""Reading Parquet with pyarrow, one column at a time."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.tables.errors import TableError, argument, listed, quoted
from closefar.tables.values import text_column, to_text

__all__ = ["ParquetFile"]

_TEXT_TYPES = ("string", "large_string", "string_view")
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # pandas' row numbers, which nobody measured


class ParquetFile:
    """A Parquet file; its columns are read when they are asked for."""

    first_column_may_be_ids = True

    def __init__(self, path: str) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            raise ImportError(f"Reading {path} needs pyarrow: run pip install 'closefar[parquet]'.") from error
        self.path = path
        self._arrow_error = pyarrow.ArrowException
        try:
            self._file = parquet.ParquetFile(path)
            schema = self._file.schema_arrow
        except (pyarrow.ArrowException, OSError) as error:
            raise TableError(f"{path} is not a Parquet file, or it is damaged. Write it again.") from error
        self.names = [name for name in schema.names if not _PANDAS_INDEX.fullmatch(name)]
        repeated = sorted({name for name in self.names if self.names.count(name) > 1})
        if repeated or not all(self.names):
            raise TableError(
                f"{path}: each column must have a name of its own; got {listed(schema.names)}. Rename them."
            )
        if not self.names or self._file.metadata.num_rows == 0:
            raise TableError(f"{path} has {len(self.names)} columns and no rows. Add at least one row of values.")

    def read(self, only: Collection[str], as_text: Collection[str]) -> dict[str, NDArray[Any]]:
        """Read these columns; those `as_text` become text, 17 as "17"."""
        return {name: self._read_column(name, as_text=name in as_text) for name in self.names if name in only}

    def _read_column(self, name: str, *, as_text: bool) -> NDArray[Any]:
        try:
            column = self._file.read(columns=[name]).column(name)
            return _converted(column, as_text=as_text)
        except (self._arrow_error, OSError) as error:
            raise TableError(f"{self.path} is damaged: column {quoted(name)} can't be read. Write it again.") from error
        except TypeError as error:
            raise TableError(
                f"{self.path}: column {quoted(name)} holds neither numbers nor text: {error}. "
                f"Turn it into one of these, or leave it out with --drop {argument(name)}."
            ) from error


def _converted(column: Any, *, as_text: bool) -> NDArray[Any]:
    """A column of pyarrow as one of the kinds of `closefar.tables.values`."""
    import pyarrow

    types = pyarrow.types
    if types.is_dictionary(column.type):
        column = pyarrow.chunked_array(
            [chunk.dictionary_decode() for chunk in column.chunks], type=column.type.value_type
        )
    kind = column.type
    if str(kind) in _TEXT_TYPES:
        return text_column(column.to_pylist())
    if types.is_boolean(kind):
        if as_text or column.null_count:
            return text_column(None if value is None else str(value) for value in column.to_pylist())
        return np.asarray(column.to_numpy())
    if types.is_integer(kind) and as_text:
        return text_column(column.cast(pyarrow.string()).to_pylist())
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
        numbers = np.asarray(column.cast(pyarrow.float64(), safe=False).to_numpy(), dtype=np.float64)
        return to_text(numbers) if as_text else numbers
    if types.is_date(kind) or types.is_timestamp(kind):
        dates = np.asarray(column.to_numpy(), dtype="datetime64")
        return to_text(dates) if as_text else dates
    raise TypeError(f"its type is {kind}")
