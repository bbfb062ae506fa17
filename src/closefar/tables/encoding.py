"""How the columns of a table become the numbers that a metric is learned from."""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.errors import Sentence, joined, setting
from closefar.tables.errors import EmptyTableError, Place, TableError, counted, listed, quote, refuse_unknown
from closefar.tables.values import (
    BOOLEAN_WORDS,
    UNKNOWN_CODE,
    MissingValues,
    are_finite,
    are_missing,
    distinct,
    is_number,
    standard_column,
    text_codes,
    to_text,
)

MISSING = ("refuse", "drop", "median")
UNSEEN = ("refuse", "average")

# Text with more categories is refused as ids or free text: each adds a column, and the number of parameters of a
# metric grows with the square of that. Whoever names a column with --categorical may have more.
_MOST_CATEGORIES, _MOST_NAMED_CATEGORIES = 50, 1000
_SHARE_OF_IDS = 0.9  # text is taken for ids if more of its values than this are distinct ...
_FEWEST_IDS = 5  # ... unless there are fewer of them, which says nothing

# Numbers with thousands separators, a decimal comma, a currency or a unit, dates and times of day begin so.
_BEGINS_WITH_DIGIT = re.compile(r"\W*\d")


# ---------------------------------------------------------------------------------------------------------------------
# The four kinds of columns, each with what it remembers of the training data. Their fields are in model files.


@dataclass(frozen=True)
class Column:
    """A column that is used, and how its values become the numbers of one or more features."""

    name: str

    @property
    def kind(self) -> str:
        """What it is called in a model file."""
        return type(self).__name__.lower()

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def fill(self) -> FloatArray:
        """What the policy "median" puts in the place of a missing value."""
        raise NotImplementedError

    def encode(self, values: NDArray[Any], place: Place, unseen: str) -> FloatArray:
        """Return a row for each value and a column for each feature, NaN where the value is missing."""
        raise NotImplementedError

    def _require(self, holds: bool, rule: str, got: Any) -> None:
        if not holds:
            raise ValueError(f"column {self.name!r}: {rule}; got {got!r}.")

    def _wrong(
        self, wrong: Any, values: NDArray[Any], place: Place, rule: str, remedy: str = "Correct them."
    ) -> TableError:
        """The error of the values at these places."""
        first = int(wrong[0])
        return TableError(
            f"{place.path}: {place.column(self.name, first)} must hold {rule}; {len(wrong):,} of its values are not, "
            f"the first is {quote(to_text(values[first : first + 1])[0])} in {place.row(first)}. " + remedy
        )


@dataclass(frozen=True)
class Number(Column):
    """A column of numbers, which stay as they are; the median is None where the training data is not known."""

    median: float | None

    def __post_init__(self) -> None:
        known = self.median is None or _is_finite(self.median)
        self._require(known, "the median must be a finite number", self.median)

    @property
    def fill(self) -> FloatArray:
        return np.array([np.nan if self.median is None else self.median])

    @classmethod
    def learn(cls, name: str, values: NDArray[Any], place: Place) -> Number:
        numbers = cls(name, None).encode(values, place, "refuse")
        return cls(name, float(np.median(numbers) if are_finite(numbers) else np.nanmedian(numbers)))

    def encode(self, values: NDArray[Any], place: Place, unseen: str) -> FloatArray:
        if values.dtype.kind in "OM":
            texts = to_text(values).tolist()
            numbers = MissingValues.of((), in_text_file=True).numbers_from(texts)
            if numbers is None:
                wrong = [index for index, text in enumerate(texts) if text is not None and not is_number(text)]
                raise self._wrong(wrong, values, place, "numbers, as in the training data")
            values = numbers
        if not are_finite(values) and len(infinite := np.flatnonzero(np.isinf(values))):
            remedy = "Correct them, or leave them empty and set " + setting("missing") + "."
            raise self._wrong(infinite, values, place, "finite numbers", remedy)
        return values.astype(np.float64, copy=False)[:, None]


