"""L-BFGS on the factor A of M = A A': for a fixed rank, where the problem is not convex."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from closefar.arrays import FloatArray
from closefar.objective import Pointwise
from closefar.problem import Problem, psd_factor
from closefar.solvers.conjugate_gradient import prove_bound
from closefar.solvers.loop import State
from closefar.solvers.start import moment_start

__all__ = ["Factor"]

_HISTORY = 12


@dataclass(frozen=True)
class _Memory:
    factor: FloatArray
    threshold: float
    value: float
    pointwise: Pointwise
    gradient: FloatArray
    steps: tuple[tuple[FloatArray, FloatArray], ...]  # recent (step, change of gradient)


class Factor:
    """Minimises over d x rank factors; the threshold is minimised out at every point.

    A stationary point of a fixed rank need not be optimal, so start it from the convex
    solution (`resume`); the bound that came with that solution stays valid.
    """

    def __init__(self, problem: Problem, tol: float, rng: np.random.Generator, rank: int | None = None) -> None:
        self.problem = problem
        self.tol = tol
        self.rank = rank or problem.cone.size

    def start(self) -> State:
        return self._begin(*moment_start(self.problem), bound=0.0)

    def resume(self, state: State) -> State:
        """Start from the leading directions of a convex solution, keeping its bound."""
        return self._begin(state.matrix, state.threshold, state.bound)

    def step(self, state: State) -> State:
        last: _Memory = state.memory
        direction = _two_loop(last.gradient, last.steps)
        descent = float(np.sum(direction * last.gradient))
        length = 1.0 if last.steps else min(1.0, 0.1 * float(np.linalg.norm(last.factor)) / _norm(direction))
        while length > 1e-10:
            new = self._evaluate(last.factor + length * direction, last.threshold, last.steps)
            if new.value <= last.value + 1e-4 * length * descent:
                break
            length *= 0.5
        else:
            return self._finish(state)
        pair = (new.factor - last.factor, new.gradient - last.gradient)
        steps = (*last.steps, pair)[-_HISTORY:] if float(np.sum(pair[0] * pair[1])) > 0.0 else last.steps
        new = _Memory(new.factor, new.threshold, new.value, new.pointwise, new.gradient, steps)
        moved = self._state(new, state.bound)
        settled = _norm(new.gradient) * (1.0 + _norm(new.factor)) <= 1e-2 * max(self.tol, 1e-10)
        idle = last.value - new.value <= 1e-15 * (1.0 + abs(new.value))
        return self._finish(moved) if settled or idle else moved

    def _begin(self, matrix: FloatArray, threshold: float, bound: float) -> State:
        factor = psd_factor(matrix)[:, ::-1][:, : self.rank]
        missing = self.rank - factor.shape[1]
        if missing:
            # A zero column is stationary: start it small instead.
            small = 1e-3 * max(_norm(factor), 1e-3)
            factor = np.hstack([factor, small * np.eye(len(factor), missing)])
        return self._state(self._evaluate(factor, threshold, ()), bound)

    def _evaluate(
        self, factor: FloatArray, threshold: float, steps: tuple[tuple[FloatArray, FloatArray], ...]
    ) -> _Memory:
        risk, cone, alpha = self.problem.risk, self.problem.cone, self.problem.alpha
        threshold, pointwise = self.problem.settle(risk.quadratic_forms(factor), threshold, tol=1e-12)
        value = pointwise.loss + alpha * float(np.sum(factor[cone.core] ** 2))
        gradient = risk.factor_gradient(factor, pointwise.pull) + 2.0 * alpha * (cone.identity @ factor)
        return _Memory(factor, threshold, value, pointwise, gradient, steps)

    def _finish(self, state: State) -> State:
        last: _Memory = state.memory
        bound = state.bound
        if self.rank == self.problem.cone.size:
            point = self.problem.point(state.matrix, last.threshold, last.pointwise)
            bound = max(bound, prove_bound(point, self.tol))
        return replace(state, bound=bound, stuck=True)

    def _state(self, memory: _Memory, bound: float) -> State:
        matrix = memory.factor @ memory.factor.T
        return State(matrix, memory.threshold, memory.value, bound, memory.pointwise.least_margin, memory)


def _norm(matrix: FloatArray) -> float:
    return float(np.linalg.norm(matrix))


def _two_loop(gradient: FloatArray, steps: tuple[tuple[FloatArray, FloatArray], ...]) -> FloatArray:
    """The L-BFGS direction (Nocedal's two-loop recursion)."""
    direction = -gradient
    weights = []
    for step, change in reversed(steps):
        weight = float(np.sum(step * direction) / np.sum(step * change))
        weights.append(weight)
        direction = direction - weight * change
    if steps:
        step, change = steps[-1]
        direction = direction * float(np.sum(step * change) / np.sum(change * change))
    for (step, change), weight in zip(steps, reversed(weights), strict=True):
        direction = direction + (weight - float(np.sum(change * direction) / np.sum(step * change))) * step
    return direction
