"""Rows on a GPU whose passes are fused kernels on float16 planes."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.noise import Noise
from closefar.rows.blocks import BlockRows
from closefar.rows.cuda.fused_source import FusedSource, has_kernel
from closefar.rows.cuda.kernels import CURVED, KINDS
from closefar.rows.cuda.launch import FAST, FINEST, LOW_RANK, MOST_COLUMNS, PRECISE, run_pass
from closefar.rows.cuda.planes import Planes, make_planes
from closefar.rows.source import MarginSums, RowSource

__all__ = ["FusedRows", "fused_rows"]

# Coefficients of a product with the Hessian are of the size of the matrix; few are this many times as large.
_TAIL = 2.0**8

_BESIDE = 64  # bytes per row
_CALIBRATED = 1 << 17  # rows
_MOST_SHRUNK = 1e-6

# Of the loss of each noise; that of normal noise grows with the margin, of which few are larger.
_LARGEST_SLOPES = {"logistic": 1.0, "laplace": 1.0, "hypsecant": 2.0, "normal": _TAIL}


def fused_rows(exact: BlockRows) -> FusedRows | None:
    """Return the same rows with fused passes; None if there is no kernel for them."""
    if exact.n_columns > MOST_COLUMNS or exact.n_rows >= 2**31 or not _have_room(exact):
        return None
    planes = make_planes(exact)
    return None if planes is None else FusedRows(exact, _calibrated(exact, planes))


def _have_room(exact: BlockRows) -> bool:
    """Whether the planes fit on the card, beside as much for the other arrays of a fit."""
    import torch

    place = exact.model.device
    free = int(torch.cuda.mem_get_info(place)[0])
    free += int(torch.cuda.memory_reserved(place)) - int(torch.cuda.memory_allocated(place))
    return exact.n_rows * (4 * (exact.n_columns + 8) + _BESIDE) < free


def _calibrated(exact: BlockRows, planes: Planes) -> Planes:
    """Compare the forms of some rows at a random matrix with those in double precision."""
    import torch

    rng, d, n = np.random.default_rng(0), exact.n_columns, min(exact.n_rows, _CALIBRATED)
    root = rng.standard_normal((d, d)) / np.sqrt(d)
    matrix = root @ root.T
    block = exact.read(slice(0, n))
    expected = float(torch.sum((torch.from_numpy(matrix).to(block) @ block) * block))
    few = Planes(planes.high[:n], planes.low[:n], planes.unit, d)
    ones = torch.ones(n, dtype=torch.float32, device=block.device)
    found = run_pass(few, ones, ones, matrix, 0.0, CURVED, _TAIL * float(np.linalg.norm(matrix)), PRECISE)
    shrunk = expected / found.slope - 1.0 if found.slope > 0.0 else 0.0
    return replace(planes, shrunk=shrunk if abs(shrunk) < _MOST_SHRUNK else 0.0)


class FusedRows(FusedSource):
    """The rows of another source with the passes of fused kernels; the other operations are those of that source.

    At the level FINEST, losses have an error of about 1e-8 and gradients of 1e-6; at the level PRECISE, gradients have
    the error of fast passes, up to 1e-2 on columns of few values, where fast losses have one of up to 1e-3.
    """

    passes = "fused Triton kernels on float16 planes"

    def __init__(self, exact: BlockRows, planes: Planes, *, level: int = FINEST) -> None:
        super().__init__(exact)
        self.planes = planes
        self._level = level

    @cached_property
    def rough(self) -> RowSource:
        """The same rows with passes of the next lower level."""
        return FusedRows(self.exact, self.planes, level=self._level - 1) if self._level > FAST else self

    def margin_pass(
        self, noise: Noise, signs: Array, weights: Array, matrix: FloatArray, threshold: float
    ) -> MarginSums | None:
        found = self._pass(noise, signs, weights, matrix, threshold)
        return None if found is None else found._replace(gradient=_symmetric(found.gradient))

    def factor_pass(
        self, noise: Noise, signs: Array, weights: Array, factor: FloatArray, threshold: float
    ) -> MarginSums | None:
        if factor.shape[1] > LOW_RANK or factor.shape[1] == len(factor):
            return None
        return self._pass(noise, signs, weights, factor, threshold)

    def _pass(
        self, noise: Noise, signs: Array, weights: Array, point: FloatArray, threshold: float
    ) -> MarginSums | None:
        """The sums at a matrix, or at a factor of few columns; None if there are none in float16 numbers."""
        if not has_kernel(noise):
            return None
        import torch

        relative, largest = None, _LARGEST_SLOPES[noise.name]
        if weights.stride(0) != 0:
            relative = self.converted("weights", weights, lambda given: (given * self.n_rows).to(torch.float32))
            largest *= float(relative.max())
        signs = self.converted("signs", signs, lambda given: given.to(torch.int8))
        found = run_pass(self.planes, signs, relative, point, threshold, KINDS[noise.name], largest, self._level)
        return found.scaled(1.0 / self.n_rows) if found.are_finite else None

    def curvature_pass(self, curvature: Array, matrix: FloatArray, shift: float) -> tuple[FloatArray, float] | None:
        import torch

        relative = self.converted("curvature", curvature, lambda given: (given * self.n_rows).to(torch.float32))
        size = float(np.linalg.norm(matrix)) + abs(shift)
        if size == 0.0:
            return np.zeros_like(matrix), 0.0
        largest = _TAIL * size * float(relative.max())
        found = run_pass(self.planes, relative, relative, matrix, shift, CURVED, largest, self._level)
        return (_symmetric(found.gradient) / self.n_rows, -found.slope / self.n_rows) if found.are_finite else None


def _symmetric(matrix: FloatArray) -> FloatArray:
    symmetric: FloatArray = 0.5 * (matrix + matrix.T)
    return symmetric
