"""Fits on a Dask cluster: the same as in one process, whatever happens to the workers."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import time

import numpy as np
import pytest

import closefar as cf
from closefar import engines
from closefar.engines import DaskEngine, PartitionError, engine_for
from closefar.judgements import PartitionedJudgements, counted_partitions
from partitions import partitioned

distributed = pytest.importorskip("distributed", reason="needs distributed, of the extra dask")

import dask  # noqa: E402

from paper_estimator import PAPER  # noqa: E402

# Workers are killed on purpose, and what they hold is computed again.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

RNG = np.random.default_rng(0)
N, D = 3000, 5
Z = RNG.standard_normal((N, D))
LABELS = np.where(np.sum(Z[:, :2] ** 2, axis=1) + RNG.logistic(size=N) > 2.5, "far", "close")
WEIGHTS = RNG.random(N) + 0.5


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def in_one_process(data, monkeypatch, **parameters):
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "distributed")  # as if there were no cluster
        return cf.LinearMetricLearner(**PAPER | parameters).fit(data)


def check_same(there, here):
    assert there.certificate_.converged == here.certificate_.converged
    assert abs(there.certificate_.loss - here.certificate_.loss) < 1e-10
    np.testing.assert_allclose(there.metric_.matrix, here.metric_.matrix, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("parameters", "n_partitions"),
    [
        ({}, 17),  # more than are joined at a time
        ({"rank": 2, "alpha": 0.01}, 3),
        ({"noise": "auto", "tol": 1e-3}, 2),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::closefar.IdentifiabilityWarning")
def test_a_cluster_gives_the_same_fit_as_one_process(client, parameters, n_partitions, monkeypatch):
    data = partitioned(Z, LABELS, WEIGHTS, n_partitions=n_partitions)
    here = in_one_process(data, monkeypatch, **parameters)
    there = cf.LinearMetricLearner(**PAPER | parameters).fit(data)
    check_same(there, here)
    assert there.fit_.judgements.engine.round_trips == here.fit_.judgements.engine.round_trips
    assert there.fit_.judgements.engine.describe(n_partitions) == f"Dask, {n_partitions} partitions on 2 workers"


@pytest.mark.parametrize("when", ["first", "middle", "last"])
def test_a_worker_that_is_killed_changes_nothing(client, when, monkeypatch):
    data = partitioned(Z, LABELS, n_partitions=4)
    here = in_one_process(data, monkeypatch)
    n = here.fit_.judgements.engine.round_trips
    number, count = {"first": 1, "middle": n // 2, "last": n}[when], [0]
    original = DaskEngine._gather

    def gather(engine, futures):
        count[0] += 1
        if count[0] == number:
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        return original(engine, futures)

    client.wait_for_workers(2)
    monkeypatch.setattr(DaskEngine, "_gather", gather)
    check_same(cf.LinearMetricLearner(**PAPER).fit(data), here)
    assert count[0] == n


def test_a_partition_that_cannot_be_loaded_is_named(client):
    def load(task, shared):
        raise ValueError("the file part-3.parquet is not complete")

    with pytest.raises(PartitionError, match=r"partition \d of 2 .* can't be loaded: .*part-3\.parquet"):
        cf.LinearMetricLearner(**PAPER).fit(partitioned(Z, LABELS, n_partitions=2, load=load))


def test_workers_that_are_lost_again_and_again_are_reported(client, monkeypatch):
    async def gather(futures, asynchronous):
        raise distributed.KilledWorker("closefar-pass-3", None, 3)

    engine = engine_for(client)
    monkeypatch.setattr(client, "gather", gather)
    with pytest.raises(PartitionError, match=r"closefar-pass-3.*memory is too small"):
        engine.run(lambda number: number, [1, 2], combine=sum)


def test_a_cluster_without_workers_is_reported(monkeypatch):
    monkeypatch.setattr(engines, "NO_WORKERS_TIMEOUT_S", 0.5)
    monkeypatch.setattr(engines, "_INTERVAL_S", 0.1)
    with (
        distributed.LocalCluster(
            n_workers=0, processes=False, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as empty,
    ):
        data = partitioned(Z, LABELS, n_partitions=2, client=empty)
        for wait in (cf.LinearMetricLearner(**PAPER).fit, counted_partitions):
            with pytest.raises(PartitionError, match="all workers are gone"):
                wait(data)


def test_questions_after_the_client_is_closed_say_so(client):
    with distributed.Client(client.cluster, set_as_default=False) as other:
        learner = cf.LinearMetricLearner(**PAPER).fit(partitioned(Z, LABELS, n_partitions=2, client=other))
    assert learner.predict(Z).shape == (N,)
    with pytest.raises(PartitionError, match="client is closed"):
        learner.check_noise_model()


def test_an_interrupt_cancels_what_is_waited_for(client, monkeypatch, caplog):
    """Dask's own wait would log an error for each task."""
    engine = engine_for(client)

    def interrupted(futures):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_waited", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.compute([dask.delayed(time.sleep)(0.5 * seconds) for seconds in range(1, 5)])
    assert engine.compute([dask.delayed(int)("3")]) == [3]
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_the_rows_of_a_sample_come_to_this_process(client):
    judgements = PartitionedJudgements.load(cf.LinearMetricLearner(**PAPER), partitioned(Z, LABELS, WEIGHTS))
    where = np.array([0, 2999, 1500])
    some = judgements.take(where)
    np.testing.assert_array_equal(some.data, Z[where])
    np.testing.assert_array_equal(some.labels, LABELS[where])
    np.testing.assert_allclose(some.weights, WEIGHTS[where], rtol=1e-12)
    np.testing.assert_array_equal(judgements.is_far, LABELS == "far")
    assert isinstance(engine_for(), DaskEngine)
