"""Pairs by index: they act as the expanded array, and give its results without forming it."""

import copy
import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline

import closefar as cf
from closefar.fitting import Scorer
from closefar.judgements import Judgements, find_points
from closefar.rows import Coordinates, IndexedRows, rows_of
from paper_estimator import PAPER
from row_functions import Pull

RNG = np.random.default_rng(0)
N_POINTS, N, D = 60, 900, 4
NAMES = ("length", "mass", "time", "charge")
POINTS = RNG.standard_normal((N_POINTS, D)) * [1.0, 100.0, 0.01, 5.0] + [2020.0, 0.0, 1.0, -3.0]
INDEX = RNG.integers(N_POINTS, size=(N, 2))
PAIRS = POINTS[INDEX]
SCALED = (PAIRS[:, 0] - PAIRS[:, 1]) / [1.0, 100.0, 0.01, 5.0]
FAR = np.sum(SCALED[:, :2] ** 2, axis=1) + RNG.logistic(size=N) > 3.0
TUPLES = cf.Tuples(POINTS, INDEX)


# As an array


def test_what_it_is():
    assert TUPLES.shape == (N, 2, D)
    assert (TUPLES.ndim, len(TUPLES), TUPLES.size, TUPLES.dtype) == (3, N, 2 * N * D, np.float64)
    assert repr(TUPLES) == "Tuples(900 tuples of 2, 60 points, 4 columns)"
    np.testing.assert_array_equal(TUPLES, PAIRS)
    assert np.asarray(TUPLES, dtype=np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="copy=False"):
        np.array(TUPLES, copy=False)


@pytest.mark.parametrize(
    "key",
    [
        slice(3, 9),
        slice(None, None, -7),
        [4, 4, 1],
        [],
        np.array([5, -1]),
        np.arange(N) % 3 == 0,
        (np.array([2, 0]), ...),
        ([1, 2], slice(None), slice(None)),
    ],
    ids=str,
)
def test_keys_that_select_tuples(key):
    chosen = TUPLES[key]
    assert isinstance(chosen, cf.Tuples)
    assert chosen.points.base is TUPLES.points.base
    np.testing.assert_array_equal(chosen, PAIRS[key])


@pytest.mark.parametrize(
    "key",
    [
        3,
        -1,
        np.int64(2),
        (slice(None), 0),
        (slice(2, 5), 1),
        (slice(None), 0, 2),
        (slice(None), slice(None), 1),
        (slice(None), slice(None), [0, 2]),
        (slice(3), slice(None, None, -1)),
        ([1, 2], 0),
        ([1, 2], [0, 1]),
        ([1, 2], slice(None), [0, 3]),
        (4, 1, 2),
        (..., 0),
        None,
        (slice(None), None),
        (slice(None), 0, slice(None)),
        np.arange(6).reshape(2, 3),
        RNG.random((N, 2)) > 0.5,
    ],
    ids=str,
)
def test_keys_that_form_an_array(key):
    found = TUPLES[key]
    assert isinstance(found, (np.ndarray, np.floating))
    np.testing.assert_array_equal(found, PAIRS[key])


@pytest.mark.parametrize("key", [(0, 0, 0, 0), (..., ...), (slice(None), 0, 0, 0)], ids=str)
def test_keys_that_are_refused(key):
    with pytest.raises(IndexError):
        TUPLES[key]


def test_it_can_not_be_changed():
    points, index = POINTS.copy(), INDEX.copy()
    tuples = cf.Tuples(points, index)
    for array in (tuples.points, tuples.index):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(AttributeError):
        tuples.points = POINTS
    points[0] = 1.0  # the user's own array stays theirs
    with pytest.raises(TypeError):
        hash(tuples)


def test_copies_and_equality():
    for other in (pickle.loads(pickle.dumps(TUPLES)), copy.copy(TUPLES), copy.deepcopy(TUPLES), TUPLES[:]):
        assert other == TUPLES
        assert not other.points.flags.writeable
    assert joblib.hash(TUPLES) == joblib.hash(cf.Tuples(POINTS, INDEX))
    assert TUPLES[1:] != TUPLES
    assert cf.Tuples(POINTS + 1.0, INDEX) != TUPLES
    assert (TUPLES == "pairs") is False


