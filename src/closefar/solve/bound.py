"""A proven bound on the gap between a point and the optimum.

For any symmetric M' and tau' whose gradient is dual feasible, that is with
dR/dM + alpha I positive semidefinite and dR/dtau >= 0, convexity gives for every
feasible (M, tau)

    R(M, tau) + alpha tr M >= R(M', tau') - <dR/dM, M'> - tau' dR/dtau

with tau' measured from the least feasible value of tau.  The right side is a proven lower
bound on the optimum: the Fenchel dual value.  A threshold delta with a penalty p delta^2 / 2 in
R needs no sign of dR/ddelta: it lowers the bound by (dR/ddelta)^2 / (2 p).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from closefar.arrays import TINY, BoolArray, FloatArray
from closefar.solve.likelihood import Curvature
from closefar.solve.problem import Objective, Point

# (matrix, thresholds, which thresholds are held, residual) -> (matrix, thresholds)
HessianSolve = Callable[[FloatArray, FloatArray, BoolArray, float], tuple[FloatArray, FloatArray]]

# In unit-free coordinates gradients are of order one; their sums over rows are wrong by up to about 1e-13.
DUAL_ROUNDING = 1e-13

# If no strictly feasible dual point exists (free parameters, or a direction of M that only shifts tau), a
# gradient that is feasible up to rounding still bounds the loss of everything within this multiple of the solution.
REACH = 1e3

# A longer step of the proof leaves the region where the Hessian is informative.
_LONGEST_PROOF_STEP = 10.0
_MOST_PROOF_ROUNDS = 4  # of solving with the Hessian; each halves what is left, or the proof is given up


def proven_bound(point: Point, ceiling: float) -> float:
    """The lower bound that the gradient at `point` proves; minus infinity if there is none.

    `ceiling` is the objective of a feasible point.  With a penalty, alpha tr M <= ceiling at
    the optimum, so the cost of a gradient outside the dual cone is bounded.
    """
    problem = point.problem
    below, rest = problem.cone.violations(point.gradient, point.unpaid_slopes)
    size = 1.0 + float(np.abs(point.matrix).sum()) + float(np.abs(point.thresholds).sum())
    if rest > DUAL_ROUNDING or (below > DUAL_ROUNDING and problem.alpha == 0.0):
        return -np.inf
    trace = REACH * size if below <= DUAL_ROUNDING else ceiling / problem.alpha
    # The rounding error of margins, and so of the gradient, is about eps * size, and it is multiplied by M.
    rounding = np.finfo(np.float64).eps * problem.objective.source.condition * size * (1.0 + size)
    bound = point.dual_value - below * trace - rest * REACH * size - rounding
    return float(bound) if bound <= ceiling else -np.inf


def lower_bound(point: Point, solve: HessianSolve, target: float) -> float:
    """Prove a lower bound on the optimum, within about `target` of it if `point` is that close.

    Newton steps with fixed active constraints move the gradient onto the dual cone, and slightly
    into it; the result is verified, not assumed.  `solve` takes a right-hand side (matrix and
    thresholds), the thresholds to hold fixed, and the residual that it may leave.
    """
    cone, ceiling = point.problem.cone, point.value
    bound = max(0.0, proven_bound(point, ceiling))
    inside = max(target, 1e-12) / (2.0 * max(cone.trace(point.matrix), 1.0))
    goal = _slack(point) + inside * cone.identity
    residual = DUAL_ROUNDING if cone.has_constant else 0.9 * inside
    longest = _LONGEST_PROOF_STEP * (1.0 + float(np.linalg.norm(point.matrix)))
    violation = np.inf
    for _ in range(_MOST_PROOF_ROUNDS):
        held = cone.are_held(point.thresholds, point.slopes)
        allowed = max(target, 1e-12) / (8.0 * (1.0 + np.abs(point.thresholds)))
        rise = np.where(held | np.isneginf(cone.least), 0.0, allowed)
        step, shift = solve(goal - point.gradient, rise - point.slopes, held, residual)
        if not float(np.linalg.norm(step)) <= longest:
            break
        point = _move(point, step, shift, 2.0 * rise)
        bound = max(bound, proven_bound(point, ceiling))
        before, violation = violation, max(cone.violations(point.gradient, point.unpaid_slopes))
        if ceiling - bound <= target or not 0.0 < violation < 0.5 * before:
            break
    return bound


def _move(point: Point, step: FloatArray, shift: FloatArray, most: FloatArray) -> Point:
    """The point at the end of a step; thresholds with a slope below zero or above `most` are minimised."""
    problem = point.problem
    matrix, thresholds = point.matrix + step, np.maximum(point.thresholds + shift, problem.cone.least)
    squared = problem.objective.quadratic_forms(matrix)
    evaluation = problem.objective.evaluate(squared, thresholds)
    held = problem.cone.are_held(thresholds, evaluation.slopes)
    if not np.all(held | ((evaluation.slopes >= 0.0) & (evaluation.slopes <= most))):
        del evaluation  # and its numbers of all rows
        thresholds, evaluation = problem.minimise_threshold(squared, thresholds, tol=0.1 * DUAL_ROUNDING)
    return problem.known(matrix, thresholds, evaluation)


def _slack(point: Point) -> FloatArray:
    """The positive part of the gradient on the null space of M."""
    values, vectors = point.problem.cone.eigen(point.matrix)
    null = vectors[:, values <= 1e-9 * max(values[-1], 0.0)]
    slack, turn = np.linalg.eigh(null.T @ point.gradient @ null)
    root: FloatArray = (null @ turn) * np.sqrt(np.maximum(slack, 0.0))
    return root @ root.T


# ---------------------------------------------------------------------------------------------------------------------
# Solving with the Hessian of the risk in (M, thresholds) if it is too large to form


_MOST_CONJUGATE_STEPS = 60  # each is a pass; a proof that needs more comes sooner after another step

Step = tuple[FloatArray, FloatArray]

Preconditioner = Callable[[BoolArray], Callable[[FloatArray, FloatArray], Step]]


@dataclass(frozen=True)
class HessianSolver:
    """Solve H[S, t] = (matrix, thresholds) by conjugate gradients; each product is one pass.

    `preconditioner` returns an approximate inverse of the Hessian for held thresholds, which need not be linear.
    A residual of `share` of the right-hand side is always small enough.
    """

    objective: Objective
    curvature: Curvature
    preconditioner: Preconditioner
    share: float = 0.0

    def __call__(self, matrix: FloatArray, thresholds: FloatArray, held: BoolArray, residual: float) -> Step:
        """Iterate until the spectral norm of the residual is at most `residual`; `held` thresholds are fixed."""
        precondition = self.preconditioner(held)
        residual = max(residual, self.share * float(np.linalg.norm(matrix, 2)))
        solution, shift = np.zeros_like(matrix), np.zeros_like(thresholds)
        left, left_t = matrix, thresholds
        step, step_t = precondition(left, left_t)
        size = float(np.sum(left * step) + left_t @ step_t)
        for _ in range(_MOST_CONJUGATE_STEPS):
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
    return lambda held: partial(solve, held=held, residual=0.0)


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
