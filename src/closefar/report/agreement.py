"""How well the learned distance predicts the labels: accuracy, distances, probabilities and the ROC curve."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import roc_curve

from closefar.arrays import FloatArray, IndexArray
from closefar.errors import words_of
from closefar.fitting import Fit, Scores, refit_part, score
from closefar.judgements import Judgements, Kind
from closefar.model import Metric, Scored, ScoredLevels
from closefar.questions import CalibrationBin, calibrate, sides_of
from closefar.report.evidence import Effort, Judged, has_sides, noun_of
from closefar.report.wording import count, listed, number, percent, points

# ---------------------------------------------------------------------------------------------------------------------
# Histograms of distances by label, and of the differences that comparisons are about.


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
    return {**_accuracy(judged), "auc": _auc(judged, metric), "loss": judged.scored.loss, "n_pairs": len(judged.scored)}


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


# ---------------------------------------------------------------------------------------------------------------------
# The learning curve: what fits to fewer pairs would have reached, and so what more pairs may bring.


_REPEATS = 3
_TEST_SHARE = 0.2
_HALVINGS = 4
_SURE_HALVINGS = 2
_FEWEST = 8

# A fall of the loss by less than this share of it is none.
_NEGLIGIBLE = 0.01
# A fall by more than this share is not yet on the way on which each doubling gains half of the one before.
_FORESEEABLE = 0.2


def learning_curve(fitted: Fit, judgements: Judgements, seed: int) -> dict[str, Any]:
    """Loss and accuracy on a fifth of the pairs of fits to 1/16, 1/8, ... and all of the others."""
    if fitted.is_metric_alone:
        return {"reason": "A learning curve needs a fit; this metric was truncated, or stored without its fit."}
    effort, noun = Effort.of(fitted), noun_of(fitted)
    pool = judgements.sample(effort.pairs_to_learn_from(len(judgements)), seed)
    sides = np.zeros(len(pool), dtype=np.intp) if pool.kind is Kind.COMPARISONS else pool.codes
    splits = [_split(sides, seed + repeat) for repeat in range(effort.repeats(len(pool), _REPEATS))]
    sizes = _sizes(sides, [train for _, train in splits], effort.fewest_to_learn_from) if has_sides(pool) else []
    if len(sizes) < 2:
        return {"reason": f"There are too few {noun}s for a learning curve: {len(judgements):,}."}
    try:
        scores = np.array([[_score(fitted, pool, train[:size], test) for size in sizes] for test, train in splits])
    except ValueError as error:  # a part of few or odd pairs can't be fitted
        return {
            "reason": f"There is no learning curve, because a fit to some of the {noun}s failed: " + words_of(error)
        }
    rows = [
        {"n_pairs": size, **_spread("loss", scores[:, index, 0]), **_spread("accuracy", scores[:, index, 1])}
        for index, size in enumerate(sizes)
    ]
    return {
        "reason": None,
        "rows": rows,
        "noun": noun,
        "term": fitted.kind.term,
        "n_repeats": len(splits),
        "n_pool": len(pool),
        "reading": _reading(sizes, scores, noun, fitted.kind.term),
    }


def _split(sides: IndexArray, seed: int) -> tuple[IndexArray, IndexArray]:
    """Test and train rows; each first part of either has the sides in about their shares."""
    rng = np.random.default_rng(seed)
    place = np.empty(len(sides))
    for side in range(int(sides.max()), -1, -1):
        chosen = sides == side
        n = int(chosen.sum())
        place[chosen] = (rng.permutation(n) + 0.5) / max(n, 1)
    order = np.argsort(place, kind="stable")
    n_test = round(_TEST_SHARE * len(sides))
    tested = np.round(np.linspace(0, len(order) - 1, n_test)).astype(np.intp)
    return order[tested], np.delete(order, tested)


def _sizes(sides: IndexArray, trains: list[IndexArray], fewest: int) -> list[int]:
    """Halves of the training pairs, as long as they hold all labels and are not hopelessly few; three at the least."""
    most = min(len(train) for train in trains)
    halves = {most // 2**halving: halving for halving in range(_HALVINGS + 1)}
    sizes = sorted(size for size, halving in halves.items() if halving <= _SURE_HALVINGS or size >= fewest)
    n_sides = len(np.unique(sides))
    return [
        size
        for size in sizes
        if size >= _FEWEST and all(len(np.unique(sides[train[:size]])) == n_sides for train in trains)
    ]


def _score(fitted: Fit, judgements: Judgements, train: IndexArray, test: IndexArray) -> tuple[float, float]:
    unseen = score(refit_part(fitted, judgements.take(np.sort(train))), judgements.take(np.sort(test)))
    return unseen.loss, unseen.accuracy


def _spread(name: str, values: FloatArray) -> dict[str, float]:
    return {name: float(values.mean()), f"{name}_low": float(values.min()), f"{name}_high": float(values.max())}


def _reading(sizes: list[int], scores: FloatArray, noun: str, term: str = "label") -> str:
    """The excess loss of a fit falls about as 1/N, so each doubling gains half of what the one before did."""
    before, last = sizes[-2:]
    gain = float(np.mean(scores[:, -2, 0] - scores[:, -1, 0]))
    change = points(float(np.mean(scores[:, -1, 1] - scores[:, -2, 1])))
    said = f"From {before:,} to {count(last, noun)}, the loss on unseen {term}s"
    loss = float(np.mean(scores[:, -1, 0]))
    if gain < -_NEGLIGIBLE * loss:
        return f"{said} rises by {number(-gain)} (accuracy {change}): too few {noun}s to say what more would bring."
    if gain < _NEGLIGIBLE * loss:
        return f"{said} hardly changes (accuracy {change}): more {noun}s are likely to gain little."
    falls = f"{said} falls by {number(gain)} (accuracy {change})."
    steady = np.all(scores[:, -2, 0] > scores[:, -1, 0]) and np.all(np.diff(np.mean(scores[:, :, 0], axis=0)) < 0)
    if not steady or gain > _FORESEEABLE * loss:
        return f"{falls} More {noun}s should help; these are too few to say how much."
    return f"{falls} Twice as many {noun}s should lower it by about half as much again, {number(0.5 * gain)}."
