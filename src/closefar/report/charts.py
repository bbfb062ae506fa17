"""The charts of a report, each from its part of the dict."""

from __future__ import annotations

import math
from typing import Any

from closefar.report.svg import Plane, drawing, label, log_ticks, nice_ticks, tick_text
from closefar.report.wording import digits

__all__ = [
    "MOST_BARS",
    "calibration_chart",
    "distance_chart",
    "interval_chart",
    "learning_chart",
    "noise_chart",
    "path_chart",
    "roc_chart",
    "spectrum_chart",
]

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
