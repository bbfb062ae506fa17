"""Plots of a fit; each function draws in one matplotlib Axes and returns it.

They need the extra ``closefar[plot]``.  `ax` is the Axes to draw in; by default each function
creates a new figure.  None of them shows a figure or changes matplotlib's settings.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from closefar import model
from closefar import plot_style as style
from closefar.arrays import BoolArray, FloatArray, to_numpy
from closefar.fitting import AnnotatorVerdict, Fit, Fitted, score
from closefar.judgements import Kind, check_pairs
from closefar.model import ZERO, Directions, Metric, Scores
from closefar.questions import NoiseCheck, TruncationPath, calibrate, check_noise_model, sides_of, truncation_of

__all__ = ["annotators", "calibration", "convergence", "embedding", "loadings", "margins", "noise_check", "spectrum"]
__all__ += ["truncation_path"]

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# ---------------------------------------------------------------------------------------------------------------------
# The subjects of plots: a metric, a fit, or labelled pairs.


def fit_of(learner: Fit | Fitted) -> Fit:
    """Return the fit of a fitted learner."""
    if not (isinstance(learner, Fit) or hasattr(type(learner), "metric_")):
        raise TypeError(f"this plot needs a fitted LinearMetricLearner; got {type(learner).__name__}.")
    return Fit.of(learner)


def metric_of(learner_or_metric: Metric | Fit | Fitted) -> Metric:
    """Return the metric, or that of a fitted learner."""
    return learner_or_metric if isinstance(learner_or_metric, Metric) else fit_of(learner_or_metric).metric


def check_count(name: str, value: Any) -> None:
    if not (isinstance(value, numbers.Integral) and int(value) >= 1):
        raise ValueError(f"{name} must be a whole number >= 1; got {value!r}.")


def _counted(scored: Scores, X: Any) -> str:
    """The number of pairs, which are the training pairs if none were given."""
    return f"{len(scored):,} {'training ' if X is None else ''}{scored.judgements.kind.noun}s"


def scored_by(fit: Fit, X: Any, y: Any, sample_weight: Any) -> Scores:
    """The given pairs, or the training pairs, scored by the fit, without pairs of weight zero."""
    return score(fit, fit.read_or_training(X, y, sample_weight).counted())


# ---------------------------------------------------------------------------------------------------------------------
# The loadings of the learned directions.


_MOST_NUMBERED = 80  # the largest number of heatmap cells in which values are printed


def loadings(
    learner_or_metric: Metric | Fit | Fitted,
    *,
    n_directions: int = 5,
    n_features: int = 20,
    scale: str | None = None,
    spread: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a heatmap of the loadings of the leading directions.

    A loading is the weight of a feature in a direction, times the feature's `spread`, so that
    features with different units are comparable.  The squared loadings of a direction sum to one;
    the sign of a direction is arbitrary, but the same as in `embedding`.

    Parameters
    ----------
    learner_or_metric : LinearMetricLearner or Metric
        A fitted learner, or a metric.
    n_directions : int, default=5
        The largest number of directions to show, numbered as the columns of `transform`.
    n_features : int, default=20
        The largest number of features to show, those with the largest loadings.
    scale : {"data", "units"}, optional
        The scale that orders the directions, as for `Metric.truncate`.
    spread : array of d numbers >= 0, optional
        The typical size of a difference in each feature.  The default for a learner is the root mean
        square of its training differences (with a learned origin, the standard deviation of its
        points); for a metric it is one, in the units of the data.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> import closefar as cf
    >>> metric = cf.Metric.from_factor([[3.0], [4.0]], 1.0, feature_names=("age", "dose"))
    >>> ax = cf.plot.loadings(metric)
    >>> ax.images[0].get_array().tolist()
    [[0.6], [0.8]]
    """
    metric = metric_of(learner_or_metric)
    check_count("n_directions", n_directions)
    check_count("n_features", n_features)
    found = metric.directions(scale)
    if spread is None:
        spread = np.ones(len(metric.factor))
        if not isinstance(learner_or_metric, Metric):
            spread = fit_of(learner_or_metric).statistics.column_scales
    spread = np.asarray(spread, dtype=np.float64)
    if spread.shape != (len(metric.factor),) or not np.all(np.isfinite(spread) & (spread >= 0)):
        raise ValueError(f"spread must be {len(metric.factor)} finite numbers >= 0; got shape {spread.shape}.")
    if metric.rank == 0:
        return style.show_message(style.axes_or_new(ax), ZERO)
    weights = model.loadings(found.columns[:, :n_directions], spread)
    n_all = len(weights)
    rows = np.sort(np.argsort(-np.abs(weights).max(axis=1), kind="stable")[:n_features])
    weights = weights[rows]
    n_shown, k = weights.shape
    ax = style.axes_or_new(ax, figsize=(3.4 + 0.75 * max(k, 3), 1.6 + 0.28 * max(n_shown, 4)))
    image = ax.imshow(weights, aspect="auto", cmap="RdBu_r", vmin=-1.0, vmax=1.0)
    ax.figure.colorbar(image, ax=ax, label="loading")
    ax.set_yticks(range(n_shown), [style.shorten(metric.column_names[row]) for row in rows], **style.PLAIN_TEXT)
    ax.set_xticks(range(k), [f"{number}\n{share:.0%}" for number, share in enumerate(found.shares[:k], start=1)])
    ax.set_xlabel(f"direction, and its share of the {found.measure}")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    if weights.size <= _MOST_NUMBERED:
        for (row, column), weight in np.ndenumerate(weights):
            colour = "white" if abs(weight) > 0.6 else "black"
            ax.text(column, row, f"{weight:+.2f}", ha="center", va="center", fontsize="small", color=colour)
    ax.set_title("Loadings" + (f", the {n_shown} largest of {n_all} features" if n_shown < n_all else ""))
    return ax


