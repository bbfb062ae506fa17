"""How rows on a GPU get fused passes: set from outside, since rows with fused passes are made of other rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from closefar.arrays import Array
from closefar.rows.source import MarginTerms, RowSource

__all__ = ["Fusing", "current", "fuse_by"]


class Fusing(NamedTuple):
    """How rows on a GPU get fused passes: why they can't, in words or empty, and the rows with them, or why not.

    `has_terms` and `terms` are the same for the likelihood at known squared distances.
    """

    why_not: Callable[[Any], str]
    fuse: Callable[[Any], RowSource | str]
    has_terms: Callable[[Array], bool]
    terms: Callable[..., MarginTerms | None]


_NONE = "no fused kernels"
_current = Fusing(lambda _: _NONE, lambda _: _NONE, lambda _: False, lambda *_: None)


def fuse_by(fusing: Fusing) -> None:
    """Set how rows get fused passes: from outside, since rows with fused passes are made of other rows."""
    global _current
    _current = fusing


def current() -> Fusing:
    return _current
