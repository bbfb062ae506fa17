"""Labels that are flipped whatever the distance: P(far) = a + (1 - a - b) Phi(margin).

A close pair is called far with probability a, and a far pair is called close with probability b; a
single flip rate q is a = b = q.  The negative log-likelihood is not convex, so it is minimised from
the convex optimum without flips, with the Fisher information as the Hessian, and with the rates
optimised along the way.  The last step is one of expectation-maximisation: with each label's
probability of being flipped held fixed, the problem is convex again, and the certificate is that of
this step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import TINY, Array, FloatArray
from closefar.noise import Noise, with_flips
from closefar.rows import RowSource
from closefar.solve.likelihood import CloseFar, Losses

__all__ = [
    "LEAST_FLOOR",
    "FlippedCloseFar",
    "SoftCloseFar",
    "best_flip_rate",
    "best_rate",
    "best_two_rates",
    "rates_in_words",
    "undecided",
]

_LARGEST_RATE = 0.499
_RATE_TOL = 1e-13  # of the last Newton step
_MOST_STEPS = 100
_LARGEST_SUM = 0.998  # of two rates
_SLOPE_TOL = 1e-12
LEAST_FLOOR = 1e-15  # of a label whose rate is zero, and whose probability may underflow far from the optimum


class FlippedCloseFar(CloseFar):
    """The mean of -log P(label) with flips; its curvature is the Fisher information, which is never negative.

    `flip_rate` is q, or the two rates (a, b): P(called far | close) and P(called close | far).
    """

    is_plain = False
    is_convex = False
    separates = False  # flipped labels belong on the wrong side

    def __init__(self, noise: Noise, signs: Array, weights: Array, flip_rate: float | tuple[float, float]) -> None:
        super().__init__(noise, signs, weights)
        self.flip_rate = flip_rate

    @property
    def rates(self) -> FloatArray:
        """The rates as an array of one or two."""
        return np.atleast_1d(np.asarray(self.flip_rate, dtype=np.float64))

    @property
    def has_flips(self) -> bool:
        return bool(np.any(self.rates > 0.0))

    @property
    def has_several_starts(self) -> bool:
        """Whether the search for the rates may have several optima, so that it is begun at the best of some points."""
        return isinstance(self.flip_rate, tuple)

    @property
    def described(self) -> str:
        """The rates in words."""
        return rates_in_words(self.flip_rate)

    def losses(self, margin: Array, signs: Array, weights: Array, *rest: Array, order: int) -> Losses:
        return super().losses(margin, signs, weights, signs, order=order)

    def pointwise(self, margin: Array, *rest: Array, order: int) -> tuple[Array, ...]:
        (signs,) = rest
        xp = array_namespace(margin)
        loss, slope = self.noise.derivatives(margin, 1)
        right = xp.exp(-loss)
        kept, floor, other = _flips_of(self.flip_rate, signs)
        probability = floor + kept * right
        density = -kept * slope * right
        if order < 2:
            return -xp.log(probability), -density / probability
        wrong = other + kept * xp.exp(-self.noise.neg_log_cdf(-margin))
        return -xp.log(probability), -density / probability, density**2 / (probability * wrong)

    def probabilities(self, source: RowSource, squared: Array, thresholds: FloatArray) -> Array:
        """The probability of each label at these squared distances, flips included."""
        rate = self.flip_rate

        def flipped(right: Array, signs: Array) -> Array:
            kept, floor, _ = _flips_of(rate, signs)
            return floor + kept * right

        return source.map(flipped, self.right(source, squared, thresholds), self.signs)

    def with_rates(self, rates: FloatArray) -> FlippedCloseFar:
        """The same with other rates, one or two."""
        flip_rate = float(rates[0]) if len(rates) == 1 else (float(rates[0]), float(rates[1]))
        return FlippedCloseFar(self.noise, self.signs, self.weights, flip_rate)

    def with_best_rates(self, source: RowSource, squared: Array, thresholds: FloatArray) -> FlippedCloseFar:
        """The same with the maximum-likelihood flip rates at these squared distances."""
        right = self.right(source, squared, thresholds)
        if isinstance(self.flip_rate, tuple):
            return self.with_rates(best_two_rates(source, right, self.signs, self.weights, self.rates))
        return self.with_rates(np.array([best_flip_rate(source, right, self.weights, self.flip_rate)]))

    def share_undecided(self, source: RowSource, squared: Array, thresholds: FloatArray) -> float:
        """The mean uncertainty of the labels: one at even odds, zero far from the threshold."""
        return source.total(source.map(undecided, self.right(source, squared, thresholds), self.weights))

    def softened(self, source: RowSource, squared: Array, thresholds: FloatArray) -> SoftCloseFar:
        """The likelihood in which each label's probability of being flipped is fixed at its present value."""
        rate = self.flip_rate

        def flipped(right: Array, signs: Array) -> Array:
            kept, floor, _ = _flips_of(rate, signs)
            return floor * (1.0 - right) / (floor + kept * right)

        held = source.map(flipped, self.right(source, squared, thresholds), self.signs)
        return SoftCloseFar(self.noise, self.signs, self.weights, held)

    def with_arrays(self, *arrays: Array) -> FlippedCloseFar:
        signs, weights = arrays
        return FlippedCloseFar(self.noise, signs, weights, self.flip_rate)


