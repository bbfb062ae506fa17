"""Pairs with close/far labels: the paper's synthetic data, where the metric behind the labels is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import closefar as cf
from peers.works import Arrays, Data, Measure, Setting

TITLE = "Pairs with close/far labels (the paper's synthetic data)"

PAPER = {
    "metric_eigenvalues": (0.32, 0.89, 0.59, 0.13, 0.14),
    "covariance_eigenvalues": (0.73, 0.70, 0.68, 0.59, 0.47, 0.45, 0.21, 0.19, 0.11, 0.04),
    "threshold": 1.3,
}
N_TEST = 5_000


def _paper(name: str, noise: str | None, quick: bool = False) -> Setting:
    parameters = {"n_pairs": 15_000, "n_features": 10, "noise": noise, **PAPER}
    wrong = "no label is wrong" if noise is None else "10% of the labels are wrong"
    description = f"The paper's setting: 15,000 pairs with 10 columns, a metric of rank 5; {wrong}."
    return Setting("pairs", f"{name}, d=10", parameters, quick, description=description)


def _larger(n_pairs: int, d: int, rank: int, smaller: str = "", quick: bool = False) -> Setting:
    parameters = {"n_pairs": n_pairs, "n_features": d, "rank": rank, "noise": "logistic"}
    description = (
        f"{n_pairs:,} pairs with {d} columns, a metric of rank {rank}; the eigenvalues of metric and covariance are "
        "uniform, the threshold is the median, and 10% of the labels are wrong."
    )
    return Setting("pairs", f"logistic noise, d={d}", parameters, quick, smaller, description)


SETTINGS = (
    _larger(300, 5, 3, quick=True),
    _paper("no noise", None),
    _paper("logistic noise", "logistic", quick=True),
    _paper("flips", "flips"),
    _larger(60_000, 30, 10, "logistic noise, d=10"),
    _larger(60_000, 100, 30, "logistic noise, d=30"),
    _larger(20_000, 768, 10, "logistic noise, d=100"),
)

MEASURES = (
    Measure("true_accuracy", "accuracy on true labels, %", True, lambda value: f"{100 * value:.2f}"),
    Measure("noisy_accuracy", "accuracy on noisy labels, %", True, lambda value: f"{100 * value:.2f}"),
    Measure("spectral_error", "error of M/τ", False, lambda value: f"{value:.3f}"),
    Measure("log_loss", "log-loss", False, lambda value: f"{value:.4f}"),
)


def make(setting: Setting, seed: int, options: Mapping[str, Any]) -> Data:
    """Draw the pairs to learn from and 5,000 new ones."""
    parameters = dict(setting.parameters)
    n_train = parameters.pop("n_pairs")
    share = None if parameters["noise"] is None else 0.1
    made = cf.datasets.make_pairs(n_train + N_TEST, **parameters, wrong_share=share, random_state=seed)
    return Data(
        train={"pairs": made.pairs[:n_train], "labels": made.labels[:n_train]},
        asked={"pairs": made.pairs[n_train:]},
        truth={
            "labels": made.labels[n_train:],
            "true_labels": made.true_labels[n_train:],
            "metric": made.metric.matrix / made.metric.known_threshold,
        },
    )


def best_threshold(farness: np.ndarray, labels: np.ndarray) -> float:
    """Return the threshold at and above which "far" agrees with most labels; halfway between the scores around it."""
    order = np.argsort(farness, kind="stable")
    scores, signs = farness[order], labels[order]
    # Calling the first k pairs close and the others far: the close labels among the first, the far ones after.
    right = (
        np.concatenate([[0], np.cumsum(signs < 0)]) + (signs > 0).sum() - np.concatenate([[0], np.cumsum(signs > 0)])
    )
    split = np.concatenate([[True], scores[1:] > scores[:-1], [True]])
    k = int(np.argmax(np.where(split, right, -1)))
    if k == 0 or k == len(scores):
        return float(scores[0]) if k == 0 else float(np.nextafter(scores[-1], np.inf))
    return float((scores[k - 1] + scores[k]) / 2.0)


def spectral_norm(matrix: np.ndarray) -> float:
    """Return the largest singular value, infinite where the matrix is not finite."""
    return float(np.linalg.norm(matrix, 2)) if np.isfinite(matrix).all() else np.inf


def figures(data: Data, answers: Arrays) -> dict[str, float]:
    """Return accuracies, the error of M / tau, and the log-loss, as far as the peer gives what they need.

    The threshold is the peer's own if it has one, and otherwise the best on the training labels.
    """
    found: dict[str, float] = {}
    truth = data.truth
    if "pairs.farness" in answers:
        chosen = best_threshold(answers["train_pairs.farness"], data.train["labels"])
        own = float(answers.get("threshold", chosen))
        for suffix, threshold in (("", own), ("_chosen", chosen)):
            called = np.where(answers["pairs.farness"] >= threshold, 1, -1)
            found[f"true_accuracy{suffix}"] = float(np.mean(called == truth["true_labels"]))
            found[f"noisy_accuracy{suffix}"] = float(np.mean(called == truth["labels"]))
        if "metric" in answers:
            error = answers["metric"] / own - truth["metric"] if own > 0 else np.full_like(truth["metric"], np.inf)
            found["spectral_error"] = spectral_norm(error) / spectral_norm(truth["metric"])
    if "pairs.probability" in answers:
        far = np.clip(answers["pairs.probability"], 1e-12, 1.0 - 1e-12)
        found["log_loss"] = float(-np.mean(np.log(np.where(truth["labels"] > 0, far, 1.0 - far))))
    return found