# ---------------------------------------------------------------------------------------------------------------------
# Labels against the fit: distances and threshold, calibration, and the noise model.


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

    Levels have a histogram each, and all thresholds are shown.  Of comparisons it is the difference of both squared
    distances, positive where the metric agrees with the answer.  For annotators, distances are less their strictness.

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
    is_compared, thresholds = fit.kind is Kind.COMPARISONS, fit.thresholds or (0.0,)
    values = scored.margins[:, 0] + thresholds[0]
    if is_compared:
        values = np.where(scored.judgements.is_far, values, -values)
    low, high = style.range_of_distances(values, fit.thresholds)
    is_cut = bool(np.any((values < low) | (values > high)))
    edges, shown, weights = np.linspace(low, high, n_bins + 1), np.clip(values, low, high), scored.judgements.weights
    ax = style.axes_or_new(ax)
    for chosen, label, colour in _answers(fit, scored):
        counts = np.histogram(shown[chosen], edges, weights=weights[chosen])[0]
        ax.stairs(counts, edges, fill=True, color=colour, alpha=0.35)
        ax.stairs(counts, edges, color=colour, linewidth=1.5, label=label)
    name = "zero" if is_compared else "threshold" if len(thresholds) == 1 else "thresholds"
    for number, threshold in enumerate(thresholds):
        ax.axvline(threshold, color=style.REFERENCE, linestyle="--", label=name if number == 0 else "_hidden")
    what, beyond = "squared distance", "last bin: all larger distances"
    if is_compared:
        what, beyond = "difference of squared distances", "outer bins: all larger differences"
    noun = fit.kind.noun
    ax.set(
        xlabel=what + (f" ({beyond})" if is_cut else ""),
        ylabel=f"number of {noun}s" if scored.judgements.sample_weight is None else f"weight of {noun}s",
        title=f"Accuracy {scored.accuracy:.1%} ({_counted(scored, X)})",
        xlim=(low, high),
    )
    style.add_legend(ax)
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
    Levels have a line for each threshold, of that level or a higher one; comparisons are turned so that the likelier
    answer comes first.

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
    fit = fit_of(learner)
    scored = scored_by(fit, X, y, sample_weight)
    ax = style.axes_or_new(ax)
    ax.plot([0, 1], [0, 1], color=style.REFERENCE, linewidth=0.8, linestyle="--")
    levels, answers = fit.sides.classes.tolist(), "these answers" if fit.kind is Kind.COMPARISONS else "these labels"
    for number, (colour, each) in enumerate(zip(_colours(max(len(levels) - 1, 1)), sides_of(scored), strict=False)):
        bins = calibrate(each, n_bins)
        predicted, observed = [row.predicted for row in bins], [row.observed for row in bins]
        ends = [row.low for row in bins], [row.high for row in bins]
        label = f"{style.shorten(levels[number + 1])} or higher" if scored.is_graded else answers
        ax.vlines(predicted, *ends, color=colour, linewidth=1.5, label="95% interval" if number == 0 else "_hidden")
        ax.plot(predicted, observed, "o-", color=colour, label=label)
    what, share = "far", "labelled far"
    if scored.is_graded:
        what, share = "the level or a higher one", "of the level or a higher one"
    elif fit.kind is Kind.COMPARISONS:
        what, share = "the likelier answer", "with that answer"
    ax.set(
        xlabel=f"predicted probability of {what}",
        ylabel=f"share {share}",
        title=f"Calibration, {_counted(scored, X)}",
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
    )
    style.in_percent(ax.xaxis)
    style.in_percent(ax.yaxis)
    style.add_legend(ax, loc="upper left")
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


