"""The maps of a report, and what they are coloured by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import closefar as cf
from closefar.report import Provenance, maps, render, summarize
from closefar.report.maps import coloured
from paper_estimator import PAPER

DATA = cf.datasets.make_pairs(600, 4, wrong_share=0.1, random_state=7)


@pytest.fixture(scope="module")
def learner() -> cf.LinearMetricLearner:
    return cf.LinearMetricLearner(**PAPER).fit(DATA.pairs, DATA.labels)


@pytest.fixture(scope="module")
def facts(learner: cf.LinearMetricLearner) -> dict[str, Any]:
    return summarize(learner)


def test_pairs_lie_where_their_differences_are(learner: cf.LinearMetricLearner, facts: dict[str, Any]) -> None:
    part, strongest = facts["pair_map"], learner.metric_.directions()
    places = np.abs((DATA.pairs[:, 0] - DATA.pairs[:, 1]) @ strongest.columns[:, :2])
    np.testing.assert_allclose(np.column_stack([part["x"], part["y"]]), places, atol=1e-3)
    assert part["group"] == (DATA.labels > 0).astype(int).tolist()
    assert [(group["name"], group["style"]) for group in part["groups"]] == [("-1", "close"), ("1", "far")]
    assert part["radii"] == pytest.approx([np.sqrt(learner.metric_.threshold)])
    assert part["shares"] == strongest.shares[:2].tolist()
    assert f"explain {strongest.shares[:2].sum():.1%} of the mean squared distance" in part["reading"]


def test_suspected_labels_are_ringed(facts: dict[str, Any]) -> None:
    suspects, listed = facts["pair_map"]["suspects"], facts["wrong_labels"]["rows"]
    assert len(suspects) == facts["wrong_labels"]["n_doubtful"] > 0
    assert {row["row"] for row in listed if row["probability_wrong"] > 0.5} <= set(suspects)
    assert "suspected wrong label" in render(facts, "html")


def test_swapped_pairs_and_other_units_give_the_same_map(facts: dict[str, Any]) -> None:
    swapped = np.where(np.arange(600)[:, None, None] % 2 == 0, DATA.pairs, DATA.pairs[:, ::-1])
    other = summarize(cf.LinearMetricLearner(**PAPER).fit(swapped * [1e-3, 1.0, 7.0, 1e4], DATA.labels))
    np.testing.assert_allclose(other["pair_map"]["x"], facts["pair_map"]["x"], atol=0.02)
    np.testing.assert_allclose(other["pair_map"]["y"], facts["pair_map"]["y"], atol=0.02)


def test_points_are_distinct_and_their_map_keeps_distances() -> None:
    rng = np.random.default_rng(0)
    points, ids = rng.standard_normal((50, 2)), rng.integers(50, size=(400, 2))
    z = points[ids[:, 0]] - points[ids[:, 1]]
    labels = np.where(z[:, 0] ** 2 + z[:, 1] ** 2 + 0.3 * rng.logistic(size=400) > 2, 1, -1)
    learner = cf.LinearMetricLearner(**PAPER).fit(points[ids], labels)
    part = summarize(learner)["point_map"]
    assert len(part["x"]) == len(np.unique(ids)) == 50
    assert "All 50 points are shown" in part["reading"]
    by_index = cf.LinearMetricLearner(**PAPER).fit(cf.Tuples(points, ids), labels)
    given = summarize(by_index)["point_map"]
    placed = np.column_stack([given["x"], given["y"]])
    learned = by_index.metric_.distance(points[ids[:, 0]], points[ids[:, 1]])
    np.testing.assert_allclose(np.linalg.norm(placed[ids[:, 0]] - placed[ids[:, 1]], axis=1), learned, atol=1e-3)
    assert sorted(given["x"]) == pytest.approx(sorted(part["x"]), abs=1e-3)


def test_differences_have_no_map_of_points(learner: cf.LinearMetricLearner) -> None:
    other = cf.LinearMetricLearner(**PAPER).fit(DATA.pairs[:, 0] - DATA.pairs[:, 1], DATA.labels)
    facts = summarize(other)
    assert "only their differences" in facts["point_map"]["reason"]
    assert len(facts["pair_map"]["x"]) == 600
    assert render(facts, "html").count("<svg") == 6


def test_contradictions_are_not_called_wrong(learner: cf.LinearMetricLearner) -> None:
    others = cf.datasets.make_pairs(200, 4, wrong_share=0.2, random_state=8)
    facts = summarize(learner, others.pairs, others.labels)
    assert set(facts["pair_map"]["suspects"]) == {row["row"] for row in facts["wrong_labels"]["rows"]}
    assert "strongest contradiction" in (html := render(facts, "html"))
    assert "suspected wrong label" not in html


def test_single_points_lie_around_their_origin() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(5.0, 1.0, size=(300, 2))
    labels = np.where(np.sum((points - 5.0) ** 2, axis=1) > rng.uniform(0.5, 3.0, 300), "out", "in")
    learner = cf.LinearMetricLearner(fit_origin=True, far_label="out", **PAPER).fit(points, labels)
    facts = summarize(learner)
    part = facts["pair_map"]
    squared = np.square(part["x"]) + np.square(part["y"])
    np.testing.assert_allclose(squared, learner.metric_.squared_distance(points), rtol=1e-2, atol=1e-2)
    assert part["signed"]
    assert "Points around the learned origin" in render(facts, "html")


@pytest.mark.parametrize("rank", [0, 1])
def test_maps_of_few_directions(rank: int) -> None:
    options: dict[str, Any] = {"alpha": 10.0} if rank == 0 else {"rank": 1}
    facts = summarize(cf.LinearMetricLearner(**{**PAPER, **options}).fit(DATA.pairs[:200], DATA.labels[:200]))
    for name in ("pair_map", "point_map"):
        if rank == 0:
            assert "zero" in facts[name]["reason"]
        else:
            assert facts[name]["y"] is None
            assert "one direction" in facts[name]["reading"]
    assert render(facts, "html").count("<svg") == (3 if rank == 0 else 7)


def test_many_are_sampled_and_the_map_says_so(
    learner: cf.LinearMetricLearner, facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maps, "_MOST_MARKS", 100)
    few = summarize(learner)
    assert "A random sample of 100 of 600 pairs is shown" in few["pair_map"]["reading"]
    assert "A random sample of 100 of 1,200 points is shown" in few["point_map"]["reading"]
    assert len(few["pair_map"]["x"]) == len(few["point_map"]["x"]) == 100
    assert set(few["pair_map"]["x"]) <= set(facts["pair_map"]["x"])


def _colouring(values: Any, importance: Any, **categories: Any) -> Any:
    names = ["size", "ward=south", "ward=west"]
    return coloured(np.array(values, dtype=float), names, np.array(importance, dtype=float), categories)


def test_points_are_coloured_by_the_column_that_says_most() -> None:
    values = [[0.1 * row, row % 3 == 1, row % 3 == 2] for row in range(30)]
    column, codes, groups = _colouring(values, [0.5, 0.3, 0.2], ward=("north", "south", "west"))
    assert (column, [group["name"] for group in groups]) == ("ward", ["north", "south", "west"])
    assert codes.tolist() == [row % 3 for row in range(30)]
    column, _, groups = _colouring(values, [0.5, 0.3, 0.2])
    assert (column, [group["name"] for group in groups]) == ("ward=south", ["0", "1"])
    column, codes, groups = _colouring(values, [1.0, 0.001, 0.001], ward=("north", "south", "west"))
    assert column == "size"
    assert [group["style"] for group in groups] == [f"shade{place}" for place in range(5)]
    assert np.bincount(codes).tolist() == [6] * 5


def test_values_that_are_no_numbers_are_named_as_such() -> None:
    values = [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.5, 0.0, 1.0]]
    _, _, groups = _colouring(values, [1.0, 0.0, 0.0], size=("false", "true"))
    assert sorted(group["name"] for group in groups) == ["0.5", "false", "true"]


def test_rare_categories_share_a_colour() -> None:
    names = [f"kind={place}" for place in range(1, 9)]
    codes = np.repeat(np.arange(9), np.arange(9, 0, -1))
    values = (codes[:, None] == np.arange(1, 9)).astype(float)
    _, codes, groups = coloured(values, names, np.ones(8), {"kind": [str(place) for place in range(9)]})
    assert [group["name"] for group in groups] == ["0", "1", "2", "3", "4", "5", "3 others"]
    assert codes.max() == 6
    assert np.sum(codes == 6) == 3 + 2 + 1


def test_constant_points_have_one_shade() -> None:
    _, codes, groups = coloured(np.ones((5, 1)), ["x0"], np.ones(1), {})
    assert codes.tolist() == [0] * 5
    assert len(groups) == 1


def test_legends_hold_names_and_drawings_none(facts: dict[str, Any]) -> None:
    hostile = "</svg><script>"
    part = {**facts["point_map"], "coloured_by": hostile, "groups": [{**facts["point_map"]["groups"][0]}] * 5}
    html = render({**facts, "point_map": part}, "html")
    assert hostile not in html
    assert html.count("&lt;/svg&gt;&lt;script&gt;") == 2  # the text and its title


def test_files_are_named_and_advice_is_in_the_words_of_their_tool() -> None:
    data = cf.datasets.make_pairs(1200, 2, noise="flips", wrong_share=0.1, random_state=1)
    learner = cf.LinearMetricLearner(**PAPER).fit(data.pairs, data.labels)
    python = summarize(learner)
    shell = summarize(learner, provenance=Provenance("a.csv", "b.csv", "m.closefar"))
    assert 'Try flip_rate="estimate"' in python["noise_check"]["reading"]
    assert "Try --flip-rate estimate" in shell["noise_check"]["reading"]
    for facts, word, other in ((python, "flip_rate=", "--flip-rate"), (shell, "--flip-rate", "flip_rate=")):
        assert any(word in problem for problem in facts["problems"])
        assert other not in render(facts, "html")
        assert other not in render(facts, "text")
    assert f"* Size: {shell['about'][-1]['value']}\n" in render(shell, "text")
    assert shell["title"] == "Learned distance metric: a.csv and b.csv"
    about = {item["name"]: item["value"] for item in shell["about"]}
    assert (about["Data"], about["Model"]) == ("a.csv and b.csv", "m.closefar")
    assert about["Size"].startswith("1,200 pairs, 2 columns, ")
    assert {item["name"] for item in python["about"]} == {"Date", "Size"}
    assert "closefar label-errors" in render(shell, "html")
    assert "closefar.find_label_errors" in render(python, "html")
    assert summarize(learner, title="Own", provenance=Provenance("a.csv"))["title"] == "Own"
