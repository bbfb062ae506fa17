"""Labels that are flipped whatever the distance: P(far) = a + (1 - a - b) Phi(margin).

A close pair is called far with probability a, and a far pair is called close with probability b; a
single flip rate q is a = b = q.  The negative log-likelihood is not convex, so it is minimised from
the convex optimum without flips, with the Fisher information as the Hessian, and with the rates
optimised along the way.  The last step is one of expectation-maximisation: with each label's
probability of being flipped held fixed, the problem is convex again, and the certificate is that of
this step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import TINY, Array, FloatArray, like, sums_by, whole_numbers
from closefar.noise import FlipRate, Noise
from closefar.packed import packed_size
from closefar.rows import RowSource
from closefar.solve.centre import Centred
from closefar.solve.certificate import Certificate, Outcome, advise_outcome
from closefar.solve.levels import Graded
from closefar.solve.likelihood import CloseFar, Likelihood, Terms, interval_terms
from closefar.solve.loop import Ending, FitStep, Recorder, RunLimits, Solver, State, Watch
from closefar.solve.low_rank import Factor
from closefar.solve.newton import Newton
from closefar.solve.problem import Objective, Problem, psd_factor, supervisor
from closefar.solve.solution import Options, Solution, run_roughly, solve, with_free_corner
from closefar.solve.start import moment_start

_LARGEST_RANDOM_SHARE = 0.998  # of answers; if all were drawn at random, they would say nothing
_RATE_TOL = 1e-13  # of the last Newton step
_MOST_RATE_STEPS = 100  # bisection alone needs half of them to the last digit
_LARGEST_SUM = 0.998  # of two rates
_SLOPE_TOL = 1e-12  # a gain of the mean log-likelihood, or a length of a step, that rounding hides
LEAST_FLOOR = 1e-15  # of a label whose rate is zero, and whose probability may underflow far from the optimum


class Flipped(Likelihood):
    """A likelihood of judgements of which some are flipped.

    If the search for the rates `has_several_starts`, it may have several optima, and is begun at the best of some
    points.
    """

    is_convex = False
    has_several_starts: bool = True
    flips: FlipRates
    n_levels: int

    @abstractmethod
    def with_flips(self, flips: FlipRates) -> Flipped:
        """The same with other flip rates."""

    @abstractmethod
    def answers(self, source: RowSource, right: Array) -> FlipAnswers:
        """The judgements, each with this probability if it is not flipped."""

    @abstractmethod
    def softened(self, source: RowSource, squared: Array, thresholds: FloatArray) -> Likelihood:
        """The convex likelihood in which each judgement's probability of being flipped keeps its present value."""

    @property
    def rates(self) -> FloatArray:
        return self.flips.rates

    @property
    def flip_rate(self) -> FlipRate:
        """The flip rate, or those of close and of far pairs."""
        return self.flips.flip_rate(self.n_levels)

    @property
    def described(self) -> str:
        """A sentence on the rates without its full stop."""
        rate = self.flip_rate
        if isinstance(rate, tuple):
            return f"the flip rates are {rate[0]:.3g} (close pairs called far) and {rate[1]:.3g} (far called close)"
        whose = " of the typical annotator" if isinstance(self.flips, RateOfEach) else ""
        return f"the flip rate{whose} is {rate:.3g}"

    def probabilities(self, source: RowSource, squared: Array, thresholds: FloatArray) -> Array:
        """The probability of each judgement at these squared distances, flips included."""
        answers = self.answers(source, self.right(source, squared, thresholds))

        def flipped(right: Array, codes: Array, *groups: Array) -> Array:
            floor, kept = self.flips.on(right, codes, groups, answers.n_levels, answers.n_groups)
            return floor + kept * right

        rest = () if answers.groups is None else (answers.groups,)
        return source.map(flipped, answers.right, answers.codes, *rest)

    def with_rates(self, rates: FloatArray) -> Flipped:
        return self.with_flips(self.flips.with_rates(rates))

    def with_best_rates(self, source: RowSource, squared: Array, thresholds: FloatArray) -> Flipped:
        """The same with the likeliest flip rates at these squared distances."""
        return self.with_flips(self.flips.best(self.answers(source, self.right(source, squared, thresholds))))


