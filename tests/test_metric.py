"""Metric: its parts agree, it does not change, and it is the same in any units."""

import copy
import dataclasses
import pickle
from collections.abc import Hashable

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import mahalanobis

import closefar as cf
from closefar.model import in_data_scale
from closefar.model.metric import (
    canonical,
    data_scale_of,
    has_ordered_orthogonal_columns,
    loadings,
    root_of,
    rotated,
    with_common_scales,
    with_positive_loadings,
)
from closefar.noise import NOISES, Normal

PLAIN = cf.Metric.from_factor(np.random.default_rng(5).standard_normal((5, 3)), 2.0, "normal")


@pytest.fixture
def rng():
    return np.random.default_rng(11)


@pytest.fixture(params=[1, 3, 5], ids="rank {}".format)
def metric(request):
    factor = np.random.default_rng(request.param).standard_normal((5, request.param))
    return cf.Metric.from_factor(factor, 2.0, "normal")


@pytest.fixture
def measured_from_origin():
    factor = np.random.default_rng(3).standard_normal((4, 2))
    return cf.Metric.from_factor(factor, 1.5, "hypsecant", feature_names=list("abcd"), origin=[1.0, -2.0, 0.5, 10.0])


# Parts


def test_matrix_is_the_factor_squared(metric):
    np.testing.assert_allclose(metric.matrix, metric.factor @ metric.factor.T, rtol=1e-14)
    np.testing.assert_array_equal(metric.matrix, metric.matrix.T)


def test_eigenvalues_are_those_of_the_matrix(metric):
    assert metric.eigenvalues.shape == (5,)
    expected = np.linalg.eigvalsh(metric.matrix)[::-1]
    np.testing.assert_allclose(metric.eigenvalues, expected, rtol=1e-10, atol=1e-12)
    assert np.all(np.diff(metric.eigenvalues) <= 0)


def test_rank_is_the_rank_of_the_matrix(metric):
    assert metric.rank == metric.factor.shape[1] == np.linalg.matrix_rank(metric.matrix)
    assert np.count_nonzero(metric.eigenvalues) == metric.rank


def test_factor_has_orthogonal_columns_longest_first(metric):
    products = metric.factor.T @ metric.factor
    np.testing.assert_allclose(products, np.diag(metric.eigenvalues[: metric.rank]), atol=1e-12)
    largest = np.abs(metric.factor).argmax(axis=0)
    assert np.all(metric.factor[largest, range(metric.rank)] > 0)


def test_repr_says_what_it_is(measured_from_origin):
    assert repr(measured_from_origin) == "Metric(4 features, rank 2, threshold 1.5, hypsecant noise)"


def test_columns_without_names_are_numbered():
    assert PLAIN.column_names == ("x0", "x1", "x2", "x3", "x4")
    assert cf.Metric(np.eye(2), 1.0, feature_names=["a", "b"]).column_names == ("a", "b")


def test_contents_hold_only_what_there_is(measured_from_origin):
    arrays, header = PLAIN.contents()
    assert set(arrays) == {"factor", "threshold"}
    assert arrays["threshold"].tolist() == [2.0]
    assert header == {"noise": "normal", "feature_names": None}
    arrays, header = measured_from_origin.contents()
    assert set(arrays) == {"factor", "threshold", "origin"}
    assert header == {"noise": "hypsecant", "feature_names": tuple("abcd")}
    arrays, _ = learned(flip_rate=0.25).contents()
    assert set(arrays) == {"factor", "threshold", "data_factor", "data_eigenvalues", "flip_rate"}
    assert arrays["flip_rate"].tolist() == [0.25]


def test_coordinates_are_rows_along_the_directions(measured_from_origin, rng):
    x, y = rng.standard_normal((2, 6, 5))
    directions = rng.standard_normal((5, 2))
    expected = (x - y) @ directions
    np.testing.assert_allclose(PLAIN.coordinates(np.stack([x, y], axis=1), directions), expected, atol=1e-12)
    np.testing.assert_allclose(PLAIN.measure(np.stack([x, y], axis=1)), PLAIN.squared_distance(x - y), rtol=1e-12)
    expected = (x[:, :4] - measured_from_origin.origin) @ directions[:4]
    np.testing.assert_allclose(measured_from_origin.coordinates(x[:, :4], directions[:4]), expected, atol=1e-12)


# Distances


def test_distance_is_that_of_scipy(metric, rng):
    x, y = rng.standard_normal((2, 20, 5))
    expected = [mahalanobis(left, right, metric.matrix) for left, right in zip(x, y, strict=True)]
    np.testing.assert_allclose(metric.distance(x, y), expected, rtol=1e-12)
    assert metric.distance(x[0], y[0]) == pytest.approx(expected[0], rel=1e-12)
    assert np.ndim(metric.distance(x[0], y[0])) == 0


def test_distance_is_a_pseudometric(metric, rng):
    x, y, z = rng.standard_normal((3, 50, 5))
    np.testing.assert_array_equal(metric.distance(x, x), np.zeros(50))
    np.testing.assert_array_equal(metric.distance(x, y), metric.distance(y, x))
    assert np.all(metric.distance(x, z) <= (metric.distance(x, y) + metric.distance(y, z)) * (1 + 1e-12))


def test_distance_from_one_point_to_many(metric, rng):
    x, y = rng.standard_normal((7, 5)), rng.standard_normal(5)
    np.testing.assert_allclose(metric.distance(x, y), [metric.distance(row, y) for row in x], rtol=1e-14)


def test_squared_distance_of_one_and_of_many(metric, rng):
    z = rng.standard_normal((20, 5))
    expected = np.einsum("ni,ij,nj->n", z, metric.matrix, z)
    np.testing.assert_allclose(metric.squared_distance(z), expected, rtol=1e-12)
    np.testing.assert_allclose([metric.squared_distance(row) for row in z], expected, rtol=1e-12)
    assert np.ndim(metric.squared_distance(z[0])) == 0
    np.testing.assert_allclose(metric.squared_distance(z), metric.distance(z, np.zeros(5)) ** 2, rtol=1e-12)


def test_squared_distance_of_more_rows_than_a_block(metric, rng):
    z = rng.standard_normal((250_000, 5))
    squared = metric.squared_distance(z)
    assert squared.shape == (250_000,)
    for where in (slice(0, 10), slice(104_800, 104_900), slice(-10, None)):
        np.testing.assert_allclose(squared[where], metric.distance(z[where], np.zeros(5)) ** 2, rtol=1e-12)


@pytest.mark.parametrize("method", ["squared_distance", "margin", "probability_far"])
def test_no_rows_give_no_numbers(method):
    assert getattr(PLAIN, method)(np.empty((0, 5))).shape == (0,)
    assert PLAIN.distance(np.empty((0, 5)), np.empty((0, 5))).shape == (0,)


