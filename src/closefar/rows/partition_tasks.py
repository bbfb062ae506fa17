"""What is computed within one partition, in the process that stores it, and how the results of several are joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from closefar.arrays import Array, FloatArray, IndexArray, to_numpy
from closefar.engines import Movable, TaskResult
from closefar.rows.blocks import BlockRows
from closefar.rows.coordinates import Coordinates
from closefar.rows.devices import on_device
from closefar.rows.handles import Program
from closefar.rows.ladder import rows_here
from closefar.rows.wide import mapped_rows

__all__ = ["Stored", "Task"]


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
