"""Reversed judgements: a fit that explains next to nothing, although the opposite judgements would fit well."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.stats import chi2

from closefar.arrays import IndexArray
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
_STANDARD_ERRORS = 4.0  # below one half: an agreement that is not chance

_SENTENCES = {
    Kind.CLOSE_FAR: (
        "the labels fit far better with close and far swapped ({losses}). If {close} means far, set far_label={close}."
    ),
    Kind.LEVELS: (
        "the levels fit far better in the opposite order ({losses}). If {close} is the farthest one, as in ratings of "
        "similarity, give `levels` in the opposite order, closest first."
    ),
    Kind.COMPARISONS: (
        "the comparisons fit far better turned round ({losses}). If the second leg of each is the nearer one, "
        "negate y, or pass y=-1 for all of them if there is none."
    ),
}


def find_reversal(
    rows: Rows, judgements: Judgements, noise: Noise, settings: Settings, statistics: FitStatistics, loss: float
) -> list[str]:
    """Return a sentence if the judgements, or those of one kind of a mix, fit far better the other way round.

    This is skipped for approximate fits, whose problems are never shown.
    """
    explains_little = loss >= (1.0 - _LITTLE) * statistics.null_loss
    if settings.approximate or not (explains_little or _contradicts(judgements, statistics)):
        return []
    chosen = np.arange(0, rows.n_rows, max(rows.n_rows // _ENOUGH_ROWS, 1))
    kinds = [judgements.kind] if judgements.comparisons is None else [judgements.kind, Kind.COMPARISONS]
    turns = [(kind,) for kind in kinds] if len(kinds) == 1 else [*((kind,) for kind in kinds), tuple(kinds)]
    losses = {turn: _turned_loss(rows, judgements, noise, settings, turn, chosen) for turn in turns}
    best = min(losses, key=losses.__getitem__)
    gain = loss - losses[best]
    if gain < _LITTLE * statistics.null_loss or 2.0 * len(chosen) * gain < chi2.isf(
        _SIGNIFICANT, statistics.n_parameters
    ):
        return []
    found = f"a loss of {losses[best]:.3g} instead of {loss:.3g}"
    return [_SENTENCES[kind].format(losses=found, close=repr(judgements.sides.close)) for kind in best]


def _contradicts(judgements: Judgements, statistics: FitStatistics) -> bool:
    """Whether the metric of a mixed fit contradicts most judgements of one kind, since those of the other prevailed."""
    if judgements.comparisons is None or statistics.comparison_accuracy is None:
        return False
    agreed = [(statistics.comparison_accuracy, statistics.n_comparisons)]
    if judgements.kind is Kind.CLOSE_FAR:
        agreed.append((statistics.accuracy, statistics.n_pairs))
    return any(share < 0.5 - _STANDARD_ERRORS * 0.5 / n**0.5 for share, n in agreed)


def _turned_loss(
    rows: Rows, judgements: Judgements, noise: Noise, settings: Settings, turn: tuple[Kind, ...], chosen: IndexArray
) -> float:
    """The least loss of some of the judgements if those of these kinds said the opposite."""
    turned = likelihood_of(judgements, rows, noise, width=settings.known_width or 1.0, turned=turn)
    part, arrays = rows.take(chosen, *turned.row_arrays)
    likelihood = turned.of_sample(part, arrays)
    if not likelihood.determines_thresholds(part):
        return math.inf
    options = replace(settings.options, rank=None, tol=1e-4, max_iter=100)
    solution = solve(Objective(part, likelihood, Passes()), options, rng=settings.rng(), watch=unwatched)
    return solution.certificate.loss
