"""Judgements: what is read of them, which count, and how they are taken apart."""

import dataclasses

import array_api_strict
import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import KFold, StratifiedGroupKFold, StratifiedKFold

import closefar as cf
from closefar.judgements import Columns, Judgements, PairGroupKFold, Sides, check_pairs, divide_points, split_judgements
from closefar.judgements.checks import check_class_weights, check_weights, column_of_labels, find_sides
from closefar.judgements.tuples import names_of_frame
from paper_estimator import PAPER

RNG = np.random.default_rng(0)
PAIRS = RNG.standard_normal((8, 2, 3))
LABELS = np.array([1, -1, 1, 1, -1, -1, 1, 1])
WEIGHTS = np.array([1.0, 2.0, 0.0, 1.0, 3.0, 0.0, 1.0, 2.0])


@pytest.fixture
def judgements():
    return Judgements.read(cf.LinearMetricLearner(**PAPER), PAIRS, LABELS, WEIGHTS)


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
    plain = Judgements.read(cf.LinearMetricLearner(**PAPER), PAIRS[:, 0], LABELS)
    assert not plain.are_pairs
    assert plain.sample_weight is None
    np.testing.assert_array_equal(plain.weights, 1.0)
    assert repr(judgements) == "Judgements(8 of 3 columns, 5 far)"


@pytest.mark.parametrize("thing", [Judgements.of_signs(PAIRS, LABELS), Sides(np.array([0, 1])), Columns(3)], ids=type)
def test_what_was_read_can_not_be_changed(thing):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(thing, dataclasses.fields(thing)[0].name, None)
    assert thing in {thing}


@pytest.mark.parametrize(("n_far", "n_rarer"), [(0, 0), (1, 1), (4, 4), (6, 2), (8, 0)])
def test_the_rarer_label_is_counted(n_far, n_rarer):
    assert Judgements.of_signs(PAIRS, np.where(np.arange(8) < n_far, 1.0, -1.0)).n_rarer == n_rarer


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
    for seed in range(20):
        assert len(np.unique(judgements.sample(7, seed).numbers)) == 7


def test_class_weights(judgements):
    doubled = judgements.weighted({1: 2.0, -1: 1.0})
    np.testing.assert_array_equal(doubled.weights, np.where(LABELS == 1, 2.0, 1.0) * WEIGHTS)
    np.testing.assert_array_equal(judgements.weighted(None).weights, WEIGHTS)
    balanced = judgements.weighted("balanced").weights
    np.testing.assert_allclose(balanced, WEIGHTS * np.where(LABELS == 1, 8 / (2 * 5), 8 / (2 * 3)))
    np.testing.assert_array_equal(check_class_weights({1: 0.0, -1: 1.0}, LABELS), LABELS == -1)
    with pytest.raises(ValueError, match="class_weight must be >= 0"):
        judgements.weighted({1: -1.0, -1: 1.0})


def test_weights_are_one_number_each_or_one_for_all():
    np.testing.assert_array_equal(check_weights(None, 3), np.ones(3))
    np.testing.assert_array_equal(check_weights(0.5, 3), np.full(3, 0.5))
    np.testing.assert_array_equal(check_weights([0, 0, 0.5], 3), [0.0, 0.0, 0.5])
    np.testing.assert_array_equal(check_weights(array_api_strict.asarray([1.0, 2.0]), 2), [1.0, 2.0])
    assert check_weights([], 0).shape == (0,)
    for wrong in ([1.0], [[1.0, 1.0]], [1.0, 1.0, 1.0]):
        with pytest.raises(ValueError, match=r"one number per pair; got shape .* for 2 pairs"):
            check_weights(wrong, 2)
    for wrong, rule in (([1.0, -0.1], "must be >= 0; got -0.1"), ([0.0, 0.0], "at least one non-zero number")):
        with pytest.raises(ValueError, match=rule):
            check_weights(wrong, 2)


