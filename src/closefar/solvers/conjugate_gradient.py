"""Solving with the Hessian of the risk in (M, tau) where it is too large to form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.certificate import lower_bound
from closefar.objective import Risk
from closefar.problem import Point

__all__ = ["HessianSolver", "prove_bound"]

_MAX_ITER = 60


class HessianSolver:
    """Solves H[S, t] = (matrix, threshold) by conjugate gradients; one product, one pass.

    Preconditioned by the Hessian of independent coordinates in `basis` (the eigenvectors
    of M).
    """

    def __init__(self, risk: Risk, curvature: Array, basis: FloatArray) -> None:
        self.risk = risk
        self.curvature = curvature
        self.precondition = _diagonal_model(risk, curvature, basis)

    def __call__(self, matrix: FloatArray, threshold: float | None, residual: float) -> tuple[FloatArray, float]:
        """Iterate until the spectral norm of what is left is at most `residual`; None holds the threshold."""
        free = threshold is not None
        solution, shift = np.zeros_like(matrix), 0.0
        left, left_t = matrix, threshold or 0.0
        step, step_t = self.precondition(left, left_t, free)
        size = float(np.sum(left * step)) + left_t * step_t
        for _ in range(_MAX_ITER):
            if np.linalg.norm(left, 2) <= residual:
                break
            image, image_t = self.risk.hessian_product(step, step_t, self.curvature)
            bend = float(np.sum(step * image)) + step_t * image_t
            if not bend > 0.0:
                break
            length = size / bend
            solution, shift = solution + length * step, shift + length * step_t
            left, left_t = left - length * image, left_t - length * image_t if free else 0.0
            ahead, ahead_t = self.precondition(left, left_t, free)
            new_size = float(np.sum(left * ahead)) + left_t * ahead_t
            step, step_t = ahead + (new_size / size) * step, ahead_t + (new_size / size) * step_t
            size = new_size
        return solution, shift


def prove_bound(point: Point, target: float) -> float:
    """A proven lower bound on the optimum, by conjugate gradients from a nearly optimal point."""
    basis = np.linalg.eigh(point.matrix)[1]
    solve = HessianSolver(point.problem.risk, point.pointwise.curvature, basis)
    return lower_bound(point, solve, target)


def _diagonal_model(
    risk: Risk, curvature: Array, basis: FloatArray
) -> Callable[[FloatArray, float, bool], tuple[FloatArray, float]]:
    """Inverse of the Hessian as if only squares of the rotated coordinates were correlated."""
    d = risk.n_directions
    fourth, second = risk.rotated_moments(curvature, basis)
    total = float(np.sum(curvature))
    diagonal = np.block([[fourth, -second[:, None]], [-second[None, :], np.array([[total]])]])
    ridge = 1e-10 * np.trace(diagonal) / (d + 1) + 1e-300
    diagonal[np.diag_indices(d + 1)] += ridge
    inverse, inverse_held = np.linalg.inv(diagonal), np.linalg.inv(diagonal[:-1, :-1])
    off_diagonal = 2.0 * fourth + ridge

    def apply(matrix: FloatArray, threshold: float, free: bool) -> tuple[FloatArray, float]:
        rotated = basis.T @ matrix @ basis
        squares = np.diag(rotated)
        on = inverse @ np.append(squares, threshold) if free else np.append(inverse_held @ squares, 0.0)
        scaled = rotated / off_diagonal
        scaled[np.diag_indices(d)] = on[:-1]
        return basis @ scaled @ basis.T, float(on[-1])

    return apply
