"""The commands; they import what they need when they run, so that help is quick."""

from __future__ import annotations

import contextlib
import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import rich  # noqa: F401  # commands show their progress with it: missing, it is named before anything is done
import typer

from closefar import __version__
from closefar.arrays import FloatArray, numbered
from closefar.cli import options
from closefar.cli.label import LabelTask, Serving, export_judgements, label, serve
from closefar.cli.options import argument, number, option
from closefar.cli.session import EXIT_CODES, REPORT, TABLE, Session, WritingSession, command, named
from closefar.errors import command_words
from closefar.plain import format_table, records, to_jsonable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from closefar.fitting import Fit
    from closefar.judgements import Judgements
    from closefar.learners import ClassMetricLearner, MetricLearner, Model
    from closefar.model import Scores
    from closefar.questions import LabelErrors
    from closefar.tables import Pairs, Source

# ---------------------------------------------------------------------------------------------------------------------
# Which judgements a table holds, two labels, levels or comparisons, and what is said of them on the screen.


_MOST_UNORDERED = 21  # that numbers are treated as without --levels: 0 to 20
_MOST_WORDS = 5  # named in a message, which is one line

# Labels, in lower case, of which it is clear which one is far.
_PLAIN = {("close", "far"), ("0", "1"), ("-1", "1"), ("false", "true")}


def _words_in_order(counts: dict[str, int], far: str | None, levels: tuple[str, ...] | None) -> tuple[str, ...]:
    """The labels from closest to farthest: two of them, or levels.

    Parameters
    ----------
    counts : dict of int
        How many rows have each label.
    far : str, optional
        The one of two labels that means far.
    levels : tuple of str, optional
        All of them in order; the order of more than two numbers is known.
    """
    words = sorted(counts)
    if levels is not None:
        unknown = [word for word in words if word not in levels]
        if unknown:
            raise ValueError(
                f"--levels must list every label, from closest to farthest; got {', '.join(levels)}, without "
                f"{_named(counts, unknown)}. Add what is missing, or correct the labels."
            )
        return levels
    if far is not None:
        if far not in words or len(words) != 2:
            raise ValueError(
                f"--far must be one of two labels; got {far!r}, and the labels are {_named(counts, words)}. Correct "
                "it, or give the order of all levels with --levels instead."
            )
        return next(word for word in words if word != far), far
    if len(words) == 2:
        first, second = sorted(words, key=_plainly)
        if (_plainly(first), _plainly(second)) not in _PLAIN:
            raise ValueError(
                f"it is not clear which label means far: they are {_named(counts, words)}. "
                f"Use --far {words[1]!r} or --far {words[0]!r}."
            )
        return first, second
    if len(words) < 2 or None in map(_number, words):
        words.sort(key=lambda word: _number(word) is not None)  # a few words among numbers come first
        raise ValueError(
            "there must be two labels, one for close and one for far, or levels, which are numbers or in the order of "
            f"--levels; got {len(words)}: {_named(counts, words)}. Correct the label column, choose "
            "another with --label, or give all labels from closest to farthest with --levels."
        )
    if len(words) > _MOST_UNORDERED:
        raise ValueError(
            f"numbers are treated as levels if there are at most {_MOST_UNORDERED} different ones; got {len(words)}: "
            f"{_named(counts, words)}. Round them to fewer levels, or list them all with --levels."
        )
    return tuple(sorted(words, key=float))


def _spelled_alike(labels: Any, words: tuple[str, ...]) -> Any:
    """The labels with each number as one of these words has it, or else in its shortest form: 1.0 as 1."""
    from closefar.judgements import CodedLabels

    by_number = {_number(word): word for word in words}

    def spelled(label: str) -> str:
        number = _number(label)
        return label if number is None or label in words else by_number.get(number, f"{number:.15g}")

    if not isinstance(labels, CodedLabels):
        labels = CodedLabels(*np.unique(labels.astype(str), return_inverse=True))
    known, codes = np.unique(list(map(spelled, labels.words)), return_inverse=True)
    return CodedLabels(known.tolist(), codes.astype(labels.codes.dtype)[labels.codes])


def _counts(labels: Any) -> dict[str, int]:
    """How many rows have each label."""
    return labels.counts() if hasattr(labels, "counts") else Counter(labels.tolist())


def _named(counts: dict[str, int], words: Any) -> str:
    named = ", ".join(f"{word[:60]!r} ({counts[word]})" for word in words[:_MOST_WORDS])
    return f"{named}{', ...' if len(words) > _MOST_WORDS else ''}"


def _number(word: str) -> float | None:
    """The finite number that a label is; None for other labels."""
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in word else None


def _plainly(word: str) -> str:
    """The label in lower case; a whole number as 1, however it is written."""
    number = _number(word)
    return word.lower() if number is None else f"{number:g}"


# ---------------------------------------------------------------------------------------------------------------------
# From the options of a command to pairs, labels and predictions.


_OF_FIT = ("comparison_noise", "max_time", "checkpoint")  # options that are no parameters of a learner
_ROWS_WRITTEN = 1 << 17  # at a time


def _read_labelled(
    session: Session, files: options.Files, columns: options.Columns, learning: options.Learning
) -> tuple[Pairs, tuple[str, ...], Source]:
    """Read pairs with their labels, and which labels there are from closest to farthest; or comparisons."""
    from closefar.tables import read_or_open_pairs

    source = files.source()
    table = session.read(read_or_open_pairs, source, labelled=True, **columns.given)
    if table.are_comparisons:
        return table, (), source
    levels, counts = learning.levels, _counts(table.labels)
    if levels is None and learning.far is None:
        used = tuple(answer for answer in files.recorded_answers or () if answer in counts)
        levels = used if len(used) > 1 else None
    if levels is not None or len(counts) > 2:
        table = table.with_labels(_spelled_alike(table.labels, levels or ()))
    words = _words_in_order(_counts(table.labels), learning.far, levels)
    if len(words) > 2:
        order = f"{len(words)} levels: {_in_order(words)}."
        reverse = f" If they rate similarity, reverse them with --levels {','.join(reversed(words))}."
        session.warn(order if levels else order + reverse)  # unless somebody has put them in order
    return table, words, source


