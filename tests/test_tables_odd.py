"""Odd and hostile tables, generated: each gives the columns that it must, or one sentence, whatever the blocks are."""

import csv
import io
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from closefar.tables import TableError, delimited, open_table, read_table
from closefar.tables.values import MISSING_WORDS

NAN, INF = math.nan, math.inf


def columns(path, **options):
    return {name: column.tolist() for name, column in read_table(path, **options).columns.items()}


def assert_columns(found, expected):
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert list(map(repr, found[name])) == list(map(repr, values)), name


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("begin", ["", "\ufeff", "# made by hand\n", "sep={}\n"])
def test_layouts(write, separator, end, begin):
    rows = ["id", "x", "word"], ["P1", "1.5", "a b"], ["P2", "", '"c,;|\td"'], ["P3", "-2e-3", "e"]
    text = begin.format(separator).replace("\n", end) + "".join(separator.join(row) + end for row in rows)
    expected = {"id": ["P1", "P2", "P3"], "x": [1.5, NAN, -0.002], "word": ["a b", "c,;|\td", "e"]}
    for tail in ("", end, f"  {end}{end}"):
        assert_columns(columns(write(text + tail)), expected)
    assert_columns(columns(write(text.removesuffix(end))), expected)


WORDS = [
    *("NAN", "-nan", "+inf", "-Infinity", "INF", "1e400", "-1e400", "1e-400", "-0.0", "0x1f", "1_000", "1,5"),
    *("\uff11\uff12", "+1", "++1", "1.", ".", " .5", "5e-1 ", "1d5", "1e", "- 1", "--1", "$1", "1%", "1 000", "True"),
    *("yes", "1/2", "\u00b2", "\u0663", "1j", "(1)", "4.9e-324", "1" * 400, "9007199254740993", "?", "none", "Null"),
    *("na", "#REF!", "\\N", "NaT", "2024-01-31", "007", "x\u00a0", *MISSING_WORDS),
]


@pytest.mark.parametrize("word", WORDS)
def test_a_word_among_numbers_is_as_python_reads_it(write, word, monkeypatch):
    """A number if Python's float says so, but for 1_000; as text it stays as it is, but for space around it."""
    path = write(f'x,y\n1,a\n"{word}",b\n3,a\n')
    bare = None if word.strip() in MISSING_WORDS else word.strip()
    try:
        expected = [1.0, NAN if bare is None else float(bare), 3.0]
    except ValueError:
        expected = ["1", bare, "3"]
    if "_" in word:
        expected = ["1", bare, "3"]
    for size in (1 << 22, 450):
        monkeypatch.setattr(delimited, "_BLOCK_BYTES", size)
        assert_columns(columns(path), {"x": expected, "y": ["a", "b", "a"]})
        assert_columns(columns(path, as_text=["x"]), {"x": ["1", bare, "3"], "y": ["a", "b", "a"]})


