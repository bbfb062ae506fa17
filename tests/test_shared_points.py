"""Points that pairs share are found in the data, and equal rows of few values are not taken for them."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

import closefar as cf
from closefar.judgements import (
    Judgements,
    find_points,
    most_folds,
    resolve_folds,
    resolve_groups,
    share_points,
    variance_of_sum,
)
from closefar.rows import rows_of

RNG_SEED = 0


def draw(points, n, seed=RNG_SEED):
    return points[np.random.default_rng(seed).integers(len(points), size=(n, 2))]


def same_partition(left, right):
    """Whether two arrays of ids say the same of which are equal."""
    couples = np.unique(np.column_stack([np.ravel(left), np.ravel(right)]), axis=0)
    return len(couples) == len(np.unique(left)) == len(np.unique(right))


@pytest.mark.parametrize("d", [1, 2, 5, 30])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_shared_points_are_found(d, kind):
    rng = np.random.default_rng(d)
    ids = rng.integers(100, size=(400, 2))
    found = find_points(rng.standard_normal((100, d)).astype(kind)[ids])
    assert found.shape == (400, 2)
    assert same_partition(found, ids)


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer, load_digits, load_iris])
def test_points_of_tables_are_found(load):
    points = load().data
    ids = np.random.default_rng(0).integers(len(points), size=(500, 2))
    assert find_points(points[ids]) is not None
    apart = np.random.default_rng(1).permutation(len(points))[: len(points) // 2 * 2].reshape(-1, 2)
    assert find_points(points[apart]) is None


def few_values():
    rng = np.random.default_rng(3)
    common = rng.standard_normal((2000, 2, 1))
    yield "continuous", rng.standard_normal((300, 2, 3))
    yield "one 0/1 column", rng.integers(0, 2, (300, 2, 1))
    yield "0/1 columns", rng.integers(0, 2, (300, 2, 6))
    yield "rare ones", rng.uniform(size=(2000, 2, 30)) < 0.03
    yield "0/1 columns that depend on each other", 3.0 * common + rng.standard_normal((2000, 2, 30)) > 0
    yield "answers from 1 to 5", np.round(np.clip(common + rng.standard_normal((2000, 2, 4)), -2, 2))
    yield "ages", rng.integers(18, 90, (500, 2, 1))
    yield "ages in other units", (rng.integers(18, 90, (500, 2, 1)) - 40.0) / 17.3
    yield "one decimal", np.round(rng.standard_normal((2000, 2, 2)), 1)
    yield "one category", np.eye(20)[rng.integers(0, 20, (1000, 2))]


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in few_values()])
def test_equal_rows_of_few_values_are_not_one_point(data):
    assert find_points(np.asarray(data, dtype=float)) is None


def test_minus_zero_is_zero():
    points = np.maximum(np.random.default_rng(0).standard_normal((50, 6)), 0.0)
    points[:, 0] = np.random.default_rng(1).standard_normal(50)
    pairs = draw(points, 200)
    turned = pairs.copy()
    turned[turned == 0] = -0.0
    assert same_partition(find_points(np.concatenate([pairs, turned])), find_points(np.concatenate([pairs, pairs])))


def test_columns_that_are_often_zero():
    rng = np.random.default_rng(0)
    assert find_points(draw(np.maximum(rng.standard_normal((60, 3)), 0.0), 300)) is not None
    assert find_points(np.maximum(rng.standard_normal((300, 2, 3)), 0.0)) is None


def test_a_record_that_is_there_twice_is_no_matter():
    pairs = np.random.default_rng(0).standard_normal((500, 2, 3))
    pairs[7, 1] = pairs[100, 0]
    assert find_points(pairs) is None
    assert find_points(np.repeat(pairs[:50], 2, axis=0)).max() == 99
    itself = pairs.copy()
    itself[:, 1] = itself[:, 0]  # of pairs of a point with itself none shares it with another
    assert find_points(itself) is None


def test_what_shows_no_points_has_none():
    pairs = draw(np.random.default_rng(0).standard_normal((30, 3)), 200)
    assert find_points(pairs[:, 0] - pairs[:, 1]) is None
    assert find_points(rows_of(pairs)) is None


def test_arrays_of_other_libraries():
    xp = pytest.importorskip("array_api_strict")
    pairs = draw(np.random.default_rng(0).standard_normal((30, 3)), 200)
    np.testing.assert_array_equal(find_points(xp.asarray(pairs)), find_points(pairs))
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(find_points(torch.tensor(pairs)), find_points(pairs))


def test_many_pairs_are_sampled():
    points = np.random.default_rng(0).standard_normal((500, 2))
    ids = np.random.default_rng(1).integers(500, size=(40_000, 2))
    assert same_partition(find_points(points[ids]), ids)
    twice = np.repeat(np.random.default_rng(3).standard_normal((20_000, 2, 2)), 2, axis=0)
    assert find_points(twice).max() == 39_999
    assert find_points(np.random.default_rng(2).integers(0, 30, (40_000, 2, 2)).astype(float)) is None


# Groups


def asked_of(pairs):
    """As a question does, on whose caller the warning is put."""
    return resolve_groups(None, pairs)


def test_groups_that_were_given_stay():
    pairs = draw(np.random.default_rng(0).standard_normal((30, 3)), 40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resolve_groups(range(40), pairs).tolist() == list(range(40))
        assert resolve_groups([["a", "b"]] * 40, pairs).shape == (40, 2)
    with pytest.warns(cf.SharedPointsWarning, match="40 pairs have only 28 different points") as caught:
        assert asked_of(pairs).shape == (40, 2)
    assert caught[0].filename == __file__
    mixed = np.array([1, "1", ("a", 2), 1] + ["b"] * 36 + [None], dtype=object)[:40]
    assert resolve_groups(mixed, pairs).tolist() == [0, 1, 2, 0] + [3] * 36
    with pytest.raises(ValueError, match=r"shape \(40, 2\); got shape \(3,\)"):
        resolve_groups([1, 2, 3], pairs)
    for missing in (None, np.nan):
        with pytest.raises(ValueError, match="some are missing"):
            resolve_groups(np.array([missing] + ["a"] * 39, dtype=object), pairs)


def test_groups_of_one_are_no_groups():
    assert not share_points(None)
    assert not share_points(np.arange(10))
    assert not share_points(np.arange(20).reshape(10, 2))
    assert not share_points(np.repeat(np.arange(10), 2).reshape(10, 2))
    assert share_points(np.arange(10) // 2)
    assert share_points(np.array([["a", "b"], ["b", "c"]]))


@pytest.mark.parametrize("columns", [1, 2])
def test_the_variance_of_a_sum_counts_each_couple_once(columns):
    rng = np.random.default_rng(0)
    ids = rng.integers(12, size=(60, columns))
    values = rng.standard_normal(60)
    related = [[bool({*left.tolist()} & {*right.tolist()}) for left in ids] for right in ids]
    expected = max(values @ np.array(related, dtype=float) @ values, values @ values)
    assert variance_of_sum(values, ids if columns == 2 else ids[:, 0]) == pytest.approx(expected)
    assert variance_of_sum(values, None) == values @ values


# Folds


def test_folds_are_as_many_as_the_points_allow():
    rng = np.random.default_rng(0)
    ids = rng.integers(40, size=(300, 2))
    many = Judgements.of_signs(rng.standard_normal((40, 2))[ids], np.where(np.arange(300) % 2, 1.0, -1.0))
    assert most_folds(5, many, ids, seed=0) == 5
    few = many.take(np.arange(12))
    assert 0 <= most_folds(5, few, ids[:12], seed=0) < 5
    hub = np.column_stack([np.zeros(300, dtype=int), np.arange(1, 301)])
    assert most_folds(5, many, hub, seed=0) == 0
    assert most_folds(5, many, np.arange(300) // 100, seed=0) == 3
    assert most_folds(5, many.with_weights(np.where(np.arange(300) < 100, 1.0, 0.0)), np.arange(300) // 100) == 0


def test_points_that_cannot_be_kept_apart():
    rng = np.random.default_rng(0)
    star = np.stack([np.broadcast_to(rng.standard_normal(3), (90, 3)), rng.standard_normal((90, 3))], axis=1)
    judgements = Judgements.of_signs(star, np.where(np.arange(90) % 2, 1.0, -1.0))
    with pytest.warns(cf.SharedPointsWarning, match="folds are by pair, as no two of them"):
        assert resolve_folds(5, judgements, None) == (5, None)
    # The hub is in all of them, and is never held out; the other points are.
    assert cf.LinearMetricLearner().fit(star, judgements.labels).choice_.held_out == "points"
    splits = [(np.arange(60), np.arange(60, 90))]
    assert resolve_folds(splits, judgements, None) == (splits, None)


def test_the_choice_finds_the_points():
    rng = np.random.default_rng(0)
    points, ids = rng.standard_normal((60, 3)), rng.integers(60, size=(400, 2))
    labels = np.where((points[ids[:, 0], 0] - points[ids[:, 1], 0]) ** 2 + rng.logistic(size=400) > 1, 1, -1)
    learner = cf.LinearMetricLearner().fit(points[ids], labels)
    assert learner.choice_.held_out == "points"
    by_ids = cf.LinearMetricLearner().fit(points[ids], labels, groups=find_points(points[ids]))
    assert by_ids.choice_ == learner.choice_
    plain = cf.LinearMetricLearner().fit(points[ids], labels, groups=range(400))
    assert plain.choice_.held_out == "groups"
    assert plain.choice_.table != learner.choice_.table
