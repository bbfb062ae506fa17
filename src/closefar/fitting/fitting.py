"""Fitting: from judgements and settings to a fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from scipy.optimize import brentq
from scipy.stats import chi2

from closefar.arrays import Array, FloatArray, threads_for, to_numpy
from closefar.fitting.choose import Chosen, choose_settings
from closefar.fitting.explain import annotator_table, explain, named_if_infinite, statistics_of
from closefar.fitting.problem import Solved, UnitFreeProblem
from closefar.fitting.progress import Checkpoint, display, showing
from closefar.fitting.result import ComparisonNoise, Fit, NoiseChoice, count_parameters
from closefar.fitting.settings import Settings
from closefar.judgements import Columns, Judgements, PartitionedJudgements
from closefar.model import Metric
from closefar.noise import has_flips
from closefar.rows import BlockRows, on_device, second_moment
from closefar.solve import Outcome, State, Supervisor, advise_in_time, supervised, supervisor

# From this many columns on, the labels of fewer pairs than parameters are separable in many ways.  In this blend of the
# scale of the data with that of the columns they get a wide margin; it follows the units of each column.  Closer to
# that of the columns it would predict slightly better, but take much longer.  400 pairs of digits rank new pairs with
# an area under the ROC curve of .87 instead of .66.
_WIDE_MARGIN_COLUMNS = 64
_MARGIN_BLEND = 0.4  # the part of the scale of the columns
_MARGIN_STEPS = 5  # at most this many times the steps that it took to separate them at all


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
        with supervised(watch):
            try:
                chosen = choose_settings(counted, settings, groups)
                kept = None if supervisor().is_over else checkpoint  # states are of a choice that was not cut short
                near = chosen.start or start
                found = _fit_once(counted, chosen.settings, start=near, columns=columns, checkpoint=kept)
            finally:
                if checkpoint is not None:
                    checkpoint.write()
    if watch.timed_out:
        certificate = found.certificate  # which may be from before the time was over
        advice = advise_in_time(
            watch.max_time,
            has_checkpoint=checkpoint is not None,
            gap=certificate.gap,
            is_proven=certificate.lower_bound > 0.0,
            tol=settings.tol,
        )
        ended = replace(certificate, outcome=Outcome.UNFINISHED, converged=False, advice=advice)
        found = replace(found, certificate=ended)
    return _with_choice(found, chosen, settings, judgements)


def refit(judgements: Judgements, settings: Settings, *, start: Metric | None = None) -> Fit:
    """Fit as part of a longer computation, which an interrupt ends altogether; identifiability is not checked."""
    judgements.check_both_count()
    judgements = placed_on(judgements, settings.device)
    with threads_for(len(judgements), judgements.n_columns):
        chosen = choose_settings(judgements, settings)
        found = _fit_once(judgements, chosen.settings, start=chosen.start or start, explains=False)
    return _with_choice(found.unless_interrupted(), chosen, settings, judgements)


def _with_choice(found: Fit, chosen: Chosen, settings: Settings, judgements: Judgements) -> Fit:
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


def _fit_once(
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
    prepared = UnitFreeProblem.of(judgements, settings, finds_null=explains, checkpoint=checkpoint)
    coordinates = prepared.coordinates
    state = None if start is None else prepared.state_at(start, settings)
    noise, prepared, state = with_comparison_noise(prepared, settings, state)
    solved, choice = minimise_for_noises(prepared, settings, state)
    fitted, is_separable = prepared, solved.solution.certificate.outcome is Outcome.SEPARABLE
    if is_separable and judgements.n_columns >= _WIDE_MARGIN_COLUMNS and not settings.fit_origin:
        solved, fitted = _with_better_margin(prepared, settings, solved)
    solved = _calibrated(solved, settings)
    metric = _metric(solved, fitted, settings, columns.names)
    certificate = solved.solution.certificate
    explains = explains and not supervisor().timed_out
    if explains and settings.known_alpha == 0 and not settings.fit_origin:
        with display().stage("looking for an optimum at infinity"):
            certificate = named_if_infinite(certificate, solved, coordinates, metric.column_names)
    n_parameters = count_parameters(
        coordinates.transform.shape[1],
        settings.known_rank,
        has_origin=settings.fit_origin,
        with_flips=int(settings.estimates_flips) * (1 + int(settings.has_two_rates)),
        n_thresholds=judgements.n_thresholds,
    )
    statistics = statistics_of(solved, metric, coordinates.scales, n_parameters)
    problems = [] if noise is None or noise.problem is None else [noise.problem]
    if explains:
        with display().stage("looking for what the pairs do not determine"):
            problems += explain(prepared, solved, settings, metric, statistics, certificate)
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


def _with_better_margin(
    prepared: UnitFreeProblem, settings: Settings, solved: Solved
) -> tuple[Solved, UnitFreeProblem]:
    """Separate the labels with a wide margin in a scale that predicts better than that of the data, if that succeeds.

    In the scale of the data all directions count the same; along most of many, the data vary little.
    """
    blended = UnitFreeProblem.of(prepared.judgements, settings, finds_null=False, blend=_MARGIN_BLEND)
    limited = settings.but(max_iter=min(int(settings.max_iter), _MARGIN_STEPS * solved.solution.n_iter))
    other, _ = minimise_for_noises(blended, limited, None)
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


def _metric(solved: Solved, prepared: UnitFreeProblem, settings: Settings, names: tuple[str, ...] | None) -> Metric:
    """The solution in the user's units."""
    judgements, rows, coordinates = solved.judgements, prepared.rows, prepared.coordinates
    factor, thresholds, origin = solved.solution.factor, solved.thresholds, None
    if settings.fit_origin:
        shares = judgements.shares_in(prepared.source)
        origin, slack = find_origin(prepared.source.legs, shares, coordinates.to_units(factor))
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


