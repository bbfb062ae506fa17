"""``closefar fit``: from files to a model, and a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from closefar.cli.data import (
    check_outputs,
    directions_of,
    fit_learner,
    read_labelled,
    report_of,
    sampled_groups,
)
from closefar.cli.options import Columns, Files, Learning, ReportTitle
from closefar.cli.session import Output, Session

if TYPE_CHECKING:
    from closefar.learners import MetricLearner, Model
    from closefar.tables import PairTable

__all__ = ["fit"]

# The noise is checked on a sample where that saves time (work is about pairs times squared parameters), and not at
# all where that leaves too few uncertain labels per parameter.
_MOST_CHECKED = 10_000
_LITTLE_WORK = 1e9
_SHARE_OF_FIT = 0.3
_FEWEST_UNCERTAIN = 5.0

_SURELY_WRONG = 0.01  # a p-value below this is warned of, so that few right models are


def fit(
    files: Files,
    columns: Columns,
    learning: Learning,
    output: Output,
    out: Annotated[Path, typer.Option("--out", "-o", help="The model file to write.")] = Path("model.closefar"),
    report: Annotated[Path | None, typer.Option(help="Also write a report: .html, .json or .txt by its name.")] = None,
    title: ReportTitle = None,
) -> None:
    """Learn a metric from files, and save it.

    closefar fit --points points.csv --pairs pairs.csv --report report.html
    """
    with Session("fit", output) as session:
        check_outputs(out, report, read=files.paths)
        if report is None and title is not None:
            raise ValueError("--title is the headline of a report. Add --report, or leave --title out.")
        if report is not None:
            from closefar.report import check_report

            check_report(report)
        table, source = read_labelled(session, files, columns)
        learner = fit_learner(session, table, learning)
        _warn_of_noise(session, learner, table)

        from closefar.files import replace_files
        from closefar.learners import Model

        model = Model.of(learner, table, source)
        contents = {out: model.to_bytes()}
        if report is not None:
            contents[report] = report_of(session, learner, report, table, files=files, model=out, title=title)
        replace_files(contents)
        session.unfinished = not learner.certificate_.converged
        written = [str(path) for path in contents]
        session.show(
            f"{learner.summary()}\nWrote {' and '.join(written)}.",
            {"written": written, "n_pairs": len(table), **_facts(model, learner)},
        )


def _facts(model: Model, learner: MetricLearner) -> dict[str, Any]:
    from closefar.plain import plain

    metric, certificate = model.metric, learner.certificate_
    return {
        "feature_names": model.encoding.feature_names,
        "classes": model.classes,
        "threshold": metric.threshold,
        "rank": metric.rank,
        "directions": directions_of(metric),
        "noise": metric.noise.name,
        "flip_rate": metric.flip_rate,
        "certificate": {**plain(certificate), "status": certificate.status},
        "statistics": learner.fit_statistics_,
    }


def _warn_of_noise(session: Session, learner: MetricLearner, table: PairTable) -> None:
    """Warn, with the remedy, where the labels are clearly not as the noise model says."""
    from closefar.advice import for_command_line
    from closefar.questions import check_noise_model

    fit = learner.fit_
    statistics, judgements = fit.statistics, fit.training().counted()
    work = max(_LITTLE_WORK, _SHARE_OF_FIT * fit.certificate.n_passes * len(judgements) * judgements.n_columns**2)
    used = judgements.sample(int(min(work / statistics.n_parameters**2, _MOST_CHECKED)), seed=0)
    if statistics.uncertain_per_parameter * len(used) < _FEWEST_UNCERTAIN * len(judgements):
        return
    with session.stage("checking the noise model"):
        try:
            check = check_noise_model(fit, used, groups=sampled_groups(table, used))
        except ValueError:  # the labels can't tell
            return
    if check.p_value < _SURELY_WRONG:
        session.warn(for_command_line(check.advice))
