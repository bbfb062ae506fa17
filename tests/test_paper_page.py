"""The page of the paper's tables and figures: complete, self-contained, and harmless whatever the text."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from closefar.experiments.result import (
    Figure,
    Panel,
    Section,
    compare,
    comparison,
    figure,
    grid,
    line,
    panel,
    section,
    series,
)

pytest.importorskip("matplotlib", reason="the figures are drawn with matplotlib")
pytest.importorskip("jinja2", reason="the page is a jinja2 template")

from closefar.experiments.charts import draw, with_variables
from closefar.experiments.page import write_page

_HOSTILE = '<script>alert(\'x\')</script>&"{{ 7 * 7 }} id="a" $x_1$ \\$'
_ABSENT, _MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
_VOID = {"meta", "link", "br", "path", "use", "rect"}


class _Page(HTMLParser):
    """Collects what a browser would read, and fails on a tag that is not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.cells: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        names = ("href", "xlink:href", "src", "action", "srcset", "data", "poster")
        self.links += [value or "" for name, value in attrs if name in names]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in _VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data


def _panel(index: int, *, own_line: bool = False) -> Panel:
    x = np.array([500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0])
    y = (0.8 + index / 10) / np.sqrt(x)
    gap = np.where(x == 2000, np.nan, 2 * y)
    return panel(
        f"{index}% of the labels are wrong",
        "training pairs",
        "relative error of M / τ",
        [
            series("logistic", x, y, low=y * 0.7, high=y * 1.3, style="both"),
            series("Gaussian", x, gap, low=gap - 3 * y, high=gap + y),
            series("Laplace", x, 3 * y),
            series("hyperbolic secant", x, 4 * y, low=3.5 * y, high=4.5 * y, style="points"),
        ],
        [line(f"paper, {index}%" if own_line else "paper", 0.01 + index / 100), line("d²", 2500, axis="x")],
        log_x=index % 2 == 0,
        log_y=index % 3 == 0,
    )


def _accuracies(name: str, n_panels: int, *, own_line: bool = False) -> Figure:
    panels = [_panel(index, own_line=own_line) for index in range(n_panels)]
    return figure(name, f"Relative error against sample size, {n_panels} panels.", panels)


_WHY = "The paper states neither its seed nor its stopping rule, and one set of pairs scatters by a point."


def _section() -> Section:
    rng = np.random.default_rng(0)
    why = _WHY
    rows = [
        compare("training, noisy labels", rng.normal(0.9012, 0.004, 20), 0.9013, why, percent=True),
        compare("training, true labels", rng.normal(0.9881, 0.001, 20), 0.9781, why, percent=True),
        compare("test, noisy labels", rng.normal(0.9, 0.001, 20), 0.9111, why, percent=True),
        compare("test, true labels", rng.normal(0.98, 0.001, 20), None, why, percent=True),
        compare("relative error of M / τ", rng.normal(0.0312, 0.002, 20), 0.0313, why),
        compare("condition number", rng.normal(12345, 2, 20), 12400.0, "Another scaling."),
        compare("no such number", [np.nan, np.nan], 0.5, why),
    ]
    single = [compare("seconds", 12.3, 60.0, "Another machine."), compare("trials differ", [1.0, 1.0], 1.0, why)]
    return section(
        "Ours recovers 98.8% of the true labels, as the paper's does.",
        "20,000 training and 5,000 test pairs, d = 10, rank 5, 10% wrong labels, 20 trials.",
        tables=[
            comparison("Accuracy of the logistic model", rows),
            comparison("Rows with unlike numbers of trials", single),
            grid(
                "Eigenvalues", ["model", "first", "second"], [["logistic", "0.89", "0.59"], ["Laplace", "0.9", "none"]]
            ),
        ],
        figures=[_accuracies(f"panels-{count}", count, own_line=count == 2) for count in range(1, 6)],
        notes=["The paper's table averages over trials.", "The spread is a standard deviation."],
    )


