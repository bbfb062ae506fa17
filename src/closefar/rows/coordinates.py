"""Finding unit-free coordinates of rows.

Columns are scaled before they are decomposed, so that units and their range do not matter.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import TINY, Array, FloatArray, is_on_gpu, to_numpy
from closefar.rows.blocks import KEEP_BYTES, NARROW, BlockRows, MappedRows, symmetric
from closefar.rows.fused import AsStored
from closefar.rows.indexed import IndexedRows
from closefar.rows.legs import Rows, StackedRows, rows_of_legs
from closefar.rows.source import ENORMOUS, Coordinates, RowFunction, Terms, Trait

# ---------------------------------------------------------------------------------------------------------------------
# Rows of many columns in other coordinates, which are applied to factors and sums, never to the rows.
#
# With w = T'z for each row, W A = Z (T A) and W'Y = T'(Z'Y): a product with a factor of k columns takes k / d of
# the time that mapping the rows would.


_CACHED = 1 << 23  # bytes; beyond it, mapped rows are read from memory like the others

# T'(Z'CZ)T has the rounding error of Z'CZ times the square of the condition number, while rows that are mapped first
# have it once.  Up to this number the square loses four digits of sixteen; beyond it, sums map each block of rows.
_SUMS_UP_TO = 1e2

# In single precision, projections lose as many digits as this number has, of seven; three must be left.
_SINGLE_UP_TO = 1e3
_SINGLE_SCALES = 1e-12, 1e12  # of columns, so that their squares neither overflow nor underflow


def suits_factors(source: BlockRows, coordinates: Coordinates) -> bool:
    """Whether products with factors are faster than mapped rows, and accurate."""
    if coordinates.has_constant or Trait.REMOTE in source.traits or isinstance(source, IndexedRows):
        return False  # pairs by index map their points, which are fewer; partitions decide for themselves
    size = 8 * source.n_rows * coordinates.n_directions
    if source.n_columns <= NARROW:
        return size > (_CACHED if source.is_held else KEEP_BYTES) and coordinates.condition <= _SUMS_UP_TO
    return size > KEEP_BYTES or coordinates.condition <= _SUMS_UP_TO


def mapped_rows(source: BlockRows, coordinates: Coordinates) -> BlockRows:
    """The rows in the coordinates that a fit solves in: mapped, or with factors and sums mapped where that suits."""
    if isinstance(source, StackedRows):
        return source.mapped(lambda part: mapped_rows(part, coordinates))
    if suits_factors(source, coordinates):
        return WideRows(source, coordinates)
    return source.in_coordinates(coordinates)


def condition_of_sums(coordinates: Coordinates) -> float:
    """By how much these coordinates amplify the rounding errors of sums that are mapped, at most."""
    return coordinates.condition if coordinates.condition <= _SUMS_UP_TO else 1.0


class WideRows(MappedRows):
    """The rows of another source in coordinates that are applied to factors and sums."""

    keeps = False

    def __init__(self, source: BlockRows, coordinates: Coordinates) -> None:
        super().__init__(source, coordinates)
        self._transform = coordinates.transform
        self._sums_are_safe = coordinates.condition <= _SUMS_UP_TO
        self.condition = condition_of_sums(coordinates)

    @cached_property
    def rough(self) -> BlockRows:
        fused = super().rough
        if fused is not self:
            return fused
        scales = self._coordinates.scales
        used = scales[scales > 0.0]
        lowest, highest = _SINGLE_SCALES
        if self._coordinates.condition > _SINGLE_UP_TO or used.min() < lowest or used.max() > highest:
            return self
        single = self._source.in_single()
        return self if single is None else WideRows(single, self._coordinates)

    @property
    def as_stored(self) -> AsStored | None:
        array = self._source.stored_in_single if self._sums_are_safe else None
        return None if array is None else AsStored(array, self._transform, self._coordinates.scales)

    def forward(self, factor: FloatArray) -> Array:
        return self._source.forward(self._transform @ factor)

    def backward(self, projections: Array, coefficients: Array) -> FloatArray:
        pulled: FloatArray = self._transform.T @ self._source.backward(projections, coefficients)
        return pulled

    def projected_blocks(self, factor: FloatArray) -> Iterator[tuple[slice, Array]]:
        return self._source.projected_blocks(self._transform @ factor)

    def inner(self, left: Array, right: Array) -> Array:
        return self._source.inner(left, right)

    def squared_distances(self, factor: FloatArray) -> Array:
        return self._source.squared_distances(self._transform @ factor)

    def forms(self, matrix: FloatArray) -> Array:
        if not self._sums_are_safe:
            return super().forms(matrix)
        return self._source.forms(symmetric(self._transform @ matrix @ self._transform.T))

    def outer(self, coefficients: Array) -> FloatArray:
        if not self._sums_are_safe:
            return super().outer(coefficients)
        return symmetric(self._transform.T @ self._source.outer(coefficients) @ self._transform)

    def sweep(self, function: RowFunction, matrix: FloatArray, *arrays: Array) -> tuple[Terms, FloatArray]:
        if not self._sums_are_safe or is_on_gpu(self.model):
            return super().sweep(function, matrix, *arrays)
        mapped = self._transform @ matrix @ self._transform.T
        found, total = self._source.sweep(function, symmetric(mapped), *arrays)
        return found, symmetric(self._transform.T @ total @ self._transform)


# The Gram matrix squares the condition number: below this smallest eigenvalue (of scaled columns) use QR.
_GRAM_IS_SAFE = 1e-7

# The squared length of a row is d on average; beyond 50 d it is enormous and counts as 10 d.
_SURELY_LONG, _COUNTED_AS = 50.0, 10.0
_MOST_ROUNDS = 100  # in each of which the longest row grows by half at least: by 1e17 in all

# Rows that are the only ones to vary in a direction, such as those of a rare category, grow without bound as their
# weight falls; there is nothing that they are enormous compared with, so they keep it.
_BOUNDLESS = 1e24
_N_PROJECTIONS = 32  # random ones, which bound the length of a row: see `_has_no_enormous`

# From this many columns on, a penalised metric of few points is one of their span alone: full matrices take minutes.
_SPANNED_COLUMNS = 1000


def unit_free(source: Rows, weights: Array, **asked: Any) -> tuple[Rows, Coordinates]:
    """Return the rows in unit-free coordinates, and the coordinates, which are `asked` as of `find_coordinates`."""
    coordinates = find_coordinates(source, weights, **asked)
    if coordinates.transform.shape[1] == 0:
        raise ValueError(
            "differences must not all be zero, or no direction separates close from far; got only zero rows. "
            "Check that the two sides of the pairs are not the same objects."
        )
    if Trait.REMOTE in source.traits:
        return source.in_coordinates(coordinates), coordinates
    return source.with_legs(mapped_rows(source.legs, coordinates)), coordinates


def factor_in_rows(rows: Rows, source: Rows, weights: Array, factor: FloatArray) -> FloatArray:
    """Map a factor for the rows of `source` to one for the same rows in other coordinates.

    This uses least squares on the rows, which are well conditioned even if the transformation is not.
    """
    legs, weights = rows.legs, rows.leg_weights(weights)
    mapped = legs.cross_moment(source.legs, factor, weights)
    return np.asarray(np.linalg.lstsq(legs.outer(weights), mapped, rcond=None)[0], dtype=np.float64)


def second_moment(rows: Rows, weights: Array) -> FloatArray:
    """Return sum_i w_i z_i z_i' or, of comparisons, that of their legs, each with half of the weight."""
    return rows.legs.outer(rows.leg_weights(weights))


