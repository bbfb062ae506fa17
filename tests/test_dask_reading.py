"""Dask arrays, frames, index pairs and Parquet folders become partitions, with the messages of data in memory."""

from __future__ import annotations

import pickle
import shutil
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import closefar as cf
from closefar.arrays import is_dask
from closefar.judgements import (
    Judgements,
    PartitionedJudgements,
    Partitions,
    counted_partitions,
    partitions_of,
    sample_partitions,
)
from closefar.tables import TableError
from closefar.tables import opened as opened_pairs
from paper_estimator import PAPER

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

RNG = np.random.default_rng(0)
Z = RNG.standard_normal((100, 4))
Y = np.where(np.sum(Z**2, axis=1) + RNG.logistic(size=100) > 4, "far", "close")
PAIRS = RNG.standard_normal((100, 2, 4))
W = RNG.integers(0, 3, 100).astype(float)
FRAME = pd.DataFrame(Z, columns=list("abcd")).assign(label=Y, weight=W, row=np.arange(100))
POINTS, INDEX = RNG.standard_normal((30, 4)), RNG.integers(0, 30, (100, 2))
NAMES = list("abcd")


def dask_frame(n: int = 3) -> Any:
    return dd.from_pandas(FRAME, npartitions=n)


def read(partitions: Partitions) -> tuple[Any, Any, Any]:
    """All rows, in this process."""
    found = sample_partitions(partitions, 10**9)
    return np.asarray(found.data), found.labels, found.weights


ARRAYS = {
    "differences": (Z, da.from_array(Z, chunks=(30, 4))),
    "columns in chunks": (Z, da.from_array(Z, chunks=(41, 3))),
    "pairs": (PAIRS, da.from_array(PAIRS, chunks=(40, 1, 3))),
    "frame": (Z, dask_frame()[NAMES]),
    "frame of unequal parts": (Z, dask_frame(5)[NAMES].repartition(npartitions=2)),
    "unknown counts": (Z, dask_frame()[NAMES].values),
    "nullable numbers": (Z, dask_frame()[NAMES].astype({"a": "Float64"})),
    "index pairs": (POINTS[INDEX], cf.Tuples(POINTS, da.from_array(INDEX, chunks=(33, 1)))),
    "index in a frame": (
        POINTS[INDEX],
        cf.Tuples(
            dd.from_pandas(pd.DataFrame(POINTS), npartitions=2), dd.from_pandas(pd.DataFrame(INDEX), npartitions=3)
        ),
    ),
    "points of dask": (
        POINTS[INDEX],
        cf.Tuples(da.from_array(POINTS, chunks=(20, 3)), da.from_array(INDEX, chunks=(33, 2))),
    ),
}
LABELS = {
    "array": da.from_array(Y, chunks=17),
    "series": dask_frame()["label"],
    "numpy": Y,
    "list": Y.tolist(),
    "pandas": pd.Series(Y),
}


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("data", ARRAYS)
def test_rows_labels_and_weights_arrive_in_their_order(data, labels):
    plain, lazy = ARRAYS[data]
    partitions = partitions_of(lazy, LABELS[labels], da.from_array(W, chunks=23))
    rows, found, weights = read(partitions)
    np.testing.assert_array_equal(rows, plain)
    np.testing.assert_array_equal(found, Y)
    np.testing.assert_array_equal(weights, W)
    assert partitions.are_pairs == (plain.ndim == 3)
    assert sum(partitions.n_rows) == 100
    assert partitions.n_columns == 4


def test_partitions_are_the_chunks_of_the_pairs_and_nothing_is_computed():
    def explode(block):
        raise AssertionError("computed")

    lazy = da.from_array(Z, chunks=(30, 4)).map_blocks(explode, dtype=float, meta=np.empty((0, 0)))
    assert partitions_of(lazy, da.from_array(Y, chunks=9)).n_rows == (30, 30, 30, 10)


def test_parts_without_rows_are_left_out():
    frame = dask_frame()
    frame = frame[frame.row < 60]
    partitions = partitions_of(frame[NAMES], frame["label"])
    assert partitions.n_rows == (34, 26)
    np.testing.assert_array_equal(read(partitions)[0], Z[:60])


def test_one_weight_for_all():
    assert read(partitions_of(da.from_array(Z), da.from_array(Y), 2.0))[2].tolist() == [2.0] * 100


def test_a_column_of_labels_is_taken_as_one_with_a_warning():
    from sklearn.exceptions import DataConversionWarning

    with pytest.warns(DataConversionWarning, match="column-vector y"):
        partitions = partitions_of(da.from_array(Z), da.from_array(Y[:, None]))
    np.testing.assert_array_equal(read(partitions)[1], Y)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool])
