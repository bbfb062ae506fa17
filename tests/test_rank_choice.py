"""The choice of the rank: it finds the true one, in any units, and leaves the learner alone."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold

import closefar as cf
from closefar.fitting import RankScore, Settings, candidate_ranks, cross_validate_rank
from closefar.fitting.refits import _n_folds, choose_from, compare_ranks
from closefar.judgements import Judgements, split_judgements
from closefar.questions import choose_rank
from paper_estimator import PAPER

DATA = cf.datasets.make_pairs(3000, 5, metric_eigenvalues=[1.0, 0.5], wrong_share=0.1, random_state=1)
X, LABELS = DATA.pairs[:, 0] - DATA.pairs[:, 1], DATA.labels
LEARNER = cf.LinearMetricLearner(**PAPER)


@pytest.fixture(scope="module")
def choice():
    return choose_rank(LEARNER, X, LABELS)


def same_table(left, right):
    np.testing.assert_allclose(np.array(left.table), np.array(right.table), rtol=1e-9, atol=1e-9)


def test_true_rank_is_found(choice):
    assert choice.rank == 2
    assert cf.LinearMetricLearner(**PAPER).fit(X, LABELS).metric_.rank > 2


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
    assert lines[0].split()[0] == "k"
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
    learner = cf.LinearMetricLearner(far_label="a", **PAPER)
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
    learner = cf.LinearMetricLearner(rank=1, class_weight="balanced", alpha=0.001, prior="zero", flip_rate=0.0)
    before = clone(learner).get_params()
    assert choose_rank(learner, X[:600], LABELS[:600], cv=2).rank >= 1
    assert learner.get_params() == before
    assert not hasattr(learner, "metric_")


def test_plain_truncation_can_be_scored(choice):
    plain = choose_rank(LEARNER, X, LABELS, refit=False)
    assert plain.table[1].loss > choice.table[1].loss
    assert plain.table[-1] == pytest.approx(choice.table[-1], abs=1e-3)


def test_metric_of_nothing_has_rank_one():
    choice = choose_rank(cf.LinearMetricLearner(alpha=2.0, prior="zero", flip_rate=0.0), X, LABELS, cv=2)
    assert choice.rank == 1
    assert choice.table[1].loss == pytest.approx(choice.table[0].loss)


@pytest.mark.parametrize("largest", [1, 5, 16, 17, 100])
def test_candidates_reach_the_largest(largest):
    ranks = candidate_ranks(largest)
    assert ranks[: min(largest, 16) + 1] == list(range(min(largest, 16) + 1))
    assert ranks[-1] == largest
    assert len(ranks) <= 30
    assert np.all(np.diff(ranks) > 0)
    # Beyond 16 each is a fifth larger than the one before, rounded up.
    for smaller, larger in pairwise(ranks[16:-1]):
        assert larger - 1 < 1.2 * smaller <= larger


def round_judgements(n=150):
    """Of two columns that matter alike."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((n, 2))
    far = np.sum(z**2, axis=1) + 0.4 * rng.logistic(size=n) > 1.5
    return Judgements.of_signs(z, np.where(far, 1.0, -1.0), rng.uniform(0.5, 2.0, n))


def test_losses_and_accuracies_are_those_of_held_out_pairs():
    judgements, folds = round_judgements(), list(KFold(3).split(X[:150]))
    z, signs = judgements.data, judgements.signs
    choice = cross_validate_rank(judgements, Settings(verbose=2, **PAPER), cv=folds, refits=False)
    losses, right = np.zeros((3, 150)), np.zeros((3, 150))
    for train, test in folds:
        learner = cf.LinearMetricLearner(**PAPER).fit(z[train], signs[train], judgements.weights[train])
        assert learner.metric_.rank == 2
        for k in range(3):
            metric = learner.metric_.truncate(k)
            margin = metric.squared_distance(z[test]) - metric.threshold
            losses[k, test] = np.logaddexp(0.0, -signs[test] * margin)
            right[k, test] = (margin >= 0) == (signs[test] > 0)
    assert [score.k for score in choice.table] == [0, 1, 2]
    for score in choice.table:
        assert score.loss == pytest.approx(judgements.mean(losses[score.k]))
        assert score.accuracy == pytest.approx(judgements.mean(right[score.k]))


def test_the_table_ends_with_the_largest_rank_that_was_found():
    shrunk = Settings(alpha=2.0, prior="zero", flip_rate=0.0)
    assert [score.k for score in cross_validate_rank(round_judgements(), shrunk, cv=2).table] == [0, 1]


def test_nothing_is_printed_and_the_limits_are_known(capsys):
    judgements = round_judgements()
    plain = cross_validate_rank(judgements, Settings(verbose=2, **PAPER))
    assert capsys.readouterr().err == ""
    options = {"cv": 5, "rule": "one_se", "scale": "data", "refits": True, "random_state": 0}
    assert cross_validate_rank(judgements, Settings(**PAPER), **options) == plain


