"""Where the server is reached: what it listens on, the addresses that browsers may use for it, and who opens them."""

from __future__ import annotations

import ipaddress
import re
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

OWNER = "owner"  # who sees the overview, and judges alone if there are no annotators

_LOCAL = ("127.0.0.1", "localhost")
_ADDRESS = re.compile(r"https://([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
_BACKLOG = 1024  # connections that wait to be accepted: a browser opens six, for well over 100 people at once
_LONGEST_PERSON, _MOST_PEOPLE = 40, 200  # letters in a name that fit on the page; people for whom a table has room


@dataclass(frozen=True)
class Tls:
    """The files of a certificate and of its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Site:
    """What the server listens on, and what browsers call it.

    Attributes
    ----------
    host : str
        The address of the network interface to listen on.
    names : tuple of str
        The hosts that a request may be meant for, without ports; the first is printed.
    tls : Tls or None
    address : str or None
        What annotators type, where that is not the host and port: behind a proxy, or under a name.
    """

    host: str
    names: tuple[str, ...]
    tls: Tls | None = None
    address: str | None = None

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach it by HTTPS."""
        return self.base(0).startswith("https://")

    def base(self, port: int) -> str:
        """The address without a secret."""
        return self.address or self._origin(self.names[0], port)

    def origins(self, port: int) -> frozenset[str]:
        """What a request may have as its Origin."""
        return frozenset({self.base(port), *(self._origin(name, port) for name in self.names)})

    def hosts(self, port: int) -> frozenset[str]:
        """What a request may have as its Host."""
        return frozenset(origin.partition("://")[2] for origin in self.origins(port))

    def _origin(self, name: str, port: int) -> str:
        scheme, usual = ("https", 443) if self.tls else ("http", 80)
        return f"{scheme}://{name}" + ("" if port == usual else f":{port}")


def plan_site(host: str, *, tls: Tls | None = None, behind_proxy: bool = False, address: str | None = None) -> Site:
    """Return the site of a host if it can't be overheard: on this machine, with TLS, or behind a proxy that has it."""
    is_local = _is_loopback(host)
    if not (is_local or tls or behind_proxy):
        raise ValueError(
            f"--host {host} is reached from other machines, so answers and cookies could be read on the way. Add "
            "--tls-certificate and --tls-key, or --behind-proxy if a proxy with TLS is in front of it."
        )
    if behind_proxy and address is None:
        raise ValueError("--behind-proxy needs --address, what annotators type, such as https://label.example.org.")
    if address is not None and not (tls or behind_proxy):
        raise ValueError(
            f"--address {address} needs --tls-certificate and --tls-key, or --behind-proxy. Otherwise leave it out."
        )
    is_any = host in ("0.0.0.0", "::", "")
    own = [socket.gethostname(), socket.getfqdn()] if is_any else [f"[{host}]" if ":" in host else host]
    names = tuple(dict.fromkeys((*map(str.lower, own), *_LOCAL)))
    return Site(host, names, tls, None if address is None else _checked_address(address))


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; connections wait there until the server runs."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, or asyncio would delay small parts.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":  # where it would let two servers have the same port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise OSError(f"can't listen on port {port} of {host}: {reason}. Choose another --port or --host.") from error
    listener.setblocking(False)
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return host in _LOCAL or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked_address(address: str) -> str:
    plain = address.rstrip("/").lower()
    if not _ADDRESS.fullmatch(plain):
        raise ValueError(
            "--address must be what annotators type, without a path, such as https://label.example.org; "
            f"got {address!r}."
        )
    return plain.removesuffix(":443")


# ---------------------------------------------------------------------------------------------------------------------
# Who opens it.


@dataclass(frozen=True)
class Person:
    """Somebody who may enter: who judges, who sees the overview, or both."""

    name: str
    is_owner: bool
    judges: bool


@dataclass(frozen=True)
class Address(Person):
    """What somebody opens in a browser, with a secret."""

    address: str


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of annotators if each is a short printable name and no two are the same."""
    if not 1 <= len(names) <= _MOST_PEOPLE:
        raise ValueError(f"--annotators must be 1 to {_MOST_PEOPLE} names between commas; got {len(names)} names.")
    for name in names:
        is_plain = all(letter.isalnum() or letter in " ._-" for letter in name) and name[:1].isalnum()
        if not (is_plain and len(name) <= _LONGEST_PERSON):
            raise ValueError(
                f"names of --annotators must have 1 to {_LONGEST_PERSON} letters, digits, spaces, dots, hyphens or "
                f"underscores, and begin with a letter or a digit; got {name!r}."
            )
    folded = [name.casefold() for name in names]
    if OWNER in folded and len(names) > 1:
        raise ValueError(f"{OWNER!r} is the name of who sees the overview. Choose another name in --annotators.")
    for name in names:
        if folded.count(name.casefold()) > 1:
            raise ValueError(f"names of --annotators must differ, in more than capitals; got {name!r} twice.")
    return tuple(names)
