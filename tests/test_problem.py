"""The problem of a metric: sums over rows against plain ones, its passes, and parts of the rows."""

import tracemalloc
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from closefar import packed
from closefar.noise import NOISES
from closefar.rows import Differences, Trait, blocks, source, unit_free
from closefar.solve import Answers, Likelihood, Passes, Problem, SharedRate
from closefar.solve.problem import Cone, _random_rows, enough_for_hessian, share_for_hessian

N, D, K = 1500, 5, 3
FACTOR = 0.6 * np.random.default_rng(1).standard_normal((D, K))
MATRIX = FACTOR @ FACTOR.T
TAU = np.array([0.9])


def likelihood_of(codes, weights, noise="logistic", n_levels=2, **more):
    return Likelihood(NOISES[noise], Answers.of(n_levels), codes, weights / weights.sum(), **more)


def make(n=N, d=D, *, noise="logistic", weighted=False, seed=0, **more):
    """The problem of close/far labels of rows in unit-free coordinates."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) * np.logspace(-3, 3, d)
    codes = (rng.uniform(size=n) < 0.4).astype(int)
    weights = rng.uniform(0.1, 3.0, n) if weighted else np.ones(n)
    rows, _ = unit_free(Differences(z), weights / weights.sum())
    return Problem.of(rows, likelihood_of(codes, weights, noise), **more)


@pytest.fixture(params=[(noise, weighted) for noise in sorted(NOISES) for weighted in (False, True)], ids=str)
def problem(request):
    noise, weighted = request.param
    return make(noise=noise, weighted=weighted)


def rows_of(problem):
    return problem.rows.read(slice(0, problem.n_judgements)).T


def plain_loss(problem, matrix, tau):
    margin = np.array([row @ matrix @ row for row in rows_of(problem)]) - tau
    likelihood = problem.likelihood
    signs = np.where(likelihood.codes == 1, 1.0, -1.0)
    return np.sum(likelihood.weights * likelihood.noise.neg_log_cdf(signs * margin))


def derivative(function, step=1e-5):
    return (function(step) - function(-step)) / (2.0 * step)


def symmetric(seed, d=D):
    matrix = np.random.default_rng(seed).standard_normal((d, d))
    return 0.5 * (matrix + matrix.T)


def close(result, expected, rtol=1e-11):
    expected = np.asarray(expected)
    np.testing.assert_allclose(result, expected, rtol=0, atol=rtol * np.abs(expected).max())


def test_loss_and_gradient_in_m(problem):
    here = problem.at(MATRIX, TAU)
    assert here.value == pytest.approx(plain_loss(problem, MATRIX, 0.9), rel=1e-12)
    np.testing.assert_array_equal(here.gradient, here.gradient.T)
    for seed in range(3):
        step = symmetric(seed)
        slope = derivative(lambda t, step=step: plain_loss(problem, MATRIX + t * step, 0.9))
        assert np.sum(here.gradient * step) == pytest.approx(slope, rel=1e-6, abs=1e-8)
    expected = derivative(lambda t: plain_loss(problem, MATRIX, 0.9 + t))
    assert here.slopes[0] == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_the_pass_in_parts_is_the_pass_in_one(problem):
    here = problem.at(MATRIX, TAU)
    parts = problem.evaluate(problem.forms(MATRIX), TAU, order=2)
    assert parts.loss == pytest.approx(here.value, rel=1e-13)
    close(parts.curvature.distance, here.evaluation.curvature.distance)
    close(problem.outer(parts.margin_gradient), here.gradient)
    known = problem.known(MATRIX, TAU, parts)
    close(known.gradient, here.gradient)
    assert known.evaluation.margin_gradient is None  # which nothing needs any more
    close(problem.squared_distances(FACTOR), problem.forms(MATRIX))


def test_gradient_in_the_factor(problem):
    here = problem.evaluate(problem.squared_distances(FACTOR), TAU)
    gradient = 2.0 * problem.backward(problem.forward(FACTOR), here.margin_gradient)
    close(gradient, 2.0 * problem.outer(here.margin_gradient) @ FACTOR)
    step = np.random.default_rng(4).standard_normal((D, K))
    slope = derivative(lambda t: plain_loss(problem, (FACTOR + t * step) @ (FACTOR + t * step).T, 0.9))
    assert np.sum(gradient * step) == pytest.approx(slope, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("has_constant", [False, True])
def test_the_penalty_is_on_the_trace_of_what_it_may_shrink(has_constant):
    """With a penalty, an origin is part of M; without one its border is free, and not part of the trace."""
    z = np.column_stack([np.random.default_rng(0).standard_normal((60, 2)), np.ones(60)])
    likelihood = likelihood_of(np.arange(60) % 2, np.ones(60))
    matrix = np.array([[1.0, 0.2, 0.3], [0.2, 2.0, -0.4], [0.3, -0.4, 0.7]])
    plain = Problem.of(Differences(z), likelihood, has_constant=has_constant)
    penalised = Problem.of(Differences(z), likelihood, 0.1, has_constant=has_constant)
    assert plain.cone.has_constant == has_constant
    assert not penalised.cone.has_constant
    assert plain.cone.least.tolist() == ([-np.inf] if has_constant else [0.0])
    assert (Trait.FACTORS in plain.traits) != has_constant
    here, there = plain.at(matrix, TAU), penalised.at(matrix, TAU)
    assert there.value == pytest.approx(here.value + 0.1 * 3.7, rel=1e-14)
    np.testing.assert_allclose(there.gradient, here.gradient + 0.1 * np.eye(3), atol=1e-15)
    assert plain.cone.trace(matrix) == pytest.approx(3.0 if has_constant else 3.7)


def test_hessian_product_is_the_finite_difference_of_the_gradient(problem, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)  # several blocks
    step, shift = symmetric(6), np.array([0.7])
    curvature = problem.at(MATRIX, TAU).evaluation.curvature
    product, product_t = problem.hessian_product(step, shift, curvature)

    def moved(t):
        return problem.at(MATRIX + t * step, TAU + t * shift)

    close(product, derivative(lambda t: moved(t).gradient, step=1e-6), rtol=1e-5)
    expected = derivative(lambda t: moved(t).slopes, step=1e-6)
    np.testing.assert_allclose(product_t, expected, rtol=1e-5, atol=1e-7)


def test_the_dense_hessian_is_the_product_in_every_direction(problem):
    curvature = problem.at(MATRIX, TAU).evaluation.curvature
    hessian = problem.hessian(curvature)
    close(hessian, hessian.T, rtol=1e-14)
    assert np.linalg.eigvalsh(hessian)[0] >= -1e-12
    columns = [
        packed.join(*problem.hessian_product(*packed.split(direction, D), curvature))
        for direction in np.eye(len(hessian))
    ]
    close(hessian, np.array(columns))
    close(problem.hessian(curvature, rough=True), hessian, rtol=1e-5)


class Forgetful(Differences):
    """Rows that keep nothing of a sweep, as kernels do."""

    def sweep(self, function, matrix, *arrays):
        found, gradient = super().sweep(function, matrix, *arrays)
        return found._replace(arrays=()), gradient


def test_a_curvature_that_a_sweep_did_not_keep_is_computed_once_when_it_is_needed():
    kept = make(200)
    problem = replace(kept, rows=Forgetful(rows_of(kept)), passes=Passes())
    curvature = problem.at(MATRIX, TAU).evaluation.curvature
    assert problem.passes.count == 1.0
    expected = kept.at(MATRIX, TAU).evaluation.curvature
    close(problem.hessian(curvature), kept.hessian(expected))
    product, _ = problem.hessian_product(symmetric(3), np.array([0.3]), curvature)
    close(product, kept.hessian_product(symmetric(3), np.array([0.3]), expected)[0])
    assert curvature.arrays[0] is curvature.arrays[0]
    np.testing.assert_array_equal(curvature.thresholds, expected.thresholds)


def test_mean_and_spread(problem):
    squared, weights = problem.squared_distances(FACTOR), problem.likelihood.weights
    mean = weights @ squared
    assert problem.mean_and_spread(squared) == pytest.approx((mean, np.sqrt(weights @ (squared - mean) ** 2)))


def test_neither_a_problem_nor_what_it_finds_can_be_changed():
    problem = make(100)
    for each, name in ((problem, "passes"), (problem.evaluate(np.ones(100), TAU), "loss"), (problem.cone, "least")):
        with pytest.raises(FrozenInstanceError):
            setattr(each, name, None)
    with pytest.raises(FrozenInstanceError):
        problem.at(MATRIX, TAU).matrix = None


@pytest.mark.parametrize("n_groups", [0, 3])
def test_a_dual_value_bounds_the_optimum_from_below(n_groups):
    """At any point with a gradient in the dual cone; the slopes of strictness pay by its prior instead."""
    rng = np.random.default_rng(0)
    z, groups = rng.standard_normal((120, 2)), rng.integers(0, max(n_groups, 1), 120)
    codes = (z[:, 0] ** 2 + rng.logistic(size=120) > 1.0).astype(int)
    more = {"groups": groups, "n_groups": n_groups, "precision": 0.05} if n_groups else {}
    # The gradient plus this multiple of the identity is in the dual cone at each M, and the optimum is M = 0.
    problem = Problem.of(Differences(z), likelihood_of(codes, np.ones(120), **more), 2.0)
    best, evaluation = problem.minimise_threshold(np.zeros(120), np.append(0.5, np.zeros(n_groups)))
    least = problem.value(evaluation, np.zeros((2, 2)))
    assert problem.at(np.zeros((2, 2)), best).dual_value == pytest.approx(least, abs=1e-12)
    for _ in range(50):
        factor, thresholds = 0.3 * rng.standard_normal((2, 2)), best + rng.standard_normal(1 + n_groups)
        thresholds[0] = 3.0 + abs(thresholds[0])  # where its slope is positive
        here = problem.at(factor @ factor.T, thresholds)
        assert problem.cone.violations(here.gradient, here.unpaid_slopes) == (0.0, 0.0)
        assert here.dual_value <= least <= here.value


# A part of the rows.


def test_a_sample_is_a_share_of_the_rows():
    problem = make(8000, weighted=True)
    few = problem.sample(0.125, np.random.default_rng(0))
    chosen = np.random.default_rng(0).random(8000) < 0.125
    assert few.n_judgements == chosen.sum()
    np.testing.assert_array_equal(rows_of(few), rows_of(problem)[chosen])
    np.testing.assert_array_equal(few.likelihood.codes, problem.likelihood.codes[chosen])
    assert few.likelihood.weights.sum() == pytest.approx(1.0)
    assert (few.alpha, few.cone) == (problem.alpha, problem.cone)


def test_a_sample_of_one_class_is_none():
    problem = make(100)
    one_sided = problem.with_likelihood(likelihood_of(np.ones(100, dtype=int), np.ones(100)))
    assert one_sided.sample(0.5, np.random.default_rng(0)) is None
    assert problem.sample(0.5, np.random.default_rng(0)) is not None


def test_very_many_rows_are_drawn_without_a_number_for_each():
    n, share = 1 << 25, 1e-3
    found = _random_rows(n, share, np.random.default_rng(0))
    assert np.all(np.diff(found) > 0)
    assert found[0] >= 0
    assert found[-1] < n
    assert len(found) == pytest.approx(share * n, rel=0.03)
    assert np.histogram(found, bins=4, range=(0, n))[0] == pytest.approx([len(found) / 4] * 4, rel=0.05)


def test_passes_over_a_sample_are_shared_with_the_whole():
    problem = make(1000)
    few = problem.sample(0.25, np.random.default_rng(0))
    few.at(MATRIX, TAU)
    assert (few.passes.count, problem.passes.count) == (1.0, 0.25)


@pytest.mark.parametrize(
    ("n", "d", "share", "is_enough"),
    [
        (10**6, 10, 128 * 55 / 10**6, True),  # 128 judgements for each of 55 parameters
        (10**5, 10, 1 / 24, True),  # no more than takes little time
        (2 * 10**4, 10, 32 * 55 / (2 * 10**4), True),  # but at least 32
        (10**4, 10, 1 / 6, False),  # more than a sixth would be needed
        (6 * 32 * 55, 10, 1 / 6, True),
    ],
)
def test_a_hessian_needs_a_number_of_judgements_for_each_parameter(n, d, share, is_enough):
    problem = Problem.of(Differences(np.zeros((n, d))), likelihood_of(np.arange(n) % 2, np.ones(n)))
    assert share_for_hessian(problem) == pytest.approx(share)
    assert enough_for_hessian(problem) == is_enough
    with_annotators = replace(problem.likelihood, groups=np.arange(n) % 16, n_groups=16)  # 17 thresholds
    assert not enough_for_hessian(problem.with_likelihood(with_annotators))


# Passes.


def test_passes_are_counted(problem):
    passes, before = problem.passes, problem.passes.count
    here = problem.at(np.eye(D), TAU).evaluation
    assert passes.count - before == pytest.approx(1.0)
    problem.outer(np.ones(N))
    problem.forms(np.eye(D))
    assert passes.count - before == pytest.approx(2.0)
    problem.squared_distances(FACTOR)
    problem.backward(problem.forward(FACTOR), np.ones(N))
    assert passes.count - before == pytest.approx(2.0 + 1.5 * K / D)
    problem.evaluate(problem.squared_distances(np.empty((D, 0))), TAU)
    assert passes.count - before == pytest.approx(2.0 + 1.5 * K / D)
    problem.hessian_product(MATRIX, TAU, here.curvature)
    problem.rotated_moments(here.curvature, np.eye(D))
    assert passes.count - before == pytest.approx(4.0 + 1.5 * K / D)
    problem.hessian(here.curvature)
    whole = 15 * 15 / (4 * D * D)
    assert passes.count - before == pytest.approx(4.0 + 1.5 * K / D + whole)
    problem.sampled_hessian(MATRIX, TAU, np.arange(0, N, 3), np.ones(N // 3))
    assert passes.count - before == pytest.approx(4.0 + 1.5 * K / D + whole + (0.5 + whole) / 3)


def test_the_strictness_of_annotators_costs_a_hessian_one_more_pass():
    problem = make(100)
    annotated = problem.with_likelihood(replace(problem.likelihood, groups=np.arange(100) % 4, n_groups=4))
    here = annotated.evaluate(np.ones(100), np.append(TAU, np.zeros(4)), order=2)
    annotated.hessian(here.curvature)
    assert annotated.passes.count == pytest.approx(15 * 15 / (4 * D * D) + 1.0)


def test_passes_over_a_part_count_as_that_part():
    whole = Passes()
    part = whole.of_part(0.125)
    part.add(4.0)
    whole.add(1.0)
    assert (part.count, whole.count) == (4.0, 1.5)
    part.of_part(0.5).add(2.0)
    assert (part.count, whole.count) == (5.0, 1.625)
    Passes(whole).add(1.0)
    assert whole.count == 2.625


def test_likelihoods_of_the_same_rows_share_the_count():
    problem = make(100)
    problem.with_likelihood(likelihood_of(problem.likelihood.codes, np.ones(100), "normal")).forms(MATRIX)
    assert problem.passes.count == 0.5


def test_traits_are_those_of_rows_likelihood_and_cone():
    problem = make(100)
    assert {Trait.PROJECTIONS, Trait.CONVEX, Trait.TANGENTS, Trait.FACTORS} <= problem.traits
    with_flips = problem.with_likelihood(problem.likelihood.with_flips(SharedRate(np.array([0.1]))))
    assert not {Trait.CONVEX, Trait.TANGENTS} & with_flips.traits
    assert Trait.FACTORS not in replace(problem, cone=Cone(D, np.zeros(1), has_constant=True)).traits


def test_no_temporary_is_larger_than_a_few_blocks():
    problem = make(200_000, 20)
    tracemalloc.start()
    try:
        problem.at(0.01 * np.eye(20), TAU)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * 8 * 200_000 * 20


@pytest.mark.parametrize("n_levels", [0, 2, 3, 4])
def test_a_hessian_of_any_number_of_thresholds(n_levels, monkeypatch):
    """In several blocks and parts it is that in one."""
    rng, n, n_thresholds = np.random.default_rng(9), 150, max(n_levels - 1, 0)
    answers = Answers.of(n_levels, compares=n_levels == 0)
    likelihood = Likelihood(NOISES["normal"], answers, np.arange(n) % answers.n_answers, np.full(n, 1.0 / n))
    problem = Problem.of(Differences(rng.standard_normal((n, D))), likelihood)
    taus = 0.8 * np.arange(1.0, n_thresholds + 1.0)
    expected = problem.hessian(problem.at(MATRIX, taus).evaluation.curvature)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)
    monkeypatch.setattr(source, "PART_ROWS", 60)
    curvature = problem.at(MATRIX, taus).evaluation.curvature
    close(problem.hessian(curvature), expected)
    shifts = rng.standard_normal(n_thresholds)
    found = packed.join(*problem.hessian_product(symmetric(8), shifts, curvature))
    close(found, expected @ packed.join(symmetric(8), shifts))
    basis = np.linalg.qr(symmetric(7))[0]
    diagonal = np.array([packed.pack(np.outer(vector, vector)) for vector in basis.T])
    fourth, mixed = problem.rotated_moments(curvature, basis)
    close(fourth, diagonal @ expected[:15, :15] @ diagonal.T)
    np.testing.assert_allclose(mixed, diagonal @ expected[:15, 15:], rtol=1e-9)
