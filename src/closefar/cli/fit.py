"""``closefar fit``: from files to a model, and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from closefar.cli.data import check_outputs, fit_learner, read_labelled, report_of
from closefar.cli.options import Columns, Files, Learning, ReportTitle
from closefar.cli.session import Output, Session

__all__ = ["fit"]


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

        from closefar.files import replace_files
        from closefar.learners import Model
        from closefar.plain import plain

        model = Model.of(learner, table, source)
        contents = {out: model.to_bytes()}
        if report is not None:
            contents[report] = report_of(session, learner, report, table, files=files, model=out, title=title)
        replace_files(contents)
        certificate = learner.certificate_
        session.unfinished = not certificate.converged
        written = [str(path) for path in contents]
        session.show(
            f"{learner.summary()}\nWrote {' and '.join(written)}.",
            {
                "written": written,
                "n_pairs": len(table.data),
                "feature_names": model.encoding.feature_names,
                "classes": model.classes,
                "threshold": model.metric.threshold,
                "rank": model.metric.rank,
                "eigenvalues": model.metric.eigenvalues,
                "noise": model.metric.noise.name,
                "flip_rate": model.metric.flip_rate,
                "certificate": {**plain(certificate), "status": certificate.status},
                "statistics": learner.fit_statistics_,
            },
        )
