"""The options that commands share, in groups."""

from __future__ import annotations

import csv
import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from closefar.noise import NOISES

if TYPE_CHECKING:
    from closefar.learners import MetricLearner, Model
    from closefar.tables import Encoding, Source

# ---------------------------------------------------------------------------------------------------------------------
# Groups of options: a command takes a dataclass, and gets an option for each of its fields.


def with_groups(function: Callable[..., None]) -> Callable[..., None]:
    """Return the command with each parameter that is a dataclass replaced by its fields."""
    hints = get_type_hints(function, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints[name]
        if dataclasses.is_dataclass(kind):
            groups[name] = kind
            parameters += _parameters_of(kind)
        else:
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(function)
    def command(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in dataclasses.fields(kind)})
        function(**values)

    del command.__wrapped__  # typer would read the options of that one
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _parameters_of(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(kind)
    ]


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
    str | None, typer.Option("--title", metavar="TEXT", help="The headline of the report; the data files by default.")
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


# ---------------------------------------------------------------------------------------------------------------------
# The options that say which files to read, and which of their columns mean what.


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
        bool, typer.Option("--no-annotators", help="Treat all judgements as one person's.", rich_help_panel=FILES_PANEL)
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


# ---------------------------------------------------------------------------------------------------------------------
# Numbers and words that options take.


def number(text: str | None, kind: type[int] | type[float], option: str, *words: str) -> Any:
    """The number that an option has, or one of these words."""
    if text is None or text in words:
        return text
    try:
        return kind(text)
    except ValueError:
        expected = "a whole number" if kind is int else "a number"
        raise ValueError(f"{option} must be {any_of(*words, expected)}; got {text!r}.") from None


def check_positive(option: str, text: str | None) -> None:
    """Refuse what is neither a number > 0 nor to be estimated."""
    value = number(text, float, option, "estimate")
    if isinstance(value, float) and not (math.isfinite(value) and value > 0):
        raise ValueError(f"{option} must be estimate or a finite number > 0; got {text}.")


def check_range(option: str, value: float) -> None:
    """Refuse what is no number >= 0."""
    if not (math.isfinite(value) and value >= 0):
        word = "auto or " if option == "--alpha" else ""
        raise ValueError(f"{option} must be {word}a finite number >= 0; got {value:g}.")


