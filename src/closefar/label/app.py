"""What the server answers: pages without data, JSON for whoever has a session, and changes with its token only."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from closefar.errors import printable
from closefar.label.assignment import Assigned, assign, assign_review, was_shown
from closefar.label.findings import LatestFindings
from closefar.label.security import SESSION_SECONDS, ClientLimits, Guard, Rate, Sessions
from closefar.label.site import Person, Site
from closefar.label.storage import NewEvent, Store, StoreError
from closefar.label.task import LabelPoints, Task
from closefar.templating import load_asset, load_template

_REST_AFTER = 25  # minutes, after which the page suggests a rest
_MOST_QUESTIONS, _MOST_EVENTS = 10, 50  # of one request; a page holds three, and sends answers that it kept in parts
_PICTURES_PER_REQUEST = 5  # that may be loaded for each other request
_N_TIMED = 50  # the last answers, whose median time is shown
_GUESSES = 1.0, 50.0  # wrong secrets per second, and at once; a secret has 256 bits

_PAGES = {"/": "label.html.jinja", "/overview": "label_overview.html.jinja"}
_ASSETS = ("palette.css", "label.css", "label.js", "label_icon.svg", "label_outbox.js", "label_page.js", "overview.js")
_PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"


class Labelling:
    """What each route answers; all that reads or writes the file runs in threads.

    Parameters
    ----------
    task : Task
    points : LabelPoints
    store : Store
    sessions : Sessions
    findings : LatestFindings
        What is known so far.
    notify : function
        Called with the number of events after each change.
    limits : ClientLimits
    """

    def __init__(
        self,
        task: Task,
        points: LabelPoints,
        store: Store,
        sessions: Sessions,
        findings: LatestFindings,
        notify: Callable[[int], None],
        limits: ClientLimits,
    ) -> None:
        self.task, self.points, self.store, self.sessions = task, points, store, sessions
        self.findings, self.notify = findings, notify
        rate, burst = limits.rate, limits.burst
        self._requests, self._wrong_secrets = Rate(rate, burst), Rate(*_GUESSES)
        self._pictures = Rate(_PICTURES_PER_REQUEST * rate, _PICTURES_PER_REQUEST * burst)
        self._progress = {name: _Progress(name) for name in sessions.people}
        self._rng = np.random.default_rng()  # used in transactions only, one at a time

    def app(self, site: Site, port: int) -> ASGIApp:
        """The whole of the server's application: the routes behind the guard."""
        self._is_secure = site.is_secure
        self._cookie_name = f"{'__Host-' if site.is_secure else ''}closefar-{self.sessions.file_id}"
        handlers: Any = {HTTPException: _refuse, StoreError: _refuse_for_now, Exception: _report}
        app = Starlette(routes=self._routes(), exception_handlers=handlers)
        return Guard(app, site.hosts(port), site.origins(port), frozenset(_PAGES))

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
        body = _checked(await _json_of(request), "The body", {"secret": _text(100)})
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
            secure=self._is_secure,
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
        n = _checked(found, "The body", {"n": _number(1, _MOST_QUESTIONS)})["n"]
        who, now = person.name, time.time()
        given = self.store.run(
            lambda connection: assign(connection, self.task, len(self.points), who, n, now=now, rng=self._rng)
        )
        questions, (progress, _) = [self._shown(each) for each in given], self._progress_of(person)
        return {"questions": questions, "progress": progress, "exhausted": not given}

    def _events(self, found: dict[str, Any], person: Person) -> dict[str, Any]:
        events = [
            NewEvent(**_checked(each, "An event", _EVENT))
            for each in _checked(found, "The body", {"events": _objects(_MOST_EVENTS)})["events"]
        ]
        recorded = self.store.record(person.name, events, time.time())
        progress, n_events = self._progress_of(person)
        self.notify(n_events)
        return {"receipts": [asdict(each) for each in recorded], "progress": progress}

    def _review(self, found: dict[str, Any], person: Person) -> dict[str, Any]:
        question = _checked(found, "The body", {"question": _QUESTION})["question"]
        is_doubtful = any(each.get("question") == question for each in self.findings.doubtful_of(person.name))
        job = partial(assign_review, annotator=person.name, question=question, now=time.time())
        given = self.store.run(job) if is_doubtful else None
        if given is None:
            raise HTTPException(404, "Only own answers that the metric doubts can be looked at again.")
        return {"question": self._shown(given)}

    def _findings(self, request: Request, person: Person) -> dict[str, Any]:
        found = self.findings.shown_to(person.name, is_owner=person.is_owner)
        return {**found, "progress": self._progress_of(person)[0]}

    def _thing(self, request: Request, person: Person) -> dict[str, Any]:
        if not person.is_owner:
            raise HTTPException(403, "Only the owner can look at single points.")
        return render_items(self.task, self.points, [self._row(request)])[0]

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
        shown = render_items(self.task, self.points, given.things)
        return {"id": given.question, "purpose": given.purpose.value, "things": shown}

    def _progress_of(self, person: Person) -> tuple[dict[str, Any], int]:
        """How far somebody is, and the number of all events."""

        def job(connection: sqlite3.Connection) -> tuple[dict[str, Any], int]:
            progress = self._progress[person.name].read(connection, time.time())
            return progress, connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()[0]

        return self.store.run(job)

    def _row(self, request: Request) -> int:
        text = request.path_params["row"]
        if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) < len(self.points)):
            raise HTTPException(404, "There is no such point.")
        return int(text)


