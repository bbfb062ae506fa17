"""Kinds of judgement: how levels, comparisons and annotators are read, checked, taken, divided and stored."""

import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest

import closefar as cf
from closefar.fitting import Checkpoint, Settings
from closefar.judgements import (
    CodedLabels,
    Judgements,
    Kind,
    find_points,
    most_folds,
    read_annotators,
    resolve_folds,
    resolve_groups,
    split_judgements,
    variance_of_sum,
)
from closefar.judgements.checks import find_levels
from closefar.rows import judged_rows
from paper_estimator import PAPER

RNG = np.random.default_rng(0)
PAIRS = RNG.standard_normal((60, 2, 3))
LEVELS = np.arange(60) % 4 + 1
TRIPLETS = RNG.standard_normal((40, 3, 3))


@dataclass
class Estimator:
    """What learns columns when it is fitted."""

    n_features_in_: int = 3


def graded(given=LEVELS, **options):
    return Judgements.read(Estimator(), PAIRS[: len(given)], given, is_graded=True, **options)


def compared(data=TRIPLETS, y=None, weights=None):
    return Judgements.read_comparisons(Estimator(), data, y, weights, fitting=True)


def mixed(**options):
    return Judgements.read(Estimator(), PAIRS, LEVELS > 2, comparisons=(TRIPLETS, np.where(SIGNS, 1, -1)), **options)


SIGNS = RNG.random(40) < 0.7


# Levels.


def test_levels_are_coded_in_their_order():
    judgements = graded()
    assert judgements.kind is Kind.LEVELS
    assert judgements.n_levels == 4
    assert judgements.codes.tolist() == (LEVELS - 1).tolist()
    assert judgements.sides.classes.tolist() == [1, 2, 3, 4]
    assert judgements.sides.is_graded
    assert (judgements.sides.close, judgements.sides.far) == (1, 4)
    np.testing.assert_array_equal(judgements.is_far, LEVELS >= 2)
    assert judgements.n_rarer == 15
    assert repr(judgements) == "Judgements(60 of 3 columns, 4 levels)"


@pytest.mark.parametrize(
    ("given", "order", "expected"),
    [
        (["low", "high", "mid", "low"], ("low", "mid", "high"), ["low", "mid", "high"]),
        ([3.5, 1.0, 2.0, 1.0], None, [1.0, 2.0, 3.5]),
        ([2, 0, 1, 0], [2, 1, 0], [2, 1, 0]),
        ([True, False, True, True], None, [False, True]),
        (np.array(["b", "a", "b", "a"], dtype=object), ["b", "a"], ["b", "a"]),
        (np.array([2, 1, 2, 3], dtype=object), None, [1, 2, 3]),
        ([2, 1, 2, 3], np.array([3, 1, 2]), [3, 1, 2]),
        (CodedLabels(["b", "unused", "a"], np.array([0, 2, 0, 0])), ["b", "a"], ["b", "a"]),
    ],
)
def test_what_the_order_of_levels_is(given, order, expected):
    judgements = graded(given, levels=order)
    assert judgements.sides.classes.tolist() == expected
    assert judgements.codes.tolist() == [expected.index(value) for value in np.asarray(given).tolist()]


def test_an_ordered_categorical_has_its_order():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed; see the extra test of pyproject.toml")
    kind = pandas.CategoricalDtype(["never", "rarely", "often"], ordered=True)
    words = ["often", "never", "rarely", "never"]
    for given in (pandas.Series(words, dtype=kind), pandas.Categorical(words, dtype=kind)):
        judgements = graded(given)
        assert judgements.sides.classes.tolist() == ["never", "rarely", "often"]
        assert judgements.codes.tolist() == [2, 0, 1, 0]
    unused = pandas.Categorical(words, dtype=pandas.CategoricalDtype([*kind.categories, "always"], ordered=True))
    with pytest.raises(ValueError, match=r"nobody used 'always'.*remove_unused_categories"):
        graded(unused)
    with pytest.raises(ValueError, match=r"words need an order; got 'never', 'often', 'rarely'.*ordered categorical"):
        graded(pandas.Categorical(words))
    with pytest.raises(ValueError, match=r"must have a level; got nan in row 1"):
        graded(pandas.Categorical(["often", None, "rarely", "never"], dtype=kind))


