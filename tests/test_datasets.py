"""Generated pairs have the properties they were asked for; pairs of points are made of those points."""

import math

import numpy as np
import pandas as pd
import pytest

from closefar.datasets import _distinct, count_pairs, make_judgements, make_pairs, pairs_from_points, solve_noise_scale
from closefar.noise import NOISES, Normal

N = 20_000


def differences(data):
    return data.pairs[:, 0] - data.pairs[:, 1]


def assert_share(events, expected):
    """The share of events is the expected one up to four standard errors."""
    assert abs(np.mean(events) - expected) < 4 * math.sqrt(expected * (1 - expected) / len(events))


# make_pairs


def test_defaults():
    data = make_pairs(random_state=0)
    assert data.pairs.shape == (15_000, 2, 10)
    assert data.labels.shape == data.true_labels.shape == (15_000,)
    assert data.metric.rank == 10
    assert data.metric.noise == NOISES["logistic"]
    assert_share(data.labels != data.true_labels, 0.1)


def test_true_labels_are_those_of_the_metric():
    data = make_pairs(2000, 4, random_state=1)
    np.testing.assert_array_equal(data.true_labels, np.where(data.metric.margin(differences(data)) >= 0, 1, -1))
    assert set(data.labels) == set(data.true_labels) == {-1, 1}


def test_classes_are_balanced_by_default():
    assert abs(np.mean(make_pairs(1000, 3, random_state=2).true_labels)) <= 0.002


def test_threshold_is_the_one_given():
    data = make_pairs(1000, 3, threshold=0.75, random_state=3)
    assert data.metric.threshold == 0.75
    squared = data.metric.squared_distance(differences(data))
    np.testing.assert_array_equal(data.true_labels, np.where(squared >= 0.75, 1, -1))


@pytest.mark.parametrize("eigenvalues", [[3.0, 0.5], [0.1, 4.0, 1.0], [2.0, 2.0, 2.0, 2.0]])
def test_metric_eigenvalues_are_those_given(eigenvalues):
    metric = make_pairs(100, 4, metric_eigenvalues=eigenvalues, random_state=4).metric
    expected = np.sort([*eigenvalues, *[0.0] * (4 - len(eigenvalues))])[::-1]
    np.testing.assert_allclose(metric.eigenvalues, expected, rtol=1e-12)
    assert metric.rank == len(eigenvalues)


def test_zero_eigenvalues_do_not_count_for_the_rank():
    assert make_pairs(100, 4, metric_eigenvalues=[2.0, 0.0, 1.0], random_state=4).metric.rank == 2


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_rank_is_the_one_given(rank):
    metric = make_pairs(100, 5, rank=rank, random_state=5).metric
    assert metric.rank == rank
    assert np.all((metric.eigenvalues[:rank] > 0) & (metric.eigenvalues[:rank] < 1))


def test_metric_is_turned_at_random():
    first, second = (make_pairs(10, 3, metric_eigenvalues=[3, 2, 1], random_state=seed).metric for seed in (0, 1))
    assert np.abs(first.matrix - second.matrix).max() > 0.1
    assert np.abs(first.matrix - np.diag(np.diag(first.matrix))).max() > 0.1


def test_points_have_the_covariance_given():
    data = make_pairs(50_000, 3, covariance_eigenvalues=[4.0, 1.0, 0.25], random_state=6)
    left, right = data.pairs[:, 0], data.pairs[:, 1]
    for points in (left, right):
        eigenvalues = np.linalg.eigvalsh(np.cov(points.T))
        np.testing.assert_allclose(eigenvalues, [0.25, 1.0, 4.0], rtol=0.05)
        assert np.all(np.abs(points.mean(axis=0)) < 4 * 2.0 / math.sqrt(50_000))
    assert np.abs(left.T @ right / 50_000).max() < 5 * 4.0 / math.sqrt(50_000)


