"""Random tuples of points, each different, without a list of all."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from closefar.arrays import IndexArray

__all__ = ["sample_tuples"]

_SIZES = (2, 3, 4)


def sample_tuples(n_points: int, n: int, size: int, random_state: Any) -> IndexArray:
    """Draw n different pairs, triplets or quadruplets of row numbers: an array of shape (n, size)."""
    if size not in _SIZES:
        raise ValueError(f"size must be 2 (pairs), 3 (triplets) or 4 (quadruplets); got {size!r}.")
    n_possible = _count(n_points, int(size))
    if not isinstance(n, numbers.Integral) or isinstance(n, bool) or not 1 <= n <= n_possible:
        raise ValueError(
            f"n must be a whole number from 1 to {n_possible:,}, the number of different tuples of {size} of "
            f"{n_points:,} points; got {n!r}. Draw fewer, or pass more points."
        )
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    found: IndexArray = np.empty((0, int(size)), dtype=np.intp)
    while len(found) < n:
        n_more = max(2 * (int(n) - len(found)), 1000)
        drawn = _in_order(rng.integers(0, n_points, (n_more, int(size))))
        found = _different(np.vstack([found, drawn]))
    return found[: int(n)]


def _count(n_points: int, size: int) -> int:
    pairs = math.comb(n_points, 2)
    return {2: pairs, 3: n_points * math.comb(max(n_points - 1, 0), 2), 4: math.comb(n_points, 4) * 3}[size]


def _in_order(drawn: IndexArray) -> IndexArray:
    """Those without repeated points, with points that are judged alike in increasing order."""
    size = drawn.shape[1]
    in_order = np.sort(drawn, axis=1)
    drawn = drawn[np.all(in_order[:, 1:] != in_order[:, :-1], axis=1)]
    if size == 2:
        return np.sort(drawn, axis=1)
    if size == 3:
        return np.column_stack([drawn[:, 0], np.sort(drawn[:, 1:], axis=1)])
    pairs = np.sort(drawn.reshape(-1, 2, 2), axis=2)
    is_turned = pairs[:, 0, 0] > pairs[:, 1, 0]
    turned: IndexArray = np.where(is_turned[:, None, None], pairs[:, ::-1], pairs).reshape(-1, 4)
    return turned


def _different(drawn: IndexArray) -> IndexArray:
    """Each once, in the order of their first occurrence."""
    order = np.lexsort(drawn.T)
    in_order = drawn[order]
    is_first = np.append(True, np.any(in_order[1:] != in_order[:-1], axis=1))
    different: IndexArray = drawn[np.sort(order[is_first])]
    return different
