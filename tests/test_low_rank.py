"""The solver on factors, for many columns: its parts against formulas and references, and fits of wide data."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize, minimize_scalar
from sklearn.base import clone

import closefar as cf
from closefar.noise import NOISES
from closefar.rows import Differences, Trait, unit_free
from closefar.solve import Answers, Likelihood, Problem, SharedRate, State
from closefar.solve import low_rank as low_rank_module
from closefar.solve.flips import softened
from closefar.solve.low_rank import (
    Factored,
    FactorModel,
    LowRank,
    Spectrum,
    _two_loop,
    add_or_drop_directions,
    has_tangents,
    leading_factor,
    tangent_bound,
)
from paper_estimator import PAPER
from random_problems import KINDS, RandomProblem, solved

CONVEX_KINDS = [kind for kind in KINDS if kind != "origin"]


def wide(n=1500, d=60, *, rank=4, wrong=0.1, seed=0, dtype=np.float64):
    """Differences whose variances fall as 1/j in a random basis, and labels of a metric of low rank."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    w = rng.standard_normal((n, d))
    squared = np.sum((w @ rng.standard_normal((d, rank))) ** 2, axis=1)
    margin = 8.0 * (squared / np.median(squared) - 1.0)
    signs = np.where(margin + rng.logistic(size=n) > 0.0, 1.0, -1.0)
    signs[rng.random(n) < wrong] *= -1.0
    return ((w / np.sqrt(np.arange(1, d + 1))) @ basis.T).astype(dtype), signs


def wide_problem(*, alpha=0.02, noise="logistic", **kwargs):
    Z, signs = wide(**kwargs)
    weights = np.random.default_rng(9).uniform(0.5, 1.5, len(Z))
    weights /= weights.sum()
    rows, _ = unit_free(Differences(Z), weights)
    return Problem.of(rows, Likelihood(NOISES[noise], Answers.of(2), 0.5 + 0.5 * signs, weights), alpha)


def factored_of(problem, tol=1e-12):
    return Factored(problem, tol)


