"""Further fits of a fit: to parts of its judgements, within fewer directions, and of a threshold alone."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import chi2

from closefar.arrays import FloatArray
from closefar.errors import InvalidValueError, either, setting
from closefar.fitting.fitting import INTERVAL_LEVEL, find_origin, refit
from closefar.fitting.progress import display
from closefar.fitting.result import Fit, IdentifiabilityWarning
from closefar.fitting.scoring import Scorer
from closefar.fitting.settings import Settings
from closefar.judgements import (
    Judgements,
    Kind,
    own_labels,
    resolve_folds,
    sample_rows,
    split_judgements,
    variance_of_sum,
)
from closefar.judgements.checks import column_of_labels, find_sides
from closefar.judgements.judgements import quadruplets_of
from closefar.model import Directions, Metric
from closefar.noise import Noise, has_flips
from closefar.plain import format_table
from closefar.rows import LegRows, column_scales, judged_rows, pair_rows, rows_of, second_moment
from closefar.solve import OutOfTime

# ---------------------------------------------------------------------------------------------------------------------
# Fits to parts of the judgements of a fit, used to judge the others.


# Up to this many columns, a fit with a certificate is as fast as an approximate one; with many judgements, so are
# Newton steps up to the second number.
_CERTIFIED_COLUMNS = 16
_NEWTON_COLUMNS = 32  # the second number

# With this many judgements and uncertain labels per parameter, a fit to four fifths of them is close to that to all.
_MANY_JUDGEMENTS = 50_000
_MANY_PER_PARAMETER = 50.0  # uncertain labels


def refit_part(fitted: Fit, judgements: Judgements) -> Fit:
    """The fit of the same settings to these judgements; approximate, without a certificate, if columns are many."""
    settings = fitted.chosen
    is_rough = settings.solver == "auto" and judgements.n_columns > _CERTIFIED_COLUMNS
    weighted = judgements.weighted(settings.class_weight).counted()
    return refit(weighted, settings.roughly() if is_rough else settings)


def is_near_parts(fitted: Fit) -> bool:
    """Whether a fit to most of the judgements can start from the fit to all without leaking the held-out ones."""
    statistics, settings = fitted.statistics, fitted.settings
    is_many = statistics.n_pairs >= _MANY_JUDGEMENTS and statistics.uncertain_per_parameter >= _MANY_PER_PARAMETER
    return is_many and fitted.certificate.converged and settings.solver == "auto" and not settings.fit_origin


def fit_from(fitted: Fit, judgements: Judgements) -> Fit:
    """Fit to most of the judgements, starting from the fit to all, with its rank, noise and penalty.

    A few steps reach the optimum, without a certificate.
    """
    solver = "newton" if judgements.n_columns <= _NEWTON_COLUMNS else "auto"
    settings = fitted.chosen.roughly().but(solver=solver)
    if fitted.known.estimates_flips and has_flips(fitted.flip_rate) and solver == "newton":
        settings = settings.but(flip_rate=fitted.known.flip_rate)
    weighted = judgements.weighted(settings.class_weight).counted()
    return refit(weighted, settings, start=fitted.metric)


# ---------------------------------------------------------------------------------------------------------------------
# Fits within the leading directions of a metric, and the fit of rank 0.


# Every rank up to the first number is tried; beyond it, ranks grow by this share.
_ALL_UP_TO, _RANK_GROWTH = 16, 1.2


def candidate_ranks(largest: int) -> list[int]:
    """The ranks to try: 0, every small rank, then increasingly few, and the largest."""
    ranks = list(range(min(largest, _ALL_UP_TO) + 1))
    while ranks[-1] < largest:
        ranks.append(min(math.ceil(ranks[-1] * _RANK_GROWTH), largest))
    return ranks


def refit_leading(judgements: Judgements, settings: Settings, whole: Scorer, directions: Directions, k: int) -> Scorer:
    """The best metric within the span of the k leading directions; at full rank what was fitted is returned unchanged.

    A penalty that shrinks M to zero can't be expressed within a subspace, and a fit of rank k is used instead.  One
    that shrinks M to a centre shrinks it to the truncated metric there.
    """
    metric = whole.metric
    if k >= metric.rank:
        return whole
    if k > 0 and settings.alpha != 0 and not settings.is_centred:
        return Scorer.of(refit(judgements, settings.but(rank=k)))
    lengths = np.sqrt(directions.values[:k])
    kept = directions.columns[:, :k][:, lengths > 0]  # in these coordinates, the truncated metric is Euclidean
    if kept.shape[1] == 0:
        return replace(whole, metric=_constant(metric, judgements))
    if not settings.is_centred:
        kept = kept / lengths[lengths > 0]
    within = _within(judgements, metric, kept)
    fitted = refit(within, settings.but(rank=None, prior="euclidean" if settings.is_centred else settings.prior))
    rows_within = judged_rows(within)
    found, source = fitted.metric, judged_rows(judgements, settings.known_comparison_noise)
    shares = judgements.shares_in(source)
    is_normal = directions.is_data_scale and not settings.is_centred
    moment = None if is_normal else second_moment(rows_within, within.shares_in(rows_within))
    origin, thresholds = metric.origin, np.array(found.thresholds)
    if metric.origin is not None and found.origin is not None:
        on_points = kept @ found.factor
        on_constant = -(metric.origin @ kept + found.origin) @ found.factor
        origin, slack = find_origin(pair_rows(judgements.data), shares, np.vstack([on_points, on_constant]))
        thresholds -= slack
    leading = Metric.from_data_scale(
        kept,
        found.factor,
        thresholds,
        found.noise,
        second_moment=moment,
        column_scales=column_scales(source, shares, centred=metric.origin is not None),
        feature_names=metric.feature_names,
        origin=origin,
        flip_rate=found.flip_rate,
    )
    return replace(Scorer.of(fitted), metric=leading)


def _within(judgements: Judgements, metric: Metric, kept: FloatArray) -> Judgements:
    """The judgements with their differences along these directions; of comparisons, each leg and a point at zero."""
    if judgements.kind is not Kind.COMPARISONS:
        found = judgements.with_data(metric.coordinates(judgements.data, kept))
        compared = judgements.comparisons
        return found if compared is None else replace(found, comparisons=_within(compared, metric, kept))
    return judgements.with_data(quadruplets_of(*legs_along(judgements, kept)))


def legs_along(judgements: Judgements, columns: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The coordinates of both legs of each comparison along these columns."""
    rows = rows_of(judgements.data)
    assert isinstance(rows, LegRows)
    legs = rows.legs.projected(columns)
    return legs[0::2], legs[1::2]


