"""Judgements in partitions: rows, answers and weights stay where they were loaded; this process knows their sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d

from closefar import arrays
from closefar.arrays import Array, FloatArray, IndexArray
from closefar.cluster import Cluster, Movable, Ref, by_partition, chained, cluster_for, stacked
from closefar.judgements.checks import (
    ALL_WEIGHTS_ARE_ZERO,
    Columns,
    Partition,
    Partitions,
    Sides,
    check_axes,
    check_class_weights,
    check_columns,
    check_pairs,
    check_shape,
    check_size,
    check_weights,
    checked_order,
    codes_of,
    column_of_labels,
    different_labels,
    different_levels,
    find_levels,
    find_sides,
    is_partitioned,
    level_codes,
)
from closefar.judgements.judgements import (
    Annotators,
    Judgements,
    Kind,
    check_columns_compared,
    check_comparisons,
    check_legs_differ,
    check_shape_of_comparisons,
    given_comparisons,
    names_in_order,
    read_annotators,
    read_answers,
    sample_rows,
)
from closefar.judgements.tuples import DaskTuples, Tuples, names_of_frame, unchecked_tuples

# ---------------------------------------------------------------------------------------------------------------------
# Dask arrays, frames and series as partitions; nothing is computed but row counts that are not known.


_NUMBER_KINDS = "biuf"


def partitions_of(
    data: Any, labels: Any = None, sample_weight: Any = None, annotators: Any = None, *, compares: bool = False
) -> Partitions:
    """Return dask arrays, frames or tuples by index, with their labels, weights and annotators, as partitions.

    The partitions are the chunks of the data along their rows.  What is beside them may have other chunks, which are
    cut along those, or be in memory.  Row counts that are not known, as of frames, are found in one computation.
    Comparisons need no labels.
    """
    if isinstance(data, Partitions):
        return _with_labels(data, labels, sample_weight, annotators)
    if labels is None and not compares:
        raise ValueError("requires y to be passed, but the target y is None: give one close/far label per pair.")
    noun, term = ("comparison", "answer") if compares else ("pair", "label")
    nouns = {"y": term, "sample_weight": "weight", "annotators": "annotator id"}
    given = {"y": labels, "sample_weight": sample_weight, "annotators": annotators}
    # One weight for all, or nothing, is in each task as it is.
    columns = {name: _column(values, name) for name, values in given.items() if np.ndim(values)}
    rows, *beside = _counted(_rows_of(data, compares=compares), *columns.values())
    counts = rows.chunks[0]
    check_size((len(rows), int(data.shape[-1])), 1, noun)
    for name, column in zip(columns, beside, strict=True):
        if len(column) != len(rows):
            raise ValueError(
                f"there must be one {nouns[name]} per {noun}; got {len(column)} {nouns[name]}s for {len(rows)} {noun}s."
            )
        columns[name] = _blocks(column.rechunk((counts,)))
    lists = [columns.get(name, [values] * len(counts)) for name, values in given.items()]
    used = [some for count, *some in zip(counts, _blocks(rows), *lists, strict=True) if count]
    n_rows = tuple(filter(None, counts))
    return replace(_partitions(data, used), n_rows=n_rows, has_weights=sample_weight is not None)


def unlabelled_partitions(data: Any) -> Partitions:
    """Return dask data to predict for as partitions; nothing is computed, so that row counts may stay unknown."""
    if isinstance(data, Partitions):
        return data
    rows = _rows_of(data, compares=data.ndim == 3 and data.shape[1] > 2)
    counts = rows.chunks[0]
    partitions = _partitions(data, [(block, None, None, None) for block in _blocks(rows)])
    return replace(partitions, n_rows=None if math.isnan(sum(counts)) else counts, has_labels=False)


def _partitions(data: Any, tasks: Sequence[Any]) -> Partitions:
    """Partitions of rows, labels, weights and annotators; each is a task of dask, in memory, or None."""
    import dask

    has_index, n_points = isinstance(data, DaskTuples), int(data.shape[1]) if data.ndim == 3 else 1
    return Partitions(
        tuple(map(dask.delayed(tuple), tasks)),
        _loaded,
        n_columns=int(data.shape[-1]),
        are_pairs=n_points == 2,
        n_points=n_points,
        shared=data.points if has_index else None,
        feature_names=data.feature_names if has_index else names_of_frame(data),
    )


def _blocks(array: Any) -> list[Any]:
    """The chunks of an array along its first axis, which hold all of the others."""
    others = {axis: -1 for axis in range(1, array.ndim) if len(array.chunks[axis]) > 1}
    array = array.rechunk(others) if others else array
    # Optimised tasks could have the names, but not the meaning, of tasks that a cluster has.
    blocks: list[Any] = array.to_delayed(optimize_graph=False).ravel().tolist()
    return blocks


def _counted(*given: Any) -> list[Any]:
    """The same arrays with the row count of each chunk; those that are not known are computed together."""
    import dask
    import dask.array as da

    unknown = [_blocks(array) if math.isnan(sum(array.chunks[0])) else [] for array in given]
    lengths = [dask.delayed(len)(block) for blocks in unknown for block in blocks]
    found = iter(cluster_for().compute(lengths) if lengths else ())
    return [
        da.Array(array.dask, array.name, (tuple(islice(found, len(blocks))), *array.chunks[1:]), array.dtype)
        if blocks
        else array
        for array, blocks in zip(given, unknown, strict=True)
    ]


def _array_of_frame(frame: Any, convert: Callable[[Any], NDArray[Any]], shape: tuple[int, ...], dtype: Any) -> Any:
    """The parts of a frame or series as chunks of an array whose row counts are not known."""
    import dask
    import dask.array as da

    parts = [da.from_delayed(dask.delayed(convert)(part), (math.nan, *shape), dtype) for part in frame.to_delayed()]
    return da.concatenate(parts, allow_unknown_chunksizes=True)


def _rows_of(pairs: Any, *, compares: bool) -> Any:
    """The rows, or the index of their points, as a dask array."""
    if hasattr(pairs, "divisions"):
        check_axes(pairs, (2,))
        for name, kind in zip(pairs.columns, pairs.dtypes, strict=True):
            if getattr(kind, "kind", "-") not in _NUMBER_KINDS:
                raise ValueError(
                    f"columns must hold numbers; column {name!r} has type {kind}. Encode it (for instance one-hot) or "
                    "leave it out."
                )
        return _array_of_frame(pairs, _numbers, (len(pairs.columns),), float)
    (check_shape_of_comparisons if compares else check_shape)(pairs)
    if isinstance(pairs, DaskTuples):
        return pairs.index
    if any(map(math.isnan, pairs.shape[1:])):
        raise ValueError(f"the number of columns must be known; got shape {pairs.shape}. Call compute_chunk_sizes().")
    if pairs.dtype.kind not in _NUMBER_KINDS:
        raise ValueError(f"columns must hold real numbers; got an array of {pairs.dtype}. Convert it to floats.")
    return pairs


def _column(values: Any, name: str) -> Any:
    """One value per row, as a dask array."""
    import dask.array as da

    values = values if arrays.is_dask(values) else da.from_array(np.asarray(values), chunks=-1)
    if hasattr(values, "divisions"):
        if values.ndim != 1:
            raise ValueError(f"{name} must be a Series, one value per pair; got a DataFrame. Select its column.")
        # Text and categories are objects in NumPy.
        kind = values.dtype if isinstance(values.dtype, np.dtype) else np.dtype(object)
        return _array_of_frame(values, np.asarray, (), kind)
    if values.ndim == 2 and values.shape[1] == 1:
        column_or_1d(np.empty((1, 1)), warn=True)  # warns, as of a column in memory
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(f"{name} must hold one value per pair; got shape {tuple(values.shape)}.")
    return values


def _with_labels(partitions: Partitions, labels: Any, sample_weight: Any, annotators: Any) -> Partitions:
    if not (labels is None and sample_weight is None and annotators is None):
        raise ValueError(
            "opened pairs on a cluster have their own labels and weights; got y, sample_weight or annotators. Name the "
            "columns that hold labels and weights when you open the pairs (label=, weight=); annotators need dask "
            "arrays."
        )
    if not partitions.has_labels:
        raise ValueError(
            "requires y to be passed, but the target y is None: name the column of the opened files that holds the "
            "labels (label=)."
        )
    return partitions


def _loaded(task: Any, points: Any) -> Partition:
    """A partition from rows or, where there are points, from an index of them."""
    rows, labels, weights, annotators = task
    data = _numbers(rows) if points is None else unchecked_tuples(np.asarray(points), np.asarray(rows), None)
    spread = None if weights is None else np.broadcast_to(np.asarray(weights), len(data))
    who = None if annotators is None else np.asarray(annotators)
    return Partition(data, None if labels is None else np.asarray(labels), spread, who)


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


_MOST_LABELS = 1000  # that one partition reports; there should be a few

# What is counted or summed for each label: the number of rows, the number of those of positive weight, the sum of the
# weights and the sum of their squares.
_NUMBER, _POSITIVE, _WEIGHT, _SQUARES = range(4)


@dataclass(frozen=True, eq=False)
class _Inspection:
    """What was found in a partition: a few numbers, which travel in one round trip.

    `figures` are counts and sums for each label, and `annotators` the different ids.  `problem` is the message of an
    error: the first one of all partitions is raised.
    """

    n_rows: int
    n_bytes: int = 0
    figures: dict[Any, tuple[float, float, float, float]] = field(default_factory=dict)
    annotators: frozenset[Any] = frozenset()
    problem: str | None = None

    def check(self) -> None:
        if self.problem is not None:
            raise ValueError(self.problem)


def _inspected(kind: Kind, order: list[Any] | None, partition: Partition) -> list[_Inspection]:
    """Check a partition by itself; `order` is that of levels, if it was given."""
    n, data = len(partition), partition.data
    try:
        if isinstance(data, Tuples):
            Tuples(data.points, data.index)
        columns = Columns(int(data.shape[-1]))
        if n and kind is Kind.COMPARISONS:
            check_legs_differ(check_comparisons(columns, data, fitting=False))
        elif n:
            check_pairs(columns, data, fitting=False)
        labels = _labels_of(partition, kind)
        is_graded = kind is Kind.LEVELS
        different = different_levels(labels) if is_graded else set(different_labels(labels).tolist())
        if order is not None:
            level_codes(labels, order)
        weights = check_weights(partition.weights, n, kind.noun, may_be_zero=True)
        who = () if partition.annotators is None else read_annotators(partition.annotators, n).names
    except ValueError as error:
        return [_Inspection(n, problem=str(error))]
    figures = {}
    for label in islice(different, _MOST_LABELS):
        some = weights[np.asarray(labels == label, dtype=bool)]
        figures[label] = float(len(some)), float(np.sum(some > 0)), float(some.sum()), float(some @ some)
    return [_Inspection(n, partition.nbytes, figures, frozenset(who))]


def _labels_of(partition: Partition, kind: Kind) -> Any:
    if kind is Kind.COMPARISONS:
        return read_answers(partition.labels, len(partition))[0]
    return column_of_labels(partition.labels, len(partition))


# ---------------------------------------------------------------------------------------------------------------------
# Partitions as tasks of dask: what is asked of each, and a sample of their rows in the memory of this process.


def mapped_partitions(partitions: Partitions, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
    """Return a task of dask for each partition, which loads it and calls the function; nothing is computed.

    The columns are further arguments, one for each partition.
    """
    import dask

    shared = None if partitions.shared is None else dask.delayed(partitions.shared, pure=True)
    load, ask, n = dask.delayed(partitions.load, pure=True), dask.delayed(in_partition, pure=True), len(partitions)
    return [
        ask(function, number, n, load(task, shared), *given)
        for number, (task, *given) in enumerate(zip(partitions.tasks, *columns, strict=True))
    ]


def in_partition(function: Callable[..., Any], number: int, n_partitions: int, *given: Any) -> Any:
    """Call a function with what a partition has; an error in its data says which partition it is."""
    try:
        return function(*given)
    except ValueError as error:
        raise ValueError(f"{error}\nThis is in partition {number} of {n_partitions}, from 0.") from error


def counted_partitions(partitions: Partitions) -> Partitions:
    """Return the partitions with their row counts, which are computed if they are not known."""
    if partitions.n_rows is not None:
        return partitions
    counts = cluster_for(partitions.client).compute(mapped_partitions(partitions, len))
    return replace(partitions, n_rows=tuple(counts))


def sample_partitions(partitions: Partitions, most: int, seed: int = 0) -> Partition:
    """Return all rows, or a random sample of `most` of them, in their order."""
    counts, shared = np.array(counted_partitions(partitions).n_rows), partitions.shared
    within, _ = by_partition(sample_rows(int(counts.sum()), most, seed), np.cumsum([0, *counts]))
    elsewhere = [shared] if hasattr(shared, "dask") else []
    tasks = mapped_partitions(partitions, _taken, within)
    found = cluster_for(partitions.client).compute([*tasks, *elsewhere])
    points = found.pop() if elsewhere else shared
    data, labels, *weights = stacked([arrays for arrays in found if len(arrays[0])])
    return Partition(data if points is None else Tuples(points, data), labels, *weights)


def _taken(partition: Partition, rows: IndexArray) -> list[NDArray[Any]]:
    """Some rows of a partition, of pairs by index the index, with their labels and weights."""
    data = partition.data.index if isinstance(partition.data, Tuples) else partition.data
    return [np.asarray(each)[rows] for each in (data, partition.labels, partition.weights) if each is not None]


# Of more judgements, questions that need them in this process use a sample of this size.
MOST_IN_MEMORY = 100_000


@dataclass(frozen=True, eq=False)
class Labelled(Movable):
    """The judgements of one partition, where they are stored.

    `codes` are those of the answers, `groups` those of the annotators, `shares` the weights divided by the sum of all
    partitions', and `numbers` are the row numbers within the partition as it was loaded, if some were left out.
    """

    data: Any
    labels: Any
    codes: NDArray[np.int8]
    shares: FloatArray
    groups: NDArray[np.int32]
    numbers: IndexArray | None


@dataclass(frozen=True, eq=False)
class LoadedRows:
    """The rows of judgements in the partitions of a cluster.

    `refs` are those of `Labelled` judgements; `device` is the one that each partition is taken to where it is stored.
    `n_points` is the number of points of a row: one of differences and points, two of pairs, more of comparisons.
    """

    cluster: Cluster
    refs: Sequence[Ref]
    counts: tuple[int, ...]
    n_columns: int
    n_points: int
    is_single: bool
    device: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        n = sum(self.counts)
        return (n, self.n_columns) if self.n_points == 1 else (n, self.n_points, self.n_columns)

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
        found = self.cluster.run(partial(_picked, names), self.refs, within, combine=stacked)
        return [each if order is None else each[order] for each in found]

    def each(self, name: str, more: int = 0) -> list[Ref]:
        """Return what each partition has under this name, with a number added."""
        return self.cluster.keep(partial(_attribute, name, more), self.refs)


class PartitionedJudgements(Judgements):
    """Judgements whose rows, labels and weights stay in the partitions of a cluster.

    A fit needs only sums over them.  Labels and weights as arrays come to this process when they are asked for.
    """

    cluster: Cluster
    partitions: Partitions
    refs: Sequence[Ref]  # to the partitions as they were loaded
    figures: FloatArray  # of shape (partitions, answers, figures)
    sides: Sides
    names: tuple[Any, ...]  # of the annotators
    factors: FloatArray  # by which the weights of each answer are multiplied
    only_counted: bool = False  # leave rows of weight 0 out
    device: Any = None
    comparisons: PartitionedJudgements | None = None

    def __init__(self, **known: Any) -> None:
        vars(self).update(known)

    def _but(self, **changes: Any) -> PartitionedJudgements:
        """The same judgements with other factors, on another device, or those alone that count."""
        known = {name: value for name, value in vars(self).items() if name in PartitionedJudgements.__annotations__}
        return PartitionedJudgements(**known | changes)

    @classmethod
    def load(
        cls,
        estimator: Any,
        data: Any,
        labels: Any = None,
        sample_weight: Any = None,
        *,
        far_label: Any = None,
        levels: Any = None,
        is_graded: bool = False,
        annotators: Any = None,
        comparisons: Any = None,
        compares: bool = False,
        stacklevel: int = 3,
    ) -> PartitionedJudgements:
        """Load partitions, on a cluster if there is one, and validate them for an estimator: one round trip.

        The arguments are those of `Judgements.read`; with `compares` the data are comparisons.
        """
        kind = Kind.COMPARISONS if compares else Kind.LEVELS if is_graded else Kind.CLOSE_FAR
        order = None if levels is None else checked_order(levels)
        partitions = partitions_of(data, labels, sample_weight, annotators, compares=compares)
        cluster = cluster_for(partitions.client)
        refs = cluster.load(partitions.load, partitions.tasks, partitions.shared)
        found = cluster.run(partial(_inspected, kind, order), refs, combine=chained)
        for number, inspection in enumerate(found):
            in_partition(inspection.check, number, len(partitions))
        n = sum(inspection.n_rows for inspection in found)
        check_size((n, partitions.n_columns), 2, kind.noun)
        different = _union([inspection.figures for inspection in found])
        if compares and len(different) > 2:
            raise ValueError(
                f"answers must be +1 and -1, or 1 and 0, in all partitions; got {sorted(different.tolist())}."
            )
        if compares:
            sides = read_answers(different, len(different))[2]
        elif is_graded:
            sides = find_levels(labels, different, order, n=n)
        else:
            sides = find_sides(different, far_label, stacklevel=stacklevel + 1)
        place = dict(zip(different.tolist(), codes_of(different, sides).tolist(), strict=True))
        figures = np.zeros((len(found), len(sides.classes), 4))
        for number, inspection in enumerate(found):
            for label, line in inspection.figures.items():
                figures[number, place[label]] += line
        if not figures[:, :, _POSITIVE].any():
            raise ValueError(ALL_WEIGHTS_ARE_ZERO)
        check_columns(estimator, partitions.n_columns, partitions.feature_names, fitting=True)
        read = cls(
            cluster=cluster,
            partitions=partitions,
            refs=cluster.hold_if_small(3 * sum(inspection.n_bytes for inspection in found), refs),
            figures=figures,
            sides=sides,
            names=names_in_order(set().union(*(inspection.annotators for inspection in found))),
            factors=np.ones(len(sides.classes)),
        )
        return read if comparisons is None else read.with_comparisons(estimator, comparisons)

    def with_comparisons(self, estimator: Any, comparisons: Any) -> PartitionedJudgements:
        """The same pairs with comparisons, of dask or in memory, of an estimator that has learned the columns."""
        import dask.array as da

        data, *rest = given_comparisons(comparisons)
        if not is_partitioned(data):
            read = Judgements.read_comparisons(estimator, data, *rest, fitting=False, beside_pairs=True)
            if isinstance(data, Tuples):
                data = DaskTuples(data.points, da.from_array(np.asarray(data.index), chunks=-1))
            else:
                data = da.from_array(np.asarray(read.data), chunks=-1)
            rest = [read.labels, read.weights]
        check_columns_compared(estimator, data, fitting=False, beside_pairs=True)
        return self._but(comparisons=PartitionedJudgements.load(SimpleNamespace(), data, *rest, compares=True))

    def __len__(self) -> int:
        return int(sum(self._counts))

    def __repr__(self) -> str:
        return f"PartitionedJudgements({len(self):,} of {self.n_columns} columns, in {len(self.refs):,} partitions)"

    @property
    def kind(self) -> Kind:
        if self.sides.is_graded:
            return Kind.LEVELS
        return Kind.COMPARISONS if self.partitions.n_points > 2 else Kind.CLOSE_FAR

    @property
    def n_columns(self) -> int:
        return self.partitions.n_columns

    @cached_property
    def data(self) -> LoadedRows:
        """The rows, of partitions that are not empty."""
        return self._loaded(self.total_weight)

    def _loaded(self, total: float) -> LoadedRows:
        """The rows, with shares of a weight in all."""
        label = partial(_labelled, self.kind, self.sides, self.names, self.factors / total, self.only_counted)
        used = [number for number, count in enumerate(self._counts) if count]
        refs = self.cluster.keep(label, [self.refs[number] for number in used])
        counts = tuple(int(self._counts[number]) for number in used)
        given = self.partitions
        return LoadedRows(self.cluster, refs, counts, given.n_columns, given.n_points, given.is_single, self.device)

    @cached_property
    def compared(self) -> LoadedRows | None:
        """The rows of comparisons beside pairs."""
        return None if self.comparisons is None else self.comparisons._loaded(self.total_weight)

    def on(self, device: Any) -> PartitionedJudgements:
        """The same judgements, which are computed with on this device of each worker."""
        compared = None if self.comparisons is None else self.comparisons.on(device)
        return self if device is None else self._but(device=device, comparisons=compared)

    @property
    def is_uniform(self) -> bool:
        return not self.partitions.has_weights and bool(np.all(self.factors == 1.0))

    @property
    def effective_number(self) -> float:
        squares = self.figures[:, :, _SQUARES].sum(axis=0) @ np.square(self.factors)
        return float(self.totals[1].sum() ** 2 / squares)

    def _in(self, rows: Any, name: str, of_compared: int = 0) -> Array:
        """What the partitions have under a name, as a handle; comparisons beside pairs add a number to it."""
        parts = self.data.each(name)
        return rows.stored(parts if self.compared is None else [*parts, *self.compared.each(name, of_compared)])

    def codes_in(self, rows: Any) -> Array:
        return self._in(rows, "codes", self.n_levels)

    def shares_in(self, rows: Any) -> Array:
        return self._in(rows, "shares")

    def groups_in(self, rows: Any) -> Array:
        return self._in(rows, "groups", len(self.names))

    @cached_property
    def annotators(self) -> Annotators | None:
        return Annotators(self.names, self._gathered("groups").astype(np.intp)) if self.names else None

    def numbers_of(self, indices: IndexArray) -> IndexArray:
        if not self.only_counted:
            return indices
        (within,) = self.data.at(indices, "numbers")
        starts, ends = np.cumsum([0, *self.figures[:, :, _NUMBER].sum(axis=1)]), np.cumsum(self._counts)
        return np.asarray(starts[np.searchsorted(ends, indices, side="right")] + within, dtype=np.intp)

    def weighted(self, class_weight: Any) -> Judgements:
        if class_weight is None:
            return self
        return self._but(factors=self._class_weights(class_weight), only_counted=False)

    def counted(self) -> Judgements:
        is_counted = self.figures[:, :, _POSITIVE] * (self.factors > 0)
        found = self if np.array_equal(is_counted, self.figures[:, :, _NUMBER]) else self._but(only_counted=True)
        compared = None if self.comparisons is None else self.comparisons.counted()
        return found if compared is self.comparisons else found._but(comparisons=compared)

    @property
    def totals(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The number, and the weight, of all pairs of each side, or level."""
        sums = self.figures.sum(axis=0)
        return sums[:, _POSITIVE if self.only_counted else _NUMBER], sums[:, _WEIGHT] * self.factors

    def take(self, where: IndexArray) -> Judgements:
        """These judgements alone, in this process, with all of their comparisons: one round trip."""
        names = ["data", "labels", "codes", "shares", *(["groups"] if self.names else [])]
        data, labels, codes, shares, *groups = self.data.at(where, *names)
        weights = np.broadcast_to(1.0, len(where)) if self.is_uniform else shares * self.total_weight
        return Judgements(
            data,
            labels,
            codes.astype(np.intp),
            weights,
            self.sides,
            self.numbers_of(where),
            annotators=Annotators(self.names, groups[0].astype(np.intp)) if groups else None,
            comparisons=None if self.comparisons is None else self.comparisons.in_memory(),
        )

    def in_memory(self) -> Judgements:
        """All judgements in this process or, of very many, a sample."""
        return self.sample(MOST_IN_MEMORY, seed=0)

    # Arrays in this process, for what is not computed where the judgements are.

    @cached_property
    def labels(self) -> NDArray[Any]:
        return self._gathered("labels")

    @cached_property
    def codes(self) -> IndexArray:
        return self._gathered("codes").astype(np.intp)

    @cached_property
    def weights(self) -> FloatArray:
        if self.is_uniform:
            return np.broadcast_to(1.0, len(self))
        weights: FloatArray = self._gathered("shares") * self.total_weight
        return weights

    def _gathered(self, name: str) -> NDArray[Any]:
        (found,) = self.cluster.run(partial(_picked, [name], where=slice(None)), self.data.refs, combine=stacked)
        return np.asarray(found)

    def _class_weights(self, class_weight: Any) -> FloatArray:
        if class_weight == "balanced":
            counts = self.figures[:, :, _NUMBER].sum(axis=0)
            return np.asarray(counts.sum() / (len(counts) * counts), dtype=np.float64)
        given = self.sides.classes if self.sides.is_graded else np.array([self.sides.close, self.sides.far])
        return check_class_weights(class_weight, given)

    @property
    def total_weight(self) -> float:
        own = float(self.totals[1].sum())
        return own if self.comparisons is None else own + self.comparisons.total_weight

    @property
    def _counts(self) -> FloatArray:
        """The number of judgements of each partition."""
        if self.only_counted:
            return np.asarray(self.figures[:, :, _POSITIVE] @ (self.factors > 0), dtype=np.float64)
        return np.asarray(self.figures[:, :, _NUMBER].sum(axis=1), dtype=np.float64)


