"""``closefar evaluate`` and ``closefar report``: a model against labelled pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from closefar.cli.data import read_for_model, report_of, sampled_groups, scored_by
from closefar.cli.options import ModelFile, NewData, ReportTitle, WeightedFiles
from closefar.cli.session import Output, Replacing, Session, is_report, report_path

if TYPE_CHECKING:
    from closefar.fitting import Fit, Scores
    from closefar.learners import Model
    from closefar.tables import Pairs

_SEEN = "these are the training {what} of the model: expect a somewhat lower accuracy on new {what}."


def evaluate(model: ModelFile, files: WeightedFiles, new_data: NewData, output: Output) -> None:
    """Measure the accuracy of a model on labelled pairs or comparisons, preferably ones it was not fitted to.

    The plain distance, with the threshold that suits the training pairs best, is measured beside it.

    closefar evaluate --model model.closefar --points points.csv --pairs test_pairs.csv
    """
    with Session("evaluate", output) as session:
        session.check_standard_output()
        from closefar.learners import Model

        loaded = Model.load(model)
        table = read_for_model(session, loaded, files, new_data, labelled=True)
        if loaded.is_fitted_to(table):
            session.warn(_SEEN.format(what="comparisons" if table.are_comparisons else "pairs"))
        figures = evaluation(loaded, table)
        session.show(_text(figures), figures)


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
    """Write a report on a model and its accuracy on labelled pairs or comparisons.

    On those that it was fitted to, accuracy is cross-validated.

    closefar report --model model.closefar --points points.csv --pairs pairs.csv --out report.html
    """
    with Session("report", output) as session:
        session.check_standard_output()
        replacing.check({out: is_report}, read=[*files.paths, model])
        from closefar.learners import Model
        from closefar.report import check_report
        from closefar.tables import labels_of

        check_report(report_path(out))
        loaded = Model.load(model)
        table = read_for_model(session, loaded, files, new_data, labelled=True)
        if table.are_comparisons and loaded.classes:
            raise ValueError(
                "the report of a model that was fitted to pairs is about pairs; got --comparisons alone. Give --pairs, "
                "or measure the agreement with comparisons by closefar evaluate."
            )
        scored_by(loaded, table)
        fit = loaded.fit_on(table)
        pairs = (table.data, labels_of(table), table.weights) if fit.judgements is None else ()
        content = report_of(session, fit, out, table, *pairs, files=files, model=model, title=title)
        session.write_files({out: content})
        session.show(f"Wrote {out}.", {"written": [str(out)], "n_pairs": len(table)})


def evaluation(model: Model, table: Pairs) -> dict[str, Any]:
    """Return the figures, weighted as the judgements are; `confusion` counts pairs.

    The accuracy of comparisons is the share that the metric agrees with; a guess agrees with half of them.  `plain` is
    the plain distance, for a model that remembers it: one for which settings were chosen.
    """
    return _figures(model, table, None if model.fit is None else model.learner().fit_)


def _figures(model: Model, table: Pairs, fit: Fit | None) -> dict[str, Any]:
    import numpy as np

    scored: Any = scored_by(model, table)
    plain = None if fit is None else _plain_distance(fit, scored, table)
    if table.are_comparisons:
        return {
            "n_comparisons": len(scored),
            "accuracy": scored.accuracy,
            "baseline": 0.5,
            "loss": scored.loss,
            "plain": plain,
        }
    figures = {
        "n_pairs": len(scored),
        "accuracy": scored.accuracy,
        "baseline": scored.majority,
        "auc": scored.auc,
        "loss": scored.loss,
        "plain": plain,
        "classes": model.classes,
        "confusion": scored.confusion(np.ones(len(scored))).astype(int).tolist(),
    }
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
    error = float(variance_of_sum((difference - gain) * shares, sampled_groups(table, judgements)) ** 0.5)
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


def _text(figures: dict[str, Any]) -> str:
    readings = [each["plain"]["reading"] for each in (figures, figures.get("comparisons")) if each and each["plain"]]
    rows = [f"{name:<28}{value}" for name, value in _rows(figures)]
    return "\n".join([*rows, *dict.fromkeys(reading for reading in readings if reading)])


def _rows(figures: dict[str, Any]) -> list[tuple[str, str]]:
    if "n_pairs" not in figures:
        return [
            ("Comparisons", f"{figures['n_comparisons']:,}"),
            ("Agreement", f"{figures['accuracy']:.4f}"),
            ("Agreement of guesses", f"{figures['baseline']:.4f}"),
            *_plain_row(figures, "Agreement, plain distance", "accuracy", ".4f"),
            ("Loss (nats per answer)", f"{figures['loss']:.6f}"),
            *_plain_row(figures, "Loss, plain distance", "loss", ".6f"),
        ]
    words = figures["classes"]
    rows = [
        ("Pairs", f"{figures['n_pairs']:,}"),
        ("Accuracy", f"{figures['accuracy']:.4f}"),
        ("Majority baseline", f"{figures['baseline']:.4f}"),
        *_plain_row(figures, "Accuracy, plain distance", "accuracy", ".4f"),
        ("Area under the ROC curve", "-" if figures["auc"] is None else f"{figures['auc']:.4f}"),
        ("Loss (nats per label)", f"{figures['loss']:.6f}"),
        *_plain_row(figures, "Loss, plain distance", "loss", ".6f"),
    ]
    if "mean_error" in figures:
        rows.append(("Mean error (levels)", f"{figures['mean_error']:.4f}"))
    for word, counts in zip(words, figures["confusion"], strict=True):
        predicted = ", ".join(f"{count:,} predicted {other!r}" for other, count in zip(words, counts, strict=True))
        rows.append((f"Labelled {word!r}", predicted))
    return rows + (_rows(figures["comparisons"]) if "comparisons" in figures else [])


def _plain_row(figures: dict[str, Any], name: str, figure: str, form: str) -> list[tuple[str, str]]:
    plain = figures["plain"]
    return [] if plain is None else [(name, f"{plain[figure]:{form}} ({plain['distance']})")]
