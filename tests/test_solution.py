"""From a problem to its solution: every solver for every kind of judgement, and how a fit ends."""

from dataclasses import FrozenInstanceError, fields, replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import closefar as cf
from closefar.fitting.progress import ShownSteps
from closefar.noise import NOISES
from closefar.rows import Differences, Trait, unit_free
from closefar.solve import (
    SOLVERS,
    Answers,
    Ending,
    Evaluation,
    FitStep,
    Likelihood,
    Outcome,
    Problem,
    SharedRate,
    SideRates,
    Solution,
    SolverSettings,
    State,
    ignore_progress,
    problem,
    solve,
    solve_roughly,
    solve_with_flips,
)
from closefar.solve import flips as flips_module
from closefar.solve.loop import Run
from closefar.solve.low_rank import _Memory as LowRankMemory
from closefar.solve.newton import _Memory as NewtonMemory
from closefar.solve.problem import Cone, share_for_hessian
from closefar.solve.sampled import _FistaMemory, _SampleMemory
from closefar.solve.solution import _certify, _outcome, choose_solver, solver_for, with_finite_origin, with_free_corner
from paper_estimator import PAPER
from random_problems import KINDS, WAYS, RandomProblem, solved

# Every solver, every kind of judgement

MEMORIES = {
    "newton": NewtonMemory,
    "lowrank": LowRankMemory,
    "sampled": _SampleMemory,
    "sampled without a sample": _FistaMemory,
}
ways = pytest.mark.parametrize("way", WAYS)


@cache
def judged_with_optimum(kind, noise, alpha):
    n, d = (900 if noise == "logistic" else 400), (2 if kind == "origin" else 3)
    judged = RandomProblem.of(kind, noise, n, d, alpha=alpha, weighted=True, scales=2.0, seed=1)
    return judged, judged.optimum()


def check_solution(kind, noise, way, alpha):
    judged, optimum = judged_with_optimum(kind, noise, alpha)
    memories = []
    found = solved(way, judged.problem(), watch=lambda _, state: memories.append(type(state.memory)), max_iter=2000)
    certificate, matrix = found.certificate, found.factor @ found.factor.T
    assert certificate.outcome is Outcome.CONVERGED
    assert certificate.converged
    assert certificate.globally_optimal
    assert certificate.gap <= 1e-6
    assert certificate.gap >= certificate.objective - optimum - 1e-9
    assert certificate.objective == pytest.approx(optimum, abs=1e-6)
    assert judged.value(matrix, found.thresholds) == pytest.approx(certificate.objective, abs=1e-11)
    penalty = judged.penalty(matrix, found.thresholds)
    assert certificate.objective - certificate.loss == pytest.approx(penalty, abs=1e-11)
    assert judged.is_feasible(found.thresholds)
    assert 1 <= found.n_iter <= 2000
    assert certificate.n_passes > 0
    if not (judged.is_free and way == "lowrank"):  # which needs a factor of M
        assert memories[0] is MEMORIES[way]


@ways
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_every_kind_of_judgement_is_solved_by_every_solver(kind, way, alpha):
    check_solution(kind, "logistic", way, alpha)


@ways
@pytest.mark.parametrize(
    ("kind", "noise", "alpha"),
    [
        *((kind, "normal", 0.0) for kind in KINDS),
        *((kind, "laplace", 0.01) for kind in ("levels", "comparisons", "everything")),
        *((kind, "hypsecant", 0.01) for kind in ("levels by annotators", "around a centre", "origin")),
        ("close/far", "laplace", 0.0),
        ("close/far", "hypsecant", 0.0),
    ],
)
def test_every_noise_is_solved_by_every_solver(kind, noise, way, alpha):
    check_solution(kind, noise, way, alpha)


@cache
def flipped_with_optimum(kind, rates):
    judged = RandomProblem.of(kind, n=600, alpha=0.01, seed=2)
    k, codes = judged.kind.n_levels, judged.codes.astype(int)
    if rates == "shared":  # a fifth of the answers are at random
        flips, floors = SharedRate(np.array([0.2])), np.append(np.full(k, 0.2 / max(k, 1)), [0.1, 0.1])
    else:
        flips, floors = SideRates(np.array([0.05, 0.15])), np.array([0.15, 0.05, 0.1, 0.1])
    flipped = replace(judged, floor=floors[codes], kept=0.8)
    return judged, flipped, flips, flipped.descent_optimum()


