"""The kinds of values that a column holds: numbers, true or false, text, dates; and what is missing.

A column is a 1-D array: float64 (NaN is missing), bool, object with text (None is missing), or
datetime64 (NaT is missing).  True and false with missing values among them stay text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray

MISSING_WORDS = ("", "-", "#N/A", "<NA>", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None")
BOOLEAN_WORDS = {"true": True, "false": False}

_LARGEST_WHOLE = 2.0**53  # above it not every whole number is a float64


@dataclass(frozen=True)
class MissingValues:
    """The words that stand for a missing value; those that are numbers stand for it among numbers as well.

    Of them `signs` are values in a column that has "+" as well, as in + and - for positive and negative.
    """

    words: frozenset[str] = frozenset([""])
    signs: frozenset[str] = frozenset()

    @classmethod
    def of(cls, given: Iterable[str], *, in_text_file: bool) -> MissingValues:
        """The words that were given beside the usual ones; other formats than text have missing values of their own."""
        own = frozenset(map(str.strip, given))
        if not in_text_file:
            return cls(own | {""})
        return cls(own.union(MISSING_WORDS), frozenset("-") - own)

    @cached_property
    def without_signs(self) -> MissingValues:
        """The same in a column that has "+" as well."""
        return MissingValues(self.words - self.signs)

    @cached_property
    def _numbers(self) -> list[float]:
        return [
            number for number in map(float, filter(is_number, self.words)) if number == number
        ]  # NaN is missing anyway

    @property
    def has_numbers(self) -> bool:
        """Whether a number stands for a missing value."""
        return bool(self._numbers)

    def in_numbers(self, numbers: FloatArray) -> FloatArray:
        """The numbers, with NaN for those that stand for a missing value."""
        return np.where(np.isin(numbers, self._numbers), np.nan, numbers) if self._numbers else numbers

    def in_column(self, column: NDArray[Any]) -> NDArray[Any]:
        """A column of text or numbers, without the values that stand for a missing one."""
        if column.dtype.kind == "f":
            return self.in_numbers(column)
        if column.dtype.kind != "O" or len(self.words) == 1:
            return column
        texts = column.copy()
        texts[np.isin(column.astype(str), sorted(self.words))] = None
        return texts

    def numbers_from(self, cells: Sequence[str | None]) -> FloatArray | None:
        """The numbers in a text file's cells, missing ones as NaN; None where a cell is neither."""
        words = ["" if cell is None else cell.strip() for cell in cells]
        try:
            numbers = np.array(["nan" if word in self.words else word for word in words], dtype=np.float64)
        except ValueError:
            return None
        # Python reads 2024_01 as a number, which no table means.
        return None if "_" in "".join(words) else self.in_numbers(numbers)


def is_number(text: str) -> bool:
    """Whether a text is a number, as Python reads it, but for 1_000."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def text_column(texts: Iterable[str | None]) -> NDArray[np.object_]:
    """A column of stripped text, with None for what is missing; equal texts share one object."""
    shared: dict[str | None, str | None] = {None: None, "": None}
    stripped = [None if text is None else text.strip() for text in texts]
    column = np.empty(len(stripped), dtype=object)
    column[:] = list(map(shared.setdefault, stripped, stripped))
    return column


def are_finite(column: NDArray[Any]) -> bool:
    """Whether a column holds finite numbers only, as far as their sum tells."""
    with np.errstate(all="ignore"):
        return column.dtype.kind == "f" and bool(np.isfinite(column.sum()))


def are_missing(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values of a column are missing."""
    missing: NDArray[np.bool_]
    if column.dtype.kind == "O":
        missing = np.asarray(column == np.array(None), dtype=bool)
    elif column.dtype.kind == "M":
        missing = np.isnat(column)
    elif column.dtype.kind == "f":
        missing = np.isnan(column)
    else:
        missing = np.zeros(len(column), dtype=bool)
    return missing


def standard_column(values: Any) -> NDArray[Any]:
    """A 1-D array as a column of one of the kinds above; TypeError for what is none of them."""
    column: NDArray[Any] = np.asarray(values)
    kind = column.dtype.kind
    if kind in "iuf":
        return column.astype(np.float64, copy=False)
    if kind == "S":
        return text_column(np.char.decode(column, "utf-8").tolist())
    if kind == "U":
        return text_column(column.tolist())
    if kind in "bM" or (kind == "O" and set(map(type, column)) <= {str, type(None)}):
        return column
    raise TypeError(f"its values are of the type {column.dtype}")


def to_text(column: NDArray[Any]) -> NDArray[np.object_]:
    """Any array as a column of text: 17 as "17", also where it is stored as 17.0."""
    kind = column.dtype.kind
    if kind == "O":
        return column
    text = np.empty(len(column), dtype=object)
    if kind == "f":
        whole = (np.floor(column) == column) & (np.abs(column) <= _LARGEST_WHOLE)
        rest = ~whole & ~np.isnan(column)
        text[whole] = list(map(str, column[whole].astype(np.int64).tolist()))
        text[rest] = list(map(repr, column[rest].tolist()))
        return text
    if kind in "US":
        return standard_column(column)
    text[:] = list(map(str, column.tolist())) if kind in "biu" else np.datetime_as_string(column)
    text[are_missing(column)] = None
    return text


def distinct(column: NDArray[np.object_]) -> list[str]:
    """The different texts of a column, in order: as numbers where all are, else as text."""
    texts = set(column) - {None}
    return sorted(texts, key=lambda text: (float(text), text)) if all(map(is_number, texts)) else sorted(texts)


def codes_of(column: NDArray[np.object_], values: Sequence[str]) -> NDArray[np.int64]:
    """The position of each text among the values; -1 for a missing one, and -2 for one that is not among them."""
    positions: dict[str | None, int] = {**{value: code for code, value in enumerate(values)}, None: -1}
    return np.fromiter(map(positions.get, column, repeat(-2)), dtype=np.int64, count=len(column))
