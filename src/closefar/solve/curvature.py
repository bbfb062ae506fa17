"""Second derivatives of the risk as solvers use them: the Hessian, its products, and a diagonal model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from closefar import packed
from closefar.arrays import Array, FloatArray, IndexArray
from closefar.rows import RowSource

__all__ = ["Curvature", "FullCurvature", "MarginCurvature", "UnknownCurvature"]


class Curvature(ABC):
    """The second derivatives in squared distances and thresholds.

    `distance` is a handle with the second derivative in the squared distance of each row;
    `thresholds` is the matrix of the sums of those in two thresholds.  If it `can_be_sampled`, those of some rows
    can stand for all.
    """

    can_be_sampled: ClassVar[bool] = False

    def __init__(self, distance: Array, thresholds: FloatArray) -> None:
        self.distance = distance
        self.thresholds = thresholds

    @property
    @abstractmethod
    def crosses(self) -> tuple[Array, ...]:
        """The mixed derivatives in the squared distance of each row and each threshold, one handle each."""

    @abstractmethod
    def mapped(self, function: Callable[[Array], Array]) -> Curvature:
        """The same with a function of each array of one number per row."""

    @abstractmethod
    def with_thresholds(self, thresholds: FloatArray) -> Curvature:
        """The same with other second derivatives in the thresholds."""

    @property
    @abstractmethod
    def border_passes(self) -> float:
        """The cost of the threshold part of the Hessian, in addition to the sum of squares."""

    @abstractmethod
    def hessian(self, source: RowSource, *, rough: bool = False) -> FloatArray:
        """The second derivative of the risk in (packed M, thresholds) as a matrix, `rough` in single precision."""

    def sampled(self, source: RowSource, part: RowSource, indices: IndexArray, factors: FloatArray) -> Curvature:
        """The second derivatives of some rows, which are `part`, each times its factor."""
        raise NotImplementedError(f"{type(self).__name__} needs the second derivatives of all rows.")

    @abstractmethod
    def product(self, source: RowSource, matrix: FloatArray, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The second derivative of the risk along (S, t), matrix part and threshold part: one sweep over the rows."""

    @abstractmethod
    def rotated(self, source: RowSource, basis: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The second derivatives in the diagonal of V'MV, V the basis, and in it and each threshold."""


class _Change(NamedTuple):
    """The change of first derivatives along a step: in the squared distance of some rows and, summed, in thresholds."""

    margin_gradient: Array
    slopes: FloatArray


class FullCurvature(Curvature):
    """The second derivatives of any loss of a squared distance and thresholds."""

    def __init__(self, distance: Array, crosses: tuple[Array, ...], thresholds: FloatArray) -> None:
        super().__init__(distance, thresholds)
        self._crosses = crosses

    @property
    def crosses(self) -> tuple[Array, ...]:
        return self._crosses

    def mapped(self, function: Callable[[Array], Array]) -> FullCurvature:
        return FullCurvature(function(self.distance), tuple(map(function, self.crosses)), self.thresholds)

    def with_thresholds(self, thresholds: FloatArray) -> FullCurvature:
        return FullCurvature(self.distance, self.crosses, thresholds)

    @property
    def border_passes(self) -> float:
        return 0.5 * len(self.crosses)

    @property
    def can_be_sampled(self) -> bool:  # type: ignore[override]
        return not self.crosses

    def sampled(self, source: RowSource, part: RowSource, indices: IndexArray, factors: FloatArray) -> FullCurvature:
        distance = part.product(source.pick(self.distance, indices), part.row_array(factors))
        return FullCurvature(distance, (), self.thresholds)

    def hessian(self, source: RowSource, *, rough: bool = False) -> FloatArray:
        on_matrix = source.sum_of_squares(source.map(_root, self.distance), (), rough=rough)
        border = np.reshape([packed.pack(source.outer(cross)) for cross in self.crosses], (-1, len(on_matrix)))
        return np.block([[on_matrix, border.T], [border, self.thresholds]])

    def product(self, source: RowSource, matrix: FloatArray, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
        steps = thresholds.tolist()

        def change(squared: Array, distance: Array, *crosses: Array) -> _Change:
            moved = distance * squared
            for step, cross in zip(steps, crosses, strict=True):
                moved = moved + step * cross
            return _Change(moved, np.array([_total(cross * squared) for cross in crosses]))

        parts, image = source.sweep(matrix, change, self.distance, *self.crosses)
        return image, np.sum([part.slopes for part in parts], axis=0) + self.thresholds @ thresholds

    def rotated(self, source: RowSource, basis: FloatArray) -> tuple[FloatArray, FloatArray]:
        fourth, sums = source.rotated_moments(self.distance, self.crosses, basis)
        return fourth, sums[:, 1:]


class MarginCurvature(Curvature):
    """The second derivatives of a loss that depends only on the margins q - tau, with one threshold."""

    can_be_sampled = True

    @property
    def crosses(self) -> tuple[Array, ...]:
        return (-self.distance,)

    def mapped(self, function: Callable[[Array], Array]) -> MarginCurvature:
        return MarginCurvature(function(self.distance), self.thresholds)

    def with_thresholds(self, thresholds: FloatArray) -> MarginCurvature:
        return MarginCurvature(self.distance, thresholds)

    @property
    def border_passes(self) -> float:
        return 0.0

    def hessian(self, source: RowSource, *, rough: bool = False) -> FloatArray:
        """The sum of f f' for f = sqrt(c) (F, -1): one sum of squares, with the signs changed at the end."""
        root = source.map(_root, self.distance)
        hessian = source.sum_of_squares(root, (root,), rough=rough)
        hessian[-1, :-1] *= -1.0
        hessian[:-1, -1] *= -1.0
        return hessian

    def sampled(self, source: RowSource, part: RowSource, indices: IndexArray, factors: FloatArray) -> MarginCurvature:
        distance = part.product(source.pick(self.distance, indices), part.row_array(factors))
        return MarginCurvature(distance, np.array([[part.total(distance)]]))

    def product(self, source: RowSource, matrix: FloatArray, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
        shift = float(thresholds[0])
        fused = source.curvature_pass(self.distance, matrix, shift)
        if fused is not None:
            return fused[0], np.array([fused[1]])

        def change(squared: Array, distance: Array) -> _Change:
            moved = distance * (squared - shift)
            return _Change(moved, np.array([-_total(moved)]))

        parts, image = source.sweep(matrix, change, self.distance)
        return image, np.sum([part.slopes for part in parts], axis=0)

    def rotated(self, source: RowSource, basis: FloatArray) -> tuple[FloatArray, FloatArray]:
        fourth, sums = source.rotated_moments(self.distance, (), basis)
        return fourth, -sums


class UnknownCurvature(MarginCurvature):
    """The second derivatives of which only the sum is known; those of each row are computed when they are asked for."""

    def __init__(self, compute: Callable[[], Array], thresholds: FloatArray) -> None:
        self._compute = compute
        self.thresholds = thresholds

    @cached_property
    def distance(self) -> Array:
        return self._compute()


def _root(values: Array) -> Array:
    return array_namespace(values).sqrt(values)


def _total(values: Array) -> float:
    return float(array_namespace(values).sum(values))