def _answers(fit: Fit, scored: Scores) -> Iterator[tuple[BoolArray, str, Any]]:
    """Which judgements have each label, its name and its colour; of comparisons, whether the metric agrees."""
    codes, levels = scored.judgements.codes, fit.sides.classes.tolist()
    if fit.kind is Kind.COMPARISONS:
        yield scored.is_right, "agreed with", style.CLOSE
        yield ~scored.is_right, "contradicted", style.FAR
    elif scored.is_graded:
        for code, (level, colour) in enumerate(zip(levels, _colours(len(levels)), strict=True)):
            yield codes == code, style.shorten(level), colour
    else:
        sides = ("close", fit.sides.close, style.CLOSE), ("far", fit.sides.far, style.FAR)
        for code, (name, label, colour) in enumerate(sides):
            yield codes == code, name if str(label).lower() == name else f"{name} ({style.shorten(label)})", colour


def _colours(n: int) -> list[Any]:
    """Of levels: a scale; of one alone, the first colour."""
    if n == 1:
        return [style.COLOURS[0]]
    from matplotlib import colormaps

    return [colormaps["viridis"](place) for place in np.linspace(0.0, 0.9, n)]


# ---------------------------------------------------------------------------------------------------------------------
# The strictness and the flip rate of annotators.


_USUAL = (AnnotatorVerdict.TYPICAL, AnnotatorVerdict.STRICTER, AnnotatorVerdict.MORE_LENIENT)


