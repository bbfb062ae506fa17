"""The options that commands share, in groups: which files, which columns, how to learn."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer

from closefar.errors import InvalidValueError
from closefar.noise import NOISES

if TYPE_CHECKING:
    from closefar.learners import MetricLearner, Model
    from closefar.tables import Encoding, Source

# ---------------------------------------------------------------------------------------------------------------------
# Groups of options: a command takes a dataclass, and gets an option for each of its fields, in the panel of the class.


def option(help: str, metavar: str | None = None, *names: str, default: Any = None, panel: str | None = None) -> Any:
    """Describe an option as the default of a field or parameter, whose name it has unless names are given."""
    described = typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel)
    return dataclasses.field(default=default, metadata={"described": described})


def argument(metavar: str, help: str, default: Any = ...) -> Any:
    """Describe what stands without a name, as `option` does."""
    described = typer.Argument(metavar=metavar, help=help, show_default=False)
    return dataclasses.field(default=default, metadata={"described": described})


def with_groups(function: Callable[..., None]) -> Callable[..., None]:
    """Return the command with each parameter that is a dataclass replaced by its fields."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints[name]
        if not dataclasses.is_dataclass(kind):
            parameters.append(_parameter(name, kind, parameter.default, None))
            continue
        groups[name], types = kind, get_type_hints(kind, include_extras=True)
        for field in dataclasses.fields(kind):
            parameters.append(_parameter(field.name, types[field.name], field, getattr(kind, "PANEL", None)))

    @functools.wraps(function)
    def command(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in dataclasses.fields(kind)})
        function(**values)

    del command.__wrapped__  # typer would read the options of that one
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _parameter(name: str, kind: Any, given: Any, panel: str | None) -> inspect.Parameter:
    """An option in the panel of its group; a switch has no opposite, such as --no-quiet."""
    default = given.default if isinstance(given, dataclasses.Field) else given
    if isinstance(given, dataclasses.Field) and given.metadata:
        described = copy(given.metadata["described"])
        described.rich_help_panel = described.rich_help_panel or panel
        if kind is bool and described.default is ...:
            described.param_decls = (f"--{name.replace('_', '-')}",)
        kind = Annotated[kind, described]
    empty = inspect.Parameter.empty if default in (..., dataclasses.MISSING) else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=empty, annotation=kind)


MODEL_FILE = option("A model written by `closefar fit`.", "FILE", "--model", "-m", default=...)
TABLE_FILE = option(
    "The table to write: .csv, .csv.gz, .tsv, .parquet or .npz. By default, CSV on standard output.",
    *("FILE", "--out", "-o"),
)
REPORT_TITLE = option("The headline of the report; the data files by default.", "TEXT", "--title")

FILES_PANEL = "Data: --points and --pairs, or one of them; --comparisons beside or instead of --pairs"
POINTS = ("Table with one row per point; - is standard input.", "FILE")
_ID = ("Column of point ids. Default: 'id', else the first column.", "COLUMN")
NA_VALUES = ("Further words for a missing value, such as ?,-999. May be repeated.", "A,B,...")
DECIMAL = ("Decimal mark of numbers in text files: '.' or ','. Default: that of the model, else '.'.", "CHARACTER")


@dataclass(frozen=True)
class Points:
    """A table of points alone."""

    points: Path = option(*POINTS, default=...)
    id: str | None = option(*_ID)
    na_values: list[str] | None = option(*NA_VALUES, panel=FILES_PANEL)


Missing = StrEnum("Missing", ["refuse", "drop", "median"])
Unseen = StrEnum("Unseen", ["refuse", "average"])


@dataclass(frozen=True)
class Columns:
    """Which columns are features, and how they become numbers."""

    PANEL: ClassVar = "Columns"

    columns: str | None = option("Use only these columns.", "A,B,...")
    drop: str | None = option("Ignore these columns.", "A,B,...")
    categorical: str | None = option("Treat these columns as categories, even if numeric.", "A,B,...")
    ordinal: list[str] | None = option("Encode ordered categories as 0, 1, 2, ... May be repeated.", "COLUMN=A<B<...")
    missing: Missing = option("Missing values: refuse, drop their rows, or impute the median.", default=Missing.refuse)
    unseen: Unseen = option("New categories at prediction: refuse them, or use the average.", default=Unseen.refuse)

    def encoding_options(self) -> dict[str, Any]:
        """What the columns are read with; an error for values that make no sense, whatever the data."""
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

    PANEL: ClassVar = Columns.PANEL

    missing: Missing | None = option(
        "Missing values: refuse them, drop their rows, or impute the training median. Default: as for the fit."
    )
    unseen: Unseen | None = option(
        "Categories not seen by the fit: refuse them, or use the average. Default: as for the fit."
    )

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
        raise InvalidValueError("ordinal", "must be a column and its ordered values, as in 'size=S<M<L'", text)
    return name.strip(), parts


