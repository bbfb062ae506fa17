"""Some rows that stand for all of them, where there are many."""

from __future__ import annotations

import numpy as np

from closefar.arrays import FloatArray, IndexArray
from closefar.judgements import sample_rows

__all__ = ["representatives"]

_LARGE = 20.0  # times the usual weight, or the usual squared length


def representatives(weights: FloatArray, lengths: FloatArray, most: int) -> tuple[IndexArray, FloatArray]:
    """About `most` of the rows, and how many rows each stands for; all of them where there are no more.

    `lengths` are the squared lengths of the rows, one on average.  A row that is long or heavy stands
    for itself: a sample would lose, or misjudge, a direction in which few rows vary.
    """
    n = len(weights)
    if n <= most:
        return np.arange(n), np.ones(n)
    is_large = weights * np.maximum(lengths, 1.0) > _LARGE * weights.mean()
    others = np.flatnonzero(~is_large)
    some = others[sample_rows(len(others), most)]
    chosen = np.union1d(np.flatnonzero(is_large), some)
    each = weights[others].sum() / weights[some].sum()
    return chosen, np.where(is_large[chosen], 1.0, each)
