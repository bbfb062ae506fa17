"""Where the time of a fit goes: python benchmarks/fit_profile.py [NAME ...] [--pairs FILE.npz].

Every call and return in a fit is timed, in CPU seconds on one thread, so the parts add up to the whole.  The time
between two of them belongs to the phase and to the kind of work of the innermost function that has one.  What timing
itself costs is measured and subtracted; the fit without it, *unobserved*, is timed as well, to compare the sum with.

Matrix products include the scaling of what is multiplied, which the same functions do.  Overhead is the time of
Python, of validation, and of the linear algebra of small matrices.  FILE.npz has arrays `pairs`, of shape (n, 2, d)
or (n, d), and `labels`.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import closefar as cf

ROOT = Path(cf.__file__).parent

# The paper's estimator: one fit, without choosing a penalty and flips.
PAPER: dict[str, Any] = {"alpha": 0.0, "flip_rate": 0.0}

PHASES = ("coordinates", "steps", "proof", "other")
KINDS = ("matrix products", "elementwise", "reading rows", "overhead")
PRODUCTS, ELEMENTWISE, READING, OVERHEAD = KINDS

# The phase that a function begins, and the kind of work that it does; "*" are all others of the module.
PHASE_OF = {
    "fitting/problem.py": {"of": "coordinates", "_solve": "steps"},
    "solve/certificate.py": {"lower_bound": "proof", "prove_bound": "proof", "proven_bound": "proof"},
    "solve/low_rank.py": {"_bound": "proof", "measured": "proof", "tangent_bound": "proof"},
    "solve/sampled.py": {"_certify": "proof", "_prove": "proof"},
    "solve/separation.py": {"bound_by_negative_penalty": "proof"},
}
KIND_OF = {
    "noise.py": {"*": ELEMENTWISE},
    "rows/blocks.py": {
        **dict.fromkeys(("forward", "backward", "forms", "outer", "sum_of_squares", "rotated_moments"), PRODUCTS),
        **dict.fromkeys(("quadratic_forms", "squared_lengths", "weighted_outer", "features_of"), PRODUCTS),
        **dict.fromkeys(("second_moment", "triangle", "triangle_of", "cross_moment", "grouped_sums"), PRODUCTS),
        **dict.fromkeys(("inner", "row_dots", "column_dots", "squared_columns", "largest", "roots"), ELEMENTWISE),
        **dict.fromkeys(("read", "take_rows", "_read_some", "columns_at", "_scaled_rows"), READING),
    },
    "rows/coordinates.py": dict.fromkeys(("forward", "backward", "forms", "outer", "projected_blocks"), PRODUCTS),
    "rows/indexed.py": {"*": PRODUCTS, "read": READING, "take_rows": READING},
    "rows/source.py": {"*": ELEMENTWISE, "apply": PRODUCTS},
    "solve/likelihood.py": {"*": ELEMENTWISE, "hessian": OVERHEAD, "evaluation": OVERHEAD},
    "solve/low_rank.py": {"search": ELEMENTWISE, "minimise": ELEMENTWISE, "_evaluate": ELEMENTWISE},
}

Part = tuple[str, str]  # phase and kind of work


class Stopwatch:
    """Adds the time between two calls or returns, less the `cost` of noting it, to the part of the innermost one."""

    def __init__(self, cost: float = 0.0) -> None:
        self.seconds: defaultdict[Part, float] = defaultdict(float)
        self.n_noted = 0
        self._cost = cost
        self._known: dict[CodeType, tuple[str | None, str | None]] = {}
        self._stack: list[Part] = []
        self._last = 0.0

    def run(self, function: Callable[[], Any]) -> Any:
        self._stack = [(PHASES[-1], OVERHEAD)]
        self._last = time.process_time()
        sys.setprofile(self._note)
        try:
            return function()
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        now = time.process_time()
        self.seconds[self._stack[-1]] += now - self._last - self._cost
        self.n_noted += 1
        if event == "call":
            phase, kind = self._stack[-1]
            begun, done = self._part_of(frame.f_code)
            # What a proof does is part of the proof.
            self._stack.append((phase if begun is None or phase == "proof" else begun, done or kind))
        elif event == "return" and len(self._stack) > 1:
            self._stack.pop()
        self._last = time.process_time()

    def _part_of(self, code: CodeType) -> tuple[str | None, str | None]:
        if code not in self._known:
            path = Path(code.co_filename)
            module = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
            self._known[code] = _entry(PHASE_OF, module, code.co_name), _entry(KIND_OF, module, code.co_name)
            if "linalg" in path.as_posix():
                self._known[code] = None, OVERHEAD
        return self._known[code]


def cost_of_noting(n: int = 20_000) -> float:
    """The CPU seconds that noting one call or return adds to those noted."""

    def calls() -> None:
        for _ in range(n):
            _nothing()

    start = time.process_time()
    calls()
    alone = time.process_time() - start
    watch = Stopwatch()
    watch.run(calls)
    return max(sum(watch.seconds.values()) - alone, 0.0) / watch.n_noted


def _nothing() -> None:
    pass


def _entry(table: dict[str, dict[str, str]], module: str, name: str) -> str | None:
    within = table.get(module, {})
    if name.startswith("<"):  # a lambda or a generator continues the work of its caller
        return None
    return within.get(name, within.get("*"))


def paper() -> Any:
    """c1: the paper's d = 10, rank 5, 15,000 pairs, 10% logistic noise."""
    return cf.LinearMetricLearner(**PAPER), *cf.datasets.make_pairs(15_000, 10, rank=5, random_state=2023)[:2]


