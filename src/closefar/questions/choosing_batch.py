"""A batch of questions, one at a time: what the answers to those before will teach counts as known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closefar import packed
from closefar.arrays import BoolArray, FloatArray, IndexArray
from closefar.questions.choosing_answers import Answers
from closefar.questions.choosing_posterior import Posterior
from closefar.rows import Rows

__all__ = ["Batch", "choose_batch"]

# Margins whose correlation differs from one by no more are those of the same question.
_SAME = 1e-8

_AT_ONCE = 256  # gains that are computed again


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
        for where, along in posterior.gradients(rows):
            variance = np.einsum("ij,ij->i", along @ of_matrix, along)
            self.covariances[where] = variance[:, None, None]
            if len(of_cuts):
                crossed = along @ with_cuts
                self.covariances[where] += of_cuts - crossed[:, :, None] - crossed[:, None, :]

    def along(self, which: int) -> FloatArray:
        """The derivatives of the margins of one candidate in all parameters."""
        ((_, found),) = self._posterior.gradients(self._rows.take_rows(np.array([which])))
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


def choose_batch(
    posterior: Posterior, rows: Rows, means: FloatArray, answers: Answers, n: int, *, with_utilities: bool = False
) -> Batch:
    """Choose n candidates in turn, each the one that teaches most after the expected information of those before.

    Gains only fall from choice to choice, so that those of before are bounds, and few have to be computed again.
    """
    known = _Known(posterior, rows, means)
    is_left, is_new = np.ones((2, len(means)), dtype=bool)
    chosen, utilities = np.empty(n, dtype=np.intp), np.empty((n if with_utilities else 0, len(means)))
    gains = answers.gains(known.means, known.covariances)
    for place in range(n):
        if place and (with_utilities or answers.n_levels > 2):
            gains = answers.gains(known.means, known.covariances)
        if with_utilities:
            utilities[place] = np.where(is_left, gains, np.nan)
        best = _find_best(gains, is_left & is_new, known, answers)
        if best is None:  # only the same questions again, or nothing to learn, is left
            gains = answers.gains(known.means, known.covariances)
            best = int(np.argmax(np.where(is_left, gains, -1.0)))
        chosen[place], is_left[best] = best, False
        along = known.along(best)
        crossed = known.covariances_with(along)
        is_new &= ~_are_same(known, crossed, best)
        known.learn(along, crossed, answers.expected_fisher(known.means[best], known.covariances[best]))
    return Batch(chosen, utilities)


def _find_best(bounds: FloatArray, wanted: BoolArray, known: _Known, answers: Answers) -> int | None:
    """The wanted candidate that teaches most; None if none teaches anything.  Bounds on gains are updated."""
    is_fresh = ~wanted
    while True:
        open_bounds = np.where(wanted, bounds, 0.0)
        best = int(np.argmax(open_bounds))
        if is_fresh[best] or open_bounds[best] <= 0.0:
            return best if open_bounds[best] > 0.0 else None
        stale = np.flatnonzero(~is_fresh)
        if len(stale) > _AT_ONCE:
            stale = stale[np.argpartition(-bounds[stale], _AT_ONCE)[:_AT_ONCE]]
        bounds[stale] = answers.gains(known.means[stale], known.covariances[stale])
        is_fresh[stale] = True


def _are_same(known: _Known, crossed: FloatArray, which: int) -> BoolArray:
    """Whether each candidate asks the same as one of them: its margin is the same, or of a comparison its negative."""
    own, others = known.covariances[which, 0, 0], known.covariances[:, 0, 0]
    same: BoolArray = crossed[:, 0, 0] ** 2 >= (1.0 - _SAME) * own * others
    return same
