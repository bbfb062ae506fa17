"""The command `closefar label`: what it refuses, what it prints, and that it goes on with a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from closefar.cli.app import app
from closefar.label import Task, make_leaves
from label_client import PNG, Client, number_table

_PATIENCE = 120


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "points.csv").write_text(number_table(12))


@contextmanager
def _started(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own, which is killed if it does not end by itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "closefar", *command, "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    timer = threading.Timer(_PATIENCE, process.kill)
    timer.start()
    try:
        yield process
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def _client(address: str) -> Client:
    parts = urlsplit(address)
    assert parts.hostname == "127.0.0.1"
    assert parts.port is not None
    return Client(parts.port).enter(parts.fragment)


def _interrupted(process: subprocess.Popen[str]) -> tuple[str, str]:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=_PATIENCE)
    assert process.returncode == 0, (out, err)
    return out, err


def test_label_serves_until_it_is_interrupted_and_goes_on_with_the_file() -> None:
    command = ("label", "--points", "points.csv", "--out", "mine.sqlite", "--question", "Alike?")
    with _started(*command) as process:
        assert _line(process) == "Judge 12 points in the browser; Ctrl-C ends."
        address = _line(process)
        client = _client(address)
        assert client.get("/api/setup").json["task"]["question"] == "Alike?"
        (question, *_) = client.questions(1)
        assert client.answer(question["id"], "far")["recorded"]
        out, err = _interrupted(process)
    assert "1 answer in mine.sqlite. Next:" in out
    assert "closefar fit --points points.csv --judgements mine.sqlite" in out
    assert "closefar export-judgements mine.sqlite pairs.csv" in out
    assert err == ""
    with _started(*command) as process:
        assert _line(process) == "1 answer in mine.sqlite already. Judge 12 points in the browser; Ctrl-C ends."
        assert _line(process) == address  # the same port and secret: open pages go on
        assert client.get("/api/setup").status == 200  # with the same cookie
        assert question["id"] not in [each["id"] for each in client.questions(3)]
        _interrupted(process)


def test_several_annotators_get_an_address_each_and_the_owner_one() -> None:
    with _started("label", "--points", "points.csv", "--annotators", "ana,ben", "--json") as process:
        text = ""
        while not text.endswith("\n}"):
            text += "\n" + _line(process)
        found = json.loads(text)
        assert [each["name"] for each in found["addresses"]] == ["ana", "ben", "owner"]
        assert [each["judges"] for each in found["addresses"]] == [True, True, False]
        assert len({each["address"] for each in found["addresses"]}) == 3
        for each in found["addresses"]:
            assert _client(each["address"]).get("/api/setup").json["name"] == each["name"]
        assert urlsplit(found["addresses"][-1]["address"]).path == "/overview"
        out, _ = _interrupted(process)
        assert out == ""


def test_the_demo_has_leaves_to_judge(tmp_path: Path) -> None:
    with _started("demo", "--label") as process:
        assert _line(process) == "Judge 160 points in the browser; Ctrl-C ends."
        client = _client(_line(process))
        (question, *_) = client.questions(1)
        cells = question["things"][0]["cells"]
        (photo,) = [cell for cell in cells if cell["kind"] == "image"]
        found = client.get(photo["src"])
        assert found.headers["content-type"] == "image/png"
        assert found.body.startswith(PNG[:8])
        _interrupted(process)
    assert (tmp_path / "closefar-label-demo" / "judgements.sqlite").exists()


def test_leaves_are_the_same_every_time() -> None:
    (columns, pictures), (_, again) = make_leaves(5), make_leaves(5)
    assert pictures == again
    assert len(set(pictures.values())) == 5
    assert list(pictures) == columns["photo"].tolist()


REFUSED = {
    "other-host": (["--host", "0.0.0.0"], "--host 0.0.0.0 is reached from other machines"),
    "host-of-the-network": (["--host", "192.168.1.5"], "--tls-certificate and --tls-key, or --behind-proxy"),
    "any-ipv6": (["--host", "::"], "is reached from other machines"),
    "proxy-without-address": (["--behind-proxy"], "--behind-proxy needs --address"),
    "address-without-tls": (["--address", "https://a.example"], "needs --tls-certificate"),
    "address-with-path": (["--behind-proxy", "--address", "https://a.example/x"], "--address must be what"),
    "address-without-tls-scheme": (["--behind-proxy", "--address", "http://a.example"], "--address must be what"),
    "address-with-user": (["--behind-proxy", "--address", "https://a@b.example"], "--address must be what"),
    "half-of-tls": (["--tls-key", "key.pem"], "must be given together"),
    "missing-tls-files": (["--tls-key", "key.pem", "--tls-certificate", "no.pem"], "can't read no.pem or key.pem"),
    "port-as-word": (["--port", "http"], "--port must be a whole number >= 0 and <= 65535; got 'http'"),
    "port-too-large": (["--port", "70000"], "--port must be a whole number >= 0 and <= 65535; got 70000"),
    "levels-of-pairs": (["--levels", "3"], "--levels is about --kind levels"),
    "one-level": (["--kind", "levels", "--levels", "1"], "--levels must be 3 to 9 different levels"),
    "ten-levels": (["--kind", "levels", "--levels", "10"], "--levels must be 3 to 9 different levels"),
    "equal-levels": (["--kind", "levels", "--levels", "a,b,a"], "--levels must be 3 to 9 different levels"),
    "empty-level": (["--kind", "levels", "--levels", "a,,b"], "--levels must be 3 to 9 different levels"),
    "share-above-one": (["--random-share", "1.5"], "--random-share must be a finite number >= 0 and <= 1; got 1.5"),
    "shares-above-one": (["--random-share", "0.6", "--shared-share", "0.6"], "must be 1 at most together; got 1.2"),
    "share-that-is-no-number": (
        ["--random-share", "nan"],
        "--random-share must be a finite number >= 0 and <= 1; got nan",
    ),
    "target": (["--target", "0"], "--target must be a finite number > 0 and < 1; got 0"),
    "name-with-markup": (["--annotators", "ana,<b>"], "names of --annotators must have 1 to 40 letters"),
    "name-of-the-owner": (["--annotators", "ana,Owner"], "'owner' is the name of who sees the overview"),
    "name-twice": (["--annotators", "ana,Ana"], "must differ"),
    "long-question": (["--question", "a" * 301], "--question must be printable text of 300 characters at most"),
    "control-character": (["--question", "a\x1b[31m"], "--question must be printable text"),
    "no-instructions-file": (["--instructions", "@nothing.txt"], "nothing.txt"),
    "unknown-column": (["--show", "photo"], "has no column 'photo' to show"),
    "standard-input": (["--points", "-"], "--points must be a file"),
}


@pytest.mark.parametrize(("options", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_makes_no_sense_is_refused_with_a_sentence(options: list[str], sentence: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["label", "--points", "points.csv", "--no-browser", *options])
    assert done.exit_code in (2, 3), (done.output, done.exception)
    assert sentence in " ".join(done.stderr.split())
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "judgements.sqlite").exists()


def test_a_port_that_is_taken_is_named() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = CliRunner().invoke(app, ["label", "--points", "points.csv", "--no-browser", "--port", port])
    assert done.exit_code == 3
    assert f"can't listen on port {port} of 127.0.0.1" in done.stderr


def test_an_interrupt_before_the_server_waits_for_it_is_an_end_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("closefar.label.server.LabelServer.run", interrupted)
    done = CliRunner().invoke(app, ["label", "--points", "points.csv", "--no-browser"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert "0 answers in judgements.sqlite. Next:" in done.stdout


def test_a_file_of_another_task_is_refused() -> None:
    with _started("label", "--points", "points.csv") as process:
        _line(process)
        _line(process)
        busy = CliRunner().invoke(app, ["label", "--points", "points.csv", "--no-browser"])
        assert busy.exit_code == 2
        assert "is open in another `closefar label`" in busy.stderr
        _interrupted(process)
    other = CliRunner().invoke(app, ["label", "--points", "points.csv", "--no-browser", "--kind", "triplets"])
    assert other.exit_code == 2
    assert "has answers to pairs" in other.stderr


def test_two_demonstrations_at_once_are_refused() -> None:
    done = CliRunner().invoke(app, ["demo", "--files", "--label"])
    assert done.exit_code == 2
    assert "Leave one of them out." in done.stderr


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "jinja2"])
def test_a_missing_package_is_named_with_its_extra(package: str) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None; from closefar.cli import main; "
        "sys.argv = ['closefar', 'label', '--points', 'points.csv', '--no-browser']; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=_PATIENCE)
    assert done.returncode == 4
    assert done.stderr == f"closefar label: closefar label needs {package}: run pip install 'closefar[label]'.\n"


@pytest.mark.parametrize(
    ("options", "answers"),
    [
        (["--kind", "pairs"], ["close", "far"]),
        (["--kind", "triplets"], ["left", "right"]),
        (["--kind", "levels"], ["1", "2", "3", "4", "5"]),
        (["--kind", "levels", "--levels", "3"], ["1", "2", "3"]),
        (["--kind", "levels", "--levels", "same,similar,other"], ["same", "similar", "other"]),
    ],
    ids=["pairs", "triplets", "levels", "number-of-levels", "named-levels"],
)
def test_each_kind_has_its_answers_and_a_question(
    options: list[str], answers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = _task_of(options, monkeypatch)
    assert list(task.answers) == answers
    assert task.question.endswith("?")


def test_instructions_are_read_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "how.txt").write_text("Look\nclosely.\n")
    (tmp_path / "latin.txt").write_bytes("Schäfer".encode("latin-1"))
    assert _task_of(["--instructions", "@how.txt"], monkeypatch).instructions == "Look\nclosely."
    assert _task_of(["--instructions", "Look."], monkeypatch).instructions == "Look."
    refused = CliRunner().invoke(app, ["label", "--points", "points.csv", "--instructions", "@latin.txt"])
    assert "--instructions must be a text, or @ and a file in UTF-8; got '@latin.txt'." in refused.stderr


def _task_of(options: list[str], monkeypatch: pytest.MonkeyPatch) -> Task:
    """What would be asked, without a server."""
    served: list[Task] = []
    monkeypatch.setattr("closefar.cli.label.serve", lambda session, points, out, task, *_, **__: served.append(task))
    done = CliRunner().invoke(app, ["label", "--points", "points.csv", *options])
    assert done.exit_code == 0, (done.output, done.exception)
    return served[0].task()
