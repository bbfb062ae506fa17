"""Points along the learned directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from closefar.arrays import FloatArray, to_numpy
from closefar.canvas import COLOURS, MARKERS, REFERENCE, add_legend, axes_or_new, shorten, write_instead
from closefar.fitting import Fit, Fitted
from closefar.judgements import check_pairs
from closefar.model import ZERO, Directions, Metric
from closefar.plot.subjects import check_count, fit_of, metric_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["embedding"]

# More distinct numbers than this use a colour scale; of other values, the rarer are drawn in grey.
_MOST_COLOURS = 10

_MANY_POINTS = 1000


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
    table = _check_points(learner_or_metric, metric, points)
    check_count("max_points", max_points)
    values = None if labels is None else np.asarray(labels)
    if values is not None and values.dtype.kind == "O":
        values = values.astype(str)
    if values is not None and values.shape != (len(table),):
        raise ValueError(f"there must be one label per point; got shape {values.shape} for {len(table)} points.")
    found = metric.directions(scale)
    ax = axes_or_new(ax)
    if metric.rank == 0:
        return write_instead(ax, ZERO)
    rows = np.unique(np.linspace(0, len(table) - 1, min(max_points, len(table))).round().astype(np.intp))
    shown = table[rows] if metric.origin is None else table[rows] - metric.origin
    across = shown @ found.columns[:, :2]
    if metric.rank == 1:
        across = np.column_stack([across[:, 0], _heights(len(rows))])
    _scatter(ax, across, None if values is None else values[rows])
    _frame(ax, metric, found)
    if len(rows) < len(table):
        ax.set_title(f"{len(rows):,} of {len(table):,} points", loc="right")
    return ax


def _check_points(learner_or_metric: Metric | Fit | Fitted, metric: Metric, points: Any) -> FloatArray:
    if not isinstance(learner_or_metric, Metric):
        table: FloatArray = to_numpy(check_pairs(fit_of(learner_or_metric).columns, points, fitting=False))
    else:
        table = np.asarray(points, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != len(metric.factor):
        raise ValueError(f"points must be an (n, {len(metric.factor)}) array; got shape {table.shape}.")
    return table


def _heights(n: int) -> FloatArray:
    """Reproducible heights between -1 and 1 that spread points on a line."""
    golden = 0.5 * (np.sqrt(5.0) - 1.0)
    heights: FloatArray = 2.0 * np.mod(golden * np.arange(1, n + 1), 1.0) - 1.0
    return heights


def _scatter(ax: Axes, across: FloatArray, labels: Any) -> None:
    many = len(across) > _MANY_POINTS
    look: dict[str, Any] = {"s": 8 if many else 20, "alpha": 0.7, "linewidths": 0, "rasterized": many}
    x, y = across.T
    if labels is None:
        ax.scatter(x, y, color=COLOURS[0], **look)
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
        chosen, name = numbers == number, shorten(values[number])
        colour, marker = COLOURS[order % len(COLOURS)], MARKERS[order % len(MARKERS)]
        ax.scatter(x[chosen], y[chosen], color=colour, marker=marker, label=name, **look)
    add_legend(ax, loc="upper left", bbox_to_anchor=(1.0, 1.0), markerscale=2.0 if many else 1.2)


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
    if metric.thresholds and metric.thresholds[0] > 0:
        _show_threshold(ax, metric, float(np.sqrt(metric.thresholds[0])))


def _show_threshold(ax: Axes, metric: Metric, length: float) -> None:
    if metric.origin is None:
        from mpl_toolkits.axes_grid1.anchored_artists import AnchoredSizeBar  # type: ignore[import-untyped]

        # Above the frame, where no point can hide it.
        place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "bbox_transform": ax.transAxes}
        look = {"frameon": False, "color": REFERENCE, "label_top": True, "sep": 4, "borderpad": 0.2}
        which = "threshold" if len(metric.thresholds) == 1 else f"lowest of {len(metric.thresholds)} thresholds"
        ax.add_artist(AnchoredSizeBar(ax.transData, length, f"distance at the {which}", **place, **look))
        return
    line: dict[str, Any] = {"color": REFERENCE, "linestyle": "--", "linewidth": 1.0}
    ax.plot(0.0, 0.0, "+", color=REFERENCE, markersize=10)
    if metric.rank == 1:
        for end in (-length, length):
            ax.axvline(end, **line)
    elif metric.rank == 2:  # at higher ranks, directions that are not shown matter as well
        angle = np.linspace(0.0, 2.0 * np.pi, 181)
        ax.plot(length * np.cos(angle), length * np.sin(angle), **line)