@pytest.mark.parametrize("noise", sorted(NOISES))
@pytest.mark.parametrize("share", [0.02, 0.1, 0.4])
def test_share_of_wrong_labels_is_the_one_given(noise, share):
    data = make_pairs(N, 3, noise=noise, wrong_share=share, random_state=7)
    assert_share(data.labels != data.true_labels, share)
    assert data.metric.noise == NOISES[noise]


@pytest.mark.parametrize("noise", sorted(NOISES))
@pytest.mark.parametrize("scale", [0.1, 2.0])
def test_labels_follow_the_scaled_noise(noise, scale):
    spectra = {"metric_eigenvalues": [3, 2, 1], "covariance_eigenvalues": [1, 1, 1]}
    data = make_pairs(N, 3, noise=noise, noise_scale=scale, random_state=8, **spectra)
    probability = NOISES[noise].cdf(data.metric.margin(differences(data)) / scale)
    far = data.labels == 1
    for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 1.0)):
        inside = (probability >= low) & (probability <= high)
        assert np.sum(inside) > 50
        error = math.sqrt(np.sum(probability[inside] * (1 - probability[inside])))
        assert abs(np.sum(far[inside]) - np.sum(probability[inside])) < 4 * error


def test_flips_do_not_depend_on_the_distance():
    data = make_pairs(N, 3, noise="flips", wrong_share=0.2, random_state=9)
    wrong = data.labels != data.true_labels
    assert_share(wrong, 0.2)
    margin = np.abs(data.metric.margin(differences(data)))
    near = margin < np.median(margin)
    assert_share(wrong[near], 0.2)
    assert_share(wrong[~near], 0.2)


@pytest.mark.parametrize("noise", sorted(NOISES))
def test_noise_turns_labels_near_the_threshold(noise):
    data = make_pairs(N, 3, noise=noise, wrong_share=0.1, random_state=10)
    wrong = data.labels != data.true_labels
    margin = np.abs(data.metric.margin(differences(data)))
    near = margin < np.median(margin)
    assert np.mean(wrong[near]) > 3 * np.mean(wrong[~near])


@pytest.mark.parametrize(
    "noiseless", [{"noise": None}, {"noise_scale": 0.0}, {"wrong_share": 0.0}, {"noise": "flips", "wrong_share": 0.0}]
)
def test_no_noise_gives_true_labels(noiseless):
    data = make_pairs(1000, 3, random_state=11, **noiseless)
    np.testing.assert_array_equal(data.labels, data.true_labels)


def test_noise_object_is_taken():
    by_name, by_object = (make_pairs(500, 3, noise=noise, random_state=12) for noise in ("normal", Normal()))
    np.testing.assert_array_equal(by_name.labels, by_object.labels)


@pytest.mark.parametrize("noise", [*sorted(NOISES), "flips", None])
def test_same_seed_gives_the_same_pairs(noise):
    first, second = (make_pairs(200, 3, noise=noise, random_state=13) for _ in range(2))
    other = make_pairs(200, 3, noise=noise, random_state=14)
    for ours, same in zip(first[:3], second[:3], strict=True):
        np.testing.assert_array_equal(ours, same)
    assert first.metric == second.metric
    assert not np.array_equal(first.pairs, other.pairs)


def test_random_state_object_is_taken():
    first, second = (make_pairs(50, 2, random_state=np.random.RandomState(15)) for _ in range(2))
    np.testing.assert_array_equal(first.pairs, second.pairs)


