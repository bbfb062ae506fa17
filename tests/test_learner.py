"""The estimator as scikit-learn, pandas, polars and a person at a terminal meet it."""

import pickle
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import closefar as cf
from closefar.noise import NOISES
from closefar.solve import SOLVERS
from paper_estimator import PAPER

N, D = 600, 4
NAMES = ["length", "mass", "time", "charge"]
DATA = cf.datasets.make_pairs(N, D, rank=3, wrong_share=0.15, random_state=1)
PAIRS, LABELS = DATA.pairs, DATA.labels
X = PAIRS[:, 0] - PAIRS[:, 1]
for _array in (PAIRS, LABELS, X):
    _array.setflags(write=False)


@pytest.fixture(scope="module")
def learner():
    return cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(X, LABELS)


@pytest.fixture(params=sorted(NOISES))
def noise(request):
    return request.param


def same_probabilities(left, right, on=X, atol=1e-12):
    np.testing.assert_allclose(left.predict_proba(on), right.predict_proba(on), rtol=0, atol=atol)


# scikit-learn


def _expected_failures(estimator):
    """Copies of a pair may be in several folds, so that weights are not the same as repeats to what is chosen."""
    name = "check_sample_weight_equivalence_on_dense_data"
    return {name: "settings are chosen by folds of pairs"} if estimator.alpha == "auto" else {}


# The checks fit separable and tiny data, of which the learner rightly warns, and labels that scikit-learn can't cast.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@parametrize_with_checks(
    [
        cf.LinearMetricLearner(),
        *(cf.LinearMetricLearner(noise, **PAPER) for noise in sorted(NOISES)),
        cf.LinearMetricLearner(fit_origin=True, **PAPER),
    ],
    expected_failed_checks=_expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_pipeline_and_units(learner):
    pipeline = make_pipeline(StandardScaler(with_mean=False), cf.LinearMetricLearner(tol=1e-9, **PAPER)).fit(X, LABELS)
    assert pipeline.score(X, LABELS) == learner.score(X, LABELS)
    same_probabilities(pipeline, learner, atol=1e-6)


def test_transform_in_a_pipeline_feeds_a_classifier():
    rng = np.random.default_rng(2)
    points = rng.standard_normal((200, 2)) + 4.0 * (np.arange(200) % 2)[:, None]
    classes = np.arange(200) % 2
    pairs, labels = cf.datasets.pairs_from_points(points, classes, n_pairs=2000, random_state=0)
    learner = cf.LinearMetricLearner(alpha=0.001, prior="zero", flip_rate=0.0).fit(pairs, labels)
    neighbours = KNeighborsClassifier(5).fit(learner.transform(points), classes)
    assert neighbours.score(learner.transform(points), classes) > 0.95


def test_grid_search():
    search = GridSearchCV(cf.LinearMetricLearner(**PAPER), {"alpha": [0.0, 0.01, 100.0]}, scoring="neg_log_loss", cv=3)
    search.fit(X, LABELS)
    assert search.best_params_["alpha"] < 100.0
    scores = search.cv_results_["mean_test_score"]
    assert np.all(np.isfinite(scores))
    assert scores[0] > scores[2]


def test_cross_validation_of_three_dimensional_pairs():
    assert cross_val_score(cf.LinearMetricLearner(**PAPER), PAIRS, LABELS, cv=3).mean() > 0.75


def test_clone_keeps_parameters_and_drops_the_fit(learner):
    copy = clone(learner.set_params(verbose=0))
    assert copy.get_params() == learner.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(X)


def test_pickle(learner):
    copy = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(copy.predict_proba(X), learner.predict_proba(X))
    assert copy.metric_ == learner.metric_
    assert copy.certificate_ == learner.certificate_
    assert copy.summary() == learner.summary()


@pytest.mark.parametrize(
    "method",
    [
        "predict",
        "predict_proba",
        "decision_function",
        "transform",
        "pair_distance",
        "pair_score",
        "get_metric",
        "get_mahalanobis_matrix",
        "summary",
        "get_feature_names_out",
    ],
)
def test_unfitted(method):
    arguments = [] if method.startswith("get_") or method == "summary" else [X]
    with pytest.raises(NotFittedError):
        getattr(cf.LinearMetricLearner(**PAPER), method)(*arguments)


@pytest.mark.parametrize("name", ["metric_", "certificate_", "classes_", "noise_comparison_", "choice_", "baseline_"])
def test_what_is_learned_is_not_there_before(name):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(cf.LinearMetricLearner(**PAPER), name)


