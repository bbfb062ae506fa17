"""Proven bounds on the optimum and the conjugate gradients that find them, each by something independent."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from closefar import packed
from closefar.noise import NOISES
from closefar.rows import Differences, unit_free
from closefar.solve import CloseFar, Evaluation, MarginCurvature, Objective, Options, Passes, solve
from closefar.solve.bound import HessianSolver, _slack, diagonal_model, lower_bound, proven_bound, sample_model
from closefar.solve.newton import _solve_dense
from closefar.solve.problem import Cone, Point, Problem

EPS = np.finfo(np.float64).eps


def objective_of(n=600, d=3, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    squared = np.sum((z / z.std(axis=0)) ** 2 * np.arange(d, 0, -1), axis=1)
    signs = np.where(squared / np.median(squared) + 0.4 * rng.logistic(size=n) > 1.0, 1.0, -1.0)
    weights = np.full(n, 1.0 / n)
    rows, _ = unit_free(Differences(z), weights)
    return Objective(rows, CloseFar(NOISES["logistic"], signs, weights), Passes())


def solved(objective, alpha=0.0):
    """The problem, its solution M and thresholds, and its optimum."""
    options = Options(alpha=alpha, rank=None, has_constant=False, solver="auto", tol=1e-12, max_iter=200)
    best = solve(objective, options, rng=np.random.default_rng(0), watch=lambda *_: None)
    return options.problem(objective), best.factor @ best.factor.T, best.thresholds, best.certificate.objective


def settled(problem, matrix, thresholds):
    return problem.known(matrix, *problem.minimise_threshold(problem.objective.quadratic_forms(matrix), thresholds))


UNPENALISED = SimpleNamespace(precisions=np.zeros(1))
UNSEEN = SimpleNamespace(  # an objective that is not computed
    source=SimpleNamespace(condition=1.0), likelihood=UNPENALISED
)


def point_at(matrix, tau, gradient, slope, *, alpha=0.0, loss=0.0, problem=None):
    """A point whose loss and derivatives are given, not computed."""
    matrix, gradient = np.atleast_2d(matrix).astype(float), np.atleast_2d(gradient).astype(float)
    problem = problem or Problem(UNSEEN, alpha, Cone(len(matrix), np.zeros(1)))
    here = Evaluation(loss, np.array([float(slope)]), least_margin=-1.0, margin_gradient=None, second=None)
    return Point(problem, matrix, np.array([float(tau)]), here, gradient)


# What a gradient proves


@pytest.mark.parametrize(("matrix", "tau"), [(0.0, 0.0), (3.0, 0.0), (0.0, 7.0), ([[2e5, 1e5], [1e5, 1e5]], 1e5)])
def test_a_bound_allows_for_the_rounding_of_margins(matrix, tau):
    """Margins are wrong by eps times the size of M and tau, and the gradient's error is multiplied by M."""
    point = point_at(matrix, tau, np.zeros_like(matrix), 0.0)
    size = 1.0 + np.abs(matrix).sum() + tau
    bound = proven_bound(point, 1.0)
    assert bound == pytest.approx(-EPS * size * (1.0 + size), rel=1e-9, abs=0.0)
    ill = replace(
        point.problem, objective=SimpleNamespace(source=SimpleNamespace(condition=50.0), likelihood=UNPENALISED)
    )
    assert proven_bound(replace(point, problem=ill), 1.0) == pytest.approx(50.0 * bound, rel=1e-9, abs=0.0)
    assert proven_bound(point, bound) == bound
    assert proven_bound(point, bound - 1e-3) == -np.inf


@pytest.mark.parametrize("outside", [6e-14, 1e-13])
@pytest.mark.parametrize("alpha", [0.0, 1e-3])
def test_a_gradient_feasible_to_rounding_bounds_all_metrics_up_to_a_thousand_times_as_large(outside, alpha):
    matrix, tau = 100.0, 99.0
    for gradient, slope in ((-outside, 0.0), (0.0, -outside), (-outside, -outside)):
        point = point_at(matrix, tau, gradient, slope, alpha=alpha, loss=-alpha * matrix)
        tangent = -gradient * matrix - slope * tau
        worst = tangent + 1e3 * 200.0 * (gradient + slope) - EPS * 200.0 * 201.0
        assert proven_bound(point, 7.0) == pytest.approx(worst, rel=1e-6, abs=0.0)


