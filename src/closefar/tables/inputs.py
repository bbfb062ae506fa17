"""Where the bytes of a table come from: a file, standard input or a pipe, of which the latter two are read once."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sys
import tempfile
import weakref
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import BinaryIO, cast

from closefar.tables.errors import TableError, UnreadableError, too_large

STANDARD_INPUT = "-"
PARQUET_SUFFIXES = (".parquet", ".pq")

_DESCRIPTORS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")  # may lead to a file, but have no suffix
_IN_MEMORY = 1 << 26  # bytes of a pipe that are kept in memory, 64 MiB; a larger one goes to a temporary file
_GZIP = b"\x1f\x8b"


class Input(os.PathLike[str]):
    """A file that can be opened repeatedly; a pipe is copied when it is first opened.

    Parameters
    ----------
    path : str or path
        "-" means standard input.
    *others : str or path
        Further Parquet files, whose rows are below those of the first one.
    """

    def __init__(self, path: str | os.PathLike[str], *others: str | os.PathLike[str]) -> None:
        self._path, self._others = os.fspath(path), [Input(other) for other in others]
        self._stamp: tuple[int, int] | None = None

    def __fspath__(self) -> str:
        return self._path

    @property
    def name(self) -> str:
        """What messages call it."""
        more = f" and {len(self._others)} more" if self._others else ""
        return "standard input" if self._path == STANDARD_INPUT else self._path + more

    @property
    def is_stream(self) -> bool:
        """Whether it can be read only once, and has no suffix to tell its format."""
        if self._path == STANDARD_INPUT or self._path.startswith(_DESCRIPTORS):
            return True
        return os.path.exists(self._path) and not os.path.isfile(self._path) and not os.path.isdir(self._path)

    def check(self) -> None:
        """Refuse what can't be opened."""
        for part in self.parts() if self._others else ():
            part.check()
            if not part.name.lower().endswith(PARQUET_SUFFIXES):
                raise UnreadableError(
                    f"several files can be opened together if they are Parquet; got {part.name}. Give one file, or "
                    "convert them."
                )
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
        """The file itself, or each of several, or the Parquet files of a directory in the order of their names."""
        if self._others:
            return [Input(self._path), *self._others]
        if not os.path.isdir(self._path):
            return [self]
        names = sorted(name for name in os.listdir(self._path) if not name.startswith((".", "_")))
        return [Input(os.path.join(self._path, name)) for name in names if name.lower().endswith(PARQUET_SUFFIXES)]

    def check_unchanged(self) -> None:
        """Refuse a file whose size or time has changed since this was first called."""
        if self.is_stream:
            return
        with _readable(self.name):
            found = os.stat(self._path)
        stamp = found.st_size, found.st_mtime_ns
        self._stamp = self._stamp or stamp
        if stamp != self._stamp:
            raise UnreadableError(
                f"{self.name} has changed since it was opened, so its rows are no longer the same. "
                "Open it again when it is complete."
            )

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Open it for reading, at its beginning."""
        if not self.is_stream:
            return open(self._path, "rb")
        self._copy.seek(0)
        return nullcontext(self._copy)

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
                with open(self._path, "rb") as file:
                    shutil.copyfileobj(file, copy)
        return cast(BinaryIO, copy)


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
