"""What fused rows have in common: the rows of another source, and arrays as kernels need them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

from closefar.arrays import Array, FloatArray, IndexArray, engine_of
from closefar.noise import NOISES, Noise
from closefar.rows.blocks import BlockRows
from closefar.rows.coordinates import Coordinates
from closefar.rows.source import Pulling, RowSource

__all__ = ["FusedSource", "has_kernel"]


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