def test_a_gradient_outside_the_dual_cone_proves_nothing_without_a_penalty():
    assert proven_bound(point_at(1.0, 1.0, -1.8e-13, 0.0), 1.0) == -np.inf
    assert proven_bound(point_at(1.0, 1.0, -1.8e-13, 0.0, alpha=0.1), 1.0) > -np.inf
    assert proven_bound(point_at(1.0, 1.0, 0.0, -1.8e-13), 1.0) == -np.inf
    assert proven_bound(point_at(1.0, 1.0, 0.0, -1.8e-13, alpha=0.1), 1.0) == -np.inf


def test_a_gradient_in_the_dual_cone_proves_its_dual_value():
    problem, best, thresholds, optimum = solved(objective_of())
    # Wherever something is proven it is below the optimum, and near it.
    for scale in (-1e-2, 1e-3, 1e-2, 0.1):
        point = settled(problem, best + scale * np.eye(3), thresholds)
        bound = proven_bound(point, optimum)
        assert bound <= optimum + 1e-12
        if np.linalg.eigvalsh(point.gradient)[0] > 0:
            assert bound == pytest.approx(point.dual_value, abs=1e-9)
    # A dual value above the objective of a feasible point can't be right.
    assert proven_bound(settled(problem, best - 0.01 * np.eye(3), thresholds), -1.0) == -np.inf


def test_with_a_penalty_a_gradient_outside_the_cone_has_a_price():
    problem, best, thresholds, optimum = solved(objective_of(), alpha=0.05)
    point = settled(problem, best - 0.02 * np.eye(3), thresholds)
    below = -np.linalg.eigvalsh(point.gradient)[0]
    assert below > 1e-6
    assert proven_bound(point, optimum) == pytest.approx(point.dual_value - below * optimum / 0.05, abs=1e-9)
    assert proven_bound(point, optimum) < optimum


# The search for a bound


@pytest.mark.parametrize("alpha", [0.0, 0.02])
def test_a_bound_is_found_near_the_optimum(alpha):
    objective = objective_of()
    problem, best, thresholds, optimum = solved(objective, alpha)
    point = settled(problem, best, thresholds)
    hessian = objective.hessian(point.evaluation.curvature)
    solver = lambda *arguments: _solve_dense(hessian, *arguments)  # noqa: E731
    for target in (1e-4, 1e-7):
        bound = lower_bound(point, solver, target)
        assert point.value - target <= bound <= optimum + 1e-12


class Asked:
    """Stands for a solver: keeps what it was asked for, and answers with one step."""

    def __init__(self, step=np.nan, shift=0.0):
        self.answer = step, shift
        self.calls = []

    def __call__(self, matrix, thresholds, held, residual):
        self.calls.append((matrix, thresholds, held.tolist(), residual))
        return np.full_like(matrix, self.answer[0]), np.full_like(thresholds, self.answer[1])


@pytest.mark.parametrize(("scale", "target"), [(4.0, 1e-3), (1.0, 1e-3), (0.25, 1e-3), (4.0, 1e-14)])
def test_the_goal_of_a_proof_costs_half_of_the_target(scale, target):
    """It is the gradient's own slack where M is zero, and so far inside the cone that <goal, M> is target / 2."""
    matrix, gradient = np.diag([0.0, scale]), np.array([[3.0, 0.2], [0.2, -0.1]])
    solver = Asked()
    bound = lower_bound(point_at(matrix, 0.0, gradient, 0.3, loss=0.5), solver, target)
    assert bound == 0.0
    ((right, slopes, held, residual),) = solver.calls
    inside = max(target, 1e-12) / 2.0 / max(scale, 1.0)
    np.testing.assert_allclose(right + gradient, np.diag([3.0, 0.0]) + inside * np.eye(2), rtol=1e-9, atol=1e-15)
    assert residual == pytest.approx(0.9 * inside, abs=0.0)  # a tenth is left inside
    assert (slopes.tolist(), held) == ([-0.3], [True])


def test_a_proof_with_free_linear_terms_leaves_a_residual_of_rounding_only():
    solver = Asked()
    problem = Problem(UNSEEN, 0.0, Cone(2, np.array([-np.inf]), has_constant=True))
    lower_bound(point_at(np.eye(2), 1.0, np.eye(2), 0.1, problem=problem), solver, 1e-3)
    ((_, _, held, residual),) = solver.calls
    assert residual <= 1e-13
    assert held == [False]


