"""Judgements: what is read of them, which count, and how they are taken apart."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import KFold, StratifiedGroupKFold, StratifiedKFold

import closefar as cf
from closefar.judgements import Columns, Judgements, PairGroupKFold, Sides, split_judgements

RNG = np.random.default_rng(0)
PAIRS = RNG.standard_normal((8, 2, 3))
LABELS = np.array([1, -1, 1, 1, -1, -1, 1, 1])
WEIGHTS = np.array([1.0, 2.0, 0.0, 1.0, 3.0, 0.0, 1.0, 2.0])


@pytest.fixture
def judgements():
    return Judgements.read(cf.LinearMetricLearner(), PAIRS, LABELS, WEIGHTS)


def test_what_is_read(judgements):
    assert len(judgements) == 8
    assert judgements.n_columns == 3
    assert judgements.are_pairs
    np.testing.assert_array_equal(judgements.is_far, LABELS == 1)
    np.testing.assert_array_equal(judgements.signs, LABELS)
    np.testing.assert_array_equal(judgements.labels, LABELS)
    np.testing.assert_allclose(judgements.shares, WEIGHTS / 10.0)
    np.testing.assert_array_equal(judgements.numbers, np.arange(8))
    assert judgements.n_rarer == 3
    assert judgements.sample_weight is judgements.weights
    assert judgements.mean(np.arange(8.0)) == pytest.approx(WEIGHTS @ np.arange(8) / 10.0)
    plain = Judgements.read(cf.LinearMetricLearner(), PAIRS[:, 0], LABELS)
    assert not plain.are_pairs
    assert plain.sample_weight is None
    np.testing.assert_array_equal(plain.weights, 1.0)


def test_some_of_them(judgements):
    some = judgements.take(np.array([1, 4, 7]))
    np.testing.assert_array_equal(some.data, PAIRS[[1, 4, 7]])
    np.testing.assert_array_equal(some.labels, [-1, -1, 1])
    np.testing.assert_array_equal(some.weights, [2.0, 3.0, 2.0])
    np.testing.assert_array_equal(some.numbers, [1, 4, 7])
    np.testing.assert_array_equal(some.take(np.array([2])).numbers, [7])
    assert judgements.take(np.arange(8)) is judgements
    turned = judgements.take(np.arange(8)[::-1])
    np.testing.assert_array_equal(turned.numbers, np.arange(8)[::-1])
    counted = judgements.counted()
    np.testing.assert_array_equal(counted.numbers, [0, 1, 3, 4, 6, 7])


def test_a_random_sample_keeps_the_order(judgements):
    assert judgements.sample(8, seed=0) is judgements
    some = judgements.sample(5, seed=0)
    assert len(some) == 5
    assert np.all(np.diff(some.numbers) > 0)
    np.testing.assert_array_equal(some.numbers, judgements.sample(5, seed=0).numbers)


def test_class_weights(judgements):
    doubled = judgements.weighted({1: 2.0, -1: 1.0})
    np.testing.assert_array_equal(doubled.weights, np.where(LABELS == 1, 2.0, 1.0) * WEIGHTS)
    np.testing.assert_array_equal(judgements.weighted(None).weights, WEIGHTS)
    balanced = judgements.weighted("balanced").weights
    np.testing.assert_allclose(balanced, WEIGHTS * np.where(LABELS == 1, 8 / (2 * 5), 8 / (2 * 3)))
    with pytest.raises(ValueError, match="class_weight must be >= 0"):
        judgements.weighted({1: -1.0, -1: 1.0})


@pytest.mark.parametrize(("of", "label"), [(1, "1"), (-1, "-1")])
def test_both_classes_must_count(judgements, of, label):
    judgements.check_both_count()
    with pytest.raises(ValueError, match=f"every pair of class {label} has weight 0"):
        judgements.with_weights(np.where(of == LABELS, 0.0, 1.0)).check_both_count()


def test_labels_of_the_fit_only(judgements):
    more = Judgements.read_more(Columns(3), PAIRS[:2], [1, -1], sides=judgements.sides)
    np.testing.assert_array_equal(more.is_far, [True, False])
    one_class = Judgements.read_more(Columns(3), PAIRS[:2], [1, 1], sides=judgements.sides)
    assert one_class.n_rarer == 0
    with pytest.raises(ValueError, match=r"labels must be those of the fit, \[-1, 1\]; got 0"):
        Judgements.read_more(Columns(3), PAIRS[:2], [1, 0], sides=judgements.sides)
    with pytest.raises(ValueError, match="pairs must have the 4 columns that the learner was fitted with; got 3"):
        Judgements.read_more(Columns(4), PAIRS[:2], [1, -1], sides=judgements.sides)


def test_signs_are_plus_and_minus_one():
    signed = Judgements.of_signs(PAIRS, LABELS.astype(float), WEIGHTS)
    np.testing.assert_array_equal(signed.signs, LABELS)
    assert (signed.sides.close, signed.sides.far) == (-1.0, 1.0)
    with pytest.raises(ValueError, match=r"signs must be \+1 \(far\) or -1 \(close\)"):
        Judgements.of_signs(PAIRS, np.zeros(8))


def test_sides():
    last = Sides(np.array(["a", "b"]))
    assert (last.close, last.far) == ("a", "b")
    first = Sides(np.array(["a", "b"]), far_is_last=False)
    assert (first.close, first.far) == ("b", "a")
    for close, far in (("x", "y"), ("y", "x")):
        sides = Sides.of(close, far)
        assert (sides.close, sides.far) == (close, far)
        assert sides.classes.tolist() == ["x", "y"]


def test_the_same_in_other_words(judgements):
    coded = judgements.with_labels(judgements.is_far.astype(int), Sides(np.array([0, 1])))
    np.testing.assert_array_equal(coded.labels, (LABELS == 1).astype(int))
    assert (coded.sides.close, coded.sides.far) == (0, 1)
    np.testing.assert_array_equal(coded.signs, judgements.signs)
    mapped = judgements.in_coordinates(np.zeros((8, 2)))
    assert mapped.n_columns == 2


def test_columns_remember_names():
    class Seen:
        n_features_in_ = 2
        feature_names_in_ = np.array(["x", "y"], dtype=object)

    assert Columns.of(Seen()).names == ("x", "y")
    named = Columns.of(Seen(), ["p", "q"])
    assert named.names == ("p", "q")
    assert named.names_in_data == ("x", "y")
    assert Columns(3).names is None
    with pytest.raises(ValueError, match="a feature name for each of the 2 columns; got 3"):
        Columns.of(Seen(), ["p", "q", "r"])


# Folds


def many(n=60):
    labels = np.where(np.arange(n) % 3 == 0, 1, -1)
    return Judgements.of_signs(np.zeros((n, 1)), labels)


def same(splits, expected):
    for (train, test), (other_train, other_test) in zip(splits, expected, strict=True):
        np.testing.assert_array_equal(train, other_train)
        np.testing.assert_array_equal(test, other_test)


def test_a_number_of_folds_is_stratified():
    judgements = many()
    nothing = np.zeros((60, 1))
    same(split_judgements(4, judgements), StratifiedKFold(4).split(nothing, judgements.is_far))
    shuffled = StratifiedKFold(4, shuffle=True, random_state=3).split(nothing, judgements.is_far)
    same(split_judgements(4, judgements, seed=3), shuffled)


def test_groups_stay_together():
    judgements, groups = many(), np.arange(60) // 4
    nothing = np.zeros((60, 1))
    expected = StratifiedGroupKFold(3, shuffle=True, random_state=1).split(nothing, judgements.is_far, groups)
    same(split_judgements(3, judgements, groups=groups, seed=1), expected)
    ends = np.column_stack([np.arange(60), np.arange(60) + 100])
    by_points = PairGroupKFold(3, random_state=1).split(nothing, judgements.is_far, ends)
    same(split_judgements(3, judgements, groups=ends, seed=1), by_points)


def test_splitters_and_lists_are_taken_as_they_are():
    judgements = many()
    same(split_judgements(KFold(5), judgements), KFold(5).split(np.zeros((60, 1))))
    by_hand = [(np.arange(30), np.arange(30, 60)), (np.arange(30, 60), np.arange(30))]
    same(split_judgements(by_hand, judgements), by_hand)
    masks = [(np.arange(60) < 20, np.arange(60) >= 20)]
    same(split_judgements(masks, judgements), [(np.arange(20), np.arange(20, 60))])


def test_the_last_label_is_far_unless_said_otherwise():
    with pytest.warns(UserWarning, match="the last one is taken as far"):
        words = Judgements.read(cf.LinearMetricLearner(), PAIRS, np.where(LABELS == 1, "b", "a"))
    np.testing.assert_array_equal(words.is_far, LABELS == 1)
    turned = Judgements.read(cf.LinearMetricLearner(), PAIRS, np.where(LABELS == 1, "b", "a"), far_label="a")
    np.testing.assert_array_equal(turned.is_far, LABELS == -1)
    assert cf.LinearMetricLearner(far_label="a", alpha=0.1).fit(PAIRS, turned.labels).far_label_ == "a"


def test_questions_want_the_columns_of_the_fit():
    frame = pd.DataFrame(PAIRS[:, 0], columns=["x", "y", "z"])
    fit = cf.LinearMetricLearner(alpha=0.1).fit(frame, LABELS).fit_
    assert len(fit.read(frame, LABELS)) == 8
    with pytest.warns(UserWarning, match="X has no feature names, but the learner was fitted with feature names"):
        assert len(fit.read(PAIRS[:, 0], LABELS)) == 8
    nameless = cf.LinearMetricLearner(alpha=0.1).fit(PAIRS[:, 0], LABELS).fit_
    with pytest.warns(UserWarning, match="X has feature names, but the learner was fitted without feature names"):
        assert len(nameless.read(frame, LABELS)) == 8
    for other in (frame[["y", "x", "z"]], frame.rename(columns={"x": "w"})):
        with pytest.raises(ValueError, match=r"those of the fit, in its order, \['x', 'y', 'z'\]; got"):
            fit.read(other, LABELS)
    with pytest.raises(ValueError, match="pairs must have the 3 columns that the learner was fitted with; got 2"):
        nameless.read(PAIRS[:, 0, :2], LABELS)
    with pytest.raises(ValueError, match="a minimum of 1 is required by the learner"):
        nameless.read(PAIRS[:0, 0], [])
