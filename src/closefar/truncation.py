"""What each rank costs: a metric truncated to its k largest eigenvalues, for every k."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from closefar.arrays import FloatArray
from closefar.metric import Metric
from closefar.pairs import Differences
from closefar.subspace import (
    LabelledRows,
    Spectrum,
    candidate_ranks,
    format_table,
    in_data_scale,
    losses_and_hits,
    map_rows,
    normalised,
    refit_leading,
)

__all__ = ["TruncationPath", "TruncationStep", "in_data_scale", "truncation_path"]


@dataclass(frozen=True)
class TruncationStep:
    """What keeping the `k` largest eigenvalues of M costs.

    Attributes
    ----------
    k : int
    metric : Metric
        The truncated metric, its threshold as before.
    gamma : float
        The largest eigenvalue that is cut off.
    bound : float
        An upper bound on `lost`: zeta times the mean of z'(M - M_k)z.
    guarantee : float
        The paper's, which needs no more of the data than the length of its longest
        difference: zeta * F * gamma (theorem "thm:DR-main2", before zeta * F is set to one).
    loss, accuracy : float
        Of the pairs that were given.
    lost : float
        Their loss less that of the whole metric.
    held_out_loss, held_out_accuracy : float or None
        Of the pairs that were held out.
    refit_metric : Metric or None
        The best metric in the k directions that are kept; the `refit_` figures are its own.
    """

    k: int
    metric: Metric
    gamma: float
    bound: float
    guarantee: float
    loss: float
    lost: float
    accuracy: float
    held_out_loss: float | None = None
    held_out_accuracy: float | None = None
    refit_metric: Metric | None = None
    refit_loss: float | None = None
    refit_accuracy: float | None = None
    refit_held_out_loss: float | None = None
    refit_held_out_accuracy: float | None = None


@dataclass(frozen=True)
class TruncationPath(Sequence[TruncationStep]):
    """The steps k = 0, ..., rank; printed, a table.

    `scale` is that in which eigenvalues are compared, `zeta` the slope of the loss at the
    worst margin, and `longest` the paper's F: the largest squared length of a difference in
    that scale, within the directions that M weighs.
    """

    steps: tuple[TruncationStep, ...]
    scale: str
    zeta: float
    longest: float

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, k: Any) -> Any:
        return self.steps[k]

    def __iter__(self) -> Iterator[TruncationStep]:
        return iter(self.steps)

    def __str__(self) -> str:
        columns = {
            "k": ("k", "d"),
            "gamma": ("cut off", ".4g"),
            "loss": ("loss", ".5f"),
            "lost": ("lost", ".5f"),
            "bound": ("at most", ".4g"),
            "guarantee": ("guarantee", ".4g"),
            "accuracy": ("accuracy", ".4f"),
            "refit_loss": ("refitted", ".5f"),
            "held_out_loss": ("held out", ".5f"),
            "refit_held_out_loss": ("held out, refitted", ".5f"),
        }
        shown = {name: column for name, column in columns.items() if self._has(name)}
        return format_table(list(shown.values()), [[getattr(step, name) for name in shown] for step in self.steps])

    def _has(self, name: str) -> bool:
        return any(getattr(step, name) is not None for step in self.steps)


def truncation_path(
    metric: Metric,
    differences: Any,
    signs: Any,
    weights: Any = None,
    *,
    scale: str | None = None,
    held_out: tuple[Any, ...] | None = None,
    learner: Any = None,
) -> TruncationPath:
    """Truncate a metric to each rank and say what that costs.

    Parameters
    ----------
    metric : Metric
    differences : array of shape (n, d), or of pairs (n, 2, d)
        The pairs that the metric was learned from.
    signs : array of n labels, +1 far and -1 close
    weights : array of n numbers >= 0, optional
    scale : {"data", "units"}, optional
        As for `Metric.truncate`.  "data" for a metric that does not know the data's scale is
        that of `differences`.
    held_out : tuple (differences, signs) or (differences, signs, weights), optional
        Pairs that the metric was not learned from.
    learner : LinearMetricLearner, optional
        The one that learned the metric.  Where given, a copy of it is also fitted within the
        directions that are kept: the truncated metric keeps the scale and the threshold of
        the whole one, which no longer fit what is left.

    Examples
    --------
    >>> import closefar as cf
    >>> from closefar.truncation import truncation_path
    >>> metric = cf.Metric([[1.0, 0.0], [0.0, 0.1]], threshold=1.0)
    >>> print(truncation_path(metric, [[2.0, 0.5], [0.5, 2.0]], [1, -1]))
    k  cut off     loss      lost  at most  guarantee  accuracy
    0        1  0.81326   0.58909    2.045      4.049    0.5000
    1     0.01  0.21773  -0.00644  0.02024    0.04049    1.0000
    2        0  0.22417   0.00000        0          0    1.0000
    """
    pairs = _pairs(differences, signs, weights)
    others = None if held_out is None else _pairs(*held_out)
    if scale == "data" and metric.data_factor is None:
        metric = in_data_scale(metric, pairs.differences, pairs.weights)
    scale = scale or ("units" if metric.data_factor is None else "data")
    spectrum = Spectrum.of(metric, scale)
    squares = map_rows(metric, pairs.differences, spectrum.directions) ** 2
    forms = _cumulative(squares)
    zeta = _steepest_slope(metric, forms[:, -1])
    lengths = squares @ np.divide(1.0, spectrum.values, out=np.zeros(metric.rank), where=spectrum.values > 0)
    longest = float(lengths.max(initial=0.0))
    whole = _score(metric, forms[:, -1], pairs)
    held_out_forms = (
        None if others is None else _cumulative(map_rows(metric, others.differences, spectrum.directions) ** 2)
    )
    steps = []
    for k in range(metric.rank + 1):
        gamma = float(spectrum.values[k]) if k < metric.rank else 0.0
        score = _score(metric, forms[:, k], pairs)
        figures: dict[str, Any] = {}
        if others is not None and held_out_forms is not None:
            figures |= _named("held_out", _score(metric, held_out_forms[:, k], others))
        if learner is not None and k in candidate_ranks(metric.rank):
            refitted = refit_leading(learner, metric, spectrum, k, pairs)
            figures |= {"refit_metric": refitted, **_named("refit", _score_of(refitted, pairs))}
            if others is not None:
                figures |= _named("refit_held_out", _score_of(refitted, others))
        steps.append(
            TruncationStep(
                k=k,
                metric=metric.truncate(k, scale),
                gamma=gamma,
                bound=zeta * float(pairs.weights @ (forms[:, -1] - forms[:, k])),
                guarantee=zeta * longest * gamma,
                loss=score.loss,
                lost=score.loss - whole.loss,
                accuracy=score.accuracy,
                **figures,
            )
        )
    return TruncationPath(tuple(steps), scale, zeta, longest)


class Score(NamedTuple):
    loss: float
    accuracy: float


def _score(metric: Metric, forms: FloatArray, pairs: LabelledRows) -> Score:
    losses, hits = losses_and_hits(metric, forms, pairs.signs)
    return Score(float(pairs.weights @ losses), float(pairs.weights @ hits))


def _score_of(metric: Metric, pairs: LabelledRows) -> Score:
    return _score(metric, metric.forms(pairs.differences), pairs)


def _steepest_slope(metric: Metric, forms: FloatArray) -> float:
    """The paper's zeta over the margins of M and of every M_k, which lie between -tau and those of M.

    Flips only make the loss flatter.
    """
    radius = max(abs(metric.threshold), float(np.abs(forms - metric.threshold).max(initial=0.0)))
    return metric.noise.constants(radius).zeta


def _cumulative(squares: FloatArray) -> FloatArray:
    """z'M_k z for k = 0, ..., rank."""
    return np.hstack([np.zeros((len(squares), 1)), np.cumsum(squares, axis=1)])


def _named(prefix: str, score: Score) -> dict[str, float]:
    return {f"{prefix}_loss": score.loss, f"{prefix}_accuracy": score.accuracy}


def _pairs(differences: Any, signs: Any, weights: Any = None) -> LabelledRows:
    rows = differences if isinstance(differences, Differences) else Differences(np.asarray(differences))
    signs = np.asarray(signs, dtype=np.float64)
    if signs.shape != (len(rows),) or not np.all(np.abs(signs) == 1):
        raise ValueError(f"signs must be +1 (far) or -1 (close), one a pair; got shape {signs.shape} for {len(rows)}.")
    return LabelledRows(rows, signs, normalised(weights, len(rows)))
