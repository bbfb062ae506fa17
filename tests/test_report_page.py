"""The report as a file: harmless whatever the names, complete, and never half written."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import closefar as cf
from closefar.report import encode_report, render, summarize, write_report
from closefar.report.page import nice_ticks
from paper_estimator import PAPER

_VOID = {"meta", "link", "br"}
_SELF_CLOSED = {"rect", "circle", "path"}
_HOSTILE = "<script>alert('x')</script>&\"{{ 7 * 7 }}"
_NAMES = [
    _HOSTILE,
    "</pre><img src=x onerror=alert(1)>",
    "lone \ud800 surrogate",
    "L" * 300,
    "\u202ebackwards",
    "two\nlines",
    "",
    "```",
]


class _Page(HTMLParser):
    """Collects what a browser would read, and fails on a tag that is not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.titles: list[str] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action", "srcset", "data")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.titles += [value or "" for name, value in attrs if name == "title"]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _SELF_CLOSED
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.text += data


@pytest.fixture(scope="module")
def learner() -> cf.LinearMetricLearner:
    data = cf.datasets.make_pairs(300, 2, wrong_share=0.1, random_state=7)
    return cf.LinearMetricLearner(**PAPER).fit(data.pairs, data.labels)


@pytest.fixture(scope="module")
def facts(learner: cf.LinearMetricLearner) -> dict[str, Any]:
    return summarize(learner)


@pytest.fixture(scope="module")
def hostile() -> dict[str, Any]:
    data = cf.datasets.make_pairs(400, len(_NAMES), wrong_share=0.1, random_state=7)
    labels = np.where(data.labels == 1, _HOSTILE, "<b>close</b>")
    learner = cf.LinearMetricLearner(far_label=_HOSTILE, **PAPER)
    learner.fit(data.pairs, labels, feature_names=_NAMES)
    ids = np.array([[_HOSTILE, f"\x00\n```{row}"] for row in range(400)], dtype=object)
    return summarize(learner, ids=ids, title="</title><script>")


def test_page_shows_every_part_and_asks_for_nothing(facts: dict[str, Any]) -> None:
    html = render(facts, "html")
    page = _Page(html)
    assert "http:" not in html
    assert "https:" not in html
    assert "url(" not in html
    assert "@import" not in html
    assert {link for link in page.links if not link.startswith("#")} == {"data:,"}
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    text = " ".join(page.text.split())
    for name in (
        "distances",
        "roc",
        "calibration",
        "spectrum",
        "truncation",
        "directions",
        "matrix",
        "pair_map",
        "point_map",
    ):
        assert facts[name]["reading"] in text
    for name in ("noise_check", "wrong_labels", "learning_curve", "intervals"):
        assert (facts[name]["reason"] or facts[name]["reading"]) in text
    assert facts["sentence"] in text
    assert facts["pairs"]["words"] in text
    assert facts["certificate"]["words"] in text
    for step in facts["next_steps"]:
        assert step["code"] in page.text
    assert page.tags.count("svg") == 7
    assert html.count('class="bars whole"') == len(facts["spectrum"]["rows"])
    assert html.count('class="place"') == len(facts["intervals"]["directions"])


def test_only_the_pages_own_script_may_run(facts: dict[str, Any]) -> None:
    html = render(facts, "html")
    (script,) = _Page(html).scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_hostile_names_are_text_on_the_page(hostile: dict[str, Any]) -> None:
    html = render(hostile, "html").encode("utf-8", "xmlcharrefreplace").decode("utf-8")
    page = _Page(html)
    assert page.tags.count("script") == 1
    assert not {"img", "b"} & set(page.tags)
    assert page.titles.count(_HOSTILE) > 10
    assert "<script>" in page.text
    assert "L" * 300 in page.titles
    assert "{{ 7 * 7 }}" in page.text
    assert "<b>close</b>" in page.text
    assert "(no name)" in page.text


