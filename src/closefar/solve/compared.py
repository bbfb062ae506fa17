"""Comparisons: which of two distances is the larger."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.noise import Noise
from closefar.rows import RowSource
from closefar.solve.curvature import FullCurvature
from closefar.solve.likelihood import CloseFar, Evaluation, Terms

__all__ = ["Compared"]


class Compared(CloseFar):
    """P = Phi(l q) of comparisons, where q is one squared distance less another; there is no threshold.

    `signs` are +1 if q was said to be positive, and -1 otherwise.
    """

    is_plain = False

    def __init__(self, noise: Noise, signs: Array, weights: Array) -> None:
        super().__init__(noise, signs, weights)
        self.least = np.empty(0)

    def margins(self, squared: Array, *arrays: Array, thresholds: FloatArray) -> tuple[Array, tuple[Array, ...]]:
        return arrays[0] * squared, arrays

    def terms(self, squared: Array, *arrays: Array, thresholds: FloatArray, order: int) -> Terms:
        margin, arrays = self.margins(squared, *arrays, thresholds=thresholds)
        loss, least_margin, margin_gradient, curvature = self.losses(margin, *arrays, order=order)
        return Terms(loss, np.empty(0), least_margin, margin_gradient, curvature)

    def crossed(self, found: Terms, values: Array, *arrays: Array) -> FloatArray:
        return np.empty(0)

    def curvature(self, source: RowSource, parts: Sequence[Terms]) -> FullCurvature:
        return FullCurvature(source.join([part.curvature for part in parts]), (), np.empty((0, 0)))

    def best_thresholds(
        self, source: RowSource, squared: Array, start: FloatArray, least: FloatArray, tol: float
    ) -> tuple[FloatArray, Evaluation]:
        return np.empty(0), source.evaluate(self, squared, np.empty(0), order=2)

    def right(self, source: RowSource, squared: Array, thresholds: FloatArray) -> Array:
        noise = self.noise
        return source.map(lambda squared, signs: noise.cdf(signs * squared), squared, self.signs)

    def with_arrays(self, *arrays: Array) -> Compared:
        return Compared(self.noise, *arrays)