@pytest.mark.parametrize(("n_pairs", "share"), [(3, 0.1), (49, 0.01), (1001, 1e-4)])
def test_odd_number_of_pairs_with_few_wrong_labels(n_pairs, share):
    """The median is then one of the squared distances."""
    data = make_pairs(n_pairs, 2, wrong_share=share, random_state=16)
    assert data.labels.shape == (n_pairs,)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"noise": "cauchy"}, "noise must be one of .*'cauchy'"),
        ({"wrong_share": 0.5}, "wrong_share must be .*below 0.5; got 0.5"),
        ({"wrong_share": -0.1}, "wrong_share must be .*got -0.1"),
        ({"wrong_share": np.nan}, "wrong_share must be .*got nan"),
        ({"noise_scale": -1.0}, "noise_scale must be >= 0, .*noise_scale=-1.0"),
        ({"noise_scale": np.nan}, "noise_scale must be >= 0, .*noise_scale=nan"),
        ({"noise_scale": 1.0, "wrong_share": 0.1}, "noise_scale and wrong_share can be set; got both"),
        ({"noise_scale": 1.0, "noise": "flips"}, "noise_scale must be >= 0, and noise one of"),
        ({"noise_scale": 1.0, "noise": None}, "noise_scale must be >= 0, and noise one of"),
        ({"wrong_share": 0.1, "noise": None}, "wrong_share"),
        ({"rank": 0}, "rank must be from 1 to n_features = 3; got 0"),
        ({"rank": 4}, "rank must be from 1 to n_features = 3; got 4"),
        ({"rank": 2.5}, "rank must be .*got 2.5"),
        ({"rank": 2, "metric_eigenvalues": [1, 2, 3]}, "metric_eigenvalues must be 2 numbers; got 3"),
        ({"metric_eigenvalues": []}, "metric_eigenvalues must be at most n_features = 3 finite numbers >= 0"),
        ({"metric_eigenvalues": [1, 2, 3, 4]}, "metric_eigenvalues must be at most n_features = 3"),
        ({"metric_eigenvalues": [1, -2]}, r"metric_eigenvalues must be .*>= 0; got \[1, -2\]"),
        ({"metric_eigenvalues": [[1, 2]]}, "metric_eigenvalues must be"),
        ({"metric_eigenvalues": [1, np.nan]}, "metric_eigenvalues must be"),
        ({"metric_eigenvalues": [1, np.inf]}, "metric_eigenvalues must be"),
        ({"covariance_eigenvalues": [1, 2]}, "covariance_eigenvalues must be 3 numbers; got 2"),
        ({"covariance_eigenvalues": [1, 0, 2]}, "covariance_eigenvalues must be > 0"),
        ({"covariance_eigenvalues": [1, -1, 2]}, "covariance_eigenvalues must be"),
        ({"covariance_eigenvalues": [1, np.nan, 2]}, "covariance_eigenvalues must be"),
        ({"threshold": np.nan}, "threshold must be .*nan"),
        ({"n_pairs": 0}, "n_pairs must be .*0"),
        ({"n_pairs": -1}, "n_pairs must be .*-1"),
    ],
    ids=str,
)
def test_bad_arguments_are_named(arguments, rule):
    with pytest.raises(ValueError, match=rule):
        make_pairs(**{"n_pairs": 20, "n_features": 3, "random_state": 0, **arguments})


# make_judgements

KINDS = {"pairs": 2, "levels": 2, "triplets": 3, "quadruplets": 4}


@pytest.mark.parametrize("kind", KINDS)
def test_judgements_come_from_their_truth(kind):
    data = make_judgements(3000, 4, kind=kind, rank=2, noise=None, random_state=0)
    assert data.tuples.shape == (3000, KINDS[kind], 4)
    assert len(np.unique(data.index)) == data.index.size
    array = np.asarray(data.tuples)
    legs = {"triplets": [(0, 1), (0, 2)], "quadruplets": [(0, 1), (2, 3)]}.get(kind, [(0, 1)])
    squared = np.column_stack([data.metric.squared_distance(array[:, a] - array[:, b]) for a, b in legs])
    np.testing.assert_allclose(data.squared_distances, squared, rtol=1e-10, atol=1e-12)
    if len(legs) == 2:
        expected = np.where(squared[:, 1] > squared[:, 0], 1, -1)
    else:
        above = np.sum(squared > np.array(data.thresholds), axis=1)
        expected = above if kind == "levels" else 2 * above - 1
    np.testing.assert_array_equal(data.labels, expected)
    np.testing.assert_array_equal(data.true_labels, expected)
    assert data.metric.rank == 2
    assert data.noise_scale == 0.0
    assert not data.is_flipped.any()


