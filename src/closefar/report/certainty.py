"""How sure the fit is: confidence intervals, or why there are none."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.fitting import Fit
from closefar.judgements import Judgements
from closefar.questions import JACKKNIFE_PARTS, Confidence, Interval, confidence
from closefar.report.effort import Effort
from closefar.report.wording import number, percent, sentence

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
        intervals = confidence(fit, training, groups=groups, random_state=seed, **asked)
    except ValueError as error:  # says why there are none
        return {"reason": sentence(str(error))}
    if not intervals.valid:
        said = [] if intervals.method == "none" else ["No interval would be valid."]
        return {"reason": " ".join([*said, *intervals.flaws])}
    return _part(intervals, names)


def _part(intervals: Confidence, names: list[str]) -> dict[str, Any]:
    threshold, directions = _rows(intervals.threshold), _rows(intervals.directions)
    entries = _rows(intervals.matrix) if len(names) <= _MOST_ENTRY_FEATURES else []
    shown = [index for index in range(len(entries)) if index // len(names) <= index % len(names)]
    flip_rate = None if intervals.flip_rate is None else _rows(intervals.flip_rate)[0]
    return {
        "reason": None,
        "method": intervals.method,
        "valid": intervals.valid,
        "level": intervals.level,
        "statement": intervals.statement,
        "threshold": threshold[0],
        "flip_rate": flip_rate,
        "directions": directions[:_MOST_DIRECTIONS],
        "n_directions": len(directions),
        "entries": [
            {"left": names[index // len(names)], "right": names[index % len(names)], **entries[index]}
            for index in shown
        ],
        "reading": _reading(threshold[0], directions, flip_rate, intervals.level),
    }


def _rows(interval: Interval) -> list[dict[str, float]]:
    columns = (interval.estimate, interval.standard_error, interval.low, interval.high)
    cells = zip(*(np.ravel(column).tolist() for column in columns), strict=True)
    return [dict(zip(("estimate", "standard_error", "low", "high"), row, strict=True)) for row in cells]


def _reading(
    threshold: dict[str, float], directions: list[dict[str, float]], flip_rate: dict[str, float] | None, level: float
) -> str:
    clear = sum(row["low"] > 0 for row in directions)
    flips = ""
    if flip_rate is not None:
        flips = f", {percent(flip_rate['low'])} to {percent(flip_rate['high'])} of the labels are flipped"
    return (
        f"With {level:.0%} confidence the threshold lies between {number(threshold['low'])} and "
        f"{number(threshold['high'])}{flips}; along {clear} of {len(directions)} directions the mean squared "
        "distance is clearly above zero."
    )
