"""The result of reading pairs, and the rows of the file that they are read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.columns import Category
from closefar.tables.encoding import Encoding
from closefar.tables.errors import Place, TableError, counted, listed, quoted
from closefar.tables.sources import check_ids, check_weights
from closefar.tables.table import TableFile
from closefar.tables.values import is_missing

__all__ = ["PairTable", "TableRows", "note_ignored", "note_left_out"]


@dataclass(frozen=True, eq=False)
class PairTable:
    """Pairs, or single points, as the learner takes them.

    Parameters
    ----------
    data : array of shape (n, 2, d), or (n, d) for single points
    labels : array of n texts, or None
        As in the file, without space around them; 1 is "1" also where a file of numbers has 1.0.
    ids : array of texts
        Of shape (n, 2) where both sides have an id, else (n,): ids, or row numbers as in the file.
    weights : array of n numbers, or None
    encoding : Encoding
        How the columns became numbers.
    is_single : bool
        Whether these are single points.
    notes : tuple of str
        Sentences about what was left out or ignored.
    id_names : tuple of str
        What the columns of `ids` are called.
    groups : array of n texts, or None
        Which pairs belong together.
    """

    data: FloatArray
    labels: NDArray[np.object_] | None
    ids: NDArray[np.object_]
    weights: FloatArray | None
    encoding: Encoding
    is_single: bool
    notes: tuple[str, ...]
    id_names: tuple[str, ...]
    groups: NDArray[np.object_] | None = None


class TableRows:
    """The rows of the file with the labels: which of them are kept, with their labels and weights.

    Parameters
    ----------
    file : TableFile
    columns : mapping of names to arrays
        What was read of it.
    label, weight, group : str or None
        Names of columns; None where there is none, or none is wanted.
    noun : str
        What a row is, in the plural.
    """

    def __init__(
        self,
        file: TableFile,
        columns: Mapping[str, NDArray[Any]],
        label: str | None,
        weight: str | None,
        group: str | None,
        noun: str,
    ) -> None:
        self.path, self._noun, self._label = file.path, noun, label
        self._labels = None if label is None else columns[label]
        self._weights = None if weight is None else check_weights(columns[weight], weight, file.path)
        self._groups = None if group is None else columns[group]
        if group is not None:
            check_ids(columns[group], group, file.path, "group", role="group")
        self._notes: list[str] = []
        self.n_read = len(next(iter(columns.values())))
        self.kept: NDArray[np.int64] = np.arange(self.n_read)

    def leave_out_unlabelled(self, *, drops_missing: bool) -> None:
        """Leave out rows without a label, or refuse them."""
        lacking = np.zeros(self.n_read, dtype=bool) if self._labels is None else is_missing(self._labels)
        if lacking.any() and not drops_missing:
            raise TableError(
                f"{self.path}: label column {quoted(self._label)} has {counted(int(lacking.sum()), 'missing value')}, "
                f"the first in {Place(self.path).row(int(np.argmax(lacking)))}. Fill them in, or leave those "
                f"{self._noun} out with --missing drop."
            )
        self.leave_out(lacking, "a label")

    def leave_out(self, lacking: NDArray[np.bool_], what: str) -> None:
        """Leave out those of the kept rows that lack something."""
        count, total = int(lacking.sum()), len(lacking)
        if count == total:
            raise TableError(f"{self.path} has no {self._noun} left: each lacks {what}. Fill some in.")
        if count:
            self._notes.append(note_left_out(lacking, self._noun, what))
            self.kept = self.kept[~lacking]

    def kept_of(self, columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The kept rows of these columns."""
        if len(self.kept) == self.n_read:
            return dict(columns)
        return {name: column[self.kept] for name, column in columns.items()}

    def table(
        self,
        data: FloatArray,
        ids: NDArray[np.object_],
        id_names: tuple[str, ...],
        encoding: Encoding,
        notes: Sequence[str],
    ) -> PairTable:
        """The pairs: `data` of the kept rows, `ids` of all."""
        constant = [column.name for column in encoding.columns if isinstance(column, Category) and not column.shares]
        if constant:
            notes = [*notes, f"These columns have one category only, so they give no feature: {listed(constant)}."]
        return PairTable(
            data=data,
            labels=None if self._labels is None else self._labels[self.kept],
            ids=ids[self.kept],
            weights=None if self._weights is None else self._weights[self.kept],
            encoding=encoding,
            is_single=data.ndim == 2,
            notes=(*self._notes, *notes),
            id_names=id_names,
            groups=None if self._groups is None else self._groups[self.kept],
        )


def note_left_out(lacking: NDArray[np.bool_], noun: str, what: str) -> str:
    """A sentence that says how many of the rows were left out."""
    count = int(lacking.sum())
    verb, subject = ("was", "it lacks") if count == 1 else ("were", "they lack")
    return f"{count:,} of {len(lacking):,} {noun} {verb} left out: {subject} {what}."


def note_ignored(file: TableFile, used: Sequence[str | None]) -> list[str]:
    """A sentence that names the columns that have no use, if there are any."""
    known = set(used)
    ignored = [name for name in file.names if name not in known]
    return [f"These columns of {file.path} are not used: {listed(ignored)}."] if ignored else []