def many_pairs() -> Any:
    """c3: d = 100, rank 30, 60,000 pairs, 20% logistic noise."""
    data = cf.datasets.make_pairs(60_000, 100, rank=30, wrong_share=0.2, random_state=2023)
    return cf.LinearMetricLearner(**PAPER), data.pairs, data.labels


def wide() -> Any:
    """Wide: d = 768, rank 16, 10,000 pairs, alpha = 0.05."""
    data = cf.datasets.make_pairs(10_000, 768, rank=16, random_state=2023)
    return cf.LinearMetricLearner(alpha=0.05, prior="zero", flip_rate=0.0), data.pairs, data.labels


def by_index() -> Any:
    """Pairs by index: d = 60, rank 10, 100,000 pairs of 5,000 points by index."""
    data = cf.datasets.make_judgements(100_000, 60, n_points=5_000, rank=10, random_state=2023)
    return cf.LinearMetricLearner(**PAPER), data.tuples, data.labels


def from_file(path: Path) -> Any:
    with np.load(path) as arrays:
        return cf.LinearMetricLearner(**PAPER), arrays["pairs"], arrays["labels"]


PROBLEMS: dict[str, Callable[[], Any]] = {"c1": paper, "c3": many_pairs, "wide": wide, "index": by_index}


def check_names() -> None:
    """Raise an error if a function that is named above is no longer in its module."""
    for table in (PHASE_OF, KIND_OF):
        for module, names in table.items():
            text = (ROOT / module).read_text()
            if missing := [name for name in names if name != "*" and f"def {name}(" not in text]:
                raise LookupError(f"{module} has no functions {', '.join(missing)}. Update the tables of this file.")


def profile(name: str, make: Callable[[], Any]) -> str:
    """A table of the seconds of a fit: phases by kinds of work."""
    learner, pairs, labels = make()
    learner.fit(pairs, labels)  # imports and the first use of memory are not counted
    start = time.process_time()
    learner.fit(pairs, labels)
    unobserved = time.process_time() - start
    watch = Stopwatch(cost_of_noting())
    watch.run(partial(learner.fit, pairs, labels))
    certificate = learner.certificate_
    n, d = len(labels), learner.n_features_in_
    head = f"{name}: {n:,} pairs of {d} columns, {certificate.n_passes:.1f} passes, proven gap {certificate.gap:.0e}"
    lines = [head, f"{'milliseconds':<13}" + "".join(f"{kind:>17}" for kind in (*KINDS, "total"))]
    for phase in (*PHASES, "total"):
        row = [sum(watch.seconds[each, kind] for each in (PHASES if phase == "total" else (phase,))) for kind in KINDS]
        lines.append(f"{phase:<13}" + "".join(f"{1e3 * value:17.1f}" for value in (*row, sum(row))))
    return "\n".join([*lines, f"{'unobserved':<13}{1e3 * unobserved:85.1f}", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", choices=[*PROBLEMS, []], default=[], metavar="NAME", help=", ".join(PROBLEMS)
    )
    parser.add_argument("--pairs", type=Path, metavar="FILE.npz", help="a fit to these pairs and labels")
    options = parser.parse_args()
    if unknown := set(options.names) - set(PROBLEMS):
        parser.error(f"names are {', '.join(PROBLEMS)}; got {', '.join(sorted(unknown))}.")
    chosen = {name: PROBLEMS[name] for name in options.names or ([] if options.pairs else PROBLEMS)}
    if options.pairs:
        chosen[options.pairs.name] = partial(from_file, options.pairs)
    check_names()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        for name, make in chosen.items():
            print(profile(name, make), flush=True)


if __name__ == "__main__":
    main()
