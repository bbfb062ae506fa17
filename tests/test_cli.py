"""Each command does what its Python twin does, in each form that data comes in."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss, roc_auc_score

import closefar as cf
from closefar.cli import main
from closefar.cli.app import _reading, app
from closefar.datasets import make_patients
from command_line import WRITING, invoke, refusal, run
from command_line import facts as facts_of
from paper_estimator import PAPER

_N_FIT = 900
_FEATURES = ["age", "height", "cholesterol", "smoker"]
_FILES = ["--points", "points.csv", "--pairs", "pairs.csv"]
_NEW = ["--model", "model.closefar", "--points", "points.csv", "--pairs", "new.csv"]
_PAPER = ["--alpha", "0", "--flip-rate", "0"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with points, pairs, new pairs and a model of them."""
    folder = tmp_path_factory.mktemp("tables")
    made = make_patients(150, 1200, random_state=3)
    points, pairs = pd.DataFrame(made.points).drop(columns="ward"), pd.DataFrame(made.pairs)
    points.to_csv(folder / "points.csv", index=False)
    pairs[:_N_FIT].to_csv(folder / "pairs.csv", index=False)
    pairs[_N_FIT:].to_csv(folder / "new.csv", index=False)
    run("fit", "--points", folder / "points.csv", "--pairs", folder / "pairs.csv", "--out", folder / "model.closefar")
    return folder


@pytest.fixture(autouse=True)
def _in_folder(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tables)


@pytest.fixture(scope="module")
def points(tables: Path) -> pd.DataFrame:
    table = pd.read_csv(tables / "points.csv", index_col="id", dtype=str).replace({"True": "1", "False": "0"})
    return table.map(float)


def _pairs(points: pd.DataFrame, name: str) -> tuple[np.ndarray, np.ndarray]:
    pairs = pd.read_csv(name)
    sides = [points.loc[pairs[side], _FEATURES].to_numpy(dtype=float) for side in ("patient", "other")]
    return np.stack(sides, axis=1), pairs["label"].to_numpy(dtype=object)


@pytest.fixture(scope="module")
def learner(tables: Path, points: pd.DataFrame) -> cf.LinearMetricLearner:
    pairs, labels = _pairs(points, str(tables / "pairs.csv"))
    return cf.LinearMetricLearner().fit(pairs, labels)


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nsys.argv = ['closefar', '--help']\nfrom closefar.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "label-errors" in done.stdout
    # NumPy comes with the registry of noises, which help names.
    assert not {"scipy", "sklearn", "pandas", "matplotlib", "jinja2"} & set(done.stdout.split())


