"""Likelihoods: against plain sums and finite differences, and their best thresholds against a search."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from closefar.noise import NOISES
from closefar.rows import Differences, source
from closefar.solve import CloseFar
from closefar.solve import likelihood as likelihoods
from closefar.solve.flips import FlipAnswers, FlippedCloseFar, SharedRate, SoftCloseFar, _undecided
from closefar.solve.likelihood import Terms, _Store

N = 400
RNG = np.random.default_rng(0)
ROWS = Differences(np.zeros((N, 1)))  # a likelihood never looks at the rows themselves
SQUARED = RNG.gamma(2.0, 1.5, N)
SIGNS = np.where(SQUARED + RNG.logistic(scale=1.0, size=N) > 4.0, 1.0, -1.0)
SIGNS[::9] *= -1.0
WEIGHTS = RNG.uniform(0.1, 3.0, N)
WEIGHTS /= WEIGHTS.sum()
FLIPPED = RNG.uniform(0.0, 0.9, N)
TAU = np.array([2.9])


@pytest.fixture(params=sorted(NOISES))
def noise(request):
    return NOISES[request.param]


@pytest.fixture(params=["plain", "flipped", "soft"])
def likelihood(request, noise):
    return {
        "plain": lambda: CloseFar(noise, SIGNS, WEIGHTS),
        "flipped": lambda: FlippedCloseFar(noise, SIGNS, WEIGHTS, 0.07),
        "soft": lambda: SoftCloseFar(noise, SIGNS, WEIGHTS, FLIPPED),
    }[request.param]()


def plain_losses(likelihood, squared, tau):
    """-log P(label) of each row, written out."""
    margin = SIGNS * (squared - tau)
    right, wrong = likelihood.noise.cdf(margin), likelihood.noise.cdf(-margin)
    if isinstance(likelihood, FlippedCloseFar):
        return -np.log((1.0 - likelihood.flip_rate) * right + likelihood.flip_rate * wrong)
    if isinstance(likelihood, SoftCloseFar):
        return -(1.0 - FLIPPED) * np.log(right) - FLIPPED * np.log(wrong)
    return -np.log(right)


def evaluate(likelihood, squared=SQUARED, tau=TAU, order=2):
    return likelihood.evaluate(ROWS, squared, np.asarray(tau), order)


def test_the_loss_is_the_weighted_sum(likelihood):
    expected = WEIGHTS @ plain_losses(likelihood, SQUARED, 2.9)
    assert evaluate(likelihood).loss == pytest.approx(expected, rel=1e-12)
    assert evaluate(likelihood, order=1).loss == pytest.approx(expected, rel=1e-12)


def test_first_derivatives_are_finite_differences(likelihood):
    here, h = evaluate(likelihood, order=1), 1e-6
    ahead, behind = (plain_losses(likelihood, SQUARED + step, 2.9) for step in (h, -h))
    np.testing.assert_allclose(here.margin_gradient, WEIGHTS * (ahead - behind) / (2 * h), rtol=1e-5, atol=1e-9)
    later, earlier = (WEIGHTS @ plain_losses(likelihood, SQUARED, 2.9 + step) for step in (h, -h))
    np.testing.assert_allclose(here.slopes, [(later - earlier) / (2 * h)], rtol=1e-5)


def test_second_derivatives(likelihood):
    """Of a convex loss they are finite differences; that of the flipped one is Fisher's information."""
    curvature = evaluate(likelihood).curvature
    if isinstance(likelihood, FlippedCloseFar):
        q, noise = likelihood.flip_rate, likelihood.noise
        far = q + (1 - 2 * q) * noise.cdf(SQUARED - 2.9)
        expected = WEIGHTS * ((1 - 2 * q) * noise.pdf(SQUARED - 2.9)) ** 2 / (far * (1 - far))
    else:
        h = 1e-6
        ahead, behind = (evaluate(likelihood, SQUARED + step, order=1).margin_gradient for step in (h, -h))
        expected = (ahead - behind) / (2 * h)
    np.testing.assert_allclose(curvature.distance, expected, rtol=1e-4, atol=1e-9)
    (cross,) = curvature.crosses
    np.testing.assert_allclose(cross, -expected, rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(curvature.thresholds, [[expected.sum()]], rtol=1e-6)


def test_without_second_order_there_is_no_curvature(likelihood):
    with pytest.raises(ValueError, match=r"order 1\. Use order=2"):
        _ = evaluate(likelihood, order=1).curvature


def test_the_least_margin_says_whether_every_label_is_right(noise):
    margin = SIGNS * (SQUARED - 2.9)
    assert evaluate(CloseFar(noise, SIGNS, WEIGHTS)).least_margin == margin.min()
    right = np.where(SQUARED > 2.9, 1.0, -1.0)
    assert evaluate(CloseFar(noise, right, WEIGHTS)).least_margin > 0.0
    # A flipped label is on the wrong side, and rightly so.
    assert evaluate(FlippedCloseFar(noise, right, WEIGHTS, 0.1)).least_margin == -np.inf
    assert evaluate(SoftCloseFar(noise, right, WEIGHTS, FLIPPED)).least_margin == -np.inf


def test_parts_make_no_difference(likelihood, monkeypatch):
    whole = evaluate(likelihood)
    monkeypatch.setattr(source, "PART_ROWS", 97)
    parts = evaluate(likelihood)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-13)
    assert parts.least_margin == whole.least_margin
    np.testing.assert_allclose(parts.slopes, whole.slopes, rtol=1e-11)
    np.testing.assert_array_equal(parts.margin_gradient, whole.margin_gradient)
    np.testing.assert_array_equal(parts.curvature.distance, whole.curvature.distance)


