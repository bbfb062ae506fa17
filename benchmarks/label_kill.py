"""Kill the server of `closefar label` at random moments while people answer, and count what is lost or doubled.

    python benchmarks/label_kill.py [--kills 200] [--people 6] [--seed 0] [--command]

The server ends by SIGKILL and is started again.  Each simulated person keeps an answer until it is acknowledged, as the
page does, and sends it again, with the same key, to the next server.  In the end every acknowledged answer must be in
the file once, and what the file says each person answered must be what that person knows.

Servers are forked from a process that has loaded the package, and do not fit; with --command each is the command line
itself, with its fits, which takes some seconds to start.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from closefar.label import ANSWERS, LabelServer, Task, TaskKind, plan_site, read_label_points
from closefar.tables import read_recorded

__all__ = ["Outcome", "run_kills"]

_PATIENCE = 120.0  # seconds until a server that was started must acknowledge something
_LONGEST_LIFE = 1.0  # seconds from its first acknowledgement to its end


@dataclass(frozen=True)
class Setting:
    """What a server needs to know."""

    folder: Path
    port: int
    names: tuple[str, ...]

    @property
    def points(self) -> Path:
        return self.folder / "points.csv"

    @property
    def judgements(self) -> Path:
        return self.folder / "judgements.sqlite"

    @property
    def log(self) -> Path:
        """Where a server writes its addresses, or what went wrong."""
        return self.folder / "log.txt"


@dataclass(frozen=True)
class Outcome:
    """What was found in the file at the end."""

    n_kills: int
    n_answers: int
    n_undos: int
    n_retries: int
    lost: list[str]
    doubled: list[str]
    unknown: list[str]
    differing: list[str]
    refused: list[str]
    integrity: str

    @property
    def is_right(self) -> bool:
        return self.integrity == "ok" and not (
            self.lost or self.doubled or self.unknown or self.differing or self.refused
        )


class Person(threading.Thread):
    """Somebody who answers as fast as the server allows, and now and then takes an answer back."""

    def __init__(self, name: str, port: int, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.port, self._rng = port, np.random.default_rng(seed)
        self.secret = ""
        self.leaves = threading.Event()
        self.outbox: list[dict[str, Any]] = []
        self.acknowledged: dict[str, dict[str, Any]] = {}  # in the order of the acknowledgements
        self.sent: Counter[str] = Counter()
        self.refused: list[str] = []
        self._cookie: str | None = None
        self._token: str | None = None

    def run(self) -> None:
        while not self.leaves.is_set() or self.outbox:
            try:
                with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as connection:
                    while not self.leaves.is_set() or self.outbox:
                        self._step(connection)
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                time.sleep(0.05)  # the server is away, or just went

    def _step(self, connection: http.client.HTTPConnection) -> None:
        if self._cookie is None:
            self._enter(connection)
        elif self.outbox:
            self._send(connection)
        else:
            self._think(connection)
            time.sleep(0.03)

    def _enter(self, connection: http.client.HTTPConnection) -> None:
        connection.request("POST", "/enter", json.dumps({"secret": self.secret}), self._headers())
        answer = connection.getresponse()
        answer.read()
        if answer.status == 204:
            self._cookie = str(answer.getheader("set-cookie")).partition(";")[0]
            connection.request("GET", "/api/setup", headers={"Cookie": self._cookie})
            self._token = json.loads(connection.getresponse().read())["token"]

    def _think(self, connection: http.client.HTTPConnection) -> None:
        """Answer the next questions, or take back the last answer."""
        live = self.live()
        if live and self._rng.random() < 0.1:
            question = list(live)[-1]
            self._put(kind="undo", question=question, undoes=live[question][0])
            return
        found = self._post(connection, "/api/questions", {"n": 3})
        for question in (found or {"questions": []})["questions"]:
            answer = (None, "close", "far", "far")[self._rng.integers(4)]
            self._put(kind="answer", question=question["id"], answer=answer)

    def _put(self, **event: Any) -> None:
        self.outbox.append({"key": secrets.token_hex(16), "answer": None, "undoes": None, "seconds": 1.0, **event})

    def _send(self, connection: http.client.HTTPConnection) -> None:
        events = self.outbox[: int(self._rng.integers(1, 4))]
        self.sent.update(event["key"] for event in events)
        found = self._post(connection, "/api/events", {"events": events})
        for event, receipt in zip(events, (found or {"receipts": []})["receipts"], strict=False):
            assert receipt["key"] == event["key"]
            self.outbox.remove(event)
            if receipt["recorded"]:
                self.acknowledged[event["key"]] = event
            else:
                self.refused.append(f"{self.name}: {receipt['reason']}")

    def _post(self, connection: http.client.HTTPConnection, path: str, body: Any) -> dict[str, Any] | None:
        connection.request("POST", path, json.dumps(body), self._headers())
        answer = connection.getresponse()
        content = answer.read()
        if answer.status == 200:
            return dict(json.loads(content))
        if answer.status in (401, 403):
            self._cookie = None
        time.sleep(0.1)  # too many requests, or the file is busy
        return None

    def _headers(self) -> dict[str, str]:
        own = {} if self._cookie is None else {"Cookie": self._cookie, "X-Closefar-Token": str(self._token)}
        return {"Content-Type": "application/json", "Origin": f"http://127.0.0.1:{self.port}", **own}

    def live(self) -> dict[int, tuple[str, str | None]]:
        """What this person knows to have answered: the key and the answer for each question."""
        answers: dict[int, tuple[str, str | None]] = {}
        for key, event in list(self.acknowledged.items()):
            if event["kind"] == "undo":
                answers.pop(event["question"], None)
            else:
                answers[event["question"]] = key, event["answer"]
        return answers


class Forked:
    """A server in a process that is forked from one that has loaded the package."""

    def __init__(self, setting: Setting) -> None:
        setting.log.write_text("")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["closefar.label.server"])
        self._process = context.Process(target=_serve, args=[setting])
        self._process.start()

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def abort(self) -> None:
        self.kill()

    def stop(self) -> None:
        self._process.terminate()
        self._process.join(_PATIENCE)


class Commanded:
    """A server that the command line starts."""

    def __init__(self, setting: Setting) -> None:
        command = [sys.executable, "-X", "faulthandler", "-m", "closefar", "label", "--points", str(setting.points)]
        command += ["--out", str(setting.judgements), "--annotators", ",".join(setting.names)]
        command += ["--port", str(setting.port), "--no-browser", "--json"]
        with open(setting.log, "wb") as file:
            self._process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def abort(self) -> None:
        """End it, and have it write to the log where it was."""
        self._process.send_signal(signal.SIGABRT)
        self._process.wait()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(_PATIENCE)


def _serve(setting: Setting) -> None:
    site, task = plan_site("127.0.0.1"), Task(TaskKind.pairs, "Alike?", "", ANSWERS[TaskKind.pairs], setting.names)
    points = read_label_points(setting.points)
    with LabelServer(setting.judgements, task, points, site, setting.port, fits=False) as server:
        setting.log.write_text(json.dumps({"addresses": [asdict(each) for each in server.addresses()]}))
        server.run()


def run_kills(
    folder: Path, n_kills: int, n_people: int = 4, seed: int = 0, *, by_command: bool = False, tells: bool = False
) -> Outcome:
    """Start a server and kill it so many times, and look what the file has."""
    rng = np.random.default_rng(seed)
    rows = (f"p{row},{rng.normal():.4f},{rng.normal():.4f},{rng.normal():.4f}\n" for row in range(400))
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    people = [Person(f"person{number}", port, seed + number) for number in range(n_people)]
    setting = Setting(folder, port, tuple(person.name for person in people))
    setting.points.write_text("id,a,b,c\n" + "".join(rows))
    start = Commanded if by_command else Forked
    for number in range(n_kills):
        server = start(setting)
        try:
            if number == 0:
                _hand_out_secrets(people, setting.log)
            if number % 10 != 9:  # now and then while it starts
                _wait_for_answers(people, server, setting.log)
            time.sleep(float(rng.uniform(0, _LONGEST_LIFE)))
        finally:
            server.kill()
        if tells and number % 10 == 9:
            print(f"{number + 1} kills, {_n_acknowledged(people):,} acknowledged", flush=True)
    server = start(setting)
    try:
        _wait_for_answers(people, server, setting.log)
        for person in people:
            person.leaves.set()
        for person in people:
            person.join(_PATIENCE)
    finally:
        server.stop()
    assert not any(person.outbox for person in people), "answers were left over"
    return _compare(setting.judgements, people, n_kills)


def _hand_out_secrets(people: list[Person], log: Path) -> None:
    """Read the addresses that the first server prints; they stay the same."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        try:
            addresses = json.loads(log.read_text())["addresses"]
            break
        except json.JSONDecodeError:
            time.sleep(0.05)
    else:
        raise RuntimeError(f"the server does not start: {log.read_text()}")
    secrets_of = {each["name"]: each["address"].partition("#")[2] for each in addresses}
    for person in people:
        person.secret = secrets_of[person.name]
        person.start()


