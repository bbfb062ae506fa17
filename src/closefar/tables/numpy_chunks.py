"""The rows of a .npy file, chunk by chunk: read rather than mapped, as mapped pages count as memory in use."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.chunks import CHUNK_BYTES
from closefar.tables.errors import Place, TableError, UnreadableError, counted, without_values
from closefar.tables.inputs import Input, Unchanged
from closefar.tables.numpy_files import loading
from closefar.tables.values import are_finite

_FEWEST_ROWS = 1 << 10


class NumpyChunks:
    """The differences, or single points, of an array of shape (n, d) or (n, 2, d): arrays of shape (d, m).

    Parameters
    ----------
    path : path
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        source = Input(path)
        source.check()
        self._place = Place(source.name, first_row=0)
        self._unchanged = Unchanged([source])
        with loading(source.name):
            mapped = np.load(source.name, mmap_mode="r", allow_pickle=False)
        self._stored: np.dtype[Any] = mapped.dtype
        self._array_shape: tuple[int, ...] = mapped.shape
        self._offset = int(mapped.offset)
        self._is_by_column = bool(mapped.flags.f_contiguous and not mapped.flags.c_contiguous)
        del mapped
        self._check()
        self.starts: NDArray[np.intp] = np.arange(0, self._array_shape[0], self._n_rows)
        self.names = [f"x{position}" for position in range(self._array_shape[-1])]
        self.used: NDArray[np.intp] = np.arange(len(self.names))

    @property
    def path(self) -> str:
        return self._place.path

    @property
    def place(self) -> Place:
        return self._place

    @property
    def are_pairs(self) -> bool:
        """Whether both points of each pair are stored."""
        return len(self._array_shape) == 3

    @property
    def shape(self) -> tuple[int, int]:
        return self._array_shape[0], len(self.used)

    @property
    def dtype(self) -> np.dtype[Any]:
        is_single = self._stored.newbyteorder("=") == np.float32 and not self.are_pairs
        return np.dtype(np.float32 if is_single else np.float64)

    def use(self, names: Sequence[str]) -> None:
        """Choose columns by name."""
        self.used = np.array([self.names.index(name) for name in names])

    def read_from(self, start: int) -> Iterator[NDArray[Any]]:
        for row, chunk in self._chunks(start):
            if not are_finite(chunk):
                self._check_finite(chunk, row)
            yield (chunk if chunk.ndim == 2 else chunk[:, 0] - chunk[:, 1]).T

    def read(self, names: Sequence[str]) -> dict[str, FloatArray]:
        """Read some columns of an array (n, d), in double precision."""
        if not names:
            return {}
        at = [self.names.index(name) for name in names]
        columns = np.concatenate([chunk[:, at] for _, chunk in self._chunks(0)]).astype(np.float64, copy=False)
        return dict(zip(names, columns.T, strict=True))

    def points(self) -> Iterator[FloatArray]:
        """Give the array some rows at a time, in double precision."""
        for _, chunk in self._chunks(0):
            yield chunk.astype(np.float64, copy=False)

    def close(self) -> None:
        """Nothing is open between passes."""

    @property
    def _n_rows(self) -> int:
        """How many rows are read at a time."""
        row_bytes = self._stored.itemsize * int(np.prod(self._array_shape[1:]))
        return max(_FEWEST_ROWS, CHUNK_BYTES // row_bytes)

    def _chunks(self, start: int) -> Iterator[tuple[int, NDArray[Any]]]:
        """The array, the number of the first row before each part of it."""
        self._unchanged.check()
        n_rows, is_every = self._n_rows, len(self.used) == len(self.names)
        with self._opened() as file:
            for row in range(start * n_rows, self._array_shape[0], n_rows):
                chunk = self._read(file, row, min(n_rows, self._array_shape[0] - row))
                yield row, (chunk if is_every else chunk[..., self.used]).astype(self.dtype, copy=False)

    def _opened(self) -> BinaryIO:
        try:
            return open(self.path, "rb", buffering=0)
        except OSError as error:
            raise UnreadableError(f"{self.path} can't be read: {error.strerror}. Check the path.") from error

    def _read(self, file: BinaryIO, row: int, n_rows: int) -> NDArray[Any]:
        n, *rest = self._array_shape
        size = self._stored.itemsize
        if not self._is_by_column:
            rows: NDArray[Any] = np.empty((n_rows, *rest), dtype=self._stored)
            self._fill(file, rows, self._offset + row * size * int(np.prod(rest)))
            return rows
        columns: NDArray[Any] = np.empty((*rest[::-1], n_rows), dtype=self._stored)
        for number, line in enumerate(columns.reshape(-1, n_rows)):
            self._fill(file, line, self._offset + (number * n + row) * size)
        return columns.T

    def _fill(self, file: BinaryIO, array: NDArray[Any], offset: int) -> None:
        content, done = array.reshape(-1).view(np.uint8).data, 0
        file.seek(offset)
        while done < len(content):
            count = file.readinto(content[done:])  # type: ignore[attr-defined]
            if not count:
                raise UnreadableError(f"{self.path} has become shorter while it was read. Open it again.")
            done += count

    def _check(self) -> None:
        shape, kind = self._array_shape, self._stored.kind
        is_right = len(shape) == 2 or (len(shape) == 3 and shape[1] == 2)
        if not is_right or shape[-1] == 0:
            raise TableError(
                f"{self.path} must hold differences or points, (n, d), or pairs, (n, 2, d); got an array of shape "
                f"{shape}."
            )
        if kind not in "biuf":
            raise TableError(
                f"{self.path} must hold numbers; got an array of {self._stored}. Convert it before saving."
            )
        if shape[0] == 0:
            raise without_values(self.path, shape[-1])

    def _check_finite(self, chunk: NDArray[Any], row: int) -> None:
        wrong = np.argwhere(~np.isfinite(chunk))
        if len(wrong):  # and not only a sum that is beyond the largest number
            first = wrong[0]
            value = chunk[tuple(first)]
            raise TableError(
                f"{self.path} must hold finite numbers; got {value} in {self._place.row(row + int(first[0]))}, column "
                f"'x{self.used[first[-1]]}' ({counted(len(wrong), 'such value')} in the rows that were read with it). "
                "Leave those rows out, or fill them in, and save the array again."
            )
