"""Newton's samples: steps on a part of the judgements and Hessians of those that matter, with results of all."""

from dataclasses import replace

import numpy as np
import pytest

import closefar as cf
from closefar.fitting import Settings, fit
from closefar.noise import NOISES
from closefar.rows import Differences, unit_free
from closefar.solve import Answers, Likelihood, Problem, State
from closefar.solve import newton as newton_module
from closefar.solve.newton import HessianSampler, Newton
from paper_estimator import PAPER

RNG = np.random.default_rng


def judged(n=6000, d=3, seed=0):
    rng = RNG(seed)
    z = rng.standard_normal((n, d)) * np.arange(1, d + 1)
    squared = (z / np.arange(1, d + 1)) ** 2 @ np.linspace(1.0, 0.0, d)
    return z, np.where(squared + 0.3 * rng.logistic(size=n) > 1.0, 1, -1)


def problem_of(z, labels, **more):
    weights = np.full(len(z), 1.0 / len(z))
    rows, _ = unit_free(Differences(z), weights)
    return Problem.of(rows, Likelihood(NOISES["logistic"], Answers.of(2), (labels > 0).astype(int), weights, **more))


@pytest.fixture
def samples_early(monkeypatch):
    """Samples are taken of far fewer judgements than they would be."""
    monkeypatch.setattr(newton_module, "_LONG_SCOUTED_PASS", 0.0)
    monkeypatch.setattr(newton_module, "_CURVED_NEAR", 100)


def without_samples(monkeypatch):
    monkeypatch.setattr(newton_module, "_LONG_SCOUTED_PASS", np.inf)
    monkeypatch.setattr(
        HessianSampler, "hessian", lambda self, matrix, taus, here, number: self.problem.hessian(here.curvature)
    )


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
@pytest.mark.parametrize("kind", ["levels", "triplets", "annotators"])
def test_the_optimum_of_other_kinds_is_that_of_all_judgements(monkeypatch, kind):
    kinds = {"levels": cf.OrdinalMetricLearner, "triplets": cf.ComparisonMetricLearner}
    options = {"n_annotators": 5} if kind == "annotators" else {"kind": kind, "wrong_share": 0.2}
    data = cf.datasets.make_judgements(6000, 3, random_state=0, **options)
    learner = kinds.get(kind, cf.LinearMetricLearner)(tol=1e-8, **PAPER)
    judgements = learner.read(data.tuples, data.labels, annotators=data.annotators)
    settings = Settings.of(learner, strictness_width=0.5)
    sampled = fit(judgements, settings)
    without_samples(monkeypatch)
    whole = fit(judgements, settings)
    assert sampled.certificate.converged
    assert sampled.certificate.n_passes != whole.certificate.n_passes  # samples were taken
    assert sampled.certificate.objective == pytest.approx(whole.certificate.objective, abs=2e-8)
    scale = np.abs(whole.metric.matrix).max()
    np.testing.assert_allclose(sampled.metric.matrix, whole.metric.matrix, rtol=0.0, atol=2e-3 * scale)


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


MATRIX, TAU = 2.0 * np.eye(3), np.array([2.0])


@pytest.mark.parametrize("n_groups", [0, 3])
def test_a_sampled_hessian_is_that_of_all_on_average(n_groups):
    more = {"groups": RNG(1).integers(0, n_groups + 1, 4000), "n_groups": n_groups, "precision": 0.01}
    problem = problem_of(*judged(4000), **more if n_groups else {})
    thresholds = np.append(TAU, 0.3 * np.arange(n_groups))
    here = problem.at(MATRIX, thresholds).evaluation
    expected = problem.hessian(here.curvature)
    sampler = HessianSampler(problem, RNG(0))
    found = np.array([sampler.hessian(MATRIX, thresholds, here, 400) for _ in range(200)])
    scale = np.linalg.inv(np.linalg.cholesky(expected))
    np.testing.assert_allclose(scale @ found.mean(axis=0) @ scale.T, np.eye(7 + n_groups), atol=0.05)
    assert np.abs(scale @ found[0] @ scale.T - np.eye(7 + n_groups)).max() < 0.5