# Frames


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_set_output(library):
    frame = pd.DataFrame(X, columns=NAMES) if library == "pandas" else pl.DataFrame(X, schema=NAMES)
    learner = cf.LinearMetricLearner(**PAPER).set_output(transform=library).fit(frame, LABELS)
    mapped = learner.transform(frame)
    assert isinstance(mapped, pd.DataFrame if library == "pandas" else pl.DataFrame)
    assert list(mapped.columns) == list(learner.get_feature_names_out())
    np.testing.assert_allclose(np.asarray(mapped), X @ learner.components_.T, rtol=0, atol=1e-12)
    assert list(learner.feature_names_in_) == NAMES
    assert learner.metric_.feature_names == tuple(NAMES)


def test_feature_names_out(learner):
    names = learner.get_feature_names_out()
    assert list(names) == [f"linearmetriclearner{index}" for index in range(learner.metric_.rank)]


# Fitted values


def test_fitted_attributes(learner):
    assert isinstance(learner.metric_, cf.Metric)
    assert isinstance(learner.certificate_, cf.Certificate)
    assert learner.n_features_in_ == D
    assert learner.classes_.tolist() == [-1, 1]
    assert learner.components_.shape == (learner.metric_.rank, D)
    assert learner.n_iter_ >= 1
    assert not hasattr(learner, "feature_names_in_")
    np.testing.assert_array_equal(learner.get_mahalanobis_matrix(), learner.metric_.matrix)
    np.testing.assert_allclose(learner.components_.T @ learner.components_, learner.metric_.matrix, atol=1e-12)


def test_probabilities(noise):
    learner = cf.LinearMetricLearner(noise, **PAPER).fit(X, LABELS)
    probabilities = learner.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    np.testing.assert_allclose(probabilities[:, 1], learner.metric_.probability_far(X), rtol=1e-12)
    np.testing.assert_allclose(probabilities[:, 1], NOISES[noise].cdf(learner.decision_function(X)), rtol=1e-12)
    np.testing.assert_array_equal(learner.predict(X), np.where(probabilities[:, 1] >= 0.5, 1, -1))


def test_decision_function_is_the_margin(learner):
    expected = np.einsum("ij,jk,ik->i", X, learner.metric_.matrix, X) - learner.metric_.threshold
    np.testing.assert_allclose(learner.decision_function(X), expected, rtol=1e-10, atol=1e-10)


def test_score_is_accuracy(learner):
    assert learner.score(X, LABELS) == accuracy_score(LABELS, learner.predict(X))
    assert learner.score(X, LABELS) == learner.fit_statistics_.accuracy
    assert 0.75 < learner.score(X, LABELS) < 1.0


def test_distances(learner):
    np.testing.assert_allclose(learner.transform(X), X @ learner.components_.T, rtol=0, atol=1e-13)
    distances = learner.pair_distance(PAIRS)
    mapped = learner.transform(PAIRS[:, 0]) - learner.transform(PAIRS[:, 1])
    np.testing.assert_allclose(distances, np.linalg.norm(mapped, axis=1), rtol=1e-9)
    np.testing.assert_allclose(distances, learner.pair_distance(X), rtol=1e-12)
    np.testing.assert_allclose(distances, learner.metric_.distance(PAIRS[:, 0], PAIRS[:, 1]), rtol=1e-12)
    np.testing.assert_array_equal(learner.pair_score(PAIRS), -distances)
    np.testing.assert_allclose(distances**2 - learner.metric_.threshold, learner.decision_function(PAIRS), atol=1e-10)


def test_metric_as_a_callable_of_scikit_learn(learner):
    points, classes = PAIRS[:80, 0], np.arange(80) % 3
    by_callable = KNeighborsClassifier(1, metric=learner.get_metric(), algorithm="brute").fit(points, classes)
    by_transform = KNeighborsClassifier(1, algorithm="brute").fit(learner.transform(points), classes)
    fresh = PAIRS[80:120, 1]
    np.testing.assert_array_equal(by_callable.predict(fresh), by_transform.predict(learner.transform(fresh)))
    assert learner.get_metric()(points[0], points[1]) == pytest.approx(
        learner.pair_distance(PAIRS[:1] * 0 + points[:2])[0]
    )


# Labels and weights


@pytest.mark.parametrize("labels", [LABELS > 0, (LABELS > 0).astype(int), np.where(LABELS > 0, "far", "close")])
def test_kinds_of_labels(learner, labels):
    other = cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(X, labels)
    same_probabilities(other, learner)
    assert set(other.predict(X)) <= set(labels.tolist())
    assert other.score(X, labels) == learner.score(X, LABELS)


