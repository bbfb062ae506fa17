"""The limits of a server, and connections that keep to them: a client that is too slow is cut off."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


@dataclass(frozen=True)
class Limits:
    """How long a client may take, in seconds, how often it may ask, and how many connections there may be.

    Attributes
    ----------
    request : float
        From the connection, or from the first byte of a later request, to the last byte of the request; and for
        agreeing on keys before, with TLS.
    response : float
        How long a client may leave a response unread.
    idle : int
        Between two requests.
    connections : int
        With more, the one that has been waiting for a request longest is closed.
    rate, burst : float
        How many requests one person may make in a second on average, and at once.
    """

    request: float = 15.0
    response: float = 30.0
    idle: int = 60
    connections: int = 400
    rate: float = 20.0
    burst: float = 200.0


class PatientProtocol(H11Protocol):
    """A connection that is closed if its client is too slow, or if there are too many."""

    limits = Limits()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._make_room()
        self._watch()

    def _make_room(self) -> None:
        """Close the connection that has been waiting longest, so that many idle ones keep nobody out."""
        alive = [each for each in self.connections if not each.transport.is_closing()]
        if len(alive) > self.limits.connections:
            waiting = [each for each in alive if isinstance(each, PatientProtocol) and each.is_waiting]
            min(waiting, key=lambda each: each._since, default=self).transport.abort()

    @property
    def is_waiting(self) -> bool:
        """Whether the whole of a request is still to come."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._writing = _cancel(self._writing)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing = self._writing or self.loop.call_later(self.limits.response, self._cut)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._writing = _cancel(self._writing)

    def _watch(self) -> None:
        """Let time run while a request is incomplete."""
        if self.transport.is_closing() or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.limits.request, self._cut)

    def _stop(self) -> None:
        self._timer = _cancel(self._timer)

    def _cut(self) -> None:
        self.transport.abort()


def protocol_with(limits: Limits) -> type[PatientProtocol]:
    """Return the protocol with these limits: uvicorn makes its connections itself, from a class."""
    return type("PatientProtocol", (PatientProtocol,), {"limits": limits})


def loop_with(limits: Limits) -> asyncio.AbstractEventLoop:
    """Return an event loop for a server with these limits; uvicorn has none for the beginning of TLS."""

    class PatientLoop(asyncio.SelectorEventLoop):
        async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:
            if options.get("ssl") is not None:
                options["ssl_handshake_timeout"] = limits.request
            return await super().create_server(*args, **options)

    return PatientLoop()


def _cancel(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """End a timer; there is none afterwards."""
    if timer is not None:
        timer.cancel()
    return None
