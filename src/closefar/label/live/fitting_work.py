"""What the fitting process does: wait for new answers, fit, and send what was found."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from closefar.arrays import FloatArray
from closefar.engines import threads_at_most
from closefar.label.live.findings import findings_of, learned_from, nothing_found
from closefar.label.live.learned import Given, Learned
from closefar.label.live.next_questions import next_questions
from closefar.label.task import Task
from closefar.tables import RecordedAnswers, TableError, read_recorded

_LOG = logging.getLogger(__name__)

# A fit follows after so many new events, a number or a share; or after this many seconds, if there are fewer.
_FEWEST_NEW, _SHARE_NEW, _PATIENCE = 5, 0.05, 10.0

_NICENESS = 10
_FEWEST_CHOSEN, _CHOSEN_PER_PERSON, _MOST_CHOSEN = 20, 3, 200

Found = tuple[dict[str, Any], list[tuple[int, ...]], int]


@dataclass(frozen=True, eq=False)
class Work:
    """What to fit.

    Attributes
    ----------
    path : Path
        The file of judgements.
    features : array of shape (n_points, d)
    feature_names : tuple of str
    task : Task
    previous : dict, optional
        The last findings in the file, whose map is not to jump.
    """

    path: Path
    features: FloatArray
    feature_names: tuple[str, ...]
    task: Task
    previous: dict[str, Any] | None = None


def work_until_closed(connection: Connection[Any, Any], work: Work) -> None:
    """Fit whenever there are enough new events, until the other end of the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the server, which then closes the connection
    if sys.platform != "win32":
        os.nice(_NICENESS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    previous, n_before = work.previous, 0
    try:
        with threads_at_most(1):
            while True:
                _wait_for_events(connection, n_before)
                found = fit_once(work, previous, n_before)
                if found is not None:
                    connection.send(found)
                    previous, n_before = found[0], found[2]
    except (EOFError, OSError):
        return


def _end_with_parent() -> None:
    """End in the middle of a fit, too, once the server is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def _wait_for_events(connection: Connection[Any, Any], n_before: int) -> None:
    """Wait until there are enough new events, or any that have waited for long; EOFError if the other end is closed."""
    n_events = n_before
    while n_events < n_before + max(_FEWEST_NEW, _SHARE_NEW * n_before):
        if not connection.poll(_PATIENCE if n_events > n_before else None):
            return
        n_events = connection.recv()
    while connection.poll():
        connection.recv()


def fit_once(work: Work, previous: dict[str, Any] | None, n_before: int) -> Found | None:
    """The findings on the answers that the file has now, the next questions, and the number of events.

    None if the file can't be read at the moment.  No exception ends the process: the findings then say that it failed.
    """
    try:
        answers = read_recorded(work.path)
    except TableError:
        _LOG.exception("The answers could not be read.")
        return None
    questions: list[tuple[int, ...]] = []
    try:
        given = Given.of(answers, work.features, work.task)
        learned = learned_from(given, work.task)
        body = findings_of(answers, given, learned, work.feature_names, work.task, previous)
        if isinstance(learned, Learned):
            questions = _questions(work, answers, answers.n_events - n_before)
    except Exception as error:
        _LOG.exception("The fit after %d events failed.", answers.n_events)
        body = nothing_found(work.task, f"The last fit failed ({type(error).__name__}: {error}). Judging goes on.")
    return body, questions, answers.n_events


def _questions(work: Work, answers: RecordedAnswers, n_new: int) -> list[tuple[int, ...]]:
    """The next questions: enough until the next fit is done, if answers come as quickly as lately."""
    n = max(_FEWEST_CHOSEN, _CHOSEN_PER_PERSON * len(work.task.annotators), min(2 * n_new, _MOST_CHOSEN))
    return next_questions(answers, work.features, work.task, n, seed=answers.n_events)
