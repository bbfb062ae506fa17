"""`closefar.open_pairs`: pairs in files, of any size, for the learner.

A file is read in each pass, points that pairs refer to are held in memory, and workers of a cluster read their parts.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.cluster import cluster_for
from closefar.judgements import CodedLabels, Partition, Partitions, Tuples
from closefar.judgements.tuples import unchecked_tuples
from closefar.rows import StreamedRows
from closefar.tables.delimited import DelimitedFile, LostTextError
from closefar.tables.encoding import Encoding, Features, Number
from closefar.tables.errors import EmptyTableError, Place, TableError, UnreadableError
from closefar.tables.files import NumpyFile, ParquetFile, loading
from closefar.tables.inputs import Input
from closefar.tables.pairs import (
    MOST_INT32,
    PairTable,
    TableRows,
    find_positions,
    notes_of,
    numbered_points,
    read_id_pairs,
    read_ids,
)
from closefar.tables.source import Roles, Source, find_id_roles, find_label, find_row_roles, has_two_sides
from closefar.tables.values import (
    Ids,
    TableFile,
    are_finite,
    codes_of_ids,
    id_texts,
    ids_of,
    is_number,
    pq,
    release_memory,
)

File = str | os.PathLike[str]
PartFile = ParquetFile | NumpyFile  # that can be read in parts

_BYTES = np.iinfo(np.int8).max  # labels that one byte can code
CHUNK_BYTES = 1 << 23  # 8 MiB of numbers at a time
_FEWEST_ROWS = 1 << 10  # in a chunk, however wide the rows are
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

    def __init__(self, chunks: TableChunks, encoding: Encoding, rows: TableRows) -> None:
        super().__init__(chunks)
        self.encoding, self.is_single = encoding, rows.roles.sides is None
        self.labels, self.weights = rows.known["labels"], rows.known["weights"]
        self.groups, self.annotators = rows.known["groups"], rows.known["annotators"]
        self.id_names = rows.roles.id_names or ("row",)
        self.notes: tuple[str, ...] = (*rows.notes, *rows.roles.notes, *notes_of(encoding))
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
        return Ids.of_columns(file.place, file.read(names, (), names), names, n_read).take(kept)

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
    label, given = _column_or_values("label", label, labels)
    weight, given_weights = _column_or_values("weight", weight, weights)
    _check_paths(pairs, points)
    is_path = isinstance(points, str | os.PathLike)
    roles: dict[str, Any] = {"id": id, "left": left, "right": right, "label": label, "weight": weight, "group": group}
    source = Source(
        points if is_path else None,
        pairs if pairs is None or isinstance(pairs, str | os.PathLike) else Input(*pairs),
        **roles,
        annotator=annotator,
        sides=tuple(sides.split(",")) if isinstance(sides, str) else sides,
        na_values=tuple(_names(na_values)),
        decimal=decimal,
    )
    array = None if is_path or points is None else points if hasattr(points, "shape") else np.asarray(points)
    labelled = given is None
    if labelled and label is None:  # wherever the file has them
        labelled = find_label(source.open(source.judged), source, labelled=True) is not None
    opened: PairFile | IndexedPairs
    if client is not None:
        if given is not None or given_weights is not None:
            raise ValueError("on a cluster, labels and weights are columns of the files; got arrays. Write them there.")
        return _open_on_cluster(source, array, features, client, labelled=labelled)
    if array is not None:
        opened = _open_index(array, source, features, labelled=labelled)
    elif source.points is not None and source.pairs is not None:
        opened = IndexedPairs(read_id_pairs(source, features, labelled=labelled))
    else:
        opened = open_source(_with_sides_or_points(source, features), features, labelled=labelled)
    if given is not None:
        opened.labels = _checked(given, opened, "labels")
    elif isinstance(opened.labels, CodedLabels):
        opened.labels = natural(opened.labels)
    if given_weights is not None:
        opened.weights = _checked(given_weights, opened, "weights").astype(np.float64)
    return opened


def _with_sides_or_points(source: Source, features: Features) -> Source:
    """The source, whose pairs are differences where the file does not have the columns of two sides."""
    if source.pairs is None or has_two_sides(source.open(source.pairs), source, features):
        return source
    return replace(source, points=source.pairs, pairs=None)


def _check_paths(pairs: Any, points: Any) -> None:
    """Refuse what is no file, or lacks one."""
    if points is not None and not isinstance(points, str | os.PathLike) and pairs is None:
        raise ValueError("points that are no file need a file of pairs of their row numbers; got none. Give pairs.")
    is_list = isinstance(pairs, list | tuple) and all(isinstance(path, str | os.PathLike) for path in pairs)
    if pairs is not None and not is_list and not isinstance(pairs, str | os.PathLike):
        advice = "pass it to the learner as it is" if points is None else "use closefar.Tuples(points, index)"
        raise TypeError(f"pairs must be the path of a file; got {type(pairs).__name__}. If it is in memory, {advice}.")
    if is_list and not pairs:
        raise UnreadableError("there must be at least one file; got an empty list. Check the paths.")


def _column_or_values(name: str, column: Any, values: Any) -> tuple[str | None, NDArray[Any] | None]:
    """The name of a column, or values, which may be in a .npy file: each may be given by either keyword."""
    if column is not None and values is not None:
        raise ValueError(f"{name}s must be given once, as an array or as the name of a column; got both.")
    given = values if column is None else column
    if given is None or (isinstance(given, str) and not given.lower().endswith(".npy")):
        return given, None
    if isinstance(given, str | os.PathLike):
        with loading(os.fspath(given)):
            given = np.load(given, allow_pickle=False)
    return None, np.asarray(given)


def _names(given: str | Collection[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _checked(values: NDArray[Any], opened: PairFile | IndexedPairs, name: str) -> NDArray[Any]:
    if values.shape != (len(opened),):
        raise ValueError(
            f"{name} must hold one value per row that is used, {len(opened):,}; got shape {values.shape}. "
            "Rows that lack a value are left out with missing='drop': name the column of labels in the file instead."
        )
    return values


# ---------------------------------------------------------------------------------------------------------------------
# Rows of a file that may not fit into memory, chunk by chunk.


class SpooledFile(ParquetFile):
    """Columns of a text file, parsed once into a temporary Parquet file that is removed with this object.

    Parameters
    ----------
    file : DelimitedFile
    only, as_text : names of columns
        Those to keep; and those that stay as they are written.
    """

    def __init__(self, file: DelimitedFile, only: Collection[str], as_text: Collection[str]) -> None:
        descriptor, path = tempfile.mkstemp(prefix="closefar-", suffix=".parquet")
        os.close(descriptor)
        self._remove: weakref.finalize[Any, Any] | None = weakref.finalize(self, Path(path).unlink, missing_ok=True)
        wanted, is_written = [name for name in file.names if name in only], False
        while not is_written:  # again, where text was found below numbers
            with suppress(LostTextError):
                _write(path, file, wanted, as_text)
                is_written = True
        super().__init__(Input(path), file.missing, file.place)

    def close(self) -> None:
        """Remove the temporary file."""
        if self._remove is not None:
            self._remove()

    def __getstate__(self) -> dict[str, Any]:
        """A copy uses the file, but does not remove it."""
        return {**vars(self), "_remove": None}


def _write(path: str, file: DelimitedFile, wanted: list[str], as_text: Collection[str]) -> None:
    """Write columns of a text file to a Parquet file."""
    try:
        with ExitStack() as stack:
            writer: Any = None
            for table in file.tables(wanted, as_text):
                if writer is None:
                    strings = [field.name for field in table.schema if str(field.type) == "string"]
                    options = {"compression": "none", "use_dictionary": strings, "write_statistics": False}
                    writer = stack.enter_context(pq.ParquetWriter(path, table.schema, **options))
                writer.write_table(table)
    except OSError as error:
        if isinstance(error, TableError):
            raise
        raise UnreadableError(
            f"{file.path} can't be read: the temporary file for its numbers can't be written to "
            f"{tempfile.gettempdir()} ({error.strerror or error}). Make room there, or set TMPDIR to a folder with "
            "more."
        ) from error


class TableChunks:
    """The differences of pairs, or single points, of a file that is read in parts: arrays of shape (d, m).

    Parameters
    ----------
    file : ParquetFile or NumpyFile
    roles : Roles
    encoding : Encoding
    kept : array of int
        The rows of the file that are used; the others lack a label or a value.
    """

    def __init__(self, file: PartFile, roles: Roles, encoding: Encoding, kept: NDArray[np.int64]) -> None:
        self._file, self._roles, self._encoding = file, roles, encoding
        self._kept, self.starts = kept, np.searchsorted(kept, file.starts)
        self.shape = len(kept), len(encoding.feature_names)
        types = [file.number_type(name) for name in roles.own]
        self._is_plain = None not in types and all(isinstance(column, Number) for column in encoding.columns)
        is_exact = all(np.can_cast(kind, np.float32) for kind in types if kind)  # in single precision
        is_single = self._is_plain and roles.sides is None and is_exact
        self.dtype: np.dtype[Any] = np.dtype(np.float32 if is_single else np.float64)

    def read_from(self, start: int) -> Iterator[NDArray[Any]]:
        for batch, row, kept in self._batches(start):
            columns = self._plain(batch) if self._is_plain else None
            if columns is not None and are_finite(columns):
                yield columns if len(kept) == columns.shape[1] else columns[:, kept]
            else:
                points = self._encoded(batch, row, kept)
                yield (points if points.ndim == 2 else points[:, 0] - points[:, 1]).T

    def points(self) -> Iterator[FloatArray]:
        """Give the single points, (m, d), or both points of each pair, (m, 2, d), in double precision."""
        for rows in self._batches(0):
            yield self._encoded(*rows)

    def close(self) -> None:
        self._file.close()

    def _batches(self, start: int) -> Iterator[tuple[dict[str, Any], int, NDArray[np.int64]]]:
        """Some rows at a time, by column, the number of the first in the file, and which are kept, counted from it."""
        names, row = self._roles.own, int(self._file.starts[start])
        n_rows = max(_FEWEST_ROWS, CHUNK_BYTES // (self.dtype.itemsize * len(names)))
        for batch in self._file.batches(names, start, n_rows):
            n_read = len(batch[names[0]])
            first, last = np.searchsorted(self._kept, [row, row + n_read])
            if first < last:
                yield batch, row, self._kept[first:last] - row
            row += n_read

    def _plain(self, batch: dict[str, Any]) -> NDArray[Any] | None:
        """Plain numbers, which are copied as they are; None where one is missing."""
        if any(getattr(column, "null_count", 0) for column in batch.values()):
            return None
        names = self._encoding.column_names
        n_rows = len(next(iter(batch.values())))
        columns: NDArray[Any] = np.empty((len(names), n_rows), dtype=self.dtype)
        for line, name in zip(columns, names, strict=True):
            if self._roles.sides is None:
                line[:] = batch[name]
            else:
                left, right = (np.asarray(batch[side[name]]) for side in self._roles.sides)
                np.subtract(left, right, out=line, dtype=np.float64)
        return columns

    def _encoded(self, batch: dict[str, Any], row: int, kept: NDArray[np.int64]) -> FloatArray:
        """The points of the kept rows, with whatever has to be said of them."""
        texts = set(self._roles.own_texts)

        def read(name: str) -> Any:
            return self._file.converted(batch[name], name, as_text=name in texts)[kept]

        points = self._encoding.apply_to_part(*self._roles.stacked(read, self._file.place, row + kept))
        return points if self._roles.sides is None else points.reshape(len(kept), 2, -1)


# ---------------------------------------------------------------------------------------------------------------------
# A file that is read in each pass.


def open_source(source: Source, features: Features, *, labelled: bool) -> PairFile:
    """Open the pairs, or single points, of one file; labels stay text.

    Two passes are made: one for labels, weights and groups, one for the encoding, which holds a column at a time.
    """
    file = source.open(source.judged)
    roles = find_row_roles(file, source, features, labelled=labelled)
    if isinstance(file, DelimitedFile):  # passes over text would be slow
        file = SpooledFile(file, roles.used, [*roles.own_texts, *roles.texts, *roles.id_names])
    if not isinstance(file, ParquetFile | NumpyFile) or (isinstance(file, NumpyFile) and not file.is_mapped):
        raise TableError(f"{file.path} can't be read in parts. Save the table as Parquet, or one array as .npy.")
    if isinstance(file, NumpyFile):  # a pass for each column of an array would be slow
        roles = replace(roles, features=_features_of_numbers(file, roles))
    rows, encoding = _read_rows(file, roles)
    release_memory()
    return PairFile(TableChunks(file, roles, encoding, rows.kept), encoding, rows)


def _features_of_numbers(file: PartFile, roles: Roles) -> Features:
    """The features, with their encoding if all columns are plain numbers, of which nothing has to be learned."""
    features = roles.features
    are_plain = not features.text_names and all(file.number_type(name) is not None for name in roles.own)
    if features.encoding is not None or not are_plain or features.missing == "median":
        return features
    return Features(Encoding.of_numbers(roles.names), missing=features.missing, unseen=features.unseen)


def _read_rows(file: PartFile, roles: Roles) -> tuple[TableRows, Encoding]:
    """Read what is known of each row, and learn the encoding a column at a time if it is not known."""
    rows = _read_judgements(file, roles, file.n_rows)
    return rows, rows.learn(lambda name: file.read([name], roles.own_texts)[name])


def _read_judgements(file: TableFile, roles: Roles, n_rows: int) -> TableRows:
    """Read what is known of each row but its features and ids, and leave out rows without a label."""
    columns: dict[str, Any] = {}
    if roles.label is not None:
        columns[roles.label] = coded(file.read([roles.label], (), [roles.label])[roles.label])
    others = [name for name in (roles.weight, roles.group, roles.annotator) if name is not None]
    return TableRows(file, roles, columns | file.read(others, roles.texts), n_rows)


def coded(column: Any) -> CodedLabels:
    """Ids, or a column of text, as codes of the different values as text; -1 where one is missing."""
    (codes,), words = codes_of_ids(ids_of(column) if isinstance(column, np.ndarray) else column)
    return CodedLabels(id_texts(words), codes.astype(np.int8 if len(words) <= _BYTES else np.int32))


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
    if isinstance(file, NumpyFile) and file.is_mapped and set(file.names) > set(roles.used):
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


def _open_on_cluster(source: Source, points: Any, features: Features, client: Any, *, labelled: bool) -> ClusterPairs:
    """Open pairs with the columns of both sides, differences, or pairs of row numbers of points in memory.

    Workers read the column of labels, to find which ones
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
    file = source.open(source.judged)
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
    values = None if roles.label is None else _values_of_labels(pieces, roles.label, client)
    return ClusterPairs(
        tasks=tuple(pieces),
        load=_Load(roles, encoding, values),
        n_columns=len(encoding.feature_names),
        are_pairs=points is not None,
        shared=None if points is None else np.asarray(points),
        n_rows=None if roles.features.drops_missing else tuple(piece.n_rows for piece in pieces),
        feature_names=encoding.feature_names,
        has_labels=roles.label is not None,
        has_weights=roles.weight is not None,
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

    def __call__(self, piece: ParquetFile, points: Any) -> Partition:
        try:
            data, rows = self._differences(piece) if points is None else self._pairs(piece, points)
        except EmptyTableError:  # of which no row is used
            nothing = np.empty((0, len(self.encoding.feature_names)))
            data = nothing if points is None else unchecked_tuples(points, np.empty((0, 2), dtype=np.int64), None)
            return Partition(data, np.empty(0), None if self.roles.weight is None else np.empty(0))
        labels = rows.known["labels"]
        if self.values is not None:
            labels = np.array([self.values[word] for word in labels.words])[labels.codes]
        return Partition(data, labels, rows.known["weights"])

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
        rows.known["labels"] = None if self.roles.label is None else coded(rows.known["labels"])
        return unchecked_tuples(points, index, None), rows


def _encoding(file: ParquetFile, roles: Roles, client: Any) -> Encoding:
    """The encoding: known, of plain numbers, or learned by a worker, which reads a column at a time."""
    known = _features_of_numbers(file, roles).encoding
    if known is not None:
        return known
    found: Encoding = cluster_for(client).run(lambda file: _read_rows(file, roles)[1], [file], combine=list)
    return found


def _values_of_labels(pieces: list[ParquetFile], name: str, client: Any) -> dict[str, Any] | None:
    """What each word in the column of labels stands for: numbers, or true and false; None if they stay words."""

    def words_in(piece: ParquetFile) -> set[str]:
        return set(coded(piece.read([name], (), [name])[name]).counts())

    words = sorted(cluster_for(client).run(words_in, pieces, combine=lambda found: set().union(*found)))
    values = natural(CodedLabels(words, np.arange(len(words))))
    return None if isinstance(values, CodedLabels) else dict(zip(words, values, strict=True))
