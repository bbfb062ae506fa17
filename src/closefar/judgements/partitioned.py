"""Judgements in partitions: rows, labels and weights stay where they were loaded, and this process knows their sums."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning

from closefar import arrays
from closefar.arrays import Array, BoolArray, FloatArray, IndexArray
from closefar.engines import Engine, Movable, Ref, TaskResult, by_partition, engine_for
from closefar.judgements.judgements import Judgements, Kind, sample_rows
from closefar.judgements.labels import (
    ALL_WEIGHTS_ARE_ZERO,
    Sides,
    are_far,
    check_class_weights,
    check_weights,
    column_of_labels,
    few_different,
    find_sides,
)
from closefar.judgements.pairs import (
    Columns,
    Partition,
    Partitions,
    check_axes,
    check_names_of_source,
    check_number_of_columns,
    check_pairs,
    check_size,
    check_two_points,
    is_partitioned,
    words_for_sample,
)
from closefar.judgements.tuples import DaskTuples, Tuples, names_of_frame, unchecked_tuples

# ---------------------------------------------------------------------------------------------------------------------
# Dask arrays, frames and series as partitions; nothing is computed but row counts that are not known.


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
    import dask

    of_all = not arrays.is_dask(sample_weight) and np.ndim(sample_weight) == 0  # None, or one weight
    rows, *beside = _counted(
        _rows_of(pairs), _column(labels, "y"), *([] if of_all else [_column(sample_weight, "sample_weight")])
    )
    check_size((sum(rows.counts), int(pairs.shape[-1])), 1)
    columns = [rows.parts, *(_cut(column, rows.counts) for column in beside)]
    columns += [[sample_weight] * len(rows.parts)] if of_all else []
    has_index = isinstance(pairs, DaskTuples)
    return Partitions(
        tuple(dask.delayed(tuple)(some) for count, *some in zip(rows.counts, *columns, strict=True) if count),
        _loaded,
        n_columns=int(pairs.shape[-1]),
        are_pairs=pairs.ndim == 3,
        shared=pairs.points if has_index else None,
        n_rows=tuple(filter(None, rows.counts)),
        feature_names=pairs.feature_names if has_index else names_of_frame(pairs),
        has_weights=sample_weight is not None,
    )


class _Parts(NamedTuple):
    """Rows, or one value per row, in tasks of dask, and how many each has: none yet, where that is not known."""

    name: str
    parts: list[Any]
    counts: tuple[int, ...]
    dtype: Any

    @classmethod
    def of(cls, name: str, array: Any) -> _Parts:
        """The chunks of an array along its first axis."""
        others = {axis: -1 for axis in range(1, array.ndim) if len(array.chunks[axis]) > 1}
        array = array.rechunk(others) if others else array
        counts = () if any(map(math.isnan, array.chunks[0])) else tuple(map(int, array.chunks[0]))
        # Optimised tasks could have the names, but not the meaning, of tasks that a cluster has.
        return cls(name, array.to_delayed(optimize_graph=False).ravel().tolist(), counts, array.dtype)


def _rows_of(pairs: Any) -> _Parts:
    if isinstance(pairs, DaskTuples):
        return _Parts.of("X", pairs.index)
    if hasattr(pairs, "divisions"):
        check_axes(pairs, (2,))
        for name, kind in zip(pairs.columns, pairs.dtypes, strict=True):
            if getattr(kind, "kind", "-") not in _NUMBER_KINDS:
                raise ValueError(
                    f"columns must hold numbers; column {name!r} has type {kind}. Encode it (for instance one-hot) or "
                    "leave it out."
                )
        return _Parts("X", pairs.to_delayed(), (), None)
    check_axes(pairs, (2, 3))
    if pairs.ndim == 3:
        check_two_points(pairs.shape)
    if any(map(math.isnan, pairs.shape[1:])):
        raise ValueError(f"the number of columns must be known; got shape {pairs.shape}. Call compute_chunk_sizes().")
    if pairs.dtype.kind not in _NUMBER_KINDS:
        raise ValueError(f"columns must hold real numbers; got an array of {pairs.dtype}. Convert it to floats.")
    return _Parts.of("X", pairs)


def _column(values: Any, name: str) -> _Parts:
    """One value per row."""
    import dask
    import dask.array as da

    values = values if arrays.is_dask(values) else da.from_array(np.asarray(values), chunks=-1)
    if hasattr(values, "divisions"):
        if values.ndim != 1:
            raise ValueError(f"{name} must be a Series, one value per pair; got a DataFrame. Select its column.")
        # Text and categories are objects in NumPy.
        kind = values.dtype if isinstance(values.dtype, np.dtype) else np.dtype(object)
        return _Parts(name, [dask.delayed(np.asarray)(part) for part in values.to_delayed()], (), kind)
    if values.ndim == 2 and values.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape of y to (n_samples,), "
            "for example using ravel().",
            DataConversionWarning,
            stacklevel=2,
        )
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(f"{name} must hold one value per pair; got shape {tuple(values.shape)}.")
    return _Parts.of(name, values)


def _counted(*given: _Parts) -> list[_Parts]:
    """The same with the row count of each part; those that are not known are computed together."""
    import dask

    unknown = [part for each in given if not each.counts for part in each.parts]
    found = iter(engine_for().compute([dask.delayed(len)(part) for part in unknown]) if unknown else ())
    return [each if each.counts else each._replace(counts=tuple(islice(found, len(each.parts)))) for each in given]


def _cut(column: _Parts, counts: tuple[int, ...]) -> list[Any]:
    """The same values in parts of as many rows as those of the pairs."""
    import dask.array as da

    n, n_rows = sum(column.counts), sum(counts)
    if n != n_rows:
        noun = "label" if column.name == "y" else "weight"
        raise ValueError(f"there must be one {noun} per pair; got {n} {noun}s for {n_rows} pairs.")
    if column.counts == counts:
        return column.parts
    shaped = zip(column.parts, column.counts, strict=True)
    joined = da.concatenate([da.from_delayed(part, (count,), dtype=column.dtype) for part, count in shaped])
    return _Parts.of(column.name, joined.rechunk((counts,))).parts


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


def _loaded(task: Any, points: Any) -> Partition:
    """A partition from rows or, where there are points, from an index of them."""
    rows, labels, weights = task
    data = _numbers(rows) if points is None else unchecked_tuples(np.asarray(points), np.asarray(rows), None)
    spread = None if weights is None else np.broadcast_to(np.asarray(weights), len(data))
    return Partition(data, np.asarray(labels), spread)


def _numbers(rows: Any) -> Any:
    """Rows in single or double precision; arrays of other libraries stay what they are."""
    if arrays.is_foreign(rows):
        return rows
    if hasattr(rows, "to_numpy"):
        kinds = {str(kind) for kind in rows.dtypes}
        return rows.to_numpy(dtype=np.float32 if kinds == {"float32"} else np.float64, na_value=np.nan)
    array = np.asarray(rows)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


# ---------------------------------------------------------------------------------------------------------------------
# What is checked of partitions: each is inspected where it is loaded, and this process judges what was found.


_MOST_LABELS = 1000  # that one partition reports; there should be two


@dataclass(frozen=True, eq=False)
class _Inspection:
    """What was found in a partition: a few numbers, which travel in one round trip.

    Attributes
    ----------
    n_rows : int
    labels : array
        The different labels, sorted where they have an order; of very many the first.
    figures : list of lists
        For each of at most two labels the number of rows, of rows of positive weight, and the sums of the weights and
        of their squares.
    problem : str or None
        The message of an error: the first one of all partitions is raised.
    """

    n_rows: int
    labels: NDArray[Any]
    figures: list[list[float]]
    problem: str | None = None


def _inspected(partition: Partition) -> TaskResult:
    n, data = len(partition), partition.data
    try:
        if isinstance(data, Tuples):
            Tuples(data.points, data.index)
        elif n:
            check_pairs(Columns(int(data.shape[-1])), data, fitting=False)
        labels = column_of_labels(partition.labels, n)
        weights = check_weights(partition.weights, n, may_be_zero=True)
    except ValueError as error:
        return TaskResult([_Inspection(n, np.empty(0), [], str(error))])
    different = _different(labels)
    few = different if len(different) <= 2 else different[:0]
    figures = [_figures(weights[np.asarray(labels == label, dtype=bool)]) for label in few]
    return TaskResult([_Inspection(n, different, figures)])


def _figures(weights: FloatArray) -> list[float]:
    return [float(len(weights)), float(np.sum(weights > 0)), float(weights.sum()), float(weights @ weights)]


def _different(labels: Any) -> NDArray[Any]:
    """The different labels; of text and missing values, which have no order, in the order in which they come."""
    if hasattr(labels, "counts"):
        return np.array(list(labels.counts()), dtype=object)
    few = few_different(labels)
    try:
        return np.unique(few)[:_MOST_LABELS]
    except TypeError:
        return np.array(list(dict.fromkeys(few.tolist()))[:_MOST_LABELS], dtype=object)


def _figures_by_side(inspection: _Inspection, sides: Sides) -> FloatArray:
    found = np.zeros((2, 4))
    for label, line in zip(inspection.labels, inspection.figures, strict=False):
        found[_FAR if label == sides.far else _CLOSE] = line
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Partitions as tasks of dask: what is asked of each, and a sample of their rows in the memory of this process.


def mapped_partitions(partitions: Partitions, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
    """Return a task of dask for each partition, which loads it and calls the function; nothing is computed.

    The columns are further arguments, one for each partition.
    """
    try:
        import dask
    except ImportError as error:
        raise ImportError("Answers for partitions need dask: run pip install 'closefar[dask]'.") from error

    shared = None if partitions.shared is None else dask.delayed(partitions.shared, pure=True)
    load, ask = dask.delayed(partitions.load, pure=True), dask.delayed(function, pure=True)
    return [ask(load(task, shared), *given) for task, *given in zip(partitions.tasks, *columns, strict=True)]


def counted_partitions(partitions: Partitions) -> Partitions:
    """Return the partitions with their row counts, which are computed if they are not known."""
    if partitions.n_rows is not None:
        return partitions
    counts = engine_for(partitions.client).compute(mapped_partitions(partitions, len))
    return replace(partitions, n_rows=tuple(counts))


def sample_partitions(partitions: Partitions, most: int, seed: int = 0) -> Partition:
    """Return all rows or, of more than `most`, so many at random, in their order: those of arrays with all rows."""
    counts, shared = np.array(counted_partitions(partitions).n_rows), partitions.shared
    within, _ = by_partition(sample_rows(int(counts.sum()), most, seed), np.cumsum([0, *counts]))
    elsewhere = [shared] if hasattr(shared, "dask") else []
    tasks = mapped_partitions(partitions, _taken, within)
    found = engine_for(partitions.client).compute([*tasks, *elsewhere])
    points = found[-1] if elsewhere else shared
    parts: list[Partition] = [part for part in found[: len(tasks)] if len(part)]
    data = np.concatenate([part.data for part in parts])
    weights = [part.weights for part in parts if part.weights is not None]
    return Partition(
        data if points is None else Tuples(points, data),
        np.concatenate([np.asarray(part.labels) for part in parts]),
        np.concatenate(weights) if weights else None,
    )


def _taken(partition: Partition, rows: IndexArray) -> Partition:
    """Some rows of a partition; of pairs by index the index."""
    data = partition.data.index if isinstance(partition.data, Tuples) else partition.data
    labels = None if partition.labels is None else np.asarray(partition.labels)[rows]
    weights = None if partition.weights is None else partition.weights[rows]
    return Partition(data[rows], labels, weights)


# Of more judgements, questions that need them in this process use a sample of this size.
MOST_IN_MEMORY = 100_000

# The axes of figures: partitions, sides, and what is counted or summed.
_CLOSE, _FAR = 0, 1
_NUMBER, _POSITIVE, _WEIGHT, _SQUARES = range(4)


@dataclass(frozen=True, eq=False)
class Labelled(Movable):
    """The judgements of one partition, where they are stored.

    `signs` are +1 for far and -1 for close, `shares` the weights divided by the sum of all partitions', and
    `numbers` are the row numbers within the partition as it was loaded, if some were left out.
    """

    data: Any
    labels: Any
    signs: NDArray[np.int8]
    shares: FloatArray
    numbers: IndexArray | None

    @property
    def nbytes(self) -> int:
        """The memory beyond that of the partition as it was loaded."""
        own = 0 if self.numbers is None else int(getattr(self.data, "nbytes", 0))
        return own + self.signs.nbytes + self.shares.nbytes


@dataclass(frozen=True, eq=False)
class LoadedRows:
    """The rows of judgements in the partitions of an engine.

    `refs` are those of `Labelled` judgements; `device` is the one that each partition is taken to where it is stored.
    """

    engine: Engine
    refs: Sequence[Ref]
    counts: tuple[int, ...]
    n_columns: int
    are_pairs: bool
    is_single: bool
    device: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(self.counts), 2, self.n_columns) if self.are_pairs else (sum(self.counts), self.n_columns)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return sum(self.counts)

    def take_rows(self, indices: IndexArray) -> NDArray[Any]:
        """Return the rows at these indices, in this process."""
        return self.at(indices, "data")[0]

    def at(self, indices: IndexArray, *names: str) -> list[NDArray[Any]]:
        """Return what the judgements at these indices have under these names: one round trip."""
        within, order = by_partition(indices, np.cumsum([0, *self.counts]))
        found, _ = self.engine.run(partial(_picked, names), self.refs, within, combine=_stacked)
        return [each if order is None else each[order] for each in found]


class PartitionedJudgements(Judgements):
    """Judgements whose rows, labels and weights stay in the partitions of an engine.

    A fit needs only sums over them.  Labels and weights as arrays come to this process when they are asked for.
    """

    engine: Engine
    partitions: Partitions
    refs: Sequence[Ref]
    figures: FloatArray
    factors: tuple[float, float]
    only_counted: bool
    device: Any

    def __init__(
        self, engine: Engine, partitions: Partitions, refs: Sequence[Ref], figures: FloatArray, sides: Sides
    ) -> None:
        """Take loaded partitions, and their figures: an array of shape (partitions, sides, figures) of `_figures`."""
        vars(self).update(engine=engine, partitions=partitions, refs=refs, figures=figures, sides=sides, taken=None)
        vars(self).update(factors=(1.0, 1.0), only_counted=False, device=None)

    def _but(self, **changes: Any) -> PartitionedJudgements:
        """The same judgements with other factors, on another device, or those alone that count."""
        found = PartitionedJudgements(self.engine, self.partitions, self.refs, self.figures, self.sides)
        vars(found).update(factors=self.factors, only_counted=self.only_counted, device=self.device)
        vars(found).update(changes)
        return found

    @classmethod
    def load(
        cls, estimator: Any, partitions: Partitions, *, far_label: Any = None, stacklevel: int = 3
    ) -> PartitionedJudgements:
        """Load partitions, on a cluster if there is one, and validate them for an estimator: one round trip."""
        engine = engine_for(partitions.client)
        refs = engine.load(partitions.load, partitions.tasks, partitions.shared)
        found, _ = engine.run(_inspected, refs, combine=_chained)
        for number, inspection in enumerate(found):
            if inspection.problem is not None:
                raise ValueError(f"{inspection.problem}\nThis is in partition {number} of {len(partitions)}, from 0.")
        check_size((sum(inspection.n_rows for inspection in found), partitions.n_columns), 2)
        labels = [inspection.labels for inspection in found if len(inspection.labels)]
        sides = find_sides(np.concatenate(labels), far_label, stacklevel=stacklevel + 1)
        figures = np.array([_figures_by_side(inspection, sides) for inspection in found])
        if not figures[:, :, _POSITIVE].any():
            raise ValueError(ALL_WEIGHTS_ARE_ZERO)
        check_number_of_columns(estimator, partitions.n_columns, fitting=True)
        check_names_of_source(estimator, partitions.feature_names, fitting=True)
        return cls(engine, partitions, refs, figures, sides)

    def __len__(self) -> int:
        return int(sum(self._counts))

    def __repr__(self) -> str:
        return f"PartitionedJudgements({len(self):,} of {self.n_columns} columns, in {len(self.refs):,} partitions)"

    @property
    def kind(self) -> Kind:
        return Kind.CLOSE_FAR

    @property
    def n_columns(self) -> int:
        return self.partitions.n_columns

    @cached_property
    def data(self) -> LoadedRows:
        """The rows, of partitions that are not empty."""
        label = partial(_labelled, self.sides, self.factors, 1.0 / self.total_weight, self.only_counted)
        used = [number for number, count in enumerate(self._counts) if count]
        refs = self.engine.keep(label, [self.refs[number] for number in used])
        counts = tuple(int(self._counts[number]) for number in used)
        partitions = self.partitions
        return LoadedRows(
            self.engine, refs, counts, partitions.n_columns, partitions.are_pairs, partitions.is_single, self.device
        )

    def on(self, device: Any) -> PartitionedJudgements:
        """The same judgements, which are computed with on this device of each worker."""
        return self if device is None else self._but(device=device)

    @property
    def n_far(self) -> int:
        return int(self.figures[:, _FAR, int(self.only_counted)].sum())

    @property
    def is_uniform(self) -> bool:
        return not self.partitions.has_weights and self.factors == (1.0, 1.0)

    @property
    def effective_number(self) -> float:
        squares = self.figures[:, :, _SQUARES].sum(axis=0) @ np.square(self.factors)
        return float(self.total_weight**2 / squares)

    def signs_in(self, rows: Any) -> Array:
        return rows.stored(self.data.refs, "signs")

    def shares_in(self, rows: Any) -> Array:
        return rows.stored(self.data.refs, "shares")

    def numbers_of(self, indices: IndexArray) -> IndexArray:
        if not self.only_counted:
            return indices
        (within,) = self.data.at(indices, "numbers")
        loaded, counted = (np.cumsum([0, *counts]) for counts in (self._loaded_counts, self._counts))
        starts = loaded.astype(np.intp)[np.searchsorted(counted, indices, side="right") - 1]
        return np.asarray(starts + within, dtype=np.intp)

    def weighted(self, class_weight: Any) -> Judgements:
        if class_weight is None:
            return self
        return self._but(factors=self._class_weights(class_weight), only_counted=False)

    def counted(self) -> Judgements:
        is_counted = self.figures[:, :, _POSITIVE] * (np.array(self.factors) > 0)
        return self if np.array_equal(is_counted, self.figures[:, :, _NUMBER]) else self._but(only_counted=True)

    @property
    def totals(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The number, and the weight, of all pairs of each side."""
        return self.figures[:, :, _NUMBER].sum(axis=0), self.figures[:, :, _WEIGHT].sum(axis=0) * self.factors

    def take(self, where: IndexArray) -> Judgements:
        """These judgements alone, in this process: one round trip."""
        data, labels, signs, shares = self.data.at(where, "data", "labels", "signs", "shares")
        weights = np.broadcast_to(1.0, len(where)) if self.is_uniform else shares * self.total_weight
        return Judgements(data, labels, signs > 0, weights, self.sides, self.numbers_of(where))

    def in_memory(self) -> Judgements:
        """All judgements in this process or, of very many, a sample."""
        return self.sample(MOST_IN_MEMORY, seed=0)

    # Arrays in this process, for what is not computed where the judgements are.

    @cached_property
    def labels(self) -> NDArray[Any]:
        return self._gathered("labels")

    @cached_property
    def is_far(self) -> BoolArray:
        return self._gathered("signs") > 0

    @cached_property
    def weights(self) -> FloatArray:
        if self.is_uniform:
            return np.broadcast_to(1.0, len(self))
        weights: FloatArray = self._gathered("shares") * self.total_weight
        return weights

    def _gathered(self, name: str) -> NDArray[Any]:
        (found,), _ = self.engine.run(partial(_picked, [name], indices=slice(None)), self.data.refs, combine=_stacked)
        return np.asarray(found)

    def _class_weights(self, class_weight: Any) -> tuple[float, float]:
        if class_weight == "balanced":
            counts = self.figures[:, :, _NUMBER].sum(axis=0)
            close, far = counts.sum() / (2.0 * counts)
        else:
            close, far = check_class_weights(class_weight, np.array([self.sides.close, self.sides.far]))
        return float(close), float(far)

    @property
    def total_weight(self) -> float:
        return float(self.figures[:, :, _WEIGHT].sum(axis=0) @ np.array(self.factors))

    @property
    def _loaded_counts(self) -> FloatArray:
        counts: FloatArray = self.figures[:, :, _NUMBER].sum(axis=1)
        return counts

    @property
    def _counts(self) -> FloatArray:
        """The number of judgements of each partition."""
        if not self.only_counted:
            return self._loaded_counts
        counts: FloatArray = self.figures[:, :, _POSITIVE] @ (np.array(self.factors) > 0)
        return counts


