"""The quantile of a weighted sum of labels, accurate in the tails and if a few labels dominate."""

from __future__ import annotations

import numpy as np

from closefar.arrays import FloatArray
from closefar.questions.label_model import LabelModel

__all__ = ["as_standard_normal"]

_MOST_STEPS = 60
_LARGEST_STEP = 2.0
_ACCURACY = 1e-8

# Closer to the mean than this, the normal distribution is as good, and the formula is 0 / 0.
_NEAR_MEAN = 0.05


def as_standard_normal(total: float, weights: FloatArray, model: LabelModel) -> float:
    """Return the quantile of the normal distribution that corresponds to a sum of weighted residuals of labels.

    `total` is in standard deviations.  This is r* = r + log(u / r) / r of the saddlepoint
    approximation (Barndorff-Nielsen), from the cumulants of independent labels, if that is closer to
    zero: on the side where the support ends early, a small error in `total` would have a large effect.
    """
    weights = weights / np.sqrt(np.sum(weights**2 * model.variance))
    tilt, lowest, highest = total, -np.inf, np.inf
    for _ in range(_MOST_STEPS):
        log_moment, mean, variance = _tilted(tilt, weights, model)
        if abs(mean - total) < _ACCURACY:
            break
        lowest, highest = (tilt, highest) if mean < total else (lowest, tilt)
        step = (total - mean) / max(variance, _ACCURACY)
        tilt += float(np.clip(step, -_LARGEST_STEP, _LARGEST_STEP))
        if not lowest < tilt < highest:
            tilt = 0.5 * (lowest + highest)
    r = np.sign(tilt) * np.sqrt(max(2.0 * (tilt * total - log_moment), 0.0))
    if abs(r) < _NEAR_MEAN:
        return total
    quantile = r + np.log(max(tilt * np.sqrt(variance) / r, _ACCURACY)) / r
    return float(np.sign(total) * min(abs(total), max(np.sign(total) * quantile, 0.0)))


def _tilted(tilt: float, weights: FloatArray, model: LabelModel) -> tuple[float, float, float]:
    """The log of the moment generating function of the sum, and its first two derivatives."""
    up, down = tilt * weights * model.close, -tilt * weights * model.far
    larger = np.maximum(up, down)
    far, close = model.far * np.exp(up - larger), model.close * np.exp(down - larger)
    share = far / (far + close)
    log_moment = float(np.sum(larger + np.log(far + close)))
    return log_moment, float(weights @ (share - model.far)), float(weights**2 @ (share * (1.0 - share)))
