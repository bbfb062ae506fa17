"""The likelihood of judgements near a fit: what tests, standard errors and choices need to know of it.

That is the probability of each judgement with its derivatives, the moves of M that keep its rank, and the errors of
margins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from closefar import packed
from closefar.arrays import TINY, Array, BoolArray, FloatArray, IndexArray, to_numpy
from closefar.fitting import Fit, answers_of
from closefar.judgements import Judgements, Kind
from closefar.noise import FlipRate, Noise, flip_mixture
from closefar.rows import BlockRows, Rows, factor_in_rows, judged_rows, rows_of, unit_free
from closefar.solve import Answers, interval_terms, mixed_terms
from closefar.solve.likelihood import IntervalTerms

# ---------------------------------------------------------------------------------------------------------------------
# Judgements that are read for a question, and their rows.


def read_for(
    fit: Fit, X: Any, y: Any = None, sample_weight: Any = None, annotators: Any = None, comparisons: Any = None
) -> Judgements:
    """Validate judgements for a question, or return those of training; a fit with annotators needs theirs."""
    if X is None:
        if annotators is not None or comparisons is not None:
            raise ValueError("annotators and comparisons must be given with their pairs; got no pairs. Pass them, too.")
        return fit.training()
    if isinstance(X, Judgements):
        return X
    if fit.kind is Kind.COMPARISONS and (annotators is not None or comparisons is not None):
        raise ValueError("annotators and comparisons belong to pairs; got them with comparisons alone. Leave them out.")
    if fit.annotators is not None and annotators is None:
        raise ValueError(
            "this fit has annotators, so their ids must be given with pairs and labels; got none. Pass annotators=ids."
        )
    if fit.annotators is None and annotators is not None:
        raise ValueError("this fit has no annotators; got annotators. Leave them out, or fit with annotators=ids.")
    return fit.read(X, y, sample_weight, annotators=annotators, comparisons=comparisons)


def rows_near(fit: Fit, judgements: Judgements) -> Rows:
    """The rows of judgements, from the origin of a fit, and with its noise of comparisons."""
    if fit.metric.origin is None:
        return judged_rows(judgements, fit.relative_noise)
    return rows_of(judgements.data, fit.metric.origin)


def by_legs(rows: Rows, function: Callable[[FloatArray], FloatArray]) -> Iterator[tuple[slice, FloatArray]]:
    """A function of the differences of blocks, with one row of numbers for each, added up over the legs of judgements.

    A pair has one leg, and a comparison two; the legs of a block are columns.
    """
    for where, block in rows.legs.blocks():
        found = function(to_numpy(block))
        if where.start >= rows.n_pairs:  # blocks hold pairs or comparisons, and both legs of each
            first, last = ((end + rows.n_pairs) // 2 for end in (where.start, where.stop))
            where, found = slice(first, last), combined_legs(found, rows)
        yield where, found


def combined_legs(values: FloatArray, rows: Rows) -> FloatArray:
    """Numbers of the legs of comparisons as those of the comparisons; others, where there are none, as they are."""
    return values if isinstance(rows, BlockRows) else rows.scale * (values[1::2] - values[0::2])


# ---------------------------------------------------------------------------------------------------------------------
# How M and thresholds can move: in all ways or, while M keeps its rank, in those behind tests and sample sizes.
#
# A fitted M of rank r can move in the tangent space of the matrices of that rank; the optimum is stationary there even
# where M has zero eigenvalues. In coordinates y in which M is diagonal, range first, those moves are the products
# y_i y_j with i <= r.


# With more moves than this, only the eigenvalues of M and the threshold move: the inverse of a matrix of this size
# takes about a second.
MOST_MOVES = 1500


@dataclass(frozen=True, eq=False)
class Moves:
    """Coordinates y = basis' z, and the entries (left, right) of M there that may move.

    Attributes
    ----------
    basis : array of shape (d, k)
    left, right : arrays
    values : array
        The eigenvalues of a metric in coordinates in which it is diagonal, range first.
    origin : array, optional
        That of the metric, from which z is measured; one more coordinate is then constant.
    scale : float
        What margins of comparisons are multiplied by.
    is_partial : bool
        Whether only eigenvalues may move, since there are too many moves.
    """

    basis: FloatArray
    left: IndexArray
    right: IndexArray
    values: FloatArray
    origin: FloatArray | None = None
    scale: float = 1.0
    is_partial: bool = False

    @classmethod
    def within(cls, basis: FloatArray, values: FloatArray | None = None) -> Moves:
        """All moves in these coordinates."""
        values = np.zeros(basis.shape[1]) if values is None else values
        return cls(basis, *np.triu_indices(basis.shape[1]), values)

    @classmethod
    def of(cls, fit: Fit, judgements: Judgements, *, keeps_rank: bool = True, is_complete: bool = False) -> Moves:
        """Those of the metric of a fit, in coordinates in which the judgements have unit second moment.

        The metric keeps its rank, or moves within all quadratic forms.  If the moves need not be complete, there are
        few of them.
        """
        metric, source = fit.metric, rows_near(fit, judgements)
        signs, shares = judgements.signs_in(source), judgements.shares_in(source)
        rows, coordinates = unit_free(source, shares, signs=lambda: signs, finds_null=False)
        vectors, lengths, _ = np.linalg.svd(factor_in_rows(rows, source, shares, metric.factor), full_matrices=True)
        size = len(vectors) + (metric.origin is not None)
        left, right = np.triu_indices(size)
        kept = left < (metric.rank if keeps_rank else size)
        is_partial = not is_complete and int(kept.sum()) > MOST_MOVES
        if is_partial:
            kept &= left == right
        values = np.append(lengths**2, np.zeros(size - len(lengths)))
        basis, scale = coordinates.transform @ vectors, 1.0 / fit.relative_noise
        return cls(basis, left[kept], right[kept], values, metric.origin, scale, is_partial)

    def __len__(self) -> int:
        return len(self.left)

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def matrix(self) -> FloatArray:
        """The metric: the entries that may move, packed."""
        return np.where(self.left == self.right, self.values[self.left], 0.0)

    def rows(self, data: Array) -> Rows:
        """The rows that margins are of, but for thresholds."""
        return rows_of(data, self.origin).with_scale(self.scale)

    def coordinates(self, block: Array) -> FloatArray:
        """Those of the columns z of a block, a row each."""
        y: FloatArray = to_numpy(block).T @ self.basis
        return y if self.origin is None else np.column_stack([y, np.ones(len(y))])

    def gradients(self, block: Array) -> FloatArray:
        """The derivative of z'Mz along each move, of length one, for the columns z of a block."""
        y = np.ascontiguousarray(self.coordinates(block).T)
        along = y[self.left]  # contiguous for each move
        along *= y[self.right]
        along[self.left != self.right] *= np.sqrt(2.0)
        return along.T

    def slopes(
        self, rows: Rows, n_thresholds: int, who: IndexArray | None = None, n_annotators: int = 0
    ) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of each squared distance less strictness along each move, and in thresholds and strictness.

        That is zero in the thresholds.  `who` is the annotator of each row; one without has a number beyond theirs.
        """
        for where, along in by_legs(rows, self.gradients):
            found = np.zeros((len(along), len(self) + n_thresholds + n_annotators))
            found[:, : len(self)] = along
            if who is not None:
                found[:, len(self) + n_thresholds :] -= who[where, None] == np.arange(n_annotators)
            yield where, found


@dataclass(frozen=True)
class RankMoves:
    """The moves that keep the rank of M, as columns of all parameters, and the curvature term of the information.

    M has these eigenvalues, largest first, and eigenvectors.  To second order, a move U between range and null space
    also moves M along U' M^+ U, which raises the loss by the gradient on the null space or, if the rank is fixed, may
    lower it.
    """

    rank: int
    basis: FloatArray
    curvature: FloatArray
    values: FloatArray
    vectors: FloatArray

    @classmethod
    def at(cls, matrix: FloatArray, gradient: FloatArray, n_more: int, rank: int | None = None) -> RankMoves:
        """The moves at a matrix; `gradient` is dR/dM there, and `n_more` is the number of parameters besides M.

        Without a rank, it is that of the matrix.
        """
        values, vectors = np.linalg.eigh(matrix)
        order = np.argsort(-values, kind="stable")
        values, vectors = values[order], np.ascontiguousarray(vectors[:, order])
        rank = int(np.sum(values > _ZERO_EIGENVALUE * max(values[0], 0.0))) if rank is None else rank
        left, right = np.triu_indices(len(values))
        kept, null = left < rank, vectors[:, rank:]
        multipliers, rotation = np.linalg.eigh(null.T @ gradient @ null)
        costs = np.append(np.zeros(rank), multipliers)
        rotated = packed.packed_rotation(np.hstack([vectors[:, :rank], null @ rotation]))[:, kept]
        basis = np.zeros((len(kept) + n_more, rotated.shape[1] + n_more))
        basis[: len(kept), : rotated.shape[1]] = rotated
        basis[len(kept) :, rotated.shape[1] :] = np.eye(n_more)
        curvature = np.append(costs[right[kept]] / values[left[kept]], np.zeros(n_more))
        return cls(rank, basis, curvature, values, vectors)

    def information(self, hessian: FloatArray) -> FloatArray:
        """The second derivative along the moves."""
        return self.basis.T @ hessian @ self.basis + np.diag(self.curvature)


# Eigenvalues of M, in unit-free coordinates, that count as zero beside the largest.
_ZERO_EIGENVALUE = 1e-8


def scaled_eigh(matrix: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The eigenvalues and eigenvectors of a symmetric matrix with its diagonal scaled to one, and the scale."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    return values, vectors, scale


def pseudo_inverse(matrix: FloatArray, tol: float = 1e-10) -> FloatArray:
    """The inverse of a positive semidefinite matrix on its range, determined with its diagonal scaled to one."""
    values, vectors, scale = scaled_eigh(matrix)
    keep = values > tol * values[-1]
    return np.asarray((vectors[:, keep] / values[keep]) @ vectors[:, keep].T / np.outer(scale, scale))


# ---------------------------------------------------------------------------------------------------------------------
# The likelihood of judgements over all symmetric M, without constraints: the basis of standard errors.
#
# Parameters are one vector: M by its moves, then the thresholds of levels, the strictness of each annotator and, where
# they were estimated, the flip rates. Neither M >= 0 nor tau >= 0 is required: without these constraints the
# likelihood has an interior optimum, even if that of the fit lies on the boundary.


# Products of columns are kept up to this many numbers, 80 MB, and beyond that recomputed in each pass.
_MOST_KEPT = 10_000_000


class LabelTerms(NamedTuple):
    """-log P(judgement) of each row and its derivatives, one number per row each, and one column per flip rate.

    Derivatives are those in the lower and the upper end of its interval, and `on_rates` in the flip rates; `low_rates`
    and `up_rates` are in both.  The second ones in two flip rates are products of `on_rates`.
    """

    loss: FloatArray
    low: FloatArray
    up: FloatArray
    low_low: FloatArray
    low_up: FloatArray
    up_up: FloatArray
    on_rates: FloatArray
    low_rates: FloatArray
    up_rates: FloatArray


@dataclass(frozen=True, eq=False)
class LabelLikelihood:
    """The mean of -log P(judgement) over judgements of these shares, as a function of the parameters.

    Attributes
    ----------
    rows : Rows
    moves : Moves
        Those of M that are parameters.
    answers : Answers
    codes : array
        The answer that each judgement gives, attached comparisons last.
    shares : array
    noise : Noise
    rates : tuple
        The flip rate, or those of close and of far, numbers or arrays with one for each row; empty if they are
        parameters.
    n_rates : int
        How many of them are parameters.
    who : array, optional
        The annotator of each judgement; R for a comparison, which has none.
    n_annotators : int
        R.
    precision : float
        That of the normal prior of each strictness, divided by the number of observations.
    beyond : array
        What is added to the squared distances.
    """

    rows: Rows
    moves: Moves
    answers: Answers
    codes: IndexArray
    shares: FloatArray
    noise: Noise
    rates: tuple[Any, ...]
    n_rates: int = 0
    who: IndexArray | None = None
    n_annotators: int = 0
    precision: float = 0.0
    beyond: FloatArray | float = 0.0

    @classmethod
    def of(
        cls, fit: Fit, judgements: Judgements, moves: Moves, *, estimates: bool = False
    ) -> tuple[LabelLikelihood, FloatArray]:
        """The likelihood of judgements near a fit, and the parameters of the fit.

        If it `estimates`, flip rates that were estimated are parameters, too, unless one is zero: it is on the
        boundary.
        """
        metric, given, table = fit.metric, judgements.annotators, fit.annotators
        codes = np.asarray(judgements.all_codes, dtype=np.intp)
        compares = judgements.kind is Kind.COMPARISONS
        parameters: list[Any] = [moves.matrix, () if compares else metric.thresholds]
        rates: Any = tuple(np.ravel(metric.compared_flip_rate if compares else metric.flip_rate).tolist())
        n_rates = len(rates) * int(estimates and fit.known.estimates_flips and min(rates) > 0.0)
        who, n_annotators, precision = None, 0, 0.0
        if given is not None and table is not None:
            n_annotators, precision = len(table), 1.0 / (table.width**2 * judgements.total_weight)
            who = np.append(given.codes, np.full(len(codes) - len(given), n_annotators))
            parameters.append(table.strictness)
            if table.flip_rates is not None:
                rates, n_rates = (np.append(table.flip_rates, metric.one_flip_rate)[who],), 0
        if n_rates:
            parameters.append(rates)
            rates = ()
        likelihood = cls(
            rows_near(fit, judgements),
            moves,
            answers_of(judgements),
            codes,
            judgements.all_shares,
            metric.noise,
            rates,
            n_rates,
            who,
            n_annotators,
            precision,
        )
        return likelihood, np.concatenate(parameters)

    @property
    def n_on_margin(self) -> int:
        """The number of parameters of M and of thresholds."""
        return len(self.moves) + self.answers.n_thresholds + self.n_annotators

    @property
    def cuts(self) -> slice:
        """The parameters that are thresholds of levels."""
        return slice(len(self.moves), len(self.moves) + self.answers.n_thresholds)

    @cached_property
    def precisions(self) -> FloatArray:
        """The second derivative of the prior in each parameter."""
        found = np.zeros(self.n_on_margin + self.n_rates)
        found[self.cuts.stop : self.n_on_margin] = self.precision
        return found

    @property
    def has_flips(self) -> bool:
        """Whether something is flipped, or a rate is a parameter."""
        return self.n_rates > 0 or any(np.any(rate) for rate in self.rates)

    def mixture(self, rates: Any) -> tuple[Any, Any, FloatArray, FloatArray]:
        """What flips at these rates, or at the known ones, add to each probability, and leave of it.

        Beside it are the derivatives of the first, and minus those of the second, in each rate: one column each.
        """
        rates = self.rates or rates
        floors, taken = self.answers.flips(len(rates))
        on_floor = floors[:, self.codes]
        floor, kept = (sum(rate * each for rate, each in zip(rates, of, strict=True)) for of in (on_floor, taken))
        return floor, 1.0 - kept, on_floor.T, taken

    def margins(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        """How far each squared distance is above the lower and above the upper end, which may be infinite."""
        low, up = self.answers.ends(parameters[self.cuts])
        squared = np.concatenate([slopes @ parameters[: self.n_on_margin] for _, slopes in self.slopes()])
        squared += self.beyond
        return squared - low[self.codes], squared - up[self.codes]

    def slopes(self) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of each squared distance less strictness in M, thresholds and strictness, block by block."""
        return iter(self._kept) if self._kept is not None else self._computed()

    @cached_property
    def _kept(self) -> list[tuple[slice, FloatArray]] | None:
        is_small = self.rows.n_rows * self.n_on_margin <= _MOST_KEPT
        return list(self._computed()) if is_small else None

    def _computed(self) -> Iterator[tuple[slice, FloatArray]]:
        return self.moves.slopes(self.rows, self.answers.n_thresholds, self.who, self.n_annotators)

    def loss(self, terms: LabelTerms, parameters: FloatArray, weights: FloatArray) -> float:
        """The mean loss, with the penalty of strictness."""
        return float(weights @ terms.loss + 0.5 * self.precisions @ parameters**2)

    def terms(self, parameters: FloatArray) -> LabelTerms:
        lower, upper = self.margins(parameters)
        is_open = lower > upper  # thresholds that are out of order leave nothing between them
        found = interval_terms(self.noise, lower, np.where(is_open, upper, lower - 1.0), 2)
        found = found._replace(loss=np.where(is_open, found.loss, np.inf))
        rates = parameters[self.n_on_margin :]
        nothing = np.zeros((len(lower), len(rates)))
        if not self.has_flips:
            return LabelTerms(*found, nothing, nothing, nothing)
        floor, kept, on_floor, on_kept = self.mixture(rates)
        mixed = mixed_terms(found, floor, kept)
        if not self.n_rates:
            return LabelTerms(*mixed, nothing, nothing, nothing)
        # The derivatives of P~ = floor + kept P over P~, from those of -log P.
        of_right = on_kept * np.exp(mixed.loss - found.loss)[:, None]
        on_rates = of_right - on_floor * np.exp(mixed.loss)[:, None]
        crossed = (m[:, None] * on_rates - of_right * f[:, None] for m, f in zip(mixed[1:3], found[1:3], strict=True))
        return LabelTerms(*mixed, on_rates, *crossed)

    def derivatives(self, terms: LabelTerms) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of -log P of each row in the parameters, block by block."""
        first = -(terms.low + terms.up)[:, None]
        for where, slopes in self.slopes():
            found = np.hstack([first[where] * slopes, terms.on_rates[where]])
            for coefficients, slope in ((self.answers.lower, terms.low), (self.answers.upper, terms.up)):
                found[:, self.cuts] += coefficients[self.codes[where]] * slope[where, None]
            yield where, found

    def gradient(self, terms: LabelTerms, parameters: FloatArray, weights: FloatArray) -> FloatArray:
        found = sum(weights[where] @ along for where, along in self.derivatives(terms))
        return np.asarray(found + self.precisions * parameters)

    def information(self, parameters: FloatArray, weights: FloatArray, terms: LabelTerms | None = None) -> FloatArray:
        """The second derivative or, if that is not positive definite, as flips can make it, the Fisher information."""
        terms = self.terms(parameters) if terms is None else terms
        observed = self._second(terms, weights)
        if not self.has_flips or scaled_eigh(observed)[0][0] > 0.0:
            return observed
        return self.fisher(parameters, weights)

    def fisher(self, parameters: FloatArray, weights: FloatArray) -> FloatArray:
        """The Fisher information, with that of the prior."""
        found, asked = np.diag(self.precisions), self.answers.questions[self.codes]
        for code, question in enumerate(self.answers.questions):
            other = replace(self, codes=np.where(asked == question, code, self.codes))
            terms = other.terms(parameters)
            chances = np.where(asked == question, weights * np.exp(-terms.loss), 0.0)[:, None]
            found = found + sum(along.T @ (along * chances[where]) for where, along in other.derivatives(terms))
        return found

    def _second(self, terms: LabelTerms, weights: FloatArray) -> FloatArray:
        """The second derivatives in all parameters, with those of the prior."""
        size, found = self.n_on_margin, np.diag(self.precisions)
        for where, slopes in self.slopes():
            codes, weight = self.codes[where], weights[where, None]
            low_low, low_up, up_up, on_rates, low_rates, up_rates = (each[where] for each in terms[3:])
            # Of u less the lower and the upper end: the rows of derivatives, and what they meet in the loss.
            lower, upper = slopes.copy(), slopes.copy()
            lower[:, self.cuts] -= self.answers.lower[codes]
            upper[:, self.cuts] -= self.answers.upper[codes]
            of_lower = np.hstack([low_low[:, None] * lower + low_up[:, None] * upper, -low_rates])
            of_upper = np.hstack([low_up[:, None] * lower + up_up[:, None] * upper, -up_rates])
            rows = lower.T @ (weight * of_lower) + upper.T @ (weight * of_upper)
            found[:size] += rows
            found[size:, :size] += rows[:, size:].T
            found[size:, size:] += on_rates.T @ (weight * on_rates)
        return found

    def scores(self, terms: LabelTerms) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of each row's part of the mean loss in the parameters, block by block."""
        for where, along in self.derivatives(terms):
            yield where, along * self.shares[where, None]


