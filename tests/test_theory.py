"""The paper's bounds: against an independent evaluation, and against simulated data."""

import math

import mpmath
import numpy as np
import pytest

import closefar as cf
from closefar import theory
from closefar.noise import NOISES
from paper_estimator import PAPER

BALL = {"n_features": 2, "max_eigenvalue": 1.0, "max_squared_length": 1.0}


@pytest.fixture(params=sorted(NOISES))
def noise(request):
    return request.param


def cdf(noise, x):
    return {
        "logistic": lambda: 1 / (1 + mpmath.exp(-x)),
        "normal": lambda: mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
        "laplace": lambda: mpmath.exp(x) / 2 if x < 0 else 1 - mpmath.exp(-x) / 2,
        "hypsecant": lambda: 2 / mpmath.pi * mpmath.atan(mpmath.exp(mpmath.pi * x / 2)),
    }[noise]()


def exact_sample_size(eps, delta, d, beta, F, B, noise):
    """The corrected, expanded form of the paper's formula, with zeta and T from the CDF alone, in 50 digits."""
    eps, delta, beta, F, B = (mpmath.mpf(value) for value in (eps, delta, beta, F, B))
    radius = max(beta * F, B)
    T = -mpmath.log(cdf(noise, -radius))
    zeta = mpmath.diff(lambda x: mpmath.log(cdf(noise, x)), -radius)
    logs = mpmath.log(6 * zeta * (1 + F) * B / (eps * delta)) + d**2 * mpmath.log(12 * zeta * (1 + F) * beta / eps)
    logs += mpmath.mpf(3) / 2 * d**2 * mpmath.log(d)
    return 9 * zeta**2 * (F + 1) ** 2 * T**2 / (2 * eps**2) * logs


def expected_loss(noise, margins, true_margins):
    """The mean over rows of the expectation over labels drawn with the true margins."""
    far = noise.cdf(true_margins)
    return np.mean(far * noise.neg_log_cdf(margins) + (1 - far) * noise.neg_log_cdf(-margins))


def uniform_in_ball(n, d, rng):
    directions = rng.normal(size=(n, d))
    return directions / np.linalg.norm(directions, axis=1, keepdims=True) * rng.uniform(size=(n, 1)) ** (1 / d)


def random_metrics(n, d, beta, rng):
    """Matrices with eigenvalues up to beta, some of them small, and thresholds up to beta."""
    for _ in range(n):
        turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
        matrix = (turn * (beta * rng.uniform(size=d) ** rng.choice([1, 4]))) @ turn.T
        yield (matrix + matrix.T) / 2, beta * rng.uniform()


def margins_of(metric, z):
    return np.einsum("ij,jk,ik->i", z, metric[0], z) - metric[1]


# The sample size


@pytest.mark.parametrize(
    ("eps", "delta", "d", "beta", "F", "B"),
    [
        (0.1, 0.05, 2, 1.0, 1.0, 1.0),
        (0.003, 0.001, 10, 0.9, 6.0, 1.3),
        (0.5, 0.3, 1, 2.5, 3.0, 7.0),
        (0.1, 0.9, 2, 1, 1, 5),
    ],
)
def test_sample_size_is_the_corrected_formula(noise, eps, delta, d, beta, F, B):
    n = theory.sample_size(
        eps, delta, n_features=d, max_eigenvalue=beta, max_squared_length=F, max_threshold=B, noise=noise
    )
    with mpmath.workdps(50):
        assert abs(n / exact_sample_size(eps, delta, d, beta, F, B, noise) - 1) < 1e-12