class FlippedCloseFar(Flipped, CloseFar):
    """The mean of -log P(label) with flips; its curvature is the Fisher information, which is never negative.

    `flip_rate` is q, or the two rates (a, b): P(called far | close) and P(called close | far).
    """

    is_plain = False
    separates = False  # flipped labels belong on the wrong side
    n_levels = 2

    def __init__(self, noise: Noise, signs: Array, weights: Array, flip_rate: FlipRate) -> None:
        super().__init__(noise, signs, weights)
        self.has_several_starts = isinstance(flip_rate, tuple)
        self.flips = SideRates(np.array(flip_rate)) if isinstance(flip_rate, tuple) else SharedRate.of(flip_rate, 2)

    def with_flips(self, flips: FlipRates) -> FlippedCloseFar:
        return FlippedCloseFar(self.noise, self.signs, self.weights, flips.flip_rate(2))

    def answers(self, source: RowSource, right: Array) -> FlipAnswers:
        codes = source.map(lambda signs: 0.5 * (signs + 1.0), self.signs)
        return FlipAnswers(source, right, codes, self.weights, None, 2, 0)

    def margins(self, squared: Array, *arrays: Array, thresholds: FloatArray) -> tuple[Array, tuple[Array, ...]]:
        margin, (signs, weights) = super().margins(squared, *arrays, thresholds=thresholds)
        return margin, (signs, weights, signs)

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


def _flips_of(flip_rate: FlipRate, signs: Array) -> tuple[float, Array, Array]:
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
    for _ in range(_MOST_RATE_STEPS):
        low, high = (rate, high) if slope > 0.0 else (low, rate)
        step = -slope / bend if bend < 0.0 else np.inf
        before, rate = rate, rate + step if low <= rate + step <= high else 0.5 * (low + high)
        if abs(rate - before) <= _RATE_TOL:
            break
        ((slope, bend),) = slopes_at(rate)
    return rate


def best_two_rates(source: RowSource, right: Array, signs: Array, weights: Array, near: FloatArray) -> FloatArray:
    """Maximise the mean log P(label) over both rates, for `right` = Phi(l m): concave in them.

    A sign is zero for a comparison, which is flipped at the mean of both rates.

    Newton steps within the triangle a, b >= 0, a + b < 1, halved until they gain: each is a sweep over the rows.
    """
    rates = near if near.all() and near.sum() < _LARGEST_SUM else np.array([0.1, 0.1])
    value, slopes, bends = _two_slopes(source, right, signs, weights, rates)
    for _ in range(_MOST_RATE_STEPS):
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
    return -basis @ np.linalg.solve(curved, basis.T @ slopes)


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


# ---------------------------------------------------------------------------------------------------------------------
# How often answers are given whatever the distance: by everyone alike, by side, or by each annotator.
#
# An answer is drawn from all K levels alike with probability rho; the flip rate rho (K - 1) / K is the share of
# answers that are wrong for this reason. Of close/far labels and comparisons it is rho / 2.


# The prior of the share of random answers of an annotator: a Beta distribution around that of the typical one, worth
# so many judgements, mixed with a uniform one so that it does not pull those who answer at random.  Both are relative
# to the mode: a density is highest if nobody answers at random, and the shares of all would be too low.
_STRENGTH = 20.0
_UNIFORM = 0.01  # the share of the uniform prior
_TYPICAL = np.linspace(0.0, 0.6, 31)

# Shares to begin at, denser where most annotators are, and the Newton steps from the best of them.
_GRID = _LARGEST_RANDOM_SHARE * np.linspace(0.0, 1.0, 21) ** 1.5
_MOST_SHARE_STEPS = 6  # of Newton, which converge quickly from so fine a grid
_DIFFERENCE = 1e-4  # of finite differences
_LEAST_PROBABILITY = float(np.finfo(np.float64).tiny)  # a number of Python: other libraries take none of NumPy


class FlipAnswers(NamedTuple):
    """Judgements with the probability of each if it is not flipped; arrays are handles of the source."""

    source: RowSource
    right: Array
    codes: Array
    weights: Array
    groups: Array | None
    n_levels: int
    n_groups: int


