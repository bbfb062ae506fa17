"""The kinds of values that a column holds: numbers, true or false, text, dates; what is missing; and ids.

A column is a 1-D array: float64 (NaN is missing), bool, object with text (None is missing), or
datetime64 (NaT is missing).  True and false with missing values among them stay text.
pyarrow reads the files.  Ids stay as it has them, are matched exactly, and are turned into text only to be shown.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.errors import setting
from closefar.tables.errors import Place, TableError, quote

MISSING_WORDS = ("", "#N/A", "<NA>", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None")
BOOLEAN_WORDS = {"true": True, "false": False}

UNKNOWN_CODE = -2  # of a text that is not among the known values; -1 is that of a missing one
_LARGEST_WHOLE = 2.0**53  # above it not every whole number is a float64


class _LateModule:
    """A module that is imported when something in it is used: pyarrow takes its time, and is an extra."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(import_module(self._name), name)
        except ImportError as error:
            raise ImportError("Text and Parquet files need pyarrow: run pip install 'closefar[parquet]'.") from error


pa: Any = _LateModule("pyarrow")
pa_csv: Any = _LateModule("pyarrow.csv")
pc: Any = _LateModule("pyarrow.compute")
pq: Any = _LateModule("pyarrow.parquet")


def release_memory() -> None:
    """Give the memory that pyarrow no longer uses, but keeps, back to the system."""
    if "pyarrow" in sys.modules:
        pa.default_memory_pool().release_unused()


@dataclass(frozen=True)
class MissingValues:
    """The words that stand for a missing value; those that are numbers stand for it among numbers as well."""

    words: frozenset[str] = frozenset([""])

    @classmethod
    def of(cls, given: Iterable[str], *, in_text_file: bool) -> MissingValues:
        """The words that were given beside the usual ones; other formats than text have missing values of their own."""
        return cls(frozenset(map(str.strip, given)).union(MISSING_WORDS if in_text_file else [""]))

    @cached_property
    def numbers(self) -> list[float]:
        """The numbers that stand for a missing value, as NaN does anyway."""
        return [number for number in map(float, filter(is_number, self.words)) if number == number]

    def in_column(self, column: NDArray[Any]) -> NDArray[Any]:
        """A column of text or numbers, without the values that stand for a missing one."""
        if column.dtype.kind == "O":
            return np.where(text_codes(column, [*self.words]) == UNKNOWN_CODE, column, np.array(None))
        if column.dtype.kind == "f" and self.numbers:
            return np.where(np.isin(column, self.numbers), np.nan, column)
        return column

    def numbers_from(self, cells: Sequence[str | None]) -> FloatArray | None:
        """The numbers in a text file's cells, missing ones as NaN; None where a cell is neither."""
        words = ["" if cell is None else cell.strip() for cell in cells]
        try:
            numbers = np.array(["nan" if word in self.words else word for word in words], dtype=np.float64)
        except ValueError:
            return None
        # Python reads 2024_01 as a number, which no table means.
        return None if "_" in "".join(words) else self.in_column(numbers)


def is_number(text: str) -> bool:
    """Whether a text is a number, as Python reads it, but for 1_000."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def text_column(texts: Iterable[str | None]) -> NDArray[np.object_]:
    """A column of stripped text, with None for what is missing; equal texts share one object."""
    shared: dict[str | None, str | None] = {None: None, "": None}
    stripped = [None if text is None else text.strip() for text in texts]
    column = np.empty(len(stripped), dtype=object)
    column[:] = list(map(shared.setdefault, stripped, stripped))
    return column


def are_finite(column: NDArray[Any]) -> bool:
    """Whether a column holds finite numbers only, as far as their sum tells."""
    with np.errstate(all="ignore"):
        return column.dtype.kind == "f" and bool(np.isfinite(column.sum()))


def are_missing(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values of a column are missing."""
    missing = column == np.array(None) if column.dtype.kind == "O" else column != column  # NaN and NaT alone differ
    return np.asarray(missing, dtype=bool)


