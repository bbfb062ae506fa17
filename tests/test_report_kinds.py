"""Reports and summaries of levels, comparisons, mixed fits, annotators and two flip rates."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import closefar as cf
from closefar.report import render, summarize
from paper_estimator import PAPER

LEVELS = ["<same>", "near", "mid", "far", "other"]
HOSTILE = "<b>Eve & \u202ecie"


def simulated(kind: str, n: int = 500, **options: Any) -> Any:
    return cf.datasets.make_judgements(n, 3, kind=kind, rank=2, wrong_share=0.1, random_state=1, **options)


def fitted(name: str) -> Any:
    if name == "levels":
        data = simulated("levels")
        return cf.OrdinalMetricLearner(LEVELS, **PAPER).fit(data.tuples, np.array(LEVELS)[data.labels])
    if name == "comparisons":
        data = simulated("triplets")
        return cf.ComparisonMetricLearner(**PAPER).fit(data.tuples, data.labels)
    if name == "quadruplets":
        data = simulated("quadruplets", n_points=60)
        return cf.ComparisonMetricLearner(**PAPER).fit(cf.Tuples(data.points, data.answered))
    if name == "mixed":
        pairs, triplets = simulated("pairs"), simulated("triplets", 200)
        compared = {"comparisons": (triplets.tuples, triplets.labels), "comparison_noise": "estimate"}
        return cf.LinearMetricLearner(**PAPER).fit(pairs.tuples, pairs.labels, **compared)
    if name == "annotators":
        data = simulated("pairs", n_annotators=5, strictness_spread=1.0, n_random_annotators=1)
        ids = np.where(data.annotators == data.panel.names[0], HOSTILE, data.annotators)
        return cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(data.tuples, data.labels, annotators=ids)
    data = simulated("pairs", flip_rate=(0.15, 0.03))
    return cf.LinearMetricLearner(flip_rate="two", alpha=0.0).fit(data.tuples, data.labels)


KINDS = ["levels", "comparisons", "quadruplets", "mixed", "annotators", "two"]


@pytest.fixture(scope="module")
def learners() -> dict[str, Any]:
    return {name: fitted(name) for name in KINDS}


@pytest.fixture(scope="module")
def facts(learners: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: summarize(learner) for name, learner in learners.items()}


@pytest.mark.parametrize("name", KINDS)
def test_every_form_of_every_kind_is_written(facts: dict[str, dict[str, Any]], name: str) -> None:
    found = facts[name]
    assert json.loads(render(found, "json")) == found
    assert found["pairs"]["source"] == "out-of-fold"
    page, text = render(found, "html"), render(found, "text")
    assert "<b>Eve" not in page
    assert "<same>" not in page
    for part in ("roc", "noise_check", "intervals", "learning_curve", "pair_map", "point_map", "wrong_labels"):
        reason = found[part]["reason"]
        assert reason is None or reason[0].isupper()
        assert reason is None or reason.endswith(".")
    for words in (page, text):
        assert "None" not in words.replace("None</bdi>", "").replace('title="None"', "")


def test_levels_are_counted_drawn_and_confused(learners: dict[str, Any], facts: dict[str, dict[str, Any]]) -> None:
    learner, found = learners["levels"], facts["levels"]
    assert found["pairs"]["labels"] == LEVELS
    assert found["about"][-1]["value"] == "500 pairs, 3 columns, 5 levels"
    counts = np.array(found["quality"]["confusion"]["counts"])
    codes = learner.fit_.judgements.codes
    np.testing.assert_array_equal(counts.sum(axis=1), np.bincount(codes))
    assert np.trace(counts) / counts.sum() == pytest.approx(found["quality"]["accuracy"])
    assert found["quality"]["likelier"] == LEVELS[int(np.argmax(np.bincount(codes)))]
    assert found["distances"]["thresholds"] == pytest.approx(learner.thresholds_)
    by_level = [sum(row["counts"]) for row in found["distances"]["rows"]]
    np.testing.assert_array_equal(by_level, np.bincount(codes))
    assert len(found["roc"]["curves"]) == 4
    assert {row["level"] for row in found["calibration"]["bins"]} == {1, 2, 3, 4}
    assert len(found["intervals"]["thresholds"]) == 4
    page = render(found, "html")
    drawn = page[page.index('aria-label="Histograms of squared distances') :]
    assert drawn[: drawn.index("</svg>")].count('class="threshold"') == 4
    assert len(found["pair_map"]["radii"]) == sum(learner.thresholds_ > 0)
    assert all(row["predicted"] in LEVELS for row in found["wrong_labels"]["rows"])


def test_held_out_levels_are_scored_by_fits_that_have_not_seen_them(learners: dict[str, Any]) -> None:
    """The loss on other pairs is that of the probabilities of `predict_proba`."""
    learner, data = learners["levels"], simulated("levels", 700)
    new = cf.Tuples(data.points, data.index[500:])
    levels = np.array(LEVELS)[data.labels[500:]]
    found = summarize(learner, new, levels)
    probabilities = learner.predict_proba(new)[np.arange(200), data.labels[500:]]
    assert found["quality"]["loss"] == pytest.approx(float(-np.log(probabilities).mean()), rel=1e-9)
    assert found["quality"]["accuracy"] == pytest.approx(learner.score(new, levels))
    assert found["pairs"]["source"] == "given"


@pytest.mark.parametrize("name", ["comparisons", "quadruplets"])
def test_comparisons_have_no_threshold_and_a_baseline_of_guesses(
    learners: dict[str, Any], facts: dict[str, dict[str, Any]], name: str
) -> None:
    found = facts[name]
    assert found["pairs"]["noun"] == "comparison"
    assert found["quality"]["baseline"] == 0.5
    assert found["quality"]["null_loss"] == pytest.approx(math.log(2.0))
    assert "guessing" in found["sentence"]
    assert "turned round" in found["roc"]["reason"]
    assert "turned round" in found["quality"]["confusion"]["reason"]
    assert found["intervals"]["thresholds"] == []
    assert found["intervals"]["entries_of"] == "M / tr M"
    assert [row["predicted"] >= 0.5 for row in found["calibration"]["bins"]] == [True] * len(
        found["calibration"]["bins"]
    )
    assert not any("hreshold" in item["name"] for item in found["key_figures"])
    text = render(found, "text")
    code = text[: text.index("## Summary of the fit")]
    assert "τ" not in code
    assert "labelled far" not in code
    wrong, right = (np.array(row["counts"]) for row in found["distances"]["rows"])
    assert wrong.sum() + right.sum() == found["pairs"]["n_pairs"]
    assert right.sum() / found["pairs"]["n_pairs"] == pytest.approx(found["quality"]["accuracy"], abs=1e-12)
    edges = np.array(found["distances"]["edges"])
    assert not wrong[edges[:-1] >= 1e-9].any()
    assert not right[edges[1:] <= -1e-9].any()


def test_a_mixed_fit_counts_both_and_gives_the_noise_of_comparisons(facts: dict[str, dict[str, Any]]) -> None:
    found = facts["mixed"]
    assert found["about"][-1]["value"].startswith("500 pairs, 200 comparisons, 3 columns")
    part = found["comparisons"]
    low, high = part["noise_interval"]
    assert low < part["noise"] < high
    assert f"{part['noise']:.3g} times that of the pairs" in part["reading"]
    assert "Comparisons of the same fit" in render(found, "html")
    assert "Training comparisons: 200" in render(found, "text")


def test_annotators_are_drawn_with_intervals_and_verdicts(
    learners: dict[str, Any], facts: dict[str, dict[str, Any]]
) -> None:
    table, part = learners["annotators"].annotators_, facts["annotators"]["annotators"]
    assert {row["annotator"] for row in part["rows"]} == {str(name) for name in table.names}
    random = [str(name) for name in table.named("answers at random")]
    assert random
    assert [row["annotator"] for row in part["rows"]][: part["n_doubtful"]] == [
        row["annotator"] for row in part["rows"] if row["is_doubtful"]
    ]
    assert {row["annotator"] for row in part["rows"] if row["verdict"] == "answers at random"} == set(random)
    for row in part["rows"]:
        place = [str(name) for name in table.names].index(row["annotator"])
        assert row["low"] < row["strictness"] == table.strictness[place] < row["high"]
        assert -part["reach"] <= row["low"] <= row["high"] <= part["reach"]
    page = render(facts["annotators"], "html")
    assert page.count('<span class="place"') == 5
    assert "answers at random" in page
    assert 'href="#annotators"' in page
    assert "## Annotators" in render(facts["annotators"], "text")


def test_two_flip_rates_are_named_apart(learners: dict[str, Any], facts: dict[str, dict[str, Any]]) -> None:
    called_far, called_close = learners["two"].flip_rate_
    summary = learners["two"].summary()
    assert f"{called_far:.3f}/{called_close:.3f} flips" in summary
    assert "close pairs are called far" in summary.replace("\n", " ")
    assert facts["two"]["fit"]["flip_rates"] == [called_far, called_close]
    part = facts["two"]["intervals"]
    assert part["reason"] is not None or len(part["flip_rates"]) == 2


@pytest.mark.parametrize(
    ("name", "title", "cells"),
    [
        ("levels", "Ordinal metric learner", ["Expected error rate:", "Levels (K):", "Thresholds:", "near from "]),
        ("comparisons", "Comparison metric learner", ["Comparisons (N):", "Threshold:", "none", "Wrong answers:"]),
        ("mixed", "Linear metric learner", ["of the 200 comparisons", "95% interval"]),
        ("annotators", "Linear metric learner", ["Annotators: 5", "answers at random"]),
    ],
)
def test_the_summary_is_of_the_kind(learners: dict[str, Any], name: str, title: str, cells: list[str]) -> None:
    summary = learners[name].summary()
    assert summary.splitlines()[0].strip() == title
    words = " ".join(summary.split())
    assert all(cell in words for cell in cells)
    assert all(len(line) <= 78 for line in summary.splitlines())
    assert ("/ tau" in summary) == (name != "comparisons")


@pytest.mark.parametrize("kind", ["levels", "triplets"])
def test_the_choice_and_the_plain_distance_of_other_kinds_are_shown(kind: str) -> None:
    data = simulated(kind)
    learner = cf.OrdinalMetricLearner() if kind == "levels" else cf.ComparisonMetricLearner()
    facts = summarize(learner.fit(data.tuples, data.labels))
    assert facts["choice"]["sentence"] == learner.choice_.sentence
    assert facts["baseline"]["rows"][1]["loss"] == learner.baseline_.plain_loss
    page = render(facts, "html")
    assert "Compared with the plain distance" in page
    assert "Settings that were tried" in page


def test_more_of_many_annotators_are_left_out_and_counted() -> None:
    data = cf.datasets.make_judgements(700, 2, kind="pairs", n_annotators=70, strictness_spread=0.5, random_state=0)
    learner = cf.LinearMetricLearner(**PAPER).fit(data.tuples, data.labels, annotators=data.annotators)
    from closefar.report.facts import _annotators

    part = _annotators(learner.fit_)
    assert part is not None
    assert (len(part["rows"]), part["n"], part["n_left_out"]) == (60, 70, 10)


@pytest.mark.parametrize("name", ["levels", "comparisons", "mixed", "annotators", "two"])
@pytest.mark.parametrize("plot", ["margins", "calibration", "spectrum", "loadings", "convergence", "embedding"])
def test_plots_draw_every_kind(learners: dict[str, Any], name: str, plot: str) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    points = (np.random.default_rng(0).normal(size=(20, 3)),) if plot == "embedding" else ()
    ax = getattr(cf.plot, plot)(learners[name], *points)
    if plot == "margins":
        lines = [line.get_xdata()[0] for line in ax.lines]
        assert lines == pytest.approx(list(learners[name].metric_.thresholds) or [0.0])
    pyplot.close(ax.figure)


@pytest.mark.parametrize("name", ["levels", "comparisons"])
def test_code_to_copy_runs(
    learners: dict[str, Any],
    facts: dict[str, dict[str, Any]],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"learner": learners[name]}
    for step in facts[name]["next_steps"]:
        if step["title"] == "In Python":
            assert "probability_far" not in step["code"]
        exec(step["code"], scope)
    assert scope["metric"] == learners[name].metric_
