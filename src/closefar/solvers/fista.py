"""Accelerated projected gradient on M: for many columns, where a Hessian is too large."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.certificate import proven_bound
from closefar.objective import Pointwise
from closefar.problem import Point, Problem
from closefar.solvers.conjugate_gradient import prove_bound
from closefar.solvers.loop import State
from closefar.solvers.start import moment_start

__all__ = ["Fista"]


@dataclass(frozen=True)
class _Place:
    """A metric with its quadratic forms and its best threshold."""

    matrix: FloatArray
    forms: Array
    threshold: float


@dataclass(frozen=True)
class _Iterate(_Place):
    """A place with the penalised risk there."""

    pointwise: Pointwise
    value: float


@dataclass(frozen=True)
class _Memory:
    here: _Iterate
    before: _Place
    momentum: float  # Nesterov's t
    smoothness: float  # the local Lipschitz constant of the gradient
    residual: float  # length of the last step times `smoothness`
    certify_below: float  # try to prove the gap once `residual` is below this


class Fista:
    """FISTA with restarts and backtracking; the threshold is minimised out at every point.

    The gap is proven by `certificate.lower_bound` with conjugate gradients, when the
    residual says that it is about small enough.
    """

    def __init__(self, problem: Problem, tol: float, rng: np.random.Generator) -> None:
        self.problem = problem
        self.tol = tol

    def start(self) -> State:
        return self._begin(*moment_start(self.problem))

    def resume(self, state: State) -> State:
        """Start from a state of another solver or penalty."""
        return self._begin(state.matrix, state.threshold)

    def step(self, state: State) -> State:
        last: _Memory = state.memory
        accuracy = min(1e-4 * last.residual, 1e-6) if self.problem.alpha == 0.0 else 1e-14
        momentum = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * last.momentum**2))
        base = self._extrapolate(last, (last.momentum - 1.0) / momentum, accuracy)
        gradient = self.problem.gradient(base.pointwise)
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
            momentum = 1.0  # the step turned back: restart
        residual = smoothness * math.sqrt(moved)
        before = _Place(last.here.matrix, last.here.forms, last.here.threshold)
        memory = _Memory(here, before, momentum, 0.97 * smoothness, residual, last.certify_below)
        bound = state.bound
        if self.problem.alpha > 0.0:
            point = Point(self.problem, base.matrix, base.threshold, base.pointwise, gradient)
            bound = max(bound, proven_bound(point, here.value))
        new = _state(here, bound, memory)
        return self._certify(new) if residual <= last.certify_below * math.sqrt(smoothness) else new

    def _begin(self, matrix: FloatArray, threshold: float) -> State:
        here = self._settle(*self.problem.project(matrix), threshold, accuracy=1e-6)
        certify_below = 0.3 * math.sqrt(max(self.tol, 1e-14))
        return _state(here, 0.0, _Memory(here, here, 1.0, 0.3, residual=1e-2, certify_below=certify_below))

    def _extrapolate(self, last: _Memory, momentum: float, accuracy: float) -> _Iterate:
        """Go on beyond the last step; z'Mz is linear in M, so this needs no pass over the rows."""
        here, before = last.here, last.before
        if momentum == 0.0:
            return here
        return self._settle(
            here.matrix + momentum * (here.matrix - before.matrix),
            here.forms + momentum * (here.forms - before.forms),
            here.threshold + momentum * (here.threshold - before.threshold),
            accuracy,
        )

    def _iterate(self, target: FloatArray, base: _Iterate, accuracy: float) -> _Iterate:
        matrix, forms = self.problem.project(target)
        guess = base.threshold + float(np.trace(matrix) - np.trace(base.matrix))
        return self._settle(matrix, forms, guess, accuracy)

    def _settle(self, matrix: FloatArray, forms: Array, guess: float, accuracy: float) -> _Iterate:
        threshold, pointwise = self.problem.settle(forms, guess, tol=accuracy)
        return _Iterate(matrix, forms, threshold, pointwise, self.problem.value(pointwise, matrix))

    def _certify(self, state: State) -> State:
        memory: _Memory = state.memory
        exact = self._settle(memory.here.matrix, memory.here.forms, memory.here.threshold, accuracy=1e-15)
        point = self.problem.point(exact.matrix, exact.threshold, exact.pointwise)
        bound = max(state.bound, prove_bound(point, self.tol))
        memory = replace(memory, here=exact, certify_below=0.2 * memory.certify_below)
        return replace(_state(exact, bound, memory), stuck=memory.residual < 1e-12)


def _state(here: _Iterate, bound: float, memory: _Memory) -> State:
    return State(here.matrix, here.threshold, here.value, bound, here.pointwise.least_margin, memory)
