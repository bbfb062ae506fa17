"""Levels, comparisons, annotators and mixtures of them, from files to models, predictions and reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import closefar as cf
from closefar.datasets import judge_patients, make_patients
from closefar.tables import Source, encode_table, read_pairs, read_table
from command_line import facts as facts_of
from command_line import invoke, refusal, run

_POINTS = ["--points", "points.csv"]
_RATINGS, _TRIPLETS = [*_POINTS, "--pairs", "ratings.csv"], [*_POINTS, "--comparisons", "triplets.csv"]
_ANNOTATED = [*_POINTS, "--pairs", "annotated.csv"]
_MIXED = [*_RATINGS, "--comparisons", "triplets.csv"]
_PAPER = ["--alpha", "0", "--flip-rate", "0"]
_KINDS = {"levels": _RATINGS, "comparisons": _TRIPLETS, "annotators": _ANNOTATED, "mixed": _MIXED}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables of every kind, and a model of each."""
    folder = tmp_path_factory.mktemp("kinds")
    points = make_patients(80, 10, random_state=1).points
    judged = judge_patients(points, 500, 500, 5, random_state=1)
    for name, columns in {"points": points, **judged._asdict()}.items():
        (folder / f"{name}.csv").write_bytes(encode_table(columns, Path(f"{name}.csv")))
        few = {each: column[:100] for each, column in columns.items()}
        (folder / f"{name}_few.csv").write_bytes(encode_table(few, Path("few.csv")))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for kind, files in _KINDS.items():
            run("fit", *files, "--out", f"{kind}.model")
    return folder


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def test_levels_are_recognised_and_said(folder: Path) -> None:
    done = run("fit", *_RATINGS, "--out", "again.model")
    assert "5 levels: 1 (closest), 2, 3, 4, 5 (farthest)" in done.stderr
    assert "--levels 5,4,3,2,1" in done.stderr
    facts = facts_of("inspect", "again.model")
    assert facts["kind"] == "levels"
    assert len(facts["thresholds"]) == 4
    assert facts["thresholds"] == sorted(facts["thresholds"])
    assert "1 (closest), 2, 3, 4, 5 (farthest)" in run("inspect", "again.model").stdout


def test_levels_are_fitted_as_in_python(folder: Path) -> None:
    table = read_pairs(Source(points="points.csv", pairs="ratings.csv"), labelled=True)
    levels = np.array(table.labels, dtype=int)
    learner = cf.OrdinalMetricLearner().fit(table.data, levels, feature_names=table.encoding.feature_names)
    metric = cf.load("levels.model")
    assert metric.thresholds == pytest.approx(learner.thresholds_)
    predicted = (
        read_table("predicted.csv") if run("predict", "-m", "levels.model", *_RATINGS, "-o", "predicted.csv") else None
    )
    assert predicted is not None
    probabilities = np.column_stack([predicted.columns[f"probability_{level}"] for level in range(1, 6)])
    assert probabilities == pytest.approx(learner.predict_proba(table.data))
    assert predicted.columns["predicted"].tolist() == learner.predict(table.data).tolist()


def test_a_reversed_order_is_warned_of(folder: Path) -> None:
    done = run("fit", *_RATINGS, "--levels", "5,4,3,2,1", "--out", "reversed.model")
    assert "opposite order" in done.stderr
    assert "--levels" in done.stderr


def test_comparisons_the_other_way_round_are_warned_of(folder: Path) -> None:
    done = run("fit", *_TRIPLETS, "--compared", "patient,right,left", "--out", "reversed.model")
    assert "fit far better reversed" in done.stderr
    assert "--compared" in done.stderr


def test_words_are_levels_in_the_order_that_is_given(folder: Path) -> None:
    words = dict(zip("12345", ["same", "like", "so-so", "unlike", "other"], strict=True))
    header, *rows = Path("ratings.csv").read_text().splitlines()
    Path("words.csv").write_text("\n".join([header, *(f"{row[:-1]}{words[row[-1]]}" for row in rows)]) + "\n")
    given = ["--levels", ",".join(words.values())]
    run("fit", *_POINTS, "--pairs", "words.csv", *given, "--out", "words.model")
    by_word, by_number = (cf.load(f"{name}.model") for name in ("words", "levels"))
    assert by_word.thresholds == by_number.thresholds
    facts = facts_of("inspect", "words.model")
    assert facts["classes"] == list(words.values())