def test_far_label_turns_the_classes_over(learner):
    other = cf.LinearMetricLearner(tol=1e-9, far_label=-1, **PAPER).fit(X, -LABELS)
    assert other.classes_.tolist() == [-1, 1]
    assert other.far_label_ == -1
    np.testing.assert_allclose(other.predict_proba(X), learner.predict_proba(X)[:, ::-1], atol=1e-9)
    np.testing.assert_array_equal(other.predict(X), -learner.predict(X))


def test_sample_weight_counts_as_repeats():
    repeats = np.random.default_rng(3).integers(0, 4, N)
    weighted = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(X, LABELS, sample_weight=repeats)
    repeated = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(np.repeat(X, repeats, axis=0), np.repeat(LABELS, repeats))
    same_probabilities(weighted, repeated, atol=1e-6)
    assert weighted.certificate_.loss == pytest.approx(repeated.certificate_.loss, abs=1e-9)
    assert weighted.fit_statistics_.share_far == pytest.approx(repeated.fit_statistics_.share_far)


def test_balanced_class_weight_is_those_sample_weights():
    keep = (LABELS < 0) | (np.arange(N) % 4 == 0)
    few_far, labels = X[keep], LABELS[keep]
    balanced = cf.LinearMetricLearner(class_weight="balanced", tol=1e-10, **PAPER).fit(few_far, labels)
    weights = np.where(labels > 0, 1.0 / np.sum(labels > 0), 1.0 / np.sum(labels < 0))
    by_hand = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(few_far, labels, sample_weight=weights)
    plain = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(few_far, labels)
    same_probabilities(balanced, by_hand, atol=1e-7)
    assert balanced.predict_proba(few_far)[:, 1].mean() > plain.predict_proba(few_far)[:, 1].mean() + 0.05
    assert balanced.fit_statistics_.share_far == pytest.approx(0.5)


def test_class_weight_as_a_dict():
    by_class = cf.LinearMetricLearner(class_weight={-1: 1.0, 1: 3.0}, tol=1e-10, **PAPER).fit(X, LABELS)
    by_pair = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(X, LABELS, sample_weight=np.where(LABELS > 0, 3.0, 1.0))
    same_probabilities(by_class, by_pair, atol=1e-7)


# Determinism


def test_random_state():
    data = cf.datasets.make_pairs(4000, 4, wrong_share=0.2, random_state=5)

    def fit(state):
        return cf.LinearMetricLearner(random_state=state, **PAPER).fit(data.pairs, data.labels)

    assert fit(7).metric_ == fit(7).metric_
    assert fit(None).metric_ == fit(None).metric_
    assert fit(np.random.RandomState(7)).metric_ == fit(7).metric_
    for state in (7, 8, None):
        assert fit(state).certificate_.loss == pytest.approx(fit(0).certificate_.loss, abs=1e-6)


def test_fitting_leaves_the_input_alone_and_a_second_fit_forgets_the_first(learner):
    pairs, labels = PAIRS.copy(), LABELS.copy()
    again = cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(-2.0 * X[:, :2], LABELS)
    again.fit(pairs, labels)
    np.testing.assert_array_equal(pairs, PAIRS)
    np.testing.assert_array_equal(labels, LABELS)
    assert again.metric_ == cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(PAIRS, LABELS).metric_


# The summary


def test_summary_says_what_was_learned(learner):
    named = cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(pd.DataFrame(X, columns=NAMES), LABELS)
    text, certificate, statistics = named.summary(), named.certificate_, named.fit_statistics_

    def value_of(label):
        return re.search(rf"{re.escape(label)}:\s+(\S+)", text).group(1)

    assert int(value_of("Features (d)")) == D
    assert int(value_of("Pairs (N)")) == N
    assert float(value_of("Share far")) == pytest.approx(np.mean(LABELS > 0), abs=1e-4)
    assert float(value_of("Loss")) == pytest.approx(certificate.loss, abs=1e-6)
    share = np.mean(LABELS > 0)
    null_loss = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    assert float(value_of("Null loss")) == pytest.approx(null_loss, abs=1e-6)
    assert float(value_of("Pseudo-R2")) == pytest.approx(1.0 - certificate.loss / null_loss, abs=1e-4)
    assert float(value_of("Proven gap")) == pytest.approx(certificate.gap, rel=0.06)
    assert float(value_of("Wrong labels")) == pytest.approx(statistics.wrong_share, abs=1e-4)
    assert float(value_of("Threshold (tau)")) == pytest.approx(named.metric_.threshold, rel=1e-5)
    assert "converged" in text
    for number, value in enumerate(named.metric_.data_eigenvalues, start=1):
        assert re.search(rf"^{number} +{re.escape(f'{value:.6g}')} ", text, re.M)
    direction = named.metric_.data_factor[:, 0] * np.sqrt(np.mean(X**2, axis=0))
    direction /= np.linalg.norm(direction)
    for name, loading in zip(NAMES, direction, strict=True):
        assert re.search(rf"{name}\s+{re.escape(f'{loading:+.4f}')}", text)
    assert max(map(len, text.splitlines())) <= 78
    assert "x0" in learner.summary()