# What is accepted


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_an_index_keeps_its_type_and_is_not_copied(dtype):
    index = INDEX.astype(dtype)
    tuples = cf.Tuples(POINTS, index)
    assert tuples.index.dtype == dtype
    assert np.shares_memory(tuples.index, index)
    assert np.shares_memory(tuples.points, POINTS)
    np.testing.assert_allclose(
        cf.LinearMetricLearner(**PAPER).fit(tuples, FAR).metric_.matrix,
        cf.LinearMetricLearner(**PAPER).fit(TUPLES, FAR).metric_.matrix,
        rtol=1e-9,
    )


def test_numbers_that_are_objects_are_converted():
    index = pd.DataFrame(INDEX).astype("Int64")
    np.testing.assert_array_equal(cf.Tuples(POINTS.astype(object), index), PAIRS)


def test_a_memory_map_stays_one(tmp_path):
    np.save(tmp_path / "points.npy", POINTS.astype(np.float32))
    np.save(tmp_path / "index.npy", INDEX)
    points, index = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("points", "index"))
    tuples = cf.Tuples(points, index)
    assert tuples.dtype == tuples.points.dtype == np.float32
    assert np.shares_memory(tuples.points, points)
    assert np.shares_memory(tuples.index, index)
    expanded = cf.LinearMetricLearner(**PAPER).fit(points[INDEX], FAR)
    fitted = cf.LinearMetricLearner(**PAPER).fit(tuples, FAR)
    np.testing.assert_allclose(fitted.predict_proba(tuples), expanded.predict_proba(points[INDEX]), atol=1e-8)


@pytest.mark.parametrize("kind", [np.int32, np.float16, bool, ">f8"])
def test_other_numbers_become_double_precision_when_they_are_read(kind):
    points = (RNG.integers(0, 2, size=(9, 2))).astype(kind)
    tuples = cf.Tuples(points, [[0, 1], [2, 8]])
    assert np.shares_memory(tuples.points, points)
    assert tuples.dtype == tuples[0].dtype == np.asarray(tuples).dtype == np.float64
    np.testing.assert_array_equal(tuples, points[[[0, 1], [2, 8]]].astype(np.float64))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_names_of_frames_reach_the_learner(frame):
    def made(names):
        return cf.Tuples(frame(dict(zip(names, POINTS.T, strict=True))), INDEX)

    named = made(NAMES)
    assert named.feature_names == named[:5].feature_names == NAMES
    np.testing.assert_array_equal(named, PAIRS)
    learner = cf.LinearMetricLearner(**PAPER).fit(named, FAR)
    assert learner.metric_.feature_names == tuple(learner.feature_names_in_) == NAMES
    np.testing.assert_array_equal(learner.predict(named), learner.predict(TUPLES))
    with pytest.raises(ValueError, match="columns must be those of the fit"):
        learner.predict(made(NAMES[::-1]))
    assert not hasattr(learner.fit(TUPLES, FAR), "feature_names_in_")


def test_a_column_of_words_is_named():
    with pytest.raises(ValueError, match="columns must hold numbers; column 'colour'"):
        cf.Tuples(pd.DataFrame({"x": [1.0, 2.0], "colour": ["red", "blue"]}), [[0, 1]])


@pytest.mark.parametrize(
    ("points", "index", "rule"),
    [
        ([1.0, 2.0], [[0, 1]], "2D array"),
        (np.zeros(3), [[0, 1]], r"points must have shape \(n_points, d\).*got \(3,\)"),
        (np.zeros((3, 0)), [[0, 1]], "at least one column"),
        (np.array([["a"], ["b"]]), [[0, 1]], "points must hold real numbers; got an array of <U1"),
        (np.zeros((3, 1), dtype=complex), [[0, 1]], "points must hold real numbers"),
        (np.zeros((3, 1)), [0, 1], r"index must have shape \(n, 2\), \(n, 3\) or \(n, 4\).*got \(2,\)"),
        (np.zeros((3, 1)), [[0]], r"got \(1, 1\)"),
        (np.zeros((3, 1)), [[0.0, 1.0]], "index must hold integers.*got an array of float64"),
        (np.zeros((3, 1)), [[True, False]], "index must hold integers.*got an array of bool"),
        (np.zeros((3, 1)), [[0, 1], [2, -1]], "the 3 points, 0 to 2; got -1 in row 1, column 1"),
        (np.zeros((3, 1)), [[0, 3], [2, 1]], "the 3 points, 0 to 2; got 3 in row 0, column 1"),
        (np.array([[0.0], [np.nan], [1.0]]), [[0, 2], [2, 1]], "point 1, which occurs in tuple 1, has nan in column 0"),
        (pd.DataFrame({"x": [0.0, np.inf]}), [[0, 1]], "point 1, which occurs in tuple 0, has inf in column 'x'"),
    ],
)
def test_what_is_wrong_is_named(points, index, rule):
    with pytest.raises(ValueError, match=rule):
        cf.Tuples(points, index)


