"""A shortlist of very many candidates, from margins and their errors in single precision, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar import packed
from closefar.arrays import Array, FloatArray, IndexArray, take_rows, to_numpy
from closefar.questions.choosing_answers import Answers
from closefar.questions.choosing_posterior import Posterior
from closefar.questions.legs import leg_blocks
from closefar.rows import BlockRows, LegRows, Rows, rows_of, slices

__all__ = ["shortlist"]

_N_DIRECTIONS = 16  # of the covariance; along all others it is taken to be the same
_AT_ONCE = 2048  # candidates whose products stay in cache
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
        for part in slices(where.stop - where.start, _AT_ONCE):
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
