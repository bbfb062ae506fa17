"""The progress of a fit: what is shown of it on the terminal, and what is kept of it in a file."""

from __future__ import annotations

import io
import json
import math
import stat
import sys
import threading
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import Array, FloatArray, as_float64
from closefar.errors import setting
from closefar.files import check_writable, replace_file
from closefar.fitting.settings import Settings
from closefar.judgements import Columns, Judgements
from closefar.rows import judged_rows
from closefar.solve import Passes, State

_BETWEEN_LINES = 0.5  # seconds, at verbose 1
_QUIET = 2.0  # seconds after which something is shown of a stage, or of a step


class Display:
    """Shows stages and steps at `verbose` 1 (at most two lines per second) or 2 (every step)."""

    def __init__(self, verbose: int = 0) -> None:
        self.verbose = int(verbose)
        # A line that updates while fits are under way, where there is a terminal for it.
        self.status: Any = None
        if self.verbose == 1:
            with suppress(ImportError):  # an extra
                from rich.console import Console

                console = Console(stderr=True)
                self.status = console.status("reading the pairs") if console.is_terminal else None
        self._stage = ""
        self._last_shown = -math.inf
        self._begun = time.monotonic()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Name what is going on: at once in the line that updates, otherwise if it takes long."""
        if self.verbose <= 0:
            yield
            return
        before, self._stage = self._stage, name
        timer = threading.Timer(_QUIET, self.say, [f"{name} ..."])
        timer.daemon = True
        if self.status is not None:
            self.status.update(name)
        else:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._stage = before

    def say(self, line: str) -> None:
        """Show a line that stays."""
        if self.status is not None:
            self.status.console.print(line, markup=False, highlight=False)
        elif self.verbose > 0:
            print(line, file=sys.stderr, flush=True)

    def step(self, line: str) -> None:
        """Show a step, unless another one was shown just before."""
        now = time.monotonic()
        if self.verbose <= 0 or (self.verbose == 1 and now - self._last_shown < _BETWEEN_LINES):
            return
        self._show(line, now)

    def note_pass(self, count: float) -> None:
        """Show that a step, such as a proof, is still under way if it takes long."""
        now = time.monotonic()
        if now - max(self._last_shown, self._begun) >= _QUIET:
            self._show(f"the next step is under way  passes {count:.1f}", now)

    def _show(self, line: str, now: float) -> None:
        self._last_shown = now
        line = f"{self._stage}: {line}" if self._stage else line
        if self.status is not None:
            self.status.update(line)
        else:
            print(line, file=sys.stderr, flush=True)


_SILENT = Display()
_CURRENT: ContextVar[Display] = ContextVar("display", default=_SILENT)


def display() -> Display:
    """The display of the fit that this is part of."""
    return _CURRENT.get()


@contextmanager
def showing(verbose: int) -> Iterator[Display]:
    """Show the progress of what is done within this, unless it is part of something that shows its own."""
    if verbose <= 0 or display().verbose > 0:
        yield display()
        return
    shown = Display(verbose)
    token = _CURRENT.set(shown)
    try:
        with shown.status or nullcontext():
            yield shown
    finally:
        _CURRENT.reset(token)


class ShownSteps:
    """The steps of a solver as lines; `keep` is called with each state."""

    def __init__(self, passes: Passes, keep: Callable[[State], None] | None = None) -> None:
        self.passes = passes
        self.keep = keep

    def __call__(self, iteration: int, state: State) -> None:
        if self.keep is not None:
            self.keep(state)
        gap = f"{state.gap:.1e}" if state.bound > 0 else "not proven yet"
        display().step(
            f"step {iteration:4d}  objective {state.objective:.8f}  gap {gap}  passes {self.passes.count:.1f}"
        )


# ---------------------------------------------------------------------------------------------------------------------
# The checkpoint: a small file with the last state of a fit, from which the same fit goes on


CHECKPOINT_VERSION = 2  # 1 was a journal of all inner runs
INTERVAL = 1.0  # seconds between two writes, at least: what a killed process loses
_SHARE_OF_TIME = 0.05  # that writing may take, where a file of very many columns takes long

_KEY = "closefar_checkpoint"
_NOT_COMPARED = ("verbose", "max_time", "random_state")  # they only lead to the result by another way
_SAME_SUMS = 1e-9  # relative: another number of threads adds in another order, with rounding errors below 1e-12
_GOLDEN_RATIO = 0.6180339887498949  # its multiples spread evenly over [0, 1): each row gets a weight of its own


class Checkpoint:
    """The file of a fit at a path.  It is refused at once if it can't be written, or is something else.

    A state is only where the fit starts; settings are chosen again.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        check_writable(self.path)
        self._before = _read(self.path) if self.path.exists() else {}
        self._states: dict[str, dict[str, Any]] = {}
        self._facts: dict[str, str] = {}
        self._moments = np.zeros(0)
        self._due = 0.0
        self._has_warned = False

    def begin(self, judgements: Judgements, settings: Settings, columns: Columns | None) -> None:
        """Go on from the file, if it is that of the same data and settings; otherwise refuse it."""
        self._facts, self._moments = _facts(judgements, settings, columns), _moments(judgements)
        self._due = time.monotonic() + INTERVAL
        if not self._before:
            return
        for name, here in self._facts.items():
            there = self._before["facts"].get(name)
            if here != there:
                named = setting(name) if name in Settings.__dataclass_fields__ else name
                raise ValueError(
                    f"{self.path} is the checkpoint of another fit: " + named + f" is {here} here and {there} in the "
                    "checkpoint. Use the same data and settings to continue that fit, or another checkpoint."
                )
        with np.errstate(all="ignore"):  # columns in extreme units, whose squares overflow
            there = self._before["moments"]
            scale = np.sqrt(np.abs(np.diag(there)))
            differs = np.abs(self._moments - there) > _SAME_SUMS * np.outer(scale, scale)
        if np.any(differs):
            raise ValueError(
                f"{self.path} is the checkpoint of another fit: the pairs, labels or weights, or their order, have "
                "changed. Use the same data and settings to continue that fit, or another checkpoint."
            )
        self._states = dict(self._before["states"])

    @property
    def sentence(self) -> str | None:
        """What is continued, before it is; None if the fit is new."""
        if not self._before.get("states"):
            return None
        gaps = [state["gap"] for state in self._before["states"].values()]
        proven = f" (proven gap {gaps[-1]:.1e})" if gaps and gaps[-1] < np.inf else ""
        return f"continuing from {self.path}{proven}"

    def state(self, run: str, n_directions: int) -> State | None:
        """The last state of a run before this process, to start from; it is given once."""
        kept = self._before.get("states", {}).pop(run, None)
        if kept is None or len(kept["matrix"]) != n_directions:
            return None
        factor = None if kept["is_square"] else kept["matrix"]
        matrix = kept["matrix"] if factor is None else factor @ factor.T
        rates = kept["rates"] if len(kept["rates"]) else None
        objective, bound = kept["gap"] if rates is None else np.inf, 0.0  # only the gap matters
        return replace(
            State.at(matrix, *kept["thresholds"]), objective=float(objective), bound=bound, factor=factor, rates=rates
        )

    def keep(self, run: str, state: State) -> None:
        """Note the state of a run, and write it if that is due."""
        kept = {
            "matrix": state.matrix if state.factor is None else state.factor,
            "is_square": state.factor is None,
            "thresholds": state.thresholds,
            "rates": np.zeros(0) if state.rates is None else state.rates,
            "gap": state.gap if state.bound > 0.0 else np.inf,
        }
        self._states.pop(run, None)  # the latest is the last
        self._states[run] = kept
        if time.monotonic() >= self._due:
            self.write()

    def write(self) -> None:
        """Write what is known now; a warning says so if it can't be."""
        begun = time.monotonic()
        arrays = {"moments": self._moments}
        for name, state in self._states.items():
            arrays.update({f"state/{name}/{part}": np.asarray(value) for part, value in state.items()})
        text = json.dumps({_KEY: CHECKPOINT_VERSION, "facts": self._facts})
        content = io.BytesIO()
        np.savez(content, text=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]  # names are arrays
        try:
            replace_file(self.path, content.getvalue())
        except OSError as error:
            if not self._has_warned:
                warnings.warn(f"{error} The fit goes on without it.", UserWarning, stacklevel=2)
            self._has_warned = True
        now = time.monotonic()
        self._due = now + max(INTERVAL, (now - begun) / _SHARE_OF_TIME)


