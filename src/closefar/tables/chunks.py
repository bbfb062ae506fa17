"""Files whose numbers may not fit into memory: their rows, chunk by chunk, as sources of rows read them."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.delimited import DelimitedFile, LostTextError
from closefar.tables.encoding import Encoding, Number
from closefar.tables.errors import TEXT_SUFFIXES, Place, TableError, UnreadableError, counted, without_values
from closefar.tables.files import ParquetFile, loading
from closefar.tables.inputs import Input, check_unchanged
from closefar.tables.source import Roles, Source
from closefar.tables.values import MissingValues, are_finite

MOST_BYTES = 1 << 30  # of numbers in double precision that are read whole; reading takes two to three times as much
CHUNK_BYTES = 1 << 23  # 8 MiB of numbers at a time
_SHARE_OF_MEMORY = 1 / 8  # of the machine that numbers may take, at most
_COMPRESSION = 4  # times that gzip makes a text of numbers smaller, about
_FEWEST_ROWS = 1 << 10  # in a chunk, however wide the rows are
_EXACT_IN_SINGLE = 2  # bytes of an integer that single precision, with its 24 bits, holds exactly


def is_large(source: Source) -> bool:
    """Whether one file has all data, can be read in parts, and is too large to be read as a whole."""
    has_two = source.points is not None and (source.pairs is not None or source.comparisons is not None)
    file = Input(source.points or source.pairs or "")
    if source.judgements is not None or has_two or file.is_stream or not os.path.exists(file):
        return False
    return _n_bytes(file) > min(MOST_BYTES, _SHARE_OF_MEMORY * _memory())


def _n_bytes(file: Input) -> int:
    """About how much memory the numbers take; 0 for formats that are not read in parts."""
    name, size = file.name.lower(), os.path.getsize(file)
    if name.endswith(".npy"):
        return 2 * size
    if name.removesuffix(".gz").endswith(TEXT_SUFFIXES):
        return size * (_COMPRESSION if name.endswith(".gz") else 1)
    if name.endswith(".npz") or not file.parts():
        return 0
    if sum(os.path.getsize(part) for part in file.parts()) * 100 < MOST_BYTES:
        return 0  # however well it is compressed
    opened = ParquetFile(file, MissingValues())
    return 8 * opened.n_rows * len(opened.names)


def _memory() -> float:
    """The memory of the machine, in bytes; infinite where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


class SpooledFile(ParquetFile):
    """Columns of a text file, parsed once into a temporary Parquet file that is removed with this object.

    Parameters
    ----------
    file : DelimitedFile
    only, as_text : names of columns
        Those to keep; and those that stay as they are written.
    """

    def __init__(self, file: DelimitedFile, only: Collection[str], as_text: Collection[str]) -> None:
        descriptor, path = tempfile.mkstemp(prefix="closefar-", suffix=".parquet")
        os.close(descriptor)
        self._remove: weakref.finalize[Any, Any] | None = weakref.finalize(self, Path(path).unlink, missing_ok=True)
        wanted = [name for name in file.names if name in only]
        while not _is_written(path, file, wanted, as_text):
            continue
        self._missing_words = {name: file.missing_in(name) for name in wanted}
        super().__init__(Input(path), file.missing, file.place)

    def close(self) -> None:
        """Remove the temporary file."""
        if self._remove is not None:
            self._remove()

    def _missing_in(self, name: str) -> MissingValues:
        return self._missing_words[name]

    def __getstate__(self) -> dict[str, Any]:
        """A copy uses the file, but does not remove it."""
        return {**vars(self), "_remove": None}


def _is_written(path: str, file: DelimitedFile, wanted: list[str], as_text: Collection[str]) -> bool:
    """Write the columns; False if text was found below numbers, so that this must begin again."""
    import pyarrow.parquet as pq

    writer: Any = None
    try:
        for table in file.tables(wanted, as_text):
            with _room_on_disk(file.path):
                if writer is None:
                    strings = [field.name for field in table.schema if str(field.type) == "string"]
                    options = {"compression": "none", "use_dictionary": strings, "write_statistics": False}
                    writer = pq.ParquetWriter(path, table.schema, **options)
                writer.write_table(table)
    except LostTextError:
        return False
    finally:
        if writer is not None:
            with _room_on_disk(file.path):
                writer.close()
    return True


