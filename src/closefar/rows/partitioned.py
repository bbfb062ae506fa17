"""Rows in partitions: each is a source of its own, where it is stored, and this process gets sums over all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from closefar.arrays import Array, FloatArray, IndexArray, to_numpy
from closefar.engines import Engine, TaskResult, by_partition
from closefar.engines.engine import Combine, Ref
from closefar.rows import partition_tasks as tasks
from closefar.rows.blocks import BlockRows, HeldRows, MeasuredRows
from closefar.rows.partition_tasks import InParts, PartitionedArray, compiled
from closefar.rows.source import Coordinates, Part, Pulling, Sweeper
from closefar.rows.unit_free import condition_of_sums

if TYPE_CHECKING:  # metrics are loaded and applied without scikit-learn
    from closefar.judgements import LoadedRows

Result = TypeVar("Result")

# The longest first step of a search for a threshold, and the shortest, relative to it.
_LONGEST_STEP, _ROUNDING = 10.0, 4e-16


class PartitionedRows(BlockRows):
    """Rows in the partitions of an engine.  Sums over partitions are added in a fixed order.

    Parameters
    ----------
    engine : Engine
    refs : sequence of Ref
        For each partition one to an object whose attribute `rows` is its source.
    counts : sequence of int
        The number of rows of each partition.
    n_columns : int
    device : optional
        The device that the rows are on, in each worker.
    """

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

    @classmethod
    def of_data(cls, data: LoadedRows) -> PartitionedRows:
        """The rows of partitions, each of which is taken to the device that is asked for."""
        refs = data.engine.keep(partial(tasks.stored_rows, device=data.device), data.refs)
        return cls(data.engine, refs, data.counts, data.n_columns, data.device)

    @property
    def is_remote(self) -> bool:
        return True

    @property
    def engine(self) -> str:
        words = self.partitions.describe(len(self._refs))
        return f"{words.removeprefix('NumPy, ')}, torch on {self._device}" if self._device else words

    def in_coordinates(self, coordinates: Coordinates) -> PartitionedRows:
        refs = self.partitions.keep(partial(tasks.mapped, coordinates=coordinates), self._refs)
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
        found = self._at(indices, tasks.rows_at, *arrays)
        return HeldRows(found[0].T), found[1:]

    def pick(self, array: Array, indices: IndexArray) -> Array:
        (found,) = self._at(indices, tasks.numbers_at, array)
        return found

    def gather(self, array: Array) -> FloatArray:
        numbers: FloatArray = self._sum(tasks.gathered, array, combine=np.concatenate)
        return numbers

    def find(self, condition: Callable[..., Array], *arrays: Array) -> IndexArray:
        found: list[IndexArray] = self._sum(partial(tasks.found, condition), *arrays, combine=tasks.chained)
        return np.concatenate([start + some for start, some in zip(self._starts[:-1], found, strict=True)])

    def row_array(self, values: FloatArray) -> Array:
        """Send these numbers to their partitions; those of very many rows should be computed there."""
        if isinstance(values, PartitionedArray):
            return values
        pieces = [values[start:stop] for start, stop in zip(self._starts, self._starts[1:], strict=False)]
        return self.stored(self.partitions.keep(tasks.kept, pieces), 0)

    def row_numbers(self) -> Array:
        refs = self.partitions.keep(tasks.row_numbers, self._starts[:-1].tolist(), self._counts)
        return self.stored(refs, 0)

    def stored(self, refs: Sequence[Ref], place: int | str) -> Array:
        """Return a handle for numbers that the partitions have stored, in this place."""
        return PartitionedArray(tasks.in_library, self._rows, PartitionedArray.stored(refs, place))

    # Arrays of one number per row.

    def total(self, array: Array) -> float:
        return float(self._sum(tasks.total, array))

    def extremes(self, array: Array) -> tuple[float, float]:
        lowest, highest = self._sum(tasks.extremes, array, combine=tasks.outermost)
        return lowest, highest

    def parts(self, function: Callable[..., Part], *arrays: Array) -> list[Part]:
        found: list[Part] = self._sum(partial(tasks.parts, function), *arrays, combine=tasks.chained)
        return found

    def join(self, arrays: list[Array]) -> Array:
        (array,) = arrays
        return array

    def map(self, function: Callable[..., Array], *arrays: Array) -> Array:
        return PartitionedArray(InParts(function), *arrays)

    def product(self, left: Array, right: Array) -> Array:
        return PartitionedArray(tasks.product, left, right)

    def dot(self, left: Array, right: Array) -> float:
        return self.dots((left, right))[0]

    def dots(self, *pairs: tuple[Array, Array]) -> list[float]:
        return list(self._sum(tasks.dots, *chain.from_iterable(pairs)))

    # Squared distances and projections: computed in the round trip that needs them.

    def forward(self, factor: FloatArray) -> Array:
        return self._lazy("forward", factor)

    def inner(self, left: Array, right: Array) -> Array:
        return PartitionedArray(tasks.inner, self._rows, left, right, is_costly=True)

    def squared_distances(self, factor: FloatArray) -> Array:
        return self._lazy("squared_distances", factor)

    def quadratic_forms(self, matrix: FloatArray) -> Array:
        return self._lazy("quadratic_forms", matrix)

    def squared_lengths(self, coordinates: Coordinates) -> Array:
        return self._lazy("squared_lengths", coordinates)

    # Sums over all rows, in one round trip each.

    def backward(self, projections: Array, coefficients: Array) -> FloatArray:
        return self._summed("backward", projections, coefficients)

    def outer(self, coefficients: Array) -> FloatArray:
        return self._summed("outer", coefficients)

    def factor_gradient(self, factor: FloatArray, coefficients: Array) -> FloatArray:
        return self._matrix(partial(tasks.factor_gradient, factor), coefficients)

    def largest(self, centre: FloatArray) -> FloatArray:
        found: FloatArray = self._sum(partial(tasks.largest, centre), combine=tasks.highest)
        return found

    def scaled_moment(self, weights: Array, centre: FloatArray) -> tuple[FloatArray, FloatArray]:
        largest, moment = self._sum(partial(tasks.scaled_moment, centre), weights, combine=tasks.rescaled)
        return largest, moment

    def weighted_sum(self, weights: Array) -> FloatArray:
        return self._summed("weighted_sum", weights)

    def second_moment(self, weights: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
        return self._summed("second_moment", weights, centre=centre, scale=scale)

    def scaled_squares(self, weights: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
        return self._summed("scaled_squares", weights, centre=centre, scale=scale)

    def triangle(self, weights: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
        triangle = partial(tasks.summed, "triangle", centre=centre, scale=scale)
        found: FloatArray = self._sum(triangle, weights, combine=tasks.triangle)
        return found

    def cross_moment(self, other: MeasuredRows, factor: FloatArray, weights: Array) -> FloatArray:
        if not isinstance(other, PartitionedRows):
            raise TypeError(f"both must be rows of the same partitions; got {type(other).__name__}.")
        return self._matrix(partial(tasks.cross_moment, factor), other._rows, weights)

    def rotated_moments(
        self, curvature: Array, crosses: tuple[Array, ...], basis: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        fourth, sums = self._sum(partial(tasks.rotated_moments, basis), curvature, *crosses)
        return fourth, sums

    def sum_of_squares(self, root: Array, border: tuple[Array, ...], *, rough: bool = False) -> FloatArray:
        return self._matrix(partial(tasks.sum_of_squares, rough), root, *border)

    def sweep(
        self, matrix: FloatArray, function: Callable[..., Pulling], *arrays: Array
    ) -> tuple[list[Pulling], FloatArray]:
        """Each partition's part of the results, without their arrays, and the sum."""
        parts, total = self._sum(partial(tasks.sweep, matrix, function), *arrays, combine=tasks.joined_sweeps)
        return parts, total

    # The pass of the solvers: its arrays stay where they are.

    def loss_and_gradient(
        self, likelihood: Sweeper[Result], matrix: FloatArray, thresholds: FloatArray
    ) -> tuple[Result, FloatArray]:
        work = partial(tasks.loss_and_gradient, likelihood.without_rows(), matrix, thresholds)
        return self._evaluated(work, *likelihood.row_arrays)

    def evaluate(self, likelihood: Sweeper[Result], squared: Array, thresholds: FloatArray, order: int) -> Result:
        work = partial(tasks.evaluate, likelihood.without_rows(), thresholds, order)
        evaluation: Result = self._evaluated(work, squared, *likelihood.row_arrays)[0]
        return evaluation

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
            if abs(slope) <= tol or (slope >= 0.0 and thresholds[0] <= least[0]) or step <= _ROUNDING * thresholds[0]:
                return thresholds, here
            if not step <= longest:
                break
            thresholds, longest = proposal, 0.5 * step
        return likelihood.best_thresholds(self, squared, thresholds, least, tol)

    def _evaluated(self, function: Callable[..., TaskResult], *arrays: Array) -> tuple[Any, Any]:
        (evaluation, gradient), refs = self._run(function, arrays, combine=tasks.joined_evaluations, keeps=True)
        return evaluation.mapped(lambda place: PartitionedArray.stored(refs, place)), gradient

    def _lazy(self, name: str, argument: Any) -> PartitionedArray:
        return PartitionedArray(partial(tasks.measured, name, argument), self._rows, is_costly=True)

    def _summed(self, name: str, *arrays: Array, **parameters: Any) -> FloatArray:
        return self._matrix(partial(tasks.summed, name, **parameters), *arrays)

    def _matrix(self, function: Callable[..., FloatArray], *arrays: Array) -> FloatArray:
        total: FloatArray = self._sum(function, *arrays)
        return total

    def _sum(self, function: Callable[..., Any], *arrays: Array, combine: Combine | None = None) -> Any:
        """Join what a function of the rows and of these arrays gives for each partition; by default, sum it."""
        return self._run(tasks.Small(function), arrays, combine or tasks.added)[0]

    def _at(self, indices: IndexArray, function: Callable[..., list[Array]], *arrays: Array) -> list[Array]:
        """Arrays with an entry for each of these rows, from the partitions that these are in."""
        within, order = by_partition(indices, self._starts)
        found: list[Array] = self._run(tasks.Small(function), arrays, tasks.stacked, given=within)[0]
        return [each if order is None else each[order] for each in found]

    def _run(
        self,
        function: Callable[..., TaskResult],
        arrays: Sequence[Array],
        combine: Combine,
        *,
        keeps: bool = False,
        given: Sequence[Any] | None = None,
    ) -> tuple[Any, list[Ref]]:
        """Call a function of the rows, of what is given for each partition, and of arrays, in one round trip."""
        program, columns, stored = compiled([self._rows, *map(self.row_array, arrays)])
        first = () if given is None else (given,)
        task = tasks.Task(function, program, is_given=given is not None)
        small, refs = self.partitions.run(task, *first, *columns, combine=combine, keeps=keeps or bool(stored))
        for number, handle in enumerate(stored):
            handle.store(refs, number - len(stored))
        return small, refs
