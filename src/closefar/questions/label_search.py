"""Finding wrong labels: fits to the labels and to folds of them, in memory or on a cluster, that judge them."""

from __future__ import annotations

import numbers
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from closefar.fitting import (
    Fit,
    Learner,
    Scorer,
    Scores,
    Settings,
    count_parameters,
    fit_from,
    is_near_parts,
    refit_part,
)
from closefar.fitting import fit as fit_to
from closefar.judgements import (
    Judgements,
    Kind,
    Partitions,
    Split,
    counted_partitions,
    is_partitioned,
    partitions_of,
    resolve_groups,
    sample_partitions,
    split_judgements,
)
from closefar.judgements.partitions import words_for_sample
from closefar.model import Scored
from closefar.questions.flip_evidence import FlipEvidence
from closefar.questions.label_errors import LabelErrors, claimed_share, judge_labels
from closefar.questions.label_judge import Asked, Verdicts, judge_sides, unseen_scores
from closefar.questions.lazy_labels import LazyJudge, lazy_verdicts
from closefar.questions.margin_errors import SideErrors

__all__ = ["find_label_errors", "flip_aware"]

_METHODS = ("auto", "out-of-fold", "in-sample")
_JUDGED = ("pairs", "comparisons")

# Of more pairs on a cluster, a sample is gathered to judge the model: so many rows, or as many as the bytes allow.
_MOST_SAMPLED = 100_000
_SAMPLED_BYTES = 1 << 30


