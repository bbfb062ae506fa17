"""Metrics with several thresholds, with none, and with flip rates that depend on the side."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

import closefar as cf
from closefar.fitting import Scorer
from closefar.judgements import Judgements
from closefar.noise import NOISES, label_losses, turned_round, with_flips

LEVELS = (0.5, 1.0, 1.0, 4.0)
Z = np.random.default_rng(0).normal(size=(200, 3)) * 1.5


def metric_of(threshold, noise="logistic", **kwargs) -> cf.Metric:
    return cf.Metric.from_factor(np.random.default_rng(1).normal(size=(3, 2)), threshold, noise, **kwargs)


def test_one_threshold_may_be_given_as_a_sequence():
    one = metric_of(1.5)
    assert metric_of([1.5]) == one
    assert (one.threshold, one.thresholds, one.n_levels, one.known_threshold, one.cut) == (1.5, (1.5,), 2, 1.5, 1.5)
    assert one.dichotomy(1) is one


def test_levels_have_several_thresholds_and_none_of_its_own():
    metric = metric_of(np.array(LEVELS))
    assert metric.threshold is None
    assert metric.thresholds == LEVELS
    assert metric.n_levels == 5
    assert repr(metric) == "Metric(3 features, rank 2, thresholds 0.5, 1, 1, 4, logistic noise)"
    for needs_one in (lambda: metric.known_threshold, lambda: metric.cut, lambda: metric.margin(Z)):
        with pytest.raises(ValueError, match=r"needs one threshold; got a metric of 5 levels, which has 4\. Use dicho"):
            needs_one()


def test_comparisons_have_no_threshold():
    metric = metric_of(None)
    assert (metric.threshold, metric.thresholds, metric.cut) == (None, (), 0.0)
    assert metric == metric_of(())
    assert repr(metric) == "Metric(3 features, rank 2, no threshold, logistic noise)"
    np.testing.assert_array_equal(metric.probability_at(np.array([-1.0, 0.0])), NOISES["logistic"].cdf([-1.0, 0.0]))
    for needs_one in (
        lambda: metric.known_threshold,
        lambda: metric.probability_far(Z),
        lambda: metric.probabilities(Z),
        lambda: metric.levels_at(np.ones(1)),
        lambda: metric.dichotomy(1),
    ):
        with pytest.raises(ValueError, match=r"comparisons determine none.*calibrate_threshold\(pairs, labels\)"):
            needs_one()


@pytest.mark.parametrize("bad", [[2.0, 1.0], [0.0, np.nan], np.inf])
def test_bad_thresholds_are_named(bad):
    with pytest.raises(ValueError, match=r"threshold.*must be .*finite number.*; got"):
        metric_of(bad)


@pytest.mark.parametrize("flip_rate", [0.0, 0.2])
@pytest.mark.parametrize("noise", NOISES)
def test_probabilities_are_those_of_the_dichotomies(noise, flip_rate):
    metric = metric_of(LEVELS, noise, flip_rate=flip_rate)
    probabilities = metric.probabilities(Z)
    assert probabilities.shape == (len(Z), 5)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-14)
    np.testing.assert_allclose(probabilities[:, 2], flip_rate / 4, atol=1e-15)  # between equal thresholds
    for k in range(1, 5):
        at_least = metric.dichotomy(k).probability_far(Z)
        np.testing.assert_allclose(probabilities[:, k:].sum(axis=1), at_least, atol=1e-14)
    np.testing.assert_array_equal(metric.probabilities(Z[0]), probabilities[0])
    most = np.argmax(probabilities[:, ::-1], axis=1)
    np.testing.assert_array_equal(metric.levels_at(metric.squared_distance(Z)), 4 - most)


@pytest.mark.parametrize("noise", NOISES)
def test_improbable_levels_keep_their_digits(noise):
    """On both sides: the differences of probabilities near one would have none left."""
    metric = cf.Metric([[1.0]], (20.0, 21.0), noise)
    near, far = metric.probabilities_at(np.array([0.0, 41.0]))
    np.testing.assert_allclose(near, far[::-1], rtol=1e-9)
    assert 0 < near[2] < near[1] < 1e-8


def test_a_level_metric_of_two_levels_is_close_or_far():
    metric = metric_of(1.0, flip_rate=0.1)
    np.testing.assert_array_equal(metric.probabilities(Z)[:, 1], metric.probability_far(Z))
    np.testing.assert_array_equal(metric.levels_at(metric.squared_distance(Z)), metric.margin(Z) >= 0)


@pytest.mark.parametrize("bad", [(0.5, 0.5), (-0.1, 0.2), (0.1, 0.2, 0.3), (0.1,), ("0.1", 0.2), (np.nan, 0.1)])
def test_bad_flip_rates_of_two_sides_are_named(bad):
    with pytest.raises(ValueError, match=r"two flip rates, .* must be numbers from 0 to below 1 that sum"):
        metric_of(1.0, flip_rate=bad)


def test_flip_rates_of_sides_are_for_two_sides():
    with pytest.raises(ValueError, match=r"are for close and far only; got \(0\.1, 0\.2\) for 5 levels"):
        metric_of(LEVELS, flip_rate=(0.1, 0.2))
    with pytest.raises(ValueError, match=r"flip_rate must be at least 0 and below 0\.8; got 0\.8"):
        metric_of(LEVELS, flip_rate=0.8)


def test_flip_rates_of_two_sides():
    metric, plain = metric_of(1.0, flip_rate=(0.2, 0.05)), metric_of(1.0)
    assert metric.flip_rates == (0.2, 0.05)
    assert repr(metric).endswith("logistic noise, flip rates 0.2 of close and 0.05 of far)")
    probability = metric.probability_far(Z)
    np.testing.assert_allclose(probability, 0.2 + 0.75 * plain.probability_far(Z))
    np.testing.assert_allclose(metric.probabilities(Z), np.column_stack([1.0 - probability, probability]))
    with pytest.raises(ValueError, match="needs one flip rate for both sides; got two"):
        _ = metric.one_flip_rate


def test_losses_with_two_flip_rates():
    is_far, margin, noise = np.arange(200) % 2 == 1, np.linspace(-5, 5, 200), NOISES["normal"]
    far = with_flips(noise.cdf(margin), (0.2, 0.05))
    close = with_flips(noise.cdf(-margin), turned_round((0.2, 0.05)))
    np.testing.assert_allclose(far + close, 1.0)
    losses = label_losses(noise, np.where(is_far, margin, -margin), (0.2, 0.05), is_far)
    np.testing.assert_allclose(losses, -np.log(np.where(is_far, far, close)))


def test_scored_with_flip_rates_of_each_judgement():
    rng = np.random.default_rng(2)
    metric, signs = metric_of(1.0), np.where(rng.uniform(size=len(Z)) < 0.4, 1.0, -1.0)
    judgements = Judgements.of_signs(Z, signs)
    rates = rng.uniform(0, 0.3, len(Z)), rng.uniform(0, 0.3, len(Z))
    scored = replace(Scorer(metric).score(judgements), flip_rate=rates)
    np.testing.assert_allclose(scored.margin, metric.margin(Z))
    np.testing.assert_allclose(
        scored.losses, -np.log(np.where(signs > 0, scored.probability_far, 1 - scored.probability_far))
    )
    wrong = np.where(scored.margin >= 0, 1 - scored.probability_far, scored.probability_far)
    np.testing.assert_allclose(scored.probability_wrong, wrong)
    some = np.array([3, 5, 150])
    np.testing.assert_array_equal(scored.take(some).losses, scored.losses[some])


@pytest.mark.parametrize(
    "metric",
    [
        metric_of(LEVELS),
        metric_of(LEVELS, flip_rate=0.3),
        metric_of(None, "laplace"),
        metric_of(1.0, flip_rate=(0.1, 0.3)),
    ],
    ids=["levels", "levels with flips", "comparisons", "two flip rates"],
)
def test_copies_and_files_are_the_same_metric(metric, tmp_path):
    metric.save(tmp_path / "model")
    for other in (cf.load(tmp_path / "model"), pickle.loads(pickle.dumps(metric)), copy.deepcopy(metric)):
        assert other == metric
        assert other.thresholds == metric.thresholds
    assert metric != metric_of(1.0)


def test_units_and_rank_leave_thresholds_alone():
    metric = metric_of(LEVELS, flip_rate=0.3)
    units = np.array([[1e3, 1.0, 0.0], [0.0, 1e-3, 2.0], [0.0, 0.0, 5.0]])
    changed = metric.change_units(units)
    np.testing.assert_allclose(changed.probabilities(Z @ units.T), metric.probabilities(Z), rtol=1e-9)
    assert metric.truncate(1).thresholds == LEVELS
