"""The server: it listens, answers requests until it is stopped, and has fits done in a process of their own.

Pages hold no data, JSON is for whoever has a session, and changes need its token.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import signal
import socket
import sqlite3
import ssl
import statistics
import sys
import threading
import time
import traceback
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import uvicorn
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from closefar.errors import printable
from closefar.label.assignment import Asking, Assigned, assign_review, was_shown
from closefar.label.findings import FittingProcess, LatestFindings, Work
from closefar.label.security import LARGEST_HEAD, SESSION_SECONDS, ClientLimits, Guard, Rate, Sessions
from closefar.label.site import Address, Person, Site, Tls, listen
from closefar.label.storage import NewEvent, Store, StoreError
from closefar.label.task import LabelPoints, Task
from closefar.templating import load_asset, load_template

_FIRST_PORT, _N_PORTS = 20_000, 12_000  # below those that systems give to connections
_GRACE = 3  # seconds that requests may take after the end of the server

_REST_AFTER = 25  # minutes, after which the page suggests a rest
_MOST_QUESTIONS, _MOST_EVENTS = 10, 50  # of one request; a page holds three, and sends answers that it kept in parts
_PICTURES_PER_REQUEST = 5  # that may be loaded for each other request
_N_TIMED = 50  # the last answers, whose median time is shown
_GUESSES = 1.0, 50.0  # wrong secrets per second, and at once; a secret has 256 bits

_PAGES = {"/": "label.html.jinja", "/overview": "label_overview.html.jinja"}
_ASSETS = ("palette.css", "label.css", "label.js", "label_icon.svg", "label_outbox.js", "label_page.js", "overview.js")
_PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"


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
        self.site, self.task, self.points, self._fits = site, task, points, fits
        self._limits = limits or ClientLimits()
        self._waiting: dict[Any, tuple[Any, float]] = {}  # connections whose clients are awaited: for what, since when
        rate, burst = self._limits.rate, self._limits.burst
        self._requests, self._wrong_secrets = Rate(rate, burst), Rate(*_GUESSES)
        self._pictures = Rate(_PICTURES_PER_REQUEST * rate, _PICTURES_PER_REQUEST * burst)
        self._rng = np.random.default_rng()  # used in transactions only, one at a time
        context = None if site.tls is None else _tls_context(site.tls)
        with contextlib.ExitStack() as stack:
            self.store = stack.enter_context(Store(path, task, points))
            self.sessions = Sessions(self.store.key, task.annotators)
            self.findings = self.store.run(partial(LatestFindings, task))
            self._cookie_name = f"{'__Host-' if site.is_secure else ''}closefar-{self.sessions.file_id}"
            self._socket = stack.enter_context(self._listen(port))
            self.port: int = self._socket.getsockname()[1]
            work = Work(self.store.path, points.features, points.feature_names, task, self.findings.body)
            self._fitting = FittingProcess(work, self._publish)
            self._server = _Server(self._config(context))
            self._stack = stack.pop_all()

    def addresses(self) -> list[Address]:
        """What everybody opens."""
        return [
            Address(**asdict(each), address=self._address(each, self.sessions.secret_of(each)))
            for each in self.sessions.people.values()
        ]

    def open_browser(self) -> None:
        """Open the page of the owner in a browser, if it has a window, with a secret that works once."""
        names = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME")
        # Without a window, a browser for terminals would take over this one.
        if sys.platform in ("darwin", "win32") or any(map(os.environ.get, names)):
            address = self._address(self.sessions.owner, self.sessions.make_ticket(time.time()))
            threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()

    def _address(self, person: Person, secret: str) -> str:
        """The part behind # is never sent, and so is in no log."""
        return f"{self.site.base(self.port)}{'/' if person.judges else '/overview'}#{secret}"

    def run(self) -> None:
        """Serve until `stop` is called or, in the main thread, until an interrupt."""
        if self._fits:
            self._fitting.start()
            self._fitting.notify(self.store.n_events)
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
        self.store.add_findings(body, n_events, questions, self.task.method)
        self.findings.publish(body)

    def _listen(self, port: int | None) -> socket.socket:
        if port is not None:
            return listen(self.site.host, port)
        try:
            return listen(self.site.host, _FIRST_PORT + self.sessions.number_for("port", _N_PORTS))
        except OSError:
            return listen(self.site.host, 0)

    def _config(self, context: ssl.SSLContext | None) -> uvicorn.Config:
        """The routes behind the guard, and how connections are treated."""
        handlers: Any = {HTTPException: _refuse, StoreError: _refuse_for_now, Exception: _report}
        app = Starlette(routes=self._routes(), exception_handlers=handlers)
        config = uvicorn.Config(
            Guard(app, self.site.hosts(self.port), self.site.origins(self.port), frozenset(_PAGES)),
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

    # ---- what each route answers; all that reads or writes the file runs in threads

    def _routes(self) -> list[Route]:
        types = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
        pages = {path: load_template(name, "closefar label", "label").render() for path, name in _PAGES.items()}
        return [
            *(Route(path, _asset(page, "text/html"), methods=["GET"]) for path, page in pages.items()),
            *(Route(f"/static/{name}", _asset(load_asset(name), types[name.rpartition(".")[2]])) for name in _ASSETS),
            Route("/enter", self._enter, methods=["POST"]),
            Route("/api/setup", self._setup, methods=["GET"]),
            Route("/api/findings", self._reading(self._findings), methods=["GET"]),
            Route("/api/thing/{row}", self._reading(self._thing), methods=["GET"]),
            Route("/files/{row}/{column:path}", self._reading(self._picture), methods=["GET"]),
            Route("/api/questions", self._changing(self._questions), methods=["POST"]),
            Route("/api/events", self._changing(self._events), methods=["POST"]),
            Route("/api/review", self._changing(self._review), methods=["POST"]),
        ]

    async def _enter(self, request: Request) -> Response:
        """Begin a session for whoever knows a secret."""
        body = _checked(await _json_of(request), {"secret": _text(100)})
        now = time.time()
        person = self.sessions.person_with(body["secret"], now)
        if person is None:
            if not self._wrong_secrets.allows("", now):
                raise HTTPException(429, "Too many wrong secrets. Wait a minute.", {"retry-after": "60"})
            raise HTTPException(403, "This secret is not valid here. Open the address that closefar label printed.")
        response = Response(status_code=204)
        response.set_cookie(
            self._cookie_name,
            self.sessions.begin(person, now),
            max_age=SESSION_SECONDS,
            secure=self.site.is_secure,
            httponly=True,
            samesite="strict",
        )
        return response

    # ---- for whoever has a session

    def _reading(self, answer: Callable[[Request, Person], Any]) -> Callable[[Request], Any]:
        """A route that gives what `answer` returns, a response or what becomes JSON."""

        async def endpoint(request: Request) -> Response:
            person, _ = self._visitor(request)
            found = await run_in_threadpool(answer, request, person)
            return found if isinstance(found, Response) else JSONResponse(found)

        return endpoint

    def _changing(self, answer: Callable[[dict[str, Any], Person], dict[str, Any]]) -> Callable[[Request], Any]:
        """A route that changes something as a JSON body says."""

        async def endpoint(request: Request) -> Response:
            person, cookie = self._visitor(request)
            if not self.sessions.is_token(request.headers.get("x-closefar-token", ""), cookie):
                raise HTTPException(403, "The token of the session is missing or wrong. Load the page again.")
            if not person.judges:
                raise HTTPException(403, "The owner of a task with annotators does not judge.")
            return JSONResponse(await run_in_threadpool(answer, await _json_of(request), person))

        return endpoint

    def _visitor(self, request: Request) -> tuple[Person, str]:
        """Whose request it is, and the cookie of the session.

        Other servers of the same machine may have set cookies of the same name, too.
        """
        pairs = [each.strip().partition("=") for line in request.headers.getlist("cookie") for each in line.split(";")]
        for cookie in [value for name, _, value in pairs if name == self._cookie_name][:5]:
            person = self.sessions.person_of(cookie, time.time())
            if person is not None:
                rate = self._pictures if request.url.path.startswith("/files/") else self._requests
                if not rate.allows(person.name, time.monotonic()):
                    raise HTTPException(429, "Too many requests. Wait a few seconds.", {"retry-after": "5"})
                return person, cookie
        raise HTTPException(
            401, "There is no session. Open the address that closefar label printed, complete with the part after #."
        )

    async def _setup(self, request: Request) -> Response:
        person, cookie = self._visitor(request)
        return JSONResponse(
            {
                **asdict(person),
                "file": self.sessions.file_id,
                "token": self.sessions.token_of(cookie),
                "task": {name: getattr(self.task, name) for name in ("kind", "question", "instructions", "answers")},
                "rest_after": _REST_AFTER,
            }
        )

    def _questions(self, found: dict[str, Any], person: Person) -> dict[str, Any]:
        n = _checked(found, {"n": _number(1, _MOST_QUESTIONS, int)})["n"]
        request = (self.task, len(self.points), person.name, time.time(), self._rng)
        given = self.store.run(lambda connection: Asking(connection, *request).questions(n))
        questions = [self._shown(each) for each in given]
        return {"questions": questions, "progress": self._progress_of(person), "exhausted": not given}

    def _events(self, found: dict[str, Any], person: Person) -> dict[str, Any]:
        events = [NewEvent(**_checked(each, _EVENT)) for each in _checked(found, {"events": _are_events})["events"]]
        recorded = self.store.record(person.name, events, time.time())
        self._fitting.notify(self.store.n_events)
        return {"receipts": [asdict(each) for each in recorded], "progress": self._progress_of(person)}

    def _review(self, found: dict[str, Any], person: Person) -> dict[str, Any]:
        question = _checked(found, {"question": _QUESTION})["question"]
        is_doubtful = any(each.get("question") == question for each in self.findings.doubtful_of(person.name))
        job = partial(assign_review, annotator=person.name, question=question, now=time.time())
        given = self.store.run(job) if is_doubtful else None
        if given is None:
            raise HTTPException(404, "Only own answers that the metric doubts can be looked at again.")
        return {"question": self._shown(given)}

    def _findings(self, request: Request, person: Person) -> dict[str, Any]:
        found = self.findings.shown_to(person.name, is_owner=person.is_owner)
        return {**found, "progress": self._progress_of(person)}

    def _thing(self, request: Request, person: Person) -> dict[str, Any]:
        if not person.is_owner:
            raise HTTPException(403, "Only the owner can look at single points.")
        return render_items(self.points, [self._row(request)])[0]

    def _picture(self, request: Request, person: Person) -> Response:
        points, name, row = self.points, request.path_params["column"], self._row(request)
        sees = partial(was_shown, annotator=person.name, row=row)
        found = None
        if name in points.shown and (person.is_owner or self.store.run(sees)):
            found = find_picture(points.folder, str(points.columns[name][row]))
        if found is None:
            raise HTTPException(404, "There is no picture of that point in that column.")
        content, media_type = found
        return Response(content, media_type=media_type, headers={"content-security-policy": _PICTURE_POLICY})

    def _shown(self, given: Assigned) -> dict[str, Any]:
        shown = render_items(self.points, given.things)
        return {"id": given.question, "purpose": given.purpose.value, "things": shown}

    def _progress_of(self, person: Person) -> dict[str, Any]:
        """The number of answers that stand, the median time of the latest, and the last, which an undo would take."""
        own = "FROM standing WHERE annotator = ?"

        def job(connection: sqlite3.Connection) -> tuple[int, list[tuple[Any, ...]]]:
            (n,) = connection.execute(f"SELECT count(DISTINCT question) {own}", [person.name]).fetchone()
            latest = f"SELECT seconds, key, question, answer {own} ORDER BY id DESC LIMIT {_N_TIMED}"
            return n, connection.execute(latest, [person.name]).fetchall()

        n, latest = self.store.run(job)
        seconds = [each[0] for each in latest if each[0] is not None]
        last = dict(zip(("key", "question", "answer"), latest[0][1:], strict=True)) if latest else None
        return {"n": n, "seconds": statistics.median(seconds) if seconds else None, "last_answer": last}

    def _row(self, request: Request) -> int:
        text = request.path_params["row"]
        if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) < len(self.points)):
            raise HTTPException(404, "There is no such point.")
        return int(text)


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


