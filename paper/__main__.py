"""Run the paper's experiments: ``python paper [NAME ...] [--full] [--data FOLDER] [--jobs N]``."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

if __name__ == "__main__" and __package__ in (None, ""):  # run as a folder, whose modules know it as a package
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import joblib

import closefar as cf
from paper import (
    accuracy,
    combustion,
    dml_eig,
    gradient_descent,
    noise_level,
    noises,
    sample_size,
    single_points,
    units,
)
from paper.page import write_page
from paper.record import write_record
from paper.trials import MissingDataError, Run

# In the order of the page: the title, and the function that returns the section.
EXPERIMENTS: dict[str, tuple[str, Any]] = {
    "noises": ("Noise models: densities and constants", noises.noises),
    "accuracy": ("Accuracy of four models under five kinds of noise", accuracy.accuracy),
    "precision": ("Precision: relative error and eigenvalues of M / τ", accuracy.precision),
    "iterations": ("Accuracy and loss against iterations", gradient_descent.iterations),
    "sample_size": ("Accuracy against sample size", sample_size.sample_size),
    "noise_level": ("How much noise the model tolerates", noise_level.noise_level),
    "high_noise": ("Sample size at 45% wrong labels", sample_size.high_noise),
    "dml_eig_comparison": ("Comparison with DML-eig", dml_eig.comparison_with_ours),
    "combustion": ("Combustion: a low-rank metric for hydrogen/air flames", combustion.combustion),
    "airline": ("Airline passenger satisfaction", single_points.airline),
    "breast_cancer": ("Breast cancer", single_points.breast_cancer),
    "larger_dimension": ("Larger dimension: d = 100", sample_size.larger_dimension),
    "unbalanced": ("Unbalanced labels", noise_level.unbalanced),
    "units": ("Invariance to units", units.units),
}


def run_paper(names: list[str], run: Run, out: Path) -> dict[str, Any]:
    """Run experiments, and write ``paper.html``, ``results.json`` and ``figures/`` in `out`."""
    results: dict[str, Any] = {
        "version": cf.__version__,
        "full": run.full,
        "seed": run.seed,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "experiments": [],
    }
    for name in EXPERIMENTS:
        if names and name not in names:
            continue
        title, experiment = EXPERIMENTS[name]
        entry: dict[str, Any] = {"name": name, "title": title, "status": "done", "reason": None, "section": None}
        try:
            entry["section"] = experiment(run)
        except MissingDataError as missing:
            entry |= {"status": "not run", "reason": str(missing)}
        except Exception as error:  # one experiment must not take the others with it
            traceback.print_exc()
            entry |= {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
        results["experiments"].append(entry)
        reason = f": {entry['reason']}" if entry["reason"] else ""
        print(f"{entry['status']:8} {title}{reason}", flush=True)
    write_page(results, out)
    return results


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(
        prog="python paper",
        description="Reproduce every table and figure of the paper, with its numbers beside ours. Each finished trial "
        "is kept in OUT/trials, and the same command continues an interrupted run.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"run only these: {', '.join(EXPERIMENTS)}")
    parser.add_argument("--full", action="store_true", help="the paper's trials and sample sizes; otherwise, minutes")
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("CLOSEFAR_DATA"),
        metavar="FOLDER",
        help="folder with the data that can't be distributed, combustion/ and airline/; default: $CLOSEFAR_DATA",
    )
    parser.add_argument("--out", type=Path, default=here / "out", metavar="FOLDER", help="default: paper/out")
    parser.add_argument("--jobs", type=int, default=joblib.cpu_count(), metavar="N", help="processes; default: cores")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="random seed")
    parser.add_argument(
        "--record", action="store_true", help="write paper/results.json and the tables of README.md and docs/paper.md"
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"each NAME must be an experiment; got {unknown[0]!r}. Choose from {', '.join(EXPERIMENTS)}.")
    if options.data is not None and not options.data.is_dir():
        parser.error(f"--data must be a folder; got {str(options.data)!r}, which is none.")
    if options.jobs < 1 or options.seed < 0:
        parser.error(f"--jobs must be >= 1 and --seed >= 0; got {options.jobs} and {options.seed}.")
    if options.record and (not options.full or options.seed):
        parser.error("--record must be given with --full and without --seed: only such runs are quoted.")
    data = None if options.data is None else options.data.resolve()
    run = Run(options.full, options.seed, data, options.out / "trials", options.jobs)
    try:
        results = run_paper(options.names, run, options.out)
    except KeyboardInterrupt:
        print("interrupted: the same command continues after the trials that are finished.", file=sys.stderr)
        return 130
    if options.record:
        write_record(results, here.parent)
    print(f"Wrote {options.out / 'paper.html'}.")
    return int(any(entry["status"] == "failed" for entry in results["experiments"]))


if __name__ == "__main__":
    sys.exit(main())
