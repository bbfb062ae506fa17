"""What an experiment is told: how large, which seeds, where the data lies, and who runs its trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["Config", "MissingDataError", "Settings", "Trial", "run_in_turn"]

Settings = dict[str, Any]
Trial = Callable[..., dict[str, Any]]
T = TypeVar("T")


class MissingDataError(Exception):
    """The experiment's data is absent; the message says how to get it."""


def run_in_turn(trial: Trial, settings: Sequence[Settings]) -> list[dict[str, Any]]:
    """Run `trial` once for each of `settings`, here and now."""
    return [trial(**each) for each in settings]


@dataclass(frozen=True)
class Config:
    """The way an experiment is run.

    Parameters
    ----------
    quick : bool
        Fewer trials and smaller samples; otherwise the paper's.
    seed : int
        Every random number of every experiment follows from it.
    data : Path, optional
        The folder with the data that can't be shipped: ``combustion/`` and ``airline/``.
    run_trials : callable
        Runs a trial, which is a function at the top of a module from settings to a dict, both
        of which JSON can hold, once for each of the settings, and returns the dicts in that order.
    """

    quick: bool = True
    seed: int = 0
    data: Path | None = None
    run_trials: Callable[[Trial, Sequence[Settings]], list[dict[str, Any]]] = run_in_turn

    def choose(self, quick: T, full: T) -> T:
        """Return the one that this run asks for."""
        return quick if self.quick else full

    def repeat(self, trial: Trial, cases: Sequence[Settings], n_trials: int) -> list[list[dict[str, Any]]]:
        """Run `trial` for each case with `n_trials` seeds, the same for all; return a list of results a case."""
        seeds = [1000 * self.seed + index for index in range(n_trials)]
        results = iter(self.run_trials(trial, [case | {"seed": seed} for case in cases for seed in seeds]))
        return [[next(results) for _ in seeds] for _ in cases]

    def folder(self, name: str, advice: str) -> Path:
        """Return the folder `name` in `data`; without it the experiment can't run, and `advice` says what to do."""
        if self.data is None or not (self.data / name).is_dir():
            raise MissingDataError(advice)
        return self.data / name