@dataclass(frozen=True)
class Boolean(Column):
    """A column of true and false, which become 1 and 0."""

    usual: bool

    def __post_init__(self) -> None:
        self._require(isinstance(self.usual, bool), "the usual value must be a bool", self.usual)

    @property
    def fill(self) -> FloatArray:
        return np.array([float(self.usual)])

    @classmethod
    def learn(cls, name: str, values: NDArray[Any], place: Place) -> Boolean:
        return cls(name, bool(np.nanmean(cls(name, False).encode(values, place, "refuse")) > 0.5))

    def encode(self, values: NDArray[Any], place: Place, unseen: str) -> FloatArray:
        if values.dtype.kind == "b":
            return values.astype(np.float64)[:, None]
        texts, words = to_text(values), {**BOOLEAN_WORDS, "1": True, "0": False}
        known = {text: words.get(str(text).lower(), np.nan) for text in set(texts)}
        ones = np.array([known[text] for text in texts], dtype=np.float64)
        wrong = np.flatnonzero(np.isnan(ones) & ~are_missing(values))
        if len(wrong):
            raise self._wrong(wrong, values, place, "true or false, as in the training data")
        return ones[:, None]


@dataclass(frozen=True)
class _Words(Column):
    """A column of categories, which are known."""

    values: tuple[str, ...]

    def __post_init__(self) -> None:
        texts = isinstance(self.values, tuple) and all(isinstance(value, str) and value for value in self.values)
        different = texts and len(set(self.values)) == len(self.values) > 0
        self._require(different, "its values must be different texts", self.values)

    def _codes(self, values: NDArray[Any], place: Place, unseen: str) -> NDArray[np.int64]:
        """The position of each value among the known ones; another one is refused unless it is to become the mean."""
        texts = to_text(values)
        codes = text_codes(texts, self.values)
        unknown = np.flatnonzero(codes == UNKNOWN_CODE)
        if unseen == "refuse" and len(unknown):
            first, count = int(unknown[0]), counted(len(unknown), "such value")
            remedy = "Correct them, or use " + setting(unseen="average") + " to encode them as the training mean."
            raise TableError(
                f"{place.path}: {place.column(self.name, first)} has the value {quote(texts[first])} in "
                f"{place.row(first)}, which is none of the known categories {listed(self.values)} ({count} in total). "
                + remedy
            )
        return codes

    def _looked_up(self, codes: NDArray[np.int64], numbers: FloatArray, mean: Sequence[float]) -> FloatArray:
        """The numbers of each code; those of the last two rows are of categories that are unseen, or missing."""
        return np.vstack([numbers, mean, np.full(numbers.shape[1], np.nan)])[codes]


@dataclass(frozen=True)
class Category(_Words):
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

    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        known = isinstance(self.shares, tuple) and all(_is_finite(share) and 0 <= share <= 1 for share in self.shares)
        known = known and len(self.shares) == len(self.values) - 1 and sum(self.shares) <= 1 + 1e-9  # but for rounding
        self._require(known, "shares must be numbers from 0 to 1, one for each value but the first", self.shares)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={value}" for value in self.values[1:])

    @property
    def fill(self) -> FloatArray:
        return np.zeros(len(self.shares))

    @classmethod
    def learn(cls, name: str, values: NDArray[Any], known: Sequence[str]) -> Category:
        counts = np.bincount(text_codes(to_text(values), known) + 1, minlength=len(known) + 1)[1:]  # -1 is missing
        reference = int(np.argmax(counts))
        others = [code for code in range(len(known)) if code != reference]
        shares = tuple((counts[others] / counts.sum()).tolist())
        return cls(name, (known[reference], *(known[code] for code in others)), shares)

    def encode(self, values: NDArray[Any], place: Place, unseen: str) -> FloatArray:
        codes, n = self._codes(values, place, unseen), len(self.values)
        return self._looked_up(codes, np.eye(n)[:, 1:], self.shares)


@dataclass(frozen=True)
class Ordinal(_Words):
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

    usual: str
    mean: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(self.usual in self.values, "the usual value must be known", self.usual)
        mean = _is_finite(self.mean) and 0 <= self.mean <= len(self.values) - 1
        self._require(mean, "the mean must be a number from 0 to the last", self.mean)

    @property
    def fill(self) -> FloatArray:
        return np.array([float(self.values.index(self.usual))])

    @classmethod
    def learn(cls, name: str, values: NDArray[Any], order: Sequence[str], place: Place, unseen: str) -> Ordinal:
        codes = cls(name, tuple(order), order[0], 0.0)._codes(values, place, unseen)
        known = codes[codes >= 0]
        if len(known) == 0:
            raise TableError(f"{place.path}: {place.column(name)} has none of the values {listed(order)} of its order.")
        return cls(name, tuple(order), order[int(np.argmax(np.bincount(known)))], float(np.mean(known)))

    def encode(self, values: NDArray[Any], place: Place, unseen: str) -> FloatArray:
        codes, n = self._codes(values, place, unseen), len(self.values)
        return self._looked_up(codes, np.arange(n, dtype=np.float64)[:, None], [self.mean])


