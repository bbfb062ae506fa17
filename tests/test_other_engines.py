"""An engine of one's own suffices for a fit: processes of a pool, and those of the documentation for Ray and Spark."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import closefar as cf
from closefar.engines import Engine, LocalEngine, TaskResult, combined
from closefar.judgements import Partition, Partitions
from paper_estimator import PAPER

DATA = cf.datasets.make_pairs(900, 3, rank=2, wrong_share=0.1, random_state=0)
PAGE = Path(__file__).parents[1] / "docs" / "clusters.md"


def load(task: tuple[int, int], shared: Any) -> Partition:
    rows = slice(*task)
    return Partition(DATA.pairs[rows] * shared, DATA.labels[rows])


def partitions_for(engine: Engine) -> Partitions:
    tasks = tuple((start, start + 300) for start in range(0, 900, 300))
    return Partitions(tasks, load, n_columns=3, are_pairs=True, shared=2.0, client=engine)


def check(engine: Engine) -> None:
    """The fit, its questions and its answers are those of one process with these partitions."""
    learner, expected = (
        cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(partitions_for(each)) for each in (engine, LocalEngine())
    )
    assert learner.certificate_.converged
    assert learner.certificate_.loss == pytest.approx(expected.certificate_.loss, abs=1e-12)
    np.testing.assert_allclose(learner.metric_.matrix, expected.metric_.matrix, rtol=1e-6, atol=1e-9)
    plain = cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(2.0 * DATA.pairs, DATA.labels)
    assert learner.certificate_.loss == pytest.approx(plain.certificate_.loss, abs=1e-8)
    assert learner.check_noise_model().p_value == pytest.approx(plain.check_noise_model().p_value, rel=1e-3)
    assert engine.round_trips > 0
    with pytest.raises(ValueError, match="contains NaN"):
        cf.LinearMetricLearner(**PAPER).fit(
            Partitions(((0, 300),), load_nan, n_columns=3, are_pairs=True, client=engine)
        )


def load_nan(task: tuple[int, int], shared: Any) -> Partition:
    return Partition(np.full((300, 2, 3), np.nan), DATA.labels[:300])


class Ref(NamedTuple):
    """Where a value is: the process, and its name there."""

    place: int
    name: int


KEPT: dict[int, Any] = {}  # of each process


def compute(name: int | None, function: Any, items: tuple[Any, ...]) -> Any:
    found = function(*(KEPT[item.name] if isinstance(item, Ref) else item for item in items))
    if name is not None:
        KEPT[name] = found
    return found.small if isinstance(found, TaskResult) else None


class ProcessEngine(Engine):
    """Partitions in processes of their own: rows never leave them."""

    def __init__(self, pools: list[ProcessPoolExecutor]) -> None:
        super().__init__()
        self._pools, self._names = pools, count()

    def load(self, load: Any, tasks: Any, shared: Any) -> list[Ref]:
        return self.keep(partial(load_shared, load, shared), tasks)

    def keep(self, function: Any, *columns: Any) -> list[Ref]:
        return self._called(function, columns)[1]

    def run(self, function: Any, *columns: Any, combine: Any, keeps: bool = False) -> tuple[Any, list[Ref]]:
        self.round_trips += 1
        results, refs = self._called(function, columns)
        return combined(combine, [result.result() for result in results]), refs if keeps else []

    def describe(self, n_partitions: int) -> str:
        return f"processes, {n_partitions} partitions"

    def _called(self, function: Any, columns: Any) -> tuple[list[Any], list[Ref]]:
        refs = [Ref(at % len(self._pools), next(self._names)) for at in range(len(columns[0]))]
        calls = zip(refs, zip(*columns, strict=True), strict=True)
        results = [self._pools[ref.place].submit(compute, ref.name, function, items) for ref, items in calls]
        return results, refs


def load_shared(load: Any, shared: Any, task: Any) -> Partition:
    return load(task, shared)


def test_processes_of_a_pool():
    pools = [ProcessPoolExecutor(1, mp_context=get_context("spawn")) for _ in range(2)]
    try:
        check(ProcessEngine(pools))
    finally:
        for pool in pools:
            pool.shutdown()


def code_of(first_line: str) -> str:
    """The block of the page that begins with this line."""
    found = re.search(rf"^```text\n({re.escape(first_line)}\n.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, first_line
    return found[1]


def test_the_engine_of_the_documentation_for_ray(monkeypatch):
    """With a stand-in for Ray, which replaces references by their values as Ray does."""

    class Reference(NamedTuple):
        value: Any

    def remote(function: Any) -> Any:
        def call(*items: Any) -> Reference:
            return Reference(function(*(item.value if isinstance(item, Reference) else item for item in items)))

        return SimpleNamespace(remote=call)

    ray = SimpleNamespace(remote=remote, put=Reference, get=lambda refs: [each.value for each in refs])
    monkeypatch.setitem(sys.modules, "ray", ray)
    names: dict[str, Any] = {}
    exec(code_of("import ray"), names)
    check(names["RayEngine"]())


class Dataset:
    """A stand-in for an RDD, with one element in each of its parts."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def map(self, function: Any) -> Dataset:
        return Dataset([function(item) for item in self._items])

    def zip(self, other: Dataset) -> Dataset:
        return Dataset(list(zip(self._items, other._items, strict=True)))

    def persist(self) -> Dataset:
        return self

    def collect(self) -> list[Any]:
        return self._items


def test_the_engine_of_the_documentation_for_spark():
    context = SimpleNamespace(
        broadcast=lambda value: SimpleNamespace(value=value), parallelize=lambda items, n_parts: Dataset(items)
    )
    names: dict[str, Any] = {}
    exec(code_of("from closefar.engines import Engine, combined"), names)
    check(names["SparkEngine"](context))
