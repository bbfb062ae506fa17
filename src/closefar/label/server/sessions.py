"""Secrets, sessions and tokens: all derive from one key, so that they survive a restart and none is stored."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

OWNER = "owner"

_LIFETIME = 30 * 86400.0
_TICKET_LIFETIME = 120.0
_LONGEST_COOKIE = 400
_LONGEST_NAME = 40
_MOST_PEOPLE = 200


@dataclass(frozen=True)
class Person:
    """Somebody who may enter: who judges, who sees the overview, or both."""

    name: str
    is_owner: bool
    judges: bool


@dataclass(frozen=True)
class Address:
    """What somebody opens in a browser, with a secret."""

    name: str
    is_owner: bool
    judges: bool
    address: str


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of annotators if each is a short printable name and no two are alike."""
    if not 1 <= len(names) <= _MOST_PEOPLE:
        raise ValueError(f"--annotators must be 1 to {_MOST_PEOPLE} names between commas; got {len(names)} names.")
    for name in names:
        if not (1 <= len(name) <= _LONGEST_NAME and name[0].isalnum() and all(map(_is_allowed, name))):
            raise ValueError(
                f"names of --annotators must have 1 to {_LONGEST_NAME} letters, digits, spaces, dots, hyphens or "
                f"underscores, and begin with a letter or a digit; got {name!r}."
            )
    folded = [name.casefold() for name in names]
    if OWNER in folded and len(names) > 1:
        raise ValueError(f"{OWNER!r} is the name of who sees the overview. Choose another name in --annotators.")
    for name in names:
        if folded.count(name.casefold()) > 1:
            raise ValueError(f"names of --annotators must differ, in more than capitals; got {name!r} twice.")
    return tuple(names)


class Sessions:
    """Who may enter, by a secret or by the cookie of a session.

    Parameters
    ----------
    key : bytes
        What everything derives from.
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
        self._tickets: dict[str, tuple[Person, float]] = {}

    @property
    def owner(self) -> Person:
        return next(person for person in self.people.values() if person.is_owner)

    def secret_of(self, person: Person) -> str:
        """The secret of a person's address."""
        return self._mac("secret", person.name)

    def make_ticket(self, person: Person, now: float) -> str:
        """A secret that works once and for two minutes: other users of a machine see how a browser was started."""
        ticket = secrets.token_urlsafe(32)
        self._tickets[ticket] = person, now + _TICKET_LIFETIME
        return ticket

    def person_with(self, secret: str, now: float) -> Person | None:
        """Whose secret this is; all are compared, so that time says nothing."""
        given, found = secret.encode(), None
        for person in self.people.values():
            if hmac.compare_digest(given, self.secret_of(person).encode()):
                found = person
        for ticket, (person, until) in list(self._tickets.items()):
            if hmac.compare_digest(given, ticket.encode()):
                del self._tickets[ticket]
                found = person if now <= until else None
        return found

    @property
    def file_id(self) -> str:
        """Names the file of judgements, so that pages and cookies of two files are never mixed up."""
        return self._mac("file")[:16]

    def begin(self, person: Person, now: float) -> str:
        """The cookie of a new session."""
        body = f"{_encoded(person.name)}.{secrets.token_urlsafe(16)}.{int(now + _LIFETIME)}"
        return f"{body}.{self._mac('session', body)}"

    def person_of(self, cookie: str, now: float) -> Person | None:
        """Whose session a cookie is; None if it is forged, expired, or of somebody who was taken off the list."""
        if len(cookie) > _LONGEST_COOKIE or not cookie.isascii() or cookie.count(".") != 3:
            return None
        body, _, mac = cookie.rpartition(".")
        if not hmac.compare_digest(mac.encode(), self._mac("session", body).encode()):
            return None
        name, _, expiry = body.split(".")
        return self.people.get(_decoded(name)) if now <= int(expiry) else None

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


def _is_allowed(letter: str) -> bool:
    return letter.isalnum() or letter in " ._-"


def _encoded(value: str | bytes) -> str:
    raw = value.encode() if isinstance(value, str) else value
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _decoded(text: str) -> str:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
