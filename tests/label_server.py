"""Servers for the tests of pages: ``closefar label`` in a process of its own, which can be killed, or in a thread."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from closefar.tables import RecordedAnswers, read_recorded
from label_client import Client, running


class Site:
    """Where pages are served, and what was answered on them."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.port = 0
        self.addresses: dict[str, str] = {}

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, name: str) -> Client:
        """Somebody who has entered without a browser."""
        return Client(self.port).enter(urlsplit(self.addresses[name]).fragment)

    def recorded(self) -> RecordedAnswers:
        return read_recorded(self.out)

    def handed(self) -> list[tuple[int, int]]:
        """The rows of the things of all questions that were handed out."""
        with contextlib.closing(sqlite3.connect(self.out)) as file:
            return file.execute("SELECT first, second FROM questions JOIN handed ON question = id").fetchall()

    def said(self) -> list[tuple[str, ...]]:
        """What the file has, in the order of answering: the ids of the things, and the answer."""
        found = self.recorded()
        columns = [found.first, found.second] + ([] if found.third is None else [found.third])
        order = sorted(range(len(found.answer)), key=lambda row: found.at[row])
        return [(*(str(found.ids[each[row]]) for each in columns), found.answer[row]) for row in order]


class Served(Site):
    """A server for one table of points: ``with Served(table, out) as served``; `start` after `kill` goes on."""

    def __init__(self, table: Path, out: Path, *options: str) -> None:
        super().__init__(out)
        self._arguments = ["--points", str(table), "--out", str(out), "--no-browser", "--json", *options]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Served:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._ended()

    def start(self) -> None:
        """Start it, on the port that it had before."""
        command = [sys.executable, "-m", "closefar", "label", *self._arguments, "--port", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        lines = []
        while not lines or lines[-1] != "}\n":
            lines.append(self._process.stdout.readline())
            assert lines[-1], "the server has ended"
        self.addresses = {each["name"]: each["address"] for each in json.loads("".join(lines))["addresses"]}
        self.port = urlsplit(next(iter(self.addresses.values()))).port or 0

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._ended()

    def halt(self) -> None:
        """Let it neither answer nor end."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def _ended(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.wait(30)
        self._process.stdout.close()
        self._process = None


@contextlib.contextmanager
def serving(folder: Path, table: str, **options: Any) -> Iterator[Site]:
    """Serve a table from a thread of this process, without fits; see `running`."""
    with running(folder, table, **options) as found:
        site = Site(folder / "judgements.sqlite")
        site.port = found.port
        site.addresses = {each.name: each.address for each in found.server.addresses()}
        yield site
