"""pyarrow, which reads text and Parquet files: loaded when a table is read, as only those who read files need it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.values import text_column, to_text

_FIRST = 100
_STRING_TYPES = ("string", "large_string", "string_view")


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
    import pyarrow as pa
    import pyarrow.compute as pc

    words = pc.utf8_trim_whitespace(column)
    is_missing = pc.is_in(words, value_set=string_array(sorted(missing)))
    if not pc.any(is_missing).as_py():
        return words
    return pc.if_else(is_missing, pa.nulls(len(words), pa.string()), words)


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


def array_of_numbers(numbers: FloatArray) -> Any:
    """An array of numbers, which pyarrow takes without a copy."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.float64(), len(numbers), [None, pa.py_buffer(numbers)])


def parts_of(column: Any, dtype: Any, fill: Any) -> list[NDArray[Any]]:
    """The numbers of each chunk of a column, read-only and without a copy, but with something filled in for null."""
    parts = []
    for chunk in column.chunks if hasattr(column, "chunks") else [column]:
        validity, content = chunk.buffers()
        numbers = np.frombuffer(content, dtype, len(chunk), chunk.offset * np.dtype(dtype).itemsize)
        if chunk.null_count:
            bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little", count=chunk.offset + len(chunk))
            numbers = np.where(bits[chunk.offset :], numbers, fill)
        parts.append(numbers)
    return parts


def fixed_width(column: Any, dtype: Any, fill: Any) -> NDArray[Any]:
    """The numbers of a column as one array, read-only where it has one chunk."""
    parts = parts_of(column, dtype, fill)
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype=dtype), *parts])


def chained(columns: Sequence[Any]) -> Any:
    """These columns below each other."""
    import pyarrow as pa

    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], type=columns[0].type)


def as_numbers(strings: Any) -> FloatArray | None:
    """The numbers in a column of strings, NaN for null; None where one is no number, or may be one to Python only."""
    import pyarrow as pa

    try:
        numbers = strings.cast(pa.float64())
    except pa.ArrowInvalid:
        return None
    return None if has_nan(numbers) else fixed_width(numbers, np.float64, np.nan)


def has_nan(numbers: Any) -> bool:
    """Whether a column of numbers has NaN beside null: pyarrow reads "nan(x)" as a number, Python does not."""
    import pyarrow.compute as pc

    total = pc.sum(numbers).as_py()  # NaN as well where plus and minus infinity are in it
    return total is not None and bool(total != total and pc.any(pc.is_nan(numbers)).as_py())


def exact_integers(strings: Any) -> Any:
    """A column of strings as integers; None where one is none, or is written otherwise: 007 is another id than 7."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        strings.slice(0, _FIRST).cast(pa.int64())  # as a cast that fails takes its time
        integers = strings.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    # pyarrow takes zeros in front, which make a text longer than its number needs, and 0x1f.
    n_characters = pc.sum(pc.binary_length(strings)).as_py() or 0
    numbers = fixed_width(integers, np.int64, 0)
    n_needed = len(numbers) - integers.null_count + int(np.count_nonzero(numbers < 0))
    sizes = np.abs(numbers)
    for power in range(1, len(str(sizes.max(initial=0)))):
        n_needed += int(np.count_nonzero(sizes >= 10**power))
    return integers if n_characters == n_needed and not _has_letters(strings) else None


def _has_letters(strings: Any) -> bool:
    """Whether a character of these strings comes after 9 in ASCII."""
    chunks = [chunk for chunk in (strings.chunks if hasattr(strings, "chunks") else [strings]) if len(chunk)]
    ends = [np.frombuffer(chunk.buffers()[1], np.int32)[chunk.offset :][: len(chunk) + 1] for chunk in chunks]
    return any(
        np.frombuffer(chunk.buffers()[2] or b"", np.uint8)[end[0] : end[-1]].max(initial=0) > ord("9")
        for chunk, end in zip(chunks, ends, strict=True)
    )


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
        written = column.cast(pa.string())
        if pc.any(pc.match_substring(written, "E")).as_py():
            return text_column(None if value is None else f"{value.normalize():f}" for value in column.to_pylist())
        return shared_texts(pc.utf8_rtrim(pc.utf8_rtrim(written, "0"), ".") if kind.scale > 0 else written)
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
