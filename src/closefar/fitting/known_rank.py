"""One fit with a known penalty and limit on the rank: from judgements to coordinates, solution and metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from closefar.fitting.annotator_checks import annotator_table
from closefar.fitting.identifiability import find_enormous, find_problems
from closefar.fitting.infinite import named_if_infinite
from closefar.fitting.kind_statistics import statistics_of
from closefar.fitting.origin import find_origin
from closefar.fitting.prepared import Prepared, with_comparison_noise
from closefar.fitting.progress import display
from closefar.fitting.relaxed import with_relaxed_threshold
from closefar.fitting.result import Fit
from closefar.fitting.reversal import find_reversal
from closefar.fitting.settings import Settings
from closefar.fitting.side_rates import find_undetermined_rates
from closefar.fitting.solved import Solved
from closefar.fitting.statistics import FitStatistics, count_parameters
from closefar.fitting.wide import MANY_COLUMNS
from closefar.judgements import Columns, Judgements, Kind
from closefar.model import Metric
from closefar.noise import has_flips
from closefar.rows import Coordinates, LegRows, second_moment
from closefar.solve import Certificate, Outcome, Solution, supervisor

__all__ = ["fit_known_rank"]

# The scale in which separable labels of many columns get a wide margin; it follows the units of each column.  Closer to
# that of the columns it would predict slightly better, but take much longer.
_MARGIN_BLEND = 0.4
_MARGIN_STEPS = 5  # at most so many times the steps that it took to separate them at all


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
    columns = Columns(judgements.n_columns) if columns is None else columns
    prepared = Prepared.of(judgements, settings, finds_null=explains)
    coordinates = prepared.coordinates
    state = None if start is None else prepared.state_at(start, settings)
    noise, prepared, state = with_comparison_noise(prepared, settings, state)
    solved, choice = prepared.solve(settings, state)
    if _has_arbitrary_margin(solved.solution, settings, judgements.n_columns):
        solved, fitted = _with_better_margin(prepared, settings, solved)
    else:
        fitted = prepared
    solved = with_relaxed_threshold(solved, settings)
    metric = _metric(solved, fitted, settings, columns.names)
    certificate = solved.solution.certificate
    explains = explains and not supervisor().has_ended_a_run
    if explains and settings.known_alpha == 0 and not settings.fit_origin:
        with display().stage("looking for an optimum at infinity"):
            certificate = named_if_infinite(certificate, solved, coordinates, metric.column_names)
    statistics = statistics_of(solved, metric, coordinates.scales, _count_parameters(prepared, settings))
    problems = [] if noise is None or noise.problem is None else [noise.problem]
    if explains:
        with display().stage("looking for what the pairs do not determine"):
            problems += _explain(prepared, solved, settings, metric, statistics, certificate)
    return Fit(
        settings=settings,
        metric=metric,
        certificate=certificate,
        history=solved.solution.history,
        n_iter=max(solved.solution.n_iter, 1),
        statistics=statistics,
        problems=tuple(problems),
        rank=settings.known_rank,
        sides=judgements.sides,
        columns=columns,
        judgements=judgements,
        kind=judgements.kind,
        comparison_noise=noise,
        annotators=annotator_table(solved, compares=explains),
        noise_choice=choice,
        engine=prepared.rows.engine,
    )


def _count_parameters(prepared: Prepared, settings: Settings) -> int:
    return count_parameters(
        prepared.coordinates.transform.shape[1],
        settings.known_rank,
        has_origin=settings.fit_origin,
        with_flips=int(settings.estimates_flips) * (1 + int(settings.has_two_rates)),
        n_thresholds=prepared.judgements.n_thresholds,
    )


def _has_arbitrary_margin(solution: Solution, settings: Settings, n_columns: int) -> bool:
    """Whether the labels of many columns are separable, and the scale of the margin was not set."""
    is_separable = solution.certificate.outcome is Outcome.SEPARABLE
    return is_separable and n_columns >= MANY_COLUMNS and settings.alpha_scale == "auto" and not settings.fit_origin


def _with_better_margin(prepared: Prepared, settings: Settings, solved: Solved) -> tuple[Solved, Prepared]:
    """Separate the labels with a wide margin in a scale that predicts better than that of the data, if that succeeds.

    In the scale of the data all directions count the same; along most of many, the data vary little.
    """
    blended = Prepared.of(prepared.judgements, settings, finds_null=False, blend=_MARGIN_BLEND)
    limited = settings.but(max_iter=min(int(settings.max_iter), _MARGIN_STEPS * solved.solution.n_iter))
    other, _ = blended.solve(limited, None)
    n_passes = solved.solution.certificate.n_passes + other.solution.certificate.n_passes
    is_better = other.solution.certificate.outcome is Outcome.SEPARABLE
    best, where = (other, blended) if is_better else (solved, prepared)
    certificate = replace(best.solution.certificate, n_passes=n_passes)
    return replace(best, solution=replace(best.solution, certificate=certificate)), where


def _explain(
    prepared: Prepared,
    solved: Solved,
    settings: Settings,
    metric: Metric,
    statistics: FitStatistics,
    certificate: Certificate,
) -> list[str]:
    judgements, coordinates, source = prepared.judgements, prepared.coordinates, prepared.source
    return [
        *([] if isinstance(source, LegRows) else find_enormous(source, judgements, coordinates.enormous)),
        *find_undetermined_rates(solved, settings),
        *find_reversal(prepared.rows, judgements, solved.noise, settings, statistics, certificate.loss),
        *_find_problems(solved, coordinates, settings, metric.column_names, statistics, certificate.outcome),
    ]


def _find_problems(
    solved: Solved,
    coordinates: Coordinates,
    settings: Settings,
    names: Sequence[str],
    statistics: FitStatistics,
    outcome: Outcome,
) -> list[str]:
    # With flips, or an optimum at infinity, few uncertain labels need not mean overfitting.
    says_little = outcome in (Outcome.SEPARABLE, Outcome.QUASI_SEPARABLE) or has_flips(solved.flip_rate)
    judgements, n = solved.judgements, len(solved.judgements)
    return find_problems(
        names,
        coordinates.null_directions,
        (n - judgements.n_far, judgements.n_far) if judgements.kind is Kind.CLOSE_FAR else (n,),
        coordinates.transform.shape[1],
        rank=settings.known_rank,
        has_origin=settings.fit_origin,
        penalised=settings.known_alpha > 0,
        n_thresholds=judgements.n_thresholds,
        uncertain_per_parameter=math.inf if says_little else statistics.uncertain_per_parameter,
    )


def _metric(solved: Solved, prepared: Prepared, settings: Settings, names: tuple[str, ...] | None) -> Metric:
    """The solution in the user's units."""
    judgements, rows, coordinates = solved.judgements, prepared.rows, prepared.coordinates
    factor, thresholds, origin = solved.solution.factor, solved.thresholds, None
    if settings.fit_origin and not isinstance(prepared.source, LegRows):
        shares = judgements.shares_in(prepared.source)
        origin, slack = find_origin(prepared.source, shares, coordinates.to_units(factor))
        factor, thresholds = factor[:-1], thresholds - slack
    moment = None
    if prepared.blend > 0.0:
        moment = second_moment(rows, judgements.shares_in(rows))[: len(factor), : len(factor)]
    return Metric.from_data_scale(
        coordinates.transform,
        factor,
        thresholds,
        solved.noise,
        second_moment=moment,
        column_scales=coordinates.scales,
        feature_names=names,
        origin=origin,
        flip_rate=solved.flip_rate,
    )