def test_zeta_enters_squared():
    """Errata: the paper prints zeta to the first power, and T of Laplace noise as a product."""
    eps, delta, F, beta = 0.01, 0.05, 4.0, 1.5
    zeta, _, T = NOISES["hypsecant"].constants(beta * F)
    logs = math.log(6 * zeta * (F + 1) * beta * F / (eps * delta)) + math.log(12 * zeta * (F + 1) * beta / eps)
    n = theory.sample_size(eps, delta, n_features=1, max_eigenvalue=beta, max_squared_length=F, noise="hypsecant")
    assert n == pytest.approx(zeta * (9 * zeta * (F + 1) ** 2 * T**2 / (2 * eps**2)) * logs, rel=1e-12)
    largest_loss = NOISES["laplace"].constants(beta * F).T
    assert largest_loss == pytest.approx(beta * F + math.log(2), rel=1e-14)


def test_the_deviation_on_the_cover_is_at_most_a_third_of_eps():
    """Where zeta (F + 1) < 1 the proof needs eps / 3 in place of alpha."""
    beta, F, eps, delta = 1.0, 0.1, 0.01, 0.05
    zeta, _, T = NOISES["logistic"].constants(beta * F)
    assert zeta * (F + 1) < 1
    alpha = eps / (3 * zeta * (F + 1))
    cover = beta * F / alpha * (4 * beta / alpha)
    n = theory.sample_size(eps, delta, n_features=1, max_eigenvalue=beta, max_squared_length=F)
    assert n == pytest.approx(T**2 / (2 * (eps / 3) ** 2) * math.log(2 * cover / delta), rel=1e-12)


def test_a_threshold_that_is_known_to_be_zero_needs_no_cover():
    n = theory.sample_size(0.1, 0.05, **BALL, max_threshold=0.0)
    zeta, _, T = NOISES["logistic"].constants(1.0)
    alpha = 0.1 / (3 * zeta * 2)
    assert n == pytest.approx(
        T**2 / (2 * alpha**2) * (math.log(2 / 0.05) + 4 * math.log(4 * 2**1.5 / alpha)), rel=1e-12
    )
    assert n == theory.sample_size(0.1, 0.05, **BALL, max_threshold=1e-9)


def test_a_cover_by_one_point_leaves_the_bound_of_one_metric():
    """Hoeffding's bound for losses up to T, where every metric lies within alpha of one."""
    eps, delta = 100.0, 0.2
    zeta, _, T = NOISES["logistic"].constants(1.0)
    t = min(eps / (3 * zeta * 2), eps / 3)
    assert theory.sample_size(eps, delta, **BALL) == pytest.approx(T**2 / (2 * t**2) * math.log(2 / delta), rel=1e-12)


def test_a_threshold_beyond_all_distances_widens_the_margins():
    T = NOISES["laplace"].constants(5.0).T / NOISES["laplace"].constants(1.0).T
    wide = theory.sample_size(0.1, 0.05, **BALL, max_threshold=5.0, noise="laplace")
    assert wide > T**2 * theory.sample_size(0.1, 0.05, **BALL, max_threshold=1.0, noise="laplace")


@pytest.mark.parametrize("n_pairs", [1.0, 37.0, 1e4, 1e7, 3e15, 1e200])
@pytest.mark.parametrize("d", [1, 3, 40])
def test_guaranteed_error_is_the_inverse(noise, n_pairs, d):
    kwargs = {"n_features": d, "max_eigenvalue": 0.7, "max_squared_length": 3.0, "max_threshold": 1.0, "noise": noise}
    eps = theory.guaranteed_error(n_pairs, 0.05, **kwargs)
    assert theory.sample_size(eps, 0.05, **kwargs) == pytest.approx(n_pairs, rel=1e-10)


@pytest.mark.parametrize("eps", [1e-9, 0.02, 1.0, 2.0, 50.0])
def test_round_trip_from_an_error(eps):
    n = theory.sample_size(eps, 0.01, **BALL)
    assert theory.guaranteed_error(n, 0.01, **BALL) == pytest.approx(eps, rel=1e-10)


def test_guaranteed_error_falls_with_pairs_and_rises_with_columns():
    errors = [theory.guaranteed_error(n, 0.05, **BALL) for n in np.geomspace(1, 1e12, 60)]
    assert np.all(np.diff(errors) < 0)
    wider = [theory.guaranteed_error(1e6, 0.05, **{**BALL, "n_features": d}) for d in (1, 2, 5, 20)]
    assert np.all(np.diff(wider) > 0)