@pytest.mark.parametrize(("of", "label"), [(1, "1"), (-1, "-1")])
def test_both_classes_must_count(judgements, of, label):
    judgements.check_both_count()
    with pytest.raises(ValueError, match=f"every pair of class {label} has weight 0"):
        judgements.with_weights(np.where(of == LABELS, 0.0, 1.0)).check_both_count()
    judgements.with_weights(np.where(of == LABELS, 1e-3, 1.0)).check_both_count()
    with pytest.raises(ValueError, match=rf"got no pairs of class {label}\. Add"):
        judgements.take(np.flatnonzero(of != LABELS)).check_both_count()


def test_labels_of_the_fit_only(judgements):
    more = Judgements.read(Columns(3), PAIRS[:2], [1, -1], sides=judgements.sides)
    np.testing.assert_array_equal(more.is_far, [True, False])
    one_class = Judgements.read(Columns(3), PAIRS[:2], [1, 1], sides=judgements.sides)
    assert one_class.n_rarer == 0
    with pytest.raises(ValueError, match=r"labels must be those of the fit, -1 and 1; 1 of \d+ are not, such as 0"):
        Judgements.read(Columns(3), PAIRS[:2], [1, 0], sides=judgements.sides)
    with pytest.raises(ValueError, match="pairs must have the 4 columns that the learner was fitted with; got 3"):
        Judgements.read(Columns(4), PAIRS[:2], [1, -1], sides=judgements.sides)


def test_signs_are_plus_and_minus_one():
    signed = Judgements.of_signs(PAIRS, LABELS.astype(float), WEIGHTS)
    np.testing.assert_array_equal(signed.signs, LABELS)
    assert (signed.sides.close, signed.sides.far) == (-1.0, 1.0)
    with pytest.raises(ValueError, match=r"signs must be \+1 \(far\) or -1 \(close\)"):
        Judgements.of_signs(PAIRS, np.zeros(8))
    with pytest.raises(ValueError, match=r"or -1 \(close\); got -0.5\."):
        Judgements.of_signs(PAIRS[:3], [1.0, -1.0, -0.5])
    with pytest.raises(ValueError, match=r"one per pair; got shape \(7,\) for 8 pairs"):
        Judgements.of_signs(PAIRS, LABELS[1:])


def test_sides():
    last = Sides(np.array(["a", "b"]))
    assert (last.close, last.far) == ("a", "b")
    first = Sides(np.array(["a", "b"]), far_is_last=False)
    assert (first.close, first.far) == ("b", "a")
    for close, far in (("x", "y"), ("y", "x")):
        sides = Sides.of(close, far)
        assert (sides.close, sides.far) == (close, far)
        assert sides.classes.tolist() == ["x", "y"]


@pytest.mark.parametrize("labels", [[0, 1], [False, True], [2.0, 7.0], ["close", "far"], ["CLOSE", "Far"]], ids=str)
def test_the_label_that_sorts_last_is_far(labels):
    sides = find_sides(np.array(labels[::-1] * 2), None)
    assert (sides.close, sides.far) == tuple(labels)
    assert find_sides(np.array(labels), labels[0]).far == labels[0]
    assert find_sides(np.array(labels), labels[1]).far == labels[1]


@pytest.mark.parametrize("labels", [["a", "b"], ["close", "further"], ["afar", "far"]])
@pytest.mark.parametrize("kind", [None, object])
def test_words_that_say_nothing_warn(labels, kind):
    with pytest.warns(UserWarning, match=f"labels are '{labels[0]}' and '{labels[1]}': the last one is taken as far"):
        find_sides(np.array(labels, dtype=kind), None)


@pytest.mark.parametrize("labels", [[0, 1, 2], [0.0, 1.0, 2.0], ["a", "b", "c"], [5, 5, 5], ["a", "a", "a"]], ids=str)
def test_other_than_two_labels_are_refused(labels):
    with pytest.raises(ValueError, match=r"one for close and one for far; got 3|got one class only"):
        find_sides(np.array(labels), None)
    with pytest.raises(ValueError, match="continuous"):
        find_sides(np.array([0.5, 1.5]), None)


def test_a_column_of_labels_is_of_any_library():
    for labels in (LABELS.tolist(), array_api_strict.asarray(LABELS), LABELS[:, None]):
        np.testing.assert_array_equal(column_of_labels(labels, 8), LABELS)


