"""``closefar paper``: every table and figure of the paper, regenerated."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

__all__ = ["paper"]

_WRONG_INPUT, _NO_PACKAGE, _INTERRUPTED = 2, 4, 130


def paper(
    more: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Further names for --only.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Run only these experiments; an unknown name lists them all."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick/--full", help="Small samples in minutes, or the sample sizes and trials of the paper."),
    ] = True,
    data: Annotated[
        Path | None, typer.Option(help="Folder with data that is not included: combustion/ and airline/.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write paper.html, results.json and figures/ to.")] = Path(
        "paper"
    ),
    resume: Annotated[bool, typer.Option("--resume", help="Continue an earlier run in --out.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 0,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Number of processes; by default, the number of cores.")
    ] = None,
) -> None:
    """Reproduce every table and figure of the paper, and compare its numbers with ours."""
    names = [*(only or []), *(more or [])]
    if more and not only:
        raise typer.BadParameter(f"names of experiments need --only; got {more[0]!r} without it.")
    from closefar.experiments import Terminal, run_paper

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with Terminal() as watch:
            run_paper(names, quick=quick, seed=seed, data=data, out=out, resume=resume, n_jobs=jobs, watch=watch)
    except KeyboardInterrupt:
        print(
            f"Interrupted. Finished trials are in {out}; run the same command with --resume to continue.",
            file=sys.stderr,
        )
        raise typer.Exit(_INTERRUPTED) from None
    except (ImportError, ValueError, OSError) as error:
        print(f"closefar paper: {error}", file=sys.stderr)
        raise typer.Exit(_NO_PACKAGE if isinstance(error, ImportError) else _WRONG_INPUT) from None
    print(f"Wrote {out / 'paper.html'}.")
    if watch.any_failed:
        raise typer.Exit(1)


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt
