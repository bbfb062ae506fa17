"""The threshold of a penalised fit as it would be without the penalty.

A penalty shrinks distances and leaves the threshold free.  The threshold that suits shrunken probabilities best is near
the mean of the squared distances, above which fewer than half of the pairs are if some are much longer than the others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from closefar.arrays import FloatArray
from closefar.fitting.likelihoods import is_plain
from closefar.fitting.settings import Settings
from closefar.fitting.solved import Solved
from closefar.judgements import Kind
from closefar.noise import FlipRate, Noise

__all__ = ["with_relaxed_threshold"]

_LARGEST_SCALE = 100.0  # of distances that separate the labels, which have no best scale


def with_relaxed_threshold(solved: Solved, settings: Settings) -> Solved:
    """Replace tau by b / a, where a z'Mz - b are the most likely margins of this M, if the settings ask for that."""
    judgements = solved.judgements
    is_close_far = judgements.kind is Kind.CLOSE_FAR and is_plain(judgements)
    if not (settings.relax_threshold and settings.known_alpha > 0 and is_close_far):
        return solved
    rows = solved.rows
    squared = rows.gather(solved.solution.squared)
    signs = rows.gather(judgements.signs_in(rows))
    shares = rows.gather(judgements.shares_in(rows))
    threshold = _relaxed(squared, signs, shares, solved.noise, solved.flip_rate, solved.threshold)
    return replace(solved, solution=replace(solved.solution, thresholds=np.array([threshold])))


def _relaxed(
    squared: FloatArray, signs: FloatArray, shares: FloatArray, noise: Noise, flip_rate: FlipRate, threshold: float
) -> float:
    """The threshold in the scale of M, by a search that begins at what is given; M is only scaled up."""
    mean = float(shares @ squared)
    spread = float(np.sqrt(shares @ (squared - mean) ** 2))
    if spread == 0.0:
        return threshold
    standard = (squared - mean) / spread
    called_far, called_close = flip_rate if isinstance(flip_rate, tuple) else (flip_rate, flip_rate)
    floor = np.where(signs > 0, called_far, called_close)
    share_kept = 1.0 - called_far - called_close

    def loss_and_slopes(place: FloatArray) -> tuple[float, FloatArray]:
        scale, shift = place
        neg_log, slope = noise.derivatives(signs * (scale * standard + shift), 1)
        kept = share_kept * np.exp(-neg_log)
        losses = neg_log if share_kept == 1.0 else -np.log(floor + kept)
        pull = shares * signs * slope * (1.0 if share_kept == 1.0 else kept / (floor + kept))
        return float(shares @ losses), np.array([pull @ standard, pull.sum()])

    found = minimize(
        loss_and_slopes,
        [spread, mean - threshold],
        jac=True,
        method="L-BFGS-B",
        bounds=[(spread, _LARGEST_SCALE * spread), (None, None)],
    )
    scale, shift = found.x
    return max(mean - float(shift) * spread / float(scale), 0.0)
