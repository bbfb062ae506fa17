"""A threshold for a metric that has none: fitted to labelled pairs, with the metric held fixed."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import chi2

from closefar.arrays import FloatArray
from closefar.errors import setting
from closefar.fitting.result import Fit
from closefar.fitting.statistics import IdentifiabilityWarning
from closefar.judgements import Judgements, Kind, own_labels
from closefar.judgements.labels import column_of_labels, find_sides
from closefar.model import Metric
from closefar.noise import Noise

_LEVEL = 0.95
_TOLERANCE = 1e-12  # of the mean loss
_MOST_STEPS = 200
_LARGEST_RATIO = 1e3  # of noises
_FAR_OFF = 20.0  # ratios that are not told exactly, as where every label is right
_SUSPICIOUS = 0.01  # a smaller p-value of equal noises is reported
_MOST_COMPARED = 50_000  # pairs that the noises are compared on


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
            f"threshold {self.threshold:.6g}, {_LEVEL:.0%} interval {low:.6g} to {high:.6g} by the profile likelihood",
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

    def at(self, threshold: float) -> tuple[float, float, float]:
        """The loss and its first two derivatives."""
        loss, slope, curvature = self.noise.derivatives(self.signs * (self.squared - threshold))
        sums = self.weights @ loss, -self.weights @ (self.signs * slope), self.weights @ curvature
        return tuple(float(each) / self.total for each in sums)  # type: ignore[return-value]

    def minimum(self) -> tuple[float, float, float]:
        """The threshold >= 0 with the least loss, its loss, and a bound on the loss above the minimum.

        The slope increases, so the minimum lies between a threshold with a negative slope and one with a positive
        slope, and the loss exceeds it by at most the slope times their distance.
        """
        low, high = 0.0, float(self.squared.max()) + 1.0
        if self.at(low)[1] >= 0.0:
            return low, self.at(low)[0], 0.0
        while self.at(high)[1] < 0.0:
            low, high = high, 2.0 * high
        threshold, best = 0.5 * (low + high), (0.0, math.inf, math.inf)
        for _ in range(_MOST_STEPS):
            loss, slope, curvature = self.at(threshold)
            low, high = (low, threshold) if slope > 0.0 else (threshold, high)
            gap = abs(slope) * (high - low)
            best = min(best, (threshold, loss, gap), key=lambda found: found[2])
            if gap <= _TOLERANCE or high - low <= 4.0 * math.ulp(high):
                break
            newton = threshold - slope / curvature if curvature > 0.0 else math.nan
            threshold = newton if low < newton < high else 0.5 * (low + high)
        return best

    def interval(self, threshold: float, loss: float) -> tuple[float, float]:
        """The thresholds where twice the difference of the log-likelihoods is below the quantile of chi-squared."""
        most = loss + float(chi2.ppf(_LEVEL, 1)) / (2.0 * self.total)

        def excess(other: float) -> float:
            return self.at(other)[0] - most

        low = 0.0 if excess(0.0) <= 0.0 else float(brentq(excess, 0.0, threshold))
        step = 1.0
        while excess(threshold + step) <= 0.0:
            step *= 2.0
        return low, float(brentq(excess, threshold, threshold + step))

    def noise_ratio(self, loss: float) -> tuple[float, float]:
        """The noise relative to the one assumed with the highest likelihood, and the p-value of their being equal."""

        def least(log_ratio: float) -> float:
            return replace(self, squared=self.squared * math.exp(-log_ratio)).minimum()[1]

        largest = math.log(_LARGEST_RATIO)
        found = minimize_scalar(least, bounds=(-largest, largest), method="bounded", options={"xatol": 1e-3})
        statistic = max(2.0 * self.total * (loss - float(found.fun)), 0.0)
        return math.exp(float(found.x)), float(chi2.sf(statistic, 1))

    @property
    def fit_better_swapped(self) -> bool:
        """Whether the loss is lower with close and far swapped, each at its best threshold."""
        return replace(self, signs=-self.signs).minimum()[1] < self.minimum()[1]


def calibrate_threshold(
    fit: Fit, pairs: Any, labels: Any, sample_weight: Any = None, *, far_label: Any = None
) -> CalibratedThreshold:
    """Fit a threshold to close/far labels of pairs; see `ComparisonMetricLearner.calibrate_threshold`."""
    if fit.kind is not Kind.COMPARISONS:
        raise ValueError(f"only a metric learned from comparisons needs a threshold; got one learned from {fit.kind}.")
    labels, sample_weight = own_labels(pairs, labels, sample_weight)
    n = len(pairs) if not hasattr(pairs, "shape") else int(pairs.shape[0])
    sides = find_sides(column_of_labels(labels, n), far_label, stacklevel=4)
    judgements = Judgements.read_more(fit.columns, pairs, labels, sample_weight, sides=sides)
    judgements.check_both_count()
    judgements = judgements.counted()
    problem = _labels(fit.metric, judgements)
    threshold, loss, gap = problem.minimum()
    few = judgements.sample(_MOST_COMPARED, seed=0)
    compared = problem if few is judgements else _labels(fit.metric, few)
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


def _labels(metric: Metric, judgements: Judgements) -> _Labels:
    squared = metric.measure(judgements.data)
    return _Labels(metric.noise, squared, np.where(judgements.is_far, 1.0, -1.0), np.array(judgements.weights))


def _problems(fit: Fit, close: Any, labels: _Labels, threshold: float, ratio: float, p_value: float) -> list[str]:
    together = (
        "Fit both together: LinearMetricLearner("
        + setting(comparison_noise="estimate")
        + ").fit(pairs, labels, comparisons=(X, y))."
    )
    if p_value < _SUSPICIOUS and ratio > 1.0 and labels.fit_better_swapped:
        return [
            (
                f"the labels fit better with close and far swapped. If {close!r} means far, set "
                + setting(far_label=close)
                + "."
            )
        ]
    if fit.is_separable:
        return [
            "the metric agrees with every comparison, so its scale is arbitrary, and with it the noise that the labels "
            f"are taken to have. {together}"
        ]
    found = []
    if threshold == 0.0:
        found.append("the threshold is zero: even pairs at distance zero are more often far. Check which label is far.")
    if p_value < _SUSPICIOUS:
        size = f"about {ratio:.2g} times" if 1.0 / _FAR_OFF < ratio < _FAR_OFF else "far below"
        size = "far above" if ratio >= _FAR_OFF else size
        found.append(
            f"the noise of the labels is {size} that of the comparisons (p = {p_value:.1g} if they were equal), so the "
            f"probabilities at this threshold are wrong. {together}"
        )
    return found