def _chances(n_levels: int) -> FloatArray:
    """The probability of each code in an answer at random."""
    return np.append(np.full(n_levels, 1.0 / n_levels), [0.5, 0.5])


@dataclass(frozen=True, eq=False)
class FlipRates(ABC):
    """Flip rates of judgements, the last of them that of the typical answer."""

    rates: FloatArray

    def with_rates(self, rates: FloatArray) -> Self:
        return replace(self, rates=rates)

    @abstractmethod
    def best(self, answers: FlipAnswers) -> FlipRates:
        """The likeliest rates of these answers."""

    def flip_rate(self, n_levels: int) -> FlipRate:
        """The share of answers that are wrong because they are at random."""
        return wrong_share(float(self.rates[-1]), n_levels)

    @abstractmethod
    def kept(self, n_groups: int) -> FloatArray:
        """The share of answers of each annotator, and of none, that are not at random."""

    def floors(self, n_levels: int, n_groups: int) -> FloatArray:
        """What answers at random add to the probability of each code, by annotator."""
        return np.outer(1.0 - self.kept(n_groups), _chances(n_levels))

    def on(
        self, right: Array, codes: Array, groups: Sequence[Array], n_levels: int, n_groups: int
    ) -> tuple[Array, Array]:
        """What flips make of the probability of each judgement, which becomes the first + the second times it."""
        xp, index = array_namespace(right), whole_numbers(codes)
        who = whole_numbers(groups[0]) if groups else 0 * index + n_groups
        floors = self.floors(n_levels, n_groups)
        floor = xp.take(like(right, floors.reshape(-1)), who * floors.shape[1] + index)
        return floor + LEAST_FLOOR, xp.take(like(right, self.kept(n_groups)), who)

    def penalty(self) -> float:
        """The penalty on the rates that the risk includes."""
        return 0.0


class SharedRate(FlipRates):
    """A share of answers is at random, the same for all judgements."""

    @classmethod
    def of(cls, flip_rate: float, n_levels: int) -> SharedRate:
        return cls(np.array([flip_rate * n_levels / (n_levels - 1) if n_levels > 1 else 2.0 * flip_rate]))

    def best(self, answers: FlipAnswers) -> SharedRate:
        chances, arrays = _chances(answers.n_levels), (answers.right, answers.weights)
        # All codes of two levels have the same chance, which saves a look at each.
        slopes = partial(_slopes, chances[:1] if answers.n_levels == 2 else chances)
        arrays += () if answers.n_levels == 2 else (answers.codes,)
        near = float(self.rates[0])
        return self.with_rates(np.array([best_rate(answers.source, slopes, arrays, near, _LARGEST_RANDOM_SHARE)]))

    def kept(self, n_groups: int) -> FloatArray:
        return np.full(n_groups + 1, 1.0 - self.rates[0])


class SideRates(FlipRates):
    """Close pairs that are called far, and far pairs that are called close, have a rate each."""

    def best(self, answers: FlipAnswers) -> SideRates:
        signs = answers.source.map(_signs, answers.codes, answers.weights)
        return self.with_rates(best_two_rates(answers.source, answers.right, signs, answers.weights, self.rates))

    def kept(self, n_groups: int) -> FloatArray:
        return np.full(n_groups + 1, 1.0 - self.rates.sum())

    def floors(self, n_levels: int, n_groups: int) -> FloatArray:
        of_each = self.rates.mean()  # answer to a comparison, which has no sides
        return np.tile([*self.rates[::-1], of_each, of_each], (n_groups + 1, 1))

    def flip_rate(self, n_levels: int) -> FlipRate:
        return float(self.rates[0]), float(self.rates[1])


