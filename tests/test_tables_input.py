"""Where tables come from and how they are written: pipes, Excel, comments, missing values, ids, and odd numbers."""

import csv
import gzip
import io
import os
import re
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import closefar as cf
from closefar.tables import Source, TableError, delimited, open_table, read_pairs, read_table
from closefar.tables.values import MISSING_WORDS

POINTS = "id,height,colour\nP1,1.5,red\nP2,2.5,blue\nP3,3.5,red\n"
PAIRS = "first,second,label\nP1,P2,far\nP3,P1,close\n"


@pytest.fixture
def read(write):
    """Read points and pairs given as text."""

    def read_both(points=POINTS, pairs=PAIRS, **source):
        return read_pairs(
            Source(points=write(points, "points.csv"), pairs=write(pairs, "pairs.csv"), **source), labelled=True
        )

    return read_both


# The same as Python's csv and float


def by_python(text, separator):
    """The columns as Python reads them, number columns as float64."""
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True))
    names, *values = rows
    columns = {}
    for name, cells in zip(names, zip(*values, strict=True), strict=True):
        words = [cell.strip() for cell in cells]
        texts = [None if word in MISSING_WORDS else word for word in words]
        try:
            numbers = [float("nan") if word is None else float(word) for word in texts]
        except ValueError:
            numbers = None
        if numbers is None or any("_" in word for word in words):
            is_boolean = all(word is not None and word.lower() in ("true", "false") for word in texts)
            columns[name] = [word.lower() == "true" for word in texts] if is_boolean else texts
        else:
            columns[name] = np.array(numbers)
    return columns


_NUMBERS = st.one_of(
    st.floats().map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.integers().map(str),
    st.from_regex(r"[ +-]{0,2}[0-9._]{1,4}([eE][+-]?[0-9]{1,3})?[ ]?", fullmatch=True),
    st.sampled_from(["NAN", "+inf", "Infinity", "1_000", "0x1F", "\uff11\uff12", "1e400", "-1e-400", " 7"]),
)
_CELLS = st.one_of(
    _NUMBERS,
    st.sampled_from([*MISSING_WORDS, "true", "FALSE", " NA ", '5" pipe', "a,b", 'say "so"', "two\nlines", "\n\n"]),
    st.text('ab ,;"\nü', max_size=5),
)


@given(
    st.lists(st.tuples(_NUMBERS, _CELLS, _CELLS), min_size=1, max_size=12),
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from([400, 1 << 22]),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=120)
def test_every_cell_is_as_python_reads_it(write, monkeypatch, rows, separator, end, quoting, block):
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator, lineterminator=end, quoting=quoting)
    writer.writerows([["first name", "second name", "third name"], *rows])
    assume(not any(re.match(' +"', cell) for row in rows for cell in row))  # which is refused
    monkeypatch.setattr(delimited, "_BLOCK_BYTES", block)
    expected = by_python(text.getvalue(), separator)
    found = read_table(write(text.getvalue())).columns
    for name, column in expected.items():
        if isinstance(column, np.ndarray):
            assert found[name].dtype == np.float64
            np.testing.assert_array_equal(found[name].view(np.uint64), _with_one_nan(column).view(np.uint64))
        else:
            assert found[name].tolist() == column


def _with_one_nan(numbers):
    return np.where(np.isnan(numbers), np.nan, numbers)


# Pipes and standard input


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz", "table.parquet", "table.npz", "table.npy"])
def test_a_pipe_of_any_format_is_read_once(tmp_path, name):
    frame = pd.DataFrame({"x0": [1.5, 2.5], "x1": [3.0, 4.0]})
    path, pipe = tmp_path / name, tmp_path / "pipe"
    if name.endswith("parquet"):
        frame.to_parquet(path, index=False)
    elif name.endswith("npz"):
        np.savez(path, X=frame.to_numpy())
    elif name.endswith("npy"):
        np.save(path, frame.to_numpy())
    else:
        frame.to_csv(path, index=False)
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    writer.start()
    table = read_table(pipe)
    writer.join()
    assert {column: values.tolist() for column, values in table.columns.items()} == frame.to_dict("list")


