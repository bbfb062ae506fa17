"""The checkpoint of a fit: a small file, written whole or not at all, from which the fit continues.

It holds numbers and JSON, so that nothing in it is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from closefar.files import check_writable, replace_file
from closefar.fitting.fingerprint import find_difference
from closefar.solve import Journal

__all__ = ["Checkpoint"]

FORMAT_VERSION = 1
INTERVAL = 1.0  # seconds between two writes, at least

_SHARE_OF_TIME = 0.05  # that writing may take
_MAX_BYTES = 1 << 32
_KEY = "closefar-checkpoint"
_ARRAY = "#array"
_LENGTH_BYTES = 8  # safetensors begins with the length of its header

_REMEDY = "Remove it to begin again, or choose another name."


class Checkpoint:
    """The file of a fit at a path: what it held, and what the fit has come to since.

    It is refused at once if it can't be written, or is something else.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        check_writable(self.path)
        self._held = _read(self.path) if self.path.exists() else None
        self._facts: dict[str, Any] = {}
        self._journal: Journal | None = None
        self._is_complete = False
        self._is_new = True  # something is to be written
        self._due = 0.0
        self._has_warned = False

    def journal_of(self, facts: dict[str, Any]) -> Journal:
        """The journal from which the fit with this fingerprint continues."""
        held, self._facts = self._held, facts
        difference = None if held is None else find_difference(facts, held["facts"])
        if difference is not None:
            raise ValueError(
                f"{self.path} is the checkpoint of another fit: {difference}. Use the same data and settings to "
                f"continue that fit, or another checkpoint."
            )
        self._due = time.monotonic() + INTERVAL
        if held is None:
            self._journal = Journal(self._write_if_due)
        else:
            self._is_complete, self._is_new = held["is_complete"], False
            self._journal = Journal(self._write_if_due, held["ended"], held["under_way"])
        self._held = None
        return self._journal

    @property
    def sentence(self) -> str | None:
        """What is continued, before it is; None if the fit is new."""
        journal = self._journal
        if journal is None or (not journal.ended and journal.under_way is None):
            return None
        if self._is_complete:
            return f"{self.path} holds this fit: only its result is computed again"
        step = "" if journal.under_way is None else f", and from step {journal.under_way['iteration']} of the next"
        return f"continuing from {self.path}: {len(journal.ended)} computations are done{step}"

    def write(self, *, is_complete: bool = False) -> None:
        """Write what is not written yet."""
        if self._journal is not None and (self._is_new or is_complete != self._is_complete):
            self._is_complete = is_complete
            self._write(self._journal)

    def _write_if_due(self, journal: Journal) -> None:
        self._is_new, self._is_complete = True, False
        if time.monotonic() >= self._due:
            self._write(journal)

    def _write(self, journal: Journal) -> None:
        begun = time.monotonic()
        held = {
            "facts": self._facts,
            "ended": journal.ended,
            "under_way": journal.under_way,
            "is_complete": self._is_complete,
        }
        try:
            replace_file(self.path, _encode(held))
            self._is_new = False
        except OSError as error:
            if not self._has_warned:
                warnings.warn(f"{error} The fit goes on without it.", UserWarning, stacklevel=2)
            self._has_warned = True
        now = time.monotonic()
        self._due = now + max(INTERVAL, (now - begun) / _SHARE_OF_TIME)


def _encode(held: dict[str, Any]) -> bytes:
    arrays: dict[str, Any] = {}
    text = json.dumps({"format_version": FORMAT_VERSION, **held}, default=lambda value: _named(value, arrays))
    header = json.dumps({"content": text, "checksum": _checksum(text, arrays)})
    content: bytes = save_tensors(arrays, metadata={_KEY: header})
    return content


def _named(value: Any, arrays: dict[str, Any]) -> Any:
    """The name of an array, which is written beside the text."""
    if isinstance(value, np.ndarray):
        # In the same order in memory: that of the additions in a product depends on it.
        is_turned = value.ndim == 2 and value.flags.f_contiguous and not value.flags.c_contiguous
        name = str(len(arrays))
        arrays[name] = np.ascontiguousarray(value.T if is_turned else value, dtype="<f8")
        return {_ARRAY: name, "is_turned": is_turned}
    return value.item()  # a number of NumPy


def _read(path: Path) -> dict[str, Any]:
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):  # reading a pipe would block
        raise ValueError(f"{path} is not a regular file, so it can't be a checkpoint. Choose another name.")
    if status.st_size > _MAX_BYTES:
        raise ValueError(f"{path} is not a closefar checkpoint, which is smaller. Choose another name.")
    content = path.read_bytes()
    try:
        text, checksum = _header(content)
        arrays = load_tensors(content)
        if checksum != _checksum(text, arrays):
            raise ValueError("its checksum does not match its content")
        held: dict[str, Any] = json.loads(text, object_hook=lambda found: _filled(found, arrays))
        found = held["format_version"]
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a closefar checkpoint, or it is damaged ({error}). {_REMEDY}") from error
    if found != FORMAT_VERSION:
        raise ValueError(
            f"{path} is a checkpoint of format {found}, and this version of closefar continues format "
            f"{FORMAT_VERSION}. Use the version that wrote it. {_REMEDY}"
        )
    return held


def _header(content: bytes) -> tuple[str, str]:
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    if not content:
        raise ValueError("it is empty")
    header = json.loads(json.loads(content[_LENGTH_BYTES : _LENGTH_BYTES + length])["__metadata__"][_KEY])
    return header["content"], header["checksum"]


def _filled(found: dict[str, Any], arrays: dict[str, Any]) -> Any:
    if _ARRAY not in found:
        return found
    array = np.array(arrays[found[_ARRAY]])
    return array.T if found["is_turned"] else array


def _checksum(text: str, arrays: dict[str, Any]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(f"{name!a} {arrays[name].shape} ".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()
