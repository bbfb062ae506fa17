"""Proximal Newton with a dense Hessian, for few columns, so that d(d+1)/2 parameters and thresholds are cheap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from closefar import packed
from closefar.arrays import BoolArray, FloatArray
from closefar.solve.bound import lower_bound
from closefar.solve.loop import Solver, State
from closefar.solve.problem import Point, Problem
from closefar.solve.solvers.cone_program import ConeProgram
from closefar.solve.start import moment_start

__all__ = ["Newton"]

# Below this decrement the Hessian changes by at most one percent: keep it, and its inverse.
_FREEZE_BELOW = 1e-5

# Relative to the mean eigenvalue of the Hessian: enough that undetermined directions do not amplify rounding errors.
_DAMPING = 3e-4

_MOST_IDLE_STEPS = 10

# The first steps use one judgement in this many.
_SCOUTED = 8

# If the loss of all judgements is this many times that of the sample, one outside the sample is enormous.
_SURPRISING = 10.0


@dataclass(frozen=True)
class _Memory:
    point: Point
    splitting: FloatArray | None  # the variable of the last cone program, which preserves the active set
    decrement: float
    damping: float  # added to the Hessian, relative to its mean eigenvalue
    program: ConeProgram | None
    idle: int = 0  # consecutive steps with almost no improvement


class Newton(Solver):
    """Minimise the quadratic model over the cone exactly in each step; a line search ensures descent.

    With many judgements, the first steps use an eighth of them.
    """

    last_digits_are_cheap = True

    def __init__(self, problem: Problem, tol: float, rng: np.random.Generator) -> None:
        super().__init__(problem, tol, rng)
        # Few judgements do not determine all directions, and the residual of a model is never reduced in the others.
        self.inexactness = 1e-5 if self._has_many() else 1e-9

    def start(self) -> State:
        scouted = self._scout()
        if scouted is not None:
            # Their Hessian is close enough to that of all for the first step.
            state, program = scouted
            begun = self._begin(state.matrix, state.thresholds, program)
            if begun.objective <= _SURPRISING * (1.0 + state.objective):
                return begun
        return self._begin(*moment_start(self.problem))

    def resume(self, state: State) -> State:
        return self._begin(state.matrix, state.thresholds)

    def step(self, state: State) -> State:
        last: _Memory = state.memory
        moved, program = self._advance(state)
        memory: _Memory = moved.memory
        if moved.stuck or (memory.decrement < max(1e2 * self.tol, 1e-9) and memory.damping <= last.damping):
            moved = replace(moved, bound=self._bound(moved, program))
            if moved.gap <= self.tol and not moved.stuck and memory.decrement > 1e-10:
                # One more step with the same Hessian costs one pass, and makes the minimiser itself accurate.
                moved, _ = self._advance(moved)
        return moved

    def advance(self, state: State) -> State:
        """Take a step without proving a bound, for a risk that is not convex."""
        return self._advance(state)[0]

    def renew(self, state: State) -> State:
        """Evaluate the same point again after the risk has changed a little."""
        if not isinstance(state.memory, _Memory):  # new, or from another solver
            return self.resume(state)
        point = self.problem.at(state.matrix, state.thresholds)
        return _state(point, 0.0, replace(state.memory, point=point))

    def _advance(self, state: State) -> tuple[State, ConeProgram]:
        last: _Memory = state.memory
        point = last.point
        program = last.program or self._model(point, last.damping)
        x = packed.joined(point.matrix, point.thresholds)
        gradient = packed.joined(point.gradient, point.slopes)
        accuracy = max(self.inexactness * last.decrement, 1e-15)
        begin = x - gradient / program.rho if last.splitting is None else last.splitting
        splitting = program.solve(gradient - program.hessian @ x, begin, accuracy)
        direction = program.project(splitting) - x
        decrement = max(-float(gradient @ direction + 0.5 * direction @ program.hessian @ direction), 0.0)
        new, length = self._search(point, x, direction, decrement)
        if new is None:
            damping = last.damping if last.program is not None else max(1e-3, 100.0 * last.damping)
            memory = replace(last, program=None, decrement=1.0, damping=damping, splitting=None)
            return replace(state, memory=memory, stuck=damping > 1e6), program
        slow = length == 1.0 and decrement > 0.1 * last.decrement
        crawling = length == 1.0 and decrement > 0.5 * last.decrement
        keep = 0.0 < decrement < _FREEZE_BELOW and not slow
        idle = last.idle + 1 if point.value - new.value <= max(0.1 * self.tol, 1e-15) else 0
        damping = _damping(last.damping, length, crawling)
        memory = _Memory(new, splitting, decrement, damping, program if keep else None, idle)
        return replace(_state(new, state.bound, memory), stuck=idle >= _MOST_IDLE_STEPS), program

    def _begin(self, matrix: FloatArray, thresholds: FloatArray, program: ConeProgram | None = None) -> State:
        x = packed.joined(matrix, thresholds)
        point = self._evaluate(x)
        return _state(point, 0.0, _Memory(point, splitting=None, decrement=1.0, damping=_DAMPING, program=program))

    def _has_many(self) -> bool:
        """Whether a sample of the judgements is enough for the first steps."""
        objective = self.problem.objective
        return objective.n_judgements >= _SCOUTED * 8 * packed.packed_size(objective.n_directions)

    def _scout(self) -> tuple[State, ConeProgram] | None:
        """Take the first steps on an eighth of the judgements, if these are enough."""
        few = self.problem.sample(1.0 / _SCOUTED, self.rng) if self._has_many() else None
        if few is None:
            return None
        scout = Newton(few, tol=0.0, rng=self.rng)
        scout.inexactness = 1e-3
        size = packed.packed_size(few.objective.n_directions)
        state = scout.start()
        for _ in range(15):
            state, program = scout._advance(state)
            if state.stuck or state.least_margin > 0.0 or state.memory.decrement < size / few.objective.n_judgements:
                break
        return state, program

    def _evaluate(self, x: FloatArray) -> Point:
        return self.problem.at(*packed.split(x, self.problem.cone.size))

    def _model(self, point: Point, damping: float) -> ConeProgram:
        hessian = self.problem.objective.hessian(point.evaluation.curvature)
        return ConeProgram(hessian, damping, self.problem.cone)

    def _search(
        self, point: Point, x: FloatArray, direction: FloatArray, decrement: float
    ) -> tuple[Point | None, float]:
        """Backtrack until the objective falls; below its rounding error take the full step."""
        length = 1.0
        while length > 1e-6:
            new = self._evaluate(x + length * direction)
            if new.value <= point.value - 1e-4 * length * decrement + 1e-14:
                return new, length
            length *= 0.5
        return None, 0.0

    def _bound(self, state: State, program: ConeProgram) -> float:
        """Prove a bound with an almost undamped Hessian, which takes fewer rounds, or damped if it is singular."""
        bound = state.bound
        for relief in (0.999, 0.0):
            hessian = program.hessian - relief * program.damping * np.eye(len(program.hessian))
            bound = max(bound, lower_bound(state.memory.point, partial(_solve_dense, hessian), self.tol))
            if state.objective - bound <= self.tol:
                break
        return bound


def _solve_dense(
    hessian: FloatArray, matrix: FloatArray, thresholds: FloatArray, held: BoolArray, residual: float
) -> tuple[FloatArray, FloatArray]:
    """Solve H[S, t] = (matrix, thresholds) exactly; some thresholds are held fixed."""
    right = packed.joined(matrix, thresholds)
    free = np.append(np.ones(len(right) - len(held), dtype=bool), ~held)
    solution = np.zeros_like(right)
    solution[free] = np.linalg.solve(hessian[np.ix_(free, free)], right[free])
    return packed.split(solution, len(matrix))


def _damping(last: float, length: float, crawling: bool) -> float:
    """More damping after a short step; less if full steps gain little (a flat or infinite path to the optimum)."""
    if length < 0.1:
        return min(max(1e-3, 10.0 * last), 10.0)
    if crawling:
        return max(0.1 * last, 1e-12)
    return max(0.1 * last, _DAMPING) if last > _DAMPING else last


def _state(point: Point, bound: float, memory: Any) -> State:
    return State(
        matrix=point.matrix,
        thresholds=point.thresholds,
        objective=point.value,
        bound=bound,
        least_margin=point.evaluation.least_margin,
        memory=memory,
    )
