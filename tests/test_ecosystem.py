"""The recipes of docs/ecosystem.md and docs/migration.md, and what they promise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import get_scorer, get_scorer_names, pairwise_distances, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import closefar as cf
from paper_estimator import PAPER

PAGE = Path(__file__).parent.parent / "docs" / "ecosystem.md"
NAMES = ["length", "mass", "age", "depth"]
UNITS = np.array([1e-6, 1.0, 1e3, 1e6])


@pytest.fixture(scope="module")
def data() -> cf.datasets.LabelledPairs:
    return cf.datasets.make_pairs(1500, 4, rank=2, wrong_share=0.1, random_state=0)


@pytest.fixture(scope="module")
def differences(data) -> pd.DataFrame:
    return pd.DataFrame((data.pairs[:, 0] - data.pairs[:, 1]) * UNITS, columns=NAMES)


@pytest.fixture
def learner(data, differences) -> cf.LinearMetricLearner:
    return cf.LinearMetricLearner(**PAPER).fit(differences, data.labels)


@pytest.fixture(scope="module")
def points() -> pd.DataFrame:
    index = [f"id {row}" for row in range(80)]
    return pd.DataFrame(np.random.default_rng(1).normal(size=(80, 4)) * UNITS, columns=NAMES, index=index)


def test_transform_finds_the_neighbours_of_the_callable_metric(learner, points):
    classes = np.arange(80) % 3
    fast = KNeighborsClassifier().fit(learner.transform(points), classes)
    slow = KNeighborsClassifier(metric=learner.get_metric()).fit(points.to_numpy(), classes)
    fast_distances, fast_neighbours = fast.kneighbors(learner.transform(points))
    slow_distances, slow_neighbours = slow.kneighbors(points.to_numpy())
    np.testing.assert_array_equal(fast_neighbours, slow_neighbours)
    np.testing.assert_allclose(fast_distances, slow_distances, rtol=1e-10, atol=1e-7)


def test_tables_of_distances(learner, points):
    mapped = learner.transform(points)
    expected = [learner.metric_.distance(row, points.to_numpy()) for row in points.to_numpy()]
    np.testing.assert_allclose(cdist(mapped, mapped), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        pairwise_distances(points.to_numpy()[:9], metric=learner.get_metric()), np.array(expected)[:9, :9], atol=1e-12
    )


def test_a_frozen_learner_is_a_step_of_a_pipeline(learner, points):
    classes = np.arange(80) % 3
    pipeline = make_pipeline(FrozenEstimator(learner), KNeighborsClassifier()).fit(points, classes)
    plain = KNeighborsClassifier().fit(learner.transform(points), classes)
    np.testing.assert_array_equal(pipeline.predict(points), plain.predict(learner.transform(points)))


def test_clusters_of_mapped_points_find_groups_that_raw_columns_hide(learner):
    """Three groups along the direction that the metric weighs most, under a column that it ignores."""
    rng = np.random.default_rng(2)
    group = np.repeat([0, 1, 2], 40)
    best, rest = learner.metric_.factor[:, 0], np.linalg.svd(learner.metric_.factor.T)[2][-1]
    points = 0.1 * rng.normal(size=(120, 4)) * UNITS
    points += np.outer(10.0 * group, best / (best @ best)) + np.outer(rng.normal(size=120), 1e9 * rest)
    mapped = learner.transform(pd.DataFrame(points, columns=NAMES))
    reach = 4.0
    for clusters in (
        KMeans(3, n_init=10, random_state=0).fit_predict(mapped),
        DBSCAN(eps=reach).fit_predict(mapped),
        AgglomerativeClustering(n_clusters=None, distance_threshold=reach, linkage="single").fit_predict(mapped),
    ):
        same_cluster, same_group = clusters[:, None] == clusters, group[:, None] == group
        np.testing.assert_array_equal(same_cluster, same_group)


def test_complete_linkage_at_the_threshold_groups_close_points_only(learner, points):
    reach = learner.metric_.threshold**0.5
    linkage = AgglomerativeClustering(n_clusters=None, distance_threshold=reach, linkage="complete")
    groups = linkage.fit_predict(learner.transform(points))
    rows, columns = np.nonzero(groups[:, None] == groups)
    assert 1 < len(set(groups)) < len(points)
    assert learner.metric_.margin(points.to_numpy()[rows] - points.to_numpy()[columns]).max() < 0


def make_fish(n: int = 400) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(3)
    fish = pd.DataFrame({"length": rng.normal(30.0, 5.0, n), "colour": rng.choice(["blue", "green", "red"], n)})
    strangeness = ((fish["length"] - 33.0) / 5.0) ** 2 + 2.0 * (fish["colour"] == "red")
    return fish, np.where(strangeness + 0.3 * rng.logistic(size=n) >= 1.5, "far", "close")


def make_encoder():
    words = OneHotEncoder(drop="first", sparse_output=False)
    encoder = make_column_transformer((words, ["colour"]), remainder="passthrough", verbose_feature_names_out=False)
    return encoder.set_output(transform="pandas")


def test_pipeline_and_grid_search_over_encoded_columns():
    fish, labels = make_fish()
    pipeline = make_pipeline(
        make_encoder(), cf.LinearMetricLearner(fit_origin=True, alpha=0.001, prior="zero", flip_rate=0.0)
    )
    assert cross_val_score(pipeline, fish, labels, cv=4).mean() > 0.85
    grid = {"linearmetriclearner__alpha": [0.001, 1.0]}
    search = GridSearchCV(pipeline, grid, scoring="neg_log_loss", cv=4).fit(fish, labels)
    assert search.best_params_ == {"linearmetriclearner__alpha": 0.001}
    assert search.best_estimator_[-1].metric_.feature_names == ("colour_green", "colour_red", "length")
    names = search.best_estimator_[:-1].get_feature_names_out()
    assert names.tolist() == ["colour_green", "colour_red", "length"]


def test_pairs_are_made_of_encoded_points():
    fish, _ = make_fish()
    rng = np.random.default_rng(4)
    rows = rng.integers(len(fish), size=(1000, 2))
    encoded = make_encoder().fit_transform(fish)
    far = (fish["colour"].to_numpy()[rows[:, 0]] != fish["colour"].to_numpy()[rows[:, 1]]) ^ (rng.random(1000) < 0.1)
    from_pairs = cf.LinearMetricLearner(**PAPER).fit(encoded.to_numpy()[rows], far)
    encoded.index = [f"fish {row}" for row in range(len(fish))]
    left, right = encoded.index[rows[:, 0]], encoded.index[rows[:, 1]]
    by_id = cf.LinearMetricLearner(**PAPER).fit(encoded.loc[left].to_numpy() - encoded.loc[right].to_numpy(), far)
    assert by_id.metric_ == from_pairs.metric_
    assert from_pairs.score(encoded.to_numpy()[rows], far) > 0.85


def test_dropping_a_category_loses_nothing():
    fish, _ = make_fish()
    rng = np.random.default_rng(5)
    rows = rng.integers(len(fish), size=(1000, 2))
    far = (fish["colour"].to_numpy()[rows[:, 0]] != fish["colour"].to_numpy()[rows[:, 1]]) ^ (rng.random(1000) < 0.1)
    dropped = make_encoder().fit_transform(fish).to_numpy()[rows]
    whole = pd.get_dummies(fish, dtype=float).to_numpy()[rows]
    with pytest.warns(cf.IdentifiabilityWarning, match="a combination of the columns"):
        of_whole = cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(whole, far)
    of_dropped = cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(dropped, far)
    np.testing.assert_allclose(of_whole.predict_proba(whole), of_dropped.predict_proba(dropped), rtol=0, atol=1e-6)


def test_pandas_comes_out_with_names_and_index(learner, points):
    frame = learner.set_output(transform="pandas").transform(points)
    assert frame.index.equals(points.index)
    assert frame.columns.tolist() == learner.get_feature_names_out().tolist()
    np.testing.assert_array_equal(frame.to_numpy(), learner.set_output(transform="default").transform(points))


def test_polars_goes_in_and_comes_out(data, differences, learner, points):
    polars_differences = pl.DataFrame(differences.to_dict(orient="list"))
    polars_points = pl.DataFrame(points.to_dict(orient="list"))
    from_polars = cf.LinearMetricLearner(**PAPER).fit(polars_differences, data.labels).set_output(transform="polars")
    assert from_polars.metric_ == learner.metric_
    frame = from_polars.transform(polars_points)
    assert isinstance(frame, pl.DataFrame)
    assert frame.columns == learner.get_feature_names_out().tolist()
    np.testing.assert_array_equal(frame.to_numpy(), learner.transform(points))


def test_labels_of_metric_learn_may_be_named_or_negated(data):
    similar = -data.labels  # metric-learn: +1 similar, -1 dissimilar
    named = cf.LinearMetricLearner(far_label=-1, **PAPER).fit(data.pairs, similar)
    negated = cf.LinearMetricLearner(**PAPER).fit(data.pairs, -similar)
    assert named.metric_ == negated.metric_
    assert named.classes_.tolist() == [-1, 1]
    np.testing.assert_array_equal(named.predict(data.pairs), -negated.predict(data.pairs))
    assert named.score(data.pairs, similar) == negated.score(data.pairs, data.labels)
    np.testing.assert_array_equal(named.decision_function(data.pairs), -negated.decision_function(data.pairs))


class Sorted(ClassifierMixin, BaseEstimator):
    """A classifier with classes -1 and 1 whose probabilities are given: what scikit-learn's scorers are made for."""

    def __init__(self, probability=None):
        self.probability = probability
        self.classes_ = np.array([-1, 1])

    def predict_proba(self, X):
        return np.column_stack([1.0 - self.probability, self.probability])

    def decision_function(self, X):
        return self.probability - 0.5

    def predict(self, X):
        return np.where(self.probability >= 0.5, 1, -1)


