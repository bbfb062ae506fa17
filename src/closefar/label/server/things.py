"""Things as the page shows them: each value in words and in its column's range, and what differs between things."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import NDArray

from closefar.label.server.pictures import PICTURE_SUFFIXES
from closefar.label.task import Task

_LONGEST_TEXT = 4000
_MOST_DECIMALS = 6
_LARGEST_WRITTEN_OUT = 1e12
_MOST_COMPARED = 301
_FIRST_GROUPED = 10_000.0  # below it thousands are not grouped, since years are such numbers


class ShownPoints(Protocol):
    """What is needed of a table of points: ids, columns in the order of the table, and which are only shown."""

    def __hash__(self) -> int: ...

    @property
    def ids(self) -> NDArray[Any]: ...

    @property
    def columns(self) -> Mapping[str, NDArray[Any]]: ...

    @property
    def shown(self) -> Sequence[str]: ...


def things(task: Task, points: ShownPoints, rows: Sequence[int]) -> list[dict[str, Any]]:
    """Return the things of one question, or a single thing, as JSON objects: ``{"id", "cells"}``.

    The first thing is the one that others are compared with: their cells say by how much they differ from it.  Those
    worth a look are marked ("differs"): values other than numbers if they are not the same, and numbers if they differ
    at least as much as two things of the table do at the median in this column.  Columns that were asked for with
    --show come first.

    Parameters
    ----------
    task : Task
    points : ShownPoints
    rows : sequence of int
        The first thing, or for triplets the reference, and those compared with it.
    """
    if len(rows) not in (1, task.n_things):
        raise ValueError(f"a question of {task.kind} shows {task.n_things} things; got {len(rows)} rows.")
    found: list[dict[str, Any]] = [{"id": _clean(str(points.ids[row])), "cells": []} for row in rows]
    for name in _ordered(points):
        values = points.columns[name]
        scale = _scale(points, name)
        cells = [_cell(points, name, values[row], row, scale) for row in rows]
        _mark_differences(cells, [values[row] for row in rows], scale)
        for thing, cell in zip(found, cells, strict=True):
            thing["cells"].append(cell)
    return found


@dataclass(frozen=True)
class _Scale:
    """The range of a column of numbers, and how they are shown.

    Attributes
    ----------
    low, high : float
    decimals : int or None
        How many are shown; None for four significant digits.
    half_typical : float
        Half of the median difference of two things, which can't overflow.
    """

    low: float
    high: float
    decimals: int | None
    half_typical: float

    def is_notable(self, first: float, other: float) -> bool:
        """Whether two numbers that are not shown the same differ as much as those of two things usually do."""
        return not abs(first / 2 - other / 2) < self.half_typical

    def place(self, value: float) -> float:
        """Where a number lies in the range, from 0 to 1."""
        span = self.high / 2 - self.low / 2  # half of it, which can't overflow
        return 0.5 if not span > 0 else min(max((value / 2 - self.low / 2) / span, 0.0), 1.0)

    def rounded(self, value: float) -> float:
        """A number with the decimals that are shown."""
        return value if self.decimals is None else round(value, self.decimals) + 0.0  # no minus zero

    def text(self, value: float) -> str:
        """A number as it is shown."""
        if self.decimals is None or not math.isfinite(value):
            words = f"{value:.4g}"
        else:
            words = f"{self.rounded(value):{',' if abs(value) >= _FIRST_GROUPED else ''}.{self.decimals}f}"
        return words.replace("-", "\N{MINUS SIGN}")


@lru_cache(maxsize=4096)
def _scale(points: ShownPoints, name: str) -> _Scale | None:
    """The scale of a column, if it holds numbers."""
    values = points.columns[name]
    if values.dtype.kind not in "fiu":
        return None
    finite = np.asarray(values[np.isfinite(values)], dtype=float)
    if not len(finite):
        return _Scale(0.0, 0.0, None, 0.0)
    low, high = float(finite.min()), float(finite.max())
    return _Scale(low, high, _decimals(finite, low, high), _half_typical(finite))


def _half_typical(finite: NDArray[np.float64]) -> float:
    """Half of the median difference of two things; of many, of so many quantiles."""
    if len(finite) < 2:
        return 0.0
    halves = np.quantile(finite / 2, np.linspace(0.0, 1.0, min(len(finite), _MOST_COMPARED)))
    first, second = np.triu_indices(len(halves), 1)
    return float(np.median(halves[second] - halves[first]))


def _decimals(finite: NDArray[np.float64], low: float, high: float) -> int | None:
    """As many as the numbers have, but no more than three digits of the range."""
    if max(abs(low), abs(high)) >= _LARGEST_WRITTEN_OUT:
        return None
    most = _MOST_DECIMALS if low == high else max(0, 2 - math.floor(math.log10(high - low)))
    if most > _MOST_DECIMALS:
        return None
    return next((n for n in range(most) if bool(np.all(finite == np.round(finite, n)))), most)


def _ordered(points: ShownPoints) -> list[str]:
    return [*points.shown, *(name for name in points.columns if name not in points.shown)]


def _cell(points: ShownPoints, name: str, value: Any, row: int, scale: _Scale | None) -> dict[str, Any]:
    cell: dict[str, Any] = {"name": _clean(name), "place": None, "differs": False, "difference": None}
    if _is_missing(value):
        return {**cell, "kind": "missing", "text": "missing"}
    if scale is not None:
        return {**cell, "kind": "number", "text": scale.text(float(value)), "place": scale.place(float(value))}
    if isinstance(value, bool | np.bool_):
        return {**cell, "kind": "truth", "text": "yes" if value else "no"}
    text = _clean(str(value))
    if name in points.shown and text.lower().endswith(PICTURE_SUFFIXES) and not _is_address(text):
        return {**cell, "kind": "image", "text": text, "src": f"/files/{row}/{quote(name, safe='')}"}
    if _is_address(text):
        return {**cell, "kind": "link", "text": text, "href": text}
    return {**cell, "kind": "text", "text": _abridged(text)}


def _mark_differences(cells: list[dict[str, Any]], values: list[Any], scale: _Scale | None) -> None:
    """Compare each thing with the first; the first is marked if any other is."""
    first, *others = cells
    for cell, value in zip(others, values[1:], strict=True):
        cell["differs"] = (cell["kind"], cell["text"]) != (first["kind"], first["text"])
        if cell["differs"] and cell["kind"] == first["kind"] == "number" and scale is not None:
            cell["difference"] = _difference(float(values[0]), float(value), scale)
            cell["differs"] = scale.is_notable(float(values[0]), float(value))
    first["differs"] = any(cell["differs"] for cell in others)


def _difference(first: float, other: float, scale: _Scale) -> str | None:
    """The difference of the numbers as they are shown, so that it adds up."""
    amount = scale.rounded(other) - scale.rounded(first)
    if not math.isfinite(amount):
        return None
    return f"{scale.text(abs(amount))} {'higher' if amount > 0 else 'lower'}"


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float | np.floating | np.datetime64) and bool(value != value))


def _is_address(text: str) -> bool:
    if not text.lower().startswith(("http://", "https://")) or not text.isprintable() or " " in text:
        return False
    try:
        return bool(urlsplit(text).hostname)
    except ValueError:
        return False


def _abridged(text: str) -> str:
    n_more = len(text) - _LONGEST_TEXT
    return text if n_more <= 0 else f"{text[:_LONGEST_TEXT]}… ({n_more:,} more characters)"


def _clean(text: str) -> str:
    """The same text without lone surrogates, which no JSON in UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
