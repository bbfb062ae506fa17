"""The ladder of implementations for tensors on a GPU: fused Triton kernels, torch.compile, the plain array API.

The highest rung that the card, the libraries and the size of the data allow is used.  The variable CLOSEFAR_GPU
(fused, compiled or plain) sets the highest rung to try.
"""

from __future__ import annotations

import os
from enum import IntEnum
from importlib.util import find_spec
from typing import Any, NamedTuple

from closefar.arrays import Array, FloatArray, is_indexed, is_on_gpu, is_tensor
from closefar.rows.blocks import BlockRows
from closefar.rows.compiled import CompiledDifferences
from closefar.rows.differences import Differences, FromOrigin
from closefar.rows.graph_rows import GraphRows
from closefar.rows.indexed import IndexedRows
from closefar.rows.source import RowSource

__all__ = ["Rung", "highest_rung", "rows_of"]

VARIABLE = "CLOSEFAR_GPU"

_LEAST_CAPABILITY = (9, 0)  # of the cards that the kernels were written for

# Compiling takes some ten seconds, and saves about a quarter of a pass: with fewer numbers than this, a fit is over
# before that pays off.
_MANY_NUMBERS = 1 << 33


class Rung(IntEnum):
    """The implementations, from the slowest to the fastest."""

    PLAIN = 0
    COMPILED = 1
    FUSED = 2


class Reason(NamedTuple):
    """The highest rung, and why it is not a higher one; empty if it is the highest."""

    rung: Rung
    reason: str


def highest_rung(data: Array) -> Reason:
    """Return the highest rung for a tensor on a GPU, before it is known whether there is a kernel for its shape."""
    import torch

    asked = _asked()
    if asked is not None and asked < Rung.FUSED:
        return Reason(asked, f"{VARIABLE}={asked.name.lower()}")
    if find_spec("triton") is None:
        return Reason(Rung.COMPILED, "Triton is not installed")
    if torch.cuda.get_device_capability(data.device) < _LEAST_CAPABILITY:
        return Reason(Rung.COMPILED, "fused kernels need an H100 or a later card")
    return Reason(Rung.FUSED, "")


def rows_of(data: Any, origin: FloatArray | None = None) -> BlockRows:
    """Return differences, pairs, pairs by index or a source as rows.

    Single points are measured from an origin, if one is given; in the difference of a pair it cancels.
    """
    if is_indexed(data):
        rows = GraphRows.of if is_tensor(data.points) else IndexedRows
        return rows(data.points, data.index)
    if isinstance(data, RowSource) and not isinstance(data, BlockRows):
        raise TypeError(
            f"rows must be readable in blocks to find their coordinates; got {type(data).__name__}. "
            "Derive its class from closefar.rows.BlockRows."
        )
    source = data if isinstance(data, BlockRows) else _differences_of(data)
    has_two_sides = data.ndim == 3 or not getattr(data, "is_single", True)
    return source if origin is None or has_two_sides else FromOrigin(source, origin)


def _differences_of(data: Array) -> Differences:
    """The rows of an array, with passes that are compiled if that pays off."""
    if not is_tensor(data):
        return Differences(data)
    is_asked = _asked() is Rung.COMPILED
    pays_off = is_on_gpu(data) and data.numel() >= _MANY_NUMBERS and highest_rung(data).rung is Rung.COMPILED
    return CompiledDifferences(data) if is_asked or pays_off else Differences(data)


def _asked() -> Rung | None:
    name = os.environ.get(VARIABLE, "")
    if not name:
        return None
    if name.upper() not in Rung.__members__:
        raise ValueError(f"the variable {VARIABLE} must be fused, compiled or plain; got {name!r}.")
    return Rung[name.upper()]
