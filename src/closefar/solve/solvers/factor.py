"""L-BFGS on the factor A of M = A A', for a fixed rank, for which the problem is not convex."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from closefar.arrays import TINY, FloatArray
from closefar.solve.conjugate_gradient import prove_bound
from closefar.solve.likelihood import Evaluation
from closefar.solve.loop import Solver, State
from closefar.solve.problem import Problem, psd_factor
from closefar.solve.start import moment_start
from closefar.solve.supervision import Entry

_HISTORY = 12

_FUSED_ERROR = 1e-11  # of differences of the objective in fused passes, whose own error is the same nearby
_FUSED_SLOPE = 1e-9
_MOST_FUSED = 200  # steps
_MOST_NEWTON = 4  # steps in the threshold

Steps = tuple[tuple[FloatArray, FloatArray], ...]  # recent (step, change of gradient)


@dataclass(frozen=True)
class _Memory:
    factor: FloatArray
    thresholds: FloatArray
    value: float
    evaluation: Evaluation
    gradient: FloatArray
    steps: Steps


class Factor(Solver):
    """Minimise over d x rank factors; thresholds are optimised at every point.

    A stationary point of a fixed rank need not be optimal, so start from the convex solution
    (`resume`); the bound of that solution stays valid.  At full rank this solver proves a bound
    itself, unless the risk is not convex and nothing can be proven (`proves`).
    """

    shortest: ClassVar[float] = 1e-10  # the last length of a step to try

    def __init__(
        self, problem: Problem, tol: float, rng: np.random.Generator, rank: int | None = None, *, proves: bool = True
    ) -> None:
        super().__init__(problem, tol, rng)
        self.rank = rank or problem.cone.size
        self.proves = proves and self.rank == problem.cone.size

    def start(self) -> State:
        return self._begin(*moment_start(self.problem), bound=0.0)

    def resume(self, state: State) -> State:
        """Start from the leading directions of a convex solution, keeping its bound."""
        return self._begin(state.matrix, state.thresholds, state.bound)

    def step(self, state: State) -> State:
        last: _Memory = state.memory
        direction = _two_loop(last.gradient, last.steps)
        descent = float(np.sum(direction * last.gradient))
        length = 1.0 if last.steps else min(1.0, 0.1 * _norm(last.factor) / max(_norm(direction), TINY))
        while length > self.shortest:
            new = self._evaluate(last.factor + length * direction, last.thresholds, last.steps)
            if new.value <= last.value + 1e-4 * length * descent:
                break
            length *= 0.5
        else:
            return self._finish(state)
        pair = (new.factor - last.factor, new.gradient - last.gradient)
        steps = (*last.steps, pair)[-_HISTORY:] if float(np.sum(pair[0] * pair[1])) > 0.0 else last.steps
        new = replace(new, steps=steps)
        moved = self._state(new, state.bound)
        settled = _norm(new.gradient) * (1.0 + _norm(new.factor)) <= 1e-2 * max(self.tol, 1e-10)
        idle = last.value - new.value <= 1e-15 * (1.0 + abs(new.value))
        return self._finish(moved) if settled or idle else moved

    def saved(self, state: State) -> Entry | None:
        last: _Memory = state.memory
        return {"factor": last.factor, "gradient": last.gradient, "steps": last.steps}

    def restored(self, state: State, saved: Entry, begun: np.random.Generator) -> State:
        objective, factor = self.problem.objective, saved["factor"]
        evaluation = objective.evaluate(objective.squared_distances(factor), state.thresholds, order=2)
        steps = tuple((step, change) for step, change in saved["steps"])
        memory = _Memory(factor, state.thresholds, state.objective, evaluation, saved["gradient"], steps)
        return replace(state, memory=memory)

    def _begin(self, matrix: FloatArray, thresholds: FloatArray, bound: float) -> State:
        factor = np.ascontiguousarray(psd_factor(matrix)[:, ::-1][:, : self.rank])
        missing = self.rank - factor.shape[1]
        if missing:
            # A zero column is stationary, so start with a small one.
            small = 1e-3 * max(_norm(factor), 1e-3)
            factor = np.hstack([factor, small * np.eye(len(factor), missing)])
        steps: Steps = ()
        if self.problem.objective.source.can_fuse:
            fused = _FusedFactor(self.problem.rough, self.tol, self.rng, self.rank)
            factor, thresholds, steps = fused.approach(factor, thresholds)
        return self._state(self._evaluate(factor, thresholds, steps), bound)

    def _evaluate(self, factor: FloatArray, thresholds: FloatArray, steps: Steps) -> _Memory:
        objective, cone, alpha = self.problem.objective, self.problem.cone, self.problem.alpha
        thresholds, evaluation = self.problem.minimise_threshold(
            objective.squared_distances(factor), thresholds, tol=1e-12
        )
        value = evaluation.loss + alpha * float(np.sum(factor[cone.core] ** 2))
        gradient = objective.factor_gradient(factor, evaluation) + 2.0 * alpha * (cone.identity @ factor)
        return _Memory(factor, thresholds, value, evaluation, gradient, steps)

    def _finish(self, state: State) -> State:
        last: _Memory = state.memory
        bound = state.bound
        if self.proves:
            point = self.problem.known(state.matrix, last.thresholds, last.evaluation)
            bound = max(bound, prove_bound(point, self.tol))
        return replace(state, bound=bound, stuck=True)

    def _state(self, memory: _Memory, bound: float) -> State:
        matrix = memory.factor @ memory.factor.T
        return State(matrix, memory.thresholds, memory.value, bound, memory.evaluation.least_margin, memory)


class _FusedFactor(Factor):
    """The same steps with fused passes, which are precise enough to approach the optimum."""

    shortest = 1e-2

    def approach(self, factor: FloatArray, thresholds: FloatArray) -> tuple[FloatArray, FloatArray, Steps]:
        """Step while the objective falls by more than the error of a pass; not at all if there are no such passes."""
        if self.problem.objective.factor_pass(factor, thresholds) is None:
            return factor, thresholds, ()
        state = self._state(self._evaluate(factor, thresholds, ()), 0.0)
        for _ in range(_MOST_FUSED):
            before, state = state, self.step(state)
            if state.stuck or before.objective - state.objective <= _FUSED_ERROR:
                break
        last: _Memory = state.memory
        return last.factor, last.thresholds, last.steps

    def _evaluate(self, factor: FloatArray, thresholds: FloatArray, steps: Steps) -> _Memory:
        cone, alpha = self.problem.cone, self.problem.alpha
        for _ in range(_MOST_NEWTON):
            found = self.problem.objective.factor_pass(factor, thresholds)
            if found is None:  # beyond the range of fused passes
                return super()._evaluate(factor, thresholds, steps)
            evaluation, gradient = found
            curvature = float(evaluation.curvature.thresholds[0, 0])
            moved = np.maximum(thresholds - evaluation.slopes / max(curvature, TINY), cone.least)
            if abs(float(evaluation.slopes[0])) <= _FUSED_SLOPE or np.all(moved == thresholds):
                break
            thresholds = moved
        value = evaluation.loss + alpha * float(np.sum(factor[cone.core] ** 2))
        return _Memory(factor, thresholds, value, evaluation, gradient + 2.0 * alpha * (cone.identity @ factor), steps)


def _norm(matrix: FloatArray) -> float:
    return float(np.linalg.norm(matrix))


def _two_loop(gradient: FloatArray, steps: Steps) -> FloatArray:
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
