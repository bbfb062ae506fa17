"""Accelerated projected gradient on M, for many columns, if a Hessian is too large."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.solve.bound import proven_bound
from closefar.solve.conjugate_gradient import prove_bound
from closefar.solve.likelihood import Evaluation
from closefar.solve.loop import Solver, State
from closefar.solve.start import moment_start
from closefar.solve.supervision import Entry

_MOST_STEPS = 200  # of an approach without a proof


@dataclass(frozen=True)
class _Place:
    """A metric with its squared distances and its best thresholds; it is the projection of `target`."""

    matrix: FloatArray
    squared: Array
    thresholds: FloatArray
    target: FloatArray


@dataclass(frozen=True)
class _Iterate(_Place):
    """A place with its penalised risk."""

    evaluation: Evaluation
    value: float


@dataclass(frozen=True)
class _Memory:
    here: _Iterate
    before: _Place
    momentum: float  # Nesterov's t
    smoothness: float  # the local Lipschitz constant of the gradient
    residual: float  # length of the last step times `smoothness`
    certify_below: float  # try to prove the gap once `residual` is below this


class Fista(Solver):
    """FISTA with restarts and backtracking; thresholds are optimised at every point.

    The gap is proven by `bound.lower_bound` with conjugate gradients, once the residual
    indicates that it is small enough.
    """

    def start(self) -> State:
        return self._begin(*moment_start(self.problem))

    def resume(self, state: State) -> State:
        return self._begin(state.matrix, state.thresholds)

    def step(self, state: State) -> State:
        last: _Memory = state.memory
        accuracy = min(1e-4 * last.residual, 1e-6) if self.problem.alpha == 0.0 else 1e-14
        momentum = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * last.momentum**2))
        base = self._extrapolate(last, (last.momentum - 1.0) / momentum, accuracy)
        point = self.problem.known(base.matrix, base.thresholds, base.evaluation)
        gradient = point.gradient
        smoothness = last.smoothness
        while True:
            here = self._iterate(base.matrix - gradient / smoothness, base, accuracy)
            change = here.matrix - base.matrix
            moved = float(np.sum(change * change))
            model = base.value + float(np.sum(gradient * change)) + 0.5 * smoothness * moved
            if here.value <= model + 1e-14 or smoothness * moved < 1e-13:
                break
            smoothness *= 1.5
        if float(np.sum(change * (here.matrix - last.here.matrix))) < 0.0:
            momentum = 1.0  # the step reversed direction: restart
        residual = smoothness * math.sqrt(moved)
        before = _Place(last.here.matrix, last.here.squared, last.here.thresholds, last.here.target)
        memory = _Memory(here, before, momentum, 0.97 * smoothness, residual, last.certify_below)
        bound = state.bound
        if self.problem.alpha > 0.0:
            bound = max(bound, proven_bound(point, here.value))
        new = _state(here, bound, memory)
        return self._certify(new) if residual <= last.certify_below * math.sqrt(smoothness) else new

    def approach(self, state: State, tol: float) -> State:
        """Step until the gap is probably below `tol`, which is not proven; a solver with a tolerance of zero does."""
        for _ in range(_MOST_STEPS):
            state = self.step(state)
            memory: _Memory = state.memory
            if memory.residual <= 0.3 * math.sqrt(tol * memory.smoothness) or state.least_margin > 0.0:
                break
        return state

    def saved(self, state: State) -> Entry | None:
        last: _Memory = state.memory
        here, before = last.here, last.before
        return {
            "target": here.target,
            "before": None if before is here else {"target": before.target, "thresholds": before.thresholds},
            "momentum": last.momentum,
            "smoothness": last.smoothness,
            "residual": last.residual,
            "certify_below": last.certify_below,
        }

    def restored(self, state: State, saved: Entry, begun: np.random.Generator) -> State:
        objective = self.problem.objective
        matrix, squared = self.problem.project(saved["target"])
        evaluation = objective.evaluate(squared, state.thresholds, order=2)
        here = _Iterate(matrix, squared, state.thresholds, saved["target"], evaluation, state.objective)
        before: _Place = here
        if saved["before"] is not None:
            target, thresholds = saved["before"]["target"], saved["before"]["thresholds"]
            before = _Place(*self.problem.project(target), thresholds, target)
        rest = (saved[name] for name in ("momentum", "smoothness", "residual", "certify_below"))
        return replace(state, memory=_Memory(here, before, *rest))

    def _begin(self, matrix: FloatArray, thresholds: FloatArray) -> State:
        here = self._settle(*self.problem.project(matrix), thresholds, accuracy=1e-6, target=matrix)
        certify_below = 0.3 * math.sqrt(max(self.tol, 1e-14))
        return _state(here, 0.0, _Memory(here, here, 1.0, 0.3, residual=1e-2, certify_below=certify_below))

    def _extrapolate(self, last: _Memory, momentum: float, accuracy: float) -> _Iterate:
        """Extrapolate beyond the last step; z'Mz is linear in M, so this needs no pass over the data."""
        here, before = last.here, last.before
        if momentum == 0.0:
            return here
        return self._settle(
            here.matrix + momentum * (here.matrix - before.matrix),
            here.squared + momentum * (here.squared - before.squared),
            here.thresholds + momentum * (here.thresholds - before.thresholds),
            accuracy,
            here.target,
        )

    def _iterate(self, target: FloatArray, base: _Iterate, accuracy: float) -> _Iterate:
        matrix, squared = self.problem.project(target)
        change = float(np.trace(matrix) - np.trace(base.matrix))
        guess = self.problem.objective.likelihood.follow(base.thresholds, change)
        return self._settle(matrix, squared, guess, accuracy, target)

    def _settle(
        self, matrix: FloatArray, squared: Array, guess: FloatArray, accuracy: float, target: FloatArray
    ) -> _Iterate:
        thresholds, evaluation = self.problem.minimise_threshold(squared, guess, tol=accuracy)
        return _Iterate(matrix, squared, thresholds, target, evaluation, self.problem.value(evaluation, matrix))

    def _certify(self, state: State) -> State:
        memory: _Memory = state.memory
        here = memory.here
        exact = self._settle(here.matrix, here.squared, here.thresholds, accuracy=1e-15, target=here.target)
        point = self.problem.known(exact.matrix, exact.thresholds, exact.evaluation)
        bound = max(state.bound, prove_bound(point, self.tol))
        memory = replace(memory, here=exact, certify_below=0.2 * memory.certify_below)
        return replace(_state(exact, bound, memory), stuck=memory.residual < 1e-12)


def _state(here: _Iterate, bound: float, memory: _Memory) -> State:
    return State(here.matrix, here.thresholds, here.value, bound, here.evaluation.least_margin, memory)
