"""`closefar.open_pairs`: pairs in files, of any size, for the learner.

A file is read in each pass, points that pairs refer to are held in memory, and workers of a cluster read their parts.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.engines import TaskResult, engine_for
from closefar.errors import setting
from closefar.judgements import CodedLabels, Partition, Partitions, Tuples
from closefar.judgements.tuples import unchecked_tuples
from closefar.rows import StreamedRows
from closefar.tables import arrow
from closefar.tables.arrow import Ids
from closefar.tables.chunks import NumpyChunks, SpooledFile, TableChunks
from closefar.tables.delimited import DelimitedFile
from closefar.tables.encoding import Encoding, Features
from closefar.tables.errors import EmptyTableError, Place, TableError
from closefar.tables.files import ParquetFile, TableFile, loading
from closefar.tables.inputs import InputList
from closefar.tables.pairs import (
    MOST_INT32,
    PairTable,
    TableRows,
    find_positions,
    note_constant,
    numbered_points,
    read_id_pairs,
    read_ids,
)
from closefar.tables.source import LazyColumns, Roles, Source, find_id_roles, find_label, find_row_roles, has_two_sides
from closefar.tables.values import is_number

File = str | os.PathLike[str]

_BYTES = np.iinfo(np.int8).max  # labels that one byte can code
_PARTITION_BYTES = 1 << 27  # of numbers in double precision; docs/clusters.md: 50 to 200 MB are a good size

# ---------------------------------------------------------------------------------------------------------------------
# What is opened.


class _Closing:
    """Leaving a ``with`` block closes it; by default nothing is open."""

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PairFile(StreamedRows, _Closing):
    """Pairs, or single points, in a file that is read in each pass; `closefar.open_pairs` opens one.

    It acts as an array of the differences, or points, of shape (n, d), of which a few rows are in memory
    at a time: learners and questions take it, and a slice, an index array or a mask selects rows, and
    `numpy.asarray` reads them all.
    Leaving a ``with`` block closes it.

    Attributes
    ----------
    labels : array of n labels, or None
        Numbers where all labels are whole numbers, bools where they are true or false, otherwise text
        with a byte per pair.
    weights : array of n numbers, or None
    groups : array of n texts, or None
        Which pairs belong together.
    annotators : array of n texts, or None
        Who judged each pair.
    encoding : Encoding
        How the columns became numbers; pass it to `open_pairs` with new data.
    feature_names : tuple of str
    notes : tuple of str
        Sentences about what was left out or ignored.
    is_single : bool
        Whether each row is a point, or a difference, and not a pair of points.
    id_names : tuple of str
        What the columns of `ids` are called.
    """

    are_comparisons = False
    comparisons = None

    def __init__(
        self, chunks: TableChunks | NumpyChunks, encoding: Encoding, rows: TableRows, notes: Sequence[str] = ()
    ) -> None:
        super().__init__(chunks)
        self.encoding, self.is_single = encoding, rows.roles.sides is None
        self.labels: Any = rows.labels
        self.groups: Any = rows.groups
        self.annotators: Any = rows.annotators
        self.weights = rows.weights
        self.id_names, self.notes = rows.roles.id_names or ("row",), tuple(notes)
        self._points, self._ids_of = chunks, (rows.file, rows.roles.id_names, rows.n_read, rows.kept)

    def __repr__(self) -> str:
        return f"PairFile({self.n_rows:,} {'rows' if self.is_single else 'pairs'} of {self.n_columns} columns)"

    @property
    def feature_names(self) -> tuple[str, ...]:
        return self.encoding.feature_names

    @property
    def data(self) -> Self:
        """The rows themselves, so that ``fit(opened.data, opened.labels)`` reads as it does for a table in memory."""
        return self

    @cached_property
    def identity(self) -> Ids:
        """The ids, read when they are first asked for."""
        file, names, n_read, kept = self._ids_of
        return arrow.ids_of_pairs(file.place, file.read(names, (), names), names, n_read).take(kept)

    @property
    def ids(self) -> NDArray[np.object_]:
        """The ids as text: shape (n, 2) where both sides have an id, else (n,): ids, or row numbers as in the file."""
        return self.identity.texts

    def with_labels(self, labels: Any) -> Self:
        """The same rows, which from now on have these labels."""
        self.labels = labels
        return self

    def point_blocks(self) -> Iterator[FloatArray]:
        """Give the single points, (m, d), or both points of each pair, (m, 2, d), some rows at a time."""
        return self._points.points()


class IndexedPairs(Tuples, _Closing):
    """Pairs by index, as `Tuples`, with the labels, weights and ids of their file; see `PairFile` for these."""

    is_single = False

    def __new__(cls, table: PairTable) -> Any:
        return super().__new__(cls, table.points, table.index)

    def __init__(self, table: PairTable) -> None:
        kind = np.int32 if len(table.points) <= MOST_INT32 else np.int64
        index: Any = table.index.astype(kind, copy=False)
        super().__init__(table.points, index)
        self._table = replace(table, index=index, labels=None)  # as a copy is made of it
        self._feature_names = table.encoding.feature_names
        self.labels: Any = None if table.labels is None else coded(table.labels)
        self.weights, self.groups, self.annotators = table.weights, table.groups, table.annotators
        self.encoding, self.identity = table.encoding, table.identity
        self.id_names, self.notes = table.id_names, table.notes

    def __repr__(self) -> str:
        n, _, d = self.shape
        return f"IndexedPairs({n:,} pairs, {len(self.points):,} points, {d} columns)"

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexedPairs, (self._table,), {"labels": self.labels, "weights": self.weights}

    @property
    def data(self) -> Tuples:
        return self

    @property
    def ids(self) -> NDArray[np.object_]:
        """The ids of both points as text, shape (n, 2)."""
        return self.identity.texts


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ClusterPairs(Partitions, _Closing):
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


def open_pairs(
    pairs: File | Sequence[File] | None = None,
    *,
    points: Any = None,
    labels: Any = None,
    weights: Any = None,
    id: str | None = None,
    left: str | None = None,
    right: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    group: str | None = None,
    annotator: str | Literal[False] | None = None,
    sides: tuple[str, str] | None = None,
    na_values: str | Sequence[str] = (),
    decimal: str = ".",
    encoding: Encoding | None = None,
    columns: str | Sequence[str] | None = None,
    drop: str | Collection[str] = (),
    categorical: str | Collection[str] = (),
    ordinal: Mapping[str, Sequence[str]] | None = None,
    missing: str | None = None,
    unseen: str | None = None,
    client: Any = None,
) -> PairFile | IndexedPairs | ClusterPairs:
    """Open pairs in a file that may be larger than memory, for `fit`, `predict` and the questions.

    The file is read block by block in each pass, ahead of the computation.  It may be

    * Parquet, or a folder of Parquet files with the same columns, in the order of their names, or a list of them;
    * .npy with an array of differences, (n, d), or of pairs, (n, 2, d), with columns x0, x1, ...;
    * CSV, TSV and other text, also .gz, which is parsed once into a temporary file (in the folder that
      the variable TMPDIR names) of about eight bytes per number.

    Files of up to 512 MB of numbers are held in memory once they are read.

    Parameters
    ----------
    pairs : path, or sequence of paths of Parquet files, optional
        A file of pairs.  With `points`: two ids per pair.  Alone: the columns of both points side by
        side, such as left_age and right_age, or else the differences.
    points : path, or array or frame of shape (n_points, d), optional
        With `pairs`: the points, which are held in memory once each, and whose ids the pairs have; those
        of an array or frame are its row numbers.  Alone: a path of single points, or of differences.
    labels, weights : array, path of a .npy file, or name of a column, optional
        One per row that is used.
    id, left, right, label, weight, group, annotator : str, optional
        Names of columns, as in `closefar.tables.Source`.  By default labels are in the column called
        "label" or "labels", and annotators in that called "annotator" or "worker", if there is one.
    sides : tuple of two str, optional
        How the names of the columns of the two sides begin or end.
    na_values : sequence of str
        What stands for a missing value beside the usual words.
    decimal : {".", ","}
        The decimal mark of numbers in text files.
    encoding : Encoding, optional
        That of the training data, for new data: ``opened.encoding``.  By default one is learned.
    columns, drop, categorical, ordinal, missing, unseen
        As for `closefar.tables.read_pairs`: which columns to use, and how they become numbers.
    client : distributed.Client, optional
        A cluster, whose workers read the files: Parquet, at paths that all workers can read.  Each file, or some
        row groups of a large one, is a partition.  `points` may then be an array or frame of points, whose row
        numbers the pairs have.

    Returns
    -------
    PairFile or, with `points` and `pairs`, IndexedPairs
        Rows for the learner, with `labels`, `weights`, `ids`, `feature_names` and `encoding`.
    ClusterPairs
        With a `client`: partitions that `fit` and the predictions take, with `feature_names` and `encoding`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import closefar as cf
    >>> data = cf.datasets.make_pairs(2000, 4, rank=2, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "pairs.npy")
    ...     np.save(path, data.pairs)
    ...     with cf.open_pairs(path, labels=data.labels) as opened:
    ...         learner = cf.LinearMetricLearner().fit(opened)
    >>> opened.shape, learner.certificate_.converged
    ((2000, 4), True)
    """
    used = None if columns is None else _names(columns)
    features = Features(encoding, used, _names(drop), _names(categorical), ordinal, missing, unseen)
    label, labels = _column_or_values("label", label, labels)
    weight, weights = _column_or_values("weight", weight, weights)
    _check_paths(pairs, points)
    is_path = isinstance(points, str | os.PathLike)
    roles: dict[str, Any] = {"id": id, "left": left, "right": right, "label": label, "weight": weight, "group": group}
    source = Source(
        points if is_path else None,
        pairs if pairs is None or isinstance(pairs, str | os.PathLike) else InputList(pairs),
        **roles,
        annotator=annotator,
        sides=_two_sides(sides),
        na_values=tuple(_names(na_values)),
        decimal=decimal,
    )
    array = None if is_path or points is None else points if hasattr(points, "shape") else np.asarray(points)
    given, given_weights = _given(labels), _given(weights)
    if client is not None:
        return _open_on_cluster(source, array, features, (given, given_weights), client)
    opened = _open(source, array, features, has_labels=given is not None)
    if given is not None:
        opened.labels = _checked(given, opened, "labels")
    elif isinstance(opened.labels, CodedLabels):
        opened.labels = natural(opened.labels)
    if given_weights is not None:
        opened.weights = _checked(given_weights, opened, "weights").astype(np.float64)
    return opened


def _open(source: Source, array: Any, features: Features, *, has_labels: bool) -> PairFile | IndexedPairs:
    if array is not None:
        return _open_index(array, source, features, labelled=_has_labels(source, has_labels))
    if source.points is not None and source.pairs is not None:
        return IndexedPairs(read_id_pairs(source, features, labelled=_has_labels(source, has_labels)))
    source = _with_sides_or_points(source, features)
    return open_source(source, features, labelled=_has_labels(source, has_labels))


def _with_sides_or_points(source: Source, features: Features) -> Source:
    """The source, whose pairs are differences where the file does not have the columns of two sides."""
    if source.pairs is None or has_two_sides(source.open(source.pairs), source, features):
        return source
    return replace(source, points=source.pairs, pairs=None)


def _has_labels(source: Source, are_given: bool) -> bool:
    """Whether to read labels from the file: unless they are given, wherever it has them."""
    if are_given or source.label is not None:
        return not are_given
    return find_label(source.open(source.judged), source, labelled=True) is not None


def _check_paths(pairs: Any, points: Any) -> None:
    """Refuse what is no file, or lacks one."""
    if points is not None and not isinstance(points, str | os.PathLike) and pairs is None:
        raise ValueError("points that are no file need a file of pairs of their row numbers; got none. Give pairs.")
    is_list = isinstance(pairs, list | tuple) and all(isinstance(path, str | os.PathLike) for path in pairs)
    if pairs is not None and not is_list and not isinstance(pairs, str | os.PathLike):
        advice = "pass it to the learner as it is" if points is None else "use closefar.Tuples(points, index)"
        raise TypeError(f"pairs must be the path of a file; got {type(pairs).__name__}. If it is in memory, {advice}.")


def _column_or_values(name: str, column: Any, values: Any) -> tuple[str | None, Any]:
    """The name of a column, or values: each may be given by either keyword."""
    if column is not None and values is not None:
        raise ValueError(f"{name}s must be given once, as an array or as the name of a column; got both.")
    if isinstance(values, str) and not _is_array(values):
        return values, None
    return (column, values) if column is None or isinstance(column, str) else (None, column)


def _is_array(path: str | os.PathLike[str]) -> bool:
    return os.fspath(path).lower().endswith(".npy")


def _names(given: str | Collection[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _two_sides(sides: Any) -> tuple[str, str] | None:
    marks = tuple(sides.split(",") if isinstance(sides, str) else sides or ())
    if sides is not None and (len(marks) != 2 or not all(isinstance(mark, str) for mark in marks)):
        raise ValueError(f"sides must be two texts, such as ('left_', 'right_'); got {sides!r}.")
    return None if sides is None else (marks[0], marks[1])


def _given(values: Any) -> NDArray[Any] | None:
    if values is None or not isinstance(values, str | os.PathLike):
        return None if values is None else np.asarray(values)
    with loading(os.fspath(values)):
        return np.asarray(np.load(values, allow_pickle=False))


def _checked(values: NDArray[Any], opened: PairFile | IndexedPairs, name: str) -> NDArray[Any]:
    if values.shape != (len(opened),):
        raise ValueError(
            f"{name} must hold one value per row that is used, {len(opened):,}; got shape {values.shape}. "
            "Rows that lack a value are left out with missing='drop': name the column of labels in the file instead."
        )
    return values


# ---------------------------------------------------------------------------------------------------------------------
# A file that is read in each pass.


def open_source(source: Source, features: Features, *, labelled: bool) -> PairFile:
    """Open the pairs, or single points, of one file; labels stay text.

    Two passes are made: one for labels, weights and groups, one for the encoding, which holds a column at a time.
    """
    if _is_array(source.judged):
        return _open_array(source, features, labelled=labelled)
    file = source.open(source.judged)
    roles = find_row_roles(file, source, features, labelled=labelled)
    parquet = _streamable(file, roles)
    rows, encoding = _read_rows(parquet, roles)
    arrow.release_memory()
    chunks = TableChunks(parquet, roles, encoding, rows.kept)
    notes = [*rows.notes, *roles.notes, *note_constant(encoding)]
    return PairFile(chunks, encoding, rows, notes)


def _open_array(source: Source, features: Features, *, labelled: bool) -> PairFile:
    """Open an array of differences or points, or of pairs; its columns are called x0, x1, ..."""
    if (features.missing or "refuse") != "refuse":
        raise TableError(
            f"{os.fspath(source.judged)}: missing values of an array are refused; got "
            + setting(missing=features.missing)
            + ". Leave the setting out, and such rows out of the array."
        )
    chunks, file = NumpyChunks(source.judged), source.open(source.judged)
    if source.pairs is not None and not chunks.are_pairs:
        source = replace(source, points=source.pairs, pairs=None)
    roles = find_row_roles(file, source, features, labelled=labelled)
    rows = _read_judgements(file, replace(roles, features=Features()), chunks.shape[0])
    chunks.use(roles.names)
    return PairFile(chunks, features.encoding or Encoding.of_numbers(roles.names), rows)


def _read_rows(file: ParquetFile, roles: Roles) -> tuple[TableRows, Encoding]:
    """Read what is known of each row, and learn the encoding a column at a time if it is not known."""
    rows = _read_judgements(file, roles, file.n_rows)
    kept = rows.kept

    def read(name: str) -> NDArray[Any]:
        values: NDArray[Any] = file.read([name], roles.own_texts)[name]
        return values if len(kept) == file.n_rows else values[kept]

    columns, place = roles.stacked(LazyColumns(roles.own, read), file.place, kept)
    encoding = roles.features.learned(columns, place)
    if roles.features.drops_missing:
        rows.leave_out(roles.of_rows(encoding.find_dropped(columns, place=place)), "a value")
    return rows, encoding


def _read_judgements(file: TableFile, roles: Roles, n_rows: int) -> TableRows:
    """Read what is known of each row but its features and ids, and leave out rows without a label."""
    columns: dict[str, Any] = {}
    if roles.label is not None:
        columns[roles.label] = coded(file.read([roles.label], (), [roles.label])[roles.label])
    others = [name for name in (roles.weight, roles.group, roles.annotator) if name is not None]
    return TableRows(file, roles, columns | file.read(others, roles.texts), n_rows)


def _streamable(file: TableFile, roles: Roles) -> ParquetFile:
    """The file itself or, where passes over it would be slow, a copy of its columns."""
    if isinstance(file, DelimitedFile):
        return SpooledFile(file, roles.used, [*roles.own_texts, *roles.texts, *roles.id_names])
    if isinstance(file, ParquetFile):
        return file
    raise TableError(f"{file.path} can't be read in parts. Save the table as Parquet, or one array as .npy.")


def coded(column: Any) -> CodedLabels:
    """A column of pyarrow's, or of text, as codes of the different values as text; -1 where one is missing."""
    column = arrow.as_id_column(column) if isinstance(column, np.ndarray) else column
    chunks = column.dictionary_encode().chunks
    words = arrow.texts_of(chunks[0].dictionary)
    kind = np.int8 if len(words) <= _BYTES else np.int32
    return CodedLabels(
        words, np.concatenate([arrow.fixed_width(chunk.indices, np.int32, -1).astype(kind) for chunk in chunks])
    )


