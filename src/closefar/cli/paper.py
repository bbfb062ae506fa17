"""``closefar paper``: every table and figure of the paper, regenerated."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from closefar.cli.session import CODE_INTERRUPTED, in_words, tell
from closefar.errors import printable

__all__ = ["paper"]


def paper(
    more: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Further names for --only.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Run only these experiments; an unknown name lists them all."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick/--full", help="Run for minutes, or with the sizes and trials of the paper.")
    ] = True,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder with the data sets that can't be shipped: combustion/, airline/."),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for paper.html, results.json and figures/.")
    ] = Path("paper"),
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run in --out.")] = False,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Random seed.")] = 0,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of processes. Default: one per core.")
    ] = None,
) -> None:
    """Reproduce every table and figure of the paper, with its numbers beside ours."""
    names = [*(only or []), *(more or [])]
    if more and not only:
        raise typer.BadParameter(f"names of experiments need --only; got {more[0]!r} without it.")
    if data is not None and not data.is_dir():
        raise typer.BadParameter(f"--data must be a folder; got {str(data)!r}, which is none.")
    from closefar.experiments import Terminal, run_paper

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        with Terminal() as watch:
            run_paper(names, quick=quick, seed=seed, data=data, out=out, resume=resume, n_jobs=jobs, watch=watch)
    except KeyboardInterrupt:
        tell(f"closefar paper: interrupted. Finished trials are in {out}; continue with --resume.")
        raise typer.Exit(CODE_INTERRUPTED) from None
    except (ImportError, ValueError, OSError) as error:
        sentence, code = in_words(error)
        tell(printable(f"closefar paper: {sentence}"))
        raise typer.Exit(code) from None
    print(f"Wrote {out / 'paper.html'}.")
    if watch.any_failed:
        raise typer.Exit(1)


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt
