"""What a fit says of new judgements: a side, a level or the shorter leg of a comparison, with probabilities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.fitting import Fit
from closefar.judgements import Kind, check_comparisons, check_pairs, read_annotators

__all__ = ["Answers", "answers_to", "measured"]


@dataclass(frozen=True, eq=False)
class Answers(ABC):
    """The answers of a fit.

    Attributes
    ----------
    fit : Fit
    measured : array of n numbers
        The squared distance of each pair, less the strictness of its annotator, or the margin of each comparison.
    flip_rate : float or array of n numbers, optional
        The flip rate of the annotators; by default that of the metric.
    """

    fit: Fit
    measured: FloatArray
    flip_rate: Any = None

    @abstractmethod
    def decision(self) -> FloatArray:
        """A score for each judgement."""

    @abstractmethod
    def labels(self) -> NDArray[Any]:
        """The most probable label of each judgement."""

    @abstractmethod
    def probabilities(self) -> FloatArray:
        """The probability of each label, in the order of the classes."""


class _CloseFar(Answers):
    def decision(self) -> FloatArray:
        margin = self.measured - self.fit.metric.known_threshold
        return margin if self.fit.sides.far_is_last else -margin

    def labels(self) -> NDArray[Any]:
        far = self.measured >= self.fit.metric.known_threshold
        labels: NDArray[Any] = self.fit.sides.classes[(far == self.fit.sides.far_is_last).astype(int)]
        return labels

    def probabilities(self) -> FloatArray:
        close_and_far = self.fit.metric.probabilities_at(self.measured, self.flip_rate)
        return close_and_far if self.fit.sides.far_is_last else close_and_far[:, ::-1]


class _Levels(Answers):
    def decision(self) -> FloatArray:
        return self.measured

    def labels(self) -> NDArray[Any]:
        labels: NDArray[Any] = self.fit.sides.classes[self.fit.metric.levels_at(self.measured)]
        return labels

    def probabilities(self) -> FloatArray:
        return self.fit.metric.probabilities_at(self.measured, self.flip_rate)


class _Comparisons(Answers):
    def decision(self) -> FloatArray:
        return self.measured

    def labels(self) -> NDArray[Any]:
        labels: NDArray[Any] = self.fit.sides.classes[(self.measured >= 0).astype(int)]
        return labels

    def probabilities(self) -> FloatArray:
        at = self.fit.metric.probability_at
        return np.column_stack([at(-self.measured), at(self.measured)])


_KINDS: dict[Kind, type[Answers]] = {
    Kind.CLOSE_FAR: _CloseFar,
    Kind.LEVELS: _Levels,
    Kind.COMPARISONS: _Comparisons,
}


def answers_to(learner: Any, X: Any, annotator: Any = None) -> Answers:
    """Return the answers of a fitted learner to pairs or comparisons, as a typical or a named annotator gives them."""
    fit: Fit = learner._fitted()
    if fit.kind is Kind.COMPARISONS:
        if annotator is not None:
            raise ValueError(f"comparisons are fitted without annotators; got annotator={annotator!r}. Leave it out.")
        return _Comparisons(fit, fit.metric.measure(_compared(learner, X)))
    squared = measured(learner, X)
    if annotator is None:
        return _KINDS[fit.kind](fit, squared)
    strictness, flip_rate = _annotated(fit, annotator, len(squared))
    return _KINDS[fit.kind](fit, squared - strictness, flip_rate)


def measured(learner: Any, X: Any) -> FloatArray:
    """Return the squared distance of each pair."""
    fit: Fit = learner._fitted()
    return fit.metric.measure(check_pairs(learner, X, fitting=False))


def _compared(learner: Any, X: Any) -> Any:
    """Comparisons that were checked; pairs are named as what they are."""
    shape = getattr(X, "shape", None) or np.shape(X)
    if len(shape) == 2 or (len(shape) == 3 and shape[1] == 2):
        raise ValueError(
            f"a metric learned from comparisons has no threshold, so it calls no pair close or far; got pairs of shape "
            f"{tuple(shape)}. Pass comparisons, (n, 3, d) or (n, 4, d), or fit a threshold with "
            "calibrate_threshold(pairs, labels)."
        )
    return check_comparisons(learner, X, fitting=False)


def _annotated(fit: Fit, annotator: Any, n: int) -> tuple[FloatArray, Any]:
    """The strictness and the flip rate of an annotator, or of the annotator of each of n pairs."""
    table = fit.annotators
    if table is None:
        raise ValueError(
            f"the fit must know annotators to predict for one; got annotator={annotator!r} for a fit without them. Fit "
            "with annotators=ids, or leave annotator out."
        )
    is_one = isinstance(annotator, str) or np.ndim(annotator) == 0
    who = read_annotators([annotator] * n if is_one else annotator, n, table.names).codes
    return table.strictness[who], None if table.flip_rates is None else table.flip_rates[who]