def undecided(right: Array, weights: Array) -> Array:
    """The weighted uncertainty of judgements, given their probabilities without flips."""
    return 4.0 * weights * right * (1.0 - right)


def rates_in_words(flip_rate: float | tuple[float, float]) -> str:
    """A sentence without its full stop."""
    if not isinstance(flip_rate, tuple):
        return f"the flip rate is {flip_rate:.3g}"
    return f"the flip rates are {flip_rate[0]:.3g} (close pairs called far) and {flip_rate[1]:.3g} (far called close)"


def _flips_of(flip_rate: float | tuple[float, float], signs: Array) -> tuple[float, Array, Array]:
    """The share of labels that are kept, and what flips add to the probability of a label and of the other one."""
    if not isinstance(flip_rate, tuple):
        return 1.0 - 2.0 * flip_rate, flip_rate, flip_rate
    mean, half = 0.5 * (flip_rate[0] + flip_rate[1]), 0.5 * (flip_rate[0] - flip_rate[1])
    floor = mean + LEAST_FLOOR
    return 1.0 - 2.0 * mean, floor + half * signs, floor - half * signs


class SoftCloseFar(CloseFar):
    """The risk of labels that are each flipped with a known probability; it is convex."""

    is_plain = False
    separates = False

    def __init__(self, noise: Noise, signs: Array, weights: Array, flipped: Array) -> None:
        super().__init__(noise, signs, weights)
        self.row_arrays = (signs, weights, flipped)

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
    """Maximise the mean log(q + (1 - 2q) Phi) over 0 <= q < 1/2, for `right` = Phi(l m): concave in q."""
    return best_rate(source, _sums_of_slopes, (right, weights), near, _LARGEST_RATE)


def best_rate(
    source: RowSource, slopes_of: Callable[..., FloatArray], arrays: tuple[Array, ...], near: float, largest: float
) -> float:
    """Maximise a concave log-likelihood over a rate from 0 to the largest.

    Newton steps from `near`, within bounds on the rate: each is a sweep over the rows, in which `slopes_of` gives the
    sums of both derivatives at each of some rates.
    """

    def slopes_at(*rates: float) -> list[list[float]]:
        sums: list[list[float]] = np.sum(source.parts(partial(slopes_of, rates), *arrays), axis=0).tolist()
        return sums

    rate = near if 0.0 < near < largest else 0.5 * largest
    (low_slope, _), (slope, bend), (high_slope, _) = slopes_at(0.0, rate, largest)
    if low_slope <= 0.0:
        return 0.0
    if high_slope >= 0.0:
        return largest
    low, high = 0.0, largest
    for _ in range(_MOST_STEPS):
        low, high = (rate, high) if slope > 0.0 else (low, rate)
        step = -slope / bend if bend < 0.0 else np.inf
        before, rate = rate, rate + step if low <= rate + step <= high else 0.5 * (low + high)
        if abs(rate - before) <= _RATE_TOL:
            break
        ((slope, bend),) = slopes_at(rate)
    return rate


