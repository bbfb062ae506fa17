"""A batch of questions, one at a time: what the answers to those before will teach counts as known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from closefar import packed
from closefar.arrays import BoolArray, FloatArray, IndexArray
from closefar.questions.choosing_answers import Answers
from closefar.questions.choosing_posterior import Posterior
from closefar.questions.legs import by_legs
from closefar.rows import Rows

__all__ = ["Batch", "choose_batch"]

# Margins whose correlation differs from one by no more are those of the same question.
_SAME = 1e-8


@dataclass(frozen=True, eq=False)
class Batch:
    """The questions chosen, best first, and what each candidate would teach before each choice."""

    chosen: IndexArray
    utilities: FloatArray


class _Known:
    """The distribution of the margins of candidates, which narrows with each question that is chosen."""

    def __init__(self, posterior: Posterior, rows: Rows, means: FloatArray) -> None:
        self.means = means
        self._posterior, self._rows = posterior, rows
        self._covariance = posterior.covariance.copy()
        n = packed.packed_size(posterior.size)
        of_matrix, with_cuts, of_cuts = self._covariance[:n, :n], self._covariance[:n, n:], self._covariance[n:, n:]
        self._n_matrix = n
        n_margins = means.shape[1]
        self.covariances = np.empty((len(means), n_margins, n_margins))
        for where, along in self._gradients():
            variance = np.einsum("ij,ij->i", along @ of_matrix, along)
            self.covariances[where] = variance[:, None, None]
            if len(of_cuts):
                crossed = along @ with_cuts
                self.covariances[where] += of_cuts - crossed[:, :, None] - crossed[:, None, :]

    def _gradients(self) -> Iterator[tuple[slice, FloatArray]]:
        basis = self._posterior.basis
        return by_legs(self._rows, lambda block: packed.form_gradients(block.T @ basis))

    def along(self, which: int) -> FloatArray:
        """The derivatives of the margins of one candidate in all parameters."""
        (_, found), *_ = by_legs(
            self._rows.take_rows(np.array([which])),
            lambda block: packed.form_gradients(block.T @ self._posterior.basis),
        )
        n_cuts = len(self._covariance) - self._n_matrix
        on_cuts = -np.eye(n_cuts) if n_cuts else np.zeros((1, 0))
        return np.hstack([np.repeat(found, len(on_cuts), axis=0), on_cuts])

    def covariances_with(self, along: FloatArray) -> FloatArray:
        """The covariance of all margins with those of one candidate, (n, K - 1, K - 1)."""
        spread = self._covariance @ along.T
        n, basis = self._n_matrix, self._posterior.basis
        found = np.empty(self.covariances.shape)
        for k in range(found.shape[2]):
            matrix = basis @ packed.unpack(spread[:n, k], basis.shape[1]) @ basis.T
            found[:, :, k] = self._rows.quadratic_forms(matrix)[:, None]
            if len(spread) > n:
                found[:, :, k] -= spread[n:, k]
        return found

    def learn(self, along: FloatArray, crossed: FloatArray, information: FloatArray) -> None:
        """Add the information of an answer about margins with these derivatives."""
        spread = self._covariance @ along.T
        own = along @ spread
        gain = information @ np.linalg.inv(np.eye(len(own)) + own @ information)
        gain = 0.5 * (gain + gain.T)
        self._covariance -= spread @ gain @ spread.T
        self.covariances -= np.einsum("nik,kl,njl->nij", crossed, gain, crossed)


def choose_batch(posterior: Posterior, rows: Rows, means: FloatArray, answers: Answers, n: int) -> Batch:
    """Choose n candidates in turn, each the one that teaches most after the expected information of those before."""
    known = _Known(posterior, rows, means)
    is_left = np.ones(len(means), dtype=bool)
    is_new = is_left.copy()
    chosen, utilities = np.empty(n, dtype=np.intp), np.empty((n, len(means)))
    for place in range(n):
        gains = answers.gains(known.means, known.covariances)
        utilities[place] = np.where(is_left, gains, np.nan)
        wanted = is_left & is_new if np.any(gains[is_left & is_new] > 0.0) else is_left
        best = int(np.argmax(np.where(wanted, gains, -1.0)))
        chosen[place], is_left[best] = best, False
        along = known.along(best)
        crossed = known.covariances_with(along)
        is_new &= ~_are_same(known, crossed, best)
        known.learn(along, crossed, answers.expected_fisher(known.means[best], known.covariances[best]))
    return Batch(chosen, utilities)


def _are_same(known: _Known, crossed: FloatArray, which: int) -> BoolArray:
    """Whether each candidate asks the same as one of them: its margin is the same, or of a comparison its negative."""
    own, others = known.covariances[which, 0, 0], known.covariances[:, 0, 0]
    same: BoolArray = crossed[:, 0, 0] ** 2 >= (1.0 - _SAME) * own * others
    return same
