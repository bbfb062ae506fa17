"""Fits that must not be taken at their word: optima at infinity, swapped labels, rows in the wrong unit."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import closefar as cf
from paper_estimator import PAPER

NOISES = ("logistic", "normal", "laplace", "hypsecant")


def base_labels(rng, x):
    """Labels that follow the columns x noisily, 30% far."""
    score = np.sum(x**2, axis=1) + 0.8 * rng.logistic(size=len(x))
    return score > np.quantile(score, 0.7)


def only_far_where_different(rng, n, x):
    z = rng.choice([-1.0, 0.0, 1.0], n, p=[0.2, 0.6, 0.2])
    return np.column_stack([z, x]), np.where(z != 0, True, base_labels(rng, x))


def only_close_where_equal(rng, n, x):
    z = rng.choice([-1.0, 0.0, 1.0], n, p=[0.2, 0.6, 0.2])
    return np.column_stack([z, x]), np.where(z == 0, False, rng.random(n) < 0.7)


def along_a_combination(rng, n, x):
    a, b = rng.choice([-1.0, 0.0, 1.0], n), rng.standard_normal(n)
    return np.column_stack([a + b, a - b, x]), np.where(a != 0, True, base_labels(rng, np.column_stack([b, x])))


def one_category(rng, n, x):
    left, right = rng.integers(0, 4, (2, n))
    columns = np.eye(4)[:, :3]
    differs = (left != right) & ((left == 0) | (right == 0))
    return np.column_stack([columns[left] - columns[right], x]), np.where(differs, True, base_labels(rng, x))


def a_rare_kind(rng, n, x):
    z = np.zeros(n)
    z[:3] = 1.0
    return np.column_stack([z, x]), np.where(z != 0, True, base_labels(rng, x))


KINDS = [only_far_where_different, only_close_where_equal, along_a_combination, one_category, a_rare_kind]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("n", [200])
@pytest.mark.parametrize("make", KINDS)
def test_labels_that_a_direction_explains_without_error_have_no_finite_optimum(make, n, noise, rng):
    differences, labels = make(rng, n, rng.standard_normal((n, 2)))
    learner = cf.LinearMetricLearner(noise=noise, **PAPER).fit(differences, labels)
    assert learner.certificate_.outcome == "quasi-separable"
    assert learner.fit_.is_quasi_separable
    assert "'x0'" in learner.certificate_.status
    assert not cf.confidence(learner, differences, labels).valid


@pytest.mark.parametrize("noise", NOISES)
def test_one_exception_makes_the_optimum_finite(noise, rng):
    differences, labels = only_far_where_different(rng, 400, rng.standard_normal((400, 2)))
    labels[np.flatnonzero(differences[:, 0] != 0)[:5]] = False
    assert cf.LinearMetricLearner(noise=noise, **PAPER).fit(differences, labels).certificate_.outcome == "converged"


def test_the_direction_is_found_whatever_the_units(rng):
    differences, labels = only_far_where_different(rng, 300, rng.standard_normal((300, 2)))
    mixed = differences @ np.array([[1e6, 0.0, 0.0], [3.0, 1e-5, 0.0], [0.0, 0.0, 1.0]])
    for data in (differences, mixed):
        with pytest.warns(ConvergenceWarning, match="quasi-separable: column 'x0' explains some labels"):
            cf.LinearMetricLearner(**PAPER).fit(data, labels)


def test_a_penalty_makes_the_optimum_finite(rng):
    differences, labels = only_far_where_different(rng, 300, rng.standard_normal((300, 2)))
    assert (
        cf.LinearMetricLearner(alpha=0.01, prior="zero", flip_rate=0.0).fit(differences, labels).certificate_.outcome
        == "converged"
    )


# Swapped labels


def test_labels_that_mean_the_opposite_are_noticed():
    data = cf.datasets.make_pairs(600, 3, wrong_share=0.1, random_state=0)
    with pytest.warns(cf.IdentifiabilityWarning, match="set far_label=-1"):
        learner = cf.LinearMetricLearner(**PAPER).fit(data.pairs, -data.labels)
    assert learner.metric_.rank < 3
    right = cf.LinearMetricLearner(far_label=-1, **PAPER).fit(data.pairs, -data.labels)
    assert right.data_problems == ()


def test_labels_that_mean_nothing_are_not_called_swapped(rng):
    for _ in range(5):
        differences = rng.standard_normal((300, 3))
        learner = cf.LinearMetricLearner(**PAPER).fit(differences, rng.random(300) < 0.5)
        assert learner.data_problems == ()


# One row in the wrong unit


@pytest.mark.parametrize("size", [1e6, 1e8])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_a_close_pair_in_the_wrong_unit_is_named_and_stops_nothing(d, size, rng):
    z = rng.standard_normal((400, d))
    labels = np.sum(z**2, axis=1) + 0.3 * rng.logistic(size=400) > d
    z[7], labels[7] = size, False
    with pytest.warns(cf.IdentifiabilityWarning, match="row 7, labelled close, is more than 10,000 times"):
        learner = cf.LinearMetricLearner(**PAPER).fit(z, labels)
    assert learner.certificate_.outcome == "converged"
    # Along that row nothing is left; the other directions are learned as without it.
    across = z @ np.linalg.svd(np.ones((1, d)))[2][1:].T
    if d > 1:
        others = cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(across[np.arange(400) != 7], labels[np.arange(400) != 7])
        assert learner.certificate_.loss == pytest.approx(others.certificate_.loss, abs=5e-3)
    cf.confidence(learner, z, labels)


def test_a_far_pair_in_the_wrong_unit_says_nothing(rng):
    z = rng.standard_normal((400, 3))
    labels = np.sum(z**2, axis=1) + 0.3 * rng.logistic(size=400) > 3
    z[7], labels[7] = 1e8, True
    learner = cf.LinearMetricLearner(**PAPER).fit(z, labels)
    assert learner.certificate_.converged
    assert learner.data_problems == ()


# No proof where curvature comes in jumps


@pytest.mark.filterwarnings("ignore::closefar.IdentifiabilityWarning")
@pytest.mark.parametrize("seed", [47, 50])
def test_a_laplace_fit_with_too_few_pairs_for_a_proof_names_the_remedy(seed):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((300, 12))
    squared = np.sum((z @ rng.standard_normal((12, 12)) / 4) ** 2, axis=1)
    labels = squared + 0.2 * np.median(squared) * rng.laplace(size=300) > np.median(squared)
    with pytest.warns(ConvergenceWarning, match="stalled.*raise alpha"):
        cf.LinearMetricLearner(noise="laplace", **PAPER).fit(z, labels)
    proven = cf.LinearMetricLearner(noise="laplace", **PAPER | {"alpha": 0.001}).fit(z, labels).certificate_
    assert proven.gap <= 1e-6


def test_a_rare_column_is_not_called_enormous(rng):
    """Two rows in a thousand have a 1 in it, which is as large as usual."""
    x = rng.standard_normal((1000, 3))
    rare = np.zeros(1000)
    rare[:2] = 1.0
    labels = np.sum(x**2, axis=1) + rng.logistic(size=1000) > 3.0
    labels[:2] = [False, True]
    learner = cf.LinearMetricLearner(**PAPER).fit(np.column_stack([x, rare]), labels)
    assert learner.fit_.problems == ()
