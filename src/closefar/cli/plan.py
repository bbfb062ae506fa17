"""``closefar plan``: what a fit will cost, before there are data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from closefar.cli.session import Output, Session
from closefar.errors import command_words

__all__ = ["plan"]

_DATA = "Data"
_MACHINE = "Machine"


class NumberType(StrEnum):
    float64 = "float64"
    float32 = "float32"


@dataclass(frozen=True)
class PlannedData:
    """The size of the data."""

    features: Annotated[str, typer.Option(metavar="N", help="Number of columns.", rich_help_panel=_DATA)]
    pairs: Annotated[
        str | None, typer.Option(metavar="N", help="Number of pairs: 1e10, 10_000_000 or 10M.", rich_help_panel=_DATA)
    ] = None
    comparisons: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Number of comparisons (triplets or quadruplets), in addition to the pairs or without any.",
            rich_help_panel=_DATA,
        ),
    ] = None
    rank: Annotated[str | None, typer.Option(metavar="K", help="Largest rank of M.", rich_help_panel=_DATA)] = None
    points: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Number of points, if pairs refer to points by id or index. Default: each pair has its own columns.",
            rich_help_panel=_DATA,
        ),
    ] = None
    dtype: Annotated[NumberType, typer.Option(help="Type of the numbers in the data.", rich_help_panel=_DATA)] = (
        NumberType.float64
    )
    differences: Annotated[
        bool,
        typer.Option(
            "--differences", help="The data are differences of points, not pairs of points.", rich_help_panel=_DATA
        ),
    ] = False


@dataclass(frozen=True)
class PlannedMachine:
    """Where the fit will run."""

    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Number of Dask workers, with one core each. A round trip is measured with a worker on this machine.",
            rich_help_panel=_MACHINE,
        ),
    ] = None
    partitions: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Number of partitions on the workers. Default: 8 per worker, or more to keep each below 128 MiB.",
            rich_help_panel=_MACHINE,
        ),
    ] = None
    gpu: Annotated[
        bool,
        typer.Option(
            "--gpu",
            help="Use a graphics card, one per worker: the one in this machine or, if there is none, the documented "
            "figures of an NVIDIA H200.",
            rich_help_panel=_MACHINE,
        ),
    ] = False
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory of the machine, or of each worker, such as 64GB. Default: that of this machine.",
            rich_help_panel=_MACHINE,
        ),
    ] = None


def plan(data: PlannedData, machine: PlannedMachine, output: Output) -> None:
    """Predict the time, memory, network traffic and bottleneck of a fit, from rates measured on this machine.

    closefar plan --pairs 1e10 --features 100 --workers 64
    """
    with Session("plan", output) as session:
        session.check_standard_output()
        if machine.partitions is not None and machine.workers is None:
            raise ValueError(f"--partitions needs --workers; got --partitions {machine.partitions} without it.")
        from closefar.cost import plan_run
        from closefar.plain import plain

        with session.stage("measuring this machine"):
            found = plan_run(
                data.pairs,
                data.features,
                n_comparisons=data.comparisons,
                rank=data.rank,
                n_points=data.points,
                n_workers=machine.workers,
                n_partitions=machine.partitions,
                gpu=machine.gpu,
                memory=machine.memory,
                dtype=data.dtype.value,
                differences=data.differences,
            )
        text, advice = command_words(str(found)), [command_words(each) for each in found.advice]
        session.show(text, {**plain(found), "advice": advice, "bottleneck": found.bottleneck, "summary": text})
