"""Intervals of probabilities: of far, of a level, and of the answer to a comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit

from closefar.arrays import FloatArray
from closefar.model import Metric
from closefar.noise import FlipRate, with_flips
from closefar.questions.label_model import LabelModel
from closefar.questions.reach import Interval, Reach, mapped, wald

__all__ = ["ProbabilityIntervals", "as_rates"]

_LARGEST_MARGIN = 1e4  # labels are certain there under every noise
_LEAST_RATE = 1e-6  # the least flip rate, so that log odds stay finite


def as_rates(values: Any) -> Any:
    """Flip rates within their range: one is at most one half, and two have a sum of at most one."""
    return np.clip(values, 0.0, 0.5 if np.ndim(values) == 0 else 1.0)[()]


@dataclass(frozen=True, eq=False)
class ProbabilityIntervals:
    """From margins if the flip rates are known or zero, otherwise, or between two thresholds, from log odds.

    The last `n_rates` parameters are the flip rates.
    """

    reaches: tuple[Reach, ...]
    metric: Metric
    n_rates: int

    def beyond(self, margin: Any, gradients: FloatArray, k: int | None) -> Interval:
        """P(far), or P(level >= k), at margins with these gradients in the parameters; without k, of comparisons."""
        flip_rate = self._side_rates(np.ravel(self.metric.flip_rate), k)
        model = LabelModel.at(_bounded(margin), self.metric.noise, flip_rate)
        if not self.reaches:
            return _unknown(model.far)
        if not self.n_rates:
            found = wald(self.reaches, margin, gradients)

            def probability(value: Any) -> Any:
                return with_flips(self.metric.noise.cdf(_bounded(value)), flip_rate)[()]

            return mapped(found, probability, model.slope * found.standard_error)

        def at(reach: Reach) -> tuple[Any, FloatArray]:
            centre = _bounded(margin + np.reshape(gradients @ reach.shift, np.shape(margin)))
            here = LabelModel.at(centre, self.metric.noise, self._side_rates(self._rates_at(reach), k))
            slopes = gradients * np.reshape(here.slope, (-1, 1))
            close = 0.5 * (1.0 + np.ravel(here.flip_slope))
            slopes[:, -self.n_rates :] = np.column_stack([close, close - 1.0]) @ self._turn(k)
            return here.far, slopes

        return self._from_odds(model.far, at)

    def between(self, margins: list[FloatArray], gradients: list[FloatArray]) -> Interval:
        """P(level) between two thresholds, at the margins from both, with their gradients in the parameters."""
        noise, n_levels = self.metric.noise, len(self.metric.thresholds) + 1

        def probability(lower: FloatArray, upper: FloatArray, rates: FloatArray) -> tuple[FloatArray, float]:
            above = lower + upper > 0  # of both differences, that of small numbers
            first, second = np.where(above, -upper, lower), np.where(above, -lower, upper)
            each = float(rates[0]) / (n_levels - 1)
            kept = 1.0 - n_levels * each
            return each + kept * (noise.cdf(_bounded(first)) - noise.cdf(_bounded(second))), kept

        here, _ = probability(margins[0], margins[1], np.ravel(self.metric.flip_rate))
        if not self.reaches:
            return _unknown(here)

        def at(reach: Reach) -> tuple[FloatArray, FloatArray]:
            lower, upper = (margin + along @ reach.shift for margin, along in zip(margins, gradients, strict=True))
            rates = self._rates_at(reach) if self.n_rates else np.ravel(self.metric.flip_rate)
            found, kept = probability(lower, upper, rates)
            slopes = kept * (
                gradients[0] * noise.pdf(_bounded(lower))[:, None] - gradients[1] * noise.pdf(_bounded(upper))[:, None]
            )
            if self.n_rates:
                each = float(rates[0]) / (n_levels - 1)
                slopes[:, -1] = (1.0 - n_levels * (found - each) / kept) / (n_levels - 1)
            return found, slopes

        return self._from_odds(here, at)

    def _from_odds(self, probability: Any, at: Callable[[Reach], tuple[Any, FloatArray]]) -> Interval:
        """The interval of log odds, mapped to probabilities; `at` gives probabilities and slopes at a centre."""
        odds = logit(_inside(probability))
        low, high, largest = odds, odds, 0.0 * odds
        for reach in self.reaches:
            centre, slopes = at(reach)
            centre = _inside(centre)
            error = np.linalg.norm(slopes @ reach.root, axis=1).reshape(np.shape(odds)) / (centre * (1.0 - centre))
            low = np.minimum(low, logit(centre) - reach.quantile * error)
            high = np.maximum(high, logit(centre) + reach.quantile * error)
            largest = np.maximum(largest, error)
        error = largest * probability * (1.0 - probability)
        return Interval(np.asarray(probability)[()], np.asarray(error)[()], expit(low)[()], expit(high)[()])

    def _rates_at(self, reach: Reach) -> FloatArray:
        rates = np.ravel(self.metric.flip_rate) + reach.shift[-self.n_rates :]
        inside: FloatArray = np.atleast_1d(as_rates(rates if self.n_rates > 1 else rates[0]))
        return np.maximum(inside, _LEAST_RATE)

    def _side_rates(self, rates: FloatArray, k: int | None) -> FlipRate:
        """The rates of close and of far for level k, or of a comparison, where the flip rates are these."""
        if len(rates) == 1 and len(self.metric.thresholds) <= 1:
            return float(rates[0])
        called_far, called_close = self._turn(k) @ rates
        return float(called_far), float(called_close)

    def _turn(self, k: int | None) -> FloatArray:
        """The derivatives of the rates of close and of far for level k, or of a comparison, in the flip rates."""
        if np.size(self.metric.flip_rate) == 2:
            return np.eye(2) if k is not None else np.full((2, 2), 0.5)
        last = max(len(self.metric.thresholds), 1)
        below = 0.5 * (last + 1.0) if k is None else k
        return np.array([[(last + 1.0 - below) / last], [below / last]])


def _unknown(probability: Any) -> Interval:
    nothing = 0.0 * np.asarray(probability)
    return Interval(np.asarray(probability)[()], (nothing + np.inf)[()], nothing[()], (nothing + 1.0)[()])


def _inside(probability: Any) -> Any:
    return np.clip(probability, 1e-300, 1.0 - 1e-16)


def _bounded(margin: Any) -> Any:
    return np.clip(margin, -_LARGEST_MARGIN, _LARGEST_MARGIN)
