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

_MOST_CATEGORIES = 50
_MOST_NAMED_CATEGORIES = 1000  # named with --categorical
_NEARLY_ALL = 0.9
_FEW_ROWS = 5  # so few categories are no sign of an id

_TIME = r"([T ]\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?(Z|UTC|[+-]\d{2}:?\d{2}))?)?"
_DATE = re.compile(
    rf"(\d{{4}}-\d{{1,2}}-\d{{1,2}}|\d{{4}}/\d{{1,2}}/\d{{1,2}}|\d{{1,2}}([./])\d{{1,2}}\2\d{{4}}){_TIME}"
)
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[aApP][mM])?")
_MONTH = (
    "(Jan(uary)?|Feb(ruary)?|Mar(ch)?|Apr(il)?|May|June?|July?|Aug(ust)?|Sep(t(ember)?)?|Oct(ober)?|Nov(ember)?"
    "|Dec(ember)?)"
)
_DATE_WITH_NAME = re.compile(rf"(?i)(\d{{1,2}}[ -])?{_MONTH}[ -](\d{{1,2}}, ?)?\d{{2,4}}")
_GROUPED = re.compile(r"[+-]?\d{1,3}(([.' ])\d{3}(\2\d{3})*,\d+|(['\u2019 \u00a0\u202f]\d{3})+([.,]\d+)?)")
_WITH_UNIT = re.compile(r"([$€£¥]?) ?[+-]?\d+([.,]\d+)?([eE][+-]?\d+)? ?([^\d\s].*)?")
_FEWEST_WITH_UNIT = 3  # of two texts, such as "1 child" and "2 child", a unit can't be told from a name
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")


def refuse_empty(place: Place, names: Sequence[str]) -> None:
    """Refuse columns without values; of several, the first is named."""
    if names:
        raise TableError(
            f"{place.path}: {place.column(names[0])} has no values. Leave it out with --drop {argument(names[0])}."
        )


def learn_column(
    name: str, values: NDArray[Any], place: Place, *, is_categorical: bool, order: Sequence[str] | None, unseen: str
) -> Column:
    """Decide how a column becomes numbers, or refuse it with a hint."""
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
    if any(all(map(form.fullmatch, texts)) for form in (_DATE, _DATE_WITH_NAME, _CLOCK)):
        raise TableError(_about_dates(name, place))
    commas = _about_commas(texts)
    if commas:
        raise TableError(
            f"{place.path}: {place.column(name)} must hold numbers with a decimal point. {commas} If they are "
            f"categories, use --categorical {argument(name)}."
        )
    if all(map(_GROUPED.fullmatch, texts)) or _have_a_unit(texts):
        raise TableError(
            f"{place.path}: {place.column(name)} has numbers that are not written as plain ones, such as "
            f"{quoted(texts[0])}. Write them without units and separators, or use --categorical {argument(name)} if "
            "they are categories."
        )
    return _category(name, values, place, _MOST_CATEGORIES)


def _have_a_unit(texts: Sequence[str]) -> bool:
    """Whether all texts are numbers with the same sign or unit before or after them, such as $5 or 5 kg."""
    found = [_WITH_UNIT.fullmatch(text) for text in texts]
    around = {(match[1], match[4]) if match else None for match in found}
    return len(texts) >= _FEWEST_WITH_UNIT and len(around) == 1 and None not in around


def _about_commas(texts: Sequence[str]) -> str:
    """What commas in numbers mean, or may mean; nothing where there are other texts than such numbers."""
    if not all(_DECIMAL_COMMA.fullmatch(text) or _THOUSANDS.fullmatch(text) for text in texts):
        return ""
    decimal = next((text for text in texts if not _THOUSANDS.fullmatch(text)), None)
    thousands = next((text for text in texts if not _DECIMAL_COMMA.fullmatch(text)), None)
    if decimal is not None and thousands is not None:
        return f"{quoted(decimal)} has a decimal comma but {quoted(thousands)} thousands separators: use neither."
    if decimal is not None:
        return f"{quoted(decimal)} has a decimal comma: write a point."
    if thousands is not None:
        return f"{quoted(thousands)} has thousands separators: leave the commas out."
    text = texts[0]
    joined, pointed = text.replace(",", ""), text.replace(",", ".", 1)
    return (
        f"{quoted(text)} is ambiguous: with a thousands separator it means {joined}, with a decimal comma {pointed}. "
        "Write which one is meant, without a comma."
    )


def _category(name: str, values: NDArray[Any], place: Place, most: int) -> Category:
    known = distinct(to_text(values))
    n_values = int(np.sum(~is_missing(values)))
    by_itself = most == _MOST_CATEGORIES
    nearly_all = by_itself and len(known) >= _FEW_ROWS and len(known) > _NEARLY_ALL * n_values
    if len(known) > most or nearly_all:
        other = (
            f"use --categorical {argument(name)} if it does hold categories"
            if by_itself
            else "merge some of its categories"
        )
        raise TableError(
            f"{place.path}: {place.column(name)} has {len(known):,} distinct texts in {n_values:,} values, such as "
            f"{quoted(known[0])}, so it looks like an id or free text. "
            f"Leave it out with --drop {argument(name)}, or {other}."
        )
    return Category.learn(name, values, known)


def _about_dates(name: str, place: Place) -> str:
    return (
        f"{place.path}: {place.column(name)} holds dates or times, which are not numbers. Convert them, for example "
        f"to days since a reference date, or leave the column out with --drop {argument(name)}."
    )


def _count_of_texts(count: int) -> str:
    return "1 value is not a number" if count == 1 else f"{count:,} values are not numbers"


def _about_mixed(name: str, values: NDArray[np.object_], texts: Sequence[str], place: Place) -> str:
    is_wrong = np.array([not is_number(text) for text in texts] + [False])  # the last is for missing values
    wrong = np.flatnonzero(is_wrong[codes_of(values, texts)])
    first = int(wrong[0])
    comma = _about_commas([text for text, wrong_one in zip(texts, is_wrong[:-1], strict=True) if wrong_one])
    comma = f" {comma}" if comma else ""
    return (
        f"{place.path}: {place.column(name, first)} mixes numbers and text: {_count_of_texts(len(wrong))}, the first "
        f"is {quoted(values[first])} in {place.row(first)}.{comma} Correct {'it' if len(wrong) == 1 else 'them'}, name "
        f"words for missing values with --na-values, or use --categorical {argument(name)} to treat all values as "
        "categories."
    )
