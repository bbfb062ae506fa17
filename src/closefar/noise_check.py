"""Is the noise model right?  Labels observed against labels expected, by margin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import chi2, norm
from sklearn.utils.validation import check_is_fitted

from closefar.arrays import FloatArray
from closefar.noise import NOISES, Noise, label_losses
from closefar.pairs import Differences, check_labels, check_pairs, check_weights
from closefar.tangent import LabelModel, Tangent, pseudo_inverse

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from closefar.learner import LinearMetricLearner

__all__ = ["NoiseBin", "NoiseCheck", "check_noise_model"]

_BINS = 10
_DOUBT = 0.05
_TAILS_DIFFER = 2.0
_SMALLEST_SHOWN = 0.0001

# Neighbouring bins are joined until the variance of their number of far labels is this large.
_LEAST_VARIANCE = 5.0

# A direction of the bins of which the fit explains all but this share is left out.
_NEARLY_EXPLAINED = 1e-3

# The test of the tails weighs a pair as if this share of labels were flipped: no single margin can then decide it.
_FLOOR = 0.01


@dataclass(frozen=True)
class NoiseBin:
    """The pairs of one range of margins: mean margin, summed weight, share far, and what the model says.

    `z` is (observed - expected) / `error`, about standard normal if the model is right.
    """

    margin: float
    count: float
    observed: float
    expected: float
    error: float
    z: float


@dataclass(frozen=True)
class NoiseCheck:
    """Whether labels are as frequent at each margin as the noise model says.

    Attributes
    ----------
    p_value : float
        Of both tests together: twice the smaller of their two, at most 1.
    statistic, dof : float, int
        The chi-square test of all bins, and its degrees of freedom.
    tail_z : float
        The test of the tails, standard normal if the model is right: positive where labels
        that contradict a large margin are more frequent than the model says.
    bins : tuple of NoiseBin
        From the smallest margin to the largest.
    advice : str
        What to do, in a sentence.
    """

    p_value: float
    statistic: float
    dof: int
    tail_z: float
    bins: tuple[NoiseBin, ...]
    advice: str

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw observed minus expected share far by margin, with the range of 95 % of such differences."""
        from closefar import plot  # which needs the learner, and that needs this

        return plot.noise_check(self, ax=ax)


def check_noise_model(
    learner: LinearMetricLearner, X: Any, y: Any, sample_weight: Any = None, *, n_bins: int = _BINS
) -> NoiseCheck:
    """Test whether labels are as frequent at each margin as the fitted model says.

    Two tests in one: a chi-square test of the share far in bins of the margin, and a test of
    labels that contradict large margins, which tells noises of light and heavy tails apart.
    Both are score tests: they take out what the fit of (M, tau) explains, so they are right
    for the pairs of the fit, for others, and for a small `alpha`.  With few pairs a free
    number of M, p-values tend to be too small.

    Parameters
    ----------
    learner : LinearMetricLearner
        Fitted, without `class_weight`.
    X, y : pairs and labels
        In any form that `learner.fit` takes; those of the fit, or others.
    sample_weight : array of n numbers >= 0, optional
        A weight of 2 counts as the pair given twice, by two independent observations.
    n_bins : int, default=10
        Bins of about equal weight; neighbours of too little variance are joined.

    Returns
    -------
    NoiseCheck

    Examples
    --------
    >>> import closefar as cf
    >>> from closefar.noise_check import check_noise_model
    >>> pairs, labels, *_ = cf.datasets.make_pairs(5000, 4, noise="flips", random_state=0)
    >>> learner = cf.LinearMetricLearner().fit(pairs, labels)
    >>> check_noise_model(learner, pairs, labels).p_value < 0.001
    True
    """
    learner = cast("LinearMetricLearner", getattr(learner, "best_estimator_", learner))
    _check_checkable(learner)
    differences = check_pairs(learner, X, fitting=False)
    classes, signs = check_labels(y, learner.classes_[1], len(differences))
    if not np.array_equal(classes, learner.classes_):
        raise ValueError(f"labels must be those of the fit, {learner.classes_.tolist()}; got {classes.tolist()}.")
    weights = check_weights(sample_weight, None, signs, differences)
    sample = _Sample(learner.decision_function(X), signs > 0, weights, learner.metric_.noise, learner.flip_rate_)
    model = sample.model()
    bins = _bins(sample.margin, weights * model.variance, weights, n_bins)
    n = int(bins.max()) + 1
    # One column a question: is the share far right in this bin, and in the tails?
    questions = np.column_stack([bins[:, None] == np.arange(n), model.flip_slope / (model.variance + _FLOOR)])
    scores = _Scores(
        Tangent(learner.metric_, differences, weights), differences, model, learner.flip_rate == "estimate"
    )
    sums, covariance = _adjusted_sums(questions, scores, model, sample)
    statistic, dof = _chi_square(sums[:n], covariance[:n, :n])
    tail_z = float(sums[n] / np.sqrt(covariance[n, n])) if covariance[n, n] > 0 else 0.0
    p_value = min(1.0, 2.0 * min(float(chi2.sf(statistic, dof)), 2.0 * float(norm.sf(abs(tail_z)))))
    table = _table(sample, bins, sums[:n], np.sqrt(np.diag(covariance)[:n]))
    return NoiseCheck(p_value, statistic, dof, tail_z, table, _advice(sample, p_value, tail_z))


