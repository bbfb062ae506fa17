"""Bins of about equal weight."""

from __future__ import annotations

import numpy as np

from closefar.arrays import FloatArray, IndexArray

__all__ = ["weighted_bins"]

_ROUNDING = 1e-12  # of sums of weights


def weighted_bins(values: FloatArray, weights: FloatArray, n_bins: int) -> IndexArray:
    """Return the bin of each value, numbered from 0 at the smallest, all of about the same weight.

    Equal values share a bin, so their order never matters; there may be fewer than `n_bins` bins.
    """
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    wanted = np.arange(1, n_bins) / n_bins
    edges = np.unique(values[order][np.searchsorted(share, wanted - _ROUNDING)])
    bins = np.searchsorted(edges, values, side="right")
    return np.unique(bins, return_inverse=True)[1]
