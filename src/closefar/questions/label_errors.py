"""Which labels are wrong?

Two things can be said about a label: whether it contradicts the learned distance, and the
probability that it is wrong.  The second needs a model of how labels arise, and is claimed only as
far as that model can be trusted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import TINY, BoolArray, FloatArray, is_dask
from closefar.fitting import Fit, Scorer, Scores
from closefar.judgements import Judgements, Kind
from closefar.model import Scored
from closefar.questions.calibration import wilson
from closefar.questions.flip_evidence import FlipEvidence
from closefar.questions.label_judge import Asked, Verdicts, judge_sides
from closefar.questions.label_trust import doubt_about, explained
from closefar.questions.lazy_labels import most_suspicious
from closefar.questions.point_places import margins_of_places
from closefar.questions.vocabulary import in_words_of

__all__ = ["LabelErrors", "claimed_share", "judge_labels"]

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
        margins, since that cannot change the side that a pair is on.  Of levels, the margin is from the threshold at
        the end of the given level that the pair is nearest to, or furthest beyond.  An annotator has thresholds of
        their own.
    labels : array of shape (n,)
        The labels as given.
    expected : array of shape (n,) or None
        Of levels: the level that the squared distance lies in.  Otherwise None, as the sign of `margin` says it.
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

    @property
    def n_contradicting(self) -> int:
        """The number of labels that contradict the learned distance."""
        return int(np.sum(self.contradicts))

    def table(self, k: int = 10) -> list[dict[str, Any]]:
        """Return the `k` most suspicious labels: index, label, probability, margin and its standard error.

        Levels also have the one that is expected.
        """
        if is_dask(self.probability):
            names = ("index", "label", "probability", "margin", "error")
            rows = most_suspicious(self, k)
            return [dict(zip(names, (np.asarray(each).item() for each in row), strict=True)) for row in rows]
        return [
            {
                "index": int(row),
                "label": _plain(self.labels[row]),
                **({} if self.expected is None else {"expected": _plain(self.expected[row])}),
                "probability": float(self.probability[row]),
                "margin": float(self.margin[row]),
                "error": float(self.error[row]),
            }
            for row in self.order[:k]
        ]

    def headline(self) -> str:
        """Return the main findings in a few sentences."""
        return in_words_of(self.kind, self._headline())

    def _headline(self) -> str:
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
        expected = "" if self.expected is None else f"{'expected':>12}  "
        lines = [
            self.headline(),
            f"{'row':>9}  {in_words_of(self.kind, 'label'):>12}  {expected}{heading:>10}  {'margin':>9}  {'error':>7}",
        ]
        for row in self.table(min(10, self.n_contradicting)):
            expected = "" if self.expected is None else f"{row['expected']!s:>12.12}  "
            lines.append(
                f"{row['index']:>9}  {row['label']!s:>12.12}  {expected}{row['probability']:>10.4f}  "
                f"{row['margin']:>9.3g}  {row['error']:>7.2g}"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        if self.share is None and is_dask(self.probability):
            known = "in partitions"
        elif self.share is None:
            known = f"{self.n_contradicting} contradict the learned distance"
        else:
            known = f"{self.share:.1%} wrong, 95% interval {self.share_low:.1%} to {self.share_high:.1%}"
        return f"LabelErrors({len(self.probability)} labels, {known})"


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def judge_labels(
    fit: Fit,
    judgements: Judgements,
    unseen: Scores,
    verdicts: Verdicts | None = None,
    *,
    groups: NDArray[Any] | None = None,
    has_places: bool = False,
) -> LabelErrors:
    """Return the probability that each label is wrong.

    Parameters
    ----------
    fit : Fit
        The fit to the judgements; these may be comparisons that were attached to pairs.
    unseen : Scored or ScoredLevels
        The judgements that have out-of-fold margins, with those margins.
    verdicts : Verdicts, optional
        The margins that rank the labels; by default those of the fit itself.
    groups : array of shape (n,) or (n, 2), optional
        Which pairs depend on each other.
    has_places : bool
        Whether points that pairs share may lie off the places that their columns give them.
    """
    alone = replace(judgements, comparisons=None)
    scores = Scorer.of(fit).score(alone)
    seen = judge_sides(lambda _: fit, Asked(alone), [])
    verdicts = seen if verdicts is None else verdicts
    flips = FlipEvidence.of_scores(scores)
    doubt = doubt_about(fit, judgements, unseen, groups)
    is_known, are_flipped = fit.statistics.uncertain_per_parameter >= _NOISE_IS_KNOWN, flips.low > _EVIDENT
    meaning = "side" if doubt is None and (not are_flipped or (is_known and groups is None)) else "flipped"
    probability, placed = verdicts.probability, None
    if meaning == "flipped":
        placed = _placed(fit, alone, groups if has_places else None)
        probability = _flipped(flips, verdicts, scores, unseen, placed)
        probability *= 1.0 if doubt is None else _LARGEST_IF_DOUBTED
    share = low = high = None
    if doubt is None:
        share, low, high = _share(judgements, (verdicts if is_known else seen).probability)
        if are_flipped or not is_known:
            low = min(low, flips.low)
        if meaning == "flipped":
            share = float(np.clip(judgements.mean(probability), low, high))
    contradicting = _share_contradicting(unseen)
    ends = wilson(contradicting, unseen.judgements.effective_number)
    expected = None if judgements.levels is None else judgements.sides.classes[verdicts.expected]
    return LabelErrors(
        probability=probability,
        order=_order(probability, verdicts, placed),
        meaning=meaning,
        share=share,
        share_low=low,
        share_high=high,
        reason=None if doubt is None else in_words_of(judgements.kind, doubt),
        contradicts=verdicts.expected != judgements.codes,
        unseen_share=contradicting,
        unseen_low=ends[0],
        unseen_high=ends[1],
        margin=verdicts.margin,
        error=verdicts.error,
        labels=judgements.labels,
        expected=expected,
        kind=judgements.kind,
    )


def _order(probability: FloatArray, verdicts: Verdicts, placed: Scored | None) -> NDArray[np.intp]:
    """Row numbers, the most suspicious first; of equally probable ones, those that contradict their margins most."""
    if placed is not None:
        return np.lexsort((placed.judgements.signs * placed.margin, -probability))
    return np.lexsort((verdicts.agreement / np.maximum(verdicts.error, TINY), -probability))


def _placed(fit: Fit, judgements: Judgements, groups: NDArray[Any] | None) -> Scored | None:
    """The labels with margins that use what all pairs of a point say, where that predicts them better."""
    margins = margins_of_places(fit, judgements, groups)
    return None if margins is None else Scored(judgements, margins, fit.metric.noise, fit.metric.flip_rate)


def _share_contradicting(scores: Scores) -> float:
    """The share of labels that contradict their margins; of levels, any of those."""
    return 1.0 - scores.judgements.mean(np.all([each.is_right for each in scores.dichotomies], axis=0))


def _flipped(
    flips: FlipEvidence, verdicts: Verdicts, scores: Scores, unseen: Scores, placed: Scored | None
) -> FloatArray:
    """P(flipped) of each label, by the margins of the verdicts, or of places where points have some.

    `flips` come from `scores`, of the fit itself.

    Out-of-fold fits also contradict labels that they could not learn, so the flip rate is at most
    that of the fit itself.  The less a metric explains, the less a contradiction means.
    """
    if placed is not None:
        return FlipEvidence.of(placed).probability * claimed_share(placed)
    probability = flips.probability
    if np.any(verdicts.is_new):
        probability = FlipEvidence.of_scores(verdicts.as_scores(scores), largest_rate=flips.rate).probability
    return probability * claimed_share(unseen)


def claimed_share(unseen: Scores, doubt: str | None = None) -> float:
    """How much of P(flipped) is claimed: the less, the less a metric explains, and never all if it is in doubt."""
    return max(explained(unseen), _LEAST_FACTOR) * (1.0 if doubt is None else _LARGEST_IF_DOUBTED)


def _share(judgements: Judgements, probability: FloatArray) -> tuple[float, float, float]:
    """The share of wrong labels, and its 95% interval.

    Its variance has two parts, uncertainty about each label and sampling: P (1 - P) + (P - share)^2.
    """
    shares = judgements.shares
    share = float(shares @ probability)
    spread = 1.96 * float(np.sqrt(np.sum(shares**2 * (probability * (1.0 - 2.0 * share) + share**2))))
    return share, max(share - spread, 0.0), min(share + spread, 1.0)
