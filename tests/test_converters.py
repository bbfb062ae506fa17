"""Triplets from odd ones out, from rankings and from classes say what the answers said."""

import itertools

import numpy as np
import pandas as pd
import pytest

import closefar as cf
from closefar.judgements import triplets_from_classes, triplets_from_odd_one_out, triplets_from_ranking

# Odd one out


@pytest.mark.parametrize("column", [0, 1, 2])
def test_the_other_two_are_closer_to_each_other_than_to_the_odd_one(column):
    shown = np.array([[5, 2, 9], [0, 1, 2], [7, 3, 4]])
    odd = shown[:, column]
    others = [[item for item in row if item != k] for row, k in zip(shown.tolist(), odd.tolist(), strict=True)]
    expected = [triplet for (i, j), k in zip(others, odd.tolist(), strict=True) for triplet in ([i, j, k], [j, i, k])]
    for given in (column, odd, pd.Series(odd), odd.tolist()):
        triplets = triplets_from_odd_one_out(shown, given)
        assert triplets.tolist() == expected
        assert triplets.dtype == np.intp


def test_odd_ones_differ_between_rows():
    triplets = triplets_from_odd_one_out([[5, 2, 9], [0, 1, 2], [7, 3, 4]], [9, 0, 3])
    assert triplets.tolist() == [[5, 2, 9], [2, 5, 9], [1, 2, 0], [2, 1, 0], [7, 4, 3], [4, 7, 3]]


def test_noiseless_answers_give_triplets_that_hold():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((30, 2))
    shown = np.array([rng.choice(30, 3, replace=False) for _ in range(200)])
    sides = np.stack(
        [np.linalg.norm(points[shown[:, a]] - points[shown[:, b]], axis=1) for a, b in ((1, 2), (0, 2), (0, 1))]
    )
    triplets = triplets_from_odd_one_out(shown, shown[np.arange(200), np.argmin(sides, axis=0)])
    tuples = cf.Tuples(points, triplets)
    near, far = (np.linalg.norm(tuples[:, 0] - tuples[:, leg], axis=1) for leg in (1, 2))
    assert np.all(near < far)


@pytest.mark.parametrize(
    ("shown", "odd", "rule"),
    [
        ([[0, 1]], 0, r"shown must have shape \(n, 3\), the numbers of items; got \(1, 2\)"),
        ([[0.5, 1, 2]], 0, "shown must hold integers.*float64. Number the items first"),
        ([["a", "b", "c"]], 0, "shown must hold integers"),
        ([[0, -1, 2]], 0, "shown must hold numbers >= 0; got -1"),
        ([[0, 1, 2], [3, 4, 3]], 0, r"different items in each row; got \[3, 4, 3\] in row 1"),
        ([[0, 1, 2]], 3, "odd must be a column of shown, 0 to 2, or one item for each row; got 3"),
        ([[0, 1, 2]], [1, 2], r"odd must have shape \(1,\), .*got \(2,\)"),
        ([[0, 1, 2], [5, 6, 7]], [1, 4], r"got 4 in row 1, which shows \[5, 6, 7\]"),
    ],
)
def test_bad_odd_ones_are_named(shown, odd, rule):
    with pytest.raises(ValueError, match=rule):
        triplets_from_odd_one_out(shown, odd)


# Rankings


def test_all_comparisons_of_a_ranking():
    triplets = triplets_from_ranking([9, 8], [[1, 2, 3, 4], [4, 3, 2, 1]])
    expected = [[9, *pair] for pair in itertools.combinations([1, 2, 3, 4], 2)]
    expected += [[8, *pair] for pair in itertools.combinations([4, 3, 2, 1], 2)]
    assert triplets.tolist() == expected


def test_adjacent_comparisons_of_a_ranking():
    triplets = triplets_from_ranking([9], [[1, 2, 3, 4]], comparisons="adjacent")
    assert triplets.tolist() == [[9, 1, 2], [9, 2, 3], [9, 3, 4]]


