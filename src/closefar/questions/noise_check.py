"""The check of the noise model: observed against expected labels, by margin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import norm

from closefar.arrays import FloatArray, IndexArray
from closefar.errors import either, setting, words_of
from closefar.fitting import Fit, Fitted, choose_noise
from closefar.judgements import Judgements, Kind, effective_number, sample_rows
from closefar.model import Scored
from closefar.noise import NOISES, Noise
from closefar.plot_style import COLOURS, REFERENCE, add_legend, axes_or_new
from closefar.questions.calibration import COMPARED, two_sided, weighted_bins
from closefar.questions.dependence import Dependence, units_of_all, units_with_comparisons
from closefar.questions.likelihood import LabelModel
from closefar.questions.moves import read_for
from closefar.questions.score_tests import (
    FLOOR,
    MOST_TESTED,
    AdjustedSums,
    LabelScores,
    check_certain_enough,
    check_testable,
    check_units,
    combine,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# ---------------------------------------------------------------------------------------------------------------------
# What to do if the labels do not fit the noise model.


DOUBT = 0.05  # a p-value below this is evidence against the model
_TAILS_DIFFER = 2.0
_SMALLEST_SHOWN = 0.0001

# Another noise is recommended if its loss is lower by this many standard errors (Vuong's test), and flips
# if they raise the log-likelihood by this much.
_CLEARLY_BETTER = 1.96
_GAIN = 2.0

_METRIC_MAY_MISFIT = "The metric itself may not fit: " + either("diagnose()", "the report") + " tests what else "


def advise(
    scored: Scored, p_value: float, tail_z: float, *, estimates_flips: bool = False, chooses_noise: bool = False
) -> str:
    """Recommend the noise that describes the labels clearly better, if there is one and it is not set already."""
    noise, kind = scored.noise, scored.judgements.kind
    may_misfit = _METRIC_MAY_MISFIT + f"the {kind.term}s depend on."
    if p_value >= DOUBT:
        return f"No evidence against {noise.name} noise ({show_p_value(p_value)})."
    found = f"The {kind.term}s do not fit {noise.name} noise ({show_p_value(p_value)}): "
    better = better_noise(scored)
    many = "more" if tail_z > 0 else "fewer"
    if better is not None and better.noise == noise and not estimates_flips:
        return found + "some are wrong even at the largest margins. Try " + setting(flip_rate="estimate") + "."
    if better is not None and better.noise != noise and not chooses_noise:
        return found + f"{many} than expected are wrong at large margins. Try " + setting(noise=better.noise.name) + "."
    if abs(tail_z) > _TAILS_DIFFER:
        return found + (
            f"{many} than expected are wrong at large margins, but no other noise fits clearly better. " + may_misfit
        )
    which = "answers agree with the metric" if kind is Kind.COMPARISONS else "are far"
    return found + f"at some margins too many or too few {which}. " + may_misfit


def better_noise(scored: Scored) -> Scored | None:
    """The same judgements under noise that fits clearly better (flips, or another kind), or None."""
    noise, weights = scored.noise, scored.judgements.weights
    others = {name: refitted(scored, other) for name, other in {**NOISES, noise.name: noise}.items()}
    choice = choose_noise({name: other.losses for name, other in others.items()}, weights)
    own, best = choice.comparison[noise.name], choice.comparison[choice.name]
    flipped = refitted(scored, noise, estimate_flips=True)
    gains = effective_number(weights) * (np.array([own["loss"], best["loss"]]) - flipped.loss)
    if gains[0] > _GAIN and gains[1] > 0.5 * _GAIN:
        return flipped
    return others[choice.name] if own["z"] > _CLEARLY_BETTER else None


def refitted(scored: Scored, noise: Noise, *, estimate_flips: bool = False) -> Scored:
    """The same judgements under another noise; only a scale and a shift of the margins are fitted again.

    Comparisons have no threshold that could shift.  Flips that are estimated replace those of the fit.
    """
    known = scored.flip_rate

    def at(parameters: FloatArray) -> Scored:
        scale, shift, rate = parameters
        rates = float(rate) if estimate_flips else known
        return replace(scored, margin=np.exp(scale) * scored.margin - shift, noise=noise, flip_rate=rates)

    near = float(np.mean(known))
    start = [0.0, 0.0, max(near, 0.02) if estimate_flips else 0.0]
    rates = (0.0, 0.49) if estimate_flips else (0.0, 0.0)
    shifts = (0.0, 0.0) if scored.judgements.kind is Kind.COMPARISONS else (None, None)
    bounds = ((-4.0, 4.0), shifts, rates)
    return at(minimize(lambda parameters: at(parameters).loss, start, method="L-BFGS-B", bounds=bounds).x)


def show_p_value(value: float) -> str:
    return f"p = {value:.2g}" if value >= _SMALLEST_SHOWN else f"p < {_SMALLEST_SHOWN:g}"


_BINS = 10

# Neighbouring bins are merged until the variance of their number of far labels is this large.
_LEAST_VARIANCE = 5.0


@dataclass(frozen=True)
class NoiseBin:
    """The pairs in one range of margins: mean margin, total weight, observed and expected share far.

    `z` is (observed - expected) / `error`, approximately standard normal if the model is correct.
    """

    margin: float
    count: float
    observed: float
    expected: float
    error: float
    z: float


@dataclass(frozen=True)
class NoiseCheck:
    """Whether the share of far labels at each margin agrees with the noise model.

    For levels there is a check of each threshold, and with attached comparisons also one of these, in `parts`.  The
    p-value is that of all of them combined, and everything else is that of the part with the smallest.

    Attributes
    ----------
    p_value : float
        The p-value of both tests combined.
    statistic, dof : float, int
        The chi-square statistic of all bins, and its degrees of freedom.
    tail_z : float
        The test of the tails, standard normal if the model is correct: positive if labels that
        contradict a large margin are more frequent than expected.
    bins : tuple of NoiseBin
        Ordered from the smallest margin to the largest.
    advice : str
        The result, and what to do.
    question : str
        What far means in it: empty for close/far labels, otherwise such as "level >= 2", or "comparisons", where it
        means that the answer agrees with the margin.
    parts : tuple of NoiseCheck
        The checks that were combined, if there are several.
    """

    p_value: float
    statistic: float
    dof: int
    tail_z: float
    bins: tuple[NoiseBin, ...]
    advice: str
    question: str = ""
    parts: tuple[NoiseCheck, ...] = ()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot observed minus expected share far by margin, with a 95% band for a correct model.

        Of several parts, this is the one with the smallest p-value; each can be plotted by itself.
        """
        ax = axes_or_new(ax)
        margin = np.array([row.margin for row in self.bins])
        band = 1.96 * np.array([row.error for row in self.bins])
        ax.fill_between(margin, -band, band, color=COLOURS[0], alpha=0.2, linewidth=0, label="95% band if correct")
        ax.axhline(0.0, color=REFERENCE, linewidth=0.8, linestyle="--")
        difference = [row.observed - row.expected for row in self.bins]
        ax.plot(margin, difference, "o-", color=COLOURS[0], label="these labels")
        question = f" ({self.question})" if self.question else ""
        title = f"Noise model{question}, {show_p_value(self.p_value)}"
        share = {"": "share far", COMPARED: "share agreeing"}.get(self.question, f"share of {self.question}")
        ax.set(xlabel="margin", ylabel=f"{share}: observed - expected", title=title)
        add_legend(ax)
        return ax


