"""Choosing the questions to ask next: those whose answers teach most about M and the thresholds."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy.special import entr, ndtr, ndtri
from scipy.stats import qmc
from sklearn.utils import check_random_state

from closefar import packed
from closefar.arrays import Array, BoolArray, FloatArray, IndexArray, is_foreign, is_indexed, take_rows, to_numpy
from closefar.fitting import Fit, Fitted, refit
from closefar.judgements import Judgements, Kind, check_comparisons, check_pairs, sample_rows
from closefar.noise import FlipRate, Noise
from closefar.questions.likelihood import LabelLikelihood, Moves, answer_terms, by_legs
from closefar.rows import (
    Coordinates,
    LegRows,
    Rows,
    StackedRows,
    factor_in_rows,
    find_coordinates,
    judged_rows,
    rows_of,
)

# ---------------------------------------------------------------------------------------------------------------------
# What an answer to a question teaches, in nats, where the margins of the question are known up to a normal error.


# Where the error of the only margin is larger than this, in standard deviations of the noise, its normal distribution
# is summed over cells of that width, where it may be as wide as it likes; otherwise it is drawn from.
_CELL_WIDTH = 0.25
_N_CELLS = 96  # 12 standard deviations of the noise to either side, where an answer is certain or flipped

_N_DRAWS = 128  # of margins: gains are within 5% of those of 100,000 draws for levels


@dataclass(frozen=True, eq=False)
class AnswerModel:
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
        """The probability of each answer, (..., K), from the margins, (..., K - 1), the lowest threshold's first.

        Draws of thresholds may be out of order, which leaves nothing between them.
        """
        losses = [answer_terms(self.noise, margins, self.flip_rate, code, 0).loss for code in range(self.n_levels)]
        return np.asarray(np.exp(-np.stack(losses, axis=-1)))

    def entropies(self, margins: FloatArray) -> FloatArray:
        """The entropy of the answer at known margins, in nats."""
        return np.asarray(entr(self.probabilities(margins)).sum(axis=-1))

    def fisher(self, margins: FloatArray) -> FloatArray:
        """The Fisher information of the answer about the margins, (..., K - 1, K - 1)."""
        found = np.zeros((*margins.shape, margins.shape[-1]))
        for code in range(self.n_levels):
            terms, slopes = answer_terms(self.noise, margins, self.flip_rate, code, 1), np.zeros(margins.shape)
            for threshold, slope in ((code - 1, terms.low), (code, terms.up)):
                if 0 <= threshold < self.n_levels - 1:
                    slopes[..., threshold] = slope
            found += np.exp(-terms.loss)[..., None, None] * slopes[..., :, None] * slopes[..., None, :]
        return found

    def gains(self, means: FloatArray, covariances: FloatArray) -> FloatArray:
        """The mutual information of answer and margins, H(E p) - E H(p), for means (n, K - 1) and their covariances."""
        gains, widths = np.empty(len(means)), np.sqrt(np.maximum(covariances[:, 0, 0], 0.0))
        by_cells = self._by_cells(widths)
        if np.any(by_cells):
            probabilities, entropies, _ = self._cells
            masses = self._masses(means[by_cells, 0], widths[by_cells])
            gains[by_cells] = entr(masses @ probabilities).sum(axis=-1) - masses @ entropies
        drawn = self.probabilities(_drawn(means[~by_cells], covariances[~by_cells]))
        gains[~by_cells] = entr(drawn.mean(axis=1)).sum(axis=-1) - entr(drawn).sum(axis=-1).mean(axis=1)
        return np.maximum(gains, 0.0)

    def expected_fisher(self, mean: FloatArray, covariance: FloatArray) -> FloatArray:
        """The Fisher information, averaged over the distribution of the margins of one question."""
        width = np.sqrt(np.maximum(covariance[0], 0.0))
        if self._by_cells(width)[0]:
            return np.reshape(self._masses(mean, width) @ self._cells[2], (1, 1))
        return np.asarray(self.fisher(_drawn(mean[None], covariance[None])[0]).mean(axis=0))

    def _by_cells(self, widths: FloatArray) -> BoolArray:
        return np.asarray((self.n_levels == 2) & (widths >= _CELL_WIDTH * self.noise.std))

    def _masses(self, mean: FloatArray, width: FloatArray) -> FloatArray:
        """The probability that the margin lies in each cell; cells add the variance of their width, so it is less."""
        step = _CELL_WIDTH * self.noise.std
        edges = step * (np.arange(_N_CELLS + 1) - 0.5 * _N_CELLS)
        corrected = np.sqrt(width**2 - step**2 / 12.0)
        below = ndtr((edges - mean[:, None]) / corrected[:, None])
        return np.diff(below, axis=1, prepend=0.0, append=1.0)

    @cached_property
    def _cells(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The probabilities, the entropy and the information in the middle of each cell; the outermost are endless."""
        step = _CELL_WIDTH * self.noise.std
        middle = np.asarray(step * (np.arange(_N_CELLS + 2) - 0.5 * (_N_CELLS + 1)), dtype=np.float64)
        return (
            self.probabilities(middle[:, None]),
            self.entropies(middle[:, None]),
            self.fisher(middle[:, None])[:, 0, 0],
        )


