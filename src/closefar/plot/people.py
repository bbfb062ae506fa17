"""The strictness and the flip rate of annotators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from closefar.canvas import COLOURS, PLAIN_TEXT, REFERENCE, add_legend, axes_or_new, shorten
from closefar.fitting import AnnotatorVerdict, Fit, Fitted
from closefar.plot.subjects import check_count, fit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["annotators"]

_USUAL = {AnnotatorVerdict.TYPICAL, AnnotatorVerdict.STRICTER, AnnotatorVerdict.MORE_LENIENT}


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
    ax = axes_or_new(ax, figsize=(6.4, 1.6 + 0.26 * max(len(shown), 4)))
    lows, highs = table.strictness_interval(level).T
    places = np.arange(len(shown))
    found = sorted({table.verdicts[place] for place in shown}, key=list(AnnotatorVerdict).index)
    colours = dict.fromkeys(_USUAL, COLOURS[0])
    colours |= dict(zip([verdict for verdict in found if verdict not in _USUAL], COLOURS[1:], strict=False))
    for verdict in found:
        where = np.array([table.verdicts[place] is verdict for place in shown])
        rows, colour = shown[where], colours[verdict]
        ax.hlines(places[where], lows[rows], highs[rows], color=colour, linewidth=1.5)
        label = None if verdict in _USUAL else str(verdict)
        ax.plot(table.strictness[rows], places[where], "o", color=colour, markersize=5, label=label)
    if table.flip_rates is not None:
        for place, row in enumerate(shown):
            rate = f" {table.flip_rates[row]:.0%}"
            ax.text(1.0, place, rate, transform=ax.get_yaxis_transform(), va="center", color=REFERENCE)
        ax.text(1.0, len(shown) - 0.2, " flips", transform=ax.get_yaxis_transform(), va="center", color=REFERENCE)
    ax.axvline(0.0, color=REFERENCE, linewidth=0.8, linestyle=":")
    ax.set_yticks(places, [shorten(table.names[row]) for row in shown], **PLAIN_TEXT)
    ax.set(xlabel="strictness, in the unit of the threshold", ylim=(-0.8, len(shown) - 0.2 + 0.6))
    ax.set_title(_title(len(shown), len(table), level))
    if any(verdict not in _USUAL for verdict in found):
        add_legend(ax, loc="best")
    return ax


def _title(n_shown: int, n: int, level: float) -> str:
    whose = f"{n} annotators" if n_shown == n else f"{n_shown} of {n} annotators"
    return f"Strictness of {whose} ({level:.0%} intervals)"
