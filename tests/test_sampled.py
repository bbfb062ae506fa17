"""The solver for very many judgements: steps with the Hessian of a sample, verified on all."""

from types import SimpleNamespace

import numpy as np
import pytest

import closefar as cf
from closefar import packed
from closefar.noise import get_noise
from closefar.rows import Differences, unit_free
from closefar.solve import CloseFar, Objective, Options, Passes
from closefar.solve import fista as sampled
from closefar.solve.fista import Fista, Sampled, SampledModel
from closefar.solve.problem import enough_for_hessian, share_for_hessian
from closefar.solve.solution import choose_solver
from paper_estimator import PAPER


def rows_and_labels(n, d, kind="normal", seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, d))
    if kind == "heavy":
        Z = np.sign(Z) * np.abs(Z) ** 1.8
        Z[:, 0] = Z[:, 0] > 1.2
    if kind == "correlated":
        Z = Z @ (np.eye(d) + 0.9 * rng.standard_normal((d, d)))
    squared = np.einsum("ij,ij->i", Z[:, :2], Z[:, :2])
    squared *= 3.0 / squared.mean()
    return Z, np.where(squared + rng.logistic(size=n) > 2.5, 1, -1)


def problem_of(Z, labels, alpha=0.0):
    weights = np.full(len(Z), 1.0 / len(Z))
    rows, _ = unit_free(Differences(Z), weights)
    objective = Objective(rows, CloseFar(get_noise("logistic"), labels.astype(float), weights), Passes())
    return Options(alpha, None, False, "sampled", 1e-6, 100).problem(objective)


@pytest.mark.parametrize("kind", ["normal", "heavy", "correlated"])
@pytest.mark.parametrize("parameters", [{}, {"alpha": 0.02}, {"noise": "normal"}, {"flip_rate": 0.05}], ids=str)
def test_it_agrees_with_newton_and_its_bound_holds(kind, parameters):
    Z, labels = rows_and_labels(12_000, 5, kind)
    tight = cf.LinearMetricLearner(solver="newton", tol=1e-11, **PAPER | parameters).fit(Z, labels).certificate_
    found = cf.LinearMetricLearner(solver="sampled", tol=1e-6, **PAPER | parameters).fit(Z, labels).certificate_
    assert found.converged
    assert found.gap <= 1e-6
    if "flip_rate" not in parameters:
        assert found.lower_bound <= tight.objective + 1e-12
        assert found.objective >= tight.lower_bound - 1e-12
    np.testing.assert_allclose(found.objective, tight.objective, atol=2e-6)


