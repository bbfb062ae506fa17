"""Odd but valid files give the result of plain ones, and files that could be misread are refused with a reason."""

from __future__ import annotations

import csv
import gzip
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import closefar as cf
from closefar.cli.app import app
from closefar.datasets import make_patients
from closefar.errors import command_words
from closefar.questions import describe_fit
from closefar.tables.writing import encode_table

POINTS, PAIRS, _ = make_patients(60, 300, random_state=1)
TEXT = encode_table(POINTS, Path("points.csv")).decode()
PAIR_TEXT = encode_table(PAIRS, Path("pairs.csv")).decode()
NUMBERS = [name for name, column in POINTS.items() if column.dtype.kind == "f"]
LEFT, RIGHT, _LABEL = PAIRS
_BOTH = ("odd.csv", "points.csv")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "points.csv").write_text(TEXT)
    (folder / "pairs.csv").write_text(PAIR_TEXT)
    _run("fit", "--points", folder / "points.csv", "--pairs", folder / "pairs.csv", "-o", folder / "model")
    return folder / "model"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "points.csv").write_text(TEXT)
    (tmp_path / "pairs.csv").write_text(PAIR_TEXT)
    return tmp_path


def _run(*arguments: object) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.stderr
    return done.stdout


def _refusal(*arguments: object) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 2, done.stdout
    assert done.stderr.count("\n") == 1
    return done.stderr


def _predicted(model: Path, points: str = "points.csv", pairs: str = "pairs.csv") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(_run("predict", "-m", model, "--points", points, "--pairs", pairs))))


def _write(points: dict[str, np.ndarray], name: str = "odd.csv") -> None:
    Path(name).write_bytes(encode_table(points, Path(name)))


# The same result

SAME_TEXT: dict[str, Callable[[], bytes]] = {
    "Excel's line with another separator": lambda: f"sep=;\n{TEXT}".encode(),
    "Excel's separator": lambda: b'\xef\xbb\xbf"sep=~"\r\n' + TEXT.replace(",", "~").replace("\n", "\r\n").encode(),
    "comments and a marked header": lambda: f"# by me, on Monday\n#\n#{TEXT}".encode(),
    "carriage returns": lambda: TEXT.replace("\n", "\r").encode(),
    "line ends of two kinds": lambda: TEXT.replace("\n", "\r\n", 20).encode(),
    "spaces and blank lines": lambda: (TEXT.replace(",", " , ") + "\n\n  \n").encode(),
    "an unused point of nonsense": lambda: (TEXT + "X1,old,tall,NA,maybe,moon\n").encode(),
}


@pytest.mark.parametrize("content", SAME_TEXT.values(), ids=SAME_TEXT)
def test_odd_text_gives_the_same_predictions(model: Path, content: Callable[[], bytes]) -> None:
    Path("odd.csv").write_bytes(content())
    if b"X1," not in content():
        assert _predicted(model, "odd.csv") == _predicted(model)
    odd, plain = (
        _run("fit", "--points", name, "--pairs", "pairs.csv", "--force") for name in ("odd.csv", "points.csv")
    )
    assert odd == plain


def test_decimal_commas_give_the_same_metric_and_are_remembered(model: Path) -> None:
    Path("odd.csv").write_text(TEXT.replace(",", ";").replace(".", ","))
    _run("fit", "--points", "odd.csv", "--pairs", "pairs.csv", "--decimal", ",", "-o", "odd")
    np.testing.assert_array_equal(cf.load("odd").matrix, cf.load(model).matrix)
    points = ("--points", "points.csv")
    expected = _predicted(model), _run("transform", "-m", model, *points)
    assert (_predicted(Path("odd"), "odd.csv"), _run("transform", "-m", "odd", "--points", "odd.csv")) == expected
    assert _run("transform", "-m", "odd", *points, "--decimal", ".") == expected[1]
    assert _run("transform", "-m", model, "--points", "odd.csv", "--decimal", ",") == expected[1]
    assert "or set --decimal . for decimal points." in _refusal("transform", "-m", "odd", *points)


