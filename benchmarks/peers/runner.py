"""Runs peers on works: plans the trials, makes their data, and records what comes back."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from peers.environments import Interpreters
from peers.peers import Peer
from peers.results import Record, Results
from peers.trial import Limits, run_trial
from peers.works import Data, Setting, Work

__all__ = ["Plan", "Runner"]


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


@dataclass
class Problem:
    """Data that are in use: made for the first trial that needs them, removed after the last."""

    users: int = 0
    data: Data | None = None
    folder: Path | None = None
    fingerprint: str = ""
    reason: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


class Runner:
    """Runs trials, `jobs` at a time, and keeps their records."""

    def __init__(
        self,
        results: Results,
        interpreters: Interpreters,
        limits: Limits,
        options: Mapping[str, Any] | None = None,
        jobs: int = 1,
    ) -> None:
        self._results, self._interpreters, self._limits = results, interpreters, limits
        self._options, self._jobs = dict(options or {}), jobs
        self._problems: dict[tuple[str, str, int], Problem] = {}
        self._slow: set[tuple[str, str, str]] = set()
        self._lock = threading.Lock()
        self._started, self._count, self._total = time.monotonic(), 0, 0

    def run(self, plans: Iterable[Plan]) -> None:
        """Run all trials that have no record yet; an interrupt leaves the records of those that ended."""
        plans = list(plans)
        self._started, self._count, self._total = time.monotonic(), 0, len(plans)
        for plan in plans:
            self._problems.setdefault(plan.problem, Problem()).users += 1
        with ThreadPoolExecutor(self._jobs) as pool:
            waiting, running = iter(plans), set[Future[None]]()
            try:
                while True:
                    while len(running) < self._jobs and (plan := next(waiting, None)) is not None:
                        running.add(pool.submit(self._trial, plan))
                    if not running:
                        break
                    ended, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in ended:
                        future.result()
            finally:
                self._remove_all()

    def _trial(self, plan: Plan) -> None:
        problem = self._problem(plan)
        record: Record = {
            "work": plan.setting.work, "setting": plan.setting.name, "seed": plan.seed, "peer": plan.peer.name,
            "data": problem.fingerprint, "fingerprint": plan.peer.fingerprint(),
            "time_limit": self._limits.seconds, "memory_limit": self._limits.gibibytes,
        }  # fmt: skip
        key = (plan.setting.work, plan.setting.name, plan.peer.name)
        try:
            if self._results.done(record):
                self._say(plan, "kept", "")
                return
            if problem.data is None or problem.folder is None:
                outcome = {"status": "not applicable", "reason": problem.reason}
            elif key in self._slow:
                outcome = {"status": "out of time", "reason": "It ran out of time with another seed."}
            else:
                outcome, answers = run_trial(plan.peer, problem.folder, self._limits, self._interpreters)
                if outcome["status"] == "ok":
                    outcome = self._with_figures(plan, problem.data, outcome, answers)
            if outcome["status"] == "out of time":
                self._slow.add(key)
            self._results.add({**record, **outcome})
            self._say(plan, outcome["status"], outcome["reason"])
        finally:
            self._release(plan)

    def _with_figures(
        self, plan: Plan, data: Data, outcome: Mapping[str, Any], answers: dict[str, np.ndarray]
    ) -> dict[str, Any]:
        try:
            found = plan.work.figures(data, answers)
        except (ValueError, TypeError, KeyError, IndexError, np.linalg.LinAlgError) as error:
            return {"status": "failed", "reason": f"Its answers can't be used ({type(error).__name__}: {error})."}
        broken = sorted(name for name, value in found.items() if not np.isfinite(value))
        note = "; ".join(filter(None, [outcome.get("note", ""), f"not finite: {', '.join(broken)}" if broken else ""]))
        return {**outcome, "note": note, "figures": {k: float(v) for k, v in found.items() if np.isfinite(v)}}

    def _problem(self, plan: Plan) -> Problem:
        problem = self._problems[plan.problem]
        with problem.lock:
            if problem.data is None and not problem.reason:
                try:
                    problem.data = plan.work.make(plan.setting, plan.seed, self._options)
                except ValueError as error:  # such as a file that is not there
                    problem.reason = str(error)
                    return problem
                problem.fingerprint = problem.data.fingerprint()
                problem.folder = Path(tempfile.mkdtemp(prefix="closefar-peers-"))
                np.savez(problem.folder / "train.npz", **problem.data.train)
                np.savez(problem.folder / "asked.npz", **problem.data.asked)
        return problem

    def _release(self, plan: Plan) -> None:
        with self._lock:
            problem = self._problems[plan.problem]
            problem.users -= 1
            if problem.users == 0:
                self._remove(self._problems.pop(plan.problem))

    def _remove(self, problem: Problem) -> None:
        if problem.folder is not None:
            shutil.rmtree(problem.folder, ignore_errors=True)

    def _remove_all(self) -> None:
        for problem in self._problems.values():
            self._remove(problem)
        self._problems.clear()

    def _say(self, plan: Plan, status: str, reason: str) -> None:
        with self._lock:
            self._count += 1
            left = (time.monotonic() - self._started) / self._count * (self._total - self._count)
            print(
                f"[{self._count}/{self._total}, about {left / 60:.0f} min left] {plan.setting.work}, "
                f"{plan.setting.name}, seed {plan.seed}, {plan.peer.name}: {status}"
                + (f" ({reason})" if reason else ""),
                flush=True,
            )