def _hostile_section() -> Section:
    curve = series(_HOSTILE, [1, 2, 3], [1, 3, 2], low=[0, 2, 1], high=[2, 4, 3])
    empty = series("nothing", [np.nan, 1.0], [1.0, -1.0])
    panels = [
        panel(_HOSTILE, _HOSTILE, _HOSTILE, [curve], [line(_HOSTILE, 2.0)]),
        panel("nothing to draw", "x", "y", [empty], [line("nowhere", np.nan)], log_x=True, log_y=True),
    ]
    return section(
        _HOSTILE,
        _HOSTILE,
        tables=[
            comparison(_HOSTILE, [compare(_HOSTILE, 1.0, 2.0, _HOSTILE)]),
            grid(_HOSTILE, [_HOSTILE, _HOSTILE], [[_HOSTILE, _HOSTILE]]),
        ],
        figures=[figure("hostile", _HOSTILE, panels)],
        notes=[_HOSTILE],
    )


def _experiment(name: str, status: str, section: Section | None, reason: str | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "title": f"{_HOSTILE} {name}" if name == "hostile" else f"Experiment {name}",
        "status": status,
        "reason": reason,
        "seconds": 1861.7 * (section is not None),
        "section": section,
    }


def _results() -> dict[str, Any]:
    advice = "No airline data: download DelayedFlights.csv and put it in DATA/airline/, then run with --data DATA."
    return {
        "version": "0.1.0",
        "quick": True,
        "seed": np.int64(3),
        "created": "2026-03-04T05:06:07+00:00",
        "experiments": [
            _experiment("table1", "done", _section()),
            _experiment("hostile", "unfinished", _hostile_section(), "stopped after 2 of 20 trials"),
            _experiment("airline", "not run", None, advice),
            _experiment("broken", "failed", None, f"ValueError: {_HOSTILE}\ud800"),
        ],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("paper") / "new"
    write_page(_results(), path)
    return path


@pytest.fixture(scope="module")
def page(folder: Path) -> _Page:
    return _Page((folder / "paper.html").read_text(encoding="utf-8"))


def _texts(svg: str) -> list[str]:
    return [text for element in ET.fromstring(svg).iter() if (text := (element.text or "").strip())]


@pytest.mark.parametrize("n_panels", [1, 2, 7])
@pytest.mark.parametrize("own_line", [False, True])
def test_each_panel_has_title_axis_labels_and_legend(n_panels: int, own_line: bool) -> None:
    texts = _texts(draw(_accuracies("some", n_panels, own_line=own_line)))
    for label in ("training pairs", "relative error of M / τ"):
        assert texts.count(label) == n_panels
    for index in range(n_panels):
        assert f"{index}% of the labels are wrong" in texts
        assert (f"paper, {index}%" if own_line else "paper") in texts
    for label in ("logistic", "Gaussian", "Laplace", "hyperbolic secant"):
        assert texts.count(label) == 1  # one legend for all panels
    assert texts.count("d²") == (n_panels if own_line and n_panels > 1 else 1)


def test_log_ticks_are_plain_numbers() -> None:
    curve = series("error", [1e-6, 1e-2, 1e3], [0.02, 0.03, 0.045])
    texts = _texts(draw(figure("ticks", "", [panel("", "x", "y", [curve], log_x=True, log_y=True)])))
    assert {"10⁻⁶", "1", "0.03"} <= set(texts)


def test_a_label_keeps_its_colour_in_all_panels() -> None:
    def curves(*labels: str) -> Panel:
        return panel("", "x", "y", [series(label, [0, 1], [0, 1]) for label in labels])

    svg = draw(figure("colours", "", [curves("a", "b"), curves("b"), curves("c", "b")]))
    curves_drawn = r'clip-path="url\(#[^)]*\)" style="fill: none;(?: stroke-dasharray: [^;]*; [^;]*;)? stroke: (#\w+)'
    strokes = [stroke for stroke in re.findall(curves_drawn, svg) if stroke != "#e3e6ea"]  # without the grid
    first, second, alone, third, again = strokes
    assert second == alone == again
    assert len({first, second, third}) == 3


def test_drawing_leaves_no_trace_and_ignores_the_users_style() -> None:
    import matplotlib

    before = draw(_accuracies("same", 2))
    with matplotlib.rc_context({"font.size": 20.0, "svg.fonttype": "path"}):
        mine = dict(matplotlib.rcParams)
        assert draw(_accuracies("same", 2)) == before
        assert dict(matplotlib.rcParams) == mine


@pytest.mark.parametrize("name", ["../up", "a b", "", "1st", 'a"'])
def test_a_figures_name_must_be_fit_for_a_file(name: str) -> None:
    with pytest.raises(ValueError, match="a figure's name must start with a letter"):
        draw(_accuracies(name, 1))


def test_a_figure_needs_a_panel() -> None:
    with pytest.raises(ValueError, match="at least one panel"):
        draw(figure("empty", "", []))


def test_page_asks_nothing_of_the_network(page: _Page) -> None:
    local = re.compile(r"#[^/]*|figures/[\w-]+\.svg|results\.json|data:,")
    assert all(local.fullmatch(link) for link in page.links)
    assert "@import" not in page.html
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)", page.html))
    outside = re.sub(r'xmlns(:xlink)?="http://www\.w3\.org/[^"]*"', "", page.html)
    assert "http://" not in outside
    assert "https://" not in outside


