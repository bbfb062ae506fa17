"""Pairs in files that are read in each pass: what is opened, what goes wrong, and that nothing is left behind."""

from __future__ import annotations

import copy
import pickle
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import closefar as cf
import closefar.cli.app as command_line_app
from closefar.judgements import CodedLabels
from closefar.rows import streamed
from closefar.tables import Source, TableError, large_files, read_pairs, read_table, write_table
from closefar.tables import opened as opened_pairs
from paper_estimator import PAPER

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N = 1200


@pytest.fixture(autouse=True)
def _streamed(monkeypatch):
    """Nothing is held in memory, however small it is, chunks are small, and no thread outlives a test."""
    monkeypatch.setattr(streamed, "HELD_FILE_BYTES", 0)
    monkeypatch.setattr(opened_pairs, "CHUNK_BYTES", 0)
    monkeypatch.setattr(opened_pairs, "_FEWEST_ROWS", 200)
    yield
    assert not [
        thread for thread in threading.enumerate() if thread.name == "closefar-read-ahead" and thread.is_alive()
    ]


@pytest.fixture
def table() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((N, 3))
    labels = (values**2 @ [2.0, 1.0, 0.0] + rng.logistic(size=N) > 2.5).astype(int)
    return {"a": values[:, 0], "b": values[:, 1], "c": values[:, 2], "label": labels}


def write(folder: Path, columns: Any, name: str = "z.parquet", **options: Any) -> Path:
    path = folder / name
    pq.write_table(pa.table(columns), path, **{"row_group_size": 250, **options})
    return path


def sides_of(columns: dict[str, Any]) -> dict[str, Any]:
    """The same values on the left; those of the next row on the right."""
    features = {name: values for name, values in columns.items() if name != "label"}
    left = {f"left_{name}": values for name, values in features.items()}
    right = {f"right_{name}": np.roll(values, 1) for name, values in features.items()}
    return {**left, **right, "label": columns["label"]}


def test_what_is_opened_acts_as_an_array(tmp_path, table):
    with cf.open_pairs(write(tmp_path, table)) as opened:
        assert opened.shape == (N, 3)
        assert opened.ndim == 2
        assert len(opened) == N
        assert opened.feature_names == ("a", "b", "c")
        assert opened.is_single
        values = np.column_stack([table[name] for name in "abc"])
        assert np.array_equal(opened[100:900:7].read(slice(0, 50)).T, values[100:900:7][:50])
        chosen = np.array([1100, 3, 3, 700])
        assert np.array_equal(opened[chosen].read(slice(0, 4)).T, values[chosen])
        assert np.array_equal(opened.read(slice(240, 760)).T, values[240:760])
        assert opened.labels.dtype == np.int8
        assert opened.ids[:2].tolist() == ["0", "1"]
        np.testing.assert_array_equal(np.asarray(opened), values)
        np.testing.assert_array_equal(np.asarray(opened[5:9]), values[5:9])
        np.testing.assert_array_equal(opened[-1], values[-1])
        assert repr(opened[5:9]).endswith("Rows(4 rows of 3 columns)")
        with pytest.raises(IndexError, match="slice, an index array or a mask"):
            opened[:, 0]
        with pytest.raises(IndexError):
            opened[N]


def test_many_rows_are_selected_without_being_held(tmp_path, table):
    with cf.open_pairs(write(tmp_path, table)) as opened:
        values = np.column_stack([table[name] for name in "abc"])
        where = np.flatnonzero(np.arange(N) % 3 > 0)
        selected = opened.take_rows(where)
        assert isinstance(selected, streamed.SelectedRows)
        assert np.array_equal(np.hstack([block for _, block in selected.blocks()]).T, values[where])
        again = selected.take_rows(np.array([5, 2]))
        assert np.array_equal(again.read(slice(0, 2)).T, values[where][[5, 2]])
        assert selected.read(slice(0, 0)).shape == (3, 0)


