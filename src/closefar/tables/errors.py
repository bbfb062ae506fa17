"""Mistakes in a user's files, and the words that say where they are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

TEXT_SUFFIXES = (".csv", ".tsv", ".txt")

_MOST_LISTED = 10  # names in a message, which is one line or a few in a terminal
_MOST_CHARACTERS = 60  # of a value in a message: a cell may hold a whole text


class TableError(ValueError):
    """A mistake in a user's file: the message names the file and what to do."""


class UnreadableError(TableError, OSError):
    """The file itself can't be read, whatever it holds."""

    def __new__(cls, *args: Any) -> UnreadableError:
        """Make one as OSError does, which ValueError refuses, and other processes of a cluster do as well."""
        return OSError.__new__(cls, *args)


class EmptyTableError(TableError):
    """No row is left: each one lacks a label or a value."""


def too_large(path: str) -> UnreadableError:
    """The error of a file that memory has no room for."""
    return UnreadableError(f"not enough memory to read {path}. Use a file with fewer rows or columns, or more memory.")


def without_values(path: str, n_columns: int) -> TableError:
    """The error of a table without columns or without rows."""
    what = f"{counted(n_columns, 'column')} and no rows" if n_columns else "no columns"
    return TableError(f"{path} has {what}. Add at least one row of values.")


def quote(value: Any) -> str:
    """The value in quotes with control characters escaped, cut where it is long."""
    text = repr(str(value))
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}...'"


def listed(values: Iterable[Any], most: int = _MOST_LISTED) -> str:
    """The values in quotes with commas, and how many more there are."""
    texts = [quote(value) for value in values]
    shown = ", ".join(texts[:most])
    return shown if len(texts) <= most else f"{shown} and {len(texts) - most:,} more"


def counted(count: int, noun: str) -> str:
    """The count and the noun, with an s for more than one."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def note_left_out(count: int, total: int, noun: str, why: str) -> str:
    """A sentence that says how many of some rows, which the noun names in the plural, were left out, and why."""
    return f"{count:,} of {total:,} {noun} {'was' if count == 1 else 'were'} left out: {why}."


def refuse_unknown(path: str, wanted: Iterable[str], found: Sequence[str], why: str) -> None:
    """Raise unless every wanted column is there; the message names near misses.

    `why` completes the sentence "FILE has no column 'x', ...".
    """
    known = set(found)
    lacking = [name for name in wanted if name not in known]
    if not lacking:
        return
    hints = [hint for name in lacking[:_MOST_LISTED] for hint in _near(name, found)]
    meant = f" Did you mean {listed(dict.fromkeys(hints))}?" if hints else ""
    noun = "column" if len(lacking) == 1 else "columns"
    raise TableError(f"{path} has no {noun} {listed(lacking)}, {why}. Its columns are {listed(found)}.{meant}")


def _near(name: str, found: Sequence[str]) -> list[str]:
    """The found name nearest to this one, if any is near; the case of letters counts for nothing."""
    by_lower_case = {other.strip().lower(): other for other in found}
    return [by_lower_case[near] for near in difflib.get_close_matches(name.strip().lower(), by_lower_case, n=1)]


@dataclass(frozen=True)
class Place:
    """Where the values of some columns came from, so that a message can name the row and the column in the file.

    Parameters
    ----------
    path : str
    first_row : int, default=0
        The number of the first row of values; 2 in a text file whose row 1 is the header.
    rows : array of int, optional
        Which of the file's rows of values each value is from, counted from 0; None means all, in order.
    sides : tuple of two mappings, optional
        For the two sides of pairs, one below the other in turn: the name in the file of each
        column of the left and of the right side.
    """

    path: str
    first_row: int = 0
    rows: NDArray[np.int64] | None = None
    sides: tuple[Mapping[str, str], Mapping[str, str]] | None = None

    @classmethod
    def of(cls, name: str | Place) -> Place:
        """The place itself, or the file of this name, whose row 1 is the header in a text file."""
        if isinstance(name, Place):
            return name
        return cls(name, 2 if name.lower().removesuffix(".gz").endswith(TEXT_SUFFIXES) else 0)

    @property
    def missing_words(self) -> str:
        """What a missing value of a text file looks like, for a column in which 'NA' may have been meant."""
        return " (an empty field, NA, None or the like)" if self.first_row else ""

    def at(self, kept: NDArray[Any]) -> Place:
        """The place of these of the values, given by index or by mask."""
        if self.rows is not None:
            return replace(self, rows=self.rows[kept])
        return replace(self, rows=np.flatnonzero(kept) if kept.dtype == np.bool_ else kept)

    def row(self, index: int) -> str:
        """The words for the row of the value at this index."""
        position = index if self.rows is None else int(self.rows[index])
        number = self.first_row + (position if self.sides is None else position // 2)
        return f"row {number}" if self.first_row else f"row {number} (counted from 0)"

    def refuse_missing(self, role: str, name: str, lacking: NDArray[np.bool_], remedy: str) -> None:
        """Raise if a column lacks values; `remedy` is what to do other than to fill them in."""
        if lacking.any():
            raise TableError(
                f"{self.path}: {role} column {quote(name)} has {counted(int(lacking.sum()), 'missing value')}"
                f"{self.missing_words}, the first in {self.row(int(np.argmax(lacking)))}. Fill them in" + remedy
            )

    def column(self, name: str, index: int | None = None) -> str:
        """The words for the column, where the value at `index` stands if one is given."""
        if self.sides is None:
            return f"column {quote(name)}"
        left, right = (side[name] for side in self.sides)
        if index is None:
            return f"columns {quote(left)} and {quote(right)}"
        position = index if self.rows is None else int(self.rows[index])
        return f"column {quote((left, right)[position % 2])}"
