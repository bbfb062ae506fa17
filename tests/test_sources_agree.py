"""Whatever file the same pairs are in, here, on a cluster or for the command line, the fit is the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import closefar as cf
from closefar.rows import streamed
from closefar.tables import large_files
from closefar.tables import opened as opened_pairs
from paper_estimator import PAPER

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

N, D = 1500, 3
NAMES = ["age", "mass", "height"]


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, the two that each pair is of, and labels; single precision holds each number."""
    rng = np.random.default_rng(3)
    points = rng.standard_normal((400, D)).astype(np.float32).astype(np.float64)
    index = rng.integers(400, size=(N, 2))
    squared = ((points[index[:, 0]] - points[index[:, 1]]) ** 2) @ [2.0, 0.5, 0.0]
    labels = (squared + rng.logistic(size=N) > 2.5).astype(int)
    return points, index, labels


@pytest.fixture(scope="module")
def reference(data: Any) -> cf.LinearMetricLearner:
    points, index, labels = data
    return cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(points[index], labels)


def _differences(data: Any) -> np.ndarray:
    points, index, _ = data
    return points[index[:, 0]] - points[index[:, 1]]


def _table(data: Any, *, sides: bool) -> Any:
    points, index, labels = data
    columns: dict[str, Any] = {}
    if sides:
        for side, title in enumerate(("left", "right")):
            columns |= {f"{title}_{name}": points[index[:, side], at] for at, name in enumerate(NAMES)}
    else:
        columns |= {name: _differences(data)[:, at] for at, name in enumerate(NAMES)}
    return pa.table({**columns, "label": labels})


def _npy(order: str, *, pairs: bool) -> Callable[..., Any]:
    def form(data: Any, folder: Path) -> Any:
        array = data[0][data[1]] if pairs else _differences(data)
        np.save(folder / "z.npy", np.asarray(array, order=order))
        return cf.open_pairs(folder / "z.npy", labels=data[2])

    return form


def _parquet(*, sides: bool) -> Callable[..., Any]:
    def form(data: Any, folder: Path) -> Any:
        pq.write_table(_table(data, sides=sides), folder / "z.parquet", row_group_size=401)
        return cf.open_pairs(folder / "z.parquet")

    return form


def _folder(data: Any, folder: Path) -> Any:
    (folder / "parts").mkdir(exist_ok=True)
    table = _table(data, sides=True)
    for number, start in enumerate(range(0, N, 600)):
        pq.write_table(table.slice(start, 600), folder / "parts" / f"part-{number}.parquet")
    (folder / "parts" / "_SUCCESS").touch()
    return cf.open_pairs(folder / "parts")


def _csv(name: str, separator: str, *, sides: bool) -> Callable[..., Any]:
    def form(data: Any, folder: Path) -> Any:
        import pandas as pd

        table = _table(data, sides=sides)
        frame = pd.DataFrame({each: table.column(each).to_numpy() for each in table.column_names})
        frame.to_csv(folder / name, index=False, sep=separator)
        return cf.open_pairs(folder / name)

    return form


def _index_in_file(data: Any, folder: Path) -> Any:
    points, index, labels = data
    pq.write_table(pa.table({"left": index[:, 0], "right": index[:, 1], "label": labels}), folder / "index.parquet")
    return cf.open_pairs(folder / "index.parquet", points=points)


def _index_array(data: Any, folder: Path) -> Any:
    np.save(folder / "index.npy", data[1])
    return cf.open_pairs(folder / "index.npy", points=data[0], labels=data[2])


def _ids_in_files(data: Any, folder: Path) -> Any:
    points, index, labels = data
    ids = np.array([f"P{number}" for number in range(len(points))])
    columns = {"id": ids, **{name: points[:, at] for at, name in enumerate(NAMES)}}
    pq.write_table(pa.table(columns), folder / "points.parquet")
    pairs = {"one": ids[index[:, 0]], "other": ids[index[:, 1]], "label": labels}
    pq.write_table(pa.table(pairs), folder / "pairs.parquet")
    return cf.open_pairs(folder / "pairs.parquet", points=folder / "points.parquet")


def _dask_frame(data: Any, folder: Path) -> Any:
    import pandas as pd

    return dd.from_pandas(pd.DataFrame(_differences(data), columns=NAMES), npartitions=4)


def _on_cluster(form: Callable[..., Any]) -> Callable[..., Any]:
    """The files of another form, read by workers."""

    def opened(data: Any, folder: Path) -> Any:
        form(data, folder)
        path = next(folder / name for name in ("parts", "z.parquet", "index.parquet") if (folder / name).exists())
        points = {"points": data[0]} if path.name == "index.parquet" else {}
        return cf.open_pairs(path, client=distributed.get_client(), **points)

    return opened


