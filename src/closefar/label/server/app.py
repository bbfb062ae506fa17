"""The routes: pages without data, JSON for who has a session, and changes only by POST with a token of the session."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from closefar.label.server.assets import Asset, load_assets, load_pages
from closefar.label.server.board import Board
from closefar.label.server.handing import Handed, hand_out, hand_review, is_shown
from closefar.label.server.patience import Limits
from closefar.label.server.payloads import check_keys, integer_in, key_in, list_in, number_in, read_json, text_in
from closefar.label.server.pictures import PICTURE_POLICY, find_picture
from closefar.label.server.progress import Progress
from closefar.label.server.rates import Rate
from closefar.label.server.security import App, Guard, Receive, RequestError, Scope, Send, headers_of, one_header, tell
from closefar.label.server.sessions import Person, Sessions
from closefar.label.server.site import Site
from closefar.label.server.things import things
from closefar.label.storage.points import LabelPoints
from closefar.label.storage.recording import NewEvent
from closefar.label.storage.store import Store
from closefar.label.storage.writer import StoreError
from closefar.label.task import Task

T = TypeVar("T")

REST_AFTER = 25  # minutes
MOST_QUESTIONS = 10
MOST_EVENTS = 50

_LARGEST_ID = 2**53  # of numbers that JavaScript knows exactly
_LONGEST_TIME = 86400.0  # seconds; a question may have been on the screen over a weekend
_N_READERS = 3
_N_PICTURES = 5  # that may be loaded for each other request
_NO_SESSION = "There is no session. Open the address that closefar label printed, complete with the part after #."


@dataclass(frozen=True, eq=False)
class Labelling:
    """What is judged, where answers go, and who may give them.

    Attributes
    ----------
    task : Task
    points : LabelPoints
    store : Store
    sessions : Sessions
    board : Board
        What is known so far.
    notify : function
        Told the number of events after each change.
    """

    task: Task
    points: LabelPoints
    store: Store
    sessions: Sessions
    board: Board
    notify: Callable[[int], None]


@dataclass(frozen=True)
class Visit:
    """A request of somebody with a session."""

    person: Person
    cookie: str


def build_app(labelling: Labelling, site: Site, port: int, limits: Limits) -> App:
    """Return the whole of the server's application: the routes behind the guard."""
    routes = Routes(labelling, site, limits)
    return Guard(routes.router(), site.hosts(port), site.origins(port), frozenset(routes.pages))


