"""Opening a text file: what its bytes must be, and where its rows begin."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from closefar.tables.errors import TableError, UnreadableError, too_large
from closefar.tables.inputs import Input

_SAMPLE_BYTES = 1 << 16
_UTF_16_OR_32 = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_UTF_8_MARK = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_OTHER_FORMATS = {
    _GZIP: "a gzip file: rename it so that it ends with .gz",
    b"PK\x03\x04": "a zip or Excel file: save the table as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel file: save the table as CSV",
    b"PAR1": "a Parquet file: rename it so that it ends with .parquet",
    b"\x93NUMPY": "a NumPy file: rename it so that it ends with .npy",
}
_CONTROL = bytes(set(range(1, 32)) - set(b"\t\n\v\f\r\x1a\x1b"))
_FEW_ZEROS = 1 / 16  # of the bytes; UTF-16 and binary files have more


class BadByteError(Exception):
    """A line has a byte that is not UTF-8 text; raised where the number of the row is not known."""

    def __init__(self, byte: int) -> None:
        self.byte = byte
        super().__init__(byte)

    def at(self, path: str, row: int) -> TableError:
        """The message that names the row."""
        if self.byte == 0:
            return TableError(f"{path}: row {row} has a NUL byte, so the file is damaged. Write it again.")
        return TableError(
            f"{path} is not UTF-8 text: row {row} has the byte 0x{self.byte:02x}, as in Latin-1. Save it as UTF-8."
        )


@contextmanager
def open_bytes(source: Input) -> Iterator[BinaryIO]:
    """Open for reading, decompressed and after a byte order mark; what is wrong with the file is a TableError."""
    try:
        with source.open() as file:
            magic = file.read(len(_GZIP)) if source.is_stream else b""
            file.seek(0)
            is_gzipped = magic == _GZIP or source.name.lower().endswith(".gz")
            opened = cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb")) if is_gzipped else file
            if opened.read(len(_UTF_8_MARK)) != _UTF_8_MARK:
                opened.seek(0)
            yield opened
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TableError(f"{source.name} is not a gzip file, or it is damaged ({error}). Compress it again.") from error
    except MemoryError as error:
        raise too_large(source.name) from error
    except OSError as error:
        if isinstance(error, UnreadableError):
            raise
        raise UnreadableError(f"{source.name} can't be read: {error.strerror or error}.") from error


def check_is_text(path: str, file: BinaryIO) -> None:
    """Refuse an empty file and one whose first bytes are not UTF-8 text."""
    begin = file.tell()
    sample = file.read(_SAMPLE_BYTES)
    file.seek(begin)
    for magic, what in _OTHER_FORMATS.items():
        if sample.startswith(magic):
            raise TableError(f"{path} is not a text file but {what}.")
    if sample.startswith(_UTF_16_OR_32) or sample.count(0) > _FEW_ZEROS * len(sample):
        raise TableError(f"{path} is UTF-16 text or a binary file. Save it as UTF-8 text.")
    control = next((at for at, byte in enumerate(sample) if byte in _CONTROL), None) if _has_control(sample) else None
    if control is not None:
        raise TableError(
            f"{path} is not text: line {sample.count(10, 0, control) + 1} has control characters. "
            "Save the table as CSV, in UTF-8."
        )
    if not sample.strip():
        raise TableError(f"{path} is empty. It must have a row of column names and at least one row of values.")


def _has_control(sample: bytes) -> bool:
    return len(sample.translate(None, _CONTROL)) < len(sample)


def text_of(file: BinaryIO) -> io.TextIOWrapper:
    """The rest of the file as text with its own line ends; bytes that are no text become surrogates."""
    return io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="")


def checked_lines(lines: Iterator[str]) -> Iterator[str]:
    """The lines; BadByteError at the first that has a NUL, or a byte that is no text."""
    for line in lines:
        if not line.isascii():
            byte = next((ord(letter) - 0xDC00 for letter in line if 0xDC80 <= ord(letter) <= 0xDCFF), None)
            if byte is not None:
                raise BadByteError(byte)
        if "\0" in line:
            raise BadByteError(0)
        yield line
