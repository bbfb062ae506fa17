"""``closefar fit``: from files to a model, and a report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from closefar.cli.data import directions_of, fit_learner, read_labelled, report_of, sampled_groups
from closefar.cli.options import Columns, LongLearning, ReportTitle, WeightedFiles
from closefar.cli.session import Output, Replacing, Session, is_model, is_report, report_path
from closefar.errors import command_words
from closefar.files import is_device

if TYPE_CHECKING:
    from closefar.fitting import Baseline, Choice
    from closefar.learners import MetricLearner, Model
    from closefar.tables import Pairs

# The noise is checked on a sample where that saves time (work is about pairs times squared parameters), and not at
# all where that leaves too few uncertain labels per parameter.
_MOST_CHECKED = 10_000
_LITTLE_WORK = 1e9
_SHARE_OF_FIT = 0.3
_FEWEST_UNCERTAIN = 5.0

_MOST_NAMED = 10  # annotators of one verdict

_SIGNIFICANT = 0.01  # a p-value below this is warned of, so that few right models are


def fit(
    files: WeightedFiles,
    columns: Columns,
    learning: LongLearning,
    output: Output,
    replacing: Replacing,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The model file to write.")] = Path(
        "model.closefar"
    ),
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a report: .html, .json, .txt or .md.")
    ] = None,
    title: ReportTitle = None,
) -> None:
    """Learn a metric from labelled or rated pairs, from comparisons, or from both, and save it as a model.

    closefar fit --points points.csv --pairs pairs.csv --report report.html
    """
    with Session("fit", output) as session:
        session.check_standard_output()
        files.source()
        learning.check(files)
        columns.check()
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


def _check_outputs(
    out: Path,
    report: Path | None,
    checkpoint: Path | None,
    title: str | None,
    replacing: Replacing,
    files: WeightedFiles,
) -> None:
    if report is None and title is not None:
        raise ValueError("--title is the headline of a report. Add --report, or leave --title out.")
    if report == out and not is_device(out):
        raise ValueError(f"the model and the report must have different names; got {out} for both.")
    replacing.check({out: is_model} | ({} if report is None else {report: is_report}), read=files.paths)
    if report is not None:
        from closefar.report import check_report

        check_report(report_path(report))
    if checkpoint is not None:
        from closefar.fitting import Checkpoint

        if checkpoint in (out, report, *files.paths):
            raise ValueError(f"the checkpoint must have a name of its own; {checkpoint} is named twice.")
        Checkpoint(checkpoint)


def _facts(model: Model, learner: MetricLearner) -> dict[str, Any]:
    from closefar.plain import plain

    fit, metric, certificate = learner.fit_, model.metric, learner.certificate_
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
        "choice": None if fit.choice is None else _choice(fit.choice),
        "baseline": None if fit.baseline is None else _baseline(fit.baseline),
        "engine": fit.engine,
        "certificate": {**plain(certificate, is_command_line=True), "status": command_words(certificate.status)},
        "statistics": fit.statistics,
    }


def _choice(choice: Choice) -> dict[str, Any]:
    """What was tried, and what was chosen; the plain distance alone has no alpha."""
    from closefar.plain import plain

    found: dict[str, Any] = plain(choice)
    return {**found, "table": [each._asdict() for each in choice.table], "sentence": command_words(choice.sentence)}


def _baseline(baseline: Baseline) -> dict[str, Any]:
    from closefar.plain import plain

    found: dict[str, Any] = plain(replace(baseline, metric=None))
    del found["metric"]
    return {**found, "is_better": baseline.is_better, "sentence": baseline.sentence}


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
