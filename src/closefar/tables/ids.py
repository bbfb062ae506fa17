"""Ids of points and pairs: kept as pyarrow has them, matched exactly, and turned into text only to be shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.errors import setting
from closefar.tables.errors import Place, TableError, counted, quoted
from closefar.tables.values import chained, decoded, fixed_width, string_array, texts_of, to_text, trimmed


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
        import pyarrow.compute as pc

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
    import pyarrow as pa
    import pyarrow.compute as pc

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


def numbers_of_ids(ids: Any) -> NDArray[Any] | None:
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
    import pyarrow.compute as pc

    return bool(pc.all(pc.is_in(string_array(names), value_set=_strings(ids).combine_chunks())).as_py())


def check_ids(ids: Any, name: str, place: Place, option: str | None) -> None:
    """Refuse missing ids; the option, if there is one, chooses the column."""
    if not isinstance(ids, np.ndarray) and ids.null_count:
        first = int(np.argmax(ids.is_null().to_numpy()))
        other = ", or set " + setting(option) + " to another column." if option else "."
        raise TableError(
            f"{place.path}: id column {quoted(name)} has {counted(ids.null_count, 'missing value')}"
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
    import pyarrow as pa

    if isinstance(column, np.ndarray):
        return pa.chunked_array([string_array(to_text(column).tolist())])
    if pa.types.is_string(column.type) or pa.types.is_integer(column.type):
        strings = column.cast(pa.string())
        return strings if isinstance(strings, pa.ChunkedArray) else pa.chunked_array([strings])
    if not column.null_count:
        return pa.chunked_array([string_array(texts_of(column).tolist())])
    return pa.chunked_array([pa.array(texts_of(column), pa.string())])