def test_second_derivatives_in_several_thresholds_are_put_together(rng):
    def terms(size, n_crosses=2):
        crosses = tuple(rng.standard_normal((n_crosses, size)))
        return Terms(0.0, np.zeros(2), 0.0, np.zeros(size), rng.uniform(size=size), crosses, rng.uniform(size=(2, 2)))

    parts = [terms(3), terms(1), terms(2)]
    joined = _Store(ROWS, None, 2).joined(parts)
    np.testing.assert_array_equal(joined.curvature, np.concatenate([part.curvature for part in parts]))
    np.testing.assert_array_equal(joined.crosses, np.hstack([part.crosses for part in parts]))
    np.testing.assert_allclose(
        joined.curvatures, parts[0].curvatures + parts[1].curvatures + parts[2].curvatures, rtol=1e-15
    )
    with pytest.raises(ValueError, match="zip"):
        _Store(ROWS, None, 2).joined([terms(3), terms(3, n_crosses=1)])


def test_weights_and_trend(likelihood):
    np.testing.assert_array_equal(likelihood.weights, WEIGHTS)
    np.testing.assert_array_equal(likelihood.trend(ROWS), SIGNS * WEIGHTS)


def test_a_part_of_the_rows_has_weights_that_sum_to_one(likelihood):
    indices = np.arange(0, N, 5)
    few, arrays = ROWS.take(indices, *likelihood.row_arrays)
    taken = likelihood.of_sample(few, arrays)
    assert type(taken) is type(likelihood)
    np.testing.assert_allclose(taken.weights, WEIGHTS[indices] / WEIGHTS[indices].sum(), rtol=1e-13)
    np.testing.assert_array_equal(taken.signs, SIGNS[indices])
    expected = taken.weights @ plain_losses(likelihood, SQUARED, 2.9)[indices]
    assert taken.evaluate(few, SQUARED[indices], TAU, 1).loss == pytest.approx(expected, rel=1e-12)


# The best threshold


def best(likelihood, squared=SQUARED, start=0.0, least=0.0, tol=1e-15):
    thresholds, here = likelihood.best_thresholds(ROWS, squared, np.array([start]), np.array([least]), tol)
    return float(thresholds[0]), here


def minimiser(likelihood, squared, low, high):
    return minimize_scalar(
        lambda t: WEIGHTS @ plain_losses(likelihood, squared, t), bounds=(low, high), method="bounded",
        options={"xatol": 1e-10},
    )  # fmt: skip