def _constant(metric: Metric, judgements: Judgements) -> Metric:
    """The best metric of rank 0: every pair has the same probabilities, and every comparison even odds."""
    if judgements.kind is Kind.COMPARISONS:
        return metric.truncate(0)
    beyond = []  # the share of pairs beyond each threshold, without flips
    for k in range(1, judgements.n_levels):
        of_close, of_far = metric.dichotomy(k).flip_rates
        beyond.append((judgements.mean(judgements.codes >= k) - of_close) / (1.0 - of_close - of_far))
    shares = np.minimum.accumulate(np.clip(beyond, 1e-12, 1.0 - 1e-12))
    least = -math.inf
    if metric.origin is None:  # thresholds are at least 0, so at most half is beyond the first; the others follow it
        shares, least = shares * min(1.0, 0.5 / shares[0]), 0.0
    thresholds = [brentq(lambda tau, p=p: metric.noise.cdf(-tau) - p, -1e3, 1e3, xtol=1e-12) for p in shares.tolist()]
    return replace(metric.truncate(0), threshold=None, level_thresholds=tuple(np.maximum(thresholds, least)))


def cross_validate_rank(
    judgements: Judgements,
    settings: Settings,
    *,
    cv: Any = 5,
    groups: Any = None,
    rule: str = "one_se",
    scale: str = "data",
    refits: bool = True,
    random_state: int | None = 0,
) -> RankChoice:
    """Choose the rank by cross-validated loss; see `closefar.questions.choose_rank`.

    The weights of `judgements` include class weights.  This emits no warnings.
    """
    if rule not in RULES:
        raise ValueError(f"rule must be one of {list(RULES)}; got {rule!r}.")
    if scale not in ("data", "units"):
        raise InvalidValueError("scale", either('must be "data" or "units"', "must be data or units"), scale)
    settings = settings.but(rank=None, verbose=0)
    ranks = candidate_ranks(judgements.n_columns)
    cv, groups = resolve_folds(cv, judgements, groups, seed=random_state, warns=False)
    if isinstance(cv, numbers.Integral):
        counts = np.flatnonzero(judgements.weights > 0)
        judgements, groups = judgements.take(counts), None if groups is None else np.asarray(groups)[counts]
        cv = cv if groups is not None else _n_folds(int(cv), judgements)
    splits = split_judgements(cv, judgements, groups=groups, seed=random_state)
    losses, hits, tested, largest = [], np.zeros(len(ranks)), [], 1
    for number, (train, test) in enumerate(splits):
        with display().stage(f"choosing the rank, fold {number + 1} of {len(splits)}"):
            path = _path(judgements.take(train).counted(), settings, ranks, scale, refits)
        held_out = [each.score(judgements.take(test)) for each in path]
        losses.append(np.array([scored.losses for scored in held_out]))
        hits += [float(scored.is_right @ scored.judgements.weights) for scored in held_out]
        tested.append(test)
        largest = max(largest, path[-1].metric.rank)
    n_ranks = 1 + next(index for index, k in enumerate(ranks) if k >= largest)
    held_out_rows = np.concatenate(tested)
    weights = judgements.weights[held_out_rows]
    table = compare_ranks(
        ranks[:n_ranks],
        np.hstack(losses)[:n_ranks],
        (hits / weights.sum())[:n_ranks],
        weights / weights.sum(),
        None if groups is None else np.asarray(groups)[held_out_rows],
    )
    return RankChoice(choose_from(table, rule), rule, table)


