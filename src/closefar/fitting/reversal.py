"""Reversed labels: a fit that explains next to nothing, although swapped labels would fit well."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.stats import chi2

from closefar.fitting.likelihoods import likelihood_of
from closefar.fitting.settings import Settings
from closefar.fitting.statistics import FitStatistics
from closefar.judgements import Judgements, Kind
from closefar.noise import Noise
from closefar.rows import Rows
from closefar.solve import Objective, Passes, solve, unwatched

__all__ = ["find_reversal"]

# If a fit explains more than this share of the loss, its labels are not swapped.
_LITTLE = 0.05

_ENOUGH_ROWS = 10_000
_SIGNIFICANT = 1e-4  # the probability of such a gain by chance

_SENTENCES = {
    Kind.CLOSE_FAR: (
        "the labels fit far better with close and far swapped ({losses}). If {close} means far, set far_label={close}."
    ),
    Kind.LEVELS: (
        "the levels fit far better in the opposite order ({losses}). If {close} is the farthest one, as in ratings of "
        "similarity, give `levels` in the opposite order, closest first."
    ),
    Kind.COMPARISONS: (
        "the comparisons fit far better turned round ({losses}). If the second pair of each was said to be the closer "
        "one, pass y=-1 for all of them."
    ),
}


def find_reversal(
    rows: Rows, judgements: Judgements, noise: Noise, settings: Settings, statistics: FitStatistics, loss: float
) -> list[str]:
    """Return a sentence if the labels fit far better with close and far swapped.

    This is skipped for approximate fits, whose problems are never shown.
    """
    if settings.approximate or loss < (1.0 - _LITTLE) * statistics.null_loss:
        return []
    chosen = np.arange(0, rows.n_rows, max(rows.n_rows // _ENOUGH_ROWS, 1))
    turned = likelihood_of(judgements, rows, noise, width=settings.known_width or 1.0, turned=True)
    part, arrays = rows.take(chosen, *turned.row_arrays)
    likelihood = turned.of_sample(part, arrays)
    if not likelihood.determines_thresholds(part):
        return []
    options = replace(settings.options, rank=None, tol=1e-4, max_iter=100)
    swapped = solve(Objective(part, likelihood, Passes()), options, rng=settings.rng(), watch=unwatched)
    gain = loss - swapped.certificate.loss
    if gain < _LITTLE * statistics.null_loss or 2.0 * len(chosen) * gain < chi2.isf(
        _SIGNIFICANT, statistics.n_parameters
    ):
        return []
    losses = f"a loss of {swapped.certificate.loss:.3g} instead of {loss:.3g}"
    return [_SENTENCES[judgements.kind].format(losses=losses, close=repr(judgements.sides.close))]
