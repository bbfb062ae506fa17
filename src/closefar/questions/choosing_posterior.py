"""What judgements have taught about M and the thresholds: a normal distribution near the fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from closefar import packed
from closefar.arrays import Array, FloatArray
from closefar.fitting import Fit, Scorer
from closefar.judgements import Judgements, Kind
from closefar.questions.annotating import table_of
from closefar.questions.choosing_cone import moments_in_cone, oriented
from closefar.questions.choosing_mode import training_of
from closefar.questions.legs import by_legs
from closefar.questions.margin_errors import margin_information
from closefar.rows import BlockRows, Coordinates, LegRows, Rows, StackedRows, factor_in_rows, find_coordinates, rows_of

__all__ = ["Posterior", "common_coordinates"]

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