def test_numbers_have_the_precision_that_numpy_gives_them(dtype):
    values = (10 * Z).astype(dtype)
    rows = read(partitions_of(da.from_array(values, chunks=30), Y))[0]
    assert rows.dtype == (np.float32 if dtype is np.float32 else np.float64)
    np.testing.assert_array_equal(rows, values)


def checked(*given: Any, far_label: Any = None) -> Any:
    """What all checks say: a learner that knows its columns, and the labels."""
    learner = cf.LinearMetricLearner(**PAPER)
    partitions = partitions_of(*given)
    judgements = PartitionedJudgements.load(learner, partitions, far_label=far_label)
    judgements.check_both_count()
    return learner, judgements.sides


def test_the_learner_gets_columns_and_labels():
    learner, sides = checked(dask_frame()[NAMES], dask_frame()["label"])
    assert learner.feature_names_in_.tolist() == NAMES
    assert (sides.close, sides.far) == ("close", "far")
    learner, sides = checked(da.from_array(PAIRS), (Y == "far").astype(int), None, far_label=0)
    assert learner.n_features_in_ == 4
    assert not hasattr(learner, "feature_names_in_")
    assert (sides.close, sides.far) == (1, 0)


Z_DASK, Y_DASK = da.from_array(Z, chunks=30), da.from_array(Y, chunks=30)
WRONG = {
    "NaN": (np.where(Z > 2, np.nan, Z), Y, None),
    "infinity": (np.where(Z > 2, np.inf, Z), Y, None),
    "three points": (np.zeros((100, 3, 2)), Y, None),
    "one class": (Z, np.ones(100), None),
    "three classes": (Z, np.arange(100) % 3, None),
    "continuous labels": (Z, Z[:, 0], None),
    "too few labels": (Z, Y[:50], None),
    "negative weights": (Z, Y, W - 1),
    "weights of one class": (Z, Y, (Y == "far") * 1.0),
    "no weight": (Z, Y, np.zeros(100)),
    "weights that are not finite": (Z, Y, np.where(W > 1, np.nan, W)),
}


@pytest.mark.parametrize("case", WRONG)
def test_messages_are_those_of_numpy(case):
    X, y, weights = WRONG[case]
    with pytest.raises(ValueError) as expected:  # noqa: PT011 - compared with the other
        cf.LinearMetricLearner(**PAPER).fit(X, y, weights)
    lazy = [None if each is None else da.from_array(each, chunks=(30, *each.shape[1:])) for each in (X, y, weights)]
    with pytest.raises(ValueError) as got:  # noqa: PT011
        checked(*lazy)
    first = str(expected.value).split(";")[0].split(". ")[0].split("\n")[0]
    assert str(got.value).startswith(first)


def test_what_dask_alone_can_get_wrong():
    with pytest.raises(ValueError, match="requires y to be passed"):
        partitions_of(Z_DASK)
    with pytest.raises(ValueError, match="at least 1 pair; got 0"):
        partitions_of(Z_DASK[:0], Y_DASK[:0])
    with pytest.raises(ValueError, match=r"one weight per pair; got 3 weights for 100 pairs"):
        partitions_of(Z_DASK, Y_DASK, np.ones(3))
    with pytest.raises(ValueError, match="column 'label' has type"):
        partitions_of(dask_frame(), Y_DASK)
    with pytest.raises(ValueError, match=r"differences \(n, d\) or pairs \(n, 2, d\); got 1 axes"):
        partitions_of(Z_DASK[:, 0], Y_DASK)
    with pytest.raises(ValueError, match="columns must hold real numbers; got an array of complex128"):
        partitions_of(Z_DASK.astype(complex), Y_DASK)
    with pytest.raises(ValueError, match="must be a Series"):
        partitions_of(Z_DASK, dask_frame())
    with pytest.raises(ValueError, match="number of columns must be known"):
        partitions_of(da.from_array(Z, chunks=2)[:, da.from_array(Z[0] > -9)], Y_DASK)
    with pytest.raises(ValueError, match=r"index must hold row numbers of the 20 points.*\n.*partition 0 of 4"):
        checked(cf.Tuples(POINTS[:20], da.from_array(INDEX, chunks=30)), Y_DASK)
    with pytest.raises(ValueError, match="integers"):
        cf.Tuples(POINTS, Z_DASK[:, :2])
    spoiled = POINTS.copy()
    spoiled[INDEX[50, 0], 2] = np.nan
    with pytest.raises(ValueError, match="points must be finite; point"):
        checked(cf.Tuples(spoiled, da.from_array(INDEX, chunks=30)), Y_DASK)


