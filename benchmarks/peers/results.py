"""The records of all trials, saved whole after each of them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

from closefar.files import replace_file

__all__ = ["Record", "Results", "load", "machine"]

Record = dict[str, Any]

# A record with one of these is made again only if the limit is larger now.
LIMITED = {"out of time": "time_limit", "out of memory": "memory_limit"}
KEY = ("work", "setting", "seed", "peer")


def machine() -> dict[str, Any]:
    """Describe this machine; `id` tells it from others of the same kind without naming it."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = names[0] if names else cpu
    gpu = ""
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        gpu = found.stdout.strip().split("\n")[0] if found.returncode == 0 else ""
    identity = hashlib.sha256(f"{platform.node()} {cpu}".encode()).hexdigest()[:12]
    return {"id": identity, "cpu": cpu, "cores": os.cpu_count(), "gpu": gpu, "system": platform.system()}


class Results:
    """The records in a file, by work, setting, seed and peer."""

    def __init__(self, path: Path, fresh: bool = False) -> None:
        self.path, self.machine = path, machine()
        self._records: dict[tuple[Any, ...], Record] = {}
        self._lock = threading.Lock()
        if path.exists() and not fresh:
            saved = load(path)
            if saved["machine"].get("id") == self.machine["id"]:
                self._records = {_key(record): record for record in saved["records"]}
            elif saved["records"]:
                print(f"{path.name} has results of another machine; they are not mixed with those of this one.")

    def has(self, record: Record) -> bool:
        """Whether the same code has made a record of the same data before, within limits that are no tighter."""
        found = self._records.get(_key(record))
        if found is None or found["status"] == "not installed" or not _same(found, record, ("data", "fingerprint")):
            return False
        limit = LIMITED.get(found["status"])
        return limit is None or found[limit] >= record[limit]

    def limit_met(self, record: Record) -> str | None:
        """Return "out of time" or "out of memory" if this peer met that limit at this setting, with whatever seed."""
        for found in self.records():
            limit = LIMITED.get(found["status"])
            same = _same(found, record, ("work", "setting", "peer", "fingerprint"))
            if limit is not None and same and found[limit] >= record[limit]:
                return str(found["status"])
        return None

    def mean_seconds(self) -> dict[tuple[str, str, str], float]:
        """Return how long trials took, with everything, for each work, setting and peer."""
        times: dict[tuple[str, str, str], list[float]] = {}
        for record in self.records():
            key = (record["work"], record["setting"], record["peer"])
            times.setdefault(key, []).append(record.get("trial_seconds", 0.0))
        return {key: sum(each) / len(each) for key, each in times.items()}

    def add(self, record: Record) -> None:
        """Keep a record, and save all."""
        with self._lock:
            self._records[_key(record)] = record
            self._save()

    def records(self) -> list[Record]:
        """Return all records in the order in which they were first made."""
        with self._lock:
            return list(self._records.values())

    def _save(self) -> None:
        content = {"machine": self.machine, "records": list(self._records.values())}
        replace_file(self.path, (json.dumps(content, indent=1) + "\n").encode())


def _key(record: Record) -> tuple[Any, ...]:
    return tuple(record[name] for name in KEY)


def _same(found: Record, record: Record, names: tuple[str, ...]) -> bool:
    return all(found[name] == record[name] for name in names)


def load(path: Path) -> dict[str, Any]:
    """Read a file of results; raises ValueError if it is none."""
    try:
        saved = json.loads(path.read_text())
        if not (isinstance(saved, dict) and isinstance(saved["records"], list) and isinstance(saved["machine"], dict)):
            raise ValueError("it has no records")
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"can't read {path}: it is not a file of results ({error}). Use --fresh to replace it."
        ) from error
    return saved
