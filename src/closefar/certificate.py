"""From a point to a proven bound on its distance to the optimum.

For any symmetric M' and tau' whose gradient is dual feasible, that is with
dR/dM + alpha I positive semidefinite and dR/dtau >= 0, convexity gives for every
feasible (M, tau)

    R(M, tau) + alpha tr M >= R(M', tau') - <dR/dM, M'> - tau' dR/dtau.

The right side is a proven lower bound on the optimum: the Fenchel dual value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from closefar.arrays import FloatArray
from closefar.problem import Point

__all__ = ["Certificate", "lower_bound", "proven_bound"]

HessianSolve = Callable[[FloatArray, float | None, float], tuple[FloatArray, float]]

# Where no strictly feasible dual point exists (free parameters, or a direction of M that only shifts tau), a
# gradient that is feasible to rounding still bounds the loss of everything within this multiple of the solution.
_ROUNDING = 1e-13
_REACH = 1e3

# A longer step of the proof has left the region where the Hessian says anything.
_LONGEST_STEP = 10.0


@dataclass(frozen=True)
class Certificate:
    """How good a fit is, and what proves it.

    Attributes
    ----------
    loss : float
        The mean negative log-likelihood R(M, tau) of the labels.  (Where labels may be flipped,
        `loss` accounts for that; `objective`, `lower_bound` and `gap` are of the convex problem
        in which each label's probability of being flipped is held fixed.)
    gap : float
        A proven upper bound on the objective minus its minimum.  The objective is the
        loss, or the loss plus the trace penalty where alpha > 0.  (Where no strictly feasible
        dual point exists, as with a learned origin and alpha = 0, it bounds the gain of every
        metric up to a thousand times the size of this one.)
    converged : bool
        Whether `gap` is at most the tolerance asked for or, where `rank` is fixed, no small
        change improves the metric.
    status : str
        A word for the outcome, a colon, and a sentence that says what to do.
    n_passes : float
        Passes over the data; one is a loss with its gradient.
    objective, lower_bound : float
        What `gap` is the difference of.
    threshold_multiplier : float
        dR/dtau, the multiplier of tau >= 0: zero where tau > 0.
    globally_optimal : bool
        Whether no metric of any rank is better by more than the tolerance.

    Examples
    --------
    >>> import closefar as cf
    >>> pairs, labels, *_ = cf.datasets.make_pairs(2000, 4, random_state=0)
    >>> certificate = cf.LinearMetricLearner().fit(pairs, labels).certificate_
    >>> certificate.converged, certificate.gap <= 1e-6, certificate.status.split(":")[0]
    (True, True, 'converged')
    """

    loss: float
    gap: float
    converged: bool
    status: str
    n_passes: float
    objective: float
    lower_bound: float
    threshold_multiplier: float
    globally_optimal: bool


def proven_bound(point: Point, ceiling: float) -> float:
    """The lower bound that the gradient at `point` proves; minus infinity if it proves none.

    `ceiling` is the objective of a feasible point.  With a penalty alpha tr M <= ceiling at
    the optimum, so that a gradient outside the dual cone has a bounded price.
    """
    problem, cone = point.problem, point.problem.cone
    below, rest = cone.violations(point.gradient, point.slope)
    size = 1.0 + float(np.abs(point.matrix).sum()) + abs(point.threshold)
    if rest > _ROUNDING or (below > _ROUNDING and problem.alpha == 0.0):
        return -np.inf
    trace = _REACH * size if below <= _ROUNDING else ceiling / problem.alpha
    # Margins are wrong by about eps * size, the gradient by as much, and it is multiplied by M.
    rounding = np.finfo(np.float64).eps * size * (1.0 + size)
    bound = point.dual_value - below * trace - rest * _REACH * size - rounding
    return float(bound) if bound <= ceiling else -np.inf


def lower_bound(point: Point, solve: HessianSolve, target: float) -> float:
    """Prove a lower bound on the optimum, within about `target` of it if `point` is that near.

    Newton steps that hold the active constraints fixed move the gradient onto the dual
    cone, and a little into it; what they reach is checked, not assumed.  `solve` takes a
    right side (matrix, threshold; None holds the threshold) and the residual it may leave.
    """
    problem, cone, ceiling = point.problem, point.problem.cone, point.objective
    bound = max(0.0, proven_bound(point, ceiling))
    inside = max(target, 1e-12) / (2.0 * max(cone.trace(point.matrix), 1.0))
    goal = _slack(point) + inside * cone.identity
    residual = _ROUNDING if cone.has_constant else 0.9 * inside
    longest = _LONGEST_STEP * (1.0 + float(np.linalg.norm(point.matrix)))
    violation = np.inf
    for _ in range(4):
        at_least = point.threshold == cone.least_threshold and point.slope >= 0.0
        step, shift = solve(goal - point.gradient, None if at_least else -point.slope, residual)
        if not float(np.linalg.norm(step)) <= longest:
            break
        matrix = point.matrix + step
        settled = problem.settle(problem.risk.quadratic_forms_of(matrix), point.threshold + shift, tol=0.1 * _ROUNDING)
        point = problem.point(matrix, *settled)
        bound = max(bound, proven_bound(point, ceiling))
        before, violation = violation, max(cone.violations(point.gradient, point.slope))
        if not 0.0 < violation < 0.5 * before:
            break
    return bound


def _slack(point: Point) -> FloatArray:
    """The positive part of the gradient on the null space of M."""
    values, vectors = point.problem.cone.eigen(point.matrix)
    null = vectors[:, values <= 1e-9 * max(values[-1], 0.0)]
    slack, turn = np.linalg.eigh(null.T @ point.gradient @ null)
    root: FloatArray = (null @ turn) * np.sqrt(np.maximum(slack, 0.0))
    return root @ root.T
