"""Writing files whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

__all__ = ["check_writable", "replace_file", "replace_files"]

_ADVICE = "Check that the folder exists and is writable, and that the disk has room."


def check_writable(path: Path) -> None:
    """Raise the error that writing there would meet, before the work that leads to it is done."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"can't write {path}: it is a folder. Name a file in it.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"can't write {path}: no such folder. {_ADVICE}")
    if not os.access(target if target.exists() else target.parent, os.W_OK) or not os.access(target.parent, os.W_OK):
        raise PermissionError(f"can't write {path}: permission denied. {_ADVICE}")


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a failure, sees the old one or the whole new one."""
    replace_files({path: content})


def replace_files(contents: Mapping[Path, bytes]) -> None:
    """Write several files, all of them or none: each is on the disk whole before the first takes its place."""
    written: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            check_writable(path)
            target = Path(os.path.realpath(path))  # through a link, which stays one
            if target.exists() and not target.is_file():
                _write(path, target, content, "wb")  # a device or a pipe can't be replaced
            else:
                temporary = target.with_name(f".closefar-{secrets.token_hex(8)}.tmp")
                written[temporary] = target
                _write(path, temporary, content, "xb")
                if target.exists():
                    shutil.copymode(target, temporary)
        for temporary, target in written.items():
            os.replace(temporary, target)
    except BaseException:
        for temporary in written:
            temporary.unlink(missing_ok=True)
        raise


def _write(path: Path, place: Path, content: bytes, mode: str) -> None:
    try:
        with open(place, mode) as file:
            file.write(content)
            file.flush()
            if mode == "xb":
                os.fsync(file.fileno())
    except OSError as error:
        raise type(error)(f"can't write {path}: {error.strerror}. {_ADVICE}") from error
