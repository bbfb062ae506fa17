"""Sources that are read in blocks of rows: differences z_i in memory, from a file, or computed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array
from numpy.typing import NDArray

from closefar import packed
from closefar.arrays import (
    LEGS,
    Array,
    FloatArray,
    IndexArray,
    as_float64,
    engine_of,
    is_mapped,
    is_on_gpu,
    is_tensor,
    like,
    release,
    take_rows,
    to_numpy,
)
from closefar.rows.fused import (
    AsStored,
    FusedPasses,
    exact_forms,
    free_for_torch,
    fused_terms,
    passes_or_reason,
    why_not_fused,
    why_not_here,
)
from closefar.rows.source import Coordinates, Joined, RowFunction, RowSource, Terms, Trait, concatenated, slices

# ---------------------------------------------------------------------------------------------------------------------
# Products with one block of rows, in the library of its array: each row is a column of the block.


_REDUCED = 32  # rows that are reduced at a time
_PRODUCT_COLUMNS = 48  # from here on, a sum of outer products is limited by its products


def line_extremes(block: Array) -> list[FloatArray]:
    """The largest and minus the smallest entry of each line of a block."""
    d, n = block.shape
    if is_numpy_array(block) and block.T.flags.c_contiguous and n >= _REDUCED:
        # Lines that lie side by side are reduced many at a time.
        wide = block.T[: n - n % _REDUCED].reshape(-1, _REDUCED * d)
        rest = block[:, n - n % _REDUCED :]
        lines = np.hstack([wide.max(axis=0).reshape(_REDUCED, d).T, wide.min(axis=0).reshape(_REDUCED, d).T, rest])
        return [lines.max(axis=1), -lines.min(axis=1)]
    xp = array_namespace(block)
    return list(to_numpy(xp.stack([xp.max(block, axis=1), -xp.min(block, axis=1)])))


def is_uniform(weights: Array) -> bool:
    """Whether all weights are the same, as one number that stands for all, or as so many numbers."""
    if is_numpy_array(weights) and weights.strides == (0,):
        return True
    return not bool(array_namespace(weights).any(weights != weights[:1]))


def _scaled_rows(block: Array, centre: FloatArray, scale: FloatArray) -> Array:
    """The rows x = (z - centre) / scale, each a column."""
    centred = block - like(block, centre)[:, None] if np.any(centre) else block
    return centred / like(block, scale)[:, None]


def roots(block: Array, weights: Array) -> Array:
    """The square roots of weights, in the library of a block."""
    weights = matching(block, weights)
    return array_namespace(weights).sqrt(weights)


def triangle_of(rows: Array) -> Array:
    """The triangular factor of a QR decomposition."""
    if is_numpy_array(rows):
        return np.linalg.qr(rows, mode="r")
    return array_namespace(rows).linalg.qr(rows)[1]


def columns_at(block: Array, indices: IndexArray) -> Array:
    """Some columns of a block, in its memory order."""
    if is_numpy_array(block):
        if block.strides[1] != block.itemsize:
            return block[:, indices]
        found = np.empty((len(block), len(indices)), dtype=block.dtype)
        for line, values in enumerate(block):
            np.take(values, indices, out=found[line])
        return found
    return array_namespace(block).take(block, like(block, indices), axis=1)


def added(total: Array, part: Array) -> Array:
    """The sum in double precision, regardless of that of the parts; `total` is None before the first of them."""
    if total is None:
        return as_float64(part)
    total += part
    return total


def empty_like(block: Array, shape: tuple[int, int], dtype: Any = None) -> Array:
    return array_namespace(block).empty(shape, dtype=dtype or block.dtype, device=device(block))


def assembled(parts: Iterator[tuple[slice, Array]], n_rows: int, *, axis: int) -> Array:
    """One array of these parts, which have their rows along an axis; a part that is all of it is not copied."""
    found: Array = None
    for where, part in parts:
        if part.shape[axis] == n_rows:
            return part
        if found is None:
            found = empty_like(part, (n_rows, int(part.shape[1])) if axis == 0 else (int(part.shape[0]), n_rows))
        found[(where, slice(None)) if axis == 0 else (slice(None), where)] = part
    return found


def as_type_of(array: Array, model: Array) -> Array:
    return array_namespace(array).astype(array, model.dtype, copy=False)


def matching(block: Array, values: Array) -> Array:
    """These numbers in the library and the precision of a block."""
    if is_numpy_array(block):
        return values.astype(block.dtype, copy=False)
    return as_type_of(like(block, values) if is_numpy_array(values) else values, block)


def row_array_like(model: Array, values: FloatArray) -> Array:
    """One number per row in the library and on the device of the rows: copied as they are stored, or as one number."""
    if is_numpy_array(model):
        return values
    xp = array_namespace(model)
    if values.strides == (0,) and len(values):
        return xp.broadcast_to(like(model, values[:1].astype(np.float64)), values.shape)
    handle = like(model, values)
    # Torch and CuPy compute with signs of one byte as NumPy does.
    return handle if values.dtype == np.int8 and is_on_gpu(model) else xp.astype(handle, xp.float64, copy=False)


def interleaved(near: Array, far: Array) -> Array:
    """One number for each leg, from those of near and of far legs."""
    if is_numpy_array(near):
        both = np.empty(2 * len(near), dtype=near.dtype)  # faster than a stack
        both[0::2], both[1::2] = near, far
        return both
    xp = array_namespace(near)
    return xp.reshape(xp.stack([near, far], axis=1), (-1,))


def weighted_outer(block: Array, coefficients: Array) -> Array:
    """sum_i c_i z_i z_i' over the columns z_i of a block.

    If there are many columns of data, the rows of each sign are summed apart: a product with its own transpose
    takes half the time.
    """
    if not is_numpy_array(block) or len(block) < _PRODUCT_COLUMNS:
        return block @ (block * matching(block, coefficients)).T
    root = matching(block, np.sqrt(np.abs(coefficients)))
    total = np.zeros((len(block), len(block)))
    for add, chosen in ((np.add, coefficients > 0.0), (np.subtract, coefficients < 0.0)):
        indices = np.flatnonzero(chosen)
        some = np.take(block.T, indices, axis=0)
        some *= root[indices, None]
        add(total, some.T @ some, out=total)
    return total


def has_contiguous_rows(block: Array) -> bool:
    """Whether each row, a column of the block, is contiguous in memory."""
    return bool(block.flags.f_contiguous if is_numpy_array(block) else is_tensor(block) and block.T.is_contiguous())


def squared_lengths(block: Array, factor: Array) -> Array:
    if has_contiguous_rows(block):
        projected = block.T @ factor
        return row_dots(projected, projected)
    return squared_columns(factor.T @ block)


def quadratic_forms(matrix: Array, block: Array) -> Array:
    if has_contiguous_rows(block):
        return row_dots(block.T @ matrix, block.T)
    return column_dots(matrix @ block, block)


def row_dots(left: Array, right: Array) -> Array:
    """The dot product of each row of `left` with the same row of `right`, to the precision of its terms."""
    if is_numpy_array(left):
        return np.einsum("ij,ij->i", left, right).astype(np.float64, copy=False)
    return as_float64(array_namespace(left).vecdot(left, right, axis=-1))


def squared_columns(product: Array) -> Array:
    """The squared length of each column."""
    return column_dots(product, product)


def column_dots(left: Array, right: Array) -> Array:
    """The dot product of each column of `left` with the same column of `right`."""
    if is_numpy_array(left):
        return np.einsum("ij,ij->j", left, right, dtype=np.float64)
    return as_float64(array_namespace(left).vecdot(left, right, axis=-2))


def symmetric(total: Array) -> FloatArray:
    """The same matrix without the rounding errors by which it is not symmetric, in NumPy."""
    return to_numpy(0.5 * (total + total.T))


# ---------------------------------------------------------------------------------------------------------------------
# Packed products of rows: the features whose sums of squares, and whose sums over groups, a solver requests.
#
# A row has one leg z, whose features are zz', or two: those of a comparison are those of its far leg minus those of
# its near leg, which comes first.


Blocks = Iterable[tuple[slice, Array]]


def features_of(
    blocks: Blocks, root: Array, border: tuple[Array, ...], step: int, *, n_legs: int = 1, rough: bool = False
) -> Iterator[Array]:
    """Give root_i F_i, packed, and border_i as columns, `step` rows at a time, without the weights of packed entries.

    `blocks` are legs, each a column, and where they are among all legs; root and border have one number per row.
    """
    features: Array = None  # reused, since allocation would take longer than the products
    other: Array = None
    for where, block in blocks:
        size = packed.packed_size(int(block.shape[0]))
        if features is None:
            dtype = array_namespace(block).float32 if rough else block.dtype
            features = empty_like(block, (size + len(border), min(step, int(root.shape[0]))), dtype)
            other = None if n_legs == 1 else empty_like(block, (size, int(features.shape[1])), dtype)
        first, last = where.start // n_legs, where.stop // n_legs
        for start in range(first, last, step):
            stop = min(start + step, last)
            filled, scale = features[:, : stop - start], as_type_of(root[start:stop], features)
            columns = as_type_of(block[:, (start - first) * n_legs : (stop - first) * n_legs], features)
            _fill(columns, scale, filled, None if other is None else other[:, : stop - start])
            for line, values in enumerate(border, start=size):
                filled[line, :] = as_type_of(values[start:stop], filled)
            yield filled


def _fill(columns: Array, scale: Array, filled: Array, other: Array | None) -> None:
    if other is None:
        packed.fill_products(columns, scale, out=filled)
        return
    packed.fill_products(columns[:, 1::2], scale, out=filled)
    packed.fill_products(columns[:, 0::2], scale, out=other)
    filled[: other.shape[0], :] -= other


# ---------------------------------------------------------------------------------------------------------------------
# Rows that are read in blocks.


_SAFE_SCALES = 1e-60, 1e60  # of columns, whose squares and their sums neither overflow nor underflow

# A block and its products stay in cache; the overhead of the loop over blocks is negligible.  On a GPU, blocks are many
# times as large as what it computes at once.
BLOCK_BYTES, GPU_BLOCK_BYTES = 1 << 21, 1 << 29

# Up to this size the rows in unit-free coordinates are kept; beyond it each pass maps them again.
KEEP_BYTES = 1 << 28

# Rows of up to this many columns are mapped and kept if they are few, or if reading them takes time.
NARROW = 32


class BlockRows(RowSource):
    """Rows z_i that are computed with block by block, in their array library; a source only has to `read` blocks."""

    is_single: bool = False  # computed with in single precision; sums over blocks are in double precision
    n_together: int = 1  # consecutive rows, such as the two legs of a comparison, that no block divides
    is_held: bool = False  # in memory as `read` returns them, so that reading takes no time
    stored_in_single: Array | None = None  # all rows as one array of shape (n, d), if they are in single precision

    def in_single(self) -> BlockRows | None:
        """Return a source that computes in single precision; None if there is none, or if it takes much memory."""
        return None

    @cached_property
    def model(self) -> Array:
        return self.read(slice(0, 0))

    # Fused passes, if the rows are on a GPU that has kernels for them.

    @cached_property
    def rough(self) -> BlockRows:
        return self if isinstance(self._offer, str) else FusedRows(self, self._offer)

    @cached_property
    def _offer(self) -> FusedPasses | str:
        """The fused passes over these rows, or why there are none."""
        if not is_on_gpu(self.model) or self.n_rows == 0:
            return ""
        return why_not_fused(self.model, self.n_columns) or passes_or_reason(self)

    @property
    def as_stored(self) -> AsStored | None:
        """The rows as they are stored, if that is in single precision and sums over them may be mapped."""
        return None

    @property
    def traits(self) -> frozenset[Trait]:
        may_be_fused = is_on_gpu(self.model) and not why_not_fused(self.model, self.n_columns)
        return frozenset([Trait.PROJECTIONS, Trait.KERNELS] if may_be_fused else [Trait.PROJECTIONS])

    @property
    def projected_bytes(self) -> int:
        return 8 * self.n_rows

    @property
    def most_projected(self) -> int:
        is_card = is_on_gpu(self.model) and is_tensor(self.model)
        return free_for_torch(self.model.device) // 4 if is_card else super().most_projected

    @property
    def engine(self) -> str:
        offer = vars(self).get("_offer", "")  # if no pass needed it, it was not made
        if not isinstance(offer, str):
            return f"{engine_of(self.model)}, {offer.words}"
        plain = ", plain array API" if is_on_gpu(self.model) else ""
        return engine_of(self.model) + plain + (f" ({offer})" if offer else "")

    # Rows of one leg; see `closefar.rows.legs`.

    @property
    def n_pairs(self) -> int:
        """How many of the first rows are not."""
        return self.n_rows

    @property
    def legs(self) -> BlockRows:
        return self

    def with_scale(self, scale: float) -> Any:
        """Return the same rows with another factor of the margins of comparisons."""
        return self

    def with_legs(self, legs: BlockRows) -> Any:
        """Return the same rows with these legs."""
        return legs

    def leg_weights(self, weights: Array) -> Array:
        """Return the weight of each leg."""
        return weights

    def leg_signs(self, signs: Array) -> Array:
        """Return the sign of each leg."""
        return signs

    # Some of the rows.

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

    @abstractmethod
    def read(self, where: slice) -> Array:
        """Return these rows, each as a column, in double precision."""

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        for where in self._block_slices():
            yield where, self.read(where)

    def in_coordinates(self, coordinates: Coordinates) -> BlockRows:
        return MappedRows(self, coordinates)

    def spanning(self) -> FloatArray | None:
        """Vectors, each a row, that span all rows, if there are fewer than half as many as columns."""
        if 2 * self.n_rows > self.n_columns:
            return None
        return to_numpy(self.read(slice(0, self.n_rows))).T

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
                    taken = empty_like(some, (len(wanted), self.n_columns)).T  # the entries of a row are together
                taken[:, first:last] = some
        taken = self.read(slice(0, 0)) if taken is None else taken
        return held(taken if order is None else columns_at(taken, np.argsort(order)))

    def take(self, indices: IndexArray, *arrays: Array) -> tuple[BlockRows, list[Array]]:
        return self.take_rows(indices), [self.pick(array, indices) for array in arrays]

    def row_array(self, values: FloatArray) -> Array:
        return row_array_like(self.model, values)

    def forward(self, factor: FloatArray) -> Array:
        """Return the projections as an array of shape (n, k)."""
        factor = matching(self.model, factor)
        return assembled(((where, block.T @ factor) for where, block in self.blocks()), self.n_rows, axis=0)

    def backward(self, projections: Array, coefficients: Array) -> FloatArray:
        total: Array = None
        for where, block in self.blocks():
            here = projections[where, :]
            # This order of the product is up to 40 % faster than block @ scaled.
            total = added(total, (here * matching(here, coefficients[where])[:, None]).T @ block.T)
        return to_numpy(total.T)

    def inner(self, left: Array, right: Array) -> Array:
        return row_dots(left, right)

    def projected_blocks(self, factor: FloatArray) -> Iterator[tuple[slice, Array]]:
        """Give A'z_i as columns, a block of rows at a time."""
        turned = matching(self.model, factor).T
        return ((where, turned @ block) for where, block in self.blocks())

    def projected(self, factor: FloatArray) -> FloatArray:
        """Return A'z_i for each row, k numbers each, in NumPy: an array of shape (n, k)."""
        return to_numpy(self.forward(factor))

    def forms(self, matrix: FloatArray) -> Array:
        if Trait.KERNELS in self.traits and self.stored_in_single is not None:
            return exact_forms(self.stored_in_single, matrix)
        matrix = matching(self.model, matrix)
        return concatenated([quadratic_forms(matrix, block) for _, block in self.blocks()])

    def squared_distances(self, factor: FloatArray) -> Array:
        if Trait.KERNELS in self.traits and self.stored_in_single is not None:
            return exact_forms(self.stored_in_single, factor, is_factor=True)
        factor = matching(self.model, factor)
        return concatenated([squared_lengths(block, factor) for _, block in self.blocks()])

    def outer(self, coefficients: Array) -> FloatArray:
        total: Array = None
        for where, block in self.blocks():
            total = added(total, weighted_outer(block, coefficients[where]))
        return symmetric(total)

    def fused_each(self, function: RowFunction, *arrays: Array) -> Terms | None:
        return None if function.kernel is None or why_not_here(self.model) else fused_terms(function.kernel, *arrays)

    def sweep(self, function: RowFunction, matrix: FloatArray, *arrays: Array) -> tuple[Terms, FloatArray]:
        if is_on_gpu(self.model):
            return super().sweep(function, matrix, *arrays)
        joined, total, matrix = Joined(self.n_rows, pulls=False), None, matching(self.model, matrix)
        for where, block in self.blocks():
            part = function(quadratic_forms(matrix, block), *(array[where] for array in arrays))
            joined.add(where, part)
            total = added(total, weighted_outer(block, part.pull))
        return joined.terms(), symmetric(total)

    # The same of comparisons whose legs these are, near and far in turn.

    def leg_forms(self, matrix: FloatArray) -> Array:
        forms = self.forms(matrix)
        return forms[1::2] - forms[0::2]

    def leg_outer(self, coefficients: Array) -> FloatArray:
        return self.outer(interleaved(-coefficients, coefficients))

    def leg_sweep(self, function: RowFunction, matrix: FloatArray, *arrays: Array) -> tuple[Terms, FloatArray] | None:
        """A sweep by a kernel; None without one."""
        return None

    def rotated_moments(
        self, curvature: Array, crosses: tuple[Array, ...], basis: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        forms = ((where, turned * turned) for where, turned in self.projected_blocks(basis))
        return moments_of(forms, (curvature, *crosses))

    def sum_of_squares(self, root: Array, border: tuple[Array, ...], *, rough: bool = False) -> FloatArray:
        return sum_of_features(self, root, border, rough=rough)

    def grouped_outers(self, coefficients: Array, groups: Array, n_groups: int) -> FloatArray:
        if not is_numpy_array(self.model):
            return super().grouped_outers(coefficients, groups, n_groups)
        return grouped_sums(self, coefficients, groups, n_groups)

    # What is measured of the columns, from which unit-free coordinates are found.

    def largest(self, centre: FloatArray) -> FloatArray:
        """Return the largest absolute value of each column, measured from `centre`."""
        upper = lower = np.full(self.n_columns, -np.inf)
        for _, block in self.blocks():
            highest, least = line_extremes(block)
            upper, lower = np.maximum(upper, highest), np.maximum(lower, least)
        found: FloatArray = np.maximum(upper - centre, centre + lower)
        return found

    def weighted_sum(self, weights: Array) -> FloatArray:
        """Return sum_i w_i z_i."""
        total: Array = None
        for where, block in self.blocks():
            total = added(total, block @ matching(block, weights[where]))
        return to_numpy(total)

    def second_moment(self, weights: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
        """Return sum_i w_i x_i x_i' of the scaled rows x = (z - centre) / scale."""
        lowest, highest = _SAFE_SCALES
        finite = scale[np.isfinite(scale)]
        # Sums of such numbers can be scaled instead of the rows, which would take as long as the sums of few columns.
        scales_sums = not np.any(centre) and lowest < finite.min(initial=1.0) and finite.max(initial=1.0) < highest
        is_weighted, total = not is_uniform(weights), None
        for where, block in self.blocks():
            rows = block if scales_sums else _scaled_rows(block, centre, scale)
            rows = rows * roots(block, weights[where]) if is_weighted else rows
            total = added(total, rows @ rows.T)
        found = to_numpy(total)
        if scales_sums:
            found = found / scale[:, None] / scale
        return found if is_weighted or self.n_rows == 0 else found * float(weights[0])

    def scaled_squares(self, weights: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
        """Return the diagonal of that second moment alone."""
        total: Array = None
        for where, block in self.blocks():
            rows = _scaled_rows(block, centre, scale)
            total = added(total, (rows * rows) @ matching(block, weights[where]))
        return to_numpy(total)

    def triangle(self, weights: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
        """Return a triangular R with R'R = sum_i w_i x_i x_i', without the rounding errors of that sum."""
        found: Array = None
        for where, block in self.blocks():
            rows = (_scaled_rows(block, centre, scale) * roots(block, weights[where])).T
            found = triangle_of(rows if found is None else array_namespace(rows).concat([found, rows]))
        return to_numpy(found)

    def cross_moment(self, other: BlockRows, factor: FloatArray, weights: Array) -> FloatArray:
        """Return sum_i w_i z_i (A'y_i)', where y_i are the same rows in other coordinates."""
        total: Array = None
        for where, block in other.blocks():
            here = self.read(where)
            total = added(total, (here * matching(here, weights[where])) @ (block.T @ like(block, factor)))
        return to_numpy(total)

    def squared_lengths(self, coordinates: Coordinates) -> Array:
        """Return the squared length of each row in coordinates, without the constant of a learned origin."""
        if not coordinates.has_constant:
            return self.squared_distances(coordinates.transform)
        return concatenated([squared_columns(coordinates.apply(block)[:-1, :]) for _, block in self.blocks()])

    def _read_some(self, where: slice, indices: IndexArray) -> Array:
        """Return some of the rows of a block."""
        return columns_at(self.read(where), indices)

    def _block_slices(self) -> Iterator[slice]:
        # More than as many rows as columns, or sums of outer products would be limited by adding them.
        size = max(512, self._block_bytes // (8 * self.n_columns), 2 * self.n_columns) * (2 if self.is_single else 1)
        return slices(self.n_rows, size - size % self.n_together)

    @property
    def n_features_at_once(self) -> int:
        """How many rows have their packed products computed at a time."""
        return max(256, self._block_bytes // (16 * packed.packed_size(self.n_columns)))

    @cached_property
    def _block_bytes(self) -> int:
        return GPU_BLOCK_BYTES if is_on_gpu(self.model) else BLOCK_BYTES


class MappedRows(BlockRows):
    """The rows of another source in other coordinates: kept if they are few, otherwise mapped in each pass."""

    keeps: ClassVar[bool] = True

    def __init__(self, source: BlockRows, coordinates: Coordinates) -> None:
        super().__init__(source.n_rows, coordinates.n_directions)
        self._source = source
        self._coordinates = coordinates
        self._kept: Array = None
        if self.keeps and 8 * self.n_rows * self.n_columns <= KEEP_BYTES:
            mapped = ((where, coordinates.apply(block)) for where, block in source.blocks())
            self._kept = assembled(mapped, self.n_rows, axis=1)

    def read(self, where: slice) -> Array:
        if self._kept is not None:
            return self._kept[:, where]
        return self._coordinates.apply(self._source.read(where))

    def take_rows(self, indices: IndexArray) -> BlockRows:
        if self._kept is not None or not is_on_gpu(self.model):
            return super().take_rows(indices)
        taken = self._source.take_rows(indices)
        return held(self._coordinates.apply(taken.read(slice(0, taken.n_rows))))

    def _read_some(self, where: slice, indices: IndexArray) -> Array:
        if self._kept is not None:
            return super()._read_some(where, indices)
        return self._coordinates.apply(columns_at(self._source.read(where), indices))


class FusedRows(BlockRows):
    """Rows on a GPU whose sums are computed by kernels, precisely enough to approach an optimum.

    What kernels don't compute is that of the exact rows.  Projections are factors, since forms take about as long as
    projections would.
    """

    def __init__(self, exact: BlockRows, passes: FusedPasses) -> None:
        super().__init__(exact.n_rows, exact.n_columns)
        self._exact, self.passes = exact, passes
        self.condition, self.n_together, self.is_single = exact.condition, exact.n_together, exact.is_single

    def read(self, where: slice) -> Array:
        return self._exact.read(where)

    def take_rows(self, indices: IndexArray) -> BlockRows:
        return self._exact.take_rows(indices)

    @cached_property
    def rough(self) -> BlockRows:
        faster = self.passes.faster
        return self if faster is self.passes else FusedRows(self._exact, faster)

    @property
    def traits(self) -> frozenset[Trait]:
        return frozenset([Trait.FUSED, Trait.KERNELS])

    @property
    def projected_bytes(self) -> int:
        return 8 * self.n_columns

    @property
    def engine(self) -> str:
        return f"{engine_of(self.model)}, {self.passes.words}"

    def forms(self, matrix: FloatArray) -> Array:
        return self.passes.forms(matrix) if self.passes.n_legs == 1 else self._exact.forms(matrix)

    def outer(self, coefficients: Array) -> FloatArray:
        found = self.passes.outer(coefficients) if self.passes.n_legs == 1 else None
        return self._exact.outer(coefficients) if found is None else found

    def sweep(self, function: RowFunction, matrix: FloatArray, *arrays: Array) -> tuple[Terms, FloatArray]:
        kernel = function.kernel if self.passes.n_legs == 1 else None
        found = None if kernel is None else self.passes.sweep(kernel, matrix, *arrays)
        if found is not None:
            return found
        terms, total = RowSource.sweep(self, function, matrix, *arrays)
        return terms._replace(forms=None), total  # which are not exact

    def leg_forms(self, matrix: FloatArray) -> Array:
        return self.passes.forms(matrix)

    def leg_outer(self, coefficients: Array) -> FloatArray:
        found = self.passes.outer(coefficients)
        return super().leg_outer(coefficients) if found is None else found

    def leg_sweep(self, function: RowFunction, matrix: FloatArray, *arrays: Array) -> tuple[Terms, FloatArray] | None:
        kernel = function.kernel
        return None if kernel is None else self.passes.sweep(kernel, matrix, *arrays)

    forward = RowSource.forward
    backward = RowSource.backward
    inner = RowSource.inner
    squared_distances = RowSource.squared_distances


# ---------------------------------------------------------------------------------------------------------------------
# The differences z = x - y of pairs, in the user's own columns.


# Up to this size, rows in double precision are copied to single precision for the steps that approach an optimum.
COPY_BYTES = 1 << 27

# Pages of a memory map that were read count as memory in use; they are released in portions of this size.
RELEASED_BYTES = 1 << 26


_POINTS = {2: (0, 1)} | {size: (*near, *far) for size, (near, far) in LEGS.items()}


class Differences(BlockRows):
    """The rows of an (n, d) array of differences or points, or of an (n, 2, d) array of pairs.

    Those of an (n, 3, d) or (n, 4, d) array of comparisons are their legs: the near and the far difference of each.

    `data` may be an array of any library, or a memory map.  If they are `is_single`, rows are read in the precision
    that they are stored in.
    """

    def __init__(self, data: Array, *, is_single: bool = False) -> None:
        self._points = _POINTS[int(data.shape[1])] if data.ndim == 3 else ()
        self.n_together = max(1, len(self._points) // 2)
        super().__init__(self.n_together * int(data.shape[0]), int(data.shape[-1]))
        self.is_single = is_single
        self._data = data
        self._is_as_read = is_single or str(data.dtype).endswith("float64")
        self._is_mapped = is_mapped(data)
        self._unreleased = 0
        if data.ndim == 2 and is_numpy_array(data):
            self.is_held = bool(data.dtype == np.float64 and data.flags.c_contiguous)
        elif data.ndim == 2 and is_tensor(data) and str(data.dtype) == "torch.float32" and data.is_contiguous():
            self.stored_in_single = data

    def read(self, where: slice) -> Array:
        """Return these differences without reading the others."""
        if self._is_mapped:
            self._release_some(where)
        if len(self._points) < 4:
            block = self._data[where, ...] if self._is_as_read else as_float64(self._data[where, ...])
            return (block[:, 0, :] - block[:, 1, :]).T if self._points else block.T
        first, last = where.start // 2, -(-where.stop // 2)
        block = self._data[first:last, ...] if self._is_as_read else as_float64(self._data[first:last, ...])
        a, b, c, e = (block[:, point, :] for point in self._points)
        if is_numpy_array(block):
            legs: Array = np.empty((2 * len(a), self.n_columns), dtype=block.dtype)
            np.subtract(a, b, out=legs[0::2])
            np.subtract(c, e, out=legs[1::2])
        else:
            xp = array_namespace(block)
            legs = xp.reshape(xp.stack([a - b, c - e], axis=1), (2 * int(a.shape[0]), self.n_columns))
        start = where.start - 2 * first
        return legs[start : start + where.stop - where.start, :].T

    def at_hand(self) -> Differences:
        """Subtract the points of pairs once, if the differences of many columns take little memory."""
        data = self._data
        is_in_double = is_numpy_array(data) and not self._is_mapped and data.dtype == np.float64
        takes = 8 * self.n_rows * self.n_columns
        if self._points != (0, 1) or not is_in_double or self.n_columns <= NARROW or takes > KEEP_BYTES:
            return self
        return Differences(data[:, 0] - data[:, 1])

    def _release_some(self, where: slice) -> None:
        """Before these rows are read, release what was read before, if it is much."""
        self._unreleased += (where.stop - where.start) * self._data[:1].nbytes // self.n_together
        if self._unreleased > RELEASED_BYTES:
            release(self._data)
            self._unreleased = 0

    def take_rows(self, indices: IndexArray) -> BlockRows:
        if not is_on_gpu(self._data) or self.n_together > 1:
            return super().take_rows(indices)
        taken = Differences(take_rows(self._data, indices), is_single=self.is_single)
        return held(taken.read(slice(0, len(indices))))

    def largest(self, centre: FloatArray) -> FloatArray:
        if self._data.ndim != 2 or not is_on_gpu(self._data):
            return super().largest(centre)
        xp = array_namespace(self._data)  # without a copy in double precision
        lowest, highest = (to_numpy(as_float64(reduce(self._data, axis=0))) for reduce in (xp.min, xp.max))
        found: FloatArray = np.maximum(highest - centre, centre - lowest)
        return found

    def in_single(self) -> BlockRows | None:
        if str(self._data.dtype).endswith("float32"):
            return Differences(self._data, is_single=True)
        if not is_numpy_array(self._data) or 4 * self.n_rows * self.n_columns > COPY_BYTES:
            return None
        copied = np.empty((self.n_rows, self.n_columns), dtype=np.float32)
        for where, block in self.blocks():
            copied[where] = block.T
        single = Differences(copied, is_single=True)
        single.n_together = self.n_together
        return single


def moments_of(forms: Iterator[tuple[slice, Array]], arrays: tuple[Array, ...]) -> tuple[FloatArray, FloatArray]:
    """See `RowSource.rotated_moments`: of forms q_i, each a column, and of the curvature and the crosses."""
    fourth, sums = None, None
    for where, block in forms:
        xp = array_namespace(block)
        weighted = [block * matching(block, array[where]) for array in arrays]
        sums = added(sums, xp.stack([xp.sum(each, axis=1) for each in weighted], axis=1))
        fourth = added(fourth, weighted[0] @ block.T)
    return to_numpy(fourth), to_numpy(sums)


def sum_of_features(
    legs: BlockRows, root: Array, border: tuple[Array, ...], *, n_legs: int = 1, rough: bool = False
) -> FloatArray:
    """See `RowSource.sum_of_squares`, for rows of one leg or two."""
    with np.errstate(over="ignore", invalid="ignore"):
        features = features_of(legs.blocks(), root, border, legs.n_features_at_once, n_legs=n_legs, rough=rough)
        total: Array = None
        for each in features:
            total = added(total, each @ each.T)
    found = to_numpy(total)
    if rough and not np.all(np.isfinite(found)):  # beyond the range of single precision
        return sum_of_features(legs, root, border, n_legs=n_legs)
    scale = np.append(packed.weights(legs.n_columns), np.ones(len(border)))
    return found * np.outer(scale, scale)


def grouped_sums(
    legs: BlockRows, coefficients: FloatArray, groups: NDArray[Any], n_groups: int, *, n_legs: int = 1
) -> FloatArray:
    """See `RowSource.grouped_outers`, for rows of one leg or two, in NumPy: one sweep for any number of groups."""
    from scipy.sparse import csr_array  # metrics are loaded and applied without SciPy

    total, first = np.zeros((n_groups + 1, packed.packed_size(legs.n_columns))), 0
    groups = np.minimum(groups, n_groups).astype(np.intp)
    for features in features_of(legs.blocks(), coefficients, (), legs.n_features_at_once, n_legs=n_legs):
        n = features.shape[1]
        members = csr_array((np.ones(n), groups[first : first + n], np.arange(n + 1)), shape=(n, n_groups + 1))
        total += members.T @ features.T
        first += n
    sums: FloatArray = total[:n_groups] * packed.weights(legs.n_columns)
    return sums


def held(columns: Array) -> Differences:
    """Return the rows that are the columns of an array in memory."""
    return Differences(columns.T, is_single=str(columns.dtype).endswith("float32"))


class FromOrigin(BlockRows):
    """The rows of another source, measured from an origin."""

    def __init__(self, source: BlockRows, origin: FloatArray) -> None:
        super().__init__(source.n_rows, source.n_columns)
        self._source = source
        self._origin = origin

    def read(self, where: slice) -> Array:
        block = self._source.read(where)
        return block - like(block, self._origin)[:, None]