def test_integers_lists_and_frames_are_taken(metric):
    rows = [[1, 0, 2, -1, 3], [0, 1, 1, 1, 0]]
    expected = metric.squared_distance(np.array(rows, dtype=np.float64))
    for given in (rows, np.array(rows, dtype=np.int8), np.array(rows, dtype=np.float32), pd.DataFrame(rows)):
        np.testing.assert_allclose(metric.squared_distance(given), expected, rtol=1e-12)


def test_unsigned_integers_do_not_wrap(metric):
    x, y = np.array([1, 2, 3, 4, 5], dtype=np.uint8), np.array([9, 8, 7, 6, 5], dtype=np.uint8)
    assert metric.distance(x, y) == pytest.approx(metric.distance(x.astype(float), y.astype(float)), rel=1e-14)


def test_margin_is_the_squared_distance_over_the_threshold(metric, rng):
    z = rng.standard_normal((20, 5))
    np.testing.assert_array_equal(metric.margin(z), metric.squared_distance(z) - 2.0)


@pytest.mark.parametrize("noise", sorted(NOISES))
def test_probability_far_is_the_cdf_of_the_margin(noise, rng):
    metric = cf.Metric(np.diag([2.0, 1.0]), 2.0, noise)
    z = rng.standard_normal((20, 2))
    probability = metric.probability_far(z)
    np.testing.assert_array_equal(probability, NOISES[noise].cdf(metric.squared_distance(z) - 2.0))
    assert np.all((probability > 0.5) == (metric.margin(z) > 0))
    assert metric.probability_far(z[0]) == pytest.approx(probability[0], rel=1e-14)
    assert metric.probability_far([1.0, 0.0]) > 0.5 > metric.probability_far([0.0, 1.0])


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 5), ()])
@pytest.mark.parametrize("method", ["squared_distance", "margin", "probability_far"])
def test_wrong_shapes_are_named(method, shape):
    with pytest.raises(ValueError, match=r"metric's 5 columns; got shape \(") as error:
        getattr(PLAIN, method)(np.zeros(shape))
    assert str(shape) in str(error.value)


def test_distance_of_wrong_shapes_is_named():
    with pytest.raises(ValueError, match=r"metric's 5 columns; got shape \(2, 4\)"):
        PLAIN.distance(np.zeros((2, 4)), np.zeros((2, 4)))


# Origin


def test_single_points_are_measured_from_the_origin(measured_from_origin, rng):
    points = rng.standard_normal((6, 4))
    expected = measured_from_origin.distance(points, measured_from_origin.origin) ** 2
    np.testing.assert_allclose(measured_from_origin.squared_distance(points), expected, rtol=1e-12)
    assert measured_from_origin.squared_distance(measured_from_origin.origin) == 0.0


def test_distance_between_points_has_no_origin(measured_from_origin, rng):
    x, y = rng.standard_normal((2, 6, 4))
    without = dataclasses.replace(measured_from_origin, origin=None)
    np.testing.assert_array_equal(measured_from_origin.distance(x, y), without.distance(x, y))


def test_pairs_are_measured_without_the_origin(measured_from_origin, rng):
    pairs = rng.standard_normal((7, 2, 4))
    expected = measured_from_origin.distance(pairs[:, 0], pairs[:, 1]) ** 2
    np.testing.assert_allclose(measured_from_origin.measure(pairs), expected, rtol=1e-12)


def test_truncation_keeps_names_origin_threshold_and_noise(measured_from_origin):
    short = measured_from_origin.truncate(1)
    np.testing.assert_array_equal(short.origin, measured_from_origin.origin)
    assert (short.threshold, short.noise, short.feature_names) == (1.5, NOISES["hypsecant"], tuple("abcd"))


# The data's scale


ROWS = np.random.default_rng(8).standard_normal((400, 5)) @ np.random.default_rng(9).standard_normal((5, 5))
MOMENT = ROWS.T @ ROWS / len(ROWS)
WILD_UNITS = np.array([1e9, -2.0, 1.0, 1e-6, 0.3])


def learned(rank=3, seed=1, **kwargs):
    """A metric as a learner builds it: from a factor for whitened rows."""
    values, vectors = np.linalg.eigh(MOMENT)
    weights = np.random.default_rng(seed).standard_normal((5, rank))
    return cf.Metric.from_data_scale(vectors / np.sqrt(values), weights, 2.0, "normal", **kwargs)


def knows_its_data_scale(metric, moment=MOMENT):
    size = np.sqrt(np.diag(moment))
    scaled, moment = metric.data_factor * size[:, None], moment / np.outer(size, size)
    np.testing.assert_allclose(
        scaled.T @ moment @ scaled, np.diag(metric.data_eigenvalues), atol=1e-8 * metric.data_eigenvalues.max(initial=1)
    )
    factor = metric.factor * size[:, None]
    np.testing.assert_allclose(scaled @ scaled.T, factor @ factor.T, rtol=1e-8, atol=1e-10)
    assert metric.data_factor.shape == metric.factor.shape


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_data_scale_makes_the_columns_orthogonal_for_the_data(rank):
    metric = learned(rank)
    knows_its_data_scale(metric)
    assert metric.rank == rank
    assert np.all(np.diff(metric.data_eigenvalues) <= 0)
    values = np.sort(np.linalg.eigvals(metric.matrix @ MOMENT).real)[::-1][:rank]
    np.testing.assert_allclose(metric.data_eigenvalues, values, rtol=1e-8)
    assert metric.data_eigenvalues.sum() == pytest.approx(np.mean(metric.squared_distance(ROWS)), rel=1e-10)