def test_data_may_have_other_columns(judgements):
    assert judgements.with_data(np.zeros((8, 2))).n_columns == 2


def test_columns_remember_names():
    class Seen:
        n_features_in_ = 2
        feature_names_in_ = np.array(["x", "y"], dtype=object)

    assert Columns.of(Seen()).names == ("x", "y")
    named = Columns.of(Seen(), ["p", "q"])
    assert named.names == ("p", "q")
    assert named.names_in_data == ("x", "y")
    assert Columns(3).names is None
    assert Columns.of(Columns(2)) == Columns(2)
    assert Columns.of(Columns(2), ["p", "q"]) == Columns(2, ("p", "q"))
    with pytest.raises(ValueError, match="a feature name for each of the 2 columns; got 3"):
        Columns.of(Seen(), ["p", "q", "r"])


def test_names_of_columns_are_compared_where_all_are_words():
    named, nameless = Columns(2, names_in_data=("x", "y")), Columns(2)
    rows = np.zeros((1, 2))
    named.check_names(names_of_frame(pd.DataFrame(rows, columns=["x", "y"])))
    for columns in ([0, 1], ["x", 1]):
        assert names_of_frame(pd.DataFrame(rows, columns=columns)) is None
    nameless.check_names(None)
    with pytest.warns(UserWarning, match="X has no feature names, but the learner was fitted with") as caught:
        named.check_names(None)
    assert caught[0].filename == __file__
    assert names_of_frame(rows) is None
    assert names_of_frame(pd.DataFrame(rows[:, :0])) is None


# Arrays of other libraries and rows that are no array


class Source:
    """Rows that are no array."""

    def __init__(self, *shape):
        self.shape = shape

    def take_rows(self, where):
        return np.zeros((len(where), *self.shape[1:]))


@pytest.mark.parametrize("make", [lambda *shape: array_api_strict.zeros(shape), Source], ids=["library", "source"])
@pytest.mark.parametrize(("fitting", "least"), [(True, 2), (False, 1)])
def test_other_rows_are_counted_and_stay_what_they_are(make, fitting, least):
    columns = cf.LinearMetricLearner(**PAPER) if fitting else Columns(1)
    rows = make(least, 1)
    assert check_pairs(columns, rows, fitting=fitting) is rows
    assert columns.n_features_in_ == 1
    with pytest.raises(ValueError, match=f"at least {least} pairs?; got {least - 1}"):
        check_pairs(columns, make(least - 1, 1), fitting=fitting)
    with pytest.raises(ValueError, match="at least one column"):
        check_pairs(columns, make(least, 0), fitting=fitting)
    if not fitting:
        with pytest.raises(ValueError, match="the 1 columns that the learner was fitted with; got 2"):
            check_pairs(columns, make(least, 2), fitting=fitting)


@pytest.mark.parametrize("shape", [(3,), (3, 1, 2), (3, 3, 2), (3, 2, 0), (3, 2, 2, 2)], ids=str)
def test_arrays_of_other_libraries_of_no_such_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"\(n, 2, d\)"):
        check_pairs(Columns(2), array_api_strict.ones(shape), fitting=False)


@pytest.mark.parametrize("kind", ["bool", "int8", "uint64", "float32", "float64", "complex128"])
def test_numbers_of_other_libraries_become_floats(kind):
    given = array_api_strict.asarray(np.array([[0, 1], [1, 1]]).astype(kind))
    if kind == "complex128":
        with pytest.raises(ValueError, match="columns must hold real numbers"):
            check_pairs(Columns(2), given, fitting=False)
    else:
        checked = check_pairs(Columns(2), given, fitting=False)
        assert str(checked.dtype).endswith("float32" if kind == "float32" else "float64")
        np.testing.assert_array_equal(np.asarray(checked), [[0.0, 1.0], [1.0, 1.0]])


