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
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvicorn

from closefar.label.app import Labelling, say
from closefar.label.findings import FittingProcess, LatestFindings, Work, nothing_found
from closefar.label.security import LARGEST_HEAD, ClientLimits, Sessions
from closefar.label.site import Address, Person, Site, Tls, listen
from closefar.label.storage import Store
from closefar.label.task import LabelPoints, Task

_FIRST_PORT, _N_PORTS = 20_000, 12_000  # below those that systems give to connections
_GRACE = 3  # seconds that requests may take after the end of the server
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
    limits : ClientLimits
        For clients.
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
        limits: ClientLimits | None = None,
        fits: bool = True,
    ) -> None:
        self._limits = limits or ClientLimits()
        self._waiting: dict[Any, tuple[Any, float]] = {}  # connections whose clients are awaited: for what, since when
        context = None if site.tls is None else _tls_context(site.tls)
        self.site = site
        with contextlib.ExitStack() as stack:
            self.store = stack.enter_context(Store.open(path, task, points))
            self.sessions = Sessions(self.store.key, task.annotators)
            self._socket = stack.enter_context(self._listen(port))
            self.port: int = self._socket.getsockname()[1]
            self.findings = LatestFindings(nothing_found(task, _AT_FIRST))
            self.store.run(self.findings.read)
            work = Work(self.store.path, points.features, points.feature_names, task, self.findings.body)
            self._fitting = FittingProcess(work, self._publish)
            self._fits = fits
            labelling = Labelling(
                task, points, self.store, self.sessions, self.findings, self._fitting.notify, self._limits
            )
            self._server = _Server(self._config(labelling.app(site, self.port), context))
            self._stack = stack.pop_all()

    def addresses(self) -> list[Address]:
        """What everybody opens."""
        return [
            Address(**asdict(each), address=self._address(each, self.sessions.secret_of(each)))
            for each in self.sessions.people.values()
        ]

    def open_browser(self) -> None:
        """Open the page of the owner in a browser, if there is a display, with a secret that works once."""
        if _has_display():
            address = self._address(self.sessions.owner, self.sessions.make_ticket(time.time()))
            threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()

    def _address(self, person: Person, secret: str) -> str:
        """The part behind # is never sent, and so is in no log."""
        return f"{self.site.base(self.port)}{'/' if person.judges else '/overview'}#{secret}"

    def run(self) -> None:
        """Serve until `stop` is called or, in the main thread, until an interrupt."""
        if self._fits:
            self._fitting.start()
            self._fitting.notify(self.store.run(lambda each: each.execute("SELECT count(*) FROM events").fetchone()[0]))
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        asyncio.get_running_loop().set_exception_handler(_say_what_failed)
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        """Have `run` end soon; may be called from any thread."""
        self._server.should_exit = True

    def close(self) -> None:
        """End the fitting process, and close the file and the socket."""
        self._fitting.close()
        self._stack.close()

    def count_answers(self) -> tuple[int, int]:
        """The numbers of answers in the file: those that say something, and "can't say"."""
        query = "SELECT count(answer), count(*) - count(answer) FROM answers"
        n, n_unsure = self.store.run(lambda connection: connection.execute(query).fetchone())
        return n, n_unsure

    def __enter__(self) -> LabelServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _publish(self, body: dict[str, Any], questions: list[tuple[int, ...]], n_events: int) -> None:
        self.store.add_findings(body, n_events, questions, self.store.task.method)
        self.findings.publish(body)

    def _listen(self, port: int | None) -> socket.socket:
        if port is not None:
            return listen(self.site.host, port)
        try:
            return listen(self.site.host, _FIRST_PORT + self.sessions.number_for("port", _N_PORTS))
        except OSError:
            return listen(self.site.host, 0)

    def _config(self, app: Any, context: ssl.SSLContext | None) -> uvicorn.Config:
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=self._limits.seconds,
            timeout_graceful_shutdown=_GRACE,
            h11_max_incomplete_event_size=LARGEST_HEAD,
            callback_notify=self._close_slow,
            timeout_notify=0,  # at each of its ticks, which are a second apart
        )
        config.load()
        config.ssl = context
        return config

    async def _close_slow(self) -> None:
        """Close connections whose clients keep the server waiting, which uvicorn does only between requests.

        So a stranger who opens many, and sends half of a request on each, keeps nobody else out.
        """
        now, before, connections = time.monotonic(), self._waiting, self._server.server_state.connections
        self._waiting = {}
        for each in connections:
            awaited = _awaited(each)
            if awaited is not None:
                same, since = before.get(each, (None, now))
                self._waiting[each] = (awaited, since if same == awaited else now)
        surplus = len(connections) - self._limits.connections
        for place, (each, (_, since)) in enumerate(sorted(self._waiting.items(), key=lambda item: item[1][1])):
            if place < surplus or now - since > self._limits.seconds:
                each.transport.abort()


def _awaited(connection: Any) -> Any:
    """What the client of a connection of uvicorn is to do next: send the rest of a request, or read a response.

    Two calls give the same as long as it has done neither.  None if it is the server's turn.
    """
    request = connection.cycle
    if request is None or request.response_complete or request.more_body or connection.flow.write_paused:
        return request, connection.flow.write_paused, request is not None and request.response_complete
    return None


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


def _say_what_failed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say in a line what failed; a connection that breaks off, or sends what is no HTTP, is none of the owner's."""
    if "protocol" not in context:
        say(f"{context['message']} {context.get('exception', '')}")


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


def _has_display() -> bool:
    """Whether a browser has a window: without one, a browser for terminals would take over this one."""
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME")
    )