def _labelled(
    sides: Sides, factors: tuple[float, float], share: float, only_counted: bool, partition: Partition
) -> Labelled:
    is_far = are_far(partition.labels, sides)
    n, numbers = len(partition), None
    if partition.weights is None and factors == (1.0, 1.0):
        shares = np.full(n, share)
    else:
        given = np.ones(n) if partition.weights is None else arrays.to_numpy(partition.weights)
        shares = given * (share * np.where(is_far, factors[_FAR], factors[_CLOSE]))
    data, labels, signs = partition.data, partition.labels, np.where(is_far, np.int8(1), np.int8(-1))
    if only_counted:
        numbers = np.flatnonzero(shares > 0)
        data, labels = arrays.take_rows(data, numbers), labels[numbers]
        signs, shares = signs[numbers], shares[numbers]
    return Labelled(data, labels, signs, shares, numbers)


def _picked(names: Sequence[str], labelled: Labelled, indices: Any) -> TaskResult:
    return TaskResult([_rows(labelled, name, indices) for name in names])


def _rows(labelled: Labelled, name: str, indices: Any) -> NDArray[Any]:
    values = getattr(labelled, name)
    if name != "data":
        return np.asarray(values[indices])
    if arrays.is_indexed(values):
        points: NDArray[Any] = np.asarray(values.points)[np.asarray(values.index)[indices]]
        return points
    return arrays.to_numpy(arrays.take_rows(values, indices))