def _in_order(levels: tuple[str, ...]) -> str:
    first, *middle, last = levels
    return ", ".join([f"{first} (closest)", *middle, f"{last} (farthest)"])


def _load(path: Path) -> Model:
    from closefar.learners import Model

    return Model.load(path)


def _read_for_model(
    session: Session, path: Path, files: options.Files, new_data: options.NewData, *, labelled: bool
) -> tuple[Model, Pairs]:
    """Read a model, and pairs or comparisons as those of its fit were read."""
    from closefar.tables import read_or_open_pairs

    model = _load(path)
    source = model.source(files.source())
    if files.are_single != model.is_single:
        need = "single points: use --points alone" if model.is_single else "pairs: use --pairs, usually with --points"
        if not model.is_single and not model.metric.thresholds:
            need = "comparisons: use --comparisons with --points"
        raise ValueError(f"the model was fitted to {need}.")
    table = session.read(read_or_open_pairs, source, encoding=new_data.encoding_of(model), labelled=labelled)
    if labelled and len(model.classes) > 2 and not table.are_comparisons:
        table = table.with_labels(_spelled_alike(table.labels, model.classes))
    return model, table


def _fit_learner(session: Session, table: Pairs, words: tuple[str, ...], learning: options.Learning) -> MetricLearner:
    """Fit to a table of pairs or comparisons."""
    from closefar.judgements import Tuples
    from closefar.tables import labels_of, others_of

    learner = learning.learner(words, verbose=session.is_watched)
    # The learner finds points that pairs share, so that the same judgements give the same metric in Python; not those
    # that only ids tell.
    groups = None if isinstance(table.data, Tuples) else _shared_ids(table)
    if table.groups is not None:
        groups = table.groups.astype(str)
    others = {"feature_names": table.encoding.feature_names, **others_of(table)}
    others |= {name: given for name, given in vars(learning).items() if name in _OF_FIT and given is not None}
    with session.stage("fitting", shows_itself=True):
        learner.fit(table.data, labels_of(table), table.weights, groups=groups, **others)
    return learner


def _shared_ids(table: Pairs, rows: Any = slice(None)) -> NDArray[Any] | None:
    """The points of these pairs by their ids, where pairs share points."""
    from closefar.judgements import share_points

    points = table.identity.codes[rows] if len(table.id_names) > 1 else None
    return points if share_points(points) else None


def _dependent(table: Pairs, used: Judgements | None = None) -> NDArray[Any] | None:
    """Which pairs, or which of some, depend on each other: those of a group, or that share points by ids or values."""
    from closefar.judgements import find_points

    rows = slice(None) if used is None else used.numbers
    if table.groups is not None:
        return table.groups[rows].astype(str)
    points = _shared_ids(table, rows)
    return points if points is not None else find_points(table.data if used is None else used.data)


def _groups_of(session: Session, table: Pairs, remedy: str = "cross-validation is by point") -> NDArray[Any] | None:
    """Which pairs depend on each other; a note says that they share points, and what is done about it."""
    points = _dependent(table)
    if points is not None and table.groups is None:
        noun = "comparisons" if table.are_comparisons else "pairs"
        session.warn(
            f"these {len(points):,} {noun} have only {numbered(points)[1]:,} different points, so they are not "
            f"independent: {remedy}. If {noun} depend on each other in another way, name the column of their groups "
            "with --group."
        )
    return points


def _squared_distances(table: Pairs, model: Model) -> FloatArray:
    """The squared distance of each pair, which must be a number."""
    with np.errstate(all="ignore"):
        squared = model.metric.measure(table.data if table.is_single else table)
    beyond = np.flatnonzero(~np.isfinite(squared))
    if len(beyond):
        first = ", ".join(np.atleast_1d(table.ids[beyond[0]]).tolist())
        raise ValueError(f"the distance of {first} is too large to compute. Look for enormous values there.")
    return squared


def _with_ids(
    table: Pairs, columns: dict[str, NDArray[Any]], order: NDArray[Any] | None = None
) -> Iterator[dict[str, NDArray[Any]]]:
    """Put the ids before the columns of a result; gives some rows at a time, in this order if there is one."""
    names = table.id_names
    clash = [name for name in names if name in columns]
    if clash:
        raise ValueError(f"the id column {clash[0]!r} has the name of a column of the result. Rename it.")
    n_rows = len(next(iter(columns.values()))) if order is None else len(order)
    for start in range(0, max(n_rows, 1), _ROWS_WRITTEN):
        rows = slice(start, start + _ROWS_WRITTEN)
        where: Any = rows if order is None else order[rows]
        ids = table.identity.take(where).texts
        block = dict(zip(names, ids.reshape(len(ids), -1).T, strict=True))
        yield block | {name: np.asarray(column[where]) for name, column in columns.items()}


def _scored_by(model: Model, table: Pairs) -> Scores:
    """The judgements of a table, scored by the model; annotators whom it knows have their own strictness."""
    from closefar.judgements import Columns, Judgements, Sides
    from closefar.tables import labels_of

    columns, given = Columns(len(table.encoding.feature_names)), (table.data, labels_of(table), table.weights)
    if table.are_comparisons:
        return model.scorer().score(Judgements.read_comparisons(columns, *given, fitting=False))
    if not model.classes:
        raise ValueError(
            "the model was fitted to comparisons, so it has no threshold by which pairs could be called close or far. "
            "Give --comparisons, or fit a threshold with calibrate_threshold in Python."
        )
    squared, others = _squared_distances(table, model), list[str]()
    people: dict[str, Any] = {}
    if table.annotators is not None and model.annotators:
        others = sorted(set(table.annotators) - set(model.annotators))
        people = {"annotators": table.annotators, "known_annotators": (*model.annotators, *others)}
    judgements = Judgements.read(columns, *given, sides=Sides.in_order(model.classes), **people)
    return model.scorer(len(others)).score(judgements, squared)