@dataclass(frozen=True, eq=False)
class RateOfEach(FlipRates):
    """Each annotator has a share of answers at random, shrunk towards that of the typical one.

    The rates are the shares of all annotators, that of judgements by none, and the typical one.  `total_weight` is the
    number of judgements.
    """

    total_weight: float

    @classmethod
    def none(cls, n_groups: int, total_weight: float) -> RateOfEach:
        return cls(np.zeros(n_groups + 2), total_weight)

    @property
    def shares(self) -> FloatArray:
        """Those of all annotators and, last, of judgements by none."""
        return self.rates[:-1]

    @property
    def typical(self) -> float:
        return float(self.rates[-1])

    def best(self, answers: FlipAnswers) -> RateOfEach:
        likelihood = _LogLikelihood(answers, self.total_weight)
        has_rows = likelihood.has_rows
        grid = np.array([likelihood(np.full(len(self.shares), share)) for share in _GRID])
        profile = [(grid + _log_prior(_GRID, each)[:, None]).max(axis=0)[has_rows].sum() for each in _TYPICAL]
        shares = _best_shares(likelihood, grid, float(_TYPICAL[int(np.argmax(profile))]))
        typical = _best_typical(shares[has_rows])
        found = self.with_rates(np.append(np.where(has_rows, shares, typical), typical))
        return max(self, found, key=lambda each: float(np.sum((likelihood(each.shares) + each._log_priors)[has_rows])))

    @property
    def _log_priors(self) -> FloatArray:
        return _log_prior(self.shares, self.typical)

    def kept(self, n_groups: int) -> FloatArray:
        return 1.0 - self.shares

    def penalty(self) -> float:
        return -float(np.sum(self._log_priors)) / self.total_weight


def wrong_share(share: float, n_levels: int) -> float:
    """The share of answers that are wrong because they are at random."""
    return share * (1.0 - 1.0 / n_levels) if n_levels > 1 else 0.5 * share


class _LogLikelihood:
    """The log-likelihood of each annotator's answers as a function of everyone's share of random ones."""

    def __init__(self, answers: FlipAnswers, total_weight: float) -> None:
        gather = answers.source.gather
        self._groups = whole_numbers(gather(answers.groups))
        self._right = gather(answers.right)
        self._gain = _chances(answers.n_levels)[whole_numbers(gather(answers.codes))] - self._right
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
        return np.maximum(self._right + shares[self._groups] * self._gain, _LEAST_PROBABILITY)


def _best_shares(likelihood: _LogLikelihood, grid: FloatArray, typical: float) -> FloatArray:
    """Maximise the posterior of each share: the best on the grid of likelihoods, and Newton steps around it."""
    best = (grid + _log_prior(_GRID, typical)[:, None]).argmax(axis=0)
    low, high = _GRID[np.maximum(best - 1, 0)], _GRID[np.minimum(best + 1, len(_GRID) - 1)]
    begun = shares = _GRID[best]
    for _ in range(_MOST_SHARE_STEPS):
        slope, bend = likelihood.derivatives(shares)
        below, at, above = (
            _log_prior(np.clip(shares + h, 0.0, 1.0), typical) for h in (-_DIFFERENCE, 0.0, _DIFFERENCE)
        )
        slope, bend = slope + (above - below) / (2.0 * _DIFFERENCE), bend + (above - 2.0 * at + below) / _DIFFERENCE**2
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
    from scipy.optimize import minimize_scalar  # metrics are loaded and applied without SciPy

    between = float(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-9}).x)
    return min(float(_TYPICAL[best]), between, key=loss)


def _log_prior(shares: FloatArray, typical: float) -> FloatArray:
    above, below = _STRENGTH * typical, _STRENGTH * (1.0 - typical)
    from scipy.special import xlog1py, xlogy

    at_mode = xlogy(above, typical) + xlog1py(below, -typical)
    log_beta = xlogy(above, shares) + xlog1py(below, -shares) - at_mode
    found: FloatArray = np.log((1.0 - _UNIFORM) * np.exp(log_beta) + _UNIFORM)
    return found


def _signs(codes: Array, weights: Array) -> Array:
    """-1 for close, +1 for far, and 0 for comparisons."""
    return array_namespace(weights).where(codes < 2, 2.0 * codes - 1.0 + 0.0 * weights, 0.0 * weights)


def _slopes(chances: FloatArray, shares: tuple[float, ...], right: Array, weights: Array, *codes: Array) -> FloatArray:
    """The sums over some rows of the first and second derivative of log P at each share; without codes there is one."""
    xp, chance = array_namespace(right), like(right, chances)
    gain = (xp.take(chance, whole_numbers(codes[0])) if codes else chance) - right
    found = []
    for share in shares:
        ratio = gain / xp.maximum(right + share * gain, _LEAST_PROBABILITY + 0.0 * right)
        with np.errstate(over="ignore", invalid="ignore"):  # the curvature at a share of 0, which is not used
            found.append([float(xp.sum(weights * ratio)), -float(xp.sum(weights * ratio * ratio))])
    return np.array(found)