def test_second_moment_of_the_coordinates_may_be_given():
    metric = learned()
    turn = np.random.default_rng(4).standard_normal((5, 5))
    other = cf.Metric.from_data_scale(
        turn.T, np.linalg.solve(turn.T, metric.factor), 2.0, "normal", second_moment=turn @ MOMENT @ turn.T
    )
    knows_its_data_scale(other)
    np.testing.assert_allclose(other.matrix, metric.matrix, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(other.data_eigenvalues, metric.data_eigenvalues, rtol=1e-7)


def test_directions_of_no_length_are_left_out_in_the_data_scale():
    metric = cf.Metric.from_data_scale(np.eye(3), [[1.0, 2.0], [2.0, 4.0], [0.0, 0.0]], 1.0)
    assert metric.rank == 1
    np.testing.assert_allclose(metric.data_eigenvalues, [25.0])
    assert cf.Metric.from_data_scale(np.eye(3), np.zeros((3, 2)), 1.0).rank == 0
    assert cf.Metric.from_data_scale(np.eye(3), np.zeros((3, 0)), 1.0).rank == 0
    for ratio, rank in ((1.5e-13, 2), (0.7e-13, 1)):
        assert cf.Metric.from_data_scale(np.eye(3), 1e-20 * np.diag([1.0, ratio, 0.0]), 1.0).rank == rank


def test_more_columns_than_coordinates_are_rotated_into_them():
    factor = np.random.default_rng(3).standard_normal((2, 4))
    metric = cf.Metric.from_data_scale(np.eye(2), factor, 1.0)
    assert metric.rank == 2
    np.testing.assert_allclose(metric.matrix, factor @ factor.T, rtol=1e-10)
    np.testing.assert_allclose(metric.data_factor, metric.factor, atol=1e-10)
    np.testing.assert_allclose(metric.data_eigenvalues, metric.eigenvalues, rtol=1e-10)


def test_from_factor_takes_a_data_scale():
    metric = learned()
    built = cf.Metric.from_factor(
        metric.data_factor, 2.0, "normal", data_factor=metric.data_factor, data_eigenvalues=metric.data_eigenvalues
    )
    np.testing.assert_allclose(built.factor, metric.factor, atol=1e-10)
    np.testing.assert_array_equal(built.data_eigenvalues, metric.data_eigenvalues)


def test_metric_built_by_hand_knows_no_data_scale(metric):
    assert metric.data_factor is None
    assert metric.data_eigenvalues is None
    with pytest.raises(ValueError, match='scale="data" needs the scale of the training data'):
        metric.truncate(1, scale="data")
    assert metric.truncate(1) == metric.truncate(1, scale="units")


@pytest.mark.parametrize("k", [0, 1, 2, 3, 5])
def test_truncation_in_the_data_scale_is_the_best_there(k):
    metric = learned()
    short = metric.truncate(k)
    assert short == metric.truncate(k, scale="data")
    assert short.rank == min(k, 3)
    knows_its_data_scale(short)
    np.testing.assert_array_equal(short.data_eigenvalues, metric.data_eigenvalues[:k])
    root = np.linalg.cholesky(MOMENT)
    values, vectors = np.linalg.eigh(root.T @ metric.matrix @ root)
    best = (vectors[:, 5 - k :] * values[5 - k :]) @ vectors[:, 5 - k :].T
    np.testing.assert_allclose(root.T @ short.matrix @ root, best, atol=1e-10)


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_truncation_in_units_keeps_the_data_scale_right(k):
    metric = learned()
    short = metric.truncate(k, scale="units")
    knows_its_data_scale(short)
    np.testing.assert_array_equal(short.eigenvalues[:k], metric.eigenvalues[:k])
    assert short.rank == k


@pytest.mark.parametrize("as_matrix", [False, True])
def test_truncation_in_the_data_scale_commutes_with_units(as_matrix):
    units = np.random.default_rng(2).standard_normal((5, 5)) if as_matrix else WILD_UNITS
    moved = ROWS @ units.T if as_matrix else ROWS * units
    metric = learned()
    changed = metric.change_units(units)
    knows_its_data_scale(changed, moved.T @ moved / len(moved))
    np.testing.assert_array_equal(changed.data_eigenvalues, metric.data_eigenvalues)
    for k in range(4):
        np.testing.assert_allclose(
            changed.truncate(k).probability_far(moved), metric.truncate(k).probability_far(ROWS), rtol=1e-7
        )


def test_truncation_in_units_does_depend_on_them():
    metric = learned()
    there = metric.change_units(WILD_UNITS).truncate(1, scale="units").probability_far(ROWS * WILD_UNITS)
    assert not np.allclose(there, metric.truncate(1, scale="units").probability_far(ROWS), atol=0.01)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"data_factor": np.eye(2)}, "must both be given, or neither"),
        ({"data_eigenvalues": [1.0, 1.0]}, "must both be given, or neither"),
        ({"data_factor": np.eye(2)[:, :1], "data_eigenvalues": [1.0]}, r"of the shape of factor, .*got shape \(2, 1\)"),
        ({"data_factor": np.full((2, 2), np.nan), "data_eigenvalues": [1.0, 1.0]}, "data_factor must be finite"),
        ({"data_factor": np.eye(2), "data_eigenvalues": [1.0, 2.0]}, "2 finite numbers >= 0, largest first"),
        ({"data_factor": np.eye(2), "data_eigenvalues": [1.0, -2.0]}, "2 finite numbers >= 0, largest first"),
        ({"data_factor": np.eye(2), "data_eigenvalues": [np.inf, 1.0]}, "2 finite numbers >= 0, largest first"),
        ({"data_factor": np.eye(2), "data_eigenvalues": [1.0]}, "2 finite numbers >= 0, largest first"),
        ({"data_factor": 2 * np.eye(2), "data_eigenvalues": [1.0, 1.0]}, "must give the same M as factor"),
    ],
    ids=["no eigenvalues", "no factor", "shape", "nan", "order", "negative", "infinite", "short", "another M"],
)
def test_bad_data_scale_is_named(arguments, rule):
    with pytest.raises(ValueError, match=rule):
        cf.Metric(np.eye(2), 1.0, **arguments)