def test_help_is_printed_once_without_a_command(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.argv", ["closefar"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().out.count("Usage") == 1


def test_every_command_has_help_with_an_example() -> None:
    commands = [command.callback.__name__.replace("_", "-") for command in app.registered_commands]
    assert len(commands) == 14
    for name in commands:
        shown = run(name, "--help").stdout
        assert f"closefar {name} " in shown
        assert ("--force" in shown) == (name in WRITING), name


def test_the_shell_completes_commands_and_options() -> None:
    for words, expected in (("closefar lab", "label-errors"), ("closefar fit --mis", "--missing")):
        environment = {
            **os.environ,
            "_CLOSEFAR_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        code = "import sys; sys.argv = ['closefar']; from closefar.cli import main; main()"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert expected in done.stdout.split()


def test_version() -> None:
    assert run("--version").stdout.strip() == cf.__version__


def test_fit_learns_what_the_learner_learns(learner: cf.LinearMetricLearner) -> None:
    metric = cf.load("model.closefar")
    assert metric.feature_names == tuple(_FEATURES)
    np.testing.assert_allclose(metric.matrix, learner.metric_.matrix, rtol=1e-12, atol=0.0)
    assert metric.threshold == pytest.approx(learner.metric_.threshold, rel=1e-12)


def test_predict_agrees_with_the_learner(learner: cf.LinearMetricLearner, points: pd.DataFrame) -> None:
    pairs, _ = _pairs(points, "new.csv")
    rows = _rows(run("predict", *_NEW).stdout)
    given = pd.read_csv("new.csv")
    assert [row["patient"] for row in rows] == given["patient"].tolist()
    assert [row["other"] for row in rows] == given["other"].tolist()
    for name, expected in (
        ("distance", learner.pair_distance(pairs)),
        ("margin", learner.decision_function(pairs)),
        ("probability_far", learner.predict_proba(pairs)[:, 1]),
    ):
        np.testing.assert_allclose([float(row[name]) for row in rows], expected, rtol=1e-12, atol=1e-12)
    assert [row["predicted"] for row in rows] == learner.predict(pairs).tolist()


@pytest.mark.parametrize("name", ["predicted.csv", "predicted.csv.gz", "predicted.parquet", "predicted.npz"])
def test_predictions_in_each_format_are_the_same_numbers(name: str, tmp_path: Path) -> None:
    out = tmp_path / name
    assert "300 rows" in run("predict", *_NEW, "--out", out).stdout
    read = {".gz": pd.read_csv, ".csv": pd.read_csv, ".parquet": pd.read_parquet, ".npz": np.load}[out.suffix]
    options = {"dtype": str} if read is pd.read_csv else {}
    got = np.asarray(read(out, **options)["probability_far"], dtype=float)
    expected = [float(row["probability_far"]) for row in _rows(run("predict", *_NEW).stdout)]
    np.testing.assert_array_equal(got, expected)


def test_predict_as_json() -> None:
    records = facts_of("predict", *_NEW)["records"]
    assert len(records) == 300
    assert {record["predicted"] for record in records} == {"close", "far"}
    assert 0 < records[0]["probability_far"] < 1


def test_transform_maps_points_so_that_distances_agree(learner: cf.LinearMetricLearner, points: pd.DataFrame) -> None:
    rows = _rows(run("transform", "--model", "model.closefar", "--points", "points.csv").stdout)
    mapped = np.array([[float(row[name]) for name in row if name != "id"] for row in rows])
    assert [row["id"] for row in rows] == points.index.tolist()
    expected = learner.transform(points[_FEATURES].to_numpy(dtype=float))
    np.testing.assert_allclose(mapped, expected, rtol=1e-10, atol=1e-12)


def test_inspect_shows_the_fit() -> None:
    text = run("inspect", "model.closefar").stdout
    assert "Proven gap" in text
    assert "'close' means close, 'far' means far" in text
    assert "age, height, cholesterol, smoker" in text
    facts = facts_of("inspect", "model.closefar")
    assert facts["feature_names"] == _FEATURES
    assert facts["fit"]["certificate"]["converged"] is True
    np.testing.assert_allclose(facts["matrix"], cf.load("model.closefar").matrix)


def test_evaluate_agrees_with_scikit_learn(learner: cf.LinearMetricLearner, points: pd.DataFrame) -> None:
    pairs, labels = _pairs(points, "new.csv")
    figures = facts_of("evaluate", *_NEW)
    assert figures["accuracy"] == pytest.approx(accuracy_score(labels, learner.predict(pairs)))
    assert figures["confusion"] == confusion_matrix(labels, learner.predict(pairs)).tolist()
    assert figures["auc"] == pytest.approx(roc_auc_score(labels == "far", learner.decision_function(pairs)))
    assert figures["loss"] == pytest.approx(log_loss(labels, learner.predict_proba(pairs)))
    assert figures["notes"] == []
    assert "Majority baseline" in run("evaluate", *_NEW).stdout


def test_evaluate_says_when_the_pairs_are_those_of_the_fit() -> None:
    done = run("evaluate", "--model", "model.closefar", *_FILES)
    assert "these are the training pairs of the model" in done.stderr


def test_label_errors_are_those_of_the_function(points: pd.DataFrame, tmp_path: Path) -> None:
    pairs, labels = _pairs(points, "pairs.csv")
    ids = pd.read_csv("pairs.csv")[["patient", "other"]].to_numpy(dtype=str)
    expected = cf.find_label_errors(cf.LinearMetricLearner(), pairs, labels, groups=ids, random_state=0)
    facts = facts_of("label-errors", *_FILES)
    assert any("900 pairs have only 150 different points" in note for note in facts["notes"])
    assert facts["share"] == (None if expected.share is None else pytest.approx(expected.share))
    assert facts["n_contradicting"] == expected.n_contradicting
    assert facts["unseen_share"] == pytest.approx(expected.unseen_share)
    assert (facts["reason"], facts["meaning"]) == (expected.reason, expected.meaning)
    given = pd.read_csv("pairs.csv")
    assert [row["patient"] for row in facts["most_suspicious"]] == given["patient"][expected.order[:10]].tolist()
    assert "P(wrong)" not in run("label-errors", *_FILES, "--top", 3).stdout
    assert "written" in facts_of("label-errors", *_FILES, "--out", tmp_path / "all.csv")
    table = pd.read_csv(tmp_path / "all.csv")
    np.testing.assert_allclose(table["probability_wrong"], expected.probability[expected.order])


def test_sample_size_is_that_of_the_function(points: pd.DataFrame) -> None:
    pilot = cf.LinearMetricLearner(**PAPER).fit(*_pairs(points, "pairs.csv"))
    plan = cf.plan_sample_size(pilot, target_error=0.01)
    facts = facts_of("sample-size", *_FILES, "--target-error", 0.01)
    assert facts["n_pairs"] == plan.n_pairs
    assert facts["uncertain_per_parameter"] == pytest.approx(plan.uncertain_per_parameter)
    assert facts["sentence"] == plan.sentence
    assert run("sample-size", *_FILES, "--target-error", 0.01).stdout.strip() == plan.sentence


def test_truncate_keeps_the_strongest_directions(tmp_path: Path) -> None:
    out = tmp_path / "small.closefar"
    run("truncate", "model.closefar", "--rank", 2, "--out", out)
    assert cf.load(out) == cf.load("model.closefar").truncate(2)
    shown = run("inspect", out).stdout
    assert "rank 2" in shown
    assert f"Truncated from rank {cf.load('model.closefar').rank}" in shown
    assert len(_rows(run("predict", "--model", out, *_NEW[2:]).stdout)) == 300


def test_a_truncated_or_bare_metric_has_a_report_that_says_so(tmp_path: Path, points: pd.DataFrame) -> None:
    small, bare, report = tmp_path / "small.closefar", tmp_path / "bare.closefar", tmp_path / "report.json"
    points.to_csv(tmp_path / "numbers.csv")
    run("truncate", "model.closefar", "--rank", 2, "--out", small)
    cf.load("model.closefar").save(bare)
    for model, files, outcome, word in (
        (small, _NEW[2:], "truncated", "--rank 2"),
        (small, _FILES, "truncated", "before truncation"),
        (bare, ["--points", tmp_path / "numbers.csv", "--pairs", "new.csv"], "unknown", "without its fit"),
    ):
        run("report", "--model", model, *files, "--out", report)
        facts = json.loads(report.read_text(encoding="utf-8"))
        assert facts["certificate"]["outcome"] == outcome
        assert any(word in problem for problem in facts["problems"])
        assert facts["pairs"]["source"] == "given"
        assert all(facts[part]["reason"] for part in ("intervals", "noise_check", "learning_curve"))
        metric = cf.load(model)
        assert len(facts["spectrum"]["rows"]) == metric.rank
        evaluated = facts_of("evaluate", "--model", model, *files)
        assert facts["quality"]["accuracy"] == pytest.approx(evaluated["accuracy"])
    run("report", "--model", small, *_NEW[2:], "--out", tmp_path / "report.html")


@pytest.mark.parametrize(("noise", "remedy"), [("flips", "--flip-rate estimate"), ("logistic", None)])
def test_fit_warns_of_noise_of_another_kind(tmp_path: Path, noise: str, remedy: str | None) -> None:
    data = cf.datasets.make_pairs(2000, 3, noise=noise, wrong_share=0.15, random_state=0)
    names = [f"{side}_{column}" for side in ("left", "right") for column in "abc"]
    table = pd.DataFrame(data.pairs.reshape(2000, 6), columns=names).assign(label=data.labels)
    table.to_csv(tmp_path / "pairs.csv", index=False)
    notes = facts_of("fit", "--pairs", tmp_path / "pairs.csv", *_PAPER, "--out", tmp_path / "m.closefar")["notes"]
    found = [note for note in notes if "labels do not fit" in note]
    assert len(found) == (remedy is not None)
    assert remedy is None or found[0].endswith(f"Try {remedy}.")


def test_export_in_each_format(tmp_path: Path, points: pd.DataFrame) -> None:
    metric = cf.load("model.closefar")
    for name in ("m.onnx", "m.faiss", "m.csv", "m.json", "m.npz"):
        run("export", "model.closefar", "--out", tmp_path / name)
    matrix = pd.read_csv(tmp_path / "m.csv", index_col=0, dtype=str)
    np.testing.assert_array_equal(matrix.to_numpy(dtype=float), metric.matrix)
    np.testing.assert_array_equal(np.load(tmp_path / "m.npz")["components"], metric.components)
    assert json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))["threshold"] == metric.threshold
    faiss = pytest.importorskip("faiss", reason="needs faiss-cpu")
    index = faiss.read_index(str(tmp_path / "m.faiss"))
    rows = points[_FEATURES].to_numpy(dtype=np.float32)
    index.add(rows)
    found = index.search(rows[:1], 2)[0][0]
    expected = np.sort(metric.squared_distance(rows - rows[0]))[:2]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_report_of_new_pairs_and_of_those_of_the_fit(tmp_path: Path) -> None:
    held_out, seen = tmp_path / "held_out.json", tmp_path / "seen.json"
    run("report", *_NEW, "--out", held_out)
    run("report", "--model", "model.closefar", *_FILES, "--out", seen)
    for path, source, n_pairs in ((held_out, "given", 300), (seen, "out-of-fold", _N_FIT)):
        facts = json.loads(path.read_text(encoding="utf-8"))
        pairs, known = facts["pairs"], facts["quality"]["known"]
        assert (pairs["source"], pairs["n_given"]) == (source, n_pairs)
        assert pairs["unseen"] == ("pair" if source == "given" else "point")
        assert (known is None) == (source == "given") == (pairs["n_pairs"] == n_pairs)


