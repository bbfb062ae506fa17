"""The table from which a rank is chosen, and the rules that choose."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import chi2

from closefar.arrays import Array, FloatArray
from closefar.errors import setting
from closefar.judgements import variance_of_sum
from closefar.model import Metric
from closefar.plain import data_frame, format_table

# ---------------------------------------------------------------------------------------------------------------------
# The settings that were chosen on held-out judgements, and the plain distance beside the learned metric.


class Tried(NamedTuple):
    """A candidate: its settings, and the mean loss and the accuracy of fits on judgements that were held out.

    `alpha` is infinite for the plain distance alone.  `standard_error` is that of the difference from the loss of the
    chosen candidate, judgement by judgement, and allows for points that judgements share.
    """

    prior: str
    alpha: float
    flip_rate: float
    rank: int | None
    noise: str
    loss: float
    standard_error: float
    accuracy: float


@dataclass(frozen=True)
class Choice:
    """The settings that were chosen on held-out judgements, and all that were tried.

    Attributes
    ----------
    alpha : float
        The weight of the penalty.
    prior : str
        What it shrinks M to: "zero", "euclidean", "standardized", or "metric" for a metric that was given.
    flip_rate : float
        The share of answers that are wrong regardless of distance.
    rank : int, optional
        The largest rank; None if it is not limited.
    noise : str
    scale : float
        The factor that calibrates squared distances, so that probabilities suit held-out judgements.
    is_plain : bool
        Whether the result is the plain distance alone, because nothing learned was better.
    n_held_out, n_used, n_judgements : int
        The numbers of judgements that were held out at least once, that were used for choosing, and of all.
    held_out : str
        What was held out: "points", "groups", "judgements" or "nothing".
    table : tuple of Tried
        All candidates, in the order in which they were tried.

    Examples
    --------
    >>> import closefar as cf
    >>> pairs, labels, *_ = cf.datasets.make_pairs(300, 4, rank=2, wrong_share=0.1, random_state=0)
    >>> choice = cf.LinearMetricLearner().fit(pairs, labels).choice_
    >>> choice.held_out
    'judgements'
    >>> len(choice.table) == len(choice.to_frame())
    True
    """

    alpha: float
    prior: str
    flip_rate: float
    rank: int | None
    noise: str
    scale: float
    is_plain: bool
    n_held_out: int
    n_used: int
    n_judgements: int
    held_out: str
    table: tuple[Tried, ...]

    @property
    def sentence(self) -> str:
        """One sentence on what was chosen, and why."""
        if not self.table:
            return (
                f"Chosen without held-out judgements, as {self.n_judgements:,} are too few: the plain distance with a "
                "fitted threshold."
            )
        unseen = {"points": "judgements of unseen points", "groups": "judgements of unseen groups"}.get(
            self.held_out, "held-out judgements"
        )
        if self.is_plain:
            what: str = f"{_PLAIN_NAMES[self.prior]}, as no learned metric was clearly better"
        else:
            what = setting("alpha", format(self.alpha, ".3g")) + ", " + setting(prior=self.prior)
            what += (", " + setting("flip_rate", format(self.flip_rate, ".3f"))) if self.flip_rate > 0 else ""
            what += (", " + setting(rank=self.rank)) if any(each.rank is not None for each in self.table) else ""
            what += (", " + setting(noise=self.noise)) if len({each.noise for each in self.table}) > 1 else ""
        return f"Chosen by the loss of {self.n_held_out:,} {unseen}, among {len(self.table)} candidates: " + what + "."

    def summary(self) -> str:
        """Return the sentence and a table of all candidates."""
        return self.sentence + f"\n{self}" if self.table else self.sentence

    def __str__(self) -> str:
        columns = [
            ("prior", ""),
            ("alpha", ".4g"),
            ("flip rate", ".3f"),
            ("rank", ""),
            ("noise", ""),
            ("held-out loss", ".5f"),
            ("std. error", ".5f"),
            ("accuracy", ".4f"),
        ]
        rows = [[*each[:3], "" if each.rank is None else str(each.rank), *each[4:]] for each in self.table]
        return format_table(columns, rows)

    def to_frame(self) -> Any:
        """Return the candidates as a pandas DataFrame."""
        columns = {name: [getattr(each, name) for each in self.table] for name in Tried._fields}
        return data_frame(columns, "table")


_PLAIN_NAMES = {
    "euclidean": "the plain distance (Euclidean, in the units of the data)",
    "standardized": "the plain distance (Euclidean, of standardized columns)",
    "metric": "the given metric",
}


@dataclass(frozen=True)
class Baseline:
    """The most frequent answer, the plain distance and the learned metric, on the same held-out judgements.

    Attributes
    ----------
    plain : str
        The plain distance that predicts better, "euclidean" or "standardized"; "metric" if a metric was given as prior.
    majority_accuracy, majority_loss : float
        Accuracy of the most frequent answer, and log loss of the best constant probabilities; for comparisons, those
        of a guess.
    plain_accuracy, plain_loss : float
        Accuracy and log loss of the plain distance with a fitted threshold.
    learned_accuracy, learned_loss : float
        Accuracy and log loss of the learned metric, with the chosen settings.
    gain, standard_error : float
        The log loss of the plain distance minus that of the learned metric, and the standard error of the difference.
    n_held_out : int
        The number of held-out judgements.
    metric : Metric, optional
        The plain distance with thresholds fitted to the judgements that were used for choosing; None if an
        origin is learned.
    """

    plain: str
    majority_accuracy: float
    majority_loss: float
    plain_accuracy: float
    plain_loss: float
    learned_accuracy: float
    learned_loss: float
    gain: float
    standard_error: float
    n_held_out: int
    metric: Metric | None = None

    @property
    def is_better(self) -> bool:
        """Whether the learned metric is better than the plain distance by more than two standard errors."""
        return self.gain > 2.0 * self.standard_error and self.gain > 0.0

    @property
    def sentence(self) -> str:
        """One or two sentences: the figures, and a verdict where the learned metric is not clearly better."""
        figures = (
            f"Held-out accuracy {self.learned_accuracy:.3f} ({self._plain_name} {self.plain_accuracy:.3f}, most "
            f"frequent answer {self.majority_accuracy:.3f}); log loss {self.learned_loss:.3f} ({self.plain_loss:.3f}, "
            f"{self.majority_loss:.3f}), on {self.n_held_out:,} judgements."
        )
        if self.is_better:
            return figures
        if self.gain == 0.0:
            return f"{figures} The result is the {self._plain_name} itself."
        verdict = "not better" if self.gain <= 0.0 else "not clearly better"
        return f"{figures} The learned metric is {verdict} than the {self._plain_name}."

    def summary(self) -> str:
        """Return a table of the three, and the sentence."""
        rows = [[name, accuracy, loss] for name, accuracy, loss in self._rows]
        table = format_table([("held out", ""), ("accuracy", ".4f"), ("log loss", ".4f")], rows)
        return f"{table}\n{self.sentence}"

    def to_frame(self) -> Any:
        """Return the three rows as a pandas DataFrame."""
        names, accuracies, losses = zip(*self._rows, strict=True)
        return data_frame({"predictor": names, "accuracy": accuracies, "log_loss": losses}, "summary()")

    @property
    def _plain_name(self) -> str:
        return "given metric" if self.plain == "metric" else "plain distance"

    @property
    def _rows(self) -> list[tuple[str, float, float]]:
        plain = self._plain_name if self.plain == "metric" else f"plain distance ({self.plain})"
        return [
            ("most frequent answer", self.majority_accuracy, self.majority_loss),
            (plain, self.plain_accuracy, self.plain_loss),
            ("learned metric", self.learned_accuracy, self.learned_loss),
        ]


# ---------------------------------------------------------------------------------------------------------------------
# The choice of the noise model that describes the labels best, and whether it is clearly better than the others.


_SIGNIFICANT = 1.96


@dataclass(frozen=True)
class NoiseChoice:
    """The noise model with the highest likelihood, and how clearly it is better than the others.

    Attributes
    ----------
    name : str
        The model with the lowest mean loss.
    comparison : dict
        For each model its mean ``loss``, the ``difference`` from the loss of the chosen model, and
        ``z``, that difference divided by its standard error.
    warning : str or None
        A sentence if the chosen model is not clearly better than some other.
    """

    name: str
    comparison: dict[str, dict[str, float]]
    warning: str | None


def choose_noise(row_losses: Mapping[str, FloatArray], weights: FloatArray) -> NoiseChoice:
    """Choose by likelihood; the models have the same number of parameters, so no correction is needed.

    Vuong's test for non-nested models decides whether a model is clearly better: it compares the
    mean difference of row losses with its standard error.

    Parameters
    ----------
    row_losses : mapping from names to arrays of shape (n,)
        -log P(label) of each pair under each fitted model, for the same pairs.
    weights : array of shape (n,)
        The weights of the fit; for `z` they are importance weights, not repeated pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from closefar.fitting import choose_noise
    >>> losses = {"logistic": np.array([0.3, 0.1, 0.2, 0.4]), "normal": np.array([0.4, 0.2, 0.2, 0.5])}
    >>> choice = choose_noise(losses, np.ones(4))
    >>> choice.name, round(choice.comparison["normal"]["z"], 2), choice.warning
    ('logistic', 3.46, None)
    """
    if not row_losses:
        raise ValueError("row_losses must contain the losses of at least one noise model; got none.")
    shares = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    return choice_from(list(row_losses), sums_of_losses(list(row_losses.values()), shares))


def sums_of_losses(losses: Sequence[Array], shares: Array) -> FloatArray:
    """Sums over some pairs, from which `choice_from` chooses between the models with these losses of each pair.

    The first line is the mean loss of each model and the sum of squared shares; the others are, for each pair of
    models, the sums of their difference d: of w d, of w^2 d and of w^2 d^2.
    """
    xp = array_namespace(shares)
    squares = shares * shares
    sums = np.zeros((1 + len(losses) ** 2, max(len(losses) + 1, 3)))
    sums[0, : len(losses)] = [float(xp.vecdot(shares, each)) for each in losses]
    sums[0, len(losses)] = float(xp.sum(squares))
    for line, (left, right) in enumerate(product(losses, losses), start=1):
        if left is not right:
            difference = left - right
            weighted = squares * difference
            sums[line, :3] = [
                float(xp.vecdot(shares, difference)),
                float(xp.sum(weighted)),
                float(xp.vecdot(weighted, difference)),
            ]
    return sums


def choice_from(names: Sequence[str], sums: FloatArray) -> NoiseChoice:
    """Choose between models from the `sums_of_losses` of all pairs."""
    n = len(names)
    losses = dict(zip(names, sums[0, :n].tolist(), strict=True))
    best = min(losses, key=lambda name: losses[name])
    between = sums[1:].reshape(n, n, -1)[:, names.index(best)]
    comparison = {
        name: {"loss": losses[name], "difference": losses[name] - losses[best], "z": _z(line[:3], sums[0, n])}
        for name, line in zip(names, between, strict=True)
    }
    alike = [name for name in losses if name != best and comparison[name]["z"] < _SIGNIFICANT]
    return NoiseChoice(best, comparison, _warning(best, alike, comparison))


def _z(differences: FloatArray, squares: float) -> float:
    """A mean difference divided by its standard error, the root of the sum of w^2 (d - mean)^2."""
    mean, linear, square = differences
    variance = square - 2.0 * mean * linear + mean**2 * squares
    return float(mean / np.sqrt(variance)) if variance > 0.0 else 0.0


def _warning(best: str, alike: list[str], comparison: dict[str, dict[str, float]]) -> str | None:
    if not alike:
        return None
    names = " or ".join(f"{name} (z = {comparison[name]['z']:.1f})" for name in alike)
    return f"{best} noise describes the labels best, but not clearly better than {names}."


# ---------------------------------------------------------------------------------------------------------------------
# The noise of comparisons relative to that of pairs: the profile likelihood over it, and its interval.


_LARGEST = math.log(1e3)  # as is its inverse the smallest that is tried
_NEAR, _ACCURATE, _PRECISE = 0.1, 1e-3, 1e-10  # of the logarithm: for a search, an end of an interval, and the estimate
_LEVEL = 0.95


@dataclass(frozen=True)
class ComparisonNoise:
    """The standard deviation of the noise of comparisons, divided by that of pairs.

    Attributes
    ----------
    value : float
        Set, or the one with the highest likelihood.
    interval : tuple of two float, optional
        The 95% interval by the profile likelihood, if it was estimated; zero or infinite at an end where the
        judgements do not bound it.
    """

    value: float
    interval: tuple[float, float] | None = None

    @property
    def problem(self) -> str | None:
        """What the judgements do not determine, with advice."""
        if self.interval is None or (self.interval[0] > 0.0 and math.isfinite(self.interval[1])):
            return None
        side = "above" if math.isinf(self.interval[1]) else "below"
        return (
            f"the noise of comparisons relative to that of pairs is not bounded {side} (estimate "
            f"{self.value:.3g}): too few comparisons, or pairs, are uncertain. Set "
            + setting("comparison_noise")
            + " to a number, or collect more of both."
        )


def profile_noise(loss_at: Callable[[float], tuple[float, float]], n_judgements: float) -> ComparisonNoise:
    """Minimise the loss over the noise, given the least loss at each, and find where it is too large by chance.

    `loss_at` is the minimum over all other parameters of the mean loss of as many judgements as this, and its
    derivative in the logarithm of the noise.
    """
    found: dict[float, float] = {}
    slopes: dict[float, float] = {}

    def profile(log_noise: float) -> float:
        if log_noise not in found:
            found[log_noise], slopes[log_noise] = loss_at(math.exp(log_noise))
        return found[log_noise]

    def slope(log_noise: float) -> float:
        profile(log_noise)
        return slopes[log_noise]

    minimize_scalar(profile, bounds=(-_LARGEST, _LARGEST), method="bounded", options={"xatol": _NEAR})
    centre = min(found, key=lambda place: found[place])
    below = max((place for place in found if place < centre and slopes[place] < 0.0), default=centre)
    above = min((place for place in found if place > centre and slopes[place] > 0.0), default=centre)
    if slopes[centre] != 0.0 and below < above:
        low, high = (below, centre) if slopes[centre] > 0.0 else (centre, above)
        centre = brentq(slope, low, high, xtol=_PRECISE) if low < high else centre
    least = profile(centre)
    limit = least + float(chi2.isf(1.0 - _LEVEL, 1)) / (2.0 * n_judgements)
    ends: list[float] = []
    for end, beyond in ((-_LARGEST, 0.0), (_LARGEST, math.inf)):
        inside, outside = _around(found, limit, centre, end)
        # A fit at the end itself is slow, and needed only if nothing nearer is too large.
        is_bounded = found.get(outside, -math.inf) > limit or profile(outside) > limit
        root = brentq(lambda place: profile(place) - limit, inside, outside, xtol=_ACCURATE) if is_bounded else None
        ends.append(beyond if root is None else math.exp(root))
    low, high = ends
    return ComparisonNoise(math.exp(centre), (low, high))


def _around(found: dict[float, float], limit: float, centre: float, end: float) -> tuple[float, float]:
    """The last known place within the limit on the way from the centre to an end, and the first one beyond it."""
    inside = centre
    for place in sorted(
        (each for each in found if (each - centre) * (end - centre) > 0.0), key=lambda at: abs(at - centre)
    ):
        if found[place] > limit:
            return inside, place
        inside = place
    return inside, end


RULES = ("one_se", "best")


class RankScore(NamedTuple):
    """The held-out loss of rank `k`, its excess over the lowest with its standard error, and the held-out accuracy."""

    k: int
    loss: float
    excess: float
    standard_error: float
    accuracy: float


@dataclass(frozen=True)
class RankChoice:
    """The rank chosen by cross-validation, and the table of all ranks."""

    rank: int
    rule: str
    table: tuple[RankScore, ...]

    def __str__(self) -> str:
        columns = [("k", "d"), ("held-out loss", ".5f"), ("excess", ".5f"), ("std. error", ".5f"), ("accuracy", ".4f")]
        lines = format_table(columns, [list(score) for score in self.table]).split("\n")
        marked = [
            line + (" *" if score.k == self.rank else "") for line, score in zip(lines[1:], self.table, strict=True)
        ]
        return "\n".join([lines[0], *marked])


def compare_ranks(
    ranks: Sequence[int],
    losses: FloatArray,
    accuracies: FloatArray,
    shares: FloatArray,
    groups: NDArray[Any] | None = None,
) -> tuple[RankScore, ...]:
    """Compare each rank with the best, pair by pair, so that the common difficulty of a pair cancels.

    `losses` has one row per rank and one column per held-out pair; the `shares` of pairs sum to one,
    and their `groups` are dependent.
    """
    means = losses @ shares
    best = int(means[1:].argmin()) + 1
    scores = []
    for index, k in enumerate(ranks):
        excess = float(means[index] - means[best])
        deviations = (losses[index] - losses[best] - excess) * shares
        error = float(np.sqrt(variance_of_sum(deviations, groups)))
        scores.append(RankScore(k, float(means[index]), excess, error, float(accuracies[index])))
    return tuple(scores)


def choose_from(table: Sequence[RankScore], rule: str) -> int:
    """Return the rank that a rule chooses: at least 1, since rank 0 is only for comparison."""
    best = min(table[1:], key=lambda score: score.loss)
    near = [score.k for score in table[1:] if score.excess <= score.standard_error]
    return min([*near, best.k]) if rule == "one_se" else best.k