COLUMN_KINDS: dict[str, type[Column]] = {cls.__name__.lower(): cls for cls in (Number, Boolean, Category, Ordinal)}


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


# ---------------------------------------------------------------------------------------------------------------------
# Which kind of column the training data has, and what can't be a feature.


def _learn_column(
    name: str, values: NDArray[Any], place: Place, is_categorical: bool, order: Sequence[str] | None, unseen: str
) -> Column:
    """Decide how a column becomes numbers, or refuse it with a hint."""
    if order is not None:
        return Ordinal.learn(name, values, order, place, unseen)
    if values.dtype.kind == "b" and not is_categorical:
        return Boolean.learn(name, values, place)
    if values.dtype.kind == "f" and not is_categorical:
        return Number.learn(name, values, place)
    known = distinct(to_text(values))
    drop, categorical = setting(drop=[name]), setting(categorical=[name])
    if not is_categorical:
        are_dates = values.dtype.kind == "M"
        numbers = [text for text in known if is_number(text) and not are_dates]
        if len(numbers) == len(known):
            return Number.learn(name, values, place)
        if all(text.lower() in BOOLEAN_WORDS for text in known):
            return Boolean.learn(name, values, place)
        if numbers:
            raise _mixed(name, values, set(numbers), place, categorical)
        if are_dates or all(map(_BEGINS_WITH_DIGIT.match, known)):
            commas = "set " + setting(decimal=",") + " for decimal commas"
            choice = "or use " + categorical + " if they are categories", "or " + drop + " to leave them out."
            raise TableError(
                f"{place.path}: {place.column(name)} has numbers, dates or times that are not written as plain "
                f"numbers, such as {quote(known[0])}. Write them without units and separators (dates as days since a "
                "reference date), " + joined((commas, *choice), ", ")
            )
    n_values, most = int(np.sum(~are_missing(values))), _MOST_NAMED_CATEGORIES if is_categorical else _MOST_CATEGORIES
    are_ids = not is_categorical and len(known) >= _FEWEST_IDS and len(known) > _SHARE_OF_IDS * n_values
    if len(known) > most or are_ids:
        merge = "merge some of its categories." if is_categorical else "use " + categorical + " for categories."
        raise TableError(
            f"{place.path}: {place.column(name)} has {len(known):,} distinct texts in {n_values:,} values, such as "
            f"{quote(known[0])}, so it looks like an id or free text. Leave it out with " + drop + ", or " + merge
        )
    return Category.learn(name, values, known)


def _mixed(
    name: str, values: NDArray[np.object_], numbers: Collection[str], place: Place, categorical: Sentence
) -> TableError:
    wrong = [index for index, value in enumerate(values) if value is not None and value not in numbers]
    first, is_one = values[wrong[0]], len(wrong) == 1
    them = "it" if is_one else "them"
    comma = ", set " + setting(decimal=",") + " for decimal commas" if "," in first else ""
    words = comma + ", add words for missing values to " + setting("na_values") + ", or use " + categorical
    return TableError(
        f"{place.path}: {place.column(name, wrong[0])} mixes numbers and text: {counted(len(wrong), 'value')} "
        f"{'is not a number' if is_one else 'are not numbers'}, the first is {quote(first)} in "
        f"{place.row(wrong[0])}. Correct {them}" + words + " to treat all values as categories."
    )


# ---------------------------------------------------------------------------------------------------------------------
# The encoding of a table.


