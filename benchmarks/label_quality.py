"""Is the quality that `closefar label` shows honest?  How often its 95% interval covers the true agreement.

Sessions are simulated as they run: 20 random questions, then batches that are chosen by the method of the task with a
share of random ones, each batch by a fit to the answers so far.  At several numbers of answers, the interval that the
page would show is compared with the truth: the probability that the metric fitted to all answers so far agrees with a
new, noisy answer to a random question.

    python benchmarks/label_quality.py --sessions 50 --jobs 2 --kind pairs
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

import closefar as cf
from closefar.label import ANSWERS, Task, TaskKind
from closefar.label.findings import Given, Learned, draw_questions, learn, next_questions, quality
from closefar.tables import RecordedAnswers

CHECKPOINTS = (20, 40, 60, 100, 160, 200, 300, 400)
N_POINTS = 1000
N_LEVELS = 4
N_TRUTH = 20_000  # random questions on which the truth is computed
BATCH = 20
N_CANDIDATES = 2000  # fewer than a server draws, for speed


@dataclass(frozen=True)
class Setting:
    """A session to simulate."""

    kind: TaskKind
    n_features: int
    rank: int
    wrong_share: float
    noise: str  # "logistic" or "flips"
    method: str
    seed: int


@dataclass(frozen=True, eq=False)
class Annotator:
    """Somebody who answers by a metric, with noise.

    `steepness` is that of the logistic noise, infinite without; `flip_rate` the share of answers that are replaced by
    another one.
    """

    points: Any
    factor: Any
    thresholds: Any
    steepness: float
    flip_rate: float
    n_answers: int

    def probabilities(self, index: Any) -> Any:
        """The probability of each answer to each question."""
        beyond = [_cdf(self.steepness, gap) for gap in _gaps(self.points @ self.factor, index, self.thresholds)]
        edges = np.column_stack([np.ones(len(index)), *beyond, np.zeros(len(index))])
        plain = edges[:, :-1] - edges[:, 1:]
        return (1.0 - self.flip_rate) * plain + self.flip_rate * (1.0 - plain) / (self.n_answers - 1)


def _cdf(steepness: float, gap: Any) -> Any:
    return (gap > 0).astype(float) if np.isinf(steepness) else expit(steepness * gap)


def _gaps(mapped: Any, index: Any, thresholds: Any) -> list[Any]:
    """How far each question is beyond each threshold; a triplet is beyond its only one if `right` is nearer."""
    lengths = [np.sum((mapped[index[:, 0]] - mapped[index[:, k]]) ** 2, axis=1) for k in range(1, index.shape[1])]
    if len(lengths) == 2:
        return [lengths[0] - lengths[1]]
    return [lengths[0] - threshold for threshold in thresholds]


def make_task(kind: TaskKind, method: str) -> Task:
    answers = tuple(str(level) for level in range(1, N_LEVELS + 1)) if kind is TaskKind.levels else ANSWERS[kind]
    return Task(kind, "", "", answers, method=method)


def make_annotator(setting: Setting, task: Task, rng: np.random.Generator) -> Annotator:
    """Points, a metric of the rank, thresholds at quantiles, and noise with which the share of answers is wrong."""
    points = rng.standard_normal((N_POINTS, setting.n_features))
    factor = rng.standard_normal((setting.n_features, setting.rank))
    index = draw_questions(N_POINTS, np.empty((0, task.n_things), dtype=int), task, N_TRUTH, rng)
    k = len(task.answers)
    squared = _gaps(points @ factor, index, [0.0])[0]
    thresholds = np.quantile(squared, np.arange(1, k) / k) if setting.kind is not TaskKind.triplets else np.zeros(1)
    factor, thresholds = factor / np.sqrt(np.std(squared)), thresholds / np.std(squared)
    plain = Annotator(points, factor, thresholds, np.inf, 0.0, k)
    if setting.noise == "flips":
        return Annotator(points, factor, thresholds, np.inf, setting.wrong_share, k)
    sides = _gaps(points @ factor, index, thresholds)[(k - 2) // 2 if k > 2 else 0]

    def excess(log_steepness: float) -> float:
        return float(np.mean(expit(-np.exp(log_steepness) * np.abs(sides)))) - setting.wrong_share

    steepness = float(np.exp(brentq(excess, -8.0, 12.0)))
    return Annotator(plain.points, plain.factor, plain.thresholds, steepness, 0.0, k)


def recorded(index: Any, answers: Any, chosen: Any) -> RecordedAnswers:
    """The answers of a session as the file has them."""
    n = len(answers)
    return RecordedAnswers(
        first=index[:, 0],
        second=index[:, 1],
        third=index[:, 2] if index.shape[1] == 3 else None,
        answer=answers,
        original=answers,
        annotator=np.full(n, "owner", dtype=object),
        chosen=chosen,
        purpose=np.full(n, "first", dtype=object),
        reviewed=np.zeros(n, dtype=bool),
        seconds=np.full(n, 2.0),
        at=np.arange(float(n)),
        question=np.arange(1, n + 1),
        ids=np.arange(N_POINTS).astype(str).astype(object),
        about={},
        n_events=n,
    )


def simulate(setting: Setting) -> list[dict[str, Any]]:
    """One session: what is shown and what is true at each checkpoint."""
    rng = np.random.default_rng([setting.seed, 17])
    task = make_task(setting.kind, setting.method)
    annotator = make_annotator(setting, task, rng)
    names = np.array(task.answers, dtype=object)
    index = np.empty((0, task.n_things), dtype=np.intp)
    codes, chosen = np.empty(0, dtype=np.intp), np.empty(0, dtype=object)
    waiting: list[tuple[int, ...]] = []
    rows = []
    while len(index) < CHECKPOINTS[-1]:
        for _ in range(BATCH):
            is_random = not waiting or rng.random() < task.random_share
            question = draw_questions(N_POINTS, index, task, 4, rng)[:1] if is_random else np.array([waiting.pop(0)])
            probability = annotator.probabilities(question)[0]
            index = np.vstack([index, question])
            codes = np.append(codes, rng.choice(len(names), p=probability / probability.sum()))
            chosen = np.append(chosen, "random" if is_random else setting.method)
        answers = recorded(index, names[codes], chosen)
        given = Given.of(answers, annotator.points, task)
        learned = learn(given, task)
        waiting = []
        if learned is None:
            continue
        waiting = next_questions(answers, annotator.points, task, BATCH, len(index), N_CANDIDATES)
        if len(index) in CHECKPOINTS:
            rows.append({"answers": len(index), **_checked(annotator, answers, given, learned, task, rng)})
    return rows


def _checked(
    annotator: Annotator, answers: RecordedAnswers, given: Given, learned: Learned, task: Task, rng: Any
) -> dict[str, Any]:
    """What is shown, and the truth."""
    start = time.perf_counter()
    shown = quality(answers, given, learned, task) or {}
    seconds = time.perf_counter() - start
    questions = draw_questions(N_POINTS, np.empty((0, task.n_things), dtype=int), task, N_TRUTH, rng)
    expected = np.argmax(learned.probabilities(cf.Tuples(annotator.points, questions)), axis=1)
    probabilities = annotator.probabilities(questions)
    truth = float(np.mean(probabilities[np.arange(len(questions)), expected]))
    matrix, true = learned.metric.matrix, annotator.factor @ annotator.factor.T
    difference = matrix / max(np.trace(matrix), 1e-300) - true / np.trace(true)
    error = np.linalg.norm(difference, 2) / np.linalg.norm(true / np.trace(true), 2)
    best = float(np.mean(probabilities.max(axis=1)))
    return {**shown, "reading": None, "truth": truth, "best": best, "error": float(error), "seconds": seconds}


def settings_of(kind: TaskKind, n: int, first_seed: int, method: str) -> list[Setting]:
    """Sessions of different dimensions, ranks, and kinds and amounts of noise, each with a seed of its own."""
    found = []
    for number in range(n):
        rng = np.random.default_rng([first_seed + number, 3])
        d = int(rng.choice([3, 5, 10, 20]))
        found.append(
            Setting(
                kind,
                d,
                int(rng.integers(1, min(d, 4) + 1)),
                float(rng.choice([0.05, 0.1, 0.15, 0.25])),
                str(rng.choice(["logistic", "flips"])),
                method,
                first_seed + number,
            )
        )
    return found


def report(kind: TaskKind, sessions: list[list[dict[str, Any]]]) -> None:
    """Coverage at each number of answers and over all; its standard error is by session."""
    print(f"\n{kind}: {len(sessions)} sessions")
    print("answers  random  agreement  truth  baseline  best  coverage  too high  too low  width  error of M  seconds")
    for n in CHECKPOINTS:
        _line(f"{n:7d}", [[row for row in session if row["answers"] == n and "low" in row] for session in sessions])
    _line("    all", [[row for row in session if "low" in row] for session in sessions])


def _line(name: str, sessions: list[list[dict[str, Any]]]) -> None:
    kept = [rows for rows in sessions if rows]
    rows = [row for session in kept for row in session]
    if not rows:
        return

    def mean(value: Any) -> float:
        return float(np.mean([value(row) for row in rows]))

    covered = [float(np.mean([row["low"] <= row["truth"] <= row["high"] for row in session])) for session in kept]
    standard_error = float(np.std(covered)) / np.sqrt(len(covered))
    print(
        f"{name}  {mean(lambda row: row['n']):6.0f}  {mean(lambda row: row['agreement']):9.3f}"
        f"  {mean(lambda row: row['truth']):5.3f}  {mean(lambda row: row['baseline']):8.3f}"
        f"  {mean(lambda row: row['best']):4.2f}  {np.mean(covered):5.1%} +- {standard_error:.1%}"
        f"  {mean(lambda row: row['low'] > row['truth']):5.1%}  {mean(lambda row: row['high'] < row['truth']):5.1%}"
        f"  {mean(lambda row: row['high'] - row['low']):5.2f}  {mean(lambda row: row['error']):5.2f}"
        f"  {mean(lambda row: row['seconds']):5.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kind", choices=[*TaskKind, "all"], default="all")
    parser.add_argument("--method", default="information", choices=["information", "uncertainty", "random"])
    parser.add_argument("--seed", type=int, default=0, help="The seed of the first session.")
    parser.add_argument("--out", help="A file for all figures, as JSON.")
    options = parser.parse_args()
    found = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for kind in list(TaskKind) if options.kind == "all" else [TaskKind(options.kind)]:
            settings = settings_of(kind, options.sessions, options.seed, options.method)
            sessions = list(pool.map(simulate, settings))
            report(kind, sessions)
            found[str(kind)] = sessions
    if options.out:
        with open(options.out, "w") as file:
            json.dump(found, file)


if __name__ == "__main__":
    main()