@pytest.mark.parametrize("kind", ["pairs", "triplets", "quadruplets"])
@pytest.mark.parametrize("noise", sorted(NOISES))
def test_share_of_wrong_judgements_is_the_one_given(kind, noise):
    data = make_judgements(N, 3, kind=kind, noise=noise, wrong_share=0.15, random_state=1)
    assert_share(data.labels != data.true_labels, 0.15)


def test_pairs_are_those_of_make_pairs_and_levels_are_about_the_same_pairs():
    pairs = make_judgements(2000, 5, rank=3, n_annotators=8, strictness_spread=0.2, random_state=2)
    levels = make_judgements(
        2000, 5, kind="levels", n_levels=4, rank=3, n_annotators=8, strictness_spread=0.2, random_state=2
    )
    plain = make_judgements(2000, 5, rank=3, random_state=2)
    by_pairs = make_pairs(2000, 5, rank=3, random_state=2)
    np.testing.assert_allclose(np.asarray(plain.tuples), by_pairs.pairs, rtol=1e-12, atol=1e-12)
    assert np.mean(plain.labels == by_pairs.labels) > 0.999
    np.testing.assert_array_equal(pairs.points, levels.points)
    np.testing.assert_array_equal(pairs.annotators, levels.annotators)
    assert pairs.noise_scale == pytest.approx(levels.noise_scale, rel=1e-12)
    # The middle one of four levels' thresholds is the median, so the upper two levels are the far pairs.
    assert np.mean((levels.labels >= 2) == (pairs.labels == 1)) > 0.999


@pytest.mark.parametrize("kind", ["triplets", "quadruplets"])
def test_all_kinds_of_one_seed_have_the_same_metric(kind):
    pairs, comparisons = (make_judgements(100, 4, kind=each, random_state=3) for each in ("pairs", kind))
    np.testing.assert_array_equal(pairs.metric.matrix, comparisons.metric.matrix)
    assert comparisons.thresholds == ()


@pytest.mark.parametrize("kind", ["triplets", "quadruplets"])
def test_answered_comparisons_need_no_labels(kind):
    data = make_judgements(500, 3, kind=kind, noise=None, random_state=4)
    answered = data.answered
    same = data.labels > 0
    np.testing.assert_array_equal(answered[same], data.index[same])
    legs = {"triplets": [(0, 1), (0, 2)], "quadruplets": [(0, 1), (2, 3)]}[kind]
    near, far = (
        data.metric.squared_distance(data.points[answered[:, a]] - data.points[answered[:, b]]) for a, b in legs
    )
    assert np.all(near < far)
    with pytest.raises(ValueError, match=r"only triplets and quadruplets .*got pairs"):
        _ = make_judgements(10, 2, random_state=0).answered


def test_levels_are_equally_frequent_by_default_and_have_the_thresholds_given():
    data = make_judgements(1000, 3, kind="levels", noise=None, random_state=5)
    np.testing.assert_array_equal(np.bincount(data.labels), [200] * 5)
    given = make_judgements(1000, 3, kind="levels", thresholds=[0.2, 0.5], noise=None, random_state=5)
    assert given.thresholds == (0.2, 0.5)
    np.testing.assert_array_equal(given.labels, np.sum(given.squared_distances >= [0.2, 0.5], axis=1))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_judgements_share_points_if_there_are_fewer(size):
    kind = {2: "levels", 3: "triplets", 4: "quadruplets"}[size]
    data = make_judgements(24_000, 2, kind=kind, n_points=5, random_state=6)
    assert len(data.points) == 5
    ordered = np.sort(data.index, axis=1)
    assert np.all(np.diff(ordered, axis=1) > 0)
    _, counts = np.unique(data.index, axis=0, return_counts=True)
    expected = 24_000 / math.perm(5, size)
    assert len(counts) == math.perm(5, size)
    assert np.all(np.abs(counts - expected) < 5 * math.sqrt(expected))