@pytest.mark.parametrize(
    ("given", "order", "message"),
    [
        (["a", "b", "a", "b"], None, r"levels that are words need an order; got 'a', 'b'\. Set levels"),
        ([1, 2, 1, 2], [1, 2, 3], r"each level must have been used; nobody used 3\. Leave it out of levels"),
        ([1, 2, 1, 2], [0, 1, 2, 3], r"nobody used 0, 3\. Leave them out"),
        (["a", "b", "z", "b"], ["a", "b"], r"one of 'a', 'b'; got 'z' in row 2\. Correct it, add it to the levels"),
        (["1", "2", "1", "2"], [1, 2], r"each level must have been used; nobody used 1, 2"),
        ([1.0, np.nan, 2.0, 1.0], None, r"must have a level; got nan in row 1\. Fill it in"),
        ([1, None, 2, 1], None, r"must have a level; got None in row 1"),
        (["a", "", "b", "a"], ["a", "b"], r"must have a level; got '' in row 1"),
        ([1.0, np.inf, 2.0, 1.0], None, r"levels must be finite numbers; got inf"),
        ([1, 2, 1, 2], [], r"at least two levels.*; got \[\]"),
        ([1, 1, 1, 1], None, r"at least two levels.*; got 1 alone"),
        ([1, 2, 1, 2], [1, 2, 1], r"levels must be different; got 1 twice"),
        ([1, 2, 1, 2], {1, 2}, r"levels must be a list, from the closest to the farthest level; got {1, 2}"),
        ([1, 2, 1, 2], "12", r"levels must be a list, from the closest to the farthest level; got '12'"),
        ([1, 2, 3], None, r"one label per pair; got 3 labels for 4 pairs"),
    ],
)
def test_levels_that_are_refused(given, order, message):
    with pytest.raises(ValueError, match=message):
        Judgements.read(Estimator(), PAIRS[:4], given, is_graded=True, levels=order)


def test_too_many_levels_are_refused():
    for n_levels, n_pairs in ((101, 10_000), (30, 119), (11, 11)):
        labels = np.arange(n_pairs) % n_levels / 2.0
        with pytest.raises(ValueError, match=rf"got {n_levels} levels for {n_pairs} pairs, such as 0.0, 0.5.*Bin them"):
            find_levels(None, labels)
    assert len(find_levels(None, np.arange(120) % 30).classes) == 30


def test_more_levels_must_be_those_of_the_fit():
    sides = graded().sides
    more = Judgements.read(Estimator(), PAIRS[:3], [4, 1, 4], sides=sides)
    assert more.codes.tolist() == [3, 0, 3]  # new pairs need not have all levels
    assert more.kind is Kind.LEVELS
    with pytest.raises(ValueError, match=r"each level must be one of 1, 2, 3, 4; got 7 in row 1"):
        Judgements.read(Estimator(), PAIRS[:3], [4, 7, 4], sides=sides)


def test_a_dichotomy_is_close_or_far():
    judgements = graded(annotators=np.arange(60) % 5)
    upper = judgements.dichotomy(2)
    assert upper.kind is Kind.CLOSE_FAR
    np.testing.assert_array_equal(upper.is_far, LEVELS >= 3)
    assert set(upper.labels.tolist()) == {"< 3", ">= 3"}
    assert (upper.sides.close, upper.sides.far) == ("< 3", ">= 3")
    assert upper.annotators is judgements.annotators
    assert upper.data is judgements.data


def test_every_level_must_count():
    weights = np.where(LEVELS == 3, 0.0, 1.0)
    judgements = graded(sample_weight=weights)
    with pytest.raises(ValueError, match=r"each level.* needs a pair of positive weight; every pair of level 3 has"):
        judgements.check_both_count()
    with pytest.raises(ValueError, match=r"pairs of each level; got no pairs of level 3"):
        judgements.take(np.flatnonzero(LEVELS != 3)).check_both_count()
    graded().check_both_count()


