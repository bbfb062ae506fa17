"""Experiments 6 and 13: how many wrong labels the model tolerates, and what rare classes do to it."""

from __future__ import annotations

from typing import Any

import numpy as np

import closefar as cf
from paper.sections import Panel, Section, compare, comparison, figure, line, panel, percentage, section, series
from paper.synthetic import ACCURACIES, PAPER, fit, paper_pairs, recovery
from paper.trials import Run

_SHARES = (0.0, *np.round(np.arange(0.02, 0.49, 0.02), 2).tolist(), 0.49, 0.495, 0.499)
_WHY_50 = (
    "At exactly 50%, labels are coin tosses and nothing can be learned. The paper's point therefore stands for a "
    "large but finite noise, and the accuracy depends on where between 49 and 50% it lies. This row is for 49.5%."
)

_CLASSES = {"all": "all pairs", "close": "close pairs", "far": "far pairs"}
_PARTS = {"train": "training", "test": "test"}
_WORST = (
    "The lowest accuracy over τ* occurs where the class is rare: it rests on few test pairs and depends on the "
    "orientation, of which the paper uses a single one."
)
_SHARE = "The share depends on the orientation of M* relative to the covariance."


def noise_level(run: Run) -> Section:
    """Fit the logistic model to 18,000 pairs with more and more wrong labels."""
    shares = run.choose((0.0, 0.1, 0.2, 0.3, 0.4, 0.45, 0.48, 0.495), _SHARES)
    settings = [{"n_train": 18_000, "noise": "logistic", "wrong_share": share, "model": "logistic"} for share in shares]
    found = dict(zip(shares, run.repeat(recovery, settings, run.choose(3, 10)), strict=True))
    accuracy = {share: [trial["test_true"] for trial in trials] for share, trials in found.items()}
    means = [float(np.mean(accuracy[share])) for share in shares]
    most = max(share for share, mean in zip(shares, means, strict=True) if mean >= 0.95 or share == 0.0)
    why_40 = (
        "The paper gives an approximate value from a plot for one orientation: “for around 40% mislabeling, around "
        f"95%”. Our mean over orientations is at least 95% up to {percentage(most, 0)} wrong labels."
    )
    curves = []
    for measure, word in ACCURACIES.items():
        values = np.array([[trial[measure] for trial in found[share]] for share in shares])
        mean, spread = values.mean(axis=1), values.std(axis=1)
        curves.append(series(word, shares, mean, low=mean - spread, high=mean + spread, style="both"))
    curves.append(series("1 − share of wrong labels", (0.0, 0.5), (1.0, 0.5)))
    return section(
        f"Accuracy on true test labels is {percentage(np.mean(accuracy[0.4]), 1)} with 40% wrong training labels, and "
        f"{percentage(np.mean(accuracy[0.495]), 1)} with 49.5%.",
        "Logistic noise and model, 18,000 training and 5,000 test pairs. The noise scale is chosen to give the stated "
        "share of wrong labels.",
        tables=[
            comparison(
                "Test accuracy on true labels",
                [
                    compare("40% wrong labels", accuracy[0.4], 0.95, why_40, percent=True),
                    compare("“50%” wrong labels", accuracy[0.495], 0.65, _WHY_50, percent=True),
                ],
            )
        ],
        figures=[
            figure(
                "noise-level",
                "Accuracy against the share of wrong labels.",
                [
                    panel(
                        "",
                        "share of wrong labels",
                        "accuracy (share)",
                        curves,
                        [line("paper at 40%: 0.95", 0.95), line("paper at “50%”: 0.65", 0.65)],
                    )
                ],
            )
        ],
    )


def unbalanced_trial(threshold: float, n_train: int, n_test: int, seed: int) -> dict[str, Any]:
    """Fit at a threshold, with the noise that makes 10% of the labels wrong at the paper's 1.3."""
    at_default = paper_pairs(n_train, n_test, noise=None, seed=seed)
    margins = at_default.metric.squared_distance(at_default.train) - at_default.metric.known_threshold
    scale = cf.datasets.solve_noise_scale(margins, "logistic", 0.1)
    split = paper_pairs(n_train, n_test, noise_scale=scale, threshold=threshold, seed=seed)
    learner = fit(cf.LinearMetricLearner(**PAPER), split.train, split.noisy_train)
    found: dict[str, Any] = {
        "share_close": float(np.mean(split.true_train == -1)),
        "labelled_close": float(np.mean(split.noisy_train == -1)),
    }
    for part, rows, truth in (("train", split.train, split.true_train), ("test", split.test, split.true_test)):
        right = learner.predict(rows) == truth
        for name, chosen in (("all", truth != 0), ("close", truth == -1), ("far", truth == 1)):
            found[f"{part}_{name}"] = float(np.mean(right[chosen]))
    return found


def unbalanced(run: Run) -> Section:
    """Move the threshold until nearly every pair is far, or close."""
    thresholds = np.round(np.linspace(0.1, 6.1, run.choose(7, 30)), 3).tolist()
    n_train, n_test = run.choose((10_000, 5_000), (40_000, 20_000))
    settings = [{"threshold": threshold, "n_train": n_train, "n_test": n_test} for threshold in thresholds]
    found = run.repeat(unbalanced_trial, settings, run.choose(2, 5))

    def worst(key: str) -> list[float]:
        return [min(trials[index][key] for trials in found) for index in range(len(found[0]))]

    rows = [
        compare("labelled close at τ* = 0.1", _at(found[0], "labelled_close"), 0.05, _SHARE, percent=True),
        compare("labelled close at τ* = 6.1", _at(found[-1], "labelled_close"), 0.98, _SHARE, percent=True),
        compare("lowest test accuracy on far pairs", worst("test_far"), 0.93, _WORST, percent=True),
        compare("lowest test accuracy on close pairs", worst("test_close"), 0.78, _WORST, percent=True),
    ]
    least = np.min([np.mean(_at(trials, "test_all")) for trials in found])
    return section(
        f"Overall accuracy on true test labels is at least {percentage(least, 1)} at every class balance. The rarer "
        f"class suffers: its lowest accuracy, averaged over orientations, is {percentage(rows[2]['ours'], 1)} for far "
        f"and {percentage(rows[3]['ours'], 1)} for close pairs.",
        f"{n_train:,} training and {n_test:,} test pairs, logistic noise and model, {len(thresholds)} thresholds τ* "
        "from 0.1 to 6.1. The noise scale is the one that makes 10% of the labels wrong at τ* = 1.3. "
        "Accuracy is measured on true labels.",
        tables=[comparison("What the paper states", rows)],
        figures=[
            figure(
                "unbalanced",
                "Accuracy on true labels by class, against the share of close pairs.",
                [_panel(found, part) for part in _PARTS],
            )
        ],
    )


def _at(trials: list[dict[str, Any]], key: str) -> list[float]:
    return [each[key] for each in trials]


def _panel(found: list[list[dict[str, Any]]], part: str) -> Panel:
    share_close = [np.mean(_at(trials, "share_close")) for trials in found]
    curves = [
        series(word, share_close, [np.mean(_at(trials, f"{part}_{name}")) for trials in found], style="both")
        for name, word in _CLASSES.items()
    ]
    lines = [line("paper, lowest for far pairs: 0.93", 0.93), line("paper, lowest for close pairs: 0.78", 0.78)]
    return panel(
        f"{_PARTS[part]} pairs", "share of close pairs", "accuracy (share)", curves, lines if part == "test" else []
    )