def test_the_best_threshold_is_the_minimiser(likelihood):
    threshold, here = best(likelihood)
    found = minimiser(likelihood, SQUARED, 0.0, 8.0)
    assert threshold > 0.0
    assert threshold == pytest.approx(found.x, abs=1e-6)
    assert here.loss <= found.fun + 1e-14
    assert abs(here.slopes[0]) <= 1e-12
    assert here.loss == pytest.approx(evaluate(likelihood, tau=[threshold]).loss, rel=1e-14)
    np.testing.assert_allclose(here.curvature.distance, evaluate(likelihood, tau=[threshold]).curvature.distance)


@pytest.mark.parametrize("start", [0.0, 1e-3, 40.0, 1e4, 1e12, 1e50])
def test_it_does_not_depend_on_the_start(noise, start):
    likelihood = CloseFar(noise, SIGNS, WEIGHTS)
    threshold, here = best(likelihood, start=start)
    assert threshold == pytest.approx(best(likelihood, start=1.0)[0], abs=1e-9)
    assert here.loss == pytest.approx(evaluate(likelihood, tau=[threshold]).loss, rel=1e-14)


@pytest.mark.parametrize("size", [1e-30, 1e6, 1e12])
def test_it_is_found_among_distances_of_any_size(noise, size):
    likelihood, squared = CloseFar(noise, SIGNS, WEIGHTS), size * SQUARED
    threshold, here = best(likelihood, squared, start=1.0)
    exact = evaluate(likelihood, squared, [threshold])
    assert here.loss == pytest.approx(exact.loss, rel=1e-14)
    grid = np.append(np.quantile(squared, np.linspace(0, 1, 201)), 0.0)
    assert exact.loss <= min(evaluate(likelihood, squared, [t]).loss for t in grid) * (1.0 + 1e-12)


def test_the_tolerance_is_kept_and_not_overdone(noise, monkeypatch):
    likelihood = CloseFar(noise, SIGNS, WEIGHTS)
    calls = []
    evaluated = CloseFar.evaluate
    monkeypatch.setattr(CloseFar, "evaluate", lambda *args, **kwargs: calls.append(1) or evaluated(*args, **kwargs))
    n_calls = []
    for tol in (1e-2, 1e-6, 1e-12):
        calls.clear()
        assert abs(best(likelihood, start=5.0, tol=tol)[1].slopes[0]) <= tol
        n_calls.append(len(calls))
    assert n_calls == sorted(n_calls)
    assert n_calls[0] < n_calls[-1] <= 30


def test_a_slope_of_the_tolerance_is_small_enough(likelihood):
    slope = abs(evaluate(likelihood, tau=[5.0]).slopes[0])
    assert best(likelihood, start=5.0, tol=slope)[0] == 5.0
    threshold, here = best(likelihood, start=5.0, tol=0.99 * slope)
    assert threshold != 5.0
    assert abs(here.slopes[0]) <= 0.99 * slope


@pytest.mark.parametrize("least", [-np.inf, 0.0, 2.0])
def test_where_steps_run_out_it_is_evaluated_where_it_is(likelihood, least, monkeypatch):
    before = evaluate(likelihood, tau=[5.0]).loss
    for most in (0, 1, 2):
        monkeypatch.setattr(likelihoods, "_MOST_SEARCH_STEPS", most)
        threshold, here = best(likelihood, start=5.0, least=least, tol=0.0)
        assert (threshold == 5.0) == (most == 0)
        exact = evaluate(likelihood, tau=[threshold])
        assert (here.loss, here.slopes) == (exact.loss, exact.slopes)
        np.testing.assert_array_equal(here.curvature.distance, exact.curvature.distance)
        assert here.loss <= before


def test_the_first_step_is_newtons_or_to_the_least(likelihood, monkeypatch):
    monkeypatch.setattr(likelihoods, "_MOST_SEARCH_STEPS", 1)
    here = evaluate(likelihood, tau=[4.5])
    newton = 4.5 - here.slopes[0] / here.curvature.thresholds[0, 0]
    assert 0.0 < newton < 4.4
    assert best(likelihood, start=4.5)[0] == pytest.approx(newton, rel=1e-14)
    assert best(likelihood, start=4.5, least=4.4)[0] == 4.4