# Comparisons.


def test_comparisons_are_as_given_unless_they_are_reversed():
    judgements = compared()
    assert judgements.kind is Kind.COMPARISONS
    assert judgements.is_far.all()
    assert len(judgements) == 40
    assert not judgements.are_pairs
    judgements.check_both_count()  # all answers may be the same
    assert repr(judgements) == "Judgements(40 of 3 columns, comparisons)"
    for y in (np.where(SIGNS, 1, -1), SIGNS, SIGNS.astype(int), np.where(SIGNS, 1.0, -1.0).tolist()):
        turned = compared(y=y)
        np.testing.assert_array_equal(turned.is_far, SIGNS)
        np.testing.assert_array_equal(turned.signs, np.where(SIGNS, 1, -1))
        assert turned.sides.far == 1
    assert compared(RNG.standard_normal((9, 4, 3))).kind is Kind.COMPARISONS


@pytest.mark.parametrize(
    ("data", "y", "message"),
    [
        (
            PAIRS,
            None,
            r"shape \(n, 3, d\), triplets \(a, b, c\), or \(n, 4, d\).*got \(60, 2, 3\)\. Pairs are judged by",
        ),
        (PAIRS[:, 0], None, r"got \(60, 3\)\. Stack their points"),
        (RNG.standard_normal((5, 5, 3)), None, r"got \(5, 5, 3\)"),
        (cf.Tuples(PAIRS[:, 0], [[0, 1], [1, 2]]), None, r"got \(2, 2, 3\)"),
        (TRIPLETS, np.zeros(40) + 2.0, r"answers must be \+1.*got 2.0 in row 0"),
        (TRIPLETS, np.where(np.arange(40) == 7, 0, np.where(SIGNS, 1, -1)), r"got 0 in row 7. Leave that row out"),
        (TRIPLETS, np.where(np.arange(40) == 7, np.nan, 1.0), r"got nan in row 7. Leave that row out"),
        (TRIPLETS, ["yes"] * 40, r"got 'yes' in row 0"),
        (TRIPLETS, [1, -1], r"one answer per comparison; got 2 answers for 40 comparisons"),
        ([[[1.0, 2.0]], [[1.0]]], None, r"got a list of parts of different shapes"),
        (TRIPLETS + 1j, None, "Complex data not supported"),
        (TRIPLETS[:1], None, r"at least 2 comparisons; got 1"),
        (np.where(np.arange(40)[:, None, None] == 3, np.nan, TRIPLETS), None, "Input comparisons contains NaN"),
    ],
)
def test_comparisons_that_are_refused(data, y, message):
    with pytest.raises(ValueError, match=message):
        compared(data, y)


def test_a_weight_is_that_of_a_comparison():
    with pytest.raises(ValueError, match=r"one number per comparison; got shape \(3,\) for 40 comparisons"):
        compared(weights=[1.0, 2.0, 3.0])


@pytest.mark.parametrize("library", ["numpy", "array_api_strict", "torch"])
def test_both_sides_of_a_comparison_must_differ(library):
    xp = pytest.importorskip(library, reason=f"{library} is not installed; see the extra test-torch of pyproject.toml")
    for turned in (False, True):
        quadruplets = RNG.standard_normal((70_000, 4, 2))
        quadruplets[66_000, 2:] = quadruplets[66_000, 1::-1] if turned else quadruplets[66_000, :2]
        with pytest.raises(ValueError, match=r"two sides of a comparison must differ; those of row 66000"):
            check(xp.asarray(quadruplets))
    triplets = TRIPLETS.copy()
    triplets[11, 2] = triplets[11, 1]
    with pytest.raises(ValueError, match=r"those of row 11 are the same two points"):
        check(xp.asarray(triplets))
    triplets[20:30, 2] = triplets[20:30, 1]
    with pytest.raises(ValueError, match=r"those of rows 11, 20, 21, 22, 23 and 6 more are the same.*those rows out"):
        check(xp.asarray(triplets))
    triplets = TRIPLETS.copy()
    triplets[11, 2] = triplets[11, 0]  # a is nearer to b than to itself: wrong, but a statement
    check(xp.asarray(triplets))


