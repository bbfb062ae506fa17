"""One fit with a known limit on the rank: from judgements to coordinates, solution and metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from closefar.arrays import Array, FloatArray
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
from closefar.solve import (
    Certificate,
    CloseFar,
    Objective,
    Outcome,
    Passes,
    Solution,
    State,
    psd_factor,
    solve,
    solve_with_flips,
)

__all__ = ["fit_known_rank", "refit"]

# alpha="auto", from simulations: 0.1 / sqrt(n), twice that with few uncertain labels per parameter, and zero with
# many.
_LIGHT = 0.1
_FEW, _MANY = 2.0, 10.0


def refit(judgements: Judgements, settings: Settings, *, start: Metric | None = None) -> Fit:
    """Fit as part of a longer computation, which an interrupt ends altogether; identifiability is not checked."""
    judgements.check_both_count()
    return fit_known_rank(judgements, settings, start=start, explains=False).unless_interrupted()


def fit_known_rank(
    judgements: Judgements,
    settings: Settings,
    *,
    start: Metric | None = None,
    columns: Columns | None = None,
    explains: bool = True,
) -> Fit:
    """Fit to judgements of positive weight, which already includes class weights.

    `start` is a metric close to the solution; it is ignored if an origin is learned.  `explains` also
    looks for what the data do not determine, which can take longer than the fit.
    """
    if settings.chooses_alpha:
        return _fit_choosing_alpha(judgements, settings, start, columns, explains=explains)
    columns = Columns(judgements.n_columns) if columns is None else columns
    source = rows_of(judgements.data)
    rows, coordinates = unit_free(
        source,
        judgements.shares,
        with_constant=settings.fit_origin,
        blend=settings.blend,
        close=~judgements.is_far,
        finds_null=explains,
    )
    state = None if start is None or settings.fit_origin else _state(start, rows, source, judgements.shares, settings)
    solution, scored, choice = _solve_best(rows, judgements, settings, state)
    metric = _metric(solution, scored, rows, coordinates, settings, columns.names)
    certificate = solution.certificate
    if explains and settings.known_alpha == 0 and not settings.fit_origin:
        certificate = named_if_infinite(certificate, scored, rows, coordinates, metric.column_names)
    n_parameters = count_parameters(
        coordinates.transform.shape[1],
        settings.known_rank,
        has_origin=settings.fit_origin,
        with_flips=settings.estimates_flips,
    )
    statistics = FitStatistics.of(scored, coordinates.scales, n_parameters)
    problems = _explain(rows, scored, coordinates, settings, metric, statistics, certificate) if explains else []
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


def _explain(
    rows: BlockRows,
    scored: Scored,
    coordinates: Coordinates,
    settings: Settings,
    metric: Metric,
    statistics: FitStatistics,
    certificate: Certificate,
) -> list[str]:
    return [
        *find_enormous(scored.judgements, coordinates.enormous),
        *find_reversal(rows, scored.judgements, scored.noise, settings, statistics, certificate.loss),
        *_find_problems(scored, coordinates, settings, metric.column_names, statistics, certificate.outcome),
    ]


def _find_problems(
    scored: Scored,
    coordinates: Coordinates,
    settings: Settings,
    names: Sequence[str],
    statistics: FitStatistics,
    outcome: Outcome,
) -> list[str]:
    # With flips, or an optimum at infinity, few uncertain labels need not mean overfitting.
    says_little = outcome in (Outcome.SEPARABLE, Outcome.QUASI_SEPARABLE) or scored.flip_rate > 0
    return find_problems(
        names,
        coordinates.null_directions,
        scored.judgements.is_far,
        coordinates.transform.shape[1],
        rank=settings.known_rank,
        has_origin=settings.fit_origin,
        penalised=settings.known_alpha > 0,
        uncertain_per_parameter=math.inf if says_little else statistics.uncertain_per_parameter,
    )


def _solve_best(
    rows: BlockRows, judgements: Judgements, settings: Settings, state: State | None
) -> tuple[Solution, Scored, NoiseChoice | None]:
    """The solution for the given noise or, of several, for the one with the highest likelihood."""
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


def _fit_choosing_alpha(
    judgements: Judgements, settings: Settings, start: Metric | None, columns: Columns | None, *, explains: bool
) -> Fit:
    """Fit with a light penalty, and again if the labels require another one."""
    root_n = math.sqrt(judgements.effective_number)
    light = settings.but(alpha=_LIGHT / root_n)
    found = fit_known_rank(judgements, light, start=start, columns=columns, explains=explains)
    per_parameter = found.statistics.uncertain_per_parameter
    if not (found.was_interrupted or _FEW <= per_parameter < _MANY):
        alpha = 2.0 * _LIGHT / root_n if per_parameter < _FEW else 0.0
        other = settings.but(alpha=alpha)
        found = fit_known_rank(judgements, other, start=found.metric, columns=columns, explains=explains)
    return replace(found, settings=settings, chosen_alpha=found.alpha)


def _state(start: Metric, rows: BlockRows, source: BlockRows, shares: FloatArray, settings: Settings) -> State:
    """A metric in the coordinates of the rows, for a solver to start from."""
    factor = factor_in_rows(rows, source, shares, start.factor)
    matrix, threshold = factor @ factor.T, max(start.threshold, 0.0)
    if not settings.is_centred:
        return State.at(matrix, threshold)
    k = len(matrix)
    centre = max(float(np.linalg.eigvalsh(matrix)[0]), 0.0)
    return State.at(matrix - centre * np.eye(k), threshold, k * centre)


def _solve(
    noise: Noise, rows: BlockRows, judgements: Judgements, settings: Settings, start: State | None
) -> tuple[Solution, float]:
    """Return the solution and the flip rate; the solution includes the centre that a penalty shrinks to."""
    lengths = None
    if settings.is_centred:
        # Their mean is one, as is that of the squared coordinates.
        k = rows.n_columns - int(settings.fit_origin)
        lengths = rows.squared_distances(np.eye(rows.n_columns, k) / np.sqrt(k))
    likelihood = CloseFar(noise, rows.row_array(judgements.signs), rows.row_array(judgements.shares), lengths)
    objective = Objective(rows, likelihood, Passes())
    rate, rng = settings.known_flip_rate, settings.rng()
    with Progress(settings.verbose, objective.passes) as watch:
        if rate == 0.0:
            found = solve(objective, settings.options, rng=rng, watch=watch, start=start)
        else:
            found, rate = solve_with_flips(
                objective, likelihood, rate, settings.options, rng=rng, watch=watch, start=start
            )
    return (found if lengths is None else _with_centre(found, lengths, k)), rate


def _with_centre(solution: Solution, lengths: Array, k: int) -> Solution:
    """Add c times the identity of the first k coordinates to M."""
    threshold, centre = solution.thresholds
    matrix = solution.factor @ solution.factor.T
    matrix[np.diag_indices(k)] += centre / k
    squared = solution.squared + centre * lengths
    return replace(solution, factor=psd_factor(matrix), thresholds=np.array([threshold]), squared=squared)


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
    if settings.blend > 0.0:
        moment = rows.outer(rows.row_array(judgements.shares))[: len(factor), : len(factor)]
    return Metric.from_data_scale(
        coordinates.transform,
        factor,
        threshold,
        scored.noise,
        second_moment=moment,
        column_scales=coordinates.scales,
        feature_names=names,
        origin=origin,
        flip_rate=scored.flip_rate,
    )