def annotators(learner: Fit | Fitted, *, n_annotators: int = 40, level: float = 0.95, ax: Axes | None = None) -> Axes:
    """Plot the strictness of each annotator with its interval, the strictest at the top.

    Those who answer at random, the other way round, or too rarely to tell have a colour of their own.  If each has a
    flip rate, it is written beside the interval.

    Parameters
    ----------
    learner : LinearMetricLearner or OrdinalMetricLearner
        A learner that was fitted with `annotators`.
    n_annotators : int, default=40
        The largest number of annotators to show: those that are odd, and those with the most judgements.
    level : float, default=0.95
        The level of the intervals.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> import closefar as cf
    >>> data = cf.datasets.make_judgements(900, 3, n_annotators=3, strictness_spread=0.3, random_state=0)
    >>> learner = cf.LinearMetricLearner().fit(data.tuples, data.labels, annotators=data.annotators)
    >>> ax = cf.plot.annotators(learner)
    >>> ax.get_xlabel()
    'strictness, in the unit of the threshold'
    """
    check_count("n_annotators", n_annotators)
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be between 0 and 1; got {level!r}.")
    table = fit_of(learner).annotators
    if table is None:
        raise ValueError("this plot needs a fit with annotators; got one without. Fit with annotators=ids.")
    is_usual = np.array([verdict in _USUAL for verdict in table.verdicts])
    shown = np.lexsort((-table.judgements, is_usual))[:n_annotators]
    shown = shown[np.argsort(table.strictness[shown], kind="stable")]
    verdicts, places = [table.verdicts[row] for row in shown], np.arange(len(shown))
    odd = [each for each in AnnotatorVerdict if each in verdicts and each not in _USUAL]
    ax = style.axes_or_new(ax, figsize=(6.4, 1.6 + 0.26 * max(len(shown), 4)))
    lows, highs = table.strictness_interval(level).T
    for colour, group in zip(style.COLOURS, [_USUAL, *odd], strict=False):
        where = [verdict in _USUAL if group is _USUAL else verdict is group for verdict in verdicts]
        at, rows, label = places[where], shown[where], None if group is _USUAL else str(group)
        ax.hlines(at, lows[rows], highs[rows], color=colour, linewidth=1.5)
        ax.plot(table.strictness[rows], at, "o", color=colour, markersize=5, label=label)
    if table.flip_rates is not None:
        rates = [f" {rate:.0%}" for rate in table.flip_rates[shown]]
        for place, text in zip([*places, len(shown) - 0.2], [*rates, " flips"], strict=True):
            ax.text(1.0, place, text, transform=ax.get_yaxis_transform(), va="center", color=style.REFERENCE)
    ax.axvline(0.0, color=style.REFERENCE, linewidth=0.8, linestyle=":")
    ax.set_yticks(places, [style.shorten(table.names[row]) for row in shown], **style.PLAIN_TEXT)
    ax.set(xlabel="strictness, in the unit of the threshold", ylim=(-0.8, len(shown) - 0.2 + 0.6))
    whose = f"{len(table)} annotators" if len(shown) == len(table) else f"{len(shown)} of {len(table)} annotators"
    ax.set_title(f"Strictness of {whose} ({level:.0%} intervals)")
    if odd:
        style.add_legend(ax, loc="best")
    return ax


# ---------------------------------------------------------------------------------------------------------------------
# Points along the learned directions.


# More distinct numbers than this use a colour scale; of other values, the rarer are drawn in grey.
_MOST_COLOURS = 10


def embedding(
    learner_or_metric: Metric | Fit | Fitted,
    points: Any,
    labels: Any = None,
    *,
    scale: str | None = None,
    max_points: int = 5000,
    ax: Axes | None = None,
) -> Axes:
    """Plot points along directions 1 and 2 of `transform`, where the metric is Euclidean.

    A bar shows the distance at the threshold: pairs farther apart are far (with levels, at the lowest threshold; a
    metric learned from comparisons has none).  For a metric with an
    origin, the origin is shown instead.  If M has rank 1, the vertical position is arbitrary.

    Parameters
    ----------
    learner_or_metric : LinearMetricLearner or Metric
        A fitted learner, or a metric.
    points : array or frame of shape (n, d)
    labels : array of n values, optional
        The values that colour the points.  More than ten distinct numbers use a colour scale; of other
        values, the ten most frequent have a colour and a marker each.
    scale : {"data", "units"}, optional
        The scale that orders the directions, as for `Metric.truncate`.
    max_points : int, default=5000
        The largest number of points to draw, evenly spaced among the rows.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> import closefar as cf
    >>> metric = cf.Metric.from_matrix([[4.0, 0.0], [0.0, 1.0]], threshold=1.0)
    >>> ax = cf.plot.embedding(metric, [[1.0, 0.0], [0.0, 1.0]])
    >>> ax.collections[0].get_offsets().tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    """
    metric = metric_of(learner_or_metric)
    if isinstance(learner_or_metric, Metric):
        table = np.asarray(points, dtype=np.float64)
    else:
        table = to_numpy(check_pairs(fit_of(learner_or_metric).columns, points, fitting=False))
    if table.ndim != 2 or table.shape[1] != len(metric.factor):
        raise ValueError(f"points must be an (n, {len(metric.factor)}) array; got shape {table.shape}.")
    check_count("max_points", max_points)
    values = None if labels is None else np.asarray(labels)
    if values is not None and values.dtype.kind == "O":
        values = values.astype(str)
    if values is not None and values.shape != (len(table),):
        raise ValueError(f"there must be one label per point; got shape {values.shape} for {len(table)} points.")
    found = metric.directions(scale)
    ax = style.axes_or_new(ax)
    if metric.rank == 0:
        return style.show_message(ax, ZERO)
    rows = np.unique(np.linspace(0, len(table) - 1, min(max_points, len(table))).round().astype(np.intp))
    shown = table[rows] if metric.origin is None else table[rows] - metric.origin
    across = shown @ found.columns[:, :2]
    if metric.rank == 1:  # reproducible heights between -1 and 1 that spread points on a line
        heights = 2.0 * np.mod(0.5 * (np.sqrt(5.0) - 1.0) * np.arange(1, len(rows) + 1), 1.0) - 1.0
        across = np.column_stack([across[:, 0], heights])
    _scatter(ax, across, None if values is None else values[rows])
    _frame(ax, metric, found)
    if len(rows) < len(table):
        ax.set_title(f"{len(rows):,} of {len(table):,} points", loc="right")
    return ax