def check_noise_model(
    learner: Fit | Fitted,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    *,
    annotators: Any = None,
    comparisons: Any = None,
    groups: Any = None,
    n_bins: int = _BINS,
) -> NoiseCheck:
    """Test whether the share of far labels at each margin agrees with the fitted model.

    This combines two tests: a chi-square test of the share far in bins of the margin, and a test of
    labels that contradict large margins, which distinguishes light-tailed from heavy-tailed noise.
    Both are score tests, corrected for the bias with few labels.  They account for the fit of
    (M, tau), so they are valid for the training pairs, for other pairs, and for any `alpha`.

    Levels are tested at each threshold: whether a level is at least k is a close/far label with the threshold of
    level k.  Comparisons have no threshold, and are tested by whether their answers agree with the metric.  The
    p-values of several tests are combined by the Cauchy combination test, which is valid although they share their
    rows.  The margins of annotators are from their own thresholds, and their strictness is part of what is fitted.

    Parameters
    ----------
    learner : LinearMetricLearner, OrdinalMetricLearner or ComparisonMetricLearner
        A fitted learner without `class_weight`.
    X, y, annotators, comparisons : optional
        In any form that `learner.fit` accepts; by default those of training.
    sample_weight : array of n numbers >= 0, optional
        The weight of each pair; only ratios matter.  A weight of 2 is one label that counts
        twice, not two labels.
    groups : array of shape (n,) or (n, 2), optional
        Which pairs are not independent: a group id per pair, or the ids of its two points.  By
        default, pairs that share a point are dependent, if `X` holds both points of each pair.
    n_bins : int, default=10
        The number of bins of about equal weight; neighbours with too little variance are merged.

    Returns
    -------
    NoiseCheck

    Raises
    ------
    ValueError
        If the labels are not enough: the metric gets every label right, there are fewer than 3
        uncertain labels per parameter, or fewer than 20 groups or points.

    Examples
    --------
    >>> import closefar as cf
    >>> pairs, labels, *_ = cf.datasets.make_pairs(5000, 4, noise="flips", random_state=0)
    >>> learner = cf.LinearMetricLearner(flip_rate=0).fit(pairs, labels)
    >>> cf.check_noise_model(learner).p_value < 0.001
    True
    """
    fit = Fit.of(learner)
    check_testable(fit)
    if n_bins < 2:
        raise ValueError(f"n_bins must be a whole number >= 2; got {n_bins!r}.")
    judgements = read_for(fit, X, y, sample_weight, annotators, comparisons)
    judgements.check_both_count()
    ids = units_of_all(groups, judgements, stacklevel=3)
    return _check_all(fit, judgements, ids, n_bins)


