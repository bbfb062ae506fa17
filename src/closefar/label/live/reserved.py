"""Which random questions measure the quality of the metric: those whose answers never guide the choice of questions.

Questions that are chosen by a metric say what that metric says: they lie where it is uncertain, so that a fit to them
finds it again, with every answer that it was fitted to.  A random question that guided the choice would then be
predicted too well even by fits without it.  So the first random answers, with which choosing begins, measure nothing,
and the later ones guide nothing; the metric itself is fitted to all.
"""

from __future__ import annotations

import numpy as np

from closefar.arrays import BoolArray
from closefar.label.task import Purpose, Task, TaskKind
from closefar.tables import RecordedAnswers

# Choosing begins with so many random answers, and more until two answers have been given this often.
_FEWEST_GUIDES, _FEWEST_OF_EACH = 10, 2


def measures_quality(answers: RecordedAnswers, task: Task) -> BoolArray:
    """Which answers measure quality: those to reserved random questions, as first given, that are not can't say.

    An answer that was looked at again counts as it was first given: after a look at what the metric expects, people
    agree with it more often.  Answers to a question that is asked of a second person on purpose do not count.
    """
    is_measure: BoolArray = _counts(answers) & ~guides_choice(answers, task)
    return is_measure


def guides_choice(answers: RecordedAnswers, task: Task) -> BoolArray:
    """Which answers the next questions may be chosen by: all but those to reserved random questions."""
    counts = _counts(answers)
    reserved = set(answers.question[counts].tolist())
    if np.all(answers.chosen == "random") and task.method == "random":
        return np.zeros(len(answers.question), dtype=bool)  # nothing is chosen
    reserved -= _first_questions(answers, counts, task)
    return np.array([question not in reserved for question in answers.question.tolist()], dtype=bool)


def _counts(answers: RecordedAnswers) -> BoolArray:
    """Which answers were first given to random questions, and are not can't say."""
    is_said = np.array([answer is not None for answer in answers.original], dtype=bool)
    counts: BoolArray = (answers.chosen == "random") & (answers.purpose != str(Purpose.shared)) & is_said
    return counts


def _first_questions(answers: RecordedAnswers, counts: BoolArray, task: Task) -> set[int]:
    """The random questions that choosing begins with, in the order in which they were drawn.

    Where they end depends on their own answers only, so that those after them are a random sample.
    """
    rows = np.flatnonzero(counts)
    rows = rows[np.argsort(answers.question[rows], kind="stable")]
    given: dict[str, int] = {}
    for number, row in enumerate(rows, start=1):
        said = str(answers.original[row])
        given[said] = given.get(said, 0) + 1
        differ = task.kind is TaskKind.triplets or sum(n >= _FEWEST_OF_EACH for n in given.values()) >= 2
        if number >= _FEWEST_GUIDES and differ:
            return set(answers.question[rows[:number]].tolist())
    return set(answers.question[rows].tolist())