def _sums_of_slopes(rates: tuple[float, ...], right: Array, weights: Array) -> FloatArray:
    xp = array_namespace(right)
    above_zero = xp.where(right > TINY, right, TINY)  # Phi underflows to 0 at extremely wrong margins
    found = []
    for rate in rates:
        ratio = (1.0 - 2.0 * above_zero) / with_flips(above_zero, rate)
        with np.errstate(over="ignore", invalid="ignore"):  # the curvature at a rate of 0, which is not used
            found.append([float(xp.sum(weights * ratio)), -float(xp.sum(weights * ratio * ratio))])
    return np.array(found)


def best_two_rates(source: RowSource, right: Array, signs: Array, weights: Array, near: FloatArray) -> FloatArray:
    """Maximise the mean log P(label) over both rates, for `right` = Phi(l m): concave in them.

    A sign is zero for a comparison, which is flipped at the mean of both rates.

    Newton steps within the triangle a, b >= 0, a + b < 1, halved until they gain: each is a sweep over the rows.
    """
    rates = near if near.all() and near.sum() < _LARGEST_SUM else np.array([0.1, 0.1])
    value, slopes, bends = _two_slopes(source, right, signs, weights, rates)
    for _ in range(_MOST_STEPS):
        step = _rate_step(rates, slopes, bends)
        if float(slopes @ step) <= _SLOPE_TOL:
            break
        length = 1.0
        while length > _SLOPE_TOL:
            moved = _in_triangle(rates + length * step)
            there = _two_slopes(source, right, signs, weights, moved)
            if there[0] > value:
                break
            length *= 0.5
        else:
            break
        before, rates = rates, moved
        value, slopes, bends = there
        if np.abs(rates - before).max() <= _RATE_TOL:
            break
    return rates


def _rate_step(rates: FloatArray, slopes: FloatArray, bends: FloatArray) -> FloatArray:
    """The Newton step in the rates that are not held at zero, or in one of them along the side a + b = constant."""
    free = (rates > 0.0) | (slopes > 0.0)
    basis = np.eye(2)[:, free]
    if free.all() and rates.sum() >= _LARGEST_SUM and slopes.sum() > 0.0:
        basis = np.array([[1.0], [-1.0]])
    curved = basis.T @ bends @ basis - 1e-12 * (1.0 - np.trace(bends)) * np.eye(basis.shape[1])
    step: FloatArray = -basis @ np.linalg.solve(curved, basis.T @ slopes)
    return step


def _in_triangle(rates: FloatArray) -> FloatArray:
    above = np.maximum(rates, 0.0)
    return above * min(1.0, _LARGEST_SUM / max(float(above.sum()), TINY))


def _two_slopes(
    source: RowSource, right: Array, signs: Array, weights: Array, rates: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """The mean log-likelihood and its derivatives in the two rates."""
    parts = source.parts(partial(_sums_of_two, tuple(rates.tolist())), right, signs, weights)
    value, on_far, on_close, first, mixed, second = np.sum(parts, axis=0).tolist()
    return value, np.array([on_far, on_close]), -np.array([[first, mixed], [mixed, second]])


def _sums_of_two(rates: tuple[float, float], right: Array, signs: Array, weights: Array) -> FloatArray:
    xp = array_namespace(right)
    kept, floor, _ = _flips_of(rates, signs)
    probability = floor + kept * right
    gain, loss = (1.0 - right) / probability, -right / probability  # by the rate of this label, and of the other
    slopes = [0.5 * ((1.0 + signs) * one + (1.0 - signs) * other) for one, other in ((gain, loss), (loss, gain))]
    terms = [xp.log(probability), *slopes, slopes[0] ** 2, slopes[0] * slopes[1], slopes[1] ** 2]
    return np.array([float(xp.sum(weights * term)) for term in terms])