def test_points_that_do_not_occur_may_be_missing():
    """Neither many of them, which are left out, nor few, which count as zero, matter."""
    for n_more in (5, 500):
        points = np.vstack([np.full((n_more, D), np.nan), POINTS])
        tuples = cf.Tuples(points, INDEX + n_more)
        learner = cf.LinearMetricLearner(**PAPER).fit(tuples, FAR)
        np.testing.assert_allclose(
            learner.metric_.matrix, cf.LinearMetricLearner(**PAPER).fit(TUPLES, FAR).metric_.matrix, rtol=1e-8
        )
        np.testing.assert_allclose(learner.transform(tuples[:9]), learner.transform(PAIRS[:9]), rtol=1e-9)


def test_no_tuples():
    none = cf.Tuples(np.zeros((0, 2)), np.zeros((0, 2), dtype=int))
    assert none.shape == (0, 2, 2)
    np.testing.assert_array_equal(none, np.zeros((0, 2, 2)))
    with pytest.raises(ValueError, match="at least 2 pairs; got 0"):
        cf.LinearMetricLearner(**PAPER).fit(none, [])


@pytest.mark.parametrize("size", [3, 4])
def test_larger_tuples_are_no_pairs(size):
    tuples = cf.Tuples(POINTS, RNG.integers(N_POINTS, size=(20, size)))
    assert tuples.shape == (20, size, D)
    assert tuples[:, size - 1].shape == (20, D)
    with pytest.raises(ValueError, match=rf"pairs of two points .*; got \(20, {size}, \d+\)\. Fit triplets"):
        cf.LinearMetricLearner(**PAPER).fit(tuples, np.arange(20) % 2)


def test_pairs_have_no_origin():
    with pytest.raises(ValueError, match=r"fit_origin needs .*single points"):
        cf.LinearMetricLearner(fit_origin=True, **PAPER).fit(TUPLES, FAR)


# Rows: every operation agrees with that on differences


