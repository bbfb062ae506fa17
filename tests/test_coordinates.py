"""Unit-free coordinates: identity second moment whatever the units, and the way back."""

import numpy as np
import pytest

from closefar.rows import Differences, blocks, find_coordinates, unit_free

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
    null = coordinates.null_directions
    assert_identity(null.T @ null)
    assert null.shape == (7, 4)
    np.testing.assert_allclose(rows / coordinates.scales @ null, 0.0, atol=1e-12)


@pytest.mark.parametrize("spoil", [drop_nothing, nearly_collinear, exactly_collinear])
@pytest.mark.parametrize("with_constant", [False, True])
def test_another_array_library_makes_no_difference(spoil, with_constant):
    rows = spoil(make_rows())
    strict = pytest.importorskip("array_api_strict").asarray(rows)
    weights = np.full(N, 1.0 / N)
    left, right = (find_coordinates(Differences(z), weights, with_constant=with_constant) for z in (rows, strict))
    assert left.n_directions == right.n_directions
    assert_identity(second_moment(right, rows, weights), atol=1e-7 if "nearly" in spoil.__name__ else 1e-11)


@pytest.mark.parametrize("d", [1, D])
def test_unit_free_rows_have_unit_second_moment(d):
    z, weights = make_rows(d=d), np.random.default_rng(1).dirichlet(np.ones(N))
    plain, _ = unit_free(Differences(z), weights)
    centred, coordinates = unit_free(Differences(z), weights, with_constant=True)
    for rows, size in ((plain, d), (centred, d + 1)):
        assert rows.shape == (N, size)
        assert_identity(rows.outer(weights), atol=1e-11)
    assert coordinates.has_constant
    apart, _ = unit_free(Differences(z), weights, blend=1.0)
    np.testing.assert_allclose(apart.projected(np.eye(d)), z / np.sqrt(weights @ z**2), rtol=1e-11)


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
    squared = np.sum((coordinates.apply(rows.T).T @ factor) ** 2, axis=1)
    back = coordinates.to_units(factor)
    assert back.shape == (rows.shape[1], 2)
    np.testing.assert_allclose(np.sum((rows @ back) ** 2, axis=1), squared, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("spoil", [*FULL, *DEFICIENT])
def test_with_constant_a_factor_maps_back_for_rows_with_a_one(spoil):
    rows = spoil(make_rows())
    coordinates, _ = find(rows, with_constant=True)
    factor = np.random.default_rng(5).standard_normal((coordinates.n_directions, 2))
    squared = np.sum((coordinates.apply(rows.T).T @ factor) ** 2, axis=1)
    back = coordinates.to_units(factor)
    assert back.shape == (rows.shape[1] + 1, 2)
    with_one = np.hstack([rows, np.ones((N, 1))])
    np.testing.assert_allclose(np.sum((with_one @ back) ** 2, axis=1), squared, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("with_constant", [False, True])
def test_coordinates_are_free_of_units(with_constant):
    rng = np.random.default_rng(6)
    rows = make_rows()
    units = rng.standard_normal((D, D)) * 10.0 ** rng.uniform(-9, 9, D)
    left = find(rows, with_constant=with_constant)[0].apply(rows.T)
    right = find(rows @ units, with_constant=with_constant)[0].apply((rows @ units).T)
    np.testing.assert_allclose(left.T @ left, right.T @ right, rtol=0, atol=1e-9)


@pytest.mark.parametrize("power", [150, -150])
def test_neither_huge_nor_tiny_units_overflow(power):
    rows = make_rows() * 10.0 ** np.array([power, 0, power // 2, -power])
    for with_constant in (False, True):
        coordinates, weights = find(rows, with_constant=with_constant)
        assert_identity(second_moment(coordinates, rows, weights), atol=1e-10)


def axes(d, repeats=1):
    """Rows along the axes, both ways, whose second moment is the identity."""
    return np.sqrt(d) * np.tile(np.vstack([np.eye(d), -np.eye(d)]), (repeats, 1))


@pytest.mark.parametrize(("factor", "is_kept"), [(1.5, True), (0.7, False)])
def test_a_direction_that_varies_by_rounding_only_is_dropped(factor, is_kept):
    """Of columns a, a + eps b, c and d of length one the spreads are sqrt(2), 1, 1 and eps / sqrt(2)."""
    rows = axes(4)
    limit = 1e-12 * np.sqrt(4)  # of the largest spread
    rows[:, 1] = rows[:, 0] + 2.0 * factor * limit * rows[:, 1]
    coordinates, _ = find(rows)
    assert coordinates.n_directions == (4 if is_kept else 3)
    assert coordinates.null_directions.shape == (4, 0 if is_kept else 1)
    if not is_kept:
        expected = np.array([1.0, -1.0, 0.0, 0.0]) / np.sqrt(2.0)
        np.testing.assert_allclose(np.abs(coordinates.null_directions[:, 0] @ expected), 1.0, rtol=1e-9)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("blend", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("spread", "is_kept"), [(1.5e-13, True), (0.7e-13, False), (0.0, False)])
def test_a_column_that_differs_from_a_constant_by_rounding_is_constant(spread, is_kept, blend, sign):
    rows = np.column_stack([axes(2)[:, 0], sign * (1.0 + spread * np.array([1.0, -1.0, 1.0, -1.0]))])
    coordinates, _ = find(rows, with_constant=True, blend=blend)
    assert coordinates.n_directions == (3 if is_kept else 2)
    np.testing.assert_allclose(coordinates.scales, [1.0, spread if is_kept else 0.0], rtol=0.01)


@pytest.mark.parametrize("with_constant", [False, True])
def test_columns_that_are_not_mixed_are_scaled_one_by_one(with_constant):
    rows = np.insert(badly_scaled(make_rows()), 2, 0.0, axis=1)
    coordinates, weights = find(
        rows, np.random.default_rng(2).uniform(0.1, 4.0, N), with_constant=with_constant, blend=1.0
    )
    centre = weights @ rows if with_constant else np.zeros(5)
    scales = np.sqrt(weights @ (rows - centre) ** 2)
    np.testing.assert_allclose(coordinates.scales, scales, rtol=1e-10)
    varies = scales > 0.0
    np.testing.assert_array_equal(coordinates.null_directions, np.eye(5)[:, ~varies])
    mapped = coordinates.apply(rows.T)[:4]
    np.testing.assert_allclose(mapped, ((rows - centre)[:, varies] / scales[varies]).T, rtol=0, atol=1e-9)


def test_a_column_that_varies_only_in_rows_without_weight_does_not_count():
    rows, weights = axes(2, 3), np.ones(12)
    weights[0] = 0.0
    rows = np.column_stack([rows, np.eye(12)[0]])
    for blend in (0.0, 0.3, 1.0):
        coordinates, _ = find(rows, weights, blend=blend)
        assert coordinates.n_directions == 2
        np.testing.assert_array_equal(coordinates.transform[2], 0.0)


# Enormous rows


def with_two_outliers(d, square, repeats=100):
    """Rows of unit second moment, and two of this squared length; n, and the moment along those two at full weight."""
    rows = np.vstack([axes(d, repeats), np.sqrt(square) * np.eye(d)[:1], -np.sqrt(square) * np.eye(d)[:1]])
    n = len(rows)
    return rows, n, (n - 2 + 2 * square) / n


@pytest.mark.parametrize("blend", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("with_constant", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_row_of_fifty_times_the_usual_square_is_not_enormous(d, with_constant, blend):
    n = 200 * d + 2
    limit = 50 * d * (n - 2) / (n - 100 * d)  # so that limit / moment = 50 d
    for square, is_plain in ((0.995 * limit, True), (1.005 * limit, False)):
        rows, n, moment = with_two_outliers(d, square)
        assert square / moment == pytest.approx(50 * d, rel=0.01)
        rows = np.column_stack([rows, np.zeros(n)])  # no direction: d stays as it is
        coordinates, weights = find(rows, with_constant=with_constant, blend=blend)
        found = second_moment(coordinates, rows, weights)
        assert np.allclose(found, np.eye(len(found)), atol=1e-10) == is_plain


@pytest.mark.parametrize("with_constant", [False, True])
@pytest.mark.parametrize("square", [1e5, 1e9, 1e14])
@pytest.mark.parametrize("d", [1, 3])
def test_an_enormous_row_counts_as_ten_times_the_usual_square(d, square, with_constant):
    rows, n, _ = with_two_outliers(d, square, repeats=2000)
    coordinates, _ = find(rows, with_constant=with_constant)
    lengths = np.linalg.norm(coordinates.transform, axis=1)
    # The others are as they were; the estimate settles once the outliers grow by less than half in it.
    np.testing.assert_allclose(lengths[1:], 1.0, rtol=1e-3)
    counted = (1.0 / lengths[0] ** 2 - 1.0) * (n - 2) / 2
    assert 0.999 * 10 * d <= counted <= 1.5 * 10 * d


def test_integer_weights_are_repeats_of_enormous_rows_too():
    rows, repeats = make_rows(n=200, d=2), np.random.default_rng(3).integers(1, 5, 200)
    rows[:2] *= [[1e3], [1e5]]
    (weighted, _), (repeated, _) = find(rows, repeats.astype(float)), find(np.repeat(rows, repeats, axis=0))
    left, right = (each.transform @ each.transform.T for each in (weighted, repeated))
    np.testing.assert_allclose(left, right, rtol=1e-9)


def test_enormous_rows_cost_a_few_rounds_only():
    class Counted(Differences):
        n_reads = 0

        def read(self, where):
            Counted.n_reads += 1
            return super().read(where)

    rows, n, _ = with_two_outliers(2, 1e9, repeats=500)
    find_coordinates(Counted(rows), np.full(n, 1.0 / n))
    assert Counted.n_reads < 40  # some three in each round