@dataclass(frozen=True)
class _Sample:
    """Margins with their labels and weights, and the model of them."""

    margin: FloatArray
    is_far: NDArray[np.bool_]
    weights: FloatArray
    noise: Noise
    flip_rate: float

    def model(self) -> LabelModel:
        return LabelModel.at(self.margin, self.noise, self.flip_rate)

    def refitted_loss(self, noise: Noise, *, estimate_flips: bool = False) -> float:
        """The least mean loss under another noise, with only a scale and a shift of the margins fitted anew."""
        signs = np.where(self.is_far, 1.0, -1.0)

        def loss(parameters: FloatArray) -> float:
            scale, shift, rate = parameters
            rows = label_losses(noise, signs * (np.exp(scale) * self.margin - shift), rate)
            return float(np.average(rows, weights=self.weights))

        start = [0.0, 0.0, max(self.flip_rate, 0.02) if estimate_flips else self.flip_rate]
        rates = (0.0, 0.49) if estimate_flips else (self.flip_rate, self.flip_rate)
        bounds = ((-4.0, 4.0), (None, None), rates)
        return float(minimize(loss, start, method="L-BFGS-B", bounds=bounds).fun)


@dataclass(frozen=True)
class _Scores:
    """The score of each parameter over the residual of the label, block by block."""

    tangent: Tangent
    differences: Differences
    model: LabelModel
    with_flip_rate: bool

    @property
    def n_parameters(self) -> int:
        return self.tangent.n_moves + self.with_flip_rate

    def __iter__(self) -> Iterator[tuple[slice, FloatArray]]:
        slope, flip_slope = self.model.slope / self.model.variance, self.model.flip_slope / self.model.variance
        for where, moves in self.tangent.blocks(self.differences):
            scores = moves * slope[where, None]
            yield where, np.column_stack([scores, flip_slope[where]]) if self.with_flip_rate else scores


def _check_checkable(learner: LinearMetricLearner) -> None:
    check_is_fitted(learner)
    if learner.class_weight is not None:
        raise ValueError(
            "class_weight must be None to check the noise model, since it changes the probabilities; got "
            f"{learner.class_weight!r}. Fit without it to check."
        )
    if learner.certificate_.status.startswith("separable"):
        raise ValueError(
            "the noise model can't be checked where the metric gets every label right: the scale of its margins is "
            "arbitrary. Label more pairs."
        )


