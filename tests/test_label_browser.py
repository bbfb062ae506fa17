"""Judging in a real browser against the real server: nothing is lost or doubled, and everybody can use the pages."""

from __future__ import annotations

import json
import re
import struct
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from browser import Browser, Page
from closefar.label import ANSWERS, TaskKind
from label_client import PAIRS
from label_server import Served, Site, serving
from test_report_page import _HOSTILE

_PHONE = 390
_GUARD = 0.27  # seconds in which a new question takes no answer
_AWAY = "Failed to load resource: net::ERR_"  # what a browser notes of a server that is away

_IDS = "[...document.querySelectorAll('#things thead .id')].map((each) => each.textContent).join('|')"
_TEXT = "document.querySelector('#{}').textContent"
_SAVED = _TEXT.format("saved")
_PROGRESS = _TEXT.format("progress")


def _table(n: int = 60) -> str:
    rng = np.random.default_rng(5)
    rows = [
        f"p{row},{rng.integers(20, 90)},{rng.normal(70, 12):.1f},{rng.choice(['true', 'false'])},"
        f"{rng.choice(['north', 'south', 'east'])}\n"
        for row in range(n)
    ]
    return "id,age,mass,smoker,ward\n" + "".join(rows)


def _process(folder: Path, *options: str) -> Served:
    """A server in a process of its own."""
    table = folder / "points.csv"
    table.write_text(_table())
    return Served(table, folder / "judgements.sqlite", *options)


def _enter(browser: Browser, served: Site, name: str = "owner", **options: Any) -> Page:
    """The page of somebody, with cookies and storage of their own."""
    options.setdefault("person", browser.new_person())
    page = browser.open(served.addresses[name], **options)
    page.wait_for("document.querySelector('#page:not([hidden])')")
    if _path(page) == "/":
        page.wait_for(f"{_IDS}.length > 0")
    return page


def _path(page: Page) -> str:
    path: str = page.evaluate("location.pathname")
    return path


def _ids(page: Page) -> tuple[str, ...]:
    return tuple(page.evaluate(_IDS).split("|"))


def _answer(page: Page, key: str) -> tuple[str, ...]:
    """Answer by a key, wait for the next question, and return the ids of what was answered."""
    page.wait_for(f"{_IDS}.length > 0")
    time.sleep(_GUARD)
    before = _ids(page)
    page.press(key)
    page.wait_for(f"{_IDS} !== {json.dumps('|'.join(before))}")
    return before


def _check_quiet(page: Page, served: Site, *, may_be_away: bool = False) -> None:
    complaints = [each for each in page.complaints() if not (may_be_away and each.startswith(_AWAY))]
    assert complaints == []
    assert [each for each in page.requests() if not each.startswith((served.base, "about:"))] == []


# ---- judging


def test_sixty_answers_by_keyboard_with_undo_reload_and_a_server_that_dies(browser: Browser, tmp_path: Path) -> None:
    words = {"c": "close", "f": "far", " ": None, "ArrowLeft": "close", "ArrowRight": "far", "u": None}
    given: list[tuple[str | None, ...]] = []
    with _process(tmp_path, "--question", "Alike?") as served:
        page = _enter(browser, served)
        assert page.evaluate("location.hash") == ""
        assert page.evaluate("document.querySelector('#question').textContent") == "Alike?"

        def judge(n: int) -> None:
            for at in range(n):
                key = list(words)[(len(given) + at) % len(words)] if n > 1 else "c"
                given.append((*_answer(page, key), words[key]))

        judge(20)
        page.press("z")
        last = given.pop()
        page.wait_for(f"{_IDS} === {json.dumps('|'.join(map(str, last[:2])))}")
        judge(1)
        before = _ids(page)
        page.reload()
        page.wait_for(f"{_IDS} === {json.dumps('|'.join(before))}")  # the same question again
        page.wait_for(f"{_PROGRESS}.startsWith('20 answers')")
        assert served.said() == given

        served.kill()
        judge(2)
        page.wait_for(f"{_SAVED} === '2 answers are kept here until the server is back.'")
        time.sleep(_GUARD)
        page.press("Backspace")  # undo needs no server either
        given.pop()
        judge(1)
        served.start()
        page.wait_for(f"{_SAVED} === 'All answers are saved.'")
        page.wait_for(f"{_IDS}.length > 0")
        assert served.said() == given

        judge(38)
        page.wait_for(f"{_PROGRESS}.startsWith('60 answers')")
        assert served.said() == given
        assert len({each[:2] for each in given}) == 60
        _check_quiet(page, served, may_be_away=True)
        page.close()


