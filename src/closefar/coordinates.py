"""Unit-free coordinates: the solver's own, in which the rows, or at least their columns, have unit second moment.

Under z -> Uz the optimum maps to U^-T M U^-1 (section "Invariance to Changes in Unit
of Input"), so the solver may choose its units.  Columns are scaled first; only then
is a decomposition formed, so neither units nor their range can hurt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from closefar.arrays import FloatArray

__all__ = ["Coordinates", "find_coordinates"]

Block = tuple[slice, FloatArray]

# The Gram matrix squares the condition number: below this smallest eigenvalue (of scaled columns) use QR.
_GRAM_IS_SAFE = 1e-7

# The squared length of a row is d on average; beyond 50 d it is enormous and counts as 10 d.
_ENORMOUS, _LARGE = 50.0, 10.0
_MOST_ROUNDS = 30


@dataclass(frozen=True)
class Coordinates:
    """The map ``w = transform' z + offset`` from rows to unit-free coordinates.

    With a learned origin `offset` centres the rows and a constant 1 is appended to w;
    otherwise it is None.  `null_directions` are the combinations of columns, each over its
    root mean square (with an origin, its standard deviation), that do not vary; `scales` are
    those root mean squares.
    """

    transform: FloatArray
    offset: FloatArray | None
    null_directions: FloatArray
    scales: FloatArray

    @property
    def has_constant(self) -> bool:
        return self.offset is not None

    @property
    def n_directions(self) -> int:
        """Length of w; directions of z that do not vary are not among its entries."""
        return int(self.transform.shape[1]) + int(self.has_constant)

    def apply(self, rows: FloatArray) -> FloatArray:
        """Map rows to columns of coordinates."""
        if self.offset is None:
            return self.transform.T @ rows.T
        mapped = np.ones((self.n_directions, len(rows)))
        np.matmul(self.transform.T, rows.T, out=mapped[:-1])
        mapped[:-1] += self.offset[:, None]
        return mapped

    def to_units(self, factor: FloatArray) -> FloatArray:
        """Map a factor back to the user's units; with a learned origin, for (z, 1)."""
        if self.offset is None:
            return self.transform @ factor
        return np.vstack([self.transform @ factor[:-1], self.offset @ factor[:-1] + factor[-1]])


def find_coordinates(
    blocks: Callable[[], Iterator[Block]],
    weights: FloatArray,
    *,
    with_constant: bool = False,
    mix_columns: bool = True,
) -> Coordinates:
    """Find coordinates whose weighted second moment is the identity or, without `mix_columns`, has a diagonal of one.

    `blocks` starts a pass over the rows; `weights` sum to one.  Directions that do not
    vary, to rounding, are dropped.  Without `mix_columns` each coordinate is one
    column, scaled.  Rows that are enormous beside the others (one in the
    wrong unit, say) count less, or their size would hide the rest: a Huber-type estimate,
    which like the plain one follows every change of units.
    """
    coordinates = _normalise(blocks, weights, with_constant, mix_columns)
    usual = max(int(coordinates.transform.shape[1]), 1)
    largest = 0.0
    for _ in range(_MOST_ROUNDS):
        sizes = np.concatenate([_squared_lengths(coordinates, rows) for _, rows in blocks()])
        before, largest = largest, float(sizes.max(initial=0.0))
        if largest <= max(_ENORMOUS * usual, 1.5 * before):
            break
        less = weights * np.minimum(1.0, _LARGE * usual / np.maximum(sizes, 1e-300))
        coordinates = _normalise(blocks, less / less.sum(), with_constant, mix_columns)
    return coordinates


def _squared_lengths(coordinates: Coordinates, rows: FloatArray) -> FloatArray:
    mapped = coordinates.apply(rows)[: coordinates.transform.shape[1]]
    lengths: FloatArray = np.einsum("ij,ij->j", mapped, mapped)
    return lengths


def _normalise(
    blocks: Callable[[], Iterator[Block]], weights: FloatArray, with_constant: bool, mix_columns: bool
) -> Coordinates:
    centre = np.zeros(1)
    if with_constant:
        centre = np.sum([weights[where] @ rows for where, rows in blocks()], axis=0)
    scale = _scales(blocks, centre)

    def scaled_blocks() -> Iterator[FloatArray]:
        for where, rows in blocks():
            scaled = (rows - centre) / scale if with_constant else rows / scale
            scaled *= np.sqrt(weights[where])[:, None]
            yield scaled

    gram = sum(rows.T @ rows for rows in scaled_blocks())
    length = np.sqrt(np.diag(gram))
    length[length == 0] = 1.0
    usual = np.where(np.isfinite(scale), scale * length, 0.0)
    if not mix_columns:
        varies = np.isfinite(scale) & (np.diag(gram) > 0)
        transform, null = np.diag(1.0 / (scale * length))[:, varies], np.eye(len(scale))[:, ~varies]
        return Coordinates(transform, _offset(centre, transform, with_constant), null, usual)
    moments, directions = np.linalg.eigh(gram / np.outer(length, length))
    if moments[0] > _GRAM_IS_SAFE * moments[-1]:
        spread = np.sqrt(moments)
    else:
        triangle = np.empty((0, len(scale)))
        for rows in scaled_blocks():
            triangle = np.asarray(np.linalg.qr(np.vstack([triangle, rows]), mode="r"))
        spread, directions = _singular_directions(triangle / length)
    keep = spread > 1e-12 * np.sqrt(len(scale)) * spread.max(initial=0.0)
    transform = directions[:, keep] / spread[keep] / (scale * length)[:, None]
    return Coordinates(transform, _offset(centre, transform, with_constant), directions[:, ~keep], usual)


def _offset(centre: FloatArray, transform: FloatArray, with_constant: bool) -> FloatArray | None:
    return -(centre @ transform) if with_constant else None


def _scales(blocks: Callable[[], Iterator[Block]], centre: FloatArray) -> FloatArray:
    """The largest entry of each centred column; infinite where it is rounding of a constant."""
    upper = np.max([rows.max(axis=0) for _, rows in blocks()], axis=0)
    lower = np.min([rows.min(axis=0) for _, rows in blocks()], axis=0)
    largest = np.maximum(upper - centre, centre - lower)
    constant = largest <= 1e-13 * np.abs(centre)
    return np.where(constant, np.inf, largest)


def _singular_directions(triangle: FloatArray) -> tuple[FloatArray, FloatArray]:
    _, spread, directions = np.linalg.svd(triangle, full_matrices=True)
    missing = directions.shape[0] - len(spread)
    return np.append(spread, np.zeros(missing)), directions.T
