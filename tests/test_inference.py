"""Confidence intervals: against independent computations, known cases, a Monte Carlo, and their invariances."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import closefar as cf
from closefar.judgements import SharedPointsWarning
from closefar.noise import NOISES, get_noise
from closefar.questions import confidence
from paper_estimator import PAPER

MATRIX = np.array([[1.2, 0.4], [0.4, 0.8]])
THRESHOLD = 1.5
POINTS = np.array([[1.0, 0.5], [-0.3, 1.2], [0.2, 0.1]])


def sample(n, seed, matrix=MATRIX, noise="logistic"):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, len(matrix)))
    margin = np.einsum("ij,jk,ik->i", z, matrix, z) - THRESHOLD
    return z, np.where(margin + get_noise(noise).sample(n, rng) >= 0, 1, -1)


def fitted(n=1500, seed=0, **kwargs):
    z, labels = sample(n, seed, **kwargs)
    return z, labels, cf.LinearMetricLearner(kwargs.get("noise", "logistic"), tol=1e-10, **PAPER).fit(z, labels)


def loss_of(z, labels, noise):
    """The loss of each row as a function of (m11, m12, m22, tau), written without the package's packing."""

    def losses(p):
        squared = p[0] * z[:, 0] ** 2 + 2 * p[1] * z[:, 0] * z[:, 1] + p[2] * z[:, 1] ** 2
        return noise.neg_log_cdf(labels * (squared - p[3]))

    return losses


def central(function, p, step=1e-5):
    return np.stack([(function(p + e) - function(p - e)) / (2 * step) for e in step * np.eye(len(p))], axis=-1)


def parameters(metric):
    return np.append(metric.matrix[np.triu_indices(2)], metric.threshold)


def errors(result):
    return np.append(result.matrix.standard_error[np.triu_indices(2)], result.threshold.standard_error)


def widths(result):
    parts = [result.matrix, result.eigenvalues, result.threshold, result.distance(POINTS)]
    return np.concatenate([np.ravel(part.standard_error) for part in parts])


@pytest.mark.parametrize("noise", NOISES)
def test_equals_the_sandwich_by_finite_differences(noise):
    z, labels, learner = fitted(noise=noise)
    losses = loss_of(z, labels, get_noise(noise))
    p = parameters(learner.metric_)
    scores = central(losses, p)
    information = central(lambda q: central(losses, q).sum(axis=0), p, step=1e-4)
    bread = np.linalg.inv(information)
    covariance = bread @ (scores.T @ scores) @ bread
    result = confidence(learner, z, labels)
    assert (result.method, result.valid) == ("sandwich", True)
    # Laplace's curvature jumps at the threshold, so its finite difference is rough.
    rtol = 0.02 if noise == "laplace" else 1e-3
    np.testing.assert_allclose(errors(result), np.sqrt(np.diag(covariance)), rtol=rtol)


def test_delta_method_by_finite_differences():
    z, labels, learner = fitted()
    result = confidence(learner, z, labels)
    p = parameters(learner.metric_)
    scores = central(loss_of(z, labels, get_noise("logistic")), p)
    information = central(lambda q: central(loss_of(z, labels, get_noise("logistic")), q).sum(axis=0), p, step=1e-4)
    bread = np.linalg.inv(information)
    covariance = bread @ (scores.T @ scores) @ bread

    def quantities(q):
        metric = cf.Metric.from_matrix([[q[0], q[1]], [q[1], q[2]]], q[3])
        lengths = np.sqrt(metric.squared_distance(POINTS))
        return np.concatenate([lengths, lengths**2, metric.probability_far(POINTS), metric.eigenvalues])

    slopes = central(quantities, p)
    expected = np.sqrt(np.einsum("ij,jk,ik->i", slopes, covariance, slopes))
    parts = [result.distance(POINTS), result.squared_distance(POINTS), result.probability_far(POINTS)]
    got = np.concatenate([part.standard_error for part in [*parts, result.eigenvalues]])
    np.testing.assert_allclose(got, expected, rtol=2e-3)
    values = np.concatenate([part.estimate for part in [*parts, result.eigenvalues]])
    np.testing.assert_allclose(values, quantities(p), rtol=1e-9)


