"""Pairs of tensors by index: points are projected once, and the sums over pairs are Laplacians of the points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from closefar.arrays import Array, FloatArray, IndexArray, is_on_gpu, is_tensor, like, to_numpy
from closefar.rows.blocks import GPU_BLOCK_BYTES, KEEP_BYTES, BlockRows, HeldRows
from closefar.rows.source import GPU_PART_ROWS, PART_ROWS, Coordinates, Pulling, slices

# ---------------------------------------------------------------------------------------------------------------------
# Pairs of tensors by index, as a graph of the points: forms of pairs, and products with a Laplacian.
#
# These are the two operations that take time, and that a kernel may replace; each computes the same bits every
# time.


# Numbers that are gathered at a time: in cache or, on a GPU, half a gibibyte.
_GATHERED, _GATHERED_ON_GPU = 1 << 17, 1 << 26


class Ends(NamedTuple):
    """The pairs of each point, point by point: where they begin, the other points, and the numbers of the pairs."""

    starts: Array
    starts_in_numpy: np.ndarray[tuple[int], np.dtype[np.int64]]
    others: Array
    pairs: Array


class Graph:
    """The pairs (i, j) of an index, a tensor of shape (n, 2), of so many points."""

    def __init__(self, index: Array, n_points: int) -> None:
        self.index = index
        self.n_points = n_points

    def __len__(self) -> int:
        return len(self.index)

    def differences(self, values: Array, where: slice) -> Array:
        """Return v_i - v_j for some of the pairs, of values of shape (n_points, k)."""
        ends = self.index[where]
        return values.index_select(0, ends[:, 0]) - values.index_select(0, ends[:, 1])

    def forms(self, values: Array, signs: Array = None, where: slice | None = None) -> Array:
        """Return sum_k s_k (v_i - v_j)_k^2 for each pair, or for some; the signs are +1 by default."""
        within = slice(0, len(self)) if where is None else where
        found = values.new_empty(within.stop - within.start)
        for some in slices(len(found), self._step(values)):
            moved = self.differences(values, slice(within.start + some.start, within.start + some.stop))
            squares = moved * moved
            found[some] = squares.sum(dim=1) if signs is None else squares @ signs
        return found

    def products(self, left: Array, right: Array) -> Array:
        """Return (v_i - v_j)'(w_i - w_j) for each pair."""
        found = left.new_empty(len(self))
        for some in slices(len(self), self._step(left)):
            found[some] = (self.differences(left, some) * self.differences(right, some)).sum(dim=1)
        return found

    def laplacian(self, values: Array, coefficients: Array) -> Array:
        """Return LV: for each point i the sum of c_ij (v_i - v_j) over its pairs."""
        import torch

        ends, found = self.ends, torch.empty_like(values)
        for points in self._few_points(self._step(values)):
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
    def ends(self) -> Ends:
        """The pairs of each point, which are sorted once."""
        import torch

        index, n = self.index, len(self)
        points, order = torch.sort(torch.cat([index[:, 0], index[:, 1]]), stable=True)
        others = torch.cat([index[:, 1], index[:, 0]])[order]
        pairs = torch.where(order < n, order, order - n).to(index.dtype if n < 1 << 31 else torch.int64)
        numbers = torch.arange(self.n_points + 1, dtype=points.dtype, device=points.device)
        starts = torch.searchsorted(points, numbers)
        return Ends(starts, starts.cpu().numpy(), others, pairs)

    def _few_points(self, most: int) -> Iterator[slice]:
        """Slices of points that have at most so many pairs together, or of one point."""
        starts, start = self.ends.starts_in_numpy, 0
        while start < self.n_points:
            stop = int(np.searchsorted(starts, starts[start] + most, side="right")) - 1
            yield slice(start, min(max(stop, start + 1), self.n_points))
            start = max(stop, start + 1)

    def _step(self, values: Array) -> int:
        gathered = _GATHERED_ON_GPU if is_on_gpu(values) else _GATHERED
        return max(256, gathered // max(int(values.shape[1]), 1))


_SAMPLED = 1 << 10
_FEW_PER_POINT = 4


class GraphRows(BlockRows):
    """The differences x_i - x_j of points, for each (i, j) of an index: `IndexedRows` of torch, on any device.

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
        super().__init__(len(graph), int(points.shape[1]))
        self.points = points
        self._centre = centre
        self.graph = graph

    @classmethod
    def of(cls, points: Array, index: Array) -> GraphRows:
        """Make rows of points as they are stored, and an index of them."""
        import torch

        centre = _centre(points, index)
        is_used = torch.zeros(len(points), dtype=torch.bool, device=points.device)
        is_used[index.long().ravel()] = True
        centred = torch.where(is_used[:, None], points.double() - centre, 0.0)
        return cls(centred, Graph(index, len(points)), to_numpy(centre))

    @property
    def n_projected(self) -> int:
        return len(self.points)

    def read(self, where: slice) -> Array:
        return self.graph.differences(self.points, where).T

    def take_rows(self, indices: IndexArray) -> BlockRows:
        index = self.graph.index.index_select(0, like(self.graph.index, indices))
        taken = GraphRows(self.points, Graph(index, self.graph.n_points), self._centre)
        takes = 8 * len(indices) * self.n_columns
        is_little = takes <= (GPU_BLOCK_BYTES if is_on_gpu(self.points) else KEEP_BYTES)
        if is_little and len(indices) <= _FEW_PER_POINT * len(self.points):
            return HeldRows(taken.read(slice(0, len(indices))))
        return taken

    def in_coordinates(self, coordinates: Coordinates) -> BlockRows:
        if coordinates.has_constant:  # a learned origin is that of single points
            return super().in_coordinates(coordinates)
        return GraphRows(self.points @ like(self.points, coordinates.transform), self.graph)

    def forward(self, factor: FloatArray) -> Array:
        """Return the projections of the points, of shape (n_points, k)."""
        return self.points @ like(self.points, factor)

    def backward(self, projections: Array, coefficients: Array) -> FloatArray:
        return to_numpy(self._pull(self.graph.laplacian(projections, coefficients)))

    def inner(self, left: Array, right: Array) -> Array:
        return self.graph.forms(left) if right is left else self.graph.products(left, right)

    def projected_blocks(self, factor: FloatArray) -> Iterator[tuple[slice, Array]]:
        projections = self.forward(factor)
        return ((where, self.graph.differences(projections, where).T) for where in self._block_slices())

    def projected(self, factor: FloatArray) -> FloatArray:
        return to_numpy(self.graph.differences(self.forward(factor), slice(0, self.n_rows)))

    def sides(self, factor: FloatArray) -> FloatArray:
        """Return A'x of both points of each pair: an array of shape (n, 2, k)."""
        projections = to_numpy(self.forward(factor))
        if self._centre is not None:
            projections = projections + self._centre @ factor
        found: FloatArray = projections[to_numpy(self.graph.index)]
        return found

    def squared_distances(self, factor: FloatArray) -> Array:
        return self.graph.forms(self.forward(factor))

    def quadratic_forms(self, matrix: FloatArray) -> Array:
        return self.graph.forms(*self._halves(matrix))

    def outer(self, coefficients: Array) -> FloatArray:
        return self._moment(self.points, coefficients)

    def factor_gradient(self, factor: FloatArray, coefficients: Array) -> FloatArray:
        return self.backward(self.forward(factor), coefficients)

    def sweep(
        self, matrix: FloatArray, function: Callable[..., Pulling], *arrays: Array
    ) -> tuple[list[Pulling], FloatArray]:
        halves = self._halves(matrix)
        parts = [
            function(self.graph.forms(*halves, where), *(array[where] for array in arrays))
            for where in slices(self.n_rows, GPU_PART_ROWS if is_on_gpu(self.points) else PART_ROWS)
        ]
        return parts, self.outer(self.join([part.margin_gradient for part in parts]))

    def largest(self, centre: FloatArray) -> FloatArray:
        """Return a bound on the largest absolute value of each column: its range over the points."""
        if np.any(centre):
            return super().largest(centre)
        return to_numpy(self.points.max(dim=0).values - self.points.min(dim=0).values)

    def second_moment(self, weights: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
        weights = weights if is_tensor(weights) else self.row_array(weights)
        if np.any(centre):
            return super().second_moment(weights, centre, scale)
        return self._moment(self.points / like(self.points, scale), weights)

    def _halves(self, matrix: FloatArray) -> tuple[Array, Array | None]:
        """Projections P and signs s with z'Sz = sum_k s_k (P_i - P_j)_k^2."""
        values, vectors = np.linalg.eigh(matrix)
        keep = np.abs(values) > 1e-17 * np.abs(values).max(initial=0.0)
        projections = self.forward(vectors[:, keep] * np.sqrt(np.abs(values[keep])))
        signs = None if np.all(values[keep] > 0.0) else like(projections, np.sign(values[keep]))
        return projections, signs

    def _pull(self, values: Array) -> Array:
        return self.points.T @ values

    def _moment(self, points: Array, coefficients: Array) -> FloatArray:
        total = points.T @ self.graph.laplacian(points, coefficients)
        return to_numpy(0.5 * (total + total.T))


def _centre(points: Array, index: Array) -> Array:
    """A point amid those that occur: their median, which one wrong value does not move."""
    some = index[:: 1 + len(index) // _SAMPLED].ravel()
    if len(some) == 0:
        return points.new_zeros(points.shape[1]).double()
    return points.index_select(0, some).double().median(dim=0).values