def find_coordinates(
    source: Rows,
    weights: Array,
    *,
    with_constant: bool = False,
    blend: float = 0.0,
    in_units: bool = False,
    signs: Callable[[], Array] | None = None,
    finds_null: bool = True,
) -> Coordinates:
    """Find coordinates in which the blend (1 - b) Sigma + b diag(Sigma) of second moments is the identity.

    Sigma is the weighted second moment of the rows; `weights` sum to one.  With b = 0 directions
    that do not vary, to rounding, are dropped; with b > 0 columns that do not.  With b = 1 each
    coordinate is one column, scaled.  With `in_units` the blend is with the mean of diag(Sigma) times
    the identity, in the units of the data.  Rows that are enormous compared with the others (for instance
    in the wrong unit) have less weight, or they would dominate: this is a Huber-type estimate, which
    follows every change of units.  Enormous rows that are close, with a negative sign, keep their weight: M is
    almost zero along them, whatever the others are.  `finds_null` also finds the directions that do not vary,
    which can be most of the work if there are many columns.  Weights are a handle of the source, and `signs` returns
    one.  Comparisons count with both of their legs, of half the weight each.
    """
    normalise = partial(_normalise, with_constant=with_constant, blend=blend, in_units=in_units, finds_null=finds_null)
    legs, weights = source.legs, source.leg_weights(weights)
    found, sizes = _find_robust(legs, weights, normalise)
    enormous = found.enormous
    if signs is not None and sizes is not None:
        of_legs = source.leg_signs(signs())
        if np.any(to_numpy(legs.pick(of_legs, enormous)) < 0):
            in_full = legs.map(_longer_than(ENORMOUS**2 * found.transform.shape[1], close=True), sizes, of_legs)
            found, _ = _find_robust(legs, weights, normalise, in_full)
    return replace(found, enormous=rows_of_legs(enormous, source.n_pairs) if source.compares else enormous)


