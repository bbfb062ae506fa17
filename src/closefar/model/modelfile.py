"""The model file: safetensors with a JSON header, a version and a checksum.

It is written to a temporary file and moved into place, so a reader sees either the old file or
the complete new one.  Reading parses numbers and JSON only; nothing is ever executed.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from closefar.arrays import FloatArray
from closefar.files import is_device, replace_file

FORMAT_VERSION = 3  # of the files that this version writes, and reads
_MAX_BYTES = 1 << 30  # what a metric of 8,000 columns and full rank takes
_KEY = "closefar"


class ModelFileError(ValueError):
    """The file is not a model that this version of closefar can read.

    Examples
    --------
    >>> import tempfile
    >>> import closefar as cf
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     try:
    ...         cf.load(file.name)
    ...     except cf.ModelFileError as error:
    ...         print(str(error).removeprefix(f"{file.name} ").partition(" (")[0])
    is not a closefar model, or it is damaged
    """


def write(path: str | Path, arrays: dict[str, FloatArray], header: dict[str, Any]) -> None:
    """Write float64 arrays and a JSON header; an existing file is replaced in one step."""
    replace_file(Path(path), encode(arrays, header))


def encode(arrays: dict[str, FloatArray], header: dict[str, Any]) -> bytes:
    """Return the content of a model file."""
    arrays = {name: np.ascontiguousarray(array, dtype="<f8") for name, array in arrays.items()}
    header = {"format_version": FORMAT_VERSION, "library_version": version("closefar"), **header}
    text = json.dumps({**header, "checksum": _checksum(arrays, header)}, sort_keys=True)
    content: bytes = save_tensors(arrays, metadata={_KEY: text})
    return content


def read(
    path: str | Path, *, required: dict[str, int], optional: dict[str, int]
) -> tuple[dict[str, FloatArray], dict[str, Any]]:
    """Read and verify a file; the arrays must have the given names and numbers of dimensions."""
    file = Path(path)
    if is_device(file):  # reading a pipe would block
        raise ModelFileError(f"{path} is not a regular file, so it is not a closefar model.")
    size = file.stat().st_size
    if size > _MAX_BYTES:
        raise ModelFileError(f"{path} is not a closefar model, which has at most {_MAX_BYTES} bytes; got {size}.")
    content = file.read_bytes()
    try:
        length = int.from_bytes(content[:8], "little")  # safetensors begins with the length of its header
        header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][_KEY])
        found, checksum = header["format_version"], header.pop("checksum", None)
        if type(found) is not int:
            raise ValueError("its format version is not a number")
        arrays = load_tensors(content) if found == FORMAT_VERSION else {}  # another format may be anything
        if any(array.dtype != np.dtype("<f8") for array in arrays.values()):
            raise ValueError("its arrays are not float64")
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFileError(f"{path} is not a closefar model, or it is damaged ({error}). Save it again.") from error
    if found != FORMAT_VERSION:
        remedy = "Upgrade closefar" if found > FORMAT_VERSION else "Fit it again, or use the version that wrote it"
        raise ModelFileError(
            f"{path}: model format {found}, written by closefar {header.get('library_version')}; this version reads "
            f"format {FORMAT_VERSION}. {remedy}."
        )
    if checksum != _checksum(arrays, header):
        raise ModelFileError(f"{path} is damaged: its checksum does not match its content. Save it again.")
    allowed = {**required, **optional}
    shapes = {name: array.ndim for name, array in arrays.items()}
    if not required.keys() <= shapes.keys() or any(allowed.get(name) != axes for name, axes in shapes.items()):
        raise ModelFileError(f"{path} must contain the arrays {required}, optionally {optional}; got {shapes}.")
    return arrays, header


def check(holds: bool, name: str) -> None:
    """Refuse a part of a header that is not of its type."""
    if not holds:
        raise ValueError(f"its {name} has the wrong type")


def _checksum(arrays: dict[str, FloatArray], header: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name!a} {arrays[name].shape} ".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()
