"""The spectrum of a metric, and the cost of truncating it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from closefar.canvas import COLOURS, add_legend, axes_or_new, in_percent, write_instead
from closefar.fitting import Fit, Fitted
from closefar.model import ZERO, Metric
from closefar.plot.subjects import fit_of, metric_of
from closefar.questions import TruncationPath, truncation_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["spectrum", "truncation_path"]

_MOST_MARKED = 30
_WIDE = 4.0  # if losses differ by at least this factor, their axis is logarithmic

_LOSSES = {
    "loss": ("truncated", COLOURS[0], "o-"),
    "refit_loss": ("truncated and refitted", COLOURS[0], "o--"),
    "held_out_loss": ("truncated, held out", COLOURS[1], "s-"),
    "refit_held_out_loss": ("truncated and refitted, held out", COLOURS[1], "s--"),
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
    ax = axes_or_new(ax)
    total = float(found.values.sum())
    if total == 0.0:
        return write_instead(ax, ZERO)
    numbers = np.arange(1, metric.rank + 1)
    ax.bar(numbers, found.values, color=COLOURS[0], label="each direction")
    marker = "o" if metric.rank <= _MOST_MARKED else None
    ax.plot(numbers, np.cumsum(found.values), color=COLOURS[1], marker=marker, label="cumulative")

    def to_share(value: Any) -> Any:
        return value / total

    def to_value(share: Any) -> Any:
        return share * total

    shares = ax.secondary_yaxis("right", functions=(to_share, to_value))
    shares.set_ylabel("cumulative share")
    in_percent(shares.yaxis)
    _count_along(ax, int(numbers[0]), int(numbers[-1]))
    ax.set(
        xlabel="direction",
        ylabel=found.measure,
        title=f"Rank {metric.rank} of {len(metric.factor)} features",
    )
    add_legend(ax, loc="center right")
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
    if not isinstance(path_or_learner, TruncationPath):
        fit = fit_of(path_or_learner)
        others = None if held_out is None else fit.read(*held_out)
        path = truncation_of(fit, fit.training(), scale=scale, held_out=others)
    elif scale is None and held_out is None:
        path = path_or_learner
    else:
        raise ValueError(
            "scale and held_out must be passed with a learner; got a path with "
            f"scale={path_or_learner.scale!r}. Pass them to learner.truncation_path instead."
        )
    ax = axes_or_new(ax)
    largest, least = 0.0, np.inf
    for name, (label, colour, style) in _LOSSES.items():
        points = [(step.k, getattr(step, name)) for step in path if getattr(step, name) is not None]
        if points:
            ranks, losses = zip(*points, strict=True)
            ax.plot(ranks, losses, style, color=colour, markersize=5, label=label)
            largest, least = max(largest, *losses), min(least, *losses)
    if largest > _WIDE * least > 0.0:
        _widen(ax)
    _count_along(ax, 0, len(path) - 1)
    where = "scale of the data" if path.scale == "data" else "units of the data"
    ax.set(xlabel=f"rank (strongest directions in the {where})", ylabel="loss", title="Cost of truncation")
    add_legend(ax)
    return ax


def _widen(ax: Axes) -> None:
    """Use a logarithmic axis with plain numbers: a truncated metric can be worse than a constant by any factor."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def _count_along(ax: Axes, first: int, last: int) -> None:
    """Show only integer ticks on the x axis."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set_xlim(first - 0.6, last + 0.6)
