"""The choice of settings on held-out judgements: the penalty, what it shrinks M to, flips, and rank and noise if asked.

Candidates are fitted to folds by the package's own solvers, without proofs, each from the one before, and judged by
the loss of the judgements that were held out.  Folds hold out points, because a judgement of points that a fit has seen
says little about new points.  The chosen settings are the mean of all that are about as good, weighted by their
likelihood; one certified fit to all judgements follows.

Candidates are tried in the order of what usually helps.  The plain distances come first.  Then M is shrunk to zero or
to a centre (c times the plain distance, c free), and the better one is followed along a path of alpha; with fewer than
two judgements per column it is the centre, since most directions can then only be guessed.  Flips come last.  With few
judgements per column, a learned metric must be clearly better than the plain distance to be used.  Where columns have
several units, their plain distance is arbitrary, and trusted less.

Judgements that share points say less than as many others.  Standard errors, calibration, the number from which on there
are plenty, and how alpha falls beyond a sample all take that into account.

Constants were set on iris, wine, breast cancer, digits, penguins, diabetes and simulated tables with 0 to 30 % wrong
labels, seeds below 1000, on five sets of sentence embeddings, and on triplets and ratings of new objects;
benchmarks/default.py measures other seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize

from closefar.arrays import TURNED, BoolArray, FloatArray, IndexArray, is_on_gpu, to_numpy
from closefar.fitting.problem import UnitFreeProblem, flips_of
from closefar.fitting.progress import display
from closefar.fitting.result import Baseline, Choice, Tried
from closefar.fitting.settings import CENTRES, Settings
from closefar.judgements import (
    Judgements,
    Kind,
    divide_points,
    effective_number,
    find_points,
    sample_rows,
    variance_of_sum,
)
from closefar.model import Metric, Scores
from closefar.noise import Noise, flip_mixture, get_noise
from closefar.packed import packed_size
from closefar.rows import RowSource
from closefar.solve import (
    Ending,
    Likelihood,
    Problem,
    State,
    interval_terms,
    mixed_terms,
    psd_factor,
    solve_roughly,
    supervisor,
)

# The first alpha, times sqrt(d / n): the size of the largest eigenvalue of what noise alone adds to dR/dM.
_FIRST_ALPHA = 0.4
_ALPHA_FACTOR, _LONG_ALPHA_FACTOR = 2.0, 4.0  # by which alpha changes, and after a few steps
_SHORT_ALPHA_STEPS, _MOST_ALPHA_STEPS = 4, 8  # steps by the first factor, and in all: a factor of 4,096
# Standard errors, and nats, that the loss must fall by for one more step; of plenty of judgements, which are hardly
# overfitted, by less.
_WORTH_A_STEP, _NATS_OF_A_STEP, _LESS = 0.5, 0.5, 0.1
# The same, in standard errors, for a larger alpha where nothing of M may be left: probabilities close to one half lower
# the loss of few judgements, and say nothing.  For the same reason alpha stays below this share of the one that leaves
# nothing.
_WORTH_LOSING, _MOST_OF_LARGEST_ALPHA = 2.0, 0.5
# The least alpha for the plain distance, in coordinates that vary by one: a tiny one is hard to prove anything with.
_ENOUGH_ALPHA = 1e-3
_NOTHING_LEFT = 1e-9  # an alpha with which nothing of M is left either
# The least first alpha of few judgements: where a smaller one would already leave only the centre, as it separates
# them, little can be learned, and nothing proven.
_LEAST_FIRST = 1e-4
# The power of the likelihood that weighs the values of alpha.  Folds share most of what they are fitted to, so held-out
# losses vary more than their standard errors say.
_TEMPERED = 0.3

_MOST_HERE = 128  # of which products with these judgements take longer on a GPU

# Judgements that are used for choosing: this many per parameter of M, within limits.
_PER_PARAMETER, _FEWEST_USED, _MOST_USED = 40, 2000, 8000

# Parts of the points or judgements; as many of them are held out in turn as hold this many judgements.
_N_FOLDS, _ENOUGH_HELD_OUT = 5, 1500
# Where points are in this many judgements on average, only judgements of points of one part are held out, of fewer
# parts, and twice if there are few judgements; unless hardly any are.  With 15 pairs per point of a table, that left
# too few to find flips (accuracy of 1,000 pairs of wine with 30 % wrong labels: .868 instead of .880); with 21 ratings
# or 14 comparisons per object, held-out losses were too optimistic otherwise.
_MANY_PER_POINT, _MANY_COMPARISONS, _FEW_FOLDS, _DIVIDED_TWICE, _FEWEST_HELD_OUT = 18.0, 8.0, 3, 1000, 200
_HUB = 0.5  # a point in a larger share of the judgements is never held out, as hardly any would be left

# With fewer judgements per column than this, M is shrunk to a centre unless zero is clearly better.
_PER_COLUMN = 2.0
_CLEARLY, _LEAST_CAUTION = 2.0, 0.5  # standard errors
# Standard errors by which a centre must be better than zero where columns have several units: their plain distance is
# arbitrary then.  Nor need a learned metric be better by some margin: it was rarely worse, even with 20 to 60 pairs of
# 13 or 30 columns (wine, breast cancer).
_BETTER_CENTRE = 1.0

# The price in nats of the multiple c of a centre by which the mean squared distance is one, so that c is finite where
# the plain distance separates the labels: 1 / c for the usual c, which was 1 to 12 on tables and sentence embeddings.
_PRICE = 0.1

# Judgements per parameter of M from which on only zero is tried as a prior, on the first folds that hold out so many,
# and this multiple of the best alpha.
_PLENTY, _ENOUGH_OF_PLENTY, _NEARLY_FREE = 50, 400, 1e-4

# With a sample of at most this share of plenty of judgements, alpha is less than a sixtieth of what suits the sample:
# too little for its units to matter.  It is measured in the coordinates in which solvers are fastest (200,000 pairs of
# 50 columns: 4 s instead of 97).
_SLIGHT_SHARE = 0.25

# Beyond this many columns, a metric in which each column has its own unit and no direction is zero takes minutes.
_MOST_STANDARDIZED = 1000

# Columns whose root mean square exceeds the median one by more than this do not have the same unit.
_SAME_UNIT = 10.0

# Flip rates, of which the first is tried where held-out margins tell nothing, and how often; close ones are alike.
_RATES, _FIRST_RATE, _FLIP_ROUNDS, _SAME_RATE = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4), 0.1, 3, 0.04
_FEWEST_FOR_FLIPS, _EVIDENCE_OF_FLIPS = 25, 0.5  # held-out judgements, and nats
_FEWEST_OTHERS = 5  # held-out judgements that are not the most frequent answer: of one answer, flips can't be told
_EVIDENCE_OF_PLENTY = 3.0  # nats, without holding out: none of 240 simulated samples without flips reached them
_COMPARED_TOL, _COMPARED_STEPS = 1e-2, 40  # relative to the objective: held-out losses then differ by far less
_FLIPPED_TOL, _FLIPPED_STEPS = 3e-3, 25  # a likelihood that is not convex: steps shrink slowly
_LARGEST_CHOSEN_RATE = 0.45  # at 0.5 answers say nothing
_LEAST_CHOSEN_RATE = 0.005  # the mean of candidates is never zero; so few flips do not matter, and none are convex

# The standard deviations of the logarithm of the scale and of the shifts of thresholds, in nats of log odds, that
# probabilities are calibrated by.
_CALIBRATION_PRIOR, _WIDE_PRIOR = (0.5, 0.5), (2.0, 2.0)


class Chosen(NamedTuple):
    """The settings of the last fit, a metric close to it, and how they were chosen."""

    settings: Settings
    start: Metric | None = None
    choice: Choice | None = None
    baseline: Baseline | None = None


def choose_settings(judgements: Judgements, settings: Settings, groups: Any = None) -> Chosen:
    """Choose what the settings leave open, on judgements of positive weight."""
    if not settings.has_choice:
        return Chosen(settings)
    with display().stage("choosing the penalty on held-out judgements"):
        search = _Search(judgements, settings, groups)
        best, centres = None, search.centres()
        if search.splits:
            try:
                best = search.choose_prior(centres)
                best = search.choose_rank(search.choose_flips(search.choose_noise(best)))
                best = search.or_plain(best)
            except _TimeOverError:
                best = min(search.tried.values(), key=lambda each: each.loss)
        found = search.without_folds(centres) if best is None else search.chosen(best)
    # The search is local, and takes comparisons beside pairs to be as noisy as these; the last fit is as asked for.
    kept = {name: getattr(settings, name) for name in ("device", "verbose", "max_time", "comparison_noise")}
    return found._replace(settings=found.settings.but(**kept))


# --------------------------------------------------------------------------------------- what judgements say


def _terms(noise: Noise, margins: FloatArray, codes: IndexArray, flip_rate: float) -> tuple[FloatArray, FloatArray]:
    """-log P of each answer, given its margin from each threshold, and the derivative in each of these margins."""
    (floor, *_), kept = flip_mixture(flip_rate, margins.shape[1] + 1)
    # Thresholds of levels that a fold has none of may be equal, or cross when they are moved.
    lower = np.minimum(margins[:, 1:], margins[:, :-1] - 1e-6 * (1.0 + np.abs(margins[:, :-1])))
    ends = np.pad(np.hstack([margins[:, :1], lower]), ((0, 0), (1, 1)), constant_values=(np.inf, -np.inf))
    here = np.arange(len(codes))
    found = mixed_terms(interval_terms(noise, ends[here, codes], ends[here, codes + 1], 1), floor, kept)
    slopes = np.zeros_like(ends)
    slopes[here, codes], slopes[here, codes + 1] = -found.low, -found.up
    return found.loss, slopes[:, 1:-1]


class _Calibration(NamedTuple):
    """What margins are multiplied by, and what is then taken off the margin from each threshold."""

    scale: float = 1.0
    shifts: tuple[float, ...] = ()

    @classmethod
    def of(cls, x: FloatArray) -> _Calibration:
        """That of the logarithm of a scale, and of shifts."""
        return cls(math.exp(x[0]), tuple(x[1:].tolist()))

    def applied(self, margins: FloatArray) -> FloatArray:
        return self.scale * margins - (np.array(self.shifts) if self.shifts else 0.0)

    def thinned(self, share: float) -> _Calibration:
        """For a penalty of this share of the weight, which distorts less."""
        return _Calibration(self.scale**share, tuple(share * each for each in self.shifts))


# --------------------------------------------------------------------------------------- folds


_Splits = list[tuple[IndexArray, IndexArray]]  # what is fitted to, and what is held out


def _split(judgements: Judgements, ids: Any, by: str, rng: np.random.Generator) -> tuple[_Splits, str]:
    """Hold out points, or groups; where that leaves too little to fit to, judgements; or nothing at all."""
    splits = [] if ids is None else _split_points(judgements, ids.reshape(len(judgements), -1), rng)
    if splits:
        return splits, by
    splits = _split_judgements(judgements, _N_FOLDS, rng)
    return splits, "judgements" if splits else "nothing"


def _split_points(judgements: Judgements, ids: IndexArray, rng: np.random.Generator) -> _Splits:
    """Hold out the judgements of the points of a part, and fit to those of the others.

    Not all points of a judgement between two parts are unseen.  Where points are in few judgements, it is held out if
    half of them are; where they are in many, such judgements are neither fitted to nor held out, if enough are left.
    """
    n = len(judgements)
    is_hub = np.bincount(ids.ravel()) > _HUB * n
    others = ~is_hub[ids]
    first = ids[np.arange(n), np.argmax(others, axis=1)]
    ends = np.where(others, ids, first[:, None])
    found: _Splits = []
    many = _MANY_COMPARISONS if judgements.kind is Kind.COMPARISONS else _MANY_PER_POINT
    if ends.size >= many * len(np.unique(ends)):
        for _ in range(2 if n <= _DIVIDED_TWICE else 1):
            parts = divide_points(ends, _FEW_FOLDS, rng)[0][ends]
            for fold in range(_FEW_FOLDS):
                inside = parts == fold
                found += _usable(judgements, inside.any(axis=1), inside.all(axis=1))
        if sum(len(test) for _, test in found) >= _FEWEST_HELD_OUT:
            return found
    parts, found = divide_points(ends, _N_FOLDS, rng)[0][ends], []
    for fold in range(int(parts.max()) + 1):
        n_unseen = np.sum(parts == fold, axis=1)
        found += _usable(judgements, n_unseen > 0, 2 * n_unseen >= ends.shape[1])
    return found


def _split_judgements(judgements: Judgements, n_folds: int, rng: np.random.Generator) -> _Splits:
    """Hold out judgements, each answer in about equal shares; of comparisons, a reversed answer is no other one."""
    order = rng.permutation(len(judgements))
    if judgements.kind is not Kind.COMPARISONS:
        order = order[np.argsort(judgements.codes[order], kind="stable")]
    fold = np.empty(len(order), dtype=np.intp)
    fold[order] = np.arange(len(order)) % n_folds
    found = []
    for each in range(n_folds):
        found += _usable(judgements, fold == each, fold == each)
    return found


def _usable(judgements: Judgements, left_out: BoolArray, tested: BoolArray) -> _Splits:
    """The fold, if it holds something out and leaves each answer to be fitted to.

    One judgement of a level that would not be left is fitted to after all.
    """
    codes, fitted = judgements.codes, ~left_out
    if judgements.kind is Kind.LEVELS:
        for level in np.setdiff1d(np.arange(judgements.n_levels), codes[fitted]):
            fitted[np.flatnonzero(codes == level)[0]] = True
    tested = tested & ~fitted
    has_all = judgements.kind is Kind.COMPARISONS or len(np.unique(codes[fitted])) == judgements.n_levels
    if not (has_all and tested.any() and np.sum(fitted) >= 2):
        return []
    return [(np.flatnonzero(fitted), np.flatnonzero(tested))]


# --------------------------------------------------------------------------------------- candidates


class _Candidate(NamedTuple):
    """What is fitted to each fold: `alpha` is that of all judgements together, None for the centre alone."""

    prior: str
    alpha: float | None
    flip_rate: float = 0.0
    rank: int | None = None
    noise: str = "logistic"


@dataclass(frozen=True, eq=False)
class _HeldOut:
    """The margins of held-out judgements by a candidate, NaN where one never was, and their calibrated losses."""

    candidate: _Candidate
    margins: FloatArray
    calibration: _Calibration
    losses: FloatArray
    loss: float
    accuracy: float
    states: tuple[State, ...] = field(repr=False, default=())


class _Space:
    """The judgements in the coordinates of one prior, with the rows of each fold."""

    def __init__(self, judgements: Judgements, settings: Settings, splits: _Splits) -> None:
        self.judgements, self.settings = judgements, settings
        self.prepared = UnitFreeProblem.of(judgements, settings, finds_null=False)
        self.lengths = None if self.prepared.centre is None else to_numpy(self.prepared.lengths)
        self._splits = splits
        self._parts: dict[str, list[tuple[RowSource, Likelihood]]] = {}

    def parts(self, noise: Noise) -> list[tuple[RowSource, Likelihood]]:
        """The rows that each fold is fitted to, and their likelihood."""
        if noise.name not in self._parts:
            rows, likelihood = self.prepared.rows, self.prepared.likelihood(noise)
            compared = np.arange(len(self.judgements), rows.n_rows)  # comparisons beside pairs are never held out
            parts = []
            for train, _ in self._splits:
                part, arrays = rows.take(np.append(train, compared), *likelihood.row_arrays)
                parts.append((part, likelihood.of_rows(arrays, part.total(arrays[1]))))
            self._parts[noise.name] = parts
        return self._parts[noise.name]

    @property
    def n_varying(self) -> int:
        """The number of columns that vary: the mean squared length of the rows."""
        return int(np.sum(self.prepared.coordinates.scales > 0.0))

    def largest_alpha(self, noise: Noise, flip_rate: float = 0.0) -> float:
        """The alpha from which on nothing but the centre is left."""
        settings = self.settings.but(alpha=1.0, flip_rate=flip_rate)
        likelihood = self.prepared.likelihood(noise, flips=flips_of(settings, self.judgements))
        problem = settings.problem(self.prepared.rows, likelihood)
        squared = problem.squared_distances(np.zeros((self.prepared.rows.n_columns, 0)))
        _, evaluation = problem.minimise_threshold(squared, np.ones_like(likelihood.least), 1e-6)
        core = problem.cone.core
        return max(-float(np.linalg.eigvalsh(problem.outer(evaluation.margin_gradient)[core, core])[0]), _NOTHING_LEFT)

    def squared(self, state: State) -> FloatArray:
        """The squared distance of each judgement, the centre included."""
        squared = to_numpy(self.prepared.rows.squared_distances(_factor_of(state)))[: len(self.judgements)]
        return squared if self.lengths is None else squared + state.thresholds[-1] * self.lengths[: len(squared)]

    def metric(self, state: State, noise: Noise) -> Metric | None:
        """A metric to start the last fit from; None if an origin is learned."""
        coordinates = self.prepared.coordinates
        if coordinates.has_constant:
            return None
        multiple = 0.0 if self.lengths is None else float(state.thresholds[-1])
        whole = self.prepared.whole_factor(_factor_of(state), multiple)
        thresholds = state.thresholds[: self.judgements.n_thresholds]
        return Metric.from_factor(coordinates.to_units(whole), thresholds, noise)


# --------------------------------------------------------------------------------------- the search


class _Search:
    """Candidates that are tried on the same folds, one after another."""

    def __init__(self, judgements: Judgements, settings: Settings, groups: Any) -> None:
        """Take judgements into this process, a sample of many, and divide them into folds."""
        n, rng = len(judgements), settings.rng()
        gathered = judgements.in_memory()
        most = int(np.clip(_PER_PARAMETER * packed_size(judgements.n_columns), _FEWEST_USED, _MOST_USED))
        where = sample_rows(len(gathered), most)
        used = gathered.take(where).in_numpy()
        if used.n_rarer < 2 <= gathered.n_rarer:  # a rare answer is not left out
            rare = np.flatnonzero(np.bincount(gathered.codes)[gathered.codes] == gathered.n_rarer)
            where = np.union1d(where, rare[:_MOST_USED])
            used = gathered.take(where).in_numpy()
        self.n_judgements, self.judgements = n, replace(used, annotators=None)
        # Products of many columns are faster on the GPU that has the data.
        is_placed = used.comparisons is None and used.n_columns > _MOST_HERE and is_on_gpu(gathered.data)
        self.placed = self.judgements.with_data(gathered.take(where).data) if is_placed else self.judgements
        self.n = effective_number(np.asarray(used.weights))
        self.settings = settings.but(
            price=_PRICE / self.n,
            device=None,
            verbose=0,
            max_time=None,
            comparison_noise=settings.known_comparison_noise,
        )
        if groups is None:
            ids, by = find_points(used.data), "points"
        else:
            numbered = np.unique(np.asarray(groups), return_inverse=True)[1].reshape(np.shape(groups))
            ids, by = numbered[where], "points" if np.ndim(groups) == 2 else "groups"
        self.ids: Any = None if ids is None else _by_appearance(_turned(ids, used))
        # The points of all judgements, and the share of them that the sample has.
        self.share = len(used) / n
        self.n_points, self.share_of_points = _count_points(self.ids, self.share)
        # So many judgements that a penalty hardly matters, and choosing must not take longer than the fit.
        self.has_plenty = min(n, self.n_points) >= _PLENTY * packed_size(judgements.n_columns)
        is_quick = self.has_plenty and not (settings.chooses_rank or settings.noise == "auto")
        splits, self.held_out = _split(self.judgements, self.ids, by, rng)
        n_tested = np.cumsum([len(test) for _, test in splits])
        enough = _ENOUGH_OF_PLENTY if is_quick else _ENOUGH_HELD_OUT
        self.splits = splits[: int(np.searchsorted(n_tested, enough)) + 1]
        self.weights = used.weights / used.weights.sum()
        self.times = np.zeros(len(used), dtype=np.intp)  # that each is held out
        for _, test in self.splits:
            self.times[test] += 1
        self.tested = self.times > 0
        tested = self.weights[self.tested]
        self.shares = tested / tested.sum()  # the weights of what is held out, summing to one
        rate, rank = settings.flip_rate, None if settings.chooses_rank else settings.known_rank
        # What is set; two flip rates as their mean.
        self.asked = _Candidate(
            prior="zero",
            alpha=None if settings.chooses_alpha else settings.known_alpha,
            flip_rate=0.0 if isinstance(rate, str) else float(np.mean(rate)),
            rank=rank,
            noise="logistic" if settings.noise == "auto" else settings.candidates[0].name,
        )
        self.tried: dict[_Candidate, _HeldOut] = {}
        self._spaces: dict[str, _Space] = {}

    # ------------------------------------------------------------------ one candidate

    def space(self, prior: str) -> _Space:
        if prior not in self._spaces:
            settings = self.settings.but(
                alpha=1.0 if self.settings.chooses_alpha else self.settings.alpha,
                prior=self.settings.prior if prior == "metric" else prior,
                rank=None,
                flip_rate=0.0,
                noise="logistic",
            )
            self._spaces[prior] = _Space(self.placed, settings, self.splits)
        return self._spaces[prior]

    def attempt(self, candidate: _Candidate, near: _HeldOut | None = None) -> _HeldOut:
        """Fit a candidate to each fold, from the fits of another one, and judge it by what was held out."""
        if candidate in self.tried:
            return self.tried[candidate]
        if candidate.alpha is not None and supervisor().is_over:
            raise _TimeOverError
        space, noise = self.space(candidate.prior), get_noise(candidate.noise)
        margins = np.zeros((len(self.judgements), max(self.judgements.n_thresholds, 1)))
        states: list[State] = []
        for number, (part, (train, test)) in enumerate(zip(space.parts(noise), self.splits, strict=True)):
            start = None if near is None or not near.states else near.states[number]
            if candidate.alpha is None:
                state = _plain_state(space.settings.problem(*part))
            else:
                # The noise of fewer judgements needs a larger penalty.
                alpha = candidate.alpha * math.sqrt(len(self.judgements) / len(train))
                settings = space.settings.but(alpha=alpha, flip_rate=candidate.flip_rate, rank=candidate.rank)
                rows, likelihood = part
                flips = flips_of(settings, self.judgements)
                problem, effort = settings.problem(rows, likelihood.with_flips(flips)), (_COMPARED_TOL, _COMPARED_STEPS)
                tol, n_steps = effort if flips is None else (_FLIPPED_TOL, _FLIPPED_STEPS)
                run = solve_roughly(problem, candidate.rank, start, tol=tol, n_steps=n_steps)
                if run.ending is Ending.INTERRUPTED:  # there is no result yet
                    raise KeyboardInterrupt
                state = run.state
            states.append(state)
            squared, thresholds = space.squared(state), state.thresholds[: self.judgements.n_thresholds]
            margins[test] += squared[test, None] - (thresholds if len(thresholds) else 0.0)
        margins /= np.where(self.times > 0, self.times, np.nan)[:, None]
        found = self._judge(candidate, margins, tuple(states))
        self.tried[candidate] = found
        return found

    def _judge(self, candidate: _Candidate, margins: FloatArray, states: tuple[State, ...]) -> _HeldOut:
        noise, rate = get_noise(candidate.noise), candidate.flip_rate
        calibration = _Calibration()
        if self.settings.chooses_alpha and candidate.alpha is not None:
            calibration, _ = self.calibrate(margins, noise, rate)
        calibrated, losses = calibration.applied(margins), np.full(len(margins), np.nan)
        losses[self.tested] = self._losses(calibrated, noise, rate)
        are_right = np.sum(calibrated >= 0.0, axis=1) == self.judgements.codes
        accuracy = float(self.shares @ are_right[self.tested])
        return _HeldOut(
            candidate, margins, calibration, losses, float(self.shares @ losses[self.tested]), accuracy, states
        )

    def _losses(self, margins: FloatArray, noise: Noise, rate: float) -> FloatArray:
        """-log P of each held-out judgement."""
        return _terms(noise, margins[self.tested], self.judgements.codes[self.tested], rate)[0]

    def calibrate(
        self,
        margins: FloatArray,
        noise: Noise,
        rate: float,
        prior: tuple[float, float] = _CALIBRATION_PRIOR,
        rows: BoolArray | None = None,
    ) -> tuple[_Calibration, float]:
        """The likeliest scale and shifts of margins, given normal priors on them, and the mean loss.

        `rows` are those that were held out, unless others are named.

        A penalty shrinks distances and leaves the thresholds free.  Those that suit shrunken probabilities best are
        near the mean of the squared distances, and classify badly if some are much longer than others.
        """
        rows = self.tested if rows is None else rows
        margins, codes, n_shifts = margins[rows], self.judgements.codes[rows], self.judgements.n_thresholds
        shares = self.weights[rows] / self.weights[rows].sum()
        precision = np.repeat(np.array(prior) ** -2.0, [1, n_shifts]) / effective_number(shares)

        def at(calibration: _Calibration, rate: float) -> tuple[FloatArray, FloatArray]:
            """The loss of each judgement, with its derivatives in the logarithm of the scale and in the shifts."""
            loss, slopes = _terms(noise, calibration.applied(margins), codes, rate)
            return loss, np.column_stack([calibration.scale * np.sum(slopes * margins, axis=1), -slopes[:, :n_shifts]])

        if self.ids is not None:  # dependent margins are weaker evidence against the priors
            columns = (at(_Calibration(), 0.0)[1] * shares[:, None]).T
            effects = self._design_effects((column - column.sum() * shares for column in columns), rows)
            precision *= max(effects, default=1.0)

        def risk(x: FloatArray) -> tuple[float, FloatArray]:
            loss, slopes = at(_Calibration.of(x), rate)
            return float(shares @ loss + 0.5 * precision @ x**2), shares @ slopes + precision * x

        start, exactly = np.zeros(1 + n_shifts), {"ftol": 1e-13, "gtol": 1e-7}
        found = _Calibration.of(minimize(risk, start, jac=True, method="L-BFGS-B", options=exactly).x)
        return found, float(shares @ at(found, rate)[0])

    def _design_effects(self, deviations: Iterable[FloatArray], rows: BoolArray) -> list[float]:
        """How many times as large the variance of each sum is as if judgements shared no points."""
        independent = ((each, float(each @ each)) for each in deviations)
        return [variance_of_sum(each, self.ids[rows]) / square for each, square in independent if square > 0.0]

    @cached_property
    def n_tested(self) -> float:
        """The effective number of held-out judgements."""
        return effective_number(self.shares)

    def compare(self, one: _HeldOut, other: _HeldOut) -> tuple[float, float]:
        """By how much the loss of the second is lower, judgement by judgement, and the standard error."""
        difference = (one.losses - other.losses)[self.tested]
        gain = float(self.shares @ difference)
        ids = None if self.ids is None else self.ids[self.tested]
        return gain, math.sqrt(variance_of_sum((difference - gain) * self.shares, ids))

    def is_clearly_better(self, one: _HeldOut, other: _HeldOut, n_errors: float = _CLEARLY) -> bool:
        gain, error = self.compare(other, one)
        return gain > n_errors * error

    # ------------------------------------------------------------------ the order of candidates

    def or_plain(self, best: _HeldOut) -> _HeldOut:
        """The best candidate, or the plain distance where that is not clearly worse."""
        may_be_plain = self._may_be_centred and self.settings.chooses_alpha
        # Contradictory answers may leave nothing of M with any penalty.
        noise, is_zero = get_noise(best.candidate.noise), best.candidate.prior == "zero"
        is_left = not is_zero or self.space("zero").largest_alpha(noise) > _NOTHING_LEFT
        is_better = is_left and self.is_clearly_better(best, self.plain, self._caution)
        return self.plain if may_be_plain and not is_better else best

    def centres(self) -> list[str]:
        """The centres to compare with, the usual one first."""
        prior = self.settings.prior
        if isinstance(prior, Metric):
            return ["metric"]
        if prior in CENTRES:
            return [str(prior)]
        if self.judgements.n_columns > _MOST_STANDARDIZED:
            return ["euclidean"]
        return ["euclidean", "standardized"] if self._has_one_unit else ["standardized", "euclidean"]

    @cached_property
    def _has_one_unit(self) -> bool:
        """Whether the columns may all have the same unit, so that their plain distance means something."""
        if self.judgements.n_columns > _MOST_STANDARDIZED:
            return True
        scales = self.space("zero").prepared.coordinates.scales
        usual = np.quantile(scales[scales > 0.0], 0.5, method="lower")  # of two columns, the smaller
        return bool(scales.max(initial=0.0) <= _SAME_UNIT * usual)

    @property
    def _is_plain_likely(self) -> bool:
        """Whether the plain distance is a good guess: it was asked for, or is of columns with one unit."""
        return not self.settings.prior_is("auto") or self._has_one_unit

    def choose_prior(self, centres: list[str]) -> _HeldOut:
        """The best penalty, or the plain distance."""
        first, *others = centres[:1] if self.has_plenty else centres
        self.plain = self.attempt(self.asked._replace(prior=first, alpha=None, rank=None))
        for name in others:
            other = self.attempt(self.plain.candidate._replace(prior=name))
            self.plain = other if self.is_clearly_better(other, self.plain) else self.plain
        if self.settings.alpha == 0:
            return self.attempt(self.asked)
        # Of fewer points than columns, zero would leave most directions of new points out of the distance.
        has_span = self.n_points >= self.judgements.n_columns
        may_be_zero = self.settings.prior_is("zero") or (self.settings.prior_is("auto") and has_span)
        centre = self.plain.candidate.prior
        if not self._may_be_centred or (may_be_zero and self.has_plenty):
            best = self._follow(self._begin("zero"))
            if self.has_plenty and self.settings.chooses_alpha:
                # Directions in which nearly collinear columns hardly vary may matter, where a penalty is largest.
                assert best.candidate.alpha is not None
                free = self.attempt(best.candidate._replace(alpha=_NEARLY_FREE * best.candidate.alpha), best)
                best = free if self.is_clearly_better(free, best, 1.0) else best
            return best
        centred = self._begin(centre)
        if not may_be_zero:
            return self._follow(centred)
        zero = self.attempt(centred.candidate._replace(prior="zero"))
        if self._is_plain_likely:
            is_few = self.n < _PER_COLUMN * self.judgements.n_columns
            starts_centred = is_few or centred.loss < zero.loss
        else:
            starts_centred = self.is_clearly_better(centred, zero, _BETTER_CENTRE)
        begun, other = (centred, zero) if starts_centred else (zero, centred)
        best = self._follow(begun)
        if not self.is_clearly_better(begun, other):
            # Another centre counts the columns differently, which may matter more than alpha.
            other = self.attempt(best.candidate._replace(prior=other.candidate.prior), other)
            best = self._follow(other) if self.is_clearly_better(other, best, 1.0) else best
        return best

    @property
    def _may_be_centred(self) -> bool:
        """Whether the result may be the plain distance, or have it as a part."""
        return self.settings.alpha != 0 and not self.settings.prior_is("zero") and self.settings.rank is None

    @property
    def _caution(self) -> float:
        """By how many standard errors a learned metric must be better than the plain distance."""
        if not self._is_plain_likely:
            return 0.0
        return float(np.clip(_PER_COLUMN * self.judgements.n_columns / self.n, _LEAST_CAUTION, _CLEARLY))

    @property
    def _chooses_noise(self) -> bool:
        """Without a penalty, likelihoods can be compared instead."""
        return self.settings.noise == "auto" and self.settings.alpha != 0

    def _begin(self, prior: str) -> _HeldOut:
        """The first candidate of a path of alpha, or the only one."""
        space, first = self.space(prior), self.asked.alpha
        if first is None:
            first = _FIRST_ALPHA * math.sqrt(space.n_varying / self.n)
            if self.has_plenty:
                first /= _LONG_ALPHA_FACTOR
            else:
                first = min(first, max(space.largest_alpha(get_noise(self.asked.noise)) / 4.0, _LEAST_FIRST))
        return self.attempt(self.asked._replace(prior=prior, alpha=first))

    def _follow(self, begin: _HeldOut, *, turns: bool = True) -> _HeldOut:
        """Follow the path of alpha down as long as the held-out loss falls or, if it `turns` and does not, up.

        Plenty of judgements need no larger one.
        """
        best, nats = begin, _NATS_OF_A_STEP / self.n_tested
        signs = (-1, 1) if turns and not self.has_plenty else (-1,)
        for sign in signs if self.settings.chooses_alpha else ():
            if best is not begin:
                break
            last = begin
            worth = _WORTH_LOSING if sign > 0 and begin.candidate.prior == "zero" else _WORTH_A_STEP
            for number in range(_MOST_ALPHA_STEPS):
                assert last.candidate.alpha is not None
                factor = (_ALPHA_FACTOR if number < _SHORT_ALPHA_STEPS else _LONG_ALPHA_FACTOR) ** sign
                last = self.attempt(last.candidate._replace(alpha=factor * last.candidate.alpha), last)
                gain, error = self.compare(best, last)
                if gain <= (_LESS if self.has_plenty else 1.0) * max(worth * error, nats):
                    break
                best = last
        return best

    def choose_noise(self, best: _HeldOut) -> _HeldOut:
        if not self._chooses_noise:
            return best
        others = [self.attempt(best.candidate._replace(noise=each.name), best) for each in self.settings.candidates]
        return min(others, key=lambda each: each.loss)

    def choose_flips(self, best: _HeldOut) -> _HeldOut:
        """The rate that held-out margins suggest, with smaller and smaller alphas as long as that helps; and again.

        With flips, labels that contradict the others pull less, so that a smaller alpha is better; and its margins
        tell the rate better.  Those of a large alpha are hardly scattered, and may tell nothing of it.
        """
        codes = self.judgements.codes[self.tested]
        n_others = len(codes) - np.bincount(codes).max()
        is_told = self.judgements.kind is Kind.COMPARISONS or n_others >= _FEWEST_OTHERS
        is_told = is_told and isinstance(self.settings.flip_rate, str)
        if best.candidate.alpha is None or self.n_tested < _FEWEST_FOR_FLIPS or not is_told:
            return best
        if self.has_plenty:
            return self._choose_flips_of_plenty(best)
        for round_ in range(_FLIP_ROUNDS):
            rate = self._suspected_rate(best.margins, best.candidate)[0] or (_FIRST_RATE if round_ == 0 else 0.0)
            present = best.candidate.flip_rate
            if rate == present or (present > 0.0 and abs(rate - present) < _SAME_RATE):
                break
            found = self.attempt(best.candidate._replace(flip_rate=rate), best)
            if self.settings.chooses_alpha and not self.is_clearly_better(best, found):
                found = self._follow(found, turns=False)
            if (best.loss - found.loss) * self.n_tested < _EVIDENCE_OF_FLIPS:
                break
            best = found
        return best

    def _choose_flips_of_plenty(self, best: _HeldOut) -> _HeldOut:
        """The rate that the margins of all judgements suggest: that many per parameter are hardly overfitted."""
        space, state = self.space(best.candidate.prior), best.states[0]
        thresholds = state.thresholds[: self.judgements.n_thresholds]
        margins = space.squared(state)[:, None] - (thresholds if len(thresholds) else 0.0)
        everyone = np.ones(len(margins), dtype=bool)
        rate, gain = self._suspected_rate(margins, best.candidate, everyone)
        if gain * self.n < _EVIDENCE_OF_PLENTY:
            return best
        found = self.attempt(best.candidate._replace(flip_rate=rate), best)
        found = self._follow(found, turns=False)
        return best if self.is_clearly_better(best, found, 1.0) else found

    def _suspected_rate(
        self, margins: FloatArray, candidate: _Candidate, rows: BoolArray | None = None
    ) -> tuple[float, float]:
        """The likeliest flip rate of margins whose scale is free, and by how much it lowers the mean loss."""
        noise, found, n_worse = get_noise(candidate.noise), 0.0, 0
        without = lowest = self.calibrate(margins, noise, 0.0, _WIDE_PRIOR, rows)[1]
        for rate in _RATES:
            loss = self.calibrate(margins, noise, rate, _WIDE_PRIOR, rows)[1]
            n_worse = 0 if loss < lowest else n_worse + 1
            found, lowest = (rate, loss) if loss < lowest else (found, lowest)
            if n_worse == 2:
                break
        return found, without - lowest

    def choose_rank(self, best: _HeldOut) -> _HeldOut:
        """The smallest rank whose loss is within a standard error of the lowest."""
        if not self.settings.chooses_rank:
            return best
        largest = max(_factor_of(state).shape[1] for state in best.states)
        ranks = [k for k in (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32, 40, 50, 64) if k < largest]
        limited = [self.attempt(best.candidate._replace(rank=k), best) for k in ranks]
        lowest = min([*limited, best], key=lambda each: each.loss)
        for each in limited:
            gain, error = self.compare(each, lowest)
            if gain <= error:
                return each
        return self.attempt(best.candidate._replace(rank=max(largest, 1)), best)

    # ------------------------------------------------------------------ the result

    def chosen(self, best: _HeldOut) -> Chosen:
        """The mean of all candidates that are like the best one, weighted by their held-out likelihood."""
        candidate, settings = best.candidate, self.settings
        is_plain = candidate.alpha is None
        noise = get_noise(candidate.noise)
        alpha, rate = candidate.alpha, candidate.flip_rate
        if is_plain:
            # More than enough for any part of the judgements to be left with the centre alone.
            alpha = max(4.0 * self.space(candidate.prior).largest_alpha(noise), _ENOUGH_ALPHA)
        elif settings.chooses_alpha:
            alpha, rate = self._mean_of(best)
        # Plenty of judgements tell the rate better than those that were held out.
        has_plenty_of_flips = self.has_plenty and candidate.flip_rate > 0.0
        is_set = not isinstance(settings.flip_rate, str)
        refined = candidate.flip_rate if has_plenty_of_flips else rate
        if candidate.flip_rate > 0.0 and not (is_set or is_plain or has_plenty_of_flips):
            refined = self._best_rate(best) * min(rate / candidate.flip_rate, 1.0)  # the weight of those with flips
        refined = refined if refined >= _LEAST_CHOSEN_RATE else 0.0
        assert alpha is not None
        if settings.chooses_alpha and candidate.prior == "zero":
            alpha = min(alpha, _MOST_OF_LARGEST_ALPHA * self.space("zero").largest_alpha(noise, refined))
        calibration = _Calibration()
        flips: Any = settings.flip_rate
        if isinstance(flips, str) and flips == "auto":
            flips = "estimate" if has_plenty_of_flips else refined
        # Rates that are estimated together with M are not those that margins would be calibrated for.
        if settings.chooses_alpha and not (is_plain or self.has_plenty or isinstance(flips, str | tuple)):
            calibration = self.calibrate(best.margins, noise, refined)[0].thinned(self._thinned)
        is_slight = self.has_plenty and settings.chooses_alpha and self.share <= _SLIGHT_SHARE
        known = self._known(
            candidate._replace(alpha=alpha if is_plain or not settings.chooses_alpha else alpha * self._thinned),
            flips,
            scale=calibration.scale,
            shifts=calibration.shifts,
            whitens=is_slight and candidate.prior == "zero",
        )
        start = None  # a learned metric with a centre has full rank: from there, a solver of low rank would take longer
        if candidate.prior == "zero":
            start = self.space("zero").metric(best.states[0], noise)
        elif is_plain and candidate.prior in CENTRES:
            start = self._plain_metric
        return Chosen(known, start, self._told(candidate, known, refined), self._baseline(best, refined))

    def _known(self, candidate: _Candidate, flips: Any, **more: Any) -> Settings:
        """The settings, with what a candidate has in place of what was to be chosen."""
        settings = self.settings
        return settings.but(
            price=settings.price * self._thinned if settings.chooses_alpha else 0.0,
            alpha=candidate.alpha,
            prior=candidate.prior if settings.prior_is("auto") else settings.prior,
            flip_rate=flips,
            rank=candidate.rank if settings.chooses_rank else settings.rank,
            noise=get_noise(candidate.noise) if self._chooses_noise else settings.noise,
            **more,
        )

    @property
    def _thinned(self) -> float:
        """What alpha is multiplied by if only a sample was used.

        Beyond the sample it falls as 1 / n, and of plenty of judgements, where it could only do harm, faster.  More
        judgements of the same points say less: with them it falls as 1 / sqrt(n).
        """
        return float(self.share**3 if self.has_plenty else math.sqrt(self.share * self.share_of_points))

    def _mean_of(self, best: _HeldOut) -> tuple[float, float]:
        chosen = best.candidate
        near = [
            each
            for each in self.tried.values()
            if each.candidate.alpha is not None
            and each.candidate._replace(alpha=0.0, flip_rate=0.0) == chosen._replace(alpha=0.0, flip_rate=0.0)
        ]
        effects = [1.0]  # how many judgements say as much about these candidates as one that shares no point
        if self.ids is not None:
            differences = [(each.losses - best.losses)[self.tested] for each in near]
            deviations = [(each - float(self.shares @ each)) * self.shares for each in differences]
            effects = self._design_effects(deviations, self.tested) or effects
        excess = np.array([each.loss - best.loss for each in near]) * self.n_tested / float(np.median(effects))
        likelihood = np.exp(-np.maximum(excess, 0.0))
        alphas = np.array([each.candidate.alpha for each in near], dtype=np.float64)
        rates = np.array([each.candidate.flip_rate for each in near])
        alpha = math.exp(float(np.average(np.log(alphas), weights=likelihood**_TEMPERED)))
        return alpha, float(np.average(rates, weights=likelihood))

    def _best_rate(self, best: _HeldOut) -> float:
        """The rate that suits held-out margins best."""
        calibrated = best.calibration.applied(best.margins)
        right = np.exp(-self._losses(calibrated, get_noise(best.candidate.noise), 0.0))
        n_answers = calibrated.shape[1] + 1
        change = (1.0 - n_answers * right) / (n_answers - 1)  # of the probability of each answer per unit of the rate

        def slope(of: float) -> float:
            """That of the likelihood, which is concave in the rate."""
            return float(self.shares @ (change / np.maximum(right + of * change, 1e-300)))

        if slope(0.0) <= 0.0 or slope(_LARGEST_CHOSEN_RATE) >= 0.0:
            return 0.0 if slope(0.0) <= 0.0 else _LARGEST_CHOSEN_RATE
        return float(brentq(slope, 0.0, _LARGEST_CHOSEN_RATE, xtol=1e-6))

    def _told(self, chosen: _Candidate, known: Settings, flip_rate: float) -> Choice:
        factor = self._thinned if self.settings.chooses_alpha else 1.0
        table = []
        for each in self.tried.values():
            _, error = self.compare(each, self.tried[chosen])
            prior, alpha, rate, rank, noise = each.candidate
            weight = math.inf if alpha is None else factor * alpha
            table.append(Tried(prior, weight, rate, rank, noise, each.loss, error, each.accuracy))
        return Choice(
            alpha=known.known_alpha,
            prior=chosen.prior,
            flip_rate=flip_rate,
            rank=known.known_rank,
            noise=chosen.noise,
            scale=known.scale,
            is_plain=chosen.alpha is None,
            n_held_out=int(np.sum(self.tested)),
            n_used=len(self.judgements),
            n_judgements=self.n_judgements,
            held_out=self.held_out,
            table=tuple(table),
        )

    def _baseline(self, best: _HeldOut, rate: float) -> Baseline:
        tested, plain = self.judgements.take(np.flatnonzero(self.tested)), self.plain
        noise, margins, calibration = get_noise(best.candidate.noise), best.margins, _Calibration()
        if self.settings.chooses_alpha and best.candidate.alpha is not None:
            calibration, _ = self.calibrate(margins, noise, rate)
        learned = self._losses(calibration.applied(margins), noise, rate)
        difference = plain.losses[self.tested] - learned
        gain = float(self.shares @ difference)
        ids = None if self.ids is None else self.ids[self.tested]
        scored = Scores(tested, margins[self.tested], noise, rate)
        return Baseline(
            plain=plain.candidate.prior,
            majority_accuracy=scored.majority,
            majority_loss=scored.null_loss,
            plain_accuracy=plain.accuracy,
            plain_loss=plain.loss,
            learned_accuracy=best.accuracy,
            learned_loss=float(self.shares @ learned),
            gain=gain,
            standard_error=math.sqrt(variance_of_sum((difference - gain) * self.shares, ids)),
            n_held_out=int(np.sum(self.tested)),
            metric=self._plain_metric,
        )

    @cached_property
    def _plain_metric(self) -> Metric | None:
        """The plain distance, with thresholds that suit all judgements."""
        candidate = self.plain.candidate
        space = self.space(candidate.prior)
        noise = get_noise(candidate.noise)
        whole = space.prepared.rows, space.prepared.likelihood(noise)
        return space.metric(_plain_state(space.settings.problem(*whole)), noise)

    def without_folds(self, centres: list[str]) -> Chosen:
        """The plain distance, where nothing can be held out; or what the settings leave."""
        settings = self.settings
        is_free = settings.chooses_alpha and not settings.prior_is("zero") and settings.rank is None
        prior, alpha = centres[-1] if is_free else "zero", self.asked.alpha
        if alpha is None:
            largest = self.space(prior).largest_alpha(get_noise(self.asked.noise))
            alpha = max(4.0 * largest, _ENOUGH_ALPHA) if is_free else 0.1 * largest
        rank = 1 if settings.chooses_rank else self.asked.rank
        candidate = self.asked._replace(prior=prior, alpha=alpha, rank=rank)
        known = self._known(candidate, 0.0 if settings.flip_rate == "auto" else settings.flip_rate)
        return Chosen(known, None, self._told(candidate._replace(alpha=None if is_free else alpha), known, 0.0), None)


class _TimeOverError(Exception):
    """The time of the fit is over."""


def _factor_of(state: State) -> FloatArray:
    return psd_factor(state.matrix) if state.factor is None else state.factor


def _turned(ids: IndexArray, judgements: Judgements) -> IndexArray:
    """The points of each comparison in the order of the answer: (a, b, c) reversed is (a, c, b)."""
    if judgements.kind is not Kind.COMPARISONS or ids.ndim == 1:
        return ids
    return np.where(judgements.is_far[:, None], ids, ids[:, TURNED[ids.shape[1]]])


def _count_points(ids: IndexArray | None, share: float) -> tuple[float, float]:
    """The number of points of all judgements, of which this share was drawn, and the share of the points that it has.

    Of m points, k ends drawn at random meet m (1 - exp(-k / m)).  Where points are not shared, or not known, their
    number grows with that of the judgements.
    """
    if ids is None or ids.ndim == 1:
        return math.inf, share
    n_ends, n_met = ids.size, int(ids.max()) + 1
    if share == 1.0:
        return n_met, 1.0
    m = float(n_met)
    for _ in range(100):
        m = min(n_met / -math.expm1(-n_ends / m), 1e3 * n_met)
    n_all = m * -math.expm1(-n_ends / share / m)
    return n_all, n_met / n_all


def _by_appearance(ids: IndexArray) -> IndexArray:
    """Number groups or points in the order in which they first appear: how they were numbered must not change folds."""
    _, first, which = np.unique(ids, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[which].reshape(ids.shape)


def _plain_state(problem: Problem) -> State:
    """The centre alone, or nothing, with the best thresholds."""
    nothing = np.zeros((problem.n_directions, 0))
    squared, guess = problem.squared_distances(nothing), np.ones_like(problem.cone.least)
    thresholds, _ = problem.minimise_threshold(squared, guess, 1e-9)
    return State.at(nothing @ nothing.T, *thresholds)
