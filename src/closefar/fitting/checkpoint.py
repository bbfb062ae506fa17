"""The checkpoint of a fit: a small file, written whole or not at all, from which the fit continues.

It holds numbers and JSON, so that nothing in it is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import numbers
import os
import stat
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from closefar.arrays import Array, as_float64
from closefar.files import check_writable, replace_file
from closefar.fitting.settings import Settings
from closefar.judgements import Columns, Judgements
from closefar.model import Metric
from closefar.noise import get_noise
from closefar.rows import Rows, judged_rows
from closefar.solve import Journal

# ---------------------------------------------------------------------------------------------------------------------
# What a fit is of: its data and settings as numbers, by which the checkpoint of another fit is recognised.


# Sums over the same data may differ by as much: another number of threads adds in another order.
_SAME = 1e-9

_NOT_COMPARED = ("verbose", "max_time")  # the result does not depend on them

# Multiples of the golden ratio spread evenly over [0, 1): each pair gets a weight of its own.
_GOLDEN_RATIO = 0.6180339887498949


def fingerprint(
    judgements: Judgements, settings: Settings, start: Metric | None, columns: Columns | None
) -> dict[str, Any]:
    """The facts that must be the same for a fit to be continued.

    The data are represented by second moments, in which each pair has a weight that depends on its place and label.
    """
    names = None if columns is None or columns.names is None else list(map(str, columns.names))
    return {
        "settings": {name: _plain(name, value) for name, value in settings.parameters.items()},
        "n_pairs": len(judgements),
        "n_columns": judgements.n_columns,
        "names": names,
        "labels": [str(judgements.sides.close), str(judgements.sides.far)],
        "levels": [str(level) for level in judgements.sides.classes] if judgements.sides.is_graded else None,
        "n_comparisons": 0 if judgements.comparisons is None else len(judgements.comparisons),
        "annotators": None if judgements.annotators is None else list(map(str, judgements.annotators.names)),
        "start": None if start is None else np.append(start.factor.ravel(), start.thresholds),
        "moments": _moments(judgements),
    }


def find_difference(here: dict[str, Any], there: dict[str, Any]) -> str | None:
    """The first difference of two fits, in words; `there` is the fit of the checkpoint."""
    for name, value in here["settings"].items():
        before = there["settings"].get(name)
        if name not in _NOT_COMPARED and value != before:
            return f"{name} is {value!r} here and {before!r} in the checkpoint"
    if _size(here) != _size(there):
        return f"it is of {_size(there)}; got {_size(here)}"
    if here["names"] != there["names"]:
        return f"its columns are {_listed(there['names'])}; got {_listed(here['names'])}"
    for name in ("levels", "annotators"):
        if here.get(name) != there.get(name):
            return f"its {name} are {_listed(there.get(name), 'none')}; got {_listed(here.get(name), 'none')}"
    if here["labels"] != there["labels"]:
        return f"its labels for close and far are {' and '.join(there['labels'])}; got {' and '.join(here['labels'])}"
    if not _are_close(here["moments"], there["moments"]):
        return "the pairs, labels or weights, or their order, have changed"
    if not _is_same_start(here["start"], there["start"]):
        return "it started from another metric (warm_start)"
    return None


def _plain(name: str, value: Any) -> Any:
    if name == "noise":
        noise = value if isinstance(value, str) and value == "auto" else get_noise(value)
        return noise if isinstance(noise, str) else repr(noise) if vars(noise) else noise.name
    if isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    return value if value is None or isinstance(value, bool | str) else repr(value)


def _moments(judgements: Judgements) -> Any:
    source = judged_rows(judgements)
    arrays = [source.row_numbers(), _labels_in(source, judgements), judgements.shares_in(source)]
    if judgements.annotators is not None:
        arrays.append(judgements.groups_in(source))
    with np.errstate(all="ignore"):  # columns in extreme units, whose squares overflow
        return source.outer(source.map(_own_weights, *arrays))


def _labels_in(source: Rows, judgements: Judgements) -> Array:
    """One number for each kind of label, as a handle: -1 and +1, or -1, 1, 3, ... if there are more kinds."""
    if judgements.levels is None and judgements.comparisons is None:
        return judgements.signs_in(source)
    return source.map(_odd, judgements.codes_in(source))


def _odd(codes: Array) -> Array:
    return 2.0 * as_float64(codes) - 1.0


def _own_weights(numbers: Array, labels: Array, shares: Array, annotators: Array = None) -> Array:
    spread = array_namespace(numbers).remainder(numbers * _GOLDEN_RATIO, 1.0)
    own = spread + (as_float64(labels) + 2.0)
    return (own if annotators is None else own + _GOLDEN_RATIO * as_float64(annotators)) * shares


def _are_close(here: Any, there: Any) -> bool:
    with np.errstate(all="ignore"):
        scale = np.sqrt(np.abs(np.diag(there)))
        return not np.any(np.abs(here - there) > _SAME * np.outer(scale, scale))


def _is_same_start(here: Any, there: Any) -> bool:
    if here is None or there is None:
        return here is None and there is None
    return here.shape == there.shape and bool(np.allclose(here, there, rtol=_SAME, atol=0.0))


def _size(facts: dict[str, Any]) -> str:
    more = f" and {facts['n_comparisons']:,} comparisons" if facts.get("n_comparisons") else ""
    return f"{facts['n_pairs']:,} pairs of {facts['n_columns']} columns{more}"


def _listed(names: list[str] | None, otherwise: str = "without names") -> str:
    return otherwise if names is None else ", ".join(names)


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
