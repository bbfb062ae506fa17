"""The parts that solvers are made of: cone, loop, starts and models, each by something independent."""

from dataclasses import FrozenInstanceError, fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize, nnls

import closefar as cf
from closefar import packed
from closefar.noise import NOISES
from closefar.rows import Differences, unit_free
from closefar.solve import (
    CloseFar,
    Compared,
    Evaluation,
    FitStep,
    Graded,
    Objective,
    Options,
    Outcome,
    Passes,
    Solution,
    Solver,
    State,
    solve,
)
from closefar.solve.certificate import advise_outcome
from closefar.solve.fista import Fista
from closefar.solve.flips import Alternating, FlippedCloseFar, FlipState
from closefar.solve.likelihood import best_several
from closefar.solve.loop import Ending, Run, RunLimits
from closefar.solve.low_rank import Factor
from closefar.solve.newton import ConeProgram, Newton, _projection_slopes, _solve_dense, _typical_eigenvalue
from closefar.solve.problem import Cone, Point, Problem, psd_factor
from closefar.solve.separation import _largest_penalty, max_margin
from closefar.solve.solution import _certify, _outcome, choose_solver, with_finite_origin, with_free_corner
from closefar.solve.start import moment_start
from paper_estimator import PAPER


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


def solution_of(objective, *, watch=lambda *_: None, way=None, **changes):
    return solve(objective, options(**changes), rng=np.random.default_rng(0), watch=watch, **(way or {}))


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
    limits = RunLimits(tol, max_iter, lambda iteration, each: seen.append((iteration, each.objective)), **limits)
    return solver.run(solver.start, limits), seen


def test_a_run_ends_when_the_gap_is_small_enough():
    result, seen = go(state(1.0), state(0.9, 0.5), state(0.8, 0.7995))
    assert (result.ending, result.n_iter) == (Ending.CONVERGED, 2)
    assert seen == [(0, 1.0), (1, 0.9), (2, 0.8)]
    assert result.state.gap == pytest.approx(0.0005)
    result, _ = go(state(1.0), state(0.9, 0.89), relative_tol=0.02)
    assert result.ending is Ending.CONVERGED
    assert state(0.5, 0.7).gap == 0.0


def test_a_gap_of_exactly_the_tolerance_is_small_enough():
    assert go(state(1.0, 0.75), tol=0.25)[0].n_iter == 0
    assert go(state(1.0, 0.75), state(0.75, 0.75), tol=0.24)[0].n_iter == 1
    # The tolerance may also be a share of the objective.
    assert go(state(2.0, 1.5), tol=0.0, relative_tol=0.25)[0].n_iter == 0
    assert go(state(2.0, 1.5), state(2.0, 2.0), tol=0.0, relative_tol=0.24)[0].n_iter == 1
    assert go(state(0.5, 0.0), state(0.5, 0.5), tol=0.0)[0].n_iter == 1


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
    assert options().limits(plain, watch) == RunLimits(1e-8, 200, watch, stop_if_separable=True)
    assert options(has_constant=True).limits(free, watch).tol == 0.5e-8
    assert not options(alpha=0.1).limits(plain, watch).stop_if_separable


@pytest.mark.parametrize(
    ("d", "n", "solver"),
    [
        (16, 20, "newton"),
        (17, 2447, "lowrank"),
        (17, 2448, "newton"),
        (32, 8448, "newton"),
        (33, 50_000, "lowrank"),
        (1536, 50_000, "lowrank"),
    ],
)
def test_the_solver_follows_from_the_size(d, n, solver):
    rows = Differences(np.broadcast_to(np.zeros(1), (n, d)))
    assert choose_solver(Objective(rows, CloseFar(NOISES["logistic"], np.ones(n), np.ones(n)), Passes())) == solver


def test_advice_names_what_was_asked_for():
    facts = {"gap": 2e-4, "is_proven": True, "tol": 1e-6, "rank": None, "max_iter": 7}
    assert "2.0e-04" in advise_outcome(Outcome.CONVERGED, **facts)
    assert "Rank 3 costs nothing" in advise_outcome(Outcome.CONVERGED, **{**facts, "rank": 3})
    assert "rank-3" in advise_outcome(Outcome.RESTRICTED, **{**facts, "rank": 3})
    assert "max_iter=7 steps did not reach tol=1.0e-06; the proven gap is 2.0e-04" in advise_outcome(
        Outcome.UNFINISHED, **facts
    )
    assert "no gap is proven yet" in advise_outcome(Outcome.STALLED, **{**facts, "is_proven": False})
    assert 'Set alpha="auto"' in advise_outcome(Outcome.SEPARABLE, **facts)
    assert "the fit was interrupted" in advise_outcome(Outcome.INTERRUPTED, **facts)


