"""The network between a driver and its Dask workers: round trips, tasks and the sums that travel."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from closefar.cost.size import RunSize

__all__ = ["ASSUMED", "Network", "Traffic", "expected_traffic", "measure_network"]

_ROUND_TRIPS_TO_PREPARE = 9
_ROUND_TRIPS_PER_PASS = 1.1
_TASKS_PER_PARTITION = 1.5  # one computes, and where numbers of each pair are kept another one returns the sums
_MANY_TASKS = 32
_PARTITION_BYTES = 1 << 27
_PARTITIONS_PER_WORKER = 8


@dataclass(frozen=True)
class Network:
    """Rates of a cluster.

    Attributes
    ----------
    latency : float
        Seconds from asking a worker for something until the answer arrives.
    task : float
        Seconds that the scheduler spends on each further task of a round trip.
    bandwidth : float
        Bytes per second of results on the way to the driver.
    how : str
        Where the rates come from.
    """

    latency: float
    task: float
    bandwidth: float
    how: str


ASSUMED = Network(latency=5e-3, task=1e-3, bandwidth=1e9, how="assumed, since distributed is not installed")


@dataclass(frozen=True)
class Traffic:
    """What a fit on workers sends: round trips, partitions, and bytes per pass and in all."""

    round_trips: float
    n_partitions: int
    bytes_per_pass: float
    total_bytes: float
    seconds: float


def expected_traffic(
    size: RunSize, network: Network, n_workers: int, n_passes: float, n_sampled: int, n_partitions: int | None = None
) -> Traffic:
    """The traffic of so many passes: M travels to each worker, and a gradient comes back from each partition."""
    if n_partitions is None:
        large = size.pair_bytes * size.n_pairs / _PARTITION_BYTES
        n_partitions = int(min(max(_PARTITIONS_PER_WORKER * n_workers, large), size.n_pairs))
    round_trips = _ROUND_TRIPS_TO_PREPARE + _ROUND_TRIPS_PER_PASS * n_passes
    matrix = 8.0 * size.n_features**2
    per_pass = matrix * (n_workers + n_partitions)
    sample = 8.0 * n_sampled * (size.n_features if size.n_points is None else 2)
    points = 0.0 if size.n_points is None else 8.0 * size.n_points * size.n_features * n_workers
    total = per_pass * (n_passes + _ROUND_TRIPS_TO_PREPARE) + sample + points
    waiting = round_trips * (network.latency + _TASKS_PER_PARTITION * n_partitions * network.task)
    return Traffic(round_trips, n_partitions, per_pass, total, waiting + total / network.bandwidth)


def measure_network() -> Network:
    """Measure the current Dask client or, if there is none, a worker inside this process."""
    try:
        import distributed
    except ImportError:
        return ASSUMED
    with _client(distributed) as (client, how):
        client.submit(_nothing, -1, pure=False).result()
        latency = _median_seconds(lambda: client.submit(_nothing, 0, pure=False).result())
        many = _median_seconds(lambda: client.gather(client.map(_nothing, range(_MANY_TASKS), pure=False)), 5)
        large = _median_seconds(lambda: client.submit(_megabytes, 16, pure=False).result(), 5)
    task = max(many - latency, 0.0) / (_MANY_TASKS - 1)
    return Network(latency, task, 16e6 / max(large - latency, 1e-4), how)


@contextmanager
def _client(distributed: Any) -> Iterator[tuple[Any, str]]:
    try:
        current = distributed.default_client()
    except ValueError:
        current = None
    if current is not None:
        yield current, "measured on the current Dask client"
        return
    # Without processes: those would import the user's program again.
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client, "measured with one worker on this machine; between machines a round trip takes longer"


def _median_seconds(function: Callable[[], Any], repeats: int = 15) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _nothing(number: int) -> int:
    return number


def _megabytes(number: int) -> bytes:
    return bytes(number * 1_000_000)
