"""The results of all experiments as a self-contained page, as JSON, and as an SVG file for each figure."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from paper.sections import Row

_TEMPLATE = Path(__file__).with_name("page.html.jinja")

# Okabe and Ito's colours, which the colour-blind tell apart, with a wine red for their yellow, too pale on white.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ((0, (6, 3)), (0, (1.5, 2)), (0, (7, 2, 1.5, 2)), (0, (12, 3)))  # of reference lines
# In inches: two panels side by side, or a single one, and each legend entry.
_PANEL, _LEGEND_ROW = (4.2, 3.0), 0.2
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#e3e6ea",
    "legend.frameon": False,
    "text.parse_math": False,
}


def write_page(results: dict[str, Any], folder: Path) -> None:
    """Write ``paper.html``, ``results.json`` and ``figures/NAME.svg``.

    Parameters
    ----------
    results : dict
        ``version``, ``full``, ``seed``, ``created`` (an ISO date) and ``experiments``: a list of dicts with ``name``,
        ``title``, ``status`` (done, not run or failed), ``reason`` (or None) and ``section`` (or None).
    folder : Path
        Made where it is missing.
    """
    sections = [entry["section"] for entry in results["experiments"] if entry["section"] is not None]
    drawn = {figure["name"]: draw(figure) for section in sections for figure in section["figures"]}
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    html = environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        results, images={name: base64.b64encode(svg.encode()).decode() for name, svg in drawn.items()},
        value=formatted, spread=formatted_spread, difference=formatted_difference, reasons=_reasons,
    )  # fmt: skip
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for name, svg in drawn.items():
        (folder / "figures" / f"{name}.svg").write_text(svg, encoding="utf-8")
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (folder / "paper.html").write_text(html, encoding="utf-8", errors="xmlcharrefreplace")


def _reasons(rows: Sequence[Row]) -> list[str]:
    """Return the reasons for differences, which rows refer to by number."""
    return list(dict.fromkeys(row["why"] for row in rows if row["why"] is not None))


def formatted(value: float | None, percent: bool) -> str:
    """Format a value as a percentage with two decimals, or with three significant digits."""
    if value is None:
        return "–"
    return f"{100 * value:.2f}%" if percent else _significant(value, 3)


def formatted_spread(row: Row) -> str:
    """Format the standard deviation over trials, where there are several."""
    if row["n_trials"] == 1:
        return ""
    return f"± {100 * row['spread']:.2f}" if row["percent"] else f"± {_significant(row['spread'], 2)}"


def formatted_difference(row: Row) -> str:
    """Format ours minus the paper's, in percentage points where the values are percentages."""
    if row["difference"] is None:
        return "–"
    return f"{100 * row['difference']:+.2f} points" if row["percent"] else f"{row['difference']:+.2g}"


def _significant(value: float, digits: int) -> str:
    """Format with this many significant digits, and all digits of a whole part up to a million."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if not 1e-4 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def draw(figure: dict[str, Any]) -> str:
    """Draw a figure as SVG with selectable text; the same figure always gives the same text."""
    panels = figure["panels"]
    labels = list(dict.fromkeys(each["label"] for panel in panels for each in (*panel["series"], *panel["lines"])))
    n_columns = min(len(panels), 2)
    n_rows = math.ceil(len(panels) / n_columns)
    # After a reset, so that the user's own matplotlibrc changes nothing.
    with style.context({**_STYLE, "svg.hashsalt": figure["name"]}, after_reset=True):
        size = (n_columns * _PANEL[0], n_rows * _PANEL[1] + math.ceil(len(labels) / n_columns) * _LEGEND_ROW)
        canvas = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(canvas)
        handles: dict[str, Any] = {}
        for index, panel in enumerate(panels):
            _draw_panel(canvas.add_subplot(n_rows, n_columns, index + 1), panel, labels, handles)
        canvas.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=n_columns)
        file = io.StringIO()
        # Without the date, which would differ each time.
        canvas.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _draw_panel(axes: Axes, panel: dict[str, Any], labels: list[str], handles: dict[str, Any]) -> None:
    """Draw one panel; a label has the same look in all panels, by its place in `labels`."""
    axes.set(title=panel["title"], xlabel=panel["x_label"], ylabel=panel["y_label"])
    axes.set_xscale("log" if panel["log_x"] else "linear")
    axes.set_yscale("log" if panel["log_y"] else "linear")
    for each in panel["series"]:
        index = labels.index(each["label"])
        colour = _COLOURS[index % len(_COLOURS)]
        x, y = (np.asarray(each[name], dtype=float) for name in ("x", "y"))
        if each["low"] is not None:
            axes.fill_between(x, each["low"], each["high"], color=colour, alpha=0.15, linewidth=0)
        (handles[each["label"]],) = axes.plot(
            x, y, color=colour, linestyle="none" if each["style"] == "points" else "-",
            # Later curves are thinner, so that those below them stay visible where they coincide.
            linewidth=2.6 - 1.4 * index / len(labels),
            marker=None if each["style"] == "line" else _MARKERS[index % len(_MARKERS)],
            markersize=5, markerfacecolor="none",
        )  # fmt: skip
    for each in panel["lines"]:
        across = axes.axvline if each["axis"] == "x" else axes.axhline
        dashes = _DASHES[labels.index(each["label"]) % len(_DASHES)]
        handles[each["label"]] = across(each["value"], color="#4a4f57", linewidth=1.3, linestyle=dashes, zorder=1.5)