class _Route(Route):
    """A route that refuses other methods as everything else is refused."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.methods and scope["method"] not in self.methods:
            allowed = ", ".join(sorted(self.methods))
            raise RequestError(405, f"This path takes {allowed}; got {scope['method']}.", allow=allowed)
        await super().handle(scope, receive, send)


class Routes:
    """What the server answers."""

    def __init__(self, labelling: Labelling, site: Site, limits: Limits) -> None:
        self.labelling = labelling
        self.is_secure = site.is_secure
        self.cookie_name = f"{'__Host-' if site.is_secure else ''}closefar-{labelling.sessions.file_id}"
        self.pages, self.assets = load_pages(), load_assets()
        self._progress = {name: Progress(name) for name in labelling.sessions.people}
        self._rng = np.random.default_rng()  # used by the writer alone
        self._readers = ThreadPoolExecutor(_N_READERS, thread_name_prefix="closefar-reader")
        self._requests = Rate(limits.rate, limits.burst)
        self._pictures = Rate(_N_PICTURES * limits.rate, _N_PICTURES * limits.burst)
        self._wrong_secrets = Rate(per_second=1.0, burst=50.0)

    def router(self) -> App:
        return Router(
            [
                *(_Route(path, partial(self._page, asset), methods=["GET"]) for path, asset in self.pages.items()),
                _Route("/static/{name}", self._static, methods=["GET"]),
                _Route("/enter", self._enter, methods=["POST"]),
                _Route("/api/setup", self._reading(self._setup), methods=["GET"]),
                _Route("/api/findings", self._reading(self._findings), methods=["GET"]),
                _Route("/api/thing/{row}", self._reading(self._thing), methods=["GET"]),
                _Route("/files/{row}/{column:path}", self._reading(self._picture), methods=["GET"]),
                _Route("/api/questions", self._changing(self._questions), methods=["POST"]),
                _Route("/api/events", self._changing(self._events), methods=["POST"]),
                _Route("/api/review", self._changing(self._review), methods=["POST"]),
            ],
            redirect_slashes=False,
            default=_not_found,
        )

    # ---- for everybody

    async def _page(self, asset: Asset, request: Request) -> Response:
        return Response(asset.content, media_type=asset.media_type)

    async def _static(self, request: Request) -> Response:
        asset = self.assets.get(request.path_params["name"])
        if asset is None:
            raise RequestError(404, "There is no such file.")
        headers = {"etag": asset.tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == asset.tag:
            return Response(status_code=304, headers=headers)
        return Response(asset.content, media_type=asset.media_type, headers=headers)

    async def _enter(self, request: Request) -> Response:
        """Begin a session for who knows a secret."""
        body = await read_json(request.scope, request.receive)
        check_keys(body, {"secret"}, "The body")
        now = time.time()
        person = self.labelling.sessions.person_with(text_in(body, "secret", 100), now)
        if person is None:
            if not self._wrong_secrets.allows("", now):
                raise RequestError(429, "Too many wrong secrets. Wait a minute.", retry_after="60")
            raise RequestError(403, "This secret is not valid here. Open the address that closefar label printed.")
        response = Response(status_code=204)
        response.set_cookie(
            self.cookie_name,
            self.labelling.sessions.begin(person, now),
            max_age=30 * 86400,
            path="/",
            secure=self.is_secure,
            httponly=True,
            samesite="strict",
        )
        return response

    # ---- for who has a session

    def _reading(self, answer: Callable[[Request, Visit], Awaitable[Response]]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            visit = self._visit(request)
            rate = self._pictures if request.url.path.startswith("/files/") else self._requests
            self._check_rate(rate, visit)
            return await answer(request, visit)

        return endpoint

    def _changing(self, answer: Callable[[dict[str, Any], Visit], Awaitable[Any]]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            visit = self._visit(request)
            token = one_header(headers_of(request.scope), "x-closefar-token")
            if not self.labelling.sessions.is_token(token, visit.cookie):
                raise RequestError(403, "The token of the session is missing or wrong. Load the page again.")
            if not visit.person.judges:
                raise RequestError(403, "The owner of a task with annotators does not judge.")
            self._check_rate(self._requests, visit)
            return _json(await answer(await read_json(request.scope, request.receive), visit))

        return endpoint

    def _visit(self, request: Request) -> Visit:
        now = time.time()
        for cookie in _cookies(request.scope, self.cookie_name):
            person = self.labelling.sessions.person_of(cookie, now)
            if person is not None:
                return Visit(person, cookie)
        raise RequestError(401, _NO_SESSION)

    def _check_rate(self, rate: Rate, visit: Visit) -> None:
        if not rate.allows(visit.person.name, time.monotonic()):
            raise RequestError(429, "Too many requests. Wait a few seconds.", retry_after="5")

    async def _setup(self, request: Request, visit: Visit) -> Response:
        task, person = self.labelling.task, visit.person
        return _json(
            {
                "name": person.name,
                "file": self.labelling.sessions.file_id,
                "is_owner": person.is_owner,
                "judges": person.judges,
                "token": self.labelling.sessions.token_of(visit.cookie),
                "task": {
                    "kind": task.kind.value,
                    "question": task.question,
                    "instructions": task.instructions,
                    "answers": list(task.answers),
                },
                "rest_after": REST_AFTER,
            }
        )

    async def _questions(self, body: dict[str, Any], visit: Visit) -> dict[str, Any]:
        check_keys(body, {"n"}, "The body")
        n = integer_in(body, "n", 1, MOST_QUESTIONS)
        task, points, name = self.labelling.task, self.labelling.points, visit.person.name
        job = partial(hand_out, task=task, n_points=len(points), annotator=name, n=n, now=time.time(), rng=self._rng)
        handed = await self._written(self.labelling.store.submit(job))
        return await self._read(self._shown, handed, visit)

    async def _events(self, body: dict[str, Any], visit: Visit) -> dict[str, Any]:
        check_keys(body, {"events"}, "The body")
        events = [_event(each) for each in list_in(body, "events", MOST_EVENTS)]
        recorded = await self._written(self.labelling.store.record(visit.person.name, events, time.time()))
        progress, n_events = await self._read(self._progress_of, visit)
        self.labelling.notify(n_events)
        receipts = [{"key": each.key, "recorded": each.recorded, "reason": each.reason} for each in recorded]
        return {"receipts": receipts, "progress": progress}

    async def _review(self, body: dict[str, Any], visit: Visit) -> dict[str, Any]:
        check_keys(body, {"question"}, "The body")
        question = integer_in(body, "question", 0, _LARGEST_ID)
        handed = None
        if self.labelling.board.is_doubtful(visit.person, question):
            job = partial(hand_review, annotator=visit.person.name, question=question, now=time.time())
            handed = await self._written(self.labelling.store.submit(job))
        if handed is None:
            raise RequestError(404, "Only own answers that the metric doubts can be looked at again.")
        return {"question": await self._read(self._shown_question, handed)}

    async def _findings(self, request: Request, visit: Visit) -> Response:
        return await self._read(self._found, visit)

    async def _thing(self, request: Request, visit: Visit) -> Response:
        if not visit.person.is_owner:
            raise RequestError(403, "Only the owner can look at single points.")
        row = self._row(request)
        return _json((await self._read(things, self.labelling.task, self.labelling.points, [row]))[0])

    async def _picture(self, request: Request, visit: Visit) -> Response:
        points, name, row = self.labelling.points, request.path_params["column"], self._row(request)
        found = None
        if name in points.shown and (visit.person.is_owner or await self._read(self._was_shown, row, visit)):
            found = await self._read(find_picture, points.folder, str(points.columns[name][row]))
        if found is None:
            raise RequestError(404, "There is no picture of that point in that column.")
        content, media_type = found
        return Response(content, media_type=media_type, headers={"content-security-policy": PICTURE_POLICY})

    # ---- in the threads that read

    async def _read(self, job: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, partial(job, *arguments))

    async def _written(self, future: Future[T]) -> T:
        try:
            return await asyncio.wrap_future(future)
        except StoreError as error:
            tell(str(error))
            raise RequestError(503, "Nothing can be written at the moment; the owner's terminal says why.") from None

    def _shown(self, handed: list[Handed], visit: Visit) -> dict[str, Any]:
        progress, _ = self._progress_of(visit)
        questions = [self._shown_question(each) for each in handed]
        return {"questions": questions, "progress": progress, "exhausted": not handed}

    def _shown_question(self, handed: Handed) -> dict[str, Any]:
        shown = things(self.labelling.task, self.labelling.points, handed.things)
        return {"id": handed.question, "purpose": handed.purpose.value, "things": shown}

    def _progress_of(self, visit: Visit) -> tuple[dict[str, Any], int]:
        def job(connection: Any) -> tuple[dict[str, Any], int]:
            progress = self._progress[visit.person.name].read(connection, time.time())
            return progress, connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()[0]

        return self.labelling.store.read(job)

    def _was_shown(self, row: int, visit: Visit) -> bool:
        return self.labelling.store.read(partial(is_shown, annotator=visit.person.name, row=row))

    def _found(self, visit: Visit) -> Response:
        found = self.labelling.board.shown_to(visit.person)
        return _json({**found, "progress": self._progress_of(visit)[0]})

    def _row(self, request: Request) -> int:
        text = request.path_params["row"]
        if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) < len(self.labelling.points)):
            raise RequestError(404, "There is no such point.")
        return int(text)


def _event(found: dict[str, Any]) -> NewEvent:
    check_keys(found, {"key", "kind", "question", "answer", "undoes", "seconds"}, "An event")
    return NewEvent(
        key=key_in(found, "key"),
        kind=text_in(found, "kind", 10),
        question=integer_in(found, "question", 0, _LARGEST_ID),
        answer=None if found.get("answer") is None else text_in(found, "answer", 100),
        undoes=None if found.get("undoes") is None else key_in(found, "undoes"),
        seconds=None if found.get("seconds") is None else min(number_in(found, "seconds", 0.0, 1e9), _LONGEST_TIME),
    )


def _cookies(scope: Scope, name: str) -> list[str]:
    """All cookies of a name: other servers of the same machine may have set some, too."""
    pairs = [pair.strip().partition("=") for line in headers_of(scope).get("cookie", []) for pair in line.split(";")]
    return [value for each, _, value in pairs if each == name][:5]


def _json(value: Any) -> Response:
    return Response(json.dumps(value, allow_nan=False, ensure_ascii=False), media_type="application/json")


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    raise RequestError(404, "There is no such page.")
