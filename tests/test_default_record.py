"""The figures of the default in the documentation are those of the committed record."""

import json
import runpy
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_RECORD = _ROOT / "benchmarks" / "default_results.json"


@pytest.fixture(scope="module")
def benchmark_script():
    if not _RECORD.exists():
        pytest.skip("needs the benchmarks, which an sdist does not have")
    return runpy.run_path(str(_ROOT / "benchmarks" / "default.py"))


def test_the_page_has_the_tables_of_the_record(benchmark_script):
    tables = benchmark_script["as_markdown"](json.loads(_RECORD.read_text()))
    assert tables in (_ROOT / "docs" / "few_pairs.md").read_text()


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of the regression beside it
def test_a_small_run_has_the_figures_of_the_record(benchmark_script):
    row = benchmark_script["run_table"]("iris", 0.1, 60, 0)
    recorded = json.loads(_RECORD.read_text())["tables"][0]
    assert set(recorded) == {*row, "table", "n", "wrong"}
    assert 0.5 < row["closefar_accuracy"] <= 1.0
