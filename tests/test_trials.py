"""Trials come back in order, are kept as soon as they are done, and are not run again."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import closefar as cf
from closefar.experiments.config import run_in_turn
from closefar.experiments.trials import Trials

# In a file of its own, because other processes import it.  Each run of a trial leaves a mark.
_MODULE = """
import math, os, time
from pathlib import Path

def trial(number, folder, seconds=0.0, fail=False):
    with Path(folder, str(number)).open("a") as file:
        file.write("x")
    time.sleep(seconds)
    if fail:
        raise ValueError(f"{number} fails")
    return {"number": number, "third": number / 3, "nan": math.nan, "list": [number] * 2, "text": "\\N{MINUS SIGN}"}

def fail_at_once(number, folder):
    raise ValueError(f"{number} fails")

def die(number):
    os._exit(3)

def unwritable(number):
    return {"number": {number}}
"""

_SCRIPT = """
import sys, time
from pathlib import Path

if __name__ == "__mp_main__" and {slow_start}:
    Path("starting").touch()
    time.sleep(2.0)

if __name__ == "__main__":
    from closefar.experiments.trials import Trials
    from some_trials import trial
    Path("runs").mkdir(exist_ok=True)
    settings = [
        {{"number": n, "folder": "runs", "seconds": {seconds}, "fail": {fails}}} for n in range({count})
    ]
    with Trials(Path("trials.jsonl"), 2, lambda *_: None, lambda text: print(text, flush=True)) as trials:
        print(sum(each["number"] for each in trials.run(trial, settings)))