def test_a_sample_reads_only_its_row_groups(tmp_path, table, monkeypatch):
    read: list[int] = []
    batches = pq.ParquetFile.iter_batches

    def watched(self: Any, *args: Any, **options: Any) -> Any:
        for batch in batches(self, *args, **options):
            read.append(len(batch))
            yield batch

    with cf.open_pairs(write(tmp_path, table)) as opened:
        monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
        opened.read(slice(1150, 1160))
        opened.close()
    assert sum(read) <= 250


@pytest.mark.parametrize("name", ["z.parquet", "z.csv"])
def test_encodings_are_those_of_tables_in_memory(name, tmp_path, table):
    rng = np.random.default_rng(1)
    table["ward"] = rng.choice(["north", "south", "west"], N)
    table["size"] = rng.choice(["S", "M", "L"], N)
    table["smoker"] = rng.random(N) < 0.3
    table["b"] = np.where(rng.random(N) < 0.05, np.nan, table["b"])
    table["label"] = np.where(table["label"] == 1, "far", "close")
    columns = sides_of(table) | {"weight": rng.integers(1, 3, N), "key": [f"k{number}" for number in range(N)]}
    path = write(tmp_path, columns, "z.parquet")
    if name == "z.csv":
        path = tmp_path / name
        pa.table(columns).to_pandas().to_csv(path, index=False)
    options: dict[str, Any] = {"ordinal": {"size": ["S", "M", "L"]}, "missing": "drop", "drop": ["c"]}
    roles = {"weight": "weight", "id": "key"}
    held = read_pairs(Source(pairs=path, **roles), labelled=True, **options)
    with cf.open_pairs(path, **roles, **options) as opened:
        assert opened.encoding == held.encoding
        assert len(opened) == len(held) < N
        rows = np.hstack([block for _, block in opened.blocks()]).T
        np.testing.assert_allclose(rows, held.data[:, 0] - held.data[:, 1], rtol=0, atol=1e-15)
        assert np.array_equal(np.concatenate(list(opened.point_blocks())), held.data)
        assert isinstance(opened.labels, CodedLabels)
        assert opened.labels.tolist() == held.labels.tolist()
        assert np.array_equal(opened.weights, held.weights)
        assert np.array_equal(opened.ids, held.ids)
        assert opened.notes == held.notes
        assert opened.id_names == held.id_names
    with cf.open_pairs(path, encoding=opened.encoding, **roles) as new:
        assert new.feature_names == opened.feature_names
        assert len(new) == len(opened)


def test_text_labels_take_a_byte_each_and_act_as_text(tmp_path, table):
    table["label"] = np.where(table["label"] == 1, "far", "close")
    with cf.open_pairs(write(tmp_path, table)) as opened:
        assert opened.labels.codes.dtype == np.int8
        assert opened.labels[0] == table["label"][0]
        for class_weight in (None, "balanced", {"close": 2.0, "far": 1.0}):
            learner = cf.LinearMetricLearner(class_weight=class_weight, **PAPER)
            values = np.column_stack([table[name] for name in "abc"])
            expected = learner.fit(values, table["label"]).certificate_.loss
            assert learner.fit(opened).certificate_.loss == pytest.approx(expected, abs=1e-9)
        assert learner.classes_.tolist() == ["close", "far"]
        assert learner.score(opened) > 0.6
        with pytest.raises(ValueError, match="must contain both"):
            cf.LinearMetricLearner(**PAPER).fit(opened, CodedLabels(["far"], np.zeros(N, dtype=np.int8)))


@pytest.mark.parametrize(
    ("labels", "expected"), [([True, False], np.bool_), ([2.0, 1.0], np.int8), (["yes", "no"], None)], ids=str
)
def test_labels_are_numbers_where_they_are(labels, expected, tmp_path, table):
    table["label"] = np.array(labels)[table["label"]]
    with cf.open_pairs(write(tmp_path, table)) as opened:
        assert np.array_equal(np.asarray(opened.labels), table["label"])
        assert isinstance(opened.labels, CodedLabels) if expected is None else opened.labels.dtype == expected