def standard_column(values: Any) -> NDArray[Any]:
    """A 1-D array as a column of one of the kinds above; TypeError for what is none of them."""
    column: NDArray[Any] = np.asarray(values)
    kind = column.dtype.kind
    if kind in "iuf":
        return column.astype(np.float64, copy=False)
    if kind == "S":
        return text_column(np.char.decode(column, "utf-8").tolist())
    if kind == "U":
        return text_column(column.tolist())
    if kind in "bM" or (kind == "O" and set(map(type, column)) <= {str, type(None)}):
        return column
    raise TypeError(f"its values are of the type {column.dtype}")


def to_text(column: NDArray[Any]) -> NDArray[np.object_]:
    """Any array as a column of text: 17 as "17", also where it is stored as 17.0."""
    kind = column.dtype.kind
    if kind == "O":
        return column
    text = np.empty(len(column), dtype=object)
    if kind == "f":
        whole = (np.floor(column) == column) & (np.abs(column) <= _LARGEST_WHOLE)
        rest = ~whole & ~np.isnan(column)
        text[whole] = list(map(str, column[whole].astype(np.int64).tolist()))
        text[rest] = list(map(repr, column[rest].tolist()))
        return text
    if kind in "US":
        return standard_column(column)
    text[:] = list(map(str, column.tolist())) if kind in "biu" else np.datetime_as_string(column)
    text[are_missing(column)] = None
    return text


def distinct(column: NDArray[np.object_]) -> list[str]:
    """The different texts of a column, in order: as numbers where all are, else as text."""
    texts = set(column) - {None}
    return sorted(texts, key=lambda text: (float(text), text)) if all(map(is_number, texts)) else sorted(texts)


def text_codes(column: NDArray[np.object_], values: Sequence[str]) -> NDArray[np.int64]:
    """The position of each text among the values; -1 for a missing one, and UNKNOWN_CODE if it is not among them."""
    positions: dict[str | None, int] = {**{value: code for code, value in enumerate(values)}, None: -1}
    return np.fromiter(map(positions.get, column, repeat(UNKNOWN_CODE)), dtype=np.int64, count=len(column))


# ---------------------------------------------------------------------------------------------------------------------
# Columns of pyarrow, always in chunks.  `pyarrow.array` and `to_numpy` would import pandas, which takes longer than to
# read most files.


def column_of(stored: Any, missing: MissingValues, *, as_text: bool) -> NDArray[Any]:
    """What a file stores, in pyarrow or NumPy, as a column of one of the kinds above; TypeError for anything else.

    With `as_text`, 17 is "17", also where it is stored as 17.0 or 17.00, with all its digits.
    """
    if isinstance(stored, np.ndarray):
        column = to_text(stored) if as_text else standard_column(stored)
        return np.array(missing.in_column(column))  # a copy, because the file may change
    stored = chunked(stored)
    is_boolean = pa.types.is_boolean(stored.type)
    if pa.types.is_string(stored.type):
        return shared_texts(stored, missing.words)
    if is_boolean and not as_text and not stored.null_count:
        return np.asarray(stored.to_numpy())
    return missing.in_column(texts_of(stored) if as_text or is_boolean else _numbers_of(stored))


def chunked(column: Any) -> Any:
    """A column of pyarrow in chunks, without an encoding as a dictionary, and strings of any type as plain ones."""
    column = column if hasattr(column, "chunks") else pa.chunked_array([column])
    if pa.types.is_dictionary(column.type):
        chunks = [chunk.dictionary_decode() for chunk in column.chunks]
        column = pa.chunked_array(chunks, type=column.type.value_type)
    return column.cast(pa.string()) if str(column.type) in ("large_string", "string_view") else column


def joined_columns(columns: Sequence[Any]) -> Any:
    """These columns below each other."""
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], type=columns[0].type)


def fixed_width(chunks: Sequence[Any], dtype: Any, fill: Any) -> NDArray[Any]:
    """The numbers of arrays below each other, read-only and not copied if it is one; with `fill` in place of null."""
    parts = [np.empty(0, dtype=dtype)]
    for chunk in chunks:
        validity, content = chunk.buffers()
        numbers = np.frombuffer(content, dtype, len(chunk), chunk.offset * np.dtype(dtype).itemsize)
        if chunk.null_count:
            bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little", count=chunk.offset + len(chunk))
            numbers = np.where(bits[chunk.offset :], numbers, fill)
        parts.append(numbers)
    return parts[1] if len(parts) == 2 else np.concatenate(parts)


