"""Golden answers: what fits, reports and commands gave when they were recorded, and whether they still do.

    python benchmarks/golden.py [--record] [--only PART ...] [--threads N]

A change that should not change results, such as moved or merged modules, must leave every answer on record in
`golden.json` equal.  The command prints each difference and fails if there is one.  `--only` selects the answers whose
names contain a part, such as `fits/`, `levels` or `commands/predict`; `--record` writes the selected answers anew, to
be committed with the change that is behind them.

Words are compared exactly, objectives to 1e-6, and other numbers within what the fit leaves open: a proven gap g to the
minimum leaves an error of at most the order of sqrt(g) in the metric.  Passes over the data may change by 10%, as in
`pass_counts.py`.  Times, versions and dates are not recorded.  With the products of other processors
(OPENBLAS_CORETYPE=Haswell or Prescott, NumPy without AVX-512, 1 or 2 threads) all answers agree to 1e-6.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

import closefar as cf

RECORDS = Path(__file__).with_name("golden.json")

# The tolerance of the solver where nothing is "auto".  Two right answers then agree to 1e-5 = sqrt(TOL), and others,
# which have the default tolerance of 1e-6, to 1e-4, as solvers overshoot it and the gap is an upper bound.
TOL = 1e-10
EXACT, DEFAULT, OBJECTIVE = 1e-5, 1e-4, 1e-6

# The maximum-likelihood estimator, unless a case has other settings.
PAPER: dict[str, Any] = {"alpha": 0.0, "prior": "zero", "flip_rate": 0.0, "tol": TOL}

# Numbers that two right runs may give differently, by their key or by the words before them.
PASSES = {"passes", "n_passes", "iterations", "n_iter", "n_steps"}
LEFT_OUT = {"version", "gap", "lower_bound", "threshold_multiplier", "seconds", "elapsed"}
UNSTABLE_TEXT = re.compile(r"(Proven gap: +|Passes over data: +|within a proven )[\d.e+-]+|\d{4}-\d\d-\d\d")
NUMBER = re.compile(r"(?<![\w.])[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
KEPT = 8  # of a long list or column the first so many items are recorded, with the sum of all
SHOWN, MOST_SHOWN = 150, 12  # characters of a value, and differences of an answer, that suit a screen


# Data, each for `learner.fit(**data)`.
def judged(
    n: int, d: int, kind: str = "pairs", *, by_index: bool = False, seed: int = 0, **more: Any
) -> dict[str, Any]:
    judgements = cf.datasets.make_judgements(n, d, kind=kind, random_state=seed, **more)
    tuples = judgements.tuples if by_index else np.asarray(judgements.tuples)
    return {"X": tuples, "y": judgements.labels, "annotators": judgements.annotators}


def compared(n: int, d: int, kind: str = "triplets", **more: Any) -> dict[str, Any]:
    data = judged(n, d, kind, **more)
    del data["annotators"]
    return data


def weighted(n: int, d: int) -> dict[str, Any]:
    return judged(n, d, wrong_share=0.15) | {"sample_weight": np.random.default_rng(1).integers(0, 4, n).astype(float)}


def mixed(n: int, d: int, kind: str = "triplets", **more: Any) -> dict[str, Any]:
    """Pairs and half as many comparisons, some of them reversed."""
    comparisons = compared(n // 2, d, kind, noise_scale=0.5)
    return judged(n, d, noise_scale=0.5) | {"comparisons": (comparisons["X"], comparisons["y"])} | more


def frame(n: int, d: int) -> pd.DataFrame:
    """The differences of pairs, with names of columns in unlike units."""
    first, second = np.moveaxis(judged(n, d)["X"], 1, 0)
    return pd.DataFrame((first - second) * 10.0 ** np.arange(d), columns=[f"column {k}" for k in range(d)])


def single_points(n: int, d: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(n, d))
    far = np.square(points - 0.5).sum(axis=1) + rng.logistic(size=n) > d
    return {"X": points, "y": np.where(far, 1, -1)}


def classes(n: int, d: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    given = rng.integers(0, 3, n)
    points = rng.normal(size=(n, d)) + 2.0 * np.eye(3, d)[given]
    return {"X": points, "y": np.where(rng.random(n) < 0.1, rng.integers(0, 3, n), given)}


def linear(**settings: Any) -> Any:
    return cf.LinearMetricLearner(**PAPER | settings)


def ordinal(**settings: Any) -> Any:
    return cf.OrdinalMetricLearner(**PAPER | settings)


def comparison(**settings: Any) -> Any:
    return cf.ComparisonMetricLearner(**PAPER | settings)


CENTRE = cf.Metric.from_matrix(np.diag([2.0, 1.0, 0.5, 0.0]), threshold=1.0)
PANEL: dict[str, Any] = {"n_annotators": 8, "strictness_spread": 0.3}
POINTS: dict[str, Any] = {"n_points": 120, "by_index": True}

FITS: dict[str, tuple[Any, dict[str, Any]]] = {
    # Solvers.
    **{
        f"pairs, {name}": (linear(solver=name.replace("fista", "sampled")), judged(1_000, 5))
        for name in ("auto", "newton", "lowrank", "fista")
    },
    "pairs, sampled": (linear(solver="sampled"), judged(2_000, 8)),
    "pairs, factor": (linear(solver="lowrank", tol=1e-8), judged(1_000, 5)),
    "pairs, factor, alpha": (linear(solver="lowrank", alpha=0.02, tol=1e-8), judged(800, 6)),
    "pairs, lowrank, 40 columns, alpha": (linear(solver="lowrank", alpha=0.05), judged(600, 40, rank=4)),
    "pairs, newton, 12 columns, alpha": (linear(solver="newton", alpha=0.02), judged(800, 12, rank=3)),
    "pairs, fista, alpha": (linear(solver="sampled", alpha=0.05), judged(600, 10, rank=3)),
    "pairs, 40 columns, alpha": (linear(alpha=0.05), judged(1_000, 40, rank=5)),
    "levels, lowrank": (ordinal(solver="lowrank"), judged(800, 5, "levels")),
    "levels, fista, alpha": (ordinal(solver="sampled", alpha=0.05), judged(600, 5, "levels")),
    "triplets, newton": (comparison(solver="newton"), compared(800, 5)),
    "quadruplets, lowrank, alpha": (comparison(solver="lowrank", alpha=0.05), compared(800, 12, "quadruplets")),
    # Noises.
    **{f"pairs, {name} noise": (linear(noise=name), judged(800, 4, noise=name)) for name in cf.noise.NOISES},
    **{
        f"levels, {name} noise": (ordinal(noise=name), judged(800, 4, "levels", noise=name)) for name in cf.noise.NOISES
    },
    "pairs, noise chosen by likelihood": (linear(noise="auto"), judged(1_500, 3, noise="laplace")),
    "pairs, noise chosen on held-out": (linear(noise="auto", alpha="auto"), judged(800, 3, noise="normal")),
    "triplets, laplace noise": (comparison(noise="laplace"), compared(800, 4, noise="laplace")),
    # Flips.
    "pairs, flips of 0.1": (linear(flip_rate=0.1), judged(1_000, 4, flip_rate=0.1)),
    "pairs, flips of two numbers": (linear(flip_rate=(0.05, 0.15)), judged(1_000, 4, flip_rate=(0.05, 0.15))),
    "pairs, flips estimated": (linear(flip_rate="estimate"), judged(1_500, 4, flip_rate=0.1)),
    "pairs, flips on two sides": (linear(flip_rate="two"), judged(2_000, 4, flip_rate=(0.05, 0.2))),
    "pairs, flips chosen": (linear(flip_rate="auto", alpha="auto"), judged(1_500, 4, flip_rate=0.15)),
    "pairs, flips of normal noise": (linear(flip_rate="estimate", noise="normal"), judged(1_500, 4, flip_rate=0.1)),
    "levels, flips estimated": (ordinal(flip_rate="estimate"), judged(1_500, 4, "levels", flip_rate=0.1)),
    "triplets, flips estimated": (comparison(flip_rate="estimate"), compared(1_500, 4, flip_rate=0.1)),
    # Penalties and what they shrink to.
    "pairs, alpha": (linear(alpha=0.02), judged(400, 4)),
    "pairs, alpha, euclidean": (linear(alpha=0.05, prior="euclidean"), judged(500, 5)),
    "pairs, alpha, standardized": (linear(alpha=0.05, prior="standardized"), judged(400, 4)),
    "pairs, alpha, a metric": (linear(alpha=0.05, prior=CENTRE), judged(400, 4)),
    "pairs, alpha chosen": (linear(alpha="auto"), judged(400, 6, rank=2)),
    "pairs, prior chosen": (cf.LinearMetricLearner(), judged(300, 5, seed=2)),
    "pairs, prior chosen, few pairs": (cf.LinearMetricLearner(), judged(60, 8, wrong_share=0.3)),
    "levels, all chosen": (cf.OrdinalMetricLearner(), judged(500, 5, "levels", n_levels=4)),
    "triplets, all chosen": (cf.ComparisonMetricLearner(), compared(500, 5)),
    "triplets, alpha, euclidean": (comparison(alpha=0.05, prior="euclidean"), compared(500, 5)),
    "levels, alpha, standardized": (ordinal(alpha=0.05, prior="standardized"), judged(500, 5, "levels")),
    # Ranks.
    "pairs, rank 2 of 5": (linear(rank=2, tol=1e-8), judged(1_000, 5)),
    "pairs, rank 2, alpha": (linear(rank=2, alpha=0.02, tol=1e-8), judged(1_000, 8)),
    "pairs, rank chosen": (linear(rank="auto", alpha="auto", tol=1e-6), judged(800, 5, rank=2)),
    "triplets, rank 2": (comparison(rank=2, tol=1e-8), compared(1_000, 4)),
    # Who judged, and what is known of the judgements.
    "pairs, annotators": (linear(), judged(1_200, 4, **PANEL)),
    "pairs, annotators, flips estimated": (linear(flip_rate="estimate"), judged(2_000, 3, flip_rate=0.1, **PANEL)),
    "pairs, annotators, all chosen": (cf.LinearMetricLearner(), judged(800, 4, n_random_annotators=1, **PANEL)),
    "levels, annotators": (ordinal(), judged(1_200, 4, "levels", n_levels=4, **PANEL)),
    "levels, annotators, flips estimated": (
        ordinal(flip_rate="estimate"),
        judged(1_600, 3, "levels", n_levels=3, flip_rate=0.1, **PANEL),
    ),
    "pairs, weights": (linear(), weighted(1_000, 4)),
    "pairs, balanced classes": (linear(class_weight="balanced"), judged(1_000, 4, thresholds=1.0)),
    "levels, class weights": (ordinal(class_weight={0: 2.0, 2: 0.5}), judged(1_000, 4, "levels", n_levels=3)),
    # Kinds of data.
    "pairs by index": (linear(), judged(1_500, 6, **POINTS)),
    "pairs by index, all chosen": (cf.LinearMetricLearner(), judged(1_000, 6, **POINTS)),
    "levels by index, alpha": (ordinal(alpha=0.02), judged(1_000, 6, "levels", **POINTS)),
    "quadruplets by index": (comparison(), compared(1_500, 5, "quadruplets", **POINTS)),
    "pairs, data frame": (linear(), judged(800, 3) | {"X": frame(800, 3)}),
    "pairs, single precision": (linear(tol=1e-6), judged(1_000, 4) | {"X": judged(1_000, 4)["X"].astype(np.float32)}),
    "pairs, separable labels": (linear(alpha=0.01), judged(500, 4, noise=None)),
    "pairs and triplets": (linear(), mixed(1_000, 4)),
    "pairs and quadruplets, noise estimated": (linear(), mixed(1_000, 3, "quadruplets", comparison_noise="estimate")),
    "pairs and triplets, all chosen": (cf.LinearMetricLearner(), mixed(600, 4)),
    "points, origin": (linear(fit_origin=True), single_points(1_000, 3)),
    "points": (linear(), single_points(800, 4)),
    "classes": (cf.ClassMetricLearner(), classes(200, 4)),
    "classes, trusted": (cf.ClassMetricLearner(wrong_share=0, units="shared", n_pairs=2_000), classes(150, 3)),
}

REPORTS = (
    "pairs, auto",
    "pairs, prior chosen",
    "pairs, flips on two sides",
    "pairs, annotators, all chosen",
    "pairs by index, all chosen",
    "pairs and triplets, all chosen",
    "pairs, rank chosen",
    "points, origin",
    "levels, all chosen",
    "triplets, all chosen",
)

FILES = "--points points.csv --pairs"
# The arguments of each command, in this order, and the files that it writes.
COMMANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "fit": (f"fit {FILES} pairs.csv --report fit.txt", ("fit.txt",)),
    "fit ratings": (f"fit {FILES} ratings.csv --alpha 0.01 --prior zero --flip-rate 0 --out levels.closefar", ()),
    "fit triplets": ("fit --points points.csv --comparisons triplets.csv --json --out triplets.closefar", ()),
    "fit annotators": (f"fit {FILES} annotated.csv --flip-rate estimate --out annotators.closefar", ()),
    "fit, missing file": (f"fit {FILES} nowhere.csv --force", ()),
    "fit, invalid option": (f"fit {FILES} pairs.csv --noise white", ()),
    "predict": (f"predict --model model.closefar {FILES} new_pairs.csv --out predicted.csv", ("predicted.csv",)),
    "predict levels": (f"predict --model levels.closefar {FILES} new_pairs.csv --out rated.csv", ("rated.csv",)),
    "transform": ("transform --model model.closefar --points points.csv --out coordinates.csv", ("coordinates.csv",)),
    "evaluate": (f"evaluate --model model.closefar {FILES} new_pairs.csv", ()),
    "evaluate triplets": (
        "evaluate --model triplets.closefar --points points.csv --comparisons triplets.csv --json",
        (),
    ),
    "label-errors": (f"label-errors {FILES} pairs.csv --out suspicious.csv", ("suspicious.csv",)),
    "sample-size": (f"sample-size {FILES} pairs.csv --target-error 0.01", ()),
    "inspect": ("inspect model.closefar", ()),
    "inspect annotators": ("inspect annotators.closefar --json", ()),
    "truncate": ("truncate model.closefar --rank 2 --out small.closefar", ()),
    "export": ("export small.closefar --out small.json", ("small.json",)),
    "export matrix": ("export model.closefar --out matrix.csv", ("matrix.csv",)),
    "classes": ("classes --points species.csv --label species --out c.closefar --suspicious s.csv", ("s.csv",)),
    "report": (f"report --model model.closefar {FILES} new_pairs.csv --out report.md", ("report.md",)),
    "report levels": (f"report --model levels.closefar {FILES} ratings.csv --out levels.txt", ("levels.txt",)),
}


def run_fit(name: str) -> dict[str, Any]:
    """Fit, and return what a user sees of the result."""
    learner, data = FITS[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learner.fit(**data)
    more: dict[str, Any] = {"warnings": sorted({warning.category.__name__ for warning in caught})}
    points = data["X"][:4]
    if isinstance(learner, cf.ClassMetricLearner):
        more["wrong_share"] = [learner.wrong_share_, *learner.wrong_share_interval_]
        more["classes"] = learner.class_probabilities_[:4].tolist()
        more["coordinates"] = np.square(learner.transform(points)).sum(axis=1).tolist()
        learner, points = learner.pair_learner_, points[:2] - points[2:]
    if "annotators" in data and data["annotators"] is not None:
        more["annotators"] = str(learner.annotators_)
    if getattr(learner, "comparison_noise", None) or "comparisons" in data:
        more["comparison_noise"] = str(learner.comparison_noise_)
    certificate, metric = learner.certificate_, learner.metric_
    return {
        "objective": certificate.objective,
        "loss": certificate.loss,
        "outcome": str(certificate.outcome),
        "proven": bool(certificate.globally_optimal),
        "n_passes": certificate.n_passes,
        "thresholds": np.ravel(getattr(learner, "thresholds_", ())).tolist(),
        "trace": float(np.trace(metric.matrix)),
        "diagonal": np.diag(metric.matrix)[:4].tolist(),
        "origin": np.ravel(metric.origin if getattr(learner, "fit_origin", False) else ()).tolist(),
        "rank": metric.rank,
        "probabilities": learner.predict_proba(points).tolist(),
        "distances": np.ravel(learner.decision_function(points)).tolist(),
        "alpha": learner.alpha_,
        "prior": str(learner.prior_),
        "rank_chosen": learner.rank_,
        "flip_rate": np.ravel(learner.flip_rate_).tolist(),
        "noise": metric.noise.name,
        "choice": str(getattr(learner, "choice_", "")),
        **more,
    }


def run_report(name: str) -> Any:
    """The dict behind the report on one of the fits."""
    learner, data = FITS[name]
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        learner.fit(**data).report(Path(folder) / "report.json")
        return json.loads((Path(folder) / "report.json").read_text())


def run_command(name: str, folder: Path) -> dict[str, Any]:
    arguments, written = COMMANDS[name]
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-m", "closefar", *arguments.split()]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    files = {file: read_written(folder / file) for file in written}
    return {"exit": done.returncode, "stdout": read_text(done.stdout), "stderr": read_text(done.stderr), "files": files}


def read_text(text: str) -> Any:
    """The lines, or what they say in JSON."""
    return json.loads(text) if text.startswith("{") else text.splitlines()


def read_written(path: Path) -> Any:
    if path.suffix != ".csv":
        return read_text(path.read_text())
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    return {
        column: [float(value) for value in values] if NUMBER.fullmatch(values[0]) else list(values[:KEPT])
        for column, values in zip(header, zip(*rows, strict=True), strict=True)
    }


def prepare(folder: Path) -> None:
    """Write the files that the commands read."""
    subprocess.run([sys.executable, "-m", "closefar", "demo", "--files"], cwd=folder, check=True, capture_output=True)
    data = classes(120, 3)
    lines = (
        ",".join([*(f"{value:.6f}" for value in point), "abc"[k]]) for point, k in zip(*data.values(), strict=True)
    )
    (folder / "species.csv").write_text("\n".join(["x,y,z,species", *lines]) + "\n")


def brief(value: Any) -> Any:
    """Return what is recorded of an answer: nine digits, the beginning of long lists, no unstable numbers."""
    if isinstance(value, dict):
        return {key: brief(item) for key, item in value.items() if key not in LEFT_OUT}
    if isinstance(value, list):
        if len(value) > 2 * KEPT and not isinstance(value[0], str):
            numbers = [item for item in value if isinstance(item, int | float)]
            return {"length": len(value), "sum": brief(float(sum(numbers))), "first": brief(value[:KEPT])}
        return [brief(item) for item in value]
    if isinstance(value, str):
        lines = [UNSTABLE_TEXT.sub(r"\1~", line).rstrip() for line in value.splitlines()]
        return lines if len(lines) > 1 else "".join(lines)
    return float(f"{value:.9g}") if isinstance(value, float) else value


def compare(before: Any, now: Any, tolerance: float, where: str = "") -> Iterator[str]:
    """What differs, in words, one item for each place."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in before | now:
            if key not in now or key not in before:
                yield f"{where}/{key} {'is new' if key in now else 'is missing'}"
            elif key in PASSES:
                if abs(now[key] - before[key]) > max(1.0, 0.1 * before[key]):
                    yield f"{where}/{key}: was {before[key]}, is {now[key]}"
            else:
                allowed = OBJECTIVE if key == "objective" else tolerance
                yield from compare(before[key], now[key], allowed, f"{where}/{key}")
    elif isinstance(before, list) and isinstance(now, list):
        if len(before) != len(now):
            yield f"{where}: had {len(before)} items, has {len(now)}"
        for k, (old, new) in enumerate(zip(before, now, strict=False)):
            yield from compare(old, new, tolerance, f"{where}[{k}]")
    elif not same(before, now, tolerance):
        old, new = str(before), str(now)
        alike = next((k for k, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        start = max(alike - SHOWN // 2, 0)
        yield f"{where}: was {old[start : start + SHOWN]!r}, is {new[start : start + SHOWN]!r}"


def same(before: Any, now: Any, tolerance: float) -> bool:
    if isinstance(before, str) and isinstance(now, str):
        words = [" ".join(NUMBER.sub("#", text).split()) for text in (before, now)]
        printed = zip(NUMBER.findall(before), NUMBER.findall(now), strict=False)
        return words[0] == words[1] and all(same_printed(old, new, tolerance) for old, new in printed)
    if float in (type(before), type(now)) and {type(before), type(now)} <= {float, int}:
        return before == now or (before != before and now != now) or close(before, now, tolerance)
    return type(before) is type(now) and bool(before == now)


def close(before: float, now: float, tolerance: float) -> bool:
    """Whether two numbers agree; where both are tiny, such as what rounding leaves of a zero, they do."""
    return abs(before - now) <= tolerance * max(abs(before), abs(now), 0.01)


def same_printed(before: str, now: str, tolerance: float) -> bool:
    """Whether two printed numbers agree to one unit of their last digit."""
    if before.lstrip("+-0123456789,") == now.lstrip("+-0123456789,") == "":
        return before == now
    decimals = len(before.partition("e")[0].partition(".")[2])
    exponent = int(before.partition("e")[2] or 0)
    old, new = (float(text.replace(",", "")) for text in (before, now))
    return abs(old - new) <= 1.01 * 10.0 ** (exponent - decimals) or close(old, new, tolerance)


def tolerance_of(name: str) -> float:
    kind, _, case = name.partition("/")
    if kind == "commands":
        return DEFAULT
    settings = FITS[case][0].get_params()
    chosen = "auto" in (settings.get("alpha", "auto"), settings.get("rank"), settings.get("flip_rate"))
    return DEFAULT if chosen or settings["tol"] > TOL else EXACT


def answers(names: list[str]) -> Iterator[tuple[str, Any]]:
    """Each answer with its name.  Commands read what those before them wrote, so all run if one is asked for."""
    with tempfile.TemporaryDirectory() as folder:
        if any(name.startswith("commands/") for name in names):
            prepare(Path(folder))
        for name in everything():
            kind, _, case = name.partition("/")
            if kind == "commands" and any(other.startswith("commands/") for other in names):
                answer = run_command(case, Path(folder))
            if name in names:
                yield name, answer if kind == "commands" else run_fit(case) if kind == "fits" else run_report(case)


def everything() -> list[str]:
    kinds: dict[str, Any] = {"fits": FITS, "reports": REPORTS, "commands": COMMANDS}
    return [f"{kind}/{case}" for kind, cases in kinds.items() for case in cases]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the answers on record anew")
    parser.add_argument("--only", nargs="+", default=[""], metavar="PART", help="answers whose names contain a part")
    parser.add_argument("--threads", type=int, default=1, help="threads of the products; answers do not depend on them")
    options = parser.parse_args()
    os.environ |= {"OPENBLAS_NUM_THREADS": str(options.threads), "OMP_NUM_THREADS": str(options.threads)}
    records = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}
    names = [name for name in everything() if any(part in name for part in options.only)]
    wrong = 0
    with threadpool_limits(options.threads):
        start = time.perf_counter()
        for name, answer in answers(names):
            now, seconds = brief(answer), time.perf_counter() - start
            found = [] if options.record else list(compare(records.get(name), now, tolerance_of(name)))
            print(f"{name:<50} {seconds:6.1f} s  {'differs' if found else ''}".rstrip(), flush=True)
            for difference in found[:MOST_SHOWN]:
                print(f"    {difference}")
            if len(found) > MOST_SHOWN:
                print(f"    and {len(found) - MOST_SHOWN} more differences")
            wrong += bool(found)
            if options.record:
                records[name] = now
            start = time.perf_counter()
    if options.record:
        lines = (f"{json.dumps(name)}: {json.dumps(records[name])}" for name in everything() if name in records)
        RECORDS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{wrong} of {len(names)} answers differ." if wrong else f"{len(names)} answers.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
