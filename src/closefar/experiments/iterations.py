"""Experiment 4: accuracy and loss against passes over the data, of the paper's gradient descent and our solver."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from time import perf_counter
from typing import Any

import numpy as np

import closefar as cf
from closefar.experiments import result
from closefar.experiments.config import Config
from closefar.experiments.fitting import PAPER, fit
from closefar.experiments.gradient_descent import descend
from closefar.experiments.synthetic import ACCURACIES, N_TEST, NOISES, Split, accuracies, paper_pairs

TITLE = "Accuracy and loss against iterations"

N_TRAIN = 15_000
WRONG_SHARE = 0.1
MODEL = cf.noise.Logistic()

# Enough for descent to pass the loss at the truth, which the paper's does at iteration 700.
_N_SHORT = 3_000
_N_POINTS = 60

_PAPER_TRUTH_LOSS = 0.23
_PAPER_ITERATIONS = 700
_PAPER_FLIPS_LOSS = 0.5

_PAPER_PLATEAUS = [
    result.line("paper, noisy labels: near 0.90", 0.90),
    result.line("paper, true labels: about 0.99", 0.99),
]
_PAPER_LOSSES = {
    "logistic": [
        result.line("paper, loss at the true metric: around 0.23", _PAPER_TRUTH_LOSS),
        result.line("paper, iterations to reach it: around 700", _PAPER_ITERATIONS, "x"),
    ],
    "flips": [result.line("paper, noisy labelling: around 0.5", _PAPER_FLIPS_LOSS)],
}
_OURS = ("test_noisy", "test_true")


def run(config: Config) -> result.Section:
    """Follow both ways to the optimum for five noises, and for logistic noise in further orientations."""
    n_iter = config.choose(_N_SHORT, 30_000)
    long = config.repeat(trial, [{"noise": noise, "n_train": N_TRAIN, "n_iter": n_iter} for noise in NOISES], 1)
    by_noise = {noise: trials[0] for noise, trials in zip(NOISES, long, strict=True)}
    short = {"noise": "logistic", "n_train": N_TRAIN, "n_iter": _N_SHORT}
    (logistic,) = config.repeat(trial, [short], config.choose(2, 5))
    return result.section(
        _headline(by_noise["logistic"]),
        f"Logistic model, {N_TRAIN:,} training and {N_TEST:,} test pairs, {result.percentage(WRONG_SHARE, 0)} wrong "
        f"labels. Gradient descent with learning rate 0.5 and decay 0.95, {n_iter:,} iterations.",
        tables=[_comparison(by_noise, logistic), _ends(by_noise)],
        figures=[_accuracy_figure(by_noise), _loss_figure(by_noise)],
        notes=_NOTES,
    )


def trial(noise: str, n_train: int, n_iter: int, seed: int) -> dict[str, Any]:
    """Run descent and our solver on the same pairs."""
    split = paper_pairs(n_train, noise=noise, wrong_share=WRONG_SHARE, seed=seed)
    truth_loss = _truth_loss(split) if noise == "logistic" else None
    ours = _solver_path(split)
    return {**_descent(split, n_iter, seed, truth_loss), "truth_loss": truth_loss, "ours": ours}


def _descent(split: Split, n_iter: int, seed: int, truth_loss: float | None) -> dict[str, Any]:
    """Record descent at iterations evenly spaced in their logarithm, and when it reaches the loss at the truth."""
    recorded = set(np.unique(np.geomspace(1, n_iter, _N_POINTS).round().astype(int)).tolist())
    history: dict[str, Any] = {name: [] for name in ("iteration", "loss", *ACCURACIES)}
    reached, seconds, started = None, 0.0, perf_counter()
    for each in descend(split.train, split.noisy_train, MODEL, n_iter=n_iter, seed=seed):
        if reached is None and truth_loss is not None and each.loss <= truth_loss:
            reached = each.iteration
        if each.iteration in recorded:
            seconds += perf_counter() - started
            metric = cf.Metric.from_factor(each.factor, each.threshold, MODEL)
            _append(history, iteration=each.iteration, loss=each.loss, **accuracies(metric, split))
            started = perf_counter()
    return {**history, "reached": reached, "seconds": seconds}


def _solver_path(split: Split) -> dict[str, Any]:
    """Let our solver take one step more each time, until it has proven the optimum."""
    path: dict[str, Any] = {name: [] for name in ("passes", "loss", *ACCURACIES)}
    for max_iter in count(1):
        started = perf_counter()
        learner = fit(cf.LinearMetricLearner(MODEL, max_iter=max_iter, **PAPER), split.train, split.noisy_train)
        seconds, certificate = perf_counter() - started, learner.certificate_
        scores = accuracies(learner.metric_, split)
        _append(path, passes=certificate.n_passes, loss=certificate.loss, **scores)
        if certificate.converged or learner.n_iter_ < max_iter:
            break
    return {**path, "gap": certificate.gap, "converged": certificate.converged, "seconds": seconds}


def _append(columns: dict[str, Any], **row: float) -> None:
    for name, value in row.items():
        columns[name].append(value)


def _truth_loss(split: Split) -> float:
    """Return R(M*/s, tau*/s) on the training pairs, with the scale s that their noise was made with."""
    margins = split.metric.margin(np.vstack([split.train, split.test]))
    scale = cf.datasets.solve_noise_scale(margins, MODEL, WRONG_SHARE)
    return float(np.mean(MODEL.neg_log_cdf(split.noisy_train * margins[: len(split.train)] / scale)))


def _passes_to_truth(found: dict[str, Any]) -> float | None:
    """Return the passes after which our solver is at the loss of the truth or below."""
    steps = zip(found["ours"]["passes"], found["ours"]["loss"], strict=True)
    return next((passes for passes, loss in steps if loss <= found["truth_loss"]), None)


def _excess(found: dict[str, Any]) -> float:
    """Return how far above our loss descent ends."""
    return float(found["loss"][-1] - found["ours"]["loss"][-1])


def _headline(found: dict[str, Any]) -> str:
    ours, reached, passes = found["ours"], found["reached"], _passes_to_truth(found)
    descent = "never reaches" if reached is None else f"needs {reached:,} passes over the data to reach"
    solver = "never does" if passes is None else f"needs {passes:.0f}"
    return (
        f"Under logistic noise, gradient descent {descent} the loss of the true metric; our solver {solver}. "
        f"After {ours['passes'][-1]:.0f} passes our solver has proven a gap to the minimum of at most "
        f"{ours['gap']:.0e}; after {found['iteration'][-1]:,} passes, gradient descent is {_excess(found):.0e} above "
        "it."
    )


def _comparison(by_noise: dict[str, dict[str, Any]], logistic: Sequence[dict[str, Any]]) -> result.Comparison:
    reached = [each["reached"] for each in logistic if each["reached"] is not None]
    passes = [each for each in map(_passes_to_truth, logistic) if each is not None]
    rows = [
        result.compare(
            "loss at (M*/s, τ*/s), logistic noise", [each["truth_loss"] for each in logistic], _PAPER_TRUTH_LOSS,
            "The paper gives an approximate value (“around”), read from a figure.",
        ),
        result.compare(
            "minimum loss under noisy labelling", by_noise["flips"]["ours"]["loss"][-1], _PAPER_FLIPS_LOSS,
            "The paper gives an approximate value (“around”), read from a figure; ours is the proven minimum on this "
            "sample.",
        ),
    ]  # fmt: skip
    if reached:
        rows.append(
            result.compare(
                "descent: iterations to the loss at (M*/s, τ*/s)", reached, _PAPER_ITERATIONS,
                "The paper gives an approximate value (“around”) and specifies neither the initial A nor how often the "
                "learning rate decays; a smaller initial A needs more iterations, a larger one fewer.",
            )
        )  # fmt: skip
    if passes:
        rows.append(result.compare("our solver: passes to the same loss", passes, None, ""))
    rows.append(
        result.compare(
            "our solver: passes until the gap is proven", [each["ours"]["passes"][-1] for each in logistic], None, ""
        )
    )
    rows.append(result.compare("our solver: proven gap", [each["ours"]["gap"] for each in logistic], None, ""))
    return result.comparison("Loss history as described in the paper", rows)


def _ends(by_noise: dict[str, dict[str, Any]]) -> result.Grid:
    rows = [
        [
            NOISES[noise], f"{each['ours']['passes'][-1]:.1f}", f"{each['ours']['seconds']:.2f}",
            f"{each['ours']['loss'][-1]:.5f}", f"{each['ours']['gap']:.1e}",
            f"{each['iteration'][-1]:,}", f"{each['seconds']:.1f}", f"{_excess(each):.1e}",
        ]
        for noise, each in by_noise.items()
    ]  # fmt: skip
    columns = [
        "noise", "ours: passes", "ours: seconds", "ours: loss", "ours: proven gap",
        "descent: passes", "descent: seconds", "descent: loss above ours",
    ]  # fmt: skip
    return result.grid("Final state of our solver and of gradient descent", columns, rows)


def _accuracy_figure(by_noise: dict[str, dict[str, Any]]) -> result.Figure:
    panels = []
    for noise, each in by_noise.items():
        ours = each["ours"]
        curves = [
            result.series(f"gradient descent, {text}", each["iteration"], each[name])
            for name, text in ACCURACIES.items()
        ]
        curves += [
            result.series(f"ours, {ACCURACIES[name]}", ours["passes"], ours[name], style="both") for name in _OURS
        ]
        lines = _PAPER_PLATEAUS if noise == "logistic" else []
        panels.append(
            result.panel(NOISES[noise], "passes over the data", "accuracy (share)", curves, lines, log_x=True)
        )
    return result.figure(
        "accuracy-against-iterations", "Accuracy of the logistic model against passes over the data.", panels
    )


def _loss_figure(by_noise: dict[str, dict[str, Any]]) -> result.Figure:
    truth = result.line("loss at (M*/s, τ*/s), logistic noise", by_noise["logistic"]["truth_loss"])
    panels = []
    for noise, each in by_noise.items():
        curves = [
            result.series("gradient descent", each["iteration"], each["loss"]),
            result.series("ours", each["ours"]["passes"], each["ours"]["loss"], style="both"),
        ]
        lines = [truth, *_PAPER_LOSSES.get(noise, [])]
        panels.append(
            result.panel(NOISES[noise], "passes over the data", "loss (nats per pair)", curves, lines, log_x=True)
        )
    return result.figure("loss-against-iterations", "Loss of the logistic model against passes over the data.", panels)


_NOTES = [
    "A pass evaluates the loss and its gradient once: two matrix products of the size of the data. One iteration of "
    "gradient descent is one pass. For our solver, passes measure work: the dense Hessian of the 55 + 1 unknowns "
    "counts as 7.6 passes, a step on an eighth of the pairs as an eighth, and the passes for the proof are included. "
    "Reading the data once to choose unit-free coordinates is not counted.",
    "The points of our solver are fits stopped after 1, 2, … steps. Its first step starts from a metric fitted to an "
    "eighth of the pairs.",
    "The paper specifies neither how often the learning rate decays nor the initial A. Here, the rate decays by 0.95 "
    "every 500 iterations, and A starts with normal entries of standard deviation 0.1. With a decay at every "
    "iteration, the rates would sum to 10 and descent would stop early. The initial A was chosen knowing the paper's "
    "700 iterations: on one sample, standard deviations of 0.01, 0.1, 0.3 and 1 need 883, 727, 650 and 564 iterations. "
    "The row therefore shows that 700 is plausible, but does not confirm it.",
    "The minimum is below the loss at (M*/s, τ*/s) because the fit adapts to the sample; the paper expects that the "
    "line is not crossed.",
    "Here, each kind of noise makes 10% of the labels wrong. Under Laplace and hyperbolic secant noise the paper "
    "reports accuracies of 87.5% and 85.5% on noisy labels and 98.6% and 98.5% on true labels, which requires more "
    "than 10% wrong labels and raises its losses.",
]
