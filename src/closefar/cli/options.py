"""The options that commands share, in groups: which files, which columns, how to learn."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from closefar.errors import InvalidValueError
from closefar.noise import NOISES

if TYPE_CHECKING:
    from closefar.learners import MetricLearner, Model
    from closefar.tables import Encoding, Source

# ---------------------------------------------------------------------------------------------------------------------
# An option is the default of a parameter of a command, or of a field of a group of options, which is a dataclass.  Its
# type is that of the value: with a rule, what is typed is text, or a list of texts, which the rule turns into a value.

Rule = Callable[[str, Any], Any]  # of the name of an option and of what was typed; refuses what makes no sense


def option(
    help: str,
    metavar: str | None = None,
    *names: str,
    default: Any = None,
    panel: str | None = None,
    rule: Rule | None = None,
    typed: Any = str | None,
) -> Any:
    """Describe an option, which has the name of its field or parameter unless names are given."""
    described = typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel)
    return dataclasses.field(default=default, metadata={"described": described, "rule": rule, "typed": typed})


def argument(metavar: str, help: str, default: Any = ...) -> Any:
    """Describe what stands without a name, as `option` does."""
    described = typer.Argument(metavar=metavar, help=help, show_default=False)
    return dataclasses.field(default=default, metadata={"described": described, "rule": None})


def number(
    kind: type[int] | type[float] | None,
    *words: str,
    least: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> Rule:
    """The rule of a number within these bounds, or one of these words; without a kind, only a word."""
    bounds = ((">=", least), (">", above), ("<", below), ("<=", most))
    limits = " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if math.isfinite(bound))
    nouns = {int: ["a whole number"], float: ["a finite number"], None: []}[kind]
    *others, last = [*words, *(f"{noun} {limits}".rstrip() for noun in nouns)]
    rule = f"must be {', '.join(others)} or {last}" if others else f"must be {last}"

    def read(name: str, text: Any) -> Any:
        if text is None or text in words:
            return text
        given = text
        if kind is not None:
            with contextlib.suppress(OverflowError, ValueError):
                given = kind(text)
                if math.isfinite(given) and least <= given <= most and above < given < below:
                    return given
        raise InvalidValueError(name, rule, given)

    return read


def names(name: str, text: str | None) -> tuple[str, ...] | None:
    """The rule of names between commas; one that has a comma itself stands in double quotes."""
    if text is None:
        return None
    try:
        return tuple(each.strip() for row in csv.reader([text], skipinitialspace=True, strict=True) for each in row)
    except csv.Error as error:
        raise InvalidValueError(name, f"must be names between commas, as in age,height ({error})", text) from None


def _several_names(name: str, texts: list[str] | None) -> tuple[str, ...]:
    return tuple(each for text in texts or () for each in names(name, text) or ())


def _names_where(is_right: Callable[[tuple[str, ...]], bool], rule: str) -> Rule:
    """The rule of names of which something else holds as well."""

    def read(name: str, text: str | None) -> tuple[str, ...] | None:
        found = names(name, text)
        if found is not None and not is_right(found):
            raise InvalidValueError(name, rule, text)
        return found

    return read


def are_different(words: tuple[str, ...]) -> bool:
    """Whether there are no two equal words, and none is empty."""
    return all(words) and len(set(words)) == len(words)


def _orders(name: str, texts: list[str] | None) -> dict[str, list[str]]:
    found = {}
    for text in texts or ():
        column, equals, values = text.partition("=")
        parts = [part.strip() for part in values.split("<")]
        if not (equals and column and len(parts) > 1 and all(parts)):
            raise InvalidValueError(name, "must be a column and its ordered values, as in 'size=S<M<L'", text)
        found[column.strip()] = parts
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Options of several commands.


MODEL_FILE = option("A model written by `closefar fit`.", "FILE", "--model", "-m", default=...)
TABLE_FILE = option(
    "The table to write: .csv, .csv.gz, .tsv, .parquet or .npz. By default, CSV on standard output.",
    *("FILE", "--out", "-o"),
)
REPORT_TITLE = option("The headline of the report; the data files by default.", "TEXT", "--title")

FILES_PANEL = "Data: --points and --pairs, or one of them; --comparisons beside or instead of --pairs"
POINTS = ("Table with one row per point; - is standard input.", "FILE")
_ID = ("Column of point ids. Default: 'id', else the first column; single points need none.", "COLUMN")
DECIMAL = ("Decimal mark of numbers in text files: '.' or ','. Default: that of the model, else '.'.", "CHARACTER")
na_values_option = partial(
    option,
    *("Further words for a missing value, such as ?,-999. May be repeated.", "A,B,..."),
    rule=_several_names,
    typed=list[str] | None,
)


@dataclass(frozen=True)
class Points:
    """A table of points alone."""

    points: Path = option(*POINTS, default=...)
    id: str | None = option(*_ID)
    na_values: tuple[str, ...] = na_values_option(panel=FILES_PANEL)


Missing = StrEnum("Missing", ["refuse", "drop", "median"])
Unseen = StrEnum("Unseen", ["refuse", "average"])


@dataclass(frozen=True)
class Columns:
    """Which columns are features, and how they become numbers."""

    PANEL: ClassVar = "Columns"

    columns: tuple[str, ...] | None = option("Use only these columns.", "A,B,...", rule=names)
    drop: tuple[str, ...] | None = option("Ignore these columns.", "A,B,...", rule=names)
    categorical: tuple[str, ...] | None = option(
        "Treat these columns as categories, even if numeric.", "A,B,...", rule=names
    )
    ordinal: dict[str, list[str]] = option(
        "Encode ordered categories as 0, 1, 2, ... May be repeated.",
        "COLUMN=A<B<...",
        rule=_orders,
        typed=list[str] | None,
    )
    missing: Missing = option("Missing values: refuse, drop their rows, or impute the median.", default=Missing.refuse)
    unseen: Unseen = option("New categories at prediction: refuse them, or use the average.", default=Unseen.refuse)

    @property
    def given(self) -> dict[str, Any]:
        """What tables are read with."""
        return {name: value for name, value in vars(self).items() if value is not None}


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
    sides: tuple[str, ...] | None = option(
        "Prefixes or suffixes of the two points' columns, such as left_,right_ or _1,_2.", "A,B", rule=names
    )
    label: str | None = option("Column of labels or levels. Default: 'label', else the only other column.", "COLUMN")
    compared: tuple[str, ...] | None = option(
        "Three or four id columns of --comparisons. Default: all but the answer.",
        "A,B,C",
        rule=_names_where(
            lambda each: len(each) in (3, 4) and are_different(each), "must name three or four different columns"
        ),
    )
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
    na_values: tuple[str, ...] = na_values_option()
    decimal: str | None = option(*DECIMAL)

    def __post_init__(self) -> None:
        """Take recorded judgements as the pairs or comparisons that they are; refuse what contradicts itself."""
        from closefar.tables import is_recorded, recorded_task

        if self.judgements is not None and self.pairs is None and is_recorded(self.judgements):
            task = recorded_task(self.judgements)
            kind = "comparisons" if task is not None and task["kind"] == "triplets" else "pairs"
            if getattr(self, kind) is None:
                vars(self).update({kind: self.judgements, "judgements": None})
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
        for about, is_given, advice, of_it in (
            ("--pairs", not self.are_comparisons, "Columns of --comparisons: --compared and --answer.", _ABOUT_PAIRS),
            ("--comparisons", self.comparisons is not None, "Add that, or leave it out.", _ABOUT_COMPARISONS),
        ):
            for name in of_it:
                if getattr(self, name) is not None and not is_given:
                    raise ValueError(f"--{name} is about {about}, which is not given. {advice}")
        if self.annotator is not None and self.no_annotators:
            raise ValueError("--annotator and --no-annotators contradict each other. Leave one of them out.")

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
        """What is to be read."""
        from closefar.tables import Source

        given = {name: value for name, value in vars(self).items() if name != "no_annotators"}
        return Source(**given | ({"annotator": False} if self.no_annotators else {}))


@dataclass(frozen=True)
class WeightedFiles(Files):
    """Files in which pairs may have weights."""

    weight: str | None = option("Column of weights; a weight of 2 counts as the same judgement given twice.", "COLUMN")


# ---------------------------------------------------------------------------------------------------------------------
# The options of a fit; each command offers those that it can use, and refuses wrong ones before it reads a file.


# Parameters that not every learner has, by their options.
_NOT_OF_ALL = {
    "fit_origin": ("--origin", "close/far labels of single points"),
    "class_weight": ("--balanced", "labels of pairs"),
}


@dataclass(frozen=True)
class Learning:
    """What every fit can be asked for; alone, it is maximum likelihood, which the theory of sample sizes is about."""

    PANEL: ClassVar = "Learning"

    far: str | None = option("The label that means far, unless it is obvious.", "LABEL")
    levels: tuple[str, ...] | None = option(
        "Levels of labels in their order, from closest to farthest. More than two numbers are levels by "
        "themselves, the smallest closest.",
        "A,B,...",
        rule=_names_where(
            lambda each: len(each) > 1 and are_different(each),
            "must list each label once, two or more of them, from closest to farthest, such as same,similar,other",
        ),
    )
    noise: str = option(
        f"Noise model: {', '.join(NOISES)}, or auto for the one that predicts best.",
        "NOISE",
        default="logistic",
        rule=number(None, *NOISES, "auto"),
    )
    rank: int | str | None = option(
        "Largest rank of M, or auto to choose it on held-out judgements. Default: no limit.",
        "K",
        rule=number(int, "auto", least=1),
    )
    tol: float = option("Stop once the proven gap is below this.", "GAP", default=1e-6, rule=number(float, least=0))
    max_iter: int = option("Largest number of solver steps.", "N", default=1000, rule=number(int, least=1))
    device: str | None = option("Where to compute: cpu, cuda, or cuda:1 for another GPU. Default: cpu.", "DEVICE")

    def check(self, files: Files) -> None:
        """Refuse options that contradict each other, before a file is read."""
        for option, value in (("--far", self.far), ("--levels", self.levels)):
            if value is not None and files.are_comparisons:
                raise ValueError(f"{option} is about the labels of --pairs, and comparisons have none. Leave it out.")
        if self.levels is not None and self.far is not None:
            raise ValueError("--levels says already which label is far: the last one. Leave --far out.")

    def learner(self, words: tuple[str, ...], *, verbose: bool) -> MetricLearner:
        """The learner; `words` are the labels from closest to farthest, and comparisons have none."""
        from closefar.learners import ComparisonMetricLearner, LinearMetricLearner, OrdinalMetricLearner

        kind: Any = {0: ComparisonMetricLearner, 2: LinearMetricLearner}.get(len(words), OrdinalMetricLearner)
        known, meaning = kind().get_params(), {"levels": words, "far_label": words[-1] if words else None}
        given = {"alpha": 0.0, "flip_rate": 0.0, **vars(self), **meaning, "verbose": int(verbose)}
        given["class_weight"] = "balanced" if given.get("balanced") else None
        for name, (option, needed) in _NOT_OF_ALL.items():
            if name not in known and given.get(name):
                noun = "levels" if words else "comparisons"
                raise ValueError(f"{option} is for {needed}, and these are {noun}. Leave it out.")
        return kind(**{name: value for name, value in given.items() if name in known})  # type: ignore[no-any-return]


@dataclass(frozen=True)
class PenalisedLearning(Learning):
    """A fit that may have a penalty, flipped labels and an origin."""

    alpha: float | str = option(
        "Weight of the penalty, which shrinks M to its prior. auto chooses it on held-out judgements; 0 is maximum "
        "likelihood.",
        "WEIGHT",
        default="auto",
        rule=number(float, "auto", least=0),
    )
    prior: str = option(
        "What the penalty shrinks M to: zero, or the plain distance, euclidean (in the units of the data) or "
        "standardized (of standardized columns). auto chooses one of them.",
        "PRIOR",
        default="auto",
        rule=number(None, "auto", "zero", "euclidean", "standardized"),
    )
    flip_rate: float | str = option(
        "Share of labels flipped at random, regardless of distance. auto estimates it where that predicts held-out "
        "labels better; estimate always does, with annotators for each of them; two estimates one share for close "
        "and one for far.",
        "SHARE",
        default="auto",
        rule=number(float, "auto", "estimate", "two", least=0, below=0.5),
    )
    fit_origin: bool = option("For single points: learn the point to measure from.", None, "--origin", default=False)


@dataclass(frozen=True)
class LongLearning(PenalisedLearning):
    """A fit in which both labels may count the same, and comparisons otherwise than pairs, and which may take long."""

    comparison_noise: float | str | None = option(
        "With --pairs and --comparisons: noise of the comparisons relative to that of the pairs, or estimate. "
        "Default: 1.",
        "SCALE",
        rule=number(float, "estimate", above=0),
    )
    balanced: bool = option("Give all labels the same total weight.", default=False)
    max_time: float | None = option(
        "End the fit after this time, with what it has by then.", "SECONDS", rule=number(float, above=0)
    )
    checkpoint: Path | None = option(
        "Keep what has been computed in a file, from which the same command continues.", "FILE"
    )

    def check(self, files: Files) -> None:
        super().check(files)
        if self.comparison_noise is not None and (files.pairs is None or files.comparisons is None):
            raise ValueError(
                "--comparison-noise is relative to the noise of pairs, so it needs --pairs and --comparisons. "
                "Leave it out."
            )
