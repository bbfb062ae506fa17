"""Maps: pairs and points along the two strongest directions, a sample of them where there are many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray, IndexArray, as_float64, is_source, to_numpy
from closefar.fitting import Fit
from closefar.judgements import Judgements, Kind, Tuples, sample_rows
from closefar.model import ZERO, Metric
from closefar.report.wording import count, percent

# ---------------------------------------------------------------------------------------------------------------------
# What the points of a map are coloured by: the column with few values that weighs most, or the strongest one.


_PALETTE = 6  # colours that are easily told apart
_SHADES = 5  # that a reader can distinguish
_MOST_TRIED = 50  # columns, the heaviest first
_NOTABLE = 0.02  # a column with few values that weighs less than this share says too little


# A column, a group for each point, and the groups: a name and a style each.
_Colouring = tuple[str, IndexArray, list[dict[str, str]]]


def coloured(
    values: FloatArray, names: Sequence[str], importance: FloatArray, categories: Mapping[str, Sequence[str]]
) -> _Colouring:
    """Choose a column of the points and divide them by it."""
    columns = {name: place for place, name in enumerate(names)}
    found: list[tuple[float, str, list[str], IndexArray]] = []
    for name, texts in categories.items():
        encoded = [text for text in texts[1:] if f"{name}={text}" in columns]
        if encoded:
            places = [columns[f"{name}={text}"] for text in encoded]
            # All of these are 0 for the first value.
            codes = np.argmax(np.column_stack([np.full(len(values), 0.5), values[:, places]]), axis=1)
            found.append((float(importance[places].sum()), name, [texts[0], *encoded], codes))
    for place in np.argsort(-importance, kind="stable")[:_MOST_TRIED].tolist():
        numbers, codes = np.unique(values[:, place], return_inverse=True)
        if 2 <= len(numbers) <= _PALETTE:
            known = dict(enumerate(categories.get(names[place], ())))
            labels = [known.get(number, f"{number:.4g}") for number in numbers.tolist()]
            found.append((float(importance[place]), names[place], labels, codes))
    best = max(found, key=lambda each: each[0], default=None)
    if best is not None and best[0] >= _NOTABLE * float(importance.sum()):
        return _of_labels(*best[1:])
    # The strongest column in shades, as many points in each.
    strongest = int(np.argmax(importance))
    edges = np.unique(np.quantile(values[:, strongest], np.linspace(0.0, 1.0, _SHADES + 1)))
    ends = [f"{edge:.3g}" for edge in edges]
    words = [f"{low} to {high}" for low, high in zip(ends, ends[1:] or ends, strict=False)]
    groups = [{"name": each, "style": f"shade{place}", "meaning": ""} for place, each in enumerate(words)]
    return names[strongest], np.searchsorted(edges[1:-1], values[:, strongest], side="right"), groups


def _of_labels(name: str, labels: Sequence[str], codes: IndexArray) -> _Colouring:
    """The most frequent labels in colours of their own, the others in one."""
    order = np.argsort(-np.bincount(codes, minlength=len(labels)), kind="stable")
    kept = order[:_PALETTE]
    groups = [{"name": labels[code], "style": f"colour{place}", "meaning": ""} for place, code in enumerate(kept)]
    if len(order) > len(kept):
        groups.append({"name": f"{len(order) - len(kept)} others", "style": "rest", "meaning": ""})
    return name, np.minimum(np.argsort(order), len(kept))[codes], groups


_MOST_MARKS = 2000  # more of them would hide each other


def map_pairs(metric: Metric, judgements: Judgements, suspects: IndexArray, seed: int) -> dict[str, Any]:
    """The difference of each pair along the strongest directions, by label; single points from their origin.

    A difference and its opposite are the same distance, so for pairs only the sizes are shown.
    `suspects` are the row numbers of labels that look wrong.
    """
    if metric.rank == 0:
        return {"reason": ZERO}
    if judgements.kind is Kind.COMPARISONS:
        return {"reason": "A comparison is of two differences, so it has no single place on a map."}
    used, sides, radii = judgements.sample(_MOST_MARKS, seed), judgements.sides, _roots(metric)
    places = metric.coordinates(used.data, metric.directions().columns[:, :2])
    named = [(sides.close, "close", "close"), (sides.far, "far", "far")]
    if sides.is_graded:
        levels = sides.classes.tolist()
        named = [(level, style, "") for level, style in zip(levels, level_styles(len(levels)), strict=True)]
    groups = [{"name": str(label), "style": style, "meaning": meaning} for label, style, meaning in named]
    is_single = metric.origin is not None
    places, codes = places if is_single else np.abs(places), used.codes.astype(np.intp)
    return {
        **_drawn(metric, places, codes, groups, "point" if is_single else "pair", len(judgements)),
        "signed": is_single,
        "suspects": np.flatnonzero(np.isin(used.numbers, suspects)).tolist(),
        "coloured_by": None,
        "length": None,
        "radii": radii,
    }


def map_points(
    fit: Fit, judgements: Judgements, ids: NDArray[Any] | None, categories: Mapping[str, Sequence[str]], seed: int
) -> dict[str, Any]:
    """The points that are in a pair along the strongest directions, from their mean, coloured by one column.

    `ids` are those of both points of all pairs that were given, where they share any; `categories` are the values of
    the columns without numbers, as of `Provenance`.
    """
    found, metric = _distinct_points(judgements, ids, seed), fit.metric
    if found is None:
        return {"reason": "The points themselves are not known, only their differences."}
    if metric.rank == 0:
        return {"reason": ZERO}
    points, index = found
    importance = np.sum(metric.factor**2, axis=1) * np.array(fit.statistics.column_scales) ** 2
    known, radii = np.unique(index), _roots(metric)
    values = points[known[sample_rows(len(known), _MOST_MARKS, seed)]].astype(np.float64, copy=False)
    places = (values - values.mean(axis=0)) @ metric.directions().columns[:, :2]
    column, codes, groups = coloured(values, metric.column_names, importance, categories)
    return {
        **_drawn(metric, places, codes, groups, "point", len(known)),
        "signed": True,
        "suspects": [],
        "radii": [],
        "coloured_by": column,
        "length": radii[0] if len(radii) == 1 else None,
    }


def _distinct_points(
    judgements: Judgements, ids: NDArray[Any] | None, seed: int
) -> tuple[FloatArray, IndexArray] | None:
    """The points of the pairs, or of a sample of many, and which two each pair is of; None of differences."""
    used = judgements.sample(20_000, seed)
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
    metric: Metric, places: FloatArray, codes: IndexArray, groups: list[dict[str, str]], noun: str, total: int
) -> dict[str, Any]:
    """The marks, a sample of `total`; where there is one direction they have no second coordinate."""
    (across, *up), shares, n = places.T, metric.directions().shares, len(places)
    both = percent(min(float(shares[:2].sum()), 1.0))
    explained = f"Directions 1 and 2 explain {both} of the mean squared distance."
    if len(shares) == 1:
        explained = "The metric has one direction, which explains all of the distance."
    shown = f"All {count(total, noun)} are shown." if total > 1 else f"One {noun} is shown."
    if n < total:
        shown = f"A random sample of {n:,} of {count(total, noun)} is shown."
    return {
        "reason": None,
        "x": _rounded(across),
        "y": _rounded(up[0]) if up else None,
        "groups": groups,
        "group": codes.tolist(),
        "shares": shares[:2].tolist(),
        "noun": noun,
        "reading": f"{explained} {shown}",
    }


def _rounded(values: FloatArray) -> list[float]:
    """To a few digits of the largest, which is more than a picture shows."""
    largest = float(np.max(np.abs(values), initial=0.0)) or 1.0
    return list(np.round(values, 4 - int(np.floor(np.log10(largest)))).tolist())
