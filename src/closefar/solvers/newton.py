"""Proximal Newton with a dense Hessian: for few columns, where d(d+1)/2 + 1 numbers are cheap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from closefar import packed
from closefar.certificate import Point, lower_bound
from closefar.objective import Risk
from closefar.solvers.cone_program import ConeProgram
from closefar.solvers.loop import State, run
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
        point = self._evaluate(x)
        memory = _Memory(point, splitting=x, decrement=1.0, damping=_DAMPING, program=None)
        return _state(point, bound=0.0, memory=memory)

    def resume(self, state: State) -> State:
        """Start from a state of another solver or penalty."""
        x = np.append(packed.pack(state.matrix), state.threshold)
        point = self._evaluate(x)
        return _state(point, 0.0, _Memory(point, splitting=x, decrement=1.0, damping=_DAMPING, program=None))

    def step(self, state: State) -> State:
        last: _Memory = state.memory
        point = last.point
        program = last.program if last.decrement < _FREEZE_BELOW else None
        program = program or self._model(point, last.damping)
        x = np.append(packed.pack(point.matrix), point.threshold)
        gradient = np.append(packed.pack(point.gradient), point.slope)
        accuracy = max(1e-3 * last.decrement, 1e-14)
        splitting = program.solve(gradient - program.hessian @ x, last.splitting, accuracy)
        direction = program.project(splitting) - x
        decrement = -float(gradient @ direction + 0.5 * direction @ program.hessian @ direction)
        new, length = self._search(point, x, direction, decrement)
        if new is None:
            if last.program is None:
                return State(**{**vars(state), "bound": self._bound(state, point, program), "stuck": True})
            return State(**{**vars(state), "memory": _Memory(point, last.splitting, 1.0, last.damping, None)})
        damping = min(max(1e-6, 10.0 * last.damping), 1.0) if length < 0.1 else max(0.1 * last.damping, _DAMPING)
        slow = last.program is not None and decrement > 0.1 * last.decrement
        memory = _Memory(new, splitting, max(decrement, 0.0), damping, None if slow else program)
        moved = _state(new, state.bound, memory)
        if decrement < max(1e4 * self.tol, 1e-8) and length == 1.0:
            moved = State(**{**vars(moved), "bound": self._bound(moved, new, program)})
        return moved

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

    def _bound(self, state: State, point: Point, program: ConeProgram) -> float:
        factorised = scipy.linalg.cho_factor(program.hessian)

        def solve(matrix: np.ndarray, threshold: float, residual: float) -> tuple[np.ndarray, float]:
            solution = scipy.linalg.cho_solve(factorised, np.append(packed.pack(matrix), threshold))
            return packed.unpack(solution[:-1], self.d), float(solution[-1])

        return max(state.bound, lower_bound(self.risk, point, solve, self.tol))


def _state(point: Point, bound: float, memory: Any) -> State:
    return State(
        matrix=point.matrix,
        threshold=point.threshold,
        objective=point.objective,
        bound=bound,
        least_margin=point.pointwise.least_margin,
        memory=memory,
    )
