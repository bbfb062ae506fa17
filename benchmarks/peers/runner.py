"""Runs peers on works, several trials at a time, and records what comes back."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any

import numpy as np

from peers.environments import ENVIRONMENTS, ROOT, Interpreters
from peers.problems import Plan, Problem, Problems
from peers.results import Record, Results
from peers.trial import Limits, Workers, run_trial
from peers.works import Data

__all__ = ["Runner"]


class Runner:
    """Runs trials, `jobs` at a time, and adds their records to the results."""

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
        self._workers, self._stop = Workers(), threading.Event()
        self._progress = Progress(results, jobs)

    def run(self, plans: Iterable[Plan]) -> None:
        """Run all trials that have no record yet; an interrupt ends those that run and keeps all records."""
        listed = list(plans)
        problems = Problems(listed, self._options)
        self._progress.begin(listed)
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                waiting, running = iter(listed), set[Future[None]]()
                while True:
                    for plan in islice(waiting, self._jobs - len(running)):
                        running.add(pool.submit(self._trial, plan, problems))
                    if not running:
                        break
                    ended, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in ended:
                        future.result()
            finally:
                self._stop.set()
                pool.shutdown()
                self._workers.end_all()
                problems.remove_all()

    def _trial(self, plan: Plan, problems: Problems) -> None:
        try:
            problem = problems.get(plan)
            record = self._record(plan, problem)
            if self._results.has(record):
                self._progress.kept(plan)
                return
            start = time.monotonic()
            outcome = self._outcome(plan, problem, problems, record)
            if not self._stop.is_set():
                outcome["reason"] = outcome["reason"].replace(f"{ROOT}{os.sep}", "")  # nobody else has that folder
                self._results.add({**record, **outcome, "trial_seconds": time.monotonic() - start})
                self._progress.ended(plan, outcome)
        finally:
            problems.release(plan)

    def _record(self, plan: Plan, problem: Problem) -> Record:
        environment = self._interpreters.fingerprint(ENVIRONMENTS[plan.peer.environment])
        return {
            "work": plan.setting.work,
            "setting": plan.setting.name,
            "seed": plan.seed,
            "peer": plan.peer.name,
            "data": problem.fingerprint,
            "fingerprint": plan.peer.fingerprint(environment),
            "time_limit": self._limits.seconds,
            "memory_limit": self._limits.gibibytes,
        }

    def _outcome(self, plan: Plan, problem: Problem, problems: Problems, record: Record) -> dict[str, Any]:
        if problem.data is None:
            return {"status": "not applicable", "reason": problem.reason}
        for setting in (plan.setting.name, plan.setting.smaller):
            status = self._results.limit_met({**record, "setting": setting})
            if status is not None:
                where = "with another seed" if setting == plan.setting.name else f"at the smaller setting {setting!r}"
                return {"status": status, "reason": f"It ran {status} {where}."}
        outcome, answers = run_trial(
            plan.peer, problems.folder(plan), self._limits, self._interpreters, self._workers, self._stop
        )
        return with_figures(plan, problem.data, outcome, answers) if outcome["status"] == "ok" else outcome


def with_figures(plan: Plan, data: Data, outcome: Mapping[str, Any], answers: dict[str, np.ndarray]) -> dict[str, Any]:
    """Add the figures of what a peer has answered; those that are not finite become a note."""
    try:
        found = plan.work.figures(data, answers)
    except Exception as error:  # answers may be anything, such as a matrix of the wrong shape
        return {"status": "failed", "reason": f"Its answers can't be used ({type(error).__name__}: {error})."}
    broken = sorted(name for name, value in found.items() if not np.isfinite(value))
    words = [str(outcome.get("note", "")), f"not finite: {', '.join(broken)}" if broken else ""]
    figures = {name: float(value) for name, value in found.items() if np.isfinite(value)}
    return {**outcome, "note": "; ".join(filter(None, words)), "figures": figures}


class Progress:
    """Prints a line for each trial, with the time that the others will take."""

    def __init__(self, results: Results, jobs: int) -> None:
        self._results, self._jobs = results, jobs
        self._left: list[Plan] = []
        self._total = self._kept = 0
        self._lock = threading.Lock()

    def begin(self, plans: list[Plan]) -> None:
        """Start with all plans ahead."""
        self._left, self._total, self._kept = list(plans), len(plans), 0

    def kept(self, plan: Plan) -> None:
        """Count a trial whose record is kept."""
        with self._lock:
            self._left.remove(plan)
            self._kept += 1

    def ended(self, plan: Plan, outcome: Mapping[str, Any]) -> None:
        """Say how a trial ended."""
        with self._lock:
            self._left.remove(plan)
            kept = f", {self._kept} kept" if self._kept else ""
            said = outcome["reason"] or f"{outcome['cpu']:.2f} CPU s"
            print(
                f"[{self._total - len(self._left)} of {self._total}{kept}, {self._remaining()} left] "
                f"{plan.setting.work}, {plan.setting.name}, seed {plan.seed}, {plan.peer.name}: "
                f"{outcome['status']} ({said})",
                flush=True,
            )

    def _remaining(self) -> str:
        known = self._results.mean_seconds()
        usual = sum(known.values()) / len(known) if known else 0.0
        times = [known.get((plan.setting.work, plan.setting.name, plan.peer.name), usual) for plan in self._left]
        minutes = sum(times) / self._jobs / 60.0
        return f"about {minutes:.0f} min" if minutes >= 1 else "less than a minute"