@pytest.mark.parametrize(
    ("ending", "gap", "rank", "is_separable", "outcome"),
    [
        (Ending.INTERRUPTED, 0.0, None, True, Outcome.INTERRUPTED),
        (Ending.SEPARABLE, 0.0, None, False, Outcome.SEPARABLE),
        (Ending.CONVERGED, 0.0, 2, True, Outcome.SEPARABLE),
        (Ending.STUCK, 1e-8, 2, False, Outcome.CONVERGED),
        (Ending.LIMIT, 1e-8, None, False, Outcome.CONVERGED),
        (Ending.STUCK, 2e-8, 2, False, Outcome.RESTRICTED),
        (Ending.STUCK, 2e-8, None, False, Outcome.STALLED),
        (Ending.CONVERGED, 2e-8, 2, False, Outcome.STALLED),
        (Ending.LIMIT, 2e-8, 2, False, Outcome.UNFINISHED),
    ],
)
def test_the_outcome_follows_from_the_ending_and_the_gap(ending, gap, rank, is_separable, outcome):
    assert _outcome(ending, options(rank=rank), gap, is_separable) is outcome


def certified(objective, bound, *, ending=Ending.CONVERGED, alpha=0.0, least_margin=-1.0, **changes):
    parts = {"passes": SimpleNamespace(count=3.5), "likelihood": SimpleNamespace(n_thresholds=2)}
    problem = SimpleNamespace(alpha=alpha, objective=SimpleNamespace(**parts))
    here = Evaluation(0.375, np.array([0.25, -1.0]), least_margin, margin_gradient=None, second=None)
    found = Run(state(objective, bound), ending, n_iter=1)
    return _certify(problem, options(alpha=alpha, tol=0.25, **changes), found, here, objective)


def test_a_certificate_states_what_was_proven():
    proven = certified(0.5, 0.25)
    assert (proven.loss, proven.objective, proven.lower_bound, proven.gap) == (0.375, 0.5, 0.25, 0.25)
    assert (proven.threshold_multiplier, proven.n_passes) == (-0.75, 3.5)
    assert (proven.converged, proven.globally_optimal, proven.outcome) == (True, True, Outcome.CONVERGED)
    early = certified(0.5, 0.125, ending=Ending.LIMIT)
    assert (early.gap, early.converged, early.globally_optimal) == (0.375, False, False)
    assert "proven gap is 3.8e-01" in early.advice
    assert "no gap is proven yet" in certified(0.5, 0.0, ending=Ending.LIMIT).advice
    limited = certified(0.5, 0.125, ending=Ending.STUCK, rank=2)
    assert (limited.converged, limited.globally_optimal, limited.outcome) == (True, False, Outcome.RESTRICTED)
    assert certified(0.5, 0.625).gap == 0.0


def test_labels_that_are_all_right_have_no_bound_but_zero_unless_there_is_a_penalty():
    separable = certified(0.5, 0.25, least_margin=0.1)
    assert (separable.lower_bound, separable.gap, separable.outcome) == (0.0, 0.5, Outcome.SEPARABLE)
    assert certified(0.5, 0.25, least_margin=0.0).lower_bound == 0.25
    assert certified(0.5, 0.25, least_margin=0.1, alpha=0.1).lower_bound == 0.25


# From the objective to the solution


def test_a_solution_goes_on_from_where_it_is_told():
    objective = objective_of()
    cold = solution_of(objective)
    warm = solution_of(objective, way={"start": cold.state})
    assert len(cold.history) == cold.n_iter + 2  # the start, each step, and the end
    assert warm.history[0].objective == pytest.approx(cold.certificate.objective, abs=1e-9)
    assert cold.history[0].objective > cold.certificate.objective + 1e-6
    np.testing.assert_allclose(cold.squared, objective.quadratic_forms(cold.factor @ cold.factor.T), atol=1e-9)


@pytest.mark.parametrize(("share", "rank"), [(0.0, 3), (0.9, 1)])
def test_a_rank_that_limits_nothing_takes_no_further_step(share, rank):
    alpha = share * _largest_penalty(problem_of(objective_of()))
    free, same = (solution_of(objective_of(), alpha=alpha, rank=limit) for limit in (None, rank))
    assert free.factor.shape == (3, rank)
    assert same.history == free.history


def test_a_limited_rank_begins_at_the_convex_solution_or_near_the_start():
    objective = objective_of()
    matrix = np.diag([0.0, 0.0, 1.0])
    thresholds, here = problem_of(objective).minimise_threshold(objective.quadratic_forms(matrix), np.ones(1))
    start = State.at(matrix, *thresholds)
    for way, begins in (({"stay_near": True}, 2), ({}, 1)):
        found = solution_of(objective, way={"start": start, **way}, rank=1)
        assert found.factor.shape == (3, 1)
        assert len(found.history) == found.n_iter + 3  # two beginnings, each step, and the end
        assert sum(abs(step.objective - here.loss) < 1e-9 for step in found.history) == begins
        assert 0.0 < found.certificate.lower_bound < found.certificate.objective
    # Without a start there is nothing to stay near to.
    anywhere, near = (solution_of(objective_of(), way=way, rank=1) for way in ({}, {"stay_near": True}))
    assert near.history == anywhere.history


def test_an_interrupt_cuts_the_metric_to_the_rank_without_further_steps():
    def interrupt(iteration, _):
        if iteration == 1:
            raise KeyboardInterrupt

    found = solution_of(objective_of(), rank=1, watch=interrupt)
    assert (found.certificate.outcome, found.n_iter) == (Outcome.INTERRUPTED, 1)
    assert found.factor.shape == (3, 1)