@dataclass(frozen=True)
class Encoding:
    """How the columns of a table become numbers, so that new data is encoded like the training data.

    Numbers stay as they are, true and false become 1 and 0, and categories with an order 0, 1, 2
    and so on.  Other text becomes a 0/1 column for each category but the most frequent one, the
    reference: the columns of all categories sum to one, so in the difference of two points they
    sum to zero, and without one of them the same metrics can be expressed.

    Parameters
    ----------
    columns : tuple of Number, Boolean, Category or Ordinal
        One for each column that is used.
    missing : {"refuse", "drop", "median"}
        Missing values: an error; leave the row out; or take the median of the training data,
        the most frequent value where it is not a number.
    unseen : {"refuse", "average"}
        Categories that the training data did not have: an error, or the training mean.

    Examples
    --------
    >>> import numpy as np
    >>> from closefar.tables import Encoding
    >>> columns = {"age": np.array([31.0, 44.0, 28.0]), "colour": np.array(["red", "blue", "red"])}
    >>> encoding = Encoding.learn(columns, name="people")
    >>> encoding.feature_names
    ('age', 'colour=blue')
    >>> data, dropped = encoding.apply(columns, name="people")
    >>> data.tolist()
    [[31.0, 0.0], [44.0, 1.0], [28.0, 0.0]]
    """

    columns: tuple[Column, ...]
    missing: str = "refuse"
    unseen: str = "refuse"

    def __post_init__(self) -> None:
        _check_policies(self.missing, self.unseen)
        for names, what in ((self.column_names, "columns"), (self.feature_names, "features")):
            if repeated := [name for name, count in Counter(names).items() if count > 1]:
                raise TableError(f"every one of the {what} must have a unique name; {listed(repeated)} is there twice.")
        if self.missing == "median" and any(np.isnan(column.fill).any() for column in self.columns):
            raise ValueError("missing must not be 'median': the medians of the training data are not known.")
        if not self.feature_names:
            raise TableError("at least one column must vary; every column has a single category. Add other columns.")

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns that a table must have."""
        return tuple(column.name for column in self.columns)

    @property
    def text_names(self) -> tuple[str, ...]:
        """Those of the columns that are read as they are written."""
        return tuple(column.name for column in self.columns if isinstance(column, _Words))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the numbers that come out."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def categories(self) -> dict[str, tuple[str, ...]]:
        """The values of each column without numbers: the reference first, or those that become 0, 1, 2 and so on."""
        found = {column.name: column.values for column in self.columns if isinstance(column, Category | Ordinal)}
        return {**found, **{column.name: ("false", "true") for column in self.columns if isinstance(column, Boolean)}}

    @classmethod
    def of_numbers(cls, names: Sequence[str]) -> Encoding:
        """Return the encoding of columns of numbers, of which nothing else is known."""
        return cls(tuple(Number(name, None) for name in names))

    @classmethod
    def learn(
        cls,
        table_columns: Mapping[str, Any],
        *,
        columns: Sequence[str] | None = None,
        drop: Collection[str] = (),
        categorical: Collection[str] = (),
        ordinal: Mapping[str, Sequence[str]] | None = None,
        missing: str = "refuse",
        unseen: str = "refuse",
        name: str | Place,
    ) -> Encoding:
        """Find out how to encode the columns of the training data.

        Parameters
        ----------
        table_columns : mapping of names to arrays
            As in `Table.columns`.
        columns, drop : names of columns
            Those to use, by default all; and those not to use.
        categorical : names of columns
            Numbers that are names of categories; also text with many different values.
        ordinal : mapping of names to lists of categories, each in its order
        missing, unseen : str
            As above.
        name : str
            What messages call the table.
        """
        place, ordinal = Place.of(name), dict(ordinal or {})
        _check_policies(missing, unseen)
        for column, order in ordinal.items():
            if isinstance(order, str) or len(order) < 2 or len(set(order)) < len(order):
                raise TableError(
                    f"the order of column {column!r} must be two or more different values; got {order!r}. List them "
                    "from the lowest to the highest."
                )
        names = chosen_names(list(table_columns), place, columns, drop, [*categorical, *ordinal])
        rows, learnt = _Rows(table_columns, names, missing, place), []
        for column in names:
            values = rows.read(column)
            if column in rows.counts and are_missing(values).all():
                remedy = "Leave it out with " + setting(drop=[column]) + "."
                raise TableError(f"{place.path}: {place.column(column)} has no values. " + remedy)
            if missing != "refuse" or not rows.counts:  # otherwise they are only counted
                how = column in categorical, ordinal.get(column), unseen
                learnt.append(_learn_column(column, values, rows.place, *how))
        rows.refuse_missing()
        return cls(tuple(learnt), missing, unseen)

    def apply(self, columns: Mapping[str, Any], *, name: str | Place) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Encode a table.

        Parameters
        ----------
        columns : mapping of names to arrays
            As in `Table.columns`; those that are not needed are ignored.
        name : str
            What messages call the table.

        Returns
        -------
        data : array of shape (n_kept, n_features)
        dropped : array of n bools
            The rows that were left out because they lack a value.
        """
        place = Place.of(name)
        refuse_unknown(place.path, self.column_names, list(columns), "which the model was trained on")
        rows = _Rows(columns, self.column_names, self.missing, place)
        data = self._numbers(rows)
        if rows.counts and self.missing == "median":
            warnings.warn(
                f"{place.path}: the training median (of categories, the most frequent) replaces "
                f"{counted(sum(rows.counts.values()), 'missing value')}: {rows.listed_counts}.",
                UserWarning,
                stacklevel=2,
            )
        return data, np.zeros(len(data), dtype=bool) if rows.dropped is None else rows.dropped

    def apply_to_part(self, columns: Mapping[str, Any], place: Place) -> FloatArray:
        """Encode some rows of a table, none of which is to be left out; what is filled in is not warned of."""
        return self._numbers(_Rows(columns, self.column_names, self.missing, place))

    def find_dropped(self, columns: Mapping[str, Any], *, place: Place) -> NDArray[np.bool_]:
        """Return which rows are left out because they lack a value; columns are read one at a time."""
        dropped = _Rows(columns, self.column_names, "drop", place).dropped
        assert dropped is not None
        return dropped

    def _numbers(self, rows: _Rows) -> FloatArray:
        data, start = np.empty((0, 0)), 0
        for column in self.columns:
            numbers = column.encode(rows.read(column.name), rows.place, self.unseen)
            if self.missing == "median":
                numbers = np.where(np.isnan(numbers), column.fill, numbers)
            if start == 0:
                data = np.empty((len(numbers), len(self.feature_names)))
            data[:, start : start + numbers.shape[1]] = numbers
            start += numbers.shape[1]
        rows.refuse_missing()
        return data

    def to_json(self) -> dict[str, Any]:
        """Return a dict that JSON can hold."""
        columns = []
        for column in self.columns:
            parts = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(column).items()}
            columns.append({"kind": column.kind, **parts})
        return {"columns": columns, "missing": self.missing, "unseen": self.unseen}

    @classmethod
    def from_json(cls, description: Any) -> Encoding:
        """Build from what `to_json` gave; anything else is a ValueError."""
        if not isinstance(description, dict) or description.keys() != {"columns", "missing", "unseen"}:
            raise ValueError("an encoding must be a dict with columns, missing and unseen.")
        columns = description["columns"]
        if not isinstance(columns, list) or not all(isinstance(column, dict) for column in columns):
            raise ValueError("the columns of an encoding must be a list of dicts.")
        return cls(tuple(map(_column_from_json, columns)), description["missing"], description["unseen"])


