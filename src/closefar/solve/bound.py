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

import numpy as np

from closefar.arrays import BoolArray, FloatArray
from closefar.solve.problem import Point

# (matrix, thresholds, which thresholds are held, residual) -> (matrix, thresholds)
HessianSolve = Callable[[FloatArray, FloatArray, BoolArray, float], tuple[FloatArray, FloatArray]]

# If no strictly feasible dual point exists (free parameters, or a direction of M that only shifts tau), a
# gradient that is feasible up to rounding still bounds the loss of everything within this multiple of the solution.
_ROUNDING = 1e-13
_REACH = 1e3

# A longer step of the proof leaves the region where the Hessian is informative.
_LONGEST_STEP = 10.0
_MOST_ROUNDS = 4


def proven_bound(point: Point, ceiling: float) -> float:
    """The lower bound that the gradient at `point` proves; minus infinity if there is none.

    `ceiling` is the objective of a feasible point.  With a penalty, alpha tr M <= ceiling at
    the optimum, so the cost of a gradient outside the dual cone is bounded.
    """
    problem = point.problem
    below, rest = problem.cone.violations(point.gradient, point.unpaid_slopes)
    size = 1.0 + float(np.abs(point.matrix).sum()) + float(np.abs(point.thresholds).sum())
    if rest > _ROUNDING or (below > _ROUNDING and problem.alpha == 0.0):
        return -np.inf
    trace = _REACH * size if below <= _ROUNDING else ceiling / problem.alpha
    # The rounding error of margins, and so of the gradient, is about eps * size, and it is multiplied by M.
    rounding = np.finfo(np.float64).eps * problem.objective.source.condition * size * (1.0 + size)
    bound = point.dual_value - below * trace - rest * _REACH * size - rounding
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
    residual = _ROUNDING if cone.has_constant else 0.9 * inside
    longest = _LONGEST_STEP * (1.0 + float(np.linalg.norm(point.matrix)))
    violation = np.inf
    for _ in range(_MOST_ROUNDS):
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
        thresholds, evaluation = problem.minimise_threshold(squared, thresholds, tol=0.1 * _ROUNDING)
    return problem.known(matrix, thresholds, evaluation)


def _slack(point: Point) -> FloatArray:
    """The positive part of the gradient on the null space of M."""
    values, vectors = point.problem.cone.eigen(point.matrix)
    null = vectors[:, values <= 1e-9 * max(values[-1], 0.0)]
    slack, turn = np.linalg.eigh(null.T @ point.gradient @ null)
    root: FloatArray = (null @ turn) * np.sqrt(np.maximum(slack, 0.0))
    return root @ root.T
