"""The problem that solvers minimise: the penalised risk over its feasible set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.solve.cone import Cone, psd_factor
from closefar.solve.likelihood import Evaluation
from closefar.solve.objective import Objective

__all__ = ["Point", "Problem"]


@dataclass(frozen=True)
class Problem:
    """Minimise R(M, thresholds) + alpha tr M over the cone."""

    objective: Objective
    alpha: float
    cone: Cone

    def value(self, evaluation: Evaluation, matrix: FloatArray) -> float:
        return evaluation.loss + self.alpha * self.cone.trace(matrix)

    def project(self, matrix: FloatArray) -> tuple[FloatArray, Array]:
        """The nearest feasible M and its squared distances: at most half a pass."""
        if not self.cone.has_constant:
            factor = psd_factor(matrix, cutoff=1e-9)
            return factor @ factor.T, self.objective.squared_distances(factor)
        projected = self.cone.project(matrix)
        return projected, self.objective.quadratic_forms(projected)

    def minimise_threshold(
        self, squared: Array, thresholds: FloatArray, tol: float = 1e-15
    ) -> tuple[FloatArray, Evaluation]:
        """The best feasible thresholds for given squared distances, and the risk there."""
        return self.objective.best_thresholds(squared, thresholds, self.cone.least, tol)

    def at(self, matrix: FloatArray, thresholds: FloatArray) -> Point:
        """Value and gradient at (M, thresholds): one pass."""
        evaluation, gradient = self.objective.loss_and_gradient(matrix, thresholds)
        return self._point(matrix, thresholds, evaluation, gradient)

    def known(self, matrix: FloatArray, thresholds: FloatArray, evaluation: Evaluation) -> Point:
        """The same, given the risk: half a pass."""
        return self._point(matrix, thresholds, evaluation, self.objective.gradient(evaluation))

    @property
    def rough(self) -> Problem:
        """The problem in a precision that is enough to approach its optimum, if that is faster."""
        rough = self.objective.rough
        return self if rough is self.objective else replace(self, objective=rough)

    def sample(self, share: float, rng: np.random.Generator) -> Problem | None:
        """The problem of about this share of the judgements; None if they are all the same."""
        few = self.objective.sample(share, rng)
        return None if few is None else replace(self, objective=few)

    def _point(self, matrix: FloatArray, thresholds: FloatArray, evaluation: Evaluation, gradient: FloatArray) -> Point:
        summed = replace(evaluation, margin_gradient=None)  # one number per row that nothing needs any more
        penalised = gradient + self.alpha * self.cone.identity if self.alpha else gradient
        return Point(self, matrix, thresholds, summed, penalised)


@dataclass(frozen=True)
class Point:
    """(M, thresholds) with the penalised risk and its gradient there."""

    problem: Problem
    matrix: FloatArray
    thresholds: FloatArray
    evaluation: Evaluation
    gradient: FloatArray

    @property
    def slopes(self) -> FloatArray:
        """The derivatives of the risk in the thresholds."""
        return self.evaluation.slopes

    @cached_property
    def value(self) -> float:
        return self.problem.value(self.evaluation, self.matrix)

    @property
    def unpaid_slopes(self) -> FloatArray:
        """The slopes that must be in the dual cone: zero for thresholds with a penalty, which bounds what they gain."""
        return np.where(self.problem.objective.likelihood.precisions > 0.0, 0.0, self.slopes)

    @property
    def dual_value(self) -> float:
        """A lower bound on the optimum, if the gradient and the unpaid slopes are in the dual cone.

        A threshold with the penalty p t^2 / 2 gains at most s^2 / (2 p) where the slope is s.
        """
        above = self.thresholds - self.problem.cone.lowest
        precisions = self.problem.objective.likelihood.precisions
        paid = precisions > 0.0
        gain = 0.5 * float(np.sum(self.slopes[paid] ** 2 / precisions[paid]))
        lowered = float(above @ self.unpaid_slopes)
        return self.value - float(np.sum(self.gradient * self.matrix)) - lowered - gain
