"""Which questions somebody is asked next: inside one transaction, so that two people get the same one on purpose only.

The kind of each new question (random, shared or chosen) is drawn by chance, since the random ones measure quality.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from closefar.label.task import Purpose, Task

LEASE = 600.0  # seconds that a question is kept for somebody; an answer takes seconds, a phone call some minutes

_MOST_TRIES = 1000  # draws of a question that was not asked: one is found even if only 1% of all questions are left
_MOST_OPEN = 100  # questions of somebody, the latest, that may still be open; a page holds a few

# Whether a question has an answer that stands, by those of whom a condition holds.
_ANSWERED = "EXISTS (SELECT 1 FROM standing AS e WHERE e.question = q.id AND {who})"
# The same two things, or for triplets the same reference and the same two others, whichever side they are on.
_SAME = (
    "((q.first = :a AND q.second = :b AND q.third IS :c) OR (q.first = :d AND q.second = :e AND q.third IS :f))"
    " AND EXISTS (SELECT 1 FROM handed AS h WHERE h.question = q.id AND {condition})"
)


@dataclass(frozen=True)
class Assigned:
    """A question that somebody holds: its number, the rows of its things, and why it is asked."""

    question: int
    things: tuple[int, ...]
    purpose: Purpose


def assign_review(connection: sqlite3.Connection, annotator: str, question: int, *, now: float) -> Assigned | None:
    """Return a question that somebody has answered, to be answered once more; None if there is no such answer."""
    is_answered = _ANSWERED.format(who="e.annotator = :who")
    row = connection.execute(
        f"SELECT q.first, q.second, q.third FROM questions AS q WHERE q.id = :question AND {is_answered}",
        {"question": question, "who": annotator},
    ).fetchone()
    if row is None:
        return None
    connection.execute(
        "UPDATE handed SET purpose = ?, until = ? WHERE question = ? AND annotator = ?",
        (Purpose.review.value, now + LEASE, question, annotator),
    )
    return Assigned(question, _things(row), Purpose.review)


def was_shown(connection: sqlite3.Connection, annotator: str, row: int) -> bool:
    """Whether somebody was ever asked about a point."""
    found = connection.execute(
        "SELECT 1 FROM handed AS h JOIN questions AS q ON q.id = h.question "
        "WHERE h.annotator = :who AND :row IN (q.first, q.second, q.third) LIMIT 1",
        {"who": annotator, "row": row},
    )
    return found.fetchone() is not None


def was_asked(connection: sqlite3.Connection, things: Sequence[int], condition: str = "1", **values: Any) -> bool:
    """Whether somebody was asked about the same things, on whichever side they were, and a condition holds of that."""
    *reference, one, other = things
    sides = (*padded(things), *padded((*reference, other, one)))
    found = connection.execute(
        f"SELECT 1 FROM questions AS q WHERE {_SAME.format(condition=condition)} LIMIT 1",
        {**dict(zip("abcdef", sides, strict=True)), **values},
    )
    return found.fetchone() is not None


def padded(things: Sequence[int]) -> tuple[int | None, ...]:
    """The things of a question as its three columns in the file."""
    return (*map(int, things), None)[:3]  # numpy's integers would become bytes


@dataclass(frozen=True)
class Asking:
    """One request of one annotator for questions, at a time `now` in seconds since 1970."""

    connection: sqlite3.Connection
    task: Task
    n_points: int
    annotator: str
    now: float
    rng: np.random.Generator

    def questions(self, n: int) -> list[Assigned]:
        """Return `n` questions: first those held and not answered, then new ones; fewer if there are no more.

        Nobody else gets them for the time of a lease.
        """
        found = self._held(n)
        for each in found:
            self._take(each)
        while len(found) < n and (new := self._draw()) is not None:
            self._take(new)
            found.append(new)
        return found

    def _held(self, n: int) -> list[Assigned]:
        """What this annotator was asked and has not answered, unless it has gone to somebody else meanwhile."""
        mine = _ANSWERED.format(who="e.annotator = :who")
        others = _ANSWERED.format(who="e.annotator <> :who")
        rows = self.connection.execute(
            f"""
            SELECT q.id, h.purpose, q.first, q.second, q.third
            FROM (SELECT * FROM handed WHERE annotator = :who ORDER BY at DESC LIMIT {_MOST_OPEN}) AS h
            JOIN questions AS q ON q.id = h.question
            WHERE h.purpose <> 'review' AND NOT {mine} AND (h.until >= :now OR h.purpose = 'shared' OR NOT (
                {others} OR EXISTS (
                    SELECT 1 FROM handed AS o WHERE o.question = q.id AND o.annotator <> :who AND o.until >= :now)))
            ORDER BY h.at, q.id LIMIT :n
            """,
            {"who": self.annotator, "now": self.now, "n": n},
        ).fetchall()
        return [Assigned(question, _things(things), Purpose(purpose)) for question, purpose, *things in rows]

    def _take(self, new: Assigned) -> None:
        """Keep a question for this annotator from now on."""
        self.connection.execute(
            "INSERT INTO handed (question, annotator, purpose, at, until) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (question, annotator) DO UPDATE SET until = excluded.until",
            (new.question, self.annotator, new.purpose.value, self.now, self.now + LEASE),
        )

    def _draw(self) -> Assigned | None:
        """A new question; the kind that is drawn gives way to another only where there is none of it."""
        chance = float(self.rng.random())
        shared_share = self.task.shared_share if self.task.is_shared else 0.0
        kinds: list[Callable[[], Assigned | None]] = [self._chosen, self._random, self._shared, self._abandoned]
        if chance < self.task.random_share:
            kinds.insert(0, self._random)
        elif chance < self.task.random_share + shared_share:
            kinds.insert(0, self._shared)
        return next((found for kind in kinds if (found := kind()) is not None), None)

    def _chosen(self) -> Assigned | None:
        """The next question of the latest batch that nobody holds or has answered."""
        if self.task.method == "random":
            return None
        return self._first_free(
            "SELECT id, first, second, third FROM questions WHERE chosen <> 'random' AND batch = "
            "(SELECT batch FROM questions WHERE chosen <> 'random' ORDER BY id DESC LIMIT 1) ORDER BY id"
        )

    def _random(self) -> Assigned | None:
        """A question drawn uniformly among those that nobody was ever asked."""
        for _ in range(_MOST_TRIES):
            things = tuple(self.rng.choice(self.n_points, self.task.n_things, replace=False).tolist())
            if not was_asked(self.connection, things):
                break
        else:
            return None
        number = self.connection.execute(
            "INSERT INTO questions (first, second, third, chosen, batch) "
            "VALUES (?, ?, ?, 'random', (SELECT coalesce(max(id), 0) FROM findings))",
            padded(things),
        ).lastrowid
        return Assigned(int(number or 0), things, Purpose.first)

    def _shared(self) -> Assigned | None:
        """A random question that somebody else has answered, of those that the fewest people were asked."""
        if not self.task.is_shared:
            return None
        others = _ANSWERED.format(who="e.annotator <> :who AND e.answer IS NOT NULL")
        row = self.connection.execute(
            f"""
            SELECT q.id, q.first, q.second, q.third FROM questions AS q
            WHERE q.chosen = 'random' AND {others}
              AND NOT EXISTS (SELECT 1 FROM handed AS h WHERE h.question = q.id AND h.annotator = :who)
            ORDER BY (SELECT count(*) FROM handed AS h WHERE h.question = q.id), q.id LIMIT 1
            """,
            {"who": self.annotator},
        ).fetchone()
        return None if row is None else Assigned(row[0], _things(row[1:]), Purpose.shared)

    def _abandoned(self) -> Assigned | None:
        """A question that somebody left unanswered, once there are no others."""
        return self._first_free(
            f"SELECT q.id, q.first, q.second, q.third FROM questions AS q WHERE NOT {_ANSWERED.format(who='1')} "
            "AND EXISTS (SELECT 1 FROM handed AS h WHERE h.question = q.id) ORDER BY q.id"
        )

    def _first_free(self, query: str) -> Assigned | None:
        """The first of some questions about things that nobody holds or has answered a question about."""
        is_taken = f"(h.until >= :now OR {_ANSWERED.format(who='1')})"
        for question, *columns in self.connection.execute(query).fetchall():
            if not was_asked(self.connection, _things(columns), is_taken, now=self.now):
                return Assigned(question, _things(columns), Purpose.first)
        return None


def _things(columns: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(int(row) for row in columns if row is not None)
