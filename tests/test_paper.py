"""The paper's synthetic experiment in small, and its invariance to units."""

import numpy as np
import pytest

import closefar as cf
from paper_estimator import PAPER

SETTING = {
    "n_features": 10,
    "metric_eigenvalues": [0.32, 0.89, 0.59, 0.13, 0.14],
    "covariance_eigenvalues": [0.73, 0.7, 0.68, 0.59, 0.47, 0.45, 0.21, 0.19, 0.11, 0.04],
    "threshold": 1.3,
    "noise": "logistic",
    "wrong_share": 0.1,
}
N_TRAIN, N_FRESH = 15_000, 5_000


def spectral_error(matrix, expected):
    return np.linalg.norm(matrix - expected, 2) / np.linalg.norm(expected, 2)


@pytest.fixture(scope="module")
def fits():
    """Data of three random orientations, and the metrics learned from the first pairs of each."""
    data = [cf.datasets.make_pairs(N_TRAIN + N_FRESH, random_state=seed, **SETTING) for seed in range(3)]
    return [(one, cf.LinearMetricLearner(**PAPER).fit(one.pairs[:N_TRAIN], one.labels[:N_TRAIN])) for one in data]


@pytest.fixture(params=[0, 1, 2])
def orientation(fits, request):
    return fits[request.param]


def test_accuracy_and_recovery_are_those_of_the_paper(fits):
    accuracies, errors = [], []
    for data, learner in fits:
        accuracies.append(learner.score(data.pairs[N_TRAIN:], data.true_labels[N_TRAIN:]))
        learned = learner.metric_.matrix / learner.metric_.threshold
        errors.append(spectral_error(learned, data.metric.matrix / data.metric.threshold))
    assert np.mean(accuracies) >= 0.985
    assert np.mean(errors) <= 0.09


def test_the_share_of_wrong_labels_is_estimated(orientation):
    data, learner = orientation
    wrong = np.mean(data.labels[:N_TRAIN] != data.true_labels[:N_TRAIN])
    assert learner.fit_statistics_.wrong_share == pytest.approx(0.1, abs=0.01)
    assert learner.fit_statistics_.wrong_share == pytest.approx(wrong, abs=0.01)


def test_the_gap_is_proven(orientation):
    _, learner = orientation
    assert learner.certificate_.converged
    assert 0.0 <= learner.certificate_.gap <= 1e-6


def test_truncation_to_the_true_rank_keeps_the_accuracy(orientation):
    data, learner = orientation
    z = data.pairs[N_TRAIN:, 0] - data.pairs[N_TRAIN:, 1]
    labels = np.where(learner.metric_.truncate(5).margin(z) >= 0, 1, -1)
    assert np.mean(labels == data.true_labels[N_TRAIN:]) >= 0.97


def test_probabilities_are_calibrated(orientation):
    """Of the fresh pairs called far with probability about p, a share of about p is labelled far."""
    data, learner = orientation
    probabilities = learner.predict_proba(data.pairs[N_TRAIN:])[:, 1]
    far = data.labels[N_TRAIN:] > 0
    for low, high in [(0.0, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.0)]:
        inside = (probabilities >= low) & (probabilities < high)
        spread = 4.0 * np.sqrt(0.25 / inside.sum())
        assert np.mean(far[inside]) == pytest.approx(np.mean(probabilities[inside]), abs=spread)


def mixed_units(d, seed):
    """A matrix of condition 1e6, and a power of ten for each column of what it makes."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(2))
    mixing = left @ np.diag(np.logspace(-3, 3, d)) @ right
    return mixing, 10.0 ** rng.uniform(-9, 9, d)


def test_units_change_nothing(orientation):
    data, learner = orientation
    mixing, powers = mixed_units(SETTING["n_features"], seed=4)
    units = powers[:, None] * mixing
    z = data.pairs[:, 0] - data.pairs[:, 1]
    learned = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(z[:N_TRAIN], data.labels[:N_TRAIN])
    mixed = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(z[:N_TRAIN] @ units.T, data.labels[:N_TRAIN])
    np.testing.assert_allclose(
        mixed.predict_proba(z[N_TRAIN:] @ units.T), learned.predict_proba(z[N_TRAIN:]), rtol=0, atol=1e-6
    )
    assert mixed.certificate_.loss == pytest.approx(learned.certificate_.loss, abs=1e-10)
    assert mixed.metric_.rank == learned.metric_.rank
    expected = learned.metric_.change_units(units)
    assert spectral_error(mixed.metric_.matrix, expected.matrix) <= 1e-5
    # In the mixed units themselves one column hides all others; without the powers of ten none does.
    without_powers = mixed.metric_.change_units(1.0 / powers)
    assert spectral_error(without_powers.matrix, learned.metric_.change_units(mixing).matrix) <= 1e-5
    # The default tolerance finds the same labels.
    coarse = cf.LinearMetricLearner(**PAPER).fit(z[:N_TRAIN] @ units.T, data.labels[:N_TRAIN])
    assert np.mean(coarse.predict(z @ units.T) == learner.predict(z)) > 0.998
