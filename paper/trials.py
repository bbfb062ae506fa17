"""Trials: what an experiment repeats with many seeds, in parallel processes, each kept as soon as it is finished."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

import closefar as cf

Settings = dict[str, Any]
Result = dict[str, Any]
T = TypeVar("T")


class MissingDataError(Exception):
    """The experiment's data is absent; the message says how to get it."""


@dataclass(frozen=True)
class Run:
    """How experiments are run, and where their finished trials are kept.

    Parameters
    ----------
    full : bool
        The paper's trials and sample sizes; otherwise fewer and smaller ones.
    seed : int
        Determines every random number of every experiment.
    data : Path, optional
        The folder with the data that can't be distributed: ``combustion/`` and ``airline/``.
    folder : Path, optional
        Finished trials are kept here, one file per kind of trial, and are not run again.
    n_jobs : int
        Number of processes.  Each trial computes on one thread, so that the number changes no result.
    """

    full: bool = False
    seed: int = 0
    data: Path | None = None
    folder: Path | None = None
    n_jobs: int = 1

    def choose(self, quick: T, full: T) -> T:
        """Return the one that this run asks for."""
        return full if self.full else quick

    def data_folder(self, name: str, advice: str) -> Path:
        """Return the folder `name` in `data`; without it the experiment can't run, and `advice` says what to do."""
        if self.data is None or not (self.data / name).is_dir():
            raise MissingDataError(advice)
        return self.data / name

    def repeat(
        self, trial: Callable[..., Result], cases: Sequence[Settings], n_trials: int, **places: Any
    ) -> list[list[Result]]:
        """Run `trial` for each case with `n_trials` seeds, the same for all cases; return a list of results per case.

        A trial is a function of a module, of settings and returning a dict that JSON can hold.  `places` are passed to
        every trial and do not identify it: where data lie differs between machines.
        """
        seeds = [1000 * self.seed + index for index in range(n_trials)]
        settings = [case | {"seed": seed} for case in cases for seed in seeds]
        keys = [_key(each) for each in settings]
        kind = f"{trial.__module__.removeprefix('paper.')}.{trial.__name__}"
        path = None if self.folder is None else self.folder / f"{kind}.jsonl"
        kept = _read(path)
        waiting = {key: each for key, each in zip(keys, settings, strict=True) if key not in kept}
        pool = Parallel(n_jobs=self.n_jobs, batch_size=1, return_as="generator_unordered")
        for key, result in pool(delayed(_run)(trial, key, each, places) for key, each in waiting.items()):
            # What a process returns is read back from JSON, so that a resumed run sees exactly the same.
            line = json.dumps({"trial": key, "result": result})
            kept[key] = json.loads(line)["result"]
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
        found = iter(keys)
        return [[kept[next(found)] for _ in seeds] for _ in cases]


def _key(settings: Settings) -> str:
    return f"{cf.__version__} {json.dumps(settings, sort_keys=True)}"


def _run(trial: Callable[..., Result], key: str, settings: Settings, places: Settings) -> tuple[str, Result]:
    with threadpool_limits(1):
        return key, trial(**settings, **places)


def _read(path: Path | None) -> dict[str, Result]:
    """Read what was kept.  A last line without its end was cut off when the run was killed; the trial is run again."""
    if path is None or not path.exists():
        return {}
    whole, end, rest = path.read_text(encoding="utf-8").rpartition("\n")
    if rest:
        path.write_text(whole + end, encoding="utf-8")
    entries = [json.loads(line) for line in whole.splitlines()]
    return {entry["trial"]: entry["result"] for entry in entries}