def test_numbers_may_be_written_in_two_ways(folder: Path) -> None:
    header, *rows = Path("ratings.csv").read_text().splitlines()
    Path("floats.csv").write_text(
        "\n".join([header, *(f"{row}{'.0' if at % 2 else ''}" for at, row in enumerate(rows))])
    )
    files = [*_POINTS, "--pairs", "floats.csv"]
    run("fit", *files, "--out", "floats.model")
    assert cf.load("floats.model") == cf.load("levels.model")
    assert facts_of("evaluate", "-m", "levels.model", *files)["accuracy"] > 0.4


def test_comparisons_are_predicted_as_in_python(folder: Path) -> None:
    table = read_pairs(Source(points="points.csv", comparisons="triplets.csv"), labelled=True)
    learner = cf.ComparisonMetricLearner().fit(table.data, table.labels.astype(float))
    run("predict", "-m", "comparisons.model", *_TRIPLETS, "-o", "compared.csv")
    columns = read_table("compared.csv").columns
    assert list(columns)[:3] == ["patient", "left", "right"]
    assert columns["margin"] == pytest.approx(columns["distance_right"] ** 2 - columns["distance_left"] ** 2)
    assert columns["margin"] == pytest.approx(learner.decision_function(table.data), rel=1e-4, abs=1e-4)
    assert set(columns["predicted"]) == {1, -1}
    figures = facts_of("evaluate", "-m", "comparisons.model", *_TRIPLETS)
    assert figures["accuracy"] == pytest.approx(np.mean(columns["predicted"] == table.labels.astype(float)))
    done = run("evaluate", "-m", "comparisons.model", *_TRIPLETS)
    assert "Agreement" in done.stdout


def test_a_turned_answer_is_a_turned_row(folder: Path) -> None:
    header, *rows = (line.split(",") for line in Path("triplets.csv").read_text().splitlines())
    turned = [row[:3] if row[3] == "left" else [row[0], row[2], row[1]] for row in rows]
    Path("turned.csv").write_text("\n".join(",".join(row) for row in [header[:3], *turned]) + "\n")
    by_id = [[*row[:3], row[1] if row[3] == "left" else row[2]] for row in rows]
    Path("by_id.csv").write_text("\n".join(",".join(row) for row in [header, *by_id]) + "\n")
    quadruplets = [[row[0], row[1], row[0], row[2], row[3]] for row in rows]
    names = ["a", "b", "c", "e", "answer"]
    Path("four.csv").write_text("\n".join(",".join(row) for row in [names, *quadruplets]) + "\n")
    found = {
        name: cf.load(f"{name}.model").matrix
        for name in ("triplets", "turned", "by_id", "four")
        if run("fit", *_POINTS, "--comparisons", f"{name}.csv", *_PAPER, "--out", f"{name}.model")
    }
    for name, matrix in found.items():
        assert matrix == pytest.approx(found["triplets"], rel=1e-4, abs=1e-6), name


def test_distances_of_pairs_are_all_that_comparisons_tell(folder: Path) -> None:
    done = run("predict", "-m", "comparisons.model", *_RATINGS)
    assert done.stdout.splitlines()[0] == "patient,other,distance"
    assert "calibrate_threshold" in done.stderr


def test_annotators_are_found_named_and_pooled(folder: Path) -> None:
    done = run("fit", *_ANNOTATED, "--out", "again.model")
    assert "5 annotators found in column 'worker' of annotated.csv; --no-annotators pools them." in done.stderr
    assert "w05: answers at random." in done.stderr
    strictness = facts_of("inspect", "again.model")["annotators"]
    assert list(strictness) == ["w01", "w02", "w03", "w04", "w05"]
    pooled = run("fit", *_ANNOTATED, "--no-annotators", "--out", "pooled.model")
    assert "annotators" not in pooled.stderr
    assert facts_of("inspect", "pooled.model")["annotators"] == {}
    typical, of_one = (
        read_table(name).columns["margin"]
        for name, more in (("typical.csv", []), ("one.csv", ["--for-annotator", "w02"]))
        if run("predict", "-m", "again.model", *_ANNOTATED, "-o", name, *more)
    )
    assert typical - of_one == pytest.approx(np.full(len(typical), strictness["w02"]))
    assert facts_of("evaluate", "-m", "again.model", *_ANNOTATED)["accuracy"] > 0.6