def test_an_answer_whose_acknowledgement_is_lost_is_recorded_once(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, _table()) as served:
        page = _enter(browser, served)
        first = _answer(page, "c")
        page.call("Fetch.enable", patterns=[{"urlPattern": "*/api/events", "requestStage": "Response"}])
        time.sleep(_GUARD)
        second = _ids(page)
        page.press("f")
        lost = 0
        while lost < 3:  # the server has recorded it each time, and the page never hears of it
            browser.wait(lambda: any(each["method"] == "Fetch.requestPaused" for each in page.events()))
            for event in page.take("Fetch.requestPaused"):
                page.call("Fetch.failRequest", requestId=event["params"]["requestId"], errorReason="ConnectionReset")
                lost += 1
        page.wait_for(f"{_SAVED} === '1 answer is kept here until the server is back.'")
        page.call("Fetch.disable")
        page.wait_for(f"{_SAVED} === 'All answers are saved.'")
        assert served.said() == [(*first, "close"), (*second, "far")]
        page.close()


def test_an_answer_survives_a_server_that_hangs_and_a_page_that_is_loaded_again(
    browser: Browser, tmp_path: Path
) -> None:
    with _process(tmp_path) as served:
        page = _enter(browser, served)
        first = _answer(page, "c")
        served.halt()
        second = _answer(page, "f")  # goes on after a second without an acknowledgement
        assert page.evaluate(_SAVED) == "1 answer is kept here until the server is back."
        assert len(page.evaluate("Object.keys(localStorage).filter((name) => name.includes('outbox'))")) == 1
        served.kill()
        served.start()
        page.reload()
        page.wait_for(f"{_IDS}.length > 0")
        page.wait_for(f"{_SAVED} === 'All answers are saved.'")
        assert page.evaluate("Object.keys(localStorage).filter((name) => name.includes('outbox'))") == []
        assert served.said() == [(*first, "close"), (*second, "far")]
        assert _ids(page) not in (first, second)
        time.sleep(_GUARD)
        page.press("z")  # the last answer before the page was loaded
        page.wait_for(f"{_IDS} === {json.dumps('|'.join(second))}")
        assert served.said() == [(*first, "close")]
        _check_quiet(page, served, may_be_away=True)
        page.close()


def test_going_offline_and_back(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, _table()) as served:
        page = _enter(browser, served)
        page.go_offline()
        given = [_answer(page, "c"), _answer(page, "f")]
        time.sleep(_GUARD)
        given.append(_ids(page))
        page.press("c")
        page.wait_for("document.querySelector('#things .empty')")  # three were held; the server has the rest
        page.wait_for(f"{_SAVED} === '3 answers are kept here until the server is back.'")
        assert page.evaluate("getComputedStyle(document.querySelector('#answers')).visibility") == "hidden"
        assert len(served.recorded().answer) == 0
        page.go_offline(False)
        page.wait_for(f"{_SAVED} === 'All answers are saved.' && {_IDS}.length > 0")
        assert served.said() == [(*ids, answer) for ids, answer in zip(given, ("close", "far", "close"), strict=True)]
        page.close()


