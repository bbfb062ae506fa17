"""Fitting: from judgements and settings to a fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.engines import threads_for
from closefar.fitting.checkpoint import Checkpoint
from closefar.fitting.choose import Chosen, choose
from closefar.fitting.explain import annotator_table, find_reversal, find_undetermined_rates, named_if_infinite
from closefar.fitting.prepared import Prepared, Solved, is_plain, with_comparison_noise
from closefar.fitting.progress import display, showing
from closefar.fitting.result import Fit
from closefar.fitting.scoring import Scorer
from closefar.fitting.settings import Settings
from closefar.fitting.statistics import FitStatistics, count_parameters, find_enormous, find_problems
from closefar.judgements import Columns, Judgements, Kind, PartitionedJudgements
from closefar.model import Metric, ScoredLevels
from closefar.noise import has_flips
from closefar.rows import BlockRows, Coordinates, LegRows, on_device, second_moment
from closefar.solve import Certificate, Outcome, Solution, Supervisor, advise_in_time, supervised, supervisor

# ---------------------------------------------------------------------------------------------------------------------
# Statistics of fits to levels, comparisons, mixes of them, and judgements of annotators.


def statistics_of(solved: Solved, metric: Metric, column_scales: FloatArray, n_parameters: int) -> FitStatistics:
    """The statistics of the judgements of a fit, whatever their kind."""
    judgements = solved.judgements
    if is_plain(judgements) and not isinstance(solved.flip_rate, tuple):
        return solved.statistics(column_scales, n_parameters)
    squared = solved.rows.gather(solved.solution.squared)
    return measured_statistics(judgements, squared, Scorer(metric, solved.strictness), column_scales, n_parameters)


def measured_statistics(
    judgements: Judgements, squared: FloatArray, scorer: Scorer, column_scales: FloatArray, n_parameters: int
) -> FitStatistics:
    """The statistics of judgements of any kind.

    `squared` are the squared distances, and then the margins of the comparisons that are fitted with the pairs.
    """
    n, compared, total = len(judgements), judgements.comparisons, judgements.total_weight
    first = scorer.score(judgements, squared[:n])
    parts = [first] if compared is None else [first, scorer.score(compared, squared[n:])]
    weights = judgements.all_weights
    doubt = sum(float(part.judgements.weights @ part.in_doubt) for part in parts)
    return FitStatistics(
        n_pairs=n,
        share_far=judgements.mean(judgements.is_far),
        null_loss=sum(part.judgements.weights.sum() * part.null_loss for part in parts) / total,
        accuracy=first.accuracy,
        wrong_share=judgements.mean(first.probability_wrong),
        column_scales=tuple(column_scales.tolist()),
        n_parameters=n_parameters,
        uncertain_labels=total / float(weights @ weights) * doubt,
        level_shares=tuple(first.shares.tolist()) if isinstance(first, ScoredLevels) else (),
        n_comparisons=0 if compared is None else len(compared),
        comparison_accuracy=None if compared is None else parts[1].accuracy,
    )


# ---------------------------------------------------------------------------------------------------------------------
# The learned origin: from a metric on (x, 1) to a point that distances are measured from.


def find_origin(points: BlockRows, shares: Array, factor: FloatArray) -> tuple[FloatArray, float]:
    """Return the origin c and s >= 0 with |(x, 1) A|^2 = |(x - c) A_x|^2 + s for every x.

    `factor` is A with the row of the constant last, and A_x the rows above it.  Where M does not
    determine c, it is the choice closest to the mean of the points in the Mahalanobis distance of
    their covariance, so it follows the points under any change of units.  `shares`, a handle, are the weights
    of the points, which sum to one.
    """
    on_points, on_constant = factor[:-1], factor[-1]
    mean = points.weighted_sum(shares)
    cross = points.second_moment(shares, mean, np.ones(points.n_columns)) @ on_points
    wanted = -(on_constant + mean @ on_points)
    origin: FloatArray = mean + cross @ np.linalg.lstsq(on_points.T @ cross, wanted, rcond=1e-12)[0]
    slack = on_constant + origin @ on_points
    return origin, float(slack @ slack)


# ---------------------------------------------------------------------------------------------------------------------
# Judgements on the device that a fit computes on.


def placed_on(judgements: Judgements, device: Any) -> Judgements:
    """Return the judgements with their data on a device; None is where they are.

    Those in partitions are taken there by the workers that store them.
    """
    if device is None:
        return judgements
    if isinstance(judgements, PartitionedJudgements):
        return judgements.on(str(device))
    placed = judgements.with_data(on_device(judgements.data, device))
    if judgements.comparisons is None:
        return placed
    return replace(placed, comparisons=placed_on(judgements.comparisons, device))


# From this many columns on, the labels of fewer pairs than parameters are separable in many ways.  In this blend of the
# scale of the data with that of the columns they get a wide margin; it follows the units of each column.  Closer to
# that of the columns it would predict slightly better, but take much longer.
_MANY_COLUMNS = 64
_MARGIN_BLEND = 0.4
_MARGIN_STEPS = 5  # at most so many times the steps that it took to separate them at all


def fit(
    judgements: Judgements,
    settings: Settings,
    *,
    start: Metric | None = None,
    columns: Columns | None = None,
    groups: Any = None,
    checkpoint: Checkpoint | None = None,
) -> Fit:
    """Learn a metric.

    This emits no warnings; `Fit.warn` emits those of the result.

    Parameters
    ----------
    judgements : Judgements
        Judgements of weight zero are ignored.
    settings : Settings
    start : Metric, optional
        A metric close to the solution.
    columns : Columns, optional
        The names of the columns, which new data must match.
    groups : array of shape (n,) or (n, k), optional
        What is held out together when settings are chosen: a group per judgement, or the ids of its points.
    checkpoint : Checkpoint, optional
        The file from which the fit continues, and which it keeps up to date.
    """
    settings.check(judgements)
    weighted = judgements.weighted(settings.class_weight)
    weighted.check_both_count()
    weighted = placed_on(weighted, settings.device)
    with threads_for(weighted.n_in_memory, judgements.n_columns), showing(settings.verbose):
        counted, shown = weighted.counted(), display()
        if checkpoint is not None:
            with shown.stage("comparing the pairs with the checkpoint"):
                checkpoint.begin(counted, settings, columns)
            if checkpoint.sentence is not None:
                shown.say(checkpoint.sentence)
        watch = Supervisor(settings.max_time, shown.note_pass if shown.verbose > 0 else None)
        with ExitStack() as stack:
            stack.enter_context(supervised(watch))
            if checkpoint is not None:
                stack.callback(checkpoint.write)
            chosen, kept = _choose(counted, settings, groups, checkpoint)
            near = chosen.start or start
            found = _fit_known(counted, chosen.settings, start=near, columns=columns, checkpoint=kept)
    if watch.timed_out:
        found = replace(found, certificate=_unfinished(found.certificate, settings, watch, checkpoint is not None))
    return _told(found, chosen, settings, judgements)


def _choose(
    judgements: Judgements, settings: Settings, groups: Any, checkpoint: Checkpoint | None
) -> tuple[Chosen, Checkpoint | None]:
    """The choice of settings, also from a checkpoint, and the checkpoint unless the choice was cut short."""
    if checkpoint is not None and "choice" in checkpoint.found:
        return Chosen.from_json(checkpoint.found["choice"], settings), checkpoint
    chosen = choose(judgements, settings, groups)
    if checkpoint is None or supervisor().is_over:
        return chosen, None
    checkpoint.found["choice"] = chosen.to_json(settings)
    return chosen, checkpoint


def refit(judgements: Judgements, settings: Settings, *, start: Metric | None = None) -> Fit:
    """Fit as part of a longer computation, which an interrupt ends altogether; identifiability is not checked."""
    judgements.check_both_count()
    judgements = placed_on(judgements, settings.device)
    with threads_for(len(judgements), judgements.n_columns):
        chosen = choose(judgements, settings)
        found = _fit_known(judgements, chosen.settings, start=chosen.start or start, explains=False)
    return _told(found.unless_interrupted(), chosen, settings, judgements)


def _told(found: Fit, chosen: Chosen, settings: Settings, judgements: Judgements) -> Fit:
    """The fit with the settings that were asked for, and how others were chosen."""
    return replace(found, settings=settings, judgements=judgements, choice=chosen.choice, baseline=chosen.baseline)


def without_penalty(fitted: Fit, judgements: Judgements, *, class_weight: Any) -> Fit:
    """The same fit with alpha = 0 and these class weights, or the fit itself if it already has them.

    The chosen noise and rank are kept, and flip rates that were estimated or chosen are estimated again.
    """
    flips = fitted.settings.flip_rate
    has_chosen_flips = isinstance(flips, str) and flips == "auto" and has_flips(fitted.flip_rate)
    if fitted.alpha == 0 and not has_chosen_flips and fitted.settings.class_weight is class_weight:
        return fitted
    if isinstance(flips, str) and flips == "auto":
        flips = "estimate" if has_chosen_flips else 0.0
    settings = fitted.chosen.but(alpha=0.0, scale=1.0, shifts=(), flip_rate=flips, class_weight=class_weight)
    return fit(judgements, settings, start=fitted.metric, columns=fitted.columns).unless_interrupted()


def _unfinished(certificate: Certificate, settings: Settings, watch: Supervisor, has_checkpoint: bool) -> Certificate:
    """The certificate of a fit whose time was over, even if that was after its last proof."""
    advice = advise_in_time(
        watch.max_time,
        has_checkpoint=has_checkpoint,
        gap=certificate.gap,
        is_proven=certificate.lower_bound > 0.0,
        tol=settings.tol,
    )
    return replace(certificate, outcome=Outcome.UNFINISHED, converged=False, advice=advice)


def _fit_known(
    judgements: Judgements,
    settings: Settings,
    *,
    start: Metric | None = None,
    columns: Columns | None = None,
    explains: bool = True,
    checkpoint: Checkpoint | None = None,
) -> Fit:
    """Fit with known settings to judgements of positive weight, which already includes class weights.

    `start` is a metric close to the solution; it is ignored if an origin is learned.  `explains` also
    looks for what the data do not determine, which can take longer than the fit.
    """
    columns = Columns(judgements.n_columns) if columns is None else columns
    prepared = Prepared.of(judgements, settings, finds_null=explains, checkpoint=checkpoint)
    coordinates = prepared.coordinates
    state = None if start is None else prepared.state_at(start, settings)
    noise, prepared, state = with_comparison_noise(prepared, settings, state)
    solved, choice = prepared.solve(settings, state)
    if _has_arbitrary_margin(solved.solution, settings, judgements.n_columns):
        solved, fitted = _with_better_margin(prepared, settings, solved)
    else:
        fitted = prepared
    solved = _calibrated(solved, settings)
    metric = _metric(solved, fitted, settings, columns.names)
    certificate = solved.solution.certificate
    explains = explains and not supervisor().timed_out
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
        known=settings,
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
    return is_separable and n_columns >= _MANY_COLUMNS and not settings.fit_origin


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


def _calibrated(solved: Solved, settings: Settings) -> Solved:
    """Scale the metric and move its thresholds, as the settings say."""
    scale, shifts = settings.scale, np.array(settings.shifts)
    if scale == 1.0 and not np.any(shifts):
        return solved
    solution, annotated, n = solved.solution, solved.annotated, len(shifts)
    thresholds = scale * solution.thresholds
    moved = thresholds[:n] + shifts
    if np.any(np.diff(moved) < 0.1 * np.diff(thresholds[:n])):  # levels that were apart stay apart
        moved = thresholds[:n] + np.mean(shifts)
    thresholds[:n] = np.maximum(moved, 0.0)
    solution = replace(
        solution, factor=np.sqrt(scale) * solution.factor, thresholds=thresholds, squared=scale * solution.squared
    )
    return replace(solved, solution=solution, annotated=None if annotated is None else annotated.scaled(scale))


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
