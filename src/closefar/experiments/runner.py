"""Runs the experiments, keeps what is finished, and writes the page."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from joblib import cpu_count

import closefar as cf
from closefar.experiments.config import Config, MissingDataError
from closefar.experiments.page import write_page
from closefar.experiments.registry import EXPERIMENTS
from closefar.experiments.trials import Trials

__all__ = ["Watch", "run_paper"]


class Watch:
    """Receives the progress of a run; the default ignores it."""

    def begun(self, title: str) -> None:
        """Report that an experiment begins."""

    def trials(self, done: int, total: int) -> None:
        """Show how many of its trials are done."""

    def ended(self, entry: dict[str, Any]) -> None:
        """Report how an experiment ended."""

    def warn(self, sentence: str) -> None:
        """Report something that the user should know now."""


def run_paper(
    names: Sequence[str] = (),
    *,
    quick: bool = True,
    seed: int = 0,
    data: Path | None = None,
    out: Path = Path("paper"),
    resume: bool = False,
    n_jobs: int | None = None,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Run experiments and write ``paper.html``, ``results.json`` and ``figures/`` in `out`.

    Parameters
    ----------
    names : sequence of str
        Which experiments; all by default.
    quick, seed, data
        As in `Config`.
    out : Path
        The folder to write to; made where it is missing.
    resume : bool
        Continue with the trials that an earlier run kept in `out`, and keep its other experiments on
        the page.  Otherwise they are replaced.
    n_jobs : int, optional
        Number of processes; as many as there are cores by default.
    watch : Watch, optional
        Receives progress.

    Returns
    -------
    dict
        What ``results.json`` holds.  After an interruption, `KeyboardInterrupt` is raised once
        the page with what is finished has been written.
    """
    watch = watch or Watch()
    chosen = _check_names(names)
    if data is not None and not data.is_dir():
        raise FileNotFoundError(f"--data must name a folder; {data} is not one.")
    out.mkdir(parents=True, exist_ok=True)
    results = _begin(chosen, quick, seed, out if resume else None)
    write_page(results, out)
    kept = out / "trials.jsonl"
    if not resume and kept.exists():
        kept.replace(kept.with_suffix(".old"))  # hours of work, perhaps, that a forgotten --resume must not cost
        watch.warn(f"Starting over; the trials of the earlier run are kept in {kept.with_suffix('.old')}.")
    with Trials(kept, n_jobs or cpu_count(), watch.trials, watch.warn) as trials:
        config = Config(quick, seed, data, trials.run)
        for name in chosen:
            started = time.perf_counter()
            entry = _run_one(name, config, watch) | {"seconds": time.perf_counter() - started}
            results["experiments"] = [entry if each["name"] == name else each for each in results["experiments"]]
            write_page(results, out)
            watch.ended(entry)
    return results


def _check_names(names: Sequence[str]) -> list[str]:
    """Return the experiments meant, in the page's order; all of them where none is named."""
    wanted = [name.strip().replace("-", "_") for name in names]
    for name, given in zip(wanted, names, strict=True):
        if name not in EXPERIMENTS:
            raise ValueError(f"unknown experiment {given!r}; choose from {', '.join(EXPERIMENTS)}.")
    return [name for name in EXPERIMENTS if not wanted or name in wanted]


def _begin(chosen: Sequence[str], quick: bool, seed: int, earlier: Path | None) -> dict[str, Any]:
    """Results with every experiment still to be done, but for those that an earlier run of the same kind finished."""
    before: list[dict[str, Any]] = []
    if earlier is not None and (earlier / "results.json").exists():
        try:
            found = json.loads((earlier / "results.json").read_text(encoding="utf-8"))
            if (found["version"], found["quick"], found["seed"]) == (cf.__version__, quick, seed):
                before = found["experiments"]
        except (ValueError, KeyError, TypeError) as error:
            damaged = earlier / "results.json"
            raise ValueError(f"{damaged} is damaged ({error}): remove it, or run without --resume.") from error
    entries = {entry["name"]: entry for entry in before}
    entries |= {name: _entry(name, "unfinished", "Run again with --resume to continue.") for name in chosen}
    return {
        "version": cf.__version__,
        "quick": quick,
        "seed": seed,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "experiments": [entries[name] for name in EXPERIMENTS if name in entries],
    }


def _run_one(name: str, config: Config, watch: Watch) -> dict[str, Any]:
    module = _module(name)
    watch.begun(module.TITLE)
    try:
        return _entry(name, "done", section=module.run(config))
    except MissingDataError as missing:
        return _entry(name, "not run", str(missing))
    except Exception as error:  # one experiment must not take the others with it; the page and the exit code tell
        watch.warn(traceback.format_exc())
        return _entry(name, "failed", f"{type(error).__name__}: {error}")


def _entry(name: str, status: str, reason: str | None = None, section: Any = None) -> dict[str, Any]:
    title = _module(name).TITLE
    return {"name": name, "title": title, "status": status, "reason": reason, "seconds": 0.0, "section": section}


def _module(name: str) -> Any:
    return import_module(f"closefar.experiments.{name}")
