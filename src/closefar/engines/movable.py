"""Values that move between processes, and have the same layout in memory afterwards.

Arrays that arrive over a network may begin at any address; NumPy then multiplies them without BLAS, and rounds
differently.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Movable", "moved", "settled"]

_DEPTH = 3  # of attributes in which arrays are looked for


class Movable:
    """A value whose arrays are in aligned memory wherever it arrives: it travels as bytes."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _arrived, (type(self), _packed(vars(self)))


def moved(value: Any) -> Any:
    """Return the value as it arrives in another process: a copy whose arrays are contiguous."""
    return pickle.loads(_packed(value))


def settled(value: Any) -> Any:
    """Return the value itself or, if its arrays are not laid out as those that arrive elsewhere, as it arrives."""
    return value if _is_plain(value, _DEPTH) else moved(value)


def _is_plain(value: Any, depth: int) -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.flags.aligned and (value.flags.c_contiguous or value.flags.f_contiguous))
    within = vars(value).values() if depth and hasattr(value, "__dict__") else ()
    return all(_is_plain(each, depth - 1) for each in within)


def _packed(value: Any) -> bytes:
    import cloudpickle  # of Dask, which moves values, and functions that are defined anywhere

    packed: bytes = cloudpickle.dumps(value, protocol=5)
    return packed


def _arrived(kind: type, state: bytes) -> Any:
    value: Any = object.__new__(kind)
    vars(value).update(pickle.loads(state))
    return value
