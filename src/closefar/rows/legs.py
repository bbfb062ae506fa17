"""Rows of comparisons, or of pairs and comparisons together: a comparison has two legs, near and far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from closefar.arrays import LEGS, Array, FloatArray, IndexArray, is_indexed
from closefar.rows.blocks import (
    BlockRows,
    Differences,
    grouped_sums,
    interleaved,
    moments_of,
    row_array_like,
    sum_of_features,
)
from closefar.rows.indexed import indexed_rows
from closefar.rows.source import Coordinates, Joined, RowFunction, RowSource, Terms, Trait, concatenated

# ---------------------------------------------------------------------------------------------------------------------
# Rows of several sources as one source: those of the first, then those of the next.


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
    def traits(self) -> frozenset[Trait]:
        return frozenset.intersection(*(source.traits for source in self.sources))

    @property
    def engine(self) -> str:
        return self.sources[0].engine

    @property
    def projected_bytes(self) -> int:
        return sum(source.projected_bytes for source in self.sources)

    @cached_property
    def rough(self) -> BlockRows:
        rough = [source.rough for source in self.sources]
        is_rough = len({(type(each), str(each.model.dtype)) for each in rough}) == 1 and rough[0] is not self.sources[0]
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

    def forms(self, matrix: FloatArray) -> Array:
        return concatenated([source.forms(matrix) for source in self.sources])

    def squared_distances(self, factor: FloatArray) -> Array:
        return concatenated([source.squared_distances(factor) for source in self.sources])

    def outer(self, coefficients: Array) -> FloatArray:
        return self._added(source.outer(coefficients[rows]) for source, rows in self.sections)

    def largest(self, centre: FloatArray) -> FloatArray:
        found: FloatArray = np.max([source.largest(centre) for source in self.sources if source.n_rows], axis=0)
        return found

    def second_moment(self, weights: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
        return self._added(source.second_moment(weights[rows], centre, scale) for source, rows in self.sections)

    def _split(self, projections: Array) -> list[Array]:
        """The projections of each source."""
        counts = [source.projected_bytes // 8 for source in self.sources]
        return [projections[where, :] for where in _consecutive(counts)]

    @staticmethod
    def _added(sums: Iterator[FloatArray]) -> FloatArray:
        total: FloatArray = np.sum(list(sums), axis=0)
        return total


def _consecutive(counts: list[int]) -> list[slice]:
    """Slices of so many, one after another."""
    stops = np.cumsum(counts).tolist()
    return [slice(stop - count, stop) for stop, count in zip(stops, counts, strict=True)]


class LegRows(RowSource):
    """Rows that are pairs (F = zz') or comparisons (F = scale (far far' - near near')), pairs first.

    Parameters
    ----------
    legs : BlockRows
        The differences: near, far, near, far, ... of the comparisons.  If there are pairs, the stack of them and of
        those.
    n_pairs, n_comparisons : int
    scale : float
        What the margin of a comparison is multiplied by: one over its noise, relative to that of pairs.
    """

    def __init__(self, legs: BlockRows, n_pairs: int, n_comparisons: int, scale: float = 1.0) -> None:
        super().__init__(n_pairs + n_comparisons, legs.n_columns)
        self.legs = legs
        self.n_pairs = n_pairs
        self.n_comparisons = n_comparisons
        self.scale = scale
        self.condition = legs.condition
        self._pairs: BlockRows | None = None
        self._compared = legs
        if isinstance(legs, StackedRows):
            self._pairs, self._compared = legs.sources
        self._compared.n_together = 2
        found = (0 if self._pairs is None else self._pairs.n_rows), self._compared.n_rows
        if found != (n_pairs, 2 * n_comparisons):
            raise ValueError(
                f"legs must be one per pair and two per comparison, {n_pairs} and {2 * n_comparisons}, in a source "
                f"each; got {found[0]} and {found[1]}."
            )

    @classmethod
    def mixed(cls, pairs: BlockRows, compared: BlockRows, scale: float) -> LegRows:
        """Return pairs, and comparisons with these legs, as rows."""
        return cls(StackedRows(pairs, compared), pairs.n_rows, compared.n_rows // 2, scale)

    def with_legs(self, legs: BlockRows) -> LegRows:
        """Return the same rows with their legs in other coordinates, or in another precision."""
        return self if legs is self.legs else LegRows(legs, self.n_pairs, self.n_comparisons, self.scale)

    def with_scale(self, scale: float) -> LegRows:
        """Return the same rows with another noise of comparisons."""
        return LegRows(self.legs, self.n_pairs, self.n_comparisons, scale)

    def __repr__(self) -> str:
        pairs = f"{self.n_pairs:,} pairs and " if self.n_pairs else ""
        return f"LegRows({pairs}{self.n_comparisons:,} comparisons of {self.n_columns} columns)"

    def __len__(self) -> int:
        return self.n_rows

    @property
    def model(self) -> Array:
        """An array without rows, in the library and on the device of the legs."""
        return self.legs.model

    @property
    def compares(self) -> bool:
        return True

    @property
    def traits(self) -> frozenset[Trait]:
        return self.legs.traits

    @property
    def engine(self) -> str:
        return self.legs.engine

    @property
    def projected_bytes(self) -> int:
        return self.legs.projected_bytes

    @property
    def most_projected(self) -> int:
        return self.legs.most_projected

    @cached_property
    def rough(self) -> LegRows:
        return self.with_legs(self.legs.rough)

    def in_coordinates(self, coordinates: Coordinates) -> LegRows:
        return self.with_legs(self.legs.in_coordinates(coordinates))

    def row_array(self, values: FloatArray) -> Array:
        return row_array_like(self.model, values)

    def take_rows(self, indices: IndexArray) -> LegRows:
        """Return the rows at these indices: pairs first, then comparisons."""
        is_compared = np.asarray(indices) >= self.n_pairs
        numbers = np.asarray(indices)[is_compared] - self.n_pairs
        legs = (2 * numbers[:, None] + np.arange(2)).ravel()
        if self._pairs is None:
            return LegRows(self._compared.take_rows(legs), 0, len(numbers), self.scale)
        if np.any(is_compared[:-1] & ~is_compared[1:]):
            raise ValueError("pairs must be taken before comparisons; got a comparison before a pair.")
        pairs = self._pairs.take_rows(np.asarray(indices)[~is_compared])
        return LegRows.mixed(pairs, self._compared.take_rows(legs), self.scale)

    # Arrays of one number per row, and of one per leg.

    def leg_weights(self, weights: Array) -> Array:
        """Return the weight of each leg: that of its pair, or half of that of its comparison."""
        if is_numpy_array(weights) and weights.strides == (0,) and self.n_pairs == 0:
            return np.broadcast_to(0.5 * weights[:1], self.legs.n_rows)  # one number still stands for all
        return self._beside_pairs(weights, lambda compared: interleaved(0.5 * compared, 0.5 * compared))

    def leg_signs(self, signs: Array) -> Array:
        """Return +1 for each leg that was judged far, and -1 for each that was judged close."""
        return self._beside_pairs(signs, lambda compared: interleaved(-compared, compared))

    def _split(self, *arrays: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """The numbers of pairs, and those of comparisons."""
        return tuple(each[: self.n_pairs] for each in arrays), tuple(each[self.n_pairs :] for each in arrays)

    def _beside_pairs(self, values: Array, function: Callable[[Array], Array]) -> Array:
        """A function of the numbers of comparisons, or of their legs, after those of pairs as they are."""
        if self.n_pairs == 0:
            return function(values)
        return concatenated([values[: self.n_pairs], function(values[self.n_pairs :])])

    def _margins(self, forms: Array) -> Array:
        """The form of each row, from those of all legs."""
        return self._beside_pairs(forms, lambda legs: self.scale * (legs[1::2] - legs[0::2]))

    # The operator, by that of the legs.

    def forms(self, matrix: FloatArray) -> Array:
        compared = self._compared.leg_forms(self.scale * matrix)
        return compared if self._pairs is None else concatenated([self._pairs.forms(matrix), compared])

    def squared_distances(self, factor: FloatArray) -> Array:
        return self._margins(self.legs.squared_distances(factor))

    def outer(self, coefficients: Array) -> FloatArray:
        (of_pairs,), (compared,) = self._split(coefficients)
        total = self.scale * self._compared.leg_outer(compared)
        return total if self._pairs is None else total + self._pairs.outer(of_pairs)

    def forward(self, factor: FloatArray) -> Array:
        """Return the projections of all legs."""
        return self.legs.forward(factor)

    def backward(self, projections: Array, coefficients: Array) -> FloatArray:
        of_legs = self._beside_pairs(coefficients, lambda each: self.scale * interleaved(-each, each))
        return self.legs.backward(projections, of_legs)

    def inner(self, left: Array, right: Array) -> Array:
        return self._margins(self.legs.inner(left, right))

    def sweep(self, function: RowFunction, matrix: FloatArray, *arrays: Array) -> tuple[Terms, FloatArray]:
        of_pairs, compared = self._split(*arrays)
        fused = self._compared.leg_sweep(function, self.scale * matrix, *compared)
        if fused is None:
            terms, total = super().sweep(function, matrix, *arrays)
            return terms._replace(forms=None), total  # which may not be exact
        joined, total = Joined(self.n_rows, pulls=False), self.scale * fused[1]
        if self._pairs is not None:
            found, on_pairs = self._pairs.sweep(function, matrix, *of_pairs)
            joined.add(slice(0, self.n_pairs), found)
            total = total + on_pairs
        joined.add(slice(self.n_pairs, self.n_rows), fused[0])
        return joined.terms(), total

    def rotated_moments(
        self, curvature: Array, crosses: tuple[Array, ...], basis: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        blocks = self._compared.projected_blocks(basis)
        forms = ((_rows(where), self.scale * (turned[:, 1::2] ** 2 - turned[:, 0::2] ** 2)) for where, turned in blocks)
        (curved, *crossed), of_compared = self._split(curvature, *crosses)
        found, columns = moments_of(forms, of_compared)
        if self._pairs is None:
            return found, columns
        of_pairs = self._pairs.rotated_moments(curved, tuple(crossed), basis)
        return found + of_pairs[0], columns + of_pairs[1]

    def sum_of_squares(self, root: Array, border: tuple[Array, ...], *, rough: bool = False) -> FloatArray:
        (own, *beside_own), (compared, *beside) = self._split(root, *border)
        total = sum_of_features(self._compared, self.scale * compared, tuple(beside), n_legs=2, rough=rough)
        if self._pairs is None:
            return total
        return total + self._pairs.sum_of_squares(own, tuple(beside_own), rough=rough)

    def grouped_outers(self, coefficients: Array, groups: Array, n_groups: int) -> FloatArray:
        if not is_numpy_array(self.model):
            return super().grouped_outers(coefficients, groups, n_groups)
        (own, own_groups), (compared, groups) = self._split(coefficients, groups)
        total = grouped_sums(self._compared, self.scale * compared, groups, n_groups, n_legs=2)
        return total if self._pairs is None else total + self._pairs.grouped_outers(own, own_groups, n_groups)


Rows = BlockRows | LegRows


def rows_of_legs(legs: IndexArray, n_pairs: int) -> IndexArray:
    """Return the numbers of the rows that these legs belong to, each once, in their order; pairs come first."""
    return np.unique(np.where(legs < n_pairs, legs, n_pairs + (legs - n_pairs) // 2))


def legs_of(data: Any) -> BlockRows:
    """Return the legs of comparisons: an array of shape (n, 3, d) or (n, 4, d), or such tuples by index."""
    if not is_indexed(data):
        return Differences(data)
    near, far = LEGS[int(data.index.shape[1])]
    return indexed_rows(data.points, data.index[:, [*near, *far]].reshape((-1, 2)))


def _rows(where: slice) -> slice:
    """The comparisons of some legs."""
    return slice(where.start // 2, where.stop // 2)
