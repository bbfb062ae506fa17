"""The convergence of a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from closefar.canvas import COLOURS, REFERENCE, add_legend, axes_or_new
from closefar.fitting import Fit, Fitted
from closefar.plot.subjects import fit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["convergence"]


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
    ax = axes_or_new(ax)
    twin = ax.twinx()
    twin.set_label("gap")
    twin.spines["top"].set_visible(False)
    handles = ax.plot(passes, objective, "o-", color=COLOURS[0], markersize=4, label="objective")
    if not np.any(fit.flip_rate):
        above = objective - certificate.lower_bound
        handles += twin.plot(passes, _positive(above), color=COLOURS[1], label="gap to the final bound")
    handles += twin.plot(passes, _positive(gap), "s", color=COLOURS[1], markersize=5, label="gap proven at this step")
    if tol > 0:
        handles.append(twin.axhline(tol, color=REFERENCE, linewidth=0.8, linestyle="--", label="tol"))
    twin.set(ylabel="gap", yscale="log")
    twin.yaxis.set_minor_formatter("")
    low, high = twin.get_ylim()
    twin.set_ylim(low / 3.0, 3.0 * high)
    ax.set(xlabel="passes over the data", ylabel="objective", xlim=(0.0, None))
    word = certificate.outcome.capitalize()
    ax.set_title(f"{word}: proven gap {certificate.gap:.1e}" if certificate.lower_bound > 0 else word)
    # Below the axis: inside, its placement would ignore the lines of the twin.
    add_legend(ax, handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    return ax


def _positive(values: np.ndarray) -> np.ndarray:
    """Replace values that a logarithmic axis can't show."""
    return np.where(np.isfinite(values) & (values > 0.0), values, np.nan)
