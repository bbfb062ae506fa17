"""Second derivatives of the risk, and what solvers ask of them: the Hessian, its products, and a diagonal model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace

from closefar import packed
from closefar.arrays import Array, FloatArray
from closefar.rows import RowSource

__all__ = ["Curvature", "MarginCurvature"]


class _Change(NamedTuple):
    """How the derivative in the squared distance of each row changes."""

    pull: Array


@dataclass(frozen=True)
class Curvature:
    """The second derivatives in squared distances and thresholds.

    `distance` is that in the squared distance of each row, `crosses` those in it and each threshold
    (one handle each), `thresholds` the matrix of the sums of those in two thresholds.
    """

    distance: Array
    crosses: tuple[Array, ...]
    thresholds: FloatArray

    def hessian(self, source: RowSource) -> FloatArray:
        """The second derivative of the risk in (packed M, thresholds) as a matrix."""
        on_matrix = source.sum_of_squares(source.map(_root, self.distance), ())
        border = np.reshape([packed.pack(source.outer(cross)) for cross in self.crosses], (-1, len(on_matrix)))
        return np.block([[on_matrix, border.T], [border, self.thresholds]])

    def product(self, source: RowSource, matrix: FloatArray, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The second derivative of the risk along (S, t), matrix part and threshold part: one sweep over the rows."""
        steps = thresholds.tolist()

        def change(squared: Array, distance: Array, *crosses: Array) -> _Change:
            moved = distance * squared
            for step, cross in zip(steps, crosses, strict=True):
                moved = moved + step * cross
            return _Change(moved)

        _, image = source.sweep(matrix, change, self.distance, *self.crosses)
        on_thresholds = [float(np.sum(source.outer(cross) * matrix)) for cross in self.crosses]
        return image, np.array(on_thresholds) + self.thresholds @ thresholds

    def rotated(self, source: RowSource, basis: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The second derivatives in the diagonal of V'MV, V the basis, and in it and each threshold."""
        return source.rotated_moments(self.distance, self.crosses, basis)


class MarginCurvature(Curvature):
    """Those of a loss that depends on the differences of squared distances and one threshold, q - tau, alone."""

    def __init__(self, distance: Array, thresholds: FloatArray) -> None:
        super().__init__(distance, (-distance,), thresholds)

    def hessian(self, source: RowSource) -> FloatArray:
        """The sum of f f' for f = sqrt(c) (F, -1): one sum of squares."""
        root = source.map(_root, self.distance)
        return source.sum_of_squares(root, (-root,))

    def product(self, source: RowSource, matrix: FloatArray, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
        shift = float(thresholds[0])

        def change(squared: Array, distance: Array) -> _Change:
            return _Change(distance * (squared - shift))

        parts, image = source.sweep(matrix, change, self.distance)
        return image, np.array([-sum(source.total(part.pull) for part in parts)])


def _root(values: Array) -> Array:
    return array_namespace(values).sqrt(values)
