"""Compare closefar with everything a user could pick instead, on the same data, in one run.

    python benchmarks/peers [--work pairs,classes] [--peers ITML,closefar] [--seeds 5] [--jobs 2] [--quick] ...

Records of all trials are saved in benchmarks/results.json as they come; a second call goes on where the first stopped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # adapters and works know this package as `peers`

from peers.environments import Interpreters  # noqa: E402
from peers.peers import PEERS, peers_of  # noqa: E402
from peers.results import Results  # noqa: E402
from peers.runner import Plan, Runner  # noqa: E402
from peers.trial import Limits  # noqa: E402
from peers.works import WORKS, load_work  # noqa: E402


def parser() -> argparse.ArgumentParser:
    """Describe the options."""
    made = argparse.ArgumentParser(prog="benchmarks/peers", description=__doc__.split("\n")[0])
    made.add_argument("--work", default=",".join(WORKS), help="kinds of work, separated by commas (default: all)")
    made.add_argument("--peers", default="", help="names of peers, separated by commas (default: all)")
    made.add_argument("--seeds", type=int, default=5, help="number of seeds (default: 5)")
    made.add_argument("--first-seed", type=int, default=0, help="the first of them (default: 0)")
    made.add_argument("--time-limit", type=float, default=300.0, help="seconds for each trial (default: 300)")
    made.add_argument("--memory-limit", type=float, default=8.0, help="GiB for each trial (default: 8)")
    made.add_argument("--jobs", type=int, default=1, help="trials at a time (default: 1)")
    made.add_argument("--quick", action="store_true", help="only small settings")
    made.add_argument("--here", action="store_true", help="install nothing: run all peers in this interpreter")
    made.add_argument("--fresh", action="store_true", help="forget the records of earlier runs")
    made.add_argument("--combustion", default=None, help="file with the combustion data")
    made.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1], help="folder of results.json")
    return made


def plans(options: argparse.Namespace) -> list[Plan]:
    """List the trials: all of a seed before those of the next, so that an early stop leaves whole tables."""
    chosen = set(filter(None, options.peers.split(",")))
    found = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for name in filter(None, options.work.split(",")):
            work = load_work(name)
            for setting in work.SETTINGS:
                if setting.quick or not options.quick:
                    peers = [peer for peer in peers_of(name) if not chosen or peer.name in chosen]
                    found += [Plan(work, setting, seed, peer) for peer in peers]
    return found


def check(options: argparse.Namespace) -> None:
    """Refuse options that can't be meant."""
    known = {"--work": set(WORKS), "--peers": {peer.name for peer in PEERS}}
    for option, given in (("--work", options.work), ("--peers", options.peers)):
        for name in filter(None, given.split(",")):
            if name not in known[option]:
                raise SystemExit(f"{option} must name some of {', '.join(sorted(known[option]))}; got {name!r}.")


def main() -> None:
    options = parser().parse_args()
    check(options)
    results = Results(options.out / "results.json", options.fresh)
    runner = Runner(
        results,
        Interpreters(options.here),
        Limits(options.time_limit, options.memory_limit),
        {"combustion": options.combustion},
        options.jobs,
    )
    runner.run(plans(options))


if __name__ == "__main__":
    main()
