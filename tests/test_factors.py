"""Factors and directions of a metric, and judgements scored by one: each against its formula."""

import dataclasses

import numpy as np
import pytest

import closefar as cf
from closefar.fitting import Scorer
from closefar.judgements import Judgements
from closefar.model import Scored, in_data_scale
from closefar.model.factors import (
    canonical,
    data_scale_of,
    has_ordered_orthogonal_columns,
    loadings,
    root_of,
    rotated,
    with_common_scales,
    with_positive_loadings,
)
from closefar.noise import NOISES

RNG = np.random.default_rng(0)
FACTOR = RNG.standard_normal((5, 3))
ROWS = RNG.standard_normal((40, 5)) * [1.0, 2.0, 0.5, 3.0, 1.0]
WEIGHTS = RNG.integers(0, 4, 40)


# Factors


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
def test_directions_within_rounding_are_dropped_whatever_the_units(ratio, rank, units):
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
    metric = in_data_scale(cf.Metric.from_factor(FACTOR, 1.0), ROWS)
    kept, units = metric.factor[:, :k], np.array(units)[:, None]
    columns, values = data_scale_of(kept / units, metric.data_factor / units, metric.data_eigenvalues)
    np.testing.assert_allclose((columns * units) @ (columns * units).T, kept @ kept.T, atol=1e-10)
    mapped = ROWS @ (columns * units)
    np.testing.assert_allclose(mapped.T @ mapped / len(ROWS), np.diag(values), atol=1e-9)
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
    metric = in_data_scale(plain, ROWS)
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
@pytest.mark.parametrize("weights", [None, WEIGHTS, 1e-3 * WEIGHTS], ids=["equal", "counts", "small"])
def test_the_data_scale_is_the_second_moment_or_the_covariance_of_points(weights, origin):
    plain = cf.Metric.from_factor(FACTOR, 1.0, origin=origin)
    metric = in_data_scale(plain, ROWS.tolist(), None if weights is None else weights.tolist())
    repeated = ROWS if weights is None else np.repeat(ROWS, WEIGHTS, axis=0)
    moment = repeated.T @ repeated / len(repeated) if origin is None else np.cov(repeated.T, bias=True)
    columns, values = metric.data_factor, metric.data_eigenvalues
    np.testing.assert_allclose(columns.T @ moment @ columns, np.diag(values), atol=1e-12)
    assert np.all(np.diff(values) <= 0)
    np.testing.assert_allclose(metric.matrix, plain.matrix, atol=1e-12)
    np.testing.assert_allclose(columns @ columns.T, plain.matrix, atol=1e-12)


def test_pairs_have_the_data_scale_of_their_differences():
    plain = cf.Metric.from_factor(FACTOR, 1.0)
    pairs = np.stack([ROWS + 1.0, np.ones_like(ROWS)], axis=1)
    values = in_data_scale(plain, pairs).data_eigenvalues
    np.testing.assert_allclose(values, in_data_scale(plain, ROWS).data_eigenvalues, rtol=1e-10)


def test_fewer_rows_than_directions_leave_the_others_no_length():
    values = in_data_scale(cf.Metric.from_factor(FACTOR, 1.0), ROWS[:1]).data_eigenvalues
    np.testing.assert_allclose(values, [np.sum((ROWS[0] @ FACTOR) ** 2), 0.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("weights", [np.ones(3), np.ones((2, 1)), 1.0, [-1.0, 3.0], [0.0, 0.0], [np.nan, 1.0]], ids=str)
def test_weights_of_the_data_scale_are_checked(weights):
    with pytest.raises(ValueError, match=r"weights must be numbers >= 0, not all 0, one per pair; got shape .* for 2"):
        in_data_scale(cf.Metric.from_factor(FACTOR, 1.0), ROWS[:2], weights)


# Scores

MARGINS = np.array([2.0, -1.0, 0.0, -0.5, 0.0, 3.0])
SIGNS = np.array([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])
COUNTS = np.array([1.0, 2.0, 3.0, 1.0, 4.0, 0.0])


def scored(signs=SIGNS, weights=COUNTS, flip_rate=0.1):
    judgements = Judgements.of_signs(np.zeros((len(signs), 1)), signs, weights)
    return Scored(judgements, MARGINS[: len(signs)], NOISES["normal"], flip_rate)


def test_scores_are_weighted_figures():
    scores = scored()
    far = 0.1 + 0.8 * NOISES["normal"].cdf(MARGINS)
    losses = -np.log(np.where(SIGNS > 0, far, 1.0 - far))
    assert len(scores) == 6
    np.testing.assert_allclose(scores.probability_far, far)
    np.testing.assert_allclose(scores.losses, losses)
    assert scores.loss == pytest.approx(COUNTS @ losses / 11)
    np.testing.assert_array_equal(scores.is_right, [True, False, True, True, False, False])
    assert scores.accuracy == pytest.approx(5 / 11)
    assert scores.share_far == pytest.approx(6 / 11)
    assert scores.majority == pytest.approx(6 / 11)
    assert scored(-SIGNS).majority == pytest.approx(6 / 11)
    assert scores.null_loss == pytest.approx(-(6 * np.log(6 / 11) + 5 * np.log(5 / 11)) / 11)
    np.testing.assert_array_equal(scores.confusion(), [[1.0, 4.0], [2.0, 4.0]])
    np.testing.assert_array_equal(scores.confusion(np.ones(6)), [[1.0, 2.0], [1.0, 2.0]])


def test_the_area_is_the_share_of_far_and_close_in_the_right_order():
    far, close = SIGNS > 0, SIGNS < 0
    above = np.sign(MARGINS[far][:, None] - MARGINS[close]) / 2 + 0.5
    assert scored().auc == pytest.approx(COUNTS[far] @ above @ COUNTS[close] / 30)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_labels_of_one_kind_have_no_area_and_nothing_to_learn(sign):
    scores = scored(sign * np.ones(2), None)
    assert scores.auc is None
    assert scores.null_loss == 0.0
    assert scores.majority == 1.0
    assert scores.confusion().shape == (2, 2)
    assert scored(np.array([1.0, -1.0]), None).auc == 1.0


def test_a_metric_scores_pairs_by_their_margin():
    metric = cf.Metric.from_factor(FACTOR, 4.0, "laplace", flip_rate=0.2)
    scores = Scorer(metric).score(Judgements.of_signs(ROWS, np.where(np.arange(40) % 2, 1.0, -1.0)))
    np.testing.assert_allclose(scores.margin, np.sum((ROWS @ FACTOR) ** 2, axis=1) - 4.0, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(scores.probability_far, metric.probability_far(ROWS), rtol=1e-12)
    some = scores.take(np.array([5, 2]))
    np.testing.assert_array_equal(some.margin, scores.margin[[5, 2]])
    np.testing.assert_array_equal(some.judgements.numbers, [5, 2])
    assert scores in {scores}
    with pytest.raises(dataclasses.FrozenInstanceError):
        scores.flip_rate = 0.0
