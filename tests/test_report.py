"""The report: right numbers, harmless whatever the names, and never half a file."""

from __future__ import annotations

import errno
import json
import os
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, confusion_matrix

import closefar as cf
from closefar.report import summarize, write_report

_VOID = {"meta", "link", "br", "hr", "img", "input"}
_SELF_CLOSED = {"rect", "circle", "path"}
_HOSTILE = "<script>alert('x')</script>&\"{{ 7 * 7 }}"


class _Page(HTMLParser):
    """Collects tags and text, and fails on a tag that is not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str | None] = []
        self.cells: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("href", "src", "action", "srcset", "data")]
        if tag not in _VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _SELF_CLOSED
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data


def _split(n_features: int = 4, **kwargs: Any) -> tuple[np.ndarray, ...]:
    data = cf.datasets.make_pairs(3000, n_features, random_state=7, **kwargs)
    return data.pairs[:2000], data.labels[:2000], data.pairs[2000:], data.labels[2000:]


@pytest.fixture(scope="module")
def fitted() -> tuple[cf.LinearMetricLearner, np.ndarray, np.ndarray]:
    pairs, labels, held_out, held_labels = _split()
    return cf.LinearMetricLearner().fit(pairs, labels), held_out, held_labels


@pytest.fixture
def page(fitted: Any, tmp_path: Path) -> str:
    write_report(*fitted, tmp_path / "report.html")
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def test_numbers_agree_with_scikit_learn(fitted: Any) -> None:
    learner, X, y = fitted
    facts = summarize(learner, X, y)
    predicted = learner.predict(X)
    assert facts["accuracy"] == accuracy_score(y, predicted)
    assert facts["confusion"] == {"labels": ["-1", "1"], "counts": confusion_matrix(y, predicted).tolist()}
    assert facts["n_pairs"] == len(y)


def test_confusion_puts_the_far_label_last() -> None:
    pairs, labels, held_out, held_labels = _split()
    names = {-1: "same", 1: "different"}
    learner = cf.LinearMetricLearner(far_label="different").fit(pairs, [names[label] for label in labels])
    given = np.array([names[label] for label in held_labels])
    confusion = summarize(learner, held_out, given)["confusion"]
    expected = confusion_matrix(given, learner.predict(held_out), labels=["same", "different"])
    assert confusion == {"labels": ["same", "different"], "counts": expected.tolist()}


def test_dict_survives_json(fitted: Any) -> None:
    facts = summarize(*fitted, title="One title")
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["title"] == "One title"
    assert facts["certificate"]["gap"] == fitted[0].certificate_.gap
    assert facts["fit_statistics"]["wrong_share"] == fitted[0].fit_statistics_.wrong_share
    assert facts["summary"] == fitted[0].summary()


def test_calibration_bins_partition_the_pairs(fitted: Any) -> None:
    learner, X, y = fitted
    bins = summarize(learner, X, y)["calibration"]
    counts = np.array([row["count"] for row in bins])
    assert len(bins) == 10
    assert np.all(np.abs(counts - 100) <= 1)
    assert np.average([row["mean_predicted"] for row in bins], weights=counts) == pytest.approx(
        np.mean(learner.predict_proba(X)[:, 1])
    )
    assert np.average([row["observed_far"] for row in bins], weights=counts) == pytest.approx(np.mean(y == 1))


def test_equal_probabilities_share_a_bin(fitted: Any) -> None:
    learner, X, _ = fitted
    bins = summarize(learner, np.repeat(X[:1], 40, axis=0), [-1] * 20 + [1] * 20)["calibration"]
    assert [(row["count"], row["observed_far"]) for row in bins] == [(40, 0.5)]


def test_spectrum_and_directions_are_the_metrics(fitted: Any) -> None:
    metric = fitted[0].metric_
    facts = summarize(*fitted)
    values = np.array([row["value"] for row in facts["eigenvalues"]])
    np.testing.assert_allclose(values, np.linalg.eigvalsh(metric.matrix)[::-1], atol=1e-12)
    assert [row["over_threshold"] for row in facts["eigenvalues"]] == pytest.approx(values / metric.threshold)
    assert [row["cumulative_share"] for row in facts["eigenvalues"]] == pytest.approx(np.cumsum(values) / values.sum())
    leading = {entry["feature"]: entry["loading"] for entry in facts["directions"][0]["loadings"]}
    vector = np.array([leading[f"x{index}"] for index in range(4)])
    np.testing.assert_allclose(metric.matrix @ vector, values[0] * vector, atol=1e-10 * values[0])


def test_zero_metric_and_zero_threshold_have_no_ratio(tmp_path: Path) -> None:
    pairs, labels, held_out, held_labels = _split()
    learner = cf.LinearMetricLearner().fit(pairs, labels)
    learner.metric_ = cf.Metric(np.zeros((4, 0)), threshold=0.0)
    facts = summarize(learner, held_out, held_labels)
    assert [row["over_threshold"] for row in facts["eigenvalues"]] == [None] * 4
    assert facts["directions"] == []
    write_report(learner, held_out, held_labels, tmp_path / "report.html")
    assert "M is zero" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_separable_labels_give_no_estimate_of_wrong_ones(tmp_path: Path) -> None:
    pairs, labels, held_out, held_labels = _split(2, noise=None)
    with pytest.warns(ConvergenceWarning, match="separable"):
        learner = cf.LinearMetricLearner().fit(pairs[:20], labels[:20])
    assert "can't be told" in summarize(learner, held_out, held_labels)["sentence"]
    write_report(learner, held_out, held_labels, tmp_path / "report.html")
    assert "<dd>unknown</dd>" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_page_shows_the_facts_and_asks_for_nothing(fitted: Any, page: str) -> None:
    facts = summarize(*fitted)
    parsed = _Page(page)
    assert "http" not in page
    assert "url(" not in page
    assert "@import" not in page
    assert parsed.links == ["data:,"]
    assert "script" not in parsed.tags
    assert facts["sentence"] in page
    assert facts["certificate"]["words"] in page
    assert facts["summary"] in page
    assert parsed.tags.count("circle") == len(facts["calibration"])
    assert parsed.tags.count("rect") == facts["rank"]
    for row in facts["confusion"]["counts"]:
        for count in row:
            assert any(cell.startswith(f"{count:,}") for cell in parsed.cells)


def test_long_spectra_are_cut(tmp_path: Path) -> None:
    pairs, labels, held_out, held_labels = _split(30)
    learner = cf.LinearMetricLearner(alpha=0.1).fit(pairs, labels)
    learner.metric_ = cf.Metric.from_matrix(np.diag(np.arange(1.0, 31.0)), threshold=1.0)
    write_report(learner, held_out, held_labels, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert _Page(html).tags.count("rect") == 20
    assert "the 20 largest are shown" in html


def test_hostile_names_are_text(tmp_path: Path) -> None:
    pairs, labels, held_out, held_labels = _split(3)
    columns = [_HOSTILE, "</pre><img src=x onerror=alert(1)>", "lone \ud800 surrogate"]
    values = np.where(labels == 1, _HOSTILE, "<b>close</b>")
    learner = cf.LinearMetricLearner(far_label=_HOSTILE)
    learner.fit(pd.DataFrame(pairs[:, 0] - pairs[:, 1], columns=columns), values)
    frame = pd.DataFrame(held_out[:, 0] - held_out[:, 1], columns=columns)
    given = np.where(held_labels == 1, _HOSTILE, "<b>close</b>")
    write_report(learner, frame, given, tmp_path / "report.html", title="</title><script>")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    parsed = _Page(html)
    assert not {"script", "img", "b"} & set(parsed.tags)
    assert _HOSTILE in parsed.cells
    assert "<b>close</b> (close)" in [cell.strip() for cell in parsed.cells]
    assert parsed.links == ["data:,"]


@pytest.mark.parametrize(
    ("labels", "message"),
    [([-1] * 9, "got 9 labels for 10 pairs"), ([-1] * 9 + [3], r"fitted with, \[-1, 1\]; got .*3")],
)
def test_labels_must_be_the_learners(fitted: Any, labels: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        summarize(fitted[0], fitted[1][:10], labels)


def test_one_class_and_one_pair_will_do(fitted: Any, tmp_path: Path) -> None:
    learner, X, y = fitted
    write_report(learner, X[:1], y[:1], tmp_path / "report.html")
    assert summarize(learner, X[:1], y[:1])["calibration"][0]["count"] == 1


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_only(
    fitted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(*_: Any) -> None:
        raise failure

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(type(failure)):
        write_report(*fitted, path)
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("report.html", "old")]


def test_replaces_an_existing_file_whole(fitted: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    write_report(*fitted, path)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_missing_folder_is_a_sentence(fitted: Any, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Check that the folder exists"):
        write_report(*fitted, tmp_path / "nowhere" / "report.html")


def test_missing_jinja2_names_the_extra(fitted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"pip install 'closefar\[report\]'"):
        write_report(*fitted, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_dict_needs_no_jinja2(fitted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert summarize(*fitted)["n_pairs"] == 1000
