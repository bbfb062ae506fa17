"""A server that is killed at any moment loses no acknowledged answer; benchmarks/label_kill.py does so 200 times."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

_BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.skipif(sys.platform == "win32", reason="needs processes that are forked")
def test_no_acknowledged_answer_is_lost_or_doubled_when_the_server_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("uvicorn")
    if not _BENCHMARKS.exists():
        pytest.skip("needs the benchmarks, which an sdist does not have")
    monkeypatch.syspath_prepend(_BENCHMARKS)
    from label_kill import run_kills

    outcome = run_kills(tmp_path, n_kills=8, n_people=3)
    assert outcome.n_kills == 8
    assert outcome.n_answers > 8
    assert outcome.n_retries > 0
    assert outcome.is_right, outcome