@ways
@pytest.mark.parametrize(
    ("kind", "rates"),
    [
        *((kind, "shared") for kind in ("close/far", "levels", "comparisons", "annotators", "everything")),
        *((kind, "of sides") for kind in ("close/far", "pairs and comparisons", "around a centre")),
    ],
)
def test_flips_at_known_rates_are_solved_by_every_solver(kind, rates, way, monkeypatch):
    """No descent finds a likelier metric, and the last step is convex, with a proof that holds."""
    judged, flipped, flips, optimum = flipped_with_optimum(kind, rates)
    soft, soften = [], flips_module.softened
    given = judged.problem(likelihood=judged.likelihood.with_flips(flips))
    monkeypatch.setattr(flips_module, "softened", lambda *given: soft.append(soften(*given)) or soft[-1])
    monkeypatch.setattr(problem, "_LARGEST_SHARE", WAYS[way][1] or 0.0)
    settings, rng = SolverSettings(WAYS[way][0], tol=1e-8, max_iter=2000), np.random.default_rng(0)
    found, _ = solve_with_flips(given, settings, estimate=False, rng=rng, watch=ignore_progress)
    certificate, matrix = found.certificate, found.factor @ found.factor.T
    assert judged.is_feasible(found.thresholds)
    risk, penalty = flipped.value(matrix, found.thresholds), flipped.penalty(matrix, found.thresholds)
    assert certificate.loss == pytest.approx(risk - penalty, abs=1e-11)
    assert found.history[-1].objective == pytest.approx(risk, abs=1e-11)
    assert risk <= optimum + 1e-6
    assert risk <= flipped.descent_optimum(near=(found.factor, found.thresholds)) + 1e-6
    # In the last step each judgement counts with its probability of not being flipped.
    right = (np.exp(-flipped.losses(matrix, found.thresholds)) - flipped.floor) / flipped.kept
    sincere = flipped.kept * right / (flipped.floor + flipped.kept * right)
    np.testing.assert_allclose(soft[-1].weights, judged.weights * sincere, rtol=2e-2)
    optimum = replace(judged, weights=soft[-1].weights).optimum()
    assert certificate.gap <= 1e-8
    assert certificate.lower_bound <= optimum + 1e-9
    assert certificate.objective == pytest.approx(optimum, abs=1e-7)


# Which solver


def counted(d, n, *traits, n_thresholds=1, alpha=0.0):
    """What the choice of a solver looks at."""
    rows = Differences(np.broadcast_to(np.zeros(1), (n, d)))
    likelihood = SimpleNamespace(n_thresholds=n_thresholds)
    traits = rows.traits | frozenset(traits)
    size = {"n_directions": d, "n_judgements": n, "alpha": alpha}
    return SimpleNamespace(**size, rows=rows, likelihood=likelihood, traits=traits)


@pytest.mark.parametrize(
    ("d", "n", "traits", "solver"),
    [
        (16, 20, (), "newton"),
        (17, 2447, (), "lowrank"),
        (17, 2448, (), "newton"),
        (32, 8448, (), "newton"),
        (32, 10**6, (), "newton"),
        (33, 50_000, (), "lowrank"),
        (33, 107_711, (), "lowrank"),  # six times 32 judgements for each of the 561 entries of M are enough for
        (33, 107_712, (), "sampled"),  # the Hessian of a sample
        (1536, 50_000, (), "lowrank"),
        (1536, 1_100_000, (), "sampled"),  # whose projections would take too much memory
        (12, 900_000, (Trait.KERNELS,), "newton"),
        (12, 1_100_000, (Trait.KERNELS,), "sampled"),
        (20, 13_000, (Trait.REMOTE,), "newton"),
        (20, 14_000, (Trait.REMOTE,), "sampled"),
        (16, 900_000, (Trait.REMOTE,), "newton"),
        (16, 10**6, (Trait.REMOTE,), "sampled"),
    ],
)
def test_the_solver_follows_from_the_size_and_from_where_rows_are(d, n, traits, solver):
    assert choose_solver(counted(d, n, *traits)) == solver