def test_fit_with_a_report_in_one_command(tmp_path: Path) -> None:
    out, report = tmp_path / "m.closefar", tmp_path / "r.html"
    done = run("fit", *_FILES, "--out", out, "--report", report)
    assert "Proven gap" in done.stdout
    assert f"Wrote {out} and {report}." in done.stdout
    assert cf.load(out) == cf.load("model.closefar")
    assert "cholesterol" in report.read_text(encoding="utf-8")


def test_quiet_says_nothing(tmp_path: Path) -> None:
    done = run("fit", *_FILES, "--out", tmp_path / "m.closefar", "--quiet")
    assert (done.stdout, done.stderr) == ("", "")


def test_fit_as_json(tmp_path: Path) -> None:
    facts = facts_of("fit", *_FILES, "--out", tmp_path / "m.closefar")
    assert facts["n_pairs"] == _N_FIT
    assert facts["classes"] == ["close", "far"]
    assert facts["certificate"]["gap"] < 1e-6


def test_the_default_is_auto_and_its_choice_is_told(learner: cf.LinearMetricLearner, tmp_path: Path) -> None:
    out = tmp_path / "m.closefar"
    facts = facts_of("fit", *_FILES, "--alpha", "auto", "--prior", "auto", "--flip-rate", "auto", "--out", out)
    assert cf.load(out) == cf.load("model.closefar")
    assert facts["alpha"] == facts["choice"]["alpha"] == pytest.approx(learner.alpha_)
    assert facts["prior"] == facts["choice"]["prior"] == learner.prior_
    assert facts["choice"]["held_out"] == "points"
    assert facts["choice"]["n_held_out"] == learner.choice_.n_held_out
    assert facts["choice"]["table"][0]["alpha"] is None  # the plain distance
    losses = [each.loss for each in learner.choice_.table]
    assert [each["loss"] for each in facts["choice"]["table"]] == pytest.approx(losses)
    assert facts["baseline"]["plain_accuracy"] == pytest.approx(learner.baseline_.plain_accuracy)
    assert facts["baseline"]["sentence"] == learner.baseline_.sentence
    assert "metric" not in facts["baseline"]


