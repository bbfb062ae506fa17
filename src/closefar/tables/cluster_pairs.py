"""Pairs in Parquet files that a cluster reads: a partition per file, or per some row groups of a large one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from closefar.engines import TaskResult, engine_for
from closefar.judgements import CodedLabels, Partition, Partitions
from closefar.judgements.tuples import unchecked_tuples
from closefar.tables.chunks import TableChunks
from closefar.tables.encoding import Encoding, Features
from closefar.tables.errors import EmptyTableError, TableError, in_words_of_python
from closefar.tables.files import ParquetFile, TableFile, open_table
from closefar.tables.indexed_pairs import check_row_numbers, chosen_columns, row_numbers_in
from closefar.tables.opening import find_roles, rows_of_file
from closefar.tables.pair_file import coded, natural
from closefar.tables.pair_table import TableRows
from closefar.tables.source import Roles, Source, find_id_roles

_PARTITION_BYTES = 1 << 27  # of numbers in double precision; a larger file is several partitions


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ClusterPairs(Partitions):
    """Pairs in Parquet files that workers of a cluster read; ``closefar.open_pairs(..., client=client)`` opens them.

    Learners fit to them, and their predictions for them are dask arrays.

    Attributes
    ----------
    encoding : Encoding
        How the columns became numbers; pass it to `open_pairs` with new data.
    notes : tuple of str
        Sentences about what was left out or ignored.
    """

    encoding: Encoding
    notes: tuple[str, ...] = ()

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_on_cluster(
    source: Source, points: Any, features: Features, beside: tuple[Any, Any], client: Any, *, labelled: bool
) -> ClusterPairs:
    """Open pairs with the columns of both sides, differences, or pairs of row numbers of points in memory.

    `beside` are labels and weights that are in no file.  Workers read the column of labels, to find which ones
    there are, and if columns are encoded or filled in, one of them learns how.
    """
    if source.group is not None:
        raise ValueError(f"a fit on a cluster uses no groups; got group={source.group!r}. Leave it out.")
    if source.annotator:
        raise ValueError(f"a fit on a cluster uses no annotators; got annotator={source.annotator!r}. Leave it out.")
    source = replace(source, annotator=False)
    if points is not None:
        return _open_index(source, points, features, beside, client, labelled=labelled)
    found, roles = find_roles(source, features, labelled=labelled)
    file = _parquet(found)
    encoding = _encoding(file, roles, client)
    roles = replace(roles, features=Features(encoding), notes=())
    n_features = len(encoding.feature_names)
    pieces = file.pieces(max(1, _PARTITION_BYTES // (8 * n_features)))
    values = None if roles.label is None else _values_of_labels(pieces, roles.label, client)
    return ClusterPairs(
        tasks=_tasks(pieces, beside, drops=encoding.missing == "drop"),
        load=_Sides(roles, encoding, values),
        n_columns=n_features,
        are_pairs=False,
        n_rows=None if encoding.missing == "drop" else tuple(piece.n_rows for piece in pieces),
        feature_names=encoding.feature_names,
        has_labels=roles.label is not None or beside[0] is not None,
        has_weights=roles.weight is not None or beside[1] is not None,
        is_single=roles.sides is None,
        client=client,
        encoding=encoding,
    )


def _open_index(
    source: Source, points: Any, features: Features, beside: tuple[Any, Any], client: Any, *, labelled: bool
) -> ClusterPairs:
    points, encoding = chosen_columns(points, source, features)
    assert source.pairs is not None
    file = _parquet(open_table(source.pairs, source.na_values))
    roles = find_id_roles(file, source, labelled=labelled)
    label, weight = roles.label, roles.weight
    pieces = file.pieces(max(1, _PARTITION_BYTES // 16))
    values = None if label is None else _values_of_labels(pieces, label, client)
    return ClusterPairs(
        tasks=_tasks(pieces, beside, drops=features.drops_missing),
        load=_Index(roles.left, roles.right, label, weight, values, features.drops_missing),
        n_columns=int(points.shape[1]),
        are_pairs=True,
        shared=np.asarray(points),
        n_rows=None if features.drops_missing else tuple(piece.n_rows for piece in pieces),
        feature_names=encoding.feature_names,
        has_labels=label is not None or beside[0] is not None,
        has_weights=weight is not None or beside[1] is not None,
        client=client,
        encoding=encoding,
    )


@dataclass(frozen=True)
class _Sides:
    """How a partition of differences, or of the columns of both sides, is loaded."""

    roles: Roles
    encoding: Encoding
    values: Mapping[str, Any] | None

    def __call__(self, task: Any, shared: None) -> Partition:
        piece, labels, weights = task
        with in_words_of_python():
            try:
                rows, _ = rows_of_file(piece, self.roles)
            except EmptyTableError:
                return _nothing(np.empty((0, len(self.encoding.feature_names))), self.roles.weight or weights)
            chunks = TableChunks(piece, self.roles, self.encoding, rows.kept)
            data: NDArray[Any] = np.empty(chunks.shape, dtype=chunks.dtype)
            start = 0
            for columns in chunks.read_from(0):
                data[start : start + columns.shape[1]] = columns.T
                start += columns.shape[1]
        own = rows.labels if labels is None else labels
        return Partition(data, _natural(own, self.values), rows.weights if weights is None else weights)


@dataclass(frozen=True)
class _Index:
    """How a partition of pairs of row numbers is loaded; the points are those that the workers share."""

    left: str
    right: str
    label: str | None
    weight: str | None
    values: Mapping[str, Any] | None
    drops_missing: bool

    def __call__(self, task: Any, points: NDArray[Any]) -> Partition:
        piece, labels, weights = task
        with in_words_of_python():
            columns: dict[str, Any] = {}
            if self.label is not None:
                columns[self.label] = coded(piece.read([self.label], (), [self.label])[self.label])
            if self.weight is not None:
                columns |= piece.read([self.weight], ())
            rows = TableRows(piece, columns, self.label, self.weight, None, "pairs", piece.n_rows)
            index = np.stack([row_numbers_in(piece, name) for name in (self.left, self.right)], axis=1)
            check_row_numbers(index, piece.path, len(points))
            try:
                rows.leave_out_unlabelled(drops_missing=self.drops_missing)
            except EmptyTableError:
                return _nothing(unchecked_tuples(points, index[:0], None), self.weight or weights)
        tuples = unchecked_tuples(points, index[rows.kept], None)
        own = rows.labels if labels is None else labels
        return Partition(tuples, _natural(own, self.values), rows.weights if weights is None else weights)


def _nothing(data: Any, weights: Any) -> Partition:
    """A partition of which no row is used, with weights if the others have some."""
    return Partition(data, np.empty(0), None if weights is None else np.empty(0))


def _parquet(file: TableFile) -> ParquetFile:
    if isinstance(file, ParquetFile):
        return file
    raise TableError(
        f"a cluster reads Parquet; got {file.path}. Convert it, or read it with dask.dataframe.read_csv or dask.array "
        "and pass that to fit."
    )


def _encoding(file: ParquetFile, roles: Roles, client: Any) -> Encoding:
    """The encoding: known, of plain numbers, or learned by a worker, which reads a column at a time."""
    features = roles.features
    if features.encoding is not None:
        return features.encoding
    are_plain = not features.text_names and all(file.number_type(name) is not None for name in roles.own)
    if are_plain and features.missing != "median":
        encoding = Encoding.of_numbers(roles.names)
        return replace(encoding, missing=features.missing or "refuse", unseen=features.unseen or "refuse")
    found: Encoding = engine_for(client).run(partial(_learned, roles), [file], combine=list)[0]
    return found


def _learned(roles: Roles, file: ParquetFile) -> TaskResult:
    with in_words_of_python():
        return TaskResult(rows_of_file(file, roles)[1])


def _values_of_labels(pieces: list[ParquetFile], name: str, client: Any) -> dict[str, Any] | None:
    """What each word in the column of labels stands for: numbers, or true and false; None if they stay words."""
    found, _ = engine_for(client).run(partial(_words, name), pieces, combine=_united)
    words = sorted(found)
    values = natural(CodedLabels(words, np.arange(len(words))))
    return None if isinstance(values, CodedLabels) else dict(zip(words, values, strict=True))


def _words(name: str, piece: ParquetFile) -> TaskResult:
    with in_words_of_python():
        return TaskResult(set(coded(piece.read([name], (), [name])[name]).counts()))


def _united(words: Sequence[set[str]]) -> set[str]:
    return set().union(*words)


def _natural(labels: Any, values: Mapping[str, Any] | None) -> Any:
    if values is None or not isinstance(labels, CodedLabels):
        return labels
    return np.array([values[word] for word in labels.words])[labels.codes]


def _tasks(pieces: list[ParquetFile], beside: tuple[Any, Any], *, drops: bool) -> tuple[Any, ...]:
    """A piece of the files for each partition, with its part of the labels and weights that are in no file."""
    counts = [piece.n_rows for piece in pieces]
    for values, name in zip(beside, ("labels", "weights"), strict=True):
        if values is not None and (drops or values.shape != (sum(counts),)):
            why = "with missing='drop' they must be a column" if drops else f"got shape {values.shape}"
            raise ValueError(f"{name} must hold one value per row of the files, {sum(counts):,}; {why}.")
    ends = list(accumulate(counts))
    parts = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    return tuple(
        (piece, *(None if values is None else values[part] for values in beside))
        for piece, part in zip(pieces, parts, strict=True)
    )