def natural(labels: CodedLabels) -> Any:
    """Labels as numbers, or true and false, where they are; otherwise themselves."""
    words = labels.words.tolist()
    if {word.lower() for word in words} <= {"true", "false"}:
        return np.array([word.lower() == "true" for word in words])[labels.codes]
    if all(is_number(word) and float(word).is_integer() and abs(float(word)) <= _BYTES for word in words):
        return np.array([int(float(word)) for word in words], dtype=np.int8)[labels.codes]
    return labels


# ---------------------------------------------------------------------------------------------------------------------
# Pairs of row numbers of points in memory.


def _open_index(points: Any, source: Source, features: Features, *, labelled: bool) -> IndexedPairs:
    """Read a file of pairs of row numbers of points that are in memory, and stay as they are."""
    points, encoding = _chosen_columns(points, source, features)
    assert source.pairs is not None
    file = source.open(source.pairs)
    roles = find_id_roles(file, source, features, labelled=labelled)
    if _is_array(file.path) and set(file.names) > set(roles.used):
        raise TableError(
            f"{file.path} must have a column of row numbers for each side, and no others but those that are named as "
            f"label or weight; got {len(file.names)} columns."
        )
    rows = read_ids(file, roles)
    index = find_positions(numbered_points(len(points)), rows)
    table = rows.table(points, index, Ids(np.arange(len(points)), index), encoding, roles.notes)
    return IndexedPairs(table)


