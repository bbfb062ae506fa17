"""The paper's synthetic setting (its section "Data Generation"), its estimator, and the trial of most tables."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

import closefar as cf

FloatArray = NDArray[np.float64]

# The settings with which a learner is the estimator of the paper; with another alpha, M is shrunk to zero.
PAPER: dict[str, Any] = {"alpha": 0.0, "prior": "zero", "flip_rate": 0.0}

# Sampling noise of the gradient shrinks as 1/sqrt(n), and so must the penalty that is to cover it.
_FACTORS = (0.0, 0.2, 0.4, 0.8, 1.6, 3.2)

# The paper's words for the noises that labels are made with, and for the models that are fitted.
MODELS = {name: noise.title for name, noise in cf.noise.NOISES.items()}
NOISES = {**MODELS, "flips": "noisy labelling"}

# The four accuracies of the paper's tables.
ACCURACIES = {
    "train_noisy": "training, noisy labels",
    "train_true": "training, true labels",
    "test_noisy": "test, noisy labels",
    "test_true": "test, true labels",
}

N_TEST = 5_000

_METRIC_EIGENVALUES = (0.32, 0.89, 0.59, 0.13, 0.14)
_COVARIANCE_EIGENVALUES = (0.73, 0.7, 0.68, 0.59, 0.47, 0.45, 0.21, 0.19, 0.11, 0.04)


class Split(NamedTuple):
    """Differences and labels to fit to and to test on, and the metric behind them."""

    train: FloatArray
    noisy_train: NDArray[np.int64]
    true_train: NDArray[np.int64]
    test: FloatArray
    noisy_test: NDArray[np.int64]
    true_test: NDArray[np.int64]
    metric: cf.Metric


def paper_pairs(
    n_train: int,
    n_test: int = N_TEST,
    *,
    noise: str | None = "logistic",
    wrong_share: float = 0.1,
    noise_scale: float | None = None,
    threshold: float = 1.3,
    seed: int,
) -> Split:
    """Generate the paper's pairs, d = 10 and rank 5, in a random orientation.

    A `noise_scale` replaces `wrong_share`.
    """
    data = cf.datasets.make_pairs(
        n_train + n_test,
        10,
        metric_eigenvalues=_METRIC_EIGENVALUES,
        covariance_eigenvalues=_COVARIANCE_EIGENVALUES,
        threshold=threshold,
        noise=noise,
        noise_scale=noise_scale,
        wrong_share=None if noise is None or noise_scale is not None else wrong_share,
        random_state=seed,
    )
    return split_pairs(data, n_train)


def split_pairs(data: cf.datasets.LabelledPairs, n_train: int) -> Split:
    """Fit to the first `n_train` pairs and test on the rest; the paper works on differences."""
    differences = data.pairs[:, 0] - data.pairs[:, 1]
    train, test = slice(n_train), slice(n_train, None)
    return Split(
        differences[train], data.labels[train], data.true_labels[train],
        differences[test], data.labels[test], data.true_labels[test], data.metric,
    )  # fmt: skip


def fit(learner: cf.LinearMetricLearner, X: Any, y: Any) -> cf.LinearMetricLearner:
    """Fit without a warning of separable labels or an unproven optimum: accuracy and gap say what was reached."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        learner.fit(X, y)
    return learner


def fit_penalised(
    learner: cf.LinearMetricLearner, X: Any, y: Any, *, cv: Any, factors: Sequence[float] = _FACTORS, n_rows: int = 0
) -> cf.LinearMetricLearner:
    """Choose alpha = factor / sqrt(n) by cross-validated log-loss, and fit with it.

    The factor is chosen on the first `n_rows` rows, where that is not 0, and used with all.
    """
    part = slice(n_rows or None)
    scale = {n: 1.0 / np.sqrt(n) for n in (len(X[part]), len(X))}
    alphas = [factor * scale[len(X[part])] for factor in factors]
    search = GridSearchCV(learner, {"alpha": alphas}, scoring="neg_log_loss", cv=cv, refit=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search.fit(X[part], y[part])
    alpha = factors[search.best_index_] * scale[len(X)]
    return fit(clone(learner).set_params(alpha=alpha), X, y)


def accuracies(metric: cf.Metric, split: Split) -> dict[str, float]:
    """Return the accuracies that `ACCURACIES` names."""
    train, test = (np.where(metric.margin(rows) >= 0, 1, -1) for rows in (split.train, split.test))
    pairs = ((train, split.noisy_train), (train, split.true_train), (test, split.noisy_test), (test, split.true_test))
    return {name: float(np.mean(called == label)) for name, (called, label) in zip(ACCURACIES, pairs, strict=True)}


def relative_errors(learned: cf.Metric, true: cf.Metric) -> dict[str, float]:
    """Return the relative spectral and Frobenius error of M / tau."""
    if learned.known_threshold == 0.0:  # as where a penalty leaves nothing of M
        return {"spectral_error": math.inf, "frobenius_error": math.inf}
    target = true.matrix / true.known_threshold
    error = learned.matrix / learned.known_threshold - target
    return {
        "spectral_error": float(np.linalg.norm(error, 2) / np.linalg.norm(target, 2)),
        "frobenius_error": float(np.linalg.norm(error) / np.linalg.norm(target)),
    }


def outcome(learner: cf.LinearMetricLearner, split: Split) -> dict[str, Any]:
    """Say how well a fit recovered labels and metric, and what it is."""
    metric = learner.metric_
    return {
        **accuracies(metric, split),
        **relative_errors(metric, split.metric),
        "eigenvalues": (metric.eigenvalues / (metric.known_threshold or math.nan)).tolist(),
        "true_eigenvalues": (split.metric.eigenvalues / split.metric.known_threshold).tolist(),
        "alpha": learner.alpha,
        "rank": metric.rank,
        "gap": learner.certificate_.gap,
    }


def recovery(n_train: int, noise: str | None, wrong_share: float, model: str, seed: int) -> dict[str, Any]:
    """Fit one model to the paper's pairs and say how well it recovered them."""
    split = paper_pairs(n_train, noise=noise, wrong_share=wrong_share, seed=seed)
    return outcome(fit(cf.LinearMetricLearner(model, **PAPER), split.train, split.noisy_train), split)
