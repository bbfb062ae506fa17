"""The choice among noise models by likelihood, and how sure it is."""

import numpy as np
import pytest
from scipy.stats import norm

import closefar as cf
from closefar.fitting import choose_noise
from closefar.noise import NOISES
from paper_estimator import PAPER


def row_losses(data):
    losses = {}
    for name, noise in NOISES.items():
        learner = cf.LinearMetricLearner(name, **PAPER).fit(data.pairs, data.labels)
        losses[name] = noise.neg_log_cdf(data.labels * learner.decision_function(data.pairs))
    return losses


@pytest.mark.parametrize("truth", ["normal", "laplace"])
def test_the_generating_noise_is_chosen(truth):
    choice = choose_noise(row_losses(cf.datasets.make_pairs(20_000, 4, noise=truth, random_state=0)), np.ones(20_000))
    assert choice.name == truth
    assert set(choice.comparison) == set(NOISES)
    assert choice.comparison[truth] == {"loss": choice.comparison[truth]["loss"], "difference": 0.0, "z": 0.0}
    opposite = "normal" if truth == "laplace" else "laplace"
    assert choice.comparison[opposite]["z"] > 3


def test_models_that_few_pairs_cannot_tell_apart_are_named():
    choice = choose_noise(row_losses(cf.datasets.make_pairs(500, 3, random_state=0)), np.ones(500))
    others = [name for name in NOISES if name != choice.name]
    assert choice.warning.startswith(f"{choice.name} noise describes the labels best, but not clearly")
    assert any(name in choice.warning for name in others)


def test_a_sure_choice_has_no_warning():
    rng = np.random.default_rng(0)
    rows = rng.exponential(size=1000)
    choice = choose_noise({"normal": rows + 0.1 + 0.1 * rng.standard_normal(1000), "laplace": rows}, np.ones(1000))
    assert (choice.name, choice.warning) == ("laplace", None)
    assert choice.comparison["normal"]["z"] == pytest.approx(np.sqrt(1000), rel=0.1)


def test_z_is_that_of_the_weighted_mean_and_its_scale_free():
    rng = np.random.default_rng(0)
    losses = {"logistic": rng.exponential(size=300), "normal": rng.exponential(size=300)}
    weights = rng.uniform(size=300)
    once, thousand = choose_noise(losses, weights), choose_noise(losses, 1000 * weights)
    other = "normal" if once.name == "logistic" else "logistic"
    assert once.comparison[other]["z"] == pytest.approx(thousand.comparison[other]["z"])
    assert once.comparison["normal"]["loss"] == pytest.approx(np.average(losses["normal"], weights=weights))


def test_z_is_the_mean_difference_over_its_standard_error():
    rng = np.random.default_rng(1)
    losses = {name: rng.exponential(size=50) for name in ("logistic", "normal", "laplace")}
    weights = rng.uniform(size=50)
    choice = choose_noise(losses, weights)
    means = {name: sum(weights * rows) / sum(weights) for name, rows in losses.items()}
    assert choice.name == min(means, key=means.get)
    for name, row in choice.comparison.items():
        difference = losses[name] - losses[choice.name]
        mean = means[name] - means[choice.name]
        error = np.sqrt(sum(weights**2 * (difference - mean) ** 2)) / sum(weights)
        z = mean / error if name != choice.name else 0.0
        assert row == pytest.approx({"loss": means[name], "difference": mean, "z": z})


@pytest.mark.parametrize(("share", "is_sure"), [(0.99, False), (1.01, True)])
def test_a_choice_is_sure_where_few_others_would_be_as_far_ahead_by_chance(share, is_sure):
    z = share * norm.isf(0.025)
    other = np.tile([1.0, -1.0], 50) + z / np.sqrt(100)
    choice = choose_noise({"normal": other, "laplace": np.zeros(100)}, np.ones(100))
    assert choice.comparison["normal"]["z"] == pytest.approx(z)
    assert (choice.warning is None) == is_sure
    assert is_sure or choice.warning.startswith("laplace noise describes the labels best, but not clearly")


def test_the_same_model_twice_and_none_at_all():
    rows = np.ones(5)
    assert choose_noise({"a": rows, "b": rows}, np.ones(5)).comparison["b"]["z"] == 0.0
    with pytest.raises(ValueError, match="at least one noise model"):
        choose_noise({}, np.ones(5))
