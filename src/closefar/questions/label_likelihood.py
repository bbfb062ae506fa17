"""The likelihood of labels over all symmetric M, without constraints: the basis of standard errors.

Parameters are one vector: M in unit-free coordinates, packed, then tau and, where it was
estimated, the flip rate q.  Neither M >= 0 nor tau >= 0 is required: without these constraints
the likelihood has an interior optimum, even if that of the fit lies on the boundary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from closefar import packed
from closefar.arrays import FloatArray, IndexArray, to_numpy
from closefar.judgements import Judgements
from closefar.noise import Noise, with_flips
from closefar.questions.label_model import LabelModel
from closefar.questions.optimum import Optimum
from closefar.questions.thinning import representatives
from closefar.rows import BlockRows

__all__ = ["LabelLikelihood", "LabelTerms"]

# Products of columns are kept up to this many numbers, and beyond that recomputed in each pass.
_MOST_KEPT = 10_000_000

_MOST_ROWS = 100_000
_ROWS_PER_PARAMETER = 200


@dataclass(frozen=True)
class LabelTerms:
    """-log P(label) of each row and its derivatives in the margin and in q, one number per row each."""

    loss: FloatArray
    margin_gradient: FloatArray
    curvature: FloatArray
    flip_gradient: FloatArray
    cross: FloatArray
    flip_curvature: FloatArray

    def take(self, rows: IndexArray) -> LabelTerms:
        """Those of these rows."""
        return LabelTerms(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class LabelLikelihood:
    """The mean of -log P(label) over rows of these shares, as a function of (packed M, tau) or (packed M, tau, q).

    `flip_rate` is q if it is known, and None if it is a parameter.
    """

    rows: BlockRows
    signs: FloatArray
    shares: FloatArray
    noise: Noise
    flip_rate: float | None

    @classmethod
    def of(cls, optimum: Optimum, judgements: Judgements, noise: Noise, flip_rate: float | None) -> LabelLikelihood:
        """The likelihood of the judgements that the optimum was fitted to."""
        return cls(optimum.rows, judgements.signs, judgements.shares, noise, flip_rate)

    def thinned(self, repeats: FloatArray) -> tuple[LabelLikelihood, FloatArray]:
        """The likelihood of about 100,000 rows that represent all, and the observations that each represents.

        This gives second derivatives and sums of squared scores to within about one percent.
        """
        most = max(_MOST_ROWS, _ROWS_PER_PARAMETER * self.n_on_matrix)
        if self.rows.n_rows <= most:
            return self, repeats
        squares = [np.mean(to_numpy(block) ** 2, axis=0) for _, block in self.rows.blocks()]
        chosen, number = representatives(self.shares, np.concatenate(squares), most)
        shares = number * self.shares[chosen]
        return replace(self.take(chosen), shares=shares), number * repeats[chosen]

    def take(self, rows: IndexArray) -> LabelLikelihood:
        """The part of the mean that these rows are."""
        return replace(self, rows=self.rows.take_rows(rows), signs=self.signs[rows], shares=self.shares[rows])

    @property
    def n_on_matrix(self) -> int:
        """The number of parameters of M."""
        return packed.packed_size(self.rows.n_columns)

    @property
    def has_flip_parameter(self) -> bool:
        return self.flip_rate is None

    def margins(self, parameters: FloatArray) -> FloatArray:
        on_margin = parameters[: self.n_on_matrix + 1]
        return np.concatenate([slopes @ on_margin for _, slopes in self.slopes()])

    def slopes(self) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of each margin in (packed M, tau), block by block."""
        return iter(self._kept) if self._kept is not None else self._computed()

    @cached_property
    def _kept(self) -> list[tuple[slice, FloatArray]] | None:
        is_small = self.rows.n_rows * (self.n_on_matrix + 1) <= _MOST_KEPT
        return list(self._computed()) if is_small else None

    def _computed(self) -> Iterator[tuple[slice, FloatArray]]:
        for where, block in self.rows.blocks():
            yield where, packed.margin_gradients(to_numpy(block))

    def rate(self, parameters: FloatArray) -> float:
        return float(parameters[-1]) if self.flip_rate is None else self.flip_rate

    def terms(self, parameters: FloatArray) -> LabelTerms:
        rate, margin = self.rate(parameters), self.margins(parameters)
        loss, slope, curvature = self.noise.derivatives(self.signs * margin, 2)
        nothing = np.zeros_like(loss)
        if rate == 0.0 and not self.has_flip_parameter:
            return LabelTerms(loss, self.signs * slope, curvature, nothing, nothing, nothing)
        # P = q + (1 - 2q) Phi and its derivatives over P, from those of -log Phi.
        right = np.exp(-loss)
        share = right / with_flips(right, rate)
        first = -(1.0 - 2.0 * rate) * slope * share
        second = (1.0 - 2.0 * rate) * (slope**2 - curvature) * share
        in_rate = (1.0 - 2.0 * right) / with_flips(right, rate)
        mixed = 2.0 * slope * share
        return LabelTerms(
            loss=-np.log(with_flips(right, rate)),
            margin_gradient=-self.signs * first,
            curvature=first**2 - second,
            flip_gradient=-in_rate,
            cross=self.signs * (first * in_rate - mixed),
            flip_curvature=in_rate**2,
        )

    def gradient(self, terms: LabelTerms, weights: FloatArray) -> FloatArray:
        on_margin = sum(slopes.T @ (weights * terms.margin_gradient)[where] for where, slopes in self.slopes())
        return np.append(on_margin, weights @ terms.flip_gradient) if self.has_flip_parameter else np.asarray(on_margin)

    def information(self, parameters: FloatArray, weights: FloatArray, terms: LabelTerms | None = None) -> FloatArray:
        """The second derivative or, if that is not positive definite, as flips can make it, the Fisher information."""
        terms = self.terms(parameters) if terms is None else terms
        observed = self._sums(weights * terms.curvature, weights * terms.cross, float(weights @ terms.flip_curvature))
        if self.rate(parameters) == 0.0 or np.linalg.eigvalsh(_scaled(observed))[0] > 0.0:
            return observed
        model = LabelModel.at(self.margins(parameters), self.noise, self.rate(parameters))
        over = weights / model.variance
        return self._sums(
            over * model.slope**2, over * model.slope * model.flip_slope, float(over @ model.flip_slope**2)
        )

    def _sums(self, on_margin: FloatArray, cross: FloatArray, on_rate: float) -> FloatArray:
        p = self.n_on_matrix + 1
        sums = np.zeros((p, p))
        border = np.zeros(p)
        for where, slopes in self.slopes():
            sums += slopes.T @ (slopes * on_margin[where, None])
            border += slopes.T @ cross[where]
        if not self.has_flip_parameter:
            return sums
        return np.block([[sums, border[:, None]], [border[None], np.array([[on_rate]])]])

    def scores(self, terms: LabelTerms) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of each row's part of the mean loss in the parameters, block by block."""
        margin_gradient, flip_gradient = self.shares * terms.margin_gradient, self.shares * terms.flip_gradient
        for where, slopes in self.slopes():
            scores = slopes * margin_gradient[where, None]
            yield where, np.column_stack([scores, flip_gradient[where]]) if self.has_flip_parameter else scores


def _scaled(matrix: FloatArray) -> FloatArray:
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    scaled: FloatArray = matrix / np.outer(scale, scale)
    return scaled
