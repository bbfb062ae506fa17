"""Maps: pairs and points along the two strongest directions, a sample of them where there are many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray, IndexArray, as_float64, is_source, to_numpy
from closefar.judgements import Judgements, Kind, Tuples, sample_rows
from closefar.model import ZERO, Directions, Metric
from closefar.report.colouring import Colouring
from closefar.report.wording import count, percent

__all__ = ["distinct_points", "level_styles", "pair_map", "point_map"]

_MOST_MARKS = 2000
_MOST_PAIRS = 20_000  # whose points are looked for
_DIGITS = 4


def pair_map(
    metric: Metric, directions: Directions, judgements: Judgements, suspects: IndexArray, seed: int
) -> dict[str, Any]:
    """The difference of each pair along the strongest directions, by label; single points from their origin.

    A difference and its opposite are the same distance, so of pairs only the sizes are shown.
    `suspects` are the row numbers of labels that look wrong.
    """
    if metric.rank == 0:
        return {"reason": ZERO}
    if judgements.kind is Kind.COMPARISONS:
        return {"reason": "A comparison is of two differences, so it has no single place on a map."}
    used, noun = judgements.sample(_MOST_MARKS, seed), "pair" if metric.origin is None else "point"
    places = metric.coordinates(used.data, directions.columns[:, :2])
    if metric.origin is None:
        places = np.abs(places)
    suspected = np.isin(used.numbers, suspects)
    sides = judgements.sides
    if sides.is_graded:
        labels = sides.classes.tolist()
        styles = level_styles(len(labels))
        groups = [
            {"name": str(name), "style": style, "meaning": ""} for name, style in zip(labels, styles, strict=True)
        ]
    else:
        groups = [
            {"name": str(label), "style": style, "meaning": style}
            for label, style in ((sides.close, "close"), (sides.far, "far"))
        ]
    reading = f"{_explained(directions)} {_shown(len(used), len(judgements), noun)}"
    return {
        **_drawn(places, used.codes.astype(np.intp), groups, directions),
        "noun": noun,
        "signed": metric.origin is not None,
        "suspects": np.flatnonzero(suspected).tolist(),
        "radius": radii[-1] if len(radii := _roots(metric)) == 1 else None,
        **({"radii": _roots(metric)} if len(metric.thresholds) > 1 else {}),
        "reading": reading,
    }


def point_map(
    metric: Metric,
    directions: Directions,
    points: FloatArray,
    index: IndexArray,
    *,
    importance: FloatArray,
    categories: Mapping[str, Sequence[str]],
    seed: int,
) -> dict[str, Any]:
    """The points that are in a pair along the strongest directions, from their mean, coloured by one column.

    `points` (m, d) and, for each pair, the two rows of it that are its points: `index` (n, 2); of comparisons more.
    `importance` is how much each column weighs, `categories` the values of those without numbers,
    as of `Provenance`.
    """
    if metric.rank == 0:
        return {"reason": ZERO}
    used = np.unique(index)
    total = len(used)
    used = used[sample_rows(total, _MOST_MARKS, seed)]
    values = points[used].astype(np.float64, copy=False)
    places = (values - values.mean(axis=0)) @ directions.columns[:, :2]
    colouring = Colouring.of(values, list(metric.column_names), importance, categories)
    return {
        **_drawn(places, colouring.codes, colouring.groups, directions),
        "noun": "point",
        "signed": True,
        "suspects": [],
        "coloured_by": colouring.column,
        "length": radii[0] if len(radii := _roots(metric)) == 1 else None,
        "reading": f"{_explained(directions)} {_shown(len(used), total, 'point')}",
    }


def distinct_points(
    judgements: Judgements, ids: NDArray[Any] | None, seed: int
) -> tuple[FloatArray, IndexArray] | None:
    """The points of the pairs, or of a sample of many, and which two each pair is of; None of differences.

    `ids` are those of both points of all pairs that were given, where they share any.
    """
    used = judgements.sample(_MOST_PAIRS, seed)
    if isinstance(used.data, Tuples):
        return to_numpy(used.data.points), to_numpy(used.data.index)
    if not judgements.are_pairs or is_source(judgements.data):
        return None
    n_points = used.data.shape[1]
    sides: FloatArray = to_numpy(as_float64(used.data)).reshape(n_points * len(used), -1)
    if ids is None or ids.ndim != 2:
        return sides, np.arange(len(sides)).reshape(-1, n_points)
    _, first, index = np.unique(ids[used.numbers], return_index=True, return_inverse=True)
    return sides[first], index.reshape(-1, n_points)


def level_styles(n: int) -> list[str]:
    """A style for each level, from that of close to that of far."""
    return [f"step{round(10.0 * level / (n - 1))}" for level in range(n)]


def _roots(metric: Metric) -> list[float]:
    """The distances at the thresholds above zero."""
    return [float(np.sqrt(threshold)) for threshold in metric.thresholds if threshold > 0]


def _drawn(
    places: FloatArray, codes: IndexArray, groups: list[dict[str, str]], directions: Directions
) -> dict[str, Any]:
    """The marks; where there is one direction they have no second coordinate."""
    across, *up = places.T
    return {
        "reason": None,
        "x": _rounded(across),
        "y": _rounded(up[0]) if up else None,
        "groups": groups,
        "group": codes.tolist(),
        "shares": directions.shares[:2].tolist(),
    }


def _rounded(values: FloatArray) -> list[float]:
    """To a few digits of the largest, which is more than a picture shows."""
    largest = float(np.max(np.abs(values), initial=0.0)) or 1.0
    decimals = _DIGITS - int(np.floor(np.log10(largest)))
    rounded: list[float] = np.round(values, decimals).tolist()
    return rounded


def _explained(directions: Directions) -> str:
    if len(directions.shares) == 1:
        return "The metric has one direction, which explains all of the distance."
    both = percent(min(float(directions.shares[:2].sum()), 1.0))
    return f"Directions 1 and 2 explain {both} of the mean squared distance."


def _shown(n: int, total: int, noun: str) -> str:
    if n == total:
        return f"All {count(total, noun)} are shown." if total > 1 else f"One {noun} is shown."
    return f"A random sample of {n:,} of {count(total, noun)} is shown."
