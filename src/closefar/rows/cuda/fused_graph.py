"""Pairs of points by index on a GPU, whose passes are fused kernels on the graph of the pairs."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from closefar.arrays import Array, FloatArray, like
from closefar.noise import Noise
from closefar.rows.cuda.fused_source import FusedSource, has_kernel
from closefar.rows.cuda.kernels import CURVED, KINDS
from closefar.rows.cuda.launch import MOST_COLUMNS, Sums, run_graph
from closefar.rows.graph_rows import GraphRows
from closefar.rows.source import MarginSums

__all__ = ["FusedGraph", "fused_graph"]

_ALIGNED = 4  # columns: a row is read 16 bytes at a time


def fused_graph(exact: GraphRows) -> FusedGraph | None:
    """Return the same rows with fused passes; None if there is no kernel for them."""
    return FusedGraph(exact) if exact.n_columns <= MOST_COLUMNS else None


class FusedGraph(FusedSource):
    """Pairs by index with fused passes in single precision; each point adds its pairs in their order."""

    exact: GraphRows

    @property
    def passes(self) -> str:
        return "fused Triton kernels on the graph of the pairs"

    def margin_pass(
        self, noise: Noise, signs: Array, weights: Array, matrix: FloatArray, threshold: float
    ) -> MarginSums | None:
        if not has_kernel(noise):
            return None
        given = self.converted("signs", signs, self._signs_of_ends)
        relative = None if weights.stride(0) == 0 else self.converted("weights", weights, self._relative)
        found, share = self._run(matrix, threshold, given, relative, KINDS[noise.name]), 1.0 / self.n_rows
        return found.scaled(share) if found.are_finite else None

    def curvature_pass(self, curvature: Array, matrix: FloatArray, shift: float) -> tuple[FloatArray, float] | None:
        relative = self.converted("curvature", curvature, self._relative)
        found = self._run(matrix, shift, relative, relative, CURVED)
        return (found.gradient / self.n_rows, -found.slope / self.n_rows) if found.are_finite else None

    @cached_property
    def _points(self) -> Array:
        """The points in single precision, with columns of zeros to the next multiple of four."""
        import torch

        points = self.exact.points
        width = -(-self.n_columns // _ALIGNED) * _ALIGNED
        padded = torch.zeros(len(points), width, dtype=torch.float32, device=points.device)
        padded[:, : self.n_columns] = points
        return padded

    def _run(self, matrix: FloatArray, threshold: float, signs: Array, weights: Array | None, kind: int) -> Sums:
        d, missing = self.n_columns, self._points.shape[1] - self.n_columns
        point = like(self.exact.points, np.pad(matrix, (0, missing)))
        found = run_graph(self._points, point, self.exact.graph.ends, signs, weights, threshold, kind)
        gradient = found.gradient[:d, :d]
        return found._replace(gradient=0.5 * (gradient + gradient.T))

    def _signs_of_ends(self, signs: Array) -> Array:
        import torch

        return signs.to(torch.int8)[self.exact.graph.ends.pairs]

    def _relative(self, weights: Array) -> Array:
        """The weights of both ends of each pair, relative to their mean."""
        import torch

        return (weights * self.n_rows).to(torch.float32)[self.exact.graph.ends.pairs]
