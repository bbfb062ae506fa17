"""Planned sample sizes: the errors that a pilot predicts are those that fits have."""

import math
import warnings

import numpy as np
import pytest

import closefar as cf
from closefar.noise import NOISES
from closefar.questions import plan_sample_size

FITS = 40


def world(d, eigenvalues, noise="logistic", seed=0):
    """Differences with the true probability of far, and the true M and tau at unit noise."""
    data = cf.datasets.make_pairs(40_000, d, metric_eigenvalues=eigenvalues, noise=noise, random_state=seed)
    z, model = data.pairs[:, 0] - data.pairs[:, 1], NOISES[noise]
    scale = cf.datasets.solve_noise_scale(data.metric.margin(z), model, 0.15)
    far = model.cdf(data.metric.margin(z) / scale)
    return z, far, data.metric.matrix / scale, data.metric.threshold / scale


def draw(z, far, n, rng):
    chosen = rng.choice(30_000, n, replace=False)
    return z[chosen], np.where(rng.uniform(size=n) < far[chosen], 1, -1)


def errors_of(metric, z, far, matrix, threshold):
    """Excess loss on rows that no fit saw, and relative spectral error of M / tau."""
    test, probability = z[30_000:], far[30_000:]

    def loss(margins):
        phi = metric.noise.neg_log_cdf
        return np.mean(probability * phi(margins) + (1 - probability) * phi(-margins))

    excess = loss(metric.margin(test)) - loss(np.einsum("ij,jk,ik->i", test, matrix, test) - threshold)
    change = metric.matrix / metric.threshold - matrix / threshold
    return excess, np.linalg.norm(change, 2) / np.linalg.norm(matrix / threshold, 2)


@pytest.fixture(scope="module")
def pilot():
    data = cf.datasets.make_pairs(800, 3, wrong_share=0.15, random_state=0)
    return cf.LinearMetricLearner().fit(data.pairs, data.labels), data.pairs, data.labels


@pytest.mark.parametrize(
    ("d", "eigenvalues", "noise", "n"),
    [(3, [1.0, 0.6, 0.3], "logistic", 1000), (5, [1.0, 0.5], "normal", 2000), (4, [1.0, 0.5], "laplace", 2000)],
)
def test_predicted_errors_are_those_of_fits(d, eigenvalues, noise, n):
    """A pilot of 3000 predicts the average errors of fits to n pairs; M* has full rank and less."""
    z, far, matrix, threshold = world(d, eigenvalues, noise)
    rng = np.random.default_rng(1)
    pairs, labels = draw(z, far, 3000, rng)
    learner = cf.LinearMetricLearner(noise).fit(pairs, labels)
    found = []
    for _ in range(FITS):
        metric = cf.LinearMetricLearner(noise).fit(*draw(z, far, n, rng)).metric_
        found.append(errors_of(metric, z, far, matrix, threshold))
    found = np.array(found)
    for measure, errors in zip(("loss", "spectral"), found.T, strict=True):
        plan = plan_sample_size(learner, pairs, labels, target_error=0.05, measure=measure, delta=0.1)
        assert plan.expected_error(n) == pytest.approx(errors.mean(), rel=0.25)
        assert 0.75 <= np.mean(errors <= plan.likely_error(n)) < 1.0  # of 40 fits, where 0.9 is expected


def test_labels_of_another_noise_cost_more_parameters():
    """Flipped labels under normal noise: the sandwich counts more than there are, and is right."""
    data = cf.datasets.make_pairs(30_000, 5, metric_eigenvalues=[1.0, 0.4], noise="flips", random_state=3)
    z, far = data.pairs[:, 0] - data.pairs[:, 1], np.where(data.true_labels == 1, 0.9, 0.1)
    both, labels = np.vstack([z, z]), np.repeat([1, -1], len(z))
    best = cf.LinearMetricLearner("normal").fit(both, labels, sample_weight=np.append(far, 1 - far)).metric_
    rng, n, found, counts = np.random.default_rng(0), 2000, [], []
    for _ in range(25):
        chosen = rng.choice(len(z), n, replace=False)
        signs = np.where(rng.uniform(size=n) < far[chosen], 1, -1)
        learner = cf.LinearMetricLearner("normal").fit(z[chosen], signs)
        phi, margins, target = best.noise.neg_log_cdf, learner.metric_.margin(z), best.margin(z)
        changes = far * (phi(margins) - phi(target)) + (1 - far) * (phi(-margins) - phi(-target))
        found.append(2 * n * np.mean(changes))
        counts.append(plan_sample_size(learner, z[chosen], signs, target_error=0.01).n_parameters)
    assert np.mean(counts) == pytest.approx(np.mean(found), rel=0.25)
    assert np.mean(counts) > 16


