"""Labels against what was learned: distances and threshold, calibration, and the noise model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import binom

from closefar.arrays import FloatArray
from closefar.noise import with_flips
from closefar.noise_check import NoiseCheck
from closefar.plot.canvas import CLOSE, COLOURS, FAR, REFERENCE, add_legend, axes_or_new, in_percent, shorten
from closefar.plot.subjects import LabelledDistances, check_count, learner_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["calibration", "margins", "noise_check"]

# The histogram ends where this share of the pairs does, or at twice the threshold.
_SHOWN_SHARE = 0.99

_LEAST_P_VALUE = 0.0001


def margins(
    learner: Any, X: Any = None, y: Any = None, sample_weight: Any = None, *, n_bins: int = 40, ax: Axes | None = None
) -> Axes:
    """Draw how often pairs labelled close and far have each squared distance, against the threshold.

    Parameters
    ----------
    learner : LinearMetricLearner
        Fitted.
    X, y, sample_weight
        Pairs, labels and weights as for `fit`; by default those of the fit.
    n_bins : int, default=40
        The last bin also holds all pairs beyond it.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> import closefar as cf
    >>> data = cf.datasets.make_pairs(2000, 4, rank=2, random_state=0)
    >>> learner = cf.LinearMetricLearner().fit(data.pairs, data.labels)
    >>> ax = cf.plot.margins(learner)
    >>> bool(ax.lines[0].get_xdata()[0] == learner.metric_.threshold)
    True
    """
    check_count("n_bins", n_bins)
    learner = learner_of(learner)
    pairs = LabelledDistances.of(learner, X, y, sample_weight)
    threshold = learner.metric_.threshold
    edges, is_cut = _histogram_edges(pairs.squared, threshold, n_bins)
    ax = axes_or_new(ax)
    shown = np.minimum(pairs.squared, edges[-1])
    for is_far, name, colour in ((False, "close", CLOSE), (True, "far", FAR)):
        chosen = pairs.is_far == is_far
        counts = np.histogram(shown[chosen], edges, weights=pairs.weights[chosen])[0]
        label = learner.classes_[int(is_far)]
        ax.stairs(counts, edges, fill=True, color=colour, alpha=0.35)
        ax.stairs(counts, edges, color=colour, linewidth=1.5, label=_class_name(name, label))
    ax.axvline(threshold, color=REFERENCE, linestyle="--", label="threshold")
    right = np.average((pairs.squared >= threshold) == pairs.is_far, weights=pairs.weights)
    ax.set(
        xlabel="squared distance" + (" (the last bin holds all beyond)" if is_cut else ""),
        ylabel="pairs" if np.all(pairs.weights == 1.0) else "weight of the pairs",
        title=f"The metric agrees with {right:.1%} of the labels ({pairs.description})",
        xlim=(edges[0], edges[-1]),
    )
    add_legend(ax)
    return ax


def calibration(
    learner: Any, X: Any = None, y: Any = None, sample_weight: Any = None, *, n_bins: int = 10, ax: Axes | None = None
) -> Axes:
    """Draw the share of pairs labelled far against the probability that the learner gives them.

    The band holds 95 % of such shares if the probabilities are right: binomial, for the mean
    probability of each bin, which makes it a little too wide.

    Parameters
    ----------
    learner : LinearMetricLearner
        Fitted.
    X, y, sample_weight
        Pairs, labels and weights as for `fit`; by default those of the fit, of which the
        probabilities are a little too sure.  A weight of 2 counts as two pairs.
    n_bins : int, default=10
        Of about equal weight; pairs of the same probability share one.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> import closefar as cf
    >>> data = cf.datasets.make_pairs(4000, 4, rank=2, random_state=0)
    >>> learner = cf.LinearMetricLearner().fit(data.pairs[:2000], data.labels[:2000])
    >>> ax = cf.plot.calibration(learner, data.pairs[2000:], data.labels[2000:])
    >>> ax.get_ylabel()
    'share labelled far'
    """
    check_count("n_bins", n_bins)
    learner = learner_of(learner)
    pairs = LabelledDistances.of(learner, X, y, sample_weight)
    metric = learner.metric_
    probability = with_flips(metric.noise.cdf(pairs.squared - metric.threshold), metric.flip_rate)
    expected, observed, counts = _bin_means(probability, pairs.is_far, pairs.weights, n_bins)
    ax = axes_or_new(ax)
    n = np.maximum(np.round(counts), 1)
    low, high = (binom.ppf(tail, n, expected) / n for tail in (0.025, 0.975))
    ax.fill_between(expected, low, high, color=COLOURS[0], alpha=0.2, linewidth=0, label="95% if they are right")
    ax.plot([0, 1], [0, 1], color=REFERENCE, linewidth=0.8, linestyle="--")
    ax.plot(expected, observed, "o-", color=COLOURS[0], label="these labels")
    ax.set(
        xlabel="learned probability of far",
        ylabel="share labelled far",
        title=f"Calibration, {pairs.description}",
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
    )
    in_percent(ax.xaxis)
    in_percent(ax.yaxis)
    add_legend(ax, loc="upper left")
    return ax


def noise_check(
    check_or_learner: Any, X: Any = None, y: Any = None, sample_weight: Any = None, *, ax: Axes | None = None
) -> Axes:
    """Draw observed minus expected share far by margin, with the range of 95 % of such differences.

    Parameters
    ----------
    check_or_learner : NoiseCheck or LinearMetricLearner
        The result of `check_noise_model`, or a fitted learner to make one of.
    X, y, sample_weight
        For a learner only: pairs, labels and weights as for `fit`; by default those of the fit.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> import closefar as cf
    >>> data = cf.datasets.make_pairs(2000, 4, rank=2, random_state=0)
    >>> learner = cf.LinearMetricLearner().fit(data.pairs, data.labels)
    >>> cf.plot.noise_check(learner).get_xlabel()
    'margin'
    """
    check = check_or_learner
    if not isinstance(check, NoiseCheck):
        check = learner_of(check_or_learner).check_noise_model(X, y, sample_weight)
    elif X is not None:
        raise ValueError("pairs are of the check: give them to check_noise_model, or give the learner; got a check.")
    p_value = f"p = {check.p_value:.2g}" if check.p_value >= _LEAST_P_VALUE else f"p < {_LEAST_P_VALUE:g}"
    ax = axes_or_new(ax)
    margin = np.array([row.margin for row in check.bins])
    band = 1.96 * np.array([row.error for row in check.bins])
    ax.fill_between(margin, -band, band, color=COLOURS[0], alpha=0.2, linewidth=0, label="95% if it is right")
    ax.axhline(0.0, color=REFERENCE, linewidth=0.8, linestyle="--")
    difference = [row.observed - row.expected for row in check.bins]
    ax.plot(margin, difference, "o-", color=COLOURS[0], label="these labels")
    ax.set(xlabel="margin", ylabel="share far: observed - expected", title=f"Noise model, {p_value}")
    add_legend(ax)
    return ax


def _histogram_edges(squared: FloatArray, threshold: float, n_bins: int) -> tuple[FloatArray, bool]:
    """Edges of bins, and whether pairs lie beyond the last."""
    largest = float(squared.max())
    high = min(max(float(np.quantile(squared, _SHOWN_SHARE)), 2.0 * threshold), largest)
    low = min(0.0, threshold)
    high = max(high, 1.05 * threshold, low + 1e-12)
    return np.linspace(low, high, n_bins + 1), largest > high


def _class_name(name: str, label: Any) -> str:
    return name if str(label).lower() == name else f"{name} ({shorten(label)})"


def _bin_means(
    probability: FloatArray, is_far: Any, weights: FloatArray, n_bins: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean probability, share far and summed weight of bins of about equal weight."""
    order = np.argsort(probability, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    edges = np.unique(probability[order][np.searchsorted(share, np.arange(1, n_bins) / n_bins)])
    bins = np.searchsorted(edges, probability, side="right")
    counts = np.bincount(bins, weights=weights).astype(np.float64)
    kept = counts > 0
    expected, observed = (
        np.bincount(bins, weights=weights * column)[kept] / counts[kept] for column in (probability, is_far)
    )
    return expected, observed, counts[kept]
