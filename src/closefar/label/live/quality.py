"""How often the metric agrees with a new answer to a random question, measured on random questions that were asked."""

from __future__ import annotations

from typing import Any

import numpy as np

from closefar.arrays import BoolArray
from closefar.label.live.held_out import held_out_expected, held_out_plain
from closefar.label.live.learned import Given, Learned, tuples_of
from closefar.label.live.reserved import measures_quality
from closefar.label.task import Task
from closefar.questions import wilson
from closefar.tables import RecordedAnswers

# No agreement is shown with fewer random questions.
_FEWEST = 12

_FOLDS = 10

# An answer is predicted by fits to the other ones, and helps to predict those, so that right predictions are not quite
# independent.  In 240 simulated sessions (benchmarks/label_quality.py) the variance of their share was 1.08 times that
# of a binomial.
_DEPENDENCE = 1.05


def agreement_interval(n_right: float, n: float) -> tuple[float, float]:
    """The 95% interval of Wilson for the probability behind `n_right` of `n` that were cross-validated."""
    return wilson(n_right / n, n / _DEPENDENCE)


def quality(answers: RecordedAnswers, given: Given, learned: Learned, task: Task) -> dict[str, Any] | None:
    """The agreement with a new answer to a random question, by cross-validation over the random questions.

    Beside it are that of the most frequent answer, `baseline`, and that of the plain distance with a fitted threshold,
    `plain`, on the same questions.
    """
    counts = measures_quality(answers, task)
    n = int(counts.sum())
    if n < _FEWEST:
        return None
    place = {answer: code for code, answer in enumerate(task.answers)}
    said = np.array([place[answer] for answer in np.asarray(answers.original, dtype=object)[counts]], dtype=np.intp)
    asked = tuples_of(answers)[counts]
    is_right = held_out_expected(learned, given, task, asked, _FOLDS) == said
    n_right = int(np.sum(is_right))
    low, high = agreement_interval(n_right, n)
    agreement, baseline = n_right / n, float(np.bincount(said).max()) / n
    by_plain = held_out_plain(learned, given, task, asked, _FOLDS)
    reading = _reading(agreement, low, high, baseline, n)
    if by_plain is not None:
        reading += f" {_compared_with_plain(is_right, by_plain == said)}"
    return {
        "agreement": agreement,
        "low": low,
        "high": high,
        "baseline": baseline,
        "plain": None if by_plain is None else float(np.mean(by_plain == said)),
        "n": n,
        "reading": reading,
    }


def _reading(agreement: float, low: float, high: float, baseline: float, n: int) -> str:
    compared = f"Always giving the most frequent answer would agree with {baseline:.0%}"
    compared += "." if low > baseline else ", so it is not clear yet whether the metric is better."
    return (
        f"The metric agrees with about {agreement:.0%} of new answers to random questions (95% interval: {low:.0%} to "
        f"{high:.0%}). This is measured on {n} random questions, each by a fit that has not seen it. {compared}"
    )


def _compared_with_plain(is_right: BoolArray, plain_is_right: BoolArray) -> str:
    """By questions that one of them gets right and the other does not, as in McNemar's test."""
    gained, lost = int(np.sum(is_right & ~plain_is_right)), int(np.sum(plain_is_right & ~is_right))
    told = f"The plain distance with a fitted threshold agrees with {np.mean(plain_is_right):.0%}"
    if gained <= lost:
        return f"{told}: the learned metric is not better so far."
    if gained - lost <= 2.0 * (gained + lost) ** 0.5:
        return f"{told}, so it is not clear yet whether the learned metric is better."
    return f"{told}."
