"""Solving with the Hessian of the risk in (M, thresholds) if it is too large to form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from closefar.arrays import TINY, BoolArray, FloatArray
from closefar.solve.bound import lower_bound
from closefar.solve.likelihood import Curvature
from closefar.solve.problem import Objective, Point

_MAX_ITER = 60

Step = tuple[FloatArray, FloatArray]

Preconditioner = Callable[[BoolArray], Callable[[FloatArray, FloatArray], Step]]


class HessianSolver:
    """Solve H[S, t] = (matrix, thresholds) by conjugate gradients; each product is one pass.

    `preconditioner` returns an approximate inverse of the Hessian for held thresholds, which need not be linear.
    A residual of `share` of the right-hand side is always small enough.
    """

    def __init__(
        self, objective: Objective, curvature: Curvature, preconditioner: Preconditioner, share: float = 0.0
    ) -> None:
        self.objective = objective
        self.curvature = curvature
        self.preconditioner = preconditioner
        self.share = share

    def __call__(self, matrix: FloatArray, thresholds: FloatArray, held: BoolArray, residual: float) -> Step:
        """Iterate until the spectral norm of the residual is at most `residual`; `held` thresholds are fixed."""
        precondition = self.preconditioner(held)
        residual = max(residual, self.share * float(np.linalg.norm(matrix, 2)))
        solution, shift = np.zeros_like(matrix), np.zeros_like(thresholds)
        left, left_t = matrix, thresholds
        step, step_t = precondition(left, left_t)
        size = float(np.sum(left * step) + left_t @ step_t)
        for _ in range(_MAX_ITER):
            if np.linalg.norm(left, 2) <= residual:
                break
            image, image_t = self.objective.hessian_product(step, step_t, self.curvature)
            curved = float(np.sum(step * image) + step_t @ image_t)
            if not curved > 0.0:
                break
            length = size / curved
            solution, shift = solution + length * step, shift + length * step_t
            before, before_t = left, left_t
            left, left_t = left - length * image, left_t - length * image_t
            ahead, ahead_t = precondition(left, left_t)
            # Polak and Ribiere's rule allows for a preconditioner that is not quite linear.
            turn = (float(np.sum((left - before) * ahead) + (left_t - before_t) @ ahead_t)) / size
            size = float(np.sum(left * ahead) + left_t @ ahead_t)
            step, step_t = ahead + turn * step, ahead_t + turn * step_t
        return solution, shift


def prove_bound(point: Point, target: float) -> float:
    """A proven lower bound on the optimum, by conjugate gradients from a nearly optimal point.

    The bound is verified in full precision, so the steps that lead to it may be rough.
    """
    basis = np.linalg.eigh(point.matrix)[1]
    objective, curvature, bound = point.problem.objective, point.evaluation.curvature, 0.0
    rough = objective.rough
    for each in (objective,) if rough is objective else (rough, objective):
        solve = HessianSolver(each, curvature, diagonal_model(each, curvature, basis))
        bound = max(bound, lower_bound(point, solve, target))
        if point.value - bound <= target:
            break
    return bound


def sample_model(objective: Objective, curvature: Curvature, basis: FloatArray, share: float) -> Preconditioner:
    """The inverse Hessian of a sample of the judgements, up to a residual of this share."""
    solve = HessianSolver(objective, curvature, diagonal_model(objective, curvature, basis), share)

    def holding(held: BoolArray) -> Callable[[FloatArray, FloatArray], Step]:
        return lambda matrix, thresholds: solve(matrix, thresholds, held, 0.0)

    return holding


def diagonal_model(objective: Objective, curvature: Curvature, basis: FloatArray) -> Preconditioner:
    """The inverse Hessian if only squares of the coordinates in `basis` (eigenvectors of M) were correlated."""
    d = objective.n_directions
    fourth, border = objective.rotated_moments(curvature, basis)
    diagonal = np.block([[fourth, border], [border.T, curvature.thresholds]])
    ridge = 1e-10 * np.trace(diagonal) / len(diagonal) + TINY
    diagonal[np.diag_indices(len(diagonal))] += ridge
    mixed = objective.mixed_moments(curvature, basis)
    off_diagonal = 2.0 * (fourth if mixed is None else mixed) + ridge

    def holding(held: BoolArray) -> Callable[[FloatArray, FloatArray], Step]:
        free = np.append(np.ones(d, dtype=bool), ~held)
        inverse = np.linalg.inv(diagonal[np.ix_(free, free)])

        def apply(matrix: FloatArray, thresholds: FloatArray) -> Step:
            rotated = basis.T @ matrix @ basis
            on = np.zeros(len(diagonal))
            on[free] = inverse @ np.append(np.diag(rotated), thresholds)[free]
            scaled = rotated / off_diagonal
            scaled[np.diag_indices(d)] = on[:d]
            return basis @ scaled @ basis.T, on[d:]

        return apply

    return holding
