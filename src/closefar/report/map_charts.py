"""The drawings of the maps."""

from __future__ import annotations

from typing import Any

import numpy as np

from closefar.arrays import FloatArray, IndexArray
from closefar.report.svg import WIDTH, Plane, drawing, label, nice_ticks, tick_text

__all__ = ["map_chart"]

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
