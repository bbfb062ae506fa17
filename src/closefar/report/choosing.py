"""How the settings of a fit were chosen, and the plain distance beside the learned one, on held-out judgements."""

from __future__ import annotations

import math
from typing import Any

from closefar.fitting import Baseline, Choice, Fit, Tried

__all__ = ["baseline", "choice"]

_FEWEST = 2  # alphas that make a path
_MOST_LINES = 6  # that have a colour each

_PLAIN_NAMES = {
    "euclidean": "plain distance",
    "standardized": "plain distance, standardized columns",
    "metric": "the given metric",
}
_LINE_NAMES = {
    "zero": "towards zero",
    "euclidean": "towards the plain distance",
    "standardized": "towards the plain distance, standardized columns",
    "metric": "towards the given metric",
}


def baseline(fit: Fit) -> dict[str, Any] | None:
    """The accuracy and the loss of the most frequent answer, of the plain distance and of the learned one."""
    found = fit.baseline
    if found is None:
        return None
    is_plain = fit.choice is not None and fit.choice.is_plain
    rows = [
        ("most frequent answer", found.majority_accuracy, found.majority_loss),
        (_PLAIN_NAMES[found.plain], found.plain_accuracy, found.plain_loss),
        (
            "the same, with calibrated scale" if is_plain else "learned metric",
            found.learned_accuracy,
            found.learned_loss,
        ),
    ]
    return {
        "reading": _verdict(found, is_plain=is_plain),
        "is_better": found.is_better,
        "plain": found.plain,
        "gain": found.gain,
        "standard_error": found.standard_error,
        "n_held_out": found.n_held_out,
        "rows": [{"name": name, "accuracy": accuracy, "loss": loss} for name, accuracy, loss in rows],
    }


def _verdict(found: Baseline, *, is_plain: bool) -> str:
    judged = f"{found.n_held_out:,} held-out judgements"
    if is_plain:
        return f"The result is the plain distance itself: on {judged}, no learned metric was clearly better."
    figures = f"{abs(found.gain):.3f} (standard error {found.standard_error:.3f})"
    if found.is_better:
        return f"The learned metric is better than the plain distance: on {judged}, its loss is lower by {figures}."
    if found.gain > 0.0:
        return (
            f"The learned metric is not clearly better than the plain distance: on {judged}, its loss is lower by only "
            f"{figures}."
        )
    return (
        f"The learned metric is not better than the plain distance: on {judged}, its loss is higher by {figures}. Use "
        "the plain distance, or collect more judgements."
    )


def choice(fit: Fit) -> dict[str, Any] | None:
    """What was chosen, all that was tried, and the path of alpha if there is one."""
    found = fit.choice
    if found is None:
        return None
    return {
        "sentence": found.sentence,
        "alpha": found.alpha,
        "prior": found.prior,
        "flip_rate": found.flip_rate,
        "rank": found.rank,
        "noise": found.noise,
        "scale": found.scale,
        "is_plain": found.is_plain,
        "held_out": found.held_out,
        "n_held_out": found.n_held_out,
        "n_used": found.n_used,
        "table": [each._asdict() for each in found.table],
        "path": _path(found),
    }


def _path(found: Choice) -> dict[str, Any] | None:
    """The candidates that differ in alpha, a line for each prior and flip rate, and the plain distance."""
    # Ranks and noises are tried at one alpha, after the path.
    first = [each for each in found.table if each[3:5] == found.table[0][3:5]]
    lines: dict[tuple[str, float], list[Tried]] = {}
    for each in first:
        if math.isfinite(each.alpha) and each.alpha > 0.0:
            lines.setdefault((each.prior, each.flip_rate), []).append(each)
    if len({each.alpha for line in lines.values() for each in line}) < _FEWEST:
        return None
    plain = min((each for each in first if math.isinf(each.alpha)), key=lambda each: each.loss, default=None)
    return {
        "lines": [
            {
                "name": _LINE_NAMES[prior] + (f", {rate:.0%} flips" if rate > 0.0 else ""),
                "style": f"colour{place}" if place < _MOST_LINES else "rest",
                "rows": [each._asdict() for each in sorted(line, key=lambda each: each.alpha)],
            }
            for place, ((prior, rate), line) in enumerate(lines.items())
        ],
        "plain": None if plain is None else {"name": _PLAIN_NAMES[plain.prior], "loss": plain.loss},
        "chosen": None if found.is_plain else found.alpha,
    }