def test_a_gzip_file_of_two_members_is_read_whole(model: Path) -> None:
    Path("odd.csv.gz").write_bytes(gzip.compress(TEXT[:500].encode()) + gzip.compress(TEXT[500:].encode()))
    assert _predicted(model, "odd.csv.gz") == _predicted(model)


@pytest.mark.parametrize(
    ("first", "form"), [(2**53, "{}"), (2**63 - 61, "{}"), (10**25, "0{}"), (-30, "{}.10"), (0, 'a "p",\n {}')]
)
def test_ids_keep_their_digits(model: Path, first: int, form: str) -> None:
    written = {old: form.format(first + place) for place, old in enumerate(POINTS["id"])}
    renamed = np.array([written[old] for old in POINTS["id"]], dtype=object)
    _write({**POINTS, "id": renamed})
    sides = {side: np.array([written[old] for old in PAIRS[side]], dtype=object) for side in (LEFT, RIGHT)}
    _write({**PAIRS, **sides}, "odd_pairs.csv")
    odd, plain = _predicted(model, "odd.csv", "odd_pairs.csv"), _predicted(model)
    assert [row["distance"] for row in odd] == [row["distance"] for row in plain]
    assert [row[LEFT] for row in odd] == sides[LEFT].tolist()


def test_parquet_types_are_read_alike(model: Path) -> None:
    text = {name: pa.array(POINTS[name]).dictionary_encode() for name in ("id", "ward")}
    half = {NUMBERS[0]: pa.array(POINTS[NUMBERS[0]]).cast(pa.decimal128(20, 10), safe=False)}
    nested = {"unused": pa.array([{"a": 1}] * 60)}
    plain = {name: pa.array(column) for name, column in POINTS.items()}
    pq.write_table(pa.table({**plain, **text, **half, **nested}), "odd.parquet")
    odd = [float(row["distance"]) for row in _predicted(model, "odd.parquet")]
    np.testing.assert_allclose(odd, [float(row["distance"]) for row in _predicted(model)], rtol=1e-9)


@pytest.mark.parametrize("dtype", [">i8", "u8", "f2", np.longdouble])
def test_ids_of_any_numpy_type(dtype: str) -> None:
    place = {old: str(number) for number, old in enumerate(POINTS["id"])}
    sides = {side: np.array([place[old] for old in PAIRS[side]], dtype=object) for side in (LEFT, RIGHT)}
    _write({**PAIRS, **sides}, "numbered.csv")
    values = np.stack([POINTS[name] for name in NUMBERS], axis=1)
    np.save("plain.npy", values)
    np.savez("odd.npz", X=values, id=np.arange(60).astype(dtype))
    odd, plain = (
        _run("fit", "--points", name, "--pairs", "numbered.csv", "--force") for name in ("odd.npz", "plain.npy")
    )
    assert odd == plain


# Refused with a reason


def _column(text: str) -> Callable[[int], str]:
    return lambda number: text.replace("#", str(number % 7))


UNPLAIN = {
    "German": ("1.00#,56", "'1.000,56'. Write them without units"),
    "apostrophes": ("1'00#", "without units and separators"),
    "percent": ("#%", "'0%'. Write them without units"),
    "unit": ("# kg", "or use --categorical extra if they are categories"),
    "currency": ("$#", "without units"),
    "clock": ("12:3#", "dates or times"),
    "date with a name": ("1# Mar 1990", "dates or times"),
}


@pytest.mark.parametrize(("form", "message"), UNPLAIN.values(), ids=UNPLAIN)
def test_numbers_in_other_clothes_are_no_categories(form: str, message: str) -> None:
    _write({**POINTS, "extra": np.array(list(map(_column(form), range(60))), dtype=object)})
    assert message in _refusal("fit", "--points", "odd.csv", "--pairs", "pairs.csv")
    assert "Wrote" in _run("fit", "--points", "odd.csv", "--pairs", "pairs.csv", "--categorical", "extra")


