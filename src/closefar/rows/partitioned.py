"""Rows in partitions: each is a source of its own, where it is stored, and this process gets sums over all of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import numpy as np

from closefar.arrays import Array, FloatArray, IndexArray, to_numpy
from closefar.cluster import Cluster, Combine, Movable, Ref, TaskResult, by_partition, chained, stacked
from closefar.rows.blocks import BlockRows, held
from closefar.rows.coordinates import condition_of_sums, mapped_rows
from closefar.rows.legs import LegRows, Rows
from closefar.rows.source import Coordinates, RowFunction, Terms, Trait


class Handle:
    """One number, or k numbers, for each row: a task of dask for each partition.

    Sums and multiples of handles take no round trip: they are tasks, too.
    """

    __array_ufunc__ = None  # NumPy's numbers leave arithmetic to the methods below

    def __init__(self, parts: list[Ref]) -> None:
        self.parts = parts

    def __reduce__(self) -> Any:
        raise TypeError("a handle stays in its process: a function that is run on partitions must not refer to it.")

    def _with(self, other: Any, function: Callable[[Any, Any], Any]) -> Handle:
        others = other.parts if isinstance(other, Handle) else [float(other)] * len(self.parts)
        return Handle([function(part, each) for part, each in zip(self.parts, others, strict=True)])

    def __add__(self, other: Any) -> Handle:
        return self._with(other, operator.add)

    def __sub__(self, other: Any) -> Handle:
        return self._with(other, operator.sub)

    def __mul__(self, other: Any) -> Handle:
        return self._with(other, operator.mul)

    def __neg__(self) -> Handle:
        return self * -1.0

    __radd__ = __add__
    __rmul__ = __mul__


# ---------------------------------------------------------------------------------------------------------------------
# What is computed within one partition, in the process that stores it.


@dataclass(frozen=True, eq=False)
class StoredRows(Movable):
    """The rows of a partition."""

    rows: Rows

    def __sizeof__(self) -> int:
        return 64 + 8 * self.rows.legs.n_rows * self.rows.n_columns


class _Place(NamedTuple):
    """Stands for what a partition has of a handle, which has this number among those that are given."""

    number: int


@dataclass(frozen=True, eq=False)
class _Call:
    """A function of the rows of a partition and of arguments, of which those that are a place are given later."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self, stored: StoredRows, *given: Any) -> Any:
        def filled(argument: Any) -> Any:
            if isinstance(argument, _Place):
                return given[argument.number]
            return tuple(map(filled, argument)) if type(argument) is tuple else argument

        return self.function(stored.rows, *map(filled, self.arguments))


def _method(name: str, rows: Rows, *arguments: Any, **parameters: Any) -> Any:
    """What a method of the rows returns."""
    return getattr(rows, name)(*arguments, **parameters)


def _mapped(rows: Rows, coordinates: Coordinates) -> StoredRows:
    return StoredRows(rows.with_legs(mapped_rows(rows.legs, coordinates)))


def _legs(rows: Rows) -> StoredRows:
    return StoredRows(rows.legs)


def _scaled(rows: Rows, scale: float) -> StoredRows:
    return StoredRows(rows.with_scale(scale) if isinstance(rows, LegRows) else rows)


def _taken(rows: Rows, within: IndexArray, arrays: tuple[Array, ...]) -> list[Array]:
    """The legs of the rows at these indices, of shape (m, d), and the numbers of the rows."""
    taken = rows.take_rows(within).legs
    found = np.ascontiguousarray(to_numpy(taken.read(slice(0, taken.n_rows))).T)
    return [found, *_picked(rows, within, arrays)]


def _picked(rows: Rows, within: IndexArray, arrays: tuple[Array, ...]) -> list[Array]:
    return [to_numpy(rows.pick(array, within)) for array in arrays]


def _found(rows: Rows, condition: Callable[..., Array], *arrays: Array) -> list[IndexArray]:
    return [rows.find(condition, *arrays)]


