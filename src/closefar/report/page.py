"""The report as one HTML page that needs nothing beside it, with its charts, as text and as JSON."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from closefar.arrays import FloatArray
from closefar.files import check_writable, replace_file
from closefar.fitting import Fit, Fitted
from closefar.judgements import Kind
from closefar.plain import format_table
from closefar.report.facts import summarize
from closefar.report.maps import level_styles
from closefar.report.wording import abridged, digits, loading, percent, sentence, short
from closefar.templating import load_asset, load_template

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
        most_bars=MOST_BARS,
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


# ---------------------------------------------------------------------------------------------------------------------
# Inline SVG: a drawing, a plane with axes in it, and marks. Numbers and fixed words only, coloured by the page's
# CSS.
#
# The drawings are as wide as a phone, so that text keeps its size there; the page may enlarge them.


WIDTH = 340

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_DIGITS = ((1, 2, 5), (1, 3), (1,))  # of log scales, from narrow to wide


@dataclass(frozen=True)
class Plane:
    """A rectangle of the drawing and the ranges of numbers that it shows."""

    left: float
    top: float
    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def x(self, value: float) -> float:
        low, high = self.x_range
        return self.left + self.width * (value - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return self.bottom - self.height * (value - low) / (high - low)

    def x_axis(self, title: str, ticks: Iterable[tuple[float, str]] | None = None) -> list[str]:
        """Lines across at the ticks, their texts below, and the title at the right below those."""
        lines = [
            f'<path class="grid" d="M{self.x(value):.1f} {self.top:.1f}V{self.bottom:.1f}"/>'
            + label(self.x(value), self.bottom + 19, words, "middle")
            for value, words in (_ticks(*self.x_range) if ticks is None else ticks)
        ]
        return [*lines, label(self.right, self.bottom + 37, title, "muted end")]

    def y_axis(self, title: str, ticks: Iterable[tuple[float, str]] | None = None) -> list[str]:
        """Lines across at the ticks, their texts at the left, and the title above."""
        lines = [
            f'<path class="grid" d="M{self.left:.1f} {self.y(value):.1f}H{self.right:.1f}"/>'
            + label(self.left - 8, self.y(value) + 3, words, "end")
            for value, words in (_ticks(*self.y_range) if ticks is None else ticks)
        ]
        return [*lines, label(2, self.top - 12, title, "muted")]

    def line(self, points: Iterable[tuple[float, float]], kind: str, end: str = "") -> str:
        places = "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)
        return f'<path class="{kind}" d="M{places}{end}"/>'

    def marks(self, points: Iterable[tuple[float, float]], kind: str) -> str:
        """Round marks, in one path that takes few letters for each."""
        places = "".join(f"M{self.x(x):.1f} {self.y(y):.1f}h0" for x, y in points)
        return f'<path class="marks {kind}" d="{places}"/>'

    def dot(self, x: float, y: float, note: str, kind: str = "dot") -> str:
        place = f'cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="4.5"'
        return f'<circle class="{kind}" {place}><title>{note}</title></circle>'

    def upright(self, x: float, low: float, high: float, kind: str) -> str:
        return f'<path class="{kind}" d="M{self.x(x):.1f} {self.y(low):.1f}V{self.y(high):.1f}"/>'

    def bars(
        self, edges: Sequence[float], counts: Sequence[float], unit: float, kind: str, what: str, base: float = 0.0
    ) -> list[str]:
        """A bar for each bin of a histogram, which is `unit` high for one, with its count in a note."""
        found = []
        for low, high, n in zip(edges, edges[1:], counts, strict=False):
            left, width = self.x(low), max(self.x(high) - self.x(low), 0.5)
            bottom, top = sorted((base, base + unit * n))
            found.append(
                f'<rect class="{kind}" x="{left:.1f}" y="{self.y(top):.1f}" width="{width:.1f}" '
                f'height="{max(self.y(bottom) - self.y(top), 0.0):.1f}">'
                f"<title>{low:.3g} to {high:.3g}: {n:,.6g}{what}</title></rect>"
            )
        return found

    def thresholds(self, thresholds: Sequence[float], name: str) -> list[str]:
        """Lines at those thresholds that the axis has room for, and their name above the last."""
        shown = [threshold for threshold in thresholds if 0.0 < threshold < self.x_range[1]]
        if not shown:
            return []
        place = min(max(self.x(shown[-1]), self.left + 90), self.right - 34)
        lines = [self.upright(threshold, *self.y_range, "threshold") for threshold in shown]
        return [*lines, label(place, self.top - 12, name, "middle")]


def drawing(name: str, height: float, parts: Iterable[str]) -> str:
    """Put the parts in a drawing with a name for screen readers."""
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{name}">{"".join(parts)}</svg>'


def label(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{words}</text>'


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most `most` round numbers from low to high."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(nice * power for nice in _STEPS if nice * power >= rough * (1.0 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)][: most + 1]


def log_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most `most` round numbers from low to high, about equally far apart on a log scale."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for mantissas in _DIGITS:
        found = [digit * 10.0**power for power in powers for digit in mantissas if low <= digit * 10.0**power <= high]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]


def _ticks(low: float, high: float, most: int = 5) -> list[tuple[float, str]]:
    return [(tick, _tick_text(tick)) for tick in nice_ticks(low, high, most)]


def _log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Ticks of an axis of logarithms."""
    return [(math.log10(tick), _tick_text(tick)) for tick in log_ticks(low, high, _MOST_TICKS)]


