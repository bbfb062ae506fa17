"""The loadings of the learned directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from closefar import model
from closefar.arrays import FloatArray
from closefar.canvas import PLAIN_TEXT, axes_or_new, shorten, write_instead
from closefar.fitting import Fit, Fitted
from closefar.model import ZERO, Metric
from closefar.plot.subjects import check_count, fit_of, metric_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["loadings"]

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
    spread = _spread(learner_or_metric, metric) if spread is None else np.asarray(spread, dtype=np.float64)
    if spread.shape != (len(metric.factor),) or not np.all(np.isfinite(spread) & (spread >= 0)):
        raise ValueError(f"spread must be {len(metric.factor)} finite numbers >= 0; got shape {spread.shape}.")
    if metric.rank == 0:
        return write_instead(axes_or_new(ax), ZERO)
    weights = model.loadings(found.columns[:, :n_directions], spread)
    order = np.argsort(-np.abs(weights).max(axis=1), kind="stable")[:n_features]
    rows = np.sort(order)
    shares, measure = found.shares[: weights.shape[1]], found.measure
    ax = axes_or_new(ax, figsize=(3.4 + 0.75 * max(weights.shape[1], 3), 1.6 + 0.28 * max(len(rows), 4)))
    _draw_heatmap(ax, weights[rows], [shorten(metric.column_names[row]) for row in rows], shares, measure)
    hidden = len(weights) - len(rows)
    ax.set_title("Loadings" + (f", the {len(rows)} largest of {len(weights)} features" if hidden else ""))
    return ax


def _spread(learner_or_metric: Metric | Fit | Fitted, metric: Metric) -> FloatArray:
    if isinstance(learner_or_metric, Metric):
        return np.ones(len(metric.factor))
    return np.array(fit_of(learner_or_metric).statistics.column_scales)


def _draw_heatmap(ax: Axes, weights: FloatArray, names: list[str], shares: FloatArray, measure: str) -> None:
    image = ax.imshow(weights, aspect="auto", cmap="RdBu_r", vmin=-1.0, vmax=1.0)
    ax.figure.colorbar(image, ax=ax, label="loading")
    ax.set_yticks(range(len(names)), names, **PLAIN_TEXT)
    ax.set_xticks(range(weights.shape[1]), [f"{number}\n{share:.0%}" for number, share in enumerate(shares, start=1)])
    ax.set_xlabel(f"direction, and its share of the {measure}")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    if weights.size <= _MOST_NUMBERED:
        for (row, column), weight in np.ndenumerate(weights):
            colour = "white" if abs(weight) > 0.6 else "black"
            ax.text(column, row, f"{weight:+.2f}", ha="center", va="center", fontsize="small", color=colour)