# The theorems on simulated data


def test_losses_deviate_by_less_than_guaranteed(noise):
    """Uniform convergence: the largest deviation over many metrics, for pairs uniform in an interval."""
    rng, model, n = np.random.default_rng(0), NOISES[noise], 20_000
    kwargs = {"n_features": 1, "max_eigenvalue": 1.0, "max_squared_length": 0.5, "noise": noise}
    eps = theory.guaranteed_error(n, 0.05, **kwargs)
    assert eps < model.constants(0.5).T  # not vacuous
    z = np.sqrt(0.5) * rng.uniform(-1, 1, size=n)
    grid = np.sqrt(0.5) * np.linspace(-1, 1, 4001)
    true = 0.8, 0.15
    labels = np.where(rng.uniform(size=n) < model.cdf(true[0] * z**2 - true[1]), 1, -1)
    deviations = []
    for weight in np.linspace(0, 1, 9):
        for threshold in np.linspace(0, 0.5, 9):
            empirical = np.mean(model.neg_log_cdf(labels * (weight * z**2 - threshold)))
            exact = expected_loss(model, weight * grid**2 - threshold, true[0] * grid**2 - true[1])
            deviations.append(abs(empirical - exact))
    assert eps / 200 < max(deviations) < eps


def test_the_fitted_loss_is_within_twice_the_deviation_of_the_best():
    """Theorem on loss approximation, by a fit."""
    rng, n = np.random.default_rng(1), 30_000
    z = uniform_in_ball(n, 2, rng)
    true = np.array([[2.0, 0.3], [0.3, 0.8]]), 0.6
    model = NOISES["logistic"]
    labels = np.where(margins_of(true, z) + model.sample(n, rng) >= 0, 1, -1)
    metric = cf.LinearMetricLearner(**PAPER).fit(z, labels).metric_
    test = uniform_in_ball(20_000, 2, rng)
    best = expected_loss(model, margins_of(true, test), margins_of(true, test))
    excess = expected_loss(model, metric.margin(test), margins_of(true, test)) - best
    eps = theory.guaranteed_error(n, 0.05, n_features=2, max_eigenvalue=2.5, max_squared_length=1.0)
    assert 0 < excess < 2 * eps < model.constants(2.5).T


def test_truncation_bound_holds(noise):
    rng, model, beta = np.random.default_rng(2), NOISES[noise], 3.0
    z = uniform_in_ball(500, 4, rng)
    labels = rng.choice([-1, 1], size=500)
    for matrix, threshold in random_metrics(40, 4, beta, rng):
        full = cf.Metric.from_matrix(matrix, threshold, noise)
        k = int(rng.integers(0, 4))
        cut = full.truncate(k)
        bound = theory.truncation_bound(full.eigenvalues[k], max_squared_length=1.0, radius=beta, noise=noise)
        losses = [np.mean(model.neg_log_cdf(labels * metric.margin(z))) for metric in (full, cut)]
        assert abs(losses[0] - losses[1]) <= bound


def test_truncation_bound_is_attained_where_the_loss_is_steepest(noise):
    """One far pair of length sqrt(F) far below the threshold: its loss changes by nearly zeta F gamma."""
    model, F, cut, radius = NOISES[noise], 4.0, 1e-3, 6.0
    change = model.neg_log_cdf(-radius) - model.neg_log_cdf(cut * F - radius)
    bound = theory.truncation_bound(cut, max_squared_length=F, radius=radius, noise=noise)
    assert 0.99 * bound < change <= bound * (1 + 1e-9)


def test_truncation_bound_in_terms_of_singular_values():
    """The paper's introduction prints F gamma^2 for a singular value gamma of A and zeta = 1."""
    singular = 0.2
    assert theory.truncation_bound(singular**2, max_squared_length=3.0, radius=50.0) == pytest.approx(3.0 * singular**2)


