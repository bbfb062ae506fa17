"""Which kind of column the training data has, and what can't be a feature."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.tables.columns import Boolean, Category, Column, Number, Ordinal
from closefar.tables.errors import Place, TableError, argument, quoted
from closefar.tables.values import BOOLEAN_WORDS, codes_of, distinct, is_missing, is_number, to_text

__all__ = ["learn_column"]

_MOST_CATEGORIES = 50
_MOST_NAMED_CATEGORIES = 1000  # named with --categorical
_NEARLY_ALL = 0.9
_FEW_ROWS = 5  # so few categories are no sign of an id

_TIME = r"([T ]\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?(Z|UTC|[+-]\d{2}:?\d{2}))?)?"
_DATE = re.compile(
    rf"(\d{{4}}-\d{{1,2}}-\d{{1,2}}|\d{{4}}/\d{{1,2}}/\d{{1,2}}|\d{{1,2}}([./])\d{{1,2}}\2\d{{4}}){_TIME}"
)
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")


def learn_column(
    name: str,
    values: NDArray[Any],
    place: Place,
    *,
    is_categorical: bool,
    order: Sequence[str] | None,
    unseen: str,
) -> Column:
    """Decide how a column becomes numbers, or refuse it with a hint."""
    if np.all(is_missing(values)):
        raise TableError(
            f"{place.path}: {place.column(name)} has no values. Leave it out with --drop {argument(name)}."
        )
    if order is not None:
        return Ordinal.learn(name, values, order, place, unseen)
    if is_categorical:
        return _category(name, values, place, _MOST_NAMED_CATEGORIES)
    if values.dtype.kind == "M":
        raise TableError(_about_dates(name, place))
    if values.dtype.kind == "b":
        return Boolean.learn(name, values, place)
    if values.dtype.kind == "f":
        return Number.learn(name, values, place)
    return _from_text(name, values, place)


def _from_text(name: str, values: NDArray[np.object_], place: Place) -> Column:
    texts = distinct(values)
    numbers = [is_number(text) for text in texts]
    if all(numbers):
        return Number.learn(name, values, place)
    if all(text.lower() in BOOLEAN_WORDS for text in texts):
        return Boolean.learn(name, values, place)
    if any(numbers):
        raise TableError(_about_mixed(name, values, texts, place))
    if all(map(_DATE.fullmatch, texts)):
        raise TableError(_about_dates(name, place))
    if all(map(_DECIMAL_COMMA.fullmatch, texts)):
        raise TableError(
            f"{place.path}: {place.column(name)} looks like numbers with a decimal comma, such as {quoted(texts[0])}. "
            f"Write them with a point, or use --categorical {argument(name)}."
        )
    return _category(name, values, place, _MOST_CATEGORIES)


def _category(name: str, values: NDArray[Any], place: Place, most: int) -> Category:
    known = distinct(to_text(values))
    n_values = int(np.sum(~is_missing(values)))
    by_itself = most == _MOST_CATEGORIES
    nearly_all = by_itself and len(known) >= _FEW_ROWS and len(known) > _NEARLY_ALL * n_values
    if len(known) > most or nearly_all:
        other = f"use --categorical {argument(name)} if it does hold categories" if by_itself else "join some of them"
        raise TableError(
            f"{place.path}: {place.column(name)} has {len(known):,} different texts in {n_values:,} values, such as "
            f"{quoted(known[0])}, so it looks like an id or free text. "
            f"Leave it out with --drop {argument(name)}, or {other}."
        )
    return Category.learn(name, values, known)


def _about_dates(name: str, place: Place) -> str:
    return (
        f"{place.path}: {place.column(name)} holds dates, which have no unit. Turn them into a number, such as days "
        f"since a date, or leave the column out with --drop {argument(name)}."
    )


def _about_mixed(name: str, values: NDArray[np.object_], texts: Sequence[str], place: Place) -> str:
    is_wrong = np.array([not is_number(text) for text in texts] + [False])  # the last is for missing values
    wrong = np.flatnonzero(is_wrong[codes_of(values, texts)])
    first = int(wrong[0])
    comma = " It has a decimal comma: write a point." if _DECIMAL_COMMA.fullmatch(values[first]) else ""
    return (
        f"{place.path}: {place.column(name, first)} mixes numbers and text: {len(wrong):,} of its values are not "
        f"numbers, the first is {quoted(values[first])} in {place.row(first)}.{comma} Correct them, leave them empty "
        f"if they mean missing, or use --categorical {argument(name)} to treat all its values as categories."
    )
