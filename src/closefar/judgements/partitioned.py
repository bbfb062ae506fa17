"""Judgements in partitions: rows, labels and weights stay where they were loaded, and this process knows their sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import Array, BoolArray, FloatArray, IndexArray, is_indexed, take_rows, to_numpy
from closefar.engines import Engine, Movable, TaskResult, by_partition, engine_for
from closefar.engines.engine import Ref
from closefar.judgements.inspection import Inspection, check_inspections, inspect
from closefar.judgements.judgements import Judgements
from closefar.judgements.kinds import Kind
from closefar.judgements.labels import Sides, are_far, check_class_weights
from closefar.judgements.partitions import Partition, Partitions

__all__ = ["LoadedRows", "PartitionedJudgements"]

# Of more judgements, questions that need them in this process use a sample of this size.
MOST_IN_MEMORY = 100_000

_CLOSE, _FAR = 0, 1


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
        self,
        engine: Engine,
        partitions: Partitions,
        refs: Sequence[Ref],
        figures: FloatArray,
        sides: Sides,
        factors: tuple[float, float] = (1.0, 1.0),
        *,
        only_counted: bool = False,
        device: Any = None,
    ) -> None:
        """Take loaded partitions, and their figures: an array of shape (partitions, sides, figures) of `_figures`."""
        vars(self).update(
            engine=engine,
            partitions=partitions,
            refs=refs,
            figures=figures,
            sides=sides,
            taken=None,
            factors=factors,
            only_counted=only_counted,
            device=device,
        )

    @classmethod
    def load(
        cls, estimator: Any, partitions: Partitions, *, far_label: Any = None, stacklevel: int = 3
    ) -> PartitionedJudgements:
        """Load partitions, on a cluster if there is one, and validate them for an estimator: one round trip."""
        engine = engine_for(partitions.client)
        refs = engine.load(partitions.load, partitions.tasks, partitions.shared)
        inspections, _ = engine.run(_inspected, refs, combine=_chained)
        found = [inspection for inspection, _ in inspections]
        sides = check_inspections(estimator, partitions, found, far_label, stacklevel=stacklevel + 1)
        figures = np.array([_by_side(each, figures, sides) for each, figures in inspections])
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
        label = partial(_labelled, self.sides, self.factors, 1.0 / self._total, self.only_counted)
        used = [number for number, count in enumerate(self._counts) if count]
        refs = self.engine.keep(label, [self.refs[number] for number in used])
        counts = tuple(int(self._counts[number]) for number in used)
        partitions = self.partitions
        return LoadedRows(
            self.engine, refs, counts, partitions.n_columns, partitions.are_pairs, partitions.is_single, self.device
        )

    def on(self, device: Any) -> PartitionedJudgements:
        """The same judgements, which are computed with on this device of each worker."""
        return self._but(only_counted=self.only_counted, device=device)

    @property
    def n_far(self) -> int:
        return int(self.figures[:, _FAR, int(self.only_counted)].sum())

    @property
    def is_uniform(self) -> bool:
        return not self.partitions.has_weights and self.factors == (1.0, 1.0)

    @property
    def effective_number(self) -> float:
        squares = self.figures[:, :, 3].sum(axis=0) @ np.square(self.factors)
        return float(self._total**2 / squares)

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
        return self._but(factors=self._class_weights(class_weight))

    def counted(self) -> Judgements:
        is_counted = self.figures[:, :, 1] * (np.array(self.factors) > 0)
        return self if np.array_equal(is_counted, self.figures[:, :, 0]) else self._but(only_counted=True)

    def check_both_count(self) -> None:
        """Partitions in which only one class has positive weight were refused; class weights may be zero."""
        for factor, label in zip(self.factors, (self.sides.close, self.sides.far), strict=True):
            if factor == 0.0:
                raise ValueError(
                    f"both classes need a pair of positive weight; every pair of class {label} has weight 0. "
                    "Raise some of those weights or leave sample_weight out."
                )

    def take(self, where: IndexArray) -> Judgements:
        """These judgements alone, in this process: one round trip."""
        data, labels, signs, shares = self.data.at(where, "data", "labels", "signs", "shares")
        weights = np.broadcast_to(1.0, len(where)) if self.is_uniform else shares * self._total
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
        is_far: BoolArray = self._gathered("signs") > 0
        return is_far

    @cached_property
    def weights(self) -> FloatArray:
        if self.is_uniform:
            return np.broadcast_to(1.0, len(self))
        weights: FloatArray = self._gathered("shares") * self._total
        return weights

    def _gathered(self, name: str) -> NDArray[Any]:
        (found,), _ = self.engine.run(partial(_all, name), self.data.refs, combine=_stacked)
        return np.asarray(found)

    def _but(
        self, *, factors: tuple[float, float] | None = None, only_counted: bool = False, device: Any = None
    ) -> PartitionedJudgements:
        return PartitionedJudgements(
            self.engine,
            self.partitions,
            self.refs,
            self.figures,
            self.sides,
            self.factors if factors is None else factors,
            only_counted=only_counted,
            device=self.device if device is None else device,
        )

    def _class_weights(self, class_weight: Any) -> tuple[float, float]:
        if class_weight == "balanced":
            counts = self.figures[:, :, 0].sum(axis=0)
            close, far = counts.sum() / (2.0 * counts)
        else:
            close, far = check_class_weights(class_weight, np.array([self.sides.close, self.sides.far]))
        return float(close), float(far)

    @property
    def total_weight(self) -> float:
        return self._total

    @property
    def _total(self) -> float:
        """The sum of the weights."""
        return float(self.figures[:, :, 2].sum(axis=0) @ np.array(self.factors))

    @property
    def _loaded_counts(self) -> FloatArray:
        counts: FloatArray = self.figures[:, :, 0].sum(axis=1)
        return counts

    @property
    def _counts(self) -> FloatArray:
        """The number of judgements of each partition."""
        if not self.only_counted:
            return self._loaded_counts
        counts: FloatArray = self.figures[:, :, 1] @ (np.array(self.factors) > 0)
        return counts


def _inspected(partition: Partition) -> TaskResult:
    inspection = inspect(partition)
    figures = [] if inspection.problem is not None else [_figures(partition, label) for label in inspection.labels[:2]]
    return TaskResult([(inspection, figures)])


def _figures(partition: Partition, label: Any) -> list[float]:
    """The number of rows with a label, that of positive weights, the sum of the weights and that of their squares."""
    chosen = np.asarray(partition.labels == label, dtype=bool)
    n = float(chosen.sum())
    if partition.weights is None:
        return [n, n, n, n]
    weights = np.asarray(to_numpy(partition.weights), dtype=np.float64)[chosen]
    return [n, float(np.sum(weights > 0)), float(weights.sum()), float(weights @ weights)]


def _by_side(inspection: Inspection, figures: list[list[float]], sides: Sides) -> FloatArray:
    found = np.zeros((2, 4))
    for label, line in zip(inspection.labels, figures, strict=False):
        found[_FAR if label == sides.far else _CLOSE] = line
    return found


def _labelled(
    sides: Sides, factors: tuple[float, float], share: float, only_counted: bool, partition: Partition
) -> Labelled:
    is_far = are_far(partition.labels, sides)
    n, numbers = len(partition), None
    if partition.weights is None and factors == (1.0, 1.0):
        shares = np.full(n, share)
    else:
        given = np.ones(n) if partition.weights is None else to_numpy(partition.weights)
        shares = given * (share * np.where(is_far, factors[_FAR], factors[_CLOSE]))
    data, labels, signs = partition.data, partition.labels, np.where(is_far, np.int8(1), np.int8(-1))
    if only_counted:
        numbers = np.flatnonzero(shares > 0)
        data, labels = take_rows(data, numbers), labels[numbers]
        signs, shares = signs[numbers], shares[numbers]
    return Labelled(data, labels, signs, shares, numbers)


def _picked(names: Sequence[str], labelled: Labelled, indices: IndexArray) -> TaskResult:
    return TaskResult([_rows(labelled, name, indices) for name in names])


def _all(name: str, labelled: Labelled) -> TaskResult:
    return TaskResult([np.asarray(getattr(labelled, name))])


def _rows(labelled: Labelled, name: str, indices: IndexArray) -> NDArray[Any]:
    values = getattr(labelled, name)
    if name != "data":
        return np.asarray(values)[indices]
    if is_indexed(values):
        points: NDArray[Any] = np.asarray(values.points)[np.asarray(values.index)[indices]]
        return points
    return to_numpy(take_rows(values, indices))


def _chained(results: Sequence[list[Any]]) -> list[Any]:
    return [entry for result in results for entry in result]


def _stacked(results: Sequence[list[NDArray[Any]]]) -> list[NDArray[Any]]:
    return [np.concatenate(arrays) for arrays in zip(*results, strict=True)]
