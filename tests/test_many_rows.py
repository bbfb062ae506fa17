"""Rows that are too many to copy: coordinates applied to metrics and sums, and memory maps that are released."""

import numpy as np
import pytest

import closefar as cf
from closefar.arrays import is_mapped, release
from closefar.rows import Differences, find_coordinates, unit_free
from closefar.rows import blocks as differences_module
from closefar.rows import coordinates as wide_module
from closefar.rows.blocks import MappedRows
from closefar.rows.coordinates import WideRows
from paper_estimator import PAPER


def correlated(n, d, condition, seed=0):
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return rng.standard_normal((n, d)) * np.geomspace(1.0, 1.0 / condition, d) @ turn.T


@pytest.fixture
def not_kept(monkeypatch):
    monkeypatch.setattr(wide_module, "_CACHED", 0)


@pytest.mark.parametrize("condition", [1.0, 10.0, 80.0])
def test_coordinates_applied_to_metrics_and_sums_are_those_of_mapped_rows(condition, not_kept):
    Z = correlated(3_000, 6, condition)
    weights = np.full(len(Z), 1.0 / len(Z))
    rows, coordinates = unit_free(Differences(Z), weights)
    assert isinstance(rows, WideRows)
    mapped = MappedRows(Differences(Z), coordinates)
    matrix, signs = np.diag([2.0, 1.0, -0.5, 0.1, 0.0, 0.0]) + 0.1, np.resize([1.0, -1.0, 1.0], len(Z)) * weights
    accuracy = 1e-15 * (1.0 + rows.condition**2) * 100
    np.testing.assert_allclose(rows.forms(matrix), mapped.forms(matrix), atol=accuracy * 10)
    np.testing.assert_allclose(rows.outer(signs), mapped.outer(signs), atol=accuracy)
    np.testing.assert_allclose(
        rows.sum_of_squares(weights, (weights,)), mapped.sum_of_squares(weights, (weights,)), atol=accuracy
    )
    few = np.array([5, 17, 4, 2_999])
    np.testing.assert_allclose(
        rows.take_rows(few).read(slice(0, 4)), mapped.take_rows(few).read(slice(0, 4)), atol=1e-12
    )
    assert 0.5 * condition <= rows.condition <= 2.0 * condition + 1.0
    assert mapped.condition == 1.0


