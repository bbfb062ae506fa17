"""Who may do what: secrets, sessions and rates, and what every request must pass before a route sees it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from h11 import LocalProtocolError
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from closefar.label.site import OWNER, Person

SESSION_SECONDS = 30 * 86400  # a month: a task may take weeks, and addresses are kept
_TICKET_SECONDS = 120.0  # until the secret of the browser that was started must be used; it may have to load first
_LONGEST_COOKIE = 400  # letters; the longest name of 40 letters of four bytes each makes 300
LARGEST_HEAD = 16_384  # bytes; browsers send about 1,000


@dataclass(frozen=True)
class ClientLimits:
    """How long a client may keep the server waiting, how often one may ask, and how many connections there may be.

    Attributes
    ----------
    seconds : int
        For the whole of a request, for reading a response, and between two requests.
    connections : int
        With more, those are closed that have kept the server waiting longest.
    rate, burst : float
        How many requests one person may make in a second on average, and at once.
    """

    seconds: int = 30
    connections: int = 400
    rate: float = 20.0
    burst: float = 200.0


class Sessions:
    """Who may enter, by a secret or by the cookie of a session.

    All secrets derive from one key, so that they survive a restart and none is stored.

    Parameters
    ----------
    key : bytes
    annotators : sequence of str
        Who judges: the owner, or others by their names, which never open the overview.
    """

    def __init__(self, key: bytes, annotators: Sequence[str]) -> None:
        self._key = key
        is_alone = tuple(annotators) == (OWNER,)
        people = [Person(name, is_owner=is_alone, judges=True) for name in annotators]
        if not is_alone:
            people.append(Person(OWNER, is_owner=True, judges=False))
        self.people = {person.name: person for person in people}
        self.owner = self.people[OWNER]
        self._tickets: dict[str, float] = {}  # of the owner: until when each is valid

    def secret_of(self, person: Person) -> str:
        """The secret of a person's address."""
        return self._mac("secret", person.name)

    def make_ticket(self, now: float) -> str:
        """A secret of the owner for one use within two minutes: others on a machine see how a browser was started."""
        ticket = secrets.token_urlsafe(32)
        self._tickets[ticket] = now + _TICKET_SECONDS
        return ticket

    def person_with(self, secret: str, now: float) -> Person | None:
        """Whose secret this is; all are compared, so that the time taken gives nothing away."""
        given, found = secret.encode(), None
        for person in self.people.values():
            if hmac.compare_digest(given, self.secret_of(person).encode()):
                found = person
        for ticket in list(self._tickets):
            if hmac.compare_digest(given, ticket.encode()):
                found = self.owner if now <= self._tickets.pop(ticket) else None
        return found

    @property
    def file_id(self) -> str:
        """Names the file of judgements, so that pages and cookies of two files are never mixed up."""
        return self._mac("file")[:16]

    def begin(self, person: Person, now: float) -> str:
        """The cookie of a new session."""
        name = _encoded(person.name.encode())
        body = f"{name}.{secrets.token_urlsafe(16)}.{int(now) + SESSION_SECONDS}"
        return f"{body}.{self._mac('session', body)}"

    def person_of(self, cookie: str, now: float) -> Person | None:
        """Whose session a cookie is; None if it is forged, expired, or of somebody who was taken off the list."""
        if len(cookie) > _LONGEST_COOKIE or not cookie.isascii() or cookie.count(".") != 3:
            return None
        body, _, mac = cookie.rpartition(".")
        if not hmac.compare_digest(mac, self._mac("session", body)):
            return None
        name, _, expiry = body.split(".")
        valid = self.people.values() if now <= int(expiry) else ()
        return next((each for each in valid if _encoded(each.name.encode()) == name), None)

    def token_of(self, cookie: str) -> str:
        """What a page of this session must send along with every change."""
        return self._mac("token", cookie)

    def is_token(self, token: str, cookie: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token_of(cookie).encode())

    def number_for(self, purpose: str, n: int) -> int:
        """A number below `n` that is always the same for this file."""
        return int.from_bytes(hmac.digest(self._key, f"number\0{purpose}".encode(), hashlib.sha256)[:8], "big") % n

    def _mac(self, *parts: str) -> str:
        return _encoded(hmac.digest(self._key, "\0".join(parts).encode(), hashlib.sha256))


def _encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode("ascii").rstrip("=")


class Rate:
    """At most `burst` requests at once, and `per_second` on average, of each key."""

    def __init__(self, per_second: float, burst: float) -> None:
        self.per_second = per_second
        self.burst = burst
        self._left: dict[str, tuple[float, float]] = {}

    def allows(self, key: str, now: float) -> bool:
        """Whether another request of `key` is within its rate; counts it if so."""
        left, since = self._left.get(key, (self.burst, now))
        left = min(self.burst, left + max(0.0, now - since) * self.per_second)
        is_allowed = left >= 1.0
        self._left[key] = left - is_allowed, now
        return is_allowed


# ---------------------------------------------------------------------------------------------------------------------
# Requests of other sites.

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


class Guard:
    """An ASGI application around another one: it refuses requests of other sites, and adds headers to responses.

    A page of another site can make a browser send requests here, with cookies if both are on one machine: the origin
    shows that.  A name of another site can point to this machine (DNS rebinding): the host shows that.  Starlette's
    TrustedHostMiddleware would not do, since it accepts any port.

    Parameters
    ----------
    app : ASGI application
    hosts, origins : sets of str
        What a request may be meant for, and what it may come from.
    pages : set of str
        The paths that may be opened by a link on another site; they show nothing that is anybody's.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str], origins: frozenset[str], pages: frozenset[str]) -> None:
        self.app = app
        self.hosts = hosts
        self.origins = origins
        self.pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            with contextlib.suppress(LocalProtocolError):  # the client has sent what is not HTTP, and was refused
                await send(message)

        status, sentence = self._refusal(scope)
        closing = {"connection": "close"}  # as nobody knows where the next request would begin
        app = JSONResponse({"error": sentence}, status, closing) if sentence else self.app
        await app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> tuple[int, str]:
        """The status and the sentence with which a request is refused; no sentence if it is not."""
        headers = Headers(scope=scope)
        if sum(len(name) + len(value) for name, value in headers.raw) > LARGEST_HEAD:
            return 431, "The headers of a request are too large or too many."
        if "transfer-encoding" in headers and "content-length" in headers:
            return 400, "A request must not give the length of its body in two ways."
        if headers.get("host", "").lower() not in self.hosts:
            return 421, "This server is not reached by that name. Use the address that it printed."
        is_foreign = any(origin.lower() not in self.origins for origin in headers.getlist("origin"))
        if is_foreign or not all(self._is_own(site, headers, scope) for site in headers.getlist("sec-fetch-site")):
            return 403, "Requests of other sites are refused."
        return 200, ""

    def _is_own(self, site: str, headers: Headers, scope: Scope) -> bool:
        """Whether the browser says that a page of this server, or the person, made the request."""
        if site == "same-origin" or scope["method"] == "POST":
            return site == "same-origin"
        is_opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        return site == "none" or (is_opened and scope["path"] in self.pages)