def _tick_text(value: float) -> str:
    """A round number in few letters."""
    if value == 0:
        return "0"
    if 1e4 <= abs(value) < 1e6:
        return f"{value / 1e3:g}k"
    return f"{value:.4g}".replace("e+0", "e").replace("e-0", "e-")


MOST_BARS = 20

_ROW = 24
_UNIT = (0.0, 1.0)
_QUARTERS = [(tick, f"{tick:.0%}") for tick in (0.0, 0.25, 0.5, 0.75, 1.0)]

# Columns of the bar charts: the bars end where the widest number, such as 1.23e-05, still has room.
_BARS_LEFT, _BARS_RIGHT = 28, 178
_VALUE_RIGHT, _SHARE_RIGHT = 246, 336
_RANGE_RIGHT = 200

_MOST_TICKS = 4
_LOG_RANGE = 4.0  # losses that differ by this factor have a log scale
_FAR_WORSE = 4.0  # times as far above the lowest loss as the median is

_LEVEL_HEIGHT = 44.0  # of the histogram of one level
_LEVELS_HEIGHT = 320.0  # of all of them


def _spectrum_chart(part: dict[str, Any], _: dict[str, Any]) -> str:
    """The mean squared distance along each direction: one bar each with its value and the cumulative share."""
    rows = part["rows"][:MOST_BARS]
    largest = max((row["value"] for row in rows), default=0.0) or 1.0
    parts = [
        label(_BARS_LEFT, 15, "direction", "muted"),
        label(_VALUE_RIGHT, 15, "mean squared distance", "muted end"),
        label(_SHARE_RIGHT, 15, "cumulative", "muted end"),
    ]
    for index, row in enumerate(rows, start=1):
        base = index * _ROW
        length = max((_BARS_RIGHT - _BARS_LEFT) * row["value"] / largest, 1.0)
        parts += [
            label(_BARS_LEFT - 8, base + 16, f"{index}", "end"),
            f'<rect class="bar" x="{_BARS_LEFT}" y="{base + 3}" width="{length:.1f}" height="{_ROW - 6}"/>',
            label(_VALUE_RIGHT, base + 16, digits(row["value"]), "end"),
            label(_SHARE_RIGHT, base + 16, f"{row['cumulative']:.1%}", "end"),
        ]
    return drawing("Bar chart of the mean squared distance along each direction", (len(rows) + 1) * _ROW + 4, parts)


def _interval_chart(part: dict[str, Any], _: dict[str, Any]) -> str:
    """The mean squared distance along each direction with its interval, one line each."""
    rows = part["directions"][:MOST_BARS]
    unit = (_RANGE_RIGHT - _BARS_LEFT) / (max((row["high"] for row in rows), default=0.0) or 1.0)
    parts = [label(_BARS_LEFT, 15, "mean squared distance", "muted"), label(_SHARE_RIGHT, 15, "interval", "muted end")]
    for index, row in enumerate(rows, start=1):
        middle = index * _ROW + 12
        low, at, high = (_BARS_LEFT + unit * row[name] for name in ("low", "estimate", "high"))
        parts += [
            label(_BARS_LEFT - 8, middle + 4, f"{index}", "end"),
            f'<path class="whisker" d="M{low:.1f} {middle}H{high:.1f}"/>',
            f'<circle class="dot" cx="{at:.1f}" cy="{middle}" r="4"/>',
            label(_SHARE_RIGHT, middle + 4, f"{digits(row['low'])} to {digits(row['high'])}", "end"),
        ]
    return drawing("Intervals of the mean squared distance along each direction", (len(rows) + 1) * _ROW + 4, parts)


def _distance_chart(part: dict[str, Any], pairs: dict[str, Any]) -> str:
    """How many have each squared distance: far ones upwards and close ones downwards, or each level by itself."""
    if pairs["kind"] == Kind.COMPARISONS:
        return _difference_chart(part)
    if pairs["kind"] == Kind.LEVELS:
        return _level_chart(part)
    edges, close, far = part["edges"], part["close"], part["far"]
    most = max([*close, *far]) or 1.0
    plane = Plane(46, 42, 284, 220, (0.0, edges[-1]), (-1.06 * most, 1.06 * most))
    counts = [tick for tick in nice_ticks(0.0, most, 3) if tick > 0]
    ticks = [(0.0, "0"), *((sign * tick, _tick_text(tick)) for tick in counts for sign in (1.0, -1.0))]
    parts = [
        *plane.x_axis("squared distance"),
        *plane.y_axis(f"{part['counted']} per bar", ticks),
        *plane.bars(edges, far, 1.0, "far", " far"),
        *plane.bars(edges, close, -1.0, "close", " close"),
        plane.line([(0.0, 0.0), (edges[-1], 0.0)], "axis"),
        label(plane.right, plane.top + 14, "labelled far ↑", "far-word end"),
        label(plane.right, plane.bottom - 6, "labelled close ↓", "close-word end"),
        *plane.thresholds([part["threshold"]], "threshold τ"),
    ]
    return drawing("Histogram of squared distances, close and far", plane.bottom + 44, parts)