def check(data):
    return Judgements.read_comparisons(Estimator(int(data.shape[-1])), data, fitting=True)


def test_both_sides_of_a_comparison_by_index_must_differ():
    points = np.vstack([PAIRS[:5, 0], PAIRS[1, 0]])
    for index in ([[0, 1, 2], [0, 3, 3]], [[0, 1, 2, 3], [1, 2, 2, 1]], [[0, 1, 2], [0, 1, 5]]):
        with pytest.raises(ValueError, match=r"those of row 1 are the same"):
            compared(cf.Tuples(points, index))


# Annotators.


def test_annotators_are_numbered_in_their_order():
    found = read_annotators(["bob", "ann", "bob", "cy"], 4)
    assert found.names == ("ann", "bob", "cy")
    assert found.codes.tolist() == [1, 0, 1, 2]
    assert found.counts.tolist() == [1, 2, 1]
    assert found.take(np.array([3, 1])).codes.tolist() == [2, 0]
    assert read_annotators(np.array([7, 3, 7]), 3).names == (3, 7)
    assert read_annotators([("a", 1), ("a", 0)], 2).names == (("a", 0), ("a", 1))
    assert read_annotators([3, "b", 1], 3).names == (1, 3, "b")


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a", None, "b"], r"id of its annotator; got None in row 1\. Fill it in"),
        (["a", "b", float("nan")], r"got nan in row 2"),
        (np.array([1.0, np.nan, 2.0]), r"got nan in row 1"),
        (["a", " ", "b"], r"got ' ' in row 1"),
        (["a", "b"], r"one annotator id per pair; got 2 ids for 3 pairs"),
        ("ann", r"in an array or a list; got 'ann'"),
        (7, r"in an array or a list; got 7"),
        ({"a", "b", "c"}, r"in an array or a list; got a set"),
        (np.zeros((3, 2)), r"one axis; got shape \(3, 2\)"),
        ([["a"], ["b"], ["c"]], r"must be hashable.*Convert them to strings"),
    ],
)
def test_annotators_that_are_refused(ids, message):
    with pytest.raises(ValueError, match=message):
        read_annotators(ids, 3)


def test_annotators_must_be_those_of_the_fit():
    judgements = graded(annotators=np.repeat(["ann", "bob"], 30))
    names = judgements.annotators.names
    options = {"sides": judgements.sides, "known_annotators": names}
    more = Judgements.read(Estimator(), PAIRS[:2], [1, 2], annotators=["bob", "bob"], **options)
    assert more.annotators.names == ("ann", "bob")
    assert more.annotators.codes.tolist() == [1, 1]
    with pytest.raises(ValueError, match=r"annotators must be those of the fit, 'ann', 'bob'; got 'cy' in row 1"):
        Judgements.read(Estimator(), PAIRS[:2], [1, 2], annotators=["bob", "cy"], **options)


# What travels along.


def test_what_belongs_to_a_judgement_is_taken_with_it():
    judgements = graded(annotators=np.arange(60) % 7, comparisons=TRIPLETS)
    where = np.array([5, 59, 0])
    taken = judgements.take(where)
    assert taken.codes.tolist() == (LEVELS[where] - 1).tolist()
    assert taken.annotators.codes.tolist() == (where % 7).tolist()
    assert taken.comparisons is judgements.comparisons
    assert judgements.sample(10, 0).annotators.codes.shape == (10,)
    restored = pickle.loads(pickle.dumps(judgements))
    assert restored.kind is Kind.LEVELS
    assert restored.annotators.names == judgements.annotators.names
    assert restored.comparisons.is_uniform


def test_weights_of_zero_do_not_count():
    weights = np.where(np.arange(60) < 8, 0.0, 1.0)
    compared_weights = np.where(np.arange(40) < 3, 0.0, 2.0)
    judgements = graded(sample_weight=weights, comparisons=(TRIPLETS, None, compared_weights))
    counted = judgements.counted()
    assert (len(counted), len(counted.comparisons)) == (52, 37)
    assert counted.total_weight == 52.0 + 74.0
    assert graded().counted().comparisons is None