def test_a_double_press_is_one_answer(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, _table()) as served:
        page = _enter(browser, served)

        def after(act: Any) -> int:
            time.sleep(_GUARD)
            before = page.evaluate(_IDS)
            act()
            page.wait_for(f"{_IDS} !== {json.dumps(before)}")
            time.sleep(_GUARD)
            return len(served.recorded().answer)

        assert after(lambda: [page.press("c"), page.press("c")]) == 1
        assert after(lambda: page.press("f", held=True)) == 2
        assert after(lambda: page.click("[data-answer=close]", times=2)) == 3
        page.evaluate("document.querySelector('[data-answer=far]').focus()")
        assert after(lambda: page.press("Enter", held=True)) == 4
        assert page.evaluate("document.activeElement.dataset.answer") == "far"
        assert after(lambda: page.press(" ")) == 5  # on a button the space bar presses that button
        assert [each[-1] for each in served.said()] == ["close", "far", "close", "far", "far"]
        page.evaluate("location.reload()")
        page.close()


def test_keys_are_left_alone_where_they_mean_something_else(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, _table()) as served:
        page = _enter(browser, served)
        time.sleep(_GUARD)
        shown = _ids(page)
        page.press("c", modifiers=2)  # Ctrl-C copies
        page.press("x")
        page.evaluate("document.querySelector('#page main').prepend(document.createElement('input'))")
        page.evaluate("document.querySelector('#page main input').focus()")
        page.press("f")
        assert page.evaluate("document.querySelector('#page main input').value") == "f"
        page.evaluate("document.querySelector('#page main input').remove()")
        page.evaluate("document.querySelector('#keys-on').click()")
        page.press("c")
        time.sleep(_GUARD)
        assert _ids(page) == shown
        page.evaluate("document.querySelector('#keys-on').click()")
        page.evaluate("document.activeElement.blur()")
        _answer(page, "C")
        assert [each[-1] for each in served.said()] == ["close"]
        page.close()


def test_the_second_tab_takes_over(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, _table()) as served:
        person = browser.new_person()
        old = _enter(browser, served, person=person)
        _answer(old, "c")
        new = _enter(browser, served, person=person)
        old.wait_for("document.querySelector('#things').textContent.includes('another tab')")
        old.press("c")
        _answer(new, "f")
        assert [each[-1] for each in served.said()] == ["close", "far"]
        old.click("#things button")
        old.wait_for(f"{_IDS}.length > 0")
        new.wait_for("document.querySelector('#things').textContent.includes('another tab')")
        _answer(old, "c")
        assert len(served.said()) == 3
        old.close()
        new.close()


def test_answers_stay_with_who_gave_them_if_another_one_enters(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, _table(), annotators=("ana", "ben")) as served:
        person = browser.new_person()
        ana = _enter(browser, served, "ana", person=person)
        ben = _enter(browser, served, "ben", person=person)  # the cookie is Ben's from here on
        kept = _answer(ana, "c")
        ana.wait_for(f"{_SAVED}.includes('kept here until you open your own address again')")
        _answer(ben, "f")
        assert Counter(served.recorded().annotator) == {"ben": 1}
        again = _enter(browser, served, "ana", person=person)
        again.wait_for(f"{_SAVED} === 'All answers are saved.'")
        again.wait_for(f"{_PROGRESS}.startsWith('1 answer')")
        assert (*kept, "close") in served.said()
        assert Counter(served.recorded().annotator) == {"ben": 1, "ana": 1}
        for page in (ana, ben, again):
            page.close()


