"""Which questions somebody is asked next: inside one transaction, so that two people get the same one on purpose only.

The kind of each new question (random, shared or chosen) is drawn by chance, since the random ones measure quality.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from closefar.label.task import Purpose, Task

LEASE = 600.0

_N_TRIES = 50
_N_RECENT = 100  # questions handed to somebody that may still be open; a page holds a few

# Whether a question has an answer that stands, of whom it says.
_ANSWERED = "EXISTS (SELECT 1 FROM standing AS e WHERE e.question = q.id AND {who})"
# The same two things, or for triplets the same reference and the same two others, whichever side they are on.
_SAME_PAIR = "(q.first = :a AND q.second = :b) OR (q.first = :b AND q.second = :a)"
_SAME_TRIPLET = "q.first = :a AND ((q.second = :b AND q.third = :c) OR (q.second = :c AND q.third = :b))"


@dataclass(frozen=True)
class Handed:
    """A question that somebody holds: its number, the rows of its things, and why it is asked."""

    question: int
    things: tuple[int, ...]
    purpose: Purpose


def hand_out(
    connection: sqlite3.Connection,
    task: Task,
    n_points: int,
    annotator: str,
    n: int,
    *,
    now: float,
    rng: np.random.Generator,
    lease: float = LEASE,
) -> list[Handed]:
    """Return `n` questions for somebody: first those held and not answered, then new ones; fewer if there are no more.

    Parameters
    ----------
    connection : sqlite3.Connection
        In a transaction that may write.
    task : Task
    n_points : int
    annotator : str
    n : int
    now : float
        Seconds since 1970.
    rng : Generator
    lease : float
        For how many seconds nobody else gets the same questions.
    """
    desk = _Desk(connection, task, n_points, annotator, now, rng)
    found = desk.held(n)
    connection.executemany(
        "UPDATE handed SET until = ? WHERE question = ? AND annotator = ?",
        [(now + lease, each.question, annotator) for each in found],
    )
    while len(found) < n:
        new = desk.draw()
        if new is None:
            break
        connection.execute(
            "INSERT INTO handed (question, annotator, purpose, at, until) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (question, annotator) DO UPDATE SET until = excluded.until",
            (new.question, annotator, new.purpose.value, now, now + lease),
        )
        found.append(new)
    return found


def hand_review(
    connection: sqlite3.Connection, annotator: str, question: int, *, now: float, lease: float = LEASE
) -> Handed | None:
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
        (Purpose.review.value, now + lease, question, annotator),
    )
    return Handed(question, _things(row), Purpose.review)


def is_shown(connection: sqlite3.Connection, annotator: str, row: int) -> bool:
    """Whether somebody was ever handed a question about a point."""
    found = connection.execute(
        "SELECT 1 FROM handed AS h JOIN questions AS q ON q.id = h.question "
        "WHERE h.annotator = :who AND :row IN (q.first, q.second, q.third) LIMIT 1",
        {"who": annotator, "row": row},
    )
    return found.fetchone() is not None


class _Desk:
    """One request of one annotator."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        task: Task,
        n_points: int,
        annotator: str,
        now: float,
        rng: np.random.Generator,
    ) -> None:
        self.connection = connection
        self.task = task
        self.n_points = n_points
        self.annotator = annotator
        self.now = now
        self.rng = rng

    def held(self, n: int) -> list[Handed]:
        """What this annotator was handed and has not answered, unless it has gone to somebody else meanwhile."""
        mine = _ANSWERED.format(who="e.annotator = :who")
        others = _ANSWERED.format(who="e.annotator <> :who")
        rows = self.connection.execute(
            f"""
            SELECT q.id, h.purpose, q.first, q.second, q.third
            FROM (SELECT * FROM handed WHERE annotator = :who ORDER BY at DESC LIMIT {_N_RECENT}) AS h
            JOIN questions AS q ON q.id = h.question
            WHERE h.purpose <> 'review' AND NOT {mine} AND (h.until >= :now OR h.purpose = 'shared' OR NOT (
                {others} OR EXISTS (
                    SELECT 1 FROM handed AS o WHERE o.question = q.id AND o.annotator <> :who AND o.until >= :now)))
            ORDER BY h.at, q.id LIMIT :n
            """,
            {"who": self.annotator, "now": self.now, "n": n},
        ).fetchall()
        return [Handed(question, _things(things), Purpose(purpose)) for question, purpose, *things in rows]

    def draw(self) -> Handed | None:
        """A new question; the kind that is drawn gives way to another only where there is none of it."""
        chance = float(self.rng.random())
        shared_share = self.task.shared_share if self.task.is_shared else 0.0
        kinds: tuple[Callable[[], Handed | None], ...]
        if chance < self.task.random_share:
            kinds = (self._random, self._chosen)
        elif chance < self.task.random_share + shared_share:
            kinds = (self._shared, self._chosen, self._random)
        else:
            kinds = (self._chosen, self._random)
        kinds = (*kinds, self._shared, self._abandoned)
        return next((found for kind in kinds if (found := kind()) is not None), None)

    def _chosen(self) -> Handed | None:
        """The next question of the latest batch that nobody holds or has answered."""
        if self.task.method == "random":
            return None
        rows = self.connection.execute(
            "SELECT id, first, second, third FROM questions WHERE chosen <> 'random' AND batch = "
            "(SELECT batch FROM questions WHERE chosen <> 'random' ORDER BY id DESC LIMIT 1) ORDER BY id"
        )
        for question, *things in rows.fetchall():
            if not self._is_taken(_things(things)):
                return Handed(question, _things(things), Purpose.first)
        return None

    def _random(self) -> Handed | None:
        """A question drawn uniformly among those that nobody was ever asked."""
        things = self._draw_things()
        if things is None:
            return None
        padded = (*things, None)[:3]
        batch = self.connection.execute("SELECT coalesce(max(id), 0) FROM findings").fetchone()[0]
        cursor = self.connection.execute(
            "INSERT INTO questions (first, second, third, chosen, batch) VALUES (?, ?, ?, 'random', ?)",
            (*padded, batch),
        )
        return Handed(int(cursor.lastrowid or 0), things, Purpose.first)

    def _shared(self) -> Handed | None:
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
        return None if row is None else Handed(row[0], _things(row[1:]), Purpose.shared)

    def _abandoned(self) -> Handed | None:
        """A question that somebody left unanswered, once there are no others."""
        anyone = _ANSWERED.format(who="1")
        rows = self.connection.execute(
            f"""
            SELECT q.id, q.first, q.second, q.third FROM questions AS q
            WHERE NOT {anyone} AND EXISTS (SELECT 1 FROM handed AS h WHERE h.question = q.id) ORDER BY q.id
            """
        )
        for question, *things in rows.fetchall():
            if not self._is_taken(_things(things)):
                return Handed(question, _things(things), Purpose.first)
        return None

    def _is_taken(self, things: tuple[int, ...]) -> bool:
        """Whether somebody holds or has answered a question of these things."""
        answered = _ANSWERED.format(who="1")
        return self._exists(f"(h.until >= :now OR {answered})", things)

    def _was_asked(self, things: tuple[int, ...]) -> bool:
        return self._exists("1", things)

    def _exists(self, condition: str, things: tuple[int, ...]) -> bool:
        same = _SAME_TRIPLET if len(things) == 3 else _SAME_PAIR
        found = self.connection.execute(
            f"SELECT 1 FROM questions AS q JOIN handed AS h ON h.question = q.id WHERE ({same}) AND {condition}",
            {**dict(zip("abc", things, strict=False)), "now": self.now},
        )
        return found.fetchone() is not None

    def _draw_things(self) -> tuple[int, ...] | None:
        for _ in range(_N_TRIES):
            drawn = self.rng.choice(self.n_points, self.task.n_things, replace=False)
            things = tuple(int(row) for row in drawn)
            if not self._was_asked(things):
                return things
        return self._draw_among_left()

    def _draw_among_left(self) -> tuple[int, ...] | None:
        """The same draw where few questions are left: all of them are listed."""
        rows = self.connection.execute(
            "SELECT first, second, third FROM questions WHERE id IN (SELECT question FROM handed)"
        )
        asked = {_code(_things(row)) for row in rows}
        left = [things for things in _all_things(self.n_points, self.task.n_things) if _code(things) not in asked]
        if not left:
            return None
        first, *others = left[int(self.rng.integers(len(left)))]
        if self.task.n_things == 2:
            first, *others = (first, *others) if self.rng.random() < 0.5 else (*others, first)
        else:
            self.rng.shuffle(others)
        return first, *others


def _all_things(n_points: int, n_things: int) -> Iterator[tuple[int, ...]]:
    if n_things == 2:
        yield from itertools.combinations(range(n_points), 2)
        return
    for reference in range(n_points):
        rest = (row for row in range(n_points) if row != reference)
        yield from ((reference, *two) for two in itertools.combinations(rest, 2))


def _code(things: tuple[int, ...]) -> tuple[int, ...]:
    """The same for the same question, whichever side things are on."""
    return tuple(sorted(things)) if len(things) == 2 else (things[0], *sorted(things[1:]))


def _things(columns: list[int | None] | tuple[int | None, ...]) -> tuple[int, ...]:
    return tuple(int(row) for row in columns if row is not None)
