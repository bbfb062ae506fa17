"""Judgements of several annotators: strict and lenient ones, and some who answer at random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import closefar as cf
from peers.works import Arrays, Data, Measure, Setting
from peers.works.shapes import SHAPES, relative_error

TITLE = "Annotators"

N_TEST = 4_000
N_ANNOTATORS = 20


def _setting(name: str, n: int, n_repeats: int, description: str, quick: bool = False, **parameters: Any) -> Setting:
    parameters |= {"n": n, "n_repeats": n_repeats, **SHAPES[10]}
    pairs = f"{n:,} judgements of {n // n_repeats:,} pairs with 10 columns by {N_ANNOTATORS} annotators: "
    return Setting("annotators", name, parameters, quick, description=pairs + description)


_STRICT = {
    "strictness_spread": 0.4,
    "n_random_annotators": 4,
    "description": "strict and lenient ones, and four who answer at random.",
}
_CARELESS = {
    "annotator_flip_rates": np.linspace(0.0, 0.35, N_ANNOTATORS),
    "n_random_annotators": 2,
    "description": "equally strict ones with flip rates from 0 to 35%, and two who answer at random.",
}
SETTINGS = (
    _setting("strict and random ones, one per pair", 4_000, 1, **_STRICT),
    _setting("strict and random ones, five per pair", 6_000, 5, **_STRICT, quick=True),
    _setting("careless ones, one per pair", 4_000, 1, **_CARELESS),
    _setting("careless ones, five per pair", 6_000, 5, **_CARELESS),
)

MEASURES = (
    Measure("true_accuracy", "accuracy, true labels", True, lambda value: f"{100 * value:.2f}"),
    Measure("spectral_error", "error of M/τ", False, lambda value: f"{value:.3f}"),
    Measure("metric_error", "error of M/tr M", False, lambda value: f"{value:.3f}"),
    Measure("named", "random annotators named (F1)", True, lambda value: f"{value:.2f}"),
)


def make(setting: Setting, seed: int, options: Mapping[str, Any]) -> Data:
    """Draw judgements, and new pairs with their true labels."""
    parameters = dict(setting.parameters)
    n, n_repeats = parameters.pop("n"), parameters.pop("n_repeats")
    more = N_TEST * n_repeats
    made = cf.datasets.make_judgements(
        n + more, 10, n_repeats=n_repeats, n_annotators=N_ANNOTATORS, **parameters, random_state=seed
    )
    if made.panel is None:
        raise ValueError("annotators need a panel.")
    pairs, unit = np.asarray(made.tuples), made.metric.known_threshold
    return Data(
        train={
            "pairs": pairs[:n],
            "labels": made.labels[:n],
            "annotators": made.panel.who[:n],
            "pair_of": np.arange(n) // n_repeats,
        },
        asked={"pairs": pairs[n::n_repeats]},
        truth={
            "true_labels": made.true_labels[n::n_repeats],
            "metric": made.metric.matrix / unit,
            "at_random": made.panel.at_random,
        },
    )


def figures(data: Data, answers: Arrays) -> dict[str, float]:
    """Return the accuracy on true labels, errors of the metric, and F1 of the annotators named as random."""
    truth = data.truth
    target, metric, threshold = truth["metric"], answers["metric"], float(answers["threshold"])
    called = np.where(answers["pairs.farness"] >= threshold, 1, -1)
    found = {
        "true_accuracy": float(np.mean(called == truth["true_labels"])),
        "metric_error": relative_error(metric / np.trace(metric), target / np.trace(target)),
    }
    if threshold > 0:
        found["spectral_error"] = relative_error(metric / threshold, target)
    if "named" in answers:
        named = answers["named"].astype(bool)
        right = np.sum(named & truth["at_random"])
        found["named"] = float(2.0 * right / max(int(named.sum() + truth["at_random"].sum()), 1))
    return found