def _report_of(
    session: Session,
    learner: Fit | MetricLearner,
    path: Path,
    table: Pairs,
    *judged: Any,
    files: options.WeightedFiles,
    model: Path,
    title: str | None,
) -> bytes:
    """The content of a report, which names the files behind it; `judged` as for `encode_report`."""
    from closefar.report import Provenance, encode_report

    points, pairs, comparisons, judgements = (None if path is None else str(path) for path in files.paths)
    provenance = Provenance(points, pairs, str(model), table.encoding.categories, comparisons, judgements)
    groups = _groups_of(session, table, *(["intervals are wider for it"] if judged else []))
    ids = table.ids if hasattr(table, "points") or table.id_names != ("row",) else None  # a file has many row numbers
    about = {"title": title, "provenance": provenance, "ids": ids, "groups": groups}
    with session.stage("report"):
        return encode_report(learner, named(path, REPORT), *judged, **about)


def _metric_facts(model: Model) -> dict[str, Any]:
    """What programs are told of a metric: its directions 1, 2, ... each with how much it weighs, and so on."""
    metric, found = model.metric, model.metric.directions()
    value = "mean_squared_distance" if found.is_data_scale else "eigenvalue"
    rows = zip(found.values.tolist(), found.shares.tolist(), metric.components.tolist(), strict=True)
    return {
        "feature_names": model.encoding.feature_names,
        "kind": model.kind,
        "classes": model.classes,
        "threshold": metric.threshold,
        "thresholds": metric.thresholds,
        "rank": metric.rank,
        "directions": [
            {"direction": number, value: size, "share": share, "weights": weights}
            for number, (size, share, weights) in enumerate(rows, start=1)
        ],
        "eigenvalues": metric.eigenvalues,
        "noise": metric.noise.name,
        "flip_rate": metric.flip_rate,
    }


# ---------------------------------------------------------------------------------------------------------------------
# ``closefar fit``: from judgements to a model.


# The noise is checked on a sample where that saves time (work is about pairs times squared parameters), and not at
# all where that leaves too few uncertain labels per parameter.
_MOST_CHECKED = 10_000  # judgements, of which a wrong noise is plain
_LITTLE_WORK = 1e9  # about a second of one core
_SHARE_OF_FIT = 0.3  # of the work of the fit, which a check may add
_FEWEST_TO_CHECK = 5.0  # uncertain labels per parameter

_MOST_ANNOTATORS = 10  # named in one line

_SIGNIFICANT = 0.01  # a p-value below this is warned of, so that few right models are


def fit(
    files: options.WeightedFiles,
    columns: options.Columns,
    learning: options.LongLearning,
    session: WritingSession,
    out: Path = option("The model file to write.", "FILE", "--out", "-o", default=Path("model.closefar")),
    report: Path | None = option("Also write a report: .html, .json, .txt or .md.", "FILE"),
    title: str | None = options.REPORT_TITLE,
) -> None:
    """Learn a metric from labelled or rated pairs, from comparisons, or from both, and save it as a model.

    closefar fit --points points.csv --pairs pairs.csv --report report.html
    """
    if report is None and title is not None:
        raise ValueError("--title is the headline of a report. Add --report, or leave --title out.")
    learning.check(files)
    outputs = [path for path in (out, report, learning.checkpoint) if path is not None]
    session.check(outputs, read=files.paths, continued=learning.checkpoint)
    if report is not None:
        from closefar.report import check_report

        check_report(named(report, REPORT))
    session.checkpoint = learning.checkpoint
    table, words, source = _read_labelled(session, files, columns, learning)
    learner = _fit_learner(session, table, words, learning)
    _warn_of_annotators(session, learner)
    _warn_of_noise(session, learner, table)

    from closefar.learners import Model

    model = Model.of(learner, table, source)
    contents = {out: model.to_bytes()}
    if report is not None:
        contents[report] = _report_of(session, learner, report, table, files=files, model=out, title=title)
    session.unfinished = not learner.certificate_.converged
    session.finish(contents, f"{model.summary}\n", n_pairs=len(table), **_fit_facts(model, learner))


def _fit_facts(model: Model, learner: MetricLearner) -> dict[str, Any]:
    fit, certificate = learner.fit_, learner.certificate_
    choice = baseline = None
    if fit.choice is not None:  # the plain distance alone has no alpha
        table = [each._asdict() for each in fit.choice.table]
        choice = {**to_jsonable(fit.choice), "table": table, "sentence": command_words(fit.choice.sentence)}
    if fit.baseline is not None:
        baseline = to_jsonable(replace(fit.baseline, metric=None))
        del baseline["metric"]
        baseline |= {"is_better": fit.baseline.is_better, "sentence": fit.baseline.sentence}
    return {
        **_metric_facts(model),
        "comparison_noise": fit.comparison_noise,
        "annotators": None if fit.annotators is None else fit.annotators.to_dict(),
        "alpha": fit.alpha,
        "prior": fit.prior,
        "choice": choice,
        "baseline": baseline,
        "engine": fit.engine,
        "certificate": {**to_jsonable(certificate, is_command_line=True), "status": command_words(certificate.status)},
        "statistics": fit.statistics,
    }


def _warn_of_annotators(session: Session, learner: MetricLearner) -> None:
    """Name those whose answers say little of the distance, with the remedy."""
    from closefar.fitting import AnnotatorVerdict

    table = learner.fit_.annotators
    if table is None:
        return
    remedy = "Leave such judgements out, or use --flip-rate estimate, by which they count less."
    if table.flip_rates is not None:
        remedy = "Such judgements count less, by their flip rate; leave them out if they should not count at all."
    for verdict in AnnotatorVerdict:
        names = table.named(verdict)
        if verdict.is_doubtful and names:
            session.warn(f"{_first_few(names)}: {verdict}. {remedy}")


