"""Reversed labels: a fit that explains next to nothing, although swapped labels would fit well."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.stats import chi2

from closefar.fitting.settings import Settings
from closefar.fitting.statistics import FitStatistics
from closefar.judgements import Judgements
from closefar.noise import Noise
from closefar.rows import BlockRows
from closefar.solve import CloseFar, Objective, Passes, solve, unwatched

__all__ = ["find_reversal"]

# If a fit explains more than this share of the loss, its labels are not swapped.
_LITTLE = 0.05

_ENOUGH_ROWS = 10_000
_SIGNIFICANT = 1e-4  # the probability of such a gain by chance


def find_reversal(
    rows: BlockRows, judgements: Judgements, noise: Noise, settings: Settings, statistics: FitStatistics, loss: float
) -> list[str]:
    """Return a sentence if the labels fit far better with close and far swapped.

    This is skipped for approximate fits, whose problems are never shown.
    """
    if settings.approximate or loss < (1.0 - _LITTLE) * statistics.null_loss:
        return []
    chosen = np.arange(0, len(judgements), max(len(judgements) // _ENOUGH_ROWS, 1))
    part, (signs, shares) = rows.take(chosen, judgements.signs_in(rows), judgements.shares_in(rows))
    likelihood = CloseFar(noise, -signs, shares * (1.0 / part.total(shares)))
    options = replace(settings.options, rank=None, tol=1e-4, max_iter=100)
    swapped = solve(Objective(part, likelihood, Passes()), options, rng=settings.rng(), watch=unwatched)
    gain = loss - swapped.certificate.loss
    if gain < _LITTLE * statistics.null_loss or 2.0 * len(chosen) * gain < chi2.isf(
        _SIGNIFICANT, statistics.n_parameters
    ):
        return []
    close = judgements.sides.close
    return [
        f"the labels fit far better with close and far swapped (a loss of {swapped.certificate.loss:.3g} instead of "
        f"{loss:.3g}). If {close!r} means far, set far_label={close!r}."
    ]