"""

needs_groups = pytest.mark.skipif(os.name == "nt", reason="sends the signals of a terminal")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "some_trials.py").write_text(_MODULE, encoding="utf-8")
    (tmp_path / "runs").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "some_trials", raising=False)
    yield import_module("some_trials")
    sys.modules.pop("some_trials", None)


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """Start a script with trials of its own, as a group of processes like the one that a terminal starts."""
    (tmp_path / "some_trials.py").write_text(_MODULE, encoding="utf-8")
    started: list[subprocess.Popen[str]] = []

    def start_script(count: int, seconds: float, *, slow_start: bool = False, fails: str = "False") -> Any:
        text = _SCRIPT.format(count=count, seconds=seconds, slow_start=slow_start, fails=fails)
        (tmp_path / "script.py").write_text(text, encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "script.py"], cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start_script
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _trials(path: Path, n_jobs: int = 2, show: Callable[[int, int], None] = lambda done, total: None) -> Trials:
    return Trials(path, n_jobs, show, lambda sentence: None)


def _settings(folder: Path, count: int, first: int = 0, **more: Any) -> list[dict[str, Any]]:
    return [{"number": number, "folder": str(folder / "runs"), **more} for number in range(first, first + count)]


def _n_runs(folder: Path) -> dict[int, int]:
    return {int(path.name): len(path.read_text()) for path in (folder / "runs").iterdir()}


def _kept(folder: Path) -> list[int]:
    """The numbers of the trials on disk, sorted."""
    path = folder / "trials.jsonl"
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    return sorted(json.loads(line)["result"]["number"] for line in lines)


def _await(condition: Callable[[], bool], process: Any) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def _await_end_of_group(group: int) -> None:
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    pytest.fail("processes were left behind")


# In this process


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_results_are_in_order_and_those_of_running_in_turn(n_jobs: int, tmp_path: Path, module: Any) -> None:
    settings = _settings(tmp_path, 5)
    settings[0]["seconds"] = 0.3  # the first is not the first to end
    shown = []
    with _trials(tmp_path / "trials.jsonl", n_jobs, lambda *progress: shown.append(progress)) as trials:
        found = trials.run(module.trial, settings)
    assert [each["number"] for each in found] == list(range(5))
    for ours, expected in zip(found, run_in_turn(module.trial, settings), strict=True):
        assert math.isnan(ours.pop("nan"))
        assert math.isnan(expected.pop("nan"))
        assert ours == expected
    assert _kept(tmp_path) == list(range(5))
    assert shown[0] == (0, 5)
    assert shown[-1] == (5, 5)
    assert shown == sorted(shown)


def test_trials_run_in_other_processes(tmp_path: Path, module: Any) -> None:
    with _trials(tmp_path / "trials.jsonl") as trials:
        trials.run(module.trial, _settings(tmp_path, 1))
        assert trials.run(os.getpid, [{}]) != [os.getpid()]


def test_a_kept_trial_is_not_run_again(tmp_path: Path, module: Any) -> None:
    path = tmp_path / "trials.jsonl"
    with _trials(path) as trials:
        first = trials.run(module.trial, _settings(tmp_path, 3))
        assert [each["number"] for each in trials.run(module.trial, _settings(tmp_path, 3))] == [0, 1, 2]
    shown = []
    with _trials(path, show=lambda *progress: shown.append(progress)) as trials:
        again = trials.run(module.trial, list(reversed(_settings(tmp_path, 3))))
    assert json.dumps(again[::-1]) == json.dumps(first)
    assert shown == [(3, 3)]
    with _trials(path) as trials:
        assert [each["number"] for each in trials.run(module.trial, _settings(tmp_path, 5))] == list(range(5))
    assert _n_runs(tmp_path) == dict.fromkeys(range(5), 1)


def test_a_trial_is_known_by_its_function_and_all_its_settings(tmp_path: Path, module: Any) -> None:
    one = _settings(tmp_path, 1)[0]
    with _trials(tmp_path / "trials.jsonl", 1) as trials:
        trials.run(module.trial, [one, one | {"fail": False}, one | {"seconds": 0.01}])
        assert _n_runs(tmp_path) == {0: 3}
        trials.run(module.trial, [dict(reversed(one.items()))])  # their order says nothing
        assert _n_runs(tmp_path) == {0: 3}
        with pytest.raises(ValueError, match="0 fails"):
            trials.run(module.fail_at_once, [one])


def test_settings_given_twice_run_once(tmp_path: Path, module: Any) -> None:
    settings = _settings(tmp_path, 2)
    with _trials(tmp_path / "trials.jsonl") as trials:
        found = trials.run(module.trial, [*settings, *settings, settings[0]])
    assert [each["number"] for each in found] == [0, 1, 0, 1, 0]
    assert _n_runs(tmp_path) == {0: 1, 1: 1}
    assert _kept(tmp_path) == [0, 1]


def test_nothing_to_run(tmp_path: Path, module: Any) -> None:
    with _trials(tmp_path / "trials.jsonl") as trials:
        assert trials.run(module.trial, []) == []
    assert not (tmp_path / "trials.jsonl").exists()


@pytest.mark.parametrize(("n_lines", "share"), [(1, 0.5), (3, 0.0), (3, 0.5), (3, 1.0)])
def test_a_line_that_was_cut_off_is_run_again(n_lines: int, share: float, tmp_path: Path, module: Any) -> None:
    path = tmp_path / "trials.jsonl"
    keys = [
        f"{cf.__version__} some_trials.trial {json.dumps(each, sort_keys=True)}"
        for each in _settings(tmp_path, n_lines)
    ]
    lines = [json.dumps({"trial": key, "result": {"number": n}}) + "\n" for n, key in enumerate(keys)]
    cut = lines[-1][: round(share * (len(lines[-1]) - 1))]  # at most all but the end of the line
    path.write_text("".join(lines[:-1]) + cut, encoding="utf-8")
    with _trials(path, 1) as trials:
        found = trials.run(module.trial, _settings(tmp_path, n_lines))
    assert [each["number"] for each in found] == list(range(n_lines))
    assert _n_runs(tmp_path) == {n_lines - 1: 1}
    assert _kept(tmp_path) == list(range(n_lines))


def test_an_exception_is_passed_on_and_what_was_finished_is_kept(tmp_path: Path, module: Any) -> None:
    settings = _settings(tmp_path, 6)
    settings[3]["fail"] = True
    with _trials(tmp_path / "trials.jsonl", 1) as trials:
        with pytest.raises(ValueError, match="3 fails"):
            trials.run(module.trial, settings)
        assert _kept(tmp_path) == [0, 1, 2]
        # The same processes go on with others.
        assert trials.run(module.trial, _settings(tmp_path, 1, first=9))[0]["number"] == 9
    assert set(_n_runs(tmp_path)) == {0, 1, 2, 3, 9}


def test_a_failure_loses_nothing_that_ended_before_it(tmp_path: Path, module: Any) -> None:
    settings = _settings(tmp_path, 8)
    settings[7] |= {"fail": True, "seconds": 1.0}
    with _trials(tmp_path / "trials.jsonl") as trials, pytest.raises(ValueError, match="7 fails"):
        trials.run(module.trial, settings)
    assert _kept(tmp_path) == list(range(7))


def test_results_must_fit_in_json(tmp_path: Path, module: Any) -> None:
    with _trials(tmp_path / "trials.jsonl", 1) as trials, pytest.raises(TypeError, match="not JSON serializable"):
        trials.run(module.unwritable, [{"number": 1}])
    assert _kept(tmp_path) == []


def test_a_process_that_dies_does_not_take_later_trials_with_it(tmp_path: Path, module: Any) -> None:
    with _trials(tmp_path / "trials.jsonl", 1) as trials:
        with pytest.raises(RuntimeError, match=r"was killed.*--resume"):
            trials.run(module.die, [{"number": 1}])
        assert trials.run(module.trial, _settings(tmp_path, 1))[0]["number"] == 0


# Interrupted


@needs_groups
@pytest.mark.parametrize("send", [os.killpg, os.kill], ids=["terminal", "parent only"])
def test_an_interrupted_run_keeps_every_trial_that_was_begun(
    send: Callable[[int, int], None], tmp_path: Path, start: Any
) -> None:
    process = start(8, 0.4)
    _await(lambda: len(_kept(tmp_path)) >= 3, process)
    send(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert process.returncode != 0
    assert error.rstrip().endswith("KeyboardInterrupt")
    assert "Ctrl-C again" in out
    begun, kept = _n_runs(tmp_path), _kept(tmp_path)
    assert sorted(begun) == kept
    assert set(begun.values()) == {1}
    assert 3 <= len(kept) < 8
    process = start(8, 0.4)
    out, error = process.communicate(timeout=120)
    assert (process.returncode, error, out.strip()) == (0, "", "28")
    assert _n_runs(tmp_path) == dict.fromkeys(range(8), 1)
    assert _kept(tmp_path) == list(range(8))


@needs_groups
def test_a_second_interruption_does_not_wait(tmp_path: Path, start: Any) -> None:
    process = start(4, 120.0)
    _await(lambda: len(_n_runs(tmp_path)) == 2 if (tmp_path / "runs").is_dir() else False, process)
    os.killpg(process.pid, signal.SIGINT)
    assert "Waiting for 2 running trials" in process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in error
    assert _kept(tmp_path) == []
    _await_end_of_group(process.pid)  # none is left to sleep on


@needs_groups
def test_interrupted_while_processes_start(tmp_path: Path, start: Any) -> None:
    process = start(4, 0.1, slow_start=True)
    _await((tmp_path / "starting").exists, process)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert error.rstrip().endswith("KeyboardInterrupt")
    assert "BrokenProcessPool" not in error
    assert sorted(_n_runs(tmp_path)) == _kept(tmp_path)


@needs_groups
def test_processes_that_start_are_not_interrupted(tmp_path: Path, start: Any) -> None:
    process = start(4, 0.1, slow_start=True)
    _await((tmp_path / "starting").exists, process)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert error.count("Traceback") == 1  # of the parent alone
    assert _kept(tmp_path) == [0, 1]


@needs_groups
def test_a_trial_that_fails_while_others_are_finished_does_not_hide_the_interruption(
    tmp_path: Path, start: Any
) -> None:
    process = start(6, 2.0, fails="n == 0")
    _await(lambda: len(_n_runs(tmp_path)) == 2 if (tmp_path / "runs").is_dir() else False, process)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert error.rstrip().endswith("KeyboardInterrupt")
    assert _kept(tmp_path) == [1]
    assert sorted(_n_runs(tmp_path)) == [0, 1]
