"""Comparisons: the learner of triplets and quadruplets, fits to pairs and comparisons together, and thresholds."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils import estimator_checks

import closefar as cf
from closefar.noise import NOISES
from paper_estimator import PAPER

MATRIX = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.3]])
UNITS = np.array([[1e4, 2.0, 0.0], [0.0, 1e-5, 1e-6], [0.3, 0.0, 1.0]])


def squared(z: np.ndarray) -> np.ndarray:
    return np.einsum("ij,jk,ik->i", z, MATRIX, z)


def triplets_of(n=600, noise="logistic", seed=0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, 3, 3))
    margin = squared(points[:, 0] - points[:, 2]) - squared(points[:, 0] - points[:, 1])
    return points, np.where(margin + NOISES[noise].sample(n, rng) >= 0, 1, -1)


def pairs_of(n=400, seed=1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    pairs = rng.normal(size=(n, 2, 3))
    return pairs, squared(pairs[:, 0] - pairs[:, 1]) + rng.logistic(size=n) >= 4.0


@pytest.fixture(scope="module")
def fitted():
    triplets, answers = triplets_of()
    return cf.ComparisonMetricLearner(**PAPER).fit(triplets, answers), triplets, answers


def test_the_loss_is_that_of_the_comparisons(fitted):
    learner, triplets, answers = fitted
    near, far = (triplets[:, 0] - triplets[:, k] for k in (1, 2))
    margin = learner.metric_.squared_distance(far) - learner.metric_.squared_distance(near)
    np.testing.assert_allclose(learner.decision_function(triplets), margin)
    assert learner.certificate_.loss == pytest.approx(np.mean(np.log1p(np.exp(-answers * margin))), rel=1e-9)
    assert learner.certificate_.converged
    probabilities = learner.predict_proba(triplets)
    np.testing.assert_allclose(probabilities[:, 1], 1.0 / (1.0 + np.exp(-margin)))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_array_equal(learner.predict(triplets), np.where(margin >= 0, 1, -1))
    assert learner.classes_.tolist() == [-1, 1]
    agreed = np.mean(np.sign(margin) == answers)
    assert learner.score(triplets, answers) == pytest.approx(agreed)
    weights = np.arange(len(answers))
    assert learner.score(triplets, answers, weights) == pytest.approx(
        np.average(np.sign(margin) == answers, weights=weights)
    )
    assert learner.score(triplets) == pytest.approx(np.mean(margin >= 0))


@pytest.mark.parametrize("noise", NOISES)
def test_no_other_optimiser_finds_a_smaller_loss(noise):
    triplets, answers = triplets_of(400, noise, seed=2)
    learner = cf.ComparisonMetricLearner(noise, tol=1e-9, **PAPER).fit(triplets, answers)
    near, far = (triplets[:, 0] - triplets[:, k] for k in (1, 2))

    def loss(x):
        factor = x.reshape(3, 3)
        margin = np.sum((far @ factor) ** 2, axis=1) - np.sum((near @ factor) ** 2, axis=1)
        return float(np.mean(NOISES[noise].neg_log_cdf(answers * margin)))

    start = np.zeros((3, 3))
    start[:, : learner.metric_.rank] = learner.metric_.factor
    assert loss(start.ravel()) == pytest.approx(learner.certificate_.loss, abs=1e-10)
    other = minimize(loss, start.ravel() + 0.05, method="BFGS", options={"gtol": 1e-8})
    assert abs(other.fun - learner.certificate_.loss) < 1e-6
    assert other.fun > learner.certificate_.loss - learner.certificate_.gap - 1e-9


def test_a_triplet_is_a_quadruplet(fitted):
    learner, triplets, answers = fitted
    quadruplets = triplets[:, [0, 1, 0, 2]]
    other = cf.ComparisonMetricLearner(**PAPER).fit(quadruplets, answers)
    assert other.metric_ == learner.metric_
    np.testing.assert_array_equal(learner.predict_proba(quadruplets), learner.predict_proba(triplets))


def test_turning_a_comparison_round_turns_its_answer(fitted):
    learner, triplets, answers = fitted
    turned = np.where((answers < 0)[:, None, None], triplets[:, [0, 2, 1]], triplets)
    precise = cf.ComparisonMetricLearner(tol=1e-10, **PAPER)
    as_given, by_answer = clone(precise).fit(turned), clone(precise).fit(triplets, answers)
    np.testing.assert_allclose(as_given.predict_proba(triplets), by_answer.predict_proba(triplets), rtol=0, atol=1e-8)
    np.testing.assert_allclose(learner.decision_function(turned), answers * learner.decision_function(triplets))
    assert cf.ComparisonMetricLearner(**PAPER).fit(triplets, answers > 0).metric_ == learner.metric_


def test_points_by_index_are_the_same(fitted):
    _, triplets, answers = fitted
    index = np.arange(3 * len(triplets)).reshape(-1, 3)
    other = cf.ComparisonMetricLearner(tol=1e-10, **PAPER).fit(cf.Tuples(triplets.reshape(-1, 3), index), answers)
    same = cf.ComparisonMetricLearner(tol=1e-10, **PAPER).fit(triplets, answers)
    tuples = cf.Tuples(triplets.reshape(-1, 3), index)
    np.testing.assert_allclose(other.predict_proba(tuples), same.predict_proba(triplets), rtol=0, atol=1e-8)


def test_units_order_and_repeats_do_not_matter(fitted):
    _, triplets, answers = fitted
    precise, rng = cf.ComparisonMetricLearner(tol=1e-10, **PAPER), np.random.default_rng(3)
    plain = clone(precise).fit(triplets, answers)
    other = clone(precise).fit(triplets @ UNITS.T, answers)
    np.testing.assert_allclose(
        other.predict_proba(triplets @ UNITS.T), plain.predict_proba(triplets), rtol=0, atol=1e-8
    )
    weights, order = rng.integers(0, 3, size=len(answers)), rng.permutation(len(answers))
    weighted = clone(precise).fit(triplets, answers, weights)
    repeated = clone(precise).fit(np.repeat(triplets, weights, axis=0), np.repeat(answers, weights))
    shuffled = clone(precise).fit(triplets[order], answers[order], weights[order])
    for same in (repeated, shuffled):
        np.testing.assert_allclose(same.predict_proba(triplets), weighted.predict_proba(triplets), rtol=0, atol=1e-8)


def test_pairs_have_distances_but_no_label(fitted):
    learner, triplets, _ = fitted
    pairs = triplets[:, :2]
    np.testing.assert_allclose(learner.pair_distance(pairs), learner.metric_.distance(pairs[:, 0], pairs[:, 1]))
    np.testing.assert_allclose(learner.pair_score(pairs), -learner.pair_distance(pairs))
    assert learner.get_metric()(*pairs[0]) == pytest.approx(learner.pair_distance(pairs)[0])
    mapped = learner.transform(pairs[:, 0]) - learner.transform(pairs[:, 1])
    np.testing.assert_allclose(np.linalg.norm(mapped, axis=1), learner.pair_distance(pairs))
    assert learner.metric_.threshold is None
    assert learner.thresholds_.shape == (0,)
    for method in (learner.predict, learner.predict_proba, learner.decision_function):
        for data in (pairs, pairs[:, 0]):
            with pytest.raises(ValueError, match=r"no threshold.*calibrate_threshold\(pairs, labels\)"):
                method(data)


# The other checks of scikit-learn pass data of two axes.
@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
        estimator_checks.check_mixin_order,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_valid_tag_types,
    ],
)
def test_scikit_learn_checks(check):
    check("ComparisonMetricLearner", cf.ComparisonMetricLearner(**PAPER))


def test_scikit_learn_selects(fitted):
    learner, triplets, answers = fitted
    for y in (answers, None):
        assert cross_val_score(learner, triplets, y, cv=3).shape == (3,)
    found = GridSearchCV(learner, {"alpha": [0.0, 1.0]}, cv=3).fit(triplets, answers)
    assert found.best_params_ == {"alpha": 0.0}


def test_manners_of_scikit_learn(fitted):
    learner, triplets, answers = fitted
    assert clone(learner).get_params() == learner.get_params()
    copied = pickle.loads(pickle.dumps(learner))
    assert copied.metric_ == learner.metric_
    assert copied.fit_.judgements is None
    with pytest.raises(NotFittedError):
        cf.ComparisonMetricLearner(**PAPER).predict(triplets)
    warm = cf.ComparisonMetricLearner(warm_start=True, **PAPER).fit(triplets, answers)
    cold = warm.certificate_.n_passes
    assert warm.fit(triplets, answers).certificate_.n_passes < cold
    named = cf.ComparisonMetricLearner(**PAPER).fit(triplets, answers, feature_names=["a", "b", "c"])
    assert named.metric_.feature_names == ("a", "b", "c")


def test_a_checkpoint_continues(fitted, tmp_path):
    learner, triplets, answers = fitted
    for _ in range(2):
        other = cf.ComparisonMetricLearner(**PAPER).fit(triplets, answers, checkpoint=tmp_path / "checkpoint")
        assert other.metric_ == learner.metric_
    with pytest.raises(ValueError, match="checkpoint"):
        cf.ComparisonMetricLearner(**PAPER).fit(triplets[1:], answers[1:], checkpoint=tmp_path / "checkpoint")


# A threshold for the metric


def test_a_threshold_is_the_best_one(fitted):
    learner, *_ = fitted
    pairs, labels = pairs_of()
    found = learner.calibrate_threshold(pairs, labels)
    z = learner.metric_.squared_distance(pairs[:, 0] - pairs[:, 1])

    def loss(threshold):
        return float(np.mean(np.log1p(np.exp(-np.where(labels, 1, -1) * (z - threshold)))))

    best = minimize_scalar(loss, bounds=(0, 20), method="bounded", options={"xatol": 1e-9})
    assert found.threshold == pytest.approx(best.x, abs=1e-5)
    assert found.loss == pytest.approx(best.fun, abs=1e-12)
    assert 0 <= found.gap < 1e-10
    for end in found.interval:
        assert 2 * len(labels) * (loss(end) - found.loss) == pytest.approx(3.841459, abs=1e-4)
    assert found.metric.threshold == found.threshold
    np.testing.assert_array_equal(found.metric.factor, learner.metric_.factor)
    assert learner.metric_.threshold is None
    assert not found.problems
    assert "by the profile likelihood" in str(found)


@pytest.mark.filterwarnings("ignore::closefar.IdentifiabilityWarning")  # one in a hundred is told of other noise
def test_the_interval_of_a_threshold_covers_the_truth():
    """Of 40 intervals for a known metric, 95 % cover on average; fewer than 33 would be a mistake."""
    learner = cf.ComparisonMetricLearner(**PAPER).fit(*triplets_of(20_000, seed=4))
    covered = []
    for seed in range(40):
        low, high = learner.calibrate_threshold(*pairs_of(200, seed=100 + seed)).interval
        covered.append(low < 4.0 < high)
    assert sum(covered) >= 33


def test_weights_of_a_threshold_are_repeats(fitted):
    learner, *_ = fitted
    pairs, labels = pairs_of(60)
    weights = np.random.default_rng(5).integers(0, 3, size=60)
    weighted = learner.calibrate_threshold(pairs, labels, weights)
    repeated = learner.calibrate_threshold(np.repeat(pairs, weights, axis=0), np.repeat(labels, weights))
    assert weighted.threshold == pytest.approx(repeated.threshold, rel=1e-9)
    assert weighted.interval == pytest.approx(repeated.interval, rel=1e-9)


def test_labels_that_are_separable_or_of_one_side(fitted):
    learner, *_ = fitted
    pairs, labels = pairs_of(100)
    distances = learner.pair_distance(pairs)
    is_far = distances > np.median(distances)
    with pytest.warns(cf.IdentifiabilityWarning, match="noise of the labels is far below that of the comparisons"):
        found = learner.calibrate_threshold(pairs, is_far)
    assert distances[~is_far].max() ** 2 - 3 < found.threshold < distances[is_far].min() ** 2 + 3
    assert found.interval[0] < found.threshold < found.interval[1] < np.inf
    with pytest.raises(ValueError, match="both a close and a far class"):
        learner.calibrate_threshold(pairs, np.ones(100))
    with pytest.raises(ValueError, match="positive weight"):
        learner.calibrate_threshold(pairs, labels, labels.astype(float))
    with pytest.warns(cf.IdentifiabilityWarning, match="the threshold is zero"):
        assert learner.calibrate_threshold(np.zeros((9, 2, 3)), np.arange(9) > 1).threshold == 0.0


def test_other_noise_of_the_labels_is_reported(fitted):
    learner, *_ = fitted
    rng = np.random.default_rng(6)
    pairs = rng.normal(size=(2000, 2, 3))
    labels = squared(pairs[:, 0] - pairs[:, 1]) + 5.0 * rng.logistic(size=2000) >= 4.0
    with pytest.warns(cf.IdentifiabilityWarning, match=r"noise of the labels is about \d.* that of the comparisons"):
        found = learner.calibrate_threshold(pairs, labels)
    assert found.noise_ratio == pytest.approx(5.0, rel=0.4)


# Pairs and comparisons together


def test_a_mixed_fit_has_the_loss_of_both(fitted):
    _, triplets, answers = fitted
    pairs, labels = pairs_of()
    weights = np.random.default_rng(7).uniform(0.5, 2.0, size=len(answers))
    learner = cf.LinearMetricLearner(tol=1e-9, **PAPER)
    learner.fit(pairs, labels, comparisons=(triplets, answers, weights), comparison_noise=2.0)
    metric = learner.metric_
    signs, margin = np.where(labels, 1, -1), learner.decision_function(pairs)
    compared = metric.squared_distance(triplets[:, 0] - triplets[:, 2])
    compared -= metric.squared_distance(triplets[:, 0] - triplets[:, 1])
    losses = np.log1p(np.exp(-np.append(signs * margin, answers * compared / 2.0)))
    loss = np.average(losses, weights=np.append(np.ones(len(labels)), weights))
    assert learner.certificate_.loss == pytest.approx(loss, rel=1e-9)
    assert learner.comparison_noise_.value == 2.0
    assert learner.comparison_noise_.interval is None


def test_a_mixed_fit_follows_units(fitted):
    _, triplets, answers = fitted
    pairs, labels = pairs_of()
    precise = cf.LinearMetricLearner(tol=1e-10, **PAPER)
    plain = clone(precise).fit(pairs, labels, comparisons=(triplets, answers))
    other = clone(precise).fit(pairs @ UNITS.T, labels, comparisons=(triplets @ UNITS.T, answers))
    np.testing.assert_allclose(other.predict_proba(pairs @ UNITS.T), plain.predict_proba(pairs), rtol=0, atol=1e-8)


def test_levels_and_comparisons_together(fitted):
    _, triplets, answers = fitted
    pairs, _ = pairs_of()
    rng = np.random.default_rng(8)
    levels = np.digitize(squared(pairs[:, 0] - pairs[:, 1]) + rng.logistic(size=len(pairs)), [2.0, 6.0])
    learner = cf.OrdinalMetricLearner(**PAPER).fit(
        pairs, levels, comparisons=(triplets, answers), comparison_noise="estimate"
    )
    assert learner.certificate_.converged
    low, high = learner.comparison_noise_.interval
    assert low < 1.0 < high
    assert learner.predict_proba(pairs).shape == (len(pairs), 3)


@pytest.mark.parametrize("n", [600, 60])
def test_comparisons_that_contradict_the_labels_are_named(fitted, n):
    _, triplets, answers = fitted
    pairs, labels = pairs_of()
    with pytest.warns(cf.IdentifiabilityWarning, match=r"the comparisons fit far better reversed .*negate y"):
        cf.LinearMetricLearner(**PAPER).fit(pairs, labels, comparisons=(triplets[:n], -answers[:n]))


def test_labels_that_contradict_the_comparisons_are_named(fitted):
    _, triplets, answers = fitted
    pairs, labels = pairs_of()
    with pytest.warns(cf.IdentifiabilityWarning, match="close and far swapped") as warned:
        cf.LinearMetricLearner(**PAPER).fit(pairs, ~labels, comparisons=(triplets, answers))
    assert not any("fit far better reversed" in str(each.message) for each in warned)


def test_swapped_labels_of_a_calibration_are_named(fitted):
    pairs, labels = pairs_of()
    with pytest.warns(cf.IdentifiabilityWarning, match="close and far swapped. If False means far, set far_label="):
        fitted[0].calibrate_threshold(pairs, ~labels)
