"""The results of all experiments as a page, as JSON, and as a file for each figure."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

from closefar.experiments.charts import draw, import_style, with_variables
from closefar.files import replace_file
from closefar.plain import plain
from closefar.templating import load_asset, load_template

__all__ = ["write_page"]

_PROLOG = '<?xml version="1.0" encoding="utf-8"?>\n'
_STATUSES = ("done", "unfinished", "failed", "not run")
_ABSENT = "\N{EN DASH}"
_MINUS = "\N{MINUS SIGN}"


def write_page(results: dict[str, Any], folder: Path) -> None:
    """Write ``paper.html``, ``results.json`` and ``figures/NAME.svg``, each whole or not at all.

    The page needs nothing beside it and asks nothing of the network.

    Parameters
    ----------
    results : dict
        ``version``, ``quick``, ``seed``, ``created`` (an ISO date) and ``experiments``: a list of
        dicts with ``name``, ``title``, ``status`` (done, not run, failed or unfinished), ``reason`` (or None),
        ``seconds``, and ``section`` (or None).  What ``results.json`` holds will do as well.
    folder : Path
        Made where it is missing.
    """
    import_style()  # before hours of trials, where there is no figure yet
    facts = plain(results, finite=True)
    template = load_template("paper.html.jinja", "the paper's page", "paper")
    figures = _figures(facts)
    html = template.render(
        facts, palette=load_asset("palette.css"), wide=partial(_inlined, figures, narrow=False),
        narrow=partial(_inlined, figures, narrow=True), tally=_tally(facts), when=_when(facts["created"]),
        duration=_duration, compared=_compared, trials=_trials,
    )  # fmt: skip
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    replace_file(folder / "results.json", (json.dumps(facts, indent=1, allow_nan=False) + "\n").encode())
    for name, figure in figures.items():
        replace_file(folder / "figures" / f"{name}.svg", _encoded(_PROLOG + _drawn(figure, False)))
    replace_file(folder / "paper.html", _encoded(html))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "xmlcharrefreplace")  # the message of a failure may hold what UTF-8 can't


def _figures(results: dict[str, Any]) -> dict[str, str]:
    """Return each figure as JSON, by its name."""
    figures: dict[str, str] = {}
    for section in _sections(results):
        for figure in section["figures"]:
            if figure["name"] in figures:
                raise ValueError(f"each figure must have a name of its own; got {figure['name']!r} twice.")
            figures[figure["name"]] = json.dumps(figure)
    return figures


def _inlined(figures: dict[str, str], name: str, *, narrow: bool) -> str:
    return with_variables(_drawn(figures[name], narrow))


@cache  # the page is written anew after each experiment
def _drawn(figure: str, narrow: bool) -> str:
    return draw(json.loads(figure), narrow)


def _sections(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (entry["section"] for entry in results["experiments"] if entry["section"] is not None)


def _tally(results: dict[str, Any]) -> dict[str, Any]:
    """Count the experiments by status, and the paper's numbers by whether ours agree within their spread."""
    rows = [
        row
        for section in _sections(results)
        for table in section["tables"]
        if table["kind"] == "comparison"
        for row in table["rows"]
        if row["difference"] is not None
    ]
    counts = Counter(entry["status"] for entry in results["experiments"])
    statuses = {status: counts[status] for status in _STATUSES if counts[status]}
    return {"statuses": statuses, "compared": len(rows), "within": sum(map(_is_within, rows))}


def _is_within(row: dict[str, Any]) -> bool:
    return row["difference"] is not None and row["why"] is None


def _trials(rows: list[dict[str, Any]]) -> str | None:
    """Return how many trials the rows have, or None where they differ."""
    counts = {row["n_trials"] for row in rows}
    return _counted_trials(counts.pop()) if len(counts) == 1 else None


def _counted_trials(count: int) -> str:
    return "1 trial" if count == 1 else f"{count:,} trials"


def _compared(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows as text, and the reasons for differences, which rows refer to by number."""
    notes = list(dict.fromkeys(row["why"] for row in rows if row["why"] is not None))
    return {"rows": [_row_cells(row, notes) for row in rows], "notes": notes}


def _row_cells(row: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    percent = row["percent"]
    return {
        "label": row["label"],
        "paper": _value(row["paper"], percent),
        "ours": _value(row["ours"], percent),
        "spread": None if row["n_trials"] == 1 else _spread(row["spread"], percent),
        "trials": _counted_trials(row["n_trials"]),
        "difference": _difference(row["difference"], percent),
        "unit": "points" if percent and row["difference"] is not None else "",
        "verdict": _verdict(row),
        "note": None if row["why"] is None else notes.index(row["why"]) + 1,
    }


def _verdict(row: dict[str, Any]) -> str:
    if not _is_within(row):
        return ""
    return "equal" if row["difference"] == 0 else "within spread"


def _value(value: float | None, percent: bool) -> str:
    if value is None:
        return _ABSENT
    return _with_minus(f"{100 * value:.2f}%" if percent else _significant(value, 3))


def _spread(value: float | None, percent: bool) -> str:
    if value is None:
        return _ABSENT
    return f"{100 * value:.2f}" if percent else _significant(value, 2)


def _difference(value: float | None, percent: bool) -> str:
    if value is None:
        return _ABSENT
    text = f"{100 * value:+.2f}" if percent else _significant(value, 2, sign="+")
    return _with_minus("0.00" if text in ("+0.00", "-0.00") else text)


def _significant(value: float, digits: int, sign: str = "") -> str:
    """Format with so many significant digits, and all digits of a whole part up to a million."""
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e6:
        return f"{value:{sign}.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:{sign},.{decimals}f}"


def _with_minus(text: str) -> str:
    return _MINUS + text[1:] if text.startswith("-") else text


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


def _when(created: str) -> str:
    return datetime.fromisoformat(created).strftime("%Y-%m-%d %H:%M %Z").strip()
