"""Where the server is reached: what it listens on, and the addresses that browsers may use for it."""

from __future__ import annotations

import ipaddress
import re
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_LOOPBACK_NAMES = ("localhost",)
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
_BACKLOG = 1024


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
        return self.address.startswith("https://") if self.address else self.tls is not None

    def base(self, port: int) -> str:
        """The address without a secret."""
        if self.address:
            return self.address
        return _origin("https" if self.tls else "http", self.names[0], port)

    def hosts(self, port: int) -> frozenset[str]:
        """What a request may have as its Host."""
        own = {_netloc(name, port, "https" if self.tls else "http") for name in self.names}
        return frozenset(own | ({urlsplit(self.address).netloc.lower()} if self.address else set()))

    def origins(self, port: int) -> frozenset[str]:
        """What a request may have as its Origin."""
        own = {_origin("https" if self.tls else "http", name, port) for name in self.names}
        return frozenset(own | ({self.address} if self.address else set()))


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
    typed = None if address is None else _checked_address(address)
    return Site(host, _names_of(host, is_local), tls, typed)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; connections wait there until the server runs."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(
        family, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )  # named, or asyncio would delay small parts
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
    if host in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _names_of(host: str, is_local: bool) -> tuple[str, ...]:
    local = ("127.0.0.1", *_LOOPBACK_NAMES)
    if is_local:
        return tuple(dict.fromkeys((_bracketed(host), *local)))
    if host in ("0.0.0.0", "::", ""):
        return tuple(dict.fromkeys((socket.gethostname().lower(), socket.getfqdn().lower(), *local)))
    return (_bracketed(host).lower(), *local)


def _checked_address(address: str) -> str:
    parts = urlsplit(address.rstrip("/"))
    try:
        is_whole = bool(_HOST.fullmatch(parts.hostname or "")) or ":" in (parts.hostname or "")
        parts.port  # noqa: B018 - raises where it is no number
    except ValueError:
        is_whole = False
    if parts.scheme != "https" or not is_whole or parts.path or parts.query or parts.fragment or parts.username:
        raise ValueError(
            "--address must be what annotators type, without a path, such as https://label.example.org; "
            f"got {address!r}."
        )
    return f"https://{parts.netloc.lower().removesuffix(':443')}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _netloc(name: str, port: int, scheme: str) -> str:
    return name if port == {"http": 80, "https": 443}[scheme] else f"{name}:{port}"


def _origin(scheme: str, name: str, port: int) -> str:
    return f"{scheme}://{_netloc(name, port, scheme)}"
