"""Accelerated projected gradient on M: on all judgements, for many columns if a Hessian is too large, or on a model.

The model is that of Newton steps with the Hessian of a sample, for so many judgements that passes over all of them
should be few.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from closefar.arrays import Array, BoolArray, FloatArray
from closefar.rows import Trait
from closefar.solve.certificate import HessianSolver, lower_bound, prove_bound, proven_bound, sample_model
from closefar.solve.likelihood import Evaluation
from closefar.solve.loop import Solver, State
from closefar.solve.low_rank import LowRank
from closefar.solve.problem import Point, Problem, enough_for_hessian, moment_start, share_for_hessian

_MOST_APPROACHING = 200  # of an approach without a proof


class _Place(NamedTuple):
    """A metric with its squared distances and its best thresholds."""

    matrix: FloatArray
    squared: Array
    thresholds: FloatArray


@dataclass(frozen=True)
class _Iterate:
    """A metric with its squared distances, its best thresholds, and its penalised risk."""

    matrix: FloatArray
    squared: Array
    thresholds: FloatArray
    evaluation: Evaluation
    value: float

    @property
    def place(self) -> _Place:
        return _Place(self.matrix, self.squared, self.thresholds)


@dataclass(frozen=True)
class _FistaMemory:
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
        last: _FistaMemory = state.memory
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
        memory = _FistaMemory(here, last.here.place, momentum, 0.97 * smoothness, residual, last.certify_below)
        bound = state.bound
        if self.problem.alpha > 0.0:
            bound = max(bound, proven_bound(point, here.value))
        new = _fista_state(memory, bound)
        return self._certify(new) if residual <= last.certify_below * math.sqrt(smoothness) else new

    def approach(self, state: State, tol: float) -> State:
        """Step until the gap is probably below `tol`, which is not proven; a solver with a tolerance of zero does."""
        for _ in range(_MOST_APPROACHING):
            state = self.step(state)
            memory: _FistaMemory = state.memory
            if memory.residual <= 0.3 * math.sqrt(tol * memory.smoothness) or state.least_margin > 0.0:
                break
        return state

    def _begin(self, matrix: FloatArray, thresholds: FloatArray) -> State:
        here = self._settle(*self.problem.project(matrix), thresholds, accuracy=1e-6)
        certify_below = 0.3 * math.sqrt(max(self.tol, 1e-14))
        return _fista_state(_FistaMemory(here, here.place, 1.0, 0.3, 1e-2, certify_below), 0.0)

    def _extrapolate(self, last: _FistaMemory, momentum: float, accuracy: float) -> _Iterate:
        """Extrapolate beyond the last step; z'Mz is linear in M, so this needs no pass over the data."""
        if momentum == 0.0:
            return last.here
        matrix, squared, thresholds = (
            now + momentum * (now - before) for now, before in zip(last.here.place, last.before, strict=True)
        )
        return self._settle(matrix, squared, thresholds, accuracy)

    def _iterate(self, target: FloatArray, base: _Iterate, accuracy: float) -> _Iterate:
        matrix, squared = self.problem.project(target)
        change = float(np.trace(matrix) - np.trace(base.matrix))
        guess = self.problem.likelihood.follow(base.thresholds, change)
        return self._settle(matrix, squared, guess, accuracy)

    def _settle(self, matrix: FloatArray, squared: Array, guess: FloatArray, accuracy: float) -> _Iterate:
        thresholds, evaluation = self.problem.minimise_threshold(squared, guess, tol=accuracy)
        return _Iterate(matrix, squared, thresholds, evaluation, self.problem.value(evaluation, matrix))

    def _certify(self, state: State) -> State:
        memory: _FistaMemory = state.memory
        here = memory.here
        exact = self._settle(here.matrix, here.squared, here.thresholds, accuracy=1e-15)
        point = self.problem.known(exact.matrix, exact.thresholds, exact.evaluation)
        bound = max(state.bound, prove_bound(point, self.tol))
        memory = replace(memory, here=exact, certify_below=0.2 * memory.certify_below)
        return replace(_fista_state(memory, bound), stuck=memory.residual < 1e-12)


