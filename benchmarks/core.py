"""Side-by-side timings of the core: ratios in one process, because seconds depend on the machine.

    python benchmarks/core.py [--quick]

A pass is the one that the solvers make: the loss of a metric with its gradient (`Problem.at`), on the
same rows in unit-free coordinates.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import closefar as cf
from closefar.noise import get_noise
from closefar.rows import Differences, unit_free
from closefar.solve import Answers, Likelihood, Problem

# The paper's estimator: one fit, without choosing a penalty and flips.
ESTIMATOR: dict[str, Any] = {"alpha": 0.0, "flip_rate": 0.0}

PAPER = {
    "metric_eigenvalues": [0.32, 0.89, 0.59, 0.13, 0.14],
    "covariance_eigenvalues": [0.73, 0.70, 0.68, 0.59, 0.47, 0.45, 0.21, 0.19, 0.11, 0.04],
    "threshold": 1.3,
}


def paper_problem(seed: int) -> tuple[np.ndarray, np.ndarray, cf.Metric]:
    """c1: the paper's d = 10, rank 5, 15,000 pairs, 10% logistic noise."""
    pairs, labels, _, metric = cf.datasets.make_pairs(15_000, 10, **PAPER, random_state=seed)
    return pairs[:, 0] - pairs[:, 1], labels, metric


def large_problem(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, cf.Metric]:
    """c3: d = 100, rank 30, 20% logistic noise."""
    pairs, labels, _, metric = cf.datasets.make_pairs(n, 100, rank=30, wrong_share=0.2, random_state=seed)
    return pairs[:, 0] - pairs[:, 1], labels, metric


def seconds(function: Callable[[], Any], repeats: int) -> float:
    """The median CPU time of a call, after one call to warm up."""
    function()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return float(np.median(times))


def spectral_error(matrix: np.ndarray, threshold: float, truth: cf.Metric) -> float:
    target = truth.matrix / truth.threshold
    return float(np.linalg.norm(matrix / threshold - target, 2) / np.linalg.norm(target, 2))


def one_pass(Z: np.ndarray, labels: np.ndarray) -> Callable[[], Any]:
    weights = np.full(len(Z), 1.0 / len(Z))
    rows, _ = unit_free(Differences(Z), weights)
    codes = rows.row_array((labels > 0).astype(np.int8))
    problem = Problem.of(rows, Likelihood(get_noise("logistic"), Answers.of(2), codes, weights))
    matrix, thresholds = np.eye(rows.n_columns), np.ones(1)
    return lambda: problem.at(matrix, thresholds)


def bench_passes(name: str, problem: tuple[np.ndarray, np.ndarray, cf.Metric], repeats: int) -> None:
    Z, labels, _ = problem
    learner = cf.LinearMetricLearner(**ESTIMATOR, tol=1e-8)
    evaluate = one_pass(Z, labels)
    # In turns, so that both meet the same moods of the machine.
    turns = [(seconds(evaluate, 3), seconds(lambda: learner.fit(Z, labels), 1)) for _ in range(repeats)]
    single, whole = np.median(turns, axis=0)
    certificate = learner.certificate_
    print(
        f"{name:<16} fit {whole * 1e3:9.1f} ms   pass {single * 1e3:8.2f} ms   "
        f"fit / pass {whole / single:6.1f} (bar 20)   passes {certificate.n_passes:5.1f}   "
        f"proven gap {certificate.gap:.1e}"
    )


def bench_gradient_descent(problem: tuple[np.ndarray, np.ndarray, cf.Metric]) -> None:
    """The paper's algorithm (rate 0.5, raw columns) until its loss is as near to the optimum as ours."""
    Z, labels, _ = problem
    learner = cf.LinearMetricLearner(**ESTIMATOR, tol=1e-8)
    ours = seconds(lambda: learner.fit(Z, labels), 5)
    target = learner.certificate_.lower_bound + 1e-8
    signs = labels.astype(float)
    rng = np.random.default_rng(0)
    factor, threshold = 0.01 * rng.standard_normal((Z.shape[1],) * 2), 0.0
    start = time.process_time()
    for step in range(1, 300_001):
        product = Z @ factor
        margin = signs * (np.einsum("ij,ij->i", product, product) - threshold)
        tail = np.exp(-np.abs(margin))
        margin_gradient = signs * np.where(margin > 0, tail, 1.0) / (1.0 + tail) / len(Z)
        if step % 100 == 0 and np.mean(np.log1p(tail) + np.maximum(-margin, 0.0)) <= target:
            break
        factor += Z.T @ (product * margin_gradient[:, None])
        threshold = max(threshold - 0.5 * margin_gradient.sum(), 0.0)
    spent = time.process_time() - start
    print(
        f"{'c1':<16} the paper's gradient descent: {step} passes, {spent:.1f} s to the same loss gap; "
        f"closefar is {spent / ours:.0f} times faster (bar 500)"
    )


def bench_logistic_regression(seed: int, orientations: int = 10) -> None:
    """What one would write instead: logistic regression on the products z_i z_j."""
    rows, columns = np.triu_indices(10)
    halves = np.where(rows == columns, 1.0, 0.5)
    plain = LogisticRegression(max_iter=1000)
    learners = {"alpha=0": cf.LinearMetricLearner(**ESTIMATOR), "default": cf.LinearMetricLearner()}
    times: list[float] = []
    errors: dict[str, list[float]] = {name: [] for name in (*learners, "plain")}
    for orientation in range(orientations):
        Z, labels, truth = paper_problem(seed + orientation)
        start = time.perf_counter()
        plain.fit(Z[:, rows] * Z[:, columns], labels)
        middle = time.perf_counter()
        learners["alpha=0"].fit(Z, labels)
        times.append((time.perf_counter() - middle) / (middle - start))
        learners["default"].fit(Z, labels)
        matrix = np.zeros((10, 10))
        matrix[rows, columns] = plain.coef_[0] * halves
        matrix += np.triu(matrix, 1).T
        errors["plain"].append(spectral_error(matrix, -plain.intercept_[0], truth))
        for name, learner in learners.items():
            errors[name].append(spectral_error(learner.metric_.matrix, learner.metric_.threshold, truth))
    mean = {name: float(np.mean(values)) for name, values in errors.items()}
    ratios = ", ".join(f"{name} {mean[name]:.3f} (ratio {mean[name] / mean['plain']:.2f})" for name in learners)
    print(
        f"{'c1':<16} logistic regression on z_i z_j, {orientations} orientations: time ratio {np.median(times):.2f} "
        f"(bar 1); spectral error of M / tau {mean['plain']:.3f} against {ratios} (bar 0.75)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the runs of a minute and more")
    parser.add_argument("--seed", type=int, default=2023)
    options = parser.parse_args()
    with threadpool_limits(1):  # passes and fits alike
        run(options)


def run(options: argparse.Namespace) -> None:
    bench_passes("c1", paper_problem(options.seed), 15)
    bench_logistic_regression(options.seed)
    bench_passes("c3, N = 60,000", large_problem(60_000, options.seed), 2)
    if not options.quick:
        bench_passes("c3, N = 600,000", large_problem(600_000, options.seed), 1)
        bench_gradient_descent(paper_problem(options.seed))


if __name__ == "__main__":
    main()
