"""The quadratic model of the risk whose gradient is that of all judgements and whose Hessian is that of a sample."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from closefar.arrays import BoolArray, FloatArray
from closefar.solve.problem import Point, Problem

__all__ = ["Move", "SampledModel"]

# The model is minimised until its gradient step is this share of the first one.
_ACCURATE, _MOST_STEPS = 0.03, 60


class Move(NamedTuple):
    """A step in M and the thresholds, and by how much the model says that it lowers the objective."""

    matrix: FloatArray
    thresholds: FloatArray
    decrement: float


class SampledModel:
    """The model at a point, over the feasible set; its products are passes over the sample."""

    def __init__(self, few: Problem, point: Point) -> None:
        self.few, self.point = few, point
        squared = few.objective.quadratic_forms(point.matrix)
        self.curvature = few.objective.evaluate(squared, point.thresholds, order=2).curvature
        self._borders = [few.objective.outer(cross) for cross in self.curvature.crosses]

    def minimise(self) -> Move:
        """Accelerated projected gradient in M, with the thresholds minimised out."""
        start, project = self.point.matrix, self.few.cone.project
        here = before = np.zeros_like(start)
        image = image_before = here
        momentum, smoothness, first = 1.0, 0.1, 0.0
        for _ in range(_MOST_STEPS):
            following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
            weight = (momentum - 1.0) / following
            base, image_base = here + weight * (here - before), image + weight * (image - image_before)
            slope = self._slope(base, image_base)
            while True:
                ahead = project(start + base - slope / smoothness) - start
                image_ahead = self._product(ahead)
                change = ahead - base
                moved = float(np.sum(change * change))
                curved = float(np.sum(change * (self._slope(ahead, image_ahead) - slope)))
                if curved <= smoothness * moved * (1.0 + 1e-9):
                    break
                smoothness = max(1.5 * smoothness, curved / moved)
            before, image_before = here, image
            here, image = ahead, image_ahead
            momentum = 1.0 if float(np.sum(change * (here - before))) < 0.0 else following
            residual = smoothness * math.sqrt(moved)
            first = first or residual
            if residual <= _ACCURATE * first:
                break
        return self._move(here, image)

    def _product(self, matrix: FloatArray) -> FloatArray:
        return self.few.objective.hessian_product(matrix, np.zeros(len(self._borders)), self.curvature)[0]

    def _across(self, matrix: FloatArray) -> FloatArray:
        """The change of the slopes of the thresholds with this change of M."""
        return np.array([float(np.sum(border * matrix)) for border in self._borders])

    def _shift(self, matrix: FloatArray) -> FloatArray:
        """The best change of the thresholds with this change of M."""
        slopes, least = self.point.slopes + self._across(matrix), self.few.cone.least - self.point.thresholds
        return _least_quadratic(self.curvature.thresholds, slopes, least)

    def _slope(self, matrix: FloatArray, image: FloatArray) -> FloatArray:
        """The derivative of the model in M."""
        slope = self.point.gradient + image
        for shift, border in zip(self._shift(matrix).tolist(), self._borders, strict=True):
            slope = slope + shift * border
        return slope

    def _move(self, matrix: FloatArray, image: FloatArray) -> Move:
        shift, corner = self._shift(matrix), self.curvature.thresholds
        linear = float(np.sum(self.point.gradient * matrix)) + float(shift @ self.point.slopes)
        square = (
            float(np.sum(matrix * image)) + 2.0 * float(shift @ self._across(matrix)) + float(shift @ corner @ shift)
        )
        return Move(matrix, shift, max(-linear - 0.5 * square, 0.0))


def _least_quadratic(hessian: FloatArray, slopes: FloatArray, least: FloatArray) -> FloatArray:
    """The minimiser of 1/2 t'Ht + s't with t >= least, as far as holding those that are below it tells."""
    held: BoolArray = np.zeros(len(slopes), dtype=bool)
    found = np.zeros_like(slopes)
    for _ in range(len(slopes)):
        free = ~held & (np.diag(hessian) > 0.0)
        found = np.where(held, least, 0.0)
        right = -(slopes + hessian @ found)[free]
        on = hessian[np.ix_(free, free)]
        found[free] = right / on[0, 0] if len(right) == 1 else np.linalg.solve(on, right)
        below = found < least
        if not np.any(below & ~held):
            break
        held |= below
    return found
