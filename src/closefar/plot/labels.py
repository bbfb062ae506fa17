"""Labels against the fit: distances and threshold, calibration, and the noise model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from closefar.arrays import FloatArray
from closefar.canvas import CLOSE, COLOURS, FAR, REFERENCE, add_legend, axes_or_new, in_percent, shorten
from closefar.fitting import Fit, Fitted
from closefar.plot.subjects import check_count, description, fit_of, scored_by
from closefar.questions import NoiseCheck, calibrate, check_noise_model

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["calibration", "margins", "noise_check"]

# The histogram ends at this quantile of the pairs, or at twice the threshold.
_SHOWN_SHARE = 0.99


def margins(
    learner: Fit | Fitted,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    *,
    n_bins: int = 40,
    ax: Axes | None = None,
) -> Axes:
    """Plot histograms of the squared distances of pairs labelled close and far, with the threshold.

    Parameters
    ----------
    learner : LinearMetricLearner
        Fitted.
    X, y, sample_weight
        Pairs, labels and weights as for `fit`; by default those of the fit.
    n_bins : int, default=40
        The last bin also contains all larger distances.
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
    fit = fit_of(learner)
    scored = scored_by(fit, X, y, sample_weight)
    threshold, squared, judgements = (
        fit.metric.known_threshold,
        scored.margin + fit.metric.known_threshold,
        scored.judgements,
    )
    edges, is_cut = _histogram_edges(squared, threshold, n_bins)
    ax = axes_or_new(ax)
    shown = np.minimum(squared, edges[-1])
    for chosen, name, label, colour in (
        (~judgements.is_far, "close", fit.sides.close, CLOSE),
        (judgements.is_far, "far", fit.sides.far, FAR),
    ):
        counts = np.histogram(shown[chosen], edges, weights=judgements.weights[chosen])[0]
        ax.stairs(counts, edges, fill=True, color=colour, alpha=0.35)
        ax.stairs(counts, edges, color=colour, linewidth=1.5, label=_class_name(name, label))
    ax.axvline(threshold, color=REFERENCE, linestyle="--", label="threshold")
    title = f"Accuracy {scored.accuracy:.1%}"
    ax.set(
        xlabel="squared distance" + (" (last bin: all larger distances)" if is_cut else ""),
        ylabel="number of pairs" if judgements.sample_weight is None else "weight of pairs",
        title=f"{title} ({description(scored, are_training=X is None)})",
        xlim=(edges[0], edges[-1]),
    )
    add_legend(ax)
    return ax


def calibration(
    learner: Fit | Fitted,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    *,
    n_bins: int = 10,
    ax: Axes | None = None,
) -> Axes:
    """Plot the share of pairs labelled far against the predicted probability of far.

    The error bars are Wilson's 95% intervals of those shares.  If one does not reach the diagonal,
    the probabilities of that bin are miscalibrated beyond chance.  The report has the same plot.

    Parameters
    ----------
    learner : LinearMetricLearner
        Fitted.
    X, y, sample_weight
        Pairs, labels and weights as for `fit`; by default the training pairs, whose
        probabilities are slightly too extreme.  With weights w the intervals are those of
        sum(w)^2 / sum(w^2) pairs.
    n_bins : int, default=10
        The number of bins of about equal weight; pairs with the same probability share one.
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
    scored = scored_by(fit_of(learner), X, y, sample_weight)
    bins = calibrate(scored, n_bins)
    ax = axes_or_new(ax)
    ax.plot([0, 1], [0, 1], color=REFERENCE, linewidth=0.8, linestyle="--")
    predicted, observed = [row.predicted for row in bins], [row.observed for row in bins]
    ends = [row.low for row in bins], [row.high for row in bins]
    ax.vlines(predicted, *ends, color=COLOURS[0], linewidth=1.5, label="95% interval")
    ax.plot(predicted, observed, "o-", color=COLOURS[0], label="these labels")
    ax.set(
        xlabel="predicted probability of far",
        ylabel="share labelled far",
        title=f"Calibration, {description(scored, are_training=X is None)}",
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
    )
    in_percent(ax.xaxis)
    in_percent(ax.yaxis)
    add_legend(ax, loc="upper left")
    return ax


def noise_check(
    check_or_learner: NoiseCheck | Fit | Fitted,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Plot observed minus expected share far by margin, with a 95% band for a correct model.

    Parameters
    ----------
    check_or_learner : NoiseCheck or LinearMetricLearner
        The result of `check_noise_model`, or a fitted learner to check.
    X, y, sample_weight
        For a learner only: pairs, labels and weights as for `fit`; by default the training pairs.
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
    if not isinstance(check_or_learner, NoiseCheck):
        return check_noise_model(fit_of(check_or_learner), X, y, sample_weight).plot(ax)
    if X is not None:
        raise ValueError("pairs must be passed with a learner; got a check. Pass them to check_noise_model instead.")
    return check_or_learner.plot(ax)


def _histogram_edges(squared: FloatArray, threshold: float, n_bins: int) -> tuple[FloatArray, bool]:
    """The edges of the bins, and whether pairs lie beyond the last."""
    largest = float(squared.max())
    high = min(max(float(np.quantile(squared, _SHOWN_SHARE)), 2.0 * threshold), largest)
    low = min(0.0, threshold)
    high = max(high, 1.05 * threshold, low + 1e-12)
    return np.linspace(low, high, n_bins + 1), largest > high


def _class_name(name: str, label: Any) -> str:
    return name if str(label).lower() == name else f"{name} ({shorten(label)})"