def _first_few(annotators: Sequence[str], hint: str = "") -> str:
    more = len(annotators) - _MOST_ANNOTATORS
    return ", ".join(annotators[:_MOST_ANNOTATORS]) + (f" and {more:,} more{hint}" if more > 0 else "")


def _warn_of_noise(session: Session, learner: MetricLearner, table: Pairs) -> None:
    """Warn, with the remedy, if the labels clearly contradict the noise model."""
    from closefar.questions import check_noise_if_possible

    fit = learner.fit_
    statistics, judgements = fit.statistics, fit.training().counted()
    work = max(_LITTLE_WORK, _SHARE_OF_FIT * fit.certificate.n_passes * len(judgements) * judgements.n_columns**2)
    used = judgements.sample(int(min(work / statistics.n_parameters**2, _MOST_CHECKED)), seed=0)
    if statistics.uncertain_per_parameter * len(used) < _FEWEST_TO_CHECK * len(judgements):
        return
    with session.stage("checking the noise model"):
        groups = _dependent(table, used)
        check = check_noise_if_possible(fit, used, np.arange(len(used)) if groups is None else groups)
    if check is not None and check.p_value < _SIGNIFICANT:
        advice = command_words(check.advice)
        session.warn(advice[:1].lower() + advice[1:])


# ---------------------------------------------------------------------------------------------------------------------
# ``closefar classes``: from points with class labels to metrics, and to the labels that are probably wrong.


_N_SHOWN = 10  # suspicious class labels, in one screen
_MOST_INNOCENT = 0.5  # a label that is rather right than wrong is not shown


Units = StrEnum("Units", ["auto", "columns", "shared"])


def classes(
    columns: options.Columns,
    session: WritingSession,
    points: options.Points,
    label: str | None = option("Column of class labels. Default: 'label' or 'labels'.", "COLUMN"),
    decimal: str | None = option(*options.DECIMAL),
    wrong_share: float | str = option(
        "Share of wrong labels, or estimate; 0 trusts all labels.",
        "SHARE",
        default="estimate",
        rule=number(float, "estimate"),
    ),
    units: Units = option(
        "Plain distance of neighbours: each column in its own unit, or all in one; auto tries both.", default=Units.auto
    ),
    out: Path = option(
        "The model of pairs to write, for `closefar predict`.", *("FILE", "--out", "-o"), default=Path("model.closefar")
    ),
    neighbours: Path | None = option("Also write the metric of nearest neighbours, for `closefar transform`.", "FILE"),
    suspicious: Path | None = option(
        "Also write all labels, most suspicious first: .csv, .tsv, .parquet, .npz.", "FILE"
    ),
) -> None:
    """Learn from points with class labels, and find labels that are probably wrong.

    The model of pairs predicts whether two points are of one class (-1) or not (1).

    closefar classes --points points.csv --label species --neighbours neighbours.closefar
    """
    files = options.Files(**vars(points), label=label, decimal=decimal, no_annotators=True)
    session.check([path for path in (out, neighbours, suspicious) if path is not None], read=files.paths)
    from closefar.tables import encode_table, labels_of, read_pairs, write_table

    if suspicious is not None:
        encode_table({}, named(suspicious, TABLE))  # says if its format is unknown, or a package is missing
    table = session.read(read_pairs, files.source(), labelled=True, **columns.given)
    table = table.with_labels(labels_of(table).astype(str))
    from closefar.learners import ClassMetricLearner, Model

    learner = ClassMetricLearner(wrong_share=wrong_share, units=units.value, verbose=int(session.is_watched))
    with session.stage("fitting", shows_itself=True):
        learner.fit(table.data, table.labels, feature_names=table.encoding.feature_names)
    of_pairs = replace(Model.of(learner.pair_learner_, table, files.source()), is_single=False)
    contents: dict[Path, Any] = {out: of_pairs.to_bytes()}
    if neighbours is not None:
        names = {"id": points.id, "na_values": points.na_values, "decimal": decimal}
        contents[neighbours] = Model(learner.neighbour_metric_, (), table.encoding, names, False, None).to_bytes()
    if suspicious is not None:
        contents[suspicious] = lambda file: write_table(_suspicious(learner, table), named(suspicious, TABLE), file)
    session.unfinished = not learner.pair_learner_.certificate_.converged
    rows = records(next(_suspicious(learner, table, _N_SHOWN)))
    shown = [
        " ".join(f"{name} {_cell(value)}" for name, value in row.items())
        for row in rows
        if row["probability_wrong"] > _MOST_INNOCENT
    ]
    low, high = learner.wrong_share_interval_
    found = f"Wrong class labels: {learner.wrong_share_:.1%} of {len(table):,} (90 % interval {low:.1%} to {high:.1%})."
    if shown:
        found += " The most suspicious:"
    session.finish(
        contents,
        "\n".join([command_words(learner.pair_learner_.summary()), found, *shown, ""]),
        n_points=len(table),
        classes=learner.classes_,
        feature_names=table.encoding.feature_names,
        wrong_share=learner.wrong_share_,
        wrong_share_interval=learner.wrong_share_interval_,
        most_suspicious=rows,
        threshold=learner.metric_.threshold,
        rank=learner.metric_.rank,
        neighbour_rank=learner.neighbour_metric_.rank,
    )


def _suspicious(learner: ClassMetricLearner, table: Pairs, n_rows: int | None = None) -> Iterator[dict[str, Any]]:
    order = (-learner.wrong_probability_).argsort(kind="stable")[:n_rows]
    columns = {
        "class": np.asarray(table.labels),
        "probability_wrong": learner.wrong_probability_,
        "probable_class": learner.corrected_classes_,
    }
    return _with_ids(table, columns, order)


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------------------------------------------------------------
# ``closefar label-errors`` and ``closefar sample-size``: questions about labelled pairs.