@pytest.mark.parametrize("row", [0, (1 << 16) - 1, 1 << 16, (1 << 17) + 1])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_number_that_is_none_is_found_in_every_block_of_rows(row, value):
    rows = np.zeros(((1 << 17) + 2, 1))
    check_pairs(Columns(1), array_api_strict.asarray(rows), fitting=False)
    rows[row] = value
    with pytest.raises(ValueError, match="X must hold finite numbers"):
        check_pairs(Columns(1), array_api_strict.asarray(rows), fitting=False)


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
    unshuffled = StratifiedGroupKFold(3).split(nothing, judgements.is_far, groups)
    same(split_judgements(3, judgements, groups=groups), unshuffled)
    by_points = PairGroupKFold(3, random_state=0).split(nothing, judgements.is_far, ends)
    same(split_judgements(3, judgements, groups=ends), by_points)


def stars(*sizes):
    """The ids of pairs: of each star, its centre with each of its ends."""
    centre = np.repeat(np.arange(len(sizes)), sizes)
    return np.column_stack([centre, len(sizes) + np.arange(len(centre))])


def held_out(folds, ids):
    return [test.tolist() for _, test in folds.split(ids, groups=ids)]


@pytest.mark.parametrize(
    ("n_splits", "sizes", "is_divided"),
    [
        (2, [3, 1], False),
        (2, [4, 1], True),
        (3, [3, 3, 3], False),
        (3, [3, 3], True),
        (3, [6, 3, 3], False),
        (3, [7, 3, 3], True),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_linked_points_are_divided_where_they_are_too_many(n_splits, sizes, is_divided, seed):
    ids = stars(*sizes)
    part, is_apart = divide_points(ids, n_splits, np.random.default_rng(seed))
    parts = part[ids]
    assert set(parts.ravel().tolist()) == set(range(n_splits))
    assert np.any(parts[:, 0] != parts[:, 1]) == is_divided != is_apart


@pytest.mark.parametrize("sizes", [[1, 1, 1, 1, 4], [1, 1, 2, 4, 8], [1, 2, 1, 3, 1]])
@pytest.mark.parametrize("settings", [{"shuffle": False}, {"random_state": 0}, {"random_state": 1}], ids=str)
def test_heavy_groups_are_placed_first_so_that_folds_are_even(sizes, settings):
    assert [len(test) for test in held_out(PairGroupKFold(2, **settings), stars(*sizes))] == [sum(sizes) / 2] * 2


@pytest.mark.parametrize("seed", range(3))
def test_groups_go_where_a_heavy_point_is_not(seed):
    ids = stars(1, 1, 7)
    part, _ = divide_points(ids, 2, np.random.default_rng(seed))
    centre, others = ids[-1, 0], ids[:2].ravel()
    assert np.all(part[others] != part[centre])
    np.testing.assert_array_equal(np.bincount(part[ids].ravel()), [9, 9])


def test_a_fold_may_be_one_pair():
    assert held_out(PairGroupKFold(2, shuffle=False), stars(1, 1)) == [[0], [1]]
    with pytest.raises(ValueError, match="needs pairs; the train side of split 0 of 2 has 0 of 1 pairs"):
        held_out(PairGroupKFold(2, shuffle=False), stars(1))


@pytest.mark.parametrize("n_splits", [1, 0, -3, 2.0, 5.5, "5", None])
def test_there_are_two_folds_or_more(n_splits):
    assert PairGroupKFold(np.int64(2)).get_n_splits() == 2
    with pytest.raises(ValueError, match="n_splits must be a whole number >= 2; got"):
        PairGroupKFold(n_splits)


def test_only_shuffled_folds_are_random():
    ids = stars(*[1] * 12)
    assert held_out(PairGroupKFold(3, shuffle=False), ids) == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]
    drawn = [held_out(PairGroupKFold(3, random_state=seed), ids) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert PairGroupKFold().shuffle
    assert len(held_out(PairGroupKFold(), ids)) == 5


@pytest.mark.parametrize("kind", [int, float, str, object])
def test_points_have_ids_of_any_kind(kind):
    ids, folds = 5 * stars(2, 1, 1), PairGroupKFold(2, shuffle=False)
    assert held_out(folds, ids.astype(kind)) == held_out(folds, ids)


def test_points_have_ids_of_several_kinds():
    ids, folds = stars(2, 1, 1), PairGroupKFold(2, shuffle=False)
    names = {0: "centre", 1: 2.5, 2: ("pair", 1)}
    mixed = np.empty(ids.shape, dtype=object)
    mixed.ravel()[:] = [names.get(number, number) for number in ids.ravel().tolist()]
    assert held_out(folds, mixed) == held_out(folds, ids)


@pytest.mark.parametrize("missing", [None, np.nan])
def test_every_point_has_an_id(missing):
    with pytest.raises(ValueError, match="groups must hold the id of each point; some are missing"):
        PairGroupKFold(2).split(np.zeros((2, 1)), groups=np.array([[1, 2], [3, missing]], dtype=object))


def test_both_sides_of_a_split_need_both_labels():
    ids = stars(1, 1, 1, 1)
    folds = PairGroupKFold(2, shuffle=False)
    assert len(list(folds.split(ids, [1, 1, 0, 0], ids))) == 2
    for labels, side in (([1, 0, 0, 0], "train"), ([0, 1, 0, 0], "test")):
        with pytest.raises(
            ValueError, match=f"of both classes; the {side} side of split 0 of 2 has 2 of 4 pairs and one"
        ):
            folds.split(ids, labels, ids)


def test_splitters_and_lists_are_taken_as_they_are():
    judgements = many()
    same(split_judgements(KFold(5), judgements), KFold(5).split(np.zeros((60, 1))))
    by_hand = [(np.arange(30), np.arange(30, 60)), (np.arange(30, 60), np.arange(30))]
    same(split_judgements(by_hand, judgements), by_hand)
    masks = [(np.arange(60) < 20, np.arange(60) >= 20)]
    same(split_judgements(masks, judgements), [(np.arange(20), np.arange(20, 60))])


def test_the_last_label_is_far_unless_said_otherwise():
    with pytest.warns(UserWarning, match="the last one is taken as far"):
        words = Judgements.read(cf.LinearMetricLearner(**PAPER), PAIRS, np.where(LABELS == 1, "b", "a"))
    with pytest.warns(UserWarning, match="the last one is taken as far") as caught:
        cf.LinearMetricLearner(alpha=0.1, prior="zero", flip_rate=0.0).fit(PAIRS, words.labels)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(words.is_far, LABELS == 1)
    turned = Judgements.read(cf.LinearMetricLearner(**PAPER), PAIRS, np.where(LABELS == 1, "b", "a"), far_label="a")
    np.testing.assert_array_equal(turned.is_far, LABELS == -1)
    assert (
        cf.LinearMetricLearner(far_label="a", alpha=0.1, prior="zero", flip_rate=0.0)
        .fit(PAIRS, turned.labels)
        .far_label_
        == "a"
    )


def test_questions_want_the_columns_of_the_fit():
    frame = pd.DataFrame(PAIRS[:, 0], columns=["x", "y", "z"])
    fit = cf.LinearMetricLearner(alpha=0.1, prior="zero", flip_rate=0.0).fit(frame, LABELS).fit_
    assert len(fit.read(frame, LABELS)) == 8
    with pytest.warns(UserWarning, match="X has no feature names, but the learner was fitted with feature names"):
        assert len(fit.read(PAIRS[:, 0], LABELS)) == 8
    nameless = cf.LinearMetricLearner(alpha=0.1, prior="zero", flip_rate=0.0).fit(PAIRS[:, 0], LABELS).fit_
    with pytest.warns(UserWarning, match="X has feature names, but the learner was fitted without feature names"):
        assert len(nameless.read(frame, LABELS)) == 8
    for other in (frame[["y", "x", "z"]], frame.rename(columns={"x": "w"})):
        with pytest.raises(ValueError, match=r"those of the fit, in its order, \['x', 'y', 'z'\]; got"):
            fit.read(other, LABELS)
    with pytest.raises(ValueError, match="pairs must have the 3 columns that the learner was fitted with; got 2"):
        nameless.read(PAIRS[:, 0, :2], LABELS)
    with pytest.raises(ValueError, match="a minimum of 1 is required by the learner"):
        nameless.read(PAIRS[:0, 0], [])
