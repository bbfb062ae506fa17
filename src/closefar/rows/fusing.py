"""How rows on a GPU get fused passes: set from outside, since rows with fused passes are made of other rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

from closefar.arrays import Array, FloatArray, engine_of, is_on_gpu
from closefar.noise import Noise
from closefar.rows.source import MarginTerms, RowSource

__all__ = ["AsStored", "Fusable", "Fusing", "fuse_by"]


class Fusing(NamedTuple):
    """How rows on a GPU get fused passes.

    `why_not_here` says why a device has none, and `why_not` why some rows have none: nothing, if they have; `fuse`
    returns the rows with fused passes, or why that failed; `terms` computes `margin_terms`.
    """

    why_not_here: Callable[[Array], str]
    why_not: Callable[[Any], str]
    fuse: Callable[[Any], RowSource | str]
    terms: Callable[..., MarginTerms | None]


_NONE = "no fused kernels"
_current = Fusing(lambda _: _NONE, lambda _: _NONE, lambda _: _NONE, lambda *_: None)


def fuse_by(fusing: Fusing) -> None:
    """Set how rows get fused passes: from outside, since rows with fused passes are made of other rows."""
    global _current
    _current = fusing


class AsStored(NamedTuple):
    """Rows as they are stored: an array of shape (n, d), the map to coordinates, and the usual size of each column."""

    array: Array
    transform: FloatArray
    scales: FloatArray


class Fusable(RowSource):
    """Rows that may have fused passes, if they are on a GPU."""

    @property
    def as_stored(self) -> AsStored | None:
        """The rows as they are stored, if that is in single precision and sums over them may be mapped."""
        return None

    @property
    @abstractmethod
    def model(self) -> Array:
        """An array without rows, in the library, on the device and of the precision of those that are read."""

    @cached_property
    def rough(self) -> RowSource:
        return self if self.fused is None else self.fused

    @cached_property
    def has_kernels(self) -> bool:
        return is_on_gpu(self.model) and not _current.why_not_here(self.model)

    @property
    def can_fuse(self) -> bool:
        return is_on_gpu(self.model) and not _current.why_not(self)

    def margin_terms(
        self, noise: Noise, squared: Array, signs: Array, weights: Array, threshold: float, order: int
    ) -> MarginTerms | None:
        return _current.terms(noise, squared, signs, weights, threshold, order) if self.has_kernels else None

    @property
    def fused(self) -> RowSource | None:
        """The same rows with fused passes, if they are on a GPU that has kernels for them."""
        return None if isinstance(self._offer, str) else self._offer

    @cached_property
    def _offer(self) -> RowSource | str:
        """The same, or why there are none."""
        if not is_on_gpu(self.model):
            return ""
        return _current.why_not(self) or _current.fuse(self)

    @property
    def engine(self) -> str:
        offer: RowSource | str = vars(self).get("_offer", "")  # if no pass needed it, it was not made
        if not isinstance(offer, str):
            return offer.engine
        return self.engine_unfused + (f" ({offer})" if offer else "")

    @property
    def engine_unfused(self) -> str:
        """What computes the passes that are not fused."""
        return engine_of(self.model) + (", plain array API" if is_on_gpu(self.model) else "")