READ = {
    "line ends in quotes": ('a,b\n1,"x\r\n\n\ny"\n2,"z"\n', {"a": [1.0, 2.0], "b": ["x\r\n\n\ny", "z"]}),
    "a carriage return in quotes": ('a,b\n1,"x\ry"\n2,z\n', {"a": [1.0, 2.0], "b": ["x\ry", "z"]}),
    "doubled quotes": ('a,b\n1,"say ""so"", so"\n2,"z"""\n', {"a": [1.0, 2.0], "b": ['say "so", so', 'z"']}),
    "quotes inside": ('a,b,c\n1,5" pipe,6" b\n2,z,y\n', {"a": [1.0, 2.0], "b": ['5" pipe', "z"], "c": ['6" b', "y"]}),
    "text after quotes": ('a,b\n1,"x"y\n2,"z" \n', {"a": [1.0, 2.0], "b": ["xy", "z"]}),
    "quoted names": ('"a\nb","c;d"\n1,2\n', {"a\nb": [1.0], "c;d": [2.0]}),
    "empty quotes": ('a,b\n"",x\n1,""\n', {"a": [NAN, 1.0], "b": ["x", None]}),
    "apostrophes": ("a,b\n'1','x'\n", {"a": ["'1'"], "b": ["'x'"]}),
    "a row of separators": ("a,b\n1,2\n,\n3,4\n", {"a": [1.0, NAN, 3.0], "b": [2.0, NAN, 4.0]}),
    "one column": ('a\n1\n""\n3\n""\n', {"a": [1.0, NAN, 3.0, NAN]}),
    "one column and blank lines": ("a\n1\n3\n\n\n", {"a": [1.0, 3.0]}),
    "names that differ by case": ("a,A\n1,2\n", {"a": [1.0], "A": [2.0]}),
    "names of pandas": ("0,1,2\n5,6,7\n", {"0": [5.0], "1": [6.0], "2": [7.0]}),
    "years": ("city,2019,2020\nabc,1,2\n", {"city": ["abc"], "2019": [1.0], "2020": [2.0]}),
    "space around": (" a , b \n 1 , x \n NA ,  \n", {"a": [1.0, NAN], "b": ["x", None]}),
    "no-break space": ("a,b\n1,\u00a0x\u00a0\n\u00a02,z\n", {"a": [1.0, 2.0], "b": ["x", "z"]}),
    "unicode": ("größe,名前,\u200b\n1,🙂,\u202ex\n", {"größe": [1.0], "名前": ["🙂"], "\u200b": ["\u202ex"]}),
    "other line ends": ("a,b\n1,x\x0by\x0cz\x85\u2028w\n", {"a": [1.0], "b": ["x\x0by\x0cz\x85\u2028w"]}),
    "line ends of all kinds": ("a,b\r\n1,2\n3,4\r5,6\r\n", {"a": [1.0, 3.0, 5.0], "b": [2.0, 4.0, 6.0]}),
    "a wrong sep=": ("sep=;\na,b\n1,2\n", {"a": [1.0], "b": [2.0]}),
    "sep= decides": ("sep=;\na,x;b,y\n1,2;3,4\n", {"a,x": ["1,2"], "b,y": ["3,4"]}),
    "sep= of any kind": ('"SEP=~"\na~b\n1~2\n', {"a": [1.0], "b": [2.0]}),
    "comments": ("# made, by hand\n# 2024\na,b\n1,2\n", {"a": [1.0], "b": [2.0]}),
    "numpy.savetxt": ("# a,b\n1,2\n3,4\n", {"a": [1.0, 3.0], "b": [2.0, 4.0]}),
    "a marked header": ("#a,b\nu,v\n", {"a": ["u"], "b": ["v"]}),
    "ids with a hash": ("id,x\n#1,2\n#2,3\n", {"id": ["#1", "#2"], "x": [2.0, 3.0]}),
    "separators in names": ("a,b;c\n1,2;3\n", {"a,b": ["1,2"], "c": [3.0]}),
    "true and false": ("a,b\n true ,1\nFALSE,2\n", {"a": [True, False], "b": [1.0, 2.0]}),
    "true and a gap": ("a,b\ntrue,1\n,2\n", {"a": ["true", None], "b": [1.0, 2.0]}),
    "true and numbers": ("a,b\ntrue,1\n1,2\n", {"a": ["true", "1"], "b": [1.0, 2.0]}),
    "signs": ("a,b\n+,1\n-,2\n", {"a": ["+", "-"], "b": [1.0, 2.0]}),
    "a minus alone": ("a,b,c\nx,1,+1\n-,-,\n", {"a": ["x", "-"], "b": ["1", "-"], "c": [1.0, NAN]}),
    "no values": ("a,b\n,1\nNA,2\n", {"a": [NAN, NAN], "b": [1.0, 2.0]}),
    "long digits": ("a\n0.1000000000000000055511151231257827\n1e22\n", {"a": [0.1, 1e22]}),
    "text at the end": ("a,b\n" + "1,2\n" * 300 + "x,2\n", {"a": ["1"] * 300 + ["x"], "b": [2.0] * 301}),
    "space at the end": ("a,b\n" + "1,2\n" * 300 + " 3 ,4\n", {"a": [1.0] * 300 + [3.0], "b": [2.0] * 300 + [4.0]}),
    "many columns": (",".join(f"c{n}" for n in range(999)) + "\n" + "1," * 998 + "2", None),
}


@pytest.mark.parametrize("case", READ)
def test_odd_text_is_read(write, case, monkeypatch):
    content, expected = READ[case]
    path = write(content)
    if expected is None:
        assert [values[0] for values in columns(path).values()] == [1.0] * 998 + [2.0]
        return
    assert_columns(columns(path), expected)
    monkeypatch.setattr(delimited, "_BLOCK_BYTES", 64)
    assert_columns(columns(path), expected)