def test_few_judgements_in_columns_that_can_not_be_projected_are_all_used():
    without = counted(40, 20_000)
    without.traits = frozenset()
    assert choose_solver(without) == "sampled"
    assert choose_solver(counted(40, 20_000)) == "lowrank"
    # A limited rank is searched for on projections, even if a sample were enough.
    assert choose_solver(counted(33, 110_000), is_limited=True) == "lowrank"
    # A penalty on many columns leaves a low rank.
    assert choose_solver(counted(130, 1_700_000, alpha=0.01)) == "lowrank"
    assert choose_solver(counted(130, 1_700_000)) == choose_solver(counted(128, 1_700_000, alpha=0.01)) == "sampled"
    # Each threshold of a sample is as much work as half a pass over it.
    assert choose_solver(counted(33, 110_000, n_thresholds=17)) == "lowrank"


@pytest.mark.parametrize(("traits", "largest"), [((), 1 / 6), ((Trait.REMOTE,), 1 / 2)])
def test_a_sample_is_a_small_share_of_very_many(traits, largest):
    assert 0 < share_for_hessian(counted(33, 110_000, *traits)) <= largest
    assert share_for_hessian(counted(33, 1000, *traits)) == largest
    assert share_for_hessian(counted(33, 10**9, *traits)) * 10**9 == pytest.approx(128 * 33 * 34 / 2)


def test_a_problem_without_factors_is_not_solved_on_them():
    free = RandomProblem.of("origin").problem()
    assert solver_for(free, SolverSettings("lowrank")) is SOLVERS["sampled"]
    assert solver_for(RandomProblem.of("origin", alpha=0.1).problem(), SolverSettings("lowrank")) is SOLVERS["lowrank"]


def test_an_unknown_solver_is_refused():
    with pytest.raises(ValueError, match="solver must be one of") as error:
        fit(SEPARABLE, solver="simplex")
    assert all(repr(name) in str(error.value) for name in ("auto", *SOLVERS))
    assert "got 'simplex'" in str(error.value)


@pytest.mark.parametrize(("d", "solver"), [(4, "newton"), (40, "lowrank")])
def test_auto_chooses_by_the_number_of_columns(d, solver):
    data = cf.datasets.make_pairs(3000, d, rank=3, wrong_share=0.1, random_state=7)
    auto, named = fit(data, alpha=0.01), fit(data, alpha=0.01, solver=solver)
    assert auto.metric_ == named.metric_
    assert auto.n_iter_ == named.n_iter_


# Starts, and a limited rank


def test_a_solution_goes_on_from_a_start():
    given = RandomProblem.of("close/far", n=600).problem()
    cold = solved("newton", given)
    warm = solved("newton", given, start=cold.state)
    assert len(cold.history) == cold.n_iter + 2  # the start, each step, and the end
    assert warm.history[0].objective == pytest.approx(cold.certificate.objective, abs=1e-9)
    assert cold.history[0].objective > cold.certificate.objective + 1e-6
    np.testing.assert_allclose(cold.squared, given.forms(cold.factor @ cold.factor.T), atol=1e-9)


def test_a_start_whose_gap_was_proven_is_proven_again_without_a_step():
    given = RandomProblem.of("close/far", n=600).problem()
    best = solved("newton", given)
    claimed = replace(best.state, objective=best.certificate.objective, bound=best.certificate.lower_bound)
    again = solved("newton", given, start=claimed)
    assert (again.n_iter, again.certificate.converged) == (0, True)
    # What was proven elsewhere is not believed.
    false = replace(State.at(np.eye(3), 1.0), objective=0.5, bound=0.5)
    again = solved("newton", given, start=false)
    assert again.n_iter > 0
    assert again.certificate.objective == pytest.approx(best.certificate.objective, abs=1e-6)


@pytest.mark.parametrize(("alpha", "rank"), [(0.0, 2), (0.16, 1)])
def test_a_rank_that_limits_nothing_takes_no_further_step(alpha, rank):
    given = RandomProblem.of("close/far", n=600, alpha=alpha).problem
    free, same = (solved("newton", given(), rank=limit) for limit in (None, rank))
    assert free.factor.shape == (3, rank)
    assert same.history == free.history