@pytest.mark.parametrize("tol", [1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize("seed", range(4))
def test_a_proven_gap_is_never_smaller_than_the_true_one(tol, seed):
    Z, labels = rows_and_labels(6_000, 3, "heavy", seed)
    best = cf.LinearMetricLearner(solver="newton", tol=1e-12, **PAPER).fit(Z, labels).certificate_.loss
    found = cf.LinearMetricLearner(solver="sampled", tol=tol, random_state=seed, **PAPER).fit(Z, labels).certificate_
    assert found.gap <= tol
    assert found.gap >= found.loss - best - 1e-12


def test_few_passes_over_all_judgements_are_enough(monkeypatch):
    Z, labels = rows_and_labels(40_000, 4, "heavy")
    problem = problem_of(Z, labels)
    solver = Sampled(problem, 1e-6, np.random.default_rng(0))
    state, passes = solver.start(), []
    monkeypatch.setattr(type(problem.objective.source), "sweep", _counted(passes, problem.objective.source))
    while state.gap > 1e-6:
        state = solver.step(state)
    assert len(passes) <= 12


def _counted(passes, whole):
    sweep = type(whole).sweep

    def counted(self, *arguments):
        if self is whole:
            passes.append(1)
        return sweep(self, *arguments)

    return counted


def test_few_judgements_are_all_used():
    Z, labels = rows_and_labels(1_000, 5)
    assert not enough_for_hessian(problem_of(Z, labels).objective)
    found, plain = (
        cf.LinearMetricLearner(solver=solver, tol=1e-6, **PAPER).fit(Z, labels).certificate_
        for solver in ("sampled", "fista")
    )
    assert (found.loss, found.lower_bound, found.n_passes) == (plain.loss, plain.lower_bound, plain.n_passes)


def test_a_sample_that_misleads_is_given_up():
    Z, labels = rows_and_labels(12_000, 5)
    problem = problem_of(Z, labels)
    few = problem.sample(0.1, np.random.default_rng(0))
    wrong = CloseFar(get_noise("logistic"), -few.objective.likelihood.signs, few.objective.likelihood.weights)
    solver = Sampled(problem, 1e-6, np.random.default_rng(0))
    misled = type(few)(few.objective.with_likelihood(wrong), 0.0, few.cone)
    state = solver._begin(misled, sampled._approach(misled, solver.rng))
    for _ in range(60):
        state = solver.step(state)
        if state.gap <= 1e-6:
            break
    assert state.gap <= 1e-6


def test_rows_outside_the_sample_may_be_enormous():
    Z, labels = rows_and_labels(12_000, 4)
    Z[[17, 4_711]] *= 300.0
    labels[[17, 4_711]] = 1
    tight = cf.LinearMetricLearner(solver="newton", tol=1e-10, **PAPER).fit(Z, labels).certificate_
    found = cf.LinearMetricLearner(solver="sampled", tol=1e-6, **PAPER).fit(Z, labels).certificate_
    assert found.gap <= 1e-6
    np.testing.assert_allclose(found.loss, tight.loss, atol=1e-6)


def test_separable_labels_are_found():
    Z, _ = rows_and_labels(12_000, 4)
    squared = np.einsum("ij,ij->i", Z, Z)
    Z, squared = Z[np.abs(squared - 3.0) > 0.5], squared[np.abs(squared - 3.0) > 0.5]
    with pytest.warns(UserWarning, match="separable"):
        learner = cf.LinearMetricLearner(solver="sampled", **PAPER).fit(Z, np.where(squared > 3.0, 1, -1))
    assert learner.certificate_.outcome == "separable"


def test_an_origin_is_learned():
    Z, labels = rows_and_labels(12_000, 3)
    found, tight = (
        cf.LinearMetricLearner(solver=solver, fit_origin=True, tol=1e-5, **PAPER).fit(Z + 0.3, labels).certificate_
        for solver in ("sampled", "newton")
    )
    assert found.gap <= 1e-5
    np.testing.assert_allclose(found.loss, tight.loss, atol=1e-5)


def test_the_model_is_minimised_over_the_cone():
    Z, labels = rows_and_labels(12_000, 3, "heavy")
    problem = problem_of(Z, labels)
    point = problem.at(np.diag([1.0, 0.3, 0.0]), np.array([1.0]))
    model = SampledModel(problem, point)  # with all judgements as the sample, it is the second-order model
    move = model.minimise()
    hessian = problem.objective.hessian(point.evaluation.curvature)

    def value(matrix, thresholds):
        x = packed.join(matrix, thresholds)
        return float(packed.join(point.gradient, point.slopes) @ x + 0.5 * x @ hessian @ x)

    np.testing.assert_allclose(move.decrement, -value(move.matrix, move.thresholds), rtol=1e-9)
    assert np.linalg.eigvalsh(point.matrix + move.matrix)[0] >= -1e-12
    rng = np.random.default_rng(0)
    for _ in range(200):
        other = problem.cone.project(point.matrix + move.matrix + 0.05 * _symmetric(rng)) - point.matrix
        shift = np.maximum(move.thresholds + 0.05 * rng.standard_normal(1), -point.thresholds)
        assert value(other, shift) >= -move.decrement * (1.0 + 0.01)


def _symmetric(rng):
    matrix = rng.standard_normal((3, 3))
    return matrix + matrix.T


@pytest.mark.parametrize(
    ("d", "n", "solver"), [(33, 100_000, "fista"), (33, 110_000, "sampled"), (32, 10**6, "newton")]
)
def test_very_many_judgements_are_sampled(d, n, solver):
    source = SimpleNamespace(n_projected=n, can_project=False, can_fuse=False, is_remote=False)
    counted = SimpleNamespace(n_directions=d, n_judgements=n, source=source, likelihood=SimpleNamespace(n_thresholds=1))
    assert choose_solver(counted) == solver
    assert 0 < share_for_hessian(counted) <= 1 / 6
    counted.n_judgements = 10**9
    assert share_for_hessian(counted) * 10**9 == pytest.approx(128 * d * (d + 1) / 2)


@pytest.mark.parametrize(
    ("d", "n", "solver"),
    [(20, 13_000, "newton"), (20, 14_000, "sampled"), (16, 900_000, "newton"), (16, 10**6, "sampled")],
)
def test_steps_of_one_round_trip_are_preferred_on_a_cluster(d, n, solver):
    source = SimpleNamespace(n_projected=n, can_project=False, is_remote=True, can_fuse=False)
    counted = SimpleNamespace(n_directions=d, n_judgements=n, source=source, likelihood=SimpleNamespace(n_thresholds=1))
    assert choose_solver(counted) == solver
    assert 0 < share_for_hessian(counted) <= 1 / 2


def test_an_approach_is_not_proven():
    Z, labels = rows_and_labels(3_000, 4)
    problem = problem_of(Z, labels)
    solver = Fista(problem, 0.0, np.random.default_rng(0))
    near = solver.approach(solver.start(), 1e-4)
    best = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(Z, labels).certificate_.loss
    assert near.bound == 0.0
    assert near.objective - best <= 1e-3