@pytest.mark.parametrize("values", [[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
def test_equal_and_zero_eigenvalues_are_in_order(values):
    metric = cf.Metric(np.eye(2), 1.0, data_factor=np.eye(2), data_eigenvalues=values)
    np.testing.assert_array_equal(metric.data_eigenvalues, values)


def test_both_factors_may_differ_by_rounding_only():
    arguments = {"factor": np.eye(2), "threshold": 1.0, "data_eigenvalues": [1.0, 1.0]}
    cf.Metric(data_factor=[[1.0, 0.7e-8], [0.0, 1.0]], **arguments)
    with pytest.raises(ValueError, match="must give the same M"):
        cf.Metric(data_factor=[[1.0, 1.4e-8], [0.0, 1.0]], **arguments)


def test_another_m_is_noticed_in_small_units():
    factor = np.diag([1e9, 1e-9])
    with pytest.raises(ValueError, match="must give the same M"):
        cf.Metric(factor, 1.0, data_factor=np.diag([1e9, 2e-9]), data_eigenvalues=[1.0, 1.0])


# Flips


def test_flip_rate_pulls_probabilities_to_one_half(rng):
    z = 3 * rng.standard_normal((50, 5))
    flipped = dataclasses.replace(PLAIN, flip_rate=0.1)
    np.testing.assert_allclose(flipped.probability_far(z), 0.1 + 0.8 * PLAIN.probability_far(z), rtol=1e-14)
    np.testing.assert_array_equal(flipped.margin(z), PLAIN.margin(z))
    assert flipped.probability_far(z).min() >= 0.1


def test_flip_rate_is_kept():
    flipped = learned(flip_rate=0.125)
    for other in (flipped.truncate(1), flipped.truncate(1, "units"), flipped.change_units(WILD_UNITS)):
        assert other.flip_rate == 0.125
    assert flipped != learned()
    assert repr(flipped) == "Metric(5 features, rank 3, threshold 2, normal noise, flip rate 0.125)"


@pytest.mark.parametrize("rate", [0, 0.0, np.float32(0.25), 0.4999])
def test_flip_rates_below_one_half_are_taken(rate):
    metric = cf.Metric(np.eye(2), 1.0, flip_rate=rate)
    assert metric.flip_rate == rate
    assert type(metric.flip_rate) is float


@pytest.mark.parametrize("rate", [-0.1, 0.5, np.nan, "0.1", None])
def test_bad_flip_rate_is_named(rate):
    with pytest.raises(ValueError, match=r"flip_rate must be at least 0 and below 0\.5; got"):
        cf.Metric(np.eye(2), 1.0, flip_rate=rate)


# Truncation


def test_truncation_keeps_the_largest_eigenvalues(metric):
    for k in range(metric.rank + 1):
        short = metric.truncate(k)
        assert short.rank == k
        np.testing.assert_array_equal(short.eigenvalues[:k], metric.eigenvalues[:k])
        np.testing.assert_array_equal(short.eigenvalues[k:], np.zeros(5 - k))
        values, vectors = np.linalg.eigh(metric.matrix)
        best = (vectors[:, 5 - k :] * values[5 - k :]) @ vectors[:, 5 - k :].T
        np.testing.assert_allclose(short.matrix, best, atol=1e-12)


def test_truncation_to_the_rank_or_more_changes_nothing(metric):
    assert metric.truncate(metric.rank) is metric
    assert metric.truncate(5) is metric


def test_truncation_to_nothing_calls_everything_close(metric):
    nothing = metric.truncate(0)
    np.testing.assert_array_equal(nothing.margin(np.ones((3, 5))), [-2.0] * 3)


@pytest.mark.parametrize("k", [-1, 6, 1.5])
def test_bad_truncation_is_named(k):
    with pytest.raises(ValueError, match=rf"k must be .*got {k}"):
        PLAIN.truncate(k)


def test_bad_scale_is_named():
    with pytest.raises(ValueError, match='scale must be "data", "units" or None; got \'feet\''):
        PLAIN.truncate(1, scale="feet")


# Units


def test_column_factors_leave_probabilities_alone(metric, rng):
    z, units = rng.standard_normal((20, 5)), np.array([1e9, -2.0, 1.0, 1e-6, 0.3])
    changed = metric.change_units(units)
    np.testing.assert_allclose(changed.probability_far(z * units), metric.probability_far(z), rtol=1e-9)
    np.testing.assert_allclose(changed.matrix, metric.matrix / np.outer(units, units), rtol=1e-9)
    assert (changed.threshold, changed.rank) == (metric.threshold, metric.rank)


def test_matrix_units_leave_probabilities_alone(metric, rng):
    z, units = rng.standard_normal((20, 5)), rng.standard_normal((5, 5))
    changed = metric.change_units(units)
    np.testing.assert_allclose(changed.probability_far(z @ units.T), metric.probability_far(z), rtol=1e-9)
    inverse = np.linalg.inv(units)
    np.testing.assert_allclose(changed.matrix, inverse.T @ metric.matrix @ inverse, rtol=1e-8, atol=1e-10)


def test_diagonal_matrix_is_the_same_as_its_factors(metric):
    units = np.array([0.1, 2.0, 3.0, 4.0, 50.0])
    by_factors, by_matrix = metric.change_units(units), metric.change_units(np.diag(units))
    np.testing.assert_allclose(by_matrix.matrix, by_factors.matrix, rtol=1e-10)


def test_change_units_and_back(metric, rng):
    units = rng.standard_normal((5, 5))
    back = metric.change_units(units).change_units(np.linalg.inv(units))
    np.testing.assert_allclose(back.matrix, metric.matrix, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("as_matrix", [False, True])
def test_origin_moves_with_the_units(measured_from_origin, rng, as_matrix):
    factors = np.array([2.0, -0.5, 1e3, 1e-3])
    units = np.diag(factors) @ np.linalg.qr(rng.standard_normal((4, 4)))[0] if as_matrix else factors
    points = rng.standard_normal((10, 4))
    moved = points @ units.T if as_matrix else points * units
    changed = measured_from_origin.change_units(units)
    expected = measured_from_origin.squared_distance(points)
    np.testing.assert_allclose(changed.squared_distance(moved), expected, rtol=1e-9)
    assert changed.squared_distance(changed.origin) == 0.0
    assert changed.feature_names == measured_from_origin.feature_names


@pytest.mark.parametrize(
    ("units", "rule"),
    [
        ([1.0, 0.0, 1.0, 1.0, 1.0], "must be finite, and factors must not be zero"),
        ([1.0, np.nan, 1.0, 1.0, 1.0], "must be finite, and factors must not be zero"),
        ([1.0, np.inf, 1.0, 1.0, 1.0], "must be finite, and factors must not be zero"),
        ([1.0, 2.0], r"got shape \(2,\)"),
        (3.0, r"got shape \(\)"),
        (np.ones((5, 4)), r"got shape \(5, 4\)"),
        (np.ones((5, 5)), "units must be"),
        (np.full((5, 5), np.nan), "units must be"),
    ],
    ids=["zero", "nan", "inf", "short", "scalar", "rectangle", "singular matrix", "nan matrix"],
)
def test_bad_units_are_named(units, rule):
    with pytest.raises(ValueError, match=rule):
        PLAIN.change_units(units)


# Building


def test_from_matrix_gives_that_matrix(rng):
    root = rng.standard_normal((4, 4))
    metric = cf.Metric.from_matrix(root @ root.T, 0.5, "laplace", feature_names="abcd", origin=np.ones(4))
    np.testing.assert_allclose(metric.matrix, root @ root.T, rtol=1e-10, atol=1e-12)
    assert metric.rank == 4
    assert (metric.threshold, metric.noise, metric.feature_names) == (0.5, NOISES["laplace"], tuple("abcd"))
    np.testing.assert_array_equal(metric.origin, np.ones(4))


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_from_matrix_finds_the_rank_in_any_units(rng, scale):
    root = rng.standard_normal((5, 2))
    metric = cf.Metric.from_matrix(scale * root @ root.T, 1.0)
    assert metric.rank == 2
    np.testing.assert_allclose(metric.matrix, scale * root @ root.T, rtol=1e-10, atol=1e-13 * scale)


def test_from_matrix_of_columns_in_far_apart_units():
    matrix = np.diag([1e9, 1.0, 1e-9]) @ np.array([[2.0, 1, 0], [1, 2, 1], [0, 1, 2]]) @ np.diag([1e9, 1.0, 1e-9])
    metric = cf.Metric.from_matrix(matrix, 1.0)
    assert metric.rank == 3
    assert metric.squared_distance([0.0, 0.0, 1e9]) == pytest.approx(2.0, rel=1e-6)
    size = np.sqrt(np.diag(matrix))
    np.testing.assert_allclose(metric.matrix / np.outer(size, size), matrix / np.outer(size, size), atol=1e-12)


@pytest.mark.parametrize(("smaller", "rank"), [(1.5e-13, 2), (0.7e-13, 1)])
def test_from_matrix_drops_eigenvalues_within_rounding(smaller, rank):
    assert cf.Metric.from_matrix([[1.0 + smaller, 1.0 - smaller], [1.0 - smaller, 1.0 + smaller]], 1.0).rank == rank


@pytest.mark.parametrize(
    ("accepted", "refused", "rule"),
    [
        ([[1.0, 0.7e-8], [0.0, 1.0]], [[1.0, 1.5e-8], [0.0, 1.0]], "symmetric"),
        ([[1e20, 0.7e2], [0.0, 1e0]], [[1e20, 1.5e2], [0.0, 1e0]], "symmetric"),
        ([[1.0, 1.0 + 1.4e-8], [1.0 + 1.4e-8, 1.0]], [[1.0, 1.0 + 3e-8], [1.0 + 3e-8, 1.0]], "semidefinite"),
    ],
    ids=["asymmetric", "asymmetric in other units", "indefinite"],
)
def test_from_matrix_overlooks_rounding_only(accepted, refused, rule):
    cf.Metric.from_matrix(accepted, 1.0)
    with pytest.raises(ValueError, match=f"matrix must be .*{rule}"):
        cf.Metric.from_matrix(refused, 1.0)


def test_from_zero_matrix():
    metric = cf.Metric.from_matrix(np.zeros((3, 3)), 1.0)
    assert metric.rank == 0
    np.testing.assert_array_equal(metric.matrix, np.zeros((3, 3)))
    np.testing.assert_array_equal(metric.squared_distance(np.ones((2, 3))), [0.0, 0.0])


@pytest.mark.parametrize("shape", [(4, 2), (4, 4), (2, 5)])
def test_from_factor_keeps_the_matrix(rng, shape):
    factor = rng.standard_normal(shape)
    metric = cf.Metric.from_factor(factor, 1.0)
    np.testing.assert_allclose(metric.matrix, factor @ factor.T, rtol=1e-10, atol=1e-12)
    assert metric.rank == min(shape)


def test_from_factor_does_not_depend_on_the_rotation(rng):
    factor, rotation = rng.standard_normal((4, 3)), np.linalg.qr(rng.standard_normal((3, 3)))[0]
    first, second = cf.Metric.from_factor(factor, 1.0), cf.Metric.from_factor(factor @ rotation, 1.0)
    np.testing.assert_allclose(first.factor, second.factor, atol=1e-12)


@pytest.mark.parametrize(
    "factor",
    [[[1.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [2.0, 0.0]], [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 0.0, 0.0]]],
    ids=["equal columns", "zero column", "multiples"],
)
def test_from_factor_drops_directions_of_no_length(factor):
    metric = cf.Metric.from_factor(factor, 1.0)
    assert metric.rank == np.linalg.matrix_rank(metric.matrix) == 1


def test_from_factor_of_columns_in_far_apart_units():
    factor = np.array([[1e9, 2e9], [1e-6, -3e-6]])
    metric = cf.Metric.from_factor(factor, 1.0)
    np.testing.assert_allclose(metric.matrix, factor @ factor.T, rtol=1e-9)


def test_plain_lists_become_a_metric():
    metric = cf.Metric([[1, 0], [0, 1], [0, 0]], 1, "normal", ["a", "b", "c"], [0, 0, 1])
    assert metric.factor.dtype == metric.origin.dtype == np.float64
    assert isinstance(metric.threshold, float)
    assert metric.noise == Normal()
    assert metric.feature_names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"factor": [1.0, 2.0]}, r"factor must be .*got shape \(2,\)"),
        ({"factor": [[np.nan]]}, "factor must be .*finite"),
        ({"factor": [[1.0, 1.0], [1.0, 2.0]]}, "orthogonal columns, longest first. Use Metric.from_factor"),
        ({"factor": [[1.0, 0.0], [0.0, 2.0]]}, "orthogonal columns, longest first. Use Metric.from_factor"),
        ({"threshold": np.nan}, "threshold must be a finite number; got nan"),
        ({"threshold": np.inf}, "threshold must be a finite number; got inf"),
        ({"noise": "cauchy"}, "noise must be one of .*got 'cauchy'"),
        ({"feature_names": ["a"]}, "one feature name per row of factor; got 1 for 2"),
        ({"origin": [1.0]}, r"origin must be 2 finite numbers; got shape \(1,\)"),
        ({"origin": [1.0, np.nan]}, "origin must be 2 finite numbers"),
    ],
    ids=str,
)
def test_bad_parts_are_named(arguments, rule):
    with pytest.raises(ValueError, match=rule):
        cf.Metric(**{"factor": np.eye(2), "threshold": 1.0, **arguments})


