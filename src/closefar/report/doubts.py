"""What speaks against a fit: labels that look wrong, noise of another kind, and what the data leave open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import IndexArray
from closefar.errors import joined, setting, words_of
from closefar.fitting import Fit, score
from closefar.judgements import Judgements, find_points, resolve_groups, share_points
from closefar.model import ScoredLevels
from closefar.questions import (
    DOUBT,
    JACKKNIFE_PARTS,
    Confidence,
    Diagnosis,
    Finding,
    Interval,
    LabelErrors,
    check_noise_model,
    confidence,
    find_misfit,
    units_with_comparisons,
)
from closefar.report.evidence import Effort, Judged, has_sides, noun_of
from closefar.report.wording import count, listed, number, percent, sentence

_MOST_SUSPICIOUS = 25
_SUSPICIOUS = 0.1  # a label less probably wrong than this is not listed
_NOTABLE = 0.25  # of a margin
ANOTHER_LEVEL = "given another level than the one that their distance lies in"
OFF = "more than one level from the most probable one"
_CHANCE = (
    "On these labels, the metric is not clearly better than chance. Check the labels, which of them means far, and "
    "whether the columns are informative, or label more pairs."
)


def caveat(fit: Fit) -> str:
    """What to bear in mind about its probabilities, if anything."""
    if fit.is_separable:
        return " The labels of the fit are separable, so the scale of these probabilities is arbitrary."
    if fit.is_quasi_separable:
        return " One direction explains some labels without exception, so probabilities along it are arbitrary."
    if fit.settings.class_weight is not None:
        return " The class weights of the fit shift these probabilities on purpose."
    if fit.alpha > 0 and not fit.settings.chooses_alpha:
        return " The penalty " + setting("alpha") + " pulls the probabilities towards one half."
    return ""


def shared_points(ids: NDArray[np.object_] | None, groups: Any, judgements: Judgements) -> NDArray[Any] | None:
    """Which pairs depend on each other: as was said, or by the ids of their points, or as the data show."""
    if groups is not None:
        given = resolve_groups(groups, judgements.data)
        return given if share_points(given) else None
    if ids is not None and ids.shape[1] > 1:
        names = ids.astype(str)
        if share_points(names):
            return names
    return find_points(judgements.data)


def read_ids(ids: Any, n: int) -> NDArray[np.object_] | None:
    """Return a column of text for each id of a pair or comparison: one, or one for each of its points."""
    if ids is None:
        return None
    found = np.asarray(ids, dtype=object)
    if found.shape != (n,) and not (found.ndim == 2 and len(found) == n and 1 <= found.shape[1] <= 4):
        raise ValueError(
            f"ids must hold one id per pair or the ids of its two points, in shape ({n},) or ({n}, 2), or those of the "
            f"three or four points of each comparison; got shape {found.shape}."
        )
    found = found.reshape(n, -1)
    return found if set(map(type, found.ravel())) == {str} else np.vectorize(str, otypes=[object])(found)


def wrong_labels(
    judged: Judged, fit: Fit, ids: NDArray[np.object_] | None, *, is_chance: bool
) -> tuple[dict[str, Any], IndexArray]:
    """The share of wrong labels with its interval and the most suspicious pairs; and the row numbers of all suspects.

    Where the model can be trusted with how probably each label is wrong, that is shown; elsewhere
    the labels that contradict the metric.
    """
    errors, doubt, term = judged.errors, judged.doubt, fit.kind.term
    if fit.metric.rank == 0:
        return _none(f"The metric is zero, so it can't tell wrong {term}s from right ones.")
    if is_chance:
        return _none(f"The metric is not clearly better than chance, so it can't tell wrong {term}s from right ones.")
    if fit.settings.class_weight is not None:
        return _none("Class weights move the threshold on purpose, so a label on its other side need not be wrong.")
    if fit.is_separable or fit.alpha > 0:  # the scale of the margins is not that of the noise
        errors = None
    if errors is not None and errors.share is None:
        doubt, errors = errors.reason, None
    if errors is None:
        part = _contradictions(judged, doubt, term)
    else:
        part = _probabilities(errors, judged.noun, term, is_graded=isinstance(judged.scored, ScoredLevels))
    suspects = judged.judgements.numbers[part.pop("suspects")]
    rows = [_row(judged, index, ids, errors) for index in part.pop("order").tolist()]
    found = {"reason": None, "doubt": doubt, **part, "id_columns": 0 if ids is None else ids.shape[1], "rows": rows}
    return {**found, "on_other_scale": errors is not None and _is_on_other_scale(errors, judged, fit)}, suspects


def noise_check(fit: Fit, judgements: Judgements, seed: int, groups: NDArray[Any] | None = None) -> dict[str, Any]:
    """Labels observed against labels expected, by margin; `groups` of all pairs that were given."""
    if not has_sides(judgements):
        return {"reason": f"All of these {noun_of(fit)}s have the same label."}
    used = judgements.sample(Effort.of(fit).pairs_to_check(len(judgements)), seed)
    ids = find_points(used.data) if groups is None else groups[used.numbers]
    try:
        check = check_noise_model(fit, used, groups=units_with_comparisons(ids, used))
    except ValueError as error:  # says why it can't be checked
        return {"reason": sentence(words_of(error))}
    outside = sum(abs(row.z) > 1.96 for row in check.bins)
    bins = f"{outside} of {count(len(check.bins), 'bin')} {'lies' if outside == 1 else 'lie'} outside the 95% band."
    sampled = f" Checked on a random sample of {len(used):,} {noun_of(fit)}s." if len(used) < len(judgements) else ""
    return {
        "reason": None,
        "p_value": check.p_value,
        "statistic": check.statistic,
        "dof": check.dof,
        "tail_z": check.tail_z,
        "n_pairs": len(used),
        "question": check.question,
        "bins": [vars(row) for row in check.bins],
        "reading": check.advice + f" {bins}{sampled}",
        "advice": check.advice,
    }


def problems(fit: Fit, noise: dict[str, Any], *, is_chance: bool, groups: NDArray[Any] | None = None) -> list[str]:
    """What the fit, its data and its noise leave open, most pressing first; `groups` of the pairs of the fit."""
    found = [*([_CHANCE] if is_chance else []), *fit.problems]
    if fit.judgements is None and not is_chance and noise["reason"] is None and noise["p_value"] < DOUBT:
        found.append(noise["advice"])
    return [sentence(problem) for problem in Diagnosis.of(fit, found, _findings(fit, groups)).problems]


def _findings(fit: Fit, groups: NDArray[Any] | None) -> tuple[Finding, ...]:
    try:
        return () if fit.judgements is None else find_misfit(fit, units_with_comparisons(groups, fit.judgements))
    except ValueError:  # the labels can't tell
        return ()


def _probabilities(errors: LabelErrors, noun: str, term: str, *, is_graded: bool) -> dict[str, Any]:
    suspects = np.flatnonzero(errors.probability > 0.5)
    listed = errors.order[:_MOST_SUSPICIOUS]
    are = "is" if len(suspects) == 1 else "are"
    wrong, likely = f"they contradict the side of the threshold on which their {noun}s lie", "wrong than right"
    if noun == "comparison":
        wrong = "they contradict the distances"
    if errors.meaning == "flipped":
        wrong, likely = "at least that many were flipped, whatever the distance", "flipped than not"
    share, low, high = errors.share or 0.0, errors.share_low or 0.0, errors.share_high or 0.0
    interval = f"(95% interval {percent(low)} to {percent(high)})"
    found = f"About {percent(share)} of the {term}s are wrong {interval}: {wrong}"
    if is_graded and errors.meaning != "flipped":
        found = f"About {percent(share)} of the {noun}s were {ANOTHER_LEVEL} {interval}"
    return {
        "kind": "probability",
        "share": share,
        "share_low": low,
        "share_high": high,
        "n_doubtful": len(suspects),
        "suspects": suspects,
        "order": listed[errors.probability[listed] >= _SUSPICIOUS],
        "reading": f"{found}. {count(len(suspects), term)} {are} more likely {likely}.",
    }


def _is_on_other_scale(errors: LabelErrors, judged: Judged, fit: Fit) -> bool:
    """Whether the fit that finds wrong labels, which allows for flips, has notably other margins than the fit."""
    scored = score(fit, judged.judgements)
    if isinstance(scored, ScoredLevels):
        return False
    own = scored.margin
    return bool(np.median(np.abs(errors.margin - own)) > _NOTABLE * np.median(np.abs(own)))


def _contradictions(judged: Judged, doubt: str | None, term: str) -> dict[str, Any]:
    scored, judgements = judged.scored, judged.judgements
    if isinstance(scored, ScoredLevels):
        return _far_off(judged, scored, doubt)
    share = judgements.mean(~scored.is_right)
    low, high = judged.interval(~scored.is_right)
    order = np.argsort(judgements.signs * scored.margin, kind="stable")
    contradicting = order[~scored.is_right[order]]
    judge = "a fit that has not seen them" if judged.source == "out-of-fold" else "the metric"
    reading = f"{percent(share)} of the {term}s contradict {judge} (95% interval {percent(low)} to {percent(high)})."
    if doubt is not None:
        reading += f" How many of them are wrong can't be told: {doubt}. The strongest contradictions come first."
    elif share > 0:
        reading += " They are wrong if the metric is right; the strongest contradictions come first."
    return _contradicting(contradicting, share, low, high, reading)


def _far_off(judged: Judged, scored: ScoredLevels, doubt: str | None) -> dict[str, Any]:
    """Levels that are not even next to the most probable one; of two levels, those that are the other one."""
    reach = 1 if judged.judgements.n_levels > 2 else 0
    is_off = np.abs(scored.predicted - judged.judgements.codes) > reach
    share, (low, high) = judged.judgements.mean(is_off), judged.interval(is_off)
    order = np.argsort(-scored.losses, kind="stable")
    reading = f"{percent(share)} of the labels are {OFF} (95% interval {percent(low)} to {percent(high)})."
    if doubt is not None:
        reading += f" How many labels are wrong can't be told: {doubt}."
    return {
        **_contradicting(order[is_off[order]], share, low, high, f"{reading} The least probable ones come first."),
        "is_off": True,
    }


def _contradicting(suspects: IndexArray, share: float, low: float, high: float, reading: str) -> dict[str, Any]:
    return {
        "kind": "contradiction",
        "share": share,
        "share_low": low,
        "share_high": high,
        "n_doubtful": len(suspects),
        "suspects": suspects[:_MOST_SUSPICIOUS],
        "order": suspects[:_MOST_SUSPICIOUS],
        "reading": reading,
    }


def _none(reason: str) -> tuple[dict[str, Any], IndexArray]:
    return {"reason": reason, "doubt": None, "kind": None, "rows": []}, np.array([], dtype=np.intp)


def _row(judged: Judged, index: int, ids: NDArray[np.object_] | None, errors: LabelErrors | None) -> dict[str, Any]:
    judgements, scored, number = judged.judgements, judged.scored, int(judged.judgements.numbers[index])
    known = {"row": number, "ids": [] if ids is None else ids[number].tolist(), "label": str(judgements.labels[index])}
    wrong = None if errors is None else float(errors.probability[index])
    error = None if errors is None else float(errors.error[index])
    if isinstance(scored, ScoredLevels):
        return {
            **known,
            "predicted": str(judgements.sides.classes[scored.predicted[index]]),
            "probability_wrong": wrong,
            "probability_of_label": float(np.exp(-scored.losses[index])),
            "squared_distance": float(scored.squared[index]),
            "error": error,
        }
    is_far, far = bool(judgements.is_far[index]), float(scored.probability_far[index])
    return {
        **known,
        "is_far": is_far,
        "probability_wrong": wrong,
        "probability_of_label": far if is_far else 1.0 - far,
        "margin": float((scored if errors is None else errors).margin[index]),
        "error": error,
    }


# ---------------------------------------------------------------------------------------------------------------------
# How sure the fit is: confidence intervals, or why there are none.


_MOST_DIRECTIONS = 20
_MOST_ENTRY_FEATURES = 6

_NO_PAIRS = (
    "Intervals need the pairs of the fit, which a model file does not hold and which were not given. "
    "Give those pairs and labels."
)
_NO_FIT = (
    "Intervals are for the optimum of a fit; this metric was truncated, or stored without its fit. Fit with the rank "
    "that you want."
)
_TOO_MUCH_WORK = (
    "Intervals for this many pairs and columns take long, so they are left out here: compute them with "
    "closefar.confidence."
)


def intervals(
    fit: Fit, training: Judgements | None, names: list[str], *, seed: int, groups: NDArray[Any] | None = None
) -> dict[str, Any]:
    """Intervals for the threshold, the flip rate, each direction and, of few columns, each entry of M."""
    if fit.is_metric_alone:
        return {"reason": _NO_FIT}
    if training is None:
        return {"reason": _NO_PAIRS}
    effort = Effort.of(fit)
    if not effort.can_sandwich(len(training)):
        return {"reason": _TOO_MUCH_WORK}
    method = "auto" if effort.can_refit(len(training), JACKKNIFE_PARTS) else "sandwich"
    try:
        units = units_with_comparisons(groups, training)
        intervals = confidence(fit, training, groups=units, random_state=seed, method=method)
    except ValueError as error:  # says why there are none
        return {"reason": sentence(words_of(error))}
    if not intervals.valid:
        said = [] if intervals.method == "none" else ["No interval would be valid."]
        return {"reason": joined([*said, *intervals.flaws])}
    return _part(intervals, names)


def _part(intervals: Confidence, names: list[str]) -> dict[str, Any]:
    thresholds, directions = _rows(intervals.thresholds), _rows(intervals.directions)
    flips = [] if intervals.flip_rate is None else _rows(intervals.flip_rate)
    is_relative = not thresholds  # the scale of M is that of the noise of the comparisons
    matrix = intervals.relative_matrix if is_relative else intervals.matrix
    entries = _rows(matrix) if len(names) <= _MOST_ENTRY_FEATURES else []
    shown = [index for index in range(len(entries)) if index // len(names) <= index % len(names)]
    return {
        "reason": None,
        "method": intervals.method,
        "valid": intervals.valid,
        "level": intervals.level,
        "statement": intervals.statement,
        "threshold": thresholds[0] if len(thresholds) == 1 else None,
        **({"thresholds": thresholds} if len(thresholds) > 1 else {}),
        "flip_rate": flips[0] if len(flips) == 1 else None,
        **({"flip_rates": flips} if len(flips) > 1 else {}),
        "directions": directions[:_MOST_DIRECTIONS],
        "n_directions": len(directions),
        "entries": [
            {"left": names[index // len(names)], "right": names[index % len(names)], **entries[index]}
            for index in shown
        ],
        **({"entries_of": "M / tr M"} if is_relative else {}),
        "reading": _reading(thresholds, directions, flips, intervals.level),
    }


def _rows(interval: Interval) -> list[dict[str, float]]:
    columns = (interval.estimate, interval.standard_error, interval.low, interval.high)
    cells = zip(*(np.ravel(column).tolist() for column in columns), strict=True)
    return [dict(zip(("estimate", "standard_error", "low", "high"), row, strict=True)) for row in cells]


def _reading(
    thresholds: list[dict[str, float]], directions: list[dict[str, float]], flips: list[dict[str, float]], level: float
) -> str:
    clear = sum(row["low"] > 0 for row in directions)
    said = []
    if thresholds:
        name = "threshold lies" if len(thresholds) == 1 else "thresholds lie"
        said.append(f"the {name} between {listed([_between(row, number) for row in thresholds])}")
    if len(flips) == 1:
        said.append(f"{percent(flips[0]['low'])} to {percent(flips[0]['high'])} of the labels are flipped")
    for row, words in zip(flips, ("close pairs are called far", "far pairs are called close"), strict=False):
        if len(flips) == 2:
            said.append(f"{percent(row['low'])} to {percent(row['high'])} of {words}")
    along = f"along {clear} of {len(directions)} directions the mean squared distance is clearly above zero."
    return f"With {level:.0%} confidence {', '.join(said)}; {along}" if said else f"With {level:.0%} confidence {along}"


def _between(row: dict[str, float], form: Callable[[float], str]) -> str:
    return f"{form(row['low'])} and {form(row['high'])}"