def test_annotators_have_equal_shares_and_never_judge_a_pair_twice():
    data = make_judgements(4000, 3, n_annotators=20, random_state=7)
    np.testing.assert_array_equal(np.unique(data.annotators, return_counts=True)[1], [200] * 20)
    data = make_judgements(900, 3, n_annotators=7, n_repeats=3, random_state=7)
    assert len(np.unique(data.index, axis=0)) == 300
    pairs = np.column_stack([data.index[:, 0], data.panel.who])
    assert len(np.unique(pairs, axis=0)) == 900
    assert set(zip(data.panel.who[0::3], data.panel.who[1::3], strict=True)) >= {(0, 1), (3, 0), (6, 4)}


@pytest.mark.parametrize("kind", ["pairs", "levels"])
def test_strict_annotators_need_a_larger_distance(kind):
    data = make_judgements(N, 3, kind=kind, noise=None, n_annotators=5, strictness_spread=0.4, random_state=8)
    shifted = data.squared_distances[:, 0] - data.panel.strictness[data.panel.who]
    codes = np.sum(shifted[:, None] >= data.thresholds, axis=1)
    np.testing.assert_array_equal(data.labels, codes if kind == "levels" else 2 * codes - 1)
    assert np.ptp(data.panel.strictness) > 0
    assert not np.array_equal(data.labels, data.true_labels)


@pytest.mark.parametrize(("kind", "k"), [("pairs", 2), ("levels", 5)])
def test_some_annotators_answer_at_random(kind, k):
    data = make_judgements(N, 3, kind=kind, noise=None, n_annotators=6, n_random_annotators=2, random_state=9)
    assert np.count_nonzero(data.panel.at_random) == 2
    random = data.panel.at_random[data.panel.who]
    np.testing.assert_array_equal(data.is_flipped, data.labels != data.true_labels)
    assert not data.is_flipped[~random].any()
    assert_share(data.is_flipped[random], 1 - 1 / k)
    counts = np.unique(data.labels[random], return_counts=True)[1]
    assert np.all(np.abs(counts - random.sum() / k) < 4 * np.sqrt(random.sum() / k))


@pytest.mark.parametrize("kind", KINDS)
def test_flips_have_the_rate_given(kind):
    data = make_judgements(N, 3, kind=kind, noise=None, flip_rate=0.12, random_state=10)
    np.testing.assert_array_equal(data.is_flipped, data.labels != data.true_labels)
    assert_share(data.is_flipped, 0.12)


def test_flips_of_two_sides():
    data = make_judgements(N, 3, noise=None, flip_rate=(0.15, 0.03), random_state=11)
    close = data.true_labels == -1
    assert_share(data.is_flipped[close], 0.15)
    assert_share(data.is_flipped[~close], 0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_gives_the_same_judgements(kind):
    first, second, other = (make_judgements(200, 3, kind=kind, n_points=50, random_state=seed) for seed in (1, 1, 2))
    for name in ("points", "index", "labels", "is_flipped"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert not np.array_equal(first.points, other.points)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"kind": "pair"}, r"kind must be one of \['pairs', 'levels', 'triplets', 'quadruplets'\]; got 'pair'"),
        ({"n": 0}, "n must be a whole number >= 1; got 0"),
        ({"n_points": 1}, "n_points must be at least 2, the points of one judgement; got 1"),
        ({"kind": "quadruplets", "n_points": 3}, "n_points must be at least 4"),
        ({"n_repeats": 0}, "n_repeats must be a whole number >= 1; got 0"),
        ({"n_repeats": 4, "n_annotators": 3}, "n_repeats must be at most n_annotators = 3"),
        ({"n_levels": 3}, "n_levels must be .*of kind 'levels'; got 3 of kind 'pairs'"),
        ({"kind": "levels", "n_levels": 1}, "n_levels must be a whole number >= 2"),
        ({"kind": "levels", "n_levels": 4, "thresholds": [1, 2]}, r"thresholds must be 3 finite, increasing numbers"),
        ({"kind": "levels", "thresholds": [2, 1]}, r"thresholds must be finite, increasing numbers; got \[2, 1\]"),
        ({"thresholds": [1, 2]}, "thresholds must be 1 finite"),
        ({"thresholds": np.nan}, "thresholds must be 1 finite"),
        ({"kind": "triplets", "thresholds": 1.0}, "comparisons have no thresholds"),
        ({"flip_rate": 0.6}, "flip_rate must be a number from 0 to 0.5, or two for close and for far pairs"),
        ({"flip_rate": (0.5, 0.5)}, "with a sum below 1"),
        ({"flip_rate": (0.1, 0.2), "kind": "triplets"}, r"from 0 to 0.5; got \(0.1, 0.2\) for triplets"),
        ({"n_random_annotators": 1}, "need n_annotators; got None"),
        ({"strictness_spread": 0.3}, "need n_annotators; got None"),
        ({"n_annotators": 0}, "n_annotators must be a whole number >= 1"),
        ({"n_annotators": 3, "kind": "triplets"}, "annotators judge pairs or levels; got kind='triplets'"),
        ({"n_annotators": 3, "n_random_annotators": 4}, "from 0 to n_annotators = 3; got 4"),
        ({"n_annotators": 3, "strictness_spread": -1.0}, "strictness_spread must be a finite number >= 0"),
        ({"wrong_share": 0.5}, "wrong_share must be .*below 0.5"),
        ({"noise": "flips"}, "noise must be one of"),
    ],
    ids=str,
)
def test_bad_arguments_of_judgements_are_named(arguments, rule):
    with pytest.raises(ValueError, match=rule):
        make_judgements(**{"n": 20, "n_features": 3, "random_state": 0, **arguments})


