"""Pairs that were rated on a scale of levels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import closefar as cf
from peers.works import Arrays, Data, Measure, Setting
from peers.works.shapes import SHAPES, relative_error

TITLE = "Levels"

N_TEST = 4_000
N_LEVELS = 5


def _setting(name: str, n: int, d: int = 10, quick: bool = False, **parameters: Any) -> Setting:
    parameters |= {"n": n, "n_features": d, **SHAPES[d]}
    rank, careless = len(SHAPES[d]["metric_eigenvalues"]), "; one rating in eight is drawn at random"
    description = (
        f"{n:,} pairs with {d} columns, a metric of rank {rank}{careless if 'flip_rate' in parameters else ''}."
    )
    return Setting("levels", f"{N_LEVELS} levels, {name}", parameters, quick, description=description)


SETTINGS = (
    _setting("d=10", 4_000, quick=True),
    _setting("10 % wrong at random, d=10", 4_000, flip_rate=0.1),
    _setting("400 pairs, d=10", 400),
    _setting("d=20", 5_000, 20),
)

MEASURES = (
    Measure("true_accuracy", "accuracy, true levels", True, lambda value: f"{100 * value:.2f}"),
    Measure("noisy_accuracy", "accuracy, noisy levels", True, lambda value: f"{100 * value:.2f}"),
    Measure("mean_error", "mean absolute error, true levels", False, lambda value: f"{value:.4f}"),
    Measure("metric_error", "error of M/tr M", False, lambda value: f"{value:.3f}"),
    Measure("log_loss", "log-loss", False, lambda value: f"{value:.4f}"),
)


def make(setting: Setting, seed: int, options: Mapping[str, Any]) -> Data:
    """Draw the rated pairs to learn from and new ones."""
    parameters = dict(setting.parameters)
    n = parameters.pop("n")
    made = cf.datasets.make_judgements(n + N_TEST, **parameters, kind="levels", n_levels=N_LEVELS, random_state=seed)
    pairs = np.asarray(made.tuples)
    return Data(
        train={"pairs": pairs[:n], "levels": made.labels[:n]},
        asked={"pairs": pairs[n:]},
        truth={
            "levels": made.labels[n:],
            "true_levels": made.true_labels[n:],
            "metric": made.metric.matrix / np.trace(made.metric.matrix),
        },
    )


def figures(data: Data, answers: Arrays) -> dict[str, float]:
    """Return accuracies, the mean absolute error, the error of M / tr M, and the log-loss.

    A peer gives scores, thresholds on them, and the probability of each level.  The level without noise is the one
    whose thresholds the score lies between; the level that a person will say is the likeliest one.
    """
    truth = data.truth
    level = np.searchsorted(answers["thresholds"], answers["pairs.farness"], side="right")
    probability = answers["pairs.probability"].reshape(len(level), -1)
    given = np.take_along_axis(probability, truth["levels"][:, None], axis=1)
    found = {
        "true_accuracy": float(np.mean(level == truth["true_levels"])),
        "noisy_accuracy": float(np.mean(np.argmax(probability, axis=1) == truth["levels"])),
        "mean_error": float(np.mean(np.abs(level - truth["true_levels"]))),
        "log_loss": float(-np.mean(np.log(np.clip(given, 1e-12, 1.0)))),
    }
    if "metric" in answers:
        found["metric_error"] = relative_error(answers["metric"] / np.trace(answers["metric"]), truth["metric"])
    return found
