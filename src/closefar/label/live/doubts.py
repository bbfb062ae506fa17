"""Answers to look at again: those that a metric which has not seen them finds improbable."""

from __future__ import annotations

from typing import Any

import numpy as np

from closefar.arrays import FloatArray
from closefar.label.live.learned import Given
from closefar.label.task import Task, TaskKind

__all__ = ["doubtful"]

_MOST_SHOWN = 20

# An answer is looked at again if the metric gives it at most this probability.
_IMPROBABLE = 0.2


def doubtful(given: Given, probabilities: FloatArray, task: Task) -> list[dict[str, Any]]:
    """The least probable answers first; `probabilities` of each answer are by fits without the question."""
    rows = np.arange(len(given))
    expected = np.argmax(probabilities, axis=1)
    own = probabilities[rows, given.codes]
    suspects = np.flatnonzero((expected != given.codes) & (own <= _IMPROBABLE))
    shown = suspects[np.argsort(own[suspects], kind="stable")][:_MOST_SHOWN]
    return [
        {
            "question": int(given.questions[row]),
            "annotator": str(given.who[row]),
            "answer": task.answers[given.codes[row]],
            "expected": task.answers[expected[row]],
            "probability": float(probabilities[row, expected[row]]),
            "reading": _reading(task, int(given.codes[row]), int(expected[row]), probabilities[row]),
        }
        for row in shown
    ]


def _reading(task: Task, answer: int, expected: int, probabilities: FloatArray) -> str:
    share = percent(float(probabilities[expected]))
    if task.kind is TaskKind.triplets:
        sides = ("left", "right")
        return f"You said that the {sides[answer]} one is nearer; the metric says {share} the {sides[expected]} one."
    return f"You said {task.answers[answer]}; the metric says {share} {task.answers[expected]}."


def percent(share: float) -> str:
    """A probability in per cent, which never reads as certain."""
    return "more than 99 %" if share > 0.99 else f"{100.0 * share:.0f} %"