def test_page_links_lead_somewhere(page: _Page, folder: Path) -> None:
    assert len(page.ids) == len(set(page.ids))
    for link in page.links:
        if link.startswith("#"):
            assert link[1:] in page.ids
        elif link != "data:,":
            assert (folder / link).is_file()
    for target in re.findall(r"url\(#([^)]*)", page.html):
        assert target in page.ids


def test_hostile_text_stays_text(page: _Page, folder: Path) -> None:
    assert "script" not in page.tags
    assert "<script" not in page.html
    drawn = " ".join(_texts((folder / "figures" / "hostile.svg").read_text(encoding="utf-8")))
    assert drawn.count(_HOSTILE) == 5  # title, axes, series, line
    # Contents and reason, section, comparison, grid, caption, note, drawings for wide and for narrow windows.
    assert " ".join(page.text.split()).count(_HOSTILE) == 2 + 3 + 3 + 5 + 1 + 1 + 2 * 5


def test_page_names_each_experiment_with_its_status(page: _Page) -> None:
    for text in ("Experiment table1", "Experiment airline", "put it in DATA/airline/", "ValueError"):
        assert text in page.text
    for status in ("done", "unfinished", "not run", "failed"):
        assert f">{status}</span>" in page.html
    for fact in ("closefar 0.1.0", "2026-03-04 05:06 UTC", "1 h 2 min", "This is a quick run"):
        assert fact in page.text


def test_comparison_rows(page: _Page) -> None:
    cells = [" ".join(cell.split()) for cell in page.cells]

    def after(label: str, count: int) -> list[str]:
        start = cells.index(label) + 1
        return cells[start : start + count]

    assert "ours (20 trials)" not in cells  # one row of the table has 2
    noisy = after("training, noisy labels", 4)
    assert noisy[0] == "90.13%"
    assert re.fullmatch(r"90\.\d\d% ± 0\.\d\d \(20 trials\)", noisy[1])
    assert re.fullmatch(rf"[+{_MINUS}]0\.\d\d points", noisy[2])
    assert noisy[3] == "within spread"
    assert re.fullmatch(r"\+1\.0\d points", after("training, true labels", 3)[2])
    assert after("training, true labels", 4)[3] == "note 1"
    assert after("condition number", 4)[3] == "note 2"
    assert after("test, true labels", 3)[::2] == [_ABSENT, _ABSENT]
    assert re.fullmatch(r"12,34\d ± \d\.\d \(20 trials\)", after("condition number", 2)[1])
    assert after("no such number", 4) == ["0.500", f"{_ABSENT} ± {_ABSENT} (2 trials)", _ABSENT, "note 1"]
    assert after("seconds", 4) == ["60.0", "12.3 (1 trial)", f"{_MINUS}48", "note 1"]
    assert after("trials differ", 4) == ["1.00", "1.00 ± 0 (2 trials)", "0", "equal"]
    assert "Of 8 numbers stated in the paper" in page.text


