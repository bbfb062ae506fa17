"""The probability of a label at given margins, and the derivatives that tests and standard errors need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from closefar.arrays import BoolArray, FloatArray
from closefar.noise import FlipRate, Noise, turned_round, with_flips

__all__ = ["LabelModel", "kept_share"]

# At enormous margins: the information and its square stay finite.
_LEAST_VARIANCE = 1e-50


@dataclass(frozen=True)
class LabelModel:
    """P(far) = a + (1 - a - b) Phi(margin), with the flip rates a of close and b of far; both are q if there is one.

    `slope` and `curvature` are the first and the second derivative of P(far) in the margin and `flip_slope`
    the derivative in q.
    """

    far: FloatArray
    close: FloatArray
    slope: FloatArray
    flip_slope: FloatArray
    curvature: FloatArray

    @classmethod
    def at(cls, margin: FloatArray, noise: Noise, flip_rate: FlipRate) -> LabelModel:
        upper, lower, kept = noise.cdf(margin), noise.cdf(-margin), kept_share(flip_rate)
        slope = kept * noise.pdf(margin)
        loss, first, second = noise.derivatives(np.abs(margin))  # where nothing cancels
        curvature = kept * np.sign(margin) * (first**2 - second) * np.exp(-loss)
        far, close = with_flips(upper, flip_rate), with_flips(lower, turned_round(flip_rate))
        return cls(far, close, slope, lower - upper, curvature)

    def flip_slopes(self, n_rates: int) -> FloatArray:
        """The derivative of P(far) in the flip rates that are parameters: none, q, or a and b; one column each."""
        if n_rates < 2:
            return self.flip_slope[:, None][:, :n_rates]
        close = 0.5 * (1.0 + self.flip_slope)
        return np.column_stack([close, close - 1.0])

    @property
    def variance(self) -> FloatArray:
        """The variance of the label (far 1, close 0)."""
        return np.maximum(self.far * self.close, _LEAST_VARIANCE)

    @property
    def information(self) -> FloatArray:
        """The Fisher information about the margin in one label."""
        return self.slope**2 / self.variance

    def residual(self, is_far: BoolArray) -> FloatArray:
        """The label (far 1, close 0) minus its expectation."""
        return np.where(is_far, self.close, -self.far)


def kept_share(flip_rate: FlipRate) -> Any:
    """The share of labels that depend on the distance: 1 - 2q, or 1 - a - b."""
    return 1.0 - flip_rate[0] - flip_rate[1] if isinstance(flip_rate, tuple) else 1.0 - 2.0 * flip_rate
