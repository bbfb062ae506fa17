"""Sources that are read in blocks of rows: differences z_i in memory, from a file, or computed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array

from closefar import packed
from closefar.arrays import Array, FloatArray, IndexArray, as_float64, like, to_numpy
from closefar.rows.coordinates import Coordinates
from closefar.rows.source import Pulling, RowSource, concatenated, slices

__all__ = ["KEEP_BYTES", "BlockRows", "MappedRows", "squared_columns"]

BLOCK_BYTES = 1 << 21  # a block and its products stay in cache; the overhead of the loop over blocks is negligible

_SAFE_SCALES = 1e-60, 1e60  # of columns, whose squares and their sums neither overflow nor underflow

_LONG = 32  # rows that are reduced at a time

# Up to this size the rows in unit-free coordinates are kept; beyond it each pass maps them again.
KEEP_BYTES = 1 << 28

_MANY_COLUMNS = 48  # from here on, a sum of outer products is limited by its products


class BlockRows(RowSource):
    """Rows z_i that are computed with block by block, in their array library; a source only has to `read` blocks."""

    can_project = True
    n_fold: ClassVar[int] = 1  # a block has so many times as many rows as one in double precision

    def in_single(self) -> BlockRows | None:
        """Return a source that computes in single precision; None if there is none, or if it takes much memory."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_rows:,} rows of {self.n_columns} columns)"

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, key: Any) -> Array:
        keys = [each for each in (key if isinstance(key, tuple) else (key,)) if each is not Ellipsis]
        if len(keys) == 1 and isinstance(keys[0], int | np.integer):
            number = range(self.n_rows)[keys[0]]
            return to_numpy(self.read(slice(number, number + 1))[:, 0])
        if len(keys) != 1 or not (isinstance(keys[0], slice) or np.ndim(keys[0]) == 1):
            raise IndexError(f"rows are selected by a number, a slice, an index array or a mask; got {key!r}.")
        return self.take_rows(np.arange(self.n_rows)[keys[0]])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> FloatArray:
        """All rows in memory, as an array of shape (n, d)."""
        if copy is False:
            raise ValueError("rows must be copied to become an array; got copy=False.")
        rows = to_numpy(self.read(slice(0, self.n_rows))).T
        return np.array(rows, dtype=rows.dtype if dtype is None else dtype, order="C")

    @property
    def is_held(self) -> bool:
        """Whether the rows are in memory as `read` returns them, so that reading takes no time."""
        return False

    @property
    def n_kept_bytes(self) -> int:
        """The memory that these rows take, beyond that of rows which they are computed from."""
        return 0

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
        is_sorted = bool(np.all(indices[1:] >= indices[:-1]))
        order = None if is_sorted else np.argsort(indices, kind="stable")
        wanted = indices if order is None else indices[order]
        taken: Array = None
        for where in self._block_slices():
            first, last = np.searchsorted(wanted, [where.start, where.stop])
            if first < last:
                some = self._read_some(where, wanted[first:last] - where.start)
                if taken is None:
                    taken = _empty_like(some, (len(wanted), self.n_columns)).T  # the entries of a row are together
                taken[:, first:last] = some
        taken = self.read(slice(0, 0)) if taken is None else taken
        return HeldRows(taken if order is None else _columns(taken, np.argsort(order)))

    def take(self, indices: IndexArray, *arrays: Array) -> tuple[BlockRows, list[Array]]:
        return self.take_rows(indices), [self.pick(array, indices) for array in arrays]

    def row_array(self, values: FloatArray) -> Array:
        block = self.read(slice(0, 0))
        return values if is_numpy_array(block) else like(block, values.astype(np.float64, copy=False))

    def forward(self, factor: FloatArray) -> Array:
        """Return the projections as an array of shape (n, k)."""
        found: Array = None
        for where, block in self.blocks():
            part = block.T @ _matching(block, factor)
            if part.shape[0] == self.n_rows:
                return part
            if found is None:
                found = _empty_like(part, (self.n_rows, int(part.shape[1])))
            found[where, :] = part
        return found

    def backward(self, projections: Array, coefficients: Array) -> FloatArray:
        def pulled(where: slice, block: Array) -> Array:
            here = projections[where, :]
            # This order of the product is up to 40 % faster than block @ scaled.
            return (here * _matching(here, coefficients[where])[:, None]).T @ block.T

        return to_numpy(_sum(pulled(where, block) for where, block in self.blocks()).T)

    def inner(self, left: Array, right: Array) -> Array:
        if is_numpy_array(left):
            return _row_dots(left, right)
        return as_float64(array_namespace(left).vecdot(left, right, axis=-1))

    def projected(self, factor: FloatArray) -> FloatArray:
        """Return A'z_i for each row, k numbers each, in NumPy: an array of shape (n, k)."""
        return to_numpy(self.forward(factor))

    def largest(self, centre: FloatArray) -> FloatArray:
        """Return the largest absolute value of each column, measured from `centre`."""
        upper, lower = np.max([_extremes(block) for _, block in self.blocks()], axis=0)
        found: FloatArray = np.maximum(upper - centre, centre + lower)
        return found

    def weighted_sum(self, weights: Array) -> FloatArray:
        """Return sum_i w_i z_i."""
        return to_numpy(_sum(block @ _matching(block, weights[where]) for where, block in self.blocks()))

    def second_moment(self, weights: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
        """Return sum_i w_i x_i x_i' of the scaled rows x = (z - centre) / scale."""
        lowest, highest = _SAFE_SCALES
        finite = scale[np.isfinite(scale)]
        # Sums of such numbers can be scaled instead of the rows, which would take as long as the sums of few columns.
        scales_sums = not np.any(centre) and lowest < finite.min(initial=1.0) and finite.max(initial=1.0) < highest
        is_weighted = not _is_uniform(weights)

        def scaled(where: slice, block: Array) -> Array:
            rows = block if scales_sums else _scaled(block, centre, scale)
            return rows * _root(block, weights[where]) if is_weighted else rows

        blocks = (scaled(where, block) for where, block in self.blocks())
        total = to_numpy(_sum(each @ each.T for each in blocks))
        if scales_sums:
            total = total / scale[:, None] / scale
        return total if is_weighted or self.n_rows == 0 else total * float(weights[0])

    def scaled_squares(self, weights: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
        """Return the diagonal of that second moment alone."""

        def squares(where: slice, block: Array) -> Array:
            rows = _scaled(block, centre, scale)
            return (rows * rows) @ _matching(block, weights[where])

        return to_numpy(_sum(squares(where, block) for where, block in self.blocks()))

    def triangle(self, weights: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
        """Return a triangular R with R'R = sum_i w_i x_i x_i', without the rounding errors of that sum."""
        found: Array = None
        for where, block in self.blocks():
            rows = (_scaled(block, centre, scale) * _root(block, weights[where])).T
            found = _triangle(rows if found is None else array_namespace(rows).concat([found, rows]))
        return to_numpy(found)

    def cross_moment(self, other: BlockRows, factor: FloatArray, weights: Array) -> FloatArray:
        """Return sum_i w_i z_i (A'y_i)', where y_i are the same rows in other coordinates."""

        def crossed(where: slice, block: Array) -> Array:
            here = self.read(where)
            return (here * _matching(here, weights[where])) @ (block.T @ like(block, factor))

        return to_numpy(_sum(crossed(where, block) for where, block in other.blocks()))

    def squared_lengths(self, coordinates: Coordinates) -> Array:
        """Return the squared length of each row in coordinates, without the constant of a learned origin."""
        if not coordinates.has_constant:
            return self.squared_distances(coordinates.transform)
        return concatenated([squared_columns(coordinates.apply(block)[:-1, :]) for _, block in self.blocks()])

    def quadratic_forms(self, matrix: FloatArray) -> Array:
        return concatenated([_quadratic(matrix, block) for _, block in self.blocks()])

    def squared_distances(self, factor: FloatArray) -> Array:
        return concatenated([_squared_lengths(block, factor) for _, block in self.blocks()])

    def outer(self, coefficients: Array) -> FloatArray:
        return _symmetric(_sum(_weighted_outer(block, coefficients[where]) for where, block in self.blocks()))

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
            return _weighted_outer(block, parts[-1].margin_gradient)

        return parts, _symmetric(_sum(outer(where, block) for where, block in self.blocks()))

    def rotated_moments(
        self, curvature: Array, crosses: tuple[Array, ...], basis: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        sums: list[Array] = []

        def fourth(where: slice, block: Array) -> Array:
            xp = array_namespace(block)
            squares = (_matching(block, basis).T @ block) ** 2
            curved = squares * _matching(block, curvature[where])
            columns = [xp.sum(curved, axis=1), *(xp.sum(squares * cross[where], axis=1) for cross in crosses)]
            sums.append(xp.stack(columns, axis=1))
            return curved @ squares.T

        return to_numpy(_sum(fourth(where, block) for where, block in self.blocks())), to_numpy(_sum(iter(sums)))

    def sum_of_squares(self, root: Array, border: tuple[Array, ...], *, rough: bool = False) -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):
            total = to_numpy(_sum(each @ each.T for each in self._features(root, border, rough)))
        if rough and not np.all(np.isfinite(total)):  # beyond the range of single precision
            return self.sum_of_squares(root, border)
        scale = np.append(packed.weights(self.n_columns), np.ones(len(border)))
        return total * np.outer(scale, scale)

    def _read_some(self, where: slice, indices: IndexArray) -> Array:
        """Return some of the rows of a block."""
        return _columns(self.read(where), indices)

    def _block_slices(self) -> Iterator[slice]:
        # More than as many rows as columns, or sums of outer products would be limited by adding them.
        size = max(512, BLOCK_BYTES // (8 * self.n_columns), 2 * self.n_columns)
        return slices(self.n_rows, size * self.n_fold)

    def _features(self, root: Array, border: tuple[Array, ...], rough: bool = False) -> Iterator[Array]:
        """The f_i of `sum_of_squares` as columns, a block at a time, without the weights of packed entries."""
        size = packed.packed_size(self.n_columns)
        step = max(256, BLOCK_BYTES // (16 * size))
        features: Array = None  # reused, since allocation would take longer than the products
        for where, block in self.blocks():
            if features is None:
                dtype = array_namespace(block).float32 if rough else block.dtype
                features = _empty_like(block, (size + len(border), min(step, self.n_rows)), dtype)
            for start in range(where.start, where.stop, step):
                stop = min(start + step, where.stop)
                filled = features[:, : stop - start]
                columns, scale = block[:, start - where.start : stop - where.start], root[start:stop]
                packed.fill_products(_as_type(columns, filled), _as_type(scale, filled), out=filled)
                for line, values in enumerate(border, start=size):
                    filled[line, :] = _as_type(values[start:stop], filled)
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

    keeps: ClassVar[bool] = True

    def __init__(self, source: BlockRows, coordinates: Coordinates) -> None:
        super().__init__(source.n_rows, coordinates.n_directions)
        self._source = source
        self._coordinates = coordinates
        self._kept: Array = None
        if self.keeps and 8 * self.n_rows * self.n_columns <= KEEP_BYTES:
            self._kept = self._map_all()

    @property
    def n_kept_bytes(self) -> int:
        return 0 if self._kept is None else 8 * self.n_rows * self.n_columns

    def read(self, where: slice) -> Array:
        if self._kept is not None:
            return self._kept[:, where]
        return self._coordinates.apply(self._source.read(where))

    def _read_some(self, where: slice, indices: IndexArray) -> Array:
        if self._kept is not None:
            return super()._read_some(where, indices)
        return self._coordinates.apply(_columns(self._source.read(where), indices))

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


def _extremes(block: Array) -> list[FloatArray]:
    """The largest and minus the smallest entry of each line of a block."""
    d, n = block.shape
    if is_numpy_array(block) and block.T.flags.c_contiguous and n >= _LONG:
        # Lines that lie side by side are reduced many at a time.
        wide = block.T[: n - n % _LONG].reshape(-1, _LONG * d)
        rest = block[:, n - n % _LONG :]
        lines = np.hstack([wide.max(axis=0).reshape(_LONG, d).T, wide.min(axis=0).reshape(_LONG, d).T, rest])
        return [lines.max(axis=1), -lines.min(axis=1)]
    xp = array_namespace(block)
    return [to_numpy(xp.max(block, axis=1)), -to_numpy(xp.min(block, axis=1))]


def _is_uniform(weights: Array) -> bool:
    """Whether all weights are the same, as one number that stands for all, or as so many numbers."""
    if is_numpy_array(weights) and weights.strides == (0,):
        return True
    return not bool(array_namespace(weights).any(weights != weights[:1]))


def _scaled(block: Array, centre: FloatArray, scale: FloatArray) -> Array:
    """The rows x = (z - centre) / scale, each a column."""
    centred = block - like(block, centre)[:, None] if np.any(centre) else block
    return centred / like(block, scale)[:, None]


def _root(block: Array, weights: Array) -> Array:
    """The square roots of weights, in the library of a block."""
    weights = _matching(block, weights)
    return array_namespace(weights).sqrt(weights)


def _triangle(rows: Array) -> Array:
    """The triangular factor of a QR decomposition."""
    if is_numpy_array(rows):
        return np.linalg.qr(rows, mode="r")
    return array_namespace(rows).linalg.qr(rows)[1]


def _columns(block: Array, indices: IndexArray) -> Array:
    """Some columns of a block, in its memory order."""
    if is_numpy_array(block):
        if block.strides[1] != block.itemsize:
            return block[:, indices]
        found = np.empty((len(block), len(indices)), dtype=block.dtype)
        for line, values in enumerate(block):
            np.take(values, indices, out=found[line])
        return found
    return array_namespace(block).take(block, like(block, indices), axis=1)


def _sum(parts: Iterator[Array]) -> Array:
    """The sum in double precision, whatever that of the parts is."""
    total = as_float64(next(parts))
    for part in parts:
        total += part
    return total


def _empty_like(block: Array, shape: tuple[int, int], dtype: Any = None) -> Array:
    return array_namespace(block).empty(shape, dtype=dtype or block.dtype, device=device(block))


def _as_type(array: Array, model: Array) -> Array:
    return array_namespace(array).astype(array, model.dtype, copy=False)


def _matching(block: Array, values: Array) -> Array:
    """These numbers in the library and the precision of a block."""
    if is_numpy_array(block):
        return values.astype(block.dtype, copy=False)
    return like(block, values) if is_numpy_array(values) else values


def _weighted_outer(block: Array, coefficients: Array) -> Array:
    """sum_i c_i z_i z_i' over the columns z_i of a block.

    If there are many columns of data, the rows of each sign are summed apart: a product with its own transpose
    takes half the time.
    """
    if not is_numpy_array(block) or len(block) < _MANY_COLUMNS:
        return block @ (block * coefficients).T
    root = _matching(block, np.sqrt(np.abs(coefficients)))
    total = np.zeros((len(block), len(block)))
    for add, chosen in ((np.add, coefficients > 0.0), (np.subtract, coefficients < 0.0)):
        indices = np.flatnonzero(chosen)
        some = np.take(block.T, indices, axis=0)
        some *= root[indices, None]
        add(total, some.T @ some, out=total)
    return total


def _has_contiguous_rows(block: Array) -> bool:
    """Whether each row, a column of the block, is contiguous in memory."""
    return bool(is_numpy_array(block) and block.flags.f_contiguous)


def _squared_lengths(block: Array, factor: FloatArray) -> Array:
    factor = _matching(block, factor)
    if _has_contiguous_rows(block):
        projected = block.T @ factor
        return _row_dots(projected, projected)
    return squared_columns(factor.T @ block)


def _quadratic(matrix: FloatArray, block: Array) -> Array:
    matrix = _matching(block, matrix)
    if _has_contiguous_rows(block):
        return _row_dots(block.T @ matrix, block.T)
    return _column_dots(matrix @ block, block)


def _row_dots(left: FloatArray, right: FloatArray) -> FloatArray:
    """The dot product of each row of `left` with the same row of `right`, to the precision of its terms."""
    dots: FloatArray = np.einsum("ij,ij->i", left, right).astype(np.float64, copy=False)
    return dots


def squared_columns(product: Array) -> Array:
    """The squared length of each column."""
    return _column_dots(product, product)


def _column_dots(left: Array, right: Array) -> Array:
    """The dot product of each column of `left` with the same column of `right`."""
    if is_numpy_array(left):
        return np.einsum("ij,ij->j", left, right, dtype=np.float64)
    return array_namespace(left).vecdot(left, right, axis=-2)


def _symmetric(total: Array) -> FloatArray:
    matrix: FloatArray = to_numpy(0.5 * (total + total.T))
    return matrix