def test_some_of_the_items_are_ranked():
    assert triplets_from_ranking([9], [[1, 2, 3, 4]], n_ranked=1).tolist() == [[9, 1, 2], [9, 1, 3], [9, 1, 4]]
    two = [[9, 1, 2], [9, 1, 3], [9, 1, 4], [9, 2, 3], [9, 2, 4]]
    assert triplets_from_ranking([9], [[1, 2, 3, 4]], n_ranked=2).tolist() == two
    adjacent = triplets_from_ranking([9], [[1, 2, 3, 4]], n_ranked=2, comparisons="adjacent")
    assert adjacent.tolist() == [[9, 1, 2], [9, 2, 3], [9, 2, 4]]


def test_short_rankings_end_early():
    triplets = triplets_from_ranking([9, 8, 7], [[1, 2, 3], [1, 2, -1], [1, -1, -1]])
    assert triplets.tolist() == [[9, 1, 2], [9, 1, 3], [9, 2, 3], [8, 1, 2]]
    assert triplets_from_ranking([7], [[1]]).shape == (0, 3)


@pytest.mark.parametrize(
    ("queries", "ranked", "options", "rule"),
    [
        ([[0]], [[1, 2]], {}, r"queries must have shape \(n,\), the numbers of items; got \(1, 1\)"),
        ([0], [1, 2], {}, r"ranked must have shape \(1, n\)"),
        ([0, 1], [[1, 2]], {}, r"ranked must have shape \(2, n\), .*got \(1, 2\)"),
        ([0], [[1, 2, 1]], {}, r"ranked must hold different items in each row; got \[1, 2, 1\] in row 0"),
        ([0, 5], [[1, 2], [3, 5]], {}, "must not hold the query itself; got 5 in row 1"),
        (
            [0, 5],
            [[1, 2], [3]],
            {},
            r"ranked must have rows of equal length; got \[\[1, 2\], \[3\]\]. End shorter ones",
        ),
        ([0], [[1, -1, 2]], {}, r"-1 only after the last item of a row; row 0 is \[1, -1, 2\]"),
        ([0], [[1, -2]], {}, "numbers >= 0, or -1 after the last item of a row; got -2"),
        ([0], [[1, 2]], {"comparisons": "some"}, "comparisons must be 'all' or 'adjacent'; got 'some'"),
        ([0], [[1, 2, 3]], {"n_ranked": 3}, "n_ranked must be from 1 to 2, .*got 3"),
        ([0], [[1, 2, 3]], {"n_ranked": 0}, "n_ranked must be from 1 to 2, .*got 0"),
    ],
)
def test_bad_rankings_are_named(queries, ranked, options, rule):
    with pytest.raises(ValueError, match=rule):
        triplets_from_ranking(queries, ranked, **options)


# Classes


def assert_valid(triplets, classes):
    classes = np.asarray(classes)
    anchor, positive, negative = triplets.T
    assert np.all(anchor != positive)
    assert np.all(classes[anchor] == classes[positive])
    assert np.all(classes[anchor] != classes[negative])
    assert len(np.unique(triplets, axis=0)) == len(triplets)


@pytest.mark.parametrize("negatives", ["random", "hard"])
@pytest.mark.parametrize("n_triplets", [1, 20, 700, 5000, None])
def test_triplets_have_a_point_of_the_class_and_one_of_another(negatives, n_triplets):
    rng = np.random.default_rng(0)
    classes = rng.choice(["a", "b", "c"], size=90, p=[0.6, 0.3, 0.1])
    points = rng.standard_normal((90, 3))
    triplets = triplets_from_classes(classes, n_triplets, points=points, negatives=negatives, random_state=1)
    assert len(triplets) == (n_triplets or 900)
    assert_valid(triplets, classes)


@pytest.mark.parametrize("n_nearest", [1, 3, 50])
def test_all_triplets_can_be_had(n_nearest):
    classes = np.array([0, 1, 1, 2, 0, 0, 3])
    sizes = np.bincount(classes)[classes]
    total = int(np.sum((sizes - 1) * (7 - sizes)))
    triplets = triplets_from_classes(classes, total, random_state=0)
    assert_valid(triplets, classes)
    with pytest.raises(ValueError, match=f"n_triplets must be from 1 to the {total} different ones; got {total + 1}"):
        triplets_from_classes(classes, total + 1)
    points = np.random.default_rng(1).standard_normal((7, 2))
    hard = int(np.sum((sizes - 1) * np.minimum(n_nearest, 7 - sizes)))
    triplets = triplets_from_classes(classes, hard, points=points, negatives="hard", n_nearest=n_nearest)
    assert len(triplets) == hard
    assert_valid(triplets, classes)