def find_label_errors(
    learner: Learner,
    pairs: Any,
    labels: Any = None,
    *,
    sample_weight: Any = None,
    annotators: Any = None,
    comparisons: Any = None,
    judged: str = "pairs",
    cv: Any = 5,
    groups: Any = None,
    method: str = "auto",
    n_jobs: int | None = None,
    random_state: Any = None,
) -> LabelErrors:
    """Find labels that are probably wrong: close/far labels, levels, or answers to comparisons.

    A label is wrong if its pair truly lies on the other side of the threshold, a level if it truly lies in
    another level, and the answer to a comparison if the leg that it calls shorter is truly the longer one.  If
    the noise model passes its checks, the probability of that follows from the margin and its standard error, and
    a share of wrong labels is reported.  Otherwise a label that contradicts the learned distance
    may be right, and the distance wrong.  Then a label is called wrong if it was flipped, whatever
    the distance.  The probability of that follows from how contradictions become rarer as the margin
    grows, since flips do not.  No share is reported in that case; the number of labels that
    contradict the learned distance always is.

    Parameters
    ----------
    learner : LinearMetricLearner, OrdinalMetricLearner or ComparisonMetricLearner
        The learner to fit; it is not changed.  What is "auto" is chosen once, for all fits.  With
        flip_rate=0 the flip rate is estimated, and with alpha=0 the penalty is chosen if `method` is "auto": without
        flips, and without a penalty where labels are few, a metric agrees with labels that it should call wrong.
    pairs, labels, sample_weight, annotators, comparisons
        As for `learner.fit`; for a comparison learner, `pairs` are the comparisons and `labels` the answers.  Each
        judgement is compared with the threshold of its own annotator.
    judged : {"pairs", "comparisons"}, default="pairs"
        With pairs and comparisons together, which of them to judge; the others are part of every fit.
    cv : int or splitter, default=5
        The folds for out-of-fold fits; fewer if the rarer label does not occur in that many.
    groups : array of shape (n,) or (n, 2), optional
        Pairs of the same group share a fold.  Two ids per pair, those of its points, give the folds
        of `PairGroupKFold` if both sides of each split have both labels; a pair that is in no test
        fold is judged in-sample.  By default, points that pairs share are detected in (n, 2, d) data.
    method : {"auto", "out-of-fold", "in-sample"}, default="auto"
        "in-sample" judges each label by one fit to all labels, "out-of-fold" by a fit that has not
        seen it.  "auto" is in-sample, which ranks labels best.  If the metric is in doubt and
        close/far pairs share points, a label is judged by what the other labels of its two points say as well,
        where that predicts held-out labels better.  Out-of-fold fits, with the settings of the fit to all pairs, give
        the share of labels that contradict a distance learned without them.  From 50,000 pairs on
        these fits start from the fit to all pairs.
    n_jobs : int, optional
        The number of folds to fit in parallel.
    random_state : int, RandomState or None
        Seed of the folds.

    Notes
    -----
    For dask arrays and frames, and for pairs opened on a cluster, the fit to all pairs is computed at once, where
    they are.  What is said of the labels as a whole (`meaning`, `share`, `reason`, `unseen_share`) follows from a
    sample of 100,000 pairs that is gathered in this process; of fewer pairs, from all of them.  The arrays with one
    entry per label are dask arrays, of which nothing is computed until they are; `table` computes its rows, and
    `order`, if it is asked for, gathers the verdicts on one worker.

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
    class_weight = getattr(learner, "class_weight", None)
    if class_weight is not None:
        raise ValueError(
            "class_weight must be None to find wrong labels, since it moves the threshold; got "
            f"{class_weight!r}. Leave it out."
        )
    if judged not in _JUDGED or (judged == "comparisons" and comparisons is None):
        raise ValueError(
            f'judged must be "pairs" or, with comparisons besides pairs, "comparisons"; got {judged!r}'
            f"{'' if judged not in _JUDGED else ' and no comparisons'}."
        )
    if is_partitioned(pairs):
        _check_one_fit(pairs, groups, method)
        partitions = counted_partitions(partitions_of(pairs, labels, sample_weight))
        return _find_in_partitions(learner, partitions, cv, method, n_jobs, random_state)
    judgements = clone(learner).read(pairs, labels, sample_weight, annotators=annotators, comparisons=comparisons)
    asked = Asked(judgements, are_attached=judged == "comparisons")
    found_groups = resolve_groups(groups, asked.judgements.data)
    settings = Settings.of(learner)
    settings = settings.but(**flip_aware(settings, penalise=method == "auto"))
    by = found_groups if groups is not None and judged == "pairs" else None
    fit = fit_to(judgements, settings, groups=by)
    fit.warn(stacklevel=2)
    fit.unless_interrupted()
    verdicts, unseen = _judged(fit, asked, found_groups, cv, method, n_jobs, random_state)
    return _found(fit, asked.judgements, verdicts, unseen, found_groups, has_places=method == "auto")


def flip_aware(settings: Settings, *, penalise: bool = True) -> dict[str, Any]:
    """The settings to change so that a metric does not agree with labels that it should call wrong."""
    changes: dict[str, Any] = {}
    if _is_zero(settings.flip_rate):
        changes["flip_rate"] = "estimate"
    if _is_zero(settings.alpha) and penalise:
        changes["alpha"] = "auto"
    return changes


def _is_zero(value: Any) -> bool:
    return isinstance(value, numbers.Real) and value == 0.0


def _judged(
    fit: Fit,
    asked: Asked,
    groups: NDArray[Any] | None,
    cv: Any,
    method: str,
    n_jobs: int | None,
    random_state: Any,
) -> tuple[Verdicts | None, Scores | None]:
    """The verdicts of fits to the folds, where they judge, and the out-of-fold scores of labels that have one."""
    splits = []
    if method != "in-sample":
        seed = check_random_state(random_state).randint(2**31)
        splits = _splits(cv, asked.judgements, groups, seed)
    learn = partial(_learn, fit)
    if method == "auto":
        unseen = unseen_scores(learn, asked, splits, n_jobs=n_jobs)
        return None, None if unseen is None else _with_rates_of(fit, unseen)
    verdicts = judge_sides(learn, asked, splits, n_jobs=n_jobs)
    tested = np.flatnonzero(verdicts.is_new)
    scores = verdicts.as_scores(Scorer.of(fit).score(replace(asked.judgements, comparisons=None)))
    return verdicts, scores.take(tested) if len(tested) else None


def _with_rates_of(fit: Fit, unseen: Scores) -> Scores:
    """The same margins with the flip rates of the fit to all."""
    own = Scorer.of(fit).score(replace(unseen.judgements, comparisons=None)).flip_rate
    return replace(unseen, flip_rate=own)


def _found(
    fit: Fit,
    judgements: Judgements,
    verdicts: Verdicts | None,
    unseen: Scores | None,
    groups: NDArray[Any] | None,
    *,
    has_places: bool = False,
) -> LabelErrors:
    if unseen is not None:
        return judge_labels(fit, judgements, unseen, verdicts, groups=groups, has_places=has_places)
    scores = Scorer.of(fit).score(replace(judgements, comparisons=None))
    found = judge_labels(fit, judgements, scores, verdicts, groups=groups, has_places=has_places)
    return replace(found, unseen_share=None, unseen_low=None, unseen_high=None)


def _check_one_fit(pairs: Any, groups: Any, method: str) -> None:
    """Refuse what needs fits to parts of the pairs, where these are in partitions."""
    if method == "out-of-fold" or groups is not None:
        got = "groups" if method != "out-of-fold" else 'method="out-of-fold"'
        raise ValueError(
            f"labels of a cluster are judged by one fit to all of them, without groups; got {got}. Leave it out, or "
            f"pass a sample: {words_for_sample(pairs)}."
        )


def _find_in_partitions(
    learner: Learner, partitions: Partitions, cv: Any, method: str, n_jobs: int | None, random_state: Any
) -> LabelErrors:
    """Fit to all pairs where they are, judge the model by a sample in memory, and each label when that is asked for."""
    n_columns, n = partitions.n_columns, sum(partitions.n_rows or ())
    most = min(max(_MOST_SAMPLED, 8 * count_parameters(n_columns, None)), _SAMPLED_BYTES // (8 * n_columns))
    sample = sample_partitions(partitions, most)
    weights = np.ones(len(sample.labels)) if sample.weights is None else np.asarray(sample.weights, dtype=np.float64)
    changes = flip_aware(Settings.of(learner), penalise=method == "auto")
    fit = clone(learner).set_params(**changes).fit(partitions).fit_.unless_interrupted()
    scaled = n / len(weights) * weights if len(weights) < n else sample.weights
    unnamed = replace(fit.columns, names_in_data=None)
    some = Judgements.read_more(unnamed, sample.data, sample.labels, scaled, sides=fit.sides)
    found_groups = resolve_groups(None, some.data)
    verdicts, unseen = _judged(fit, Asked(some), found_groups, cv, method, n_jobs, random_state)
    found = _found(fit, some, verdicts, unseen, found_groups)
    curves, factor = None, 1.0
    if found.meaning == "flipped":
        curves = FlipEvidence.of(Scored.by(fit.metric, some)).curves
        known = Scored.by(fit.metric, some) if unseen is None else unseen
        factor = claimed_share(known, found.reason)
    judge = LazyJudge(fit.metric, fit.sides, SideErrors.of(fit, some.counted()), curves, factor)
    return replace(found, **lazy_verdicts(judge, partitions))


def _learn(fit: Fit, judgements: Judgements) -> Fit:
    """Fit to some of the judgements; the fit to all is known already, and a good start if there are many."""
    if fit.judgements is not None and _size(judgements) == _size(fit.judgements):
        return fit
    return fit_from(fit, judgements) if is_near_parts(fit) else refit_part(fit, judgements)


def _splits(cv: Any, judgements: Judgements, groups: NDArray[Any] | None, seed: int) -> list[Split]:
    """The folds; fewer, and then without groups, if one side of a split has only one label."""
    if not isinstance(cv, numbers.Integral):
        return split_judgements(cv, judgements, groups=groups, seed=seed)
    most = min(int(cv), _n_rarest(judgements))
    for by in (groups, None) if groups is not None else (None,):
        for n_folds in sorted({most, min(most, 3), min(most, 2)}, reverse=True):
            if n_folds < 2:
                continue
            try:
                splits = split_judgements(n_folds, judgements, groups=by, seed=seed)
            except ValueError:
                continue
            if all(_can_train(judgements.take(train)) for train, _ in splits):
                return splits
    return []


def _size(judgements: Judgements) -> tuple[int, int]:
    return len(judgements), 0 if judgements.comparisons is None else len(judgements.comparisons)


def _n_rarest(judgements: Judgements) -> int:
    """How many judgements have the rarest label, or are not of the most frequent level; all comparisons are alike."""
    counted = judgements.codes[judgements.weights > 0]
    if judgements.kind is Kind.COMPARISONS:
        return len(counted)
    counts = np.bincount(counted, minlength=judgements.n_levels)
    return int(counts.min() if judgements.levels is None else counts.sum() - counts.max())


def _can_train(judgements: Judgements) -> bool:
    if judgements.kind is Kind.COMPARISONS:
        return bool(np.any(judgements.weights > 0))
    counted = judgements.codes[judgements.weights > 0]
    return len(np.unique(counted)) == judgements.n_levels