def test_one_column_equals_logistic_regression():
    """With one column the model is a logistic regression on z^2, whose covariance has a closed form."""
    rng = np.random.default_rng(1)
    z = rng.standard_normal((50_000, 1))
    design = np.column_stack([z[:, 0] ** 2, -np.ones(len(z))])
    far = 1.0 / (1.0 + np.exp(-design @ [1.0, 1.0]))
    labels = np.where(rng.random(len(z)) < far, 1, -1)
    learner = cf.LinearMetricLearner(tol=1e-12, **PAPER).fit(z, labels)
    result = confidence(learner, z, labels)
    inverse = np.linalg.inv((design * (far * (1 - far))[:, None]).T @ design)
    got = [result.matrix.standard_error[0, 0], result.threshold.standard_error]
    np.testing.assert_allclose(got, np.sqrt(np.diag(inverse)), rtol=0.02)
    optimum = minimize(lambda p: np.logaddexp(0, -labels * (design @ p)).mean(), [0.5, 0.5], tol=1e-10)
    np.testing.assert_allclose([result.matrix.estimate[0, 0], result.threshold.estimate], optimum.x, atol=1e-4)


def test_against_the_spread_of_many_fits():
    fits = [fitted(400, seed)[2].metric_ for seed in range(200)]
    spread = np.std([parameters(metric) for metric in fits], axis=0)
    claimed = np.mean(
        [
            errors(confidence(learner, z, labels))
            for z, labels, learner in (fitted(400, 1000 + seed) for seed in range(30))
        ],
        axis=0,
    )
    np.testing.assert_allclose(claimed, spread, rtol=0.25)


def test_follows_every_change_of_units():
    z, labels, learner = fitted()
    plain = confidence(learner, z, labels)
    units = np.array([[1e6, 2e6], [-3e-3, 1e-3]])
    mapped = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(z @ units.T, labels)
    other = confidence(mapped, z @ units.T, labels)
    assert np.isclose(other.threshold.standard_error, plain.threshold.standard_error, rtol=1e-6)
    for name in ("distance", "squared_distance", "probability_far"):
        ours, theirs = getattr(plain, name)(POINTS), getattr(other, name)(POINTS @ units.T)
        for end in ("standard_error", "low", "high"):
            np.testing.assert_allclose(getattr(theirs, end), getattr(ours, end), rtol=1e-6)
    factors = np.array([1e-6, 1e4])
    scaled = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(z * factors, labels)
    error = confidence(scaled, z * factors, labels).matrix.standard_error
    np.testing.assert_allclose(error * np.outer(factors, factors), plain.matrix.standard_error, rtol=1e-6)


def test_pairs_give_the_same_as_their_differences():
    z, labels, learner = fitted(400)
    right = np.random.default_rng(5).standard_normal(z.shape)
    pairs = np.stack([z + right, right], axis=1)
    np.testing.assert_allclose(
        widths(confidence(learner, pairs, labels)), widths(confidence(learner, z, labels)), rtol=1e-6
    )


def test_weights_are_repeats():
    z, labels, _ = fitted(900)
    weights = np.arange(900) % 3
    learner = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(z, labels, sample_weight=weights)
    weighted = confidence(learner, z, labels, sample_weight=weights)
    repeated = confidence(learner, np.repeat(z, weights, axis=0), np.repeat(labels, weights))
    np.testing.assert_allclose(widths(weighted), widths(repeated), rtol=1e-8)


def test_one_group_a_row_makes_the_scale_of_weights_irrelevant():
    z, labels, _ = fitted(900)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 900)
    learner = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(z, labels, sample_weight=weights)
    once, tenfold = (
        confidence(learner, z, labels, sample_weight=factor * weights, groups=range(900)) for factor in (1.0, 10.0)
    )
    np.testing.assert_allclose(widths(once), widths(tenfold), rtol=1e-8)


