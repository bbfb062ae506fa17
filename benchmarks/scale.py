"""Side-by-side timings of large data: many columns, many pairs, pairs by index, files.  CPU time and ratios in one run.

    python benchmarks/scale.py [--quick] [--full] [--only NAME ...]

Each line prints a ratio and its bar; nothing is asserted, since seconds depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

import closefar as cf
from closefar.noise import get_noise
from closefar.rows import Differences, rows_of, unit_free
from closefar.solve import Answers, Likelihood, Problem

PAGE = 4096


def cpu(function: Callable[[], Any], repeats: int = 1) -> float:
    """The least CPU time of a call."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def show(name: str, text: str) -> None:
    print(f"{name:<16} {text}", flush=True)


def wide_problem(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Float32 differences with column variances that fall as 1/j, a metric of rank 16, and 10% wrong labels."""
    rng = np.random.default_rng(seed)
    Z = (rng.standard_normal((n, d)) / np.sqrt(np.arange(1, d + 1))).astype(np.float32)
    squared = np.square(Z @ rng.standard_normal((d, 16)).astype(np.float32)).sum(axis=1)
    labels = np.where(squared > np.median(squared), 1, -1)
    return Z, np.where(rng.random(n) < 0.1, -labels, labels)


def by_hand(
    Z: np.ndarray, labels: np.ndarray, k: int, alpha: float, target: float, limit: float
) -> tuple[float, float]:
    """SciPy's L-BFGS on a float32 factor from a random start; CPU seconds until `target`, and the value reached."""
    n, d = Z.shape
    rng = np.random.default_rng(0)
    moments = np.mean(np.square(Z), axis=0, dtype=np.float64)  # the penalty is in the units of each column
    best = [np.inf]
    start = time.process_time()

    def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        factor, tau = x[:-1].reshape(d, k).astype(np.float32), x[-1]
        product = Z @ factor
        squared = np.einsum("ij,ij->i", product, product).astype(np.float64)
        margin = labels * (squared - tau)
        slope = -labels * np.exp(-np.logaddexp(0.0, margin)) / n
        weighted = alpha * moments[:, None] * factor
        gradient = 2.0 * ((Z.T @ (product * slope.astype(np.float32)[:, None])).astype(np.float64) + weighted)
        value = float(np.logaddexp(0.0, -margin).mean() + np.sum(weighted * factor))
        best[0] = min(best[0], value)
        if best[0] <= target or time.process_time() - start > limit:
            raise StopIteration
        return value, np.append(gradient, -slope.sum())

    first = np.append(rng.standard_normal(d * k) / np.sqrt(d), 1.0)
    with suppress(StopIteration):
        minimize(value_and_gradient, first, jac=True, method="L-BFGS-B", options={"maxiter": 100_000, "maxfun": 10**6})
    return time.process_time() - start, best[0]


def bench_wide(options: argparse.Namespace) -> None:
    cases = [(256, 0.03, None), (256, 0.0, 16)]
    if not options.quick:
        cases += [(768, 0.05, None), (768, 0.0, 16)]
    spent: dict[int, float] = {}
    for d, alpha, rank in cases:
        Z, labels = wide_problem(50_000, d, options.seed)
        learner = cf.LinearMetricLearner(alpha=alpha, prior="zero", rank=rank, flip_rate=0.0, tol=1e-4)
        ours = cpu(partial(learner.fit, Z, labels))
        spent.setdefault(d, ours)
        reached = learner.certificate_.objective
        columns = rank or min(d, 64)
        theirs, value = by_hand(Z, labels, columns, alpha, reached + 1e-4, 40.0 * ours)
        done = "" if value <= reached + 1e-4 else f", given up {value - reached:.1e} above"
        show(
            f"d = {d}",
            f"alpha = {alpha}, rank {rank}: {ours:.1f} CPU s, gap {learner.certificate_.gap:.1e}; SciPy's L-BFGS on a "
            f"float32 factor of {columns} columns {theirs:.1f} CPU s{done}: ratio {theirs / ours:.1f} (bar 5)",
        )
    if options.full:
        Z, labels = wide_problem(50_000, 1536, options.seed)
        learner = cf.LinearMetricLearner(alpha=0.07, prior="zero", flip_rate=0.0, tol=1e-4)
        ours = cpu(lambda: learner.fit(Z, labels))
        show(
            "d = 1536",
            f"{ours:.1f} CPU s, {ours / (4.0 * spent[768]):.2f} of 4 times d = 768 (bar 3), gap "
            f"{learner.certificate_.gap:.1e}",
        )


def bench_index(options: argparse.Namespace) -> None:
    """A pass over projections on 16 columns: pairs by index against the differences of the same pairs."""
    n, d, k, n_pairs = 5_000, 768, 16, 50_000 if options.quick else 500_000
    rng = np.random.default_rng(options.seed)
    points = rng.standard_normal((n, d)).astype(np.float32)
    index = rng.integers(0, n, (n_pairs, 2))
    factor = rng.standard_normal((d, k)) / np.sqrt(d)
    weights = rng.standard_normal(n_pairs) / n_pairs

    def pass_over(rows: Any) -> np.ndarray:
        projections = rows.forward(factor)
        rows.inner(projections, projections)
        gradient: np.ndarray = rows.backward(projections, weights)
        return gradient

    by_index = rows_of(cf.Tuples(points, index))
    expanded = Differences(points[index[:, 0]] - points[index[:, 1]])
    error = float(np.abs(pass_over(by_index) - pass_over(expanded)).max())
    short, long = cpu(lambda: pass_over(by_index), 5), cpu(lambda: pass_over(expanded), 2)
    show(
        "pairs by index",
        f"n = {n}, N = {n_pairs}, d = {d}, k = {k}: {short * 1e3:.0f} ms a pass, {long * 1e3:.0f} ms "
        f"expanded: ratio {long / short:.0f} (bar 40), difference {error:.0e}",
    )


def bench_passes(options: argparse.Namespace) -> None:
    """The time of a pass in proportion to the number of rows."""
    each: dict[int, float] = {}
    for n in (100_000, 1_000_000) if options.quick else (100_000, 1_000_000, 10_000_000):
        rng = np.random.default_rng(options.seed)
        Z = rng.standard_normal((n, 20))
        labels = np.where(np.square(Z[:, :5]).sum(axis=1) + rng.logistic(size=n) > 4.35, 1.0, -1.0)
        weights = np.full(n, 1.0 / n)
        rows, _ = unit_free(Differences(Z), weights)
        codes = rows.row_array((labels > 0).astype(np.int8))
        problem = Problem.of(rows, Likelihood(get_noise("logistic"), Answers.of(2), codes, weights))
        evaluate = partial(problem.at, np.eye(20), np.ones(1))
        evaluate()
        each[n] = cpu(evaluate, 7 if n < 10**7 else 3) / n * 1e9
    ratio = max(each.values()) / min(each.values())
    show(
        "time per pass",
        ", ".join(f"N = {n:,}: {ns:.0f} ns a row" for n, ns in each.items())
        + f"; largest / smallest {ratio:.2f} (bar 1.25)",
    )


def in_process(name: str, folder: Path) -> dict[str, float]:
    result = subprocess.run(
        [sys.executable, __file__, "--measure", name, str(folder)], capture_output=True, text=True, env=os.environ
    )
    if result.returncode:
        raise RuntimeError(result.stderr)
    found: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return found


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def measure(name: str, folder: Path) -> None:
    """Fit in this process, with its resident set sampled."""
    labels = np.load(folder / "labels.npy")
    data: Any = np.load(folder / "pairs.npy") if name == "memory" else None
    learner = cf.LinearMetricLearner(alpha=0.0, flip_rate=0.0, tol=1e-4)  # which loads the rest of the program
    before, peak, ends = resident(), [0], threading.Event()

    def watch() -> None:
        while not ends.wait(0.01):
            peak[0] = max(peak[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.process_time()
    try:
        if name == "map":
            data = np.load(folder / "pairs.npy", mmap_mode="r")
        elif name != "memory":
            data = cf.open_pairs(folder / f"pairs.{name}", labels=labels)
        learner.fit(data, labels)
    finally:
        ends.set()
        watcher.join()
    print(
        json.dumps(
            {
                "before": before,
                "peak": peak[0],
                "cpu": time.process_time() - start,
                "gap": learner.certificate_.gap,
                "passes": learner.certificate_.n_passes,
            }
        )
    )


def write_pairs(folder: Path, n: int, d: int, dtype: Any, seed: int, *, parquet: bool) -> None:
    """Differences and labels in .npy files, and in Parquet."""
    rng = np.random.default_rng(seed)
    Z = np.lib.format.open_memmap(folder / "pairs.npy", "w+", dtype, (n, d))
    labels = np.empty(n, dtype=np.int64)
    for start in range(0, n, 100_000):
        some = slice(start, min(start + 100_000, n))
        Z[some] = rng.standard_normal((some.stop - start, d))
        squared = np.square(Z[some, :5]).sum(axis=1)
        labels[some] = np.where(squared + rng.logistic(size=len(squared)) > 4.35, 1, -1)
    np.save(folder / "labels.npy", labels)
    if parquet:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema([(f"x{j}", pa.from_numpy_dtype(dtype)) for j in range(d)])
        with pq.ParquetWriter(folder / "pairs.parquet", schema) as writer:
            for start in range(0, n, 100_000):
                columns = [pa.array(np.ascontiguousarray(Z[start : start + 100_000, j])) for j in range(d)]
                writer.write_table(pa.table(columns, schema=schema))


def bench_memory(options: argparse.Namespace) -> None:
    n = 400_000 if options.quick else 2_000_000
    with tempfile.TemporaryDirectory() as name:
        write_pairs(Path(name), n, 50, np.float64, options.seed, parquet=False)
        found = in_process("memory", Path(name))
    share = (found["peak"] - found["before"]) / (8.0 * n * 50)
    show(
        "memory",
        f"{n} x 50 float64: {share:.2f} of the data on top of it (bar 0.4), {found['cpu']:.0f} CPU s, "
        f"gap {found['gap']:.1e}",
    )


def bench_files(options: argparse.Namespace) -> None:
    n = 1_000_000 if options.quick else 10_000_000
    with tempfile.TemporaryDirectory() as name:
        write_pairs(Path(name), n, 50, np.float32, options.seed, parquet=True)
        for kind in ("map", "npy", "parquet"):
            found = in_process(kind, Path(name))
            show(
                f"file, {kind}",
                f"{n} x 50 float32: {found['peak'] / 1e9:.2f} GB resident (bar 2), gap "
                f"{found['gap']:.1e} (bar 1e-4), {found['passes']:.0f} passes, {found['cpu']:.0f} CPU s",
            )


def bench_command_line(options: argparse.Namespace) -> None:
    """`closefar fit` with points and pairs of their ids, against pandas, which reads and joins the same files."""
    try:
        import pandas as pd
    except ImportError:
        show("command line", "skipped: pandas is not installed")
        return
    n = 100_000 if options.quick else 1_000_000
    rng = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        points = rng.standard_normal((n, 5)).round(4)
        ends = rng.integers(0, n, (n, 2))
        squared = np.square((points[ends[:, 0]] - points[ends[:, 1]])[:, :3]).sum(axis=1)
        labels = np.where(squared + rng.logistic(size=n) > 5.0, "far", "close")
        table = pd.DataFrame(points, columns=[f"x{j}" for j in range(5)])
        table.insert(0, "id", np.arange(n))
        table.to_csv(folder / "points.csv", index=False)
        pd.DataFrame({"left": ends[:, 0], "right": ends[:, 1], "label": labels}).to_csv(
            folder / "pairs.csv", index=False
        )
        joining = (
            "import sys, pandas as pd\n"
            "points, pairs = (pd.read_csv(f'{sys.argv[1]}/{name}.csv') for name in ('points', 'pairs'))\n"
            "pairs.merge(points, left_on='left', right_on='id').merge(points, left_on='right', right_on='id')\n"
        )
        theirs, _ = finished([sys.executable, "-c", joining, name])
        command = [
            sys.executable,
            "-m",
            "closefar",
            "fit",
            "--points",
            f"{name}/points.csv",
            "--pairs",
            f"{name}/pairs.csv",
            "--out",
            f"{name}/model.closefar",
        ]
        ours, peak = finished(command)
    show(
        "command line",
        f"{n} points and pairs: {ours:.1f} CPU s, {ours / theirs:.1f} times pandas reading and joining "
        f"(bar 4), {peak / 1e6:.0f} MB resident (bar 700)",
    )


def finished(command: list[str]) -> tuple[float, float]:
    """The CPU time and the largest resident set of a command."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    error = process.stderr.read() if process.stderr else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(error)
    return usage.ru_utime + usage.ru_stime, 1024.0 * usage.ru_maxrss


BENCHMARKS = {
    "wide": bench_wide,
    "index": bench_index,
    "passes": bench_passes,
    "memory": bench_memory,
    "files": bench_files,
    "cli": bench_command_line,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller data")
    parser.add_argument("--full", action="store_true", help="also 1,536 columns")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "FOLDER"), help="only measure one fit, in this process")
    parser.add_argument("--seed", type=int, default=2023)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0], Path(options.measure[1]))
        return
    with threadpool_limits(1):
        for name in options.only:
            BENCHMARKS[name](options)


if __name__ == "__main__":
    main()
