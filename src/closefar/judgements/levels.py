"""Levels of pairs, from the closest to the farthest: ordered numbers, ordered categories, or words in a given order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import IndexArray
from closefar.judgements.coded import CodedLabels
from closefar.judgements.labels import Sides
from closefar.judgements.missing import is_missing

__all__ = ["find_levels", "level_codes"]

_MOST_LEVELS, _FEW_LEVELS, _PAIRS_PER_LEVEL = 100, 10, 4
_MOST_NAMED = 8


def find_levels(given: Any, labels: NDArray[Any] | CodedLabels, order: Any = None) -> Sides:
    """Find the levels in their order: that of `order`, of ordered categories, or of numbers.

    `labels` are the column that was `given`.  Each level must have been used.
    """
    used = _different(labels)
    levels = _checked_order(order) if order is not None else _ordered_categories(given)
    if levels is None:
        levels = _ordered_numbers(used)
    if len(levels) > min(_MOST_LEVELS, max(_FEW_LEVELS, len(labels) // _PAIRS_PER_LEVEL)):
        raise ValueError(
            f"levels must be few, each of many pairs; got {len(levels)} levels for {len(labels)} pairs, such as "
            f"{_listed(levels[:3])}. Bin them first, for instance with numpy.digitize."
        )
    sides = Sides(_as_array(levels), is_graded=True)
    _check_all_known(used, labels, sides, order)
    unused = [level for level in levels if level not in used]
    if unused:
        how = "levels" if order is not None else "the categories (with remove_unused_categories() of pandas)"
        it = "it" if len(unused) == 1 else "them"
        raise ValueError(
            f"each level must have been used; nobody used {_listed(unused)}. Leave {it} out of {how}, or add pairs "
            f"that were judged with {it}."
        )
    if len(levels) < 2:
        raise ValueError(
            f"there must be at least two levels (classes); got {_listed(levels)} alone. Add pairs of another level."
        )
    return sides


def level_codes(labels: NDArray[Any] | CodedLabels, sides: Sides) -> IndexArray:
    """Return which of the levels of a fit, in their order, each label is."""
    codes = np.full(len(labels), -1, dtype=np.intp)
    for code, level in enumerate(sides.classes.tolist()):
        codes[np.asarray(labels == level, dtype=bool)] = code
    if np.any(codes < 0):
        row = int(np.argmin(codes))
        value = labels[row : row + 1].tolist()[0]
        raise ValueError(
            f"each level must be one of those of the fit, {_listed(sides.classes.tolist())}; got {value!r} in row "
            f"{row}. Correct it, or leave that row out."
        )
    return codes


def _different(labels: NDArray[Any] | CodedLabels) -> set[Any]:
    """The different labels, none of which is missing."""
    if isinstance(labels, CodedLabels):
        different: set[Any] = set(labels.counts())
    else:
        different = set(labels.tolist() if labels.dtype.kind == "O" else np.unique(labels).tolist())
    if any(is_missing(value) for value in different):
        row = next(row for row, value in enumerate(labels.tolist()) if is_missing(value))
        raise ValueError(
            f"each pair must have a level; got {labels.tolist()[row]!r} in row {row}. Fill it in, or leave that row "
            "out."
        )
    return different


def _checked_order(order: Any) -> list[Any]:
    """The levels that a user gave in their order."""
    if isinstance(order, str | set | frozenset) or not hasattr(order, "__iter__"):
        raise ValueError(f"levels must be a list, from the closest to the farthest level; got {order!r}.")
    levels = [_plain(level) for level in order]
    if len(levels) < 2:
        raise ValueError(f"levels must list at least two levels (classes); got {levels}.")
    repeated = [level for level in levels if levels.count(level) > 1]
    if repeated:
        raise ValueError(f"levels must be different; got {repeated[0]!r} twice. List each level once, in their order.")
    return levels


def _ordered_categories(given: Any) -> list[Any] | None:
    """The categories of an ordered categorical of pandas, or of an Enum of polars."""
    dtype = getattr(given, "dtype", None)
    categories = getattr(dtype, "categories", None)
    is_ordered = getattr(dtype, "ordered", False) or type(dtype).__name__ == "Enum"
    if categories is None or not is_ordered:
        return None
    levels: list[Any] = categories.tolist() if hasattr(categories, "tolist") else list(categories)
    return levels


def _ordered_numbers(used: set[Any]) -> list[Any]:
    words = [value for value in used if not isinstance(value, int | float | np.number | np.bool_)]
    if words:
        raise ValueError(
            f"levels that are words need an order; got {_listed(sorted(map(str, used)))}. Set levels to a list of "
            "them, from the closest to the farthest, or give numbers or an ordered categorical."
        )
    infinite = [value for value in used if abs(value) == np.inf]
    if infinite:
        raise ValueError(f"levels must be finite numbers; got {infinite[0]}. Correct it, or leave those pairs out.")
    return [_plain(level) for level in sorted(used)]


def _check_all_known(used: set[Any], labels: NDArray[Any] | CodedLabels, sides: Sides, order: Any) -> None:
    unknown = used - set(sides.classes.tolist())
    if not unknown:
        return
    row = next(row for row, value in enumerate(labels.tolist()) if value in unknown)
    raise ValueError(
        f"each level must be one of {_listed(sides.classes.tolist())}; got {labels.tolist()[row]!r} in row {row}. "
        f"{'Add it to levels, in its place' if order is not None else 'Correct it'}, or leave that row out."
    )


def _plain(level: Any) -> Any:
    """A number of NumPy as Python's."""
    return level.item() if isinstance(level, np.generic) else level


def _as_array(levels: list[Any]) -> NDArray[Any]:
    """The levels as an array: of numbers, of strings, or of objects of several kinds."""
    if all(isinstance(level, str) for level in levels):
        return np.array(levels)
    if all(isinstance(level, int | float) for level in levels):
        return np.array(levels)
    found = np.empty(len(levels), dtype=object)
    found[:] = levels
    return found


def _listed(levels: list[Any]) -> str:
    more = f" and {len(levels) - _MOST_NAMED} more" if len(levels) > _MOST_NAMED else ""
    return ", ".join(map(repr, levels[:_MOST_NAMED])) + more