@pytest.mark.parametrize(("name", "first"), [("logistic", 0.0), ("laplace", 0.0), ("hypsecant", 250.0)])
def test_from_a_flat_tail_it_goes_to_the_least_or_to_the_middle(name, first, monkeypatch):
    """There the curvature is next to nothing: a Newton step leads beyond all bounds; where it is zero there is none."""
    likelihood, lowest, highest = CloseFar(NOISES[name], SIGNS, WEIGHTS), SQUARED.min() - 1e3, SQUARED.max() + 1e3
    monkeypatch.setattr(likelihoods, "_MOST_SEARCH_STEPS", 1)
    assert best(likelihood, start=500.0)[0] == first
    middle = 0.5 * (lowest + 500.0)
    assert best(likelihood, start=500.0, least=-np.inf)[0] == pytest.approx(middle, rel=1e-14)
    assert best(likelihood, start=-500.0, least=-np.inf)[0] == pytest.approx(0.5 * (highest - 500.0), rel=1e-14)
    monkeypatch.setattr(likelihoods, "_MOST_SEARCH_STEPS", 2)
    assert best(likelihood, start=500.0, least=-np.inf)[0] == pytest.approx(0.5 * (middle + 500.0), rel=1e-14)


@pytest.mark.parametrize("name", ["logistic", "laplace"])
def test_no_end_of_the_bracket_is_tried_twice(name, monkeypatch):
    """Distances near 300 lie between flat tails: one leads to the least, the other nowhere, so the middle is next."""
    likelihood = CloseFar(NOISES[name], SIGNS, WEIGHTS)
    for most, expected in enumerate((900.0, 0.0, 450.0, 225.0)):
        monkeypatch.setattr(likelihoods, "_MOST_SEARCH_STEPS", most)
        assert best(likelihood, SQUARED + 300.0, start=900.0)[0] == expected


@pytest.mark.parametrize(
    ("start", "least", "expected"),
    [
        (1e9, 0.0, SQUARED.max() + 1e3),
        (-1e9, -np.inf, SQUARED.min() - 1e3),
        (-1e9, 0.0, 0.0),
        (-1e9, 0.7, 0.7),
        (0.0, 1e9, 1e9),
        (900.0, 0.0, 900.0),
        (-900.0, -np.inf, -900.0),
    ],
)
def test_a_start_is_brought_near_the_distances_and_to_the_least(noise, start, least, expected):
    threshold, here = best(CloseFar(noise, SIGNS, WEIGHTS), start=start, least=least, tol=np.inf)
    assert threshold == pytest.approx(expected, rel=1e-14)
    assert here.loss == evaluate(CloseFar(noise, SIGNS, WEIGHTS), tau=[threshold]).loss


@pytest.mark.parametrize("start", [0.0, 3.0, 6.0])
def test_it_ends_where_no_number_is_better(likelihood, start, monkeypatch):
    calls, evaluated = [], type(likelihood).evaluate
    monkeypatch.setattr(
        type(likelihood), "evaluate", lambda *args, **kwargs: calls.append(1) or evaluated(*args, **kwargs)
    )
    threshold, here = best(likelihood, start=start, tol=0.0)
    assert len(calls) < 150
    assert abs(here.slopes[0]) <= 1e-14
    assert threshold == pytest.approx(minimiser(likelihood, SQUARED, 0.0, 8.0).x, abs=1e-6)


def test_it_stops_at_the_least_where_that_is_best(noise):
    all_far = CloseFar(noise, np.ones(N), WEIGHTS)
    for start in (0.0, 3.0):
        threshold, here = best(all_far, start=start)
        assert threshold == 0.0
        assert here.slopes[0] > 0.0
    assert here.loss == pytest.approx(min(evaluate(all_far, tau=[t]).loss for t in np.linspace(0, 5, 21)), rel=1e-14)
    assert best(all_far, start=3.0, least=0.5)[0] == 0.5