# solve_noise_scale


@pytest.mark.parametrize("noise", sorted(NOISES))
@pytest.mark.parametrize("share", [1e-6, 0.1, 0.49])
@pytest.mark.parametrize("units", [1e-12, 1.0, 1e12])
def test_solved_scale_gives_the_share(noise, share, units):
    margins = units * np.random.default_rng(0).standard_normal(500)
    scale = solve_noise_scale(margins, noise, share)
    assert np.mean(NOISES[noise].cdf(-np.abs(margins) / scale)) == pytest.approx(share, rel=1e-6)


def test_solved_scale_in_closed_form():
    """All margins are 2: a Laplace tail exp(-2 / s) / 2 of 0.1 needs s = 2 / log 5."""
    assert solve_noise_scale([2.0, -2.0], "laplace", 0.1) == pytest.approx(2.0 / math.log(5.0), rel=1e-9)


def test_no_wrong_labels_need_no_noise():
    assert solve_noise_scale([1.0, -2.0], "normal", 0.0) == 0.0


@pytest.mark.parametrize("share", [-0.1, 0.5, 0.6, np.nan])
def test_impossible_share_is_named(share):
    with pytest.raises(ValueError, match=f"wrong_share must be .*{share}"):
        solve_noise_scale([1.0, 2.0], "normal", share)


@pytest.mark.parametrize("margins", [[], [0.0, 0.0], [1.0, np.nan]], ids=["none", "zero", "nan"])
def test_margins_without_size_are_named(margins):
    with pytest.raises(ValueError, match="margins must"):
        solve_noise_scale(margins, "normal", 0.1)


# pairs_from_points


@pytest.fixture
def points():
    rng = np.random.default_rng(20)
    return rng.standard_normal((31, 3)), rng.integers(3, size=31)