# ---------------------------------------------------------------------------------------------------------------------
# The options that say which files to read, and which of their columns mean what.


_FILES = ("points", "pairs", "comparisons", "judgements")
_ABOUT_PAIRS = ("judgements", "label", "left", "right", "sides", "annotator")
_ABOUT_COMPARISONS = ("compared", "answer")


@dataclass(frozen=True)
class Files:
    """The files with the data, and the roles of their columns."""

    PANEL: ClassVar = FILES_PANEL

    points: Path | None = option(f"{POINTS[0]} Without --pairs: single points with a label.", "FILE")
    pairs: Path | None = option(
        "Table with one row per pair: two ids and a label; - is standard input. Without --points: the columns of "
        "both points.",
        "FILE",
    )
    comparisons: Path | None = option(
        "Table with one row per comparison, of ids of --points. Three ids: the first point is nearer to the second "
        "than to the third. Four: the first two are nearer to each other than the last two.",
        "FILE",
    )
    judgements: Path | None = option(
        "File of `closefar label`, instead of --pairs or --comparisons. Or, where --pairs has no labels, a table "
        "with one row per judgement: a column that --pairs has as well, such as 'task', a label, and perhaps a "
        "'worker'.",
        "FILE",
    )
    id: str | None = option(*_ID)
    left: str | None = option("Column with the id of a pair's first point. Default: the first column.", "COLUMN")
    right: str | None = option("Column with the id of a pair's second point. Default: the second column.", "COLUMN")
    sides: str | None = option("Prefixes or suffixes of the two points' columns, such as left_,right_ or _1,_2.", "A,B")
    label: str | None = option("Column of labels or levels. Default: 'label', else the only other column.", "COLUMN")
    compared: str | None = option("Three or four id columns of --comparisons. Default: all but the answer.", "A,B,C")
    answer: str | None = option(
        "Column of --comparisons that turns rows round: 1 as given, -1 the other way; or left and right, or the "
        "nearer id. Default: 'answer', if there is one.",
        "COLUMN",
    )
    annotator: str | None = option("Column of --pairs with who judged. Default: 'annotator' or 'worker'.", "COLUMN")
    no_annotators: bool = option("Treat all judgements as one person's.", default=False)
    group: str | None = option(
        "Column of groups kept together in cross-validation, such as patients. Default: by shared points.", "COLUMN"
    )
    na_values: list[str] | None = option(*NA_VALUES)
    decimal: str | None = option(*DECIMAL)

    def __post_init__(self) -> None:
        """Take judgements that `closefar label` recorded for pairs or comparisons, which they are."""
        if self.judgements is None or self.pairs is not None:
            return
        from closefar.tables import is_recorded, recorded_task

        if is_recorded(self.judgements):
            task = recorded_task(self.judgements)
            kind = "comparisons" if task is not None and task["kind"] == "triplets" else "pairs"
            if getattr(self, kind) is None:
                object.__setattr__(self, kind, self.judgements)
                object.__setattr__(self, "judgements", None)

    @property
    def recorded_answers(self) -> tuple[str, ...] | None:
        """The answers that could be given to recorded pairs, from closest to farthest."""
        from closefar.tables import recorded_task

        task = None if self.pairs is None else recorded_task(self.pairs)
        return None if task is None else tuple(task["answers"])

    @property
    def paths(self) -> list[Path | None]:
        return [getattr(self, name) for name in _FILES]

    @property
    def are_single(self) -> bool:
        """Whether the data are single points."""
        return self.points is not None and self.pairs is None and self.comparisons is None

    @property
    def are_comparisons(self) -> bool:
        """Whether the data are comparisons alone."""
        return self.comparisons is not None and self.pairs is None

    def source(self) -> Source:
        """What is to be read; an error for files and columns that contradict each other."""
        from closefar.tables import Source

        self._check_files()
        self._check_columns()
        sides = None if self.sides is None else tuple(part.strip() for part in self.sides.split(","))
        if sides is not None and (len(sides) != 2 or not all(sides)):
            raise InvalidValueError("sides", "must be two prefixes or suffixes, such as left_,right_", self.sides)
        compared = None if self.compared is None else names_in(self.compared)
        if compared is not None and (len(compared) not in (3, 4) or len(set(compared)) < len(compared)):
            raise InvalidValueError("compared", "must name three or four different columns", self.compared)
        names = (*_FILES, "id", "left", "right", "label", "group", "answer")
        return Source(
            **{name: getattr(self, name) for name in names},
            weight=getattr(self, "weight", None),
            annotator=False if self.no_annotators else self.annotator,
            compared=compared,
            sides=sides,
            na_values=words_in(self.na_values),
            decimal=self.decimal,
        )

    def _check_files(self) -> None:
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
        if self.points is None and self.pairs is None and self.comparisons is None:
            raise ValueError("no data given. Use --points and --pairs, or one of them.")
        if self.comparisons is not None and self.points is None:
            raise ValueError("--comparisons has ids of points. Add --points, the table that they are in.")
        streams = [f"--{name}" for name in _FILES if str(getattr(self, name)) == "-"]
        if len(streams) > 1:
            raise ValueError(f"{' and '.join(streams)} can't both be standard input. Give a file for one of them.")

    def _check_columns(self) -> None:
        if (self.left is None) != (self.right is None):
            raise ValueError("--left and --right must be given together. Add the other one.")
        for names, about, is_given, advice in (
            (_ABOUT_PAIRS, "--pairs", not self.are_comparisons, "Columns of --comparisons: --compared and --answer."),
            (_ABOUT_COMPARISONS, "--comparisons", self.comparisons is not None, "Add that, or leave it out."),
        ):
            for name in names:
                if getattr(self, name) is not None and not is_given:
                    raise ValueError(f"--{name} is about {about}, which is not given. {advice}")
        if self.annotator is not None and self.no_annotators:
            raise ValueError("--annotator and --no-annotators contradict each other. Leave one of them out.")


