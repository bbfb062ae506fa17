"""Chosen against random questions: the error of M / tr M by the number of answers, over simulated annotators.

    python benchmarks/choosing.py [--settings near,flips] [--seeds 20] [--first-seed 0] [--jobs 2] [--most 800]
                                  [--figure docs/images/choosing.svg] [--time]

10 columns, M of rank 3, 2,000 points; 40 random questions, then 20 at a time out of 5,000 random candidates.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import brentq

import closefar as cf

D, RANK, N_POINTS, N_CANDIDATES, START, BATCH = 10, 3, 2000, 5000, 40, 20
METHODS = ("random", "uncertainty", "information")


@dataclass(frozen=True)
class Setting:
    """How answers come about, and the learner that is taught by them."""

    title: str
    wrong: float = 0.1
    are_flipped: bool = False
    is_bent: bool = False
    learner: dict[str, Any] = field(default_factory=dict)


PAPER: dict[str, Any] = {"alpha": 0.0, "flip_rate": 0.0}

SETTINGS = {
    "near": Setting("10 % wrong, near the threshold"),
    "flips": Setting("10 % wrong, at any distance", are_flipped=True),
    "near-paper": Setting("near the threshold, alpha=0, flip_rate=0", learner=PAPER),
    "flips-paper": Setting("at any distance, alpha=0, flip_rate=0", are_flipped=True, learner=PAPER),
    "noisy": Setting("40 % wrong, near the threshold", wrong=0.4),
    "bent": Setting("10 % wrong, another kind of distance", is_bent=True),
}


class Annotator:
    """Points, a true distance, and answers of which a share is wrong."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.setting = setting
        self.points = self.rng.standard_normal((N_POINTS, D))
        factor = self.rng.standard_normal((D, RANK))
        self.factor = factor / np.linalg.norm(factor)
        some = self.true(self.draw(20_000))
        self.threshold = float(np.median(some))
        away = np.abs(some - self.threshold)
        self.scale = float(brentq(lambda s: np.mean(1.0 / (1.0 + np.exp(away / s))) - setting.wrong, 1e-6, 1e3))
        self.target = self.factor @ self.factor.T
        if setting.is_bent:  # the nearest metric is that of very many answers
            index = self.draw(20_000)
            learner = cf.LinearMetricLearner(**PAPER).fit(cf.Tuples(self.points, index), self.ask(index))
            self.target = learner.metric_.matrix / np.trace(learner.metric_.matrix)

    def draw(self, n: int) -> Any:
        return cf.Tuples.sample(self.points, n, random_state=int(self.rng.integers(2**31))).index

    def true(self, index: Any) -> Any:
        """The squared distance; if it is bent, of the city-block distance along saturating coordinates."""
        ends = self.points[index] @ self.factor
        if not self.setting.is_bent:
            return np.sum((ends[:, 0] - ends[:, 1]) ** 2, axis=1)
        bent = np.tanh(2.0 * ends)
        return np.sum(np.abs(bent[:, 0] - bent[:, 1]), axis=1)

    def ask(self, index: Any) -> Any:
        true = self.true(index)
        if self.setting.are_flipped:
            labels = np.where(true >= self.threshold, 1, -1)
            return np.where(self.rng.uniform(size=len(true)) < self.setting.wrong, -labels, labels)
        return np.where(true + self.scale * self.rng.logistic(size=len(true)) >= self.threshold, 1, -1)

    def error(self, matrix: Any) -> float:
        """The error of M / tr M, relative to the true one."""
        difference = matrix / max(np.trace(matrix), 1e-300) - self.target
        return float(np.linalg.norm(difference) / np.linalg.norm(self.target))


def teach(setting: Setting, method: str, seed: int, most: int) -> list[float]:
    """The error after the first questions, and after each batch."""
    warnings.simplefilter("ignore")  # few labels are separable
    who, errors = Annotator(setting, seed), []
    index = who.draw(START)
    labels = who.ask(index)
    while True:
        learner = cf.LinearMetricLearner(**setting.learner).fit(cf.Tuples(who.points, index), labels)
        errors.append(who.error(learner.metric_.matrix))
        if len(index) >= most:
            return errors
        candidates = cf.Tuples(who.points, who.draw(N_CANDIDATES))
        chosen = cf.choose_pairs(learner, candidates, BATCH, method=method, random_state=seed)
        index = np.vstack([index, candidates.index[chosen]])
        labels = np.append(labels, who.ask(candidates.index[chosen]))


