"""The choice of the rank: it finds the true one, in any units, and leaves the learner alone."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold

import closefar as cf
from closefar.fitting import candidate_ranks
from closefar.questions import choose_rank

DATA = cf.datasets.make_pairs(3000, 5, metric_eigenvalues=[1.0, 0.5], wrong_share=0.1, random_state=1)
X, LABELS = DATA.pairs[:, 0] - DATA.pairs[:, 1], DATA.labels
LEARNER = cf.LinearMetricLearner()


@pytest.fixture(scope="module")
def choice():
    return choose_rank(LEARNER, X, LABELS)


def same_table(left, right):
    np.testing.assert_allclose(np.array(left.table), np.array(right.table), rtol=1e-9, atol=1e-9)


def test_true_rank_is_found(choice):
    assert choice.rank == 2
    assert cf.LinearMetricLearner().fit(X, LABELS).metric_.rank > 2


def test_rule_allows_one_standard_error(choice):
    excess = {score.k: score.excess for score in choice.table}
    errors = {score.k: score.standard_error for score in choice.table}
    assert excess[2] <= errors[2]
    assert excess[1] > errors[1]
    best = choose_rank(LEARNER, X, LABELS, rule="best").rank
    assert excess[best] == errors[best] == 0.0
    assert min(score.loss for score in choice.table) == choice.table[best].loss


def test_table_starts_with_a_constant(choice):
    share = np.mean(LABELS > 0)
    entropy = -(share * np.log(share) + (1 - share) * np.log1p(-share))
    assert choice.table[0].k == 0
    assert choice.table[0].loss == pytest.approx(entropy, abs=0.01)
    lines = str(choice).split("\n")
    assert len(lines) == 1 + len(choice.table)
    assert [line.endswith("*") for line in lines[1:]] == [score.k == 2 for score in choice.table]


def test_units_do_not_matter(choice):
    rng = np.random.default_rng(0)
    for units in (np.diag([1e9, 1e-6, 1.0, 30.0, -2.0]), rng.standard_normal((5, 5))):
        other = choose_rank(LEARNER, X @ units, LABELS)
        assert other.rank == choice.rank
        np.testing.assert_allclose([s.loss for s in other.table], [s.loss for s in choice.table], atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "labels"),
    [(DATA.pairs, LABELS), (X, LABELS > 0), (X, np.where(LABELS > 0, "far", "close"))],
    ids=["pairs", "booleans", "words"],
)
def test_form_of_input_does_not_matter(choice, rows, labels):
    same_table(choose_rank(LEARNER, rows, labels), choice)


def test_far_label_is_heeded(choice):
    learner = cf.LinearMetricLearner(far_label="a")
    other = choose_rank(learner, X, np.where(LABELS > 0, "a", "b"))
    np.testing.assert_allclose([s.loss for s in other.table], [s.loss for s in choice.table], atol=0.01)


def test_rows_of_no_weight_do_not_count(choice):
    rows, labels = np.vstack([X, 100 * X[:50]]), np.append(LABELS, -LABELS[:50])
    weights = np.append(np.full(len(X), 3.0), np.zeros(50))
    same_table(choose_rank(LEARNER, rows, labels, weights), choice)
    splits = list(KFold(3).split(rows))
    own = choose_rank(LEARNER, rows, labels, weights, cv=splits)
    without = [(train[train < len(X)], test[test < len(X)]) for train, test in splits]
    same_table(own, choose_rank(LEARNER, X, LABELS, cv=without))


def test_learner_is_not_changed():
    learner = cf.LinearMetricLearner(rank=1, class_weight="balanced", alpha=0.001)
    before = clone(learner).get_params()
    assert choose_rank(learner, X[:600], LABELS[:600], cv=2).rank >= 1
    assert learner.get_params() == before
    assert not hasattr(learner, "metric_")


def test_plain_truncation_can_be_scored(choice):
    plain = choose_rank(LEARNER, X, LABELS, refit=False)
    assert plain.table[1].loss > choice.table[1].loss
    assert plain.table[-1] == pytest.approx(choice.table[-1], abs=1e-3)


def test_metric_of_nothing_has_rank_one():
    choice = choose_rank(cf.LinearMetricLearner(alpha=2.0), X, LABELS, cv=2)
    assert choice.rank == 1
    assert choice.table[1].loss == pytest.approx(choice.table[0].loss)


@pytest.mark.parametrize("largest", [1, 5, 16, 17, 100])
def test_candidates_reach_the_largest(largest):
    ranks = candidate_ranks(largest)
    assert ranks[: min(largest, 16) + 1] == list(range(min(largest, 16) + 1))
    assert ranks[-1] == largest
    assert len(ranks) <= 30
    assert np.all(np.diff(ranks) > 0)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"rule": "aic"}, "rule must be one of .*got 'aic'"),
        ({"scale": "feet"}, "scale must be .*got 'feet'"),
        ({"cv": 1}, "at least 2 folds"),
        ({"y": np.where(np.arange(3000) == 0, 1, -1)}, "2 pairs of each class; .* 1 of the rarer"),
    ],
    ids=str,
)
def test_bad_input_is_named(arguments, rule):
    with pytest.raises(ValueError, match=rule):
        choose_rank(LEARNER, **{"X": X, "y": LABELS, **arguments})


def test_a_search_has_no_rank_to_choose():
    with pytest.raises(TypeError, match=r"needs a LinearMetricLearner; got LinearMetricLearnerCV.* best_estimator_"):
        choose_rank(cf.LinearMetricLearnerCV(), X, LABELS)