def _path(judgements: Judgements, settings: Settings, ranks: Sequence[int], scale: str, refits: bool) -> list[Scorer]:
    """A metric of each rank, from one fit without a limit; beyond its rank, that fit itself."""
    whole = Scorer.of(refit(judgements, settings))
    if not refits:
        return [replace(whole, metric=whole.metric.truncate(k, scale)) for k in ranks]
    try:
        directions = whole.metric.directions(scale)
        return [refit_leading(judgements, settings, whole, directions, k) for k in ranks]
    except OutOfTime as end:
        raise OutOfTime(whole.metric) from end


def _n_folds(cv: int, judgements: Judgements) -> int:
    """The number of folds, no more than there are judgements of the rarer label."""
    n_rarer = judgements.n_rarer
    if cv < 2 or n_rarer < 2:
        noun, of_each = ("comparisons", "") if judgements.kind is Kind.COMPARISONS else ("pairs", " of each class")
        rarer = f"{n_rarer} of the rarer class" if of_each else f"{n_rarer} of them"
        raise ValueError(
            f"choosing a rank needs at least 2 folds and 2 {noun}{of_each}; got cv={cv!r} and "
            f"{rarer}. Set the rank to a number instead."
        )
    return min(int(cv), n_rarer)


# ---------------------------------------------------------------------------------------------------------------------
# The table from which a rank is chosen, and the rules that choose


RULES = ("one_se", "best")


class RankScore(NamedTuple):
    """The held-out loss of rank `k`, its excess over the lowest with its standard error, and the held-out accuracy."""

    k: int
    loss: float
    excess: float
    standard_error: float
    accuracy: float


@dataclass(frozen=True)
class RankChoice:
    """The rank chosen by cross-validation, and the table of all ranks."""

    rank: int
    rule: str
    table: tuple[RankScore, ...]

    def __str__(self) -> str:
        columns = [("k", "d"), ("held-out loss", ".5f"), ("excess", ".5f"), ("std. error", ".5f"), ("accuracy", ".4f")]
        head, *lines = format_table(columns, [list(score) for score in self.table]).split("\n")
        marks = (" *" if score.k == self.rank else "" for score in self.table)
        return "\n".join([head, *map("".join, zip(lines, marks, strict=True))])


def compare_ranks(
    ranks: Sequence[int],
    losses: FloatArray,
    accuracies: FloatArray,
    shares: FloatArray,
    groups: NDArray[Any] | None = None,
) -> tuple[RankScore, ...]:
    """Compare each rank with the best, pair by pair, so that the common difficulty of a pair cancels.

    `losses` has one row per rank and one column per held-out pair; the `shares` of pairs sum to one,
    and their `groups` are dependent.
    """
    means = losses @ shares
    best = int(means[1:].argmin()) + 1
    scores = []
    for index, k in enumerate(ranks):
        excess = float(means[index] - means[best])
        deviations = (losses[index] - losses[best] - excess) * shares
        error = float(np.sqrt(variance_of_sum(deviations, groups)))
        scores.append(RankScore(k, float(means[index]), excess, error, float(accuracies[index])))
    return tuple(scores)


