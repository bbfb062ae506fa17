"""Pairs given by index: points are projected once, and the sums over pairs are Laplacians of the points."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import Array, BoolArray, FloatArray, IndexArray, is_on_gpu, is_tensor, like, to_numpy
from closefar.rows.blocks import BLOCK_BYTES, GPU_BLOCK_BYTES, KEEP_BYTES, BlockRows, held, symmetric
from closefar.rows.source import GPU_PART_ROWS, PART_ROWS, Coordinates, RowSource, slices

# ---------------------------------------------------------------------------------------------------------------------
# The points that indexed rows are differences of: projected, and pulled back, block by block.


_HELD_BYTES = 1 << 26  # of points in double precision, up to which they are converted once


@dataclass(frozen=True, eq=False)
class IndexedPoints:
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
    """

    array: NDArray[Any]
    centre: FloatArray | None = None
    transform: FloatArray | None = None
    numbers: IndexArray | None = None

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
        return block if self.centre is None else block - self.centre

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
        """Return the range of each column, unmapped, over the points."""
        lowest, highest = np.full(self.array.shape[1], np.inf), np.full(self.array.shape[1], -np.inf)
        for _, block in self.blocks():
            lowest = np.minimum(lowest, block.min(axis=0, initial=np.inf))
            highest = np.maximum(highest, block.max(axis=0, initial=-np.inf))
        extent: FloatArray = np.maximum(highest - lowest, 0.0)
        return extent

    def in_coordinates(self, coordinates: Coordinates) -> IndexedPoints:
        """The same points in other coordinates: kept if they are few, otherwise mapped in each pass."""
        transform = coordinates.transform if self.transform is None else self.transform @ coordinates.transform
        mapped = IndexedPoints(self.array, self.centre, transform, self.numbers)
        if 8 * len(self) * mapped.n_columns > KEEP_BYTES:
            return mapped
        return IndexedPoints(mapped.columns(slice(0, mapped.n_columns)))

    def take(self, used: BoolArray) -> IndexedPoints:
        """Some of the points."""
        chosen = np.flatnonzero(used)
        numbers = chosen if self.numbers is None else self.numbers[chosen]
        if self.transform is None and 8 * len(chosen) * self.n_columns <= KEEP_BYTES:
            return IndexedPoints(self.array[numbers], self.centre)
        return IndexedPoints(self.array, self.centre, self.transform, numbers)


_COLUMNS = 64  # of projections at a time: those of all points, and of a block of pairs, stay in cache
_GATHERED_BYTES = 1 << 19  # of differences at a time, which stay in cache
_FEWEST_SUMMED, _MOST_SUMMED = 1 << 18, 1 << 21  # pairs in one sparse matrix
_MOMENT_BYTES = 1 << 26  # of points whose columns are scaled at a time
_CENTRED = 1 << 10  # pairs whose median is the centre, for which any point amid them will do
_FEW_PER_POINT = 4  # pairs; with more, sparse products take less time than differences


