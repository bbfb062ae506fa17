"""What speaks against a fit: labels that look wrong, noise of another kind, and what the data leave open."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.diagnosis import Diagnosis
from closefar.label_errors import LabelErrors
from closefar.learner import LinearMetricLearner
from closefar.noise_check import check_noise_model
from closefar.report.effort import Effort
from closefar.report.evidence import Judgement, Pairs
from closefar.report.wording import count, effective_number, percent, sentence, wilson

__all__ = ["caveat", "is_separable", "noise_check", "problems", "read_ids", "shared_points", "wrong_labels"]

_MOST_SUSPICIOUS = 25
_SUSPICIOUS = 0.1  # a label less probably wrong than this is not listed
_DOUBT = 0.05
_CHANCE = (
    "On these labels the metric is not clearly better than chance. Check the labels, which of them means far, and "
    "whether the columns can tell; or label more pairs."
)


def is_separable(learner: LinearMetricLearner) -> bool:
    """Whether the fit gets every label right, so that the scale of its margins says nothing."""
    return learner.certificate_.status.startswith("separable")


def caveat(learner: LinearMetricLearner) -> str:
    """What to bear in mind of its probabilities, if anything."""
    if is_separable(learner):
        return " The labels of the fit are separable, so the scale of these probabilities is arbitrary."
    if learner.class_weight is not None:
        return " The fit had class weights, which shift these probabilities on purpose."
    if learner.alpha > 0:
        return " The penalty alpha draws them towards the middle."
    return ""


def shared_points(ids: NDArray[np.object_] | None) -> str:
    """What it means that pairs have points in common, where their ids say so."""
    if ids is None or ids.shape[1] < 2 or len(np.unique(ids.astype(str))) == ids.size:
        return ""
    return (
        " Pairs share points: what is said here holds for new pairs of these points. With new points it may do worse, "
        "and the intervals are somewhat too narrow."
    )


def read_ids(ids: Any, n: int) -> NDArray[np.object_] | None:
    """Return a column of text for each id of a pair: one or two."""
    if ids is None:
        return None
    found = np.asarray(ids, dtype=object)
    if found.shape not in ((n,), (n, 1), (n, 2)):
        raise ValueError(
            f"ids must name each pair by one id or by those of its two points: shape ({n},) or ({n}, 2); "
            f"got {found.shape}."
        )
    return np.vectorize(str, otypes=[object])(found.reshape(n, -1)) if n else found.reshape(n, -1)


def wrong_labels(
    judged: Judgement, learner: LinearMetricLearner, ids: NDArray[np.object_] | None, *, is_chance: bool
) -> dict[str, Any]:
    """The share of wrong labels with its interval, and the most suspicious pairs.

    Where the fits that judged say how probably each label is wrong, that is shown; elsewhere the
    labels that contradict the metric, as if it were exact.
    """
    errors = judged.errors
    if learner.metric_.rank == 0:
        return _none("The metric is zero, so it can't tell right labels from wrong ones.")
    if is_chance:
        return _none("The metric is not clearly better than chance, so it can't tell right labels from wrong ones.")
    if learner.class_weight is not None:
        return _none("Class weights move the threshold on purpose, so a label on its other side need not be wrong.")
    if is_separable(learner) or learner.alpha > 0:  # the scale of the margins is not that of the noise
        errors = None
    part = _contradictions(judged) if errors is None else _probabilities(errors, judged.pairs.noun)
    rows = [_row(judged, index, ids, errors) for index in part.pop("order").tolist()]
    return {"reason": None, **part, "id_columns": 0 if ids is None else ids.shape[1], "rows": rows}


def noise_check(learner: LinearMetricLearner, pairs: Pairs, seed: int) -> dict[str, Any]:
    """Labels observed against labels expected, by margin."""
    if pairs.rarer == 0:
        return {"reason": f"All of these {pairs.noun}s have the same label."}
    used = pairs.sample(Effort.of(learner).pairs_to_check(len(pairs)), seed)
    try:
        check = check_noise_model(learner, used.data, used.labels, used.sample_weight)
    except ValueError as error:  # says why it can't be checked
        return {"reason": sentence(str(error))}
    outside = sum(abs(row.z) > 1.96 for row in check.bins)
    groups = f"{outside} of {count(len(check.bins), 'group')} {'lies' if outside == 1 else 'lie'} outside the 95% band."
    if learner.alpha > 0:
        groups += " The penalty alpha shrinks margins, which this test sees too."
    sampled = f" Checked with {len(used):,} of them, chosen at random." if len(used) < len(pairs) else ""
    return {
        "reason": None,
        "p_value": check.p_value,
        "statistic": check.statistic,
        "dof": check.dof,
        "tail_z": check.tail_z,
        "n_pairs": len(used),
        "bins": [vars(row) for row in check.bins],
        "reading": f"{check.advice} {groups}{sampled}",
        "advice": check.advice,
    }


def problems(learner: LinearMetricLearner, noise: dict[str, Any], *, is_chance: bool) -> list[str]:
    """What the fit, its data and its noise leave open, most pressing first."""
    found = list(learner.data_problems)
    if is_chance:
        found.insert(0, _CHANCE)
    elif noise["reason"] is None and noise["p_value"] < _DOUBT and learner.alpha == 0:
        found.append(noise["advice"])
    diagnosis = Diagnosis.of(learner.metric_, learner.certificate_, learner.fit_statistics_, found)
    return [sentence(problem) for problem in diagnosis.problems]


def _probabilities(errors: LabelErrors, noun: str) -> dict[str, Any]:
    doubtful = int(np.sum(errors.probability > 0.5))
    listed = errors.order[:_MOST_SUSPICIOUS]
    are = "is" if doubtful == 1 else "are"
    return {
        "kind": "probability",
        "share": errors.share,
        "share_low": errors.share_low,
        "share_high": min(errors.share_high, 1.0),
        "n_doubtful": doubtful,
        "order": listed[errors.probability[listed] >= _SUSPICIOUS],
        "reading": (
            f"About {percent(errors.share)} of the labels are wrong (95% interval {percent(errors.share_low)} to "
            f"{percent(min(errors.share_high, 1.0))}): they are not those of the side of the threshold on which their "
            f"{noun}s lie. {count(doubtful, 'label')} {are} more likely wrong than right."
        ),
    }


def _contradictions(judged: Judgement) -> dict[str, Any]:
    pairs = judged.pairs
    share = float(np.average(~judged.is_right, weights=pairs.weights))
    low, high = wilson(share, effective_number(pairs.weights))
    order = np.argsort(pairs.signs * judged.margin, kind="stable")
    contradicting = order[~judged.is_right[order]]
    judge = "the fit that had not seen them" if judged.source == "out-of-fold" else "the metric"
    return {
        "kind": "contradiction",
        "share": share,
        "share_low": low,
        "share_high": high,
        "n_doubtful": len(contradicting),
        "order": contradicting[:_MOST_SUSPICIOUS],
        "reading": (
            f"{percent(share)} of the labels contradict {judge} (95% interval {percent(low)} to {percent(high)})."
            + (" If it were exact, these would be the wrong ones; the strongest come first." if share > 0 else "")
        ),
    }


def _none(reason: str) -> dict[str, Any]:
    return {"reason": reason, "kind": None, "rows": []}


def _row(judged: Judgement, index: int, ids: NDArray[np.object_] | None, errors: LabelErrors | None) -> dict[str, Any]:
    pairs, number = judged.pairs, int(judged.pairs.numbers[index])
    far = float(judged.probability_far[index])
    return {
        "row": number,
        "ids": [] if ids is None else ids[number].tolist(),
        "label": str(pairs.labels[index]),
        "is_far": bool(pairs.is_far[index]),
        "probability_wrong": None if errors is None else float(errors.probability[index]),
        "probability_of_label": far if pairs.is_far[index] else 1.0 - far,
        "margin": float(judged.margin[index]),
        "error": None if errors is None else float(errors.error[index]),
    }