def test_hostile_names_keep_to_their_lines_in_text(hostile: dict[str, Any]) -> None:
    text = render(hostile, "text")
    assert text.startswith("# </title><script>\n")
    lines = text.splitlines()
    assert sum(line.startswith("```") for line in lines) % 2 == 0
    assert all(len(line) < 200 for line in lines)
    assert "\x00" not in text
    assert "\u202e" not in text
    rows = hostile["wrong_labels"]["rows"]
    assert sum(_HOSTILE[:10] in line and "` ` `" in line for line in lines) == len(rows)


def test_text_has_the_numbers(facts: dict[str, Any]) -> None:
    text = render(facts, "text")
    assert f"{facts['quality']['confusion']['counts'][0][0]:,.6g}" in text
    assert f"{facts['truncation']['rows'][-1]['loss']:.4f}" in text
    assert facts["certificate"]["words"].split(". ")[0] in " ".join(text.split())
    assert re.search(r"threshold +\S+ +\S+ +\S+", text)


def test_suffix_chooses_the_format(learner: cf.LinearMetricLearner, facts: dict[str, Any], tmp_path: Path) -> None:
    for suffix, format in ((".html", "html"), (".HTM", "html"), (".json", "json"), (".txt", "text"), (".md", "text")):
        path = tmp_path / f"report{suffix}"
        learner.report(path)
        assert path.read_text(encoding="utf-8") == render(facts, format)
    assert encode_report(learner, "x.html") == (tmp_path / "report.html").read_bytes()


@pytest.mark.parametrize("name", ["report", "report.pdf", "report.html.gz"])
def test_other_suffixes_are_refused_before_any_work(learner: cf.LinearMetricLearner, tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"one of \.html, \.htm, \.json, \.txt, \.md; got .*report"):
        learner.report(tmp_path / name, watch=_fail)
    assert list(tmp_path.iterdir()) == []


def test_parameters_reach_the_report(learner: cf.LinearMetricLearner, tmp_path: Path) -> None:
    path, heard = tmp_path / "report.json", []
    data = cf.datasets.make_pairs(100, 2, random_state=8)
    weights = np.full(100, 2.0)
    ids = np.array([f"pair {row}" for row in range(100)])
    given: dict[str, Any] = {"title": "One", "ids": ids, "random_state": 5}
    learner.report(path, data.pairs, data.labels, weights, watch=heard.append, **given)
    facts = summarize(learner, data.pairs, data.labels, weights, **given)
    assert json.loads(path.read_text(encoding="utf-8")) == facts
    assert facts["title"] == "One"
    assert heard[0] == "cross-validation"


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_only(
    learner: cf.LinearMetricLearner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(*_: Any) -> None:
        raise failure

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(type(failure)):
        write_report(learner, path)
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("report.html", "old")]


def test_replaces_an_existing_file_whole(learner: cf.LinearMetricLearner, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    write_report(learner, path)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_missing_folder_is_a_sentence_before_any_work(learner: cf.LinearMetricLearner, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Check that the folder exists"):
        write_report(learner, tmp_path / "nowhere" / "report.html", watch=_fail)


def test_missing_jinja2_names_the_extra_and_only_the_page_needs_it(
    learner: cf.LinearMetricLearner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"a report as HTML needs jinja2: run pip install 'closefar\[report\]'"):
        learner.report(tmp_path / "report.html", watch=_fail)
    assert list(tmp_path.iterdir()) == []
    learner.report(tmp_path / "report.txt")
    learner.report(tmp_path / "report.json")
    assert len(list(tmp_path.iterdir())) == 2


def _fail(part: str) -> None:
    raise AssertionError(f"{part} was computed")


@pytest.mark.parametrize("low", [0.0, -3.7, 1e-9, 0.231, 88.0])
@pytest.mark.parametrize("width", [1e-3, 0.013, 1.0, 47.0, 3e8])
def test_ticks_are_few_round_and_inside(low: float, width: float) -> None:
    ticks = nice_ticks(low, low + width)
    assert 2 <= len(ticks) <= 6
    assert low - 1e-6 * width <= ticks[0] < ticks[-1] <= low + width * (1.0 + 1e-6)
    assert np.ptp(np.diff(ticks)) < 1e-6 * width
    assert nice_ticks(low, low) == [low]