def test_a_limited_rank_begins_at_the_convex_solution_or_near_the_start():
    given = RandomProblem.of("close/far", n=600).problem
    matrix = np.diag([0.0, 0.0, 1.0])
    thresholds, here = given().minimise_threshold(given().forms(matrix), np.ones(1))
    start = State.at(matrix, *thresholds)
    for way, begins in (({"stay_near": True}, 2), ({}, 1)):
        found = solved("newton", given(), start=start, rank=1, **way)
        assert found.factor.shape == (3, 1)
        assert len(found.history) == found.n_iter + 3  # two beginnings, each step, and the end
        assert sum(abs(step.objective - here.loss) < 1e-9 for step in found.history) == begins
        assert 0.0 < found.certificate.lower_bound < found.certificate.objective
    # Without a start there is nothing to stay near to.
    anywhere, near = (solved("newton", given(), rank=1, **way) for way in ({}, {"stay_near": True}))
    assert near.history == anywhere.history


@pytest.mark.parametrize("kind", ["levels", "comparisons", "annotators", "around a centre", "everything"])
def test_a_limited_rank_of_every_kind_is_stationary(kind):
    judged = RandomProblem.of(kind, n=400, alpha=1e-3, seed=3)
    free, found = (solved("newton", judged.problem(), rank=rank, tol=1e-8) for rank in (None, 1))
    assert found.certificate.outcome is Outcome.RESTRICTED
    assert found.certificate.lower_bound <= free.certificate.objective <= found.certificate.objective
    k = found.factor.size
    held = np.append(np.zeros(k, dtype=bool), found.thresholds <= judged.likelihood.least)

    def risk(x):
        return judged.value(np.outer(x[:k], x[:k]), x[k:])

    x, step = np.append(found.factor, found.thresholds), 1e-5
    slopes = [(risk(x + step * unit) - risk(x - step * unit)) / (2.0 * step) for unit in np.eye(len(x))[~held]]
    np.testing.assert_allclose(slopes, 0.0, atol=2e-5)


def test_a_rough_solution_is_near_the_optimum_and_proves_nothing():
    for d, rank in ((3, None), (17, None), (3, 1)):
        judged = RandomProblem.of("close/far", n=1500, d=d, alpha=0.02)
        best = solved("lowrank", judged.problem(), rank=rank)
        rough = solve_roughly(judged.problem(), rank, tol=1e-4, n_steps=200)
        assert rough.state.bound == 0.0
        assert abs(rough.state.objective - best.certificate.objective) <= 1e-3


# A learned origin in the solver's coordinates


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


def problem_with_origin(x, is_far):
    weights = np.full(len(x), 1.0 / len(x))
    rows, _ = unit_free(Differences(x), weights, with_constant=True)
    likelihood = Likelihood(NOISES["logistic"], Answers.of(2), is_far.astype(float), weights)
    return Problem.of(rows, likelihood, has_constant=True)