def test_effective_parameters_of_full_rank_are_all_of_them(pilot):
    learner, pairs, labels = pilot
    assert learner.metric_.rank == 3
    assert plan_sample_size(learner, pairs, labels, target_error=0.01).n_parameters == pytest.approx(7, rel=0.1)


def test_effective_parameters_of_low_rank_are_those_of_the_cone():
    """M* of rank k leaves dk - k(k-1)/2 + 1 parameters and, as noise may raise the rank, half of the rest."""
    d, k = 6, 2
    z, far, _, _ = world(d, [1.0, 0.5])
    rng, counts, dimensions = np.random.default_rng(0), [], []
    for _ in range(12):
        pairs, labels = draw(z, far, 2500, rng)
        learner = cf.LinearMetricLearner().fit(pairs, labels)
        rank = learner.metric_.rank
        counts.append(plan_sample_size(learner, pairs, labels, target_error=0.01).n_parameters)
        dimensions.append(d * rank - rank * (rank - 1) / 2 + 1)
    tangent = d * k - k * (k - 1) / 2 + 1
    assert np.mean(counts) == pytest.approx(tangent + (d - k) * (d - k + 1) / 4, rel=0.08)
    assert tangent < np.mean(counts) < np.mean(dimensions) < d * (d + 1) / 2 + 1


def test_a_fit_of_set_rank_has_the_parameters_of_that_rank():
    z, far, _, _ = world(6, [1.0, 0.5])
    pairs, labels = draw(z, far, 3000, np.random.default_rng(0))
    learner = cf.LinearMetricLearner(rank=2).fit(pairs, labels)
    assert plan_sample_size(learner, pairs, labels, target_error=0.01).n_parameters == pytest.approx(12, rel=0.15)


@pytest.mark.parametrize("measure", ["loss", "spectral"])
def test_the_numbers_of_a_plan_agree(pilot, measure):
    plan = plan_sample_size(*pilot, target_error=0.02, measure=measure, delta=0.1)
    assert plan.expected_error(plan.n_pairs) <= 0.02 < plan.expected_error(plan.n_pairs - 1)
    assert plan.likely_error(plan.n_pairs_likely) <= 0.02 < plan.likely_error(plan.n_pairs_likely - 1)
    assert plan.n_pairs < plan.n_pairs_likely < plan.worst_case / 1e3
    power = 1 if measure == "loss" else 2
    halved = plan_sample_size(*pilot, target_error=0.01, measure=measure, delta=0.1)
    assert halved.n_pairs == pytest.approx(2**power * plan.n_pairs, abs=2**power)
    for number in (f"{plan.n_pairs:,}", f"{plan.n_pairs_likely:,}", f"{plan.worst_case:.0e}", "orders of magnitude"):
        assert number in plan.sentence


def test_the_worst_case_is_the_theorem(pilot):
    """Excess loss eps takes N(eps / 2) pairs; in units where the longest difference has length one."""
    learner, pairs, labels = pilot
    plan = plan_sample_size(learner, pairs, labels, target_error=0.02, delta=0.1)
    z = pairs[:, 0] - pairs[:, 1]
    values, vectors = np.linalg.eigh(z.T @ z / len(z))
    whitened = learner.metric_.change_units((vectors / np.sqrt(values)).T)
    longest = np.max(np.sum((z @ vectors / np.sqrt(values)) ** 2, axis=1))
    n = cf.theory.sample_size(
        0.01, 0.1, n_features=3, max_eigenvalue=whitened.eigenvalues[0] * longest, max_squared_length=1.0
    )
    assert plan.worst_case == pytest.approx(n, rel=1e-6)