def test_a_column_of_another_name_may_hold_annotators(folder: Path) -> None:
    text = Path("annotated.csv").read_text()
    Path("rated_by.csv").write_text(text.replace("worker", "rated_by", 1))
    run("fit", *_POINTS, "--pairs", "rated_by.csv", "--annotator", "rated_by", "--out", "rated_by.model")
    assert cf.load("rated_by.model") == cf.load("annotators.model")


def test_judgements_of_tasks_are_joined_with_their_pairs(folder: Path) -> None:
    _, *rows = (line.split(",") for line in Path("annotated.csv").read_text().splitlines())
    tasks = {pair: f"t{number}" for number, pair in enumerate(dict.fromkeys((row[0], row[1]) for row in rows))}
    Path("tasks.csv").write_text("task,left,right\n" + "".join(f"{t},{a},{b}\n" for (a, b), t in tasks.items()))
    Path("crowd.csv").write_text("task,worker,label\n" + "".join(f"{tasks[a, b]},{w},{y}\n" for a, b, w, y in rows))
    run("fit", *_POINTS, "--pairs", "tasks.csv", "--judgements", "crowd.csv", "--out", "tasks.model")
    assert cf.load("tasks.model") == cf.load("annotators.model")


def test_pairs_and_comparisons_are_fitted_together(folder: Path) -> None:
    mixed, alone = (facts_of("inspect", f"{kind}.model") for kind in ("mixed", "levels"))
    assert mixed["classes"] == alone["classes"]
    assert mixed["matrix"] != alone["matrix"]
    figures = facts_of("evaluate", "-m", "mixed.model", *_MIXED)
    assert figures["n_pairs"] == figures["comparisons"]["n_comparisons"] == 500
    done = run("fit", *_MIXED, "--comparison-noise", "estimate", "--out", "noise.model")
    assert 0.2 < facts_of("inspect", "noise.model")["comparison_noise"] < 5
    assert done.exit_code == 0


@pytest.mark.parametrize("kind", _KINDS)
def test_each_command_takes_each_kind(folder: Path, kind: str) -> None:
    model, files = f"{kind}.model", _KINDS[kind]
    few, columns = [name.replace(".csv", "_few.csv") for name in files], ["--columns", "age,cholesterol"]
    few[1] = "points.csv"
    run("fit", *few, *columns, "--report", f"{kind}.html", "-o", "few.model")
    run("report", "-m", "few.model", *few, "-o", f"{kind}.txt")
    assert Path(f"{kind}.html").stat().st_size > 2000
    text = Path(f"{kind}.txt").read_text(encoding="utf-8")
    assert all(name in text for name in few if name.endswith(".csv"))
    run("truncate", model, "--rank", "2", "-o", "small.model")
    for name in ("a.csv", "a.json", "a.npz"):
        run("export", model, "-o", name)
    run("transform", "-m", model, *_POINTS, "-o", "mapped.csv")


@pytest.mark.parametrize("kind", _KINDS)
def test_each_question_is_answered_or_refused_in_a_sentence(folder: Path, kind: str) -> None:
    for command in (["label-errors", *_KINDS[kind]], ["sample-size", *_KINDS[kind], "--target-error", "0.1"]):
        done = invoke(*command)
        assert done.exit_code in (0, 2), (command, done.stderr, done.exception)
        if done.exit_code == 2:
            assert done.stderr.count("\n") == 1


def test_the_report_of_a_model_of_pairs_is_about_pairs(folder: Path) -> None:
    refused = refusal("report", "-m", "levels.model", *_TRIPLETS, "-o", "none.txt")
    assert "got --comparisons alone. Give --pairs" in refused
    assert not Path("none.txt").exists()