@pytest.mark.parametrize("tol", [1e-4, 4e-4])
def test_an_origin_at_infinity_costs_a_quarter_of_the_tolerance(tol):
    """Where "far" is linear in x_1, and a little concave, no distance is wanted there but the linear term."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 2))
    score = 2.0 * x[:, 0] - 0.3 * x[:, 0] ** 2 + (x[:, 1] - 0.5) ** 2 - 1.0
    found = solved("newton", problem_with_origin(x, score + rng.logistic(size=500) > 0.0), tol=tol)
    core = found.factor[:2] @ found.factor[:2].T
    assert np.linalg.eigvalsh(core)[0] == pytest.approx(0.25 * tol, rel=1e-4)
    assert found.certificate.gap <= tol


def test_separable_labels_with_a_learned_origin_stay_right():
    x = np.array([[0.5], [1.5], [2.0], [2.5], [3.5], [4.0], [5.0], [6.0], [7.0]])
    is_far = np.abs(x[:, 0] - 2.0) > 1.0
    found = solved("newton", problem_with_origin(x, is_far))
    assert found.certificate.outcome is Outcome.SEPARABLE
    assert np.all((found.squared > found.thresholds[0]) == is_far)


# What is certified


@pytest.mark.parametrize(
    ("ending", "gap", "rank", "is_separable", "outcome"),
    [
        (Ending.INTERRUPTED, 0.0, None, True, Outcome.INTERRUPTED),
        (Ending.OUT_OF_TIME, 2e-8, None, True, Outcome.UNFINISHED),
        (Ending.OUT_OF_TIME, 1e-8, None, False, Outcome.CONVERGED),
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
    assert _outcome(ending, SolverSettings(rank=rank, tol=1e-8), gap, is_separable) is outcome


def certified(objective, bound, *, ending=Ending.CONVERGED, alpha=0.0, least_margin=-1.0, rank=None):
    likelihood = SimpleNamespace(n_thresholds=2, penalty=lambda thresholds: 0.0625)
    given = Problem(None, likelihood, alpha, None, SimpleNamespace(count=3.5))
    given = SimpleNamespace(**vars(given), value=lambda evaluation, matrix: objective)
    here = Evaluation(0.375, np.array([0.25, -1.0]), least_margin, margin_gradient=None)
    state = replace(State.at(np.eye(1), 1.0), bound=bound)
    return _certify(given, SolverSettings(rank=rank, tol=0.25), Run(state, ending, 1), here, np.eye(1))


def test_a_certificate_states_what_was_proven():
    proven = certified(0.5, 0.25)
    # The loss is the risk without its penalties.
    assert (proven.loss, proven.objective, proven.lower_bound, proven.gap) == (0.3125, 0.5, 0.25, 0.25)
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


@pytest.mark.parametrize(
    "record",
    [
        certified(0.5, 0.25),
        Run(None, Ending.LIMIT, 1),
        SolverSettings(),
        State.at(np.eye(1)),
        Cone(1, np.zeros(1)),
        FitStep(1.0, 0.5, 0.1),
        flips_module.FlipState(None, None, None),
        Solution(np.eye(1), np.ones(1), None, None, 1, ()),
    ],
    ids=lambda record: type(record).__name__,
)
def test_records_cannot_be_changed(record):
    with pytest.raises(FrozenInstanceError):
        setattr(record, fields(record)[0].name, None)


# How fits of learners end

N, D = 700, 5
DATA = {noise: cf.datasets.make_pairs(N, D, rank=4, noise=noise, wrong_share=0.15, random_state=3) for noise in NOISES}
SEPARABLE = cf.datasets.make_pairs(250, 4, rank=3, noise=None, random_state=4)
FRESH = np.random.default_rng(5).standard_normal((2000, 2, 4)) @ np.cov(SEPARABLE.pairs.reshape(-1, 4).T)

solvers = pytest.mark.parametrize("solver", SOLVERS)
noises = pytest.mark.parametrize("noise", sorted(NOISES))


def fit(data, **parameters):
    return cf.LinearMetricLearner(**PAPER | parameters).fit(data.pairs, data.labels)


@pytest.fixture(scope="module")
def reference():
    return {noise: fit(data, noise=noise, tol=1e-10) for noise, data in DATA.items()}


@pytest.fixture(scope="module")
def separated():
    fitted = {}
    for solver in SOLVERS:
        with pytest.warns(ConvergenceWarning, match="separable"):
            fitted[solver] = fit(SEPARABLE, solver=solver)
    return fitted


@solvers
@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_solvers_predict_the_same(solver, alpha):
    for noise, data in DATA.items():
        learner = fit(data, noise=noise, solver=solver, alpha=alpha, tol=1e-8)
        expected = fit(data, noise=noise, alpha=alpha, tol=1e-11)
        assert learner.certificate_.converged
        assert learner.certificate_.gap <= 1e-8
        assert learner.certificate_.objective == pytest.approx(expected.certificate_.objective, abs=1.1e-8)
        found, wanted = (each.predict_proba(data.pairs) for each in (learner, expected))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-3)


@solvers
def test_one_column(solver):
    data = cf.datasets.make_pairs(500, 1, wrong_share=0.2, random_state=6)
    learner = fit(data, solver=solver)
    assert learner.certificate_.converged
    assert learner.metric_.rank == 1


@pytest.mark.parametrize("size", [1e2, 1e4])
def test_one_row_in_wrong_units_does_not_stop_the_solver(size):
    """That row makes up nearly all of the second moment: unit-free coordinates of the others are tiny."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((400, 1))
    labels = np.where(x[:, 0] ** 2 - 0.5 + 0.5 * rng.logistic(size=400) > 0, 1, -1)
    x[0] *= size
    labels[0] = 1
    without = cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(x[1:], labels[1:])
    learner = cf.LinearMetricLearner(**PAPER).fit(x, labels)
    assert learner.certificate_.converged
    np.testing.assert_allclose(learner.predict_proba(x), without.predict_proba(x), rtol=0, atol=1e-2)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("fit_origin", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 1e-4])