# ---------------------------------------------------------------------------------------------------------------------
# The probability of an answer at known margins.


def answer_terms(noise: Noise, margins: FloatArray, flip_rate: FlipRate, code: int, order: int) -> IntervalTerms:
    """-log P of an answer at margins from each threshold, (..., K - 1), with derivatives in the ends of its interval.

    Answers to comparisons are two levels, on either side of zero.
    """
    floors, kept = flip_mixture(flip_rate, margins.shape[-1] + 1)
    above = margins[..., code - 1] if code else None
    below = margins[..., code] if code < margins.shape[-1] else None
    return mixed_terms(interval_terms(noise, above, below, order), floors[code], kept)


# At enormous margins: the information and its square stay finite.
_LEAST_LABEL_VARIANCE = 1e-50


@dataclass(frozen=True)
class LabelModel:
    """P(far) = a + (1 - a - b) Phi(margin), with the flip rates a of close and b of far; both are q if there is one.

    `slope` and `curvature` are the first and the second derivative of P(far) in the margin and `flip_slope`
    the derivative in q.
    """

    far: FloatArray
    close: FloatArray
    slope: FloatArray
    flip_slope: FloatArray
    curvature: FloatArray

    @classmethod
    def at(cls, margin: FloatArray, noise: Noise, flip_rate: FlipRate) -> LabelModel:
        (on_close, on_far), kept = flip_mixture(flip_rate, 2)
        far, close = interval_terms(noise, margin, None, 2), interval_terms(noise, None, margin, 0)
        upper, lower = np.exp(-far.loss), np.exp(-close.loss)
        slope, curvature = kept * upper * far.low, kept * upper * (far.low**2 - far.low_low)
        return cls(on_far + kept * upper, on_close + kept * lower, slope, lower - upper, curvature)

    def flip_slopes(self, n_rates: int) -> FloatArray:
        """The derivative of P(far) in the flip rates that are parameters: none, q, or a and b; one column each."""
        if n_rates < 2:
            return self.flip_slope[:, None][:, :n_rates]
        close = 0.5 * (1.0 + self.flip_slope)
        return np.column_stack([close, close - 1.0])

    @property
    def variance(self) -> FloatArray:
        """The variance of the label (far 1, close 0)."""
        return np.maximum(self.far * self.close, _LEAST_LABEL_VARIANCE)

    @property
    def information(self) -> FloatArray:
        """The Fisher information about the margin in one label."""
        return self.slope**2 / self.variance

    def residual(self, is_far: BoolArray) -> FloatArray:
        """The label (far 1, close 0) minus its expectation."""
        return np.where(is_far, self.close, -self.far)


