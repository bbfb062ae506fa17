"""The points of a task: what is a feature, what is only shown, and the fingerprint that tells tables apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from closefar.label import read_label_points
from closefar.tables import Source, TableError, encode_table, read_pairs
from recorded import write_points

_TABLE = "id,age,ward,size,code,photo,smoker\n" + "".join(
    f"p{row},{30 + row},{'north' if row % 3 else 'south'},{'SML'[row % 3]},0{row % 2},{row}.png,{row % 2 == 0}\n"
    for row in range(12)
)


def test_shown_columns_are_no_features(write: Any) -> None:
    points = read_label_points(write(_TABLE), show=["photo", "code"])
    assert points.feature_columns == ("age", "ward", "size", "smoker")
    assert points.shown == ("code", "photo")
    assert list(points.columns) == ["age", "ward", "size", "code", "photo", "smoker"]
    assert points.ids.tolist() == [f"p{row}" for row in range(12)]
    assert points.features.shape == (12, len(points.feature_names))
    assert set(points.fingerprint) == set(points.columns)
    assert points.columns["photo"][3] == "3.png"
    assert points.id_name == "id"


def test_a_column_that_is_named_for_both_is_both(write: Any) -> None:
    points = read_label_points(write(_TABLE), show=["age", "photo"], columns=["age", "ward"])
    assert points.feature_columns == ("age", "ward")
    assert points.shown == ("photo",)
    assert list(points.columns) == ["age", "ward", "photo"]


def test_features_are_those_of_a_fit(tmp_path: Path, write: Any) -> None:
    table = write(_TABLE)
    pairs = write("first,second,label\n" + "".join(f"p{row},p{row + 6},far\n" for row in range(6)), "pairs.csv")
    options: dict[str, Any] = {"categorical": ["code"], "ordinal": {"size": ["S", "M", "L"]}}
    points = read_label_points(table, show=["photo"], **options)
    fitted = read_pairs(Source(points=table, pairs=pairs), labelled=True, drop=["photo"], **options)
    assert points.feature_names == fitted.encoding.feature_names
    assert points.features.tolist() == fitted.points.tolist()
    assert points.columns["code"].tolist() == ["00", "01"] * 6  # as it is written
    assert points.options == {"categorical": ["code"], "ordinal": {"size": ["S", "M", "L"]}}


@pytest.mark.parametrize("missing", ["drop", "median"])
def test_missing_values_are_left_out_or_filled_in(write: Any, missing: str) -> None:
    table = write("id,age,mass\na,1,5\nb,,6\nc,3,?\nd,4,8\n")
    with pytest.raises(TableError, match="missing values"):
        read_label_points(table, na_values=["?"])
    if missing == "drop":
        points = read_label_points(table, na_values=["?"], missing="drop")
        assert points.ids.tolist() == ["a", "d"]
        assert points.columns["age"].tolist() == [1.0, 4.0]
        assert points.features.tolist() == [[1.0, 5.0], [4.0, 8.0]]
        assert points.notes == ("2 of 4 points were left out: they lack a value.",)
    else:
        with pytest.warns(UserWarning, match="median"):
            points = read_label_points(table, na_values=["?"], missing="median")
        assert np.isfinite(points.features).all()
        assert np.isnan(points.columns["age"]).tolist() == [False, True, False, False]
    assert points.options == {"na_values": ["?"], "missing": missing}


def test_ids_are_found_and_must_be_one_of_each(write: Any) -> None:
    points = read_label_points(write("name,age\nx,1\ny,2\n"))
    assert (points.ids.tolist(), points.id_name) == (["x", "y"], "name")
    assert "taken from its first column, 'name'" in points.notes[0]
    assert read_label_points(write("age,name\n1,x\n2,y\n"), id="name").ids.tolist() == ["x", "y"]
    assert read_label_points(write("id,age\n007,1\n7,2\n")).ids.tolist() == ["007", "7"]
    with pytest.raises(TableError, match="has 'x' 2 times"):
        read_label_points(write("id,age\nx,1\nx,2\n"))
    with pytest.raises(TableError, match="missing value"):
        read_label_points(write("id,age\nx,1\n,2\n"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"show": ["foto"]}, r"no column 'foto' to show beside its ids.*'photo'"),
        ({"show": ["id"]}, "no column 'id' to show"),
        ({"id": "name"}, "no column 'name'"),
        ({"show": ["a", "b", "c", "photo"]}, "no column left to use as a feature"),
    ],
)
def test_wrong_columns_are_sentences(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(TableError, match=words):
        read_label_points(write_points(tmp_path), **options)


def test_a_table_of_ids_alone_has_nothing_to_judge(write: Any) -> None:
    with pytest.raises(TableError, match="no column left to use as a feature"):
        read_label_points(write("id\na\nb\n"))


def test_the_fingerprint_is_of_values_and_not_of_the_file(tmp_path: Path) -> None:
    csv = write_points(tmp_path)
    before = read_label_points(csv, show=["photo"])
    parquet = tmp_path / "points.parquet"
    columns = {"id": before.ids, **before.columns}
    parquet.write_bytes(encode_table(columns, parquet))
    assert read_label_points(parquet, show=["photo"]).fingerprint == before.fingerprint
    csv.write_text(csv.read_text().replace(",", ";").replace("\n", "\r\n"))
    assert read_label_points(csv, show=["photo"]).fingerprint == before.fingerprint
    csv.write_text(csv.read_text().replace("29.png", "29.PNG"))
    after = read_label_points(csv, show=["photo"]).fingerprint
    assert {name for name in after if after[name] != before.fingerprint[name]} == {"photo"}


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("1,2", "1.0,2", True),
        ("0,2", "-0.0,2", True),
        ("a,b", "a,b ", True),
        ("ab,c", "a,bc", False),
        ("1,2", "2,1", False),
        ("1,x", "1.0,x", False),  # text stays as it is written
        ("true,false", "false,true", False),
        ("1,", "1,0", False),
    ],
)
def test_which_columns_count_as_changed(write: Any, left: str, right: str, same: bool) -> None:
    found = []
    for number, cells in enumerate((left, right)):
        first, second = cells.split(",")
        path = write(f"id,value,x\na,{first},1\nb,{second},2\n", f"{number}.csv")
        found.append(read_label_points(path, show=["value"]).fingerprint["value"])
    assert (found[0] == found[1]) == same


def test_the_folder_is_where_the_table_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_points(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert read_label_points("points.csv", show=["photo"]).folder == tmp_path.resolve()
    link = tmp_path / "elsewhere"
    link.mkdir()
    (link / "link.csv").symlink_to(tmp_path / "points.csv")
    assert read_label_points(link / "link.csv", show=["photo"]).folder == tmp_path.resolve()
