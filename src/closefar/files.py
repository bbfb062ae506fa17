"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

__all__ = ["replace_file"]


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a failure, sees the old one or the whole new one."""
    temporary = path.with_name(f".closefar-{secrets.token_hex(8)}.tmp")
    try:
        file = open(temporary, "xb")  # noqa: SIM115 - the with statement follows
    except OSError as error:
        raise OSError(f"can't write {path}: {error.strerror}. Check that the folder exists and is writable.") from error
    try:
        with file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