# ---------------------------------------------------------------------------------------------------------------------
# The standard errors of margins, from each threshold of a metric.


@dataclass(frozen=True, eq=False)
class SideErrors:
    """The standard errors of margins, without the common scale of all margins, which changes no side.

    Margins are linear in M, the thresholds and the strictness of annotators, so the scale has the information
    of a step along all of these, and is independent, to first order, of the rest.
    """

    moves: Moves
    cuts: slice
    covariance: FloatArray
    of_scale: float

    @classmethod
    def of(cls, fit: Fit, seen: Judgements) -> SideErrors:
        """The errors of the margins of a fit to these judgements."""
        moves, total = Moves.of(fit, seen), seen.total_weight
        likelihood, parameters = LabelLikelihood.of(fit, seen, moves)
        information = total * likelihood.fisher(parameters, likelihood.shares)
        of_scale = float(parameters @ (information - total * np.diag(likelihood.precisions)) @ parameters)
        return cls(moves, likelihood.cuts, pseudo_inverse(information), 1.0 / max(of_scale, TINY))

    def at(self, data: Array, margins: FloatArray, annotators: IndexArray | None = None) -> FloatArray:
        """The error of each of these margins, (n, cuts)."""
        variances, covariance, cuts = np.empty(margins.shape), self.covariance, self.cuts
        rows, n_annotators = self.moves.rows(data), len(covariance) - cuts.stop
        for where, slopes in self.moves.slopes(rows, cuts.stop - cuts.start, annotators, n_annotators):
            spread = slopes @ covariance
            variances[where] = np.einsum("ij,ij->i", spread, slopes)[:, None]
            if cuts.start < cuts.stop:
                variances[where] += np.diag(covariance)[cuts] - 2.0 * spread[:, cuts]
        return np.sqrt(np.maximum(np.maximum(variances, 0.0) - self.of_scale * margins**2, 0.0))