def test_handles_have_pairs_first():
    judgements = mixed(annotators=["a", "b"] * 30, sample_weight=np.full(60, 2.0))
    rows = judged_rows(judgements)
    assert len(rows) == 100
    np.testing.assert_array_equal(judgements.signs_in(rows), np.where(np.append(LEVELS > 2, SIGNS), 1.0, -1.0))
    np.testing.assert_allclose(judgements.shares_in(rows), np.append(np.full(60, 2.0), np.ones(40)) / 160.0)
    np.testing.assert_array_equal(judgements.codes_in(rows), np.append(LEVELS > 2, np.where(SIGNS, 3, 2)))
    np.testing.assert_array_equal(judgements.groups_in(rows), np.append(np.arange(60) % 2, np.full(40, 2)))
    alone = compared()
    assert alone.codes_in(judged_rows(alone)).tolist() == [1] * 40


def test_comparisons_beside_pairs_have_their_columns():
    with pytest.raises(ValueError, match=r"comparisons must have the 3 columns of the pairs; got 2\."):
        Judgements.read(Estimator(), PAIRS, LEVELS > 2, comparisons=TRIPLETS[:, :, :2])
    with pytest.raises(ValueError, match=r"got a tuple of 4"):
        Judgements.read(Estimator(), PAIRS, LEVELS > 2, comparisons=(TRIPLETS, None, None, None))


def test_comparisons_beside_pairs_have_their_array_library():
    torch = pytest.importorskip("torch", reason="torch is not installed; see the extra test-torch of pyproject.toml")
    read = Judgements.read(Estimator(), torch.asarray(PAIRS), LEVELS > 2, comparisons=TRIPLETS)
    assert isinstance(read.comparisons.data, torch.Tensor)
    read = Judgements.read(Estimator(), PAIRS, LEVELS > 2, comparisons=torch.asarray(TRIPLETS))
    assert isinstance(read.comparisons.data, np.ndarray)


def test_comparisons_that_are_computed_elsewhere_are_refused_in_memory():
    dask = pytest.importorskip("dask.array", reason="dask is not installed; see the extra dask of pyproject.toml")
    with pytest.raises(ValueError, match=r"comparisons must be in memory; got Array.*compute\(\)"):
        compared(dask.from_array(TRIPLETS))


def test_checkpoints_tell_kinds_apart(tmp_path):
    ids = np.arange(60) % 3

    def begin(judgements):
        checkpoint = Checkpoint(tmp_path / "c")
        checkpoint.begin(judgements, Settings(**PAPER), None)
        return checkpoint

    plain = graded(annotators=ids, comparisons=TRIPLETS)
    begin(plain).write()
    begin(plain)
    codes = plain.codes.copy()
    codes[[4, 5]] = codes[[5, 4]]
    others = {
        "labels or weights": replace(plain, codes=codes),
        "the list of annotators is (1, 2, 3) here and (0, 1, 2) in": graded(annotators=ids + 1, comparisons=TRIPLETS),
        "the number of comparisons is 39 here and 40 in": graded(annotators=ids, comparisons=TRIPLETS[1:]),
        "order, have changed": graded(annotators=ids[::-1], comparisons=TRIPLETS),
        "pairs, labels": graded(annotators=ids, comparisons=(TRIPLETS, np.where(SIGNS, 1, -1))),
        "the list of levels is [2, 3, 4, 5] here": graded(LEVELS + 1, annotators=ids, comparisons=TRIPLETS),
    }
    for words, other in others.items():
        with pytest.raises(ValueError, match="is the checkpoint of another fit") as caught:
            begin(other)
        assert words in str(caught.value)


# Folds.