# ---------------------------------------------------------------------------------------------------------------------
# Levels, annotators and comparisons of which some answers are given whatever the distance.


class FlippedGraded(Flipped, Graded):
    """P = floor + kept P(level) of judgements of which some answers are at random.

    With two levels its curvature is the Fisher information; with more it is that of each judgement, times the square
    of its probability of not being at random.  Neither is ever negative.
    """

    def __init__(self, graded: Graded, flips: FlipRates) -> None:
        vars(self).update(vars(graded))
        self.flips = flips

    def with_arrays(self, *arrays: Array) -> FlippedGraded:
        return FlippedGraded(super().with_arrays(*arrays), self.flips)

    def with_flips(self, flips: FlipRates) -> FlippedGraded:
        return FlippedGraded(super().with_arrays(*self.row_arrays), flips)

    def answers(self, source: RowSource, right: Array) -> FlipAnswers:
        return FlipAnswers(source, right, self.codes, self.weights, self.groups, self.n_levels, self.n_groups)

    def softened(self, source: RowSource, squared: Array, thresholds: FloatArray) -> Graded:
        """The likelihood in which each judgement counts with its present probability of not being at random."""

        def sincere(right: Array, weights: Array, codes: Array, *groups: Array) -> Array:
            floor, kept = self.flips.on(right, codes, groups, self.n_levels, self.n_groups)
            return weights * kept * right / (floor + kept * right)

        rest = () if self.groups is None else (self.groups,)
        held = source.map(sincere, self.right(source, squared, thresholds), self.weights, self.codes, *rest)
        return super().with_arrays(self.codes, held, *rest)

    def _terms(self, squared: Array, *arrays: Array, thresholds: FloatArray, order: int) -> Terms:
        xp = array_namespace(squared)
        codes, _, *groups = arrays
        found = interval_terms(self.noise, *self.margins(squared, *arrays, thresholds=thresholds), order)
        right = xp.exp(-found.loss)
        floor, kept = self.flips.on(right, codes, groups, self.n_levels, self.n_groups)
        probability = floor + kept * right
        sincere = kept * right / probability
        low, up, ends = sincere * found.low, sincere * found.up, ()
        if order > 1:
            # What is left to the other answer, of two, from the loss, since its probability may be close to one.
            other = xp.maximum(1.0 - kept - floor, LEAST_FLOOR + 0.0 * floor) - kept * xp.expm1(-found.loss)
            odds, has_two = probability / other, whole_numbers(codes) >= (0 if self.n_levels == 2 else self.n_levels)
            pairs = ((found.low_low, low * low), (found.low_up, 0.0 * low), (found.up_up, up * up))
            ends = tuple(xp.where(has_two, odds * own, sincere**2 * each) for each, own in pairs)
        return self._summed(arrays, -xp.log(probability), low, up, ends, -np.inf)

    def penalty(self, thresholds: FloatArray) -> float:
        return super().penalty(thresholds) + self.flips.penalty()


class CentredFlips(Flipped, Centred):
    """A likelihood with flips around a centre."""

    def __init__(self, inner: Any, lengths: Array, price: float = 0.0) -> None:
        super().__init__(inner, lengths, price)
        self.flips, self.n_levels, self.has_several_starts = inner.flips, inner.n_levels, inner.has_several_starts

    def with_flips(self, flips: FlipRates) -> CentredFlips:
        return CentredFlips(self.inner.with_flips(flips), self.lengths, self.price)

    def answers(self, source: RowSource, right: Array) -> FlipAnswers:
        found: FlipAnswers = self.inner.answers(source, right)
        return found

    def softened(self, source: RowSource, squared: Array, thresholds: FloatArray) -> Centred:
        inner = self.inner.softened(source, self._whole(squared, thresholds), thresholds[:-1])
        return Centred(inner, self.lengths, self.price)


# ---------------------------------------------------------------------------------------------------------------------
# The alternating solver for flips: steps in (M, tau) and estimates of the flip rate in turn; not convex.