def fit(Z, signs, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cf.LinearMetricLearner(**PAPER | parameters).fit(Z, signs)


# The risk as a function of a factor


@pytest.mark.parametrize("kind", CONVEX_KINDS)
@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_the_gradient_in_the_factor_is_that_of_the_risk_with_its_best_thresholds(kind, alpha):
    judged = RandomProblem.of(kind, n=300, alpha=alpha, sharpness=0.5)
    factored, rng = factored_of(judged.problem(), 1e-14), np.random.default_rng(3)
    factor = 0.5 * rng.standard_normal((3, 2))
    place = factored.at(factor, 1.0 + np.arange(judged.likelihood.n_thresholds))
    assert place.value == pytest.approx(judged.value(factor @ factor.T, place.thresholds), abs=1e-12)
    # By the envelope theorem, the thresholds may stay.
    _, slopes = judged.gradient(factor @ factor.T, place.thresholds)
    assert np.abs(slopes[place.thresholds > judged.likelihood.least]).max(initial=0.0) < 1e-9
    expected = approx_fprime(
        factor.ravel(), lambda x: judged.value(x.reshape(3, 2) @ x.reshape(3, 2).T, place.thresholds), 1e-7
    )
    np.testing.assert_allclose(factored.gradient(place).ravel(), expected, atol=1e-6)


@pytest.mark.parametrize("noise", NOISES)
def test_the_gradient_in_the_factor_of_many_columns(noise):
    factored = factored_of(wide_problem(noise=noise, n=300, d=40))
    factor, ahead = 0.2 * np.random.default_rng(3).standard_normal((2, 40, 3))
    place, step = factored.at(factor, np.ones(1), 1e-14), 1e-5
    values = [factored.at(factor + sign * step * ahead, place.thresholds, 1e-14).value for sign in (1.0, -1.0)]
    slope = float(np.sum(factored.gradient(place) * ahead))
    assert (values[0] - values[1]) / (2 * step) == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("kind", CONVEX_KINDS)
@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_the_line_search_minimises(kind, alpha):
    factored = factored_of(RandomProblem.of(kind, n=400, d=6, alpha=alpha).problem())
    place = factored.at(*leading_factor(factored, 3))
    direction = -factored.gradient(place)
    found = factored.search(place, direction)
    assert found.value < place.value
    slope_before, slope = (np.sum(factored.gradient(each) * direction) for each in (place, found))
    assert abs(slope) <= 0.11 * abs(slope_before)
    # Projections along the line are those of the factor there.
    fresh = factored.at(found.factor, found.thresholds)
    assert found.value == pytest.approx(fresh.value, abs=1e-12)
    np.testing.assert_allclose(found.projections, fresh.projections, atol=1e-12)
    np.testing.assert_allclose(found.squared, fresh.squared, atol=1e-10)


@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_the_line_search_finds_the_lowest_point_of_a_long_line(alpha):
    factored = factored_of(wide_problem(alpha=alpha, n=400, d=40))
    place = factored.at(*leading_factor(factored, 3))
    direction = -factored.gradient(place)
    found = factored.search(place, direction)
    lengths = np.linspace(0.0, 3.0, 61) * np.linalg.norm(found.factor - place.factor) / np.linalg.norm(direction)
    values = [factored.at(place.factor + length * direction, place.thresholds).value for length in lengths]
    assert found.value - min(values) <= 0.02 * (place.value - min(values))


def test_a_line_that_only_rises_is_not_followed():
    factored = factored_of(RandomProblem.of("close/far", n=300, alpha=0.05).problem())
    best = LowRank(factored.problem, 1e-9, np.random.default_rng(0))
    place = best.run(best.start, tol=1e-9, max_iter=200).state.memory.place
    same = factored.search(place, 100.0 * np.ones_like(place.factor))
    assert same.value <= place.value + 1e-14


@pytest.mark.parametrize("n_steps", [0, 1, 3])
def test_the_direction_of_descent_is_that_of_the_bfgs_formula(n_steps):
    rng = np.random.default_rng(2)
    gradient, steps = rng.standard_normal((3, 2)), rng.standard_normal((n_steps, 3, 2))
    changes = steps * rng.uniform(0.5, 2.0, steps.shape)
    inverse = first = np.diag(np.arange(1.0, 7.0))
    if n_steps:
        inverse = first * np.sum(steps[-1] * changes[-1]) / np.sum(changes[-1].ravel() @ first @ changes[-1].ravel())
    for s, y in zip(steps.reshape(-1, 6), changes.reshape(-1, 6), strict=True):
        turn = np.eye(6) - np.outer(s, y) / (s @ y)
        inverse = turn @ inverse @ turn.T + np.outer(s, s) / (s @ y)
    pairs = tuple((step, change, np.sum(step * change)) for step, change in zip(steps, changes, strict=True))
    found = _two_loop(gradient, pairs, lambda matrix: matrix * np.diag(first).reshape(3, 2))
    np.testing.assert_allclose(found.ravel(), -inverse @ gradient.ravel(), rtol=1e-9)


def test_the_model_is_inverted():
    factored = factored_of(wide_problem(n=300, d=40))
    place = factored.at(*leading_factor(factored, 4))
    spectrum = Spectrum.of(factored, place)
    shifted = spectrum.values - spectrum.values[0] + 0.1
    model = FactorModel(factored.problem.alpha, False, shifted, spectrum.vectors)
    right = np.random.default_rng(0).standard_normal(place.factor.shape)
    solved = model.inverse(place, right)
    matrix = (spectrum.vectors * shifted) @ spectrum.vectors.T
    lengths = np.linalg.eigvalsh(place.factor.T @ place.factor)
    assert lengths[0] > 1e-4 * lengths[-1]
    image = 4.0 * place.curvature * solved @ (place.factor.T @ place.factor) + 2.0 * matrix @ solved
    np.testing.assert_allclose(image, right, atol=1e-9)


# Tangents


def tangents(noise, threshold, share, squared, codes, weights):
    likelihood = Likelihood(NOISES[noise], Answers.of(2), codes, weights)
    return low_rank_module._tangents(likelihood.loss(np.array([threshold])), share, squared, codes, weights)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("share", [1.0, 0.999, 0.5, 0.01])
def test_the_bound_of_tangents_is_the_conjugate(noise, share):
    model = NOISES[noise]
    for each in (-30.0, -4.0, -0.5, 0.0, 0.3, 2.0, 15.0):
        slope = share * float(model.derivatives(np.float64(each), 1)[1])
        best = minimize_scalar(
            lambda m, slope=slope: float(model.neg_log_cdf(np.float64(m))) - slope * m,
            bounds=(each - 1.0, max(each, 0.0) + 60.0),
            method="bounded",
            options={"xatol": 1e-11},
        ).fun
        # One pair that was judged far, whose margin is its squared distance less the threshold.
        found = tangents(noise, max(-each, 0.0), share, np.array([max(each, 0.0)]), np.ones(1), np.ones(1))
        assert found == pytest.approx(best, abs=1e-9)
        assert found <= best + 1e-12


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("share", [0.9, 0.5, 0.1])
def test_tangents_that_are_found_only_roughly_prove_less_never_more(noise, share, monkeypatch):
    for threshold in (0.5, 3.0, 1e3):
        given = noise, threshold, share, np.zeros(1), np.ones(1), np.ones(1)
        exact = tangents(*given)
        for n_steps in (4, 6, 8):
            with monkeypatch.context() as patch:
                patch.setattr(low_rank_module, "_MOST_TANGENT_STEPS", n_steps)
                assert tangents(*given) <= exact + 1e-12


@pytest.mark.parametrize("noise", NOISES)
def test_tangents_at_enormous_margins_do_not_overflow(noise):
    rng = np.random.default_rng(0)
    codes = (rng.random(50) < 0.5).astype(float)
    for size in (1e3, 1e6, 1e9):
        squared = size * rng.random(50)
        for share in (1.0 - 1e-9, 0.999, 0.5, 1e-3):
            with np.errstate(over="raise", invalid="raise"):
                found = tangents(noise, 0.5 * size, share, squared, codes, np.full(50, 0.02))
            assert np.isfinite(found)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kind", CONVEX_KINDS)
def test_the_bound_of_any_place_is_below_the_optimum(kind, noise):
    """Of tangents where there are some, or otherwise of the share of the slopes that is in the dual cone."""
    judged = RandomProblem.of(kind, noise, n=300, alpha=0.05, seed=4)
    given, rng, bounds = judged.problem(), np.random.default_rng(0), []
    best = solved("newton", given, tol=1e-10)
    assert has_tangents(given)
    assert (Trait.TANGENTS in given.traits) == (judged.kind.n_levels <= 2 and judged.kind.n_groups == 0)
    for scale in np.repeat([0.0, 1e-6, 1e-3, 0.1, 1.0], 4):
        factor = best.factor + scale * rng.standard_normal(best.factor.shape)
        factored = factored_of(given)
        place = factored.at(factor, best.thresholds)
        bounds.append(tangent_bound(given, place, Spectrum.of(factored, place).least))
    assert max(bounds) <= best.certificate.objective + 1e-11
    assert max(bounds[:4]) >= best.certificate.objective - 1e-4


def test_no_bound_is_taken_without_a_penalty_or_from_a_risk_that_is_not_convex():
    judged = RandomProblem.of("close/far", alpha=0.05)
    flipped = judged.likelihood.with_flips(SharedRate(np.array([0.2])))
    assert has_tangents(judged.problem())
    assert not has_tangents(judged.problem(alpha=0.0))
    assert not has_tangents(judged.problem(likelihood=flipped))
    assert LowRank(judged.problem(likelihood=flipped), 1e-6, np.random.default_rng(0))._proves is False


# Which columns a factor has


def test_columns_are_added_where_the_gradient_asks_for_them():
    factored = factored_of(wide_problem(n=800, d=40, alpha=0.01))
    place = factored.at(*leading_factor(factored, 1))
    changed = add_or_drop_directions(factored, place, Spectrum.of(factored, place), 1e-6, 0.0, shrinks=False)
    assert changed.factor.shape[1] > 1
    assert changed.value < place.value


def test_columns_that_a_proximal_step_empties_are_dropped():
    """At a penalty near the largest, all but a few of the leading directions are too many."""
    factored = factored_of(wide_problem(n=800, d=40, alpha=0.08))
    place = factored.at(*leading_factor(factored, 30))
    changed = add_or_drop_directions(factored, place, Spectrum.of(factored, place), 1e-6, 0.0, shrinks=True)
    assert changed.factor.shape[1] < 30
    assert changed.value < place.value


def test_nothing_is_added_at_an_optimum():
    given = wide_problem(n=800, d=40, alpha=0.05)
    solver = LowRank(given, 1e-9, np.random.default_rng(0))
    place = solver.run(solver.start, tol=1e-9, max_iter=500).state.memory.place
    factored = factored_of(given)
    place = factored.at(place.factor, place.thresholds)
    assert add_or_drop_directions(factored, place, Spectrum.of(factored, place), 1e-6, 0.0, shrinks=False) is None


def test_a_start_is_along_the_leading_directions():
    judged = RandomProblem.of("close/far", n=20_000, d=6, rank=2)
    factored = factored_of(judged.problem())
    factor, thresholds = leading_factor(factored, 2)
    best = solved("newton", judged.problem(), rank=2)
    start, end = (np.linalg.qr(each)[0] for each in (factor, best.factor))
    assert np.linalg.svd(start.T @ end)[1].min() > 0.95
    assert factored.at(factor, thresholds).value < factored.at(np.zeros((6, 0)), thresholds).value
    # Labels that mean the opposite ask for no direction.
    judged = RandomProblem.of("close/far", n=20_000, d=6, rank=6)
    turned = replace(judged.likelihood, codes=1.0 - judged.codes)
    factor, thresholds = leading_factor(factored_of(judged.problem(likelihood=turned)), None)
    assert factor.shape == (6, 0)


def test_the_error_of_single_precision_is_measured():
    given = wide_problem(n=3000, d=60, dtype=np.float32)
    assert given.rough is not given
    exact, rough = factored_of(given), factored_of(given.rough)
    place = rough.at(*leading_factor(rough, 3))
    single, double = Spectrum.of(rough, place), Spectrum.of(exact, place)
    measured = single.measured(exact, place, np.random.default_rng(0))
    error = np.linalg.norm(single.gradient - double.gradient, 2)
    assert double.rounding < error < measured.rounding < 1e-3


# Steps


def low_rank_at(*, alpha=0.05, tol=1e-6, rank=None, proves=True, **memory):
    judged = RandomProblem.of("close/far", n=300, alpha=alpha)
    solver = LowRank(judged.problem(), tol, np.random.default_rng(0), rank, proves=proves)
    state = solver.resume(State.at(0.3 * np.eye(3), 0.5))
    return solver, replace(state, memory=replace(state.memory, **memory))


@pytest.mark.parametrize("rank", [None, 1, 2, 3])
def test_it_resumes_at_the_leading_directions_and_keeps_the_bound_of_a_limited_rank(rank):
    given, matrix = RandomProblem.of("close/far").problem(), np.diag([1.0, 3.0, 2.0])
    solver = LowRank(given, 1e-8, np.random.default_rng(0), rank)
    begun = solver.resume(replace(State.at(matrix, 1.0), bound=0.123))
    leading = np.diag([1.0 if rank in (None, 3) else 0.0, 3.0, 2.0 if rank != 1 else 0.0])
    np.testing.assert_allclose(begun.matrix, leading, atol=1e-10)
    # A rank that is no limit is none, and then the bound may be that of another penalty.
    assert begun.bound == (0.123 if rank in (1, 2) else 0.0)


@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_each_step_lowers_the_risk(alpha):
    solver, state = low_rank_at(alpha=alpha)
    values = [state.objective]
    for _ in range(5):
        state = solver._descend(state)
        values.append(state.objective)
        np.testing.assert_allclose(state.matrix, state.factor @ state.factor.T)
    assert np.all(np.diff(values) < 0.0)
    assert 1 <= len(state.memory.steps) <= 5
    assert state.memory.n_since == 5


@pytest.mark.parametrize(("turn", "is_kept"), [(1.0, True), (-1.0, False), (0.0, False)])
def test_steps_are_remembered_where_the_risk_curves_upwards(turn, is_kept):
    solver, state = low_rank_at(alpha=0.0)
    last = state.memory
    before = last.factored.gradient(last.place)
    moved = last.factored.search(last.place, -before)
    step = moved.factor - last.place.factor
    scripted = SimpleNamespace(search=lambda *_: moved, gradient=lambda place: before + turn * step)
    old = tuple((k * before, before, k * float(np.sum(before**2))) for k in range(1, low_rank_module._HISTORY + 1))
    for steps in ((), old):
        memory = replace(last, factored=scripted, gradient=before, steps=steps)
        new = solver._descend(replace(state, memory=memory)).memory
        if is_kept:
            assert new.steps[:-1] == steps[1:]  # the latest ones
            np.testing.assert_allclose(new.steps[-1][0], step)
            np.testing.assert_allclose(new.steps[-1][1], step)
        else:
            assert new.steps is steps


def test_projections_are_computed_anew_after_twenty_steps(monkeypatch):
    solver, state = low_rank_at(alpha=0.0)
    fresh, at = [], Factored.at
    monkeypatch.setattr(Factored, "at", lambda *given: fresh.append(1) or at(*given))
    for n_since, n_fresh in ((18, 0), (19, 1), (20, 1), (39, 2)):
        solver._descend(replace(state, memory=replace(state.memory, n_since=n_since)))
        assert len(fresh) == n_fresh


@pytest.mark.parametrize(
    ("changes", "checks"),
    [
        ({"n_since": 5, "check_after": 5}, True),
        ({"n_since": 4, "check_after": 5}, False),
        ({"n_since": 2, "check_after": 0, "decrement": 0.99e-8}, True),  # a hundredth of the tolerance
        ({"n_since": 2, "check_after": 0, "decrement": 1.01e-8}, False),
        ({"n_since": 1, "check_after": 0, "decrement": 0.99e-8}, False),
        ({"n_since": 1, "check_after": 0, "n_idle": 10}, True),
        ({"n_since": 1, "check_after": 0, "n_idle": 9}, False),
    ],
)
def test_a_full_gradient_is_taken_at_first_and_once_the_decrement_is_small(changes, checks):
    solver, state = low_rank_at(**changes)
    solver._check = lambda state, *, is_settled: "checked"
    solver._descend = lambda state: "descended"
    assert solver.step(state) == ("checked" if checks else "descended")


def test_a_limited_rank_ends_where_nothing_is_proven():
    solver, state = low_rank_at(alpha=0.0, rank=1)
    run = solver.run(lambda: state, tol=1e-6, max_iter=200)
    assert (run.state.stuck, run.state.bound) == (True, 0.0)
    # Unless the bound of the convex problem came with the start, or a penalty lets tangents prove one.
    judged = RandomProblem.of("close/far", n=300, alpha=0.05)
    solver = LowRank(judged.problem(), 1e-6, np.random.default_rng(0), 1)
    found = solver.run(solver.start, tol=1e-6, max_iter=200).state
    assert 0.0 < found.bound <= solved("newton", judged.problem()).certificate.objective


@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_it_proves_the_optimum_unless_it_need_not(alpha):
    judged = RandomProblem.of("close/far", n=600, alpha=alpha)
    best = solved("newton", judged.problem(), tol=1e-10).certificate.objective
    for proves in (True, False):
        solver = LowRank(judged.problem(), 1e-7, np.random.default_rng(0), proves=proves)
        state = solver.run(solver.start, tol=1e-7, max_iter=500).state
        assert state.objective == pytest.approx(best, abs=1e-7)
        assert (state.gap <= 1e-7) if proves else (state.bound == 0.0 and state.stuck)


def test_a_line_that_leaves_no_number_ends_the_run():
    """With flips, a level may be left with no width between its thresholds."""
    solver, state = low_rank_at()
    last = state.memory
    rough = SimpleNamespace(
        search=lambda place, direction: replace(place, value=math.inf), gradient=last.factored.gradient
    )
    assert solver._descend(replace(state, memory=replace(last, factored=rough))).stuck


# Bounds and solutions against other solvers


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("alpha", [0.0, 0.02])
def test_the_bound_holds_and_the_optimum_is_reached(noise, alpha):
    given = wide_problem(noise=noise, alpha=alpha, n=1000, d=20, rank=3, wrong=0.2)
    ours, best = (solved(way, given, tol=tol).certificate for way, tol in (("lowrank", 1e-6), ("newton", 1e-8)))
    assert ours.converged
    assert ours.lower_bound <= best.objective + 1e-12
    assert ours.objective >= best.lower_bound - 1e-12
    assert ours.objective - best.objective <= 1e-6


def test_softened_labels():
    """The last step of a fit with flips: each judgement has a weight of its own, and they do not sum to one."""
    given = wide_problem(alpha=0.02, n=1000, d=20)
    flipped = given.likelihood.with_flips(SharedRate(np.array([0.3])))
    near = solved("lowrank", given)
    soft = given.with_likelihood(softened(flipped, given.rows, near.squared, near.thresholds))
    assert soft.likelihood.weights.sum() < 0.9
    ours, best = (solved(way, soft, tol=tol).certificate for way, tol in (("lowrank", 1e-6), ("newton", 1e-8)))
    assert ours.converged
    assert ours.lower_bound <= best.objective + 1e-12
    assert abs(ours.objective - best.objective) <= 1e-6


def correlated(Z):
    mixed = Z.copy()
    mixed[:, 1::2] = Z[:, ::2] + 1e-6 * Z[:, 1::2]
    return mixed


CHANGES = {
    "as they are": lambda Z: Z,
    "single precision": lambda Z: Z.astype(np.float32),
    "strongly correlated": correlated,
    "units": lambda Z: Z * np.logspace(-9, 9, Z.shape[1]),
    "units in single precision": lambda Z: (Z * np.logspace(-9, 9, Z.shape[1])).astype(np.float32),
    "duplicates": lambda Z: np.hstack([Z, Z[:, :7]]),
    "fewer pairs than columns": lambda Z: np.hstack([Z[:30], Z[30:60]]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_same_optimum_as_by_another_solver(change):
    Z, signs = wide(n=800, d=40)
    Z = CHANGES[change](Z)
    signs = signs[: len(Z)]
    best = fit(Z, signs, alpha=0.03, solver="sampled").certificate_
    for tol in (1e-4, 1e-7):
        ours = fit(Z, signs, alpha=0.03, tol=tol)
        certificate = ours.certificate_
        assert certificate.converged
        assert certificate.gap <= tol
        assert certificate.lower_bound <= best.objective + 1e-9
        assert certificate.objective >= best.lower_bound - 1e-9
        loss = np.mean(np.logaddexp(0.0, -signs * ours.metric_.margin(Z)))
        assert certificate.loss == pytest.approx(loss, abs=1e-6)


def test_weights_are_repeats():
    Z, signs = wide(n=800, d=40)
    weights = np.random.default_rng(2).integers(1, 4, len(Z))
    learner = cf.LinearMetricLearner(alpha=0.02, prior="zero", tol=1e-9, flip_rate=0.0)
    weighted = clone(learner).fit(Z, signs, sample_weight=weights)
    repeated = clone(learner).fit(np.repeat(Z, weights, axis=0), np.repeat(signs, weights))
    assert weighted.certificate_.objective == pytest.approx(repeated.certificate_.objective, abs=2e-9)


def test_a_penalty_so_large_that_nothing_is_learned():
    Z, signs = wide(n=600, d=40)
    learner = fit(Z, signs, alpha=2.0)
    assert learner.certificate_.converged
    assert learner.metric_.rank == 0


def test_wide_separable_labels_are_reported():
    Z, signs = wide(n=150, d=200)
    learner = fit(Z.astype(np.float32), signs)
    assert learner.certificate_.outcome == "separable"
    assert np.all(learner.metric_.margin(Z.astype(np.float32)) * signs > 0.0)


@pytest.mark.parametrize("alpha", [0.0, 0.02])
def test_a_limited_rank_of_many_columns(alpha):
    Z, signs = wide(n=1500, d=130, rank=3)
    learner = fit(Z, signs, rank=3, alpha=alpha)
    certificate = learner.certificate_
    assert learner.metric_.rank == 3
    assert certificate.outcome == "restricted"
    assert ("nothing is proven" in certificate.advice) == (alpha == 0.0)
    # The descents of another optimiser end no lower, from the same leading directions or anywhere near.
    weights = np.full(len(Z), 1.0 / len(Z))
    rows, _ = unit_free(Differences(Z), weights, blend=1.0 if alpha else 0.0)
    w = rows.legs.read(slice(0, len(Z))).T

    def risk(x):
        factor, tau = x[:-1].reshape(-1, 3), x[-1]
        product = w @ factor
        margin = signs * (np.sum(product**2, axis=1) - tau)
        pull = -signs * weights / (1.0 + np.exp(margin))
        slopes = 2.0 * w.T @ (pull[:, None] * product) + 2.0 * alpha * factor
        return weights @ np.logaddexp(0.0, -margin) + alpha * np.sum(factor**2), np.append(slopes.ravel(), -pull.sum())

    likelihood = Likelihood(NOISES["logistic"], Answers.of(2), 0.5 + 0.5 * signs, weights)
    factor, thresholds = leading_factor(factored_of(Problem.of(rows, likelihood, alpha)), 3)
    bounds = [(None, None)] * factor.size + [(0.0, None)]
    best = minimize(
        risk, np.append(factor, thresholds), jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": 200}
    )
    assert certificate.objective <= best.fun + 1e-6


def test_fits_are_repeatable_and_do_not_depend_on_the_order_of_rows():
    Z, signs = wide(n=3000, d=40, dtype=np.float32)
    first, second = (fit(Z, signs, alpha=0.02) for _ in range(2))
    np.testing.assert_array_equal(first.metric_.factor, second.metric_.factor)
    order = np.random.default_rng(0).permutation(len(Z))
    other = fit(Z[order], signs[order], alpha=0.02)
    assert other.certificate_.objective == pytest.approx(first.certificate_.objective, abs=1e-6)
