"""How often somebody may ask: a bucket that fills steadily and is emptied by requests."""

from __future__ import annotations

_MOST_KEYS = 10_000


class Rate:
    """At most `burst` requests at once, and `per_second` on average, of each key."""

    def __init__(self, per_second: float, burst: float) -> None:
        self.per_second = per_second
        self.burst = burst
        self._left: dict[str, tuple[float, float]] = {}

    def allows(self, key: str, now: float) -> bool:
        """Whether another request of `key` is within its rate; counts it if so."""
        left, since = self._left.pop(key, (self.burst, now))
        left = min(self.burst, left + max(0.0, now - since) * self.per_second)
        is_allowed = left >= 1.0
        self._left[key] = left - is_allowed, now
        if len(self._left) > _MOST_KEYS:
            del self._left[next(iter(self._left))]  # asked longest ago, so its bucket is probably full
        return is_allowed