def choose_from(table: Sequence[RankScore], rule: str) -> int:
    """Return the rank that a rule chooses: at least 1, since rank 0 is only for comparison."""
    best = min(table[1:], key=lambda score: score.loss)
    near = [score.k for score in table[1:] if score.excess <= score.standard_error]
    return min([*near, best.k]) if rule == "one_se" else best.k


# ---------------------------------------------------------------------------------------------------------------------
# A threshold for a metric that has none: fitted to labelled pairs, with the metric held fixed


_TOLERANCE, _RELATIVE_TOLERANCE = 1e-12, 1e-14  # of the threshold, close to what brentq can do at least (4 eps)
_LARGEST_RATIO = 1e3  # of noises
_FAR_OFF = 20.0  # ratios that are not told exactly, as where every label is right
_SUSPICIOUS_P_VALUE = 0.01  # a smaller p-value of equal noises is reported
_MOST_PAIRS_COMPARED = 50_000  # pairs that the noises are compared on


@dataclass(frozen=True)
class CalibratedThreshold:
    """A threshold that was fitted to labelled pairs, for a metric that was learned from comparisons.

    Attributes
    ----------
    threshold : float
        tau, the minimum of the mean of -log P(label) over tau >= 0.
    interval : tuple of two float
        The 95% interval by the profile likelihood: the thresholds whose likelihood is not much lower.  It takes the
        metric as known.
    metric : Metric
        The metric with this threshold, without flips.
    loss : float
        The mean of -log P(label).
    gap : float
        A proven upper bound on the difference of the loss from its minimum.
    n_pairs : int
    noise_ratio : float
        The noise of the labels relative to that of the comparisons, as the labels have it; the threshold is fitted
        with one.
    problems : tuple of str
        What to know before the threshold is used, with advice.
    """

    threshold: float
    interval: tuple[float, float]
    metric: Metric
    loss: float
    gap: float
    n_pairs: int
    noise_ratio: float
    problems: tuple[str, ...]

    def __str__(self) -> str:
        low, high = self.interval
        lines = [
            f"threshold {self.threshold:.6g}, {INTERVAL_LEVEL:.0%} interval {low:.6g} to {high:.6g} by the profile "
            "likelihood",
            f"{self.n_pairs:,} pairs, loss {self.loss:.6g}, within {self.gap:.1g} of its minimum",
        ]
        return "\n".join([*lines, *self.problems])


@dataclass(frozen=True, eq=False)
class _Labels:
    """The mean loss of labels as a function of the threshold alone, which is convex."""

    noise: Noise
    squared: FloatArray
    signs: FloatArray
    weights: FloatArray

    @property
    def total(self) -> float:
        return float(self.weights.sum())

    def at(self, threshold: float) -> tuple[float, float]:
        """The loss and its derivative."""
        loss, slope = self.noise.derivatives(self.signs * (self.squared - threshold), 1)
        return float(self.weights @ loss) / self.total, -float(self.weights @ (self.signs * slope)) / self.total

    def minimum(self) -> tuple[float, float, float]:
        """The threshold >= 0 with the least loss, its loss, and a bound on the loss above the minimum.

        The loss is convex, so it exceeds its minimum by at most its slope times the distance from there.
        """
        threshold = 0.0
        if self.at(threshold)[1] < 0.0:
            threshold = _root_after(0.0, lambda tau: self.at(tau)[1], float(self.squared.max()) + 1.0)
        loss, slope = self.at(threshold)
        is_inside = threshold > 0.0
        return threshold, loss, is_inside * abs(slope) * (_TOLERANCE + _RELATIVE_TOLERANCE * threshold)

    def interval(self, threshold: float, loss: float) -> tuple[float, float]:
        """The thresholds where twice the difference of the log-likelihoods is below the quantile of chi-squared."""
        most = loss + float(chi2.ppf(INTERVAL_LEVEL, 1)) / (2.0 * self.total)

        def excess(other: float) -> float:
            return self.at(other)[0] - most

        low = 0.0 if excess(0.0) <= 0.0 else float(brentq(excess, 0.0, threshold))
        return low, _root_after(threshold, excess, 1.0)

    def noise_ratio(self, loss: float) -> tuple[float, float]:
        """The noise relative to the one assumed with the highest likelihood, and the p-value of their being equal."""

        def least(log_ratio: float) -> float:
            return replace(self, squared=self.squared * math.exp(-log_ratio)).minimum()[1]

        largest = math.log(_LARGEST_RATIO)
        found = minimize_scalar(least, bounds=(-largest, largest), method="bounded", options={"xatol": 1e-3})
        statistic = max(2.0 * self.total * (loss - float(found.fun)), 0.0)
        return math.exp(float(found.x)), float(chi2.sf(statistic, 1))


