"""Figures as SVG: text stays text, and the same figure always gives the same bytes."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

import numpy as np

from closefar.arrays import FloatArray
from closefar.canvas import COLOURS, MARKERS, REFERENCE
from closefar.experiments.result import Figure, Line, Panel, Series

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Canvas

    Handles = dict[str, Artist]
    Entries = list[tuple[str, Artist]]

__all__ = ["draw", "import_style", "with_variables"]

_DASHES = ((0, (6, 3)), (0, (1.5, 2)), (0, (7, 2, 1.5, 2)), (0, (12, 3)))

# Curves that coincide stay visible: each of n leaves one n-th of every period to those below it, and is thinner.
_PERIOD, _WIDEST, _THINNEST = 16.0, 2.6, 1.4  # in points
_LARGEST, _SMALLEST = 8.0, 3.5

# In inches, 96 px each on a page: two panels side by side fit a tablet and a sheet of paper, one fits a phone.
_WIDTHS = {1: 5.6, 2: 7.5}
_NARROW = 3.3
_PANEL_HEIGHT = 3.1
_LEGEND_ROW = 0.21
_LETTER = 0.08

_INK, _AXIS, _GRID, _BACKGROUND = "#1b1f24", "#8b939e", "#e3e6ea", "#ffffff"
# On a page these colours are variables, which a dark scheme gives other values.
_VARIABLES = {
    _INK: "ink",
    _AXIS: "axis",
    _GRID: "grid",
    _BACKGROUND: "card",
    REFERENCE: "muted",
    **{colour.lower(): f"curve-{index}" for index, colour in enumerate(COLOURS, start=1)},
}

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.titlesize": 9.5,
    "axes.edgecolor": _AXIS,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "axes.formatter.limits": (-4, 6),
    "grid.color": _GRID,
    "grid.linewidth": 0.7,
    "xtick.color": _AXIS,
    "ytick.color": _AXIS,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "lines.scale_dashes": False,
    "legend.frameon": False,
    "legend.handlelength": 3.6,
    "text.parse_math": False,  # a dollar sign in a label is a dollar sign
}
# What to label within each power of ten, for axes of up to so many powers.
_LOG_MARKS = {0.6: tuple(range(1, 10)), 1.3: (1, 2, 5), 2.5: (1, 3), math.inf: (1,)}
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def draw(figure: Figure, narrow: bool = False) -> str:
    """Draw a figure as one ``<svg>`` element, which can be inlined.

    Every id in it starts with the figure's name, so that figures of different names share a page
    without mixing up their clip paths and markers.

    Parameters
    ----------
    figure : Figure
        Its name must consist of letters, digits, ``-`` and ``_``, and start with a letter.
    narrow : bool
        Put the panels below each other, each as wide as a phone; otherwise two stand side by side.

    Returns
    -------
    str
        Without the XML prolog, which a file of its own may put before it.
    """
    name = figure["name"]
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
        raise ValueError(
            f"a figure's name must start with a letter and contain letters, digits, - and _ only; got {name!r}."
        )
    if not figure["panels"]:
        raise ValueError(f"a figure must have at least one panel; {name!r} has none.")
    style = import_style()
    # After a reset, so that the user's own matplotlibrc changes nothing.
    with style.context({**_STYLE, "svg.hashsalt": name}, after_reset=True):
        return _inlined(_drawing(figure, narrow), f"{name}-narrow" if narrow else name, figure["caption"])


def with_variables(svg: str) -> str:
    """Return a drawing whose colours are those of the page that it is inlined in."""

    def recoloured(style: re.Match[str]) -> str:
        return re.sub(r"#[0-9a-f]{6}\b", lambda found: _variable(found[0]), style[0], flags=re.IGNORECASE)

    return re.sub(r' style="[^"]*"', recoloured, svg)


def _variable(colour: str) -> str:
    name = _VARIABLES.get(colour.lower())
    return colour if name is None else f"var(--{name})"


def import_style() -> Any:
    """Import matplotlib's styles, or say how to install it."""
    try:
        from matplotlib import style
    except ImportError as error:
        raise ImportError("the paper's figures need matplotlib: run pip install 'closefar[paper]'.") from error
    return style


