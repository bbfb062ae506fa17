"""What a report shows of the comparisons of a mixed fit, and of annotators."""

from __future__ import annotations

from typing import Any

import numpy as np

from closefar.fitting import AnnotatorTable, AnnotatorVerdict, Fit
from closefar.questions import describe_comparisons
from closefar.report.wording import count, listed, number, short

__all__ = ["annotators", "comparisons"]

_MOST_SHOWN = 60
_MOST_NAMED = 8

_DOUBTFUL = (
    AnnotatorVerdict.AT_RANDOM,
    AnnotatorVerdict.THE_OTHER_WAY_ROUND,
    AnnotatorVerdict.ALWAYS_THE_SAME,
    AnnotatorVerdict.OFTEN_AT_RANDOM,
)


def comparisons(fit: Fit) -> dict[str, Any] | None:
    """The comparisons that were fitted together with pairs; None without any."""
    statistics = fit.statistics
    if not statistics.n_comparisons:
        return None
    noise = fit.comparison_noise
    return {
        "n": statistics.n_comparisons,
        "accuracy": statistics.comparison_accuracy,
        "noise": None if noise is None else noise.value,
        "noise_interval": None if noise is None or noise.interval is None else list(noise.interval),
        "reading": (
            f"{describe_comparisons(fit)} They are part of each training fold, so that the figures above are for new "
            "pairs, and this agreement is that of training."
        ),
    }


def annotators(fit: Fit) -> dict[str, Any] | None:
    """The annotators, those who stand out first; None without any."""
    table = fit.annotators
    if table is None:
        return None
    interval = table.strictness_interval()
    is_fine = [verdict not in _DOUBTFUL for verdict in table.verdicts]
    order = sorted(range(len(table)), key=lambda place: (is_fine[place], -abs(table.strictness[place])))
    rows = [
        {
            "annotator": str(table.names[place]),
            "n": int(table.judgements[place]),
            "strictness": float(table.strictness[place]),
            "low": float(interval[place, 0]),
            "high": float(interval[place, 1]),
            "flip_rate": None if table.flip_rates is None else float(table.flip_rates[place]),
            "agreement": float(table.agreement[place]),
            "kappa": None if np.isnan(table.kappa[place]) else float(table.kappa[place]),
            "verdict": str(table.verdicts[place]),
            "is_doubtful": table.verdicts[place] in _DOUBTFUL,
        }
        for place in order[:_MOST_SHOWN]
    ]
    return {
        "rows": rows,
        "n": len(table),
        "n_doubtful": sum(verdict in _DOUBTFUL for verdict in table.verdicts),
        "n_left_out": len(order) - len(rows),
        "width": table.width,
        "reach": float(np.max(np.abs(interval), initial=0.0)) or 1.0,
        "has_flips": table.flip_rates is not None,
        "has_kappa": bool(np.any(np.isfinite(table.kappa))),
        "reading": _annotator_reading(table),
    }


def _annotator_reading(table: AnnotatorTable) -> str:
    said = []
    for verdict in _DOUBTFUL:
        found = [short(str(name)) for name in table.named(verdict)]
        if found:
            more = [f"{len(found) - _MOST_NAMED:,} others"] if len(found) > _MOST_NAMED else []
            said.append(f"{listed([*found[:_MOST_NAMED], *more])}: {verdict}.")
    spread = f"The strictness of {count(len(table), 'annotator')} has a standard deviation of {number(table.width)}."
    return f"{spread} {' '.join(said) or 'Nobody stands out for answers that do not depend on the distance.'}"
