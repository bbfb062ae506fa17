"""Experiment 5: accuracy against the number of training pairs."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from closefar.experiments.config import Config
from closefar.experiments.result import (
    Panel,
    Section,
    compare,
    comparison,
    figure,
    line,
    panel,
    percentage,
    section,
    series,
)
from closefar.experiments.synthetic import ACCURACIES, NOISES, recovery

TITLE = "Accuracy against sample size"

_SIZES = (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 20_000)
_FEW, _MANY = 100, 10_000
_WHY_FEW = "With 100 pairs, most samples, but not all, can be fitted without an error."
_WHY_MANY = "The paper describes its plot as “indistinguishable”. A difference remains; it decreases roughly as 1/N."


def run(config: Config) -> Section:
    """Fit the logistic model to more and more pairs under each of the five noises."""
    sizes = config.choose((50, _FEW, 1_000, _MANY), _SIZES)
    n_trials = config.choose(3, 20)
    cases = list(product(NOISES, sizes))
    settings = [{"n_train": size, "noise": noise, "wrong_share": 0.1, "model": "logistic"} for noise, size in cases]
    found = dict(zip(cases, config.repeat(recovery, settings, n_trials), strict=True))
    few, many = found["logistic", _FEW], found["logistic", _MANY]
    overfit = [trial["train_true"] - trial["test_true"] for trial in many]
    return section(
        f"With 100 training pairs, accuracy is {_mean(few, 'train_noisy')} on the noisy training labels and "
        f"{_mean(few, 'test_true')} on the true test labels; with 10,000 pairs, it is {_mean(many, 'test_true')} on "
        "the true test labels.",
        f"The paper's synthetic data, logistic model, 10% wrong labels, {n_trials} trials per size, 5,000 test pairs.",
        tables=[
            comparison(
                "What the paper states about its figure (logistic noise)",
                [
                    compare(
                        "training accuracy, noisy labels, at 100 pairs",
                        [trial["train_noisy"] for trial in few],
                        1.0,
                        _WHY_FEW,
                        percent=True,
                    ),
                    compare(
                        "training minus test accuracy, true labels, at 10,000 pairs",
                        overfit,
                        0.0,
                        _WHY_MANY,
                        percent=True,
                    ),
                ],
            )
        ],
        figures=[
            figure(
                "sample-size",
                "Accuracy of the logistic model against the number of training pairs, under five kinds of noise.",
                [_panel(found, noise, sizes) for noise in NOISES],
            )
        ],
    )


def _mean(trials: list[dict[str, Any]], measure: str) -> str:
    return percentage(np.mean([trial[measure] for trial in trials]), 1)


def _panel(found: dict[tuple[str, int], list[dict[str, Any]]], noise: str, sizes: tuple[int, ...]) -> Panel:
    curves = []
    for measure, word in ACCURACIES.items():
        values = np.array([[trial[measure] for trial in found[noise, size]] for size in sizes])
        mean, spread = values.mean(axis=1), values.std(axis=1)
        curves.append(series(word, sizes, mean, low=mean - spread, high=mean + spread, style="both"))
    lines = [line("paper, training, up to 100 pairs: 1", 1.0)] if noise == "logistic" else []
    return panel(NOISES[noise], "training pairs", "accuracy (share)", curves, lines, log_x=True)
