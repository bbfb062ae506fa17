"""The report as one HTML page that needs nothing beside it."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from closefar.judgements import Kind
from closefar.report import charts, kind_charts
from closefar.report.map_charts import map_chart
from closefar.report.maps import level_styles
from closefar.report.wording import abridged, digits, loading, percent
from closefar.templating import load_asset, load_template

__all__ = ["page", "page_template"]

_LONGEST_NAME = 60  # which has room in two lines of a table
_MOST_DECIMALS = 4  # that have room in a matrix


def page_template() -> Any:
    """Return the template, or say which package is missing."""
    return load_template("report.html.jinja", "a report as HTML", "report")


def page(facts: dict[str, Any]) -> str:
    """Return the page of the dict of `summarize`."""
    script = load_asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    html: str = page_template().render(
        facts,
        style=_style(facts),
        script=script,
        script_digest=digest,
        charts=_charts(facts),
        most_bars=charts.MOST_BARS,
        abridged=partial(abridged, longest=_LONGEST_NAME),
        percent=percent,
        figure=_figure,
        entry=_entry,
        loading=loading,
        level_styles=level_styles,
        label_errors="closefar label-errors" if facts["is_command_line"] else "closefar.find_label_errors",
    )
    return html


def _style(facts: dict[str, Any]) -> str:
    style = load_asset("palette.css") + load_asset("report.css")
    is_plain = facts["pairs"]["kind"] == Kind.CLOSE_FAR and facts["annotators"] is None
    return style if is_plain else style + load_asset("report_kinds.css")


def _charts(facts: dict[str, Any]) -> dict[str, str]:
    """The drawings of the parts that exist; they hold numbers and fixed words, and nothing of the user's."""
    drawn = _of_labels(facts["pairs"])
    if facts["spectrum"]["rows"]:
        drawn["spectrum"] = charts.spectrum_chart
    for name, chart in (
        ("pair_map", map_chart),
        ("point_map", map_chart),
        ("roc", drawn.pop("roc")),
        ("noise_check", charts.noise_chart),
        ("learning_curve", charts.learning_chart),
    ):
        if facts[name]["reason"] is None:
            drawn[name] = chart
    found = {name: chart(facts[name]) for name, chart in drawn.items()}
    if facts["choice"] is not None and facts["choice"]["path"] is not None:
        found["path"] = charts.path_chart(facts["choice"]["path"])
    if facts["intervals"]["reason"] is None:
        found["intervals"] = charts.interval_chart(facts["intervals"]["directions"])
    return found


def _of_labels(pairs: dict[str, Any]) -> dict[str, Callable[[dict[str, Any]], str]]:
    """The charts that depend on the kind of judgement."""
    if pairs["kind"] == Kind.LEVELS:
        n = len(pairs["labels"])
        return {
            "distances": kind_charts.level_chart,
            "calibration": partial(kind_charts.calibration_of_levels, n_levels=n),
            "roc": partial(kind_charts.roc_of_levels, n_levels=n),
        }
    found: dict[str, Callable[[dict[str, Any]], str]] = {
        "distances": charts.distance_chart,
        "calibration": charts.calibration_chart,
        "roc": charts.roc_chart,
    }
    if pairs["kind"] == Kind.COMPARISONS:
        found["distances"] = kind_charts.leg_chart
        found["calibration"] = partial(charts.calibration_chart, predicted="P(likelier answer)", observed="share")
    return found


def _figure(value: float | None, form: str = ".3g") -> str:
    """A number in a table, or a dash where there is none."""
    return "\N{EN DASH}" if value is None else digits(value, form) if form.endswith("g") else format(value, form)


def _entry(value: float, largest: float) -> str:
    """An entry of a matrix to three digits of its largest one, so that the entries of a column line up."""
    decimals = 2 - math.floor(math.log10(largest))
    if not 0 <= decimals <= _MOST_DECIMALS:
        return digits(value, ".2g")
    text = f"{value:.{decimals}f}"
    return text if float(text) else text.removeprefix("-")
