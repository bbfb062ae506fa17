"""The ladder of implementations for tensors on a GPU: fused Triton kernels, torch.compile, the plain array API.

The highest rung that the card, the libraries and the size of the data allow is used.  The variable CLOSEFAR_GPU
(fused, compiled or plain) sets the highest rung to try.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from importlib.util import find_spec
from typing import Any

from closefar.arrays import Array, engine_of, is_indexed, is_on_gpu, is_tensor
from closefar.rows.blocks import BlockRows, Differences, Fusing, fuse_by
from closefar.rows.graph_rows import GraphRows
from closefar.rows.indexed import IndexedRows
from closefar.rows.source import MarginTerms, RowSource

# ---------------------------------------------------------------------------------------------------------------------
# Differences on a GPU whose passes torch.compile makes of fewer kernels.


class CompiledDifferences(Differences):
    """The rows of a tensor; if compilation fails they are computed with as they are, and `engine` says why."""

    def __init__(self, data: Array) -> None:
        super().__init__(data)
        self._failure: str | None = None

    @property
    def engine_unfused(self) -> str:
        how = "torch.compile" if self._failure is None else f"plain array API (torch.compile failed: {self._failure})"
        return f"{engine_of(self.model)}, {how}"

    def forms_of(self, block: Array, matrix: Array) -> Array:
        found = self._try(_forms, block, matrix)
        return super().forms_of(block, matrix) if found is None else found

    def outer_of(self, block: Array, coefficients: Array) -> Array:
        found = self._try(_outer, block, coefficients)
        return super().outer_of(block, coefficients) if found is None else found

    def _try(self, function: Callable[..., Array], *arrays: Array) -> Array | None:
        if self._failure is not None:
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the compiler, about its own settings
                return _compiled(function)(*arrays)
        except Exception as error:  # of the compiler, or of a compiler that it calls: of any kind
            self._failure = first_line(error)
            return None


def first_line(error: Exception) -> str:
    """Return the kind of an error, and the first line of what it says."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"


def _forms(block: Array, matrix: Array) -> Array:
    return ((matrix @ block) * block).sum(dim=0)


def _outer(block: Array, coefficients: Array) -> Array:
    return block @ (block * coefficients.to(block.dtype)).T


@cache
def _compiled(function: Callable[..., Array]) -> Any:
    import torch

    return torch.compile(function, dynamic=True)


VARIABLE = "CLOSEFAR_GPU"

_LEAST_CAPABILITY = (9, 0)  # of the cards that the kernels were written for
_MOST_COLUMNS = 128

# Compiling takes some ten seconds, and saves about a quarter of a pass: with fewer numbers than this, a fit is over
# before that pays off.
_MANY_NUMBERS = 1 << 33


class Rung(IntEnum):
    """The implementations, from the slowest to the fastest."""

    PLAIN = 0
    COMPILED = 1
    FUSED = 2


def why_not_fused(rows: BlockRows) -> str:
    """Why these rows can't have fused passes: the variable, the libraries, the card, the columns; empty if they can."""
    if rows.n_columns > _MOST_COLUMNS:
        return f"fused kernels have up to {_MOST_COLUMNS} columns"
    return _why_not_here(rows.model)


def _why_not_here(model: Array) -> str:
    asked = _asked()
    if asked is not None and asked < Rung.FUSED:
        return f"{VARIABLE}={asked.name.lower()}"
    if not is_tensor(model):
        return "fused kernels need torch"
    if find_spec("triton") is None:
        return "fused kernels need Triton, which is not installed"
    import torch

    if torch.version.cuda is None or torch.cuda.get_device_capability(model.device) < _LEAST_CAPABILITY:
        return "fused kernels need an NVIDIA H100 or a later card"
    return _why_no_compiler()


@cache
def _why_no_compiler() -> str:
    """Why Triton can't compile kernels here: it needs a C compiler, for one; empty if it can."""
    from triton.runtime import driver

    try:
        driver.active.get_current_target()
    except Exception as error:  # of Triton, or of a compiler that it calls: of any kind
        return f"Triton can't compile fused kernels: {first_line(error)}"
    return ""


def fuse(rows: BlockRows) -> RowSource | str:
    """Return the same rows with fused passes or, if there are none, the reason."""
    import torch
    from triton.runtime.errors import OutOfResources

    from closefar.rows.cuda import fused_graph, fused_rows

    try:
        fused = fused_graph(rows) if isinstance(rows, GraphRows) else fused_rows(rows)
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        return "fused kernels need more memory than the card has left"
    except OutOfResources:
        return "fused kernels need more shared memory than this card has"
    return "these rows differ too much in size for fused kernels" if fused is None else fused


def _terms(*arguments: Any) -> MarginTerms | None:
    from closefar.rows.cuda import fused_terms

    return fused_terms(*arguments)


fuse_by(Fusing(_why_not_here, why_not_fused, fuse, _terms))


def rows_here(data: Any) -> BlockRows:
    """Return differences, pairs, pairs by index or a source as rows, in the process that has them in memory."""
    if is_indexed(data):
        rows = GraphRows.of if is_tensor(data.points) else IndexedRows
        return rows(data.points, data.index)
    if isinstance(data, RowSource) and not isinstance(data, BlockRows):
        raise TypeError(
            f"rows must be readable in blocks to find their coordinates; got {type(data).__name__}. "
            "Derive its class from closefar.rows.BlockRows."
        )
    return data if isinstance(data, BlockRows) else _differences_of(data)


def _differences_of(data: Array) -> Differences:
    """The rows of an array, with passes that are compiled if that pays off."""
    if not is_tensor(data):
        return Differences(data)
    asked = _asked()
    is_large = is_on_gpu(data) and data.numel() >= _MANY_NUMBERS and asked is not Rung.PLAIN
    is_compiled = asked is Rung.COMPILED or (is_large and _why_not_here(data) != "")
    return CompiledDifferences(data) if is_compiled else Differences(data)


def _asked() -> Rung | None:
    name = os.environ.get(VARIABLE, "")
    if not name:
        return None
    if name.upper() not in Rung.__members__:
        raise ValueError(f"the variable {VARIABLE} must be fused, compiled or plain; got {name!r}.")
    return Rung[name.upper()]
