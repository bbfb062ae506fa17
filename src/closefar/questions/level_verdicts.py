"""Whether a rating is wrong: its pair truly lies outside its level, below the lower or above the upper end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

from closefar.arrays import TINY, FloatArray, IndexArray
from closefar.model.thresholds import level_flips
from closefar.noise import Noise, interval_losses

__all__ = ["LevelEvidence", "nearest_cuts"]

_LARGEST_Z = 1e6


@dataclass(frozen=True, eq=False)
class _Ends:
    """How far a squared distance is above the lower, and below the upper end of a level, and the errors of both."""

    above: FloatArray
    below: FloatArray
    above_error: FloatArray
    below_error: FloatArray

    @classmethod
    def of(cls, codes: IndexArray, margins: FloatArray, errors: FloatArray) -> _Ends:
        n, last = margins.shape
        rows = np.arange(n)
        lower, upper = np.maximum(codes - 1, 0), np.minimum(codes, last - 1)
        has_lower, has_upper = codes >= 1, codes < last
        return cls(
            np.where(has_lower, margins[rows, lower], np.inf),
            np.where(has_upper, -margins[rows, upper], np.inf),
            errors[rows, lower],
            errors[rows, upper],
        )


def nearest_cuts(
    codes: IndexArray, margins: FloatArray, errors: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The margin from the end of each level that agrees least with it, its error, and the agreement.

    `margins` and `errors` have a column for each threshold.
    """
    ends = _Ends.of(codes, margins, errors)
    is_lower = ends.above <= ends.below
    agreement = np.where(is_lower, ends.above, ends.below)
    return (
        np.where(is_lower, ends.above, -ends.below),
        np.where(is_lower, ends.above_error, ends.below_error),
        agreement,
    )


@dataclass(frozen=True, eq=False)
class LevelEvidence:
    """What is known of ratings besides the margin of a pair: the noise, the flip rate, and whether they are new."""

    noise: Noise
    flip_rate: Any
    is_new: bool

    def probability_wrong(self, codes: IndexArray, margins: FloatArray, errors: FloatArray) -> FloatArray:
        """P(the pair truly lies outside its level); a new rating is further evidence, as for two labels.

        Its likelihood is evaluated at the mean distance beyond either end, and at the nearest one within the level.
        """
        ends = _Ends.of(codes, margins, errors)
        z_above, z_below = (
            np.clip(distance / np.maximum(error, TINY), -_LARGEST_Z, _LARGEST_Z)
            for distance, error in ((ends.above, ends.above_error), (ends.below, ends.below_error))
        )
        under, over = norm.logcdf(-z_above), norm.logcdf(-z_below)
        outside: FloatArray = np.minimum(np.exp(under) + np.exp(over), 1.0)
        if not self.is_new:
            return outside
        steps = (
            -_step_beyond(ends.above, ends.above_error * np.exp(norm.logpdf(z_above) - under)),
            _step_beyond(ends.below, ends.below_error * np.exp(norm.logpdf(z_below) - over)),
            np.maximum(-ends.above, 0.0) - np.maximum(-ends.below, 0.0),
        )
        priors = (under, over, np.log(np.maximum(1.0 - outside, TINY)))
        logs = [prior - self._losses(ends, step, margins.shape[1]) for prior, step in zip(priors, steps, strict=True)]
        wrong: FloatArray = np.exp(logsumexp(logs[:2], axis=0) - logsumexp(logs, axis=0))
        return wrong

    def _losses(self, ends: _Ends, step: FloatArray, last: int) -> FloatArray:
        """-log P(level) after a step of the squared distance."""
        losses: FloatArray = interval_losses(self.noise, ends.above + step, step - ends.below, 1).loss
        if not np.any(self.flip_rate):
            return losses
        each, rest = level_flips(np.asarray(self.flip_rate), last + 1)
        flipped: FloatArray = -np.log(each + rest * np.exp(-losses))
        return flipped


def _step_beyond(distance: FloatArray, usual: FloatArray) -> FloatArray:
    """How far the mean distance beyond an end is from here; zero for an end that does not exist."""
    return np.where(np.isfinite(distance), np.maximum(usual, distance), 0.0)
