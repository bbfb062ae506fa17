"""The solver for very many judgements: the gradient steps that begin it, its model, and steps verified on all."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import closefar as cf
from closefar import packed
from closefar.noise import NOISES
from closefar.rows import Differences, unit_free
from closefar.solve import Answers, Ending, Likelihood, Outcome, Problem, State
from closefar.solve import sampled as sampled_module
from closefar.solve.low_rank import LowRank
from closefar.solve.problem import enough_for_hessian
from closefar.solve.sampled import Fista, Sampled, SampledModel, _FistaMemory, _least_quadratic, _SampleMemory
from paper_estimator import PAPER
from random_problems import KINDS, RandomProblem, solved

RNG = np.random.default_rng


def projected(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


# Gradient steps


def fista_at(alpha=0.0, tol=1e-6, **memory):
    """The judgements, a solver, and a state from which it starts, with other things in its memory."""
    judged = RandomProblem.of("close/far", n=300, d=2, alpha=alpha)
    solver = Fista(judged.problem(), tol, RNG(0))
    state = solver.resume(State.at(np.array([[0.3, 0.1], [0.1, 0.2]]), 0.5))
    return judged, solver, replace(state, memory=replace(state.memory, **memory))


@pytest.mark.parametrize("alpha", [0.0, 0.02])
def test_fista_takes_the_steps_of_the_textbook(alpha):
    judged, solver, state = fista_at(alpha, smoothness=2.0)
    before = here = np.array([[0.3, 0.1], [0.1, 0.2]])
    assert state.objective == pytest.approx(judged.best_threshold(here)[1], abs=1e-7)
    t, smoothness = 1.0, 2.0
    for _ in range(4):
        following = (1.0 + math.sqrt(1.0 + 4.0 * t * t)) / 2.0
        base = here + (t - 1.0) / following * (here - before)
        gradient = judged.gradient(base, np.array([judged.best_threshold(base)[0]]))[0]
        before, here, t = here, projected(base - gradient / smoothness), following
        state = solver.step(state)
        np.testing.assert_allclose(state.matrix, here, atol=1e-5)
        assert state.memory.momentum == pytest.approx(t)
        assert state.memory.residual == pytest.approx(smoothness * np.linalg.norm(here - base), rel=1e-3)
        np.testing.assert_array_equal(state.memory.here.matrix, state.matrix)
        np.testing.assert_allclose(state.memory.before.matrix, before, atol=1e-5)
        smoothness *= 0.97  # a little longer each time
        assert state.memory.smoothness == pytest.approx(smoothness)


def test_a_fista_step_is_shortened_until_the_quadratic_model_lies_above():
    judged, solver, state = fista_at(smoothness=1e-3)
    matrix = state.matrix
    tau, value = judged.best_threshold(matrix)
    gradient = judged.gradient(matrix, np.array([tau]))[0]
    smoothness = 1e-3
    while True:
        target = projected(matrix - gradient / smoothness)
        change = target - matrix
        model = value + np.sum(gradient * change) + 0.5 * smoothness * np.sum(change**2)
        if judged.best_threshold(target)[1] <= model:
            break
        smoothness *= 1.5
    moved = solver.step(state)
    assert smoothness > 2e-3
    assert moved.memory.smoothness == pytest.approx(0.97 * smoothness)
    np.testing.assert_allclose(moved.matrix, target, atol=1e-5)


@pytest.mark.parametrize(
    ("above", "moved", "accepted"),
    [
        (-1e-3, 1.0, True),
        (0.8e-14, 1e-6, True),
        (1.3e-14, 1e-6, False),
        (1.0, 0.9e-13, True),  # too short to be measured
        (1.0, 1.1e-13, False),
    ],
)
def test_fista_accepts_what_rounding_cannot_tell(above, moved, accepted):
    _, solver, state = fista_at(smoothness=2.0)
    here = replace(state.memory.here, value=0.0)
    state = replace(state, memory=replace(state.memory, here=here))
    gradient = solver.problem.known(here.matrix, here.thresholds, here.evaluation).gradient
    change = np.array([[gradient[0, 1], -0.5 * gradient[0, 0]], [-0.5 * gradient[0, 0], 0.0]])  # the risk is level
    change *= math.sqrt(0.5 * moved) / np.linalg.norm(change)
    values = [float(np.sum(gradient * change)) + 0.5 * moved + above, -1e3]
    solver._iterate = lambda *_: replace(here, matrix=here.matrix + change, value=values.pop(0))
    assert solver.step(state).memory.smoothness == pytest.approx(0.97 * (2.0 if accepted else 3.0))


def test_fista_restarts_where_a_step_turns_back():
    _, solver, state = fista_at(smoothness=2.0)
    for _ in range(60):
        state = solver.step(state)
    memory, push = replace(state.memory, momentum=20.0), 0.3 * np.eye(2)
    matrix = state.matrix - push
    away = memory.before._replace(matrix=matrix, squared=solver.problem.forms(matrix))
    beyond = solver.step(replace(state, memory=replace(memory, before=away)))
    assert beyond.memory.momentum == 1.0
    assert np.sum((beyond.matrix - state.matrix) * push) > 0  # it stopped beyond the optimum


def test_fista_extrapolates_and_guesses_thresholds_without_a_pass(monkeypatch):
    _, solver, state = fista_at(smoothness=2.0)
    state = solver.step(solver.step(state))
    minimise_threshold, seen = Problem.minimise_threshold, []

    def spy(self, squared, thresholds, tol):
        seen.append((np.array(squared), thresholds, *minimise_threshold(self, squared, thresholds, tol)))
        return seen[-1][2:]

    monkeypatch.setattr(Problem, "minimise_threshold", spy)
    last = state.memory
    moved = solver.step(state)
    weight = (last.momentum - 1.0) / moved.memory.momentum
    base = last.here.matrix + weight * (last.here.matrix - last.before.matrix)
    np.testing.assert_allclose(seen[0][0], solver.problem.forms(base), atol=1e-9)
    np.testing.assert_allclose(
        seen[0][1], last.here.thresholds + weight * (last.here.thresholds - last.before.thresholds)
    )
    # A threshold moves with the mean squared distance.
    shift = np.mean(seen[1][0]) - np.mean(seen[0][0])
    np.testing.assert_allclose(seen[1][1], seen[0][2] + shift, atol=1e-9)


@pytest.mark.parametrize(
    ("alpha", "residual", "expected"), [(0.0, 1.0, 1e-6), (0.0, 1e-4, 1e-8), (0.02, 1.0, 1e-14), (0.02, 1e-4, 1e-14)]
)
def test_thresholds_are_settled_as_exactly_as_the_step_or_the_bound_needs(monkeypatch, alpha, residual, expected):
    _, solver, state = fista_at(alpha, smoothness=2.0, residual=residual, momentum=3.0)
    minimise_threshold, tols = Problem.minimise_threshold, []
    monkeypatch.setattr(
        Problem,
        "minimise_threshold",
        lambda self, squared, thresholds, tol: (tols.append(tol), minimise_threshold(self, squared, thresholds))[1],
    )
    solver.step(state)
    assert tols == [pytest.approx(expected, rel=1e-9, abs=0.0)] * 2


@pytest.mark.parametrize(("share", "is_tried"), [(0.99, False), (1.01, True)])
def test_fista_proves_once_the_residual_is_small(monkeypatch, share, is_tried):
    monkeypatch.setattr(sampled_module, "prove_bound", lambda point, tol: 0.1)
    _, solver, state = fista_at(smoothness=2.0, certify_below=0.0)
    residual = solver.step(state).memory.residual
    # The gap is about residual^2 / smoothness.
    below = share * residual / math.sqrt(2.0)
    moved = solver.step(replace(state, memory=replace(state.memory, certify_below=below)))
    assert moved.bound == (0.1 if is_tried else 0.0)
    assert moved.memory.certify_below == pytest.approx(0.2 * below if is_tried else below)


def test_fista_tries_a_proof_the_later_the_smaller_the_tolerance():
    below = {tol: fista_at(tol=tol)[2].memory.certify_below for tol in (0.0, 1e-15, 1e-14, 4e-14, 1e-6)}
    assert below[0.0] == below[1e-15] == below[1e-14]
    assert below[4e-14] == pytest.approx(2.0 * below[1e-14])
    # Where it is tried first the gap, residual^2 / smoothness, is about a tenth of the tolerance.
    assert below[1e-6] ** 2 == pytest.approx(1e-7, rel=0.2)


@pytest.mark.parametrize(("residual", "stuck"), [(0.9e-12, True), (1.1e-12, False)])
def test_a_proof_of_fista_keeps_the_better_bound(monkeypatch, residual, stuck):
    _, solver, state = fista_at(residual=residual)
    points = []
    monkeypatch.setattr(sampled_module, "prove_bound", lambda point, tol: (points.append((point, tol)), 0.1)[1])
    assert solver._certify(replace(state, bound=0.05)).bound == 0.1
    kept = solver._certify(replace(state, bound=0.2))
    assert (kept.bound, kept.stuck) == (0.2, stuck)
    point, tol = points[0]
    assert tol == solver.tol
    assert abs(point.slopes[0]) < 1e-14
    np.testing.assert_array_equal(point.matrix, state.matrix)


@pytest.mark.parametrize(("alpha", "bound", "expected"), [(0.0, 0.0, 0.0), (0.02, 0.0, 0.1), (0.02, 0.2, 0.2)])
def test_with_a_penalty_each_gradient_of_fista_proves_something(monkeypatch, alpha, bound, expected):
    _, solver, state = fista_at(alpha, smoothness=2.0)
    monkeypatch.setattr(sampled_module, "proven_bound", lambda point, ceiling: 0.1)
    assert state.bound == 0.0
    assert solver.step(replace(state, bound=bound)).bound == expected


def test_with_a_penalty_fista_proves_as_it_goes():
    solver = Fista(RandomProblem.of("close/far", n=800, d=6, alpha=0.02).problem(), 1e-6, RNG(0))
    bounds = []
    result = solver.run(solver.start, tol=1e-6, max_iter=300, watch=lambda _, each: bounds.append(each.bound))
    assert result.ending is Ending.CONVERGED
    assert bounds == sorted(bounds)
    assert sum(bound > 0 for bound in bounds) > 3


def test_an_approach_is_not_proven():
    given = RandomProblem.of("close/far", n=3000, d=4).problem()
    solver = Fista(given, 0.0, RNG(0))
    near = solver.approach(solver.start(), 1e-4)
    assert near.bound == 0.0
    assert near.objective - solved("newton", given, tol=1e-10).certificate.objective <= 1e-3


# The model


@pytest.mark.parametrize("rank", [None, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_the_model_is_minimised_over_the_cone(kind, rank):
    """With all judgements as the sample, it is the second-order model of the risk."""
    judged = RandomProblem.of(kind, n=3000)
    given, rng = judged.problem(), RNG(0)
    best = solved("newton", given, tol=1e-4, max_iter=6)
    point = given.at(given.cone.project(best.factor @ best.factor.T + 0.05 * np.eye(given.cone.size)), best.thresholds)
    move = SampledModel(given, point, rank).minimise()
    ahead = point.matrix + move.matrix
    slope = packed.join(*judged.gradient(point.matrix, point.thresholds))
    hessian = judged.hessian(point.matrix, point.thresholds)

    def value(matrix, thresholds):
        x = packed.join(matrix, thresholds)
        return float(slope @ x + 0.5 * x @ hessian @ x)

    assert move.decrement == pytest.approx(max(-value(move.matrix, move.thresholds), 0.0), rel=1e-5, abs=1e-9)
    values = np.linalg.eigvalsh(ahead[given.cone.core, given.cone.core])
    assert values[0] >= -1e-12
    if rank is not None:
        assert values[-2] <= 1e-9 * values[-1]
        return  # a set that is not convex, where a local minimum is all that is promised
    for size in np.repeat([1e-3, 0.02, 0.2], 70):
        aside = size * rng.standard_normal(ahead.shape)
        other = given.cone.project(ahead + aside + aside.T) - point.matrix
        shift = move.thresholds + size * rng.standard_normal(len(move.thresholds))
        shift = np.maximum(shift, given.cone.least - point.thresholds)
        assert value(other, shift) >= -move.decrement * 1.01 - 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_the_thresholds_of_the_model_are_those_of_a_search(seed):
    rng = RNG(seed)
    root = rng.standard_normal((3, 3))
    hessian, slopes, least = root @ root.T + np.eye(3), 3.0 * rng.standard_normal(3), -rng.random(3)
    least[seed % 3] = -np.inf
    found = _least_quadratic(hessian, slopes, least)
    bounds = [(None if np.isinf(low) else low, None) for low in least]
    best = minimize(lambda t: 0.5 * t @ hessian @ t + slopes @ t, np.zeros(3), bounds=bounds, tol=1e-14)
    np.testing.assert_allclose(found, best.x, atol=1e-5)
    assert np.all(found >= least)


# The solver


def rows_and_labels(n, d, kind="normal", seed=0):
    rng = RNG(seed)
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
    return Problem.of(rows, Likelihood(NOISES["logistic"], Answers.of(2), 0.5 + 0.5 * labels, weights), alpha)


def certificate_of(Z, labels, solver, **parameters):
    return cf.LinearMetricLearner(solver=solver, **PAPER | parameters).fit(Z, labels).certificate_


@pytest.mark.parametrize("kind", ["normal", "heavy", "correlated"])
@pytest.mark.parametrize("parameters", [{}, {"alpha": 0.02}, {"noise": "normal"}, {"flip_rate": 0.05}], ids=str)
def test_it_agrees_with_newton_and_its_bound_holds(kind, parameters):
    Z, labels = rows_and_labels(12_000, 5, kind)
    tight = certificate_of(Z, labels, "newton", tol=1e-11, **parameters)
    found = certificate_of(Z, labels, "sampled", tol=1e-6, **parameters)
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
    best = certificate_of(Z, labels, "newton", tol=1e-12).loss
    found = certificate_of(Z, labels, "sampled", tol=tol, random_state=seed)
    assert found.gap <= tol
    assert found.gap >= found.loss - best - 1e-12


def test_few_passes_over_all_judgements_are_enough(monkeypatch):
    given = problem_of(*rows_and_labels(40_000, 4, "heavy"))
    solver, passes, sweep = Sampled(given, 1e-6, RNG(0)), [], type(given.rows).sweep

    def counted(self, *arguments):
        passes.extend([1] if self is given.rows else [])
        return sweep(self, *arguments)

    monkeypatch.setattr(type(given.rows), "sweep", counted)
    assert solver.run(solver.start, tol=1e-6, max_iter=100).ending is Ending.CONVERGED
    assert len(passes) <= 12


def test_few_judgements_are_all_used():
    given = problem_of(*rows_and_labels(1_000, 5))
    assert not enough_for_hessian(given)
    found, plain = (kind(given, 1e-6, RNG(0)) for kind in (Sampled, Fista))
    found, plain = (each.run(each.start, tol=1e-6, max_iter=500).state for each in (found, plain))
    np.testing.assert_array_equal(found.matrix, plain.matrix)
    assert (found.objective, found.bound) == (plain.objective, plain.bound)


def test_a_sample_that_misleads_is_given_up():
    """Steps with a Hessian that is far too small in one direction are too long."""
    Z, labels = rows_and_labels(12_000, 5)
    given, weights = problem_of(Z, labels), np.full(2000, 1.0 / 2000)
    rows = given.rows.take_rows(np.arange(2000))
    rows = Differences(rows.read(slice(0, 2000)).T * [0.1, 1.0, 1.0, 1.0, 1.0])
    codes = given.likelihood.codes[:2000]
    misled = replace(given, rows=rows, likelihood=given.likelihood.of_rows((codes, weights)))
    solver = Sampled(given, 1e-6, RNG(0))
    solver._sample = lambda rng: misled
    found = solver.run(lambda: solver.resume(State.at(np.eye(5), 1.0)), tol=1e-6, max_iter=200)
    assert isinstance(found.state.memory, _FistaMemory)
    assert found.ending is Ending.CONVERGED


def test_rows_outside_the_sample_may_be_enormous():
    Z, labels = rows_and_labels(12_000, 4)
    Z[[17, 4_711]] *= 300.0
    labels[[17, 4_711]] = 1
    tight, found = (certificate_of(Z, labels, *how) for how in (("newton",), ("sampled",)))
    assert found.gap <= 1e-6
    np.testing.assert_allclose(found.loss, tight.loss, atol=1e-6)


def test_separable_labels_are_found():
    Z, _ = rows_and_labels(12_000, 4)
    squared = np.einsum("ij,ij->i", Z, Z)
    Z, squared = Z[np.abs(squared - 3.0) > 0.5], squared[np.abs(squared - 3.0) > 0.5]
    with pytest.warns(UserWarning, match="separable"):
        assert certificate_of(Z, np.where(squared > 3.0, 1, -1), "sampled").outcome == "separable"


def test_an_origin_is_learned():
    Z, labels = rows_and_labels(12_000, 3)
    found, tight = (
        certificate_of(Z + 0.3, labels, solver, fit_origin=True, tol=1e-5) for solver in ("sampled", "newton")
    )
    assert found.gap <= 1e-5
    np.testing.assert_allclose(found.loss, tight.loss, atol=1e-5)


# A limited rank


@pytest.mark.parametrize(("rank", "alpha"), [(1, 0.0), (2, 0.005)])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "origin"])
def test_a_limited_rank_is_as_good_as_on_factors_and_claims_no_proof(kind, rank, alpha):
    judged = RandomProblem.of(kind, n=1200, d=5, alpha=alpha, rank=4)
    free = solved("newton", judged.problem()).certificate.objective
    on_factors, found = (solved(way, judged.problem(), rank=rank) for way in ("lowrank", "sampled"))
    certificate, matrix = found.certificate, found.factor @ found.factor.T
    assert found.factor.shape == (5, rank)
    assert certificate.objective == pytest.approx(on_factors.certificate.objective, rel=1e-4)
    assert certificate.objective == pytest.approx(judged.value(matrix, found.thresholds), abs=1e-11)
    assert (certificate.outcome, certificate.globally_optimal) == (Outcome.RESTRICTED, False)
    # If anything is proven, it is proven of all ranks.
    assert certificate.lower_bound <= free + 1e-12
    assert certificate.gap >= certificate.objective - free - 1e-12 > 1e-4


@pytest.mark.parametrize("kind", ["close/far", "levels", "comparisons"])
def test_steps_of_a_limited_rank_end_where_the_risk_is_stationary(kind):
    """Near the best point of that rank, by steps with the Hessian of a sample alone."""
    judged = RandomProblem.of(kind, n=6000, d=5, alpha=0.005, rank=4)
    given = judged.problem()
    near = solved("newton", judged.problem(), rank=2, tol=1e-3, max_iter=4).state
    solver = Sampled(given, 1e-6, RNG(0), rank=2)
    found = solver.run(lambda: solver.resume(near), tol=0.0, max_iter=60).state
    assert isinstance(found.memory, _SampleMemory)
    assert (found.stuck, found.bound) == (True, 0.0)
    values, vectors = np.linalg.eigh(found.matrix)
    assert abs(values[-3]) <= 1e-9 * values[-1] < 1e-6 * values[-2]
    on_matrix, slopes = judged.gradient(found.matrix, found.thresholds)
    np.testing.assert_allclose(on_matrix @ vectors[:, -2:], 0.0, atol=1e-4)
    np.testing.assert_allclose(slopes, 0.0, atol=1e-4)


def test_a_limited_rank_that_no_sample_suffices_for_is_solved_on_factors():
    given = RandomProblem.of("close/far", n=300, d=5, rank=4).problem()
    near = solved("newton", given).state
    found, plain = Sampled(given, 1e-6, RNG(0), rank=2), LowRank(given, 1e-6, RNG(0), 2)
    found, plain = (
        each.run(lambda each=each: each.resume(near), tol=0.0, max_iter=100).state for each in (found, plain)
    )
    np.testing.assert_array_equal(found.matrix, plain.matrix)
    assert found.stuck


def test_a_limited_rank_keeps_the_bound_of_all_ranks():
    given = RandomProblem.of("close/far", n=2500, d=5, rank=4).problem
    free, found = (solved("sampled", given(), rank=rank).certificate for rank in (None, 2))
    assert 0.0 < free.lower_bound <= found.lower_bound <= free.objective


@pytest.mark.parametrize("seed", [1, 2])
def test_an_origin_does_not_raise_a_limited_rank(seed):
    judged = RandomProblem.of("origin", n=2500, d=5, seed=seed, rank=4)
    best, found = (solved(way, judged.problem(), rank=1) for way in ("newton", "sampled"))
    assert found.factor.shape == best.factor.shape == (6, 1)
    assert found.certificate.objective == pytest.approx(best.certificate.objective, rel=1e-4)
