"""The options that commands share, in groups."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from closefar.noise import NOISES

if TYPE_CHECKING:
    from closefar.learners import MetricLearner, Model
    from closefar.tables import Encoding, Source

__all__ = ["Columns", "Files", "Learning", "ModelFile", "NaValues", "NewData", "OutFile", "ReportTitle"]

_FILES = "Files: --points and --pairs, or one of them"
_COLUMNS = "Columns"
_LEARNING = "Learning"


class Missing(StrEnum):
    refuse = "refuse"
    drop = "drop"
    median = "median"


class Unseen(StrEnum):
    refuse = "refuse"
    average = "average"


ModelFile = Annotated[Path, typer.Option("--model", "-m", help="A model that `closefar fit` wrote.")]
NaValues = Annotated[
    list[str] | None,
    typer.Option(
        metavar="A,B,...",
        help="What else stands for a missing value, such as ?,-999. May be repeated.",
        rich_help_panel=_FILES,
    ),
]
OutFile = Annotated[Path | None, typer.Option("--out", "-o", help="Where to write; the screen by default.")]

ReportTitle = Annotated[
    str | None,
    typer.Option("--title", metavar="TEXT", help="The headline of the report; the data files by default."),
]


@dataclass(frozen=True)
class Files:
    """The files with the data, and which of their columns mean what."""

    points: Annotated[
        Path | None,
        typer.Option(
            help="A row for each point, with an id; - is standard input. Alone: single points with a label.",
            rich_help_panel=_FILES,
        ),
    ] = None
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="A row for each pair: id, id, label; - is standard input. Alone: both sides' columns side by side.",
            rich_help_panel=_FILES,
        ),
    ] = None
    id: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The id of a point; 'id' or the first column.", rich_help_panel=_FILES),
    ] = None
    left: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The first id of a pair; the first column.", rich_help_panel=_FILES),
    ] = None
    right: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The second id of a pair; the second column.", rich_help_panel=_FILES),
    ] = None
    sides: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="What the columns of the two sides begin or end with, such as left_,right_ or _1,_2.",
            rich_help_panel=_FILES,
        ),
    ] = None
    label: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Close or far; 'label' or the only one left.", rich_help_panel=_FILES),
    ] = None
    weight: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="How much a pair counts.", rich_help_panel=_FILES)
    ] = None
    group: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Which pairs belong together, such as those of a patient; by default those that share points.",
            rich_help_panel=_FILES,
        ),
    ] = None

    na_values: NaValues = None

    @property
    def paths(self) -> list[Path | None]:
        return [self.points, self.pairs]

    def source(self) -> Source:
        from closefar.tables import Source

        if self.points is None and self.pairs is None:
            raise ValueError("there must be data: give --points and --pairs, or one of them.")
        sides = None if self.sides is None else tuple(part.strip() for part in self.sides.split(","))
        if sides is not None and (len(sides) != 2 or not all(sides)):
            raise ValueError(f"--sides takes two beginnings or endings, as in left_,right_; got {self.sides!r}.")
        return Source(
            points=self.points,
            pairs=self.pairs,
            id=self.id,
            left=self.left,
            right=self.right,
            label=self.label,
            weight=self.weight,
            group=self.group,
            sides=sides,
            na_values=tuple(word for words in self.na_values or () for word in _names(words)),
        )


@dataclass(frozen=True)
class Columns:
    """Which columns are used, and how they become numbers."""

    columns: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Use these columns only.", rich_help_panel=_COLUMNS)
    ] = None
    drop: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Leave these columns out.", rich_help_panel=_COLUMNS)
    ] = None
    categorical: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Their values are categories, even if numbers.", rich_help_panel=_COLUMNS),
    ] = None
    ordinal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=A<B<...", help="Its values in order: they become 0, 1, ...", rich_help_panel=_COLUMNS
        ),
    ] = None
    missing: Annotated[
        Missing, typer.Option(help="Missing values: refuse, drop rows, or the median.", rich_help_panel=_COLUMNS)
    ] = Missing.refuse
    unseen: Annotated[
        Unseen, typer.Option(help="Categories that are new later: refuse, or average.", rich_help_panel=_COLUMNS)
    ] = Unseen.refuse

    def encoding_options(self) -> dict[str, Any]:
        return {
            "columns": None if self.columns is None else _names(self.columns),
            "drop": _names(self.drop or ""),
            "categorical": _names(self.categorical or ""),
            "ordinal": dict(map(_ordered, self.ordinal or ())),
            "missing": self.missing.value,
            "unseen": self.unseen.value,
        }


@dataclass(frozen=True)
class NewData:
    """What new data may lack, where it is not as at the fit."""

    missing: Annotated[
        Missing | None,
        typer.Option(help="Missing values: refuse, drop rows, or the median of the fit.", rich_help_panel=_COLUMNS),
    ] = None
    unseen: Annotated[
        Unseen | None,
        typer.Option(help="Categories that the fit did not see: refuse, or average.", rich_help_panel=_COLUMNS),
    ] = None

    def encoding_of(self, model: Model) -> Encoding:
        learned = model.encoding
        return replace(learned, missing=self.missing or learned.missing, unseen=self.unseen or learned.unseen)


@dataclass(frozen=True)
class Learning:
    """How the metric is learned."""

    far: Annotated[
        str | None,
        typer.Option(
            metavar="VALUE", help="The label that means far, where it can't be told.", rich_help_panel=_LEARNING
        ),
    ] = None
    noise: Annotated[
        str,
        typer.Option(help=f"{', '.join(NOISES)}, or auto.", rich_help_panel=_LEARNING),
    ] = "logistic"
    rank: Annotated[
        str | None, typer.Option(metavar="K", help="The largest rank of M, or auto.", rich_help_panel=_LEARNING)
    ] = None
    alpha: Annotated[
        str,
        typer.Option(
            help="Weight of a penalty that favours low rank, or auto (cross-validation, also of the next three).",
            rich_help_panel=_LEARNING,
        ),
    ] = "0"
    alpha_scale: Annotated[
        str | None,
        typer.Option(
            metavar="SCALE", help="What the penalty is measured in: data, columns or 0 to 1.", rich_help_panel=_LEARNING
        ),
    ] = None
    shrink_to: Annotated[
        str | None,
        typer.Option(metavar="MATRIX", help="Where the penalty takes M: zero or identity.", rich_help_panel=_LEARNING),
    ] = None
    flip_rate: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE", help="Share of labels wrong whatever the distance, or estimate.", rich_help_panel=_LEARNING
        ),
    ] = None
    origin: Annotated[
        bool, typer.Option("--origin", help="Of single points: learn where to measure from.", rich_help_panel=_LEARNING)
    ] = False
    balanced: Annotated[
        bool, typer.Option("--balanced", help="Let both labels count the same.", rich_help_panel=_LEARNING)
    ] = False
    tol: Annotated[float, typer.Option(help="Stop when proven this near.", rich_help_panel=_LEARNING)] = 1e-6
    max_iter: Annotated[int, typer.Option(help="Largest number of steps.", rich_help_panel=_LEARNING)] = 1000

    @property
    def chooses_alpha(self) -> bool:
        return self.alpha == "auto"

    @property
    def makes_folds(self) -> bool:
        """Whether something is chosen by cross-validation."""
        return "auto" in (self.alpha, self.rank)

    def learner(self, far_label: str, *, verbose: bool) -> MetricLearner:
        from closefar.learners import LinearMetricLearner, LinearMetricLearnerCV

        rank = _number(self.rank, int, "--rank", "auto")
        options: dict[str, Any] = {
            "fit_origin": self.origin,
            "class_weight": "balanced" if self.balanced else None,
            "tol": self.tol,
            "max_iter": self.max_iter,
            "far_label": far_label,
            "verbose": int(verbose),
        }
        given = {
            "alpha_scale": _number(self.alpha_scale, float, "--alpha-scale", "data", "columns"),
            "shrink_to": self.shrink_to,
            "flip_rate": _number(self.flip_rate, float, "--flip-rate", "estimate"),
        }
        options |= {name: value for name, value in given.items() if value is not None}
        if not self.chooses_alpha:
            alpha = _number(self.alpha, float, "--alpha", "auto")
            return LinearMetricLearner(noise=self.noise, rank=rank, alpha=alpha, **options)
        if "auto" in (self.noise, rank):
            raise ValueError("--alpha auto needs one noise and one rank; leave --noise auto and --rank auto out.")
        return LinearMetricLearnerCV(noises=(self.noise,), ranks=(rank,), random_state=0, **options)


def _names(text: str) -> tuple[str, ...]:
    """Names between commas; one that has a comma itself stands in double quotes."""
    try:
        return tuple(name.strip() for row in csv.reader([text], skipinitialspace=True, strict=True) for name in row)
    except csv.Error as error:
        raise ValueError(f"names of columns stand between commas, as in age,height; got {text!r} ({error}).") from None


def _ordered(text: str) -> tuple[str, list[str]]:
    name, equals, levels = text.partition("=")
    parts = [part.strip() for part in levels.split("<")]
    if not (equals and name and len(parts) > 1 and all(parts)):
        raise ValueError(f"--ordinal takes a column and its values in order, as in 'size=S<M<L'; got {text!r}.")
    return name.strip(), parts


def _number(text: str | None, kind: type[int] | type[float], option: str, *words: str) -> Any:
    if text is None or text in words:
        return text
    try:
        return kind(text)
    except ValueError:
        expected = "a whole number" if kind is int else "a number"
        raise ValueError(f"{option} takes {expected} or {' or '.join(words)}; got {text!r}.") from None
