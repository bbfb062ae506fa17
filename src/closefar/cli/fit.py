"""The commands that learn from labels: ``closefar fit``, ``classes``, ``label-errors`` and ``sample-size``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from closefar.cli.data import (
    directions_of,
    fit_learner,
    folds_of,
    groups_of,
    read_labelled,
    report_of,
    sampled_groups,
    with_ids,
)
from closefar.cli.options import (
    DECIMAL,
    NA_VALUES,
    POINTS,
    REPORT_TITLE,
    Columns,
    Files,
    Learning,
    LongLearning,
    PenalisedLearning,
    WeightedFiles,
    number,
    option,
)
from closefar.cli.session import REPORT, TABLE, Output, Replacing, Session, check_table, named, write_results
from closefar.errors import command_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from closefar.learners import ClassMetricLearner, MetricLearner, Model
    from closefar.questions import LabelErrors
    from closefar.tables import Pairs

# The noise is checked on a sample where that saves time (work is about pairs times squared parameters), and not at
# all where that leaves too few uncertain labels per parameter.
_MOST_CHECKED = 10_000
_LITTLE_WORK = 1e9
_SHARE_OF_FIT = 0.3
_FEWEST_UNCERTAIN = 5.0

_MOST_NAMED = 10  # annotators of one verdict

_SIGNIFICANT = 0.01  # a p-value below this is warned of, so that few right models are

_N_SHOWN = 10  # suspicious class labels, in one screen
_SHOWN = 0.5  # the smallest probability of a wrong class label that is shown

_MODEL_OUT = Path("model.closefar")


def fit(
    files: WeightedFiles,
    columns: Columns,
    learning: LongLearning,
    output: Output,
    replacing: Replacing,
    out: Path = option("The model file to write.", "FILE", "--out", "-o", default=_MODEL_OUT),
    report: Path | None = option("Also write a report: .html, .json, .txt or .md.", "FILE"),
    title: str | None = REPORT_TITLE,
) -> None:
    """Learn a metric from labelled or rated pairs, from comparisons, or from both, and save it as a model.

    closefar fit --points points.csv --pairs pairs.csv --report report.html
    """
    with Session("fit", output) as session:
        _check_learning(files, columns, learning)
        _check_outputs(out, report, learning.checkpoint, title, replacing, files)
        session.checkpoint = learning.checkpoint
        table, words, source = read_labelled(session, files, columns, learning)
        learner = fit_learner(session, table, words, learning)
        _warn_of_annotators(session, learner)
        _warn_of_noise(session, learner, table)

        from closefar.learners import Model

        model = Model.of(learner, table, source)
        contents = {out: model.to_bytes()}
        if report is not None:
            contents[report] = report_of(session, learner, report, table, files=files, model=out, title=title)
        session.write_files(contents)
        session.unfinished = not learner.certificate_.converged
        written = [str(path) for path in contents]
        session.show(
            f"{model.summary}\nWrote {' and '.join(written)}.",
            {"written": written, "n_pairs": len(table), **_facts(model, learner)},
        )


def _check_learning(files: Files, columns: Columns, learning: Learning) -> None:
    """Refuse options that make no sense, or contradict each other, before a file is read."""
    files.source()
    learning.check(files)
    columns.encoding_options()


def _check_outputs(
    out: Path, report: Path | None, checkpoint: Path | None, title: str | None, replacing: Replacing, files: Files
) -> None:
    if report is None and title is not None:
        raise ValueError("--title is the headline of a report. Add --report, or leave --title out.")
    replacing.check([out] if report is None else [out, report], read=[*files.paths, checkpoint])
    if report is not None:
        from closefar.report import check_report

        check_report(named(report, REPORT))
    if checkpoint is not None:
        from closefar.fitting import Checkpoint

        if checkpoint in files.paths:
            raise ValueError(f"the checkpoint must have a name of its own; {checkpoint} is named twice.")
        Checkpoint(checkpoint)


def _facts(model: Model, learner: MetricLearner) -> dict[str, Any]:
    from closefar.plain import plain

    fit, metric, certificate = learner.fit_, model.metric, learner.certificate_
    choice = baseline = None
    if fit.choice is not None:  # the plain distance alone has no alpha
        table = [each._asdict() for each in fit.choice.table]
        choice = {**plain(fit.choice), "table": table, "sentence": command_words(fit.choice.sentence)}
    if fit.baseline is not None:
        baseline = plain(replace(fit.baseline, metric=None))
        del baseline["metric"]
        baseline |= {"is_better": fit.baseline.is_better, "sentence": fit.baseline.sentence}
    return {
        "feature_names": model.encoding.feature_names,
        "kind": model.kind,
        "classes": model.classes,
        "threshold": metric.threshold,
        "thresholds": metric.thresholds,
        "comparison_noise": fit.comparison_noise,
        "annotators": None if fit.annotators is None else fit.annotators.to_dict(),
        "rank": metric.rank,
        "directions": directions_of(metric),
        "eigenvalues": metric.eigenvalues,
        "noise": metric.noise.name,
        "flip_rate": metric.flip_rate,
        "alpha": fit.alpha,
        "prior": fit.prior,
        "choice": choice,
        "baseline": baseline,
        "engine": fit.engine,
        "certificate": {**plain(certificate, is_command_line=True), "status": command_words(certificate.status)},
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
    for verdict in (
        AnnotatorVerdict.AT_RANDOM,
        AnnotatorVerdict.OFTEN_AT_RANDOM,
        AnnotatorVerdict.THE_OTHER_WAY_ROUND,
        AnnotatorVerdict.ALWAYS_THE_SAME,
    ):
        names = table.named(verdict)
        if names:
            more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
            session.warn(f"{', '.join(names[:_MOST_NAMED])}{more}: {verdict}. {remedy}")


def _warn_of_noise(session: Session, learner: MetricLearner, table: Pairs) -> None:
    """Warn, with the remedy, if the labels clearly contradict the noise model."""
    from closefar.questions import check_noise_if_possible

    fit = learner.fit_
    statistics, judgements = fit.statistics, fit.training().counted()
    work = max(_LITTLE_WORK, _SHARE_OF_FIT * fit.certificate.n_passes * len(judgements) * judgements.n_columns**2)
    used = judgements.sample(int(min(work / statistics.n_parameters**2, _MOST_CHECKED)), seed=0)
    if statistics.uncertain_per_parameter * len(used) < _FEWEST_UNCERTAIN * len(judgements):
        return
    with session.stage("checking the noise model"):
        check = check_noise_if_possible(fit, used, sampled_groups(table, used))
    if check is not None and check.p_value < _SIGNIFICANT:
        advice = command_words(check.advice)
        session.warn(advice[:1].lower() + advice[1:])


# ---------------------------------------------------------------------------------------------------------------------
# ``closefar classes``: from points with class labels to metrics, and to the labels that are probably wrong.


class Units(StrEnum):
    auto = "auto"
    columns = "columns"
    shared = "shared"


def classes(
    columns: Columns,
    output: Output,
    replacing: Replacing,
    points: Path = option(*POINTS, default=...),
    label: str | None = option("Column of class labels. Default: 'label' or 'labels'.", "COLUMN"),
    id: str | None = option("Column of point ids. Default: 'id', else row numbers.", "COLUMN"),
    na_values: list[str] | None = option(*NA_VALUES),
    decimal: str = option(*DECIMAL, default="."),
    wrong_share: str = option("Share of wrong labels, or estimate; 0 trusts all labels.", "SHARE", default="estimate"),
    units: Units = option(
        "Plain distance of neighbours: each column in its own unit, or all in one; auto tries both.", default=Units.auto
    ),
    out: Path = option(
        "The model of pairs to write, for `closefar predict`.", "FILE", "--out", "-o", default=_MODEL_OUT
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
    with Session("classes", output) as session:
        files = Files(points=points, id=id, label=label, na_values=na_values, decimal=decimal, no_annotators=True)
        columns.encoding_options()
        share = number(wrong_share, float, "--wrong-share", "estimate")
        outputs = [path for path in (out, neighbours, suspicious) if path is not None]
        if len(set(outputs)) < len(outputs):
            raise ValueError("--out, --neighbours and --suspicious must name different files.")
        replacing.check(outputs, read=files.paths)
        from closefar.tables import encode_table, labels_of, read_pairs, write_table

        if suspicious is not None:
            encode_table({}, named(suspicious, TABLE))  # says if its format is unknown, or a package is missing
        with session.stage("reading"):
            table = read_pairs(files.source(), labelled=True, **columns.encoding_options())
        session.warn(*table.notes)
        table = table.with_labels(labels_of(table).astype(str))
        from closefar.learners import ClassMetricLearner, Model

        learner = ClassMetricLearner(wrong_share=share, units=units.value, verbose=int(session.is_watched))
        with session.stage("fitting", shows_itself=True):
            learner.fit(table.data, table.labels, feature_names=table.encoding.feature_names)
        of_pairs = replace(Model.of(learner.pair_learner_, table, files.source()), is_single=False)
        contents: dict[Path, Any] = {out: of_pairs.to_bytes()}
        if neighbours is not None:
            names = {"id": files.id, "na_values": [*files.source().na_values]}
            contents[neighbours] = Model(learner.neighbour_metric_, (), table.encoding, names, False, None).to_bytes()
        if suspicious is not None:
            contents[suspicious] = lambda file: write_table(_suspicious(learner, table), named(suspicious, TABLE), file)
        session.write_files(contents)
        session.unfinished = not learner.pair_learner_.certificate_.converged
        _show_classes(session, learner, table, [str(path) for path in contents])


def _suspicious(learner: ClassMetricLearner, table: Pairs, n_rows: int | None = None) -> Iterator[dict[str, Any]]:
    import numpy as np

    order = (-learner.wrong_probability_).argsort(kind="stable")[:n_rows]
    columns = {
        "class": np.asarray(table.labels),
        "probability_wrong": learner.wrong_probability_,
        "probable_class": learner.corrected_classes_,
    }
    return with_ids(table, columns, order)


def _show_classes(session: Session, learner: ClassMetricLearner, table: Pairs, written: list[str]) -> None:
    from closefar.plain import records

    rows = records(next(_suspicious(learner, table, _N_SHOWN)))
    shown = [
        " ".join(f"{name} {_cell(value)}" for name, value in row.items())
        for row in rows
        if row["probability_wrong"] > _SHOWN
    ]
    low, high = learner.wrong_share_interval_
    found = f"Wrong class labels: {learner.wrong_share_:.1%} of {len(table):,} (90 % interval {low:.1%} to {high:.1%})."
    if shown:
        found += " The most suspicious:"
    summary = command_words(learner.pair_learner_.summary())
    facts = {
        "written": written,
        "n_points": len(table),
        "classes": learner.classes_,
        "feature_names": table.encoding.feature_names,
        "wrong_share": learner.wrong_share_,
        "wrong_share_interval": learner.wrong_share_interval_,
        "most_suspicious": rows,
        "threshold": learner.metric_.threshold,
        "rank": learner.metric_.rank,
        "neighbour_rank": learner.neighbour_metric_.rank,
    }
    session.show("\n".join([summary, found, *shown, f"Wrote {' and '.join(written)}."]), facts)


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------------------------------------------------------------
# ``closefar label-errors`` and ``closefar sample-size``: questions about labelled pairs.


_LARGEST_SEED = 2**32 - 1  # of NumPy
_LEAST_ERROR = 1e-12  # a target below what rounding leaves would ask for more pairs than can be counted


class Measure(StrEnum):
    loss = "loss"
    spectral = "spectral"


def label_errors(
    files: WeightedFiles,
    columns: Columns,
    learning: PenalisedLearning,
    output: Output,
    replacing: Replacing,
    out: Path | None = option(
        "Write all labels, most suspicious first: .csv, .csv.gz, .tsv, .parquet or .npz.", "FILE", "--out", "-o"
    ),
    top: int = option("Number of suspicious labels to show.", "N", default=10),
    seed: int = option("Random seed of the cross-validation folds.", "N", default=0),
) -> None:
    """Find labels, levels or answers that contradict the learned distance, and estimate how many are wrong.

    closefar label-errors --points points.csv --pairs pairs.csv --out suspicious.csv
    """
    with Session("label-errors", output) as session:
        number(top, int, "--top", least=1)
        number(seed, int, "--seed", least=0, below=_LARGEST_SEED + 1)
        _check_learning(files, columns, learning)
        if out is not None:
            check_table(out, replacing, read=files.paths)
        table, words, _ = read_labelled(session, files, columns, learning)
        learner = learning.learner(words, verbose=False)
        folds, groups = folds_of(session, table, words, groups_of(session, table))
        from closefar.plain import records
        from closefar.questions import find_label_errors
        from closefar.tables import labels_of, others_of

        with session.stage("cross-validating"):
            errors = find_label_errors(
                learner,
                table.data,
                labels_of(table),
                sample_weight=table.weights,
                cv=folds,
                groups=groups,
                random_state=seed,
                **others_of(table),
            )
        if out is not None:
            write_results(session, _contradicting(table, errors, errors.order), len(table), out)
            return
        shown = next(_contradicting(table, errors, errors.order[:top]))
        shares = ("share", "share_low", "share_high", "unseen_share", "unseen_low", "unseen_high")  # None: not claimed
        names = (*shares, "reason", "meaning", "n_contradicting")
        facts = {"n_labels": len(errors.labels), **{name: getattr(errors, name) for name in names}}
        cells = [list(shown), *zip(*(map(_cell, values.tolist()) for values in shown.values()), strict=True)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in cells]
        text = "\n".join([command_words(errors.headline()), *lines])
        session.show(text, {**facts, "most_suspicious": records(shown)})


def _contradicting(table: Pairs, errors: LabelErrors, order: NDArray[Any]) -> Iterator[dict[str, NDArray[Any]]]:
    """The labels in this order, some at a time; beside a level stands the one that is expected."""
    columns = {} if table.annotators is None else {"annotator": table.annotators}
    columns["label"] = errors.labels.astype(int) if table.are_comparisons else errors.labels
    if errors.expected is not None:
        columns["expected"] = errors.expected
    columns |= {"probability_wrong": errors.probability, "margin": errors.margin, "standard_error": errors.error}
    return with_ids(table, columns, order)


def sample_size(
    files: Files,
    columns: Columns,
    learning: Learning,
    output: Output,
    target_error: float = option("The error to reach.", "ERROR", default=...),
    measure: Measure = option(
        "Error to plan for: the excess loss per label (nats), or the relative error of M / tau.", default=Measure.loss
    ),
    delta: float = option("Accepted probability of missing the target error.", "PROBABILITY", default=0.05),
) -> None:
    """Plan how many pairs or comparisons to judge for a target error, from a pilot study.

    closefar sample-size --points points.csv --pairs pilot.csv --target-error 0.01
    """
    with Session("sample-size", output) as session:
        number(target_error, float, "--target-error", least=_LEAST_ERROR)
        number(delta, float, "--delta", above=0, below=1)
        _check_learning(files, columns, learning)
        table, words, _ = read_labelled(session, files, columns, learning)
        learner = fit_learner(session, table, words, learning)
        from closefar.plain import plain
        from closefar.questions import plan_sample_size

        with session.stage("planning"):
            plan = plan_sample_size(learner, target_error=target_error, measure=measure, delta=delta)
        sentence = command_words(plan.sentence)
        session.show(sentence, {**plain(plan), "sentence": sentence})
