"""Proximal Newton with a dense Hessian: for few columns, where d(d+1)/2 + 1 numbers are cheap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg

from closefar import packed
from closefar.certificate import Point, lower_bound
from closefar.objective import Risk
from closefar.solvers.cone_program import ConeProgram
from closefar.solvers.loop import State
from closefar.solvers.start import moment_start

__all__ = ["Newton"]

# From this decrement on the Hessian changes by a percent at most: keep it, and its inverse.
_FREEZE_BELOW = 1e-5

# Relative to the mean of the diagonal: enough that directions the data leave open do not amplify rounding.
_DAMPING = 3e-5


@dataclass(frozen=True)
class _Memory:
    point: Point
    splitting: np.ndarray  # the last cone program's variable: it carries the active set over
    decrement: float
    damping: float  # added to the Hessian, relative to its mean diagonal
    program: ConeProgram | None


class Newton:
    """Each step minimises the quadratic model over the cone exactly; a line search keeps descent.

    With many rows the first steps are taken on an eighth of them.
    """

    def __init__(self, risk: Risk, alpha: float, tol: float, rng: np.random.Generator) -> None:
        self.risk = risk
        self.alpha = alpha
        self.tol = tol
        self.rng = rng
        self.d = risk.n_directions

    def start(self) -> State:
        x = self._start_on_subsample()
        if x is None:
            factor, threshold = moment_start(self.risk)
            x = np.append(packed.pack(factor @ factor.T), threshold)
        return self._begin(x)

    def resume(self, state: State) -> State:
        """Start from a state of another solver or penalty."""
        return self._begin(np.append(packed.pack(state.matrix), state.threshold))

    def step(self, state: State) -> State:
        last: _Memory = state.memory
        moved, program = self._advance(state)
        memory: _Memory = moved.memory
        if moved.stuck or (memory.decrement < max(1e4 * self.tol, 1e-8) and memory.damping <= last.damping):
            moved = replace(moved, bound=self._bound(moved, program))
            if moved.gap <= self.tol and not moved.stuck:
                # One more step with the same Hessian costs a pass and makes the minimiser itself exact.
                moved, _ = self._advance(moved)
        return moved

    def _advance(self, state: State) -> tuple[State, ConeProgram]:
        last: _Memory = state.memory
        point = last.point
        program = last.program or self._model(point, last.damping)
        x = np.append(packed.pack(point.matrix), point.threshold)
        gradient = np.append(packed.pack(point.gradient), point.slope)
        accuracy = max(1e-6 * last.decrement, 1e-14)
        splitting = program.solve(gradient - program.hessian @ x, last.splitting, accuracy)
        direction = program.project(splitting) - x
        decrement = max(-float(gradient @ direction + 0.5 * direction @ program.hessian @ direction), 0.0)
        new, length = self._search(point, x, direction, decrement)
        if new is None:
            fresh = last.program is None
            memory = replace(last, program=None, decrement=1.0)
            return replace(state, memory=last if fresh else memory, stuck=fresh), program
        damping = min(max(1e-3, 10.0 * last.damping), 10.0) if length < 0.1 else max(0.1 * last.damping, _DAMPING)
        slow = last.program is not None and decrement > 0.1 * last.decrement
        keep = decrement < _FREEZE_BELOW and not slow
        memory = _Memory(new, splitting, decrement, damping, program if keep else None)
        return _state(new, state.bound, memory), program

    def _begin(self, x: np.ndarray) -> State:
        point = self._evaluate(x)
        return _state(point, 0.0, _Memory(point, splitting=x, decrement=1.0, damping=_DAMPING, program=None))

    def _start_on_subsample(self) -> np.ndarray | None:
        n = len(self.risk.rows) // 8
        size = packed.packed_size(self.d)
        if n < 8 * size:
            return None
        indices = np.sort(self.rng.choice(len(self.risk.rows), n, replace=False))
        few = Risk(self.risk.rows.subsample(indices), self.risk.noise)
        if abs(float(np.sum(few.rows.signs * few.rows.weights))) > 1.0 - 1e-9:
            return None
        scout = Newton(few, self.alpha, tol=0.0, rng=self.rng)
        state = scout.start()
        for _ in range(15):
            state = scout.step(state)
            if state.stuck or state.least_margin > 0.0 or state.memory.decrement < 0.3 * size / n:
                break
        self.risk.n_passes += few.n_passes / 8.0
        return np.append(packed.pack(state.matrix), state.threshold)

    def _evaluate(self, x: np.ndarray) -> Point:
        matrix = packed.unpack(x[:-1], self.d)
        threshold = float(x[-1])
        pointwise = self.risk.pointwise(self.risk.quadratic_forms_of(matrix), threshold, order=2)
        return Point.at(self.risk, matrix, threshold, pointwise, self.alpha)

    def _model(self, point: Point, damping: float) -> ConeProgram:
        hessian = self.risk.dense_hessian(point.pointwise.curvature)
        mean = float(np.trace(hessian)) / len(hessian)
        hessian[np.diag_indices(len(hessian))] += damping * mean + 1e-300
        return ConeProgram(hessian, self.d)

    def _search(
        self, point: Point, x: np.ndarray, direction: np.ndarray, decrement: float
    ) -> tuple[Point | None, float]:
        """Backtrack until the objective falls; below its rounding error take the full step."""
        length = 1.0
        while length > 1e-6:
            new = self._evaluate(x + length * direction)
            if new.objective <= point.objective - 1e-4 * length * max(decrement, 0.0) + 1e-14:
                return new, length
            length *= 0.5
        return None, 0.0

    def _bound(self, state: State, program: ConeProgram) -> float:
        def solve(matrix: np.ndarray, threshold: float | None, residual: float) -> tuple[np.ndarray, float]:
            right = packed.pack(matrix)
            if threshold is None:
                held = scipy.linalg.solve(program.hessian[:-1, :-1], right, assume_a="pos")
                return packed.unpack(held, self.d), 0.0
            solution = scipy.linalg.solve(program.hessian, np.append(right, threshold), assume_a="pos")
            return packed.unpack(solution[:-1], self.d), float(solution[-1])

        return max(state.bound, lower_bound(self.risk, state.memory.point, solve, self.tol))


def _state(point: Point, bound: float, memory: Any) -> State:
    return State(
        matrix=point.matrix,
        threshold=point.threshold,
        objective=point.objective,
        bound=bound,
        least_margin=point.pointwise.least_margin,
        memory=memory,
    )
