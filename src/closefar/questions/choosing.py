"""Choosing the questions to ask next: those whose answers teach most about M and the thresholds."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from closefar.arrays import Array, FloatArray, IndexArray, take_rows
from closefar.fitting import Fit, Fitted
from closefar.judgements import Kind, check_comparisons, check_pairs
from closefar.noise import FlipRate
from closefar.questions.choosing_answers import Answers
from closefar.questions.choosing_batch import choose_batch
from closefar.questions.choosing_mode import fit_with_prior, in_numpy, training_of
from closefar.questions.choosing_posterior import Posterior, common_coordinates
from closefar.questions.choosing_screen import shortlist
from closefar.rows import LegRows, Rows, rows_of

__all__ = ["choose_pairs"]

_METHODS = ("information", "uncertainty", "random")

# Of more candidates than this, those that seem to teach most are looked at; levels take longer.
_MOST, _MOST_OF_LEVELS = 8192, 2048

# People slip, whatever the distance: a fit may not know it yet, and a choice that trusts every answer goes astray.
_SLIPS = 0.05


def choose_pairs(
    learner: Fit | Fitted,
    candidates: Any,
    n: int,
    *,
    method: str = "information",
    random_state: Any = None,
    return_utilities: bool = False,
) -> Any:
    """Choose the pairs, or comparisons, to judge next: those whose answers teach most about M and the thresholds.

    Parameters
    ----------
    learner : LinearMetricLearner, OrdinalMetricLearner or ComparisonMetricLearner
        A fitted learner, with its training data.
    candidates : array of shape (m, d) or (m, 2, d), or Tuples
        Differences or pairs that may be judged next, as `learner.predict` takes them; comparisons (m, 3, d) or
        (m, 4, d) for a learner of comparisons, and for one that was fitted to pairs and comparisons.
    n : int
        How many to choose.
    method : {"information", "uncertainty", "random"}, default="information"
        "information": the largest mutual information between the answer and M and the thresholds (BALD), in turn:
        the expected information of those chosen so far counts as known.  "uncertainty": the largest entropy of
        the answer.  "random": all are equally likely.
    random_state : int, RandomState or None, default=None
        Seed of "random"; the other methods draw nothing.
    return_utilities : bool, default=False
        Whether to return the utilities as well.

    Returns
    -------
    indices : array of int, of shape (n,)
        The row numbers of the chosen candidates, best first, without repetition.
    utilities : array of shape (n, m)
        If `return_utilities`: the utility of each candidate before each choice, in nats, and NaN for candidates
        that were chosen before.

    Notes
    -----
    If nearly half of the answers are wrong, random questions teach more than chosen ones.

    Examples
    --------
    >>> import closefar as cf
    >>> data = cf.datasets.make_pairs(1000, 4, wrong_share=0.1, random_state=0)
    >>> learner = cf.LinearMetricLearner().fit(data.pairs[:100], data.labels[:100])
    >>> cf.choose_pairs(learner, data.pairs[100:], 5).shape
    (5,)
    """
    fit = Fit.of(learner)
    data = _read(fit, candidates)
    n_candidates = int(data.shape[0])
    n = _checked(n, n_candidates, method)
    if method == "random":
        return _largest(check_random_state(random_state).uniform(size=n_candidates), n, return_utilities)
    if method == "uncertainty":
        rows, answers = _asked(fit, data)
        means = np.asarray(rows.squared_distances(fit.metric.factor))[:, None] - _cuts(fit, rows)
        return _largest(answers.entropies(means), n, return_utilities, np.min(np.abs(means), axis=1))
    judgements = training_of(fit)
    coordinates = common_coordinates(judgements, rows_of(data))
    fit = fit_with_prior(fit, judgements)
    rows, answers = _asked(fit, data, slips=_SLIPS)
    posterior = Posterior.of(fit, rows, coordinates)
    most = max(_MOST if answers.n_levels == 2 else _MOST_OF_LEVELS, n)
    kept = np.arange(n_candidates)
    if n_candidates > most:
        kept = shortlist(posterior, data, answers, most, 1.0 / fit.relative_noise)
        rows, _ = _asked(fit, take_rows(data, kept))
    batch = choose_batch(posterior, rows, posterior.margins(rows), answers, n, with_utilities=return_utilities)
    if not return_utilities:
        return kept[batch.chosen]
    utilities = np.full((n, n_candidates), np.nan)
    utilities[:, kept] = batch.utilities
    return kept[batch.chosen], utilities


def _read(fit: Fit, candidates: Any) -> Array:
    """Validate candidates, which come to NumPy: pairs, or comparisons if the fit has learned from some."""
    if fit.metric.origin is not None:
        raise ValueError(
            "choose_pairs needs a metric of pairs or comparisons; got one with fit_origin=True, which judges single "
            "points. Leave fit_origin out."
        )
    shape = tuple(getattr(candidates, "shape", ()))
    are_compared = len(shape) == 3 and shape[1] in (3, 4)
    if fit.kind is Kind.COMPARISONS or (are_compared and fit.comparison_noise is not None):
        data = check_comparisons(fit.columns, candidates, fitting=False)
    else:
        data = check_pairs(fit.columns, candidates, fitting=False)
    return in_numpy(data)


def _checked(n: Any, n_candidates: int, method: Any) -> int:
    if method not in _METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, _METHODS))}; got {method!r}.")
    if not isinstance(n, numbers.Integral) or isinstance(n, bool) or not 1 <= int(n) <= n_candidates:
        raise ValueError(
            f"n must be a whole number from 1 to the number of candidates, {n_candidates:,}; got {n!r}. Choose fewer, "
            "or pass more candidates."
        )
    return int(n)


def _asked(fit: Fit, data: Array, slips: float = 0.0) -> tuple[Rows, Answers]:
    """The rows of candidates, and what is answered, by people who slip at least so often."""
    rows, metric = rows_of(data), fit.metric
    if isinstance(rows, LegRows):
        rates = _at_least(metric.compared_flip_rate, slips)
        return rows.with_scale(1.0 / fit.relative_noise), Answers(metric.noise, rates)
    return rows, Answers(metric.noise, _at_least(metric.flip_rate, slips), metric.n_levels)


def _at_least(rate: FlipRate, slips: float) -> FlipRate:
    if isinstance(rate, tuple):
        return max(rate[0], slips), max(rate[1], slips)
    return max(rate, slips)


def _cuts(fit: Fit, rows: Rows) -> FloatArray:
    """What margins are measured from: nothing, of comparisons."""
    return np.zeros(1) if isinstance(rows, LegRows) else np.array(fit.metric.thresholds)


def _largest(utilities: FloatArray, n: int, with_utilities: bool, then: FloatArray | None = None) -> Any:
    """The n largest utilities, largest first; of those that are equal, the smallest of `then`."""
    least = np.partition(utilities, len(utilities) - n)[len(utilities) - n]
    best = np.flatnonzero(utilities >= least)
    keys = (-utilities[best],) if then is None else (then[best], -utilities[best])
    chosen: IndexArray = best[np.lexsort(keys)][:n]
    if not with_utilities:
        return chosen
    table = np.tile(utilities, (n, 1))
    for place in range(1, n):
        table[place, chosen[:place]] = np.nan
    return chosen, table
