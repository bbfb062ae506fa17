"""Which labels are wrong?

A label is wrong if it is not that of the side of the threshold on which its pair lies.
The true margin is known up to its standard error, so for each label there is a
probability that it is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed

from closefar.arrays import TINY, FloatArray, IndexArray
from closefar.fitting import Fit, Learner
from closefar.judgements import Judgements, Split, split_judgements
from closefar.model import Metric, Scored
from closefar.noise import Noise
from closefar.questions.label_model import LabelModel
from closefar.questions.moves import MarginMoves

__all__ = ["LabelErrors", "find_label_errors", "judge_labels"]

_METHODS = ("out-of-fold", "in-sample")

# Standard errors beyond which nothing changes, and squares do not overflow.
_SURE = 1e6


@dataclass(frozen=True, eq=False)
class LabelErrors:
    """How probable it is that each label is wrong.

    Attributes
    ----------
    probability : array of shape (n,)
        That the label is wrong.
    order : array of shape (n,)
        Row numbers, the most suspicious first.
    share, share_low, share_high : float
        The share of labels that are wrong, and a 95 % interval for the rate at which labels are
        wrong where these pairs come from.
    margin, error : arrays of shape (n,)
        The margin of each pair, and its standard error apart from the scale of all margins,
        on which no side depends.
    labels : array of shape (n,)
        As given.
    """

    probability: FloatArray
    order: NDArray[np.intp]
    share: float
    share_low: float
    share_high: float
    margin: FloatArray
    error: FloatArray
    labels: NDArray[Any]

    @classmethod
    def of(cls, judgements: Judgements, probability: FloatArray, margin: FloatArray, error: FloatArray) -> LabelErrors:
        """Rank labels by the probability that each is wrong, and estimate the share of wrong ones."""
        order = np.lexsort((judgements.signs * margin / np.maximum(error, TINY), -probability))
        shares = judgements.shares
        share = float(shares @ probability)
        # Doubt about each label, and chance in which labels went wrong: P (1 - P) + (P - share)^2.
        spread = 1.96 * float(np.sqrt(np.sum(shares**2 * (probability * (1.0 - 2.0 * share) + share**2))))
        low, high = max(share - spread, 0.0), min(share + spread, 1.0)
        return cls(probability, order, share, low, high, margin, error, judgements.labels)

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

    def summary(self) -> str:
        """Return what was found, and the ten most suspicious labels."""
        doubtful = int(np.sum(self.probability > 0.5))
        lines = [
            f"{self.share:.1%} of {len(self.probability):,} labels are wrong "
            f"(95 % interval {self.share_low:.1%} to {self.share_high:.1%}).",
            f"{doubtful:,} are more likely wrong than right.",
            f"{'row':>9}  {'label':>12}  {'P(wrong)':>9}  {'margin':>9}  {'error':>7}",
        ]
        for row in self.table(min(10, doubtful)):
            lines.append(
                f"{row['index']:>9}  {row['label']!s:>12.12}  {row['probability']:>9.4f}  "
                f"{row['margin']:>9.3g}  {row['error']:>7.2g}"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"LabelErrors({len(self.probability)} labels, {self.share:.1%} wrong, "
            f"95 % interval {self.share_low:.1%} to {self.share_high:.1%})"
        )


def find_label_errors(
    learner: Learner,
    pairs: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    cv: Any = 5,
    groups: Any = None,
    method: str = "out-of-fold",
    n_jobs: int | None = None,
    random_state: Any = None,
) -> LabelErrors:
    """Find labels that are probably wrong.

    The margin of a pair is estimated with a standard error.  Without its label, the true margin
    is taken to be normal around the estimate; the label then makes its own side likelier, as
    the noise model says.  The probability left for the other side is that of a wrong label.
    All of this trusts the noise model, which `check_noise_model` tests.

    Parameters
    ----------
    learner : LinearMetricLearner
        What to fit; itself left as it is.  Where labels may be flipped whatever the distance,
        ``flip_rate="estimate"`` finds them better.
    pairs, labels, sample_weight
        As for `learner.fit`.
    cv : int or splitter, default=5
        The folds; each label is judged by a fit that has not seen it.
    groups : array of shape (n,) or (n, 2), optional
        Pairs of the same group share a fold.  Two groups per pair, the ids of its points, make the
        folds of `PairGroupKFold`; a pair that none of them tests is judged as "in-sample" does.
    method : {"out-of-fold", "in-sample"}, default="out-of-fold"
        "in-sample" fits once, to all labels.
    n_jobs : int, optional
        Folds fitted at the same time.
    random_state : int, RandomState or None
        Chooses the folds.

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
            f"{learner.class_weight!r}. Leave it out here."
        )
    judgements = Judgements.read(clone(learner), pairs, labels, sample_weight, far_label=learner.far_label)
    seed = check_random_state(random_state).randint(2**31)
    splits = split_judgements(cv, judgements, groups=groups, seed=seed) if method == "out-of-fold" else []
    return judge_labels(partial(_learn_aloud, learner), judgements, splits, n_jobs=n_jobs)


