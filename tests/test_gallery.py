"""Every example of the gallery runs from top to bottom, without a warning."""

import runpy
from pathlib import Path

import pytest
from matplotlib import pyplot as plt

FOLDER = Path(__file__).parent.parent / "docs" / "gallery"
EXAMPLES = sorted(FOLDER.glob("*.py"))


def test_there_are_examples_and_all_are_built():
    assert len(EXAMPLES) >= 6
    assert all(path.name.startswith("plot_") for path in EXAMPLES)  # others are not executed by the gallery


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: None)  # which warns where there is no window
    runpy.run_path(str(path), run_name="__main__")
    figures = [plt.figure(number) for number in plt.get_fignums()]
    assert figures
    for figure in figures:
        figure.draw_without_rendering()
    assert all(axes.has_data() for figure in figures for axes in figure.axes)
    assert list(tmp_path.iterdir()) == []