def test_rows_share_a_note(page: _Page) -> None:
    assert page.text.count(_WHY) == 1
    assert page.links.count("#table1.1.1") == 3
    assert page.links.count("#table1.1.2") == 1


def test_a_difference_of_rounding_is_zero() -> None:
    row = compare("ζ", 0.1 + 0.2, 0.3, "because")
    assert (row["difference"], row["why"]) == (0.0, None)


def test_curves_that_coincide_all_stay_visible() -> None:
    curves = [series(f"curve {index}", [0, 1, 2], [1, 3, 2]) for index in range(5)]
    svg = draw(figure("same", "", [panel("", "x", "y", curves)]))
    dashes = re.findall(r"stroke-dasharray: ([\d.]+),([\d.]+); stroke-dashoffset: 0", svg)[:4]
    drawn, gaps = np.array(dashes, dtype=float).T
    np.testing.assert_allclose(
        drawn + gaps, 16.0
    )  # in step, so that the shorter dashes above leave the longer in sight
    np.testing.assert_allclose(drawn, 16.0 * np.array([0.8, 0.6, 0.4, 0.2]))


def test_svg_files_are_the_inlined_drawings(page: _Page, folder: Path) -> None:
    files = sorted((folder / "figures").iterdir())
    assert [file.name for file in files] == ["hostile.svg"] + [f"panels-{count}.svg" for count in range(1, 6)]
    for file in files:
        assert ET.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        prolog, drawing = file.read_text(encoding="utf-8").split("\n", 1)
        assert prolog == '<?xml version="1.0" encoding="utf-8"?>'
        assert "var(--" not in drawing  # a file by itself has no page that defines colours
        assert with_variables(drawing) in page.html


def test_each_colour_of_a_drawing_is_one_of_the_page(page: _Page) -> None:
    drawings = re.findall(r"<svg.*?</svg>", page.html, re.DOTALL)
    assert len(drawings) == 2 * 6
    used = set(re.findall(r"var\(--([\w-]+)\)", "".join(drawings)))
    defined = re.findall(r"--([\w-]+): #", page.html)
    assert {"ink", "card", "grid", "curve-1"} <= used
    assert all(defined.count(name) == 2 for name in used)  # in the light and in the dark scheme
    assert not re.findall(r' style="[^"]*#[0-9a-fA-F]{6}', "".join(drawings))


def test_json_holds_the_results_with_null_for_nan(folder: Path) -> None:
    text = (folder / "results.json").read_text(encoding="utf-8")
    assert "NaN" not in text
    loaded, given = json.loads(text), _results()
    assert {key: loaded[key] for key in ("version", "quick", "seed", "created")} == {
        key: given[key] for key in ("version", "quick", "seed", "created")
    }
    assert loaded["experiments"][2:] == given["experiments"][2:]
    rows = loaded["experiments"][0]["section"]["tables"][0]["rows"]
    assert rows[:-1] == given["experiments"][0]["section"]["tables"][0]["rows"][:-1]
    assert rows[-1]["ours"] is rows[-1]["difference"] is None


def test_same_results_give_the_same_files_also_from_json(folder: Path, tmp_path: Path) -> None:
    write_page(json.loads((folder / "results.json").read_text(encoding="utf-8")), tmp_path)
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 8
    for file in files:
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes()


def test_two_figures_of_one_name_are_refused(tmp_path: Path) -> None:
    twice = section("", "", figures=[_accuracies("one", 1), _accuracies("one", 1)])
    results = {**_results(), "experiments": [_experiment("again", "done", twice)]}
    with pytest.raises(ValueError, match="got 'one' twice"):
        write_page(results, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["matplotlib", "jinja2"])
def test_a_missing_library_is_named(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{module}: run pip install 'closefar\[paper\]'"):
        write_page(_results(), tmp_path)
    assert list(tmp_path.iterdir()) == []
