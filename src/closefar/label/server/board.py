"""What is known so far: the latest findings, and how they came about, for the owner and for each annotator."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from closefar.label.server.sessions import Person


class Board:
    """The latest findings of the fitting process, and the learning curve of all of them.

    Parameters
    ----------
    at_first : dict
        What is shown before there are any.
    """

    def __init__(self, at_first: dict[str, Any]) -> None:
        self.latest: dict[str, Any] | None = None
        self._at_first = at_first
        self._curve: list[dict[str, Any]] = []

    def read(self, connection: sqlite3.Connection) -> None:
        """Go on from the findings that are in the file."""
        for (body,) in connection.execute("SELECT body FROM findings ORDER BY id"):
            self.put_up(json.loads(body))

    def put_up(self, body: dict[str, Any]) -> None:
        """Show new findings."""
        quality = body.get("quality")
        if quality is not None:
            point = {"n": body.get("n_answers"), **{name: quality.get(name) for name in ("agreement", "low", "high")}}
            self._curve = [*self._curve, point]
        self.latest = body

    def shown_to(self, person: Person) -> dict[str, Any]:
        """All findings for the owner; for others, what concerns their own answers."""
        body = self.latest or self._at_first
        if person.is_owner:
            return {**body, "curve": self._curve}
        return {"status": body.get("status", ""), "doubtful": self._doubtful_of(person)}

    def is_doubtful(self, person: Person, question: int) -> bool:
        """Whether the metric doubts this person's answer to a question."""
        return any(each.get("question") == question for each in self._doubtful_of(person))

    def _doubtful_of(self, person: Person) -> list[dict[str, Any]]:
        return [each for each in (self.latest or {}).get("doubtful") or [] if each.get("annotator") == person.name]