def _numbers_from(rows: Rows, start: int) -> Array:
    return rows.row_array(np.arange(start, start + rows.n_rows, dtype=np.float64))


def _crossed(rows: BlockRows, other: StoredRows, factor: FloatArray, weights: Array) -> FloatArray:
    assert isinstance(other.rows, BlockRows)
    return rows.cross_moment(other.rows, factor, weights)


def _each(rows: Rows, function: RowFunction, *arrays: Array) -> TaskResult:
    return _with_places(rows.each(function, *arrays), None)


def _swept(rows: Rows, function: RowFunction, matrix: FloatArray, *arrays: Array) -> TaskResult:
    return _with_places(*rows.sweep(function, matrix, *arrays))


def _with_places(found: Terms, total: FloatArray | None) -> TaskResult:
    """The sums, with numbers in the places of arrays, which are kept; forms are not, which few sources have."""
    arrays = found.arrays if found.pull is None else (*found.arrays, found.pull)
    places = tuple(range(len(found.arrays)))
    pull = None if found.pull is None else len(places)
    return TaskResult((found._replace(pull=pull, arrays=places, forms=None), total), arrays)


def _kept(outcome: TaskResult, place: int) -> Any:
    return outcome.kept[place]


# How small results are joined, in the order of the partitions.


def _added(results: Sequence[Any]) -> Any:
    """Sums; of tuples and lists, those of each entry."""
    if isinstance(results[0], tuple | list):
        return type(results[0])(map(_added, zip(*results, strict=True)))
    return reduce(operator.add, results)


def _outermost(results: Sequence[tuple[float, float]]) -> tuple[float, float]:
    lowest, highest = zip(*results, strict=True)
    return min(lowest), max(highest)


def _triangle(results: Sequence[FloatArray]) -> FloatArray:
    """The triangular factor of rows whose triangular factors these are."""
    return np.asarray(np.linalg.qr(np.concatenate(results), mode="r"), dtype=np.float64)


def _joined_terms(results: Sequence[tuple[Terms, FloatArray | None]]) -> tuple[Terms, FloatArray | None]:
    terms, totals = zip(*results, strict=True)
    found = terms[0]._replace(sums=_added([each.sums for each in terms]), least=min(each.least for each in terms))
    return found, None if totals[0] is None else _added(totals)


# ---------------------------------------------------------------------------------------------------------------------
# The rows.


def _later(name: str, *, stays: bool = False) -> Callable[..., Any]:
    """A method that returns a handle for what the partitions' rows return from theirs of this name."""

    def method(rows: PartitionedRows, *arguments: Any) -> Handle:
        return rows._handle(partial(_method, name), *arguments, stays=stays)

    return method


def _now(name: str, combine: Combine = _added) -> Callable[..., Any]:
    """A method that joins, in one round trip, what the partitions' rows return from theirs of this name."""

    def method(rows: PartitionedRows, *arguments: Any, **parameters: Any) -> Any:
        return rows._joined(partial(_method, name, **parameters), *arguments, combine=combine)

    return method


