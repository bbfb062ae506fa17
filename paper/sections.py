"""What an experiment returns: a section of tables, figures and quoted numbers, in dicts that JSON can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]
Table = dict[str, Any]
Panel = dict[str, Any]
Section = dict[str, Any]

# Relative to the paper's value; a smaller difference comes from rounding in double precision.
_ROUNDING = 1e-9


def compare(label: str, values: Any, paper: float | None, why: str, *, percent: bool = False) -> Row:
    """Compare the mean over trials with the paper's value.

    `why` explains a difference that exceeds the standard deviation of the trials, and is left out otherwise.
    """
    trials = np.atleast_1d(np.asarray(values, dtype=float))
    ours, spread = float(np.mean(trials)), float(np.std(trials, ddof=1)) if len(trials) > 1 else 0.0
    difference = None if paper is None else ours - paper
    if paper is not None and abs(ours - paper) <= _ROUNDING * abs(paper):
        difference = 0.0
    agrees = difference is None or abs(difference) <= spread
    return {
        "label": label, "percent": percent, "paper": paper, "ours": ours, "spread": spread, "n_trials": len(trials),
        "difference": difference, "why": None if agrees else why,
    }  # fmt: skip


def quote(text: str, row: Row, *, paper: float | None = None, printed: str = "", note: str = "") -> Row:
    """Quote a row of a table, with the paper's own best number for the same question.

    `paper` replaces the number of the row where the paper has a better one, and `note` says how it was obtained.
    `printed` is the number as the paper prints it, where that has fewer digits than ours.
    """
    best = row["paper"] if paper is None else paper
    if best is None:
        raise ValueError(f"a quoted number must have one of the paper beside it; {text!r} has none.")
    ours = {key: row[key] for key in ("ours", "spread", "n_trials", "percent")}
    return {"text": text, "paper": best, "printed": printed, "note": note, **ours}


def comparison(caption: str, rows: Sequence[Row]) -> Table:
    """Collect rows in a table: the paper, ours, the difference."""
    return {"kind": "comparison", "caption": caption, "rows": list(rows)}


def grid(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Collect rows of formatted cells in a table of our own numbers; the first cell of each row is its label."""
    return {"kind": "grid", "caption": caption, "columns": list(columns), "rows": [list(row) for row in rows]}


def percentage(share: float | np.floating[Any], digits: int = 2) -> str:
    """Format a share as the page writes percentages."""
    return f"{100 * share:.{digits}f}%"


def series(label: str, x: Any, y: Any, *, low: Any = None, high: Any = None, style: str = "line") -> dict[str, Any]:
    """Collect points for a panel; `low` and `high` bound a band, and `style` is line, points or both."""
    columns = {"x": x, "y": y, "low": low, "high": high}
    floats = {name: None if each is None else np.asarray(each, dtype=float).tolist() for name, each in columns.items()}
    return {"label": label, "style": style, **floats}


def line(label: str, value: float, axis: str = "y") -> dict[str, Any]:
    """Return a straight reference line at `value` of that axis, such as a number that the paper states."""
    return {"label": label, "axis": axis, "value": float(value)}


def panel(
    title: str,
    x_label: str,
    y_label: str,
    curves: Sequence[dict[str, Any]],
    lines: Sequence[dict[str, Any]] = (),
    *,
    log_x: bool = False,
    log_y: bool = False,
) -> Panel:
    """Collect curves and reference lines in one pair of axes."""
    return {
        "title": title, "x_label": x_label, "y_label": y_label, "log_x": log_x, "log_y": log_y,
        "series": list(curves), "lines": list(lines),
    }  # fmt: skip


def figure(name: str, caption: str, panels: Sequence[Panel]) -> dict[str, Any]:
    """Collect panels in one figure, which becomes the file `name`.svg."""
    return {"name": name, "caption": caption, "panels": list(panels)}


def section(
    headline: str,
    settings: str,
    *,
    tables: Sequence[Table] = (),
    figures: Sequence[dict[str, Any]] = (),
    notes: Sequence[str] = (),
    quoted: Sequence[Row] = (),
) -> Section:
    """Collect the results of an experiment: the answer in a sentence, then settings, tables, figures and notes."""
    return {
        "headline": headline, "settings": settings, "tables": list(tables), "figures": list(figures),
        "notes": list(notes), "quoted": list(quoted),
    }  # fmt: skip