@pytest.mark.parametrize(
    "factor", [[1.0, 2.0], [[np.nan, 1.0]], [[np.inf, 1.0], [0.0, 1.0]]], ids=["one axis", "nan", "inf"]
)
def test_from_bad_factor_is_named(factor):
    with pytest.raises(ValueError, match="factor must be a d x k array of finite numbers"):
        cf.Metric.from_factor(factor, 1.0)


@pytest.mark.parametrize(
    ("matrix", "rule"),
    [
        (np.ones((2, 3)), r"square, symmetric and finite; got shape \(2, 3\)"),
        (np.ones(4), r"square, symmetric and finite; got shape \(4,\)"),
        ([[1.0, 2.0], [0.0, 1.0]], "matrix must be symmetric"),
        ([[1.0, 0.5], [0.4, 1.0]], "matrix must be symmetric"),
        ([[1e-10, 5e-11], [0.0, 1e-10]], "matrix must be symmetric"),
        ([[1.0, 0.0], [0.0, -0.5]], "positive semidefinite; got the eigenvalue -1 with the diagonal scaled to one"),
        ([[0.0, 1e-9], [1e-9, 0.0]], "positive semidefinite; got the eigenvalue"),
        (-np.eye(2), "positive semidefinite; got the eigenvalue -1 with the diagonal scaled to one"),
        ([[np.nan, 0.0], [0.0, 1.0]], "finite"),
        ([[np.inf, 0.0], [0.0, 1.0]], "finite"),
    ],
    ids=[
        "rectangle",
        "one axis",
        "asymmetric",
        "a little asymmetric",
        "asymmetric and small",
        "indefinite",
        "no diagonal",
        "negative",
        "nan",
        "inf",
    ],
)
def test_from_bad_matrix_is_named(matrix, rule):
    with pytest.raises(ValueError, match=rule):
        cf.Metric.from_matrix(matrix, 1.0)


