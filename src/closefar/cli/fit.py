"""``closefar fit``: from files to a model, and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from closefar.cli.data import fit_learner, groups_of, read_labelled
from closefar.cli.learning import BalancedLearning
from closefar.cli.options import Columns, WeightedFiles
from closefar.cli.outputs import Replacing, is_model, is_report, report_path
from closefar.cli.session import Output, Session
from closefar.files import is_device
from closefar.messages import as_options

__all__ = ["fit"]


def fit(
    files: WeightedFiles,
    columns: Columns,
    learning: BalancedLearning,
    output: Output,
    replacing: Replacing,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The model file to write.")] = Path(
        "model.closefar"
    ),
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a report: .html, .json, .txt or .md.")
    ] = None,
) -> None:
    """Learn a metric from labelled pairs and save it as a model.

    closefar fit --points points.csv --pairs pairs.csv --report report.html
    """
    with Session("fit", output) as session:
        session.check_standard_output()
        files.source()
        learning.check(single=files.are_single)
        columns.check()
        _check_outputs(out, report, replacing, files)
        table, source = read_labelled(session, files, columns)
        learner = fit_learner(session, table, learning)

        from closefar.learners import Model
        from closefar.plain import plain

        model = Model.of(learner, table, source)
        contents = {out: model.to_bytes()}
        if report is not None:
            from closefar.report import N_PARTS, encode_report

            groups = groups_of(session, table)
            with session.stage("report", n_parts=N_PARTS) as tell:
                contents[report] = encode_report(learner, report_path(report), ids=table.ids, groups=groups, watch=tell)
        session.write_files(contents)
        certificate = learner.certificate_
        session.unfinished = not certificate.converged
        written = [str(path) for path in contents]
        session.show(
            f"{as_options(learner.summary())}\nWrote {' and '.join(written)}.",
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
                "certificate": {**plain(certificate), "status": as_options(certificate.status)},
                "statistics": learner.fit_statistics_,
            },
        )


def _check_outputs(out: Path, report: Path | None, replacing: Replacing, files: WeightedFiles) -> None:
    if report == out and not is_device(out):
        raise ValueError(f"the model and the report must have different names; got {out} for both.")
    replacing.check({out: is_model} | ({} if report is None else {report: is_report}), read=files.paths)
    if report is not None:
        from closefar.report import check_report

        check_report(report_path(report))
