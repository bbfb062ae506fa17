"""Is the noise model right?  Labels observed against labels expected, by margin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import minimize
from scipy.stats import chi2, norm

from closefar.arrays import FloatArray, IndexArray
from closefar.canvas import COLOURS, REFERENCE, add_legend, axes_or_new
from closefar.fitting import Fit, Fitted
from closefar.model import Scored
from closefar.noise import NOISES, Noise, label_losses
from closefar.questions.bins import weighted_bins
from closefar.questions.label_model import LabelModel
from closefar.questions.moves import MarginMoves, pseudo_inverse, scaled_eigh

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["DOUBT", "NoiseBin", "NoiseCheck", "check_noise_model"]

_BINS = 10
DOUBT = 0.05  # a p-value below this speaks against the model
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
        ax = axes_or_new(ax)
        margin = np.array([row.margin for row in self.bins])
        band = 1.96 * np.array([row.error for row in self.bins])
        ax.fill_between(margin, -band, band, color=COLOURS[0], alpha=0.2, linewidth=0, label="95% if it is right")
        ax.axhline(0.0, color=REFERENCE, linewidth=0.8, linestyle="--")
        difference = [row.observed - row.expected for row in self.bins]
        ax.plot(margin, difference, "o-", color=COLOURS[0], label="these labels")
        title = f"Noise model, {_p_value(self.p_value)}"
        ax.set(xlabel="margin", ylabel="share far: observed - expected", title=title)
        add_legend(ax)
        return ax


def check_noise_model(
    learner: Fit | Fitted, X: Any = None, y: Any = None, sample_weight: Any = None, *, n_bins: int = _BINS
) -> NoiseCheck:
    """Test whether labels are as frequent at each margin as the fitted model says.

    Two tests in one: a chi-square test of the share far in bins of the margin, and a test of
    labels that contradict large margins, which tells noises of light and heavy tails apart.
    Both are score tests: they take out what the fit of (M, tau) explains, so they are right
    for the pairs of the fit, for others, and for a small `alpha`.  With few pairs per
    free parameter of M, p-values tend to be too small.

    Parameters
    ----------
    learner : LinearMetricLearner
        Fitted, without `class_weight`.
    X, y : pairs and labels, optional
        In any form that `learner.fit` takes; by default those of the fit.
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
    >>> pairs, labels, *_ = cf.datasets.make_pairs(5000, 4, noise="flips", random_state=0)
    >>> learner = cf.LinearMetricLearner().fit(pairs, labels)
    >>> cf.check_noise_model(learner).p_value < 0.001
    True
    """
    fit = Fit.of(learner)
    _check_checkable(fit)
    judgements = fit.read_or_training(X, y, sample_weight)
    judgements.check_both_count()
    scored = Scored.by(fit.metric, judgements.counted())
    model = LabelModel.at(scored.margin, scored.noise, scored.flip_rate)
    bins = _bins(scored, model, n_bins)
    n = int(bins.max()) + 1
    # One column for each question: is the share far right in this bin, and in the tails?
    questions = np.column_stack([bins[:, None] == np.arange(n), model.flip_slope / (model.variance + _FLOOR)])
    scores = _Scores(MarginMoves(fit.metric, scored.judgements), scored, model, fit.settings.estimates_flips)
    sums, covariance = _adjusted_sums(questions, scores)
    statistic, dof = _chi_square(sums[:n], covariance[:n, :n])
    tail_z = float(sums[n] / np.sqrt(covariance[n, n])) if covariance[n, n] > 0 else 0.0
    p_value = min(1.0, 2.0 * min(float(chi2.sf(statistic, dof)), 2.0 * float(norm.sf(abs(tail_z)))))
    table = _table(scored, bins, sums[:n], np.sqrt(np.diag(covariance)[:n]))
    return NoiseCheck(p_value, statistic, dof, tail_z, table, _advice(scored, p_value, tail_z))


@dataclass(frozen=True)
class _Scores:
    """The score of each parameter over the residual of the label, block by block."""

    moves: MarginMoves
    scored: Scored
    model: LabelModel
    with_flip_rate: bool

    @property
    def n_parameters(self) -> int:
        return len(self.moves.moves) + self.with_flip_rate

    def __iter__(self) -> Iterator[tuple[slice, FloatArray]]:
        slope, flip_slope = self.model.slope / self.model.variance, self.model.flip_slope / self.model.variance
        for where, along in self.moves.blocks(self.scored.judgements.data):
            scores = along * slope[where, None]
            yield where, np.column_stack([scores, flip_slope[where]]) if self.with_flip_rate else scores


def _check_checkable(fit: Fit) -> None:
    if fit.settings.class_weight is not None:
        raise ValueError(
            "class_weight must be None to check the noise model, since it changes the probabilities; got "
            f"{fit.settings.class_weight!r}. Fit without it to check."
        )
    if fit.is_separable:
        raise ValueError(
            "the noise model can't be checked where the metric gets every label right: the scale of its margins is "
            "arbitrary. Label more pairs."
        )


def _bins(scored: Scored, model: LabelModel, n_bins: int) -> IndexArray:
    """Bins of about equal weight, of which neighbours are joined until each has the least variance."""
    if n_bins < 2:
        raise ValueError(f"n_bins must be a whole number >= 2; got {n_bins!r}.")
    weights = scored.judgements.weights
    fine = weighted_bins(scored.margin, weights, n_bins)
    joined = np.zeros(int(fine.max()) + 1, dtype=np.intp)
    number, held = 0, 0.0
    for index, amount in enumerate(np.bincount(fine, weights=weights * model.variance)):
        joined[index] = number
        held += amount
        if held >= _LEAST_VARIANCE:
            number, held = number + 1, 0.0
    if number < 2:
        raise ValueError(
            f"the noise model can't be checked with these {len(scored)} pairs: too few labels are uncertain. "
            "Label more pairs."
        )
    joined[joined == number] = number - 1  # what is left over joins its neighbour
    bins: IndexArray = joined[fine]
    return bins


def _adjusted_sums(questions: FloatArray, scores: _Scores) -> tuple[FloatArray, FloatArray]:
    """Sums of residuals, one for each question, less what a step of the parameters explains; and their covariance.

    The residual e of a label has variance v, and the parameters have scores s e.  With
    G = E[v c s'] and H = E[v s s'] the sum of (c - G H^-1 s) e does not move, to first order,
    with the parameters: Neyman's C(alpha) and, at the maximum of the likelihood, the
    chi-square of Rao and Robson.
    """
    judgements, model = scores.scored.judgements, scores.model
    weights, residual, variance = judgements.weights, model.residual(judgements.is_far), model.variance
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
    values, vectors, scale = scaled_eigh(covariance)
    keep = values > _NEARLY_EXPLAINED * values[-1]
    return float(np.sum((vectors[:, keep].T @ (sums / scale)) ** 2 / values[keep])), int(np.sum(keep))


def _table(scored: Scored, bins: IndexArray, sums: FloatArray, errors: FloatArray) -> tuple[NoiseBin, ...]:
    weights = scored.judgements.weights
    total = np.bincount(bins, weights=weights)
    centre = np.bincount(bins, weights=weights * scored.margin) / total
    observed = np.bincount(bins, weights=weights * scored.judgements.is_far) / total
    z = sums / np.where(errors > 0, errors, np.inf)
    columns = (centre, total, observed, observed - sums / total, errors / total, z)
    return tuple(NoiseBin(*row) for row in zip(*(column.tolist() for column in columns), strict=True))


def _advice(scored: Scored, p_value: float, tail_z: float) -> str:
    noise = scored.noise
    if p_value >= DOUBT:
        return f"No sign that {noise.name} noise is wrong ({_p_value(p_value)})."
    losses = {name: _refitted_loss(scored, other) for name, other in {**NOISES, noise.name: noise}.items()}
    best = min(losses, key=lambda name: losses[name])
    found = f"Labels are not as {noise.name} noise says ({_p_value(p_value)}): "
    with_flips = _refitted_loss(scored, noise, estimate_flips=True)
    if with_flips < losses[best] - 1.0 / scored.judgements.weights.sum():
        return found + "some are wrong however large the margin. Try flip_rate='estimate'."
    many = "more" if tail_z > 0 else "fewer"
    if best != noise.name:
        return found + f"{many} are wrong at large margins. Try noise='{best}'."
    if abs(tail_z) > _TAILS_DIFFER:
        return found + f"{many} are wrong at large margins, and none of the noises does better."
    return found + "see the bins. A quadratic form of these columns may not be what tells close from far."


def _refitted_loss(scored: Scored, noise: Noise, *, estimate_flips: bool = False) -> float:
    """The least mean loss under another noise, with only a scale and a shift of the margins fitted anew."""
    judgements, known = scored.judgements, scored.flip_rate

    def loss(parameters: FloatArray) -> float:
        scale, shift, rate = parameters
        return judgements.mean(label_losses(noise, judgements.signs * (np.exp(scale) * scored.margin - shift), rate))

    start = [0.0, 0.0, max(known, 0.02) if estimate_flips else known]
    rates = (0.0, 0.49) if estimate_flips else (known, known)
    return float(minimize(loss, start, method="L-BFGS-B", bounds=((-4.0, 4.0), (None, None), rates)).fun)


def _p_value(value: float) -> str:
    return f"p = {value:.2g}" if value >= _SMALLEST_SHOWN else f"p < {_SMALLEST_SHOWN:g}"
