"""Trials in parallel processes, each kept on disk as soon as it is done."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from joblib import cpu_count

from closefar import __version__
from closefar.experiments.config import Settings, Trial

__all__ = ["Trials"]

Result = dict[str, Any]

_SECONDS_WITHOUT_INTERRUPT = 0.1  # too short for a person to notice


class Trials:
    """Runs trials and keeps what they return, one line of JSON each.

    Parameters
    ----------
    path : Path
        Where results are kept.  A trial that is there already is not run again.
    n_jobs : int
        Number of processes; their linear algebra shares the machine's cores.
    show : callable
        Called with the number of trials done and of all trials, as they finish.
    warn : callable
        Called with a sentence for the person who interrupts.
    """

    def __init__(self, path: Path, n_jobs: int, show: Callable[[int, int], None], warn: Callable[[str], None]) -> None:
        self.path, self.n_jobs, self.show, self.warn = path, n_jobs, show, warn
        self._kept = _read(path)
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Trials:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def run(self, trial: Trial, settings: Sequence[Settings]) -> list[Result]:
        """Return the result of `trial` for each of `settings`, in their order.

        On Ctrl-C the trials under way are finished and kept; a second one gives them up.
        """
        keys = [_key(trial, each) for each in settings]
        waiting = [index for index, key in enumerate(keys) if key not in self._kept]
        waiting = list({keys[index]: index for index in reversed(waiting)}.values())
        done, running = len(keys) - len(waiting), dict[Future[Result], str]()
        self.show(done, len(keys))
        try:
            while waiting or running:
                while waiting and len(running) < self.n_jobs:
                    index = waiting.pop()
                    pool = self._pool()
                    with _interruptions_held():
                        running[pool.submit(trial, **settings[index])] = keys[index]
                done += self._keep_finished(running)
                self.show(done, len(keys))
        except KeyboardInterrupt:
            self._wind_up(running)
            raise
        except BrokenProcessPool as error:
            self._executor = None  # the next trials get new processes
            raise RuntimeError(
                "the process of a trial was killed, possibly for lack of memory. Finished trials are kept: run again "
                "with --resume and fewer --jobs."
            ) from error
        except Exception:
            self._keep_all(running)
            raise
        return [self._kept[key] for key in keys]

    def _keep_finished(self, running: dict[Future[Result], str]) -> int:
        finished: set[Future[Result]] = set()
        while not finished:
            # An interrupt inside `wait` can leave a future locked, and the pool would wait for it forever.
            with _interruptions_held():
                finished, _ = wait(running, timeout=_SECONDS_WITHOUT_INTERRUPT, return_when=FIRST_COMPLETED)
        for future in sorted(finished, key=lambda each: each.exception() is not None):  # keep before a failure is told
            key = running.pop(future)
            # What a process returns is read back from JSON, so a resumed run sees exactly the same.
            line = json.dumps({"trial": key, "result": future.result()})
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
            self._kept[key] = json.loads(line)["result"]
        return len(finished)

    def _keep_all(self, running: dict[Future[Result], str]) -> None:
        while running:
            with suppress(Exception):  # a trial that fails now fails again, and is told, when the run is resumed
                self._keep_finished(running)

    def _wind_up(self, running: dict[Future[Result], str]) -> None:
        try:
            self.warn(
                f"Waiting for {len(running)} running trials, to keep their results; press Ctrl-C again to discard them."
            )
            self._keep_all(running)
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():
                process.kill()

    def _pool(self) -> ProcessPoolExecutor:
        if self._executor is None:
            self._executor = ProcessPoolExecutor(
                self.n_jobs, multiprocessing.get_context("spawn"), _prepare_process, (self.n_jobs,)
            )
        return self._executor


@contextmanager
def _interruptions_held() -> Iterator[None]:
    """Put off signals to stop; a process that starts meanwhile inherits that, until it ignores them on its own."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare_process(n_jobs: int) -> None:
    from threadpoolctl import threadpool_limits

    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal and `timeout` signal every process; the parent decides
        signal.signal(number, signal.SIG_IGN)
    threadpool_limits(max(1, cpu_count() // n_jobs))
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Leave no process behind, whatever ended the one that waits for it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _key(trial: Trial, settings: Settings) -> str:
    return f"{__version__} {trial.__module__}.{trial.__qualname__} {json.dumps(settings, sort_keys=True)}"


def _read(path: Path) -> dict[str, Result]:
    """Read what was kept; a last line without its end was cut off in the middle, and is dropped."""
    if not path.exists():
        return {}
    whole, _, rest = path.read_text(encoding="utf-8").rpartition("\n")
    if rest:
        os.truncate(path, path.stat().st_size - len(rest.encode()))
    try:
        entries = [json.loads(line) for line in whole.splitlines()]
        return {entry["trial"]: entry["result"] for entry in entries}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}): remove it, or run without --resume.") from error
