"""Problems of every kind of judgement, with their risk written out a second time and their optimum found otherwise."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize, minimize_scalar

from closefar import packed
from closefar.noise import NOISES
from closefar.rows import Differences, LegRows, unit_free
from closefar.solve import Answers, Likelihood, Problem, SolverSettings, problem, solve

DISTRIBUTIONS = {
    "logistic": stats.logistic,
    "normal": stats.norm,
    "laplace": stats.laplace,
    "hypsecant": stats.hypsecant(scale=2.0 / np.pi),
}


@dataclass(frozen=True)
class Kind:
    """What judgements are made: of pairs in this number of levels, and the share of comparisons among all."""

    n_levels: int
    compared: float = 0.0
    n_groups: int = 0
    has_centre: bool = False
    has_origin: bool = False


KINDS = {
    "close/far": Kind(2),
    "levels": Kind(4),
    "comparisons": Kind(0, compared=1.0),
    "pairs and comparisons": Kind(2, compared=0.4),
    "annotators": Kind(2, n_groups=4),
    "levels by annotators": Kind(3, n_groups=3),
    "around a centre": Kind(2, has_centre=True),
    "everything": Kind(3, compared=0.3, n_groups=3, has_centre=True),
    "origin": Kind(2, has_origin=True),
}

_COMPARED_SCALE = 1.5  # one over the noise of comparisons beside pairs, relative to that of pairs


@dataclass(frozen=True, eq=False)
class RandomProblem:
    """Judgements with the risk and the optimum that a solver must find.

    `far` and `near` are the differences of each judgement in the solver's coordinates; those near are zero for pairs.
    `floor` and `kept` are what flips add to the probability of each, and the share of it that they leave.
    """

    kind: Kind
    noise: str
    alpha: float
    rows: Differences | LegRows
    far: np.ndarray
    near: np.ndarray
    codes: np.ndarray
    weights: np.ndarray
    groups: np.ndarray
    centre: np.ndarray
    precision: float = 0.02
    price: float = 0.003
    floor: np.ndarray | float = 0.0
    kept: float = 1.0

    @classmethod
    def of(
        cls,
        kind,
        noise="logistic",
        n=300,
        d=3,
        *,
        alpha=0.0,
        seed=0,
        weighted=False,
        scales=0.0,
        sharpness=1.0,
        shift=0.0,
        whole=False,
        rank=None,
    ) -> RandomProblem:
        """Judgements of a metric of rank d - 1, in columns whose units differ by up to ten to the power of `scales`.

        The larger the `sharpness`, the fewer judgements are wrong; a `shift` lowers the true thresholds, below zero if
        it is large enough.  Columns may be of `whole` numbers.
        """
        rng, kind = np.random.default_rng(seed), KINDS[kind]
        n_compared = round(kind.compared * n)
        n_pairs = n - n_compared
        mix = rng.standard_normal((d, d)) * 10.0 ** rng.uniform(-scales, scales, d)
        truth = rng.standard_normal((d, rank or max(d - 1, 1)))
        shape = n + n_compared, d
        drawn = rng.integers(-2, 3, shape).astype(float) if whole else rng.standard_normal(shape)
        drawn = drawn + 0.5 if kind.has_origin else drawn
        squared = np.sum((drawn @ truth) ** 2, axis=1)
        # Pairs first, then the near and the far leg of each comparison.
        of_pairs, of_legs = squared[:n_pairs], squared[n_pairs:].reshape(-1, 2)
        unit = sharpness * 3.0 / (np.median(squared) or 1.0)
        felt = unit * of_pairs + DISTRIBUTIONS[noise].rvs(size=n_pairs, random_state=rng)
        groups = np.full(n, kind.n_groups)
        if kind.n_groups:
            groups[:n_pairs] = rng.integers(0, kind.n_groups + 1, n_pairs)  # some pairs are judged by nobody
            felt = felt - np.append(rng.standard_normal(kind.n_groups), 0.0)[groups[:n_pairs]]
        taus = unit * np.quantile(squared, np.arange(1, kind.n_levels) / max(kind.n_levels, 1)) - shift
        differs = unit * (of_legs[:, 1] - of_legs[:, 0])
        answers = differs + DISTRIBUTIONS[noise].rvs(size=n_compared, random_state=rng) > 0.0
        codes = np.append(np.digitize(felt, taus), kind.n_levels + answers).astype(float)
        weights = rng.integers(1, 5, n).astype(float) if weighted else np.ones(n)
        weights /= weights.sum()
        z = drawn @ mix
        if n_compared == 0:
            source = Differences(z)
        elif n_pairs == 0:
            source = LegRows(Differences(z), 0, n_compared)
        else:
            source = LegRows.mixed(Differences(z[:n_pairs]), Differences(z[n_pairs:]), _COMPARED_SCALE)
        rows, coordinates = unit_free(source, weights, with_constant=kind.has_origin, blend=1.0 if alpha else 0.0)
        legs = z @ coordinates.transform
        if kind.has_origin:
            legs = np.column_stack([legs + coordinates.offset, np.ones(n)])
        scale = np.sqrt(_COMPARED_SCALE if 0 < n_compared < n else 1.0)
        far = np.vstack([legs[:n_pairs], scale * legs[n_pairs + 1 :: 2]])
        near = np.vstack([0.0 * legs[:n_pairs], scale * legs[n_pairs::2]])
        centre = np.eye(legs.shape[1]) / legs.shape[1]
        return cls(kind, noise, alpha, rows, far, near, codes, weights, groups, centre)

    @property
    def is_free(self) -> bool:
        """Whether linear terms are free: with an origin, if there is no penalty on them."""
        return self.kind.has_origin and self.alpha == 0.0

    @property
    def n_taus(self) -> int:
        return max(self.kind.n_levels - 1, 0)

    @cached_property
    def likelihood(self) -> Likelihood:
        has_groups, kind = self.kind.n_groups > 0, self.kind
        root = np.linalg.cholesky(self.centre)
        return Likelihood(
            NOISES[self.noise],
            Answers.of(kind.n_levels, compares=kind.compared > 0.0),
            self.codes,
            self.weights,
            groups=self.groups.astype(float) if has_groups else None,
            n_groups=kind.n_groups,
            precision=self.precision if has_groups else 0.0,
            lengths=self.rows.squared_distances(root) if kind.has_centre else None,
            price=self.price if kind.has_centre else 0.0,
        )

    def problem(self, **changes) -> Problem:
        """What is solved, with another likelihood or penalty if these are given."""
        given = {"likelihood": self.likelihood, "alpha": self.alpha, **changes}
        return Problem.of(self.rows, given["likelihood"], given["alpha"], has_constant=self.kind.has_origin)

    # The risk, written out.

    def ends(self, matrix, thresholds):
        """The sum that each judgement is about, less the lower and the upper end of its interval."""
        forms = np.einsum("ij,jk,ik->i", self.far, matrix, self.far)
        forms = forms - np.einsum("ij,jk,ik->i", self.near, matrix, self.near)
        taus, rest = thresholds[: self.n_taus], thresholds[self.n_taus :]
        forms = forms - np.append(rest[: self.kind.n_groups], 0.0)[self.groups]
        if self.kind.has_centre:
            lengths = np.einsum("ij,jk,ik->i", self.far, self.centre, self.far)
            lengths = lengths - np.einsum("ij,jk,ik->i", self.near, self.centre, self.near)
            forms = forms + rest[-1] * lengths
        # The intervals of levels, then those of comparisons whose near leg was judged longer, or shorter.
        low, up = np.r_[-np.inf, taus, -np.inf, 0.0], np.r_[taus, np.inf, 0.0, np.inf]
        if self.n_taus == 0:
            low, up = low[1:], up[1:]
        codes = self.codes.astype(int)
        return forms - low[codes], forms - up[codes]

    def probabilities(self, matrix, thresholds):
        """The probability of each judgement, and its derivative in the sum and in both ends of its interval."""
        above, below = self.ends(matrix, thresholds)
        noise = DISTRIBUTIONS[self.noise]
        in_tail = above + below > 0.0  # where the difference of the upper tails is exact
        with np.errstate(over="ignore"):
            probability = np.where(in_tail, noise.sf(below) - noise.sf(above), noise.cdf(above) - noise.cdf(below))
            low, up = noise.pdf(above), noise.pdf(below)
        kept = self.kept
        return self.floor + kept * probability, kept * (low - up), -kept * low, kept * up

    def losses(self, matrix, thresholds):
        with np.errstate(divide="ignore"):
            return -np.log(np.maximum(self.probabilities(matrix, thresholds)[0], 0.0))

    def penalty(self, matrix, thresholds):
        strictness = thresholds[self.n_taus : self.n_taus + self.kind.n_groups]
        core = matrix[:-1, :-1] if self.is_free else matrix
        found = self.alpha * np.trace(core) + 0.5 * self.precision * np.sum(strictness**2)
        return found + (self.price * thresholds[-1] if self.kind.has_centre else 0.0)

    def value(self, matrix, thresholds):
        """The penalised risk."""
        return float(self.weights @ self.losses(matrix, thresholds) + self.penalty(matrix, thresholds))

    def gradient(self, matrix, thresholds):
        """The derivatives of the penalised risk in M and in the thresholds."""
        chance, *slopes = self.probabilities(matrix, thresholds)
        pull, low, up = (-self.weights * each / np.maximum(chance, 1e-300) for each in slopes)
        on_matrix = (self.far * pull[:, None]).T @ self.far - (self.near * pull[:, None]).T @ self.near
        codes, n_groups = self.codes.astype(int), self.kind.n_groups
        found = [[low[codes == k + 1].sum() + up[codes == k].sum() for k in range(self.n_taus)]]
        strictness = thresholds[self.n_taus : self.n_taus + n_groups]
        found.append(-np.bincount(self.groups, pull, n_groups + 1)[:n_groups] + self.precision * strictness)
        found.append([np.sum(on_matrix * self.centre) + self.price] if self.kind.has_centre else [])
        core = np.append(np.ones(len(matrix) - 1), 0.0 if self.is_free else 1.0)
        return on_matrix + self.alpha * np.diag(core), np.concatenate(found)

    def hessian(self, matrix, thresholds, step=1e-5):
        """The second derivatives in (packed M, thresholds), by finite differences of the first."""
        x, columns = packed.join(matrix, thresholds), []
        for unit in step * np.eye(len(x)):
            ends = [packed.join(*self.gradient(*packed.split(each, len(matrix)))) for each in (x + unit, x - unit)]
            columns.append((ends[0] - ends[1]) / (2.0 * step))
        return np.array(columns)

    def best_threshold(self, matrix):
        """The one threshold that is best for M, and the risk there."""
        bounds, options = (0.0, 50.0), {"xatol": 1e-11}
        best = minimize_scalar(lambda tau: self.value(matrix, np.array([tau])), bounds=bounds, options=options)
        return best.x, best.fun

    def is_feasible(self, thresholds):
        """Whether thresholds are in their order, none of them negative, nor the multiple of a centre."""
        taus = thresholds[: self.n_taus]
        is_ordered = bool(np.all(np.diff(taus) > 0.0)) and (self.is_free or bool(np.all(taus >= 0.0)))
        return is_ordered and not (self.kind.has_centre and thresholds[-1] < 0.0)

    def feasible(self, matrix, thresholds):
        """A feasible point near this one: M positive semidefinite, thresholds ordered and not below their least."""
        d = len(matrix) - int(self.is_free)
        values, vectors = np.linalg.eigh(matrix[:d, :d])
        matrix = matrix.copy()
        matrix[:d, :d] = (vectors * np.maximum(values, 0.0)) @ vectors.T
        thresholds = np.array(thresholds, dtype=float)
        taus = np.sort(thresholds[: self.n_taus])
        thresholds[: self.n_taus] = taus if self.is_free else np.maximum(taus, 0.0) + 1e-9 * np.arange(len(taus))
        if self.kind.has_centre:
            thresholds[-1] = max(thresholds[-1], 0.0)
        return matrix, thresholds

    # The optimum, by other means: the value of a feasible point, so never below the minimum.

    def optimum(self):
        return self.conic_optimum() if self.noise == "logistic" else self.descent_optimum()

    def conic_optimum(self):
        """By a conic solver, for logistic noise."""
        cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
        k, kind = self.far.shape[1], self.kind
        matrix = cp.Variable((k, k), symmetric=True)
        taus, deltas, centre = cp.Variable(max(self.n_taus, 1)), cp.Variable(max(kind.n_groups, 1)), cp.Variable()
        terms = np.einsum("ij,ik->ijk", self.far, self.far) - np.einsum("ij,ik->ijk", self.near, self.near)
        terms = terms.reshape(len(terms), -1)
        forms = terms @ cp.vec(matrix, order="C")
        if kind.n_groups:
            # Judgements by nobody have no strictness.
            forms = forms - np.eye(kind.n_groups + 1)[self.groups][:, :-1] @ deltas
        if kind.has_centre:
            forms = forms + centre * (terms @ self.centre.ravel())
        losses = []
        for code in np.unique(self.codes.astype(int)):
            these = np.flatnonzero(self.codes == code)
            q, weights = forms[these], self.weights[these]
            if code >= kind.n_levels:
                losses.append(weights @ cp.logistic(-q if code > kind.n_levels else q))
                continue
            if code > 0:
                losses.append(weights @ cp.logistic(taus[code - 1] - q))
            if code < kind.n_levels - 1:
                losses.append(weights @ cp.logistic(q - taus[code]))
            if 0 < code < kind.n_levels - 1:
                losses.append(-weights.sum() * cp.log(1 - cp.exp(taus[code - 1] - taus[code])))
        core = matrix[: k - 1, : k - 1] if self.is_free else matrix
        penalty = self.alpha * cp.trace(core) + 0.5 * self.precision * cp.sum_squares(deltas)
        penalty = penalty + self.price * centre if kind.has_centre else penalty
        limits = [core >> 0, matrix[-1, -1] == 0] if self.is_free else [core >> 0, taus >= 0]
        program = cp.Problem(cp.Minimize(len(self.codes) * (sum(losses) + penalty)), [*limits, centre >= 0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of digits beyond those that matter here
            program.solve(solver=cp.CLARABEL)
        thresholds = np.concatenate(
            [taus.value[: self.n_taus], deltas.value[: kind.n_groups], [float(centre.value)] if kind.has_centre else []]
        )
        return self.value(*self.feasible(matrix.value, thresholds))

    def descent_optimum(self, near=None):
        """By the better of two descents on a factor of M from random starts, or by one from a factor and thresholds."""
        k, n_groups, n_taus = self.far.shape[1], self.kind.n_groups, self.n_taus
        m = k - int(self.is_free)  # the size of the part that is positive semidefinite
        sizes = np.cumsum([m * m, k if self.is_free else 0, n_taus, n_groups])

        def split(x):
            factor, border, steps, deltas, rest = np.split(x, sizes)
            factor = factor.reshape(m, m)
            matrix = np.zeros((k, k))
            matrix[:m, :m] = factor @ factor.T
            if self.is_free:
                matrix[-1, :-1] = matrix[:-1, -1] = border[:-1]
            # Variables are the first of several thresholds and the steps from each to the next.
            return factor, matrix, np.concatenate([np.cumsum(steps), deltas, rest])

        def value_and_gradient(x):
            factor, matrix, thresholds = split(x)
            on_matrix, slopes = self.gradient(matrix, thresholds)
            on_taus, rest = slopes[:n_taus], slopes[n_taus:]
            parts = [
                (2.0 * on_matrix[:m, :m] @ factor).ravel(),
                np.append(2.0 * on_matrix[-1, :-1], 0.0) if self.is_free else [],
                on_taus[::-1].cumsum()[::-1],  # of a step, which moves all thresholds above
                rest,
            ]
            return self.value(matrix, thresholds), np.concatenate(parts)

        rng = np.random.default_rng(0)
        least = [(None, None)] * sizes[1] + [(None if self.is_free else 0.0, None)] * min(n_taus, 1)
        least += [(1e-9, None)] * max(n_taus - 1, 0) + [(None, None)] * n_groups
        least += [(0.0, None)] * int(self.kind.has_centre)
        options = {"maxiter": 20_000, "maxfun": 50_000, "maxcor": 30, "ftol": 1e-16, "gtol": 1e-11}
        found = []
        for _ in range(1 if near else 2):
            anywhere = 0.7 * rng.standard_normal((m, m)), np.r_[1.0 : n_taus + 1.0, np.zeros(n_groups), 0.1]
            factor, thresholds = near or anywhere
            start = np.zeros(sizes[-1] + int(self.kind.has_centre))
            start[: m * m].reshape(m, m)[:, : factor.shape[1]] = factor
            start[sizes[1] : sizes[2]] = np.diff(thresholds[:n_taus], prepend=0.0)
            start[sizes[2] :] = thresholds[n_taus : n_taus + len(start) - sizes[2]]
            best = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=least, options=options)
            found.append(best.fun)
        return min(found)


# How a problem is solved: by each solver, and by `sampled` with half of the judgements in its sample and without one.
WAYS = {
    "newton": ("newton", None),
    "lowrank": ("lowrank", None),
    "sampled": ("sampled", 0.5),
    "sampled without a sample": ("sampled", 0.0),
}


def solved(way, given: Problem, *, seed=0, rank=None, tol=1e-6, max_iter=1000, **rest):
    """The solution of a problem, found this way; `rest` are the other arguments of `solve`."""
    name, share = WAYS[way]
    with pytest.MonkeyPatch.context() as patch:
        if share is not None:
            patch.setattr(problem, "_LARGEST_SHARE", share)
        settings = SolverSettings(name, rank, tol, max_iter)
        return solve(given, settings, rng=np.random.default_rng(seed), **rest)
