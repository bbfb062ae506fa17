"""What an experiment returns: a section of tables and figures in dicts that JSON can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypedDict

import numpy as np

__all__ = [
    "Comparison", "Figure", "Grid", "Line", "Panel", "Row", "Section", "Series",
    "compare", "comparison", "figure", "grid", "line", "panel", "percentage", "section", "series",
]  # fmt: skip


_ROUNDING = 1e-9


class Row(TypedDict):
    """One quantity: the paper's value, ours (mean and standard deviation over trials), and their difference."""

    label: str
    percent: bool
    paper: float | None
    ours: float
    spread: float
    n_trials: int
    difference: float | None
    why: str | None


class Comparison(TypedDict):
    """A table of rows: paper, ours, difference."""

    kind: Literal["comparison"]
    caption: str
    rows: list[Row]


class Grid(TypedDict):
    """A table of our own numbers; the first cell of each row is its label."""

    kind: Literal["grid"]
    caption: str
    columns: list[str]
    rows: list[list[str]]


class Series(TypedDict):
    """Points of one colour; `low` and `high` bound a band around them."""

    label: str
    x: list[float]
    y: list[float]
    low: list[float] | None
    high: list[float] | None
    style: Literal["line", "points", "both"]


class Line(TypedDict):
    """A straight reference line across a panel, such as a value that the paper states."""

    label: str
    axis: Literal["x", "y"]
    value: float


class Panel(TypedDict):
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    log_x: bool
    log_y: bool
    series: list[Series]
    lines: list[Line]


class Figure(TypedDict):
    """One SVG file, named `name`.svg, of one or more panels."""

    name: str
    caption: str
    panels: list[Panel]


class Section(TypedDict):
    """The result of one experiment."""

    headline: str
    settings: str
    tables: list[Comparison | Grid]
    figures: list[Figure]
    notes: list[str]


def compare(label: str, values: Any, paper: float | None, why: str, *, percent: bool = False) -> Row:
    """Compare the mean over trials with the paper's value.

    `why` explains a difference that exceeds the spread of the trials, and is left out otherwise.
    """
    trials = np.atleast_1d(np.asarray(values, dtype=float))
    ours, spread = float(np.mean(trials)), float(np.std(trials, ddof=1)) if len(trials) > 1 else 0.0
    difference = None if paper is None else _difference(ours, paper)
    agrees = difference is None or abs(difference) <= spread
    return Row(
        label=label, percent=percent, paper=paper, ours=ours, spread=spread, n_trials=len(trials),
        difference=difference, why=None if agrees else why,
    )  # fmt: skip


def _difference(ours: float, paper: float) -> float:
    """Subtract, and return 0 for what is only rounding."""
    difference = ours - paper
    return 0.0 if abs(difference) <= _ROUNDING * abs(paper) else difference


def comparison(caption: str, rows: Sequence[Row]) -> Comparison:
    """Collect rows in a table."""
    return Comparison(kind="comparison", caption=caption, rows=list(rows))


def percentage(share: float | np.floating[Any], digits: int = 2) -> str:
    """Format a share as the page writes percentages."""
    return f"{100 * share:.{digits}f}%"


def grid(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Grid:
    """Collect rows of formatted cells in a table."""
    return Grid(kind="grid", caption=caption, columns=list(columns), rows=[list(row) for row in rows])


def series(
    label: str,
    x: Any,
    y: Any,
    *,
    low: Any = None,
    high: Any = None,
    style: Literal["line", "points", "both"] = "line",
) -> Series:
    """Collect points for a panel."""
    return Series(
        label=label, x=_floats(x), y=_floats(y), low=None if low is None else _floats(low),
        high=None if high is None else _floats(high), style=style,
    )  # fmt: skip


def line(label: str, value: float, axis: Literal["x", "y"] = "y") -> Line:
    """Return a reference line at `value` of that axis."""
    return Line(label=label, axis=axis, value=float(value))


def panel(
    title: str,
    x_label: str,
    y_label: str,
    curves: Sequence[Series],
    lines: Sequence[Line] = (),
    *,
    log_x: bool = False,
    log_y: bool = False,
) -> Panel:
    """Collect curves and reference lines in one pair of axes."""
    return Panel(
        title=title, x_label=x_label, y_label=y_label, log_x=log_x, log_y=log_y,
        series=list(curves), lines=list(lines),
    )  # fmt: skip


def figure(name: str, caption: str, panels: Sequence[Panel]) -> Figure:
    """Collect panels in one figure."""
    return Figure(name=name, caption=caption, panels=list(panels))


def section(
    headline: str,
    settings: str,
    *,
    tables: Sequence[Comparison | Grid] = (),
    figures: Sequence[Figure] = (),
    notes: Sequence[str] = (),
) -> Section:
    """Collect the results of an experiment: the answer in a sentence, then settings, tables, figures and notes."""
    return Section(
        headline=headline, settings=settings,
        tables=list(tables), figures=list(figures), notes=list(notes),
    )  # fmt: skip


def _floats(values: Any) -> list[float]:
    return [float(value) for value in np.asarray(values, dtype=float)]