def any_of(*words: str) -> str:
    """The words with commas, and "or" before the last."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


# ---------------------------------------------------------------------------------------------------------------------
# The options of a fit; each command offers those that it can use, and refuses wrong ones before it reads a file.


_PANEL = "Learning"
_PRIORS = ("auto", "zero", "euclidean", "standardized")
_NOT_OF_ALL: dict[str, tuple[str, Any, str]] = {  # parameters that not every learner has, with their defaults
    "fit_origin": ("--origin", False, "close/far labels of single points"),
    "class_weight": ("--balanced", None, "labels of pairs"),
}


@dataclass(frozen=True)
class Learning:
    """What every fit can be asked for; by itself, maximum likelihood, which the theory of sample sizes is about."""

    far: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="The label that means far, unless it is obvious.", rich_help_panel=_PANEL),
    ] = None
    levels: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Levels of labels in their order, from closest to farthest. More than two numbers are levels by "
            "themselves, the smallest closest.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    noise: Annotated[
        str,
        typer.Option(
            metavar="NOISE",
            help=f"Noise model: {', '.join(NOISES)}, or auto for the one that predicts best.",
            rich_help_panel=_PANEL,
        ),
    ] = "logistic"
    rank: Annotated[
        str | None,
        typer.Option(
            metavar="K",
            help="Largest rank of M, or auto to choose it on held-out judgements. Default: no limit.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    tol: Annotated[
        float, typer.Option(metavar="GAP", help="Stop once the proven gap is below this.", rich_help_panel=_PANEL)
    ] = 1e-6
    max_iter: Annotated[
        int, typer.Option(metavar="N", help="Largest number of solver steps.", rich_help_panel=_PANEL)
    ] = 1000

    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            help="Where to compute: cpu, cuda, or cuda:1 for another GPU. Default: cpu.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def check(self, files: Files) -> None:
        """Refuse wrong values, and those that these files have no use for."""
        self._check_labels(files)
        if self.noise not in (*NOISES, "auto"):
            raise ValueError(f"--noise must be {any_of(*NOISES, 'auto')}; got {self.noise!r}.")
        rank = number(self.rank, int, "--rank", "auto")
        if isinstance(rank, int) and rank < 1:
            raise ValueError(f"--rank must be auto or a whole number >= 1; got {rank}.")
        check_range("--tol", self.tol)
        if self.max_iter < 1:
            raise ValueError(f"--max-iter must be a whole number >= 1; got {self.max_iter}.")
        if self.device is not None:
            from closefar.fitting import check_device  # slow to import

            check_device(self.device)

    def _check_labels(self, files: Files) -> None:
        levels = self.levels_in_order
        for option, value in (("--far", self.far), ("--levels", levels)):
            if value is not None and files.are_comparisons:
                raise ValueError(f"{option} is about the labels of --pairs, and comparisons have none. Leave it out.")
        if levels is not None and (len(levels) < 2 or not all(levels) or len(set(levels)) < len(levels)):
            raise ValueError(
                "--levels must list each label once, two or more of them, from closest to farthest, such as "
                f"same,similar,other; got {self.levels!r}."
            )
        if levels is not None and self.far is not None:
            raise ValueError("--levels says already which label is far: the last one. Leave --far out.")

    @property
    def levels_in_order(self) -> tuple[str, ...] | None:
        """The levels from closest to farthest, where they were given."""
        return None if self.levels is None else names_in(self.levels)

    def parameters(self) -> dict[str, Any]:
        """The parameters of the learner."""
        return {
            "alpha": 0.0,
            "flip_rate": 0.0,
            "noise": self.noise,
            "rank": number(self.rank, int, "--rank", "auto"),
            "tol": self.tol,
            "max_iter": self.max_iter,
            "device": self.device,
        }

    def fit_options(self) -> dict[str, Any]:
        """What `fit` of the learner is given besides judgements."""
        return {}

    def learner(self, words: tuple[str, ...], *, verbose: bool) -> MetricLearner:
        """The learner; `words` are the labels from closest to farthest, and comparisons have none."""
        from closefar.learners import ComparisonMetricLearner, LinearMetricLearner, OrdinalMetricLearner

        parameters = {**self.parameters(), "verbose": int(verbose)}
        kind: Any = {0: ComparisonMetricLearner, 2: LinearMetricLearner}.get(len(words), OrdinalMetricLearner)
        if len(words) == 2:
            parameters["far_label"] = words[1]
        elif words:
            parameters["levels"] = words
        return kind(**_known_to(kind, parameters))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class PenalisedLearning(Learning):
    """A fit that may have a penalty, flipped labels and an origin."""

    alpha: Annotated[
        str,
        typer.Option(
            metavar="WEIGHT",
            help="Weight of the penalty, which shrinks M to its prior. auto chooses it on held-out judgements; 0 is "
            "maximum likelihood.",
            rich_help_panel=_PANEL,
        ),
    ] = "auto"
    prior: Annotated[
        str,
        typer.Option(
            metavar="PRIOR",
            help="What the penalty shrinks M to: zero, or the plain distance, euclidean (in the units of the data) or "
            "standardized (of standardized columns). auto chooses one of them.",
            rich_help_panel=_PANEL,
        ),
    ] = "auto"
    flip_rate: Annotated[
        str,
        typer.Option(
            metavar="SHARE",
            help="Share of labels flipped at random, regardless of distance. auto estimates it where that predicts "
            "held-out labels better; estimate always does, with annotators for each of them; two estimates one share "
            "for close and one for far.",
            rich_help_panel=_PANEL,
        ),
    ] = "auto"
    origin: Annotated[
        bool,
        typer.Option("--origin", help="For single points: learn the point to measure from.", rich_help_panel=_PANEL),
    ] = False

    def check(self, files: Files) -> None:
        super().check(files)
        alpha = number(self.alpha, float, "--alpha", "auto")
        if isinstance(alpha, float):
            check_range("--alpha", alpha)
        if self.prior not in _PRIORS:
            raise ValueError(f"--prior must be {any_of(*_PRIORS)}; got {self.prior!r}.")
        rate = number(self.flip_rate, float, "--flip-rate", "auto", "estimate", "two")
        if isinstance(rate, float) and not 0 <= rate < 0.5:
            raise ValueError(f"--flip-rate must be auto, estimate, two or a number from 0 to below 0.5; got {rate:g}.")
        if self.rank is not None and self.prior in ("euclidean", "standardized"):
            raise ValueError(
                f"--prior {self.prior} gives M full rank, so its rank can't be limited; got --rank {self.rank}. Use "
                "--prior zero, or leave --rank out."
            )
        if self.origin and not files.are_single:
            raise ValueError("--origin needs single points, as the difference of a pair has no origin. Leave it out.")

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {
            "alpha": number(self.alpha, float, "--alpha", "auto"),
            "prior": self.prior,
            "flip_rate": number(self.flip_rate, float, "--flip-rate", "auto", "estimate", "two"),
            "fit_origin": self.origin,
        }


@dataclass(frozen=True)
class LongLearning(PenalisedLearning):
    """A fit in which both labels may count the same, and comparisons otherwise than pairs, and which may take long."""

    comparison_noise: Annotated[
        str | None,
        typer.Option(
            metavar="SCALE",
            help="With --pairs and --comparisons: noise of the comparisons relative to that of the pairs, or estimate. "
            "Default: 1.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    balanced: Annotated[
        bool, typer.Option("--balanced", help="Give all labels the same total weight.", rich_help_panel=_PANEL)
    ] = False
    max_time: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="End the fit after this time, with what it has by then.", rich_help_panel=_PANEL
        ),
    ] = None
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep what has been computed in a file, from which the same command continues.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def check(self, files: Files) -> None:
        super().check(files)
        check_positive("--comparison-noise", self.comparison_noise)
        if self.comparison_noise is not None and (files.pairs is None or files.comparisons is None):
            raise ValueError(
                "--comparison-noise is relative to the noise of pairs, so it needs --pairs and --comparisons. "
                "Leave it out."
            )
        if self.max_time is not None and not (math.isfinite(self.max_time) and self.max_time > 0):
            raise ValueError(f"--max-time must be a number of seconds > 0; got {self.max_time:g}.")

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"class_weight": "balanced" if self.balanced else None}

    def fit_options(self) -> dict[str, Any]:
        noise = number(self.comparison_noise, float, "--comparison-noise", "estimate")
        given = {"comparison_noise": noise, "max_time": self.max_time, "checkpoint": self.checkpoint}
        return super().fit_options() | {name: value for name, value in given.items() if value is not None}


def _known_to(kind: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that a learner has; others must be left at their defaults."""
    known = kind().get_params()
    for name, (option, default, needed) in _NOT_OF_ALL.items():
        if name not in known and parameters.get(name, default) != default:
            noun = "comparisons" if "levels" not in known else "levels"
            raise ValueError(f"{option} is for {needed}, and these are {noun}. Leave it out.")
    return {name: value for name, value in parameters.items() if name in known}