def _column_from_json(description: dict[str, Any]) -> Column:
    found: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in description.items()
    }
    name = found.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"the name of a column must be a text; got {name!r}.")
    try:
        return COLUMN_KINDS[found.pop("kind")](**found)
    except (KeyError, TypeError) as error:
        kinds = ", ".join(COLUMN_KINDS)
        raise ValueError(f"column {name!r} must be of the kind {kinds}, with its parts; got {description}.") from error


def chosen_names(
    found: Sequence[str], place: Place, columns: Sequence[str] | None, drop: Collection[str], described: Collection[str]
) -> list[str]:
    """The columns to use, in the order of the table; those that are named must be there."""
    refuse_unknown(place.path, columns or (), found, "which was named as a feature")
    refuse_unknown(place.path, drop, found, "which was to be left out")
    used, unused = set(found if columns is None else columns), set(drop)
    names = [name for name in found if name in used and name not in unused]
    if not names:
        raise TableError(f"{place.path} has no column left to use as a feature. Add columns, or drop fewer.")
    refuse_unknown(place.path, described, names, "which was named as categorical or ordinal, among those that are used")
    return names


def _check_policies(missing: Any, unseen: Any) -> None:
    for name, value, allowed in (("missing", missing, MISSING), ("unseen", unseen, UNSEEN)):
        if value not in allowed:
            raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}; got {value!r}.")


