"""The report as one HTML page that needs nothing beside it, with its charts, as text and as JSON."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
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


def page_template() -> Any:
    """Return the template, or say which package is missing."""
    return load_template("report.html.jinja", "a report as HTML", "report")


def page(facts: dict[str, Any]) -> str:
    """Return the page of the dict of `summarize`."""
    script = load_asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    html: str = page_template().render(
        facts,
        style=load_asset("palette.css") + load_asset("report.css"),
        script=script,
        script_digest=digest,
        charts=_CHARTS,
        abridged=partial(abridged, longest=60),  # which has room in two lines of a table
        percent=percent,
        figure=_figure,
        loading=signed,
        level_styles=level_styles,
        varied_settings=_varied,
        label_errors="closefar label-errors" if facts["is_command_line"] else "closefar.find_label_errors",
    )
    return html


def _figure(value: float | None, form: str = ".3g") -> str:
    """A number in a table, or a dash where there is none."""
    return "\N{EN DASH}" if value is None else digits(value, form) if form.endswith("g") else format(value, form)


def _varied(rows: list[dict[str, Any]]) -> list[str]:
    """Which settings with columns of their own differ between the candidates."""
    return [name for name in ("rank", "noise") if len({row[name] for row in rows}) > 1]


# ---------------------------------------------------------------------------------------------------------------------
# Inline SVG: a drawing with axes, and marks in it. Numbers and fixed words only, coloured by the page's CSS.
#
# The drawings are as wide as a phone, so that text keeps its size there; the page may enlarge them.


_DRAWING_WIDTH = 340  # pixels: a phone has 360 and more
_TICK_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)  # between ticks, times a power of ten
_MOST_TICKS = 4  # whose texts have room on a narrow axis

_Point = tuple[float, float]
_Ticks = Iterable[tuple[float, str]]


class _Chart:
    """A rectangle of a drawing with the ranges of numbers that it shows, and what was drawn in it.

    It is at `left` and `top`, `width` and `height` pixels large.  Several in one drawing share their `parts`.
    """

    def __init__(self, place: tuple[float, float, float, float], x: _Point, y: _Point) -> None:
        self.left, self.top, self.width, self.height = place
        self.right, self.bottom = self.left + self.width, self.top + self.height
        self.x_range, self.y_range = x, y
        self.parts: list[str] = []

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
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{words}</text>')

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

    def bars(self, edges: Any, counts: Any, kind: str, base: float) -> None:
        """A bar for each bin of a histogram that is at most one high, with its count in a note."""
        unit = 1.0 / (max(counts) or 1.0)
        for low, high, n in zip(edges, edges[1:], counts, strict=False):
            bottom, top = base, base + unit * n
            self.parts.append(
                f'<rect class="{kind}" x="{self.x(low):.1f}" y="{self.y(top):.1f}" '
                f'width="{max(self.x(high) - self.x(low), 0.5):.1f}" '
                f'height="{max(self.y(bottom) - self.y(top), 0.0):.1f}">'
                f"<title>{low:.3g} to {high:.3g}: {n:,.6g}</title></rect>"
            )

    def drawing(self, name: str) -> str:
        """Put the parts in a drawing with a name for screen readers."""
        box = f"0 0 {_DRAWING_WIDTH} {self.bottom + 44:.0f}"
        return f'<svg viewBox="{box}" role="img" aria-label="{name}">{"".join(self.parts)}</svg>'


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most `most` round numbers from low to high."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(nice * power for nice in _TICK_STEPS if nice * power >= rough * (1.0 - 1e-9))
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [number * step for number in numbers][: most + 1]


def _ticks(low: float, high: float, most: int = 5) -> list[tuple[float, str]]:
    return [(tick, _tick_text(tick)) for tick in nice_ticks(low, high, most)]


def _tick_text(value: float) -> str:
    """A round number in few letters."""
    return f"{value:.4g}".replace("e+0", "e").replace("e-0", "e-") if value else "0"


# ---------------------------------------------------------------------------------------------------------------------
# The drawing of each section, from its facts and those of the pairs.


_UNIT: _Point = (0.0, 1.0)  # of an axis of shares
_QUARTERS = [(tick, f"{tick:.0%}") for tick in (0.0, 0.25, 0.5, 0.75, 1.0)]
_SQUARE = (48, 28, 272, 272)  # with room for percentages at the left


def _distance_chart(part: dict[str, Any], pairs: dict[str, Any]) -> str:
    """A histogram for each label, closest at the bottom, each to its own scale, and lines at the thresholds."""
    edges, rows, kind = part["edges"], part["rows"], pairs["kind"]
    words, styles = [f"{level}" for level in range(len(rows))], [f"level {style}" for style in level_styles(len(rows))]
    what, label = "squared distance", "level"
    if kind == Kind.CLOSE_FAR:
        words, styles, label = ["close", "far"], ["close", "far"], "label"
    elif kind == Kind.COMPARISONS:
        words, styles, label = ["differs", "agrees"], ["far", "close"], "the metric"
        what = "difference of squared distances"
    height = min(100.0, 320.0 / len(rows))  # pixels, of a label
    chart = _Chart((46, 42, 284, height * len(rows)), (edges[0], edges[-1]), (0.0, float(len(rows))))
    chart.x_axis(what)
    chart.y_axis(label, [])
    for base, (row, word, style) in enumerate(zip(rows, words, styles, strict=True)):
        chart.bars(edges, row["counts"], style, base)
        chart.line([(edges[0], base), (edges[-1], base)], "axis")
        chart.text(chart.left - 8, chart.y(base) - 6, word, "end")
    shown = [threshold for threshold in part["thresholds"] if edges[0] < threshold < edges[-1]]
    for threshold in shown:
        chart.line([(threshold, y) for y in chart.y_range], "threshold")
    if shown and kind != Kind.COMPARISONS:
        place = min(max(chart.x(shown[-1]), chart.left + 90), chart.right - 34)
        chart.text(place, chart.top - 12, "threshold" if len(shown) == 1 else "thresholds", "middle")
    return chart.drawing("Histograms of squared distances by label, with the thresholds")


def _calibration_chart(part: dict[str, Any], pairs: dict[str, Any]) -> str:
    """Observed shares with their intervals against predicted probabilities, and the diagonal of perfect agreement."""
    chart, kind = _Chart(_SQUARE, _UNIT, _UNIT), pairs["kind"]
    predicted = {Kind.COMPARISONS: "likelier answer", Kind.LEVELS: "level k or higher"}.get(kind, "far")
    chart.x_axis(f"predicted P({predicted})", _QUARTERS)
    chart.y_axis(f"observed share{' far' if kind == Kind.CLOSE_FAR else ''}", _QUARTERS)
    chart.line([(0.0, 0.0), (1.0, 1.0)], "diagonal")
    for row in part["bins"]:
        note = f"{row['count']:,} predicted {row['predicted']:.1%}, observed {row['observed']:.1%}"
        style = _level_class(row["level"], pairs)
        chart.line([(row["predicted"], row["low"]), (row["predicted"], row["high"])], f"whisker{style}")
        chart.dot(row["predicted"], row["observed"], note, f"dot{style}")
    return chart.drawing("Observed share against the predicted probability")


def _roc_chart(part: dict[str, Any], pairs: dict[str, Any]) -> str:
    """The curve of each threshold, with a dot where the learned threshold is, and the diagonal of chance."""
    chart, is_graded = _Chart(_SQUARE, _UNIT, _UNIT), pairs["kind"] == Kind.LEVELS
    chart.x_axis("false positive rate", _QUARTERS)
    chart.y_axis(f"true positive rate (positive: {'level k or higher' if is_graded else 'far'})", _QUARTERS)
    chart.line([(0.0, 0.0), (1.0, 1.0)], "diagonal")
    for each in part["curves"]:
        style, here = _level_class(each["level"], pairs), each["at_threshold"]
        chart.line(zip(each["false_far"], each["true_far"], strict=True), f"curve{style}")
        note = f"at the threshold: true positives {here['true_far']:.1%}, false positives {here['false_far']:.1%}"
        chart.dot(here["false_far"], here["true_far"], note, f"dot{style}")
    chart.text(chart.right - 10, chart.bottom - 14, f"{'mean AUC' if is_graded else 'AUC'} {part['auc']:.3f}", "end")
    return chart.drawing("ROC curve")


def _level_class(level: int, pairs: dict[str, Any]) -> str:
    return f" level {level_styles(len(pairs['labels']))[level]}" if pairs["kind"] == Kind.LEVELS else ""


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


def _learning_chart(part: dict[str, Any], pairs: dict[str, Any]) -> str:
    """Accuracy and loss on unseen pairs against the number of pairs, each doubling a step."""
    rows, unseen, parts = part["rows"], f"on unseen {pairs['term']}s", list[str]()
    titles = {"accuracy": f"accuracy {unseen}", "loss": f"loss {unseen} (nats per {pairs['term']})"}
    for (name, title), top in zip(titles.items(), (28, 204), strict=True):
        values = np.array([[row[f"{name}{end}"] for end in ("_low", "", "_high")] for row in rows])
        # A fit to few pairs can have a loss that would flatten all others: it is drawn at the upper edge.
        values = np.minimum(values, max(4.0 * float(values.min()), 1.0))
        low, high = float(values.min()), float(values.max())
        pad = 0.08 * (high - low) or 0.02 * max(high, 1e-3)
        chart = _Chart((54, top, 270, 130), (-0.3, len(rows) - 0.7), (low - pad, high + pad))
        chart.parts = parts
        ticks = [
            tick for tick in nice_ticks(max(low - pad, 0.0), high + pad, _MOST_TICKS) if name == "loss" or tick <= 1
        ]
        chart.y_axis(
            title, [(tick, f"{100.0 * tick:.4g}%" if name == "accuracy" else _tick_text(tick)) for tick in ticks]
        )
        chart.line(enumerate(values[:, 1]), "curve")
        for step, (row, (least, value, most)) in enumerate(zip(rows, values, strict=True)):
            chart.line([(step, least), (step, most)], "whisker")
            chart.dot(step, value, f"{row['n_pairs']:,} for training: {name} {row[name]:.4g}")
    sizes = [f"{n:,}" if n < 100_000 else f"{n / 1000:,.0f}k" for n in (row["n_pairs"] for row in rows)]
    chart.x_axis(f"training {pairs['noun']}s", enumerate(sizes))
    return chart.drawing(f"Learning curve: accuracy and loss {unseen}")


# Pixels of a map: where it begins, its width, and how high it is at most, at least, and with one direction.
_MAP_LEFT, _MAP_TOP, _MAP_WIDTH, _MOST_HIGH, _LEAST_HIGH, _STRIP = 40.0, 34.0, 290.0, 330.0, 110.0, 130.0
_SHOWN = 0.995  # of the marks are within the frame, at least


def _map_chart(part: dict[str, Any], _: dict[str, Any]) -> str:
    """Marks coloured by group, with those of suspected labels ringed, and the threshold."""
    across, codes = np.array(part["x"]), np.array(part["group"])
    left, right = _map_range(part, across)
    if part["y"] is None:
        # One direction, with heights that mean nothing but keep marks apart; labels have a lane each.
        lanes = part["coloured_by"] is None
        golden = 0.5 * (np.sqrt(5.0) - 1.0)
        up = np.mod(golden * np.arange(1, len(across) + 1), 1.0) + 1.2 * codes * lanes
        low, high = -0.1, 1.2 * (len(part["groups"]) if lanes else 1) - 0.1
        height = _STRIP
    else:
        # Both axes to the same scale, with room for the threshold around its centre.
        up = np.array(part["y"])
        low, high = _map_range(part, up)
        unit = min(_MAP_WIDTH / (right - left), _MOST_HIGH / (high - low))
        height = max(_LEAST_HIGH, unit * (high - low))
        left, right = _widened(part, left, right, _MAP_WIDTH / unit)
        low, high = _widened(part, low, high, height / unit)
    chart = _Chart((_MAP_LEFT, _MAP_TOP, _MAP_WIDTH, height), (left, right), (low, high))
    titles = [f"direction {place} ({share:.1%})" for place, share in enumerate(part["shares"], start=1)]
    titles = titles if part["signed"] else [f"difference along {title}" for title in titles]
    chart.x_axis(titles[0])
    if part["y"] is not None:
        chart.y_axis(titles[1])
    inside = (left <= across) & (across <= right) & (low <= up) & (up <= high)
    size = "small" if len(across) > 600 else ""
    ringed = np.isin(np.arange(len(across)), part["suspects"])
    marks = ((size, ~ringed), (f"{size} ring", ringed), (f"{size} ringed", ringed))
    for (kind, chosen), (code, group) in itertools.product(marks, enumerate(part["groups"])):
        which = inside & chosen & (codes == code)
        if np.any(which):
            chart.marks(zip(across[which], up[which], strict=True), f"{kind} {group['style']}")
    _draw_threshold(part, chart)
    return chart.drawing(f"Map of the {part['noun']}s along the strongest directions")


def _map_range(part: dict[str, Any], values: FloatArray) -> _Point:
    radius = max(part["radii"], default=0.0)
    ends = np.quantile(values, [1.0 - _SHOWN, _SHOWN]) if len(values) else np.zeros(2)
    low, high = min(float(ends[0]), -1.1 * radius), max(float(ends[1]), 1.1 * radius)
    pad = 0.04 * (high - low) or 1.0
    return (low - pad, high + pad) if part["signed"] else (0.0, high + pad)


def _widened(part: dict[str, Any], low: float, high: float, width: float) -> _Point:
    """The range with more room: on both sides, or above where zero is the end."""
    more = max(width - (high - low), 0.0)
    return (low - more / 2.0, high + more / 2.0) if part["signed"] else (low, high + more)


def _draw_threshold(part: dict[str, Any], chart: _Chart) -> None:
    """A circle around zero, or lines where there is one direction; on a map of points a bar of that length."""
    angles = np.linspace(0.0, 2.0 * np.pi if part["signed"] else 0.5 * np.pi, 73)
    for radius in part["radii"]:
        lines = [radius * np.column_stack([np.cos(angles), np.sin(angles)])]
        if part["y"] is None:
            ends = [end for end in (radius, -radius) if chart.x_range[0] <= end <= chart.x_range[1]]
            lines = [np.array([(end, y) for y in chart.y_range]) for end in ends]
        for line, kind in itertools.product(lines, ("halo", "threshold")):
            chart.line(line, kind)
    if part["length"] is not None:
        pixels, right = chart.x(part["length"]) - chart.x(0.0), _DRAWING_WIDTH - 10.0
        if pixels <= chart.width:
            chart.parts.append(f'<path class="bar-line" d="M{right - pixels:.1f} 24V18H{right:.1f}V24"/>')
            chart.text(right, 12, "threshold distance √τ", "end")


# They hold numbers and fixed words, and nothing of the user's.
_CHARTS: dict[str, Callable[[dict[str, Any], dict[str, Any]], str]] = {
    "distances": _distance_chart,
    "calibration": _calibration_chart,
    "roc": _roc_chart,
    "noise_check": _noise_chart,
    "learning_curve": _learning_chart,
    "pair_map": _map_chart,
    "point_map": _map_chart,
}


# ---------------------------------------------------------------------------------------------------------------------
# The report as text: Markdown that reads well as it is.


_LINE = 100  # letters


def text(facts: dict[str, Any]) -> str:
    """Return the text of the dict of `summarize`."""
    about = [f"* {item['name']}: {short(item['value'], _LINE)}" for item in facts["about"]]
    lines = [f"# {short(facts['title'], _LINE)}", "", *about, ""]
    lines += [*_paragraph(facts["sentence"]), *_paragraph(facts["pairs"]["words"])]
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
    yield "Squared distances", [_said(facts["distances"])]
    yield "ROC curve", [_said(facts["roc"])]
    yield "Calibration", [_said(facts["calibration"]), _calibration(facts["calibration"], pairs["kind"])]
    yield "Confusion matrix", [_confusion(facts["quality"]["confusion"])]
    if facts["comparisons"] is not None:
        yield "Comparisons of the same fit", [_said(facts["comparisons"])]
    if facts["annotators"] is not None:
        yield "Annotators", [_said(facts["annotators"]), _annotators(facts["annotators"])]
    yield "Spectrum and truncation", [_said(facts["spectrum"]), _said(facts["truncation"]), _ranks(facts["truncation"])]
    yield "Directions and their loadings", [_said(facts["directions"])]
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
    for name in {"rank", "noise"}.difference(_varied(rows)):
        del formats[name]
    return _table(rows, formats, loss="held-out loss", standard_error="std. error")


def _calibration(part: dict[str, Any], kind: str) -> str:
    formats = {"level": "d"} if kind == Kind.LEVELS else {}
    formats |= {"count": ",d", **dict.fromkeys(("predicted", "observed", "low", "high"), ".1%")}
    return _table(part["bins"], formats, level="level or higher", count="number")


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


def _intervals(part: dict[str, Any], evidence: str) -> list[str]:
    if part["reason"]:
        return []
    flips = ["close called far", "far called close"] if len(part["flip_rates"]) == 2 else ["flip rate"]
    rows = {f"threshold {number}": row for number, row in enumerate(part["thresholds"], start=1)}
    rows |= dict(zip(flips, part["flip_rates"], strict=False))
    rows |= {f"direction {number}": row for number, row in enumerate(part["directions"], start=1)}
    formats = {"name": "", "estimate": ".4g", "low": ".4g", "high": ".4g"}
    table = _table([{"name": name, **row} for name, row in rows.items()], formats, name="")
    return [evidence, part["statement"], table]


def _suspicious(part: dict[str, Any], pairs: dict[str, Any]) -> list[str]:
    if not part["rows"]:
        return []
    chance = "probability_wrong" if part["kind"] == "probability" else "probability_of_label"
    place = "squared_distance" if pairs["kind"] == Kind.LEVELS else "margin"
    formats = {"who": "", "label": "", "predicted": "", chance: ".3f", place: ".3g"}
    rows = [
        {
            **row,
            "who": ", ".join(map(short, row["ids"])) or f"{row['row']}",
            **{name: short(row[name]) for name in ("label", "predicted")},
        }
        for row in part["rows"]
    ]
    headings = {"label": pairs["term"], "probability_of_label": f"P({pairs['term']})"}
    return [_table(rows, formats, who="row or id", probability_wrong="P(wrong)", **headings)]


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
