"""Newton's samples: steps on a part of the judgements and Hessians of those that matter, with results of all."""

import numpy as np
import pytest

import closefar as cf
from closefar.noise import NOISES
from closefar.rows import Differences, unit_free
from closefar.solve import CloseFar, Objective, Passes, State
from closefar.solve import newton as newton_module
from closefar.solve.newton import HessianSampler, Newton
from closefar.solve.problem import Cone, Problem
from paper_estimator import PAPER

RNG = np.random.default_rng


def judged(n=6000, d=3, seed=0):
    rng = RNG(seed)
    z = rng.standard_normal((n, d)) * np.arange(1, d + 1)
    squared = (z / np.arange(1, d + 1)) ** 2 @ np.linspace(1.0, 0.0, d)
    return z, np.where(squared + 0.3 * rng.logistic(size=n) > 1.0, 1, -1)


def objective_of(z, signs, weights=None):
    weights = np.full(len(z), 1.0 / len(z)) if weights is None else weights / weights.sum()
    rows, _ = unit_free(Differences(z), weights)
    return Objective(rows, CloseFar(NOISES["logistic"], signs.astype(float), weights), Passes())


@pytest.fixture
def samples_early(monkeypatch):
    """Samples are taken of far fewer judgements than they would be."""
    monkeypatch.setattr(newton_module, "_LONG_SCOUTED_PASS", 0.0)
    monkeypatch.setattr(newton_module, "_CURVED_NEAR", 100)


def without_samples(monkeypatch):
    monkeypatch.setattr(newton_module, "_LONG_SCOUTED_PASS", np.inf)
    monkeypatch.setattr(HessianSampler, "hessian", lambda self, curvature, number: self.objective.hessian(curvature))


def agrees(monkeypatch, z, labels, weights=None, tol=1e-9, slack=0.0, **options):
    """Fit with samples and without; return the first fit, which must have the same optimum."""
    sampled = cf.LinearMetricLearner(tol=tol, **PAPER | options).fit(z, labels, weights)
    without_samples(monkeypatch)
    whole = cf.LinearMetricLearner(tol=tol, **PAPER | options).fit(z, labels, weights)
    assert sampled.certificate_.converged
    assert sampled.certificate_.gap <= tol
    found, expected = (each.certificate_.loss if slack else each.certificate_.objective for each in (sampled, whole))
    assert found == pytest.approx(expected, abs=max(2.0 * tol, slack))
    np.testing.assert_allclose(sampled.predict_proba(z), whole.predict_proba(z), rtol=0.0, atol=2e-4)
    return sampled


@pytest.mark.usefixtures("samples_early")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha": 0.01},
        {"noise": "normal"},
        {"flip_rate": 0.05},
        {"fit_origin": True},
        {"prior": "standardized", "alpha": 0.02},
    ],
    ids=str,
)
def test_the_optimum_is_that_of_all_judgements(monkeypatch, options):
    # With flips, the search ends where a round gains less than 1e-7.
    agrees(monkeypatch, *judged(), tol=1e-8, slack=1e-6 if "flip_rate" in options else 0.0, **options)


@pytest.mark.usefixtures("samples_early")
def test_a_sample_counts_weights(monkeypatch):
    z, labels = judged()
    agrees(monkeypatch, z, labels, RNG(1).exponential(size=len(z)) * (RNG(2).random(len(z)) < 0.7))


@pytest.mark.usefixtures("samples_early")
@pytest.mark.parametrize("label", [-1, 1])
def test_a_sample_may_miss_an_enormous_judgement(monkeypatch, label):
    z, labels = judged()
    z[17], labels[17] = 3e3 * z[17], label
    agrees(monkeypatch, z, labels, tol=1e-7)


@pytest.mark.usefixtures("samples_early")
def test_a_sample_may_have_one_label_only(monkeypatch):
    z, labels = judged()
    far = np.flatnonzero(labels > 0)
    labels[far[4:]] = -1
    agrees(monkeypatch, z, labels, tol=1e-7)


def test_many_judgements_need_few_passes():
    z, labels = judged(60_000, 6)
    certificate = cf.LinearMetricLearner(tol=1e-8, **PAPER).fit(z, labels).certificate_
    assert certificate.gap <= 1e-8
    assert certificate.n_passes < 15  # a single Hessian of all would be three


def test_a_sampled_hessian_is_that_of_all_on_average():
    objective = objective_of(*judged(4000))
    here, _ = objective.loss_and_gradient(2.0 * np.eye(3), np.array([2.0]))
    expected = objective.hessian(here.curvature)
    sampler = HessianSampler(objective, RNG(0))
    found = np.array([sampler.hessian(here.curvature, 400) for _ in range(200)])
    scale = np.linalg.inv(np.linalg.cholesky(expected))
    np.testing.assert_allclose(scale @ found.mean(axis=0) @ scale.T, np.eye(7), atol=0.05)
    assert np.abs(scale @ found[0] @ scale.T - np.eye(7)).max() < 0.5