def test_anchors_occur_equally_often_as_far_as_their_classes_allow():
    classes = np.repeat([0, 1, 2, 3], [50, 30, 19, 1])
    counts = np.bincount(triplets_from_classes(classes, 990, random_state=2)[:, 0], minlength=100)
    np.testing.assert_array_equal(counts, [10] * 99 + [0])
    counts = np.bincount(triplets_from_classes([0, 0, *[1] * 98], 5000, random_state=2)[:, 0], minlength=100)
    assert np.ptp(counts) <= 1
    assert counts.sum() == 5000
    counts = np.bincount(triplets_from_classes([0, 0, *[1] * 98], 15_000, random_state=2)[:, 0], minlength=100)
    np.testing.assert_array_equal(counts[:2], [98, 98])  # all there are
    assert np.ptp(counts[2:]) <= 1


def test_random_triplets_are_uniform():
    classes = [0, 0, 0, 1, 1]
    drawn = np.concatenate([triplets_from_classes(classes, 5, random_state=seed) for seed in range(400)])
    _, counts = np.unique(drawn[drawn[:, 0] == 0], axis=0, return_counts=True)
    assert len(counts) == 4
    assert np.all(np.abs(counts - 100) < 40)


def test_hard_negatives_are_the_nearest_in_any_units():
    rng = np.random.default_rng(3)
    points, classes = rng.standard_normal((60, 3)), rng.integers(3, size=60)
    triplets = triplets_from_classes(classes, 400, points=points, negatives="hard", n_nearest=4, random_state=4)
    scaled = points / points.std(axis=0)
    for anchor, _, negative in triplets:
        others = np.flatnonzero(classes != classes[anchor])
        nearest = others[np.argsort(np.linalg.norm(scaled[others] - scaled[anchor], axis=1))[:4]]
        assert negative in nearest
    frame = pd.DataFrame(points * [1e-6, 1.0, 1e9] + [5.0, 0.0, -3e9], columns=["x", "y", "z"])
    again = triplets_from_classes(classes, 400, points=frame, negatives="hard", n_nearest=4, random_state=4)
    np.testing.assert_array_equal(again, triplets)


def test_same_seed_gives_the_same_triplets():
    classes = np.arange(40) % 4
    first, second, other = (triplets_from_classes(classes, 100, random_state=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("classes", "options", "rule"),
    [
        ([0, 0, 0], {}, "classes must be at least two, and one of them must have two points; got 1 of 3 points"),
        ([0, 1, 2], {}, "the largest with 1"),
        ([], {}, "classes must be at least two"),
        ([[0, 1]], {}, r"classes must be one class per point; got shape \(1, 2\)"),
        ([0.0, np.nan, 1.0], {}, "classes must not be missing; got nan at point 1"),
        ([0, 0, 1], {"n_triplets": 0}, "n_triplets must be from 1 to the 2 different ones; got 0"),
        ([0, 0, 1], {"n_triplets": 1.5}, "n_triplets must be .*got 1.5"),
        ([0, 0, 1], {"negatives": "semi-hard"}, "negatives must be 'random' or 'hard'; got 'semi-hard'"),
        ([0, 0, 1], {"negatives": "hard"}, "hard negatives need points.*got points=None"),
        ([0, 0, 1], {"negatives": "hard", "points": np.zeros((2, 2))}, "points must be one per class label, 3; got 2"),
        ([0, 0, 1], {"negatives": "hard", "points": [[0.0], [np.nan], [1.0]]}, r"point 1 is \[nan\]"),
        ([0, 0, 1], {"negatives": "hard", "points": np.zeros((3, 2)), "n_nearest": 0}, "n_nearest must be .*got 0"),
    ],
)
def test_bad_classes_are_named(classes, options, rule):
    with pytest.raises(ValueError, match=rule):
        triplets_from_classes(classes, **options)
