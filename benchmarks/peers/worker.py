"""Runs in the interpreter of a peer: calls its adapter on the saved data, measures it, and saves its answers.

It needs nothing but NumPy and Python 3.9, because peers are pinned to old versions.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

Train = Mapping[str, np.ndarray]

BENCHMARKS = Path(__file__).resolve().parents[1]
LARGEST_BLOCK = 20_000  # pairs that are scored at a time
LONGEST_REFIT = 10.0  # CPU seconds of a fit that is repeated for cross-validation


class NotApplicableError(Exception):
    """Raised by an adapter whose peer can't do this work at this size or on this machine; the message is the reason."""


@dataclass(frozen=True)
class Learned:
    """What a peer has learned; it gives what it has.

    `farness` and `transform` follow from `metric` if they are not given.  `answers` holds what a work asks for in
    addition.  `claim` is what the peer itself says about its distance from the optimum.
    """

    metric: np.ndarray | None = None  # (d, d), in the units of the data
    threshold: float | None = None  # of `farness`: far is at or above it
    farness: Callable[[np.ndarray], np.ndarray] | None = None  # pairs (n, 2, d) -> scores, larger is farther
    probability: Callable[[np.ndarray], np.ndarray] | None = None  # pairs (n, 2, d) -> P(far)
    transform: Callable[[np.ndarray], np.ndarray] | None = None  # points (n, d) -> points whose distance counts
    answers: Mapping[str, np.ndarray] = field(default_factory=dict)
    claim: str = ""
    note: str = ""