def test_folds_have_every_level_to_fit_to():
    levels = np.array([0] * 40 + [1] * 30 + [2] * 3 + [3])
    judgements = Judgements.read(Estimator(), RNG.standard_normal((74, 2, 3)), levels, is_graded=True)
    for seed in range(5):
        splits = split_judgements(5, judgements, seed=seed)
        assert len(splits) == 5
        for train, test in splits:
            assert set(levels[train]) == {0, 1, 2, 3}
            assert len(np.intersect1d(train, test)) == 0
            assert abs(np.mean(levels[test] == 0) - 40 / 74) < 0.1
        tested = np.concatenate([test for _, test in splits])
        assert len(np.unique(tested)) == len(tested) == 73  # the only one of its level is never tested on


def test_folds_of_comparisons_are_by_point():
    points = RNG.standard_normal((200, 3))
    for k in (3, 4):
        index = np.array([RNG.choice(np.arange(10) + 10 * (row % 20), k, replace=False) for row in range(400)])
        for data in (cf.Tuples(points, index), points[index]):
            judgements = compared(data)
            ids = find_points(data)
            assert ids.shape == (400, k)
            cv, groups = resolve_folds(4, judgements, None, seed=0, warns=False)
            assert cv == 4
            for train, test in split_judgements(cv, judgements, groups=groups, seed=0):
                assert len(test) > 0
                assert not set(index[train].ravel()) & set(index[test].ravel())


def test_folds_of_comparisons_need_no_classes():
    judgements = compared(RNG.standard_normal((50, 3, 3)), np.where(np.arange(50) == 0, -1, 1))
    splits = split_judgements(5, judgements, seed=0)
    assert sorted(np.concatenate([test for _, test in splits]).tolist()) == list(range(50))
    linked = compared(cf.Tuples(RNG.standard_normal((4, 3)), [[0, 1, 2], [1, 2, 3], [2, 3, 0]]))
    assert most_folds(3, linked, linked.data.index) == 0


def test_folds_by_points_have_every_level():
    index = RNG.integers(12, size=(300, 2)) + 12 * (np.arange(300) % 10)[:, None]
    data = cf.Tuples(RNG.standard_normal((120, 3)), index)
    levels = np.arange(300) // 10 % 3
    judgements = Judgements.read(Estimator(), data, levels, is_graded=True)
    assert most_folds(5, judgements, index, seed=0) == 5
    rare = np.where(np.arange(300) % 10 == 0, 3, levels)  # only in the first group of points
    judgements = Judgements.read(Estimator(), data, rare, is_graded=True)
    assert most_folds(5, judgements, index, seed=0) == 0


def test_groups_of_comparisons():
    assert resolve_groups(np.zeros((40, 3)), TRIPLETS).shape == (40, 3)
    assert resolve_groups(np.zeros(40), TRIPLETS).shape == (40,)
    with pytest.raises(ValueError, match=r"id per comparison, or the ids of its three points in shape \(40, 3\); got"):
        resolve_groups(np.zeros((40, 2)), TRIPLETS)
    assert find_points(TRIPLETS) is None
    shared = TRIPLETS[RNG.integers(10, size=300), 0][:, None] + np.zeros((300, 4, 3))
    shared[:, 1:] = TRIPLETS[RNG.integers(40, size=(300, 3)), 1]
    with pytest.warns(cf.SharedPointsWarning, match=r"these 300 comparisons have only \d+ different points"):
        assert resolve_groups(None, shared).shape == (300, 4)


@pytest.mark.parametrize("k", [3, 4])
def test_the_variance_of_a_sum_of_comparisons_that_share_points(k):
    ids = np.array([RNG.choice(12, k, replace=False) for _ in range(30)])
    ids[3, 2] = ids[3, 0]  # (a, b, a, c)
    values = RNG.standard_normal(30)
    values -= values.mean() - 0.5
    shares = np.array([[bool(set(a) & set(b)) for a in ids.tolist()] for b in ids.tolist()])
    assert variance_of_sum(values, ids) == pytest.approx(max(values @ shares @ values, values @ values))


def test_annotators_travel_into_folds():
    judgements = graded(annotators=np.arange(60) % 7)
    for train, test in split_judgements(3, judgements, seed=1):
        assert judgements.take(train).annotators.codes.tolist() == (train % 7).tolist()
        assert judgements.take(test).annotators.names == judgements.annotators.names