@dataclass(frozen=True)
class WeightedFiles(Files):
    """Files in which pairs may have weights."""

    weight: str | None = option("Column of weights; a weight of 2 counts as the same judgement given twice.", "COLUMN")


def words_in(given: list[str] | None) -> tuple[str, ...]:
    """All words of an option that may be repeated."""
    return tuple(word for words in given or () for word in names_in(words))


# ---------------------------------------------------------------------------------------------------------------------
# Numbers and words that options take.


def number(
    text: Any,
    kind: Any,
    option: str,
    *words: str,
    least: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    noun: str = "",
) -> Any:
    """Return the number that an option has, within these bounds, or one of these words; without a kind, only a word."""
    if text is None or text in words:
        return text
    given = text
    with contextlib.suppress(OverflowError, ValueError, TypeError):  # the latter where only words are allowed
        given = value = kind(text)
        if math.isfinite(value) and least <= value < below and value > above:
            return value
    bounds = ((">=", least), (">", above), ("<", below))
    limits = " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if math.isfinite(bound))
    noun = noun or {int: "a whole number", float: "a finite number"}.get(kind, "")
    *others, last = [*words, *([f"{noun} {limits}".rstrip()] if noun else [])]
    rule = f"must be {', '.join(others)} or {last}" if others else f"must be {last}"
    is_whole = isinstance(given, float) and given.is_integer()
    raise InvalidValueError(option.removeprefix("--").replace("-", "_"), rule, int(given) if is_whole else given)


# ---------------------------------------------------------------------------------------------------------------------
# The options of a fit; each command offers those that it can use, and refuses wrong ones before it reads a file.


_FLIP_RATES = ("auto", "estimate", "two")
_FULL_RANK = ("euclidean", "standardized")  # priors
_NOT_OF_ALL: dict[str, tuple[str, Any, str]] = {  # parameters that not every learner has, with their defaults
    "fit_origin": ("--origin", False, "close/far labels of single points"),
    "class_weight": ("--balanced", None, "labels of pairs"),
}


