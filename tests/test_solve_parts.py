"""The parts that solvers are made of: cone, loop, starts, models and proofs, each by something independent."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import LbfgsInvHessProduct

import closefar as cf
from closefar import packed
from closefar.noise import NOISES
from closefar.rows import Differences, unit_free
from closefar.solve import CloseFar, Objective, Options, Outcome, Passes, Solver, State, solve
from closefar.solve.bound import lower_bound, proven_bound
from closefar.solve.certificate import advise
from closefar.solve.cone import Cone, psd_factor
from closefar.solve.conjugate_gradient import HessianSolver
from closefar.solve.free_origin import with_finite_origin, with_free_corner
from closefar.solve.loop import Ending, Limits, run
from closefar.solve.solution import _choose
from closefar.solve.solvers import Factor, Fista, Newton
from closefar.solve.solvers.cone_program import ConeProgram, _projection_slopes
from closefar.solve.solvers.factor import _two_loop
from closefar.solve.solvers.newton import _solve_dense
from closefar.solve.start import moment_start

RNG = np.random.default_rng(0)


def objective_of(n=600, d=3, *, seed=0, noise="logistic", with_constant=False):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + (1.0 if with_constant else 0.0)
    centred = z - z.mean(axis=0) if with_constant else z
    squared = np.sum((centred / centred.std(axis=0)) ** 2 * np.arange(d, 0, -1), axis=1)
    signs = np.where(squared / np.median(squared) + 0.4 * rng.logistic(size=n) > 1.0, 1.0, -1.0)
    weights = np.full(n, 1.0 / n)
    rows, _ = unit_free(Differences(z), weights, with_constant=with_constant)
    return Objective(rows, CloseFar(NOISES[noise], signs, weights), Passes())


def options(**changes):
    return Options(**{
        "alpha": 0.0, "rank": None, "has_constant": False, "solver": "auto", "tol": 1e-8, "max_iter": 200, **changes
    })  # fmt: skip


def problem_of(objective, **changes):
    return options(**changes).problem(objective)


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


@pytest.mark.parametrize("solver", ["newton", "fista", "factor"])
def test_a_proof_measures_thresholds_from_their_least(solver):
    cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    objective = objective_of()
    lowest = 2.0 * solve(objective, options(), rng=np.random.default_rng(0), watch=lambda *_: None).thresholds[0]
    objective.likelihood.least = np.array([lowest])
    chosen = options(solver=solver, tol=1e-7, max_iter=2000)
    solution = solve(objective, chosen, rng=np.random.default_rng(0), watch=lambda *_: None)
    assert solution.thresholds[0] == lowest
    z = objective.source.read(slice(0, 600)).T
    matrix, threshold = cp.Variable((3, 3), PSD=True), cp.Variable()
    squared = np.einsum("ij,ik->ijk", z, z).reshape(600, -1) @ cp.vec(matrix, order="C")
    loss = cp.sum(cp.logistic(cp.multiply(-objective.likelihood.signs, squared - threshold))) / 600
    value = cp.Problem(cp.Minimize(loss), [threshold >= lowest]).solve(solver=cp.CLARABEL)
    assert solution.certificate.objective == pytest.approx(value, abs=1e-7)
    assert solution.certificate.objective - value - 1e-9 <= solution.certificate.gap <= 1e-7


def test_thresholds_are_held_at_their_least_where_they_would_fall():
    cone = Cone(2, np.zeros(3))
    held = cone.are_held(np.array([0.0, 0.0, 1.0]), np.array([0.1, -0.1, 0.1]))
    assert held.tolist() == [True, False, False]
    assert cone.are_held(np.zeros(3), np.zeros(3)).all()


def test_psd_factor():
    vectors = np.linalg.qr(RNG.standard_normal((4, 4)))[0]
    values = np.array([-1.0, 1e-13, 0.5, 2.0])
    matrix = (vectors * values) @ vectors.T
    factor = psd_factor(matrix)
    assert factor.shape == (4, 2)
    np.testing.assert_allclose(factor @ factor.T, (vectors[:, 2:] * values[2:]) @ vectors[:, 2:].T, atol=1e-12)
    assert np.linalg.norm(factor[:, -1]) > np.linalg.norm(factor[:, 0])
    assert psd_factor(np.diag([1.0, 1e-3]), cutoff=1e-2).shape == (2, 1)
    assert psd_factor(np.diag([1e-15, 0.0])).shape == (2, 0)
    # An asymmetric matrix counts as its symmetric part.
    np.testing.assert_allclose(psd_factor(np.array([[1.0, 1.0], [-1.0, 1.0]])) ** 2, np.eye(2), atol=1e-12)


# The loop


class Scripted(Solver):
    """Goes through given states."""

    def __init__(self, states):
        self.states = iter(states)

    def start(self):
        return next(self.states)

    def resume(self, state):
        return next(self.states)

    def step(self, state):
        following = next(self.states)
        if isinstance(following, BaseException):
            raise following
        return following


def state(objective, bound=0.0, **more):
    values = {"least_margin": -1.0, "memory": None, **more}
    return State(np.eye(1), np.ones(1), objective, bound, **values)


def go(*states, tol=1e-3, max_iter=10, **limits):
    solver, seen = Scripted(list(states)), []
    limits = Limits(tol, max_iter, lambda iteration, each: seen.append((iteration, each.objective)), **limits)
    return run(solver, solver.start, limits), seen


def test_a_run_ends_when_the_gap_is_small_enough():
    result, seen = go(state(1.0), state(0.9, 0.5), state(0.8, 0.7995))
    assert (result.ending, result.n_iter) == (Ending.CONVERGED, 2)
    assert seen == [(0, 1.0), (1, 0.9), (2, 0.8)]
    assert result.state.gap == pytest.approx(0.0005)
    result, _ = go(state(1.0), state(0.9, 0.89), relative_tol=0.02)
    assert result.ending is Ending.CONVERGED
    assert state(0.5, 0.7).gap == 0.0


def test_a_run_ends_where_labels_are_separated_if_asked():
    separated = state(0.5, least_margin=0.1)
    assert go(state(1.0), separated, stop_if_separable=True)[0].ending is Ending.SEPARABLE
    assert go(state(1.0), separated, replace(separated, stuck=True, objective=0.4))[0].ending is Ending.STUCK
    at_zero = state(0.5, least_margin=0.0, stuck=True)
    assert go(state(1.0), at_zero, stop_if_separable=True)[0].ending is Ending.STUCK


def test_a_run_ends_at_its_limit_and_at_an_interrupt():
    result, _ = go(*(state(1.0 / k) for k in range(1, 6)), max_iter=3)
    assert (result.ending, result.n_iter) == (Ending.LIMIT, 3)
    result, _ = go(state(1.0), state(0.9), KeyboardInterrupt())
    assert (result.ending, result.n_iter, result.state.objective) == (Ending.INTERRUPTED, 1, 0.9)


def test_a_place_of_which_nothing_is_known():
    place = State.at(np.eye(2), 1.0, 2.0)
    np.testing.assert_array_equal(place.thresholds, [1.0, 2.0])
    assert (place.objective, place.bound, place.least_margin, place.memory) == (np.inf, 0.0, -np.inf, None)


# What is asked for, and what is said of it


def test_problems_and_limits_follow_the_options():
    objective = objective_of(100, 3)
    plain = options(alpha=0.1).problem(objective)
    assert (plain.alpha, plain.cone.size, plain.cone.has_constant) == (0.1, 3, False)
    np.testing.assert_array_equal(plain.cone.least, [0.0])
    free = options(has_constant=True).problem(objective)
    assert free.cone.has_constant
    np.testing.assert_array_equal(free.cone.least, [-np.inf])
    assert not options(has_constant=True, alpha=0.1).problem(objective).cone.has_constant
    watch = lambda *_: None  # noqa: E731
    assert options().limits(plain, watch) == Limits(1e-8, 200, watch, stop_if_separable=True)
    assert options(has_constant=True).limits(free, watch).tol == 0.5e-8
    assert not options(alpha=0.1).limits(plain, watch).stop_if_separable


@pytest.mark.parametrize(
    ("d", "n", "solver"),
    [(16, 20, "newton"), (17, 2447, "fista"), (17, 2448, "newton"), (32, 8448, "newton"), (33, 50_000, "fista")],
)
def test_the_solver_follows_from_the_size(d, n, solver):
    rows = Differences(np.broadcast_to(np.zeros(1), (n, d)))
    assert _choose(Objective(rows, CloseFar(NOISES["logistic"], np.ones(n), np.ones(n)), Passes())) == solver


def test_advice_names_what_was_asked_for():
    facts = {"gap": 2e-4, "is_proven": True, "tol": 1e-6, "rank": None, "max_iter": 7}
    assert "2.0e-04" in advise(Outcome.CONVERGED, **facts)
    assert "Rank 3 costs nothing" in advise(Outcome.CONVERGED, **{**facts, "rank": 3})
    assert "rank-3" in advise(Outcome.RESTRICTED, **{**facts, "rank": 3})
    assert "max_iter=7 steps did not reach tol=1.0e-06; the proven gap is 2.0e-04" in advise(
        Outcome.UNFINISHED, **facts
    )
    assert "no gap is proven yet" in advise(Outcome.STALLED, **{**facts, "is_proven": False})
    assert "Set alpha > 0" in advise(Outcome.SEPARABLE, **facts)
    assert "stopped by hand" in advise(Outcome.INTERRUPTED, **facts)


# Problem and points


def test_projection_and_value():
    objective = objective_of()
    problem = problem_of(objective, alpha=0.2)
    matrix = np.array([[1.0, 0.2, 0.0], [0.2, -2.0, 0.0], [0.0, 0.0, 0.5]])
    projected, squared = problem.project(matrix)
    values, vectors = np.linalg.eigh(matrix)
    np.testing.assert_allclose(projected, (vectors * np.maximum(values, 0.0)) @ vectors.T, atol=1e-9)
    np.testing.assert_allclose(squared, objective.quadratic_forms(projected), atol=1e-9)
    thresholds, here = problem.settle(squared, np.array([1.0]))
    assert abs(here.slopes[0]) < 1e-12
    assert problem.value(here, projected) == pytest.approx(here.loss + 0.2 * np.trace(projected))
    point = problem.at(projected, thresholds)
    same = problem.known(projected, thresholds, here)
    np.testing.assert_allclose(point.gradient, objective.gradient(here) + 0.2 * np.eye(3), atol=1e-12)
    np.testing.assert_allclose(same.gradient, point.gradient, atol=1e-12)
    assert point.value == pytest.approx(problem.value(here, projected))
    expected = point.value - np.sum(point.gradient * projected) - thresholds @ point.slopes
    assert point.dual_value == pytest.approx(expected)


def test_with_free_linear_terms_only_the_core_is_projected():
    problem = problem_of(objective_of(with_constant=True), has_constant=True)
    matrix = np.arange(16.0).reshape(4, 4)
    matrix = matrix + matrix.T - 20 * np.eye(4)
    projected, squared = problem.project(matrix)
    values, vectors = np.linalg.eigh(matrix[:3, :3])
    np.testing.assert_allclose(projected[:3, :3], (vectors * np.maximum(values, 0.0)) @ vectors.T, atol=1e-8)
    np.testing.assert_array_equal(projected[:3, 3], matrix[:3, 3])
    assert projected[3, 3] == 0.0
    np.testing.assert_allclose(squared, problem.objective.quadratic_forms(projected))


# The start


def test_the_start_points_the_right_way():
    """For normal rows the moments find the metric up to scale; the scale and the threshold are fitted."""
    rng = np.random.default_rng(1)
    z = rng.standard_normal((40_000, 3))
    truth = np.diag([2.0, 0.5, 0.0])
    signs = np.where((z @ truth * z).sum(axis=1) + rng.logistic(size=40_000) > 2.5, 1.0, -1.0)
    weights = np.full(40_000, 1.0 / 40_000)
    objective = Objective(Differences(z), CloseFar(NOISES["logistic"], signs, weights), Passes())
    matrix, thresholds = moment_start(problem_of(objective))
    np.testing.assert_allclose(matrix / np.trace(matrix), truth / 2.5, atol=0.12)
    assert moment_start(problem_of(objective))[0][2, 2] < 0.01 * np.trace(matrix)
    gradient, _ = objective.along(objective.quadratic_forms(matrix), 1.0, thresholds)
    np.testing.assert_allclose(gradient, 0.0, atol=5e-3)
    best = solve(objective, options(), rng=rng, watch=lambda *_: None).certificate.loss
    at_start = objective.evaluate(objective.quadratic_forms(matrix), thresholds).loss
    assert best < at_start < best + 0.02


def test_labels_that_ask_for_no_distance_start_at_zero():
    objective = objective_of()
    reversed_labels = objective.with_likelihood(
        CloseFar(NOISES["logistic"], -objective.likelihood.signs, objective.likelihood.weights)
    )
    matrix, thresholds = moment_start(problem_of(reversed_labels))
    np.testing.assert_array_equal(matrix, 0.0)
    assert thresholds[0] >= 0.0


# Newton


def test_the_cone_program_is_solved():
    cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    root = RNG.standard_normal((7, 7))
    hessian, linear = root @ root.T + 0.1 * np.eye(7), RNG.standard_normal(7)
    program = ConeProgram(hessian, 1e-9, Cone(3, np.zeros(1)))
    found = program.project(program.solve(linear, np.zeros(7), tol=1e-12))
    matrix, tau = cp.Variable((3, 3), PSD=True), cp.Variable(nonneg=True)
    weights = packed.weights(3)
    x = cp.hstack([cp.multiply(weights, cp.hstack([matrix[i, j] for i in range(3) for j in range(i, 3)])), tau])
    best = cp.Problem(cp.Minimize(0.5 * cp.quad_form(x, cp.psd_wrap(hessian)) + linear @ x)).solve(solver=cp.CLARABEL)
    assert 0.5 * found @ hessian @ found + linear @ found == pytest.approx(best, abs=1e-6)
    assert np.linalg.eigvalsh(packed.split(found, 3)[0])[0] >= -1e-9
    assert found[-1] >= 0.0


def test_the_cone_program_with_free_linear_terms():
    root = RNG.standard_normal((11, 11))
    hessian, linear = root @ root.T + 0.1 * np.eye(11), RNG.standard_normal(11)
    program = ConeProgram(hessian, 0.0, Cone(4, np.array([-np.inf]), has_constant=True))
    splitting = program.solve(linear, np.zeros(11), tol=1e-13)
    found = program.project(splitting)
    matrix, _ = packed.split(found, 4)
    assert matrix[-1, -1] == 0.0
    slack, slack_t = packed.split(hessian @ found + linear, 4)
    # Stationary in what is free, complementary in the cone.
    np.testing.assert_allclose(slack[:3, 3], 0.0, atol=1e-8)
    assert slack_t[0] == pytest.approx(0.0, abs=1e-8)
    assert np.linalg.eigvalsh(slack[:3, :3])[0] >= -1e-8
    assert np.sum(slack[:3, :3] * matrix[:3, :3]) == pytest.approx(0.0, abs=1e-8)


def test_damping_is_relative_to_the_mean_eigenvalue():
    hessian = np.diag([4.0, 2.0])
    program = ConeProgram(hessian, 0.5, Cone(1, np.zeros(1)))
    assert program.damping == 1.5
    np.testing.assert_allclose(program.hessian, hessian + 1.5 * np.eye(2))
    assert ConeProgram(5.0 * hessian, 0.5, Cone(1, np.zeros(1))).rho == pytest.approx(5.0 * program.rho)


def test_slopes_of_the_projection_are_divided_differences():
    values = np.array([-2.0, 0.0, 0.0, 3.0])
    positive = np.maximum(values, 0.0)
    slopes = _projection_slopes(values)
    for i in range(4):
        for j in range(4):
            if values[i] != values[j]:
                assert slopes[i, j] == pytest.approx((positive[i] - positive[j]) / (values[i] - values[j]))
    assert (slopes[0, 0], slopes[3, 3], slopes[1, 2]) == (0.0, 1.0, 0.5)


def test_dense_systems_hold_thresholds():
    root = RNG.standard_normal((5, 5))
    hessian = root @ root.T
    matrix, slopes = np.array([[1.0, 0.5], [0.5, -1.0]]), np.array([0.3, -0.2])
    for held in ([False, False], [True, False], [True, True]):
        step, shift = _solve_dense(hessian, matrix, slopes, np.array(held), 0.0)
        image = hessian @ packed.joined(step, shift)
        np.testing.assert_allclose(image[:3], packed.pack(matrix), atol=1e-10)
        for k, is_held in enumerate(held):
            assert shift[k] == 0.0 if is_held else image[3 + k] == pytest.approx(slopes[k])


def test_newton_needs_few_steps_and_passes():
    objective = objective_of(4000, 5)
    solver = Newton(problem_of(objective), 1e-8, np.random.default_rng(0))
    result = run(solver, solver.start, Limits(1e-8, 50, lambda *_: None))
    assert result.ending is Ending.CONVERGED
    assert result.n_iter <= 10
    assert objective.passes.count < 25
    # From a solution there is nothing to do but to prove it.
    again = run(solver, lambda: solver.resume(result.state), Limits(1e-8, 50, lambda *_: None))
    assert again.n_iter <= 2


def test_a_point_looked_at_again_keeps_what_was_learned():
    solver = Newton(problem_of(objective_of()), 1e-8, np.random.default_rng(0))
    first = solver.advance(solver.start())
    again = solver.renew(first)
    assert again.objective == pytest.approx(first.objective)
    assert again.memory.splitting is first.memory.splitting
    fresh = solver.renew(State.at(first.matrix, *first.thresholds))
    assert fresh.objective == pytest.approx(first.objective)


# Descent on the factor


def test_the_direction_is_that_of_scipy():
    gradient = RNG.standard_normal((3, 2))
    steps = RNG.standard_normal((4, 3, 2))
    changes = steps * RNG.uniform(0.5, 2.0, (4, 3, 2))
    pairs = tuple(zip(steps, changes, strict=True))
    last_step, last_change = steps[-1].ravel(), changes[-1].ravel()
    scale = (last_step @ last_change) / (last_change @ last_change)
    # SciPy starts from the identity: give it coordinates in which that is the scaled one.
    root = np.sqrt(scale)
    inverse = LbfgsInvHessProduct(steps.reshape(4, -1) / root, changes.reshape(4, -1) * root)
    expected = -root * inverse.matvec(root * gradient.ravel())
    np.testing.assert_allclose(_two_loop(gradient, pairs).ravel(), expected)
    np.testing.assert_array_equal(_two_loop(gradient, ()), -gradient)


@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_a_factor_of_full_rank_finds_the_optimum_and_proves_it(alpha):
    objective = objective_of()
    problem = problem_of(objective, alpha=alpha)
    solver = Factor(problem, 1e-7, np.random.default_rng(0))
    result = run(solver, solver.start, Limits(1e-7, 500, lambda *_: None))
    best = solve(objective, options(alpha=alpha, tol=1e-10), rng=np.random.default_rng(0), watch=lambda *_: None)
    assert result.state.objective == pytest.approx(best.certificate.objective, abs=1e-7)
    assert result.state.gap <= 1e-7
    silent = Factor(problem, 1e-7, np.random.default_rng(0), proves=False)
    assert run(silent, silent.start, Limits(1e-7, 500, lambda *_: None)).state.bound == 0.0


def test_a_limited_rank_starts_from_the_leading_directions_and_keeps_the_bound():
    objective = objective_of()
    best = solve(objective, options(), rng=np.random.default_rng(0), watch=lambda *_: None)
    solver = Factor(problem_of(objective), 1e-8, np.random.default_rng(0), rank=1)
    started = solver.resume(replace(best.state, bound=0.123))
    assert started.bound == 0.123
    leading = best.factor[:, -1]
    np.testing.assert_allclose(started.matrix, np.outer(leading, leading), atol=1e-10)
    # A metric of lower rank gets small columns: a zero one would never move.
    solver = Factor(problem_of(objective), 1e-8, np.random.default_rng(0), rank=2)
    thin = solver.resume(State.at(np.outer(leading, leading), 1.0)).memory.factor
    assert thin.shape == (3, 2)
    assert 0.0 < np.linalg.norm(thin[:, 1]) <= 2e-3 * np.linalg.norm(leading)


# Proofs


def test_conjugate_gradients_solve_with_the_hessian():
    objective = objective_of(1500, 4)
    matrix, tau = 0.7 * np.eye(4), np.array([1.5])
    here, _ = objective.loss_and_gradient(matrix, tau)
    hessian = objective.hessian(here.curvature)
    right, right_t = np.diag([1.0, -0.5, 0.2, 0.0]) + 0.1, np.array([0.3])
    solver = HessianSolver(objective, here.curvature, np.eye(4))
    for held in (np.array([False]), np.array([True])):
        step, shift = solver(right, right_t, held, 1e-10)
        expected, expected_t = _solve_dense(hessian, right, right_t, held, 0.0)
        np.testing.assert_allclose(step, expected, atol=1e-6 * np.abs(expected).max())
        np.testing.assert_allclose(shift, expected_t, atol=1e-6 * np.abs(expected).max())
    before = objective.passes.count
    rough, _ = solver(right, right_t, np.array([False]), 0.1)
    assert objective.passes.count - before < 15
    left = right - packed.split(hessian @ packed.joined(rough, _), 4)[0]
    assert np.linalg.norm(left, 2) <= 0.1


def test_a_gradient_in_the_dual_cone_proves_its_dual_value():
    objective = objective_of()
    problem = problem_of(objective)
    best = solve(objective, options(tol=1e-12), rng=np.random.default_rng(0), watch=lambda *_: None)
    optimum = best.certificate.objective
    inside = problem.at(best.factor @ best.factor.T - 0.01 * np.eye(3), best.thresholds)
    settled = problem.known(inside.matrix, *problem.settle(objective.quadratic_forms(inside.matrix), best.thresholds))
    # Wherever something is proven it is below the optimum, and near it.
    for scale in (1e-3, 1e-2, 0.1):
        matrix = best.factor @ best.factor.T + scale * np.eye(3)
        point = problem.known(matrix, *problem.settle(objective.quadratic_forms(matrix), best.thresholds))
        bound = proven_bound(point, optimum)
        assert bound <= optimum + 1e-12
        if np.linalg.eigvalsh(point.gradient)[0] > 0:
            assert bound == pytest.approx(point.dual_value, abs=1e-9)
    assert proven_bound(settled, optimum) <= optimum
    # A dual value above the objective of a feasible point can't be right.
    assert proven_bound(settled, -1.0) == -np.inf


def test_with_a_penalty_a_gradient_outside_the_cone_has_a_price():
    objective = objective_of()
    problem = problem_of(objective, alpha=0.05)
    best = solve(objective, options(alpha=0.05, tol=1e-12), rng=np.random.default_rng(0), watch=lambda *_: None)
    matrix = best.factor @ best.factor.T - 0.02 * np.eye(3)
    point = problem.known(matrix, *problem.settle(objective.quadratic_forms(matrix), best.thresholds))
    ceiling = best.certificate.objective
    below = -np.linalg.eigvalsh(point.gradient)[0]
    assert below > 1e-6
    assert proven_bound(point, ceiling) == pytest.approx(point.dual_value - below * ceiling / 0.05, abs=1e-9)
    assert proven_bound(point, ceiling) < ceiling


@pytest.mark.parametrize("alpha", [0.0, 0.02])
def test_a_bound_is_found_near_the_optimum(alpha):
    objective = objective_of()
    problem = problem_of(objective, alpha=alpha)
    best = solve(objective, options(alpha=alpha, tol=1e-12), rng=np.random.default_rng(0), watch=lambda *_: None)
    matrix = best.factor @ best.factor.T
    point = problem.known(matrix, *problem.settle(objective.quadratic_forms(matrix), best.thresholds))
    hessian = objective.hessian(point.evaluation.curvature)
    solver = lambda *arguments: _solve_dense(hessian, *arguments)  # noqa: E731
    for target in (1e-4, 1e-7):
        bound = lower_bound(point, solver, target)
        assert point.value - target <= bound <= best.certificate.objective + 1e-12


# A learned origin


def test_free_linear_terms_become_a_distance_from_a_point():
    cone = Cone(4, np.array([-np.inf]), has_constant=True)
    core = np.diag([2.0, 1.0, 0.5])
    matrix = np.zeros((4, 4))
    matrix[:3, :3] = core
    matrix[:3, 3] = matrix[3, :3] = [0.4, -0.2, 0.3]
    free = State.at(matrix, 0.7)
    found = with_finite_origin(cone, free, 1e-6)
    points = np.column_stack([RNG.standard_normal((20, 3)), np.ones(20)])
    margins = [np.einsum("ij,jk,ik->i", points, each.matrix, points) - each.thresholds[0] for each in (free, found)]
    np.testing.assert_allclose(*margins)
    assert np.linalg.eigvalsh(found.matrix)[0] >= -1e-12
    back = with_free_corner(cone, found)
    np.testing.assert_allclose(back.matrix, matrix)
    assert back.thresholds[0] == pytest.approx(0.7)
    plain = Cone(4, np.zeros(1))
    assert with_free_corner(plain, found) is found


def test_an_origin_at_infinity_is_brought_back_at_a_small_cost():
    cone = Cone(3, np.array([-np.inf]), has_constant=True)
    matrix = np.zeros((3, 3))
    matrix[0, 0] = 1.0
    matrix[1, 2] = matrix[2, 1] = 0.01  # a linear term where M has no weight
    found = with_finite_origin(cone, State.at(matrix, 1.0), 1e-4)
    assert np.linalg.eigvalsh(found.matrix)[0] >= -1e-12
    assert found.matrix[1, 1] == pytest.approx(1e-4)
    assert with_finite_origin(cone, State.at(matrix, 1.0), 1e-9).matrix[1, 1] == pytest.approx(1e-7)


# Fista


def test_fista_with_a_penalty_proves_as_it_goes():
    objective = objective_of(800, 6)
    solver = Fista(problem_of(objective, alpha=0.05), 1e-6, np.random.default_rng(0))
    bounds = []
    result = run(solver, solver.start, Limits(1e-6, 300, lambda _, each: bounds.append(each.bound)))
    assert result.ending is Ending.CONVERGED
    assert bounds == sorted(bounds)
    assert sum(bound > 0 for bound in bounds) > 3


def test_separable_labels_get_a_wide_margin():
    """Of hard margins: the returned direction is near the widest one that a conic solver finds."""
    cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    rng = np.random.default_rng(3)
    z = rng.standard_normal((120, 2))
    squared = z[:, 0] ** 2 + 0.2 * z[:, 1] ** 2
    kept = np.abs(squared - 1.0) > 0.15
    z, labels = z[kept], np.where(squared[kept] > 1.0, 1, -1)
    with pytest.warns(match="separable"):
        learner = cf.LinearMetricLearner().fit(z, labels)
    moment = np.linalg.cholesky(z.T @ z / len(z))
    w = z @ np.linalg.inv(moment).T
    matrix, tau, margin = cp.Variable((2, 2), PSD=True), cp.Variable(nonneg=True), cp.Variable()
    forms = np.einsum("ij,ik->ijk", w, w).reshape(len(w), -1) @ cp.vec(matrix, order="C")
    cp.Problem(cp.Maximize(margin), [cp.multiply(labels, forms - tau) >= margin, cp.trace(matrix) <= 1]).solve()
    found = moment.T @ learner.metric_.matrix @ moment
    scale = np.trace(found)
    own = np.min(labels * learner.decision_function(z)) / scale
    assert own > 0.2 * margin.value  # the first penalty that still separates, not the widest margin itself
    assert learner.certificate_.lower_bound == 0.0
