"""`closefar paper` writes its page, says in a line what is wrong, and goes on where it was interrupted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from closefar.cli.app import app
from closefar.experiments import EXPERIMENTS, high_noise, noises, units
from closefar.experiments.config import Config, MissingDataError
from closefar.experiments.runner import Watch, run_paper

_RUN = [sys.executable, "-m", "closefar.experiments"]
_MAIN = "from closefar.cli import main; main()"
# Plain text, whatever runs the tests.
_FORCED = ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE")
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in _FORCED} | {"COLUMNS": "100"}


def _start(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=_ENVIRONMENT, check=False)


def _paper(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return _start([*_RUN, *map(str, arguments)])


def _python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _start([sys.executable, "-c", code, *arguments])


def _results(out: Path) -> dict[str, Any]:
    return json.loads((out / "results.json").read_text(encoding="utf-8"))


def _statuses(out: Path) -> dict[str, str]:
    return {entry["name"]: entry["status"] for entry in _results(out)["experiments"]}


def _fail(config: Config) -> Any:
    raise ZeroDivisionError("one <by> nought")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("paper") / "new"
    done = _paper("--only", "noises", "units", "--out", out, "--jobs", 1)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"Wrote {out / 'paper.html'}.\n"
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["done", "done"]
    return out


@pytest.fixture
def terminate() -> Iterator[None]:
    """Put back what the command does on SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


# What is written


def test_page_results_and_figures_are_written(written: Path) -> None:
    assert {path.name for path in written.iterdir()} == {"paper.html", "results.json", "figures", "trials.jsonl"}
    assert [path.name for path in (written / "figures").iterdir()] == ["densities.svg"]
    assert _statuses(written) == {"noises": "done", "units": "done"}
    page = (written / "paper.html").read_text(encoding="utf-8")
    assert noises.TITLE in page
    assert units.TITLE in page
    results = _results(written)
    assert (results["quick"], results["seed"]) == (True, 0)
    assert len((written / "trials.jsonl").read_text().splitlines()) == 8