def _numbers_of(column: Any) -> NDArray[Any]:
    """A column of numbers as float64, with NaN for null; or of dates as datetime64.  TypeError for any other."""
    types, kind = pa.types, column.type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
        return fixed_width(column.cast(pa.float64(), safe=False).chunks, np.float64, np.nan)
    if types.is_date(kind) or types.is_timestamp(kind):
        return np.asarray(column.to_numpy(), dtype="datetime64")
    raise TypeError(f"its type is {kind}")


def texts_of(column: Any) -> NDArray[np.object_]:
    """A column of numbers, text or dates as text, None for null."""
    types, kind = pa.types, column.type
    if types.is_string(kind) or types.is_integer(kind):
        return shared_texts(column.cast(pa.string()))
    if types.is_decimal(kind):
        return text_column(None if value is None else f"{value.normalize():f}" for value in column.to_pylist())
    if types.is_boolean(kind):
        return shared_texts(pc.if_else(column, "True", "False"))
    return to_text(_numbers_of(column))


def shared_texts(column: Any, missing: Collection[str] | None = None) -> NDArray[np.object_]:
    """A column of strings as Python's, None for null; equal ones share one object.

    With words for missing values they are `trimmed` too.
    """
    encoded = column.dictionary_encode().chunks
    different = encoded[0].dictionary if encoded else string_array([])
    different = different if missing is None else trimmed(different, missing)
    values = np.array([*different.to_pylist(), None], dtype=object)
    texts: NDArray[np.object_] = values[fixed_width([chunk.indices for chunk in encoded], np.int32, len(values) - 1)]
    return texts


def trimmed(column: Any, missing: Collection[str]) -> Any:
    """A column of strings without whitespace around them, null where one of the words for missing values is left."""
    column = pc.utf8_trim_whitespace(column)
    is_missing = pc.is_in(column, value_set=string_array(sorted(missing)))
    return pc.if_else(is_missing, pa.nulls(len(column), pa.string()), column) if pc.any(is_missing).as_py() else column


