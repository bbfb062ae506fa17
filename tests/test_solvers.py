"""The contract of every solver, parametrised over the registry, and the endings that are not plain convergence."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import closefar as cf
from closefar.fitting.progress import ShownSteps
from closefar.noise import NOISES
from closefar.solve import SOLVERS
from paper_estimator import PAPER

N, D = 700, 5
DATA = {noise: cf.datasets.make_pairs(N, D, rank=4, noise=noise, wrong_share=0.15, random_state=3) for noise in NOISES}
SEPARABLE = cf.datasets.make_pairs(250, 4, rank=3, noise=None, random_state=4)
FRESH = np.random.default_rng(5).standard_normal((2000, 2, 4)) @ np.cov(SEPARABLE.pairs.reshape(-1, 4).T)

solvers = pytest.mark.parametrize("solver", SOLVERS)
noises = pytest.mark.parametrize("noise", sorted(NOISES))


def fit(data, **parameters):
    return cf.LinearMetricLearner(**PAPER | parameters).fit(data.pairs, data.labels)


def word(learner):
    return learner.certificate_.status.split(":")[0]


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


# The contract


@solvers
@noises
@pytest.mark.parametrize("tol", [1e-6, 1e-9])
def test_reaches_the_certified_gap(solver, noise, tol):
    learner = fit(DATA[noise], noise=noise, solver=solver, tol=tol)
    certificate = learner.certificate_
    assert certificate.gap <= tol
    assert certificate.converged
    assert certificate.globally_optimal
    assert word(learner) == "converged"
    assert certificate.n_passes > 0
    assert 1 <= learner.n_iter_ <= 1000


@solvers
@noises
@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_solvers_agree(solver, noise, alpha):
    data = DATA[noise]
    learner = fit(data, noise=noise, solver=solver, alpha=alpha, tol=1e-8)
    expected = fit(data, noise=noise, alpha=alpha, tol=1e-11)
    assert learner.certificate_.objective == pytest.approx(expected.certificate_.objective, abs=1.1e-8)
    np.testing.assert_allclose(learner.predict_proba(data.pairs), expected.predict_proba(data.pairs), rtol=0, atol=2e-3)
    assert np.mean(learner.predict(data.pairs) == expected.predict(data.pairs)) > 0.99


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
        cf.LinearMetricLearner(alpha=alpha, prior="zero", fit_origin=fit_origin, solver=solver, flip_rate=0.0).fit(
            x, labels
        )
        for solver in SOLVERS
    ]
    losses = [learner.certificate_.objective for learner in fitted]
    assert max(losses) - min(losses) < 1e-4
    for learner in fitted:
        assert learner.certificate_.lower_bound <= min(losses) + 1e-9
        loss = np.mean(learner.metric_.noise.neg_log_cdf(labels * learner.decision_function(x)))
        assert loss == pytest.approx(learner.certificate_.loss, abs=1e-6)


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


# Separable labels


@solvers
def test_separable_labels(separated, solver):
    learner = separated[solver]
    assert word(learner) == "separable"
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
    learner = fit(SEPARABLE, solver=solver, alpha=0.001)
    assert word(learner) == "converged"


# A fixed rank


@solvers
@noises
def test_a_rank_that_suffices_is_proven_to_suffice(reference, solver, noise):
    full = reference[noise]
    learner = fit(DATA[noise], noise=noise, solver=solver, rank=full.metric_.rank)
    assert learner.metric_.rank <= full.metric_.rank
    assert learner.certificate_.globally_optimal
    assert learner.certificate_.gap <= 1e-6
    assert word(learner) == "converged"
    assert learner.certificate_.loss == pytest.approx(full.certificate_.loss, abs=1e-6)


@solvers
@noises
@pytest.mark.parametrize("rank", [1, 2])
def test_a_rank_that_restricts_is_respected_and_priced(reference, solver, noise, rank):
    full = reference[noise]
    assert full.metric_.rank > rank
    learner = fit(DATA[noise], noise=noise, solver=solver, rank=rank)
    assert learner.metric_.rank == rank
    assert word(learner) == "restricted"
    assert f"rank-{rank}" in learner.certificate_.status
    assert not learner.certificate_.globally_optimal
    difference = learner.certificate_.loss - full.certificate_.loss
    assert difference > 1e-4
    assert learner.certificate_.gap >= difference - 1e-9
    assert learner.certificate_.gap <= difference + 1e-5
    # At least as good as cutting the full solution down, with its threshold refitted or not.
    cut = full.metric_.truncate(rank)
    z = DATA[noise].pairs[:, 0] - DATA[noise].pairs[:, 1]
    cut_loss = np.mean(full.metric_.noise.neg_log_cdf(DATA[noise].labels * cut.margin(z)))
    assert learner.certificate_.loss <= cut_loss + 1e-9


# A large penalty


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


# Endings by hand and by limit


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
    assert word(learner) == "interrupted"
    certificate = learner.certificate_
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
    assert word(learner) == "interrupted"
    assert learner.metric_.rank == 2
    assert learner.transform(data.pairs[:, 0]).shape == (N, 2)


def test_an_interrupt_before_the_rank_is_cut_still_respects_the_rank(monkeypatch):
    interrupt_at(2, monkeypatch)
    learner = fit(DATA["logistic"], rank=2, tol=1e-12)
    assert word(learner) == "interrupted"
    assert learner.metric_.rank <= 2


def test_an_interrupt_after_separability_was_seen(monkeypatch):
    """The interrupt falls into the search for a wide margin: the labels are all right already."""
    calls = interrupt_at(10**9, monkeypatch)
    with pytest.warns(ConvergenceWarning, match="separable"):
        fit(SEPARABLE)
    interrupt_at(len(calls), monkeypatch)
    learner = fit(SEPARABLE)
    assert word(learner) == "interrupted"
    assert np.isfinite(learner.certificate_.gap)
    assert np.all(np.isfinite(learner.predict_proba(SEPARABLE.pairs)))


@solvers
@noises
def test_too_few_steps_are_called_unfinished(solver, noise, reference):
    with pytest.warns(ConvergenceWarning, match="max_iter=1 "):
        learner = fit(DATA[noise], noise=noise, solver=solver, max_iter=1, tol=1e-13)
    certificate = learner.certificate_
    assert word(learner) == "unfinished"
    assert not certificate.converged
    assert learner.n_iter_ == 1
    assert certificate.gap >= certificate.loss - reference[noise].certificate_.loss - 1e-9
    assert np.all(np.isfinite(learner.predict_proba(DATA[noise].pairs)))
