"""Rows that are too many to copy: coordinates applied to metrics and sums, and memory maps that are released."""

import numpy as np
import pytest

import closefar as cf
from closefar.arrays import is_mapped, release
from closefar.rows import Differences, unit_free
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
    np.testing.assert_allclose(rows.quadratic_forms(matrix), mapped.quadratic_forms(matrix), atol=accuracy * 10)
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


def test_badly_conditioned_rows_are_mapped(not_kept):
    Z = correlated(500, 4, 1e4)
    rows, _ = unit_free(Differences(Z), np.full(len(Z), 1.0 / len(Z)))
    assert not isinstance(rows, WideRows)


@pytest.mark.parametrize("parameters", [{}, {"alpha": 0.03}, {"solver": "fista"}, {"fit_origin": True}], ids=str)
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