def test_judgements_that_matter_are_drawn_more_often():
    """Nearly all of the Hessian is that of ten long rows: they are always drawn, and a Hessian of few rows is good."""
    z, labels = judged(4000)
    z[:10] *= 30.0
    objective = objective_of(z, labels)
    lengths = objective.source.squared_distances(np.eye(3))
    sampler = HessianSampler(objective, RNG(0))
    chances = sampler._chances(np.full(4000, 1.0 / 4000) * sampler.lengths**2, 200)
    assert np.all(chances[:10] > 0.2)
    assert np.all(chances[np.argsort(-lengths)[:5]] == 1.0)
    assert np.all(chances >= 0.5 * 200 / 4000)
    assert chances.sum() <= 200
    rest = np.argsort(lengths)[:3000]
    assert np.all(np.diff(chances[rest]) >= 0.0)


@pytest.mark.parametrize(("number", "is_sampled"), [(999, True), (1000, False)])
def test_half_of_the_judgements_are_no_sample(number, is_sampled):
    objective = objective_of(*judged(2000))
    here, _ = objective.loss_and_gradient(2.0 * np.eye(3), np.array([2.0]))
    found = HessianSampler(objective, RNG(0)).hessian(here.curvature, number)
    exact = np.allclose(found, objective.hessian(here.curvature), rtol=1e-5, atol=1e-7)
    assert exact != is_sampled


@pytest.mark.parametrize(
    ("n", "d", "decrement", "expected"),
    [
        (10**6, 10, 1e-3, 64 * 55),
        (10**6, 10, 0.99e-3, 512 * 55),
        (15_000, 10, 1e-4, int(10 * 400 / 55**2 * 15_000)),
        (200_000, 30, 1e-4, int(10 * 3600 / 465**2 * 200_000)),
        (100_000, 30, 1e-4, 64 * 465),
    ],
)
def test_a_hessian_near_the_optimum_is_that_of_more_judgements_if_they_cost_few_passes(n, d, decrement, expected):
    solver = Newton.__new__(Newton)
    solver.problem = Problem(_Sized(n, d), 0.0, Cone(d, np.zeros(1)))
    assert solver._number_curved(decrement) == expected


class _Sized:
    def __init__(self, n_judgements, n_directions):
        self.n_judgements, self.n_directions = n_judgements, n_directions


@pytest.mark.parametrize(
    ("decrement", "before", "length", "is_good"),
    [(0.24, 1.0, 1.0, True), (0.26, 1.0, 1.0, False), (0.24, 1.0, 0.5, False), (0.9e-12, 1e-12, 1.0, True)],
)
def test_a_sample_is_given_up_where_steps_do_not_shrink(decrement, before, length, is_good):
    assert newton_module._is_good(decrement, before, length) == is_good


def test_a_hessian_that_single_precision_cannot_hold_is_computed_in_double():
    rows = Differences(1e12 * judged(500)[0])
    root = np.ones(500)
    np.testing.assert_allclose(
        rows.sum_of_squares(root, (root,), rough=True), rows.sum_of_squares(root, (root,)), rtol=1e-12
    )
    small = Differences(judged(500)[0])
    rough, exact = (small.sum_of_squares(root, (root,), rough=rough) for rough in (True, False))
    np.testing.assert_allclose(rough, exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())
    assert not np.array_equal(rough, exact)


def test_steps_use_the_hessian_of_the_scouts_where_these_are_enough(monkeypatch):
    monkeypatch.setattr(newton_module, "_LONG_SCOUTED_PASS", 0.0)
    solver = Newton(Problem(objective_of(*judged(20_000)), 0.0, Cone(3, np.zeros(1))), 1e-8, RNG(0))
    solver.start()
    assert solver.scout.problem.objective.n_judgements == pytest.approx(2500, rel=0.1)
    seen = []
    monkeypatch.setattr(
        HessianSampler, "hessian", lambda self, curvature, number: seen.append((self, number)) or np.eye(7)
    )
    state = solver.resume(State.at(np.eye(3), 2.0))
    for decrement in (1.0, 1e-5):
        solver._model(newton_module.replace(state.memory, decrement=decrement))
    assert seen == [(solver.scout.sampler, 64 * 6), (solver.sampler, 512 * 6)]


@pytest.mark.parametrize("prior", ["zero", "standardized"])
def test_a_large_penalty_with_an_enormous_close_difference_begins_near_zero(prior):
    rng = np.random.default_rng(4)
    Z = rng.standard_normal((300, 4))
    labels = (Z[:, 0] ** 2 + rng.logistic(size=300) > 1.0).astype(int)
    Z[0], labels[0] = 1e6 * Z[0], 0
    learner = cf.LinearMetricLearner(alpha=2.0, prior=prior, solver="newton", flip_rate=0.0)
    with pytest.warns(cf.IdentifiabilityWarning, match="row 0"):
        certificate = learner.fit(Z, labels).certificate_
    assert certificate.outcome == "converged"
    share = labels.mean()
    assert certificate.loss <= -share * np.log(share) - (1 - share) * np.log(1 - share) + 1e-6
