"""Rows that are read from a file in each pass, one chunk ahead of the computation."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np

from closefar.arrays import Array, IndexArray
from closefar.rows.blocks import BlockRows

# Rows of up to this size are held in memory once they have been read, in the precision of the file.
HELD_FILE_BYTES = 1 << 29


class Chunks(Protocol):
    """Rows of a file in chunks: arrays of shape (d, m), in single or double precision, in the order of the file."""

    @property
    def starts(self) -> IndexArray:
        """The numbers of the rows at which reading can begin, in order; the first is 0."""

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of columns."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def read_from(self, start: int) -> Iterator[Array]:
        """Give the chunks from the row `starts[start]` on."""

    def close(self) -> None: ...


class StreamedRows(BlockRows):
    """The rows of a file, of which a few chunks are in memory; a thread reads ahead and ends with each chunk.

    Rows that fit `HELD_FILE_BYTES` are read once and held.
    """

    _lock: threading.Lock
    _reading: _Reading | None
    _held: Array

    def __init__(self, chunks: Chunks) -> None:
        super().__init__(*chunks.shape)
        self._chunks = chunks
        self._forget()

    def read(self, where: slice) -> Array:
        return self.read_as(where, np.dtype(np.float64))

    def in_single(self) -> BlockRows | None:
        return _InSingle(self) if self._chunks.dtype == np.float32 else None

    def read_as(self, where: slice, dtype: np.dtype[Any]) -> Array:
        """Return these rows, each as a column, in this precision."""
        if where.stop <= where.start:
            return np.empty((self.n_columns, 0), dtype=dtype)
        with self._lock:
            if self._is_closed:
                raise ValueError("these rows are in a file that is closed. Open it again.")
            try:
                if self._held is None and self._size_of(self.n_rows) <= HELD_FILE_BYTES:
                    self._held = self._collect(slice(0, self.n_rows), self._chunks.dtype)
                    self._stop_reading()
                if self._held is not None:
                    return self._held[:, where].astype(dtype, copy=False)
                return self._collect(where, dtype)
            except BaseException:
                self._stop_reading()
                raise

    def take_rows(self, indices: IndexArray) -> BlockRows:
        """Return the rows at these indices: held in memory or, where they are too many, read in each pass."""
        if 2 * self._size_of(len(indices)) <= HELD_FILE_BYTES or not np.all(np.diff(indices) > 0):
            return super().take_rows(indices)
        return SelectedRows(self, indices)

    def close(self) -> None:
        """End the thread that reads ahead, and close the file."""
        with self._lock:
            self._stop_reading()
            self._held, self._is_closed = None, True
            self._chunks.close()

    def _size_of(self, n_rows: int) -> int:
        return n_rows * self.n_columns * int(self._chunks.dtype.itemsize)

    def _forget(self) -> None:
        self._is_closed = False
        self._lock = threading.Lock()
        self._reading = None
        self._held = None

    def _collect(self, where: slice, dtype: np.dtype[Any]) -> Array:
        """These rows, from as many chunks as they are in."""
        reading, position = self._reading_at(where.start), where.start
        collected: Array = None
        while True:
            part = reading.columns[:, position - reading.start : where.stop - reading.start]
            stop = position + part.shape[1]
            if collected is None and stop == where.stop:
                return part.astype(dtype, copy=False)
            if collected is None:
                collected = np.empty((self.n_columns, where.stop - where.start), dtype=dtype)
            collected[:, position - where.start : stop - where.start] = part
            if stop == where.stop:
                return collected
            reading.advance()
            position = stop

    def _reading_at(self, row: int) -> _Reading:
        """The pass that is under way, moved on to this row; another one where a shorter way leads there."""
        nearest = int(np.searchsorted(self._chunks.starts, row, side="right")) - 1
        reading = self._reading
        if reading is None or row < reading.start or self._chunks.starts[nearest] > reading.stop:
            self._stop_reading()
            reading = self._reading = _Reading(self._chunks.read_from(nearest), int(self._chunks.starts[nearest]))
        while row >= reading.stop:
            reading.advance()
        return reading

    def _stop_reading(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.stop_reading()

    def __getstate__(self) -> dict[str, Any]:
        """A copy, or another process, reads the file anew."""
        return {
            name: value
            for name, value in vars(self).items()
            if name not in ("_lock", "_reading", "_held", "_is_closed")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()


class _InSingle(BlockRows):
    """The same rows, which are computed with in the single precision of their file."""

    def __init__(self, source: StreamedRows) -> None:
        super().__init__(*source.shape)
        self._source = source

    def read(self, where: slice) -> Array:
        return self._source.read_as(where, np.dtype(np.float32))


class SelectedRows(BlockRows):
    """Rows of another source, at increasing indices, picked in each pass."""

    def __init__(self, source: BlockRows, indices: IndexArray) -> None:
        super().__init__(len(indices), source.n_columns)
        self._source = source
        self._indices = indices

    def read(self, where: slice) -> Array:
        wanted = self._indices[where]
        if len(wanted) == 0:
            return self._source.read(slice(0, 0))
        first = int(wanted[0])
        return self._source.read(slice(first, int(wanted[-1]) + 1))[:, wanted - first]

    def take_rows(self, indices: IndexArray) -> BlockRows:
        return self._source.take_rows(self._indices[indices])


class _Reading:
    """A pass over the chunks: the one at hand, and the next one, which a thread reads meanwhile."""

    def __init__(self, chunks: Iterator[Array], start: int) -> None:
        self._chunks = chunks
        self.start = self.stop = start
        self.columns: Array = np.empty((0, 0))
        self._next = self._read_ahead()

    def advance(self) -> None:
        """Take the next chunk to hand."""
        self._thread.join()
        columns = self._next.result()
        if columns is None:
            raise EOFError(f"the file ends after {self.stop} rows, before the one that is read.")
        self.start, self.stop, self.columns = self.stop, self.stop + int(columns.shape[1]), columns
        self._next = self._read_ahead()

    def stop_reading(self) -> None:
        self._thread.join()
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()

    def _read_ahead(self) -> Future[Array | None]:
        """The next chunk, which a thread of its own reads: nothing waits for it when the program ends."""
        found: Future[Array | None] = Future()

        def read() -> None:
            try:
                found.set_result(next(self._chunks, None))
            except BaseException as error:  # raised again where the result is asked for
                found.set_exception(error)

        self._thread = threading.Thread(target=read, name="closefar-read-ahead", daemon=True)
        self._thread.start()
        return found