def test_l1_bound_holds(noise):
    """R - R* >= omega^2 / 2 |.|_L1^2 for every metric, on any distribution of pairs."""
    rng, model, beta, d = np.random.default_rng(3), NOISES[noise], 1.5, 3
    z = uniform_in_ball(2000, d, rng)
    ratios = []
    for true, other in zip(random_metrics(30, d, beta, rng), random_metrics(30, d, beta, rng), strict=True):
        best = expected_loss(model, margins_of(true, z), margins_of(true, z))
        excess = expected_loss(model, margins_of(other, z), margins_of(true, z)) - best
        ratios.append(theory.l1_distance(true, other, z) / theory.l1_bound(excess, radius=beta, noise=noise))
    assert 0.05 < max(ratios) <= 1


def test_parameter_bound_holds(noise):
    """The bound on the spectral norm and the threshold, for pairs uniform in the unit ball."""
    rng, model, beta, d = np.random.default_rng(4), NOISES[noise], 1.0, 2
    z = uniform_in_ball(3000, d, rng)
    for true, other in zip(random_metrics(20, d, beta, rng), random_metrics(20, d, beta, rng), strict=True):
        best = expected_loss(model, margins_of(true, z), margins_of(true, z))
        excess = expected_loss(model, margins_of(other, z), margins_of(true, z)) - best
        distance = theory.parameter_distance(true, other)
        assert distance <= theory.parameter_bound(excess, n_features=d, radius=beta, noise=noise)
        assert theory.l1_distance(true, other, z) >= distance / (20 * 18**d)  # the lemma between the two


def test_errata_of_the_parameter_theorems():
    """An excess of eps needs N(eps / 2), which the corollary forgets; the remark forgets a square root."""
    radius, eps = 1.0, 0.3
    omega = NOISES["logistic"].constants(radius).omega
    assert theory.l1_bound(omega**2 * eps**2 / 2, radius=radius) == pytest.approx(eps)
    # With the corollary's number of pairs, N(omega^2 eps^2 / 2), the excess may be twice that.
    assert theory.l1_bound(omega**2 * eps**2, radius=radius) == pytest.approx(math.sqrt(2) * eps)
    excess = 1e-6
    expected = 20 * math.sqrt(2) * 18**3 / omega * math.sqrt(excess)
    assert theory.parameter_bound(excess, n_features=3, radius=radius) == pytest.approx(expected)


def test_min_density_of_the_uniform_distribution_is_the_default():
    kwargs = {"n_features": 3, "radius": 2.0, "noise": "normal"}
    volume = 4 / 3 * math.pi
    default = theory.parameter_bound(1e-9, **kwargs)
    assert theory.parameter_bound(1e-9, min_density=1 / volume, **kwargs) == pytest.approx(default)
    assert theory.parameter_bound(1e-9, min_density=0.1 / volume, **kwargs) == pytest.approx(10 * default)


@pytest.mark.parametrize("d", [1, 2, 3, 20])
def test_min_density_is_at_most_that_of_the_uniform_distribution(d):
    """One over the volume of the unit ball, by the recursion V(d) = 2 pi / d V(d - 2)."""
    volume = math.prod(2 * math.pi / k for k in range(d, 1, -2)) * (2 if d % 2 else 1)
    kwargs = {"n_features": d, "radius": 1.0}
    largest = theory.parameter_bound(0.1, min_density=1 / volume, **kwargs)
    assert largest == pytest.approx(theory.parameter_bound(0.1, **kwargs))
    with pytest.raises(ValueError, match=f"min_density must be at most {1 / volume:.6g}, "):
        theory.parameter_bound(0.1, min_density=(1 + 1e-8) / volume, **kwargs)


