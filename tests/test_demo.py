"""The demo runs anywhere, learns the paper's metric back and says where its report is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from closefar import demo


def test_demo_prints_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    demo.main()
    text = capsys.readouterr().out
    values = {line[:36].strip(): line[36:].split() for line in text.splitlines()}
    true, learned, plain = map(float, values["Squared distance / tau, direction 1"])
    assert learned == pytest.approx(true, rel=0.05)
    assert plain < 0.5 * true
    assert [float(value) for value in values["Share of wrong labels"][:2]] == pytest.approx([0.1, 0.1], abs=0.01)
    none, learned, plain = map(float, values["Relative spectral error of M / tau"])
    assert none == 0.0
    assert learned < 0.1 < plain
    assert float(values["Held-out accuracy, noisy labels"][1]) > 0.88
    true, learned, plain = map(float, values["Held-out accuracy, true labels"])
    assert true == 1.0
    assert learned > 0.98
    assert plain < learned
    assert "Wrote report.html" in text
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]
    assert "15,000 pairs" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_demo_without_jinja2_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    demo.main()
    assert "pip install 'closefar[report]'" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