def test_loadings_of_the_summary_do_not_depend_on_units():
    units = 10.0 ** np.arange(D)
    first, second = (
        cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(X * scale, LABELS).summary() for scale in (1.0, units)
    )
    assert first.split("Direction 1")[1] == second.split("Direction 1")[1]


def test_summary_without_a_metric():
    text = cf.LinearMetricLearner(alpha=100.0, prior="zero", flip_rate=0.0).fit(X, LABELS).summary()
    assert "M is zero" in text


def test_wrong_share_is_the_expected_share_of_wrong_labels(learner):
    expected = np.minimum(*learner.predict_proba(X).T).mean()
    assert learner.fit_statistics_.wrong_share == pytest.approx(expected)


# Progress


@pytest.mark.parametrize("rich", [True, False])
@pytest.mark.parametrize("verbose", [1, 2])
def test_verbose_prints_progress_to_stderr(verbose, rich, capsys, monkeypatch):
    if not rich:
        monkeypatch.setitem(sys.modules, "rich", None)
        monkeypatch.setitem(sys.modules, "rich.console", None)
    learner = cf.LinearMetricLearner(verbose=verbose, **PAPER).fit(X, LABELS)
    out, err = capsys.readouterr()
    assert out == ""
    steps = [int(step) for step in re.findall(r"step\s+(\d+)", err)]
    assert steps[0] == 0
    assert "objective" in err
    if verbose == 2:
        assert steps == list(range(learner.n_iter_ + 1))
        assert re.search(r"gap \d\.\de-\d\d", err.splitlines()[-1])


def test_rich_shows_a_line_on_a_terminal(capsys, monkeypatch):
    pytest.importorskip("rich", reason="rich is not installed")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    cf.LinearMetricLearner(verbose=1, **PAPER).fit(X, LABELS)
    out, err = capsys.readouterr()
    assert out == ""
    assert "\x1b[" in err


def test_silent_by_default(capsys):
    cf.LinearMetricLearner(**PAPER).fit(X, LABELS)
    assert capsys.readouterr() == ("", "")


# A learned origin


def around(n, seed):
    """Points labelled by their distance from an origin that is not their centre, and that origin."""
    units = np.array([[2.0, 0.3, 0.0], [0.0, 1.0, -0.5], [0.0, 0.0, 0.2]])
    rng = np.random.default_rng(seed)
    unit_free = rng.standard_normal((n, 3))
    origin = np.array([0.8, -0.5, 0.3])
    margin = np.sum((unit_free - origin) ** 2, axis=1) * 3.0 - 9.0
    labels = np.where(margin + rng.logistic(size=n) > 0, 1, -1)
    centre = np.array([5.0, -3.0, 8.0])
    return unit_free @ units + centre, labels, origin @ units + centre


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_learned_origin_is_found(solver):
    points, labels, origin = around(6000, seed=8)
    fresh, fresh_labels, _ = around(2000, seed=9)
    learner = cf.LinearMetricLearner(fit_origin=True, solver=solver, **PAPER).fit(points, labels)
    plain = cf.LinearMetricLearner(**PAPER).fit(points, labels)
    assert learner.certificate_.converged
    assert learner.metric_.rank == 3
    assert learner.score(fresh, fresh_labels) > plain.score(fresh, fresh_labels) + 0.1
    np.testing.assert_array_less(np.abs(learner.metric_.origin - origin) / np.std(points, axis=0), 0.06)
    assert learner.metric_.threshold == pytest.approx(9.0, rel=0.1)
    assert plain.metric_.origin is None