def scripted(violations, matrix=0.0):
    """A point of one coordinate, at which each further look sees the next violation, and what was looked at."""
    ahead, seen = iter(violations), []

    def minimise_threshold(squared, thresholds, tol):
        assert 0.0 < tol < 1e-13  # slopes must be feasible to rounding
        seen.append((squared.item(), thresholds.item()))
        return thresholds, None

    problem = SimpleNamespace(
        alpha=0.0,
        cone=Cone(1, np.zeros(1)),
        objective=SimpleNamespace(
            likelihood=UNPENALISED,
            source=UNSEEN.source,
            quadratic_forms=lambda matrix: matrix,
            evaluate=lambda *_, order=1: SimpleNamespace(slopes=np.array([-1.0])),
        ),
        value=lambda evaluation, matrix: evaluation.loss,
        minimise_threshold=minimise_threshold,
    )
    problem.known = lambda matrix, thresholds, _: point_at(
        matrix, thresholds.item(), -next(ahead), 0.0, loss=0.5, problem=problem
    )
    return point_at(matrix, 2.0, -1.0, 0.0, loss=0.5, problem=problem), seen


@pytest.mark.parametrize(
    ("violations", "n_rounds"),
    [([0.0, 0.0], 1), ([8.0, 4.0, 1.0], 2), ([8.0, 3.9, 1.9, 0.9, 0.1], 4), ([8.0, 9.0, 1.0], 2)],
)
def test_a_proof_goes_on_while_rounds_halve_the_violation(violations, n_rounds):
    point, seen = scripted(violations)
    lower_bound(point, Asked(1.0, 0.5), 1e-3)
    assert seen == [(1.0 + k, 2.5 + 0.5 * k) for k in range(n_rounds)]


@pytest.mark.parametrize(("slope", "is_exact"), [(-1e-9, True), (0.0, False), (8e-5, False), (9e-5, True)])
def test_a_proof_takes_a_threshold_as_it_is_if_its_slope_is_small_and_feasible(slope, is_exact):
    """At tau = 2 a slope of 1e-3 / (8 * 3) is aimed at, and up to twice that is as good."""
    point, seen = scripted([0.0])
    point.problem.objective.evaluate = lambda *_, order=1: SimpleNamespace(slopes=np.array([slope]))
    asked = Asked(1.0)
    lower_bound(point, asked, 1e-3)
    assert bool(seen) == is_exact


@pytest.mark.parametrize(("matrix", "longest"), [(0.0, 10.0), (3.0, 40.0)])
def test_a_proof_takes_no_step_beyond_ten_times_the_size_of_the_metric(matrix, longest):
    for step, is_taken in ((longest, True), (-longest, True), (1.001 * longest, False), (np.nan, False)):
        point, seen = scripted([0.0], matrix)
        lower_bound(point, Asked(step), 1e-3)
        assert bool(seen) == is_taken


def test_a_proof_keeps_the_best_bound():
    point, _ = scripted([0.0])
    assert lower_bound(point, Asked(1.0), 1e-3) == pytest.approx(0.5)
    point, _ = scripted([8.0, 9.0])
    assert lower_bound(point, Asked(1.0), 1e-3) == 0.0


def test_the_slack_is_the_positive_part_of_the_gradient_where_the_metric_is_zero():
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    gradient = np.diag([2.0, -3.0, 5.0, 7.0])

    def slack(*values):
        point = point_at(turn @ np.diag(values) @ turn.T, 1.0, turn @ gradient @ turn.T, 0.0)
        return turn.T @ _slack(point) @ turn

    np.testing.assert_allclose(slack(0.0, 0.0, 0.0, 0.1), np.diag([2.0, 0.0, 5.0, 0.0]), atol=1e-9)
    np.testing.assert_allclose(slack(0.0, 0.0, 0.0, 0.0), np.diag([2.0, 0.0, 5.0, 7.0]), atol=1e-9)
    # Up to 1e-9 of the largest eigenvalue counts as zero.
    np.testing.assert_allclose(slack(0.6e-10, 0.0, 1.8e-10, 0.1), np.diag([2.0, 0.0, 0.0, 0.0]), atol=1e-4)


# Conjugate gradients


def solver_in(basis, objective, curvature):
    return HessianSolver(objective, curvature, diagonal_model(objective, curvature, basis))


def test_conjugate_gradients_solve_with_the_hessian():
    objective = objective_of(1500, 4)
    matrix, tau = 0.7 * np.eye(4), np.array([1.5])
    here, _ = objective.loss_and_gradient(matrix, tau)
    hessian = objective.hessian(here.curvature)
    right, right_t = np.diag([1.0, -0.5, 0.2, 0.0]) + 0.1, np.array([0.3])
    solver = solver_in(np.eye(4), objective, here.curvature)
    for held in (np.array([False]), np.array([True])):
        step, shift = solver(right, right_t, held, 1e-10)
        expected, expected_t = _solve_dense(hessian, right, right_t, held, 0.0)
        np.testing.assert_allclose(step, expected, atol=1e-6 * np.abs(expected).max())
        np.testing.assert_allclose(shift, expected_t, atol=1e-6 * np.abs(expected).max())
    before = objective.passes.count
    rough, shift = solver(right, right_t, np.array([False]), 0.1)
    assert objective.passes.count - before < 15
    left = right - packed.split(hessian @ packed.join(rough, shift), 4)[0]
    assert np.linalg.norm(left, 2) <= 0.1