def test_class_weights_do_not_count_as_observations():
    z, labels, _ = fitted()
    learner = cf.LinearMetricLearner(class_weight={-1: 5.0, 1: 5.0}, tol=1e-10, **PAPER).fit(z, labels)
    plain = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(z, labels)
    np.testing.assert_allclose(widths(confidence(learner, z, labels)), widths(confidence(plain, z, labels)), rtol=1e-5)


def test_groups_of_one_change_nothing():
    z, labels, learner = fitted()
    ids = np.random.default_rng(0).permutation(len(z))
    plain = widths(confidence(learner, z, labels))
    np.testing.assert_allclose(widths(confidence(learner, z, labels, groups=ids)), plain, rtol=1e-8)
    # Pairs without a common point: the same but for the small-sample factor.
    apart = confidence(learner, z, labels, groups=np.column_stack([ids, ids + len(z)]))
    np.testing.assert_allclose(widths(apart), plain, rtol=1e-3)


def test_copies_of_pairs_in_a_group_add_nothing():
    z, labels, learner = fitted()
    plain = widths(confidence(learner, z, labels))
    twice, both = np.vstack([z, z]), np.append(labels, labels)
    ids = np.tile(np.arange(len(z)), 2)
    np.testing.assert_allclose(widths(confidence(learner, twice, both, groups=ids)), plain, rtol=1e-8)
    np.testing.assert_allclose(widths(confidence(learner, twice, both)), plain / np.sqrt(2), rtol=1e-3)
    points = np.column_stack([ids, ids + len(z)])
    points[len(z) :] = points[len(z) :, ::-1]
    np.testing.assert_allclose(widths(confidence(learner, twice, both, groups=points)), plain, rtol=1e-3)


def test_shared_points_by_brute_force():
    rng = np.random.default_rng(2)
    z, labels, learner = fitted(300)
    members = np.array([rng.choice(40, 2, replace=False) for _ in range(300)])
    members[:3, 1] = members[:3, 0]
    losses = loss_of(z, labels, get_noise("logistic"))
    p = parameters(learner.metric_)
    scores = central(losses, p)
    shares = (members[:, None, :, None] == members[None, :, None, :]).any(axis=(2, 3))
    bread = np.linalg.inv(central(lambda q: central(losses, q).sum(axis=0), p, step=1e-4))
    expected = np.sqrt(np.diag(bread @ (scores.T @ shares @ scores) @ bread) * 40 / 39)
    got = errors(confidence(learner, z, labels, groups=members, method="sandwich"))
    np.testing.assert_allclose(got, expected, rtol=1e-3)


def test_pairs_that_share_points_are_recognised():
    rng = np.random.default_rng(3)
    points = rng.standard_normal((120, 2))
    members = np.array([rng.choice(120, 2, replace=False) for _ in range(900)])
    z = points[members[:, 0]] - points[members[:, 1]]
    margin = np.einsum("ij,jk,ik->i", z, MATRIX, z) - 3.0
    labels = np.where(margin + rng.logistic(size=900) >= 0, 1, -1)
    learner = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(points[members], labels)
    with pytest.warns(SharedPointsWarning, match="only 120 different points"):
        found = confidence(learner, points[members], labels)
    np.testing.assert_allclose(widths(found), widths(confidence(learner, z, labels, groups=members)), rtol=1e-6)


