"""Rows as two planes of float16 numbers, z 2^e = high + low: 22 bits in the four bytes of single precision."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from closefar.arrays import Array
from closefar.rows.blocks import BlockRows

__all__ = ["Planes", "make_planes"]

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

    def described(self, part: str, box: tuple[int, int]) -> Any:
        """The descriptor with which the copy engine reads blocks of this shape."""
        from triton.tools.tensor_descriptor import TensorDescriptor

        if (part, box) not in self._descriptors:
            self._descriptors[part, box] = TensorDescriptor.from_tensor(getattr(self, part), list(box))
        return self._descriptors[part, box]


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