def test_a_source_keeps_what_a_pipe_delivered(write, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text(PAIRS))
    writer.start()
    source = Source(points=write(POINTS), pairs=tmp_path / "pipe")
    assert open_table(source.pairs).names == ["first", "second", "label"]
    again = replace(source, label="label")
    assert read_pairs(again, labelled=True).ids.tolist() == [["P1", "P2"], ["P3", "P1"]]
    writer.join()


def test_standard_input(tmp_path, write):
    write(POINTS, "points.csv")
    code = (
        "from closefar.tables import Source, read_pairs\n"
        "table = read_pairs(Source(points='points.csv', pairs='-'), labelled=True)\n"
        "print(table.ids.tolist())\n"
    )
    command = [sys.executable, "-c", code]
    for content in (PAIRS.encode(), gzip.compress(PAIRS.encode())):
        done = subprocess.run(command, cwd=tmp_path, input=content, capture_output=True, check=True)
        assert done.stdout.decode().strip() == "[['P1', 'P2'], ['P3', 'P1']]"
    done = subprocess.run(command, cwd=tmp_path, input=b"", capture_output=True, check=False)
    assert b"standard input is empty" in done.stderr
    with pytest.raises(ValueError, match="both be read from standard input"):
        Source(points="-", pairs="-")


# Missing values


def test_words_for_missing_values(write):
    text = "x,y,code\n1,?,A\n-999.0,b,-\n3,b,<NA>\n-,#N/A,-999\n"
    table = read_table(write(text), na_values=["?", "-", "-999"], as_text=["code"])
    np.testing.assert_array_equal(table.columns["x"], [1, np.nan, 3, np.nan])
    assert table.columns["y"].tolist() == [None, "b", "b", None]
    assert table.columns["code"].tolist() == ["A", None, None, None]


