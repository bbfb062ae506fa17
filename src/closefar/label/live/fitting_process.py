"""A process for fits: it reads the file of judgements by itself, so that no request ever waits for a fit."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from closefar.label.live.fitting_work import Work, work_until_closed

_LOG = logging.getLogger(__name__)

OnFindings = Callable[[dict[str, Any], list[tuple[int, ...]], int], None]

# Seconds until a process that died is started again; twice as many each time, up to the second number.
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0


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

    def __init__(self, work: Work, on_findings: OnFindings) -> None:
        self._work = work
        self._on_findings = on_findings
        self._lock = threading.Lock()
        self._connection: Connection[Any, Any] | None = None
        self._process: Any = None
        self._n_events: int | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="closefar findings", daemon=True)

    def start(self) -> None:
        """Start the process; it fits once it is notified of enough events."""
        self._thread.start()

    def notify(self, n_events: int) -> None:
        """Say how many events the file has; this returns at once, and may be called from any thread."""
        with self._lock:
            self._n_events = n_events
            self._tell()

    def close(self) -> None:
        """End the process, also in the middle of a fit."""
        self._closing.set()
        with self._lock:
            process, self._connection = self._process, None
        if process is not None:
            process.terminate()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def pid(self) -> int | None:
        """The id of the process; None if there is none at the moment."""
        with self._lock:
            return None if self._process is None else self._process.pid

    def _tell(self) -> None:
        """Send the number of events, with the lock held."""
        if self._connection is None or self._n_events is None or not _has_room(self._connection):
            return
        try:
            self._connection.send(self._n_events)
        except OSError:  # it has died; the next one is told
            self._connection = None

    def _run(self) -> None:
        """Start processes, one after the other, until closed."""
        wait = _FIRST_WAIT
        while not self._closing.is_set():
            if self._serve():
                wait = _FIRST_WAIT
            if not self._closing.wait(wait):  # otherwise it was ended together with the server
                _LOG.warning("The fitting process has ended; another one is started.")
                wait = min(2.0 * wait, _LONGEST_WAIT)

    def _serve(self) -> bool:
        """Run a process until it ends, and hand its findings on; return whether there were any."""
        context = multiprocessing.get_context("spawn")
        own, its = context.Pipe()
        process = context.Process(target=work_until_closed, args=(its, self._work), daemon=True, name="closefar fit")
        with _interrupts_blocked():
            process.start()
        its.close()  # so that only the process holds that end
        with self._lock:
            self._process, self._connection = process, own
            self._tell()
        has_found = False
        try:
            if self._closing.is_set():
                process.terminate()
            while True:
                body, questions, n_events = own.recv()
                has_found = True
                if not self._closing.is_set():
                    self._hand_on(body, questions, n_events)
        except (EOFError, OSError):
            return has_found
        finally:
            with self._lock:
                self._process = self._connection = None
            own.close()
            process.join()
            process.close()

    def _hand_on(self, body: dict[str, Any], questions: list[tuple[int, ...]], n_events: int) -> None:
        try:
            self._on_findings(body, questions, n_events)
        except Exception:
            _LOG.exception("The findings after %d events could not be handed on.", n_events)


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


def _has_room(connection: Connection[Any, Any]) -> bool:
    """Whether a number can be sent without waiting; a process with so many unread ones will look at the file anyway."""
    if sys.platform == "win32":
        return True
    return bool(select.select([], [connection], [], 0)[1])