_SEEDS = 2**32  # of NumPy
_LEAST_ERROR = 1e-12  # a target below what rounding leaves would ask for more pairs than can be counted


Measure = StrEnum("Measure", ["loss", "spectral"])


def label_errors(
    files: options.WeightedFiles,
    columns: options.Columns,
    learning: options.PenalisedLearning,
    session: WritingSession,
    out: Path | None = option(
        "Write all labels, most suspicious first: .csv, .csv.gz, .tsv, .parquet or .npz.", "FILE", "--out", "-o"
    ),
    top: int = option("Number of suspicious labels to show.", "N", default=10, rule=number(int, least=1)),
    seed: int = option(
        "Random seed of the cross-validation folds.", "N", default=0, rule=number(int, least=0, below=_SEEDS)
    ),
) -> None:
    """Find labels, levels or answers that contradict the learned distance, and estimate how many are wrong.

    closefar label-errors --points points.csv --pairs pairs.csv --out suspicious.csv
    """
    learning.check(files)
    if out is not None:
        session.check_table(out, read=files.paths)
    table, words, _ = _read_labelled(session, files, columns, learning)
    learner = learning.learner(words, verbose=False)
    groups = _groups_of(session, table)
    from closefar.judgements import most_folds
    from closefar.questions import find_label_errors
    from closefar.tables import labels_of, others_of

    given = (table.data, labels_of(table))
    if groups is not None and most_folds(2, learner.read(*given, table.weights), groups, seed=0) < 2:
        session.warn(
            "cross-validation is by pair after all, as no folds keep groups or points apart: results hold for new "
            "pairs of the same points or groups, and may be worse for others."
        )
    with session.stage("cross-validating"):
        options = {"sample_weight": table.weights, "groups": groups, "random_state": seed, **others_of(table)}
        errors = find_label_errors(learner, *given, **options)
    if out is not None:
        session.write_table(_contradicting(table, errors, errors.order), len(table), out)
        return
    shown = next(_contradicting(table, errors, errors.order[:top]))
    shares = ("share", "share_low", "share_high", "unseen_share", "unseen_low", "unseen_high")  # None: not claimed
    names = (*shares, "reason", "meaning", "n_contradicting")
    facts = {"n_labels": len(errors.labels), **{name: getattr(errors, name) for name in names}}
    rows = records(shown)
    text = format_table([(name, "") for name in shown], [[_cell(value) for value in row.values()] for row in rows])
    session.show(f"{command_words(errors.headline())}\n{text}", {**facts, "most_suspicious": rows})


def _contradicting(table: Pairs, errors: LabelErrors, order: NDArray[Any]) -> Iterator[dict[str, NDArray[Any]]]:
    """The labels in this order, some at a time; beside a level stands the one that is expected."""
    columns = {} if table.annotators is None else {"annotator": table.annotators}
    columns["label"] = errors.labels.astype(int) if table.are_comparisons else errors.labels
    if errors.expected is not None:
        columns["expected"] = errors.expected
    columns |= {"probability_wrong": errors.probability, "margin": errors.margin, "standard_error": errors.error}
    return _with_ids(table, columns, order)


def sample_size(
    files: options.Files,
    columns: options.Columns,
    learning: options.Learning,
    session: Session,
    target_error: float = option(
        "The error to reach.", "ERROR", default=..., rule=number(float, least=_LEAST_ERROR), typed=str
    ),
    measure: Measure = option(
        "Error to plan for: the excess loss per label (nats), or the relative error of M / tau.", default=Measure.loss
    ),
    delta: float = option(
        "Accepted probability of missing the target error.",
        "PROBABILITY",
        default=0.05,
        rule=number(float, above=0, below=1),
    ),
) -> None:
    """Plan how many pairs or comparisons to judge for a target error, from a pilot study.

    closefar sample-size --points points.csv --pairs pilot.csv --target-error 0.01
    """
    learning.check(files)
    table, words, _ = _read_labelled(session, files, columns, learning)
    learner = _fit_learner(session, table, words, learning)
    from closefar.questions import plan_sample_size

    with session.stage("planning"):
        plan = plan_sample_size(learner, target_error=target_error, measure=measure, delta=delta)
    sentence = command_words(plan.sentence)
    session.show(sentence, {**to_jsonable(plan), "sentence": sentence})


# ---------------------------------------------------------------------------------------------------------------------
# The commands on a saved model: ``inspect``, ``truncate`` and ``export``.


_MODEL = argument("MODEL", "A model written by `closefar fit`.")


Scale = StrEnum("Scale", ["data", "units"])


def inspect(session: Session, model: Path = _MODEL) -> None:
    """Show what is in a model.

    closefar inspect model.closefar
    """
    loaded = _load(model)
    metric, encoding, classes = loaded.metric, loaded.encoding, loaded.classes
    if loaded.summary:
        lines = [loaded.summary]
    else:
        from closefar.questions import describe_directions

        lines = [repr(metric), *describe_directions(metric)]
    if loaded.truncated is not None:
        lines.append(f"Truncated from rank {loaded.truncated['rank']}")
    if not classes:
        lines.append("Answers   comparisons, which determine no threshold")
    elif len(classes) > 2:
        lines.append(f"Levels    {_in_order(classes)}")
    else:
        lines.append(f"Labels    {classes[0]!r} means close, {classes[-1]!r} means far")
    if loaded.annotators:
        shown = [f"{name} {strictness:+.3g}" for name, (strictness, _) in loaded.annotators.items()]
        lines.append(f"Annotators and their strictness: {_first_few(shown, ' (--json lists all)')}")
    lines.append(f"Columns   {', '.join(encoding.column_names)}")
    if encoding.feature_names != encoding.column_names:
        lines.append(f"Encoded   {', '.join(encoding.feature_names)}")
    if metric.origin is not None:
        origin = zip(encoding.feature_names, metric.origin, strict=True)
        lines.append(f"Origin    {', '.join(f'{name} {value:.5g}' for name, value in origin)}")
    session.show("\n".join(lines), _model_facts(loaded))