def test_words_for_missing_values_in_other_formats(tmp_path):
    frame = pd.DataFrame({"x": [1.0, -999.0], "y": ["NA", "?"], "n": [3, -999]})
    frame.to_parquet(tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", **{name: frame[name].to_numpy(dtype=str if name == "y" else None) for name in frame})
    for name in ("a.parquet", "a.npz"):
        table = read_table(tmp_path / name, na_values=["?", "-999"])
        np.testing.assert_array_equal(table.columns["x"], [1, np.nan])
        np.testing.assert_array_equal(table.columns["n"], [3, np.nan])
        assert table.columns["y"].tolist() == ["NA", None]


# Lines above the names, and files without names


@pytest.mark.parametrize(
    ("text", "names", "row"),
    [
        ("sep=;\na;b,c\n1;2\n", ["a", "b,c"], 3),
        ('"sep=|"\r\na|b\r\n1|2\r\n', ["a", "b"], 3),
        ("# made by hand, today\n# units: m\na,b\n1,2\n", ["a", "b"], 4),
        ("sep=,\n# x\na,b\n1,2\n", ["a", "b"], 4),
        ("# a,b\n1,2\n3,4\n", ["a", "b"], 2),
        ("#a,b\nu,v\nw,v\n", ["a", "b"], 2),
        ("#,b\n1,x\n2,y\n", ["#", "b"], 2),
    ],
)
def test_lines_above_the_names(write, text, names, row):
    file = open_table(write(text))
    assert file.names == names
    assert file.place.row(0) == f"row {row}"
    assert len(file.read(names, names)[names[0]]) == text.count("\n") - row + 1


def test_rows_below_comments_are_numbered_as_in_the_file(read):
    with pytest.raises(TableError, match=r"'inf' in row 5\."):
        read("# from the clinic\n# 2024\n" + POINTS.replace("2.5", "inf"))
    with pytest.raises(TableError, match=r"row 5 has 2 fields where row 3 has 3 names"):
        read("# from the clinic\n# 2024\n" + POINTS.replace("2.5,", ""))


@pytest.mark.parametrize(
    "header",
    ["city,2019,2020,2021", "sample,400.5,401.0,401.5", "x,10,20,50,100,200,500,1000", "id1,x2", "0,1,2", "q1,q2,2020"],
)
def test_numbers_may_be_names(write, header):
    row = ",".join(["abc", *(f"{number}.25" for number in range(header.count(",")))])
    assert list(read_table(write(f"{header}\n{row}\n{row}\n")).columns) == header.split(",")


# Numbers that can be read in two ways, and bytes that are no text


def test_commas_in_numbers(read):
    def with_heights(*heights):
        return "id;height\n" + "".join(f"P{number};{height}\n" for number, height in enumerate(heights, start=1))

    with pytest.raises(TableError, match=r"plain numbers, such as '1,234'\. Write them without .*separators"):
        read(with_heights("1,234", "2,345", "3,456"))
    with pytest.raises(TableError, match="such as '1,23'"):
        read(with_heights("1,23", "2,345", "3,456"))
    with pytest.raises(TableError, match="such as '1,234,567'"):
        read(with_heights("1,234,567", "2,345", "3,456"))
    with pytest.raises(TableError, match=r"mixes numbers and text: 1 value .*'2,345' .*set decimal="):
        read(with_heights("1", "2,345", "3"))


def test_bytes_that_are_no_text_are_named_by_line(write):
    rows = [b"a,b"] + [b"1,x"] * 300_000
    for at, byte in ((3, b"\0"), (250_000, b"\0"), (3, b"\xe9"), (250_000, b"\xe9")):
        content = [*rows[:at], b"1," + byte, *rows[at:]]
        with pytest.raises(TableError, match=f"line {at + 1} has the byte 0x(00|e9)"):
            read_table(write(b"\n".join(content)))


def test_an_archive_that_memory_has_no_room_for(tmp_path):
    path, header = tmp_path / "huge.npz", io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1_500_000_000, 2)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(1000))
    code = (
        "import resource, sys\n"
        "from closefar.tables import TableError, read_table\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))\n"
        "try:\n    read_table(sys.argv[1])\nexcept TableError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert "not enough memory to read" in done.stdout


# Ids and their digits

LARGE = 2**53


@pytest.mark.parametrize(
    "suffixes", [(".csv", ".csv"), (".parquet", ".parquet"), (".parquet", ".csv"), (".npz", ".npz")]
)
@pytest.mark.parametrize(
    "ids",
    [
        [LARGE, LARGE + 1, LARGE + 2],
        [5, 7, 6],
        [-3, 2**62, 10**9],
        ["007", "7", "a b"],
        [1.5, 2.0, 0.1],
        [Decimal("1.10"), Decimal("12345678901234567890.25"), Decimal("3.00")],
    ],
    ids=["large", "dense", "sparse", "text", "float", "decimal"],
)
def test_ids_keep_their_digits(tmp_path, ids, suffixes):
    if isinstance(ids[0], Decimal) and (".npz" in suffixes or suffixes == (".parquet", ".csv")):
        pytest.skip("NumPy has no decimals, and 1.10 in a text file is another id than 1.1")
    points = pd.DataFrame({"id": ids, "x": [1.0, 2.0, 4.0]})
    pairs = pd.DataFrame({"a": [ids[0], ids[1]], "b": [ids[1], ids[2]], "label": ["far", "close"]})
    paths = [tmp_path / f"{name}{suffix}" for name, suffix in zip(("points", "pairs"), suffixes, strict=True)]
    for frame, path in zip((points, pairs), paths, strict=True):
        if path.suffix == ".parquet":
            frame.to_parquet(path, index=False)
        elif path.suffix == ".csv":
            frame.to_csv(path, index=False)
        else:
            np.savez(path, **{name: np.array(frame[name].tolist()) for name in frame})
    if suffixes == (".parquet", ".csv") and isinstance(ids[0], float):
        paths[1].write_text(paths[1].read_text().replace("2.0", "2"))  # as text, 2.0 is another id than 2
    table = read_pairs(Source(points=paths[0], pairs=paths[1]), labelled=True)
    assert (table.data[:, 0] - table.data[:, 1]).tolist() == [[-1.0], [-2.0]]
    texts = [str(each) for each in ids]
    if suffixes[0] != ".csv":  # numbers, not texts
        texts = [str(each.normalize()) if isinstance(each, Decimal) else str(each).removesuffix(".0") for each in ids]
    assert table.ids.tolist() == [texts[:2], texts[1:]]


def test_sides_of_two_kinds_are_compared_as_written(write):
    text = "left_flag,right_flag,label\ntrue,maybe,far\nfalse,true,close\n"
    table = read_pairs(Source(pairs=write(text)), labelled=True)
    assert set(table.encoding.columns[0].values) == {"true", "false", "maybe"}


# Points once, and an index


def test_points_are_kept_once(read):
    table = read(pairs=PAIRS + "P3,P3,close\n")
    assert table.points.tolist() == [[1.5, 0], [2.5, 1], [3.5, 0]]
    assert table.index.tolist() == [[0, 1], [2, 0], [2, 2]]
    assert isinstance(table.data, cf.Tuples)
    np.testing.assert_array_equal(table.data, table.points[table.index])
    assert len(table) == 3


def test_codes_of_ids_do_not_depend_on_the_order_of_the_points(read):
    header, *rows = POINTS.splitlines(keepends=True)
    first, second = read(), read(header + "".join(reversed(rows)))
    assert first.ids.tolist() == second.ids.tolist()
    assert first.identity.codes.tolist() == second.identity.codes.tolist() == [[0, 1], [2, 0]]
    np.testing.assert_array_equal(first.data, second.data)


def test_both_sides_and_single_points_share_no_rows(write):
    sides = read_pairs(Source(pairs=write("left_x,right_x,label\n1,2,far\n3,5,close\n")), labelled=True)
    assert sides.index.tolist() == [[0, 1], [2, 3]]
    assert sides.data.tolist() == [[[1.0], [2.0]], [[3.0], [5.0]]]
    single = read_pairs(Source(points=write("x,label\n1,far\n2,close\n")), labelled=True)
    assert single.is_single
    assert single.index.tolist() == [0, 1]
    assert single.data.tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize("block", [64, 1 << 24])
@pytest.mark.parametrize(
    "odd", ["007", "0x10", "-0", "16.0", "p", " 12", "9223372036854775808", "-9223372036854775808"]
)
def test_ids_stay_as_written_among_integers(odd, block, write, monkeypatch):
    monkeypatch.setattr(delimited, "_BLOCK_BYTES", block)
    ids = [*map(str, range(9, 19)), odd, "-5"]
    points = write("id,x\n" + "".join(f"{name},{row}\n" for row, name in enumerate(ids)), "points.csv")
    pairs = write("a,b,label\n" + "".join(f"{odd},{name},far\n" for name in ids[::-1]), "pairs.csv")
    if odd.strip() in ids[:10]:
        with pytest.raises(TableError, match="has '12' 2 times"):
            read_pairs(Source(points=points, pairs=pairs), labelled=True)
        return
    table = read_pairs(Source(points=points, pairs=pairs), labelled=True)
    assert table.ids.tolist() == [[odd, name] for name in ids[::-1]]
    assert table.data[:, :, 0].tolist() == [[10.0, 11.0 - row] for row in range(12)]


def test_a_row_of_integer_ids_is_no_row_of_names(write):
    points = write("id,x\n" + "".join(f"{row},{row}\n" for row in range(9)), "points.csv")
    pairs = write("0,1,2\n" + "".join(f"{row},{row + 1},far\n" for row in range(8)), "pairs.csv")
    with pytest.raises(TableError, match="row 1 must name the columns; it has the ids '0' and '1'"):
        read_pairs(Source(points=points, pairs=pairs, left="0", right="1", label="2"), labelled=True)


def test_a_minus_is_a_value_unless_it_is_said_to_be_missing(write):
    path = write("rhesus,x\n-,1.5\n+,-\n")
    columns = open_table(path).read(["rhesus", "x"], [])
    assert columns["rhesus"].tolist() == ["-", "+"]
    assert columns["x"].tolist() == ["1.5", "-"]
    columns = open_table(path, ["-"]).read(["rhesus", "x"], [])
    assert columns["rhesus"].tolist() == [None, "+"]
    np.testing.assert_array_equal(columns["x"], [1.5, np.nan])
