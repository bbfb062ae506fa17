"""The charts of a report, each from its part of the dict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from closefar.arrays import FloatArray, IndexArray
from closefar.report.maps import level_styles
from closefar.report.wording import digits

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

    def x_axis(self, ticks: Iterable[tuple[float, str]], title: str) -> list[str]:
        """Lines across at the ticks, their texts below, and the title at the right below those."""
        parts = []
        for value, words in ticks:
            parts += [
                f'<path class="grid" d="M{self.x(value):.1f} {self.top:.1f}V{self.bottom:.1f}"/>',
                label(self.x(value), self.bottom + 19, words, "middle"),
            ]
        return [*parts, label(self.right, self.bottom + 37, title, "muted end")]

    def y_axis(self, ticks: Iterable[tuple[float, str]], title: str) -> list[str]:
        """Lines across at the ticks, their texts at the left, and the title above."""
        parts = []
        for value, words in ticks:
            parts += [
                f'<path class="grid" d="M{self.left:.1f} {self.y(value):.1f}H{self.right:.1f}"/>',
                label(self.left - 8, self.y(value) + 3, words, "end"),
            ]
        return [*parts, label(2, self.top - 12, title, "muted")]

    def line(self, points: Sequence[tuple[float, float]], kind: str) -> str:
        places = "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)
        return f'<path class="{kind}" d="M{places}"/>'

    def area(self, lower: Sequence[tuple[float, float]], upper: Sequence[tuple[float, float]], kind: str) -> str:
        places = "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in [*lower, *reversed(upper)])
        return f'<path class="{kind}" d="M{places}Z"/>'

    def marks(self, points: Iterable[tuple[float, float]], kind: str) -> str:
        """Round marks, in one path that takes few letters for each."""
        places = "".join(f"M{self.x(x):.1f} {self.y(y):.1f}h0" for x, y in points)
        return f'<path class="marks {kind}" d="{places}"/>'

    def dot(self, x: float, y: float, note: str, kind: str = "dot") -> str:
        place = f'cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="4.5"'
        return f'<circle class="{kind}" {place}><title>{note}</title></circle>'

    def upright(self, x: float, low: float, high: float, kind: str) -> str:
        return f'<path class="{kind}" d="M{self.x(x):.1f} {self.y(low):.1f}V{self.y(high):.1f}"/>'

    def box(self, x: tuple[float, float], y: tuple[float, float], kind: str, note: str) -> str:
        left, right = self.x(x[0]), self.x(x[1])
        top, bottom = self.y(max(y)), self.y(min(y))
        return (
            f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" width="{max(right - left, 0.5):.1f}" '
            f'height="{max(bottom - top, 0.0):.1f}"><title>{note}</title></rect>'
        )


def drawing(name: str, height: float, parts: Iterable[str]) -> str:
    """Put the parts in a drawing with a name for those who listen to the page."""
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{name}">{"".join(parts)}</svg>'


def label(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{words}</text>'


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most so many round numbers from low to high."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(nice * power for nice in _STEPS if nice * power >= rough * (1.0 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)][: most + 1]


def log_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most so many round numbers from low to high that lie about equally far apart on a log scale."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for mantissas in _DIGITS:
        found = [digit * 10.0**power for power in powers for digit in mantissas if low <= digit * 10.0**power <= high]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]


def tick_text(value: float) -> str:
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
_MUCH = 4.0  # a range of losses for a log scale
_FAR_WORSE = 4.0  # times as far above the lowest loss as the median is


def spectrum_chart(part: dict[str, Any]) -> str:
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


def interval_chart(rows: list[dict[str, Any]]) -> str:
    """The mean squared distance along each direction with its interval, one line each."""
    rows = rows[:MOST_BARS]
    largest = max((row["high"] for row in rows), default=0.0) or 1.0

    def place(value: float) -> float:
        return _BARS_LEFT + (_RANGE_RIGHT - _BARS_LEFT) * value / largest

    parts = [label(_BARS_LEFT, 15, "mean squared distance", "muted"), label(_SHARE_RIGHT, 15, "interval", "muted end")]
    for index, row in enumerate(rows, start=1):
        middle = index * _ROW + 12
        parts += [
            label(_BARS_LEFT - 8, middle + 4, f"{index}", "end"),
            f'<path class="whisker" d="M{place(row["low"]):.1f} {middle}H{place(row["high"]):.1f}"/>',
            f'<circle class="dot" cx="{place(row["estimate"]):.1f}" cy="{middle}" r="4"/>',
            label(_SHARE_RIGHT, middle + 4, f"{digits(row['low'])} to {digits(row['high'])}", "end"),
        ]
    return drawing("Intervals of the mean squared distance along each direction", (len(rows) + 1) * _ROW + 4, parts)


def distance_chart(part: dict[str, Any]) -> str:
    """Far pairs upwards, close pairs downwards, how many on the axis, and the threshold between the sides."""
    edges, close, far = part["edges"], part["close"], part["far"]
    most = max([*close, *far]) or 1.0
    plane = Plane(46, 42, 284, 220, (0.0, edges[-1]), (-1.06 * most, 1.06 * most))
    parts = plane.x_axis([(tick, tick_text(tick)) for tick in nice_ticks(0.0, edges[-1])], "squared distance")
    counts = [tick for tick in nice_ticks(0.0, most, 3) if tick > 0]
    ticks = [(0.0, "0"), *((sign * tick, tick_text(tick)) for tick in counts for sign in (1.0, -1.0))]
    parts += plane.y_axis(ticks, f"{part['counted']} per bar")
    for left, right, n_close, n_far in zip(edges, edges[1:], close, far, strict=False):
        span = f"{left:.3g} to {right:.3g}"
        parts += [
            plane.box((left, right), (0.0, n_far), "far", f"{span}: {n_far:,.6g} far"),
            plane.box((left, right), (0.0, -n_close), "close", f"{span}: {n_close:,.6g} close"),
        ]
    parts.append(plane.line([(0.0, 0.0), (edges[-1], 0.0)], "axis"))
    parts += [
        label(plane.right, plane.top + 14, "labelled far ↑", "far-word end"),
        label(plane.right, plane.bottom - 6, "labelled close ↓", "close-word end"),
    ]
    tau = part["threshold"]
    if 0.0 < tau < edges[-1]:
        place = min(max(plane.x(tau), plane.left + 90), plane.right - 34)
        parts += [
            plane.upright(tau, -1.06 * most, 1.06 * most, "threshold"),
            label(place, plane.top - 12, "threshold τ", "middle"),
        ]
    return drawing("Histogram of squared distances, close and far", plane.bottom + 44, parts)


def calibration_chart(part: dict[str, Any], predicted: str = "P(far)", observed: str = "share far") -> str:
    """Observed shares with their intervals against predicted probabilities, and the diagonal of perfect agreement."""
    plane = Plane(48, 28, 272, 272, _UNIT, _UNIT)
    parts = plane.x_axis(_QUARTERS, f"predicted {predicted}") + plane.y_axis(_QUARTERS, f"observed {observed}")
    parts.append(plane.line([(0.0, 0.0), (1.0, 1.0)], "diagonal"))
    for row in part["bins"]:
        note = f"{row['count']:,} predicted {row['predicted']:.1%}, observed {row['observed']:.1%}"
        parts += [
            plane.upright(row["predicted"], row["low"], row["high"], "whisker"),
            plane.dot(row["predicted"], row["observed"], note),
        ]
    return drawing(f"Observed {observed} against the predicted probability", plane.bottom + 44, parts)


def roc_chart(part: dict[str, Any]) -> str:
    """The curve, the diagonal of chance, and where the learned threshold is."""
    plane = Plane(48, 28, 272, 272, _UNIT, _UNIT)
    curve = list(zip(part["false_far"], part["true_far"], strict=True))
    here = part["at_threshold"]
    note = f"at the threshold: true positives {here['true_far']:.1%}, false positives {here['false_far']:.1%}"
    parts = plane.x_axis(_QUARTERS, "false positive rate (close predicted far)")
    parts += plane.y_axis(_QUARTERS, "true positive rate (far predicted far)")
    parts += [
        plane.area([(0.0, 0.0), (1.0, 0.0)], curve, "under"),
        plane.line([(0.0, 0.0), (1.0, 1.0)], "diagonal"),
        plane.line(curve, "curve"),
        plane.dot(here["false_far"], here["true_far"], note),
        label(plane.right - 10, plane.bottom - 14, f"AUC {part['auc']:.3f}", "end"),
    ]
    return drawing("ROC curve", plane.bottom + 44, parts)


def noise_chart(part: dict[str, Any]) -> str:
    """Observed minus expected share by margin, and the band in which 95% of such differences lie."""
    rows, is_compared = part["bins"], part["question"] == "comparisons"
    share = "share agreeing" if is_compared else "share above τ" if part["question"] else "share far"
    margins = [row["margin"] for row in rows]
    reach = 1.1 * max(max(abs(row["observed"] - row["expected"]), 1.96 * row["error"]) for row in rows) or 0.01
    pad = 0.04 * (margins[-1] - margins[0])
    plane = Plane(62, 28, 266, 170, (margins[0] - pad, margins[-1] + pad), (-reach, reach))
    y_ticks = [(tick, f"{100.0 * tick:+.3g}%" if tick else "0") for tick in nice_ticks(-reach, reach, 4)]
    x_ticks = [(tick, tick_text(tick)) for tick in nice_ticks(*plane.x_range)]
    margin = "difference of squared distances" if is_compared else "squared distance minus τ"
    parts = plane.x_axis(x_ticks, f"margin: {margin}")
    parts += plane.y_axis(y_ticks, f"{share}: observed minus expected")
    lower, upper = ([(row["margin"], sign * 1.96 * row["error"]) for row in rows] for sign in (-1.0, 1.0))
    parts += [plane.area(lower, upper, "band"), plane.line([(plane.x_range[0], 0.0), (plane.x_range[1], 0.0)], "axis")]
    parts.append(plane.line([(row["margin"], row["observed"] - row["expected"]) for row in rows], "curve"))
    for row in rows:
        note = f"{row['count']:,.6g}: observed {row['observed']:.1%}, expected {row['expected']:.1%}"
        parts.append(plane.dot(row["margin"], row["observed"] - row["expected"], note))
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
    ticks = [(math.log10(mark), tick_text(mark)) for mark in log_ticks(10.0**low, 10.0**high, _MOST_TICKS)]
    parts = plane.x_axis(ticks, "alpha") + plane.y_axis(_ticks(*plane.y_range), "held-out loss")
    if plain is not None:
        parts.append(plane.line([(low, plain["loss"]), (high, plain["loss"])], "diagonal"))
    if chosen is not None:
        parts.append(plane.upright(math.log10(chosen), *plane.y_range, "threshold"))
        parts.append(label(max(plane.x(math.log10(chosen)), plane.left + 60), plane.top - 12, "chosen", "middle"))
    for line in lines:
        places = [(math.log10(row["alpha"]), min(row["loss"], plane.y_range[1])) for row in line["rows"]]
        parts.append(f'<g class="{line["style"]}">')
        parts.append(plane.line(places, "path"))
        for (x, y), row in zip(places, line["rows"], strict=True):
            error = row["standard_error"]
            note = f"alpha {row['alpha']:.3g}: loss {row['loss']:.4f}, accuracy {row['accuracy']:.1%}"
            parts += [
                plane.upright(x, max(y - error, plane.y_range[0]), min(y + error, plane.y_range[1]), "error"),
                plane.dot(x, y, note, "spot"),
            ]
        parts.append("</g>")
    return drawing("Held-out loss against alpha", plane.bottom + 44, parts)


def learning_chart(part: dict[str, Any]) -> str:
    """Accuracy and loss on unseen pairs against the number of pairs, each doubling a step."""
    rows = part["rows"]
    rows, loss_ticks = _with_readable_loss(rows)
    upper, lower = _growth_plane(rows, "accuracy", 28, (0.0, 1.0)), _growth_plane(rows, "loss", 204, None)
    low, high = upper.y_range
    percents = [(tick / 100.0, f"{tick:.4g}%") for tick in nice_ticks(100.0 * low, 100.0 * high, 4)]
    term = part["term"]
    parts = upper.y_axis(percents, f"accuracy on unseen {term}s")
    parts += lower.y_axis(loss_ticks or _ticks(*lower.y_range), f"loss on unseen {term}s (nats per {term})")
    sizes = [(step, _size_text(row["n_pairs"])) for step, row in enumerate(rows)]
    parts += lower.x_axis(sizes, f"training {part['noun']}s")
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


def _with_readable_loss(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[tuple[float, str]]]:
    """On a log scale, with ticks for it, where a fit to few pairs has a loss that would flatten all others."""
    low, high = min(row["loss_low"] for row in rows), max(row["loss_high"] for row in rows)
    if not 0.0 < _MUCH * low < high:
        return rows, []
    names = ("loss", "loss_low", "loss_high")
    ticks = [(math.log10(mark), tick_text(mark)) for mark in log_ticks(low, high, _MOST_TICKS)]
    return [{**row, **{name: math.log10(row[name]) for name in names}} for row in rows], ticks


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    return [(tick, tick_text(tick)) for tick in nice_ticks(low, high, _MOST_TICKS)]


def _size_text(n: int) -> str:
    return f"{n:,}" if n < 100_000 else f"{n / 1000:,.0f}k"


# ---------------------------------------------------------------------------------------------------------------------
# The charts of levels and of comparisons, each from its part of the dict.


_LEVEL_HIGH = 44.0  # of the histogram of one level
_HIGHEST = 320.0  # of all of them


def level_chart(part: dict[str, Any]) -> str:
    """A histogram for each level, closest at the bottom, each to its own scale, and lines at the thresholds."""
    edges, rows = part["edges"], part["levels"]
    styles, high = level_styles(len(rows)), min(_LEVEL_HIGH, _HIGHEST / len(rows))
    plane = Plane(46, 42, 284, high * len(rows), (0.0, edges[-1]), (0.0, float(len(rows))))
    parts = plane.x_axis([(tick, tick_text(tick)) for tick in nice_ticks(0.0, edges[-1])], "squared distance")
    parts.append(label(2, plane.top - 12, "level", "muted"))
    for level, row in enumerate(rows):
        most = max(row["counts"]) or 1.0
        for left, right, n in zip(edges, edges[1:], row["counts"], strict=False):
            note = f"{left:.3g} to {right:.3g}: {n:,.6g} of level {level}"
            parts.append(plane.box((left, right), (level, level + 0.88 * n / most), f"level {styles[level]}", note))
        parts += [
            plane.line([(0.0, float(level)), (edges[-1], float(level))], "axis"),
            label(plane.left - 8, plane.y(level) - 6, f"{level}", "end"),
        ]
    shown = [threshold for threshold in part["thresholds"] if 0.0 < threshold < edges[-1]]
    parts += [plane.upright(threshold, 0.0, float(len(rows)), "threshold") for threshold in shown]
    if shown:
        place = min(max(plane.x(shown[-1]), plane.left + 90), plane.right - 34)
        parts.append(label(place, plane.top - 12, "thresholds" if len(shown) > 1 else "threshold", "middle"))
    return drawing("Histograms of squared distances by level, with the thresholds", plane.bottom + 44, parts)


def leg_chart(part: dict[str, Any]) -> str:
    """How many comparisons have each difference of squared distances; the metric contradicts those below zero."""
    edges, counts = part["edges"], part["counts"]
    most = max(counts) or 1.0
    plane = Plane(46, 42, 284, 200, (edges[0], edges[-1]), (0.0, 1.06 * most))
    ticks = [(tick, tick_text(tick)) for tick in nice_ticks(edges[0], edges[-1])]
    parts = plane.x_axis(ticks, "difference of squared distances")
    parts += plane.y_axis([(tick, tick_text(tick)) for tick in nice_ticks(0.0, most, 4)], f"{part['counted']} per bar")
    for left, right, n in zip(edges, edges[1:], counts, strict=False):
        kind = "far" if left + right < 0.0 else "close"
        parts.append(plane.box((left, right), (0.0, n), kind, f"{left:.3g} to {right:.3g}: {n:,.6g}"))
    parts += [
        plane.upright(0.0, 0.0, 1.06 * most, "threshold"),
        label(plane.left + 4, plane.top + 10, "contradicted", "far-word"),
        label(plane.right, plane.top + 10, "agreed with", "close-word end"),
    ]
    return drawing("Histogram of the differences of squared distances of comparisons", plane.bottom + 44, parts)


def calibration_of_levels(part: dict[str, Any], n_levels: int) -> str:
    """Observed shares against predicted probabilities of "this level or higher", for each threshold."""
    plane, styles = Plane(48, 28, 272, 272, _UNIT, _UNIT), level_styles(n_levels)
    parts = plane.x_axis(_QUARTERS, "predicted P(level k or higher)")
    parts += [*plane.y_axis(_QUARTERS, "observed share"), plane.line([(0.0, 0.0), (1.0, 1.0)], "diagonal")]
    for row in part["bins"]:
        note = f"level {row['level']} or higher: {row['count']:,} predicted {row['predicted']:.1%}, "
        style = f"level {styles[row['level']]}"
        parts += [
            plane.upright(row["predicted"], row["low"], row["high"], f"whisker {style}"),
            plane.dot(row["predicted"], row["observed"], f"{note}observed {row['observed']:.1%}", f"dot {style}"),
        ]
    return drawing("Observed shares against predicted probabilities, by threshold", plane.bottom + 44, parts)


def roc_of_levels(part: dict[str, Any], n_levels: int) -> str:
    """A curve for each threshold, in the colour of the level above it, and the diagonal of chance."""
    plane, styles = Plane(48, 28, 272, 272, _UNIT, _UNIT), level_styles(n_levels)
    parts = plane.x_axis(_QUARTERS, "false positive rate (lower level predicted higher)")
    parts += plane.y_axis(_QUARTERS, "true positive rate (level k or higher)")
    parts.append(plane.line([(0.0, 0.0), (1.0, 1.0)], "diagonal"))
    for curve in part["curves"]:
        points = list(zip(curve["false_far"], curve["true_far"], strict=True))
        parts.append(plane.line(points, f"curve level {styles[curve['level']]}"))
    parts.append(label(plane.right - 10, plane.bottom - 14, f"mean AUC {part['auc']:.3f}", "end"))
    return drawing("ROC curve of each threshold", plane.bottom + 44, parts)


# ---------------------------------------------------------------------------------------------------------------------
# The drawings of the maps.


_LEFT, _TOP, _ROOM, _MOST_HIGH, _LEAST_HIGH = 40.0, 34.0, 290.0, 330.0, 110.0
_STRIP = 130.0  # the height of a map of one direction
_SHOWN = 0.995  # of the marks are within the frame, at least
_MANY = 600  # marks, above which they are smaller


def map_chart(part: dict[str, Any]) -> str:
    """Marks coloured by group, with those of suspected labels ringed, and the threshold."""
    across = np.array(part["x"])
    codes, suspects = np.array(part["group"]), np.array(part["suspects"], dtype=int)
    if part["y"] is None:
        plane, up = _strip(part, across, codes)
    else:
        up = np.array(part["y"])
        plane = _plane(part, across, up)
    parts = plane.x_axis([(tick, tick_text(tick)) for tick in nice_ticks(*plane.x_range)], _title(part, 0))
    if part["y"] is not None:
        parts += plane.y_axis([(tick, tick_text(tick)) for tick in nice_ticks(*plane.y_range)], _title(part, 1))
    inside = _inside(plane, across, up)
    size = "small" if len(across) > _MANY else ""
    ringed = np.zeros(len(across), dtype=bool)
    ringed[suspects] = True
    for chosen, kinds in ((inside & ~ringed, [size]), (inside & ringed, [f"{size} ring", f"{size} ringed"])):
        for kind in kinds:
            for code, group in enumerate(part["groups"]):
                which = chosen & (codes == code)
                if np.any(which):
                    parts.append(plane.marks(zip(across[which], up[which], strict=True), f"{kind} {group['style']}"))
    parts += _threshold(part, plane)
    return drawing(f"Map of the {part['noun']}s along the strongest directions", plane.bottom + 44, parts)


def _title(part: dict[str, Any], place: int) -> str:
    words = f"direction {place + 1} ({part['shares'][place]:.1%})"
    return words if part["signed"] else f"difference along {words}"


def _plane(part: dict[str, Any], across: FloatArray, up: FloatArray) -> Plane:
    """Both axes to the same scale, with room for the threshold around its centre."""
    (left, right), (low, high) = _range(part, across), _range(part, up)
    unit = min(_ROOM / (right - left), _MOST_HIGH / (high - low))
    wide, tall = _ROOM / unit, max(_LEAST_HIGH / unit, high - low)
    return Plane(_LEFT, _TOP, _ROOM, unit * tall, _widened(part, left, right, wide), _widened(part, low, high, tall))


def _strip(part: dict[str, Any], across: FloatArray, codes: IndexArray) -> tuple[Plane, FloatArray]:
    """One direction, with heights that mean nothing but keep marks apart; labels have a lane each."""
    golden = 0.5 * (np.sqrt(5.0) - 1.0)
    heights: FloatArray = np.mod(golden * np.arange(1, len(across) + 1), 1.0)
    has_lanes = "radius" in part
    top = 1.2 * (len(part["groups"]) if has_lanes else 1) - 0.1
    plane = Plane(_LEFT, _TOP, _ROOM, _STRIP, _range(part, across), (-0.1, top))
    return plane, heights + 1.2 * codes * has_lanes


def _range(part: dict[str, Any], values: FloatArray) -> tuple[float, float]:
    radius = max(_radii(part), default=0.0)
    ends = np.quantile(values, [1.0 - _SHOWN, _SHOWN]) if len(values) else np.zeros(2)
    low, high = min(float(ends[0]), -1.1 * radius), max(float(ends[1]), 1.1 * radius)
    pad = 0.04 * (high - low) or 1.0
    return (low - pad, high + pad) if part["signed"] else (0.0, high + pad)


def _widened(part: dict[str, Any], low: float, high: float, width: float) -> tuple[float, float]:
    """The range with more room: on both sides, or above where zero is the end."""
    more = max(width - (high - low), 0.0)
    return (low - more / 2.0, high + more / 2.0) if part["signed"] else (low, high + more)


def _inside(plane: Plane, across: FloatArray, up: FloatArray) -> Any:
    (left, right), (low, high) = plane.x_range, plane.y_range
    return (left <= across) & (across <= right) & (low <= up) & (up <= high)


def _radii(part: dict[str, Any]) -> list[float]:
    """The radius of the threshold, or those of all of them."""
    radius = part.get("radius")
    return part.get("radii", []) if radius is None else [radius]


def _threshold(part: dict[str, Any], plane: Plane) -> list[str]:
    """A circle around zero, or lines where there is one direction; of a map of points a bar of that length."""
    radii, length = _radii(part), part.get("length")
    if radii and part["y"] is None:
        ends = [end for radius in radii for end in (radius, -radius) if plane.x_range[0] <= end <= plane.x_range[1]]
        return [plane.upright(end, *plane.y_range, kind) for end in ends for kind in ("halo", "threshold")]
    if radii:
        angles = np.linspace(0.0, 2.0 * np.pi if part["signed"] else 0.5 * np.pi, 73)
        unit = np.column_stack([np.cos(angles), np.sin(angles)])
        circles = [[(x, y) for x, y in (radius * unit).tolist()] for radius in radii]
        return [plane.line(circle, kind) for circle in circles for kind in ("halo", "threshold")]
    if length is None:
        return []
    pixels = plane.x(length) - plane.x(0.0)
    if pixels > plane.width:
        return []
    start = WIDTH - 10.0 - pixels
    return [
        f'<path class="bar-line" d="M{start:.1f} 24V18H{WIDTH - 10.0:.1f}V24"/>',
        label(WIDTH - 10.0, 12, "threshold distance √τ", "end"),
    ]
