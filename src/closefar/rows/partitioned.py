"""Rows in partitions: each is a source of its own, where it is stored, and this process gets sums over all of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple, TypeVar

import numpy as np

from closefar.arrays import Array, FloatArray, IndexArray, to_numpy
from closefar.engines import Combine, Engine, Movable, Ref, TaskResult, by_partition
from closefar.rows.blocks import BlockRows, MappedRows, held
from closefar.rows.coordinates import condition_of_sums, mapped_rows
from closefar.rows.source import Coordinates, Pulling, Sweeper

# ---------------------------------------------------------------------------------------------------------------------
# Arrays of one number, or of k numbers, per row that stay in their partitions: handles, and how they are computed.


class PartitionedArray:
    """A handle: what is stored in partitions, or a function of such handles that is computed where they are.

    Sums and multiples of handles, and functions of them, take no round trip: they are computed in the next one that
    needs them, and stored there.
    """

    __array_ufunc__ = None  # NumPy's numbers leave arithmetic to the methods below

    def __init__(self, function: Callable[..., Any] | None, *arguments: Any, is_costly: bool = False) -> None:
        self.function = function
        self.arguments = arguments
        self.is_costly = is_costly  # and stored even if only a function of it is asked for
        self.refs: Sequence[Ref] = ()
        self.place: int | str | None = None

    def __reduce__(self) -> Any:
        raise TypeError("a handle stays in its process: a function that is run on partitions must not refer to it.")

    @classmethod
    def stored(cls, refs: Sequence[Ref], place: int | str | None) -> PartitionedArray:
        """What the partitions have in this place: an attribute, the index into what a `TaskResult` kept, or all."""
        array = cls(None)
        array.store(refs, place)
        return array

    def store(self, refs: Sequence[Ref], place: int | str | None) -> None:
        """Refer to stored numbers from now on."""
        self.function, self.arguments, self.refs, self.place = None, (), refs, place

    def __add__(self, other: Any) -> PartitionedArray:
        return PartitionedArray(operator.add, self, _number(other))

    def __sub__(self, other: Any) -> PartitionedArray:
        return PartitionedArray(operator.sub, self, _number(other))

    def __mul__(self, other: Any) -> PartitionedArray:
        return PartitionedArray(operator.mul, self, _number(other))

    def __neg__(self) -> PartitionedArray:
        return PartitionedArray(operator.neg, self)

    __radd__ = __add__
    __rmul__ = __mul__


def _number(value: Any) -> Any:
    return value if isinstance(value, PartitionedArray) else float(value)


class _Stored(NamedTuple):
    """A handle in a task: in which of the task's columns it is stored, and in which place."""

    column: int
    place: int | str | None


