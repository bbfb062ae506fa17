"""Annotators: who made each judgement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import IndexArray, is_foreign, to_numpy
from closefar.judgements.missing import is_missing

__all__ = ["Annotators", "read_annotators"]

_MOST_NAMED = 5


@dataclass(frozen=True, eq=False)
class Annotators:
    """The annotator of each judgement.

    Attributes
    ----------
    names : tuple
        The different ids, as they were given, in their order.
    codes : array of n integers
        Which of them made each judgement.
    """

    names: tuple[Any, ...]
    codes: IndexArray

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def counts(self) -> IndexArray:
        """How many judgements each of them made."""
        return np.bincount(self.codes, minlength=len(self.names))

    def take(self, where: IndexArray) -> Annotators:
        """The annotators of some judgements, with the names of all."""
        return replace(self, codes=self.codes[where])

    @property
    def ids(self) -> NDArray[np.object_]:
        """The id of the annotator of each judgement, as it was given."""
        names = np.empty(len(self.names), dtype=object)
        names[:] = self.names
        return names[self.codes]


def read_annotators(ids: Any, n: int, known: tuple[Any, ...] | None = None) -> Annotators:
    """Validate one id per pair, of any hashable kind; each must be one of the `known` ones, if those are given."""
    values = _as_list(ids)
    if len(values) != n:
        raise ValueError(f"there must be one annotator id per pair; got {len(values)} ids for {n} pairs.")
    try:
        different = set(values)
    except TypeError as error:
        raise ValueError(
            f"annotator ids must be hashable, such as strings or whole numbers; got {error}. Convert them to strings."
        ) from error
    for value in different:
        if is_missing(value):
            row = next(row for row, each in enumerate(values) if each is value)
            raise ValueError(
                f"each pair must have the id of its annotator; got {value!r} in row {row}. Fill it in, or leave that "
                "row out."
            )
    if known is not None and (strange := different.difference(known)):
        row = next(row for row, value in enumerate(values) if value in strange)
        raise ValueError(
            f"annotators must be those of the fit, {_listed(known)}; got {values[row]!r} in row {row}. Leave those "
            "rows out, or predict without naming an annotator."
        )
    names = _in_order(different) if known is None else known
    places = {name: place for place, name in enumerate(names)}
    return Annotators(names, np.fromiter(map(places.__getitem__, values), dtype=np.intp, count=n))


def _as_list(ids: Any) -> list[Any]:
    if isinstance(ids, str | bytes | dict | set | frozenset) or not hasattr(ids, "__iter__"):
        got = repr(ids) if isinstance(ids, str | int | float | None) else f"a {type(ids).__name__}"
        raise ValueError(f"annotators must be one id per pair, in an array or a list; got {got}.")
    if not hasattr(ids, "shape"):
        return [value.item() if isinstance(value, np.generic) else value for value in ids]
    array = to_numpy(ids) if is_foreign(ids) else np.asarray(ids)
    if array.ndim != 1:
        raise ValueError(f"annotators must be one id per pair, an array of one axis; got shape {array.shape}.")
    found: list[Any] = array.tolist()
    return found


def _in_order(different: set[Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(different))
    except TypeError:  # ids of several kinds
        return tuple(sorted(different, key=lambda value: (type(value).__name__, str(value))))


def _listed(names: tuple[Any, ...]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(map(repr, names[:_MOST_NAMED])) + more