def test_two_annotators_at_once(browser: Browser, tmp_path: Path) -> None:
    with _process(tmp_path, "--annotators", "ana,ben", "--shared-share", "0") as served:
        pages = {name: _enter(browser, served, name) for name in ("ana", "ben")}
        given = {name: [] for name in pages}
        for _ in range(15):
            for name, page in pages.items():
                given[name].append(_answer(page, "c" if name == "ana" else "f"))
        found = served.recorded()
        for name, page in pages.items():
            own = [
                (str(found.ids[found.first[row]]), str(found.ids[found.second[row]]))
                for row in np.flatnonzero(found.annotator == name)
            ]
            assert sorted(own) == sorted(given[name])
            page.wait_for(f"{_PROGRESS}.startsWith('15 answers')")
            assert page.evaluate("document.querySelector('#to-overview').checkVisibility()") is False
            _check_quiet(page, served)
            page.close()
        assert not set(given["ana"]) & set(given["ben"])


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_everything_and_is_touched(browser: Browser, tmp_path: Path, dark: bool) -> None:
    with serving(tmp_path, _table(), question="Would you treat these two patients alike?") as served:
        page = _enter(browser, served, width=_PHONE, touch=True, dark=dark)
        boxes = page.evaluate(
            "[...document.querySelectorAll('#things tr, #panel button:not([hidden])')]"
            ".map((each) => each.getBoundingClientRect())"
            ".map(({ top, bottom, left, right, height }) => ({ top, bottom, left, right, height }))"
        )
        assert len(boxes) == 5 + 4
        assert all(box["top"] >= 0 and box["left"] >= 0 and box["right"] <= _PHONE for box in boxes)
        assert all(box["bottom"] <= 900 for box in boxes)
        assert all(box["height"] >= 44 for box in boxes[-4:])  # large enough for a thumb
        assert page.evaluate("document.querySelector('#panel kbd').checkVisibility()") is False
        for answer in ("close", "far"):
            time.sleep(_GUARD)
            before = page.evaluate(_IDS)
            page.tap(f"[data-answer={answer}]")
            page.wait_for(f"{_IDS} !== {json.dumps(before)}")
        assert [each[-1] for each in served.said()] == ["close", "far"]
        time.sleep(_GUARD)
        page.tap("#undo")
        page.wait_for(f"{_PROGRESS}.startsWith('1 answer')")
        _check_fits(page)
        _check_quiet(page, served)
        assert (_brightness(page) < 50) is dark
        page.close()


def _brightness(page: Page) -> float:
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number)")
    return sum(colour[:3]) / 3


def _check_fits(page: Page) -> None:
    """Nothing is wider than the window, and no text lies on another, what scrolls under the answers aside."""
    assert page.overflow() <= 0
    page.evaluate("document.querySelector('#panel')?.style.setProperty('position', 'static')")
    assert page.overlaps() == []
    assert page.cut() == []
    page.evaluate("document.querySelector('#panel')?.style.removeProperty('position')")


def test_levels_have_a_key_each(browser: Browser, tmp_path: Path) -> None:
    with serving(
        tmp_path, _table(), kind=TaskKind.levels, answers=("identical", "similar", "related", "unrelated")
    ) as served:
        page = _enter(browser, served)
        words = page.evaluate(
            "[...document.querySelectorAll('.answer')]"
            ".map((each) => [...each.children].map((part) => part.textContent))"
        )
        assert words == [
            ["identical", "closest", "1"],
            ["similar", "2"],
            ["related", "3"],
            ["unrelated", "farthest", "4"],
        ]
        given = [(*_answer(page, key), word) for key, word in (("1", "identical"), ("4", "unrelated"), ("u", None))]
        time.sleep(_GUARD)
        page.press("5")
        assert served.said() == given
        _check_quiet(page, served)
        page.close()


def test_triplets_say_which_side_is_nearer(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, _table(), kind=TaskKind.triplets, answers=ANSWERS[TaskKind.triplets]) as served:
        page = _enter(browser, served)
        heads = "[...document.querySelectorAll('#things .head')].map((each) => each.textContent)"
        assert page.evaluate(heads) == ["Left", "Reference", "Right"]
        given = []
        for key, word in (("ArrowLeft", "left"), ("2", "right"), ("1", "left"), (" ", None)):
            left, reference, right = _answer(page, key)
            given.append((reference, left, right, word))
        assert served.said() == given
        _check_fits(page)
        _check_quiet(page, served)
        page.close()


