"""Questions about many pairs are answered with a part of them, and so well that nobody sees it."""

from __future__ import annotations

import numpy as np
import pytest

import closefar as cf
from closefar.arrays import numbered
from closefar.fitting import Scorer, Settings, fit, fit_from, is_near_parts, refit
from closefar.judgements import Judgements, PairGroupKFold, split_judgements
from closefar.questions import dependence, goodness_of_fit
from closefar.questions import likelihood as label_likelihood
from closefar.questions.likelihood import SideErrors
from paper_estimator import PAPER


def _judgements(n: int, *, flipped: float = 0.0) -> Judgements:
    data = cf.datasets.make_pairs(n, 3, wrong_share=0.15, random_state=0)
    signs = np.where(data.labels == data.labels.max(), 1.0, -1.0)
    return Judgements.of_signs(data.pairs, np.where(np.random.default_rng(0).random(n) < flipped, -signs, signs))


@pytest.mark.parametrize("flip_rate", [0.0, "estimate"])
def test_folds_that_start_from_the_fit_to_all_end_where_others_do(flip_rate):
    judgements = _judgements(50_000, flipped=0.05)
    settings = Settings(flip_rate=flip_rate, alpha=0.0)
    whole = fit(judgements, settings)
    assert is_near_parts(whole)
    train, test = split_judgements(5, judgements, seed=0)[0]
    seen, unseen = judgements.take(train), judgements.take(test)
    exact, near = refit(seen, settings).metric, fit_from(whole, seen).metric
    probabilities = [Scorer(metric).score(unseen).probability_far for metric in (exact, near)]
    np.testing.assert_allclose(*probabilities, atol=1e-3)
    # The fit to all is not it: what is left out is not seen.
    assert np.abs(Scorer(whole.metric).score(unseen).probability_far - probabilities[0]).max() > 1e-3


def test_few_pairs_are_not_near_their_parts():
    assert not is_near_parts(fit(_judgements(2000), Settings(**PAPER)))


def test_intervals_of_a_part_of_the_rows_are_those_of_all(monkeypatch):
    rng = np.random.default_rng(1)
    points = rng.standard_normal((6000, 2))
    ends = rng.integers(6000, size=(12_000, 2))
    pairs = points[ends]
    labels = np.sum((pairs[:, 0] - pairs[:, 1]) ** 2, axis=1) + rng.logistic(size=len(pairs)) > 3.0
    learner = cf.LinearMetricLearner(**PAPER).fit(pairs, labels)
    whole = cf.confidence(learner, pairs, labels, groups=ends)
    monkeypatch.setattr(label_likelihood, "_MOST_ROWS", 4000)
    monkeypatch.setattr(label_likelihood, "_ROWS_PER_PARAMETER", 1)
    monkeypatch.setattr(dependence, "_MOST_UNITS", 3000)
    part = cf.confidence(learner, pairs, labels, groups=ends)
    assert part.method == whole.method == "sandwich"
    for name in ("threshold", "matrix", "eigenvalues"):
        ratio = np.asarray(getattr(part, name).standard_error) / getattr(whole, name).standard_error
        assert 0.9 < ratio.min() <= ratio.max() < 1.1
        assert np.any(ratio != 1.0)


def test_errors_of_margins_from_a_part_of_the_pairs_are_those_from_all(monkeypatch):
    data = cf.datasets.make_pairs(8000, 3, wrong_share=0.15, random_state=2)
    find = lambda: cf.find_label_errors(cf.LinearMetricLearner(**PAPER), data.pairs, data.labels, random_state=0)  # noqa: E731
    whole = find()
    monkeypatch.setattr(label_likelihood, "_MOST_ROWS", 4000)
    part = find()
    np.testing.assert_allclose(part.probability, whole.probability, atol=0.03)
    assert np.any(part.error != whole.error)
    np.testing.assert_array_equal(part.margin, whole.margin)