@dataclass(frozen=True)
class Learning:
    """What every fit can be asked for; alone, it is maximum likelihood, which the theory of sample sizes is about."""

    PANEL: ClassVar = "Learning"

    far: str | None = option("The label that means far, unless it is obvious.", "LABEL")
    levels: str | None = option(
        "Levels of labels in their order, from closest to farthest. More than two numbers are levels by "
        "themselves, the smallest closest.",
        "A,B,...",
    )
    noise: str = option(
        f"Noise model: {', '.join(NOISES)}, or auto for the one that predicts best.", "NOISE", default="logistic"
    )
    rank: str | None = option("Largest rank of M, or auto to choose it on held-out judgements. Default: no limit.", "K")
    tol: float = option("Stop once the proven gap is below this.", "GAP", default=1e-6)
    max_iter: int = option("Largest number of solver steps.", "N", default=1000)
    device: str | None = option("Where to compute: cpu, cuda, or cuda:1 for another GPU. Default: cpu.", "DEVICE")

    def check(self, files: Files, columns: Columns) -> None:
        """Refuse wrong values, and options that contradict each other, before a file is read."""
        files.source()
        columns.encoding_options()
        levels = self.levels_in_order
        for option, value in (("--far", self.far), ("--levels", levels)):
            if value is not None and files.are_comparisons:
                raise ValueError(f"{option} is about the labels of --pairs, and comparisons have none. Leave it out.")
        if levels is not None and (len(levels) < 2 or not all(levels) or len(set(levels)) < len(levels)):
            rule = (
                "must list each label once, two or more of them, from closest to farthest, such as same,similar,other"
            )
            raise InvalidValueError("levels", rule, self.levels)
        if levels is not None and self.far is not None:
            raise ValueError("--levels says already which label is far: the last one. Leave --far out.")
        self.parameters()
        self.fit_options()
        if self.device is not None:
            from closefar.fitting import check_device  # slow to import

            check_device(self.device)

    @property
    def levels_in_order(self) -> tuple[str, ...] | None:
        """The levels from closest to farthest, where they were given."""
        return None if self.levels is None else names_in(self.levels)

    def parameters(self) -> dict[str, Any]:
        """The parameters of the learner; an error for values that no learner takes."""
        return {
            "alpha": 0.0,
            "flip_rate": 0.0,
            "noise": number(self.noise, None, "--noise", *NOISES, "auto"),
            "rank": number(self.rank, int, "--rank", "auto", least=1),
            "tol": number(self.tol, float, "--tol", least=0),
            "max_iter": number(self.max_iter, int, "--max-iter", least=1),
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
        if words:
            parameters |= {"far_label": words[1]} if len(words) == 2 else {"levels": words}
        known = kind().get_params()
        for name, (option, default, needed) in _NOT_OF_ALL.items():
            if name not in known and parameters.get(name, default) != default:
                noun = "levels" if words else "comparisons"
                raise ValueError(f"{option} is for {needed}, and these are {noun}. Leave it out.")
        return kind(**{name: value for name, value in parameters.items() if name in known})  # type: ignore[no-any-return]


@dataclass(frozen=True)
class PenalisedLearning(Learning):
    """A fit that may have a penalty, flipped labels and an origin."""

    alpha: str = option(
        "Weight of the penalty, which shrinks M to its prior. auto chooses it on held-out judgements; 0 is maximum "
        "likelihood.",
        "WEIGHT",
        default="auto",
    )
    prior: str = option(
        "What the penalty shrinks M to: zero, or the plain distance, euclidean (in the units of the data) or "
        "standardized (of standardized columns). auto chooses one of them.",
        "PRIOR",
        default="auto",
    )
    flip_rate: str = option(
        "Share of labels flipped at random, regardless of distance. auto estimates it where that predicts held-out "
        "labels better; estimate always does, with annotators for each of them; two estimates one share for close "
        "and one for far.",
        "SHARE",
        default="auto",
    )
    origin: bool = option("For single points: learn the point to measure from.", default=False)

    def check(self, files: Files, columns: Columns) -> None:
        super().check(files, columns)
        if self.rank is not None and self.prior in _FULL_RANK:
            raise ValueError(
                f"--prior {self.prior} gives M full rank, so its rank can't be limited; got --rank {self.rank}. Use "
                "--prior zero, or leave --rank out."
            )
        if self.origin and not files.are_single:
            raise ValueError("--origin needs single points, as the difference of a pair has no origin. Leave it out.")

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {
            "alpha": number(self.alpha, float, "--alpha", "auto", least=0),
            "prior": number(self.prior, None, "--prior", "auto", "zero", *_FULL_RANK),
            "flip_rate": number(self.flip_rate, float, "--flip-rate", *_FLIP_RATES, least=0, below=0.5),
            "fit_origin": self.origin,
        }


@dataclass(frozen=True)
class LongLearning(PenalisedLearning):
    """A fit in which both labels may count the same, and comparisons otherwise than pairs, and which may take long."""

    comparison_noise: str | None = option(
        "With --pairs and --comparisons: noise of the comparisons relative to that of the pairs, or estimate. "
        "Default: 1.",
        "SCALE",
    )
    balanced: bool = option("Give all labels the same total weight.", default=False)
    max_time: float | None = option("End the fit after this time, with what it has by then.", "SECONDS")
    checkpoint: Path | None = option(
        "Keep what has been computed in a file, from which the same command continues.", "FILE"
    )

    def check(self, files: Files, columns: Columns) -> None:
        super().check(files, columns)
        if self.comparison_noise is not None and (files.pairs is None or files.comparisons is None):
            raise ValueError(
                "--comparison-noise is relative to the noise of pairs, so it needs --pairs and --comparisons. "
                "Leave it out."
            )

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"class_weight": "balanced" if self.balanced else None}

    def fit_options(self) -> dict[str, Any]:
        given = {
            "comparison_noise": number(self.comparison_noise, float, "--comparison-noise", "estimate", above=0),
            "max_time": number(self.max_time, float, "--max-time", above=0, noun="a number of seconds"),
            "checkpoint": self.checkpoint,
        }
        return {name: value for name, value in given.items() if value is not None}
