"""Pairs of tensors by index, as a graph of the points: forms of pairs, and products with a Laplacian.

These are the two operations that take time, and that a kernel may replace; each computes the same bits every time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from closefar.arrays import Array, is_on_gpu
from closefar.rows.source import slices

__all__ = ["Ends", "Graph"]

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
