"""The quadratic model of the risk whose gradient is that of all judgements and whose Hessian is that of a sample."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from closefar.arrays import FloatArray
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
    """The model at a point, over the feasible set, with one threshold; its products are passes over the sample."""

    def __init__(self, few: Problem, point: Point) -> None:
        self.few, self.point = few, point
        squared = few.objective.quadratic_forms(point.matrix)
        self.curvature = few.objective.evaluate(squared, point.thresholds, order=2).curvature
        self._border = few.objective.outer(self.curvature.crosses[0])
        self._corner = float(self.curvature.thresholds[0, 0])

    def minimise(self) -> Move:
        """Accelerated projected gradient in M, with the threshold minimised out."""
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
        return self.few.objective.hessian_product(matrix, np.zeros(1), self.curvature)[0]

    def _shift(self, matrix: FloatArray) -> float:
        """The best change of the threshold with this change of M."""
        slope = float(self.point.slopes[0]) + float(np.sum(self._border * matrix))
        least = float(self.few.cone.least[0] - self.point.thresholds[0])
        return max(-slope / self._corner, least) if self._corner > 0.0 else 0.0

    def _slope(self, matrix: FloatArray, image: FloatArray) -> FloatArray:
        """The derivative of the model in M."""
        return self.point.gradient + image + self._shift(matrix) * self._border

    def _move(self, matrix: FloatArray, image: FloatArray) -> Move:
        shift = self._shift(matrix)
        across = float(np.sum(self._border * matrix))
        linear = float(np.sum(self.point.gradient * matrix)) + shift * float(self.point.slopes[0])
        square = float(np.sum(matrix * image)) + 2.0 * shift * across + self._corner * shift**2
        return Move(matrix, np.array([shift]), max(-linear - 0.5 * square, 0.0))
