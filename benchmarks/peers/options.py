"""The command line of the benchmark."""

from __future__ import annotations

import argparse
import math
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from peers.environments import Interpreters
from peers.peers import PEERS, peers_of
from peers.problems import Plan
from peers.report import said, with_other_machines, write_docs, write_report
from peers.results import Results
from peers.runner import Runner
from peers.trial import Limits
from peers.works import WORKS, load_work

__all__ = ["main"]

BENCHMARKS = Path(__file__).resolve().parents[1]
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message.rstrip('.')}.\n")


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = Parser(
        prog="benchmarks/peers",
        description="Compare closefar with everything a user could pick instead, on the same data, in one run.",
        epilog="A second call goes on where the first stopped.",
    )
    parser.add_argument("--work", default=",".join(WORKS), help="kinds of work, separated by commas (default: all)")
    parser.add_argument("--peers", default="", help="names of peers, separated by commas (default: all)")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default: 5)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them (default: 0)")
    parser.add_argument("--time-limit", type=float, default=300.0, help="seconds for each trial (default: 300)")
    parser.add_argument("--memory-limit", type=float, default=8.0, help="GiB for each trial (default: 8)")
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time (default: 1)")
    parser.add_argument("--quick", action="store_true", help="only small settings")
    parser.add_argument("--here", action="store_true", help="install nothing: run all peers in this interpreter")
    parser.add_argument("--fresh", action="store_true", help="forget the records of earlier runs")
    parser.add_argument("--docs", action="store_true", help="also write the tables and plots of the documentation")
    parser.add_argument("--report", action="store_true", help="run nothing: only write tables and plots")
    parser.add_argument("--combustion", type=Path, help="folder with the combustion data")
    parser.add_argument("--out", type=Path, default=BENCHMARKS, help="folder of results.json (default: benchmarks)")
    options = parser.parse_args(arguments)
    options.work = _names(parser, "--work", options.work, list(WORKS))
    options.peers = _names(parser, "--peers", options.peers, [peer.name for peer in PEERS])
    for name, least in (("seeds", 1), ("jobs", 1), ("first_seed", 0)):
        if getattr(options, name) < least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}; got {getattr(options, name)}")
    for name in ("time_limit", "memory_limit"):
        if not 0 < getattr(options, name) < math.inf:
            parser.error(f"--{name.replace('_', '-')} must be above 0 and finite; got {getattr(options, name):g}")
    if options.combustion is not None and not options.combustion.is_dir():
        parser.error(f"--combustion must be a folder; there is none at {options.combustion}")
    if not options.out.is_dir():
        parser.error(f"--out must be a folder; there is none at {options.out}")
    return options


def _names(parser: Parser, option: str, given: str, known: list[str]) -> list[str]:
    """Split at commas, except at those within a known name."""
    parts, names = [part.strip() for part in given.split(",") if part.strip()], []
    while parts:
        joined = [", ".join(parts[:length]) for length in range(len(parts), 0, -1)]
        name = next((each for each in joined if each in known), None)
        if name is None:
            parser.error(f"{option} must be among {'; '.join(dict.fromkeys(known))}; got {parts[0]!r}")
        names.append(name)
        parts = parts[name.count(", ") + 1 :]
    return names


def plans_of(options: argparse.Namespace) -> list[Plan]:
    """List the trials: all seeds of a peer in a row, because its worker imports but once."""
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    found = []
    for name in options.work:
        work = load_work(name)
        peers = [peer for peer in peers_of(name) if not options.peers or peer.name in options.peers]
        for setting in work.SETTINGS:
            if setting.quick or not options.quick:
                found += [Plan(work, setting, seed, peer) for peer in peers for seed in seeds]
    return found


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; returns the exit code."""
    options = read_options(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    path = options.out / "results.json"
    try:
        if not options.report:
            _run(options, Results(path, options.fresh))
        records, _ = with_other_machines(path)
        write_report(path)
        if options.docs:
            write_docs(path)
    except KeyboardInterrupt:
        print("Interrupted: all records are saved, and the same command goes on from there.")
        return INTERRUPTED
    except (OSError, ValueError) as error:
        print(f"benchmarks/peers: {error}", file=sys.stderr)
        return 2
    print(said(records))
    return 0


def _run(options: argparse.Namespace, results: Results) -> None:
    limits = Limits(options.time_limit, options.memory_limit)
    runner = Runner(results, Interpreters(options.here), limits, {"combustion": options.combustion}, options.jobs)
    runner.run(plans_of(options))
