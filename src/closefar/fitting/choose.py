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

from closefar.arrays import TURNED, BoolArray, FloatArray, IndexArray, to_numpy
from closefar.fitting.problem import UnitFreeProblem, flipped_likelihood
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
from closefar.model import Metric
from closefar.model.thresholds import level_flips
from closefar.noise import Noise, get_noise
from closefar.packed import packed_size
from closefar.solve import Objective, Passes, State, interval_terms, psd_factor, solve_roughly, supervisor

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
_FLIPPED_TOL, _FLIPPED_STEPS = 3e-3, 25  # a likelihood that is not convex: steps shrink slowly
_CALIBRATION_STEPS = 20  # of Newton, at most: they end earlier, by the slope
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

    def to_json(self, asked: Settings) -> dict[str, Any]:
        """The settings that differ from those that were asked for, and how they were chosen."""
        changed = {name: value for name, value in vars(self.settings).items() if value is not getattr(asked, name)}
        if "noise" in changed:
            changed["noise"] = get_noise(changed["noise"]).name
        found: dict[str, Any] = {"settings": changed, "choice": self.choice and vars(self.choice)}
        if self.baseline is not None:
            metric = self.baseline.metric
            plain = None if metric is None else (metric.factor.tolist(), metric.thresholds, metric.noise.name)
            found["baseline"] = {**vars(self.baseline), "metric": plain}
        return found

    @classmethod
    def from_json(cls, found: dict[str, Any], asked: Settings) -> Chosen:
        lists = {name: tuple(value) for name, value in found["settings"].items() if isinstance(value, list)}
        choice, baseline = found["choice"], found.get("baseline")
        if choice is not None:
            choice = Choice(**{**choice, "table": tuple(Tried(*row) for row in choice["table"])})
        if baseline is not None:
            plain = baseline["metric"]
            baseline = Baseline(**{**baseline, "metric": None if plain is None else Metric.from_factor(*plain)})
        return cls(asked.but(**found["settings"] | lists), None, choice, baseline)


def choose_settings(judgements: Judgements, settings: Settings, groups: Any = None) -> Chosen:
    """Choose what the settings leave open, on judgements of positive weight."""
    if not settings.has_choice:
        return Chosen(settings)
    with display().stage("choosing the penalty on held-out judgements"):
        found = _Search(judgements, settings, groups).run()
    # The search is local, and takes comparisons beside pairs to be as noisy as these; the last fit is as asked for.
    kept = {name: getattr(settings, name) for name in ("device", "verbose", "max_time", "comparison_noise")}
    return found._replace(settings=found.settings.but(**kept))


# --------------------------------------------------------------------------------------- what judgements say


class _Answers:
    """Judgements as levels, each an interval between two thresholds; the margin of a comparison has no threshold."""

    def __init__(self, judgements: Judgements) -> None:
        self.codes = judgements.codes
        self.n_thresholds = judgements.n_thresholds
        self.n_margins = max(judgements.n_thresholds, 1)

    def are_right(self, margins: FloatArray) -> BoolArray:
        right: BoolArray = np.sum(margins >= 0.0, axis=1) == self.codes
        return right

    def floor(self, rate: float) -> tuple[float, float]:
        """What flips add to each probability, and the share that is kept."""
        each, rest = level_flips(rate, self.n_margins + 1)
        return float(each), float(rest)

    def features(self, margins: FloatArray, rows: BoolArray) -> list[FloatArray]:
        """The derivative of each end of the interval of thresholds in (scale, shift of each threshold)."""
        codes, margins = self.codes[rows], margins[rows]
        found = []
        for threshold in (codes - 1, codes):
            at = np.flatnonzero((threshold >= 0) & (threshold < self.n_margins))
            feature = np.zeros((len(codes), 1 + self.n_thresholds))
            feature[at, 0] = margins[at, threshold[at]]
            if self.n_thresholds > 0:
                feature[at, 1 + threshold[at]] = -1.0
            found.append(feature)
        return found

    def losses(self, ends: list[FloatArray], rows: BoolArray, noise: Noise, order: int) -> tuple[Any, ...]:
        """The loss given each end, its first derivatives in them, and (i, j, second derivative) of each two."""
        codes = self.codes[rows]
        # Thresholds of levels that a fold has none of may be equal, or cross when they are moved.
        apart = np.minimum(ends[1], ends[0] - 1e-6 * (1.0 + np.abs(ends[0])))
        has_low, has_up = codes > 0, codes < self.n_margins
        low = np.where(has_low, ends[0], np.inf)
        up = np.where(has_up, np.where(has_low, apart, ends[1]), -np.inf)
        found = interval_terms(noise, low, up, max(order, 1))
        if order == 0:
            return (found.loss,)
        return (found.loss, [-found.low, -found.up], [(0, 0, found.low_low), (0, 1, found.low_up), (1, 1, found.up_up)])


