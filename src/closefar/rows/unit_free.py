"""Finding unit-free coordinates of rows.

Columns are scaled before they are decomposed, so that units and their range do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from array_api_compat import array_namespace, is_numpy_namespace

from closefar.arrays import TINY, Array, BoolArray, FloatArray, like, to_numpy
from closefar.rows.blocks import BlockRows, squared_columns
from closefar.rows.coordinates import ENORMOUS, Coordinates
from closefar.rows.wide import WideRows, suits_factors

__all__ = ["column_scales", "factor_in_rows", "find_coordinates", "unit_free"]

# The Gram matrix squares the condition number: below this smallest eigenvalue (of scaled columns) use QR.
_GRAM_IS_SAFE = 1e-7

# The squared length of a row is d on average; beyond 50 d it is enormous and counts as 10 d.
_ENORMOUS, _LARGE = 50.0, 10.0
_MOST_ROUNDS = 30
_N_PROJECTIONS = 32

ScaledBlocks = Callable[[], Iterator[Array]]


def unit_free(
    source: BlockRows,
    weights: FloatArray,
    *,
    with_constant: bool = False,
    blend: float = 0.0,
    in_units: bool = False,
    close: BoolArray | None = None,
    finds_null: bool = True,
) -> tuple[BlockRows, Coordinates]:
    """Return the rows in unit-free coordinates, and the coordinates; see `find_coordinates`."""
    coordinates = find_coordinates(
        source,
        weights,
        with_constant=with_constant,
        blend=blend,
        in_units=in_units,
        close=close,
        finds_null=finds_null,
    )
    if coordinates.transform.shape[1] == 0:
        raise ValueError(
            "differences must not all be zero, or no direction separates close from far; got only zero rows. "
            "Check that the two sides of the pairs are not the same objects."
        )
    if suits_factors(source, coordinates):
        return WideRows(source, coordinates), coordinates
    return source.in_coordinates(coordinates), coordinates


def factor_in_rows(rows: BlockRows, source: BlockRows, weights: FloatArray, factor: FloatArray) -> FloatArray:
    """Map a factor for the rows of `source` to one for the same rows in other coordinates.

    This uses least squares on the rows, which are well conditioned even if the transformation is not.
    """
    mapped: Array = 0.0
    moment: Array = 0.0
    for where, block in source.blocks():
        here = rows.read(where)
        weighted = here * like(here, weights[where])
        mapped = mapped + weighted @ (block.T @ like(block, factor))
        moment = moment + weighted @ here.T
    found: FloatArray = np.linalg.lstsq(to_numpy(moment), to_numpy(mapped), rcond=None)[0]
    return found


def find_coordinates(
    source: BlockRows,
    weights: FloatArray,
    *,
    with_constant: bool = False,
    blend: float = 0.0,
    in_units: bool = False,
    close: BoolArray | None = None,
    finds_null: bool = True,
) -> Coordinates:
    """Find coordinates in which the blend (1 - b) Sigma + b diag(Sigma) of second moments is the identity.

    Sigma is the weighted second moment of the rows; `weights` sum to one.  With b = 0 directions
    that do not vary, to rounding, are dropped; with b > 0 columns that do not.  With b = 1 each
    coordinate is one column, scaled.  With `in_units` the blend is with the mean of diag(Sigma) times
    the identity, in the units of the data.  Rows that are enormous compared with the others (for instance
    in the wrong unit) have less weight, or they would dominate: this is a Huber-type estimate, which
    follows every change of units.  Enormous rows that are `close` keep their weight: M is almost zero
    along them, whatever the others are.  `finds_null` also finds the directions that do not vary,
    which can be most of the work if there are many columns.
    """
    asked = _Asked(with_constant, blend, in_units, finds_null)
    counted_less = _find_robust(source, weights, asked, np.zeros(len(weights), dtype=bool))
    in_full = np.zeros(len(weights), dtype=bool)
    in_full[counted_less.enormous] = close is not None and close[counted_less.enormous]
    if not np.any(in_full):
        return counted_less
    found = _find_robust(source, weights, asked, in_full)
    return replace(found, enormous=counted_less.enormous)


@dataclass(frozen=True)
class _Asked:
    """The options of `find_coordinates`."""

    with_constant: bool
    blend: float
    in_units: bool
    finds_null: bool


def _find_robust(source: BlockRows, weights: FloatArray, asked: _Asked, in_full: BoolArray) -> Coordinates:
    """Reduce the weight of rows as long as some are enormous, except those that count `in_full`."""
    coordinates = _normalise(source, weights, asked)
    usual = coordinates.transform.shape[1]
    largest = 0.0
    if _has_no_enormous(source, coordinates):
        return coordinates
    for _ in range(_MOST_ROUNDS):
        sizes = np.where(in_full, 0.0, _squared_lengths(source, coordinates))
        before, largest = largest, float(sizes.max(initial=0.0))
        if largest <= max(_ENORMOUS * usual, 1.5 * before):
            break
        less = weights * np.minimum(1.0, _LARGE * usual / np.maximum(sizes, TINY))
        coordinates = _normalise(source, less / less.sum(), asked)
    return replace(coordinates, enormous=np.flatnonzero(sizes > ENORMOUS**2 * usual))


def _has_no_enormous(source: BlockRows, coordinates: Coordinates) -> bool:
    """Whether random projections show that no row is enormous, for a fraction of the cost of all lengths.

    The mean square of 32 of them estimates the squared length of a row; that it is five times too small has a
    probability of one in ten million.
    """
    if coordinates.has_constant or source.n_columns <= 2 * _N_PROJECTIONS:
        return False
    usual = coordinates.transform.shape[1]
    random = np.random.default_rng(0).standard_normal((usual, _N_PROJECTIONS)) / np.sqrt(_N_PROJECTIONS)
    estimates = source.gather(source.squared_distances(coordinates.transform @ random))
    return bool(estimates.max(initial=0.0) <= _ENORMOUS * usual / 5.0)


def _squared_lengths(source: BlockRows, coordinates: Coordinates) -> FloatArray:
    """The squared length of each row in these coordinates, without the constant of a learned origin."""
    if not coordinates.has_constant:
        return source.gather(source.squared_distances(coordinates.transform))
    mapped = (coordinates.apply(block)[:-1, :] for _, block in source.blocks())
    return np.concatenate([to_numpy(squared_columns(block)) for block in mapped])


def _normalise(source: BlockRows, weights: FloatArray, asked: _Asked) -> Coordinates:
    centre = _centre(source, weights, asked.with_constant)
    scale = _scales(source, centre)

    def scaled_blocks() -> Iterator[Array]:
        for where, block in source.blocks():
            rows = (block.T - like(block, centre) if asked.with_constant else block.T) / like(block, scale)
            rows *= like(block, np.sqrt(weights[where]))[:, None]
            yield rows

    # With fewer rows than columns the Gram matrix is singular, and may be too large.
    has_gram = asked.blend > 0.0 or source.n_rows >= source.n_columns
    gram = source.second_moment(weights, centre, scale) if has_gram else None
    squares = np.diag(gram) if gram is not None else to_numpy(sum(squared_columns(rows) for rows in scaled_blocks()))
    length = np.sqrt(squares)
    length[length == 0] = 1.0
    usual = np.where(np.isfinite(scale), scale * length, 0.0)
    if gram is None or asked.blend == 0.0:
        spread, directions = _directions(gram, length, scaled_blocks, finds_null=asked.finds_null)
        keep = spread > 1e-12 * np.sqrt(len(scale)) * spread.max(initial=0.0)
        transform = directions[:, keep] / spread[keep] / (scale * length)[:, None]
        null = directions[:, ~keep]
    else:
        varies = np.isfinite(scale) & (squares > 0)
        moments, unit = gram / np.outer(length, length), scale * length
        if asked.in_units:
            unit = np.full_like(usual, np.sqrt(np.sum(usual**2) / max(np.sum(varies), 1)) or 1.0)
            moments = moments * np.outer(usual / unit, usual / unit)
        spread, turn = np.linalg.eigh(_blended(moments[np.ix_(varies, varies)], asked.blend))
        directions = np.zeros((len(scale), len(spread)))
        directions[varies] = turn
        transform = directions / np.sqrt(spread) / unit[:, None]
        null = np.eye(len(scale))[:, ~varies]
    return Coordinates(transform, -(centre @ transform) if asked.with_constant else None, null, usual)


def column_scales(source: BlockRows, weights: FloatArray, *, centred: bool = False) -> FloatArray:
    """Return the root mean square of each column of the rows or, if `centred`, its standard deviation.

    All rows count, including enormous ones; `weights` sum to one.
    """
    centre = _centre(source, weights, centred)
    largest = _scales(source, centre)
    squares = np.zeros(source.n_columns)
    for where, block in source.blocks():
        scaled = (block.T - like(block, centre)) / like(block, largest)
        squares += to_numpy(like(block, weights[where]) @ (scaled * scaled))
    return np.where(np.isfinite(largest), largest, 0.0) * np.sqrt(squares)


def _centre(source: BlockRows, weights: FloatArray, centred: bool) -> FloatArray:
    if not centred:
        return np.zeros(source.n_columns)
    centre: FloatArray = np.sum(
        [to_numpy(like(block, weights[where]) @ block.T) for where, block in source.blocks()], axis=0
    )
    return centre


def _blended(moments: FloatArray, blend: float) -> FloatArray:
    """Second moments, blended with those of uncorrelated columns of length one."""
    blended: FloatArray = (1.0 - blend) * moments + blend * np.eye(len(moments))
    return blended


def _directions(
    gram: FloatArray | None, length: FloatArray, scaled_blocks: ScaledBlocks, *, finds_null: bool
) -> tuple[FloatArray, FloatArray]:
    """The root mean square along each principal direction of the columns (scaled to length one), and the directions."""
    if gram is not None:
        moments, directions = np.linalg.eigh(gram / np.outer(length, length))
        if moments[0] > _GRAM_IS_SAFE * moments[-1]:
            return np.sqrt(moments), directions
    triangle: Array = None
    for rows in scaled_blocks():
        triangle = _triangle(rows if triangle is None else array_namespace(rows).concat([triangle, rows]))
    _, spread, directions = np.linalg.svd(to_numpy(triangle) / length, full_matrices=finds_null)
    missing = directions.shape[0] - len(spread)
    return np.append(spread, np.zeros(missing)), directions.T


def _triangle(rows: Array) -> Array:
    """The triangular factor of a QR decomposition."""
    xp = array_namespace(rows)
    return np.linalg.qr(rows, mode="r") if is_numpy_namespace(xp) else xp.linalg.qr(rows)[1]


def _scales(source: BlockRows, centre: FloatArray) -> FloatArray:
    """The largest entry of each centred column; infinite if it is the rounding error of a constant."""
    largest = source.largest(centre)
    if not np.all(np.isfinite(largest)):
        raise ValueError("rows must be finite; got NaN or infinity. Leave those pairs out, or fill in the values.")
    constant = largest <= 1e-13 * np.abs(centre)
    return np.where(constant, np.inf, largest)