def _bins(margin: FloatArray, variance: FloatArray, weights: FloatArray, n_bins: int) -> NDArray[np.intp]:
    """Bins of about equal weight, of which neighbours are joined until each has the least variance."""
    if n_bins < 2:
        raise ValueError(f"n_bins must be a whole number >= 2; got {n_bins!r}.")
    order = np.argsort(margin, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    edges = np.unique(margin[order][np.searchsorted(share, np.arange(1, n_bins) / n_bins)])
    fine = np.searchsorted(edges, margin, side="right")
    joined = np.zeros(len(edges) + 1, dtype=np.intp)
    number, held = 0, 0.0
    for index, amount in enumerate(np.bincount(fine, weights=variance, minlength=len(joined))):
        joined[index] = number
        held += amount
        if held >= _LEAST_VARIANCE:
            number, held = number + 1, 0.0
    joined[joined == number] = max(number - 1, 0)  # what is left over joins its neighbour
    if number < 2:
        raise ValueError(
            f"the noise model can't be checked with these {len(margin)} pairs: too few labels are uncertain. "
            "Label more pairs."
        )
    bins: NDArray[np.intp] = joined[fine]
    return bins


def _adjusted_sums(
    questions: FloatArray, scores: _Scores, model: LabelModel, sample: _Sample
) -> tuple[FloatArray, FloatArray]:
    """Sums of residuals, one a question, less what a step of the parameters explains; and their covariance.

    The residual e of a label has variance v, and the parameters have scores s e.  With
    G = E[v c s'] and H = E[v s s'] the sum of (c - G H^-1 s) e does not move, to first order,
    with the parameters: Neyman's C(alpha) and, at the maximum of the likelihood, the
    chi-square of Rao and Robson.
    """
    weights, residual, variance = sample.weights, model.residual(sample.is_far), model.variance
    n, k = scores.n_parameters, questions.shape[1]
    information, cross, score, covariance = np.zeros((n, n)), np.zeros((n, k)), np.zeros(n), np.zeros((k, k))
    for where, s in scores:
        weighted = s.T * (weights * variance)[where]
        information += weighted @ s
        cross += weighted @ questions[where]
        score += s.T @ (weights * residual)[where]
    explained = pseudo_inverse(information) @ cross
    for where, s in scores:
        left = questions[where] - s @ explained
        covariance += left.T @ (left * (weights * variance)[where, None])
    return questions.T @ (weights * residual) - explained.T @ score, covariance


def _chi_square(sums: FloatArray, covariance: FloatArray) -> tuple[float, int]:
    scale = np.sqrt(np.diag(covariance))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    keep = values > _NEARLY_EXPLAINED * values[-1]
    return float(np.sum((vectors[:, keep].T @ (sums / scale)) ** 2 / values[keep])), int(np.sum(keep))


def _table(sample: _Sample, bins: NDArray[np.intp], sums: FloatArray, errors: FloatArray) -> tuple[NoiseBin, ...]:
    weights = sample.weights
    total = np.bincount(bins, weights=weights)
    centre = np.bincount(bins, weights=weights * sample.margin) / total
    observed = np.bincount(bins, weights=weights * sample.is_far) / total
    z = sums / np.where(errors > 0, errors, np.inf)
    columns = (centre, total, observed, observed - sums / total, errors / total, z)
    return tuple(NoiseBin(*row) for row in zip(*(column.tolist() for column in columns), strict=True))


def _advice(sample: _Sample, p_value: float, tail_z: float) -> str:
    noise = sample.noise
    if p_value >= _DOUBT:
        return f"No sign that {noise.name} noise is wrong (p = {p_value:.2g})."
    losses = {name: sample.refitted_loss(other) for name, other in {**NOISES, noise.name: noise}.items()}
    best = min(losses, key=lambda name: losses[name])
    p = f"p = {p_value:.2g}" if p_value >= _SMALLEST_SHOWN else f"p < {_SMALLEST_SHOWN:g}"
    found = f"Labels are not as {noise.name} noise says ({p}): "
    if sample.refitted_loss(noise, estimate_flips=True) < losses[best] - 1.0 / sample.weights.sum():
        return found + "some are wrong however large the margin. Try flip_rate='estimate'."
    many = "more" if tail_z > 0 else "fewer"
    if best != noise.name:
        return found + f"{many} are wrong at large margins. Try noise='{best}'."
    if abs(tail_z) > _TAILS_DIFFER:
        return found + f"{many} are wrong at large margins, and none of the noises does better."
    return found + "see the bins. A quadratic form of these columns may not be what tells close from far."