def _fista_state(memory: _FistaMemory, bound: float) -> State:
    here = memory.here
    return State(here.matrix, here.thresholds, here.value, bound, here.evaluation.least_margin, memory)


# ---------------------------------------------------------------------------------------------------------------------
# The quadratic model of the risk whose gradient is that of all judgements and whose Hessian is that of a sample.


# The model is minimised until its gradient step is this share of the first one.
_MODEL_ACCURACY, _MOST_MODEL_STEPS = 0.03, 60


class Move(NamedTuple):
    """A step in M and the thresholds, and by how much the model says that it lowers the objective."""

    matrix: FloatArray
    thresholds: FloatArray
    decrement: float


class SampledModel:
    """The model at a point, over the feasible set; its products are passes over the sample."""

    def __init__(self, few: Problem, point: Point, rank: int | None = None) -> None:
        self.few, self.point, self.rank = few, point, rank
        self.curvature = few.evaluate(few.forms(point.matrix), point.thresholds, order=2).curvature
        self._borders = [few.outer(cross) for cross in self.curvature.crosses(few.rows)]

    def minimise(self) -> Move:
        """Accelerated projected gradient in M, with the thresholds minimised out."""
        start, project = self.point.matrix, partial(self.few.cone.project, rank=self.rank)
        here = before = np.zeros_like(start)
        image = image_before = here
        momentum, smoothness, first = 1.0, 0.1, 0.0
        for _ in range(_MOST_MODEL_STEPS):
            following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
            weight = (momentum - 1.0) / following
            base, image_base = here + weight * (here - before), image + weight * (image - image_before)
            slope = self._slope(base, image_base)
            while True:
                ahead = project(start + base - slope / smoothness) - start
                image_ahead = self.few.hessian_product(ahead, np.zeros(len(self._borders)), self.curvature)[0]
                change = ahead - base
                moved = float(np.sum(change * change))
                curved = float(np.sum(change * (self._slope(ahead, image_ahead) - slope)))
                if curved <= smoothness * moved * (1.0 + 1e-9):
                    break
                smoothness = max(1.5 * smoothness, curved / moved)
            before, image_before = here, image
            here, image = ahead, image_ahead
            momentum = 1.0 if float(np.sum(change * (here - before))) < 0.0 else following
            residual = smoothness * math.sqrt(moved)
            first = first or residual
            if residual <= _MODEL_ACCURACY * first:
                break
        return self._move(here, image)

    def _across(self, matrix: FloatArray) -> FloatArray:
        """The change of the slopes of the thresholds with this change of M."""
        return np.array([float(np.sum(border * matrix)) for border in self._borders])

    def _shift(self, matrix: FloatArray) -> FloatArray:
        """The best change of the thresholds with this change of M."""
        slopes, least = self.point.slopes + self._across(matrix), self.few.cone.least - self.point.thresholds
        return _least_quadratic(self.curvature.thresholds, slopes, least)

    def _slope(self, matrix: FloatArray, image: FloatArray) -> FloatArray:
        """The derivative of the model in M."""
        slope = self.point.gradient + image
        for shift, border in zip(self._shift(matrix).tolist(), self._borders, strict=True):
            slope = slope + shift * border
        return slope

    def _move(self, matrix: FloatArray, image: FloatArray) -> Move:
        shift, corner = self._shift(matrix), self.curvature.thresholds
        linear = float(np.sum(self.point.gradient * matrix)) + float(shift @ self.point.slopes)
        square = float(np.sum(matrix * image) + shift @ (2.0 * self._across(matrix) + corner @ shift))
        return Move(matrix, shift, max(-linear - 0.5 * square, 0.0))