def truncate(
    session: WritingSession,
    model: Path = _MODEL,
    rank: int = option(
        "Number of directions to keep.", "K", "--rank", "-k", default=..., rule=number(int, least=1), typed=str
    ),
    out: Path = option("The model file to write.", "FILE", "--out", "-o", default=...),
    scale: Scale | None = option(
        "Compare directions in the scale of the data or in raw units. Default: data, where known."
    ),
) -> None:
    """Keep directions 1 to k of a metric, those that explain most of the mean squared distance.

    closefar truncate model.closefar --rank 2 --out small.closefar
    """
    session.check([out], read=[model])
    loaded = _load(model)
    small = loaded.truncate(rank, scale)
    kept, before = small.metric.rank, loaded.metric.rank
    session.finish({out: small.to_bytes()}, f"Kept {kept} of {before} directions. ", rank=kept, rank_before=before)


def export(
    session: WritingSession,
    model: Path = _MODEL,
    out: Path = option("The file to write: .onnx, .faiss, .csv, .json or .npz.", "FILE", "--out", "-o", default=...),
) -> None:
    """Export a metric to other software, in the format of the file name.

    .onnx: distances and probabilities for any ONNX runtime. .faiss: an empty index to add points to.
    .csv: the matrix M. .json: everything. .npz: the arrays.

    closefar export model.closefar --out model.onnx
    """
    suffix = out.suffix.lower()
    if suffix not in _FORMATS:
        raise ValueError(f"--out must end with {', '.join(_FORMATS)}; got {out.name!r}.")
    session.check([out], read=[model])
    loaded = _load(model)
    with session.stage("exporting"):
        content = _exported(loaded, suffix)
    session.finish({out: content})


_FORMATS = (".onnx", ".faiss", ".csv", ".json", ".npz")


def _exported(model: Model, suffix: str) -> bytes:
    """The metric of a model in the format of a suffix."""
    from closefar.tables import encode_table

    metric, names = model.metric, np.array(model.encoding.feature_names)
    if suffix == ".onnx":
        return bytes(metric.to_onnx().SerializeToString())
    if suffix == ".faiss":
        index = metric.to_faiss()  # says if the package is missing
        import faiss

        return bytes(faiss.serialize_index(index))
    if suffix == ".json":
        return (json.dumps(to_jsonable(_model_facts(model), finite=True), indent=1) + "\n").encode()
    if suffix == ".csv":
        return encode_table({"": names, **dict(zip(names.tolist(), metric.matrix.T, strict=True))}, Path("matrix.csv"))
    threshold = np.array(metric.thresholds if metric.threshold is None else metric.threshold)
    arrays = {name: getattr(metric, name) for name in ("matrix", "components", "factor", "origin")}
    arrays |= {"threshold": threshold, "feature_names": names}
    return encode_table({name: array for name, array in arrays.items() if array is not None}, Path("arrays.npz"))


def _model_facts(model: Model) -> dict[str, Any]:
    metric = model.metric
    return {
        **_metric_facts(model),
        "single_points": model.is_single,
        "comparison_noise": model.comparison_noise,
        "annotators": {name: strictness for name, (strictness, _) in model.annotators.items()},
        "factor": metric.factor,
        "matrix": metric.matrix,
        "origin": metric.origin,
        "encoding": model.encoding.to_json(),
        "fit": model.fit and {name: value for name, value in model.fit.items() if name != "summary"},
        "truncated": model.truncated and {"rank": model.truncated["rank"]},
    }


# ---------------------------------------------------------------------------------------------------------------------
# ``closefar predict`` and ``closefar transform``: a model applied to new data.


def predict(
    files: options.WeightedFiles,
    new_data: options.NewData,
    session: WritingSession,
    model: Path = options.MODEL_FILE,
    out: Path | None = options.TABLE_FILE,
    for_annotator: str | None = option(
        "Predict the labels of this annotator, instead of those of a typical one.", "ID"
    ),
) -> None:
    """Predict distances and probabilities of labels for new pairs, or of answers for new comparisons.

    closefar predict --model model.closefar --points points.csv --pairs new_pairs.csv --out predicted.csv
    """
    session.check_table(out, read=[*files.paths, model])
    loaded, table = _read_for_model(session, model, files, new_data, labelled=False)
    session.write_table(_predictions(session, loaded, table, for_annotator), len(table), out)


def transform(
    points: options.Points,
    new_data: options.NewData,
    session: WritingSession,
    model: Path = options.MODEL_FILE,
    out: Path | None = options.TABLE_FILE,
    decimal: str | None = option(*options.DECIMAL),
) -> None:
    """Map points to coordinates in which the learned distance is Euclidean.

    Directions are in order of the mean squared distance that each explains on the training pairs.

    closefar transform --model model.closefar --points points.csv --out mapped.csv
    """
    files = options.Files(**vars(points), decimal=decimal)
    session.check_table(out, read=[points.points, model])
    from closefar.tables import read_or_open_points

    loaded = _load(model)
    source, encoding = loaded.source(files.source()), new_data.encoding_of(loaded)
    table = session.read(read_or_open_points, source, encoding=encoding)
    mapped = table.projected(loaded.metric.components.T)
    columns = {f"direction{index}": column for index, column in enumerate(mapped.T, start=1)}
    session.write_table(_with_ids(table, columns), len(mapped), out)


