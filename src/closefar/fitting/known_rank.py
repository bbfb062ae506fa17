"""One fit with a known limit on the rank: from judgements to coordinates, solution and metric."""

from __future__ import annotations

from closefar.arrays import FloatArray
from closefar.fitting.identifiability import find_enormous, find_problems
from closefar.fitting.infinite import named_if_infinite
from closefar.fitting.noise_choice import NoiseChoice, choose_noise
from closefar.fitting.origin import find_origin
from closefar.fitting.progress import Progress
from closefar.fitting.result import Fit
from closefar.fitting.reversal import find_reversal
from closefar.fitting.settings import Settings
from closefar.fitting.statistics import FitStatistics, count_parameters
from closefar.judgements import Columns, Judgements
from closefar.model import Metric, Scored
from closefar.noise import Noise
from closefar.rows import BlockRows, Coordinates, factor_in_rows, rows_of, unit_free
from closefar.solve import CloseFar, Objective, Passes, Solution, State, solve, solve_with_flips

__all__ = ["fit_known_rank", "refit"]


def refit(judgements: Judgements, settings: Settings, *, start: Metric | None = None) -> Fit:
    """Fit as a part of something larger, which an interrupt ends as a whole."""
    judgements.check_both_count()
    return fit_known_rank(judgements, settings, start=start).unless_interrupted()


def fit_known_rank(
    judgements: Judgements, settings: Settings, *, start: Metric | None = None, columns: Columns | None = None
) -> Fit:
    """Fit to judgements that all count, with the weights that they have: class weights are in those already.

    `start` is a metric near the solution; it is of no use where an origin is learned.
    """
    columns = Columns(judgements.n_columns) if columns is None else columns
    source = rows_of(judgements.data)
    rows, coordinates = unit_free(
        source,
        judgements.shares,
        with_constant=settings.fit_origin,
        mix_columns=settings.mixes_columns,
        close=~judgements.is_far,
    )
    state = None if start is None or settings.fit_origin else _state(start, rows, source, judgements.shares)
    solution, scored, choice = _solve_best(rows, judgements, settings, state)
    metric = _metric(solution, scored, rows, coordinates, settings, columns.names)
    certificate = solution.certificate
    if settings.alpha == 0 and not settings.fit_origin:
        certificate = named_if_infinite(certificate, scored, rows, coordinates, metric.column_names)
    d = coordinates.transform.shape[1]
    n_parameters = count_parameters(
        d, settings.known_rank, has_origin=settings.fit_origin, with_flips=settings.estimates_flips
    )
    statistics = FitStatistics.of(scored, coordinates.scales, n_parameters)
    problems = [
        *find_enormous(judgements, coordinates.enormous),
        *find_reversal(rows, judgements, scored.noise, settings, statistics, certificate.loss),
        *find_problems(
            metric.column_names,
            coordinates.null_directions,
            judgements.is_far,
            d,
            rank=settings.known_rank,
            has_origin=settings.fit_origin,
            penalised=settings.alpha > 0,
        ),
    ]
    return Fit(
        settings=settings,
        metric=metric,
        certificate=certificate,
        history=solution.history,
        n_iter=max(solution.n_iter, 1),
        statistics=statistics,
        problems=tuple(problems),
        rank=settings.known_rank,
        sides=judgements.sides,
        columns=columns,
        judgements=judgements,
        noise_choice=choice,
    )


def _solve_best(
    rows: BlockRows, judgements: Judgements, settings: Settings, state: State | None
) -> tuple[Solution, Scored, NoiseChoice | None]:
    """The solution for the noise asked for or, of several, for the likeliest."""
    solutions, scored = {}, {}
    for noise in settings.candidates:
        solution, flip_rate = _solve(noise, rows, judgements, settings, state)
        margin = rows.gather(solution.squared) - solution.thresholds[0]
        solutions[noise.name], scored[noise.name] = solution, Scored(judgements, margin, noise, flip_rate)
    choice = None
    name = settings.candidates[0].name
    if len(scored) > 1:
        choice = choose_noise({name: each.losses for name, each in scored.items()}, judgements.weights)
        name = choice.name
    return solutions[name], scored[name], choice


def _state(start: Metric, rows: BlockRows, source: BlockRows, shares: FloatArray) -> State:
    """A metric in the coordinates of the rows, for a solver to start from."""
    factor = factor_in_rows(rows, source, shares, start.factor)
    return State.at(factor @ factor.T, max(start.threshold, 0.0))


def _solve(
    noise: Noise, rows: BlockRows, judgements: Judgements, settings: Settings, start: State | None
) -> tuple[Solution, float]:
    """Return the solution and the flip rate."""
    likelihood = CloseFar(noise, rows.row_array(judgements.signs), rows.row_array(judgements.shares))
    objective = Objective(rows, likelihood, Passes())
    rate, rng = settings.known_flip_rate, settings.rng()
    with Progress(settings.verbose, objective.passes) as watch:
        if rate == 0.0:
            return solve(objective, settings.options, rng=rng, watch=watch, start=start), rate
        return solve_with_flips(objective, likelihood, rate, settings.options, rng=rng, watch=watch, start=start)


def _metric(
    solution: Solution,
    scored: Scored,
    rows: BlockRows,
    coordinates: Coordinates,
    settings: Settings,
    names: tuple[str, ...] | None,
) -> Metric:
    """The solution in the user's units."""
    judgements = scored.judgements
    factor, threshold, origin = solution.factor, float(solution.thresholds[0]), None
    if settings.fit_origin:
        origin, slack = find_origin(rows_of(judgements.data), judgements.shares, coordinates.to_units(factor))
        factor, threshold = factor[:-1], threshold - slack
    moment = None
    if not settings.mixes_columns:
        moment = rows.outer(rows.row_array(judgements.shares))[: len(factor), : len(factor)]
    return Metric.from_data_scale(
        coordinates.transform,
        factor,
        threshold,
        scored.noise,
        second_moment=moment,
        feature_names=names,
        origin=origin,
        flip_rate=scored.flip_rate,
    )