def _least_quadratic(hessian: FloatArray, slopes: FloatArray, least: FloatArray) -> FloatArray:
    """The minimiser of 1/2 t'Ht + s't with t >= least, as far as holding those that are below it tells."""
    held: BoolArray = np.zeros(len(slopes), dtype=bool)
    found = np.zeros_like(slopes)
    for _ in range(1 + len(slopes)):  # each but the last may hold one more
        free = ~held & (np.diag(hessian) > 0.0)
        found = np.where(held, least, 0.0)
        right = -(slopes + hessian @ found)[free]
        on = hessian[np.ix_(free, free)]
        found[free] = right / on[0, 0] if len(right) == 1 else np.linalg.solve(on, right)
        below = found < least
        if not np.any(below & ~held):
            break
        held |= below
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Newton steps with the Hessian of a sample.


# A sample of its own precedes a sample that is larger than this many times the parameters.
_SCOUTED_PER_PARAMETER = 64

# The loss of a sample is as accurate as (number of parameters) / (2 times its size); going on below this share of it
# only fits the sample.
_STATISTICAL = 0.1

# The minimum is proven once the model says that it is this near, as a share of the tolerance.
_PROVE_BELOW = 0.3
_END_BELOW = 3e-3  # at a limited rank, where nothing is proven: the same share as that of `LowRank`

# The residual that solving with the Hessian of the sample leaves; that Hessian itself is hardly more accurate.
_INEXACT = 0.05

# Steps with a larger decrement need no precise gradient.
_FAR_DECREMENT = 1e-4

# With a smaller tolerance the last digits matter: steps go on for as long as they gain more than the second number.
_FINE_TOL, _LAST_DECREMENT, _MOST_LAST_STEPS = 1e-8, 1e-16, 8

_OBJECTIVE_ROUNDING, _FUSED_ROUNDING = 1e-14, 1e-9  # of the objective

# Steps that do not halve the decrement before the sample is given up: the judgements outside it are different.
_MOST_SLOW_STEPS = 3


@dataclass(frozen=True)
class _SampleMemory:
    few: Problem
    point: Point
    decrement: float
    slow: int = 0  # consecutive steps after which the decrement was not much smaller