def test_questions_take_opened_pairs(tmp_path, table):
    values = np.column_stack([table[name] for name in "abc"])
    learner = cf.LinearMetricLearner(**PAPER)
    with cf.open_pairs(write(tmp_path, table)) as opened:
        found = cf.find_label_errors(learner, opened, random_state=0)
        expected = cf.find_label_errors(learner, values, table["label"], random_state=0)
        np.testing.assert_allclose(found.probability, expected.probability, atol=1e-6)
        chosen = cf.LinearMetricLearner()
        assert chosen.fit(opened).alpha_ == pytest.approx(chosen.fit(values, table["label"]).alpha_)
        learner.fit(opened)
        assert learner.check_noise_model(opened).p_value == pytest.approx(learner.check_noise_model().p_value)
        assert learner.transform(opened).shape == (N, learner.metric_.rank)


def test_new_data_must_have_the_features_of_the_fit_in_their_order(tmp_path, table):
    with cf.open_pairs(write(tmp_path, table)) as opened:
        learner = cf.LinearMetricLearner(**PAPER).fit(opened)
    turned = {name: table[name] for name in ("b", "a", "c")}
    with cf.open_pairs(write(tmp_path, turned, "other.parquet")) as other:
        assert other.labels is None
        with pytest.raises(ValueError, match="columns must be those of the fit, in its order"):
            learner.predict(other)
    with cf.open_pairs(tmp_path / "other.parquet", encoding=opened.encoding) as other:
        values = np.column_stack([table[name] for name in "abc"])
        with pytest.warns(UserWarning, match="feature names"):
            assert np.array_equal(learner.predict(other), learner.predict(values))


def test_pairs_have_no_origin_and_points_have(tmp_path, table):
    points = {name: values + 1.0 if name != "label" else values for name, values in table.items()}
    with cf.open_pairs(points=write(tmp_path, points)) as opened:
        learner = cf.LinearMetricLearner(fit_origin=True, **PAPER).fit(opened)
        values = np.column_stack([points[name] for name in "abc"])
        expected = cf.LinearMetricLearner(fit_origin=True, **PAPER).fit(values, points["label"])
        np.testing.assert_allclose(learner.pair_distance(opened), expected.pair_distance(values), atol=1e-6)
    with cf.open_pairs(write(tmp_path, sides_of(points), "pairs.parquet")) as opened:
        pairs = np.concatenate(list(opened.point_blocks()))
        np.testing.assert_allclose(learner.pair_distance(opened), learner.metric_.distance(pairs[:, 0], pairs[:, 1]))
        with pytest.raises(ValueError, match=r"fit_origin needs .*single points"):
            learner.fit(opened)


def test_columns_that_end_with_numbers_are_differences_unless_all_pair(tmp_path, table):
    names = {"z1": table["a"], "z2": table["b"], "w": table["c"], "label": table["label"]}
    with cf.open_pairs(write(tmp_path, names)) as opened:
        assert opened.feature_names == ("z1", "z2", "w")
    with cf.open_pairs(write(tmp_path, {"z1": table["a"], "z2": table["b"]})) as opened:
        assert opened.feature_names == ("z",)
        assert not opened.is_single
    with cf.open_pairs(points=tmp_path / "z.parquet") as opened:
        assert opened.feature_names == ("z1", "z2")
        assert opened.is_single


def test_a_copy_reads_the_file_anew(tmp_path, table):
    np.save(tmp_path / "z.npy", np.column_stack([table[name] for name in "abc"]))
    pa.table(table).to_pandas().to_csv(tmp_path / "z.csv", index=False)
    write(tmp_path, table)
    for name, labels in (("z.parquet", None), ("z.csv", None), ("z.npy", table["label"])):
        opened = cf.open_pairs(tmp_path / name, labels=labels)
        first = opened.read(slice(0, 5))
        for other in (copy.deepcopy(opened), pickle.loads(pickle.dumps(opened))):
            assert np.array_equal(other.read(slice(0, 5)), first)
            other.close()
        opened.close()
        with pytest.raises(ValueError, match="closed"):
            opened.read(slice(0, 5))


