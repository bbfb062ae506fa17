"""The noise of comparisons relative to that of pairs: the profile likelihood over it, and its interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.optimize import brentq, minimize_scalar
from scipy.stats import chi2

__all__ = ["ComparisonNoise", "profile_noise"]

_LARGEST = math.log(1e3)  # as is its inverse the smallest that is tried
_ACCURATE = 1e-3  # of the logarithm
_LEVEL = 0.95


@dataclass(frozen=True)
class ComparisonNoise:
    """The standard deviation of the noise of comparisons, divided by that of pairs.

    Attributes
    ----------
    value : float
        Set, or the one with the highest likelihood.
    interval : tuple of two float, optional
        The 95% interval by the profile likelihood, if it was estimated; zero or infinite at an end where the
        judgements do not bound it.
    """

    value: float
    interval: tuple[float, float] | None = None

    @property
    def problem(self) -> str | None:
        """What the judgements do not determine, with advice."""
        if self.interval is None or (self.interval[0] > 0.0 and math.isfinite(self.interval[1])):
            return None
        side = "above" if math.isinf(self.interval[1]) else "below"
        return (
            f"the noise of comparisons relative to that of pairs is not bounded {side} (estimate {self.value:.3g}): "
            "too few comparisons, or pairs, are uncertain. Set comparison_noise to a number, or collect more of both."
        )


def profile_noise(loss_at: Callable[[float], float], n_judgements: float) -> ComparisonNoise:
    """Minimise the loss over the noise, given the least loss at each, and find where it is too large by chance.

    `loss_at` is the minimum over all other parameters of the mean loss of as many judgements as this.
    """
    found: dict[float, float] = {}

    def profile(log_noise: float) -> float:
        if log_noise not in found:
            found[log_noise] = loss_at(math.exp(log_noise))
        return found[log_noise]

    minimize_scalar(profile, bounds=(-_LARGEST, _LARGEST), method="bounded", options={"xatol": _ACCURATE})
    centre, least = min(found.items(), key=lambda item: item[1])
    limit = least + float(chi2.isf(1.0 - _LEVEL, 1)) / (2.0 * n_judgements)
    ends = []
    for end, beyond in ((-_LARGEST, 0.0), (_LARGEST, math.inf)):
        inside, outside = _around(found, limit, centre, end)
        # A fit at the end itself is slow, and needed only if nothing nearer is too large.
        is_bounded = found.get(outside, -math.inf) > limit or profile(outside) > limit
        root = brentq(lambda place: profile(place) - limit, inside, outside, xtol=_ACCURATE) if is_bounded else None
        ends.append(beyond if root is None else math.exp(root))
    low, high = ends
    return ComparisonNoise(math.exp(centre), (low, high))


def _around(found: dict[float, float], limit: float, centre: float, end: float) -> tuple[float, float]:
    """The last known place within the limit on the way from the centre to an end, and the first one beyond it."""
    inside = centre
    for place in sorted(
        (each for each in found if (each - centre) * (end - centre) > 0.0), key=lambda at: abs(at - centre)
    ):
        if found[place] > limit:
            return inside, place
        inside = place
    return inside, end
