"""Answers to look at again: those that a metric which has not seen them finds improbable."""

from __future__ import annotations

from typing import Any

import numpy as np

from closefar.arrays import FloatArray
from closefar.label.live.learned import Given
from closefar.label.task import Task, TaskKind

_MOST_SHOWN = 20

# An answer is looked at again if another one is at least so many times as probable; of two answers, the other one then
# has a probability of at least 80%.  People often take a level for the next one, so that this also takes 80%.
_TIMES_AS_PROBABLE, _SURE = 4.0, 0.8

# Steps of expectation and maximisation; the share of slips then changes by less than 0.001.
_STEPS = 100


def no_doubts(quality: dict[str, Any] | None) -> str:
    """Why no answer may be doubted yet, "" if answers may be: a metric that explains nothing can't doubt anybody."""
    if quality is None:
        return "No answer is doubted yet: the quality of the metric is measured after more random questions."
    if quality["low"] <= quality["baseline"]:
        return (
            "No answer is doubted yet: it is not clear whether the metric is better than always giving the most "
            "frequent answer."
        )
    return ""


def doubtful(given: Given, probabilities: FloatArray, task: Task, ids: Any) -> list[dict[str, Any]]:
    """The least probable answers first; `probabilities` of each answer are by fits without the question.

    `ids` are those of all points.
    """
    probabilities = with_slips(probabilities, given.codes)
    rows = np.arange(len(given))
    expected = np.argmax(probabilities, axis=1)
    sure = probabilities[rows, expected]
    odds = sure / probabilities[rows, given.codes]
    is_clear = (sure >= _SURE) | (np.abs(expected - given.codes) > 1)
    suspects = np.flatnonzero(is_clear & (odds >= _TIMES_AS_PROBABLE))
    shown = suspects[np.argsort(-odds[suspects], kind="stable")][:_MOST_SHOWN]
    return [
        {
            "question": int(given.questions[row]),
            "things": [str(ids[point]) for point in given.index[row]],
            "annotator": str(given.who[row]),
            "answer": task.answers[given.codes[row]],
            "expected": task.answers[expected[row]],
            "probability": float(probabilities[row, expected[row]]),
            "reading": _reading(task, int(given.codes[row]), int(expected[row]), probabilities[row]),
        }
        for row in shown
    ]


def with_slips(probabilities: FloatArray, codes: Any) -> FloatArray:
    """The probabilities of answers by people of whom a share answers at random, whatever the metric says.

    The share is the most likely one for the answers that were given, `codes`, with one more answer that is such a slip
    and one that is none, so that no answer is impossible.  It makes up for slips that a fit does not know of, and for
    fits to few answers that are too sure.
    """
    n, k = probabilities.shape
    own = probabilities[np.arange(n), codes]
    slips = 0.05
    for _ in range(_STEPS):
        is_slip = slips / k / (slips / k + (1.0 - slips) * own)
        slips = (1.0 + float(np.sum(is_slip))) / (n + 2.0)
    mixed: FloatArray = (1.0 - slips) * probabilities + slips / k
    return mixed


def _reading(task: Task, answer: int, expected: int, probabilities: FloatArray) -> str:
    share = percent(float(probabilities[expected]))
    if task.kind is TaskKind.triplets:
        sides = ("left", "right")
        return f"You said that the {sides[answer]} one is nearer; the metric says {share} the {sides[expected]} one."
    if task.kind is TaskKind.levels:
        return f"You said {task.answers[answer]}; the metric says {task.answers[expected]} ({share})."
    return f"You said {task.answers[answer]}; the metric says {share} {task.answers[expected]}."


def percent(share: float) -> str:
    """A probability in per cent, which never reads as certain."""
    return "more than 99%" if share > 0.99 else f"{share:.0%}"