class PartitionedRows(BlockRows):
    """Rows in partitions: pairs and, after them, comparisons.  Sums over partitions are added in a fixed order.

    Parameters
    ----------
    cluster : Cluster
    refs : sequence of Ref
        For each partition one to `StoredRows`.
    counts : sequence of int
        The number of rows of each partition.
    n_columns : int
    device : optional
        The device that the rows are on, in each worker.
    n_compared : int
        How many of the last partitions hold comparisons.
    """

    def __init__(
        self,
        cluster: Cluster,
        refs: Sequence[Ref],
        counts: Sequence[int],
        n_columns: int,
        device: Any = None,
        n_compared: int = 0,
    ) -> None:
        super().__init__(sum(counts), n_columns)
        self.cluster = cluster
        self.n_compared = n_compared
        self.scale = 1.0
        self._device = device
        self._refs = list(refs)
        self._counts = tuple(counts)
        self._starts = np.cumsum([0, *counts])

    @property
    def traits(self) -> frozenset[Trait]:
        return frozenset([Trait.PROJECTIONS, Trait.REMOTE])

    @property
    def engine(self) -> str:
        words = self.cluster.describe(len(self._refs))
        return f"{words.removeprefix('NumPy, ')}, torch on {self._device}" if self._device else words

    def in_coordinates(self, coordinates: Coordinates) -> PartitionedRows:
        mapped = self._with_rows(_mapped, coordinates)
        mapped.n_columns, mapped.condition = coordinates.n_directions, condition_of_sums(coordinates)
        return mapped

    # Rows with two legs.

    @property
    def compares(self) -> bool:
        return self.n_compared > 0

    @property
    def n_pairs(self) -> int:
        """The number of rows with one leg."""
        return sum(self._counts[: len(self._counts) - self.n_compared])

    @cached_property
    def legs(self) -> PartitionedRows:
        """The legs of all rows."""
        if not self.compares:
            return self
        found, n = self._with_rows(_legs), len(self._counts) - self.n_compared
        counts = [*self._counts[:n], *(2 * count for count in self._counts[n:])]
        return PartitionedRows(self.cluster, found._refs, counts, self.n_columns, self._device)

    def with_scale(self, scale: float) -> PartitionedRows:
        scaled = self._with_rows(_scaled, scale)
        scaled.scale = scale
        return scaled

    leg_weights = _later("leg_weights")
    leg_signs = _later("leg_signs")

    # Some of the rows, and numbers: they come to this process.

    def read(self, where: slice) -> Array:
        if where.stop <= where.start:
            return np.empty((self.n_columns, 0))
        legs = self.take_rows(np.arange(where.start, where.stop)).legs
        return to_numpy(legs.read(slice(0, where.stop - where.start)))

    def take_rows(self, indices: IndexArray) -> Rows:  # type: ignore[override]
        return self.take(indices)[0]

    def take(self, indices: IndexArray, *arrays: Array) -> tuple[Rows, list[Array]]:  # type: ignore[override]
        found, *picked = self._at(_taken, indices, *arrays)
        if not self.compares:
            return held(found.T), picked
        n_pairs = int(np.sum(np.asarray(indices) < self.n_pairs))
        compared = held(found[n_pairs:].T)
        if n_pairs == 0:
            return LegRows(compared, 0, len(indices), self.scale), picked
        return LegRows.mixed(held(found[:n_pairs].T), compared, self.scale), picked

    def pick(self, array: Array, indices: IndexArray) -> Array:
        (found,) = self._at(_picked, indices, array)
        return found

    def find(self, condition: Callable[..., Array], *arrays: Array) -> IndexArray:
        found: list[IndexArray] = self._joined(_found, condition, *arrays, combine=chained)
        return np.concatenate([start + some for start, some in zip(self._starts[:-1], found, strict=True)])

    def row_array(self, values: FloatArray) -> Array:
        """Send these numbers to their partitions; those of very many rows should be computed there."""
        if isinstance(values, Handle):
            return values
        pieces = [values[start:stop] for start, stop in zip(self._starts, self._starts[1:], strict=False)]
        return self.stored(pieces)

    def row_numbers(self) -> Array:
        return self._handle(_numbers_from, Handle(self._starts[:-1].tolist()))

    def stored(self, parts: Sequence[Any]) -> Array:
        """Return a handle for numbers that are in the partitions."""
        return self._handle(partial(_method, "row_array"), Handle(list(parts)), stays=True)

    def keep(self, array: Array) -> Array:
        return Handle(self.cluster.persisted(array.parts))

    # Arrays of one number per row, squared distances and projections: tasks of the computation that needs them.

    map = _later("map")
    product = _later("product")
    forward = _later("forward", stays=True)
    inner = _later("inner", stays=True)
    squared_distances = _later("squared_distances", stays=True)
    forms = _later("forms", stays=True)
    squared_lengths = _later("squared_lengths", stays=True)

    # What this process gets of them, and sums over all rows, in one round trip each.

    gather = _now("gather", np.concatenate)
    total = _now("total")
    extremes = _now("extremes", _outermost)
    parts = _now("parts", chained)
    dot = _now("dot")
    backward = _now("backward")
    outer = _now("outer")
    largest = _now("largest", partial(np.max, axis=0))
    weighted_sum = _now("weighted_sum")
    second_moment = _now("second_moment")
    scaled_squares = _now("scaled_squares")
    triangle = _now("triangle", _triangle)
    rotated_moments = _now("rotated_moments")
    sum_of_squares = _now("sum_of_squares")
    grouped_outers = _now("grouped_outers")

    def cross_moment(self, other: BlockRows, factor: FloatArray, weights: Array) -> FloatArray:
        if not isinstance(other, PartitionedRows):
            raise TypeError(f"both must be rows of the same partitions; got {type(other).__name__}.")
        found: FloatArray = self._joined(_crossed, Handle(other._refs), factor, weights)
        return found

    # The pass of the solvers: its arrays stay where they are.

    def each(self, function: RowFunction, *arrays: Array) -> Terms:
        return self._terms(_each, function, *arrays)[0]

    def sweep(self, function: RowFunction, matrix: FloatArray, *arrays: Array) -> tuple[Terms, FloatArray]:
        return self._terms(_swept, function, matrix, *arrays)

    def _terms(self, function: Callable[..., TaskResult], *arguments: Any) -> tuple[Terms, Any]:
        call, columns = self._call(function, arguments)
        (found, total), refs = self.cluster.run_and_keep(call, self._refs, *columns, combine=_joined_terms)

        def handle(place: int) -> Handle:
            return Handle(self.cluster.keep(_kept, refs, [place] * len(refs), stays=False))

        pull = None if found.pull is None else handle(found.pull)
        return found._replace(pull=pull, arrays=tuple(map(handle, found.arrays))), total

    def _with_rows(self, function: Callable[..., StoredRows], *arguments: Any) -> PartitionedRows:
        """The same partitions with a function of their rows."""
        found = copy(self)
        vars(found).pop("legs", None)
        call, _ = self._call(function, arguments)
        found._refs = self.cluster.keep(call, self._refs)
        return found

    def _handle(self, function: Callable[..., Any], *arguments: Any, stays: bool = False) -> Handle:
        call, columns = self._call(function, arguments)
        return Handle(self.cluster.keep(call, self._refs, *columns, stays=stays))

    def _at(self, function: Callable[..., list[Array]], indices: IndexArray, *arrays: Array) -> list[Array]:
        """Arrays with an entry for each of these rows, from the partitions that these are in."""
        within, order = by_partition(indices, self._starts)
        found: list[Array] = self._joined(function, Handle(list(within)), arrays, combine=stacked)
        return [each if order is None else each[order] for each in found]

    def _joined(self, function: Callable[..., Any], *arguments: Any, combine: Combine = _added) -> Any:
        """Join what a function of each partition's rows and of these arguments returns, in one round trip."""
        call, columns = self._call(function, arguments)
        return self.cluster.run(call, self._refs, *columns, combine=combine)

    @staticmethod
    def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[_Call, list[list[Ref]]]:
        """A function of the rows of a partition and of these arguments, and the columns that the handles are in."""
        columns: list[list[Ref]] = []

        def placed(argument: Any) -> Any:
            if isinstance(argument, Handle):
                columns.append(argument.parts)
                return _Place(len(columns) - 1)
            return tuple(map(placed, argument)) if type(argument) is tuple else argument

        return _Call(function, tuple(map(placed, arguments))), columns
