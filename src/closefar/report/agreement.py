"""How well the learned distance predicts the labels: accuracy, distances, probabilities and the ROC curve."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import roc_curve

from closefar.model import Metric
from closefar.questions import CalibrationBin, calibrate
from closefar.report.evidence import Judged
from closefar.report.wording import listed, percent

__all__ = ["calibration", "distances", "quality", "roc"]

_CALIBRATION_BINS = 10
_HISTOGRAM_BINS = 40
_MOST_ROC_POINTS = 200

# The axis of distances ends here: at this quantile of them, and at so many thresholds at the most.
_SHOWN_SHARE = 0.98
_MOST_THRESHOLDS = 10.0

# A difference of calibration of this size is worth a word.
_NOTABLE = 0.03


def quality(judged: Judged, metric: Metric, labels: list[str]) -> dict[str, Any]:
    """Accuracy beside the majority baseline, the area under the ROC curve, the loss and the confusion matrix."""
    scored = judged.scored
    return {
        **_accuracy(judged),
        "likelier": "far" if scored.share_far >= 0.5 else "close",
        "baseline": scored.majority,
        "share_far": scored.share_far,
        "auc": _auc(judged, metric),
        "is_chance": _is_chance(judged, metric),
        "loss": scored.loss,
        "null_loss": scored.null_loss,
        "known": None if judged.known is None else _known(judged.known, metric),
        "confusion": {"labels": labels, "counts": scored.confusion().tolist()},
    }


def distances(judged: Judged, metric: Metric) -> dict[str, Any]:
    """A histogram of squared distances, close and far, with all that are too long for it in its last bin.

    Cross-validated distances are scaled so that the threshold of each fit is that of the fit to all.
    """
    squared = judged.squared_distances(metric.known_threshold)
    is_far, weights, tau = judged.judgements.is_far, judged.judgements.weights, metric.known_threshold
    end = float(np.quantile(squared, _SHOWN_SHARE))
    if tau > 0:
        end = float(np.clip(end, 1.5 * tau, _MOST_THRESHOLDS * tau))
    end = end if end > 0 else 1.0
    edges = np.linspace(0.0, end, _HISTOGRAM_BINS + 1)
    counts = {
        name: np.histogram(np.minimum(squared, end)[chosen], edges, weights=weights[chosen])[0].tolist()
        for name, chosen in (("close", ~is_far), ("far", is_far))
    }
    beyond = float(np.average(squared > end, weights=weights))
    return {
        "edges": edges.tolist(),
        **counts,
        "counted": f"{judged.noun}s" if judged.judgements.sample_weight is None else "weight",
        "threshold": tau,
        "beyond": beyond,
        "reading": _sides(judged),
    }


def calibration(judged: Judged, *, caveat: str) -> dict[str, Any]:
    """Probabilities beside the shares labelled far, in bins."""
    bins = calibrate(judged.scored, _CALIBRATION_BINS)
    error = float(np.average([abs(row.predicted - row.observed) for row in bins], weights=[row.weight for row in bins]))
    reading = f"{_calibration_reading(bins, error)}{caveat}"
    if judged.judgements.n_rarer == 0:
        reading = f"All of these {judged.noun}s have the same label, so calibration can't be checked."
    return {"bins": [vars(row) for row in bins], "error": error, "reading": reading}


def roc(judged: Judged, metric: Metric) -> dict[str, Any]:
    """The true positive rate against the false positive rate for each threshold; far is positive."""
    auc = _auc(judged, metric)
    if metric.rank == 0:
        return {"reason": "The metric is zero, and so is every distance."}
    if auc is None:
        return {"reason": f"All of these {judged.noun}s have the same label, so there is nothing to tell apart."}
    judgements, margin = judged.judgements, judged.scored.margin
    false, true, _ = roc_curve(judgements.is_far, margin, sample_weight=judgements.weights)
    kept = np.unique(np.linspace(0, len(false) - 1, min(len(false), _MOST_ROC_POINTS)).round().astype(int))
    found, wrongly = (
        float(np.average(margin[chosen] >= 0, weights=judgements.weights[chosen]))
        for chosen in (judgements.is_far, ~judgements.is_far)
    )
    return {
        "reason": None,
        "auc": auc,
        "false_far": false[kept].tolist(),
        "true_far": true[kept].tolist(),
        "at_threshold": {"false_far": wrongly, "true_far": found},
        "reading": (
            f"A random far {judged.noun} has a larger distance than a random close {judged.noun} with probability "
            f"{auc:.3f}. At the learned threshold, {percent(found)} of the {judged.noun}s labelled far are "
            f"predicted far (true positives), and {percent(wrongly)} of those labelled close (false positives)."
        ),
    }


def _accuracy(judged: Judged) -> dict[str, float]:
    low, high = judged.interval(judged.scored.is_right)
    return {"accuracy": judged.scored.accuracy, "accuracy_low": low, "accuracy_high": high}


def _known(judged: Judged, metric: Metric) -> dict[str, Any]:
    """The same for new pairs of known points or groups."""
    return {
        **_accuracy(judged),
        "auc": _auc(judged, metric),
        "loss": judged.scored.loss,
        "n_pairs": len(judged.scored),
    }


def _auc(judged: Judged, metric: Metric) -> float | None:
    return None if metric.rank == 0 else judged.scored.auc


def _is_chance(judged: Judged, metric: Metric) -> bool:
    """Whether random labels would reach this area under the ROC curve with a probability of half a percent."""
    auc = _auc(judged, metric)
    if auc is None:
        return False
    used = judged.effective_number(judged.scored.is_right) / judged.judgements.effective_number
    far = used * int(judged.judgements.is_far.sum())
    close = used * len(judged.judgements) - far
    return auc < 0.5 + 2.58 * float(np.sqrt((far + close + 1) / (12.0 * far * close)))


def _sides(judged: Judged) -> str:
    far, weights = judged.judgements.is_far, judged.judgements.weights
    said: list[str] = []
    for name, chosen, where in (("close", ~far, "below"), ("far", far, "above")):
        if np.any(chosen):
            share = percent(float(np.average(judged.scored.is_right[chosen], weights=weights[chosen])))
            there = f"{where} it" if said else f"lie {where} the threshold"
            said.append(f"{share} of the {name} {judged.noun}s {there}")
    return f"{listed(said)}."


def _calibration_reading(bins: list[CalibrationBin], error: float) -> str:
    if len(bins) == 1:
        return (
            f"Every predicted probability of far is {percent(bins[0].predicted)}; the observed share is "
            f"{percent(bins[0].observed)}."
        )
    outside = [row for row in bins if not row.is_within_chance]
    words = f"Predicted probabilities and observed shares differ by {100.0 * error:.1f} percentage points on average"
    if not outside:
        return f"{words}; no bin differs by more than chance."
    worst = max(outside, key=lambda row: abs(row.predicted - row.observed))
    most = (
        f"most where {percent(worst.predicted)} is predicted and {percent(worst.observed)} observed"
        if abs(worst.predicted - worst.observed) >= _NOTABLE
        else "though nowhere by much"
    )
    return f"{words}; {len(outside)} of {len(bins)} bins differ by more than chance, {most}."
