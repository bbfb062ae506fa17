"""What a labelling session finds: every key always there, plain JSON, and right."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from closefar.label import ANSWERS, Task, TaskKind
from closefar.label.findings import (
    Given,
    doubtful,
    draw_questions,
    learn,
    learned_from,
    measures_quality,
    next_questions,
    nothing_found,
    with_slips,
)
from closefar.label.findings import findings as findings_of
from closefar.tables import RecordedAnswers

N_POINTS = 60
LEVELS = ("1", "2", "3", "4")
NAMES = ("age", "weight", "height")


def findings(answers, features, feature_names, task, previous=None):
    given = Given.of(answers, features, task)
    return findings_of(answers, given, learned_from(given, task), feature_names, task, previous)


def make_task(kind="pairs", annotators=("owner",), **more):
    answers = LEVELS if kind == "levels" else ANSWERS[TaskKind(kind)]
    return Task(TaskKind(kind), "Alike?", "", answers, annotators=annotators, **more)


def recorded(index, answers, **columns):
    """Answers as the file has them: first answers of the owner to random questions unless `columns` say otherwise."""
    n = len(index)
    texts = {"annotator": "owner", "chosen": "random", "purpose": "first"}
    found = {
        "first": index[:, 0],
        "second": index[:, 1],
        "third": index[:, 2] if index.shape[1] == 3 else None,
        "answer": np.array(answers, dtype=object),
        "original": np.array(answers, dtype=object),
        "reviewed": np.zeros(n, dtype=bool),
        "seconds": np.full(n, 2.0),
        "at": np.arange(float(n)),
        "question": np.arange(1, n + 1),
        "ids": np.arange(N_POINTS).astype(str).astype(object),
        "about": {},
        "n_events": n,
        **{name: np.full(n, text, dtype=object) for name, text in texts.items()},
        **columns,
    }
    return RecordedAnswers(**found)


def simulate(kind="pairs", n=150, *, wrong=0.05, seed=0, n_features=3):
    """A task, features, and a session in which the first column alone matters, apart from some wrong answers."""
    rng = np.random.default_rng(seed)
    task, features = make_task(kind), rng.standard_normal((N_POINTS, n_features))
    index = draw_questions(N_POINTS, np.empty((0, task.n_things), dtype=int), task, 3 * n, rng)[:n]
    gaps = [np.abs(features[index[:, 0], 0] - features[index[:, k], 0]) for k in range(1, task.n_things)]
    k = len(task.answers)
    codes = (
        (gaps[0] > gaps[1]) if kind == "triplets" else np.digitize(gaps[0], np.quantile(gaps[0], np.arange(1, k) / k))
    )
    is_wrong = rng.random(n) < wrong
    codes = np.where(is_wrong, (k - 1) - codes.astype(int), codes.astype(int))
    return task, features, recorded(index, np.array(task.answers, dtype=object)[codes]), is_wrong


@pytest.mark.parametrize("kind", list(TaskKind))
def test_a_session_is_told_in_plain_json(kind):
    task, features, answers, _ = simulate(kind)
    found = findings(answers, features, NAMES, task)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert list(found) == list(nothing_found(task, ""))
    assert found["status"] == ""
    assert (found["n_answers"], found["n_random"], found["n_unsure"]) == (150, 140, 0)
    assert found["quality"]["low"] < found["quality"]["agreement"] < found["quality"]["high"]
    assert found["quality"]["agreement"] > found["quality"]["baseline"] + 0.2
    assert found["directions"][0]["weights"][0][0] == "age"
    assert found["directions"][0]["share"] > 0.7
    assert len(found["map"]["rows"]) == N_POINTS
    assert found["annotators"][0]["n"] == 150
    assert found["annotators"][0]["seconds"] == 2.0


def everything_the_same(task, features, answers):
    return task, features, replace(answers, answer=np.full(len(answers), task.answers[0], dtype=object))


def nothing_sure(task, features, answers):
    return task, features, replace(answers, answer=np.full(len(answers), None), original=np.full(len(answers), None))


def first_rows(n):
    def cut(task, features, answers):
        columns = {
            name: value[:n] for name, value in vars(answers).items() if isinstance(value, np.ndarray) and name != "ids"
        }
        return task, features, replace(answers, **columns)

    return cut


def constant_columns(task, features, answers):
    return task, np.zeros_like(features), answers


def one_constant_column(task, features, answers):
    return task, features * [1.0, 0.0, 1.0], answers


def more_columns_than_answers(task, features, answers):
    wide = np.hstack([features, np.random.default_rng(1).standard_normal((len(features), 97))])
    return first_rows(30)(task, wide, answers)


def separable(task, features, answers):
    gap = np.abs(features[answers.first, 0] - features[answers.second, 0])
    if task.kind is TaskKind.triplets:
        codes = (gap > np.abs(features[answers.first, 0] - features[answers.third, 0])).astype(int)
    else:
        codes = np.digitize(gap, np.quantile(gap, np.arange(1, len(task.answers)) / len(task.answers)))
    said = np.array(task.answers, dtype=object)[codes]
    return task, features, replace(answers, answer=said, original=said)


def at_random(task, features, answers):
    said = np.random.default_rng(3).choice(np.array(task.answers, dtype=object), len(answers))
    return task, features, replace(answers, answer=said, original=said)


def equal_things(task, features, answers):
    """Two rows with the same values: no metric tells them apart."""
    features = features.copy()
    features[answers.second[:3]] = features[(answers.second if answers.third is None else answers.third)[:3]]
    return task, features, answers


def huge_units(task, features, answers):
    return task, features * [1e9, 1e-9, 1.0], answers


@pytest.mark.parametrize("kind", list(TaskKind))
@pytest.mark.parametrize(
    ("change", "status"),
    [
        (first_rows(0), "Learning starts after about 20 answers: 0 so far."),
        (first_rows(1), "Learning starts after about 20 answers: 1 so far."),
        (nothing_sure, "Learning starts after about 20 answers: 0 so far."),
        (constant_columns, "Nothing can be learned"),
        (one_constant_column, ""),
        (more_columns_than_answers, None),
        (separable, ""),
        (at_random, None),
        (huge_units, ""),
        (equal_things, ""),
        (everything_the_same, None),
    ],
)
def test_few_odd_and_useless_answers_are_told_in_a_sentence(kind, change, status):
    task, features, answers = change(*simulate(kind)[:3])
    found = findings(answers, features, [f"column {k}" for k in range(features.shape[1])], task)
    json.dumps(found, allow_nan=False)
    assert list(found) == list(nothing_found(task, ""))
    assert found["plan"]["reading"]
    if status is not None:
        assert found["status"].startswith(status)
        assert status or not found["status"]


@pytest.mark.parametrize("kind", list(TaskKind))
def test_answers_by_the_plain_distance_are_not_lost(kind):
    """All of many columns count the same, and there are few answers: the page shows a metric that is about as good."""
    rng = np.random.default_rng(2)
    task, features = make_task(kind), rng.standard_normal((N_POINTS, 40))
    index = draw_questions(N_POINTS, np.empty((0, task.n_things), dtype=int), task, 400, rng)[:90]
    squared = [np.sum((features[index[:, 0]] - features[index[:, k]]) ** 2, axis=1) for k in range(1, task.n_things)]
    score = (squared[0] - squared[1] if kind is TaskKind.triplets else squared[0]) + rng.logistic(0.0, 5.0, 90)
    cuts = (
        [0.0] if kind is TaskKind.triplets else np.quantile(score, np.arange(1, len(task.answers)) / len(task.answers))
    )
    answers = recorded(index, np.array(task.answers, dtype=object)[np.digitize(score, cuts)])
    found = findings(answers, features, [f"column {k}" for k in range(40)], task)
    assert len(found["directions"]) > 0
    assert found["map"] is not None
    assert found["quality"]["agreement"] > found["quality"]["baseline"]


def test_the_page_says_when_it_shows_the_plain_distance():
    task, features, answers, _ = simulate()
    given = Given.of(answers, features, task)
    learned = learn(given, task)
    fit = learned.learner.fit_
    learned.learner.fit_ = replace(fit, choice=replace(fit.choice, is_plain=True))
    found = findings_of(answers, given, learned, NAMES, task, None)
    assert found["status"].startswith(
        "The answers so far show no metric that is clearly better than the plain distance"
    )


def test_answers_that_no_distance_explains_show_none():
    task, features, answers = separable(*simulate(n=150)[:3])
    turned = np.where(answers.answer == "far", "close", "far").astype(object)
    found = findings(replace(answers, answer=turned, original=turned), features[:, :1], NAMES[:1], task)
    assert found["status"] == "The answers so far do not depend on any distance between the things."
    assert (found["directions"], found["map"]) == ([], None)


def test_equal_answers_to_pairs_teach_nothing():
    task, features, answers = everything_the_same(*simulate()[:3])
    status = findings(answers, features, NAMES, task)["status"]
    assert status == "All 150 answers so far are 'close'. Learning starts once there are two different answers."


@pytest.mark.parametrize("kind", list(TaskKind))
def test_planted_wrong_answers_are_doubted(kind):
    task, features, answers, is_wrong = simulate(kind, 300, wrong=0.04, seed=5)
    body = findings(answers, features, NAMES, task)
    found = body["doubtful"]
    questions = answers.question[is_wrong].tolist()
    assert 4 <= len(found) <= 20
    assert np.mean([each["question"] in questions for each in found[:8]]) >= 0.75
    assert found[0]["probability"] >= found[-1]["probability"]
    assert found[0]["reading"].startswith("You said ")
    assert body["no_doubts"] == ""
    places = answers.things[np.array([each["question"] for each in found]) - 1]
    assert [each["things"] for each in found] == answers.ids[places].tolist()


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("pairs", "You said {answer}; the metric says {percent} {expected}."),
        ("levels", "You said {answer}; the metric says {expected} ({percent})."),
        ("triplets", "You said that the {answer} one is nearer; the metric says {percent} the {expected} one."),
    ],
)
def test_a_doubt_is_told_as_a_person_would(kind, told):
    task, features, answers, _ = simulate(kind, wrong=0.04)
    first = findings(answers, features, NAMES, task)["doubtful"][0]
    percent = "more than 99%" if first["probability"] > 0.99 else f"{first['probability']:.0%}"
    assert first["reading"] == told.format(percent=percent, **first)


def test_levels_next_to_each_other_are_confused_more_often_than_others():
    task, features, answers, _ = simulate("levels", 150, wrong=0.0)
    given = replace(Given.of(answers, features, task), codes=np.append([1, 0, 0, 3], np.zeros(146, dtype=int)))
    by_fits = np.tile([0.97, 0.01, 0.01, 0.01], (150, 1))
    by_fits[:4] = [[0.0, 0.1, 0.7, 0.2], [0.1, 0.2, 0.6, 0.1], [0.05, 0.95, 0.0, 0.0], [0.0, 0.0, 0.3, 0.7]]
    found = doubtful(given, by_fits, task, answers.ids)
    assert {each["question"] for each in found} == set(given.questions[[1, 2]].tolist())


@pytest.mark.parametrize("kind", list(TaskKind))
@pytest.mark.parametrize("n", [60, 300])
def test_a_metric_that_explains_nothing_doubts_nobody(kind, n):
    task, features, answers = at_random(*simulate(kind, n)[:3])
    found = findings(answers, features, NAMES, task)
    assert found["quality"]["low"] <= found["quality"]["baseline"]
    assert found["doubtful"] == []
    assert found["no_doubts"].startswith("No answer is doubted yet: it is not clear whether the metric is better")


def test_nobody_is_doubted_before_the_quality_is_known():
    task, features, answers, _ = simulate(n=60, wrong=0.1)
    chosen = np.where(np.arange(60) < 15, "random", "information").astype(object)
    found = findings(replace(answers, chosen=chosen), features, NAMES, task)
    assert (found["quality"], found["doubtful"]) == (None, [])
    assert "the quality of the metric is measured after" in found["no_doubts"]


def test_doubts_allow_for_slips():
    """Of answers that a metric is sure of, a tenth are the other one: so it may be sure by nine tenths only."""
    sure = np.tile([0.999, 0.001], (2000, 1))
    codes = (np.arange(2000) % 10 == 0).astype(int)
    assert with_slips(sure, codes)[0, 0] == pytest.approx(0.9, abs=0.002)
    assert with_slips(sure, np.zeros(2000, dtype=int))[0, 0] == pytest.approx(0.998, abs=0.001)
    assert with_slips(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1, 1])).min() > 0.0  # no answer is impossible


def test_probabilities_that_are_right_stay_as_they_are():
    rng = np.random.default_rng(0)
    far = rng.random(20_000)
    given = np.column_stack([1.0 - far, far])
    found = with_slips(given, (rng.random(20_000) < far).astype(int))
    np.testing.assert_allclose(found, given, atol=0.01)


def test_the_map_does_not_jump():
    task, features, answers, _ = simulate(n=200)
    before = findings(first_rows(150)(task, features, answers)[2], features, NAMES, task)
    turned = {**before["map"], "x": before["map"]["y"], "y": [-value for value in before["map"]["x"]]}
    after = findings(answers, features, NAMES, task, {**before, "map": turned})["map"]
    places, old = (np.column_stack([each["x"], each["y"]]) for each in (after, turned))
    assert np.sqrt(np.mean(np.sum((places - old) ** 2, axis=1))) < 0.5
    assert np.sqrt(np.mean(np.sum(places**2, axis=1))) == pytest.approx(1.0, abs=1e-3)


def test_a_map_shows_a_sample_of_many_points():
    rng = np.random.default_rng(0)
    task, features, answers, _ = simulate()
    many = np.vstack([features, rng.standard_normal((2000, 3))])
    answers = replace(answers, ids=np.array([f"P{row:04}" for row in range(2060)], dtype=object))
    first, second = (findings(answers, many, NAMES, task)["map"] for _ in range(2))
    assert len(first["rows"]) == 400
    assert first["ids"] == [f"P{row:04}" for row in first["rows"]]
    assert first == second


def two_people(kind, seed=0, n=120):
    """Two people who answered the same questions."""
    task, features, answers, _ = simulate(kind, n, seed=seed)
    rng = np.random.default_rng(seed)
    task = replace(task, annotators=("ana", "ben"))
    changed = rng.random(n) < 0.2
    other = np.where(changed, rng.choice(np.array(task.answers, dtype=object), n), answers.answer)
    index = np.vstack([answers.things] * 2)
    people = np.repeat(np.array(["ana", "ben"], dtype=object), n)
    return (
        task,
        features,
        recorded(
            index,
            np.append(answers.answer, other),
            annotator=people,
            purpose=np.repeat(np.array(["first", "shared"], dtype=object), n),
            question=np.tile(answers.question, 2),
        ),
    )


@pytest.mark.parametrize("kind", list(TaskKind))
def test_kappa_is_that_of_scikit_learn(kind):
    task, features, answers = two_people(kind)
    found = findings(answers, features, NAMES, task)
    ana, ben = np.split(answers.answer.astype(str), 2)
    expected = cohen_kappa_score(ana, ben, weights="quadratic" if kind is TaskKind.levels else None)
    assert found["kappa"]["kappa"] == pytest.approx(expected)
    assert found["kappa"]["low"] < expected < found["kappa"]["high"]
    assert found["kappa"]["n"] == 120
    assert [each["kappa"] for each in found["annotators"]] == pytest.approx([expected, expected])
    assert [each["n_shared"] for each in found["annotators"]] == [120, 120]
    assert found["n_random"] == 110


def test_people_who_always_agree_have_an_interval():
    task, features, answers = two_people("pairs")
    same = np.tile(answers.answer[:120], 2)
    kappa = findings(replace(answers, answer=same, original=same), features, NAMES, task)["kappa"]
    assert kappa["kappa"] == kappa["high"] == 1.0
    assert 0.9 < kappa["low"] < 1.0


@pytest.mark.parametrize("kind", [TaskKind.pairs, TaskKind.levels])
def test_answers_at_random_are_noticed(kind):
    task, features, answers, _ = simulate(kind, 400, seed=2)
    people = np.where(np.arange(400) % 4 == 0, "ben", "ana").astype(object)
    said = answers.answer.copy()
    said[people == "ben"] = np.random.default_rng(4).choice(np.array(task.answers, dtype=object), 100)
    answers = replace(answers, annotator=people, answer=said, original=said)
    ana, ben = findings(answers, features, NAMES, replace(task, annotators=("ana", "ben")))["annotators"]
    assert (ana["name"], ana["n"], ben["n"]) == ("ana", 300, 100)
    assert "random" in ben["verdict"]
    assert "random" not in ana["verdict"]


def test_a_stricter_person_is_named():
    task, features, answers, _ = simulate(n=400, wrong=0.0, seed=3)
    people = np.where(np.arange(400) % 2 == 0, "ben", "ana").astype(object)
    gap = np.abs(features[answers.first, 0] - features[answers.second, 0])
    noise = 0.2 * np.random.default_rng(1).standard_normal(400)
    said = np.where(gap + noise > np.where(people == "ben", 1.6, 0.9), "far", "close").astype(object)
    answers = replace(answers, annotator=people, answer=said, original=said)
    ana, ben = findings(answers, features, NAMES, replace(task, annotators=("ana", "ben")))["annotators"]
    assert ben["strictness"] > 0.0 > ana["strictness"]


def test_a_projection_counts_answers_in_total():
    task, features, answers, _ = simulate(n=400, wrong=0.15, seed=1)
    plan = findings(answers, features, NAMES, replace(task, target_error=0.05))["plan"]
    assert plan["needed"] > 400
    assert plan["error"] > plan["target"] == 0.05
    assert "further questions are like those so far" in plan["reading"]


def asked_of(features, index, seed=0):
    """A session about these points, in which the first column matters."""
    gap = np.abs(features[index[:, 0], 0] - features[index[:, 1], 0])
    noise = 0.1 * np.random.default_rng(seed).standard_normal(len(gap))
    return recorded(index, np.where(gap + noise > np.median(gap), "far", "close").astype(object))


@pytest.mark.parametrize("method", ["information", "uncertainty"])
def test_the_next_questions_are_new(method):
    task, features = make_task(method=method), np.random.default_rng(0).standard_normal((12, 2))
    every = draw_questions(12, np.empty((0, 2), dtype=int), task, 20_000, np.random.default_rng(0))
    assert len(every) == 66
    chosen = next_questions(asked_of(features, every[:40]), features, task, 20, seed=1)
    assert len(set(chosen)) == 20
    assert not {tuple(sorted(each)) for each in chosen} & {tuple(sorted(each)) for each in every[:40].tolist()}
    assert len(next_questions(asked_of(features, every[:60]), features, task, 20, seed=1)) == 6
    assert next_questions(asked_of(features, every), features, task, 20, seed=1) == []


def test_nothing_is_chosen_where_questions_are_drawn():
    task, features, answers, _ = simulate()
    assert next_questions(answers, features, replace(task, method="random"), 20, seed=1) == []


def test_reserved_answers_do_not_guide_the_choice():
    """The answers that measure quality may be turned round without a change of the next questions."""
    task, features, answers, _ = simulate(n=120)
    chosen = np.where(np.arange(120) < 20, "random", np.where(np.arange(120) % 7 == 0, "random", "information"))
    answers = replace(answers, chosen=chosen.astype(object))
    reserved = measures_quality(answers, task)
    assert reserved.sum() == 10 + 15
    assert not reserved[:10].any()
    turned = np.where(answers.answer == "far", "close", "far").astype(object)
    others = replace(answers, answer=np.where(reserved, turned, answers.answer))
    others = replace(others, original=others.answer)
    first, second = (next_questions(each, features, task, 10, seed=1) for each in (answers, others))
    assert first == second
    guides = np.where(~reserved, turned, answers.answer)
    assert next_questions(replace(answers, answer=guides, original=guides), features, task, 10, seed=1) != first