FORMS: dict[str, Callable[..., Any]] = {
    "npy of differences": _npy("C", pairs=False),
    "npy of differences by column": _npy("F", pairs=False),
    "npy of pairs": _npy("C", pairs=True),
    "npy of pairs by column": _npy("F", pairs=True),
    "Parquet of differences": _parquet(sides=False),
    "Parquet of two sides": _parquet(sides=True),
    "Parquet folder": _folder,
    "CSV of differences": _csv("z.csv", ",", sides=False),
    "CSV of two sides, compressed": _csv("z.csv.gz", ",", sides=True),
    "TSV": _csv("z.tsv", "\t", sides=True),
    "index pairs in Parquet": _index_in_file,
    "index pairs in npy": _index_array,
    "id pairs in Parquet": _ids_in_files,
    "dask frame": _dask_frame,
    "Parquet of differences on a cluster": _on_cluster(_parquet(sides=False)),
    "Parquet folder on a cluster": _on_cluster(_folder),
    "index pairs in Parquet on a cluster": _on_cluster(_index_in_file),
}


@pytest.fixture(scope="module")
def cluster() -> Any:
    """A cluster of two workers, in threads; tests/test_dask.py has processes."""
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as local,
        distributed.Client(local, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("form", "is_held"),
    [
        pytest.param(form, is_held, id=f"{form}, {'held' if is_held else 'streamed'}")
        for form in FORMS
        for is_held in ((True,) if "dask" in form or "cluster" in form else (True, False))
    ],
)
def test_every_form_gives_the_same_fit(form, is_held, data, reference, tmp_path, monkeypatch, request):
    with request.getfixturevalue("cluster").as_current() if "cluster" in form else nullcontext():
        _check_form(form, is_held, data, reference, tmp_path, monkeypatch)


def _check_form(form, is_held, data, reference, tmp_path, monkeypatch):
    if not is_held:
        monkeypatch.setattr(streamed, "HELD_FILE_BYTES", 0)
        monkeypatch.setattr(opened_pairs, "CHUNK_BYTES", 0)
        monkeypatch.setattr(opened_pairs, "_FEWEST_ROWS", 300)
    points, index, labels = data
    pairs = FORMS[form](data, tmp_path)
    has_own_labels = getattr(pairs, "labels", None) is not None or hasattr(pairs, "has_labels")
    learner = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(pairs, *(() if has_own_labels else (labels,)))
    assert abs(learner.certificate_.loss - reference.certificate_.loss) < 1e-8
    expected = reference.predict_proba(points[index])
    np.testing.assert_allclose(learner.predict_proba(pairs), expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(reference.pair_distance(points[index]), learner.pair_distance(pairs), atol=1e-6)
    assert np.array_equal(np.asarray(learner.predict(pairs)), reference.predict(points[index]))
    if has_own_labels:
        assert learner.score(pairs) == reference.score(points[index], labels)


@pytest.mark.parametrize("is_large", [False, True], ids=["read", "opened"])
@pytest.mark.parametrize("form", ["Parquet of two sides", "CSV of two sides, compressed", "Parquet folder"])
def test_the_command_line_gives_the_same_fit(form, is_large, data, reference, tmp_path, monkeypatch):
    from closefar.cli.app import app

    if is_large:
        monkeypatch.setattr(large_files, "MOST_BYTES", 0)
        monkeypatch.setattr(streamed, "HELD_FILE_BYTES", 0)
    FORMS[form](data, tmp_path)
    file = tmp_path / {"Parquet folder": "parts", "Parquet of two sides": "z.parquet"}.get(form, "z.csv.gz")
    model, out = tmp_path / "model.closefar", tmp_path / "predicted.parquet"
    for command in (
        ["fit", "--pairs", file, "--alpha", "0", "--flip-rate", "0", "--tol", "1e-10", "--out", model],
        ["predict", "--model", model, "--pairs", file, "--out", out],
    ):
        done = CliRunner().invoke(app, [str(part) for part in command])
        assert done.exit_code == 0, done.output
    predicted = pq.read_table(out)
    expected = reference.predict_proba(data[0][data[1]])[:, 1]
    np.testing.assert_allclose(predicted.column("probability_far").to_numpy(), expected, rtol=0, atol=1e-6)
    loss = reference.certificate_.loss
    from closefar.learners import Model

    assert abs(Model.load(model).learner().certificate_.loss - loss) < 1e-8
