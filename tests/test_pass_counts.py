"""The guard of `make bench`: passes over the data beside those on record."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def guard(monkeypatch, tmp_path):
    if not BENCHMARKS.exists():
        pytest.skip("needs the benchmarks, which an sdist does not have")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import pass_counts

    monkeypatch.setattr(pass_counts, "RECORDS", tmp_path / "records.json")
    return pass_counts


def run(guard, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["pass_counts.py", *arguments, "--only", "learned origin", "triplets, 8 columns"])
    return guard.main()


def test_guard_accepts_what_it_recorded_and_rejects_more(guard, monkeypatch, capsys):
    assert run(guard, monkeypatch, "--record") == 0
    assert run(guard, monkeypatch) == 0
    found = guard.read(guard.RECORDS)
    cheaper = guard.Effort(found["learned origin"].passes / 1.3, "converged")
    guard.write(guard.RECORDS, {**found, "learned origin": cheaper})
    capsys.readouterr()
    assert run(guard, monkeypatch) == 1
    printed = capsys.readouterr().out
    (line,) = (line for line in printed.splitlines() if line.startswith("learned origin"))
    assert f"{cheaper.passes:.1f}" in line
    assert f"{found['learned origin'].passes:.1f}" in line
    assert line.endswith("takes more passes")
    assert "1 of 2 problems" in printed


def test_guard_rejects_another_outcome_and_a_missing_record(guard):
    before = {"same": guard.Effort(20.0, "converged"), "other": guard.Effort(20.0, "converged")}
    now = {
        "same": guard.Effort(21.9, "converged"),
        "other": guard.Effort(12.0, "stalled"),
        "new": guard.Effort(5.0, "converged"),
    }
    assert guard.verdicts(before, now) == {"other": "was converged, is stalled", "new": "is not on record"}
    assert guard.verdicts(before, {"same": guard.Effort(22.1, "converged")}) == {"same": "takes more passes"}


def test_every_problem_is_on_record():
    if not BENCHMARKS.exists():
        pytest.skip("needs the benchmarks, which an sdist does not have")
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import pass_counts
    finally:
        sys.path.remove(str(BENCHMARKS))
    assert set(pass_counts.read(pass_counts.RECORDS)) == set(pass_counts.PROBLEMS)
