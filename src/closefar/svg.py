"""Two small charts as inline SVG: numbers only, coloured by the CSS of the page.

The drawings are as wide as a phone, so that text keeps its size there; the page may enlarge them.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["MOST_BARS", "bars", "scatter"]

MOST_BARS = 20

_WIDTH = 340
_ROW = 24

# Columns of the bar chart: the bars end where the widest number, such as 1.23e-05, still has room.
_BARS_LEFT, _BARS_RIGHT = 28, 178
_VALUE_RIGHT, _SHARE_RIGHT = 246, 336

_PLOT_LEFT, _PLOT_TOP, _PLOT_SIZE = 48, 28, 272
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


def bars(rows: Sequence[tuple[float, float]]) -> str:
    """Draw eigenvalues, largest first: one bar each with its value and the cumulative share."""
    rows = rows[:MOST_BARS]
    largest = max((value for value, _ in rows), default=0.0) or 1.0
    parts = [
        _text(_BARS_LEFT, 15, "eigenvalue", "muted"),
        _text(_VALUE_RIGHT, 15, "value", "muted end"),
        _text(_SHARE_RIGHT, 15, "cumulative", "muted end"),
    ]
    for index, (value, share) in enumerate(rows, start=1):
        base = index * _ROW
        length = (_BARS_RIGHT - _BARS_LEFT) * value / largest
        parts += [
            _text(_BARS_LEFT - 8, base + 16, f"{index}", "end"),
            f'<rect class="bar" x="{_BARS_LEFT}" y="{base + 3}" width="{max(length, 1.0):.1f}" height="{_ROW - 6}"/>',
            _text(_VALUE_RIGHT, base + 16, f"{value:.3g}", "end"),
            _text(_SHARE_RIGHT, base + 16, f"{share:.1%}", "end"),
        ]
    return _drawing("Bar chart of the eigenvalues of M, largest first", (len(rows) + 1) * _ROW + 4, parts)


def scatter(points: Sequence[tuple[float, float, int]]) -> str:
    """Draw observed shares against predicted probabilities, with the diagonal of perfect agreement."""
    bottom, right = _y(0.0), _x(1.0)
    parts = []
    for tick in _TICKS:
        parts += [
            f'<path class="grid" d="M{_x(tick):.1f} {_y(1.0)}V{bottom}M{_PLOT_LEFT} {_y(tick):.1f}H{right}"/>',
            _text(_x(tick), bottom + 18, f"{tick:.0%}", "middle"),
            _text(_PLOT_LEFT - 8, _y(tick) + 4, f"{tick:.0%}", "end"),
        ]
    parts += [
        _text(4, 14, "observed share far", "muted"),
        _text(right, bottom + 38, "predicted P(far)", "muted end"),
        f'<path class="diagonal" d="M{_PLOT_LEFT} {bottom}L{right} {_y(1.0)}"/>',
    ]
    for predicted, observed, count in points:
        note = f"{count} pairs: predicted {predicted:.1%}, observed {observed:.1%}"
        parts.append(
            f'<circle class="dot" cx="{_x(predicted):.1f}" cy="{_y(observed):.1f}" r="5"><title>{note}</title></circle>'
        )
    return _drawing("Scatter plot of the observed share far against the predicted probability", bottom + 46, parts)


def _x(share: float) -> float:
    return _PLOT_LEFT + _PLOT_SIZE * share


def _y(share: float) -> float:
    return _PLOT_TOP + _PLOT_SIZE * (1.0 - share)


def _text(x: float, y: float, content: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{content}</text>'


def _drawing(label: str, height: float, parts: list[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