def test_text_is_parsed_into_a_temporary_file_that_is_removed(tmp_path, table, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    path = tmp_path / "z.csv"
    pa.table(table).to_pandas().to_csv(path, index=False)
    opened = cf.open_pairs(path)
    assert len(list(temporary.iterdir())) == 1
    opened.close()
    assert not list(temporary.iterdir())
    opened = cf.open_pairs(path)
    del opened
    assert not list(temporary.iterdir())


def test_text_after_many_numbers_is_found(tmp_path, monkeypatch):
    """The file is parsed again with that column as text."""
    from closefar.tables import delimited

    monkeypatch.setattr(delimited, "_BLOCK_BYTES", 1 << 12)
    rows = [f"{number / 7:.3f},{'x' if number % 900 == 850 else number % 3},{number % 2}" for number in range(2000)]
    path = tmp_path / "z.csv"
    path.write_text("\n".join(["a,b,label", *rows]))
    with cf.open_pairs(path, categorical=["b"]) as opened:
        assert opened.encoding.categories["b"] == ("0", "1", "2", "x")
    with pytest.raises(TableError, match=r"'b' mixes numbers and text: 2 values are not numbers.*row 852"):
        cf.open_pairs(path)


def _missing(folder: Path, table: dict[str, Any]) -> Any:
    return cf.open_pairs(folder / "none.parquet")


def _empty_directory(folder: Path, table: dict[str, Any]) -> Any:
    (folder / "empty").mkdir()
    return cf.open_pairs(folder / "empty")


def _truncated_parquet(folder: Path, table: dict[str, Any]) -> Any:
    path = write(folder, table)
    path.write_bytes(path.read_bytes()[:-40])
    return cf.open_pairs(path)


def _damaged_row_group(folder: Path, table: dict[str, Any]) -> Any:
    path = write(folder, table)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 - 2000 : len(content) // 2] = b"\xff" * 2000
    path.write_bytes(bytes(content))
    return cf.open_pairs(path)


def _other_columns(folder: Path, table: dict[str, Any]) -> Any:
    (folder / "parts").mkdir()
    write(folder / "parts", table, "1.parquet")
    write(folder / "parts", {**table, "d": table["a"]}, "2.parquet")
    return cf.open_pairs(folder / "parts")


def _missing_value(folder: Path, table: dict[str, Any]) -> Any:
    table["b"][7] = np.nan
    return cf.open_pairs(write(folder, table))


def _dates(folder: Path, table: dict[str, Any]) -> Any:
    return cf.open_pairs(write(folder, {**table, "b": np.arange(N).astype("datetime64[D]")}))


def _lists(folder: Path, table: dict[str, Any]) -> Any:
    return cf.open_pairs(write(folder, {**table, "b": [[1.0]] * N}))


def _npy(array: Any, **options: Any) -> Any:
    def opening(folder: Path, table: dict[str, Any]) -> Any:
        np.save(folder / "z.npy", array)
        return cf.open_pairs(folder / "z.npy", **options)

    return opening


def _shortened_npy(folder: Path, table: dict[str, Any]) -> Any:
    np.save(folder / "z.npy", np.ones((50, 3)))
    content = (folder / "z.npy").read_bytes()
    (folder / "z.npy").write_bytes(content[:-9])
    return cf.open_pairs(folder / "z.npy")


def _nan_in_npy(folder: Path, table: dict[str, Any]) -> Any:
    values = np.ones((5000, 3), dtype=np.float32)
    values[4321, 2] = np.nan
    np.save(folder / "z.npy", values)
    opened = cf.open_pairs(folder / "z.npy", labels=np.arange(5000) % 2)
    return cf.LinearMetricLearner(**PAPER).fit(opened)


def _infinity_in_npy(folder: Path, table: dict[str, Any]) -> Any:
    values = np.ones((50, 2))
    values[3, 1] = np.inf
    np.save(folder / "z.npy", values)
    return np.asarray(cf.open_pairs(folder / "z.npy"))


def _few_labels(folder: Path, table: dict[str, Any]) -> Any:
    np.save(folder / "z.npy", np.ones((50, 3)))
    return cf.open_pairs(folder / "z.npy", labels=[0, 1])


def _index_beyond(folder: Path, table: dict[str, Any]) -> Any:
    np.save(folder / "i.npy", np.array([[0, 1], [2, 5]]))
    return cf.open_pairs(folder / "i.npy", points=np.ones((5, 2)))


WRONG = {
    "missing file": (_missing, r"none.parquet does not exist. Check the path"),
    "directory without Parquet files": (_empty_directory, "is a directory without Parquet files"),
    "truncated Parquet": (_truncated_parquet, r"z.parquet can't be read: it is not a Parquet file, or it is damaged"),
    "damaged row group": (_damaged_row_group, r"z.parquet can't be read: it is not a Parquet file, or it is damaged"),
    "a folder of different files": (_other_columns, r"all files must have the same columns.*2.parquet has"),
    "missing value": (_missing_value, r"missing values in column 'b' \(1\).*with missing=.drop"),
    "lists": (_lists, "column 'b' holds neither numbers nor text"),
    "npy of three axes": (_npy(np.ones((5, 3, 2))), r"array of shape \(5, 3, 2\); it must be \(n, d\) for points"),
    "npy of complex numbers": (_npy(np.ones((5, 2)) * 1j), "holds neither numbers nor text"),
    "npy without rows": (_npy(np.ones((0, 2))), "no rows"),
    "dates": (_dates, r"column 'b' has numbers, dates or times that are not.*or drop=\['b'\]"),
    "npy with unknown columns": (_npy(np.ones((5, 2)), columns=["y"]), "no column 'y'"),
    "npy cut short": (_shortened_npy, "not a NumPy file of numbers and text, or it is damaged"),
    "npy with NaN": (_nan_in_npy, r"z.npy has missing values in column 'x2' \(1\)"),
    "npy with infinity": (_infinity_in_npy, r"'x1' must hold finite numbers;.*the first is 'inf' in row 3 "),
    "too few labels": (_few_labels, r"labels must hold one value per row that is used, 50; got shape \(2,\)"),
    "an index beyond the points": (
        _index_beyond,
        r"the first is '5' in column 'x1', row 1 \(counted from 0\).* numbered from 0",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_sentence(case, tmp_path, table):
    opening, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        opening(tmp_path, table)


@pytest.mark.parametrize(
    "given",
    [
        {"labels": "label"},
        {"label": np.arange(N) % 2},
        {"labels": np.arange(N) % 2, "weight": "c"},
        {"labels": np.arange(N) % 2, "weights": "c", "group": "b"},
        {"columns": "b"},
        {"drop": "a", "na_values": "-999"},
    ],
    ids=str,
)
def test_columns_are_named_as_one_would_expect(given, tmp_path, table):
    table["c"] = np.abs(table["c"])
    with cf.open_pairs(write(tmp_path, table), **given) as opened:
        named = {given.get("weight", given.get("weights")), given.get("group"), given.get("drop"), None}
        columns = [given["columns"]] if "columns" in given else [name for name in "abc" if name not in named]
        np.testing.assert_array_equal(np.asarray(opened), np.column_stack([table[name] for name in columns]))
        values = next((value for value in given.values() if isinstance(value, np.ndarray)), table["label"])
        np.testing.assert_array_equal(opened.labels, values)
        assert (opened.weights is None) == ("weight" not in given and "weights" not in given)
        assert opened.weights is None or np.array_equal(opened.weights, table["c"])
        assert (opened.groups is None) == ("group" not in given)


def test_several_parquet_files_are_opened_in_the_order_given(tmp_path, table):
    parts = [
        write(tmp_path, {name: values[where] for name, values in table.items()}, f"{number}.parquet")
        for number, where in enumerate([slice(700, N), slice(0, 700)])
    ]
    with cf.open_pairs(parts[::-1]) as opened:
        np.testing.assert_array_equal(np.asarray(opened)[:, 0], table["a"])
        np.testing.assert_array_equal(opened.labels, table["label"])
    (tmp_path / "z.csv").write_text("a,label\n1,2\n")
    with pytest.raises(TableError, match=r"if they are Parquet; got .*z.csv"):
        cf.open_pairs([*parts, tmp_path / "z.csv"])


def test_columns_of_points_in_memory_are_chosen(tmp_path, table):
    rng = np.random.default_rng(1)
    points, index = rng.standard_normal((50, 3)), rng.integers(50, size=(N, 2))
    np.save(tmp_path / "i.npy", index)
    options = {"points": points, "labels": table["label"]}
    opened = cf.open_pairs(tmp_path / "i.npy", columns=["x2", "x0"], **options)
    np.testing.assert_array_equal(np.asarray(opened), points[:, [0, 2]][index])
    assert opened.feature_names == ("x0", "x2")
    again = cf.open_pairs(tmp_path / "i.npy", encoding=opened.encoding, **options)
    assert again == opened
    copied = pickle.loads(pickle.dumps(opened))
    np.testing.assert_array_equal(copied.labels, opened.labels)
    assert copied == opened
    with pytest.raises(TableError, match="points has no column 'x7'"):
        cf.open_pairs(tmp_path / "i.npy", columns=["x7"], **options)
    with pytest.raises(ValueError, match="columns of points in memory must be numbers"):
        cf.open_pairs(tmp_path / "i.npy", categorical=["x1"], **options)
    with pytest.raises(ValueError, match="are their row numbers; got id='x1'"):
        cf.open_pairs(tmp_path / "i.npy", id="x1", **options)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint64, np.float64])
@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".csv"])
def test_row_numbers_of_points_in_memory_are_joined(suffix, dtype, tmp_path):
    rng = np.random.default_rng(2)
    points, index = rng.standard_normal((50, 3)), rng.integers(0, 50, (200, 2))
    columns = {"x0": index[:, 0].astype(dtype), "x1": index[:, 1].astype(dtype)}
    path = tmp_path / f"i{suffix}"
    np.save(tmp_path / "i.npy", np.column_stack(list(columns.values())))
    pq.write_table(pa.table(columns), tmp_path / "i.parquet")
    pd.DataFrame(index, columns=list(columns)).to_csv(tmp_path / "i.csv", index=False)
    opened = cf.open_pairs(path, points=points)
    assert np.shares_memory(opened.points, points)
    assert opened.labels is None
    np.testing.assert_array_equal(opened.index, index)
    np.testing.assert_array_equal(np.asarray(opened), points[index])
    np.save(tmp_path / "i.npy", np.column_stack([*columns.values(), np.arange(200) % 2]))
    labelled = cf.open_pairs(tmp_path / "i.npy", points=points, label="x2")
    np.testing.assert_array_equal(labelled.index, index)
    np.testing.assert_array_equal(labelled.labels, np.arange(200) % 2)
    with pytest.raises(TableError, match="no others but those that are named as label or weight; got 3 columns"):
        cf.open_pairs(tmp_path / "i.npy", points=points)