def _chosen_columns(points: Any, source: Source, features: Features) -> tuple[Any, Encoding]:
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


# ---------------------------------------------------------------------------------------------------------------------
# On a cluster: a partition per Parquet file, or per some row groups of a large one.


def _open_on_cluster(
    source: Source, points: Any, features: Features, beside: tuple[Any, Any], client: Any
) -> ClusterPairs:
    """Open pairs with the columns of both sides, differences, or pairs of row numbers of points in memory.

    `beside` are labels and weights that are in no file.  Workers read the column of labels, to find which ones
    there are, and if columns are encoded or filled in, one of them learns how.
    """
    if source.points is not None and source.pairs is not None:
        raise ValueError(
            "on a cluster, points must be an array or a frame, whose row numbers the pairs have; got a file of points "
            "with ids. Read the points, number them, and write the numbers into the files of pairs."
        )
    for name, given in (("group", source.group), ("annotator", source.annotator)):
        if given:
            raise ValueError(f"a fit on a cluster uses no {name}s; got {name}={given!r}. Leave it out.")
    source = replace(source, annotator=False)
    if points is None:
        source = _with_sides_or_points(source, features)
    file, labelled = source.open(source.judged), _has_labels(source, beside[0] is not None)
    if not isinstance(file, ParquetFile):
        raise TableError(
            f"a cluster reads Parquet; got {file.path}. Convert it, or read it with dask.dataframe.read_csv or "
            "dask.array and pass that to fit."
        )
    if points is None:
        roles = find_row_roles(file, source, features, labelled=labelled)
        encoding = _encoding(file, roles, client)
        roles = replace(roles, features=Features(encoding), notes=())
    else:
        points, encoding = _chosen_columns(points, source, features)
        roles = find_id_roles(file, source, features, labelled=labelled)
    n_numbers = len(encoding.feature_names) if points is None else 2
    pieces = file.pieces(max(1, _PARTITION_BYTES // (8 * n_numbers)))
    drops = roles.features.drops_missing
    values = None if roles.label is None else _values_of_labels(pieces, roles.label, client)
    return ClusterPairs(
        tasks=_tasks(pieces, beside, drops=drops),
        load=_Load(roles, encoding, values),
        n_columns=len(encoding.feature_names),
        are_pairs=points is not None,
        shared=None if points is None else np.asarray(points),
        n_rows=None if drops else tuple(piece.n_rows for piece in pieces),
        feature_names=encoding.feature_names,
        has_labels=roles.label is not None or beside[0] is not None,
        has_weights=roles.weight is not None or beside[1] is not None,
        is_single=roles.sides is None,
        client=client,
        encoding=encoding,
    )


@dataclass(frozen=True)
class _Load:
    """How a partition is loaded: differences, or pairs of row numbers of the points that the workers share."""

    roles: Roles
    encoding: Encoding
    values: Mapping[str, Any] | None

    def __call__(self, task: Any, points: Any) -> Partition:
        piece, labels, weights = task
        try:
            data, rows = self._differences(piece) if points is None else self._pairs(piece, points)
        except EmptyTableError:  # of which no row is used
            nothing = np.empty((0, len(self.encoding.feature_names)))
            data = nothing if points is None else unchecked_tuples(points, np.empty((0, 2), dtype=np.int64), None)
            return Partition(data, np.empty(0), None if self.roles.weight is None and weights is None else np.empty(0))
        own: Any = rows.labels if labels is None else labels
        if self.values is not None:
            own = np.array([self.values[word] for word in own.words])[own.codes]
        return Partition(data, own, rows.weights if weights is None else weights)

    def _differences(self, piece: ParquetFile) -> tuple[NDArray[Any], TableRows]:
        rows, _ = _read_rows(piece, self.roles)
        chunks = TableChunks(piece, self.roles, self.encoding, rows.kept)
        data: NDArray[Any] = np.empty(chunks.shape, dtype=chunks.dtype)
        start = 0
        for columns in chunks.read_from(0):
            data[start : start + columns.shape[1]] = columns.T
            start += columns.shape[1]
        return data, rows

    def _pairs(self, piece: ParquetFile, points: NDArray[Any]) -> tuple[Any, TableRows]:
        rows = read_ids(piece, self.roles)
        index = find_positions(numbered_points(len(points)), rows)
        rows.labels = None if rows.labels is None else coded(rows.labels)
        return unchecked_tuples(points, index, None), rows


def _encoding(file: ParquetFile, roles: Roles, client: Any) -> Encoding:
    """The encoding: known, of plain numbers, or learned by a worker, which reads a column at a time."""
    features = roles.features
    if features.encoding is not None:
        return features.encoding
    are_plain = not features.text_names and all(file.number_type(name) is not None for name in roles.own)
    if are_plain and features.missing != "median":
        encoding = Encoding.of_numbers(roles.names)
        return replace(encoding, missing=features.missing or "refuse", unseen=features.unseen or "refuse")
    found: Encoding = engine_for(client).run(partial(_learned_by_worker, roles), [file], combine=list)[0]
    return found


def _learned_by_worker(roles: Roles, file: ParquetFile) -> TaskResult:
    return TaskResult(_read_rows(file, roles)[1])


def _values_of_labels(pieces: list[ParquetFile], name: str, client: Any) -> dict[str, Any] | None:
    """What each word in the column of labels stands for: numbers, or true and false; None if they stay words."""
    found, _ = engine_for(client).run(partial(_words, name), pieces, combine=lambda words: set().union(*words))
    words = sorted(found)
    values = natural(CodedLabels(words, np.arange(len(words))))
    return None if isinstance(values, CodedLabels) else dict(zip(words, values, strict=True))


def _words(name: str, piece: ParquetFile) -> TaskResult:
    return TaskResult(set(coded(piece.read([name], (), [name])[name]).counts()))


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
