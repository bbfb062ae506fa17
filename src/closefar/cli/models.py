"""The commands on a saved model: ``inspect``, ``truncate``, ``export``; on new data, and against labelled pairs."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from closefar.cli.data import (
    directions_of,
    read_for_model,
    report_of,
    sampled_groups,
    scored_by,
    squared_distances,
    with_ids,
)
from closefar.cli.options import (
    DECIMAL,
    MODEL_FILE,
    REPORT_TITLE,
    TABLE_FILE,
    Files,
    NewData,
    Points,
    WeightedFiles,
    argument,
    number,
    option,
)
from closefar.cli.session import REPORT, Output, Replacing, Session, check_table, named, write_results

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from closefar.fitting import Fit, Scores
    from closefar.learners import Model
    from closefar.tables import Pairs, PairTable

_MOST_ANNOTATORS = 10  # named by `closefar inspect`, in one line

_MODEL = argument("MODEL", "A model written by `closefar fit`.")


class Scale(StrEnum):
    data = "data"
    units = "units"


def inspect(output: Output, model: Path = _MODEL) -> None:
    """Show what is in a model.

    closefar inspect model.closefar
    """
    with Session("inspect", output) as session:
        from closefar.learners import Model

        loaded = Model.load(model)
        session.show(_inspected(loaded), _facts(loaded))


def truncate(
    output: Output,
    replacing: Replacing,
    model: Path = _MODEL,
    rank: int = option("Number of directions to keep.", "K", "--rank", "-k", default=...),
    out: Path = option("The model file to write.", "FILE", "--out", "-o", default=...),
    scale: Scale | None = option(
        "Compare directions in the scale of the data or in raw units. Default: data, where known."
    ),
) -> None:
    """Keep directions 1 to k of a metric, those that explain most of the mean squared distance.

    closefar truncate model.closefar --rank 2 --out small.closefar
    """
    with Session("truncate", output) as session:
        number(rank, int, "--rank", least=1)
        replacing.check([out], read=[model])
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
    output: Output,
    replacing: Replacing,
    model: Path = _MODEL,
    out: Path = option("The file to write: .onnx, .faiss, .csv, .json or .npz.", "FILE", "--out", "-o", default=...),
) -> None:
    """Export a metric to other software, in the format of the file name.

    .onnx: distances and probabilities for any ONNX runtime. .faiss: an empty index to add points to.
    .csv: the matrix M. .json: everything. .npz: the arrays.

    closefar export model.closefar --out model.onnx
    """
    with Session("export", output) as session:
        suffix = out.suffix.lower()
        if suffix not in _FORMATS:
            raise ValueError(f"--out must end with {', '.join(_FORMATS)}; got {out.name!r}.")
        replacing.check([out], read=[model])
        from closefar.learners import Model

        loaded = Model.load(model)
        with session.stage("exporting"):
            content = _exported(loaded, suffix)
        session.write_files({out: content})
        session.show(f"Wrote {out}.", {"written": [str(out)]})


_FORMATS = (".onnx", ".faiss", ".csv", ".json", ".npz")


def _exported(model: Model, suffix: str) -> bytes:
    """The metric of a model in the format of a suffix."""
    import numpy as np

    from closefar.tables import encode_table

    metric, names = model.metric, np.array(model.encoding.feature_names)
    if suffix == ".onnx":
        return bytes(metric.to_onnx().SerializeToString())
    if suffix == ".faiss":
        index = metric.to_faiss()  # says if the package is missing
        import faiss

        return bytes(faiss.serialize_index(index))
    if suffix == ".json":
        import json

        from closefar.plain import plain

        return (json.dumps(plain(_facts(model), finite=True), indent=1) + "\n").encode()
    if suffix == ".csv":
        return encode_table({"": names, **dict(zip(names.tolist(), metric.matrix.T, strict=True))}, Path("matrix.csv"))
    threshold = np.array(metric.thresholds if metric.threshold is None else metric.threshold)
    arrays = {name: getattr(metric, name) for name in ("matrix", "components", "factor", "origin")}
    arrays |= {"threshold": threshold, "feature_names": names}
    return encode_table({name: array for name, array in arrays.items() if array is not None}, Path("arrays.npz"))


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


def _inspected(model: Model) -> str:
    metric, encoding = model.metric, model.encoding
    if model.summary:
        lines = [model.summary]
    else:
        from closefar.questions import describe_directions

        lines = [repr(metric), *describe_directions(metric)]
    if model.truncated is not None:
        lines.append(f"Truncated from rank {model.truncated['rank']}")
    lines += [*_judged_by(model), f"Columns   {', '.join(encoding.column_names)}"]
    if encoding.feature_names != encoding.column_names:
        lines.append(f"Encoded   {', '.join(encoding.feature_names)}")
    if metric.origin is not None:
        origin = zip(encoding.feature_names, metric.origin, strict=True)
        lines.append(f"Origin    {', '.join(f'{name} {value:.5g}' for name, value in origin)}")
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


# ---------------------------------------------------------------------------------------------------------------------
# ``closefar predict`` and ``closefar transform``: a model applied to new data.


def predict(
    files: WeightedFiles,
    new_data: NewData,
    output: Output,
    replacing: Replacing,
    model: Path = MODEL_FILE,
    out: Path | None = TABLE_FILE,
    for_annotator: str | None = option(
        "Predict the labels of this annotator, instead of those of a typical one.", "ID"
    ),
) -> None:
    """Predict distances and probabilities of labels for new pairs, or of answers for new comparisons.

    closefar predict --model model.closefar --points points.csv --pairs new_pairs.csv --out predicted.csv
    """
    with Session("predict", output) as session:
        check_table(out, replacing, read=[*files.paths, model])
        loaded, table = read_for_model(session, model, files, new_data, labelled=False)
        write_results(session, _predictions(session, loaded, table, for_annotator), len(table), out)


def transform(
    points: Points,
    new_data: NewData,
    output: Output,
    replacing: Replacing,
    model: Path = MODEL_FILE,
    out: Path | None = TABLE_FILE,
    decimal: str = option(*DECIMAL, default="."),
) -> None:
    """Map points to coordinates in which the learned distance is Euclidean.

    Directions are in order of the mean squared distance that each explains on the training pairs.

    closefar transform --model model.closefar --points points.csv --out mapped.csv
    """
    with Session("transform", output) as session:
        files = Files(points=points.points, id=points.id, na_values=points.na_values, decimal=decimal)
        check_table(out, replacing, read=[points.points, model])
        from closefar.learners import Model
        from closefar.tables import read_or_open_points

        loaded = Model.load(model)
        with session.stage("reading"):
            table = read_or_open_points(loaded.source(files.source()), encoding=new_data.encoding_of(loaded))
        session.warn(*table.notes)
        mapped = table.projected(loaded.metric.components.T)
        columns = {f"direction{index}": column for index, column in enumerate(mapped.T, start=1)}
        write_results(session, with_ids(table, columns), len(mapped), out)


def _predictions(
    session: Session, model: Model, table: Pairs, annotator: str | None
) -> Iterator[dict[str, NDArray[Any]]]:
    """Give the columns of a prediction, some rows at a time: the ids, distances, probabilities and the label."""
    from closefar.tables import PairTable

    if table.comparisons is not None:
        raise ValueError("predictions are of --pairs or of --comparisons; got both. Leave one of them out.")
    if table.are_comparisons:
        if annotator is not None:
            raise ValueError(
                "annotators differ in their thresholds, and comparisons have none. Leave --for-annotator out."
            )
        assert isinstance(table, PairTable)
        columns = _compared(model, table)
    elif not model.metric.thresholds:
        session.warn(
            "the model has no threshold, as it was fitted to comparisons, so distances are all that it says of pairs; "
            "calibrate_threshold fits one to labelled pairs in Python."
        )
        columns = {"distance": squared_distances(table, model) ** 0.5}
    else:
        columns = _judged(model, table, annotator)
    return with_ids(table, columns)


def _judged(model: Model, table: Pairs, annotator: str | None) -> dict[str, Any]:
    import numpy as np

    from closefar.judgements import CodedLabels

    metric, squared = model.metric, squared_distances(table, model)
    heard, rate = squared, None
    if annotator is not None:
        heard, rate = squared - model.strictness_of(annotator), model.flip_rate_of(annotator)
    distance = np.sqrt(squared)
    if len(model.classes) > 2:
        probabilities = zip(model.classes, metric.probabilities_at(heard, rate).T, strict=True)
        each = {f"probability_{level}": probability for level, probability in probabilities}
        return {"distance": distance, **each, "predicted": CodedLabels(model.classes, metric.levels_at(heard))}
    margin = heard - metric.known_threshold
    far = metric.probability_at(margin) if rate is None else metric.probabilities_at(heard, rate)[:, 1]
    labels = CodedLabels(model.classes, (margin >= 0).view(np.int8))
    return {"distance": distance, "margin": margin, "probability_far": far, "predicted": labels}


def _compared(model: Model, table: PairTable) -> dict[str, Any]:
    import numpy as np

    from closefar.noise import with_flips

    left, right = (squared_distances(leg, model) for leg in table.legs)
    margin, metric = right - left, model.metric
    return {
        "distance_left": np.sqrt(left),
        "distance_right": np.sqrt(right),
        "margin": margin,
        "probability_left": with_flips(metric.noise.cdf(margin / model.comparison_noise), metric.compared_flip_rate),
        "predicted": np.where(margin >= 0, 1, -1),
    }


# ---------------------------------------------------------------------------------------------------------------------
# ``closefar evaluate`` and ``closefar report``: a model against labelled pairs.


def evaluate(files: WeightedFiles, new_data: NewData, output: Output, model: Path = MODEL_FILE) -> None:
    """Measure the accuracy of a model on labelled pairs or comparisons, preferably ones it was not fitted to.

    The plain distance, with the threshold that suits the training pairs best, is measured beside it.

    closefar evaluate --model model.closefar --points points.csv --pairs test_pairs.csv
    """
    with Session("evaluate", output) as session:
        loaded, table = read_for_model(session, model, files, new_data, labelled=True)
        if loaded.is_fitted_to(table):
            what = "comparisons" if table.are_comparisons else "pairs"
            session.warn(f"these are the training {what} of the model: expect a somewhat lower accuracy on new {what}.")
        figures = _figures(loaded, table, None if loaded.fit is None else loaded.learner().fit_)
        readings = [
            each["plain"]["reading"] for each in (figures, figures.get("comparisons")) if each and each["plain"]
        ]
        rows = [f"{name:<28}{value}" for name, value in _rows(figures)]
        session.show("\n".join([*rows, *dict.fromkeys(filter(None, readings))]), figures)


def report(
    files: WeightedFiles,
    new_data: NewData,
    output: Output,
    replacing: Replacing,
    model: Path = MODEL_FILE,
    out: Path = option(
        "The report to write: .html, .json, .txt or .md.", "FILE", "--out", "-o", default=Path("report.html")
    ),
    title: str | None = REPORT_TITLE,
) -> None:
    """Write a report on a model and its accuracy on labelled pairs or comparisons.

    On those that it was fitted to, accuracy is cross-validated.

    closefar report --model model.closefar --points points.csv --pairs pairs.csv --out report.html
    """
    with Session("report", output) as session:
        replacing.check([out], read=[*files.paths, model])
        from closefar.report import check_report
        from closefar.tables import labels_of

        check_report(named(out, REPORT))
        loaded, table = read_for_model(session, model, files, new_data, labelled=True)
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


def _figures(model: Model, table: Pairs, fit: Fit | None) -> dict[str, Any]:
    """Return the figures, weighted as the judgements are; `confusion` counts pairs.

    The accuracy of comparisons is the share that the metric agrees with; a guess agrees with half of them.  `plain` is
    the plain distance, for a model that remembers it: one for which settings were chosen.
    """
    import numpy as np

    scored: Any = scored_by(model, table)
    plain = None if fit is None else _plain_distance(fit, scored, table)
    common = {"accuracy": scored.accuracy, "loss": scored.loss, "plain": plain}
    if table.are_comparisons:
        return {"n_comparisons": len(scored), "baseline": 0.5, **common}
    figures = {"n_pairs": len(scored), "baseline": scored.majority, "auc": scored.auc, **common}
    figures["classes"] = model.classes
    figures["confusion"] = scored.confusion(np.ones(len(scored))).astype(int).tolist()
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


def _rows(figures: dict[str, Any]) -> list[tuple[str, str]]:
    is_compared, plain = "n_comparisons" in figures, figures["plain"]
    if is_compared:
        rows = [("Comparisons", f"{figures['n_comparisons']:,}")]
        accuracy, baseline, unit = "Agreement", "Agreement of guesses", "answer"
    else:
        rows = [("Pairs", f"{figures['n_pairs']:,}")]
        accuracy, baseline, unit = "Accuracy", "Majority baseline", "label"
    rows += [(accuracy, f"{figures['accuracy']:.4f}"), (baseline, f"{figures['baseline']:.4f}")]
    if plain is not None:
        rows.append((f"{accuracy}, plain distance", f"{plain['accuracy']:.4f} ({plain['distance']})"))
    if not is_compared:
        rows.append(("Area under the ROC curve", "-" if figures["auc"] is None else f"{figures['auc']:.4f}"))
    rows.append((f"Loss (nats per {unit})", f"{figures['loss']:.6f}"))
    if plain is not None:
        rows.append(("Loss, plain distance", f"{plain['loss']:.6f} ({plain['distance']})"))
    if "mean_error" in figures:
        rows.append(("Mean error (levels)", f"{figures['mean_error']:.4f}"))
    words = figures.get("classes", ())
    for word, counts in zip(words, figures.get("confusion", ()), strict=True):
        predicted = ", ".join(f"{count:,} predicted {other!r}" for other, count in zip(words, counts, strict=True))
        rows.append((f"Labelled {word!r}", predicted))
    return rows + (_rows(figures["comparisons"]) if "comparisons" in figures else [])
