"""The options that say which files to read, and which of their columns mean what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from closefar.cli.options import FILES_PANEL, NaValues, names_in

if TYPE_CHECKING:
    from closefar.tables import Source

__all__ = ["Files", "WeightedFiles"]


@dataclass(frozen=True)
class Files:
    """The files with the data, and the roles of their columns."""

    points: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Table with one row per point; - is standard input. Without --pairs: single points with a label.",
            rich_help_panel=FILES_PANEL,
        ),
    ] = None
    pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Table with one row per pair: two ids and a label; - is standard input. "
            "Without --points: the columns of both points.",
            rich_help_panel=FILES_PANEL,
        ),
    ] = None
    comparisons: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Table with one row per comparison, of ids of --points. Three ids: the first point is nearer to the "
            "second than to the third. Four: the first two are nearer to each other than the last two.",
            rich_help_panel=FILES_PANEL,
        ),
    ] = None
    judgements: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of `closefar label`, instead of --pairs or --comparisons. Or, where --pairs has no labels, a "
            "table with one row per judgement: a column that --pairs has as well, such as 'task', a label, and perhaps "
            "a 'worker'.",
            rich_help_panel=FILES_PANEL,
        ),
    ] = None
    id: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of point ids. Default: 'id', else the first column.",
            rich_help_panel=FILES_PANEL,
        ),
    ] = None
    left: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with the id of a pair's first point. Default: the first column.",
            rich_help_panel=FILES_PANEL,
        ),
    ] = None
    right: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with the id of a pair's second point. Default: the second column.",
            rich_help_panel=FILES_PANEL,
        ),
    ] = None
    sides: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Prefixes or suffixes of the two points' columns, such as left_,right_ or _1,_2.",
            rich_help_panel=FILES_PANEL,
        ),
    ] = None
    label: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of close/far labels, or of levels. Default: 'label', else the only other column.",
            rich_help_panel=FILES_PANEL,
        ),
    ] = None
    compared: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="The three or four id columns of --comparisons. Default: all columns but the answer.",
            rich_help_panel=FILES_PANEL,
        ),
    ] = None
    answer: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of --comparisons that turns rows round: 1 as given, -1 the other way; or left and right, "
            "or the nearer id. Default: 'answer', if there is one.",
            rich_help_panel=FILES_PANEL,
        ),
    ] = None
    annotator: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of --pairs that says who judged. Default: 'annotator' or 'worker', if there is one.",
            rich_help_panel=FILES_PANEL,
        ),
    ] = None
    no_annotators: Annotated[
        bool,
        typer.Option("--no-annotators", help="Treat all judgements as one person's.", rich_help_panel=FILES_PANEL),
    ] = False
    group: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of groups that cross-validation keeps together, such as patients. "
            "Default: pairs that share a point.",
            rich_help_panel=FILES_PANEL,
        ),
    ] = None

    na_values: NaValues = None

    def __post_init__(self) -> None:
        """Take judgements that `closefar label` recorded for pairs or comparisons, which they are."""
        if self.judgements is None or self.pairs is not None:
            return
        from closefar.tables import is_recorded

        if is_recorded(self.judgements):
            task = self._recorded_task(self.judgements)
            is_compared = task is not None and task["kind"] == "triplets"
            if not (is_compared and self.comparisons is not None):
                object.__setattr__(self, "comparisons" if is_compared else "pairs", self.judgements)
                object.__setattr__(self, "judgements", None)

    @staticmethod
    def _recorded_task(path: Path) -> dict[str, Any] | None:
        from closefar.tables import recorded_task

        return recorded_task(path)

    @property
    def recorded_answers(self) -> tuple[str, ...] | None:
        """The answers that could be given to recorded pairs, from closest to farthest."""
        task = None if self.pairs is None else self._recorded_task(self.pairs)
        return None if task is None else tuple(task["answers"])

    @property
    def paths(self) -> list[Path | None]:
        return [self.points, self.pairs, self.comparisons, self.judgements]

    @property
    def are_single(self) -> bool:
        """Whether the data are single points."""
        return self.points is not None and self.pairs is None and self.comparisons is None

    @property
    def are_comparisons(self) -> bool:
        """Whether the data are comparisons alone."""
        return self.comparisons is not None and self.pairs is None

    @property
    def weight_column(self) -> str | None:
        return None

    def source(self) -> Source:
        from closefar.tables import Source

        self._check()
        sides = None if self.sides is None else tuple(part.strip() for part in self.sides.split(","))
        if sides is not None and (len(sides) != 2 or not all(sides)):
            raise ValueError(f"--sides must be two prefixes or suffixes, such as left_,right_; got {self.sides!r}.")
        compared = None if self.compared is None else names_in(self.compared)
        if compared is not None and (len(compared) not in (3, 4) or len(set(compared)) < len(compared)):
            raise ValueError(f"--compared must name three or four different columns; got {self.compared!r}.")
        return Source(
            points=self.points,
            pairs=self.pairs,
            comparisons=self.comparisons,
            judgements=self.judgements,
            id=self.id,
            left=self.left,
            right=self.right,
            label=self.label,
            weight=self.weight_column,
            group=self.group,
            annotator=False if self.no_annotators else self.annotator,
            compared=compared,
            answer=self.answer,
            sides=sides,
            na_values=tuple(word for words in self.na_values or () for word in names_in(words)),
        )

    def _check(self) -> None:
        """Refuse files and columns that contradict each other."""
        self._check_recorded()
        if self.points is None and self.pairs is None and self.comparisons is None:
            raise ValueError("no data given. Use --points and --pairs, or one of them.")
        if self.comparisons is not None and self.points is None:
            raise ValueError("--comparisons has ids of points. Add --points, the table that they are in.")
        streams = [name for name in ("points", "pairs", "comparisons", "judgements") if str(getattr(self, name)) == "-"]
        if len(streams) > 1:
            named = " and ".join(f"--{name}" for name in streams)
            raise ValueError(f"{named} can't both be standard input. Give a file for one of them.")
        if (self.left is None) != (self.right is None):
            raise ValueError("--left and --right must be given together. Add the other one.")
        for_pairs, for_comparisons = (
            ("judgements", "label", "left", "right", "sides", "annotator"),
            ("compared", "answer"),
        )
        self._check_use(
            for_pairs if self.are_comparisons else (),
            "--pairs",
            "Columns of --comparisons are named with --compared and --answer.",
        )
        self._check_use(
            for_comparisons if self.comparisons is None else (), "--comparisons", "Add that, or leave it out."
        )
        if self.annotator is not None and self.no_annotators:
            raise ValueError("--annotator and --no-annotators contradict each other. Leave one of them out.")

    def _check_recorded(self) -> None:
        from closefar.tables import is_recorded

        if self.points is not None and is_recorded(self.points):
            raise ValueError(
                f"--points must be a table of points; {self.points} has judgements of `closefar label`. Give it as "
                "--judgements, and the table that was judged as --points."
            )
        if self.judgements is not None and is_recorded(self.judgements):
            raise ValueError(
                f"{self.judgements} is a file of `closefar label`, which names what was judged itself. Leave "
                f"{'--pairs' if self.pairs is not None else '--comparisons'} out, or fit to tables that `closefar "
                "export-judgements` writes."
            )

    def _check_use(self, names: tuple[str, ...], file: str, advice: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise ValueError(f"--{name} is about {file}, which is not given. {advice}")


@dataclass(frozen=True)
class WeightedFiles(Files):
    """Files in which pairs may have weights."""

    weight: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of weights; a weight of 2 counts as the same judgement given twice.",
            rich_help_panel=FILES_PANEL,
        ),
    ] = None

    @property
    def weight_column(self) -> str | None:
        return self.weight
