"""Answers that a metric gives to questions which it was not fitted to."""

from __future__ import annotations

import numpy as np

from closefar import Tuples
from closefar.arrays import FloatArray, IndexArray
from closefar.label.live.learned import Given, Learned, learn_threshold, relearn
from closefar.label.task import Task


def held_out_expected(learned: Learned, given: Given, task: Task, asked: IndexArray, n_folds: int) -> IndexArray:
    """The answer to each of the questions `asked` that is expected by a fit to all answers but those of its fold.

    Questions that are not asked about here are in every fit.
    """
    return _held_out(learned, given, task, asked, n_folds)[1]


def held_out_plain(learned: Learned, given: Given, task: Task, asked: IndexArray, n_folds: int) -> IndexArray | None:
    """The same by the plain distance, with thresholds fitted to the same answers; None if that is not known."""
    baseline = learned.learner.fit_.baseline
    if baseline is None or baseline.metric is None:
        return None
    folds, fold_of_given = _folds(asked, given.index, n_folds)
    expected = np.zeros(len(asked), dtype=np.intp)
    for fold in range(int(folds.max(initial=-1)) + 1):
        left_out = folds == fold
        expect = learn_threshold(baseline.metric, given.at(fold_of_given != fold), task)
        expected[left_out] = expect(asked[left_out])
    return expected


def held_out_probabilities(learned: Learned, given: Given, task: Task, n_folds: int) -> FloatArray:
    """The probability of each answer to each question of the session, by fits that have not seen the question."""
    return _held_out(learned, given, task, given.index, n_folds)[0]


def _held_out(
    learned: Learned, given: Given, task: Task, asked: IndexArray, n_folds: int
) -> tuple[FloatArray, IndexArray]:
    folds, fold_of_given = _folds(asked, given.index, n_folds)
    probabilities, expected = np.zeros((len(asked), learned.n_answers)), np.zeros(len(asked), dtype=np.intp)
    for fold in range(int(folds.max(initial=-1)) + 1):
        left_out, rest = folds == fold, given.at(fold_of_given != fold)
        fitted = relearn(learned, rest, task)
        if fitted is None:  # all other answers are the same
            code = int(rest.codes[0]) if len(rest) else 0
            probabilities[left_out], expected[left_out] = np.eye(learned.n_answers)[code], code
        else:
            tuples = Tuples(given.features, asked[left_out])
            probabilities[left_out], expected[left_out] = fitted.probabilities(tuples), fitted.expected(tuples)
    return probabilities, expected


def _folds(asked: IndexArray, others: IndexArray, n_folds: int) -> tuple[IndexArray, IndexArray]:
    """The fold of each question asked about, and that of each of the others, -1 for those in none.

    Equal questions share a fold.  They take turns in the order in which they are given, so that a question keeps its
    fold as more come, and what is shown of it does not jump.
    """
    numbers = _same_question(np.concatenate([asked, others]))
    distinct, first = np.unique(numbers[: len(asked)], return_index=True)
    turn = np.full(int(numbers.max(initial=-1)) + 1, -1)
    turn[distinct[np.argsort(first)]] = np.arange(len(distinct)) % n_folds
    return np.split(turn[numbers], [len(asked)])[0], turn[numbers[len(asked) :]]


def _same_question(index: IndexArray) -> IndexArray:
    """A number for each question, the same for equal ones: the two things to compare may be in either order."""
    reference, compared = index[:, :-2], np.sort(index[:, -2:], axis=1)
    rows = np.column_stack([reference, compared])
    return np.asarray(np.unique(rows, axis=0, return_inverse=True)[1], dtype=np.intp).ravel()
