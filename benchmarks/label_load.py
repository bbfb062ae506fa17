"""How quickly `closefar label` answers with many annotators at once, while a fit runs: python benchmarks/label_load.py

The server runs as the command does, in a process of its own, and fits in another one.  Each annotator opens the page,
holds three questions, answers after half a second to two seconds, polls the findings as the page does, and now and
then loads the page again.  Latencies are measured by the clients, which share the machine with the server and the fit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

_N_FEATURES = 10
_PAUSE = (0.5, 2.0)  # seconds that an answer takes
_POLL = 4.0
_PAGES = ("/", "/static/palette.css", "/static/label.css", "/static/label.js")


class Annotator:
    """A browser with one connection that stays open."""

    def __init__(self, address: str, latencies: list[tuple[str, float]], errors: list[str]) -> None:
        parts = urlsplit(address)
        self.host, self.port, self.secret = str(parts.hostname), int(parts.port or 0), parts.fragment
        self.latencies, self.errors = latencies, errors
        self.cookie, self.token = "", ""
        self.n_answers = 0
        self.lock = asyncio.Lock()

    async def request(self, method: str, path: str, body: object = None) -> bytes:
        """Send a request and note how long the whole response took."""
        raw = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}:{self.port}", f"Cookie: {self.cookie}"]
        if body is not None:
            lines += [f"Origin: http://{self.host}:{self.port}", f"X-Closefar-Token: {self.token}"]
            lines += ["Content-Type: application/json", f"Content-Length: {len(raw)}"]
        async with self.lock:
            started = time.perf_counter()
            self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + raw)
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            content = await self.reader.readexactly(int(headers.get("content-length", 0)))
            self.latencies.append((path, time.perf_counter() - started))
        if int(head.split()[1]) >= 400:
            self.errors.append(f"{path}: {head.split()[1]} {content[:100]!r}")
        if "set-cookie" in headers:
            self.cookie = head.partition("et-cookie: ")[2].partition(";")[0]
        return content

    async def open_page(self) -> None:
        for page in _PAGES:
            await self.request("GET", page)

    async def judge(self, until: float) -> None:
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        await asyncio.sleep(random.uniform(0, 2))
        await self.open_page()
        await self.request("POST", "/enter", {"secret": self.secret})
        self.token = json.loads(await self.request("GET", "/api/setup"))["token"]
        polling = asyncio.create_task(self._poll())
        while time.monotonic() < until:
            found = json.loads(await self.request("POST", "/api/questions", {"n": 3}))
            await asyncio.sleep(random.uniform(*_PAUSE))
            if found.get("questions"):
                await self._answer(found["questions"][0])
            if random.random() < 0.05:
                await self.open_page()
        polling.cancel()
        self.writer.close()

    async def _answer(self, question: dict) -> None:
        first, second = (
            [float(cell["text"].replace("\N{MINUS SIGN}", "-")) for cell in thing["cells"][:3]]
            for thing in question["things"]
        )
        is_far = sum((a - b) ** 2 for a, b in zip(first, second, strict=True)) + random.gauss(0, 2) > 5
        event = {"key": secrets.token_hex(16), "kind": "answer", "question": question["id"]}
        event |= {"answer": "far" if is_far else "close", "undoes": None, "seconds": 1.0}
        found = json.loads(await self.request("POST", "/api/events", {"events": [event]}))
        self.n_answers += sum(receipt["recorded"] for receipt in found.get("receipts", []))

    async def _poll(self) -> None:
        while True:
            await self.request("GET", "/api/findings")
            await asyncio.sleep(_POLL)


def _start(folder: Path, n_annotators: int, n_points: int) -> tuple[subprocess.Popen[str], list[str]]:
    rng = np.random.default_rng(0)
    names = [f"x{number}" for number in range(_N_FEATURES)]
    rows = ["id," + ",".join(names)]
    rows += [
        f"P{row}," + ",".join(f"{value:.3f}" for value in rng.standard_normal(_N_FEATURES)) for row in range(n_points)
    ]
    (folder / "points.csv").write_text("\n".join(rows) + "\n")
    people = ",".join(f"person{number}" for number in range(n_annotators))
    command = [sys.executable, "-m", "closefar", "label", "--points", str(folder / "points.csv")]
    command += ["--out", str(folder / "judgements.sqlite"), "--annotators", people, "--json", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    text = ""
    while not text.endswith("\n}\n"):
        text += process.stdout.readline()
    return process, [each["address"] for each in json.loads(text)["addresses"] if each["judges"]]


def _cpu_of_children(process: int) -> float:
    """The CPU seconds of the processes that the server has started: the one that fits."""
    total = 0.0
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in (task / "children").read_text().split():
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


async def _judge_all(annotators: list[Annotator], seconds: float) -> None:
    until = time.monotonic() + seconds
    await asyncio.gather(*(each.judge(until) for each in annotators))


def main() -> None:
    """Print latencies and errors; exit with 1 if the median is above 50 ms or the 99th percentile above 200 ms."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--annotators", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--points", type=int, default=2000)
    options = parser.parse_args()
    latencies: list[tuple[str, float]] = []
    errors: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process, addresses = _start(folder, options.annotators, options.points)
        try:
            annotators = [Annotator(address, latencies, errors) for address in addresses]
            asyncio.run(_judge_all(annotators, options.seconds))
            cpu = _cpu_of_children(process.pid)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        connection = sqlite3.connect(folder / "judgements.sqlite")
        (n_answers,) = connection.execute("SELECT count(*) FROM events").fetchone()
        (n_fits,) = connection.execute("SELECT count(*) FROM findings").fetchone()
        connection.close()
    sys.exit(_report(latencies, errors, sum(each.n_answers for each in annotators), n_answers, n_fits, cpu, options))


def _report(
    latencies: list[tuple[str, float]],
    errors: list[str],
    n_acknowledged: int,
    n_answers: int,
    n_fits: int,
    cpu: float,
    options: argparse.Namespace,
) -> int:
    print(f"{options.annotators} annotators, {options.seconds:g} s, {options.points:,} points, d = {_N_FEATURES}")
    print(f"{n_answers:,} answers recorded, {n_acknowledged:,} acknowledged; {n_fits} fits in {cpu:.1f} s of CPU")
    groups = {"all": latencies, **{path: [each for each in latencies if each[0] == path] for path, _ in latencies}}
    print(f"{'':<22}{'n':>8}{'median':>10}{'p95':>10}{'p99':>10}{'max':>10}   (ms)")
    for name, found in groups.items():
        times = 1000 * np.array([each for _, each in found])
        numbers = [np.median(times), *np.percentile(times, [95, 99]), times.max()]
        print(f"{name:<22}{len(times):>8,}" + "".join(f"{each:>10.1f}" for each in numbers))
    print(f"{len(errors)} errors" + "".join(f"\n  {error}" for error in errors[:5]))
    times = np.array([each for _, each in latencies])
    is_quick = np.median(times) <= 0.05 and np.percentile(times, 99) <= 0.2
    return 0 if is_quick and not errors and n_answers == n_acknowledged else 1


if __name__ == "__main__":
    main()
