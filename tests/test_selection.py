"""Folds that keep points apart, and the learner that chooses its own alpha, noise and rank."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import closefar as cf
from closefar import LinearMetricLearnerCV, PairGroupKFold
from closefar.noise import Laplace
from closefar.solve import Outcome

N, D = 200, 4
DATA = cf.datasets.make_pairs(N, D, rank=2, wrong_share=0.15, random_state=1)
PAIRS, LABELS = DATA.pairs, DATA.labels
X = PAIRS[:, 0] - PAIRS[:, 1]
ALPHAS = [0.01, 0.05, 0.3]
PLAIN = {
    "alpha_scale": "data",
    "shrink_to": "zero",
    "relax_threshold": False,
    "flip_rate": 0.0,
}  # only alpha, the noise and the rank are searched
for _array in (PAIRS, LABELS, X):
    _array.setflags(write=False)


def shared_points(n_points=60, n_pairs=900, seed=0):
    rng = np.random.default_rng(seed)
    points, classes = rng.standard_normal((n_points, 3)), np.arange(n_points) % 2
    points[:, 0] += 3.0 * classes
    return cf.datasets.pairs_from_points(points, classes, n_pairs, random_state=seed, return_indices=True)


# Folds


def check_apart(ids, splits):
    for train, test in splits:
        assert len(train) > 0
        assert len(test) > 0
        assert not {*ids[train].ravel().tolist()} & {*ids[test].ravel().tolist()}
    tested = np.concatenate([test for _, test in splits])
    assert len(np.unique(tested)) == len(tested)


@settings(max_examples=60, deadline=None)
@given(st.integers(4, 40), st.integers(4, 120), st.integers(2, 6), st.integers(0, 99), st.booleans())
def test_no_point_is_on_both_sides(n_points, n_pairs, n_splits, seed, shuffle):
    ids = np.random.default_rng(seed).integers(n_points, size=(n_pairs, 2))
    folds = PairGroupKFold(n_splits, shuffle=shuffle, random_state=seed if shuffle else None)
    try:
        splits = list(folds.split(ids, groups=ids))
    except ValueError as error:
        assert "fewer n_splits" in str(error)  # noqa: PT017
    else:
        assert len(splits) == folds.get_n_splits() == n_splits
        check_apart(ids, splits)


@pytest.mark.parametrize("sizes", [[1] * 40, [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [12, 10, 9, 8, 6]])
def test_linked_points_stay_together_and_no_pair_is_lost(sizes):
    component = np.repeat(np.arange(len(sizes)), sizes)
    hub = np.column_stack([1000 * component, 1000 * component + 1 + np.arange(len(component))])
    splits = list(PairGroupKFold(4, random_state=0).split(hub, groups=hub))
    check_apart(hub, splits)
    for train, test in splits:
        assert len(train) + len(test) == len(hub)
        assert len(test) <= 1.5 * len(hub) / 4 + 1
    assert sorted(np.concatenate([test for _, test in splits])) == list(range(len(hub)))


def test_only_the_large_component_is_divided():
    rng = np.random.default_rng(0)
    large, small = rng.integers(40, size=(300, 2)), 100 + np.arange(200).reshape(-1, 2)
    ids = np.concatenate([large, small])
    splits = list(PairGroupKFold(3, random_state=0).split(ids, groups=ids))
    check_apart(ids, splits)
    tested = np.concatenate([test for _, test in splits])
    assert set(range(300, 400)) <= set(tested.tolist())
    assert 300 / 9 < np.sum(tested < 300) < 300 * 2 / 3
    assert all(len(train) > 0.35 * len(ids) for train, _ in splits)


def test_fewer_components_than_splits():
    ids = np.concatenate([100 * block + np.random.default_rng(block).integers(12, size=(50, 2)) for block in range(4)])
    splits = list(PairGroupKFold(5, random_state=0).split(ids, groups=ids))
    check_apart(ids, splits)
    assert sum(len(test) >= 50 for _, test in splits) == 3


def test_folds_are_repeatable_and_shuffled():
    *_, ids = shared_points()

    def folds(**settings):
        return [test.tolist() for _, test in PairGroupKFold(3, **settings).split(ids, groups=ids)]

    assert folds(random_state=1) == folds(random_state=1)
    assert folds(random_state=1) != folds(random_state=2)
    assert folds(shuffle=False) == folds(shuffle=False)


def test_kinds_of_ids():
    *_, ids = shared_points()
    names = np.array([f"p{number:03d}" for number in range(60)])[ids]
    expected = [test.tolist() for _, test in PairGroupKFold(3, random_state=0).split(ids, groups=ids)]
    for groups in (names, ids.tolist(), pd.DataFrame(ids, columns=["left", "right"])):
        found = [test.tolist() for _, test in PairGroupKFold(3, random_state=0).split(ids, groups=groups)]
        assert found == expected
    mixed = pd.DataFrame(names).astype(object)
    mixed[0] = [("tuple", name) for name in mixed[0]]
    check_apart(mixed.to_numpy(), list(PairGroupKFold(2, random_state=0).split(ids, groups=mixed)))


def test_folds_in_scikit_learn():
    pairs, labels, ids = shared_points()
    folds = PairGroupKFold(3, random_state=0)
    learner = cf.LinearMetricLearner(alpha=0.01)
    scores = cross_val_score(learner, pairs, labels, cv=folds, groups=ids)
    assert scores.mean() > 0.6
    with config_context(enable_metadata_routing=True):
        routed = cross_val_score(learner, pairs, labels, cv=folds, params={"groups": ids})
    np.testing.assert_array_equal(routed, scores)
    search = GridSearchCV(learner, {"alpha": [0.01, 0.1]}, cv=folds).fit(pairs, labels, groups=ids)
    assert search.best_score_ > 0.6
    with pytest.raises(ValueError, match=r"\(900, 2\).*got \(899, 2\)"):
        cross_val_score(learner, pairs, labels, cv=folds, groups=ids[:-1])
    assert repr(folds) == "PairGroupKFold(n_splits=3, random_state=0, shuffle=True)"


@pytest.mark.parametrize(
    ("groups", "y", "message"),
    [
        (None, None, "needs groups"),
        (np.arange(6), None, "GroupKFold"),
        (np.zeros((5, 2)), None, r"\(6, 2\)"),
        (np.array([[0, 1]] * 6), None, "side of split 0 of 2 has 0 of 6 pairs"),
        (np.array([[0.0, np.nan]] * 6), None, "some are missing"),
        (np.array([["a", None]] * 6, dtype=object), None, "some are missing"),
        (np.arange(12).reshape(6, 2), np.ones(6), "both classes.*and one class"),
    ],
)
def test_unsplittable(groups, y, message):
    with pytest.raises(ValueError, match=message):
        list(PairGroupKFold(2, random_state=0).split(np.zeros((6, 3)), y, groups))


@pytest.mark.parametrize("n_splits", [1, 2.0, "5"])
def test_n_splits_is_checked(n_splits):
    with pytest.raises(ValueError, match="n_splits must be a whole number >= 2"):
        PairGroupKFold(n_splits)


# The learner


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::closefar.IdentifiabilityWarning")
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
# To a small tolerance: one of the checks compares fits to 1e-7, whatever the rounding.
@parametrize_with_checks([LinearMetricLearnerCV(alphas=[0.02, 0.6], cv=2, solver="newton", tol=1e-10, **PLAIN)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_parameters_of_the_learner_are_passed_on():
    own = {"alphas", "noises", "ranks", "cv", "scoring", "rule", "n_jobs", "learner"}
    chosen = {"alpha", "noise", "rank", "warm_start", "max_time"}  # the last limits one fit
    plain = cf.LinearMetricLearner().get_params()
    ours = LinearMetricLearnerCV().get_params()
    assert set(ours) - own == set(plain) - chosen
    searched = {name for name, value in ours.items() if isinstance(value, str) and value == "auto"} - {"solver"}
    assert searched == set(PLAIN)
    assert all(ours[name] == plain[name] for name in set(plain) - chosen - searched)


@pytest.mark.parametrize("scoring", ["neg_log_loss", "accuracy", "roc_auc"])
def test_chooses_as_a_grid_search_does(scoring):
    alphas, noises, ranks = ALPHAS[1:], ["normal", "laplace"], [None, 1]
    grid = {"alpha": alphas, "noise": noises, "rank": ranks, **{name: [value] for name, value in PLAIN.items()}}
    search = GridSearchCV(cf.LinearMetricLearner(), grid, scoring=scoring, cv=3).fit(X, LABELS)
    learner = LinearMetricLearnerCV(alphas, noises, ranks, scoring=scoring, cv=3, **PLAIN).fit(X, LABELS)
    chosen = {"alpha": learner.alpha_, "noise": learner.noise_, "rank": learner.rank_, **PLAIN}
    assert chosen == search.best_params_
    assert learner.metric_ == search.best_estimator_.metric_
    # Fits along the path start from one another, and agree with fits from nothing within their tolerance.
    assert learner.best_score_ == pytest.approx(search.best_score_, abs=1e-6)
    for name, values in learner.cv_results_.items():
        if name.endswith("_score") and not name.startswith("rank"):
            np.testing.assert_allclose(values, search.cv_results_[name], atol=1e-6)
        else:
            assert list(values) == list(search.cv_results_[name])
    assert len(pd.DataFrame(learner.cv_results_)) == 8


def test_is_the_learner_of_the_chosen_values():
    learner = LinearMetricLearnerCV(ALPHAS, noises="normal", ranks=2, cv=3).fit(X, LABELS)
    plain = cf.LinearMetricLearner("normal", rank=2, alpha=learner.alpha_, alpha_scale=learner.alpha_scale_)
    plain.set_params(flip_rate=learner.flip_rate_, shrink_to=learner.shrink_to_)
    plain.set_params(relax_threshold=learner.relax_threshold_).fit(X, LABELS)
    assert (learner.noise_, learner.rank_) == ("normal", 2)
    assert learner.metric_ == plain.metric_
    assert learner.certificate_ == plain.certificate_
    assert learner.summary() == plain.summary()
    np.testing.assert_array_equal(learner.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(learner.transform(PAIRS), plain.transform(PAIRS))
    assert learner.score(X, LABELS) == plain.score(X, LABELS)
    assert clone(learner).get_params() == learner.get_params()


def test_default_grid_is_free_of_units_and_of_the_scale_of_weights():
    learner = LinearMetricLearnerCV(3, cv=2, **PLAIN).fit(X, LABELS)
    expected = [0.0, *(np.array([0.1, 0.8, 6.4]) / np.sqrt(N))]
    np.testing.assert_allclose(learner.cv_results_["param_alpha"].astype(float), expected)
    weighted = LinearMetricLearnerCV(3, cv=2, **PLAIN)
    weighted.fit(X * [1e-6, 1.0, 1e3, 1e9], LABELS, sample_weight=np.full(N, 0.1))
    assert weighted.alpha_ == pytest.approx(learner.alpha_)
    np.testing.assert_allclose(
        weighted.cv_results_["mean_test_score"], learner.cv_results_["mean_test_score"], rtol=1e-3
    )


def test_one_standard_error():
    best = LinearMetricLearnerCV(np.geomspace(0.02, 0.1, 6), ["normal", "logistic"], cv=4, **PLAIN).fit(X, LABELS)
    near = clone(best).set_params(rule="one_se").fit(X, LABELS)
    results = best.cv_results_
    scores = np.array([results[f"split{number}_test_score"] for number in range(4)])
    top = np.argmax(results["mean_test_score"])
    error = np.std(scores[:, top], ddof=1) / 2.0
    allowed = (results["mean_test_score"] >= best.best_score_ - error) & (results["param_noise"] == best.noise_)
    assert near.alpha_ == results["param_alpha"][allowed].max() > best.alpha_
    assert near.noise_ == best.noise_
    assert near.best_score_ < best.best_score_
    assert np.trace(near.metric_.matrix) < np.trace(best.metric_.matrix)


def test_groups_mean_folds_of_points():
    pairs, labels, ids = shared_points()
    learner = LinearMetricLearnerCV(ALPHAS, cv=3, **PLAIN)
    by_groups = clone(learner).fit(pairs, labels, groups=ids)
    by_folds = clone(learner).set_params(cv=PairGroupKFold(3, random_state=0)).fit(pairs, labels, groups=ids)
    by_list = list(PairGroupKFold(3, random_state=0).split(pairs, labels, ids))
    by_hand = clone(learner).set_params(cv=by_list).fit(pairs, labels)
    plain = clone(learner).fit(pairs[:, 0] - pairs[:, 1], labels)
    scores = [learner.cv_results_["mean_test_score"].tolist() for learner in (by_groups, by_folds, by_hand, plain)]
    assert scores[0] == scores[1] == scores[2] != scores[3]
    one_column = clone(learner).set_params(cv=GroupKFold(3)).fit(pairs, labels, groups=ids[:, 0])
    assert one_column.best_score_ != by_groups.best_score_


def test_a_far_label_that_sorts_first_scores_alike():
    plain = LinearMetricLearnerCV(ALPHAS, cv=StratifiedKFold(3), class_weight={-1: 1.0, 1: 2.0}).fit(X, LABELS)
    turned = clone(plain).set_params(far_label="a", class_weight={"b": 1.0, "a": 2.0})
    turned.fit(X, np.where(LABELS == 1, "a", "b"))
    assert turned.classes_.tolist() == ["a", "b"]
    assert turned.far_label_ == "a"
    np.testing.assert_allclose(turned.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"])
    assert turned.metric_ == plain.metric_


def test_weights_count_in_scores():
    weights = np.random.default_rng(2).integers(0, 4, N).astype(float)
    half = N // 2
    splits = [(np.arange(half), np.arange(half, N)), (np.arange(half, N), np.arange(half))]
    learner = LinearMetricLearnerCV(ALPHAS, cv=splits, **PLAIN).fit(X, LABELS, sample_weight=weights)
    train, test = splits[0]
    plain = cf.LinearMetricLearner(alpha=ALPHAS[0]).fit(X[train], LABELS[train], sample_weight=weights[train])
    loss = log_loss(LABELS[test], plain.predict_proba(X[test]), sample_weight=weights[test])
    assert learner.cv_results_["split0_test_score"][0] == pytest.approx(-loss, abs=1e-6)


def test_pairs_frames_jobs_and_single_test_pairs():
    learner = LinearMetricLearnerCV(ALPHAS, cv=3).fit(PAIRS, LABELS)
    names = ["length", "mass", "time", "charge"]
    framed = LinearMetricLearnerCV(ALPHAS, cv=3, n_jobs=2).fit(pd.DataFrame(X, columns=names), pd.Series(LABELS))
    assert framed.metric_.feature_names == tuple(names) == tuple(framed.feature_names_in_)
    np.testing.assert_array_equal(framed.cv_results_["mean_test_score"], learner.cv_results_["mean_test_score"])
    assert not hasattr(framed.fit(PAIRS, LABELS), "feature_names_in_")
    one_out = [(np.delete(np.arange(N), number), [number]) for number in range(2)]
    alone = LinearMetricLearnerCV([0.1], [Laplace()], cv=one_out).fit(PAIRS, LABELS)
    assert isinstance(alone.noise_, Laplace)


def test_only_the_last_fit_warns():
    data = cf.datasets.make_pairs(60, 3, noise=None, random_state=9)
    with pytest.warns(ConvergenceWarning, match="Set alpha") as caught:
        LinearMetricLearnerCV([0.0], cv=3).fit(data.pairs, data.labels)
    assert len(caught) == 1


def test_labels_that_do_not_say_far_warn_once():
    with pytest.warns(UserWarning, match="Set far_label") as caught:
        LinearMetricLearnerCV([0.1], cv=2).fit(X, np.where(LABELS == 1, "b", "a"))
    assert [warning.filename for warning in caught] == [__file__]


def test_an_interruption_ends_the_search(monkeypatch):
    def interrupted(self, *arguments, **named):
        fitted = fit(self, *arguments, **named)
        object.__setattr__(fitted.certificate_, "outcome", Outcome.INTERRUPTED)
        return fitted

    fit = cf.LinearMetricLearner.fit_to
    monkeypatch.setattr(cf.LinearMetricLearner, "fit_to", interrupted)
    with pytest.raises(KeyboardInterrupt):
        LinearMetricLearnerCV(ALPHAS, cv=2).fit(X, LABELS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alphas": [0.1, -1.0]}, "alphas must be None, a whole number"),
        ({"alphas": 0.1}, "alphas must be None, a whole number"),
        ({"alphas": []}, "each contain at least one value"),
        ({"noises": ()}, "each contain at least one value"),
        ({"noises": "cauchy"}, "noise must be one of"),
        ({"ranks": [9]}, "rank must be None"),
        ({"rule": "two_se"}, 'rule must be "best" or "one_se"'),
        ({"scoring": lambda *_: np.nan}, "finite numbers"),
        ({"cv": [(np.flatnonzero(LABELS == 1), np.arange(3))]}, "trains on 0 close"),
        ({"cv": [(np.arange(N), np.arange(0))]}, "tests on 0"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        LinearMetricLearnerCV(**{"alphas": [0.1], "cv": 2, **settings}).fit(X, LABELS)


# The shape of the penalty, and flips


def searched(data, **settings):
    return LinearMetricLearnerCV(cv=3, **settings).fit(data.pairs, data.labels)


def test_the_default_search_goes_from_one_thing_to_the_next():
    learner = LinearMetricLearnerCV(cv=3).fit(X, LABELS)
    tried = pd.DataFrame(learner.cv_results_["params"])
    assert tried["alpha_scale"].iloc[0] == "columns"
    assert {"columns", 0.3} <= set(tried["alpha_scale"])
    assert set(tried["shrink_to"]) == {"zero", "identity"}
    assert {0.0, 0.1} <= set(tried["flip_rate"])
    shapes = tried[tried["flip_rate"] == 0.0].groupby(["alpha_scale", "shrink_to"])
    assert shapes["alpha"].nunique().max() < 8 or tried["alpha"].min() == 0.0  # a path ends where it gets worse
    flipped = tried[tried["flip_rate"] > 0.0]
    assert len(flipped.groupby(["alpha_scale", "shrink_to"])) == 1
    assert tried["relax_threshold"].tolist() == [False] * (len(tried) - 1) + [True]
    names = ("alpha", "alpha_scale", "shrink_to", "relax_threshold", "flip_rate", "noise")
    chosen = {name: getattr(learner, f"{name}_") for name in names}
    assert {**chosen, "rank": None} in learner.cv_results_["params"]


def test_many_columns_of_one_unit_are_also_shrunk_to_the_euclidean_distance():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((700, 64)) * np.sqrt(np.linspace(0.5, 2.0, 64))
    squared = np.sum(z**2, axis=1)
    labels = np.where((squared > np.median(squared)) ^ (rng.random(700) < 0.2), 1, -1)
    search = LinearMetricLearnerCV(3, cv=3, flip_rate=0.2).fit(z[:300], labels[:300])
    tried = pd.DataFrame(search.cv_results_["params"])
    assert set(tried["alpha_scale"][tried["shrink_to"] == "identity"]) == {"units"}
    assert (search.shrink_to_, search.alpha_scale_) == ("identity", "units")
    assert search.score(z[300:], np.where(squared > np.median(squared), 1, -1)[300:]) > 0.9
    given = LinearMetricLearnerCV(3, cv=2, flip_rate=0.2, alpha_scale="columns").fit(z[:300], labels[:300])
    assert set(given.cv_results_["param_alpha_scale"]) == {"columns"}


def test_explicit_values_are_not_searched():
    given = {"alpha_scale": 0.5, "shrink_to": "identity", "relax_threshold": True, "flip_rate": 0.05}
    learner = LinearMetricLearnerCV(ALPHAS, cv=2, **given).fit(X, LABELS)
    assert len(learner.cv_results_["params"]) == len(ALPHAS)
    assert learner.relax_threshold_
    assert (learner.alpha_scale_, learner.shrink_to_, learner.flip_rate_) == (0.5, "identity", 0.05)
    limited = LinearMetricLearnerCV(ALPHAS, ranks=2, cv=2, flip_rate=0.0).fit(X, LABELS)
    assert set(limited.cv_results_["param_shrink_to"]) == {"zero"}


def test_flips_are_found_where_labels_are_flipped():
    data = cf.datasets.make_pairs(1500, 4, rank=2, noise=None, random_state=3)
    flipped = np.random.default_rng(0).random(1500) < 0.3
    learner = LinearMetricLearnerCV(cv=3).fit(data.pairs[:1000], np.where(flipped, -data.labels, data.labels)[:1000])
    assert 0.2 <= learner.flip_rate_ <= 0.4
    plain = LinearMetricLearnerCV(cv=3, flip_rate=0.0)
    plain.fit(data.pairs[:1000], np.where(flipped, -data.labels, data.labels)[:1000])
    assert learner.best_score_ > plain.best_score_
    assert learner.score(data.pairs[1000:], data.labels[1000:]) > plain.score(data.pairs[1000:], data.labels[1000:])


def test_the_identity_is_found_where_it_is_the_truth():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((1200, 15)) * np.geomspace(1e-3, 1e3, 15)
    labels = np.where(np.sum((z / np.geomspace(1e-3, 1e3, 15)) ** 2, axis=1) > 14.0 + rng.logistic(size=1200), 1, -1)
    learner = LinearMetricLearnerCV(cv=3).fit(z[:200], labels[:200])
    plain = LinearMetricLearnerCV(cv=3, shrink_to="zero", flip_rate=0.0).fit(z[:200], labels[:200])
    assert learner.shrink_to_ == "identity"
    assert learner.score(z[200:], labels[200:]) > plain.score(z[200:], labels[200:]) + 0.03


def test_the_default_search_does_not_depend_on_units():
    data = cf.datasets.make_pairs(150, 3, wrong_share=0.1, random_state=4)
    plain = searched(data)
    scaled = LinearMetricLearnerCV(cv=3).fit(data.pairs * [1e-6, 1.0, 1e6], data.labels)
    assert scaled.cv_results_["params"] == plain.cv_results_["params"]
    np.testing.assert_allclose(
        scaled.predict_proba(data.pairs * [1e-6, 1.0, 1e6]), plain.predict_proba(data.pairs), atol=1e-4
    )


def test_wide_data_is_searched_with_approximate_fits_and_progress(capsys):
    data = cf.datasets.make_pairs(120, 18, rank=2, wrong_share=0.1, random_state=5)
    learner = LinearMetricLearnerCV([0.05, 0.2], cv=2, verbose=1).fit(data.pairs, data.labels)
    assert learner.certificate_.converged
    assert "candidates" in capsys.readouterr().err
    exact = LinearMetricLearnerCV([0.05, 0.2], cv=2, solver="fista", **PLAIN | {"alpha_scale": "columns"})
    exact.fit(data.pairs, data.labels)
    np.testing.assert_allclose(
        learner.cv_results_["mean_test_score"][:2], exact.cv_results_["mean_test_score"], atol=5e-3
    )
