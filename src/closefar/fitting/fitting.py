"""Fitting: from judgements and settings to a fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2, norm

from closefar.arrays import Array, BoolArray, FloatArray, IndexArray, as_float64, sums_by, to_numpy
from closefar.engines import threads_for
from closefar.errors import either, setting
from closefar.fitting.choose import Chosen, choose_settings
from closefar.fitting.problem import Solved, UnitFreeProblem, is_plain, likelihood_of, with_comparison_noise
from closefar.fitting.progress import Checkpoint, display, showing
from closefar.fitting.result import AnnotatorTable, AnnotatorVerdict, Fit, FitStatistics, count_parameters
from closefar.fitting.scoring import Scorer
from closefar.fitting.settings import Settings
from closefar.judgements import Columns, Judgements, Kind, PartitionedJudgements
from closefar.model import Metric, ScoredLevels
from closefar.model.factors import root_of
from closefar.noise import Noise, has_flips
from closefar.rows import ENORMOUS, BlockRows, Coordinates, LegRows, Rows, on_device, pair_rows, second_moment
from closefar.solve import (
    Certificate,
    Objective,
    Outcome,
    Passes,
    Supervisor,
    advise_in_time,
    find_free_directions,
    find_recession,
    ignore_progress,
    solve,
    supervised,
    supervisor,
)

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
        with ExitStack() as stack:
            stack.enter_context(supervised(watch))
            if checkpoint is not None:
                stack.callback(checkpoint.write)
            chosen, kept = _choose(counted, settings, groups, checkpoint)
            near = chosen.start or start
            found = _fit_once(counted, chosen.settings, start=near, columns=columns, checkpoint=kept)
    if watch.timed_out:
        found = replace(found, certificate=_unfinished(found.certificate, settings, watch, checkpoint is not None))
    return _with_choice(found, chosen, settings, judgements)


def _choose(
    judgements: Judgements, settings: Settings, groups: Any, checkpoint: Checkpoint | None
) -> tuple[Chosen, Checkpoint | None]:
    """The choice of settings, also from a checkpoint, and the checkpoint unless the choice was cut short."""
    if checkpoint is not None and "choice" in checkpoint.found:
        return Chosen.from_json(checkpoint.found["choice"], settings), checkpoint
    chosen = choose_settings(judgements, settings, groups)
    if checkpoint is None or supervisor().is_over:
        return chosen, None
    checkpoint.found["choice"] = chosen.to_json(settings)
    return chosen, checkpoint


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
    solved, choice = prepared.minimise(settings, state)
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


def _with_better_margin(
    prepared: UnitFreeProblem, settings: Settings, solved: Solved
) -> tuple[Solved, UnitFreeProblem]:
    """Separate the labels with a wide margin in a scale that predicts better than that of the data, if that succeeds.

    In the scale of the data all directions count the same; along most of many, the data vary little.
    """
    blended = UnitFreeProblem.of(prepared.judgements, settings, finds_null=False, blend=_MARGIN_BLEND)
    limited = settings.but(max_iter=min(int(settings.max_iter), _MARGIN_STEPS * solved.solution.n_iter))
    other, _ = blended.minimise(limited, None)
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
    prepared: UnitFreeProblem,
    solved: Solved,
    settings: Settings,
    metric: Metric,
    statistics: FitStatistics,
    certificate: Certificate,
) -> list[str]:
    """Sentences on what the judgements do not determine."""
    judgements, coordinates, source = prepared.judgements, prepared.coordinates, prepared.source
    found = [] if isinstance(source, LegRows) else find_enormous(source, judgements, coordinates.enormous)
    found += find_undetermined_rates(solved, settings)
    found += find_reversal(prepared.rows, judgements, solved.noise, settings, statistics, certificate.loss)
    # With flips, or an optimum at infinity, few uncertain labels need not mean overfitting.
    is_infinite = certificate.outcome in (Outcome.SEPARABLE, Outcome.QUASI_SEPARABLE)
    ignores_uncertain = is_infinite or has_flips(solved.flip_rate)
    n = len(judgements)
    return found + find_problems(
        metric.column_names,
        coordinates.null_directions,
        (n - judgements.n_far, judgements.n_far) if judgements.kind is Kind.CLOSE_FAR else (n,),
        coordinates.transform.shape[1],
        rank=settings.known_rank,
        has_origin=settings.fit_origin,
        penalised=settings.known_alpha > 0,
        n_thresholds=judgements.n_thresholds,
        uncertain_per_parameter=math.inf if ignores_uncertain else statistics.uncertain_per_parameter,
    )


def _metric(solved: Solved, prepared: UnitFreeProblem, settings: Settings, names: tuple[str, ...] | None) -> Metric:
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


# ---------------------------------------------------------------------------------------------------------------------
# Identifiability: the parts of the metric that the data do not determine, however well a fit converged.


# A column is part of a combination if its share, in standard deviations, is at least this.
_INVOLVED = 0.05
_MOST_COLUMNS_NAMED = 6  # columns, or rows, in one sentence
_MOST_COMBINATIONS = 3  # of columns, in a sentence each

# A difference this many times as large as usual in its column is probably in another unit.
_LONG_IN_COLUMN = 1000.0
_ENOUGH_ROWS = 10_000  # for what is typical, or far from chance, in any number of rows

# Below this, a light penalty at least halved the excess loss on new labels in simulations.
_FEW_UNCERTAIN = 1.0


def find_problems(
    names: Sequence[str],
    null_directions: FloatArray,
    counts: tuple[int, ...],
    n_directions: int,
    *,
    rank: int | None = None,
    has_origin: bool = False,
    penalised: bool = False,
    n_thresholds: int = 1,
    uncertain_per_parameter: float = math.inf,
) -> list[str]:
    """Return a sentence, with advice, for each reason why the data do not determine the metric.

    Parameters
    ----------
    names : sequence of str
        The names of the columns.
    null_directions : array of shape (d, m)
        Combinations of the columns, in standard deviations, that do not vary.
    counts : tuple of int
        The numbers of pairs that are labelled close and far, or that of levels or comparisons.
    n_directions : int
        The number of directions that vary.
    rank : int, optional
        The largest rank of M.
    has_origin, penalised : bool
        Whether an origin is learned, and whether there is a penalty.
    n_thresholds : int
        One for close/far labels, more for levels, none for comparisons.
    uncertain_per_parameter : float
        As in `FitStatistics`; infinite if it is meaningless, as for separable labels.
    """
    # With a penalty, a direction that does not vary has no weight, and no label is needed for each direction.
    null_directions = null_directions[:, :0] if penalised else null_directions
    things, terms, verb = ("pairs", "labels", "label") if n_thresholds > 0 else ("comparisons", "answers", "make")
    problems = [
        f"{name_columns(names, direction)} does not vary in these {things}, so nothing is learned about it: M is zero "
        f"there. Leave a column out, or add {things} in which it varies."
        for direction in null_directions.T[:_MOST_COMBINATIONS]
    ]
    more = null_directions.shape[1] - _MOST_COMBINATIONS
    if more > 0:
        them = "combinations of columns do" if more > 1 else "combination of columns does"
        problems.append(f"{more} more {them} not vary; {n_directions} directions remain.")
    n, k = sum(counts), min(rank or n_directions, n_directions)
    n_parameters = count_parameters(n_directions, rank, has_origin=has_origin, n_thresholds=n_thresholds)
    n_rarer = min(counts)
    if n_rarer < n_directions and len(counts) == 2 and not penalised:
        rarer = "far" if counts[1] == n_rarer else "close"
        problems.append(
            f"only {n_rarer} of {n} pairs are labelled {rarer}, for {n_directions} directions of M. "
            f"Label more {rarer} pairs."
        )
    if n < n_parameters and not penalised:
        problems.append(
            f"there are {n} {things} for {n_parameters} parameters (M with {n_directions} directions and "
            f"rank {k}{', tau' if n_thresholds == 1 else ''}). Set "
            + setting(alpha="auto")
            + f", or {verb} at least {4 * n_parameters} {things}."
        )
    elif uncertain_per_parameter < _FEW_UNCERTAIN and n_rarer >= n_directions and not penalised:
        problems.append(
            f"there are only {uncertain_per_parameter:.1f} uncertain {terms} per parameter: without a "
            "penalty the fit probably overfits, and its probabilities are too extreme. Set "
            + setting(alpha="auto")
            + f", or {verb} more {things}."
        )
    return problems


def find_enormous(source: BlockRows, judgements: Judgements, enormous: IndexArray) -> list[str]:
    """Return a sentence, with advice, if some of the enormous differences are labelled close."""
    if len(enormous) == 0:
        return []
    close = enormous[to_numpy(source.pick(judgements.signs_in(source), enormous)) < 0]
    row_numbers = judgements.numbers_of(close[_are_long(source, close)]) if len(close) else close
    if len(row_numbers) == 0:
        return []
    named = _first_of(row_numbers.tolist())
    rows, are, alone, it = ("rows", "are", "they alone determine", "them")
    if len(row_numbers) == 1:
        rows, are, alone, it = ("row", "is", "it alone determines", "it")
    return [
        f"{rows} {named}, labelled close, {are} more than {ENORMOUS:,.0f} times as long as a typical difference, "
        f"so {alone} what is learned in that direction. Check the units, or leave {it} out."
    ]


def _are_long(rows: BlockRows, chosen: IndexArray) -> BoolArray:
    """Whether a difference is far larger in some column than nonzero ones usually are; in a rare 0/1 column none is."""
    indices = np.union1d(chosen, np.arange(0, rows.n_rows, 1 + rows.n_rows // _ENOUGH_ROWS))
    sizes = np.abs(to_numpy(rows.take_rows(indices).read(slice(0, len(indices)))))
    long = sizes[:, np.searchsorted(indices, chosen)]
    sizes[sizes == 0.0] = np.nan
    varies = ~np.all(np.isnan(sizes), axis=1)
    is_long: BoolArray = np.any(long[varies] > _LONG_IN_COLUMN * np.nanmedian(sizes[varies], axis=1)[:, None], axis=0)
    return is_long


def name_columns(names: Sequence[str], direction: FloatArray) -> str:
    """Name the columns with a large loading on a direction, given in standard deviations."""
    direction = direction / np.linalg.norm(direction)
    involved = [index for index in np.argsort(-np.abs(direction), kind="stable") if abs(direction[index]) >= _INVOLVED]
    if len(involved) == 1:
        return f"column {names[involved[0]]!r}"
    return f"a combination of the columns {_first_of([names[index] for index in involved])}"


def _first_of(named: Sequence[Any]) -> str:
    """The first of some columns or rows, and how many there are besides."""
    more = f" and {len(named) - _MOST_COLUMNS_NAMED} more" if len(named) > _MOST_COLUMNS_NAMED else ""
    return ", ".join(map(repr, named[:_MOST_COLUMNS_NAMED])) + more


# ---------------------------------------------------------------------------------------------------------------------
# Quasi-separable fits: the optimum lies at infinity although the metric does not get every label right.


_SPAN_ROUNDING = 1e-6  # of a column within the span of directions, relative to its length
_MAY_BE_INFINITE = (Outcome.CONVERGED, Outcome.RESTRICTED, Outcome.STALLED, Outcome.UNFINISHED)


def named_if_infinite(
    certificate: Certificate, solved: Solved, coordinates: Coordinates, names: Sequence[str]
) -> Certificate:
    """Return the certificate, naming the columns along which M grows without bound, if any."""
    if certificate.outcome not in _MAY_BE_INFINITE:
        return certificate
    found = _found(solved)
    if found is None:
        return certificate
    named = name_columns(names, _involved(*found, coordinates))
    is_compared = solved.judgements.kind is Kind.COMPARISONS
    labels, collect = ("comparisons", "collect more comparisons") if is_compared else ("labels", "label more pairs")
    advice = (
        f"{named} explains some {labels} without exception, so the likelihood has no finite maximum: "
        "M grows without bound along it, and its size there (hence the probabilities of pairs that "
        "differ in it) is arbitrary. Set "
        + either("alpha > 0 (try 0.01)", "--alpha 0.01")
        + f", or {collect} that differ in it."
    )
    return replace(certificate, outcome=Outcome.QUASI_SEPARABLE, advice=advice)


def _found(solved: Solved) -> tuple[FloatArray, float] | None:
    """The direction in which M and tau can grow; of kinds other than close/far, only one in which M alone can."""
    rows, judgements = solved.rows, solved.judgements
    if is_plain(judgements) and not isinstance(rows, LegRows):
        return find_recession(rows, judgements.signs_in(rows), solved.in_doubt)
    if judgements.kind is Kind.COMPARISONS:
        signs = judgements.signs_in(rows)
    else:
        signs = rows.map(partial(_helped, n_levels=judgements.n_levels), judgements.codes_in(rows))
    legs, signs = (rows.legs, rows.leg_signs(signs)) if isinstance(rows, LegRows) else (rows, signs)
    free = find_free_directions(legs, signs)
    return None if free is None else (free, 0.0)


def _helped(codes: Array, n_levels: int) -> Array:
    """+1 for judgements that a larger margin makes likelier for ever, -1 for the others."""
    return 2.0 * as_float64((codes == n_levels - 1) | (codes == n_levels)) - 1.0


def _involved(matrix: FloatArray, threshold: float, coordinates: Coordinates) -> FloatArray:
    """The contribution of each column to the growth of M; only columns that explain those labels alone, if any do."""
    if threshold == 0.0:  # the matrix is a projection, and every direction in its range explains them
        columns = np.linalg.pinv(coordinates.scales[:, None] * coordinates.transform)
        lengths: FloatArray = np.linalg.norm(columns, axis=0)
        is_within = np.linalg.norm(columns - matrix @ columns, axis=0) <= _SPAN_ROUNDING * lengths
        if np.any(is_within & (lengths > 0.0)):
            return np.asarray(is_within * lengths)
    factor = coordinates.to_units(root_of(matrix).T)
    involved: FloatArray = coordinates.scales * np.linalg.norm(factor, axis=1)
    return involved


# ---------------------------------------------------------------------------------------------------------------------
# Reversed judgements: a fit that explains next to nothing, although the opposite judgements would fit well.


# If a fit explains more than this share of the loss, its labels are not swapped.
_LITTLE_EXPLAINED = 0.05

_REVERSAL_SIGNIFICANCE = 1e-4  # the probability of such a gain by chance
_STANDARD_ERRORS = 4.0  # below one half: an agreement that is not chance


def find_reversal(
    rows: Rows, judgements: Judgements, noise: Noise, settings: Settings, statistics: FitStatistics, loss: float
) -> list[str]:
    """Return a sentence if the judgements, or those of one kind of a mix, fit far better the other way round."""
    explains_little = loss >= (1.0 - _LITTLE_EXPLAINED) * statistics.null_loss
    if not (explains_little or _contradicts(judgements, statistics)):
        return []
    chosen = np.arange(0, rows.n_rows, max(rows.n_rows // _ENOUGH_ROWS, 1))
    kinds = [judgements.kind] if judgements.comparisons is None else [judgements.kind, Kind.COMPARISONS]
    turns = [(kind,) for kind in kinds] if len(kinds) == 1 else [*((kind,) for kind in kinds), tuple(kinds)]
    losses = {turn: _turned_loss(rows, judgements, noise, settings, turn, chosen) for turn in turns}
    best = min(losses, key=losses.__getitem__)
    gain = loss - losses[best]
    if gain < _LITTLE_EXPLAINED * statistics.null_loss or 2.0 * len(chosen) * gain < chi2.isf(
        _REVERSAL_SIGNIFICANCE, statistics.n_parameters
    ):
        return []
    found = f"a loss of {losses[best]:.3g} instead of {loss:.3g}"
    return [_reversed(kind, found, judgements.sides.close) for kind in best]


def _reversed(kind: Kind, losses: str, close: Any) -> str:
    """Say that judgements of this kind fit the other way round, and how to turn them."""
    if kind is Kind.CLOSE_FAR:
        return (
            f"the labels fit far better with close and far swapped ({losses}). If {close!r} means far, set "
            + setting(far_label=close)
            + "."
        )
    if kind is Kind.LEVELS:
        return (
            f"the levels fit far better in the opposite order ({losses}). If {close!r} is the farthest one, as in "
            "ratings of similarity, give " + either("`levels`", "--levels") + " in the opposite order, closest first."
        )
    return (
        f"the comparisons fit far better reversed ({losses}). If the second leg of each is the nearer one, "
        + either(
            "negate y, or pass y=-1 for all of them if there is none.",
            "give their id columns in another order with --compared.",
        )
    )


def _contradicts(judgements: Judgements, statistics: FitStatistics) -> bool:
    """Whether the metric of a mixed fit contradicts most judgements of one kind, since those of the other prevailed."""
    if judgements.comparisons is None or statistics.comparison_accuracy is None:
        return False
    agreed = [(statistics.comparison_accuracy, statistics.n_comparisons)]
    if judgements.kind is Kind.CLOSE_FAR:
        agreed.append((statistics.accuracy, statistics.n_pairs))
    return any(share < 0.5 - _STANDARD_ERRORS * 0.5 / n**0.5 for share, n in agreed)


def _turned_loss(
    rows: Rows, judgements: Judgements, noise: Noise, settings: Settings, turn: tuple[Kind, ...], chosen: IndexArray
) -> float:
    """The least loss of some of the judgements if those of these kinds said the opposite."""
    turned = likelihood_of(judgements, rows, noise, width=settings.known_width or 1.0, turned=turn)
    part, arrays = rows.take(chosen, *turned.row_arrays)
    likelihood = turned.of_sample(part, arrays)
    if not likelihood.determines_thresholds(part):
        return math.inf
    options = replace(settings.options, rank=None, tol=1e-4, max_iter=100)
    solution = solve(Objective(part, likelihood, Passes()), options, rng=settings.rng(), watch=ignore_progress)
    return solution.certificate.loss


# ---------------------------------------------------------------------------------------------------------------------
# Whether the labels determine the two flip rates, of close and of far pairs.


_SMALL_RATE = 0.05  # rates up to this one hardly change the metric, and are not tested

# Rates are clearly not zero if this would be rarer by chance; how precisely the loss without flips must be known.
_SIDE_RATES_SIGNIFICANT = 0.01
_SIDE_RATES_TOL = 1e-5  # in nats per label: far below what is significant of as many labels as determine two rates


def find_undetermined_rates(solved: Solved, settings: Settings) -> list[str]:
    """Return a sentence if two flip rates were estimated, and the labels are about as likely without flips."""
    rates, judgements = solved.flip_rate, solved.judgements
    if not (isinstance(rates, tuple) and settings.estimates_flips and max(rates) > _SMALL_RATE):
        return []
    width = np.inf if solved.annotated is None else solved.annotated.width
    objective = Objective(solved.rows, likelihood_of(judgements, solved.rows, solved.noise, width=width), Passes())
    options = replace(settings.options, tol=max(settings.options.tol, _SIDE_RATES_TOL))
    plain = solve(objective, options, rng=settings.rng(), watch=ignore_progress, start=solved.solution.state)
    gain = plain.certificate.loss - solved.solution.certificate.loss
    if 2.0 * judgements.total_weight * gain > float(chi2.isf(_SIDE_RATES_SIGNIFICANT, 2)):
        return []
    said = (
        f"the labels hardly determine the two flip rates, {rates[0]:.2g} of close pairs called far and {rates[1]:.2g} "
        "of far pairs called close: they are hardly more likely than without flips. Label more pairs far from the "
        "threshold, on both sides, or set "
    )
    return [said + setting(flip_rate="estimate") + " (one rate for both) or " + setting(flip_rate=0) + "."]


# ---------------------------------------------------------------------------------------------------------------------
# What the answers of each annotator show.


# The chance that one of the annotators who answer at random is found to be informative, or to answer the other way.
_WRONG_VERDICTS = 0.01

# How many times as probable answers at random must be as expected ones, per annotator of whom that might be by chance.
_RANDOM_ODDS = 20.0

# Nothing is said of annotators with fewer judgements: errors of a slope are not normal.
_FEWEST_ANSWERS = 20

# The share of wrong answers of an attentive annotator.
_SLIPS = 0.02

# If less of the answers depends on the distance, the annotator often answers at random.
_INFORMATIVE_SLOPE = 0.7
_REVERSED_SLOPE = -0.5  # and if less than this, the answers are reversed

# How many times smaller than that of the metric the noise may be: answers at random make a metric smaller.
_SHARPER = (1.0, 1.5, 2.0, 3.0, 4.0)

_BISECTIONS = 40  # to 1e-12 of the range
_STRICTEST = 50.0  # in units of the noise


def annotator_table(solved: Solved, *, compares: bool) -> AnnotatorTable | None:
    """The table of the annotators of a solution; None without annotators.

    If it `compares`, answers to the same pairs are compared as well.
    """
    judgements, annotated = solved.judgements, solved.annotated
    if judgements.annotators is None or annotated is None:
        return None
    names, who, codes = judgements.annotators.names, judgements.annotators.codes, judgements.codes
    squared = solved.rows.gather(solved.solution.squared)[: len(judgements)]
    answers = _Answers(codes.astype(np.float64), judgements.weights, who, len(names))
    slopes = _sharp_slopes(answers, solved.noise, squared, solved.thresholds)
    reach = norm.ppf(0.975) * annotated.errors
    is_unlike_most = np.abs(annotated.values) > np.maximum(reach, annotated.width)
    typical = np.searchsorted(solved.thresholds, squared, side="right")
    shares = annotated.random_shares
    return AnnotatorTable(
        names=names,
        judgements=judgements.annotators.counts,
        strictness=annotated.values,
        strictness_errors=annotated.errors,
        flip_rates=None if shares is None else shares * (1.0 - 1.0 / judgements.n_levels),
        agreement=answers.means((typical == codes).astype(np.float64)),
        kappa=kappas(same_pairs(judgements.data), codes, who, len(names)) if compares else np.full(len(names), np.nan),
        information=slopes.values,
        verdicts=tuple(_verdicts(slopes, np.where(is_unlike_most, np.sign(annotated.values), 0.0), answers.counts)),
        width=annotated.width,
    )


class _Answers(NamedTuple):
    """The answers of all annotators, as levels from 0."""

    codes: FloatArray
    weights: FloatArray
    who: IndexArray
    n_annotators: int

    def sums(self, values: FloatArray) -> FloatArray:
        """The weighted sum over the answers of each annotator."""
        found: FloatArray = sums_by(self.who, self.n_annotators, self.weights * values)[0]
        return found

    def means(self, values: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore"):
            return self.sums(values) / self.counts

    @property
    def counts(self) -> FloatArray:
        """The weight of the answers of each annotator: their number, if there are no weights."""
        return self.sums(np.ones(len(self.codes)))

    @property
    def are_constant(self) -> BoolArray:
        """Whether all answers of an annotator are the same."""
        varied: BoolArray = self.sums((self.codes - self.means(self.codes)[self.who]) ** 2) > 1e-12 * self.counts
        return ~varied


def _expected(answers: _Answers, noise: Noise, squared: FloatArray, thresholds: FloatArray) -> FloatArray:
    """The probabilities of at least level 1, 2, and so on, if no answers are at random.

    Each annotator is as strict as the mean of their answers says, or as is typical if all are the same.  The
    strictness of the fit will not do, since it may explain answers at random.
    """

    def beyond(strictness: FloatArray) -> FloatArray:
        found: FloatArray = noise.cdf((squared - strictness[answers.who])[:, None] - thresholds)
        return found

    given = answers.means(answers.codes)
    most = float(np.abs(squared).max()) + float(np.abs(thresholds).max()) + _STRICTEST
    low, high = np.full(answers.n_annotators, -most), np.full(answers.n_annotators, most)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        is_too_low = answers.means(beyond(middle).sum(axis=1)) > given
        low, high = np.where(is_too_low, middle, low), np.where(is_too_low, high, middle)
    return beyond(np.where(answers.are_constant, 0.0, 0.5 * (low + high)))


class _Slopes(NamedTuple):
    """The slope of each annotator's answers on the expected ones, which is the share that is not at random.

    `at_random` and `as_expected` are its standard errors if all answers are at random, and if none are; `is_constant`
    if all are the same.
    """

    values: FloatArray
    at_random: FloatArray
    as_expected: FloatArray
    is_constant: BoolArray


def _slopes(answers: _Answers, beyond: FloatArray) -> _Slopes:
    """Regress answers on those expected, given by the probabilities of at least level 1, 2, and so on."""
    levels = np.arange(1, beyond.shape[1] + 1)
    expected = beyond.sum(axis=1)
    variance = np.maximum(beyond @ (2.0 * levels - 1.0) - expected**2, _SLIPS)
    x = expected - answers.means(expected)[answers.who]
    y = answers.codes - answers.means(answers.codes)[answers.who]
    spread, counts = answers.sums(x * x), answers.counts
    scatter = answers.sums(y * y) / np.maximum(counts - 1.0, 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = answers.sums(x * y) / spread
        errors = np.sqrt(scatter / spread), np.sqrt(answers.sums(variance * x * x)) / spread
    return _Slopes(np.nan_to_num(values), *errors, answers.are_constant)


def _sharp_slopes(answers: _Answers, noise: Noise, squared: FloatArray, thresholds: FloatArray) -> _Slopes:
    """The slopes on the answers that the metric expects or, if some may be at random, on sharper ones.

    Unless flips are estimated, answers at random make a metric smaller, so that it expects less of the others too.
    """
    sharpest, informs, highest = None, None, -math.inf
    at, levels = np.arange(len(squared)), answers.codes.astype(np.intp)
    for times in _SHARPER:
        beyond = _expected(answers, noise, times * squared, times * thresholds)
        slopes = _slopes(answers, beyond)
        if informs is None:
            with np.errstate(invalid="ignore", divide="ignore"):
                informs = np.nan_to_num(slopes.values / slopes.at_random) > _limit(answers.n_annotators)
        least = np.column_stack([np.ones(len(beyond)), beyond, np.zeros(len(beyond))])
        probability = np.maximum(least[at, levels] - least[at, levels + 1], np.finfo(float).tiny)
        likelihood = float(answers.sums(np.log(probability))[informs].sum())
        if sharpest is not None and likelihood <= highest:
            break
        sharpest, highest = slopes, likelihood
        if informs.all() or not informs.any():
            break
    assert sharpest is not None
    return sharpest


def _limit(n: int) -> float:
    """How many standard errors are not by chance, for any of n annotators."""
    return -float(norm.ppf(0.5 * _WRONG_VERDICTS / n))


def _verdicts(slopes: _Slopes, unlike_most: FloatArray, counts: FloatArray) -> list[AnnotatorVerdict]:
    """A verdict on each; `unlike_most` is 1 for a strict, -1 for a lenient annotator, 0 for the others."""
    n, values, verdict = len(counts), slopes.values, AnnotatorVerdict
    limit = _limit(n)
    with np.errstate(invalid="ignore", divide="ignore"):
        from_random = np.nan_to_num(values / slopes.at_random)
        from_expected = np.nan_to_num((values - 1.0) / slopes.as_expected)
        # How much more probable the slope is if answers are at random than if they are as expected.
        odds = -np.log(slopes.at_random) - 0.5 * (values / slopes.at_random) ** 2
        odds -= -np.log(slopes.as_expected) - 0.5 * ((values - 1.0) / slopes.as_expected) ** 2
        are_random = odds > math.log(_RANDOM_ODDS * n)
    cases = (  # the first that holds counts
        (counts < _FEWEST_ANSWERS, verdict.TOO_FEW),
        (slopes.is_constant & (from_expected < -limit), verdict.ALWAYS_THE_SAME),
        (slopes.is_constant, verdict.TOO_FEW),
        ((from_random < -limit) & (values < _REVERSED_SLOPE), verdict.THE_OTHER_WAY_ROUND),
        ((from_random <= limit) & are_random, verdict.AT_RANDOM),
        (from_random <= limit, verdict.TOO_FEW),
        ((from_expected < -limit) & (values < _INFORMATIVE_SLOPE), verdict.OFTEN_AT_RANDOM),
        (unlike_most > 0.0, verdict.STRICTER),
        (unlike_most < 0.0, verdict.MORE_LENIENT),
        (np.ones(n, dtype=bool), verdict.TYPICAL),
    )
    return [next(found for holds, found in cases if holds[place]) for place in range(n)]


def same_pairs(data: object) -> IndexArray:
    """A number for each pair, the same for equal pairs, in either order of their points."""
    rows = pair_rows(data)
    differences = np.concatenate([to_numpy(block).T for _, block in rows.blocks()]) + 0.0
    first = np.argmax(differences != 0.0, axis=1)
    signs = np.sign(differences[np.arange(len(differences)), first])
    turned = np.where(signs < 0.0, -1.0, 1.0)[:, None] * differences + 0.0  # without negative zeros
    lines = np.ascontiguousarray(turned).view(np.dtype((np.void, turned.itemsize * turned.shape[1])))
    return np.unique(lines.ravel(), return_inverse=True)[1]


def kappas(pairs: IndexArray, codes: IndexArray, who: IndexArray, n_annotators: int) -> FloatArray:
    """Cohen's kappa, with quadratic weights, of each annotator's answers and those of others to the same pairs.

    An answer is compared with all those of others; NaN if there are none, or if all are the same.
    """
    answers = codes.astype(np.float64)
    powers = np.stack([np.ones_like(answers), answers, answers**2])
    _, own = np.unique(pairs * np.int64(n_annotators) + who, return_inverse=True)
    others = _totals(powers, pairs) - _totals(powers, own)
    is_shared = others[0] > 0.5
    count, mean, square = others[:, is_shared]
    means = np.stack([answers[is_shared], answers[is_shared] ** 2, mean / count, square / count])
    differs = means[1] - 2.0 * means[0] * means[2] + means[3]
    judged = np.bincount(who[is_shared], minlength=n_annotators)
    with np.errstate(invalid="ignore", divide="ignore"):
        found, *expected = (
            np.bincount(who[is_shared], weights=each, minlength=n_annotators) / judged for each in (differs, *means)
        )
        by_chance = expected[1] - 2.0 * expected[0] * expected[2] + expected[3]
        kappa: FloatArray = np.where(by_chance > 1e-12, 1.0 - found / by_chance, np.nan)
    return kappa


def _totals(values: FloatArray, groups: IndexArray) -> FloatArray:
    """The sum over the group of each column, in each line."""
    return np.stack([np.bincount(groups, weights=line)[groups] for line in values])
