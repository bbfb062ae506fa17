"""Answers on dask data: dask arrays, of which nothing is computed until they are."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray, is_dask
from closefar.engines import engine_for
from closefar.judgements import (
    Columns,
    DaskTuples,
    Partition,
    Partitions,
    Tuples,
    is_partitioned,
    mapped_partitions,
    partitions_of,
)
from closefar.judgements.frames import names_of_frame

__all__ = ["accuracy_on_cluster", "lazy_on_dask"]

Method = Callable[..., NDArray[Any]]


def lazy_on_dask(method: Method) -> Method:
    """Make a method that returns something for each pair return a dask array where the pairs are dask's."""

    @wraps(method)
    def answer(learner: Any, X: Any, annotator: Any = None) -> Any:
        if not is_partitioned(X):
            return method(learner, X) if annotator is None else method(learner, X, annotator)
        fitted = _checked(learner, X)
        function = getattr(fitted, method.__name__)
        if annotator is not None:
            function = partial(function, annotator=_one(annotator))
        return _mapped(_Blocks.of(function, fitted.n_features_in_), X, method.__name__)

    return answer


def _one(annotator: Any) -> Any:
    if not isinstance(annotator, str) and np.ndim(annotator) != 0:
        raise ValueError(
            f"annotator must be one id for all pairs of a dask collection; got {np.size(annotator)} values. Pass one, "
            "or pairs in memory."
        )
    return annotator


def accuracy_on_cluster(learner: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """Return the accuracy of the predictions for dask data: the rows stay where they are, sums are computed."""
    partitions = partitions_of(X, y, sample_weight)
    tasks = mapped_partitions(partitions, partial(_count_right, _checked(learner, X)))
    counted = engine_for(partitions.client).compute(tasks)
    right, total = np.sum(counted, axis=0)
    return float(right / total)


@dataclass(frozen=True)
class _Blocks:
    """A function of the pairs in memory, and what it gives: the type, and the shape for one pair."""

    function: Callable[[Any], NDArray[Any]]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    shape_of_pairs: tuple[int, ...]

    @classmethod
    def of(cls, function: Callable[[Any], NDArray[Any]], n_columns: int) -> _Blocks:
        one, two = function(np.zeros((1, n_columns))), function(np.zeros((1, 2, n_columns)))
        return cls(function, one.dtype, one.shape[1:], two.shape[1:])

    def __call__(self, rows: Any) -> NDArray[Any]:
        if len(rows) == 0:
            return np.empty((0, *self.shape_for(rows)), dtype=self.dtype)
        return self.function(rows)

    def of_index(self, index: NDArray[Any], points: Any) -> NDArray[Any]:
        return self(Tuples(np.asarray(points), index))

    def of_partition(self, partition: Partition) -> NDArray[Any]:
        return self(partition.data)

    def shape_for(self, rows: Any) -> tuple[int, ...]:
        return self.shape_of_pairs if rows.ndim == 3 else self.shape


def _mapped(blocks: _Blocks, X: Any, name: str) -> Any:
    """The answers to the chunks of the pairs, as chunks of a dask array."""
    if isinstance(X, Partitions):
        return _joined(X, blocks)
    import dask
    import dask.array as da

    array: Any = X
    function: Callable[..., NDArray[Any]] = blocks
    others: dict[str, Any] = {}
    if isinstance(X, DaskTuples):
        array, function, others = X.index, blocks.of_index, {"points": dask.delayed(X.points, pure=True)}
    elif hasattr(X, "divisions"):
        array = X.astype(np.float64).to_dask_array()
    array = array.rechunk({axis: -1 for axis in range(1, array.ndim) if len(array.chunks[axis]) > 1})
    shape = blocks.shape_for(X)
    return da.map_blocks(
        function,
        array,
        **others,
        token=name,
        drop_axis=list(range(1, array.ndim)),
        new_axis=list(range(1, 1 + len(shape))),
        chunks=(array.chunks[0], *((size,) for size in shape)),
        dtype=blocks.dtype,
        meta=np.empty((0,) * (1 + len(shape)), dtype=blocks.dtype),
    )


def _joined(partitions: Partitions, blocks: _Blocks) -> Any:
    import dask.array as da

    shape = blocks.shape_of_pairs if partitions.are_pairs else blocks.shape
    counts = partitions.n_rows or (np.nan,) * len(partitions)
    parts = zip(mapped_partitions(partitions, blocks.of_partition), counts, strict=True)
    return da.concatenate(
        [da.from_delayed(part, (count, *shape), dtype=blocks.dtype) for part, count in parts],
        allow_unknown_chunksizes=True,
    )


def _count_right(learner: Any, partition: Partition) -> FloatArray:
    if len(partition) == 0:
        return np.zeros(2)
    is_right = learner.predict(partition.data) == np.asarray(partition.labels)
    weights = np.ones(len(partition)) if partition.weights is None else partition.weights
    return np.array([np.sum(weights[is_right]), np.sum(weights)])


def _checked(learner: Any, X: Any) -> Any:
    """The learner as it is now, without its training pairs and the names of columns, once X has its columns."""
    fit = learner._fitted()
    n_columns = X.n_columns if isinstance(X, Partitions) else int(X.shape[-1])
    if n_columns != learner.n_features_in_:
        raise ValueError(
            f"pairs must have the {learner.n_features_in_} columns that {type(learner).__name__} was fitted with; "
            f"got {n_columns}."
        )
    names = X.feature_names if isinstance(X, Partitions | DaskTuples) else names_of_frame(X)
    if names is not None or (is_dask(X) and X.ndim == 2):
        Columns.of(learner).check_names(names)
    fitted = copy(learner)
    fitted.fit_ = fit.without_judgements()
    vars(fitted).pop("feature_names_in_", None)
    return fitted
