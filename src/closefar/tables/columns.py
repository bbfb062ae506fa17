"""The four ways in which a column becomes numbers, each with what it remembers of the training data.

Each gives an array with one row a value and one column a feature, NaN where the value is
missing; `fill` is what the policy "median" puts there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.errors import Place, TableError, counted, listed, quoted
from closefar.tables.values import BOOLEAN_WORDS, MissingValues, are_finite, codes_of, is_missing, is_number, to_text

_MANY, _SAMPLED = 50_000, 5_000
_UNSEEN = -2  # as `codes_of` has it


def _require(holds: bool, rule: str, got: Any) -> None:
    if not holds:
        raise ValueError(f"{rule}; got {got!r}.")


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _check_texts(values: Any, name: str) -> None:
    texts = isinstance(values, tuple) and all(isinstance(value, str) and value for value in values)
    _require(
        texts and len(set(values)) == len(values) > 0, f"values of column {name!r} must be different texts", values
    )


@dataclass(frozen=True)
class Number:
    """A column of numbers, which stay as they are; the median is None where the training data is not known."""

    kind: ClassVar[str] = "number"
    is_text: ClassVar[bool] = False

    name: str
    median: float | None

    def __post_init__(self) -> None:
        known = self.median is None or _is_finite(self.median)
        _require(known, f"the median of column {self.name!r} must be a finite number", self.median)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def fill(self) -> FloatArray:
        return np.array([np.nan if self.median is None else self.median])

    @classmethod
    def learn(cls, name: str, values: NDArray[Any], place: Place) -> Number:
        numbers = _numbers(name, values, place)
        return cls(name, _median(numbers) if are_finite(numbers) else float(np.nanmedian(numbers)))

    def encode(self, values: NDArray[Any], place: Place, unseen: str) -> FloatArray:
        return _numbers(self.name, values, place)[:, None]


def _median(numbers: FloatArray) -> float:
    """The median as NumPy finds it; of many numbers only those are ordered that a sample places near it."""
    n = len(numbers)
    if n > _MANY:
        sample = np.sort(numbers[:: n // _SAMPLED])
        middle, around = len(sample) // 2, 3 * math.isqrt(len(sample))
        low, high = sample[middle - around], sample[middle + around]
        n_below = int(np.count_nonzero(numbers < low))
        near = numbers[(numbers >= low) & (numbers <= high)]
        ranks = [(n - 1) // 2 - n_below, n // 2 - n_below]
        if ranks[0] >= 0 and ranks[1] < len(near):
            return float(np.median(np.partition(near, ranks)[ranks]))
    return float(np.median(numbers))


def _numbers(name: str, values: NDArray[Any], place: Place) -> FloatArray:
    if values.dtype.kind == "O":
        values = _numbers_in_text(name, values, place)
    if values.dtype.kind == "M":
        raise TableError(
            f"{place.path}: {place.column(name)} must hold numbers, as in the training data; it holds dates here. "
            "Convert them to those numbers."
        )
    is_checked = values.dtype.kind != "f" or are_finite(values)
    infinite = np.empty(0, dtype=np.intp) if is_checked else np.flatnonzero(np.isinf(values))
    if len(infinite):
        first = int(infinite[0])
        raise TableError(
            f"{place.path}: {place.column(name, first)} must hold finite numbers; {len(infinite):,} of its values are "
            f"infinite, the first in {place.row(first)}. Correct them, or leave them empty and use --missing."
        )
    return values.astype(np.float64, copy=False)


def _numbers_in_text(name: str, values: NDArray[np.object_], place: Place) -> FloatArray:
    numbers = MissingValues.of((), in_text_file=True).numbers_from(values.tolist())
    if numbers is not None:
        return numbers
    wrong = [index for index, value in enumerate(values) if value is not None and not is_number(value)]
    raise TableError(
        f"{place.path}: {place.column(name, wrong[0])} must hold numbers, as in the training data; {len(wrong):,} of "
        f"its values are not, the first of them {quoted(values[wrong[0]])} in {place.row(wrong[0])}. Correct them."
    )


@dataclass(frozen=True)
class Boolean:
    """A column of true and false, which become 1 and 0."""

    kind: ClassVar[str] = "boolean"
    is_text: ClassVar[bool] = False

    name: str
    usual: bool

    def __post_init__(self) -> None:
        _require(isinstance(self.usual, bool), f"the usual value of column {self.name!r} must be a bool", self.usual)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def fill(self) -> FloatArray:
        return np.array([float(self.usual)])

    @classmethod
    def learn(cls, name: str, values: NDArray[Any], place: Place) -> Boolean:
        ones = cls(name, False).encode(values, place, "refuse")
        return cls(name, bool(np.nanmean(ones) > 0.5))

    def encode(self, values: NDArray[Any], place: Place, unseen: str) -> FloatArray:
        ones = self._ones(values)
        wrong = np.flatnonzero(np.isnan(ones) & ~is_missing(values))
        if len(wrong):
            first = int(wrong[0])
            raise TableError(
                f"{place.path}: {place.column(self.name, first)} must hold true or false, as in the training data; "
                f"{len(wrong):,} of its values are neither, the first is {quoted(to_text(values)[first])} in "
                f"{place.row(first)}. Correct them."
            )
        return ones[:, None]

    @staticmethod
    def _ones(values: NDArray[Any]) -> FloatArray:
        if values.dtype.kind == "b":
            return values.astype(np.float64)
        if values.dtype.kind == "f":
            return np.where((values == 0) | (values == 1), values, np.nan)
        texts = to_text(values)
        known = {text: float(BOOLEAN_WORDS.get(text.lower(), np.nan)) if text else np.nan for text in set(texts)}
        return np.fromiter(map(known.__getitem__, texts), dtype=np.float64, count=len(texts))


@dataclass(frozen=True)
class Category:
    """A column of categories: a 0/1 column for each but the most frequent one, the reference.

    The reference needs no column.  The 0/1 columns of all categories sum to one, so in the
    difference of two points they sum to zero, and one of them is minus the sum of the others.
    A metric on all of them gives each difference the same length as some metric on all but one.

    Parameters
    ----------
    name : str
    values : tuple of str
        The categories, the reference first.
    shares : tuple of float
        The share of each category but the reference in the training data.
    """

    kind: ClassVar[str] = "category"
    is_text: ClassVar[bool] = True

    name: str
    values: tuple[str, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_texts(self.values, self.name)
        shares = isinstance(self.shares, tuple) and all(_is_finite(share) and 0 <= share <= 1 for share in self.shares)
        _require(
            shares and len(self.shares) == len(self.values) - 1 and sum(self.shares) <= 1 + 1e-9,
            f"shares of column {self.name!r} must be numbers from 0 to 1, one for each value but the first",
            self.shares,
        )

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={value}" for value in self.values[1:])

    @property
    def fill(self) -> FloatArray:
        return np.zeros(len(self.shares))

    @classmethod
    def learn(cls, name: str, values: NDArray[Any], known: Sequence[str]) -> Category:
        codes = codes_of(to_text(values), known)
        counts = np.bincount(codes[codes >= 0], minlength=len(known))
        reference = int(np.argmax(counts))
        others = [code for code in range(len(known)) if code != reference]
        shares = counts[others] / counts.sum()
        return cls(name, (known[reference], *(known[code] for code in others)), tuple(shares.tolist()))

    def encode(self, values: NDArray[Any], place: Place, unseen: str) -> FloatArray:
        codes = _codes(self.name, values, self.values, place, unseen)
        ones = np.equal(codes[:, None], np.arange(1, len(self.values))).astype(np.float64)
        ones[codes == -1] = np.nan
        ones[codes == _UNSEEN] = self.shares
        return ones


@dataclass(frozen=True)
class Ordinal:
    """A column of categories with an order, which become 0, 1, 2 and so on.

    Parameters
    ----------
    name : str
    values : tuple of str
        The categories in their order.
    usual : str
        The most frequent category in the training data.
    mean : float
        The mean of its numbers in the training data.
    """

    kind: ClassVar[str] = "ordinal"
    is_text: ClassVar[bool] = True

    name: str
    values: tuple[str, ...]
    usual: str
    mean: float

    def __post_init__(self) -> None:
        _check_texts(self.values, self.name)
        _require(self.usual in self.values, f"the usual value of column {self.name!r} must be known", self.usual)
        mean = _is_finite(self.mean) and 0 <= self.mean <= len(self.values) - 1
        _require(mean, f"the mean of column {self.name!r} must be a number from 0 to the last", self.mean)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def fill(self) -> FloatArray:
        return np.array([float(self.values.index(self.usual))])

    @classmethod
    def learn(cls, name: str, values: NDArray[Any], order: Sequence[str], place: Place, unseen: str) -> Ordinal:
        codes = _codes(name, values, order, place, unseen)
        known = codes[codes >= 0]
        if len(known) == 0:
            raise TableError(
                f"{place.path}: {place.column(name)} has none of the values {listed(order)} that --ordinal lists."
            )
        usual = int(np.argmax(np.bincount(known)))
        return cls(name, tuple(order), order[usual], float(np.mean(known)))

    def encode(self, values: NDArray[Any], place: Place, unseen: str) -> FloatArray:
        codes = _codes(self.name, values, self.values, place, unseen)
        numbers = codes.astype(np.float64)
        numbers[codes == -1] = np.nan
        numbers[codes == _UNSEEN] = self.mean
        return numbers[:, None]


def _codes(name: str, values: NDArray[Any], known: Sequence[str], place: Place, unseen: str) -> NDArray[np.int64]:
    texts = to_text(values)
    codes = codes_of(texts, known)
    unknown = np.flatnonzero(codes == _UNSEEN)
    if unseen == "refuse" and len(unknown):
        first = int(unknown[0])
        raise TableError(
            f"{place.path}: {place.column(name, first)} has the value {quoted(texts[first])} in {place.row(first)}, "
            f"which is none of the known categories {listed(known)} ({counted(len(unknown), 'such value')} in total). "
            "Correct them, or use --unseen average to encode them as the mean of the training data."
        )
    return codes


Column = Number | Boolean | Category | Ordinal
COLUMN_KINDS: dict[str, type[Column]] = {cls.kind: cls for cls in (Number, Boolean, Category, Ordinal)}