_Normalise = Callable[[BlockRows, Array], Coordinates]  # `_normalise` with what is asked for


def _find_robust(
    source: BlockRows, weights: Array, normalise: _Normalise, in_full: Array | None = None
) -> tuple[Coordinates, Array | None]:
    """Reduce the weight of rows as long as some are enormous, except those that count `in_full`.

    Returns the coordinates and the squared length of each row, None if none is enormous.
    """
    coordinates = normalise(source, weights)
    usual = coordinates.transform.shape[1]
    largest = 0.0
    if _has_no_enormous(source, coordinates):
        return coordinates, None
    for _ in range(_MOST_ROUNDS):
        sizes = source.squared_lengths(coordinates)
        if in_full is not None:
            sizes = source.map(_unless, sizes, in_full)
        before, largest = largest, source.extremes(sizes)[1]
        if largest <= max(_SURELY_LONG * usual, 1.5 * before):
            break
        if largest > _BOUNDLESS:
            alone = source.map(_longer_than(_BOUNDLESS**0.5), sizes)
            in_full = alone if in_full is None else source.map(operator.or_, in_full, alone)
            return _find_robust(source, weights, normalise, in_full)
        less = source.map(_reducing(_COUNTED_AS * usual), weights, sizes)
        coordinates = normalise(source, less * (1.0 / source.total(less)))
    if largest <= ENORMOUS**2 * usual:
        return coordinates, None
    return replace(coordinates, enormous=source.find(_longer_than(ENORMOUS**2 * usual), sizes)), sizes


def _unless(sizes: Array, in_full: Array) -> Array:
    xp = array_namespace(sizes)
    return xp.where(in_full, xp.zeros_like(sizes), sizes)


def _reducing(large: float) -> Callable[[Array, Array], Array]:
    """The weights of rows with these squared lengths: beyond a large one they fall as it grows."""

    def reduced(weights: Array, sizes: Array) -> Array:
        xp = array_namespace(sizes)
        return weights * xp.clip(large / xp.clip(sizes, TINY, None), None, 1.0)

    return reduced


def _longer_than(limit: float, *, close: bool = False) -> Callable[..., Array]:
    """Whether rows are longer, and close if that is asked for."""
    return lambda sizes, *signs: (sizes > limit) & (signs[0] < 0) if close else sizes > limit


def _has_no_enormous(source: BlockRows, coordinates: Coordinates) -> bool:
    """Whether random projections show that no row is enormous, for a fraction of the cost of all lengths.

    The mean square of 32 of them estimates the squared length of a row; that it is five times too small has a
    probability of one in ten million.
    """
    if coordinates.has_constant or source.n_columns <= 2 * _N_PROJECTIONS:
        return False
    usual = coordinates.transform.shape[1]
    random = np.random.default_rng(0).standard_normal((usual, _N_PROJECTIONS)) / np.sqrt(_N_PROJECTIONS)
    _, largest = source.extremes(source.squared_distances(coordinates.transform @ random))
    return bool(largest <= _SURELY_LONG * usual / 5.0)


