"""The optimum over all symmetric matrices: the centre of intervals if a fit is on the boundary of the metrics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from closefar import packed
from closefar.arrays import FloatArray
from closefar.questions.free_fit import fit_freely
from closefar.questions.observed import Observed
from closefar.questions.sandwich import Sandwich, free_root

__all__ = ["FreeOptimum", "find_free_optimum"]

# The likelihood ratio test against the free optimum rejects the fit below this p-value.
_CONTRADICTS = 1e-3


@dataclass(frozen=True, eq=False)
class FreeOptimum:
    """The step from the fit to the optimum, a root of its covariance, and whether the labels reject the fit."""

    shift: FloatArray
    root: FloatArray
    contradicts: bool


def find_free_optimum(sample: Observed, facts: Sandwich) -> FreeOptimum | None:
    """Return the optimum over all symmetric M and any tau; None if the labels do not determine one."""
    n, likelihood = float(sample.repeats.sum()), sample.likelihood
    few, _ = likelihood.thinned(sample.repeats)
    near = None if few is likelihood else few.information(sample.parameters, few.shares)
    centre = fit_freely(likelihood, sample.parameters, likelihood.shares, n, near)
    if centre is None:
        return None
    root = free_root(likelihood, centre, sample.dependence, sample.repeats)
    if root is None:
        return None
    losses = [likelihood.loss(likelihood.terms(each), each, likelihood.shares) for each in (sample.parameters, centre)]
    ratio = 2.0 * n * facts.independence * float(losses[0] - losses[1])
    n_more = packed.packed_size(sample.optimum.size - facts.rank) + int(np.any(sample.taus == 0.0))
    contradicts = n_more > 0 and float(chi2.sf(ratio, n_more)) < _CONTRADICTS
    return FreeOptimum(centre - sample.parameters, root, contradicts)
