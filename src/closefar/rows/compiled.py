"""Differences on a GPU whose passes torch.compile makes of fewer kernels."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

from closefar.arrays import Array, engine_of
from closefar.rows.differences import Differences

__all__ = ["CompiledDifferences", "first_line"]


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
