"""Fits on a Dask cluster: the same as in one process, whatever happens to the workers."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.base import clone

import closefar as cf
from closefar.cluster import FAN_IN, Cluster, PartitionError, cluster_for
from closefar.judgements import PartitionedJudgements
from partitions import KINDS, bits, check_same, on_dask, partitioned

distributed = pytest.importorskip("distributed", reason="needs distributed, of the extra dask")

import dask  # noqa: E402

from paper_estimator import PAPER  # noqa: E402

# Workers are killed on purpose, and what they hold is computed again.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

RNG = np.random.default_rng(0)
N, D = 2000, 4
Z = RNG.standard_normal((N, D))
LABELS = np.where(np.sum(Z[:, :2] ** 2, axis=1) + RNG.logistic(size=N) > 2.5, "far", "close")
WEIGHTS = RNG.random(N) + 0.5


@pytest.fixture(scope="module")
def client():
    with (
        # A LocalCluster gives up a worker that is away this long after any of its losses, as one that is killed again.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def no_client(monkeypatch):
    """A context without a client, as if there were no cluster."""

    @contextmanager
    def context():
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, "distributed")
            yield

    return context


# One fit for each kind of judgement, and for each of what is learned beside the metric.
ON_A_CLUSTER = [
    "differences",  # with weights
    "pairs by index",
    "flips",
    "origin",
    "levels",
    "triplets",
    "pairs and triplets",
    "annotators",
]


@pytest.mark.parametrize("kind", ON_A_CLUSTER)
def test_a_cluster_gives_the_same_fit_as_one_process(client, kind):
    learner, data = KINDS[kind]
    here, there = clone(learner).fit(**data), clone(learner).fit(**on_dask(data, 2))
    assert there.fit_.engine.endswith("on 2 workers")
    check_same(there, here, data)


@pytest.mark.parametrize(
    ("parameters", "n_partitions"),
    [({}, FAN_IN + 1), ({"rank": 2, "alpha": 0.01}, 3)],
    ids=["more than are joined at a time", "low rank"],
)
def test_the_same_partitions_give_the_same_bits_on_any_number_of_workers(client, parameters, n_partitions, no_client):
    data = partitioned(Z, LABELS, WEIGHTS, n_partitions=n_partitions)
    there = cf.LinearMetricLearner(**PAPER | parameters).fit(data)
    with no_client():
        here = cf.LinearMetricLearner(**PAPER | parameters).fit(data)
    assert bits(there) == bits(here)
    assert there.fit_.judgements.cluster.round_trips == here.fit_.judgements.cluster.round_trips
    assert there.fit_.engine == f"Dask, {n_partitions} partitions on 2 workers"
    assert here.fit_.engine == f"NumPy, {n_partitions} partitions in this process"


@pytest.mark.parametrize("when", ["first", "middle", "last"])
def test_a_worker_that_is_killed_changes_nothing(client, when, no_client, monkeypatch):
    """A worker with two of the four partitions is killed as soon as an evaluation is waited for."""
    data = partitioned(Z, LABELS, n_partitions=4)
    with no_client():
        here = cf.LinearMetricLearner(**PAPER).fit(data)
    n = here.fit_.judgements.cluster.round_trips
    number, count = {"first": 1, "middle": n // 2, "last": n}[when], [0]
    original = Cluster._gather

    def gather(cluster, futures):
        count[0] += 1
        if count[0] == number:
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        return original(cluster, futures)

    client.wait_for_workers(2)
    monkeypatch.setattr(Cluster, "_gather", gather)
    there = cf.LinearMetricLearner(**PAPER).fit(data)
    assert count[0] == n
    assert abs(there.certificate_.loss - here.certificate_.loss) < 1e-10
    np.testing.assert_allclose(there.metric_.matrix, here.metric_.matrix, rtol=0.0, atol=1e-10)


def test_a_partition_that_cannot_be_loaded_is_named(client):
    def load(task, shared):
        raise ValueError("the file part-3.parquet is not complete")

    with pytest.raises(PartitionError, match=r"partition \d of 2 .* can't be loaded: .*part-3\.parquet"):
        cf.LinearMetricLearner(**PAPER).fit(partitioned(Z, LABELS, n_partitions=2, load=load))


def test_workers_that_are_lost_again_and_again_are_reported(client, monkeypatch):
    async def gather(futures, asynchronous):
        raise distributed.KilledWorker("closefar-pass-3", None, 3)

    cluster = cluster_for(client)
    monkeypatch.setattr(client, "gather", gather)
    with pytest.raises(PartitionError, match=r"closefar-pass-3.*memory is too small"):
        cluster.run(lambda number: number, [1, 2], combine=sum)


def test_questions_after_the_client_is_closed_say_so(client):
    with distributed.Client(client.cluster, set_as_default=False) as other:
        learner = cf.LinearMetricLearner(**PAPER).fit(partitioned(Z, LABELS, n_partitions=2, client=other))
    assert learner.predict(Z).shape == (N,)
    with pytest.raises(PartitionError, match="client is closed"):
        learner.check_noise_model()


def test_an_interrupt_cancels_what_is_waited_for(client, monkeypatch, caplog):
    """No error is logged for the tasks that are left."""
    cluster, cancelled = cluster_for(client), []

    def interrupt(number, frame):
        raise KeyboardInterrupt

    original, handler = client.cancel, signal.signal(signal.SIGALRM, interrupt)
    with monkeypatch.context() as patch:
        patch.setattr(
            client, "cancel", lambda futures, force: (cancelled.extend(futures), original(futures, force=force))
        )
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            with pytest.raises(KeyboardInterrupt):
                cluster.compute([dask.delayed(time.sleep)(seconds) for seconds in (1.0, 1.5, 2.0, 2.5)])
        finally:
            signal.signal(signal.SIGALRM, handler)
    assert len(cancelled) == 4
    assert cluster.compute([dask.delayed(int)("3")]) == [3]
    gc.collect()
    assert "never retrieved" not in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_the_rows_of_a_sample_come_to_this_process(client):
    judgements = PartitionedJudgements.load(cf.LinearMetricLearner(**PAPER), partitioned(Z, LABELS, WEIGHTS))
    where = np.array([0, 1999, 1500])
    some = judgements.take(where)
    np.testing.assert_array_equal(some.data, Z[where])
    np.testing.assert_array_equal(some.labels, LABELS[where])
    np.testing.assert_allclose(some.weights, WEIGHTS[where], rtol=1e-12)
    np.testing.assert_array_equal(judgements.is_far, LABELS == "far")
    assert judgements.cluster.describe(3) == "Dask, 3 partitions on 2 workers"
