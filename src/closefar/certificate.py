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

from closefar.objective import Pointwise, Risk

__all__ = ["Certificate", "Point", "lower_bound"]

HessianSolve = Callable[[np.ndarray, float | None, float], tuple[np.ndarray, float]]

# Where no strictly feasible dual point exists (a direction of M that only shifts tau), a gradient that is
# feasible to rounding still bounds every metric whose trace is at most this multiple of the solution's.
_TRACE_CAP = 1e3
_ROUNDING = 1e-13


@dataclass(frozen=True)
class Certificate:
    """How good a fit is, and what proves it.

    Attributes
    ----------
    loss : float
        The mean negative log-likelihood R(M, tau) of the labels.
    gap : float
        A proven upper bound on the objective minus its minimum.  The objective is the
        loss, or the loss plus the trace penalty where alpha > 0.
    converged : bool
        Whether `gap` is at most the tolerance asked for.
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


@dataclass(frozen=True)
class Point:
    """(M, tau) with the penalised risk and its gradient there."""

    matrix: np.ndarray
    threshold: float
    pointwise: Pointwise
    gradient: np.ndarray
    alpha: float

    @classmethod
    def at(cls, risk: Risk, matrix: np.ndarray, threshold: float, pointwise: Pointwise, alpha: float) -> Point:
        """Complete what is known of each row by the gradient: half a pass."""
        gradient = risk.outer_sum(pointwise.pull) + alpha * np.eye(len(matrix))
        return cls(matrix, threshold, pointwise, gradient, alpha)

    @property
    def slope(self) -> float:
        """dR/dtau."""
        return self.pointwise.threshold_slope

    @property
    def objective(self) -> float:
        return self.pointwise.loss + self.alpha * float(np.trace(self.matrix))

    @property
    def dual_value(self) -> float:
        """The dual value of the gradient; a lower bound where the gradient is feasible."""
        return self.objective - float(np.sum(self.gradient * self.matrix)) - self.threshold * self.slope

    def proven_bound(self) -> float:
        """The dual value if the gradient is feasible, minus infinity otherwise."""
        least = float(np.linalg.eigvalsh(self.gradient)[0])
        violation = max(-least, -self.slope, 0.0)
        if violation > _ROUNDING:
            return -np.inf
        cap = _TRACE_CAP * (1.0 + float(np.trace(self.matrix)) + self.threshold)
        return self.dual_value - violation * cap


def lower_bound(risk: Risk, point: Point, solve: HessianSolve, target: float) -> float:
    """Prove a lower bound on the optimum, within about `target` of it if `point` is that near.

    Newton steps that hold the active constraints fixed move the gradient onto the cone,
    and a little into it; what they reach is checked, not assumed.  `solve` takes a right
    side (matrix, threshold; None holds the threshold) and the residual it may leave.
    """
    bound = max(0.0, point.proven_bound())
    inside = target / (2.0 * max(float(np.trace(point.matrix)), 1e-12))
    goal = _dual_part(point) + inside * np.eye(len(point.matrix))
    violation = np.inf
    for _ in range(4):
        at_zero = point.threshold == 0.0 and point.slope >= 0.0
        step, shift = solve(goal - point.gradient, None if at_zero else -point.slope, 0.9 * inside)
        point = _evaluate(risk, point.matrix + step, point.threshold + shift, point.alpha)
        bound = max(bound, point.proven_bound())
        before, violation = violation, -float(np.linalg.eigvalsh(point.gradient)[0])
        if not 0.0 < violation < 0.5 * before:
            break
    return bound


def _evaluate(risk: Risk, matrix: np.ndarray, threshold: float, alpha: float) -> Point:
    """The point with the best threshold near `threshold`."""
    threshold, pointwise = risk.best_threshold(risk.quadratic_forms_of(matrix), threshold)
    return Point.at(risk, matrix, threshold, pointwise, alpha)


def _dual_part(point: Point) -> np.ndarray:
    """The positive part of the gradient on the null space of M."""
    values, vectors = np.linalg.eigh(point.matrix)
    null = vectors[:, values <= 1e-9 * max(values[-1], 0.0)]
    slack, turn = np.linalg.eigh(null.T @ point.gradient @ null)
    root = (null @ turn) * np.sqrt(np.maximum(slack, 0.0))
    return root @ root.T
