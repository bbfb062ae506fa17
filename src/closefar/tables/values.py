"""The kinds of values that a column holds: numbers, true or false, text, dates; and what is missing.

A column is a 1-D array: float64 (NaN is missing), bool, object with text (None is missing), or
datetime64 (NaT is missing).  True and false with missing values among them stay text.  Files are read with
pyarrow, whose columns become such arrays here; it is imported when a table is read.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray

MISSING_WORDS = ("", "-", "#N/A", "<NA>", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None")
BOOLEAN_WORDS = {"true": True, "false": False}

_LARGEST_WHOLE = 2.0**53  # above it not every whole number is a float64
_FIRST = 100  # values, most of which are like the others
_STRING_TYPES = ("string", "large_string", "string_view")


@dataclass(frozen=True)
class MissingValues:
    """The words that stand for a missing value; those that are numbers stand for it among numbers as well.

    Of them `signs` are values in a column that has "+" as well, as in + and - for positive and negative.
    """

    words: frozenset[str] = frozenset([""])
    signs: frozenset[str] = frozenset()

    @classmethod
    def of(cls, given: Iterable[str], *, in_text_file: bool) -> MissingValues:
        """The words that were given beside the usual ones; other formats than text have missing values of their own."""
        own = frozenset(map(str.strip, given))
        if not in_text_file:
            return cls(own | {""})
        return cls(own.union(MISSING_WORDS), frozenset("-") - own)

    @cached_property
    def without_signs(self) -> MissingValues:
        """The same in a column that has "+" as well."""
        return MissingValues(self.words - self.signs)

    @cached_property
    def _numbers(self) -> list[float]:
        return [
            number for number in map(float, filter(is_number, self.words)) if number == number
        ]  # NaN is missing anyway

    @property
    def has_numbers(self) -> bool:
        """Whether a number stands for a missing value."""
        return bool(self._numbers)

    def in_numbers(self, numbers: FloatArray) -> FloatArray:
        """The numbers, with NaN for those that stand for a missing value."""
        return np.where(np.isin(numbers, self._numbers), np.nan, numbers) if self._numbers else numbers

    def in_column(self, column: NDArray[Any]) -> NDArray[Any]:
        """A column of text or numbers, without the values that stand for a missing one."""
        if column.dtype.kind == "f":
            return self.in_numbers(column)
        if column.dtype.kind != "O" or len(self.words) == 1:
            return column
        texts = column.copy()
        texts[np.isin(column.astype(str), sorted(self.words))] = None
        return texts

    def numbers_from(self, cells: Sequence[str | None]) -> FloatArray | None:
        """The numbers in a text file's cells, missing ones as NaN; None where a cell is neither."""
        words = ["" if cell is None else cell.strip() for cell in cells]
        try:
            numbers = np.array(["nan" if word in self.words else word for word in words], dtype=np.float64)
        except ValueError:
            return None
        # Python reads 2024_01 as a number, which no table means.
        return None if "_" in "".join(words) else self.in_numbers(numbers)


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


def is_missing(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values of a column are missing."""
    missing: NDArray[np.bool_]
    if column.dtype.kind == "O":
        missing = np.asarray(column == np.array(None), dtype=bool)
    elif column.dtype.kind == "M":
        missing = np.isnat(column)
    elif column.dtype.kind == "f":
        missing = np.isnan(column)
    else:
        missing = np.zeros(len(column), dtype=bool)
    return missing


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
    text[is_missing(column)] = None
    return text


def distinct(column: NDArray[np.object_]) -> list[str]:
    """The different texts of a column, in order: as numbers where all are, else as text."""
    texts = set(column) - {None}
    return sorted(texts, key=lambda text: (float(text), text)) if all(map(is_number, texts)) else sorted(texts)


def codes_of(column: NDArray[np.object_], values: Sequence[str]) -> NDArray[np.int64]:
    """The position of each text among the values; -1 for a missing one, and -2 for one that is not among them."""
    positions: dict[str | None, int] = {**{value: code for code, value in enumerate(values)}, None: -1}
    return np.fromiter(map(positions.get, column, repeat(-2)), dtype=np.int64, count=len(column))


# ---------------------------------------------------------------------------------------------------------------------
# Columns of pyarrow.


def load_arrow(path: str) -> Any:
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
    import pyarrow.compute as pc

    return without(pc.utf8_trim_whitespace(column), missing)


def without(column: Any, missing: Collection[str]) -> Any:
    """A column of strings, null in place of these."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_missing = pc.is_in(column, value_set=string_array(sorted(missing)))
    return pc.if_else(is_missing, pa.nulls(len(column), pa.string()), column) if pc.any(is_missing).as_py() else column


def has_text(column: Any, text: str) -> bool:
    """Whether a column of strings has this one."""
    import pyarrow.compute as pc

    return bool(pc.any(pc.is_in(column, value_set=string_array([text]))).as_py())


def string_array(texts: Sequence[str]) -> Any:
    """An array of strings; pyarrow.array would import pandas, which takes longer than to read most files."""
    import pyarrow as pa

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
    import pyarrow as pa

    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], type=columns[0].type)


def exact_integers(strings: Any) -> Any:
    """A column of strings as integers; None where one is none, or is written otherwise: 007 is another id than 7."""
    import pyarrow as pa

    try:
        strings.slice(0, _FIRST).cast(pa.int64())  # as a cast that fails takes its time
        integers = strings.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    return integers if integers.cast(pa.string()).equals(strings) else None


def decoded(column: Any) -> Any:
    """A column without a dictionary, and of one type of strings."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        chunks = [chunk.dictionary_decode() for chunk in column.chunks]
        column = pa.chunked_array(chunks, type=column.type.value_type)
    return column.cast(pa.string()) if str(column.type) in _STRING_TYPES else column


def texts_of(column: Any) -> NDArray[np.object_]:
    """A column as text, None for null: 17 as "17", also where it is stored as 17.0 or 17.00, with all its digits.

    TypeError for what is neither number, text nor date.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

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
    import pyarrow as pa

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
