"""The one loop that every solver runs in, and what a solver is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar

import numpy as np

from closefar.arrays import FloatArray
from closefar.solve.problem import Problem

__all__ = ["Ending", "Limits", "Run", "Solver", "State", "Watch", "run", "unwatched"]


@dataclass(frozen=True)
class State:
    """Where a solver stands, in unit-free coordinates.

    `objective` is the penalised risk at (matrix, thresholds), `bound` the best lower
    bound on its minimum proven so far, `memory` the solver's own.  `stuck` says that
    further steps cannot improve the objective in this arithmetic.
    """

    matrix: FloatArray
    thresholds: FloatArray
    objective: float
    bound: float
    least_margin: float
    memory: Any
    stuck: bool = False

    @classmethod
    def at(cls, matrix: FloatArray, *thresholds: float) -> State:
        """A place of which nothing else is known."""
        return cls(matrix, np.array(thresholds), objective=np.inf, bound=0.0, least_margin=-np.inf, memory=None)

    @property
    def gap(self) -> float:
        return max(self.objective - self.bound, 0.0)


class Solver(ABC):
    """A way to minimise the penalised risk, one step at a time.

    `last_digits_are_cheap` says that a small tolerance costs hardly more than a large one.
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
        """Return the first state where another solver, or another penalty, has come to this one."""

    @abstractmethod
    def step(self, state: State) -> State:
        """Return the next state."""


Watch = Callable[[int, State], None]


def unwatched(iteration: int, state: State) -> None:
    """Watch nothing."""


@dataclass(frozen=True)
class Limits:
    """When a run ends: the gap is proven to be at most `tol` or that share of the objective, or steps run out."""

    tol: float
    max_iter: int
    watch: Watch
    stop_if_separable: bool = False
    relative_tol: float = 0.0


class Ending(Enum):
    """Why a run came to an end."""

    CONVERGED = auto()
    SEPARABLE = auto()
    STUCK = auto()
    LIMIT = auto()
    INTERRUPTED = auto()


@dataclass(frozen=True)
class Run:
    """The last state of a solver, how it came to an end, and after how many steps."""

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
    if state.gap <= max(limits.tol, limits.relative_tol * state.objective):
        return Ending.CONVERGED
    if limits.stop_if_separable and state.least_margin > 0.0:
        return Ending.SEPARABLE
    if state.stuck:
        return Ending.STUCK
    return Ending.LIMIT if iteration >= limits.max_iter else None
