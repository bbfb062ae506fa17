"""Labels flipped whatever the distance: the likelihood, its derivatives, and what the fit makes of them."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning

import closefar as cf
from closefar.experiments.synthetic import paper_pairs
from closefar.flips import FlippedRisk, SoftRisk, best_flip_rate
from closefar.noise import NOISES
from closefar.pairs import Differences, unit_free_rows


def flipped_pairs(n=4000, d=4, rate=0.1, seed=0, noise=None, wrong_share=None):
    """Pairs of which `rate` of the labels are flipped, beside those that noise makes wrong."""
    data = cf.datasets.make_pairs(n, d, rank=2, noise=noise, wrong_share=wrong_share, random_state=seed)
    flips = np.random.default_rng(seed).random(n) < rate
    return data.pairs[:, 0] - data.pairs[:, 1], np.where(flips, -data.labels, data.labels), data


@pytest.fixture(params=sorted(NOISES))
def noise(request):
    return NOISES[request.param]


@pytest.fixture
def rows():
    z, labels, _ = flipped_pairs(200, 3)
    return unit_free_rows(Differences(z), labels.astype(float), np.arange(1.0, 201.0), with_constant=False)[0]


def risks(rows, noise):
    return [FlippedRisk(rows, noise, 0.07), SoftRisk(rows, noise, np.linspace(0.0, 0.9, len(rows)))]


def test_derivatives_are_those_of_the_loss(rows, noise):
    forms = np.linspace(0.1, 6.0, len(rows))
    for risk in risks(rows, noise):
        point = risk.pointwise(forms, 2.0, order=2)
        direction = np.sin(np.arange(len(rows)))
        ahead, behind = (risk.pointwise(forms + step * direction, 2.0).loss for step in (1e-5, -1e-5))
        assert np.sum(point.pull * direction) == pytest.approx((ahead - behind) / 2e-5, rel=1e-6, abs=1e-9)
        later, earlier = (risk.pointwise(forms, 2.0 + step).loss for step in (1e-5, -1e-5))
        assert point.threshold_slope == pytest.approx((later - earlier) / 2e-5, rel=1e-6, abs=1e-9)
        assert np.all(point.curvature >= 0)


def test_loss_is_that_of_the_mixture(rows, noise):
    forms = np.linspace(0.1, 6.0, len(rows))
    right = noise.cdf(rows.signs * (forms - 2.0))
    assert FlippedRisk(rows, noise, 0.2).pointwise(forms, 2.0).loss == pytest.approx(
        -np.sum(rows.weights * np.log(0.2 + 0.6 * right))
    )


def test_curvature_is_the_expected_second_derivative(rows, noise):
    """Over both labels, weighted by their probability, the second derivative is Fisher's information."""
    forms = np.full(len(rows), 2.7)
    expected = np.zeros(len(rows))
    for sign in (1.0, -1.0):
        rows.signs = np.full(len(rows), sign)
        risk = FlippedRisk(rows, noise, 0.1)
        slope = [risk.pointwise(forms + step, 2.0).pull for step in (1e-4, -1e-4)]
        probability = 0.1 + 0.8 * noise.cdf(sign * 0.7)
        expected += probability * (slope[0] - slope[1]) / 2e-4
        curvature = risk.pointwise(forms, 2.0, order=2).curvature
    np.testing.assert_allclose(curvature, expected, rtol=1e-5)


def test_best_flip_rate_is_the_maximum(noise):
    rng = np.random.default_rng(1)
    margin = rng.normal(1.0, 3.0, 500)
    right, weights = noise.cdf(margin), rng.random(500)

    def loss(rate):
        return -np.sum(weights * np.log(rate + (1.0 - 2.0 * rate) * right))

    found = minimize_scalar(loss, bounds=(0.0, 0.499), method="bounded", options={"xatol": 1e-10}).x
    assert best_flip_rate(right, weights) == pytest.approx(found, abs=1e-6)
    assert best_flip_rate(np.full(5, 0.9), np.ones(5)) == 0.0
    assert best_flip_rate(np.zeros(5), np.ones(5)) == pytest.approx(0.499)


@pytest.mark.parametrize("seed", [0, 1])
def test_flips_are_found_and_the_metric_with_them(seed):
    split = paper_pairs(15_000, noise="flips", wrong_share=0.1, seed=seed)
    plain = cf.LinearMetricLearner().fit(split.train, split.noisy_train)
    learner = cf.LinearMetricLearner(flip_rate="estimate").fit(split.train, split.noisy_train)
    accuracy = {
        each: np.mean((each.decision_function(split.test) >= 0) == (split.true_test > 0)) for each in (plain, learner)
    }
    assert accuracy[learner] > 0.99 > 0.97 > accuracy[plain]
    assert learner.flip_rate_ == pytest.approx(0.1, abs=0.01)
    assert learner.fit_statistics_.wrong_share == pytest.approx(0.1, abs=0.01)
    assert learner.certificate_.loss < plain.certificate_.loss
    assert learner.certificate_.gap <= 1e-6
    assert "flipped" in learner.certificate_.status


def test_noise_alone_is_not_taken_for_flips(noise):
    split = paper_pairs(8_000, noise=noise.name, seed=3)
    plain = cf.LinearMetricLearner(noise).fit(split.train, split.noisy_train)
    learner = cf.LinearMetricLearner(noise, flip_rate="estimate").fit(split.train, split.noisy_train)
    assert learner.flip_rate_ < 0.02
    assert learner.score(split.test, split.true_test) >= plain.score(split.test, split.true_test) - 0.004