def _drawing(figure: Figure, narrow: bool) -> str:
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Canvas
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    panels = figure["panels"]
    n_columns = 1 if narrow else min(len(panels), 2)
    n_rows = math.ceil(len(panels) / n_columns)
    width = _NARROW if narrow else _WIDTHS[n_columns]
    canvas = Canvas(layout=ConstrainedLayoutEngine(h_pad=0.07, w_pad=0.05, hspace=0.06))
    FigureCanvasSVG(canvas)
    colours = _numbered(series["label"] for panel in panels for series in panel["series"])
    dashes = _numbered(line["label"] for panel in panels for line in panel["lines"])
    all_axes = [canvas.add_subplot(n_rows, n_columns, index + 1) for index in range(len(panels))]
    groups = [_draw_panel(*each, colours, dashes, width / n_columns) for each in zip(all_axes, panels, strict=True)]
    legends = _place_legends(canvas, all_axes, groups, width, n_columns)
    canvas.set_size_inches(width, n_rows * _PANEL_HEIGHT + legends)
    file = io.StringIO()
    # Each None leaves a field out: the date would differ each time, the others name outside addresses.
    canvas.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return file.getvalue()


def _numbered(labels: Iterable[str]) -> dict[str, int]:
    """Number the labels of all panels in order of appearance, so that a label looks the same in each."""
    return {label: index for index, label in enumerate(dict.fromkeys(labels))}


def _draw_panel(
    axes: Axes, panel: Panel, colours: dict[str, int], dashes: dict[str, int], width: float
) -> tuple[Handles, Handles]:
    """Draw one panel; return what its legend shows: the series, and the reference lines."""
    letters = int(width / _LETTER)
    axes.set_title(textwrap.fill(panel["title"], letters))
    axes.set_xlabel(textwrap.fill(panel["x_label"], letters))
    axes.set_ylabel(textwrap.fill(panel["y_label"], int(_PANEL_HEIGHT / _LETTER)))
    axes.set_xscale("log" if panel["log_x"] else "linear")
    axes.set_yscale("log" if panel["log_y"] else "linear")
    series, lines = {}, {}
    for curve in panel["series"]:
        series[curve["label"]] = _draw_series(axes, curve, panel, colours[curve["label"]], len(colours))
    for reference in panel["lines"]:
        lines[reference["label"]] = _draw_line(axes, reference, panel, dashes[reference["label"]])
    _mark(axes.xaxis, axes.get_xlim(), panel["log_x"])
    _mark(axes.yaxis, axes.get_ylim(), panel["log_y"])
    return series, lines


def _draw_series(axes: Axes, series: Series, panel: Panel, index: int, n_curves: int) -> Artist:
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    x, y = _drawable(series["x"], panel["log_x"]), _drawable(series["y"], panel["log_y"])
    if series["low"] is not None and series["high"] is not None:
        # Not as on a log axis: there a band that reaches zero runs out of the bottom of the panel.
        low, high = _drawable(series["low"], log=False), _drawable(series["high"], log=False)
        if series["style"] == "points":
            axes.vlines(x, low, high, color=colour, alpha=0.5, linewidth=1.2)
        else:
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    above = index / n_curves
    (drawn,) = axes.plot(
        x,
        y,
        color=colour,
        linestyle="none" if series["style"] == "points" else _dashes(above),
        linewidth=_WIDEST - (_WIDEST - _THINNEST) * above,
        marker=None if series["style"] == "line" else marker,
        markersize=_LARGEST - (_LARGEST - _SMALLEST) * above,
        markerfacecolor="none",
        markeredgewidth=1.2,
    )
    return drawn


def _dashes(above: float) -> Any:
    return "-" if above == 0 else (0, (_PERIOD * (1 - above), _PERIOD * above))


def _drawable(values: Sequence[float], log: bool) -> FloatArray:
    """Return the values with NaN, a gap, for None (JSON's NaN), infinity, and what a log axis has no place for."""
    array = np.asarray(values, dtype=float)
    return np.where(np.isfinite(array) & ((array > 0) | (not log)), array, np.nan)


