"""Rows on a GPU whose passes are fused kernels on float16 planes, or on rows in single precision."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from closefar.arrays import Array, FloatArray, IndexArray, engine_of, like
from closefar.noise import NOISES, Noise
from closefar.rows.blocks import BlockRows
from closefar.rows.cuda.kernels import CURVED, KINDS
from closefar.rows.cuda.launch import (
    FAST,
    FINEST,
    LOW_RANK,
    MOST_COLUMNS,
    PRECISE,
    Pass,
    Planes,
    StoredRows,
    Sums,
    as_stored,
    make_planes,
    run_graph,
    run_terms,
)
from closefar.rows.devices import free_for_torch
from closefar.rows.graph_rows import GraphRows
from closefar.rows.source import Coordinates, MarginSums, MarginTerms, Pulling, RowSource

# ---------------------------------------------------------------------------------------------------------------------
# What fused rows have in common: the rows of another source, and arrays as kernels need them.


def has_kernel(noise: Noise) -> bool:
    """Whether there are kernels for this noise: for those that come with the package, not for the user's own."""
    return type(noise) is type(NOISES.get(noise.name))


class FusedSource(BlockRows):
    """The rows of another source, `exact`, whose operations they have; subclasses add fused passes, named in words."""

    is_fused = True

    @property
    @abstractmethod
    def passes(self) -> str:
        """What the passes are, in words."""

    def __init__(self, exact: BlockRows) -> None:
        super().__init__(*exact.shape)
        self.condition = exact.condition
        self.exact = exact
        self._converted: dict[str, tuple[Array, Array]] = {}

    def converted(self, name: str, given: Array, convert: Callable[[Array], Array]) -> Array:
        """The array as kernels need it; converted once, as long as the same one is given."""
        if name not in self._converted or self._converted[name][0] is not given:
            self._converted[name] = given, convert(given).contiguous()
        return self._converted[name][1]

    @cached_property
    def rough(self) -> RowSource:
        return self  # unless there are faster passes still

    @property
    def engine(self) -> str:
        return f"{engine_of(self.model)}, {self.passes}"

    @property
    def n_projected(self) -> int:
        return self.exact.n_projected

    def read(self, where: slice) -> Array:
        return self.exact.read(where)

    def take_rows(self, indices: IndexArray) -> BlockRows:
        return self.exact.take_rows(indices)

    def in_coordinates(self, coordinates: Coordinates) -> BlockRows:
        return self.exact.in_coordinates(coordinates)

    def row_array(self, values: FloatArray) -> Array:
        return self.exact.row_array(values)

    def forward(self, factor: FloatArray) -> Array:
        return self.exact.forward(factor)

    def backward(self, projections: Array, coefficients: Array) -> FloatArray:
        return self.exact.backward(projections, coefficients)

    def inner(self, left: Array, right: Array) -> Array:
        return self.exact.inner(left, right)

    def quadratic_forms(self, matrix: FloatArray) -> Array:
        return self.exact.quadratic_forms(matrix)

    def squared_distances(self, factor: FloatArray) -> Array:
        return self.exact.squared_distances(factor)

    def outer(self, coefficients: Array) -> FloatArray:
        return self.exact.outer(coefficients)

    def factor_gradient(self, factor: FloatArray, coefficients: Array) -> FloatArray:
        return self.exact.factor_gradient(factor, coefficients)

    def sweep(
        self, matrix: FloatArray, function: Callable[..., Pulling], *arrays: Array
    ) -> tuple[list[Pulling], FloatArray]:
        return self.exact.sweep(matrix, function, *arrays)

    def rotated_moments(
        self, curvature: Array, crosses: tuple[Array, ...], basis: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        return self.exact.rotated_moments(curvature, crosses, basis)

    def sum_of_squares(self, root: Array, border: tuple[Array, ...], **how: Any) -> FloatArray:
        return self.exact.sum_of_squares(root, border, **how)


# ---------------------------------------------------------------------------------------------------------------------
# The likelihood at known squared distances, in one kernel and in double precision.


def fused_terms(
    noise: Noise, squared: Array, signs: Array, weights: Array, threshold: float, order: int
) -> MarginTerms | None:
    """Return the terms of all rows; None if there is no kernel for this noise."""
    if not has_kernel(noise):
        return None
    given = None if weights.stride(0) == 0 else weights
    return run_terms(squared.contiguous(), signs, given, threshold, KINDS[noise.name], order)


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
        self, exact: BlockRows, rows: Planes | StoredRows, *, transform: FloatArray | None = None, level: int = FINEST
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


# ---------------------------------------------------------------------------------------------------------------------
# Pairs of points by index on a GPU, whose passes are fused kernels on the graph of the pairs.


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