def _level_chart(part: dict[str, Any]) -> str:
    """A histogram for each level, closest at the bottom, each to its own scale, and lines at the thresholds."""
    edges, rows = part["edges"], part["levels"]
    styles, height = level_styles(len(rows)), min(_LEVEL_HEIGHT, _LEVELS_HEIGHT / len(rows))
    plane = Plane(46, 42, 284, height * len(rows), (0.0, edges[-1]), (0.0, float(len(rows))))
    parts = plane.x_axis("squared distance") + plane.y_axis("level", [])
    for level, row in enumerate(rows):
        unit, what = 0.88 / (max(row["counts"]) or 1.0), f" of level {level}"
        parts += [
            *plane.bars(edges, row["counts"], unit, f"level {styles[level]}", what, base=level),
            plane.line([(0.0, float(level)), (edges[-1], float(level))], "axis"),
            label(plane.left - 8, plane.y(level) - 6, f"{level}", "end"),
        ]
    shown = sum(0.0 < threshold < edges[-1] for threshold in part["thresholds"])
    parts += plane.thresholds(part["thresholds"], "thresholds" if shown > 1 else "threshold")
    return drawing("Histograms of squared distances by level, with the thresholds", plane.bottom + 44, parts)


def _difference_chart(part: dict[str, Any]) -> str:
    """How many comparisons have each difference of squared distances; the metric contradicts those below zero."""
    edges, counts = part["edges"], part["counts"]
    most, half = max(counts) or 1.0, len(counts) // 2
    plane = Plane(46, 42, 284, 200, (edges[0], edges[-1]), (0.0, 1.06 * most))
    parts = [
        *plane.x_axis("difference of squared distances"),
        *plane.y_axis(f"{part['counted']} per bar", _ticks(0.0, most, _MOST_TICKS)),
        *plane.bars(edges[: half + 1], counts[:half], 1.0, "far", ""),
        *plane.bars(edges[half:], counts[half:], 1.0, "close", ""),
        plane.upright(0.0, 0.0, 1.06 * most, "threshold"),
        label(plane.left + 4, plane.top + 10, "contradicted", "far-word"),
        label(plane.right, plane.top + 10, "agreed with", "close-word end"),
    ]
    return drawing("Histogram of the differences of squared distances of comparisons", plane.bottom + 44, parts)


_CALIBRATION = {  # what is predicted and observed, and the name of the drawing
    Kind.CLOSE_FAR: ("P(far)", "share far", "Observed share far against the predicted probability"),
    Kind.COMPARISONS: ("P(likelier answer)", "share", "Observed share against the predicted probability"),
    Kind.LEVELS: ("P(level k or higher)", "share", "Observed shares against predicted probabilities, by threshold"),
}


def _calibration_chart(part: dict[str, Any], pairs: dict[str, Any]) -> str:
    """Observed shares with their intervals against predicted probabilities, and the diagonal of perfect agreement."""
    plane, (predicted, observed, name) = Plane(48, 28, 272, 272, _UNIT, _UNIT), _CALIBRATION[Kind(pairs["kind"])]
    parts = plane.x_axis(f"predicted {predicted}", _QUARTERS) + plane.y_axis(f"observed {observed}", _QUARTERS)
    parts.append(plane.line([(0.0, 0.0), (1.0, 1.0)], "diagonal"))
    for row in part["bins"]:
        note, style = f"{row['count']:,} predicted {row['predicted']:.1%}, observed {row['observed']:.1%}", ""
        if "level" in row:
            note, style = f"level {row['level']} or higher: {note}", _level_class(row["level"], pairs)
        parts += [
            plane.upright(row["predicted"], row["low"], row["high"], f"whisker{style}"),
            plane.dot(row["predicted"], row["observed"], note, f"dot{style}"),
        ]
    return drawing(name, plane.bottom + 44, parts)


def _roc_chart(part: dict[str, Any], pairs: dict[str, Any]) -> str:
    """The curve, the diagonal of chance, and where the learned threshold is; for levels the curve of each threshold."""
    is_graded = "curves" in part
    curves = [list(zip(each["false_far"], each["true_far"], strict=True)) for each in part.get("curves", [part])]
    positive, negative, area = "far predicted far", "close predicted far", "AUC"
    if is_graded:
        positive, negative, area = "level k or higher", "lower level predicted higher", "mean AUC"
    plane = Plane(48, 28, 272, 272, _UNIT, _UNIT)
    parts = plane.x_axis(f"false positive rate ({negative})", _QUARTERS)
    parts += plane.y_axis(f"true positive rate ({positive})", _QUARTERS)
    if not is_graded:
        parts.append(plane.line([(0.0, 0.0), (1.0, 0.0), *reversed(curves[0])], "under", "Z"))
    parts.append(plane.line([(0.0, 0.0), (1.0, 1.0)], "diagonal"))
    if is_graded:
        styles = [_level_class(each["level"], pairs) for each in part["curves"]]
        parts += [plane.line(curve, f"curve{style}") for curve, style in zip(curves, styles, strict=True)]
    else:
        here = part["at_threshold"]
        note = f"at the threshold: true positives {here['true_far']:.1%}, false positives {here['false_far']:.1%}"
        parts += [plane.line(curves[0], "curve"), plane.dot(here["false_far"], here["true_far"], note)]
    parts.append(label(plane.right - 10, plane.bottom - 14, f"{area} {part['auc']:.3f}", "end"))
    return drawing("ROC curve of each threshold" if is_graded else "ROC curve", plane.bottom + 44, parts)


