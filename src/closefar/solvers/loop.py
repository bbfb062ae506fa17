"""The one loop that every solver runs in, and what a solver is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from closefar.arrays import FloatArray

__all__ = ["Outcome", "Solver", "State", "Watch", "run"]


@dataclass(frozen=True)
class State:
    """Where a solver stands, in unit-free coordinates.

    `objective` is the penalised risk at (matrix, threshold), `bound` the best lower
    bound on its minimum proven so far, `memory` the solver's own.  `stuck` says that
    further steps cannot improve the objective in this arithmetic.
    """

    matrix: FloatArray
    threshold: float
    objective: float
    bound: float
    least_margin: float
    memory: Any
    stuck: bool = False

    @property
    def gap(self) -> float:
        return max(self.objective - self.bound, 0.0)


class Solver(Protocol):
    """A way to minimise the penalised risk, one step at a time."""

    def start(self) -> State: ...

    def resume(self, state: State) -> State: ...

    def step(self, state: State) -> State: ...


Watch = Callable[[int, State], None]


@dataclass(frozen=True)
class Outcome:
    """The last state and how the loop came to an end: "converged", "separable", "stuck", "limit", "interrupted"."""

    state: State
    ending: str
    n_iter: int


def run(
    solver: Solver,
    start: Callable[[], State],
    *,
    tol: float,
    max_iter: int,
    stop_if_separable: bool,
    watch: Watch,
    relative_tol: float = 0.0,
) -> Outcome:
    """Step until the gap is proven to be at most `tol` or that share of the objective.

    An interrupt keeps the last state.
    """
    state = start()
    iteration = 0
    try:
        while True:
            watch(iteration, state)
            if state.gap <= max(tol, relative_tol * state.objective):
                return Outcome(state, "converged", iteration)
            if stop_if_separable and state.least_margin > 0.0:
                return Outcome(state, "separable", iteration)
            if state.stuck:
                return Outcome(state, "stuck", iteration)
            if iteration >= max_iter:
                return Outcome(state, "limit", iteration)
            state = solver.step(state)
            iteration += 1
    except KeyboardInterrupt:
        return Outcome(state, "interrupted", iteration)
