"""Levels of pairs: the ordinal learner against independent formulas, and what must not change its answer."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import closefar as cf
from closefar.noise import NOISES
from paper_estimator import PAPER

THRESHOLDS = np.array([1.0, 3.0, 6.0])
WORDS = np.array(["same", "alike", "different", "opposite"])


def rated(n=600, d=3, noise="logistic", seed=0) -> tuple[np.ndarray, np.ndarray]:
    """Pairs rated from 0 to 3 by a metric of rank 2."""
    rng = np.random.default_rng(seed)
    pairs = rng.normal(size=(n, 2, d))
    factor = rng.normal(size=(d, 2))
    squared = np.sum(((pairs[:, 0] - pairs[:, 1]) @ factor) ** 2, axis=1)
    return pairs, np.digitize(squared + NOISES[noise].sample(n, rng), THRESHOLDS)


@pytest.fixture(scope="module")
def fitted():
    pairs, levels = rated()
    return cf.OrdinalMetricLearner(**PAPER).fit(pairs, levels), pairs, levels


def test_the_loss_is_that_of_the_cumulative_model(fitted):
    learner, pairs, levels = fitted
    probabilities = learner.predict_proba(pairs)
    assert probabilities.shape == (len(pairs), 4)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    loss = -np.mean(np.log(probabilities[np.arange(len(levels)), levels]))
    assert loss == pytest.approx(learner.certificate_.loss, rel=1e-9)
    assert learner.certificate_.converged
    np.testing.assert_array_equal(learner.predict(pairs), np.argmax(probabilities, axis=1))
    assert learner.score(pairs, levels) == np.mean(learner.predict(pairs) == levels)
    z = pairs[:, 0] - pairs[:, 1]
    squared = np.einsum("ij,jk,ik->i", z, learner.get_mahalanobis_matrix(), z)
    np.testing.assert_allclose(learner.decision_function(pairs), squared)
    np.testing.assert_allclose(learner.pair_distance(pairs) ** 2, squared)


@pytest.mark.parametrize("noise", NOISES)
def test_no_other_optimiser_finds_a_smaller_loss(noise):
    pairs, levels = rated(400, 2, noise, seed=1)
    learner = cf.OrdinalMetricLearner(noise=noise, tol=1e-9, **PAPER).fit(pairs, levels)
    z, cdf = pairs[:, 0] - pairs[:, 1], NOISES[noise].cdf

    def loss(x):
        factor, taus = x[:4].reshape(2, 2), np.cumsum(np.exp(x[4:]))
        upper = cdf(np.sum((z @ factor) ** 2, axis=1)[:, None] - taus)
        probability = -np.diff(np.column_stack([np.ones(len(z)), upper, np.zeros(len(z))]), axis=1)
        return -np.mean(np.log(np.maximum(probability[np.arange(len(z)), levels], 1e-300)))

    factor = np.zeros((2, 2))
    factor[:, : learner.metric_.rank] = learner.metric_.factor
    start = np.append(factor.ravel(), np.log(np.diff(learner.thresholds_, prepend=0.0)))
    assert loss(start) == pytest.approx(learner.certificate_.loss, abs=1e-10)
    other = minimize(loss, start + 0.05, method="BFGS", options={"gtol": 1e-8})
    assert abs(other.fun - learner.certificate_.loss) < 1e-6
    assert other.fun > learner.certificate_.loss - learner.certificate_.gap - 1e-9


def test_two_levels_are_close_and_far():
    pairs, levels = rated()
    is_far = (levels >= 2).astype(int)
    binary, ordinal = (
        cf.LinearMetricLearner(**PAPER).fit(pairs, is_far),
        cf.OrdinalMetricLearner(**PAPER).fit(pairs, is_far),
    )
    assert ordinal.metric_ == binary.metric_
    assert ordinal.certificate_ == binary.certificate_
    for method in ("predict", "predict_proba", "transform", "pair_distance"):
        np.testing.assert_array_equal(getattr(ordinal, method)(pairs), getattr(binary, method)(pairs))
    np.testing.assert_array_equal(
        ordinal.decision_function(pairs) - binary.thresholds_, binary.decision_function(pairs)
    )


def test_units_do_not_matter(fitted):
    _, pairs, levels = fitted
    units = np.array([[1e4, 2.0, 0.0], [0.0, 1e-5, 1e-6], [0.3, 0.0, 1.0]])
    other = cf.OrdinalMetricLearner(tol=1e-10, **PAPER).fit(pairs @ units.T, levels)
    same = cf.OrdinalMetricLearner(tol=1e-10, **PAPER).fit(pairs, levels)
    np.testing.assert_allclose(other.predict_proba(pairs @ units.T), same.predict_proba(pairs), rtol=0, atol=1e-8)


def test_order_and_repeats_do_not_matter():
    pairs, levels = rated(300)
    weights = np.random.default_rng(3).integers(0, 3, size=300)
    levels[weights == 0] = 0  # so that each level keeps a weight
    precise = cf.OrdinalMetricLearner(tol=1e-10, **PAPER)
    weighted = clone(precise).fit(pairs, levels, weights)
    repeated = clone(precise).fit(np.repeat(pairs, weights, axis=0), np.repeat(levels, weights))
    order = np.random.default_rng(4).permutation(300)
    shuffled = clone(precise).fit(pairs[order][:, ::-1], levels[order], weights[order])
    for other in (repeated, shuffled):
        np.testing.assert_allclose(other.predict_proba(pairs), weighted.predict_proba(pairs), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("given", "levels"),
    [
        (lambda codes: WORDS[codes], list(WORDS)),
        (lambda codes: pd.Series(pd.Categorical(WORDS[codes], categories=WORDS, ordered=True)), None),
        (lambda codes: 10.0 * codes - 0.5, None),
        (lambda codes: codes.tolist(), [0, 1, 2, 3]),
    ],
    ids=["words", "ordered categories", "numbers", "numbers in a given order"],
)
def test_levels_may_be_words_categories_or_numbers(fitted, given, levels):
    learner, pairs, codes = fitted
    labels = given(codes)
    other = cf.OrdinalMetricLearner(levels, **PAPER).fit(pairs, labels)
    assert other.metric_ == learner.metric_
    assert len(other.classes_) == 4
    np.testing.assert_array_equal(other.predict(pairs), np.asarray(other.classes_)[learner.predict(pairs)])
    assert set(np.asarray(other.predict(pairs)).tolist()) <= set(np.asarray(labels).tolist())
    assert other.score(pairs, labels) == learner.score(pairs, codes)


def test_a_reversed_order_is_another_fit(fitted):
    _, pairs, codes = fitted
    with pytest.warns(cf.IdentifiabilityWarning, match="opposite"):
        reversed_levels = cf.OrdinalMetricLearner([3, 2, 1, 0], **PAPER).fit(pairs, codes)
    assert reversed_levels.classes_.tolist() == [3, 2, 1, 0]


def test_a_level_that_nobody_used_is_named(fitted):
    _, pairs, codes = fitted
    with pytest.raises(ValueError, match=r"each level must have been used; nobody used 4"):
        cf.OrdinalMetricLearner([0, 1, 2, 3, 4], **PAPER).fit(pairs, codes)
    with pytest.raises(ValueError, match=r"levels that are words need an order"):
        cf.OrdinalMetricLearner(**PAPER).fit(pairs, WORDS[codes])


def test_manners_of_scikit_learn(fitted):
    learner, pairs, levels = fitted
    parameters = learner.get_params()
    assert list(cf.OrdinalMetricLearner([1, 2], **PAPER).get_params()["levels"]) == [1, 2]
    assert clone(learner).get_params() == parameters
    copied = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(copied.predict(pairs), learner.predict(pairs))
    assert copied.fit_.judgements is None
    assert cross_val_score(learner, pairs, levels, cv=3).mean() > 0.5
    with pytest.raises(NotFittedError):
        cf.OrdinalMetricLearner(**PAPER).predict(pairs)
    with pytest.raises(AttributeError, match="far_label_ exists only for close/far labels"):
        _ = learner.far_label_
    with pytest.raises(AttributeError, match="annotators_ exists only after fit"):
        _ = learner.annotators_
    with pytest.raises(AttributeError, match="comparison_noise_ exists only for pairs with comparisons"):
        _ = learner.comparison_noise_


def test_a_warm_start_takes_the_thresholds_along(fitted):
    _, pairs, levels = fitted
    warm = cf.OrdinalMetricLearner(warm_start=True, **PAPER).fit(pairs, levels)
    cold = warm.certificate_
    warm.fit(pairs, levels)
    assert warm.certificate_.n_passes < cold.n_passes
    assert warm.certificate_.loss == pytest.approx(cold.loss, abs=2e-6)
    assert len(warm.fit(pairs, levels >= 2).thresholds_) == 1  # the last metric has too many thresholds to start from


def test_a_checkpoint_continues(fitted, tmp_path):
    learner, pairs, levels = fitted
    for _ in range(2):
        other = cf.OrdinalMetricLearner(**PAPER).fit(pairs, levels, checkpoint=tmp_path / "checkpoint")
        assert other.metric_ == learner.metric_
    with pytest.raises(ValueError, match="checkpoint"):
        cf.OrdinalMetricLearner(**PAPER).fit(pairs, np.minimum(levels, 2), checkpoint=tmp_path / "checkpoint")


def test_names_of_columns_are_kept():
    pairs, levels = rated()
    frame = pd.DataFrame(pairs[:, 0] - pairs[:, 1], columns=["a", "b", "c"])
    learner = cf.OrdinalMetricLearner(**PAPER).fit(frame, levels)
    assert learner.feature_names_in_.tolist() == ["a", "b", "c"]
    assert learner.metric_.feature_names == ("a", "b", "c")
    assert cf.OrdinalMetricLearner(**PAPER).fit(pairs, levels, feature_names=["x", "y", "z"]).metric_.column_names == (
        "x",
        "y",
        "z",
    )


def test_flips_are_answers_at_random():
    pairs, levels = rated(3000, seed=5)
    rng = np.random.default_rng(6)
    random = rng.uniform(size=3000) < 0.2
    levels[random] = rng.integers(0, 4, size=random.sum())
    learner = cf.OrdinalMetricLearner(flip_rate="estimate", alpha=0.0).fit(pairs, levels)
    assert learner.flip_rate_ == pytest.approx(0.2 * 3 / 4, abs=0.04)
    assert learner.predict_proba(pairs).min() >= learner.flip_rate_ / 3 - 1e-12


def _expected_failures(estimator):
    """What scikit-learn's checks assume of classifiers, and ratings do not do."""
    words = "levels that are words need an order, which these checks do not give"
    distance = "decision_function is the squared distance, not a score of each class"
    return {
        "check_classifiers_classes": words,
        "check_classifiers_regression_target": "numbers are ordered levels",
        "check_classifiers_train": distance,
    }


# The checks fit separable and tiny data, of which the learner rightly warns.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@parametrize_with_checks([cf.OrdinalMetricLearner(**PAPER)], expected_failed_checks=_expected_failures)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
