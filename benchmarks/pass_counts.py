"""A guard on the work of every solver: the passes over the data of fixed problems, beside those on record.

    python benchmarks/pass_counts.py [--record] [--only NAME ...]

Seconds depend on the machine, passes hardly do: every run on a machine counts the same.  With the products of other
processors (OPENBLAS_CORETYPE=Haswell or Prescott, NumPy without AVX-512) 29 of the 32 counts are the same, and the
others, where rounding decides whether one more step is needed, differ by at most 4%.  The command fails if a fit
takes 10% (or one pass) more than on record in `pass_counts.json`, or ends differently.  `--record` writes what it
counts, to be committed with the change that is behind it.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import closefar as cf

# The maximum-likelihood estimator, unless a problem has a penalty or flips: only the passes of one fit are counted.
PAPER = {"alpha": 0.0, "prior": "zero", "flip_rate": 0.0}

RECORDS = Path(__file__).with_name("pass_counts.json")

# A fit may take so many times the passes on record, or so many more.
SHARE, MORE = 1.1, 1.0


@dataclass(frozen=True)
class Effort:
    """The passes that a fit took over the data, and how it ended."""

    passes: float
    outcome: str


def close_far(n: int, d: int, true_rank: int, wrong: float = 0.1, **settings: Any) -> Any:
    pairs, labels, *_ = cf.datasets.make_pairs(n, d, rank=true_rank, wrong_share=wrong, random_state=0)
    return cf.LinearMetricLearner(**PAPER | settings).fit(pairs, labels)


def single_precision() -> Any:
    pairs, labels, *_ = cf.datasets.make_pairs(20_000, 50, rank=10, random_state=0)
    return cf.LinearMetricLearner(**PAPER).fit(pairs.astype(np.float32), labels)


def without_noise() -> Any:
    pairs, _, labels, _ = cf.datasets.make_pairs(15_000, 10, rank=5, random_state=0)
    return cf.LinearMetricLearner(**PAPER).fit(pairs, labels)


def with_origin() -> Any:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(4_000, 5))
    far = np.square(points - 0.5).sum(axis=1) + rng.logistic(size=len(points)) > 5.0
    return cf.LinearMetricLearner(fit_origin=True, **PAPER).fit(points, np.where(far, 1, -1))


def judged(learner: Any, n: int, d: int, kind: str, **data: Any) -> Any:
    judgements = cf.datasets.make_judgements(n, d, kind=kind, random_state=0, **data)
    more = {} if judgements.annotators is None else {"annotators": judgements.annotators}
    return learner.fit(judgements.tuples, judgements.labels, **more)


def mixed() -> Any:
    """Close/far labels and triplets in one fit."""
    pairs, triplets = (
        cf.datasets.make_judgements(3_000, 8, kind=kind, noise_scale=0.3, random_state=0)
        for kind in ("pairs", "triplets")
    )
    comparisons = triplets.points[triplets.index]
    turned = triplets.labels < 0
    comparisons[turned] = comparisons[turned][:, [0, 2, 1]]
    return cf.LinearMetricLearner(**PAPER).fit(pairs.tuples, pairs.labels, comparisons=comparisons)


PROBLEMS: dict[str, Callable[[], Any]] = {
    "close/far, 10 columns": partial(close_far, 15_000, 10, 5),
    "close/far, 10 columns, tol 1e-10": partial(close_far, 15_000, 10, 5, tol=1e-10),
    "close/far, 30 columns": partial(close_far, 20_000, 30, 10),
    "close/far, 60 columns": partial(close_far, 20_000, 60, 20, 0.2),
    "close/far, 50 columns, float32": single_precision,
    "close/far, 200 columns, alpha": partial(close_far, 6_000, 200, 10, alpha=0.05),
    "close/far, 200 columns, centre": partial(close_far, 6_000, 200, 10, alpha=0.05, prior="euclidean"),
    "close/far, 10 columns, alpha": partial(close_far, 3_000, 10, 5, alpha=0.01),
    "close/far, 40 columns, alpha": partial(close_far, 4_000, 40, 5, alpha=0.02),
    "rank 4 of 10 columns": partial(close_far, 15_000, 10, 5, rank=4, tol=1e-4),
    "rank 5 of 50 columns": partial(close_far, 15_000, 50, 10, rank=5),
    "rank 8 of 200 columns": partial(close_far, 8_000, 200, 16, rank=8),
    "sampled, 40 columns": partial(close_far, 15_000, 40, 10, 0.2, solver="sampled"),
    "sampled, 40 columns, alpha": partial(close_far, 15_000, 40, 10, solver="sampled", alpha=0.01),
    "sampled Hessian, 16 columns": partial(close_far, 60_000, 16, 5, solver="sampled"),
    "sampled Hessian, 33 columns": partial(close_far, 120_000, 33, 10),
    "low rank, 20 columns": partial(close_far, 10_000, 20, 5, 0.2, solver="lowrank", tol=1e-4),
    "separable labels": without_noise,
    "learned origin": with_origin,
    "index pairs, 12 columns": partial(
        judged, cf.LinearMetricLearner(**PAPER), 10_000, 12, "pairs", n_points=500, rank=4
    ),
    "index pairs, 60 columns": partial(
        judged, cf.LinearMetricLearner(**PAPER), 30_000, 60, "pairs", n_points=2_000, rank=10
    ),
    "levels, 8 columns": partial(judged, cf.OrdinalMetricLearner(**PAPER), 5_000, 8, "levels", rank=4),
    "levels, 40 columns": partial(judged, cf.OrdinalMetricLearner(**PAPER), 10_000, 40, "levels", rank=8),
    "triplets, 8 columns": partial(judged, cf.ComparisonMetricLearner(**PAPER), 5_000, 8, "triplets", rank=4),
    "quadruplets, 40 columns": partial(judged, cf.ComparisonMetricLearner(**PAPER), 15_000, 40, "quadruplets", rank=8),
    "pairs and triplets, 8 columns": mixed,
    "annotators, 6 columns": partial(
        judged, cf.LinearMetricLearner(**PAPER), 6_000, 6, "pairs", n_annotators=12, strictness_spread=0.3
    ),
    "annotators with flips, 6 columns": partial(
        judged,
        cf.LinearMetricLearner(alpha=0.0, flip_rate="estimate"),
        6_000,
        6,
        "pairs",
        n_annotators=12,
        strictness_spread=0.2,
        flip_rate=0.1,
    ),
    "flips, 10 columns": partial(
        judged, cf.LinearMetricLearner(alpha=0.0, flip_rate="estimate"), 8_000, 10, "pairs", rank=5, flip_rate=0.1
    ),
    "flips on two sides, 6 columns": partial(
        judged, cf.LinearMetricLearner(alpha=0.0, flip_rate="two"), 8_000, 6, "pairs", flip_rate=(0.05, 0.15)
    ),
    "flips, 40 columns": partial(
        judged, cf.LinearMetricLearner(alpha=0.0, flip_rate="estimate"), 20_000, 40, "pairs", rank=5, flip_rate=0.1
    ),
    "levels with flips, 6 columns": partial(
        judged, cf.OrdinalMetricLearner(alpha=0.0, flip_rate="estimate"), 6_000, 6, "levels", flip_rate=0.1
    ),
}


def measure(names: list[str]) -> dict[str, Effort]:
    """Fit each problem on one thread."""
    found = {}
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for name in names:
            certificate = PROBLEMS[name]().certificate_
            found[name] = Effort(round(float(certificate.n_passes), 1), str(certificate.outcome))
    return found


def verdicts(before: dict[str, Effort], now: dict[str, Effort]) -> dict[str, str]:
    """What is wrong with each problem that fails."""
    wrong = {}
    for name, effort in now.items():
        if name not in before:
            wrong[name] = "is not on record"
        elif effort.outcome != before[name].outcome:
            wrong[name] = f"was {before[name].outcome}, is {effort.outcome}"
        elif effort.passes > max(SHARE * before[name].passes, before[name].passes + MORE):
            wrong[name] = "takes more passes"
    return wrong


def table(before: dict[str, Effort], now: dict[str, Effort], wrong: dict[str, str]) -> str:
    lines = [f"{'problem':<38} {'on record':>9} {'now':>7}"]
    for name, effort in now.items():
        recorded = f"{before[name].passes:9.1f}" if name in before else f"{'-':>9}"
        lines.append(f"{name:<38} {recorded} {effort.passes:7.1f}  {wrong.get(name, '')}".rstrip())
    return "\n".join(lines)


def read(path: Path) -> dict[str, Effort]:
    return {name: Effort(**effort) for name, effort in json.loads(path.read_text()).items()}


def write(path: Path, efforts: dict[str, Effort]) -> None:
    lines = (f"  {json.dumps(name)}: {json.dumps(vars(effort))}" for name, effort in efforts.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the passes on record anew")
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=list(PROBLEMS), metavar="NAME")
    options = parser.parse_args()
    before = read(RECORDS) if RECORDS.exists() else {}
    now = measure(options.only)
    wrong = {} if options.record else verdicts(before, now)
    print(table(before, now, wrong))
    if options.record:
        write(RECORDS, {name: now.get(name, before.get(name)) for name in PROBLEMS if name in now or name in before})
    elif wrong:
        print(f"\n{len(wrong)} of {len(now)} problems: {'; '.join(f'{name} {what}' for name, what in wrong.items())}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
