"""The interface of solvers, and the loop that runs them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar, Self

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.solve.certificate import Certificate
from closefar.solve.problem import Passes, Problem
from closefar.solve.supervision import Entry, Journal, OutOfTime, supervisor

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

    def saved(self) -> Entry:
        """The state as small arrays and numbers, without its memory."""
        return {
            "matrix": self.matrix if self.factor is None else None,
            "thresholds": self.thresholds,
            "objective": float(self.objective),
            "bound": float(self.bound),
            "least_margin": float(self.least_margin),
            "stuck": bool(self.stuck),
            "factor": self.factor,
        }

    @classmethod
    def restored(cls, saved: Entry) -> Self:
        matrix = saved["factor"] @ saved["factor"].T if saved["matrix"] is None else saved["matrix"]
        return cls(**{**saved, "matrix": matrix}, memory=_FORGOTTEN)


# The objective of a saved state, and of the same state evaluated again; solvers may use single precision.
_SAME = 1e-4

_FORGOTTEN = object()  # the memory of a solver that has ended


class Solver(ABC):
    """An algorithm that minimises the penalised risk, one step at a time.

    `states_are_of_problem` if the objective of a state is that of the problem.
    """

    states_are_of_problem: ClassVar[bool] = True

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

    # How a run continues in another process; without these, it begins again.

    def saved(self, state: State) -> Entry | None:
        """Return the memory of a state as small arrays and numbers; None if it can't be restored from these."""
        return None

    def restored(self, state: State, saved: Entry, begun: np.random.Generator) -> State:
        """Return a state with its memory; `begun` has the random numbers that the run began with."""
        raise NotImplementedError(f"{type(self).__name__} saves no memory.")

    def saved_result(self, state: State) -> Entry:
        """Return what the last state has beside its numbers, for whoever uses it."""
        return {}

    def restored_result(self, state: State, saved: Entry) -> State:
        return state


Watch = Callable[[int, State], None]


def unwatched(iteration: int, state: State) -> None:
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


def run(solver: Solver, start: Callable[[], State], limits: Limits) -> Run:
    """Step until a limit is reached; an interrupt, or the end of the time, keeps the last state.

    With a journal, a run that has ended is not run again, and one that was under way continues.
    """
    watch = supervisor()
    log = None if watch.journal is None else _Log(watch.journal, solver, limits)
    if log is not None and log.has_ended:
        return log.result()
    before = None if log is None else log.latest()
    state, iteration = before or (start(), 0)
    ending: Ending | None = None
    try:
        if before is None:
            limits.watch(iteration, state)
        while True:
            if log is not None:
                log.keep(state, iteration)
            ending = _ending(state, iteration, limits)
            if ending is None and watch.is_over:
                ending = Ending.OUT_OF_TIME
            if ending is not None:
                break
            with watch.stepping():
                state = solver.step(state)
            iteration += 1
            limits.watch(iteration, state)
    except KeyboardInterrupt:
        ending = Ending.INTERRUPTED
    except OutOfTime:
        ending = Ending.OUT_OF_TIME
    watch.has_ended_a_run |= ending is Ending.OUT_OF_TIME
    found = Run(state, ending, iteration)
    if log is not None:
        log.end(found)
    return found


def _ending(state: State, iteration: int, limits: Limits) -> Ending | None:
    # First, since the loss of a metric that separates the labels may already be below the tolerance.
    if limits.stop_if_separable and state.least_margin > 0.0:
        return Ending.SEPARABLE
    if state.gap <= max(limits.tol, limits.relative_tol * state.objective):
        return Ending.CONVERGED
    if state.stuck:
        return Ending.STUCK
    return Ending.LIMIT if iteration >= limits.max_iter else None


class _Log:
    """The entry of a run in the journal: it is written as the run goes on, or read where it was."""

    def __init__(self, journal: Journal, solver: Solver, limits: Limits) -> None:
        self.journal, self.solver = journal, solver
        problem, objective = solver.problem, solver.problem.objective
        self.passes = objective.passes
        self.label = {
            "solver": type(solver).__name__,
            "judgements": objective.n_judgements,
            "directions": objective.n_directions,
            "alpha": float(problem.alpha),
            "has_constant": problem.cone.has_constant,
            "likelihood": type(objective.likelihood).__name__,
            "noise": repr(getattr(objective.likelihood, "noise", None)),
        }
        self.entry, self.has_ended = journal.begin(self.label)
        if self.entry is not None and not self._has_objective(State.restored(self.entry["state"])):
            journal.forget()
            self.entry, self.has_ended = None, False
        self.begun = solver.rng.bit_generator.state if self.entry is None else self.entry["begun"]
        self.steps = limits.watch.steps if isinstance(limits.watch, Recorder) else []
        self.first = len(self.steps)

    def _has_objective(self, state: State) -> bool:
        """Whether a state has its objective here too: what was proven elsewhere would be wrong."""
        if not self.solver.states_are_of_problem:
            return True
        problem, count = self.solver.problem, self.passes.count
        squared = problem.objective.quadratic_forms(state.matrix)
        value = problem.value(problem.objective.evaluate(squared, state.thresholds), state.matrix)
        self.passes.count = count
        return math.isclose(value, state.objective, rel_tol=_SAME, abs_tol=_SAME)

    def keep(self, state: State, iteration: int) -> None:
        memory = self.solver.saved(state)
        if memory is not None:
            self.journal.keep({**self._entry(state, iteration), "memory": memory, "tol": self.solver.tol})

    def end(self, run: Run) -> None:
        if run.ending.is_early:
            self.journal.seal()
            return
        result = self.solver.saved_result(run.state)
        self.journal.end({**self._entry(run.state, run.n_iter), "ending": run.ending.name, "result": result})

    def latest(self) -> tuple[State, int] | None:
        """The state and the number of the step from which to go on."""
        entry = self.entry
        if entry is None:
            return None
        begun = np.random.default_rng()
        begun.bit_generator.state = entry["begun"]
        self.solver.tol = entry["tol"]
        state = self.solver.restored(State.restored(entry["state"]), entry["memory"], begun)
        return state, self._go_on(entry)

    def result(self) -> Run:
        """The result of a run that has ended."""
        assert self.entry is not None
        state = self.solver.restored_result(State.restored(self.entry["state"]), self.entry["result"])
        return Run(state, Ending[self.entry["ending"]], self._go_on(self.entry))

    def _go_on(self, entry: Entry) -> int:
        """Set counters and random numbers to what they were; return the number of steps."""
        self.solver.rng.bit_generator.state = entry["rng"]
        self.passes.count = entry["passes"]
        self.steps.extend(FitStep(*row) for row in np.asarray(entry["steps"]).reshape(-1, 3).tolist())
        return int(entry["iteration"])

    def _entry(self, state: State, iteration: int) -> Entry:
        new = self.steps[self.first :]
        return {
            "label": self.label,
            "begun": self.begun,
            "iteration": iteration,
            "state": state.saved(),
            "rng": self.solver.rng.bit_generator.state,
            "passes": self.passes.count,
            "steps": np.array([[step.passes, step.objective, step.gap] for step in new]).reshape(-1, 3),
        }
