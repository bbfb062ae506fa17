"""How far somebody is: their own answers that stand, counted from the events as they come."""

from __future__ import annotations

import sqlite3
import statistics
import threading
import time
from dataclasses import dataclass
from typing import Any

_N_TIMED = 50  # the last answers, whose median time is shown


@dataclass(frozen=True)
class _Answer:
    key: str
    question: int
    answer: str | None
    seconds: float | None
    at: float


class Progress:
    """The answers of one person; each reading takes in the events since the last one."""

    def __init__(self, annotator: str) -> None:
        self.annotator = annotator
        self._standing: dict[str, _Answer] = {}
        self._last_event = 0
        self._lock = threading.Lock()

    def read(self, connection: sqlite3.Connection, now: float) -> dict[str, Any]:
        """The numbers of answers, the time that they take, and the last one, which an undo would take back."""
        with self._lock:
            self._take_in(connection)
            return self._summary(now)

    def _take_in(self, connection: sqlite3.Connection) -> None:
        rows = connection.execute(
            "SELECT id, key, kind, question, answer, undoes, seconds, at FROM events WHERE annotator = ? AND id > ? "
            "ORDER BY id",
            (self.annotator, self._last_event),
        )
        for event, key, kind, question, answer, undoes, seconds, at in rows:
            if kind == "undo":
                self._standing.pop(undoes, None)
            else:
                self._standing[key] = _Answer(key, question, answer, seconds, at)
            self._last_event = event

    def _summary(self, now: float) -> dict[str, Any]:
        live = {each.question: each for each in self._standing.values()}  # a review comes after the first answer
        last = next(reversed(self._standing.values()), None)
        today = time.localtime(now)[:3]
        seconds = [each.seconds for each in live.values() if each.seconds is not None][-_N_TIMED:]
        return {
            "n": len(live),
            "n_unsure": sum(each.answer is None for each in live.values()),
            "n_today": sum(time.localtime(each.at)[:3] == today for each in live.values()),
            "seconds": statistics.median(seconds) if seconds else None,
            "last_answer": last and {"key": last.key, "question": last.question, "answer": last.answer},
        }
