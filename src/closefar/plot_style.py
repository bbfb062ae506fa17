"""Axes to draw in, and the look and the ranges that all plots share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["CLOSE", "COLOURS", "FAR", "MARKERS", "PLAIN_TEXT", "REFERENCE", "add_legend", "axes_or_new", "in_percent"]
__all__ += ["range_of_distances", "shorten", "show_message"]

# Okabe and Ito's colours, which the colour-blind tell apart, with a wine red for their yellow, too pale on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # coprime to the colours, so that pairs repeat late
CLOSE, FAR = COLOURS[:2]
REFERENCE = "#4a4f57"

# For text that comes from data: a dollar sign in it is a dollar sign.
PLAIN_TEXT: dict[str, Any] = {"parse_math": False, "usetex": False}

_LONGEST_LABEL = 28  # letters beside an axis
_SHOWN_SHARE = 0.99  # of the distances are within the axis, unless it would be longer than ten thresholds


def axes_or_new(ax: Axes | None, **figure_options: Any) -> Axes:
    """Return the Axes that was given, or that of a new figure, without a frame at the top and right."""
    if ax is None:
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError("closefar.plot needs matplotlib: run pip install 'closefar[plot]'.") from error
        ax = pyplot.subplots(layout="constrained", **figure_options)[1]
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def add_legend(ax: Axes, **options: Any) -> None:
    for text in ax.legend(**{"frameon": False, **options}).get_texts():
        text.set(**PLAIN_TEXT)


def show_message(ax: Axes, sentence: str) -> Axes:
    """Say in the middle of an empty plot why there is nothing to draw."""
    ax.text(0.5, 0.5, sentence, transform=ax.transAxes, ha="center", va="center", color=REFERENCE, wrap=True)
    ax.set(xticks=[], yticks=[])
    return ax


def in_percent(axis: Any) -> None:
    """Label an axis of shares in percent."""
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1.0))


def range_of_distances(values: NDArray[np.float64], thresholds: Sequence[float]) -> tuple[float, float]:
    """The range that shows most squared distances and all thresholds; for comparisons, of differences around zero."""
    if not thresholds:
        high = float(np.quantile(np.abs(values), _SHOWN_SHARE)) or 1.0
        return -high, high
    last, high = thresholds[-1], float(np.quantile(values, _SHOWN_SHARE))
    return min(0.0, last), (float(np.clip(high, 1.5 * last, 10.0 * last)) if last > 0 else high) or 1.0


def shorten(name: Any, longest: int = _LONGEST_LABEL) -> str:
    """Return a name in one line, without what no font can draw, its middle left out where it is long."""
    line = " ".join(str(name).encode("utf-8", "replace").decode("utf-8").split())
    if len(line) <= longest:
        return line
    head = 2 * longest // 3
    return f"{line[:head]}…{line[head + 1 - longest :]}"
