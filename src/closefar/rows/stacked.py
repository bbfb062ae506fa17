"""Rows of several sources as one source: those of the first, then those of the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import Array, FloatArray, IndexArray, is_on_gpu
from closefar.rows.blocks import BlockRows
from closefar.rows.coordinates import Coordinates
from closefar.rows.source import RowSource, concatenated

__all__ = ["StackedRows"]


class StackedRows(BlockRows):
    """Sources of the same columns, and of the same array library: each operation is that of the sources."""

    def __init__(self, *sources: BlockRows) -> None:
        super().__init__(sum(source.n_rows for source in sources), sources[0].n_columns)
        self.sources = sources
        self.condition = max(source.condition for source in sources)

    @property
    def sections(self) -> list[tuple[BlockRows, slice]]:
        """Each source, and where its rows are."""
        return list(zip(self.sources, _consecutive([source.n_rows for source in self.sources]), strict=True))

    @property
    def n_projected(self) -> int:
        return sum(source.n_projected for source in self.sources)

    @property
    def n_kept_bytes(self) -> int:
        return sum(source.n_kept_bytes for source in self.sources)

    @property
    def engine_unfused(self) -> str:
        return self.sources[0].engine_unfused

    @cached_property
    def rough(self) -> RowSource:
        if is_on_gpu(self.model):
            return self
        rough = [each for each in (source.rough for source in self.sources) if isinstance(each, BlockRows)]
        is_rough = len({str(each.model.dtype) for each in rough}) == 1 and rough[0] is not self.sources[0]
        return StackedRows(*rough) if is_rough else self  # all in the same precision

    def read(self, where: slice) -> Array:
        found = []
        for source, rows in self.sections:
            start, stop = max(where.start, rows.start), min(where.stop, rows.stop)
            if start < stop:
                found.append(source.read(slice(start - rows.start, stop - rows.start)))
        return concatenated(found) if found else self.sources[0].read(slice(0, 0))

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        for source, rows in self.sections:
            for where, block in source.blocks() if source.n_rows else ():
                yield slice(rows.start + where.start, rows.start + where.stop), block

    def in_coordinates(self, coordinates: Coordinates) -> StackedRows:
        return self.mapped(lambda source: source.in_coordinates(coordinates))

    def mapped(self, function: Callable[[BlockRows], BlockRows]) -> StackedRows:
        """Return the stack of a function of each source."""
        return StackedRows(*map(function, self.sources))

    def take_rows(self, indices: IndexArray) -> BlockRows:
        """Return the rows at these indices, which must be in the order of the sources."""
        ends = [rows.stop for _, rows in self.sections[:-1]]
        number = np.searchsorted(ends, indices, side="right")
        if np.any(np.diff(number) < 0):
            raise ValueError("rows of several sources must be taken in the order of the sources; got another order.")
        return StackedRows(
            *(
                source.take_rows(indices[number == place] - rows.start)
                for place, (source, rows) in enumerate(self.sections)
            )
        )

    def forward(self, factor: FloatArray) -> Array:
        """Return the projections of all sources, those of one after those of another."""
        found = [source.forward(factor) for source in self.sources]
        return array_namespace(found[0]).concat(found, axis=0)

    def backward(self, projections: Array, coefficients: Array) -> FloatArray:
        return self._added(
            source.backward(own, coefficients[rows])
            for (source, rows), own in zip(self.sections, self._split(projections), strict=True)
        )

    def inner(self, left: Array, right: Array) -> Array:
        halves = self._split(left), self._split(right)
        if left is right:
            halves = halves[0], halves[0]  # which sources recognise as a square
        return concatenated(
            [source.inner(own, other) for source, own, other in zip(self.sources, *halves, strict=True)]
        )

    def projected(self, factor: FloatArray) -> FloatArray:
        return np.concatenate([source.projected(factor) for source in self.sources])

    def quadratic_forms(self, matrix: FloatArray) -> Array:
        return concatenated([source.quadratic_forms(matrix) for source in self.sources])

    def squared_distances(self, factor: FloatArray) -> Array:
        return concatenated([source.squared_distances(factor) for source in self.sources])

    def outer(self, coefficients: Array) -> FloatArray:
        return self._added(source.outer(coefficients[rows]) for source, rows in self.sections)

    def factor_gradient(self, factor: FloatArray, coefficients: Array) -> FloatArray:
        return self._added(source.factor_gradient(factor, coefficients[rows]) for source, rows in self.sections)

    def sweep(self, matrix: FloatArray, function: Callable[..., Any], *arrays: Array) -> tuple[list[Any], FloatArray]:
        found = [source.sweep(matrix, function, *(array[rows] for array in arrays)) for source, rows in self.sections]
        return [part for parts, _ in found for part in parts], self._added(total for _, total in found)

    def largest(self, centre: FloatArray) -> FloatArray:
        found: FloatArray = np.max([source.largest(centre) for source in self.sources if source.n_rows], axis=0)
        return found

    def second_moment(self, weights: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
        return self._added(source.second_moment(weights[rows], centre, scale) for source, rows in self.sections)

    def _split(self, projections: Array) -> list[Array]:
        """The projections of each source."""
        return [projections[where, :] for where in _consecutive([source.n_projected for source in self.sources])]

    @staticmethod
    def _added(sums: Iterator[FloatArray]) -> FloatArray:
        total: FloatArray = np.sum(list(sums), axis=0)
        return total


def _consecutive(counts: list[int]) -> list[slice]:
    """Slices of so many, one after another."""
    stops = np.cumsum(counts).tolist()
    return [slice(stop - count, stop) for stop, count in zip(stops, counts, strict=True)]
