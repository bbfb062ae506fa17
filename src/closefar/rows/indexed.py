"""Pairs given by index: points are projected once, and the sums over pairs are Laplacians of the points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import BoolArray, FloatArray, IndexArray
from closefar.rows.blocks import BLOCK_BYTES, KEEP_BYTES, BlockRows
from closefar.rows.source import PART_ROWS, Coordinates, Pulling, slices

# ---------------------------------------------------------------------------------------------------------------------
# The points that indexed rows are differences of: projected, and pulled back, block by block.


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


_COLUMNS = 64  # of projections at a time: those of all points, and of a block of pairs, stay in cache
_GATHERED_BYTES = 1 << 19
_FEWEST_SUMMED, _MOST_SUMMED = 1 << 18, 1 << 21  # pairs in one sparse matrix
_MOMENT_BYTES = 1 << 26
_SAMPLED = 1 << 10
_FEW_PER_POINT = 4


class IndexedRows(BlockRows):
    """The differences x_i - x_j of points, for each (i, j) of an index of shape (n, 2).

    The projections of all points are P = XA.  The squared distance of a pair is |P_i - P_j|^2, and a
    sum over pairs is X'LP, where L is the Laplacian of the coefficients.  That is O(n k) for the pairs
    and O(n_points d k) for the points.

    Parameters
    ----------
    points : array of shape (n_points, d), or Points
    index : array of int, of shape (n, 2)
    """

    def __init__(self, points: NDArray[Any] | Points, index: IndexArray) -> None:
        if not isinstance(points, Points):
            points, index = _occurring(Points(points, _centre(points, index)), index)
        super().__init__(len(index), points.n_columns)
        self._points = points
        self._index = index

    @property
    def n_projected(self) -> int:
        return len(self._points)

    def read(self, where: slice) -> FloatArray:
        left, right = self._index[where].T
        differences = self._points.at(left) - self._points.at(right)
        transform = self._points.transform
        return differences.T if transform is None else transform.T @ differences.T

    def spanning(self) -> FloatArray | None:
        if 2 * len(self._points) > self.n_columns or self._points.transform is not None:
            return None
        used = np.unique(self._index)
        points = self._points.at(used)
        return np.asarray(points - points.mean(axis=0), dtype=np.float64)

    def take_rows(self, indices: IndexArray) -> IndexedRows:
        return IndexedRows(*_occurring(self._points, self._index[indices]))

    def in_coordinates(self, coordinates: Coordinates) -> BlockRows:
        takes_little = 8 * self.n_rows * coordinates.n_directions <= KEEP_BYTES
        if coordinates.has_constant or (self._are_few and takes_little):  # a learned origin is that of single points
            return super().in_coordinates(coordinates)
        return IndexedRows(self._points.in_coordinates(coordinates), self._index)

    def row_array(self, values: FloatArray) -> FloatArray:
        return values

    def forward(self, factor: FloatArray) -> FloatArray:
        """Return the projections of the points, of shape (n_points, k)."""
        return self._points.project(factor)

    def backward(self, projections: FloatArray, coefficients: FloatArray) -> FloatArray:
        return self._points.pull(self._laplacian(projections, coefficients))

    def inner(self, left: FloatArray, right: FloatArray) -> FloatArray:
        return self._forms(left, None if right is left else right)

    def projected_blocks(self, factor: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        projections = self.forward(factor)
        return ((where, _difference(projections, self._index[where]).T) for where in self._block_slices())

    def projected(self, factor: FloatArray) -> FloatArray:
        projections = self.forward(factor)
        found = np.empty((self.n_rows, projections.shape[1]))
        for where in slices(self.n_rows, PART_ROWS):
            left, right = self._index[where].T
            np.subtract(projections[left], projections[right], out=found[where])
        return found

    def sides(self, factor: FloatArray) -> FloatArray:
        """Return A'x of both points of each pair: an array of shape (n, 2, k)."""
        projections = self.forward(factor)
        if self._points.centre is not None:
            projections += self._points.centre @ factor
        found: FloatArray = projections[self._index]
        return found

    def squared_distances(self, factor: FloatArray) -> FloatArray:
        return self._forms(self.forward(factor))

    def quadratic_forms(self, matrix: FloatArray) -> FloatArray:
        return self._forms(*self._halves(matrix))

    def outer(self, coefficients: FloatArray) -> FloatArray:
        return self._moment(coefficients, np.ones(self.n_columns))

    def factor_gradient(self, factor: FloatArray, coefficients: FloatArray) -> FloatArray:
        return self.backward(self.forward(factor), coefficients)

    def sweep(
        self, matrix: FloatArray, function: Callable[..., Pulling], *arrays: FloatArray
    ) -> tuple[list[Pulling], FloatArray]:
        halves = self._halves(matrix)
        parts = [
            function(self._forms(*halves, where), *(array[where] for array in arrays))
            for where in slices(self.n_rows, PART_ROWS)
        ]
        return parts, self._moment(_Joined([part.margin_gradient for part in parts]), np.ones(self.n_columns))

    def rotated_moments(
        self, curvature: FloatArray, crosses: tuple[FloatArray, ...], basis: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        projections, k = self.forward(basis), basis.shape[1]
        fourth, sums = np.zeros((k, k)), np.zeros((k, 1 + len(crosses)))
        for where in slices(self.n_rows, max(256, BLOCK_BYTES // (16 * k))):
            left, right = self._index[where].T
            squares = projections[left] - projections[right]
            squares *= squares
            sums += squares.T @ np.column_stack([array[where] for array in (curvature, *crosses)])
            fourth += (squares * curvature[where, None]).T @ squares
        return fourth, sums

    def largest(self, centre: FloatArray) -> FloatArray:
        """Return a bound on the largest absolute value of each column: its range over the points."""
        if self._points.transform is not None or np.any(centre):
            return super().largest(centre)
        return self._points.extent()

    def second_moment(self, weights: FloatArray, centre: FloatArray, scale: FloatArray) -> FloatArray:
        if np.any(centre) or self._are_few:
            return super().second_moment(weights, centre, scale)
        return self._moment(weights, scale)

    @property
    def _are_few(self) -> bool:
        """Whether there are so few pairs for each point that their differences are faster than Laplacians."""
        return self.n_columns < _COLUMNS and self.n_rows <= _FEW_PER_POINT * len(self._points)

    def _halves(self, matrix: FloatArray) -> tuple[FloatArray, FloatArray | None]:
        """Projections P and Q with z'Sz = (P_i - P_j)'(Q_i - Q_j)."""
        values, vectors = np.linalg.eigh(matrix)
        keep = np.abs(values) > 1e-17 * np.abs(values).max(initial=0.0)
        projections = self.forward(vectors[:, keep] * np.sqrt(np.abs(values[keep])))
        return projections, None if np.all(values[keep] > 0.0) else projections * np.sign(values[keep])

    def _forms(self, left: FloatArray, right: FloatArray | None = None, where: slice | None = None) -> FloatArray:
        """Return (P_i - P_j)'(Q_i - Q_j) of some pairs; Q is P by default."""
        within = slice(0, self.n_rows) if where is None else where
        forms = np.zeros(within.stop - within.start)
        for columns in slices(left.shape[1], _COLUMNS):
            p = np.ascontiguousarray(left[:, columns])
            q = None if right is None else np.ascontiguousarray(right[:, columns])
            step = max(256, _GATHERED_BYTES // (8 * max(p.shape[1], 1)))
            for some in slices(len(forms), step):
                ends = self._index[within.start + some.start : within.start + some.stop]
                difference = _difference(p, ends)
                other = difference if q is None else _difference(q, ends)
                forms[some] += np.einsum("ij,ij->i", difference, other)
        return forms

    def _laplacian(self, projections: FloatArray, coefficients: Any) -> FloatArray:
        """Return LP, where L is the Laplacian of these coefficients of the pairs."""
        from scipy.sparse import coo_array  # metrics are loaded and applied without SciPy

        n_points = len(self._points)
        degrees, pulled = np.zeros(n_points), np.zeros_like(projections)
        for where in slices(self.n_rows, int(np.clip(4 * n_points, _FEWEST_SUMMED, _MOST_SUMMED))):
            ends = self._index[where].astype(np.int32 if n_points < 1 << 31 else np.int64)
            entries = coo_array((coefficients[where], (ends[:, 0], ends[:, 1])), shape=(n_points, n_points))
            entries.has_canonical_format = True  # or repeated pairs would be looked for, and summed
            adjacency = entries.tocsr()
            for side in (adjacency, adjacency.T):
                degrees += side.sum(axis=1)
                for columns in slices(projections.shape[1], _COLUMNS):
                    pulled[:, columns] -= side @ np.ascontiguousarray(projections[:, columns])
        pulled += degrees[:, None] * projections
        return pulled

    def _moment(self, coefficients: Any, scale: FloatArray) -> FloatArray:
        """Return X'LX of the columns divided by a scale each; some columns at a time where the points are many."""
        step = max(_COLUMNS, _MOMENT_BYTES // (8 * max(len(self._points), 1)))
        parts = []
        for columns in slices(self.n_columns, step):
            scaled = self._points.columns(columns) / scale[columns]
            parts.append(self._points.pull(self._laplacian(scaled, coefficients)) / scale[:, None])
        total = np.hstack(parts)
        return 0.5 * (total + total.T)


class _Joined:
    """Parts of `PART_ROWS` numbers each, sliced as one array without being copied as a whole."""

    def __init__(self, parts: list[FloatArray]) -> None:
        self._parts = parts

    def __getitem__(self, where: slice) -> FloatArray:
        first, last = where.start // PART_ROWS, -(-where.stop // PART_ROWS)
        joined = np.concatenate(self._parts[first:last])
        return joined[where.start - first * PART_ROWS : where.stop - first * PART_ROWS]


def _difference(projections: FloatArray, ends: IndexArray) -> FloatArray:
    difference = projections.take(ends[:, 0], axis=0, mode="clip")  # without the check of each number
    difference -= projections.take(ends[:, 1], axis=0, mode="clip")
    return difference


def _centre(points: NDArray[Any], index: IndexArray) -> FloatArray:
    """A point amid those that occur: their median, which one wrong value does not move."""
    some = index[:: 1 + len(index) // _SAMPLED].ravel()
    if len(some) == 0:
        return np.zeros(points.shape[1])
    centre: FloatArray = np.median(points[some].astype(np.float64, copy=False), axis=0)
    return centre


def _occurring(points: Points, index: IndexArray) -> tuple[Points, IndexArray]:
    """The points that occur, and the index for them; if most do, all points, with the others marked."""
    used: BoolArray = np.zeros(len(points), dtype=bool)
    for where in slices(len(index), _MOST_SUMMED):
        used[index[where]] = True
    n_used = int(used.sum())
    if n_used == len(points):
        return points, index
    if 2 * n_used >= len(points):
        return replace(points, unused=~used), index
    numbers = np.cumsum(used, dtype=np.int64) - 1
    return points.take(used), numbers[index]