def test_noise_and_flips_together_are_told_apart():
    z, labels, data = flipped_pairs(20_000, 4, 0.1, seed=4, noise="logistic", wrong_share=0.1)
    learner = cf.LinearMetricLearner(flip_rate="estimate", tol=1e-8).fit(z, labels)
    assert learner.flip_rate_ == pytest.approx(0.1, abs=0.02)
    right = learner.metric_.noise.cdf(labels * learner.decision_function(z))
    rate = learner.flip_rate_
    loss = -np.mean(np.log(rate + (1 - 2 * rate) * right))
    assert learner.certificate_.loss == pytest.approx(loss, abs=1e-9)
    assert best_flip_rate(right, np.ones(len(right))) == pytest.approx(rate, abs=1e-6)
    assert np.mean(labels != data.true_labels) == pytest.approx(learner.fit_statistics_.wrong_share, abs=0.01)


def test_a_given_rate_is_kept_and_probabilities_respect_it():
    z, labels, _ = flipped_pairs()
    learner = cf.LinearMetricLearner(flip_rate=0.1).fit(z, labels)
    assert learner.flip_rate_ == 0.1
    probabilities = learner.predict_proba(z)
    assert probabilities.min() >= 0.1
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_allclose(learner.metric_.probability_far(z), probabilities[:, 1], rtol=1e-12)


def test_units_do_not_matter():
    z, labels, _ = flipped_pairs(noise="logistic", wrong_share=0.1)
    units = np.array([1e-6, 1.0, 1e3, 1e9])
    one, other = (cf.LinearMetricLearner(flip_rate="estimate", tol=1e-9).fit(rows, labels) for rows in (z, z * units))
    np.testing.assert_allclose(one.predict_proba(z), other.predict_proba(z * units), atol=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "parameters", [{"rank": 2}, {"alpha": 0.01}, {"fit_origin": True}, {"fit_origin": True, "alpha": 0.01}], ids=str
)
def test_with_other_parameters(parameters):
    z, labels, data = flipped_pairs(noise="logistic", wrong_share=0.05)
    plain = cf.LinearMetricLearner(**parameters).fit(z, labels)
    learner = cf.LinearMetricLearner(flip_rate="estimate", **parameters).fit(z, labels)
    assert learner.flip_rate_ == pytest.approx(0.1, abs=0.04)
    assert learner.score(z, data.true_labels) >= plain.score(z, data.true_labels) - 0.003
    if "rank" in parameters:
        assert learner.metric_.rank == 2


def test_many_columns():
    z, labels, data = flipped_pairs(6000, 40, noise="logistic", wrong_share=0.05)
    plain = cf.LinearMetricLearner().fit(z, labels)
    learner = cf.LinearMetricLearner(flip_rate="estimate").fit(z, labels)
    assert learner.flip_rate_ == pytest.approx(0.1, abs=0.05)
    assert learner.certificate_.loss <= plain.certificate_.loss
    assert learner.score(z, data.true_labels) >= plain.score(z, data.true_labels)


def test_labels_without_noise_or_flips():
    z, labels, _ = flipped_pairs(500, rate=0.0)
    with pytest.warns(ConvergenceWarning, match="separable"):
        learner = cf.LinearMetricLearner(flip_rate="estimate").fit(z, labels)
    assert learner.flip_rate_ == 0.0


@pytest.mark.parametrize("rate", [-0.1, 0.5, np.nan, "auto", None])
def test_bad_rates_are_named(rate):
    z, labels, _ = flipped_pairs(100)
    with pytest.raises(ValueError, match=r'flip_rate must be "estimate" or a number from 0 to below 0\.5; got'):
        cf.LinearMetricLearner(flip_rate=rate).fit(z, labels)


@pytest.mark.parametrize("parameters", [{"rank": 1}, {"rank": 2}, {"alpha": 0.02}], ids=str)
def test_the_result_is_stationary(parameters):
    """One more step of expectation-maximisation gains nothing."""
    z, labels, _ = flipped_pairs(1500, 5, noise="logistic", wrong_share=0.05, seed=6)
    first = cf.LinearMetricLearner(flip_rate="estimate", tol=1e-8, **parameters).fit(z, labels)
    rate = first.flip_rate_
    right = first.metric_.noise.cdf(labels * first.decision_function(z))
    flipped = rate * (1.0 - right) / (rate + (1.0 - 2.0 * rate) * right)
    both, weights = np.vstack([z, z]), np.concatenate([1.0 - flipped, flipped])
    step = cf.LinearMetricLearner(tol=1e-8, **parameters).fit(both, np.concatenate([labels, -labels]), weights)
    right = step.metric_.noise.cdf(labels * step.decision_function(z))
    rate = best_flip_rate(right, np.ones(len(right)))
    after = -np.mean(np.log(rate + (1.0 - 2.0 * rate) * right))
    penalty = {"alpha": 0.0, **parameters}["alpha"]
    gain = (
        first.certificate_.loss
        - after
        + penalty * np.mean(first.metric_.squared_distance(z) - step.metric_.squared_distance(z))
    )
    assert gain <= 1e-5
    assert not first.certificate_.globally_optimal
