"""The interface of solvers, and the loop that runs them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, ClassVar

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.rows import Trait
from closefar.solve.certificate import Certificate
from closefar.solve.problem import OutOfTime, Passes, Point, Problem, supervisor

# ---------------------------------------------------------------------------------------------------------------------
# A step of a fit, as its history keeps it.


@dataclass(frozen=True)
class FitStep:
    """The objective after a number of passes over the data, and the gap proven by then.

    `gap` is infinite until one is proven.
    """

    passes: float
    objective: float
    gap: float

    @classmethod
    def last(cls, certificate: Certificate) -> FitStep:
        """The last step of a fit with this certificate."""
        return cls(certificate.n_passes, certificate.objective, certificate.gap)


# If the objective at a start is this many times that of M = 0, or of a sample, an enormous difference has spoiled it.
SURPRISING = 10.0


@dataclass(frozen=True)
class State:
    """The state of a solver, in unit-free coordinates.

    `objective` is the penalised risk at (matrix, thresholds), `bound` the best lower
    bound on its minimum proven so far, and `memory` is private to the solver.  If `stuck`,
    further steps cannot improve the objective in floating-point arithmetic.  `factor` is one of the
    matrix, and `squared` are its squared distances, if the solver knows them.
    `rates` are the flip rates where the likelihood has some.
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
    rates: FloatArray | None = None

    @classmethod
    def at(cls, matrix: FloatArray, *thresholds: float) -> State:
        """A point about which nothing else is known."""
        return cls(matrix, np.array(thresholds), objective=np.inf, bound=0.0, least_margin=-np.inf, memory=None)

    @classmethod
    def of(cls, point: Point, bound: float, memory: Any) -> State:
        """A point of the problem, with the bound proven so far."""
        least_margin = point.evaluation.least_margin
        return cls(point.matrix, point.thresholds, point.value, bound, least_margin, memory, squared=point.squared)

    @property
    def gap(self) -> float:
        return max(self.objective - self.bound, 0.0)


Watch = Callable[[int, State], None]


@dataclass(frozen=True)
class SolverSettings:
    """How a problem is solved: those settings of a fit that solvers know, with the same meaning.

    With `proves`, a gap is proven even if that is additional work.
    """

    solver: str = "auto"
    rank: Any = None
    tol: float = 1e-6
    max_iter: int = 1000
    proves: bool = True


class Solver(ABC):
    """An algorithm that minimises the penalised risk, one step at a time.

    Attributes
    ----------
    needs : frozenset of Trait
        What a problem must have for it.
    """

    needs: ClassVar[frozenset[Trait]] = frozenset()

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

    def beginning(self, state: State | None) -> Callable[[], State]:
        """What returns the first state: from another one, if there is one."""
        return self.start if state is None else partial(self.resume, state)

    @abstractmethod
    def step(self, state: State) -> State:
        """Return the next state."""

    def run(
        self,
        start: Callable[[], State],
        *,
        tol: float,
        max_iter: int,
        watch: Watch | None = None,
        stop_if_separable: bool = False,
        relative_tol: float = 0.0,
    ) -> Run:
        """Step until a gap of at most `tol`, or of that share of the objective, is proven, or `max_iter` steps.

        An interrupt, or the end of the time, keeps the last state.
        """
        state, iteration = start(), 0
        ending: Ending | None = None
        clock, watch = supervisor(), watch or ignore_progress
        try:
            watch(iteration, state)
            while (ending := self._ending(state, iteration, tol, max_iter, stop_if_separable, relative_tol)) is None:
                if clock.is_over:
                    raise OutOfTime
                with clock.stepping():
                    state = self.step(state)
                iteration += 1
                watch(iteration, state)
        except KeyboardInterrupt:
            ending = Ending.INTERRUPTED
        except OutOfTime:
            ending, clock.timed_out = Ending.OUT_OF_TIME, True
        return Run(state, ending, iteration)

    @staticmethod
    def _ending(
        state: State, iteration: int, tol: float, max_iter: int, stop_if_separable: bool, relative_tol: float
    ) -> Ending | None:
        # First, since the loss of a metric that separates the labels may already be below the tolerance.
        if stop_if_separable and state.least_margin > 0.0:
            return Ending.SEPARABLE
        if state.gap <= max(tol, relative_tol * state.objective):
            return Ending.CONVERGED
        if state.stuck:
            return Ending.STUCK
        return Ending.LIMIT if iteration >= max_iter else None


def ignore_progress(iteration: int, state: State) -> None:
    """Watch nothing."""


class Recorder:
    """A watcher of a solver that keeps a `FitStep` of every state, and passes the state on."""

    def __init__(self, passes: Passes, watch: Watch) -> None:
        self.passes = passes
        self.watch = watch
        self.steps: list[FitStep] = []

    def __call__(self, iteration: int, state: State) -> None:
        gap = state.gap if state.bound > 0.0 else math.inf
        self.steps.append(FitStep(self.passes.count, float(state.objective), float(gap)))
        self.watch(iteration, state)


class Ending(Enum):
    """Why a run ended."""

    CONVERGED = auto()
    SEPARABLE = auto()
    STUCK = auto()
    LIMIT = auto()
    INTERRUPTED = auto()
    OUT_OF_TIME = auto()

    @property
    def is_early(self) -> bool:
        """Whether the run would have gone on."""
        return self in (Ending.INTERRUPTED, Ending.OUT_OF_TIME)


@dataclass(frozen=True)
class Run:
    """The last state of a solver, why it ended, and after how many steps."""

    state: State
    ending: Ending
    n_iter: int
