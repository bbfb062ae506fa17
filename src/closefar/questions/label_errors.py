"""Which labels are wrong?

Two things can be said about a label: whether it contradicts the learned distance, and the
probability that it is wrong.  The second needs a model of how labels arise, and is claimed only as
far as that model can be trusted.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import norm
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed

from closefar import fitting
from closefar.arrays import TINY, BoolArray, FloatArray, IndexArray, is_dask
from closefar.errors import either
from closefar.fitting import Fit, Learner, Settings, score
from closefar.judgements import (
    Judgements,
    Kind,
    Partition,
    Partitions,
    Split,
    counted_partitions,
    effective_number,
    is_partitioned,
    mapped_partitions,
    partitions_of,
    resolve_groups,
    sample_partitions,
    split_judgements,
)
from closefar.judgements.checks import words_for_sample
from closefar.model import Scores
from closefar.plain import format_table
from closefar.questions.dependence import Dependence
from closefar.questions.goodness_of_fit import (
    ENOUGH_UNCERTAIN,
    check_noise_if_possible,
    sides_of,
    weighted_bins,
    wilson,
)
from closefar.questions.likelihood import LabelModel, SideErrors

# ---------------------------------------------------------------------------------------------------------------------
# Which labels are flipped, and how many: estimated from how contradictions become rarer as the margin grows.


# The grid of the posterior: rates in steps of half a percent, and curves of misses.
_RATES = np.linspace(0.0, 0.45, 91)
_SHAPES = np.array([0.5, 0.7, 1.0, 1.4, 2.0, 3.0])
_SCALES = np.geomspace(0.02, 8.0, 30)  # of the median margin
_MARGIN_BINS = 50  # so that curves hardly change within a bin


@dataclass(frozen=True)
class FlipCurve:
    """P(flipped) on one side of the threshold at margins of these sizes, of labels that contradict it and agree."""

    is_beyond: bool
    sizes: FloatArray
    contradicting: FloatArray
    agreeing: FloatArray


def probability_flipped(curves: tuple[FlipCurve, ...], margin: FloatArray, contradicts: BoolArray) -> FloatArray:
    """The probability that each label is flipped; zero on a side where nothing is known."""
    probability = np.zeros(len(margin))
    for curve in curves:
        where = (margin >= 0) == curve.is_beyond
        size = np.abs(margin[where])
        found = (np.interp(size, curve.sizes, each) for each in (curve.contradicting, curve.agreeing))
        probability[where] = np.minimum(np.where(contradicts[where], *found), 1.0)
    return probability


@dataclass(frozen=True)
class FlipEvidence:
    """The evidence of flipped labels in the contradictions of a metric, without assuming a noise model.

    At margins of size a, a share r(a) = q + (1 - 2q) c(a) of the labels contradicts the metric: a share
    q is flipped, and of the others the metric gets c(a) wrong, which falls from one half as a grows.
    The flip rate is at most the share of contradictions at the largest margins.  Here
    c(a) = exp(-(a / s)^b) / 2, with separate s and b on each side of the threshold; b from 0.5 to
    3 has tails far heavier and far lighter than any of the noises.  (q, s, b) is averaged over its
    posterior distribution, with a uniform prior on a grid.

    Attributes
    ----------
    rate, low, high : float
        The mean of q, and its 95% interval.
    probability : array of shape (n,)
        The probability that each label is flipped.
    curves : tuple of FlipCurve
        Where it is from, for other labels: one for each side of the threshold; none for levels.
    """

    rate: float
    low: float
    high: float
    probability: FloatArray
    curves: tuple[FlipCurve, ...]

    @classmethod
    def of_scores(cls, scores: Scores, largest_rate: float = 1.0) -> Self:
        """Estimate flips of judgements of any kind.

        Comparisons are turned such that their margins are positive.  For levels, each threshold gives an estimate, of
        which the largest is taken: an answer drawn from all levels alike is on the wrong side of some of them only.
        """
        sides = sides_of(scores)
        if len(sides) == 1:
            return cls.of(sides[0], largest_rate)
        found = [cls.of(each, largest_rate) for each in sides if each.judgements.n_rarer > 0]
        highest = max(found, key=lambda each: each.low)
        return replace(highest, probability=np.max([each.probability for each in found], axis=0), curves=())

    @classmethod
    def of(cls, scored: Scores, largest_rate: float = 1.0) -> Self:
        """Estimate flips from the contradictions of these margins, with a flip rate of at most `largest_rate`.

        Margins of fits that have seen the labels underestimate flips rather than overestimate them.
        """
        weights = scored.judgements.weights
        repeats = weights * (effective_number(weights) / weights.sum())
        wheres = [(is_beyond, (scored.margin >= 0) == is_beyond) for is_beyond in (True, False)]
        sides = [(is_beyond, *_grid(scored, repeats, at)) for is_beyond, at in wheres if np.any(repeats[at] > 0)]
        rates = np.prod([np.maximum(likelihood.mean(axis=(1, 2)), TINY) for *_, likelihood in sides], axis=0)
        rates /= rates.sum()
        curves = []
        for is_beyond, sizes, missed, likelihood in sides:
            flipped = (rates * np.minimum(_RATES, largest_rate))[:, None, None]
            flipped = flipped * likelihood / np.maximum(likelihood.sum(axis=(1, 2), keepdims=True), TINY)
            contradicted = _contradicted(missed)
            shares = (1.0 - missed) / contradicted, missed / (1.0 - contradicted)
            curves.append(FlipCurve(is_beyond, sizes, *(np.einsum("qsb,qsbm->m", flipped, each) for each in shares)))
        low, high = np.interp([0.025, 0.975], np.cumsum(rates), _RATES)
        probability = probability_flipped(tuple(curves), scored.margin, ~scored.is_right)
        return cls(float(rates @ _RATES), float(low), float(high), probability, tuple(curves))


def _grid(scored: Scores, repeats: FloatArray, where: BoolArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The margins of the bins on one side of the threshold, the misses at each, and the likelihood of each curve.

    The axes of grid arrays are rate, scale, shape and bin of the margin.
    """
    size, contradicts, repeats = np.abs(scored.margin[where]), ~scored.is_right[where], repeats[where]
    counts = repeats > 0
    bins = weighted_bins(size[counts], repeats[counts], _MARGIN_BINS)
    total = np.bincount(bins, weights=repeats[counts])
    contradicting = np.bincount(bins, weights=(repeats * contradicts)[counts])
    centres = np.bincount(bins, weights=(repeats * size)[counts]) / total
    scales = _SCALES * max(float(centres[len(centres) // 2]), TINY)
    missed = 0.5 * np.exp(-((centres / scales[:, None, None]) ** _SHAPES[:, None]))
    rates = _contradicted(missed)
    log_likelihood = np.log(rates) @ contradicting + np.log1p(-rates) @ (total - contradicting)
    return centres, missed, np.exp(log_likelihood - log_likelihood.max())


def _contradicted(missed: FloatArray) -> FloatArray:
    rates = _RATES[:, None, None, None]
    return np.asarray(np.clip(rates + (1.0 - 2.0 * rates) * missed, 1e-12, 1.0 - 1e-12))


# ---------------------------------------------------------------------------------------------------------------------
# Whether a share of wrong labels can be reported: only if there is no evidence against the model behind it.


# A metric with an error rate above this share of the majority baseline's explains too little.
_MOST_ERROR_RATIO = 0.6

# With fewer labels of the rarer kind per parameter, the metric fits the labels that it should call wrong.
_LABELS_PER_PARAMETER = 3.0

# If p-values below 0.05 were enough, one share in twenty would be withheld by chance.
_NOISE_P = 0.01

# One-sided, 2.3% of normal numbers are larger.
_CLUSTER_Z = 2.0


def explained(unseen: Scores) -> float:
    """How much a metric explains: 0 if its error rate is the majority baseline's, 1 if it is 0.6 times that.

    For levels these are the mean numbers of levels that it, and the best constant level, are wrong by.  A comparison
    can be given either way round, so the baseline is one half.
    """
    wrong, guessed = _errors(unseen)
    if guessed == 0.0:
        return 0.0
    return min(max((1.0 - wrong / guessed) / (1.0 - _MOST_ERROR_RATIO), 0.0), 1.0)


def _errors(scores: Scores) -> tuple[float, float]:
    """The error of the metric, and of a baseline."""
    cuts = scores.dichotomies
    return sum(1.0 - each.accuracy for each in cuts), sum(1.0 - each.majority for each in cuts)


def doubt_about(fit: Fit, judgements: Judgements, unseen: Scores, groups: NDArray[Any] | None) -> str | None:
    """Return why the number of wrong labels can't be estimated from the fit, or None if it can.

    `unseen` are out-of-fold margins, where there are any.
    """
    term = judgements.kind.term
    if fit.metric.rank == 0:
        return "the metric is zero"
    if fit.is_separable:
        return f"the metric gets every training {term} right"
    too_few = _doubt_about_number(fit, judgements)
    if too_few is not None:
        return too_few
    if explained(unseen) < 1.0:
        wrong, guessed = _errors(unseen)
        of_levels = f"by cross-validation it is wrong by {wrong:.2f} levels on average (the best constant level by "
        return "the learned distance explains too little: " + (
            f"{of_levels}{guessed:.2f})"
            if unseen.is_graded
            else f"its cross-validated accuracy is {1.0 - wrong:.1%} (majority baseline {1.0 - guessed:.1%})"
        )
    check = check_noise_if_possible(
        fit, judgements, groups
    )  # None: too few uncertain labels, so no evidence against it
    if check is not None and check.p_value < _NOISE_P:
        return f"the {term}s do not fit {fit.metric.noise.name} noise (p = {check.p_value:.2g})"
    return _doubt_about_points(fit, judgements, groups)


def _doubt_about_number(fit: Fit, judgements: Judgements) -> str | None:
    found, n_parameters = judgements.effective_number, fit.statistics.n_parameters
    needed = _LABELS_PER_PARAMETER * n_parameters * (2.0 if judgements.kind is Kind.COMPARISONS else 1.0)
    if judgements.kind is not Kind.COMPARISONS:
        found *= 1.0 - float(np.max(np.bincount(judgements.codes, judgements.shares)))
    if found >= needed:
        return None
    of_levels = "labels besides those of the most frequent level"
    what, more = {
        Kind.COMPARISONS: ("comparisons", f"make more, at least {needed:.0f},"),
        Kind.LEVELS: (of_levels, f"label more pairs, at least {needed:.0f} of other levels,"),
        Kind.CLOSE_FAR: ("labels of the rarer kind", f"label more pairs, at least {needed:.0f} of each kind,"),
    }[judgements.kind]
    return f"{found:.0f} {what} are too few for {n_parameters} parameters; {more} or use fewer columns"


def _doubt_about_points(fit: Fit, judgements: Judgements, groups: NDArray[Any] | None) -> str | None:
    """Label errors are independent; what the metric misses about a point shows in all pairs of that point."""
    if groups is None:
        return None
    dependence, asked = Dependence(groups), sides_of(score(fit, replace(judgements, comparisons=None)))

    def products(values: FloatArray) -> float:
        """The sum over all pairs of rows that depend on each other."""
        return 0.5 * sum(float(cross[0, 0]) for cross in dependence.cross_sums(values[:, None]))

    # Of several questions, one may be this far out by chance.
    most = float(norm.isf(norm.sf(_CLUSTER_Z) / len(asked)))
    kind = "point" if groups.ndim == 2 else "group"
    for scored in asked:
        given, model = scored.judgements, LabelModel.at(scored.margin, scored.noise, scored.flip_rate)
        # Whether the scores of dependent labels have the same sign more often than by chance.
        variance = products(given.weights**2 * model.information)
        scores = given.weights * model.residual(given.is_far) * model.slope / model.variance
        if variance > 0 and products(scores) > most * np.sqrt(variance):
            where = f"in {judgements.kind.noun}s of the same {kind}"
            return f"contradictions cluster {where}, so the metric misses something about those {kind}s"
    return None


# ---------------------------------------------------------------------------------------------------------------------
# Verdicts on labels: does a pair truly lie outside its level, below the lower or above the upper end?
#
# Close and far, and both answers to a comparison, are two levels, each of which has one end.


# Gauss-Legendre nodes for the mean likelihood of a label on one side of an end: P(wrong) is then within 1e-3 of the
# integral for every noise.
_N_NODES = 16
_LARGEST_Z = 40.0  # the normal distribution has nothing beyond that in double precision


@dataclass(frozen=True)
class Verdicts:
    """The margin of each judgement, its standard error, and the probability that it truly lies outside its level.

    The margin is the one from the end of its level that is nearest, or furthest on the wrong side.  `agreement` is
    positive if the label agrees with it.  `is_new` is true for labels that the fit that judged them has not seen, and
    `scores` are the judgements scored by those fits.
    """

    scores: Scores
    margin: FloatArray
    error: FloatArray
    agreement: FloatArray
    probability: FloatArray
    is_new: BoolArray

    @classmethod
    def of(cls, scores: Scores, errors: FloatArray, is_new: BoolArray) -> Verdicts:
        """Verdicts on scored judgements; `errors` of their margins have a column for each threshold.

        The probability is that of the normal distribution of the true squared distance beyond either end of the level.
        A new label is further evidence: by Bayes' rule, its likelihood is averaged over the distribution, on either
        side of each end.
        """
        codes, rows = scores.judgements.codes, np.arange(len(scores))
        ends = np.pad(scores.margins, ((0, 0), (1, 1)), constant_values=((0.0, 0.0), (np.inf, -np.inf)))
        errors = np.pad(errors, ((0, 0), (1, 1)))
        above, below = ends[rows, codes], -ends[rows, codes + 1]
        of_lower, of_upper, is_lower = errors[rows, codes], errors[rows, codes + 1], above <= below
        error = np.where(is_lower, of_lower, of_upper)
        under, over = ndtr(-above / np.maximum(of_lower, TINY)), ndtr(-below / np.maximum(of_upper, TINY))
        probability = np.minimum(under + over, 1.0)
        if np.any(is_new):
            new = np.flatnonzero(is_new)
            probability[new] = _given_label(scores.take(new), error[new], under[new], over[new])
        margin, agreement = np.where(is_lower, above, -below), np.minimum(above, below)
        return cls(scores, margin, error, agreement, probability, is_new)

    @property
    def expected(self) -> IndexArray:
        """The level that each squared distance lies in; of two labels, 1 is far."""
        return np.asarray(np.sum(self.scores.margins >= 0, axis=1))


def _given_label(scores: Scores, error: FloatArray, under: FloatArray, over: FloatArray) -> FloatArray:
    """P(outside the level | label), from the probabilities of being under and over it without the label."""
    nodes, weights = np.polynomial.legendre.leggauss(_N_NODES)
    within = np.maximum(1.0 - under - over, 0.0)

    def mass(probability: FloatArray, z_at: Callable[[FloatArray], FloatArray]) -> FloatArray:
        total = np.zeros(len(scores))
        for node, weight in zip(0.5 * (1.0 + nodes), 0.5 * weights, strict=True):
            step = error * np.clip(z_at(node * probability), -_LARGEST_Z, _LARGEST_Z)
            total += weight * np.exp(-replace(scores, margins=scores.margins + step[:, None]).losses)
        return probability * total

    outside = mass(under, ndtri) + mass(over, lambda share: -ndtri(share))
    return outside / np.maximum(outside + mass(within, lambda share: ndtri(under + share)), TINY)


def judge_sides(fit: Fit, judgements: Judgements, splits: Sequence[Split] = (), fits: Sequence[Fit] = ()) -> Verdicts:
    """Judge each label by the fit to the training side of its test split, or by `fit`, to all, if no split tests it."""
    judgements, every = replace(judgements, comparisons=None), np.arange(len(judgements))
    untested = np.setdiff1d(every, np.concatenate([every[:0], *(test for _, test in splits)]))
    if len(untested):
        splits, fits = [*splits, (every, untested)], [*fits, fit]
    errors, is_new = np.empty((len(every), max(judgements.n_thresholds, 1))), np.empty(len(every), dtype=bool)
    scored = []
    for each, (train, test) in zip(fits, splits, strict=True):
        scores = score(each, judgements.take(test))
        who = None if scores.judgements.annotators is None else scores.judgements.annotators.codes
        known = SideErrors.of(each, judgements.take(train).counted())
        errors[test] = known.at(scores.judgements.data, scores.margins, who)
        is_new[test] = not np.isin(test, train).any()
        scored.append((scores, test))
    return Verdicts.of(fitting.join_scores(judgements, scored), errors, is_new)


# ---------------------------------------------------------------------------------------------------------------------
# Labels of partitions: what a fit says of each label, as a dask array of records that is computed when asked for.


def judge_partitions(
    partitions: Partitions, fit: Fit, sample: Judgements, unseen: Scores | None, judged: LabelErrors
) -> dict[str, Any]:
    """Return the fields of `LabelErrors` with one entry per label, as dask arrays; nothing is computed.

    `judged` are the errors of the sample; `unseen` are its out-of-fold scores, where there are any.
    """
    import dask
    import dask.array as da

    curves, factor = None, 1.0
    if judged.meaning == "flipped":
        (known,) = sides_of(score(fit, sample))
        curves, factor = (
            FlipEvidence.of(known).curves,
            claimed_share(known if unseen is None else unseen, judged.reason),
        )
    numbers = [("probability", float), ("margin", float), ("error", float)]
    kinds = np.dtype([*numbers, ("contradicts", bool), ("label", fit.sides.classes.dtype), ("index", np.intp)])
    errors, counts = SideErrors.of(fit, sample.counted()), partitions.n_rows or ()
    judge = partial(_judge_partition, kinds, fit.without_judgements(), errors, curves, factor)
    parts = zip(mapped_partitions(partitions, judge, np.cumsum([0, *counts[:-1]]).tolist()), counts, strict=True)
    records = da.concatenate([da.from_delayed(part, (n,), dtype=kinds) for part, n in parts])
    order = da.from_delayed(dask.delayed(_most_suspicious)(records)["index"], records.shape, dtype=np.intp)
    columns = {name: records[name] for name in ("probability", "margin", "error", "contradicts")}
    return columns | {"labels": records["label"], "order": order, "_records": records}


def _judge_partition(
    kinds: np.dtype[Any],
    fit: Fit,
    errors: SideErrors,
    curves: tuple[FlipCurve, ...] | None,
    factor: float,
    partition: Partition,
    start: int,
) -> NDArray[Any]:
    """A record for each pair of a partition, the first of which has this number."""
    records = np.empty(len(partition), kinds)
    if len(records):
        signs = np.where(np.asarray(partition.labels == fit.sides.far), 1.0, -1.0)
        scored = score(fit, Judgements.of_signs(partition.data, signs))
        found = Verdicts.of(scored, errors.at(partition.data, scored.margins), np.zeros(len(signs), dtype=bool))
        records["probability"], records["margin"], records["error"] = found.probability, found.margin, found.error
        if curves is not None:
            records["probability"] = probability_flipped(curves, found.margin, ~scored.is_right) * factor
        records["contradicts"], records["label"] = ~scored.is_right, partition.labels
        records["index"] = start + np.arange(len(records))
    return records


def _most_suspicious(records: NDArray[Any], k: int | None = None) -> NDArray[Any]:
    """The k most suspicious of these records, or all of them, in this order."""
    agreement = np.where(records["contradicts"], -1.0, 1.0) * np.abs(records["margin"])
    return records[by_suspicion(records["probability"], agreement / np.maximum(records["error"], TINY))[:k]]


def by_suspicion(probability: FloatArray, agreement: FloatArray) -> IndexArray:
    """Row numbers by falling probability, and those of the same one by rising agreement of label and margin."""
    return np.lexsort((agreement, -probability))


# ---------------------------------------------------------------------------------------------------------------------
# The result.


# Flips are evident if the lower end of the interval of their rate is above this.
_EVIDENT_RATE = 0.01

# The largest P(flipped) that is reported if the metric is in doubt.
_LARGEST_DOUBTED = 0.95

# The factor of the probabilities if the metric explains nothing; it keeps only their order.
_LEAST_CLAIM = 0.01


@dataclass(frozen=True, eq=False)
class LabelErrors:
    """The probability that each label is wrong.

    A label is a close/far label, a level, or the answer to a comparison.

    Attributes
    ----------
    probability : array of shape (n,)
        The probability that the label is wrong, in the sense of `meaning`.
    order : array of shape (n,)
        Row numbers, the most suspicious first.
    meaning : {"side", "flipped"}
        "side": a label is wrong if its pair truly lies on the other side of the threshold, whether
        by noise or by a flip: a level is wrong if its pair truly lies in another one, and an answer if the leg that it
        calls shorter is truly the longer one.  "flipped": a label is wrong if it was flipped, whatever the distance;
        a label that contradicts the learned distance may then also be right, and the distance wrong.
        This meaning is used if the noise near the threshold is not known well enough, or the noise
        model can't be trusted.
    share, share_low, share_high : float or None
        The share of wrong labels, and a 95% interval for the rate of wrong labels in the population
        of these pairs.  If there is evidence of flips, or the noise is not known well, the interval
        extends down to the share of flipped labels alone.  None if the model can't be trusted.
    reason : str or None
        Why no share is reported.
    contradicts : array of shape (n,)
        Whether the label contradicts the learned distance: the sign of `margin` or, of levels, `expected`.
    unseen_share, unseen_low, unseen_high : float or None
        The share of labels that contradict a distance learned without them, with its 95%
        interval.  None if no label was left out, as with ``method="in-sample"``.
    margin, error : arrays of shape (n,)
        The margin of each pair, and its standard error, which ignores the common scale of all
        margins, since that cannot change the side that a pair is on.  For levels, the margin is from the threshold at
        the end of the given level that the pair is nearest to, or furthest beyond.  An annotator has thresholds of
        their own.
    labels : array of shape (n,)
        The labels as given.
    expected : array of shape (n,) or None
        For levels: the level that the squared distance lies in.  Otherwise None; see the sign of `margin`.
    kind : Kind
        What was judged: "close_far", "levels" or "comparisons".
    """

    probability: FloatArray
    order: NDArray[np.intp]
    meaning: str
    share: float | None
    share_low: float | None
    share_high: float | None
    reason: str | None
    contradicts: BoolArray
    unseen_share: float | None
    unseen_low: float | None
    unseen_high: float | None
    margin: FloatArray
    error: FloatArray
    labels: NDArray[Any]
    expected: NDArray[Any] | None = None
    kind: Kind = Kind.CLOSE_FAR
    _records: Any = field(default=None, repr=False)

    @property
    def n_contradicting(self) -> int:
        """The number of labels that contradict the learned distance."""
        return int(np.sum(self.contradicts))

    def table(self, k: int = 10) -> list[dict[str, Any]]:
        """Return the `k` most suspicious labels: index, label, probability, margin and its standard error.

        Levels also have the one that is expected.
        """
        if self._records is not None:
            import dask

            # Each worker sends the first of its partitions.  Fused tasks would have names that the cluster knows with
            # another meaning.
            blocks = self._records.to_delayed(optimize_graph=False).ravel()
            tops = dask.compute(*(dask.delayed(_most_suspicious)(block, k) for block in blocks), optimize_graph=False)
            found = _most_suspicious(np.concatenate(tops), k)
            columns = {name: found[name] for name in ("index", "label", "probability", "margin", "error")}
        else:
            first = self.order[:k]
            named = {"label": self.labels, "expected": self.expected, "probability": self.probability}
            named |= {"margin": self.margin, "error": self.error}
            columns = {"index": first, **{name: each[first] for name, each in named.items() if each is not None}}
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def headline(self) -> str:
        """Return the main findings in a few sentences."""
        term = self.kind.term
        n, doubtful = len(self.probability), int(np.sum(self.probability > 0.5))
        if self.share is None:
            likely = f"{doubtful:,} are more likely flipped than not." if doubtful else "None is clearly flipped."
            out_of_fold = ""
            if self.unseen_share is not None:
                interval = f"95% interval {self.unseen_low:.1%} to {self.unseen_high:.1%}"
                out_of_fold = f"; out-of-fold, {self.unseen_share:.1%} do ({interval})"
            return (
                f"{self.n_contradicting:,} of {n:,} {term}s contradict the learned distance{out_of_fold}.\n"
                f"The number of wrong {term}s can't be estimated: {self.reason}. {likely}"
            )
        likely = "more likely wrong than right" if self.meaning == "side" else "more likely flipped than not"
        return (
            f"{self.share:.1%} of {n:,} {term}s are wrong (95% interval {self.share_low:.1%} to "
            f"{self.share_high:.1%}); {self.n_contradicting:,} contradict the learned distance.\n"
            f"{doubtful:,} are {likely}."
        )

    def summary(self) -> str:
        """Return the main findings and the ten most suspicious labels as text."""
        rows = [{**row, "label": str(row["label"])} for row in self.table(min(10, self.n_contradicting))]
        probability = "P(wrong)" if self.meaning == "side" else "P(flipped)"
        columns = {"index": ("row", "d"), "label": (self.kind.term, "s"), "expected": ("expected", "")}
        columns |= {"probability": (probability, ".4f"), "margin": ("margin", ".3g"), "error": ("error", ".2g")}
        if self.expected is None:
            del columns["expected"]
        table = format_table(list(columns.values()), [[row[name] for name in columns] for row in rows])
        return f"{self.headline()}\n{table}"

    def __repr__(self) -> str:
        if self.share is None and is_dask(self.probability):
            known = "in partitions"
        elif self.share is None:
            known = f"{self.n_contradicting} contradict the learned distance"
        else:
            known = f"{self.share:.1%} wrong, 95% interval {self.share_low:.1%} to {self.share_high:.1%}"
        return f"LabelErrors({len(self.probability)} labels, {known})"


def judge_labels(
    fit: Fit,
    judgements: Judgements,
    unseen: Scores | None,
    verdicts: Verdicts | None = None,
    *,
    groups: NDArray[Any] | None = None,
) -> LabelErrors:
    """Return the probability that each label is wrong.

    Parameters
    ----------
    fit : Fit
        The fit to the judgements; these may be comparisons that were attached to pairs.
    unseen : Scores, optional
        The judgements that have out-of-fold margins, with those margins.
    verdicts : Verdicts, optional
        The margins that rank the labels; by default those of the fit itself.
    groups : array of shape (n,) or (n, 2), optional
        Which pairs depend on each other.
    """
    seen = judge_sides(fit, judgements)
    known = seen.scores if unseen is None else unseen
    verdicts = seen if verdicts is None else verdicts
    flips = FlipEvidence.of_scores(seen.scores)
    doubt = doubt_about(fit, judgements, known, groups)
    # The noise near the threshold is known if many labels are uncertain.
    knows_noise = fit.statistics.uncertain_per_parameter >= ENOUGH_UNCERTAIN
    are_flipped = flips.low > _EVIDENT_RATE
    meaning = "side" if doubt is None and (not are_flipped or (knows_noise and groups is None)) else "flipped"
    probability = verdicts.probability
    if meaning == "flipped":
        # Out-of-fold fits also contradict labels that they could not learn, so the flip rate is at most that of the fit
        # itself.
        is_new = bool(np.any(verdicts.is_new))
        found = FlipEvidence.of_scores(verdicts.scores, largest_rate=flips.rate) if is_new else flips
        probability = found.probability * claimed_share(known, doubt)
    share = low = high = None
    if doubt is None:
        share, low, high = _share(judgements, (verdicts if knows_noise else seen).probability)
        if are_flipped or not knows_noise:
            low = min(low, flips.low)
        if meaning == "flipped":
            share = float(np.clip(judgements.mean(probability), low, high))
    contradicting: tuple[float | None, ...] = (None, None, None)
    if unseen is not None:
        wrong = 1.0 - unseen.judgements.mean(np.all([each.is_right for each in unseen.dichotomies], axis=0))
        contradicting = (wrong, *wilson(wrong, unseen.judgements.effective_number))
    return LabelErrors(
        probability=probability,
        order=by_suspicion(probability, verdicts.agreement / np.maximum(verdicts.error, TINY)),
        meaning=meaning,
        share=share,
        share_low=low,
        share_high=high,
        reason=doubt,
        contradicts=verdicts.expected != judgements.codes,
        unseen_share=contradicting[0],
        unseen_low=contradicting[1],
        unseen_high=contradicting[2],
        margin=verdicts.margin,
        error=verdicts.error,
        labels=judgements.labels,
        expected=None if judgements.kind is not Kind.LEVELS else judgements.sides.classes[verdicts.expected],
        kind=judgements.kind,
    )


def claimed_share(unseen: Scores, doubt: str | None = None) -> float:
    """How much of P(flipped) is claimed: the less, the less a metric explains, and never all if it is in doubt."""
    return max(explained(unseen), _LEAST_CLAIM) * (1.0 if doubt is None else _LARGEST_DOUBTED)


def _share(judgements: Judgements, probability: FloatArray) -> tuple[float, float, float]:
    """The share of wrong labels, and its 95% interval.

    Its variance has two parts, uncertainty about each label and sampling: P (1 - P) + (P - share)^2.
    """
    shares = judgements.shares
    share = float(shares @ probability)
    spread = 1.96 * float(np.sqrt(np.sum(shares**2 * (probability * (1.0 - 2.0 * share) + share**2))))
    return share, max(share - spread, 0.0), min(share + spread, 1.0)


# ---------------------------------------------------------------------------------------------------------------------
# Finding wrong labels: fits to the labels and to folds of them, in memory or on a cluster, that judge them.


_METHODS = ("auto", "out-of-fold", "in-sample")
_JUDGED = ("pairs", "comparisons")

# For more pairs on a cluster, a sample is gathered to judge the model: this many rows, or as many as the bytes allow.
_MOST_GATHERED = 100_000
_SAMPLED_BYTES = 1 << 30  # 1 GiB, which any machine has


def find_label_errors(
    learner: Learner,
    pairs: Any,
    labels: Any = None,
    *,
    sample_weight: Any = None,
    annotators: Any = None,
    comparisons: Any = None,
    judged: str = "pairs",
    cv: Any = 5,
    groups: Any = None,
    method: str = "auto",
    n_jobs: int | None = None,
    random_state: Any = None,
) -> LabelErrors:
    """Find labels that are probably wrong: close/far labels, levels, or answers to comparisons.

    A label is wrong if its pair truly lies on the other side of the threshold, a level if it truly lies in
    another level, and the answer to a comparison if the leg that it calls shorter is truly the longer one.  If
    the noise model passes its checks, the probability of that follows from the margin and its standard error, and
    a share of wrong labels is reported.  Otherwise a label that contradicts the learned distance
    may be right, and the distance wrong.  Then a label is called wrong if it was flipped, whatever
    the distance.  The probability of that follows from how contradictions become rarer as the margin
    grows, since flips do not.  No share is reported in that case; the number of labels that
    contradict the learned distance always is.

    Parameters
    ----------
    learner : LinearMetricLearner, OrdinalMetricLearner or ComparisonMetricLearner
        The learner to fit; it is not changed.  What is "auto" is chosen once, for all fits.  With
        flip_rate=0 the flip rate is estimated, and with alpha=0 the penalty is chosen if `method` is "auto": without
        flips, and without a penalty where labels are few, a metric agrees with labels that it should call wrong.
    pairs, labels, sample_weight, annotators, comparisons
        As for `learner.fit`; for a comparison learner, `pairs` are the comparisons and `labels` the answers.  Each
        judgement is compared with the threshold of its own annotator.
    judged : {"pairs", "comparisons"}, default="pairs"
        With pairs and comparisons together, which of them to judge; the others are part of every fit.
    cv : int or splitter, default=5
        The folds for out-of-fold fits; fewer if the rarer label does not occur in that many.
    groups : array of shape (n,) or (n, 2), optional
        Pairs of the same group share a fold.  Two ids per pair, those of its points, give the folds
        of `PairGroupKFold` if both sides of each split have both labels; a pair that is in no test
        fold is judged in-sample.  By default, points that pairs share are detected in (n, 2, d) data.
    method : {"auto", "out-of-fold", "in-sample"}, default="auto"
        "in-sample" judges each label by one fit to all labels, "out-of-fold" by a fit that has not
        seen it.  "auto" is in-sample, which ranks labels best.  Out-of-fold fits, with the settings of the fit to
        all pairs, give the share of labels that contradict a distance learned without them.  From 50,000 pairs on
        these fits start from the fit to all pairs.
    n_jobs : int, optional
        The number of folds to fit in parallel.
    random_state : int, RandomState or None
        Seed of the folds.

    Notes
    -----
    For dask arrays and frames, and for pairs opened on a cluster, the fit to all pairs is computed at once, where
    they are.  What is said of the labels as a whole (`meaning`, `share`, `reason`, `unseen_share`) follows from a
    sample of 100,000 pairs that is gathered in this process; of fewer pairs, from all of them.  The arrays with one
    entry per label are dask arrays, of which nothing is computed until they are; `order` gathers the verdicts
    on one worker, and `table` only the most suspicious of each partition.

    Examples
    --------
    >>> import closefar as cf
    >>> data = cf.datasets.make_pairs(3000, 4, noise="flips", wrong_share=0.1, random_state=0)
    >>> errors = cf.find_label_errors(cf.LinearMetricLearner(), data.pairs, data.labels, random_state=0)
    >>> bool(data.labels[errors.order[0]] == data.true_labels[errors.order[0]])
    False
    """
    if method not in _METHODS:
        raise ValueError(f"method must be one of {list(_METHODS)}; got {method!r}.")
    class_weight = getattr(learner, "class_weight", None)
    if class_weight is not None:
        raise ValueError(
            either("class_weight must be None", "--balanced must be left out")
            + f" to find wrong labels, since it moves the threshold; got {class_weight!r}. Leave it out."
        )
    if judged not in _JUDGED or (judged == "comparisons" and comparisons is None):
        raise ValueError(
            f'judged must be "pairs" or, with both pairs and comparisons, "comparisons"; got {judged!r}'
            f"{'' if judged not in _JUDGED else ' and no comparisons'}."
        )
    changes, partitions = flip_aware(Settings.of(learner), penalise=method == "auto"), None
    if is_partitioned(pairs):
        if method == "out-of-fold" or groups is not None:
            got = "groups" if method != "out-of-fold" else 'method="out-of-fold"'
            raise ValueError(
                f"labels of a cluster are judged by one fit to all of them, without groups; got {got}. Leave it out, "
                f"or pass a sample: {words_for_sample(pairs)}."
            )
        partitions = counted_partitions(partitions_of(pairs, labels, sample_weight))
        fit = clone(learner).set_params(**changes).fit(partitions).fit_.unless_interrupted()
        judgements = _sample(fit, partitions)
    else:
        judgements = clone(learner).read(pairs, labels, sample_weight, annotators=annotators, comparisons=comparisons)
    asked = _asked(judgements, judged)
    ids = resolve_groups(groups, asked.data)
    if partitions is None:
        by = ids if groups is not None and judged == "pairs" else None
        fit = fitting.fit(judgements, Settings.of(learner).but(**changes), groups=by)
        fit.warn(stacklevel=2)
        fit.unless_interrupted()
    splits = [] if method == "in-sample" else _splits(cv, asked, ids, check_random_state(random_state).randint(2**31))
    are_new = [not np.isin(test, train).any() for train, test in splits]
    if method == "auto":
        splits, are_new = list(compress(splits, are_new)), list(filter(None, are_new))
    learned = Parallel(n_jobs=n_jobs)(delayed(_learn)(fit, judgements, judged, train) for train, _ in splits)
    fits, alone = [each.unless_interrupted() for each in learned], replace(asked, comparisons=None)
    verdicts, unseen = judge_sides(fit, asked, splits, fits) if method == "out-of-fold" else None, None
    if any(are_new):
        parts = compress(zip(fits, splits, strict=True), are_new)
        scored = [(score(each, alone.take(test)), test) for each, (_, test) in parts]
        tested = np.unique(np.concatenate([test for _, test in scored]))
        unseen = fitting.join_scores(alone, scored).take(tested)
    found = judge_labels(fit, asked, unseen, verdicts, groups=ids)
    return found if partitions is None else replace(found, **judge_partitions(partitions, fit, asked, unseen, found))


def flip_aware(settings: Settings, *, penalise: bool = True) -> dict[str, Any]:
    """The settings to change so that a metric does not agree with labels that it should call wrong."""
    changes: dict[str, Any] = {}
    if isinstance(settings.flip_rate, numbers.Real) and settings.flip_rate == 0.0:
        changes["flip_rate"] = "estimate"
    if isinstance(settings.alpha, numbers.Real) and settings.alpha == 0.0 and penalise:
        changes["alpha"] = "auto"
    return changes


def _sample(fit: Fit, partitions: Partitions) -> Judgements:
    """Some of the judgements of partitions, in memory, with the weight of all."""
    n_columns, n = partitions.n_columns, sum(partitions.n_rows or ())
    most = min(max(_MOST_GATHERED, 8 * fitting.count_parameters(n_columns, None)), _SAMPLED_BYTES // (8 * n_columns))
    sample = sample_partitions(partitions, most)
    weights = np.ones(len(sample.labels)) if sample.weights is None else np.asarray(sample.weights, dtype=np.float64)
    scaled = n / len(weights) * weights if len(weights) < n else sample.weights
    unnamed = replace(fit.columns, names_in_data=None)
    return Judgements.read(unnamed, sample.data, sample.labels, scaled, sides=fit.sides)


def _asked(judgements: Judgements, judged: str) -> Judgements:
    """The judgements that are judged: the pairs, or the comparisons that are attached to them."""
    return judgements if judged == "pairs" or judgements.comparisons is None else judgements.comparisons


def _learn(fit: Fit, judgements: Judgements, judged: str, rows: IndexArray) -> Fit:
    """Fit with some of the labels that are judged; the fit to all is known, and a good start if there are many."""
    asked = _asked(judgements, judged)
    if len(rows) == len(asked):
        return fit
    some = asked.take(rows)
    if asked is not judgements:
        some = replace(judgements, comparisons=some)
    return fitting.fit_from(fit, some) if fitting.is_near_parts(fit) else fitting.refit_part(fit, some)


def _splits(cv: Any, judgements: Judgements, groups: NDArray[Any] | None, seed: int) -> list[Split]:
    """The folds; fewer, and then without groups, if one side of a split has only one label."""
    if not isinstance(cv, numbers.Integral):
        return split_judgements(cv, judgements, groups=groups, seed=seed)
    counts = _counts(judgements)
    # The rarest label or, of levels, all but the most frequent.
    most = min(int(cv), int(counts.min() if judgements.kind is not Kind.LEVELS else counts.sum() - counts.max()))
    for by in (groups, None) if groups is not None else (None,):
        for n_folds in sorted({most, min(most, 3), min(most, 2)}, reverse=True):
            if n_folds < 2:
                continue
            try:
                splits = split_judgements(n_folds, judgements, groups=by, seed=seed)
            except ValueError:
                continue
            if all(np.all(_counts(judgements.take(train)) > 0) for train, _ in splits):
                return splits
    return []


def _counts(judgements: Judgements) -> IndexArray:
    """The number of judgements with each label; all comparisons have the same."""
    counted = judgements.codes[judgements.weights > 0]
    if judgements.kind is Kind.COMPARISONS:
        return np.array([len(counted)])
    return np.bincount(counted, minlength=judgements.n_levels)