def string_array(texts: Sequence[str]) -> Any:
    """An array of strings."""
    encoded = [text.encode("utf-8") for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


# ---------------------------------------------------------------------------------------------------------------------
# Ids of points and pairs: signed integers of NumPy, or 64-bit integers or strings of pyarrow.


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

    @classmethod
    def of_columns(cls, place: Place, columns: Mapping[str, Any], names: tuple[str, ...], n: int) -> Ids:
        """The ids of n rows, or of both of their sides, in the columns with these names; or the row numbers."""
        for name, option in zip(names, ("left", "right") if len(names) == 2 else ("id",), strict=len(names) > 0):
            check_ids(columns[name], name, place, option)
        if not names:
            return cls.of_rows(place, n)
        codes, different = codes_of_ids(*(columns[name] for name in names))
        return cls(different, codes[0] if len(codes) == 1 else np.stack(codes, axis=1))

    @classmethod
    def of_rows(cls, place: Place, n: int) -> Ids:
        """The number of each of n rows as in the file."""
        return cls(np.arange(place.first_row, place.first_row + n), np.arange(n))

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
        _, ranks = np.unique(id_texts(self.values), return_inverse=True)
        return np.asarray(ranks[self.index], dtype=np.int64)

    def take(self, where: NDArray[Any] | slice) -> Ids:
        """The ids of these rows."""
        return replace(self, index=self.index[where])


def ids_of(stored: Any, missing: Collection[str] = ("",)) -> Any:
    """What a file stores, in pyarrow or NumPy, as ids; TypeError as for `column_of`."""
    if isinstance(stored, np.ndarray):
        if stored.dtype.kind == "i":  # not copied, as row numbers of points are not joined
            return stored
        stored = pa.array(to_text(stored), pa.string())
    stored = chunked(stored)
    if pa.types.is_integer(stored.type) and not pa.types.is_uint64(stored.type):
        return stored.cast(pa.int64())
    if not pa.types.is_string(stored.type):
        stored = pa.chunked_array([pa.array(texts_of(stored), pa.string())])
    return trimmed(stored, missing)


def in_arrow(ids: Any) -> Any:
    """Ids as a column of pyarrow."""
    return chunked(pa.array(ids.astype(np.int64, copy=False)) if isinstance(ids, np.ndarray) else ids)


def id_texts(ids: Any) -> NDArray[np.object_]:
    """Ids as text."""
    return to_text(ids) if isinstance(ids, np.ndarray) else texts_of(chunked(ids))


def numbers_of_ids(ids: Any) -> Any:
    """Ids as an array where they are integers; None for others."""
    if isinstance(ids, np.ndarray):
        return ids
    return fixed_width(ids.chunks, np.int64, 0) if pa.types.is_int64(ids.type) else None


def codes_of_ids(*columns: Any) -> tuple[list[NDArray[np.int64]], Any]:
    """The ids of several columns by number, in the order in which they first appear, and the different ids.

    Integers are compared as such; where some columns have strings, all are.
    """
    columns = tuple(map(in_arrow, columns))
    if len({str(column.type) for column in columns}) > 1:
        columns = tuple(column.cast(pa.string()) for column in columns)
    chunks = joined_columns(columns).dictionary_encode().chunks
    codes = fixed_width([chunk.indices for chunk in chunks], np.int32, -1).astype(np.int64)
    ends = np.cumsum([len(column) for column in columns])[:-1]
    return np.split(codes, ends), chunks[0].dictionary


def check_ids(ids: Any, name: str, place: Place, option: str | None) -> None:
    """Refuse missing ids; the option, if there is one, chooses the column."""
    if not isinstance(ids, np.ndarray) and ids.null_count:
        other = ", or set " + setting(option) + " to another column." if option else "."
        place.refuse_missing("id", name, ids.is_null().to_numpy(), other)


# ---------------------------------------------------------------------------------------------------------------------
# Files of columns.


class TableFile:
    """A file whose column names are known, and whose columns can be read.

    Parameters
    ----------
    place : Place
    missing : MissingValues
    """

    first_column_may_be_ids = True  # not in a plain array, which holds nothing but numbers
    names: list[str]

    def __init__(self, place: Place, missing: MissingValues) -> None:
        self.place, self.missing = place, missing
        self.columns: dict[str, Any] = {}  # if they are in memory

    @property
    def path(self) -> str:
        """What messages call it."""
        return self.place.path

    def read(self, only: Collection[str], as_text: Collection[str], as_ids: Collection[str] = ()) -> dict[str, Any]:
        """Read these columns; those `as_text` become text, 17 as "17", and those `as_ids` ids."""
        wanted = [name for name in self.names if name in only]
        stored, found = self.stored(wanted, {*as_text, *as_ids}) if wanted else {}, {}
        for name in wanted:  # each goes when its array is made
            found[name] = self.converted(stored.pop(name), name, as_text=name in as_text, is_id=name in as_ids)
        release_memory()
        return found

    def stored(self, names: list[str], as_text: Collection[str]) -> dict[str, Any]:
        """These columns as the file stores them, in pyarrow or NumPy."""
        return {name: self.columns[name] for name in names}

    def converted(self, stored: Any, name: str, *, as_text: bool, is_id: bool = False) -> Any:
        """What is stored as a column of one of the kinds above, or as ids."""
        try:
            return ids_of(stored, self.missing.words) if is_id else column_of(stored, self.missing, as_text=as_text)
        except (TypeError, UnicodeDecodeError) as error:
            what = f"holds neither numbers nor text: {error}"
            if isinstance(error, UnicodeDecodeError):
                what = f"is not UTF-8 text: it has the byte 0x{error.object[error.start]:02x}"
            without = "" if is_id else ", or fit without it (" + setting(drop=[name]) + ")"
            raise TableError(f"{self.path}: column {quote(name)} {what}. Convert it" + without + ".") from error