CLASSIFICATION = [
    *("accuracy", "average_precision", "balanced_accuracy", "d2_brier_score", "d2_log_loss_score", "f1", "f1_macro"),
    *("f1_micro", "f1_weighted", "jaccard", "jaccard_macro", "jaccard_micro", "jaccard_weighted", "matthews_corrcoef"),
    *("neg_brier_score", "neg_log_loss", "neg_negative_likelihood_ratio", "positive_likelihood_ratio", "precision"),
    *("precision_macro", "precision_micro", "precision_weighted", "recall", "recall_macro", "recall_micro"),
    *("recall_weighted", "roc_auc", "roc_auc_ovo", "roc_auc_ovr"),
]


@pytest.mark.parametrize("scoring", CLASSIFICATION)
def test_scorers_are_right_where_far_sorts_first(data, scoring):
    if scoring not in get_scorer_names():
        pytest.skip(f"this scikit-learn has no scorer called {scoring}")
    similar = -data.labels
    named = cf.LinearMetricLearner(far_label=-1, **PAPER).fit(data.pairs, similar)
    close = cf.LinearMetricLearner(**PAPER).fit(data.pairs, data.labels).predict_proba(data.pairs)[:, 0]
    score = get_scorer(scoring)
    expected = score(Sorted(close), data.pairs, similar)
    assert score(named, data.pairs, similar) == pytest.approx(expected, abs=1e-9)


def test_thresholds_and_scores_of_metric_learn(data):
    learner = cf.LinearMetricLearner(**PAPER).fit(data.pairs, data.labels)
    distance, threshold = learner.pair_distance(data.pairs), learner.metric_.threshold**0.5
    as_there = np.where(distance <= threshold, 1, -1)
    np.testing.assert_array_equal(as_there, -learner.predict(data.pairs))
    area = roc_auc_score(-data.labels, learner.pair_score(data.pairs))
    assert area == pytest.approx(roc_auc_score(data.labels, learner.decision_function(data.pairs)), abs=1e-12)