def reached(numbers: Any, errors: Any, target: float) -> str:
    """The number of questions at which the mean error is at most the target."""
    found = np.flatnonzero(errors <= target)
    return str(numbers[found[0]]) if len(found) else f"> {numbers[len(errors) - 1]}"


def draw_figure(curves: dict[str, dict[str, Any]], numbers: Any, path: str) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "closefar", "svg.fonttype": "path", "font.size": 9})
    import matplotlib.pyplot as plt

    colors = {"random": "#707070", "uncertainty": "#D55E00", "information": "#0072B2"}
    styles = {"random": "--", "uncertainty": "-.", "information": "-"}
    n_columns = 2 if len(curves) > 1 else 1
    n_lines = -(-len(curves) // n_columns)
    figure, axes = plt.subplots(
        n_lines, n_columns, figsize=(4 * n_columns, 2.5 * n_lines), layout="constrained", squeeze=False
    )
    for ax, (name, by_method) in zip(axes.flat, curves.items(), strict=False):
        for method, errors in by_method.items():
            ax.plot(numbers[: errors.shape[1]], errors.mean(axis=0), styles[method], color=colors[method], label=method)
        if "random" in by_method:
            ax.axhline(by_method["random"].mean(axis=0)[-1], color=colors["random"], linewidth=0.6)
        ax.set_title(SETTINGS[name].title, fontsize=9)
        ax.set(xlabel="questions answered", yscale="log", ylabel="error of M / tr M")
        ticks = [tick for tick in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if ax.get_ylim()[0] <= tick <= ax.get_ylim()[1]]
        ax.minorticks_off()
        ax.set_yticks(ticks, labels=[f"{tick:g}" for tick in ticks])
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes.flat[len(curves) :]:
        ax.set_visible(False)
    axes.flat[0].legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    print(f"\nThe figure is in {path}.")


def measure_time(n_candidates: int = 1_000_000, d: int = 20) -> None:
    """The CPU time of choosing 20 of a million candidates."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    points = rng.standard_normal((5000, d))
    sources = {
        "differences": rng.standard_normal((n_candidates, d)),
        "Tuples": cf.Tuples(points, rng.integers(0, 5000, (n_candidates, 2))),
    }
    for n, rank in ((300, 5), (3000, d)):
        data = cf.datasets.make_pairs(n, d, rank=rank, wrong_share=0.1, random_state=0)
        learner = cf.LinearMetricLearner().fit(data.pairs, data.labels)
        for name, candidates in sources.items():
            start = time.process_time()
            cf.choose_pairs(learner, candidates, 20)
            used = time.process_time() - start
            print(f"20 of {n_candidates:,} {name}, d={d}, M of rank {learner.metric_.rank}: {used:.2f} s of CPU time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", default="near,flips,noisy,bent", help=f"of {', '.join(SETTINGS)}, or all")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--most", type=int, default=800, help="random questions")
    parser.add_argument("--most-chosen", type=int, help="chosen questions; as many by default")
    parser.add_argument("--figure")
    parser.add_argument("--time", action="store_true", help="measure the time of choosing, and nothing else")
    asked = parser.parse_args()
    if asked.time:
        measure_time()
        return
    names = list(SETTINGS) if asked.settings == "all" else asked.settings.split(",")
    most = {method: asked.most if method == "random" else asked.most_chosen or asked.most for method in METHODS}
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    work = [(name, method, seed) for name in names for seed in seeds for method in METHODS]
    found = Parallel(n_jobs=asked.jobs)(
        delayed(teach)(SETTINGS[name], method, seed, most[method]) for name, method, seed in work
    )
    numbers = np.arange(START, asked.most + 1, BATCH)
    head = f"{'setting':16}{'random, ' + str(numbers[-1]):>14}{'uncertainty':>14}{'information':>14}"
    print(f"{head}   mean of {len(seeds)} seeds: the error, and the questions that reach it")
    curves: dict[str, dict[str, Any]] = {}
    for name in names:
        curves[name] = {
            method: np.array([errors for errors, each in zip(found, work, strict=True) if each[:2] == (name, method)])
            for method in METHODS
        }
        means = {method: errors.mean(axis=0) for method, errors in curves[name].items()}
        target = float(means["random"][-1])
        needed = [reached(numbers, means[method], target) for method in METHODS[1:]]
        print(f"{name:16}{target:14.3f}{needed[0]:>14}{needed[1]:>14}")
    if asked.figure:
        draw_figure(curves, numbers, asked.figure)


if __name__ == "__main__":
    main()