def _wait_for_answers(people: list[Person], server: Forked | Commanded, log: Path) -> None:
    before, deadline = _n_acknowledged(people), time.monotonic() + _PATIENCE
    while _n_acknowledged(people) == before:
        if not server.is_alive() or time.monotonic() > deadline:
            server.abort()
            raise RuntimeError(f"the server does not answer: {log.read_text()}")
        time.sleep(0.005)


def _n_acknowledged(people: list[Person]) -> int:
    return sum(len(person.acknowledged) for person in people)


def _compare(judgements: Path, people: list[Person], n_kills: int) -> Outcome:
    with closing(sqlite3.connect(judgements)) as connection:
        found = connection.execute("SELECT key, annotator, kind, question, answer, undoes FROM events").fetchall()
        standing = connection.execute("SELECT annotator, question FROM standing").fetchall()
        (integrity,) = connection.execute("PRAGMA integrity_check").fetchone()
    events = {key: tuple(content) for key, *content in found}
    fields = ("kind", "question", "answer", "undoes")
    lost, unknown, differing = [], [], []
    known = {key for person in people for key in person.sent}
    for person in people:
        for key, event in person.acknowledged.items():
            if events.get(key) != (person.name, *(event[name] for name in fields)):
                lost.append(f"{person.name}: {event}")
    unknown = [key for key in events if key not in known]
    recorded = read_recorded(judgements)
    for person in people:
        own = recorded.annotator == person.name
        answers = dict(zip(recorded.question[own].tolist(), recorded.answer[own].tolist(), strict=True))
        if answers != {question: answer for question, (_, answer) in person.live().items()}:
            differing.append(person.name)
    doubled = [f"{who}: question {question}" for (who, question), n in Counter(standing).items() if n > 1]
    doubled += [key for key, n in Counter(key for key, *_ in found).items() if n > 1]
    kinds = Counter(kind for kind, *_ in (content[1:] for content in events.values()))
    retries = sum(n - 1 for person in people for n in person.sent.values())
    refused = [reason for person in people for reason in person.refused]
    return Outcome(
        n_kills, kinds["answer"], kinds["undo"], retries, lost, doubled, unknown, differing, refused, str(integrity)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--people", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--command", action="store_true", help="start each server by the command line, with its fits")
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_kills(
            Path(folder), options.kills, options.people, options.seed, by_command=options.command, tells=True
        )
    print(
        f"{outcome.n_kills} kills in {time.monotonic() - start:.0f} s: {outcome.n_answers:,} answers and "
        f"{outcome.n_undos:,} undos in the file, {outcome.n_retries:,} retries; {len(outcome.lost)} "
        f"acknowledged ones lost, {len(outcome.doubled)} doubled, {len(outcome.unknown)} that nobody sent, "
        f"{len(outcome.differing)} people whose answers differ, {len(outcome.refused)} refused; integrity check: "
        f"{outcome.integrity}."
    )
    sys.exit(0 if outcome.is_right else 1)


if __name__ == "__main__":
    main()
