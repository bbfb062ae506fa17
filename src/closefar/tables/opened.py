"""`closefar.open_pairs`: pairs in files, of any size, for the learner."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from closefar.judgements import CodedLabels
from closefar.tables.cluster_pairs import ClusterPairs, open_on_cluster
from closefar.tables.encoding import Encoding, Features
from closefar.tables.errors import TableError, in_words_of_python
from closefar.tables.files import loading, open_table
from closefar.tables.indexed_pairs import IndexedPairs, open_id_pairs, open_index_pairs
from closefar.tables.inputs import InputList
from closefar.tables.opening import open_source
from closefar.tables.pair_file import PairFile, natural
from closefar.tables.source import Source, find_annotator_like, find_label, find_sides

File = str | os.PathLike[str]


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
    )
    with in_words_of_python():
        if client is not None:
            return _open_on_cluster(source, None if is_path else points, features, labels, weights, client)
        opened = _open(source, None if is_path else points, features, has_labels=labels is not None)
    if isinstance(opened, PairFile):
        opened.speaks_python = True
    _label(opened, _given(labels), _given(weights))
    return opened


def _open_on_cluster(
    source: Source, points: Any, features: Features, labels: Any, weights: Any, client: Any
) -> ClusterPairs:
    if source.points is not None and source.pairs is not None:
        raise ValueError(
            "on a cluster, points must be an array or a frame, whose row numbers the pairs have; got a file of points "
            "with ids. Read the points, number them, and write the numbers into the files of pairs."
        )
    for path in (source.points, source.pairs):
        if path is not None and _is_array(path):
            raise ValueError(
                f"a cluster reads Parquet; got {os.fspath(path)}. Open the array with dask.array.from_array, on "
                "numpy.load(path, mmap_mode='r'), and pass that to fit."
            )
    if points is None and source.pairs is not None and not _has_sides(source, features):
        source = replace(source, points=source.pairs, pairs=None)
    path = source.points if source.pairs is None else source.pairs
    labelled = _has_labels(source, path, labels is not None)
    array = points if points is None or hasattr(points, "shape") else np.asarray(points)
    return open_on_cluster(source, array, features, (_given(labels), _given(weights)), client, labelled=labelled)


def _label(opened: PairFile | IndexedPairs, labels: NDArray[Any] | None, weights: NDArray[Any] | None) -> None:
    """Add what was given beside the file; labels of the file become numbers where they are."""
    if labels is not None:
        opened.labels = _checked(labels, opened, "labels")
    elif isinstance(opened.labels, CodedLabels):
        opened.labels = natural(opened.labels)
    if weights is not None:
        opened.weights = _checked(weights, opened, "weights").astype(np.float64)


def _open(source: Source, points: Any, features: Features, *, has_labels: bool) -> PairFile | IndexedPairs:
    if points is not None:
        if _is_array(source.pairs) and source.label is not None:
            raise ValueError(
                f"an array of row numbers has no column of labels; got label={source.label!r}. Give labels, an array "
                "of one per row."
            )
        labelled = _has_labels(source, source.pairs, has_labels)
        array = points if hasattr(points, "shape") else np.asarray(points)
        return open_index_pairs(array, source, features, labelled=labelled)
    if source.points is not None and source.pairs is not None:
        return open_id_pairs(source, features, labelled=_has_labels(source, source.pairs, has_labels))
    path = source.points if source.pairs is None else source.pairs
    if source.pairs is not None and not _is_array(path) and not _has_sides(source, features):
        source = replace(source, points=source.pairs, pairs=None)
    return open_source(source, features, labelled=_has_labels(source, path, has_labels))


def _is_array(path: Any) -> bool:
    return str(os.fspath(path)).lower().endswith(".npy")


def _has_labels(source: Source, path: Any, has_labels: bool) -> bool:
    """Whether to read labels from the file: unless they are given, wherever it has them."""
    if has_labels or source.label is not None:
        return not has_labels
    return not _is_array(path) and find_label(open_table(path, source.na_values), source, labelled=True) is not None


def _has_sides(source: Source, features: Features) -> bool:
    """Whether a file has the columns of two sides; names that end with 1 and 2 are features unless all columns pair."""
    if source.sides is not None or source.left is not None:
        return True
    assert source.pairs is not None
    file = open_table(source.pairs, source.na_values)
    taken = {find_label(file, source, labelled=False), find_annotator_like(file, source)}
    taken |= {source.label, source.weight, source.group, source.id}
    names = [name for name in file.names if name not in taken and name not in features.drop and name.lower() != "id"]
    try:
        found = find_sides(names, None, features.needed, file.path)
    except TableError:
        return False
    is_counted = any(mark.strip("_.") in ("1", "2") for mark in found.marks)
    return not is_counted or 2 * len(found.shared) == len(names)


def _check_paths(pairs: Any, points: Any) -> None:
    """Refuse what is no file, or lacks one."""
    if points is None and pairs is None:
        raise ValueError("open_pairs needs a file of pairs, of points, or both; got neither.")
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
