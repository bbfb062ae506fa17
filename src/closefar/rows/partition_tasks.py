"""What is computed within one partition, in the process that stores it, and how the results of several are joined."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from closefar.arrays import Array, FloatArray, IndexArray, to_numpy
from closefar.engines import Movable, TaskResult
from closefar.engines.engine import Ref
from closefar.rows.backends import rows_here
from closefar.rows.blocks import BlockRows
from closefar.rows.devices import on_device
from closefar.rows.source import PART_ROWS, Coordinates, concatenated, slices
from closefar.rows.unit_free import mapped_rows

# ---------------------------------------------------------------------------------------------------------------------
# Arrays of one number, or of k numbers, per row that stay in their partitions: handles, and how they are computed.


# Beyond this many steps, the numbers are stored when they are first computed: they would be computed again and again.
_MOST_STEPS = 8


class PartitionedArray:
    """A handle: numbers that are stored in partitions, or a function of such handles that is computed where they are.

    Sums and multiples of handles, and functions of them, take no round trip: they are computed in the next one that
    needs them, and stored there if they are needed again.
    """

    __array_ufunc__ = None  # NumPy's numbers leave arithmetic to the methods below

    def __init__(self, function: Callable[..., Array], *arguments: Any, is_costly: bool = False) -> None:
        self.function: Callable[..., Array] | None = function
        self.arguments = arguments
        self.refs: Sequence[Ref] = ()
        self.place: int | str = ""
        self.is_costly = is_costly
        self._was_needed = False

    def __reduce__(self) -> Any:
        raise TypeError("a handle stays in its process: a function that is run on partitions must not refer to it.")

    @classmethod
    def stored(cls, refs: Sequence[Ref], place: int | str) -> PartitionedArray:
        """What the partitions have in this place: an attribute, or a number of what an `TaskResult` has kept."""
        array = cls(_unknown)
        array.store(refs, place)
        return array

    def store(self, refs: Sequence[Ref], place: int | str) -> None:
        """Refer to stored numbers from now on."""
        self.function, self.arguments, self.refs, self.place = None, (), refs, place

    def should_be_stored(self) -> bool:
        """Whether to store the numbers, which are about to be computed: they are costly, or needed again."""
        stores = self.is_costly or self._was_needed or self.n_steps > _MOST_STEPS
        self._was_needed = True
        return stores

    @property
    def n_steps(self) -> int:
        handles = (each for each in self.arguments if isinstance(each, PartitionedArray))
        return 0 if self.function is None else 1 + sum(each.n_steps for each in handles)

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


class _Stored(NamedTuple):
    column: int
    place: int | str


class _Applied(NamedTuple):
    function: Callable[..., Array]
    arguments: tuple[Any, ...]


class _Step(NamedTuple):
    """The number of the step whose result is an argument."""

    number: int


class Program(NamedTuple):
    """How handles are computed from what one partition has stored, step by step.

    `results` and `stored` are the numbers of the steps whose results are arguments, and are stored.
    """

    steps: tuple[_Stored | _Applied, ...]
    results: tuple[int, ...]
    stored: tuple[int, ...]

    def compute(self, items: Sequence[Any]) -> tuple[list[Array], tuple[Array, ...]]:
        found: list[Array] = []
        for step in self.steps:
            if isinstance(step, _Stored):
                item = items[step.column]
                found.append(getattr(item, step.place) if isinstance(step.place, str) else item.kept[step.place])
            else:
                given = (found[each.number] if isinstance(each, _Step) else each for each in step.arguments)
                found.append(step.function(*given))
        return [found[number] for number in self.results], tuple(found[number] for number in self.stored)


class Compiled(NamedTuple):
    """A program, the columns of what it needs, and the handles whose numbers it stores."""

    program: Program
    columns: list[Sequence[Ref]]
    stored: list[PartitionedArray]


def compiled(arrays: Sequence[PartitionedArray]) -> Compiled:
    """Return the program that computes these handles, and stores those that would be computed again."""
    steps: list[_Stored | _Applied] = []
    columns: list[Sequence[Ref]] = []
    computed: list[PartitionedArray] = []
    known: dict[int, int] = {}
    places: dict[int, int] = {}

    def number_of(array: PartitionedArray) -> int:
        if id(array) not in known:
            if array.function is None:
                if id(array.refs) not in places:
                    places[id(array.refs)] = len(columns)
                    columns.append(array.refs)
                step: _Stored | _Applied = _Stored(places[id(array.refs)], array.place)
            else:
                step = _Applied(array.function, tuple(map(argument, array.arguments)))
                computed.append(array)
            steps.append(step)
            known[id(array)] = len(steps) - 1
        return known[id(array)]

    def argument(value: Any) -> Any:
        return _Step(number_of(value)) if isinstance(value, PartitionedArray) else value

    results = tuple(number_of(array) for array in arrays)
    wanted = {id(array) for array in arrays}
    stored = [array for array in computed if array.is_costly or (id(array) in wanted and array.should_be_stored())]
    program = Program(tuple(steps), results, tuple(known[id(array)] for array in stored))
    return Compiled(program, columns, stored)


class InParts:
    """A function of row arrays that is applied to a part of them at a time, which stays in cache."""

    def __init__(self, function: Callable[..., Array]) -> None:
        self._function = function

    def __call__(self, *arrays: Array) -> Array:
        n = int(arrays[0].shape[0])
        return concatenated([self._function(*(array[where] for array in arrays)) for where in slices(n, PART_ROWS)])


def _number(value: Any) -> Any:
    return value if isinstance(value, PartitionedArray) else float(value)


def _unknown() -> Array:
    raise RuntimeError("these numbers are stored in their partitions.")


@dataclass(frozen=True, eq=False)
class Stored(Movable):
    """The rows of a partition; `nbytes` is what they take beyond those that they are computed from."""

    rows: BlockRows
    nbytes: int = 0


@dataclass(frozen=True)
class Task:
    """Compute the arguments of a function from what is stored, call it, and store what is needed again.

    If something `is_given` for each partition, it is the second argument.
    """

    function: Callable[..., TaskResult]
    program: Program
    is_given: bool

    def __call__(self, *items: Any) -> TaskResult:
        given = items[: int(self.is_given)]
        (rows, *arrays), stored = self.program.compute(items[int(self.is_given) :])
        outcome = self.function(rows, *given, *arrays)
        return TaskResult(outcome.small, (*outcome.kept, *stored))


@dataclass(frozen=True)
class Small:
    """A function whose result is small."""

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> TaskResult:
        return TaskResult(self.function(*arguments))


# Rows.


def stored_rows(partition: Any, device: Any = None) -> Stored:
    return Stored(rows_here(on_device(partition.data, device)))


def mapped(stored: Stored, coordinates: Coordinates) -> Stored:
    rows = mapped_rows(stored.rows, coordinates)
    return Stored(rows, rows.n_kept_bytes)


def measured(name: str, argument: Any, rows: BlockRows) -> Array:
    """What a method of the rows gives for each of them."""
    return getattr(rows, name)(argument)


def summed(name: str, rows: BlockRows, *arrays: Array, **parameters: Any) -> Any:
    """What a method of the rows gives for all of them."""
    return getattr(rows, name)(*arrays, **parameters)


def inner(rows: BlockRows, left: Array, right: Array) -> Array:
    return rows.inner(left, right)


def rows_at(rows: BlockRows, indices: IndexArray, *arrays: Array) -> list[Array]:
    """The rows at these indices, of shape (m, d), and their numbers."""
    taken = rows.take_rows(indices)
    found = np.ascontiguousarray(to_numpy(taken.read(slice(0, len(indices)))).T)
    return [found, *numbers_at(rows, indices, *arrays)]


def numbers_at(rows: BlockRows, indices: IndexArray, *arrays: Array) -> list[Array]:
    return [to_numpy(rows.pick(array, indices)) for array in arrays]


def gathered(rows: BlockRows, array: Array) -> Array:
    return rows.gather(array)


def found(condition: Callable[..., Array], rows: BlockRows, *arrays: Array) -> list[IndexArray]:
    return [rows.find(condition, *arrays)]


def kept(values: Array) -> TaskResult:
    return TaskResult(None, (values,))


def row_numbers(start: int, count: int) -> TaskResult:
    return kept(np.arange(start, start + count, dtype=np.float64))


def in_library(rows: BlockRows, values: Array) -> Array:
    """These numbers in the array library of the rows."""
    return rows.row_array(values)


# Arrays of one number per row, and sums.


def product(left: Array, right: Array) -> Array:
    return left * right


def total(rows: BlockRows, array: Array) -> float:
    return rows.total(array)


def dots(rows: BlockRows, *arrays: Array) -> tuple[float, ...]:
    """The sums of products of each two arrays."""
    return tuple(rows.dot(left, right) for left, right in zip(arrays[::2], arrays[1::2], strict=True))


def extremes(rows: BlockRows, array: Array) -> tuple[float, float]:
    return rows.extremes(array)


def parts(function: Callable[..., Any], rows: BlockRows, *arrays: Array) -> list[Any]:
    return rows.parts(function, *arrays)


def largest(centre: FloatArray, rows: BlockRows) -> FloatArray:
    return rows.largest(centre)


def scaled_moment(centre: FloatArray, rows: BlockRows, weights: Array) -> tuple[FloatArray, FloatArray]:
    return rows.scaled_moment(weights, centre)


def factor_gradient(factor: FloatArray, rows: BlockRows, coefficients: Array) -> FloatArray:
    return rows.factor_gradient(factor, coefficients)


def cross_moment(factor: FloatArray, rows: BlockRows, other: BlockRows, weights: Array) -> FloatArray:
    return rows.cross_moment(other, factor, weights)


def rotated_moments(
    basis: FloatArray, rows: BlockRows, curvature: Array, *crosses: Array
) -> tuple[FloatArray, FloatArray]:
    return rows.rotated_moments(curvature, crosses, basis)


def sum_of_squares(rough: bool, rows: BlockRows, root: Array, *border: Array) -> FloatArray:
    return rows.sum_of_squares(root, border, rough=rough)


def sweep(matrix: FloatArray, function: Callable[..., Any], rows: BlockRows, *arrays: Array) -> tuple[list[Any], Any]:
    found, summed = rows.sweep(matrix, function, *arrays)
    return [part._replace(margin_gradient=None) for part in found], summed


# Likelihoods.


def evaluate(
    likelihood: Any, thresholds: FloatArray, order: int, rows: BlockRows, squared: Array, *arrays: Array
) -> TaskResult:
    found = likelihood.with_arrays(*arrays).evaluate(rows, squared, thresholds, order)
    return _numbered(found, None)


def loss_and_gradient(
    likelihood: Any, matrix: FloatArray, thresholds: FloatArray, rows: BlockRows, *arrays: Array
) -> TaskResult:
    return _numbered(*rows.loss_and_gradient(likelihood.with_arrays(*arrays), matrix, thresholds))


def _numbered(evaluation: Any, gradient: FloatArray | None) -> TaskResult:
    """The sums of an evaluation, with numbers in the places of its arrays, which are kept."""
    arrays: list[Array] = []

    def number(array: Array) -> int:
        arrays.append(array)
        return len(arrays) - 1

    return TaskResult((evaluation.mapped(number), gradient), tuple(arrays))


# How small results are joined, in the order of the partitions.


def added(results: Sequence[Any]) -> Any:
    """Sums; of tuples, those of each entry."""
    if isinstance(results[0], tuple):
        return tuple(added(entries) for entries in zip(*results, strict=True))
    return reduce(_plus, results)


def _plus(left: Any, right: Any) -> Any:
    return left + right


def chained(results: Sequence[list[Any]]) -> list[Any]:
    return [entry for result in results for entry in result]


def stacked(results: Sequence[list[Array]]) -> list[Array]:
    """The arrays of all partitions, one after another."""
    return [np.concatenate(arrays) for arrays in zip(*results, strict=True)]


def outermost(results: Sequence[tuple[float, float]]) -> tuple[float, float]:
    lowest, highest = zip(*results, strict=True)
    return min(lowest), max(highest)


def highest(results: Sequence[FloatArray]) -> FloatArray:
    found: FloatArray = np.max(results, axis=0)
    return found


def rescaled(results: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    """The largest values of all, and the sum of second moments, each of which is in the scale of its largest values."""
    largest = highest([scale for scale, _ in results])
    total = np.zeros_like(results[0][1])
    if np.all(np.isfinite(largest)):
        for scale, moment in results:
            ratio = scale / np.where(largest > 0.0, largest, 1.0)
            total += ratio[:, None] * moment * ratio
    return largest, total


def triangle(results: Sequence[FloatArray]) -> FloatArray:
    """The triangular factor of rows whose triangular factors these are."""
    return np.asarray(np.linalg.qr(np.concatenate(results), mode="r"), dtype=np.float64)


def joined_sweeps(results: Sequence[tuple[list[Any], FloatArray]]) -> tuple[list[Any], FloatArray]:
    found, sums = zip(*results, strict=True)
    return chained(found), added(sums)


def joined_evaluations(results: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    evaluations, gradients = zip(*results, strict=True)
    joined = type(evaluations[0]).joined(evaluations)
    return joined, None if gradients[0] is None else added(gradients)
