"""How many dimensions are real: the rank that held-out labels ask for."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from closefar.arrays import FloatArray
from closefar.metric import Metric
from closefar.pairs import Differences, check_labels, check_pairs, check_weights
from closefar.subspace import (
    LabelledRows,
    Spectrum,
    candidate_ranks,
    fit_metric,
    format_table,
    in_data_scale,
    losses_and_hits,
    normalised,
    refit_leading,
)

__all__ = ["RULES", "RankChoice", "RankScore", "choose_rank"]

RULES = ("one_se", "best")


class RankScore(NamedTuple):
    """The held-out loss of rank `k`, its excess over the least with a standard error, and the held-out accuracy."""

    k: int
    loss: float
    excess: float
    standard_error: float
    accuracy: float


@dataclass(frozen=True)
class RankChoice:
    """The rank that cross-validation chose, and the table it chose from."""

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


def choose_rank(
    learner: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    cv: Any = 5,
    rule: str = "one_se",
    scale: str = "data",
    refit: bool = True,
    random_state: int | None = 0,
) -> RankChoice:
    """Choose the rank by the loss of held-out labels.

    For each fold a copy of `learner` is fitted without a limit on its rank, truncated to each
    rank, refitted within the directions that are kept, and scored on the labels left out.

    Parameters
    ----------
    learner : LinearMetricLearner
        Need not be fitted, and is not changed.
    X, y, sample_weight
        As for its `fit`.
    cv : int, splitter or iterable of (train, test) indices, default=5
        A number of folds, or as in scikit-learn.  Where pairs share points, keep each point
        on one side.
    rule : {"one_se", "best"}, default="one_se"
        "one_se": the least rank whose held-out loss exceeds the best one's by at most one
        standard error of that difference, pair by pair.  "best": the least loss.
    scale : {"data", "units"}, default="data"
        As for `Metric.truncate`.  With "data" the choice does not depend on units.
    refit : bool, default=True
        False scores plain truncation, which favours higher ranks.
    random_state : int or None, default=0
        Deals the pairs into folds.

    Examples
    --------
    >>> import closefar as cf
    >>> from closefar.rank_choice import choose_rank
    >>> data = cf.datasets.make_pairs(4000, 4, metric_eigenvalues=[1.0, 0.4], wrong_share=0.1, random_state=0)
    >>> choose_rank(cf.LinearMetricLearner(), data.pairs, data.labels).rank
    2
    """
    if rule not in RULES:
        raise ValueError(f"rule must be one of {list(RULES)}; got {rule!r}.")
    if scale not in ("data", "units"):
        raise ValueError(f'scale must be "data" or "units"; got {scale!r}.')
    differences = check_pairs(clone(learner), X, fitting=True)
    _, signs = check_labels(y, learner.far_label, len(differences))
    weights = check_weights(sample_weight, learner.class_weight, np.asarray(y).reshape(-1), differences)
    ranks = candidate_ranks(differences.n_features)
    losses, right, tested, largest = [], np.zeros(len(ranks)), [], 1
    for train, test in _splits(cv, signs, weights, random_state):
        metrics = _path_of_metrics(learner, _rows(differences, signs, weights, train), ranks, scale, refit)
        held_out = _rows(differences, signs, weights, test)
        scored = [losses_and_hits(metric, metric.forms(held_out.differences), held_out.signs) for metric in metrics]
        losses.append(np.array([loss for loss, _ in scored]))
        right += [float(hits @ weights[test]) for _, hits in scored]
        tested.append(weights[test])
        largest = max(largest, metrics[-1].rank)
    n_ranks = 1 + next(index for index, k in enumerate(ranks) if k >= largest)
    shares = np.concatenate(tested)
    accuracies = right / shares.sum()
    table = _scores(ranks[:n_ranks], np.hstack(losses)[:n_ranks], accuracies[:n_ranks], shares / shares.sum())
    # A learner's rank is at least 1; rank 0 is in the table for comparison.
    best = min(table[1:], key=lambda score: score.loss)
    near = [score.k for score in table[1:] if score.excess <= score.standard_error]
    return RankChoice(min([*near, best.k]) if rule == "one_se" else best.k, rule, table)


def _path_of_metrics(learner: Any, pairs: LabelledRows, ranks: Sequence[int], scale: str, refit: bool) -> list[Metric]:
    """A metric of each rank, from one fit without a limit; beyond its rank that fit itself."""
    whole = fit_metric(learner, pairs.differences.data, pairs)
    if whole.data_factor is None:
        whole = in_data_scale(whole, pairs.differences, pairs.weights)
    spectrum = Spectrum.of(whole, scale)
    if not refit:
        return [whole.truncate(k, scale) for k in ranks]
    return [refit_leading(learner, whole, spectrum, k, pairs) for k in ranks]


def _scores(
    ranks: Sequence[int], losses: FloatArray, accuracies: FloatArray, weights: FloatArray
) -> tuple[RankScore, ...]:
    """Compare each rank with the best one, pair by pair: what is hard for both does not count."""
    means = losses @ weights
    best = int(means[1:].argmin()) + 1
    scores = []
    for index, k in enumerate(ranks):
        excess = float(means[index] - means[best])
        deviations = (losses[index] - losses[best] - excess) * weights
        error = float(np.sqrt(deviations @ deviations))
        scores.append(RankScore(k, float(means[index]), excess, error, float(accuracies[index])))
    return tuple(scores)


def _rows(differences: Differences, signs: FloatArray, weights: FloatArray, at: NDArray[np.int64]) -> LabelledRows:
    return LabelledRows(Differences(differences.data[at]), signs[at], normalised(weights[at], len(at)))


def _splits(
    cv: Any, signs: FloatArray, weights: FloatArray, random_state: int | None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Row numbers to train and to test on; rows of weight 0 are in neither."""
    from sklearn.model_selection import StratifiedKFold, check_cv  # slow to import, and few need it

    if not isinstance(cv, numbers.Integral):
        for train, test in check_cv(cv, signs, classifier=True).split(np.zeros((len(signs), 1)), signs):
            train, test = (np.arange(len(signs))[side] for side in (train, test))
            yield train[weights[train] > 0], test[weights[test] > 0]
        return
    counted = np.flatnonzero(weights > 0)
    rarest = int(min(np.sum(signs[counted] > 0), np.sum(signs[counted] < 0)))
    if cv < 2 or rarest < 2:
        raise ValueError(
            f"choosing a rank needs at least 2 folds and 2 pairs of each class; got cv={cv!r} and {rarest} of the "
            "rarer class. Give the rank as a number instead."
        )
    folds = StratifiedKFold(min(int(cv), rarest), shuffle=True, random_state=random_state)
    for train, test in folds.split(counted, signs[counted]):
        yield counted[train], counted[test]
