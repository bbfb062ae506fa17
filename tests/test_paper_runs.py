"""Runs of the paper's experiments: trials are kept and resumed, the page is whole, and quoted figures are recorded."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from paper import __main__ as command
from paper import record
from paper.page import draw, formatted, formatted_difference, formatted_spread, write_page
from paper.sections import compare, comparison, figure, grid, line, panel, quote, section, series
from paper.trials import MissingDataError, Run

_ROOT = Path(__file__).parents[1]
_HOSTILE = "<script>alert('x')</script>&\"{{ 7 * 7 }} $x_1$"


# Trials


def counted(size: int, seed: int, place: Path) -> dict[str, Any]:
    """Note that the trial ran, and return what JSON changes: a tuple."""
    with (place / "calls").open("a") as file:
        file.write(f"{size} {seed}\n")
    return {"size": size, "seed": seed, "pair": (size, seed)}


def failing(seed: int) -> dict[str, Any]:
    if seed == 1:
        raise ZeroDivisionError("one by nought")
    return {"seed": seed}


def _calls(place: Path) -> list[str]:
    return sorted((place / "calls").read_text().splitlines())


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_trials_are_kept_and_not_run_again(n_jobs: int, tmp_path: Path) -> None:
    run = Run(folder=tmp_path / "trials", n_jobs=n_jobs)
    cases = [{"size": 3}, {"size": 2}, {"size": 3}]
    first = run.repeat(counted, cases, 2, place=tmp_path)
    assert [[each["seed"] for each in trials] for trials in first] == [[0, 1]] * 3
    assert [trials[0]["pair"] for trials in first] == [[3, 0], [2, 0], [3, 0]]  # lists, as JSON has them
    assert _calls(tmp_path) == ["2 0", "2 1", "3 0", "3 1"]
    assert run.repeat(counted, cases, 2, place=tmp_path) == first
    assert run.repeat(counted, cases[:1], 3, place=tmp_path)[0][:2] == first[0]
    assert _calls(tmp_path) == ["2 0", "2 1", "3 0", "3 1", "3 2"]


def test_a_trial_that_was_cut_off_is_run_again(tmp_path: Path) -> None:
    run = Run(folder=tmp_path / "trials")
    first = run.repeat(counted, [{"size": 3}], 3, place=tmp_path)
    (kept,) = (tmp_path / "trials").iterdir()
    kept.write_text(kept.read_text()[:-20])
    assert run.repeat(counted, [{"size": 3}], 3, place=tmp_path) == first
    assert _calls(tmp_path) == ["3 0", "3 1", "3 2", "3 2"]
    assert len([json.loads(text) for text in kept.read_text().splitlines()]) == 3


def test_trials_before_a_failing_one_are_kept(tmp_path: Path) -> None:
    run = Run(folder=tmp_path)
    with pytest.raises(ZeroDivisionError):
        run.repeat(failing, [{}], 3)
    (kept,) = tmp_path.iterdir()
    assert [json.loads(text)["result"]["seed"] for text in kept.read_text().splitlines()] == [0]


# The command


def _run(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=_ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("how", [["paper"], ["-m", "paper"]])
def test_the_folder_runs(how: list[str], tmp_path: Path) -> None:
    done = _run(*how, "noises", "--out", tmp_path, "--jobs", 1)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"Wrote {tmp_path / 'paper.html'}."
    assert {path.name for path in tmp_path.iterdir()} == {"paper.html", "results.json", "figures"}
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert (results["full"], results["seed"]) == (False, 0)
    assert [entry["status"] for entry in results["experiments"]] == ["done"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["noise"], "each NAME must be an experiment; got 'noise'. Choose from noises, accuracy"),
        (["--data", "nowhere"], "--data must be a folder; got 'nowhere'"),
        (["--jobs", "0"], "--jobs must be >= 1"),
        (["--record"], "--record must be given with --full"),
        (["--record", "--full", "--seed", "1"], "without --seed"),
    ],
)
def test_wrong_usage_is_told(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_one_experiment_does_not_take_the_others_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(run: Run) -> Any:
        raise ZeroDivisionError("one <by> nought")

    def absent(run: Run) -> Any:
        raise MissingDataError("put it in DATA/airline/")

    done = command.EXPERIMENTS["noises"]
    monkeypatch.setattr(command, "EXPERIMENTS", {"a": ("A", fail), "b": ("B", absent), "c": done})
    assert command.main(["--out", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert [text.split("  ")[0].strip() for text in told.out.splitlines()[:3]] == ["failed", "not run", "done"]
    assert "Traceback" in told.err
    page = (tmp_path / "paper.html").read_text(encoding="utf-8")
    assert "ZeroDivisionError: one &lt;by&gt; nought" in page
    assert "put it in DATA/airline/" in page


def test_an_interrupted_run_says_how_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(run: Run) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "EXPERIMENTS", {"a": ("A", interrupted)})
    assert command.main(["--out", str(tmp_path)]) == 130
    assert "the same command continues" in capsys.readouterr().err


# The page


def _section() -> dict[str, Any]:
    curve = series(_HOSTILE, [1, 2, 3], [1, 3, 2], low=[0, 2, 1], high=[2, 4, 3])
    panels = [
        panel(_HOSTILE, "x", "y", [curve, series("other", [1, 2], [2, 1], style="both")], [line("paper", 2.0)]),
        panel("second", "x", "y", [series("other", [1, 20], [2, 10], style="points")], log_x=True, log_y=True),
    ]
    rows = [
        compare(_HOSTILE, 1.0, 2.0, _HOSTILE),
        compare("accuracy", [0.98, 0.99], 0.9, "another sample", percent=True),
        compare("none of the paper", 3.0, None, "unused"),
    ]
    return section(
        _HOSTILE, _HOSTILE, tables=[comparison(_HOSTILE, rows), grid(_HOSTILE, [_HOSTILE], [[_HOSTILE]])],
        figures=[figure("hostile", _HOSTILE, panels)], notes=[_HOSTILE],
        quoted=[quote("accuracy, any", rows[1]), quote("best", rows[2], paper=4.0, printed="around 4", note="by hand")],
    )  # fmt: skip


def _results(**changed: Any) -> dict[str, Any]:
    entry = {"name": "a", "title": _HOSTILE, "status": "done", "reason": None, "section": _section()}
    created = "2026-03-04T05:06:07+00:00"
    return {"version": "1", "full": True, "seed": 0, "created": created, "experiments": [entry | changed]}


def test_the_page_is_self_contained_and_text_stays_text(tmp_path: Path) -> None:
    write_page(_results(), tmp_path)
    page = (tmp_path / "paper.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "http" not in page
    assert "49" not in page.replace("base64", "").split("<img")[0]  # what is in braces is not computed
    assert "98.50%" in page
    assert "note 1" in page
    svg = (tmp_path / "figures" / "hostile.svg").read_text(encoding="utf-8")
    texts = [element.text for element in ET.fromstring(svg).iter() if element.text and element.text.strip()]
    assert texts.count(_HOSTILE) == 2  # title and legend
    assert {"other", "paper", "x", "y", "second"} <= set(texts)


def test_the_same_figure_gives_the_same_text_whatever_the_users_style() -> None:
    import matplotlib

    (given,) = _section()["figures"]
    before = draw(given)
    with matplotlib.rc_context({"font.size": 20.0, "svg.fonttype": "path"}):
        assert draw(given) == before


@pytest.mark.parametrize(
    ("value", "percent", "text"),
    [
        (0.98765, True, "98.77%"), (0.0681, False, "0.0681"), (12345.6, False, "12,346"), (700, False, "700"),
        (5.6959, False, "5.70"), (1.2e-7, False, "1.20e-07"), (0.0, False, "0"), (None, True, "\N{EN DASH}"),
    ],
)  # fmt: skip
def test_values_are_formatted_with_three_digits(value: float | None, percent: bool, text: str) -> None:
    assert formatted(value, percent) == text


def test_spread_and_difference_are_in_the_unit_of_the_row() -> None:
    row = compare("", [0.98, 0.99], 0.9, "because", percent=True)
    assert formatted_spread(row) == "± 0.71"
    assert formatted_difference(row) == "+8.50 points"
    assert formatted_spread(compare("", 1.0, None, "")) == ""
    assert formatted_difference(compare("", 1.0, None, "")) == "\N{EN DASH}"


# The record


def test_what_is_quoted_needs_a_number_of_the_paper() -> None:
    with pytest.raises(ValueError, match="must have one of the paper beside it; 'x' has none"):
        quote("x", compare("", 1.0, None, ""))


def test_a_record_keeps_what_is_done_and_the_documentation_quotes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results.json")
    (tmp_path / "docs").mkdir()
    for name in record.QUOTING:
        (tmp_path / name).write_text(f"before\n{record.BEGIN}\nold\n{record.END}\nafter\n", encoding="utf-8")
    record.write_record(_results(), tmp_path)
    record.write_record(_results(name="b", status="failed", section=None), tmp_path)
    record.write_record(_results(name="c"), tmp_path)
    kept = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert list(kept["experiments"]) == ["a", "c"]
    assert "figures" not in kept["experiments"]["a"]
    table = record.quoted_table(kept)
    assert "| accuracy, any | 90.00% | 98.50% ± 0.71 |" in table
    assert "| best | around 4 (by hand) | 3.00 |" in table
    for name in record.QUOTING:
        expected = f"before\n{record.BEGIN}\n{table}\n{record.END}\nafter\n"
        assert (tmp_path / name).read_text(encoding="utf-8") == expected
    record.write_record({**_results(name="d"), "version": "2"}, tmp_path)  # another version starts anew
    assert list(json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["experiments"]) == ["d"]


@pytest.mark.parametrize("name", record.QUOTING)
def test_quoted_figures_are_those_of_the_record(name: str) -> None:
    kept = json.loads(record.RESULTS.read_text(encoding="utf-8"))
    assert kept["full"]
    assert f"{record.BEGIN}\n{record.quoted_table(kept)}\n{record.END}" in (_ROOT / name).read_text(encoding="utf-8")


def test_the_record_holds_whole_runs_of_known_experiments() -> None:
    kept = json.loads(record.RESULTS.read_text(encoding="utf-8"))
    assert set(kept["experiments"]) <= set(command.EXPERIMENTS)
    for entry in kept["experiments"].values():
        for each in entry["quoted"]:
            assert each["paper"] is not None
            assert each["n_trials"] >= 1