def check_noise_if_possible(fit: Fit, judgements: Judgements, groups: NDArray[Any] | None) -> NoiseCheck | None:
    """Check the noise model with at most 30,000 of these pairs; None if the labels are not enough.

    Without groups, pairs are taken to be independent.  Groups of attached comparisons come after those of pairs; where
    those of pairs alone are given, comparisons depend on each other by their points, or not at all.
    """
    groups = units_with_comparisons(groups, judgements)
    rows, n = sample_rows(len(judgements), MOST_TESTED), len(judgements)
    some, others = judgements.take(rows), judgements.comparisons
    ids = np.arange(len(rows)) if groups is None else groups[rows]
    if others is not None:
        chosen = sample_rows(len(others), MOST_TESTED)
        some = replace(some, comparisons=others.take(chosen))
        more = n + np.arange(len(chosen)) if groups is None else groups[n + chosen]
        ids = np.concatenate([ids, more])
    try:
        return check_noise_model(fit, some, groups=ids)
    except ValueError:  # the labels are not enough
        return None


def _check_all(fit: Fit, judgements: Judgements, ids: NDArray[Any] | None, n_bins: int) -> NoiseCheck:
    """Check every question that these judgements answer; those for which there are too few labels are left out."""
    counted, ids = judgements.counted(), ids if ids is None else ids[judgements.all_weights > 0]
    found, refused = [], []
    for asked in two_sided(fit, counted):
        is_attached = asked.are_compared and counted.comparisons is not None
        own = ids if ids is None else ids[len(counted) :] if is_attached else ids[: len(counted)]
        try:
            dependence = Dependence(own)
            check_units(dependence)
            # A penalty moves M away from the optimum, and can remove directions that the labels support.
            scores = LabelScores.of(asked, keep_rank=fit.alpha == 0).at_optimum()
            check_certain_enough(scores, "the noise model")
            check = _check(scores, dependence, n_bins, chooses_noise=fit.settings.noise == "auto")
            found.append(replace(check, question=asked.name))
        except ValueError as error:
            refused.append((asked.name, words_of(error)))
    if not found:
        raise ValueError(refused[0][1])
    check = _combined(found)
    if not refused:
        return check
    names = ", ".join(name for name, _ in refused)
    return replace(check, advice=check.advice + f" Not checked: {names}, because " + refused[0][1])