class _Computed(NamedTuple):
    """A handle in a task: the function that computes it, and its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class _Task:
    """Computes, in one partition, the result of a call, and what is stored there for later calls."""

    def __init__(self, call: PartitionedArray) -> None:
        self.columns: list[Sequence[Ref]] = []
        self.handles: list[PartitionedArray] = []  # that are computed and stored
        self._planned: dict[int, _Stored | _Computed] = {}
        self._call = self._plan(call)
        wanted = {id(each) for argument in call.arguments for each in _handles_in(argument)}
        self.handles = [each for each in self.handles if each.is_costly or id(each) in wanted]
        self._kept = [self._planned[id(each)] for each in self.handles]

    def _plan(self, value: Any) -> Any:
        if type(value) is tuple:
            return tuple(map(self._plan, value))
        if not isinstance(value, PartitionedArray):
            return value
        if id(value) not in self._planned:
            if value.function is None:
                place = next((n for n, refs in enumerate(self.columns) if refs is value.refs), len(self.columns))
                self.columns[place:] = self.columns[place:] or [value.refs]
                self._planned[id(value)] = _Stored(place, value.place)
            else:
                self._planned[id(value)] = _Computed(value.function, self._plan(value.arguments))
                self.handles.append(value)
        return self._planned[id(value)]

    def __getstate__(self) -> dict[str, Any]:
        """What the partitions need: handles stay in this process."""
        return {"_call": self._call, "_kept": self._kept}

    def __call__(self, *items: Any) -> TaskResult:
        found: dict[int, Any] = {}

        def value(plan: Any) -> Any:
            if isinstance(plan, _Stored):
                item = items[plan.column]
                if plan.place is None:
                    return item
                return getattr(item, plan.place) if isinstance(plan.place, str) else item.kept[plan.place]
            if isinstance(plan, _Computed):
                if id(plan) not in found:
                    found[id(plan)] = plan.function(*map(value, plan.arguments))
                return found[id(plan)]
            return tuple(map(value, plan)) if type(plan) is tuple else plan

        outcome = value(self._call)
        outcome = outcome if isinstance(outcome, TaskResult) else TaskResult(outcome)
        return TaskResult(outcome.small, (*outcome.kept, *map(value, self._kept)))


def _handles_in(argument: Any) -> list[PartitionedArray]:
    given = argument if isinstance(argument, tuple) else (argument,)
    return [each for each in given if isinstance(each, PartitionedArray)]


# ---------------------------------------------------------------------------------------------------------------------
# What is computed within one partition, in the process that stores it.


@dataclass(frozen=True, eq=False)
class StoredRows(Movable):
    """The rows of a partition; `nbytes` is what they take beyond those that they are computed from."""

    rows: BlockRows
    nbytes: int = 0


def _mapped(stored: StoredRows, coordinates: Coordinates) -> StoredRows:
    rows = mapped_rows(stored.rows, coordinates)
    return StoredRows(rows, rows.n_kept_bytes if isinstance(rows, MappedRows) else 0)


def _called(name: str, rows: BlockRows, *arguments: Any, **parameters: Any) -> Any:
    """What a method of the rows returns."""
    return getattr(rows, name)(*arguments, **parameters)


def _taken(rows: BlockRows, within: IndexArray, arrays: tuple[Array, ...]) -> list[Array]:
    """The rows at these indices, of shape (m, d), and their numbers."""
    taken = rows.take_rows(within)
    found = np.ascontiguousarray(to_numpy(taken.read(slice(0, len(within)))).T)
    return [found, *_picked(rows, within, arrays)]


def _picked(rows: BlockRows, within: IndexArray, arrays: tuple[Array, ...]) -> list[Array]:
    return [to_numpy(rows.pick(array, within)) for array in arrays]


def _found(rows: BlockRows, condition: Callable[..., Array], *arrays: Array) -> list[IndexArray]:
    return [rows.find(condition, *arrays)]


def _swept(rows: BlockRows, matrix: FloatArray, function: Callable[..., Any], *arrays: Array) -> tuple[list[Any], Any]:
    parts, total = rows.sweep(matrix, function, *arrays)
    return [part._replace(margin_gradient=None) for part in parts], total


def _kept(values: Array) -> TaskResult:
    return TaskResult(None, (values,))


def _numbers_from(start: int, count: int) -> TaskResult:
    return _kept(np.arange(start, start + count, dtype=np.float64))


def _evaluated(
    rows: BlockRows, likelihood: Any, arrays: tuple[Array, ...], squared: Array, thresholds: FloatArray, order: int
) -> TaskResult:
    return _with_places(likelihood.with_arrays(*arrays).evaluate(rows, squared, thresholds, order), None)


def _passed(
    rows: BlockRows, likelihood: Any, arrays: tuple[Array, ...], matrix: FloatArray, thresholds: FloatArray
) -> TaskResult:
    return _with_places(*rows.loss_and_gradient(likelihood.with_arrays(*arrays), matrix, thresholds))


def _with_places(evaluation: Any, gradient: FloatArray | None) -> TaskResult:
    """The sums of an evaluation, with numbers in the places of its arrays, which are kept."""
    arrays: list[Array] = []

    def number(array: Array) -> int:
        arrays.append(array)
        return len(arrays) - 1

    return TaskResult((evaluation.mapped(number), gradient), tuple(arrays))


# How small results are joined, in the order of the partitions.


def _added(results: Sequence[Any]) -> Any:
    """Sums; of tuples and lists, those of each entry."""
    if isinstance(results[0], tuple | list):
        return type(results[0])(map(_added, zip(*results, strict=True)))
    return reduce(operator.add, results)


def _chained(results: Sequence[list[Any]]) -> list[Any]:
    return [entry for result in results for entry in result]


def _stacked(results: Sequence[list[Array]]) -> list[Array]:
    """The arrays of all partitions, one after another."""
    return [np.concatenate(arrays) for arrays in zip(*results, strict=True)]


def _outermost(results: Sequence[tuple[float, float]]) -> tuple[float, float]:
    lowest, highest = zip(*results, strict=True)
    return min(lowest), max(highest)


def _triangle(results: Sequence[FloatArray]) -> FloatArray:
    """The triangular factor of rows whose triangular factors these are."""
    return np.asarray(np.linalg.qr(np.concatenate(results), mode="r"), dtype=np.float64)


def _joined_sweeps(results: Sequence[tuple[list[Any], FloatArray]]) -> tuple[list[Any], FloatArray]:
    parts, sums = zip(*results, strict=True)
    return _chained(parts), _added(sums)


def _joined_evaluations(results: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    evaluations, gradients = zip(*results, strict=True)
    joined = type(evaluations[0]).joined(evaluations)
    return joined, None if gradients[0] is None else _added(gradients)


# ---------------------------------------------------------------------------------------------------------------------
# The rows.


Result = TypeVar("Result")


def _later(name: str, *, is_costly: bool = False) -> Callable[..., Any]:
    """A method that returns a handle for what the partitions' rows return from theirs of this name."""

    def method(rows: PartitionedRows, *arguments: Any) -> PartitionedArray:
        return PartitionedArray(partial(_called, name), rows._rows, *arguments, is_costly=is_costly)

    return method


