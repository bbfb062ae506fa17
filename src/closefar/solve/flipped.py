"""Solving with flips: the plain optimum, the climb from there, and a last convex step that can be certified."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from closefar.solve.certificate import Certificate, Outcome
from closefar.solve.flips import FlippedCloseFar
from closefar.solve.history import FitStep, Recorder
from closefar.solve.likelihood import CloseFar
from closefar.solve.loop import Ending, Limits, State, Watch, run
from closefar.solve.objective import Objective
from closefar.solve.origin import with_free_corner
from closefar.solve.solution import Options, Solution, solve
from closefar.solve.solvers.alternating import Alternating, Climb

__all__ = ["solve_with_flips"]

_MOST_ROUNDS = 100


def solve_with_flips(
    objective: Objective,
    likelihood: CloseFar,
    flip_rate: float | None,
    options: Options,
    *,
    rng: np.random.Generator,
    watch: Watch,
    start: State | None = None,
) -> tuple[Solution, float]:
    """Maximise the likelihood with flips over M and tau, and over q where `flip_rate` is None.

    `likelihood` is that of the objective, without flips.  Returns the solution and q.
    """
    plain = solve(objective, options, rng=rng, watch=watch, start=start)
    flipped = FlippedCloseFar(likelihood.noise, likelihood.signs, likelihood.weights, flip_rate or 0.0)
    if flip_rate is None:
        flipped = flipped.with_best_rate(plain.squared, plain.thresholds)
    if flipped.flip_rate == 0.0 or plain.certificate.outcome is Outcome.INTERRUPTED:
        return plain, flipped.flip_rate
    problem = options.problem(objective)
    recorder = Recorder(objective.passes, watch)
    climber = Alternating(problem, rng, flipped, estimate=flip_rate is None, rank=options.rank)
    begin = partial(climber.resume, with_free_corner(problem.cone, plain.state))
    climb = run(climber, begin, Limits(0.0, _MOST_ROUNDS, recorder))
    top: Climb = climb.state.memory
    near = State.at(climb.state.matrix, *climb.state.thresholds)
    soft = objective.with_likelihood(top.likelihood.softened(top.squared, near.thresholds))
    last = solve(soft, options, rng=rng, watch=watch, start=near, stay_near=True)
    if flip_rate is None:
        flipped = top.likelihood.with_best_rate(last.squared, last.thresholds)
    loss = objective.with_likelihood(flipped).evaluate(last.squared, last.thresholds).loss
    certificate = _certificate(last.certificate, loss, flipped.flip_rate, top.is_settled)
    if climb.ending is Ending.INTERRUPTED:
        certificate = replace(certificate, outcome=Outcome.INTERRUPTED)
    # What was proven on the way is about other problems than the last.
    steps = [replace(step, gap=np.inf) for step in (*plain.history, *recorder.steps)]
    penalty = last.certificate.objective - last.certificate.loss
    end = FitStep(certificate.n_passes, loss + penalty, certificate.gap)
    n_iter = plain.n_iter + climb.n_iter + last.n_iter
    return replace(last, certificate=certificate, n_iter=n_iter, history=(*steps, end)), flipped.flip_rate


def _certificate(convex: Certificate, loss: float, flip_rate: float, is_settled: bool) -> Certificate:
    """What is proven of the last step, with the loss of the likelihood with flips."""
    advice = f"{convex.advice} That is for flipped labels as this model says, a share of {flip_rate:.3g} of them."
    if not is_settled:
        advice += (
            " Nearly all others are right, so the scale of M and tau, and with it how sharply probabilities change at "
            "the threshold, is not determined; M / tau is."
        )
    return replace(convex, loss=loss, advice=advice, globally_optimal=False)
