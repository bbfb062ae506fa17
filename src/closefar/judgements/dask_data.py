"""Dask arrays, frames and series as partitions; nothing is computed but row counts that are not known."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from sklearn.exceptions import DataConversionWarning

from closefar.arrays import is_dask, is_foreign
from closefar.engines import engine_for
from closefar.judgements.dask_tuples import DaskTuples
from closefar.judgements.frames import names_of_frame
from closefar.judgements.pairs import check_axes, check_size, check_two_points
from closefar.judgements.partitions import Partition, Partitions
from closefar.judgements.tuples import Tuples, unchecked_tuples

__all__ = ["partitions_of"]

_NUMBER_KINDS = "biuf"


def partitions_of(pairs: Any, labels: Any = None, sample_weight: Any = None) -> Partitions:
    """Return dask arrays, frames or pairs by index, with their labels and weights, as partitions.

    The partitions are the chunks of the pairs along their rows.  Labels and weights of other chunks are cut along
    them; they may also be in memory.  Row counts that are not known, as of frames, are found in one computation.
    """
    if isinstance(pairs, Partitions):
        return _with_labels(pairs, labels, sample_weight)
    if labels is None:
        raise ValueError("requires y to be passed, but the target y is None: give one close/far label per pair.")
    rows = _rows_of(pairs)
    rows, *beside = _counted(rows, _column(labels, "y"), _column(sample_weight, "sample_weight"))
    check_size((sum(rows.known_counts), rows.n_columns), 1)
    aligned = [_aligned(column, rows) for column in beside]
    parts = zip(rows.known_counts, rows.parts, *(column.parts for column in aligned), strict=True)
    tasks = tuple(_together(some) for count, *some in parts if count)
    is_indexed = isinstance(pairs, DaskTuples)
    return Partitions(
        tasks,
        _load_tuples if is_indexed else _load_rows,
        n_columns=rows.n_columns,
        are_pairs=rows.n_axes == 3,
        shared=pairs.points if is_indexed else None,
        n_rows=tuple(filter(None, rows.known_counts)),
        feature_names=pairs.feature_names if is_indexed else names_of_frame(pairs),
        has_weights=sample_weight is not None,
    )


@dataclass(frozen=True)
class _Column:
    """One value per row, or None or one value for all of them, in parts; `counts` are None where not known."""

    name: str
    parts: Sequence[Any]
    counts: tuple[int, ...] | None
    dtype: Any = None
    value: Any = None
    is_spread: bool = True

    @property
    def known_counts(self) -> tuple[int, ...]:
        assert self.counts is not None
        return self.counts


@dataclass(frozen=True)
class _Rows(_Column):
    n_columns: int = 0
    n_axes: int = 2


def _rows_of(pairs: Any) -> _Rows:
    if isinstance(pairs, DaskTuples):
        parts = _rechunked(pairs.index)
        return _Rows("X", _delayed(parts), _counts(parts), n_columns=pairs.shape[2], n_axes=3)
    if hasattr(pairs, "divisions"):
        check_axes(pairs, (2,))
        _check_frame(pairs)
        return _Rows("X", pairs.to_delayed(), None, n_columns=len(pairs.columns))
    check_axes(pairs, (2, 3))
    if pairs.ndim == 3:
        check_two_points(pairs.shape)
    if any(math.isnan(size) for size in pairs.shape[1:]):
        raise ValueError(f"the number of columns must be known; got shape {pairs.shape}. Call compute_chunk_sizes().")
    if pairs.dtype.kind not in _NUMBER_KINDS:
        raise ValueError(f"columns must hold real numbers; got an array of {pairs.dtype}. Convert it to floats.")
    parts = _rechunked(pairs)
    return _Rows("X", _delayed(parts), _counts(parts), n_columns=int(pairs.shape[-1]), n_axes=pairs.ndim)


def _check_frame(frame: Any) -> None:
    """Name the first column that does not hold numbers."""
    for name, kind in zip(frame.columns, frame.dtypes, strict=True):
        if getattr(kind, "kind", "-") not in _NUMBER_KINDS:
            raise ValueError(
                f"columns must hold numbers; column {name!r} has type {kind}. Encode it (for instance one-hot) or "
                "leave it out."
            )


def _column(values: Any, name: str) -> _Column:
    if values is None or (name == "sample_weight" and not is_dask(values) and np.ndim(values) == 0):
        return _Column(name, (), None, value=values, is_spread=False)
    if not is_dask(values):
        array = np.asarray(values)
        array = _one_axis(array, name)
        return _Column(name, (array,), (len(array),), array.dtype)
    if hasattr(values, "divisions"):
        if values.ndim != 1:
            raise ValueError(f"{name} must be a Series, one value per pair; got a DataFrame. Select its column.")
        return _Column(name, [_to_numpy(part) for part in values.to_delayed()], None, _numpy_type(values))
    values = _one_axis(values, name)
    return _Column(name, _delayed(values), _counts(values), values.dtype)


def _one_axis(values: Any, name: str) -> Any:
    if values.ndim == 2 and values.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape of y to (n_samples,), "
            "for example using ravel().",
            DataConversionWarning,
            stacklevel=2,
        )
        return values[:, 0]
    if values.ndim != 1:
        raise ValueError(f"{name} must hold one value per pair; got shape {tuple(values.shape)}.")
    return values


def _counted(rows: _Rows, *columns: _Column) -> tuple[Any, ...]:
    """The same with the row count of each part; those that are not known are computed together."""
    import dask

    unknown = [each for each in (rows, *columns) if each.is_spread and each.counts is None]
    if not unknown:
        return (rows, *columns)
    found = iter(engine_for().compute([dask.delayed(len)(part) for each in unknown for part in each.parts]))
    counts = {each.name: tuple(islice(found, len(each.parts))) for each in unknown}
    return tuple(replace(each, counts=counts.get(each.name, each.counts)) for each in (rows, *columns))


def _aligned(column: _Column, rows: _Rows) -> _Column:
    """The same values in parts of as many rows as those of the pairs."""
    if not column.is_spread:
        return replace(column, parts=[column.value] * len(rows.parts))
    n, n_rows = sum(column.known_counts), sum(rows.known_counts)
    if n != n_rows:
        noun = "label" if column.name == "y" else "weight"
        raise ValueError(f"there must be one {noun} per pair; got {n} {noun}s for {n_rows} pairs.")
    if column.counts == rows.counts:
        return column
    import dask.array as da

    if len(column.parts) == 1 and isinstance(column.parts[0], np.ndarray):
        joined = da.from_array(column.parts[0], chunks=(rows.known_counts,))
    else:
        shaped = zip(column.parts, column.known_counts, strict=True)
        joined = da.concatenate([da.from_delayed(part, (count,), dtype=column.dtype) for part, count in shaped])
    return replace(column, parts=_delayed(joined.rechunk((rows.known_counts,))), counts=rows.counts)


def _rechunked(array: Any) -> Any:
    """The same array with all columns in one chunk."""
    others = {axis: -1 for axis in range(1, array.ndim) if len(array.chunks[axis]) > 1}
    return array.rechunk(others) if others else array


def _delayed(array: Any) -> list[Any]:
    """The chunks as tasks; optimised ones could have the names, but not the meaning, of tasks that a cluster has."""
    parts: list[Any] = array.to_delayed(optimize_graph=False).ravel().tolist()
    return parts


def _counts(array: Any) -> tuple[int, ...] | None:
    return None if any(math.isnan(count) for count in array.chunks[0]) else tuple(map(int, array.chunks[0]))


def _numpy_type(series: Any) -> Any:
    """The type that its values have in NumPy; text and categories are objects."""
    kind = series.dtype
    return kind if isinstance(kind, np.dtype) else np.dtype(object)


def _to_numpy(part: Any) -> Any:
    import dask

    return dask.delayed(np.asarray)(part)


def _together(parts: list[Any]) -> Any:
    import dask

    return dask.delayed(tuple)(parts)


def _with_labels(partitions: Partitions, labels: Any, sample_weight: Any) -> Partitions:
    if labels is not None or sample_weight is not None:
        raise ValueError(
            "opened pairs on a cluster have their own labels and weights; got y or sample_weight. Name the columns "
            "that hold them when you open the pairs (label=, weight=)."
        )
    if not partitions.has_labels:
        raise ValueError(
            "requires y to be passed, but the target y is None: name the column of the opened files that holds the "
            "labels (label=)."
        )
    return partitions


def _load_rows(task: Any, shared: None) -> Partition:
    rows, labels, weights = task
    return Partition(_numbers(rows), np.asarray(labels), _spread(weights, len(rows)))


def _load_tuples(task: Any, points: Any) -> Partition:
    index, labels, weights = task
    tuples: Tuples = unchecked_tuples(np.asarray(points), np.asarray(index), None)
    return Partition(tuples, np.asarray(labels), _spread(weights, len(tuples)))


def _spread(weights: Any, n: int) -> Any:
    return None if weights is None else np.broadcast_to(np.asarray(weights), n)


def _numbers(rows: Any) -> Any:
    """Rows in single or double precision; arrays of other libraries stay what they are."""
    if is_foreign(rows):
        return rows
    if hasattr(rows, "to_numpy"):
        kinds = {str(kind) for kind in rows.dtypes}
        return rows.to_numpy(dtype=np.float32 if kinds == {"float32"} else np.float64, na_value=np.nan)
    array = np.asarray(rows)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
