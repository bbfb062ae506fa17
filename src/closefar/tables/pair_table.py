"""The result of reading pairs, and the rows of the file that they are read from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import LEGS, FloatArray
from closefar.errors import either, setting
from closefar.tables.encoding import Category, Encoding
from closefar.tables.errors import EmptyTableError, Place, TableError, counted, listed, quoted
from closefar.tables.files import TableFile
from closefar.tables.ids import Ids
from closefar.tables.recorded_file import RecordedFile
from closefar.tables.values import is_missing, is_number, to_text

if TYPE_CHECKING:
    from closefar.judgements import Tuples

_ROWS_AT_ONCE = 1 << 16  # of predictions: with 100 columns, both points take 100 MB
_EXACT, _LARGEST = 2.0**53, 2.0**64  # between these, integers of 64 bits are rounded
_NO_ANNOTATORS = either("annotator=False", "--no-annotators")


@dataclass(frozen=True, eq=False)
class PairTable:
    """Pairs, comparisons or single points, as the learner takes them.

    Parameters
    ----------
    points : array of shape (n_points, d)
        Each point once, where pairs refer to points by id.
    index : array of int, of shape (n, 2), (n, 3) or (n, 4) for comparisons, or (n,) for single points
        Which points each pair is of.
    labels : array of n texts, or None
        As in the file, without space around them; 1 is "1" also where a file of numbers has 1.0.  Those of
        comparisons are "1", as given, and "-1", reversed; None where the file has no answers.
    identity : Ids
        As for `ids`; its index numbers them.
    weights : array of n numbers, or None
    encoding : Encoding
        How the columns became numbers.
    notes : tuple of str
        Sentences about what was left out or ignored.
    id_names : tuple of str
        What the columns of `ids` are called.
    groups : array of n texts, or None
        Which pairs belong together.
    annotators : array of n texts, or None
        Who judged each pair.
    comparisons : PairTable, or None
        Comparisons of the same points, beside pairs.
    """

    points: FloatArray
    index: NDArray[np.int64]
    labels: NDArray[np.object_] | None
    identity: Ids
    weights: FloatArray | None
    encoding: Encoding
    notes: tuple[str, ...]
    id_names: tuple[str, ...]
    groups: NDArray[np.object_] | None = None
    annotators: NDArray[np.object_] | None = None
    comparisons: PairTable | None = None

    def __len__(self) -> int:
        return len(self.index)

    @property
    def is_single(self) -> bool:
        """Whether these are single points."""
        return self.index.ndim == 1

    @property
    def are_comparisons(self) -> bool:
        """Whether these are comparisons of three or four points each."""
        return self.index.ndim == 2 and self.index.shape[1] > 2

    @property
    def data(self) -> FloatArray | Tuples:
        """The single points, shape (n, d), the pairs, (n, 2, d), or the comparisons, (n, 3, d) or (n, 4, d).

        Pairs and comparisons are by index unless each point is in one of them.
        """
        if self._is_in_order:
            return self.points.reshape(*self.index.shape, -1)
        if self.is_single:
            return self.points.take(self.index, axis=0)
        from closefar.judgements import Tuples  # imports scikit-learn, which predictions do not need

        return Tuples(self.points, self.index)

    @property
    def ids(self) -> NDArray[np.object_]:
        """The ids as text: shape (n, 2) where both sides have an id, else (n,): ids, or row numbers as in the file."""
        return self.identity.texts

    @property
    def legs(self) -> tuple[PairTable, PairTable]:
        """The two pairs of each comparison."""
        near, far = (replace(self, index=self.index[:, leg]) for leg in LEGS[self.index.shape[1]])
        return near, far

    def with_labels(self, labels: NDArray[np.object_]) -> PairTable:
        """The same rows with other labels."""
        return replace(self, labels=labels)

    def point_blocks(self) -> Iterator[FloatArray]:
        """Give the single points, (m, d), or both points of each pair, (m, 2, d), some rows at a time."""
        for start in range(0, len(self), _ROWS_AT_ONCE):
            yield self.points[self.index[start : start + _ROWS_AT_ONCE]]

    @property
    def _is_in_order(self) -> bool:
        return len(self.points) == self.index.size and np.array_equal(self.index.ravel(), np.arange(self.index.size))


class TableRows:
    """The rows of the file with the labels: which of them are kept, with what is known of these.

    Parameters
    ----------
    file : TableFile
    columns : mapping of names to arrays
        What was read of it.
    label, weight, group, annotator : str or None
        Names of columns; None where there is none, or none is wanted.
    noun : str
        What a row is, in the plural.
    n_rows : int, optional
        How many rows there are, where no column may have been read.
    role : str
        What its label is called.
    """

    def __init__(
        self,
        file: TableFile,
        columns: Mapping[str, NDArray[Any]],
        label: str | None,
        weight: str | None,
        group: str | None,
        noun: str,
        n_rows: int | None = None,
        *,
        annotator: str | None = None,
        role: str = "label",
    ) -> None:
        self.path, self.place, self._noun, self._label, self._role = file.path, file.place, noun, label, role
        self.labels: Any = None if label is None else columns[label]  # as text or coded
        self.weights = None if weight is None else _checked_weights(columns[weight], weight, file.place)
        self.groups = None if group is None else _without_gaps(columns[group], group, "group", file.place)
        self.annotators: NDArray[np.object_] | None = None
        self.notes: tuple[str, ...] = ()  # sentences about what was left out
        if annotator is not None:
            names = _without_gaps(columns[annotator], annotator, "annotator", file.place)
            n_annotators = len(set(names.tolist()))
            if n_annotators > 1:  # one is compared with nobody
                found = f"{counted(n_annotators, 'annotator')} found in column {quoted(annotator)} of {file.path}; "
                self.annotators, self.notes = names, (found + _NO_ANNOTATORS + " pools them.",)
        self.n_read = len(next(iter(columns.values()))) if n_rows is None else n_rows
        self.kept: NDArray[np.int64] = np.arange(self.n_read)
        self.known_ids: NDArray[np.object_] | None = file.ids if isinstance(file, RecordedFile) else None

    def leave_out_unlabelled(self, *, drops_missing: bool) -> None:
        """Leave out rows without a label, or refuse them."""
        lacking = np.zeros(self.n_read, dtype=bool)
        if self.labels is not None:
            lacking = self.labels.codes < 0 if hasattr(self.labels, "codes") else is_missing(self.labels)
        if lacking.any() and not drops_missing:
            raise TableError(
                f"{self.path}: {self._role} column {quoted(self._label)} has "
                f"{counted(int(lacking.sum()), 'missing value')}"
                f"{self.place.missing_words}, the first in {self.place.row(int(np.argmax(lacking)))}. Fill them in, "
                f"or leave those {self._noun} out with " + setting(missing="drop") + "."
            )
        self.leave_out(lacking, f"{'an' if self._role[0] in 'aeiou' else 'a'} {self._role}")

    def leave_out(self, lacking: NDArray[np.bool_], what: str) -> None:
        """Leave out those of the kept rows that lack something."""
        if lacking.all():
            raise EmptyTableError(f"{self.path} has no {self._noun} left: each one lacks {what}. Fill some in.")
        self._leave_out(lacking, note_left_out(lacking, self._noun, what))

    def leave_out_same(self, same: NDArray[np.bool_]) -> None:
        """Leave out those of the kept comparisons whose two sides are the same."""
        count = int(same.sum())
        self._leave_out(
            same,
            f"{count:,} of {counted(len(same), 'comparison')} {'was' if count == 1 else 'were'} left out: the two "
            "sides are the same in all columns, or differ by the same, so that no metric can tell which is nearer.",
        )

    def _leave_out(self, which: NDArray[np.bool_], note: str) -> None:
        if not which.any():
            return
        self.notes += (note,)
        self.kept = self.kept[~which]
        for name in ("labels", "weights", "groups", "annotators"):
            values = getattr(self, name)
            setattr(self, name, None if values is None else values[~which])

    def kept_of(self, columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The kept rows of these columns."""
        are_all = len(self.kept) == self.n_read
        return {name: column if are_all else column[self.kept] for name, column in columns.items()}

    def table(
        self,
        points: FloatArray,
        index: NDArray[np.int64],
        identity: Ids,
        id_names: tuple[str, ...],
        encoding: Encoding,
        notes: Sequence[str],
    ) -> PairTable:
        """The pairs: `index` and `identity` of the kept rows."""
        return PairTable(
            points=points,
            index=index,
            labels=self.labels,
            identity=identity,
            weights=self.weights,
            encoding=encoding,
            notes=(*self.notes, *notes, *note_constant(encoding), *_note_large_integers(points, encoding)),
            id_names=id_names,
            groups=self.groups,
            annotators=self.annotators,
        )


