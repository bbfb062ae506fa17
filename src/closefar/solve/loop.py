"""The interface of solvers, and the loop that runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.solve.problem import Problem

__all__ = ["Ending", "Limits", "Run", "Solver", "State", "Watch", "run", "unwatched"]


@dataclass(frozen=True)
class State:
    """The state of a solver, in unit-free coordinates.

    `objective` is the penalised risk at (matrix, thresholds), `bound` the best lower
    bound on its minimum proven so far, and `memory` is private to the solver.  If `stuck`,
    further steps cannot improve the objective in floating-point arithmetic.  `factor` is one of the
    matrix, and `squared` are its squared distances in full precision, if the solver knows them.
    """

    matrix: FloatArray
    thresholds: FloatArray
    objective: float
    bound: float
    least_margin: float
    memory: Any
    stuck: bool = False
    factor: FloatArray | None = None
    squared: Array = None

    @classmethod
    def at(cls, matrix: FloatArray, *thresholds: float) -> State:
        """A point about which nothing else is known."""
        return cls(matrix, np.array(thresholds), objective=np.inf, bound=0.0, least_margin=-np.inf, memory=None)

    @property
    def gap(self) -> float:
        return max(self.objective - self.bound, 0.0)


class Solver(ABC):
    """An algorithm that minimises the penalised risk, one step at a time.

    If `last_digits_are_cheap`, a small tolerance costs hardly more than a large one.
    """

    last_digits_are_cheap: ClassVar[bool] = False

    def __init__(self, problem: Problem, tol: float, rng: np.random.Generator) -> None:
        self.problem = problem
        self.tol = tol
        self.rng = rng

    @abstractmethod
    def start(self) -> State:
        """Return the first state."""

    @abstractmethod
    def resume(self, state: State) -> State:
        """Return the first state when continuing from the state of another solver or penalty."""

    @abstractmethod
    def step(self, state: State) -> State:
        """Return the next state."""


Watch = Callable[[int, State], None]


def unwatched(iteration: int, state: State) -> None:
    """Watch nothing."""


@dataclass(frozen=True)
class Limits:
    """The limits of a run: a proven gap of at most `tol`, or that share of the objective, or a number of steps."""

    tol: float
    max_iter: int
    watch: Watch
    stop_if_separable: bool = False
    relative_tol: float = 0.0


class Ending(Enum):
    """Why a run ended."""

    CONVERGED = auto()
    SEPARABLE = auto()
    STUCK = auto()
    LIMIT = auto()
    INTERRUPTED = auto()


@dataclass(frozen=True)
class Run:
    """The last state of a solver, why it ended, and after how many steps."""

    state: State
    ending: Ending
    n_iter: int


def run(solver: Solver, start: Callable[[], State], limits: Limits) -> Run:
    """Step until a limit is reached; an interrupt keeps the last state."""
    state = start()
    iteration = 0
    try:
        while True:
            limits.watch(iteration, state)
            ending = _ending(state, iteration, limits)
            if ending is not None:
                return Run(state, ending, iteration)
            state = solver.step(state)
            iteration += 1
    except KeyboardInterrupt:
        return Run(state, Ending.INTERRUPTED, iteration)


def _ending(state: State, iteration: int, limits: Limits) -> Ending | None:
    # First, since the loss of a metric that separates the labels may already be below the tolerance.
    if limits.stop_if_separable and state.least_margin > 0.0:
        return Ending.SEPARABLE
    if state.gap <= max(limits.tol, limits.relative_tol * state.objective):
        return Ending.CONVERGED
    if state.stuck:
        return Ending.STUCK
    return Ending.LIMIT if iteration >= limits.max_iter else None