def _union(figures: Sequence[dict[Any, Any]]) -> NDArray[Any]:
    """The labels of all partitions, each once."""
    different = list(dict.fromkeys(label for each in figures for label in each))
    kinds = {type(label) for label in different}
    return np.array(different) if len(kinds) == 1 and str not in kinds else np.array(different, dtype=object)


def _labelled(
    kind: Kind, sides: Sides, names: tuple[Any, ...], factors: FloatArray, only_counted: bool, partition: Partition
) -> Labelled:
    data, labels, numbers = partition.data, _labels_of(partition, kind), None
    codes = codes_of(labels, sides)
    shares = factors[codes]
    if partition.weights is not None:
        shares = shares * arrays.to_numpy(partition.weights)
    # Comparisons beside pairs of annotators have nobody, whose number is added to theirs.
    groups = read_annotators(partition.annotators, len(codes), names).codes if names else np.zeros(len(codes))
    if only_counted:
        numbers = np.flatnonzero(shares > 0)
        data, labels = arrays.take_rows(data, numbers), labels[numbers]
        codes, shares, groups = codes[numbers], shares[numbers], groups[numbers]
    return Labelled(data, labels, codes.astype(np.int8), shares, groups.astype(np.int32), numbers)


def _attribute(name: str, more: int, labelled: Labelled) -> NDArray[Any]:
    values: NDArray[Any] = getattr(labelled, name)
    return values + values.dtype.type(more) if more else values


def _picked(names: Sequence[str], labelled: Labelled, where: Any) -> list[NDArray[Any]]:
    values = {name: getattr(labelled, name) for name in names}
    return [
        arrays.to_numpy(arrays.take_rows(each, where)) if name == "data" else np.asarray(each[where])
        for name, each in values.items()
    ]
