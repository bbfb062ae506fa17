"""Choosing the questions to ask next: those whose answers teach most about M and the thresholds."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, ndtr, ndtri
from scipy.stats import qmc
from sklearn.utils import check_random_state

from closefar import packed
from closefar.arrays import TINY, Array, BoolArray, FloatArray, IndexArray, is_foreign, is_indexed, take_rows, to_numpy
from closefar.fitting import Fit, Fitted, Scorer, refit
from closefar.judgements import Judgements, Kind, check_comparisons, check_pairs
from closefar.model.thresholds import level_flips
from closefar.noise import FlipRate, Noise, interval_losses
from closefar.questions.likelihood import LabelModel, by_legs, leg_blocks
from closefar.questions.moves import margin_information, table_of
from closefar.rows import (
    BlockRows,
    Coordinates,
    LegRows,
    Rows,
    StackedRows,
    factor_in_rows,
    find_coordinates,
    rows_of,
    slices,
)

# ---------------------------------------------------------------------------------------------------------------------
# What an answer to a question teaches, in nats, where the margins of the question are known up to a normal error.


# Errors of margins below a quarter of the standard deviation of the noise are integrated by Gauss-Hermite, larger ones
# over cells of that width, where the normal may be as wide as it likes.
_WIDE = 0.25
_N_NODES = 12
_N_CELLS = 96

_N_DRAWS = 128


@dataclass(frozen=True, eq=False)
class Answers:
    """The distribution of the answer given the margins from each threshold; comparisons, and two sides, have one.

    Attributes
    ----------
    noise : Noise
    flip_rate : float or tuple of float
    n_levels : int
        The number of possible answers.
    """

    noise: Noise
    flip_rate: FlipRate
    n_levels: int = 2

    def probabilities(self, margins: FloatArray) -> FloatArray:
        """The probability of each answer, (..., K), from the margins, (..., K - 1), the lowest threshold's first."""
        if self.n_levels == 2:
            model = LabelModel.at(margins[..., 0], self.noise, self.flip_rate)
            return np.stack([model.close, model.far], axis=-1)
        found = [self._level(margins, code) for code in range(self.n_levels)]
        return np.stack(found, axis=-1)

    def _level(self, margins: FloatArray, code: int) -> FloatArray:
        last = self.n_levels - 1
        ahead = np.full(margins.shape[:-1], np.inf)
        low = margins[..., code - 1] if code > 0 else ahead
        up = margins[..., code] if code < last else -ahead
        with np.errstate(divide="ignore", invalid="ignore"):  # draws of thresholds that are out of order
            plain = np.exp(-interval_losses(self.noise, low, np.minimum(up, low), 0).loss)
        each, rest = level_flips(np.asarray(self.flip_rate), self.n_levels)
        return np.asarray(each + rest * np.nan_to_num(plain))

    def _quick_levels(self, margins: FloatArray) -> FloatArray:
        """The probability of each level to within rounding of 1, which is enough for entropies, and quicker."""
        beyond = self.noise.cdf(margins)
        ends = np.ones((*margins.shape[:-1], 1))
        plain = np.maximum(-np.diff(beyond, axis=-1, prepend=ends, append=0.0 * ends), 0.0)
        each, rest = level_flips(np.asarray(self.flip_rate), self.n_levels)
        return np.asarray(each + rest * plain)

    def entropies(self, margins: FloatArray) -> FloatArray:
        """The entropy of the answer at known margins, in nats."""
        entropies: FloatArray = entr(self.probabilities(margins)).sum(axis=-1)
        return entropies

    def fisher(self, margins: FloatArray) -> FloatArray:
        """The Fisher information of the answer about the margins, (..., K - 1, K - 1)."""
        if self.n_levels == 2:
            return LabelModel.at(margins[..., 0], self.noise, self.flip_rate).information[..., None, None]
        _, rest = level_flips(np.asarray(self.flip_rate), self.n_levels)
        slopes = np.asarray(rest) * self.noise.pdf(margins)
        rarest = np.maximum(self.probabilities(margins), TINY)
        found = np.zeros((*margins.shape, margins.shape[-1]))
        for k in range(margins.shape[-1]):
            found[..., k, k] = slopes[..., k] ** 2 * (1.0 / rarest[..., k] + 1.0 / rarest[..., k + 1])
            if k:
                found[..., k, k - 1] = found[..., k - 1, k] = -slopes[..., k] * slopes[..., k - 1] / rarest[..., k]
        return found

    def gains(self, means: FloatArray, covariances: FloatArray) -> FloatArray:
        """The mutual information of answer and margins, H(E p) - E H(p), for means (n, K - 1) and their covariances."""
        if self.n_levels == 2:
            return self._gains_of_sides(means[:, 0], np.sqrt(np.maximum(covariances[:, 0, 0], 0.0)))
        probabilities = self._quick_levels(_drawn(means, covariances))
        gains = entr(probabilities.mean(axis=1)).sum(axis=-1) - entr(probabilities).sum(axis=-1).mean(axis=1)
        return np.asarray(np.maximum(gains, 0.0))

    def expected_fisher(self, mean: FloatArray, covariance: FloatArray) -> FloatArray:
        """The Fisher information, averaged over the distribution of the margins of one question."""
        if self.n_levels > 2:
            return np.asarray(self.fisher(_drawn(mean[None], covariance[None])[0]).mean(axis=0))
        width = np.sqrt(np.maximum(covariance[0], 0.0))
        if width[0] >= _WIDE * self.noise.std:
            return np.reshape(self._masses(mean, width) @ self._cells[2], (1, 1))
        nodes, weights = _hermite()
        found: FloatArray = np.tensordot(weights, self.fisher(mean[0] + width[0] * nodes[:, None]), axes=1)
        return found

    def _gains_of_sides(self, mean: FloatArray, width: FloatArray) -> FloatArray:
        gains = np.empty(len(mean))
        is_wide = width >= _WIDE * self.noise.std
        nodes, weights = _hermite()
        narrow = ~is_wide
        far = self.probabilities((mean[narrow, None] + width[narrow, None] * nodes)[..., None])
        gains[narrow] = entr(np.tensordot(far, weights, axes=(1, 0))).sum(axis=-1) - entr(far).sum(axis=-1) @ weights
        masses = self._masses(mean[is_wide], width[is_wide])
        probabilities, entropies, _ = self._cells
        gains[is_wide] = entr(masses @ probabilities).sum(axis=-1) - masses @ entropies
        return np.maximum(gains, 0.0)

    def _masses(self, mean: FloatArray, width: FloatArray) -> FloatArray:
        """The probability that the margin lies in each cell; cells add the variance of their width, so it is less."""
        step = _WIDE * self.noise.std
        edges = step * (np.arange(_N_CELLS + 1) - 0.5 * _N_CELLS)
        corrected = np.sqrt(width**2 - step**2 / 12.0)
        below = ndtr((edges - mean[:, None]) / corrected[:, None])
        return np.diff(below, axis=1, prepend=0.0, append=1.0)

    @cached_property
    def _cells(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The probabilities, the entropy and the information in the middle of each cell; the outermost are endless."""
        step = _WIDE * self.noise.std
        middle = np.asarray(step * (np.arange(_N_CELLS + 2) - 0.5 * (_N_CELLS + 1)), dtype=np.float64)
        probabilities = self.probabilities(middle[:, None])
        return probabilities, entr(probabilities).sum(axis=-1), self.fisher(middle[:, None])[:, 0, 0]


@lru_cache(maxsize=1)
def _hermite() -> tuple[FloatArray, FloatArray]:
    """The nodes and weights of expectations under the standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_N_NODES)
    return nodes, weights / weights.sum()