def _level_class(level: int, pairs: dict[str, Any]) -> str:
    return f" level {level_styles(len(pairs['labels']))[level]}"


def _noise_chart(part: dict[str, Any], _: dict[str, Any]) -> str:
    """Observed minus expected share by margin, and the band in which 95% of such differences lie."""
    rows, is_compared = part["bins"], part["question"] == "comparisons"
    share = "share agreeing" if is_compared else "share above τ" if part["question"] else "share far"
    margin = "difference of squared distances" if is_compared else "squared distance minus τ"
    points = [(row["margin"], row["observed"] - row["expected"]) for row in rows]
    lower, upper = ([(row["margin"], sign * 1.96 * row["error"]) for row in rows] for sign in (-1.0, 1.0))
    reach = 1.1 * max(abs(y) for _, y in (*points, *upper)) or 0.01
    pad = 0.04 * (points[-1][0] - points[0][0])
    plane = Plane(62, 28, 266, 170, (points[0][0] - pad, points[-1][0] + pad), (-reach, reach))
    y_ticks = [(tick, f"{100.0 * tick:+.3g}%" if tick else "0") for tick in nice_ticks(-reach, reach, 4)]
    parts = [
        *plane.x_axis(f"margin: {margin}"),
        *plane.y_axis(f"{share}: observed minus expected", y_ticks),
        plane.line([*lower, *reversed(upper)], "band", "Z"),
        plane.line([(plane.x_range[0], 0.0), (plane.x_range[1], 0.0)], "axis"),
        plane.line(points, "curve"),
    ]
    for row, (x, y) in zip(rows, points, strict=True):
        note = f"{row['count']:,.6g}: observed {row['observed']:.1%}, expected {row['expected']:.1%}"
        parts.append(plane.dot(x, y, note))
    return drawing(f"Observed minus expected {share} by margin", plane.bottom + 44, parts)


