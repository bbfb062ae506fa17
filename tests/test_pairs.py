"""What the learner accepts, what it refuses and in which words."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from sklearn.exceptions import DataConversionWarning, NotFittedError

import closefar as cf
from closefar.judgements import check_pairs
from paper_estimator import PAPER

N, D = 300, 4
NAMES = ["length", "mass", "time", "charge"]
DATA = cf.datasets.make_pairs(N, D, wrong_share=0.15, random_state=1)
PAIRS, LABELS = DATA.pairs, DATA.labels
DIFFERENCES = PAIRS[:, 0] - PAIRS[:, 1]
for _array in (PAIRS, LABELS, DIFFERENCES):
    _array.setflags(write=False)


def learner(**parameters):
    return cf.LinearMetricLearner(**{"tol": 1e-9} | PAPER | parameters)


def margins(X, y, *, on=DIFFERENCES, sample_weight=None, **parameters):
    return learner(**parameters).fit(X, y, sample_weight).decision_function(on)


def spoiled(array, value, where):
    array = array.copy()
    array[where] = value
    return array


def assert_same(result, expected):
    np.testing.assert_allclose(result, expected, rtol=1e-7, atol=1e-8)


@pytest.fixture(scope="module")
def expected():
    return margins(DIFFERENCES, LABELS)


@pytest.fixture(scope="module")
def fitted():
    return learner().fit(DIFFERENCES, LABELS)


# Refused pairs


@pytest.mark.parametrize(
    ("X", "rule"),
    [
        (spoiled(DIFFERENCES, np.nan, (3, 1)), "contains NaN"),
        (spoiled(DIFFERENCES, np.inf, (3, 1)), "contains infinity"),
        (spoiled(DIFFERENCES, -np.inf, (0, 0)), "contains infinity"),
        (spoiled(PAIRS, np.nan, (3, 1, 0)), "pairs contains NaN"),
        (spoiled(PAIRS, np.inf, (3, 1, 0)), "pairs contains infinity"),
        (DIFFERENCES[:, 0], "Expected 2D array, got 1D array"),
        (pd.Series(DIFFERENCES[:, 0]), "Expected 2D array, got 1D array|Expected a 2-dimensional container"),
        (np.float64(3.0), "Expected 2D array, got scalar array"),
        (PAIRS[..., None], "got 4 axes"),
        (np.zeros((N, 3, D)), r"pairs must have shape \(n, 2, d\).*got \(300, 3, 4\).*ComparisonMetricLearner"),
        (np.zeros((N, 1, D)), r"pairs must have shape \(n, 2, d\).*got \(300, 1, 4\)"),
        (np.zeros((N, 2, 0)), r"got \(300, 2, 0\)"),
        (np.zeros((N, 0)), r"0 feature\(s\) \(shape=\(300, 0\)\)"),
        (np.zeros((N, D)), "differences must not all be zero.*got only zero rows"),
        (np.stack([DIFFERENCES, DIFFERENCES], axis=1), "differences must not all be zero"),
        (np.full((N, D), "a"), "could not convert string to float"),
        (DIFFERENCES + 1j, "Complex data not supported"),
        ([[1.0, 2.0], [3.0]], "inhomogeneous"),
        ([[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0]]], "inhomogeneous"),
    ],
    ids=[
        "nan",
        "inf",
        "-inf",
        "nan in a pair",
        "inf in a pair",
        "one axis",
        "a series",
        "no axis",
        "four axes",
        "triples",
        "single sides",
        "pairs without columns",
        "no columns",
        "zero differences",
        "equal sides",
        "strings",
        "complex",
        "ragged rows",
        "ragged pairs",
    ],
)
def test_bad_pairs_are_refused(X, rule):
    with pytest.raises(ValueError, match=rule):
        learner().fit(X, LABELS)


@pytest.mark.parametrize("shape", [(0, D), (0, 2, D), (1, D), (1, 2, D)])
def test_too_few_pairs_are_refused(shape):
    rule = f"at least 2 pairs; got {shape[0]}" if len(shape) == 3 else rf"{shape[0]} sample\(s\).* minimum of 2"
    with pytest.raises(ValueError, match=rule):
        learner().fit(np.ones(shape), np.ones(shape[0]))


def test_empty_list_is_refused():
    with pytest.raises(ValueError, match="Expected 2D array"):
        learner().fit([], [])


@pytest.mark.parametrize("convert", [scipy.sparse.csr_array, scipy.sparse.csc_matrix, scipy.sparse.coo_array])
def test_sparse_matrices_are_refused(convert):
    with pytest.raises(TypeError, match=r"dense data is required.*toarray"):
        learner().fit(convert(DIFFERENCES), LABELS)


def _pandas(**columns):
    return pd.DataFrame(DIFFERENCES, columns=NAMES).assign(**columns)


def _polars(**columns):
    return pl.DataFrame(DIFFERENCES, schema=NAMES).with_columns(**columns)


@pytest.mark.parametrize(
    ("frame", "first"),
    [
        (_pandas(mass="heavy"), "heavy"),
        (_pandas(mass=np.array(["heavy", 1.0] * (N // 2), dtype=object)), "heavy"),
        (_pandas(mass=pd.Categorical(["heavy"] * N)), "heavy"),
        (_pandas(mass=pd.Timestamp("2020-01-01")), "2020-01-01"),
        (_pandas(mass=np.array([None, 1.0] * (N // 2), dtype=object)), "None"),
        (_polars(mass=pl.lit("heavy")), "heavy"),
    ],
    ids=["pandas str", "pandas mixed", "pandas category", "pandas date", "pandas None", "polars str"],
)
def test_column_that_holds_no_numbers_is_named(frame, first):
    with pytest.raises(ValueError, match=rf"columns must hold numbers; column 'mass' has type .*{first}.*leave it out"):
        learner().fit(frame, LABELS)


def test_columns_of_one_name_that_hold_no_numbers_are_named():
    frame = pd.DataFrame({"a": ["x"] * N, "b": DIFFERENCES[:, 0]})
    frame.columns = ["mass", "mass"]
    with pytest.raises(ValueError, match="columns must hold numbers; column 'mass'"):
        learner().fit(frame, LABELS)


def test_column_of_no_rows_that_holds_no_numbers_is_named():
    with pytest.raises(ValueError, match=r"columns must hold numbers; column 'mass' has type datetime64\S+ Encode it"):
        learner().fit(_pandas(mass=pd.Timestamp("2020-01-01"))[:0], LABELS[:0])


@pytest.mark.parametrize(
    "frame",
    [_pandas(mass=pd.array([1, None] * (N // 2), dtype="Int64")), _polars(mass=pl.lit(None))],
    ids=["pandas", "polars"],
)
def test_missing_values_in_a_frame_are_refused(frame):
    with pytest.raises(ValueError, match="contains NaN"):
        learner().fit(frame, LABELS)


# Refused labels and weights


@pytest.mark.parametrize(
    ("y", "rule"),
    [
        (np.arange(N) % 3, r"two values, one for close and one for far; got 3"),
        (np.ones(N), r"both a close and a far class; got one class only: .*1"),
        (np.linspace(0, 1, N), "continuous"),
        (LABELS[:-1], "one label per pair; got 299 labels for 300 pairs"),
        (np.append(LABELS, 1), "one label per pair; got 301 labels for 300 pairs"),
        (np.column_stack([LABELS, LABELS]), r"1d array, got an array of shape \(300, 2\)"),
        (None, "requires y to be passed.*one close/far label or level per pair"),
        (np.array([1, None] * (N // 2), dtype=object), "label type"),
    ],
    ids=["three", "one", "continuous", "too few", "too many", "two columns", "none", "missing"],
)
@pytest.mark.parametrize("X", [DIFFERENCES, PAIRS], ids=["differences", "pairs"])
def test_bad_labels_are_refused(X, y, rule):
    with pytest.raises(ValueError, match=rule):
        learner().fit(X, y)


@pytest.mark.parametrize(
    ("sample_weight", "rule"),
    [
        (-np.ones(N), "sample_weight must be >= 0; got -1"),
        (spoiled(np.ones(N), -1e-9, 5), "sample_weight must be >= 0; got -1e-09"),
        (spoiled(np.ones(N), np.nan, 5), "sample_weight contains NaN"),
        (spoiled(np.ones(N), np.inf, 5), "sample_weight contains infinity"),
        (
            (LABELS == 1).astype(float),
            r"both classes need a pair of positive weight; every pair of class .*-1.* weight 0",
        ),
        (
            (LABELS == -1).astype(float),
            r"both classes need a pair of positive weight; every pair of class .*1.* weight 0",
        ),
        (np.zeros(N), "at least one non-zero number; got only zeros"),
        (np.ones(N - 1), r"sample_weight must hold one number per pair; got shape \(299,\) for 300 pairs"),
        (np.ones((N, 2)), r"sample_weight must hold one number per pair; got shape \(300, 2\)"),
    ],
    ids=["negative", "one negative", "nan", "inf", "no close", "no far", "zero", "too few", "two columns"],
)
def test_bad_weights_are_refused(sample_weight, rule):
    with pytest.raises(ValueError, match=rule):
        learner().fit(DIFFERENCES, LABELS, sample_weight)


@pytest.mark.parametrize(
    ("class_weight", "rule"),
    [
        ({-1: 0.0, 1: 1.0}, "both classes need a pair of positive weight"),
        ({-1: -2.0, 1: 1.0}, "-2"),
        ({7: 1.0}, "not in class_weight"),
        ("even", "'even'"),
    ],
    ids=str,
)
def test_bad_class_weights_are_refused(class_weight, rule):
    with pytest.raises(ValueError, match=rule):
        learner(class_weight=class_weight).fit(DIFFERENCES, LABELS)


# Refused parameters


@pytest.mark.parametrize(
    ("parameters", "rule"),
    [
        ({"rank": 5}, 'rank must be None, "auto" or a whole number from 1 to the 4 columns; got 5'),
        ({"rank": 0}, "rank must be .*got 0"),
        ({"rank": -1}, "rank must be .*got -1"),
        ({"rank": 2.5}, "rank must be .*got 2.5"),
        ({"rank": True}, "rank must be .*got True"),
        ({"rank": "2"}, "rank must be .*got '2'"),
        ({"noise": "cauchy"}, "noise must be one of 'logistic'.*got 'cauchy'"),
        ({"noise": None}, "noise must be one of .*got None"),
        ({"solver": "sgd"}, "solver must be one of .*'auto'.*got 'sgd'"),
        ({"solver": None}, "solver must be one of .*got None"),
        ({"alpha": -1.0}, 'alpha must be a finite number >= 0 or "auto"; got -1.0'),
        ({"alpha": np.nan}, 'alpha must be a finite number >= 0 or "auto"; got nan'),
        ({"alpha": "0"}, "alpha must be a finite number >= 0 or \"auto\"; got '0'"),
        ({"prior": "unit"}, "prior must be one of .*'euclidean'.* or a Metric; got 'unit'"),
        ({"tol": -1e-3}, "tol must be a finite number >= 0; got -0.001"),
        ({"tol": np.inf}, "tol must be a finite number >= 0; got inf"),
        ({"tol": None}, "tol must be a finite number >= 0; got None"),
        ({"max_iter": 0}, "max_iter must be a whole number >= 1; got 0"),
        ({"max_iter": 1.5}, "max_iter must be a whole number >= 1; got 1.5"),
        ({"far_label": 7}, "far_label must be one of the two labels .*got 7"),
        ({"far_label": "far"}, "far_label must be one of the two labels .*got 'far'"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(parameters, rule):
    with pytest.raises(ValueError, match=rule):
        learner(**parameters).fit(DIFFERENCES, LABELS)


def test_pairs_have_no_origin():
    with pytest.raises(ValueError, match=r"fit_origin needs .* single points.*got pairs of shape \(300, 2, 4\)"):
        learner(fit_origin=True).fit(PAIRS, LABELS)


# Refused at prediction

METHODS = ["predict", "predict_proba", "decision_function", "pair_distance", "pair_score"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("X", "rule"),
    [
        (DIFFERENCES[:, :3], "X has 3 features, but LinearMetricLearner is expecting 4 features"),
        (PAIRS[:, :, :3], "pairs must have the 4 columns that LinearMetricLearner was fitted with; got 3"),
        (np.zeros((N, 3, D)), r"pairs must have shape \(n, 2, d\)"),
        (DIFFERENCES[0], "Expected 2D array, got 1D array"),
        (DIFFERENCES[:0], r"0 sample\(s\)"),
        (PAIRS[:0], "there must be at least 1 pair; got 0"),
        (spoiled(DIFFERENCES, np.nan, (0, 0)), "contains NaN"),
        (spoiled(PAIRS, np.nan, (0, 0, 0)), "contains NaN"),
    ],
    ids=["columns", "columns of pairs", "triples", "one axis", "empty", "empty pairs", "nan", "nan in a pair"],
)
def test_bad_pairs_are_refused_at_prediction(fitted, method, X, rule):
    with pytest.raises(ValueError, match=rule):
        getattr(fitted, method)(X)


@pytest.mark.parametrize("method", [*METHODS, "transform"])
def test_unfitted_learner_says_so(method):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(learner(), method)(DIFFERENCES)


def test_transform_maps_both_sides_of_pairs(fitted):
    mapped = fitted.transform(PAIRS)
    lengths = np.linalg.norm(mapped[:, 0] - mapped[:, 1], axis=1)
    np.testing.assert_allclose(lengths, fitted.pair_distance(PAIRS), rtol=1e-10)


def test_frame_with_columns_in_another_order_is_refused():
    model = learner().fit(_pandas(), LABELS)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(_pandas()[NAMES[::-1]])


# Labels

ENCODINGS = {
    "-1, 1": LABELS,
    "0, 1": (LABELS + 1) // 2,
    "floats": LABELS.astype(float),
    "booleans": LABELS == 1,
    "close, far": np.where(LABELS == 1, "far", "close"),
    "Close, Far": np.where(LABELS == 1, "Far", "Close"),
    "objects": np.where(LABELS == 1, "far", "close").astype(object),
    "list": np.where(LABELS == 1, "far", "close").tolist(),
    "pandas": pd.Series(np.where(LABELS == 1, "far", "close"), index=np.arange(N)[::-1]),
    "category": pd.Series(np.where(LABELS == 1, "far", "close"), dtype="category"),
    "polars": pl.Series(np.where(LABELS == 1, "far", "close")),
}


@pytest.mark.parametrize("y", ENCODINGS.values(), ids=ENCODINGS.keys())
def test_label_encodings_give_the_same_margins(y, expected):
    model = learner().fit(DIFFERENCES, y)
    assert_same(model.decision_function(DIFFERENCES), expected)
    far = np.asarray(y)[LABELS == 1][0]
    assert model.classes_[1] == far
    np.testing.assert_array_equal(model.predict(DIFFERENCES) == far, expected >= 0)
    np.testing.assert_array_equal(np.argmax(model.predict_proba(DIFFERENCES), axis=1), expected >= 0)


@pytest.mark.parametrize(
    "y",
    [-LABELS, (1 - LABELS) // 2, LABELS == -1, np.where(LABELS == 1, "away", "near")],
    ids=["-1", "0", "False", "away"],
)
def test_far_label_says_which_label_is_far(y, expected):
    far, close = y[LABELS == 1][0], y[LABELS == -1][0]
    model = learner(far_label=far).fit(DIFFERENCES, y)
    assert model.far_label_ == far
    assert model.classes_.tolist() == [far, close]  # sorted, as scikit-learn has them
    # What scikit-learn asks for follows the classes: positive means the last of them.
    assert_same(model.decision_function(DIFFERENCES), -expected)
    np.testing.assert_array_equal(model.predict(DIFFERENCES), np.where(expected >= 0, far, close))
    np.testing.assert_array_equal(np.argmax(model.predict_proba(DIFFERENCES), axis=1), expected < 0)


@pytest.mark.filterwarnings("ignore:the labels fit far better with close and far swapped")
def test_far_label_turns_the_meaning_of_labels_over():
    turned = learner(far_label=-1).fit(DIFFERENCES, LABELS)
    assert turned.classes_.tolist() == [-1, 1]
    assert_same(turned.decision_function(DIFFERENCES), -margins(DIFFERENCES, -LABELS))


def test_other_words_warn_which_one_is_far(expected):
    with pytest.warns(UserWarning, match=r"'no' and 'yes': the last one is taken as far. Set far_label"):
        model = learner().fit(DIFFERENCES, np.where(LABELS == 1, "yes", "no"))
    assert_same(model.decision_function(DIFFERENCES), expected)


def test_labels_in_a_column_warn(expected):
    with pytest.warns(DataConversionWarning, match="1d array was expected"):
        model = learner().fit(DIFFERENCES, LABELS[:, None])
    assert_same(model.decision_function(DIFFERENCES), expected)


# Weights


def test_weight_of_two_counts_twice():
    weights = np.random.default_rng(0).integers(1, 4, size=N)
    repeated = np.repeat(np.arange(N), weights)
    result = margins(DIFFERENCES, LABELS, sample_weight=weights)
    assert_same(result, margins(DIFFERENCES[repeated], LABELS[repeated]))


@pytest.mark.parametrize("X", [DIFFERENCES, PAIRS], ids=["differences", "pairs"])
def test_weight_of_zero_leaves_a_pair_out(X):
    weights = (np.arange(N) % 3 > 0).astype(float)
    kept = weights > 0
    assert_same(margins(X, LABELS, sample_weight=weights), margins(X[kept], LABELS[kept]))


@pytest.mark.parametrize("weight", [1e-6, 1, 1e6])
def test_equal_weights_do_not_matter(weight, expected):
    assert_same(margins(DIFFERENCES, LABELS, sample_weight=np.full(N, weight)), expected)
    assert_same(margins(DIFFERENCES, LABELS, sample_weight=weight), expected)


def test_class_weights_multiply_sample_weights():
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=N)
    both = margins(DIFFERENCES, LABELS, sample_weight=weights, class_weight={-1: 3.0, 1: 0.5})
    assert_same(both, margins(DIFFERENCES, LABELS, sample_weight=weights * np.where(LABELS == 1, 0.5, 3.0)))


# Accepted forms of the same numbers


@pytest.mark.parametrize("frame", [_pandas(), _polars()], ids=["pandas", "polars"])
def test_frames_keep_their_names(frame, expected):
    model = learner().fit(frame, LABELS)
    assert model.feature_names_in_.tolist() == NAMES
    assert model.metric_.feature_names == tuple(NAMES)
    assert_same(model.decision_function(frame), expected)


def test_nullable_columns_are_numbers(expected):
    frame = _pandas().astype("Float64")
    model = learner().fit(frame, LABELS)
    assert model.feature_names_in_.tolist() == NAMES
    assert_same(model.decision_function(frame), expected)


@pytest.mark.parametrize(
    "frame",
    [
        _pandas(mass=LABELS > 0),
        _pandas(mass=(LABELS > 0).astype(object)),
        _pandas(mass=np.where(np.arange(N) % 2, 1 * (LABELS > 0), 1.0 * (LABELS > 0)).astype(object)),
        _pandas(mass=pd.array(LABELS > 0, dtype="boolean")),
        _polars(mass=pl.Series(LABELS > 0)),
        _polars(mass=pl.Series(LABELS > 0).cast(pl.UInt8)),
    ],
    ids=["bool", "objects", "mixed objects", "nullable", "polars", "polars integers"],
)
def test_truth_values_are_numbers(fitted, frame):
    numbers = np.column_stack([DIFFERENCES[:, 0], LABELS > 0, DIFFERENCES[:, 2:]])
    with pytest.warns(UserWarning, match="X has feature names"):
        assert_same(fitted.decision_function(frame), fitted.decision_function(numbers))


@pytest.mark.parametrize(
    "X", [DIFFERENCES[:1], DIFFERENCES[:1].tolist(), PAIRS[:1], PAIRS[:1].tolist(), list(PAIRS[:1]), tuple(PAIRS[:1])]
)
def test_one_pair_is_enough_for_a_prediction(fitted, X, expected):
    assert_same(fitted.decision_function(X), expected[:1])


@pytest.mark.parametrize("X", [DIFFERENCES, PAIRS], ids=["differences", "pairs"])
def test_two_pairs_are_enough_for_a_fit(X):
    assert check_pairs(learner(), X[:2], fitting=True).shape == X[:2].shape


def test_numbered_columns_are_no_names(expected):
    model = learner().fit(pd.DataFrame(DIFFERENCES), LABELS)
    assert not hasattr(model, "feature_names_in_")
    assert model.metric_.feature_names is None
    assert_same(model.decision_function(DIFFERENCES), expected)


@pytest.mark.parametrize("again", [DIFFERENCES, PAIRS, PAIRS[:, :, :3]], ids=["differences", "pairs", "fewer columns"])
def test_names_do_not_outlive_their_fit(again):
    model = learner().fit(_pandas(), LABELS)
    model.fit(again, LABELS)
    assert not hasattr(model, "feature_names_in_")
    assert model.metric_.feature_names is None
    assert model.n_features_in_ == again.shape[-1]


def test_pairs_equal_their_differences(expected):
    model = learner().fit(PAIRS, LABELS)
    assert_same(model.decision_function(PAIRS), expected)
    assert_same(model.decision_function(DIFFERENCES), expected)
    assert_same(model.decision_function(PAIRS[:, ::-1]), expected)


def test_side_of_a_pair_does_not_matter(expected):
    turned = np.where(np.arange(N)[:, None, None] % 2 == 0, PAIRS, PAIRS[:, ::-1])
    assert_same(margins(turned, LABELS), expected)


@pytest.mark.parametrize(
    "X",
    [DIFFERENCES.tolist(), tuple(map(tuple, DIFFERENCES)), PAIRS.tolist(), [(left, right) for left, right in PAIRS]],
    ids=["rows", "tuples", "pairs", "pairs of arrays"],
)
def test_lists_are_taken(X, expected):
    assert_same(margins(X, LABELS.tolist(), on=X), expected)


def _read_only(array, folder):
    array = array.copy()
    array.setflags(write=False)
    return array


def _writeable(array, folder):
    return array.copy()


def _fortran(array, folder):
    return np.asfortranarray(array)


def _strided(array, folder):
    return np.repeat(array, 2, axis=0)[::2]


def _reversed_memory(array, folder):
    return array[::-1].copy()[::-1]


def _memory_mapped(array, folder):
    path = folder / "array.npy"
    np.save(path, array)
    return np.load(path, mmap_mode="r")


def _memory_mapped_for_writing(array, folder):
    mapped = np.memmap(folder / "array.bin", dtype=array.dtype, mode="w+", shape=array.shape)
    mapped[:] = array
    return mapped


def _big_endian(array, folder):
    return array.astype(">f8")


def _objects(array, folder):
    return array.astype(object)


FORMS = [
    _writeable,
    _read_only,
    _fortran,
    _strided,
    _reversed_memory,
    _memory_mapped,
    _memory_mapped_for_writing,
    _big_endian,
    _objects,
]


@pytest.mark.parametrize("array", [DIFFERENCES, PAIRS], ids=["differences", "pairs"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__.strip("_"))
def test_memory_of_the_input_does_not_matter(array, form, tmp_path, expected):
    X = form(array, tmp_path)
    before = X.tobytes()
    assert_same(margins(X, LABELS, on=X), expected)
    assert X.tobytes() == before


@pytest.mark.parametrize("fit_origin", [False, True])
def test_nothing_given_is_modified(fit_origin):
    given = [DIFFERENCES.copy(), LABELS.copy(), np.random.default_rng(0).uniform(size=N)]
    before = [array.tobytes() for array in given]
    model = learner(fit_origin=fit_origin, class_weight="balanced").fit(*given)
    for method in (*METHODS, "transform"):
        getattr(model, method)(given[0])
    model.score(given[0], given[1])
    assert [array.tobytes() for array in given] == before


@pytest.mark.parametrize("array", [DIFFERENCES, PAIRS], ids=["differences", "pairs"])
@pytest.mark.parametrize(("dtype", "accuracy"), [(np.float32, 1e-4), (np.float16, 0.05)])
def test_short_floats_are_nearly_the_same(array, dtype, accuracy, expected):
    X = array.astype(dtype)
    before = X.tobytes()
    result = margins(X, LABELS, on=X)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, expected, rtol=accuracy, atol=accuracy)
    assert X.tobytes() == before


def test_differences_of_float32_pairs_are_exact():
    """Two sides that agree in their leading digits are subtracted in float64."""
    far_away = (PAIRS + 1000.0).astype(np.float32)
    exact = far_away.astype(np.float64)
    assert_same(margins(far_away, LABELS, on=far_away), margins(exact, LABELS, on=exact))


@pytest.mark.parametrize(("dtype", "centre"), [(np.int8, 0), (np.uint8, 128), (np.int64, 0)])
def test_integers_count_as_floats(dtype, centre):
    exact = np.clip(np.round(20 * PAIRS), -128, 127) + centre
    X = exact.astype(dtype)
    differences = exact[:, 0] - exact[:, 1]
    assert_same(margins(X, LABELS, on=X), margins(differences, LABELS, on=differences))