def test_judgements_that_matter_are_drawn_more_often():
    """Nearly all of the Hessian is that of ten long rows: they are always drawn, and a Hessian of few rows is good."""
    z, labels = judged(4000)
    z[:10] *= 30.0
    problem = problem_of(z, labels)
    lengths = problem.rows.squared_distances(np.eye(3))
    sampler = HessianSampler(problem, RNG(0))
    np.testing.assert_allclose(sampler.lengths, 1.0 + lengths)
    chances = sampler._chances(np.full(4000, 1.0 / 4000) * sampler.lengths**2, 200)
    assert np.all(chances[:10] > 0.2)
    assert np.all(chances[np.argsort(-lengths)[:5]] == 1.0)
    assert np.all(chances >= 0.5 * 200 / 4000)
    assert chances.sum() <= 200
    rest = np.argsort(lengths)[:3000]
    assert np.all(np.diff(chances[rest]) >= 0.0)


@pytest.mark.parametrize(("number", "is_sampled"), [(999, True), (1000, False)])
def test_half_of_the_judgements_are_no_sample(number, is_sampled):
    problem = problem_of(*judged(2000))
    here = problem.at(MATRIX, TAU).evaluation
    found = HessianSampler(problem, RNG(0)).hessian(MATRIX, TAU, here, number)
    assert np.allclose(found, problem.hessian(here.curvature), rtol=1e-5, atol=1e-7) != is_sampled


@pytest.mark.parametrize("n_near", [100, 390])
def test_judgements_that_are_certain_are_left_out_if_the_others_are_few(n_near):
    """Far from the threshold a judgement adds next to nothing: what is left is exact, and takes few passes."""
    z, labels = judged(4000)
    z[n_near:] *= 1e3
    problem = problem_of(z, labels)
    is_near = np.arange(4000) < n_near
    matrix = np.eye(3) / problem.rows.squared_distances(np.eye(3))[is_near].mean()
    here = problem.at(matrix, TAU).evaluation
    before = problem.passes.count
    found = HessianSampler(problem, RNG(0)).hessian(matrix, TAU, here, 400)
    assert problem.passes.count - before < 0.2
    expected = problem.hessian(here.curvature)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-4 * np.abs(expected).max())


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
def test_a_hessian_near_the_optimum_is_that_of_more_judgements_if_they_cost_few_passes(
    monkeypatch, n, d, decrement, expected
):
    problem = Problem.of(Differences(np.empty((0, d))), problem_of(*judged(10)).likelihood)
    solver = Newton(problem, 1e-8, RNG(0))
    monkeypatch.setattr(Problem, "n_judgements", n)
    assert solver._number_curved(decrement) == expected


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
    solver = Newton(problem_of(*judged(20_000)), 1e-8, RNG(0))
    solver.start()
    assert solver.scout.problem.n_judgements == pytest.approx(2500, rel=0.1)
    seen = []
    monkeypatch.setattr(
        HessianSampler,
        "hessian",
        lambda self, matrix, taus, here, number: seen.append((self, here.loss, number)) or np.eye(7),
    )
    state = solver.resume(State.at(MATRIX, 2.0))
    for decrement in (1.0, 1e-5):
        solver._advance(replace(state, memory=replace(state.memory, decrement=decrement)))
    of_few = solver.scout.problem.at(MATRIX, TAU).value
    few, all_of_them = (solver.scout.sampler, of_few, 64 * 6), (solver.sampler, state.objective, 512 * 6)
    assert [each[0] for each in seen] == [few[0], all_of_them[0]]
    assert [each[2] for each in seen] == [few[2], all_of_them[2]]
    assert [each[1] for each in seen] == pytest.approx([few[1], all_of_them[1]])


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
