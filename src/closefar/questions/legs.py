"""Judgements as the legs that they compare: one of a pair, and two of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from closefar.arrays import Array, FloatArray, to_numpy
from closefar.rows import BlockRows, Rows

__all__ = ["by_legs", "combined_legs", "differences", "leg_blocks"]


def leg_blocks(rows: Rows) -> Iterator[tuple[slice, list[tuple[float, Array]]]]:
    """Blocks of judgements, and the legs of each with their factors: q is the sum of factor times z'Mz.

    The legs of a block are columns.
    """
    if isinstance(rows, BlockRows):
        for where, block in rows.blocks():
            yield where, [(1.0, block)]
        return
    step = max(512, (1 << 18) // max(rows.n_columns, 1))
    for start in range(0, rows.n_pairs, step):
        where = slice(start, min(start + step, rows.n_pairs))
        yield where, [(1.0, rows.legs.read(where))]
    for start in range(rows.n_pairs, rows.n_rows, step):
        where = slice(start, min(start + step, rows.n_rows))
        first, last = (2 * place - rows.n_pairs for place in (where.start, where.stop))
        legs = rows.legs.read(slice(first, last))
        yield where, [(rows.scale, legs[:, 1::2]), (-rows.scale, legs[:, 0::2])]


def differences(rows: Rows) -> Iterator[Array]:
    """The differences of all legs, in their order, as columns of blocks."""
    legs = rows if isinstance(rows, BlockRows) else rows.legs
    for _, block in legs.blocks():
        yield block


def by_legs(rows: Rows, function: Callable[[FloatArray], FloatArray]) -> Iterator[tuple[slice, FloatArray]]:
    """A function of each difference, with one row of numbers for each, added up over the legs of each judgement."""
    for where, legs in leg_blocks(rows):
        total: Any = None
        for factor, block in legs:
            found = function(to_numpy(block))
            if factor != 1.0:
                found = factor * found
            total = found if total is None else total + found
        yield where, total


def combined_legs(values: FloatArray, rows: Rows) -> FloatArray:
    """Add up one row of numbers for each leg, in the order of the legs, over the legs of each judgement."""
    if isinstance(rows, BlockRows):
        return values
    pairs, compared = values[: rows.n_pairs], values[rows.n_pairs :]
    return np.concatenate([pairs, rows.scale * (compared[1::2] - compared[0::2])])