# A round that improves the mean log-likelihood by less than this ends the search.
LEAST_GAIN = 1e-7

# The largest number of entries of M, and of thresholds, for which a dense Hessian is formed.
_MOST_DENSE_ENTRIES = 600  # of 34 columns
_MOST_DENSE_THRESHOLDS = 2000  # a Hessian of 32 MB

# L-BFGS steps between two estimates of the rate, if the rank limit is reached or a dense Hessian is too large.
_STEPS_PER_ROUND = 20


@dataclass(frozen=True)
class FlipState:
    """The state of the search: the likelihood with its flip rate, and the squared distances.

    `inner` is the state of the solver that takes the steps.  `is_settled` is true if the labels
    determine the scale of M and tau, as far as is known; `has_begun` is true after the first step.
    """

    likelihood: Flipped
    squared: Array
    inner: State
    is_settled: bool = True
    has_begun: bool = True


class Alternating(Solver):
    """Alternate a step in M and tau with the maximum-likelihood flip rate, until a round brings no improvement.

    `likelihood` has the initial flip rate, which is optimised if `estimate`; steps keep a limited
    rank.  The search also ends when the scale of M and tau is no longer determined.
    """

    def __init__(
        self, problem: Problem, rng: np.random.Generator, likelihood: Flipped, *, estimate: bool, rank: int | None
    ) -> None:
        super().__init__(problem, LEAST_GAIN, rng)
        self.likelihood = likelihood
        self.estimate = estimate
        self.rank = rank if rank is not None and rank < problem.cone.size else None
        n_entries, n_thresholds = packed_size(problem.cone.size), len(problem.cone.least)
        self.n_unknowns = n_entries + n_thresholds
        self.is_dense = n_entries <= _MOST_DENSE_ENTRIES and n_thresholds <= _MOST_DENSE_THRESHOLDS

    def start(self) -> State:
        matrix, thresholds = moment_start(self.problem)
        return self.resume(State.at(matrix, *thresholds))

    def resume(self, state: State) -> State:
        squared = self.problem.objective.quadratic_forms(state.matrix)
        return self._state(FlipState(self.likelihood, squared, state, has_begun=False))

    def step(self, state: State) -> State:
        last: FlipState = state.memory
        inner = self._advance(self._flipped(last.likelihood), last.inner)
        squared = self.problem.objective.quadratic_forms(inner.matrix)
        source, likelihood = self.problem.objective.source, last.likelihood
        if self.estimate:
            likelihood = likelihood.with_best_rates(source, squared, inner.thresholds)
        is_settled = self._is_settled(likelihood, squared, inner)
        new = self._state(FlipState(likelihood, squared, inner, is_settled))
        gains = not last.has_begun or state.objective - new.objective >= self.tol
        return replace(new, stuck=not (gains and is_settled and _has_flips(likelihood)))

    def _state(self, climb: FlipState) -> State:
        flipped = self._flipped(climb.likelihood)
        evaluation = flipped.objective.evaluate(climb.squared, climb.inner.thresholds)
        value = flipped.value(evaluation, climb.inner.matrix)
        return replace(climb.inner, objective=value, bound=0.0, memory=climb, rates=climb.likelihood.rates)

    def _is_settled(self, likelihood: Flipped, squared: Array, state: State) -> bool:
        """Whether the labels determine the scale of M and tau.

        If all labels except the flipped ones are right, the scale grows without bound.  It is
        determined by the pairs near the threshold; once there are hardly more of them than
        unknowns, they are overfitted.  A penalty determines it in any case.
        """
        objective = self.problem.objective
        right = likelihood.right(objective.source, squared, state.thresholds)
        share = objective.source.total(objective.source.map(_undecided, right, likelihood.weights))
        return self.problem.alpha > 0.0 or objective.n_judgements * share >= 2.0 * self.n_unknowns

    def _flipped(self, likelihood: Flipped) -> Problem:
        return replace(self.problem, objective=self.problem.objective.with_likelihood(likelihood))

    def _advance(self, problem: Problem, state: State) -> State:
        if self.is_dense and (self.rank is None or _rank(state) < self.rank):
            newton = Newton(problem, self.tol, self.rng)
            new = newton.advance(newton.renew(state))
            if self.rank is None or _rank(new) <= self.rank:
                return new
        factor = Factor(problem, 0.0, self.rng, self.rank, proves=False)
        state = factor.resume(state)
        for _ in range(_STEPS_PER_ROUND):
            state = factor.step(state)
            if state.stuck:
                break
        return state


