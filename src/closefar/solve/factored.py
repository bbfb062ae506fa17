"""The penalised risk as a function of a factor A of M = A A', with the thresholds minimised out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.solve.likelihood import Evaluation, damped
from closefar.solve.objective import Objective
from closefar.solve.problem import Problem

__all__ = ["Factored", "Place"]

# The line search ends when the slope is this share of that at its start, or after this many evaluations.
_ACCURATE, _ACCURATE_THRESHOLDS, _MOST_STEPS = 0.1, 0.02, 12
_RISE = 1e-9  # relative to the value, and more than rounding


# Slopes of the thresholds; in single precision, derivatives in the factor are less accurate than that anyway.
_THRESHOLD_TOL, _ROUGH_THRESHOLD_TOL = 1e-12, 1e-9


@dataclass(frozen=True)
class Place:
    """A factor with the projections of the data on it, their squared lengths, the best thresholds and the value.

    `curvature` is the sum of the second derivatives in the squared distances.  Projections along a line are updated,
    with rounding errors of their own; `is_fresh` if they are those of the factor.
    """

    factor: FloatArray
    projections: Array
    squared: Array
    thresholds: FloatArray
    evaluation: Evaluation
    value: float
    curvature: float
    is_fresh: bool

    @property
    def trace(self) -> float:
        return float(np.sum(self.factor**2))


@dataclass(frozen=True)
class Factored:
    """A problem over factors; `objective` may be less precise than that of the problem.

    `threshold_tol` limits the slopes in the thresholds, which are optimised at every place, where that is all the
    precision that is needed.
    """

    problem: Problem
    objective: Objective
    threshold_tol: float | None = None

    @property
    def is_exact(self) -> bool:
        return self.objective is self.problem.objective

    def at(self, factor: FloatArray, thresholds: FloatArray, tol: float | None = None) -> Place:
        """Evaluate a factor: half a pass."""
        projections = self.objective.forward(factor)
        squared = self.objective.inner(projections, projections)
        return self._place(factor, projections, squared, thresholds, tol, is_fresh=True)

    def again(self, factor: FloatArray, thresholds: FloatArray) -> Place:
        """Evaluate a factor with thresholds that are known to be the best: half a pass."""
        projections = self.objective.forward(factor)
        squared = self.objective.inner(projections, projections)
        evaluation = self.objective.evaluate(squared, thresholds, order=2)
        return self._known(factor, projections, squared, thresholds, evaluation, is_fresh=True)

    def settled(self, place: Place) -> Place:
        """The same place with exact thresholds: no pass."""
        if self.threshold_tol is not None:
            return place
        return self._place(
            place.factor, place.projections, place.squared, place.thresholds, 1e-15, is_fresh=place.is_fresh
        )

    def gradient(self, place: Place) -> FloatArray:
        """The derivative in A: half a pass."""
        pulled = self.objective.backward(place.projections, place.evaluation.margin_gradient)
        return 2.0 * (pulled + self.problem.alpha * place.factor)

    def search(self, place: Place, direction: FloatArray) -> Place:
        """Minimise along A + t D, for one projection on D: half a pass.

        The squared distances along it are f + 2 t P'Q + t^2 Q'Q for each pair, so t and the thresholds are found
        without another pass, by Newton steps in both.
        """
        objective = self.objective
        ahead = objective.forward(direction)
        linear, square = 2.0 * objective.inner(place.projections, ahead), objective.inner(ahead, ahead)
        line = _Line(self.problem, objective, place, linear, square, direction)
        length, thresholds = line.minimise()
        squared = place.squared + length * (linear + length * square)
        ahead *= float(length)
        ahead += place.projections
        return self._place(place.factor + length * direction, ahead, squared, thresholds)

    def _place(
        self,
        factor: FloatArray,
        projections: Array,
        squared: Array,
        thresholds: FloatArray,
        tol: float | None = None,
        *,
        is_fresh: bool = False,
    ) -> Place:
        if self.threshold_tol is not None:
            tol = self.threshold_tol
        elif tol is None:
            tol = _THRESHOLD_TOL if self.is_exact else _ROUGH_THRESHOLD_TOL
        thresholds, evaluation = self.objective.best_thresholds(squared, thresholds, self.problem.cone.least, tol)
        return self._known(factor, projections, squared, thresholds, evaluation, is_fresh=is_fresh)

    def _known(
        self,
        factor: FloatArray,
        projections: Array,
        squared: Array,
        thresholds: FloatArray,
        evaluation: Evaluation,
        *,
        is_fresh: bool,
    ) -> Place:
        value = evaluation.loss + self.problem.alpha * float(np.sum(factor**2))
        curvature = self.objective.source.total(evaluation.curvature.distance)
        return Place(factor, projections, squared, thresholds, evaluation, value, curvature, is_fresh)


class _Line:
    """The penalised risk along a line of factors, as a function of its length and the thresholds."""

    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        place: Place,
        linear: Array,
        square: Array,
        direction: FloatArray,
    ) -> None:
        self.objective, self.least = objective, problem.cone.least
        self.place, self.linear, self.square = place, linear, square
        self.alpha = problem.alpha
        self.trace = 2.0 * float(np.sum(place.factor * direction)), float(np.sum(direction**2))

    def minimise(self) -> tuple[float, FloatArray]:
        """The best length and thresholds of a few safeguarded Newton steps."""
        length, thresholds = 1.0, self._thresholds_ahead()
        low, high = 0.0, np.inf
        best = self.place.value, 0.0, self.place.thresholds
        first = abs(self._slope_at_start())
        for _ in range(_MOST_STEPS):
            value, gradient, hessian = self._evaluate(length, thresholds)
            # Below the rounding error of the value, a step that ends with a smaller slope is still one.
            if value < best[0] + 1e-14 * abs(best[0]):
                best = min(value, best[0]), length, thresholds
            free = np.append(True, ~((thresholds <= self.least) & (gradient[1:] >= 0.0)))
            # The slope in the length if the thresholds follow it.
            on = hessian[np.ix_(free, free)]
            rest = np.linalg.solve(damped(on[1:, 1:]), np.column_stack([gradient[free][1:], on[1:, 0]]))
            slope = float(gradient[0] - on[0, 1:] @ rest[:, 0])
            curvature = float(on[0, 0] - on[0, 1:] @ rest[:, 1])
            if not np.isfinite(value):
                low, high, length, thresholds = low, length, 0.1 * length, self.place.thresholds
                continue
            low, high = (low, length) if slope > 0.0 else (length, high)
            new = length - slope / curvature if curvature > 0.0 else np.inf
            if not low < new < high:
                new = 2.0 * length if high == np.inf else 0.5 * (low + high)
            new = min(new, 10.0 * length)
            off = float(np.abs(gradient[free][1:]).max(initial=0.0))
            is_accurate = abs(slope) <= _ACCURATE * first and off <= _ACCURATE_THRESHOLDS * first
            step = np.zeros_like(thresholds)
            step[free[1:]] = -(rest[:, 0] + (0.0 if is_accurate else new - length) * rest[:, 1])
            moved = self._moved(thresholds, step)
            if is_accurate and best[1] == 0.0 and value > best[0] + _RISE * abs(best[0]):
                break  # the bottom of another valley, which is higher
            if is_accurate:
                return (length, moved) if best[1] == length else best[1:]
            length, thresholds = new, moved
        return (best[1], best[2]) if best[1] > 0.0 else self._backtrack()

    def _thresholds_ahead(self) -> FloatArray:
        """The thresholds that follow a step of length one, to first order."""
        place, source = self.place, self.objective.source
        curvature = place.evaluation.curvature
        crosses = np.array([source.dot(cross, self.linear) for cross in curvature.crosses])
        free = place.thresholds > self.least
        step = np.zeros_like(crosses)
        on = curvature.thresholds[np.ix_(free, free)]
        step[free] = -np.linalg.solve(damped(on), crosses[free])
        return self._moved(place.thresholds, step)

    def _moved(self, thresholds: FloatArray, step: FloatArray) -> FloatArray:
        most = 3.0 + np.abs(thresholds)
        within = np.clip(step, -most, most)  # far from it where the loss is flat
        return np.maximum(thresholds + within, self.least)

    def _backtrack(self) -> tuple[float, FloatArray]:
        """The first of shorter and shorter lengths that lowers the value with thresholds that are best there."""
        length, best = 1.0, self.place.thresholds
        while length > 1e-6:
            squared = self.place.squared + length * (self.linear + length * self.square)
            thresholds, here = self.objective.best_thresholds(squared, best, self.least, 1e-9)
            if here.loss + self._penalty(length) < self.place.value:
                return length, thresholds
            length *= 0.25
        return 0.0, self.place.thresholds

    def _penalty(self, length: float) -> float:
        on_linear, on_square = self.trace
        return self.alpha * (self.place.trace + length * (on_linear + length * on_square))

    def _slope_at_start(self) -> float:
        pull = self.objective.source.dot(self.place.evaluation.margin_gradient, self.linear)
        return pull + self.alpha * self.trace[0]

    def _evaluate(self, length: float, thresholds: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """The value with its gradient and Hessian in (length, thresholds)."""
        source, (on_linear, on_square) = self.objective.source, self.trace
        squared = self.place.squared + length * (self.linear + length * self.square)
        change = self.linear + (2.0 * length) * self.square
        here = self.objective.evaluate(squared, thresholds, order=2)
        curvature = here.curvature
        value = here.loss + self._penalty(length)
        pull, on_squares, curved, *crosses = source.dots(
            (here.margin_gradient, change),
            (here.margin_gradient, self.square),
            (source.product(curvature.distance, change), change),
            *((cross, change) for cross in curvature.crosses),
        )
        slope = pull + self.alpha * (on_linear + 2.0 * length * on_square)
        bend = 2.0 * (on_squares + self.alpha * on_square)
        hessian = np.empty((1 + len(thresholds), 1 + len(thresholds)))
        hessian[0, 0] = curved + bend
        hessian[0, 1:] = hessian[1:, 0] = crosses
        hessian[1:, 1:] = curvature.thresholds
        return value, np.append(slope, here.slopes), hessian