def squared_distances(metric: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return z'Mz of each pair."""
    differences = pairs[:, 0] - pairs[:, 1]
    return np.asarray(np.einsum("ij,ij->i", differences @ metric, differences))


def factor_of(metric: np.ndarray) -> np.ndarray:
    """Return F with FF' = M, without what is negative in M."""
    values, vectors = np.linalg.eigh((metric + metric.T) / 2.0)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


@cache
def warmed_up(path: str) -> Any:
    """Import an adapter, with all that is imported and compiled at the first fit and is not part of later ones."""
    adapter = load_adapter(Path(path))
    warm_up = getattr(adapter, "warm_up", None)
    if warm_up is not None:
        warm_up()
    return adapter


def load_adapter(path: Path) -> Any:
    """Import an adapter from its file."""
    spec = importlib.util.spec_from_file_location(f"adapter_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answers_of(learned: Learned, train: Train, asked: Train) -> Iterator[tuple[str, np.ndarray]]:
    """Give the metric, and what the peer says of pairs and points, both those to learn from and those asked for.

    Arrays named `pairs` or `..._pairs` with shape (n, 2, d) get `.farness` and `.probability`; arrays named `points`
    or `..._points` get `.transformed`.  Names of arrays to learn from have the prefix `train_`.
    """
    if learned.metric is not None:
        yield "metric", np.asarray(learned.metric, dtype=np.float64)
    if learned.threshold is not None:
        yield "threshold", np.asarray(float(learned.threshold))
    yield from ((name, np.asarray(values)) for name, values in learned.answers.items())
    farness, transform = _farness(learned), transform_of(learned)
    for name, array in {**{f"train_{name}": array for name, array in train.items()}, **asked}.items():
        if name.endswith("pairs") and array.ndim == 3 and array.shape[1] == 2:
            if farness is not None:
                yield f"{name}.farness", _in_blocks(farness, array)
            if learned.probability is not None:
                yield f"{name}.probability", _in_blocks(learned.probability, array)
        elif name.endswith("points") and array.ndim == 2 and transform is not None:
            yield f"{name}.transformed", np.asarray(transform(array), dtype=np.float64)


def answers_of_folds(
    fit: Callable[[Train], Learned], train: Train, learned: Learned
) -> Iterator[tuple[str, np.ndarray]]:
    """Give the points as transformed by fits without each fold of them, where data have folds and points a transform.

    The runner chooses the number of neighbours by them; these fits are not part of the measured one.
    """
    if "point_folds" in train and transform_of(learned) is not None:
        for fold in np.unique(train["point_folds"]):
            transform = transform_of(fit(without_fold(train, fold)))
            if transform is not None:
                yield f"fold_{fold}.transformed", np.asarray(transform(train["points"]), dtype=np.float64)


def without_fold(train: Train, fold: int) -> dict[str, np.ndarray]:
    """Leave out the points of a fold, and the pairs with one of them."""
    points = train["point_folds"] != fold
    pairs = points[train["pairs_index"]].all(axis=1)
    numbers = np.cumsum(points) - 1
    kept = {name: train[name][points] for name in ("points", "classes", "point_folds")}
    kept.update({name: train[name][pairs] for name in ("pairs", "labels")})
    return {**train, **kept, "pairs_index": numbers[train["pairs_index"][pairs]]}


def _farness(learned: Learned) -> Callable[[np.ndarray], np.ndarray] | None:
    metric, transform = learned.metric, learned.transform
    if learned.farness is not None:
        return learned.farness
    if metric is not None:
        return lambda pairs: squared_distances(metric, pairs)
    if transform is not None:
        return lambda pairs: np.square(transform(pairs[:, 0]) - transform(pairs[:, 1])).sum(axis=1)
    return None


def transform_of(learned: Learned) -> Callable[[np.ndarray], np.ndarray] | None:
    """Return what maps points to points whose Euclidean distance is the learned one."""
    if learned.transform is not None or learned.metric is None:
        return learned.transform
    factor = factor_of(learned.metric)
    return lambda points: np.asarray(points @ factor)


def _in_blocks(function: Callable[[np.ndarray], np.ndarray], pairs: np.ndarray) -> np.ndarray:
    blocks = [function(pairs[start : start + LARGEST_BLOCK]) for start in range(0, len(pairs), LARGEST_BLOCK)]
    return np.concatenate([np.asarray(block, dtype=np.float64).reshape(-1) for block in blocks])


def measured(function: Callable[[Train], Learned], train: Train) -> tuple[Learned, dict[str, float]]:
    """Call an adapter, and measure CPU and wall seconds and the memory beyond what the process held before."""
    before = _reset_peak_memory()
    cpu, wall = _cpu_seconds(), time.perf_counter()
    learned = function(train)
    cpu, wall = _cpu_seconds() - cpu, time.perf_counter() - wall
    return learned, {"cpu": cpu, "wall": wall, "memory": max(_peak_memory() - before, 0.0)}


def _cpu_seconds() -> float:
    """Seconds of all threads, and of children that have ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def _reset_peak_memory() -> float:
    """Return the MiB in use, and let the peak start from there where the system can do that."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _peak_memory()
    return _peak_memory()


def _peak_memory() -> float:
    """Return the peak of the resident memory in MiB."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next((line for line in status.read_text().splitlines() if line.startswith("VmHWM")), None)
        if line is not None:
            return float(line.split()[1]) / 1024.0
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2.0**20 if sys.platform == "darwin" else 2.0**10)


def limit_memory(gibibytes: float) -> None:
    """Limit the address space where the runner can't watch the resident memory."""
    if not Path("/proc/self/status").exists():
        import resource  # not on Windows

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (int(gibibytes * 2**30), hard))


def versions_of(packages: list[str]) -> str:
    """Name the versions of packages, as far as they are installed as such."""
    found = []
    for package in packages:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def work(job: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Run one adapter on one set of data; returns the outcome, with arrays saved beside it."""
    limit_memory(job["memory_limit"])
    train, asked = (dict(np.load(Path(job["data"], f"{name}.npz"))) for name in ("train", "asked"))
    adapter = warmed_up(job["adapter"])
    versions = versions_of(job["packages"])
    learned, effort = measured(adapter.PEERS[job["peer"]], train)
    answers: dict[str, Any] = dict(answers_of(learned, train, asked))
    if effort["cpu"] < LONGEST_REFIT:
        answers.update(answers_of_folds(adapter.PEERS[job["peer"]], train, learned))
    np.savez(folder / "answers.npz", **answers)
    words = {"claim": learned.claim, "note": learned.note, "versions": versions, "python": platform.python_version()}
    return {"status": "ok", "reason": "", **effort, **words}


def outcome_of(job: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the outcome of a trial, whatever the adapter does."""
    try:
        return work(job, folder)
    except NotApplicableError as error:
        return {"status": "not applicable", "reason": str(error)}
    except ModuleNotFoundError as error:
        return {"status": "not installed", "reason": f"The package {error.name} is not installed."}
    except MemoryError as error:
        return {"status": "out of memory", "reason": f"It asked for more memory than there is ({error})."}
    except Exception as error:  # a peer may raise anything, and its row says what
        traceback.print_exc()
        first = (str(error).strip().splitlines() or [""])[0]
        return {"status": "failed", "reason": f"{type(error).__name__}: {first}"[:300]}


def end_with_parent() -> None:
    """End this process once the runner is gone, because nobody would watch its limits any more."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def do_job(folder: Path) -> None:
    """Do the job that is described in a folder."""
    job = json.loads((folder / "job.json").read_text())
    (folder / "outcome.json").write_text(json.dumps(outcome_of(job, folder)))


def do_in_fork(folder: Path) -> int:
    """Do a job in a process group of its own, whose number is in the file `group`; returns the exit code."""
    process = os.fork()
    if process == 0:
        os.setsid()
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        end_with_parent()
        try:
            (folder / "group").write_text(str(os.getpid()))
            do_job(folder)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(process, 0)[1]
    return os.waitstatus_to_exitcode(status)


def main() -> None:
    """Do the jobs in the folders that come line by line, each in a fork of this process, which imports but once.

    Where that can't be done, it does a single job, and ends.
    """
    end_with_parent()
    for line in sys.stdin:
        folder = Path(line.rstrip("\n"))
        if sys.platform != "linux" or not _can_fork(folder):
            (folder / "group").write_text(str(os.getpid()))
            do_job(folder)
            return
        (folder / "code").write_text(str(do_in_fork(folder)))


def _can_fork(folder: Path) -> bool:
    """Import the adapter of a job, unless it fails, and say whether a fork can use it: `FORKS` is false if not."""
    path = json.loads((folder / "job.json").read_text())["adapter"]
    try:
        forks = getattr(load_adapter(Path(path)), "FORKS", True)
        if forks:
            warmed_up(path)
    except Exception:
        print("The fork meets this, too:", traceback.format_exc(), file=sys.stderr)
        return True
    return bool(forks)


if __name__ == "__main__":
    # Imported under the name that adapters know it by, so that `Learned` is one class; the folder of this file is not
    # searched, because it has common names.
    sys.path[:1] = [str(BENCHMARKS), str(BENCHMARKS.parent)]  # the latter for the folder `paper`
    from peers.worker import main as run_worker

    run_worker()
