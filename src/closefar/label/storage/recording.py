"""Which answers and undos are recorded, each exactly once, and why others are refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from closefar.label.task import Purpose, Task

_LONGEST_KEY = 100
_LARGEST = 2**63 - 1  # of SQLite's integers


class EventKind(StrEnum):
    """What somebody did."""

    answer = "answer"
    undo = "undo"


class Refusal(StrEnum):
    """Why an event was not recorded."""

    BAD_KEY = "A key must be 1 to 100 printable ASCII characters."
    BAD_KIND = "An event must be an answer or an undo."
    OTHER_CONTENT = "This key was used before for something else."
    NOT_HANDED = "This question was never handed to you."
    NOT_AN_ANSWER = "This is not one of the answers."
    ANSWERED = "You have answered this question already; undo that answer first."
    NOTHING_TO_UNDO = "There is no answer of yours to undo."
    NOT_THE_LAST = "Only the latest answer to a question can be undone."


@dataclass(frozen=True)
class NewEvent:
    """What a page sends.

    Parameters
    ----------
    key : str
        Made by the page at random, and the same whenever the event is sent again.
    kind : str
        "answer" or "undo".
    question : int
        The number of the question.
    answer : str or None
        One of the answers of the task; None is "can't say".  None for an undo.
    undoes : str or None
        The key of the answer that is undone; None for an answer.
    seconds : float or None
        How long it took.
    """

    key: str
    kind: str
    question: int
    answer: str | None = None
    undoes: str | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Receipt:
    """Whether the event of this key is recorded, now or before, or why it is not."""

    key: str
    recorded: bool
    reason: str | None = None


def record_events(
    connection: sqlite3.Connection, task: Task, annotator: str, events: Sequence[NewEvent], now: float
) -> list[Receipt]:
    """Record what somebody did, in this order; inside a transaction."""
    receipts = []
    for event in events:
        refusal = _record(connection, task, annotator, event, now)
        receipts.append(Receipt(event.key, refusal is None, None if refusal is None else str(refusal)))
    return receipts


def _record(connection: sqlite3.Connection, task: Task, annotator: str, event: NewEvent, now: float) -> Refusal | None:
    if not _is_key(event.key) or not (event.undoes is None or _is_key(event.undoes)):
        return Refusal.BAD_KEY
    if event.kind not in tuple(EventKind):
        return Refusal.BAD_KIND
    known = connection.execute(
        "SELECT kind, annotator, question, answer, undoes FROM events WHERE key = ?", [event.key]
    ).fetchone()
    if known is not None:
        same = known == (event.kind, annotator, event.question, event.answer, event.undoes)
        return None if same else Refusal.OTHER_CONTENT
    if not 0 <= event.question <= _LARGEST:
        return Refusal.NOT_HANDED
    if event.kind == EventKind.undo:
        return _undo(connection, annotator, event, now)
    return _answer(connection, task, annotator, event, now)


def _answer(connection: sqlite3.Connection, task: Task, annotator: str, event: NewEvent, now: float) -> Refusal | None:
    if event.undoes is not None or not (event.answer is None or event.answer in task.answers):
        return Refusal.NOT_AN_ANSWER
    handed = connection.execute(
        "SELECT purpose FROM handed WHERE question = ? AND annotator = ?", [event.question, annotator]
    ).fetchone()
    if handed is None:
        return Refusal.NOT_HANDED
    (purpose,) = handed
    first = _standing(connection, event.question, annotator, "min")
    if first is not None and purpose != Purpose.review:
        return Refusal.ANSWERED
    _insert(connection, annotator, event, purpose, now)
    if purpose == Purpose.review:  # one answer for each time that it is handed out
        why = Purpose.shared if first is not None and first[1] == Purpose.shared else Purpose.first
        _set_purpose(connection, event.question, annotator, why)
    return None


def _undo(connection: sqlite3.Connection, annotator: str, event: NewEvent, now: float) -> Refusal | None:
    given = connection.execute(
        "SELECT purpose FROM standing WHERE key = ? AND annotator = ? AND question = ?",
        [event.undoes, annotator, event.question],
    ).fetchone()
    if given is None or event.answer is not None:
        return Refusal.NOTHING_TO_UNDO
    live = _standing(connection, event.question, annotator, "max")
    if live is None or live[0] != event.undoes:
        return Refusal.NOT_THE_LAST
    (purpose,) = given
    _insert(connection, annotator, event, purpose, now)
    if purpose == Purpose.review:  # it may be looked at again, as before
        _set_purpose(connection, event.question, annotator, Purpose.review)
    return None


def _standing(connection: sqlite3.Connection, question: int, annotator: str, which: str) -> tuple[str, str] | None:
    """The key and purpose of somebody's first ("min") or live ("max") answer to a question."""
    found: tuple[str, str] | None = connection.execute(
        "SELECT key, purpose FROM events "
        f"WHERE id = (SELECT {which}(id) FROM standing WHERE question = ? AND annotator = ?)",
        [question, annotator],
    ).fetchone()
    return found


def _insert(connection: sqlite3.Connection, annotator: str, event: NewEvent, purpose: str, now: float) -> None:
    connection.execute(
        "INSERT INTO events(key, kind, annotator, question, answer, purpose, undoes, seconds, at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            event.key,
            str(event.kind),
            annotator,
            event.question,
            event.answer,
            purpose,
            event.undoes,
            event.seconds,
            now,
        ],
    )


def _set_purpose(connection: sqlite3.Connection, question: int, annotator: str, purpose: str) -> None:
    connection.execute(
        "UPDATE handed SET purpose = ? WHERE question = ? AND annotator = ?", [purpose, question, annotator]
    )


def _is_key(key: str) -> bool:
    return 0 < len(key) <= _LONGEST_KEY and key.isascii() and key.isprintable()
