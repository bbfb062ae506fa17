"""The server as a whole: it listens, serves until it is stopped, and has fits done in a process of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from closefar.label.live.findings import nothing_found
from closefar.label.live.fitting_process import FittingProcess
from closefar.label.live.fitting_work import Work
from closefar.label.server.app import Labelling, build_app
from closefar.label.server.board import Board
from closefar.label.server.patience import Limits, loop_with, protocol_with
from closefar.label.server.security import LARGEST_HEAD
from closefar.label.server.sessions import Address, Person, Sessions
from closefar.label.server.site import Site, Tls, listen
from closefar.label.storage.points import LabelPoints
from closefar.label.storage.store import Store
from closefar.label.task import Task

_FIRST_PORT, _N_PORTS = 20_000, 12_000  # below those that systems give to connections
_GRACE = 3
_AT_FIRST = "Learning starts after about 20 answers."


class LabelServer:
    """A server for one file of judgements; it listens from the start, and answers while `run` runs.

    Parameters
    ----------
    path : Path
        The file of judgements, which is made or continued.
    task : Task
    points : LabelPoints
    site : Site
        What to listen on.
    port : int, optional
        By default one that is always the same for this file, so that open pages find a server that was started again;
        a free one if that is taken.
    limits : Limits
        For slow clients.
    fits : bool
        Whether the answers are fitted while they come.
    """

    def __init__(
        self,
        path: Path,
        task: Task,
        points: LabelPoints,
        site: Site,
        port: int | None = None,
        *,
        limits: Limits | None = None,
        fits: bool = True,
    ) -> None:
        limits = limits or Limits()
        context = None if site.tls is None else _tls_context(site.tls)
        self.site = site
        with contextlib.ExitStack() as stack:
            self.store = stack.enter_context(Store.open(path, task, points))
            self.sessions = Sessions(self.store.key, task.annotators)
            self._socket = stack.enter_context(_listen(site, port, self.sessions))
            self.port: int = self._socket.getsockname()[1]
            self.board = Board(nothing_found(task, _AT_FIRST))
            self.store.read(self.board.read)
            self._fitting = self._fitting_process(task, points) if fits else None
            labelling = Labelling(task, points, self.store, self.sessions, self.board, self._notify)
            self._server = _Server(_config(build_app(labelling, site, self.port, limits), limits, context))
            self._loop = partial(loop_with, limits)
            self._stack = stack.pop_all()

    def addresses(self) -> list[Address]:
        """What everybody opens."""
        return [
            Address(each.name, each.is_owner, each.judges, self._address(each, self.sessions.secret_of(each)))
            for each in self.sessions.people.values()
        ]

    def open_browser(self) -> None:
        """Open the page of the owner in a browser, if there is a display, with a secret that works once."""
        if _has_display():
            owner = self.sessions.owner
            address = self._address(owner, self.sessions.make_ticket(owner, time.time()))
            threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()

    def _address(self, person: Person, secret: str) -> str:
        """The part behind # is never sent, and so is in no log."""
        return f"{self.site.base(self.port)}{'/' if person.judges else '/overview'}#{secret}"

    def run(self) -> None:
        """Serve until `stop` is called or, in the main thread, until an interrupt."""
        if self._fitting is not None:
            self._fitting.start()
            self._fitting.notify(self.store.read(_count_events))
        with asyncio.Runner(loop_factory=self._loop) as runner:
            runner.run(self._server.serve(sockets=[self._socket]))

    def stop(self) -> None:
        """Have `run` end soon; may be called from any thread."""
        self._server.should_exit = True

    def close(self) -> None:
        """End the fitting process, and close the file and the socket."""
        if self._fitting is not None:
            self._fitting.close()
        self._stack.close()

    def count_answers(self) -> tuple[int, int]:
        """The numbers of answers in the file: those that say something, and "can't say"."""
        query = "SELECT count(answer), count(*) - count(answer) FROM answers"
        n, n_unsure = self.store.read(lambda connection: connection.execute(query).fetchone())
        return n, n_unsure

    def __enter__(self) -> LabelServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fitting_process(self, task: Task, points: LabelPoints) -> FittingProcess:
        previous = self.board.latest
        work = Work(self.store.path, points.features, points.feature_names, task, previous)

        def put_up(body: dict[str, Any], questions: list[tuple[int, ...]], n_events: int) -> None:
            self.store.add_findings(body, n_events, questions, task.method).result()
            self.board.put_up(body)

        return FittingProcess(work, put_up)

    def _notify(self, n_events: int) -> None:
        if self._fitting is not None:
            self._fitting.notify(n_events)


class _Server(uvicorn.Server):
    """A server that ends at an interrupt, and leaves it at that."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _config(app: Any, limits: Limits, context: ssl.SSLContext | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=protocol_with(limits),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=limits.idle,
        timeout_graceful_shutdown=_GRACE,
        h11_max_incomplete_event_size=LARGEST_HEAD,
    )
    config.load()
    config.ssl = context
    return config


def _tls_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except ssl.SSLError as error:
        raise ValueError(
            f"--tls-certificate {tls.certificate} and --tls-key {tls.key} must be a certificate and its key, in PEM "
            f"format; got {error.reason or error}."
        ) from error
    except OSError as error:
        raise OSError(f"can't read {tls.certificate} or {tls.key}: {error.strerror}. Check both names.") from error
    return context


def _listen(site: Site, port: int | None, sessions: Sessions) -> socket.socket:
    if port is not None:
        return listen(site.host, port)
    try:
        return listen(site.host, _FIRST_PORT + sessions.number_for("port", _N_PORTS))
    except OSError:
        return listen(site.host, 0)


def _count_events(connection: Any) -> int:
    return int(connection.execute("SELECT count(*) FROM events").fetchone()[0])


def _has_display() -> bool:
    """Whether a browser has a window: without one, a browser for terminals would take over this one."""
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME")
    )
