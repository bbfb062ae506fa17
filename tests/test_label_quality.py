"""The agreement shown: which answers count, and an interval that covers the truth as often as it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from closefar.label import ANSWERS, Task, TaskKind
from closefar.label.findings import Given, agreement_interval, guides_choice, held_out, learn, measures_quality, quality
from closefar.tables import RecordedAnswers

TASK = Task(TaskKind.pairs, "", "", ANSWERS[TaskKind.pairs])


def session(n=100, seed=0, *, n_random=None):
    """Features and answers by the first of two columns; all questions but the first `n_random` are chosen."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((200, 2))
    pairs = np.array([rng.choice(200, 2, replace=False) for _ in range(n)])
    gap = np.abs(features[pairs[:, 0], 0] - features[pairs[:, 1], 0]) + 0.3 * rng.standard_normal(n)
    said = np.where(gap > 1.0, "far", "close").astype(object)
    chosen = np.where(np.arange(n) < (n if n_random is None else n_random), "random", "information").astype(object)
    answers = RecordedAnswers(
        first=pairs[:, 0],
        second=pairs[:, 1],
        third=None,
        answer=said,
        original=said,
        annotator=np.full(n, "owner", dtype=object),
        chosen=chosen,
        purpose=np.full(n, "first", dtype=object),
        reviewed=np.zeros(n, dtype=bool),
        seconds=np.full(n, np.nan),
        at=np.arange(float(n)),
        question=np.arange(1, n + 1),
        ids=np.arange(200).astype(str).astype(object),
        about={},
        n_events=n,
    )
    return features, answers


def quality_of(features, answers, task=TASK):
    given = Given.of(answers, features, task)
    return quality(answers, given, learn(given, task), task)


@pytest.mark.parametrize("n", [10, 20, 40, 80, 200, 500])
def test_the_interval_covers_a_share_in_95_percent(n):
    """On average over the agreements that a session may have, if predictions are as dependent as was measured.

    Exactly, from a binomial distribution of fewer answers: the variance of the share is 1.05 times as large.
    """
    fewer = round(n / 1.05)
    ends = np.array([agreement_interval(n * right / fewer, n) for right in range(fewer + 1)])
    shares = np.linspace(0.55, 0.95, 401)
    covered = [binom.pmf(np.arange(fewer + 1), fewer, p)[(ends[:, 0] <= p) & (p <= ends[:, 1])].sum() for p in shares]
    assert 0.93 < np.mean(covered) < 0.97


def test_only_reserved_random_questions_count():
    features, answers = session(100, n_random=40)
    found = quality_of(features, answers)
    assert found["n"] == measures_quality(answers, TASK).sum() == 30
    # Whatever was answered to chosen questions, the answers to random ones are as before.
    assert found["baseline"] == max(np.mean(answers.original[10:40] == side) for side in TASK.answers)


def test_few_random_questions_show_nothing():
    assert quality_of(*session(100, n_random=21)) is None
    assert quality_of(*session(100, n_random=22))["n"] == 12


def test_an_answer_that_was_looked_at_again_counts_as_it_was_first_given():
    features, answers = session(60)
    before = quality_of(features, answers)
    given = Given.of(answers, features, TASK)
    probabilities = held_out(learn(given, TASK), given, TASK, given.index, 10)
    expected = np.array(TASK.answers, dtype=object)[np.argmax(probabilities, axis=1)]
    assert np.any(expected != answers.answer)
    reviewed = replace(answers, answer=expected)
    after = quality_of(features, reviewed)
    assert after["n"] == before["n"]
    assert after["agreement"] < 1.0
    unsure = replace(answers, answer=np.where(expected != answers.answer, None, answers.answer))
    assert quality_of(features, unsure)["n"] == before["n"]


def test_a_question_that_a_second_person_answers_counts_once():
    features, answers = session(60)
    arrays = {name: value for name, value in vars(answers).items() if isinstance(value, np.ndarray) and name != "ids"}
    twice = replace(answers, **{name: np.append(value, value[30:40]) for name, value in arrays.items()})
    purpose = np.where(np.arange(70) < 60, "first", "shared").astype(object)
    people = np.where(np.arange(70) < 60, "ana", "ben").astype(object)
    twice = replace(twice, purpose=purpose, annotator=people)
    assert quality_of(features, twice)["n"] == 50
    assert not guides_choice(twice, TASK)[30:40].any()
    assert not guides_choice(twice, TASK)[60:].any()


def test_a_question_is_not_in_the_fit_that_answers_it():
    """Turning all answers to a question round changes what is expected of others, never of itself."""
    features, answers = session(40)
    given = Given.of(answers, features, TASK)
    learned = learn(given, TASK)
    asked = answers.things
    before = held_out(learned, given, TASK, asked[:8], 8)
    turned = given.codes.copy()
    turned[7] = 1 - turned[7]
    swapped = given.index.copy()
    swapped[7] = swapped[7, ::-1]
    after = held_out(learned, replace(given, codes=turned, index=swapped), TASK, asked[:8], 8)
    np.testing.assert_allclose(before[7], after[7], rtol=1e-12)


def test_choosing_begins_with_two_different_answers():
    _, answers = session(60)
    same = np.where(np.arange(60) < 25, "far", answers.answer).astype(object)
    guides = guides_choice(replace(answers, answer=same, original=same), TASK)
    n_guides = int(guides.sum())
    assert n_guides > 25
    assert guides[:n_guides].all()
    assert np.sum(same[:n_guides] == "close") == 2


def test_every_random_question_counts_where_nothing_is_chosen():
    features, answers = session(30)
    assert quality_of(features, answers, replace(TASK, method="random"))["n"] == 30


def test_the_interval_covers_the_truth_in_simulated_sessions():
    """A small and quick version of benchmarks/label_quality.py, without chosen questions."""
    covered = []
    for seed in range(16):
        features, answers = session(45, seed=seed)
        given = Given.of(answers, features, TASK)
        learned = learn(given, TASK)
        shown = quality(answers, given, learned, TASK)
        rng = np.random.default_rng(seed + 1000)
        pairs = np.array([rng.choice(200, 2, replace=False) for _ in range(2000)])
        gap = np.abs(features[pairs[:, 0], 0] - features[pairs[:, 1], 0]) + 0.3 * rng.standard_normal(2000)
        truth = np.mean(np.argmax(learned.probabilities(replace(given, index=pairs).tuples), axis=1) == (gap > 1.0))
        covered.append(shown["low"] <= truth <= shown["high"])
    assert sum(covered) >= 13