def _undecided(right: Array, weights: Array) -> Array:
    """The weighted uncertainty of judgements without flips: one at even odds, zero where they are certain."""
    return 4.0 * weights * right * (1.0 - right)


def _has_flips(likelihood: Flipped) -> bool:
    return bool(np.any(likelihood.rates > 0.0))


def _rank(state: State) -> int:
    return int(psd_factor(state.matrix).shape[1])


_MOST_FLIP_ROUNDS = 100  # of a step and new rates, until a round gains less than `LEAST_GAIN`

# Multiples of the metric without flips that the search may start from.
_SCALES = (1.0, 1.5, 2.5, 4.0, 8.0)
_RAY_ROUNDS = 2  # of rates and thresholds in turn, which is enough to rank the multiples
_RAY_TOL = 1e-6  # slopes of the thresholds meanwhile
_KNOWN_RATES_TOL = 1e-7  # of the climb at known rates, before the last step


def solve_with_flips(
    objective: Objective,
    flipped: Flipped,
    options: Options,
    *,
    estimate: bool,
    rng: np.random.Generator,
    watch: Watch,
    start: State | None = None,
) -> tuple[Solution, Flipped]:
    """Maximise the likelihood with flips over M and thresholds, and over the flip rates if `estimate`.

    The objective is that without flips, of the same judgements.  If rates that are estimated are given beside a
    start, both are close to the maximum.  Returns the solution, and the likelihood with its flip rates.
    """
    if start is not None and not options.proves and options.solver == "newton":
        if estimate:
            squared = objective.quadratic_forms(start.matrix)
            flipped = flipped.with_best_rates(objective.source, squared, start.thresholds)
        return _climb(start, objective, flipped, options, rng, watch, estimate=estimate, certifies=False)
    if start is not None and estimate and _has_flips(flipped):
        return _climb(start, objective, flipped, options, rng, watch, estimate=True)
    if not options.proves and not estimate:
        begun = solve(objective, options, rng=rng, watch=watch).state if start is None else start
        climbing, by_factor = objective.with_likelihood(flipped), replace(options, solver="factor")
        return solve(climbing, by_factor, rng=rng, watch=watch, start=begun), flipped
    if start is not None and not estimate:
        return _climb(start, objective, flipped, options, rng, watch, alternates=False)
    plain = solve(objective, options, rng=rng, watch=watch, start=start)
    begun = plain.state
    if estimate and flipped.has_several_starts:
        begun, flipped = _best_on_ray(options.problem(objective), flipped, plain)
    elif estimate:
        flipped = flipped.with_best_rates(objective.source, plain.squared, plain.thresholds)
    if not _has_flips(flipped) or plain.certificate.outcome is Outcome.INTERRUPTED or supervisor().timed_out:
        return plain, flipped
    alternates = estimate or options.alpha == 0.0
    return _climb(begun, objective, flipped, options, rng, watch, estimate=estimate, alternates=alternates, plain=plain)


