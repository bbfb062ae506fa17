"""Writing files whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

__all__ = ["Content", "check_writable", "is_device", "replace_file", "replace_files", "staged_files"]

# The bytes of a file, or a function that writes them piece by piece.
Content = bytes | Callable[[IO[bytes]], None]

_ADVICE = "Check that the folder exists and is writable, and that the disk has room."


def is_device(path: Path) -> bool:
    """Whether a path is a device or a pipe, such as /dev/null: something to write to that can't be replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def check_writable(path: Path) -> None:
    """Raise the error that writing there would meet, before the work that leads to it is done."""
    target = _target(path)
    if target.is_symlink() and not is_device(target):
        raise OSError(f"can't write {path}: it is a link to itself. Remove it, or choose another name.")
    if target.is_dir():
        raise IsADirectoryError(f"can't write {path}: it is a folder. Name a file in it.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"can't write {path}: no such folder. {_ADVICE}")
    needed = [target] if is_device(target) else [target.parent, *([target] if target.exists() else [])]
    if not all(os.access(place, os.W_OK) for place in needed):
        raise PermissionError(f"can't write {path}: permission denied. {_ADVICE}")


def replace_file(path: Path, content: Content) -> None:
    """Write a file so that a reader, or a failure, sees the old one or the whole new one."""
    replace_files({path: content})


def replace_files(contents: Mapping[Path, Content]) -> None:
    """Write several files, all of them or none: each is on the disk whole before the first takes its place."""
    with staged_files(contents) as put_in_place:
        put_in_place()


@contextlib.contextmanager
def staged_files(contents: Mapping[Path, Content]) -> Iterator[Callable[[], None]]:
    """Write each to a temporary file beside its target; gives the function that puts all of them in place.

    Temporary files are removed on leaving.
    """
    targets = {path: _target(path) for path in contents}
    devices = {path: target for path, target in targets.items() if is_device(target)}
    staged: dict[Path, Path] = {}
    with contextlib.ExitStack() as stack:
        for path, content in contents.items():
            check_writable(path)
            if path in devices:
                continue
            staged[path] = targets[path].parent / f".closefar-{secrets.token_hex(8)}.tmp"
            stack.callback(staged[path].unlink, missing_ok=True)
            with _errors_naming(path), open(staged[path], "xb") as file:
                _write(file, content)
                os.fsync(file.fileno())
            if targets[path].exists():
                shutil.copymode(targets[path], staged[path])

        def put_in_place() -> None:
            for path, device in devices.items():
                with _errors_naming(path), open(device, "wb") as file:
                    _write(file, contents[path])
            for path, temporary in staged.items():
                os.replace(temporary, targets[path])

        yield put_in_place


def _target(path: Path) -> Path:
    """What is written: through a link, which stays one; that of a pipe, such as /dev/fd/63, leads to no path."""
    return path if is_device(path) else Path(os.path.realpath(path))


def _write(file: IO[bytes], content: Content) -> None:
    if isinstance(content, bytes):
        file.write(content)
    else:
        content(file)
    file.flush()


@contextlib.contextmanager
def _errors_naming(path: Path) -> Iterator[None]:
    """Name the file that can't be written; an error of a file that its content is made from names that one."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ValueError):
            raise
        raise type(error)(f"can't write {path}: {error.strerror}. {_ADVICE}") from error