# ---------------------------------------------------------------------------------------------------------------------
# The noise that describes the judgements best, and that of comparisons relative to that of pairs


_CLEAR_Z = 1.96  # a difference of likelihoods that is not chance, at 5%


def choose_noise(row_losses: Mapping[str, FloatArray], weights: FloatArray) -> NoiseChoice:
    """Choose by likelihood; the models have the same number of parameters, so no correction is needed.

    Vuong's test for non-nested models decides whether a model is clearly better: it compares the
    mean difference of row losses with its standard error.

    Parameters
    ----------
    row_losses : mapping from names to arrays of shape (n,)
        -log P(label) of each pair under each fitted model, for the same pairs.
    weights : array of shape (n,)
        The weights of the fit; for `z` they are importance weights, not repeated pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from closefar.fitting import choose_noise
    >>> losses = {"logistic": np.array([0.3, 0.1, 0.2, 0.4]), "normal": np.array([0.4, 0.2, 0.2, 0.5])}
    >>> choice = choose_noise(losses, np.ones(4))
    >>> choice.name, round(choice.comparison["normal"]["z"], 2), choice.warning
    ('logistic', 3.46, None)
    """
    if not row_losses:
        raise ValueError("row_losses must contain the losses of at least one noise model; got none.")
    shares = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    return choice_from(list(row_losses), sums_of_losses(shares, *row_losses.values()))


def sums_of_losses(shares: Array, *losses: Array) -> FloatArray:
    """Products of a line of ones and the losses of each model, weighted by the shares of pairs and by their squares."""
    lines = array_namespace(shares).stack([0.0 * shares + 1.0, *losses])
    return np.stack([to_numpy((weights * lines) @ lines.T) for weights in (shares, shares * shares)])


def choice_from(names: Sequence[str], sums: FloatArray) -> NoiseChoice:
    """Choose between models from the `sums_of_losses` of all pairs."""
    means, products = sums[0, 0, 1:], sums[1]
    best = int(np.argmin(means))
    comparison = {}
    for place, name in enumerate(names):
        difference = float(means[place] - means[best])
        contrast = np.append(-difference, np.eye(len(names))[place] - np.eye(len(names))[best])
        variance = float(contrast @ products @ contrast)  # the sum of w^2 (d - mean)^2, with d the difference of a pair
        z = difference / math.sqrt(variance) if variance > 0.0 else 0.0
        comparison[name] = {"loss": float(means[place]), "difference": difference, "z": z}
    alike = [name for name in names if name != names[best] and comparison[name]["z"] < _CLEAR_Z]
    named = " or ".join(f"{name} (z = {comparison[name]['z']:.1f})" for name in alike)
    warning = f"{names[best]} noise describes the labels best, but not clearly better than {named}." if alike else None
    return NoiseChoice(names[best], comparison, warning)