@pytest.mark.parametrize("tol", [1e-4, 4e-4])
def test_an_origin_at_infinity_costs_a_quarter_of_the_tolerance(tol):
    """Where "far" is linear in x_1, and a little concave, no distance is wanted there but the linear term."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 2))
    score = 2.0 * x[:, 0] - 0.3 * x[:, 0] ** 2 + (x[:, 1] - 0.5) ** 2 - 1.0
    signs, weights = np.where(score + rng.logistic(size=500) > 0.0, 1.0, -1.0), np.full(500, 1.0 / 500)
    rows, _ = unit_free(Differences(x), weights, with_constant=True)
    objective = Objective(rows, CloseFar(NOISES["logistic"], signs, weights), Passes())
    found = solution_of(objective, has_constant=True, tol=tol)
    core = found.factor[:2] @ found.factor[:2].T
    assert np.linalg.eigvalsh(core)[0] == pytest.approx(0.25 * tol, rel=1e-4)
    assert found.certificate.gap <= tol


def test_separable_labels_with_a_learned_origin_stay_right():
    x = np.array([[0.5], [1.5], [2.0], [2.5], [3.5], [4.0], [5.0], [6.0], [7.0]])
    signs, weights = np.where(np.abs(x[:, 0] - 2.0) > 1.0, 1.0, -1.0), np.full(9, 1.0 / 9.0)
    rows, _ = unit_free(Differences(x), weights, with_constant=True)
    found = solution_of(Objective(rows, CloseFar(NOISES["logistic"], signs, weights), Passes()), has_constant=True)
    assert found.certificate.outcome is Outcome.SEPARABLE
    assert np.all(signs * (found.squared - found.thresholds[0]) > 0.0)


# Problem and points


def test_projection_and_value():
    objective = objective_of()
    problem = problem_of(objective, alpha=0.2)
    matrix = np.array([[1.0, 0.2, 0.0], [0.2, -2.0, 0.0], [0.0, 0.0, 0.5]])
    projected, squared = problem.project(matrix)
    values, vectors = np.linalg.eigh(matrix)
    np.testing.assert_allclose(projected, (vectors * np.maximum(values, 0.0)) @ vectors.T, atol=1e-9)
    np.testing.assert_allclose(squared, objective.quadratic_forms(projected), atol=1e-9)
    thresholds, here = problem.minimise_threshold(squared, np.array([1.0]))
    assert abs(here.slopes[0]) < 1e-12
    assert problem.value(here, projected) == pytest.approx(here.loss + 0.2 * np.trace(projected))
    point = problem.at(projected, thresholds)
    same = problem.known(projected, thresholds, here)
    np.testing.assert_allclose(point.gradient, objective.gradient(here) + 0.2 * np.eye(3), atol=1e-12)
    np.testing.assert_allclose(same.gradient, point.gradient, atol=1e-12)
    assert point.value == pytest.approx(problem.value(here, projected))
    expected = point.value - np.sum(point.gradient * projected) - thresholds @ point.slopes
    assert point.dual_value == pytest.approx(expected)


def test_projection_leaves_out_small_eigenvalues():
    problem = problem_of(objective_of())
    projected, _ = problem.project(np.diag([1.0, 0.6e-9, 1.8e-9]))
    np.testing.assert_allclose(projected, np.diag([1.0, 0.0, 1.8e-9]), atol=1e-15)


def test_a_part_of_the_problem_keeps_penalty_and_cone():
    problem = problem_of(objective_of(), alpha=0.2)
    part = problem.sample(0.5, np.random.default_rng(0))
    assert (part.alpha, part.cone) == (0.2, problem.cone)
    assert 200 < part.objective.n_judgements < 400
    alike = problem.objective.with_likelihood(CloseFar(NOISES["logistic"], np.ones(600), np.full(600, 1.0 / 600)))
    assert problem_of(alike).sample(0.5, np.random.default_rng(0)) is None


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
    gradient, _ = objective.scale_derivatives(objective.quadratic_forms(matrix), 1.0, thresholds)
    np.testing.assert_allclose(gradient, 0.0, atol=5e-3)
    best = solve(objective, options(), rng=rng, watch=lambda *_: None).certificate.loss
    at_start = objective.evaluate(objective.quadratic_forms(matrix), thresholds).loss
    assert best < at_start < best + 0.02


def test_the_start_is_the_best_multiple_of_the_projected_moments():
    objective = objective_of()
    z, signs = objective.source.read(slice(0, 600)).T, objective.likelihood.signs
    matrix, thresholds = moment_start(problem_of(objective))
    values, vectors = np.linalg.eigh((z * signs[:, None]).T @ z / 600 - signs.mean() * np.eye(3))
    expected = (vectors * np.maximum(values, 0.0)) @ vectors.T
    np.testing.assert_allclose(matrix / np.trace(matrix), expected / np.trace(expected), atol=1e-8)
    squared = objective.quadratic_forms(expected)
    best = minimize(lambda x: objective.evaluate(x[0] * squared, x[1:]).loss, [1.0, 1.0])
    assert objective.evaluate(objective.quadratic_forms(matrix), thresholds).loss == pytest.approx(best.fun, abs=1e-6)


def test_without_thresholds_the_start_keeps_the_mean_of_the_labels():
    objective = objective_of()
    signs = np.where(np.arange(600) % 4 == 0, objective.likelihood.signs, 1.0)
    objective = objective.with_likelihood(Compared(NOISES["logistic"], signs, np.full(600, 1.0 / 600)))
    matrix, thresholds = moment_start(problem_of(objective))
    z = objective.source.read(slice(0, 600)).T
    expected = (z * signs[:, None]).T @ z / 600
    np.testing.assert_allclose(matrix / np.trace(matrix), expected / np.trace(expected), atol=1e-8)
    assert thresholds.shape == (0,)
    assert abs(objective.scale_derivatives(objective.quadratic_forms(matrix), 1.0, thresholds)[0][0]) < 1e-3


def test_several_thresholds_are_fitted_together_with_the_scale():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((500, 3))
    codes = np.digitize(z[:, 0] ** 2 + 0.3 * rng.logistic(size=500), [0.3, 1.0])
    objective = Objective(Differences(z), Graded(NOISES["logistic"], codes, np.full(500, 1 / 500), 3), Passes())
    matrix, thresholds = moment_start(problem_of(objective), accuracy=1e-12)
    squared = objective.quadratic_forms(matrix)
    gradient, _ = objective.scale_derivatives(squared, 1.0, thresholds)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)


def scripted_start(gradients, mean=2.0, spread=0.5):
    """Start with a Hessian of one and these gradients in (scale, threshold); also return where they were taken."""
    seen, ahead = [], iter(gradients)
    objective = SimpleNamespace(
        n_directions=1,
        trend_moment=lambda: (np.array([[2.0]]), 0.5),
        mean_and_spread=lambda _: (mean, spread),
        scale_derivatives=lambda _, scale, thresholds: (seen.append((scale, *thresholds)), (next(ahead), np.eye(2)))[1],
    )
    minimise_threshold = lambda squared, thresholds, tol: (thresholds + squared, None)  # noqa: E731
    project = lambda moments: (moments, np.ones(1))  # noqa: E731
    problem = SimpleNamespace(
        objective=objective, cone=Cone(1, np.zeros(1)), project=project, minimise_threshold=minimise_threshold
    )
    return moment_start(problem), seen


def test_the_steps_of_the_start_are_short_and_feasible():
    gradients = [[9.0, 0.0], [-9.0, 0.0], [0.0, 9.0], [0.0, -9.0], [0.5, 2.0], [0.0, 9.0], [0.0, 0.0]]
    (matrix, thresholds), seen = scripted_start(np.array(gradients))
    # From one over the spread by factors from 0.3 to 3; from the mean by 3 at most, and not below zero.
    expected = [(2.0, 4.0), (0.6, 4.0), (1.8, 4.0), (1.8, 1.0), (1.8, 4.0), (1.3, 2.0), (1.3, 0.0)]
    np.testing.assert_allclose(seen, expected, rtol=1e-9)
    np.testing.assert_allclose(matrix, [[1.3 * 1.5]])
    assert thresholds.tolist() == [0.0]


def test_the_start_ends_when_a_step_gains_less_than_1e_4():
    assert len(scripted_start(np.array([[0.0, 0.011], [0.0, 0.009], [0.0, 0.0]]))[1]) == 2


@pytest.mark.parametrize(("mean", "spread", "is_zero"), [(2.0, 1.2e-9, True), (2.0, 3.6e-9, False), (0.0, 0.0, True)])
def test_distances_that_are_all_the_same_start_at_zero(mean, spread, is_zero):
    (matrix, thresholds), _ = scripted_start(np.zeros((1, 2)), mean, spread)
    assert (matrix[0, 0] == 0.0) == is_zero
    assert (thresholds[0] == 0.0) == is_zero


def test_labels_that_ask_for_no_distance_start_at_zero():
    objective = objective_of()
    reversed_labels = objective.with_likelihood(
        CloseFar(NOISES["logistic"], -objective.likelihood.signs, objective.likelihood.weights)
    )
    matrix, thresholds = moment_start(problem_of(reversed_labels))
    np.testing.assert_array_equal(matrix, 0.0)
    assert thresholds[0] >= 0.0


# Newton


def test_the_cone_program_is_solved(rng):
    cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    root = rng.standard_normal((7, 7))
    hessian, linear = root @ root.T + 0.1 * np.eye(7), rng.standard_normal(7)
    program = ConeProgram(hessian, 1e-9, Cone(3, np.zeros(1)))
    found = program.project(program.solve(linear, np.zeros(7), tol=1e-12))
    matrix, tau = cp.Variable((3, 3), PSD=True), cp.Variable(nonneg=True)
    weights = packed.weights(3)
    x = cp.hstack([cp.multiply(weights, cp.hstack([matrix[i, j] for i in range(3) for j in range(i, 3)])), tau])
    best = cp.Problem(cp.Minimize(0.5 * cp.quad_form(x, cp.psd_wrap(hessian)) + linear @ x)).solve(solver=cp.CLARABEL)
    assert 0.5 * found @ hessian @ found + linear @ found == pytest.approx(best, abs=1e-6)
    assert np.linalg.eigvalsh(packed.split(found, 3)[0])[0] >= -1e-9
    assert found[-1] >= 0.0


def test_the_cone_program_with_free_linear_terms(rng):
    root = rng.standard_normal((11, 11))
    hessian, linear = root @ root.T + 0.1 * np.eye(11), rng.standard_normal(11)
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
    assert program.rho == pytest.approx(3.0 * np.sqrt((4.0 / 3.0 + 1e-3) * (2.0 / 3.0 + 1e-3)) + 1.5)
    assert ConeProgram(5.0 * hessian, 0.5, Cone(1, np.zeros(1))).rho == pytest.approx(5.0 * program.rho)
    assert ConeProgram(0.0 * hessian, 0.5, Cone(1, np.zeros(1))).damping == pytest.approx(0.5e-6)


@pytest.mark.parametrize("values", [[1.5, 0.5], [2.0, 1.0, 0.0], [2.999, 1e-3, 0.0], [1.0]])
def test_the_typical_eigenvalue_is_the_geometric_mean(values, rng):
    turn = np.linalg.qr(rng.standard_normal((len(values), len(values))))[0]
    expected = np.prod(np.add(values, 1e-3)) ** (1.0 / len(values))
    assert _typical_eigenvalue((turn * values) @ turn.T) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("damping", [0.0, 10.0])
@pytest.mark.parametrize("cone", [Cone(3, np.array([0.5, -1.0])), Cone(3, np.array([-np.inf] * 2), has_constant=True)])
def test_newton_steps_of_the_cone_program_are_those_of_finite_differences(damping, cone, rng):
    root = rng.standard_normal((8, 8))
    program = ConeProgram(root @ root.T + 0.1 * np.eye(8), damping, cone)
    linear = rng.standard_normal(8)
    matrix = np.array([[1.0, 0.7, 0.3], [0.7, -1.0, 0.2], [0.3, 0.2, -0.5]])
    t = packed.join(matrix, np.array([1.0, -2.0]))  # one above its least value, one below
    residual, spectrum = program._residual(t, linear)
    near = [program._residual(t + 1e-6 * sign * unit, linear)[0] for unit in np.eye(8) for sign in (1.0, -1.0)]
    jacobian = (np.array(near[::2]) - np.array(near[1::2])).T / 2e-6
    # Some of the damping keeps it invertible.
    jacobian += 1e-4 * program.damping / program.rho * np.eye(8)
    step = program._newton_step(t, residual, spectrum)
    np.testing.assert_allclose(jacobian @ step, -residual, atol=1e-7 * np.abs(step).max())


@pytest.mark.parametrize(
    ("scale", "length"),
    [(1.0, 1.0), (1.85, 1.0), (0.11, 1.0), (2.0, 0.5), (5.0, 0.2), (10.0, None), (0.09, None), (0.0, None), (-1, None)],
)
def test_a_newton_step_is_shortened_until_the_residual_falls_by_a_tenth_of_its_length(scale, length):
    """Inside the cone the residual is linear: a step of s times the right one leaves 1 - s of it."""
    program = ConeProgram(np.array([[2.0, 0.5], [0.5, 1.0]]), 0.0, Cone(1, np.zeros(1)))
    linear, start = -program.hessian @ [3.0, 5.0], np.array([3.001, 4.999])
    residual, spectrum = program._residual(start, linear)
    step = program._newton_step(start, residual, spectrum)
    np.testing.assert_allclose(start + step, [3.0, 5.0])
    program._newton_step = lambda *_: scale * step
    found = program.solve(linear, start, tol=0.0, max_iter=1)
    # Where no length helps, a splitting step.
    expected = start - residual if length is None else start + length * scale * step
    np.testing.assert_allclose(found - start, expected - start, rtol=1e-9)


def test_the_cone_program_ends_when_the_slack_is_known_to_its_tolerance():
    program = ConeProgram(np.array([[2.0, 0.5], [0.5, 1.0]]), 0.0, Cone(1, np.zeros(1)))
    linear, start = -program.hessian @ [3.0, 5.0], np.array([3.1, 4.0])
    left = program.rho * np.abs(program._residual(start, linear)[0]).max()
    assert program.solve(linear, start, tol=left * 1.001) is start
    assert program.solve(linear, start, tol=left * 0.999) is not start
    assert program.solve(linear, start, tol=0.0, max_iter=0) is start
    # Nothing is left to gain at a solution of this arithmetic, whatever the tolerance.
    solution = program.solve(linear, start, tol=0.0)
    np.testing.assert_allclose(solution, [3.0, 5.0], rtol=1e-13)


def test_near_a_solution_the_cone_program_needs_few_steps():
    rng = np.random.default_rng(5)
    root, linear = rng.standard_normal((7, 7)), rng.standard_normal(7)
    program = ConeProgram(root @ root.T + 0.1 * np.eye(7), 1e-9, Cone(3, np.zeros(1)))
    solution = program.solve(linear, np.zeros(7), tol=1e-12)
    near = program.solve(linear, solution + 1e-4 * rng.standard_normal(7), tol=0.0, max_iter=3)
    np.testing.assert_allclose(near, solution, atol=1e-9)


def test_slopes_of_the_projection_are_divided_differences():
    values = np.array([-2.0, 0.0, 0.0, 3.0])
    positive = np.maximum(values, 0.0)
    slopes = _projection_slopes(values)
    for i in range(4):
        for j in range(4):
            if values[i] != values[j]:
                assert slopes[i, j] == pytest.approx((positive[i] - positive[j]) / (values[i] - values[j]))
    assert (slopes[0, 0], slopes[3, 3], slopes[1, 2]) == (0.0, 1.0, 0.5)


def test_dense_systems_hold_thresholds(rng):
    root = rng.standard_normal((5, 5))
    hessian = root @ root.T
    matrix, slopes = np.array([[1.0, 0.5], [0.5, -1.0]]), np.array([0.3, -0.2])
    for held in ([False, False], [True, False], [True, True]):
        step, shift = _solve_dense(hessian, matrix, slopes, np.array(held), 0.0)
        image = hessian @ packed.join(step, shift)
        np.testing.assert_allclose(image[:3], packed.pack(matrix), atol=1e-10)
        for k, is_held in enumerate(held):
            assert shift[k] == 0.0 if is_held else image[3 + k] == pytest.approx(slopes[k])


def test_newton_needs_few_steps_and_passes():
    objective = objective_of(4000, 5)
    solver = Newton(problem_of(objective), 1e-8, np.random.default_rng(0))
    result = solver.run(solver.start, RunLimits(1e-8, 50, lambda *_: None))
    assert result.ending is Ending.CONVERGED
    assert result.n_iter <= 10
    assert objective.passes.count < 25
    # From a solution there is nothing to do but to prove it.
    again = solver.run(lambda: solver.resume(result.state), RunLimits(1e-8, 50, lambda *_: None))
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


@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_a_factor_of_full_rank_finds_the_optimum_and_proves_it(alpha):
    objective = objective_of()
    problem = problem_of(objective, alpha=alpha)
    solver = Factor(problem, 1e-7, np.random.default_rng(0))
    result = solver.run(solver.start, RunLimits(1e-7, 500, lambda *_: None))
    best = solve(objective, options(alpha=alpha, tol=1e-10), rng=np.random.default_rng(0), watch=lambda *_: None)
    assert result.state.objective == pytest.approx(best.certificate.objective, abs=1e-7)
    assert result.state.gap <= 1e-7
    silent = Factor(problem, 1e-7, np.random.default_rng(0), proves=False)
    assert silent.run(silent.start, RunLimits(1e-7, 500, lambda *_: None)).state.bound == 0.0


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


# A learned origin


def test_free_linear_terms_become_a_distance_from_a_point(rng):
    cone = Cone(4, np.array([-np.inf]), has_constant=True)
    core = np.diag([2.0, 1.0, 0.5])
    matrix = np.zeros((4, 4))
    matrix[:3, :3] = core
    matrix[:3, 3] = matrix[3, :3] = [0.4, -0.2, 0.3]
    free = State.at(matrix, 0.7)
    found = with_finite_origin(cone, free, 1e-6)
    points = np.column_stack([rng.standard_normal((20, 3)), np.ones(20)])
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


@pytest.mark.parametrize(
    ("values", "border", "lifted"),
    [
        ([1.0, 0.5, 0.0], [0.3, 0.2, 0.1], [2]),
        ([1.0, 0.5, 0.0], [0.3, 0.2, 0.0], []),
        ([1.0, 0.5, 0.0], [0.0, 0.0, 0.0], []),
        ([0.0, 0.0, 0.0], [0.3, 0.2, 0.1], [0, 1, 2]),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], []),
        ([1.0, 0.5, -1e-12], [0.3, 0.2, 0.1], [2]),
        ([0.1, 0.6e-10, 1.8e-10], [0.3, 0.2, 0.1], [1]),  # up to 1e-9 of the largest eigenvalue counts as zero
        ([1.0, 0.5, 0.0], [0.3, 0.2, 1.8e-10], []),  # and up to 1e-9 of the largest linear term
        ([1.0, 0.5, 0.0], [0.3, 0.2, 6e-10], [2]),
    ],
)
def test_margins_change_only_by_the_cost_along_lifted_directions(values, border, lifted):
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    matrix = np.zeros((4, 4))
    matrix[:3, :3] = (turn * values) @ turn.T
    matrix[:3, 3] = matrix[3, :3] = turn @ border
    cone, free = Cone(4, np.array([-np.inf]), has_constant=True), State.at(matrix, 0.7)
    found = with_finite_origin(cone, free, 1e-4)
    x = np.random.default_rng(2).standard_normal((20, 3))
    points = np.column_stack([x, np.ones(20)])
    before, after = (
        np.einsum("ij,jk,ik->i", points, each.matrix, points) - each.thresholds[0] for each in (free, found)
    )
    expected = 1e-4 * np.sum((x @ turn)[:, lifted] ** 2, axis=1)
    np.testing.assert_allclose(after - before, expected, atol=1e-8)
    assert np.linalg.eigvalsh(found.matrix)[0] >= -1e-8 * np.linalg.eigvalsh(found.matrix)[-1]


# Fista


def test_fista_with_a_penalty_proves_as_it_goes():
    objective = objective_of(800, 6)
    solver = Fista(problem_of(objective, alpha=0.05), 1e-6, np.random.default_rng(0))
    bounds = []
    result = solver.run(solver.start, RunLimits(1e-6, 300, lambda _, each: bounds.append(each.bound)))
    assert result.ending is Ending.CONVERGED
    assert bounds == sorted(bounds)
    assert sum(bound > 0 for bound in bounds) > 3


# Separable labels


def test_from_the_largest_penalty_on_nothing_is_learned():
    objective = objective_of()
    largest = _largest_penalty(problem_of(objective))
    assert solution_of(objective, alpha=1.01 * largest, tol=1e-10).factor.shape[1] == 0
    assert solution_of(objective, alpha=0.99 * largest, tol=1e-10).factor.shape[1] == 1
    signs, weights = -np.sign(np.arange(8) - 3.5), np.full(8, 0.125)
    reverse = Objective(Differences(np.arange(8.0)[:, None]), CloseFar(NOISES["logistic"], signs, weights), Passes())
    assert _largest_penalty(problem_of(reverse)) == 1e-8


def scripted_path(margins, *, last=None, bound=0.0):
    """Go down the penalties with a solver that has this least margin after one step at each of them."""
    problem, calls = problem_of(objective_of()), []

    class Path(Solver):
        def start(self):
            return self.resume(None)

        def resume(self, before):
            calls.append((self.problem.alpha, self.tol, before))
            return state(1.0, bound)

        def step(self, before):
            if last is not None and len(calls) == len(margins):
                raise last
            return state(1.0, 0.5, least_margin=margins[len(calls) - 1], stuck=True)

    separated = Run(state(0.25, 0.125, least_margin=0.5), Ending.SEPARABLE, n_iter=3)
    limits = RunLimits(1e-6, 5, lambda *_: None)
    return max_margin(Path, problem, separated, np.random.default_rng(0), limits), calls, _largest_penalty(problem)


def test_the_first_penalty_that_separates_the_labels_is_taken():
    found, calls, largest = scripted_path([-1.0, -1.0, 0.0, 0.125, 1.0])
    alphas = largest * np.array([1e-2, 1e-3, 1e-4, 1e-5])
    np.testing.assert_allclose([alpha for alpha, _, _ in calls], alphas)
    np.testing.assert_allclose([tol for _, tol, _ in calls], 1e-3 * alphas)
    assert [before and before.least_margin for _, _, before in calls] == [None, -1.0, -1.0, 0.0]
    assert (found.ending, found.n_iter, found.state.least_margin, found.state.bound) == (
        Ending.SEPARABLE,
        7,
        0.125,
        0.0,
    )


def test_after_ten_penalties_or_an_interrupt_the_metric_that_was_there_is_kept():
    found, calls, _ = scripted_path([-1.0] * 20)
    assert (len(calls), found.n_iter, found.ending, found.state.objective) == (10, 13, Ending.SEPARABLE, 0.25)
    found, calls, _ = scripted_path([-1.0, -1.0], last=KeyboardInterrupt())
    assert (len(calls), found.n_iter, found.ending, found.state.objective) == (2, 4, Ending.INTERRUPTED, 0.25)


@pytest.mark.parametrize(("gap", "n_steps"), [(8e-3, 0), (1.2e-2, 10)])
def test_first_order_solvers_prove_a_hundredth_of_the_objective(gap, n_steps):
    found, _, _ = scripted_path([-1.0] * 10, bound=1.0 - gap)
    assert found.n_iter == 3 + n_steps


def test_newton_steps_minimise_precisely_at_the_first_penalty_that_separates():
    z = np.random.default_rng(0).standard_normal((4000, 3))
    signs, weights = np.where(z[:, 0] ** 2 + 0.3 * z[:, 1] ** 2 > 1.0, 1.0, -1.0), np.full(len(z), 1.0 / len(z))
    objective = Objective(Differences(z), CloseFar(NOISES["logistic"], signs, weights), Passes())
    problem, limits = problem_of(objective), RunLimits(1e-6, 200, lambda *_: None)
    separated = Run(State.at(np.eye(3), 1.0), Ending.SEPARABLE, n_iter=0)
    found = max_margin(Newton, problem, separated, np.random.default_rng(0), limits).state
    alphas = 0.01 * _largest_penalty(problem) * 0.1 ** np.arange(10)
    solutions = [solution_of(objective, alpha=alpha, tol=1e-12, solver="newton") for alpha in alphas[:6]]
    margins = [signs * (np.sum((z @ each.factor) ** 2, axis=1) - each.thresholds[0]) for each in solutions]
    first = next(k for k, margin in enumerate(margins) if margin.min() > 0.0)
    assert first >= 2
    scale = float(found.thresholds[0])
    np.testing.assert_allclose(found.thresholds, solutions[first].thresholds, rtol=1e-4)
    exact = solutions[first].factor @ solutions[first].factor.T / solutions[first].thresholds[0]
    np.testing.assert_allclose(found.matrix / scale, exact, atol=1e-5)


def test_separable_labels_get_a_wide_margin():
    """Of hard margins: the returned direction is near the widest one that a conic solver finds."""
    cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    rng = np.random.default_rng(3)
    z = rng.standard_normal((120, 2))
    squared = z[:, 0] ** 2 + 0.2 * z[:, 1] ** 2
    kept = np.abs(squared - 1.0) > 0.15
    z, labels = z[kept], np.where(squared[kept] > 1.0, 1, -1)
    with pytest.warns(match="separable"):
        learner = cf.LinearMetricLearner(**PAPER).fit(z, labels)
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


# The climb with flips


def climber(n=512, *, rank=None, rate=0.1, estimate=False, alpha=0.0, flips=0.1):
    objective = objective_of(n)
    signs = np.where(np.random.default_rng(1).random(n) < flips, -1.0, 1.0) * objective.likelihood.signs
    likelihood = FlippedCloseFar(NOISES["logistic"], signs, objective.likelihood.weights, rate)
    problem = problem_of(objective.with_likelihood(CloseFar(likelihood.noise, signs, likelihood.weights)), alpha=alpha)
    return Alternating(problem, np.random.default_rng(0), likelihood, estimate=estimate, rank=rank)


def flipped_value(solver, place, rate):
    z, likelihood = solver.problem.objective.source.read(slice(0, 512)).T, solver.likelihood
    margin = likelihood.signs * (np.einsum("ij,jk,ik->i", z, place.matrix, z) - place.thresholds[0])
    losses = -np.log(rate + (1.0 - 2.0 * rate) / (1.0 + np.exp(-margin)))
    return losses.mean() + solver.problem.alpha * np.trace(place.matrix)


@pytest.mark.parametrize(("rank", "is_limited"), [(None, False), (2, True), (3, False), (4, False)])
@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_the_climb_descends_and_keeps_to_a_limited_rank(rank, is_limited, alpha):
    solver = climber(rank=rank, alpha=alpha)
    places = [solver.start()]
    for _ in range(3):
        places.append(solver.step(places[-1]))
    values = [place.objective for place in places]
    np.testing.assert_allclose(values, [flipped_value(solver, place, 0.1) for place in places], rtol=1e-9)
    assert values[-1] < values[0] - 1e-4
    assert values[2] <= values[1] + 1e-12
    assert np.linalg.matrix_rank(places[1].matrix, tol=1e-9) == (2 if is_limited else 3)
    assert [place.bound for place in places] == [0.0] * 4


@pytest.mark.parametrize(
    ("limit", "before", "after", "most", "is_dense"),
    [
        (None, 3, 3, 6, True),
        (None, 3, 3, 5, False),
        (2, 1, 2, 6, True),
        (2, 1, 2, 5, False),
        (2, 1, 3, 6, False),
        (2, 2, 2, 6, False),
    ],
)
def test_the_climb_takes_dense_steps_for_few_entries_of_m_while_they_keep_the_rank(
    limit, before, after, most, is_dense, monkeypatch
):
    monkeypatch.setattr("closefar.solve.flips._MOST_DENSE_ENTRIES", most)  # M has six
    solver = climber(rank=limit)
    dense = State.at(np.diag(1.0 + np.arange(3)) * (np.arange(3) < after), 3.0)
    newton = SimpleNamespace(renew=lambda state: state, advance=lambda state: dense)
    monkeypatch.setattr("closefar.solve.flips.Newton", lambda *_: newton)
    start = State.at(np.eye(3) * (np.arange(3) < before), 2.0)
    moved = solver._advance(solver._flipped(solver.likelihood), start)
    assert (moved is dense) == is_dense


def test_a_round_that_gains_less_than_1e_7_ends_the_climb_unless_it_is_the_first(monkeypatch):
    solver = climber(alpha=0.01)
    begun = solver.step(solver.start())
    monkeypatch.setattr(solver, "_advance", lambda problem, inner: inner)
    assert not begun.stuck
    assert not solver.step(solver.resume(begun)).stuck
    for gain, is_stuck in ((0.6e-7, True), (1.8e-7, False), (-1.0, True)):
        assert solver.step(replace(begun, objective=begun.objective + gain)).stuck == is_stuck


def test_the_climb_ends_where_no_label_seems_flipped():
    solver = climber(estimate=True, flips=0.0)
    certain = solver.resume(State.at(1e-3 * np.eye(3), 3e-3))
    solver._advance = lambda problem, inner: inner
    ended = solver.step(certain)
    assert ended.memory.likelihood.flip_rate == 0.0
    assert ended.stuck


@pytest.mark.parametrize(
    ("share", "alpha", "is_settled"), [(14 / 512, 0.0, True), (13 / 512, 0.0, False), (0.0, 0.01, True)]
)
def test_the_scale_is_settled_by_two_undecided_labels_for_each_unknown_or_a_penalty(share, alpha, is_settled):
    solver = climber(alpha=alpha)  # M has six unknowns, and there is one threshold
    right, weights = np.where(np.arange(512) < 512 * share, 0.5, 1.0), np.full(512, 1.0 / 512)
    likelihood = SimpleNamespace(right=lambda *_: right, weights=weights)
    assert solver._is_settled(likelihood, None, State.at(np.eye(3), 1.0)) == is_settled
    assert FlipState(likelihood, None, None).is_settled


@pytest.mark.parametrize(
    "record",
    [
        certified(0.5, 0.25),
        FlipState(None, None, None),
        Cone(1, np.zeros(1)),
        FitStep(1.0, 0.5, 0.1),
        RunLimits(1e-6, 5, None),
        options(),
        Point(None, np.eye(1), np.ones(1), None, np.eye(1)),
        Problem(None, 0.0, None),
        Run(None, Ending.LIMIT, 1),
        Solution(np.eye(1), np.ones(1), None, None, 1, ()),
        state(1.0),
    ],
    ids=lambda record: type(record).__name__,
)
def test_records_cannot_be_changed(record):
    with pytest.raises(FrozenInstanceError):
        setattr(record, fields(record)[0].name, None)


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
        rng = np.random.default_rng(seed)
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