def _climb(
    begun: State,
    objective: Objective,
    flipped: Flipped,
    options: Options,
    rng: np.random.Generator,
    watch: Watch,
    *,
    estimate: bool = False,
    alternates: bool = True,
    certifies: bool = True,
    plain: Solution | None = None,
) -> tuple[Solution, Flipped]:
    """Maximise from a point, after the solution without flips if there is one, and prove the last convex step.

    At known rates, and from a point close to the maximum, a single solver can maximise: then nothing `alternates`.
    If it `certifies` nothing, that is all.
    """
    problem, source = options.problem(objective), objective.source
    recorder = Recorder(objective.passes, watch if alternates else _watch_at(flipped, watch))
    if alternates:
        climber = Alternating(problem, rng, flipped, estimate=estimate, rank=options.rank)
        begin = partial(climber.resume, with_free_corner(problem.cone, begun))
        climb = climber.run(begin, RunLimits(0.0, _MOST_FLIP_ROUNDS, recorder))
        top: FlipState = climb.state.memory
    else:
        mixture, tol = objective.with_likelihood(flipped), min(options.tol, _KNOWN_RATES_TOL)
        climb = run_roughly(mixture, options, begun, tol=tol, n_steps=_MOST_FLIP_ROUNDS, watch=recorder)
        top = FlipState(flipped, objective.quadratic_forms(climb.state.matrix), climb.state)
    thresholds = climb.state.thresholds
    near = State.at(climb.state.matrix, *thresholds)
    if not certifies:
        there, mixture = replace(options, max_iter=0), objective.with_likelihood(top.likelihood)
        return solve(mixture, there, rng=rng, watch=watch, start=near), top.likelihood
    soft = objective.with_likelihood(top.likelihood.softened(source, top.squared, thresholds))
    brief = replace(options, max_iter=1) if climb.ending.is_early else options
    last = solve(soft, brief, rng=rng, watch=_watch_at(top.likelihood, watch), start=near, stay_near=True)
    convex = last.certificate
    if climb.ending is Ending.INTERRUPTED:
        convex = _interrupted(convex)
    if estimate:
        flipped = top.likelihood.with_best_rates(source, last.squared, last.thresholds)
    evaluation = objective.with_likelihood(flipped).evaluate(last.squared, last.thresholds)
    loss = evaluation.loss - flipped.penalty(last.thresholds)
    certificate = _certificate(convex, loss, flipped.described, top.is_settled)
    # Bounds proven along the way are for other problems than the last.
    before, n_before = ((), 0) if plain is None else (plain.history, plain.n_iter)
    steps = [replace(step, gap=np.inf) for step in (*before, *recorder.steps)]
    end = FitStep(certificate.n_passes, loss + convex.objective - convex.loss, certificate.gap)
    n_iter = n_before + climb.n_iter + last.n_iter
    return replace(last, certificate=certificate, n_iter=n_iter, history=(*steps, end)), flipped


def _watch_at(flipped: Flipped, watch: Watch) -> Watch:
    """A watch of states that have the rates of this likelihood."""
    return lambda iteration, state: watch(iteration, replace(state, rates=flipped.rates))


def _best_on_ray(problem: Problem, flipped: Flipped, plain: Solution) -> tuple[State, Flipped]:
    """The likeliest multiple of the solution without flips, with its best thresholds and flip rates: no pass.

    Without flips, flipped labels make M smaller, and there the likeliest rates may be zero although others are better
    for a larger M.
    """
    source, least = problem.objective.source, problem.cone.least
    found, lowest = (plain.state, flipped), np.inf
    for scale in _SCALES:
        squared, thresholds, likelihood = scale * plain.squared, scale * plain.thresholds, flipped
        for _ in range(_RAY_ROUNDS):
            likelihood = likelihood.with_best_rates(source, squared, thresholds)
            thresholds, evaluation = likelihood.best_thresholds(source, squared, thresholds, least, _RAY_TOL)
        matrix = scale * plain.state.matrix
        value = replace(problem, objective=problem.objective.with_likelihood(likelihood)).value(evaluation, matrix)
        if value < lowest:
            found, lowest = (State.at(matrix, *thresholds), likelihood), value
    return found


def _interrupted(certificate: Certificate) -> Certificate:
    """The certificate after an interrupt, before the maximisation was complete."""
    outcome, is_proven = Outcome.INTERRUPTED, certificate.lower_bound > 0.0
    advice = advise_outcome(outcome, gap=certificate.gap, is_proven=is_proven)
    return replace(certificate, converged=False, outcome=outcome, advice=advice)


def _certificate(convex: Certificate, loss: float, rates: str, is_settled: bool) -> Certificate:
    """The certificate of the last step, with the loss of the likelihood with flips."""
    advice = (
        convex.advice + f" The proof holds each label's probability of being flipped fixed at its estimate; {rates}."
    )
    if not is_settled:
        advice += (
            " Nearly all other labels are right, so M / tau is determined, but not the scale of M and tau, and thus "
            "how sharply probabilities change at the threshold."
        )
    return replace(convex, loss=loss, advice=advice, globally_optimal=False)
