"""The same judgements give the same metric in Python, on the command line and on the labelling page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import closefar as cf
from closefar.label import read_label_points
from closefar.label.findings import Given, learn
from closefar.label.storage import Store
from closefar.tables import read_recorded
from command_line import run
from recorded import answer, ask, judge_file, make_task

_KINDS = [("pairs", ("owner",)), ("pairs", ("ana", "ben")), ("levels", ("ana", "ben")), ("triplets", ("owner",))]
_LEVELS = ("same", "similar", "other")


@pytest.fixture(scope="module", params=_KINDS, ids=str)
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Any]:
    """The kind of judgements, their folder, and the learner of the default in Python."""
    kind, annotators = request.param
    folder = tmp_path_factory.mktemp("judged")
    path, points = judge_file(folder, kind, annotators=annotators)
    recorded = read_recorded(path)
    said = recorded.answer != np.array(None)
    sides = [recorded.first, recorded.second, *([] if recorded.third is None else [recorded.third])]
    tuples = cf.Tuples(points.features, np.column_stack(sides)[said])
    answers = recorded.answer[said]
    who = {"annotators": recorded.annotator[said]} if len(annotators) > 1 else {}
    if kind == "pairs":
        return kind, folder, cf.LinearMetricLearner().fit(tuples, answers, **who)
    if kind == "levels":
        return kind, folder, cf.OrdinalMetricLearner(_LEVELS).fit(tuples, answers, **who)
    return kind, folder, cf.ComparisonMetricLearner().fit(tuples, np.where(answers == "left", 1, -1))


def _assert_same(metric: cf.Metric, expected: cf.Metric) -> None:
    size = np.linalg.norm(expected.matrix)
    assert size > 0.0
    assert np.linalg.norm(metric.matrix - expected.matrix) <= 1e-6 * size
    assert metric.thresholds == pytest.approx(expected.thresholds, rel=1e-6)
    assert metric.flip_rate == pytest.approx(expected.flip_rate, rel=1e-6, abs=1e-9)


def _fit(folder: Path, *files: Any) -> cf.Metric:
    run("fit", *files, "--out", folder / "model.closefar")
    return cf.load(folder / "model.closefar")


def test_the_command_line_learns_what_python_learns(judged: tuple[str, Path, Any], tmp_path: Path) -> None:
    _, folder, learner = judged
    files = ["--points", folder / "points.csv", "--judgements", folder / "judgements.sqlite"]
    _assert_same(_fit(tmp_path, *files), learner.metric_)


def test_the_labelling_page_learns_what_python_learns(judged: tuple[str, Path, Any]) -> None:
    kind, folder, learner = judged
    recorded, points = (
        read_recorded(folder / "judgements.sqlite"),
        read_label_points(folder / "points.csv", show=["photo"]),
    )
    task = make_task(kind, tuple(sorted(set(recorded.annotator))))
    learned = learn(Given.of(recorded, points.features, task), task)
    assert learned is not None
    _assert_same(learned.metric, learner.metric_)


def test_the_order_of_points_and_the_form_of_tables_do_not_matter(
    judged: tuple[str, Path, Any], tmp_path: Path
) -> None:
    kind, folder, learner = judged
    run("export-judgements", folder / "judgements.sqlite", tmp_path / "table.csv")
    points = pd.read_csv(folder / "points.csv").drop(columns="photo")
    points[::-1].to_csv(tmp_path / "reversed.csv", index=False)
    order = ["--levels", ",".join(_LEVELS)] if kind == "levels" else []
    table = ["--comparisons" if kind == "triplets" else "--pairs", tmp_path / "table.csv", *order]
    _assert_same(_fit(tmp_path, "--points", tmp_path / "reversed.csv", *table), learner.metric_)
    if kind == "triplets":
        return
    exported, points = pd.read_csv(tmp_path / "table.csv"), points.set_index("id")
    sides = [points.loc[exported[side]].add_prefix(f"{side}_").reset_index(drop=True) for side in ("first", "second")]
    pd.concat([*sides, exported[["label", "annotator"]]], axis=1).to_csv(tmp_path / "both.csv", index=False)
    _assert_same(_fit(tmp_path, "--pairs", tmp_path / "both.csv", "--sides", "first_,second_", *order), learner.metric_)


def test_categories_and_medians_are_those_of_the_page(tmp_path: Path) -> None:
    """Not all points were judged, and among those that were, other categories and medians are the most frequent."""
    rng = np.random.default_rng(0)
    ward = np.where(np.arange(200) < 40, rng.integers(0, 2, 200), rng.integers(1, 3, 200))
    columns = {"id": [f"p{row}" for row in range(200)], "a": rng.normal(size=200), "b": rng.normal(size=200)}
    columns["b"][[3, 150]] = np.nan
    pd.DataFrame({**columns, "ward": np.array(["x", "y", "z"])[ward]}).to_csv(tmp_path / "points.csv", index=False)
    with pytest.warns(UserWarning, match="median"):
        points = read_label_points(tmp_path / "points.csv", missing="median")
    task = make_task("pairs", ("owner",))
    with Store(tmp_path / "judgements.sqlite", task, points) as store:
        things = [tuple(rng.choice(40, 2, replace=False).tolist()) for _ in range(120)]
        for number, question in enumerate(ask(store, things, ("owner",))):
            first, second = things[number]
            gap = (columns["a"][first] - columns["a"][second]) ** 2 + 2.0 * (ward[first] != ward[second])
            answer(store, question, "far" if gap + 0.3 * rng.logistic() > 1.5 else "close", f"k{number}", "owner")
    recorded = read_recorded(tmp_path / "judgements.sqlite")
    learned = learn(Given.of(recorded, points.features, task), task)
    assert learned is not None
    files = ["--points", tmp_path / "points.csv", "--judgements", tmp_path / "judgements.sqlite"]
    _assert_same(_fit(tmp_path, *files), learned.metric)