def _asset(text: str, media_type: str) -> Callable[[Request], Any]:
    """A page or what it loads; data are asked for by scripts."""

    async def endpoint(request: Request) -> Response:
        return Response(text, media_type=media_type)

    return endpoint


# ---------------------------------------------------------------------------------------------------------------------
# Bodies of requests: read up to a limit, and checked value by value, with a sentence for each wrong one.

LARGEST_BODY = 65_536  # bytes; 50 answers take about a tenth of it


async def _json_of(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body of a request."""
    closing = {"connection": "close"}
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "The body of a request must be application/json.", closing)
    body, n = bytearray(), int(request.headers.get("content-length", 0))
    try:
        if n <= LARGEST_BODY:
            async for part in request.stream():
                body += part
                if (n := len(body)) > LARGEST_BODY:
                    break
    except ClientDisconnect:
        raise HTTPException(400, "The request ended early.") from None
    if n > LARGEST_BODY:
        raise HTTPException(413, f"The body of a request must have {LARGEST_BODY} bytes at most.", closing)
    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=_without_twins)
    except (ValueError, RecursionError):  # also of invalid UTF-8 and of integers with thousands of digits
        raise HTTPException(400, "The body of a request must be valid JSON, with no name twice in an object.") from None
    if not isinstance(value, dict):
        raise HTTPException(400, "The body of a request must be a JSON object.")
    return value


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found


_Rule = Callable[[Any], bool]  # whether a value is one that the protocol has for a field


def _text(longest: int) -> _Rule:
    return lambda value: (
        isinstance(value, str) and len(value) <= longest and re.search(r"[\0\ud800-\udfff]", value) is None
    )


def _number(least: int, most: int, *kinds: type) -> _Rule:
    return lambda value: type(value) in kinds and least <= value <= most


def _are_events(value: Any) -> bool:
    return isinstance(value, list) and 0 < len(value) <= _MOST_EVENTS and all(isinstance(each, dict) for each in value)


def _key(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[A-Za-z0-9_-]{8,64}", value) is not None


_QUESTION = _number(0, 2**53, int)  # numbers that JavaScript knows exactly
_EVENT: dict[str, _Rule] = {
    "key": _key,
    "kind": _text(10),
    "question": _QUESTION,
    "answer": lambda value: value is None or _text(100)(value),
    "undoes": lambda value: value is None or _key(value),
    "seconds": lambda value: value is None or _number(0, 10**9, int, float)(value),
}


def _checked(found: dict[str, Any], rules: dict[str, _Rule]) -> dict[str, Any]:
    """The fields of an object, each by its rule; there are no others, which would be mistakes, or worse."""
    if found.keys() - rules.keys():
        raise HTTPException(400, f"There is a field that is none of these: {', '.join(rules)}.")
    for name, is_right in rules.items():
        if not is_right(found.get(name)):
            raise HTTPException(400, f"The field {name} is missing, or has a value that the protocol does not allow.")
    return {name: found.get(name) for name in rules}


# ---------------------------------------------------------------------------------------------------------------------
# What goes wrong: a sentence for the browser, and on the terminal of the owner what nobody else may know.


async def _refuse(request: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _refuse_for_now(request: Request, error: StoreError) -> Response:
    say(str(error))
    return JSONResponse({"error": "Nothing can be written at the moment; the owner's terminal says why."}, 503)


async def _report(request: Request, error: Exception) -> Response:
    """Say on the terminal where an error is, and nothing of the request."""
    frames = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-3:]]
    say(f"{type(error).__name__} at {' < '.join(reversed(frames))}")
    return JSONResponse({"error": "The server has met an error of its own; its terminal says where."}, 500)


def say(sentence: str) -> None:
    """Say something on the terminal of the owner."""
    if sys.stderr is not None:
        print(printable(f"closefar label: {sentence}"), file=sys.stderr, flush=True)


# ---------------------------------------------------------------------------------------------------------------------
# Items as the page shows them: each value in words and in its column's range, and what differs between them.

_LONGEST_TEXT = 4000  # letters of a cell, about as many as a screen shows
_MOST_DIGITS = 6  # after the point
_LARGEST_WRITTEN_OUT = 1e12  # larger numbers have four digits and an exponent
_QUANTILES = 301  # to which a column is thinned before each two of its values are compared: 45,150 differences
_FIRST_GROUPED = 10_000.0  # below it thousands are not grouped, since years are such numbers


def render_items(points: LabelPoints, rows: Sequence[int]) -> list[dict[str, Any]]:
    """Return the things of one question, or a single thing, as JSON objects: ``{"id", "cells"}``.

    The first thing is the one that others are compared with: their cells say by how much they differ from it.  Those
    worth a look are marked ("differs"): values other than numbers if they are not the same, and numbers if they differ
    at least as much as two things of the table do at the median in this column.  Columns that were asked for with
    --show come first.

    Parameters
    ----------
    points : LabelPoints
    rows : sequence of int
        The first thing, or for triplets the reference, and those compared with it.
    """
    found: list[dict[str, Any]] = [{"id": _clean(str(points.ids[row])), "cells": []} for row in rows]
    for name in (*points.shown, *(name for name in points.columns if name not in points.shown)):
        values, scale = points.columns[name], _scale(points, name)
        cells = [_cell(points, name, values[row], row, scale) for row in rows]
        first, *others = cells
        for cell, row in zip(others, rows[1:], strict=True):
            cell["differs"] = (cell["kind"], cell["text"]) != (first["kind"], first["text"])
            if cell["differs"] and cell["kind"] == first["kind"] == "number" and scale is not None:
                cell |= scale.compared(float(values[rows[0]]), float(values[row]))
        first["differs"] = any(cell["differs"] for cell in others)
        for thing, cell in zip(found, cells, strict=True):
            thing["cells"].append(cell)
    return found


@dataclass(frozen=True)
class _Scale:
    """The range of a column of numbers, and how they are shown.

    Attributes
    ----------
    low, high : float
    decimals : int or None
        How many are shown; None for four significant digits.
    typical : float
        The median difference of two things.
    """

    low: float
    high: float
    decimals: int | None
    typical: float

    def compared(self, first: float, other: float) -> dict[str, Any]:
        """By how much two numbers differ, and whether that is as much as those of two things usually do."""
        amount = self.rounded(other) - self.rounded(first)  # so that it adds up with what is shown
        words = f"{self.text(abs(amount))} {'higher' if amount > 0 else 'lower'}" if math.isfinite(amount) else None
        return {"differs": not abs(first - other) < self.typical, "difference": words}

    def place(self, value: float) -> float:
        """Where a number lies in the range, from 0 to 1."""
        span = self.high - self.low
        return min(1.0, max(0.0, (value - self.low) / span)) if span > 0 else 0.5

    def rounded(self, value: float) -> float:
        """A number with the decimals that are shown."""
        return value if self.decimals is None else round(value, self.decimals) + 0.0  # no minus zero

    def text(self, value: float) -> str:
        """A number as it is shown."""
        if self.decimals is None or not math.isfinite(value):
            words = f"{value:.4g}"
        else:
            words = f"{self.rounded(value):{',' if abs(value) >= _FIRST_GROUPED else ''}.{self.decimals}f}"
        return words.replace("-", "\N{MINUS SIGN}")


@lru_cache(maxsize=4096)
def _scale(points: LabelPoints, name: str) -> _Scale | None:
    """The scale of a column, if it holds numbers."""
    values = points.columns[name]
    if values.dtype.kind not in "fiu":
        return None
    finite = np.asarray(values[np.isfinite(values)], dtype=float)
    if not len(finite):
        return _Scale(0.0, 0.0, None, 0.0)
    low, high = float(finite.min()), float(finite.max())
    quantiles = np.quantile(finite, np.linspace(0.0, 1.0, min(len(finite), _QUANTILES)))
    first, second = np.triu_indices(len(quantiles), 1)
    typical = float(np.median(quantiles[second] - quantiles[first])) if len(first) else 0.0
    return _Scale(low, high, _decimals(finite, low, high), typical)


def _decimals(finite: NDArray[np.float64], low: float, high: float) -> int | None:
    """As many as the numbers have, but no more than three digits of the range."""
    if max(abs(low), abs(high)) >= _LARGEST_WRITTEN_OUT:
        return None
    most = _MOST_DIGITS if low == high else max(0, 2 - math.floor(math.log10(high - low)))
    if most > _MOST_DIGITS:
        return None
    return next((n for n in range(most) if bool(np.all(finite == np.round(finite, n)))), most)


def _cell(points: LabelPoints, name: str, value: Any, row: int, scale: _Scale | None) -> dict[str, Any]:
    cell: dict[str, Any] = {"name": _clean(name), "place": None, "differs": False, "difference": None}
    if _is_missing(value):
        return {**cell, "kind": "missing", "text": "missing"}
    if scale is not None:
        return {**cell, "kind": "number", "text": scale.text(float(value)), "place": scale.place(float(value))}
    if isinstance(value, bool | np.bool_):
        return {**cell, "kind": "truth", "text": "yes" if value else "no"}
    text = _clean(str(value))
    if name in points.shown and text.lower().endswith(tuple(_PICTURE_TYPES)) and not _is_address(text):
        return {**cell, "kind": "image", "text": text, "src": f"/files/{row}/{quote(name, safe='')}"}
    if _is_address(text):
        return {**cell, "kind": "link", "text": text, "href": text}
    n_more = len(text) - _LONGEST_TEXT
    return {**cell, "kind": "text", "text": text[:_LONGEST_TEXT] + (f"… ({n_more:,} more characters)" * (n_more > 0))}


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float | np.floating | np.datetime64) and bool(value != value))


def _is_address(text: str) -> bool:
    if not text.lower().startswith(("http://", "https://")) or not text.isprintable() or " " in text:
        return False
    try:
        return bool(urlsplit(text).hostname)
    except ValueError:
        return False


def _clean(text: str) -> str:
    """The same text without lone surrogates, which no JSON in UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


# ---------------------------------------------------------------------------------------------------------------------
# Files that cells name: pictures below the folder of the table, and nothing else.

_LARGEST_PICTURE = 32 * 2**20  # bytes, more than photographs have

# How a file of each type begins; a page in a file that is named .png is not shown as one.
_PICTURE_TYPES = {
    ".png": ("image/png", rb"\x89PNG\r\n\x1a\n"),
    ".jpg": ("image/jpeg", rb"\xff\xd8\xff"),
    ".jpeg": ("image/jpeg", rb"\xff\xd8\xff"),
    ".gif": ("image/gif", rb"GIF8[79]a"),
    ".webp": ("image/webp", rb"RIFF(?s:.{4})WEBP"),
}


def find_picture(folder: Path, cell: str) -> tuple[bytes, str] | None:
    """Return the content and the type of the picture that a cell names, or None if there is none that may be shown.

    Parameters
    ----------
    folder : Path
        The folder of the table; a file that lies elsewhere, also by a link, is not shown.
    cell : str
        The path of the file from there.
    """
    try:
        base = folder.resolve(strict=True)
        place = (base / cell).resolve(strict=True)
        is_file = place.is_relative_to(base) and place.is_file()  # a pipe would be waited for
        content = place.read_bytes() if is_file and place.stat().st_size <= _LARGEST_PICTURE else b""
    except (OSError, ValueError, RuntimeError):  # not there, a null byte, a link to itself
        return None
    media_type, beginning = _PICTURE_TYPES.get(place.suffix.lower(), ("", b"-"))
    return (content, media_type) if re.match(beginning, content) else None
