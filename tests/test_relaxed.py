"""The threshold of a penalised fit, relaxed: where it would be without the penalty."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import closefar as cf
from closefar.noise import label_losses

RNG = np.random.default_rng(0)
# Skewed squared distances, of which a penalty shrinks the few large ones most.
Z = RNG.standard_t(4, (400, 3)) * [1.0, 2.0, 0.5]
IS_FAR = Z[:, 0] ** 2 + 0.3 * Z[:, 1] ** 2 > 2.0 + 0.3 * RNG.logistic(size=400)
FLIPPED = IS_FAR ^ (RNG.random(400) < 0.25)
PENALTY = {"alpha": 0.05, "alpha_scale": "columns"}


def learner(**parameters):
    return cf.LinearMetricLearner(**PENALTY | parameters)


def test_the_threshold_is_that_of_a_fit_to_the_distances_alone():
    plain = learner().fit(Z, IS_FAR)
    relaxed = learner(relax_threshold=True).fit(Z, IS_FAR)
    np.testing.assert_array_equal(relaxed.metric_.factor, plain.metric_.factor)
    assert relaxed.certificate_ == plain.certificate_
    squared = plain.metric_.squared_distance(Z)
    alone = LogisticRegression(C=np.inf, tol=1e-10).fit(squared[:, None], IS_FAR)
    expected = -alone.intercept_[0] / alone.coef_[0, 0]
    assert relaxed.metric_.threshold == pytest.approx(expected, rel=1e-3)
    assert abs(relaxed.metric_.threshold / plain.metric_.threshold - 1.0) > 0.05
    assert relaxed.fit_statistics_.accuracy == relaxed.score(Z, IS_FAR) > plain.score(Z, IS_FAR)


@pytest.mark.parametrize("flip_rate", [0.25, (0.2, 0.3)])
@pytest.mark.parametrize("noise", ["logistic", "laplace"])
def test_flips_count_in_the_relaxed_threshold(flip_rate, noise):
    relaxed = learner(noise=noise, flip_rate=flip_rate, relax_threshold=True).fit(Z, FLIPPED)
    squared, signs = relaxed.metric_.squared_distance(Z), np.where(FLIPPED, 1.0, -1.0)

    def least_loss(threshold):
        """Of all scales of M from its own upwards."""
        scales = np.geomspace(1.0, 100.0, 400)
        margins = scales[:, None] * (squared - threshold) * signs
        return label_losses(relaxed.metric_.noise, margins, flip_rate, signs > 0).mean(axis=1).min()

    threshold = relaxed.metric_.threshold
    assert least_loss(threshold) <= min(least_loss(0.98 * threshold), least_loss(1.02 * threshold))
    plain = learner(noise=noise, flip_rate=flip_rate).fit(Z, FLIPPED)
    assert least_loss(threshold) < least_loss(plain.metric_.threshold)


def test_weights_and_units_are_followed():
    weights = np.where(np.arange(400) < 100, 2.0, 1.0)
    relaxed = learner(relax_threshold=True).fit(Z, IS_FAR, sample_weight=weights)
    repeated = learner(relax_threshold=True).fit(np.r_[Z, Z[:100]], np.r_[IS_FAR, IS_FAR[:100]])
    assert repeated.metric_.threshold == pytest.approx(relaxed.metric_.threshold, rel=1e-4)
    scaled = learner(relax_threshold=True).fit(Z * [1e-6, 1.0, 1e6], IS_FAR, sample_weight=weights)
    assert scaled.metric_.threshold == pytest.approx(relaxed.metric_.threshold, rel=1e-4)


def test_without_a_penalty_or_a_metric_there_is_nothing_to_relax():
    plain, relaxed = (learner(alpha=0.0, relax_threshold=relaxes).fit(Z, IS_FAR) for relaxes in (False, True))
    assert relaxed.metric_ == plain.metric_
    plain, relaxed = (learner(alpha=100.0, relax_threshold=relaxes).fit(Z, IS_FAR) for relaxes in (False, True))
    assert relaxed.metric_.rank == 0
    assert relaxed.metric_ == plain.metric_


def test_distances_that_separate_the_labels_have_a_threshold_between_them():
    is_far = np.sum(Z**2, axis=1) > 2.0
    relaxed = learner(alpha_scale="units", shrink_to="identity", alpha=1.0, relax_threshold=True).fit(Z, is_far)
    assert relaxed.score(Z, is_far) == 1.0


def test_an_origin_is_measured_from_as_before():
    points = Z + 5.0
    plain = learner(fit_origin=True, alpha=0.02).fit(points, IS_FAR)
    relaxed = learner(fit_origin=True, alpha=0.02, relax_threshold=True).fit(points, IS_FAR)
    np.testing.assert_array_equal(relaxed.metric_.origin, plain.metric_.origin)
    assert relaxed.metric_.threshold != plain.metric_.threshold
    assert relaxed.score(points, IS_FAR) >= plain.score(points, IS_FAR)


def test_annotators_have_thresholds_of_their_own():
    with pytest.raises(ValueError, match="relax_threshold needs close/far labels without annotators"):
        learner(relax_threshold=True).fit(Z, IS_FAR, annotators=np.arange(400) % 3)
    search = cf.LinearMetricLearnerCV([0.1], cv=2, alpha_scale="columns", flip_rate=0.0)
    assert not search.fit(Z, IS_FAR, annotators=np.arange(400) % 3).relax_threshold_


def prefers_the_plain_threshold(fitted, X, y, sample_weight=None):
    return float(not fitted.relax_threshold)


def test_a_search_relaxes_the_threshold_unless_that_is_clearly_worse():
    search = cf.LinearMetricLearnerCV([0.05, 0.1], cv=3, alpha_scale="columns", shrink_to="zero", flip_rate=0.25)
    found = search.fit(Z, FLIPPED)
    assert found.relax_threshold_
    assert found.cv_results_["param_relax_threshold"].tolist() == [False, False, True]
    assert found.best_score_ == found.cv_results_["mean_test_score"][2]
    kept = search.set_params(scoring=prefers_the_plain_threshold).fit(Z, FLIPPED)
    assert not kept.relax_threshold_