@pytest.mark.parametrize("n", [2, 3, 30, 31])
def test_pairs_are_disjoint_by_default(points, n):
    X, classes = points
    pairs, labels, indices = pairs_from_points(X[:n], classes[:n], random_state=0, return_indices=True)
    assert pairs.shape == (n // 2, 2, 3)
    assert labels.shape == (n // 2,)
    assert len(np.unique(indices)) == indices.size == n // 2 * 2
    np.testing.assert_array_equal(pairs, X[indices])


def test_number_of_pairs_is_the_one_given(points):
    X, classes = points
    pairs, labels, indices = pairs_from_points(X, classes, 5000, random_state=1, return_indices=True)
    assert pairs.shape == (5000, 2, 3)
    assert indices.shape == (5000, 2)
    np.testing.assert_array_equal(pairs, X[indices])
    assert np.all(indices[:, 0] != indices[:, 1])
    np.testing.assert_array_equal(labels, np.where(classes[indices[:, 0]] != classes[indices[:, 1]], 1, -1))


def test_random_pairs_are_uniform():
    X = np.arange(8.0).reshape(4, 2)
    _, _, indices = pairs_from_points(X, np.zeros(4), 24_000, random_state=2, return_indices=True)
    counts = np.zeros((4, 4))
    np.add.at(counts, tuple(indices.T), 1)
    assert np.all(np.diag(counts) == 0)
    assert np.all(np.abs(counts[~np.eye(4, dtype=bool)] - 2000) < 4 * math.sqrt(2000))


def test_two_points_pair_with_each_other():
    indices = pairs_from_points(np.eye(2), [0, 1], 50, random_state=3, return_indices=True)[2]
    assert {tuple(pair) for pair in indices.tolist()} == {(0, 1), (1, 0)}


@pytest.mark.parametrize("convert", [np.asarray, list, pd.Series, lambda c: np.array(["a", "b", "c"])[c]])
def test_points_of_one_class_are_close(points, convert):
    X, classes = points
    _, labels, indices = pairs_from_points(X, convert(classes), random_state=4, return_indices=True)
    np.testing.assert_array_equal(labels, np.where(classes[indices[:, 0]] == classes[indices[:, 1]], -1, 1))
    assert set(labels) == {-1, 1}


@pytest.mark.parametrize(
    "convert", [np.asarray, lambda far: np.where(far, 1, -1), lambda far: np.where(far, 1.0, -1.0)]
)
def test_callable_says_which_pairs_are_far(points, convert):
    X, _ = points

    def is_far(left, right):
        return np.linalg.norm(left - right, axis=1) > 2.0

    pairs, labels = pairs_from_points(X, lambda left, right: convert(is_far(left, right)), 200, random_state=5)
    np.testing.assert_array_equal(labels, np.where(is_far(pairs[:, 0], pairs[:, 1]), 1, -1))
    assert set(labels) == {-1, 1}


def test_frames_and_lists_of_points_are_taken(points):
    X, classes = points
    expected, _ = pairs_from_points(X, classes, random_state=6)
    for given in (pd.DataFrame(X, columns=["a", "b", "c"]), X.tolist()):
        np.testing.assert_array_equal(pairs_from_points(given, classes, random_state=6)[0], expected)


@pytest.mark.parametrize("n_pairs", [None, 40])
def test_same_seed_gives_the_same_pairs_of_points(points, n_pairs):
    first, second, other = (
        pairs_from_points(*points, n_pairs, random_state=seed, return_indices=True)[2] for seed in (7, 7, 8)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


def test_points_are_not_changed(points):
    X, classes = points
    before = X.tobytes(), classes.tobytes()
    pairs, _ = pairs_from_points(X, classes, random_state=9)
    with pytest.raises(TypeError):
        pairs[:] = 0.0
    pairs[:, 0][:] = 0.0
    assert (X.tobytes(), classes.tobytes()) == before


@pytest.mark.parametrize(
    ("n", "d", "precision", "expected", "reason"),
    [
        (5000, 8, 0.002, 9250, "37 parameters (8 columns) their expected excess loss is 0.002"),
        (5000, 1, 0.5, 100, "2 parameters (1 column) their expected excess loss is 0.01"),
        (5000, 768, 0.001, 100_000, "20 per point, beyond which more add little: with 295,297 parameters"),
        (12, 3, 0.001, 66, "66 pairs of 12 points, all of them: with 7 parameters"),
    ],
)
def test_as_many_pairs_as_the_precision_needs(n, d, precision, expected, reason, capsys):
    count = count_pairs(n, d, precision)
    assert count.n_pairs == expected
    assert reason in count.sentence
    X = np.random.default_rng(0).standard_normal((n, d))
    pairs, labels = pairs_from_points(X, X[:, 0] > 0, "auto", precision=precision, random_state=0)
    assert len(pairs) == len(labels) == expected
    assert capsys.readouterr().out == count.sentence + "\n"
    assert np.all(pairs.index[:, 0] != pairs.index[:, 1])
    if n == 12:
        assert len(np.unique(pairs.index, axis=0)) == 66
    pairs_from_points(X, X[:, 0] > 0, "auto", precision=precision, random_state=0, verbose=False)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("precision", [0.0, -1.0, np.inf, np.nan, "high"])
def test_a_precision_is_a_positive_number(precision):
    with pytest.raises(ValueError, match="precision must be a finite number > 0"):
        count_pairs(100, 2, precision)


@pytest.mark.parametrize(
    ("X", "relation", "n_pairs", "rule"),
    [
        (np.zeros((1, 2)), [0], None, r"at least 2 points; got shape \(1, 2\)"),
        (np.zeros(5), np.zeros(5), None, r"\(n, d\) array .*got shape \(5,\)"),
        (np.zeros((4, 2, 2)), np.zeros(4), None, r"\(n, d\) array .*got shape \(4, 2, 2\)"),
        (np.zeros((4, 2)), np.zeros(3), None, r"one class label per point; got shape \(3,\)"),
        (np.zeros((4, 2)), np.zeros((4, 1)), None, r"one class label per point; got shape \(4, 1\)"),
        (np.zeros((4, 2)), "abcd", None, r"one class label per point; got shape \(\)"),
        (np.zeros((4, 2)), np.zeros(4), 0, 'n_pairs must be None, "auto" or a whole number >= 1; got 0'),
        (np.zeros((4, 2)), np.zeros(4), -3, 'n_pairs must be None, "auto" or a whole number >= 1; got -3'),
        (np.zeros((4, 2)), np.zeros(4), 2.5, 'n_pairs must be None, "auto" or a whole number >= 1; got 2.5'),
        (np.zeros((4, 2)), lambda left, right: True, None, r"one value per pair; got shape \(\) for 2 pairs"),
        (np.zeros((4, 2)), lambda left, right: left > 0, None, r"one value per pair; got shape \(2, 2\) for 2 pairs"),
        (np.zeros((4, 2)), lambda left, right: ["far", "close"], None, "relation must return"),
        (np.zeros((4, 2)), lambda left, right: [np.nan, 1.0], None, "relation must return"),
    ],
    ids=[
        "one point",
        "one axis",
        "three axes",
        "too few classes",
        "classes in a column",
        "string",
        "no pairs",
        "negative",
        "fraction",
        "one value",
        "two columns",
        "words",
        "nan",
    ],
)
def test_bad_points_are_named(X, relation, n_pairs, rule):
    with pytest.raises(ValueError, match=rule):
        pairs_from_points(X, relation, n_pairs, random_state=0)


@pytest.mark.parametrize("n", [2, 3, 60, 3000])
def test_automatic_pairs_are_different(n):
    points = np.random.default_rng(0).standard_normal((n, 2))
    pairs, _ = pairs_from_points(points, np.arange(n) % 3, "auto", random_state=0, verbose=False)
    assert len(pairs) == min(2000, 20 * n, n * (n - 1) // 2)
    assert np.all(pairs.index[:, 0] < pairs.index[:, 1])
    assert len(np.unique(pairs.index, axis=0)) == len(pairs)


def test_pairs_of_very_many_points_are_numbered_exactly():
    class Last:
        def choice(self, n, size, *, replace):
            return n - 1 - np.arange(size)

    n = 3_000_000
    np.testing.assert_array_equal(_distinct(n, 2, Last()), [[n - 2, n - 1], [n - 3, n - 1]])


def test_pairs_are_counted_for_two_points_at_least():
    with pytest.raises(ValueError, match="2 points and one column at least; got 1 and 3"):
        count_pairs(1, 3)