class _Calibration(NamedTuple):
    """What margins are multiplied by, and what is then taken off the margin from each threshold."""

    scale: float = 1.0
    shifts: tuple[float, ...] = ()

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
        self._parts: dict[str, list[Objective]] = {}

    def objectives(self, noise: Noise) -> list[Objective]:
        """The risk of what each fold is fitted to."""
        if noise.name not in self._parts:
            rows, likelihood = self.prepared.rows, self.prepared.likelihood(noise)
            compared = np.arange(len(self.judgements), rows.n_rows)  # comparisons beside pairs are never held out
            parts = []
            for train, _ in self._splits:
                part, arrays = rows.take(np.append(train, compared), *likelihood.row_arrays)
                parts.append(Objective(part, likelihood.of_sample(part, arrays), Passes()))
            self._parts[noise.name] = parts
        return self._parts[noise.name]

    @property
    def n_varying(self) -> int:
        """The number of columns that vary: the mean squared length of the rows."""
        return int(np.sum(self.prepared.coordinates.scales > 0.0))

    def largest_alpha(self, noise: Noise, flip_rate: float = 0.0) -> float:
        """The alpha from which on nothing but the centre is left."""
        settings, likelihood = self.settings.but(alpha=1.0, flip_rate=flip_rate), self.prepared.likelihood(noise)
        objective = Objective(self.prepared.rows, likelihood, Passes())
        flipped = flipped_likelihood(likelihood, settings, 1.0)
        objective = objective if flipped is None else objective.with_likelihood(flipped)
        problem = settings.options.problem(objective)
        squared = objective.squared_distances(np.zeros((self.prepared.rows.n_columns, 0)))
        _, evaluation = problem.minimise_threshold(squared, np.ones_like(likelihood.least), 1e-6)
        core = problem.cone.core
        return max(-float(np.linalg.eigvalsh(objective.gradient(evaluation)[core, core])[0]), _NOTHING_LEFT)

    def squared(self, state: State) -> FloatArray:
        """The squared distance of each judgement, the centre included."""
        factor = psd_factor(state.matrix) if state.factor is None else state.factor
        squared = to_numpy(self.prepared.rows.squared_distances(factor))[: len(self.judgements)]
        return squared if self.lengths is None else squared + state.thresholds[-1] * self.lengths[: len(squared)]

    def metric(self, state: State, noise: Noise) -> Metric | None:
        """A metric to start the last fit from; None if an origin is learned."""
        coordinates = self.prepared.coordinates
        if coordinates.has_constant:
            return None
        factor = psd_factor(state.matrix) if state.factor is None else state.factor
        multiple = 0.0 if self.lengths is None else float(state.thresholds[-1])
        whole = self.prepared.whole_factor(factor, multiple)
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
        self.n_points, self.share_of_points = _count_points(self.ids, len(used) / n)
        # So many judgements that a penalty hardly matters, and choosing must not take longer than the fit.
        self.has_plenty = min(n, self.n_points) >= _PLENTY * packed_size(judgements.n_columns)
        is_quick = self.has_plenty and not (settings.chooses_rank or settings.noise == "auto")
        splits, self.held_out = _split(self.judgements, self.ids, by, rng)
        n_tested = np.cumsum([len(test) for _, test in splits])
        enough = _ENOUGH_OF_PLENTY if is_quick else _ENOUGH_HELD_OUT
        self.splits = splits[: int(np.searchsorted(n_tested, enough)) + 1]
        self.answers = _Answers(self.judgements)
        self.weights = used.weights / used.weights.sum()
        self.times = np.zeros(len(used), dtype=np.intp)  # that each is held out
        for _, test in self.splits:
            self.times[test] += 1
        self.tested = self.times > 0
        tested = self.weights[self.tested]
        self.shares = tested / tested.sum()  # the weights of what is held out, summing to one
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
            self._spaces[prior] = _Space(self.judgements, settings, self.splits)
        return self._spaces[prior]

    def attempt(self, candidate: _Candidate, near: _HeldOut | None = None) -> _HeldOut:
        """Fit a candidate to each fold, from the fits of another one, and judge it by what was held out."""
        if candidate in self.tried:
            return self.tried[candidate]
        if candidate.alpha is not None and supervisor().is_over:
            raise _TimeOverError
        space, noise = self.space(candidate.prior), get_noise(candidate.noise)
        margins = np.zeros((len(self.judgements), self.answers.n_margins))
        states: list[State] = []
        for number, (objective, (train, test)) in enumerate(zip(space.objectives(noise), self.splits, strict=True)):
            start = None if near is None or not near.states else near.states[number]
            state = self._solve(space, objective, candidate, len(train), start)
            states.append(state)
            squared, thresholds = space.squared(state), state.thresholds[: self.judgements.n_thresholds]
            margins[test] += squared[test, None] - (thresholds if len(thresholds) else 0.0)
        margins /= np.where(self.times > 0, self.times, np.nan)[:, None]
        found = self._judge(candidate, margins, tuple(states))
        self.tried[candidate] = found
        return found

    def _solve(
        self, space: _Space, objective: Objective, candidate: _Candidate, n_train: int, start: State | None
    ) -> State:
        if candidate.alpha is None:
            problem = space.settings.options.problem(objective)
            nothing = np.zeros((objective.n_directions, 0))
            squared = objective.squared_distances(nothing)
            least = objective.likelihood.least
            thresholds, _ = problem.minimise_threshold(squared, np.ones_like(least), 1e-9)
            return State.at(nothing @ nothing.T, *thresholds)
        # The noise of fewer judgements needs a larger penalty.
        alpha = candidate.alpha * math.sqrt(len(self.judgements) / n_train)
        settings = space.settings.but(alpha=alpha, flip_rate=candidate.flip_rate, rank=candidate.rank)
        flipped = flipped_likelihood(objective.likelihood, settings, 1.0)
        if flipped is None:
            return solve_roughly(objective, settings.options, start)
        objective = objective.with_likelihood(flipped)
        return solve_roughly(objective, settings.options, start, tol=_FLIPPED_TOL, n_steps=_FLIPPED_STEPS)

    def _judge(self, candidate: _Candidate, margins: FloatArray, states: tuple[State, ...]) -> _HeldOut:
        noise, rate = get_noise(candidate.noise), candidate.flip_rate
        calibration = _Calibration()
        if self.settings.chooses_alpha and candidate.alpha is not None:
            calibration, _ = self.calibrate(margins, noise, rate)
        calibrated, losses = calibration.applied(margins), np.full(len(margins), np.nan)
        losses[self.tested] = self._losses(calibrated, noise, rate)
        accuracy = float(self.shares @ self.answers.are_right(calibrated)[self.tested])
        return _HeldOut(
            candidate, margins, calibration, losses, float(self.shares @ losses[self.tested]), accuracy, states
        )

    def _losses(self, margins: FloatArray, noise: Noise, rate: float) -> FloatArray:
        """-log P of each held-out judgement."""
        identity = np.eye(1, 1 + self.answers.n_thresholds)[0]
        ends = [each @ identity for each in self.answers.features(margins, self.tested)]
        loss: FloatArray = self.answers.losses(ends, self.tested, noise, 0)[0]
        floor, kept = self.answers.floor(rate)
        return loss if rate == 0.0 else -np.log(floor + kept * np.exp(-loss))

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
        answers, (scale_prior, shift_prior) = self.answers, prior
        rows = self.tested if rows is None else rows
        shares = self.weights[rows] / self.weights[rows].sum()
        features, n = answers.features(margins, rows), 1 + answers.n_thresholds
        floor, kept = answers.floor(rate)
        precision = np.append(scale_prior**-2, np.full(n - 1, shift_prior**-2)) / effective_number(shares)
        if self.ids is not None:  # dependent margins are weaker evidence against the priors
            precision *= self._design_effect_of_margins(features, shares, noise, rows)

        def at(x: FloatArray) -> tuple[float, float, Any, Any, FloatArray]:
            loss, first, second = answers.losses([each @ x for each in features], rows, noise, 2)
            weights = shares
            if rate > 0.0:
                right = np.exp(-loss)
                probability = floor + kept * right
                loss, weights = -np.log(probability), shares * kept * right / probability
            from_prior = np.append(math.log(x[0]), x[1:])
            risk = float(shares @ loss)
            return risk + 0.5 * float(precision @ from_prior**2), risk, first, second, weights

        x = np.eye(1, n)[0]
        value, risk, first, second, weights = at(x)
        for _ in range(_CALIBRATION_STEPS):
            gradient = precision * np.append(math.log(x[0]) / x[0], x[1:])
            gradient += sum(each.T @ (weights * slope) for each, slope in zip(features, first, strict=True))
            hessian = np.diag(precision * np.append(x[0] ** -2, np.ones(n - 1)))
            for i, j, bend in second:
                part = features[i].T @ (features[j] * (weights * bend)[:, None])
                hessian += part if i == j else part + part.T
            step = -np.linalg.solve(hessian + 1e-12 * np.trace(hessian) * np.eye(n), gradient)
            if not -float(gradient @ step) >= 1e-8:
                break
            length = min(1.0, 0.9 * x[0] / max(-float(step[0]), 1e-300))
            while length > 1e-3:
                moved = x + length * step
                there = at(moved)
                if there[0] < value:
                    break
                length *= 0.3
            else:
                break
            x, (value, risk, first, second, weights) = moved, there
        return _Calibration(float(x[0]), tuple(x[1:].tolist())), risk

    def _design_effect_of_margins(
        self, features: list[FloatArray], shares: FloatArray, noise: Noise, rows: BoolArray
    ) -> float:
        """How many margins say as much about their calibration as one that shares no point with others."""
        identity = np.eye(1, features[0].shape[1])[0]
        _, first, _ = self.answers.losses([each @ identity for each in features], rows, noise, 2)
        scores = np.asarray(sum(each * (shares * slope)[:, None] for each, slope in zip(features, first, strict=True)))
        return max(self._design_effects((column - column.sum() * shares for column in scores.T), rows), default=1.0)

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

    def run(self) -> Chosen:
        """Try candidates in turn, and return the settings for all judgements."""
        settings = self.settings
        centre = self._centres()
        if not self.splits:
            return self._without_folds(centre)
        best: _HeldOut | None = None
        try:
            best = self._choose_prior(centre)
            best = self._choose_noise(best)
            if isinstance(settings.flip_rate, str):
                best = self._choose_flips(best)
            best = self._choose_rank(best)
            may_be_plain = self._may_be_centred and settings.chooses_alpha
            # Contradictory answers may leave nothing of M with any penalty.
            noise, is_zero = get_noise(best.candidate.noise), best.candidate.prior == "zero"
            is_left = not is_zero or self.space("zero").largest_alpha(noise) > _NOTHING_LEFT
            is_better = is_left and self.is_clearly_better(best, self.plain, self._caution)
            best = self.plain if may_be_plain and not is_better else best
        except _TimeOverError:
            best = min(self.tried.values(), key=lambda each: each.loss)
        return self._chosen(best)

    def _centres(self) -> list[str]:
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

    def _choose_prior(self, centres: list[str]) -> _HeldOut:
        """The best penalty, or the plain distance."""
        noise = self._first_noise()
        centres = centres[:1] if self.has_plenty else centres
        self.plain, *others = (self.attempt(_Candidate(name, None, self._set_rate, noise=noise)) for name in centres)
        for other in others:
            self.plain = other if self.is_clearly_better(other, self.plain) else self.plain
        if self.settings.alpha == 0:
            return self.attempt(_Candidate("zero", 0.0, self._set_rate, self._set_rank, noise))
        # Of fewer points than columns, zero would leave most directions of new points out of the distance.
        has_span = self.n_points >= self.judgements.n_columns
        may_be_zero = self.settings.prior_is("zero") or (self.settings.prior_is("auto") and has_span)
        centre = self.plain.candidate.prior
        if not self._may_be_centred or (may_be_zero and self.has_plenty):
            best = self._follow(self._begin("zero", noise))
            if self.has_plenty and self.settings.chooses_alpha:
                # Directions in which nearly collinear columns hardly vary may matter, where a penalty is largest.
                assert best.candidate.alpha is not None
                free = self.attempt(best.candidate._replace(alpha=_NEARLY_FREE * best.candidate.alpha), best)
                best = free if self.is_clearly_better(free, best, 1.0) else best
            return best
        centred = self._begin(centre, noise)
        if not may_be_zero:
            return self._follow(centred)
        zero = self.attempt(centred.candidate._replace(prior="zero"))
        if self._is_plain_likely:
            is_few = self.n < _PER_COLUMN * self.judgements.n_columns
            starts_centred = is_few or centred.loss < zero.loss
        else:
            starts_centred = self.is_clearly_better(centred, zero, _BETTER_CENTRE)
        first, other = (centred, zero) if starts_centred else (zero, centred)
        best = self._follow(first)
        if not self.is_clearly_better(first, other):
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

    def _first_noise(self) -> str:
        return "logistic" if self.settings.noise == "auto" else self.settings.candidates[0].name

    def _begin(self, prior: str, noise: str) -> _HeldOut:
        """The first candidate of a path of alpha, or the only one."""
        if not self.settings.chooses_alpha:
            return self.attempt(_Candidate(prior, self.settings.known_alpha, self._set_rate, self._set_rank, noise))
        space = self.space(prior)
        first = _FIRST_ALPHA * math.sqrt(space.n_varying / self.n)
        if self.has_plenty:
            first /= _LONG_ALPHA_FACTOR
        else:
            first = min(first, max(space.largest_alpha(get_noise(noise)) / 4.0, _LEAST_FIRST))
        return self.attempt(_Candidate(prior, first, self._set_rate, self._set_rank, noise))

    @property
    def _set_rate(self) -> float:
        """The flip rate, if it is set: two of them as their mean."""
        rate = self.settings.flip_rate
        return 0.0 if isinstance(rate, str) else float(np.mean(rate))

    @property
    def _set_rank(self) -> int | None:
        """The largest rank, if it is not to be chosen."""
        return None if self.settings.chooses_rank else self.settings.known_rank

    def _follow(self, begin: _HeldOut) -> _HeldOut:
        """Follow the path of alpha down as long as the held-out loss falls or, if it does not, up.

        Plenty of judgements need no larger one.
        """
        if not self.settings.chooses_alpha:
            return begin
        best = self._descend(begin, -1)
        return best if best is not begin or self.has_plenty else self._descend(begin, 1)

    def _descend(self, begin: _HeldOut, sign: int) -> _HeldOut:
        """The best of smaller and smaller alphas (sign -1), or of larger ones, as long as they are better."""
        best = last = begin
        worth = _WORTH_LOSING if sign > 0 and begin.candidate.prior == "zero" else _WORTH_A_STEP
        nats, less = _NATS_OF_A_STEP / self.n_tested, _LESS if self.has_plenty else 1.0
        for number in range(_MOST_ALPHA_STEPS):
            assert last.candidate.alpha is not None
            factor = (_ALPHA_FACTOR if number < _SHORT_ALPHA_STEPS else _LONG_ALPHA_FACTOR) ** sign
            last = self.attempt(last.candidate._replace(alpha=factor * last.candidate.alpha), last)
            gain, error = self.compare(best, last)
            if gain <= less * max(worth * error, nats):
                break
            best = last
        return best

    def _choose_noise(self, best: _HeldOut) -> _HeldOut:
        if not self._chooses_noise:
            return best
        others = [self.attempt(best.candidate._replace(noise=each.name), best) for each in self.settings.candidates]
        return min(others, key=lambda each: each.loss)

    def _choose_flips(self, best: _HeldOut) -> _HeldOut:
        """The rate that held-out margins suggest, with smaller and smaller alphas as long as that helps; and again.

        With flips, labels that contradict the others pull less, so that a smaller alpha is better; and its margins
        tell the rate better.  Those of a large alpha are hardly scattered, and may tell nothing of it.
        """
        codes = self.judgements.codes[self.tested]
        n_others = len(codes) - np.bincount(codes).max()
        is_told = self.judgements.kind is Kind.COMPARISONS or n_others >= _FEWEST_OTHERS
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
                found = self._descend(found, -1)
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
        found = self._descend(found, -1) if self.settings.chooses_alpha else found
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

    def _best_rate(self, right: FloatArray) -> float:
        """The likeliest flip rate, given the probability of each answer without flips: concave in it."""
        low, high = 0.0, _LARGEST_CHOSEN_RATE
        unit_floor, unit_kept = self.answers.floor(1e-6)
        slope_floor, slope_kept = unit_floor / 1e-6, (unit_kept - 1.0) / 1e-6  # both are linear in the rate

        def slope(rate: float) -> float:
            floor, kept = self.answers.floor(rate)
            return float(self.shares @ ((slope_floor + slope_kept * right) / (floor + kept * right + 1e-300)))

        if slope(0.0) <= 0.0:
            return 0.0
        if slope(high) >= 0.0:
            return high
        for _ in range(20):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if slope(middle) > 0.0 else (low, middle)
        return 0.5 * (low + high)

    def _choose_rank(self, best: _HeldOut) -> _HeldOut:
        """The smallest rank whose loss is within a standard error of the lowest."""
        if not self.settings.chooses_rank:
            return best
        largest = max(_rank_of(state) for state in best.states)
        ranks = [k for k in (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32, 40, 50, 64) if k < largest]
        limited = [self.attempt(best.candidate._replace(rank=k), best) for k in ranks]
        lowest = min([*limited, best], key=lambda each: each.loss)
        for each in limited:
            gain, error = self.compare(each, lowest)
            if gain <= error:
                return each
        return self.attempt(best.candidate._replace(rank=max(largest, 1)), best)

    # ------------------------------------------------------------------ the result

    def _chosen(self, best: _HeldOut) -> Chosen:
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
        if not (is_set or is_plain or has_plenty_of_flips or rate == 0.0):
            refined = self._refined_rate(best, rate)
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
        share = len(self.judgements) / self.n_judgements
        is_slight = self.has_plenty and settings.chooses_alpha and share <= _SLIGHT_SHARE
        known = settings.but(
            price=settings.price * self._thinned if settings.chooses_alpha else 0.0,
            alpha=alpha if is_plain or not settings.chooses_alpha else alpha * self._thinned,
            prior=settings.prior if candidate.prior == "metric" else candidate.prior,
            flip_rate=flips,
            rank=candidate.rank if settings.chooses_rank else settings.rank,
            noise=noise if self._chooses_noise else settings.noise,
            scale=calibration.scale,
            shifts=calibration.shifts,
            whitens=is_slight and candidate.prior == "zero",
        )
        start = None  # a learned metric with a centre has full rank: from there, a solver of low rank would take longer
        if candidate.prior == "zero":
            start = self.space("zero").metric(best.states[0], noise)
        elif is_plain and candidate.prior in CENTRES:
            start = self._plain_metric
        return Chosen(known, start, self._told(best, known, refined), self._baseline(best, refined))

    @property
    def _thinned(self) -> float:
        """What alpha is multiplied by if only a sample was used.

        Beyond the sample it falls as 1 / n, and of plenty of judgements, where it could only do harm, faster.  More
        judgements of the same points say less: with them it falls as 1 / sqrt(n).
        """
        share = len(self.judgements) / self.n_judgements
        return float(share**3 if self.has_plenty else math.sqrt(share * self.share_of_points))

    def _mean_of(self, best: _HeldOut) -> tuple[float, float]:
        chosen = best.candidate
        near = [
            each
            for each in self.tried.values()
            if each.candidate.alpha is not None
            and each.candidate._replace(alpha=0.0, flip_rate=0.0) == chosen._replace(alpha=0.0, flip_rate=0.0)
        ]
        excess = np.array([each.loss - best.loss for each in near]) * self.n_tested / self._design_effect(best, near)
        likelihood = np.exp(-np.maximum(excess, 0.0))
        alphas = np.array([each.candidate.alpha for each in near], dtype=np.float64)
        rates = np.array([each.candidate.flip_rate for each in near])
        alpha = math.exp(float(np.average(np.log(alphas), weights=likelihood**_TEMPERED)))
        return alpha, float(np.average(rates, weights=likelihood))

    def _design_effect(self, best: _HeldOut, near: list[_HeldOut]) -> float:
        """How many judgements say as much about these candidates as one that shares no point with others."""
        if self.ids is None:
            return 1.0
        differences = [(each.losses - best.losses)[self.tested] for each in near]
        deviations = [(each - float(self.shares @ each)) * self.shares for each in differences]
        return float(np.median(self._design_effects(deviations, self.tested) or [1.0]))

    def _refined_rate(self, best: _HeldOut, rate: float) -> float:
        """The rate that suits held-out margins best, times the weight of candidates with flips."""
        if best.candidate.flip_rate == 0.0:
            return rate
        calibrated = best.calibration.applied(best.margins)
        right = np.exp(-self._losses(calibrated, get_noise(best.candidate.noise), 0.0))
        return self._best_rate(right) * min(rate / best.candidate.flip_rate, 1.0)

    def _told(self, best: _HeldOut, known: Settings, flip_rate: float) -> Choice:
        factor = self._thinned if self.settings.chooses_alpha else 1.0
        table = []
        for each in self.tried.values():
            prior, alpha, rate, rank, noise = each.candidate
            _, error = self.compare(each, best)
            weight = math.inf if alpha is None else factor * alpha
            table.append(Tried(prior, weight, rate, rank, noise, each.loss, error, each.accuracy))
        return Choice(
            alpha=known.known_alpha,
            prior=best.candidate.prior,
            flip_rate=flip_rate,
            rank=best.candidate.rank if self.settings.chooses_rank else self.settings.known_rank,
            noise=best.candidate.noise,
            scale=known.scale,
            is_plain=best.candidate.alpha is None,
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
        shares = np.bincount(tested.codes, self.shares, minlength=max(tested.n_levels, 2))
        is_guess = tested.kind is Kind.COMPARISONS
        return Baseline(
            plain=plain.candidate.prior,
            majority_accuracy=0.5 if is_guess else float(shares.max()),
            majority_loss=math.log(2.0) if is_guess else 0.0 - sum(float(p) * math.log(p) for p in shares if p > 0.0),
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
        objective = Objective(space.prepared.rows, space.prepared.likelihood(noise), Passes())
        return space.metric(self._solve(space, objective, candidate, len(self.judgements), None), noise)

    def _without_folds(self, centres: list[str]) -> Chosen:
        """The plain distance, where nothing can be held out; or what the settings leave."""
        settings = self.settings
        is_free = settings.chooses_alpha and not settings.prior_is("zero") and settings.rank is None
        prior = centres[-1] if is_free else "zero"
        alpha: Any = settings.alpha
        if settings.chooses_alpha:
            space = self.space(prior)
            noise = get_noise(self._first_noise())
            largest = space.largest_alpha(noise)
            alpha = max(4.0 * largest, _ENOUGH_ALPHA) if is_free else 0.1 * largest
        known = settings.but(
            price=settings.price * self._thinned if settings.chooses_alpha else 0.0,
            alpha=alpha,
            prior=settings.prior if prior == "metric" or not settings.prior_is("auto") else prior,
            flip_rate=0.0 if settings.flip_rate == "auto" else settings.flip_rate,
            rank=1 if settings.chooses_rank else settings.rank,
            noise=self._first_noise() if settings.noise == "auto" else settings.noise,
        )
        n = self.n_judgements
        told = Choice(
            float(alpha), prior, 0.0, known.known_rank, self._first_noise(), 1.0, is_free, 0, n, n, "nothing", ()
        )
        return Chosen(known, None, told, None)


class _TimeOverError(Exception):
    """The time of the fit is over."""


def _rank_of(state: State) -> int:
    factor = psd_factor(state.matrix) if state.factor is None else state.factor
    return int(factor.shape[1])


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
    rank = np.empty(len(first), dtype=np.intp)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[which].reshape(ids.shape)
