"""``closefar label-errors`` and ``closefar sample-size``: questions about labelled pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from closefar.cli.apply import check_table, write_results
from closefar.cli.data import fit_learner, folds_of, groups_of, read_labelled, with_ids
from closefar.cli.options import Columns, Files, Learning, PenalisedLearning, WeightedFiles
from closefar.cli.session import Output, Replacing, Session, table_of
from closefar.errors import command_words
from closefar.plain import plain, records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from closefar.questions import LabelErrors
    from closefar.tables import Pairs

_COLUMNS = ("label", "probability_wrong", "margin", "standard_error")
_COLUMNS_OF_LEVELS = ("label", "expected", *_COLUMNS[1:])
_LARGEST_SEED = 2**32 - 1
_LEAST_ERROR = 1e-12

SuspiciousFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="Write all labels, most suspicious first: .csv, .csv.gz, .tsv, .parquet or .npz.",
    ),
]


class Measure(StrEnum):
    loss = "loss"
    spectral = "spectral"


def label_errors(
    files: WeightedFiles,
    columns: Columns,
    learning: PenalisedLearning,
    output: Output,
    replacing: Replacing,
    out: SuspiciousFile = None,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="Number of suspicious labels to show.")] = 10,
    seed: Annotated[
        int, typer.Option(min=0, max=_LARGEST_SEED, metavar="N", help="Random seed of the cross-validation folds.")
    ] = 0,
) -> None:
    """Find labels, levels or answers that contradict the learned distance, and estimate how many are wrong.

    closefar label-errors --points points.csv --pairs pairs.csv --out suspicious.csv
    """
    with Session("label-errors", output) as session:
        files.source()
        learning.check(files)
        columns.check()
        if out is None:
            session.check_standard_output()
        else:
            check_table(session, out, _is_own, replacing, read=files.paths)
        table, words, _ = read_labelled(session, files, columns, learning)
        learner = learning.learner(words, verbose=False)
        folds, groups = folds_of(session, table, words, groups_of(session, table))
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
            write_results(session, _rows(table, errors, errors.order), len(table), out)
            return
        shown = next(_rows(table, errors, errors.order[:top]))
        session.show(_text(errors, shown), {**_facts(errors), "most_suspicious": records(shown)})


def sample_size(
    files: Files,
    columns: Columns,
    learning: Learning,
    output: Output,
    target_error: Annotated[float, typer.Option(metavar="ERROR", help="The error to reach.")],
    measure: Annotated[
        Measure,
        typer.Option(help="Error to plan for: the excess loss per label (nats), or the relative error of M / tau."),
    ] = Measure.loss,
    delta: Annotated[
        float, typer.Option(metavar="PROBABILITY", help="Accepted probability of missing the target error.")
    ] = 0.05,
) -> None:
    """Plan how many pairs or comparisons to judge for a target error, from a pilot study.

    closefar sample-size --points points.csv --pairs pilot.csv --target-error 0.01
    """
    with Session("sample-size", output) as session:
        session.check_standard_output()
        files.source()
        learning.check(files)
        columns.check()
        if not (math.isfinite(target_error) and target_error >= _LEAST_ERROR):
            raise ValueError(
                f"--target-error must be a finite number >= {_LEAST_ERROR:g}, such as 0.05; got {target_error:g}."
            )
        if not 0 < delta < 1:
            raise ValueError(f"--delta must be between 0 and 1, such as 0.05; got {delta:g}.")
        table, words, _ = read_labelled(session, files, columns, learning)
        learner = fit_learner(session, table, words, learning)
        from closefar.questions import plan_sample_size

        with session.stage("planning"):
            plan = plan_sample_size(learner, target_error=target_error, measure=measure, delta=delta)
        sentence = command_words(plan.sentence)
        session.show(sentence, {**plain(plan), "sentence": sentence})


def _facts(errors: LabelErrors) -> dict[str, Any]:
    """What was found; a share is null where none is claimed."""
    names = ("share", "share_low", "share_high", "reason", "meaning", "n_contradicting")
    unseen = ("unseen_share", "unseen_low", "unseen_high")
    return {"n_labels": len(errors.labels), **{name: getattr(errors, name) for name in names + unseen}}


def _rows(table: Pairs, errors: LabelErrors, order: NDArray[Any]) -> Iterator[dict[str, NDArray[Any]]]:
    """The labels in this order, some at a time; beside a level stands the one that is expected."""
    labels = errors.labels.astype(int) if table.are_comparisons else errors.labels
    columns = dict(zip(_COLUMNS, (labels, errors.probability, errors.margin, errors.error), strict=True))
    if errors.expected is not None:
        columns = {name: columns.get(name, errors.expected) for name in _COLUMNS_OF_LEVELS}
    who = {} if table.annotators is None else {"annotator": table.annotators}
    return with_ids(table, {**who, **columns}, order)


def _is_own(path: Path) -> bool:
    return table_of(*_COLUMNS)(path) or table_of(*_COLUMNS_OF_LEVELS)(path)


def _text(errors: LabelErrors, shown: dict[str, NDArray[Any]]) -> str:
    lines = [command_words(errors.headline())]
    cells = [list(shown), *zip(*(map(_cell, values.tolist()) for values in shown.values()), strict=True)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    table = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join([*lines, *table])


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