class IndexedRows(BlockRows):
    """The differences x_i - x_j of points, for each (i, j) of an index of shape (n, 2).

    The projections of all points are P = XA.  The squared distance of a pair is |P_i - P_j|^2, and a
    sum over pairs is X'LP, where L is the Laplacian of the coefficients.  That is O(n k) for the pairs
    and O(n_points d k) for the points.

    Parameters
    ----------
    points : array of shape (n_points, d), or IndexedPoints
    index : array of int, of shape (n, 2)
    """

    _points: Any
    _index: Any
    _centre: FloatArray | None

    def __init__(self, points: NDArray[Any] | IndexedPoints, index: IndexArray) -> None:
        if not isinstance(points, IndexedPoints):
            points, index = _occurring(IndexedPoints(points, _centre(points, index)), index)
        super().__init__(len(index), points.n_columns)
        self._points = points
        self._index = index
        self._centre = points.centre

    @property
    def projected_bytes(self) -> int:
        return 8 * len(self._points)

    def read(self, where: slice) -> Array:
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

    def take_rows(self, indices: IndexArray) -> BlockRows:
        return IndexedRows(*_occurring(self._points, self._index[indices]))

    def in_coordinates(self, coordinates: Coordinates) -> BlockRows:
        takes_little = 8 * self.n_rows * coordinates.n_directions <= KEEP_BYTES
        if coordinates.has_constant or (self._are_few and takes_little):  # a learned origin is that of single points
            return super().in_coordinates(coordinates)
        return IndexedRows(self._points.in_coordinates(coordinates), self._index)

    def forward(self, factor: FloatArray) -> Array:
        """Return the projections of the points, of shape (n_points, k)."""
        return self._points.project(factor)

    def backward(self, projections: Array, coefficients: Array) -> FloatArray:
        return to_numpy(self._pull(self._laplacian(projections, coefficients)))

    def inner(self, left: Array, right: Array) -> Array:
        return self._forms(left, None if right is left else right)

    def projected_blocks(self, factor: FloatArray) -> Iterator[tuple[slice, Array]]:
        projections = self.forward(factor)
        return ((where, self._differences(projections, where).T) for where in self._block_slices())

    def projected(self, factor: FloatArray) -> FloatArray:
        projections = self.forward(factor)
        found = np.empty((self.n_rows, projections.shape[1]))
        for where in slices(self.n_rows, self._part_rows):
            found[where] = to_numpy(self._differences(projections, where))
        return found

    def sides(self, factor: FloatArray) -> FloatArray:
        """Return A'x of both points of each pair: an array of shape (n, 2, k)."""
        projections = to_numpy(self.forward(factor))
        if self._centre is not None:
            projections = projections + self._centre @ factor
        found: FloatArray = projections[to_numpy(self._index)]
        return found

    def squared_distances(self, factor: FloatArray) -> Array:
        return self._forms(self.forward(factor))

    def forms(self, matrix: FloatArray) -> Array:
        return self._forms(*self._halves(matrix))

    def outer(self, coefficients: Array) -> FloatArray:
        return self._moment(coefficients, np.ones(self.n_columns))

    sweep = RowSource.sweep  # forms of all pairs at once, as the sum over them is one of the points

    def largest(self, centre: FloatArray) -> FloatArray:
        """Return a bound on the largest absolute value of each column: its range over the points."""
        if self._points.transform is not None or np.any(centre):
            return super().largest(centre)
        extent: FloatArray = self._points.extent()
        return extent

    def second_moment(self, weights: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
        if np.any(centre) or self._are_few:
            return super().second_moment(weights, centre, scale)
        return self._moment(weights, scale)

    @property
    def _are_few(self) -> bool:
        """Whether there are so few pairs for each point that their differences are faster than Laplacians."""
        return self.n_columns < _COLUMNS and self.n_rows <= _FEW_PER_POINT * len(self._points)

    @property
    def _part_rows(self) -> int:
        return GPU_PART_ROWS if is_on_gpu(self.model) else PART_ROWS

    def _differences(self, projections: Array, where: slice) -> Array:
        """Return P_i - P_j for some pairs."""
        return _difference(projections, self._index[where])

    def _halves(self, matrix: FloatArray) -> tuple[Array, None, Array]:
        """Projections P and signs s with z'Sz = sum_k s_k (P_i - P_j)_k^2."""
        values, vectors = np.linalg.eigh(matrix)
        keep = np.abs(values) > 1e-17 * np.abs(values).max(initial=0.0)
        projections = self.forward(vectors[:, keep] * np.sqrt(np.abs(values[keep])))
        signs = None if np.all(values[keep] > 0.0) else like(projections, np.sign(values[keep]))
        return projections, None, signs

    def _forms(self, left: Array, right: Array = None, signs: Array = None) -> Array:
        """Return sum_k s_k (P_i - P_j)_k (Q_i - Q_j)_k of all pairs; by default, Q is P and each sign +1."""
        forms = np.zeros(self.n_rows)
        for columns in slices(left.shape[1], _COLUMNS):
            p = np.ascontiguousarray(left[:, columns])
            q = None if right is None else np.ascontiguousarray(right[:, columns])
            step = max(256, _GATHERED_BYTES // (8 * max(p.shape[1], 1)))
            for some in slices(len(forms), step):
                ends = self._index[some]
                difference = _difference(p, ends)
                other = difference if q is None else _difference(q, ends)
                other = other if signs is None else other * signs[columns]
                forms[some] += np.einsum("ij,ij->i", difference, other)
        return forms

    def _pull(self, values: Array) -> Array:
        """Return X'Y for one row of Y per point."""
        return self._points.pull(values)

    def _laplacian(self, projections: Array, coefficients: Array) -> Array:
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

    def _moment(self, coefficients: Array, scale: FloatArray) -> FloatArray:
        """Return X'LX of the columns divided by a scale each; some columns at a time where the points are many."""
        step = max(_COLUMNS, _MOMENT_BYTES // (8 * max(len(self._points), 1)))
        parts = []
        for columns in slices(self.n_columns, step):
            scaled = self._points.columns(columns) / scale[columns]
            parts.append(self._points.pull(self._laplacian(scaled, coefficients)) / scale[:, None])
        return symmetric(np.hstack(parts))


def _difference(projections: FloatArray, ends: IndexArray) -> FloatArray:
    difference = projections.take(ends[:, 0], axis=0, mode="clip")  # without the check of each number
    difference -= projections.take(ends[:, 1], axis=0, mode="clip")
    return difference


def _centre(points: Array, index: Array) -> FloatArray:
    """A point amid those that occur: their median, which one wrong value does not move."""
    some = index[:: 1 + len(index) // _CENTRED].ravel()
    if len(some) == 0:
        return np.zeros(points.shape[1])
    centre: FloatArray = np.median(to_numpy(points[some]).astype(np.float64, copy=False), axis=0)
    return centre


def _occurring(points: IndexedPoints, index: IndexArray) -> tuple[IndexedPoints, IndexArray]:
    """The points that occur, and the index for them."""
    used: BoolArray = np.zeros(len(points), dtype=bool)
    for where in slices(len(index), _MOST_SUMMED):
        used[index[where]] = True
    if np.all(used):
        return points, index
    numbers = np.cumsum(used, dtype=np.int64) - 1
    return points.take(used), numbers[index]


# ---------------------------------------------------------------------------------------------------------------------
# Pairs of tensors by index, as a graph of the points: forms of pairs, and products with a Laplacian.
#
# Each computes the same bits every time.


# Numbers that are gathered at a time: in cache or, on a GPU, half a gibibyte.
_GATHERED, _GATHERED_ON_GPU = 1 << 17, 1 << 26


class _Ends(NamedTuple):
    """The pairs of each point, point by point: where they begin, the other points, and the numbers of the pairs."""

    starts: Array
    starts_in_numpy: IndexArray
    others: Array
    pairs: Array


class Graph:
    """The pairs (i, j) of an index, a tensor of shape (n, 2), of so many points."""

    def __init__(self, index: Array, n_points: int) -> None:
        self.index = index
        self.n_points = n_points

    def laplacian(self, values: Array, coefficients: Array) -> Array:
        """Return LV: for each point i the sum of c_ij (v_i - v_j) over its pairs."""
        import torch

        ends, found = self.ends, torch.empty_like(values)
        for points in self._few_points(_step(values)):
            first, last = (int(ends.starts_in_numpy[at]) for at in (points.start, points.stop))
            here = coefficients.index_select(0, ends.pairs[first:last])[:, None]
            pulled = values.index_select(0, ends.others[first:last]) * here
            # A point's pairs are added one after another, whatever else runs: the same bits every time.
            counts = ends.starts[points.start + 1 : points.stop + 1] - ends.starts[points]
            sums, degrees = (
                torch.segment_reduce(each, "sum", lengths=counts, axis=0, unsafe=True) for each in (pulled, here)
            )
            found[points] = degrees * values[points] - sums
        return found

    @cached_property
    def ends(self) -> _Ends:
        """The pairs of each point, which are sorted once."""
        import torch

        index, n = self.index, len(self.index)
        points, order = torch.sort(torch.cat([index[:, 0], index[:, 1]]), stable=True)
        others = torch.cat([index[:, 1], index[:, 0]])[order]
        pairs = torch.where(order < n, order, order - n).to(index.dtype if n < 1 << 31 else torch.int64)
        numbers = torch.arange(self.n_points + 1, dtype=points.dtype, device=points.device)
        starts = torch.searchsorted(points, numbers)
        return _Ends(starts, starts.cpu().numpy(), others, pairs)

    def _few_points(self, most: int) -> Iterator[slice]:
        """Slices of points that have at most so many pairs together, or of one point."""
        starts, start = self.ends.starts_in_numpy, 0
        while start < self.n_points:
            stop = int(np.searchsorted(starts, starts[start] + most, side="right")) - 1
            yield slice(start, min(max(stop, start + 1), self.n_points))
            start = max(stop, start + 1)


def _step(values: Array) -> int:
    """How many rows of such values are gathered at a time."""
    gathered = _GATHERED_ON_GPU if is_on_gpu(values) else _GATHERED
    return max(256, gathered // max(int(values.shape[1]), 1))


class GraphRows(IndexedRows):
    """The differences x_i - x_j of points that are a tensor, on any device.

    Parameters
    ----------
    points : tensor of shape (n_points, d)
        In double precision; points that occur in no pair are zero.
    graph : Graph
        The pairs.
    centre : array of shape (d,), optional
        What was subtracted from the points; it cancels in differences, and would cost digits.
    """

    def __init__(self, points: Array, graph: Graph, centre: FloatArray | None = None) -> None:
        BlockRows.__init__(self, len(graph.index), int(points.shape[1]))
        self._points = points
        self._index = graph.index
        self._centre = centre
        self.graph = graph

    spanning = BlockRows.spanning

    @classmethod
    def of(cls, points: Array, index: Array) -> GraphRows:
        """Make rows of points as they are stored, and an index of them."""
        import torch

        centre = _centre(points, index)
        is_used = torch.zeros(len(points), dtype=torch.bool, device=points.device)
        is_used[index.long().ravel()] = True
        points = points.double()
        centred = torch.where(is_used[:, None], points - like(points, centre), 0.0)
        return cls(centred, Graph(index, len(points)), centre)

    def read(self, where: slice) -> Array:
        return self._differences(self._points, where).T

    def take_rows(self, indices: IndexArray) -> BlockRows:
        index = self._index.index_select(0, like(self._index, indices))
        taken = GraphRows(self._points, Graph(index, self.graph.n_points), self._centre)
        takes = 8 * len(indices) * self.n_columns
        is_little = takes <= (GPU_BLOCK_BYTES if is_on_gpu(self._points) else KEEP_BYTES)
        if is_little and len(indices) <= _FEW_PER_POINT * len(self._points):
            return held(taken.read(slice(0, len(indices))))
        return taken

    def in_coordinates(self, coordinates: Coordinates) -> BlockRows:
        if coordinates.has_constant:  # a learned origin is that of single points
            return BlockRows.in_coordinates(self, coordinates)
        return GraphRows(self.forward(coordinates.transform), self.graph)

    def forward(self, factor: FloatArray) -> Array:
        return self._points @ like(self._points, factor)

    def largest(self, centre: FloatArray) -> FloatArray:
        if np.any(centre):
            return BlockRows.largest(self, centre)
        return to_numpy(self._points.max(dim=0).values - self._points.min(dim=0).values)

    def second_moment(self, weights: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
        weights = weights if is_tensor(weights) else self.row_array(weights)
        if np.any(centre):
            return BlockRows.second_moment(self, weights, centre, scale)
        return self._moment(weights, scale)

    def _differences(self, projections: Array, where: slice) -> Array:
        ends = self._index[where]
        return projections.index_select(0, ends[:, 0]) - projections.index_select(0, ends[:, 1])

    def _forms(self, left: Array, right: Array = None, signs: Array = None) -> Array:
        forms = left.new_empty(self.n_rows)
        for some in slices(len(forms), _step(left)):
            difference = self._differences(left, some)
            products = difference * (difference if right is None else self._differences(right, some))
            forms[some] = products.sum(dim=1) if signs is None else products @ signs
        return forms

    def _laplacian(self, projections: Array, coefficients: Array) -> Array:
        return self.graph.laplacian(projections, coefficients)

    def _pull(self, values: Array) -> Array:
        return self._points.T @ values

    def _moment(self, coefficients: Array, scale: FloatArray) -> FloatArray:
        points = self._points / like(self._points, scale)
        return symmetric(points.T @ self.graph.laplacian(points, coefficients))


def indexed_rows(points: Array, index: Array) -> IndexedRows:
    """Return the differences of points, which may be a tensor, for an index of pairs."""
    return GraphRows.of(points, index) if is_tensor(points) else IndexedRows(points, index)