@pytest.mark.filterwarnings("ignore::closefar.IdentifiabilityWarning")
def test_a_direction_in_which_few_rows_vary_is_not_lost_in_a_part_of_them(monkeypatch):
    rng = np.random.default_rng(0)
    differences = rng.standard_normal((20_000, 3))
    differences[:, 2] = np.arange(20_000) % 200 == 0
    labels = np.sum(differences**2, axis=1) + rng.logistic(size=20_000) > 2.0
    learner = cf.LinearMetricLearner(**PAPER).fit(differences, labels)
    judgements = Judgements.of_signs(differences, np.where(labels, 1.0, -1.0))

    def errors():
        of_matrix = cf.confidence(learner, differences, labels, method="sandwich").matrix.standard_error
        return of_matrix, SideErrors.of(learner.fit_, judgements).at(differences[:2], np.zeros((2, 1)))

    whole = errors()
    monkeypatch.setattr(label_likelihood, "_MOST_ROWS", 5000)
    monkeypatch.setattr(label_likelihood, "_ROWS_PER_PARAMETER", 1)
    part = errors()
    np.testing.assert_allclose(part[0], whole[0], rtol=0.1)
    np.testing.assert_allclose(part[0][2, 2], whole[0][2, 2], rtol=0.01)  # of a random quarter of 100 rows: 20% off
    np.testing.assert_allclose(part[1], whole[1], rtol=0.1)
    assert np.any(part[0] != whole[0])


def test_a_heavy_row_stands_for_itself():
    weights = np.ones(1000)
    weights[[3, 700]] = 500.0
    chosen, number = label_likelihood.representatives(weights, np.ones(1000), 100)
    assert {3, 700} <= set(chosen.tolist())
    np.testing.assert_array_equal(number[np.isin(chosen, [3, 700])], 1.0)
    assert len(chosen) == 102
    np.testing.assert_allclose(number @ weights[chosen], weights.sum())


def test_a_large_group_is_in_the_sum_over_a_part_of_the_groups(monkeypatch):
    rng = np.random.default_rng(0)
    groups = np.where(np.arange(6000) < 1500, 0, np.arange(6000) // 2)
    common = rng.standard_normal(3000)[groups]
    differences = rng.standard_normal((6000, 2))
    labels = np.sum(differences**2, axis=1) + 2.0 * common + rng.logistic(size=6000) > 2.0
    learner = cf.LinearMetricLearner(**PAPER).fit(differences, labels)
    find = lambda: cf.confidence(learner, differences, labels, groups=groups, method="sandwich")  # noqa: E731
    whole = find().threshold.standard_error
    monkeypatch.setattr(dependence, "_MOST_UNITS", 400)
    part = find().threshold.standard_error
    assert part != whole
    np.testing.assert_allclose(part, whole, rtol=0.1)


def test_tests_are_made_with_at_most_so_many_pairs(monkeypatch):
    judgements, sizes = _judgements(3000), []
    fitted = fit(judgements, Settings(**PAPER))
    monkeypatch.setattr(goodness_of_fit, "_MOST_TESTED", 1000)
    monkeypatch.setattr(
        goodness_of_fit, "check_noise_model", lambda fit, used, groups: sizes.append((len(used), len(groups)))
    )
    goodness_of_fit.check_noise_if_possible(fitted, judgements, None)
    goodness_of_fit.check_noise_if_possible(fitted, judgements.take(np.arange(500, 900)), np.arange(400))
    assert sizes == [(1000, 1000), (400, 400)]


def test_folds_of_very_many_points_are_balanced():
    rng = np.random.default_rng(0)
    ids = rng.integers(500_000, size=(400_000, 2))
    sizes = [len(test) for _, test in PairGroupKFold(5, random_state=0).split(ids, groups=ids)]
    assert max(sizes) < 1.1 * min(sizes)


@pytest.mark.parametrize(
    "ids",
    [
        np.array([[3, 9], [9, 4]]),
        np.array([-7, 5, -7], dtype=np.int32),
        np.array([0, 10**12, 5, 0]),
        np.array([250, 3, 250], dtype=np.uint8),
        np.array(["b", "a", "b"]),
        np.zeros((0, 2), dtype=np.int64),
    ],
    ids=["dense", "negative", "sparse", "small", "text", "none"],
)
def test_ids_are_numbered_in_their_order(ids):
    different, inverse = np.unique(ids, return_inverse=True)
    numbers, n = numbered(ids)
    assert n == len(different)
    assert np.array_equal(numbers, inverse.reshape(ids.shape))


def test_products_of_pairs_that_share_points_are_summed_once():
    rng = np.random.default_rng(0)
    ids = rng.integers(30, size=(60, 2))
    ids[:3], ids[3] = [[1, 2], [2, 1], [1, 2]], [5, 5]
    terms = rng.standard_normal((60, 2))
    one, both = dependence.Dependence(ids).cross_sums(terms)
    shared = np.array([[len(set(left) & set(right)) for right in ids.tolist()] for left in ids.tolist()])
    np.fill_diagonal(shared, 0)
    assert np.allclose(one + both, terms.T @ (shared > 0) @ terms)
    assert np.allclose(both, terms.T @ (shared == 2) @ terms)
