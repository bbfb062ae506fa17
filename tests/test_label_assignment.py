"""Who is asked what: shares of random and shared questions, leases, and nothing asked twice by accident."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from closefar.label import ANSWERS, Purpose, Task, TaskKind, read_label_points
from closefar.label.assignment import LEASE, Asking, Assigned, assign_review
from closefar.label.storage import NewEvent, Store
from label_client import PAIRS, new_key, number_table

TRIPLETS = replace(PAIRS, kind=TaskKind.triplets, answers=ANSWERS[TaskKind.triplets])


class Desk:
    """A file of judgements whose clock and chance a test decides."""

    def __init__(self, folder: Path, task: Task, n_points: int) -> None:
        path = folder / "points.csv"
        path.write_text(number_table(n_points))
        self.task, self.n_points, self.now = task, n_points, 1000.0
        self.rng = np.random.default_rng(5)
        self.store = Store(folder / "judgements.sqlite", task, read_label_points(path))

    def ask(self, annotator: str, n: int = 1) -> list[Assigned]:
        def job(connection: Any) -> list[Assigned]:
            return Asking(connection, self.task, self.n_points, annotator, self.now, self.rng).questions(n)

        return self.store.run(job)

    def answer(self, annotator: str, question: int, answer: str | None = "far") -> str:
        event = NewEvent(new_key(), "answer", question, answer, None, 1.0)
        (receipt,) = self.store.record(annotator, [event], self.now)
        assert receipt.recorded, receipt
        return event.key

    def undo(self, annotator: str, question: int, key: str) -> None:
        (receipt,) = self.store.record(annotator, [NewEvent(new_key(), "undo", question, None, key)], self.now)
        assert receipt.recorded, receipt

    def judge(self, annotator: str) -> Assigned:
        (found,) = self.ask(annotator)
        self.answer(annotator, found.question, self.task.answers[0])
        return found

    def choose(self, questions: list[tuple[int, ...]]) -> None:
        """Have a fit choose questions."""
        self.store.add_findings({}, 0, questions, "information")

    def how_chosen(self) -> dict[int, str]:
        return dict(self.store.run(lambda each: each.execute("SELECT id, chosen FROM questions").fetchall()))


MakeDesk = Callable[..., Desk]


@pytest.fixture
def make_desk(tmp_path: Path) -> Iterator[MakeDesk]:
    made: list[Desk] = []

    def make(task: Task = PAIRS, n_points: int = 40, **changes: Any) -> Desk:
        made.append(Desk(tmp_path, replace(task, **changes), n_points))
        return made[-1]

    yield make
    for desk in made:
        desk.store.close()


def same(things: tuple[int, ...]) -> tuple[int, ...]:
    """The same for the same question, whichever side things are on."""
    return tuple(sorted(things)) if len(things) == 2 else (things[0], *sorted(things[1:]))


@pytest.mark.parametrize("task", [PAIRS, TRIPLETS], ids=["pairs", "triplets"])
def test_questions_are_of_different_things_and_never_the_same(make_desk: MakeDesk, task: Task) -> None:
    desk = make_desk(task, n_points=12)
    found = [desk.judge("owner") for _ in range(60)]
    assert all(len(set(each.things)) == task.n_things for each in found)
    assert len({same(each.things) for each in found}) == 60
    assert {each.purpose for each in found} == {Purpose.first}


def test_a_reload_gives_the_same_questions(make_desk: MakeDesk) -> None:
    desk = make_desk()
    first = desk.ask("owner", 3)
    assert desk.ask("owner", 3) == first
    desk.answer("owner", first[0].question)
    assert desk.ask("owner", 3)[:2] == first[1:]


def test_an_undone_question_comes_again_at_once(make_desk: MakeDesk) -> None:
    desk = make_desk()
    first, second = desk.ask("owner", 2)
    key = desk.answer("owner", first.question)
    desk.undo("owner", first.question, key)
    assert desk.ask("owner", 2) == [first, second]


def test_two_people_never_get_the_same_by_accident(make_desk: MakeDesk) -> None:
    desk = make_desk(annotators=("ana", "ben"), shared_share=0.0, n_points=30)
    desk.choose([(row, row + 1) for row in range(20)])
    asked: dict[str, list[tuple[int, ...]]] = {"ana": [], "ben": []}
    for _ in range(40):
        for name, seen in asked.items():
            seen += [same(each.things) for each in desk.ask(name, 3)]
            desk.answer(name, desk.ask(name, 3)[0].question)
    assert not set(asked["ana"]) & set(asked["ben"])


def test_two_people_at_once_get_different_questions(make_desk: MakeDesk) -> None:
    names = tuple(f"p{number}" for number in range(8))
    desk = make_desk(annotators=names, shared_share=0.0, random_share=0.0)
    desk.choose([(row, row + 1) for row in range(39)])
    found: dict[str, list[Assigned]] = {}
    threads = [threading.Thread(target=lambda each=name: found.update({each: desk.ask(each, 3)})) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each.question for handed in found.values() for each in handed}) == 24
    assert len({same(each.things) for handed in found.values() for each in handed}) == 24


def test_an_expired_lease_goes_to_somebody_else(make_desk: MakeDesk) -> None:
    desk = make_desk(annotators=("ana", "ben"), random_share=0.0, shared_share=0.0)
    desk.choose([(0, 1)])
    (hers,) = desk.ask("ana")
    assert same(desk.ask("ben")[0].things) != (0, 1)
    desk.answer("ben", desk.ask("ben")[0].question)
    desk.now += LEASE + 1
    assert desk.ask("ben") == [hers]
    assert desk.ask("ana") != [hers]  # it is his now
    desk.answer("ana", hers.question)  # yet her answer, kept by a page that was away, counts as well
    desk.answer("ben", hers.question)


def test_an_expired_lease_that_nobody_took_is_renewed(make_desk: MakeDesk) -> None:
    desk = make_desk(annotators=("ana", "ben"))
    first = desk.ask("ana", 2)
    desk.now += LEASE + 1
    assert desk.ask("ana", 2) == first
    assert not {each.question for each in desk.ask("ben", 10)} & {each.question for each in first}


def test_the_shares_are_those_of_the_task(make_desk: MakeDesk) -> None:
    """Over 600 questions, binomial: each share is within four standard errors of what was asked for."""
    desk = make_desk(annotators=("ana", "ben"), random_share=0.2, shared_share=0.15, n_points=200)
    rows = iter(itertools.combinations(range(200), 2))
    found, n = list[Assigned](), 0
    for _ in range(6):
        desk.choose(list(itertools.islice(rows, 150)))
        for _ in range(50):
            for name in ("ana", "ben"):
                handed = desk.judge(name)
                n += 1
                found.append(handed)
    chosen = desk.how_chosen()
    counts = Counter("shared" if each.purpose is Purpose.shared else chosen[each.question] for each in found)
    for kind, share in (("random", 0.2), ("shared", 0.15)):
        assert abs(counts[kind] / n - share) < 4 * np.sqrt(share * (1 - share) / n), counts


def test_shared_questions_are_random_ones_that_another_has_answered(make_desk: MakeDesk) -> None:
    desk = make_desk(annotators=("ana", "ben", "cem"), random_share=0.0, shared_share=1.0)
    answered = [desk.judge("ana") for _ in range(5)]  # random: there is nothing else yet
    desk.choose([(0, 1)])
    his = [desk.judge("ben") for _ in range(5)]
    assert {each.question for each in his} == {each.question for each in answered}
    assert {each.purpose for each in his} == {Purpose.shared}
    unsure = desk.ask("cem")[0]
    assert unsure.question in {each.question for each in answered}
    assert desk.judge("ben").purpose is Purpose.first


def test_a_question_is_shared_by_few_before_it_is_shared_by_many(make_desk: MakeDesk) -> None:
    desk = make_desk(annotators=("ana", "ben", "cem"), random_share=0.0, shared_share=1.0)
    first, second = desk.judge("ana"), desk.judge("ana")
    assert desk.judge("ben").question == first.question
    assert desk.judge("cem").question == second.question


def test_cant_say_is_not_shared(make_desk: MakeDesk) -> None:
    desk = make_desk(annotators=("ana", "ben"), random_share=0.0, shared_share=1.0)
    (hers,) = desk.ask("ana")
    desk.answer("ana", hers.question, None)
    assert desk.ask("ben")[0].purpose is Purpose.first


@pytest.mark.parametrize("task", [PAIRS, TRIPLETS], ids=["pairs", "triplets"])
def test_random_questions_are_uniform(make_desk: MakeDesk, task: Task) -> None:
    """Each of the questions of a small table comes first equally often; so do the sides."""
    desk = make_desk(task, n_points=5)
    counts: Counter[tuple[int, ...]] = Counter()

    def job(connection: Any) -> None:
        for _ in range(3000):
            connection.execute("SAVEPOINT draw")
            (found,) = Asking(connection, task, 5, "owner", 0.0, desk.rng).questions(1)
            counts[found.things] += 1
            connection.execute("ROLLBACK TO draw")

    desk.store.run(job)
    n_questions = 20 if task is PAIRS else 60  # in order
    assert len(counts) == n_questions
    assert chisquare(list(counts.values())).pvalue > 1e-4


def test_a_nearly_exhausted_table_is_still_drawn_uniformly(make_desk: MakeDesk) -> None:
    """Most draws are of questions that were asked already; of the others, each is as likely as the rest."""
    desk = make_desk(n_points=8)
    asked = {same(desk.judge("owner").things) for _ in range(24)}
    left = set(itertools.combinations(range(8), 2)) - asked
    counts: Counter[tuple[int, ...]] = Counter()

    def job(connection: Any) -> None:
        for _ in range(400):
            connection.execute("SAVEPOINT draw")
            (found,) = Asking(connection, desk.task, 8, "owner", 0.0, desk.rng).questions(1)
            counts[same(found.things)] += 1
            connection.execute("ROLLBACK TO draw")

    desk.store.run(job)
    assert set(counts) == left
    assert chisquare(list(counts.values())).pvalue > 1e-4


def test_a_table_that_is_judged_completely_has_no_more_questions(make_desk: MakeDesk) -> None:
    desk = make_desk(n_points=5)
    assert len({same(desk.judge("owner").things) for _ in range(10)}) == 10
    assert desk.ask("owner") == []


def test_what_somebody_left_is_asked_in_the_end(make_desk: MakeDesk) -> None:
    desk = make_desk(annotators=("ana", "ben"), n_points=3, shared_share=0.0)
    hers = desk.ask("ana", 2)
    (his,) = desk.ask("ben", 3)
    desk.answer("ben", his.question, None)
    assert desk.ask("ben", 3) == []
    desk.now += LEASE + 1
    assert desk.ask("ben", 3) == hers


def test_chosen_questions_are_those_of_the_latest_batch(make_desk: MakeDesk) -> None:
    desk = make_desk(random_share=0.0)
    desk.choose([(0, 1), (2, 3)])
    assert desk.judge("owner").things == (0, 1)
    desk.choose([(4, 5), (1, 0), (6, 7)])
    assert [desk.judge("owner").things for _ in range(2)] == [(4, 5), (6, 7)]
    last = desk.judge("owner").question
    assert desk.how_chosen()[last] == "random"


def test_a_random_question_may_be_one_that_was_chosen_but_not_asked(make_desk: MakeDesk) -> None:
    """Otherwise the random ones would be a biased sample; the chosen one is then not asked again."""
    desk = make_desk(random_share=1.0, n_points=3)
    desk.choose([(0, 1), (0, 2), (1, 2)])
    assert len({same(desk.judge("owner").things) for _ in range(3)}) == 3
    assert desk.ask("owner") == []


def test_with_random_choice_every_question_is_random(make_desk: MakeDesk) -> None:
    desk = make_desk(method="random", random_share=0.0)
    desk.store.add_findings({}, 0, [(0, 1)], "random")
    questions = [desk.judge("owner").question for _ in range(20)]
    assert {desk.how_chosen()[each] for each in questions} == {"random"}


def test_a_review_is_of_an_own_answer_and_is_not_handed_out_by_itself(make_desk: MakeDesk) -> None:
    desk = make_desk(annotators=("ana", "ben"))
    hers = desk.judge("ana")

    def review(name: str) -> Assigned | None:
        return desk.store.run(lambda each: assign_review(each, name, hers.question, now=desk.now))

    assert review("ben") is None
    assert review("ana") == replace(hers, purpose=Purpose.review)
    assert hers.question not in {each.question for each in desk.ask("ana", 5)}
    desk.answer("ana", hers.question)
