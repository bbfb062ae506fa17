"""The noise of comparisons relative to that of pairs: the profile likelihood over it, and its interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.optimize import brentq, minimize_scalar
from scipy.stats import chi2

__all__ = ["ComparisonNoise", "profile_noise"]

_LARGEST = math.log(1e3)  # as is its inverse the smallest that is tried
_NEAR, _ACCURATE, _PRECISE = 0.1, 1e-3, 1e-10  # of the logarithm: for a search, an end of an interval, and the estimate
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


def profile_noise(loss_at: Callable[[float], tuple[float, float]], n_judgements: float) -> ComparisonNoise:
    """Minimise the loss over the noise, given the least loss at each, and find where it is too large by chance.

    `loss_at` is the minimum over all other parameters of the mean loss of as many judgements as this, and its
    derivative in the logarithm of the noise.
    """
    found: dict[float, float] = {}
    slopes: dict[float, float] = {}

    def profile(log_noise: float) -> float:
        if log_noise not in found:
            found[log_noise], slopes[log_noise] = loss_at(math.exp(log_noise))
        return found[log_noise]

    def slope(log_noise: float) -> float:
        profile(log_noise)
        return slopes[log_noise]

    minimize_scalar(profile, bounds=(-_LARGEST, _LARGEST), method="bounded", options={"xatol": _NEAR})
    centre = min(found, key=lambda place: found[place])
    below = max((place for place in found if place < centre and slopes[place] < 0.0), default=centre)
    above = min((place for place in found if place > centre and slopes[place] > 0.0), default=centre)
    if slopes[centre] != 0.0 and below < above:
        low, high = (below, centre) if slopes[centre] > 0.0 else (centre, above)
        centre = brentq(slope, low, high, xtol=_PRECISE) if low < high else centre
    least = profile(centre)
    limit = least + float(chi2.isf(1.0 - _LEVEL, 1)) / (2.0 * n_judgements)
    ends: list[float] = []
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
