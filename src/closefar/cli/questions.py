"""``closefar label-errors`` and ``closefar sample-size``: questions about labelled pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from closefar.cli.apply import write_table
from closefar.cli.data import (
    check_outputs,
    far_label,
    fit_learner,
    folds_of,
    groups_of,
    read_labelled,
    with_ids,
)
from closefar.cli.options import Columns, Files, Learning, OutFile
from closefar.cli.session import Output, Session

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from closefar.questions import LabelErrors
    from closefar.tables import PairTable

__all__ = ["label_errors", "sample_size"]


def label_errors(
    files: Files,
    columns: Columns,
    learning: Learning,
    output: Output,
    out: OutFile = None,
    top: Annotated[int, typer.Option(min=1, help="Show as many of the most suspicious labels.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Chooses the folds.")] = 0,
) -> None:
    """Find the labels that contradict the learned distance, and those that are probably wrong.

    closefar label-errors --points points.csv --pairs pairs.csv --out suspicious.csv
    """
    with Session("label-errors", output) as session:
        check_outputs(out, read=files.paths)
        table, _ = read_labelled(session, files, columns)
        far = far_label(table.labels, learning.far)
        if learning.chooses_alpha:
            learner = fit_learner(session, table, learning)
        else:
            learner = learning.learner(far, verbose=False)
        folds, groups = folds_of(session, table, far, groups_of(session, table))
        from closefar.questions import find_label_errors

        with session.stage("fitting six times"):
            errors = find_label_errors(
                learner,
                table.data,
                table.labels,
                sample_weight=table.weights,
                cv=folds,
                groups=groups,
                random_state=seed,
            )
        rows = _rows(table, errors)
        if out is not None:
            write_table(session, rows, out)
            return
        shown = {name: values[:top] for name, values in rows.items()}
        session.show(_text(errors, shown), {**_facts(errors), "most_suspicious": shown})


def sample_size(
    files: Files,
    columns: Columns,
    learning: Learning,
    output: Output,
    target_error: Annotated[float, typer.Option(help="The error to reach.")],
    measure: Annotated[
        str, typer.Option(help="loss (nats per label) or spectral (relative error of M / tau).")
    ] = "loss",
    delta: Annotated[float, typer.Option(help="Probability of missing the target.")] = 0.05,
) -> None:
    """Say from a pilot how many pairs to label for a target error.

    closefar sample-size --points points.csv --pairs pilot.csv --target-error 0.01
    """
    with Session("sample-size", output) as session:
        table, _ = read_labelled(session, files, columns)
        learner = fit_learner(session, table, learning)
        from closefar.questions import plan_sample_size

        with session.stage("planning"):
            plan = plan_sample_size(learner, target_error=target_error, measure=measure, delta=delta)
        from closefar.plain import plain

        session.show(plan.sentence, {**plain(plan), "sentence": plan.sentence})


def _facts(errors: LabelErrors) -> dict[str, Any]:
    """What was found; a share is null where none is claimed."""
    names = ("share", "share_low", "share_high", "reason", "meaning", "n_contradicting")
    unseen = ("unseen_share", "unseen_low", "unseen_high")
    return {"n_labels": len(errors.labels), **{name: getattr(errors, name) for name in names + unseen}}


def _rows(table: PairTable, errors: LabelErrors) -> dict[str, NDArray[Any]]:
    """All labels, the most suspicious first."""
    order = errors.order
    columns = {
        "label": errors.labels,
        "probability_wrong": errors.probability,
        "margin": errors.margin,
        "standard_error": errors.error,
    }
    return {name: column[order] for name, column in with_ids(table, columns).items()}


def _text(errors: LabelErrors, shown: dict[str, NDArray[Any]]) -> str:
    lines = [errors.headline()]
    cells = [list(shown), *zip(*(map(_cell, values.tolist()) for values in shown.values()), strict=True)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    table = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join([*lines, *table])


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