def test_a_sample_is_that_of_data_in_memory():
    judgements = Judgements.read(cf.LinearMetricLearner(**PAPER), PAIRS, Y, W).sample(17, 0)
    found = sample_partitions(partitions_of(da.from_array(PAIRS, chunks=(30, 2, 4)), Y_DASK, W), 17)
    np.testing.assert_array_equal(found.data, judgements.data)
    np.testing.assert_array_equal(found.labels, judgements.labels)
    np.testing.assert_array_equal(found.weights, judgements.weights)


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "pairs"


def write(folder: Any, columns: dict[str, Any], *, n_files: int = 4, rows_per_group: int = 10) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    table = pa.table(columns)
    size = -(-len(table) // n_files)
    for number in range(n_files):
        path = folder / f"part-{number}.parquet"
        pq.write_table(table.slice(number * size, size), path, row_group_size=rows_per_group)


def sides_of(**more: Any) -> dict[str, Any]:
    columns = {f"left_{name}": PAIRS[:, 0, at] for at, name in enumerate(NAMES)}
    columns |= {f"right_{name}": PAIRS[:, 1, at] for at, name in enumerate(NAMES)}
    return {**columns, "label": Y, "weight": W, **more}


def loaded(opened: Any, client: Any) -> tuple[Any, Any, Any]:
    """All rows, which a worker in another process would load from these bytes."""
    load, tasks = pickle.loads(pickle.dumps((opened.load, opened.tasks)))
    with client.as_current():
        return read(replace(opened, load=load, tasks=tasks))


COLOURS = RNG.choice(["red", "green", "blue"], (2, 100))
GAPS = np.where(np.arange(100) % 7 == 0, np.nan, PAIRS[:, 0, 0])
GAPS[25:50] = np.nan  # a whole file
TABLES = {
    "two sides": (sides_of(), {"weight": "weight"}),
    "differences": ({**dict(zip(NAMES, Z.T.astype(np.float32), strict=True)), "label": Y}, {}),
    "numbers as labels": (sides_of(label=np.where(Y == "far", "1", "0")), {"weight": "weight"}),
    "other names": (sides_of(verdict=Y == "far", label=Z[:, 0]), {"label": "verdict", "drop": ["label", "weight"]}),
    "categories": (sides_of(left_colour=COLOURS[0], right_colour=COLOURS[1]), {"weight": "weight"}),
    "rows left out": (sides_of(left_a=GAPS), {"weight": "weight", "missing": "drop"}),
    "medians": (sides_of(left_a=GAPS), {"weight": "weight", "missing": "median"}),
    "index": ({"left": INDEX[:, 0], "right": INDEX[:, 1], "label": Y}, {"points": POINTS}),
}


@pytest.mark.parametrize("table", TABLES)
def test_workers_read_what_this_process_reads(table, client, folder):
    columns, options = TABLES[table]
    write(folder, columns)
    with cf.open_pairs(folder, **options) as plain, cf.open_pairs(folder, client=client, **options) as opened:
        rows, labels, weights = loaded(opened, client)
        np.testing.assert_array_equal(rows, np.asarray(plain))
        np.testing.assert_array_equal(labels, np.asarray(plain.labels))
        assert labels.dtype == np.asarray(plain.labels).dtype
        assert opened.feature_names == plain.feature_names
        if plain.weights is not None:
            np.testing.assert_array_equal(weights, plain.weights)
        if table in ("categories", "medians"):
            assert opened.encoding == plain.encoding
        with client.as_current():
            assert sum(counted_partitions(opened).n_rows) == len(plain)
        assert len(opened) == 4


def test_a_large_file_is_several_partitions(client, folder, monkeypatch):
    write(folder, sides_of(), n_files=2)
    monkeypatch.setattr(opened_pairs, "_PARTITION_BYTES", 8 * 4 * 20)
    opened = cf.open_pairs(folder, client=client, weight="weight")
    assert opened.n_rows == (20, 20, 10, 20, 20, 10)
    np.testing.assert_array_equal(loaded(opened, client)[0], PAIRS[:, 0] - PAIRS[:, 1])


def test_new_data_has_the_encoding_of_the_training_data(client, folder):
    write(folder, sides_of(left_colour=COLOURS[0], right_colour=COLOURS[1]))
    encoding = cf.open_pairs(folder, weight="weight").encoding
    only = {"left_colour": np.full(100, "red"), "right_colour": np.full(100, "blue")}
    write(folder, sides_of(**only))
    opened = cf.open_pairs(folder, client=client, encoding=encoding)
    np.testing.assert_array_equal(loaded(opened, client)[0], np.asarray(cf.open_pairs(folder, encoding=encoding)))


def test_files_without_labels_are_predicted(client, folder):
    write(folder, sides_of())
    learner = cf.LinearMetricLearner(**PAPER).fit(cf.open_pairs(folder, weight="weight"))
    new = sides_of()
    del new["label"], new["weight"]
    write(folder, new)
    opened = cf.open_pairs(folder, client=client)
    assert not opened.has_labels
    with client.as_current():
        np.testing.assert_array_equal(learner.predict(opened).compute(), learner.predict(cf.open_pairs(folder)))
        with pytest.raises(ValueError, match="name the column"):
            learner.score(opened)


@pytest.mark.parametrize("data", ["columns in chunks", "frame", "points of dask"])
def test_tasks_of_a_name_are_the_same(data, client, caplog):
    """Otherwise the scheduler warns, and may wait for ever."""
    lazy = ARRAYS[data][1]
    with client.as_current():
        learner = cf.LinearMetricLearner(alpha=0.1, prior="zero", flip_rate=0.0).fit(
            lazy, LABELS["array"], da.from_array(W + 1, chunks=23)
        )
        learner.predict_proba(lazy).compute()
        learner.score(lazy, LABELS["series"])
        cf.find_label_errors(
            cf.LinearMetricLearner(alpha=0.1, prior="zero", flip_rate=0.0), lazy, LABELS["array"], cv=2, random_state=0
        ).table(3)
    assert "run_spec" not in caplog.text


def test_what_looks_like_dask_data_but_is_not():
    delayed = dask.delayed(np.asarray)(Z)
    assert not is_dask(delayed)
    assert not is_dask(Z)
    assert is_dask(Z_DASK)
    assert is_dask(dask_frame())
    assert is_dask(dask_frame()["label"])


def wait_until_forgotten(client):
    """Wait until the scheduler has forgotten its tasks: it would answer an equal one as it answered the one before."""
    deadline = time.monotonic() + 30.0
    while client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_file_that_is_lost_damaged_or_wrong_is_named(client, folder):
    write(folder, sides_of())
    opened = cf.open_pairs(folder, client=client, weight="weight")
    (folder / "part-2.parquet").write_bytes(b"PAR1 nonsense PAR1")
    with pytest.raises(TableError, match=r"part-2.parquet has changed since it was opened"):
        loaded(opened, client)
    (folder / "part-2.parquet").unlink()
    wait_until_forgotten(client)
    with pytest.raises(TableError, match=r"part-2.parquet can't be read: No such file"):
        loaded(opened, client)
    write(folder, sides_of(left_a=np.where(np.arange(100) == 60, np.nan, 0.0)))
    opened = cf.open_pairs(folder, client=client, weight="weight")
    with pytest.raises(TableError, match=r"part-2.parquet has missing values.*missing=.drop"):
        loaded(opened, client)
    write(folder, {"left": INDEX[:, 0], "right": INDEX[:, 1], "label": Y})
    opened = cf.open_pairs(folder, client=client, points=POINTS[:20])
    with pytest.raises(TableError, match=r"part-\d.parquet: \d+ of 50 ids are not among the points.* numbered from 0"):
        loaded(opened, client)


def test_what_a_cluster_does_not_read(client, folder, tmp_path):
    write(folder, sides_of())
    np.save(tmp_path / "z.npy", Z)
    with pytest.raises(ValueError, match=r"a cluster reads Parquet; got .*z\.npy"):
        cf.open_pairs(tmp_path / "z.npy", client=client)
    FRAME.to_csv(tmp_path / "z.csv", index=False)
    with pytest.raises(ValueError, match=r"a cluster reads Parquet; got .*z\.csv"):
        cf.open_pairs(tmp_path / "z.csv", client=client)
    with pytest.raises(ValueError, match="uses no groups"):
        cf.open_pairs(folder, client=client, group="weight")
    with pytest.raises(ValueError, match="points must be an array or a frame"):
        cf.open_pairs(folder, points=folder / "part-0.parquet", client=client)
    with pytest.raises(ValueError, match="labels and weights are columns of the files; got arrays"):
        cf.open_pairs(folder, client=client, labels=Y, drop=["label", "weight"])
    with pytest.raises(ValueError, match="have their own labels and weights"):
        partitions_of(cf.open_pairs(folder, client=client, weight="weight"), Y)
    write(folder, dict(zip(NAMES, Z.T, strict=True)))
    with pytest.raises(ValueError, match="name the column of the opened files that holds the labels"):
        partitions_of(cf.open_pairs(folder, client=client))