@pytest.mark.parametrize("form", ["ward #", "A#"])
def test_names_with_numbers_are_categories(form: str) -> None:
    _write({**POINTS, "extra": np.array(list(map(_column(form), range(60))), dtype=object)})
    assert "Wrote" in _run("fit", "--points", "odd.csv", "--pairs", "pairs.csv")


TEXTS = {
    "title": ("% export\n" + TEXT, "a single name, '% export', above rows of 6 fields"),
    "sep= without a separator": ("sep=\n" + TEXT, "a single name, 'sep='"),
    "comment below": (TEXT + "# the end\n", "row 62 is a comment, which may stand above the column names only"),
    "name missing at the end": (
        TEXT.replace("\n", ",\n"),
        "column 7 of 7 has no name in row 1. Name it or remove it.\n",
    ),
    "empty column": (
        TEXT.replace("\n", ",\n").replace(",\n", ",more\n", 1),
        "column 'more' has no values. Leave it out",
    ),
}


@pytest.mark.parametrize(("text", "message"), TEXTS.values(), ids=TEXTS)
def test_refusals_of_text(text: str, message: str) -> None:
    Path("odd.csv").write_text(text)
    assert message in _refusal("fit", "--points", "odd.csv", "--pairs", "pairs.csv")


def test_a_dash_is_a_label_unless_it_is_said_to_be_missing() -> None:
    Path("odd.csv").write_text(PAIR_TEXT.replace(",close", ",-"))
    files = ("fit", "--points", "points.csv", "--pairs", "odd.csv")
    assert "not clear which label means far: they are '-'" in _refusal(*files)
    assert "(an empty field, NA, None or the like)" in _refusal(*files, "--na-values", "-")


def test_a_type_that_is_not_read(model: Path) -> None:
    pq.write_table(pa.table({**POINTS, "id": pa.array([name.encode() for name in POINTS["id"]])}), "odd.parquet")
    message = _refusal("predict", "-m", model, "--points", "odd.parquet", "--pairs", "pairs.csv")
    assert message.endswith("its type is binary. Convert it.\n")


@pytest.mark.parametrize(("option", "name"), [("--out", "-"), ("--report", "-"), ("--out", "/dev/stdout")])
def test_no_file_is_standard_output(option: str, name: str) -> None:
    message = _refusal("fit", "--points", "points.csv", "--pairs", "pairs.csv", option, name)
    assert f"can't be written to {name}." in message


@pytest.mark.skipif(sys.platform == "win32", reason="process substitution is one of Unix shells")
def test_process_substitution_both_ways(model: Path) -> None:
    command = f"{sys.executable} -c 'from closefar.cli import main; main()' predict -m {model}"
    script = f"{command} --points <(cat points.csv) --pairs <(gzip -c pairs.csv) -q -o >(cat > out.csv); sleep 0.5"
    subprocess.run(["bash", "-c", script], check=True)
    assert list(csv.DictReader(io.StringIO(Path("out.csv").read_text()))) == _predicted(model)


def test_both_from_standard_input(model: Path) -> None:
    assert "points and pairs can't both" in _refusal("predict", "-m", model, "--points", "-", "--pairs", "-")


# What is shown


def test_columns_named_like_parameters_keep_their_names() -> None:
    pairs, labels, *_ = cf.datasets.make_pairs(200, 2, random_state=0)
    learner = cf.LinearMetricLearner(alpha=0, flip_rate=0, max_iter=1)
    with pytest.warns(UserWarning, match="unfinished"):
        learner.fit(pairs, labels, feature_names=["alpha", "tol"])
    shown = command_words(describe_fit(learner.fit_))
    assert "--max-iter" in shown
    assert "\n  alpha  " in shown
    assert len(set(map(len, shown.splitlines()[2:10]))) == 1


def test_help_is_shown_once_and_a_closed_pipe_is_no_success() -> None:
    command = f"{sys.executable} -c 'from closefar.cli import main; main()'"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("Usage:")) == (2, 1)
    done = subprocess.run(
        ["bash", "-c", f"{command} --help | true; exit ${{PIPESTATUS[0]}}"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (141, b"")
