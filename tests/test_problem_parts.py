"""The parts of a problem: its feasible set, its best thresholds, and where searches start."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize, nnls

from closefar.noise import NOISES
from closefar.rows import Differences
from closefar.solve import Answers, Likelihood, Problem, psd_factor
from closefar.solve import problem as problem_module
from closefar.solve.likelihood import best_several
from closefar.solve.problem import Cone, fit_scale, moment_start, spectral_start
from random_problems import RandomProblem, solved

RNG = np.random.default_rng


def positive_part(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


# The cone


def test_the_cone_of_a_metric():
    cone = Cone(3, np.zeros(1))
    np.testing.assert_array_equal(cone.identity, np.eye(3))
    matrix = np.diag([3.0, -1.0, 2.0])
    assert cone.trace(matrix) == 4.0
    values, vectors = cone.eigen(matrix)
    np.testing.assert_allclose(values, [-1.0, 2.0, 3.0])
    np.testing.assert_allclose((vectors * values) @ vectors.T, matrix, atol=1e-12)
    assert cone.violations(np.diag([1.0, -0.3, 0.0]), np.array([-0.2])) == pytest.approx((0.3, 0.2))
    assert cone.violations(np.eye(3), np.array([0.2])) == (0.0, 0.0)
    assert Cone(3, np.empty(0)).violations(-np.eye(3), np.empty(0)) == (1.0, 0.0)


def test_the_cone_with_free_linear_terms():
    cone = Cone(3, np.array([-np.inf]), has_constant=True)
    assert cone.core == slice(0, 2)
    np.testing.assert_array_equal(cone.identity, np.diag([1.0, 1.0, 0.0]))
    assert cone.trace(np.diag([3.0, 1.0, 7.0])) == 4.0
    values, vectors = cone.eigen(np.diag([3.0, 1.0, 7.0]))
    assert values.tolist() == [1.0, 3.0]
    assert vectors.shape == (3, 2)
    gradient = np.array([[1.0, 0.0, 0.1], [0.0, 2.0, 0.0], [0.1, 0.0, 0.0]])
    assert cone.violations(gradient, np.array([0.05])) == pytest.approx((0.0, 0.1))
    assert cone.violations(gradient, np.array([-0.5])) == pytest.approx((0.0, 0.5))


def test_thresholds_are_held_at_their_least_where_they_would_fall():
    cone = Cone(2, np.zeros(3))
    held = cone.are_held(np.array([0.0, 0.0, 1.0]), np.array([0.1, -0.1, 0.1]))
    assert held.tolist() == [True, False, False]
    assert cone.are_held(np.zeros(3), np.zeros(3)).all()


def test_free_thresholds_are_measured_from_zero():
    np.testing.assert_array_equal(Cone(2, np.array([-np.inf, 3.0, -1.0])).lowest, [0.0, 3.0, -1.0])


def test_psd_factor(rng):
    vectors = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    values = np.array([-1.0, 1e-13, 0.5, 2.0])
    matrix = (vectors * values) @ vectors.T
    factor = psd_factor(matrix)
    assert factor.shape == (4, 2)
    np.testing.assert_allclose(factor @ factor.T, (vectors[:, 2:] * values[2:]) @ vectors[:, 2:].T, atol=1e-12)
    assert np.linalg.norm(factor[:, -1]) > np.linalg.norm(factor[:, 0])
    assert psd_factor(np.diag([1.0, 1e-3]), cutoff=1e-2).shape == (2, 1)
    assert psd_factor(np.diag([1e-15, 0.0])).shape == (2, 0)
    assert psd_factor(np.diag([4.0, 4e-12, 2e-11, 1e-15])).shape == (4, 2)  # up to 1e-12 of the largest is zero
    assert psd_factor(np.diag([0.6e-14, 1.8e-14])).shape == (2, 1)  # and up to 1e-14
    # An asymmetric matrix counts as its symmetric part.
    np.testing.assert_allclose(psd_factor(np.array([[1.0, 1.0], [-1.0, 1.0]])) ** 2, np.eye(2), atol=1e-12)


@pytest.mark.parametrize("has_constant", [False, True])
def test_a_projection_is_onto_the_cone_and_leaves_linear_terms(has_constant, rng):
    given = RandomProblem.of("origin" if has_constant else "close/far", d=3).problem()
    size = given.cone.size
    matrix = rng.standard_normal((size, size))
    matrix = matrix + matrix.T
    projected, squared = given.project(matrix)
    np.testing.assert_allclose(projected[:3, :3], positive_part(matrix[:3, :3]), atol=1e-9)
    np.testing.assert_array_equal(projected[:-1, 3:], matrix[:-1, 3:])
    assert np.all(projected[3:, 3:] == 0.0)
    np.testing.assert_allclose(squared, given.forms(projected), atol=1e-9)
    np.testing.assert_allclose(given.cone.project(matrix), projected, atol=1e-12)


def test_a_projection_leaves_out_small_eigenvalues_and_those_above_a_rank():
    given = RandomProblem.of("close/far", d=3).problem()
    projected, _ = given.project(np.diag([1.0, 0.6e-9, 1.8e-9]))
    np.testing.assert_allclose(projected, np.diag([1.0, 0.0, 1.8e-9]), atol=1e-15)
    matrix = np.diag([2.0, -1.0, 3.0])
    for rank, expected in ((1, [0.0, 0.0, 3.0]), (2, [2.0, 0.0, 3.0]), (3, [2.0, 0.0, 3.0])):
        np.testing.assert_allclose(given.cone.project(matrix, rank), np.diag(expected), atol=1e-15)
    # Linear terms do not count towards the rank.
    free = Cone(3, np.array([-np.inf]), has_constant=True)
    matrix = np.array([[2.0, 0.0, 0.5], [0.0, 1.0, 0.7], [0.5, 0.7, 9.0]])
    expected = np.array([[2.0, 0.0, 0.5], [0.0, 0.0, 0.7], [0.5, 0.7, 0.0]])
    np.testing.assert_allclose(free.project(matrix, 1), expected, atol=1e-15)


# Several thresholds


@pytest.mark.parametrize("excess", [1.0, 6.0])
def test_thresholds_are_found_with_a_curvature_that_is_too_large(excess):
    """With flips, the curvature is the Fisher information, which may be several times the second derivative."""
    hessian, best, n_evaluations = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([1.5, 0.7]), 0

    def evaluate(x):
        nonlocal n_evaluations
        n_evaluations += 1
        slopes = hessian @ (x - best)
        loss = 0.5 * (x - best) @ slopes
        return SimpleNamespace(loss=loss, slopes=slopes, curvature=SimpleNamespace(thresholds=excess * hessian))

    found, here = best_several(evaluate, np.array([9.0, 4.0]), np.zeros(2), 1e-9, is_convex=False)
    assert found == pytest.approx(best, abs=1e-8)
    assert np.abs(here.slopes).max() <= 1e-9
    assert n_evaluations <= 15


def test_thresholds_near_their_bounds_reach_the_minimum():
    # Steps that are cut off at a bound do not lower the loss in 6 of these cases.
    for seed in range(300):
        rng = RNG(seed)
        root = rng.standard_normal((4, 4))
        hessian, middle = root @ root.T + 0.01 * np.eye(4), 3.0 * rng.standard_normal(4)

        def evaluate(x, hessian=hessian, middle=middle):
            slopes = hessian @ (x - middle)
            curvature = SimpleNamespace(thresholds=hessian)
            return SimpleNamespace(loss=float(0.5 * (x - middle) @ slopes), slopes=slopes, curvature=curvature)

        start = np.where(rng.random(4) < 0.5, 1e-9, 1.0)
        _, here = best_several(evaluate, start, np.zeros(4), 1e-9)
        upper = np.linalg.cholesky(hessian).T
        assert here.loss <= evaluate(nnls(upper, upper @ middle)[0]).loss + 1e-9


# Where searches start


def signs_of(judged):
    return np.where(judged.codes % 2 == 1, 1.0, -1.0)


@pytest.mark.parametrize(
    "start", [moment_start, lambda given: spectral_start(given, RNG(0))], ids=["moment", "spectral"]
)
def test_the_start_points_the_right_way(start):
    """For normal rows the moments find the metric up to scale; the scale and the threshold are fitted."""
    rng = RNG(1)
    z, truth = rng.standard_normal((40_000, 3)), np.diag([2.0, 0.5, 0.0])
    codes = (np.sum(z @ truth * z, axis=1) + rng.logistic(size=40_000) > 2.5).astype(float)
    likelihood = Likelihood(NOISES["logistic"], Answers.of(2), codes, np.full(40_000, 1.0 / 40_000))
    given = Problem.of(Differences(z), likelihood)
    matrix, thresholds = start(given)
    np.testing.assert_allclose(matrix / np.trace(matrix), truth / 2.5, atol=0.12)
    assert matrix[2, 2] < 0.01 * np.trace(matrix)
    best = solved("newton", given).certificate.loss
    assert best < given.at(matrix, thresholds).value < best + 0.02
    if start is moment_start:
        gradient, _ = given.scale_derivatives(given.forms(matrix), 1.0, thresholds)
        np.testing.assert_allclose(gradient, 0.0, atol=5e-3)


def test_the_start_is_the_best_multiple_of_the_projected_moments():
    judged = RandomProblem.of("close/far", n=600, seed=2)
    given, z, signs = judged.problem(), judged.far, signs_of(judged)
    matrix, thresholds = moment_start(given)
    expected = positive_part((z * signs[:, None]).T @ z / 600 - signs.mean() * np.eye(3))
    np.testing.assert_allclose(matrix / np.trace(matrix), expected / np.trace(expected), atol=1e-8)
    best = minimize(lambda x: judged.value(x[0] * expected, x[1:]), [1.0, 1.0])
    assert judged.value(matrix, thresholds) == pytest.approx(best.fun, abs=1e-6)


def test_without_thresholds_the_start_keeps_the_mean_of_the_labels():
    judged = RandomProblem.of("comparisons", n=600, seed=3)
    given = judged.problem()
    matrix, thresholds = moment_start(given)
    expected = positive_part(
        judged.far.T @ (signs_of(judged)[:, None] * judged.far) / 600
        - judged.near.T @ (signs_of(judged)[:, None] * judged.near) / 600
    )
    np.testing.assert_allclose(matrix / np.trace(matrix), expected / np.trace(expected), atol=1e-8)
    assert thresholds.shape == (0,)
    assert abs(given.scale_derivatives(given.forms(matrix), 1.0, thresholds)[0][0]) < 1e-3


def test_several_thresholds_are_fitted_together_with_the_scale():
    given = RandomProblem.of("levels", n=500).problem()
    matrix, thresholds = moment_start(given, accuracy=1e-12)
    gradient, _ = given.scale_derivatives(given.forms(matrix), 1.0, thresholds)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)


def scripted_scale(gradients, mean=2.0, spread=0.5):
    """Fit a scale with a Hessian of one and these gradients in (scale, threshold); return where they were taken too."""
    seen, ahead = [], iter(gradients)

    class Scripted(Problem):
        def mean_and_spread(self, squared):
            return mean, spread

        def scale_derivatives(self, squared, scale, thresholds):
            seen.append((scale, *thresholds))
            return next(ahead), np.eye(2)

        def minimise_threshold(self, squared, thresholds, tol):
            return thresholds + squared, None

    one_sided = SimpleNamespace(answers=SimpleNamespace(are_one_sided=True))
    given = Scripted(None, one_sided, 0.0, Cone(1, np.zeros(1)), None)
    return fit_scale(given, np.ones(1)), seen


def test_the_steps_of_a_scale_are_short_and_feasible():
    gradients = [[9.0, 0.0], [-9.0, 0.0], [0.0, 9.0], [0.0, -9.0], [0.5, 2.0], [0.0, 9.0], [0.0, 0.0]]
    (scale, thresholds), seen = scripted_scale(np.array(gradients))
    # From one over the spread by factors from 0.3 to 3; from the mean by 3 at most, and not below zero.
    expected = [(2.0, 4.0), (0.6, 4.0), (1.8, 4.0), (1.8, 1.0), (1.8, 4.0), (1.3, 2.0), (1.3, 0.0)]
    np.testing.assert_allclose(seen, expected, rtol=1e-9)
    assert scale == pytest.approx(1.3)
    assert thresholds.tolist() == [0.0]


def test_a_scale_is_found_when_a_step_gains_less_than_1e_4():
    assert len(scripted_scale(np.array([[0.0, 0.011], [0.0, 0.009], [0.0, 0.0]]))[1]) == 2


@pytest.mark.parametrize(("mean", "spread", "is_zero"), [(2.0, 1.2e-9, True), (2.0, 3.6e-9, False), (0.0, 0.0, True)])
def test_distances_that_are_all_the_same_start_at_zero(mean, spread, is_zero):
    (scale, thresholds), _ = scripted_scale(np.zeros((1, 2)), mean, spread)
    assert (scale == 0.0) == is_zero
    assert (thresholds[0] == 0.0) == is_zero


def test_labels_that_ask_for_no_distance_start_at_zero():
    judged = RandomProblem.of("close/far", n=600, rank=3, sharpness=2.0)
    turned = judged.problem(likelihood=replace(judged.likelihood, codes=1.0 - judged.codes))
    for matrix, thresholds in (moment_start(turned), spectral_start(turned, RNG(0))):
        np.testing.assert_array_equal(matrix, 0.0)
        assert thresholds[0] >= 0.0


def test_the_spectrum_is_fitted_to_the_risk(monkeypatch):
    """Its eigenvectors are those of the moments; its eigenvalues and threshold, the best for them."""
    judged = RandomProblem.of("close/far", n=3000, seed=1)
    given = judged.problem()
    monkeypatch.setattr(problem_module, "_FITTED_JUDGEMENTS", 3000)
    monkeypatch.setattr(problem_module, "_LEAST_GAIN", 1e-12)
    monkeypatch.setattr(problem_module, "_MOST_SPECTRUM_STEPS", 30)
    matrix, thresholds = spectral_start(given, RNG(0))
    z, signs = judged.far, signs_of(judged)
    basis = np.linalg.eigh((z * signs[:, None]).T @ z - signs.sum() * np.eye(3))[1]
    inside = basis.T @ matrix @ basis
    np.testing.assert_allclose(inside, np.diag(np.diag(inside)), atol=1e-9)
    best = minimize(
        lambda x: judged.value((basis * x[:3]) @ basis.T, x[3:]), np.ones(4), bounds=[(0.0, None)] * 4, tol=1e-12
    )
    assert judged.value(matrix, thresholds) == pytest.approx(best.fun, abs=1e-7)
