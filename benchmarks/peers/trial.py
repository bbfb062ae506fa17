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

__all__ = ["Limits", "run_trial"]

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
    peer: Peer, data_folder: Path, limits: Limits, interpreters: Interpreters, stop: threading.Event
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
        status, reason = _watch([str(python), str(WORKER), str(folder)], folder, limits, stop)
        if status:
            return {"status": status, "reason": reason}, {}
        return _read(folder)


def _watch(command: list[str], folder: Path, limits: Limits, stop: threading.Event) -> tuple[str, str]:
    """Wait for a worker, and kill it with its children where it goes beyond a limit."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_variables(command[0]),
            start_new_session=True,
        )
        deadline = time.monotonic() + limits.seconds
        try:
            while process.poll() is None:
                if time.monotonic() > deadline:
                    return "out of time", f"It was not done after {limits.seconds:g} s."
                if resident_bytes(process.pid) > limits.gibibytes * GIBIBYTE:
                    return "out of memory", f"It needed more than {limits.gibibytes:g} GiB."
                if stop.wait(SECONDS_BETWEEN_LOOKS):
                    return "stopped", "The benchmark was interrupted."
        finally:
            _kill(process)
    if process.returncode != 0:
        return "failed", _crash(process.returncode, folder / "log")
    return "", ""


def _variables(python: str) -> dict[str, str]:
    """One thread for everybody; the path to closefar's own code is only for the interpreter of this benchmark."""
    variables = {**os.environ, **dict.fromkeys(THREADS, "1"), "PYTHONHASHSEED": "0"}
    if Path(python) != Path(sys.executable):
        variables.pop("PYTHONPATH", None)
    return variables


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a worker and its children, which form a process group of their own."""
    try:
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # it ended by itself, and left no child
    finally:
        process.wait()


def resident_bytes(group: int) -> int:
    """Return the resident memory of a process group; 0 where there is no /proc."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if int(fields[2]) == group:
            total += int(fields[21])
    return total * _PAGE


_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def _crash(code: int, log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
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