def _chained(results: Sequence[list[Any]]) -> list[Any]:
    return [entry for result in results for entry in result]


def _stacked(results: Sequence[list[NDArray[Any]]]) -> list[NDArray[Any]]:
    return [np.concatenate(each) for each in zip(*results, strict=True)]


# ---------------------------------------------------------------------------------------------------------------------
# The training data of a learner as judgements, in this process or in partitions.


def read_judgements(
    estimator: Any, X: Any, y: Any, sample_weight: Any = None, *, stacklevel: int = 3, **options: Any
) -> Judgements:
    """Validate the training data of an estimator, as `Judgements.read` does; data in partitions stays there."""
    if not is_partitioned(X):
        return Judgements.read(estimator, X, y, sample_weight, stacklevel=stacklevel + 1, **options)
    for option, name in (("is_graded", "levels"), ("annotators", "annotators"), ("comparisons", "comparisons")):
        if options.get(option) is not None and options[option] is not False:
            raise ValueError(
                f"{name} need pairs in memory; got {type(X).__name__}, whose rows are computed elsewhere. Pass a "
                f"sample: {words_for_sample(X)}."
            )
    partitions, far = partitions_of(X, y, sample_weight), options.get("far_label")
    return PartitionedJudgements.load(estimator, partitions, far_label=far, stacklevel=stacklevel + 1)
