"""Solving with flips: the optimum without flips, the descent from there, and a last convex step with a certificate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from closefar.arrays import Array
from closefar.packed import packed_size
from closefar.solve.certificate import Certificate, Outcome, advise
from closefar.solve.flips import Flipped
from closefar.solve.likelihood import Likelihood
from closefar.solve.loop import Ending, FitStep, Limits, Recorder, Run, Solver, State, Watch, run
from closefar.solve.problem import Objective, Problem, psd_factor
from closefar.solve.solution import Options, Solution, run_roughly, solve, with_free_corner
from closefar.solve.solvers.factor import Factor
from closefar.solve.solvers.newton import Newton, is_of_newton
from closefar.solve.start import moment_start
from closefar.solve.supervision import Entry, supervisor

# ---------------------------------------------------------------------------------------------------------------------
# The alternating solver for flips: steps in (M, tau) and estimates of the flip rate in turn; not convex.


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
        self, problem: Problem, rng: np.random.Generator, likelihood: Flipped, *, estimate: bool, rank: int | None
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
        return {**self.saved_result(state), "has_begun": climb.has_begun, "inner": climb.inner.saved(), "newton": steps}

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


_MOST_ROUNDS = 100

# Multiples of the metric without flips that the search may start from.
_SCALES = (1.0, 1.5, 2.5, 4.0, 8.0)
_RAY_ROUNDS = 2
_RAY_TOL = 1e-6
_PRECISE = 1e-7  # of the climb at known rates, before the last step


def solve_with_flips(
    objective: Objective,
    flipped: Flipped,
    options: Options,
    *,
    estimate: bool,
    rng: np.random.Generator,
    watch: Watch,
    start: State | None = None,
) -> tuple[Solution, Flipped]:
    """Maximise the likelihood with flips over M and thresholds, and over the flip rates if `estimate`.

    The objective is that without flips, of the same judgements.  If rates that are estimated are given beside a
    start, both are close to the maximum.  Returns the solution, and the likelihood with its flip rates.
    """
    if start is not None and not options.proves and options.solver == "newton":
        return _climb_from(start, objective, flipped, estimate, options, rng, watch)
    if start is not None and estimate and flipped.has_flips:
        return _climb(start, objective, flipped, options, rng, watch, estimate=True)
    if not options.proves and not estimate:
        begun = solve(objective, options, rng=rng, watch=watch).state if start is None else start
        climbing, by_factor = objective.with_likelihood(flipped), replace(options, solver="factor")
        return solve(climbing, by_factor, rng=rng, watch=watch, start=begun), flipped
    if start is not None and not estimate:
        return _climb_at(start, objective, flipped, options, rng, watch)
    plain = solve(objective, options, rng=rng, watch=watch, start=start)
    begun = plain.state
    if estimate and flipped.has_several_starts:
        begun, flipped = _best_on_ray(options.problem(objective), flipped, plain)
    elif estimate:
        flipped = flipped.with_best_rates(objective.source, plain.squared, plain.thresholds)
    if not flipped.has_flips or plain.certificate.outcome is Outcome.INTERRUPTED or supervisor().has_ended_a_run:
        return plain, flipped
    if not estimate and options.alpha > 0.0:
        return _climb_at(begun, objective, flipped, options, rng, watch, plain)
    return _climb(begun, objective, flipped, options, rng, watch, estimate=estimate, plain=plain)


def _climb(
    begun: State,
    objective: Objective,
    flipped: Flipped,
    options: Options,
    rng: np.random.Generator,
    watch: Watch,
    *,
    estimate: bool,
    plain: Solution | None = None,
) -> tuple[Solution, Flipped]:
    """Maximise from a point, after the solution without flips if there is one, and prove the last convex step."""
    problem = options.problem(objective)
    recorder = Recorder(objective.passes, watch)
    climber = Alternating(problem, rng, flipped, estimate=estimate, rank=options.rank)
    begin = partial(climber.resume, with_free_corner(problem.cone, begun))
    climb = run(climber, begin, Limits(0.0, _MOST_ROUNDS, recorder))
    top: Climb = climb.state.memory
    soft = top.likelihood.softened(objective.source, top.squared, climb.state.thresholds)
    last = _last_step(soft, climb, objective, options, rng, watch)
    if estimate:
        flipped = top.likelihood.with_best_rates(objective.source, last.squared, last.thresholds)
    return _joined(plain, climb, last, recorder, objective, flipped, is_settled=top.is_settled), flipped


def _climb_at(
    begun: State,
    objective: Objective,
    flipped: Flipped,
    options: Options,
    rng: np.random.Generator,
    watch: Watch,
    plain: Solution | None = None,
) -> tuple[Solution, Flipped]:
    """The same at known rates, which a single solver can maximise at from a point close to the maximum."""
    recorder = Recorder(objective.passes, watch)
    climb = run_roughly(
        objective.with_likelihood(flipped),
        options,
        begun,
        tol=min(options.tol, _PRECISE),
        n_steps=_MOST_ROUNDS,
        watch=recorder,
    )
    squared = objective.quadratic_forms(climb.state.matrix)
    soft = flipped.softened(objective.source, squared, climb.state.thresholds)
    last = _last_step(soft, climb, objective, options, rng, watch)
    return _joined(plain, climb, last, recorder, objective, flipped, is_settled=True), flipped


def _last_step(
    soft: Likelihood, climb: Run, objective: Objective, options: Options, rng: np.random.Generator, watch: Watch
) -> Solution:
    """The convex problem at the top of a climb, solved with a proof; after an interrupt, one step of it."""
    near = State.at(climb.state.matrix, *climb.state.thresholds)
    brief = replace(options, max_iter=1) if climb.ending.is_early else options
    last = solve(objective.with_likelihood(soft), brief, rng=rng, watch=watch, start=near, stay_near=True)
    if climb.ending is Ending.INTERRUPTED:
        last = replace(last, certificate=_interrupted(last.certificate, options))
    return last


def _joined(
    plain: Solution | None,
    climb: Run,
    last: Solution,
    recorder: Recorder,
    objective: Objective,
    flipped: Flipped,
    *,
    is_settled: bool,
) -> Solution:
    """The last step, with the loss of the likelihood with flips and the history of all steps."""
    evaluation = objective.with_likelihood(flipped).evaluate(last.squared, last.thresholds)
    loss = evaluation.loss - flipped.penalty(last.thresholds)
    certificate = _certificate(last.certificate, loss, flipped.described, is_settled)
    # Bounds proven along the way are for other problems than the last.
    before, n_before = ((), 0) if plain is None else (plain.history, plain.n_iter)
    steps = [replace(step, gap=np.inf) for step in (*before, *recorder.steps)]
    penalty = last.certificate.objective - last.certificate.loss
    end = FitStep(certificate.n_passes, loss + penalty, certificate.gap)
    return replace(last, certificate=certificate, n_iter=n_before + climb.n_iter + last.n_iter, history=(*steps, end))


def _best_on_ray(problem: Problem, flipped: Flipped, plain: Solution) -> tuple[State, Flipped]:
    """The likeliest multiple of the solution without flips, with its best thresholds and flip rates: no pass.

    Without flips, flipped labels make M smaller, and there the likeliest rates may be zero although others are better
    for a larger M.
    """
    source, least = problem.objective.source, problem.cone.least
    found, lowest = (plain.state, flipped), np.inf
    for scale in _SCALES:
        squared, thresholds, likelihood = scale * plain.squared, scale * plain.thresholds, flipped
        for _ in range(_RAY_ROUNDS):
            likelihood = likelihood.with_best_rates(source, squared, thresholds)
            thresholds, evaluation = likelihood.best_thresholds(source, squared, thresholds, least, _RAY_TOL)
        matrix = scale * plain.state.matrix
        value = replace(problem, objective=problem.objective.with_likelihood(likelihood)).value(evaluation, matrix)
        if value < lowest:
            found, lowest = (State.at(matrix, *thresholds), likelihood), value
    return found


def _climb_from(
    start: State,
    objective: Objective,
    flipped: Flipped,
    estimate: bool,
    options: Options,
    rng: np.random.Generator,
    watch: Watch,
) -> tuple[Solution, Flipped]:
    """Maximise from a point close to the maximum, without a certificate."""
    if estimate:
        squared = objective.quadratic_forms(start.matrix)
        flipped = flipped.with_best_rates(objective.source, squared, start.thresholds)
    climber = Alternating(options.problem(objective), rng, flipped, estimate=estimate, rank=options.rank)
    climb = run(climber, partial(climber.resume, start), Limits(0.0, _MOST_ROUNDS, watch)).state
    top: Climb = climb.memory
    near = State.at(climb.matrix, *climb.thresholds)
    there = replace(options, max_iter=0)
    found = solve(objective.with_likelihood(top.likelihood), there, rng=rng, watch=watch, start=near)
    return found, top.likelihood


def _interrupted(certificate: Certificate, options: Options) -> Certificate:
    """The certificate after an interrupt, before the maximisation was complete."""
    outcome, is_proven = Outcome.INTERRUPTED, certificate.lower_bound > 0.0
    advice = advise(
        outcome, gap=certificate.gap, is_proven=is_proven, tol=options.tol, rank=options.rank, max_iter=options.max_iter
    )
    return replace(certificate, converged=False, outcome=outcome, advice=advice)


def _certificate(convex: Certificate, loss: float, rates: str, is_settled: bool) -> Certificate:
    """The certificate of the last step, with the loss of the likelihood with flips."""
    advice = (
        convex.advice + f" The proof holds each label's probability of being flipped fixed at its estimate; {rates}."
    )
    if not is_settled:
        advice += (
            " Nearly all other labels are right, so M / tau is determined, but not the scale of M and tau, and thus "
            "how sharply probabilities change at the threshold."
        )
    return replace(convex, loss=loss, advice=advice, globally_optimal=False)
