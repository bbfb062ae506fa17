"""The solver for many columns: its parts against references, and fits of wide data against other solvers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.base import clone

import closefar as cf
from closefar.noise import NOISES
from closefar.rows import Differences, find_coordinates, unit_free
from closefar.rows.coordinates import WideRows
from closefar.solve import CloseFar, Objective, Options, Passes, ignore_progress, solve
from closefar.solve import low_rank as dual
from closefar.solve.centre import Centred
from closefar.solve.flips import FlippedCloseFar, SoftCloseFar
from closefar.solve.low_rank import (
    Factor,
    Factored,
    FactorModel,
    Spectrum,
    add_or_drop_directions,
    leading_factor,
    tangent_bound,
)
from paper_estimator import PAPER


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


def rows_and_problem(likelihood_of=None, *, alpha=0.02, noise="logistic", **kwargs):
    Z, signs = wide(**kwargs)
    weights = np.random.default_rng(9).uniform(0.5, 1.5, len(Z))
    weights /= weights.sum()
    rows, _ = unit_free(Differences(Z), weights)
    likelihood = (
        CloseFar(NOISES[noise], signs, weights) if likelihood_of is None else likelihood_of(rows, signs, weights)
    )
    options = Options(alpha, None, has_constant=False, solver="lowrank", tol=1e-6, max_iter=500)
    return options.problem(Objective(rows, likelihood, Passes())), options


def fit(Z, signs, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cf.LinearMetricLearner(**PAPER | parameters).fit(Z, signs)


# Rows in coordinates that are applied to factors


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("as_pairs", [False, True])
def test_wide_rows_agree_with_mapped_rows(dtype, as_pairs):
    Z, _ = wide(dtype=dtype)
    data = np.stack([Z, np.zeros_like(Z)], axis=1) if as_pairs else Z
    weights = np.full(len(Z), 1.0 / len(Z))
    source = Differences(data)
    coordinates = find_coordinates(source, weights)
    mapped, rows = source.in_coordinates(coordinates), unit_free(source, weights)[0]
    assert isinstance(rows, WideRows)
    rng = np.random.default_rng(1)
    factor, numbers = rng.standard_normal((rows.n_columns, 5)), rng.standard_normal(len(Z)) * weights
    turn = np.linalg.qr(rng.standard_normal((rows.n_columns, rows.n_columns)))[0]
    for ours, tol in ((rows, 1e-11), (rows.rough, 1e-4)):
        for compute in (
            lambda each: each.squared_distances(factor),
            lambda each: each.inner(each.forward(factor), each.forward(factor)),
            lambda each: each.backward(each.forward(factor), numbers),
            lambda each: each.outer(numbers),
            lambda each: each.quadratic_forms(factor @ factor.T - np.eye(rows.n_columns)),
            lambda each: each.rotated_moments(np.abs(numbers), (numbers,), turn)[0],
        ):
            found, expected = compute(ours), compute(mapped)
            assert found.dtype == np.float64
            np.testing.assert_allclose(found, expected, rtol=0.0, atol=tol * np.abs(expected).max())
    assert rows.rough.forward(factor).dtype == np.float32


def test_strongly_correlated_columns_are_summed_in_their_coordinates():
    Z, _ = wide(n=600, d=40)
    Z[:, 1] = Z[:, 0] + 1e-6 * Z[:, 1]
    weights = np.full(len(Z), 1.0 / len(Z))
    source = Differences(Z)
    coordinates = find_coordinates(source, weights)
    assert coordinates.condition > 1e5
    assert not isinstance(unit_free(source, weights)[0], WideRows)  # few enough to be kept
    rows = WideRows(source, coordinates)
    assert rows.rough is rows
    np.testing.assert_allclose(rows.outer(weights), np.eye(40), atol=1e-8)


@pytest.mark.parametrize("size", [30.0, 1e3])
def test_random_projections_find_an_enormous_row(size):
    Z, _ = wide(n=400, d=70)
    weights = np.full(len(Z), 1.0 / len(Z))
    usual = find_coordinates(Differences(Z), weights)
    Z[17] *= size
    found = find_coordinates(Differences(Z), weights)
    # Its weight is reduced: the others keep about the coordinates that they have without it.
    lengths = [np.sum((Z[:17] @ each.transform) ** 2, axis=1) for each in (usual, found)]
    np.testing.assert_allclose(lengths[0], lengths[1], rtol=0.15)


# Parts of the solver


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("share", [1.0, 0.999, 0.5, 0.01])
def test_the_bound_of_tangents_is_the_conjugate(noise, share):
    margins = np.array([-30.0, -4.0, -0.5, 0.0, 0.3, 2.0, 15.0])
    model = NOISES[noise]
    for each in margins:
        likelihood = CloseFar(model, np.ones(1), np.ones(1))
        problem = Options(1.0, None, False, "lowrank", 1e-6, 9).problem(
            Objective(Differences(np.ones((1, 1))), likelihood, Passes())
        )
        factored = Factored(problem, problem.objective)
        place = factored._place(np.zeros((1, 0)), None, np.array([max(each, 0.0)]), np.array([max(-each, 0.0)]), np.inf)
        slope = share * float(model.derivatives(np.float64(each), 1)[1])
        best = minimize_scalar(
            lambda m, slope=slope: float(model.neg_log_cdf(np.float64(m))) - slope * m,
            bounds=(each - 1.0, max(each, 0.0) + 60.0),
            method="bounded",
            options={"xatol": 1e-11},
        ).fun
        thresholds = place.thresholds
        slack = max(-float(place.evaluation.slopes[0]), 0.0) * 1e3 * (1.0 + float(thresholds[0]))
        found = tangent_bound(problem, place, -1.0 / share) + slack
        assert found == pytest.approx(best, abs=1e-9)
        assert found <= best + 1e-12


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("share", [0.9, 0.5, 0.1])
def test_tangents_that_are_found_only_roughly_prove_less_never_more(noise, share, monkeypatch):
    likelihood = CloseFar(NOISES[noise], np.ones(1), np.ones(1))
    squared, arrays = np.array([0.0]), likelihood.row_arrays
    for threshold in (0.5, 3.0, 1e3):
        exact = dual._tangents(likelihood, np.array([threshold]), share, squared, *arrays)
        for n_steps in (4, 6, 8):
            with monkeypatch.context() as patch:
                patch.setattr(dual, "_MOST_TANGENT_STEPS", n_steps)
                rough = dual._tangents(likelihood, np.array([threshold]), share, squared, *arrays)
            assert rough <= exact + 1e-12


@pytest.mark.parametrize("noise", NOISES)
def test_tangents_at_enormous_margins_do_not_overflow(noise):
    rng = np.random.default_rng(0)
    likelihood = CloseFar(NOISES[noise], np.where(rng.random(50) < 0.5, 1.0, -1.0), np.full(50, 0.02))
    for size in (1e3, 1e6, 1e9):
        squared, threshold = size * rng.random(50), np.array([0.5 * size])
        for share in (1.0 - 1e-9, 0.999, 0.5, 1e-3):
            with np.errstate(over="raise", invalid="raise"):
                found = dual._tangents(likelihood, threshold, share, squared, *likelihood.row_arrays)
            assert np.isfinite(found)


@pytest.mark.parametrize("noise", NOISES)
def test_the_gradient_in_the_factor(noise):
    problem, _ = rows_and_problem(noise=noise, n=300, d=40)
    factored = Factored(problem, problem.objective)
    rng = np.random.default_rng(3)
    factor, ahead = 0.2 * rng.standard_normal((2, problem.cone.size, 3))
    place = factored.at(factor, np.ones(1), 1e-14)
    step = 1e-5
    values = [factored.at(factor + sign * step * ahead, place.thresholds, 1e-14).value for sign in (1.0, -1.0)]
    slope = float(np.sum(factored.gradient(place) * ahead))
    assert (values[0] - values[1]) / (2 * step) == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_the_line_search_minimises(alpha):
    problem, _ = rows_and_problem(alpha=alpha, n=400, d=40)
    factored = Factored(problem, problem.objective)
    factor, thresholds = leading_factor(factored, 3)
    place = factored.at(factor, thresholds)
    direction = -factored.gradient(place)
    found = factored.search(place, direction)
    lengths = np.linspace(0.0, 3.0, 61) * np.linalg.norm(found.factor - factor) / np.linalg.norm(direction)
    values = [factored.at(factor + length * direction, thresholds).value for length in lengths]
    assert found.value - min(values) <= 0.02 * (place.value - min(values))
    fresh = factored.at(found.factor, found.thresholds)
    assert found.value == pytest.approx(fresh.value, abs=1e-12)
    np.testing.assert_allclose(found.projections, fresh.projections, atol=1e-12)


def test_the_model_is_inverted():
    problem, _ = rows_and_problem(n=300, d=40)
    factored = Factored(problem, problem.objective)
    place = factored.at(*leading_factor(factored, 4))
    spectrum = Spectrum.of(factored, place)
    shifted = spectrum.values - spectrum.values[0] + 0.1
    model = FactorModel(problem.alpha, False, shifted, spectrum.vectors)
    right = np.random.default_rng(0).standard_normal(place.factor.shape)
    solved = model.inverse(place, right)
    matrix = (spectrum.vectors * shifted) @ spectrum.vectors.T
    lengths = np.linalg.eigvalsh(place.factor.T @ place.factor)
    assert lengths[0] > 1e-4 * lengths[-1]
    image = 4.0 * place.curvature * solved @ (place.factor.T @ place.factor) + 2.0 * matrix @ solved
    np.testing.assert_allclose(image, right, atol=1e-9)


def test_columns_are_added_where_the_gradient_asks_for_them():
    problem, _ = rows_and_problem(n=800, d=40, alpha=0.01)
    factored = Factored(problem, problem.objective)
    place = factored.at(*leading_factor(factored, 1))
    changed = add_or_drop_directions(factored, place, Spectrum.of(factored, place), 1e-6, 0.0, shrinks=False)
    assert changed.factor.shape[1] > 1
    assert changed.value < place.value


def test_the_error_of_single_precision_is_measured():
    problem, _ = rows_and_problem(n=3000, d=60, dtype=np.float32)
    exact, rough = (Factored(problem, each) for each in (problem.objective, problem.objective.rough))
    assert rough.objective is not exact.objective
    place = rough.at(*leading_factor(rough, 3))
    single, double = Spectrum.of(rough, place), Spectrum.of(exact, place)
    measured = single.measured(exact, place, np.random.default_rng(0))
    error = np.linalg.norm(single.gradient - double.gradient, 2)
    assert double.rounding < error < measured.rounding < 1e-3


# Bounds and solutions against other solvers


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("alpha", [0.0, 0.02])
def test_the_bound_holds_and_the_optimum_is_reached(noise, alpha):
    problem, options = rows_and_problem(noise=noise, alpha=alpha, n=2000, d=34, rank=3, wrong=0.2)
    ours = solve(problem.objective, options, rng=np.random.default_rng(0), watch=ignore_progress).certificate
    tight = Options(alpha, None, False, "fista", 1e-7, 3000)
    best = solve(problem.objective, tight, rng=np.random.default_rng(0), watch=ignore_progress).certificate
    assert ours.converged
    assert ours.lower_bound <= best.objective + 1e-12
    assert ours.objective >= best.lower_bound - 1e-12
    assert ours.objective - best.objective <= 1e-6


def soft(rows, signs, weights):
    flipped = np.random.default_rng(5).uniform(0.0, 0.3, len(signs))
    return SoftCloseFar(NOISES["logistic"], signs, weights, flipped)


def centred(rows, signs, weights):
    k = rows.n_columns
    return Centred(CloseFar(NOISES["logistic"], signs, weights), rows.squared_distances(np.eye(k) / np.sqrt(k)))


@pytest.mark.parametrize("likelihood_of", [soft, centred])
def test_soft_labels_and_two_thresholds(likelihood_of):
    problem, options = rows_and_problem(likelihood_of, alpha=0.02, n=1500, d=40)
    ours = solve(problem.objective, options, rng=np.random.default_rng(0), watch=ignore_progress).certificate
    tight = Options(0.02, None, False, "fista", 1e-7, 3000)
    best = solve(problem.objective, tight, rng=np.random.default_rng(0), watch=ignore_progress).certificate
    assert ours.converged
    assert ours.lower_bound <= best.objective + 1e-12
    assert abs(ours.objective - best.objective) <= 1e-6


def test_no_bound_is_taken_from_a_risk_that_is_not_convex():
    assert CloseFar.is_convex
    assert SoftCloseFar.is_convex
    assert not FlippedCloseFar.is_convex


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
def test_the_same_optimum_as_by_fista(change):
    Z, signs = wide(n=800, d=40)
    Z = CHANGES[change](Z)
    signs = signs[: len(Z)]
    best = fit(Z, signs, alpha=0.03, solver="fista").certificate_
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
    certificate = fit(Z, signs, alpha=2.0).certificate_
    assert certificate.converged
    assert fit(Z, signs, alpha=2.0).metric_.rank == 0


def test_wide_separable_labels_are_reported():
    Z, signs = wide(n=150, d=200)
    learner = fit(Z.astype(np.float32), signs)
    assert learner.certificate_.outcome == "separable"
    assert np.all(learner.metric_.margin(Z.astype(np.float32)) * signs > 0.0)


@pytest.mark.parametrize("alpha", [0.0, 0.02])
def test_a_limited_rank_of_many_columns(alpha):
    Z, signs = wide(n=2500, d=130, rank=3)
    learner = fit(Z, signs, rank=3, alpha=alpha)
    certificate = learner.certificate_
    assert learner.metric_.rank == 3
    assert certificate.outcome == "restricted"
    assert ("nothing is proven" in certificate.advice) == (alpha == 0.0)
    weights = np.full(len(Z), 1.0 / len(Z))
    rows, _ = unit_free(Differences(Z), weights, blend=1.0 if alpha else 0.0)
    objective = Objective(rows, CloseFar(NOISES["logistic"], signs, weights), Passes())
    options = Options(alpha, 3, has_constant=False, solver="factor", tol=1e-6, max_iter=500)
    problem = options.problem(objective)
    plain = Factor(problem, 1e-6, np.random.default_rng(0), 3)
    found = plain.run(plain.start, options.limits(problem, ignore_progress)).state
    assert certificate.objective <= found.objective + 1e-6


def test_fits_are_repeatable_and_do_not_depend_on_the_order_of_rows():
    Z, signs = wide(n=3000, d=40, dtype=np.float32)
    first, second = (fit(Z, signs, alpha=0.02) for _ in range(2))
    np.testing.assert_array_equal(first.metric_.factor, second.metric_.factor)
    order = np.random.default_rng(0).permutation(len(Z))
    other = fit(Z[order], signs[order], alpha=0.02)
    assert other.certificate_.objective == pytest.approx(first.certificate_.objective, abs=1e-6)
