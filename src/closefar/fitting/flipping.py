"""One solution of a likelihood, with the flips that settings ask for."""

from __future__ import annotations

from closefar.fitting.progress import Progress
from closefar.fitting.settings import Settings
from closefar.solve import (
    Centred,
    CentredFlips,
    CloseFar,
    Compared,
    Flipped,
    FlippedCloseFar,
    FlippedGraded,
    Graded,
    Likelihood,
    Objective,
    Options,
    RateOfEach,
    SharedRate,
    SideRates,
    Solution,
    State,
    solve,
    solve_with_flips,
)

__all__ = ["flipped_likelihood", "solve_likelihood"]


def solve_likelihood(
    objective: Objective,
    flipped: Flipped | None,
    settings: Settings,
    start: State | None,
    options: Options | None = None,
) -> tuple[Solution, Flipped | None]:
    """Minimise an objective, with flips if there is a likelihood that has them, and return that with its rates."""
    options = settings.options if options is None else options
    watch, rng = Progress(objective.passes, options.tol), settings.rng()
    if flipped is None:
        return solve(objective, options, rng=rng, watch=watch, start=start), None
    estimate = settings.estimates_flips
    return solve_with_flips(objective, flipped, options, estimate=estimate, rng=rng, watch=watch, start=start)


def flipped_likelihood(likelihood: Likelihood, settings: Settings, total_weight: float) -> Flipped | None:
    """The likelihood of the same judgements with flips, at the known rates or at zero; None without flips.

    `total_weight` is the sum of the weights of the judgements before they were divided by it.
    """
    rate = settings.known_flip_rate
    if rate == 0.0:
        return None
    if isinstance(likelihood, Centred):
        inner = flipped_likelihood(likelihood.inner, settings, total_weight)
        return CentredFlips(inner, likelihood.lengths, likelihood.price)
    has_two = settings.has_two_rates
    if isinstance(likelihood, Compared):
        return FlippedGraded(_as_graded(likelihood), SharedRate.of(_one(rate), 1))
    if isinstance(likelihood, CloseFar):
        start: float | tuple[float, float] = (0.0, 0.0) if has_two else 0.0
        return FlippedCloseFar(likelihood.noise, likelihood.signs, likelihood.weights, start if rate is None else rate)
    assert isinstance(likelihood, Graded)
    if has_two:
        return FlippedGraded(likelihood, SideRates(*(rate if isinstance(rate, tuple) else (0.0, 0.0))))
    if rate is None and likelihood.n_groups > 0:
        return FlippedGraded(likelihood, RateOfEach.none(likelihood.n_groups, total_weight))
    return FlippedGraded(likelihood, SharedRate.of(_one(rate), likelihood.n_levels))


def _one(rate: float | tuple[float, float] | None) -> float:
    """The rate to start from, or to keep."""
    assert not isinstance(rate, tuple)
    return 0.0 if rate is None else rate


def _as_graded(likelihood: Compared) -> Graded:
    """Comparisons beside no pairs at all, whose codes are 1 and 2."""
    codes = (3.0 - likelihood.signs) * 0.5
    return Graded(likelihood.noise, codes, likelihood.weights, n_levels=1)
