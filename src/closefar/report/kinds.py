"""What a report shows of the comparisons of a mixed fit, and of annotators."""

from __future__ import annotations

from typing import Any

from closefar.fitting import Fit
from closefar.questions import describe_comparisons

__all__ = ["annotators", "comparisons"]


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
    return None
