"""What every request must pass before a route sees it, and the headers of every response."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from closefar.errors import printable

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS = {
    "content-security-policy": _PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
_LONGEST_TARGET = 2048
LARGEST_HEAD = 16_384  # bytes
_MOST_HEADERS = 100
_METHODS = ("GET", "HEAD", "POST")


class RequestError(Exception):
    """A request that is refused, with its HTTP status and a sentence."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Guard:
    """An ASGI application around another one: it refuses requests of other sites, and adds headers to responses.

    A page of another site can make a browser send requests here, with cookies if both are on one machine: the origin
    tells them apart.  A name of another site can point to this machine (DNS rebinding): the host tells that.

    Parameters
    ----------
    app : ASGI application
    hosts, origins : sets of str
        What a request may be meant for, and what it may come from.
    pages : set of str
        The paths that may be opened by a link on another site; they show nothing that is anybody's.
    """

    def __init__(self, app: App, hosts: frozenset[str], origins: frozenset[str], pages: frozenset[str]) -> None:
        self.app = app
        self.hosts = hosts
        self.origins = origins
        self.pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        is_begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal is_begun
            if message["type"] == "http.response.start":
                is_begun = True
                message = {**message, "headers": _completed(message.get("headers", ()))}
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, receive, send_guarded)
        except RequestError as error:
            await _refuse(error, send_guarded)
        except Exception as error:
            _report(error)
            if is_begun:
                raise ConnectionError("the response was cut off") from None
            await _refuse(
                RequestError(500, "The server has met an error of its own; its terminal says where."), send_guarded
            )

    def _check(self, scope: Scope) -> None:
        headers, method, path = headers_of(scope), scope["method"], scope["path"]
        target = scope.get("raw_path") or path.encode()
        if not target.startswith(b"/") or len(target) > _LONGEST_TARGET:
            raise RequestError(400, "The path of a request must begin with / and be short.", connection="close")
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if size > LARGEST_HEAD or len(scope["headers"]) > _MOST_HEADERS:
            raise RequestError(431, "The headers of a request are too large or too many.", connection="close")
        if "transfer-encoding" in headers and "content-length" in headers:
            raise RequestError(400, "A request must not give the length of its body in two ways.", connection="close")
        if one_header(headers, "host").lower() not in self.hosts:
            raise RequestError(421, "This server is not reached by that name. Use the address that it printed.")
        if method not in _METHODS:
            raise RequestError(405, "Only GET and POST are allowed.", allow=", ".join(_METHODS))
        if "origin" in headers and one_header(headers, "origin").lower() not in self.origins:
            raise RequestError(403, "Requests of other sites are refused.")
        if "sec-fetch-site" in headers and not self._is_own(headers, method, path):
            raise RequestError(403, "Requests of other sites are refused.")

    def _is_own(self, headers: dict[str, list[str]], method: str, path: str) -> bool:
        """Whether the browser says that a page of this server, or the person, made the request."""
        site = one_header(headers, "sec-fetch-site")
        if site == "same-origin":
            return True
        if method == "POST":
            return False
        is_opened = headers.get("sec-fetch-mode") == ["navigate"] and headers.get("sec-fetch-dest") == ["document"]
        return site == "none" or (is_opened and path in self.pages)


def headers_of(scope: Scope) -> dict[str, list[str]]:
    """The headers of a request, each with all its values."""
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def one_header(headers: dict[str, list[str]], name: str) -> str:
    """The value of a header; empty where it is missing or given twice, since the two may contradict each other."""
    values = headers.get(name, [])
    return values[0] if len(values) == 1 else ""


def _completed(headers: Any) -> list[tuple[bytes, bytes]]:
    own = {name.lower() for name, _ in headers}
    added = [(name.encode(), value.encode()) for name, value in _HEADERS.items() if name.encode() not in own]
    return [*headers, *added]


def tell(sentence: str) -> None:
    """Say something on the terminal of the owner."""
    if sys.stderr is not None:
        print(printable(f"closefar label: {sentence}"), file=sys.stderr, flush=True)


async def _refuse(refusal: RequestError, send: Send) -> None:
    body = json.dumps({"error": str(refusal)}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


def _report(error: Exception) -> None:
    """Say on the terminal where an error is, and nothing of the request."""
    frames = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-3:]]
    tell(f"{type(error).__name__} at {' < '.join(reversed(frames))}")
