"""``closefar evaluate`` and ``closefar report``: a model against labelled pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from closefar.cli.data import judgements_of, read_for_model, report_of, squared_distances
from closefar.cli.options import ModelFile, NewData, ReportTitle, WeightedFiles
from closefar.cli.outputs import Replacing, is_report, report_path
from closefar.cli.session import Output, Session

if TYPE_CHECKING:
    from closefar.learners import Model
    from closefar.tables import Pairs

__all__ = ["evaluate", "report"]

_SEEN = "these are the training pairs of the model: expect a somewhat lower accuracy on new pairs."


def evaluate(model: ModelFile, files: WeightedFiles, new_data: NewData, output: Output) -> None:
    """Measure the accuracy of a model on labelled pairs, preferably pairs it was not fitted to.

    closefar evaluate --model model.closefar --points points.csv --pairs test_pairs.csv
    """
    with Session("evaluate", output) as session:
        session.check_standard_output()
        from closefar.learners import Model

        loaded = Model.load(model)
        table = read_for_model(session, loaded, files, new_data, labelled=True)
        if loaded.is_fitted_to(table):
            session.warn(_SEEN)
        figures = evaluation(loaded, table)
        session.show(_text(loaded, figures), figures)


def report(
    model: ModelFile,
    files: WeightedFiles,
    new_data: NewData,
    output: Output,
    replacing: Replacing,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The report to write: .html, .json, .txt or .md.")
    ] = Path("report.html"),
    title: ReportTitle = None,
) -> None:
    """Write a report on a model and its accuracy on labelled pairs.

    On the training pairs, accuracy is cross-validated.

    closefar report --model model.closefar --points points.csv --pairs pairs.csv --out report.html
    """
    with Session("report", output) as session:
        session.check_standard_output()
        replacing.check({out: is_report}, read=[*files.paths, model])
        from closefar.learners import Model
        from closefar.report import check_report

        check_report(report_path(out))
        loaded = Model.load(model)
        table = read_for_model(session, loaded, files, new_data, labelled=True)
        judgements_of(table, loaded)
        fit = loaded.fit_on(table)
        pairs = (table.data, table.labels, table.weights) if fit.judgements is None else ()
        content = report_of(session, fit, out, table, *pairs, files=files, model=model, title=title)
        session.write_files({out: content})
        session.show(f"Wrote {out}.", {"written": [str(out)], "n_pairs": len(table)})


def evaluation(model: Model, table: Pairs) -> dict[str, Any]:
    """Return the figures, weighted as the pairs are; `confusion` counts pairs."""
    import numpy as np

    from closefar.model import Scored

    metric, margin = model.metric, squared_distances(table, model) - model.metric.known_threshold
    scored = Scored(judgements_of(table, model), margin, metric.noise, metric.flip_rate)
    return {
        "n_pairs": len(scored),
        "accuracy": scored.accuracy,
        "baseline": scored.majority,
        "auc": scored.auc,
        "loss": scored.loss,
        "classes": model.classes,
        "confusion": scored.confusion(np.ones(len(scored))).astype(int).tolist(),
    }


def _text(model: Model, figures: dict[str, Any]) -> str:
    close, far = model.classes
    auc = "-" if figures["auc"] is None else f"{figures['auc']:.4f}"
    rows = [
        ("Pairs", f"{figures['n_pairs']:,}"),
        ("Accuracy", f"{figures['accuracy']:.4f}"),
        ("Majority baseline", f"{figures['baseline']:.4f}"),
        ("Area under the ROC curve", auc),
        ("Loss (nats per label)", f"{figures['loss']:.6f}"),
    ]
    for word, counts in zip((close, far), figures["confusion"], strict=True):
        rows.append((f"Labelled {word!r}", f"{counts[0]:,} predicted {close!r}, {counts[1]:,} predicted {far!r}"))
    return "\n".join(f"{name:<28}{value}" for name, value in rows)
