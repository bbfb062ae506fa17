"""The alternating solver for flips: steps in (M, tau) and estimates of the flip rate in turn; not convex."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from closefar.arrays import Array
from closefar.packed import packed_size
from closefar.solve.cone import psd_factor
from closefar.solve.flipped_graded import Flipped
from closefar.solve.journal import Entry
from closefar.solve.loop import Solver, State
from closefar.solve.problem import Problem
from closefar.solve.solvers.factor import Factor
from closefar.solve.solvers.newton import Newton, is_of_newton
from closefar.solve.start import moment_start

__all__ = ["Alternating", "Climb"]

# A round that improves the mean log-likelihood by less than this ends the search.
LEAST_GAIN = 1e-7

# The largest number of entries of M, and of thresholds, for which a dense Hessian is formed.
_MOST_DENSE = 600
_MOST_THRESHOLDS = 2000

# L-BFGS steps between two estimates of the rate, if the rank limit is reached or a dense Hessian is too large.
_STEPS_PER_ROUND = 20


@dataclass(frozen=True)
class Climb:
    """The state of the search: the likelihood with its flip rate, and the squared distances.

    `inner` is the state of the solver that takes the steps.  `is_settled` is true if the labels
    determine the scale of M and tau, as far as is known; `has_begun` is true after the first step.
    """

    likelihood: Flipped
    squared: Array
    inner: State
    is_settled: bool = True
    has_begun: bool = True


class Alternating(Solver):
    """Alternate a step in M and tau with the maximum-likelihood flip rate, until a round brings no improvement.

    `likelihood` has the initial flip rate, which is optimised if `estimate`; steps keep a limited
    rank.  The search also ends when the scale of M and tau is no longer determined.
    """

    states_are_of_problem = False  # but of that with the flip rate

    def __init__(
        self,
        problem: Problem,
        rng: np.random.Generator,
        likelihood: Flipped,
        *,
        estimate: bool,
        rank: int | None,
    ) -> None:
        super().__init__(problem, LEAST_GAIN, rng)
        self.likelihood = likelihood
        self.estimate = estimate
        self.rank = rank if rank is not None and rank < problem.cone.size else None
        n_entries, n_thresholds = packed_size(problem.cone.size), len(problem.cone.least)
        self.n_unknowns = n_entries + n_thresholds
        self.is_dense = n_entries <= _MOST_DENSE and n_thresholds <= _MOST_THRESHOLDS

    def start(self) -> State:
        matrix, thresholds = moment_start(self.problem)
        return self.resume(State.at(matrix, *thresholds))

    def resume(self, state: State) -> State:
        squared = self.problem.objective.quadratic_forms(state.matrix)
        return self._state(Climb(self.likelihood, squared, state, has_begun=False))

    def step(self, state: State) -> State:
        last: Climb = state.memory
        inner = self._advance(self._flipped(last.likelihood), last.inner)
        squared = self.problem.objective.quadratic_forms(inner.matrix)
        source, likelihood = self.problem.objective.source, last.likelihood
        if self.estimate:
            likelihood = likelihood.with_best_rates(source, squared, inner.thresholds)
        is_settled = self._is_settled(likelihood, squared, inner)
        new = self._state(Climb(likelihood, squared, inner, is_settled))
        gains = not last.has_begun or state.objective - new.objective >= self.tol
        return replace(new, stuck=not (gains and is_settled and likelihood.has_flips))

    def saved(self, state: State) -> Entry | None:
        climb: Climb = state.memory
        steps = self._newton(climb.likelihood).saved(climb.inner) if is_of_newton(climb.inner) else None
        return {
            **self.saved_result(state),
            "has_begun": climb.has_begun,
            "inner": climb.inner.saved(),
            "newton": steps,
        }

    def restored(self, state: State, saved: Entry, begun: np.random.Generator) -> State:
        inner = State.restored(saved["inner"])
        climb: Climb = self.restored_result(state, saved).memory
        if saved["newton"] is not None:
            inner = self._newton(climb.likelihood).restored(inner, saved["newton"], begun)
        return replace(state, memory=replace(climb, inner=inner, has_begun=saved["has_begun"]))

    def saved_result(self, state: State) -> Entry:
        climb: Climb = state.memory
        return {"flip_rates": climb.likelihood.rates, "is_settled": bool(climb.is_settled)}

    def restored_result(self, state: State, saved: Entry) -> State:
        squared = self.problem.objective.quadratic_forms(state.matrix)
        climb = Climb(self.likelihood.with_rates(saved["flip_rates"]), squared, state, saved["is_settled"])
        return replace(state, memory=climb)

    def _newton(self, likelihood: Flipped) -> Newton:
        return Newton(self._flipped(likelihood), self.tol, self.rng)

    def _state(self, climb: Climb) -> State:
        flipped = self._flipped(climb.likelihood)
        evaluation = flipped.objective.evaluate(climb.squared, climb.inner.thresholds)
        return replace(climb.inner, objective=flipped.value(evaluation, climb.inner.matrix), bound=0.0, memory=climb)

    def _is_settled(self, likelihood: Flipped, squared: Array, state: State) -> bool:
        """Whether the labels determine the scale of M and tau.

        If all labels except the flipped ones are right, the scale grows without bound.  It is
        determined by the pairs near the threshold; once there are hardly more of them than
        unknowns, they are overfitted.  A penalty determines it in any case.
        """
        objective = self.problem.objective
        share = likelihood.share_undecided(objective.source, squared, state.thresholds)
        return self.problem.alpha > 0.0 or objective.n_judgements * share >= 2.0 * self.n_unknowns

    def _flipped(self, likelihood: Flipped) -> Problem:
        return replace(self.problem, objective=self.problem.objective.with_likelihood(likelihood))

    def _advance(self, problem: Problem, state: State) -> State:
        if self.is_dense and (self.rank is None or _rank(state) < self.rank):
            newton = Newton(problem, self.tol, self.rng)
            new = newton.advance(newton.renew(state))
            if self.rank is None or _rank(new) <= self.rank:
                return new
        factor = Factor(problem, 0.0, self.rng, self.rank, proves=False)
        state = factor.resume(state)
        for _ in range(_STEPS_PER_ROUND):
            state = factor.step(state)
            if state.stuck:
                break
        return state


def _rank(state: State) -> int:
    return int(psd_factor(state.matrix).shape[1])