# Immutable


@pytest.mark.parametrize(
    "name", ["factor", "threshold", "noise", "feature_names", "origin", "flip_rate", "data_factor", "matrix", "new"]
)
def test_attributes_are_frozen(measured_from_origin, name):
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        setattr(measured_from_origin, name, 1.0)


@pytest.mark.parametrize("name", ["factor", "origin", "data_factor", "data_eigenvalues"])
@pytest.mark.parametrize(
    "duplicate",
    [lambda metric: metric, copy.copy, copy.deepcopy, lambda metric: pickle.loads(pickle.dumps(metric))],
    ids=["itself", "copy", "deep copy", "pickled"],
)
def test_arrays_are_read_only(name, duplicate):
    full = learned(origin=np.ones(5), flip_rate=0.1)
    metric = duplicate(full)
    assert metric == full
    with pytest.raises(ValueError, match="read-only"):
        getattr(metric, name)[0] = 7.0


def test_arrays_are_copies_of_what_was_given():
    factor, origin = np.eye(2), np.zeros(2)
    metric = cf.Metric(factor, 1.0, origin=origin)
    factor[0, 0] = origin[0] = 5.0
    assert metric == cf.Metric(np.eye(2), 1.0, origin=np.zeros(2))


def test_changing_a_result_does_not_change_the_metric(metric):
    metric.matrix[:] = 0.0
    metric.eigenvalues[:] = 0.0
    assert np.all(np.diag(metric.matrix) > 0)
    assert metric.eigenvalues[0] > 0


def test_equality_compares_every_part():
    parts = {
        "factor": np.eye(2),
        "threshold": 1.0,
        "noise": "normal",
        "feature_names": ("a", "b"),
        "origin": np.ones(2),
        "flip_rate": 0.1,
        "data_factor": np.eye(2),
        "data_eigenvalues": [2.0, 1.0],
    }
    others = {
        "factor": -np.eye(2),
        "threshold": 2.0,
        "noise": "laplace",
        "feature_names": ("a", "c"),
        "origin": np.zeros(2),
        "flip_rate": 0.2,
        "data_factor": -np.eye(2),
        "data_eigenvalues": [3.0, 1.0],
    }
    metric = cf.Metric(**parts)
    assert metric == cf.Metric(**parts)
    for name, other in others.items():
        assert metric != cf.Metric(**{**parts, name: other}), name
    assert metric != cf.Metric(**{**parts, "origin": None})
    assert metric != cf.Metric(**{**parts, "data_factor": None, "data_eigenvalues": None})
    assert metric != cf.Metric(**{**parts, "feature_names": None})
    assert metric != "metric"


def test_metric_is_not_hashable(metric):
    with pytest.raises(TypeError, match="unhashable"):
        hash(metric)
    assert not isinstance(metric, Hashable)


# Factors

FACTOR = np.random.default_rng(0).standard_normal((5, 3))
DIFFERENCES = np.random.default_rng(1).standard_normal((40, 5)) * [1.0, 2.0, 0.5, 3.0, 1.0]
COUNTS = np.random.default_rng(2).integers(0, 4, 40)


@pytest.mark.parametrize("shape", [(4, 3), (3, 3), (2, 5), (3, 1), (1, 1), (1, 3)])
@pytest.mark.parametrize("turn", [canonical, rotated])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_a_turned_factor_has_the_eigenvectors_of_its_matrix(turn, shape, scale):
    factor = -np.random.default_rng(sum(shape)).uniform(0.5, 2.0, shape)
    turned = turn(scale * factor) / scale
    values, vectors = np.linalg.eigh(factor @ factor.T)
    columns = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1][:, : min(shape)]
    np.testing.assert_allclose(np.abs(turned), np.abs(columns), atol=1e-7)
    np.testing.assert_allclose(turned @ turned.T, factor @ factor.T, atol=1e-12)
    largest = np.abs(turned).argmax(axis=0)
    assert np.all(turned[largest, range(min(shape))] > 0)


def test_columns_are_ordered_by_length_and_not_by_sum():
    np.testing.assert_allclose(rotated(np.array([[1.0, 2.0], [1.0, -2.0]])), [[2.0, 1.0], [-2.0, 1.0]], atol=1e-12)


@pytest.mark.parametrize("turn", [rotated, with_positive_loadings])
@pytest.mark.parametrize("shape", [(3, 0), (0, 2)])
def test_empty_factors_stay_as_they_are(turn, shape):
    assert turn(np.empty(shape)).shape == shape


@pytest.mark.parametrize("shape", [(3, 0), (3, 2)])
def test_a_canonical_factor_of_nothing_has_no_columns(shape):
    assert canonical(np.zeros(shape)).shape == (3, 0)


@pytest.mark.parametrize(("ratio", "rank"), [(1.5e-13, 2), (0.7e-13, 1)])
@pytest.mark.parametrize("units", [[1.0, 1.0], [1e-20, 1.0], [1e30, 1e-30]])
def test_directions_within_rounding_are_dropped_in_any_units(ratio, rank, units):
    factor = np.array([[1.0, ratio], [1.0, -ratio]]) * np.array(units)[:, None]
    assert canonical(factor).shape == (2, rank)


def test_a_row_of_zeros_stays_zero():
    turned = canonical(np.array([[3.0, 4.0], [0.0, 0.0], [-4.0, 3.0]]))
    np.testing.assert_array_equal(turned[1], 0.0)
    np.testing.assert_allclose(turned @ turned.T, np.diag([25.0, 0.0, 25.0]), atol=1e-12)


def test_the_largest_entry_of_each_column_becomes_positive():
    factor = np.array([[1.0, -1.0, 0.0], [-2.0, 3.0, 0.0], [0.5, -2.0, 0.0]])
    np.testing.assert_array_equal(with_positive_loadings(factor), factor * [-1.0, 1.0, 1.0])


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_a_root_gives_back_the_second_moment(rank):
    rows = np.random.default_rng(rank).standard_normal((rank, 5))
    root = root_of(0.01 * rows.T @ rows)
    np.testing.assert_allclose(root.T @ root, 0.01 * rows.T @ rows, atol=1e-14)