def test_all_pairs_of_a_small_table_are_judged(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, _table(3)) as served:
        page = _enter(browser, served)
        _answer(page, "c")
        _answer(page, "f")
        time.sleep(_GUARD)
        page.press("c")
        page.wait_for("document.querySelector('#things').textContent.includes('Every question')")
        assert len(served.said()) == 3
        page.press("z")
        page.wait_for(f"{_IDS}.length > 0 && {_SAVED} === 'All answers are saved.'")
        assert len(served.said()) == 2
        page.close()


def test_a_rest_is_suggested_after_a_long_time(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, _table()) as served:
        page = _enter(browser, served)
        page.evaluate("(() => { const now = Date.now; window.later = 0; Date.now = () => now() + window.later; })()")
        hint = "document.querySelector('#rest').checkVisibility()"
        for minutes in range(0, 29, 4):
            page.evaluate(f"window.later = {60_000 * minutes}")
            assert page.evaluate(hint) is False
            _answer(page, "c")
        assert page.evaluate(hint) is True
        assert "28 minutes" in page.evaluate("document.querySelector('#rest-text').textContent")
        page.click("#rested")
        _answer(page, "c")
        assert page.evaluate(hint) is False
        page.close()


# ---- what is shown


def _picture(colour: tuple[int, int, int]) -> bytes:
    """A PNG of 40 x 30 pixels in one colour."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    rows = (b"\0" + bytes(colour) * 40) * 30
    head = struct.pack(">IIBBBBB", 40, 30, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def _pictures(page: Page) -> set[str]:
    return {each for each in page.requests() if "/files/" in each}


def test_pictures_links_and_long_texts(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    lines = ["id,age,photo,page,notes"]
    for row in range(20):
        (tmp_path / "photos" / f"{row}.png").write_bytes(_picture((12 * row, 90, 200)))
        lines.append(f"p{row},{20 + row},photos/{row}.png,https://example.org/{row},{'Some words about it. ' * 40}")
    with serving(tmp_path, "\n".join(lines) + "\n", show=("photo", "page", "notes")) as served:
        page = _enter(browser, served)
        sizes = "[...document.querySelectorAll('#things img')].map((image) => image.naturalWidth)"
        page.wait_for(f"{sizes}.join() === '40,40'")
        assert "of p" in page.evaluate("document.querySelector('#things img').alt")
        needed = {str(row) for things in served.handed() for row in things}  # those of the next questions, too
        browser.wait(lambda: {urlsplit(each).path.split("/")[2] for each in _pictures(page)} == needed)
        loaded = _pictures(page)
        _answer(page, "c")
        shown = page.evaluate("[...document.querySelectorAll('#things img')].map((image) => image.src)")
        assert set(shown) <= loaded
        links = page.evaluate(
            "[...document.querySelectorAll('#things td a:not(.image)')].map((a) => [a.href, a.rel, a.target])"
        )
        assert all(href.startswith("https://example.org/") for href, _, _ in links)
        assert [rest for _, *rest in links] == [["noopener noreferrer", "_blank"]] * 2
        for width in (1280, _PHONE):
            page.resize(width)
            _check_fits(page)
        assert page.evaluate(
            "document.querySelector('.long').scrollHeight > document.querySelector('.long').clientHeight"
        )
        _check_quiet(page, served)
        assert _axe(page) == []
        page.close()


def test_a_picture_that_is_not_there_is_named(browser: Browser, tmp_path: Path) -> None:
    table = "id,age,photo\n" + "".join(f"p{row},{row},gone/{row}.png\n" for row in range(9))
    with serving(tmp_path, table, show=("photo",)) as served:
        page = _enter(browser, served)
        page.wait_for("document.querySelector('#things a.image') === null")
        assert "t be shown: gone/" in page.evaluate("document.querySelector('#things td .missing').textContent")
        page.close()


_ATTACK = "<img src=x onerror=window.hacked=1>"


def test_hostile_names_do_nothing_and_fit(browser: Browser, tmp_path: Path) -> None:
    hostile = [_HOSTILE, _ATTACK, "L" * 300, "\u202ebackwards", "javascript:window.hacked=1", "שלום עולם"]
    quoted = ['"' + name.replace('"', '""') + '"' for name in hostile]
    rows = [
        ",".join([f'"{_ATTACK}{row}{"W" * 60}"', *(str(row * at % 7) for at in range(1, 6)), quoted[row % 6]])
        for row in range(30)
    ]
    table = ",".join(["id", *quoted]) + "\n" + "\n".join(rows) + "\n"
    texts = {"question": _HOSTILE, "instructions": _ATTACK}
    with serving(tmp_path, table, show=("שלום עולם",), annotators=("ana", "ben"), **texts) as served:
        for width in (1280, _PHONE):
            page = _enter(browser, served, "ana", width=width)
            assert page.evaluate("document.querySelector('#question').textContent") == _HOSTILE
            assert page.evaluate("document.querySelector('#instructions-text').textContent") == _ATTACK
            for _ in range(4):
                _answer(page, "c")
                _check_fits(page)
            assert page.evaluate("document.querySelectorAll('#things img, #things script').length") == 0
            assert page.evaluate("window.hacked") is None
            _check_quiet(page, served)
            assert _axe(page) == []
            page.close()


def test_forty_columns(browser: Browser, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    names = [f"measurement number {at}" for at in range(40)]
    rows = [",".join([f"p{row}", *(f"{value:.4g}" for value in rng.normal(size=40))]) for row in range(30)]
    with serving(tmp_path, ",".join(["id", *names]) + "\n" + "\n".join(rows) + "\n") as served:
        for width in (1280, _PHONE):
            page = _enter(browser, served, width=width)
            assert page.evaluate("document.querySelectorAll('#things tbody tr').length") == 40
            bottom = page.evaluate("document.querySelector('#panel').getBoundingClientRect().bottom")
            assert bottom <= 900  # the answers stay in reach
            _check_fits(page)
            page.close()


# ---- everybody


def _axe(page: Page) -> list[str]:
    """The serious and critical findings of axe-core; the policy of the page allows no script tag, a debugger may."""
    page.evaluate(resources.files("axe_core_python").joinpath("axe.min.js").read_text() + ";undefined")
    page.evaluate("Promise.all(document.getAnimations().map((each) => each.finished)).then(() => true)")
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations)")
    return [
        f"{each['id']}: {node['html']}"
        for each in found
        for node in each["nodes"]
        if each["impact"] in ("serious", "critical")
    ]


def test_axe_sees_what_it_is_for(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text("<!DOCTYPE html><html lang='en'><title>x</title><p style='color: #bbb'>pale</p><img src='data:,'>")
    page = browser.open(path)
    assert {each.partition(":")[0] for each in _axe(page)} == {"color-contrast", "image-alt"}
    page.close()


@pytest.mark.parametrize("dark", [False, True])
def test_judging_is_accessible_in_every_state(browser: Browser, tmp_path: Path, dark: bool) -> None:
    with serving(tmp_path, _table(), instructions="Think of the treatment.\nTake your time.") as served:
        person = browser.new_person()
        stranger = browser.open(f"{served.base}/", dark=dark, person=person)
        stranger.wait_for("document.querySelector('#entrance').checkVisibility()")
        assert "Open the address" in stranger.evaluate("document.querySelector('#entrance').textContent")
        assert _axe(stranger) == []
        stranger.close()
        wrong = browser.open(f"{served.base}/#{'x' * 43}", dark=dark, person=person)
        wrong.wait_for("document.querySelector('#entrance').textContent.includes('not valid')")
        assert wrong.evaluate("location.href") == f"{served.base}/"
        wrong.close()

        page = _enter(browser, served, person=person, dark=dark)
        assert page.evaluate("document.querySelector('#instructions').open") is True
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert _axe(page) == []
        assert page.evaluate(_TEXT.format("spoken")).startswith(PAIRS.question)
        page.reload()
        page.wait_for(f"{_IDS}.length > 0")
        assert page.evaluate("document.querySelector('#instructions').open") is False  # once is enough
        page.go_offline()
        _answer(page, "c")
        assert page.evaluate(_TEXT.format("saved-spoken")) == "1 answer is kept here until the server is back."
        assert _axe(page) == []
        other = _enter(browser, served, person=person, dark=dark)
        page.wait_for("document.querySelector('#things button')")
        assert _axe(page) == []
        page.close()
        other.close()


def test_the_keyboard_reaches_everything_in_the_order_of_the_page(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, _table(), instructions="Think.") as served:
        page = _enter(browser, served)
        _answer(page, "c")
        page.wait_for("!document.querySelector('#undo').disabled")
        order = []
        for _ in range(7):
            page.press("Tab")
            order.append(
                page.evaluate("(() => { const at = document.activeElement; return at.id || at.textContent.trim(); })()")
            )
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        assert order[:6] == ["to-overview", "Instructions", "CloseC", "FarF", "unsure", "undo"]
        assert order[6] == "Keys"
        page.close()


# ---- what was learned


def _distance(things: Sequence[dict[str, Any]]) -> float:
    """How far two things are apart for those who answer here: by age and mass."""
    values = [[float(cell["text"]) for cell in thing["cells"] if cell["name"] in ("age", "mass")] for thing in things]
    return float(np.hypot((values[0][0] - values[1][0]) / 20, (values[0][1] - values[1][1]) / 12))


@pytest.fixture(scope="module")
def learned(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with the answers of two people, some of them plainly wrong, and what was learned from them."""
    folder = tmp_path_factory.mktemp("learned")
    options = ("--annotators", "ana,ben", "--random-share", "0.4", "--shared-share", "0.4")
    with _process(folder, *options) as served:
        owner, *judges = (served.client(name) for name in ("owner", "ana", "ben"))
        counts = Counter[str]()

        def answer(name: str, things: Sequence[dict[str, Any]]) -> str:
            counts[name] += 1
            distance = _distance(things)
            is_wrong = name == "ana" and counts[name] % 8 == 0 and not 0.7 < distance < 2.5
            return "far" if (distance > 1.5) is not is_wrong else "close"

        def judge(n: int) -> None:
            for client, name in zip(judges, ("ana", "ben"), strict=True):
                for _ in range(n):
                    (question,) = client.questions(1)
                    assert client.answer(question["id"], answer(name, question["things"]))["recorded"]

        for _ in range(6):
            judge(12)
        end = time.monotonic() + 120
        while time.monotonic() < end:
            found = owner.get("/api/findings").json
            if found.get("n_answers", 0) >= 130 and found["quality"] and len(found["curve"]) > 1:
                break
            time.sleep(1.0)
            judge(1)
        assert found["quality"] is not None, found
        yield served


