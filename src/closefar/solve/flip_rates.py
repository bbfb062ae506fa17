"""How often answers are given whatever the distance: by everyone alike, by side, or by each annotator.

An answer is drawn from all K levels alike with probability rho; the flip rate rho (K - 1) / K is the
share of answers that are wrong for this reason.  Of close/far labels and comparisons it is rho / 2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace
from scipy.optimize import minimize_scalar
from scipy.special import betaln, xlog1py, xlogy

from closefar.arrays import Array, BoolArray, FloatArray, like, sums_by, whole_numbers
from closefar.rows import RowSource
from closefar.solve.flips import best_rate, best_two_rates

__all__ = ["Answers", "FlipRates", "RateOfEach", "SharedRate", "SideRates"]

_LARGEST_SHARE = 0.998

# The prior of the share of random answers of an annotator: a Beta distribution around that of the typical one, worth
# so many judgements, mixed with a uniform one so that it does not pull those who answer at random.
_STRENGTH = 20.0
_UNIFORM = 0.05
_TYPICAL = np.linspace(0.0, 0.6, 31)

_GRID = _LARGEST_SHARE * np.linspace(0.0, 1.0, 21) ** 1.5
_SECTIONS = 24
_GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)


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
        return np.tile([self.called_close, self.called_far, 0.0, 0.0], (n_groups + 1, 1))

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
        value = _LogLikelihood(answers, self.total_weight)
        has_rows = value.has_rows
        grid = np.array([value(np.full(len(self.shares), share)) for share in _GRID])
        profile = [(grid + _log_prior(_GRID, typical)[:, None]).max(axis=0)[has_rows].sum() for typical in _TYPICAL]
        typical = float(_TYPICAL[int(np.argmax(profile))])
        shares = _best_shares(partial(_posterior, value, typical), self.shares)
        typical = _best_typical(shares[has_rows], typical)
        shares = _best_shares(partial(_posterior, value, typical), shares)
        found = replace(self, shares=np.where(has_rows, shares, typical), typical=typical)
        return max(self, found, key=lambda each: value(each.shares)[has_rows].sum() + each._log_prior_of(has_rows))

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
        probability = self._right + shares[self._groups] * self._gain
        logs = self._counts * np.log(np.maximum(probability, np.finfo(np.float64).tiny))
        found: FloatArray = sums_by(self._groups, self._n, logs)[0]
        return found


def _best_shares(value: Callable[[FloatArray], FloatArray], near: FloatArray) -> FloatArray:
    """Maximise each component over its share: the best of a grid and, around it, golden sections."""
    grid = np.array([value(np.full(len(near), share)) for share in _GRID])
    best = grid.argmax(axis=0)
    low, high = _GRID[np.maximum(best - 1, 0)], _GRID[np.minimum(best + 1, len(_GRID) - 1)]
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    on_left, on_right = value(left), value(right)
    for _ in range(_SECTIONS):
        is_left = on_left >= on_right
        low, high = np.where(is_left, low, left), np.where(is_left, right, high)
        kept, on_kept = np.where(is_left, left, right), np.where(is_left, on_left, on_right)
        other = low + high - kept
        on_other = value(other)
        left, right = np.minimum(kept, other), np.maximum(kept, other)
        on_left, on_right = np.where(kept <= other, on_kept, on_other), np.where(kept <= other, on_other, on_kept)
    tried = [_GRID[best], np.where(on_left >= on_right, left, right), near]
    values = np.array([grid.max(axis=0), np.maximum(on_left, on_right), value(near)])
    found: FloatArray = np.choose(values.argmax(axis=0), tried)
    return found


def _posterior(value: Callable[[FloatArray], FloatArray], typical: float, shares: FloatArray) -> FloatArray:
    return value(shares) + _log_prior(shares, typical)


def _best_typical(shares: FloatArray, near: float) -> float:
    """The share of the typical annotator that makes those of all likeliest."""

    def loss(typical: float) -> float:
        return -float(np.sum(_log_prior(shares, typical)))

    best = int(np.argmin([loss(typical) for typical in _TYPICAL]))
    bounds = _TYPICAL[max(best - 1, 0)], _TYPICAL[min(best + 1, len(_TYPICAL) - 1)]
    between = float(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-9}).x)
    return min(near, float(_TYPICAL[best]), between, key=loss)


def _log_prior(shares: FloatArray, typical: float) -> FloatArray:
    above, below = _STRENGTH * typical, _STRENGTH * (1.0 - typical)
    log_beta = xlogy(above, shares) + xlog1py(below, -shares) - betaln(1.0 + above, 1.0 + below)
    found: FloatArray = np.log((1.0 - _UNIFORM) * np.exp(log_beta) + _UNIFORM)
    return found


def _signs(codes: Array, weights: Array) -> Array:
    return 2.0 * codes - 1.0 + 0.0 * weights


def _slopes(chances: FloatArray, shares: tuple[float, ...], right: Array, codes: Array, weights: Array) -> FloatArray:
    """The sums over some rows of the first and second derivative of log P at each share."""
    xp = array_namespace(right)
    gain = xp.take(like(right, chances), whole_numbers(codes)) - right
    found = []
    for share in shares:
        ratio = gain / xp.maximum(right + share * gain, np.finfo(np.float64).tiny + 0.0 * right)
        with np.errstate(over="ignore", invalid="ignore"):  # the curvature at a share of 0, which is not used
            found.append([float(xp.sum(weights * ratio)), -float(xp.sum(weights * ratio * ratio))])
    return np.array(found)
