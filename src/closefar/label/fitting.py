"""A process for fits: it reads the file of judgements on its own, so that no request ever waits for a fit."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from closefar import Tuples, choose_pairs
from closefar.arrays import FloatArray, IndexArray
from closefar.engines import threads_at_most
from closefar.label.findings import findings, learned_from, nothing_found
from closefar.label.metric import Given, Learned, guides_choice, learn, same_side, tuples_of
from closefar.label.task import Task
from closefar.tables import RecordedAnswers, TableError, read_recorded

_LOG = logging.getLogger(__name__)

# A fit follows after this many new events, or this share of them, so that there are few fits to many answers; or after
# this many seconds, if there are fewer events.
_FEWEST_NEW, _SHARE_NEW, _LONGEST_WAIT = 5, 0.05, 10.0

# Seconds until a process that died is started again; twice as many each time, up to the second number.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0

_NICENESS = 10  # half of that of the least important processes: answers come first

# How many questions are chosen: at least the first number, this many for each annotator, and at most the last number;
# in between, twice as many as were answered during the last fit.
_FEWEST_CHOSEN, _CHOSEN_PER_PERSON, _MOST_CHOSEN = 20, 3, 200

_CANDIDATES = 20_000  # questions, drawn at random, among which are chosen: 100 times the most that are

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
        The findings before these, whose map is not to jump.
    """

    path: Path
    features: FloatArray
    feature_names: tuple[str, ...]
    task: Task
    previous: dict[str, Any] | None = None


class FittingProcess:
    """Fits in a process of its own that ends with this one, and that is started again if it dies.

    Parameters
    ----------
    work : Work
        The file of judgements, the points and the task.
    on_findings : function
        Called in a thread after each fit, with the findings, the next questions (rows of points) and the number of
        events that they rest on.
    """

    def __init__(self, work: Work, on_findings: Callable[[dict[str, Any], list[tuple[int, ...]], int], None]) -> None:
        self._work = work
        self._on_findings = on_findings
        self._process: Any = None
        self._n_events, self._n_fitted = 0, 0
        self._news = threading.Condition()  # of events, and of the end
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="closefar findings", daemon=True)

    def start(self) -> None:
        """Start the process; it fits once it is notified of enough events."""
        self._thread.start()

    def notify(self, n_events: int) -> None:
        """Say how many events the file has; this returns at once, and may be called from any thread."""
        with self._news:
            self._n_events = n_events
            self._news.notify_all()

    def close(self) -> None:
        """End the process, also in the middle of a fit."""
        with self._news:
            self._is_closing = True
            self._news.notify_all()
            if self._process is not None:
                self._process.kill()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        """Start processes, one after the other, until closed."""
        pause, previous = _FIRST_PAUSE, self._work.previous
        while not self._is_closing:
            with contextlib.suppress(EOFError, OSError), self._started() as connection:
                while self._wait_for_events():
                    connection.send((previous, self._n_fitted))
                    found = connection.recv()
                    if found is None:  # the file can't be read at the moment
                        self._is_closed_within(_LONGEST_WAIT)
                    else:
                        pause, previous, self._n_fitted = _FIRST_PAUSE, found[0], found[2]
                        self._hand_on(found)
            if not self._is_closed_within(pause):  # otherwise it was ended together with the server
                _LOG.warning("The fitting process has ended; another one is started.")
                pause = min(2.0 * pause, _LONGEST_PAUSE)

    @contextlib.contextmanager
    def _started(self) -> Iterator[Connection[Any, Any]]:
        """A process, and the connection to it."""
        context = multiprocessing.get_context("spawn")
        own, its = context.Pipe()
        process = context.Process(target=_work_until_closed, args=(its, self._work), daemon=True, name="closefar fit")
        with own:
            with its, _interrupts_blocked():  # closed here, so that only the process holds that end
                process.start()
            with self._news:
                self._process = process
            try:
                yield own
            finally:
                with self._news:
                    self._process = None
                process.kill()
                process.join()
                process.close()

    def _wait_for_events(self) -> bool:
        """Wait until there are enough new events, or any that have waited for long; False if it is time to end."""
        enough = self._n_fitted + max(_FEWEST_NEW, _SHARE_NEW * self._n_fitted)
        with self._news:
            self._news.wait_for(lambda: self._is_closing or self._n_events > self._n_fitted)
            self._news.wait_for(lambda: self._is_closing or self._n_events >= enough, _LONGEST_WAIT)
            return not self._is_closing

    def _is_closed_within(self, seconds: float) -> bool:
        with self._news:
            return self._news.wait_for(lambda: self._is_closing, seconds)

    def _hand_on(self, found: Found) -> None:
        try:
            self._on_findings(*found)
        except Exception:
            _LOG.exception("The findings after %d events could not be handed on.", found[2])


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Keep an interrupt of the terminal from a process that is started here: it is for the server."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # its own start would let them through again
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


# ---------------------------------------------------------------------------------------------------------------------
# In the process: fits, and the next questions.


def _work_until_closed(connection: Connection[Any, Any], work: Work) -> None:
    """Fit whenever the other end of the connection asks for it, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the server, which then ends this process
    if sys.platform != "win32":
        os.nice(_NICENESS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError), threads_at_most(1):
        while True:
            connection.send(fit_answers(work, *connection.recv()))


def _end_with_parent() -> None:
    """End in the middle of a fit, too, once the server is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def fit_answers(work: Work, previous: dict[str, Any] | None, n_before: int) -> Found | None:
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
        body = findings(answers, given, learned, work.feature_names, work.task, previous)
        if isinstance(learned, Learned):  # enough until the next fit is done, if answers come as quickly as lately
            n_new = min(2 * (answers.n_events - n_before), _MOST_CHOSEN)
            n = max(_FEWEST_CHOSEN, _CHOSEN_PER_PERSON * len(work.task.annotators), n_new)
            questions = next_questions(answers, work.features, work.task, n, seed=answers.n_events)
    except Exception as error:
        _LOG.exception("The fit after %d events failed.", answers.n_events)
        body = nothing_found(work.task, f"The last fit failed ({type(error).__name__}: {error}). Judging goes on.")
    return body, questions, answers.n_events


def next_questions(
    answers: RecordedAnswers, features: FloatArray, task: Task, n: int, seed: int, n_candidates: int = _CANDIDATES
) -> list[tuple[int, ...]]:
    """Choose `n` questions that were not asked before, best first, by a fit to the answers that may guide the choice.

    There are none if these answers teach nothing yet, nor if questions are not chosen but drawn at random.
    """
    if task.method == "random":
        return []
    learned = learn(Given.of(answers, features, task, guides_choice(answers, task)), task)
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
    drawn = drawn[np.all(np.diff(np.sort(drawn, axis=1), axis=1) > 0, axis=1)]
    everything = np.concatenate([asked.reshape(-1, k), drawn])
    _, first = np.unique(same_side(everything), axis=0, return_index=True)
    return np.asarray(everything[np.sort(first[first >= len(asked)])], dtype=np.intp)
