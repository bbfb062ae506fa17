"""Inline SVG: a drawing, a plane with axes in it, and marks. Numbers and fixed words only, coloured by the page's CSS.

The drawings are as wide as a phone, so that text keeps its size there; the page may enlarge them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["WIDTH", "Plane", "drawing", "label", "log_ticks", "nice_ticks", "tick_text"]

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
    for digits in _DIGITS:
        found = [digit * 10.0**power for power in powers for digit in digits if low <= digit * 10.0**power <= high]
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
