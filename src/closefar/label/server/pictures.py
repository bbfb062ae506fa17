"""Files that cells name: pictures below the folder of the table, and nothing else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"

_LARGEST = 32 * 2**20

# How a file of each type begins; a page in a file that is named .png is not shown as one.
_TYPES = {
    ".png": ("image/png", (b"\x89PNG\r\n\x1a\n",)),
    ".jpg": ("image/jpeg", (b"\xff\xd8\xff",)),
    ".jpeg": ("image/jpeg", (b"\xff\xd8\xff",)),
    ".gif": ("image/gif", (b"GIF87a", b"GIF89a")),
    ".webp": ("image/webp", (b"RIFF",)),
}
PICTURE_SUFFIXES = tuple(_TYPES)


def find_picture(folder: Path, cell: str) -> tuple[bytes, str] | None:
    """Return the content and the type of the picture that a cell names, or None if there is none that may be shown.

    Parameters
    ----------
    folder : Path
        The folder of the table; a file that lies elsewhere, also by a link, is not shown.
    cell : str
        The path of the file from there.
    """
    place = _place(folder, cell)
    kind = None if place is None else _TYPES.get(place.suffix.lower())
    if place is None or kind is None:
        return None
    content = _read(place)
    if content is None or not content.startswith(kind[1]):
        return None
    return None if kind[0] == "image/webp" and content[8:12] != b"WEBP" else (content, kind[0])


def _place(folder: Path, cell: str) -> Path | None:
    try:
        base = folder.resolve(strict=True)
        place = (base / cell).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):  # not there, a null byte, a link to itself
        return None
    return place if place.is_relative_to(base) else None


def _read(place: Path) -> bytes | None:
    """The content of a regular file; a pipe is not waited for."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(place, flags)
    except OSError:
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            return None
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(_LARGEST)
    finally:
        os.close(handle)
