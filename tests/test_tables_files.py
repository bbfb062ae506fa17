"""Reading tables: every format gives the same columns, and every bad file one readable sentence."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from closefar.tables import TableError, delimited, read_table
from closefar.tables.values import MISSING_WORDS


def lists(table):
    return {name: column.tolist() for name, column in table.columns.items()}


def assert_same(left, right):
    assert list(left.columns) == list(right.columns)
    for name, column in left.columns.items():
        assert column.dtype == right.columns[name].dtype
        np.testing.assert_array_equal(column, right.columns[name])


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    n = 137
    return pd.DataFrame(
        {
            "id": [f"p{index:03}" for index in range(n)],
            "exact": rng.normal(size=n) * 10.0 ** rng.integers(-300, 300, n),
            "tenths": rng.integers(-50, 50, n) / 10,
            "count": rng.integers(0, 9, n).astype(float),
            "gaps": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "member": rng.random(n) < 0.5,
            "colour": rng.choice(["red", "deep; blue", 'it\'s "so", so', "Grün\nund gelb"], n),
        }
    )


# Text files


def test_kinds_of_columns(write):
    table = read_table(write("id,age,member,colour\n1,31,true,red\n2,,FALSE, blue \n"))
    assert lists(table) == {
        "id": [1.0, 2.0],
        "age": [31.0, pytest.approx(np.nan, nan_ok=True)],
        "member": [True, False],
        "colour": ["red", "blue"],
    }
    assert [column.dtype.kind for column in table.columns.values()] == ["f", "f", "b", "O"]
    assert table.path.endswith("table.csv")


def test_columns_as_text_stay_as_written(write):
    path = write("code,flag,x\n007,true,1\n 8.0,false,2\n")
    table = read_table(path, as_text=["code", "flag"])
    assert lists(table) == {"code": ["007", "8.0"], "flag": ["true", "false"], "x": [1.0, 2.0]}


def test_columns_as_text_must_exist(write):
    with pytest.raises(TableError, match=r"no column 'cod'.*Did you mean 'code'\?"):
        read_table(write("code\n1\n"), as_text=["cod"])


@pytest.mark.parametrize("word", MISSING_WORDS)
def test_missing_words(write, word):
    table = read_table(write(f"number,text,code,x\n1,a,A1,0\n{word},{word},{word},0\n"), as_text=["code"])
    assert np.isnan(table.columns["number"][1])
    assert table.columns["text"].tolist() == ["a", None]
    assert table.columns["code"].tolist() == ["A1", None]


def test_true_and_false_with_gaps_stay_text(write):
    assert lists(read_table(write("a,x\ntrue,1\n,2\n")))["a"] == ["true", None]


def test_column_without_values_is_missing_numbers(write):
    assert np.isnan(read_table(write("a,b\n,1\nNA,2\n")).columns["a"]).all()


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_separators_line_ends_and_marks(write, separator, end, bom):
    text = end.join(separator.join(row) for row in (["a", "b", "ç"], ["1", "2.5", "x"], ["-3", "4e-3", "y z"]))
    assert lists(read_table(write(bom + text.encode()))) == {"a": [1.0, -3.0], "b": [2.5, 0.004], "ç": ["x", "y z"]}


def test_no_line_end_at_the_end_and_blank_lines_there(write):
    plain = lists(read_table(write("a,b\n1,2\n3,4")))
    assert lists(read_table(write("a,b\n1,2\n3,4\n\n\r\n   \n"))) == plain


@pytest.mark.parametrize(
    ("header", "row", "names"),
    [
        ("height (m, cm);mass", "1;2", ["height (m, cm)", "mass"]),
        ('"a,b,c";d', "1;2", ["a,b,c", "d"]),
        ('"a;b","c;d"', "1,2", ["a;b", "c;d"]),
        ("a|b,c,d", "x|y,2,3", ["a|b", "c", "d"]),
        ("only", "1", ["only"]),
        ("a b", "1", ["a b"]),
        ('"two\nlines",b', "1,2", ["two\nlines", "b"]),
    ],
)
def test_separator_is_found_from_the_header(write, header, row, names):
    table = read_table(write(f"{header}\n{row}\n"))
    assert list(table.columns) == names
    assert {len(column) for column in table.columns.values()} == {1}


def test_quoted_fields_hold_separators_quotes_and_line_ends(write):
    table = read_table(write('a,b,c\n"x, ""y""\r\nz",1,"w"\n"plain",2,v\n'))
    assert lists(table) == {"a": ['x, "y"\r\nz', "plain"], "b": [1.0, 2.0], "c": ["w", "v"]}


def test_numbers_with_underscores_are_text(write):
    assert lists(read_table(write("month\n2024_01\n2024_02\n"))) == {"month": ["2024_01", "2024_02"]}


def test_numbered_columns_of_pandas_are_names(write):
    assert list(read_table(write("0,1,2\n5,6,7\n")).columns) == ["0", "1", "2"]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt", ".CSV"])
def test_gzip_equals_plain(write, frame, suffix):
    text = frame.to_csv(index=False, sep="\t" if suffix == ".tsv" else ",").encode()
    plain = read_table(write(text, f"a{suffix}"))
    assert_same(read_table(write(gzip.compress(text), f"a{suffix}.gz")), plain)


def test_values_are_those_of_pandas(write, frame):
    path = write(frame.to_csv(index=False))
    table = read_table(path)
    assert list(table.columns) == list(frame)
    for name in frame.select_dtypes("number"):
        np.testing.assert_array_equal(table.columns[name], frame[name].to_numpy())
        assert table.columns[name].dtype == np.float64
    for name in ("id", "member", "colour"):
        assert table.columns[name].tolist() == frame[name].tolist()


def test_every_row_of_a_quoted_file_is_as_the_csv_module_reads_it(write, frame):
    text = frame.to_csv(index=False, quoting=csv.QUOTE_ALL)
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    table = read_table(write(text), as_text=list(frame))
    for name in frame:
        assert [value or "" for value in table.columns[name]] == [row[name] for row in rows]


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=30), st.sampled_from([",", ";", "\t", "|"]))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_every_float_survives(write, numbers, separator):
    text = f"a{separator}b\n" + "".join(f"{number!r}{separator}{number}\n" for number in numbers)
    table = read_table(write(text))
    np.testing.assert_array_equal(table.columns["a"], numbers)
    np.testing.assert_array_equal(table.columns["b"], numbers)


@given(
    st.lists(
        st.lists(
            st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8), min_size=2, max_size=2
        ),
        min_size=1,
        max_size=12,
    )
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_every_text_survives_stripped(write, rows):
    names = ["left side", "right side"]  # longer than any value: a name among its values is taken for a value
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([names, *rows])
    columns = read_table(write(text.getvalue()), as_text=names).columns
    for position, name in enumerate(names):
        stripped = [row[position].strip() for row in rows]
        assert columns[name].tolist() == [None if value in MISSING_WORDS else value for value in stripped]


# Chunks


@pytest.mark.parametrize("size", [150, 200, 1000, 3000])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("tail", ["", "\n\n\n"])
def test_the_size_of_a_block_does_not_matter(write, frame, monkeypatch, size, end, tail):
    path = write(frame.to_csv(index=False, lineterminator=end, quoting=csv.QUOTE_NONNUMERIC) + tail)
    whole = read_table(path)
    assert {len(column) for column in whole.columns.values()} == {len(frame)}
    monkeypatch.setattr(delimited, "_BLOCK_BYTES", size)
    assert_same(read_table(path), whole)


@pytest.mark.parametrize(
    "values",
    [
        ["1", "2", "3", "4", "x", "6"],
        ["", "", "", "x", "y", ""],
        ["", "", "true", "false", "true", "false"],
        ["1", "", "3", "4", "", "6"],
        ["true", "false", "x", "true", "1", "2"],
        ["007", "1.0", "1.50", "+1", "1e3", "end"],
        ['"1"', "2", '"x\ny"', "4", '"5"', "6"],
    ],
)
def test_a_column_that_changes_kind_between_chunks(write, monkeypatch, values):
    path = write("a,b\n" + "".join(f"{value},{index}\n" for index, value in enumerate(values)))
    whole = read_table(path)
    monkeypatch.setattr(delimited, "_SAMPLE_LINES", 2)
    for size in (10, 12, 20):
        monkeypatch.setattr(delimited, "_BLOCK_BYTES", size)
        assert_same(read_table(path), whole)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n1,2\n1,2\n1,2\n1,2,3\n", "row 6 has 3 fields"),
        ("a,b\n1,2\n1,2\n1,2\n\n1,2\n", "row 5 is blank"),
        ("a,b\n1,2\n1,2\n1,2\n\n\n\n\n\n\n\n1,2\n", "row 5 is blank"),
        ('a,b\n1,2\n1,2\n1,2\n1,2\n"1,2\n', "row 6 can't be split"),
        ('a,b\n1,"2\n\n"\n1,2\n1,2\n1;2\n', "row 5 has 1 field"),
    ],
)
def test_rows_are_numbered_across_chunks(write, monkeypatch, content, message):
    for size in (1 << 24, 9):
        monkeypatch.setattr(delimited, "_BLOCK_BYTES", size)
        with pytest.raises(TableError, match=message):
            read_table(write(content))


# Bad text files

HOSTILE = {
    "empty": (b"", "is empty"),
    "only blank lines": (b"\n \n\r\n", "is empty"),
    "only a byte order mark": (b"\xef\xbb\xbf", "is empty"),
    "header only": (b"a,b\n", "column names but no rows"),
    "header and blank lines": (b"a,b\n\n\n", "column names but no rows"),
    "blank first row": (b"\na,b\n1,2\n", "row 1 is blank"),
    "no header": (b"1.5,2.5\n3,4\n", "row 1 must name the columns"),
    "UTF-16": ("a,b\n1,2\n".encode("utf-16"), "UTF-16, save it as UTF-8"),
    "UTF-16 big": ("a,b\n1,2\n".encode("utf-16-be"), "UTF-16, save it as UTF-8"),
    "UTF-16 without a mark": ("a,b\n1,2\n".encode("utf-16-le"), "UTF-16, save it as UTF-8"),
    "UTF-32": ("a,b\n1,2\n".encode("utf-32"), "UTF-16, save it as UTF-8"),
    "Latin-1": ("größe,b\n1,2\n".encode("latin-1"), "not UTF-8 text: line 1 has the byte 0xf6"),
    "Latin-1 far below": (b"a,b\n" + b"1,x\n" * 50_000 + b"1,\xe9\n", "not UTF-8 text: line 50002 has the byte 0xe9"),
    "zeros": (bytes(1000), "line 1 has the byte 0x00"),
    "a NUL byte": (b"a,b\n1,2\n3,\0\n", "line 3 has the byte 0x00"),
    "Excel": (b"PK\x03\x04\x14\x00rest", "Excel file, correct its ending"),
    "Parquet": (b"PAR1\x15\x00rest", "Parquet, NumPy or Excel file"),
    "NumPy": (b"\x93NUMPY", "NumPy or Excel file"),
    "gzip without its ending": (gzip.compress(b"a,b\n1,2\n"), "if it is a gzip"),
    "too few fields": (b"a,b,c\n1,2,3\n1,2\n", "row 3 has 2 fields where row 1 has 3 names"),
    "too many fields": (b"a,b\n1,2\n1,2,3\n", "row 3 has 3 fields where row 1 has 2 names"),
    "mixed separators": (b"a,b\n1,2\n1;2\n", "Use one separator throughout"),
    "blank row in the middle": (b"a,b\n1,2\n\n3,4\n", "row 3 is blank, but more rows follow"),
    "duplicate names": (b"a,b,a\n1,2,3\n", "repeats the column name 'a'"),
    "names that differ by space": (b"a, a\n1,2\n", "repeats the column name 'a'"),
    "name missing": (b"a,,c\n1,2,3\n", "column 2 of 3 has no name"),
    "index of pandas": (b",a\n0,2\n", r"index=False"),
    "separator at the end of the header": (b"a,b,\n1,2,\n", "column 3 of 3 has no name"),
    "open quote": (b'a,b\n1,"2\n3,4\n', "row 2 can't be split.*quote is closed"),
    "open quote in the header": (b'a,"b\n1,2\n', "row 1 can't be split"),
    "text after a quote, and rows in it": (b'a,b\n1,"2\n3,"4\n5,6\n', "row 2 can't be split"),
    "endless field": (b'a,b\n1,"' + b"x" * 200_000, "row 2 can't be split"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("gzipped", [False, True])
def test_hostile_text(write, name, gzipped):
    content, message = HOSTILE[name]
    path = write(gzip.compress(content), "table.csv.gz") if gzipped else write(content)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    assert text.endswith(".")
    assert text.count(". ") <= 2


@pytest.mark.parametrize(
    "content",
    [b"a,b\n1,2\n", b"", gzip.compress(b"a,b\n" + b"1,2\n" * 9999)[:-30], b"\x1f\x8b\x08junk"],
    ids=["plain text", "nothing", "cut short", "only a header"],
)
def test_damaged_gzip(write, content):
    with pytest.raises(TableError, match=r"not a gzip file, or it is damaged|is empty"):
        read_table(write(content, "table.csv.gz"))


def test_random_bytes_never_end_in_anything_else(write):
    rng = np.random.default_rng(1)
    for name in ("a.csv", "a.csv.gz", "a.parquet", "a.npy", "a.npz"):
        for start in (b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"PAR1", b"\x1f\x8b\x08"):
            for size in (1, 10, 1000):
                with pytest.raises(TableError):
                    read_table(write(start + rng.bytes(size), name))


def test_a_directory_and_a_missing_file(tmp_path):
    folder = tmp_path / "table.csv"
    folder.mkdir()
    with pytest.raises(TableError, match="is a directory"):
        read_table(folder)
    with pytest.raises(TableError, match="does not exist"):
        read_table(tmp_path / "other.csv")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_must_not_be_read(write):
    path = write("a\n1\n")
    path.chmod(0)
    with pytest.raises(TableError, match="permission"):
        read_table(path)


@pytest.mark.parametrize("name", ["table", "table.xlsx", "table.json", "table.gz", "table.parquet.gz", "csv"])
def test_unknown_endings_are_told_those_that_are_read(write, name):
    with pytest.raises(TableError, match=r"\.csv, \.tsv, .*\.parquet.*\.npz"):
        read_table(write("a\n1\n", name))


# Parquet


def test_parquet_equals_csv(write, frame, tmp_path):
    frame["colour"] = frame["colour"].str.replace("\n", " ")
    frame["dictionary"] = frame["colour"].astype("category")
    frame["small"] = frame["count"].astype(np.int8)
    frame.to_parquet(tmp_path / "a.parquet", index=False)
    assert_same(read_table(tmp_path / "a.parquet"), read_table(write(frame.to_csv(index=False))))


def test_parquet_texts_ids_and_gaps(tmp_path):
    large = 2**53 + 1
    frame = pd.DataFrame(
        {
            "whole": pd.array([1, None, large], dtype="Int64"),
            "float": [1.0, 2.5, None],
            "flag": pd.array([True, None, False], dtype="boolean"),
            "text": [" a ", None, ""],
            "nothing": [None, None, None],
        }
    )
    frame.to_parquet(tmp_path / "a.pq", index=False)
    table = read_table(tmp_path / "a.pq", as_text=["whole", "float"])
    assert lists(table) | {"nothing": 0} == {
        "whole": ["1", None, str(large)],
        "float": ["1", "2.5", None],
        "flag": ["True", None, "False"],
        "text": ["a", None, None],
        "nothing": 0,
    }
    assert np.isnan(table.columns["nothing"]).all()
    np.testing.assert_array_equal(read_table(tmp_path / "a.pq").columns["whole"], [1, np.nan, float(large)])


def test_parquet_dates_stay_dates(tmp_path):
    frame = pd.DataFrame({"day": pd.to_datetime(["2024-01-31", None]), "x": [1, 2]})
    frame.to_parquet(tmp_path / "a.parquet")
    column = read_table(tmp_path / "a.parquet").columns["day"]
    assert column.dtype.kind == "M"
    assert np.isnat(column).tolist() == [False, True]


def test_parquet_index_of_pandas_is_no_column(tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0]})[lambda rows: rows.x > 1]
    frame.to_parquet(tmp_path / "a.parquet")
    assert list(read_table(tmp_path / "a.parquet").columns) == ["x"]


def test_parquet_columns_with_dots(tmp_path):
    frame = pd.DataFrame({"a": [1.0], "a.b": [2.0], "a.b.c": [3.0]})
    frame.to_parquet(tmp_path / "a.parquet", index=False)
    assert lists(read_table(tmp_path / "a.parquet")) == {"a": [1.0], "a.b": [2.0], "a.b.c": [3.0]}


def test_parquet_refusals(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    for table, message in [
        (pa.table({"x": pa.array([[1], [2]])}), r"neither numbers nor text: its type is list.*drop=\['x'\]"),
        (pa.table({"x": pa.array([b"a"])}), "its type is binary"),
        (pa.table({"x": pa.array([], pa.float64())}), "no rows"),
        (pa.table([pa.array([1]), pa.array([2])], names=["x", "x"]), "a unique name"),
        (pa.table([pa.array([1])], names=[""]), "a unique name"),
    ]:
        parquet.write_table(table, path)
        with pytest.raises(TableError, match=message):
            read_table(path)
    parquet.write_table(pa.table({"x": np.arange(1e5)}), path)
    content = bytearray(path.read_bytes())
    content[2000:40_000] = b"\xff" * 38_000
    path.write_bytes(content)
    with pytest.raises(TableError, match="damaged"):
        read_table(path)


# NumPy files


def test_npy_arrays(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(6, dtype=np.int16).reshape(3, 2))
    assert lists(read_table(path)) == {"x0": [0.0, 2.0, 4.0], "x1": [1.0, 3.0, 5.0]}
    assert lists(read_table(path, as_text=["x1"]))["x1"] == ["1", "3", "5"]
    np.save(path, np.arange(12.0).reshape(3, 2, 2))
    assert list(read_table(path).columns) == ["left_x0", "left_x1", "right_x0", "right_x1"]
    assert lists(read_table(path))["right_x0"] == [2.0, 6.0, 10.0]
    np.save(path, np.array([True, False]))
    assert lists(read_table(path)) == {"x0": [True, False]}
    np.save(path, np.array([["a", "b "], ["c", ""]]))
    assert lists(read_table(path)) == {"x0": ["a", "c"], "x1": ["b", None]}
    np.save(path, np.array([("p", 1.5, 2)], dtype=[("id", "U3"), ("x", ">f4"), ("n", "i8")]))
    with pytest.raises(TableError, match="column 'x0' holds neither numbers nor text"):
        read_table(path)


def test_npz_arrays(tmp_path):
    path = tmp_path / "a.npz"
    X = np.arange(6.0).reshape(3, 2)
    np.savez(path, X=X, labels=np.array(["far", "close", "far"]))
    assert lists(read_table(path)) == {"x0": [0, 2, 4], "x1": [1, 3, 5], "labels": ["far", "close", "far"]}
    np.savez_compressed(path, pairs=np.arange(12.0).reshape(3, 2, 2), y=[1, 0, 1])
    assert list(read_table(path).columns) == ["left_x0", "left_x1", "right_x0", "right_x1", "y"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.arange(3), "b": np.arange(4)}, "the same length"),
        ({"X": np.zeros((3, 2)), "y": np.arange(4)}, "the same length"),
        ({"X": np.zeros((3, 2)), "Z": np.zeros((3, 2))}, "'x0' more than once.*or keep one array of shape"),
        ({"X": np.zeros((3, 3, 2))}, r"shape \(3, 3, 2\)"),
        ({"X": np.zeros((2, 2, 2, 2))}, "shape"),
        ({"X": np.array(1.0)}, r"shape \(\)"),
        ({"X": np.zeros((0, 2))}, "no rows"),
        ({"X": np.zeros((2, 0))}, "no columns"),
        ({"X": np.zeros((3, 2)), "x0": np.arange(3)}, "'x0' more than once"),
        ({"X": np.zeros((3, 2)), "columns": np.array(["a", "b"])}, r"the same length.*'columns' \(2,\)"),
        ({"X": np.array([1j, 2])}, r"complex128.*drop=\['X'\]"),
        ({"X": np.array([b"\xff"])}, r"not UTF-8 text: it has the byte 0xff.*drop=\['X'\]"),
        ({"X": np.array([{}, 1], dtype=object)}, "Python objects"),
        ({}, "no columns"),
    ],
)
def test_npz_refusals(tmp_path, arrays, message):
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)
    with pytest.raises(TableError, match=message):
        read_table(path)


def test_npy_refusals(tmp_path, write):
    path = tmp_path / "a.npy"
    np.save(path, np.array(["a", None], dtype=object))
    with pytest.raises(TableError, match="Python objects"):
        read_table(path)
    np.save(path, np.zeros((1000, 3)))
    with pytest.raises(TableError, match="damaged"):
        read_table(write(path.read_bytes()[:-10], "b.npy"))
    claims = path.read_bytes().replace(b"(1000, 3)", b"(9999, 3)")
    with pytest.raises(TableError, match="damaged"):
        read_table(write(claims, "b.npy"))


def test_nothing_in_a_file_is_executed(tmp_path):
    import pickle

    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    (tmp_path / "a.npy").write_bytes(pickle.dumps(Bomb()))
    np.save(tmp_path / "b.npy", np.array([Bomb()], dtype=object))
    np.savez(tmp_path / "c.npz", a=np.array([Bomb()], dtype=object))
    for name in ("a.npy", "b.npy", "c.npz"):
        with pytest.raises(TableError):
            read_table(tmp_path / name)
    assert not (tmp_path / "exploded").exists()


# Extras


def test_csv_is_read_without_importing_pandas(write):
    path = write("a,b\n1,x\n")
    code = (
        "import json, sys\n"
        "from closefar.tables import read_table\n"
        f"columns = read_table({str(path)!r}).columns\n"
        "extras = {'pandas', 'sklearn', 'typer'} & set(sys.modules)\n"
        "print(json.dumps([columns['a'].tolist(), columns['b'].tolist(), sorted(extras)]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == [[1.0], ["x"], []]


def test_parquet_without_pyarrow_names_the_extra(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'closefar\[parquet\]'"):
        read_table(write(b"PAR1", "a.parquet"))


def test_no_warnings_and_no_open_files(write, frame):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_table(write(frame.to_csv(index=False)))
        read_table(write(gzip.compress(frame.to_csv(index=False).encode()), "a.csv.gz"))
