"""One trial: a peer in a process of its own, on saved data, with limits of time and memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peers.environments import ENVIRONMENTS, Interpreters
from peers.peers import ADAPTERS, Peer

__all__ = ["Limits", "Workers", "run_trial"]

WORKER = Path(__file__).with_name("worker.py")
THREADS = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
SECONDS_BETWEEN_LOOKS = 0.05
GIBIBYTE = 2**30


@dataclass(frozen=True)
class Limits:
    """Wall seconds and GiB of resident memory, for a trial with everything in it."""

    seconds: float = 300.0
    gibibytes: float = 8.0


def run_trial(
    peer: Peer, data_folder: Path, limits: Limits, interpreters: Interpreters, workers: Workers, stop: threading.Event
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the outcome of a peer on saved data, and its answers; never raises because of the peer.

    Once `stop` is set, the process is ended, and the outcome means nothing.
    """
    python, reason = interpreters.find(ENVIRONMENTS[peer.environment])
    if python is None:
        return {"status": "not installed", "reason": reason}, {}
    with tempfile.TemporaryDirectory(prefix="trial-", dir=data_folder) as name:
        folder = Path(name)
        job = {
            "peer": peer.name,
            "adapter": str(ADAPTERS / peer.adapter),
            "data": str(data_folder),
            "packages": list(peer.packages),
            "memory_limit": limits.gibibytes,
        }
        (folder / "job.json").write_text(json.dumps(job))
        status, reason = _watch(workers, str(python), job["adapter"], folder, limits, stop)
        if status:
            return {"status": status, "reason": reason}, {}
        return _read(folder)


class Workers:
    """A worker for each thread of the runner: an interpreter with an adapter imported, which forks for every trial."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[tuple[str, str], subprocess.Popen[bytes]]] = {}

    def begin(self, python: str, adapter: str, folder: Path) -> subprocess.Popen[bytes]:
        """Let the worker of this thread do the job in a folder."""
        thread, key = threading.get_ident(), (python, adapter)
        if thread in self._running and (self._running[thread][0] != key or self._running[thread][1].poll() is not None):
            self.end(thread)
        if thread not in self._running:
            process = subprocess.Popen(
                [python, str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_variables(python),
                start_new_session=True,
            )
            self._running[thread] = key, process
        process = self._running[thread][1]
        assert process.stdin is not None
        process.stdin.write(f"{folder}\n".encode())
        process.stdin.flush()
        return process

    def end(self, thread: int) -> None:
        """End the worker of a thread."""
        _, process = self._running.pop(thread)
        assert process.stdin is not None
        process.stdin.close()
        _kill(process.pid)
        process.wait()

    def end_all(self) -> None:
        """End all workers."""
        for thread in list(self._running):
            self.end(thread)


def _watch(
    workers: Workers, python: str, adapter: str, folder: Path, limits: Limits, stop: threading.Event
) -> tuple[str, str]:
    """Wait for a trial, and kill it with its children where it goes beyond a limit."""
    deadline = time.monotonic() + limits.seconds
    worker = workers.begin(python, adapter, folder)
    code, group = folder / "code", folder / "group"
    try:
        while not code.exists() and worker.poll() is None:
            if time.monotonic() > deadline:
                return "out of time", f"It was not done after {limits.seconds:g} s."
            if resident_bytes({worker.pid, _number(group)}) > limits.gibibytes * GIBIBYTE:
                return "out of memory", f"It needed more than {limits.gibibytes:g} GiB."
            if stop.wait(SECONDS_BETWEEN_LOOKS):
                return "stopped", "The benchmark was interrupted."
    finally:
        if not code.exists():
            workers.end(threading.get_ident())
        _kill(_number(group))
    ended = _number(code) if code.exists() else worker.returncode
    return ("failed", _crash(ended, folder / "log")) if ended else ("", "")


def _number(file: Path) -> int:
    """The number in a file; 0 if there is none yet."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0


def _variables(python: str) -> dict[str, str]:
    """One thread for everybody; the path to closefar's own code is only for the interpreter of this benchmark."""
    variables = {**os.environ, **dict.fromkeys(THREADS, "1"), "PYTHONHASHSEED": "0"}
    if Path(python) != Path(sys.executable):
        variables.pop("PYTHONPATH", None)
    return variables


def _kill(group: int) -> None:
    """End a process and its children, which form a process group of their own."""
    if group == 0:
        return
    try:
        if sys.platform == "win32":
            os.kill(group, signal.SIGTERM)
        else:
            os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # it ended by itself, and left no child


def resident_bytes(groups: set[int]) -> int:
    """Return the resident memory of process groups; 0 where there is no /proc."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if int(fields[2]) in groups - {0}:
            total += int(fields[21])
    return total * _PAGE


_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def _crash(code: int, log: Path) -> str:
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    how = f"was ended by signal {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"Its process {how}" + (f": {lines[-1][:200]}" if lines else ".")


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what a worker has left behind, which may be anything."""
    try:
        outcome: Mapping[str, Any] = json.loads((folder / "outcome.json").read_text())
        if outcome["status"] != "ok":
            return dict(outcome), {}
        with np.load(folder / "answers.npz", allow_pickle=False) as saved:
            return dict(outcome), dict(saved)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        return {"status": "failed", "reason": f"Its answers can't be read ({type(error).__name__}: {error})."}, {}