def rows_by_both(n, n_points, d, offset, kept):
    rng = np.random.default_rng(n)
    points, index = rng.standard_normal((n_points, d)) + offset, rng.integers(n_points, size=(n, 2))
    indexed, plain = rows_of(cf.Tuples(points, index)), rows_of(points[index])
    if kept == "mapped":
        coordinates = Coordinates(rng.standard_normal((d, d - 1)), None, np.zeros((d, 1)), np.ones(d))
        return indexed.in_coordinates(coordinates), plain.in_coordinates(coordinates)
    if kept == "some":
        some = rng.permutation(n)[: n // 5]
        return indexed.take_rows(some), plain.take_rows(some)
    return indexed, plain


@pytest.mark.parametrize("kept", ["all", "mapped", "some"])
@pytest.mark.parametrize(
    ("n", "n_points", "d", "offset"),
    [(400, 50, 6, 0.0), (400, 50, 6, 2020.0), (300, 2000, 6, 0.0), (700, 40, 150, 1.0)],
)
def test_operations_agree_with_those_on_differences(n, n_points, d, offset, kept):
    indexed, plain = rows_by_both(n, n_points, d, offset, kept)
    assert isinstance(indexed, IndexedRows) or n < n_points  # few pairs per point are mapped as differences
    assert indexed.shape == plain.shape
    rng = np.random.default_rng(1)
    m, k = indexed.shape
    left, right, coefficients = rng.standard_normal((k, 3)), rng.standard_normal((k, 3)), rng.standard_normal(m)
    symmetric = left @ left.T - right @ right.T
    basis, zero, weights = np.linalg.qr(rng.standard_normal((k, k)))[0], np.zeros(k), rng.random(m)

    def results(rows):
        ahead = rows.forward(left)
        moments = rows.rotated_moments(weights, (coefficients,), basis)
        found, gradient = rows.sweep(Pull(), symmetric, coefficients)
        yield from (rows.squared_distances(left), rows.forms(symmetric), rows.outer(coefficients))
        yield from (
            rows.backward(ahead, coefficients),
            rows.inner(ahead, rows.forward(right)),
            rows.inner(ahead, ahead),
        )
        yield from (rows.projected(left), rows.read(slice(0, m)))
        yield from (*moments, gradient, found.sums, *found.arrays)
        yield from (rows.second_moment(weights, zero, zero + 3.0), rows.second_moment(weights, zero + 1.0, zero + 3.0))
        if k < 20:
            yield rows.sum_of_squares(weights, (coefficients,))

    for found, expected in zip(results(indexed), results(plain), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-11 * np.abs(expected).max())
    assert np.all(indexed.largest(zero) >= plain.largest(zero) * (1.0 - 1e-12))


def test_points_that_are_not_kept_are_mapped_in_each_pass(monkeypatch):
    monkeypatch.setattr("closefar.rows.indexed.KEEP_BYTES", 0)
    monkeypatch.setattr("closefar.rows.indexed._HELD_BYTES", 0)
    test_operations_agree_with_those_on_differences(400, 50, 6, 2020.0, "mapped")
    test_operations_agree_with_those_on_differences(300, 2000, 6, 0.0, "some")


# Fits and questions


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"noise": "normal"},
        {"noise": "laplace"},
        {"noise": "hypsecant"},
        {"noise": "auto"},
        {"solver": "newton"},
        {"solver": "lowrank"},
        {"solver": "sampled"},
        {"rank": 1},
        {"rank": "auto"},
        {"alpha": 0.05},
        {"alpha": "auto"},
        {"alpha": 0.05, "prior": "standardized"},
        {"alpha": 0.05, "prior": "euclidean"},
        {"flip_rate": "estimate"},
        {"class_weight": "balanced"},
    ],
    ids=str,
)
def test_fits_agree_with_those_of_expanded_pairs(settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        indexed, plain = (cf.LinearMetricLearner(**PAPER | settings).fit(given, FAR) for given in (TUPLES, PAIRS))
    assert abs(indexed.certificate_.loss - plain.certificate_.loss) <= 1e-8
    np.testing.assert_allclose(indexed.predict_proba(TUPLES), plain.predict_proba(PAIRS), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_and_precisions(dtype):
    points, weights = POINTS.astype(dtype), RNG.integers(0, 4, size=N)
    indexed = cf.LinearMetricLearner(**PAPER).fit(cf.Tuples(points, INDEX), FAR, sample_weight=weights)
    plain = cf.LinearMetricLearner(**PAPER).fit(points[INDEX], FAR, sample_weight=weights)
    np.testing.assert_allclose(indexed.metric_.matrix, plain.metric_.matrix, rtol=1e-6, atol=1e-9)
    assert indexed.score(TUPLES, FAR, weights) == plain.score(PAIRS, FAR, weights)


@pytest.fixture(scope="module")
def learners():
    return tuple(cf.LinearMetricLearner(**PAPER).fit(given, FAR) for given in (TUPLES, PAIRS))


@pytest.mark.parametrize("method", ["predict", "decision_function", "transform", "pair_distance", "pair_score"])
def test_methods_agree(learners, method):
    indexed, plain = learners
    found, expected = getattr(indexed, method)(TUPLES), getattr(plain, method)(PAIRS)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize(
    "question",
    [
        lambda learner, data: [step.refit_loss for step in learner.truncation_path(data, FAR).steps],
        lambda learner, data: learner.check_noise_model(data, FAR, groups=INDEX).statistic,
        lambda learner, data: cf.confidence(learner, data, FAR, groups=INDEX).matrix.standard_error,
        lambda learner, data: cf.plan_sample_size(learner, data, FAR, target_error=0.01).n_pairs,
        lambda learner, data: cf.find_label_errors(learner, data, FAR, cv=3, groups=INDEX).probability,
        lambda learner, data: cf.choose_rank(learner, data, FAR, groups=INDEX, random_state=0).rank,
    ],
    ids=["truncation", "noise", "confidence", "planning", "label errors", "rank"],
)
def test_questions_agree(learners, question):
    indexed, plain = learners
    np.testing.assert_allclose(question(indexed, TUPLES), question(plain, PAIRS), rtol=1e-5, atol=1e-9)


def test_diagnosis_sees_both_points(capsys):
    points = np.exp(np.random.default_rng(3).standard_normal((300, 2)))
    index = np.random.default_rng(4).integers(300, size=(4000, 2))
    logs = np.log(points[index])
    far = np.sum((logs[:, 0] - logs[:, 1]) ** 2, axis=1) + np.random.default_rng(5).logistic(size=4000) > 2.0
    diagnosis = cf.LinearMetricLearner(**PAPER).fit(cf.Tuples(points, index), far).diagnose()
    assert "logarithm" in str(diagnosis)
    assert "logarithm" in capsys.readouterr().out


def test_reports_take_them(tmp_path, learners):
    indexed, _ = learners
    indexed.report(tmp_path / "report.json")
    assert '"point_map"' in (tmp_path / "report.json").read_text() or "points" in (tmp_path / "report.json").read_text()
    indexed.report(tmp_path / "report.txt", TUPLES[:200], FAR[:200])
    assert "200 pairs" in (tmp_path / "report.txt").read_text()


# scikit-learn, folds and groups


def test_tools_of_scikit_learn_take_them():
    train, test, train_far, test_far = train_test_split(TUPLES, FAR, random_state=0, stratify=FAR)
    assert isinstance(train, cf.Tuples)
    learner = cf.LinearMetricLearner(alpha=0.01, prior="zero", flip_rate=0.0)
    assert clone(learner).fit(train, train_far).score(test, test_far) > 0.8
    folds = StratifiedKFold(3)
    np.testing.assert_allclose(
        cross_val_score(learner, TUPLES, FAR, cv=folds), cross_val_score(learner, PAIRS, FAR, cv=folds)
    )
    search = GridSearchCV(make_pipeline(learner), {"linearmetriclearner__alpha": [0.0, 0.1]}, cv=3).fit(TUPLES, FAR)
    assert search.best_score_ > 0.8


def test_the_index_is_the_groups():
    folds = cf.PairGroupKFold(3, random_state=0)
    for own, given in zip(folds.split(TUPLES, FAR), folds.split(PAIRS, FAR, INDEX), strict=True):
        for one, other in zip(own, given, strict=True):
            np.testing.assert_array_equal(one, other)
    own, given = (cf.LinearMetricLearner().fit(TUPLES, FAR), cf.LinearMetricLearner().fit(PAIRS, FAR, groups=INDEX))
    assert own.choice_.held_out == given.choice_.held_out == "points"
    np.testing.assert_allclose([row.loss for row in own.choice_.table], [row.loss for row in given.choice_.table])


def test_points_are_numbered_by_the_index():
    numbers = find_points(cf.Tuples(POINTS, (INDEX // 2 * 2).astype(np.uint16)))
    np.testing.assert_array_equal(numbers, INDEX // 2)
    disjoint = cf.Tuples(POINTS, np.arange(N_POINTS).reshape(-1, 2))
    assert find_points(disjoint) is None
    assert find_points(cf.Tuples(np.zeros((N_POINTS, 2)), disjoint.index)) is None  # equal, but not the same


def test_equal_weights_take_no_memory():
    judgements = Judgements.read(cf.LinearMetricLearner(**PAPER), TUPLES, FAR)
    for array in (judgements.weights, judgements.shares, judgements.take(np.arange(9)).weights):
        assert array.strides == (0,)
    assert pickle.loads(pickle.dumps(judgements)).weights.strides == (0,)
    weighted = judgements.with_weights(np.ones(N))
    scored = [
        Scorer(cf.LinearMetricLearner(**PAPER).fit(TUPLES, FAR).metric_).score(each) for each in (judgements, weighted)
    ]
    np.testing.assert_allclose(scored[0].loss, scored[1].loss, rtol=1e-12)
    assert scored[0].judgements.effective_number == pytest.approx(N)