def _normalise(
    source: BlockRows, weights: Array, *, with_constant: bool, blend: float, in_units: bool, finds_null: bool
) -> Coordinates:
    if blend == 1.0 and not with_constant and source.n_columns > _SPANNED_COLUMNS:
        spanning = source.spanning()
        if spanning is not None:
            return _within_span(source, weights, spanning, in_units=in_units)
    centre = _centre(source, weights, with_constant)
    # With fewer rows than columns the Gram matrix is singular, and may be too large.
    gram: FloatArray | None = None
    triangle: FloatArray | None = None
    scale = _scales(source.largest(centre), centre)
    if blend > 0.0 or source.n_rows >= source.n_columns:
        gram = source.second_moment(weights, centre, scale)
        squares = np.diag(gram)
    else:
        triangle = source.triangle(weights, centre, scale)
        squares = np.sum(triangle**2, axis=0)
    length = np.sqrt(squares)
    length[length == 0] = 1.0
    usual = np.where(np.isfinite(scale), scale * length, 0.0)
    if gram is None or blend == 0.0:
        found = None if gram is None else _principal(gram / np.outer(length, length))
        if found is None:
            triangle = source.triangle(weights, centre, scale) if triangle is None else triangle
            found = _principal_of_triangle(triangle / length, finds_null=finds_null)
        spread, directions = found
        keep = spread > 1e-12 * np.sqrt(len(scale)) * spread.max(initial=0.0)
        transform = directions[:, keep] / spread[keep] / (scale * length)[:, None]
        null = directions[:, ~keep]
    else:
        varies = np.isfinite(scale) & (squares > 0)
        moments, unit = gram / np.outer(length, length), scale * length
        if in_units:
            unit = np.full_like(usual, np.sqrt(np.sum(usual**2) / max(np.sum(varies), 1)) or 1.0)
            moments = moments * np.outer(usual / unit, usual / unit)
        if blend == 1.0:
            spread, turn = np.ones(int(varies.sum())), np.eye(int(varies.sum()))
        else:
            spread, turn = np.linalg.eigh(
                (1.0 - blend) * moments[np.ix_(varies, varies)] + blend * np.eye(int(varies.sum()))
            )
        directions = np.zeros((len(scale), len(spread)))
        directions[varies] = turn
        transform = directions / np.sqrt(spread) / unit[:, None]
        null = np.eye(len(scale))[:, ~varies]
    return Coordinates(transform, -(centre @ transform) if with_constant else None, null, usual)


def _within_span(source: BlockRows, weights: Array, spanning: FloatArray, *, in_units: bool) -> Coordinates:
    """Coordinates along an orthonormal basis of the span of few points of many columns, each column scaled."""
    usual = column_scales(source, weights)
    varies = usual > 0.0
    unit = np.where(varies, usual, 1.0)
    if in_units:
        unit = np.full_like(usual, np.sqrt(np.mean(usual[varies] ** 2)))
    scaled = np.where(varies, spanning, 0.0) / unit
    values, turn = np.linalg.eigh(scaled @ scaled.T)
    keep = values > 1e-12 * values[-1]
    transform = scaled.T @ (turn[:, keep] / np.sqrt(values[keep])) / unit[:, None]
    return Coordinates(transform, None, np.eye(source.n_columns)[:, ~varies], usual)


def column_scales(source: Rows, weights: Array, *, centred: bool = False) -> FloatArray:
    """Return the root mean square of each column of the rows or, if `centred`, its standard deviation.

    All rows count, including enormous ones; `weights`, a handle, sum to one.
    """
    source, weights = source.legs, source.leg_weights(weights)
    centre = _centre(source, weights, centred)
    largest = _scales(source.largest(centre), centre)
    squares = source.scaled_squares(weights, centre, largest)
    return np.where(np.isfinite(largest), largest, 0.0) * np.sqrt(squares)


def _centre(source: BlockRows, weights: Array, centred: bool) -> FloatArray:
    return source.weighted_sum(weights) if centred else np.zeros(source.n_columns)


def _principal(moments: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """The root mean square along each principal direction of the columns (scaled to length one), and the directions.

    None if rounding errors matter.
    """
    values, directions = np.linalg.eigh(moments)
    return (np.sqrt(values), directions) if values[0] > _GRAM_IS_SAFE * values[-1] else None


def _principal_of_triangle(triangle: FloatArray, *, finds_null: bool) -> tuple[FloatArray, FloatArray]:
    """The same from a triangular factor of the scaled columns."""
    _, spread, directions = np.linalg.svd(triangle, full_matrices=finds_null)
    missing = directions.shape[0] - len(spread)
    return np.append(spread, np.zeros(missing)), directions.T


def _scales(largest: FloatArray, centre: FloatArray) -> FloatArray:
    """The largest entry of each centred column; infinite if it is the rounding error of a constant."""
    if not np.all(np.isfinite(largest)):
        raise ValueError("rows must be finite; got NaN or infinity. Leave those pairs out, or fill in the values.")
    constant = largest <= 1e-13 * np.abs(centre)
    return np.where(constant, np.inf, largest)
