"""The likelihood of every kind of judgement: against SciPy's distributions, finite differences and many digits."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

from closefar import packed
from closefar.noise import NOISES
from closefar.rows import Differences, Trait, source
from closefar.solve import (
    Answers,
    Likelihood,
    Problem,
    RateOfEach,
    SharedRate,
    SideRates,
    interval_terms,
    mixed_loss,
    mixed_terms,
)
from closefar.solve import likelihood as likelihoods
from closefar.solve.flips import _undecided, softened, with_best_rates

DISTRIBUTIONS = {
    "logistic": stats.logistic,
    "normal": stats.norm,
    "laplace": stats.laplace,
    "hypsecant": stats.hypsecant(scale=2.0 / np.pi),
}

# Kinds of judgement, in words: levels and comparisons, what moves their intervals, and flips.
KINDS = [
    "2 levels",
    "2 levels, annotators",
    "2 levels, centre",
    "2 levels, annotators, centre",
    "3 levels",
    "3 levels, annotators",
    "3 levels, centre",
    "5 levels, annotators, centre",
    "comparisons",
    "comparisons, centre",
    "2 levels, comparisons",
    "2 levels, comparisons, annotators, centre",
    "3 levels, comparisons",
    "5 levels, comparisons, annotators, centre",
]
FLIPPED_KINDS = [
    "2 levels, one rate",
    "2 levels, two rates",
    "2 levels, annotators, one rate",
    "2 levels, annotators, two rates",
    "2 levels, annotators, centre, a rate of each",
    "3 levels, one rate",
    "5 levels, annotators, centre, one rate",
    "5 levels, annotators, a rate of each",
    "comparisons, one rate",
    "comparisons, centre, one rate",
    "2 levels, comparisons, two rates",
    "2 levels, comparisons, annotators, a rate of each",
    "4 levels, comparisons, one rate",
    "4 levels, comparisons, annotators, centre, a rate of each",
]

N, N_GROUPS = 240, 3
SHARED, SIDES, EACH = np.array([0.22]), np.array([0.16, 0.05]), np.array([0.0, 0.15, 0.6, 0.08, 0.1])
# Not semidefinite, so that squared distances have the signs of the differences that comparisons are about.
MATRIX = np.array([[0.9, 0.2, -0.1], [0.2, -0.5, 0.3], [-0.1, 0.3, 0.4]])
STEP = np.array([[0.3, -0.7, 0.2], [-0.7, 0.5, 0.4], [0.2, 0.4, -0.6]])


@dataclass
class Case:
    """Judgements of some kind, a point, and what SciPy needs to know of them."""

    words: str
    likelihood: Likelihood
    rows: Differences
    thresholds: np.ndarray
    distribution: Any

    @property
    def problem(self):
        return Problem.of(self.rows, self.likelihood)

    @property
    def has_flips(self):
        return self.likelihood.flips is not None

    @property
    def forms(self):
        return self.rows.forms(MATRIX)

    def evaluate(self, forms=None, thresholds=None, order=2):
        thresholds = self.thresholds if thresholds is None else thresholds
        return self.problem.evaluate(self.forms if forms is None else forms, thresholds, order)


def make(words, noise="logistic", n=N, seed=0):
    rng = np.random.default_rng(seed)
    n_levels, compares, n_groups = levels_in(words), "comparisons" in words, N_GROUPS * ("annotators" in words)
    answers = Answers.of(n_levels, compares=compares)
    codes = rng.permutation(np.arange(n) % answers.n_answers)
    groups = np.where(codes < n_levels, rng.integers(0, n_groups, n), n_groups) if n_groups else None
    weights = rng.uniform(0.1, 3.0, n)
    flips = {
        "one rate": SharedRate(SHARED),
        "two rates": SideRates(SIDES),
        "a rate of each": RateOfEach(EACH, float(n)),
    }
    likelihood = Likelihood(
        NOISES[noise],
        answers,
        codes,
        weights / weights.sum(),
        groups,
        n_groups,
        0.04 if n_groups else 0.0,
        lengths=rng.uniform(0.0, 2.0, n) if "centre" in words else None,
        price=0.03 if "centre" in words else 0.0,
        flips=next((each for name, each in flips.items() if name in words), None),
    )
    taus = np.linspace(0.4, 0.4 + 0.5 * n_levels, max(n_levels - 1, 0))
    thresholds = np.concatenate([taus, 0.4 * np.cos(np.arange(n_groups)), [0.35] if "centre" in words else []])
    return Case(words, likelihood, Differences(rng.standard_normal((n, 3))), thresholds, DISTRIBUTIONS[noise])


def levels_in(words):
    return int(words[0]) if words[0].isdigit() else 0


@pytest.fixture(params=sorted(NOISES))
def noise(request):
    return NOISES[request.param]


@pytest.fixture(params=KINDS)
def case(request, noise):
    return make(request.param, noise.name)


@pytest.fixture(params=FLIPPED_KINDS)
def flipped(request, noise):
    return make(request.param, noise.name)


@pytest.fixture(params=KINDS + FLIPPED_KINDS)
def any_case(request, noise):
    return make(request.param, noise.name)


@pytest.fixture(params=KINDS + FLIPPED_KINDS)
def some_case(request):
    """Each kind with one of the noises, for what does not depend on these."""
    return make(request.param, sorted(NOISES)[(KINDS + FLIPPED_KINDS).index(request.param) % len(NOISES)])


def plain_right(case, forms, thresholds):
    """The probability of each answer without flips, written out."""
    likelihood, n_levels, f = case.likelihood, levels_in(case.words), case.distribution
    taus = thresholds[: max(n_levels - 1, 0)]
    u = forms.copy()
    if "annotators" in case.words:
        u -= np.append(thresholds[n_levels - 1 :][:N_GROUPS], 0.0)[likelihood.groups]
    if "centre" in case.words:
        u += thresholds[-1] * likelihood.lengths
    right = np.empty(len(u))
    for code in range(n_levels):
        here = likelihood.codes == code
        above = u[here] - taus[code - 1] if code > 0 else np.full(here.sum(), np.inf)
        below = u[here] - taus[code] if code < n_levels - 1 else np.full(here.sum(), -np.inf)
        # Of two equal differences the one that keeps its digits.
        right[here] = np.where(above + below < 0, f.cdf(above) - f.cdf(below), f.sf(below) - f.sf(above))
    compared = likelihood.codes >= n_levels
    right[compared] = f.cdf(np.where(likelihood.codes == n_levels + 1, u, -u)[compared])
    return right


def plain_flips(case):
    """What flips add to the probability of each answer, and the share that they leave, written out."""
    likelihood, n_levels = case.likelihood, levels_in(case.words)
    is_compared = likelihood.codes >= n_levels
    if "two rates" in case.words:
        close_called_far, far_called_close = SIDES
        floor = np.where(likelihood.codes == 1, close_called_far, far_called_close)
        return np.where(is_compared, SIDES.mean(), floor), 1.0 - SIDES.sum()
    if "a rate of each" in case.words:
        at_random = EACH[:-1][likelihood.groups]
    else:
        at_random = SHARED[0] if "one rate" in case.words else 0.0
    return at_random / np.where(is_compared, 2, max(n_levels, 1)), 1.0 - at_random


def plain_losses(case, forms, thresholds):
    floor, kept = plain_flips(case)
    return -np.log(floor + kept * plain_right(case, forms, thresholds))


def plain_penalty(case, thresholds):
    found, n_taus = 0.0, max(levels_in(case.words) - 1, 0)
    if "annotators" in case.words:
        found += 0.5 * 0.04 * np.sum(thresholds[n_taus : n_taus + N_GROUPS] ** 2)
    if "centre" in case.words:
        found += 0.03 * thresholds[-1]
    if "a rate of each" in case.words:
        typical = EACH[-1]
        prior = stats.beta(1.0 + 20.0 * typical, 1.0 + 20.0 * (1.0 - typical))
        found -= np.sum(np.log(0.99 * prior.pdf(EACH[:-1]) / prior.pdf(typical) + 0.01)) / N
    return found


def risk(case, forms, thresholds):
    return case.likelihood.weights @ plain_losses(case, forms, thresholds) + plain_penalty(case, thresholds)


def derivative(function, step=1e-5):
    return (function(step) - function(-step)) / (2.0 * step)


def close(found, expected, rtol=1e-11):
    expected = np.asarray(expected)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=rtol * np.abs(expected).max(initial=1e-300))


# ---------------------------------------------------------------------------------------------------------------------
# One judgement.


def exact_cdf(name, mp):
    """The CDF, the density and its slope in many digits, below and above zero."""
    density = {
        "logistic": lambda t: 1 / (2 * mp.cosh(t / 2)) ** 2,
        "normal": lambda t: mp.exp(-t * t / 2) / mp.sqrt(2 * mp.pi),
        "laplace": lambda t: mp.exp(-abs(t)) / 2,
        "hypsecant": lambda t: mp.sech(mp.pi * t / 2) / 2,
    }[name]
    log_slope = {
        "logistic": lambda t: -mp.tanh(t / 2),
        "normal": lambda t: -t,
        "laplace": lambda t: -mp.sign(t),
        "hypsecant": lambda t: -mp.pi / 2 * mp.tanh(mp.pi * t / 2),
    }[name]
    lower = {
        "logistic": lambda t: 1 / (1 + mp.exp(-t)),
        "normal": lambda t: mp.erfc(-t / mp.sqrt(2)) / 2,
        "laplace": lambda t: mp.exp(t) / 2 if t < 0 else 1 - mp.exp(-t) / 2,
        "hypsecant": lambda t: 2 / mp.pi * mp.atan(mp.exp(mp.pi * t / 2)),
    }[name]
    return lower, density, lambda t: density(t) * log_slope(t)


@pytest.mark.parametrize("width", [1e-3, 0.4, 3.0, 60.0])
def test_intervals_are_exact_in_both_tails(noise, width):
    """-log(F(a) - F(b)) and its derivatives in the ends, from far below the interval to far above."""
    mp = pytest.importorskip("mpmath", reason="exact values need mpmath")
    above = np.concatenate([np.linspace(-40.0, 40.0 + width, 23), [0.5 * width, 1e-9]]) + 0.123
    below = above - width
    with mp.workdps(400):  # enough for one less a normal tail at 40
        cdf, density, slope = exact_cdf(noise.name, mp)
        expected = []
        for a, b in zip(above, below, strict=True):
            a, b = mp.mpf(float(a)), mp.mpf(float(b))
            p, at_a, at_b = cdf(a) - cdf(b), density(a), density(b)
            seconds = (at_a / p) ** 2 - slope(a) / p, -at_a * at_b / p**2, (at_b / p) ** 2 + slope(b) / p
            expected.append([float(each) for each in (-mp.log(p), at_a / p, -at_b / p, *seconds)])
    found = np.stack(interval_terms(noise, above, below, 2), axis=1)
    # Second derivatives of narrow intervals are differences of their inverse squared widths.
    np.testing.assert_allclose(found[:, :3], np.array(expected)[:, :3], rtol=1e-11 / min(width, 1.0), atol=1e-15)
    largest = np.abs(expected)[:, 3:].max(axis=1, keepdims=True)
    np.testing.assert_allclose(found[:, 3:] / largest, np.array(expected)[:, 3:] / largest, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_an_interval_without_an_end_is_one_whose_end_is_infinite(noise, order):
    ends, missing = np.array([-40.0, -2.0, 0.3, 5.0, 70.0]), np.full(5, np.inf)
    for found, expected in (
        (interval_terms(noise, ends, None, order), interval_terms(noise, ends, -missing, order)),
        (interval_terms(noise, None, ends, order), interval_terms(noise, missing, ends, order)),
    ):
        assert [each is None for each in found] == [each is None for each in expected]
        for part, wanted in zip(found[: (1, 3, 6)[order]], expected[: (1, 3, 6)[order]], strict=True):
            # What is left beyond an end that is far away: exp(-300).
            np.testing.assert_allclose(part, wanted, rtol=1e-12, atol=1e-125)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_order_says_how_many_derivatives_an_interval_has(noise, order):
    above, below = np.array([1.0, -3.0]), np.array([0.2, -3.5])
    found, all_of_them = interval_terms(noise, above, below, order), interval_terms(noise, above, below, 2)
    assert [each is not None for each in found] == [True, *[order > 0] * 2, *[order > 1] * 3]
    for part, wanted in zip(found[: (1, 3, 6)[order]], all_of_them, strict=False):
        np.testing.assert_array_equal(part, wanted)


def test_terms_of_widths_are_those_of_both_ends():
    """Logistic noise factors into both ends and the width of an interval."""
    noise, below = NOISES["logistic"], np.linspace(-30.0, 30.0, 41)
    for width in (1e-6, 0.3, 7.0, 500.0, np.inf):
        above = np.full(41, np.inf) if width == np.inf else below + width
        widths = [np.full(41, each) for each in noise.width_terms(np.array(width))]
        for order in (0, 1, 2):
            found = interval_terms(noise, above, below, order, widths)
            expected = interval_terms(noise, above, below, order)
            rtol = 1e-12 if width > 0.1 else 1e-7
            for part, wanted in zip(found[: (1, 3, 6)[order]], expected[: (1, 3, 6)[order]], strict=True):
                np.testing.assert_allclose(part, wanted, rtol=rtol, atol=1e-13)


def test_a_level_without_width_has_finite_derivatives(noise):
    ends = np.array([-300.0, -2.0, 0.0, 1e-17, 3.0, 300.0])
    for found in interval_terms(noise, ends, ends, 2):
        assert np.all(np.isfinite(found))


@pytest.mark.parametrize(("floor", "kept"), [(0.0, 1.0), (0.0, 0.7), (0.1, 0.8), (0.02, 0.5)])
def test_a_mixture_has_the_derivatives_of_its_logarithm(noise, floor, kept):
    above, below = np.array([-6.0, -0.4, 0.9, 5.0]), np.array([-7.5, -1.0, -0.7, 3.0])

    def mixed(up=0.0, down=0.0):
        return mixed_terms(interval_terms(noise, above + up, below + down, 2), floor, kept)

    found, distribution = mixed(), DISTRIBUTIONS[noise.name]
    right = np.where(above < 0, distribution.cdf(above) - distribution.cdf(below), 0.0)
    right = np.where(above < 0, right, distribution.sf(below) - distribution.sf(above))
    np.testing.assert_allclose(found.loss, -np.log(floor + kept * right), rtol=1e-11)
    assert found.loss.tolist() == mixed_loss(interval_terms(noise, above, below, 0).loss, floor, kept)[0].tolist()
    np.testing.assert_allclose(found.low, derivative(lambda h: mixed(up=-h).loss), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.up, derivative(lambda h: mixed(down=-h).loss), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.low_low, derivative(lambda h: mixed(up=-h).low), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.low_up, derivative(lambda h: mixed(down=-h).low), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.up_up, derivative(lambda h: mixed(down=-h).up), rtol=1e-6, atol=1e-8)


def test_without_a_floor_a_loss_is_finite_where_its_probability_underflows(noise):
    losses = np.array([0.5, 800.0, 1e9])
    loss, share = mixed_loss(losses, np.array([0.0, 0.0, 0.0]), np.array([1.0, 0.5, 1.0]))
    np.testing.assert_allclose(loss, losses + np.log([1.0, 2.0, 1.0]), rtol=1e-15)
    np.testing.assert_array_equal(share, 1.0)
    loss, share = mixed_loss(losses, 0.1, 0.8)
    np.testing.assert_allclose(loss[1:], -np.log(0.1), rtol=1e-15)
    np.testing.assert_array_equal(share[1:], 0.0)


# ---------------------------------------------------------------------------------------------------------------------
# The answers that judgements can give.


@pytest.mark.parametrize(("n_levels", "compares"), [(2, False), (3, False), (5, True), (2, True), (0, True)])
def test_answers_are_the_levels_and_then_those_to_comparisons(n_levels, compares):
    answers = Answers.of(n_levels, compares=compares)
    taus = np.cumsum(np.arange(1.0, n_levels))
    low, up = answers.ends(taus)
    beside = [[-np.inf, 0.0], [0.0, np.inf]] if compares else np.empty((0, 2))
    levels = np.column_stack([np.append(-np.inf, taus), np.append(taus, np.inf)])[:n_levels]
    np.testing.assert_array_equal(np.column_stack([low, up]), np.concatenate([levels, beside]))
    assert answers.n_answers == n_levels + 2 * compares
    assert answers.n_thresholds == max(n_levels - 1, 0)
    assert answers.are_one_sided == (n_levels <= 2)
    # Comparisons alone have one end, zero, as close and far have one.
    assert answers.are_even == (n_levels == 2 - 2 * compares)
    for question in set(answers.questions.tolist()):
        assert answers.chances[answers.questions == question].sum() == pytest.approx(1.0)
    assert answers.questions.tolist() == [0] * n_levels + [int(n_levels > 0)] * 2 * compares
    expected = np.append(np.linspace(-1.0, 1.0, n_levels), [-1.0, 1.0] if compares else [])
    np.testing.assert_allclose(answers.trend, expected)


def test_thresholds_out_of_order_leave_no_width():
    answers = Answers.of(4)
    assert answers.are_feasible(np.array([0.0, 1.0, 1.5]))
    for taus in ([0.0, 1.0, 1.0], [1.0, 0.5, 2.0]):
        assert not answers.are_feasible(np.array(taus))
        found = answers.made_feasible(np.array(taus))
        assert answers.are_feasible(found)
        assert np.all(found >= np.sort(taus))
        np.testing.assert_allclose(found, np.sort(taus), atol=0.3)
    feasible = np.array([0.0, 1e-9, 1.5])
    assert answers.made_feasible(feasible) is feasible


@pytest.mark.parametrize(
    ("n_levels", "compares", "rates"),
    [(2, False, 1), (2, False, 2), (2, True, 2), (4, False, 1), (4, True, 1), (0, True, 1), (2, True, 1)],
)
def test_answers_know_the_derivatives_of_what_flip_rates_add(n_levels, compares, rates):
    """Flip rates are the shares of answers that are wrong."""
    answers = Answers.of(n_levels, compares=compares)

    def at(*flip_rates):
        flips = SideRates(np.array(flip_rates)) if rates == 2 else SharedRate.of(flip_rates[0], max(n_levels, 1))
        assert flips.flip_rate(answers) == pytest.approx(flip_rates if rates == 2 else flip_rates[0])
        return flips.floors(answers, 0)[0], flips.kept(0)[0]

    added, taken = answers.flips(rates)
    before, kept = at(*[0.1] * rates)
    for place in range(rates):
        floor, less = at(*np.where(np.arange(rates) == place, 0.2, 0.1))
        np.testing.assert_allclose(floor - before, 0.1 * added[place], atol=1e-15)
        assert kept - less == pytest.approx(0.1 * taken[place])


# ---------------------------------------------------------------------------------------------------------------------
# The sum over judgements of every kind.


def test_the_loss_is_that_of_scipy(any_case):
    likelihood, rows, forms, thresholds = any_case.likelihood, any_case.rows, any_case.forms, any_case.thresholds
    expected = plain_losses(any_case, forms, thresholds)
    # SciPy's probabilities near one have no more digits in their logarithms.
    np.testing.assert_allclose(likelihood.losses(rows, forms, thresholds), expected, rtol=1e-11, atol=1e-15)
    whole = likelihood.weights @ expected + plain_penalty(any_case, thresholds)
    assert [any_case.evaluate(order=order).loss for order in (1, 2)] == pytest.approx([whole, whole], rel=1e-11)
    right = plain_right(any_case, forms, thresholds)
    np.testing.assert_allclose(likelihood.right(rows, forms, thresholds), right, rtol=1e-10)


def test_all_answers_to_a_question_have_a_probability_of_one_together(any_case):
    likelihood, n = any_case.likelihood, len(any_case.likelihood.codes)
    questions = likelihood.answers.questions
    for question in set(questions.tolist()):
        asked = questions[likelihood.codes] == question
        total = np.zeros(n)
        for code in np.flatnonzero(questions == question):
            others = replace(likelihood, codes=np.full(n, code))
            total += np.exp(-others.losses(any_case.rows, any_case.forms, any_case.thresholds))
        np.testing.assert_allclose(total[asked], 1.0, rtol=1e-12)


def test_first_derivatives_are_finite_differences(any_case):
    here = any_case.evaluate(order=1)
    forms, thresholds, weights = any_case.forms, any_case.thresholds, any_case.likelihood.weights
    expected = weights * derivative(lambda h: plain_losses(any_case, forms + h, thresholds))
    np.testing.assert_allclose(here.margin_gradient, expected, rtol=1e-6, atol=1e-11)
    slopes = [derivative(lambda h, e=e: risk(any_case, forms, thresholds + h * e)) for e in np.eye(len(thresholds))]
    np.testing.assert_allclose(here.slopes, slopes, rtol=1e-6, atol=1e-9)
    point = any_case.problem.at(MATRIX, thresholds)
    slope = derivative(lambda h: risk(any_case, any_case.rows.forms(MATRIX + h * STEP), thresholds))
    assert np.sum(point.gradient * STEP) == pytest.approx(slope, rel=1e-6)
    np.testing.assert_allclose(point.slopes, here.slopes, rtol=1e-12, atol=1e-15)
    assert point.evaluation.loss == pytest.approx(here.loss, rel=1e-13)


def test_second_derivatives_are_finite_differences(case):
    problem, shift = case.problem, np.cos(np.arange(len(case.thresholds)))
    here = problem.at(MATRIX, case.thresholds)
    hessian = problem.hessian(here.evaluation.curvature)

    def gradient(h):
        there = problem.at(MATRIX + h * STEP, case.thresholds + h * shift)
        return packed.join(there.gradient, there.slopes)

    close(hessian @ packed.join(STEP, shift), derivative(gradient, 1e-6), rtol=1e-6)
    expected = derivative(lambda h: case.evaluate(case.forms + h, order=1).margin_gradient, 1e-6)
    np.testing.assert_allclose(here.evaluation.curvature.distance, expected, rtol=1e-5, atol=1e-9)
    assert np.linalg.eigvalsh(hessian)[0] >= -1e-12  # the loss is convex
    assert Trait.CONVEX in problem.traits


def test_second_derivatives_with_flips_are_never_negative(flipped):
    """With one end they are the Fisher information, and for levels those without flips times a squared share."""
    likelihood, forms, thresholds = flipped.likelihood, flipped.forms, flipped.thresholds
    floor, kept = plain_flips(flipped)
    right = plain_right(flipped, forms, thresholds)
    probability = floor + kept * right
    curvature = flipped.evaluate().curvature
    if likelihood.answers.are_one_sided:
        density = derivative(lambda h: plain_right(flipped, forms + h, thresholds))
        expected = likelihood.weights * (kept * density) ** 2 / (probability * (1.0 - probability))
        np.testing.assert_allclose(curvature.distance, expected, rtol=1e-6, atol=1e-13)
    else:
        plain = replace(likelihood, flips=None, weights=likelihood.weights * (kept * right / probability) ** 2)
        without = flipped.problem.with_likelihood(plain).evaluate(forms, thresholds, order=2).curvature
        for found, expected in zip(curvature.arrays, without.arrays, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-15)
    assert np.linalg.eigvalsh(flipped.problem.hessian(curvature))[0] >= -1e-12
    assert Trait.CONVEX not in flipped.problem.traits


def jacobians(case):
    """The derivatives of both ends, less u, of each row in (packed M, thresholds); infinite ends count as zero."""
    likelihood, n = case.likelihood, len(case.likelihood.codes)
    rows = case.rows.read(slice(0, n)).T
    on_u = np.zeros((n, len(case.thresholds)))
    if likelihood.groups is not None:
        strictness = -np.eye(N_GROUPS + 1)[likelihood.groups][:, :N_GROUPS]
        on_u[:, likelihood.answers.n_thresholds : likelihood.answers.n_thresholds + N_GROUPS] = strictness
    if likelihood.lengths is not None:
        on_u[:, -1] = likelihood.lengths
    of_u = np.hstack([[packed.pack(np.outer(row, row)) for row in rows], on_u])
    ends = []
    for of_end in (likelihood.answers.lower, likelihood.answers.upper):
        on_taus = np.zeros_like(of_u)
        on_taus[:, 6 : 6 + likelihood.answers.n_thresholds] = of_end[likelihood.codes]
        ends.append(on_taus - of_u)
    return ends


def assembled(case, curvature):
    """The Hessian as a sum over rows of products of these derivatives."""
    likelihood, (low, up) = case.likelihood, jacobians(case)
    if likelihood.answers.are_one_sided:
        (one,) = curvature.arrays
        ends = np.where(likelihood.answers.opens_above[likelihood.codes][:, None], low, up)
        found = ends.T @ (one[:, None] * ends)
    else:
        low_low, low_up, up_up = (each[:, None] for each in curvature.arrays)
        across = low.T @ (low_up * up)
        found = low.T @ (low_low * low) + across + across.T + up.T @ (up_up * up)
    return found + np.diag(np.append(np.zeros(6), likelihood.precisions))


def test_the_hessian_is_the_sum_over_rows_in_all_its_forms(some_case):
    problem, curvature = some_case.problem, some_case.evaluate().curvature
    expected = assembled(some_case, curvature)
    close(problem.hessian(curvature), expected)
    close(curvature.thresholds, expected[6:, 6:])
    shift = np.sin(1.0 + np.arange(len(some_case.thresholds)))
    close(packed.join(*problem.hessian_product(STEP, shift, curvature)), expected @ packed.join(STEP, shift))
    close(curvature.across(some_case.rows, some_case.rows.forms(STEP)), expected[6:, :6] @ packed.pack(STEP))
    forms = np.array([packed.pack(np.outer(row, row)) for row in some_case.rows.read(slice(0, N)).T])
    crosses = curvature.crosses(some_case.rows)
    assert len(crosses) == len(some_case.thresholds)
    for k, cross in enumerate(crosses):
        close(cross @ forms, expected[6 + k, :6])
    basis = np.linalg.qr(STEP)[0]
    diagonal = np.array([packed.pack(np.outer(vector, vector)) for vector in basis.T])
    fourth, border = problem.rotated_moments(curvature, basis)
    close(fourth, diagonal @ expected[:6, :6] @ diagonal.T)
    if len(crosses):
        close(border, diagonal @ expected[:6, 6:])
    everyone = problem.sampled_hessian(MATRIX, some_case.thresholds, np.arange(N), np.ones(N))
    close(everyone, expected, rtol=1e-5)


def test_a_sampled_hessian_counts_each_judgement_by_its_factor(some_case):
    rng = np.random.default_rng(1)
    indices, factors = np.sort(rng.choice(N, 80, replace=False)), rng.uniform(0.5, 3.0, 80)
    weights = np.zeros(N)
    weights[indices] = some_case.likelihood.weights[indices] * factors
    counted = replace(some_case.likelihood, weights=weights)
    problem = some_case.problem
    curvature = problem.with_likelihood(counted).evaluate(some_case.forms, some_case.thresholds, order=2).curvature
    found = problem.sampled_hessian(MATRIX, some_case.thresholds, indices, factors)
    close(found, problem.hessian(curvature), rtol=1e-5)


def test_a_line_has_the_derivatives_of_finite_differences(any_case):
    """The risk at f + t (g + t h): its first and second derivatives in t and the thresholds."""
    problem, length, n = any_case.problem, 0.3, len(any_case.thresholds)
    squared, linear, square = any_case.forms, any_case.rows.forms(STEP), 0.3 * any_case.rows.forms(np.eye(3))
    here, dots, hessian = problem.along_line(length, any_case.thresholds, squared, linear, square)

    def moved(t):
        return squared + t * (linear + t * square)

    def at(t, shift):
        found, dots, _ = problem.along_line(t, any_case.thresholds + shift, squared, linear, square)
        return np.append(dots[0], found.slopes)

    exact = any_case.evaluate(moved(length))
    assert here.loss == pytest.approx(exact.loss, rel=1e-13)
    np.testing.assert_allclose(here.slopes, exact.slopes, rtol=1e-11, atol=1e-14)
    assert dots[0] == pytest.approx(
        derivative(lambda h: risk(any_case, moved(length + h), any_case.thresholds)), rel=1e-6
    )
    assert dots[1] == pytest.approx(exact.margin_gradient @ square, rel=1e-11)
    ahead = linear + 2.0 * length * square
    assert hessian[0, 0] == pytest.approx(exact.curvature.distance @ ahead**2, rel=1e-11)
    np.testing.assert_allclose(hessian[1:, 0], [cross @ ahead for cross in exact.curvature.crosses(any_case.rows)])
    np.testing.assert_array_equal(hessian, hessian.T)
    close(hessian[1:, 1:], exact.curvature.thresholds)
    if not any_case.has_flips:
        columns = [derivative(lambda h: at(length + h, np.zeros(n)), 1e-6)]
        columns[0][0] -= 2.0 * dots[1]  # the curve of the line itself
        columns += [derivative(lambda h, e=e: at(length, h * e), 1e-6) for e in np.eye(n)]
        close(hessian, np.column_stack(columns), rtol=1e-6)


def test_along_a_scale(case):
    squared, scale = case.forms, 0.8
    gradient, hessian = case.problem.scale_derivatives(squared, scale, case.thresholds)
    x = np.append(scale, case.thresholds)

    def loss(x):
        return risk(case, x[0] * squared, x[1:])

    def slopes(x):
        return case.problem.scale_derivatives(squared, x[0], x[1:])[0]

    np.testing.assert_allclose(
        gradient, [derivative(lambda h, e=e: loss(x + h * e)) for e in np.eye(len(x))], rtol=1e-5
    )
    columns = [derivative(lambda h, e=e: slopes(x + h * e), 1e-6) for e in np.eye(len(x))]
    close(hessian, np.column_stack(columns), rtol=1e-6)


def test_without_second_order_there_is_no_curvature(some_case):
    with pytest.raises(ValueError, match=r"order 1\. Use order=2"):
        _ = some_case.evaluate(order=1).curvature


def test_the_least_margin_says_whether_every_answer_is_right(some_case):
    """It is the least distance from the ends of an interval, for the typical annotator."""
    likelihood, n_levels, u = some_case.likelihood, levels_in(some_case.words), some_case.forms
    if likelihood.lengths is not None:
        u = u + some_case.thresholds[-1] * likelihood.lengths
    taus = some_case.thresholds[: likelihood.answers.n_thresholds]
    low, up = (ends[likelihood.codes] for ends in likelihood.answers.ends(taus))
    least = np.minimum(u - low, up - u).min()
    assert least < 0.0
    # A flipped answer is on the wrong side, and rightly so.
    expected = -np.inf if some_case.has_flips else least
    for order in (1, 2):
        assert some_case.evaluate(order=order).least_margin == pytest.approx(expected, rel=1e-14)
    is_pair = likelihood.codes < n_levels
    right = replace(likelihood, codes=np.where(is_pair, np.digitize(u, taus), n_levels + (u > 0.0)), flips=None)
    there = some_case.problem.with_likelihood(right).evaluate(some_case.forms, some_case.thresholds)
    assert there.least_margin > 0.0


# ---------------------------------------------------------------------------------------------------------------------
# What the likelihood does not depend on, and what it is equal to.


def same(found, expected, rtol=1e-12):
    """Whether two evaluations agree in everything but what each row has."""
    assert found.loss == pytest.approx(expected.loss, rel=rtol)
    assert found.least_margin == pytest.approx(expected.least_margin, rel=rtol)
    close(found.slopes, expected.slopes, rtol)
    close(found.curvature.thresholds, expected.curvature.thresholds, rtol)


def test_the_order_of_judgements_does_not_matter(some_case):
    order = np.random.default_rng(3).permutation(N)
    rows, arrays = some_case.rows.take(order, *some_case.likelihood.row_arrays)
    other = Problem.of(rows, some_case.likelihood.of_rows(arrays))
    here, there = some_case.evaluate(), other.evaluate(some_case.forms[order], some_case.thresholds, order=2)
    same(there, here)
    np.testing.assert_array_equal(there.margin_gradient, here.margin_gradient[order])
    close(other.hessian(there.curvature), some_case.problem.hessian(here.curvature))


def test_weights_are_repeats(some_case):
    likelihood = some_case.likelihood
    repeats = np.random.default_rng(3).integers(0, 4, N)
    weighted = replace(likelihood, weights=repeats / repeats.sum())
    again = np.repeat(np.arange(N), repeats)
    rows, arrays = some_case.rows.take(again, *weighted.row_arrays)
    codes, _, *rest = arrays
    repeated = Problem.of(rows, likelihood.of_rows((codes, np.full(len(again), 1.0 / repeats.sum()), *rest)))
    one = some_case.problem.with_likelihood(weighted).at(MATRIX, some_case.thresholds)
    other = repeated.at(MATRIX, some_case.thresholds)
    assert one.value == pytest.approx(other.value, rel=1e-12)
    close(other.gradient, one.gradient)
    close(other.slopes, one.slopes)
    curvatures = (one.evaluation.curvature, other.evaluation.curvature)
    close(repeated.hessian(curvatures[1]), some_case.problem.with_likelihood(weighted).hessian(curvatures[0]))


def test_parts_make_no_difference(some_case, monkeypatch):
    whole = some_case.evaluate()
    monkeypatch.setattr(source, "PART_ROWS", 97)
    monkeypatch.setattr(likelihoods, "_IN_CACHE", 31)
    parts = some_case.evaluate()
    same(parts, whole)
    # An infinite end is one beyond all sums of a part, and leaves as little as exp(-300).
    np.testing.assert_allclose(parts.margin_gradient, whole.margin_gradient, rtol=1e-12, atol=1e-125)
    for found, expected in zip(parts.curvature.arrays, whole.curvature.arrays, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-125)


def test_a_row_may_be_measured_in_another_array_library(some_case):
    loss, arrays = some_case.likelihood.loss(some_case.thresholds), some_case.likelihood.row_arrays
    expected = loss(some_case.forms, *arrays)
    for library in ("array_api_strict", "torch"):
        xp = pytest.importorskip(library, reason=f"{library} is not installed")
        # Handles of other libraries are floats, codes and annotators included.
        found = loss(*(xp.asarray(np.array(each, dtype=np.float64)) for each in (some_case.forms, *arrays)))
        np.testing.assert_allclose(found.sums, expected.sums, rtol=1e-11, atol=1e-14)
        assert found.least == pytest.approx(expected.least, rel=1e-14)
        for part, wanted in zip((found.pull, *found.arrays), (expected.pull, *expected.arrays), strict=True):
            assert type(part) is type(xp.asarray(1.0))
            np.testing.assert_allclose(np.asarray(part), wanted, rtol=1e-11, atol=1e-14)


# Close and far that do not take the fast path: in the other order, and beside an answer with two ends that nobody
# gives.
TURNED = Answers(
    lower=np.array([[1.0], [0.0]]),
    upper=np.array([[0.0], [1.0]]),
    opens_below=np.array([False, True]),
    opens_above=np.array([True, False]),
    chances=np.full(2, 0.5),
    trend=np.array([1.0, -1.0]),
)
BESIDE = Answers(
    lower=np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]),
    upper=np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]),
    opens_below=np.array([True, False, False]),
    opens_above=np.array([False, True, False]),
    chances=np.array([0.5, 0.5, 0.0]),
    trend=np.array([-1.0, 1.0, 0.0]),
)


@pytest.mark.parametrize("words", ["2 levels", "2 levels, annotators, centre"])
def test_close_and_far_are_intervals_like_any_others(words, noise):
    case = make(words, noise.name)
    assert case.likelihood.answers.are_even
    here = case.evaluate()
    turned = replace(case.likelihood, answers=TURNED, codes=1 - case.likelihood.codes)
    assert not turned.answers.are_even
    there = case.problem.with_likelihood(turned).evaluate(case.forms, case.thresholds, order=2)
    same(there, here)
    np.testing.assert_allclose(there.margin_gradient, here.margin_gradient, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(there.curvature.distance, here.curvature.distance, rtol=1e-12, atol=1e-300)
    beside = replace(case.likelihood, answers=BESIDE)
    assert not beside.answers.are_one_sided
    thresholds = np.insert(case.thresholds, 1, case.thresholds[0] + 1.0)
    there = case.problem.with_likelihood(beside).evaluate(case.forms, thresholds, order=2)
    assert there.loss == pytest.approx(here.loss, rel=1e-12)
    assert there.least_margin == here.least_margin
    assert there.slopes[1] == 0.0
    close(np.delete(there.slopes, 1), here.slopes, 1e-12)
    close(np.delete(np.delete(there.curvature.thresholds, 1, 0), 1, 1), here.curvature.thresholds, 1e-12)
    np.testing.assert_allclose(there.margin_gradient, here.margin_gradient, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(there.curvature.distance, here.curvature.distance, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("words", ["2 levels", "4 levels, annotators", "comparisons", "2 levels, comparisons, centre"])
def test_no_flips_are_flips_at_rate_zero(words, noise):
    case = make(words, noise.name)
    zeros = [SharedRate(np.zeros(1))]
    zeros += [SideRates(np.zeros(2))] if words[0] == "2" else []
    zeros += [RateOfEach.none(N_GROUPS, 240.0)] if "annotators" in words else []
    here = case.evaluate()
    for flips in zeros:
        there = case.problem.with_likelihood(case.likelihood.with_flips(flips)).evaluate(
            case.forms, case.thresholds, order=2
        )
        assert there.loss == pytest.approx(here.loss, rel=1e-13)
        close(there.slopes, here.slopes, 1e-12)
        np.testing.assert_allclose(there.margin_gradient, here.margin_gradient, rtol=1e-12, atol=1e-300)
        if noise.name == "logistic":  # whose Fisher information is the second derivative
            np.testing.assert_allclose(there.curvature.distance, here.curvature.distance, rtol=1e-10, atol=1e-300)


@pytest.mark.parametrize("words", ["2 levels, comparisons, annotators", "4 levels, comparisons, one rate"])
def test_comparisons_beside_pairs_are_those_of_both_alone(words, noise):
    case = make(words, noise.name)
    likelihood, n_levels = case.likelihood, levels_in(words)
    is_pair = likelihood.codes < n_levels
    total = case.evaluate(order=1)
    pairs = replace(likelihood, answers=Answers.of(n_levels)).of_rows([each[is_pair] for each in likelihood.row_arrays])
    alone = replace(likelihood, answers=Answers.of(0, compares=True), groups=None, n_groups=0).of_rows(
        [likelihood.codes[~is_pair] - n_levels, likelihood.weights[~is_pair]]
    )
    of_pairs = Problem.of(case.rows.take_rows(np.flatnonzero(is_pair)), pairs).evaluate(
        case.forms[is_pair], case.thresholds
    )
    of_comparisons = Problem.of(case.rows.take_rows(np.flatnonzero(~is_pair)), alone).evaluate(
        case.forms[~is_pair], np.empty(0)
    )
    assert total.loss == pytest.approx(of_pairs.loss + of_comparisons.loss, rel=1e-13)
    close(total.slopes, of_pairs.slopes, 1e-12)
    np.testing.assert_allclose(total.margin_gradient[is_pair], of_pairs.margin_gradient, rtol=1e-12)
    np.testing.assert_allclose(total.margin_gradient[~is_pair], of_comparisons.margin_gradient, rtol=1e-12)


def test_a_reversed_comparison_has_the_other_answer(noise):
    case = make("comparisons", noise.name)
    turned = replace(case.likelihood, codes=1 - case.likelihood.codes)
    found = case.problem.with_likelihood(turned).evaluate(-case.forms, case.thresholds, order=2)
    same(found, case.evaluate(), 1e-14)


@pytest.mark.parametrize("words", ["3 levels, annotators", "2 levels, annotators"])
def test_only_the_prior_tells_annotators_from_thresholds(words, noise):
    """Everyone as much stricter is the same as thresholds that are as much higher."""
    case = make(words, noise.name)
    n_taus = case.likelihood.answers.n_thresholds
    moved = case.thresholds + np.append(np.full(n_taus, 0.3), np.full(N_GROUPS, -0.3))
    before, after = case.evaluate(), case.evaluate(thresholds=moved)
    penalty = case.likelihood.penalty
    assert after.loss - penalty(moved) == pytest.approx(before.loss - penalty(case.thresholds), rel=1e-13)
    # Without annotators the thresholds are those of everyone.
    anyone = replace(case.likelihood, groups=None, n_groups=0, precision=0.0)
    nobody = replace(case.likelihood, groups=np.full(N, N_GROUPS))
    one = case.problem.with_likelihood(anyone).evaluate(case.forms, case.thresholds[:n_taus])
    other = case.problem.with_likelihood(nobody).evaluate(case.forms, case.thresholds)
    assert other.loss - penalty(case.thresholds) == pytest.approx(one.loss, rel=1e-13)


def test_a_multiple_of_the_centre_is_added_to_squared_distances(noise):
    case = make("3 levels, centre", noise.name)
    without = replace(case.likelihood, lengths=None, price=0.0)
    moved = case.forms + case.thresholds[-1] * case.likelihood.lengths
    expected = case.problem.with_likelihood(without).evaluate(moved, case.thresholds[:-1])
    found = case.evaluate(order=1)
    assert found.loss - 0.03 * case.thresholds[-1] == pytest.approx(expected.loss, rel=1e-13)
    close(found.slopes[:-1], expected.slopes, 1e-12)
    assert found.slopes[-1] - 0.03 == pytest.approx(expected.margin_gradient @ case.likelihood.lengths, rel=1e-12)


# ---------------------------------------------------------------------------------------------------------------------
# Margins of any size.


@pytest.mark.parametrize("size", [1e3, 1e8, 1e12])
def test_no_margin_is_too_large(any_case, size):
    """Warnings are errors here.  The loss is that of the nearer end, or bounded by flips."""
    problem, thresholds, likelihood = any_case.problem, any_case.thresholds, any_case.likelihood
    forms = size * np.where(np.arange(N) % 2, 1.0, -1.0)
    here = problem.evaluate(forms, thresholds, order=2)
    arrays = (here.margin_gradient, here.slopes, here.curvature.thresholds, *here.curvature.arrays)
    assert all(np.all(np.isfinite(each)) for each in arrays)
    assert np.isfinite(here.loss)
    assert np.all(np.isfinite(problem.hessian(here.curvature)))
    ends = np.where(
        forms > 0, likelihood.answers.opens_above[likelihood.codes], likelihood.answers.opens_below[likelihood.codes]
    )
    losses = likelihood.losses(any_case.rows, forms, thresholds)
    floor, kept = plain_flips(any_case)
    floor, kept = floor + np.zeros(N), kept + np.zeros(N)
    np.testing.assert_allclose(losses[ends], -np.log(floor + kept)[ends], rtol=1e-12, atol=1e-100)
    is_flipped = ~ends & (floor > 0.0)
    np.testing.assert_allclose(losses[is_flipped], -np.log(floor[is_flipped]), rtol=1e-12)
    others = losses[~ends & (floor == 0.0)]
    np.testing.assert_allclose(others, likelihood.noise.neg_log_cdf(-size), rtol=0.02 if size < 1e4 else 1e-6)


@pytest.mark.parametrize("size", [1e17, 1e50])
@pytest.mark.parametrize("words", ["3 levels", "5 levels, annotators, centre"])
def test_the_first_and_the_last_level_have_no_other_end(words, size, noise):
    """Also if all thresholds are as good as zero for rounding."""
    case = make(words, noise.name)
    last = case.likelihood.answers.n_answers - 1
    outer = replace(case.likelihood, codes=np.where(np.arange(N) % 2, last, 0))
    forms = size * np.where(np.arange(N) % 4 < 2, -1.0, 1.0)
    here = case.problem.with_likelihood(outer).evaluate(forms, case.thresholds, order=2)
    assert np.all(np.isfinite(np.concatenate([here.margin_gradient, here.slopes, here.curvature.distance])))
    losses, is_right = outer.losses(case.rows, forms, case.thresholds), (forms > 0) == (outer.codes > 0)
    np.testing.assert_array_equal(losses[is_right], 0.0)
    np.testing.assert_allclose(losses[~is_right], noise.neg_log_cdf(-size), rtol=1e-12)


@pytest.mark.parametrize("beyond", [1e3, 1e6])
@pytest.mark.parametrize("words", ["2 levels", "4 levels", "4 levels, comparisons"])
def test_thresholds_far_beyond_all_distances_lose_no_digits(words, beyond, noise):
    case = make(words, noise.name)
    codes, far = case.likelihood.codes, beyond + np.arange(len(case.thresholds))
    losses = case.likelihood.losses(case.rows, case.forms, far)
    last = len(case.thresholds)
    np.testing.assert_allclose(losses[codes == 0], 0.0, atol=1e-100)
    expected = noise.neg_log_cdf((case.forms - far[-1])[codes == last])
    np.testing.assert_allclose(losses[codes == last], expected, rtol=1e-13)
    here = case.evaluate(thresholds=far)
    slope = derivative(lambda h: case.evaluate(thresholds=far + h).loss, 1e-3)
    assert here.slopes.sum() == pytest.approx(slope, rel=1e-5)
    near, _ = case.problem.minimise_threshold(np.abs(case.forms), far, 1e-10)
    expected, _ = case.problem.minimise_threshold(np.abs(case.forms), case.thresholds, 1e-10)
    np.testing.assert_allclose(near, expected, atol=1e-6)


# ---------------------------------------------------------------------------------------------------------------------
# What is asked of judgements as a whole.


def test_traits_follow_from_flips_ends_and_priors():
    for words in KINDS:
        has_one_margin = levels_in(words) <= 2 and "annotators" not in words
        expected = {Trait.CONVEX, Trait.TANGENTS} if has_one_margin else {Trait.CONVEX}
        assert make(words).likelihood.traits == expected
    for words in FLIPPED_KINDS:
        assert not make(words).likelihood.traits


def test_kernels_know_of_ends_alone(some_case):
    loss = some_case.likelihood.loss(some_case.thresholds, order=1)
    if any(word in some_case.words for word in ("annotators", "centre", "rate")):
        assert loss.kernel is None
        return
    noise, low, up, order = loss.kernel
    assert (noise, order) == (some_case.likelihood.noise, 1)
    np.testing.assert_array_equal([low, up], some_case.likelihood.answers.ends(some_case.thresholds))


def test_thresholds_have_least_values(some_case):
    likelihood, n_levels = some_case.likelihood, levels_in(some_case.words)
    expected = [0.0] * max(n_levels - 1, 0) + [-np.inf] * likelihood.n_groups
    assert likelihood.least.tolist() == expected + [0.0] * ("centre" in some_case.words)
    assert likelihood.n_thresholds == len(some_case.thresholds)


def test_the_trend_is_that_of_the_answers(some_case):
    likelihood, n_levels = some_case.likelihood, levels_in(some_case.words)
    of_level = 2.0 * likelihood.codes / max(n_levels - 1, 1) - 1.0
    of_comparison = np.where(likelihood.codes == n_levels + 1, 1.0, -1.0)
    expected = likelihood.weights * np.where(likelihood.codes < n_levels, of_level, of_comparison)
    np.testing.assert_allclose(likelihood.trend(some_case.rows), expected, rtol=1e-15)


@pytest.mark.parametrize(("weight", "is_there"), [(0.0, False), (0.9e-10, False), (1.1e-10, True), (1e-3, True)])
@pytest.mark.parametrize("words", ["2 levels", "3 levels", "3 levels, comparisons"])
def test_an_answer_of_hardly_any_weight_determines_no_threshold(words, weight, is_there):
    case = make(words)
    for code in range(levels_in(words)):
        weights = np.where(case.likelihood.codes == code, 0.0, 1.0)
        weights *= (1.0 - weight) / weights.sum()
        weights[np.flatnonzero(case.likelihood.codes == code)[0]] = weight
        assert replace(case.likelihood, weights=weights).determines_thresholds(case.rows) == is_there


def test_without_a_threshold_one_answer_is_enough():
    case = make("comparisons")
    assert replace(case.likelihood, codes=np.ones(N, dtype=int)).determines_thresholds(case.rows)
    mixed = make("2 levels, comparisons")
    pairs_alone = replace(mixed.likelihood, codes=np.minimum(mixed.likelihood.codes, 1))
    assert pairs_alone.determines_thresholds(mixed.rows)


def test_some_judgements_have_a_likelihood_of_their_own(some_case):
    likelihood, indices = some_case.likelihood, np.arange(0, N, 5)
    few, arrays = some_case.rows.take(indices, *likelihood.row_arrays)
    total = float(arrays[1].sum())
    taken = likelihood.of_rows(arrays, total)
    np.testing.assert_allclose(taken.weights, likelihood.weights[indices] / total, rtol=1e-13)
    assert taken.precision == likelihood.precision / total  # the prior counts as much more for them
    expected = taken.weights @ plain_losses(some_case, some_case.forms, some_case.thresholds)[indices]
    found = Problem.of(few, taken).evaluate(some_case.forms[indices], some_case.thresholds)
    assert found.loss - taken.penalty(some_case.thresholds) == pytest.approx(expected, rel=1e-11)


def test_thresholds_follow_a_change_of_the_distances():
    case = make("3 levels, annotators, centre")
    found = case.likelihood.follow(case.thresholds, 0.25)
    np.testing.assert_array_equal(found - case.thresholds, [0.25, 0.25, 0.0, 0.0, 0.0, 0.0])


def test_infeasible_thresholds_have_an_infinite_risk():
    case = make("3 levels, annotators, centre")
    turned = case.thresholds.copy()
    turned[:2] = turned[1::-1]
    assert not case.likelihood.is_feasible(turned)
    assert case.evaluate(thresholds=turned).loss == np.inf
    assert case.problem.at(MATRIX, turned).value == np.inf
    here, dots, hessian = case.problem.along_line(0.5, turned, case.forms, case.forms, case.forms)
    assert here.loss == np.inf
    assert not dots.any()
    assert np.all(np.isfinite(hessian))
    made = case.likelihood.made_feasible(turned)
    assert case.likelihood.is_feasible(made)
    np.testing.assert_array_equal(made[2:], turned[2:])


def test_labels_are_undecided_near_the_threshold(noise):
    case = make("2 levels, one rate", noise.name)
    for squared, expected in ((case.thresholds[0], 1.0), (1e3, 0.0)):
        right = case.likelihood.right(case.rows, np.full(N, squared), case.thresholds)
        assert case.rows.total(_undecided(right, case.likelihood.weights)) == pytest.approx(expected, abs=1e-12)


def test_softened_judgements_touch_the_mixture_from_above(flipped):
    """The bound of expectation-maximisation: the same slopes here, and never below elsewhere."""
    soft = softened(flipped.likelihood, flipped.rows, flipped.forms, flipped.thresholds)
    convex = flipped.problem.with_likelihood(soft)
    here, there = flipped.evaluate(order=1), convex.evaluate(flipped.forms, flipped.thresholds)
    np.testing.assert_allclose(there.margin_gradient, here.margin_gradient, rtol=1e-9, atol=1e-13)
    close(there.slopes, here.slopes)
    rng = np.random.default_rng(1)
    for _ in range(5):
        forms = flipped.forms + rng.standard_normal(N)
        thresholds = flipped.thresholds + 0.1 * rng.standard_normal(len(flipped.thresholds))
        excess = convex.evaluate(forms, thresholds).loss - flipped.evaluate(forms, thresholds, order=1).loss
        assert excess >= there.loss - here.loss - 1e-12


def test_the_best_rates_at_given_distances_beat_all_others(flipped):
    likelihood = with_best_rates(flipped.likelihood, flipped.rows, flipped.forms, flipped.thresholds)
    rates, rng = likelihood.flips.rates, np.random.default_rng(0)

    def loss(rates):
        there = flipped.problem.with_likelihood(likelihood.with_flips(likelihood.flips.with_rates(rates)))
        return there.evaluate(flipped.forms, flipped.thresholds).loss

    least = loss(rates)
    assert least <= loss(flipped.likelihood.flips.rates) + 1e-12
    for _ in range(25):
        other = np.clip(rates + 0.05 * rng.standard_normal(len(rates)), 0.0, 0.45)
        assert loss(other) >= least - 1e-9


# ---------------------------------------------------------------------------------------------------------------------
# The best threshold of close/far labels.

SQUARED = np.random.default_rng(0).gamma(2.0, 1.5, N)
FAR = SQUARED + np.random.default_rng(1).logistic(size=N) > 4.0
FAR[::9] ^= True


@pytest.fixture(params=["plain", "flipped"])
def labelled(request, noise):
    return labelled_by(noise, SharedRate(np.array([0.14])) if request.param == "flipped" else None)


def labelled_by(noise, flips=None, far=FAR):
    weights = np.random.default_rng(2).uniform(0.1, 3.0, N)
    likelihood = Likelihood(noise, Answers.of(2), far.astype(int), weights / weights.sum(), flips=flips)
    return Problem.of(Differences(np.zeros((N, 1))), likelihood)  # whose rows nobody looks at


def loss_at(problem, threshold, squared=SQUARED):
    return problem.evaluate(squared, np.array([threshold])).loss


def best(problem, squared=SQUARED, start=0.0, least=0.0, tol=1e-15):
    problem = replace(problem, cone=replace(problem.cone, least=np.array([least])))
    (threshold,), here = problem.minimise_threshold(squared, np.array([start]), tol)
    return float(threshold), here


def minimiser(problem, squared, low, high):
    options = {"xatol": 1e-10}
    return minimize_scalar(
        lambda t: loss_at(problem, t, squared), bounds=(low, high), method="bounded", options=options
    )


def counted(problem, monkeypatch):
    """The evaluations of a problem, one for each call."""
    calls, evaluate = [], Problem.evaluate
    monkeypatch.setattr(Problem, "evaluate", lambda *args, **more: calls.append(1) or evaluate(*args, **more))
    return calls


def test_the_best_threshold_is_the_minimiser(labelled):
    threshold, here = best(labelled)
    found = minimiser(labelled, SQUARED, 0.0, 8.0)
    assert threshold > 0.0
    assert threshold == pytest.approx(found.x, abs=1e-6)
    assert here.loss <= found.fun + 1e-14
    assert abs(here.slopes[0]) <= 1e-12
    exact = labelled.evaluate(SQUARED, np.array([threshold]), order=2)
    assert here.loss == pytest.approx(exact.loss, rel=1e-14)
    np.testing.assert_allclose(here.curvature.distance, exact.curvature.distance)


@pytest.mark.parametrize("start", [0.0, 1e-3, 40.0, 1e4, 1e12, 1e50])
def test_it_does_not_depend_on_the_start(noise, start):
    problem = labelled_by(noise)
    threshold, here = best(problem, start=start)
    assert threshold == pytest.approx(best(problem, start=1.0)[0], abs=1e-9)
    assert here.loss == pytest.approx(loss_at(problem, threshold), rel=1e-14)


@pytest.mark.parametrize("size", [1e-30, 1e6, 1e12])
def test_it_is_found_among_distances_of_any_size(noise, size):
    problem, squared = labelled_by(noise), size * SQUARED
    threshold, here = best(problem, squared, start=1.0)
    exact = loss_at(problem, threshold, squared)
    assert here.loss == pytest.approx(exact, rel=1e-14)
    grid = np.append(np.quantile(squared, np.linspace(0, 1, 201)), 0.0)
    assert exact <= min(loss_at(problem, t, squared) for t in grid) * (1.0 + 1e-12)


def test_the_tolerance_is_kept_and_not_overdone(noise, monkeypatch):
    problem, n_calls = labelled_by(noise), []
    calls = counted(problem, monkeypatch)
    for tol in (1e-2, 1e-6, 1e-12):
        calls.clear()
        assert abs(best(problem, start=5.0, tol=tol)[1].slopes[0]) <= tol
        n_calls.append(len(calls))
    assert n_calls == sorted(n_calls)
    assert n_calls[0] < n_calls[-1] <= 30


def test_a_slope_of_the_tolerance_is_small_enough(labelled):
    slope = abs(labelled.evaluate(SQUARED, np.array([5.0])).slopes[0])
    assert best(labelled, start=5.0, tol=slope)[0] == 5.0
    threshold, here = best(labelled, start=5.0, tol=0.99 * slope)
    assert threshold != 5.0
    assert abs(here.slopes[0]) <= 0.99 * slope


@pytest.mark.parametrize("least", [-np.inf, 0.0, 2.0])
def test_if_steps_run_out_the_evaluation_is_that_of_the_last_threshold(labelled, least, monkeypatch):
    before = loss_at(labelled, 5.0)
    for most in (0, 1, 2):
        monkeypatch.setattr(likelihoods, "_MOST_SEARCH_STEPS", most)
        threshold, here = best(labelled, start=5.0, least=least, tol=0.0)
        assert (threshold == 5.0) == (most == 0)
        exact = labelled.evaluate(SQUARED, np.array([threshold]), order=2)
        assert (here.loss, here.slopes) == (exact.loss, exact.slopes)
        np.testing.assert_array_equal(here.curvature.distance, exact.curvature.distance)
        assert here.loss <= before


def test_the_first_step_is_newtons_or_to_the_least(labelled, monkeypatch):
    monkeypatch.setattr(likelihoods, "_MOST_SEARCH_STEPS", 1)
    here = labelled.evaluate(SQUARED, np.array([4.5]), order=2)
    newton = 4.5 - here.slopes[0] / here.curvature.thresholds[0, 0]
    assert 0.0 < newton < 4.4
    assert best(labelled, start=4.5)[0] == pytest.approx(newton, rel=1e-14)
    assert best(labelled, start=4.5, least=4.4)[0] == 4.4


@pytest.mark.parametrize(("name", "first"), [("logistic", 0.0), ("laplace", 0.0), ("hypsecant", 250.0)])
def test_from_a_flat_tail_it_goes_to_the_least_or_to_the_middle(name, first, monkeypatch):
    """There the curvature is next to nothing: a Newton step leads beyond all bounds; if it is zero there is none."""
    problem, lowest, highest = labelled_by(NOISES[name]), SQUARED.min() - 1e3, SQUARED.max() + 1e3
    monkeypatch.setattr(likelihoods, "_MOST_SEARCH_STEPS", 1)
    assert best(problem, start=500.0)[0] == first
    middle = 0.5 * (lowest + 500.0)
    assert best(problem, start=500.0, least=-np.inf)[0] == pytest.approx(middle, rel=1e-14)
    assert best(problem, start=-500.0, least=-np.inf)[0] == pytest.approx(0.5 * (highest - 500.0), rel=1e-14)
    monkeypatch.setattr(likelihoods, "_MOST_SEARCH_STEPS", 2)
    assert best(problem, start=500.0, least=-np.inf)[0] == pytest.approx(0.5 * (middle + 500.0), rel=1e-14)


@pytest.mark.parametrize("name", ["logistic", "laplace"])
def test_no_end_of_the_bracket_is_tried_twice(name, monkeypatch):
    """Distances near 300 lie between flat tails: one leads to the least, the other nowhere, so the middle is next."""
    problem = labelled_by(NOISES[name])
    for most, expected in enumerate((900.0, 0.0, 450.0, 225.0)):
        monkeypatch.setattr(likelihoods, "_MOST_SEARCH_STEPS", most)
        assert best(problem, SQUARED + 300.0, start=900.0)[0] == expected


@pytest.mark.parametrize(("start", "least", "expected"), [(-1e9, 0.7, 0.7), (0.0, 3.0, 3.0), (900.0, 0.0, 900.0)])
def test_a_start_is_brought_to_the_least(noise, start, least, expected):
    threshold, here = best(labelled_by(noise), start=start, least=least, tol=np.inf)
    assert threshold == expected
    assert here.loss == loss_at(labelled_by(noise), threshold)


@pytest.mark.parametrize("start", [0.0, 3.0, 6.0])
def test_it_ends_at_the_last_digit(labelled, start, monkeypatch):
    calls = counted(labelled, monkeypatch)
    threshold, here = best(labelled, start=start, tol=0.0)
    assert len(calls) < 150
    assert abs(here.slopes[0]) <= 1e-14
    assert threshold == pytest.approx(minimiser(labelled, SQUARED, 0.0, 8.0).x, abs=1e-6)


def test_it_stops_at_the_least_if_that_is_best(noise):
    all_far = labelled_by(noise, far=np.ones(N, dtype=bool))
    for start in (0.0, 3.0):
        threshold, here = best(all_far, start=start)
        assert threshold == 0.0
        assert here.slopes[0] > 0.0
    assert here.loss == pytest.approx(min(loss_at(all_far, t) for t in np.linspace(0, 5, 21)), rel=1e-14)
    assert best(all_far, start=3.0, least=0.5)[0] == 0.5


def test_without_a_least_it_may_be_negative(noise):
    problem = labelled_by(noise, far=np.arange(N) % 20 > 0)
    threshold, here = best(problem, 0.1 * SQUARED, start=1.0, least=-np.inf)
    assert threshold < 0.0
    assert threshold == pytest.approx(minimiser(problem, 0.1 * SQUARED, -50.0, 50.0).x, abs=1e-6)
    assert abs(here.slopes[0]) <= 1e-12


# Several thresholds.


@pytest.mark.parametrize("words", [words for words in KINDS if words not in ("2 levels", "comparisons")])
def test_several_best_thresholds_are_the_minimisers(words, noise):
    case = make(words, noise.name)
    forms, least = 2.0 * np.abs(case.forms), case.likelihood.least
    start = np.where(np.isinf(least), 0.0, 9.0 - np.arange(len(least)))  # not even in order
    thresholds, here = case.problem.minimise_threshold(forms, start, 1e-10)
    held = thresholds == least
    assert np.all(thresholds >= least)
    assert np.all(here.slopes[held] >= 0.0)
    assert np.abs(here.slopes[~held]).max(initial=0.0) <= 1e-8
    assert here.loss == pytest.approx(risk(case, forms, thresholds), rel=1e-10)
    rng = np.random.default_rng(0)
    for size in (1e-3, 0.1):
        for _ in range(10):
            other = np.maximum(thresholds + size * rng.standard_normal(len(least)), least)
            if case.likelihood.is_feasible(other):
                assert here.loss <= risk(case, forms, other) + 1e-14


def test_no_thresholds_are_best_as_they_are():
    case = make("comparisons")
    thresholds, here = case.problem.minimise_threshold(case.forms, np.empty(0))
    assert len(thresholds) == 0
    assert here.loss == pytest.approx(risk(case, case.forms, np.empty(0)))
