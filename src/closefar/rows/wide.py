"""Rows of many columns in other coordinates, which are applied to factors and sums, never to the rows.

With w = T'z for each row, W A = Z (T A) and W'Y = T'(Z'Y): a product with a factor of k columns takes k / d of
the time that mapping the rows would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

from closefar.arrays import Array, FloatArray
from closefar.rows.blocks import KEEP_BYTES, NARROW, BlockRows, MappedRows
from closefar.rows.coordinates import Coordinates
from closefar.rows.fusing import AsStored
from closefar.rows.graph_rows import GraphRows
from closefar.rows.indexed import IndexedRows
from closefar.rows.source import Pulling, RowSource
from closefar.rows.stacked import StackedRows

__all__ = ["WideRows", "condition_of_sums", "mapped_rows", "suits_factors"]

_CACHED = 1 << 23  # bytes; beyond it, mapped rows are read from memory like the others

# T'(Z'CZ)T has the rounding error of Z'CZ times the square of the condition number, while rows that are mapped first
# have it once.  Up to this number the square loses four digits of sixteen; beyond it, sums map each block of rows.
_SUMS_UP_TO = 1e2

# In single precision, projections lose as many digits as this number has, of seven; three must be left.
_SINGLE_UP_TO = 1e3
_SINGLE_SCALES = 1e-12, 1e12  # of columns, so that their squares neither overflow nor underflow


def suits_factors(source: BlockRows, coordinates: Coordinates) -> bool:
    """Whether products with factors are faster than mapped rows, and accurate."""
    if coordinates.has_constant or source.is_remote or isinstance(source, IndexedRows | GraphRows):
        return False  # pairs by index map their points, which are fewer; partitions decide for themselves
    size = 8 * source.n_rows * coordinates.n_directions
    if source.n_columns <= NARROW:
        return size > (_CACHED if source.is_held else KEEP_BYTES) and coordinates.condition <= _SUMS_UP_TO
    return size > KEEP_BYTES or coordinates.condition <= _SUMS_UP_TO


def mapped_rows(source: BlockRows, coordinates: Coordinates) -> BlockRows:
    """The rows in the coordinates that a fit solves in: mapped, or with factors and sums mapped where that suits."""
    if isinstance(source, StackedRows):
        return source.mapped(lambda part: mapped_rows(part, coordinates))
    if suits_factors(source, coordinates):
        return WideRows(source, coordinates)
    return source.in_coordinates(coordinates)


def condition_of_sums(coordinates: Coordinates) -> float:
    """By how much these coordinates amplify the rounding errors of sums that are mapped, at most."""
    return coordinates.condition if coordinates.condition <= _SUMS_UP_TO else 1.0


class WideRows(MappedRows):
    """The rows of another source in coordinates that are applied to factors and sums."""

    keeps = False

    def __init__(self, source: BlockRows, coordinates: Coordinates) -> None:
        super().__init__(source, coordinates)
        self._transform = coordinates.transform
        self._sums_are_safe = coordinates.condition <= _SUMS_UP_TO
        if self._sums_are_safe:
            self.condition = coordinates.condition

    @cached_property
    def rough(self) -> RowSource:
        if self.fused is not None:
            return self.fused
        scales = self._coordinates.scales
        used = scales[scales > 0.0]
        lowest, highest = _SINGLE_SCALES
        if self._coordinates.condition > _SINGLE_UP_TO or used.min() < lowest or used.max() > highest:
            return self
        single = self._source.in_single()
        return self if single is None else WideRows(single, self._coordinates)

    @property
    def as_stored(self) -> AsStored | None:
        array = self._source.stored_in_single if self._sums_are_safe else None
        return None if array is None else AsStored(array, self._transform, self._coordinates.scales)

    def forward(self, factor: FloatArray) -> Array:
        return self._source.forward(self._transform @ factor)

    def backward(self, projections: Array, coefficients: Array) -> FloatArray:
        pulled: FloatArray = self._transform.T @ self._source.backward(projections, coefficients)
        return pulled

    def projected_blocks(self, factor: FloatArray) -> Iterator[tuple[slice, Array]]:
        return self._source.projected_blocks(self._transform @ factor)

    def inner(self, left: Array, right: Array) -> Array:
        return self._source.inner(left, right)

    def squared_distances(self, factor: FloatArray) -> Array:
        return self._source.squared_distances(self._transform @ factor)

    def factor_gradient(self, factor: FloatArray, coefficients: Array) -> FloatArray:
        return self.backward(self.forward(factor), coefficients)

    def quadratic_forms(self, matrix: FloatArray) -> Array:
        if not self._sums_are_safe:
            return super().quadratic_forms(matrix)
        return self._source.quadratic_forms(_symmetric(self._transform @ matrix @ self._transform.T))

    def outer(self, coefficients: Array) -> FloatArray:
        if not self._sums_are_safe:
            return super().outer(coefficients)
        return _symmetric(self._transform.T @ self._source.outer(coefficients) @ self._transform)

    def rotated_moments(
        self, curvature: Array, crosses: tuple[Array, ...], basis: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        return self._source.rotated_moments(curvature, crosses, self._transform @ basis)

    def sweep(
        self, matrix: FloatArray, function: Callable[..., Pulling], *arrays: Array
    ) -> tuple[list[Pulling], FloatArray]:
        if not self._sums_are_safe:
            return super().sweep(matrix, function, *arrays)
        mapped = self._transform @ matrix @ self._transform.T
        parts, total = self._source.sweep(_symmetric(mapped), function, *arrays)
        return parts, _symmetric(self._transform.T @ total @ self._transform)


def _symmetric(matrix: FloatArray) -> FloatArray:
    symmetric: FloatArray = 0.5 * (matrix + matrix.T)
    return symmetric