def decaying(n, d, dtype=np.float64):
    """Rows whose variances fall as 1/j in a random basis."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return ((rng.standard_normal((n, d)) / np.sqrt(np.arange(1, d + 1))) @ basis.T).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("as_pairs", [False, True])
def test_coordinates_of_many_columns_are_never_applied_to_rows(dtype, as_pairs):
    Z = decaying(1500, 60, dtype)
    data = np.stack([Z, np.zeros_like(Z)], axis=1) if as_pairs else Z
    weights = np.full(len(Z), 1.0 / len(Z))
    source = Differences(data)
    coordinates = find_coordinates(source, weights)
    mapped, rows = source.in_coordinates(coordinates), unit_free(source, weights)[0]
    assert isinstance(rows, WideRows)
    rng = np.random.default_rng(1)
    factor, numbers = rng.standard_normal((rows.n_columns, 5)), rng.standard_normal(len(Z)) * weights
    turn = np.linalg.qr(rng.standard_normal((rows.n_columns, rows.n_columns)))[0]
    for ours, tol in ((rows, 1e-11), (rows.rough, 1e-4)):
        for compute in (
            lambda each: each.squared_distances(factor),
            lambda each: each.inner(each.forward(factor), each.forward(factor)),
            lambda each: each.backward(each.forward(factor), numbers),
            lambda each: each.outer(numbers),
            lambda each: each.forms(factor @ factor.T - np.eye(rows.n_columns)),
            lambda each: each.rotated_moments(np.abs(numbers), (numbers,), turn)[0],
        ):
            found, expected = compute(ours), compute(mapped)
            assert found.dtype == np.float64
            np.testing.assert_allclose(found, expected, rtol=0.0, atol=tol * np.abs(expected).max())
    assert rows.rough.forward(factor).dtype == np.float32


def test_strongly_correlated_columns_are_summed_in_their_coordinates():
    Z = decaying(600, 40)
    Z[:, 1] = Z[:, 0] + 1e-6 * Z[:, 1]
    weights = np.full(len(Z), 1.0 / len(Z))
    source = Differences(Z)
    coordinates = find_coordinates(source, weights)
    assert coordinates.condition > 1e5
    assert not isinstance(unit_free(source, weights)[0], WideRows)  # few enough to be kept
    rows = WideRows(source, coordinates)
    assert rows.rough is rows
    np.testing.assert_allclose(rows.outer(weights), np.eye(40), atol=1e-8)


@pytest.mark.parametrize("size", [30.0, 1e3])
def test_random_projections_find_an_enormous_row(size):
    Z = decaying(400, 70)
    weights = np.full(len(Z), 1.0 / len(Z))
    usual = find_coordinates(Differences(Z), weights)
    Z[17] *= size
    found = find_coordinates(Differences(Z), weights)
    # Its weight is reduced: the others keep about the coordinates that they have without it.
    lengths = [np.sum((Z[:17] @ each.transform) ** 2, axis=1) for each in (usual, found)]
    np.testing.assert_allclose(lengths[0], lengths[1], rtol=0.15)


def test_badly_conditioned_rows_are_mapped(not_kept):
    Z = correlated(500, 4, 1e4)
    rows, _ = unit_free(Differences(Z), np.full(len(Z), 1.0 / len(Z)))
    assert not isinstance(rows, WideRows)


@pytest.mark.parametrize("parameters", [{}, {"alpha": 0.03}, {"solver": "sampled"}, {"fit_origin": True}], ids=str)
def test_a_fit_does_not_depend_on_whether_rows_are_kept(monkeypatch, parameters):
    data = cf.datasets.make_pairs(2_000, 4, random_state=0)
    Z = data.pairs[:, 0] - data.pairs[:, 1]
    kept = cf.LinearMetricLearner(tol=1e-9, **PAPER | parameters).fit(Z, data.labels)
    monkeypatch.setattr(wide_module, "_CACHED", 0)
    read = cf.LinearMetricLearner(tol=1e-9, **PAPER | parameters).fit(Z, data.labels)
    np.testing.assert_allclose(read.certificate_.loss, kept.certificate_.loss, atol=2e-9)
    np.testing.assert_allclose(read.predict_proba(Z), kept.predict_proba(Z), atol=2e-4)
    best = (
        cf.LinearMetricLearner(tol=1e-12, **PAPER | parameters | {"solver": "newton"}).fit(Z, data.labels).certificate_
    )
    assert read.certificate_.lower_bound <= best.objective + 1e-12


# Memory maps


@pytest.fixture
def path(tmp_path):
    data = cf.datasets.make_pairs(1_500, 3, random_state=0)
    np.save(tmp_path / "rows.npy", data.pairs[:, 0] - data.pairs[:, 1])
    return tmp_path / "rows.npy"


def test_which_arrays_are_maps_that_can_be_released(path):
    mapped = np.load(path, mmap_mode="r")
    assert is_mapped(mapped)
    assert is_mapped(np.asarray(mapped)[3:])
    assert not is_mapped(np.load(path))
    assert not is_mapped(np.load(path, mmap_mode="c"))  # changed pages exist in memory alone
    assert not is_mapped(None)
    release(np.ones(3))
    before = mapped.copy()
    release(mapped)
    np.testing.assert_array_equal(mapped, before)


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_fit_to_a_map_that_is_released_is_the_same(path, mode, dtype, monkeypatch):
    monkeypatch.setattr(differences_module, "RELEASED_BYTES", 1_000)
    np.save(path, np.load(path).astype(dtype))
    mapped = np.load(path, mmap_mode=mode)
    if mode == "c":
        mapped[0] *= 1.5
    Z = np.array(mapped)
    labels = np.where(np.sum(Z**2, axis=1) + np.random.default_rng(0).logistic(size=len(Z)) > 2.0, 1, -1)
    from_map, from_array = (cf.LinearMetricLearner(**PAPER).fit(each, labels).certificate_ for each in (mapped, Z))
    assert from_map.loss == pytest.approx(from_array.loss, abs=1e-12)


def test_a_map_with_missing_numbers_is_refused_in_the_words_for_arrays(path):
    Z = np.load(path)
    Z[1_234, 1] = np.nan
    np.save(path, Z)
    labels = np.resize([1, -1], len(Z))
    messages = []
    for each in (np.load(path, mmap_mode="r"), Z):
        with pytest.raises(ValueError, match="NaN") as error:
            cf.LinearMetricLearner(**PAPER).fit(each, labels)
        messages.append(str(error.value))
    assert messages[0] == messages[1]
