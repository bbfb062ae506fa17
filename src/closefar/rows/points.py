"""The points that indexed rows are differences of: projected, and pulled back, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import BoolArray, FloatArray, IndexArray
from closefar.rows.blocks import BLOCK_BYTES, KEEP_BYTES
from closefar.rows.coordinates import Coordinates
from closefar.rows.source import slices

__all__ = ["Points"]

_HELD_BYTES = 1 << 26


@dataclass(frozen=True, eq=False)
class Points:
    """Points x, measured from a centre (it cancels in differences, and would cost digits) and then mapped by T.

    Attributes
    ----------
    array : array of shape (n, d)
        As stored: of any precision, or a memory map.
    centre : array of shape (d,), optional
    transform : array of shape (d, r), optional
        T: a point is T'(x - centre).
    numbers : array of int, optional
        The rows of `array` that these points are, where they are not all of them.
    unused : array of bool, optional
        Points that occur in no difference; they count as zero, whatever they are.
    """

    array: NDArray[Any]
    centre: FloatArray | None = None
    transform: FloatArray | None = None
    numbers: IndexArray | None = None
    unused: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.array) if self.numbers is None else len(self.numbers)

    @property
    def n_columns(self) -> int:
        return int(self.array.shape[1] if self.transform is None else self.transform.shape[1])

    def at(self, numbers: IndexArray) -> FloatArray:
        """Return some points without the centre, unmapped, in double precision."""
        chosen = numbers if self.numbers is None else self.numbers[numbers]
        found: FloatArray = self.array[chosen].astype(np.float64, copy=False)
        return found

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Centred points, unmapped, in double precision."""
        for where in slices(len(self), max(1, BLOCK_BYTES // (8 * self.array.shape[1]))):
            yield where, self._read(where) if self._held is None else self._held[where]

    @cached_property
    def _held(self) -> FloatArray | None:
        """All centred points, if they are few."""
        return self._read(slice(0, len(self))) if 8 * len(self) * self.array.shape[1] <= _HELD_BYTES else None

    def _read(self, where: slice) -> FloatArray:
        block = self.array[where if self.numbers is None else self.numbers[where]].astype(np.float64, copy=False)
        block = block if self.centre is None else block - self.centre
        if self.unused is not None and np.any(self.unused[where]):
            block = np.where(self.unused[where, None], 0.0, block)
        return block

    def columns(self, which: slice) -> FloatArray:
        """Return some of the coordinates of each point."""
        if self.transform is not None:
            return self.project(np.eye(self.n_columns)[:, which])
        found = np.empty((len(self), which.stop - which.start))
        for where, block in self.blocks():
            found[where] = block[:, which]
        return found

    def project(self, factor: FloatArray) -> FloatArray:
        """Return A'x of each point: an array of shape (n, k)."""
        factor = factor if self.transform is None else self.transform @ factor
        projections = np.empty((len(self), factor.shape[1]))
        for where, block in self.blocks():
            np.matmul(block, factor, out=projections[where])
        return projections

    def pull(self, values: FloatArray) -> FloatArray:
        """Return sum_i x_i y_i' for values y of shape (n, k)."""
        total = np.zeros((values.shape[1], self.array.shape[1]))
        for where, block in self.blocks():
            total += values[where].T @ block  # faster than the transpose if there are few values
        return total.T if self.transform is None else self.transform.T @ total.T

    def extent(self) -> FloatArray:
        """Return the range of each column, unmapped, over the points that occur."""
        lowest, highest = np.full(self.array.shape[1], np.inf), np.full(self.array.shape[1], -np.inf)
        for where, block in self.blocks():
            block = block if self.unused is None else block[~self.unused[where]]
            lowest = np.minimum(lowest, block.min(axis=0, initial=np.inf))
            highest = np.maximum(highest, block.max(axis=0, initial=-np.inf))
        extent: FloatArray = np.maximum(highest - lowest, 0.0)
        return extent

    def in_coordinates(self, coordinates: Coordinates) -> Points:
        """The same points in other coordinates: kept if they are few, otherwise mapped in each pass."""
        transform = coordinates.transform if self.transform is None else self.transform @ coordinates.transform
        mapped = Points(self.array, self.centre, transform, self.numbers, self.unused)
        if 8 * len(self) * mapped.n_columns > KEEP_BYTES:
            return mapped
        return Points(mapped.columns(slice(0, mapped.n_columns)))

    def take(self, used: BoolArray) -> Points:
        """Some of the points."""
        chosen = np.flatnonzero(used)
        numbers = chosen if self.numbers is None else self.numbers[chosen]
        if self.transform is None and 8 * len(chosen) * self.n_columns <= KEEP_BYTES:
            return Points(self.array[numbers], self.centre)
        return Points(self.array, self.centre, self.transform, numbers)