@lru_cache(maxsize=8)
def _draws(n: int) -> FloatArray:
    """Points of the standard normal in n dimensions, with its mean and its covariance, the same each time."""
    half = ndtri(qmc.Halton(n, scramble=False).random(1 + _N_DRAWS // 2)[1:])
    points = np.vstack([half, -half])
    root = np.linalg.cholesky(points.T @ points / len(points))
    drawn: FloatArray = np.linalg.solve(root, points.T).T
    return drawn


def _drawn(means: FloatArray, covariances: FloatArray) -> FloatArray:
    """Margins of each question, (n, draws, K - 1)."""
    values, vectors = np.linalg.eigh(covariances)
    roots: Any = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    drawn: FloatArray = means[:, None, :] + _draws(means.shape[1]) @ np.swapaxes(roots, 1, 2)
    return drawn


# ---------------------------------------------------------------------------------------------------------------------
# The centre of what is known: the fit, or the same fit with a chosen penalty where labels are few.


# With fewer uncertain labels per parameter, M is too large without a penalty; if none is uncertain, it is arbitrary.
_FEW_UNCERTAIN = 10.0

_ROUGH = 1e-4  # the tolerance of a fit with a penalty


def training_of(fit: Fit) -> Judgements:
    """The training data of a fit that count, in NumPy."""
    if fit.judgements is None:
        raise ValueError(
            "choose_pairs needs the judgements that the learner was fitted to; this learner was copied or loaded "
            "without them. Fit it again."
        )
    found = fit.training().weighted(fit.settings.class_weight).counted()
    return found.with_data(in_numpy(found.data))


def fit_with_prior(fit: Fit, judgements: Judgements) -> Fit:
    """The mode of the posterior: a fit with a penalty is one, and so is, nearly, a fit to many uncertain labels."""
    if fit.alpha > 0 or fit.statistics.uncertain_per_parameter >= _FEW_UNCERTAIN:
        return fit
    flip_rate = fit.settings.flip_rate
    settings = fit.chosen.but(
        alpha="auto", flip_rate=flip_rate, class_weight=None, tol=_ROUGH, max_time=None, device=None
    )
    return replace(refit(judgements, settings), columns=fit.columns, judgements=judgements)


def in_numpy(data: Array) -> Array:
    """Data of any library in NumPy."""
    if is_indexed(data) and is_foreign(data.points):
        return data.with_arrays(to_numpy(data.points), to_numpy(data.index))
    return to_numpy(data) if is_foreign(data) else data


# ---------------------------------------------------------------------------------------------------------------------
# Positive semidefinite matrices only: a normal distribution with the moments of draws that are moved into the cone.


_CHOOSING_CONE_N_DRAWS = 1000
_SEED = 0


def moments_in_cone(mean: FloatArray, covariance: FloatArray, d: int) -> tuple[FloatArray, FloatArray]:
    """The mean and covariance of (packed M, thresholds) once each draw of M is moved to the nearest matrix in the cone.

    Coordinates have unit second moment, so that this adds the change of tr M to squared distances on average.  The
    judgements know the average margin well, and so the thresholds of a draw move with it.
    """
    n = packed.packed_size(d)
    normal = np.random.default_rng(_SEED).standard_normal((_CHOOSING_CONE_N_DRAWS // 2, len(mean)))
    values, vectors = np.linalg.eigh(covariance)
    steps = np.vstack([normal, -normal]) @ (vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)
    draws = mean + steps
    values, vectors = np.linalg.eigh(packed.unpack(draws[:, :n], d))
    inside = (vectors * np.maximum(values, 0.0)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    draws[:, :n] = packed.pack(inside)
    draws[:, n:] = np.maximum(draws[:, n:] + np.sum(np.maximum(-values, 0.0), axis=1, keepdims=True), 0.0)
    return draws.mean(axis=0), np.atleast_2d(np.cov(draws, rowvar=False))


def oriented(basis: FloatArray, values: FloatArray, fourth: FloatArray) -> FloatArray:
    """The same coordinates with the axes and signs that the data give them, so that fixed draws mean the same.

    `fourth` is the second moment of coordinates weighted by their squared length.  Where M is zero, its eigenvectors
    are the axes; a sign is that of the largest moment with an axis before.
    """
    is_null = values <= 0.0
    turn = np.eye(len(values))
    turn[np.ix_(is_null, is_null)] = np.linalg.eigh(fourth[np.ix_(is_null, is_null)])[1]
    moments = turn.T @ fourth @ turn
    for axis in range(1, len(values)):
        before = moments[axis, :axis]
        if before[np.argmax(np.abs(before))] < 0.0:
            turn[:, axis] *= -1.0
            moments[axis] *= -1.0
            moments[:, axis] *= -1.0
    return basis @ turn


# ---------------------------------------------------------------------------------------------------------------------
# What judgements have taught about M and the thresholds: a normal distribution near the fit.


_MOST_COORDINATES = 60  # that M may move in: the covariance has 1,830 lines
_STEP = 1e-4  # of derivatives, in standard deviations of the noise


@dataclass(frozen=True, eq=False)
class Posterior:
    """The mean and covariance of (packed M, thresholds), for M in coordinates y = basis' z.

    In these coordinates M is diagonal at its mean, and the differences of the judgements and of the candidates together
    have unit second moment, so that nothing depends on the units of the data.

    Attributes
    ----------
    basis : array of shape (d, k)
    eigenvalues : array of shape (k,)
        The mean of M.
    cuts : array
        The mean thresholds of the candidates' margins; comparisons have none.
    covariance : array
    factor : array of shape (d, r)
        The mean of M in the units of the data, all coordinates included.
    """

    basis: FloatArray
    eigenvalues: FloatArray
    cuts: FloatArray
    covariance: FloatArray
    factor: FloatArray

    @classmethod
    def of(cls, fit: Fit, candidates: Rows, coordinates: Coordinates) -> Posterior:
        """What the judgements of a fit say of the margins of candidates, for M in the cone."""
        found = cls.around(fit, candidates, coordinates)
        d, n = found.size, packed.packed_size(found.size)
        if coordinates.transform.shape[1] > d:  # what is not here may matter
            return found
        mean, covariance = moments_in_cone(packed.joined(np.diag(found.eigenvalues), found.cuts), found.covariance, d)
        values, vectors = np.linalg.eigh(packed.unpack(mean[:n], d))
        turn = np.eye(len(mean))
        turn[:n, :n] = packed.packed_rotation(vectors[:, ::-1])
        basis, eigenvalues = found.basis @ vectors[:, ::-1], np.maximum(values[::-1], 0.0)
        return cls(basis, eigenvalues, mean[n:], turn.T @ covariance @ turn, basis * np.sqrt(eigenvalues))

    @classmethod
    def around(cls, fit: Fit, candidates: Rows, coordinates: Coordinates) -> Posterior:
        """The normal distribution around a fit (Laplace), in which M may leave the cone."""
        judgements = training_of(fit)
        cuts = np.zeros(0) if isinstance(candidates, LegRows) else np.array(fit.metric.thresholds)
        basis, values = _basis(fit, judgements, coordinates)
        information = _information(fit, judgements, basis)
        precision = information + np.diag(_prior(fit, values, judgements))
        n = packed.packed_size(len(values)) + len(cuts)
        covariance = np.asarray(np.linalg.inv(precision)[:n, :n], dtype=np.float64)
        return cls(basis, values, cuts, covariance, fit.metric.factor)

    def margins(self, rows: Rows) -> FloatArray:
        """The mean margin of each candidate from each threshold; comparisons have one margin."""
        forms = np.asarray(rows.squared_distances(self.factor))
        return forms[:, None] - (self.cuts if len(self.cuts) else 0.0)

    @property
    def size(self) -> int:
        return len(self.eigenvalues)

    @property
    def pooled(self) -> FloatArray:
        """The covariance of packed M and of minus the mean threshold, which is zero where there is none."""
        n = packed.packed_size(self.size)
        pooling = np.zeros((n + 1, len(self.covariance)))
        pooling[:n, :n] = np.eye(n)
        pooling[n, n:] = -1.0 / max(len(self.cuts), 1)
        pooled: FloatArray = pooling @ self.covariance @ pooling.T
        return pooled

    def gradients(self, rows: Rows) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of the form of each row in packed M, block by block."""
        return by_legs(rows, lambda block: packed.form_gradients(block.T @ self.basis))


def common_coordinates(judgements: Judgements, candidates: Rows) -> Coordinates:
    """Coordinates in which the differences of judgements and candidates together have unit second moment."""
    legs, shares = _all_legs(judgements, candidates)
    return find_coordinates(legs, shares, finds_null=False)


def _all_legs(judgements: Judgements, *others: Rows) -> tuple[StackedRows, Array]:
    """The legs of judgements, and of others, with equal shares."""
    legs = StackedRows(*(_legs(rows_of(part.data)) for part in _parts(judgements)), *map(_legs, others))
    return legs, legs.row_array(np.broadcast_to(1.0 / legs.n_rows, legs.n_rows))


def _basis(fit: Fit, judgements: Judgements, coordinates: Coordinates) -> tuple[FloatArray, FloatArray]:
    """The columns of the map to coordinates in which M is diagonal, and its eigenvalues there, largest first."""
    factor = coordinates.from_units(fit.metric.factor)
    if factor is None:
        legs, shares = _all_legs(judgements)
        factor = factor_in_rows(legs.in_coordinates(coordinates), legs, shares, fit.metric.factor)
    vectors, lengths, _ = np.linalg.svd(factor, full_matrices=True)
    values = np.append(lengths**2, np.zeros(len(vectors) - len(lengths)))
    basis = coordinates.transform @ vectors
    if len(values) > _MOST_COORDINATES:
        return _leading(fit, judgements, basis, values)
    return oriented(basis, values, _fourth_moments(judgements, basis)), values


def _fourth_moments(judgements: Judgements, basis: FloatArray) -> FloatArray:
    """The sum of |y|^2 y y' over the legs of the judgements."""
    total = np.zeros((basis.shape[1],) * 2)
    for part in _parts(judgements):
        legs = _legs(rows_of(part.data))
        lengths = legs.row_array(np.asarray(legs.quadratic_forms(basis @ basis.T)))
        total += basis.T @ legs.outer(lengths) @ basis
    return total


def _leading(fit: Fit, judgements: Judgements, basis: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Some of many coordinates: those along which M is largest, then those in which it is most likely to grow."""
    rank = min(int(np.count_nonzero(values > 0.0)), _MOST_COORDINATES)
    null = basis[:, rank:]
    gradient = np.zeros((null.shape[1],) * 2)
    step = _STEP * fit.metric.noise.std
    for part in _parts(judgements):
        squared = fit.metric.measure(part.data)
        above, below = (Scorer.of(fit).score(part, squared + change).losses for change in (step, -step))
        gradient += null.T @ rows_of(part.data).outer(part.weights * (above - below)) @ null
    directions = np.linalg.eigh(gradient)[1][:, : _MOST_COORDINATES - rank]
    return np.hstack([basis[:, :rank], null @ directions]), values[:_MOST_COORDINATES]


def _parts(judgements: Judgements) -> list[Judgements]:
    """Pairs, and the comparisons that are fitted with them."""
    return [judgements] if judgements.comparisons is None else [judgements, judgements.comparisons]


def _legs(rows: Rows) -> BlockRows:
    return rows.legs if isinstance(rows, LegRows) else rows


def _information(fit: Fit, judgements: Judgements, basis: FloatArray) -> FloatArray:
    """The Fisher information of the judgements about (packed M, thresholds, strictness of annotators)."""
    table = table_of(fit, judgements)
    n_matrix, n_cuts = packed.packed_size(basis.shape[1]), len(fit.metric.thresholds)
    n_annotators = 0 if table is None else len(table)
    total = np.zeros((n_matrix + n_cuts + n_annotators,) * 2)
    for part in _parts(judgements):
        is_compared = part.kind is Kind.COMPARISONS
        scale = 1.0 / fit.relative_noise if is_compared else 1.0
        weights = margin_information(fit, part)[1] * part.weights
        for where, along in by_legs(rows_of(part.data), lambda block: packed.form_gradients(block.T @ basis)):
            here = np.zeros((len(along), len(total)))
            here[:, :n_matrix] = scale * along
            if not is_compared and part.annotators is not None:
                here[np.arange(len(along)), n_matrix + n_cuts + part.annotators.codes[where]] = -1.0
            total += _summed(here, weights[..., where], range(0 if is_compared else n_cuts), n_matrix)
    return total


def _summed(along: FloatArray, weights: FloatArray, cuts: range, n_matrix: int) -> FloatArray:
    """The sum over rows of J' W J, for the derivatives J of the margins from each threshold and their information."""
    together = weights.sum(axis=(0, 1))
    total: FloatArray = along.T @ (along * together[:, None])
    for k in cuts:
        crossed = along.T @ weights[k].sum(axis=0)
        total[:, n_matrix + k] -= crossed
        total[n_matrix + k] -= crossed
    for k in cuts:
        total[n_matrix + k, n_matrix : n_matrix + len(cuts)] += weights[k].sum(axis=-1)
    return total


def _prior(fit: Fit, values: FloatArray, judgements: Judgements) -> FloatArray:
    """The precision of the prior of each parameter: entries of M are as large as those of the fit."""
    d = len(values)
    n_matrix = packed.packed_size(d)
    width = np.sqrt(np.sum(values**2) / n_matrix) or fit.metric.noise.std / d
    typical = width * np.sqrt(d * (d + 2.0))  # the error of a squared distance
    prior = [np.full(n_matrix, width**-2.0), np.full(len(fit.metric.thresholds), typical**-2.0)]
    table = table_of(fit, judgements)
    if table is not None:
        prior.append(np.full(len(table), table.width**-2.0))
    return np.concatenate(prior)


# ---------------------------------------------------------------------------------------------------------------------
# A batch of questions, one at a time: what the answers to those before will teach counts as known.


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


# ---------------------------------------------------------------------------------------------------------------------
# A shortlist of very many candidates, from margins and their errors in single precision, block by block.


_N_DIRECTIONS = 16  # of the covariance; along all others it is taken to be the same
_CHOOSING_SCREEN_AT_ONCE = 2048  # candidates whose products stay in cache
_MOST_SKETCHED = 1 << 16  # of which all products are formed
_FARTHEST = 1e30  # stands for numbers beyond single precision

# Gains are looked up: by the margin in units of its error and the noise, and by the logarithm of the error.
_MOST_UNITS, _N_MARGINS, _N_ERRORS = 6.0, 161, 24

_Single = NDArray[np.float32]


def shortlist(posterior: Posterior, data: Array, answers: Answers, most: int, scale: float) -> IndexArray:
    """The numbers of the candidates that seem to teach most, in their order; `scale` is that of comparisons."""
    kept = np.arange(int(data.shape[0]))
    for make, n_kept in ((_Rough.of, max(_MOST_SKETCHED, most)), (_Sketch.of, most)):
        if len(kept) > n_kept:
            rows = rows_of(take_rows(data, kept) if len(kept) < len(data) else data)
            rows = rows.with_scale(scale) if isinstance(rows, LegRows) else rows
            with np.errstate(over="ignore", invalid="ignore"):  # beyond the range of single precision
                forms, variances = _estimated(make(posterior), posterior, rows)
            cuts = posterior.cuts if len(posterior.cuts) else np.zeros(1)
            gains = _looked_up(answers, cuts, forms, variances)
            kept = kept[np.sort(_select(gains, forms, variances, n_kept))]
    return kept


def _select(gains: _Single, forms: _Single, variances: _Single, most: int) -> IndexArray:
    """The places of the largest gains; if most of these are the same questions again, others come first."""
    n_seen = most
    while True:
        best = np.argpartition(-gains, n_seen - 1)[:n_seen]
        firsts = _firsts(forms[best], variances[best])
        if 2 * len(firsts) >= most or n_seen == len(gains):
            break
        n_seen = min(4 * n_seen, len(gains))
    is_first = np.zeros(n_seen, dtype=bool)
    is_first[firsts] = True
    order = np.lexsort((-gains[best], ~is_first))
    return best[order[:most]]


def _firsts(forms: _Single, variances: _Single) -> IndexArray:
    """The places of candidates that differ, to five digits, from all before them."""
    digits = [np.round(each / np.maximum(np.max(np.abs(each)), 1e-30), 5) for each in (forms, variances)]
    return np.unique(digits[0] + 1j * digits[1], return_index=True)[1]


def _estimated(estimate: _Rough | _Sketch, posterior: Posterior, rows: Rows) -> tuple[_Single, _Single]:
    """The form of each candidate, and the variance of its margin."""
    found = np.empty((2, rows.n_rows), dtype=np.float32)
    for where, legs in _projected(rows, posterior.basis):
        for part in slices(where.stop - where.start, _CHOOSING_SCREEN_AT_ONCE):
            here = [(np.float32(factor), np.ascontiguousarray(leg[:, part])) for factor, leg in legs]
            place = slice(where.start + part.start, where.start + part.stop)
            found[0, place], found[1, place] = estimate(here)
    forms, variances = np.nan_to_num(found, copy=False, nan=_FARTHEST, posinf=_FARTHEST, neginf=-_FARTHEST)
    return forms, np.maximum(variances, np.float32(0.0), out=variances)


@dataclass(frozen=True, eq=False)
class _Rough:
    """Variances from the terms of the covariance that are even in each coordinate: squares of coordinates suffice."""

    eigenvalues: _Single
    among_squares: _Single
    of_products: _Single
    with_cut: _Single
    of_cut: np.float32

    @classmethod
    def of(cls, posterior: Posterior) -> _Rough:
        d, covariance = posterior.size, posterior.pooled
        of_products = packed.unpack(np.diag(covariance)[:-1] * packed.weights(d), d)
        squares = np.cumsum([0, *range(d, 1, -1)])  # where the packed squares are
        np.fill_diagonal(of_products, 0.0)
        return cls(
            posterior.eigenvalues.astype(np.float32),
            covariance[np.ix_(squares, squares)].astype(np.float32),
            of_products.astype(np.float32),
            covariance[squares, -1].astype(np.float32),
            np.float32(covariance[-1, -1]),
        )

    def __call__(self, legs: list[tuple[np.float32, _Single]]) -> tuple[_Single, _Single]:
        squares: Any = sum(factor * leg * leg for factor, leg in legs)
        is_one = len(legs) == 1
        variances = _forms(self.among_squares + self.of_products if is_one else self.among_squares, squares)
        for one, left in () if is_one else legs:
            for other, right in legs:
                variances += one * other * _forms(self.of_products, left * right)
        variances += np.float32(2.0) * (self.with_cut @ squares) + self.of_cut
        return self.eigenvalues @ squares, variances


def _forms(matrix: _Single, columns: _Single) -> _Single:
    """X'Sx for each column x."""
    forms: _Single = np.einsum("ij,ij->j", matrix @ columns, columns)
    return forms


@dataclass(frozen=True, eq=False)
class _Sketch:
    """The covariance of (packed M, the mean threshold) as a multiple of the identity, and more along some directions.

    `lines` are those directions, of a length whose square is what there is more, or less if the sign is negative; the
    first line is M itself.  `offsets` are their last entries.
    """

    lines: _Single
    offsets: _Single
    signs: _Single
    rest: float

    @classmethod
    def of(cls, posterior: Posterior) -> _Sketch:
        values, vectors = np.linalg.eigh(posterior.pooled)
        order = np.argsort(-np.abs(values - np.median(values)))
        leading, others = order[:_N_DIRECTIONS], order[_N_DIRECTIONS:]
        rest = float(np.mean(values[others])) if len(others) else 0.0
        more = values[leading] - rest
        directions = vectors[:, leading] * np.sqrt(np.abs(more))
        lines = np.column_stack([packed.pack(np.diag(posterior.eigenvalues)), directions[:-1]]).T
        return cls(
            np.ascontiguousarray(lines * packed.weights(posterior.size), dtype=np.float32),
            directions[-1, :, None].astype(np.float32),
            np.sign(more).astype(np.float32),
            rest,
        )

    def __call__(self, legs: list[tuple[np.float32, _Single]]) -> tuple[_Single, _Single]:
        found: Any = 0.0
        products = np.empty((self.lines.shape[1], legs[0][1].shape[1]), dtype=np.float32)
        for factor, leg in legs:
            packed.fill_products(leg, factor, out=products)
            found = found + self.lines @ products
        along = found[1:] + self.offsets
        size = sum(one * other * np.einsum("ij,ij->j", left, right) ** 2 for one, left in legs for other, right in legs)
        variances = self.signs @ (along * along) + np.float32(self.rest) * (size + np.float32(1.0))
        return found[0], variances


def _projected(rows: Rows, basis: FloatArray) -> Iterator[tuple[slice, list[tuple[float, _Single]]]]:
    """The legs of blocks of candidates in coordinates, in single precision."""
    if isinstance(rows, BlockRows):
        for where, block in rows.projected_blocks(basis):
            yield where, [(1.0, to_numpy(block).astype(np.float32))]
        return
    for where, legs in leg_blocks(rows):
        yield where, [(factor, (basis.T @ to_numpy(block)).astype(np.float32)) for factor, block in legs]


def _looked_up(answers: Answers, cuts: FloatArray, forms: _Single, variances: _Single) -> _Single:
    """The gain of each candidate, as if all thresholds had the same error."""
    low, high = (np.log(max(float(value), 1e-30)) for value in (variances.min(), variances.max()))
    errors = np.linspace(low, max(high, low + 1e-6), _N_ERRORS)
    units = np.linspace(-_MOST_UNITS, _MOST_UNITS, _N_MARGINS)
    middle, noise = 0.5 * float(cuts[0] + cuts[-1]), answers.noise.std**2 + 0.25 * float(cuts[-1] - cuts[0]) ** 2
    spread = np.repeat(np.exp(errors), _N_MARGINS)
    means = (middle + np.tile(units, _N_ERRORS) * np.sqrt(noise + spread))[:, None] - cuts
    table = answers.gains(means, np.broadcast_to(spread[:, None, None], (len(means), len(cuts), len(cuts))))
    table = table.astype(np.float32)
    gains = np.empty(len(forms), dtype=np.float32)
    per_unit, per_error = (_N_MARGINS - 1) / (2.0 * _MOST_UNITS), (_N_ERRORS - 1) / (errors[-1] - errors[0])
    for where in slices(len(forms), 1 << 16):
        variance = np.maximum(variances[where], np.float32(1e-30))
        unit = (forms[where] - np.float32(middle)) / np.sqrt(variance + np.float32(noise))
        place = np.clip((unit + np.float32(_MOST_UNITS)) * np.float32(per_unit) + 0.5, 0, _N_MARGINS - 1)
        line = np.clip((np.log(variance) - np.float32(errors[0])) * np.float32(per_error) + 0.5, 0, _N_ERRORS - 1)
        gains[where] = table[line.astype(np.int32) * _N_MARGINS + place.astype(np.int32)]
    return gains


_METHODS = ("information", "uncertainty", "random")

# Of more candidates than this, those that seem to teach most are looked at; levels take longer.
_MOST, _MOST_OF_LEVELS = 8192, 2048

# People slip, whatever the distance: a fit may not know it yet, and a choice that trusts every answer goes astray.
_SLIPS = 0.05


def choose_pairs(
    learner: Fit | Fitted,
    candidates: Any,
    n: int,
    *,
    method: str = "information",
    random_state: Any = None,
    return_utilities: bool = False,
) -> Any:
    """Choose the pairs, or comparisons, to judge next: those whose answers teach most about M and the thresholds.

    Parameters
    ----------
    learner : LinearMetricLearner, OrdinalMetricLearner or ComparisonMetricLearner
        A fitted learner, with its training data.
    candidates : array of shape (m, d) or (m, 2, d), or Tuples
        Differences or pairs that may be judged next, as `learner.predict` takes them; comparisons (m, 3, d) or
        (m, 4, d) for a learner of comparisons, and for one that was fitted to pairs and comparisons.
    n : int
        How many to choose.
    method : {"information", "uncertainty", "random"}, default="information"
        "information": the largest mutual information between the answer and M and the thresholds (BALD), in turn:
        the expected information of those chosen so far counts as known.  "uncertainty": the largest entropy of
        the answer.  "random": all are equally likely.
    random_state : int, RandomState or None, default=None
        Seed of "random"; the other methods draw nothing.
    return_utilities : bool, default=False
        Whether to return the utilities as well.

    Returns
    -------
    indices : array of int, of shape (n,)
        The row numbers of the chosen candidates, best first, without repetition.
    utilities : array of shape (n, m)
        If `return_utilities`: the utility of each candidate before each choice, in nats, and NaN for candidates
        that were chosen before.

    Notes
    -----
    If nearly half of the answers are wrong, random questions teach more than chosen ones.

    Examples
    --------
    >>> import closefar as cf
    >>> data = cf.datasets.make_pairs(1000, 4, wrong_share=0.1, random_state=0)
    >>> learner = cf.LinearMetricLearner().fit(data.pairs[:100], data.labels[:100])
    >>> cf.choose_pairs(learner, data.pairs[100:], 5).shape
    (5,)
    """
    fit = Fit.of(learner)
    data = _read(fit, candidates)
    n_candidates = int(data.shape[0])
    n = _checked(n, n_candidates, method)
    if method == "random":
        return _largest(check_random_state(random_state).uniform(size=n_candidates), n, return_utilities)
    if method == "uncertainty":
        rows, answers = _asked(fit, data)
        means = np.asarray(rows.squared_distances(fit.metric.factor))[:, None] - _cuts(fit, rows)
        return _largest(answers.entropies(means), n, return_utilities, np.min(np.abs(means), axis=1))
    judgements = training_of(fit)
    coordinates = common_coordinates(judgements, rows_of(data))
    fit = fit_with_prior(fit, judgements)
    rows, answers = _asked(fit, data, slips=_SLIPS)
    posterior = Posterior.of(fit, rows, coordinates)
    most = max(_MOST if answers.n_levels == 2 else _MOST_OF_LEVELS, n)
    kept = np.arange(n_candidates)
    if n_candidates > most:
        kept = shortlist(posterior, data, answers, most, 1.0 / fit.relative_noise)
        rows, _ = _asked(fit, take_rows(data, kept))
    batch = choose_batch(posterior, rows, posterior.margins(rows), answers, n, with_utilities=return_utilities)
    if not return_utilities:
        return kept[batch.chosen]
    utilities = np.full((n, n_candidates), np.nan)
    utilities[:, kept] = batch.utilities
    return kept[batch.chosen], utilities


def _read(fit: Fit, candidates: Any) -> Array:
    """Validate candidates, which come to NumPy: pairs, or comparisons if the fit has learned from some."""
    if fit.metric.origin is not None:
        raise ValueError(
            "choose_pairs needs a metric of pairs or comparisons; got one with fit_origin=True, which judges single "
            "points. Leave fit_origin out."
        )
    shape = tuple(getattr(candidates, "shape", ()))
    are_compared = len(shape) == 3 and shape[1] in (3, 4)
    if fit.kind is Kind.COMPARISONS or (are_compared and fit.comparison_noise is not None):
        data = check_comparisons(fit.columns, candidates, fitting=False)
    else:
        data = check_pairs(fit.columns, candidates, fitting=False)
    return in_numpy(data)


def _checked(n: Any, n_candidates: int, method: Any) -> int:
    if method not in _METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, _METHODS))}; got {method!r}.")
    if not isinstance(n, numbers.Integral) or isinstance(n, bool) or not 1 <= int(n) <= n_candidates:
        raise ValueError(
            f"n must be a whole number from 1 to the number of candidates, {n_candidates:,}; got {n!r}. Choose fewer, "
            "or pass more candidates."
        )
    return int(n)


def _asked(fit: Fit, data: Array, slips: float = 0.0) -> tuple[Rows, Answers]:
    """The rows of candidates, and what is answered, by people who slip at least so often."""
    rows, metric = rows_of(data), fit.metric
    if isinstance(rows, LegRows):
        rates = _at_least(metric.compared_flip_rate, slips)
        return rows.with_scale(1.0 / fit.relative_noise), Answers(metric.noise, rates)
    return rows, Answers(metric.noise, _at_least(metric.flip_rate, slips), metric.n_levels)


def _at_least(rate: FlipRate, slips: float) -> FlipRate:
    if isinstance(rate, tuple):
        return max(rate[0], slips), max(rate[1], slips)
    return max(rate, slips)


def _cuts(fit: Fit, rows: Rows) -> FloatArray:
    """What margins are measured from: nothing, of comparisons."""
    return np.zeros(1) if isinstance(rows, LegRows) else np.array(fit.metric.thresholds)


def _largest(utilities: FloatArray, n: int, with_utilities: bool, then: FloatArray | None = None) -> Any:
    """The n largest utilities, largest first; of those that are equal, the smallest of `then`."""
    least = np.partition(utilities, len(utilities) - n)[len(utilities) - n]
    best = np.flatnonzero(utilities >= least)
    keys = (-utilities[best],) if then is None else (then[best], -utilities[best])
    chosen: IndexArray = best[np.lexsort(keys)][:n]
    if not with_utilities:
        return chosen
    table = np.tile(utilities, (n, 1))
    for place in range(1, n):
        table[place, chosen[:place]] = np.nan
    return chosen, table
