"""Labels that are flipped whatever the distance: P(label) = q + (1 - 2q) Phi(l margin).

The negative log-likelihood is not convex, so it is minimised from the convex optimum of q = 0,
with the Fisher information as the Hessian, and with q optimised along the way.  The last step is
one of expectation-maximisation: with each label's probability of being flipped held fixed, the
problem is convex again, and the certificate is that of this step.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import TINY, Array, FloatArray
from closefar.noise import Noise, with_flips
from closefar.rows import RowSource
from closefar.solve.likelihood import CloseFar

__all__ = ["FlippedCloseFar", "SoftCloseFar", "best_flip_rate"]

_LARGEST_RATE = 0.499
_RATE_TOL = 1e-13  # of the last Newton step
_MOST_STEPS = 100


class FlippedCloseFar(CloseFar):
    """The mean of -log(q + (1 - 2q) Phi(l m)); its curvature is the Fisher information, which is never negative."""

    is_plain = False
    is_convex = False
    separates = False  # flipped labels belong on the wrong side

    def __init__(self, noise: Noise, signs: Array, weights: Array, flip_rate: float, lengths: Array = None) -> None:
        super().__init__(noise, signs, weights, lengths)
        self.flip_rate = flip_rate

    def pointwise(self, margin: Array, *rest: Array, order: int) -> tuple[Array, ...]:
        xp = array_namespace(margin)
        loss, slope = self.noise.derivatives(margin, 1)
        right = xp.exp(-loss)
        probability = with_flips(right, self.flip_rate)
        density = -(1.0 - 2.0 * self.flip_rate) * slope * right
        if order < 2:
            return -xp.log(probability), -density / probability
        wrong = with_flips(xp.exp(-self.noise.neg_log_cdf(-margin)), self.flip_rate)
        return -xp.log(probability), -density / probability, density**2 / (probability * wrong)

    def with_rate(self, flip_rate: float) -> FlippedCloseFar:
        return FlippedCloseFar(self.noise, self.signs, self.weights, flip_rate, self.lengths)

    def with_best_rate(self, source: RowSource, squared: Array, thresholds: FloatArray) -> FlippedCloseFar:
        """The same with the maximum-likelihood flip rate at these squared distances."""
        right = self.right(source, squared, thresholds)
        return self.with_rate(best_flip_rate(source, right, self.weights, self.flip_rate))

    def share_undecided(self, source: RowSource, squared: Array, thresholds: FloatArray) -> float:
        """The mean uncertainty of the labels: one at even odds, zero far from the threshold."""

        def undecided(right: Array, weights: Array) -> Array:
            return 4.0 * weights * right * (1.0 - right)

        right = self.right(source, squared, thresholds)
        return source.total(source.map(undecided, right, self.weights))

    def softened(self, source: RowSource, squared: Array, thresholds: FloatArray) -> SoftCloseFar:
        """The likelihood in which each label's probability of being flipped is fixed at its present value."""
        rate = self.flip_rate

        def flipped(right: Array) -> Array:
            return rate * (1.0 - right) / with_flips(right, rate)

        held = source.map(flipped, self.right(source, squared, thresholds))
        return SoftCloseFar(self.noise, self.signs, self.weights, held, self.lengths)

    def with_arrays(self, *arrays: Array) -> FlippedCloseFar:
        signs, weights, *lengths = arrays
        return FlippedCloseFar(self.noise, signs, weights, self.flip_rate, *lengths)


class SoftCloseFar(CloseFar):
    """The risk of labels that are each flipped with a known probability; it is convex."""

    is_plain = False
    separates = False

    def __init__(self, noise: Noise, signs: Array, weights: Array, flipped: Array, lengths: Array = None) -> None:
        super().__init__(noise, signs, weights, lengths)
        self.row_arrays = self._row_arrays(flipped)

    def pointwise(self, margin: Array, *rest: Array, order: int) -> tuple[Array, ...]:
        (flipped,) = rest
        kept = self.noise.derivatives(margin, order)
        turned = self.noise.derivatives(-margin, order)
        signs = (1.0, -1.0, 1.0)
        return tuple(
            (1.0 - flipped) * left + sign * flipped * right
            for left, right, sign in zip(kept, turned, signs, strict=False)
        )

    def with_arrays(self, *arrays: Array) -> SoftCloseFar:
        return SoftCloseFar(self.noise, *arrays)


def best_flip_rate(source: RowSource, right: Array, weights: Array, near: float = 0.0) -> float:
    """Maximise the mean log(q + (1 - 2q) Phi) over 0 <= q < 1/2, for `right` = Phi(l m): concave in q.

    Newton steps from `near`, within bounds on q: each is a sweep over the rows.
    """
    rate = near if 0.0 < near < _LARGEST_RATE else 0.5 * _LARGEST_RATE
    (low_slope, _), (slope, bend), (high_slope, _) = _slopes(source, right, weights, (0.0, rate, _LARGEST_RATE))
    if low_slope <= 0.0:
        return 0.0
    if high_slope >= 0.0:
        return _LARGEST_RATE
    low, high = 0.0, _LARGEST_RATE
    for _ in range(_MOST_STEPS):
        low, high = (rate, high) if slope > 0.0 else (low, rate)
        step = -slope / bend if bend < 0.0 else np.inf
        before, rate = rate, rate + step if low <= rate + step <= high else 0.5 * (low + high)
        if abs(rate - before) <= _RATE_TOL:
            break
        ((slope, bend),) = _slopes(source, right, weights, (rate,))
    return rate


def _slopes(source: RowSource, right: Array, weights: Array, rates: tuple[float, ...]) -> list[list[float]]:
    """The first and the second derivative at each rate."""
    sums: list[list[float]] = np.sum(source.parts(partial(_sums_of_slopes, rates), right, weights), axis=0).tolist()
    return sums


def _sums_of_slopes(rates: tuple[float, ...], right: Array, weights: Array) -> FloatArray:
    xp = array_namespace(right)
    above_zero = xp.where(right > TINY, right, TINY)  # Phi underflows to 0 at extremely wrong margins
    found = []
    for rate in rates:
        ratio = (1.0 - 2.0 * above_zero) / with_flips(above_zero, rate)
        with np.errstate(over="ignore", invalid="ignore"):  # the curvature at a rate of 0, which is not used
            found.append([float(xp.sum(weights * ratio)), -float(xp.sum(weights * ratio * ratio))])
    return np.array(found)