@pytest.mark.parametrize("k", [0, 1, 2, 3])
@pytest.mark.parametrize("units", [[1.0, 1.0, 1.0, 1.0, 1.0], [1e9, 1.0, 1e-9, 3.0, 0.1]])
def test_the_data_scale_of_some_of_the_columns_is_that_of_the_data(k, units):
    metric = in_data_scale(cf.Metric.from_factor(FACTOR, 1.0), DIFFERENCES)
    kept, units = metric.factor[:, :k], np.array(units)[:, None]
    columns, values = data_scale_of(kept / units, metric.data_factor / units, metric.data_eigenvalues)
    np.testing.assert_allclose((columns * units) @ (columns * units).T, kept @ kept.T, atol=1e-10)
    mapped = DIFFERENCES @ (columns * units)
    np.testing.assert_allclose(mapped.T @ mapped / len(DIFFERENCES), np.diag(values), atol=1e-9)
    assert np.all(np.diff(values) <= 0)


def test_scaled_rows_are_divided_by_the_largest_entry_of_either():
    left, right = with_common_scales(
        np.array([[1e-9, -2e-9], [0.0, 0.0], [6.0, 2.0]]), np.array([[4e-9], [0.0], [-3.0]])
    )
    np.testing.assert_allclose(left, [[0.25, -0.5], [0.0, 0.0], [1.0, 1 / 3]])
    np.testing.assert_allclose(right, [[1.0], [0.0], [-0.5]])


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize(
    ("factor", "is_so"),
    [
        ([[2.0, 0.0], [0.0, 1.0]], True),
        ([[1.0, 0.0], [0.0, 1.0]], True),
        ([[1.0, 0.0], [0.0, 2.0]], False),
        ([[2.0, 1.0], [0.0, 1.0]], False),
        ([[2.0, -1.0], [0.0, 1.0]], False),
        ([[1.0, 0.6e-8], [0.0, 1.0]], True),
        ([[1.0, 1.5e-8], [0.0, 1.0]], False),
        ([[1.0, 0.0], [0.0, 1.0 + 0.3e-8]], True),
        ([[1.0, 0.0], [0.0, 1.0 + 0.8e-8]], False),
        ([[0.0, 0.0], [0.0, 0.0]], True),
        ([[], []], True),
    ],
)
def test_columns_that_are_orthogonal_and_ordered_are_known(factor, is_so, scale):
    assert has_ordered_orthogonal_columns(scale * np.array(factor)) is is_so


def test_loadings_are_columns_of_length_one_in_usual_sizes():
    factor, scales = np.array([[3.0, 0.0, 0.1], [-2.0, 0.0, 0.0]]), np.array([1.0, 2.0])
    np.testing.assert_allclose(loadings(factor, scales), [[0.6, 0.0, 1.0], [-0.8, 0.0, 0.0]])


# Directions


def test_directions_are_those_of_the_scale_asked_for():
    plain = cf.Metric.from_factor(FACTOR, 1.0)
    metric = in_data_scale(plain, DIFFERENCES)
    for directions in (metric.directions(), metric.directions("data")):
        assert directions.is_data_scale
        np.testing.assert_array_equal(directions.columns, metric.data_factor)
        np.testing.assert_array_equal(directions.values, metric.data_eigenvalues)
    for directions in (metric.directions("units"), plain.directions(), plain.directions("units")):
        assert not directions.is_data_scale
        np.testing.assert_array_equal(directions.columns, metric.factor)
        np.testing.assert_allclose(directions.values, np.linalg.eigvalsh(metric.matrix)[:1:-1])
    with pytest.raises(ValueError, match='scale="data" needs the scale of the training data'):
        plain.directions("data")


def test_shares_sum_to_one_or_are_none():
    metric = cf.Metric(1e-9 * np.diag([2.0, 1.0]), 1.0)
    np.testing.assert_allclose(metric.directions().shares, [0.8, 0.2])
    np.testing.assert_array_equal(cf.Metric(np.zeros((2, 1)), 1.0).directions().shares, [0.0])


@pytest.mark.parametrize("origin", [None, np.ones(5)])
@pytest.mark.parametrize("weights", [None, COUNTS, 1e-3 * COUNTS], ids=["equal", "counts", "small"])
def test_the_data_scale_is_the_second_moment_or_the_covariance_of_points(weights, origin):
    plain = cf.Metric.from_factor(FACTOR, 1.0, origin=origin)
    metric = in_data_scale(plain, DIFFERENCES.tolist(), None if weights is None else weights.tolist())
    repeated = DIFFERENCES if weights is None else np.repeat(DIFFERENCES, COUNTS, axis=0)
    moment = repeated.T @ repeated / len(repeated) if origin is None else np.cov(repeated.T, bias=True)
    columns, values = metric.data_factor, metric.data_eigenvalues
    np.testing.assert_allclose(columns.T @ moment @ columns, np.diag(values), atol=1e-12)
    assert np.all(np.diff(values) <= 0)
    np.testing.assert_allclose(metric.matrix, plain.matrix, atol=1e-12)
    np.testing.assert_allclose(columns @ columns.T, plain.matrix, atol=1e-12)


def test_pairs_have_the_data_scale_of_their_differences():
    plain = cf.Metric.from_factor(FACTOR, 1.0)
    pairs = np.stack([DIFFERENCES + 1.0, np.ones_like(DIFFERENCES)], axis=1)
    values = in_data_scale(plain, pairs).data_eigenvalues
    np.testing.assert_allclose(values, in_data_scale(plain, DIFFERENCES).data_eigenvalues, rtol=1e-10)


