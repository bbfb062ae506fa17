"""Which labels are wrong?

Two things can be said about a label: whether it contradicts the learned distance, and the
probability that it is wrong.  The second needs a model of how labels arise, and is claimed only as
far as that model can be trusted.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from closefar.arrays import TINY, BoolArray, FloatArray
from closefar.fitting import Fit, Learner, count_parameters, fit_from, is_near_parts
from closefar.judgements import Judgements, Split, resolve_groups, split_judgements
from closefar.model import Scored
from closefar.questions.calibration import wilson
from closefar.questions.flip_evidence import FlipEvidence
from closefar.questions.label_judge import Verdicts, judge_sides, unseen_margins
from closefar.questions.label_trust import doubt_about, explained

__all__ = ["LabelErrors", "find_label_errors", "judge_labels", "label_error_settings"]

_METHODS = ("auto", "out-of-fold", "in-sample")

# The penalty per parameter and pair, and its upper limit: many parameters fit labels that they should call wrong.
_PENALTY = 0.03
_LARGEST_PENALTY = 1.6  # times 1 / sqrt(n)
_PAIRS_WITHOUT_PENALTY = 40  # per parameter

# With at least this many uncertain labels per parameter, the noise near the threshold is known.
_NOISE_IS_KNOWN = 10.0

# Flips are evident if their rate is above this.
_EVIDENT = 0.01

# The largest P(flipped) that is reported if the metric is in doubt.
_LARGEST_IF_DOUBTED = 0.95

# The factor of the probabilities if the metric explains nothing; it keeps only their order.
_LEAST_FACTOR = 0.01


@dataclass(frozen=True, eq=False)
class LabelErrors:
    """The probability that each label is wrong.

    Attributes
    ----------
    probability : array of shape (n,)
        The probability that the label is wrong, in the sense of `meaning`.
    order : array of shape (n,)
        Row numbers, the most suspicious first.
    meaning : {"side", "flipped"}
        "side": a label is wrong if its pair truly lies on the other side of the threshold, whether
        by noise or by a flip.  "flipped": a label is wrong if it was flipped, whatever the distance;
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
        Whether the label contradicts the sign of `margin`.
    unseen_share, unseen_low, unseen_high : float or None
        The share of labels that contradict a distance learned without them, with its 95%
        interval.  None if no label was left out, as with ``method="in-sample"``.
    margin, error : arrays of shape (n,)
        The margin of each pair, and its standard error, which ignores the common scale of all
        margins, since that cannot change the side that a pair is on.
    labels : array of shape (n,)
        The labels as given.
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

    @property
    def n_contradicting(self) -> int:
        """The number of labels that contradict the learned distance."""
        return int(np.sum(self.contradicts))

    def table(self, k: int = 10) -> list[dict[str, Any]]:
        """Return the `k` most suspicious labels: index, label, probability, margin and its standard error."""
        return [
            {
                "index": int(row),
                "label": self.labels[row].item() if isinstance(self.labels[row], np.generic) else self.labels[row],
                "probability": float(self.probability[row]),
                "margin": float(self.margin[row]),
                "error": float(self.error[row]),
            }
            for row in self.order[:k]
        ]

    def headline(self) -> str:
        """Return the main findings in a few sentences."""
        n, doubtful = len(self.probability), int(np.sum(self.probability > 0.5))
        if self.share is None:
            likely = f"{doubtful:,} are more likely flipped than not." if doubtful else "None is clearly flipped."
            out_of_fold = ""
            if self.unseen_share is not None:
                interval = f"95% interval {self.unseen_low:.1%} to {self.unseen_high:.1%}"
                out_of_fold = f"; out-of-fold, {self.unseen_share:.1%} do ({interval})"
            return (
                f"{self.n_contradicting:,} of {n:,} labels contradict the learned distance{out_of_fold}.\n"
                f"The number of wrong labels can't be estimated: {self.reason}. {likely}"
            )
        likely = "more likely wrong than right" if self.meaning == "side" else "more likely flipped than not"
        return (
            f"{self.share:.1%} of {n:,} labels are wrong (95% interval {self.share_low:.1%} to "
            f"{self.share_high:.1%}); {self.n_contradicting:,} contradict the learned distance.\n"
            f"{doubtful:,} are {likely}."
        )

    def summary(self) -> str:
        """Return the main findings and the ten most suspicious labels as text."""
        heading = "P(wrong)" if self.meaning == "side" else "P(flipped)"
        lines = [
            self.headline(),
            f"{'row':>9}  {'label':>12}  {heading:>10}  {'margin':>9}  {'error':>7}",
        ]
        for row in self.table(min(10, self.n_contradicting)):
            lines.append(
                f"{row['index']:>9}  {row['label']!s:>12.12}  {row['probability']:>10.4f}  "
                f"{row['margin']:>9.3g}  {row['error']:>7.2g}"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        if self.share is None:
            known = f"{self.n_contradicting} contradict the learned distance"
        else:
            known = f"{self.share:.1%} wrong, 95% interval {self.share_low:.1%} to {self.share_high:.1%}"
        return f"LabelErrors({len(self.probability)} labels, {known})"


def find_label_errors(
    learner: Learner,
    pairs: Any,
    labels: Any = None,
    *,
    sample_weight: Any = None,
    cv: Any = 5,
    groups: Any = None,
    method: str = "auto",
    n_jobs: int | None = None,
    random_state: Any = None,
) -> LabelErrors:
    """Find labels that are probably wrong.

    A label is wrong if its pair truly lies on the other side of the threshold.  If the noise model
    passes its checks, the probability of that follows from the margin and its standard error, and
    a share of wrong labels is reported.  Otherwise a label that contradicts the learned distance
    may be right, and the distance wrong.  Then a label is called wrong if it was flipped, whatever
    the distance.  The probability of that follows from how contradictions become rarer as the margin
    grows, since flips do not.  No share is reported in that case; the number of labels that
    contradict the learned distance always is.

    Parameters
    ----------
    learner : LinearMetricLearner
        The learner to fit; it is not changed.  Its flip rate is estimated unless it is set to a
        number above zero.
    pairs, labels, sample_weight
        As for `learner.fit`.
    cv : int or splitter, default=5
        The folds for out-of-fold fits; fewer if the rarer label does not occur in that many.
    groups : array of shape (n,) or (n, 2), optional
        Pairs of the same group share a fold.  Two ids per pair, those of its points, give the folds
        of `PairGroupKFold` if both sides of each split have both labels; a pair that is in no test
        fold is judged in-sample.  By default, points that pairs share are detected in (n, 2, d) data.
    method : {"auto", "out-of-fold", "in-sample"}, default="auto"
        "in-sample" judges each label by one fit to all labels, "out-of-fold" by a fit that has not
        seen it.  "auto" is in-sample, which ranks labels best.  It adds a penalty if there are fewer
        than 40 pairs per parameter, no penalty is set and the noise is fixed.  Out-of-fold fits give
        the share of labels that contradict a distance learned without them.  From 50,000 pairs on
        these fits start from the fit to all pairs.
    n_jobs : int, optional
        The number of folds to fit in parallel.
    random_state : int, RandomState or None
        Seed of the folds.

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
    if learner.class_weight is not None:
        raise ValueError(
            "class_weight must be None to find wrong labels, since it moves the threshold; got "
            f"{learner.class_weight!r}. Leave it out."
        )
    judgements = Judgements.read(clone(learner), pairs, labels, sample_weight, far_label=learner.far_label)
    found_groups = resolve_groups(groups, judgements.data)
    flip_aware = clone(learner)
    flip_aware.set_params(**label_error_settings(learner.get_params(), judgements, penalise=method == "auto"))
    fit = _learn_with_warnings(flip_aware, judgements)
    splits = []
    if method != "in-sample":
        seed = check_random_state(random_state).randint(2**31)
        splits = _splits(cv, judgements, found_groups, seed)
    learn = partial(_learn, flip_aware, fit, len(judgements))
    if method == "auto":
        verdicts, margin = None, unseen_margins(learn, judgements, splits, n_jobs=n_jobs)
    else:
        verdicts = judge_sides(learn, judgements, splits, n_jobs=n_jobs)
        margin = np.where(verdicts.is_new, verdicts.margin, np.nan)
    tested = np.flatnonzero(~np.isnan(margin))
    unseen = Scored(judgements.take(tested), margin[tested], fit.metric.noise, fit.flip_rate)
    if len(tested) > 0:
        return judge_labels(fit, judgements, unseen, verdicts, groups=found_groups)
    found = judge_labels(fit, judgements, Scored.by(fit.metric, judgements), verdicts, groups=found_groups)
    return replace(found, unseen_share=None, unseen_low=None, unseen_high=None)


def label_error_settings(
    parameters: dict[str, Any], judgements: Judgements, *, penalise: bool = True
) -> dict[str, Any]:
    """The parameters to change in a learner that finds wrong labels: flips, and a penalty if there are few pairs."""
    changes: dict[str, Any] = {}
    if isinstance(parameters["flip_rate"], numbers.Real) and parameters["flip_rate"] == 0.0:
        changes["flip_rate"] = "estimate"
    rank = parameters.get("rank")
    n_parameters = count_parameters(
        judgements.n_columns,
        int(rank) if isinstance(rank, numbers.Integral) else None,
        has_origin=parameters["fit_origin"],
    )
    n = judgements.effective_number
    is_free = isinstance(parameters.get("alpha"), numbers.Real) and parameters["alpha"] == 0.0
    chooses_noise = isinstance(parameters.get("noise"), str) and parameters["noise"] == "auto"
    if penalise and is_free and not chooses_noise and n < _PAIRS_WITHOUT_PENALTY * n_parameters:
        changes["alpha"] = min(_PENALTY * n_parameters / n, _LARGEST_PENALTY / math.sqrt(n))
    return changes


def judge_labels(
    fit: Fit,
    judgements: Judgements,
    unseen: Scored,
    verdicts: Verdicts | None = None,
    *,
    groups: NDArray[Any] | None = None,
) -> LabelErrors:
    """Return the probability that each label is wrong.

    Parameters
    ----------
    fit : Fit
        The fit to the judgements.
    unseen : Scored
        The judgements that have out-of-fold margins, with those margins.
    verdicts : Verdicts, optional
        The margins that rank the labels; by default those of the fit itself.
    groups : array of shape (n,) or (n, 2), optional
        Which pairs depend on each other.
    """
    scored = Scored.by(fit.metric, judgements)
    seen = judge_sides(lambda _: fit, judgements, [])
    verdicts = seen if verdicts is None else verdicts
    flips = FlipEvidence.of(scored)
    doubt = doubt_about(fit, judgements, unseen, groups)
    is_known = fit.statistics.uncertain_per_parameter >= _NOISE_IS_KNOWN
    are_flipped = flips.low > _EVIDENT
    meaning = "side" if doubt is None and (not are_flipped or (is_known and groups is None)) else "flipped"
    probability = verdicts.probability
    if meaning == "flipped":
        probability = _flipped(flips, verdicts, scored, unseen) * (1.0 if doubt is None else _LARGEST_IF_DOUBTED)
    share = low = high = None
    if doubt is None:
        share, low, high = _share(judgements, (verdicts if is_known else seen).probability)
        if are_flipped or not is_known:
            low = min(low, flips.low)
        if meaning == "flipped":
            share = float(np.clip(judgements.mean(probability), low, high))
    contradicting = 1.0 - unseen.accuracy
    ends = wilson(contradicting, unseen.judgements.effective_number)
    agreement = judgements.signs * verdicts.margin
    return LabelErrors(
        probability=probability,
        order=np.lexsort((agreement / np.maximum(verdicts.error, TINY), -probability)),
        meaning=meaning,
        share=share,
        share_low=low,
        share_high=high,
        reason=doubt,
        contradicts=(verdicts.margin >= 0) != judgements.is_far,
        unseen_share=contradicting,
        unseen_low=ends[0],
        unseen_high=ends[1],
        margin=verdicts.margin,
        error=verdicts.error,
        labels=judgements.labels,
    )


def _flipped(flips: FlipEvidence, verdicts: Verdicts, scored: Scored, unseen: Scored) -> FloatArray:
    """P(flipped) of each label, by the margins of the verdicts; `flips` come from `scored`, the fit itself.

    Out-of-fold fits also contradict labels that they could not learn, so the flip rate is at most
    that of the fit itself.  The less a metric explains, the less a contradiction means.
    """
    probability = flips.probability
    if np.any(verdicts.is_new):
        by_folds = Scored(scored.judgements, verdicts.margin, scored.noise, scored.flip_rate)
        probability = FlipEvidence.of(by_folds, largest_rate=flips.rate).probability
    return probability * max(explained(unseen), _LEAST_FACTOR)


def _share(judgements: Judgements, probability: FloatArray) -> tuple[float, float, float]:
    """The share of wrong labels, and its 95% interval.

    Its variance has two parts, uncertainty about each label and sampling: P (1 - P) + (P - share)^2.
    """
    shares = judgements.shares
    share = float(shares @ probability)
    spread = 1.96 * float(np.sqrt(np.sum(shares**2 * (probability * (1.0 - 2.0 * share) + share**2))))
    return share, max(share - spread, 0.0), min(share + spread, 1.0)


def _learn_with_warnings(learner: Learner, judgements: Judgements) -> Fit:
    fit = learner.learn(judgements)
    fit.warn(stacklevel=3)
    return fit.unless_interrupted()


def _learn(learner: Learner, fit: Fit, n: int, judgements: Judgements) -> Fit:
    """Fit to some of the pairs; the fit to all n is known already, and a good start if there are many."""
    if len(judgements) == n:
        return fit
    return fit_from(fit, judgements) if is_near_parts(fit) else learner.learn(judgements)


def _splits(cv: Any, judgements: Judgements, groups: NDArray[Any] | None, seed: int) -> list[Split]:
    """The folds; fewer, and then without groups, if one side of a split has only one label."""
    if not isinstance(cv, numbers.Integral):
        return split_judgements(cv, judgements, groups=groups, seed=seed)
    counts = judgements.weights > 0
    most = min(int(cv), int(np.sum(counts & judgements.is_far)), int(np.sum(counts & ~judgements.is_far)))
    for by in (groups, None) if groups is not None else (None,):
        for n_folds in sorted({most, min(most, 3), min(most, 2)}, reverse=True):
            if n_folds < 2:
                continue
            try:
                splits = split_judgements(n_folds, judgements, groups=by, seed=seed)
            except ValueError:
                continue
            if all(_can_train(judgements.take(train)) for train, _ in splits):
                return splits
    return []


def _can_train(judgements: Judgements) -> bool:
    weights = [judgements.weights[judgements.is_far == is_far] for is_far in (False, True)]
    return all(bool(np.any(each > 0)) for each in weights)
