"""Preconditioned L-BFGS on a factor of low rank, for many columns; full gradients only prove, and find new columns."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from closefar.arrays import TINY, FloatArray
from closefar.solve.cone import psd_factor
from closefar.solve.conjugate_gradient import prove_bound
from closefar.solve.dual import has_tangents, tangent_bound
from closefar.solve.factored import Factored, Place
from closefar.solve.growth import Spectrum, change_columns, leading_factor
from closefar.solve.journal import Entry
from closefar.solve.loop import SURPRISING, Solver, State
from closefar.solve.problem import Point, Problem
from closefar.solve.sylvester import Model

__all__ = ["LowRank"]

_HISTORY = 10
_FIRST_CHECK = 5  # steps before the first full gradient, and after columns were added

# A decrement of this multiple of the tolerance is small; a smaller one proves a smaller gap, but not at a limited rank.
_SETTLED, _SETTLED_AT_RANK, _SETTLED_FOR_NEWTON = 1e-2, 3e-2, 0.1

_MOST_IDLE = 10

# Projections, which steps update, are computed anew after so many steps: a run can be continued from there.
_FRESH_EVERY = 20

# Conjugate gradients are worth a try if the gap is at most this multiple of the tolerance, or columns are few.
_NEAR, _FEW_COLUMNS = 1e4, 64

_SINGLE_DECREMENT = 1e-9  # below this, steps in single precision follow rounding errors

# A tolerance that can be reached in single precision alone.
_SINGLE_TOL = 1e-5

# Where nothing is proven, slopes in the thresholds of this share of the tolerance hardly change the steps.
_THRESHOLD_SHARE = 1e-2

Steps = tuple[tuple[FloatArray, FloatArray, float], ...]  # recent (step, change of gradient, their product)


@dataclass(frozen=True)
class _Memory:
    factored: Factored
    place: Place
    gradient: FloatArray | None  # in the factor; None if it is not known yet
    model: Model
    steps: Steps = ()
    decrement: float = np.inf
    lowest: float = np.inf  # of all decrements
    n_since: int = 0  # steps since the last full gradient
    check_after: int = _FIRST_CHECK  # check after this many steps; 0 if only the decrement decides
    check_below: float = _SETTLED  # check once the decrement is below this multiple of the tolerance
    n_checks: int = 0
    expected: float = np.inf  # the gap that the last full gradient would prove
    n_idle: int = 0  # consecutive steps that brought nothing

    @property
    def is_idle(self) -> bool:
        return self.n_idle >= _MOST_IDLE


_NUMBERS = ("decrement", "lowest", "n_since", "check_after", "check_below", "n_checks", "expected", "n_idle")


class LowRank(Solver):
    """Minimise over factors with as many columns as the optimum needs, or at most `rank`.

    The thresholds are optimised at every point, and a step is one projection and one pull back of as many columns
    as the factor has.  Without `rank` the gap is proven: with a penalty from a full gradient alone (`tangent_bound`),
    otherwise by conjugate gradients.
    """

    def __init__(
        self, problem: Problem, tol: float, rng: np.random.Generator, rank: int | None = None, *, proves: bool = True
    ) -> None:
        super().__init__(problem, tol, rng)
        self.rank = rank if rank is not None and rank < problem.cone.size else None
        self.proves = proves
        threshold_tol = None if proves or tol < _SINGLE_TOL else _THRESHOLD_SHARE * tol
        self.exact = Factored(problem, problem.objective, threshold_tol)
        rough = problem.objective.rough
        self.rough = self.exact if rough is problem.objective else Factored(problem, rough, threshold_tol)

    def start(self) -> State:
        factor, thresholds = leading_factor(self.rough, self.rank)
        begun = self._begin(factor, thresholds, bound=0.0)
        if self.rank is not None or self.problem.alpha == 0.0:
            return begun
        # Moments do not know the penalty, and if an enormous difference is close, they are far too large.
        nothing = self._begin(factor[:, :0], np.ones_like(thresholds), bound=0.0)
        return nothing if begun.objective > SURPRISING * (1.0 + nothing.objective) else begun

    def resume(self, state: State) -> State:
        """Start from its leading directions; its bound is valid if the rank is limited, but not for another penalty."""
        factor = np.ascontiguousarray(psd_factor(state.matrix, cutoff=1e-7)[:, ::-1][:, : self.rank])
        bound = 0.0 if self.rank is None else state.bound
        return self._begin(factor, state.thresholds, bound)

    def step(self, state: State) -> State:
        last: _Memory = state.memory
        floor = 0.0 if last.factored is self.exact else _SINGLE_DECREMENT
        is_small = last.n_since >= 2 and last.decrement <= max(last.check_below * self.tol, floor)
        is_settled = is_small or last.is_idle or last.place.factor.shape[1] == 0
        is_due = last.n_since == last.check_after and last.check_after > 0
        return self._check(state, is_settled=is_settled) if is_settled or is_due else self._descend(state)

    def saved(self, state: State) -> Entry | None:
        last: _Memory = state.memory
        if not last.place.is_fresh:
            return None
        return {
            **self.saved_result(state),
            "is_exact": last.factored is self.exact,
            "gradient": last.gradient,
            "values": last.model.values,
            "vectors": last.model.vectors,
            "steps": last.steps,
            **{name: getattr(last, name) for name in _NUMBERS},
        }

    def restored(self, state: State, saved: Entry, begun: np.random.Generator) -> State:
        assert state.factor is not None
        factored = self.exact if saved["is_exact"] else self.rough
        place = factored.again(state.factor, state.thresholds)
        model = Model(self.problem.alpha, self.rank is not None, saved["values"], saved["vectors"])
        steps = tuple((step, change, product) for step, change, product in saved["steps"])
        numbers = {name: saved[name] for name in _NUMBERS}
        memory = _Memory(factored, place, saved["gradient"], model, steps, **numbers)
        return replace(state, memory=memory, squared=place.squared if saved["is_measured"] else None)

    def saved_result(self, state: State) -> Entry:
        return {"is_measured": state.squared is not None}

    def restored_result(self, state: State, saved: Entry) -> State:
        if state.factor is None or not saved["is_measured"]:
            return state
        return replace(state, squared=self.exact.again(state.factor, state.thresholds).squared)

    def _begin(self, factor: FloatArray, thresholds: FloatArray, bound: float) -> State:
        place = self.rough.at(factor, thresholds)
        model = Model(self.problem.alpha, self.rank is not None)
        below = _SETTLED if self.rank is None else _SETTLED_AT_RANK
        if self.rank is None and self.proves and not self._proves:  # by Newton's method, which goes on from there
            below = _SETTLED_FOR_NEWTON
        memory = _Memory(self.rough, place, self.rough.gradient(place), model, check_below=below)
        return _state(memory, bound)

    def _descend(self, state: State) -> State:
        last: _Memory = state.memory
        before = last.factored.gradient(last.place) if last.gradient is None else last.gradient
        direction, steps = _direction(last, before)
        place = last.factored.search(last.place, direction)
        if not np.isfinite(place.value):
            return replace(state, stuck=True)  # with flips, a level may be left with no width between its thresholds
        if (last.n_since + 1) % _FRESH_EVERY == 0:
            place = last.factored.at(place.factor, place.thresholds)
        gradient = last.factored.gradient(place)
        step, change = place.factor - last.place.factor, gradient - before
        product = float(np.sum(step * change))
        has_failed = not np.any(step)
        if has_failed:
            steps = ()
        elif product > 1e-10 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            steps = (*steps, (step, change, product))[-_HISTORY:]
        # Below the rounding error of the value, a smaller decrement is progress too.
        decrement = -0.5 * float(np.sum(direction * before))
        falls = place.value < last.place.value - 1e-15 * abs(place.value) or decrement < 0.8 * last.lowest
        memory = replace(
            last,
            place=place,
            gradient=gradient,
            steps=steps,
            decrement=decrement,
            lowest=min(decrement, last.lowest),
            n_since=last.n_since + 1,
            n_idle=0 if falls and not has_failed else last.n_idle + (1 if last.steps else _MOST_IDLE),
        )
        return _state(memory, state.bound)

    def _check(self, state: State, *, is_settled: bool) -> State:
        """Take a full gradient: it proves a bound, renews the model, and shows which columns are missing."""
        last: _Memory = state.memory
        alpha, factored = self.problem.alpha, last.factored
        if is_settled and self.rank is not None and not self._proves and self._is_precise(last):
            return self._end(last, state.bound)
        place = factored.settled(last.place)
        spectrum = Spectrum.of(factored, place)
        expected = spectrum.violation(alpha) * place.trace
        model = replace(last.model, values=spectrum.values + alpha, vectors=spectrum.vectors)
        memory = replace(
            last, place=place, model=model, n_since=0, n_checks=last.n_checks + 1, n_idle=0, expected=expected
        )
        bound = state.bound
        # In double precision a bound takes no pass, and an interrupt may come; in single precision it takes one.
        is_exact, ends = factored is self.exact, is_settled and self.rank is not None
        if expected <= self.tol or last.is_idle or ends or is_exact:
            bound = max(bound, self._bound(memory, spectrum))
            if place.value - bound <= self.tol:
                return self._in_double(memory, bound)
        if self.rank is None:
            changed = change_columns(
                factored, place, spectrum, self.tol, self._precision(memory), shrinks=last.n_checks == 0
            )
            if changed is not None:
                if is_settled:
                    memory = self._stricter(memory, expected)
                return self._with_columns(memory, changed, bound)
        if not is_settled:
            memory = replace(memory, check_after=3 * last.check_after)
            return _state(memory, bound)
        return self._finish(memory, spectrum, bound, is_idle=last.is_idle)

    def _bound(self, memory: _Memory, spectrum: Spectrum) -> float:
        """The bound that the gradient proves; in double precision where rounding alone exceeds the tolerance."""
        place = memory.place
        if not self._proves:
            return 0.0
        if memory.factored is not self.exact:
            spectrum = spectrum.measured(self.exact, place, self.rng)
            if spectrum.violation(self.problem.alpha) * place.trace > self.tol:
                spectrum = Spectrum.of(self.exact, place)
        return tangent_bound(self.problem, place, float(spectrum.values[0]) - spectrum.rounding)

    def _precision(self, memory: _Memory) -> float:
        """The size of eigenvalues of a gradient that may be rounding errors."""
        return 0.0 if memory.factored is self.exact else 1e-6 / np.sqrt(self.problem.cone.size)

    def _with_columns(self, memory: _Memory, changed: Place, bound: float) -> State:
        """Continue with more columns; recent steps are still right for the old ones."""
        more = changed.factor.shape[1] - memory.place.factor.shape[1]
        steps = (
            () if memory.n_checks == 1 else tuple((_grown(s, more), _grown(y, more), sy) for s, y, sy in memory.steps)
        )
        gradient = memory.factored.gradient(changed)
        return _state(replace(memory, place=changed, gradient=gradient, steps=steps, check_after=_FIRST_CHECK), bound)

    def _finish(self, memory: _Memory, spectrum: Spectrum, bound: float, *, is_idle: bool) -> State:
        """Nothing is left to do at this precision: end, or prove what is left, or continue more precisely."""
        is_rough = memory.factored is not self.exact
        if self.rank is not None or not self.proves:
            return self._end(memory, bound) if self._is_precise(memory) else self._in_double(memory, bound)
        if is_rough and (is_idle or self.problem.alpha == 0.0 or memory.decrement <= _SINGLE_DECREMENT):
            if self._proves:
                return self._in_double(replace(self._stricter(memory, memory.expected), check_after=0), bound)
            is_ready = not is_idle and memory.decrement <= memory.check_below * self.tol
            return self._in_double(replace(memory, n_since=2 if is_ready else 0), bound)
        is_near = memory.expected <= _NEAR * self.tol or len(spectrum.values) <= _FEW_COLUMNS
        # A full gradient alone proves a gap down to about the root of the rounding error.
        if not is_rough and is_near and (is_idle or not has_tangents(self.problem)):
            place = memory.place
            gradient = spectrum.gradient + self.problem.alpha * np.eye(len(spectrum.gradient))
            point = Point(self.problem, place.factor @ place.factor.T, place.thresholds, place.evaluation, gradient)
            bound = max(bound, prove_bound(point, self.tol))
        gap = memory.expected if has_tangents(self.problem) else memory.place.value - bound
        memory = replace(self._stricter(memory, gap), check_after=0)
        return replace(_state(memory, bound), stuck=is_idle)

    def _stricter(self, memory: _Memory, gap: float) -> _Memory:
        """Check again when the decrement promises a small enough gap, which falls about as its root."""
        wanted = float(np.clip(0.5 * self.tol / max(gap, TINY), 5e-3, 0.5)) ** 1.7
        return replace(memory, check_below=wanted * min(memory.check_below, memory.decrement / self.tol))

    @property
    def _proves(self) -> bool:
        """Whether a full gradient proves a bound."""
        return self.proves and has_tangents(self.problem)

    def _is_precise(self, memory: _Memory) -> bool:
        return memory.factored is self.exact or self.tol >= _SINGLE_TOL

    def _end(self, memory: _Memory, bound: float) -> State:
        """End where nothing more can be proven."""
        place = self.exact.at(memory.place.factor, memory.place.thresholds, 1e-15)
        memory = replace(memory, factored=self.exact, place=place)
        return replace(_state(memory, bound), stuck=True, squared=place.squared)

    def _in_double(self, memory: _Memory, bound: float) -> State:
        """Continue in double precision, or end there."""
        if memory.factored is self.exact:
            return _state(memory, bound)
        place = self.exact.at(memory.place.factor, memory.place.thresholds, 1e-15)
        memory = replace(memory, factored=self.exact, place=place)
        if place.value - bound <= self.tol:
            return replace(_state(memory, bound), squared=place.squared)
        return _state(replace(memory, gradient=None), bound)


def _direction(memory: _Memory, gradient: FloatArray) -> tuple[FloatArray, Steps]:
    """The preconditioned L-BFGS direction (Nocedal's two-loop recursion), and the steps that it used."""
    place, model, steps = memory.place, memory.model, memory.steps
    direction = -gradient
    weights = []
    for step, change, product in reversed(steps):
        weights.append(float(np.sum(step * direction)) / product)
        direction = direction - weights[-1] * change
    direction = model.inverse(place, direction)
    if steps:
        _, change, product = steps[-1]
        direction = direction * (product / float(np.sum(change * model.inverse(place, change))))
    for (step, change, product), weight in zip(steps, reversed(weights), strict=True):
        direction = direction + (weight - float(np.sum(change * direction)) / product) * step
    if float(np.sum(direction * gradient)) >= 0.0:
        return -model.inverse(place, gradient), ()
    return direction, steps


def _grown(matrix: FloatArray, more: int) -> FloatArray:
    return np.hstack([matrix, np.zeros((len(matrix), more))])


def _state(memory: _Memory, bound: float) -> State:
    place = memory.place
    return State(
        matrix=place.factor @ place.factor.T,
        thresholds=place.thresholds,
        objective=place.value,
        bound=bound,
        least_margin=place.evaluation.least_margin,
        memory=memory,
        factor=place.factor,
    )