def test_fewer_rows_than_directions_leave_the_others_no_length():
    values = in_data_scale(cf.Metric.from_factor(FACTOR, 1.0), DIFFERENCES[:1]).data_eigenvalues
    np.testing.assert_allclose(values, [np.sum((DIFFERENCES[0] @ FACTOR) ** 2), 0.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("weights", [np.ones(3), np.ones((2, 1)), 1.0, [-1.0, 3.0], [0.0, 0.0], [np.nan, 1.0]], ids=str)
def test_weights_of_the_data_scale_are_checked(weights):
    with pytest.raises(ValueError, match=r"weights must be numbers >= 0, not all 0, one per pair; got shape .* for 2"):
        in_data_scale(cf.Metric.from_factor(FACTOR, 1.0), DIFFERENCES[:2], weights)


# Several thresholds, and none

LEVELS = (0.5, 1.0, 1.0, 4.0)
Z = np.random.default_rng(0).normal(size=(200, 3)) * 1.5


def metric_of(threshold, noise="logistic", **kwargs) -> cf.Metric:
    return cf.Metric.from_factor(np.random.default_rng(1).normal(size=(3, 2)), threshold, noise, **kwargs)


def test_one_threshold_may_be_given_as_a_sequence():
    one = metric_of(1.5)
    assert metric_of([1.5]) == one
    assert (one.threshold, one.thresholds, one.n_levels, one.known_threshold, one.cut) == (1.5, (1.5,), 2, 1.5, 1.5)
    assert one.dichotomy(1) is one


def test_levels_have_several_thresholds_and_none_of_its_own():
    metric = metric_of(np.array(LEVELS))
    assert metric.threshold is None
    assert metric.thresholds == LEVELS
    assert metric.n_levels == 5
    assert repr(metric) == "Metric(3 features, rank 2, thresholds 0.5, 1, 1, 4, logistic noise)"
    for needs_one in (lambda: metric.known_threshold, lambda: metric.cut, lambda: metric.margin(Z)):
        with pytest.raises(ValueError, match=r"needs one threshold; got a metric of 5 levels, which has 4\. Use dicho"):
            needs_one()


def test_comparisons_have_no_threshold():
    metric = metric_of(None)
    assert (metric.threshold, metric.thresholds, metric.cut) == (None, (), 0.0)
    assert metric == metric_of(())
    assert repr(metric) == "Metric(3 features, rank 2, no threshold, logistic noise)"
    np.testing.assert_array_equal(metric.probability_at(np.array([-1.0, 0.0])), NOISES["logistic"].cdf([-1.0, 0.0]))
    for needs_one in (
        lambda: metric.known_threshold,
        lambda: metric.probability_far(Z),
        lambda: metric.probabilities(Z),
        lambda: metric.levels_at(np.ones(1)),
        lambda: metric.dichotomy(1),
    ):
        with pytest.raises(ValueError, match=r"comparisons determine none.*calibrate_threshold\(pairs, labels\)"):
            needs_one()


@pytest.mark.parametrize("bad", [[2.0, 1.0], [0.0, np.nan], np.inf])
def test_bad_thresholds_are_named(bad):
    with pytest.raises(ValueError, match=r"threshold.*must be .*finite number.*; got"):
        metric_of(bad)


@pytest.mark.parametrize("flip_rate", [0.0, 0.2])
@pytest.mark.parametrize("noise", NOISES)
def test_probabilities_are_those_of_the_dichotomies(noise, flip_rate):
    metric = metric_of(LEVELS, noise, flip_rate=flip_rate)
    probabilities = metric.probabilities(Z)
    assert probabilities.shape == (len(Z), 5)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-14)
    np.testing.assert_allclose(probabilities[:, 2], flip_rate / 4, atol=1e-15)  # between equal thresholds
    for k in range(1, 5):
        at_least = metric.dichotomy(k).probability_far(Z)
        np.testing.assert_allclose(probabilities[:, k:].sum(axis=1), at_least, atol=1e-14)
    np.testing.assert_array_equal(metric.probabilities(Z[0]), probabilities[0])
    most = np.argmax(probabilities[:, ::-1], axis=1)
    np.testing.assert_array_equal(metric.levels_at(metric.squared_distance(Z)), 4 - most)


@pytest.mark.parametrize("noise", NOISES)
def test_improbable_levels_keep_their_digits(noise):
    """On both sides: the differences of probabilities near one would have none left."""
    metric = cf.Metric([[1.0]], (20.0, 21.0), noise)
    near, far = metric.probabilities_at(np.array([0.0, 41.0]))
    np.testing.assert_allclose(near, far[::-1], rtol=1e-9)
    assert 0 < near[2] < near[1] < 1e-8


def test_a_level_metric_of_two_levels_is_close_or_far():
    metric = metric_of(1.0, flip_rate=0.1)
    np.testing.assert_allclose(metric.probabilities(Z)[:, 1], metric.probability_far(Z), rtol=1e-14)
    np.testing.assert_array_equal(metric.levels_at(metric.squared_distance(Z)), metric.margin(Z) >= 0)


@pytest.mark.parametrize("bad", [(0.5, 0.5), (-0.1, 0.2), (0.1, 0.2, 0.3), (0.1,), ("0.1", 0.2), (np.nan, 0.1)])
def test_bad_flip_rates_of_two_sides_are_named(bad):
    with pytest.raises(ValueError, match=r"two flip rates, .* must be numbers from 0 to below 1 that sum"):
        metric_of(1.0, flip_rate=bad)


def test_flip_rates_of_sides_are_for_two_sides():
    with pytest.raises(ValueError, match=r"are for close and far only; got \(0\.1, 0\.2\) for 5 levels"):
        metric_of(LEVELS, flip_rate=(0.1, 0.2))
    with pytest.raises(ValueError, match=r"flip_rate must be at least 0 and below 0\.8; got 0\.8"):
        metric_of(LEVELS, flip_rate=0.8)


def test_flip_rates_of_two_sides():
    metric, plain = metric_of(1.0, flip_rate=(0.2, 0.05)), metric_of(1.0)
    assert metric.flip_rates == (0.2, 0.05)
    assert repr(metric).endswith("logistic noise, flip rates 0.2 of close and 0.05 of far)")
    probability = metric.probability_far(Z)
    np.testing.assert_allclose(probability, 0.2 + 0.75 * plain.probability_far(Z))
    np.testing.assert_allclose(metric.probabilities(Z), np.column_stack([1.0 - probability, probability]))
    with pytest.raises(ValueError, match="needs one flip rate for both sides; got two"):
        _ = metric.one_flip_rate


@pytest.mark.parametrize(
    "metric",
    [
        metric_of(LEVELS),
        metric_of(LEVELS, flip_rate=0.3),
        metric_of(None, "laplace"),
        metric_of(1.0, flip_rate=(0.1, 0.3)),
    ],
    ids=["levels", "levels with flips", "comparisons", "two flip rates"],
)
def test_copies_and_files_are_the_same_metric(metric, tmp_path):
    metric.save(tmp_path / "model")
    for other in (cf.load(tmp_path / "model"), pickle.loads(pickle.dumps(metric)), copy.deepcopy(metric)):
        assert other == metric
        assert other.thresholds == metric.thresholds
    assert metric != metric_of(1.0)


def test_units_and_rank_leave_thresholds_alone():
    metric = metric_of(LEVELS, flip_rate=0.3)
    units = np.array([[1e3, 1.0, 0.0], [0.0, 1e-3, 2.0], [0.0, 0.0, 5.0]])
    changed = metric.change_units(units)
    np.testing.assert_allclose(changed.probabilities(Z @ units.T), metric.probabilities(Z), rtol=1e-9)
    assert metric.truncate(1).thresholds == LEVELS