def _combined(parts: Sequence[NoiseCheck]) -> NoiseCheck:
    """One check from those of several questions, whose labels depend on each other."""
    if len(parts) == 1:
        return parts[0]
    worst = min(parts, key=lambda part: part.p_value)
    p_value = combine(*(part.p_value for part in parts))
    advice = (
        worst.advice + f" That is the smallest p-value of {len(parts)} checks, the one of "
        f"{worst.question or 'close/far labels'}; together, {show_p_value(p_value)}."
    )
    return replace(worst, p_value=p_value, advice=advice, parts=tuple(parts))


def _check(scores: LabelScores, dependence: Dependence, n_bins: int, *, chooses_noise: bool) -> NoiseCheck:
    scored, model = scores.scored, scores.model
    bins = _bins(scored, model, n_bins)
    n = int(bins.max()) + 1
    # One column for each question: is the share far right in this bin, and in the tails?
    questions = np.column_stack([bins[:, None] == np.arange(n), model.flip_slope / (model.variance + FLOOR)])
    found = AdjustedSums.of(questions, scores, dependence)
    # Answers to comparisons of nearly equal legs are at even odds under every noise, and which is the longer one by the
    # metric depends on them.
    first = int(scored.judgements.kind is Kind.COMPARISONS)
    asked = np.arange(n + 1)
    test, tail_z = found.chi_square((asked >= first) & (asked < n)), found.z(n)
    p_value = combine(test.p_value, 2.0 * float(norm.sf(abs(tail_z))))
    if not np.isfinite(p_value):
        raise ValueError(
            "the noise model can't be checked: the margins are so large that the test overflows; the largest is "
            f"{np.abs(scored.margin).max():.2g}. Look for outliers in the differences."
        )
    table = _table(scored, bins, found.sums[:n], np.sqrt(np.diag(found.covariance)[:n]))
    advice = advise(scored, p_value, tail_z, estimates_flips=scores.n_rates > 0, chooses_noise=chooses_noise)
    return NoiseCheck(p_value, test.statistic, test.dof, tail_z, table, advice)


def _bins(scored: Scored, model: LabelModel, n_bins: int) -> IndexArray:
    """Bins of about equal weight; neighbours are merged until each has the least variance."""
    weights = scored.judgements.weights
    weights = weights * (effective_number(weights) / weights.sum())
    fine = weighted_bins(scored.margin, weights, n_bins)
    joined = np.zeros(int(fine.max()) + 1, dtype=np.intp)
    number, held = 0, 0.0
    for index, amount in enumerate(np.bincount(fine, weights=weights * model.variance)):
        joined[index] = number
        held += amount
        if held >= (1.0 - 1e-9) * _LEAST_VARIANCE:  # whatever the rounding of a sum
            number, held = number + 1, 0.0
    if number < 2:
        kind = scored.judgements.kind
        raise ValueError(
            f"the noise model can't be checked with these {len(scored):,} {kind.noun}s: there are too few uncertain "
            f"{kind.term}s. {kind.verb.capitalize()} more {kind.noun}s."
        )
    joined[joined == number] = number - 1  # the remainder joins its neighbour
    bins: IndexArray = joined[fine]
    return bins


def _table(scored: Scored, bins: IndexArray, sums: FloatArray, errors: FloatArray) -> tuple[NoiseBin, ...]:
    weights = scored.judgements.weights
    total = np.bincount(bins, weights=weights)
    number = total / weights.mean()  # sums are of weights that are one on average
    centre = np.bincount(bins, weights=weights * scored.margin) / total
    observed = np.bincount(bins, weights=weights * scored.judgements.is_far) / total
    z = sums / np.where(errors > 0, errors, np.inf)
    columns = (centre, total, observed, observed - sums / number, errors / number, z)
    return tuple(NoiseBin(*row) for row in zip(*(column.tolist() for column in columns), strict=True))
