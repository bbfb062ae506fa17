"""Whole fits from arrays of any library: the same fit as from NumPy, without leaving that library for the passes."""

import numpy as np
import pytest

import closefar as cf
from closefar.rows import Differences
from paper_estimator import PAPER

DATA = cf.datasets.make_pairs(1500, 4, rank=2, wrong_share=0.1, random_state=0)
UNITS = np.array([1e-3, 1.0, 1e3, 1e6])
PAIRS = DATA.pairs * UNITS
POINTS = np.random.default_rng(0).normal([5.0, 0.0, -2.0], size=(1500, 3))
SQUARED = np.sum((POINTS - [5.5, 0.0, -2.0]) ** 2, axis=1)
INSIDE = np.where(SQUARED + np.random.default_rng(2).logistic(size=1500) < 2.5, -1, 1)
WIDE = np.random.default_rng(1).standard_normal((400, 20))
WIDE_LABELS = np.where(np.sum(WIDE[:, :2] ** 2, axis=1) > 1.5, 1, -1)

# Each with the arguments of the learner, and what it is fitted to.
PROBLEMS = {
    "pairs": ({}, PAIRS, DATA.labels),
    "normal": ({"noise": "normal"}, PAIRS, DATA.labels),
    "laplace": ({"noise": "laplace"}, PAIRS, DATA.labels),
    "hypsecant": ({"noise": "hypsecant"}, PAIRS, DATA.labels),
    "sampled": ({"solver": "sampled", "alpha": 0.01}, PAIRS, DATA.labels),
    "lowrank": ({"solver": "lowrank"}, PAIRS, DATA.labels),
    "rank": ({"rank": 1}, PAIRS, DATA.labels),
    "columns": ({"alpha": 0.02, "prior": "standardized"}, PAIRS, DATA.labels),
    "flips": ({"flip_rate": "estimate"}, PAIRS, np.where(np.arange(1500) % 12 == 0, -DATA.labels, DATA.labels)),
    "origin": ({"fit_origin": True}, POINTS, INSIDE),
    "many columns": ({"alpha": 0.05}, WIDE, WIDE_LABELS),
    "single precision": ({}, PAIRS.astype(np.float32), DATA.labels),
}
LIBRARIES = ["memory map", "array_api_strict", "torch", "dask"]


