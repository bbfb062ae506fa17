"""``closefar paper``: every table and figure of the paper, regenerated."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

__all__ = ["paper"]

_INTERRUPTED = 130


def paper(
    more: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="More names for --only.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run these experiments only; a wrong name lists them.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick/--full", help="Minutes, or the paper's sizes and trials.")] = True,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data that can't be shipped: combustion/ and airline/.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write paper.html, results.json and figures/ to.")] = Path(
        "paper"
    ),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what an earlier run kept in --out.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Every random number follows from it.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; as many as there are cores by default.")] = None,
) -> None:
    """Regenerate every table and figure of the paper, its numbers beside ours."""
    names = [*(only or []), *(more or [])]
    if more and not only:
        raise typer.BadParameter(f"names of experiments follow --only; got {more[0]!r} without it.")
    from closefar.experiments import Terminal, run_paper

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with Terminal() as watch:
            run_paper(names, quick=quick, seed=seed, data=data, out=out, resume=resume, n_jobs=jobs, watch=watch)
    except KeyboardInterrupt:
        print(f"Interrupted. What is finished is in {out}; the same command with --resume goes on.", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    except (ImportError, ValueError, OSError) as error:
        print(f"closefar paper: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    print(f"Wrote {out / 'paper.html'}.")
    if watch.any_failed:
        raise typer.Exit(1)


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt
