"""Where the bytes of a table come from: a file, standard input or a pipe, of which the latter two are read once."""

from __future__ import annotations

import gzip
import io
import os
import select
import shutil
import sys
import tempfile
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import BinaryIO, cast

from closefar.tables.errors import TableError, UnreadableError, too_large

STANDARD_INPUT = "-"
PARQUET_SUFFIXES = (".parquet", ".pq")

_DESCRIPTORS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")  # may lead to a file, but have no suffix
_IN_MEMORY = 1 << 26  # bytes of a pipe that are kept in memory, 64 MiB; a larger one goes to a temporary file
_WAIT_SECONDS = 2.0  # for a program that opens a named pipe to write
_GZIP = b"\x1f\x8b"


class Input(os.PathLike[str]):
    """A file that can be opened repeatedly; a pipe is copied when it is first opened.

    Parameters
    ----------
    path : str or path
        "-" means standard input.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)

    def __fspath__(self) -> str:
        return self._path

    def __repr__(self) -> str:
        return f"Input({self._path!r})"

    @property
    def name(self) -> str:
        """What messages call it."""
        return "standard input" if self._path == STANDARD_INPUT else self._path

    @property
    def is_stream(self) -> bool:
        """Whether it can be read only once, and has no suffix to tell its format."""
        if self._path == STANDARD_INPUT or self._path.startswith(_DESCRIPTORS):
            return True
        return os.path.exists(self._path) and not os.path.isfile(self._path) and not os.path.isdir(self._path)

    def check(self) -> None:
        """Refuse what can't be opened."""
        if self._path == STANDARD_INPUT:
            return
        if not os.path.exists(self._path):
            raise UnreadableError(f"{self.name} does not exist. Check the path.")
        if not os.access(self._path, os.R_OK):
            raise UnreadableError(f"{self.name} can't be read: permission denied. Change the permissions of the file.")
        if not self.parts():
            raise UnreadableError(
                f"{self.name} is a directory without Parquet files. Give the path of a file, or of a directory "
                "with files that end with .parquet."
            )

    def parts(self) -> list[Input]:
        """The file itself, or the Parquet files of a directory in the order of their names."""
        if not os.path.isdir(self._path):
            return [self]
        names = sorted(name for name in os.listdir(self._path) if not name.startswith((".", "_")))
        return [Input(os.path.join(self._path, name)) for name in names if name.lower().endswith(PARQUET_SUFFIXES)]

    def stamp(self) -> tuple[int, int] | None:
        """What changes when a file is written again: its size and its time."""
        if self.is_stream:
            return None
        with _readable(self.name):
            found = os.stat(self._path)
        return found.st_size, found.st_mtime_ns

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open it for reading, at its beginning."""
        if self.is_stream:
            self._copy.seek(0)
            yield self._copy
        else:
            with open(self._path, "rb") as file:
                yield file

    @contextmanager
    def open_decompressed(self) -> Iterator[BinaryIO]:
        """Open a text file, which may be compressed; what is wrong with its bytes is a TableError."""
        with _readable(self.name), self.open() as file:
            is_gzipped = self.name.lower().endswith(".gz") or (self.is_stream and file.read(len(_GZIP)) == _GZIP)
            file.seek(0)
            yield cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb")) if is_gzipped else file

    @contextmanager
    def open_text(self) -> Iterator[io.TextIOWrapper]:
        """Open a text file as lines with their own ends; bytes that are not UTF-8 become surrogates."""
        with self.open_decompressed() as file:
            text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
            try:
                yield text
            finally:
                text.detach()

    @cached_property
    def _copy(self) -> BinaryIO:
        copy = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed with this object
        weakref.finalize(self, copy.close)
        if self._path == STANDARD_INPUT and sys.stdin is None:
            raise UnreadableError("standard input is closed. Redirect a file to it, or give the path of a file.")
        with _readable(self.name):
            if self._path == STANDARD_INPUT:
                shutil.copyfileobj(sys.stdin.buffer, copy)
            else:
                # A blocking `open` would wait for ever for a pipe that nothing writes to.
                with open(os.open(self._path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                    if not select.select([file], [], [], _WAIT_SECONDS)[0]:
                        with suppress(BlockingIOError):  # there is a writer, which has not written yet
                            copy.write(first := os.read(file.fileno(), 1))
                            if not first:
                                raise UnreadableError(f"no program writes to the pipe {self.name}. Start it first.")
                    os.set_blocking(file.fileno(), True)
                    shutil.copyfileobj(file, copy)
        return cast(BinaryIO, copy)


class InputList(Input):
    """Several Parquet files below each other, in this order."""

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        if not paths:
            raise UnreadableError("there must be at least one file; got an empty list. Check the paths.")
        super().__init__(paths[0])
        self._parts = [Input(path) for path in paths]

    @property
    def name(self) -> str:
        n_others = len(self._parts) - 1
        return f"{self._path} and {n_others} more" if n_others else self._path

    def check(self) -> None:
        for part in self._parts:
            part.check()
            if len(self._parts) > 1 and not part.name.lower().endswith(PARQUET_SUFFIXES):
                raise UnreadableError(
                    f"several files can be opened together if they are Parquet; got {part.name}. Give one file, or "
                    "convert them."
                )

    def parts(self) -> list[Input]:
        return list(self._parts) if len(self._parts) > 1 else self._parts[0].parts()


def check_unchanged(stamps: Mapping[Input, tuple[int, int] | None]) -> None:
    """Refuse a file that was written since it was opened, when it had this stamp."""
    for file, stamp in stamps.items():
        if file.stamp() != stamp:
            raise UnreadableError(
                f"{file.name} has changed since it was opened, so its rows are no longer the same. "
                "Open it again when it is complete."
            )


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Errors of the system and of gzip name the file."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TableError(f"{name} is not a gzip file, or it is damaged ({error}). Compress it again.") from error
    except MemoryError as error:
        raise too_large(name) from error
    except OSError as error:
        if isinstance(error, UnreadableError):
            raise
        raise UnreadableError(f"{name} can't be read: {error.strerror or error}.") from error