@pytest.mark.parametrize("seed", [1, 3])
def test_columns_of_zeros_and_ones(fit_origin, alpha, seed):
    """A square of such a column is the column: with an origin many metrics fit alike and the Hessian is singular."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, (60, 4)).astype(float)
    labels = np.where(rng.uniform(size=60) < 0.5, 1, -1)
    fitted = [
        cf.LinearMetricLearner(alpha=alpha, prior="zero", fit_origin=fit_origin, solver=solver, flip_rate=0.0)
        for solver in SOLVERS
    ]
    losses = [learner.fit(x, labels).certificate_.objective for learner in fitted]
    assert max(losses) - min(losses) < 1e-4
    for learner in fitted:
        assert learner.certificate_.lower_bound <= min(losses) + 1e-9
        loss = np.mean(learner.metric_.noise.neg_log_cdf(labels * learner.decision_function(x)))
        assert loss == pytest.approx(learner.certificate_.loss, abs=1e-6)


@solvers
def test_separable_labels(separated, solver):
    learner = separated[solver]
    assert learner.certificate_.outcome == "separable"
    assert "alpha" in learner.certificate_.status
    assert np.all(np.isfinite(learner.metric_.matrix))
    assert learner.metric_.threshold > 0.0
    assert learner.metric_.rank >= 1
    np.testing.assert_array_equal(learner.predict(SEPARABLE.pairs), SEPARABLE.labels)
    assert learner.fit_statistics_.accuracy == 1.0
    # The infimum of the loss is zero: the loss is its own gap.
    assert learner.certificate_.gap >= learner.certificate_.loss - 1e-15


@solvers
def test_separable_labels_give_the_same_direction_by_every_solver(separated, solver):
    expected = separated["newton"]
    assert np.mean(separated[solver].predict(FRESH) == expected.predict(FRESH)) > 0.95
    left, right = (item.metric_.matrix / item.metric_.threshold for item in (separated[solver], expected))
    assert np.linalg.norm(left - right, 2) < 0.2 * np.linalg.norm(right, 2)


@noises
def test_separable_labels_of_every_noise(noise):
    with pytest.warns(ConvergenceWarning, match="separable"):
        learner = fit(SEPARABLE, noise=noise)
    assert learner.score(SEPARABLE.pairs, SEPARABLE.labels) == 1.0


@solvers
def test_a_penalty_makes_separable_labels_ordinary(solver):
    assert fit(SEPARABLE, solver=solver, alpha=0.001).certificate_.outcome == "converged"


@solvers
@noises
def test_a_rank_that_suffices_is_proven_to_suffice(reference, solver, noise):
    full = reference[noise]
    learner = fit(DATA[noise], noise=noise, solver=solver, rank=full.metric_.rank)
    assert learner.metric_.rank <= full.metric_.rank
    assert learner.certificate_.globally_optimal
    assert learner.certificate_.gap <= 1e-6
    assert learner.certificate_.outcome == "converged"
    assert learner.certificate_.loss == pytest.approx(full.certificate_.loss, abs=1e-6)


@solvers
@noises
@pytest.mark.parametrize("rank", [1, 2])
def test_a_rank_that_restricts_is_respected_and_priced(reference, solver, noise, rank):
    full = reference[noise]
    assert full.metric_.rank > rank
    learner = fit(DATA[noise], noise=noise, solver=solver, rank=rank)
    assert learner.metric_.rank == rank
    assert learner.certificate_.outcome == "restricted"
    assert f"rank-{rank}" in learner.certificate_.status
    assert not learner.certificate_.globally_optimal
    difference = learner.certificate_.loss - full.certificate_.loss
    assert difference > 1e-4
    assert learner.certificate_.gap >= difference - 1e-9
    assert learner.certificate_.gap <= difference + 1e-5
    # At least as good as cutting the full solution down.
    cut = full.metric_.truncate(rank)
    z = DATA[noise].pairs[:, 0] - DATA[noise].pairs[:, 1]
    cut_loss = np.mean(full.metric_.noise.neg_log_cdf(DATA[noise].labels * cut.margin(z)))
    assert learner.certificate_.loss <= cut_loss + 1e-9


@solvers
@noises
@pytest.mark.parametrize("alpha", [10.0, 1e6])
def test_a_large_penalty_gives_the_zero_metric(solver, noise, alpha):
    data = DATA[noise]
    learner = fit(data, noise=noise, solver=solver, alpha=alpha)
    assert learner.metric_.rank == 0
    np.testing.assert_array_equal(learner.metric_.matrix, 0.0)
    assert learner.certificate_.converged
    probability = learner.predict_proba(data.pairs)[:, 1]
    # tau >= 0 keeps the probability of far at one half at most.
    np.testing.assert_allclose(probability, min(np.mean(data.labels > 0), 0.5), atol=1e-3)
    assert learner.transform(data.pairs[:, 0]).shape == (N, 0)


# Fits that end early


def interrupt_at(call, monkeypatch):
    """Make the progress display raise KeyboardInterrupt at that call, and at no other."""
    original, calls = ShownSteps.__call__, []

    def raising(self, iteration, state):
        calls.append(iteration)
        if len(calls) == call:
            raise KeyboardInterrupt
        original(self, iteration, state)

    monkeypatch.setattr(ShownSteps, "__call__", raising)
    return calls


@solvers
@pytest.mark.parametrize("call", [1, 2, 3])
def test_an_interrupt_leaves_a_usable_fit(solver, call, monkeypatch, reference):
    data = DATA["logistic"]
    calls = interrupt_at(call, monkeypatch)
    learner = fit(data, solver=solver, tol=1e-12)
    assert len(calls) == call
    certificate = learner.certificate_
    assert certificate.outcome == "interrupted"
    assert np.isfinite(certificate.gap)
    best = reference["logistic"].certificate_
    assert certificate.gap >= certificate.loss - best.loss - 1e-9
    assert certificate.lower_bound <= best.loss + 1e-12
    assert set(learner.predict(data.pairs)) <= {-1, 1}
    assert np.all(np.isfinite(learner.predict_proba(data.pairs)))
    assert "interrupted" in learner.summary()


def test_an_interrupt_while_the_rank_is_cut_leaves_that_rank(monkeypatch):
    """The interrupt falls into the second stage, on factors of the rank that was asked for."""
    data = DATA["logistic"]
    n_first = fit(data, tol=1e-6).n_iter_ + 1
    interrupt_at(n_first + 2, monkeypatch)
    learner = fit(data, rank=2)
    assert learner.certificate_.outcome == "interrupted"
    assert learner.metric_.rank == 2
    assert learner.transform(data.pairs[:, 0]).shape == (N, 2)


def test_an_interrupt_before_the_rank_is_cut_takes_no_further_step():
    def interrupt(iteration, _):
        if iteration == 1:
            raise KeyboardInterrupt

    found = solved("newton", RandomProblem.of("close/far", n=600).problem(), rank=1, watch=interrupt)
    assert (found.certificate.outcome, found.n_iter) == (Outcome.INTERRUPTED, 1)
    assert found.factor.shape == (3, 1)


def test_an_interrupt_after_separability_was_seen(monkeypatch):
    """The interrupt falls into the search for a wide margin: the labels are all right already."""
    calls = interrupt_at(10**9, monkeypatch)
    with pytest.warns(ConvergenceWarning, match="separable"):
        fit(SEPARABLE)
    interrupt_at(len(calls), monkeypatch)
    learner = fit(SEPARABLE)
    assert learner.certificate_.outcome == "interrupted"
    assert np.isfinite(learner.certificate_.gap)
    assert np.all(np.isfinite(learner.predict_proba(SEPARABLE.pairs)))


@solvers
@noises
def test_too_few_steps_are_called_unfinished(solver, noise, reference):
    with pytest.warns(ConvergenceWarning, match="max_iter=1 "):
        learner = fit(DATA[noise], noise=noise, solver=solver, max_iter=1, tol=1e-13)
    certificate = learner.certificate_
    assert certificate.outcome == "unfinished"
    assert not certificate.converged
    assert learner.n_iter_ == 1
    assert certificate.gap >= certificate.loss - reference[noise].certificate_.loss - 1e-9
    assert np.all(np.isfinite(learner.predict_proba(DATA[noise].pairs)))


def test_solve_may_be_watched_or_not():
    given, seen = RandomProblem.of("close/far").problem(), []
    settings = SolverSettings(tol=1e-6)
    silent = solve(given, settings, rng=np.random.default_rng(0))
    watched = solve(
        given,
        settings,
        rng=np.random.default_rng(0),
        watch=lambda iteration, state: seen.append((iteration, state.gap)),
    )
    np.testing.assert_array_equal(silent.factor, watched.factor)
    assert [iteration for iteration, _ in seen] == list(range(watched.n_iter + 1))
    assert seen[-1][1] <= 1e-6
