"""Labels that are flipped whatever the distance: P(label) = q + (1 - 2q) Phi(l margin).

The negative log-likelihood is not convex, so it is minimised from the convex optimum of q = 0,
with the Fisher information as the Hessian, and with q optimised along the way.  The last step is
one of expectation-maximisation: with each label's probability of being flipped held fixed, the
problem is convex again, and the certificate is that of this step.
"""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace
from scipy.optimize import brentq

from closefar.arrays import TINY, Array, FloatArray
from closefar.noise import Noise, with_flips
from closefar.rows import RowSource
from closefar.solve.likelihood import CloseFar, Losses

__all__ = ["FlippedCloseFar", "SoftCloseFar", "best_flip_rate"]

_LARGEST_RATE = 0.499


class FlippedCloseFar(CloseFar):
    """The mean of -log(q + (1 - 2q) Phi(l m)); its curvature is the Fisher information, which is never negative."""

    def __init__(self, noise: Noise, signs: Array, weights: Array, flip_rate: float, lengths: Array = None) -> None:
        super().__init__(noise, signs, weights, lengths)
        self.flip_rate = flip_rate

    def losses(self, margin: Array, signs: Array, weights: Array, *rest: Array, order: int) -> Losses:
        xp = array_namespace(margin)
        loss, slope = self.noise.derivatives(margin, 1)
        right = xp.exp(-loss)
        probability = with_flips(right, self.flip_rate)
        density = -(1.0 - 2.0 * self.flip_rate) * slope * right
        wrong = with_flips(xp.exp(-self.noise.neg_log_cdf(-margin)), self.flip_rate) if order == 2 else None
        return Losses(
            loss=-float(xp.sum(weights * xp.log(probability))),
            least_margin=-np.inf,  # flipped labels belong on the wrong side
            margin_gradient=-weights * signs * density / probability,
            curvature=weights * density**2 / (probability * wrong) if order == 2 else None,
        )

    def with_rate(self, flip_rate: float) -> FlippedCloseFar:
        return FlippedCloseFar(self.noise, self.signs, self.weights, flip_rate, self.lengths)

    def with_best_rate(self, source: RowSource, squared: Array, thresholds: FloatArray) -> FlippedCloseFar:
        """The same with the maximum-likelihood flip rate at these squared distances."""
        return self.with_rate(best_flip_rate(source, self.right(source, squared, thresholds), self.weights))

    def share_undecided(self, source: RowSource, squared: Array, thresholds: FloatArray) -> float:
        """The mean uncertainty of the labels: one at even odds, zero far from the threshold."""

        def undecided(right: Array, weights: Array) -> Array:
            return 4.0 * weights * right * (1.0 - right)

        right = self.right(source, squared, thresholds)
        return source.total(source.map(undecided, right, self.weights))

    def softened(self, source: RowSource, squared: Array, thresholds: FloatArray) -> SoftCloseFar:
        """The likelihood in which each label's probability of being flipped is fixed at its present value."""

        def flipped(right: Array) -> Array:
            return self.flip_rate * (1.0 - right) / with_flips(right, self.flip_rate)

        held = source.map(flipped, self.right(source, squared, thresholds))
        return SoftCloseFar(self.noise, self.signs, self.weights, held, self.lengths)

    def _of(self, signs: Array, weights: Array, *rest: Array) -> FlippedCloseFar:
        return FlippedCloseFar(self.noise, signs, weights, self.flip_rate, *rest)


class SoftCloseFar(CloseFar):
    """The risk of labels that are each flipped with a known probability; it is convex."""

    def __init__(self, noise: Noise, signs: Array, weights: Array, flipped: Array, lengths: Array = None) -> None:
        super().__init__(noise, signs, weights, lengths)
        self.row_arrays = self._row_arrays(flipped)

    def losses(self, margin: Array, signs: Array, weights: Array, *rest: Array, order: int) -> Losses:
        xp = array_namespace(margin)
        (flipped,) = rest
        kept = self.noise.derivatives(margin, order)
        turned = self.noise.derivatives(-margin, order)
        return Losses(
            loss=float(xp.sum(weights * ((1.0 - flipped) * kept[0] + flipped * turned[0]))),
            least_margin=-np.inf,
            margin_gradient=weights * signs * ((1.0 - flipped) * kept[1] - flipped * turned[1]),
            curvature=weights * ((1.0 - flipped) * kept[2] + flipped * turned[2]) if order == 2 else None,
        )

    def _of(self, signs: Array, weights: Array, *rest: Array) -> SoftCloseFar:
        return SoftCloseFar(self.noise, signs, weights, *rest)


def best_flip_rate(source: RowSource, right: Array, weights: Array) -> float:
    """Maximise the mean log(q + (1 - 2q) Phi) over 0 <= q < 1/2, for `right` = Phi(l m): concave in q."""

    def slope(rate: float) -> float:
        def terms(right: Array, weights: Array) -> Array:
            xp = array_namespace(right)
            above_zero = xp.where(right > TINY, right, TINY)  # Phi underflows to 0 at extremely wrong margins
            return weights * (1.0 - 2.0 * above_zero) / with_flips(above_zero, rate)

        return source.total(source.map(terms, right, weights))

    if slope(0.0) <= 0.0:
        return 0.0
    if slope(_LARGEST_RATE) >= 0.0:
        return _LARGEST_RATE
    return float(brentq(slope, 0.0, _LARGEST_RATE, xtol=1e-13))