class Sampled(Solver):
    """Approach the optimum on a sample, then correct it by steps whose gradient is that of all judgements.

    Each step takes one pass, and makes the distance to the optimum smaller by a factor of about the
    square root of (number of parameters) / (size of the sample).  The proof does the same, and its result is verified
    on all judgements.  If the sample turns out to be misleading, `Fista` goes on.
    """

    def __init__(self, problem: Problem, tol: float, rng: np.random.Generator, rank: int | None = None) -> None:
        super().__init__(problem, tol, rng)
        self.rank = rank

    def start(self) -> State:
        few = self._sample(self.rng)
        near = None if few is None else _approach(few, self.rng)
        if few is None or near is None:
            return self._plain.start()
        return self._begin(few, near, 0.0)

    def resume(self, state: State) -> State:
        few = self._sample(self.rng)
        bound = 0.0 if self.rank is None else state.bound
        return self._plain.resume(state) if few is None else self._begin(few, state, bound)

    def step(self, state: State) -> State:
        last = state.memory
        if not isinstance(last, _SampleMemory):
            return self._plain.step(state)
        model = SampledModel(last.few, last.point, self.rank)
        move = model.minimise()
        if self.rank is not None and move.decrement <= _END_BELOW * self.tol:
            return replace(state, stuck=True)
        slow = last.slow + 1 if move.decrement > 0.5 * last.decrement else 0
        if self.rank is None and move.decrement <= _PROVE_BELOW * self.tol:
            point = last.point if self._near is self.problem else self.problem.at(last.point.matrix, state.thresholds)
            state = State.of(point, max(state.bound, self._prove(last.few, point, model)), last)
            if state.gap <= self.tol:
                return self._polished(state, last.few, point) if self.tol <= _FINE_TOL else state
        new = None if slow >= _MOST_SLOW_STEPS else self._search(last.point, move)
        if new is None:
            return replace(self._plain.resume(state), bound=state.bound)
        return State.of(new, state.bound, _SampleMemory(last.few, new, move.decrement, slow))

    @cached_property
    def _near(self) -> Problem:
        """The problem with fused passes, if there are any, which are precise enough until a bound is proven."""
        return _fused(self.problem)

    def _passes(self, decrement: float) -> Problem:
        """The problem with passes that are precise enough for a step of this decrement."""
        return _precise(self.problem) if decrement > _FAR_DECREMENT else self._near

    @cached_property
    def _plain(self) -> Solver:
        if self.rank is not None:
            return LowRank(self.problem, self.tol, self.rng, self.rank)
        return Fista(self.problem, self.tol, self.rng)

    def _sample(self, rng: np.random.Generator) -> Problem | None:
        if not enough_for_hessian(self.problem):
            return None
        few = self.problem.sample(share_for_hessian(self.problem), rng)
        return None if few is None else _precise(few)

    def _begin(self, few: Problem, near: State, bound: float) -> State:
        point = self._passes(np.inf).at(self.problem.cone.project(near.matrix, self.rank), near.thresholds)
        return State.of(point, bound, _SampleMemory(few, point, decrement=np.inf))

    def _prove(self, few: Problem, point: Point, model: SampledModel) -> float:
        """The bound is verified in full precision, so the steps that lead to it need not be."""
        basis = np.linalg.eigh(point.matrix)[1]
        preconditioner = sample_model(few, model.curvature, basis, _INEXACT)
        solve = HessianSolver(self._near, point.evaluation.curvature, preconditioner)
        return lower_bound(point, solve, self.tol)

    def _polished(self, state: State, few: Problem, point: Point) -> State:
        """Step on, in full precision, while the decrement falls, since probabilities have the root of its error."""
        bound, decrement = state.bound, np.inf
        for _ in range(_MOST_LAST_STEPS):
            move = SampledModel(few, point).minimise()
            if not _LAST_DECREMENT < move.decrement < 0.5 * decrement:
                break
            new = self.problem.at(point.matrix + move.matrix, point.thresholds + move.thresholds)
            if new.value > point.value + _OBJECTIVE_ROUNDING:
                break
            point, decrement = new, move.decrement
        return State.of(point, bound, _SampleMemory(few, point, decrement))

    def _search(self, point: Point, move: Move) -> Point | None:
        """Halve the step until the objective falls; None if the model is wrong."""
        length, rounding = 1.0, _OBJECTIVE_ROUNDING if self._near is self.problem else _FUSED_ROUNDING
        while length > 0.1:
            matrix, thresholds = point.matrix + length * move.matrix, point.thresholds + length * move.thresholds
            if self.rank is not None and length < 1.0:
                matrix = self.problem.cone.project(matrix, self.rank)
            new = self._passes(move.decrement).at(matrix, thresholds)
            if new.value <= point.value - 1e-4 * length * move.decrement + rounding:
                return new
            length *= 0.5
        return None


def _fused(problem: Problem) -> Problem:
    """The problem with fused passes of the highest precision; itself if there are none."""
    return problem.rough if Trait.FUSED in problem.rough.traits else problem


def _precise(problem: Problem) -> Problem:
    """The problem with fused passes whose losses are as precise; itself if there are none."""
    fused = _fused(problem)
    return problem if fused is problem else fused.rough


def _approach(few: Problem, rng: np.random.Generator) -> State | None:
    """Minimise over a sample, up to its statistical precision; None if its labels are separable."""
    n_parameters = len(few.cone.least) + few.cone.size * (few.cone.size + 1) // 2
    tol = _STATISTICAL * n_parameters / (2.0 * few.n_judgements)
    solver = Fista(few, 0.0, rng)
    scouts = few.sample(0.125, rng) if few.n_judgements >= _SCOUTED_PER_PARAMETER * n_parameters else None
    near = None if scouts is None else _approach(scouts, rng)
    state = solver.start() if near is None else solver.resume(near)
    state = solver.approach(state, tol)
    return None if few.alpha == 0.0 and state.least_margin > 0.0 else state
