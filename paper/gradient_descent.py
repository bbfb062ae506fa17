"""Experiment 4: the paper's plain gradient descent (section "Logistic Model with Different Noises"), and our solver.

The paper states a learning rate of 0.5, a learning decay of 0.95 and 30,000 iterations.  It states neither how
often the rate decays nor where A starts:

* Decay at every iteration would let the rates sum to 10, which ends far above the loss that the paper's descent
  reaches at iteration 700.  Here the rate decays every 500 iterations: by a factor of 0.046 in 30,000, and hardly
  before iteration 700.  The interval does not depend on the number of iterations, so that a shorter run is the
  beginning of a longer one.
* A starts with normal entries of standard deviation 0.1, and tau at 0.  Of the four scales that were tried on one
  sample, 0.01, 0.1, 0.3 and 1, this one and 0.3 come nearest to the paper's 700 iterations (883, 727, 650 and 564): the
  agreement in that number is chosen, not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import closefar as cf
from paper.sections import (
    Section,
    Table,
    compare,
    comparison,
    figure,
    grid,
    line,
    panel,
    percentage,
    quote,
    section,
    series,
)
from paper.synthetic import ACCURACIES, N_TEST, NOISES, PAPER, FloatArray, Split, accuracies, fit, paper_pairs
from paper.trials import Run

LEARNING_RATE = 0.5
LEARNING_DECAY = 0.95
DECAY_EVERY = 500
START_SCALE = 0.1

N_TRAIN = 15_000
WRONG_SHARE = 0.1
MODEL = cf.noise.Logistic()

# Enough for descent to pass the loss at the truth, which the paper's does at iteration 700.
_N_SHORT = 3_000
_N_POINTS = 60

_PASSES = "our solver: passes to the same loss"
_PAPER_TRUTH_LOSS = 0.23
_PAPER_ITERATIONS = 700
_PAPER_FLIPS_LOSS = 0.5

_PAPER_PLATEAUS = [line("paper, noisy labels: near 0.90", 0.90), line("paper, true labels: about 0.99", 0.99)]
_PAPER_LOSSES = {
    "logistic": [
        line("paper, loss at the true metric: around 0.23", _PAPER_TRUTH_LOSS),
        line("paper, iterations to reach it: around 700", _PAPER_ITERATIONS, "x"),
    ],
    "flips": [line("paper, noisy labelling: around 0.5", _PAPER_FLIPS_LOSS)],
}
_OURS = ("test_noisy", "test_true")


class Iterate(NamedTuple):
    """Where descent is after so many iterations, each of which is one pass over the data."""

    iteration: int
    factor: FloatArray
    threshold: float
    loss: float


def descend(
    differences: FloatArray, labels: NDArray[np.int64], noise: cf.noise.Noise, *, n_iter: int, seed: int
) -> Iterator[Iterate]:
    """Minimise R(AA', tau) over A (d x d) and tau >= 0, and yield each iterate from the first step on.

    Parameters
    ----------
    differences : array of shape (n, d)
    labels : array of n labels, -1 close and +1 far
    noise : Noise
        The model whose negative log-likelihood is minimised.
    n_iter : int
    seed : int
        Of the random start.
    """
    rows = np.ascontiguousarray(differences.T)  # a pair a column: every product below runs along memory
    signs = labels.astype(np.float64)
    factor = START_SCALE * np.random.default_rng(seed).standard_normal((len(rows), len(rows)))
    threshold = 0.0
    _, slope, threshold_slope = loss_and_gradient(rows, signs, factor, threshold, noise)
    for iteration in range(1, n_iter + 1):
        rate = LEARNING_RATE * LEARNING_DECAY ** ((iteration - 1) // DECAY_EVERY)
        factor = factor - rate * slope
        threshold = max(threshold - rate * threshold_slope, 0.0)
        loss, slope, threshold_slope = loss_and_gradient(rows, signs, factor, threshold, noise)
        yield Iterate(iteration, factor, threshold, loss)


def loss_and_gradient(
    rows: FloatArray, signs: FloatArray, factor: FloatArray, threshold: float, noise: cf.noise.Noise
) -> tuple[float, FloatArray, float]:
    """Return R(AA', tau), dR/dA and dR/dtau; `rows` holds a difference a column, `signs` its label."""
    mapped = factor.T @ rows
    margins = signs * (np.einsum("ij,ij->j", mapped, mapped) - threshold)
    losses, slopes = noise.derivatives(margins, order=1)
    margin_gradient = signs * slopes / len(signs)
    return float(np.mean(losses)), 2.0 * (rows @ (mapped * margin_gradient).T), -float(np.sum(margin_gradient))


def iterations(run: Run) -> Section:
    """Follow both ways to the optimum for five noises, and for logistic noise in further orientations."""
    n_iter = run.choose(_N_SHORT, 30_000)
    long = run.repeat(trial, [{"noise": noise, "n_train": N_TRAIN, "n_iter": n_iter} for noise in NOISES], 1)
    by_noise = {noise: trials[0] for noise, trials in zip(NOISES, long, strict=True)}
    short = {"noise": "logistic", "n_train": N_TRAIN, "n_iter": _N_SHORT}
    (logistic,) = run.repeat(trial, [short], run.choose(2, 5))
    rows = _comparison(by_noise, logistic)
    return section(
        _headline(by_noise["logistic"]),
        f"Logistic model, {N_TRAIN:,} training and {N_TEST:,} test pairs, {percentage(WRONG_SHARE, 0)} wrong "
        f"labels. Gradient descent with learning rate 0.5 and decay 0.95, {n_iter:,} iterations.",
        tables=[rows, _ends(by_noise)],
        figures=[_accuracy_figure(by_noise), _loss_figure(by_noise)],
        notes=_NOTES,
        quoted=[
            quote(
                "passes over the data to the loss of the true metric, logistic",
                row,
                paper=_PAPER_ITERATIONS,
                printed="around 700",
            )
            for row in rows["rows"]
            if row["label"] == _PASSES
        ],
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


def _comparison(by_noise: dict[str, dict[str, Any]], logistic: Sequence[dict[str, Any]]) -> Table:
    reached = [each["reached"] for each in logistic if each["reached"] is not None]
    passes = [each for each in map(_passes_to_truth, logistic) if each is not None]
    rows = [
        compare(
            "loss at (M*/s, τ*/s), logistic noise", [each["truth_loss"] for each in logistic], _PAPER_TRUTH_LOSS,
            "The paper gives an approximate value (“around”), read from a figure.",
        ),
        compare(
            "minimum loss under noisy labelling", by_noise["flips"]["ours"]["loss"][-1], _PAPER_FLIPS_LOSS,
            "The paper gives an approximate value (“around”), read from a figure; ours is the proven minimum on this "
            "sample.",
        ),
    ]  # fmt: skip
    if reached:
        rows.append(
            compare(
                "descent: iterations to the loss at (M*/s, τ*/s)", reached, _PAPER_ITERATIONS,
                "The paper gives an approximate value (“around”) and specifies neither the initial A nor how often the "
                "learning rate decays; a smaller initial A needs more iterations, a larger one fewer.",
            )
        )  # fmt: skip
    if passes:
        rows.append(compare(_PASSES, passes, None, ""))
    rows.append(
        compare(
            "our solver: passes until the gap is proven", [each["ours"]["passes"][-1] for each in logistic], None, ""
        )
    )
    rows.append(compare("our solver: proven gap", [each["ours"]["gap"] for each in logistic], None, ""))
    return comparison("Loss history as described in the paper", rows)


def _ends(by_noise: dict[str, dict[str, Any]]) -> Table:
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
    return grid("Final state of our solver and of gradient descent", columns, rows)


def _accuracy_figure(by_noise: dict[str, dict[str, Any]]) -> dict[str, Any]:
    panels = []
    for noise, each in by_noise.items():
        ours = each["ours"]
        curves = [
            series(f"gradient descent, {text}", each["iteration"], each[name]) for name, text in ACCURACIES.items()
        ]
        curves += [series(f"ours, {ACCURACIES[name]}", ours["passes"], ours[name], style="both") for name in _OURS]
        lines = _PAPER_PLATEAUS if noise == "logistic" else []
        panels.append(panel(NOISES[noise], "passes over the data", "accuracy (share)", curves, lines, log_x=True))
    return figure("accuracy-against-iterations", "Accuracy of the logistic model against passes over the data.", panels)


def _loss_figure(by_noise: dict[str, dict[str, Any]]) -> dict[str, Any]:
    truth = line("loss at (M*/s, τ*/s), logistic noise", by_noise["logistic"]["truth_loss"])
    panels = []
    for noise, each in by_noise.items():
        curves = [
            series("gradient descent", each["iteration"], each["loss"]),
            series("ours", each["ours"]["passes"], each["ours"]["loss"], style="both"),
        ]
        lines = [truth, *_PAPER_LOSSES.get(noise, [])]
        panels.append(panel(NOISES[noise], "passes over the data", "loss (nats per pair)", curves, lines, log_x=True))
    return figure("loss-against-iterations", "Loss of the logistic model against passes over the data.", panels)


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
