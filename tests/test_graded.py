"""Levels, annotators and comparisons in the solvers: derivatives, special cases, and optima of a conic solver."""

import numpy as np
import pytest

from closefar.noise import NOISES
from closefar.rows import Differences
from closefar.solve import CloseFar, Graded, Objective, Options, Passes, interval_terms, solve

LOGISTIC = NOISES["logistic"]


def judged(rng, n=400, d=3, n_levels=4, n_groups=0):
    """Differences, levels and annotators, with every level and annotator in use."""
    z = rng.standard_normal((n, d))
    groups = rng.integers(0, max(n_groups, 1), n)
    felt = z[:, 0] ** 2 + 0.4 * z[:, 1] ** 2 + 0.5 * rng.logistic(size=n) - 0.2 * (groups - 0.5 * (n_groups - 1))
    codes = np.digitize(felt, np.quantile(felt, np.linspace(0, 1, n_levels + 1)[1:-1]))
    return z, codes, groups


def graded(codes, n_levels, groups=None, n_groups=0, precision=0.0, noise=LOGISTIC, weights=None):
    weights = np.full(len(codes), 1.0 / len(codes)) if weights is None else weights
    return Graded(noise, codes, weights, n_levels, groups if n_groups else None, n_groups, precision)


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_intervals_are_exact_in_both_tails(noise, rng):
    low = np.array([-3.0, -0.5, 0.2, 40.0, -np.inf, 1.0, -np.inf, 3.0])
    up = np.array([-1.0, 0.5, 0.7, 41.0, 1.0, np.inf, -900.0, 3.0 + 1e-6])
    q = np.array([-2.0, 0.1, 3.0, 2.0, 0.0, 0.5, 0.0, 2.0])
    found = interval_terms(noise, q - low, q - up, 2)
    direct = noise.cdf(q - low) - noise.cdf(q - up)
    is_plain = direct > 1e-3
    np.testing.assert_allclose(np.exp(-found.loss[is_plain]), direct[is_plain], rtol=1e-12)
    assert np.all(np.isfinite([each for part in found for each in part]))
    h = 1e-5
    for place, (first, second) in enumerate((("low", "low_low"), ("up", "up_up"))):
        ends = [low, up]
        steps = np.isfinite(ends[place]) & (up - low > 1e-3)
        moved = [[np.where(steps & (each == place), end + t, end) for each, end in enumerate(ends)] for t in (h, -h)]
        ahead, behind = (interval_terms(noise, q - low, q - up, 1) for low, up in moved)
        slopes = (ahead.loss - behind.loss)[steps] / (2 * h)
        np.testing.assert_allclose(getattr(found, first)[steps], slopes, rtol=1e-5, atol=1e-7)
        bends = (getattr(ahead, first) - getattr(behind, first))[steps] / (2 * h)
        np.testing.assert_allclose(getattr(found, second)[steps], bends, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("noise", ["logistic", "normal", "hypsecant"])
@pytest.mark.parametrize("n_groups", [0, 3])
def test_derivatives_agree_with_finite_differences(noise, n_groups, rng):
    z, codes, groups = judged(rng, n_groups=n_groups)
    codes[-6:] = [4, 5] * 3  # comparisons among the levels
    groups[-6:] = n_groups
    likelihood = graded(codes, 4, groups, n_groups, 0.01 if n_groups else 0.0, NOISES[noise])
    objective = Objective(Differences(z), likelihood, Passes())
    matrix, theta = np.diag([1.0, 0.5, 0.2]), np.append([0.4, 1.1, 2.2], 0.1 * np.arange(n_groups))
    step, shift = np.ones((3, 3)) + np.eye(3), np.cos(np.arange(3.0 + n_groups))
    here, gradient = objective.loss_and_gradient(matrix, theta)
    h = 1e-6
    ahead, behind = (objective.loss_and_gradient(matrix + t * step, theta + t * shift) for t in (h, -h))
    slope = np.sum(gradient * step) + here.slopes @ shift
    assert slope == pytest.approx((ahead[0].loss - behind[0].loss) / (2 * h), rel=1e-6)
    product, product_t = objective.hessian_product(step, shift, here.curvature)
    np.testing.assert_allclose(product, (ahead[1] - behind[1]) / (2 * h), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(product_t, (ahead[0].slopes - behind[0].slopes) / (2 * h), rtol=1e-5, atol=1e-8)
    from closefar import packed

    hessian = objective.hessian(here.curvature)
    np.testing.assert_allclose(hessian @ packed.join(step, shift), packed.join(product, product_t), atol=1e-10)
    crosses = [np.sum(cross * np.einsum("ij,jk,ik->i", z, step, z)) for cross in here.curvature.crosses]
    np.testing.assert_allclose(product_t, crosses + here.curvature.thresholds @ shift, atol=1e-10)
    everyone = np.arange(len(z))
    whole = objective.sampled_hessian(here.curvature, everyone, np.ones(len(z)))
    np.testing.assert_allclose(whole, hessian, atol=1e-5)


def test_two_levels_are_close_and_far(rng):
    z, codes, _ = judged(rng, n_levels=2)
    weights = rng.random(len(z))
    weights /= weights.sum()
    for noise in NOISES.values():
        one = Objective(Differences(z), graded(codes, 2, noise=noise, weights=weights), Passes())
        other = Objective(Differences(z), CloseFar(noise, np.where(codes, 1.0, -1.0), weights), Passes())
        left, right = (each.loss_and_gradient(np.eye(3), np.array([1.3])) for each in (one, other))
        np.testing.assert_allclose(left[1], right[1], rtol=1e-12)
        np.testing.assert_allclose([left[0].loss, *left[0].slopes], [right[0].loss, *right[0].slopes], rtol=1e-12)
        assert left[0].least_margin == right[0].least_margin
        np.testing.assert_allclose(one.hessian(left[0].curvature), other.hessian(right[0].curvature), atol=1e-12)


def test_thresholds_out_of_order_are_infeasible(rng):
    z, codes, _ = judged(rng)
    objective = Objective(Differences(z), graded(codes, 4), Passes())
    assert objective.loss_and_gradient(np.eye(3), np.array([1.0, 0.5, 2.0]))[0].loss == np.inf
    squared = objective.quadratic_forms(np.eye(3))
    found, there = objective.best_thresholds(squared, np.array([2.0, 1.0, 0.0]), np.zeros(3), 1e-12)
    assert np.all(np.diff(found) > 0)
    assert np.abs(there.slopes).max() <= 1e-12


def options(solver="auto", alpha=0.0, rank=None):
    return Options(alpha=alpha, rank=rank, has_constant=False, solver=solver, tol=1e-8, max_iter=2000)


def minimum(z, codes, n_levels, groups=None, n_groups=0, precision=0.0, alpha=0.0):
    """The optimum of a conic solver, with logistic noise."""
    cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    d, n = z.shape[1], len(z)
    matrix, tau, delta = cp.Variable((d, d), PSD=True), cp.Variable(n_levels - 1), cp.Variable(max(n_groups, 1))
    squared = np.einsum("ij,ik->ijk", z, z).reshape(n, -1) @ cp.vec(matrix, order="C")
    if n_groups:
        squared = squared - delta[groups]
    losses = []
    for level in range(n_levels):
        q = squared[np.flatnonzero(codes == level)]
        if level > 0:
            losses.append(cp.sum(cp.logistic(tau[level - 1] - q)))
        if level < n_levels - 1:
            losses.append(cp.sum(cp.logistic(q - tau[level])))
        if 0 < level < n_levels - 1:
            losses.append(-q.size * cp.log(1 - cp.exp(tau[level - 1] - tau[level])))
    penalty = alpha * cp.trace(matrix) + 0.5 * precision * cp.sum_squares(delta)
    problem = cp.Problem(cp.Minimize(sum(losses) / n + penalty), [tau >= 0])
    return problem.solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("solver", ["newton", "lowrank", "fista", "factor"])
@pytest.mark.parametrize("kind", ["levels", "annotators", "annotated levels", "penalised"])
def test_the_optimum_is_that_of_a_conic_solver(kind, solver, rng):
    n_groups = 5 if "annotat" in kind else 0
    n_levels, precision, alpha = (
        2 if kind == "annotators" else 4,
        0.02 if n_groups else 0.0,
        0.01 * (kind == "penalised"),
    )
    z, codes, groups = judged(rng, n_levels=n_levels, n_groups=n_groups)
    likelihood = graded(codes, n_levels, groups, n_groups, precision)
    objective = Objective(Differences(z), likelihood, Passes())
    found = solve(objective, options(solver, alpha), rng=rng, watch=lambda *_: None)
    value = minimum(z, codes, n_levels, groups, n_groups, precision, alpha)
    assert found.certificate.objective == pytest.approx(value, abs=1e-6)
    assert found.certificate.gap >= found.certificate.objective - value - 1e-9
    assert found.certificate.converged
    penalty = alpha * np.sum(found.factor**2) + likelihood.penalty(found.thresholds)
    assert found.certificate.loss + penalty == pytest.approx(found.certificate.objective, abs=1e-12)


@pytest.mark.parametrize("name", list(NOISES))
def test_a_level_without_width_has_finite_derivatives(name):
    ends = np.array([-300.0, -2.0, 0.0, 1e-17, 3.0, 300.0])
    for found in interval_terms(NOISES[name], ends, ends, 2):
        assert np.all(np.isfinite(found))
