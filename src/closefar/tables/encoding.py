"""How the columns of a table become the numbers that a metric is learned from."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from dataclasses import fields as dataclass_fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.columns import COLUMN_KINDS, Boolean, Category, Column, Number, Ordinal
from closefar.tables.errors import EmptyTableError, Place, TableError, counted, listed, refuse_unknown
from closefar.tables.kinds import learn_column, refuse_empty
from closefar.tables.values import are_finite, is_missing, standard_column

MISSING = ("refuse", "drop", "median")
UNSEEN = ("refuse", "average")

_COLUMNS_AT_ONCE = 16
_ROWS_AT_ONCE = 1 << 12


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
        if not isinstance(self.columns, tuple) or not all(isinstance(column, Column) for column in self.columns):
            raise ValueError("columns must be a tuple of Number, Boolean, Category and Ordinal.")
        for names, what in ((self.column_names, "columns"), (self.feature_names, "features")):
            repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
            if repeated:
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
        return tuple(column.name for column in self.columns if column.is_text)

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
        _check_orders(ordinal)
        names = chosen_names(list(table_columns), place, columns, drop, [*categorical, *ordinal])
        numbers: dict[str, Column] = {}

        def learn_numbers(name: str, values: NDArray[Any]) -> None:
            """Learn a column of numbers where it is read anyway, to look for missing values."""
            if values.dtype.kind == "f" and name not in categorical and name not in ordinal:
                numbers[name] = Number.learn(name, values, place)

        visit = None if missing == "drop" else learn_numbers
        table = _Rows(table_columns, names, missing, place, is_training=True, visit=visit)
        learnt = tuple(
            numbers[name]
            if name in numbers
            else learn_column(
                name,
                table.read(name),
                table.place,
                is_categorical=name in categorical,
                order=ordinal.get(name),
                unseen=unseen,
            )
            for name in names
        )
        return cls(learnt, missing, unseen)

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
        table = _Rows(columns, self.column_names, self.missing, place)
        if table.filled:
            warnings.warn(table.filled, UserWarning, stacklevel=2)
        return self._numbers(table), table.dropped

    def apply_to_part(self, columns: Mapping[str, Any], *, place: Place) -> FloatArray:
        """Encode some rows of a table, none of which is to be left out; what is filled in is not warned of."""
        return self._numbers(_Rows(columns, self.column_names, self.missing, place))

    def find_dropped(self, columns: Mapping[str, Any], *, place: Place) -> NDArray[np.bool_]:
        """Return which rows `apply` leaves out because they lack a value; columns are read one at a time."""
        return _Rows(columns, self.column_names, self.missing, place).dropped

    def _numbers(self, table: _Rows) -> FloatArray:
        data = np.empty((int(np.sum(~table.dropped)), len(self.feature_names)))
        start = 0
        for group in (self.columns[at : at + _COLUMNS_AT_ONCE] for at in range(0, len(self.columns), _COLUMNS_AT_ONCE)):
            encoded = [self._encode(column, table) for column in group]
            start += _fill(data, start, encoded)
        return data

    def _encode(self, column: Column, table: _Rows) -> FloatArray:
        numbers = column.encode(table.read(column.name), table.place, self.unseen)
        return np.where(np.isnan(numbers), column.fill, numbers) if self.missing == "median" else numbers

    def to_json(self) -> dict[str, Any]:
        """Return a dict that JSON can hold."""
        columns = [{"kind": column.kind, **_lists(asdict(column))} for column in self.columns]
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


def _fill(data: FloatArray, start: int, blocks: Sequence[FloatArray]) -> int:
    """Put blocks of columns side by side, some rows at a time as those stay in cache; return the number of columns."""
    stops = start + np.cumsum([block.shape[1] for block in blocks])
    for first in range(0, len(data), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        for block, stop in zip(blocks, stops.tolist(), strict=True):
            data[rows, stop - block.shape[1] : stop] = block[rows]
    return int(stops[-1]) - start


def chosen_names(
    found: Sequence[str], place: Place, columns: Sequence[str] | None, drop: Collection[str], described: Iterable[str]
) -> list[str]:
    """The columns to use, in the order of the table; those that are named must be there."""
    refuse_unknown(place.path, columns or (), found, "which --columns names")
    refuse_unknown(place.path, drop, found, "which --drop names")
    used, unused = set(found if columns is None else columns), set(drop)
    names = [name for name in found if name in used and name not in unused]
    if not names:
        raise TableError(f"{place.path} has no column left to use as a feature. Add columns, or drop fewer.")
    refuse_unknown(place.path, described, names, "which --categorical or --ordinal names, among those that are used")
    return names


def _check_policies(missing: Any, unseen: Any) -> None:
    for name, value, allowed in (("missing", missing, MISSING), ("unseen", unseen, UNSEEN)):
        if value not in allowed:
            raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}; got {value!r}.")


def _check_orders(ordinal: Mapping[str, Sequence[str]]) -> None:
    for name, values in ordinal.items():
        if isinstance(values, str) or len(values) < 2 or len(set(values)) < len(values):
            raise TableError(f"the order of column {name!r} must be two or more different values; got {values!r}.")


class _Rows:
    """The rows of a table that are used, read one column at a time."""

    def __init__(
        self,
        columns: Mapping[str, Any],
        names: Sequence[str],
        missing: str,
        place: Place,
        *,
        is_training: bool = False,
        visit: Callable[[str, NDArray[Any]], None] | None = None,
    ) -> None:
        self._columns, self.place = columns, place
        lacking, counts = self._find_missing(names, visit)
        if is_training:
            refuse_empty(place, [name for name, count in counts.items() if count == len(lacking)])
        if counts and missing == "refuse":
            raise TableError(
                f"{place.path} has missing values in {self._listed(counts)}. Fill them in, leave those rows out with "
                "--missing drop, or fill in the median (of categories, the most frequent one) with --missing median."
            )
        if missing == "drop" and np.all(lacking):
            raise EmptyTableError(
                f"{place.path}: every row has a missing value, in {self._listed(counts)}. Leave a column out with "
                "--drop, or use --missing median."
            )
        self.dropped = lacking if missing == "drop" else np.zeros(len(lacking), dtype=bool)
        self._kept = ~lacking if missing == "drop" and counts else None
        self.filled = ""
        if counts and missing == "median":
            self.filled = (
                f"{place.path}: the training median (of categories, the most frequent) replaces "
                f"{counted(sum(counts.values()), 'missing value')}: {self._listed(counts)}."
            )
        if self._kept is not None:
            self.place = place.at(self._kept)

    def read(self, name: str) -> NDArray[Any]:
        values = self._standard(name)
        return values if self._kept is None else values[self._kept]

    def _standard(self, name: str) -> NDArray[Any]:
        try:
            return standard_column(self._columns[name])
        except TypeError as error:
            message = f"{self.place.path}: {self.place.column(name)} holds neither numbers nor text: {error}."
            raise TableError(message) from error

    def _find_missing(
        self, names: Sequence[str], visit: Callable[[str, NDArray[Any]], None] | None
    ) -> tuple[NDArray[np.bool_], dict[str, int]]:
        """Which rows lack a value, and how many values each column lacks, if any; `visit` gets each that has some."""
        lacking = np.zeros(len(self._standard(names[0])), dtype=bool)
        counts: dict[str, int] = {}
        for name in names:
            column = self._standard(name)
            if not are_finite(column):
                mask = is_missing(column)
                lacking |= mask
                counts |= {name: int(mask.sum())} if mask.any() else {}
            if visit is not None and counts.get(name) != len(lacking):
                visit(name, column)
        return lacking, counts

    def _listed(self, counts: Mapping[str, int]) -> str:
        return ", ".join(f"{self.place.column(name)} ({count:,})" for name, count in counts.items())


def _lists(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


def _column_from_json(description: dict[str, Any]) -> Column:
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in description.items()
    }
    kind, name = fields.pop("kind", None), fields.get("name")
    if not isinstance(kind, str) or kind not in COLUMN_KINDS:
        raise ValueError(f"the kind of a column must be one of {', '.join(COLUMN_KINDS)}; got {kind!r}.")
    if not isinstance(name, str) or not name:
        raise ValueError(f"the name of a column must be a text; got {name!r}.")
    cls = COLUMN_KINDS[kind]
    parts = [part.name for part in dataclass_fields(cls)]
    if fields.keys() != set(parts):
        raise ValueError(f"column {name!r} must have {', '.join(parts)}; got {', '.join(fields)}.")
    column: Column = cls(**fields)
    return column