def _draw_line(axes: Axes, line: Line, panel: Panel, index: int) -> Artist:
    across, log = (axes.axvline, panel["log_x"]) if line["axis"] == "x" else (axes.axhline, panel["log_y"])
    (value,) = _drawable([line["value"]], log)
    return across(value, color=REFERENCE, linewidth=1.3, linestyle=_DASHES[index % len(_DASHES)], zorder=1.5)


def _mark(axis: Axis, limits: tuple[float, float], log: bool) -> None:
    """Label an axis with plain numbers, as many as a panel has room for."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    low, high = limits
    if not log:
        axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
        if high - low >= 1000:
            axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        return
    decades = math.log10(high / low)
    subs = next(subs for most, subs in _LOG_MARKS.items() if decades < most)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _log_tick(value)))
    axis.set_minor_formatter(NullFormatter())


def _log_tick(value: float) -> str:
    if 1e-3 <= value < 1e6:
        return f"{value:,g}"
    digit, exponent = f"{value:.0e}".split("e")
    power = "10" + str(int(exponent)).translate(_SUPERSCRIPTS)
    return power if digit == "1" else f"{digit}\N{MULTIPLICATION SIGN}{power}"


def _place_legends(
    canvas: Canvas, all_axes: list[Axes], groups: list[tuple[Handles, Handles]], width: float, n_columns: int
) -> float:
    """Put what all panels share in one legend below them, the rest below each panel; return the height needed.

    Below, because a legend inside a panel may hide data.
    """
    shared: Entries = []
    own: list[Entries] = [[] for _ in groups]
    for handles in zip(*groups, strict=True):
        if all(list(each) == list(handles[0]) for each in handles):
            shared += handles[0].items()
        else:
            for entries, each in zip(own, handles, strict=True):
                entries += each.items()
    heights = [_legend_below_panel(*each, width / n_columns) for each in zip(all_axes, own, strict=True)]
    return _legend_below_figure(canvas, shared, width) + math.ceil(len(all_axes) / n_columns) * max(heights)


def _legend_below_figure(canvas: Canvas, entries: Entries, width: float) -> float:
    labels, handles = _legend_entries(entries, width)
    if not labels:
        return 0.0
    widths = [len(label) * _LETTER + 0.85 for label in labels]  # with a line of 3.6 letters, and space around it
    n_rows = 1 if sum(widths) <= width else math.ceil(len(labels) / max(1, int(width / max(widths))))
    canvas.legend(handles, labels, loc="outside lower center", ncols=math.ceil(len(labels) / n_rows))
    return _LEGEND_ROW * (n_rows + 0.5)


def _legend_below_panel(axes: Axes, entries: Entries, width: float) -> float:
    from matplotlib.transforms import ScaledTranslation

    labels, handles = _legend_entries(entries, width)
    if not labels:
        return 0.0
    n_label_lines = axes.get_xlabel().count("\n") + 1
    below_the_axis = ScaledTranslation(0.0, -0.26 - 0.15 * n_label_lines, axes.figure.dpi_scale_trans)
    place = {"bbox_to_anchor": (0.5, 0.0), "bbox_transform": axes.transAxes + below_the_axis}
    axes.legend(handles, labels, loc="upper center", **place)
    return _LEGEND_ROW * sum(label.count("\n") + 1 for label in labels)


def _legend_entries(entries: Entries, width: float) -> tuple[list[str], list[Artist]]:
    named = [(textwrap.fill(label, int(width / _LETTER) - 8), handle) for label, handle in entries if label]
    return [label for label, _ in named], [handle for _, handle in named]


def _inlined(svg: str, name: str, caption: str) -> str:
    """Return the ``<svg>`` element alone, with ids of its own and a name for those who listen to the page."""
    # Only within tags: text may hold anything, but matplotlib writes its < and > as entities.
    element = re.sub(
        r"<\w[^<>]*>",
        lambda tag: re.sub(r'( id="|xlink:href="#|url\(#)', rf"\g<1>{name}-", tag[0]),
        svg[svg.index("<svg") :],
    )
    return element.replace("<svg", f'<svg role="img" aria-label={quoteattr(caption)}', 1)
