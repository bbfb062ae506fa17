"""What each judgement says of the thresholds, and how flips change its probability."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from closefar.arrays import BoolArray, FloatArray, IndexArray
from closefar.judgements import Judgements, Kind
from closefar.noise import FlipRate

__all__ = ["Flips", "Outcomes"]


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Which thresholds the probability of each judgement depends on; those of attached comparisons come last.

    The margin of a judgement is its squared distance less the threshold at the lower end of its level or,
    at the lowest level, less the one at its upper end.  Levels between the first and the last also depend on
    the next threshold.  Comparisons depend on no threshold.

    Attributes
    ----------
    codes : array of shape (n,)
        The level of each judgement, from 0.  A comparison has the code K if the answer is as given, and K + 1 if
        it is turned round.
    n_levels : int
        K; comparisons alone have one level, and no threshold.
    annotators : array of shape (n,), optional
        The annotator of each judgement; R for a comparison, which has none.
    n_annotators : int
        R.
    """

    codes: IndexArray
    n_levels: int
    annotators: IndexArray | None = None
    n_annotators: int = 0

    @classmethod
    def of(cls, judgements: Judgements) -> Outcomes:
        if judgements.kind is Kind.COMPARISONS:
            return cls(np.where(judgements.is_far, 1, 2), 1)
        codes, n_levels = np.asarray(judgements.codes, dtype=np.intp), judgements.n_levels
        given, others = judgements.annotators, judgements.comparisons
        annotators, n_annotators = (None, 0) if given is None else (given.codes, len(given.names))
        if others is not None:
            codes = np.concatenate([codes, np.where(others.is_far, n_levels, n_levels + 1)])
            if annotators is not None:
                annotators = np.concatenate([annotators, np.full(len(others), n_annotators)])
        return cls(codes, n_levels, annotators, n_annotators)

    def take(self, rows: IndexArray) -> Outcomes:
        annotators = None if self.annotators is None else self.annotators[rows]
        return replace(self, codes=self.codes[rows], annotators=annotators)

    @property
    def n_cuts(self) -> int:
        return self.n_levels - 1

    @property
    def n_thresholds(self) -> int:
        return self.n_cuts + self.n_annotators

    @cached_property
    def are_compared(self) -> BoolArray:
        compared: BoolArray = self.codes >= self.n_levels
        return compared

    @cached_property
    def signs(self) -> FloatArray:
        """-1 if a judgement is the more probable the smaller its margin, otherwise +1."""
        return np.where((self.codes == 0) | (self.codes == self.n_levels + 1), -1.0, 1.0)

    @cached_property
    def cuts(self) -> IndexArray:
        """The threshold that each margin is measured from, counted from 0; K - 1 for comparisons."""
        return np.where(self.are_compared, self.n_cuts, np.maximum(self.codes, 1) - 1)

    @cached_property
    def between(self) -> IndexArray:
        """The rows that depend on two thresholds."""
        return np.flatnonzero((self.codes >= 1) & (self.codes < self.n_cuts))

    @cached_property
    def has_one_cut(self) -> bool:
        """Whether every margin is that of the only threshold."""
        return self.n_thresholds == 1 and not np.any(self.are_compared)

    def fill_slopes(self, where: slice, slopes: FloatArray) -> None:
        """Write the derivative of each margin in the thresholds into these columns."""
        slopes[:] = -1.0 if self.has_one_cut else 0.0
        if self.has_one_cut:
            return
        rows, cuts = np.arange(len(slopes)), self.cuts[where]
        pairs = cuts < self.n_cuts
        slopes[rows[pairs], cuts[pairs]] = -1.0
        if self.annotators is not None:
            annotators = self.annotators[where]
            judged = annotators < self.n_annotators
            slopes[rows[judged], self.n_cuts + annotators[judged]] = -1.0

    def alternatives(self) -> Iterator[tuple[Outcomes, BoolArray]]:
        """All outcomes that each judgement could have had, one at a time, and which of them there are."""
        for code in range(max(self.n_levels, 2)):
            compared = self.n_levels + min(code, 1)
            yield (
                replace(self, codes=np.where(self.are_compared, compared, code)),
                np.where(self.are_compared, code < 2, code < self.n_levels),
            )


@dataclass(frozen=True, eq=False)
class Flips:
    """P~ = e + s P, with e and s linear in the flip rates that are parameters, and known otherwise.

    `base` and `kept` are e and s at rates of zero (or as known), `on_base` and `on_kept` minus their derivatives
    in each rate, where that of e has its own sign: e = base + rates @ on_base, s = kept - rates @ on_kept.
    """

    base: Any
    kept: Any
    on_base: tuple[Any, ...] = ()
    on_kept: tuple[Any, ...] = ()

    @classmethod
    def known(cls, outcomes: Outcomes, flip_rate: FlipRate | FloatArray) -> Flips:
        """Those of known rates, which may be arrays with a number per row."""
        n_free = 2 if isinstance(flip_rate, tuple) else 1
        free = cls.free(outcomes, n_free)
        rates = flip_rate if isinstance(flip_rate, tuple) else (flip_rate,)
        return cls(*free.at(rates))

    @classmethod
    def free(cls, outcomes: Outcomes, n_rates: int) -> Flips:
        """Those of one rate, or of the rates of close and of far, as parameters.

        One rate of K levels is the share of wrong answers among those drawn from all levels alike.  As many answers
        to comparisons are at random, half of them wrong.
        """
        compared = outcomes.are_compared
        if n_rates == 2:
            called_far = np.where(compared, 0.5, outcomes.signs > 0)
            return cls(0.0, 1.0, (called_far, 1.0 - called_far), (1.0, 1.0))
        k = float(max(outcomes.n_levels, 2))
        kept = k / (k - 1.0)
        on_base = np.where(compared, 0.5 * kept, 1.0 / (k - 1.0)) if k > 2 else 1.0
        return cls(0.0, 1.0, (on_base,), (kept,))

    @property
    def n_free(self) -> int:
        return len(self.on_base)

    @property
    def are_none(self) -> bool:
        """Whether nothing is flipped, and no rate is a parameter."""
        return not self.n_free and np.ndim(self.kept) == 0 and self.kept == 1.0

    def at(self, rates: Any) -> tuple[Any, Any]:
        """E and s at these rates."""
        base, kept = self.base, self.kept
        for rate, on_base, on_kept in zip(rates, self.on_base, self.on_kept, strict=True):
            base, kept = base + rate * on_base, kept - on_kept * rate
        return base, kept
