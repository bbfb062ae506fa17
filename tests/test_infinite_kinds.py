"""Judgements of other kinds than close/far whose optimum lies at infinity, or that few rows of a column decide."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import closefar as cf
from closefar import solve
from closefar.fitting import Settings, fit
from paper_estimator import PAPER


def _triplets(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Triplets, the answers of the Euclidean metric, and answers with noise."""
    rng = np.random.default_rng(seed)
    triplets = rng.standard_normal((n, 3, 3))
    near, far = (np.sum((triplets[:, 0] - triplets[:, k]) ** 2, axis=1) for k in (1, 2))
    return triplets, np.where(far > near, 1, -1), np.where(far - near + rng.logistic(size=n) > 0.0, 1, -1)


def _with_category(triplets: np.ndarray, answers: np.ndarray, n_rare: int) -> np.ndarray:
    """A further column, of a category that some of the farther points alone belong to."""
    data = np.concatenate([triplets, np.zeros((*triplets.shape[:2], 1))], axis=2)
    data[np.flatnonzero(answers == 1)[:n_rare], 2, -1] = 1.0
    data[np.flatnonzero(answers == -1)[:n_rare], 1, -1] = 1.0
    return data


def test_separable_comparisons_are_called_so_in_their_own_words():
    triplets, answers, _ = _triplets(200)
    with pytest.warns(ConvergenceWarning, match="agrees with every comparison"):
        learner = cf.ComparisonMetricLearner(**PAPER).fit(triplets, answers)
    assert "tau" not in learner.certificate_.status
    assert "pairs" not in learner.certificate_.status


def test_separable_labels_by_annotators_are_separable():
    rng = np.random.default_rng(0)
    pairs = rng.standard_normal((200, 2, 2))
    labels = np.sum((pairs[:, 0] - pairs[:, 1]) ** 2, axis=1) > 3.0
    with pytest.warns(ConvergenceWarning, match="gets every label right"):
        learner = cf.LinearMetricLearner(**PAPER).fit(pairs, labels, annotators=np.arange(200) % 3)
    assert learner.certificate_.outcome == "separable"


@pytest.mark.parametrize("solver", ["newton", "lowrank", "sampled"])
@pytest.mark.parametrize("n", [300, 4000])
def test_a_column_that_explains_comparisons_without_exception_is_named(n: int, solver: str):
    triplets, _, answers = _triplets(n)
    with pytest.warns(ConvergenceWarning, match="column 'x3' explains some comparisons without exception"):
        learner = cf.ComparisonMetricLearner(solver=solver, **PAPER).fit(_with_category(triplets, answers, 8), answers)
    assert learner.certificate_.gap < 1e-5
    assert np.diag(learner.metric_.matrix)[:3] == pytest.approx(np.ones(3), abs=0.35)


def test_a_column_that_explains_the_last_level_without_exception_is_named():
    rng = np.random.default_rng(0)
    pairs = np.concatenate([rng.standard_normal((300, 2, 2)), np.zeros((300, 2, 1))], axis=2)
    levels = np.digitize(np.sum((pairs[:, 0] - pairs[:, 1]) ** 2, axis=1) + rng.logistic(size=300), [2.0, 5.0])
    pairs[np.flatnonzero(levels == 2)[:30], 0, 2] = 1.0
    with pytest.warns(ConvergenceWarning, match="column 'x2' explains some labels without exception"):
        cf.OrdinalMetricLearner(**PAPER).fit(pairs, levels)
    pairs[np.flatnonzero(levels == 1)[:3], 0, 2] = 1.0
    assert cf.OrdinalMetricLearner(**PAPER).fit(pairs, levels).certificate_.outcome == "converged"


def test_a_penalty_holds_for_a_rare_category_too():
    triplets, _, answers = _triplets(4000)
    data = _with_category(triplets, answers, 8)
    learner = cf.ComparisonMetricLearner(alpha=0.01, prior="zero", flip_rate=0.0).fit(data, answers)
    assert learner.certificate_.converged
    assert 0.0 < learner.metric_.matrix[3, 3] < 100.0


@pytest.mark.parametrize("width", [1e-7, 1e-3, 1e4])
def test_a_prior_of_any_width_is_proven(width: float):
    rng = np.random.default_rng(0)
    pairs = rng.standard_normal((300, 2, 3))
    labels = np.sum((pairs[:, 0] - pairs[:, 1]) ** 2, axis=1) + 2.0 * rng.logistic(size=300) > 5.0
    learner = cf.LinearMetricLearner(**PAPER)
    judgements = learner.read(pairs, labels, annotators=np.arange(300) % 4)
    found = fit(judgements, Settings.of(learner, strictness_width=width))
    assert found.certificate.outcome == solve.Outcome.CONVERGED
    assert found.annotators.width == width


def test_comparisons_of_little_noise_are_solved_on_factors():
    rng = np.random.default_rng(1128)
    pairs, triplets = rng.standard_normal((212, 2, 5)), rng.standard_normal((150, 3, 5))
    labels = np.sum((pairs[:, 0] - pairs[:, 1]) ** 2, axis=1) + 3.0 * rng.logistic(size=212) > 9.0
    near, far = (np.sum((triplets[:, 0] - triplets[:, k]) ** 2, axis=1) for k in (1, 2))
    answers = np.where(far - near + rng.logistic(size=150) > 0.0, 1, -1)
    answered = {"comparisons": (triplets, answers), "comparison_noise": 0.01}
    fits = [
        cf.LinearMetricLearner(solver=solver, **PAPER | {"alpha": 0.001}).fit(pairs, labels, **answered)
        for solver in ("newton", "lowrank")
    ]
    assert fits[0].certificate_.objective == pytest.approx(fits[1].certificate_.objective, abs=2e-6)