def test_a_parameter_bound_is_given_as_far_as_numbers_reach():
    excess = 1e-4
    bound = theory.parameter_bound(excess, n_features=240, radius=1.0)
    assert math.log(bound) == pytest.approx(math.log(20 * theory.l1_bound(excess, radius=1.0)) + 240 * math.log(18))
    assert math.log(bound) > 690
    assert theory.parameter_bound(excess, n_features=248, radius=1.0) == math.inf


def test_bounds_at_their_ends():
    assert theory.truncation_bound(0.0, max_squared_length=1.0, radius=0.0) == 0.0
    assert theory.l1_bound(0.0, radius=1.0) == theory.parameter_bound(0.0, n_features=2, radius=1.0) == 0.0
    assert theory.l1_bound(0.1, radius=100.0, noise="normal") == math.inf  # the density underflows
    assert theory.parameter_bound(0.1, n_features=300, radius=1.0) == math.inf


# The distances


def test_distances_by_hand():
    first, second = (np.diag([2.0, 0.0]), 1.0), (np.diag([1.0, 3.0]), 0.5)
    assert theory.parameter_distance(first, second) == 3.5
    assert theory.l1_distance(first, second, [[1.0, 0.0], [0.0, 1.0]]) == (0.5 + 3.5) / 2


def test_parameter_distance_is_by_the_largest_eigenvalue():
    (first, second), thresholds = random_metrics(2, 3, 1.0, np.random.default_rng(5)), (0.3, 1.0)
    expected = np.max(np.abs(np.linalg.eigvalsh(first[0] - second[0]))) + 0.7
    pair = (first[0], thresholds[0]), (second[0], thresholds[1])
    assert theory.parameter_distance(*pair) == pytest.approx(expected, rel=1e-12)
    assert theory.parameter_distance(*pair[::-1]) == pytest.approx(expected, rel=1e-12)


def test_one_difference_is_enough():
    first, second = ([[2.0, 0.5], [0.5, 1.0]], 1.0), (np.eye(2), 1.5)
    assert theory.l1_distance(first, second, [[1.0, 2.0]]) == pytest.approx(abs(1.0 + 2 * 0.5 * 2.0 + 0.5))


def test_distances_take_metrics():
    first = cf.Metric.from_matrix([[2.0, 0.5], [0.5, 1.0]], 1.0)
    second = cf.Metric.from_matrix([[1.0, 0.0], [0.0, 1.0]], 1.2)
    z = np.random.default_rng(0).normal(size=(100, 2))
    expected = np.mean(np.abs(first.margin(z) - second.margin(z)))
    assert theory.l1_distance(first, second, z) == pytest.approx(expected)
    plain = (first.matrix, 1.0), (second.matrix, 1.2)
    assert theory.parameter_distance(first, second) == theory.parameter_distance(*plain)


# Bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eps": 0.0}, r"eps must be a finite number > 0; got 0.0. Pass the largest deviation"),
        ({"eps": math.nan}, r"eps must be a finite number > 0; got nan"),
        ({"eps": math.inf}, r"eps must be a finite number > 0; got inf"),
        ({"delta": 1.0}, r"delta must lie between 0 and 1; got 1.0. It is the probability of failure"),
        ({"delta": 0.0}, r"delta must lie between 0 and 1; got 0.0"),
        ({"delta": math.nan}, r"delta must lie between 0 and 1; got nan"),
        ({"delta": "0.05"}, r"delta must lie between 0 and 1; got '0.05'"),
        ({"n_features": 0}, r"n_features must be a whole number >= 1; got 0. Pass the number of columns"),
        ({"n_features": 2.5}, r"n_features must be a whole number >= 1; got 2.5"),
        ({"n_features": True}, r"n_features must be a whole number >= 1; got True"),
        ({"n_features": "2"}, r"n_features must be a whole number >= 1; got '2'"),
        ({"max_eigenvalue": -1.0}, r"max_eigenvalue must be a finite number > 0; got -1.0. Pass a bound"),
        ({"max_eigenvalue": 0.0}, r"max_eigenvalue must be a finite number > 0; got 0.0"),
        ({"max_squared_length": "1"}, r"max_squared_length must be a finite number > 0; got '1'"),
        ({"max_squared_length": 0.0}, r"max_squared_length must be a finite number > 0; got 0.0"),
        ({"max_threshold": -0.1}, r"max_threshold must be a finite number >= 0; got -0.1. Pass a bound on tau"),
        ({"noise": "cauchy"}, r"noise must be one of 'logistic'"),
    ],
)
def test_sample_size_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        theory.sample_size(**{"eps": 0.1, "delta": 0.05, **BALL, **change})


