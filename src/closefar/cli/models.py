"""``closefar inspect``, ``truncate`` and ``export``: a model by itself."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from closefar.cli.data import directions_of
from closefar.cli.session import Output, Replacing, Session, is_export, is_model

if TYPE_CHECKING:
    from closefar.learners import Model
    from closefar.model import Metric

_MOST_ANNOTATORS = 10


class Scale(StrEnum):
    data = "data"
    units = "units"


ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by `closefar fit`.")]


def inspect(model: ModelArgument, output: Output) -> None:
    """Show what is in a model.

    closefar inspect model.closefar
    """
    with Session("inspect", output) as session:
        session.check_standard_output()
        from closefar.learners import Model

        loaded = Model.load(model)
        session.show(_text(loaded), _facts(loaded))


def truncate(
    model: ModelArgument,
    rank: Annotated[int, typer.Option("--rank", "-k", metavar="K", help="Number of directions to keep.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The model file to write.")],
    output: Output,
    replacing: Replacing,
    scale: Annotated[
        Scale | None,
        typer.Option(help="Compare directions in the scale of the data or in raw units. Default: data, where known."),
    ] = None,
) -> None:
    """Keep directions 1 to k of a metric, those that explain most of the mean squared distance.

    closefar truncate model.closefar --rank 2 --out small.closefar
    """
    with Session("truncate", output) as session:
        session.check_standard_output()
        if rank < 1:
            raise ValueError(
                f"--rank must be a whole number >= 1, as rank 0 puts every pair at distance 0; got {rank}."
            )
        replacing.check({out: is_model}, read=[model])
        from closefar.learners import Model

        loaded = Model.load(model)
        n_columns = len(loaded.metric.factor)
        if rank > n_columns:
            raise ValueError(f"--rank must be at most the model's {n_columns} columns; got {rank}.")
        small = loaded.truncate(rank, scale)
        session.write_files({out: small.to_bytes()})
        session.show(
            f"Kept {small.metric.rank} of {loaded.metric.rank} directions. Wrote {out}.",
            {"written": [str(out)], "rank": small.metric.rank, "rank_before": loaded.metric.rank},
        )


def export(
    model: ModelArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write: .onnx, .faiss, .csv, .json or .npz.")
    ],
    output: Output,
    replacing: Replacing,
) -> None:
    """Export a metric to other software, in the format of the file name.

    .onnx: distances and probabilities for any ONNX runtime. .faiss: an empty index to add points to.
    .csv: the matrix M. .json: everything. .npz: the arrays.

    closefar export model.closefar --out model.onnx
    """
    with Session("export", output) as session:
        session.check_standard_output()
        if out.suffix.lower() not in _FORMATS:
            raise ValueError(f"--out must end with {', '.join(_FORMATS)}; got {out.name!r}.")
        from closefar.learners import Model

        loaded = Model.load(model)
        replacing.check({out: is_export(loaded.encoding.feature_names)}, read=[model])
        with session.stage("exporting"):
            content = _FORMATS[out.suffix.lower()](loaded)
        session.write_files({out: content})
        session.show(f"Wrote {out}.", {"written": [str(out)]})


def _onnx(model: Model) -> bytes:
    content: bytes = model.metric.to_onnx().SerializeToString()
    return content


def _faiss(model: Model) -> bytes:
    index = model.metric.to_faiss()
    import faiss

    content: bytes = faiss.serialize_index(index).tobytes()
    return content


def _csv(model: Model) -> bytes:
    import numpy as np

    from closefar.tables import encode_table

    names = model.encoding.feature_names
    matrix = dict(zip(names, model.metric.matrix.T, strict=True))
    return encode_table({"": np.array(names), **matrix}, Path("matrix.csv"))


def _json(model: Model) -> bytes:
    import json

    from closefar.plain import plain

    return (json.dumps(plain(_facts(model), finite=True), indent=1) + "\n").encode()


def _npz(model: Model) -> bytes:
    import numpy as np

    from closefar.tables import encode_table

    metric = model.metric
    arrays = {
        "matrix": metric.matrix,
        "components": metric.components,
        "factor": metric.factor,
        "threshold": np.array(metric.thresholds if metric.threshold is None else metric.threshold),
        "feature_names": np.array(model.encoding.feature_names),
    }
    return encode_table(arrays if metric.origin is None else {**arrays, "origin": metric.origin}, Path("arrays.npz"))


_FORMATS = {".onnx": _onnx, ".faiss": _faiss, ".csv": _csv, ".json": _json, ".npz": _npz}


def _facts(model: Model) -> dict[str, Any]:
    metric = model.metric
    return {
        "feature_names": model.encoding.feature_names,
        "classes": model.classes,
        "single_points": model.is_single,
        "noise": metric.noise.name,
        "flip_rate": metric.flip_rate,
        "kind": model.kind,
        "threshold": metric.threshold,
        "thresholds": metric.thresholds,
        "comparison_noise": model.comparison_noise,
        "annotators": {name: model.strictness_of(name) for name in model.annotators},
        "rank": metric.rank,
        "directions": directions_of(metric),
        "eigenvalues": metric.eigenvalues,
        "factor": metric.factor,
        "matrix": metric.matrix,
        "origin": metric.origin,
        "encoding": model.encoding.to_json(),
        "fit": model.fit and {name: value for name, value in model.fit.items() if name != "summary"},
        "truncated": model.truncated and {"rank": model.truncated["rank"]},
    }


def _described(metric: Metric) -> str:
    from closefar.questions import describe_directions

    return "\n".join([repr(metric), *describe_directions(metric)])


def _text(model: Model) -> str:
    metric = model.metric
    lines = [model.summary or _described(metric)]
    if model.truncated is not None:
        lines.append(f"Truncated from rank {model.truncated['rank']}")
    lines += [*_judged_by(model), f"Columns   {', '.join(model.encoding.column_names)}"]
    if model.encoding.feature_names != model.encoding.column_names:
        lines.append(f"Encoded   {', '.join(model.encoding.feature_names)}")
    if metric.origin is not None:
        origin = ", ".join(
            f"{name} {value:.5g}" for name, value in zip(model.encoding.feature_names, metric.origin, strict=True)
        )
        lines.append(f"Origin    {origin}")
    return "\n".join(lines)


def _judged_by(model: Model) -> list[str]:
    """What the judgements were, and who made them."""
    if not model.classes:
        return ["Answers   comparisons, which determine no threshold"]
    first, *middle, last = model.classes
    lines = [f"Labels    {first!r} means close, {last!r} means far"]
    if middle:
        lines = [f"Levels    {', '.join([f'{first} (closest)', *middle, f'{last} (farthest)'])}"]
    if model.annotators:
        shown = [f"{name} {model.strictness_of(name):+.3g}" for name in model.annotators[:_MOST_ANNOTATORS]]
        more = len(model.annotators) - len(shown)
        rest = f" and {more:,} more (--json lists all)" if more else ""
        lines.append(f"Annotators and their strictness: {', '.join(shown)}{rest}")
    return lines