def test_the_paper_s_estimator_chooses_nothing(points: pd.DataFrame, tmp_path: Path) -> None:
    out = tmp_path / "m.closefar"
    facts = facts_of("fit", *_FILES, *_PAPER, "--out", out)
    expected = cf.LinearMetricLearner(**PAPER).fit(*_pairs(points, "pairs.csv"))
    np.testing.assert_allclose(cf.load(out).matrix, expected.metric_.matrix, rtol=1e-12)
    assert (facts["alpha"], facts["prior"], facts["choice"], facts["baseline"]) == (0.0, "zero", None, None)
    assert facts_of("evaluate", "--model", out, *_NEW[2:])["plain"] is None
    assert "plain distance" not in run("evaluate", "--model", out, *_NEW[2:]).stdout


@pytest.mark.parametrize("prior", ["euclidean", "standardized"])
def test_a_prior_may_be_given(points: pd.DataFrame, tmp_path: Path, prior: str) -> None:
    out = tmp_path / "m.closefar"
    facts = facts_of("fit", *_FILES, "--alpha", "0.01", "--prior", prior, "--flip-rate", "0", "--out", out)
    assert facts["prior"] == prior
    learner = cf.LinearMetricLearner(alpha=0.01, prior=prior, flip_rate=0.0).fit(*_pairs(points, "pairs.csv"))
    np.testing.assert_allclose(cf.load(out).matrix, learner.metric_.matrix, rtol=1e-9)


@pytest.mark.parametrize("options", [["--rank", "auto"], ["--noise", "auto", "--rank", "2"]])
def test_other_settings_are_chosen_together_with_the_penalty(
    points: pd.DataFrame, tmp_path: Path, options: list[str]
) -> None:
    out = tmp_path / "m.closefar"
    facts = facts_of("fit", *_FILES, *options, "--out", out)
    given = {
        name[2:]: int(value) if value.isdigit() else value for name, value in zip(*[iter(options)] * 2, strict=True)
    }
    learner = cf.LinearMetricLearner(**given).fit(*_pairs(points, "pairs.csv"))
    assert facts["choice"]["rank"] == learner.choice_.rank
    assert facts["noise"] == learner.choice_.noise
    np.testing.assert_allclose(cf.load(out).matrix, learner.metric_.matrix, rtol=1e-9)


def test_a_checkpoint_and_a_time_limit_are_those_of_one_fit(tmp_path: Path) -> None:
    out, kept = tmp_path / "m.closefar", tmp_path / "checkpoint"
    run("fit", *_FILES, "--checkpoint", kept, "--max-time", "600", "--out", out)
    assert cf.load(out) == cf.load("model.closefar")
    run("fit", *_FILES, "--checkpoint", kept, "--out", out)  # proves the gap of a complete fit again
    assert cf.load(out) == cf.load("model.closefar")