def test_an_enormous_worst_case_is_infinite_and_said():
    data = cf.datasets.make_pairs(800, 3, noise="normal", wrong_share=0.05, random_state=0)
    learner = cf.LinearMetricLearner("normal").fit(data.pairs, data.labels)
    plan = plan_sample_size(learner, data.pairs, data.labels, target_error=0.05, measure="spectral")
    assert plan.worst_case == math.inf
    assert "more than 1e+300 pairs: it holds in the worst case" in plan.sentence


def test_units_do_not_matter(pilot):
    learner, pairs, labels = pilot
    units = np.array([1e-6, 1.0, 1e6])
    scaled = cf.LinearMetricLearner().fit(pairs * units, labels)
    plan = plan_sample_size(learner, pairs, labels, target_error=0.01)
    other = plan_sample_size(scaled, pairs * units, labels, target_error=0.01)
    assert other.n_parameters == pytest.approx(plan.n_parameters, rel=1e-6)
    assert other.worst_case == pytest.approx(plan.worst_case, rel=1e-6)


def test_class_weights_are_those_of_the_fit(pilot):
    _, pairs, labels = pilot
    weighted = cf.LinearMetricLearner(class_weight={-1: 2.0, 1: 2.0}).fit(pairs, labels)
    plain = plan_sample_size(*pilot, target_error=0.01)
    assert plan_sample_size(weighted, pairs, labels, target_error=0.01).n_pairs == plain.n_pairs


def test_what_the_sentence_says_to_do(pilot):
    easy = plan_sample_size(*pilot, target_error=0.02)
    hard = plan_sample_size(*pilot, target_error=0.001)
    rough = plan_sample_size(*pilot, target_error=0.5)
    assert "the pilot has enough" in easy.sentence
    assert f"label {hard.n_pairs - 800:,} more" in hard.sentence
    assert "fewer than ten pairs per parameter" in rough.sentence
    assert "fewer than ten" not in hard.sentence


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_error": 0.0}, "target_error must be a finite number > 0; got 0.0"),
        ({"target_error": math.inf}, "target_error must be a finite number > 0; got inf"),
        ({"delta": 1.0}, "delta must be between 0 and 1; got 1.0"),
        ({"measure": "accuracy"}, r"measure must be one of \['loss', 'spectral'\]; got 'accuracy'"),
    ],
)
def test_requests_are_checked(pilot, change, message):
    with pytest.raises(ValueError, match=message):
        plan_sample_size(*pilot, **{"target_error": 0.01, **change})


def test_other_data_than_the_pilot_is_refused(pilot):
    learner, pairs, labels = pilot
    with pytest.raises(ValueError, match=r"must be the pilot.* Pass the pilot, or fit again"):
        plan_sample_size(learner, pairs[:500], labels[:500], target_error=0.01)


def test_fits_that_have_no_asymptotics_are_refused(pilot):
    _, pairs, labels = pilot
    differences = pairs[:, 0] - pairs[:, 1]
    penalised = cf.LinearMetricLearner(alpha=0.01).fit(pairs, labels)
    with pytest.raises(ValueError, match=r"alpha = 0, .* got alpha = 0.01. Fit with alpha=0"):
        plan_sample_size(penalised, pairs, labels, target_error=0.01)
    centred = cf.LinearMetricLearner(fit_origin=True).fit(differences, labels)
    with pytest.raises(ValueError, match=r"got fit_origin=True. Fit differences without it"):
        plan_sample_size(centred, differences, labels, target_error=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        separable = cf.LinearMetricLearner().fit(pairs[:12], labels[:12])
    with pytest.raises(ValueError, match="must have converged; got 'separable"):
        plan_sample_size(separable, pairs[:12], labels[:12], target_error=0.01)


def test_the_pilot_is_the_training_pairs_by_default():
    pilot = cf.datasets.make_pairs(1500, 3, wrong_share=0.1, random_state=5)
    learner = cf.LinearMetricLearner().fit(pilot.pairs, pilot.labels)
    given = cf.plan_sample_size(learner, pilot.pairs, pilot.labels, target_error=0.01)
    assert cf.plan_sample_size(learner, target_error=0.01) == given