def test_a_learned_origin_is_part_of_the_metric():
    points, labels, _ = around(2000, seed=8)
    learner = cf.LinearMetricLearner(fit_origin=True, **PAPER).fit(points, labels)
    probabilities = learner.predict_proba(points)[:, 1]
    np.testing.assert_allclose(probabilities, learner.metric_.probability_far(points), rtol=1e-12)
    np.testing.assert_array_equal(learner.predict(points), np.where(probabilities >= 0.5, 1, -1))
    mapped = learner.transform(points) - learner.transform(learner.metric_.origin[None])
    np.testing.assert_allclose(learner.pair_distance(points), np.linalg.norm(mapped, axis=1), rtol=1e-9)
    assert learner.get_metric()(points[0], points[0]) == 0.0


@pytest.mark.parametrize("tol", [1e-6, 1e-9])
@pytest.mark.parametrize("noise", ["logistic", "normal"])
def test_an_origin_far_away_still_predicts_as_certified(noise, tol):
    """Labels by a half-space: the best origin lies at infinity, the fitted one very far out."""
    rng = np.random.default_rng(10)
    points = rng.standard_normal((300, 4))
    labels = np.where(points @ [2.0, 1.0, 0.0, -1.0] + rng.logistic(size=300) > 0, 1, -1)
    learner = cf.LinearMetricLearner(noise, fit_origin=True, alpha=0.001, prior="zero", tol=tol, flip_rate=0.0).fit(
        points, labels
    )
    loss = np.mean(learner.metric_.noise.neg_log_cdf(labels * learner.decision_function(points)))
    assert loss == pytest.approx(learner.certificate_.loss, abs=1e-6)
    assert learner.score(points, labels) > 0.75


def test_a_learned_origin_is_free_of_units():
    points, labels, _ = around(2000, seed=8)
    units = np.array([1e-6, 1.0, 1e6])
    left = cf.LinearMetricLearner(fit_origin=True, tol=1e-9, **PAPER).fit(points, labels)
    right = cf.LinearMetricLearner(fit_origin=True, tol=1e-9, **PAPER).fit(points * units, labels)
    np.testing.assert_allclose(right.metric_.origin / units, left.metric_.origin, rtol=1e-4)
    np.testing.assert_allclose(right.predict_proba(points * units), left.predict_proba(points), atol=1e-5)


# Warnings come with advice


def test_a_warning_is_the_status():
    data = cf.datasets.make_pairs(60, 3, noise=None, random_state=9)
    with pytest.warns(ConvergenceWarning, match="Set alpha") as caught:
        learner = cf.LinearMetricLearner(**PAPER).fit(data.pairs, data.labels)
    assert [str(warning.message) for warning in caught] == [learner.certificate_.status]
    assert caught[0].filename == __file__


# The package


def test_import_brings_in_no_extras():
    extras = ["torch", "matplotlib", "rich", "jinja2", "pandas", "polars", "typer", "pyarrow", "dask", "cvxpy"]
    # scikit-learn itself imports some where they are installed: what counts is what closefar adds.
    code = (
        "import sys, sklearn.model_selection; had = set(sys.modules); import closefar; "
        "[getattr(closefar, name) for name in closefar.__all__]; print(*set(sys.modules) - had)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "closefar" in result.stdout.split()
    assert not set(extras) & set(result.stdout.split())


def test_public_names():
    assert cf.__all__ == sorted(cf.__all__)
    assert len(set(cf.__all__)) == len(cf.__all__)
    assert all(hasattr(cf, name) for name in cf.__all__)
    expected = {"Certificate", "LinearMetricLearner", "Metric", "datasets", "load", "noise"}
    assert expected <= set(cf.__all__)
    # What is public by its home is public here.
    own = {name for name, value in vars(cf).items() if getattr(value, "__module__", "").startswith("closefar.")}
    assert own <= set(cf.__all__)


@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_a_warm_start_ends_where_a_cold_one_does(alpha):
    cold = cf.LinearMetricLearner(alpha=alpha, prior="zero", tol=1e-9, flip_rate=0.0).fit(X * 1e3, LABELS)
    warm = cf.LinearMetricLearner(alpha=0.05, prior="zero", warm_start=True, tol=1e-9, flip_rate=0.0).fit(
        X * 1e3, LABELS
    )
    warm.set_params(alpha=alpha).fit(X * 1e3, LABELS)
    assert warm.certificate_.objective == pytest.approx(cold.certificate_.objective, abs=1e-9)
    same_probabilities(warm, cold, on=X * 1e3, atol=1e-4)
    again = warm.fit(X * 1e3, LABELS)
    assert again.certificate_.gap <= 1e-9
    assert again.n_iter_ <= cold.n_iter_
    warm.fit(X[:, :2], LABELS)  # other columns: the last metric is of no use
