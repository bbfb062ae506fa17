"""Experiment 14: the same fit in other units, predicted and confirmed."""

from __future__ import annotations

from typing import Any

import numpy as np

import closefar as cf
from paper.sections import Section, grid, percentage, section
from paper.synthetic import PAPER, FloatArray, paper_pairs
from paper.trials import Run

_CHANGES = ("columns in other units, 1e-9 to 1e9", "columns mixed", "columns mixed, then in other units")
# The penalty follows the unit of each column, and not mixtures of columns.
_CASES = [*((change, 0.0) for change in _CHANGES), (_CHANGES[0], 0.003)]


def trial(change: str, alpha: float, n_train: int, seed: int) -> dict[str, Any]:
    """Fit in both units, and compare the fit in the new ones with what `change_units` predicts."""
    split = paper_pairs(n_train, seed=seed)
    U = _change(change, np.random.default_rng(seed))
    settings = {**PAPER, "alpha": alpha, "tol": 1e-9}
    learner = cf.LinearMetricLearner(**settings).fit(split.train, split.noisy_train)
    refitted = cf.LinearMetricLearner(**settings).fit(split.train @ U.T, split.noisy_train).metric_
    predicted = learner.metric_.change_units(U)
    probabilities = refitted.probability_far(split.test @ U.T) - learner.metric_.probability_far(split.test)
    # Entries of M differ by the square of the units' range, so they are compared where they are of one size.
    size = 1.0 / np.sqrt(np.mean((split.train @ U.T) ** 2, axis=0))
    scaled = [metric.matrix / np.outer(size, size) for metric in (refitted, predicted)]
    return {
        "probability": float(np.max(np.abs(probabilities))),
        "matrix": float(np.linalg.norm(scaled[0] - scaled[1]) / np.linalg.norm(scaled[1])),
        "threshold": abs(refitted.known_threshold - predicted.known_threshold) / predicted.known_threshold,
        "agree": float(np.mean((refitted.margin(split.test @ U.T) >= 0) == (learner.metric_.margin(split.test) >= 0))),
    }


def units(run: Run) -> Section:
    """Change the units in three ways; with a penalty, those of each column."""
    n_trials = run.choose(2, 10)
    settings = [{"change": change, "alpha": alpha, "n_train": 15_000} for change, alpha in _CASES]
    found = dict(zip(_CASES, run.repeat(trial, settings, n_trials), strict=True))

    def largest(case: tuple[str, float], key: str) -> str:
        return f"{max(each[key] for each in found[case]):.0e}"

    rows = [
        [
            change,
            f"{alpha:g}",
            *(largest((change, alpha), key) for key in ("probability", "matrix", "threshold")),
            percentage(min(each["agree"] for each in found[change, alpha])),
        ]
        for change, alpha in _CASES
    ]
    worst = max(each["probability"] for trials in found.values() for each in trials)
    return section(
        "Fitting in other units gives the metric that the change of units predicts: the probabilities of test pairs "
        f"differ by at most {worst:.0e}.",
        "The paper's section “Invariance to Changes in Unit of Input”: the optimum for z′ = Uz is U⁻ᵀMU⁻¹ with the "
        "same τ. The metric fitted in the original units is converted with change_units(U), and the model is refitted "
        f"to Uz. {n_trials} trials per row, 15,000 pairs, 10% wrong labels; the table shows the largest difference. "
        "The penalty follows the unit of each column, but not mixtures of columns.",
        tables=[
            grid(
                "Largest difference between the refitted and the predicted metric",
                ["change of units", "penalty α", "P(far)", "M, relative", "τ, relative", "same predictions"],
                rows,
            )
        ],
    )


def _change(name: str, rng: np.random.Generator) -> FloatArray:
    mixing, scaling = np.eye(10), np.eye(10)
    if "mixed" in name:
        mixing = rng.standard_normal((10, 10)) + 3.0 * np.eye(10)
    if "other units" in name:
        scaling = np.diag(10.0 ** rng.uniform(-9.0, 9.0, size=10))
    change: FloatArray = scaling @ mixing
    return change
