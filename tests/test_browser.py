"""Pages in a real browser: nothing is asked for, nothing complains, nothing overlaps, and what can be clicked works."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import closefar as cf
from browser import Browser, Page
from paper_estimator import PAPER
from test_report_page import _HOSTILE, _NAMES

_DESKTOP, _TABLET, _PHONE = 1280, 800, 390
_CASES = ["normal", "hostile", "tiny", "many columns", "rank 0", "held-out", "points"]

DATA = cf.datasets.make_pairs(900, 4, wrong_share=0.1, random_state=7)


@pytest.fixture(scope="module")
def pages(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {name: folder / f"{name}.html" for name in _CASES}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # some fits are bad on purpose
        for name, path in found.items():
            learner, given = _report(name)
            learner.report(path, **given)
    return found


def _report(name: str) -> tuple[cf.LinearMetricLearner, dict[str, Any]]:
    rng = np.random.default_rng(0)
    plain = cf.LinearMetricLearner()
    if name == "normal":
        ids = np.array([[f"patient {row}", f"patient {row + 1}"] for row in range(len(DATA.pairs))])
        return cf.LinearMetricLearner(**PAPER).fit(DATA.pairs, DATA.labels), {"ids": ids}
    if name == "hostile":
        names = [*_NAMES, "long words " * 30, "שלום עולם", "\N{GRINNING FACE} \N{WAVING BLACK FLAG}"]
        data = cf.datasets.make_pairs(500, len(names), wrong_share=0.1, random_state=7)
        labels = np.where(data.labels == 1, _HOSTILE, "<b>close</b>" * 9)
        learner = cf.LinearMetricLearner(far_label=_HOSTILE).fit(data.pairs, labels, feature_names=names)
        return learner, {"title": "</title><script>" + "T" * 300, "ids": np.full(500, _HOSTILE * 3)}
    if name == "tiny":
        return plain.fit(DATA.pairs[:20], DATA.labels[:20]), {}
    if name == "many columns":
        z = rng.normal(size=(200, 40))
        labels = np.where(np.sum(z[:, :3] ** 2, axis=1) + rng.normal(size=200) > 3, 1, -1)
        names = [f"measurement number {index}" for index in range(40)]
        return cf.LinearMetricLearner(alpha=0.1).fit(z, labels, feature_names=names), {}
    if name == "rank 0":
        nothing = cf.LinearMetricLearner(alpha=1.0, prior="zero", flip_rate=0.0)
        return nothing.fit(rng.normal(size=(100, 3)), rng.permutation([0, 1] * 50)), {}
    if name == "points":
        points = rng.normal(5.0, 1.0, size=(300, 2))
        labels = np.where(np.sum((points - 5.0) ** 2, axis=1) > rng.uniform(0.5, 3.0, 300), "out", "in")
        return cf.LinearMetricLearner(fit_origin=True, far_label="out").fit(points, labels), {}
    return plain.fit(DATA.pairs[:600], DATA.labels[:600]), {"X": DATA.pairs[600:], "y": DATA.labels[600:]}


@pytest.mark.parametrize("width", [_DESKTOP, _TABLET, _PHONE])
@pytest.mark.parametrize("name", _CASES)
def test_page_is_quiet_fits_and_overlaps_nowhere(
    browser: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    page = browser.open(pages[name], width=width)
    _check(page, pages[name])
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    _check(page, pages[name])
    page.close()


def _check(page: Page, path: Path) -> None:
    assert page.complaints() == []
    assert set(page.requests()) <= {path.resolve().as_uri(), "data:,"}
    assert page.overflow() <= 0
    assert page.overlaps() == []
    assert page.cut() == []


def test_the_checks_see_what_they_are_for(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text(
        "<!DOCTYPE html><p style='width: 3000px'>wide</p><img src='missing.png'>"
        "<p style='position: absolute; top: 5px; left: 5px'>above</p>"
        "<p style='position: absolute; top: 9px; left: 5px'>below</p>"
        "<svg width='50' height='20'><text x='40' y='15'>clipped</text></svg>"
        "<script>console.error(1); missing()</script>"
    )
    page = browser.open(path)
    assert page.overflow() > 1000
    assert any("above | below" in found for found in page.overlaps())
    assert any(address.endswith("missing.png") for address in page.requests())
    assert len(page.complaints()) >= 3
    assert any("clipped" in found for found in page.cut())
    page.close()


def test_dark_is_dark_and_paper_is_white(browser: Browser, pages: dict[str, Path]) -> None:
    brightness = (
        "(() => { const [r, g, b, a] = getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number);"
        " return a === 0 ? 255 : (r + g + b) / 3; })()"
    )
    page = browser.open(pages["normal"], dark=True)
    assert page.evaluate(brightness) < 50
    _check(page, pages["normal"])
    page.close()
    page = browser.open(pages["normal"], dark=True, print_view=True, width=720)
    assert page.evaluate(brightness) == 255
    assert page.evaluate("getComputedStyle(document.querySelector('.contents')).display") == "none"
    assert page.overlaps() == []
    assert page.cut() == []
    page.close()


def test_tables_that_are_cut_say_so(browser: Browser, pages: dict[str, Path]) -> None:
    hints = "[...document.querySelectorAll('.hint')].filter((hint) => hint.checkVisibility()).length"
    frames = "[...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth + 1)"
    for width in (_DESKTOP, _PHONE):
        page = browser.open(pages["many columns"], width=width)
        assert page.evaluate(hints) == page.evaluate(f"{frames}.length")
        assert page.evaluate(f"{frames}.every((each) => each.classList.contains('cut'))")
        assert (page.evaluate(hints) > 0) is (width == _PHONE)
        page.evaluate(f"{frames}.forEach((each) => {{ each.scrollLeft = 1e6; }})")
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert page.evaluate("document.querySelectorAll('.cut').length") == 0  # at the end nothing more is hidden
        page.close()


def test_marks_are_seen_in_light_and_dark(browser: Browser, pages: dict[str, Path]) -> None:
    colours = (
        "[...document.querySelectorAll('svg .marks:not(.ring)')].map((mark) => getComputedStyle(mark).stroke)"
        ".concat(getComputedStyle(document.querySelector('.card')).backgroundColor)"
    )
    for dark in (False, True):
        page = browser.open(pages["normal"], dark=dark)
        *marks, card = page.evaluate(colours)
        assert len(set(marks)) == 7  # five shades, close and far
        assert card not in marks
        page.close()


def test_page_prints_with_what_is_folded(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["normal"])
    page.evaluate(
        "addEventListener('beforeprint', () => { window.open_then = document.querySelectorAll('[open]').length; })"
    )
    pdf = page.pdf()
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 20_000
    assert page.evaluate("window.open_then") == page.evaluate("document.querySelectorAll('details').length")
    assert page.evaluate("document.querySelectorAll('[open]').length") == 0
    assert page.complaints() == []
    page.close()


def test_headings_sort_the_suspicious_pairs(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["normal"])
    heads = page.evaluate("[...document.querySelectorAll('.sortable th')].map((each) => each.textContent)")
    assert heads == ["first", "second", "label", "margin", "std. error", "P(wrong)"]
    column = heads.index("margin")
    for direction in ("ascending", "descending"):
        page.evaluate(f"document.querySelectorAll('.sortable th button')[{column}].click()")
        cells = f"document.querySelectorAll('.sortable td:nth-child({column + 1})')"
        values = page.evaluate(f"[...{cells}].map((cell) => Number(cell.dataset.value))")
        assert len(values) == 25
        assert values == sorted(values, reverse=direction == "descending")
        states = page.evaluate("[...document.querySelectorAll('.sortable th')].map((each) => each.ariaSort)")
        assert states == [direction if index == column else "none" for index in range(len(heads))]
    page.evaluate("document.querySelectorAll('.sortable th button')[0].focus()")
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    names = page.evaluate("[...document.querySelectorAll('.sortable td:first-child')].map((cell) => cell.textContent)")
    assert names == sorted(names, key=lambda name: int(name.split()[1]))
    assert page.complaints() == []
    page.close()


def test_code_is_copied(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["normal"])
    browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    page.evaluate("document.querySelector('.copy').click()")
    page.evaluate(
        "new Promise((done) => { const watch = () => document.querySelector('.copy').textContent === 'Copy'"
        " ? setTimeout(watch, 10) : done(); watch(); })"
    )
    assert page.evaluate("document.querySelector('.copy').textContent") == "Copied"
    code = page.evaluate("document.querySelector('.code code').textContent")
    assert page.evaluate("navigator.clipboard.readText()") == code
    page.evaluate("navigator.clipboard.writeText = () => Promise.reject(new Error('denied'))")
    assert page.evaluate("copy('by hand')") is True
    assert page.evaluate("navigator.clipboard.readText()") == "by hand"
    assert page.complaints() == []
    page.close()


def test_page_reads_without_scripts(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["normal"], scripts=False)
    assert page.evaluate("document.querySelectorAll('button').length") == 0
    assert page.evaluate("document.querySelectorAll('.sortable tbody tr').length") == 25
    assert page.overlaps() == []
    page.close()
