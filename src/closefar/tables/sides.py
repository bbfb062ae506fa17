"""Finding the two sides of pairs whose columns stand side by side in one table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.tables.errors import TableError, listed
from closefar.tables.values import to_text

_PREFIXES = (("left_", "right_"), ("a_", "b_"), ("x_", "y_"), ("1_", "2_"))
_SUFFIXES = (("_left", "_right"), ("_a", "_b"), ("_x", "_y"), ("_1", "_2"), (".x", ".y"), ("1", "2"))
_SEPARATORS = "_.- "


@dataclass(frozen=True)
class Sides:
    """The columns of each side: their names in the file by what the two have in common."""

    left: dict[str, str]
    right: dict[str, str]
    marks: tuple[str, str]

    @property
    def shared(self) -> list[str]:
        return [stem for stem in self.left if stem in self.right]

    @property
    def unmatched(self) -> list[str]:
        """Names in the file of columns that only one side has."""
        lone = [name for stem, name in self.left.items() if stem not in self.right]
        return lone + [name for stem, name in self.right.items() if stem not in self.left]

    @property
    def stems(self) -> dict[str, str]:
        """What each column of a side is called on both, by its name in the file."""
        return {name: stem for side in (self.left, self.right) for stem, name in side.items()}


def find_sides(names: Sequence[str], given: tuple[str, str] | None, needed: Collection[str] | None, path: str) -> Sides:
    """The two sides: as given, or of the usual prefixes and suffixes the one that fits the most columns."""
    if given is not None and (given[0] == given[1] or not all(given)):
        raise TableError(f"--sides must be two different prefixes or suffixes of column names; got {listed(given)}.")
    candidates = list(_candidates(names, given))
    wanted = set(needed) if needed is not None else None
    best = max(candidates, key=lambda sides: sum(wanted is None or stem in wanted for stem in sides.shared))
    if not best.shared:
        sought = f"with the prefixes or suffixes {listed(given)}" if given else "such as left_age and right_age"
        raise TableError(
            f"{path} has no columns of two sides, {sought}. Its columns are {listed(names)}. "
            "Give the prefixes or suffixes with --sides, or the table of the points with --points."
        )
    return best


def _candidates(names: Sequence[str], given: tuple[str, str] | None) -> Iterator[Sides]:
    ways = [(marks, True) for marks in ((given,) if given else _PREFIXES)]
    ways += [(marks, False) for marks in ((given,) if given else _SUFFIXES)]
    for marks, is_prefix in ways:
        left, right = (_stems(names, mark, is_prefix, exact=given is not None) for mark in marks)
        # a_1, a_2 and a_3 are three features, not two sides.
        counted = "1" in marks[0] and not given and _stems(names, marks[0].replace("1", "3"), is_prefix, exact=False)
        if not counted:
            yield Sides(*_without_separator(left, right, is_prefix), marks)
        else:
            yield Sides({}, {}, marks)


def _stems(names: Sequence[str], mark: str, is_prefix: bool, *, exact: bool) -> dict[str, str]:
    stems = {}
    for name in names:
        compared = name if exact else name.lower()
        if len(name) > len(mark) and (compared.startswith(mark) if is_prefix else compared.endswith(mark)):
            stems[name[len(mark) :] if is_prefix else name[: -len(mark)]] = name
    return stems


def _without_separator(
    left: dict[str, str], right: dict[str, str], is_prefix: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Take the separator from "left" + "_age", where all stems have the same."""
    joints = {stem[0] if is_prefix else stem[-1] for stem in (*left, *right)}
    if len(joints) != 1 or not joints <= set(_SEPARATORS) or min(map(len, (*left, *right))) == 1:
        return left, right
    part = slice(1, None) if is_prefix else slice(None, -1)
    return {stem[part]: name for stem, name in left.items()}, {stem[part]: name for stem, name in right.items()}


class Stacked(Mapping[str, NDArray[Any]]):
    """The columns of both sides in one, a left value and its right one in turn; made when asked for."""

    def __init__(self, columns: Mapping[str, NDArray[Any]], sides: tuple[Mapping[str, str], Mapping[str, str]]) -> None:
        self._columns, self._sides = columns, sides

    def __getitem__(self, stem: str) -> NDArray[Any]:
        left, right = (self._columns[side[stem]] for side in self._sides)
        if left.dtype != right.dtype:
            left, right = to_text(left), to_text(right)
        return np.stack([left, right], axis=1).reshape(-1)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sides[0])

    def __len__(self) -> int:
        return len(self._sides[0])
