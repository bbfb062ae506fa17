"""Wrong and hostile input: one readable message, an exit code that is not 0, and no file left behind."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import closefar as cf
from closefar.cli.app import app
from closefar.datasets import judge_patients, make_patients
from closefar.tables.writing import encode_table

_MAIN = "from closefar.cli import main; main()"
_FIT = ["fit", "--points", "points.csv", "--pairs", "pairs.csv", "--report", "report.html"]
_OUTPUTS = {"model.closefar", "report.html", "out.csv"}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with good tables and a good model, made once."""
    folder = tmp_path_factory.mktemp("tables")
    points, pairs, _ = make_patients(60, 300, random_state=1)
    (folder / "points.csv").write_bytes(encode_table(points, Path("points.csv")))
    judged = judge_patients(points, 200, 200, 4, random_state=1)._asdict()
    for name, columns in {"pairs": pairs, **judged}.items():
        (folder / f"{name}.csv").write_bytes(encode_table(columns, Path(f"{name}.csv")))
    files = {"good": ["--pairs", "pairs.csv"], "rated": ["--pairs", "ratings.csv"]}
    files |= {"compared": ["--comparisons", "triplets.csv"], "annotated": ["--pairs", "annotated.csv"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, given in files.items():
            done = CliRunner().invoke(app, ["fit", "--points", "points.csv", *given, "-o", f"{name}.model"])
            assert done.exit_code == 0, done.stderr
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in made.iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _edit(name: str, change: Callable[[str], str]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / name
        path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")

    return damage


def _line(name: str, number: int, change: Callable[[str], str]) -> Callable[[Path], None]:
    """Change one line of a file, counted from 1."""

    def edit(text: str) -> str:
        lines = text.splitlines()
        lines[number - 1] = change(lines[number - 1])
        return "\n".join(lines) + "\n"

    return _edit(name, edit)


def _cell(name: str, line: int, column: int, value: str) -> Callable[[Path], None]:
    def change(row: str) -> str:
        cells = row.split(",")
        cells[column] = value
        return ",".join(cells)

    return _line(name, line, change)


def _write(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def _first(text: str) -> str:
    return text.split("\n", 1)[0] + "\n"


def _utf16(folder: Path) -> None:
    path = folder / "points.csv"
    path.write_bytes(path.read_text(encoding="utf-8").encode("utf-16"))


def _directory(folder: Path) -> None:
    (folder / "points.csv").unlink()
    (folder / "points.csv").mkdir()


def _remove(folder: Path) -> None:
    (folder / "points.csv").unlink()


def _add_column(header: str, value: str) -> Callable[[Path], None]:
    def change(text: str) -> str:
        first, *rows = text.splitlines()
        return "\n".join([f"{first},{header}", *(f"{row},{value}" for row in rows)]) + "\n"

    return _edit("points.csv", change)


def _session(first: str, others: str) -> Callable[[Path], None]:
    """A column of groups, of which the first is another than the rest."""

    def change(text: str) -> str:
        header, row, *rows = text.splitlines()
        return "\n".join([f"{header},session", f"{row},{first}", *(f"{each},{others}" for each in rows)]) + "\n"

    return _edit("pairs.csv", change)


def _nothing(folder: Path) -> None:
    pass


def _other_model(folder: Path) -> None:
    cf.Metric([[1.0], [0.5]], 1.0, feature_names=("weight", "pulse")).save(folder / "good.model")


def _pickled(folder: Path) -> None:
    np.save(folder / "points.npy", np.array([{"a": 1}, None], dtype=object), allow_pickle=True)


_PREDICT = ["predict", "--model", "good.model", "--points", "points.csv", "--pairs", "pairs.csv", "--out", "out.csv"]

# What is wrong, the command, and words that the message must have.
CASES: dict[str, tuple[Callable[[Path], None], list[str], list[str]]] = {
    "empty file": (_write("points.csv", b""), _FIT, ["points.csv", "empty"]),
    "empty pairs": (_write("pairs.csv", b""), _FIT, ["pairs.csv", "empty"]),
    "header only": (_edit("points.csv", _first), _FIT, ["points.csv", "no rows"]),
    "header only, pairs": (_edit("pairs.csv", _first), _FIT, ["pairs.csv", "no rows"]),
    "missing file": (_remove, _FIT, ["points.csv"]),
    "a directory": (_directory, _FIT, ["points.csv"]),
    "unknown id": (_cell("pairs.csv", 3, 0, "P9999"), _FIT, ["P9999", "points.csv"]),
    "missing id": (_cell("pairs.csv", 3, 0, ""), _FIT, ["pairs.csv"]),
    "duplicate id": (_line("points.csv", 3, lambda row: "P0001" + row[5:]), _FIT, ["P0001", "points.csv"]),
    "no id column": (_nothing, [*_FIT, "--id", "patient_id"], ["patient_id"]),
    "three labels": (_cell("pairs.csv", 5, 2, "perhaps"), _FIT, ["two labels", "perhaps"]),
    "one label": (_edit("pairs.csv", lambda text: text.replace(",far", ",close")), _FIT, ["two labels", "close"]),
    "missing label": (_cell("pairs.csv", 5, 2, ""), _FIT, ["label"]),
    "labels of unknown meaning": (
        _edit("pairs.csv", lambda text: text.replace(",far", ",no").replace(",close", ",yes")),
        _FIT,
        ["--far"],
    ),
    "a far label that is none": (_nothing, [*_FIT, "--far", "distant"], ["distant", "close"]),
    "no such group": (_nothing, [*_FIT, "--group", "visit"], ["pairs.csv", "visit", "group"]),
    "groups that are labels": (_nothing, [*_FIT, "--group", "label"], ["'label'", "--group"]),
    "groups that are weights": (_nothing, [*_FIT, "--group", "other", "--weight", "other"], ["other"]),
    "empty groups": (_session("day 1", ""), [*_FIT, "--group", "session"], ["group column 'session'", "row 3"]),
    "one group": (_session("day 1", "day 1"), [*_FIT[:5], "--alpha", "x", "--group", "session"], ["--alpha"]),
    "missing value": (_cell("points.csv", 4, 1, "NaN"), _FIT, ["age", "--missing"]),
    "empty cell": (_cell("points.csv", 4, 3, ""), _FIT, ["cholesterol", "--missing"]),
    "infinite value": (_cell("points.csv", 4, 1, "inf"), _FIT, ["age", "inf"]),
    "text in a number column": (_cell("points.csv", 4, 1, "forty"), _FIT, ["age", "forty"]),
    "decimal commas": (
        _edit("points.csv", lambda text: text.replace(",", ";").replace(".", ",")),
        _FIT,
        ["height", "comma"],
    ),
    "a date column": (_add_column("admitted", "2024-02-29"), _FIT, ["admitted", "--drop"]),
    "UTF-16": (_utf16, _FIT, ["UTF-8"]),
    "Latin-1": (_write("points.csv", "id,größe\nP0001,1\n".encode("latin-1")), _FIT, ["UTF-8"]),
    "binary junk": (_write("points.csv", bytes(range(256)) * 8), _FIT, ["points.csv"]),
    "mixed separators": (_line("points.csv", 4, lambda row: row.replace(",", ";")), _FIT, ["points.csv", "4"]),
    "a row that is too long": (_line("points.csv", 4, lambda row: row + ",1"), _FIT, ["points.csv", "4"]),
    "the same column twice": (_line("points.csv", 1, lambda row: row.replace("height", "age")), _FIT, ["age"]),
    "damaged gzip": (
        _write("points.csv.gz", gzip.compress(b"id,a\n" * 99)[:-20]),
        ["fit", "--points", "points.csv.gz", "--pairs", "pairs.csv"],
        ["points.csv.gz"],
    ),
    "damaged Parquet": (
        _write("points.parquet", b"PAR1 and nothing else"),
        ["fit", "--points", "points.parquet", "--pairs", "pairs.csv"],
        ["points.parquet"],
    ),
    "pickled objects": (_pickled, ["fit", "--points", "points.npy", "--pairs", "pairs.csv"], ["points.npy"]),
    "an unknown kind of file": (
        _write("points.xlsx", b"PK"),
        ["fit", "--points", "points.xlsx", "--pairs", "pairs.csv"],
        [".csv"],
    ),
    "no header, pairs": (
        _edit("pairs.csv", lambda text: text.split("\n", 1)[1]),
        _FIT,
        ["pairs.csv", "name the columns"],
    ),
    "NUL characters late in a file": (
        _edit(
            "points.csv",
            lambda text: text + "".join(f"Q{i},5,1,2,True,west\n" for i in range(9000)) + "R,5\0,1,2,True,west\n",
        ),
        _FIT,
        ["points.csv", "line 9062 has the byte 0x00"],
    ),
    "a model that is a pipe": (lambda folder: os.mkfifo(folder / "pipe"), ["inspect", "pipe"], ["pipe"]),
    "a loop of links": (
        lambda folder: (folder / "loop.csv").symlink_to("loop.csv"),
        ["fit", "--points", "loop.csv", "--pairs", "pairs.csv"],
        ["loop.csv"],
    ),
    "names of columns on two lines": (_nothing, [*_FIT, "--drop", "age\nheight"], ["age"]),
    "no data": (_nothing, ["fit"], ["--points"]),
    "no features": (_nothing, [*_FIT, "--drop", "age,height,cholesterol,smoker,ward"], ["column"]),
    "a column that is not there": (_nothing, [*_FIT, "--columns", "age,cholestrol"], ["cholestrol", "cholesterol"]),
    "a noise that is none": (_nothing, [*_FIT, "--noise", "gauss"], ["gauss", "logistic"]),
    "a rank that is none": (_nothing, [*_FIT, "--rank", "many"], ["many"]),
    "a rank that is too large": (_nothing, [*_FIT, "--rank", "99"], ["99"]),
    "a negative penalty": (_nothing, [*_FIT, "--alpha", "-1"], ["--alpha"]),
    "a prior of full rank": (_nothing, [*_FIT, "--prior", "euclidean", "--rank", "2"], ["Use --prior zero"]),
    "an origin for pairs": (_nothing, [*_FIT, "--origin"], ["single points"]),
    "a report of an unknown kind": (_nothing, [*_FIT[:-1], "report.docx"], [".html"]),
    "a folder that is not there": (_nothing, [*_FIT, "--out", "nowhere/model.closefar"], ["folder"]),
    "output is a folder": (_nothing, [*_FIT, "--out", "."], ["folder"]),
    "output is the input": (_nothing, [*_FIT, "--out", "points.csv"], ["points.csv must have a name of its own"]),
    "the checkpoint is the input": (
        _nothing,
        [*_FIT, "--checkpoint", "points.csv"],
        ["points.csv must have a name of"],
    ),
    "both outputs are one": (_nothing, [*_FIT, "--out", "report.html"], ["report.html"]),
    "a device without room": (_nothing, [*_FIT, "--out", "/dev/full"], ["/dev/full"]),
    "a model of no bytes": (_write("good.model", b""), _PREDICT, ["good.model"]),
    "a model that is text": (_write("good.model", b"hello" * 99), _PREDICT, ["good.model"]),
    "a model that is a folder": (_nothing, ["inspect", "."], ["."]),
    "no model": (_nothing, ["inspect", "none.closefar"], ["none.closefar"]),
    "a model of other columns": (_other_model, _PREDICT, ["weight", "pulse"]),
    "a new category": (_cell("points.csv", 2, 5, "east"), _PREDICT, ["ward", "east"]),
    "points for a model of pairs": (_nothing, ["predict", "-m", "good.model", "--points", "points.csv"], ["--pairs"]),
    "labels of another model": (
        _edit("pairs.csv", lambda text: text.replace(",far", ",no")),
        ["evaluate", *_PREDICT[1:-2]],
        ["far", "no"],
    ),
    "an export of an unknown kind": (_nothing, ["export", "good.model", "-o", "out.pdf"], [".onnx"]),
    "an impossible target": (
        _nothing,
        ["sample-size", "--points", "points.csv", "--pairs", "pairs.csv", "--target-error", "0"],
        ["--target-error"],
    ),
}

_POINTS = ["--points", "points.csv"]
_RATED = ["fit", *_POINTS, "--pairs", "ratings.csv", "--report", "report.html"]
_COMPARED = ["fit", *_POINTS, "--comparisons", "triplets.csv", "--report", "report.html"]
_ANNOTATED = ["fit", *_POINTS, "--pairs", "annotated.csv", "--report", "report.html"]
_TASKS = ["fit", *_POINTS, "--pairs", "tasks.csv", "--judgements", "crowd.csv", "--report", "report.html"]


def _rows(name: str, *rows: str) -> Callable[[Path], None]:
    return _write(name, ("\n".join(rows) + "\n").encode())


def _both(*damages: Callable[[Path], None]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        for each in damages:
            each(folder)

    return damage


def _relabel(change: Callable[[str], str]) -> Callable[[Path], None]:
    """Change the last field of each row of the ratings."""
    return _edit("ratings.csv", lambda text: re.sub(r"(?m),(\d)$", lambda found: "," + change(found[1]), text))


def _utf16_triplets(folder: Path) -> None:
    path = folder / "triplets.csv"
    path.write_bytes(path.read_text(encoding="utf-8").encode("utf-16"))


_FOUR = "a,b,c,e\nP0001,P0002,P0003,P0004\n"
_TASK_FILES = (
    _rows("tasks.csv", "task,left,right", "t1,P0001,P0002", "t2,P0003,P0004"),
    _rows("crowd.csv", "task,worker,label", "t1,ann,close", "t2,ann,far", "t1,bob,far"),
)

# Levels, comparisons and annotators: what is wrong, the command, and words that the message must have.
CASES |= {
    "two ids in a comparison": (
        _rows("triplets.csv", "a,b", "P0001,P0002"),
        _COMPARED,
        ["three or four", "--compared"],
    ),
    "five ids in a comparison": (
        _rows("triplets.csv", "a,b,c,e,f", "P0001,P0002,P0003,P0004,P0005"),
        _COMPARED,
        ["three or four", "got 5", "--compared"],
    ),
    "an unknown id in a comparison": (
        _cell("triplets.csv", 3, 1, "P9999"),
        _COMPARED,
        ["P9999", "row 3", "points.csv"],
    ),
    "a missing id in a comparison": (_cell("triplets.csv", 3, 1, ""), _COMPARED, ["'left'", "row 3"]),
    "an id that is a float": (_cell("triplets.csv", 3, 1, "1.0"), _COMPARED, ["'1.0'", "row 3"]),
    "an id with a line end": (_cell("triplets.csv", 3, 1, '"P00\n02"'), _COMPARED, ["P00\\n02"]),
    "an enormous id": (_cell("triplets.csv", 3, 1, "9" * 5000), _COMPARED, ["999...", "row 3"]),
    "an answer that is none": (_cell("triplets.csv", 3, 3, "maybe"), _COMPARED, ["'maybe'", "-1"]),
    "answers 0 and 1": (
        _edit("triplets.csv", lambda text: text.replace(",left\n", ",0\n").replace(",right\n", ",1\n")),
        _COMPARED,
        ["'0'", "--answer"],
    ),
    "answers of two kinds": (_cell("triplets.csv", 3, 3, "1"), _COMPARED, ["'1'", "'left'"]),
    "a missing answer": (_cell("triplets.csv", 3, 3, ""), _COMPARED, ["answer", "row 3", "--missing drop"]),
    "both sides the same": (
        _line("triplets.csv", 4, lambda row: "P0001,P0002,P0002,left"),
        _COMPARED,
        ["must be different", "row 4", "'P0002'"],
    ),
    "both sides the same, turned round": (
        _write("triplets.csv", (_FOUR + "P0001,P0002,P0002,P0001\n").encode()),
        _COMPARED,
        ["must be different", "row 3"],
    ),
    "points that are the same": (
        _both(
            _edit("points.csv", lambda text: text + "Q1,50,1.7,200,True,west\nQ2,50,1.7,200,True,west\n"),
            _line("triplets.csv", 4, lambda row: "P0001,Q1,Q2,left"),
        ),
        _COMPARED,
        ["must differ"],
    ),
    "too few columns to compare": (
        _nothing,
        [*_COMPARED, "--compared", "patient,left"],
        ["--compared", "three or four"],
    ),
    "a compared column twice": (_nothing, [*_COMPARED, "--compared", "left,right,left"], ["--compared", "different"]),
    "a compared column that is none": (
        _nothing,
        [*_COMPARED, "--compared", "patient,left,rigth"],
        ["'rigth'", "'right'"],
    ),
    "a column of answers that is none": (_nothing, [*_COMPARED, "--answer", "reply"], ["'reply'", "triplets.csv"]),
    "answers that are ids": (
        _nothing,
        [*_COMPARED, "--compared", "patient,left,right", "--answer", "left"],
        ["'left'"],
    ),
    "comparisons without points": (_nothing, ["fit", "--comparisons", "triplets.csv"], ["points"]),
    "comparisons with a label": (_nothing, [*_COMPARED, "--label", "answer"], ["--label", "--answer"]),
    "comparisons with levels": (_nothing, [*_COMPARED, "--levels", "1,2"], ["--levels"]),
    "comparisons with a far label": (_nothing, [*_COMPARED, "--far", "right"], ["--far"]),
    "an answer without comparisons": (_nothing, [*_RATED, "--answer", "rating"], ["--answer", "--comparisons"]),
    "noise of comparisons without pairs": (_nothing, [*_COMPARED, "--comparison-noise", "2"], ["--comparison-noise"]),
    "noise of comparisons that is none": (
        _nothing,
        [*_RATED, "--comparisons", "triplets.csv", "--comparison-noise", "0"],
        ["--comparison-noise", "> 0"],
    ),
    "empty comparisons": (_write("triplets.csv", b""), _COMPARED, ["triplets.csv", "empty"]),
    "header only, comparisons": (_edit("triplets.csv", _first), _COMPARED, ["triplets.csv", "no rows"]),
    "comparisons without a header": (
        _edit("triplets.csv", lambda text: text.split("\n", 1)[1]),
        _COMPARED,
        ["triplets.csv", "ids are not among the points", "row 2"],
    ),
    "comparisons in UTF-16": (_utf16_triplets, _COMPARED, ["UTF-8"]),
    "mixed separators, comparisons": (
        _line("triplets.csv", 4, lambda row: row.replace(",", ";")),
        _COMPARED,
        ["triplets.csv", "4"],
    ),
    "a column of comparisons twice": (
        _line("triplets.csv", 1, lambda row: "patient,left,left,answer"),
        _COMPARED,
        ["'left'"],
    ),
    "weights that comparisons lack": (_nothing, [*_COMPARED, "--weight", "trust"], ["trust", "triplets.csv"]),
    "three standard inputs": (_nothing, ["fit", *_POINTS, "--pairs", "-", "--comparisons", "-"], ["standard input"]),
    "a level that --levels lacks": (_nothing, [*_RATED, "--levels", "1,2,3,4"], ["--levels", "'5'"]),
    "a level that nobody used": (_nothing, [*_RATED, "--levels", "1,2,3,4,5,6"], ["nobody used '6'"]),
    "a level twice": (_nothing, [*_RATED, "--levels", "1,2,2,3"], ["--levels", "each label once"]),
    "one level in --levels": (_nothing, [*_RATED, "--levels", "1"], ["--levels", "two"]),
    "an empty level": (_nothing, [*_RATED, "--levels", "1,,2"], ["--levels"]),
    "one level only": (_relabel(lambda _: "3"), _RATED, ["two labels", "'3'"]),
    "words without an order": (_relabel(lambda level: f"level {level}"), _RATED, ["--levels", "'level 1'"]),
    "numbers and words": (_cell("ratings.csv", 5, 2, "good"), _RATED, ["6: 'good'"]),
    "an infinite level": (_cell("ratings.csv", 5, 2, "inf"), _RATED, ["'inf'"]),
    "a missing level": (_cell("ratings.csv", 5, 2, "NaN"), _RATED, ["'rating'", "row 5"]),
    "too many levels": (
        _edit(
            "ratings.csv",
            lambda text: "\n".join(f"{row}{at}" if at else row for at, row in enumerate(text.splitlines())),
        ),
        _RATED,
        ["at most 21", "--levels"],
    ),
    "levels with a far label": (_nothing, [*_RATED, "--far", "5"], ["--far", "--levels"]),
    "an order and a far label": (_nothing, [*_RATED, "--far", "5", "--levels", "1,2,3,4,5"], ["--far"]),
    "annotators that are not there": (_nothing, [*_ANNOTATED, "--annotator", "rater"], ["'rater'", "annotated.csv"]),
    "annotators that are labels": (_nothing, [*_ANNOTATED, "--annotator", "label"], ["'label'", "--annotator"]),
    "annotators that are ids": (
        _nothing,
        [*_ANNOTATED, "--left", "patient", "--right", "other", "--annotator", "other"],
        ["'other'", "--annotator"],
    ),
    "a missing annotator": (_cell("annotated.csv", 4, 2, ""), _ANNOTATED, ["'worker'", "row 4", "--no-annotators"]),
    "annotators and none": (_nothing, [*_ANNOTATED, "--annotator", "worker", "--no-annotators"], ["contradict"]),
    "a judgement of no task": (
        _both(*_TASK_FILES, _edit("crowd.csv", lambda text: text + "t9,bob,far\n")),
        _TASKS,
        ["'t9'", "row 5", "tasks.csv"],
    ),
    "a task twice": (_both(*_TASK_FILES, _edit("tasks.csv", lambda text: text + "t2,P0001,P0003\n")), _TASKS, ["'t2'"]),
    "a task without a name": (
        _both(*_TASK_FILES, _edit("crowd.csv", lambda text: text + ",bob,far\n")),
        _TASKS,
        ["'task'", "row 5"],
    ),
    "judgements of other things": (
        _both(*_TASK_FILES, _edit("crowd.csv", lambda text: text.replace("task", "thing", 1))),
        _TASKS,
        ["in common", "'thing'"],
    ),
    "an annotator that the model does not know": (
        _nothing,
        ["predict", "-m", "annotated.model", *_ANNOTATED[1:5], "--for-annotator", "w99", "-o", "out.csv"],
        ["w99", "w01"],
    ),
    "an annotator for a model without": (
        _nothing,
        ["predict", "-m", "rated.model", *_RATED[1:5], "--for-annotator", "w01", "-o", "out.csv"],
        ["--for-annotator"],
    ),
    "an annotator of comparisons": (
        _nothing,
        ["predict", "-m", "compared.model", *_COMPARED[1:5], "--for-annotator", "w01", "-o", "out.csv"],
        ["--for-annotator"],
    ),
    "a level of another model": (
        _cell("ratings.csv", 5, 2, "6"),
        ["evaluate", "-m", "rated.model", *_RATED[1:5]],
        ["'6'"],
    ),
    "pairs for a model of comparisons": (_nothing, ["evaluate", "-m", "compared.model", *_RATED[1:5]], ["threshold"]),
    "predictions of two kinds": (
        _nothing,
        ["predict", "-m", "rated.model", *_RATED[1:5], "--comparisons", "triplets.csv", "-o", "out.csv"],
        ["--pairs", "--comparisons"],
    ),
    "flips of two sides of comparisons": (_nothing, [*_COMPARED, "--flip-rate", "two"], ["flip"]),
    "flips of two sides of levels": (_nothing, [*_RATED, "--flip-rate", "two"], ["flip"]),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_input_is_told_in_a_message(folder: Path, case: str) -> None:
    damage, command, words = CASES[case]
    damage(folder)
    before = sorted(folder.iterdir())
    done = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    unreadable = {"missing file", "a directory", "a loop of links"}
    assert done.exit_code in ((3,) if case in unreadable else (2, 3)), (done.output, done.exception)
    assert "Traceback" not in done.output
    message = done.stderr.strip()
    assert message.startswith(f"closefar {command[0]}: ")
    assert message.count("\n") == 0
    assert all(word in message for word in words), message
    assert done.stdout == ""
    assert sorted(folder.iterdir()) == before


def test_json_on_errors_keeps_standard_output_clean(folder: Path) -> None:
    done = CliRunner().invoke(app, ["inspect", "none.closefar", "--json"])
    assert (done.exit_code, done.stdout) == (3, "")


def _run(folder: Path, *command: str, code: str = _MAIN) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_in_the_middle_of_a_fit_leaves_nothing(folder: Path, number: signal.Signals) -> None:
    before = sorted(folder.iterdir())
    # Reports when it is inside the solver, which by itself would end the fit and return what it has.
    code = """
import sys, time
from closefar.solve import newton
step = newton.Newton.step
def slow_step(self, state):
    print("fitting", flush=True)
    time.sleep(30)
    return step(self, state)
newton.Newton.step = slow_step
from closefar.cli import main
main()
"""
    process = _run(folder, *_FIT, code=code)
    assert process.stdout is not None
    assert process.stdout.readline() == "fitting\n"
    process.send_signal(number)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 130
    assert message == "closefar fit: interrupted; nothing was written.\n"
    assert sorted(folder.iterdir()) == before


@pytest.mark.skipif(sys.platform != "linux", reason="a small file system needs Linux and an administrator")
def test_a_full_disk_leaves_nothing(folder: Path) -> None:
    small = folder / "small"
    small.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs an administrator")
    try:
        done = CliRunner().invoke(app, [*_FIT[:-1], "small/report.html", "--out", "small/model.closefar"])
        assert done.exit_code == 3
        assert "small/report.html" in done.stderr
        assert "disk has room" in done.stderr
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_reader_that_stops_reading_is_no_error(folder: Path) -> None:
    process = _run(folder, *_PREDICT[:-2])
    assert process.stdout is not None
    process.stdout.close()
    process.wait(timeout=60)
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()


def test_standard_output_that_is_closed_or_full(folder: Path) -> None:
    command = [sys.executable, "-c", _MAIN, *_PREDICT[:-2]]
    closed = subprocess.run(["bash", "-c", '"$@" -q >&-', "-", *command], cwd=folder, capture_output=True, check=False)
    assert (closed.returncode, closed.stderr) == (0, b"")  # as with > /dev/null
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, cwd=folder, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 3
    assert done.stderr == b"closefar predict: can't write to standard output: No space left on device.\n"


def test_a_terminal_that_knows_no_unicode_stops_nothing(folder: Path) -> None:
    _line("points.csv", 1, lambda row: row.replace("age", "Größe").replace("ward", "病房"))(folder)
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    command = [sys.executable, "-c", _MAIN, *_FIT]
    done = subprocess.run(command, cwd=folder, capture_output=True, env=environment, check=False)
    assert done.returncode == 0
    assert b"different points" in done.stderr
    assert b"Traceback" not in done.stderr
    assert rb"Gr\xf6\xdfe" in done.stdout


def test_tiny_numbers_make_no_noise(folder: Path) -> None:
    _edit("points.csv", lambda text: re.sub(r"(?m)^(P\d+,\d+),[\d.]+", r"\1e-200,2", text))(folder)
    done = CliRunner().invoke(app, _FIT[:-2])
    assert "Warning" not in done.stderr


def test_hostile_names_are_text(folder: Path) -> None:
    _line("points.csv", 1, lambda row: row.replace("age", "<script>alert(1)</script>").replace("ward", "[red]"))(folder)
    done = CliRunner().invoke(app, _FIT)
    assert done.exit_code == 0, done.stderr
    assert "<script>alert(1)" in done.stdout
    assert "<script>alert" not in Path("report.html").read_text(encoding="utf-8")


def test_an_unwritable_folder(folder: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("an administrator may write anywhere")
    locked = folder / "locked"
    locked.mkdir(mode=0o500)
    done = CliRunner().invoke(app, [*_FIT, "--out", "locked/model.closefar"])
    assert done.exit_code == 3
    assert "permission denied" in done.stderr
    assert list(locked.iterdir()) == []


def test_a_missing_package_has_its_own_exit_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    done = CliRunner().invoke(app, ["export", "good.model", "-o", "model.onnx"])
    assert done.exit_code == 4
    assert "pip install 'closefar[onnx]'" in done.stderr
    assert not Path("model.onnx").exists()


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_the_command_line_without_its_extra_says_so(package: str) -> None:
    code = f"import sys; sys.modules['{package}'] = None; from closefar.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert done.stderr.strip() == f"closefar: the command line needs {package}: run pip install 'closefar[cli]'."


def _refused(*command: str) -> str:
    """The message of a command that is refused before it reads anything: the files that it names are not there."""
    done = CliRunner().invoke(app, list(command))
    assert done.exit_code == 2, (done.output, done.exception)
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--noise", "gauss"], "--noise"),
        (["--rank", "0"], "--rank"),
        (["--alpha", "nan"], "--alpha"),
        (["--prior", "identity"], "--prior must be auto, zero, euclidean or standardized"),
        (["--comparison-noise", "2"], "--comparisons"),
        (["--max-time", "0"], "--max-time"),
        (["--flip-rate", "0.5"], "--flip-rate"),
        (["--tol", "nan"], "--tol"),
        (["--max-iter", "0"], "--max-iter"),
        (["--left", "patient"], "left and right"),
        (["--ordinal", "ward"], "--ordinal"),
        (["--report", "report.docx"], ".html"),
    ],
)
def test_a_wrong_option_is_refused_before_a_file_is_read(options: list[str], word: str) -> None:
    assert word in _refused("fit", "--points", "none.csv", "--pairs", "none.csv", *options)


def test_a_wrong_name_is_refused_before_a_file_is_read() -> None:
    assert ".parquet" in _refused("predict", "-m", "none", "--points", "none.csv", "--pairs", "none.csv", "-o", "a.pdf")
    assert ".onnx" in _refused("export", "none", "-o", "a.pdf")
    assert "--rank" in _refused("truncate", "none", "--rank", "0", "-o", "a")


def test_what_a_command_can_not_use_is_not_offered() -> None:
    for command, option in (
        ("label-errors", "--balanced"),
        ("label-errors", "--comparison-noise"),
        ("sample-size", "--alpha"),
        ("sample-size", "--weight"),
    ):
        assert option not in CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
        assert option in CliRunner().invoke(app, ["fit", "--help"], env={"COLUMNS": "200"}).stdout


@pytest.mark.parametrize(
    "command",
    [
        ["fit", "--points", "points.csv", "--pairs", "pairs.csv", "--report", "old.html", "--out", "new.model"],
        ["fit", "--points", "points.csv", "--pairs", "pairs.csv", "--report", "new.html", "--out", "old.model"],
        ["classes", "--points", "points.csv", "--label", "ward", "--out", "new.model", "--neighbours", "old.model"],
        ["classes", "--points", "points.csv", "--label", "ward", "--out", "new.model", "--suspicious", "old.csv"],
        ["predict", "-m", "good.model", "--points", "points.csv", "--pairs", "pairs.csv", "--out", "old.csv"],
        ["transform", "-m", "good.model", "--points", "points.csv", "--out", "old.csv"],
        ["report", "-m", "good.model", "--points", "points.csv", "--pairs", "pairs.csv", "--out", "old.html"],
        ["label-errors", "--points", "points.csv", "--pairs", "pairs.csv", "--out", "old.csv"],
        ["truncate", "good.model", "--rank", "1", "--out", "old.model"],
        ["export", "good.model", "--out", "old.csv"],
    ],
    ids=lambda command: f"{command[0]} {command[-1]}",
)
def test_what_exists_is_replaced_only_if_asked_for(folder: Path, command: list[str]) -> None:
    old = next(word for word in command if word.startswith("old"))
    for content in (b"", b"mine"):
        Path(old).write_bytes(content)
        before = sorted(folder.iterdir())
        done = CliRunner().invoke(app, command)
        assert (done.exit_code, done.stdout) == (2, "")
        rule = f"{old} exists. Choose another name, or replace it with --force."
        assert done.stderr == f"closefar {command[0]}: {rule}\n"
        assert (sorted(folder.iterdir()), Path(old).read_bytes()) == (before, content)
    for _ in range(2):
        done = CliRunner().invoke(app, [*command, "--force"])
        assert done.exit_code == 0, (done.stderr, done.exception)
    assert Path(old).read_bytes() != b"mine"
    assert not list(folder.glob(".closefar*"))


def test_devices_are_no_files(folder: Path) -> None:
    done = CliRunner().invoke(app, [*_FIT[:-1], "/dev/null", "--out", "/dev/null", "-q"])
    assert (done.exit_code, done.output) == (0, "")
    assert Path("/dev/null").is_char_device()


def test_what_medians_fill_in_is_said(folder: Path) -> None:
    _cell("points.csv", 4, 1, "")(folder)
    done = CliRunner().invoke(app, [*_PREDICT, "--missing", "median"])
    assert done.exit_code == 0
    assert "1 missing value: column 'age' (1)" in done.stderr


@pytest.mark.parametrize("scale", ["e150", "e-150"])
def test_columns_of_absurd_scale_are_learned_as_well(folder: Path, scale: str) -> None:
    found = []
    for change in ("", scale):
        _edit("points.csv", lambda text, change=change: re.sub(r"(?m)^(P\d+,\d+)", rf"\g<1>{change}", text))(folder)
        assert CliRunner().invoke(app, [*_FIT[:-2], "--alpha", "0.01", "--force"]).exit_code == 0
        arguments = ["--model", "model.closefar", "--points", "points.csv", "--pairs", "pairs.csv", "--json"]
        found.append(json.loads(CliRunner().invoke(app, ["evaluate", *arguments]).stdout))
    assert found[1]["loss"] == pytest.approx(found[0]["loss"], rel=1e-3)


def test_a_link_to_an_input_is_no_output(folder: Path) -> None:
    os.link("points.csv", "hard.csv")
    done = CliRunner().invoke(app, [*_PREDICT[:-1], "hard.csv", "--force"])
    assert done.exit_code == 2
    assert "hard.csv" in done.stderr


def test_a_table_on_another_stream_is_utf_8(folder: Path) -> None:
    for name in ("points.csv", "pairs.csv"):
        _edit(name, lambda text: text.replace("P0013", "Pö013"))(folder)
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    command = [sys.executable, "-c", _MAIN, *_PREDICT[:-2]]
    done = subprocess.run(command, cwd=folder, capture_output=True, env=environment, check=True)
    assert "Pö013" in done.stdout.decode("utf-8")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of address space is one of Linux")
def test_too_little_memory_is_one_sentence(folder: Path) -> None:
    command = ["bash", "-c", 'ulimit -v 400000; "$@"', "-", sys.executable, "-c", _MAIN, *_FIT]
    # The stacks of threads count, so that fewer of them would move the limit into the start of a package.
    usual = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(command, cwd=folder, env=usual, capture_output=True, check=False)
    assert done.returncode in (3, 4)  # 4 if it is a package that can't be loaded
    assert b"ulimit -v" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_usage_errors_are_one_line() -> None:
    done = subprocess.run([sys.executable, "-c", _MAIN, "fit", "--\x1b[31mx"], capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr == b"closefar fit: no such option: --\\x1b[31mx. See closefar fit --help.\n"


def test_an_interrupt_of_an_import_is_one_sentence(folder: Path) -> None:
    code = (
        "import os, signal, sys\nclass Finder:\n    def find_spec(self, name, *_):\n"
        "        if name == 'typer': os.kill(os.getpid(), signal.SIGINT)\n"
        f"sys.meta_path.insert(0, Finder())\n{_MAIN}"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (130, b"closefar: interrupted; nothing was written.\n")


def test_the_demo_overwrites_no_table(folder: Path) -> None:
    before = (folder / "points.csv").read_bytes()
    done = CliRunner().invoke(app, ["demo", "--files"])
    assert done.exit_code == 2
    assert "points.csv" in done.stderr
    assert (folder / "points.csv").read_bytes() == before
    assert not (folder / "new_pairs.csv").exists()


def test_enormous_numbers_are_not_predicted_with(folder: Path) -> None:
    _edit("points.csv", lambda text: re.sub(r"(?m)^(P\d+),\d+", r"\g<1>,1e300", text, count=30))(folder)
    done = CliRunner().invoke(app, _PREDICT)
    assert done.exit_code == 2
    assert "enormous" in done.stderr
    assert not Path("out.csv").exists()


def test_an_id_column_that_is_called_as_a_result(folder: Path) -> None:
    _line("pairs.csv", 1, lambda row: row.replace("patient", "distance"))(folder)
    done = CliRunner().invoke(app, _PREDICT)
    assert done.exit_code == 2
    assert "'distance'" in done.stderr


def test_an_archive_of_other_things(folder: Path) -> None:
    with zipfile.ZipFile("pairs.npz", "w") as archive:
        archive.writestr("readme.txt", "no array")
    done = CliRunner().invoke(app, ["fit", "--pairs", "pairs.npz"])
    assert done.exit_code == 2
    assert "pairs.npz" in done.stderr


def test_an_error_comes_without_notes(folder: Path) -> None:
    _edit("pairs.csv", lambda text: "\n".join(text.splitlines()[:2]) + "\n")(folder)  # one pair, of one ward perhaps
    _edit("points.csv", lambda text: re.sub(r"(north|south|west)\n", "north\n", text))(folder)
    done = CliRunner().invoke(app, _FIT)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "two labels" in done.stderr
