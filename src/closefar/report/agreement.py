"""How well the learned distance predicts the labels: accuracy, distances, probabilities and the ROC curve."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import roc_curve

from closefar.fitting import Scores
from closefar.judgements import Kind
from closefar.model import Metric, Scored, ScoredLevels
from closefar.questions import CalibrationBin, calibrate, sides_of
from closefar.report.evidence import Judged, has_sides
from closefar.report.histograms import close_and_far, legs, levels
from closefar.report.wording import listed, percent

__all__ = ["calibration", "distances", "quality", "roc"]

_CALIBRATION_BINS = 10
_MOST_ROC_POINTS = 200

# A difference of calibration of this size is worth a word.
_NOTABLE = 0.03


def quality(judged: Judged, metric: Metric, labels: list[str]) -> dict[str, Any]:
    """Accuracy beside the majority baseline, the area under the ROC curve, the loss and the confusion matrix."""
    scored = judged.scored
    return {
        **_accuracy(judged),
        "likelier": _likelier(scored, labels),
        "baseline": scored.majority,
        **({"share_far": scored.share_far} if isinstance(scored, Scored) else {"shares": scored.shares.tolist()}),
        "auc": _auc(judged, metric),
        "is_chance": _is_chance(judged, metric),
        "loss": scored.loss,
        "null_loss": scored.null_loss,
        "known": None if judged.known is None else _known(judged.known, metric),
        "confusion": _confusion(scored, labels),
    }


def distances(judged: Judged, metric: Metric, labels: list[str]) -> dict[str, Any]:
    """A histogram of squared distances by label or, of comparisons, of their differences."""
    if isinstance(judged.scored, ScoredLevels):
        return levels(judged, judged.scored, metric, labels)
    return legs(judged, judged.scored) if judged.judgements.kind is Kind.COMPARISONS else close_and_far(judged, metric)


def calibration(judged: Judged, *, caveat: str) -> dict[str, Any]:
    """Probabilities beside the shares labelled far, in bins; with levels for each threshold.

    A comparison is turned so that the likelier answer comes first.
    """
    found = [
        (k, row) for k, each in enumerate(sides_of(judged.scored), 1) for row in calibrate(each, _CALIBRATION_BINS)
    ]
    bins = [row for _, row in found]
    error = float(np.average([abs(row.predicted - row.observed) for row in bins], weights=[row.weight for row in bins]))
    reading = f"{_calibration_reading(bins, error)}{caveat}"
    if not has_sides(judged.judgements):
        reading = f"All of these {judged.noun}s have the same label, so calibration can't be checked."
    is_graded = isinstance(judged.scored, ScoredLevels)
    rows = [{**vars(row), **({"level": k} if is_graded else {})} for k, row in found]
    return {"bins": rows, "error": error, "reading": reading}


def roc(judged: Judged, metric: Metric) -> dict[str, Any]:
    """The true positive rate against the false positive rate for each threshold; far is positive."""
    auc = _auc(judged, metric)
    if judged.judgements.kind is Kind.COMPARISONS:
        return {"reason": "A comparison turned round is the same comparison, so there are no two sides to tell apart."}
    if metric.rank == 0:
        return {"reason": "The metric is zero, and so is every distance."}
    if auc is None:
        return {"reason": f"All of these {judged.noun}s have the same label, so there is nothing to tell apart."}
    if isinstance(judged.scored, ScoredLevels):
        sides = enumerate(judged.scored.dichotomies, 1)
        curves = [{"level": k, **_curve(each)} for k, each in sides if each.judgements.n_rarer > 0]
        areas = listed([f"{curve['auc']:.3f}" for curve in curves])
        return {
            "reason": None,
            "auc": auc,
            "curves": curves,
            "reading": (
                f"A {judged.noun} of a level above a threshold has a larger distance than one of a level below it with "
                f"probability {areas}, in the order of the thresholds."
            ),
        }
    curve = _curve(judged.scored)
    found, wrongly = (percent(curve["at_threshold"][name]) for name in ("true_far", "false_far"))
    return {
        "reason": None,
        **curve,
        "reading": (
            f"A random far {judged.noun} has a larger distance than a random close {judged.noun} with probability "
            f"{auc:.3f}. At the learned threshold, {found} of the {judged.noun}s labelled far are "
            f"predicted far (true positives), and {wrongly} of those labelled close (false positives)."
        ),
    }


def _curve(scored: Scored) -> dict[str, Any]:
    judgements, margin = scored.judgements, scored.margin
    false, true, _ = roc_curve(judgements.is_far, margin, sample_weight=judgements.weights)
    kept = np.unique(np.linspace(0, len(false) - 1, min(len(false), _MOST_ROC_POINTS)).round().astype(int))
    found, wrongly = (
        float(np.average(margin[chosen] >= 0, weights=judgements.weights[chosen]))
        for chosen in (judgements.is_far, ~judgements.is_far)
    )
    return {
        "auc": scored.auc,
        "false_far": false[kept].tolist(),
        "true_far": true[kept].tolist(),
        "at_threshold": {"false_far": wrongly, "true_far": found},
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
    """Whether random labels would reach this area under the ROC curve with a probability of half a percent.

    For levels, whether that holds for each threshold; for comparisons, whether even odds would reach this accuracy.
    """
    used = judged.effective_number(judged.scored.is_right) / judged.judgements.effective_number
    if judged.judgements.kind is Kind.COMPARISONS:
        n = used * judged.judgements.effective_number
        return judged.scored.accuracy < 0.5 + 2.58 * 0.5 / float(np.sqrt(n))
    if isinstance(judged.scored, ScoredLevels):
        return all(_is_random(each, each.auc, used) for each in judged.scored.dichotomies)
    return _is_random(judged.scored, _auc(judged, metric), used)


def _is_random(scored: Scored, auc: float | None, used: float) -> bool:
    if auc is None:
        return False
    far = used * int(scored.judgements.is_far.sum())
    close = used * len(scored.judgements) - far
    return auc < 0.5 + 2.58 * float(np.sqrt((far + close + 1) / (12.0 * far * close)))


def _likelier(scored: Scores, labels: list[str]) -> str | None:
    """The most frequent label; of comparisons, none is."""
    if isinstance(scored, ScoredLevels):
        return labels[int(np.argmax(scored.shares))]
    if scored.judgements.kind is Kind.COMPARISONS:
        return None
    return "far" if scored.share_far >= 0.5 else "close"


def _confusion(scored: Scores, labels: list[str]) -> dict[str, Any]:
    if scored.judgements.kind is Kind.COMPARISONS:
        return {"reason": "A comparison turned round is the same comparison, so the accuracy says all there is to say."}
    return {"labels": labels, "counts": scored.confusion().tolist()}


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
