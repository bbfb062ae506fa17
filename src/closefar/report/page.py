"""The report as one HTML page that needs nothing beside it, with its charts, as text and as JSON."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from closefar.report.wording import abridged, digits, percent, sentence, short, signed
from closefar.templating import load_asset, load_template

_LONGEST_IN_TABLE = 60  # which has room in two lines of a table
_ENTRY_DECIMALS = 4  # that have room in a matrix


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
        most_bars=_MOST_BARS,
        abridged=partial(abridged, longest=_LONGEST_IN_TABLE),
        percent=percent,
        figure=_figure,
        entry=_entry,
        loading=signed,
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
    if not 0 <= decimals <= _ENTRY_DECIMALS:
        return digits(value, ".2g")
    text = f"{value:.{decimals}f}"
    return text if float(text) else text.removeprefix("-")


# ---------------------------------------------------------------------------------------------------------------------
# Inline SVG: a drawing with axes, and marks in it. Numbers and fixed words only, coloured by the page's CSS.
#
# The drawings are as wide as a phone, so that text keeps its size there; the page may enlarge them.


_DRAWING_WIDTH = 340  # pixels: a phone has 360 and more
_TICK_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)  # between ticks, times a power of ten
_MANTISSAS = ((1, 2, 5), (1, 3), (1,))  # of log scales, from narrow to wide
_MOST_TICKS = 4  # whose texts have room on a narrow axis

_Point = tuple[float, float]
_Ticks = Iterable[tuple[float, str]]


class _Chart:
    """A rectangle of a drawing with the ranges of numbers that it shows, and what was drawn in it.

    It is at `left` and `top`, `width` and `height` pixels large.  Several share one drawing by its `parts`.
    """

    def __init__(
        self, place: tuple[float, float, float, float], x: _Point, y: _Point, parts: list[str] | None = None
    ) -> None:
        self.left, self.top, self.width, self.height = place
        self.right, self.bottom = self.left + self.width, self.top + self.height
        self.x_range, self.y_range = x, y
        self.parts: list[str] = [] if parts is None else parts

    def x(self, value: float) -> float:
        low, high = self.x_range
        return self.left + self.width * (value - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return self.bottom - self.height * (value - low) / (high - low)

    def x_axis(self, title: str, ticks: _Ticks | None = None) -> None:
        """Lines across at the ticks, their texts below, and the title at the right below those."""
        for value, words in _ticks(*self.x_range) if ticks is None else ticks:
            self.parts.append(f'<path class="grid" d="M{self.x(value):.1f} {self.top:.1f}V{self.bottom:.1f}"/>')
            self.text(self.x(value), self.bottom + 19, words, "middle")
        self.text(self.right, self.bottom + 37, title, "muted end")

    def y_axis(self, title: str, ticks: _Ticks | None = None) -> None:
        """Lines across at the ticks, their texts at the left, and the title above."""
        for value, words in _ticks(*self.y_range) if ticks is None else ticks:
            self.parts.append(f'<path class="grid" d="M{self.left:.1f} {self.y(value):.1f}H{self.right:.1f}"/>')
            self.text(self.left - 8, self.y(value) + 3, words, "end")
        self.text(2, self.top - 12, title, "muted")

    def text(self, x: float, y: float, words: str, kind: str) -> None:
        self.parts.append(_text(x, y, words, kind))

    def line(self, points: Iterable[_Point], kind: str, end: str = "") -> None:
        places = "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<path class="{kind}" d="M{places}{end}"/>')

    def marks(self, points: Iterable[_Point], kind: str) -> None:
        """Round marks, in one path that takes few letters for each."""
        places = "".join(f"M{self.x(x):.1f} {self.y(y):.1f}h0" for x, y in points)
        self.parts.append(f'<path class="marks {kind}" d="{places}"/>')

    def dot(self, x: float, y: float, note: str, kind: str = "dot") -> None:
        place = f'cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="4.5"'
        self.parts.append(f'<circle class="{kind}" {place}><title>{note}</title></circle>')

    def upright(self, x: float, low: float, high: float, kind: str) -> None:
        self.parts.append(f'<path class="{kind}" d="M{self.x(x):.1f} {self.y(low):.1f}V{self.y(high):.1f}"/>')

    def bars(
        self, edges: Sequence[float], counts: Sequence[float], unit: float, kind: str, what: str, base: float = 0.0
    ) -> None:
        """A bar for each bin of a histogram, which is `unit` high for one, with its count in a note."""
        for low, high, n in zip(edges, edges[1:], counts, strict=False):
            bottom, top = sorted((base, base + unit * n))
            self.parts.append(
                f'<rect class="{kind}" x="{self.x(low):.1f}" y="{self.y(top):.1f}" '
                f'width="{max(self.x(high) - self.x(low), 0.5):.1f}" '
                f'height="{max(self.y(bottom) - self.y(top), 0.0):.1f}">'
                f"<title>{low:.3g} to {high:.3g}: {n:,.6g}{what}</title></rect>"
            )

    def thresholds(self, thresholds: Sequence[float], name: str) -> None:
        """Lines at those thresholds that the axis has room for, and their name above the last."""
        shown = [threshold for threshold in thresholds if 0.0 < threshold < self.x_range[1]]
        for threshold in shown:
            self.upright(threshold, *self.y_range, "threshold")
        if shown:
            place = min(max(self.x(shown[-1]), self.left + 90), self.right - 34)
            self.text(place, self.top - 12, name, "middle")

    def drawing(self, name: str) -> str:
        return _drawing(name, self.bottom + 44, self.parts)


def _drawing(name: str, height: float, parts: Iterable[str]) -> str:
    """Put the parts in a drawing with a name for screen readers."""
    return f'<svg viewBox="0 0 {_DRAWING_WIDTH} {height:.0f}" role="img" aria-label="{name}">{"".join(parts)}</svg>'


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{words}</text>'


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most `most` round numbers from low to high."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(nice * power for nice in _TICK_STEPS if nice * power >= rough * (1.0 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)][: most + 1]


def log_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most `most` round numbers from low to high, about equally far apart on a log scale."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for mantissas in _MANTISSAS:
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
    if 1e4 <= abs(value) < 1e6:
        return f"{value / 1e3:g}k"
    return f"{value:.4g}".replace("e+0", "e").replace("e-0", "e-") if value else "0"


# ---------------------------------------------------------------------------------------------------------------------
# The drawing of each section, from its facts and those of the pairs.


_MOST_BARS = 20  # which fit on a screen

# Columns of the bar charts, in pixels: the bars end where the widest number, such as 1.23e-05, still has room.
_ROW_HEIGHT = 24  # of a line of text with room around it
_BARS_LEFT, _BARS_RIGHT, _RANGE_RIGHT = 28, 178, 200  # of bars with two numbers, or with an interval, beside them
_VALUE_RIGHT, _SHARE_RIGHT = 246, 336  # where numbers end

_UNIT: _Point = (0.0, 1.0)  # of an axis of shares
_QUARTERS = [(tick, f"{tick:.0%}") for tick in (0.0, 0.25, 0.5, 0.75, 1.0)]
_SQUARE = (48, 28, 272, 272)  # with room for percentages at the left

_LOG_RANGE = 4.0  # losses that differ by this factor have a log scale
_FAR_WORSE = 4.0  # times as far above the lowest loss as the median is

_LEVEL_HEIGHT = 44.0  # of the histogram of one level
_LEVELS_HEIGHT = 320.0  # of all of them


def _spectrum_chart(part: dict[str, Any], _: dict[str, Any]) -> str:
    """The mean squared distance along each direction: one bar each with its value and the cumulative share."""
    rows = part["rows"][:_MOST_BARS]
    unit = (_BARS_RIGHT - _BARS_LEFT) / (max((row["value"] for row in rows), default=0.0) or 1.0)
    headings = [(_BARS_LEFT, "direction"), (_VALUE_RIGHT, "mean squared distance"), (_SHARE_RIGHT, "cumulative")]
    lines = []
    for base, row in enumerate(rows, start=1):
        place = f'x="{_BARS_LEFT}" y="{base * _ROW_HEIGHT + 3}"'
        size = f'width="{max(unit * row["value"], 1.0):.1f}" height="{_ROW_HEIGHT - 6}"'
        lines.append((f'<rect class="bar" {place} {size}/>', digits(row["value"]), f"{row['cumulative']:.1%}"))
    return _rows_drawn("Bar chart of the mean squared distance along each direction", headings, lines)


def _interval_chart(part: dict[str, Any], _: dict[str, Any]) -> str:
    """The mean squared distance along each direction with its interval, one line each."""
    rows = part["directions"][:_MOST_BARS]
    unit = (_RANGE_RIGHT - _BARS_LEFT) / (max((row["high"] for row in rows), default=0.0) or 1.0)
    lines = []
    for base, row in enumerate(rows, start=1):
        middle = base * _ROW_HEIGHT + 12
        low, at, high = (_BARS_LEFT + unit * row[name] for name in ("low", "estimate", "high"))
        whisker = f'<path class="whisker" d="M{low:.1f} {middle}H{high:.1f}"/>'
        dot = f'<circle class="dot" cx="{at:.1f}" cy="{middle}" r="4"/>'
        lines.append((whisker + dot, f"{digits(row['low'])} to {digits(row['high'])}"))
    headings = [(_BARS_LEFT, "mean squared distance"), (_SHARE_RIGHT, "interval")]
    return _rows_drawn("Intervals of the mean squared distance along each direction", headings, lines)


def _rows_drawn(name: str, headings: list[tuple[int, str]], rows: Sequence[tuple[str, ...]]) -> str:
    """Below headings, a line for each direction: its number, its mark, and texts that end where the headings do."""
    parts = [_text(x, 15, words, "muted end" if x > _BARS_LEFT else "muted") for x, words in headings]
    for number, (mark, *texts) in enumerate(rows, start=1):
        base = number * _ROW_HEIGHT + 16
        parts += [_text(_BARS_LEFT - 8, base, f"{number}", "end"), mark]
        parts += [_text(x, base, words, "end") for (x, _), words in zip(headings[1:], texts, strict=True)]
    return _drawing(name, (len(rows) + 1) * _ROW_HEIGHT + 4, parts)


def _distance_chart(part: dict[str, Any], pairs: dict[str, Any]) -> str:
    """How many have each squared distance: far ones upwards and close ones downwards, or each level separately."""
    if pairs["kind"] == Kind.COMPARISONS:
        return _difference_chart(part)
    if pairs["kind"] == Kind.LEVELS:
        return _level_chart(part)
    edges, close, far = part["edges"], part["close"], part["far"]
    most = max([*close, *far]) or 1.0
    chart = _Chart((46, 42, 284, 220), (0.0, edges[-1]), (-1.06 * most, 1.06 * most))
    counts = [tick for tick in nice_ticks(0.0, most, 3) if tick > 0]
    chart.x_axis("squared distance")
    ticks = [(0.0, "0"), *((sign * tick, _tick_text(tick)) for tick in counts for sign in (1.0, -1.0))]
    chart.y_axis(f"{part['counted']} per bar", ticks)
    chart.bars(edges, far, 1.0, "far", " far")
    chart.bars(edges, close, -1.0, "close", " close")
    chart.line([(0.0, 0.0), (edges[-1], 0.0)], "axis")
    chart.text(chart.right, chart.top + 14, "labelled far ↑", "far-word end")
    chart.text(chart.right, chart.bottom - 6, "labelled close ↓", "close-word end")
    chart.thresholds([part["threshold"]], "threshold τ")
    return chart.drawing("Histogram of squared distances, close and far")


def _level_chart(part: dict[str, Any]) -> str:
    """A histogram for each level, closest at the bottom, each to its own scale, and lines at the thresholds."""
    edges, rows = part["edges"], part["levels"]
    styles, height = level_styles(len(rows)), min(_LEVEL_HEIGHT, _LEVELS_HEIGHT / len(rows))
    chart = _Chart((46, 42, 284, height * len(rows)), (0.0, edges[-1]), (0.0, float(len(rows))))
    chart.x_axis("squared distance")
    chart.y_axis("level", [])
    for level, row in enumerate(rows):
        unit, what = 0.88 / (max(row["counts"]) or 1.0), f" of level {level}"
        chart.bars(edges, row["counts"], unit, f"level {styles[level]}", what, base=level)
        chart.line([(0.0, float(level)), (edges[-1], float(level))], "axis")
        chart.text(chart.left - 8, chart.y(level) - 6, f"{level}", "end")
    shown = sum(0.0 < threshold < edges[-1] for threshold in part["thresholds"])
    chart.thresholds(part["thresholds"], "thresholds" if shown > 1 else "threshold")
    return chart.drawing("Histograms of squared distances by level, with the thresholds")


def _difference_chart(part: dict[str, Any]) -> str:
    """How many comparisons have each difference of squared distances; the metric contradicts those below zero."""
    edges, counts = part["edges"], part["counts"]
    most, half = max(counts) or 1.0, len(counts) // 2
    chart = _Chart((46, 42, 284, 200), (edges[0], edges[-1]), (0.0, 1.06 * most))
    chart.x_axis("difference of squared distances")
    chart.y_axis(f"{part['counted']} per bar", _ticks(0.0, most, _MOST_TICKS))
    chart.bars(edges[: half + 1], counts[:half], 1.0, "far", "")
    chart.bars(edges[half:], counts[half:], 1.0, "close", "")
    chart.upright(0.0, 0.0, 1.06 * most, "threshold")
    chart.text(chart.left + 4, chart.top + 10, "contradicted", "far-word")
    chart.text(chart.right, chart.top + 10, "agreed with", "close-word end")
    return chart.drawing("Histogram of the differences of squared distances of comparisons")


_CALIBRATION = {  # what is predicted and observed, and the name of the drawing
    Kind.CLOSE_FAR: ("P(far)", "share far", "Observed share far against the predicted probability"),
    Kind.COMPARISONS: ("P(likelier answer)", "share", "Observed share against the predicted probability"),
    Kind.LEVELS: ("P(level k or higher)", "share", "Observed shares against predicted probabilities, by threshold"),
}


def _calibration_chart(part: dict[str, Any], pairs: dict[str, Any]) -> str:
    """Observed shares with their intervals against predicted probabilities, and the diagonal of perfect agreement."""
    chart, (predicted, observed, name) = _Chart(_SQUARE, _UNIT, _UNIT), _CALIBRATION[Kind(pairs["kind"])]
    chart.x_axis(f"predicted {predicted}", _QUARTERS)
    chart.y_axis(f"observed {observed}", _QUARTERS)
    chart.line([(0.0, 0.0), (1.0, 1.0)], "diagonal")
    for row in part["bins"]:
        note, style = f"{row['count']:,} predicted {row['predicted']:.1%}, observed {row['observed']:.1%}", ""
        if "level" in row:
            note, style = f"level {row['level']} or higher: {note}", _level_class(row["level"], pairs)
        chart.upright(row["predicted"], row["low"], row["high"], f"whisker{style}")
        chart.dot(row["predicted"], row["observed"], note, f"dot{style}")
    return chart.drawing(name)


def _roc_chart(part: dict[str, Any], pairs: dict[str, Any]) -> str:
    """The curve, the diagonal of chance, and where the learned threshold is; for levels the curve of each threshold."""
    is_graded, chart = "curves" in part, _Chart(_SQUARE, _UNIT, _UNIT)
    positive, negative, area = "far predicted far", "close predicted far", "AUC"
    if is_graded:
        positive, negative, area = "level k or higher", "lower level predicted higher", "mean AUC"
    chart.x_axis(f"false positive rate ({negative})", _QUARTERS)
    chart.y_axis(f"true positive rate ({positive})", _QUARTERS)
    curves = [list(zip(each["false_far"], each["true_far"], strict=True)) for each in part.get("curves", [part])]
    if not is_graded:
        chart.line([(0.0, 0.0), (1.0, 0.0), *reversed(curves[0])], "under", "Z")
    chart.line([(0.0, 0.0), (1.0, 1.0)], "diagonal")
    styles = [_level_class(each["level"], pairs) for each in part["curves"]] if is_graded else [""]
    for curve, style in zip(curves, styles, strict=True):
        chart.line(curve, f"curve{style}")
    if not is_graded:
        here = part["at_threshold"]
        note = f"at the threshold: true positives {here['true_far']:.1%}, false positives {here['false_far']:.1%}"
        chart.dot(here["false_far"], here["true_far"], note)
    chart.text(chart.right - 10, chart.bottom - 14, f"{area} {part['auc']:.3f}", "end")
    return chart.drawing("ROC curve of each threshold" if is_graded else "ROC curve")


def _level_class(level: int, pairs: dict[str, Any]) -> str:
    return f" level {level_styles(len(pairs['labels']))[level]}"


def _noise_chart(part: dict[str, Any], _: dict[str, Any]) -> str:
    """Observed minus expected share by margin, and the band in which 95% of such differences lie."""
    rows, is_compared = part["bins"], part["question"] == "comparisons"
    share = "share agreeing" if is_compared else "share above τ" if part["question"] else "share far"
    points = [(row["margin"], row["observed"] - row["expected"]) for row in rows]
    lower, upper = ([(row["margin"], sign * 1.96 * row["error"]) for row in rows] for sign in (-1.0, 1.0))
    reach = 1.1 * max(abs(y) for _, y in (*points, *upper)) or 0.01
    pad = 0.04 * (points[-1][0] - points[0][0])
    chart = _Chart((62, 28, 266, 170), (points[0][0] - pad, points[-1][0] + pad), (-reach, reach))
    chart.x_axis(f"margin: {'difference of squared distances' if is_compared else 'squared distance minus τ'}")
    y_ticks = [(tick, f"{100.0 * tick:+.3g}%" if tick else "0") for tick in nice_ticks(-reach, reach, 4)]
    chart.y_axis(f"{share}: observed minus expected", y_ticks)
    chart.line([*lower, *reversed(upper)], "band", "Z")
    chart.line([(end, 0.0) for end in chart.x_range], "axis")
    chart.line(points, "curve")
    for row, (x, y) in zip(rows, points, strict=True):
        chart.dot(x, y, f"{row['count']:,.6g}: observed {row['observed']:.1%}, expected {row['expected']:.1%}")
    return chart.drawing(f"Observed minus expected {share} by margin")


def path_chart(part: dict[str, Any]) -> str:
    """Held-out loss against alpha on a log axis, a line for each prior and flip rate, and the plain distance."""
    lines, plain, chosen = part["lines"], part["plain"], part["chosen"]
    rows = [row for line in lines for row in line["rows"]]
    alphas = [row["alpha"] for row in rows] + ([] if chosen is None else [chosen])
    median = sorted(row["loss"] for row in rows)[len(rows) // 2]
    lowest = min(row["loss"] - row["standard_error"] for row in rows)
    highest = max(row["loss"] + row["standard_error"] for row in rows)
    # What is far worse than most would flatten the others: it is drawn at the upper edge.
    highest = min(highest, max(lowest + _FAR_WORSE * (median - lowest), lowest + 1e-3))
    if plain is not None:
        lowest, highest = min(lowest, plain["loss"]), max(highest, plain["loss"])
    pad = max(0.08 * (highest - lowest), 1e-3)
    left, right = math.log10(min(alphas)), math.log10(max(alphas))
    room = 0.06 * (right - left) or 0.1
    low, high = left - room, right + room
    chart = _Chart((54, 42, 270, 190), (low, high), (lowest - pad, highest + pad))
    chart.x_axis("alpha", _log_ticks(10.0**low, 10.0**high))
    chart.y_axis("held-out loss", _ticks(*chart.y_range, _MOST_TICKS))
    if plain is not None:
        chart.line([(low, plain["loss"]), (high, plain["loss"])], "diagonal")
    if chosen is not None:
        chart.upright(math.log10(chosen), *chart.y_range, "threshold")
        chart.text(max(chart.x(math.log10(chosen)), chart.left + 60), chart.top - 12, "chosen", "middle")
    least, most = chart.y_range
    for line in lines:
        places = [(math.log10(row["alpha"]), min(row["loss"], most)) for row in line["rows"]]
        chart.parts.append(f'<g class="{line["style"]}">')
        chart.line(places, "path")
        for (x, y), row in zip(places, line["rows"], strict=True):
            error = row["standard_error"]
            chart.upright(x, max(y - error, least), min(y + error, most), "error")
            note = f"alpha {row['alpha']:.3g}: loss {row['loss']:.4f}, accuracy {row['accuracy']:.1%}"
            chart.dot(x, y, note, "spot")
        chart.parts.append("</g>")
    return chart.drawing("Held-out loss against alpha")


def _learning_chart(part: dict[str, Any], _: dict[str, Any]) -> str:
    """Accuracy and loss on unseen pairs against the number of pairs, each doubling a step."""
    rows, term = part["rows"], part["term"]
    loss_ticks: list[tuple[float, str]] = []
    least, most = min(row["loss_low"] for row in rows), max(row["loss_high"] for row in rows)
    if 0.0 < _LOG_RANGE * least < most:  # a fit to few pairs has a loss that would flatten all others
        loss_ticks = _log_ticks(least, most)
        logs = ("loss", "loss_low", "loss_high")
        rows = [{**row, **{name: math.log10(row[name]) for name in logs}} for row in rows]
    upper = _learning_part(rows, "accuracy", 28, _UNIT, [])
    lower = _learning_part(rows, "loss", 204, (-math.inf, math.inf), upper.parts)
    low, high = upper.y_range
    percents = [(tick / 100.0, f"{tick:.4g}%") for tick in nice_ticks(100.0 * low, 100.0 * high, _MOST_TICKS)]
    upper.y_axis(f"accuracy on unseen {term}s", percents)
    lower.y_axis(f"loss on unseen {term}s (nats per {term})", loss_ticks or _ticks(*lower.y_range, _MOST_TICKS))
    sizes = [row["n_pairs"] for row in rows]
    size_texts = [f"{n:,}" if n < 100_000 else f"{n / 1000:,.0f}k" for n in sizes]
    lower.x_axis(f"training {part['noun']}s", enumerate(size_texts))
    for chart, name in ((upper, "accuracy"), (lower, "loss")):
        chart.line([(step, row[name]) for step, row in enumerate(rows)], "curve")
        for step, row in enumerate(rows):
            chart.upright(step, row[f"{name}_low"], row[f"{name}_high"], "whisker")
            note = f"{row['n_pairs']:,} for training: {name} {part['rows'][step][name]:.4g}"
            chart.dot(step, row[name], note)
    return lower.drawing(f"Learning curve: accuracy and loss on unseen {term}s")


def _learning_part(rows: list[dict[str, Any]], name: str, top: float, limits: _Point, parts: list[str]) -> _Chart:
    low, high = min(row[f"{name}_low"] for row in rows), max(row[f"{name}_high"] for row in rows)
    pad = 0.08 * (high - low) or 0.02 * max(abs(high), 1e-3)
    y_range = max(low - pad, limits[0]), min(high + pad, limits[1])
    return _Chart((54, top, 270, 130), (-0.3, len(rows) - 0.7), y_range, parts)


# Pixels of a map: where it begins, its width, and how high it is at most, at least, and with one direction.
_MAP_LEFT, _MAP_TOP, _MAP_WIDTH, _MOST_HIGH, _LEAST_HIGH, _STRIP = 40.0, 34.0, 290.0, 330.0, 110.0, 130.0
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
        low, high = -0.1, 1.2 * (len(part["groups"]) if lanes else 1) - 0.1
        height = _STRIP
    else:
        # Both axes to the same scale, with room for the threshold around its centre.
        up = np.array(part["y"])
        low, high = _map_range(part, radii, up)
        unit = min(_MAP_WIDTH / (right - left), _MOST_HIGH / (high - low))
        height = unit * max(_LEAST_HIGH / unit, high - low)
        left, right = _widened(part, left, right, _MAP_WIDTH / unit)
        low, high = _widened(part, low, high, max(_LEAST_HIGH / unit, high - low))
    chart = _Chart((_MAP_LEFT, _MAP_TOP, _MAP_WIDTH, height), (left, right), (low, high))
    titles = [f"direction {place} ({share:.1%})" for place, share in enumerate(part["shares"], start=1)]
    titles = titles if part["signed"] else [f"difference along {title}" for title in titles]
    chart.x_axis(titles[0])
    if part["y"] is not None:
        chart.y_axis(titles[1])
    inside = (left <= across) & (across <= right) & (low <= up) & (up <= high)
    size = "small" if len(across) > _MANY_MARKS else ""
    ringed = np.isin(np.arange(len(across)), part["suspects"])
    for chosen, kinds in ((inside & ~ringed, [size]), (inside & ringed, [f"{size} ring", f"{size} ringed"])):
        for kind in kinds:
            for code, group in enumerate(part["groups"]):
                which = chosen & (codes == code)
                if np.any(which):
                    chart.marks(zip(across[which], up[which], strict=True), f"{kind} {group['style']}")
    _draw_threshold(part, radii, chart)
    return chart.drawing(f"Map of the {part['noun']}s along the strongest directions")


def _map_range(part: dict[str, Any], radii: Sequence[float], values: FloatArray) -> _Point:
    radius = max(radii, default=0.0)
    ends = np.quantile(values, [1.0 - _SHOWN, _SHOWN]) if len(values) else np.zeros(2)
    low, high = min(float(ends[0]), -1.1 * radius), max(float(ends[1]), 1.1 * radius)
    pad = 0.04 * (high - low) or 1.0
    return (low - pad, high + pad) if part["signed"] else (0.0, high + pad)


def _widened(part: dict[str, Any], low: float, high: float, width: float) -> _Point:
    """The range with more room: on both sides, or above where zero is the end."""
    more = max(width - (high - low), 0.0)
    return (low - more / 2.0, high + more / 2.0) if part["signed"] else (low, high + more)


def _draw_threshold(part: dict[str, Any], radii: Sequence[float], chart: _Chart) -> None:
    """A circle around zero, or lines where there is one direction; on a map of points a bar of that length."""
    angles = np.linspace(0.0, 2.0 * np.pi if part["signed"] else 0.5 * np.pi, 73)
    for radius in radii:
        circle = (radius * np.column_stack([np.cos(angles), np.sin(angles)])).tolist()
        for end in (radius, -radius) if part["y"] is None else ():
            if chart.x_range[0] <= end <= chart.x_range[1]:
                chart.upright(end, *chart.y_range, "halo")
                chart.upright(end, *chart.y_range, "threshold")
        for kind in ("halo", "threshold") if part["y"] is not None else ():
            chart.line(circle, kind)
    if part.get("length") is not None:
        pixels, right = chart.x(part["length"]) - chart.x(0.0), _DRAWING_WIDTH - 10.0
        if pixels <= chart.width:
            chart.parts.append(f'<path class="bar-line" d="M{right - pixels:.1f} 24V18H{right:.1f}V24"/>')
            chart.text(right, 12, "threshold distance √τ", "end")


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


_LINE = 100  # letters
_LOADINGS_WORDED = 5  # of a direction, in a line or two
_DIRECTIONS_WORDED = 3  # the others are in the JSON form


def text(facts: dict[str, Any]) -> str:
    """Return the text of the dict of `summarize`."""
    lines = [
        f"# {short(facts['title'], _LINE)}",
        "",
        *(f"* {item['name']}: {short(item['value'], _LINE)}" for item in facts["about"]),
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
        held_out = _table(facts["baseline"]["rows"], {"name": "", "accuracy": ".1%", "loss": ".4f"}, name="held out")
        yield "Compared with the plain distance", [_said(facts["baseline"]), held_out]
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
    yield "Spectrum and truncation", [_said(facts["spectrum"]), _said(facts["truncation"]), _ranks(facts["truncation"])]
    yield "Directions and their loadings", _directions(facts["directions"]) or [_said(facts["directions"])]
    yield "The metric as a matrix", [_said(facts["matrix"])]
    outcome = f"{sentence(certificate['outcome'])}. {certificate['advice']}"
    yield "Optimality of the fit", [outcome, certificate["words"]]
    yield "Noise model", [_said(facts["noise_check"])]
    yield "Confidence intervals", [_said(facts["intervals"]), *_intervals(facts["intervals"], facts["evidence"])]
    yield f"Suspicious {pairs['term']}s", [_said(wrong), *_suspicious(wrong, pairs)]
    curve, noun = facts["learning_curve"], pairs["noun"]
    formats = {"n_pairs": ",d", "loss": ".4f", "accuracy": ".1%"}
    found = [] if curve["reason"] else [_table(curve["rows"], formats, n_pairs=f"training {noun}s")]
    yield f"Learning curve: would more {noun}s help?", [_said(curve), *found]
    for step in facts["next_steps"]:
        yield step["title"], [_fence(step["code"], step["language"])]
    # Letters that could turn the direction of the lines are left out.
    summary = "".join(each if each.isprintable() or each == "\n" else " " for each in facts["fit"]["summary"])
    yield "Summary of the fit", [_fence(summary)]


def _said(part: dict[str, Any]) -> str:
    return str(part.get("reason") or part["reading"])


def _paragraph(words: str) -> list[str]:
    return [*textwrap.wrap(" ".join(words.split()), _LINE, break_long_words=False, break_on_hyphens=False), ""]


def _fence(content: str, language: str = "") -> str:
    return f"```{language}\n{content.replace('```', '` ` `')}\n```"


def _table(rows: Iterable[Mapping[str, Any]], formats: Mapping[str, str], **headings: str) -> str:
    """A table of rows by the names of columns, each with a format; a heading is the name unless another is given."""
    headings = {"low": "lower", "high": "upper", **headings}
    columns = [(headings.get(name, name.replace("_", " ")), form) for name, form in formats.items()]
    return _fence(format_table(columns, [[row[name] for name in formats] for row in rows]))


def _ranks(part: dict[str, Any]) -> str:
    formats = {"k": "d", "cut_off": ".3g", "loss": ".4f", "bound": ".2g", "accuracy": ".1%", "refit_accuracy": ".1%"}
    return _table(part["rows"], formats, k="rank", cut_off="cut-off", bound="bound +", refit_accuracy="refitted")


def _tried(rows: list[dict[str, Any]]) -> str:
    formats = {"prior": "", "alpha": ".4g", "flip_rate": ".3f", "rank": "", "noise": "", "loss": ".4f"}
    formats |= {"standard_error": ".4f", "accuracy": ".1%"}
    for name in ("rank", "noise"):
        if len({row[name] for row in rows}) == 1:
            del formats[name]
    return _table(rows, formats, loss="held-out loss", standard_error="std. error")


def _calibration(part: dict[str, Any], kind: str) -> str:
    far = " far" if kind == Kind.CLOSE_FAR else ""
    headings = {"level": "level or higher", "count": "number"}
    headings |= {name: f"{name}{far}" for name in ("predicted", "observed")}
    formats = {"level": "d"} if kind == Kind.LEVELS else {}
    formats |= {"count": ",d", **dict.fromkeys(("predicted", "observed", "low", "high"), ".1%")}
    return _table(part["bins"], formats, **headings)


def _confusion(part: dict[str, Any]) -> str:
    if "reason" in part:
        return str(part["reason"])
    labels = [short(label) for label in part["labels"]]
    columns = [("label", ""), *((f"predicted {label}", ",.6g") for label in labels)]
    return _fence(format_table(columns, [[label, *row] for label, row in zip(labels, part["counts"], strict=True)]))


def _annotators(part: dict[str, Any]) -> str:
    formats = {"annotator": "", "n": ",d", "strictness": "+.3g", "low": "+.3g", "high": "+.3g"}
    formats |= {"flip_rate": ".1%"} if part["has_flips"] else {}
    formats |= {"agreement": ".1%", **({"kappa": ".2f"} if part["has_kappa"] else {}), "verdict": ""}
    rows = [{**row, "annotator": short(row["annotator"])} for row in part["rows"]]
    return _table(rows, formats, n="judgements")


def _directions(part: dict[str, Any]) -> list[str]:
    lines = []
    for number, row in enumerate(part["rows"][:_DIRECTIONS_WORDED], start=1):
        order = sorted(range(len(row["loadings"])), key=lambda index: -abs(row["loadings"][index]))[:_LOADINGS_WORDED]
        words = ", ".join(f"{short(part['features'][index])} {signed(row['loadings'][index])}" for index in order)
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
    formats = {"name": "", "estimate": ".4g", "low": ".4g", "high": ".4g"}
    return [
        evidence,
        part["statement"],
        _table([{"name": name, **row} for name, row in rows.items()], formats, name=""),
    ]


def _suspicious(part: dict[str, Any], pairs: dict[str, Any]) -> list[str]:
    if not part["rows"]:
        return []
    wrong, of_label, term = {"probability_wrong": ".3f"}, {"probability_of_label": ".3f"}, pairs["term"]
    is_probability = part["kind"] == "probability"
    formats = {"who": "", "label": "", **(wrong if is_probability else of_label), "margin": ".3g"}
    if pairs["kind"] == Kind.LEVELS:
        formats = {"who": "", "label": "", "predicted": "", **(wrong if is_probability else {}), **of_label}
        formats |= {"squared_distance": ".3g"}
    rows = [
        {
            **row,
            "who": ", ".join(map(short, row["ids"])) or f"{row['row']}",
            **{name: short(row[name]) for name in ("label", "predicted") if name in row},
        }
        for row in part["rows"]
    ]
    probabilities = {"probability_wrong": "P(wrong)", "probability_of_label": f"P({term})"}
    return [_table(rows, formats, who="row or id", label=term, **probabilities)]


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