def _scatter(ax: Axes, across: FloatArray, labels: Any) -> None:
    many = len(across) > 1000
    look: dict[str, Any] = {"s": 8 if many else 20, "alpha": 0.7, "linewidths": 0, "rasterized": many}
    x, y = across.T
    if labels is None:
        ax.scatter(x, y, color=style.COLOURS[0], **look)
        return
    values, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if labels.dtype.kind in "iuf" and len(values) > _MOST_COLOURS:
        drawn = ax.scatter(x, y, c=labels, cmap="viridis", **look)
        ax.figure.colorbar(drawn, ax=ax, label="label")
        return
    frequent = np.sort(np.argsort(-counts, kind="stable")[:_MOST_COLOURS])
    others = ~np.isin(numbers, frequent)
    if others.any():
        ax.scatter(x[others], y[others], color="0.7", label=f"{len(values) - len(frequent)} others", **look)
    for order, number in enumerate(frequent):
        chosen, name = numbers == number, style.shorten(values[number])
        colour, marker = style.COLOURS[order % len(style.COLOURS)], style.MARKERS[order % len(style.MARKERS)]
        ax.scatter(x[chosen], y[chosen], color=colour, marker=marker, label=name, **look)
    style.add_legend(ax, loc="upper left", bbox_to_anchor=(1.0, 1.0), markerscale=2.0 if many else 1.2)


def _frame(ax: Axes, metric: Metric, found: Directions) -> None:
    """Label the axes, give both the same scale, and show the distance at the threshold."""
    shares = found.shares
    ax.set_xlabel(f"direction 1 ({shares[0]:.0%} of the {found.measure})")
    if metric.rank == 1:
        ax.set(ylabel="(rank 1: vertical position is arbitrary)", yticks=[], ylim=(-2.0, 2.0))
    else:
        ax.set_ylabel(f"direction 2 ({shares[1]:.0%})")
        shared = len(ax.get_shared_x_axes().get_siblings(ax)) > 1
        ax.set_aspect("equal", adjustable="box" if shared else "datalim")
    if not metric.thresholds or metric.thresholds[0] <= 0:
        return
    length = float(np.sqrt(metric.thresholds[0]))
    if metric.origin is None:
        from mpl_toolkits.axes_grid1.anchored_artists import AnchoredSizeBar  # type: ignore[import-untyped]

        # Above the frame, where no point can hide it.
        place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "bbox_transform": ax.transAxes}
        look = {"frameon": False, "color": style.REFERENCE, "label_top": True, "sep": 4, "borderpad": 0.2}
        which = "threshold" if len(metric.thresholds) == 1 else f"lowest of {len(metric.thresholds)} thresholds"
        ax.add_artist(AnchoredSizeBar(ax.transData, length, f"distance at the {which}", **place, **look))
        return
    ax.plot(0.0, 0.0, "+", color=style.REFERENCE, markersize=10)
    line: dict[str, Any] = {"color": style.REFERENCE, "linestyle": "--", "linewidth": 1.0}
    if metric.rank == 1:
        ax.axvline(-length, **line)
        ax.axvline(length, **line)
    elif metric.rank == 2:  # at higher ranks, directions that are not shown matter as well
        angle = np.linspace(0.0, 2.0 * np.pi, 181)
        ax.plot(length * np.cos(angle), length * np.sin(angle), **line)


