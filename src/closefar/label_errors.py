"""Which labels are wrong?

A label is wrong if it is not that of the side of the threshold on which its pair lies.
The true margin is known up to its standard error, so for each label there is a
probability that it is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.base import clone
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import column_or_1d

from closefar.arrays import FloatArray
from closefar.folds import PairGroupKFold, Split
from closefar.noise import Noise
from closefar.pairs import check_labels, check_pairs, check_weights
from closefar.tangent import LabelModel, Tangent

if TYPE_CHECKING:
    from closefar.learner import LinearMetricLearner

__all__ = ["LabelErrors", "find_label_errors"]

_METHODS = ("out-of-fold", "in-sample")

# Standard errors beyond which nothing changes, and squares do not overflow.
_SURE = 1e6


@dataclass(frozen=True, repr=False)
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
    margin: FloatArray = field(compare=False)
    error: FloatArray = field(compare=False)
    labels: NDArray[Any] = field(compare=False)

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
    learner: LinearMetricLearner,
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
        Pairs of the same group share a fold.  Two groups a pair, the ids of its points, make the
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
    >>> from closefar.label_errors import find_label_errors
    >>> data = cf.datasets.make_pairs(3000, 4, noise="flips", wrong_share=0.1, random_state=0)
    >>> errors = find_label_errors(cf.LinearMetricLearner(), data.pairs, data.labels, random_state=0)
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
    differences = check_pairs(clone(learner), pairs, fitting=True)
    given = column_or_1d(labels)
    classes, signs = check_labels(given, learner.far_label, len(differences))
    weights = check_weights(sample_weight, None, signs, differences)
    splits = _splits(cv, groups, signs, random_state) if method == "out-of-fold" else []
    tested = np.zeros(len(signs), dtype=bool)
    for _, test in splits:
        tested[test] = True
    if not np.all(tested):
        splits.append((np.arange(len(signs)), np.flatnonzero(~tested)))
    fresh = clone(learner).set_params(far_label=classes.tolist()[1])
    fits = Parallel(n_jobs=n_jobs)(
        delayed(_fit)(clone(fresh), pairs, given, weights, train, test) for train, test in splits
    )
    margin, error, probability = np.empty((3, len(signs)))
    for (_, test), fit in zip(splits, fits, strict=True):
        margin[test], error[test] = fit.margin[test], fit.error
    if tested.any():
        folds = [fit.margin for fit in fits if fit.is_new]
        train_share = sum(len(train) for train, _ in splits[: len(folds)]) / (len(folds) * len(signs))
        error *= _error_ratio(folds, error, train_share) if len(folds) > 1 else 1.0
    for (_, test), fit in zip(splits, fits, strict=True):
        probability[test] = fit.probability_wrong(signs[test] * margin[test], error[test])
    order = np.lexsort((signs * margin / np.maximum(error, 1e-300), -probability))
    shares = weights / weights.sum()
    share = float(shares @ probability)
    # Doubt about each label, and chance in which labels went wrong: P (1 - P) + (P - share)^2.
    spread = 1.96 * float(np.sqrt(np.sum(shares**2 * (probability * (1.0 - 2.0 * share) + share**2))))
    return LabelErrors(probability, order, share, max(share - spread, 0.0), share + spread, margin, error, given)


def _splits(cv: Any, groups: Any, signs: FloatArray, random_state: Any) -> list[Split]:
    if not hasattr(cv, "split"):
        seed = check_random_state(random_state).randint(2**31)
        folds = StratifiedKFold if groups is None else PairGroupKFold if np.ndim(groups) == 2 else StratifiedGroupKFold
        cv = folds(cv, shuffle=True, random_state=seed)
    return list(cv.split(np.zeros((len(signs), 1)), signs, groups))


@dataclass(frozen=True)
class _Fit:
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
        z = np.clip(agreement / np.maximum(error, 1e-300), -_SURE, _SURE)
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


def _fit(
    learner: LinearMetricLearner,
    pairs: Any,
    labels: NDArray[Any],
    weights: FloatArray,
    train: NDArray[np.intp],
    test: NDArray[np.intp],
) -> _Fit:
    seen, asked = _safe_indexing(pairs, train), _safe_indexing(pairs, test)
    learner.fit(seen, labels[train], sample_weight=weights[train])
    return _Fit(
        margin=learner.decision_function(pairs),
        error=_errors_of_sides(learner, seen, weights[train], asked),
        noise=learner.metric_.noise,
        flip_rate=float(learner.flip_rate_),
        is_new=len(np.intersect1d(train, test)) == 0,
    )


def _errors_of_sides(learner: LinearMetricLearner, seen: Any, weights: FloatArray, unseen: Any) -> FloatArray:
    """The standard errors of margins, without what multiplies all margins by one number and changes no side.

    Margins are linear in (M, tau), so that number has the information sum_i I_i m_i^2 and is
    independent, to first order, of what is left.
    """
    fitted, asked = (check_pairs(learner, pairs, fitting=False) for pairs in (seen, unseen))
    margin = learner.decision_function(seen)
    model = LabelModel.at(margin, learner.metric_.noise, float(learner.flip_rate_))
    tangent = Tangent(learner.metric_, fitted, weights)
    variance = tangent.margin_variances(asked, tangent.covariance(fitted, model, weights))
    of_scale = 1.0 / max(float(np.sum(weights * model.information * margin**2)), 1e-300)
    return np.sqrt(np.maximum(variance - of_scale * learner.decision_function(unseen) ** 2, 0.0))


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