def test_an_array_may_have_columns_of_labels_weights_and_ids(tmp_path, table):
    values = np.column_stack([*table.values(), np.arange(N) % 3, np.arange(N) + 100])
    np.save(tmp_path / "z.npy", values)
    with cf.open_pairs(tmp_path / "z.npy", label="x3", weight="x4", id="x5") as opened:
        np.testing.assert_array_equal(np.asarray(opened), values[:, :3])
        np.testing.assert_array_equal(opened.labels, table["label"])
        np.testing.assert_array_equal(opened.weights, values[:, 4])
        assert opened.ids[:2].tolist() == ["100", "101"]
    values[7, 3] = np.nan
    np.save(tmp_path / "z.npy", values)
    with pytest.raises(TableError, match=r"label column 'x3' has 1 missing value.*in row 7 \(counted from 0\)"):
        cf.open_pairs(tmp_path / "z.npy", label="x3")


@pytest.mark.parametrize("missing", ["drop", "median"])
def test_missing_values_of_an_array_are_treated_as_those_of_a_table(missing, tmp_path, table):
    rng = np.random.default_rng(3)
    values = rng.standard_normal((N, 2, 3))
    values[rng.random(values.shape) < 0.01] = np.nan
    columns = {
        f"{side}_x{at}": values[:, number, at] for number, side in enumerate(["left", "right"]) for at in range(3)
    }
    np.save(tmp_path / "z.npy", values)
    with (
        cf.open_pairs(tmp_path / "z.npy", missing=missing) as opened,
        cf.open_pairs(write(tmp_path, columns), missing=missing) as expected,
    ):
        assert opened.encoding.missing == missing
        np.testing.assert_array_equal(np.asarray(opened), np.asarray(expected))
        assert len(opened) == (N if missing == "median" else int(np.sum(~np.isnan(values).any(axis=(1, 2)))))