def test_rank_deficient_fit_has_intervals_around_the_optimum_without_the_constraint():
    matrix = np.diag([1.5, 0.8, 0.0])
    z, labels, learner = fitted(600, 0, matrix=matrix)
    assert learner.metric_.rank < 3
    result = confidence(learner, z, labels)
    assert (result.method, result.valid) == ("sandwich", True)
    assert "Since M has rank 2 of 3" in result.statement
    losses = get_noise("logistic")
    design = np.column_stack(
        [z[:, i] * z[:, j] * (1 if i == j else 2) for i, j in zip(*np.triu_indices(3), strict=True)]
    )
    design = np.column_stack([design, -np.ones(600)])
    free = minimize(lambda p: losses.neg_log_cdf(labels * (design @ p)).sum(), np.zeros(7), tol=1e-10).x
    assert free[5] < 0  # m33, which the fit holds at zero
    reach = 1.959964 * result.threshold.standard_error
    ends = min(learner.metric_.threshold, free[6] - reach), max(learner.metric_.threshold, free[6] + reach)
    assert (result.threshold.low, result.threshold.high) == pytest.approx(ends, rel=1e-3)
    assert np.all(np.diag(result.matrix.low) >= 0)
    for part in (result.matrix, result.eigenvalues, result.threshold, result.distance(np.eye(3))):
        assert np.all(part.low <= part.estimate)
        assert np.all(part.estimate <= part.high)
    told = cf.LinearMetricLearner(rank=1, tol=1e-10, **PAPER).fit(z, labels)
    known = confidence(told, z, labels)
    assert (known.method, known.valid) == ("sandwich", True)
    assert "Rank 1 is treated as known. The labels contradict it" in known.statement
    assert np.linalg.matrix_rank(known.matrix.estimate) == 1


def test_a_rank_that_was_chosen_does_not_count_as_known():
    """A weak direction that cross-validation leaves out is still inside the intervals."""
    matrix = np.diag([1.5, 0.8, 0.02])
    z, labels = sample(1500, 0, matrix=matrix)
    chosen = cf.LinearMetricLearner(rank="auto", **PAPER).fit(z, labels)
    assert chosen.metric_.rank == 2
    result = confidence(chosen, z, labels)
    free = confidence(cf.LinearMetricLearner(**PAPER).fit(z, labels), z, labels)
    assert result.valid
    assert result.matrix.low[2, 2] < 0.02 < result.matrix.high[2, 2]
    np.testing.assert_allclose(result.threshold.standard_error, free.threshold.standard_error, rtol=1e-2)