def test_without_a_least_it_may_be_negative(noise):
    signs = np.where(np.arange(N) % 20 == 0, -1.0, 1.0)
    likelihood = CloseFar(noise, signs, WEIGHTS)
    threshold, here = best(likelihood, 0.1 * SQUARED, start=1.0, least=-np.inf)
    found = minimize_scalar(
        lambda t: evaluate(likelihood, 0.1 * SQUARED, [t], order=1).loss, bounds=(-50.0, 50.0), method="bounded",
        options={"xatol": 1e-10},
    )  # fmt: skip
    assert threshold < 0.0
    assert threshold == pytest.approx(found.x, abs=1e-6)
    assert abs(here.slopes[0]) <= 1e-12


# Flips


def best_flip_rate(rows, right, weights):
    answers = FlipAnswers(rows, right, None, weights, None, 2, 0)
    return SharedRate(np.zeros(1)).best(answers).flip_rate(2)


def test_best_flip_rate_is_the_maximum(noise):
    right = noise.cdf(np.random.default_rng(1).normal(1.0, 3.0, N))

    def loss(rate):
        return -np.sum(WEIGHTS * np.log(rate + (1.0 - 2.0 * rate) * right))

    found = minimize_scalar(loss, bounds=(0.0, 0.499), method="bounded", options={"xatol": 1e-10}).x
    assert best_flip_rate(ROWS, right, WEIGHTS) == pytest.approx(found, abs=1e-6)
    assert best_flip_rate(ROWS, np.full(N, 0.9), WEIGHTS) == 0.0
    assert best_flip_rate(ROWS, np.zeros(N), WEIGHTS) == pytest.approx(0.499)
    assert best_flip_rate(ROWS, np.full(N, 0.5), WEIGHTS) == 0.0  # any rate is as good


@pytest.mark.parametrize("share", [1e-6, 0.1, 0.3, 0.498])
def test_where_labels_are_surely_right_or_wrong_the_rate_is_the_share_of_the_wrong(share):
    """(1 - s) log(1 - q) + s log q is largest at q = s."""
    right, weights = np.array([1.0, 1.0, 0.0, 0.0]), np.array([1.0 - share, 0.0, 0.5 * share, 0.5 * share])
    assert best_flip_rate(Differences(np.zeros((4, 1))), right, weights) == pytest.approx(share, abs=2e-12)


def test_the_best_rate_at_given_distances(noise):
    plain = FlippedCloseFar(noise, SIGNS, WEIGHTS, 0.0)
    rate = plain.with_best_rates(ROWS, SQUARED, TAU).flip_rate
    losses = [
        evaluate(plain.with_rates(np.array([2.0 * r])), order=1).loss
        for r in (rate, max(rate - 0.01, 0.0), rate + 0.01)
    ]
    assert losses[0] == min(losses)
    assert rate == pytest.approx(best_flip_rate(ROWS, noise.cdf(SIGNS * (SQUARED - 2.9)), WEIGHTS), abs=1e-15)


def test_labels_are_undecided_near_the_threshold(noise):
    mixture = FlippedCloseFar(noise, SIGNS, WEIGHTS, 0.1)
    for squared, expected in ((2.9, 1.0), (1e3, 0.0)):
        right = mixture.right(ROWS, np.full(N, squared), TAU)
        assert ROWS.total(ROWS.map(_undecided, right, mixture.weights)) == pytest.approx(expected, abs=1e-12)


def test_softened_labels_touch_the_mixture_from_above(noise):
    """The bound of expectation-maximisation: the same slope here, and never below elsewhere."""
    mixture = FlippedCloseFar(noise, SIGNS, WEIGHTS, 0.12)
    soft = mixture.softened(ROWS, SQUARED, TAU)
    np.testing.assert_allclose(evaluate(soft).margin_gradient, evaluate(mixture).margin_gradient, rtol=1e-9, atol=1e-12)
    excess = evaluate(soft).loss - evaluate(mixture).loss
    for squared in (0.5 * SQUARED, SQUARED + 0.3, SQUARED[::-1]):
        assert evaluate(soft, squared).loss - evaluate(mixture, squared).loss >= excess - 1e-12
