"""The charts of levels and of comparisons, each from its part of the dict."""

from __future__ import annotations

from typing import Any

from closefar.report.maps import level_styles
from closefar.report.svg import Plane, drawing, label, nice_ticks, tick_text

__all__ = ["calibration_of_levels", "leg_chart", "level_chart", "roc_of_levels"]

_UNIT = (0.0, 1.0)
_QUARTERS = [(tick, f"{tick:.0%}") for tick in (0.0, 0.25, 0.5, 0.75, 1.0)]
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