def _asset(text: str, media_type: str) -> Callable[[Request], Any]:
    """A page or what it loads, which browsers may keep as long as its tag stays: data are asked for by scripts."""
    content = text.encode()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}

    async def endpoint(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    return endpoint


class _Progress:
    """How far somebody is: own answers that stand; each reading takes in the events since the last one."""

    def __init__(self, annotator: str) -> None:
        self.annotator = annotator
        self._standing: dict[str, dict[str, Any]] = {}
        self._last_event = 0

    def read(self, connection: sqlite3.Connection, now: float) -> dict[str, Any]:
        """The numbers of answers, the time that they take, and the last one, which an undo would take back."""
        rows = connection.execute(
            "SELECT id, kind, undoes, key, question, answer, seconds, at FROM events "
            "WHERE annotator = ? AND id > ? ORDER BY id",
            (self.annotator, self._last_event),
        )
        for event, kind, undoes, *given in rows:
            if kind == "undo":
                self._standing.pop(undoes, None)
            else:
                answer = dict(zip(("key", "question", "answer", "seconds", "at"), given, strict=True))
                self._standing[answer["key"]] = answer
            self._last_event = event
        live = {each["question"]: each for each in self._standing.values()}  # a review comes after the first answer
        last = next(reversed(self._standing.values()), None)
        today = time.localtime(now)[:3]
        seconds = [each["seconds"] for each in live.values() if each["seconds"] is not None][-_N_TIMED:]
        return {
            "n": len(live),
            "n_unsure": sum(each["answer"] is None for each in live.values()),
            "n_today": sum(time.localtime(each["at"])[:3] == today for each in live.values()),
            "seconds": statistics.median(seconds) if seconds else None,
            "last_answer": last and {name: last[name] for name in ("key", "question", "answer")},
        }


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
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_without_twins)
    except (ValueError, RecursionError):  # also of invalid UTF-8 and of integers with thousands of digits
        raise HTTPException(400, "The body of a request must be valid JSON, with no name twice in an object.") from None
    if not isinstance(value, dict):
        raise HTTPException(400, f"The body of a request must be a JSON object; got {_abbreviated(value)}.")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found


_Rule = tuple[str, Callable[[Any], bool]]  # in words, and whether a value follows it


def _text(longest: int) -> _Rule:
    def is_right(value: Any) -> bool:
        is_short = isinstance(value, str) and len(value) <= longest and "\0" not in value
        return is_short and not any("\ud800" <= letter <= "\udfff" for letter in value)

    return f"a text of {longest} characters at most", is_right


def _number(least: float, most: float, what: str = "an integer", kinds: Any = int) -> _Rule:
    def is_right(value: Any) -> bool:
        return isinstance(value, kinds) and not isinstance(value, bool) and least <= value <= most

    return f"{what} from {least} to {most}", is_right


def _objects(most: int) -> _Rule:
    def is_right(value: Any) -> bool:
        return isinstance(value, list) and 1 <= len(value) <= most and all(isinstance(each, dict) for each in value)

    return f"a list of 1 to {most} objects", is_right


def _optional(rule: _Rule) -> _Rule:
    return rule[0], lambda value: value is None or rule[1](value)


_IS_KEY = re.compile(r"[A-Za-z0-9_-]{8,64}").fullmatch
_KEY: _Rule = "8 to 64 letters, digits, - or _", lambda value: isinstance(value, str) and bool(_IS_KEY(value))
_QUESTION = _number(0, 2**53)  # numbers that JavaScript knows exactly
_EVENT = {
    "key": _KEY,
    "kind": _text(10),
    "question": _QUESTION,
    "answer": _optional(_text(100)),
    "undoes": _optional(_KEY),
    "seconds": _optional(_number(0, 10**9, "a number", (int, float))),
}


