"""The data of trials: made when they are first needed, saved for the first peer that runs, removed after the last."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peers.peers import Peer
from peers.works import Arrays, Data, Setting, Work

__all__ = ["Plan", "Problem", "Problems"]


@dataclass(frozen=True)
class Plan:
    """A trial to come."""

    work: Work
    setting: Setting
    seed: int
    peer: Peer

    @property
    def problem(self) -> tuple[str, str, int]:
        """What its data depend on."""
        return self.setting.work, self.setting.name, self.seed


@dataclass(frozen=True)
class Problem:
    """Data and their hash, or the reason why there are none."""

    data: Data | None
    fingerprint: str = ""
    reason: str = ""


class Problems:
    """Keeps the data of the plans that are running; all peers of a problem get the same bytes."""

    def __init__(self, plans: Iterable[Plan], options: Mapping[str, Any]) -> None:
        self._options = options
        self._users = Counter(plan.problem for plan in plans)
        self._made: dict[tuple[str, str, int], Problem] = {}
        self._folders: dict[tuple[str, str, int], Path] = {}
        self._lock = threading.Lock()

    def get(self, plan: Plan) -> Problem:
        """Return the data of a plan."""
        with self._lock:
            if plan.problem not in self._made:
                self._made[plan.problem] = self._make(plan)
            return self._made[plan.problem]

    def _make(self, plan: Plan) -> Problem:
        try:
            data = plan.work.make(plan.setting, plan.seed, self._options)
        except Exception as error:  # one work without data, such as a file that is missing, does not end the others
            return Problem(None, reason=str(error))
        return Problem(data, data.fingerprint())

    def folder(self, plan: Plan) -> Path:
        """Return the folder with `train.npz` and `asked.npz` of a plan that has data."""
        with self._lock:
            data = self._made[plan.problem].data
            if plan.problem not in self._folders and data is not None:
                folder = Path(tempfile.mkdtemp(prefix="closefar-peers-"))
                self._folders[plan.problem] = folder
                _save(folder / "train.npz", data.train)
                _save(folder / "asked.npz", data.asked)
            return self._folders[plan.problem]

    def release(self, plan: Plan) -> None:
        """Say that a plan has ended."""
        with self._lock:
            self._users[plan.problem] -= 1
            if self._users[plan.problem] == 0:
                self._made.pop(plan.problem, None)
                self._remove(plan.problem)

    def remove_all(self) -> None:
        """Remove all saved data."""
        with self._lock:
            for key in list(self._folders):
                self._remove(key)

    def _remove(self, key: tuple[str, str, int]) -> None:
        folder = self._folders.pop(key, None)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _save(path: Path, arrays: Arrays) -> None:
    named: dict[str, Any] = dict(arrays)
    np.savez(path, **named)
