"""Rows as kernels read them: two planes of float16 numbers, or as they are stored in single precision.

In planes, z 2^e = high + low has 22 bits in the four bytes of single precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.rows.blocks import BlockRows

__all__ = ["Planes", "StoredRows", "as_stored", "make_planes"]

# The largest entry becomes at most this: products with the coefficients of a pass, which are at most 1, stay below the
# largest float16 number, 65,504.
_LARGEST = 2.0**14

# Beyond this many times the root mean square of the rows, which is about 1 in unit-free coordinates, the low parts of
# usual entries would be lost among the smallest float16 numbers.
_MOST_RANGE = 2.0**17

_USUAL_RANGE = 2.0**5
_ALIGNED = 8  # columns: the copy engine moves multiples of 16 bytes


@dataclass(frozen=True, eq=False)
class Planes:
    """The high and the low parts of rows times `unit`, each of shape (n, d), with d rounded up.

    `shrunk` is the share by which forms come out too small, since tensor cores truncate.
    """

    high: Array
    low: Array
    unit: float
    n_columns: int
    shrunk: float = 0.0
    _descriptors: dict[Any, Any] = field(default_factory=dict)

    are_planes: ClassVar[bool] = True

    @property
    def array(self) -> Array:
        return self.high

    def first(self, n: int) -> Planes:
        return Planes(self.high[:n], self.low[:n], self.unit, self.n_columns)

    def arguments(self, box: tuple[int, int]) -> tuple[Any, Any, Array]:
        """The first arguments of a kernel: descriptors with which the copy engine reads blocks of this shape."""
        return self._described("high", box), self._described("low", box), self.high

    def _described(self, part: str, box: tuple[int, int]) -> Any:
        from triton.tools.tensor_descriptor import TensorDescriptor

        if (part, box) not in self._descriptors:
            self._descriptors[part, box] = TensorDescriptor.from_tensor(getattr(self, part), list(box))
        return self._descriptors[part, box]


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows as they are stored, of shape (n, d), with a power of two for each column that float16 numbers suit."""

    array: Array
    scales: Array
    shrunk: float = 0.0

    unit: ClassVar[float] = 1.0
    are_planes: ClassVar[bool] = False

    @property
    def n_columns(self) -> int:
        return int(self.array.shape[1])

    def first(self, n: int) -> StoredRows:
        return StoredRows(self.array[:n], self.scales)

    def arguments(self, box: tuple[int, int]) -> tuple[Any, Any, Array]:
        """The first arguments of a kernel."""
        return self.array, self.array, self.scales


def as_stored(array: Array, usual: FloatArray) -> StoredRows | None:
    """The rows of a tensor, given the root mean square of each column; None if some are far larger."""
    import torch

    largest = torch.maximum(array.max(dim=0).values, -array.min(dim=0).values).double().cpu().numpy()
    varies = largest > 0.0
    if np.any(largest[varies] > _MOST_RANGE * usual[varies]):
        return None
    scales = np.ones(len(largest))
    scales[varies] = 2.0 ** np.floor(np.log2(_LARGEST / largest[varies]))
    return StoredRows(array, torch.from_numpy(scales.astype(np.float32)).to(array.device))


def make_planes(source: BlockRows) -> Planes | None:
    """Split rows in two; None if some are so large that float16 numbers can't hold the others precisely."""
    unit = _LARGEST / _USUAL_RANGE
    planes, largest = _split(source, unit)
    if largest <= _USUAL_RANGE:
        return planes if largest > 0.0 else None
    del planes  # before others take its place
    return _split(source, 2.0 ** math.floor(math.log2(_LARGEST / largest)))[0] if largest <= _MOST_RANGE else None


def _split(source: BlockRows, unit: float) -> tuple[Planes, float]:
    """The planes of rows in this unit, and their largest entry, with which the planes may not be valid."""
    import torch

    n, d = source.shape
    width = -(-d // _ALIGNED) * _ALIGNED
    high = torch.zeros(n, width, dtype=torch.float16, device=source.model.device)
    low = torch.zeros_like(high)
    largest = []
    for where, block in source.blocks():
        scaled = block.T * unit
        part = scaled.to(torch.float16)
        high[where, :d] = part
        low[where, :d] = (scaled - part).to(torch.float16)
        largest.append(scaled.abs().max())
    return Planes(high, low, unit, d), float(torch.stack(largest).max()) / unit
