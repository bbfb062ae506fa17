"""Whether the first row of a text file names the columns, or has values already."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from closefar.tables.values import BOOLEAN_WORDS, is_number

_MANY = 6  # so many values hardly ever happen to be in order
_EVEN = 1.5  # steps of a grid differ at most by this factor
_MOST_YEARS = 10.0  # between two years


def find_value(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str | None:
    """The first of the names that is more likely a value, seen beside the rows below it; None where all are names.

    Numbers are names where they are in order, as years and wavelengths are.
    """
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    stripped = [[cell.strip() for cell in column] for column in columns]
    for name in names:
        if name.lower() in BOOLEAN_WORDS:
            return name
    categories = [name for name, cells in zip(names, stripped, strict=True) if not is_number(name) and name in cells]
    if len(categories) >= len(names) - 1 > 0:  # all but an id; one alone, as far in a column far, is a name
        return categories[0]
    numbers = [name for name in names if _is_numeral(name)]
    if not numbers:
        return names[0] if _is_like(names[0], stripped[0]) else None
    if not _are_in_order([float(name) for name in numbers]) or _is_like(names[0], stripped[0]):
        return numbers[0]
    within = [_is_within(name, cells) for name, cells in zip(names, stripped, strict=True) if _is_numeral(name)]
    return numbers[0] if len(numbers) < _MANY and all(within) else None


def _is_numeral(name: str) -> bool:
    return is_number(name) and any(map(str.isdigit, name))


def _is_like(name: str, cells: Sequence[str]) -> bool:
    """Whether a name is built like the ids below it, as P0001 is like P0002."""
    shape = _shape(name)
    return "9" in shape and len(cells) > 0 and all(_shape(cell) == shape for cell in cells)


def _shape(text: str) -> str:
    return re.sub(r"\d", "9", text)


def _are_in_order(numbers: list[float]) -> bool:
    steps = np.diff(numbers)
    if len(numbers) == 1:
        return numbers[0].is_integer() and numbers[0] >= 0
    if not (np.all(steps > 0) or np.all(steps < 0)):
        return False
    if len(numbers) == 2:
        return all(number.is_integer() for number in numbers) and abs(float(steps[0])) <= _MOST_YEARS
    return len(numbers) >= _MANY or bool(np.abs(steps).max() <= _EVEN * np.abs(steps).min())


def _is_within(name: str, cells: Sequence[str]) -> bool:
    """Whether a number is among those below it."""
    numbers = [float(cell) for cell in cells if is_number(cell)]
    return len(numbers) > 1 and min(numbers) <= float(name) <= max(numbers)
