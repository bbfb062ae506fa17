"""The next questions: those that teach most among many drawn at random."""

from __future__ import annotations

import numpy as np

from closefar import Tuples, choose_pairs
from closefar.arrays import FloatArray, IndexArray
from closefar.label.live.learned import Given, learn, tuples_of
from closefar.label.live.reserved import guides_choice
from closefar.label.task import Task
from closefar.tables import RecordedAnswers

_CANDIDATES = 20_000


def next_questions(
    answers: RecordedAnswers, features: FloatArray, task: Task, n: int, seed: int, n_candidates: int = _CANDIDATES
) -> list[tuple[int, ...]]:
    """Choose `n` questions that were not asked before, best first, by a fit to the answers that may guide the choice.

    There are none if these answers teach nothing yet, nor if questions are not chosen but drawn at random.
    """
    if task.method == "random":
        return []
    guides = Given.of(answers, features, task, guides_choice(answers, task))
    learned = learn(guides, task)
    if learned is None:
        return []
    candidates = draw_questions(len(features), tuples_of(answers), task, n_candidates, np.random.default_rng(seed))
    if len(candidates) > n:
        tuples = Tuples(features, candidates)
        candidates = candidates[choose_pairs(learned.learner, tuples, n, method=task.method, random_state=seed)]
    return [tuple(question) for question in candidates.tolist()]


def draw_questions(n_points: int, asked: IndexArray, task: Task, n: int, rng: np.random.Generator) -> IndexArray:
    """Draw up to `n` different questions at random that were not asked before, each about different things."""
    k = task.n_things
    if n_points < k:
        return np.empty((0, k), dtype=np.intp)
    drawn = rng.integers(n_points, size=(n, k))
    is_proper = np.all(np.diff(np.sort(drawn, axis=1), axis=1) > 0, axis=1)
    drawn = drawn[is_proper]
    everything = np.concatenate([asked.reshape(-1, k), drawn])
    keys = np.column_stack([everything[:, :-2], np.sort(everything[:, -2:], axis=1)])
    _, first = np.unique(keys, axis=0, return_index=True)
    new = np.sort(first[first >= len(asked)])
    return np.asarray(everything[new], dtype=np.intp)
