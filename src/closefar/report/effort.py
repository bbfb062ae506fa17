"""How much work the costly parts of a report are, counted and not timed, so that a report is the same each time.

The unit is about a floating point operation; a slow core does some 1e9 of it per second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closefar.fitting import Fit
from closefar.packed import packed_size
from closefar.questions import MOST_MOVES

__all__ = ["Effort"]

_LIMIT = 2e10  # of one part
_FEWEST_PAIRS = 2000
_MOST_PAIRS = 30_000  # which know an accuracy to 0.6 percentage points
_FEWEST_PASSES = 20.0  # where a fit began near its end
_FEW_FEATURES = 16
_MOST_NUMBERS = 4e6  # in memory at once


@dataclass(frozen=True)
class Effort:
    """The work of one fit and of one pass of standard errors, for each pair."""

    n_features: int
    n_moves: int
    rank: int
    fit: float
    moves: float

    @classmethod
    def of(cls, fit: Fit) -> Effort:
        d, k = len(fit.metric.factor), fit.metric.rank
        passes = max(fit.certificate.n_passes, _FEWEST_PASSES)
        n_moves = d * k - k * (k - 1) // 2 + 1
        return cls(d, n_moves, k, passes * d * d, float(min(n_moves, MOST_MOVES) ** 2))

    @property
    def has_many_features(self) -> bool:
        """Whether a proven fit takes several times as long as an approximate one."""
        return self.n_features > _FEW_FEATURES

    def pairs_to_judge(self, n: int, n_rounds: int = 1) -> int:
        """How many of n pairs to judge out of fold, so many times."""
        return self._affordable(n, 2.0 * _LIMIT, 5.0 * n_rounds * (self.fit + self.moves))

    def folds(self, n: int, usual: int) -> int:
        """Three instead of the usual where even the fewest pairs are much work."""
        return usual if usual * n * self.fit <= 2.0 * _LIMIT else 3

    def pairs_to_check(self, n: int) -> int:
        """How many of n pairs to check the noise with."""
        return self._affordable(n, 0.5 * _LIMIT, self.moves)

    def pairs_to_truncate(self, n: int) -> int:
        return self._affordable(n, _MOST_NUMBERS, self.rank + 1.0)

    def can_refit_truncated(self, n: int) -> bool:
        return n * self.fit * self.rank / 3.0 <= 2.0 * _LIMIT

    def repeats(self, n: int, usual: int) -> int:
        """Of a learning curve of fits that double in size up to n; small fits of many columns are slow."""
        return usual if not self.has_many_features and 2.0 * usual * n * self.fit <= _LIMIT else 1

    def pairs_to_learn_from(self, n: int) -> int:
        return self._affordable(n, _LIMIT, 2.0 * self.fit)

    @property
    def fewest_to_learn_from(self) -> int:
        """With fewer pairs than this most of the metric is a guess."""
        return self.n_moves // 4

    def can_refit(self, n: int, times: int) -> bool:
        return times * n * self.fit <= _LIMIT

    def can_sandwich(self, n: int) -> bool:
        return float(n) * packed_size(self.n_features) ** 2 <= 5.0 * _LIMIT

    def _affordable(self, n: int, limit: float, work_per_pair: float) -> int:
        return int(np.clip(limit / max(work_per_pair, 1.0), min(n, _FEWEST_PAIRS), min(n, _MOST_PAIRS)))
