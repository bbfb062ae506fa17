"""A labelling server on a socket of this machine, and a client that speaks to it as the page does."""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from closefar.label import ANSWERS, LabelServer, Site, Task, TaskKind, plan_site, read_label_points
from closefar.label.security import ClientLimits

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
PAIRS = Task(TaskKind.pairs, "Are these two alike?", "", ANSWERS[TaskKind.pairs])


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """A browser of one person, without the browser."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None, origin: str | None = None) -> None:
        self.port = port
        self.context = context
        self.origin = origin or f"{'https' if context else 'http'}://127.0.0.1:{port}"
        self.cookie: str | None = None
        self.token: str | None = None

    def request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """Send a request as it is; a body that is no bytes is sent as JSON."""
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {} if raw is None else {"Content-Type": "application/json", "Origin": self.origin}
        sent |= {} if self.cookie is None else {"Cookie": self.cookie}
        sent |= {} if self.token is None or raw is None else {"X-Closefar-Token": self.token}
        sent |= headers or {}
        if self.context is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        else:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=self.context)
        with contextlib.closing(connection):
            connection.request(method, path, raw, {name: value for name, value in sent.items() if value is not None})
            found = connection.getresponse()
            return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, None, {name.replace("_", "-"): value for name, value in headers.items()})

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.request("POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})

    def enter(self, secret: str) -> Client:
        found = self.post("/enter", {"secret": secret})
        assert found.status == 204, found
        self.cookie = found.headers["set-cookie"].partition(";")[0]
        self.token = self.get("/api/setup").json["token"]
        return self

    def questions(self, n: int = 3) -> list[dict[str, Any]]:
        found = self.post("/api/questions", {"n": n})
        assert found.status == 200, found
        return found.json["questions"]

    def answer(self, question: int, answer: str | None, key: str | None = None) -> dict[str, Any]:
        event = {"key": key or new_key(), "kind": "answer", "question": question, "answer": answer, "seconds": 1.5}
        return self.send(event)

    def undo(self, question: int, undoes: str) -> dict[str, Any]:
        return self.send({"key": new_key(), "kind": "undo", "question": question, "undoes": undoes, "seconds": 0})

    def send(self, event: dict[str, Any]) -> dict[str, Any]:
        found = self.post("/api/events", {"events": [{"answer": None, "undoes": None, "seconds": None, **event}]})
        assert found.status == 200, found
        return found.json["receipts"][0]


@dataclass(frozen=True, eq=False)
class Running:
    """A server that runs."""

    server: LabelServer
    folder: Path

    @property
    def port(self) -> int:
        return self.server.port

    def secret(self, name: str) -> str:
        return self.server.sessions.secret_of(self.server.sessions.people[name])

    def client(self, name: str | None = None) -> Client:
        """Somebody with a session; a stranger without a name."""
        client = Client(self.port)
        return client if name is None else client.enter(self.secret(name))

    def raw(self, data: bytes, *, wait: float = 1.0) -> bytes:
        """Send bytes as they are, and return what comes back until the server closes the connection or waits."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as connection:
            connection.sendall(data)
            return receive(connection)

    def publish(self, **found: Any) -> None:
        """Have a fit find this, and nothing else."""
        self.server.findings.publish({**self.server.findings.body, **found})

    def count(self, table: str = "events") -> int:
        return self.server.store.run(lambda each: each.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@contextlib.contextmanager
def running(
    folder: Path,
    table: str,
    *,
    task: Task = PAIRS,
    show: tuple[str, ...] = (),
    site: Site | None = None,
    limits: ClientLimits | None = None,
    port: int = 0,
    fits: bool = False,
    **changes: Any,
) -> Iterator[Running]:
    """Serve a table in a thread, until the end of the block."""
    path = folder / "points.csv"
    path.write_text(table, encoding="utf-8")
    points = read_label_points(path, show=show, columns=changes.pop("columns", None))
    chosen = site or plan_site("127.0.0.1")
    with LabelServer(
        folder / "judgements.sqlite", replace(task, **changes), points, chosen, port, limits=limits, fits=fits
    ) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield Running(server, folder)
        finally:
            server.stop()
            thread.join()


def number_table(n: int) -> str:
    """A table of points with two columns of numbers."""
    return "id,size,weight\n" + "".join(f"P{row:03d},{row},{(7 * row) % 11}\n" for row in range(n))


def new_key() -> str:
    return secrets.token_hex(16)


def receive(connection: socket.socket) -> bytes:
    """What a server sends until it closes the connection, or sends no more."""
    found = b""
    with contextlib.suppress(TimeoutError, ConnectionError):
        while data := connection.recv(65536):
            found += data
    return found
