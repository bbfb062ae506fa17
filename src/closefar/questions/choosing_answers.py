"""What an answer to a question teaches, in nats, where the margins of the question are known up to a normal error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy.special import entr, ndtr, ndtri
from scipy.stats import qmc

from closefar.arrays import TINY, FloatArray
from closefar.model.thresholds import level_flips
from closefar.noise import FlipRate, Noise, interval_losses
from closefar.questions.label_model import LabelModel

__all__ = ["Answers"]

# Errors of margins below a quarter of the standard deviation of the noise are integrated by Gauss-Hermite, larger ones
# over cells of that width, where the normal may be as wide as it likes.
_WIDE = 0.25
_N_NODES = 12
_N_CELLS = 96

_N_DRAWS = 128


@dataclass(frozen=True, eq=False)
class Answers:
    """The distribution of the answer given the margins from each threshold; comparisons, and two sides, have one.

    Attributes
    ----------
    noise : Noise
    flip_rate : float or tuple of float
    n_levels : int
        The number of possible answers.
    """

    noise: Noise
    flip_rate: FlipRate
    n_levels: int = 2

    def probabilities(self, margins: FloatArray) -> FloatArray:
        """The probability of each answer, (..., K), from the margins, (..., K - 1), the lowest threshold's first."""
        if self.n_levels == 2:
            model = LabelModel.at(margins[..., 0], self.noise, self.flip_rate)
            return np.stack([model.close, model.far], axis=-1)
        found = [self._level(margins, code) for code in range(self.n_levels)]
        return np.stack(found, axis=-1)

    def _level(self, margins: FloatArray, code: int) -> FloatArray:
        last = self.n_levels - 1
        ahead = np.full(margins.shape[:-1], np.inf)
        low = margins[..., code - 1] if code > 0 else ahead
        up = margins[..., code] if code < last else -ahead
        with np.errstate(divide="ignore", invalid="ignore"):  # draws of thresholds that are out of order
            plain = np.exp(-interval_losses(self.noise, low, np.minimum(up, low), 0).loss)
        each, rest = level_flips(np.asarray(self.flip_rate), self.n_levels)
        return np.asarray(each + rest * np.nan_to_num(plain))

    def _quick_levels(self, margins: FloatArray) -> FloatArray:
        """The probability of each level to within rounding of 1, which is enough for entropies, and quicker."""
        beyond = self.noise.cdf(margins)
        ends = np.ones((*margins.shape[:-1], 1))
        plain = np.maximum(-np.diff(beyond, axis=-1, prepend=ends, append=0.0 * ends), 0.0)
        each, rest = level_flips(np.asarray(self.flip_rate), self.n_levels)
        return np.asarray(each + rest * plain)

    def entropies(self, margins: FloatArray) -> FloatArray:
        """The entropy of the answer at known margins, in nats."""
        entropies: FloatArray = entr(self.probabilities(margins)).sum(axis=-1)
        return entropies

    def fisher(self, margins: FloatArray) -> FloatArray:
        """The Fisher information of the answer about the margins, (..., K - 1, K - 1)."""
        if self.n_levels == 2:
            return LabelModel.at(margins[..., 0], self.noise, self.flip_rate).information[..., None, None]
        _, rest = level_flips(np.asarray(self.flip_rate), self.n_levels)
        slopes = np.asarray(rest) * self.noise.pdf(margins)
        rarest = np.maximum(self.probabilities(margins), TINY)
        found = np.zeros((*margins.shape, margins.shape[-1]))
        for k in range(margins.shape[-1]):
            found[..., k, k] = slopes[..., k] ** 2 * (1.0 / rarest[..., k] + 1.0 / rarest[..., k + 1])
            if k:
                found[..., k, k - 1] = found[..., k - 1, k] = -slopes[..., k] * slopes[..., k - 1] / rarest[..., k]
        return found

    def gains(self, means: FloatArray, covariances: FloatArray) -> FloatArray:
        """The mutual information of answer and margins, H(E p) - E H(p), for means (n, K - 1) and their covariances."""
        if self.n_levels == 2:
            return self._gains_of_sides(means[:, 0], np.sqrt(np.maximum(covariances[:, 0, 0], 0.0)))
        probabilities = self._quick_levels(_drawn(means, covariances))
        gains = entr(probabilities.mean(axis=1)).sum(axis=-1) - entr(probabilities).sum(axis=-1).mean(axis=1)
        return np.asarray(np.maximum(gains, 0.0))

    def expected_fisher(self, mean: FloatArray, covariance: FloatArray) -> FloatArray:
        """The Fisher information, averaged over the distribution of the margins of one question."""
        if self.n_levels > 2:
            return np.asarray(self.fisher(_drawn(mean[None], covariance[None])[0]).mean(axis=0))
        width = np.sqrt(np.maximum(covariance[0], 0.0))
        if width[0] >= _WIDE * self.noise.std:
            return np.reshape(self._masses(mean, width) @ self._cells[2], (1, 1))
        nodes, weights = _hermite()
        found: FloatArray = np.tensordot(weights, self.fisher(mean[0] + width[0] * nodes[:, None]), axes=1)
        return found

    def _gains_of_sides(self, mean: FloatArray, width: FloatArray) -> FloatArray:
        gains = np.empty(len(mean))
        is_wide = width >= _WIDE * self.noise.std
        nodes, weights = _hermite()
        narrow = ~is_wide
        far = self.probabilities((mean[narrow, None] + width[narrow, None] * nodes)[..., None])
        gains[narrow] = entr(np.tensordot(far, weights, axes=(1, 0))).sum(axis=-1) - entr(far).sum(axis=-1) @ weights
        masses = self._masses(mean[is_wide], width[is_wide])
        probabilities, entropies, _ = self._cells
        gains[is_wide] = entr(masses @ probabilities).sum(axis=-1) - masses @ entropies
        return np.maximum(gains, 0.0)

    def _masses(self, mean: FloatArray, width: FloatArray) -> FloatArray:
        """The probability that the margin lies in each cell; cells add the variance of their width, so it is less."""
        step = _WIDE * self.noise.std
        edges = step * (np.arange(_N_CELLS + 1) - 0.5 * _N_CELLS)
        corrected = np.sqrt(width**2 - step**2 / 12.0)
        below = ndtr((edges - mean[:, None]) / corrected[:, None])
        return np.diff(below, axis=1, prepend=0.0, append=1.0)

    @cached_property
    def _cells(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The probabilities, the entropy and the information in the middle of each cell; the outermost are endless."""
        step = _WIDE * self.noise.std
        middle = np.asarray(step * (np.arange(_N_CELLS + 2) - 0.5 * (_N_CELLS + 1)), dtype=np.float64)
        probabilities = self.probabilities(middle[:, None])
        return probabilities, entr(probabilities).sum(axis=-1), self.fisher(middle[:, None])[:, 0, 0]


@lru_cache(maxsize=1)
def _hermite() -> tuple[FloatArray, FloatArray]:
    """The nodes and weights of expectations under the standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_N_NODES)
    return nodes, weights / weights.sum()


@lru_cache(maxsize=8)
def _draws(n: int) -> FloatArray:
    """Points of the standard normal in n dimensions, with its mean and its covariance, the same each time."""
    half = ndtri(qmc.Halton(n, scramble=False).random(1 + _N_DRAWS // 2)[1:])
    points = np.vstack([half, -half])
    root = np.linalg.cholesky(points.T @ points / len(points))
    drawn: FloatArray = np.linalg.solve(root, points.T).T
    return drawn


def _drawn(means: FloatArray, covariances: FloatArray) -> FloatArray:
    """Margins of each question, (n, draws, K - 1)."""
    values, vectors = np.linalg.eigh(covariances)
    roots: Any = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    drawn: FloatArray = means[:, None, :] + _draws(means.shape[1]) @ np.swapaxes(roots, 1, 2)
    return drawn