# The largest noise of comparisons relative to that of pairs that is tried, and one over the smallest, as logarithms.
_LARGEST_LOG_RATIO = math.log(1e3)
_STEP = 1.0  # of the searches
_END_WIDTH, _ESTIMATE_WIDTH = 1e-3, 1e-10  # how precisely the ends of the interval and the estimate are known
INTERVAL_LEVEL = 0.95  # of intervals by the profile likelihood


def profile_noise(loss_at: Callable[[float], tuple[float, float]], n_judgements: float) -> ComparisonNoise:
    """Minimise the loss over the noise, given the least loss at each, and find where it is too large by chance.

    `loss_at` is the minimum over all other parameters of the mean loss of as many judgements as this, and its
    derivative in the logarithm of the noise.
    """
    profile = cache(lambda log_noise: loss_at(math.exp(log_noise)))
    towards = -1.0 if profile(0.0)[1] > 0.0 else 1.0
    centre = _zero_after(lambda place: towards * profile(place)[1], 0.0, towards, _ESTIMATE_WIDTH)
    estimate = towards * _LARGEST_LOG_RATIO if centre is None else centre
    limit = profile(estimate)[0] + float(chi2.isf(1.0 - INTERVAL_LEVEL, 1)) / (2.0 * n_judgements)

    def excess(place: float) -> float:
        return profile(place)[0] - limit

    low, high = (_zero_after(excess, estimate, side, _END_WIDTH) for side in (-1.0, 1.0))
    interval = 0.0 if low is None else math.exp(low), math.inf if high is None else math.exp(high)
    return ComparisonNoise(math.exp(estimate), interval)


def _zero_after(function: Callable[[float], float], start: float, side: float, width: float) -> float | None:
    """Where a function that is negative at the start becomes positive on one side of it, if it does."""
    inside = start
    while side * inside < _LARGEST_LOG_RATIO:
        outside = inside + side * _STEP
        if function(outside) > 0.0:
            return float(brentq(function, inside, outside, xtol=width))
        inside = outside
    return None


def minimise_for_noises(
    prepared: UnitFreeProblem, settings: Settings, state: State | None
) -> tuple[Solved, NoiseChoice | None]:
    """The solution for the given noise or, of several, for the one with the highest likelihood."""
    candidates = settings.candidates
    solved = {candidates[0].name: prepared.minimise(candidates[0], settings, state)}
    for noise in candidates[1:]:
        if not supervisor().timed_out:
            solved[noise.name] = prepared.minimise(noise, settings, state)
    first, *others = solved.values()
    if not others:
        return first, None
    losses = [each.losses for each in solved.values()]
    parts = first.rows.parts(sums_of_losses, first.judgements.shares_in(first.rows), *losses)
    choice = choice_from(list(solved), np.sum(parts, axis=0))
    return solved[choice.name], choice


# The loss of a profile is exact up to this share of one judgement.
_PROFILE_SHARE = 0.02


def with_comparison_noise(
    prepared: UnitFreeProblem, settings: Settings, state: State | None
) -> tuple[ComparisonNoise | None, UnitFreeProblem, State | None]:
    """The noise of comparisons among pairs, set or estimated, the rows with it, and a state close to the solution."""
    rows, latest = prepared.rows, state
    if prepared.judgements.comparisons is None:
        return None, prepared, state
    if not settings.estimates_comparison_noise:
        return ComparisonNoise(settings.known_comparison_noise), prepared, state
    total = prepared.judgements.total_weight
    precise = settings.but(tol=min(settings.tol, _PROFILE_SHARE / total), verbose=0)
    if prepared.judgements.annotators is not None and settings.known_width is None:
        # The prior stays the same, so that the values of the profile can be compared.
        first, _ = minimise_for_noises(prepared, settings, state)
        assert first.annotated is not None
        precise = precise.but(strictness_width=first.annotated.width)
        latest = first.solution.state if prepared.centre is None else None

    def loss_at(noise: float) -> tuple[float, float]:
        nonlocal latest
        solved, _ = minimise_for_noises(replace(prepared, rows=rows.with_scale(1.0 / noise)), precise, latest)
        if solved.solution.certificate.outcome is Outcome.INTERRUPTED:
            raise KeyboardInterrupt  # what it has is no profile
        latest = solved.solution.state if prepared.centre is None else None
        return solved.risk, solved.slope_in_comparison_noise

    with display().stage("estimating the noise of the comparisons"):
        found = profile_noise(loss_at, total)
    # The last fit begins afresh: from so near, it would end before it is as precise as others.
    return found, replace(prepared, rows=rows.with_scale(1.0 / found.value)), None
