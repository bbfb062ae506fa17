"""One fit with a known penalty and limit on the rank: from judgements to coordinates, solution and metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.fitting.annotator_checks import annotator_table
from closefar.fitting.comparison_noise import ComparisonNoise, profile_noise
from closefar.fitting.flipping import flipped_likelihood, solve_likelihood
from closefar.fitting.identifiability import find_enormous, find_problems
from closefar.fitting.infinite import named_if_infinite
from closefar.fitting.kind_statistics import statistics_of
from closefar.fitting.likelihoods import count_thresholds, is_plain, likelihood_of
from closefar.fitting.noise_choice import NoiseChoice
from closefar.fitting.origin import find_origin
from closefar.fitting.progress import display
from closefar.fitting.result import Fit
from closefar.fitting.reversal import find_reversal
from closefar.fitting.settings import Settings
from closefar.fitting.side_rates import find_undetermined_rates
from closefar.fitting.solved import Solved, most_likely
from closefar.fitting.statistics import FitStatistics, count_parameters
from closefar.fitting.strictness import solve_annotated
from closefar.fitting.wide import MANY_COLUMNS
from closefar.judgements import Columns, Judgements, Kind
from closefar.model import Metric
from closefar.noise import Noise, has_flips
from closefar.rows import Coordinates, LegRows, Rows, factor_in_rows, judged_rows, pair_rows, second_moment, unit_free
from closefar.solve import (
    Certificate,
    Objective,
    Outcome,
    Passes,
    Solution,
    State,
    psd_factor,
    supervisor,
)

__all__ = ["Prepared", "fit_known_rank", "state_of"]

# The scale in which separable labels of many columns get a wide margin; it follows the units of each column.  Closer to
# that of the columns it would predict slightly better, but take much longer.
_MARGIN_BLEND = 0.4
# The loss of a profile is exact up to this share of one judgement.
_PROFILE_SHARE = 0.02

_MARGIN_STEPS = 5  # at most so many times the steps that it took to separate them at all


@dataclass(frozen=True, eq=False)
class Prepared:
    """Judgements with their rows in the coordinates of a penalty, which do not depend on its weight."""

    judgements: Judgements
    source: Rows
    rows: Rows
    coordinates: Coordinates
    blend: float

    @classmethod
    def of(
        cls, judgements: Judgements, settings: Settings, *, finds_null: bool, blend: float | None = None
    ) -> Prepared:
        source = judged_rows(judgements, settings.known_comparison_noise)
        blend = settings.blend if blend is None else blend
        with display().stage("finding unit-free coordinates"):
            rows, coordinates = unit_free(
                source,
                judgements.shares_in(source),
                with_constant=settings.fit_origin,
                blend=blend,
                in_units=settings.in_units,
                signs=judgements.signs_in(source),
                finds_null=finds_null,
            )
        return cls(judgements, source, rows, coordinates, blend)

    def solve(self, settings: Settings, state: State | None) -> tuple[Solved, NoiseChoice | None]:
        """The solution for the given noise or, of several, for the one with the highest likelihood."""
        solved: dict[str, Solved] = {}
        for noise in settings.candidates:
            if solved and supervisor().has_ended_a_run:
                break
            solved[noise.name] = _solve(noise, self.rows, self.judgements, settings, state)
        if len(solved) == 1:
            return solved[settings.candidates[0].name], None
        choice = most_likely(solved)
        return solved[choice.name], choice

    def margin(self, solution: Solution, judgements: Judgements) -> FloatArray:
        """The margins of other judgements."""
        others = pair_rows(judgements.data)
        if self.coordinates.has_constant:
            squared = others.in_coordinates(self.coordinates).squared_distances(solution.factor)
        else:
            squared = others.squared_distances(self.coordinates.to_units(solution.factor))
        margin: FloatArray = others.gather(squared) - solution.thresholds[0]
        return margin

    def state_at(self, metric: Metric, settings: Settings) -> State | None:
        """A metric in these coordinates, for a solver to start from; None if an origin is learned."""
        if settings.fit_origin:
            return None
        factor = self.coordinates.from_units(metric.factor)
        if factor is None:
            factor = factor_in_rows(self.rows, self.source, self.judgements.shares_in(self.source), metric.factor)
        annotators = self.judgements.annotators
        strictness = [] if annotators is None else [0.0] * len(annotators.names)
        return state_of(factor, np.append(np.maximum(metric.thresholds, 0.0), strictness), settings)


def state_of(factor: FloatArray, thresholds: FloatArray, settings: Settings) -> State:
    """M = A A' and thresholds in the coordinates of the rows, for a solver to start from."""
    matrix = factor @ factor.T
    if not settings.is_centred:
        return State.at(matrix, *thresholds)
    k = len(matrix)
    centre = max(float(np.linalg.eigvalsh(matrix)[0]), 0.0)
    return State.at(matrix - centre * np.eye(k), *thresholds, k * centre)


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
    noise = None
    if judgements.comparisons is not None:
        noise, prepared, state = _with_noise(prepared, settings, state)
    solved, choice = prepared.solve(settings, state)
    if _has_arbitrary_margin(solved.solution, settings, judgements.n_columns):
        solved, fitted = _with_better_margin(prepared, settings, solved)
    else:
        fitted = prepared
    metric = _metric(solved, fitted, settings, columns.names)
    certificate = solved.solution.certificate
    explains = explains and not supervisor().has_ended_a_run
    if explains and settings.known_alpha == 0 and not settings.fit_origin and is_plain(judgements):
        with display().stage("looking for an optimum at infinity"):
            certificate = named_if_infinite(certificate, solved, coordinates, metric.column_names)
    n_parameters = count_parameters(
        coordinates.transform.shape[1],
        settings.known_rank,
        has_origin=settings.fit_origin,
        with_flips=int(settings.estimates_flips) * (1 + int(settings.has_two_rates)),
        n_thresholds=count_thresholds(judgements),
    )
    statistics = statistics_of(solved, metric, coordinates.scales, n_parameters)
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


