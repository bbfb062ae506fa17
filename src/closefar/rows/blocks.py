"""Sources that are read in blocks of rows: differences z_i in memory, from a file, or computed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array

from closefar import packed
from closefar.arrays import Array, FloatArray, IndexArray, as_float64, like, to_numpy
from closefar.rows.coordinates import Coordinates
from closefar.rows.source import Pulling, RowSource, concatenated, slices

__all__ = ["BlockRows", "squared_columns"]

BLOCK_BYTES = 1 << 22  # a block and its products stay in cache; the overhead of the loop over blocks is negligible

# Up to this size the rows in unit-free coordinates are kept; beyond it each pass maps them again.
KEEP_BYTES = 1 << 28


class BlockRows(RowSource):
    """Rows z_i that are computed with block by block, in their array library; a source only has to `read` blocks."""

    can_project = True

    @abstractmethod
    def read(self, where: slice) -> Array:
        """Return these rows, each as a column, in double precision."""

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        for where in self._block_slices():
            yield where, self.read(where)

    def in_coordinates(self, coordinates: Coordinates) -> BlockRows:
        return MappedRows(self, coordinates)

    def take_rows(self, indices: IndexArray) -> BlockRows:
        """Return the rows at these indices, held in memory."""
        order = np.argsort(indices, kind="stable")
        wanted, picked = indices[order], []
        for where in self._block_slices():
            first, last = np.searchsorted(wanted, [where.start, where.stop])
            if first < last:
                picked.append(_columns(self.read(where), wanted[first:last] - where.start))
        columns = concatenated(picked) if picked else self.read(slice(0, 0))
        is_sorted = bool(np.all(order == np.arange(len(order))))
        return HeldRows(columns if is_sorted else _columns(columns, np.argsort(order)))

    def row_array(self, values: FloatArray) -> Array:
        return like(self.read(slice(0, 0)), values)

    def forward(self, factor: FloatArray) -> Array:
        """Return the projections as an array of shape (n, k)."""
        parts = [block.T @ like(block, factor) for _, block in self.blocks()]
        return parts[0] if len(parts) == 1 else array_namespace(parts[0]).concat(parts, axis=0)

    def backward(self, projections: Array, coefficients: Array) -> FloatArray:
        return to_numpy(
            _sum(block @ (projections[where, :] * coefficients[where, None]) for where, block in self.blocks())
        )

    def inner(self, left: Array, right: Array) -> Array:
        if is_numpy_array(left):
            return np.einsum("ij,ij->i", left, right, dtype=np.float64)
        return as_float64(array_namespace(left).vecdot(left, right, axis=-1))

    def projected(self, factor: FloatArray) -> FloatArray:
        """Return A'z_i for each row, k numbers each, in NumPy: an array of shape (n, k)."""
        return to_numpy(self.forward(factor))

    def largest(self, centre: FloatArray) -> FloatArray:
        """Return the largest absolute value of each column, measured from `centre`."""
        extremes = []
        for _, block in self.blocks():
            xp = array_namespace(block)
            extremes.append([to_numpy(xp.max(block, axis=1)), -to_numpy(xp.min(block, axis=1))])
        upper, lower = np.max(extremes, axis=0)
        found: FloatArray = np.maximum(upper - centre, centre + lower)
        return found

    def second_moment(self, weights: FloatArray, centre: FloatArray, scale: FloatArray) -> FloatArray:
        """Return sum_i w_i x_i x_i' of the scaled rows x = (z - centre) / scale."""

        def scaled(where: slice, block: Array) -> Array:
            centred = block - like(block, centre)[:, None] if np.any(centre) else block
            return centred * like(block, np.sqrt(weights[where])) / like(block, scale)[:, None]

        blocks = (scaled(where, block) for where, block in self.blocks())
        return to_numpy(_sum(each @ each.T for each in blocks))

    def quadratic_forms(self, matrix: FloatArray) -> Array:
        return concatenated([_quadratic(matrix, block) for _, block in self.blocks()])

    def squared_distances(self, factor: FloatArray) -> Array:
        return concatenated([squared_columns(like(block, factor).T @ block) for _, block in self.blocks()])

    def outer(self, coefficients: Array) -> FloatArray:
        return _symmetric(_sum(block @ (block * coefficients[where]).T for where, block in self.blocks()))

    def factor_gradient(self, factor: FloatArray, coefficients: Array) -> FloatArray:
        return to_numpy(
            _sum(block @ ((like(block, factor).T @ block) * coefficients[where]).T for where, block in self.blocks())
        )

    def sweep(
        self, matrix: FloatArray, function: Callable[..., Pulling], *arrays: Array
    ) -> tuple[list[Pulling], FloatArray]:
        parts: list[Pulling] = []

        def outer(where: slice, block: Array) -> Array:
            parts.append(function(_quadratic(matrix, block), *(array[where] for array in arrays)))
            return block @ (block * parts[-1].margin_gradient).T

        return parts, _symmetric(_sum(outer(where, block) for where, block in self.blocks()))

    def rotated_moments(
        self, curvature: Array, crosses: tuple[Array, ...], basis: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        sums: list[Array] = []

        def fourth(where: slice, block: Array) -> Array:
            xp = array_namespace(block)
            squares = (like(block, basis).T @ block) ** 2
            curved = squares * curvature[where]
            columns = [xp.sum(curved, axis=1), *(xp.sum(squares * cross[where], axis=1) for cross in crosses)]
            sums.append(xp.stack(columns, axis=1))
            return curved @ squares.T

        return to_numpy(_sum(fourth(where, block) for where, block in self.blocks())), to_numpy(_sum(iter(sums)))

    def sum_of_squares(self, root: Array, border: tuple[Array, ...]) -> FloatArray:
        total = to_numpy(_sum(filled @ filled.T for filled in self._features(root, border)))
        scale = np.append(packed.weights(self.n_columns), np.ones(len(border)))
        return total * np.outer(scale, scale)

    def _block_slices(self) -> Iterator[slice]:
        return slices(self.n_rows, max(512, BLOCK_BYTES // (8 * self.n_columns)))

    def _features(self, root: Array, border: tuple[Array, ...]) -> Iterator[Array]:
        """The f_i of `sum_of_squares` as columns, a block at a time, without the weights of packed entries."""
        size = packed.packed_size(self.n_columns)
        step = max(256, BLOCK_BYTES // (16 * size))
        features: Array = None  # reused, since allocation would take longer than the products
        for where, block in self.blocks():
            if features is None:
                features = _empty_like(block, (size + len(border), step))
            for start in range(where.start, where.stop, step):
                stop = min(start + step, where.stop)
                filled = features[:, : stop - start]
                packed.fill_products(block[:, start - where.start : stop - where.start], root[start:stop], out=filled)
                for line, values in enumerate(border, start=size):
                    filled[line, :] = values[start:stop]
                yield filled


class HeldRows(BlockRows):
    """Rows in memory, each a column of one array."""

    def __init__(self, columns: Array) -> None:
        super().__init__(int(columns.shape[1]), int(columns.shape[0]))
        self._columns = columns

    def read(self, where: slice) -> Array:
        return self._columns[:, where]


class MappedRows(BlockRows):
    """The rows of another source in other coordinates: kept if they are few, otherwise mapped in each pass."""

    def __init__(self, source: BlockRows, coordinates: Coordinates) -> None:
        super().__init__(source.n_rows, coordinates.n_directions)
        self._source = source
        self._coordinates = coordinates
        self._kept: Array = None
        if 8 * self.n_rows * self.n_columns <= KEEP_BYTES:
            self._kept = self._map_all()

    def read(self, where: slice) -> Array:
        if self._kept is not None:
            return self._kept[:, where]
        return self._coordinates.apply(self._source.read(where))

    def _map_all(self) -> Array:
        kept: Array = None
        for where, block in self._source.blocks():
            mapped = self._coordinates.apply(block)
            if mapped.shape[1] == self.n_rows:
                return mapped
            if kept is None:
                kept = _empty_like(mapped, (self.n_columns, self.n_rows))
            kept[:, where] = mapped
        return kept


def _columns(block: Array, indices: IndexArray) -> Array:
    """Some columns of a block; NumPy's indexing keeps the entries of each column contiguous."""
    if is_numpy_array(block):
        return block[:, indices]
    return array_namespace(block).take(block, like(block, indices), axis=1)


def _sum(parts: Iterator[Array]) -> Array:
    total = next(parts)
    for part in parts:
        total += part
    return total


def _empty_like(block: Array, shape: tuple[int, int]) -> Array:
    return array_namespace(block).empty(shape, dtype=block.dtype, device=device(block))


def _quadratic(matrix: FloatArray, block: Array) -> Array:
    return _column_dots(like(block, matrix) @ block, block)


def squared_columns(product: Array) -> Array:
    """The squared length of each column."""
    return _column_dots(product, product)


def _column_dots(left: Array, right: Array) -> Array:
    """The dot product of each column of `left` with the same column of `right`."""
    if is_numpy_array(left):
        return np.einsum("ij,ij->j", left, right)
    return array_namespace(left).vecdot(left, right, axis=-2)


def _symmetric(total: Array) -> FloatArray:
    matrix: FloatArray = to_numpy(0.5 * (total + total.T))
    return matrix
