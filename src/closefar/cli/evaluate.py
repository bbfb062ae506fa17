"""``closefar evaluate`` and ``closefar report``: a model against labelled pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from closefar.cli.data import check_outputs, read_for_model, signs_of, squared_distances
from closefar.cli.options import Files, ModelFile, NewData
from closefar.cli.session import Output, Session

if TYPE_CHECKING:
    from closefar.model import Model
    from closefar.tables import PairTable

__all__ = ["evaluate", "report"]

_SEEN = "these are the pairs that the model was fitted to: on new pairs it will do somewhat worse."


def evaluate(model: ModelFile, files: Files, new_data: NewData, output: Output) -> None:
    """Say how well a model does on labelled pairs, best on ones that it has not seen.

    closefar evaluate --model model.closefar --points points.csv --pairs test_pairs.csv
    """
    with Session("evaluate", output) as session:
        from closefar.model import Model

        loaded = Model.load(model)
        table = read_for_model(session, loaded, files, new_data, labelled=True)
        if loaded.is_fitted_to(table):
            session.warn(_SEEN)
        figures = evaluation(loaded, table)
        session.show(_text(loaded, figures), figures)


def report(
    model: ModelFile,
    files: Files,
    new_data: NewData,
    output: Output,
    out: Annotated[Path, typer.Option("--out", "-o", help="The report: .html, .json or .txt.")] = Path("report.html"),
) -> None:
    """Show a model and how it does on labelled pairs as one page.

    Of the pairs of the fit every one is judged by a fit that has not seen it.

    closefar report --model model.closefar --points points.csv --pairs pairs.csv --out report.html
    """
    with Session("report", output) as session:
        check_outputs(out, read=[*files.paths, model])
        from closefar.files import replace_file
        from closefar.model import Model
        from closefar.report import N_PARTS, check_report, encode_report

        check_report(out)
        loaded = Model.load(model)
        loaded.learner()  # says now if there is no fit to show
        table = read_for_model(session, loaded, files, new_data, labelled=True)
        signs_of(table.labels, loaded)
        seen = loaded.is_fitted_to(table)
        pairs = () if seen else (table.data, table.labels, table.weights)
        with session.stage("report", n_parts=N_PARTS) as tell:
            learner = loaded.learner(table if seen else None)
            content = encode_report(learner, out, *pairs, ids=table.ids, watch=tell)
        replace_file(out, content)
        session.show(f"Wrote {out}.", {"written": [str(out)], "n_pairs": len(table.data)})


def evaluation(model: Model, table: PairTable) -> dict[str, Any]:
    """Return the figures, weighted as the pairs are; `confusion` counts pairs."""
    import numpy as np
    from sklearn.metrics import roc_auc_score

    from closefar.noise import label_losses

    metric, signs = model.metric, signs_of(table.labels, model)
    weights = np.ones(len(signs)) if table.weights is None else table.weights
    if not weights.sum() > 0:
        raise ValueError("some pair must have a weight above 0; all weights are 0.")
    margin = squared_distances(table, model) - metric.threshold
    far, called_far = signs > 0, margin >= 0
    counts = [
        [int(np.sum(~far & ~called_far)), int(np.sum(~far & called_far))],
        [int(np.sum(far & ~called_far)), int(np.sum(far & called_far))],
    ]
    return {
        "n_pairs": len(signs),
        "accuracy": np.average(far == called_far, weights=weights),
        "always_likelier": max(np.average(far, weights=weights), np.average(~far, weights=weights)),
        "auc": roc_auc_score(far, margin, sample_weight=weights) if 0 < np.sum(far) < len(far) else None,
        "loss": np.average(label_losses(metric.noise, signs * margin, metric.flip_rate), weights=weights),
        "classes": model.classes,
        "confusion": counts,
    }


def _text(model: Model, figures: dict[str, Any]) -> str:
    close, far = model.classes
    auc = "-" if figures["auc"] is None else f"{figures['auc']:.4f}"
    rows = [
        ("Pairs", f"{figures['n_pairs']:,}"),
        ("Labels agreed with", f"{figures['accuracy']:.4f}"),
        ("Always the likelier label", f"{figures['always_likelier']:.4f}"),
        ("Area under the ROC curve", auc),
        ("Loss (nats a label)", f"{figures['loss']:.6f}"),
    ]
    for word, counts in zip((close, far), figures["confusion"], strict=True):
        rows.append((f"Labelled {word!r}", f"{counts[0]:,} called {close!r}, {counts[1]:,} called {far!r}"))
    return "\n".join(f"{name:<28}{value}" for name, value in rows)
