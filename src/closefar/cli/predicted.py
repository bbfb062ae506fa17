"""What a model says of new pairs and comparisons: the columns of a table of predictions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from closefar.cli.data import squared_distances, with_ids
from closefar.cli.outputs import columns_of
from closefar.cli.session import Session

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from closefar.learners import Model
    from closefar.tables import Pairs, PairTable

__all__ = ["is_prediction", "predictions"]

_OF_PAIRS = ("distance", "margin", "probability_far", "predicted")
_OF_COMPARISONS = ("distance_left", "distance_right", "margin", "probability_left", "predicted")
_OF_A_LEVEL = "probability_"


def predictions(
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
    if len(model.classes) == 2:
        margin = heard - metric.known_threshold
        labels = CodedLabels(model.classes, (margin >= 0).view(np.int8))
        probability = metric.probability_at(margin) if rate is None else metric.probabilities_at(heard, rate)[:, 1]
        return dict(zip(_OF_PAIRS, (np.sqrt(squared), margin, probability, labels), strict=True))
    labels = CodedLabels(model.classes, metric.levels_at(heard))
    probabilities = zip(model.classes, metric.probabilities_at(heard, rate).T, strict=True)
    each = {f"{_OF_A_LEVEL}{level}": probability for level, probability in probabilities}
    return {"distance": np.sqrt(squared), **each, "predicted": labels}


def _compared(model: Model, table: PairTable) -> dict[str, Any]:
    import numpy as np

    from closefar.noise import with_flips

    left, right = (squared_distances(leg, model) for leg in table.legs)
    margin, metric = right - left, model.metric
    probability = with_flips(metric.noise.cdf(margin / model.comparison_noise), metric.compared_flip_rate)
    predicted = np.where(margin >= 0, 1, -1)
    columns = (np.sqrt(left), np.sqrt(right), margin, probability, predicted)
    return dict(zip(_OF_COMPARISONS, columns, strict=True))


def is_prediction(path: Path) -> bool:
    """Whether a table is a prediction, of whatever kind."""
    names = columns_of(path)
    for known in (_OF_PAIRS, _OF_COMPARISONS, ("distance",)):
        if len(names) > len(known) and tuple(names[-len(known) :]) == known:
            return True
    if "distance" not in names[1:] or names[-1] != "predicted":
        return False
    levels = names[names.index("distance") + 1 : -1]
    return len(levels) > 2 and all(name.startswith(_OF_A_LEVEL) for name in levels)