# The rows of the dots that lie under no other one.
_UNCOVERED = """
[...document.querySelectorAll(".spot")].filter((spot) => {
  const box = spot.getBoundingClientRect();
  return document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2) === spot;
}).map((spot) => spot.dataset.row)
"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, _PHONE])
def test_the_overview_shows_what_was_learned(browser: Browser, learned: Site, width: int, dark: bool) -> None:
    page = _enter(browser, learned, "owner", width=width, dark=dark)
    assert _path(page) == "/overview"
    page.wait_for("document.querySelectorAll('.spot').length === 60")
    assert page.evaluate("document.querySelectorAll('#quality svg .curve').length") == 1
    assert page.evaluate("document.querySelectorAll('#quality svg .baseline').length") == 1
    assert page.evaluate("document.querySelectorAll('#directions li').length") > 0
    names = page.evaluate("[...document.querySelectorAll('#annotators tbody th')].map((each) => each.textContent)")
    assert sorted(names) == ["ana", "ben"]
    doubts = page.evaluate("[...document.querySelectorAll('#doubtful li')].map((each) => each.textContent)")
    told = r"p\d+ and p\d+: (ana|ben) said (close|far); the metric says (more than )?\d\d% (close|far)\."
    assert doubts
    assert all(re.fullmatch(told, each) for each in doubts)
    page.evaluate("document.querySelector('#map').scrollIntoView()")
    first, second = page.evaluate(_UNCOVERED)[:2]
    page.point_at(f".spot[data-row='{first}']")
    page.wait_for(f"document.querySelector('#thing h3')?.textContent === 'p{first}'")
    page.click(f".spot[data-row='{second}']")
    page.wait_for(f"document.querySelector('#thing h3')?.textContent === 'p{second}'")
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    names = page.evaluate("[...document.querySelectorAll('#map-table tbody th')].map((each) => each.textContent)")
    assert names == [f"p{row}" for row in range(60)]
    page.evaluate("document.querySelectorAll('#map-table button')[5].click()")
    row = page.evaluate("document.querySelector('.spot.chosen').dataset.row")
    page.wait_for(f"document.querySelector('#thing h3').textContent === 'p{row}'")
    _check_fits(page)
    assert _axe(page) == []
    _check_quiet(page, learned)
    page.close()


def test_the_overview_follows_without_being_drawn_anew(browser: Browser, learned: Site) -> None:
    page = _enter(browser, learned, "owner")
    page.wait_for("document.querySelectorAll('.spot').length === 60")
    page.evaluate("window.before = [...document.querySelectorAll('.spot, #counts div, #annotators table')]")
    page.evaluate("window.words = window.before.map((each) => each.textContent)")
    n_polls = sum(each.endswith("/api/findings") for each in page.requests())
    browser.wait(lambda: sum(each.endswith("/api/findings") for each in page.requests()) > n_polls + 1)
    now = "[...document.querySelectorAll('.spot, #counts div, #annotators table')]"
    same = f"{now}.every((each, at) => each === window.before[at] || each.textContent !== window.words[at])"
    assert page.evaluate(f"{now}.length === window.before.length && {same}")  # only what says something else is new
    page.close()


def test_doubtful_answers_are_looked_at_again(browser: Browser, learned: Site) -> None:
    page = _enter(browser, learned, "ana")
    page.wait_for("document.querySelectorAll('#doubtful li').length > 0")
    n = page.evaluate("document.querySelectorAll('#doubtful li').length")
    reading = page.evaluate("document.querySelector('#doubtful li span').textContent")
    before = _ids(page)
    n_answers = len(learned.said())
    page.click("#doubtful button")
    page.wait_for(f"document.querySelector('#notice').textContent.startsWith({json.dumps(reading)})")
    assert _axe(page) == []
    reviewed = _ids(page)
    page.press("Escape")  # as it was
    page.wait_for(f"{_IDS} === {json.dumps('|'.join(before))}")
    page.wait_for(f"document.querySelectorAll('#doubtful li').length === {n} - 1 || {n} >= 5")
    assert len(learned.said()) == n_answers
    if n > 1:
        page.click("#doubtful button")
        page.wait_for("document.querySelector('#notice').checkVisibility()")
        reviewed = _ids(page)
        said = "close" if "said far" in page.evaluate("document.querySelector('#notice').textContent") else "far"
        _answer(page, said[0])
        page.wait_for(f"{_SAVED} === 'All answers are saved.'")
        assert len(learned.said()) == n_answers  # replaced, not added
        assert (*reviewed, said) in learned.said()
    _check_quiet(page, learned)
    page.close()


def test_the_overview_says_what_is_missing(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, _table()) as served:
        page = _enter(browser, served)
        page.click("#to-overview")
        page.wait_for("document.querySelector('#map')?.textContent.includes('after the first fit')")
        for part in ("quality", "plan", "directions", "doubtful", "annotators"):
            assert page.evaluate(f"document.querySelector('#{part}').textContent").endswith(".")
        assert _axe(page) == []
        _check_fits(page)
        _check_quiet(page, served)
        page.close()
