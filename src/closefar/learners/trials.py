"""Scoring candidates on held-out judgements: one table of scores, filled path by path."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import rankdata
from sklearn.base import clone

from closefar.arrays import FloatArray
from closefar.fitting import score
from closefar.judgements import Judgements
from closefar.learners.fitting_learner import FittingLearner
from closefar.model import Metric

__all__ = ["HeldOut", "Predicted", "Trials", "Tried"]

# A path ends after this many values of alpha in a row that score worse than the best.
_PATIENCE = 2

# Up to this many columns, a fit with a certificate is as fast as an approximate one.
_FEW_COLUMNS = 16


@dataclass(frozen=True, eq=False)
class Tried:
    """A candidate with its score and its metric on each split."""

    candidate: dict[str, Any]
    scores: FloatArray
    metrics: tuple[Metric, ...]

    @property
    def mean(self) -> float:
        return float(self.scores.mean())

    def is_clearly_better(self, other: Tried, n_errors: float = 2.0) -> bool:
        """Whether it scores better on the same splits by more than so many standard errors of the difference."""
        gain = self.scores - other.scores
        return bool(gain.mean() > n_errors * gain.std() / math.sqrt(max(len(gain) - 1, 1)))


@dataclass(frozen=True)
class Predicted:
    """A score of predictions, by a scorer as in scikit-learn."""

    scorer: Any

    def __call__(self, fitted: FittingLearner, test: Judgements) -> float:
        weights = {} if test.sample_weight is None else {"sample_weight": test.weights}
        return float(self.scorer(fitted, test.data, test.labels, **weights))


@dataclass(frozen=True)
class HeldOut:
    """The log-loss or the accuracy of judgements of any kind, each by what is known of its annotator."""

    measure: str

    def __call__(self, fitted: FittingLearner, test: Judgements) -> float:
        scored = score(fitted.fit_, test)
        return scored.accuracy if self.measure == "accuracy" else -scored.loss


class Trials:
    """Score candidates, which are parameters of the learner, on the test side of every split.

    Parameters
    ----------
    learner : FittingLearner
        The learner with the parameters that do not vary.
    scorer : Predicted or HeldOut
    sides : list of (Judgements, Judgements)
        The training and the test side of each split.
    n_jobs : int, optional
        The number of splits to process in parallel.
    verbose : bool
        Whether to show progress.
    """

    def __init__(
        self,
        learner: FittingLearner,
        scorer: Predicted | HeldOut,
        sides: Sequence[tuple[Judgements, Judgements]],
        *,
        n_jobs: int | None,
        verbose: bool,
    ) -> None:
        self.learner = learner
        self.scorer = scorer
        self.sides = sides
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.tried: list[Tried] = []

    def follow(
        self, candidates: list[dict[str, Any]], *, stops_early: bool = False, start: Tried | None = None
    ) -> Tried:
        """Try candidates from the largest alpha down, each fit starting from the previous one; return the best.

        With `stops_early`, stop after the best alpha of the path if the next two are worse.
        """
        path: dict[int, Tried] = {}
        last, n_worse = start, 0
        for number in sorted(range(len(candidates)), key=lambda each: -candidates[each]["alpha"]):
            last = self._try(candidates[number], last)
            n_worse = n_worse + 1 if path and last.mean <= max(each.mean for each in path.values()) else 0
            path[number] = last
            if stops_early and n_worse >= _PATIENCE and _predicts(path.values()):
                break
        self.tried += [path[number] for number in sorted(path)]
        best = max(path.values(), key=lambda tried: tried.mean)
        if self.verbose:
            print(f"tried {len(self.tried)} candidates; {best.candidate} scores {best.mean:.4f}", file=sys.stderr)
        return best

    def results(self) -> dict[str, Any]:
        """The table of scores in the format of scikit-learn."""
        candidates = [tried.candidate for tried in self.tried]
        scores = np.array([tried.scores for tried in self.tried]).T
        mean = scores.mean(axis=0)
        return {
            **{f"param_{name}": np.array([each[name] for each in candidates], dtype=object) for name in candidates[0]},
            "params": candidates,
            **{f"split{number}_test_score": row for number, row in enumerate(scores)},
            "mean_test_score": mean,
            "std_test_score": scores.std(axis=0),
            "rank_test_score": rankdata(-mean, method="min").astype(np.int64),
        }

    def _try(self, candidate: dict[str, Any], start: Tried | None) -> Tried:
        starts = [None] * len(self.sides) if start is None else start.metrics
        found = Parallel(n_jobs=self.n_jobs)(
            delayed(_score)(self.learner, candidate, self.scorer, train, test, begin)
            for (train, test), begin in zip(self.sides, starts, strict=True)
        )
        scores, metrics = zip(*found, strict=True)
        return Tried(candidate, np.array(scores), metrics)


def _predicts(path: Any) -> bool:
    """Whether some metric on the path is not zero; before it, all candidates have the same score."""
    return any(metric.rank > 0 for tried in path for metric in tried.metrics)


def _score(
    learner: FittingLearner,
    candidate: dict[str, Any],
    scorer: Predicted | HeldOut,
    train: Judgements,
    test: Judgements,
    start: Metric | None,
) -> tuple[float, Metric]:
    is_climb = start is not None and candidate["flip_rate"] not in (0.0, "estimate")
    is_rough = learner.solver == "auto" and (train.n_columns > _FEW_COLUMNS or is_climb)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a candidate is judged by its score; the final fit warns
        fitted = clone(learner).set_params(**candidate).fit_to(train, start=start, approximate=is_rough)
        metric = fitted.fit_.unless_interrupted().metric
        found = scorer(fitted, test)
    if not math.isfinite(found):
        raise ValueError(f"scoring must return finite numbers; got {found} for {candidate}.")
    return found, metric
