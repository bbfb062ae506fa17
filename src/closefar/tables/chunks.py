"""Encoded rows of a file, chunk by chunk, as sources of rows read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.encoding import Encoding, Number
from closefar.tables.parquet import ParquetFile
from closefar.tables.source import Roles, Stacked, place_of_sides
from closefar.tables.values import are_finite

CHUNK_BYTES = 1 << 23
_FEWEST_ROWS = 1 << 10
_EXACT_IN_SINGLE = 2  # bytes of an integer


class FileColumns(Mapping[str, NDArray[Any]]):
    """The columns of a file, of which the one that is asked for is read; rows that are not kept are left out."""

    def __init__(self, file: ParquetFile, roles: Roles, kept: NDArray[np.int64]) -> None:
        self._file, self._roles = file, roles
        self._kept = None if len(kept) == file.n_rows else kept

    def __getitem__(self, name: str) -> NDArray[Any]:
        column = self._file.read([name], self._roles.own_texts)[name]
        values: NDArray[Any] = column if self._kept is None else column[self._kept]
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(self._roles.own)

    def __len__(self) -> int:
        return len(self._roles.own)


class TableChunks:
    """The differences of pairs, or single points, of a Parquet file: arrays of shape (d, m).

    Parameters
    ----------
    file : ParquetFile
    roles : Roles
    encoding : Encoding
    kept : array of int
        The rows of the file that are used; the others lack a label or a value.
    """

    def __init__(self, file: ParquetFile, roles: Roles, encoding: Encoding, kept: NDArray[np.int64]) -> None:
        self._file, self._roles, self._encoding = file, roles, encoding
        self._kept = None if len(kept) == file.n_rows else kept
        self.starts: NDArray[np.intp] = file.starts if self._kept is None else np.searchsorted(kept, file.starts)
        self.shape = len(kept), len(encoding.feature_names)
        types = [file.number_type(name) for name in roles.own]
        self._is_plain = None not in types and all(isinstance(column, Number) for column in encoding.columns)
        is_single = self._is_plain and roles.sides is None and all(map(_fits_single, types))
        self.dtype: np.dtype[Any] = np.dtype(np.float32 if is_single else np.float64)

    def read_from(self, start: int) -> Iterator[NDArray[Any]]:
        for batch, row in self._batches(start):
            columns = self._plain(batch) if self._is_plain else None
            if columns is not None and are_finite(columns):
                kept = self._kept_in(row, len(batch))
                yield columns if len(kept) == len(batch) else columns[:, kept]
            else:
                points = self._encoded(batch, row)
                yield (points if points.ndim == 2 else points[:, 0] - points[:, 1]).T

    def points(self) -> Iterator[FloatArray]:
        """Give the single points, (m, d), or both points of each pair, (m, 2, d), in double precision."""
        for batch, row in self._batches(0):
            yield self._encoded(batch, row)

    def close(self) -> None:
        self._file.close()

    def _batches(self, start: int) -> Iterator[tuple[Any, int]]:
        """Some rows at a time, and the number of the first in the file."""
        names, row = self._roles.own, int(self._file.starts[start])
        n_rows = max(_FEWEST_ROWS, CHUNK_BYTES // (self.dtype.itemsize * len(names)))
        for batch in self._file.batches(names, start, n_rows):
            if len(self._kept_in(row, len(batch))):
                yield batch, row
            row += len(batch)

    def _kept_in(self, row: int, n_rows: int) -> NDArray[np.int64]:
        """Which of the rows that begin with this one are kept, counted from it."""
        if self._kept is None:
            return np.arange(n_rows)
        first, last = np.searchsorted(self._kept, [row, row + n_rows])
        return self._kept[first:last] - row

    def _plain(self, batch: Any) -> NDArray[Any] | None:
        """Plain numbers, which are copied as they are; None where one is missing."""
        if any(column.null_count for column in batch.columns):
            return None
        names = self._encoding.column_names
        columns: NDArray[Any] = np.empty((len(names), len(batch)), dtype=self.dtype)
        for line, name in zip(columns, names, strict=True):
            if self._roles.sides is None:
                line[:] = batch.column(name).to_numpy()
            else:
                left, right = (batch.column(side[name]).to_numpy() for side in self._roles.sides)
                np.subtract(left, right, out=line, dtype=np.float64)
        return columns

    def _encoded(self, batch: Any, row: int) -> FloatArray:
        """The points of the kept rows, with whatever has to be said of them."""
        kept = self._kept_in(row, len(batch))
        texts = set(self._roles.own_texts)
        columns = {
            name: self._file.converted(batch.column(name), name, as_text=name in texts)[kept]
            for name in self._roles.own
        }
        sides = self._roles.sides
        if sides is None:
            return self._encoding.apply_to_part(columns, place=replace(self._file.place, rows=row + kept))
        place = place_of_sides(self._file.place, row + kept, sides)
        stacked = self._encoding.apply_to_part(Stacked(columns, sides), place=place)
        return stacked.reshape(len(kept), 2, -1)


def _fits_single(kind: np.dtype[Any] | None) -> bool:
    """Whether single precision holds numbers of this type exactly."""
    return kind is not None and (kind == np.float32 or (kind.kind in "iu" and kind.itemsize <= _EXACT_IN_SINGLE))