@lru_cache(maxsize=8)
def _draws(n: int) -> FloatArray:
    """Points of the standard normal in n dimensions, with its mean and its covariance, the same each time."""
    half = ndtri(qmc.Halton(n, scramble=False).random(1 + _N_DRAWS // 2)[1:])
    points = np.vstack([half, -half])
    root = np.linalg.cholesky(points.T @ points / len(points))
    return np.asarray(np.linalg.solve(root, points.T).T)


def _drawn(means: FloatArray, covariances: FloatArray) -> FloatArray:
    """Margins of each question, (n, draws, K - 1)."""
    values, vectors = np.linalg.eigh(covariances)
    roots: Any = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    return np.asarray(means[:, None, :] + _draws(means.shape[1]) @ np.swapaxes(roots, 1, 2))


# ---------------------------------------------------------------------------------------------------------------------
# The posterior mode: the fit, or a penalised refit where labels are few.


# With fewer uncertain labels per parameter, M is too large without a penalty; if none is uncertain, it is arbitrary.
_MODE_UNCERTAIN = 10.0

_PENALISED_TOL = 1e-4  # a posterior is wider than that by far


def training_of(fit: Fit) -> Judgements:
    """The training data of a fit that count, in NumPy."""
    if fit.judgements is None:
        raise ValueError(
            "choose_pairs needs the judgements that the learner was fitted to; this learner was copied or loaded "
            "without them. Fit it again."
        )
    return fit.training().weighted(fit.settings.class_weight).counted().in_numpy()


def fit_with_prior(fit: Fit, judgements: Judgements) -> Fit:
    """The mode of the posterior: a fit with a penalty is one, and so is, nearly, a fit to many uncertain labels."""
    if fit.alpha > 0 or fit.statistics.uncertain_per_parameter >= _MODE_UNCERTAIN:
        return fit
    flip_rate = fit.settings.flip_rate
    settings = fit.chosen.but(
        alpha="auto", flip_rate=flip_rate, class_weight=None, tol=_PENALISED_TOL, max_time=None, device=None
    )
    return replace(refit(judgements, settings), columns=fit.columns, judgements=judgements)


# ---------------------------------------------------------------------------------------------------------------------
# Positive semidefinite matrices only: a normal distribution with the moments of draws that are moved into the cone.


_CONE_DRAWS = 1000  # means and variances within some 5%


def moments_in_cone(mean: FloatArray, covariance: FloatArray, d: int) -> tuple[FloatArray, FloatArray]:
    """The mean and covariance of (packed M, thresholds) once each draw of M is moved to the nearest matrix in the cone.

    Coordinates have unit second moment, so that this adds the change of tr M to squared distances on average.  The
    judgements know the average margin well, and so the thresholds of a draw move with it.
    """
    n = packed.packed_size(d)
    normal = np.random.default_rng(0).standard_normal((_CONE_DRAWS // 2, len(mean)))
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


@dataclass(frozen=True, eq=False)
class Posterior:
    """The mean and covariance of (packed M, thresholds), for M in coordinates y = basis' z.

    In these coordinates M is diagonal at its mean, and the differences of the judgements and of the candidates together
    have unit second moment, so that nothing depends on the units of the data.

    Attributes
    ----------
    moves : Moves
        All those of M in these coordinates, with its mean.
    cuts : array
        The mean thresholds of the candidates' margins; comparisons have none.
    covariance : array
    factor : array of shape (d, r)
        The mean of M in the units of the data, all coordinates included.
    """

    moves: Moves
    cuts: FloatArray
    covariance: FloatArray
    factor: FloatArray

    @classmethod
    def of(cls, fit: Fit, candidates: Rows, coordinates: Coordinates) -> Posterior:
        """What the judgements of a fit say of the margins of candidates, for M in the cone."""
        found = cls.around(fit, candidates, coordinates)
        d, n = found.moves.size, len(found.moves)
        if coordinates.transform.shape[1] > d:  # what is not here may matter
            return found
        mean, covariance = moments_in_cone(np.append(found.moves.matrix, found.cuts), found.covariance, d)
        values, vectors = np.linalg.eigh(packed.unpack(mean[:n], d))
        turn = np.eye(len(mean))
        turn[:n, :n] = packed.packed_rotation(vectors[:, ::-1])
        basis, eigenvalues = found.moves.basis @ vectors[:, ::-1], np.maximum(values[::-1], 0.0)
        moves, factor = Moves.within(basis, eigenvalues), basis * np.sqrt(eigenvalues)
        return cls(moves, mean[n:], turn.T @ covariance @ turn, factor)

    @classmethod
    def around(cls, fit: Fit, candidates: Rows, coordinates: Coordinates) -> Posterior:
        """The normal distribution around a fit (Laplace), in which M may leave the cone."""
        judgements, metric = training_of(fit), fit.metric
        likelihood, rest = LabelLikelihood.of(fit, judgements, Moves.within(coordinates.transform[:, :0]))
        legs, factor = likelihood.rows.legs, coordinates.from_units(metric.factor)
        if factor is None:
            factor = factor_in_rows(legs.in_coordinates(coordinates), legs, _equal_shares(legs), metric.factor)
        vectors, lengths, _ = np.linalg.svd(factor, full_matrices=True)
        values, basis = np.append(lengths**2, np.zeros(len(vectors) - len(lengths))), coordinates.transform @ vectors
        # Squared distances are those of the fit, also along what is not in the basis.
        likelihood = replace(likelihood, beyond=np.asarray(likelihood.rows.squared_distances(metric.factor)))
        if len(values) > _MOST_COORDINATES:
            terms = likelihood.terms(rest)
            gradient = likelihood.rows.outer(-likelihood.shares * (terms.low + terms.up))
            # The coordinates along which M is largest, then those in which it is most likely to grow.
            rank = min(int(np.count_nonzero(values > 0.0)), _MOST_COORDINATES)
            null, values = basis[:, rank:], values[:_MOST_COORDINATES]
            growing = np.linalg.eigh(null.T @ gradient @ null)[1][:, : _MOST_COORDINATES - rank]
            basis = np.hstack([basis[:, :rank], null @ growing])
        else:
            # The sum of |y|^2 y y' over the legs of the judgements.
            fourth = legs.outer(np.asarray(legs.forms(basis @ basis.T)))
            basis = oriented(basis, values, basis.T @ fourth @ basis)
        moves = Moves.within(basis, values)
        likelihood = replace(likelihood, moves=moves)
        information = likelihood.fisher(np.append(np.zeros(len(moves)), rest), likelihood.shares)
        # Entries of M are about as large as those of the fit, and thresholds as the error of a squared distance.
        d = len(values)
        width = np.sqrt(np.sum(values**2) / len(moves)) or metric.noise.std / d
        prior = np.zeros(len(information))
        prior[: len(moves)], prior[likelihood.cuts] = width**-2.0, 1.0 / (width**2 * d * (d + 2.0))
        cuts = np.array(() if isinstance(candidates, LegRows) else metric.thresholds)
        n = len(moves) + len(cuts)
        covariance = np.linalg.inv(judgements.total_weight * information + np.diag(prior))[:n, :n]
        return cls(moves, cuts, np.asarray(covariance, dtype=np.float64), metric.factor)

    def margins(self, rows: Rows) -> FloatArray:
        """The mean margin of each candidate from each threshold; comparisons have one margin."""
        return margins_of(rows, self.factor, self.cuts)


def margins_of(rows: Rows, factor: FloatArray, cuts: FloatArray) -> FloatArray:
    """The squared distances less each threshold, if there are any."""
    return np.asarray(rows.squared_distances(factor))[:, None] - (cuts if len(cuts) else 0.0)


def common_coordinates(judgements: Judgements, candidates: Rows) -> Coordinates:
    """Coordinates in which the differences of judgements and candidates together have unit second moment."""
    legs = StackedRows(judged_rows(judgements).legs, candidates.legs)
    return find_coordinates(legs, _equal_shares(legs), finds_null=False)


def _equal_shares(rows: Rows) -> FloatArray:
    return np.broadcast_to(1.0 / rows.n_rows, rows.n_rows)


# ---------------------------------------------------------------------------------------------------------------------
# A batch of questions, one at a time: what the answers to those before will teach counts as known.


# Margins whose squared correlation differs from one by no more than rounding are those of the same question.
_SAME_CORRELATION = 1e-8

_REFRESHED_GAINS = 256  # gains that are computed again together: enough for most choices


class _Known:
    """The distribution of the margins of candidates, which narrows with each question that is chosen."""

    def __init__(self, posterior: Posterior, rows: Rows, means: FloatArray) -> None:
        self.means = means
        self._posterior, self._rows = posterior, rows
        self._covariance = posterior.covariance.copy()
        n = len(posterior.moves)
        of_matrix, with_cuts, of_cuts = self._covariance[:n, :n], self._covariance[:n, n:], self._covariance[n:, n:]
        self._n_matrix = n
        n_margins = means.shape[1]
        self.covariances = np.empty((len(means), n_margins, n_margins))
        for where, along in by_legs(rows, posterior.moves.gradients):
            variance = np.einsum("ij,ij->i", along @ of_matrix, along)
            self.covariances[where] = variance[:, None, None]
            if len(of_cuts):
                crossed = along @ with_cuts
                self.covariances[where] += of_cuts - crossed[:, :, None] - crossed[:, None, :]

    def along(self, which: int) -> FloatArray:
        """The derivatives of the margins of one candidate in all parameters."""
        ((_, found),) = by_legs(self._rows.take_rows(np.array([which])), self._posterior.moves.gradients)
        n_cuts = len(self._covariance) - self._n_matrix
        on_cuts = -np.eye(n_cuts) if n_cuts else np.zeros((1, 0))
        return np.hstack([np.repeat(found, len(on_cuts), axis=0), on_cuts])

    def covariances_with(self, along: FloatArray) -> FloatArray:
        """The covariance of all margins with those of one candidate, (n, K - 1, K - 1)."""
        spread = self._covariance @ along.T
        n, basis = self._n_matrix, self._posterior.moves.basis
        found = np.empty(self.covariances.shape)
        for k in range(found.shape[2]):
            matrix = basis @ packed.unpack(spread[:n, k], basis.shape[1]) @ basis.T
            found[:, :, k] = self._rows.forms(matrix)[:, None]
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
    posterior: Posterior, rows: Rows, means: FloatArray, answers: AnswerModel, n: int, *, with_utilities: bool = False
) -> tuple[IndexArray, FloatArray]:
    """Choose n candidates in turn, each the one that teaches most after the expected information of those before.

    Returns those chosen, best first, and what each candidate would teach before each choice, if asked for.

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
        # The margin is the same, or of a comparison its negative.
        variances = known.covariances[:, 0, 0]
        is_new &= crossed[:, 0, 0] ** 2 < (1.0 - _SAME_CORRELATION) * variances[best] * variances
        known.learn(along, crossed, answers.expected_fisher(known.means[best], known.covariances[best]))
    return chosen, utilities


def _find_best(bounds: FloatArray, wanted: BoolArray, known: _Known, answers: AnswerModel) -> int | None:
    """The wanted candidate that teaches most; None if none teaches anything.  Bounds on gains are updated."""
    is_fresh = ~wanted
    while True:
        open_bounds = np.where(wanted, bounds, 0.0)
        best = int(np.argmax(open_bounds))
        if is_fresh[best] or open_bounds[best] <= 0.0:
            return best if open_bounds[best] > 0.0 else None
        stale = np.flatnonzero(~is_fresh)
        if len(stale) > _REFRESHED_GAINS:
            stale = stale[np.argpartition(-bounds[stale], _REFRESHED_GAINS)[:_REFRESHED_GAINS]]
        bounds[stale] = answers.gains(known.means[stale], known.covariances[stale])
        is_fresh[stale] = True


# ---------------------------------------------------------------------------------------------------------------------
# The choice.


_METHODS = ("information", "uncertainty", "random")

# Among more candidates than this, a random sample is looked at; levels take longer.  With 300,000 candidates of 10
# columns for each batch of 20, metrics learned from samples of 8,192 had errors at most as large as those learned
# from a shortlist of what seemed to teach most of all: 0.14 against 0.15 after 300 answers, and 0.21 against 0.35
# with flips.
_MOST_SCREENED, _MOST_SCREENED_LEVELS = 8192, 2048

# People slip at any distance, in about one answer of twenty: a fit may not know it yet, and a choice that trusts every
# answer goes astray.
_LEAST_FLIP_RATE = 0.05


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
        Seed of "random".  The other methods draw nothing, except that "information" looks at a random sample, always
        the same, of more than 8,192 candidates (2,048 with levels).
    return_utilities : bool, default=False
        Whether to return the utilities as well.

    Returns
    -------
    indices : array of int, of shape (n,)
        The row numbers of the chosen candidates, best first, without repetition.
    utilities : array of shape (n, m)
        If `return_utilities`: the utility of each candidate before each choice, in nats, and NaN for candidates
        that were chosen before, or that are not in the sample.

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
    if method not in _METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, _METHODS))}; got {method!r}.")
    if not isinstance(n, numbers.Integral) or isinstance(n, bool) or not 1 <= int(n) <= n_candidates:
        raise ValueError(
            f"n must be a whole number from 1 to the number of candidates, {n_candidates:,}; got {n!r}. Choose fewer, "
            "or pass more candidates."
        )
    if method == "random":
        return _largest(check_random_state(random_state).uniform(size=n_candidates), n, return_utilities)
    if method == "uncertainty":
        rows, answers = _asked(fit, data)
        cuts = () if isinstance(rows, LegRows) else fit.metric.thresholds
        margins = margins_of(rows, fit.metric.factor, np.array(cuts))
        return _largest(answers.entropies(margins), n, return_utilities, np.min(np.abs(margins), axis=1))
    judgements = training_of(fit)
    most = _MOST_SCREENED if fit.metric.n_levels <= 2 else _MOST_SCREENED_LEVELS
    kept = sample_rows(n_candidates, max(most, n))
    data = take_rows(data, kept)
    coordinates = common_coordinates(judgements, rows_of(data))
    fit = fit_with_prior(fit, judgements)
    rows, answers = _asked(fit, data, least_rate=_LEAST_FLIP_RATE)
    posterior = Posterior.of(fit, rows, coordinates)
    chosen, found = choose_batch(posterior, rows, posterior.margins(rows), answers, n, with_utilities=return_utilities)
    if not return_utilities:
        return kept[chosen]
    utilities = np.full((n, n_candidates), np.nan)
    utilities[:, kept] = found
    return kept[chosen], utilities


def _read(fit: Fit, candidates: Any) -> Array:
    """Validate candidates, which come to NumPy: pairs, or comparisons if the fit has learned from some."""
    if fit.metric.origin is not None:
        raise ValueError(
            "choose_pairs needs a metric of pairs or comparisons; got one with fit_origin=True, which judges single "
            "points. Leave fit_origin out."
        )
    shape = tuple(getattr(candidates, "shape", ()))
    are_compared = len(shape) == 3 and shape[1] in (3, 4)
    learned_from_some = fit.kind is Kind.COMPARISONS or (are_compared and fit.comparison_noise is not None)
    data = (check_comparisons if learned_from_some else check_pairs)(fit.columns, candidates, fitting=False)
    if is_indexed(data) and is_foreign(data.points):
        return data.with_arrays(to_numpy(data.points), to_numpy(data.index))
    return to_numpy(data) if is_foreign(data) else data


def _asked(fit: Fit, data: Array, least_rate: float = 0.0) -> tuple[Rows, AnswerModel]:
    """The rows of candidates, and what is answered, where at least this share of the answers is flipped."""
    rows, metric = rows_of(data).with_scale(1.0 / fit.relative_noise), fit.metric
    is_compared = isinstance(rows, LegRows)
    rate = metric.compared_flip_rate if is_compared else metric.flip_rate
    least = (max(rate[0], least_rate), max(rate[1], least_rate)) if isinstance(rate, tuple) else max(rate, least_rate)
    return rows, AnswerModel(metric.noise, least, 2 if is_compared else metric.n_levels)


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