@pytest.mark.parametrize(
    ("metric", "differences", "message"),
    [
        ((np.zeros(2), 1.0), np.ones((3, 2)), r"square and symmetric; got shape \(2,\)"),
        ((np.zeros((2, 3)), 1.0), np.ones((3, 2)), r"square and symmetric; got shape \(2, 3\)"),
        ((np.zeros((2, 2, 2)), 1.0), np.ones((3, 2)), r"square and symmetric; got shape \(2, 2, 2\)"),
        ((np.eye(2), 1.0), np.ones((0, 2)), r"n >= 1 and the matrices' 2 columns; got shape \(0, 2\)"),
        ((np.eye(2), 1.0), np.ones((2, 3)), r"n >= 1 and the matrices' 2 columns; got shape \(2, 3\)"),
        ((np.eye(2), 1.0), np.ones(2), r"n >= 1 and the matrices' 2 columns; got shape \(2,\)"),
    ],
)
def test_l1_distance_refuses_other_shapes(metric, differences, message):
    with pytest.raises(ValueError, match=message):
        theory.l1_distance(metric, metric, differences)


def test_others_refuse():
    with pytest.raises(ValueError, match=r"n_pairs must be a finite number > 0; got 0. Pass the number of labelled"):
        theory.guaranteed_error(0, 0.05, **BALL)
    with pytest.raises(TypeError, match="max_eigenvalues"):
        theory.guaranteed_error(10, 0.05, n_features=2, max_eigenvalues=1.0, max_squared_length=1.0)
    with pytest.raises(ValueError, match="largest_cut must be a finite number >= 0; got -1"):
        theory.truncation_bound(-1, max_squared_length=1.0, radius=1.0)
    with pytest.raises(ValueError, match="max_squared_length must be a finite number > 0; got 0"):
        theory.truncation_bound(1, max_squared_length=0, radius=1.0)
    with pytest.raises(ValueError, match="n_features must be a whole number >= 1; got 0"):
        theory.parameter_bound(0.1, n_features=0, radius=1.0)
    with pytest.raises(ValueError, match="min_density must be a finite number > 0; got 0"):
        theory.parameter_bound(0.1, n_features=2, radius=1.0, min_density=0)
    with pytest.raises(ValueError, match="excess_loss must be a finite number >= 0; got inf"):
        theory.l1_bound(math.inf, radius=1.0)
    with pytest.raises(ValueError, match=r"min_density must be at most 0.31831, .* got 0.4. Leave it out"):
        theory.parameter_bound(0.1, n_features=2, radius=1.0, min_density=0.4)
    with pytest.raises(ValueError, match=r"the same columns; got shapes \(1, 1\) and \(2, 2\)"):
        theory.parameter_distance(([[1.0]], 1.0), (np.eye(2), 1.0))
    with pytest.raises(ValueError, match=r"square and symmetric; got shape \(2, 2\)"):
        theory.parameter_distance(([[1.0, 2.0], [0.0, 1.0]], 1.0), (np.eye(2), 1.0))
    with pytest.raises(ValueError, match=r"got shape \(3, 2, 2\). For pairs"):
        theory.l1_distance((np.eye(2), 1.0), (np.eye(2), 1.0), np.zeros((3, 2, 2)))
    with pytest.raises(ValueError, match="must not have a learned origin"):
        theory.parameter_distance(cf.Metric([[1.0]], 1.0, origin=[0.5]), ([[1.0]], 1.0))
