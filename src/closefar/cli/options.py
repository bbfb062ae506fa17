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
    from closefar.tables import Encoding

__all__ = ["FILES_PANEL", "Columns", "ModelFile", "NaValues", "NewData", "OutFile", "ReportTitle", "names_in"]

FILES_PANEL = "Data: --points and --pairs, or one of them; --comparisons beside or instead of --pairs"
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
        rich_help_panel=FILES_PANEL,
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
            help="Missing values: refuse them, drop their rows, or impute the training median. Default: as for the "
            "fit.",
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