def _read(path: Path) -> dict[str, Any]:
    if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe would block
        raise ValueError(f"{path} is not a regular file, so it can't be a checkpoint. Choose another name.")
    remedy = "Remove it to begin again, or choose another name."
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            held: dict[str, Any] = json.loads(arrays["text"].tobytes())
            version, held["moments"], held["states"] = held[_KEY], arrays["moments"], {}
            for key in arrays.files:
                if key.startswith("state/"):
                    _, run, part = key.split("/")
                    held["states"].setdefault(run, {})[part] = arrays[key]
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, AttributeError, EOFError, RecursionError) as error:
        raise ValueError(f"{path} is not a closefar checkpoint, or it is damaged ({error}). {remedy}") from error
    if version != CHECKPOINT_VERSION:
        raise ValueError(
            f"{path} is a checkpoint of format {version}, and this version of closefar continues format "
            f"{CHECKPOINT_VERSION}. Use the version that wrote it. {remedy}"
        )
    return held


def _facts(judgements: Judgements, settings: Settings, columns: Columns | None) -> dict[str, str]:
    """What is compared by name: settings, and what can be said of the data in a few words."""
    sides, annotators = judgements.sides, judgements.annotators
    given = {
        **{name: value for name, value in settings.parameters.items() if name not in _NOT_COMPARED},
        "the number of pairs": len(judgements),
        "the number of columns": judgements.n_columns,
        "the list of columns": None if columns is None else columns.names,
        "the list of levels": sides.classes.tolist() if sides.is_graded else None,
        "the list of annotators": None if annotators is None else annotators.names,
        "the label for close": sides.close,
        "the label for far": sides.far,
        "the number of comparisons": 0 if judgements.comparisons is None else len(judgements.comparisons),
    }
    return {name: repr(value.item() if isinstance(value, np.generic) else value) for name, value in given.items()}


def _moments(judgements: Judgements) -> FloatArray:
    """Second moments of the rows, in which each has a weight that depends on its place, its label and its weight."""
    source = judged_rows(judgements)
    arrays = [source.row_numbers(), judgements.codes_in(source), judgements.shares_in(source)]
    if judgements.annotators is not None:
        arrays.append(judgements.groups_in(source))
    with np.errstate(all="ignore"):
        found: FloatArray = source.outer(source.map(_own_weights, *arrays))
    return found


def _own_weights(places: Array, labels: Array, shares: Array, annotators: Array = None) -> Array:
    own = array_namespace(places).remainder(places * _GOLDEN_RATIO, 1.0) + as_float64(labels) + 2.0
    return (own if annotators is None else own + _GOLDEN_RATIO * as_float64(annotators)) * shares
