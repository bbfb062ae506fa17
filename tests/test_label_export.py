"""Recorded judgements as tables: exported, and fitted to straight from the file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

import closefar as cf
from closefar.cli.app import app
from closefar.label import read_label_points
from closefar.label.storage import Store
from closefar.tables import Source, TableError, open_table, read_pairs, read_recorded
from recorded import answer, ask, judge_file, make_task, write_points

_KINDS = ("pairs", "levels", "triplets")
_WORDS = {"pairs": [], "levels": ["--levels", "same,similar,other"], "triplets": []}
_TABLE = {"pairs": "--pairs", "levels": "--pairs", "triplets": "--comparisons"}


def _invoke(*command: Any) -> Result:
    return CliRunner().invoke(app, [str(part) for part in command], env={"COLUMNS": "200"})


def _run(*command: Any) -> Result:
    done = _invoke(*command)
    assert done.exit_code == 0, (done.output, done.exception)
    return done


def _refused(*command: Any) -> str:
    done = _invoke(*command)
    assert done.exit_code == 2, (done.output, done.exception)
    return done.stderr.replace("\n", " ")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each kind, with points.csv and judgements.sqlite."""
    folder = tmp_path_factory.mktemp("judged")
    for kind in _KINDS:
        (folder / kind).mkdir()
        judge_file(folder / kind, kind)
    (folder / "alone").mkdir()
    judge_file(folder / "alone", "pairs", annotators=("owner",), unsure=0)
    return folder


