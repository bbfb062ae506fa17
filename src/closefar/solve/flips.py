"""Labels that are flipped regardless of the distance: P(far) = a + (1 - a - b) Phi(margin).

A close pair is called far with probability a, and a far pair is called close with probability b; a
single flip rate q is a = b = q.  The negative log-likelihood is not convex, so it is minimised from
the convex optimum without flips, with the Fisher information as the Hessian, and with the rates
optimised along the way.  The last step is one of expectation-maximisation: with each label's
probability of being flipped held fixed, the problem is convex again, and the certificate is that of
this step.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import TINY, Array, FloatArray, like, sums_by, whole_numbers
from closefar.noise import FlipRate
from closefar.packed import packed_size
from closefar.rows import RowSource
from closefar.solve.certificate import Certificate, Outcome, advise_outcome
from closefar.solve.likelihood import Answers, FlipRates, Likelihood, RowLoss
from closefar.solve.loop import Ending, FitStep, Recorder, Solver, SolverSettings, State, Watch
from closefar.solve.newton import Newton
from closefar.solve.problem import Problem, psd_factor, supervisor
from closefar.solve.solution import Solution, solve, solve_roughly, with_free_corner

_LARGEST_RANDOM_SHARE = _LARGEST_SUM = 0.998  # of answers; if all were drawn at random, they would say nothing
_RATE_TOL = 1e-13  # of the last Newton step
_MOST_RATE_STEPS = 100  # of which Newton usually takes ten
_LEAST_FLOOR = 1e-15  # of a label whose rate is zero, and whose probability may underflow far from the optimum
_SLOPE_TOL = 1e-12  # a gain of the mean log-likelihood, or a length of a step, that rounding hides


# ---------------------------------------------------------------------------------------------------------------------
# The likeliest rates: of everyone, of close and of far pairs, or of each annotator.


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


class Rates(FlipRates):
    """Flip rates that can be estimated."""

    @abstractmethod
    def best(self, likelihood: Likelihood, rows: RowSource, right: Array) -> FlipRates:
        """The likeliest rates of judgements, each of which has this probability if it is not flipped."""

    @property
    def whose(self) -> str:
        """Whose rate it is, in words."""
        return ""


class SharedRate(Rates):
    """A share of answers is at random, the same for all judgements."""

    @classmethod
    def of(cls, flip_rate: float, n_levels: int) -> SharedRate:
        """The share of a flip rate; comparisons alone have no levels."""
        return cls(np.array([flip_rate * n_levels / (n_levels - 1) if n_levels > 1 else 2.0 * flip_rate]))

    def best(self, likelihood: Likelihood, rows: RowSource, right: Array) -> Self:
        return self.with_rates(best_rates(self.drawn(likelihood.answers), likelihood, rows, right, self.rates))

    def drawn(self, answers: Answers) -> FloatArray:
        """The probability of each code among the answers that are at random, a line for each rate."""
        return answers.chances[None, :]

    def kept(self, n_groups: int) -> FloatArray:
        return np.full(n_groups + 1, 1.0 - self.rates.sum())

    def floors(self, answers: Answers, n_groups: int) -> FloatArray:
        return np.tile(self.rates @ self.drawn(answers), (n_groups + 1, 1))

    def flip_rate(self, answers: Answers) -> FlipRate:
        return wrong_share(float(self.rates[0]), answers)


class SideRates(SharedRate):
    """Close pairs that are called far, and far pairs that are called close, have a rate each."""

    def drawn(self, answers: Answers) -> FloatArray:
        of_comparisons = np.full((2, answers.n_answers - 2), 0.5)  # which have no sides
        return np.hstack([[[0.0, 1.0], [1.0, 0.0]], of_comparisons])

    def flip_rate(self, answers: Answers) -> FlipRate:
        return float(self.rates[0]), float(self.rates[1])


@dataclass(frozen=True, eq=False)
class RateOfEach(Rates):
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

    @property
    def whose(self) -> str:
        return " of the typical annotator"

    def best(self, likelihood: Likelihood, rows: RowSource, right: Array) -> RateOfEach:
        of_each = _LogLikelihood(likelihood, rows, right, self.total_weight)
        has_rows = of_each.has_rows
        grid = np.array([of_each(np.full(len(self.shares), share)) for share in _GRID])
        profile = [(grid + _log_prior(_GRID, each)[:, None]).max(axis=0)[has_rows].sum() for each in _TYPICAL]
        shares = _best_shares(of_each, grid, float(_TYPICAL[int(np.argmax(profile))]))
        typical = _best_typical(shares[has_rows])
        found = self.with_rates(np.append(np.where(has_rows, shares, typical), typical))
        return max(self, found, key=lambda each: float(np.sum((of_each(each.shares) + each._log_priors)[has_rows])))

    @property
    def _log_priors(self) -> FloatArray:
        return _log_prior(self.shares, self.typical)

    def kept(self, n_groups: int) -> FloatArray:
        return 1.0 - self.shares

    def flip_rate(self, answers: Answers) -> FlipRate:
        return wrong_share(self.typical, answers)

    def penalty(self) -> float:
        return -float(np.sum(self._log_priors)) / self.total_weight


def wrong_share(share: float, answers: Answers) -> float:
    """The share of answers that are wrong because they are at random."""
    return share * (1.0 - float(answers.chances[0]))


class _LogLikelihood:
    """The log-likelihood of each annotator's answers as a function of everyone's share of random ones."""

    def __init__(self, likelihood: Likelihood, rows: RowSource, right: Array, total_weight: float) -> None:
        self._groups = whole_numbers(rows.gather(likelihood.groups))
        self._right = rows.gather(right)
        self._gain = likelihood.answers.chances[whole_numbers(rows.gather(likelihood.codes))] - self._right
        self._counts = total_weight * rows.gather(likelihood.weights)
        self._n = likelihood.n_groups + 1
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


def best_rates(
    drawn: FloatArray, likelihood: Likelihood, rows: RowSource, right: Array, near: FloatArray
) -> FloatArray:
    """Maximise the mean log P(answer) = log((1 - sum r) right + r'drawn) over rates r >= 0: concave in them.

    Newton steps within the sum that is possible, halved until they gain: each is a sweep over the rows.
    """
    arrays = right, likelihood.weights, likelihood.codes

    def at(rates: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        sums: FloatArray = np.sum(rows.parts(partial(_sums_at, drawn, rates), *arrays), axis=0)
        k = len(rates)
        return float(sums[0]), sums[1 : k + 1], -sums[k + 1 :].reshape(k, k)

    rates = near if near.all() and near.sum() < _LARGEST_SUM else np.full(len(near), 0.1)
    value, slopes, bends = at(rates)
    for _ in range(_MOST_RATE_STEPS):
        step, length = _rate_step(rates, slopes, bends), 1.0
        if float(slopes @ step) <= _SLOPE_TOL:
            return _in_simplex(rates + step)
        while length > _SLOPE_TOL:
            moved = _in_simplex(rates + length * step)
            there = at(moved)
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
    """The Newton step in the rates that are not held at zero, or of two along the side where their sum is largest."""
    free = (rates > 0.0) | (slopes > 0.0)
    basis = np.eye(len(rates))[:, free]
    if free.all() and rates.sum() >= _LARGEST_SUM and slopes.sum() > 0.0:
        basis = np.array([[1.0], [-1.0]])[: len(rates), : len(rates) - 1]
    curved = basis.T @ bends @ basis - 1e-12 * (1.0 - np.trace(bends)) * np.eye(basis.shape[1])
    return -basis @ np.linalg.solve(curved, basis.T @ slopes)


def _in_simplex(rates: FloatArray) -> FloatArray:
    above = np.maximum(rates, 0.0)
    return above * min(1.0, _LARGEST_SUM / max(float(above.sum()), TINY))


def _sums_at(drawn: FloatArray, rates: FloatArray, right: Array, weights: Array, codes: Array) -> FloatArray:
    """The sum of log P over some rows, with its first derivatives in the rates, and products of those of each row."""
    xp, codes = array_namespace(right), whole_numbers(codes)
    table = like(right, np.vstack([drawn, rates @ drawn + _LEAST_FLOOR]))
    *of_rates, floor = (xp.take(table[line, :], codes) for line in range(len(drawn) + 1))
    probability = floor + (1.0 - float(rates.sum())) * right
    slopes = [(each - right) / probability for each in of_rates]
    terms = [xp.log(probability), *slopes, *(one * other for one in slopes for other in slopes)]
    return np.array([float(xp.sum(weights * term)) for term in terms])


# ---------------------------------------------------------------------------------------------------------------------
# The alternating solver for flips: steps in (M, tau) and estimates of the flip rate in turn; not convex.


# A round that improves the mean log-likelihood by less than this ends the search.
LEAST_GAIN = 1e-7

# The largest number of entries of M, and of thresholds, for which a dense Hessian is formed.
_MOST_DENSE_ENTRIES = 600  # of 34 columns
_MOST_DENSE_THRESHOLDS = 2000  # a Hessian of 32 MB

# L-BFGS steps between two estimates of the rate, if the rank limit is reached or a dense Hessian is too large: so few
# that the search ends before M has grown much where the labels do not determine its scale.
_STEPS_PER_ROUND = 5


@dataclass(frozen=True)
class FlipState:
    """The state of the search: the likelihood with its flip rate, and the squared distances.

    `inner` is the state of the solver that takes the steps.  `is_settled` is true if the labels
    determine the scale of M and tau, as far as is known; `has_begun` is true after the first step.
    """

    likelihood: Likelihood
    squared: Array
    inner: State
    is_settled: bool = True
    has_begun: bool = True


class Alternating(Solver):
    """Alternate a step in M and tau with the maximum-likelihood flip rate, until a round brings no improvement.

    The likelihood of the problem has the initial flip rate, which is optimised if `estimate`; steps keep a limited
    rank.  The search also ends when the scale of M and tau is no longer determined.
    """

    def __init__(self, problem: Problem, rng: np.random.Generator, *, estimate: bool, rank: int | None) -> None:
        super().__init__(problem, LEAST_GAIN, rng)
        self.estimate = estimate
        self.rank = rank if rank is not None and rank < problem.cone.size else None
        n_entries, n_thresholds = packed_size(problem.cone.size), len(problem.cone.least)
        self.n_unknowns = n_entries + n_thresholds
        self.is_dense = n_entries <= _MOST_DENSE_ENTRIES and n_thresholds <= _MOST_DENSE_THRESHOLDS

    def start(self) -> State:
        raise NotImplementedError("flips are searched for from a solution without them.")

    def resume(self, state: State) -> State:
        squared = self.problem.forms(state.matrix)
        return self._state(FlipState(self.problem.likelihood, squared, state, has_begun=False))

    def step(self, state: State) -> State:
        last: FlipState = state.memory
        inner = self._advance(self.problem.with_likelihood(last.likelihood), last.inner)
        squared, likelihood = self.problem.forms(inner.matrix), last.likelihood
        if self.estimate:
            likelihood = with_best_rates(likelihood, self.problem.rows, squared, inner.thresholds)
        is_settled = self._is_settled(likelihood, squared, inner)
        new = self._state(FlipState(likelihood, squared, inner, is_settled))
        gains = not last.has_begun or state.objective - new.objective >= self.tol
        return replace(new, stuck=not (gains and is_settled and _has_flips(likelihood)))

    def _state(self, climb: FlipState) -> State:
        flipped = self.problem.with_likelihood(climb.likelihood)
        value = flipped.value(flipped.evaluate(climb.squared, climb.inner.thresholds), climb.inner.matrix)
        return replace(climb.inner, objective=value, bound=0.0, memory=climb, rates=_rates(climb.likelihood))

    def _is_settled(self, likelihood: Likelihood, squared: Array, state: State) -> bool:
        """Whether the labels determine the scale of M and tau.

        If all labels except the flipped ones are right, the scale grows without bound.  It is
        determined by the pairs near the threshold; once there are hardly more of them than
        unknowns, they are overfitted.  A penalty determines it in any case.
        """
        rows = self.problem.rows
        right = likelihood.right(rows, squared, state.thresholds)
        share = rows.total(rows.map(_undecided, right, likelihood.weights))
        return self.problem.alpha > 0.0 or self.problem.n_judgements * share >= 2.0 * self.n_unknowns

    def _advance(self, problem: Problem, state: State) -> State:
        if self.is_dense and (self.rank is None or _rank(state) < self.rank):
            newton = Newton(problem, self.tol, self.rng)
            new = newton.advance(newton.renew(state))
            if self.rank is None or _rank(new) <= self.rank:
                return new
        run = solve_roughly(problem, self.rank or problem.cone.size, state, tol=self.tol, n_steps=_STEPS_PER_ROUND)
        return run.state


def with_best_rates(likelihood: Likelihood, rows: RowSource, squared: Array, thresholds: FloatArray) -> Likelihood:
    """The same with the likeliest flip rates at these squared distances."""
    rates = likelihood.flips
    assert isinstance(rates, Rates)
    return likelihood.with_flips(rates.best(likelihood, rows, likelihood.right(rows, squared, thresholds)))


def softened(likelihood: Likelihood, rows: RowSource, squared: Array, thresholds: FloatArray) -> Likelihood:
    """The convex likelihood in which each judgement counts with its present probability of not being at random."""
    plain = likelihood.with_flips(None)
    share = partial(_sincere, likelihood.loss(thresholds))
    weights = rows.map(share, squared, *likelihood.row_arrays)
    return replace(plain, weights=weights)


def described(likelihood: Likelihood) -> str:
    """A sentence on the rates without its full stop."""
    rates = likelihood.flips
    assert isinstance(rates, Rates)
    rate = rates.flip_rate(likelihood.answers)
    if isinstance(rate, tuple):
        return f"the flip rates are {rate[0]:.3g} (close pairs called far) and {rate[1]:.3g} (far called close)"
    return f"the flip rate{rates.whose} is {rate:.3g}"


def _sincere(loss: RowLoss, forms: Array, codes: Array, weights: Array, *rest: Array) -> Array:
    return weights * loss.sincere(forms, codes, rest)


def _undecided(right: Array, weights: Array) -> Array:
    """The weighted uncertainty of judgements without flips: one at even odds, zero where they are certain."""
    return 4.0 * weights * right * (1.0 - right)


def _rates(likelihood: Likelihood) -> FloatArray | None:
    return None if likelihood.flips is None else likelihood.flips.rates


def _has_flips(likelihood: Likelihood) -> bool:
    return likelihood.flips is not None and bool(np.any(likelihood.flips.rates > 0.0))


def _rank(state: State) -> int:
    return int(psd_factor(state.matrix).shape[1])


_MOST_FLIP_ROUNDS = 100  # of a step and new rates, until a round gains less than `LEAST_GAIN`

# Multiples of the metric without flips that the search may start from.
_SCALES = (1.0, 1.5, 2.5, 4.0, 8.0)
_RAY_ROUNDS = 2  # of rates and thresholds in turn, which is enough to rank the multiples
_RAY_TOL = 1e-6  # slopes of the thresholds meanwhile
_KNOWN_RATES_TOL = 1e-7  # of the climb at known rates, before the last step


def solve_with_flips(
    problem: Problem,
    settings: SolverSettings,
    *,
    estimate: bool,
    rng: np.random.Generator,
    watch: Watch,
    start: State | None = None,
) -> tuple[Solution, Likelihood]:
    """Maximise the likelihood with flips over M and thresholds, and over the flip rates if `estimate`.

    The problem is that with flips.  If rates that are estimated are given beside a start, both are close to the
    maximum.  Returns the solution, and the likelihood with its flip rates.
    """
    likelihood = problem.likelihood
    climb = partial(_climb, problem, settings=settings, rng=rng, watch=watch, estimate=estimate)
    without = problem.with_likelihood(likelihood.with_flips(None))
    if not settings.proves and (start is not None or not estimate):
        begun = solve(without, settings, rng=rng, watch=watch).state if start is None else start
        if estimate:
            likelihood = with_best_rates(likelihood, problem.rows, problem.forms(begun.matrix), begun.thresholds)
        return climb(begun, likelihood, certifies=False, alternates=estimate)
    if start is not None and estimate and _has_flips(likelihood):
        return climb(start, likelihood)
    if start is not None and not estimate:
        return climb(start, likelihood, alternates=False)
    plain = solve(without, settings, rng=rng, watch=watch, start=start)
    begun = plain.state
    if estimate:
        begun, likelihood = _best_on_ray(problem, plain)
    if not _has_flips(likelihood) or plain.certificate.outcome is Outcome.INTERRUPTED or supervisor().timed_out:
        return plain, likelihood
    return climb(begun, likelihood, alternates=estimate or problem.alpha == 0.0, plain=plain)


def _climb(
    problem: Problem,
    begun: State,
    likelihood: Likelihood,
    *,
    settings: SolverSettings,
    rng: np.random.Generator,
    watch: Watch,
    estimate: bool,
    alternates: bool = True,
    certifies: bool = True,
    plain: Solution | None = None,
) -> tuple[Solution, Likelihood]:
    """Maximise from a point, after the solution without flips if there is one, and prove the last convex step.

    At known rates, and from a point close to the maximum, a single solver can maximise: then nothing `alternates`.
    If it `certifies` nothing, that is all.
    """
    problem, rows = problem.with_likelihood(likelihood), problem.rows
    recorder = Recorder(problem.passes, watch if alternates else _watch_at(likelihood, watch))
    if alternates:
        climber = Alternating(problem, rng, estimate=estimate, rank=settings.rank)
        begin = partial(climber.resume, with_free_corner(problem.cone, begun))
        climb = climber.run(begin, tol=0.0, max_iter=_MOST_FLIP_ROUNDS, watch=recorder)
        top: FlipState = climb.state.memory
    else:
        tol = min(settings.tol, _KNOWN_RATES_TOL)
        climb = solve_roughly(problem, settings.rank, begun, tol=tol, n_steps=_MOST_FLIP_ROUNDS, watch=recorder)
        top = FlipState(likelihood, problem.forms(climb.state.matrix), climb.state)
    thresholds = climb.state.thresholds
    near = State.at(climb.state.matrix, *thresholds)
    if not certifies:
        there = replace(settings, max_iter=0)
        return solve(problem.with_likelihood(top.likelihood), there, rng=rng, watch=watch, start=near), top.likelihood
    soft = problem.with_likelihood(softened(top.likelihood, rows, top.squared, thresholds))
    brief = replace(settings, max_iter=1) if climb.ending.is_early else settings
    last = solve(soft, brief, rng=rng, watch=_watch_at(top.likelihood, watch), start=near, stay_near=True)
    convex = last.certificate
    if climb.ending is Ending.INTERRUPTED:
        convex = _interrupted(convex)
    likelihood = top.likelihood
    if estimate:
        likelihood = with_best_rates(likelihood, rows, last.squared, last.thresholds)
    evaluation = problem.with_likelihood(likelihood).evaluate(last.squared, last.thresholds)
    loss = evaluation.loss - likelihood.penalty(last.thresholds)
    certificate = _certificate(convex, loss, described(likelihood), top.is_settled)
    # Bounds proven along the way are for other problems than the last.
    before, n_before = ((), 0) if plain is None else (plain.history, plain.n_iter)
    steps = [replace(step, gap=np.inf) for step in (*before, *recorder.steps)]
    end = FitStep(certificate.n_passes, loss + convex.objective - convex.loss, certificate.gap)
    n_iter = n_before + climb.n_iter + last.n_iter
    return replace(last, certificate=certificate, n_iter=n_iter, history=(*steps, end)), likelihood


def _watch_at(likelihood: Likelihood, watch: Watch) -> Watch:
    """A watch of states that have the rates of this likelihood."""
    return lambda iteration, state: watch(iteration, replace(state, rates=_rates(likelihood)))


def _best_on_ray(problem: Problem, plain: Solution) -> tuple[State, Likelihood]:
    """The likeliest multiple of the solution without flips, with its best thresholds and flip rates: no pass.

    Without flips, flipped labels make M smaller, and there the likeliest rates may be zero although others are better
    for a larger M.
    """
    found, lowest = (plain.state, problem.likelihood), np.inf
    for scale in _SCALES:
        squared, thresholds, likelihood = scale * plain.squared, scale * plain.thresholds, problem.likelihood
        for _ in range(_RAY_ROUNDS):
            likelihood = with_best_rates(likelihood, problem.rows, squared, thresholds)
            there = problem.with_likelihood(likelihood)
            thresholds, evaluation = there.minimise_threshold(squared, thresholds, _RAY_TOL)
        matrix = scale * plain.state.matrix
        value = there.value(evaluation, matrix)
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