def test_resuming_runs_no_kept_trial_and_keeps_the_other_experiments(written: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    shutil.copytree(written, out)
    done = _paper("--only", "units", "--out", out, "--resume")
    assert done.returncode == 0, done.stderr
    assert _statuses(out) == {"noises": "done", "units": "done"}
    assert (out / "trials.jsonl").read_bytes() == (written / "trials.jsonl").read_bytes()
    sections = [[entry["section"] for entry in _results(each)["experiments"]] for each in (written, out)]
    assert sections[0] == sections[1]
    assert (out / "figures" / "densities.svg").exists()


@pytest.mark.parametrize("changed", [{"seed": 1}, {"quick": False}])
def test_a_page_does_not_mix_runs_of_different_kinds(changed: dict[str, Any], written: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    shutil.copytree(written, out)
    run_paper(["noises"], out=out, resume=True, **changed)
    assert _statuses(out) == {"noises": "done"}
    assert (out / "trials.jsonl").read_bytes() == (written / "trials.jsonl").read_bytes()


def test_without_resume_all_is_replaced(written: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    shutil.copytree(written, out)
    run_paper(["noises"], out=out)
    assert _statuses(out) == {"noises": "done"}
    assert not (out / "trials.jsonl").exists()


def test_missing_data_is_told_and_fails_nothing(tmp_path: Path) -> None:
    done = _paper("--only", "noises", "--only", "airline", "--out", tmp_path)
    assert done.returncode == 0
    told = done.stderr.splitlines()
    assert len(told) == 2  # a line an experiment
    assert told[1].startswith("not run")
    assert told[1].endswith("parent folder with --data.")
    assert _statuses(tmp_path) == {"noises": "done", "airline": "not run"}
    assert "parent folder with --data" in (tmp_path / "paper.html").read_text(encoding="utf-8")


def test_names_may_have_hyphens_and_come_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(config: Config) -> Any:
        raise MissingDataError("absent")

    monkeypatch.setattr(high_noise, "run", absent)
    results = run_paper(["high-noise", " noises", "noises"], out=tmp_path)
    assert [entry["name"] for entry in results["experiments"]] == ["noises", "high_noise"]


# What fails


def test_a_failing_experiment_leaves_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Notes(Watch):
        def __init__(self) -> None:
            self.begun_ones: list[str] = []
            self.ended_ones: list[str] = []
            self.warnings = ""

        def begun(self, title: str) -> None:
            self.begun_ones.append(title)

        def ended(self, entry: dict[str, Any]) -> None:
            self.ended_ones.append(entry["status"])

        def warn(self, sentence: str) -> None:
            self.warnings += sentence

    monkeypatch.setattr(high_noise, "run", noises.run)
    monkeypatch.setattr(noises, "run", _fail)
    watch = Notes()
    results = run_paper(["noises", "high_noise"], out=tmp_path, watch=watch)
    assert watch.begun_ones == [noises.TITLE, high_noise.TITLE]
    assert watch.ended_ones == ["failed", "done"]
    assert "Traceback" in watch.warnings
    failed, done = results["experiments"]
    assert (failed["status"], failed["reason"]) == ("failed", "ZeroDivisionError: one <by> nought")
    assert failed["section"] is None
    assert done["status"] == "done"
    assert _statuses(tmp_path) == {"noises": "failed", "high_noise": "done"}
    assert "ZeroDivisionError: one &lt;by&gt; nought" in (tmp_path / "paper.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("terminate")
def test_a_failure_makes_the_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "run", _fail)
    done = CliRunner().invoke(app, ["paper", "--only", "noises", "units", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert _statuses(tmp_path) == {"noises": "done", "units": "failed"}
    assert (tmp_path / "paper.html").exists()


@pytest.mark.parametrize("arguments", [["--only", "noise"], ["--only", "noises", "nosuch"], ["--only", "noises,units"]])
def test_a_wrong_name_is_answered_with_the_right_ones(arguments: list[str], tmp_path: Path) -> None:
    done = _paper(*arguments, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"unknown experiment {arguments[-1]!r}" in done.stderr
    assert all(name in done.stderr for name in EXPERIMENTS)
    assert not (tmp_path / "out").exists()


def test_a_data_folder_must_exist(tmp_path: Path) -> None:
    done = _paper("--only", "noises", "--data", tmp_path / "nowhere", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert str(tmp_path / "nowhere") in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["noises"], "need --only"), (["--jobs", "0"], "--jobs"), (["--seed", "-1"], "--seed"), (["--what"], "--what")],
)
def test_wrong_usage_is_told(arguments: list[str], told: str, tmp_path: Path) -> None:
    done = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"}).invoke(
        app, ["paper", *arguments, "--out", str(tmp_path / "out")]
    )
    assert done.exit_code == 2
    assert told in done.stderr
    assert not (tmp_path / "out").exists()


def test_help() -> None:
    overview = _python(_MAIN, "--help")
    assert overview.returncode == 0
    assert "paper" in overview.stdout
    done = _python(_MAIN, "paper", "--help")
    assert done.returncode == 0
    for option in ("--only", "--quick", "--full", "--data", "--out", "--resume", "--seed", "--jobs"):
        assert option in done.stdout


@pytest.mark.parametrize("library", ["typer", "rich"])
def test_a_missing_library_is_named(library: str, tmp_path: Path) -> None:
    hide = f"import sys; sys.modules['{library}'] = None; "
    done = _python(hide + _MAIN, "paper", "--only", "noises", "--out", str(tmp_path))
    assert done.returncode == 4
    assert "pip install 'closefar[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


# Interrupted


@pytest.mark.skipif(os.name == "nt", reason="sends the signals of a terminal")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_resumed(sent: int, tmp_path: Path) -> None:
    command = [*_RUN, "--only", "noises", "sample_size", "--out", str(tmp_path), "--jobs", "2"]
    kept = tmp_path / "trials.jsonl"
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=_ENVIRONMENT, start_new_session=True)
    try:
        while not kept.exists() or kept.read_text(encoding="utf-8").count("\n") < 3:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        # A terminal interrupts the whole group; a manager of jobs ends the process that it started.
        (os.killpg if sent == signal.SIGINT else os.kill)(process.pid, sent)
        _, error = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130
    assert "interrupted." in error
    assert "continue with --resume" in error
    assert _statuses(tmp_path) == {"noises": "done", "sample_size": "unfinished"}
    assert "unfinished" in (tmp_path / "paper.html").read_text(encoding="utf-8")
    before = kept.read_text(encoding="utf-8")
    assert before.endswith("\n")
    if sent != signal.SIGINT:
        return  # going on is the same
    done = _paper(*command[3:], "--resume")
    assert done.returncode == 0, done.stderr
    assert _statuses(tmp_path) == {"noises": "done", "sample_size": "done"}
    after = kept.read_text(encoding="utf-8")
    assert after.startswith(before)
    trials = [json.loads(line)["trial"] for line in after.splitlines()]
    assert len(set(trials)) == len(trials) == 60