def to_library(name, values, tmp_path):
    if name == "memory map":
        np.save(tmp_path / "rows.npy", values)
        return np.load(tmp_path / "rows.npy", mmap_mode="r")
    if name == "dask":
        dask_array = pytest.importorskip("dask.array", reason="dask is not installed: run pip install -e '.[test]'")
        return dask_array.from_array(np.array(values), chunks=(len(values) // 3 + 1, *values.shape[1:]))
    xp = pytest.importorskip(name, reason=f"{name} is not installed: run pip install -e '.[test-torch]'")
    return xp.asarray(np.array(values))


@pytest.fixture(scope="module")
def expected():
    return {name: cf.LinearMetricLearner(tol=1e-9, **PAPER | more).fit(X, y) for name, (more, X, y) in PROBLEMS.items()}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_fit_is_the_same(problem, library, expected, tmp_path, monkeypatch):
    parameters, X, y = PROBLEMS[problem]
    data = to_library(library, X, tmp_path)
    read, kinds = Differences.read, set()
    monkeypatch.setattr(Differences, "read", lambda self, where: _seen(read(self, where), kinds))
    learner = cf.LinearMetricLearner(tol=1e-9, **PAPER | parameters).fit(data, y)
    assert {kind.split(".")[0] for kind in kinds} == {"numpy" if library in ("memory map", "dask") else library}
    plain = expected[problem]
    assert learner.certificate_.converged
    assert learner.certificate_.objective == pytest.approx(plain.certificate_.objective, abs=1e-8)
    difference = learner.predict_proba(X) - plain.predict_proba(X)
    if problem == "sampled":  # ends where a gap of 1e-9 is proven, from which sqrt(gap / 2) follows as root mean square
        assert np.sqrt(np.mean(difference**2)) <= 2.0 * np.sqrt(1e-9 / 2.0)
    else:  # ends with Newton steps, far below it
        assert np.abs(difference).max() <= 1e-6
    # What is asked of such arrays is answered in NumPy, except that answers of dask arrays are computed later.
    np.testing.assert_allclose(learner.predict_proba(data), learner.predict_proba(X), atol=1e-12)
    for answer in (learner.predict(data), learner.decision_function(data), learner.transform(data)):
        assert type(answer) is (type(data) if library == "dask" else np.ndarray)
    np.testing.assert_allclose(learner.transform(data), learner.transform(X), rtol=1e-9, atol=1e-9)


def _seen(block, kinds):
    kinds.add(type(block).__module__)
    return block


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_labels_and_weights_may_be_of_the_library_too(library, tmp_path):
    weights = np.random.default_rng(3).integers(0, 3, 1500).astype(float)
    arrays = (to_library(library, values, tmp_path) for values in (PAIRS, DATA.labels, weights))
    learner = cf.LinearMetricLearner(**PAPER).fit(*arrays)
    plain = cf.LinearMetricLearner(**PAPER).fit(PAIRS, DATA.labels, weights)
    assert learner.certificate_.loss == pytest.approx(plain.certificate_.loss, abs=1e-9)
    np.testing.assert_array_equal(learner.predict(PAIRS), plain.predict(PAIRS))


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_questions_take_them(library, tmp_path):
    data = to_library(library, PAIRS, tmp_path)
    learner = cf.LinearMetricLearner(**PAPER).fit(data, DATA.labels)
    plain = cf.LinearMetricLearner(**PAPER).fit(PAIRS, DATA.labels)
    assert learner.check_noise_model().p_value == pytest.approx(plain.check_noise_model().p_value, rel=1e-3)
    mine, theirs = (
        cf.confidence(each, X, DATA.labels, random_state=0) for each, X in ((learner, data), (plain, PAIRS))
    )
    assert mine.threshold.standard_error == pytest.approx(theirs.threshold.standard_error, rel=1e-3)
    errors = cf.find_label_errors(learner, data, DATA.labels, random_state=0, cv=2)
    expected = cf.find_label_errors(plain, PAIRS, DATA.labels, random_state=0, cv=2)
    np.testing.assert_allclose(errors.probability, expected.probability, atol=1e-3)
    path, other = learner.truncation_path(), plain.truncation_path()
    assert [step.loss for step in path] == pytest.approx([step.loss for step in other], abs=1e-6)


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x: x.reshape(-1), "differences .n, d. or pairs .n, 2, d.; got 1 axes"),
        (lambda x: np.where(x > 1e6, np.nan, x), "X must hold finite numbers; got NaN or infinity"),
        (lambda x: np.concatenate([x, x], axis=1), r"pairs must have shape \(n, 2, d\)"),
        (lambda x: x[:1], "at least 2 pairs; got 1"),
        (lambda x: x[:, 0, :0], r"at least one column; got shape \(\d+, 0\)"),
        (lambda x: x.astype(complex), "columns must hold real numbers"),
    ],
    ids=["axes", "nan", "sides", "one", "empty", "complex"],
)
def test_wrong_arrays_are_refused(library, spoil, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        cf.LinearMetricLearner(**PAPER).fit(to_library(library, spoil(PAIRS), tmp_path), DATA.labels)


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_columns_must_be_those_of_the_fit(library, tmp_path):
    learner = cf.LinearMetricLearner(**PAPER).fit(PAIRS, DATA.labels)
    with pytest.raises(
        ValueError, match="pairs must have the 4 columns that LinearMetricLearner was fitted with; got 3"
    ):
        learner.predict(to_library(library, PAIRS[:, :, :3], tmp_path))


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_whole_numbers_are_read_as_numbers(library, tmp_path):
    whole = np.random.default_rng(0).integers(-3, 4, (500, 2))
    labels = np.where(np.sum(whole**2, axis=1) + np.random.default_rng(1).logistic(size=500) > 6, 1, -1)
    learner = cf.LinearMetricLearner(**PAPER).fit(to_library(library, whole, tmp_path), labels)
    assert learner.certificate_.loss == pytest.approx(
        cf.LinearMetricLearner(**PAPER).fit(whole, labels).certificate_.loss, abs=1e-9
    )