def test_the_hessian_of_a_sample_makes_passes_over_all_judgements_few():
    objective = objective_of(20_000, 4)
    few = objective.sample(0.1, np.random.default_rng(0))
    matrix, tau = 0.7 * np.eye(4), np.array([1.5])
    here, there = (each.loss_and_gradient(matrix, tau)[0].curvature for each in (objective, few))
    right, right_t = np.diag([1.0, -0.5, 0.2, 0.0]) + 0.1, np.array([0.3])
    solver = HessianSolver(objective, here, sample_model(few, there, np.eye(4), 0.05))
    before, on_few = objective.passes.count, few.passes.count
    step, shift = solver(right, right_t, np.array([False]), 1e-6)
    on_few = few.passes.count - on_few
    assert objective.passes.count - before - 0.1 * on_few < 10
    left = right - packed.split(objective.hessian(here) @ packed.join(step, shift), 4)[0]
    assert np.linalg.norm(left, 2) <= 1.1e-6


def mirrored(turn, scales=(1.0, 2.0, 0.5)):
    """Rows that come with every choice of signs in turned coordinates, and a curvature of each that ignores signs."""
    rng = np.random.default_rng(0)
    some = rng.uniform(0.5, 1.5, (5, 3)) * scales
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * 3)).reshape(3, -1).T
    z = (some[:, None] * signs).reshape(-1, 3) @ turn.T
    distance = np.repeat(rng.uniform(0.1, 1.0, 5), 8) / 40
    objective = Objective(Differences(z), CloseFar(NOISES["logistic"], np.ones(40), distance), Passes())
    return objective, MarginCurvature(distance, np.array([[distance.sum()]])), z


@pytest.mark.parametrize("held", [[False], [True]])
def test_where_only_squares_of_coordinates_are_correlated_one_product_is_enough(held):
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    objective, curvature, _ = mirrored(turn)
    right, right_t = np.array([[1.0, 0.3, -0.2], [0.3, -0.5, 0.4], [-0.2, 0.4, 0.1]]), np.array([0.3])
    solver = solver_in(turn, objective, curvature)
    expected, expected_t = _solve_dense(objective.hessian(curvature), right, right_t, np.array(held), 0.0)
    step, shift = solver.preconditioner(np.array(held))(right, right_t)
    np.testing.assert_allclose(step, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(shift, expected_t, rtol=1e-5, atol=1e-5)
    before = objective.passes.count
    step, _ = solver(right, right_t, np.array(held), 1e-3)
    assert objective.passes.count == before + 1.0
    np.testing.assert_allclose(step, expected, rtol=1e-5, atol=1e-5)


def test_a_coordinate_without_data_has_a_ridge_of_1e_10_of_the_mean_curvature():
    objective, curvature, z = mirrored(np.eye(3), scales=(1.0, 2.0, 0.0))
    weights = curvature.distance
    mean = (np.sum(weights @ z**4) + weights.sum()) / 4.0
    right = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 3.0]])
    step, _ = solver_in(np.eye(3), objective, curvature).preconditioner(np.array([False]))(right, np.zeros(1))
    np.testing.assert_allclose(step, right / (1e-10 * mean), rtol=1e-6)


@pytest.mark.parametrize(("scale", "residual"), [(0.0, 0.0), (1.0, 1.5), (1.0, np.inf)])
def test_a_right_side_within_the_residual_costs_nothing(scale, residual):
    objective, curvature, _ = mirrored(np.eye(3))
    solver = solver_in(np.eye(3), objective, curvature)
    before = objective.passes.count
    right = scale * np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])  # of spectral norm sqrt(2)
    step, shift = solver(right, np.zeros(1), np.array([False]), residual)
    assert objective.passes.count == before
    assert not step.any()
    assert not shift.any()


def test_without_curvature_there_is_no_step():
    objective, _, _ = mirrored(np.eye(3))
    flat = MarginCurvature(np.zeros(40), np.zeros((1, 1)))
    step, shift = solver_in(np.eye(3), objective, flat)(np.eye(3), np.ones(1), np.array([False]), 1e-3)
    assert not step.any()
    assert not shift.any()