class _Rows:
    """The rows of a table that are used, read one column at a time; missing values are counted as they are read."""

    def __init__(self, columns: Mapping[str, Any], names: Sequence[str], missing: str, place: Place) -> None:
        self._columns, self._missing, self.place = columns, missing, place
        self._kept: Any = slice(None)
        self.counts: dict[str, int] = {}  # of missing values, where there are any
        self.dropped: NDArray[np.bool_] | None = None
        if missing != "drop":
            return
        self.dropped = reduce(np.logical_or, (are_missing(self.read(name)) for name in names))
        if self.dropped.all():
            remedy = "Add a column to " + setting("drop") + ", or use " + setting(missing="median") + "."
            raise EmptyTableError(f"{place.path}: every row has a missing value, in {self.listed_counts}. " + remedy)
        if self.dropped.any():
            self._kept = ~self.dropped
            self.place = place.at(self._kept)

    def read(self, name: str) -> NDArray[Any]:
        try:
            values: NDArray[Any] = standard_column(self._columns[name])[self._kept]
        except TypeError as error:
            message = f"{self.place.path}: {self.place.column(name)} holds neither numbers nor text: {error}."
            raise TableError(message) from error
        if not are_finite(values) and (count := int(are_missing(values).sum())):
            self.counts[name] = count
        return values

    def refuse_missing(self) -> None:
        """Raise if a value was missing, unless something is done about it."""
        if self.counts and self._missing == "refuse":
            remedy = setting(missing="drop") + ", or fill in the median (of categories, the most frequent one) with "
            raise TableError(
                f"{self.place.path} has missing values in {self.listed_counts}. Fill them in, leave those rows out "
                "with " + (remedy + setting(missing="median") + ".")
            )

    @property
    def listed_counts(self) -> str:
        return ", ".join(f"{self.place.column(name)} ({count:,})" for name, count in self.counts.items())


# ---------------------------------------------------------------------------------------------------------------------
# How to encode a table whose encoding may not be known yet.


@dataclass(frozen=True)
class Features:
    """A known encoding, or how to learn one; the fields are those of `Encoding.learn`.

    `missing` and `unseen` replace those of a known encoding where they are given.
    """

    encoding: Encoding | None = None
    columns: Sequence[str] | None = None
    drop: Collection[str] = ()
    categorical: Collection[str] = ()
    ordinal: Mapping[str, Sequence[str]] | None = None
    missing: str | None = None
    unseen: str | None = None

    def __post_init__(self) -> None:
        if self.encoding is None:
            return
        if self.columns is not None or self.drop or self.categorical or self.ordinal:
            raise ValueError(
                "the encoding determines which columns are used and how: columns, drop, categorical and ordinal must "
                "not be given with an encoding."
            )
        missing, unseen = self.missing or self.encoding.missing, self.unseen or self.encoding.unseen
        object.__setattr__(self, "encoding", replace(self.encoding, missing=missing, unseen=unseen))

    @property
    def drops_missing(self) -> bool:
        """Whether rows that lack a value are left out."""
        return (self.missing if self.encoding is None else self.encoding.missing) == "drop"

    @property
    def needed(self) -> tuple[str, ...] | None:
        """The columns that a known encoding takes."""
        return None if self.encoding is None else self.encoding.column_names

    @property
    def text_names(self) -> tuple[str, ...]:
        """The columns to read as they are written."""
        return (*self.categorical, *(self.ordinal or ())) if self.encoding is None else self.encoding.text_names

    def names_among(
        self, found: Sequence[str], roles: Mapping[str, str | None], place: Place, where: str = ""
    ) -> list[str]:
        """The names of the columns to read as features; `roles` says which other use a column has."""
        taken = {name: role for role, name in roles.items() if name is not None}
        for name in (*(self.columns or ()), *(self.needed or ())):
            if name in taken:
                raise TableError(
                    f"{place.path}: column {quote(name)} holds the {taken[name]}s, so it can't be a feature as well. "
                    "Set " + setting(taken[name]) + " to another column."
                )
        free = [name for name in found if name not in taken]
        if self.needed is not None:
            refuse_unknown(place.path, self.needed, free, "which the model was trained on" + where)
            return list(self.needed)
        drop = [name for name in self.drop if name not in taken]
        return chosen_names(free, place, self.columns, drop, self.text_names)

    def learned(self, columns: Mapping[str, NDArray[Any]], place: Place) -> Encoding:
        """The encoding that is known, or that these columns tell."""
        if self.encoding is not None:
            return self.encoding
        return Encoding.learn(
            columns,
            categorical=self.categorical,
            ordinal=self.ordinal,
            missing=self.missing or "refuse",
            unseen=self.unseen or "refuse",
            name=place,
        )