@pytest.mark.parametrize("shape", [(N, 3), (N, 2, 3)], ids=["differences", "pairs"])
def test_commands_say_that_a_large_array_has_no_labels(shape, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("z.npy", np.ones(shape))
    option = "--points" if len(shape) == 2 else "--pairs"
    expected = _run("fit", option, "z.npy")
    assert expected[0] == 2
    monkeypatch.setattr(large_files, "MOST_BYTES", 0)
    assert _run("fit", option, "z.npy") == expected


def test_errors_in_a_pass_name_arguments(tmp_path, table):
    words = np.where(table["a"] > 0, "up", "down")
    with cf.open_pairs(write(tmp_path, {**table, "c": words})) as opened:
        learner = cf.LinearMetricLearner(**PAPER).fit(opened)
    words = np.where(np.arange(N) == 700, "left", words)
    other = cf.open_pairs(write(tmp_path, {**table, "c": words}), encoding=opened.encoding)
    with other, pytest.raises(TableError, match=r"'left'.*use unseen=.average"):
        learner.predict(other)


def test_what_is_in_memory_is_not_opened(tmp_path):
    with pytest.raises(TypeError, match=r"got ndarray. If it is in memory, pass it to the learner"):
        cf.open_pairs(np.ones((3, 2)))
    with pytest.raises(TypeError, match=r"got ndarray. If it is in memory, use closefar.Tuples"):
        cf.open_pairs(np.ones((3, 2), dtype=int), points=np.ones((3, 2)))
    with pytest.raises(ValueError, match="labels must be given once"):
        cf.open_pairs(tmp_path / "z.parquet", label="label", labels=[1, 2])
    with pytest.raises(ValueError, match=r"sides must be two different prefixes.*got \('left_',\)"):
        cf.open_pairs(tmp_path / "z.parquet", sides="left_")


def test_nothing_and_points_alone_are_refused():
    with pytest.raises(ValueError, match="got neither"):
        cf.open_pairs()
    with pytest.raises(ValueError, match="need a file of pairs"):
        cf.open_pairs(points=np.ones((3, 2)))


@pytest.mark.parametrize("name", ["z.parquet", "z.npy"])
def test_a_file_that_changes_between_passes_is_refused(name, tmp_path, table):
    path = write(tmp_path, table)
    values = np.column_stack([table[name] for name in "abc"])
    np.save(tmp_path / "z.npy", values)
    opened = cf.open_pairs(tmp_path / name, **({"labels": table["label"]} if name == "z.npy" else {}))
    learner = cf.LinearMetricLearner(**PAPER).fit(opened)
    if name == "z.npy":
        np.save(tmp_path / "z.npy", np.vstack([values, values]))
    else:
        write(tmp_path, table, row_group_size=77)
    with pytest.raises(TableError, match="has changed since it was opened"):
        learner.predict(opened)
    path.unlink()
    (tmp_path / "z.npy").unlink()
    with pytest.raises(TableError, match="can't be read: No such file"):
        learner.predict(opened)
    opened.close()


def test_an_interrupt_ends_the_pass_and_the_next_one_begins_anew(tmp_path, table, monkeypatch):
    opened = cf.open_pairs(write(tmp_path, table))
    join = threading.Thread.join
    monkeypatch.setattr(threading.Thread, "join", _interrupted_once(join))
    with pytest.raises(KeyboardInterrupt):
        opened.read(slice(0, 100))
    assert np.array_equal(opened.read(slice(0, 100))[0], table["a"][:100])
    opened.close()


def _interrupted_once(join: Any) -> Any:
    calls: list[int] = []

    def joined(self: threading.Thread, timeout: float | None = None) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        join(self, timeout)

    return joined


def test_an_error_while_reading_ahead_is_raised_where_the_rows_are_used(tmp_path, table):
    """A category that training did not have, in the last row group."""
    table["ward"] = np.array(["north", "south"] * (N // 2), dtype=object)
    with cf.open_pairs(write(tmp_path, table)) as opened:
        learner = cf.LinearMetricLearner(**PAPER).fit(opened)
    table["ward"][1100] = "west"
    with (
        cf.open_pairs(write(tmp_path, table, "new.parquet"), encoding=opened.encoding) as new,
        pytest.raises(TableError, match=r"has the value 'west' in row 1100 \(counted from 0\)"),
    ):
        learner.predict(new)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv", "t.parquet", "t.npz"])
def test_a_table_written_in_blocks_reads_as_one_written_whole(name, tmp_path):
    columns = {"id": np.array(["a", "b", "c"], dtype=object), "margin": np.array([1.5, -0.1, 1e-17])}
    path = tmp_path / name
    with open(path, "wb") as file:
        write_table(({each: values[at : at + 2] for each, values in columns.items()} for at in (0, 2)), path, file)
    found = read_table(path, as_text=["id"]).columns
    assert found["id"].tolist() == ["a", "b", "c"]
    assert np.array_equal(found["margin"], columns["margin"])


@pytest.fixture
def large(tmp_path, table, monkeypatch) -> Path:
    """The file of a command line that opens every file, however small."""
    monkeypatch.setattr(large_files, "MOST_BYTES", 0)
    monkeypatch.chdir(tmp_path)
    table["ward"] = np.array(["north", "south"] * (N // 2), dtype=object)
    return write(tmp_path, {**table, "id": np.arange(N)})


def _run(*command: Any) -> tuple[int, str]:
    from closefar.cli.app import app

    done = CliRunner().invoke(app, [str(part) for part in command])
    return done.exit_code, done.output


def test_commands_open_large_files(large, monkeypatch):
    code, _ = _run("fit", "--points", large)
    assert code == 0
    for command in ("predict", "transform"):
        results = []
        for rows_written, out in ((1 << 17, "whole.csv"), (100, "blocks.csv")):
            monkeypatch.setattr(command_line_app, "_ROWS_WRITTEN", rows_written)
            assert _run(command, "--model", "model.closefar", "--points", large, "--out", out, "--force")[0] == 0
            results.append(Path(out).read_text())
        assert results[0] == results[1]
        assert len(results[0].splitlines()) == N + 1
    code, text = _run("evaluate", "--model", "model.closefar", "--points", large)
    assert code == 0
    assert "these are the training pairs of the model" in text
    monkeypatch.setattr(large_files, "MOST_BYTES", 1 << 30)
    assert _run("evaluate", "--model", "model.closefar", "--points", large)[1] == text
    monkeypatch.setattr(large_files, "MOST_BYTES", 0)
    assert _run("label-errors", "--points", large, "--out", "errors.csv")[0] == 0
    assert len(Path("errors.csv").read_text().splitlines()) == N + 1


def test_commands_leave_nothing_behind_when_a_large_file_is_wrong(large, table):
    assert _run("fit", "--points", large)[0] == 0
    before = sorted(path.name for path in large.parent.iterdir())
    table["ward"][1100] = "west"
    write(large.parent, {**table, "id": np.arange(N)})
    code, text = _run("predict", "--model", "model.closefar", "--points", large, "--out", "predicted.csv")
    assert code == 2
    assert "has the value 'west' in row 1100" in text
    assert "--unseen average" in text
    assert sorted(path.name for path in large.parent.iterdir()) == before
