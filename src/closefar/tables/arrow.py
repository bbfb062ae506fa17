"""Columns of pyarrow, which reads the files: as arrays of NumPy, and as ids, which are matched exactly.

Ids stay as pyarrow has them, and are turned into text only to be shown.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.errors import setting
from closefar.tables.errors import Place, TableError, counted, quote
from closefar.tables.values import text_column, to_text

_FIRST = 100  # values, most of which are like the others
_STRING_TYPES = ("string", "large_string", "string_view")


class _LateModule:
    """A module that is imported when something in it is used, as pyarrow takes its time."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


pa: Any = _LateModule("pyarrow")
pc: Any = _LateModule("pyarrow.compute")


def require(path: str) -> Any:
    """Import pyarrow with what is used of it, or say how to install it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"Reading {path} needs pyarrow: run pip install 'closefar[parquet]'.") from error
    return pyarrow


def release_memory() -> None:
    """Give the memory that pyarrow no longer uses, but keeps, back to the system."""
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()


def trimmed(column: Any, missing: Collection[str]) -> Any:
    """A column of strings without whitespace around them, null where one of the words for missing values is left."""
    return without(pc.utf8_trim_whitespace(column), missing)


def without(column: Any, missing: Collection[str]) -> Any:
    """A column of strings, null in place of these."""
    is_missing = pc.is_in(column, value_set=string_array(sorted(missing)))
    return pc.if_else(is_missing, pa.nulls(len(column), pa.string()), column) if pc.any(is_missing).as_py() else column


def has_text(column: Any, text: str) -> bool:
    """Whether a column of strings has this one."""
    return bool(pc.any(pc.is_in(column, value_set=string_array([text]))).as_py())


def string_array(texts: Sequence[str]) -> Any:
    """An array of strings; pyarrow.array would import pandas, which takes longer than to read most files."""
    encoded = [text.encode("utf-8") for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def fixed_width(column: Any, dtype: Any, fill: Any) -> NDArray[Any]:
    """The numbers of a column, read-only and without a copy where it has one chunk, with something filled in for null.

    `to_numpy` would import pandas.
    """
    parts = [np.empty(0, dtype=dtype)]
    for chunk in column.chunks if hasattr(column, "chunks") else [column]:
        validity, content = chunk.buffers()
        numbers = np.frombuffer(content, dtype, len(chunk), chunk.offset * np.dtype(dtype).itemsize)
        if chunk.null_count:
            bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little", count=chunk.offset + len(chunk))
            numbers = np.where(bits[chunk.offset :], numbers, fill)
        parts.append(numbers)
    return parts[1] if len(parts) == 2 else np.concatenate(parts)


def chained(columns: Sequence[Any]) -> Any:
    """These columns below each other."""
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], type=columns[0].type)


def exact_integers(strings: Any) -> Any:
    """A column of strings as integers; None where one is none, or is written otherwise: 007 is another id than 7."""
    try:
        strings.slice(0, _FIRST).cast(pa.int64())  # as a cast that fails takes its time
        integers = strings.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    return integers if integers.cast(pa.string()).equals(strings) else None


def decoded(column: Any) -> Any:
    """A column without a dictionary, and of one type of strings."""
    if pa.types.is_dictionary(column.type):
        chunks = [chunk.dictionary_decode() for chunk in column.chunks]
        column = pa.chunked_array(chunks, type=column.type.value_type)
    return column.cast(pa.string()) if str(column.type) in _STRING_TYPES else column


def texts_of(column: Any) -> NDArray[np.object_]:
    """A column as text, None for null: 17 as "17", also where it is stored as 17.0 or 17.00, with all its digits.

    TypeError for what is neither number, text nor date.
    """
    types, kind = pa.types, column.type
    if types.is_string(kind):
        return shared_texts(column)
    if types.is_integer(kind):
        return shared_texts(column.cast(pa.string()))
    if types.is_decimal(kind):
        return text_column(None if value is None else f"{value.normalize():f}" for value in column.to_pylist())
    if types.is_boolean(kind):
        return shared_texts(pc.if_else(column, "True", "False"))
    return to_text(numbers_of(column))


def numbers_of(column: Any) -> NDArray[Any]:
    """A column of numbers as float64, with NaN for null; or of dates as datetime64.  TypeError for any other."""
    types, kind = pa.types, column.type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
        return fixed_width(column.cast(pa.float64(), safe=False), np.float64, np.nan)
    if types.is_date(kind) or types.is_timestamp(kind):
        is_chunked = hasattr(column, "chunks")
        return np.asarray(column.to_numpy(**({} if is_chunked else {"zero_copy_only": False})), dtype="datetime64")
    raise TypeError(f"its type is {kind}")


def shared_texts(column: Any, missing: Collection[str] | None = None) -> NDArray[np.object_]:
    """A column of strings as Python's, None for null; equal ones share one object.

    With words for missing values they are `trimmed` too.
    """
    encoded = column.dictionary_encode()
    chunks = encoded.chunks if hasattr(encoded, "chunks") else [encoded]
    different = chunks[0].dictionary if chunks else string_array([])
    different = different if missing is None else trimmed(different, missing)
    values = np.array([*different.to_pylist(), None], dtype=object)
    codes = [fixed_width(chunk.indices, np.int32, len(values) - 1) for chunk in chunks]
    texts: NDArray[np.object_] = values[np.concatenate(codes)] if codes else values[:0]
    return texts


# ---------------------------------------------------------------------------------------------------------------------
# Ids of points and pairs.


@dataclass(frozen=True, eq=False)
class Ids:
    """The ids of rows, or of both sides of pairs.

    Parameters
    ----------
    values : pyarrow.ChunkedArray or array of int
        Ids, each at least once.
    index : array of int, of shape (n,) or (n, 2)
        Which of them each row, or each side of a pair, has.
    """

    values: Any
    index: NDArray[np.int64]

    @cached_property
    def texts(self) -> NDArray[np.object_]:
        """The ids as text, in the shape of the index."""
        values, index = self.values, self.index
        if index.size < len(values):
            values = values.take(index.ravel())
            index = np.arange(index.size).reshape(index.shape)
        return id_texts(values)[index]

    @cached_property
    def codes(self) -> NDArray[np.int64]:
        """A number for each id, in the shape of the index: in the order of the texts, whatever that of the file is."""
        order = fixed_width(pc.array_sort_indices(_strings(self.values).combine_chunks()), np.uint64, 0).astype(
            np.int64
        )
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        return ranks[self.index]

    def take(self, where: NDArray[Any] | slice) -> Ids:
        """The ids of these rows."""
        return replace(self, index=self.index[where])


def row_numbers(place: Place, n: int) -> Ids:
    """The number of each row as in the file."""
    return Ids(np.arange(place.first, place.first + n), np.arange(n))


def as_id_column(column: Any, missing: Collection[str] = ("",)) -> Any:
    """A column of pyarrow's, or of NumPy's, as ids: strings, 64-bit integers, or other numbers as they are stored."""
    if isinstance(column, np.ndarray):
        if column.dtype.kind in "SUOM":
            column = pa.array(to_text(column), pa.string())
        else:  # pyarrow knows neither another byte order nor long doubles
            native = np.float64 if column.dtype == np.longdouble else column.dtype.newbyteorder("=")
            column = pa.array(column.astype(native, copy=False), from_pandas=True)
    column = decoded(column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column]))
    types, kind = pa.types, column.type
    if types.is_string(kind):
        return trimmed(column, missing)
    if types.is_boolean(kind):
        return pc.if_else(column, "True", "False")
    if types.is_integer(kind) and not types.is_uint64(kind):
        return column.cast(pa.int64())
    if types.is_floating(kind):
        numbers = fixed_width(column.cast(pa.float64()), np.float64, np.nan) + 0.0  # minus zero is zero
        return pa.chunked_array([pa.array(numbers, from_pandas=True)])
    return column if types.is_decimal(kind) or types.is_uint64(kind) else _strings(column)


def id_texts(ids: Any) -> NDArray[np.object_]:
    """Ids as text."""
    return to_text(ids) if isinstance(ids, np.ndarray) else texts_of(ids)


def numbers_of_ids(ids: Any) -> Any:
    """Ids as they are where they are integers of at most 64 bits with a sign; None for others."""
    if isinstance(ids, np.ndarray):
        return ids
    return fixed_width(ids, np.int64, 0) if str(ids.type) == "int64" else None


def codes_of_ids(*columns: Any) -> tuple[list[NDArray[np.int64]], Any]:
    """The ids of several columns by number, in the order in which they first appear, and the different ids.

    Numbers of one type are compared exactly; where types differ, as text.
    """
    columns = tuple(as_id_column(column) if isinstance(column, np.ndarray) else column for column in columns)
    if len({str(column.type) for column in columns}) > 1:
        columns = tuple(map(_strings, columns))
    chunks = chained(columns).dictionary_encode().chunks
    codes = np.concatenate([fixed_width(chunk.indices, np.int32, -1) for chunk in chunks]).astype(np.int64)
    ends = np.cumsum([len(column) for column in columns])[:-1]
    return np.split(codes, ends), chunks[0].dictionary


def are_among(names: Sequence[str], ids: Any) -> bool:
    """Whether all of these texts are ids."""
    return bool(pc.all(pc.is_in(string_array(names), value_set=_strings(ids).combine_chunks())).as_py())


def check_ids(ids: Any, name: str, place: Place, option: str | None) -> None:
    """Refuse missing ids; the option, if there is one, chooses the column."""
    if not isinstance(ids, np.ndarray) and ids.null_count:
        first = int(np.argmax(ids.is_null().to_numpy()))
        other = ", or set " + setting(option) + " to another column." if option else "."
        raise TableError(
            f"{place.path}: id column {quote(name)} has {counted(ids.null_count, 'missing value')}"
            f"{place.missing_words}, the first in {place.row(first)}. Fill them in" + other
        )


def ids_of_pairs(place: Place, columns: Mapping[str, Any], id_names: tuple[str, ...], n: int) -> Ids:
    """The ids of pairs or points: of both sides, or of the rows as such, or row numbers."""
    for name, option in zip(id_names, ("left", "right") if len(id_names) == 2 else ("id",), strict=len(id_names) > 0):
        check_ids(columns[name], name, place, option)
    if not id_names:
        return row_numbers(place, n)
    codes, different = codes_of_ids(*(columns[name] for name in id_names))
    return Ids(different, codes[0] if len(codes) == 1 else np.stack(codes, axis=1))


def _strings(column: Any) -> Any:
    """Ids as a column of strings."""
    if isinstance(column, np.ndarray):
        return pa.chunked_array([string_array(to_text(column).tolist())])
    if pa.types.is_string(column.type) or pa.types.is_integer(column.type):
        strings = column.cast(pa.string())
        return strings if isinstance(strings, pa.ChunkedArray) else pa.chunked_array([strings])
    if not column.null_count:
        return pa.chunked_array([string_array(texts_of(column).tolist())])
    return pa.chunked_array([pa.array(texts_of(column), pa.string())])
