"""``closefar inspect``, ``truncate`` and ``export``: a model by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from closefar.cli.data import check_outputs
from closefar.cli.session import Output, Session

if TYPE_CHECKING:
    from closefar.learners import Model

__all__ = ["export", "inspect", "truncate"]

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A model that `closefar fit` wrote.")]


def inspect(model: ModelArgument, output: Output) -> None:
    """Show what a model holds.

    closefar inspect model.closefar
    """
    with Session("inspect", output) as session:
        from closefar.learners import Model

        loaded = Model.load(model)
        session.show(_text(loaded), _facts(loaded))


def truncate(
    model: ModelArgument,
    rank: Annotated[int, typer.Option("--rank", "-k", help="How many directions to keep.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The model file to write.")],
    output: Output,
    scale: Annotated[str | None, typer.Option(help="Compare directions in the scale of the data, or in units.")] = None,
) -> None:
    """Keep the strongest directions of a metric.

    closefar truncate model.closefar --rank 2 --out small.closefar
    """
    with Session("truncate", output) as session:
        check_outputs(out, read=[model])
        from closefar.files import replace_file
        from closefar.learners import Model

        loaded = Model.load(model)
        small = loaded.truncate(rank, scale)
        replace_file(out, small.to_bytes())
        session.show(
            f"Kept {small.metric.rank} of {loaded.metric.rank} directions. Wrote {out}.",
            {"written": [str(out)], "rank": small.metric.rank, "rank_before": loaded.metric.rank},
        )


def export(
    model: ModelArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="A name that ends with .onnx, .faiss, .csv, .json or .npz.")],
    output: Output,
) -> None:
    """Write a metric for other software; what is written follows from the name.

    .onnx: distances and probabilities for any ONNX runtime. .faiss: an empty index to add points to.
    .csv: the matrix M. .json: everything. .npz: the arrays.

    closefar export model.closefar --out model.onnx
    """
    with Session("export", output) as session:
        check_outputs(out, read=[model])
        from closefar.files import replace_file
        from closefar.learners import Model

        loaded = Model.load(model)
        if out.suffix.lower() not in _FORMATS:
            raise ValueError(f"--out must end with {', '.join(_FORMATS)}; got {out.name!r}.")
        with session.stage("exporting"):
            content = _FORMATS[out.suffix.lower()](loaded)
        replace_file(out, content)
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
        "factor": metric.factor,
        "threshold": np.array(metric.threshold),
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
        "threshold": metric.threshold,
        "rank": metric.rank,
        "eigenvalues": metric.eigenvalues,
        "factor": metric.factor,
        "matrix": metric.matrix,
        "origin": metric.origin,
        "encoding": model.encoding.to_json(),
        "fit": model.fit and {name: value for name, value in model.fit.items() if name != "summary"},
    }


def _text(model: Model) -> str:
    metric = model.metric
    close, far = model.classes
    lines = [model.summary or repr(metric)]
    lines += [
        f"Labels    {close!r} is close, {far!r} is far",
        f"Columns   {', '.join(model.encoding.column_names)}",
    ]
    if model.encoding.feature_names != model.encoding.column_names:
        lines.append(f"Encoded   {', '.join(model.encoding.feature_names)}")
    if metric.origin is not None:
        origin = ", ".join(
            f"{name} {value:.5g}" for name, value in zip(model.encoding.feature_names, metric.origin, strict=True)
        )
        lines.append(f"Origin    {origin}")
    return "\n".join(lines)