@pytest.mark.parametrize("least", [1, 2, 3])
def test_ranks_are_compared_pair_by_pair(least):
    rng = np.random.default_rng(2)
    losses, shares = rng.exponential(size=(4, 30)), rng.dirichlet(np.ones(30))
    losses[[0, least]] *= [[0.1], [0.2]]  # rank 0 is there for comparison only
    table = compare_ranks([0, 1, 2, 5], losses, np.array([0.1, 0.2, 0.3, 0.4]), shares)
    means = [sum(row * shares) for row in losses]
    for index, score in enumerate(table):
        excess = means[index] - means[least]
        error = np.sqrt(sum(shares**2 * (losses[index] - losses[least] - excess) ** 2))
        expected = RankScore([0, 1, 2, 5][index], means[index], excess, error, 0.1 * (index + 1))
        assert score == pytest.approx(expected)


@pytest.mark.parametrize(
    ("excess", "one_se", "best"),
    [
        ([0.0, 0.3, 0.11, 0.0], 4, 4),
        ([0.0, 0.3, 0.1, 0.0], 2, 4),
        ([0.0, 0.0, 0.1, 0.2], 1, 1),
        ([0.0, 0.05, 0.0, 0.2], 1, 2),
        ([-0.5, 0.2, 0.0, 0.05], 2, 2),
    ],
)
def test_a_smaller_rank_is_chosen_up_to_one_standard_error(excess, one_se, best):
    table = [RankScore(k, 1.0 + e, e, 0.1, 0.5) for k, e in zip([0, 1, 2, 4], excess, strict=True)]
    assert choose_from(table, "one_se") == one_se
    assert choose_from(table, "best") == best


@pytest.mark.parametrize(("cv", "n_rarer", "n_folds"), [(2, 2, 2), (5, 3, 3), (3, 8, 3), (2, 1, None), (1, 8, None)])
def test_each_fold_has_a_pair_of_each_label(cv, n_rarer, n_folds):
    judgements = Judgements.of_signs(X[:30], np.where(np.arange(30) < n_rarer, 1.0, -1.0))
    if n_folds is None:
        with pytest.raises(ValueError, match="at least 2 folds and 2 pairs of each class"):
            _n_folds(cv, judgements)
        return
    assert _n_folds(cv, judgements) == n_folds
    assert all(len(set(judgements.signs[test])) == 2 for _, test in split_judgements(n_folds, judgements))


@pytest.mark.parametrize("cv", [3, KFold(3)], ids=["folds", "splitter"])
def test_pairs_of_weight_zero_are_left_out(cv):
    counts = np.arange(400) % 8 > 0
    data = X[:400], LABELS[:400]
    if cv == 3:
        left_out = choose_rank(LEARNER, *(values[counts] for values in data), cv=cv)
        same_table(choose_rank(LEARNER, *data, sample_weight=counts * 1.0, cv=cv), left_out)
        return
    wrong = np.where(counts, data[1], -data[1])
    found = [choose_rank(LEARNER, data[0], labels, sample_weight=counts * 1.0, cv=cv) for labels in (data[1], wrong)]
    same_table(*found)


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


def test_points_that_pairs_share_stay_on_one_side():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((80, 3))
    ids = rng.integers(80, size=(600, 2))
    labels = np.where((points[ids[:, 0], 0] - points[ids[:, 1], 0]) ** 2 + rng.logistic(size=600) > 1, 1, -1)
    pairs = points[ids]
    splits = list(cf.PairGroupKFold(5, random_state=0).split(pairs, labels, ids))
    by_hand, given = choose_rank(LEARNER, pairs, labels, cv=splits), choose_rank(LEARNER, pairs, labels, groups=ids)
    with pytest.warns(cf.SharedPointsWarning, match="folds are by point") as caught:
        found = choose_rank(LEARNER, pairs, labels)
    assert [warning.filename for warning in caught] == [__file__]
    assert [score.loss for score in by_hand.table] == [score.loss for score in given.table]
    assert len(found.table) == len(given.table)
    errors = np.array([[score.standard_error for score in choice.table] for choice in (by_hand, given)])
    assert np.all(errors[0] <= errors[1])
    # The learner's own choice warns of nothing, as it holds out points.
    learner = cf.LinearMetricLearner(rank="auto", **PAPER).fit(pairs, labels)
    assert learner.choice_.held_out == "points"
    assert learner.rank_ == learner.choice_.rank == 1


def test_standard_errors_are_by_group():
    losses = np.random.default_rng(0).standard_normal((3, 50))
    once = compare_ranks([0, 1, 2], losses, np.ones(3), np.full(50, 0.02))
    twice = np.repeat(losses, 2, axis=1)
    grouped = compare_ranks([0, 1, 2], twice, np.ones(3), np.full(100, 0.01), np.arange(100) // 2)
    naive = compare_ranks([0, 1, 2], twice, np.ones(3), np.full(100, 0.01))
    for alone, together, apart in zip(once, grouped, naive, strict=True):
        assert together.standard_error == pytest.approx(alone.standard_error)
        assert apart.standard_error == pytest.approx(alone.standard_error / np.sqrt(2.0))
