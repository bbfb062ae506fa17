"""The options that commands share, in groups."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from closefar.learners import Model
    from closefar.tables import Encoding, Source

__all__ = [
    "Columns",
    "Files",
    "ModelFile",
    "NaValues",
    "NewData",
    "OutFile",
    "ReportTitle",
    "WeightedFiles",
    "names_in",
]

_FILES = "Data: --points and --pairs, or one of them; --comparisons beside or instead of --pairs"
_COLUMNS = "Columns"


class Missing(StrEnum):
    refuse = "refuse"
    drop = "drop"
    median = "median"


class Unseen(StrEnum):
    refuse = "refuse"
    average = "average"


ModelFile = Annotated[Path, typer.Option("--model", "-m", metavar="FILE", help="A model written by `closefar fit`.")]
NaValues = Annotated[
    list[str] | None,
    typer.Option(
        metavar="A,B,...",
        help="Further words for a missing value, such as ?,-999. May be repeated.",
        rich_help_panel=_FILES,
    ),
]
OutFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="The table to write: .csv, .csv.gz, .tsv, .parquet or .npz. By default, CSV on standard output.",
    ),
]

ReportTitle = Annotated[
    str | None,
    typer.Option("--title", metavar="TEXT", help="The headline of the report; the data files by default."),
]


@dataclass(frozen=True)
class Files:
    """The files with the data, and the roles of their columns."""

    points: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Table with one row per point; - is standard input. Without --pairs: single points with a label.",
            rich_help_panel=_FILES,
        ),
    ] = None
    pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Table with one row per pair: two ids and a label; - is standard input. "
            "Without --points: the columns of both points.",
            rich_help_panel=_FILES,
        ),
    ] = None
    comparisons: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Table with one row per comparison, of ids of --points. Three ids: the first point is nearer to the "
            "second than to the third. Four: the first two are nearer to each other than the last two.",
            rich_help_panel=_FILES,
        ),
    ] = None
    judgements: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Table with one row per judgement, where --pairs has no labels: a column that --pairs has as well, "
            "such as 'task', a label, and perhaps a 'worker'.",
            rich_help_panel=_FILES,
        ),
    ] = None
    id: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of point ids. Default: 'id', else the first column.",
            rich_help_panel=_FILES,
        ),
    ] = None
    left: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with the id of a pair's first point. Default: the first column.",
            rich_help_panel=_FILES,
        ),
    ] = None
    right: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with the id of a pair's second point. Default: the second column.",
            rich_help_panel=_FILES,
        ),
    ] = None
    sides: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Prefixes or suffixes of the two points' columns, such as left_,right_ or _1,_2.",
            rich_help_panel=_FILES,
        ),
    ] = None
    label: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of close/far labels, or of levels. Default: 'label', else the only other column.",
            rich_help_panel=_FILES,
        ),
    ] = None
    compared: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="The three or four id columns of --comparisons. Default: all columns but the answer.",
            rich_help_panel=_FILES,
        ),
    ] = None
    answer: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of --comparisons that turns rows round: 1 as given, -1 the other way; or left and right, "
            "or the nearer id. Default: 'answer', if there is one.",
            rich_help_panel=_FILES,
        ),
    ] = None
    annotator: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of --pairs that says who judged. Default: 'annotator' or 'worker', if there is one.",
            rich_help_panel=_FILES,
        ),
    ] = None
    no_annotators: Annotated[
        bool,
        typer.Option("--no-annotators", help="Take all judgements for one person's.", rich_help_panel=_FILES),
    ] = False
    group: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of groups that cross-validation keeps together, such as patients. "
            "Default: pairs that share a point.",
            rich_help_panel=_FILES,
        ),
    ] = None

    na_values: NaValues = None

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
            help="Column of weights; a weight of 2 counts as two identical pairs.",
            rich_help_panel=_FILES,
        ),
    ] = None

    @property
    def weight_column(self) -> str | None:
        return self.weight


@dataclass(frozen=True)
class Columns:
    """Which columns are features, and how they become numbers."""

    columns: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Use only these columns.", rich_help_panel=_COLUMNS)
    ] = None
    drop: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Ignore these columns.", rich_help_panel=_COLUMNS)
    ] = None
    categorical: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help="Treat these columns as categories, even if numeric.", rich_help_panel=_COLUMNS
        ),
    ] = None
    ordinal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=A<B<...",
            help="Encode ordered categories as 0, 1, 2, ... May be repeated.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None
    missing: Annotated[
        Missing,
        typer.Option(
            help="Missing values: refuse them, drop their rows, or impute the median.", rich_help_panel=_COLUMNS
        ),
    ] = Missing.refuse
    unseen: Annotated[
        Unseen,
        typer.Option(help="New categories at prediction: refuse them, or use the average.", rich_help_panel=_COLUMNS),
    ] = Unseen.refuse

    def check(self) -> None:
        """Refuse values that make no sense, whatever the data."""
        self.encoding_options()

    def encoding_options(self) -> dict[str, Any]:
        return {
            "columns": None if self.columns is None else names_in(self.columns),
            "drop": names_in(self.drop or ""),
            "categorical": names_in(self.categorical or ""),
            "ordinal": dict(map(_ordered, self.ordinal or ())),
            "missing": self.missing.value,
            "unseen": self.unseen.value,
        }


@dataclass(frozen=True)
class NewData:
    """What to do with missing values and new categories; by default what was chosen for the fit."""

    missing: Annotated[
        Missing | None,
        typer.Option(
            help="Missing values: refuse them, drop their rows, or impute the training median. Default: as at the fit.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None
    unseen: Annotated[
        Unseen | None,
        typer.Option(
            help="Categories not seen by the fit: refuse them, or use the average. Default: as for the fit.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None

    def encoding_of(self, model: Model) -> Encoding:
        learned = model.encoding
        return replace(learned, missing=self.missing or learned.missing, unseen=self.unseen or learned.unseen)


def names_in(text: str) -> tuple[str, ...]:
    """Names between commas; one that has a comma itself stands in double quotes."""
    try:
        return tuple(name.strip() for row in csv.reader([text], skipinitialspace=True, strict=True) for name in row)
    except csv.Error as error:
        raise ValueError(
            f"column names must be separated by commas, as in age,height; got {text!r} ({error})."
        ) from None


def _ordered(text: str) -> tuple[str, list[str]]:
    name, equals, levels = text.partition("=")
    parts = [part.strip() for part in levels.split("<")]
    if not (equals and name and len(parts) > 1 and all(parts)):
        raise ValueError(f"--ordinal must be a column and its ordered values, as in 'size=S<M<L'; got {text!r}.")
    return name.strip(), parts
