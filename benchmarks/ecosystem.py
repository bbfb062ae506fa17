"""Side-by-side timings of the learned metric in other tools: ratios in one process.

    python benchmarks/ecosystem.py

Nearest neighbours by `transform` and Euclidean distance, against `metric=learner.get_metric()`:
the same neighbours, and how many times faster.  Both have one thread, because the function of
`get_metric` can use no more, and because a second one waits for other work on a busy machine.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits

import closefar as cf


def classify(model: KNeighborsClassifier, train: np.ndarray, labels: np.ndarray, test: np.ndarray) -> tuple[Any, float]:
    """The neighbours of the test points, and the seconds to fit and find them."""
    start = time.perf_counter()
    neighbours = model.fit(train, labels).kneighbors(test, return_distance=False)
    return neighbours, time.perf_counter() - start


def bench_neighbours(n: int, d: int, seed: int, repeats: int = 5) -> None:
    pairs, labels, *_ = cf.datasets.make_pairs(5_000, d, rank=d // 2, wrong_share=0.1, random_state=seed)
    learner = cf.LinearMetricLearner().fit(pairs, labels)
    rng = np.random.default_rng(seed)
    train, test = rng.normal(size=(n, d)), rng.normal(size=(n // 4, d))
    classes = rng.integers(3, size=n)
    slow, seconds = classify(KNeighborsClassifier(metric=learner.get_metric()), train, classes, test)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        mapped_train, mapped_test = learner.transform(train), learner.transform(test)
        mapping = time.perf_counter() - start
        fast, finding = classify(KNeighborsClassifier(), mapped_train, classes, mapped_test)
        times.append(mapping + finding)
    same = np.mean(fast == slow)
    print(
        f"{'neighbours':<16} {n} x {d}, {n // 4} queries: get_metric() {seconds:.2f} s, transform "
        f"{np.median(times) * 1e3:.1f} ms, {seconds / np.median(times):.0f} times faster (bar 50), "
        f"same neighbours {100 * same:.2f}%"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=2023)
    seed = parser.parse_args().seed
    with threadpool_limits(limits=1):
        for n, d in ((1_000, 4), (2_000, 10), (2_000, 30)):
            bench_neighbours(n, d, seed)


if __name__ == "__main__":
    main()
