"""What the points of a map are coloured by: the column with few values that weighs most, or the strongest one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from closefar.arrays import FloatArray, IndexArray

__all__ = ["Colouring"]

_MOST_COLOURS = 6
_SHADES = 5
_MOST_TRIED = 50
_NOTABLE = 0.02  # a column with few values that weighs less than this share says too little


@dataclass(frozen=True, eq=False)
class Colouring:
    """The column, a group for each point, and the groups: a name and a style each."""

    column: str
    codes: IndexArray
    groups: list[dict[str, str]]

    @classmethod
    def of(
        cls,
        values: FloatArray,
        names: Sequence[str],
        importance: FloatArray,
        categories: Mapping[str, Sequence[str]],
    ) -> Colouring:
        """Choose a column of the points and divide them by it."""
        columns = {name: place for place, name in enumerate(names)}
        found = []
        for name, texts in categories.items():
            places = [columns[f"{name}={text}"] for text in texts[1:] if f"{name}={text}" in columns]
            if places:
                found.append((float(importance[places].sum()), _of_category(name, texts[0], values, places, names)))
        for place in np.argsort(-importance, kind="stable")[:_MOST_TRIED].tolist():
            numbers, codes = np.unique(values[:, place], return_inverse=True)
            if 2 <= len(numbers) <= _MOST_COLOURS:
                labels = _named(numbers, categories.get(names[place], ()))
                found.append((float(importance[place]), _of_labels(names[place], labels, codes)))
        weight, best = max(found, key=lambda each: each[0], default=(0.0, None))
        if best is not None and weight >= _NOTABLE * float(importance.sum()):
            return best
        strongest = int(np.argmax(importance))
        return _of_numbers(names[strongest], values[:, strongest])


def _named(numbers: FloatArray, texts: Sequence[str]) -> list[str]:
    """The texts that these numbers stand for, where they do."""
    codes = [int(number) if number in range(len(texts)) else None for number in numbers.tolist()]
    return [f"{number:.4g}" if code is None else texts[code] for number, code in zip(numbers, codes, strict=True)]


def _of_category(
    name: str, reference: str, values: FloatArray, places: Sequence[int], names: Sequence[str]
) -> Colouring:
    """From 0/1 columns, all of which are 0 for the reference."""
    ones = values[:, places]
    codes = np.where(np.max(ones, axis=1) > 0.5, np.argmax(ones, axis=1) + 1, 0)
    return _of_labels(name, [reference, *(names[place].removeprefix(f"{name}=") for place in places)], codes)


def _of_labels(name: str, labels: Sequence[str], codes: IndexArray) -> Colouring:
    """The most frequent labels in colours of their own, the others in one."""
    order = np.argsort(-np.bincount(codes, minlength=len(labels)), kind="stable")
    kept = order[:_MOST_COLOURS]
    groups = [{"name": labels[code], "style": f"colour{place}", "meaning": ""} for place, code in enumerate(kept)]
    if len(order) > len(kept):
        groups.append({"name": f"{len(order) - len(kept)} others", "style": "rest", "meaning": ""})
    places = np.full(len(labels), len(kept))
    places[kept] = np.arange(len(kept))
    return Colouring(name, places[codes], groups)


def _of_numbers(name: str, values: FloatArray) -> Colouring:
    """In shades, as many points in each."""
    edges = np.unique(np.quantile(values, np.linspace(0.0, 1.0, _SHADES + 1)))
    inner = edges[1:-1]
    codes = np.searchsorted(inner, values, side="right")
    ends = [f"{edge:.3g}" for edge in edges]
    groups = [
        {"name": f"{low} to {high}", "style": f"shade{place}", "meaning": ""}
        for place, (low, high) in enumerate(zip(ends, ends[1:] or ends, strict=False))
    ]
    return Colouring(name, codes, groups)