# ---------------------------------------------------------------------------------------------------------------------
# The spectrum of a metric, and the cost of truncating it.


_WIDE = 4.0  # if losses differ by at least this factor, their axis is logarithmic

_LOSSES = {
    "loss": ("truncated", style.COLOURS[0], "o-"),
    "refit_loss": ("truncated and refitted", style.COLOURS[0], "o--"),
    "held_out_loss": ("truncated, held out", style.COLOURS[1], "s-"),
    "refit_held_out_loss": ("truncated and refitted, held out", style.COLOURS[1], "s--"),
}


def spectrum(learner_or_metric: Metric | Fit | Fitted, *, scale: str | None = None, ax: Axes | None = None) -> Axes:
    """Plot the mean squared distance along each direction, and its cumulative share on the right axis.

    Parameters
    ----------
    learner_or_metric : LinearMetricLearner or Metric
        A fitted learner, or a metric.
    scale : {"data", "units"}, optional
        As for `Metric.truncate`.  With "units", or for a metric without the scale of the training
        pairs, the bars are the eigenvalues of M.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> import closefar as cf
    >>> metric = cf.Metric([[2.0, 0.0], [0.0, 1.0]], threshold=1.0)
    >>> ax = cf.plot.spectrum(metric)
    >>> [float(bar.get_height()) for bar in ax.patches]
    [4.0, 1.0]
    """
    metric = metric_of(learner_or_metric)
    found = metric.directions(scale)
    ax = style.axes_or_new(ax)
    total = float(found.values.sum())
    if total == 0.0:
        return style.show_message(ax, ZERO)
    numbers = np.arange(1, metric.rank + 1)
    ax.bar(numbers, found.values, color=style.COLOURS[0], label="each direction")
    marker = "o" if metric.rank <= 30 else None  # more would touch each other
    ax.plot(numbers, np.cumsum(found.values), color=style.COLOURS[1], marker=marker, label="cumulative")
    in_shares = (lambda value: np.divide(value, total), lambda share: np.multiply(share, total))
    shares = ax.secondary_yaxis("right", functions=in_shares)
    shares.set_ylabel("cumulative share")
    style.in_percent(shares.yaxis)
    ax.locator_params(axis="x", integer=True, min_n_ticks=1)
    ax.set_xlim(0.4, metric.rank + 0.6)
    ax.set(xlabel="direction", ylabel=found.measure, title=f"Rank {metric.rank} of {len(metric.factor)} features")
    style.add_legend(ax, loc="center right")
    return ax