def test_labels_that_no_metric_explains_have_no_intervals():
    z, labels = sample(600, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reversed_labels = cf.LinearMetricLearner(**PAPER).fit(z, -labels)
    result = confidence(reversed_labels, z, -labels)
    assert (result.method, result.valid) == ("sandwich", False)
    assert "The labels contradict the model" in result.statement


def test_eigenvalues_that_cannot_be_told_apart_share_an_interval():
    z, labels, learner = fitted(1500, 1, matrix=np.diag([1.0, 1.0]))
    values = confidence(learner, z, labels).eigenvalues
    assert values.low[0] == values.low[1] < 1.0 < values.high[0] == values.high[1]
    z, labels, learner = fitted(1500, 1, matrix=np.diag([2.0, 0.5]))
    values = confidence(learner, z, labels).eigenvalues
    assert values.high[1] < values.low[0]


def test_a_rank_that_was_told_by_finite_differences():
    """The sandwich on matrices a a' is that of the loss as a function of a and tau."""
    z, labels, _ = fitted()
    learner = cf.LinearMetricLearner(rank=1, tol=1e-12, **PAPER).fit(z, labels)
    noise = get_noise("logistic")

    def losses(q):
        return noise.neg_log_cdf(labels * ((z @ q[:2]) ** 2 - q[2]))

    metric = learner.metric_
    start = np.append(metric.factor[:, 0], metric.threshold)
    q = minimize(lambda q: losses(q).mean(), start, tol=1e-12, options={"gtol": 1e-9}).x
    scores = central(losses, q)
    bread = np.linalg.inv(central(lambda q: central(losses, q).sum(axis=0), q, step=1e-4))
    covariance = bread @ (scores.T @ scores) @ bread
    slopes = central(lambda q: np.append((q[:2, None] * q[:2])[np.triu_indices(2)], q[2]), q)
    expected = np.sqrt(np.einsum("ij,jk,ik->i", slopes, covariance, slopes))
    np.testing.assert_allclose(errors(confidence(learner, z, labels)), expected, rtol=5e-3)


def test_separable_pairs_have_unbounded_intervals():
    z, _ = sample(60, 0)
    labels = np.where(np.einsum("ij,jk,ik->i", z, MATRIX, z) > THRESHOLD, 1, -1)
    with pytest.warns(ConvergenceWarning, match="separable"):
        learner = cf.LinearMetricLearner(**PAPER).fit(z, labels)
    result = confidence(learner, z, labels)
    assert (result.method, result.valid) == ("none", False)
    assert "do not determine" in result.statement
    probability = result.probability_far(POINTS)
    assert np.all(probability.low == 0)
    assert np.all(probability.high == 1)
    assert np.all(np.isinf(result.distance(POINTS).high))
    assert result.threshold.low == 0


def test_says_when_neither_is_valid():
    z, labels, learner = fitted(400)
    assert "fitted to" in confidence(learner, 1.3 * z, labels, method="sandwich").statement
    few = confidence(learner, z, labels, groups=np.arange(400) % 10)
    assert not few.valid
    assert few.statement.startswith("Not valid.")
    assert "at least 30 groups; got 10" in few.statement
    light = confidence(learner, z, labels, sample_weight=np.full(400, 0.001))
    assert not light.valid
    assert "count as repeats" in light.statement


def test_a_penalised_fit_has_the_intervals_of_the_fit_without_penalty():
    z, labels, learner = fitted(400)
    penalised = cf.LinearMetricLearner(alpha=0.05, prior="zero", tol=1e-10, flip_rate=0.0).fit(z, labels)
    result, plain = confidence(penalised, z, labels), confidence(learner, z, labels)
    assert (result.method, result.valid) == (plain.method, True)
    assert "for the fit without the penalty alpha=0.05" in result.statement
    np.testing.assert_allclose(result.metric.matrix, learner.metric_.matrix, rtol=1e-4)
    np.testing.assert_allclose(widths(result), widths(plain), rtol=1e-4)


def test_the_default_has_the_intervals_of_the_fit_without_penalty():
    z, labels, learner = fitted(400)
    chosen = cf.LinearMetricLearner(tol=1e-10, flip_rate=0.0).fit(z, labels)
    result, plain = confidence(chosen), confidence(learner, z, labels)
    assert f"for the fit without the penalty alpha={chosen.alpha_:.3g}" in result.statement
    np.testing.assert_allclose(result.metric.matrix, learner.metric_.matrix, rtol=1e-4)
    np.testing.assert_allclose(widths(result), widths(plain), rtol=1e-4)


def test_a_flip_rate_that_was_chosen_is_estimated_for_intervals():
    data = cf.datasets.make_pairs(4000, 2, rank=2, wrong_share=0.03, random_state=0)
    labels = np.where(np.random.default_rng(0).uniform(size=4000) < 0.15, -data.labels, data.labels)
    result = confidence(cf.LinearMetricLearner(alpha=0.0).fit(data.pairs, labels))
    estimated = cf.LinearMetricLearner(alpha=0.0, flip_rate="estimate").fit(data.pairs, labels)
    assert result.flip_rate is not None
    assert result.flip_rate.low < estimated.flip_rate_ < result.flip_rate.high
    assert result.metric.flip_rate == pytest.approx(estimated.flip_rate_, abs=1e-4)


def test_a_penalty_is_not_advised_to_one_who_has_it():
    z = fitted(400)[0]
    separable = np.where(np.sum(z**2, axis=1) > np.median(np.sum(z**2, axis=1)), 1, -1)
    result = confidence(cf.LinearMetricLearner().fit(z, separable))
    assert not result.valid
    assert "alpha > 0" not in result.statement
    assert "Set alpha" not in result.statement


@pytest.mark.parametrize("kind", ["two far values", "threshold", "combination", "one-hot", "both columns"])
@pytest.mark.parametrize("beside", [0, 2])
def test_a_direction_that_labels_never_contradict_has_no_interval(kind, beside):
    """Labels that 0/1 columns explain without error along one direction: the optimum lies at infinity."""
    rng = np.random.default_rng(beside)
    n = 400
    a, b = rng.integers(0, 2, (2, n)).astype(float)
    three = rng.integers(-1, 2, n).astype(float)
    hot = np.eye(3)[rng.integers(0, 3, n)] - np.eye(3)[rng.integers(0, 3, n)]
    more = rng.standard_normal((n, beside))
    maybe = np.sum(more**2, axis=1) - beside + rng.logistic(size=n) > 0.8
    columns, far, named = {
        "two far values": (three[:, None], (three != 0) | maybe, "column 'x0'"),
        "threshold": (three[:, None], (three != 0) & maybe, "column 'x0'"),
        "combination": (np.column_stack([a, a + b]), (b != 0) | maybe, "the columns 'x1', 'x0'"),
        "one-hot": (hot, (hot[:, 0] != 0) | maybe, "column 'x0'"),
        "both columns": (np.column_stack([a, b]), (a + b != 0) | maybe, "the columns 'x"),
    }[kind]
    z, labels = np.column_stack([columns, more]), np.where(far, 1, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = cf.LinearMetricLearner(**PAPER).fit(z, labels)
    result = confidence(learner, z, labels)
    assert (result.method, result.valid) == ("none", False)
    assert named in result.statement
    assert not any("smaller tol" in flaw for flaw in result.flaws)
    assert np.isinf(result.threshold.high)


def flipped_sample(n, seed, rate=0.1):
    z, labels = sample(n, seed, matrix=3.0 * MATRIX)
    return z, np.where(np.random.default_rng(seed + 1000).random(n) < rate, -labels, labels)


def test_flips_by_finite_differences():
    """The sandwich in (M, tau, q) is that of the likelihood written out."""
    z, labels = flipped_sample(3000, 0)
    learner = cf.LinearMetricLearner(flip_rate="estimate", tol=1e-12, alpha=0.0).fit(z, labels)
    noise = get_noise("logistic")

    def losses(p):
        squared = p[0] * z[:, 0] ** 2 + 2 * p[1] * z[:, 0] * z[:, 1] + p[2] * z[:, 1] ** 2
        return -np.log(p[4] + (1 - 2 * p[4]) * noise.cdf(labels * (squared - p[3])))

    p = np.append(parameters(learner.metric_), learner.metric_.flip_rate)
    scores = central(losses, p)
    bread = np.linalg.inv(central(lambda q: central(losses, q).sum(axis=0), p, step=1e-4))
    covariance = bread @ (scores.T @ scores) @ bread
    result = confidence(learner, z, labels)
    assert (result.method, result.valid) == ("sandwich", True)
    got = np.append(errors(result), result.flip_rate.standard_error)
    np.testing.assert_allclose(got, np.sqrt(np.diag(covariance)), rtol=2e-3)
    assert result.flip_rate.low < 0.1 < result.flip_rate.high

    def probabilities(q):
        metric = cf.Metric.from_matrix([[q[0], q[1]], [q[1], q[2]]], q[3])
        return q[4] + (1 - 2 * q[4]) * metric.probability_far(POINTS)

    slopes = central(probabilities, p)
    expected = np.sqrt(np.einsum("ij,jk,ik->i", slopes, covariance, slopes))
    far = result.probability_far(POINTS)
    np.testing.assert_allclose(far.estimate, probabilities(p), rtol=1e-9)
    np.testing.assert_allclose(far.standard_error, expected, rtol=5e-3)
    assert np.all((far.low < far.estimate) & (far.estimate < far.high) & (far.high < 1))
    known = cf.LinearMetricLearner(flip_rate=0.1, tol=1e-12, alpha=0.0).fit(z, labels)
    given = confidence(known, z, labels)
    assert given.valid
    assert given.flip_rate is None
    assert given.threshold.standard_error < result.threshold.standard_error
    assert given.probability_far(POINTS).low.min() >= 0.1


def test_a_flip_rate_of_nothing_is_on_its_boundary():
    z, labels = sample(1500, 3)
    learner = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(z, labels)
    result = confidence(learner, z, labels)
    assert not result.valid
    assert "flip rate" in result.statement


def test_says_that_the_noise_is_in_doubt():
    z, labels = flipped_sample(3000, 0)
    blind = confidence(cf.LinearMetricLearner(**PAPER).fit(z, labels), z, labels)
    assert blind.valid
    assert "check_noise_model rejects the noise model" in blind.statement
    aware = confidence(cf.LinearMetricLearner(flip_rate=0.1, alpha=0.0).fit(z, labels), z, labels)
    assert "doubts" not in aware.statement


def test_intervals_of_few_labels_hold_the_truth():
    """60 pairs of two columns: some ten uncertain labels per parameter."""
    inside, valid = [], 0
    for seed in range(30):
        z, labels = sample(60, 100 + seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = confidence(cf.LinearMetricLearner(**PAPER).fit(z, labels), z, labels)
        if result.valid:
            valid += 1
            inside.append(result.threshold.low <= THRESHOLD <= result.threshold.high)
            inside.extend(np.ravel((result.matrix.low <= MATRIX) & (result.matrix.high >= MATRIX))[[0, 1, 3]])
    assert valid > 25
    assert np.mean(inside) > 0.9


def test_intervals_have_the_shape_of_what_they_describe():
    z, labels, learner = fitted(400)
    result = confidence(learner, z, labels, level=0.5)
    wide = confidence(learner, z, labels, level=0.99)
    single = result.distance(POINTS[0])
    assert np.ndim(single.low) == 0
    assert np.isclose(single.low, result.distance(POINTS).low[0])
    at_zero = result.distance(np.zeros(2))
    assert (at_zero.estimate, at_zero.standard_error, at_zero.low, at_zero.high) == (0.0, 0.0, 0.0, 0.0)
    assert result.matrix.low.shape == (2, 2)
    assert result.probability_far(POINTS).low.shape == (3,)
    assert np.all(wide.probability_far(POINTS).low < result.probability_far(POINTS).low)
    assert wide.threshold.high > result.threshold.high > result.threshold.estimate


def test_a_column_that_does_not_vary_is_known_to_be_zero():
    z, labels, learner = fitted(400)
    padded = np.column_stack([z, np.zeros(400)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cf.IdentifiabilityWarning)
        unaware = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(padded, labels)
    result = confidence(unaware, padded, labels)
    assert result.valid
    assert "do not vary in 1 direction;" in result.statement
    np.testing.assert_allclose(
        result.matrix.standard_error[:2, :2], confidence(learner, z, labels).matrix.standard_error, rtol=1e-6
    )
    assert np.all(result.matrix.standard_error[2] == 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 95}, "level must be"),
        ({"method": "profile"}, "method must be one of"),
        ({"method": "bootstrap"}, "method must be one of"),
        ({"groups": [1, 2]}, r"got shape \(2,\)"),
        ({"sample_weight": -np.ones(400)}, "sample_weight must be >= 0"),
    ],
)
def test_errors(options, message):
    z, labels, learner = fitted(400)
    with pytest.raises(ValueError, match=message):
        confidence(learner, z, labels, **options)


def test_errors_of_the_learner():
    z, labels = sample(300, 0)
    with pytest.raises(NotFittedError):
        confidence(cf.LinearMetricLearner(**PAPER), z, labels)
    centred = cf.LinearMetricLearner(fit_origin=True, **PAPER).fit(z, labels)
    with pytest.raises(ValueError, match="fit_origin"):
        confidence(centred, z, labels)