def _predictions(
    session: Session, model: Model, table: Pairs, annotator: str | None
) -> Iterator[dict[str, NDArray[Any]]]:
    """Give the columns of a prediction, some rows at a time: the ids, distances, probabilities and the label."""
    from closefar.judgements import CodedLabels
    from closefar.tables import PairTable

    metric, columns = model.metric, dict[str, Any]()
    if table.comparisons is not None:
        raise ValueError("predictions are of --pairs or of --comparisons; got both. Leave one of them out.")
    if table.are_comparisons:
        if annotator is not None:
            raise ValueError(
                "annotators differ in their thresholds, and comparisons have none. Leave --for-annotator out."
            )
        assert isinstance(table, PairTable)
        left, right = (_squared_distances(leg, model) for leg in table.legs)
        columns = {"distance_left": np.sqrt(left), "distance_right": np.sqrt(right), "margin": right - left}
        columns["probability_left"] = metric.probability_as_given((right - left) / model.comparison_noise)
        columns["predicted"] = np.where(right >= left, 1, -1)
        return _with_ids(table, columns)
    squared = _squared_distances(table, model)
    columns["distance"] = np.sqrt(squared)
    if not metric.thresholds:
        session.warn(
            "the model has no threshold, as it was fitted to comparisons, so distances are all that it says of pairs; "
            "calibrate_threshold fits one to labelled pairs in Python."
        )
        return _with_ids(table, columns)
    strictness, rate = (0.0, None) if annotator is None else model.annotator(annotator)
    heard = squared - strictness
    probabilities = metric.probabilities_at(heard, rate).T
    if len(model.classes) > 2:
        columns |= {f"probability_{level}": each for level, each in zip(model.classes, probabilities, strict=True)}
    else:
        columns |= {"margin": heard - metric.thresholds[0], "probability_far": probabilities[-1]}
    columns["predicted"] = CodedLabels(model.classes, metric.levels_at(heard))
    return _with_ids(table, columns)


# ---------------------------------------------------------------------------------------------------------------------
# ``closefar evaluate`` and ``closefar report``: a model against labelled pairs.


def evaluate(
    files: options.WeightedFiles, new_data: options.NewData, session: Session, model: Path = options.MODEL_FILE
) -> None:
    """Measure the accuracy of a model on labelled pairs or comparisons, preferably ones it was not fitted to.

    The plain distance, with the threshold that suits the training pairs best, is measured beside it.

    closefar evaluate --model model.closefar --points points.csv --pairs test_pairs.csv
    """
    loaded, table = _read_for_model(session, model, files, new_data, labelled=True)
    if loaded.is_fitted_to(table):
        what = "comparisons" if table.are_comparisons else "pairs"
        session.warn(f"these are the training {what} of the model: expect a somewhat lower accuracy on new {what}.")
    figures = _figures(loaded, table, None if loaded.fit is None else loaded.learner().fit_)
    readings = [each["plain"]["reading"] for each in (figures, figures.get("comparisons")) if each and each["plain"]]
    rows = [f"{name:<28}{value}" for name, value in _rows(figures)]
    session.show("\n".join([*rows, *dict.fromkeys(filter(None, readings))]), figures)


def report(
    files: options.WeightedFiles,
    new_data: options.NewData,
    session: WritingSession,
    model: Path = options.MODEL_FILE,
    out: Path = option(
        "The report to write: .html, .json, .txt or .md.", "FILE", "--out", "-o", default=Path("report.html")
    ),
    title: str | None = options.REPORT_TITLE,
) -> None:
    """Write a report on a model and its accuracy on labelled pairs or comparisons.

    On those that it was fitted to, accuracy is cross-validated.

    closefar report --model model.closefar --points points.csv --pairs pairs.csv --out report.html
    """
    session.check([out], read=[*files.paths, model])
    from closefar.report import check_report
    from closefar.tables import labels_of

    check_report(named(out, REPORT))
    loaded, table = _read_for_model(session, model, files, new_data, labelled=True)
    if table.are_comparisons and loaded.classes:
        raise ValueError(
            "the report of a model that was fitted to pairs is about pairs; got --comparisons alone. Give --pairs, "
            "or measure the agreement with comparisons by closefar evaluate."
        )
    _scored_by(loaded, table)
    fit = loaded.fit_on(table)
    pairs = (table.data, labels_of(table), table.weights) if fit.judgements is None else ()
    content = _report_of(session, fit, out, table, *pairs, files=files, model=model, title=title)
    session.finish({out: content}, n_pairs=len(table))


def _figures(model: Model, table: Pairs, fit: Fit | None) -> dict[str, Any]:
    """Return the figures, weighted as the judgements are; `confusion` counts pairs.

    The accuracy of comparisons is the share that the metric agrees with; a guess agrees with half of them.  `plain` is
    the plain distance, for a model that remembers it: one for which settings were chosen.
    """
    scored: Any = _scored_by(model, table)
    plain = None if fit is None else _plain_distance(fit, scored, table)
    common = {"accuracy": scored.accuracy, "loss": scored.loss, "plain": plain}
    if table.are_comparisons:
        return {"n_comparisons": len(scored), "baseline": 0.5, **common}
    figures = {"n_pairs": len(scored), "baseline": scored.majority, "auc": scored.auc, **common}
    figures["classes"] = model.classes
    figures["confusion"] = scored.confusion(np.ones(len(scored))).astype(int).tolist()
    if len(model.classes) > 2:
        figures["mean_error"] = scored.judgements.mean(np.abs(scored.predicted - scored.judgements.codes))
    if table.comparisons is not None:
        figures["comparisons"] = _figures(model, table.comparisons, fit)
    return figures


def _plain_distance(fit: Fit, scored: Scores, table: Pairs) -> dict[str, Any] | None:
    """The figures of the plain distance on the same judgements, and by how much the model is better."""
    from closefar.fitting import Scorer
    from closefar.judgements import variance_of_sum

    if fit.baseline is None or fit.baseline.metric is None:
        return None
    judgements = scored.judgements
    plain = Scorer(fit.baseline.metric, comparison_noise=fit.relative_noise).score(judgements)
    difference, shares = plain.losses - scored.losses, judgements.weights / judgements.weights.sum()
    gain = float(shares @ difference)
    error = float(variance_of_sum((difference - gain) * shares, _dependent(table, judgements)) ** 0.5)
    return {
        "distance": fit.baseline.plain,
        "accuracy": plain.accuracy,
        "loss": plain.loss,
        "gain": gain,
        "standard_error": error,
        "reading": _reading(gain, error, is_plain=fit.choice is not None and fit.choice.is_plain),
    }


