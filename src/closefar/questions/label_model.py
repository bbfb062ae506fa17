"""The probability of a label at given margins, and the derivatives that tests and standard errors need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closefar.arrays import BoolArray, FloatArray
from closefar.noise import Noise, with_flips

__all__ = ["LabelModel"]

# At enormous margins: the information and its square stay finite.
_LEAST_VARIANCE = 1e-50


@dataclass(frozen=True)
class LabelModel:
    """P(far) = q + (1 - 2q) Phi(margin).

    `slope` and `curvature` are the first and the second derivative of P(far) in the margin and `flip_slope`
    the derivative in q.
    """

    far: FloatArray
    close: FloatArray
    slope: FloatArray
    flip_slope: FloatArray
    curvature: FloatArray

    @classmethod
    def at(cls, margin: FloatArray, noise: Noise, flip_rate: float) -> LabelModel:
        upper, lower = noise.cdf(margin), noise.cdf(-margin)
        slope = (1.0 - 2.0 * flip_rate) * noise.pdf(margin)
        loss, first, second = noise.derivatives(np.abs(margin))  # where nothing cancels
        curvature = (1.0 - 2.0 * flip_rate) * np.sign(margin) * (first**2 - second) * np.exp(-loss)
        return cls(with_flips(upper, flip_rate), with_flips(lower, flip_rate), slope, lower - upper, curvature)

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
