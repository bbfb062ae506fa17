"""The paper's gradient descent: its gradient, its steps, and the optimum that it approaches."""

from itertools import islice

import numpy as np
import pytest

import closefar as cf
from paper import gradient_descent
from paper.gradient_descent import descend, loss_and_gradient
from paper.synthetic import PAPER, paper_pairs


@pytest.fixture(scope="module")
def split():
    return paper_pairs(400, 100, seed=0)


@pytest.mark.parametrize("noise", cf.noise.NOISES.values(), ids=repr)
def test_gradient_is_that_of_finite_differences(split, noise):
    rows, signs = split.train.T, split.noisy_train.astype(float)
    rng = np.random.default_rng(1)
    factor, threshold, step = rng.standard_normal((10, 4)), 1.7, 1e-6
    _, slope, threshold_slope = loss_and_gradient(rows, signs, factor, threshold, noise)
    towards = rng.standard_normal(factor.shape)
    up, down = (loss_and_gradient(rows, signs, factor + t * towards, threshold, noise)[0] for t in (step, -step))
    assert np.sum(slope * towards) == pytest.approx((up - down) / (2 * step), rel=1e-5)
    up, down = (loss_and_gradient(rows, signs, factor, threshold + t, noise)[0] for t in (step, -step))
    assert threshold_slope == pytest.approx((up - down) / (2 * step), rel=1e-5)


def test_loss_is_the_mean_negative_log_likelihood(split):
    noise = cf.noise.get_noise("normal")
    last = list(descend(split.train, split.noisy_train, noise, n_iter=3, seed=0))[-1]
    margins = cf.Metric.from_factor(last.factor, last.threshold).margin(split.train)
    assert last.iteration == 3
    assert last.loss == pytest.approx(np.mean(noise.neg_log_cdf(split.noisy_train * margins)), rel=1e-12)


def test_descent_approaches_the_proven_minimum_from_above(split):
    learner = cf.LinearMetricLearner(**PAPER).fit(split.train, split.noisy_train)
    losses = [each.loss for each in descend(split.train, split.noisy_train, cf.noise.Logistic(), n_iter=5000, seed=0)]
    assert learner.certificate_.lower_bound < losses[-1] < learner.certificate_.loss + 0.02
    assert losses[-1] < losses[100] < losses[0]


def test_a_shorter_run_is_the_beginning_of_a_longer_one(split):
    run = {n: descend(split.train, split.noisy_train, cf.noise.Logistic(), n_iter=n, seed=3) for n in (5, 800)}
    short, long = list(run[5])[-1], next(islice(run[800], 4, None))
    assert short.iteration == long.iteration
    np.testing.assert_array_equal(short.factor, long.factor)


def test_threshold_never_falls_below_zero():
    """Nearly all pairs far pull the threshold down."""
    differences = np.random.default_rng(0).standard_normal((50, 2))
    labels = np.where(np.arange(50) < 49, 1, -1)
    thresholds = [each.threshold for each in descend(differences, labels, cf.noise.Logistic(), n_iter=50, seed=0)]
    assert min(thresholds) == 0.0


def test_a_trial_of_the_iterations_holds_both_ways_to_the_optimum():
    result = gradient_descent.trial("logistic", n_train=2000, n_iter=300, seed=0)
    assert len(result["iteration"]) == len(result["loss"]) == len(result["test_true"])
    assert result["iteration"][-1] == 300
    path = result["ours"]
    assert path["converged"]
    assert path["gap"] <= 1e-6
    assert path["passes"] == sorted(path["passes"])
    # The minimiser fits the sample better than the truth does, and descent is still above it.
    assert path["loss"][-1] < result["truth_loss"]
    assert path["loss"][-1] - path["gap"] <= result["loss"][-1]
