"""Unit-free coordinates: identity second moment whatever the units, and the way back."""

import numpy as np
import pytest

from closefar.rows import Differences, blocks, find_coordinates

N, D = 800, 4


def make_rows(seed=0, n=N, d=D):
    """Correlated rows whose mean is not zero."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + rng.standard_normal(d)


def find(rows, weights=None, **kwargs):
    weights = np.ones(len(rows)) if weights is None else weights
    weights = weights / weights.sum()
    return find_coordinates(Differences(rows), weights, **kwargs), weights


def second_moment(coordinates, rows, weights):
    mapped = coordinates.apply(rows.T)
    return (mapped * weights) @ mapped.T


def assert_identity(moment, atol=1e-12):
    np.testing.assert_allclose(moment, np.eye(len(moment)), rtol=0, atol=atol)


def drop_nothing(rows):
    return rows


def badly_scaled(rows):
    return rows * np.array([1e-9, 1e9, 1.0, 1e-4])


def nearly_collinear(rows):
    extra = rows[:, :1] + rows[:, 1:2] + 1e-7 * make_rows(seed=9)[:, :1]
    return np.hstack([rows, extra])


def nearly_collinear_and_badly_scaled(rows):
    return nearly_collinear(rows) * np.array([1e-9, 1e9, 1.0, 1e-4, 1e7])


def exactly_collinear(rows):
    return np.hstack([rows, rows[:, :1] - 2.0 * rows[:, 2:3], 3.0 * rows[:, 1:2]])


def collinear_across_units(rows):
    rows = rows * np.array([1e-9, 1e9, 1.0, 1e-4])
    return np.hstack([rows, 1e9 * rows[:, :1] + 1e-9 * rows[:, 1:2]])


def zero_columns(rows):
    return np.hstack([np.zeros((len(rows), 1)), rows, np.zeros((len(rows), 2))])


FULL = [drop_nothing, badly_scaled, nearly_collinear, nearly_collinear_and_badly_scaled]
DEFICIENT = [exactly_collinear, collinear_across_units, zero_columns]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("spoil", [*FULL, *DEFICIENT])
def test_second_moment_is_the_identity(spoil, weighted):
    rows = spoil(make_rows())
    coordinates, weights = find(rows, np.random.default_rng(1).uniform(0.1, 4.0, N) if weighted else None)
    assert coordinates.n_directions == (rows.shape[1] if spoil in FULL else D)
    assert not coordinates.has_constant
    # The rows themselves know a nearly collinear direction to 1e-16 / 1e-7 only.
    assert_identity(second_moment(coordinates, rows, weights), atol=1e-7 if "nearly" in spoil.__name__ else 1e-11)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("spoil", [*FULL, *DEFICIENT])
def test_with_constant_the_others_are_centred_and_the_last_is_one(spoil, weighted):
    rows = spoil(make_rows())
    coordinates, weights = find(
        rows, np.random.default_rng(2).uniform(0.1, 4.0, N) if weighted else None, with_constant=True
    )
    mapped = coordinates.apply(rows.T)
    assert coordinates.has_constant
    assert coordinates.n_directions == len(mapped) == (rows.shape[1] if spoil in FULL else D) + 1
    np.testing.assert_array_equal(mapped[-1], 1.0)
    # The centring is part of the identity: the last row of the moment is the mean.
    assert_identity(second_moment(coordinates, rows, weights), atol=1e-7 if "nearly" in spoil.__name__ else 1e-11)


@pytest.mark.parametrize("value", [5.0, 1e9, 1e-9, 0.1])
def test_a_constant_column_is_dropped_only_with_a_constant(value):
    rows = np.hstack([make_rows(), np.full((N, 1), value)])
    plain, weights = find(rows)
    assert plain.n_directions == D + 1
    assert_identity(second_moment(plain, rows, weights), atol=1e-11)
    centred, weights = find(rows, with_constant=True)
    assert centred.n_directions == D + 1
    assert_identity(second_moment(centred, rows, weights), atol=1e-11)
    np.testing.assert_array_equal(centred.transform[-1], 0.0)


def test_a_large_offset_with_little_spread_is_kept():
    rows = make_rows()
    rows[:, 0] = 1e6 + 1e-3 * rows[:, 0]
    coordinates, weights = find(rows, with_constant=True)
    assert coordinates.n_directions == D + 1
    assert_identity(second_moment(coordinates, rows, weights), atol=1e-6)


def test_fewer_rows_than_columns():
    rows = make_rows(n=3, d=7)
    coordinates, weights = find(rows)
    assert coordinates.n_directions == 3
    assert_identity(second_moment(coordinates, rows, weights), atol=1e-10)


def test_only_zero_rows_leave_no_direction():
    assert find(np.zeros((10, 3)))[0].n_directions == 0


@pytest.mark.parametrize("with_constant", [False, True])
def test_integer_weights_are_repeats(with_constant):
    rows = make_rows()
    repeats = np.random.default_rng(3).integers(1, 5, N)
    weighted, _ = find(rows, repeats.astype(float), with_constant=with_constant)
    repeated, _ = find(np.repeat(rows, repeats, axis=0), with_constant=with_constant)
    # The directions are unique up to a rotation, the inner products of the coordinates altogether.
    left, right = weighted.apply(rows.T), repeated.apply(rows.T)
    np.testing.assert_allclose(left.T @ left, right.T @ right, rtol=0, atol=1e-10)


@pytest.mark.parametrize("spoil", [drop_nothing, nearly_collinear])
@pytest.mark.parametrize("with_constant", [False, True])
def test_block_size_makes_no_difference(spoil, with_constant, monkeypatch):
    rows = spoil(make_rows(n=N))
    whole = find(rows, with_constant=with_constant)[0].apply(rows.T)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)
    assert len(list(Differences(rows).blocks())) > 1
    parts = find(rows, with_constant=with_constant)[0].apply(rows.T)
    np.testing.assert_allclose(parts.T @ parts, whole.T @ whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize("spoil", [*FULL, *DEFICIENT])
def test_a_factor_maps_back_with_its_quadratic_forms(spoil):
    rows = spoil(make_rows())
    coordinates, _ = find(rows)
    factor = np.random.default_rng(4).standard_normal((coordinates.n_directions, 2))
    forms = np.sum((coordinates.apply(rows.T).T @ factor) ** 2, axis=1)
    back = coordinates.to_units(factor)
    assert back.shape == (rows.shape[1], 2)
    np.testing.assert_allclose(np.sum((rows @ back) ** 2, axis=1), forms, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("spoil", [*FULL, *DEFICIENT])
def test_with_constant_a_factor_maps_back_for_rows_with_a_one(spoil):
    rows = spoil(make_rows())
    coordinates, _ = find(rows, with_constant=True)
    factor = np.random.default_rng(5).standard_normal((coordinates.n_directions, 2))
    forms = np.sum((coordinates.apply(rows.T).T @ factor) ** 2, axis=1)
    back = coordinates.to_units(factor)
    assert back.shape == (rows.shape[1] + 1, 2)
    with_one = np.hstack([rows, np.ones((N, 1))])
    np.testing.assert_allclose(np.sum((with_one @ back) ** 2, axis=1), forms, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("with_constant", [False, True])
def test_coordinates_are_free_of_units(with_constant):
    rng = np.random.default_rng(6)
    rows = make_rows()
    units = rng.standard_normal((D, D)) * 10.0 ** rng.uniform(-9, 9, D)
    left = find(rows, with_constant=with_constant)[0].apply(rows.T)
    right = find(rows @ units, with_constant=with_constant)[0].apply((rows @ units).T)
    np.testing.assert_allclose(left.T @ left, right.T @ right, rtol=0, atol=1e-9)
