"""All that a report shows, in one dict: each section is a function that returns its facts with a `reading`."""

from __future__ import annotations

import contextlib
import math
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from importlib.metadata import version
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.metrics import roc_curve
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from closefar import fitting, questions
from closefar.arrays import BoolArray, FloatArray, IndexArray, numbered
from closefar.errors import joined, setting, words_of
from closefar.fitting import Fit, Fitted, Scores
from closefar.judgements import (
    Judgements,
    Kind,
    SharedPointsWarning,
    Split,
    find_points,
    most_folds,
    resolve_groups,
    share_points,
    split_judgements,
    variance_of_sum,
)
from closefar.model import ZERO, Metric, Scored, ScoredLevels, in_data_scale, loadings
from closefar.packed import packed_size
from closefar.plain import records, to_jsonable
from closefar.questions import LabelErrors
from closefar.report.maps import map_pairs, map_points
from closefar.report.wording import count, digits, percent, points, rounded, sentence, short, signed, with_and

# ---------------------------------------------------------------------------------------------------------------------
# Where a report comes from, and the sections in their order.


@dataclass(frozen=True)
class Provenance:
    """The files behind a report; with data files it is one of the command line, else of Python.

    Attributes
    ----------
    points, pairs, comparisons, judgements : str or None
        The files that the data were read from; `judgements` are those of pairs that have a file of their own.
    model : str or None
        The model file.
    categories : mapping of str to sequence of str
        The values of each column without numbers: the one without a 0/1 column of its own first, or those that
        were encoded as 0, 1, 2 and so on.
    """

    points: str | None = None
    pairs: str | None = None
    model: str | None = None
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    comparisons: str | None = None
    judgements: str | None = None

    @property
    def files(self) -> list[str]:
        """The data files."""
        given = (self.points, self.pairs, self.comparisons, self.judgements)
        return [name for name in given if name is not None]

    @property
    def is_command_line(self) -> bool:
        return bool(self.files)


N_PARTS = 5  # that `watch` is called for
DEFAULT_TITLE = "Learned distance metric"

_ORDERED_HERE = (
    "The model file does not say how its training pairs vary, so directions are numbered by the mean squared distance "
    "that they explain on the pairs given; transform has them in another order. Fit again to have one order."
)


