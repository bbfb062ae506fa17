"""Judgements of every kind, scored by a metric: probabilities and measures of fit against plain formulas."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

import closefar as cf
from closefar.fitting import Scorer
from closefar.judgements import Judgements
from closefar.model import Scores, scores
from closefar.model.scores import answer_losses
from closefar.noise import NOISES

MARGINS = np.array([2.0, -1.0, 0.0, -0.5, 0.0, 3.0])
SIGNS = np.array([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])
COUNTS = np.array([1.0, 2.0, 3.0, 1.0, 4.0, 0.0])

RNG = np.random.default_rng(0)
FACTOR = RNG.standard_normal((5, 3))
ROWS = RNG.standard_normal((40, 5)) * [1.0, 2.0, 0.5, 3.0, 1.0]
TAUS = np.array([1.0, 2.5, 2.5, 4.0])  # nothing lies between the second and the third
SQUARED = RNG.gamma(2.0, 1.5, 60)
WEIGHTS = RNG.uniform(0.0, 2.0, 60)


def scored(signs=SIGNS, weights=COUNTS, flip_rate=0.1):
    judgements = Judgements.of_signs(np.zeros((len(signs), 1)), signs, weights)
    return Scores(judgements, MARGINS[: len(signs), None], NOISES["normal"], flip_rate)


def graded(flip_rate=0.0, noise="normal"):
    """60 judgements of five levels."""
    rng = np.random.default_rng(1)
    levels = np.append(np.arange(5), rng.integers(0, 5, 55))
    judgements = cf.OrdinalMetricLearner().read(rng.standard_normal((60, 2, 2)), levels, WEIGHTS)
    return Scores(judgements, SQUARED[:, None] - TAUS, NOISES[noise], flip_rate)


def compared(flip_rate=0.0):
    rng = np.random.default_rng(2)
    answers = np.where(rng.random(60) < 0.8, 1, -1)
    judgements = cf.ComparisonMetricLearner().read(rng.standard_normal((60, 3, 2)), answers, WEIGHTS)
    return Scores(judgements, (SQUARED - 2.0)[:, None], NOISES["normal"], flip_rate)


def plain_probabilities(each, flips=0.0):
    """The probability of each level, written out for normal noise and a share of answers that are wrong at random."""
    n_levels = each.margins.shape[1] + 1
    ends = np.column_stack([np.full(60, np.inf), each.margins, np.full(60, -np.inf)])
    right = stats.norm.cdf(ends[:, :-1]) - stats.norm.cdf(ends[:, 1:])
    flips = np.broadcast_to(flips, 60)[:, None]
    return flips / (n_levels - 1) + (1.0 - n_levels * flips / (n_levels - 1)) * right


def test_scores_are_weighted_figures():
    found = scored()
    far = 0.1 + 0.8 * NOISES["normal"].cdf(MARGINS)
    losses = -np.log(np.where(SIGNS > 0, far, 1.0 - far))
    assert len(found) == 6
    assert not found.is_graded
    np.testing.assert_allclose(found.probability_far, far)
    np.testing.assert_allclose(found.losses, losses)
    assert found.loss == pytest.approx(COUNTS @ losses / 11)
    np.testing.assert_array_equal(found.is_right, [True, False, True, True, False, False])
    assert found.accuracy == pytest.approx(5 / 11)
    assert found.share_far == pytest.approx(6 / 11)
    assert found.majority == pytest.approx(6 / 11)
    assert scored(-SIGNS).majority == pytest.approx(6 / 11)
    assert found.null_loss == pytest.approx(-(6 * np.log(6 / 11) + 5 * np.log(5 / 11)) / 11)
    np.testing.assert_array_equal(found.confusion(), [[1.0, 4.0], [2.0, 4.0]])
    np.testing.assert_array_equal(found.confusion(np.ones(6)), [[1.0, 2.0], [1.0, 2.0]])
    np.testing.assert_allclose(found.in_doubt, 4.0 * stats.norm.cdf(MARGINS) * stats.norm.sf(MARGINS))


def test_the_area_is_the_share_of_far_and_close_in_the_right_order():
    far, close = SIGNS > 0, SIGNS < 0
    above = np.sign(MARGINS[far][:, None] - MARGINS[close]) / 2 + 0.5
    assert scored().auc == pytest.approx(COUNTS[far] @ above @ COUNTS[close] / 30)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_labels_of_one_kind_have_no_area_and_nothing_to_learn(sign):
    found = scored(sign * np.ones(2), None)
    assert found.auc is None
    assert found.null_loss == 0.0
    assert found.majority == 1.0
    assert found.confusion().shape == (2, 2)
    assert scored(np.array([1.0, -1.0]), None).auc == 1.0


@pytest.mark.parametrize("flip_rate", [0.0, 0.2])
def test_levels_have_the_probabilities_between_their_thresholds(flip_rate):
    found = graded(flip_rate)
    expected = plain_probabilities(found, flip_rate)
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-15)
    codes, weights = found.judgements.codes, found.judgements.weights
    is_possible = expected[np.arange(60), codes] > 0
    np.testing.assert_allclose(np.exp(-found.losses), expected[np.arange(60), codes], atol=1e-15)
    assert is_possible.all() == (flip_rate > 0)  # two thresholds of one value leave nothing between them
    np.testing.assert_array_equal(found.predicted, np.argmax(expected, axis=1))
    np.testing.assert_array_equal(found.is_right, found.predicted == codes)
    np.testing.assert_allclose(found.probability_wrong, 1.0 - expected.max(axis=1), atol=1e-15)
    shares = np.array([weights[codes == code].sum() for code in range(5)]) / weights.sum()
    assert found.majority == pytest.approx(shares.max())
    assert found.null_loss == pytest.approx(stats.entropy(shares))
    matrix = found.confusion()
    assert matrix[3, 0] == pytest.approx(weights[(codes == 3) & (found.predicted == 0)].sum())
    assert matrix.sum() == pytest.approx(weights.sum())
    nearest = np.abs(found.margins).min(axis=1)
    np.testing.assert_allclose(found.in_doubt, 4.0 * stats.norm.cdf(nearest) * stats.norm.sf(nearest))


def test_of_two_levels_that_are_as_probable_the_higher_one_is_predicted():
    judgements = cf.OrdinalMetricLearner().read(np.eye(3)[:, None] * [[1.0], [0.0]], [0, 1, 2])
    margins = np.array([[0.0, -50.0], [1.0, -1.0], [50.0, 0.0]])  # at the first threshold, between, and at the second
    assert Scores(judgements, margins, NOISES["laplace"], 0.0).predicted.tolist() == [1, 1, 2]


@pytest.mark.parametrize("flip_rate", [0.0, 0.2])
def test_a_dichotomy_has_the_probability_of_all_levels_above(flip_rate):
    found = graded(flip_rate)
    assert len(found.dichotomies) == 4
    for k, each in enumerate(found.dichotomies, start=1):
        assert not each.is_graded
        np.testing.assert_allclose(each.probability_far, found.probabilities[:, k:].sum(axis=1), atol=1e-14)
        np.testing.assert_array_equal(each.judgements.is_far, found.judgements.codes >= k)
        np.testing.assert_array_equal(each.margin, SQUARED - TAUS[k - 1])
    areas = [
        roc_auc_score(found.judgements.codes >= k, SQUARED, sample_weight=found.judgements.weights) for k in range(1, 5)
    ]
    assert found.auc == pytest.approx(np.mean(areas))
    assert scored().dichotomies[0].margin.tolist() == MARGINS.tolist()


@pytest.mark.parametrize("flip_rate", [0.0, 0.2])
def test_comparisons_are_even_without_a_metric(flip_rate):
    found = compared(flip_rate)
    is_first_shorter = found.judgements.is_far
    agreement = np.where(is_first_shorter, SQUARED - 2.0, 2.0 - SQUARED)
    expected = flip_rate + (1.0 - 2.0 * flip_rate) * stats.norm.cdf(agreement)
    np.testing.assert_allclose(found.losses, -np.log(expected), atol=1e-15)
    np.testing.assert_array_equal(found.is_right, (SQUARED >= 2.0) == is_first_shorter)
    assert found.null_loss == pytest.approx(np.log(2.0))
    assert found.majority == 0.5
    assert found.auc is None


@pytest.mark.parametrize("kind", ["two rates", "two rates of each", "a rate of each"])
def test_flip_rates_may_be_those_of_sides_and_of_each_judgement(kind):
    rates = {
        "two rates": (0.2, 0.05),
        "two rates of each": (np.linspace(0.0, 0.3, 6), np.linspace(0.2, 0.1, 6)),
        "a rate of each": np.linspace(0.0, 0.4, 6),
    }[kind]
    close_called_far, far_called_close = rates if isinstance(rates, tuple) else (rates, rates)
    far = close_called_far + (1.0 - close_called_far - far_called_close) * stats.norm.cdf(MARGINS)
    found = scored(flip_rate=rates)
    np.testing.assert_allclose(found.probability_far, far)
    np.testing.assert_allclose(found.losses, -np.log(np.where(SIGNS > 0, far, 1.0 - far)))
    np.testing.assert_allclose(found.probability_wrong, np.where(MARGINS >= 0, 1.0 - far, far))
    some = np.array([5, 2])
    np.testing.assert_array_equal(found.take(some).losses, found.losses[some])
    np.testing.assert_array_equal(found.take(some).judgements.numbers, some)


def test_levels_may_have_a_flip_rate_of_each_judgement(monkeypatch):
    rates = np.linspace(0.0, 0.5, 60)
    found = graded(rates)
    expected = plain_probabilities(found, rates)
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-15)
    np.testing.assert_allclose(
        np.exp(-found.losses), expected[np.arange(60), found.judgements.codes], rtol=1e-12, atol=1e-15
    )
    for k in (1, 4):
        far = found.dichotomy(k).probability_far
        np.testing.assert_allclose(far, expected[:, k:].sum(axis=1), atol=1e-14)
    monkeypatch.setattr(scores, "_ROWS_PER_PART", 7)
    np.testing.assert_array_equal(graded(rates).probabilities, found.probabilities)


@pytest.mark.parametrize("name", NOISES)
def test_without_flips_losses_are_finite_where_the_probability_underflows(name):
    noise, margins = NOISES[name], np.array([-1e6, -1e3, 1e3, 1e6])
    far = answer_losses(noise, margins[:, None], np.ones(4, dtype=bool), 0.0)
    np.testing.assert_array_equal(far, noise.neg_log_cdf(margins))
    flipped = answer_losses(noise, margins[:, None], np.ones(4, dtype=bool), 0.1)
    np.testing.assert_allclose(flipped, -np.log([0.1, 0.1, 0.9, 0.9]), rtol=1e-14)
    between = answer_losses(noise, np.column_stack([margins + 1.0, margins - 1.0]), np.ones(4, dtype=np.intp), 0.0)
    np.testing.assert_allclose(between, noise.neg_log_cdf(1.0 - np.abs(margins)), rtol=2e-3)


def test_a_metric_scores_pairs_by_their_margin():
    metric = cf.Metric.from_factor(FACTOR, 4.0, "laplace", flip_rate=0.2)
    found = Scorer(metric).score(Judgements.of_signs(ROWS, np.where(np.arange(40) % 2, 1.0, -1.0)))
    np.testing.assert_allclose(found.margin, np.sum((ROWS @ FACTOR) ** 2, axis=1) - 4.0, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found.probability_far, metric.probability_far(ROWS), rtol=1e-12)
    assert found in {found}
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.flip_rate = 0.0


def test_annotators_have_the_strictness_and_the_rates_of_the_scorer():
    metric = cf.Metric.from_factor(FACTOR, (2.0, 6.0), flip_rate=0.1)
    who, strictness, rates = np.arange(40) % 3, np.array([0.0, 1.5, -0.5]), np.array([0.0, 0.3, 0.1])
    judgements = cf.OrdinalMetricLearner().read(ROWS, np.arange(40) % 4 % 3, annotators=who)
    squared = np.sum((ROWS @ FACTOR) ** 2, axis=1)
    found = Scorer(metric, strictness, rates).score(judgements)
    np.testing.assert_allclose(found.margins, squared[:, None] - strictness[who][:, None] - [2.0, 6.0], atol=1e-12)
    np.testing.assert_allclose(
        found.probabilities, metric.probabilities_at(squared - strictness[who], rates[who]), atol=1e-14
    )
    typical = Scorer(metric).score(judgements)
    np.testing.assert_allclose(typical.probabilities, metric.probabilities(ROWS), atol=1e-14)
    assert replace(typical, flip_rate=0.0).loss != typical.loss