@contextmanager
def _room_on_disk(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnreadableError(
            f"{path} can't be read: the temporary file for its numbers can't be written to {tempfile.gettempdir()} "
            f"({error.strerror or error}). Make room there, or set TMPDIR to a folder with more."
        ) from error


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
        points = self._encoding.apply_to_part(*self._roles.stacked(columns, self._file.place, row + kept))
        return points if self._roles.sides is None else points.reshape(len(kept), 2, -1)


def _fits_single(kind: np.dtype[Any] | None) -> bool:
    """Whether single precision holds numbers of this type exactly."""
    return kind is not None and (kind == np.float32 or (kind.kind in "iu" and kind.itemsize <= _EXACT_IN_SINGLE))


class NumpyChunks:
    """The differences, or single points, of an array of shape (n, d) or (n, 2, d): arrays of shape (d, m).

    They are read rather than mapped, as mapped pages count as memory in use.

    Parameters
    ----------
    path : path
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        source = Input(path)
        source.check()
        self.path = source.name
        self.place = Place(self.path, first_row=0)
        self._stamps = {source: source.stamp()}
        with loading(self.path):
            mapped = np.load(self.path, mmap_mode="r", allow_pickle=False)
        self._stored: np.dtype[Any] = mapped.dtype
        self._array_shape: tuple[int, ...] = mapped.shape
        self._offset = int(mapped.offset)
        self._is_by_column = bool(mapped.flags.f_contiguous and not mapped.flags.c_contiguous)
        del mapped
        self._check()
        self._row_size = int(np.prod(self._array_shape[1:]))
        self._n_rows = max(_FEWEST_ROWS, CHUNK_BYTES // (self._stored.itemsize * self._row_size))  # at a time
        self.starts: NDArray[np.intp] = np.arange(0, self._array_shape[0], self._n_rows)
        self.names = [f"x{position}" for position in range(self._array_shape[-1])]
        self.used: NDArray[np.intp] = np.arange(len(self.names))

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

    def points(self) -> Iterator[FloatArray]:
        """Yield the array some rows at a time, in double precision."""
        for _, chunk in self._chunks(0):
            yield chunk.astype(np.float64, copy=False)

    def close(self) -> None:
        """Nothing is open between passes."""

    def _chunks(self, start: int) -> Iterator[tuple[int, NDArray[Any]]]:
        """The array, the number of the first row before each part of it."""
        check_unchanged(self._stamps)
        n, is_every = self._array_shape[0], len(self.used) == len(self.names)
        try:
            with open(self.path, "rb") as file:
                for row in range(start * self._n_rows, n, self._n_rows):
                    chunk = self._read(file, row, min(self._n_rows, n - row))
                    yield row, (chunk if is_every else chunk[..., self.used]).astype(self.dtype, copy=False)
        except OSError as error:
            if isinstance(error, UnreadableError):
                raise
            raise UnreadableError(f"{self.path} can't be read: {error.strerror}. Check the path.") from error

    def _read(self, file: BinaryIO, row: int, n_rows: int) -> NDArray[Any]:
        n, *rest = self._array_shape
        if not self._is_by_column:
            return self._numbers(file, row * self._row_size, n_rows * self._row_size).reshape(n_rows, *rest)
        columns = np.stack([self._numbers(file, number * n + row, n_rows) for number in range(self._row_size)])
        return columns.reshape(*rest[::-1], n_rows).T

    def _numbers(self, file: BinaryIO, start: int, count: int) -> NDArray[Any]:
        file.seek(self._offset + start * self._stored.itemsize)
        numbers = np.fromfile(file, self._stored, count)
        if len(numbers) < count:
            raise UnreadableError(f"{self.path} has become shorter while it was read. Open it again.")
        return numbers

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
                f"{self.path} must hold finite numbers; got {value} in {self.place.row(row + int(first[0]))}, column "
                f"'x{self.used[first[-1]]}' ({counted(len(wrong), 'such value')} in the rows that were read with it). "
                "Leave those rows out, or fill them in, and save the array again."
            )