def _now(name: str, combine: Combine = _added) -> Callable[..., Any]:
    """A method that joins, in one round trip, what the partitions' rows return from theirs of this name."""

    def method(rows: PartitionedRows, *arguments: Any, **parameters: Any) -> Any:
        return rows._joined(partial(_called, name, **parameters), *arguments, combine=combine)

    return method


# The longest first step of a search for a threshold, and the shortest, relative to it.
_LONGEST_STEP, _SHORTEST = 10.0, 4e-16


class PartitionedRows(BlockRows):
    """Rows in the partitions of an engine.  Sums over partitions are added in a fixed order.

    Parameters
    ----------
    engine : Engine
    refs : sequence of Ref
        For each partition one to `StoredRows`.
    counts : sequence of int
        The number of rows of each partition.
    n_columns : int
    device : optional
        The device that the rows are on, in each worker.
    """

    is_remote = True

    def __init__(
        self, engine: Engine, refs: Sequence[Ref], counts: Sequence[int], n_columns: int, device: Any = None
    ) -> None:
        super().__init__(sum(counts), n_columns)
        self.partitions = engine
        self._device = device
        self._refs = list(refs)
        self._counts = tuple(counts)
        self._starts = np.cumsum([0, *counts])
        self._rows = PartitionedArray.stored(self._refs, "rows")

    @property
    def engine(self) -> str:
        words = self.partitions.describe(len(self._refs))
        return f"{words.removeprefix('NumPy, ')}, torch on {self._device}" if self._device else words

    def in_coordinates(self, coordinates: Coordinates) -> PartitionedRows:
        refs = self.partitions.keep(partial(_mapped, coordinates=coordinates), self._refs)
        mapped = PartitionedRows(self.partitions, refs, self._counts, coordinates.n_directions, self._device)
        mapped.condition = condition_of_sums(coordinates)
        return mapped

    # Some of the rows, and numbers: they come to this process.

    def read(self, where: slice) -> Array:
        if where.stop <= where.start:
            return np.empty((self.n_columns, 0))
        return to_numpy(self.take_rows(np.arange(where.start, where.stop)).read(slice(0, where.stop - where.start)))

    def take_rows(self, indices: IndexArray) -> BlockRows:
        return self.take(indices)[0]

    def take(self, indices: IndexArray, *arrays: Array) -> tuple[BlockRows, list[Array]]:
        found = self._at(_taken, indices, *arrays)
        return held(found[0].T), found[1:]

    def pick(self, array: Array, indices: IndexArray) -> Array:
        (found,) = self._at(_picked, indices, array)
        return found

    def find(self, condition: Callable[..., Array], *arrays: Array) -> IndexArray:
        found: list[IndexArray] = self._joined(_found, condition, *arrays, combine=_chained)
        return np.concatenate([start + some for start, some in zip(self._starts[:-1], found, strict=True)])

    def row_array(self, values: FloatArray) -> Array:
        """Send these numbers to their partitions; those of very many rows should be computed there."""
        if isinstance(values, PartitionedArray):
            return values
        pieces = [values[start:stop] for start, stop in zip(self._starts, self._starts[1:], strict=False)]
        return self.stored(self.partitions.keep(_kept, pieces), 0)

    def row_numbers(self) -> Array:
        return self.stored(self.partitions.keep(_numbers_from, self._starts[:-1].tolist(), self._counts), 0)

    def stored(self, refs: Sequence[Ref], place: int | str) -> Array:
        """Return a handle for numbers that the partitions have stored, in this place."""
        return PartitionedArray(partial(_called, "row_array"), self._rows, PartitionedArray.stored(refs, place))

    # Arrays of one number per row, squared distances and projections: computed in the round trip that needs them.

    map = _later("map")
    product = _later("product")
    forward = _later("forward", is_costly=True)
    inner = _later("inner", is_costly=True)
    squared_distances = _later("squared_distances", is_costly=True)
    quadratic_forms = _later("quadratic_forms", is_costly=True)
    squared_lengths = _later("squared_lengths", is_costly=True)

    # What this process gets of them, and sums over all rows, in one round trip each.

    gather = _now("gather", np.concatenate)
    total = _now("total")
    extremes = _now("extremes", _outermost)
    parts = _now("parts", _chained)
    dot = _now("dot")
    dots = _now("dots")
    backward = _now("backward")
    outer = _now("outer")
    largest = _now("largest", partial(np.max, axis=0))
    weighted_sum = _now("weighted_sum")
    second_moment = _now("second_moment")
    scaled_squares = _now("scaled_squares")
    triangle = _now("triangle", _triangle)
    rotated_moments = _now("rotated_moments")
    sum_of_squares = _now("sum_of_squares")

    def cross_moment(self, other: BlockRows, factor: FloatArray, weights: Array) -> FloatArray:
        if not isinstance(other, PartitionedRows):
            raise TypeError(f"both must be rows of the same partitions; got {type(other).__name__}.")
        found: FloatArray = self._joined(partial(_called, "cross_moment"), other._rows, factor, weights)
        return found

    def sweep(
        self, matrix: FloatArray, function: Callable[..., Pulling], *arrays: Array
    ) -> tuple[list[Pulling], FloatArray]:
        """Each partition's part of the results, without their arrays, and the sum."""
        parts, total = self._joined(_swept, matrix, function, *arrays, combine=_joined_sweeps)
        return parts, total

    # The pass of the solvers: its arrays stay where they are.

    def loss_and_gradient(
        self, likelihood: Sweeper[Result], matrix: FloatArray, thresholds: FloatArray
    ) -> tuple[Result, FloatArray]:
        found: tuple[Result, FloatArray] = self._evaluation(_passed, likelihood, matrix, thresholds)
        return found

    def evaluate(self, likelihood: Sweeper[Result], squared: Array, thresholds: FloatArray, order: int) -> Result:
        found: Result = self._evaluation(_evaluated, likelihood, squared, thresholds, order)[0]
        return found

    def best_thresholds(
        self, likelihood: Sweeper[Result], squared: Array, start: FloatArray, least: FloatArray, tol: float
    ) -> tuple[FloatArray, Result]:
        """Take Newton steps, of one round trip each, as long as each is much shorter than the last; or search."""
        thresholds, longest = np.maximum(start, least), _LONGEST_STEP
        while len(least) == 1 and longest > 0.0:
            here: Any = self.evaluate(likelihood, squared, thresholds, order=2)
            slope, second = float(here.slopes[0]), float(here.curvature.thresholds[0, 0])
            proposal = np.maximum(thresholds - slope / second, least) if second > 0.0 else thresholds + np.inf
            step = float(np.abs(proposal - thresholds)[0])
            if abs(slope) <= tol or (slope >= 0.0 and thresholds[0] <= least[0]) or step <= _SHORTEST * thresholds[0]:
                return thresholds, here
            if not step <= longest:
                break
            thresholds, longest = proposal, 0.5 * step
        return likelihood.best_thresholds(self, squared, thresholds, least, tol)

    def _evaluation(self, function: Callable[..., TaskResult], likelihood: Any, *arguments: Any) -> tuple[Any, Any]:
        rows = likelihood.without_rows()
        call = PartitionedArray(function, self._rows, rows, likelihood.row_arrays, *arguments)
        (evaluation, gradient), refs = self._run(call, _joined_evaluations, keeps=True)
        return evaluation.mapped(lambda place: PartitionedArray.stored(refs, place)), gradient

    def _at(self, function: Callable[..., list[Array]], indices: IndexArray, *arrays: Array) -> list[Array]:
        """Arrays with an entry for each of these rows, from the partitions that these are in."""
        within, order = by_partition(indices, self._starts)
        given = PartitionedArray.stored(within, None)
        found: list[Array] = self._joined(function, given, arrays, combine=_stacked)
        return [each if order is None else each[order] for each in found]

    def _joined(self, function: Callable[..., Any], *arguments: Any, combine: Combine = _added) -> Any:
        """Join what a function of each partition's rows and of these arguments returns."""
        return self._run(PartitionedArray(function, self._rows, *arguments), combine)[0]

    def _run(self, call: PartitionedArray, combine: Combine, *, keeps: bool = False) -> tuple[Any, list[Ref]]:
        """Compute a call in each partition, in one round trip."""
        task = _Task(call)
        keeps = keeps or bool(task.handles)
        small, refs = self.partitions.run(task, *task.columns, combine=combine, keeps=keeps)
        for number, handle in enumerate(task.handles):
            handle.store(refs, number - len(task.handles))
        return small, refs
