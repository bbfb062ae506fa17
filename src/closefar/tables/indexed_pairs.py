"""Pairs of points that are in memory, once each, with labels that a file has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.judgements import Tuples
from closefar.tables.encoding import Encoding, Features
from closefar.tables.errors import Place, TableError, quoted
from closefar.tables.files import TableFile, loading, open_table
from closefar.tables.ids import Ids
from closefar.tables.join import read_id_pairs
from closefar.tables.pair_file import coded
from closefar.tables.pair_table import TableRows
from closefar.tables.source import Source, find_id_roles

_MOST_INT32 = np.iinfo(np.int32).max


class IndexedPairs(Tuples):
    """Pairs by index, as `Tuples`, with the labels, weights and ids of their file; see `PairFile` for these."""

    def __init__(
        self,
        points: Any,
        index: NDArray[Any],
        *,
        encoding: Encoding,
        identity: Ids,
        id_names: Sequence[str],
        labels: Any = None,
        weights: FloatArray | None = None,
        groups: Any = None,
        annotators: Any = None,
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__(points, index.astype(np.int32) if len(points) <= _MOST_INT32 else index)
        self.labels, self.weights, self.groups, self.annotators = labels, weights, groups, annotators
        self.encoding, self._feature_names = encoding, encoding.feature_names
        self.identity, self.id_names, self.notes = identity, tuple(id_names), tuple(notes)
        self.is_single = False

    def __repr__(self) -> str:
        n, _, d = self.shape
        return f"IndexedPairs({n:,} pairs, {len(self.points):,} points, {d} columns)"

    def __reduce__(self) -> tuple[Any, ...]:
        named = ("encoding", "identity", "id_names", "labels", "weights", "groups", "annotators", "notes")
        return partial(IndexedPairs, **{name: getattr(self, name) for name in named}), (self.points, self.index)

    @property
    def data(self) -> Tuples:
        return self

    @property
    def ids(self) -> NDArray[np.object_]:
        """The ids of both points as text, shape (n, 2)."""
        return self.identity.texts

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> IndexedPairs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_id_pairs(source: Source, features: Features, *, labelled: bool) -> IndexedPairs:
    """Read a file of points and a file of pairs of their ids, which become row numbers."""
    table = read_id_pairs(source, features, labelled=labelled)
    return IndexedPairs(
        table.points,
        table.index,
        labels=None if table.labels is None else coded(table.labels),
        weights=table.weights,
        groups=table.groups,
        annotators=table.annotators,
        encoding=table.encoding,
        identity=table.identity,
        id_names=table.id_names,
        notes=table.notes,
    )


def open_index_pairs(points: Any, source: Source, features: Features, *, labelled: bool) -> IndexedPairs:
    """Read a file of pairs of row numbers of points that are in memory."""
    points, encoding = chosen_columns(points, source, features)
    n_points = points.shape[0]
    assert source.pairs is not None
    if str(source.pairs).lower().endswith(".npy"):
        with loading(str(source.pairs)):
            index = np.load(source.pairs, allow_pickle=False)
        check_row_numbers(index, str(source.pairs), n_points)
        identity = Ids(np.arange(n_points), index)
        return IndexedPairs(points, index, encoding=encoding, identity=identity, id_names=("left", "right"))
    file = open_table(source.pairs, source.na_values)
    roles = find_id_roles(file, source, labelled=labelled)
    left, right = roles.left, roles.right
    columns = file.read([*roles.texts, *filter(None, [roles.weight]), left], roles.texts, [left])
    rows = TableRows(file, columns, roles.label, roles.weight, roles.group, "pairs", annotator=roles.annotator)
    rows.leave_out_unlabelled(drops_missing=features.drops_missing)
    sides = [row_numbers_in(file, name) for name in (left, right)]
    check_row_numbers(np.stack(sides, axis=1), file.path, n_points)
    index = np.stack(sides, axis=1)[rows.kept]
    return IndexedPairs(
        points,
        index,
        labels=None if rows.labels is None else coded(rows.labels),
        weights=rows.weights,
        groups=rows.groups,
        annotators=rows.annotators,
        encoding=encoding,
        identity=Ids(np.arange(n_points), index),
        id_names=(left, right),
        notes=rows.notes,
    )


def chosen_columns(points: Any, source: Source, features: Features) -> tuple[Any, Encoding]:
    """Return the columns of points in memory that are used, all of which must be numbers."""
    if len(points.shape) != 2:
        raise ValueError(f"points must have shape (n_points, d); got {tuple(points.shape)}.")
    if source.id is not None:
        raise ValueError(
            f"the ids of points in memory are their row numbers; got id={source.id!r}. Save the points as Parquet and "
            "give the path, or leave id out."
        )
    encoding = features.encoding
    is_plain = encoding is None or encoding.feature_names == encoding.column_names
    if features.text_names or not is_plain or features.missing == "median":
        raise ValueError(
            "columns of points in memory must be numbers, which are used as they are; got an encoding of categories or "
            "of missing values. Save the points as Parquet and give the path, or encode them first."
        )
    names = [f"x{at}" for at in range(points.shape[1])]
    if hasattr(points, "columns"):
        names = [str(name) for name in points.columns]
    used = features.names_among(names, {}, Place("points", first_row=0))
    if used != names:
        at = [names.index(name) for name in used]
        points = points.iloc[:, at] if hasattr(points, "iloc") else points[:, at]
    return points, Encoding.of_numbers(used) if encoding is None else encoding


def row_numbers_in(file: TableFile, name: str) -> NDArray[np.int64]:
    """Read a column of row numbers, whose values are whole numbers."""
    numbers = file.read([name], ())[name]
    if numbers.dtype.kind != "f" or not np.all(np.floor(numbers) == numbers):
        raise TableError(
            f"{file.path}: column {quoted(name)} must hold row numbers of the points, whole numbers from 0; got values "
            "that are not. Give the points as a file with ids, or choose other columns with --left and --right."
        )
    rows: NDArray[np.int64] = numbers.astype(np.int64)
    return rows


def check_row_numbers(index: NDArray[Any], path: str, n_points: int) -> None:
    """Refuse what is not an index of that many points."""
    if index.ndim != 2 or index.shape[1] != 2 or index.dtype.kind not in "iu":
        raise TableError(f"{path} must hold whole numbers of shape (n, 2); got {index.dtype} of shape {index.shape}.")
    wrong = np.argwhere((index < 0) | (index >= n_points))
    if len(wrong):
        row, side = wrong[0]
        raise TableError(
            f"{path} must hold row numbers of the points, from 0 to {n_points - 1}; got {index[row, side]} in row "
            f"{row} (counted from 0). Count rows from 0, or add the points."
        )