@pytest.fixture
def judged(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The kind that is asked for, with its files in the current folder."""
    kind = str(getattr(request, "param", "pairs"))
    for name in ("points.csv", "judgements.sqlite"):
        shutil.copy(made / kind / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return kind


@pytest.mark.parametrize("judged", _KINDS, indirect=True)
@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz", "table.tsv", "table.parquet"])
def test_exports_have_what_was_recorded(judged: str, name: str) -> None:
    done = _run("export-judgements", "judgements.sqlite", name)
    assert "16 of 200 answers were left out: can't say." in done.stderr
    assert f"Wrote 184 rows to {name}." in done.stdout
    readers: dict[str, Any] = {".parquet": pd.read_parquet, ".tsv": lambda path: pd.read_csv(path, sep="\t")}
    table = readers.get(Path(name).suffix, pd.read_csv)(name)
    things = ["point", "left", "right", "answer"] if judged == "triplets" else ["first", "second", "label"]
    assert list(table) == [*things, "annotator", "time", "chosen", "purpose", "seconds", "original"]
    found = read_recorded("judgements.sqlite")
    sure = found.answer != np.array(None)
    sides = [found.first, found.second, *([] if found.third is None else [found.third])]
    for column, rows in zip(things, sides, strict=False):
        assert table[column].tolist() == found.ids[rows[sure]].tolist()
    assert table[things[-1]].tolist() == table["original"].tolist() == found.answer[sure].tolist()
    assert table["annotator"].tolist() == found.annotator[sure].tolist()
    assert table["time"][0] == "2023-11-14T22:13:21.000Z"
    assert np.allclose(pd.to_datetime(table["time"]).map(lambda time: time.timestamp()), found.at[sure])
    assert set(table["chosen"]) == {"random"}
    assert set(table["purpose"]) == {"first", "shared"}
    assert table["seconds"].tolist() == [2.5] * 184


def test_those_who_can_t_say_are_kept_if_asked_for(judged: str) -> None:
    done = _run("export-judgements", "judgements.sqlite", "table.csv", "--unsure")
    assert done.stderr == ""
    table = pd.read_csv("table.csv")
    assert len(table) == 200
    assert table["label"].isna().sum() == 16


def test_an_export_goes_to_standard_output_or_to_programs(judged: str) -> None:
    text = _run("export-judgements", "judgements.sqlite").stdout
    assert text.splitlines()[0] == "first,second,label,annotator,time,chosen,purpose,seconds,original"
    assert len(text.splitlines()) == 185
    facts = json.loads(_run("export-judgements", "judgements.sqlite", "table.csv", "--json").stdout)
    assert (facts["n_rows"], facts["written"]) == (184, ["table.csv"])
    assert facts["notes"] == ["16 of 200 answers were left out: can't say."]


def test_an_export_replaces_a_file_only_if_asked_for(judged: str) -> None:
    _run("export-judgements", "judgements.sqlite", "table.csv")
    assert "table.csv exists." in _refused("export-judgements", "judgements.sqlite", "table.csv")
    _run("export-judgements", "judgements.sqlite", "table.csv", "--force")
    before = Path("points.csv").read_bytes()
    assert "points.csv exists." in _refused("export-judgements", "judgements.sqlite", "points.csv")
    assert Path("points.csv").read_bytes() == before
    judgements = Path("judgements.sqlite").read_bytes()
    for name in ("judgements.sqlite", "./judgements.sqlite"):
        words = _refused("export-judgements", "judgements.sqlite", name, "--force")
        assert "must have a name of its own" in words
    assert Path("judgements.sqlite").read_bytes() == judgements


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["points.csv", "out.csv"], "not a file of judgements"),
        (["judgements.sqlite", "out.xlsx"], "unsupported file type"),
        (["judgements.sqlite", "out.npz"], "can leave a label empty"),
    ],
)
def test_exports_that_are_refused(judged: str, arguments: list[str], words: str) -> None:
    assert words in _refused("export-judgements", *arguments)
    assert not list(Path().glob("out*"))


def test_a_file_without_judgements_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    points = read_label_points(write_points(tmp_path), show=["photo"])
    with Store("empty.sqlite", make_task(), points) as store:
        assert "Judge something first" in _refused("export-judgements", "empty.sqlite", "out.csv")
        (question,) = ask(store, [(0, 1)])
        answer(store, question, None, "k")
        assert "with --unsure" in _refused("export-judgements", "empty.sqlite", "out.csv")
        words = _refused("fit", "--points", "points.csv", "--judgements", "empty.sqlite")
        assert "has no judgements but 1 answer of can't say yet" in words


def _model(path: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(_run("inspect", path, "--json").stdout)
    return {name: facts[name] for name in ("matrix", "thresholds", "annotators", "classes", "kind", "feature_names")}


@pytest.mark.parametrize("judged", _KINDS, indirect=True)
@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_a_fit_to_the_file_is_the_fit_to_its_export_bit_for_bit(judged: str, name: str) -> None:
    _run("export-judgements", "judgements.sqlite", name)
    done = _run("fit", "--points", "points.csv", "--judgements", "judgements.sqlite", "--out", "one.model")
    assert "16 of 200 answers were left out: can't say." in done.stderr
    assert "not used: 'time'" not in done.stderr
    exported = [_TABLE[judged], name, "--drop", "photo", *_WORDS[judged]]
    _run("fit", "--points", "points.csv", *exported, "--out", "two.model")
    one, two = _model("one.model"), _model("two.model")
    assert one == two
    assert one["feature_names"] == ["a", "b", "c"]
    assert one["kind"] == {"pairs": "close_far", "levels": "levels", "triplets": "comparisons"}[judged]


@pytest.mark.parametrize("judged", ["levels"], indirect=True)
def test_levels_are_in_the_order_of_the_answers(judged: str) -> None:
    done = _run("fit", "--points", "points.csv", "--judgements", "judgements.sqlite")
    assert "3 levels: same (closest), similar, other (farthest)." in done.stderr
    assert "reverse" not in done.stderr
    assert _model("model.closefar")["classes"] == ["same", "similar", "other"]


@pytest.mark.parametrize("judged", ["alone"], indirect=True)
def test_one_annotator_is_not_modelled(judged: str) -> None:
    done = _run("fit", "--points", "points.csv", "--judgements", "judgements.sqlite", "--json")
    assert json.loads(done.stdout)["annotators"] is None
    assert json.loads(done.stdout)["notes"] == []
    _run("export-judgements", "judgements.sqlite", "table.csv")
    exported = _run("fit", "--points", "points.csv", "--pairs", "table.csv", "--drop", "photo", "--json", "--force")
    assert json.loads(exported.stdout)["annotators"] is None


@pytest.mark.parametrize("judged", _KINDS, indirect=True)
def test_other_commands_take_the_file_as_well(judged: str, tmp_path: Path) -> None:
    files = ["--points", "points.csv", "--judgements", "judgements.sqlite"]
    _run("fit", *files)
    facts = json.loads(_run("evaluate", *files, "--model", "model.closefar", "--json").stdout)
    assert facts["n_comparisons" if judged == "triplets" else "n_pairs"] == 184
    errors = json.loads(_run("label-errors", *files, "--json").stdout)
    assert errors["n_labels"] == 184
    _run("report", *files, "--model", "model.closefar", "--out", "report.json")
    assert Path("report.json").exists()


def test_the_file_can_be_given_as_pairs(judged: str) -> None:
    _run("fit", "--points", "points.csv", "--judgements", "judgements.sqlite", "--out", "one.model")
    _run("fit", "--points", "points.csv", "--pairs", "judgements.sqlite", "--out", "two.model")
    shutil.copy("judgements.sqlite", "judged.by-hand")
    _run("fit", "--points", "points.csv", "--judgements", "judged.by-hand", "--out", "three.model")
    assert _model("one.model") == _model("two.model") == _model("three.model")


def test_python_reads_the_file_like_any_table(judged: str) -> None:
    table = read_pairs(Source(points="points.csv", pairs="judgements.sqlite"), labelled=True)
    learner = cf.LinearMetricLearner().fit(table.data, table.labels, annotators=table.annotators)
    _run("fit", "--points", "points.csv", "--judgements", "judgements.sqlite")
    assert np.array_equal(cf.load("model.closefar").matrix, learner.metric_.matrix)
    assert open_table("judgements.sqlite").names[:4] == ["first", "second", "label", "annotator"]


def test_columns_can_still_be_chosen(judged: str) -> None:
    files = ["--points", "points.csv", "--judgements", "judgements.sqlite"]
    _run("fit", *files, "--drop", "c")
    assert _model("model.closefar")["feature_names"] == ["a", "b"]
    _run("fit", *files, "--columns", "a,c", "--force")
    assert _model("model.closefar")["feature_names"] == ["a", "c"]


def test_columns_are_encoded_as_they_were_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [f"p{n},{rng.normal():.3f},{n % 3},{'SML'[n % 3]},{'?' if n == 7 else n % 5},x" for n in range(30)]
    Path("points.csv").write_text("code,a,ward,size,age,note\n" + "\n".join(rows) + "\n")
    points = read_label_points(
        "points.csv",
        id="code",
        show=["note"],
        na_values=["?"],
        categorical=["ward"],
        ordinal={"size": ["S", "M", "L"]},
        missing="drop",
    )
    with Store("judgements.sqlite", make_task(), points) as store:
        things = [tuple(rng.choice(29, 2, replace=False).tolist()) for _ in range(120)]
        for number, question in enumerate(ask(store, things)):
            answer(store, question, ("close", "far")[int(rng.integers(2))], f"k{number}")
    _run("fit", "--points", "points.csv", "--judgements", "judgements.sqlite")
    assert _model("model.closefar")["feature_names"] == list(points.feature_names)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("id,a,b", "id,a,beta"), "column 'b' is missing"),
        (("\np7,", "\nq7,"), "1 point is missing: 'p7'"),
        (("\np7,", "\np7,9"), "column 'a' has changed"),
        (("7.png", "8.png"), "column 'photo' has changed"),
    ],
)
def test_other_points_are_refused_with_the_difference_named(judged: str, change: tuple[str, str], words: str) -> None:
    table = Path("points.csv")
    table.write_text(table.read_text().replace(*change))
    refusal = _refused("fit", "--points", "points.csv", "--judgements", "judgements.sqlite")
    assert "points.csv is not the table that was judged in judgements.sqlite: " in refusal
    assert words in refusal


def test_more_points_in_another_order_and_without_what_was_shown_are_the_same_points(judged: str) -> None:
    _run("fit", "--points", "points.csv", "--judgements", "judgements.sqlite", "--out", "one.model")
    table = pd.read_csv("points.csv").drop(columns="photo")
    more = pd.concat([table[::-1], pd.DataFrame({"id": ["new"], "a": [1.0], "b": [2.0], "c": [3.0]})])
    more.assign(extra=1.0).to_csv("more.csv", index=False)
    _run("fit", "--points", "more.csv", "--judgements", "judgements.sqlite", "--out", "two.model")
    one, two = _model("one.model"), _model("two.model")
    assert two["feature_names"] == ["a", "b", "c"]
    assert np.allclose(one["matrix"], two["matrix"], rtol=1e-3, atol=1e-5)  # the order of points is that of sums


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--judgements", "judgements.sqlite"], "has ids of points, not their columns. Add --points"),
        (["--points", "points.csv", "--judgements", "other.sqlite"], "database of another program"),
        (["--points", "points.csv", "--judgements", "damaged.sqlite"], "damaged.sqlite"),
        (["--points", "points.csv", "--pairs", "-"], "can't be read from a pipe"),
        (["--points", "judgements.sqlite", "--pairs", "table.csv"], "--points must be a table of points"),
        (["--points", "points.csv", "--pairs", "table.csv", "--judgements", "judgements.sqlite"], "Leave --pairs out"),
        (["--points", "points.csv", "--judgements", "none.sqlite"], "none.sqlite does not exist"),
    ],
)
def test_files_that_do_not_fit_are_sentences(judged: str, arguments: list[str], words: str) -> None:
    import sqlite3

    with sqlite3.connect("other.sqlite") as connection:
        connection.execute("CREATE TABLE mine(x)")
    connection.close()
    content = Path("judgements.sqlite").read_bytes()
    Path("damaged.sqlite").write_bytes(content[:5000] + bytes(len(content) - 5000))
    _run("export-judgements", "judgements.sqlite", "table.csv")
    done = CliRunner().invoke(app, ["fit", *arguments], input=content, env={"COLUMNS": "200"})
    assert done.exit_code in (2, 3), (done.output, done.exception)
    assert words in done.stderr.replace("\n", " ")


_HOSTILE = [
    "Robert'); DROP TABLE events;--",
    'a "b", c',
    "two\nlines",
    "ü雪🎉",
    "=1+1",
    "007",
    "7",
    "a;b\tc",
    "x" * 5000,
]


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_hostile_ids_survive_the_way_through_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    points = read_label_points(write_points(tmp_path, len(_HOSTILE), _HOSTILE), show=["photo"])
    rng = np.random.default_rng(0)
    with Store("judgements.sqlite", make_task(), points) as store:
        things = [tuple(rng.choice(len(_HOSTILE), 2, replace=False).tolist()) for _ in range(60)]
        for number, question in enumerate(ask(store, things)):
            answer(store, question, ("close", "far")[int(rng.integers(2))], f"k{number}")
    _run("export-judgements", "judgements.sqlite", name)
    exported = read_pairs(Source(points="points.csv", pairs=name), labelled=True, drop=["photo"])
    straight = read_pairs(Source(points="points.csv", pairs="judgements.sqlite"), labelled=True)
    assert exported.ids.tolist() == straight.ids.tolist()
    assert exported.ids[:, 0].tolist() == [_HOSTILE[first] for first, _ in things]
    assert exported.index.tolist() == straight.index.tolist()
    assert exported.labels is not None
    assert straight.labels is not None
    assert exported.labels.tolist() == straight.labels.tolist()


def test_tables_of_python_name_the_mistake(judged: str) -> None:
    with pytest.raises(TableError, match="Add points, the table"):
        read_pairs(Source(pairs="judgements.sqlite"), labelled=True)


def test_triplets_of_two_equal_things_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Different points may have equal features, and somebody may have been asked which of them is nearer."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    values = rng.integers(0, 3, size=(40, 2))
    rows = [f"p{row},{a},{b}" for row, (a, b) in enumerate(values.tolist())]
    Path("points.csv").write_text("\n".join(["id,a,b", *rows]) + "\n", encoding="utf-8")
    things = [tuple(rng.choice(40, 3, replace=False).tolist()) for _ in range(150)]
    n_equal = 0
    with Store("judgements.sqlite", make_task("triplets"), read_label_points("points.csv")) as store:
        for number, question in enumerate(ask(store, things)):
            reference, left, right = values[list(things[number])]
            n_equal += bool(np.array_equal(left, right) or np.array_equal(left - reference, reference - right))
            margin = np.square(reference - left) @ (1.0, 0.3) - np.square(reference - right) @ (1.0, 0.3)
            answer(store, question, "left" if margin + rng.logistic() < 0 else "right", f"key-{number}")
    assert n_equal > 1
    sentence = f"{n_equal} of 150 comparisons were left out: the two sides are the same in all columns"
    files = ["--points", "points.csv", "--judgements", "judgements.sqlite"]
    done = _run("fit", *files)
    assert sentence in done.stderr
    facts = json.loads(_run("evaluate", *files, "--model", "model.closefar", "--json").stdout)
    assert any(note.startswith(sentence) for note in facts["notes"])


def test_triplets_of_equal_things_alone_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("points.csv").write_text("id,a\np,1\nq,2\nr,2\n", encoding="utf-8")
    with Store("judgements.sqlite", make_task("triplets"), read_label_points("points.csv")) as store:
        for number, question in enumerate(ask(store, [(0, 1, 2), (0, 2, 1)])):
            answer(store, question, "left", f"key-{number}")
    text = _refused("fit", "--points", "points.csv", "--judgements", "judgements.sqlite")
    assert "the two sides of a comparison must differ" in text
