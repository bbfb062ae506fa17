"""How far the learned distance agrees with the labels: accuracy, distances, probabilities and the ROC curve."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score, roc_curve

from closefar.arrays import FloatArray
from closefar.metric import Metric
from closefar.noise import label_losses
from closefar.report.evidence import Judgement
from closefar.report.wording import effective_number, listed, number, percent, wilson

__all__ = ["calibration", "distances", "quality", "roc"]

_CALIBRATION_BINS = 10
_HISTOGRAM_BINS = 40
_MOST_ROC_POINTS = 200

# The axis of distances ends here: at this quantile of them, and at so many thresholds at the most.
_SHOWN_SHARE = 0.98
_MOST_THRESHOLDS = 10.0

# A difference of calibration of this size is worth a word.
_NOTABLE = 0.03


def quality(judged: Judgement, metric: Metric, labels: list[str]) -> dict[str, Any]:
    """How many labels are agreed with, beside always saying the likelier one."""
    pairs = judged.pairs
    accuracy = float(np.average(judged.is_right, weights=pairs.weights))
    share_far = float(np.average(pairs.is_far, weights=pairs.weights))
    low, high = wilson(accuracy, effective_number(pairs.weights))
    losses = label_losses(metric.noise, pairs.signs * judged.margin, metric.flip_rate)
    return {
        "accuracy": accuracy,
        "accuracy_low": low,
        "accuracy_high": high,
        "likelier": "far" if share_far >= 0.5 else "close",
        "always_likelier": max(share_far, 1.0 - share_far),
        "share_far": share_far,
        "auc": _auc(judged, metric),
        "is_chance": _is_chance(judged, metric),
        "loss": float(np.average(losses, weights=pairs.weights)),
        "null_loss": _entropy(share_far),
        "confusion": {"labels": labels, "counts": _confusion(judged)},
    }


def distances(judged: Judgement, metric: Metric) -> dict[str, Any]:
    """A histogram of squared distances, close and far, with all that are too long for it in its last bin.

    A margin by a fit of its own is shown at its distance from the threshold of the fit to all.
    """
    squared = np.maximum(judged.margin + metric.threshold, 0.0)
    weights, tau = judged.pairs.weights, metric.threshold
    end = float(np.quantile(squared, _SHOWN_SHARE))
    if tau > 0:
        end = float(np.clip(end, 1.5 * tau, _MOST_THRESHOLDS * tau))
    end = end if end > 0 else 1.0
    edges = np.linspace(0.0, end, _HISTOGRAM_BINS + 1)
    counts = {
        name: np.histogram(np.minimum(squared, end)[chosen], edges, weights=weights[chosen])[0].tolist()
        for name, chosen in (("close", ~judged.pairs.is_far), ("far", judged.pairs.is_far))
    }
    beyond = float(np.average(squared > end, weights=weights))
    return {"edges": edges.tolist(), **counts, "threshold": tau, "beyond": beyond, "reading": _sides(judged, beyond)}


def calibration(judged: Judgement, *, caveat: str) -> dict[str, Any]:
    """Bins of about equal weight; pairs of the same probability share one, so row order never matters."""
    probability, weights = judged.probability_far, judged.pairs.weights
    order = np.argsort(probability, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    wanted = np.arange(1, _CALIBRATION_BINS) / _CALIBRATION_BINS
    edges = np.unique(probability[order][np.searchsorted(share, wanted - 1e-12)])
    bins = np.searchsorted(edges, probability, side="right")
    rows = []
    for index in np.unique(bins):
        inside = bins == index
        w = weights[inside]
        observed = float(np.average(judged.pairs.is_far[inside], weights=w))
        low, high = wilson(observed, effective_number(w))
        predicted = float(np.average(probability[inside], weights=w))
        rows.append(
            {
                "predicted": predicted,
                "observed": observed,
                "low": low,
                "high": high,
                "count": int(inside.sum()),
                "weight": float(w.sum()),
            }
        )
    error = float(np.average([abs(row["predicted"] - row["observed"]) for row in rows], weights=_weights(rows)))
    same = (
        f"All of these {judged.pairs.noun}s have the same label, so it can't be told whether probabilities are right."
    )
    reading = same if judged.pairs.rarer == 0 else f"{_calibration_reading(rows, error)}{caveat}"
    return {"bins": rows, "error": error, "reading": reading}


def roc(judged: Judgement, metric: Metric) -> dict[str, Any]:
    """The share of far pairs that is found against the share of close pairs that is called far, for each threshold."""
    auc = _auc(judged, metric)
    if metric.rank == 0:
        return {"reason": "The metric is zero, so every distance is."}
    if auc is None:
        return {"reason": f"All of these {judged.pairs.noun}s have the same label, so there is nothing to tell apart."}
    pairs = judged.pairs
    false, true, _ = roc_curve(pairs.is_far, judged.margin, sample_weight=pairs.weights)
    kept = np.unique(np.linspace(0, len(false) - 1, min(len(false), _MOST_ROC_POINTS)).round().astype(int))
    called_far = judged.margin >= 0
    found, wrongly = (
        float(np.average(called_far[chosen], weights=pairs.weights[chosen])) for chosen in (pairs.is_far, ~pairs.is_far)
    )
    return {
        "reason": None,
        "auc": auc,
        "false_far": false[kept].tolist(),
        "true_far": true[kept].tolist(),
        "at_threshold": {"false_far": wrongly, "true_far": found},
        "reading": (
            f"Of a close and a far {pairs.noun}, drawn at random, the far one has the larger distance with probability "
            f"{number(auc)}. At the learned threshold {percent(found)} of those labelled far are called far, and "
            f"{percent(wrongly)} of those labelled close."
        ),
    }


def _auc(judged: Judgement, metric: Metric) -> float | None:
    if judged.pairs.rarer == 0 or metric.rank == 0:
        return None
    return float(roc_auc_score(judged.pairs.is_far, judged.margin, sample_weight=judged.pairs.weights))


def _is_chance(judged: Judgement, metric: Metric) -> bool:
    """Whether the ROC area is one that labels made at random would reach with a probability of half a percent."""
    auc = _auc(judged, metric)
    if auc is None:
        return False
    far, close = int(judged.pairs.is_far.sum()), int((~judged.pairs.is_far).sum())
    return auc < 0.5 + 2.58 * float(np.sqrt((far + close + 1) / (12.0 * far * close)))


def _confusion(judged: Judgement) -> list[list[float]]:
    """Weights with a row for each label given and a column for each label predicted, close first."""
    cells = 2 * judged.pairs.is_far + (judged.margin >= 0)
    counts = np.bincount(cells, weights=judged.pairs.weights, minlength=4)
    return [[float(count) for count in row] for row in counts.reshape(2, 2)]


def _entropy(share: float) -> float:
    parts = [part for part in (share, 1.0 - share) if part > 0]
    return float(-sum(part * np.log(part) for part in parts))


def _sides(judged: Judgement, beyond: float) -> str:
    far, weights = judged.pairs.is_far, judged.pairs.weights
    said = []
    for name, chosen, where in (("close", ~far, "below"), ("far", far, "beyond")):
        if np.any(chosen):
            share = percent(float(np.average(judged.is_right[chosen], weights=weights[chosen])))
            said.append(f"{share} of the {name} {judged.pairs.noun}s lie {where} the threshold")
    rest = f" The last bar also counts the {percent(beyond)} that are longer." if beyond > 0 else ""
    return f"{listed(said)}.{rest}"


def _calibration_reading(rows: list[dict[str, Any]], error: float) -> str:
    if len(rows) == 1:
        (row,) = rows
        return (
            f"Each is given the probability {percent(row['predicted'])} of being far; {percent(row['observed'])} "
            "are labelled far."
        )
    outside = [row for row in rows if not row["low"] <= row["predicted"] <= row["high"]]
    words = f"Predicted probabilities and observed shares differ by {100.0 * error:.1f} points on average"
    if not outside:
        return f"{words}, within chance in all {len(rows)} groups."
    worst = max(outside, key=lambda row: abs(row["predicted"] - row["observed"]))
    most = (
        f"most where {percent(worst['predicted'])} is predicted and {percent(worst['observed'])} is observed"
        if abs(worst["predicted"] - worst["observed"]) >= _NOTABLE
        else "nowhere by much"
    )
    return f"{words}, beyond chance in {len(outside)} of {len(rows)} groups, {most}."


def _weights(rows: list[dict[str, Any]]) -> FloatArray:
    return np.array([row["weight"] for row in rows])