def _learn_aloud(learner: Learner, judgements: Judgements) -> Fit:
    fit = learner.learn(judgements)
    fit.warn(stacklevel=2)
    return fit


def judge_labels(
    learn: Callable[[Judgements], Fit], judgements: Judgements, splits: list[Split], *, n_jobs: int | None = None
) -> LabelErrors:
    """Judge each label by a fit to the train side of the split that tests it; one that none tests, by a fit to all."""
    n = len(judgements)
    tested = np.zeros(n, dtype=bool)
    for _, test in splits:
        tested[test] = True
    if not np.all(tested):
        splits = [*splits, (np.arange(n), np.flatnonzero(~tested))]
    judges = Parallel(n_jobs=n_jobs)(delayed(_judge)(learn, judgements, train, test) for train, test in splits)
    margin, error, probability = np.empty((3, n))
    for (_, test), judge in zip(splits, judges, strict=True):
        margin[test], error[test] = judge.margin[test], judge.error
    if tested.any():
        folds = [judge.margin for judge in judges if judge.is_new]
        train_share = sum(len(train) for train, _ in splits[: len(folds)]) / (len(folds) * n)
        error *= _error_ratio(folds, error, train_share) if len(folds) > 1 else 1.0
    signs = judgements.signs
    for (_, test), judge in zip(splits, judges, strict=True):
        probability[test] = judge.probability_wrong(signs[test] * margin[test], error[test])
    return LabelErrors.of(judgements, probability, margin, error)


@dataclass(frozen=True)
class Judge:
    """A fit to one side of a split: the margins of all pairs, and the errors of those on the other side.

    `is_new` says that the fit has not seen the labels that it judges.
    """

    margin: FloatArray
    error: FloatArray
    noise: Noise
    flip_rate: float
    is_new: bool

    def probability_wrong(self, agreement: FloatArray, error: FloatArray) -> FloatArray:
        """P(the true margin contradicts the label), where `agreement` is label times estimated margin.

        A new label is evidence of its own: its likelihood is taken at the mean of the margin on
        either side.
        """
        z = np.clip(agreement / np.maximum(error, TINY), -_SURE, _SURE)
        log_wrong, log_right = norm.logcdf(-z), norm.logcdf(z)
        probability: FloatArray
        if not self.is_new:
            probability = np.exp(log_wrong)
            return probability
        density = norm.logpdf(z)
        mean_wrong = np.minimum(agreement - error * np.exp(density - log_wrong), 0.0)
        mean_right = np.maximum(agreement + error * np.exp(density - log_right), 0.0)
        wrong = np.exp(log_wrong) * LabelModel.at(mean_wrong, self.noise, self.flip_rate).far
        right = np.exp(log_right) * LabelModel.at(mean_right, self.noise, self.flip_rate).far
        probability = wrong / (wrong + right)
        return probability


def _judge(learn: Callable[[Judgements], Fit], judgements: Judgements, train: IndexArray, test: IndexArray) -> Judge:
    seen, asked = judgements.take(train), judgements.take(test)
    fit = learn(seen).unless_interrupted()
    return Judge(
        margin=Scored.by(fit.metric, judgements).margin,
        error=_errors_of_sides(fit.metric, seen.counted(), asked),
        noise=fit.metric.noise,
        flip_rate=fit.flip_rate,
        is_new=len(np.intersect1d(train, test)) == 0,
    )


def _errors_of_sides(metric: Metric, seen: Judgements, asked: Judgements) -> FloatArray:
    """The standard errors of margins, without what multiplies all margins by one number and changes no side.

    Margins are linear in (M, tau), so that number has the information sum_i I_i m_i^2 and is
    independent, to first order, of what is left.
    """
    margin = Scored.by(metric, seen).margin
    model = LabelModel.at(margin, metric.noise, metric.flip_rate)
    moves = MarginMoves(metric, seen)
    variance = moves.variances(asked.data, moves.covariance(seen.data, model, seen.weights))
    of_scale = 1.0 / max(float(np.sum(seen.weights * model.information * margin**2)), TINY)
    return np.sqrt(np.maximum(variance - of_scale * Scored.by(metric, asked).margin ** 2, 0.0))


def _error_ratio(margins: list[FloatArray], error: FloatArray, train_share: float) -> float:
    """How much larger errors are by the differences of the folds' fits than by the likelihood's curvature.

    A grouped jackknife, over the half of the pairs nearest to the threshold.  It matters where
    the model is wrong, where pairs are dependent, and where labels are wrong by flips alone:
    then a side is known better than the curvature says.
    """
    lengths = [float(np.sqrt(np.mean(margin**2))) or 1.0 for margin in margins]
    scaled = np.array([margin / length for margin, length in zip(margins, lengths, strict=True)])
    centre = np.mean(scaled, axis=0)
    near = np.abs(centre) <= np.median(np.abs(centre))
    by_folds = np.var(scaled[:, near], axis=0) / (1.0 - min(train_share, 1.0 - 1e-9))
    by_model = (error[near] / np.mean(lengths)) ** 2
    usual = by_model + np.median(by_model)
    if not np.all(usual > 0):
        return 1.0
    return float(np.sqrt(np.sum(by_folds / usual) / np.sum(by_model / usual)))