def path_chart(part: dict[str, Any]) -> str:
    """Held-out loss against alpha on a log axis, a line for each prior and flip rate, and the plain distance."""
    lines, plain, chosen = part["lines"], part["plain"], part["chosen"]
    rows = [row for line in lines for row in line["rows"]]
    alphas = [row["alpha"] for row in rows] + ([] if chosen is None else [chosen])
    losses = [row["loss"] for row in rows]
    lowest = min(row["loss"] - row["standard_error"] for row in rows)
    highest = max(row["loss"] + row["standard_error"] for row in rows)
    # What is far worse than most would flatten the others: it is drawn at the upper edge.
    highest = min(highest, max(lowest + _FAR_WORSE * (sorted(losses)[len(losses) // 2] - lowest), lowest + 1e-3))
    if plain is not None:
        lowest, highest = min(lowest, plain["loss"]), max(highest, plain["loss"])
    pad = max(0.08 * (highest - lowest), 1e-3)
    ends = [math.log10(min(alphas)), math.log10(max(alphas))]
    room = 0.06 * (ends[1] - ends[0]) or 0.1
    plane = Plane(54, 42, 270, 190, (ends[0] - room, ends[1] + room), (lowest - pad, highest + pad))
    low, high = plane.x_range
    parts = plane.x_axis("alpha", _log_ticks(10.0**low, 10.0**high))
    parts += plane.y_axis("held-out loss", _ticks(*plane.y_range, _MOST_TICKS))
    if plain is not None:
        parts.append(plane.line([(low, plain["loss"]), (high, plain["loss"])], "diagonal"))
    if chosen is not None:
        parts.append(plane.upright(math.log10(chosen), *plane.y_range, "threshold"))
        parts.append(label(max(plane.x(math.log10(chosen)), plane.left + 60), plane.top - 12, "chosen", "middle"))
    for line in lines:
        places = [(math.log10(row["alpha"]), min(row["loss"], plane.y_range[1])) for row in line["rows"]]
        parts.append(f'<g class="{line["style"]}">{plane.line(places, "path")}')
        for (x, y), row in zip(places, line["rows"], strict=True):
            error = row["standard_error"]
            note = f"alpha {row['alpha']:.3g}: loss {row['loss']:.4f}, accuracy {row['accuracy']:.1%}"
            parts += [
                plane.upright(x, max(y - error, plane.y_range[0]), min(y + error, plane.y_range[1]), "error"),
                plane.dot(x, y, note, "spot"),
            ]
        parts.append("</g>")
    return drawing("Held-out loss against alpha", plane.bottom + 44, parts)


def _learning_chart(part: dict[str, Any], _: dict[str, Any]) -> str:
    """Accuracy and loss on unseen pairs against the number of pairs, each doubling a step."""
    rows, term = part["rows"], part["term"]
    loss_ticks: list[tuple[float, str]] = []
    least, most = min(row["loss_low"] for row in rows), max(row["loss_high"] for row in rows)
    if 0.0 < _LOG_RANGE * least < most:  # a fit to few pairs has a loss that would flatten all others
        loss_ticks = _log_ticks(least, most)
        logs = ("loss", "loss_low", "loss_high")
        rows = [{**row, **{name: math.log10(row[name]) for name in logs}} for row in rows]
    upper, lower = _growth_plane(rows, "accuracy", 28, (0.0, 1.0)), _growth_plane(rows, "loss", 204, None)
    low, high = upper.y_range
    percents = [(tick / 100.0, f"{tick:.4g}%") for tick in nice_ticks(100.0 * low, 100.0 * high, _MOST_TICKS)]
    parts = upper.y_axis(f"accuracy on unseen {term}s", percents)
    loss_ticks = loss_ticks or _ticks(*lower.y_range, _MOST_TICKS)
    parts += lower.y_axis(f"loss on unseen {term}s (nats per {term})", loss_ticks)
    sizes = [row["n_pairs"] for row in rows]
    size_texts = [f"{n:,}" if n < 100_000 else f"{n / 1000:,.0f}k" for n in sizes]
    parts += lower.x_axis(f"training {part['noun']}s", enumerate(size_texts))
    for plane, name in ((upper, "accuracy"), (lower, "loss")):
        parts.append(plane.line([(step, row[name]) for step, row in enumerate(rows)], "curve"))
        for step, row in enumerate(rows):
            note = f"{row['n_pairs']:,} for training: {name} {part['rows'][step][name]:.4g}"
            parts += [
                plane.upright(step, row[f"{name}_low"], row[f"{name}_high"], "whisker"),
                plane.dot(step, row[name], note),
            ]
    return drawing(f"Learning curve: accuracy and loss on unseen {term}s", lower.bottom + 44, parts)


def _growth_plane(rows: list[dict[str, Any]], name: str, top: float, limits: tuple[float, float] | None) -> Plane:
    low, high = min(row[f"{name}_low"] for row in rows), max(row[f"{name}_high"] for row in rows)
    pad = 0.08 * (high - low) or 0.02 * max(abs(high), 1e-3)
    least, most = limits or (low - pad, high + pad)
    return Plane(54, top, 270, 130, (-0.3, len(rows) - 0.7), (max(low - pad, least), min(high + pad, most)))


_LEFT, _TOP, _ROOM, _MOST_HIGH, _LEAST_HIGH = 40.0, 34.0, 290.0, 330.0, 110.0
_STRIP = 130.0  # the height of a map of one direction
_SHOWN = 0.995  # of the marks are within the frame, at least
_MANY_MARKS = 600  # above which they are smaller


def _map_chart(part: dict[str, Any], _: dict[str, Any]) -> str:
    """Marks coloured by group, with those of suspected labels ringed, and the threshold."""
    across, codes = np.array(part["x"]), np.array(part["group"])
    radii = part.get("radii", []) if part.get("radius") is None else [part["radius"]]
    left, right = _map_range(part, radii, across)
    if part["y"] is None:
        # One direction, with heights that mean nothing but keep marks apart; labels have a lane each.
        lanes = "radius" in part
        golden = 0.5 * (np.sqrt(5.0) - 1.0)
        up = np.mod(golden * np.arange(1, len(across) + 1), 1.0) + 1.2 * codes * lanes
        top = 1.2 * (len(part["groups"]) if lanes else 1) - 0.1
        plane = Plane(_LEFT, _TOP, _ROOM, _STRIP, (left, right), (-0.1, top))
    else:
        # Both axes to the same scale, with room for the threshold around its centre.
        up = np.array(part["y"])
        low, high = _map_range(part, radii, up)
        unit = min(_ROOM / (right - left), _MOST_HIGH / (high - low))
        tall = max(_LEAST_HIGH / unit, high - low)
        x_range = _widened(part, left, right, _ROOM / unit)
        plane = Plane(_LEFT, _TOP, _ROOM, unit * tall, x_range, _widened(part, low, high, tall))
    titles = [f"direction {place} ({share:.1%})" for place, share in enumerate(part["shares"], start=1)]
    titles = titles if part["signed"] else [f"difference along {title}" for title in titles]
    parts = plane.x_axis(titles[0])
    if part["y"] is not None:
        parts += plane.y_axis(titles[1])
    (left, right), (low, high) = plane.x_range, plane.y_range
    inside = (left <= across) & (across <= right) & (low <= up) & (up <= high)
    size = "small" if len(across) > _MANY_MARKS else ""
    ringed = np.isin(np.arange(len(across)), part["suspects"])
    for chosen, kinds in ((inside & ~ringed, [size]), (inside & ringed, [f"{size} ring", f"{size} ringed"])):
        for kind in kinds:
            for code, group in enumerate(part["groups"]):
                which = chosen & (codes == code)
                if np.any(which):
                    parts.append(plane.marks(zip(across[which], up[which], strict=True), f"{kind} {group['style']}"))
    parts += _map_threshold(part, radii, plane)
    return drawing(f"Map of the {part['noun']}s along the strongest directions", plane.bottom + 44, parts)


def _map_range(part: dict[str, Any], radii: Sequence[float], values: FloatArray) -> tuple[float, float]:
    radius = max(radii, default=0.0)
    ends = np.quantile(values, [1.0 - _SHOWN, _SHOWN]) if len(values) else np.zeros(2)
    low, high = min(float(ends[0]), -1.1 * radius), max(float(ends[1]), 1.1 * radius)
    pad = 0.04 * (high - low) or 1.0
    return (low - pad, high + pad) if part["signed"] else (0.0, high + pad)


def _widened(part: dict[str, Any], low: float, high: float, width: float) -> tuple[float, float]:
    """The range with more room: on both sides, or above where zero is the end."""
    more = max(width - (high - low), 0.0)
    return (low - more / 2.0, high + more / 2.0) if part["signed"] else (low, high + more)


def _map_threshold(part: dict[str, Any], radii: Sequence[float], plane: Plane) -> list[str]:
    """A circle around zero, or lines where there is one direction; on a map of points a bar of that length."""
    if radii and part["y"] is None:
        ends = [end for radius in radii for end in (radius, -radius) if plane.x_range[0] <= end <= plane.x_range[1]]
        return [plane.upright(end, *plane.y_range, kind) for end in ends for kind in ("halo", "threshold")]
    if radii:
        angles = np.linspace(0.0, 2.0 * np.pi if part["signed"] else 0.5 * np.pi, 73)
        unit = np.column_stack([np.cos(angles), np.sin(angles)])
        return [plane.line((radius * unit).tolist(), kind) for radius in radii for kind in ("halo", "threshold")]
    if part.get("length") is None:
        return []
    pixels = plane.x(part["length"]) - plane.x(0.0)
    if pixels > plane.width:
        return []
    return [
        f'<path class="bar-line" d="M{WIDTH - 10.0 - pixels:.1f} 24V18H{WIDTH - 10.0:.1f}V24"/>',
        label(WIDTH - 10.0, 12, "threshold distance √τ", "end"),
    ]


# The drawing of each section, from its facts and those of the pairs.
_CHARTS: dict[str, Callable[[dict[str, Any], dict[str, Any]], str]] = {
    "distances": _distance_chart,
    "calibration": _calibration_chart,
    "roc": _roc_chart,
    "noise_check": _noise_chart,
    "learning_curve": _learning_chart,
    "spectrum": _spectrum_chart,
    "intervals": _interval_chart,
    "pair_map": _map_chart,
    "point_map": _map_chart,
}


def _charts(facts: dict[str, Any]) -> dict[str, str]:
    """The drawings of the sections that exist; they hold numbers and fixed words, and nothing of the user's."""
    shown = {name: chart for name, chart in _CHARTS.items() if not facts[name].get("reason")}
    found = {name: chart(facts[name], facts["pairs"]) for name, chart in shown.items()}
    if facts["choice"] is not None and facts["choice"]["path"] is not None:
        found["path"] = path_chart(facts["choice"]["path"])
    return found


# ---------------------------------------------------------------------------------------------------------------------
# The report as text: Markdown that reads well as it is.


_WIDTH = 100
_MOST_LOADINGS = 5
_MOST_DIRECTIONS = 3


def text(facts: dict[str, Any]) -> str:
    """Return the text of the dict of `summarize`."""
    lines = [
        f"# {short(facts['title'], _WIDTH)}",
        "",
        *(f"* {item['name']}: {short(item['value'], _WIDTH)}" for item in facts["about"]),
    ]
    lines += ["", *_paragraph(facts["sentence"]), *_paragraph(facts["pairs"]["words"])]
    if facts["choice"] is not None:
        lines += _paragraph(facts["choice"]["sentence"])
    lines += [f"* {item['name']}: {item['value']} ({item['note']})" for item in facts["key_figures"]]
    lines.append("")
    for heading, paragraphs in _sections(facts):
        lines += [f"## {heading}", ""]
        for paragraph in paragraphs:
            lines += [paragraph, ""] if paragraph.startswith("```") else _paragraph(paragraph)
    return "\n".join(lines).rstrip() + "\n"


def _sections(facts: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Give the heading of each section, and its paragraphs and tables."""
    certificate, wrong, pairs = facts["certificate"], facts["wrong_labels"], facts["pairs"]
    if facts["problems"]:
        yield "Warnings", [f"* {problem}" for problem in facts["problems"]]
    if facts["baseline"] is not None:
        columns = {"name": ("held out", ""), "accuracy": ("accuracy", ".1%"), "loss": ("loss", ".4f")}
        yield "Compared with the plain distance", [_said(facts["baseline"]), _table(facts["baseline"]["rows"], columns)]
    if facts["choice"] is not None and facts["choice"]["table"]:
        yield "Settings that were tried", [_tried(facts["choice"]["table"])]
    distances = {Kind.COMPARISONS: "Differences of squared distances", Kind.LEVELS: "Squared distances by level"}
    close_and_far = f"Squared distances of close and far {pairs['noun']}s"
    yield distances.get(pairs["kind"], close_and_far), [_said(facts["distances"])]
    yield "ROC curve", [_said(facts["roc"])]
    yield "Calibration", [_said(facts["calibration"]), _calibration(facts["calibration"], pairs["kind"])]
    yield "Confusion matrix", [_confusion(facts["quality"]["confusion"])]
    if facts["comparisons"] is not None:
        yield "Comparisons of the same fit", [_said(facts["comparisons"])]
    if facts["annotators"] is not None:
        yield "Annotators", [_said(facts["annotators"]), _annotators(facts["annotators"])]
    ranks = _table(facts["truncation"]["rows"], _RANKS)
    yield "Spectrum and truncation", [_said(facts["spectrum"]), _said(facts["truncation"]), ranks]
    yield "Directions and their loadings", _directions(facts["directions"]) or [_said(facts["directions"])]
    yield "The metric as a matrix", [_said(facts["matrix"])]
    outcome = f"{sentence(certificate['outcome'])}. {certificate['advice']}"
    yield "Optimality of the fit", [outcome, certificate["words"]]
    yield "Noise model", [_said(facts["noise_check"])]
    yield "Confidence intervals", [_said(facts["intervals"]), *_intervals(facts["intervals"], facts["evidence"])]
    yield f"Suspicious {pairs['term']}s", [_said(wrong), *_suspicious(wrong, pairs)]
    curve, noun = facts["learning_curve"], pairs["noun"]
    columns = {"n_pairs": (f"training {noun}s", ",d"), "loss": ("loss", ".4f"), "accuracy": ("accuracy", ".1%")}
    found = [] if curve["reason"] else [_table(curve["rows"], columns)]
    yield f"Learning curve: would more {noun}s help?", [_said(curve), *found]
    for step in facts["next_steps"]:
        yield step["title"], [_fence(step["code"], step["language"])]
    # Letters that could turn the direction of the lines are left out.
    summary = "".join(each if each.isprintable() or each == "\n" else " " for each in facts["fit"]["summary"])
    yield "Summary of the fit", [_fence(summary)]


def _said(part: dict[str, Any]) -> str:
    return str(part.get("reason") or part["reading"])


def _paragraph(words: str) -> list[str]:
    return [*textwrap.wrap(" ".join(words.split()), _WIDTH, break_long_words=False, break_on_hyphens=False), ""]


def _fence(content: str, language: str = "") -> str:
    return f"```{language}\n{content.replace('```', '` ` `')}\n```"


def _table(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, tuple[str, str]]) -> str:
    """A table of rows by the names of columns, each with its heading and its format."""
    return _fence(format_table(list(columns.values()), [[row[name] for name in columns] for row in rows]))


_RANKS = {
    "k": ("rank", "d"),
    "cut_off": ("cut-off", ".3g"),
    "loss": ("loss", ".4f"),
    "bound": ("bound +", ".2g"),
    "accuracy": ("accuracy", ".1%"),
    "refit_accuracy": ("refitted", ".1%"),
}


def _tried(rows: list[dict[str, Any]]) -> str:
    columns = {
        "prior": ("prior", ""),
        "alpha": ("alpha", ".4g"),
        "flip_rate": ("flip rate", ".3f"),
        "rank": ("rank", ""),
        "noise": ("noise", ""),
        "loss": ("held-out loss", ".4f"),
        "standard_error": ("std. error", ".4f"),
        "accuracy": ("accuracy", ".1%"),
    }
    for name in ("rank", "noise"):
        if len({row[name] for row in rows}) == 1:
            del columns[name]
    return _table(rows, columns)


def _calibration(part: dict[str, Any], kind: str) -> str:
    far = " far" if kind == Kind.CLOSE_FAR else ""
    shares = {"predicted": f"predicted{far}", "observed": f"observed{far}", "low": "lower", "high": "upper"}
    columns = {"level": ("level or higher", "d")} if kind == Kind.LEVELS else {}
    columns |= {"count": ("number", ",d"), **{name: (heading, ".1%") for name, heading in shares.items()}}
    return _table(part["bins"], columns)


def _confusion(part: dict[str, Any]) -> str:
    if "reason" in part:
        return str(part["reason"])
    labels = [short(label) for label in part["labels"]]
    columns = [("label", ""), *((f"predicted {label}", ",.6g") for label in labels)]
    return _fence(format_table(columns, [[label, *row] for label, row in zip(labels, part["counts"], strict=True)]))


def _annotators(part: dict[str, Any]) -> str:
    columns = {
        "annotator": ("annotator", ""),
        "n": ("judgements", ",d"),
        "strictness": ("strictness", "+.3g"),
        "low": ("lower", "+.3g"),
        "high": ("upper", "+.3g"),
        **({"flip_rate": ("flip rate", ".1%")} if part["has_flips"] else {}),
        "agreement": ("agreement", ".1%"),
        **({"kappa": ("kappa", ".2f")} if part["has_kappa"] else {}),
        "verdict": ("verdict", ""),
    }
    return _table([{**row, "annotator": short(row["annotator"])} for row in part["rows"]], columns)


def _directions(part: dict[str, Any]) -> list[str]:
    lines = []
    for number, row in enumerate(part["rows"][:_MOST_DIRECTIONS], start=1):
        order = sorted(range(len(row["loadings"])), key=lambda index: -abs(row["loadings"][index]))[:_MOST_LOADINGS]
        words = ", ".join(f"{short(part['features'][index])} {loading(row['loadings'][index])}" for index in order)
        lines.append(f"Direction {number} explains {percent(row['share'])} of the mean squared distance: {words}.")
    return lines


def _intervals(part: dict[str, Any], evidence: str) -> list[str]:
    if part["reason"]:
        return []
    rows = {"threshold": part["threshold"]} if part["threshold"] else {}
    rows |= {f"threshold {number}": row for number, row in enumerate(part.get("thresholds", []), start=1)}
    rows |= {"flip rate": part["flip_rate"]} if part["flip_rate"] else {}
    rows |= dict(zip(("close called far", "far called close"), part.get("flip_rates", []), strict=False))
    rows |= {f"direction {number}": row for number, row in enumerate(part["directions"], start=1)}
    columns = {"name": ("", ""), "estimate": ("estimate", ".4g"), "low": ("lower", ".4g"), "high": ("upper", ".4g")}
    return [evidence, part["statement"], _table([{"name": name, **row} for name, row in rows.items()], columns)]


def _suspicious(part: dict[str, Any], pairs: dict[str, Any]) -> list[str]:
    if not part["rows"]:
        return []
    columns = {"who": ("row or id", ""), "label": (pairs["term"], "")}
    wrong = {"probability_wrong": ("P(wrong)", ".3f")}
    of_label = {"probability_of_label": (f"P({pairs['term']})", ".3f")}
    is_probability = part["kind"] == "probability"
    if pairs["kind"] == Kind.LEVELS:
        columns |= {"predicted": ("predicted", ""), **(wrong if is_probability else {}), **of_label}
        columns |= {"squared_distance": ("squared distance", ".3g")}
    else:
        columns |= {**(wrong if is_probability else of_label), "margin": ("margin", ".3g")}
    rows = [
        {
            **row,
            "who": ", ".join(map(short, row["ids"])) or f"{row['row']}",
            **{name: short(row[name]) for name in ("label", "predicted") if name in row},
        }
        for row in part["rows"]
    ]
    return [_table(rows, columns)]


# ---------------------------------------------------------------------------------------------------------------------
# From the dict of a report to a page, JSON or text, and to a file.


_FORMATS = {".html": "html", ".htm": "html", ".json": "json", ".txt": "text", ".md": "text"}


def render(facts: dict[str, Any], format: str) -> str:
    """Return the dict of `summarize` as "html", "json" or "text" (which is Markdown).

    Examples
    --------
    >>> import closefar as cf
    >>> from closefar.report import render, summarize
    >>> pairs, labels, *_ = cf.datasets.make_pairs(500, 2, random_state=0)
    >>> facts = summarize(cf.LinearMetricLearner().fit(pairs, labels), title="Five hundred pairs")
    >>> print(render(facts, "text").splitlines()[0])
    # Five hundred pairs
    """
    if format not in _RENDERERS:
        raise ValueError(f"format must be one of {list(_RENDERERS)}; got {format!r}.")
    return _RENDERERS[format](facts)


def check_report(path: str | Path) -> str:
    """Return the format that the name of a report asks for; an error if it can't be made."""
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise ValueError(f"the name of a report must end with one of {', '.join(_FORMATS)}; got {str(path)!r}.")
    if _FORMATS[suffix] == "html":
        page_template()  # says if a package is missing
    return _FORMATS[suffix]


def encode_report(
    learner: Fit | Fitted, path: str | Path, X: Any = None, y: Any = None, sample_weight: Any = None, **options: Any
) -> bytes:
    """Return the content that `write_report` writes; nothing is written."""
    format = check_report(path)
    facts = summarize(learner, X, y, sample_weight, **options)
    # A name may hold a lone surrogate, which UTF-8 can't.
    return render(facts, format).encode("utf-8", "xmlcharrefreplace" if format == "html" else "backslashreplace")


def write_report(
    learner: Fit | Fitted, path: str | Path, X: Any = None, y: Any = None, sample_weight: Any = None, **options: Any
) -> None:
    """Write one file that shows what was learned, how good it is and how to go on.

    An HTML page needs nothing beside it and asks nothing of the network.  An existing file is
    replaced in one step, so a reader sees the old report or the whole new one.

    Parameters
    ----------
    path : str or Path
        Where to write.  Its suffix says what: .html or .htm (a page), .json, .txt or .md (text).
    learner, X, y, sample_weight, **options
        As for `summarize`.
    """
    check_writable(Path(path))
    replace_file(Path(path), encode_report(learner, path, X, y, sample_weight, **options))


def _json(facts: dict[str, Any]) -> str:
    return json.dumps(facts, indent=1, allow_nan=False) + "\n"


_RENDERERS: dict[str, Callable[[dict[str, Any]], str]] = {"html": page, "json": _json, "text": text}