REFUSED = {
    "a quote left open": ('a,b\n1,"2\n3,4\n5,6\n', "row 2 can't be split into columns"),
    "a quote left open in the last row": ('a,b\n1,2\n3,"4', "row 3 can't be split into columns"),
    "two quotes left open": ('a,b\n1,"x\n3,"y\n5,z\n', "row 2 can't be split into columns"),
    "a quote left open in the names": ('a,"b\n1,2\n', "row 1 can't be split"),
    "a backslash before a quote": ('a,b\n1,"x\\"y\nu"\n2,z\n', "row 2 can't be split"),
    "quotes after space": ('a,b\n1,x\n2, "y"\n', "column 'b' has quotes after a space.* Remove the spaces"),
    "numbers in quotes after space": ('a,b\n1, "2"\n', "column 'b' has quotes after a space"),
    "a separator in quotes after space": ('a,b\n1, "x, y"\n', "row 2 has 3 fields where row 1 has 2 names"),
    "a short row": ("a,b,c\n1,2,3\n1,2\n4,5,6\n", "row 3 has 2 fields where row 1 has 3 names"),
    "a short row after line ends in quotes": ('a,b\n1,"x\n\ny"\n2\n', "row 3 has 1 field where"),
    "a long row": ("a,b\n1,2\n1,2,3\n4,5\n", "row 3 has 3 fields where row 1 has 2 names"),
    "a short row far below": ("a,b\n" + "1,2\n" * 5000 + "1\n1,2\n", "row 5002 has 1 field where"),
    "separators at the end": ("a,b\n1,2,\n3,4,\n", "row 2 has 3 fields"),
    "two separators": ("a,b\n1,2\n3;4\n", "Use one separator throughout"),
    "a blank row": ("a,b\n1,2\n\n3,4\n", "row 3 is blank, but more rows follow"),
    "a blank row of CRLF": ("a,b\r\n1,2\r\n\r\n3,4\r\n", "row 3 is blank"),
    "a blank row of CR": ("a,b\r1,2\r\r3,4\r", "row 3 is blank"),
    "a row of space": ("a,b\n1,2\n   \n3,4\n", "row 3 is blank"),
    "a blank row after line ends in quotes": ('a,b\n1,"x\n\ny"\n\n2,z\n', "row 3 is blank"),
    "a blank row in one column": ("a\n1\n\n3\n", "row 3 is blank"),
    "a carriage return": ("a,b\n1,x\ry\n2,z\n", "row 3 has 1 field"),
    "names only": ("a,b", "column names but no rows"),
    "names and blank lines": ("a,b\n\n\n", "column names but no rows"),
    "nothing": ("", "is empty"),
    "a mark only": ("\ufeff", "is empty"),
    "comments only": ("# a\n# b\n", "has comments only"),
    "the same name twice": ("a, a\n1,2\n", "repeats the column name 'a'"),
    "no name": ('a,""\n1,2\n', "column 2 of 2 has no name"),
    "numbers as names": ("400.5,401.0\n1,2\n", "it has only numbers, the first is '400.5'"),
    "ids as names": ("17,18\n3,4\n", "it has only numbers"),
    "a title": ("export\na;b\n1;2\n3;4\n", "a single name, 'export', above rows of 2 fields \\(separator ';'\\)"),
    "a title in two columns": ("export of,today\na,b,c\n1,2,3\n", "row 2 has 3 fields"),
    "a comment below": ("a,b\n1,2\n# end\n", "row 3 is a comment"),
    "a blank row above": ("# x\n\na,b\n1,2\n", "row 2 is blank. The first row must name the columns"),
    "Latin-1": ("a,b\n1,2\n\u00e9,3\n".encode("latin-1"), "line 3 has the byte 0xe9.*save it as UTF-8"),
    "half a letter": (b"a,b\n1,\xc3", "line 2 has the byte 0xc3"),
    "a surrogate": (b"a,b\n1,\xed\xa0\x80\n", "line 2 has the byte 0xed"),
    "Latin-1 after line ends in quotes": (b'a,b\n1,"x\ny"\n2,\xe9\n', "line 4 has the byte 0xe9"),
    "UTF-16": ("a,b\n1,2\n".encode("utf-16"), "line 1 has the byte 0xff.*UTF-16"),
    "NUL": ("a,b\n" + "1,2\n" * 9000 + "1,\0\n", "line 9002 has the byte 0x00"),
    "Ctrl-Z": ("a,b\n1,2\n\x1a", "row 3 has 1 field"),
    "gzip": (b"\x1f\x8b\x08\x00\xc3\x89", "gzip.* correct its ending"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_hostile_text_is_refused_in_one_sentence(write, case, monkeypatch):
    content, message = REFUSED[case]
    path = write(content)
    for size in (1 << 22, 64):
        monkeypatch.setattr(delimited, "_BLOCK_BYTES", size)
        with pytest.raises(TableError, match=message) as caught:
            read_table(path)
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)


def test_random_changes_are_refused_or_read_as_by_csv(write, monkeypatch):
    good = b'id,x,"a ""b"""\n' + b'P1,1.5,"red, blue"\nP2,-2,"two\nlines"\nP3,,x\n' * 4
    rng = np.random.default_rng(0)
    n_read = 0
    for _ in range(300):
        content = bytearray(good)
        for at in rng.integers(len(good) - 5, size=rng.integers(1, 4)):
            content[at : at + rng.integers(2)] = rng.choice(
                [b'"', b",", b"\n", b"\r", b" ", b"\0", b"\xe9", b"#", b"7"]
            )
        path = write(bytes(content))
        for size in (1 << 22, 128):
            monkeypatch.setattr(delimited, "_BLOCK_BYTES", size)
            try:
                found = columns(path, as_text=open_table(path).names)
            except TableError:
                continue
            n_read += 1
            text = io.StringIO(content.decode(), newline="")
            names, *rows = (row for row in csv.reader(text, skipinitialspace=True) if row)
            cells = [[None if cell.strip() in MISSING_WORDS else cell.strip() for cell in row] for row in rows]
            assert_columns(found, dict(zip(map(str.strip, names), map(list, zip(*cells, strict=True)), strict=True)))
    assert n_read > 100


# Decimal commas


def test_decimal_commas(write):
    text = "id;x;y;size\n1;1,5;-2e3;1,5\n2; ,25 ;?;NA\n"
    expected = {"id": [1.0, 2.0], "x": [1.5, 0.25], "y": [-2000.0, NAN], "size": ["1,5", None]}
    assert_columns(columns(write(text), decimal=",", na_values=["?"], as_text=["size"]), expected)
    assert_columns(columns(write('a,b\n1,"2,5"\n'), decimal=","), {"a": [1.0], "b": [2.5]})
    assert_columns(columns(write("x\n1,5\n2\n"), decimal=","), {"x": [1.5, 2.0]})
    assert_columns(columns(write("x;y\n1,5;red\nlow;blue\n"), decimal=","), {"x": ["1.5", "low"], "y": ["red", "blue"]})


@pytest.mark.parametrize("number", ["1.5", "1.234,5", "1e3.5", " .5"])
def test_points_are_no_decimal_commas(write, number):
    path = write(f"x;y\n1,5;red\n{number};blue\n")
    if number in ("1.5", " .5"):
        with pytest.raises(TableError, match=f"column 'x' has '{number.strip()}', with a decimal point, although"):
            read_table(path, decimal=",")
    else:
        assert_columns(columns(path, decimal=","), {"x": ["1.5", number], "y": ["red", "blue"]})
    with pytest.raises(TableError, match=r"decimal must be '\.' or ','"):
        read_table(path, decimal="'")


# Parquet

TYPES = {
    "integers": (pa.array([1, None, 2**53 + 1]), [1.0, NAN, 2.0**53], ["1", None, "9007199254740993"]),
    "unsigned": (pa.array([2**64 - 1, 2], pa.uint64()), [2.0**64, 2.0], ["18446744073709551615", "2"]),
    "floats": (pa.array([17.0, 2.5, None]), [17.0, 2.5, NAN], ["17", "2.5", None]),
    "not finite": (pa.array([NAN, -INF]), [NAN, -INF], [None, "-inf"]),
    "halves": (pa.array(np.array([1.5, 2], np.float16)), [1.5, 2.0], ["1.5", "2"]),
    "true and false": (pa.array([True, False]), [True, False], ["True", "False"]),
    "true and a gap": (pa.array([True, None]), ["True", None], ["True", None]),
    "text": (pa.array([" a ", None, "", "NA"]), ["a", None, None, "NA"], ["a", None, None, "NA"]),
    "large text": (pa.array(["a", None], pa.large_string()), ["a", None], ["a", None]),
    "a dictionary": (pa.array(["a", "b", None]).dictionary_encode(), ["a", "b", None], ["a", "b", None]),
    "decimals": (pa.array([Decimal("1.10"), Decimal("-2.00")]), [1.1, -2.0], ["1.1", "-2"]),
    "small decimals": (pa.array([Decimal("1e-10"), Decimal("100")]), [1e-10, 100.0], ["0.0000000001", "100"]),
    "nothing": (pa.nulls(2), [NAN, NAN], [None, None]),
}


@pytest.mark.parametrize("case", TYPES)
def test_types_of_parquet(tmp_path, case):
    column, values, texts = TYPES[case]
    pq.write_table(pa.table({"x": column}), tmp_path / "a.parquet", row_group_size=1)
    assert_columns(columns(tmp_path / "a.parquet"), {"x": values})
    assert_columns(columns(tmp_path / "a.parquet", as_text=["x"]), {"x": texts})


@pytest.mark.parametrize("kind", [pa.time32("s"), pa.duration("s"), pa.list_(pa.int64()), pa.binary()], ids=str)
def test_types_of_parquet_that_are_not_read(tmp_path, kind):
    pq.write_table(pa.table({"x": pa.nulls(2, kind), "y": [1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(TableError, match=r"column 'x' holds neither numbers nor text: its type is .*drop"):
        read_table(tmp_path / "a.parquet")
