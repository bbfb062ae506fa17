"""The standard errors of margins, from each threshold of a metric."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from closefar.arrays import TINY, Array, FloatArray, IndexArray
from closefar.fitting import Fit, Scorer
from closefar.judgements import Judgements
from closefar.model import ScoredLevels
from closefar.questions.annotating import table_of
from closefar.questions.label_model import LabelModel
from closefar.questions.moves import MarginMoves, pseudo_inverse
from closefar.questions.thinning import representatives

__all__ = ["SideErrors", "margin_information"]

_MOST_SEEN = 100_000


@dataclass(frozen=True)
class SideErrors:
    """The standard errors of margins, without the common scale of all margins, which changes no side.

    Margins are linear in M, the thresholds and the strictness of annotators, so the scale has the information
    of a step along all of these, and is independent, to first order, of the rest.
    """

    moves: MarginMoves
    n_cuts: int
    n_annotators: int
    covariance: FloatArray
    of_scale: float

    @classmethod
    def of(cls, fit: Fit, seen: Judgements) -> SideErrors:
        """The errors of the margins of a fit to these judgements; attached comparisons are left out."""
        moves = MarginMoves(fit.metric, seen, comparison_noise=fit.relative_noise)
        seen = _thinned(seen, moves)
        table = table_of(fit, seen)
        n_annotators = 0 if table is None else len(table)
        blank = cls(moves, seen.n_thresholds, n_annotators, np.empty((0, 0)), 0.0)
        margins, weights = margin_information(fit, seen)
        information = blank._sums(seen, weights * seen.weights)
        of_scale = np.einsum("ni,nij,nj->n", margins, np.moveaxis(weights, -1, 0), margins) @ seen.weights
        if table is not None:
            places = np.arange(len(information))[-n_annotators:]
            information[places, places] += 1.0 / table.width**2
        return cls(
            moves, seen.n_thresholds, n_annotators, pseudo_inverse(information), 1.0 / max(float(of_scale), TINY)
        )

    def at(self, data: Array, margins: FloatArray, annotators: IndexArray | None = None) -> FloatArray:
        """The error of each of these margins, (n, cuts)."""
        variances = np.empty(margins.shape)
        for where, alongs in self._blocks(data, annotators):
            for cut, along in enumerate(alongs):
                variances[where, cut] = np.einsum("ij,ij->i", along @ self.covariance, along)
        return np.sqrt(np.maximum(np.maximum(variances, 0.0) - self.of_scale * margins**2, 0.0))

    def _blocks(self, data: Array, annotators: IndexArray | None) -> Iterator[tuple[slice, list[FloatArray]]]:
        """The derivative of each margin in all parameters, for each cut."""
        for where, along in self.moves.blocks(data):
            if self.n_cuts <= 1 and not self.n_annotators:
                yield where, [along]
                continue
            n, on_matrix = len(along), along[:, : self.moves.moves.n_on_matrix]
            by = np.zeros((n, self.n_annotators))
            if annotators is not None:
                by[np.arange(n), annotators[where]] = -1.0
            cuts = -np.eye(self.n_cuts)
            yield where, [np.column_stack([on_matrix, np.tile(cut, (n, 1)), by]) for cut in cuts]

    def _sums(self, seen: Judgements, weights: FloatArray) -> FloatArray:
        """The information on all parameters, from that on the margins: (cuts, cuts, n)."""
        total: Any = 0.0
        who = None if seen.annotators is None else seen.annotators.codes
        for where, alongs in self._blocks(seen.data, who):
            for i, left in enumerate(alongs):
                for j, right in enumerate(alongs):
                    if np.any(weights[i, j]):
                        total = total + left.T @ (right * weights[i, j, where, None])
        return np.asarray(total)


def margin_information(fit: Fit, seen: Judgements) -> tuple[FloatArray, FloatArray]:
    """The margins from each threshold, (n, cuts), and the Fisher information on them, (cuts, cuts, n)."""
    scores = Scorer.of(fit).score(seen)
    if not isinstance(scores, ScoredLevels):
        model = LabelModel.at(scores.margin, scores.noise, scores.flip_rate)
        return scores.margin[:, None], model.information[None, None]
    cuts = scores.dichotomies
    margins = np.column_stack([each.margin for each in cuts])
    slopes = [LabelModel.at(each.margin, each.noise, each.flip_rate).slope for each in cuts]
    rarest = np.maximum(scores.probabilities.T, TINY)
    weights = np.zeros((len(cuts), len(cuts), len(seen)))
    for k, slope in enumerate(slopes):
        weights[k, k] = slope**2 * (1.0 / rarest[k] + 1.0 / rarest[k + 1])
        if k:
            weights[k, k - 1] = weights[k - 1, k] = -slope * slopes[k - 1] / rarest[k]
    return margins, weights


def _thinned(judgements: Judgements, moves: MarginMoves) -> Judgements:
    """A sample of many judgements, weighted to represent all: standard errors are within about one percent."""
    if len(judgements) <= _MOST_SEEN:
        return judgements
    chosen, number = representatives(judgements.weights, moves.mean_squares(judgements.data), _MOST_SEEN)
    some = judgements.take(chosen)
    return some.with_weights(number * some.weights)
