"""Plots of the documentation: figures against the time of a fit, readable on light and on dark pages."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

from peers.peers import peers_of
from peers.results import Record
from peers.summary import Row, rows_of
from peers.works import Work

__all__ = ["plot"]

OURS, OTHERS, INK = "#E69F00", "#56B4E9", "#888888"  # all have contrast against white and against black
COLUMNS = 2
LEAST_SECONDS = 1e-4  # that are drawn; doing nothing takes less


def plot(name: str, work: Work, records: Sequence[Record]) -> bytes | None:
    """Return an SVG with one panel for each setting: the first figure against CPU seconds; None without records."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    panels = [(setting, [row for row in rows_of(setting, records) if row.figures]) for setting in work.SETTINGS]
    panels = [(setting, rows) for setting, rows in panels if any(work.MEASURES[0].name in row.figures for row in rows)]
    if not panels:
        return None
    numbers = {peer.name: number for number, peer in enumerate(peers_of(name), start=1)}
    lines = math.ceil(len(panels) / COLUMNS)
    style: Any = _style()
    with mpl.rc_context(style):
        figure = Canvas(figsize=(8.0, 2.6 * lines), layout="constrained")
        axes = figure.subplots(lines, COLUMNS, squeeze=False).ravel()
        for ax, (setting, rows) in zip(axes, panels, strict=False):
            _panel(ax, setting.name, rows, work, numbers)
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
        drawn = {row.peer.name for _, rows in panels for row in rows}
        legend = "   ".join(f"{number} {peer}" for peer, number in numbers.items() if peer in drawn)
        figure.supxlabel(_wrapped(legend), fontsize=7, color=INK)
        file = io.BytesIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return file.getvalue()


def _style() -> dict[str, Any]:
    inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "axes.titlecolor")
    return {"svg.hashsalt": "closefar", "svg.fonttype": "path", "font.size": 8, **dict.fromkeys(inks, INK)}


def _panel(ax: Any, title: str, rows: Sequence[Row], work: Work, numbers: dict[str, int]) -> None:
    measure = work.MEASURES[0]
    for row in rows:
        figure = row.figures.get(measure.name)
        if figure is None or row.seconds is None:
            continue
        error = figure.standard_error
        at = max(row.seconds.mean, LEAST_SECONDS)
        color = OURS if row.is_ours else OTHERS
        ax.errorbar(at, figure.mean, yerr=None if math.isnan(error) else error, fmt="o", ms=4, color=color, capsize=2)
        ax.annotate(
            str(numbers[row.peer.name]), (at, figure.mean), (4, 3), textcoords="offset points", color=INK, fontsize=7
        )
    ax.set(xscale="log", title=title, xlabel="fit, CPU seconds", ylabel=measure.title)
    ax.yaxis.set_major_formatter(lambda value, _: measure.show(value))
    ax.spines[["top", "right"]].set_visible(False)


def _wrapped(text: str, width: int = 130) -> str:
    lines, line = [], ""
    for word in text.split("   "):
        if line and len(line) + len(word) + 3 > width:
            lines.append(line)
            line = word
        else:
            line = f"{line}   {word}" if line else word
    return "\n".join([*lines, line])
