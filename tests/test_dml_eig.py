"""DML-eig: against the exact max-min value, its invariance, and the threshold that goes with it."""

import cvxpy
import numpy as np
import pytest

from paper.dml_eig import METHODS, best_threshold, dml_eig, squared_distances, trial


def labelled_differences(n=60, d=3, seed=0):
    rng = np.random.default_rng(seed)
    differences = rng.standard_normal((n, d)) * np.arange(1, d + 1)
    labels = np.where(differences[:, 0] ** 2 + 0.3 * differences[:, 1] ** 2 > 1.0, 1, -1)
    return differences, labels


def exact_value(differences, labels):
    """The largest least squared distance of the far pairs, by a cone program."""
    close, far = differences[labels < 0], differences[labels > 0]
    matrix = cvxpy.Variable((differences.shape[1],) * 2, PSD=True)
    least = cvxpy.min(cvxpy.sum(cvxpy.multiply(far @ matrix, far), axis=1))
    program = cvxpy.Problem(cvxpy.Maximize(least), [cvxpy.trace(matrix @ (close.T @ close)) <= 1.0])
    return program.solve(solver="CLARABEL")


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_least_distance_and_bound_enclose_the_exact_value(seed):
    differences, labels = labelled_differences(seed=seed)
    exact = exact_value(differences, labels)
    learned = dml_eig(differences, labels, smoothing=3e-3 * exact, n_iter=20_000)
    assert learned.least <= exact * (1 + 1e-6)
    assert learned.bound >= exact * (1 - 1e-6)
    assert learned.least == pytest.approx(exact, rel=0.02)
    assert learned.bound == pytest.approx(exact, rel=0.02)


def test_learned_metric_attains_what_it_reports():
    differences, labels = labelled_differences(d=4)
    learned = dml_eig(differences, labels, smoothing=1e-3)
    distances = squared_distances(learned.matrix, differences)
    assert np.sum(distances[labels < 0]) == pytest.approx(1.0)
    assert np.min(distances[labels > 0]) == pytest.approx(learned.least)
    assert np.linalg.eigvalsh(learned.matrix)[0] >= 0.0


def test_mapped_back_distances_do_not_depend_on_units():
    differences, labels = labelled_differences()
    units = np.array([[2.0, 0.3, 0.0], [0.0, 5.0, 1.0], [0.0, 0.0, 0.1]])
    for mapped_back, equal in ((True, True), (False, False)):
        matrices = [
            dml_eig(given, labels, smoothing=0.05, mapped_back=mapped_back).matrix
            for given in (differences, differences @ units.T)
        ]
        same, moved = squared_distances(matrices[0], differences), squared_distances(matrices[1], differences @ units.T)
        assert np.allclose(same, moved, rtol=1e-6) == equal


def test_too_few_close_pairs_for_the_columns_are_no_obstacle():
    differences, labels = labelled_differences(d=4)
    labels = np.where(np.cumsum(labels < 0) <= 2, labels, 1)
    assert np.all(np.isfinite(dml_eig(differences, labels, smoothing=1e-3).matrix))


@pytest.mark.parametrize("seed", range(5))
def test_no_threshold_gets_more_labels_right(seed):
    rng = np.random.default_rng(seed)
    distances = rng.integers(0, 12, 30).astype(float)
    labels = np.where(distances + 6 * rng.standard_normal(30) > 6, 1, -1)

    def n_right(threshold):
        return np.sum(np.where(distances >= threshold, 1, -1) == labels)

    assert n_right(best_threshold(distances, labels)) == max(map(n_right, np.arange(-0.5, 13.0)))


@pytest.mark.parametrize("label", [-1, 1])
def test_threshold_of_one_class_gets_all_labels_right(label):
    distances, labels = np.array([1.0, 3.0, 3.0]), np.full(3, label)
    assert np.all(np.where(distances >= best_threshold(distances, labels), 1, -1) == labels)


@pytest.mark.parametrize("wrong_share", [0.0, 0.1])
def test_a_trial_of_the_comparison_holds_every_method(wrong_share):
    result = trial(n_train=200, wrong_share=wrong_share, seed=0)
    assert set(result) == set(METHODS)
    for scores in result.values():
        assert all(0.0 <= scores[name] <= 1.0 for name in ("train_noisy", "train_true", "test_noisy", "test_true"))
        assert (scores["test_noisy"] == scores["test_true"]) == (wrong_share == 0.0)
