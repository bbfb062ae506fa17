"""The fitting process: it keeps up with the file, survives what goes wrong, and ends with its parent."""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from closefar.label import ANSWERS, Task, TaskKind, findings, read_label_points
from closefar.label.findings import FittingProcess, Work, fit_answers, nothing_found
from closefar.label.storage import NewEvent, Store

PATIENCE = 120.0


@pytest.fixture
def points(tmp_path):
    values = np.random.default_rng(0).standard_normal((40, 2))
    path = tmp_path / "points.csv"
    rows = [f"p{row},{x!r},{y!r}" for row, (x, y) in enumerate(values.tolist())]
    path.write_text("\n".join(["id,age,weight", *rows]) + "\n")
    return read_label_points(path)


@pytest.fixture
def task():
    return Task(TaskKind.pairs, "Alike?", "", ANSWERS[TaskKind.pairs])


@pytest.fixture
def store(tmp_path, task, points):
    store = Store(tmp_path / "judgements.sqlite", task, points)
    yield store
    store.close()


def judge(store, points, n, seed=1):
    """Record answers of the owner to random questions; return the number of events in all."""
    rng = np.random.default_rng(seed)
    pairs = [rng.choice(len(points.ids), 2, replace=False).tolist() for _ in range(n)]

    def ask(connection):
        numbers = []
        for first, second in pairs:
            cursor = connection.execute(
                "INSERT INTO questions(first, second, chosen) VALUES (?, ?, 'random')", (first, second)
            )
            numbers.append(cursor.lastrowid)
            connection.execute("INSERT INTO handed VALUES (?, 'owner', 'first', 0.0, 1e12)", (cursor.lastrowid,))
        return numbers

    numbers = store.run(ask)
    gaps = [abs(points.features[first, 0] - points.features[second, 0]) for first, second in pairs]
    answers = ["far" if gap + 0.2 * rng.standard_normal() > 1.0 else "close" for gap in gaps]
    events = [
        NewEvent(f"{seed}-{number}", "answer", number, answer, None, 1.5)
        for number, answer in zip(numbers, answers, strict=True)
    ]
    assert all(receipt.recorded for receipt in store.record("owner", events, time.time()))
    return store.run(lambda connection: connection.execute("SELECT count(*) FROM events").fetchone()[0])


@pytest.fixture
def work(store, task, points):
    return Work(store.path, points.features, tuple(points.feature_names), task)


@pytest.fixture
def running(work):
    """A process that has been started, and the queue of what it finds."""
    found = queue.Queue()
    process = FittingProcess(work, lambda *each: found.put(each))
    process.start()
    yield process, found
    process.close()


def test_findings_follow_the_answers(store, points, task, running):
    process, found = running
    process.notify(judge(store, points, 12))
    body, questions, n_events = found.get(timeout=PATIENCE)
    assert (n_events, questions) == (12, [])
    assert body["status"] == "Learning starts after about 20 answers: 12 so far."
    process.notify(judge(store, points, 60, seed=2))
    body, questions, n_events = found.get(timeout=PATIENCE)
    json.dumps(body, allow_nan=False)
    assert n_events == body["n_answers"] == 72
    assert body["quality"]["n"] == body["n_random"] == 62
    assert len(questions) >= 20
    assert all(len(question) == 2 and question[0] != question[1] for question in questions)
    stored = store.add_findings(body, n_events, questions, task.method)
    assert stored >= 1


def test_a_process_that_is_killed_is_started_again(store, points, running):
    process, found = running
    process.notify(judge(store, points, 30))
    first = found.get(timeout=PATIENCE)
    os.kill(pid_of_fits(), signal.SIGKILL)
    process.notify(judge(store, points, 5, seed=2))
    second = found.get(timeout=PATIENCE)
    assert (first[2], second[2]) == (30, 35)


def test_a_callback_that_fails_does_not_end_it(store, points, work, caplog):
    found = queue.Queue()

    def fail(*each):
        found.put(each)
        raise RuntimeError("no room")

    process = FittingProcess(work, fail)
    process.start()
    try:
        process.notify(judge(store, points, 10))
        found.get(timeout=PATIENCE)
        process.notify(judge(store, points, 10, seed=2))
        assert found.get(timeout=PATIENCE)[2] == 20
    finally:
        process.close()
    assert "could not be handed on" in caplog.text


def pid_of_fits():
    """The id of the process that fits, once it is there."""
    deadline = time.monotonic() + PATIENCE
    while not (found := multiprocessing.active_children()) and time.monotonic() < deadline:
        time.sleep(0.01)
    (process,) = found
    return process.pid


def test_closing_ends_the_process(running):
    process, _ = running
    pid = pid_of_fits()
    process.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no process groups with signals")
def test_an_interrupt_of_the_terminal_is_not_for_it(running, capfd):
    """Also while it is still loading: the interrupt goes to all processes of a terminal."""
    process, _ = running
    before = pid_of_fits()
    for _ in range(20):
        os.kill(before, signal.SIGINT)
        time.sleep(0.02)
    assert pid_of_fits() == before
    process.close()
    assert capfd.readouterr().err == ""


def test_closing_twice_or_before_the_start_is_harmless(work):
    process = FittingProcess(work, print)
    process.close()
    process.close()
    process.notify(3)


SERVER = textwrap.dedent(
    """
    import multiprocessing, sys, time
    import numpy as np
    from closefar.label import Task, TaskKind
    from closefar.label.findings import FittingProcess, Work
    from pathlib import Path

    if __name__ == "__main__":
        task = Task(TaskKind.pairs, "", "", ("close", "far"))
        process = FittingProcess(Work(Path(sys.argv[1]), np.zeros((3, 1)), ("a",), task), print)
        process.start()
        while not multiprocessing.active_children():
            time.sleep(0.01)
        print(multiprocessing.active_children()[0].pid, flush=True)
        time.sleep(600)
    """
)


def test_it_ends_when_its_parent_is_killed(tmp_path):
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    command = [sys.executable, str(script), str(tmp_path / "none.sqlite")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        pid = int(server.stdout.readline())
        server.kill()
    deadline = time.monotonic() + PATIENCE
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(pid)


def is_running(pid):
    """Whether a process runs; one that has ended may wait for somebody to ask for its status."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_fit_that_fails_is_told_in_the_findings(store, points, task, work, monkeypatch):
    judge(store, points, 30)

    def fail(*args):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(findings, "findings", fail)
    body, questions, n_events = fit_answers(work, None, 0)
    assert body == nothing_found(task, "The last fit failed (RuntimeError: out of luck). Judging goes on.")
    assert (questions, n_events) == ([], 30)


def test_a_file_that_is_not_there_is_no_end(work, tmp_path):
    assert fit_answers(replace(work, path=tmp_path / "none.sqlite"), None, 0) is None