def _with_noise(
    prepared: Prepared, settings: Settings, state: State | None
) -> tuple[ComparisonNoise, Prepared, State | None]:
    """The noise of the comparisons, set or estimated, the rows with it, and a state close to the solution."""
    if not settings.estimates_comparison_noise:
        return ComparisonNoise(settings.known_comparison_noise), prepared, state
    rows, latest = prepared.rows, state
    assert isinstance(rows, LegRows)
    total = prepared.judgements.total_weight
    precise = settings.but(tol=min(settings.tol, _PROFILE_SHARE / total), verbose=0)
    if prepared.judgements.annotators is not None and settings.known_width is None:
        # The prior stays the same, so that the values of the profile can be compared.
        solved, _ = prepared.solve(settings, state)
        assert solved.annotated is not None
        precise, latest = precise.but(strictness_width=solved.annotated.width), solved.solution.state

    def loss_at(noise: float) -> float:
        nonlocal latest
        solved, _ = replace(prepared, rows=rows.with_scale(1.0 / noise)).solve(precise, latest)
        latest = solved.solution.state
        return solved.risk

    with display().stage("estimating the noise of the comparisons"):
        found = profile_noise(loss_at, total)
    return found, replace(prepared, rows=rows.with_scale(1.0 / found.value)), latest


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
    judgements, coordinates = prepared.judgements, prepared.coordinates
    return [
        *(find_enormous(prepared.source, judgements, coordinates.enormous) if is_plain(judgements) else []),
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
        n_thresholds=count_thresholds(judgements),
        uncertain_per_parameter=math.inf if says_little else statistics.uncertain_per_parameter,
    )


def _solve(noise: Noise, rows: Rows, judgements: Judgements, settings: Settings, start: State | None) -> Solved:
    """Return the solution with the flip rates; it includes the centre that a penalty shrinks to."""
    if judgements.annotators is not None:
        found, flipped, strictness = solve_annotated(noise, rows, judgements, settings, start)
        return Solved(rows, judgements, found, noise, flipped, strictness)
    lengths = None
    if settings.is_centred:
        # Their mean is one, as is that of the squared coordinates.
        k = rows.n_columns - int(settings.fit_origin)
        lengths = rows.squared_distances(np.eye(rows.n_columns, k) / np.sqrt(k))
    likelihood = likelihood_of(judgements, rows, noise, lengths=lengths)
    flipped = flipped_likelihood(likelihood, settings, judgements.total_weight)
    found, flipped = solve_likelihood(Objective(rows, likelihood, Passes()), flipped, settings, start)
    solution = found if lengths is None else _with_centre(found, lengths, k)
    return Solved(rows, judgements, solution, noise, flipped)


def _with_centre(solution: Solution, lengths: Array, k: int) -> Solution:
    """Add c times the identity of the first k coordinates to M."""
    threshold, centre = solution.thresholds
    matrix = solution.factor @ solution.factor.T
    matrix[np.diag_indices(k)] += centre / k
    squared = solution.squared + centre * lengths
    return replace(solution, factor=psd_factor(matrix), thresholds=np.array([threshold]), squared=squared)


def _metric(solved: Solved, prepared: Prepared, settings: Settings, names: tuple[str, ...] | None) -> Metric:
    """The solution in the user's units."""
    judgements, rows, coordinates = solved.judgements, prepared.rows, prepared.coordinates
    factor, thresholds, origin = solved.solution.factor, solved.thresholds, None
    if settings.fit_origin:
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