def truncation_path(
    path_or_learner: TruncationPath | Fit | Fitted,
    *,
    scale: str | None = None,
    held_out: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the loss of the metric truncated to each rank, and of the best metric in the retained directions.

    Parameters
    ----------
    path_or_learner : TruncationPath or LinearMetricLearner
        The result of `LinearMetricLearner.truncation_path`, or a fitted learner with its training
        pairs, which is then refitted for each rank.
    scale, held_out
        For a learner only; as for `LinearMetricLearner.truncation_path`.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> import closefar as cf
    >>> data = cf.datasets.make_pairs(2000, 4, rank=2, random_state=0)
    >>> learner = cf.LinearMetricLearner().fit(data.pairs, data.labels)
    >>> ax = cf.plot.truncation_path(learner)
    >>> [line.get_label() for line in ax.lines]
    ['truncated', 'truncated and refitted']
    """
    path = path_or_learner
    if not isinstance(path, TruncationPath):
        fit = fit_of(path)
        others = None if held_out is None else fit.read(*held_out)
        path = truncation_of(fit, fit.training(), scale=scale, held_out=others)
    elif scale is not None or held_out is not None:
        raise ValueError(
            "scale and held_out must be passed with a learner; got a path with "
            f"scale={path.scale!r}. Pass them to learner.truncation_path instead."
        )
    ax = style.axes_or_new(ax)
    largest, least = 0.0, np.inf
    for name, (label, colour, form) in _LOSSES.items():
        points = [(step.k, getattr(step, name)) for step in path if getattr(step, name) is not None]
        if points:
            ranks, losses = zip(*points, strict=True)
            ax.plot(ranks, losses, form, color=colour, markersize=5, label=label)
            largest, least = max(largest, *losses), min(least, *losses)
    if largest > _WIDE * least > 0.0:
        # A truncated metric can be worse than a constant by any factor.
        ax.set_yscale("log", subs=[2.0, 5.0])
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("{x:g}")
    ax.locator_params(axis="x", integer=True, min_n_ticks=1)
    ax.set_xlim(-0.6, len(path) - 0.4)
    where = "scale of the data" if path.scale == "data" else "units of the data"
    ax.set(xlabel=f"rank (strongest directions in the {where})", ylabel="loss", title="Cost of truncation")
    style.add_legend(ax)
    return ax


def convergence(learner: Fit | Fitted, *, ax: Axes | None = None) -> Axes:
    """Plot the objective and its proven gap to the minimum against passes over the data.

    The line of the gap is the objective minus the final lower bound, which is valid for every step;
    a marker is a gap that was proven at that step.  (With flips there is only the last marker, since
    the certificate is that of the last step.)

    Parameters
    ----------
    learner : LinearMetricLearner
        A fitted learner.
    ax : Axes, optional
        The Axes of the objective.  The gap is drawn in a twin, ``ax.figure.axes[-1]``, with a
        logarithmic axis on the right.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import closefar as cf
    >>> data = cf.datasets.make_pairs(2000, 4, rank=2, random_state=0)
    >>> learner = cf.LinearMetricLearner().fit(data.pairs, data.labels)
    >>> ax = cf.plot.convergence(learner)
    >>> ax.figure.axes[-1].get_yscale()
    'log'
    """
    fit = fit_of(learner)
    if not fit.history:
        raise ValueError(
            "this learner has no history_: it was loaded from a model file, which does not store the steps of the "
            "fit. Fit it again."
        )
    passes, objective, gap = np.array([(step.passes, step.objective, step.gap) for step in fit.history]).T
    certificate, tol = fit.certificate, fit.settings.tol
    ax = style.axes_or_new(ax)
    twin = ax.twinx()
    twin.set_label("gap")
    twin.spines["top"].set_visible(False)
    handles = ax.plot(passes, objective, "o-", color=style.COLOURS[0], markersize=4, label="objective")
    if not np.any(fit.flip_rate):
        above = objective - certificate.lower_bound
        handles += twin.plot(passes, _positive(above), color=style.COLOURS[1], label="gap to the final bound")
    handles += twin.plot(
        passes, _positive(gap), "s", color=style.COLOURS[1], markersize=5, label="gap proven at this step"
    )
    if tol > 0:
        handles.append(twin.axhline(tol, color=style.REFERENCE, linewidth=0.8, linestyle="--", label="tol"))
    twin.set(ylabel="gap", yscale="log")
    twin.yaxis.set_minor_formatter("")
    low, high = twin.get_ylim()
    twin.set_ylim(low / 3.0, 3.0 * high)
    ax.set(xlabel="passes over the data", ylabel="objective", xlim=(0.0, None))
    word = certificate.outcome.capitalize()
    ax.set_title(f"{word}: proven gap {certificate.gap:.1e}" if certificate.lower_bound > 0 else word)
    # Below the axis: inside, its placement would ignore the lines of the twin.
    style.add_legend(ax, handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    return ax


def _positive(values: np.ndarray) -> np.ndarray:
    """Replace values that a logarithmic axis can't show."""
    return np.where(np.isfinite(values) & (values > 0.0), values, np.nan)
