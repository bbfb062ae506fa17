"""How often answers are given whatever the distance: by everyone alike, by side, or by each annotator.

An answer is drawn from all K levels alike with probability rho; the flip rate rho (K - 1) / K is the
share of answers that are wrong for this reason.  Of close/far labels and comparisons it is rho / 2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace
from scipy.optimize import minimize_scalar
from scipy.special import xlog1py, xlogy

from closefar.arrays import Array, BoolArray, FloatArray, like, sums_by, whole_numbers
from closefar.rows import RowSource
from closefar.solve.flips import best_rate, best_two_rates

__all__ = ["Answers", "FlipRates", "RateOfEach", "SharedRate", "SideRates"]

_LARGEST_SHARE = 0.998

# The prior of the share of random answers of an annotator: a Beta distribution around that of the typical one, worth
# so many judgements, mixed with a uniform one so that it does not pull those who answer at random.  Both are relative
# to the mode: a density is highest if nobody answers at random, and the shares of all would be too low.
_STRENGTH = 20.0
_UNIFORM = 0.01
_TYPICAL = np.linspace(0.0, 0.6, 31)

_GRID = _LARGEST_SHARE * np.linspace(0.0, 1.0, 21) ** 1.5
_NEWTON_STEPS = 6
_STEP = 1e-4  # of finite differences
_LEAST_PROBABILITY = np.finfo(np.float64).tiny


class Answers(NamedTuple):
    """Judgements with the probability of each if it is not flipped; arrays are handles of the source."""

    source: RowSource
    right: Array
    codes: Array
    weights: Array
    groups: Array | None
    n_levels: int
    n_groups: int

    @property
    def chances(self) -> FloatArray:
        """The probability of each code in an answer at random."""
        return np.append(np.full(self.n_levels, 1.0 / self.n_levels), [0.5, 0.5])


class FlipRates(ABC):
    """Flip rates of judgements, with tables of what they do to probabilities: P becomes floor + kept P."""

    @property
    @abstractmethod
    def rates(self) -> FloatArray:
        """All unknown rates."""

    @abstractmethod
    def with_rates(self, rates: FloatArray) -> FlipRates:
        """The same with other rates."""

    @abstractmethod
    def best(self, answers: Answers) -> FlipRates:
        """The likeliest rates of these answers."""

    @abstractmethod
    def kept(self, n_groups: int) -> FloatArray:
        """The share of answers of each annotator, and of none, that are not at random."""

    def floors(self, n_levels: int, n_groups: int) -> FloatArray:
        """What answers at random add to the probability of each code, by annotator."""
        chances = np.append(np.full(n_levels, 1.0 / n_levels), [0.5, 0.5])
        return np.outer(1.0 - self.kept(n_groups), chances)

    def penalty(self) -> float:
        """The penalty on the rates that the risk includes."""
        return 0.0

    @property
    def has_flips(self) -> bool:
        return bool(np.any(self.rates > 0.0))

    @abstractmethod
    def flip_rate(self, n_levels: int) -> float | tuple[float, float]:
        """The flip rate, or both, of the typical annotator."""


@dataclass(frozen=True)
class SharedRate(FlipRates):
    """A share of answers is at random, the same for all judgements."""

    share: float

    @classmethod
    def of(cls, flip_rate: float, n_levels: int) -> SharedRate:
        return cls(flip_rate * n_levels / (n_levels - 1) if n_levels > 1 else 2.0 * flip_rate)

    @property
    def rates(self) -> FloatArray:
        return np.array([self.share])

    def with_rates(self, rates: FloatArray) -> SharedRate:
        return SharedRate(float(rates[0]))

    def best(self, answers: Answers) -> SharedRate:
        slopes = partial(_slopes, answers.chances)
        arrays = answers.right, answers.codes, answers.weights
        return SharedRate(best_rate(answers.source, slopes, arrays, self.share, _LARGEST_SHARE))

    def kept(self, n_groups: int) -> FloatArray:
        return np.full(n_groups + 1, 1.0 - self.share)

    def flip_rate(self, n_levels: int) -> float:
        return wrong_share(self.share, n_levels)


@dataclass(frozen=True)
class SideRates(FlipRates):
    """Close pairs that are called far, and far pairs that are called close, have a rate each."""

    called_far: float
    called_close: float

    @property
    def rates(self) -> FloatArray:
        return np.array([self.called_far, self.called_close])

    def with_rates(self, rates: FloatArray) -> SideRates:
        return SideRates(float(rates[0]), float(rates[1]))

    def best(self, answers: Answers) -> SideRates:
        signs = answers.source.map(_signs, answers.codes, answers.weights)
        return self.with_rates(best_two_rates(answers.source, answers.right, signs, answers.weights, self.rates))

    def kept(self, n_groups: int) -> FloatArray:
        return np.full(n_groups + 1, 1.0 - self.called_far - self.called_close)

    def floors(self, n_levels: int, n_groups: int) -> FloatArray:
        of_each = 0.5 * (self.called_far + self.called_close)  # answer to a comparison, which has no sides
        return np.tile([self.called_close, self.called_far, of_each, of_each], (n_groups + 1, 1))

    def flip_rate(self, n_levels: int) -> tuple[float, float]:
        return self.called_far, self.called_close


@dataclass(frozen=True, eq=False)
class RateOfEach(FlipRates):
    """Each annotator has a share of answers at random, shrunk towards that of the typical one.

    `shares` are those of all annotators and, last, of judgements by none.  `total_weight` is the number of judgements.
    """

    shares: FloatArray
    typical: float
    total_weight: float

    @classmethod
    def none(cls, n_groups: int, total_weight: float) -> RateOfEach:
        return cls(np.zeros(n_groups + 1), 0.0, total_weight)

    @property
    def rates(self) -> FloatArray:
        return np.append(self.shares, self.typical)

    def with_rates(self, rates: FloatArray) -> RateOfEach:
        return replace(self, shares=np.array(rates[:-1]), typical=float(rates[-1]))

    def best(self, answers: Answers) -> RateOfEach:
        likelihood = _LogLikelihood(answers, self.total_weight)
        has_rows = likelihood.has_rows
        grid = np.array([likelihood(np.full(len(self.shares), share)) for share in _GRID])
        profile = [(grid + _log_prior(_GRID, each)[:, None]).max(axis=0)[has_rows].sum() for each in _TYPICAL]
        shares = _best_shares(likelihood, grid, float(_TYPICAL[int(np.argmax(profile))]))
        typical = _best_typical(shares[has_rows])
        found = replace(self, shares=np.where(has_rows, shares, typical), typical=typical)
        return max(self, found, key=lambda each: likelihood(each.shares)[has_rows].sum() + each._log_prior_of(has_rows))

    def _log_prior_of(self, has_rows: BoolArray) -> float:
        return float(np.sum(_log_prior(self.shares, self.typical)[has_rows]))

    def kept(self, n_groups: int) -> FloatArray:
        return 1.0 - self.shares

    def penalty(self) -> float:
        return -float(np.sum(_log_prior(self.shares, self.typical))) / self.total_weight

    def flip_rate(self, n_levels: int) -> float:
        return wrong_share(self.typical, n_levels)


def wrong_share(share: float, n_levels: int) -> float:
    """The share of answers that are wrong because they are at random."""
    return share * (1.0 - 1.0 / n_levels) if n_levels > 1 else 0.5 * share


class _LogLikelihood:
    """The log-likelihood of each annotator's answers as a function of everyone's share of random ones."""

    def __init__(self, answers: Answers, total_weight: float) -> None:
        gather = answers.source.gather
        self._groups = whole_numbers(gather(answers.groups))
        self._right = gather(answers.right)
        self._gain = answers.chances[whole_numbers(gather(answers.codes))] - self._right
        self._counts = total_weight * gather(answers.weights)
        self._n = answers.n_groups + 1
        self.has_rows = np.bincount(self._groups, minlength=self._n) > 0

    def __call__(self, shares: FloatArray) -> FloatArray:
        found: FloatArray = sums_by(self._groups, self._n, self._counts * np.log(self._probability(shares)))[0]
        return found

    def derivatives(self, shares: FloatArray) -> FloatArray:
        """The first and the second derivative in the share of each."""
        ratio = self._gain / self._probability(shares)
        slopes = self._counts * ratio
        return sums_by(self._groups, self._n, slopes, -slopes * ratio)

    def _probability(self, shares: FloatArray) -> FloatArray:
        found: FloatArray = np.maximum(self._right + shares[self._groups] * self._gain, _LEAST_PROBABILITY)
        return found


def _best_shares(likelihood: _LogLikelihood, grid: FloatArray, typical: float) -> FloatArray:
    """Maximise the posterior of each share: the best on the grid of likelihoods, and Newton steps around it."""
    best = (grid + _log_prior(_GRID, typical)[:, None]).argmax(axis=0)
    low, high = _GRID[np.maximum(best - 1, 0)], _GRID[np.minimum(best + 1, len(_GRID) - 1)]
    begun = shares = _GRID[best]
    for _ in range(_NEWTON_STEPS):
        slope, bend = likelihood.derivatives(shares)
        below, at, above = (_log_prior(np.clip(shares + h, 0.0, 1.0), typical) for h in (-_STEP, 0.0, _STEP))
        slope, bend = slope + (above - below) / (2.0 * _STEP), bend + (above - 2.0 * at + below) / _STEP**2
        step = np.where(
            bend < 0.0, -slope / np.where(bend < 0.0, bend, -1.0), np.where(slope > 0.0, high, low) - shares
        )
        shares = np.clip(shares + step, low, high)
    gain = likelihood(shares) + _log_prior(shares, typical) - likelihood(begun) - _log_prior(begun, typical)
    found: FloatArray = np.where(gain > 0.0, shares, begun)
    return found


def _best_typical(shares: FloatArray) -> float:
    """The share of the typical annotator that makes those of all likeliest."""

    def loss(typical: float) -> float:
        return -float(np.sum(_log_prior(shares, typical)))

    best = int(np.argmin([loss(typical) for typical in _TYPICAL]))
    bounds = _TYPICAL[max(best - 1, 0)], _TYPICAL[min(best + 1, len(_TYPICAL) - 1)]
    between = float(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-9}).x)
    return min(float(_TYPICAL[best]), between, key=loss)


def _log_prior(shares: FloatArray, typical: float) -> FloatArray:
    above, below = _STRENGTH * typical, _STRENGTH * (1.0 - typical)
    at_mode = xlogy(above, typical) + xlog1py(below, -typical)
    log_beta = xlogy(above, shares) + xlog1py(below, -shares) - at_mode
    found: FloatArray = np.log((1.0 - _UNIFORM) * np.exp(log_beta) + _UNIFORM)
    return found


def _signs(codes: Array, weights: Array) -> Array:
    """-1 for close, +1 for far, and 0 for comparisons."""
    return array_namespace(weights).where(codes < 2, 2.0 * codes - 1.0 + 0.0 * weights, 0.0 * weights)


def _slopes(chances: FloatArray, shares: tuple[float, ...], right: Array, codes: Array, weights: Array) -> FloatArray:
    """The sums over some rows of the first and second derivative of log P at each share."""
    xp = array_namespace(right)
    gain = xp.take(like(right, chances), whole_numbers(codes)) - right
    found = []
    for share in shares:
        ratio = gain / xp.maximum(right + share * gain, _LEAST_PROBABILITY + 0.0 * right)
        with np.errstate(over="ignore", invalid="ignore"):  # the curvature at a share of 0, which is not used
            found.append([float(xp.sum(weights * ratio)), -float(xp.sum(weights * ratio * ratio))])
    return np.array(found)
