"""How sure the fit is: confidence intervals, or why there are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.fitting import Fit
from closefar.judgements import Judgements
from closefar.questions import JACKKNIFE_PARTS, Confidence, Interval, confidence, units_with_comparisons
from closefar.report.effort import Effort
from closefar.report.wording import listed, number, percent, sentence

__all__ = ["intervals"]

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
    fit: Fit,
    training: Judgements | None,
    names: list[str],
    *,
    n_bootstrap: int | None,
    seed: int,
    groups: NDArray[Any] | None = None,
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
    asked: dict[str, Any] = {"method": method}
    if n_bootstrap is not None:
        asked = {"method": "bootstrap", "n_bootstrap": n_bootstrap}
    try:
        units = units_with_comparisons(groups, training)
        intervals = confidence(fit, training, groups=units, random_state=seed, **asked)
    except ValueError as error:  # says why there are none
        return {"reason": sentence(str(error))}
    if not intervals.valid:
        said = [] if intervals.method == "none" else ["No interval would be valid."]
        return {"reason": " ".join([*said, *intervals.flaws])}
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