def _root_after(start: float, function: Callable[[float], float], step: float) -> float:
    """The root beyond this place of a function that is negative there, and grows; it is looked for in longer steps."""
    low, high = start, start + step
    while function(high) < 0.0:
        low, high = high, start + 2.0 * (high - start)
    return float(brentq(function, low, high, xtol=_TOLERANCE, rtol=_RELATIVE_TOLERANCE))


def calibrate_threshold(
    fit: Fit, pairs: Any, labels: Any, sample_weight: Any = None, *, far_label: Any = None
) -> CalibratedThreshold:
    """Fit a threshold to close/far labels of pairs; see `ComparisonMetricLearner.calibrate_threshold`."""
    if fit.kind is not Kind.COMPARISONS:
        raise ValueError(f"only a metric learned from comparisons needs a threshold; got one learned from {fit.kind}.")
    labels, sample_weight = own_labels(pairs, labels, sample_weight)
    n = len(pairs) if not hasattr(pairs, "shape") else int(pairs.shape[0])
    sides = find_sides(column_of_labels(labels, n), far_label, stacklevel=4)
    judgements = Judgements.read(fit.columns, pairs, labels, sample_weight, sides=sides)
    judgements.check_both_count()
    judgements = judgements.counted()
    signs = np.where(judgements.is_far, 1.0, -1.0)
    problem = _Labels(fit.metric.noise, fit.metric.measure(judgements.data), signs, np.array(judgements.weights))
    threshold, loss, gap = problem.minimum()
    few = sample_rows(len(judgements), _MOST_PAIRS_COMPARED)
    compared = replace(problem, squared=problem.squared[few], signs=signs[few], weights=problem.weights[few])
    ratio, p_value = compared.noise_ratio(compared.at(threshold)[0])
    found = CalibratedThreshold(
        threshold=threshold,
        interval=problem.interval(threshold, loss),
        metric=replace(fit.metric, threshold=threshold, flip_rate=0.0),
        loss=loss,
        gap=gap,
        n_pairs=len(judgements),
        noise_ratio=ratio,
        problems=tuple(_problems(fit, sides.close, compared, threshold, ratio, p_value)),
    )
    for problem_of in found.problems:
        warnings.warn(problem_of, IdentifiabilityWarning, stacklevel=3)
    return found


def _problems(fit: Fit, close: Any, labels: _Labels, threshold: float, ratio: float, p_value: float) -> list[str]:
    together = (
        "Fit both together: LinearMetricLearner("
        + setting(comparison_noise="estimate")
        + ").fit(pairs, labels, comparisons=(X, y))."
    )
    swapped = replace(labels, signs=-labels.signs)  # close and far, each at its best threshold
    if p_value < _SUSPICIOUS_P_VALUE and ratio > 1.0 and swapped.minimum()[1] < labels.minimum()[1]:
        said = f"the labels fit better with close and far swapped. If {close!r} means far, set "
        return [said + setting(far_label=close) + "."]
    if fit.is_separable:
        return [
            "the metric agrees with every comparison, so its scale is arbitrary, and with it the noise that the labels "
            f"are taken to have. {together}"
        ]
    found = []
    if threshold == 0.0:
        found.append("the threshold is zero: even pairs at distance zero are more often far. Check which label is far.")
    if p_value < _SUSPICIOUS_P_VALUE:
        size = f"about {ratio:.2g} times" if 1.0 / _FAR_OFF < ratio < _FAR_OFF else "far below"
        size = "far above" if ratio >= _FAR_OFF else size
        found.append(
            f"the noise of the labels is {size} that of the comparisons (p = {p_value:.1g} if they were equal), so the "
            f"probabilities at this threshold are wrong. {together}"
        )
    return found
