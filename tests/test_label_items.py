"""Things as the page shows them: values in words and in their range, differences that add up, and only safe links."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from closefar.label.server import render_items


@dataclass(frozen=True, eq=False)
class _Points:
    columns: dict[str, Any]
    shown: tuple[str, ...] = ()

    @property
    def ids(self) -> np.ndarray:
        return np.array(["a", "b", "c"], dtype=object)


class _Many(_Points):
    @property
    def ids(self) -> np.ndarray:
        return np.arange(len(next(iter(self.columns.values())))).astype(str)


def _texts(*values: str | None) -> np.ndarray:
    return np.array(values, dtype=object)


def _cells(column: np.ndarray, name: str = "x", *, shown: bool = False, rows: tuple[int, ...] = (0, 1)) -> list[dict]:
    points = _Points({name: column}, (name,) if shown else ())
    return [thing["cells"][0] for thing in render_items(points, rows)]


def test_numbers_have_a_place_in_the_range_of_their_column() -> None:
    first, second = _cells(np.array([20.0, 25.0, 40.0]))
    assert (first["kind"], first["text"], first["place"]) == ("number", "20", 0.0)
    assert (second["text"], second["place"]) == ("25", 0.25)
    assert (first["difference"], second["difference"]) == (None, "5 higher")


@pytest.mark.parametrize(
    ("values", "text", "difference"),
    [
        ((37.316, 37.914, 39.0), "37.91", "0.59 higher"),
        ((124.63, 131.02, 160.0), "131.0", "6.4 higher"),
        ((37.2, 35.9, 38.0), "35.9", "1.3 lower"),
        ((0.1234567, 0.1234567, 0.1234567), "0.123457", None),
        ((2019.0, 2020.0, 1990.0), "2020", "1 higher"),
        ((2.0, -0.001, 9.5), "0.00", "2.00 lower"),
        ((16834.0, -5517.0, 0.0), "\N{MINUS SIGN}5517", "22,351 lower"),
        ((1e-9, 3e-9, 0.0), "3e\N{MINUS SIGN}09", "2e\N{MINUS SIGN}09 higher"),
        ((1e300, -1e300, 0.0), "\N{MINUS SIGN}1e+300", "2e+300 lower"),
    ],
    ids=[
        "hundredths",
        "tenths",
        "as many decimals as there are",
        "constant",
        "years",
        "no minus zero",
        "thousands",
        "tiny",
        "huge",
    ],
)
def test_differences_add_up_with_what_is_shown(values: tuple[float, ...], text: str, difference: str | None) -> None:
    first, second = _cells(np.array(values))
    assert (second["text"], second["difference"]) == (text, difference)
    assert 0.0 <= second["place"] <= 1.0
    assert 0.0 <= first["place"] <= 1.0


def test_differences_of_numbers_are_marked_from_the_usual_one_on() -> None:
    """Of 20, 25 and 40, two differ by 5, 15 and 20: by 15 at the median."""
    ages = np.array([20.0, 25.0, 40.0])
    for rows, is_marked, words in (
        ((0, 1), False, "5 higher"),
        ((1, 2), True, "15 higher"),
        ((2, 0), True, "20 lower"),
    ):
        first, second = _cells(ages, rows=rows)
        assert first["differs"] is second["differs"] is is_marked
        assert second["difference"] == words


def test_about_half_of_the_differences_of_numbers_are_marked() -> None:
    values = np.random.default_rng(0).lognormal(size=2000)
    points = _Many({"x": values})
    marked = [render_items(points, [row, row + 1])[0]["cells"][0]["differs"] for row in range(0, 2000, 2)]
    assert 0.45 < np.mean(marked) < 0.55


@pytest.mark.parametrize("share", [0.03, 0.5], ids=["rare ones", "as many ones"])
def test_two_numbers_that_stand_for_yes_and_no_are_marked(share: float) -> None:
    values = (np.arange(1000) < 1000 * share).astype(float)
    points = _Many({"x": values})
    assert render_items(points, [0, 999])[1]["cells"][0]["differs"]
    assert not render_items(points, [0, 1])[1]["cells"][0]["differs"]


def test_numbers_that_look_the_same_do_not_differ() -> None:
    first, second = _cells(np.array([1.0001, 1.0002, 100.5]))
    assert first["text"] == second["text"]
    assert not first["differs"]
    assert not second["differs"]
    assert second["difference"] is None


def test_infinite_and_constant_columns_have_a_place() -> None:
    for values in ([np.inf, -np.inf, 1.0], [5.0, 5.0, 5.0], [np.inf, np.inf, np.inf]):
        for cell in _cells(np.array(values)):
            assert 0.0 <= cell["place"] <= 1.0
            assert cell["difference"] is None


def test_candidates_are_compared_with_the_reference() -> None:
    reference, left, right = _cells(np.array([10.0, 10.0, 4.0]), rows=(0, 1, 2))
    assert [cell["differs"] for cell in (reference, left, right)] == [True, False, True]
    assert [cell["difference"] for cell in (reference, left, right)] == [None, None, "6 lower"]


@pytest.mark.parametrize(
    ("column", "kinds", "texts"),
    [
        (np.array([True, False, True]), ["truth", "truth"], ["yes", "no"]),
        (np.array([1.0, np.nan, 2.0]), ["number", "missing"], ["1", "missing"]),
        (_texts("red", None, "blue"), ["text", "missing"], ["red", "missing"]),
        (_texts("", "missing", "blue"), ["text", "text"], ["", "missing"]),
        (
            np.array(["2024-02-01", "NaT", "2024-02-03"], dtype="datetime64[D]"),
            ["text", "missing"],
            ["2024-02-01", "missing"],
        ),
    ],
    ids=["truth", "missing number", "missing text", "empty text", "dates"],
)
def test_other_values_are_words(column: np.ndarray, kinds: list[str], texts: list[str]) -> None:
    cells = _cells(column)
    assert [cell["kind"] for cell in cells] == kinds
    assert [cell["text"] for cell in cells] == texts
    assert all(cell["place"] is None for cell in cells if cell["kind"] != "number")
    assert all(cell["differs"] for cell in cells)


def test_a_missing_value_differs_from_the_word_for_it() -> None:
    cells = _cells(_texts("missing", None, "x"))
    assert all(cell["differs"] for cell in cells)


def test_pictures_are_served_by_row_and_only_where_they_are_shown() -> None:
    column = _texts("a.PNG", "b.jpg", "https://elsewhere.org/c.png")
    first, second = _cells(column, "pho/to ?", shown=True)
    assert (first["kind"], first["src"]) == ("image", "/files/0/pho%2Fto%20%3F")
    assert second["src"] == "/files/1/pho%2Fto%20%3F"
    elsewhere = _cells(column, shown=True, rows=(2, 0))[0]
    assert elsewhere["kind"] == "link"  # a page that shows it would tell the other host
    assert [cell["kind"] for cell in _cells(column)] == ["text", "text"]


@pytest.mark.parametrize(
    "text",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "data:text/html,<script>alert(1)</script>",
        "http://",
        "https:// example.org",
        "https://[::1",
        "//example.org/a.html",
        " https://example.org",
        "https://example.org/\nx",
        "file:///etc/passwd",
    ],
)
def test_only_whole_addresses_of_the_web_are_links(text: str) -> None:
    assert _cells(_texts(text, "b", "c"))[0]["kind"] == "text"
    assert _cells(_texts("https://example.org/a?b=1#c", "b", "c"))[0]["href"] == "https://example.org/a?b=1#c"


def test_what_was_asked_for_comes_first() -> None:
    points = _Points({"age": np.arange(3.0), "notes": _texts("p", "q", "r")}, ("notes",))
    assert [cell["name"] for cell in render_items(points, [0, 1])[0]["cells"]] == ["notes", "age"]


def test_everything_can_be_sent_as_json_in_utf_8() -> None:
    points = _Points({"lone \ud800": _texts("\udfff", "x" * 10_000, "c"), "y": np.array([np.inf, np.nan, 1.0])})
    found = render_items(points, [0, 1])
    json.dumps(found, allow_nan=False, ensure_ascii=False).encode("utf-8")
    assert found[1]["cells"][0]["text"].endswith("… (6,000 more characters)")


def test_a_single_thing_is_compared_with_nothing() -> None:
    (thing,) = render_items(_Points({"x": np.arange(3.0)}), [2])
    assert thing["id"] == "c"
    assert not thing["cells"][0]["differs"]
