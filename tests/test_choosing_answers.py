"""What an answer teaches, against numerical integration and simulation."""

import numpy as np
import pytest
from scipy.special import entr
from scipy.stats import norm

from closefar.noise import NOISES, Logistic
from closefar.questions.choosing import AnswerModel

RATES = [0.0, 0.1, (0.02, 0.2)]
PLACES = [(0.0, 0.3), (1.5, 0.2), (-2.0, 0.8), (0.5, 1.0), (3.0, 2.5), (-4.0, 30.0), (100.0, 400.0)]


def expectation(function, mean, width, scale):
    """Under a normal distribution, on a grid that is fine in units of both the normal and the noise."""
    grid = np.concatenate([mean + width * np.linspace(-9.0, 9.0, 40_001), scale * np.linspace(-40.0, 40.0, 40_001)])
    grid = np.unique(grid[np.abs(grid - mean) <= 9.0 * width])
    return np.trapezoid(function(grid) * norm.pdf(grid, mean, width), grid)


def with_flips(far, rate):
    """The probability of being called far, by the definition of one flip rate and of two."""
    of_close, of_far = rate if isinstance(rate, tuple) else (rate, rate)
    return of_close * (1.0 - far) + (1.0 - of_far) * far


def entropy(p):
    return entr(p) + entr(1.0 - p)


@pytest.mark.parametrize("rate", RATES, ids=["none", "one", "two"])
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_gains_are_the_mutual_information(noise, rate):
    means, widths = np.array(PLACES).T
    found = AnswerModel(noise, rate).gains(means[:, None], (widths**2)[:, None, None])

    def probability(margin):
        return with_flips(noise.cdf(margin), rate)

    for value, mean, width in zip(found, means, widths, strict=True):
        average = expectation(probability, mean, width, noise.std)
        expected = entropy(average) - expectation(lambda m: entropy(probability(m)), mean, width, noise.std)
        assert value == pytest.approx(expected, rel=0.01, abs=2e-4)


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_expected_fisher_information_is_an_integral(noise):
    answers = AnswerModel(noise, 0.05)

    def information(margin):
        p = with_flips(noise.cdf(margin), 0.05)
        return (0.9 * noise.pdf(margin)) ** 2 / (p * (1.0 - p))

    for mean, width in PLACES:
        found = answers.expected_fisher(np.array([mean]), np.array([[width**2]]))
        expected = expectation(information, mean, width, noise.std)
        assert found[0, 0] == pytest.approx(expected, rel=0.03, abs=1e-4)


def levels_case():
    rng = np.random.default_rng(0)
    thresholds = np.array([1.0, 2.5, 4.0])
    squared = np.array([0.5, 2.0, 3.0, 6.0])
    root = rng.standard_normal((4, 3, 3)) * 0.2
    return squared[:, None] - thresholds, 0.5 + root @ np.swapaxes(root, 1, 2)


@pytest.mark.parametrize("rate", [0.0, 0.1], ids=["plain", "flips"])
def test_gains_of_levels_are_those_of_simulated_margins(rate):
    answers, (means, covariances) = AnswerModel(Logistic(), rate, 4), levels_case()
    found = answers.gains(means, covariances)
    rng = np.random.default_rng(1)
    for value, mean, covariance in zip(found, means, covariances, strict=True):
        probabilities = answers.probabilities(rng.multivariate_normal(mean, covariance, size=100_000))
        expected = entr(probabilities.mean(axis=0)).sum() - entr(probabilities).sum(axis=1).mean()
        assert value == pytest.approx(expected, rel=0.05)


def test_fisher_information_of_levels_is_that_of_their_probabilities():
    answers, (means, _) = AnswerModel(Logistic(), 0.1, 4), levels_case()
    step = 1e-5
    slopes = [answers.probabilities(means + e) - answers.probabilities(means - e) for e in step * np.eye(3)]
    slopes = np.stack(slopes, axis=1) / (2.0 * step)
    expected = np.einsum("nik,njk,nk->nij", slopes, slopes, 1.0 / answers.probabilities(means))
    np.testing.assert_allclose(answers.fisher(means), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("rate", RATES, ids=["none", "one", "two"])
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_less_is_to_learn_of_margins_that_are_better_known(noise, rate):
    """So that gains of before are bounds."""
    widths = np.geomspace(0.01, 1000.0, 400)
    for mean in (0.0, 0.7, -3.0, 20.0):
        gains = AnswerModel(noise, rate).gains(np.full((400, 1), mean), (widths**2)[:, None, None])
        assert np.all(np.diff(gains) > -1e-4)


def test_nothing_is_to_learn_of_known_margins():
    found = AnswerModel(Logistic(), 0.0).gains(np.array([[0.0], [1e8], [-1e8]]), np.zeros((3, 1, 1)))
    np.testing.assert_allclose(found, 0.0, atol=1e-12)