def _reading(gain: float, error: float, *, is_plain: bool) -> str:
    """A sentence where the model is not better than the plain distance by two standard errors of its loss."""
    if is_plain:
        return "The model is the plain distance with a fitted threshold: no learned metric was clearly better."
    if gain > 2.0 * error:
        return ""
    return f"The model is not {'clearly ' if gain > 0.0 else ''}better than the plain distance on these judgements."


def _rows(figures: dict[str, Any]) -> list[tuple[str, str]]:
    plain, words = figures["plain"], figures.get("classes", ())
    kind, n, accuracy, guessed, unit = "Pairs", figures.get("n_pairs"), "Accuracy", "Majority baseline", "label"
    if n is None:
        kind, n, accuracy = "Comparisons", figures["n_comparisons"], "Agreement"
        guessed, unit = "Agreement of guesses", "answer"
    rows = [(kind, f"{n:,}"), (accuracy, f"{figures['accuracy']:.4f}"), (guessed, f"{figures['baseline']:.4f}")]
    if plain is not None:
        rows.append((f"{accuracy}, plain distance", f"{plain['accuracy']:.4f} ({plain['distance']})"))
    if "auc" in figures:
        rows.append(("Area under the ROC curve", "-" if figures["auc"] is None else f"{figures['auc']:.4f}"))
    rows.append((f"Loss (nats per {unit})", f"{figures['loss']:.6f}"))
    if plain is not None:
        rows.append(("Loss, plain distance", f"{plain['loss']:.6f} ({plain['distance']})"))
    if "mean_error" in figures:
        rows.append(("Mean error (levels)", f"{figures['mean_error']:.4f}"))
    for word, counts in zip(words, figures.get("confusion", ()), strict=True):
        predicted = ", ".join(f"{count:,} predicted {other!r}" for other, count in zip(words, counts, strict=True))
        rows.append((f"Labelled {word!r}", predicted))
    return rows + (_rows(figures["comparisons"]) if "comparisons" in figures else [])


# ---------------------------------------------------------------------------------------------------------------------
# ``closefar demo``: something to look at, or files to try the other commands on.


_N_NEW = 500  # pairs of new_pairs.csv
_LEAVES = Path("closefar-label-demo")
_INSTRUCTIONS = (
    "Look at shape, size and colour, and answer by your first impression: close if the two leaves could be from the "
    "same tree, far if not. There is no right answer: the metric learns what you look at."
)


def demo(
    session: WritingSession,
    files: bool = option(
        "Write points.csv, pairs.csv, new_pairs.csv, ratings.csv, triplets.csv and annotated.csv, to try the other "
        "commands on.",
        default=False,
    ),
    label: bool = option(
        "Judge pictures of leaves in the browser, as with `closefar label`, in closefar-label-demo.", default=False
    ),
    no_browser: bool = option("With --label: do not open a browser.", default=False),
) -> None:
    """Learn a metric from simulated noisy pairs and write report.html, or write example files, or judge pictures.

    closefar demo --files
    """
    if files and label:
        raise ValueError("--files and --label are two demonstrations. Leave one of them out.")
    if label:
        _judge_leaves(session, no_browser)
    elif files:
        contents = _example_files()
        session.check(contents)
        session.finish(contents)
    else:
        session.check([Path("report.html")])
        from closefar.demo import main

        with contextlib.redirect_stdout(io.StringIO()) as text:
            main()
        session.show(text.getvalue().rstrip(), {"text": text.getvalue()})


def _judge_leaves(session: Session, no_browser: bool) -> None:
    """Write a table of leaves with their pictures, where it is not there yet, and serve it."""
    from closefar.files import replace_files
    from closefar.label import make_leaves
    from closefar.tables import encode_table

    (columns, pictures), table = make_leaves(), _LEAVES / "leaves.csv"
    contents = {table: encode_table(columns, table)}
    contents |= {_LEAVES / name: picture for name, picture in pictures.items()}
    for folder in {path.parent for path in contents}:
        folder.mkdir(parents=True, exist_ok=True)
    # Not by the session, which would then hear no interrupt before the server runs.
    replace_files({path: content for path, content in contents.items() if not path.exists()})
    task = LabelTask(question="Could these two leaves be from the same tree?", instructions=_INSTRUCTIONS)
    serve(session, table, _LEAVES / "judgements.sqlite", task, Serving(no_browser=no_browser), show=("photo",))


def _example_files() -> dict[Path, bytes]:
    """Return tables of simulated patients, and of judgements of every kind."""
    from closefar.datasets import judge_patients, make_patients
    from closefar.tables import encode_table

    points, pairs, _ = make_patients(random_state=0)
    tables = {
        "points": points,
        "pairs": {name: column[:-_N_NEW] for name, column in pairs.items()},
        "new_pairs": {name: column[-_N_NEW:] for name, column in pairs.items()},
        **judge_patients(points, random_state=0)._asdict(),
    }
    paths = {Path(f"{name}.csv"): columns for name, columns in tables.items()}
    return {path: encode_table(columns, path) for path, columns in paths.items()}


# ---------------------------------------------------------------------------------------------------------------------
# All commands.


_EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + "."

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich", epilog=_EPILOG)


def _show_version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


_Version = Annotated[bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)]


@app.callback()
def closefar(version: _Version = False) -> None:
    """Learn a distance from noisy close/far labels."""


_COMMANDS = (fit, classes, predict, transform, inspect, evaluate, label, label_errors, sample_size, truncate, export)
for function in (*_COMMANDS, export_judgements, report, demo):
    app.command()(command(function))
