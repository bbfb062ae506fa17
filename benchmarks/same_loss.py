"""closefar and PyTorch on the same loss, to the same gap.

    python benchmarks/same_loss.py [--seeds 0 1] [--wrong 0.2 0.1] [--threads 1] [--without-adam]

60,000 pairs of 100 columns, a metric of rank 30.  PyTorch gets whitened differences and is stopped as soon as its loss
is within 1e-6 of the optimum, which it can't know; closefar is timed with its proof.  CPU seconds on one thread, or
wall seconds on several.  It needs torch (the extra `gpu`).
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from peers.adapters import torch_loss
from peers.adapters.torch_loss import Loss, adam, lbfgs
from threadpoolctl import threadpool_limits

import closefar as cf

# The paper's estimator: one fit, without choosing a penalty and flips.
PAPER: dict[str, Any] = {"alpha": 0.0, "flip_rate": 0.0}

GAP = 1e-6


def timed(function: Callable[[], Any], clock: Callable[[], float]) -> tuple[float, Any]:
    start = clock()
    found = function()
    return clock() - start, found


def compare(wrong: float, seed: int, methods: list[str], clock: Callable[[], float]) -> None:
    pairs, labels, *_ = cf.datasets.make_pairs(60_000, 100, rank=30, wrong_share=wrong, random_state=seed)
    optimum = cf.LinearMetricLearner(**PAPER, tol=1e-9).fit(pairs, labels).certificate_.loss
    train = {"pairs": pairs, "labels": labels, "target_loss": np.array(optimum + GAP)}
    before = [timed(lambda: cf.LinearMetricLearner(**PAPER).fit(pairs, labels), clock)[0] for _ in range(2)]
    rows = {}
    for name in methods:
        method, dtype = METHODS[name]
        rows[name] = timed(lambda method=method, dtype=dtype: torch_loss.fit(train, method, "cpu", dtype), clock)
    after = [timed(lambda: cf.LinearMetricLearner(**PAPER).fit(pairs, labels), clock)[0] for _ in range(2)]
    ours = float(np.median(before + after))
    print(f"{100 * wrong:.0f}% wrong labels, seed {seed}: closefar {ours:.2f} s, proven")
    for name, (seconds, learned) in rows.items():
        ends = learned.note or "at the target"
        print(f"  {name:<42} {seconds:7.2f} s, {seconds / ours:5.1f} times as long; {ends}", flush=True)


METHODS: dict[str, tuple[Callable[[Loss], Iterator[float]], Any]] = {
    "L-BFGS, single precision, then double": (lbfgs, torch.float32),
    "L-BFGS, double precision": (lbfgs, torch.float64),
    "Adam, single precision, then double": (adam, torch.float32),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--wrong", type=float, nargs="+", default=[0.2, 0.1])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--without-adam", action="store_true", help="leave out what takes minutes")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    methods = [name for name in METHODS if not (options.without_adam and name.startswith("Adam"))]
    clock = time.process_time if options.threads == 1 else time.perf_counter
    with threadpool_limits(options.threads):
        for wrong in options.wrong:
            for seed in options.seeds:
                compare(wrong, seed, methods, clock)


if __name__ == "__main__":
    main()
