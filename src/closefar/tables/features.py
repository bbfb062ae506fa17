"""Which columns are features, and their numbers: by a known encoding, or by one that is learned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.encoding import Encoding, chosen_names
from closefar.tables.errors import Place, TableError, quoted, refuse_unknown


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
        policies = {"missing": self.missing, "unseen": self.unseen}
        given: dict[str, Any] = {name: value for name, value in policies.items() if value is not None}
        object.__setattr__(self, "encoding", replace(self.encoding, **given))

    def renamed(self, rename: Callable[[str], str]) -> Features:
        """The same with other names for the columns."""
        return replace(
            self,
            columns=None if self.columns is None else [rename(name) for name in self.columns],
            drop=[rename(name) for name in self.drop],
            categorical=[rename(name) for name in self.categorical],
            ordinal={rename(name): order for name, order in (self.ordinal or {}).items()},
        )

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

    def names_among(self, found: Sequence[str], roles: Mapping[str, str | None], place: Place) -> list[str]:
        """The names of the columns to read as features; `roles` says which other use a column has."""
        taken = {name: role for role, name in roles.items() if name is not None}
        for name in (*(self.columns or ()), *(self.needed or ())):
            if name in taken:
                raise TableError(
                    f"{place.path}: column {quoted(name)} holds the {taken[name]}s, so it can't be a feature as well. "
                    f"Choose another column with --{taken[name]}."
                )
        free = [name for name in found if name not in taken]
        if self.needed is not None:
            refuse_unknown(place.path, self.needed, free, "which the model was trained on")
            return list(self.needed)
        drop = [name for name in self.drop if name not in taken]
        return chosen_names(free, place, self.columns, drop, self.text_names)

    def encode(
        self, columns: Mapping[str, NDArray[Any]], place: Place
    ) -> tuple[FloatArray, NDArray[np.bool_], Encoding]:
        """The numbers, the rows that were left out, and the encoding."""
        encoding = self.learned(columns, place)
        return *encoding.apply(columns, name=place), encoding

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


@dataclass(frozen=True)
class Roles:
    """Which use the columns of a file of single points, or of pairs side by side, have.

    Parameters
    ----------
    features : Features
        What the features are called is what the two sides have in common.
    names : list of str
        The features, as they are called.
    sides : tuple of two dicts, or None
        For pairs, the name in the file of each feature of the left and of the right side.
    label, weight, group, annotator : str or None
        None where there is no such column, or none is wanted.
    id_names : tuple of str
        The columns of ids: none, one, or those of both sides.
    notes : tuple of str
        Sentences about what is ignored.
    """

    features: Features
    names: list[str]
    sides: tuple[dict[str, str], dict[str, str]] | None
    label: str | None
    weight: str | None
    group: str | None
    id_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    annotator: str | None = None

    @property
    def texts(self) -> list[str]:
        """The columns of labels, groups and annotators, which are read as they are written."""
        return [name for name in (self.label, self.group, self.annotator) if name is not None]

    @property
    def own(self) -> list[str]:
        """The columns of features, by their names in the file."""
        return self.names if self.sides is None else [side[name] for side in self.sides for name in self.names]

    @property
    def own_texts(self) -> list[str]:
        """Those of them that are read as they are written."""
        names = self.features.text_names
        return list(names) if self.sides is None else [side[name] for side in self.sides for name in names]

    @property
    def used(self) -> list[str]:
        """All columns that are read."""
        return [*self.own, *self.texts, *self.id_names, *([] if self.weight is None else [self.weight])]