def _checked_weights(column: NDArray[Any], name: str, place: Place) -> FloatArray:
    """The weights, each a finite number >= 0."""
    weights = column
    if column.dtype.kind != "f":
        weights = np.array([float(text) if text and is_number(text) else np.nan for text in to_text(column)])
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        first = int(bad[0])
        raise TableError(
            f"{place.path}: weight column {quoted(name)} must hold finite numbers >= 0; got {quoted(column[first])} in "
            f"{place.row(first)}. Correct it, or set " + setting("weight") + " to another column."
        )
    return weights


def _without_gaps(values: NDArray[np.object_], name: str, role: str, place: Place) -> NDArray[np.object_]:
    lacking = np.flatnonzero(is_missing(values))
    if len(lacking):
        other = ", or leave annotators out with " + _NO_ANNOTATORS if role == "annotator" else ""
        raise TableError(
            f"{place.path}: {role} column {quoted(name)} has {counted(len(lacking), 'missing value')}, the first in "
            f"{place.row(int(lacking[0]))}. Fill them in, or set " + setting(role) + " to another column" + other + "."
        )
    return values


def note_constant(encoding: Encoding) -> list[str]:
    """A sentence that names the columns of one category, if there are any."""
    constant = [column.name for column in encoding.columns if isinstance(column, Category) and not column.shares]
    return [f"These columns have a single category, so they give no feature: {listed(constant)}."] if constant else []


def _note_large_integers(points: FloatArray, encoding: Encoding) -> list[str]:
    """A sentence that names the columns of integers that double precision may have rounded."""
    largest = np.maximum(points.max(axis=0), -points.min(axis=0))
    large = np.flatnonzero((largest > _EXACT) & (largest < _LARGEST))
    rounded = [encoding.feature_names[column] for column in large if np.all(points[:, column] % 1 == 0)]
    if not rounded:
        return []
    return [
        f"These columns have integers above 2**53, which are rounded to double precision: {listed(rounded)}. Subtract "
        "a common offset from them, or add them to " + setting("categorical") + " if they are codes."
    ]


def note_left_out(lacking: NDArray[np.bool_], noun: str, what: str) -> str:
    """A sentence that says how many of the rows were left out."""
    count = int(lacking.sum())
    verb, subject = ("was", "it lacks") if count == 1 else ("were", "they lack")
    return f"{count:,} of {len(lacking):,} {noun} {verb} left out: {subject} {what}."
