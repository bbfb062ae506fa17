"""The cost model beside measured fits: the time and the passes that `closefar plan` predicts, and those counted.

    python benchmarks/cost.py [--quick] [--only NAME ...] [--wall] [--paper]

Each line prints a prediction, a measurement and their ratio (bar: a factor of 2); nothing is asserted, since seconds
depend on the machine.  Fits in this process are timed on one thread, in CPU seconds, which other programs do not
disturb; `--wall` uses all threads and the clock.  `--paper` prints plans for sizes that nobody runs here.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

import closefar as cf
from closefar.cost import H200, Network, RunPlan
from closefar.cost.text import as_bytes, as_count, as_time
from closefar.datasets import solve_noise_scale

# The paper's estimator: one fit, without choosing a penalty and flips.
PAPER: dict[str, Any] = {"alpha": 0.0, "flip_rate": 0.0}


class Case(NamedTuple):
    """A fit: pairs, features, rank, points (pairs by index), rank of the true metric, share of wrong labels."""

    n: int
    d: int
    rank: int | None = None
    points: int | None = None
    true_rank: int | None = None
    wrong: float = 0.1
    dtype: str = "float64"
    differences: bool = True


CPU = [
    Case(200_000, 10),
    Case(2_000_000, 10, differences=False),
    Case(5_000_000, 10),
    Case(500_000, 20, true_rank=5),
    Case(1_000_000, 25, differences=False),
    Case(2_000_000, 30, true_rank=10),
    Case(800_000, 40, differences=False),
    Case(400_000, 50),
    Case(1_500_000, 50, true_rank=8),
    Case(250_000, 80),
    Case(300_000, 100),
    Case(1_200_000, 100, true_rank=10, wrong=0.2),
]
RANK = [Case(300_000, 20, rank=4), Case(150_000, 70, rank=5), Case(600_000, 50, rank=10, true_rank=10)]
INDEX = [
    Case(700_000, 40, points=8_000),
    Case(2_000_000, 30, points=200_000),
    Case(300_000, 64, points=50_000),
]
SINGLE = [Case(400_000, 50, dtype="float32"), Case(300_000, 100, dtype="float32", true_rank=20)]
QUICK = {
    "cpu": [Case(150_000, 10), Case(150_000, 25, true_rank=5), Case(150_000, 40)],
    "rank": [Case(100_000, 20, rank=4)],
    "index": [Case(300_000, 30, points=3_000)],
    "single": [Case(100_000, 50, dtype="float32")],
    "dask": [Case(400_000, 20)],
    "gpu": [Case(2_000_000, 50, dtype="float32")],
}
FULL = {
    "cpu": CPU,
    "rank": RANK,
    "index": INDEX,
    "single": SINGLE,
    "dask": [Case(500_000, 20), Case(1_000_000, 50), Case(2_000_000, 30)],
    "gpu": [Case(n, d, dtype="float32") for n, d in ((5_000_000, 50), (20_000_000, 100), (50_000_000, 100))],
}


def labels_of(squared: np.ndarray, wrong: float, rng: np.random.Generator) -> np.ndarray:
    threshold = np.median(squared)
    scale = solve_noise_scale(squared[:50_000] - threshold, "logistic", wrong)
    return np.where(squared + scale * rng.logistic(size=len(squared)) > threshold, 1, -1)


def make(case: Case, seed: int = 0) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((case.d, case.true_rank or case.d)) / np.sqrt(case.d)
    squared = np.empty(case.n)
    if case.points is not None:
        points = rng.standard_normal((case.points, case.d))
        index = rng.integers(0, case.points, (case.n, 2))
        projected = points @ factor
        for start in range(0, case.n, 100_000):
            left, right = index[start : start + 100_000].T
            squared[start : start + 100_000] = np.square(projected[left] - projected[right]).sum(axis=1)
        return cf.Tuples(points, index), labels_of(squared, case.wrong, rng)
    data = np.empty((case.n, case.d) if case.differences else (case.n, 2, case.d), dtype=case.dtype)
    for start in range(0, case.n, 100_000):
        some = data[start : start + 100_000]
        some[...] = rng.standard_normal(some.shape)
        rows = some if case.differences else some[:, 0] - some[:, 1]
        squared[start : start + 100_000] = np.square(rows @ factor).sum(axis=1)
    return data, labels_of(squared, case.wrong, rng)


def plan_of(case: Case, **more: Any) -> RunPlan:
    return cf.plan_run(
        case.n,
        case.d,
        rank=case.rank,
        n_points=case.points,
        dtype=case.dtype,
        differences=case.differences,
        **more,
    )


def timed(function: Callable[[], Any], clock: Callable[[], float]) -> float:
    start = clock()
    function()
    return clock() - start


def show(name: str, case: Case, plan: RunPlan, measured: float, learner: Any) -> None:
    passes = plan.passes
    predicted = passes.sample * passes.n_sampled / case.n + passes.over_all + passes.proof
    shape = f"{case.n:,} x {case.d}" + (f", rank {case.rank}" if case.rank else "")
    shape += f", {case.points:,} points" if case.points else "" if case.differences else ", pairs"
    shape += ", float32" if case.dtype == "float32" else ""
    print(
        f"| {name} | {shape} | {passes.solver} | {predicted:.0f} | {learner.certificate_.n_passes:.0f} "
        f"| {plan.seconds:.2f} | {measured:.2f} | {plan.seconds / measured:.2f} |",
        flush=True,
    )


def bench_here(name: str, cases: list[Case], *, wall: bool) -> None:
    clock = time.perf_counter if wall else time.process_time
    for case in cases:
        with nullcontext() if wall else threadpool_limits(1, user_api="blas"):
            plan = plan_of(case)
            data, labels = make(case)
            learner = cf.LinearMetricLearner(**PAPER, rank=case.rank)
            measured = timed(lambda: learner.fit(data, labels), clock)  # noqa: B023
        show(name, case, plan, measured, learner)


def bench_dask(cases: list[Case]) -> None:
    """Two worker processes with one thread each, eight partitions per worker; wall-clock time of the first fit.

    A second one tells how many CPU seconds workers take, without those of importing closefar.
    """
    try:
        import dask.array as da
        from distributed import Client, LocalCluster
    except ImportError:
        print("| dask | skipped: dask and distributed are not installed |")
        return
    for case in cases:
        data, labels = make(case)
        chunk = -(-case.n // 16)
        pairs, answers = da.from_array(data, chunks=(chunk, case.d)), da.from_array(labels, chunks=chunk)
        learner = cf.LinearMetricLearner(**PAPER)
        fit = partial(learner.fit, pairs, answers)
        with threadpool_limits(1, user_api="blas"):
            alone = timed(fit, time.process_time)
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            plan = plan_of(case, n_workers=2, n_partitions=16)
            measured = timed(fit, time.perf_counter)
            before = cpu_seconds(client)
            fit()
            workers = cpu_seconds(client) - before
        show("dask", case, plan, measured, learner)
        ratio = workers / (alone - plan.parts["passes over the sample"])
        print(f"  CPU seconds of workers / those of the same partitions in one process: {ratio:.2f}", flush=True)


def cpu_seconds(client: Any) -> float:
    return sum(client.run(time.process_time).values())


def bench_gpu(cases: list[Case]) -> None:
    """Float32 rows generated on the card; wall-clock time of the second fit, since the first one compiles."""
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        print("| gpu | skipped: torch with a CUDA device is needed |")
        return
    for case in cases:
        plan = plan_of(case, gpu=True)
        generator = torch.Generator("cuda").manual_seed(0)
        rows = torch.randn((case.n, case.d), device="cuda", generator=generator)
        squared = torch.square(rows[:, : case.d // 4]).sum(dim=1).cpu().numpy().astype(np.float64)
        labels = labels_of(squared, case.wrong, np.random.default_rng(0))
        learner = cf.LinearMetricLearner(**PAPER)
        learner.fit(rows, labels)
        measured = timed(lambda: learner.fit(rows, labels), time.perf_counter)  # noqa: B023
        show("gpu", case, plan, measured, learner)


def on_paper() -> None:
    """Plans of 100 columns, on as many workers or cards as hold the data in memory, with a network of 10 Gbit/s."""
    network = Network(latency=5e-3, task=1e-3, bandwidth=1.25e9, how="assumed")
    shapes = {
        "differences, float32": {"differences": True, "dtype": "float32"},
        "1,000,000 points": {"n_points": 10**6},
    }
    print("| pairs | by | data | one core | 64 workers | network | cards | on them | bottleneck there |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, shape in shapes.items():
        rates = cf.plan_run(10**9, 100, **shape).rates
        for n in (10**8, 10**9, 10**10, 10**11, 10**12):
            known = {"rates": rates, "network": network, "memory": 1e18, **shape}
            one, many = cf.plan_run(n, 100, **known), cf.plan_run(n, 100, n_workers=64, n_partitions=512, **known)
            card = cf.plan_run(n, 100, gpu=True, card=H200, **known)
            cards = max(1, int(np.ceil((card.memory.card or 0.0) / (0.8 * H200.memory))))
            cluster = cf.plan_run(n, 100, gpu=True, card=H200, n_workers=cards, n_partitions=cards, **known)
            best = card if cards == 1 else cluster
            network_bytes = many.traffic.total_bytes if many.traffic else 0.0
            print(
                f"| {as_count(n)} | {name} | {as_bytes(one.size.data_bytes)} | {as_time(one.seconds)} "
                f"| {as_time(many.seconds)} | {as_bytes(network_bytes)} | {cards} | {as_time(best.seconds)} "
                f"| {best.bottleneck} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller data")
    parser.add_argument("--only", nargs="+", choices=FULL, default=list(FULL))
    parser.add_argument("--wall", action="store_true", help="all threads and the clock, not one thread and CPU time")
    parser.add_argument("--paper", action="store_true", help="only plans, up to 1e12 pairs")
    options = parser.parse_args()
    if options.paper:
        on_paper()
        return
    warnings.simplefilter("ignore")
    print("| engine | size | solver | passes predicted | counted | seconds predicted | measured | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.only:
        cases = (QUICK if options.quick else FULL)[name]
        if name == "dask":
            bench_dask(cases)
        elif name == "gpu":
            bench_gpu(cases)
        else:
            bench_here(name, cases, wall=options.wall)


if __name__ == "__main__":
    main()
