"""Rows on a GPU whose passes are fused kernels on float16 planes, or on rows in single precision."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.noise import Noise
from closefar.rows.blocks import BlockRows
from closefar.rows.cuda.fused_source import FusedSource, has_kernel
from closefar.rows.cuda.kernels import CURVED, KINDS
from closefar.rows.cuda.launch import FAST, FINEST, LOW_RANK, MOST_COLUMNS, PRECISE, Pass
from closefar.rows.cuda.planes import Planes, StoredRows, as_stored, make_planes
from closefar.rows.devices import free_for_torch
from closefar.rows.source import MarginSums, RowSource

__all__ = ["FusedRows", "fused_rows"]

Kernel = TypeVar("Kernel", Planes, StoredRows)

# Coefficients of a product with the Hessian are of the size of the matrix; few are this many times as large.
_TAIL = 2.0**8

_BESIDE = 64  # bytes per row
_CALIBRATED = 1 << 17  # rows
_MOST_SHRUNK = 1e-6

# Of the loss of each noise; that of normal noise grows with the margin, of which few are larger.
_LARGEST_SLOPES = {"logistic": 1.0, "laplace": 1.0, "hypsecant": 2.0, "normal": _TAIL}


def fused_rows(exact: BlockRows) -> FusedRows | None:
    """Return the same rows with fused passes; None if there is no kernel for them.

    Rows become planes or, if there is no room for these, are read as they are stored, if that is in single precision.
    """
    if exact.n_columns > MOST_COLUMNS or exact.n_rows >= 2**31:
        return None
    if _have_room(exact):
        planes = make_planes(exact)
        return None if planes is None else FusedRows(exact, _calibrated(planes, exact.read(slice(0, _CALIBRATED))))
    return _fused_as_stored(exact)


def _fused_as_stored(exact: BlockRows) -> FusedRows | None:
    found = exact.as_stored
    if found is None or found.array.shape[1] > MOST_COLUMNS:
        return None
    stored = as_stored(found.array, found.scales)
    if stored is None:
        return None
    scales = stored.scales.double().cpu().numpy()
    few = stored.array[:_CALIBRATED].double() * stored.scales
    return FusedRows(exact, _calibrated(stored, few.T), transform=found.transform / scales[:, None])


def _have_room(exact: BlockRows) -> bool:
    """Whether the planes fit on the card, beside as much for the other arrays of a fit."""
    return exact.n_rows * (4 * (exact.n_columns + 8) + _BESIDE) < free_for_torch(exact.model.device)


def _calibrated(rows: Kernel, block: Array) -> Kernel:
    """Compare the forms of some rows, each a column, at a random matrix with those in double precision."""
    import torch

    d, n = block.shape
    root = np.random.default_rng(0).standard_normal((d, d)) / np.sqrt(d)
    matrix = root @ root.T
    expected = float(torch.sum((torch.from_numpy(matrix).to(block) @ block) * block))
    ones = torch.ones(n, dtype=torch.float32, device=block.device)
    largest = _TAIL * float(np.linalg.norm(matrix)) * max(expected / (n * d), 1.0)
    found = Pass(rows.first(n), ones, ones, matrix, 0.0, CURVED, largest, PRECISE).run()
    shrunk = expected / found.slope - 1.0 if found.slope > 0.0 else 0.0
    return replace(rows, shrunk=shrunk if abs(shrunk) < _MOST_SHRUNK else 0.0)


class FusedRows(FusedSource):
    """The rows of another source with the passes of fused kernels; the other operations are those of that source.

    At the level FINEST, losses have an error of about 1e-8 and gradients of 1e-6; at the level PRECISE, gradients have
    the error of fast passes, up to 1e-2 on columns of few values, where fast losses have one of up to 1e-3.
    """

    def __init__(
        self,
        exact: BlockRows,
        rows: Planes | StoredRows,
        *,
        transform: FloatArray | None = None,
        level: int = FINEST,
    ) -> None:
        super().__init__(exact)
        self.rows = rows
        self._transform = transform  # from the rows that kernels read to the coordinates of these
        self._level = level

    @property
    def passes(self) -> str:
        return f"fused Triton kernels on {'float16 planes' if self.rows.are_planes else 'float32 rows'}"

    @cached_property
    def rough(self) -> RowSource:
        """The same rows with passes of the next lower level."""
        if self._level == FAST:
            return self
        return FusedRows(self.exact, self.rows, transform=self._transform, level=self._level - 1)

    def margin_pass(
        self, noise: Noise, signs: Array, weights: Array, matrix: FloatArray, threshold: float
    ) -> MarginSums | None:
        found = self._pass(noise, signs, weights, self._point(matrix), threshold)
        return None if found is None else found._replace(gradient=self._gradient(found.gradient))

    def factor_pass(
        self, noise: Noise, signs: Array, weights: Array, factor: FloatArray, threshold: float
    ) -> MarginSums | None:
        if factor.shape[1] > LOW_RANK or factor.shape[1] == len(factor):
            return None
        found = self._pass(noise, signs, weights, self._mapped(factor), threshold)
        return None if found is None else found._replace(gradient=self._pulled(found.gradient))

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
        found = Pass(self.rows, signs, relative, point, threshold, KINDS[noise.name], largest, self._level).run()
        return found.scaled(1.0 / self.n_rows) if found.are_finite else None

    def curvature_pass(self, curvature: Array, matrix: FloatArray, shift: float) -> tuple[FloatArray, float] | None:
        import torch

        relative = self.converted("curvature", curvature, lambda given: (given * self.n_rows).to(torch.float32))
        size = float(np.linalg.norm(matrix)) + abs(shift)
        if size == 0.0:
            return np.zeros_like(matrix), 0.0
        largest = _TAIL * size * float(relative.max())
        found = Pass(self.rows, relative, relative, self._point(matrix), shift, CURVED, largest, self._level).run()
        if not found.are_finite:
            return None
        return self._gradient(found.gradient) / self.n_rows, -found.slope / self.n_rows

    def _mapped(self, factor: FloatArray) -> FloatArray:
        return factor if self._transform is None else self._transform @ factor

    def _pulled(self, sums: FloatArray) -> FloatArray:
        return sums if self._transform is None else self._transform.T @ sums

    def _point(self, matrix: FloatArray) -> FloatArray:
        return self._mapped(self._mapped(matrix).T)

    def _gradient(self, sums: FloatArray) -> FloatArray:
        pulled = self._pulled(self._pulled(sums).T)
        symmetric: FloatArray = 0.5 * (pulled + pulled.T)
        return symmetric