def _checked(found: dict[str, Any], what: str, rules: dict[str, _Rule]) -> dict[str, Any]:
    """The fields of an object, each by its rule; there are no others, which would be mistakes, or worse."""
    unknown = sorted(set(found) - set(rules))
    if unknown:
        raise HTTPException(400, f"{what} may have {', '.join(sorted(rules))}; got {_abbreviated(unknown[0])}.")
    for name, (rule, is_right) in rules.items():
        if not is_right(found.get(name)):
            raise HTTPException(400, f"{name} must be {rule}; got {_abbreviated(found.get(name))}.")
    return {name: found.get(name) for name in rules}


def _abbreviated(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, float) and not math.isfinite(value):
        return "a number that is too large"
    text = ascii(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ---------------------------------------------------------------------------------------------------------------------
# What goes wrong: a sentence for the browser, and on the terminal of the owner what nobody else may know.


async def _refuse(request: Request, error: HTTPException) -> Response:
    sentence = error.detail
    if error.status_code == 405:
        sentence = f"This path takes {(error.headers or {})['Allow']}; got {request.method}."
    elif error.detail == "Not Found":
        sentence = "There is no such page."
    return JSONResponse({"error": sentence}, error.status_code, error.headers)


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


def render_items(task: Task, points: LabelPoints, rows: Sequence[int]) -> list[dict[str, Any]]:
    """Return the things of one question, or a single thing, as JSON objects: ``{"id", "cells"}``.

    The first thing is the one that others are compared with: their cells say by how much they differ from it.  Those
    worth a look are marked ("differs"): values other than numbers if they are not the same, and numbers if they differ
    at least as much as two things of the table do at the median in this column.  Columns that were asked for with
    --show come first.

    Parameters
    ----------
    task : Task
    points : LabelPoints
    rows : sequence of int
        The first thing, or for triplets the reference, and those compared with it.
    """
    if len(rows) not in (1, task.n_things):
        raise ValueError(f"a question of {task.kind} shows {task.n_things} things; got {len(rows)} rows.")
    found: list[dict[str, Any]] = [{"id": _clean(str(points.ids[row])), "cells": []} for row in rows]
    for name in (*points.shown, *(name for name in points.columns if name not in points.shown)):
        values = points.columns[name]
        scale = _scale(points, name)
        cells = [_cell(points, name, values[row], row, scale) for row in rows]
        _mark_differences(cells, [values[row] for row in rows], scale)
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
    half_typical : float
        Half of the median difference of two things, which can't overflow.
    """

    low: float
    high: float
    decimals: int | None
    half_typical: float

    def is_notable(self, first: float, other: float) -> bool:
        """Whether two numbers that are not shown the same differ as much as those of two things usually do."""
        return not abs(first / 2 - other / 2) < self.half_typical

    def place(self, value: float) -> float:
        """Where a number lies in the range, from 0 to 1."""
        span = self.high / 2 - self.low / 2  # half of it, which can't overflow
        return 0.5 if not span > 0 else min(max((value / 2 - self.low / 2) / span, 0.0), 1.0)

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
    return _Scale(low, high, _decimals(finite, low, high), _half_typical(finite))


def _half_typical(finite: NDArray[np.float64]) -> float:
    """Half of the median difference of two things; of many, that of their quantiles."""
    if len(finite) < 2:
        return 0.0
    halves = np.quantile(finite / 2, np.linspace(0.0, 1.0, min(len(finite), _QUANTILES)))
    first, second = np.triu_indices(len(halves), 1)
    return float(np.median(halves[second] - halves[first]))


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
    return {**cell, "kind": "text", "text": _abridged(text)}


def _mark_differences(cells: list[dict[str, Any]], values: list[Any], scale: _Scale | None) -> None:
    """Compare each thing with the first; the first is marked if any other is."""
    first, *others = cells
    for cell, value in zip(others, values[1:], strict=True):
        cell["differs"] = (cell["kind"], cell["text"]) != (first["kind"], first["text"])
        if cell["differs"] and cell["kind"] == first["kind"] == "number" and scale is not None:
            cell["difference"] = _difference(float(values[0]), float(value), scale)
            cell["differs"] = scale.is_notable(float(values[0]), float(value))
    first["differs"] = any(cell["differs"] for cell in others)


def _difference(first: float, other: float, scale: _Scale) -> str | None:
    """The difference of the numbers as they are shown, so that it adds up."""
    amount = scale.rounded(other) - scale.rounded(first)
    if not math.isfinite(amount):
        return None
    return f"{scale.text(abs(amount))} {'higher' if amount > 0 else 'lower'}"


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float | np.floating | np.datetime64) and bool(value != value))


def _is_address(text: str) -> bool:
    if not text.lower().startswith(("http://", "https://")) or not text.isprintable() or " " in text:
        return False
    try:
        return bool(urlsplit(text).hostname)
    except ValueError:
        return False


def _abridged(text: str) -> str:
    n_more = len(text) - _LONGEST_TEXT
    return text if n_more <= 0 else f"{text[:_LONGEST_TEXT]}… ({n_more:,} more characters)"


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
