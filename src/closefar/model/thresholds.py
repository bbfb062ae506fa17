"""The thresholds of a metric on squared distances, and the probabilities of the levels between them."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from closefar.arrays import FloatArray, IndexArray
from closefar.errors import InvalidValueError, either, setting
from closefar.noise import FlipRate, Noise, interval_losses, turned_round, with_flips

_PART = 1 << 16  # rows at a time, in cache

_NO_THRESHOLD = (
    "this needs a threshold, and comparisons determine none; got a metric without one. Fit one "
    "to labelled pairs with "
    + either("ComparisonMetricLearner.calibrate_threshold(pairs, labels)", "calibrate_threshold in Python")
    + "."
)


def check_thresholds(threshold: Any) -> tuple[float, ...]:
    """Return all thresholds, lowest first, of one number, a sequence of them, or None."""
    if threshold is None:
        return ()
    if not isinstance(threshold, Sequence | np.ndarray) or np.ndim(threshold) == 0:
        if not np.isfinite(threshold):
            raise ValueError(f"threshold must be a finite number; got {threshold!r}.")
        return (float(threshold),)
    values = tuple(float(value) for value in threshold)
    if not (np.all(np.isfinite(values)) and np.all(np.diff(values) >= 0)):
        raise ValueError(f"thresholds must be finite numbers, lowest first; got {list(values)}. Sort them.")
    return values


def check_flip_rate(flip_rate: Any, n_levels: int) -> FlipRate:
    """Return one rate, or the rates of close and of far pairs, as floats."""
    if not isinstance(flip_rate, tuple | list | np.ndarray):
        most = (n_levels - 1) / n_levels  # of answers that are all drawn at random
        if not (isinstance(flip_rate, numbers.Real) and 0 <= float(flip_rate) < most):
            raise InvalidValueError("flip_rate", f"must be at least 0 and below {most:.3g}", flip_rate)
        return float(flip_rate)
    is_pair = len(flip_rate) == 2 and all(isinstance(rate, numbers.Real) and 0 <= float(rate) < 1 for rate in flip_rate)
    if n_levels != 2 or not is_pair or not sum(flip_rate) < 1:
        raise ValueError(
            "two flip rates, P(called far | close) and P(called close | far), must be numbers from 0 to below 1 that "
            f"sum to less than 1, and are for close and far only; got {flip_rate!r} for {n_levels} levels."
        )
    return float(flip_rate[0]), float(flip_rate[1])


def one_rate(flip_rate: FlipRate) -> float:
    """The flip rate of both sides; an error if they differ."""
    if isinstance(flip_rate, tuple):
        raise ValueError(
            "this needs one flip rate for both sides; got two. Fit with " + setting(flip_rate="estimate") + "."
        )
    return flip_rate


def level_flips(flip_rate: Any, n_levels: int) -> tuple[Any, Any]:
    """The probability of a level whatever the distance, and the share of answers that depend on it.

    A share of the answers is drawn from all levels alike; `flip_rate` is the share of answers that are
    wrong for this reason.  Two levels have q and 1 - 2q.
    """
    each = flip_rate / (n_levels - 1)
    return each, 1.0 - n_levels * each


def _level_probabilities(
    noise: Noise, squared: FloatArray, thresholds: tuple[float, ...], flip_rate: Any
) -> FloatArray:
    """The probability of each level at each squared distance, shape (n, K): closest first.

    A flip rate may be an array with a number for each.
    """
    if len(thresholds) == 1:
        margin = squared - thresholds[0]
        flip_rate = (flip_rate, flip_rate) if isinstance(flip_rate, np.ndarray) else flip_rate
        sides = with_flips(noise.cdf(-margin), turned_round(flip_rate)), with_flips(noise.cdf(margin), flip_rate)
        return np.column_stack(sides)
    ends = np.array([-np.inf, *thresholds, np.inf])
    probabilities = np.empty((len(squared), len(thresholds) + 1))
    for start in range(0, len(squared), _PART):
        part = squared[start : start + _PART, None]
        with np.errstate(divide="ignore"):  # two thresholds of one value leave nothing between them
            losses = interval_losses(noise, part - ends[:-1], part - ends[1:], 0).loss
        probabilities[start : start + _PART] = np.exp(-losses)
    each, rest = level_flips(np.asarray(flip_rate)[..., None], len(thresholds) + 1)
    return each + rest * probabilities if np.any(flip_rate) else probabilities


class Thresholded:
    """What a metric says of squared distances: the sides, or levels, between its thresholds, with probabilities."""

    threshold: float | None
    level_thresholds: tuple[float, ...]
    flip_rate: FlipRate
    noise: Noise

    @property
    def thresholds(self) -> tuple[float, ...]:
        """All thresholds, lowest first: one for close/far, K - 1 for K levels, and none for comparisons."""
        return self.level_thresholds if self.threshold is None else (self.threshold,)

    @property
    def n_levels(self) -> int:
        """The number of levels that the thresholds divide distances into: two for close and far."""
        return len(self.thresholds) + 1

    @property
    def known_threshold(self) -> float:
        """The threshold; an error if there is none, or more than one."""
        if self.threshold is not None:
            return self.threshold
        if not self.thresholds:
            raise ValueError(_NO_THRESHOLD)
        raise ValueError(
            f"this needs one threshold; got a metric of {self.n_levels} levels, which has {self.n_levels - 1}. Use "
            f"dichotomy(k) of the metric, with k from 1 to {self.n_levels - 1}: far then means level k or higher."
        )

    @property
    def cut(self) -> float:
        """What margins are measured from: the threshold, or zero for comparisons."""
        return self.known_threshold if self.thresholds else 0.0

    @property
    def flip_rates(self) -> tuple[float, float]:
        """P(called far | close) and P(called close | far)."""
        if self.level_thresholds:
            _ = self.known_threshold
        return self.flip_rate if isinstance(self.flip_rate, tuple) else (self.flip_rate, self.flip_rate)

    @property
    def one_flip_rate(self) -> float:
        """The flip rate; an error if that of far pairs differs."""
        return one_rate(self.flip_rate)

    @property
    def compared_flip_rate(self) -> float:
        """The flip rate of comparisons: as many of their answers are at random as of those about pairs."""
        if isinstance(self.flip_rate, tuple):
            return 0.5 * float(self.flip_rate[0] + self.flip_rate[1])
        if not self.thresholds:
            return self.flip_rate
        each, _ = level_flips(self.flip_rate, self.n_levels)
        return float(0.5 * self.n_levels * each)

    def side_from(self, k: int) -> tuple[float, FlipRate]:
        """The threshold of level k, and the flip rates of being below it and not."""
        most = len(self.thresholds)
        if not most:
            raise ValueError(_NO_THRESHOLD)
        if not (isinstance(k, numbers.Integral) and 1 <= k <= most):
            raise ValueError(f"k must be a whole number from 1 to {most}, the number of thresholds; got {k!r}.")
        each = level_flips(self.one_flip_rate, most + 1)[0]
        return self.thresholds[k - 1], ((most + 1 - int(k)) * each, int(k) * each) if each else 0.0

    def probability_at(self, margin: Any) -> Any:
        """Return the probability that a pair with this margin is labelled far.

        For comparisons, the margin is the difference of the squared distances of the two legs, and the
        probability that of the answer as given: that the first leg is the shorter one.
        """
        _ = self.cut
        return with_flips(self.noise.cdf(margin), self.flip_rate)

    def probabilities_at(self, squared: FloatArray, flip_rate: Any = None) -> FloatArray:
        """Return the probability of each level, closest first, at each squared distance: shape (n, K).

        The flip rate of an annotator, or an array with that of each pair, replaces that of the metric.
        """
        if not self.thresholds:
            raise ValueError(_NO_THRESHOLD)
        rate = self.flip_rate if flip_rate is None else flip_rate
        return _level_probabilities(self.noise, squared, self.thresholds, rate)

    def levels_at(self, squared: FloatArray) -> IndexArray:
        """Return the most probable level at each squared distance: 0 is the closest; of two alike, the higher one."""
        if len(self.thresholds) == 1:
            return (squared >= self.thresholds[0]).astype(np.intp)
        probabilities = self.probabilities_at(squared, 0.0)
        levels: IndexArray = len(self.thresholds) - np.argmax(probabilities[:, ::-1], axis=1)
        return levels