def test_evaluate_shows_the_plain_distance(learner: cf.LinearMetricLearner, points: pd.DataFrame) -> None:
    pairs, labels = _pairs(points, "new.csv")
    figures = facts_of("evaluate", *_NEW)
    plain = learner.baseline_.metric
    margin = plain.margin(pairs[:, 0] - pairs[:, 1])
    assert figures["plain"]["distance"] == learner.baseline_.plain
    assert figures["plain"]["accuracy"] == pytest.approx(np.mean((margin >= 0) == (labels == "far")))
    assert figures["plain"]["loss"] == pytest.approx(log_loss(labels, plain.noise.cdf(margin)))
    assert figures["plain"]["gain"] == pytest.approx(figures["plain"]["loss"] - figures["loss"])
    shown = run("evaluate", *_NEW).stdout
    assert f"Accuracy, plain distance    {figures['plain']['accuracy']:.4f}" in shown
    assert "not better" not in shown


@pytest.mark.parametrize("kind", ["pairs", "triplets"])
def test_few_judgements_by_the_plain_distance_give_no_less(tmp_path: Path, kind: str) -> None:
    """Weak judgements of few points in many columns: the result is about the plain distance, never nothing."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((50, 40))
    index = np.array([rng.choice(50, 3 if kind == "triplets" else 2, replace=False) for _ in range(390)])
    squared = [np.sum((X[index[:, 0]] - X[index[:, k]]) ** 2, axis=1) for k in range(1, index.shape[1])]
    margin = squared[0] - (squared[1] if kind == "triplets" else 80.0) + rng.logistic(0.0, 6.0, 390)
    pd.DataFrame(X).add_prefix("x").rename_axis("id").to_csv(tmp_path / "points.csv")
    names, words = (["a", "b", "c"], ("left", "right")) if kind == "triplets" else (["a", "b"], ("close", "far"))
    table = pd.DataFrame(index, columns=names)
    table["answer" if kind == "triplets" else "label"] = np.where(margin > 0, words[1], words[0])
    table[:90].to_csv(tmp_path / "judged.csv", index=False)
    table[90:].to_csv(tmp_path / "new.csv", index=False)
    option = "--comparisons" if kind == "triplets" else "--pairs"
    out, files = tmp_path / "m.closefar", ["--points", tmp_path / "points.csv", option]
    facts = facts_of("fit", *files, tmp_path / "judged.csv", "--out", out)
    assert facts["baseline"]["plain_accuracy"] > facts["baseline"]["majority_accuracy"]
    assert facts["rank"] > 0
    figures = facts_of("evaluate", "--model", out, *files, tmp_path / "new.csv")
    assert figures["accuracy"] > figures["plain"]["accuracy"] - 0.1
    assert figures["plain"]["reading"] in run("evaluate", "--model", out, *files, tmp_path / "new.csv").stdout


@pytest.mark.parametrize(
    ("gain", "is_plain", "told"),
    [
        (0.5, False, ""),
        (0.1, False, "The model is not clearly better than the plain distance on these judgements."),
        (-0.1, False, "The model is not better than the plain distance on these judgements."),
        (0.5, True, "The model is the plain distance with a fitted threshold: no learned metric was clearly better."),
    ],
)
def test_a_model_that_is_not_better_is_told(gain: float, is_plain: bool, told: str) -> None:
    assert _reading(gain, 0.1, is_plain=is_plain) == told


@pytest.fixture
def grouped(tmp_path: Path) -> list[Any]:
    """The same pairs with the session in which each was labelled."""
    table = pd.read_csv("pairs.csv")
    table["session"] = [f"day {number // 30}" for number in range(len(table))]
    table.to_csv(tmp_path / "grouped.csv", index=False)
    return ["--points", "points.csv", "--pairs", tmp_path / "grouped.csv", "--group", "session"]


def test_groups_are_those_of_a_column(points: pd.DataFrame, grouped: list[Any], tmp_path: Path) -> None:
    pairs, labels = _pairs(points, "pairs.csv")
    sessions = np.array([f"day {number // 30}" for number in range(_N_FIT)])
    out, report = tmp_path / "m.closefar", tmp_path / "r.json"
    facts = facts_of("fit", *grouped, "--out", out, "--report", report)
    assert facts["notes"] == []  # the groups were named, and the column is used
    assert facts["choice"]["held_out"] == "groups"
    expected = cf.LinearMetricLearner().fit(pairs, labels, groups=sessions)
    assert cf.load(out).threshold == pytest.approx(expected.metric_.threshold, rel=1e-9)
    shown = json.loads(report.read_text(encoding="utf-8"))
    assert shown["pairs"]["unseen"] == "group"
    assert "that has not seen its group" in shown["pairs"]["words"]
    assert "new pairs of known groups" in shown["sentence"]
    errors = cf.find_label_errors(cf.LinearMetricLearner(), pairs, labels, groups=sessions, random_state=0)
    assert facts_of("label-errors", *grouped)["share"] == pytest.approx(errors.share)


def test_a_model_remembers_the_column_of_groups(grouped: list[Any], tmp_path: Path) -> None:
    out, report = tmp_path / "m.closefar", tmp_path / "r.json"
    run("fit", *grouped, "--out", out)
    run("report", "--model", out, *grouped[:4], "--out", report)
    assert json.loads(report.read_text(encoding="utf-8"))["pairs"]["unseen"] == "group"
    run("report", "--model", out, *_NEW[2:], "--out", report)  # which has no such column
    assert len(_rows(run("predict", "--model", out, *grouped[:4]).stdout)) == _N_FIT


def test_points_that_pairs_share_are_found_without_ids(points: pd.DataFrame, tmp_path: Path) -> None:
    pairs, labels = _pairs(points, "pairs.csv")
    sides = [pd.DataFrame(pairs[:, side], columns=_FEATURES).add_prefix(f"{name}_") for side, name in enumerate("ab")]
    table = pd.concat([*sides, pd.Series(labels, name="label")], axis=1)
    table["site"] = np.arange(_N_FIT) % 10
    table.to_csv(tmp_path / "both.csv", index=False)
    command = ["--pairs", tmp_path / "both.csv", "--out", tmp_path / "m.closefar"]
    facts = facts_of("fit", *command, "--report", tmp_path / "r.html")
    assert facts["choice"]["held_out"] == "points"
    notes = facts["notes"]
    assert sum("different points" in note for note in notes) == 1
    assert any("--group" in note for note in notes)
    assert not any("groups=" in note for note in notes)
    assert facts_of("fit", *command, "--group", "site")["notes"] == []
    report = tmp_path / "r.json"
    run("report", "--model", tmp_path / "m.closefar", "--pairs", tmp_path / "both.csv", "--out", report)
    assert json.loads(report.read_text(encoding="utf-8"))["pairs"]["unseen"] == "group"


def test_single_points_have_groups(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((300, 2)), columns=["a", "b"])
    table["label"] = np.where(table["a"] ** 2 + 0.3 * rng.logistic(size=300) > 1, "far", "close")
    table["site"] = np.arange(300) % 12
    table.to_csv(tmp_path / "single.csv", index=False)
    command = ["--points", tmp_path / "single.csv", "--group", "site", "--out", tmp_path / "m.closefar"]
    facts = facts_of("fit", *command, "--report", tmp_path / "r.json")
    assert facts["feature_names"] == ["a", "b"]
    shown = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert shown["pairs"]["unseen"] == "group"
    assert shown["pairs"]["n_pairs"] == 300


def test_points_that_cannot_be_left_out_are_noted(points: pd.DataFrame, tmp_path: Path) -> None:
    table = pd.read_csv("pairs.csv").drop_duplicates("other")
    table["patient"] = table["patient"].iloc[0]  # one reference for all
    table = table[table["other"] != table["patient"]]
    table.to_csv(tmp_path / "star.csv", index=False)
    command = ["--points", "points.csv", "--pairs", tmp_path / "star.csv"]
    facts = facts_of("label-errors", *command)
    assert any("cross-validation is by pair" in note for note in facts["notes"])
    assert facts["n_labels"] == len(table)


def test_an_unfinished_fit_is_saved_with_its_own_exit_code(tmp_path: Path) -> None:
    out = tmp_path / "m.closefar"
    done = invoke("fit", *_FILES, *_PAPER, "--out", out, "--max-iter", 1)
    assert done.exit_code == 1
    assert "unfinished" in done.stderr
    assert cf.load(out).rank > 0


def test_columns_with_the_names_of_options_keep_them(tmp_path: Path) -> None:
    named = {"age": "alpha", "height": "tol", "cholesterol": "max_iter"}
    pd.read_csv("points.csv").rename(columns=named).to_csv(tmp_path / "points.csv", index=False)
    out = tmp_path / "m.closefar"
    files = ["--points", str(tmp_path / "points.csv"), "--pairs", "pairs.csv"]
    penalty = ["--alpha", "0.001", "--flip-rate", "0"]
    done = invoke("fit", *files, *penalty, "--out", out, "--max-iter", 1)
    for text in (done.stdout, run("inspect", out).stdout):
        assert {f"  {name:<50}" for name in named.values()} <= {line[:52] for line in text.splitlines()}
        assert "Penalty:" in text
        assert "--max-iter 1" in text


def test_sides_side_by_side_give_the_same_metric(points: pd.DataFrame, tmp_path: Path) -> None:
    pairs = pd.read_csv("pairs.csv")
    left = points.loc[pairs["patient"], _FEATURES].add_prefix("first ").reset_index(drop=True)
    right = points.loc[pairs["other"], _FEATURES].add_prefix("second ").reset_index(drop=True)
    table = pd.concat([left, right, pairs["label"]], axis=1)
    table.to_parquet(tmp_path / "both.parquet")
    out = tmp_path / "m.closefar"
    run("fit", "--pairs", tmp_path / "both.parquet", "--sides", "first ,second ", "--out", out)
    np.testing.assert_allclose(cf.load(out).matrix, cf.load("model.closefar").matrix, rtol=1e-12)
    rows = _rows(run("predict", "--model", out, "--pairs", tmp_path / "both.parquet").stdout)
    assert len(rows) == _N_FIT


def test_single_points_with_a_learned_origin(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal([3.0, -1.0], 1.0, (600, 2))
    label = np.where(np.sum((X - [3.0, -1.0]) ** 2, axis=1) + rng.logistic(0.0, 0.2, 600) > 1.4, "sick", "well")
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "state": label})
    frame.to_csv(tmp_path / "single.csv", index=False)
    out = tmp_path / "m.closefar"
    files = ["--points", tmp_path / "single.csv", "--label", "state"]
    run("fit", *files, "--far", "sick", "--origin", "--out", out)
    np.testing.assert_allclose(cf.load(out).origin, [3.0, -1.0], atol=0.3)
    expected = cf.LinearMetricLearner(fit_origin=True, far_label="sick").fit(X, label)
    rows = _rows(run("predict", "--model", out, "--points", tmp_path / "single.csv").stdout)
    far = expected.predict_proba(X)[:, expected.classes_.tolist().index("sick")]
    np.testing.assert_allclose([float(row["probability_far"]) for row in rows], far, 1e-9)
    assert "Origin" in run("inspect", out).stdout
    assert facts_of("evaluate", "--model", out, *files)["accuracy"] > 0.8


def test_categories_are_encoded_as_at_the_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("demo", "--files")
    run("fit", "--points", "points.csv", "--pairs", "pairs.csv")
    new = ["--model", "model.closefar", "--points", "points.csv", "--pairs", "new_pairs.csv"]
    whole = _rows(run("predict", *new).stdout)
    points = pd.read_csv("points.csv", dtype=str)
    # Another order of rows and columns, and fewer categories: the same predictions.
    first = pd.read_csv("new_pairs.csv")[:1]
    kept = points[points["id"].isin([first["patient"][0], first["other"][0]])]
    kept[kept.columns[::-1]].to_csv("few.csv", index=False)
    first.to_csv("first.csv", index=False)
    few = _rows(run("predict", "-m", "model.closefar", "--points", "few.csv", "--pairs", "first.csv").stdout)
    for name in ("distance", "margin", "probability_far"):
        assert float(few[0].pop(name)) == pytest.approx(float(whole[0].pop(name)), rel=1e-9)
    assert few == whole[:1]
    kept.assign(ward="elsewhere").to_csv("few.csv", index=False)
    few = ["-m", "model.closefar", "--points", "few.csv"]
    assert "elsewhere" in refusal("predict", *few, "--pairs", "first.csv")
    run("predict", *few, "--pairs", "first.csv", "--unseen", "average")
    run("transform", *few, "--unseen", "average")


def test_missing_values_as_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.read_csv("points.csv")
    frame.loc[0, "age"] = np.nan
    frame.to_csv(tmp_path / "points.csv", index=False)
    pairs = pd.read_csv("pairs.csv")
    pairs.to_csv(tmp_path / "pairs.csv", index=False)
    monkeypatch.chdir(tmp_path)
    without = int(((pairs["patient"] != "P0001") & (pairs["other"] != "P0001")).sum())
    assert facts_of("fit", *_FILES, "--missing", "drop")["n_pairs"] == without < _N_FIT
    assert facts_of("fit", *_FILES, "--missing", "median")["n_pairs"] == _N_FIT
    assert "--missing" in refusal("fit", *_FILES, "--force")


def test_a_metric_saved_from_python_can_be_used(points: pd.DataFrame, tmp_path: Path) -> None:
    metric = cf.load("model.closefar")
    metric.save(tmp_path / "plain.closefar")
    plain = _rows(run("predict", "--model", tmp_path / "plain.closefar", *_NEW[2:]).stdout)
    assert plain == _rows(run("predict", *_NEW).stdout)


def test_weights_count_as_repeats(tmp_path: Path) -> None:
    pairs = pd.read_csv("pairs.csv")
    pairs["count"] = np.arange(len(pairs)) % 3
    pairs.to_csv(tmp_path / "weighted.csv", index=False)
    pairs.loc[np.repeat(pairs.index, pairs["count"])].to_csv(tmp_path / "repeated.csv", index=False)
    out = ["--out", tmp_path / "m.closefar", "--json"]
    common = ["fit", "--points", "points.csv", "--label", "label", *_PAPER, *out]  # as a choice depends on folds
    weighted = facts_of(*common, "--pairs", tmp_path / "weighted.csv", "--weight", "count")
    repeated = facts_of(*common, "--pairs", tmp_path / "repeated.csv")
    assert weighted["threshold"] == pytest.approx(repeated["threshold"], rel=1e-3)
    assert weighted["certificate"]["loss"] == pytest.approx(repeated["certificate"]["loss"], abs=2e-6)


def test_any_name_of_a_column_can_be_written(tmp_path: Path) -> None:
    pairs = pd.read_csv("new.csv").rename(columns={"patient": "file", "other": "allow_pickle"})
    pairs.to_csv(tmp_path / "new.csv", index=False)
    files = ["--points", "points.csv", "--pairs", tmp_path / "new.csv"]
    run("predict", "--model", "model.closefar", *files, "--out", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as out:
        assert out["file"].tolist() == pairs["file"].tolist()


@pytest.mark.parametrize(("close", "far"), [("0.0", "1.0"), ("-1", "+1"), ("False", "True")])
def test_labels_that_speak_for_themselves(tmp_path: Path, close: str, far: str) -> None:
    pairs = pd.read_csv("pairs.csv")
    pairs["label"] = pairs["label"].map({"close": close, "far": far})
    pairs.to_csv(tmp_path / "pairs.csv", index=False)
    files = ["--points", "points.csv", "--pairs", tmp_path / "pairs.csv"]
    assert facts_of("fit", *files, "--out", tmp_path / "m.closefar")["classes"] == [close, far]
    assert cf.load(tmp_path / "m.closefar") == cf.load("model.closefar")


def test_pairs_with_row_numbers_of_their_own(tmp_path: Path) -> None:
    pairs = pd.read_csv("pairs.csv")
    for names in (["left", "right", "label"], ["first", "second", "label"]):
        table = pairs.set_axis(names, axis=1)
        table.insert(0, "id", [f"P{row % 100 + 1:04d}" for row in range(len(table))])
        table.to_csv(tmp_path / "pairs.csv", index=False)
        run("fit", "--points", "points.csv", "--pairs", tmp_path / "pairs.csv", "--out", tmp_path / "m.closefar")
        assert cf.load(tmp_path / "m.closefar") == cf.load("model.closefar")


def test_weights_of_the_fit_are_used_again(tmp_path: Path) -> None:
    pairs = pd.read_csv("pairs.csv").assign(count=np.arange(_N_FIT) % 3 + 1)
    pairs.to_csv(tmp_path / "pairs.csv", index=False)
    files = ["--points", "points.csv", "--pairs", tmp_path / "pairs.csv"]
    run("fit", *files, "--label", "label", "--weight", "count", "--out", tmp_path / "m.closefar")
    run("report", "--model", tmp_path / "m.closefar", *files, "--out", tmp_path / "r.json")
    pairs_facts = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["pairs"]
    assert (pairs_facts["source"], pairs_facts["weighted"]) == ("out-of-fold", True)


def test_a_report_names_its_files_and_what_it_advises_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_patients(120, 600, random_state=3)
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(made.points).rename(columns={"id": "patient"}).to_csv("the points.csv", index=False)
    pd.DataFrame(made.pairs).to_csv("pairs.csv", index=False)
    files = ["--points", "the points.csv", "--pairs", "pairs.csv", "--id", "patient"]
    run("fit", *files, "--out", "my model.closefar", "--report", "r.json", "--title", "Patients")
    facts = json.loads(Path("r.json").read_text(encoding="utf-8"))
    assert facts["title"] == "Patients"
    about = {item["name"]: item["value"] for item in facts["about"]}
    assert (about["Data"], about["Model"]) == ("the points.csv and pairs.csv", "my model.closefar")
    shell, *steps = facts["next_steps"]
    for line in shell["code"].splitlines():
        program, *command = shlex.split(line)
        assert program == "closefar"
        run(*command)
    assert Path("predicted.csv").exists()
    names: dict[str, Any] = {}
    for step in steps:
        exec(step["code"], names)
    assert "Categories are encoded as in the fit" in steps[0]["code"]
    assert names["points"].shape == (120, len(names["metric"].column_names))
    assert any("=" in name for name in names["metric"].column_names)
    run("report", "--model", "my model.closefar", *files, "--out", "again.json")
    again = json.loads(Path("again.json").read_text(encoding="utf-8"))
    assert again["title"] == "Learned distance metric: the points.csv and pairs.csv"
    assert again["next_steps"] == facts["next_steps"]
    assert "Add --report" in refusal("fit", *files, "--title", "Patients")


def test_tables_from_standard_input(tmp_path: Path) -> None:
    from_file = run("fit", *_FILES, "--out", tmp_path / "a.closefar", "--json")
    command = ["fit", "--points", "points.csv", "--pairs", "-", "--out", tmp_path / "b.closefar", "--json"]
    piped = run(*command, input=Path("pairs.csv").read_bytes())
    assert json.loads(piped.stdout)["directions"] == json.loads(from_file.stdout)["directions"]


def test_the_model_remembers_what_stands_for_missing_values(tmp_path: Path) -> None:
    gaps = pd.read_csv("points.csv", dtype=str)
    gaps.loc[:1, "height"] = ["?", "-999"]
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    files = ["--points", str(tmp_path / "gaps.csv"), "--pairs", "pairs.csv"]
    out = tmp_path / "m.closefar"
    assert "column 'height' (2)" in refusal("fit", *files, "--na-values", "?", "--na-values", "-999", "--out", out)
    fitted = facts_of("fit", *files, "--na-values", "?,-999", "--missing", "drop", "--out", out)
    assert 0 < fitted["n_pairs"] < _N_FIT
    assert facts_of("evaluate", "--model", out, *files)["n_pairs"] == fitted["n_pairs"]
