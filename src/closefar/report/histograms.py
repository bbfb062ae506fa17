"""Histograms of distances by label, and of the differences that comparisons are about."""

from __future__ import annotations

from typing import Any

import numpy as np

from closefar.arrays import FloatArray
from closefar.model import Metric, Scored, ScoredLevels
from closefar.report.evidence import Judged
from closefar.report.wording import listed, percent

__all__ = ["close_and_far", "legs", "levels"]

_BINS = 40

# The axis of distances ends here: at this quantile of them, and at so many thresholds at the most.
_SHOWN_SHARE = 0.98
_MOST_THRESHOLDS = 10.0


def close_and_far(judged: Judged, metric: Metric) -> dict[str, Any]:
    """A histogram of squared distances, close and far, with all that are too long for it in its last bin.

    Cross-validated distances are scaled so that the threshold of each fit is that of the fit to all.
    """
    tau = metric.known_threshold
    squared = judged.squared_distances(tau)
    is_far, weights = judged.judgements.is_far, judged.judgements.weights
    edges, beyond = _edges(squared, weights, tau, tau)
    return {
        "edges": edges.tolist(),
        **{name: _counts(squared, edges, weights, chosen) for name, chosen in (("close", ~is_far), ("far", is_far))},
        "counted": _counted(judged),
        "threshold": tau,
        "beyond": beyond,
        "reading": _sides(judged),
    }


def levels(judged: Judged, scored: ScoredLevels, metric: Metric, labels: list[str]) -> dict[str, Any]:
    """A histogram for each level, with all thresholds.

    Cross-validated distances are scaled so that the mean threshold of each fit is that of the fit to all.
    """
    thresholds = np.array(metric.thresholds)
    squared = judged.squared_distances(float(thresholds.mean()))
    codes, weights = judged.judgements.codes, judged.judgements.weights
    edges, beyond = _edges(squared, weights, float(thresholds[-1]), float(thresholds.mean()))
    counts = [
        {"label": label, "n": int(np.sum(codes == code)), "counts": _counts(squared, edges, weights, codes == code)}
        for code, label in enumerate(labels)
    ]
    own = np.sum(scored.squared[:, None] >= scored.thresholds, axis=1)
    exactly, nearly = (percent(judged.judgements.mean(np.abs(own - codes) <= reach)) for reach in (0, 1))
    return {
        "edges": edges.tolist(),
        "levels": counts,
        "counted": _counted(judged),
        "thresholds": thresholds.tolist(),
        "beyond": beyond,
        "reading": (
            f"{exactly} of the {judged.noun}s lie between the thresholds of their level, {nearly} there or in a "
            "neighbouring level."
        ),
    }


def legs(judged: Judged, scored: Scored) -> dict[str, Any]:
    """A histogram of the difference of the two squared distances of each comparison, positive where the metric agrees.

    All that are too long for it are in the outer bins.
    """
    judgements = judged.judgements
    agreement = np.where(judgements.is_far, scored.margin, -scored.margin)
    end = float(np.quantile(np.abs(agreement), _SHOWN_SHARE)) or 1.0
    edges = np.linspace(-end, end, _BINS + 1)
    beyond = float(np.average(np.abs(agreement) > end, weights=judgements.weights))
    counts = np.histogram(np.clip(agreement, -end, end), edges, weights=judgements.weights)[0]
    return {
        "edges": edges.tolist(),
        "counts": counts.tolist(),
        "counted": _counted(judged),
        "beyond": beyond,
        "reading": f"The metric agrees with {percent(scored.accuracy)} of the answers, at the right of zero.",
    }


def _edges(squared: FloatArray, weights: FloatArray, last: float, scale: float) -> tuple[FloatArray, float]:
    """The edges of the bins, and the share of all that is beyond them."""
    end = float(np.quantile(squared, _SHOWN_SHARE))
    if scale > 0:
        end = float(np.clip(end, 1.5 * last, max(_MOST_THRESHOLDS * scale, 1.5 * last)))
    end = end if end > 0 else 1.0
    return np.linspace(0.0, end, _BINS + 1), float(np.average(squared > end, weights=weights))


def _counts(squared: FloatArray, edges: FloatArray, weights: FloatArray, chosen: Any) -> list[float]:
    counts: list[float] = np.histogram(np.minimum(squared, edges[-1])[chosen], edges, weights=weights[chosen])[
        0
    ].tolist()
    return counts


def _counted(judged: Judged) -> str:
    return f"{judged.noun}s" if judged.judgements.sample_weight is None else "weight"


def _sides(judged: Judged) -> str:
    far, weights = judged.judgements.is_far, judged.judgements.weights
    said: list[str] = []
    for name, chosen, where in (("close", ~far, "below"), ("far", far, "above")):
        if np.any(chosen):
            share = percent(float(np.average(judged.scored.is_right[chosen], weights=weights[chosen])))
            there = f"{where} it" if said else f"lie {where} the threshold"
            said.append(f"{share} of the {name} {judged.noun}s {there}")
    return f"{listed(said)}."