def summarize(
    learner: Fit | Fitted,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    *,
    title: str | None = None,
    provenance: Provenance | None = None,
    ids: Any = None,
    groups: Any = None,
    random_state: Any = 0,
    watch: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Return what the report shows, as numbers, strings, lists, dicts and None, which JSON can hold.

    A part that does not exist for this fit has a `reason` that says why; a number that does
    not exist is None.

    Parameters
    ----------
    learner : LinearMetricLearner, OrdinalMetricLearner or ComparisonMetricLearner
        Fitted.
    X, y, sample_weight : optional
        Pairs, labels and weights as for `learner.fit`.  By default those of the fit, each evaluated
        by a fit that has not seen it; so are these if they turn out to be those of the fit.
        Others are evaluated by the learner itself.
    title : str, optional
        The headline; by default a general one with the names of the data files.
    provenance : Provenance, optional
        The files behind it, which it names.
    ids : array of shape (n,) or (n, 2), optional
        A name for each pair, or for each of its points, to show suspicious pairs by; else they
        are shown by their row numbers, from 0.
    groups : array of shape (n,) or (n, 2), optional
        Which pairs depend on each other: a group for each, or the ids of its two points.  The first
        figures are then for new groups or points, beside those for new pairs of known ones.  By
        default the points of `ids`, or those that (n, 2, d) data shows to be shared;
        ``groups=range(n)`` says that pairs are independent.
    random_state : int, RandomState or None, default=0
        Chooses folds, samples and refits; an int gives the same report each time.
    watch : callable, optional
        Called with the name of each part before it is computed.

    Examples
    --------
    >>> import closefar as cf
    >>> from closefar.report import summarize
    >>> pairs, labels, *_ = cf.datasets.make_pairs(2000, 3, wrong_share=0.1, random_state=0)
    >>> facts = summarize(cf.LinearMetricLearner().fit(pairs, labels))
    >>> facts["pairs"]["source"], round(facts["quality"]["accuracy"], 2)
    ('out-of-fold', 0.9)
    """
    fit = Fit.of(learner)
    tell, provenance = watch or (lambda _: None), provenance or Provenance()
    seed = int(check_random_state(random_state).randint(2**31))
    given = fit.read_or_training(X, y, sample_weight)
    texts = _read_ids(ids, len(given))
    dependent = _shared_points(texts, groups, given)
    shown = given.counted()
    # The pairs to show, and those of the fit where they are known: the same object where they are the same pairs.
    is_of_fit = X is None or _is_training(fit, shown)
    training = shown if is_of_fit else None if fit.judgements is None else fit.training().counted()
    of_training = dependent if is_of_fit else None
    # Most matrices here are small: more threads then wait for each other, and ten times as long where others run.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", SharedPointsWarning)  # the report says it
        if fit.metric.data_factor is None and fit.metric.rank > 0:
            metric = in_data_scale(fit.metric, shown.data, shown.weights)
            fit = replace(fit, metric=metric, problems=(*fit.problems, _ORDERED_HERE))
        metric, names, scales = fit.metric, list(fit.metric.column_names), np.array(fit.statistics.column_scales)
        tell("cross-validation")
        judged = _judge(fit, shown, has_seen=is_of_fit, seed=seed, groups=dependent)
        labels = _labels(fit)
        quality = _quality(judged, metric, labels)
        is_chance = quality["is_chance"]
        wrong, suspects = _wrong_labels(judged.label_by_label, fit, texts, is_chance=is_chance)
        facts: dict[str, Any] = {
            "version": version("closefar"),
            "pairs": _pairs(fit, judged, shown, labels),
            "quality": quality,
            "distances": _distances(judged, metric, labels),
            "choice": _choice(fit),
            "baseline": _held_out(fit),
            "calibration": _calibration(judged, caveat=_caveat(fit)),
            "roc": _roc(judged, metric),
            "wrong_labels": wrong,
        }
        tell("truncation")
        facts |= {
            "spectrum": _spectrum(metric),
            "truncation": _truncation(fit, shown, is_training=is_of_fit, seed=seed),
            "directions": _directions(metric, names, scales),
            "matrix": _matrix(metric, names, scales),
            "pair_map": map_pairs(metric, shown, suspects, seed),
            "point_map": map_points(fit, shown, dependent, provenance.categories, seed),
        }
        tell("noise check")
        facts["noise_check"] = _noise_check(fit, shown, seed, dependent)
        tell("learning curve")
        facts["learning_curve"] = _learning_curve(fit, shown if training is None else training, seed)
        if judged.unseen != "pair" and facts["learning_curve"]["reason"] is None:
            facts["learning_curve"]["reading"] += f" This holds for new {judged.noun}s of known {judged.unseen}s."
        tell("intervals")
        own = None if of_training is None else of_training[shown.numbers]
        facts |= {
            "intervals": _intervals(fit, training, names, seed=seed, groups=own),
            "annotators": _annotators(fit),
            "comparisons": _comparisons(fit),
            "evidence": questions.describe_evidence(fit),
            "problems": _problems(fit, facts["noise_check"], is_chance=is_chance, groups=of_training),
            "certificate": _certificate(fit),
            "fit": _fit(fit),
            "next_steps": _next_steps(metric, provenance),
        }
    facts |= {"sentence": _answer(facts), "key_figures": _key_figures(facts)}
    facts = {**_headline(title, facts, provenance), **facts}
    return cast("dict[str, Any]", to_jsonable(facts, finite=True, is_command_line=provenance.is_command_line))


def _headline(title: str | None, facts: dict[str, Any], provenance: Provenance) -> dict[str, Any]:
    """The title, and what the report is of: data, model, date and counts."""
    files, pairs = provenance.files, facts["pairs"]
    parts = [count(pairs["n_given"], pairs["noun"]), count(facts["fit"]["n_features"], "column")]
    if facts["comparisons"] is not None:
        parts.insert(1, count(facts["comparisons"]["n"], "comparison"))
    if pairs["kind"] == Kind.CLOSE_FAR:
        parts.append(f"{percent(pairs['share_far'])} labelled far")
    elif pairs["kind"] == Kind.LEVELS:
        parts.append(count(len(pairs["labels"]), "level"))
    if facts["annotators"] is not None:
        parts.append(count(facts["annotators"]["n"], "annotator"))
    named = {
        "Data": with_and(files),
        "Model": provenance.model,
        "Date": date.today().isoformat(),
        "Size": ", ".join(parts),
    }
    return {
        "title": title or (f"{DEFAULT_TITLE}: {with_and(files)}" if files else DEFAULT_TITLE),
        "is_command_line": provenance.is_command_line,
        "about": [{"name": name, "value": value} for name, value in named.items() if value],
    }


def _pairs(fit: Fit, judged: _Judged, shown: Judgements, labels: list[str]) -> dict[str, Any]:
    return {
        **{name: getattr(judged, name) for name in ("source", "unseen", "words", "noun")},
        "n_pairs": len(judged.judgements),
        "n_given": len(shown),
        "kind": str(fit.kind),
        "share_far": shown.mean(shown.is_far) if fit.kind is Kind.CLOSE_FAR else None,
        "n_fitted": fit.statistics.n_pairs,
        "labels": labels,
        "term": fit.kind.term,
        "weighted": shown.sample_weight is not None,
    }


def _labels(fit: Fit) -> list[str]:
    """The labels, closest first."""
    if fit.sides.is_graded:
        return [str(level) for level in fit.sides.classes.tolist()]
    return [str(fit.sides.close), str(fit.sides.far)]


def _fit(fit: Fit) -> dict[str, Any]:
    metric, parameters = fit.metric, fit.settings.parameters
    if fit.kind is Kind.CLOSE_FAR:
        parameters = {**parameters, "far_label": fit.sides.far}
    return {
        **asdict(fit.statistics),
        **{name: getattr(metric, name) for name in ("flip_rate", "threshold", "thresholds", "rank", "origin")},
        "noise": metric.noise.name,
        "n_features": len(metric.factor),
        "alpha": fit.alpha,
        "prior": fit.prior if isinstance(fit.prior, str) else "metric",
        "scale": fit.known.scale,
        "engine": fit.engine,
        "parameters": {
            name: value if isinstance(value, int | float | str | None) else str(value)
            for name, value in parameters.items()
        },
        "summary": questions.describe_fit(fit),
    }


# ---------------------------------------------------------------------------------------------------------------------
# How much work the costly parts of a report are, counted and not timed, so that a report is the same each time.
#
# The unit is about a floating point operation; a slow core does some 1e9 of it per second.


_LIMIT = 2e10  # of one part
_FEWEST_JUDGED = 2000  # which know a share of one half to 2.2 percentage points
_MOST_JUDGED = 30_000  # which know an accuracy to 0.6 percentage points
_FEWEST_PASSES = 20.0  # where a fit began near its end
_FEW_FEATURES = 16  # up to which the proof of a fit takes no longer than the fit
_MOST_NUMBERS = 4e6  # in memory at once


class _Effort:
    """The work of one fit and of one pass of standard errors, for each pair."""

    def __init__(self, fit: Fit) -> None:
        self.n_features, self.rank = d, k = len(fit.metric.factor), fit.metric.rank
        self.n_moves = fitting.count_parameters(d, k) if k else 1
        self.fit = max(fit.certificate.n_passes, _FEWEST_PASSES) * d * d
        self.moves = float(min(self.n_moves, questions.MOST_MOVES) ** 2)
        # Whether a proven fit takes several times as long as an approximate one.
        self.has_many_features = d > _FEW_FEATURES

    def pairs_to_judge(self, n: int, n_rounds: int = 1) -> int:
        """How many of n pairs to judge out of fold, in this many rounds."""
        return self._affordable(n, 2.0 * _LIMIT, 5.0 * n_rounds * (self.fit + self.moves))

    def folds(self, n: int, usual: int) -> int:
        """Three instead of the usual where even the fewest pairs are much work."""
        return usual if usual * n * self.fit <= 2.0 * _LIMIT else 3

    def pairs_to_check(self, n: int) -> int:
        """How many of n pairs to check the noise with."""
        return self._affordable(n, 0.5 * _LIMIT, self.moves)

    def pairs_to_truncate(self, n: int) -> int:
        return self._affordable(n, _MOST_NUMBERS, self.rank + 1.0)

    def can_refit_truncated(self, n: int) -> bool:
        return n * self.fit * self.rank / 3.0 <= 2.0 * _LIMIT

    def repeats(self, n: int, usual: int) -> int:
        """Of a learning curve of fits that double in size up to n; small fits of many columns are slow."""
        return usual if not self.has_many_features and 2.0 * usual * n * self.fit <= _LIMIT else 1

    def pairs_to_learn_from(self, n: int) -> int:
        return self._affordable(n, _LIMIT, 2.0 * self.fit)

    def can_refit(self, n: int, times: int) -> bool:
        return times * n * self.fit <= _LIMIT

    def can_sandwich(self, n: int) -> bool:
        return float(n) * packed_size(self.n_features) ** 2 <= 5.0 * _LIMIT

    def _affordable(self, n: int, limit: float, work_per_pair: float) -> int:
        return int(np.clip(limit / max(work_per_pair, 1.0), min(n, _FEWEST_JUDGED), min(n, _MOST_JUDGED)))


_FOLDS_TO_JUDGE = 5  # as is usual: each fit sees four fifths of the pairs
_DIVISIONS = 3  # of points that are all linked by pairs: each tests about a fifth of these


@dataclass(frozen=True)
class _Judged:
    """Pairs with the margins that they are judged by.

    Attributes
    ----------
    scored : Scored or ScoredLevels
    source : {"out-of-fold", "given", "in-sample"}
        Of which kind the margins are.
    words : str
        The same in a sentence.
    noun : str
        What one of them is called.
    thresholds : array of shape (n,)
        Of the fit that judged each: the mean of those of levels, and zero for comparisons.
    errors : LabelErrors or None
        Where the fits that judged also say how probably each label is wrong.
    doubt : str or None
        Why they do not.
    groups : array of shape (n,) or (n, 2), or None
        Which of them depend on each other.
    unseen : {"pair", "group", "point"}
        What is new to the fits that judged.
    known : _Judged or None
        All of them as new pairs of known groups or points, where `unseen` are those.
    """

    scored: Scores
    source: str
    words: str
    noun: str
    thresholds: FloatArray
    errors: LabelErrors | None = None
    doubt: str | None = None
    groups: NDArray[Any] | None = None
    unseen: str = "pair"
    known: _Judged | None = None

    @property
    def judgements(self) -> Judgements:
        return self.scored.judgements

    def squared_distances(self, threshold: float) -> FloatArray:
        """The squared distance of each on a scale on which every fit that judged has this threshold.

        A threshold of zero is on no other scale; distances are then shifted instead.
        """
        own = self.thresholds
        margin = self.scored.squared - own if isinstance(self.scored, ScoredLevels) else self.scored.margin
        has_scale = (own > 0) & (threshold > 0)
        scale = np.divide(threshold, own, out=np.ones(len(own)), where=has_scale)
        squared: FloatArray = np.where(has_scale, scale * (margin + own), np.maximum(margin + threshold, 0.0))
        return squared

    @property
    def label_by_label(self) -> _Judged:
        """Every one of them, for what is asked of these labels and not of new points."""
        return self if self.known is None else self.known

    def interval(self, holds: BoolArray) -> tuple[float, float]:
        """The 95% interval of the share for which something holds, wider where pairs depend on each other."""
        share = self.judgements.mean(holds)
        return questions.wilson(share, self.effective_number(holds))

    def effective_number(self, holds: BoolArray) -> float:
        """As many independent pairs would know this share as well."""
        most = self.judgements.effective_number
        if self.groups is None:
            return most
        share, shares = self.judgements.mean(holds), self.judgements.shares
        n_units, variance = numbered(self.groups)[1], variance_of_sum((holds - share) * shares, self.groups)
        if n_units > 1:  # few groups know their spread badly
            variance *= (student.ppf(0.975, n_units - 1) / 1.96) ** 2
        if variance <= 0:
            return min(most, n_units / np.ndim(self.groups))
        return min(most, share * (1.0 - share) / variance)


def _noun_of(fitted: Fit) -> str:
    """What a judgement is about: two points, more of them or, with a learned origin, one."""
    return fitted.kind.noun if fitted.metric.origin is None else "point"


def _has_sides(judgements: Judgements) -> bool:
    """Whether the judgements differ; a comparison can be given either way round."""
    return judgements.kind is Kind.COMPARISONS or len(np.unique(judgements.codes)) > 1


def _judge(
    fitted: Fit, judgements: Judgements, *, has_seen: bool, seed: int, groups: NDArray[Any] | None = None
) -> _Judged:
    """Judge each pair by the fit or, where it `has_seen` the labels, by fits to the others.

    `groups` are those of all pairs that were given, by their row numbers.
    """
    noun = _noun_of(fitted)
    if not has_seen:
        words = (
            f"The model is evaluated as it is on the {count(len(judgements), noun)} given. The figures are optimistic "
            "if it was fitted to some of them."
        )
        own = None if groups is None else groups[judgements.numbers]
        if own is not None:
            unit = "points" if own.ndim == 2 else "groups"
            words += f" They share {unit}, which the intervals account for."
        return _by_metric(fitted, judgements, "given", words, groups=own)
    effort = _Effort(fitted)
    n_rounds = 1 if groups is None else 2
    judged = judgements.sample(effort.pairs_to_judge(len(judgements), n_rounds), seed)
    n_folds, seed = effort.folds(len(judged), _FOLDS_TO_JUDGE), check_random_state(seed).randint(2**31)
    own = None if groups is None else groups[judged.numbers]
    by_pair = replace(_by_pair(fitted, judged, n_folds, seed, own), groups=own)
    can_repeat = effort.pairs_to_judge(len(judged), 1 + _DIVISIONS) == len(judged)
    n_divisions = _DIVISIONS if can_repeat else 1
    found = by_pair if own is None else _by_group(fitted, by_pair, own, n_folds, n_divisions, seed)
    if len(judged) == len(judgements) or found.source == "in-sample":
        return found
    sampled = f" To save time, this is done for a random sample of {len(judged):,} of the {len(judgements):,} {noun}s."
    return replace(found, words=found.words + sampled)


def _is_training(fitted: Fit, judgements: Judgements) -> bool:
    """Whether these are the pairs of the fit: as many, with the very statistics that it ended with."""
    known = fitted.statistics
    if fitted.is_metric_alone or len(judgements) != known.n_pairs or not _has_sides(judgements):
        return False
    weighted, measure = judgements.weighted(fitted.settings.class_weight), fitted.metric.measure
    others = [] if weighted.comparisons is None else [measure(weighted.comparisons.data)]
    squared = np.concatenate([measure(weighted.data), *others])
    scales = np.array(known.column_scales)
    found = fitting.measured_statistics(weighted, squared, fitting.Scorer.of(fitted), scales, known.n_parameters)
    return all(
        math.isclose(getattr(found, name), getattr(known, name), rel_tol=1e-6, abs_tol=1e-7)
        for name in ("null_loss", "accuracy", "wrong_share", "uncertain_labels")
    )


def _by_pair(fitted: Fit, judged: Judgements, n_folds: int, seed: int, groups: NDArray[Any] | None) -> _Judged:
    """Judge each by a fit that has not seen its label."""
    noun = _noun_of(fitted)
    n_folds = min(n_folds, judged.n_rarer)
    if n_folds < 2:
        reason = f"only {count(judged.n_rarer, noun)} {'has' if judged.n_rarer == 1 else 'have'} the rarer label"
        return _by_the_fit_itself(fitted, judged, reason)
    splits = split_judgements(n_folds, judged, seed=seed)
    try:
        scored, thresholds = _out_of_fold(fitted, judged, splits)
    except ValueError as error:  # a part of few or odd pairs can't be fitted
        return _by_the_fit_itself(fitted, judged, f"fits to parts of them failed ({error})")
    errors, doubt = _label_errors(fitted, scored, groups)
    unseen = f"by a fit that has not seen its {fitted.kind.term} ({n_folds} folds)"
    words = f"Cross-validated: each {noun} is evaluated {unseen}."
    return _Judged(scored, "out-of-fold", words, noun, thresholds, errors, doubt)


def _by_group(
    fitted: Fit, by_pair: _Judged, groups: NDArray[Any], n_folds: int, n_divisions: int, seed: int
) -> _Judged:
    """Judge those that some split tests by fits that have not seen their points or groups; else by pair, and say so."""
    judged, noun = by_pair.judgements, by_pair.noun
    unit, its = ("point", "points") if groups.ndim == 2 else ("group", "group")
    share = f"{noun.capitalize()}s {f'share {unit}s' if unit == 'point' else 'belong to groups'}"
    splits = _group_splits(judged, groups, n_folds, n_divisions, seed) if by_pair.source == "out-of-fold" else []
    if splits:
        try:
            scored, thresholds = _out_of_fold(fitted, judged, splits)
        except ValueError:  # a part of few or odd pairs can't be fitted
            splits = []
    if not splits:
        words = (
            f" {share}, and too few {unit}s can be left out together to test on new {unit}s: the figures are for new "
            f"{noun}s of these {unit}s and may be worse for new {unit}s."
        )
        return replace(by_pair, words=by_pair.words + words)
    tested = np.flatnonzero(np.isfinite(thresholds))
    words = (
        f"Cross-validated: {share[0].lower()}{share[1:]}, so each {noun} is evaluated by a fit that has not seen its "
        f"{its}. The figures are for new {unit}s ({count(len(splits), 'fold')})."
    )
    if len(tested) < len(judged):
        words += (
            f" {len(judged) - len(tested):,} of {count(len(judged), noun)} are not counted, because their {unit}s were "
            "never left out together."
        )
    term = fitted.kind.term
    words += f" Suspicious {term}s are judged by fits that have not seen that {term} but may have seen its {its}."
    own = groups[tested]
    return _Judged(
        scored.take(tested), "out-of-fold", words, noun, thresholds[tested], groups=own, unseen=unit, known=by_pair
    )


def _group_splits(judged: Judgements, groups: NDArray[Any], n_folds: int, n_divisions: int, seed: int) -> list[Split]:
    """Splits that keep groups or points apart, of which at most one tests each pair."""
    n_folds = most_folds(n_folds, judged, groups, seed=seed)
    is_tested, found = np.zeros(len(judged), dtype=bool), []
    for division in range(n_divisions if n_folds else 0):
        try:
            splits = split_judgements(n_folds, judged, groups=groups, seed=seed + division)
        except ValueError:  # a side of one class
            continue
        for train, test in splits:
            new = test[~is_tested[test]]
            is_tested[new] = True
            found += [(train, new)] if len(new) else []
        if 2 * is_tested.sum() > len(judged):
            break
    return found


def _label_errors(fitted: Fit, unseen: Scores, groups: NDArray[Any] | None) -> tuple[LabelErrors | None, str | None]:
    """How probably each label is wrong, or why that is not known.

    Class weights move the threshold, and then it can't be told.
    """
    if fitted.settings.class_weight is not None:
        return None, None
    judgements, changes = unseen.judgements, questions.flip_aware(fitted.settings)
    is_whole = len(judgements) == fitted.statistics.n_pairs
    try:
        own = fitted if is_whole and not changes else fitting.fit(judgements, fitted.chosen.but(**changes))
        return questions.judge_labels(own, judgements, unseen, groups=groups), None
    except ValueError as error:
        return None, str(error).rstrip(".")


def _out_of_fold(fitted: Fit, judgements: Judgements, splits: list[Split]) -> tuple[Scores, FloatArray]:
    """The judgements scored by fits to the train sides of the splits that test them, and the thresholds of those fits.

    Those that no split tests have the threshold NaN.
    """
    parts = [(fitting.refit_part(fitted, judgements.take(train)), test) for train, test in splits]
    thresholds = np.full(len(judgements), np.nan)
    for part, test in parts:
        thresholds[test] = _threshold(part)
    scored = [(fitting.score(part, judgements.take(test)), test) for part, test in parts]
    return fitting.join_scores(judgements, scored), thresholds


def _threshold(fitted: Fit) -> float:
    """The threshold, the mean of those of levels, or zero for comparisons."""
    return float(np.mean(fitted.metric.thresholds)) if fitted.metric.thresholds else 0.0


def _by_the_fit_itself(fitted: Fit, judgements: Judgements, reason: str) -> _Judged:
    noun = _noun_of(fitted)
    seen = f"the fit has seen these {fitted.kind.term}s"
    words = f"Not cross-validated, because {reason}: {seen}, and new {noun}s will do worse."
    return _by_metric(fitted, judgements, "in-sample", words)


def _by_metric(
    fitted: Fit, judgements: Judgements, source: str, words: str, groups: NDArray[Any] | None = None
) -> _Judged:
    """Judge by the fit as it is."""
    scored, thresholds = fitting.score(fitted, judgements), np.full(len(judgements), _threshold(fitted))
    return _Judged(scored, source, words, _noun_of(fitted), thresholds, groups=groups)


# ---------------------------------------------------------------------------------------------------------------------
# How well the learned distance predicts the labels: accuracy, distances, probabilities and the ROC curve.


_HISTOGRAM_BINS = 40  # as many as have 7 pixels each in a drawing for a phone

# The axis of distances ends at this quantile of them, and at most at this many thresholds.
_DISTANCES_SHOWN = 0.98
_MOST_THRESHOLDS = 10.0  # times their mean


def _distances(judged: _Judged, metric: Metric, labels: list[str]) -> dict[str, Any]:
    """A histogram of squared distances for each label, with all that are too long for it in its last bin.

    Cross-validated distances are scaled so that the mean threshold of each fit is that of the fit to all.  For
    comparisons it is of the difference of both squared distances, positive where the metric agrees.
    """
    judgements, scored = judged.judgements, judged.scored
    weights, codes, thresholds = judgements.weights, judgements.codes, np.array(metric.thresholds)
    if judgements.kind is Kind.COMPARISONS and isinstance(scored, Scored):
        values = np.where(judgements.is_far, scored.margin, -scored.margin)
        end = float(np.quantile(np.abs(values), _DISTANCES_SHOWN)) or 1.0
        edges = np.linspace(-end, end, _HISTOGRAM_BINS + 1)
    else:
        scale, last = float(thresholds.mean()), 1.5 * float(thresholds[-1])
        values = judged.squared_distances(scale)
        end = float(np.quantile(values, _DISTANCES_SHOWN))
        end = (float(np.clip(end, last, max(_MOST_THRESHOLDS * scale, last))) if scale > 0 else end) or 1.0
        edges = np.linspace(0.0, end, _HISTOGRAM_BINS + 1)
    shown = np.clip(values, -end, end)

    def count_bins(chosen: Any = slice(None)) -> FloatArray:
        return np.histogram(shown[chosen], edges, weights=weights[chosen])[0]

    found = {
        "edges": edges.tolist(),
        "counted": f"{judged.noun}s" if judgements.sample_weight is None else "weight",
        "beyond": float(np.average(np.abs(values) > end, weights=weights)),
    }
    if judgements.kind is Kind.COMPARISONS:
        reading = f"The metric agrees with {percent(scored.accuracy)} of the answers, at the right of zero."
        return {**found, "counts": count_bins(), "reading": reading}
    counts = [count_bins(codes == code) for code in range(len(labels))]
    if not isinstance(scored, ScoredLevels):
        sides = dict(zip(("close", "far"), counts, strict=True))
        return {**found, **sides, "threshold": scale, "reading": _side_reading(judged)}
    own = np.sum(scored.squared[:, None] >= scored.thresholds, axis=1)
    exactly, nearly = (percent(judgements.mean(np.abs(own - codes) <= reach)) for reach in (0, 1))
    return {
        **found,
        "levels": [
            {"label": label, "n": int(np.sum(codes == code)), "counts": counts[code]}
            for code, label in enumerate(labels)
        ],
        "thresholds": thresholds.tolist(),
        "reading": (
            f"{exactly} of the {judged.noun}s lie between the thresholds of their level, {nearly} there or in a "
            "neighbouring level."
        ),
    }


def _side_reading(judged: _Judged) -> str:
    far, weights = judged.judgements.is_far, judged.judgements.weights
    said: list[str] = []
    for name, chosen, where in (("close", ~far, "below"), ("far", far, "above")):
        if np.any(chosen):
            share = percent(float(np.average(judged.scored.is_right[chosen], weights=weights[chosen])))
            there = f"{where} it" if said else f"lie {where} the threshold"
            said.append(f"{share} of the {name} {judged.noun}s {there}")
    return f"{with_and(said)}."


_CALIBRATION_BINS = 10  # of about equal weight, as in `plot.calibration`
_MOST_ROC_POINTS = 200  # more than a curve of 272 pixels shows

# A difference of calibration of this size is worth a word.
_NOTABLE_MISCALIBRATION = 0.03


def _quality(judged: _Judged, metric: Metric, labels: list[str]) -> dict[str, Any]:
    """Accuracy beside the majority baseline, the area under the ROC curve, the loss and the confusion matrix."""
    scored, known = judged.scored, None
    if judged.known is not None:  # new pairs of known points or groups
        known = {**_accuracy_facts(judged.known), "auc": _auc(judged.known, metric), "loss": judged.known.scored.loss}
        known["n_pairs"] = len(judged.known.scored)
    return {
        **_accuracy_facts(judged),
        "likelier": _likelier(scored, labels),
        "baseline": scored.majority,
        **({"share_far": scored.share_far} if isinstance(scored, Scored) else {"shares": scored.shares.tolist()}),
        "auc": _auc(judged, metric),
        "is_chance": _is_chance(judged, metric),
        "loss": scored.loss,
        "null_loss": scored.null_loss,
        "known": known,
        "confusion": _confusion(scored, labels),
    }


def _calibration(judged: _Judged, *, caveat: str) -> dict[str, Any]:
    """Probabilities beside the shares labelled far, in bins; with levels for each threshold.

    A comparison is turned so that the likelier answer comes first.
    """
    found = [
        (k, row)
        for k, each in enumerate(questions.sides_of(judged.scored), 1)
        for row in questions.calibrate(each, _CALIBRATION_BINS)
    ]
    bins = [row for _, row in found]
    error = float(np.average([abs(row.predicted - row.observed) for row in bins], weights=[row.weight for row in bins]))
    reading = _calibration_reading(bins, error) + caveat  # both wordings, which an f-string would lose
    if not _has_sides(judged.judgements):
        reading = f"All of these {judged.noun}s have the same label, so calibration can't be checked."
    is_graded = isinstance(judged.scored, ScoredLevels)
    rows = [{**vars(row), **({"level": k} if is_graded else {})} for k, row in found]
    return {"bins": rows, "error": error, "reading": reading}


def _roc(judged: _Judged, metric: Metric) -> dict[str, Any]:
    """The true positive rate against the false positive rate for each threshold; far is positive."""
    auc = _auc(judged, metric)
    if judged.judgements.kind is Kind.COMPARISONS:
        return {"reason": "A comparison turned round is the same comparison, so there are no two sides to tell apart."}
    if metric.rank == 0:
        return {"reason": "The metric is zero, and so is every distance."}
    if auc is None:
        return {"reason": f"All of these {judged.noun}s have the same label, so there is nothing to tell apart."}
    if isinstance(judged.scored, ScoredLevels):
        sides = enumerate(judged.scored.dichotomies, 1)
        curves = [{"level": k, **_roc_curve(each)} for k, each in sides if each.judgements.n_rarer > 0]
        areas = with_and([f"{curve['auc']:.3f}" for curve in curves])
        return {
            "reason": None,
            "auc": auc,
            "curves": curves,
            "reading": (
                f"A {judged.noun} of a level above a threshold has a larger distance than one of a level below it with "
                f"probability {areas}, in the order of the thresholds."
            ),
        }
    curve = _roc_curve(judged.scored)
    found, wrongly = (percent(curve["at_threshold"][name]) for name in ("true_far", "false_far"))
    return {
        "reason": None,
        **curve,
        "reading": (
            f"A random far {judged.noun} has a larger distance than a random close {judged.noun} with probability "
            f"{auc:.3f}. At the learned threshold, {found} of the {judged.noun}s labelled far are "
            f"predicted far (true positives), and {wrongly} of those labelled close (false positives)."
        ),
    }


def _roc_curve(scored: Scored) -> dict[str, Any]:
    judgements, margin = scored.judgements, scored.margin
    false, true, _ = roc_curve(judgements.is_far, margin, sample_weight=judgements.weights)
    kept = np.unique(np.linspace(0, len(false) - 1, min(len(false), _MOST_ROC_POINTS)).round().astype(int))
    found, wrongly = (
        float(np.average(margin[chosen] >= 0, weights=judgements.weights[chosen]))
        for chosen in (judgements.is_far, ~judgements.is_far)
    )
    return {
        "auc": scored.auc,
        "false_far": false[kept].tolist(),
        "true_far": true[kept].tolist(),
        "at_threshold": {"false_far": wrongly, "true_far": found},
    }


def _accuracy_facts(judged: _Judged) -> dict[str, float]:
    low, high = judged.interval(judged.scored.is_right)
    return {"accuracy": judged.scored.accuracy, "accuracy_low": low, "accuracy_high": high}


def _auc(judged: _Judged, metric: Metric) -> float | None:
    return None if metric.rank == 0 else judged.scored.auc


def _is_chance(judged: _Judged, metric: Metric) -> bool:
    """Whether random labels would reach this area under the ROC curve with a probability of half a percent.

    For levels, whether that holds for each threshold; for comparisons, whether even odds would reach this accuracy.
    """
    used = judged.effective_number(judged.scored.is_right) / judged.judgements.effective_number
    if judged.judgements.kind is Kind.COMPARISONS:
        n = used * judged.judgements.effective_number
        return judged.scored.accuracy < 0.5 + 2.58 * 0.5 / float(np.sqrt(n))
    if isinstance(judged.scored, ScoredLevels):
        return all(_is_random(each, each.auc, used) for each in judged.scored.dichotomies)
    return _is_random(judged.scored, _auc(judged, metric), used)


def _is_random(scored: Scored, auc: float | None, used: float) -> bool:
    if auc is None:
        return False
    far = used * int(scored.judgements.is_far.sum())
    close = used * len(scored.judgements) - far
    return auc < 0.5 + 2.58 * float(np.sqrt((far + close + 1) / (12.0 * far * close)))


def _likelier(scored: Scores, labels: list[str]) -> str | None:
    """The most frequent label; of comparisons, none is."""
    if isinstance(scored, ScoredLevels):
        return labels[int(np.argmax(scored.shares))]
    if scored.judgements.kind is Kind.COMPARISONS:
        return None
    return "far" if scored.share_far >= 0.5 else "close"


def _confusion(scored: Scores, labels: list[str]) -> dict[str, Any]:
    if scored.judgements.kind is Kind.COMPARISONS:
        return {"reason": "A comparison turned round is the same comparison, so the accuracy says all there is to say."}
    return {"labels": labels, "counts": scored.confusion().tolist()}


def _calibration_reading(bins: list[questions.CalibrationBin], error: float) -> str:
    if len(bins) == 1:
        return (
            f"Every predicted probability of far is {percent(bins[0].predicted)}; the observed share is "
            f"{percent(bins[0].observed)}."
        )
    outside = [row for row in bins if not row.is_within_chance]
    words = f"Predicted probabilities and observed shares differ by {100.0 * error:.1f} percentage points on average"
    if not outside:
        return f"{words}; no bin differs by more than chance."
    worst = max(outside, key=lambda row: abs(row.predicted - row.observed))
    most = (
        f"most where {percent(worst.predicted)} is predicted and {percent(worst.observed)} observed"
        if abs(worst.predicted - worst.observed) >= _NOTABLE_MISCALIBRATION
        else "though nowhere by much"
    )
    return f"{words}; {len(outside)} of {len(bins)} bins differ by more than chance, {most}."


# ---------------------------------------------------------------------------------------------------------------------
# The learning curve: what fits to fewer pairs would have reached, and so what more pairs may bring.


_LEARNING_REPEATS = 3  # whose range is drawn
_TEST_SHARE = 0.2  # of the pairs, as in a fold of the cross-validation
_TRAINING_HALVINGS = 4  # of the training pairs, down to a sixteenth
_SURE_HALVINGS = 2  # that are tried with few pairs too
_FEWEST_TO_LEARN_FROM = 8  # pairs, below which a fit is a guess

# A fall of the loss by less than this share of it is none.
_NEGLIGIBLE_FALL = 0.01
# A fall by more than this share is not yet on the way on which each doubling gains half of the one before.
_FORESEEABLE = 0.2


def _learning_curve(fitted: Fit, judgements: Judgements, seed: int) -> dict[str, Any]:
    """Loss and accuracy on a fifth of the pairs of fits to 1/16, 1/8, ... and all of the others."""
    if fitted.is_metric_alone:
        return {"reason": "A learning curve needs a fit; this metric was truncated, or stored without its fit."}
    effort, noun = _Effort(fitted), _noun_of(fitted)
    pool = judgements.sample(effort.pairs_to_learn_from(len(judgements)), seed)
    sides = np.zeros(len(pool), dtype=np.intp) if pool.kind is Kind.COMPARISONS else pool.codes
    splits = [_train_and_test(sides, seed + repeat) for repeat in range(effort.repeats(len(pool), _LEARNING_REPEATS))]
    sizes = _learning_sizes(sides, [train for _, train in splits], effort.n_moves // 4) if _has_sides(pool) else []
    if len(sizes) < 2:
        return {"reason": f"There are too few {noun}s for a learning curve: {len(judgements):,}."}
    try:
        scores = np.array([[_learned(fitted, pool, train[:size], test) for size in sizes] for test, train in splits])
    except ValueError as error:  # a part of few or odd pairs can't be fitted
        return {
            "reason": f"There is no learning curve, because a fit to some of the {noun}s failed: " + words_of(error)
        }
    rows = [
        {"n_pairs": size, **_spread("loss", scores[:, index, 0]), **_spread("accuracy", scores[:, index, 1])}
        for index, size in enumerate(sizes)
    ]
    return {
        "reason": None,
        "rows": rows,
        "noun": noun,
        "term": fitted.kind.term,
        "n_repeats": len(splits),
        "n_pool": len(pool),
        "reading": _learning_reading(sizes, scores, noun, fitted.kind.term),
    }


def _train_and_test(sides: IndexArray, seed: int) -> tuple[IndexArray, IndexArray]:
    """Test and train rows; each first part of either has the sides in about their shares."""
    rng = np.random.default_rng(seed)
    place = np.empty(len(sides))
    for side in range(int(sides.max()), -1, -1):
        chosen = sides == side
        n = int(chosen.sum())
        place[chosen] = (rng.permutation(n) + 0.5) / max(n, 1)
    order = np.argsort(place, kind="stable")
    n_test = round(_TEST_SHARE * len(sides))
    tested = np.round(np.linspace(0, len(order) - 1, n_test)).astype(np.intp)
    return order[tested], np.delete(order, tested)


def _learning_sizes(sides: IndexArray, trains: list[IndexArray], fewest: int) -> list[int]:
    """Halves of the training pairs, as long as they hold all labels and are not hopelessly few; at least three."""
    most = min(len(train) for train in trains)
    halves = {most // 2**halving: halving for halving in range(_TRAINING_HALVINGS + 1)}
    sizes = sorted(size for size, halving in halves.items() if halving <= _SURE_HALVINGS or size >= fewest)
    n_sides = len(np.unique(sides))
    return [
        size
        for size in sizes
        if size >= _FEWEST_TO_LEARN_FROM and all(len(np.unique(sides[train[:size]])) == n_sides for train in trains)
    ]


def _learned(fitted: Fit, judgements: Judgements, train: IndexArray, test: IndexArray) -> tuple[float, float]:
    unseen = fitting.score(fitting.refit_part(fitted, judgements.take(np.sort(train))), judgements.take(np.sort(test)))
    return unseen.loss, unseen.accuracy


def _spread(name: str, values: FloatArray) -> dict[str, float]:
    return {name: float(values.mean()), f"{name}_low": float(values.min()), f"{name}_high": float(values.max())}


def _learning_reading(sizes: list[int], scores: FloatArray, noun: str, term: str = "label") -> str:
    """The excess loss of a fit falls about as 1/N, so each doubling gains half of what the one before did."""
    before, last = sizes[-2:]
    gain = float(np.mean(scores[:, -2, 0] - scores[:, -1, 0]))
    change = points(float(np.mean(scores[:, -1, 1] - scores[:, -2, 1])))
    said = f"From {before:,} to {count(last, noun)}, the loss on unseen {term}s"
    loss = float(np.mean(scores[:, -1, 0]))
    if gain < -_NEGLIGIBLE_FALL * loss:
        return f"{said} rises by {rounded(-gain)} (accuracy {change}): too few {noun}s to say what more would bring."
    if gain < _NEGLIGIBLE_FALL * loss:
        return f"{said} hardly changes (accuracy {change}): more {noun}s are likely to gain little."
    falls = f"{said} falls by {rounded(gain)} (accuracy {change})."
    steady = np.all(scores[:, -2, 0] > scores[:, -1, 0]) and np.all(np.diff(np.mean(scores[:, :, 0], axis=0)) < 0)
    if not steady or gain > _FORESEEABLE * loss:
        return f"{falls} More {noun}s should help; these are too few to say how much."
    return f"{falls} Twice as many {noun}s should lower it by about half as much again, {rounded(0.5 * gain)}."


# ---------------------------------------------------------------------------------------------------------------------
# How the settings of a fit were chosen, and the plain distance beside the learned one, on held-out judgements.


_FEWEST_ALPHAS = 2  # alphas that make a path
_MOST_LINES = 6  # that have a colour each

_PLAIN_NAMES = {
    "euclidean": "plain distance",
    "standardized": "plain distance, standardized columns",
    "metric": "the given metric",
}
_LINE_NAMES = {
    "zero": "towards zero",
    "euclidean": "towards the plain distance",
    "standardized": "towards the plain distance, standardized columns",
    "metric": "towards the given metric",
}


def _held_out(fit: Fit) -> dict[str, Any] | None:
    """The accuracy and the loss of the most frequent answer, of the plain distance and of the learned one."""
    found = fit.baseline
    if found is None:
        return None
    is_plain = fit.choice is not None and fit.choice.is_plain
    names = {
        "majority": "most frequent answer",
        "plain": _PLAIN_NAMES[found.plain],
        "learned": "the same, with calibrated scale" if is_plain else "learned metric",
    }
    return {
        "reading": _verdict(found, is_plain=is_plain),
        **{name: getattr(found, name) for name in ("is_better", "plain", "gain", "standard_error", "n_held_out")},
        "rows": [
            {"name": name, **{what: getattr(found, f"{which}_{what}") for what in ("accuracy", "loss")}}
            for which, name in names.items()
        ],
    }


def _verdict(found: fitting.Baseline, *, is_plain: bool) -> str:
    judged = f"on {found.n_held_out:,} held-out judgements"
    if is_plain:
        return f"The result is the plain distance itself: {judged}, no learned metric was clearly better."
    how, change = ("not clearly ", "lower by only") if found.gain > 0.0 else ("not ", "higher by")
    if found.is_better:
        how, change = "", "lower by"
    words = (
        f"The learned metric is {how}better than the plain distance: {judged}, its loss is {change} "
        f"{abs(found.gain):.3f} (standard error {found.standard_error:.3f})."
    )
    return words + (" Use the plain distance, or collect more judgements." if found.gain <= 0.0 else "")


def _choice(fit: Fit) -> dict[str, Any] | None:
    """What was chosen, all that was tried, and the path of alpha if there is one."""
    found = fit.choice
    if found is None:
        return None
    return {
        "sentence": found.sentence,
        **{name: value for name, value in vars(found).items() if name != "n_judgements"},
        "table": [each._asdict() for each in found.table],
        "path": _path(found),
    }


def _path(found: fitting.Choice) -> dict[str, Any] | None:
    """The candidates that differ in alpha, a line for each prior and flip rate, and the plain distance."""
    # Ranks and noises are tried at one alpha, after the path.
    first = [each for each in found.table if each[3:5] == found.table[0][3:5]]
    lines: dict[tuple[str, float], list[fitting.Tried]] = {}
    for each in first:
        if math.isfinite(each.alpha) and each.alpha > 0.0:
            lines.setdefault((each.prior, each.flip_rate), []).append(each)
    if len({each.alpha for line in lines.values() for each in line}) < _FEWEST_ALPHAS:
        return None
    plain = min((each for each in first if math.isinf(each.alpha)), key=lambda each: each.loss, default=None)
    return {
        "lines": [
            {
                "name": _LINE_NAMES[prior] + (f", {rate:.0%} flips" if rate > 0.0 else ""),
                "style": f"colour{place}" if place < _MOST_LINES else "rest",
                "rows": [each._asdict() for each in sorted(line, key=lambda each: each.alpha)],
            }
            for place, ((prior, rate), line) in enumerate(lines.items())
        ],
        "plain": None if plain is None else {"name": _PLAIN_NAMES[plain.prior], "loss": plain.loss},
        "chosen": None if found.is_plain else found.alpha,
    }


# ---------------------------------------------------------------------------------------------------------------------
# What the metric weighs: its spectrum, what each rank costs, its directions and its matrix.


_LOADING_COLUMNS = 8  # columns of loadings that a page has room for
_MOST_FEATURES = 30  # rows of loadings on one screen
_MOST_MATRIX_FEATURES = 10  # so that every entry has room for its number
_MOST_RAW_FEATURES = 500  # a larger matrix is not written out

# Ranks in the table: all up to here, and as many again in equal ratios up to the whole.
_FIRST_RANKS = 10

_MOST = 0.9  # "carry most of the distance"
_NEGLIGIBLE_ACCURACY = 0.005  # of the labels
_NEGLIGIBLE_LOSS = 0.1  # of the loss
_NAMED = 0.35  # a loading at least this large is named in the reading


def _spectrum(metric: Metric) -> dict[str, Any]:
    """The mean squared distance along each direction, which no unit changes, and the eigenvalues of M in its units."""
    found = metric.directions()
    cumulative = np.minimum(np.cumsum(found.shares), 1.0)
    rows = records({"value": found.values, "share": found.shares, "cumulative": cumulative})
    return {"rows": rows, "eigenvalues_in_units": metric.eigenvalues.tolist(), "reading": _spectrum_reading(rows)}


def _truncation(fit: Fit, judgements: Judgements, *, is_training: bool, seed: int) -> dict[str, Any]:
    """What keeping directions 1 to k costs on these pairs; refitted where they are those of the fit."""
    effort = _Effort(fit)
    used = judgements.sample(effort.pairs_to_truncate(len(judgements)), seed)
    refits = is_training and effort.can_refit_truncated(len(used))
    path = questions.truncation_of(fit, used, scale="data", refits=refits, is_rough=effort.has_many_features)
    names = ("k", "loss", "lost", "bound", "accuracy", "refit_loss", "refit_accuracy")
    rows = [
        {"cut_off": step.gamma, **{name: getattr(step, name) for name in names}}
        for step in (path[k] for k in _shown_ranks(len(path) - 1))
        if not refits or step.refit_loss is not None
    ]
    same = f"All of these {_noun_of(fit)}s have the same label."
    reading = _truncation_reading(path, refits) if _has_sides(used) else same
    if fit.settings.class_weight is not None:
        reading += " Labels count with the class weights of the fit."
    return {"rows": rows, "n_pairs": len(used), "refitted": refits, "reading": reading}


def _directions(metric: Metric, names: list[str], scales: FloatArray) -> dict[str, Any]:
    """The directions of M, each a score that weighs the columns, in their own standard deviations."""
    found = metric.directions()
    weights, shares = found.columns[:, :_LOADING_COLUMNS], found.shares
    unit = loadings(weights, scales)
    importance = unit**2 @ shares[: unit.shape[1]]
    shown = np.sort(np.argsort(-importance, kind="stable")[:_MOST_FEATURES])
    total = float(importance.sum()) or 1.0
    return {
        "features": [names[index] for index in shown],
        "columns": shown.tolist(),
        "n_features": len(names),
        "n_directions": metric.rank,
        "left_out_share": max(1.0 - float(importance[shown].sum()) / total, 0.0),
        "rows": [
            {"share": float(share), "loadings": unit[shown, index].tolist(), "weights": weights[shown, index].tolist()}
            for index, share in enumerate(shares[: unit.shape[1]])
        ],
        "reading": _direction_reading(names, unit, shares),
    }


def _matrix(metric: Metric, names: list[str], scales: FloatArray) -> dict[str, Any]:
    """M with each column measured in its own root mean square difference, largest diagonal first; and M itself."""
    whole = metric.matrix
    scaled = whole * np.outer(scales, scales)
    diagonal = np.diag(scaled)
    shown = np.argsort(-diagonal, kind="stable")[:_MOST_MATRIX_FEATURES]
    return {
        "features": [names[index] for index in shown],
        "columns": shown.tolist(),
        "n_features": len(names),
        "largest": float(np.max(np.abs(scaled[np.ix_(shown, shown)]), initial=0.0)) or 1.0,
        "scaled": scaled[np.ix_(shown, shown)].tolist(),
        "scales": scales.tolist(),
        "all_features": names,
        "raw": whole.tolist() if len(names) <= _MOST_RAW_FEATURES else None,
        "reading": _matrix_reading(names, scaled, metric),
    }


def _shown_ranks(rank: int) -> list[int]:
    if rank <= 2 * _FIRST_RANKS:
        return list(range(rank + 1))
    later = np.geomspace(_FIRST_RANKS, rank, _FIRST_RANKS + 1).round().astype(int).tolist()
    return sorted({*range(_FIRST_RANKS), *later})


def _spectrum_reading(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ZERO
    if len(rows) == 1:
        return "One direction explains all of the distance."
    enough = next(k for k, row in enumerate(rows, start=1) if row["cumulative"] >= _MOST)
    if enough == len(rows):
        all_of_them = "Both" if enough == 2 else f"All {enough}"
        return f"{all_of_them} directions are needed for {_MOST:.0%} of the mean squared distance."
    joined = "and" if enough == 2 else "to"
    first = "Direction 1 explains" if enough == 1 else f"Directions 1 {joined} {enough} of {len(rows)} explain"
    return f"{first} {percent(rows[enough - 1]['cumulative'])} of the mean squared distance."


def _truncation_reading(path: questions.TruncationPath, refitted: bool) -> str:
    rank, whole = len(path) - 1, path[-1].accuracy
    if rank == 0:
        return ZERO
    kept = [
        (step.k, step.refit_accuracy, step.refit_loss) if refitted else (step.k, step.accuracy, step.loss)
        for step in list(path)[1:]
    ]
    most = (1.0 + _NEGLIGIBLE_LOSS) * path[-1].loss
    least, accuracy = next(
        (k, accuracy)
        for k, accuracy, loss in kept
        if accuracy is not None
        and loss is not None
        and (k == rank or (accuracy >= whole - _NEGLIGIBLE_ACCURACY and loss <= most))
    )
    if least == rank:
        return (
            f"{'Both' if rank == 2 else f'All {rank:,}'} directions matter: with one fewer, accuracy or loss is worse."
            if rank > 1
            else "The metric has one direction only, so it can't be truncated."
        )
    how = " and refitted" if refitted else ""
    change = points(accuracy - whole)
    return (
        f"Truncated to rank {least}{how}, the metric has an accuracy of {percent(accuracy)} "
        f"({'the same as' if change.startswith('±') else f'{change} compared with'} rank {rank})."
    )


def _direction_reading(names: list[str], unit: FloatArray, shares: FloatArray) -> str:
    if unit.shape[1] == 0:
        return ZERO
    first = unit[:, 0]
    order = np.argsort(-np.abs(first), kind="stable")
    named = [index for index in order[:3] if abs(first[index]) >= _NAMED] or order[:1].tolist()
    words = with_and([f"{short(names[index])} ({signed(float(first[index]))})" for index in named])
    share = percent(float(shares[0]))
    largest = "largest loading is" if len(named) == 1 else "largest loadings are"
    return f"Direction 1 explains {share} of the mean squared distance; its {largest} {words}."


def _matrix_reading(names: list[str], scaled: FloatArray, metric: Metric) -> str:
    if metric.rank == 0:
        return ZERO
    first = int(np.argmax(np.diag(scaled)))
    most = float(scaled[first, first])
    words = f"A typical difference in {short(names[first])} alone adds {rounded(most)} to the squared distance"
    first_threshold = metric.thresholds[0] if metric.thresholds else 0.0
    if first_threshold > 0:
        which = "threshold" if len(metric.thresholds) == 1 else "lowest threshold"
        words += f", {rounded(most / first_threshold)} times the {which}"
    off = np.triu(scaled, 1)
    if not np.any(off):
        return f"{words}."
    i, j = (int(index) for index in np.unravel_index(np.argmax(np.abs(off)), off.shape))
    how = "adds to" if off[i, j] > 0 else "takes from"
    return (
        f"{words}. The strongest interaction is that of {short(names[i])} and {short(names[j])}: a difference in both "
        f"with the same sign {how} the distance."
    )


# ---------------------------------------------------------------------------------------------------------------------
# What speaks against a fit: labels that look wrong, noise of another kind, and what the data leave open.


_MOST_SUSPICIOUS = 25  # rows of the table; `label-errors` lists all
_LEAST_SUSPICIOUS = 0.1  # a label less probably wrong than this is not listed
_NOTABLE_MARGIN = 0.25  # of a margin
ANOTHER_LEVEL = "given another level than the one that their distance lies in"
OFF = "more than one level from the most probable one"
_CHANCE = (
    "On these labels, the metric is not clearly better than chance. Check the labels, which of them means far, and "
    "whether the columns are informative, or label more pairs."
)


def _caveat(fit: Fit) -> str:
    """What to bear in mind about its probabilities, if anything."""
    if fit.is_separable:
        return " The labels of the fit are separable, so the scale of these probabilities is arbitrary."
    if fit.is_quasi_separable:
        return " One direction explains some labels without exception, so probabilities along it are arbitrary."
    if fit.settings.class_weight is not None:
        return " The class weights of the fit shift these probabilities on purpose."
    if fit.alpha > 0 and not fit.settings.chooses_alpha:
        return " The penalty " + setting("alpha") + " pulls the probabilities towards one half."
    return ""


def _shared_points(ids: NDArray[np.object_] | None, groups: Any, judgements: Judgements) -> NDArray[Any] | None:
    """Which pairs depend on each other: as was said, or by the ids of their points, or as the data show."""
    if groups is not None:
        given = resolve_groups(groups, judgements.data)
        return given if share_points(given) else None
    if ids is not None and ids.shape[1] > 1:
        names = ids.astype(str)
        if share_points(names):
            return names
    return find_points(judgements.data)


def _read_ids(ids: Any, n: int) -> NDArray[np.object_] | None:
    """Return a column of text for each id of a pair or comparison: one, or one for each of its points."""
    if ids is None:
        return None
    found = np.asarray(ids, dtype=object)
    if found.shape != (n,) and not (found.ndim == 2 and len(found) == n and 1 <= found.shape[1] <= 4):
        raise ValueError(
            f"ids must hold one id per pair or the ids of its two points, in shape ({n},) or ({n}, 2), or those of the "
            f"three or four points of each comparison; got shape {found.shape}."
        )
    found = found.reshape(n, -1)
    return found if set(map(type, found.ravel())) == {str} else np.vectorize(str, otypes=[object])(found)


def _wrong_labels(
    judged: _Judged, fit: Fit, ids: NDArray[np.object_] | None, *, is_chance: bool
) -> tuple[dict[str, Any], IndexArray]:
    """The share of wrong labels with its interval and the most suspicious pairs; and the row numbers of all suspects.

    Where the model can be trusted with how probably each label is wrong, that is shown; elsewhere
    the labels that contradict the metric.
    """
    errors, doubt, term, reason = judged.errors, judged.doubt, fit.kind.term, None
    if fit.metric.rank == 0:
        reason = f"The metric is zero, so it can't tell wrong {term}s from right ones."
    elif is_chance:
        reason = f"The metric is not clearly better than chance, so it can't tell wrong {term}s from right ones."
    elif fit.settings.class_weight is not None:
        reason = "Class weights move the threshold on purpose, so a label on its other side need not be wrong."
    if reason is not None:
        return {"reason": reason, "doubt": None, "kind": None, "rows": []}, np.array([], dtype=np.intp)
    if fit.is_separable or fit.alpha > 0:  # the scale of the margins is not that of the noise
        errors = None
    if errors is not None and errors.share is None:
        doubt, errors = errors.reason, None
    if errors is None:
        part, doubtful, listed = _contradictions(judged, doubt, term)
    else:
        part, doubtful, listed = _probabilities(errors, judged, term)
    found = {
        "reason": None,
        "doubt": doubt,
        **part,
        "n_doubtful": len(doubtful),
        "id_columns": 0 if ids is None else ids.shape[1],
        "rows": [_suspicious_row(judged, index, ids, errors) for index in listed.tolist()],
        "on_other_scale": errors is not None and _is_on_other_scale(errors, judged, fit),
    }
    # Contradictions are not proven wrong, so the map shows the listed ones only.
    return found, judged.judgements.numbers[listed if errors is None else doubtful]


def _noise_check(fit: Fit, judgements: Judgements, seed: int, groups: NDArray[Any] | None = None) -> dict[str, Any]:
    """Labels observed against labels expected, by margin; `groups` of all pairs that were given."""
    if not _has_sides(judgements):
        return {"reason": f"All of these {_noun_of(fit)}s have the same label."}
    used = judgements.sample(_Effort(fit).pairs_to_check(len(judgements)), seed)
    ids = find_points(used.data) if groups is None else groups[used.numbers]
    try:
        check = questions.check_noise_model(fit, used, groups=questions.units_with_comparisons(ids, used))
    except ValueError as error:  # says why it can't be checked
        return {"reason": sentence(words_of(error))}
    outside = sum(abs(row.z) > 1.96 for row in check.bins)
    bins = f"{outside} of {count(len(check.bins), 'bin')} {'lies' if outside == 1 else 'lie'} outside the 95% band."
    sampled = f" Checked on a random sample of {len(used):,} {_noun_of(fit)}s." if len(used) < len(judgements) else ""
    return {
        "reason": None,
        **{name: getattr(check, name) for name in ("p_value", "statistic", "dof", "tail_z", "question", "advice")},
        "n_pairs": len(used),
        "bins": [vars(row) for row in check.bins],
        "reading": check.advice + f" {bins}{sampled}",
    }


def _problems(fit: Fit, noise: dict[str, Any], *, is_chance: bool, groups: NDArray[Any] | None = None) -> list[str]:
    """What the fit, its data and its noise leave open, most pressing first; `groups` of the pairs of the fit."""
    found = [*([_CHANCE] if is_chance else []), *fit.problems]
    misfit: tuple[questions.Finding, ...] = ()
    if fit.judgements is None and not is_chance and noise["reason"] is None and noise["p_value"] < questions.DOUBT:
        found.append(noise["advice"])
    if fit.judgements is not None:
        with contextlib.suppress(ValueError):  # the labels can't tell
            misfit = questions.find_misfit(fit, questions.units_with_comparisons(groups, fit.judgements))
    return [sentence(problem) for problem in questions.Diagnosis.of(fit, found, misfit).problems]


def _probabilities(errors: LabelErrors, judged: _Judged, term: str) -> tuple[dict[str, Any], IndexArray, IndexArray]:
    """The share of wrong labels, which are more probably wrong than right, and those to list in their order."""
    noun, suspects = judged.noun, np.flatnonzero(errors.probability > 0.5)
    are = "is" if len(suspects) == 1 else "are"
    wrong, likely = f"they contradict the side of the threshold on which their {noun}s lie", "wrong than right"
    if noun == "comparison":
        wrong = "they contradict the distances"
    if errors.meaning == "flipped":
        wrong, likely = "at least that many were flipped, whatever the distance", "flipped than not"
    share, low, high = errors.share or 0.0, errors.share_low or 0.0, errors.share_high or 0.0
    interval = f"(95% interval {percent(low)} to {percent(high)})"
    found = f"About {percent(share)} of the {term}s are wrong {interval}: {wrong}"
    if isinstance(judged.scored, ScoredLevels) and errors.meaning != "flipped":
        found = f"About {percent(share)} of the {noun}s were {ANOTHER_LEVEL} {interval}"
    reading = f"{found}. {count(len(suspects), term)} {are} more likely {likely}."
    part = {"kind": "probability", "share": share, "share_low": low, "share_high": high, "reading": reading}
    listed = errors.order[:_MOST_SUSPICIOUS]
    return part, suspects, listed[errors.probability[listed] >= _LEAST_SUSPICIOUS]


def _is_on_other_scale(errors: LabelErrors, judged: _Judged, fit: Fit) -> bool:
    """Whether the fit that finds wrong labels, which allows for flips, has notably other margins than the fit."""
    scored = fitting.score(fit, judged.judgements)
    if isinstance(scored, ScoredLevels):
        return False
    own = scored.margin
    return bool(np.median(np.abs(errors.margin - own)) > _NOTABLE_MARGIN * np.median(np.abs(own)))


def _contradictions(judged: _Judged, doubt: str | None, term: str) -> tuple[dict[str, Any], IndexArray, IndexArray]:
    """The share of labels that contradict the metric, which do, and those to list in their order.

    A level does if it is not even next to the most probable one or, of two levels, if it is the other one.
    """
    scored, judgements = judged.scored, judged.judgements
    is_graded = isinstance(scored, ScoredLevels)
    if isinstance(scored, ScoredLevels):
        is_off = np.abs(scored.predicted - judgements.codes) > (1 if judgements.n_levels > 2 else 0)
        order, off = np.argsort(-scored.losses, kind="stable"), f"labels are {OFF}"
    else:
        judge = "a fit that has not seen them" if judged.source == "out-of-fold" else "the metric"
        order, off = np.argsort(judgements.signs * scored.margin, kind="stable"), f"{term}s contradict {judge}"
        is_off = ~scored.is_right
    share, (low, high) = judgements.mean(is_off), judged.interval(is_off)
    reading = f"{percent(share)} of the {off} (95% interval {percent(low)} to {percent(high)})."
    if doubt is not None:
        reading += f" How many {'labels' if is_graded else 'of them'} are wrong can't be told: {doubt}."
    if is_graded:
        reading += " The least probable ones come first."
    elif doubt is not None:
        reading += " The strongest contradictions come first."
    elif share > 0:
        reading += " They are wrong if the metric is right; the strongest contradictions come first."
    part = {"kind": "contradiction", "share": share, "share_low": low, "share_high": high, "reading": reading}
    found = order[is_off[order]]
    return {**part, **({"is_off": True} if is_graded else {})}, found, found[:_MOST_SUSPICIOUS]


def _suspicious_row(
    judged: _Judged, index: int, ids: NDArray[np.object_] | None, errors: LabelErrors | None
) -> dict[str, Any]:
    judgements, scored, number = judged.judgements, judged.scored, int(judged.judgements.numbers[index])
    known = {
        "row": number,
        "ids": [] if ids is None else ids[number].tolist(),
        "label": str(judgements.labels[index]),
        "probability_wrong": None if errors is None else float(errors.probability[index]),
        "error": None if errors is None else float(errors.error[index]),
    }
    if isinstance(scored, ScoredLevels):
        return {
            **known,
            "predicted": str(judgements.sides.classes[scored.predicted[index]]),
            "probability_of_label": float(np.exp(-scored.losses[index])),
            "squared_distance": float(scored.squared[index]),
        }
    is_far, far = bool(judgements.is_far[index]), float(scored.probability_far[index])
    margin = float((scored if errors is None else errors).margin[index])
    return {**known, "is_far": is_far, "probability_of_label": far if is_far else 1.0 - far, "margin": margin}


# ---------------------------------------------------------------------------------------------------------------------
# Confidence intervals, or why there are none.


_MOST_INTERVALS = 20  # as many as the chart has bars
_MOST_ENTRY_FEATURES = 6  # columns, which have 21 entries

_NO_PAIRS = (
    "Intervals need the pairs of the fit, which a model file does not hold and which were not given. "
    "Give those pairs and labels."
)
_NO_FIT = (
    "Intervals are for the optimum of a fit; this metric was truncated, or stored without its fit. Fit with the rank "
    "that you want."
)
_TOO_MUCH_WORK = (
    "Intervals for this many pairs and columns take long, so they are left out here: compute them with "
    "closefar.confidence."
)


def _intervals(
    fit: Fit, training: Judgements | None, names: list[str], *, seed: int, groups: NDArray[Any] | None = None
) -> dict[str, Any]:
    """Intervals for the threshold, the flip rate, each direction and, of few columns, each entry of M."""
    if fit.is_metric_alone:
        return {"reason": _NO_FIT}
    if training is None:
        return {"reason": _NO_PAIRS}
    effort = _Effort(fit)
    if not effort.can_sandwich(len(training)):
        return {"reason": _TOO_MUCH_WORK}
    method = "auto" if effort.can_refit(len(training), questions.JACKKNIFE_PARTS) else "sandwich"
    try:
        units = questions.units_with_comparisons(groups, training)
        intervals = questions.confidence(fit, training, groups=units, random_state=seed, method=method)
    except ValueError as error:  # says why there are none
        return {"reason": sentence(words_of(error))}
    if not intervals.valid:
        said = [] if intervals.method == "none" else ["No interval would be valid."]
        return {"reason": joined([*said, *intervals.flaws])}
    return _interval_facts(intervals, names)


def _interval_facts(intervals: questions.Confidence, names: list[str]) -> dict[str, Any]:
    thresholds, directions = _interval_rows(intervals.thresholds), _interval_rows(intervals.directions)
    flips = [] if intervals.flip_rate is None else _interval_rows(intervals.flip_rate)
    is_relative = not thresholds  # the scale of M is that of the noise of the comparisons
    matrix = intervals.relative_matrix if is_relative else intervals.matrix
    entries = _interval_rows(matrix) if len(names) <= _MOST_ENTRY_FEATURES else []
    shown = [index for index in range(len(entries)) if index // len(names) <= index % len(names)]
    return {
        "reason": None,
        "method": intervals.method,
        "valid": intervals.valid,
        "level": intervals.level,
        "statement": intervals.statement,
        "threshold": thresholds[0] if len(thresholds) == 1 else None,
        **({"thresholds": thresholds} if len(thresholds) > 1 else {}),
        "flip_rate": flips[0] if len(flips) == 1 else None,
        **({"flip_rates": flips} if len(flips) > 1 else {}),
        "directions": directions[:_MOST_INTERVALS],
        "n_directions": len(directions),
        "entries": [
            {"left": names[index // len(names)], "right": names[index % len(names)], **entries[index]}
            for index in shown
        ],
        **({"entries_of": "M / tr M"} if is_relative else {}),
        "reading": _interval_reading(thresholds, directions, flips, intervals.level),
    }


def _interval_rows(interval: questions.Interval) -> list[dict[str, float]]:
    names = ("estimate", "standard_error", "low", "high")
    return records({name: np.ravel(getattr(interval, name)) for name in names})


def _interval_reading(
    thresholds: list[dict[str, float]], directions: list[dict[str, float]], flips: list[dict[str, float]], level: float
) -> str:
    clear = sum(row["low"] > 0 for row in directions)
    said = []
    if thresholds:
        name = "threshold lies" if len(thresholds) == 1 else "thresholds lie"
        ends = [f"{rounded(row['low'])} and {rounded(row['high'])}" for row in thresholds]
        said.append(f"the {name} between {with_and(ends)}")
    if len(flips) == 1:
        said.append(f"{percent(flips[0]['low'])} to {percent(flips[0]['high'])} of the labels are flipped")
    for row, words in zip(flips, ("close pairs are called far", "far pairs are called close"), strict=False):
        if len(flips) == 2:
            said.append(f"{percent(row['low'])} to {percent(row['high'])} of {words}")
    along = f"along {clear} of {len(directions)} directions the mean squared distance is clearly above zero."
    return f"With {level:.0%} confidence {', '.join(said)}; {along}" if said else f"With {level:.0%} confidence {along}"


# ---------------------------------------------------------------------------------------------------------------------
# What a report shows of the comparisons of a mixed fit, and of annotators.


_ANNOTATOR_ROWS = 60  # annotators in the table
_ANNOTATORS_NAMED = 8  # annotators in a sentence


def _comparisons(fit: Fit) -> dict[str, Any] | None:
    """The comparisons that were fitted together with pairs; None without any."""
    statistics = fit.statistics
    if not statistics.n_comparisons:
        return None
    noise = fit.comparison_noise
    return {
        "n": statistics.n_comparisons,
        "accuracy": statistics.comparison_accuracy,
        "noise": None if noise is None else noise.value,
        "noise_interval": None if noise is None or noise.interval is None else list(noise.interval),
        "reading": (
            f"{questions.describe_comparisons(fit)} They are part of each training fold, so that the figures above are "
            "for new pairs, and this agreement is that of training."
        ),
    }


def _annotators(fit: Fit) -> dict[str, Any] | None:
    """The annotators, those who stand out first; None without any."""
    table = fit.annotators
    if table is None:
        return None
    low, high = table.strictness_interval().T
    columns = {
        "annotator": list(map(str, table.names)),
        "n": table.judgements,
        "strictness": table.strictness,
        "low": low,
        "high": high,
        "flip_rate": [None] * len(table) if table.flip_rates is None else table.flip_rates,
        "agreement": table.agreement,
        "kappa": table.kappa,
        "verdict": list(map(str, table.verdicts)),
        "is_doubtful": [verdict.is_doubtful for verdict in table.verdicts],
    }
    order = sorted(records(columns), key=lambda row: (not row["is_doubtful"], -abs(row["strictness"])))
    rows = order[:_ANNOTATOR_ROWS]
    return {
        "rows": rows,
        "n": len(table),
        "n_doubtful": sum(verdict.is_doubtful for verdict in table.verdicts),
        "n_left_out": len(order) - len(rows),
        "width": table.width,
        "reach": float(np.max(np.abs([low, high]), initial=0.0)) or 1.0,
        "has_flips": table.flip_rates is not None,
        "has_kappa": bool(np.any(np.isfinite(table.kappa))),
        "reading": _annotator_reading(table),
    }


def _annotator_reading(table: fitting.AnnotatorTable) -> str:
    said = []
    for verdict in fitting.AnnotatorVerdict:
        found = [short(str(name)) for name in table.named(verdict)]
        if verdict.is_doubtful and found:
            more = [f"{len(found) - _ANNOTATORS_NAMED:,} others"] if len(found) > _ANNOTATORS_NAMED else []
            said.append(f"{with_and([*found[:_ANNOTATORS_NAMED], *more])}: {verdict}.")
    spread = f"The strictness of {count(len(table), 'annotator')} has a standard deviation of {rounded(table.width)}."
    return f"{spread} {' '.join(said) or 'Nobody stands out for answers that do not depend on the distance.'}"


# ---------------------------------------------------------------------------------------------------------------------
# The answer in a sentence, the key figures, and the certificate in words.


_ALONE = ("truncated", "unknown")  # outcomes of a metric without its fit
_ACCURACY = {"out-of-fold": "Cross-validated accuracy", "given": "Accuracy", "in-sample": "Training accuracy"}


def _answer(facts: dict[str, Any]) -> str:
    """Give the accuracy beside its baseline, and the share of wrong labels."""
    quality, pairs = facts["quality"], facts["pairs"]
    baseline = f"baseline {percent(quality['baseline'])}, {_baseline(quality)}"
    if facts["fit"]["rank"] == 0:
        sides = "close from far" if pairs["kind"] == Kind.CLOSE_FAR else "the answers"
        return f"No direction separates {sides}: the metric is zero, and its accuracy is the {baseline}."
    shown, noun, unit = count(pairs["n_pairs"], pairs["noun"]), pairs["noun"], pairs["unseen"]
    if quality["known"] is None:
        where = f"on {shown}: {percent(quality['accuracy'])}"
    else:
        known = f"{percent(quality['known']['accuracy'])} for new {noun}s of known {unit}s"
        where = f"for new {unit}s: {percent(quality['accuracy'])} on {shown}; {known}"
    return f"{_ACCURACY[pairs['source']]} {where} ({baseline}). {sentence(_wrong(facts))}."


def _key_figures(facts: dict[str, Any]) -> list[dict[str, str]]:
    """Return name, value and a note for each number to see first."""
    quality, fit, pairs, wrong = facts["quality"], facts["fit"], facts["pairs"], facts["wrong_labels"]
    known, unseen, noun, kind = quality["known"], pairs["unseen"], pairs["noun"], pairs["kind"]
    name = "Accuracy" if known is None else f"Accuracy, new {unseen}s"
    found = [(name, percent(quality["accuracy"]), _interval(quality, "accuracy"))]
    if known is not None:
        found.append((f"Accuracy, known {unseen}s", percent(known["accuracy"]), _interval(known, "accuracy")))
    name = "Majority baseline" if quality["likelier"] else "Baseline"
    found.append((name, percent(quality["baseline"]), _baseline(quality)))
    if kind != Kind.COMPARISONS and quality["auc"] is None:
        found.append(("ROC AUC", "none", "nothing to separate"))
    elif kind != Kind.COMPARISONS:
        found.append(("ROC AUC", f"{quality['auc']:.3f}", "0.5 is chance, 1 is perfect"))
    name = "Rated as another level" if kind == Kind.LEVELS else f"Wrong {pairs['term']}s"
    if wrong["reason"] is not None:
        found.append((name, "unknown", "can't be estimated here"))
    else:
        contradicting = "Labels far off" if wrong.get("is_off") else f"Contradicting {pairs['term']}s"
        name = name if wrong["kind"] == "probability" else contradicting
        found.append((name, percent(wrong["share"]), _interval(wrong, "share")))
    thresholds, n_levels = fit["thresholds"], len(pairs["labels"])
    if len(thresholds) == 1:
        found.append(("Threshold τ", f"{thresholds[0]:.4g}", "of the squared distance"))
    elif thresholds:
        found.append(("Thresholds", ", ".join(map(digits, thresholds)), f"between {len(thresholds) + 1} levels"))
    found.append(("Rank of M", f"{fit['rank']} of {fit['n_features']}", "directions used"))
    name = f"{'Evaluated' if facts['certificate']['outcome'] in _ALONE else 'Training'} {noun}s"
    counted = {Kind.LEVELS: count(n_levels, "level"), Kind.COMPARISONS: "which leg is shorter"}
    note = counted.get(kind) or f"{percent(fit['share_far'])} far"
    found.append((name, f"{fit['n_pairs']:,}", note + (", weighted" if fit["parameters"]["class_weight"] else "")))
    if facts["comparisons"] is not None:
        note = f"agreement {percent(facts['comparisons']['accuracy'])} in training"
        found.append(("Training comparisons", f"{facts['comparisons']['n']:,}", note))
    if facts["annotators"] is not None:
        doubtful = facts["annotators"]["n_doubtful"]
        note = f"{doubtful} to look at" if doubtful else "none stands out"
        found.append(("Annotators", f"{facts['annotators']['n']:,}", note))
    return [{"name": name, "value": value, "note": note} for name, value, note in found]


def _baseline(quality: dict[str, Any]) -> str:
    return f"always predicting {short(quality['likelier'])}" if quality["likelier"] else "by guessing"


def _certificate(fit: Fit) -> dict[str, Any]:
    """The certificate, its outcome in a word, what to do, and what is proven."""
    certificate, settings, term = fit.certificate, fit.settings, fit.kind.term
    others = "metric of any rank"
    if settings.fit_origin and fit.alpha == 0:
        others = "metric up to a thousand times the size of this one"
    words = (
        f"The fit reached an objective of {certificate.objective:.8g}. It is proven that no {others} has an objective "
        f"below {certificate.lower_bound:.8g}, so at most {certificate.gap:.1e} can be gained."
    )
    if fit.is_metric_alone:
        words = f"On the {count(fit.statistics.n_pairs, term)} given, its loss is {certificate.loss:.6g} per {term}."
    elif np.any(fit.flip_rate):
        words += (
            f" This holds for the last step, in which each {term}'s probability of being flipped is held fixed; the "
            "likelihood with flips may have other maxima."
        )
    said = {"outcome": str(certificate.outcome), "advice": sentence(certificate.advice), "words": words}
    return {**asdict(certificate), "status": certificate.status, **said}


def _interval(part: dict[str, Any], name: str) -> str:
    return f"95% interval {percent(part[f'{name}_low'])} to {percent(part[f'{name}_high'])}"


def _wrong(facts: dict[str, Any]) -> str:
    wrong, term, is_graded = facts["wrong_labels"], facts["pairs"]["term"], facts["pairs"]["kind"] == Kind.LEVELS
    unknown = f"how many {term}s are wrong can't be estimated"
    if facts["quality"]["is_chance"]:
        return "this is not clearly better than chance"
    if facts["certificate"]["outcome"] in _ALONE:
        return f"{unknown} without a fit"
    if wrong["reason"] is not None or wrong["doubt"] is not None:
        return f"{unknown} from this fit"
    if wrong["kind"] == "probability":
        found = f"pairs were {ANOTHER_LEVEL}" if is_graded else f"{term}s are wrong"
        return f"about {percent(wrong['share'])} of the {found}"
    if facts["certificate"]["outcome"] == "separable":
        return f"the metric gets every training {term} right, so how many of them are wrong can't be estimated"
    if is_graded:
        return f"{percent(wrong['share'])} of the labels are {OFF}"
    if facts["fit"]["alpha"] > 0:  # a penalty makes margins, and so the share of labels that noise explains, uncertain
        return f"{unknown} from this fit"
    return f"by the fit's own estimate, {percent(facts['fit']['wrong_share'])} of its training {term}s are wrong"


# ---------------------------------------------------------------------------------------------------------------------
# What to do with the model next, as code that runs as it stands.


_MODEL = "model.closefar"  # where no file is known

_NEIGHBOURS = """\
from sklearn.neighbors import NearestNeighbors

mapped = points @ metric.components.T
neighbours = NearestNeighbors(n_neighbors=2).fit(mapped)
distances, indices = neighbours.kneighbors(mapped)  # the first neighbour of each point is itself\
"""


def _next_steps(metric: Metric, provenance: Provenance) -> list[dict[str, str]]:
    """Return a title, a language and code for each; code in Python builds on what comes before it."""
    code = f"{_code_for_metric(metric, provenance)}\n\n{_code_for_points(metric)}"
    steps = [
        {"title": "In Python", "language": "python", "code": code},
        {"title": "Nearest neighbours", "language": "python", "code": _NEIGHBOURS},
    ]
    if not provenance.is_command_line:
        return steps
    return [{"title": "On the command line", "language": "shell", "code": _commands(provenance)}, *steps]


def _code_for_metric(metric: Metric, provenance: Provenance) -> str:
    """Get the metric, and points with the columns that it takes."""
    model = provenance.model or _MODEL
    if not provenance.is_command_line:
        save = "" if provenance.model else f'learner.metric_.save("{_MODEL}")  # the learner of this report\n'
        return (
            f"import numpy as np\nimport closefar as cf\n\n{save}metric = cf.load({_quoted(model)})\n"
            f"points = np.zeros((2, {len(metric.factor)}))  # put yours here, with the columns of metric.column_names"
        )
    load = f"model = Model.load({_quoted(model)})\nmetric = model.metric"
    encoded = "# Categories are encoded as in the fit.\n" if provenance.categories else ""
    if provenance.points is None:
        source, read, points = (f"pairs={_quoted(provenance.pairs)}", "read_pairs", "table.data[:, 0]")
        options = "encoding=model.encoding, labelled=False"
    else:
        source, read, points = f"points={_quoted(provenance.points)}", "read_points", "table.data"
        options = "encoding=model.encoding"
    return (
        f"from closefar.learners import Model\nfrom closefar.tables import Source, {read}\n\n{load}\n"
        f"{encoded}table = {read}(model.source(Source({source})), {options})\npoints = {points}"
    )


def _code_for_points(metric: Metric) -> str:
    """Apply the metric to points, with comments below each other."""
    notes = {"metric.distance(points[0], points[1])": "also of each row of two tables"}
    if metric.origin is not None:
        notes = {"metric.squared_distance(points)": "of each point from the learned origin"}
        notes["metric.probability_far(points)"] = "that such a point is labelled far"
    elif len(metric.thresholds) == 1:
        notes["metric.probability_far(points[0] - points[1])"] = "that such a pair is labelled far"
    elif metric.thresholds:
        notes["metric.probabilities(points[0] - points[1])"] = "of each level, closest first"
    else:
        notes["metric.distance(points[0], points[1])"] += "; it has no threshold"
    notes["points @ metric.components.T"] = "mapped: Euclidean distance is now the learned one"
    width = max(map(len, notes))
    return "\n".join(f"{code:{width}}  # {note}" for code, note in notes.items())


def _quoted(text: str | None) -> str:
    """In Python, with double quotes unless it holds some."""
    found = repr(text)
    return f'"{found[1:-1]}"' if found.startswith("'") and '"' not in found else found


def _commands(provenance: Provenance) -> str:
    model = f"--model {shlex.quote(provenance.model or _MODEL)}"
    names = ("points", "pairs", "comparisons", "judgements")
    given = {name: getattr(provenance, name) for name in names if getattr(provenance, name) is not None}
    options = {name: f"--{name} {shlex.quote(file)}" for name, file in given.items()}
    data = " ".join(options.values())
    only = ("points", "pairs" if "pairs" in options else "comparisons")  # of which predictions are
    judged = " ".join(option for name, option in options.items() if name in only)
    commands = [f"closefar predict {model} {judged} --out predicted.csv"]
    if provenance.points is not None:
        points = shlex.quote(provenance.points)
        commands.append(f"closefar transform {model} --points {points} --out mapped.csv")
    return "\n".join([*commands, f"closefar evaluate {model} {data}"])
