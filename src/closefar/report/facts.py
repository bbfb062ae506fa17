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
from closefar.fitting import Fit, Fitted
from closefar.judgements import (
    Judgements,
    Kind,
    SharedPointsWarning,
    Split,
    most_folds,
    resolve_groups,
    share_points,
    split_judgements,
    variance_of_sum,
)
from closefar.model import ZERO, Metric, Scores, in_data_scale, loadings
from closefar.packed import packed_size
from closefar.plain import records, to_jsonable
from closefar.plot_style import range_of_distances
from closefar.questions import LabelErrors
from closefar.report.maps import map_pairs, map_points
from closefar.report.wording import count, digits, percent, points, sentence, short, signed, with_and

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
    def files(self) -> dict[str, str]:
        """The data files, by what they hold."""
        names = ("points", "pairs", "comparisons", "judgements")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def is_command_line(self) -> bool:
        return bool(self.files)


N_PARTS = 5  # that `watch` is called for

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
    texts, shown = _read_ids(ids, len(given)), given.counted()
    # The pairs to show, and those of the fit where they are known: the same object where they are the same pairs.
    is_of_fit = X is None or _is_training(fit, shown)
    training = shown if is_of_fit else None if fit.judgements is None else fit.training().counted()
    # Most matrices here are small: more threads then wait for each other, and ten times as long where others run.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", SharedPointsWarning)  # the report says it
        dependent = _shared_points(texts, groups, given)
        of_training = dependent if is_of_fit else None
        if fit.metric.data_factor is None and fit.metric.rank > 0:
            metric = in_data_scale(fit.metric, shown.data, shown.weights)
            fit = replace(fit, metric=metric, problems=(*fit.problems, _ORDERED_HERE))
        tell("cross-validation")
        judged = _judge(fit, shown, has_seen=is_of_fit, seed=seed, groups=dependent)
        quality = _quality(judged)
        is_chance = quality["is_chance"]
        wrong, suspects = _wrong_labels(judged.known or judged, texts, is_chance=is_chance)
        facts: dict[str, Any] = {
            "version": version("closefar"),
            "pairs": _pairs(judged, shown),
            "quality": quality,
            "distances": _distances(judged),
            "choice": _choice(fit),
            "baseline": _held_out(fit),
            "calibration": _calibration(judged),
            "roc": _roc(judged),
            "wrong_labels": wrong,
        }
        tell("truncation")
        facts |= {
            "spectrum": _spectrum(fit.metric),
            "truncation": _truncation(fit, shown, is_training=is_of_fit, seed=seed),
            "directions": _directions(fit),
            "matrix": _matrix(fit),
            "pair_map": map_pairs(fit.metric, shown, suspects, seed),
            "point_map": map_points(fit, shown, dependent, provenance.categories, seed),
        }
        tell("noise check")
        facts["noise_check"] = _noise_check(fit, shown, seed, dependent)
        tell("learning curve")
        facts["learning_curve"] = _learning_curve(judged, shown if training is None else training, seed)
        tell("intervals")
        own = None if of_training is None else of_training[shown.numbers]
        facts |= {
            "intervals": _intervals(fit, training, seed, own),
            "annotators": _annotators(fit),
            "comparisons": _comparisons(fit),
            "evidence": questions.describe_evidence(fit),
            "problems": _problems(fit, facts["noise_check"], is_chance=is_chance, groups=of_training),
            "certificate": _certificate(fit),
            "fit": _fit(fit),
            "next_steps": _next_steps(fit.metric, provenance),
        }
    facts |= {"sentence": _answer(facts), "key_figures": _key_figures(facts)}
    facts = {**_headline(title, facts, provenance), **facts}
    return cast("dict[str, Any]", to_jsonable(facts, finite=True, is_command_line=provenance.is_command_line))


def _headline(title: str | None, facts: dict[str, Any], provenance: Provenance) -> dict[str, Any]:
    """The title, and what the report is of: data, model, date and counts."""
    files, pairs = with_and(list(provenance.files.values())), facts["pairs"]
    parts = [count(pairs["n_given"], pairs["noun"]), count(facts["fit"]["n_features"], "column")]
    if facts["comparisons"] is not None:
        parts.insert(1, count(facts["comparisons"]["n"], "comparison"))
    if pairs["kind"] == Kind.CLOSE_FAR:
        parts.append(f"{percent(pairs['share_far'])} labelled far")
    elif pairs["kind"] == Kind.LEVELS:
        parts.append(count(len(pairs["labels"]), "level"))
    if facts["annotators"] is not None:
        parts.append(count(facts["annotators"]["n"], "annotator"))
    named = {"Data": files, "Model": provenance.model, "Date": date.today().isoformat(), "Size": ", ".join(parts)}
    return {
        "title": title or "Learned distance metric" + (f": {files}" if files else ""),
        "is_command_line": provenance.is_command_line,
        "about": [{"name": name, "value": value} for name, value in named.items() if value],
    }


def _pairs(judged: _Judged, shown: Judgements) -> dict[str, Any]:
    fit = judged.fit
    return {
        **{name: getattr(judged, name) for name in ("source", "unseen", "words", "noun", "labels")},
        "n_pairs": len(judged.judgements),
        "n_given": len(shown),
        "kind": str(fit.kind),
        "share_far": shown.mean(shown.is_far) if fit.kind is Kind.CLOSE_FAR else None,
        "n_fitted": fit.statistics.n_pairs,
        "term": fit.kind.term,
        "weighted": shown.sample_weight is not None,
    }


def _fit(fit: Fit) -> dict[str, Any]:
    metric, parameters = fit.metric, fit.settings.parameters
    if fit.kind is Kind.CLOSE_FAR:
        parameters = {**parameters, "far_label": fit.sides.far}
    return {
        **asdict(fit.statistics),
        **{name: getattr(metric, name) for name in ("thresholds", "rank", "origin")},
        "flip_rates": np.atleast_1d(metric.flip_rate),
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
_MOST_NUMBERS = 4e6  # in memory at once
_FEW_FEATURES = 16  # up to which the proof of a fit takes no longer than the fit


def _work_of_fit(fit: Fit) -> float:
    """The work of one fit for each pair; one that began near its end takes more passes from the start."""
    return max(fit.certificate.n_passes, 20.0) * len(fit.metric.factor) ** 2


def _work_of_errors(fit: Fit) -> float:
    """The work of one pass of standard errors for each pair: the square of the ways in which the metric may change."""
    n_moves = fitting.count_parameters(len(fit.metric.factor), fit.metric.rank) if fit.metric.rank else 1
    return float(min(n_moves, questions.MOST_MOVES) ** 2)


def _affordable(judgements: Judgements, limit: float, work: float, seed: int) -> Judgements:
    """A sample of the judgements, or all of few, where each takes this much work."""
    n = len(judgements)
    return judgements.sample(int(np.clip(limit / max(work, 1.0), min(n, _FEWEST_JUDGED), min(n, _MOST_JUDGED))), seed)


# ---------------------------------------------------------------------------------------------------------------------
# The margins that pairs are judged by: those of fits that have not seen them, where there are such fits.


_DIVISIONS = 3  # of points that are all linked by pairs: each tests about a fifth of these


@dataclass(frozen=True)
class _Judged:
    """Pairs with the margins that they are judged by.

    Attributes
    ----------
    fit : Fit
        The fit to all.
    scored : Scores
    source : {"out-of-fold", "given", "in-sample"}
        Of which kind the margins are.
    words : str
        The same in a sentence.
    thresholds : array of shape (n,)
        Of the fit that judged each: the mean of those of levels, and zero for comparisons.
    groups : array of shape (n,) or (n, 2), or None
        Which of them depend on each other.
    errors : LabelErrors or None
        Where the fits that judged also say how probably each label is wrong.
    doubt : str or None
        Why they do not.
    unseen : {"pair", "group", "point"}
        What is new to the fits that judged.
    known : _Judged or None
        All of them as new pairs of known groups or points, where `unseen` are those.
    """

    fit: Fit
    scored: Scores
    source: str
    words: str
    thresholds: FloatArray
    groups: NDArray[Any] | None
    errors: LabelErrors | None = None
    doubt: str | None = None
    unseen: str = "pair"
    known: _Judged | None = None

    @property
    def judgements(self) -> Judgements:
        return self.scored.judgements

    @property
    def noun(self) -> str:
        return _noun_of(self.fit)

    @property
    def labels(self) -> list[str]:
        """The labels, closest first."""
        sides = self.fit.sides
        return list(map(str, sides.classes.tolist() if sides.is_graded else (sides.close, sides.far)))

    @property
    def auc(self) -> float | None:
        return None if self.fit.metric.rank == 0 else self.scored.auc

    def squared_distances(self, threshold: float) -> FloatArray:
        """The squared distance of each on a scale on which every fit that judged has this threshold.

        A threshold of zero is on no other scale; distances are then shifted instead.
        """
        own = self.thresholds
        margin = self.scored.margins.mean(axis=1)
        has_scale = (own > 0) & (threshold > 0)
        scale = np.divide(threshold, own, out=np.ones(len(own)), where=has_scale)
        squared: FloatArray = np.where(has_scale, scale * (margin + own), np.maximum(margin + threshold, 0.0))
        return squared

    def share(self, name: str, holds: BoolArray) -> dict[str, float]:
        """The share for which something holds, with its 95% interval, wider where pairs depend on each other."""
        share = self.judgements.mean(holds)
        return _with_ends(name, share, *questions.wilson(share, self.effective_number(holds)))

    def effective_number(self, holds: BoolArray) -> float:
        """As many independent pairs would know this share as well."""
        most = self.judgements.effective_number
        if self.groups is None:
            return most
        share, shares = self.judgements.mean(holds), self.judgements.shares
        n_units, variance = numbered(self.groups)[1], variance_of_sum((holds - share) * shares, self.groups)
        if n_units > 1:  # few groups know their spread badly
            variance *= (student.ppf(0.975, n_units - 1) / 1.96) ** 2
        return min(most, share * (1.0 - share) / variance if variance > 0 else n_units / np.ndim(self.groups))


def _with_ends(name: str, value: float, low: float, high: float) -> dict[str, float]:
    """A number and the ends of its range, as facts."""
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _noun_of(fit: Fit) -> str:
    """What a judgement is about: two points, more of them or, with a learned origin, one."""
    return fit.kind.noun if fit.metric.origin is None else "point"


def _has_sides(judgements: Judgements) -> bool:
    """Whether the judgements differ; a comparison can be given either way round."""
    return judgements.kind is Kind.COMPARISONS or len(np.unique(judgements.codes)) > 1


def _judge(
    fit: Fit, judgements: Judgements, *, has_seen: bool, seed: int, groups: NDArray[Any] | None = None
) -> _Judged:
    """Judge each pair by the fit or, where it `has_seen` the labels, by fits to the others.

    `groups` are those of all pairs that were given, by their row numbers.
    """
    noun = _noun_of(fit)
    if not has_seen:
        words = (
            f"The model is evaluated as it is on the {count(len(judgements), noun)} given. The figures are optimistic "
            "if it was fitted to some of them."
        )
        own = None if groups is None else groups[judgements.numbers]
        if own is not None:
            words += f" They share {'points' if own.ndim == 2 else 'groups'}, which the intervals account for."
        return _by_metric(fit, judgements, "given", words, own)
    work, n_rounds = 2.5 * (_work_of_fit(fit) + _work_of_errors(fit)), 1 if groups is None else 1 + _DIVISIONS
    judged = _affordable(judgements, _LIMIT, n_rounds * work, seed)
    # As is usual, each fit sees four fifths of the pairs; two thirds where even the fewest pairs are much work.
    n_folds = 5 if 2.5 * len(judged) * _work_of_fit(fit) <= _LIMIT else 3
    seed = check_random_state(seed).randint(2**31)
    own = None if groups is None else groups[judged.numbers]
    found = _by_pair(fit, judged, n_folds, seed, own)
    if own is not None:
        found = _by_group(found, own, n_folds, seed)
    if len(judged) == len(judgements) or found.source == "in-sample":
        return found
    sampled = f" To save time, this is done for a random sample of {len(judged):,} of the {len(judgements):,} {noun}s."
    return replace(found, words=found.words + sampled)


def _is_training(fit: Fit, judgements: Judgements) -> bool:
    """Whether these are the pairs of the fit: as many, with the very statistics that it ended with."""
    known, measure = fit.statistics, fit.metric.measure
    if fit.is_metric_alone or len(judgements) != known.n_pairs or not _has_sides(judgements):
        return False
    weighted = judgements.weighted(fit.settings.class_weight)
    squared = measure(weighted.data)
    if weighted.comparisons is not None:
        squared = np.concatenate([squared, measure(weighted.comparisons.data)])
    scales = np.array(known.column_scales)
    found = fitting.measured_statistics(weighted, squared, fitting.Scorer.of(fit), scales, known.n_parameters)
    return all(
        math.isclose(getattr(found, name), getattr(known, name), rel_tol=1e-6, abs_tol=1e-7)
        for name in ("null_loss", "accuracy", "wrong_share", "uncertain_labels")
    )


def _by_pair(fit: Fit, judged: Judgements, n_folds: int, seed: int, groups: NDArray[Any] | None) -> _Judged:
    """Judge each by a fit that has not seen its label."""
    noun, term, n_folds = _noun_of(fit), fit.kind.term, min(n_folds, judged.n_rarer)
    if n_folds < 2:
        reason = f"only {count(judged.n_rarer, noun)} {'has' if judged.n_rarer == 1 else 'have'} the rarer label"
    else:
        try:
            scored, thresholds = _out_of_fold(fit, judged, split_judgements(n_folds, judged, seed=seed))
        except ValueError as error:  # a part of few or odd pairs can't be fitted
            reason = f"fits to parts of them failed ({error})"
        else:
            errors, doubt = _label_errors(fit, scored, groups)
            how = f"each {noun} is evaluated by a fit that has not seen its {term} ({n_folds} folds)"
            return _Judged(fit, scored, "out-of-fold", f"Cross-validated: {how}.", thresholds, groups, errors, doubt)
    seen = f"the fit has seen these {term}s, and new {noun}s will do worse"
    return _by_metric(fit, judged, "in-sample", f"Not cross-validated, because {reason}: {seen}.", groups)


def _by_group(by_pair: _Judged, groups: NDArray[Any], n_folds: int, seed: int) -> _Judged:
    """Judge those that some split tests by fits that have not seen their points or groups; else by pair, and say so."""
    fit, judged, noun, term = by_pair.fit, by_pair.judgements, by_pair.noun, by_pair.fit.kind.term
    unit, its, share = "group", "group", f"{noun}s belong to groups"
    if groups.ndim == 2:
        unit, its, share = "point", "points", f"{noun}s share points"
    splits = _group_splits(judged, groups, n_folds, seed) if by_pair.source == "out-of-fold" else []
    try:
        found = _out_of_fold(fit, judged, splits) if splits else None
    except ValueError:  # a part of few or odd pairs can't be fitted
        found = None
    if found is None:
        words = (
            f" {share.capitalize()}, and too few {unit}s can be left out together to test on new {unit}s: the figures "
            f"are for new {noun}s of these {unit}s and may be worse for new {unit}s."
        )
        return replace(by_pair, words=by_pair.words + words)
    scored, thresholds = found
    tested = np.flatnonzero(np.isfinite(thresholds))
    words = (
        f"Cross-validated: {share}, so each {noun} is evaluated by a fit that has not seen its {its}. The figures are "
        f"for new {unit}s ({count(len(splits), 'fold')})."
    )
    if len(tested) < len(judged):
        words += (
            f" {len(judged) - len(tested):,} of {count(len(judged), noun)} are not counted, because their {unit}s were "
            "never left out together."
        )
    words += f" Suspicious {term}s are judged by fits that have not seen that {term} but may have seen its {its}."
    own = (thresholds[tested], groups[tested])
    return _Judged(fit, scored.take(tested), "out-of-fold", words, *own, unseen=unit, known=by_pair)


def _group_splits(judged: Judgements, groups: NDArray[Any], n_folds: int, seed: int) -> list[Split]:
    """Splits that keep groups or points apart, of which at most one tests each pair."""
    n_folds = most_folds(n_folds, judged, groups, seed=seed)
    is_tested, found = np.zeros(len(judged), dtype=bool), []
    for division in range(_DIVISIONS if n_folds else 0):
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


def _label_errors(fit: Fit, unseen: Scores, groups: NDArray[Any] | None) -> tuple[LabelErrors | None, str | None]:
    """How probably each label is wrong, or why that is not known.

    Class weights move the threshold, and then it can't be told.
    """
    if fit.settings.class_weight is not None:
        return None, None
    judgements, changes = unseen.judgements, questions.flip_aware(fit.settings)
    is_whole = len(judgements) == fit.statistics.n_pairs
    try:
        own = fit if is_whole and not changes else fitting.fit(judgements, fit.chosen.but(**changes))
        return questions.judge_labels(own, judgements, unseen, groups=groups), None
    except ValueError as error:
        return None, str(error).rstrip(".")


def _out_of_fold(fit: Fit, judgements: Judgements, splits: list[Split]) -> tuple[Scores, FloatArray]:
    """The judgements scored by fits to the train sides of the splits that test them, and the thresholds of those fits.

    Those that no split tests have the threshold NaN.
    """
    thresholds, scored = np.full(len(judgements), np.nan), []
    for train, test in splits:
        part = fitting.refit_part(fit, judgements.take(train))
        thresholds[test] = np.mean(part.thresholds or 0.0)
        scored.append((fitting.score(part, judgements.take(test)), test))
    return fitting.join_scores(judgements, scored), thresholds


def _by_metric(fit: Fit, judgements: Judgements, source: str, words: str, groups: NDArray[Any] | None) -> _Judged:
    """Judge by the fit as it is."""
    thresholds = np.full(len(judgements), np.mean(fit.thresholds or 0.0))
    return _Judged(fit, fitting.score(fit, judgements), source, words, thresholds, groups)


# ---------------------------------------------------------------------------------------------------------------------
# How well the learned distance predicts the labels: accuracy, distances, probabilities and the ROC curve.


_HISTOGRAM_BINS = 40  # as many as have 7 pixels each in a drawing for a phone


def _distances(judged: _Judged) -> dict[str, Any]:
    """A histogram of squared distances for each label, with all that are too long for it in its last bin.

    Cross-validated distances are scaled so that the mean threshold of each fit is that of the fit to all.  For
    comparisons it is of the difference of both squared distances, positive where the metric agrees.
    """
    judgements, scored, noun, weights = judged.judgements, judged.scored, judged.noun, judged.judgements.weights
    sides, thresholds = judged.labels, judged.fit.thresholds
    codes: NDArray[Any] = judgements.codes
    if judgements.kind is Kind.COMPARISONS:
        sides, codes = ["contradicted", "agreed with"], scored.is_right
        values = np.where(judgements.is_far, scored.margin, -scored.margin)
        reading = f"The metric agrees with {percent(scored.accuracy)} of the answers, at the right of zero."
    else:
        values = judged.squared_distances(float(np.mean(thresholds)))
        off = np.abs(np.sum(scored.margins >= 0.0, axis=1) - codes)
        inside = percent(judgements.mean(off == 0))
        reading = f"{inside} of the {noun}s lie on the side of the threshold that their label says."
        if scored.is_graded:
            nearly = percent(judgements.mean(off <= 1))
            reading = (
                f"{inside} of the {noun}s lie between the thresholds of their level, {nearly} there or in a "
                "neighbouring level."
            )
    low, high = range_of_distances(values, thresholds)
    edges, shown = np.linspace(low, high, _HISTOGRAM_BINS + 1), np.clip(values, low, high)
    rows = []
    for code, label in enumerate(sides):
        chosen = codes == code
        counts = np.histogram(shown[chosen], edges, weights=weights[chosen])[0]
        rows.append({"label": label, "n": int(np.sum(chosen)), "counts": counts})
    return {
        "edges": edges,
        "rows": rows,
        "thresholds": thresholds or [0.0],
        "beyond": float(np.average(np.abs(values) > high, weights=weights)),
        "reading": reading,
    }


def _quality(judged: _Judged) -> dict[str, Any]:
    """Accuracy beside the majority baseline, the area under the ROC curve, the loss and the confusion matrix."""
    scored, known, labels = judged.scored, judged.known, judged.labels
    likelier: str | None = (labels if scored.is_graded else ("close", "far"))[int(np.argmax(scored.shares))]
    confusion: dict[str, Any] = {"labels": labels, "counts": scored.confusion()}
    if scored.judgements.kind is Kind.COMPARISONS:
        likelier = None
        same = "A comparison turned round is the same comparison, so the accuracy says all there is to say."
        confusion = {"reason": same}
    return {
        **_figures(judged),
        "likelier": likelier,
        "baseline": scored.majority,
        "shares": scored.shares,
        "is_chance": _is_chance(judged),
        "null_loss": scored.null_loss,
        # New pairs of known points or groups.
        "known": None if known is None else {**_figures(known), "n_pairs": len(known.scored)},
        "confusion": confusion,
    }


def _figures(judged: _Judged) -> dict[str, Any]:
    scored = judged.scored
    return {**judged.share("accuracy", scored.is_right), "auc": judged.auc, "loss": scored.loss}


def _is_chance(judged: _Judged) -> bool:
    """Whether random labels would reach this area under the ROC curve with a probability of half a percent.

    For levels, whether that holds for each threshold; for comparisons, whether even odds would reach this accuracy.
    """
    n = judged.effective_number(judged.scored.is_right)
    if judged.judgements.kind is Kind.COMPARISONS:
        return judged.scored.accuracy < 0.5 + 2.58 * 0.5 / math.sqrt(n)
    if judged.auc is None:
        return False
    share = n / judged.judgements.effective_number
    for each in judged.scored.dichotomies:
        far, both = share * each.judgements.n_far, share * len(each)
        if each.auc is None or each.auc >= 0.5 + 2.58 * math.sqrt((both + 1) / (12.0 * far * (both - far))):
            return False
    return True


def _calibration(judged: _Judged) -> dict[str, Any]:
    """Probabilities beside the shares labelled far, in bins, for each threshold.

    A comparison is turned so that the likelier answer comes first.
    """
    sides = enumerate(questions.sides_of(judged.scored), 1)
    # As many bins of about equal weight as in `plot.calibration`.
    found = [(k, row) for k, each in sides for row in questions.calibrate(each, 10)]
    bins = [row for _, row in found]
    error = float(np.average([abs(row.predicted - row.observed) for row in bins], weights=[row.weight for row in bins]))
    reading = _calibration_reading(bins, error) + _caveat(judged.fit)  # both wordings, which an f-string would lose
    if not _has_sides(judged.judgements):
        reading = f"All of these {judged.noun}s have the same label, so calibration can't be checked."
    return {"bins": [{"level": k, **vars(row)} for k, row in found], "error": error, "reading": reading}


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
    most = "though nowhere by much"
    if abs(worst.predicted - worst.observed) >= 0.03:
        most = f"most where {percent(worst.predicted)} is predicted and {percent(worst.observed)} observed"
    return f"{words}; {len(outside)} of {len(bins)} bins differ by more than chance, {most}."


def _caveat(fit: Fit) -> str:
    """What to bear in mind about its probabilities, if anything."""
    if fit.settings.class_weight is not None:
        return " The class weights of the fit shift these probabilities on purpose."
    if fit.alpha > 0 and not fit.settings.chooses_alpha:
        return " The penalty " + setting("alpha") + " pulls the probabilities towards one half."
    return ""


def _roc(judged: _Judged) -> dict[str, Any]:
    """The true positive rate against the false positive rate for each threshold; far is positive."""
    noun, auc = judged.noun, judged.auc
    if judged.judgements.kind is Kind.COMPARISONS:
        return {"reason": "A comparison turned round is the same comparison, so there are no two sides to tell apart."}
    if judged.fit.metric.rank == 0:
        return {"reason": "The metric is zero, and so is every distance."}
    if auc is None:
        return {"reason": f"All of these {noun}s have the same label, so there is nothing to tell apart."}
    sides = enumerate(judged.scored.dichotomies, 1)
    curves = [{"level": k, **_roc_curve(each)} for k, each in sides if each.judgements.n_rarer > 0]
    if judged.scored.is_graded:
        areas = with_and([f"{curve['auc']:.3f}" for curve in curves])
        reading = (
            f"A {noun} of a level above a threshold has a larger distance than one of a level below it with "
            f"probability {areas}, in the order of the thresholds."
        )
    else:
        found, wrongly = (percent(curves[0]["at_threshold"][name]) for name in ("true_far", "false_far"))
        reading = (
            f"A random far {noun} has a larger distance than a random close {noun} with probability {auc:.3f}. At the "
            f"learned threshold, {found} of the {noun}s labelled far are predicted far (true positives), and {wrongly} "
            "of those labelled close (false positives)."
        )
    return {"reason": None, "auc": auc, "curves": curves, "reading": reading}


def _roc_curve(scored: Scores) -> dict[str, Any]:
    judgements, margin = scored.judgements, scored.margin
    false, true, _ = roc_curve(judgements.is_far, margin, sample_weight=judgements.weights)
    # 200 points are more than a curve of 272 pixels shows.
    kept = np.unique(np.linspace(0, len(false) - 1, min(len(false), 200)).round().astype(int))
    found, wrongly = (
        float(np.average(margin[chosen] >= 0, weights=judgements.weights[chosen]))
        for chosen in (judgements.is_far, ~judgements.is_far)
    )
    return {
        "auc": scored.auc,
        "false_far": false[kept],
        "true_far": true[kept],
        "at_threshold": {"false_far": wrongly, "true_far": found},
    }


# ---------------------------------------------------------------------------------------------------------------------
# The learning curve: what fits to fewer pairs would have reached, and so what more pairs may bring.


_LEARNING_REPEATS = 3  # whose range is drawn

# A fall of the loss by less than this share of it is none.
_NEGLIGIBLE_FALL = 0.01


def _learning_curve(judged: _Judged, judgements: Judgements, seed: int) -> dict[str, Any]:
    """Loss and accuracy on a fifth of the pairs of fits to 1/8, 1/4, 1/2 and all of the others."""
    fit = judged.fit
    if fit.is_metric_alone:
        return {"reason": "A learning curve needs a fit; this metric was truncated, or stored without its fit."}
    noun, term, work = judged.noun, fit.kind.term, 2.0 * _work_of_fit(fit)
    pool = _affordable(judgements, _LIMIT, work, seed)
    sides = np.zeros(len(pool), dtype=np.intp) if pool.kind is Kind.COMPARISONS else pool.codes
    # Small fits of many columns are slow.
    can_repeat = len(fit.metric.factor) <= _FEW_FEATURES and _LEARNING_REPEATS * len(pool) * work <= _LIMIT
    n_repeats, sizes = _LEARNING_REPEATS if can_repeat else 1, list[int]()
    if pool.n_rarer >= 5 and _has_sides(pool):
        splits = [_test_and_train(pool, seed + repeat) for repeat in range(n_repeats)]
        sizes = _learning_sizes(sides, [train for _, train in splits])
    if len(sizes) < 2:
        return {"reason": f"There are too few {noun}s for a learning curve: {len(judgements):,}."}
    try:
        scores = np.array([[_learned(fit, pool, train[:size], test) for size in sizes] for test, train in splits])
    except ValueError as error:  # a part of few or odd pairs can't be fitted
        failed = f"There is no learning curve, because a fit to some of the {noun}s failed: "
        return {"reason": failed + words_of(error)}
    known = "" if judged.unseen == "pair" else f" This holds for new {noun}s of known {judged.unseen}s."
    return {
        "reason": None,
        "rows": [
            {"n_pairs": size, **_spread("loss", scores[:, index, 0]), **_spread("accuracy", scores[:, index, 1])}
            for index, size in enumerate(sizes)
        ],
        "n_repeats": n_repeats,
        "n_pool": len(pool),
        "reading": _learning_reading(sizes, scores, noun, term) + known,
    }


def _test_and_train(judgements: Judgements, seed: int) -> Split:
    """Test and train rows, the latter in a random order; a fifth are tested, as in a fold of the cross-validation."""
    train, test = split_judgements(5, judgements, seed=seed)[0]
    return test, np.random.default_rng(seed).permutation(train)


def _learning_sizes(sides: IndexArray, trains: list[IndexArray]) -> list[int]:
    """Halves of the training pairs, as long as they hold all labels and are not hopelessly few."""
    n_sides, sizes = len(np.unique(sides)), [min(map(len, trains)) // 2**halving for halving in (3, 2, 1, 0)]
    hold_all = [all(len(np.unique(sides[train[:size]])) == n_sides for train in trains) for size in sizes]
    return [size for size, holds_all in zip(sizes, hold_all, strict=True) if holds_all and size >= 8]


def _learned(fit: Fit, judgements: Judgements, train: IndexArray, test: IndexArray) -> tuple[float, float]:
    unseen = fitting.score(fitting.refit_part(fit, judgements.take(np.sort(train))), judgements.take(np.sort(test)))
    return unseen.loss, unseen.accuracy


def _spread(name: str, values: FloatArray) -> dict[str, float]:
    return _with_ends(name, float(values.mean()), float(values.min()), float(values.max()))


def _learning_reading(sizes: list[int], scores: FloatArray, noun: str, term: str = "label") -> str:
    """The excess loss of a fit falls about as 1/N, so each doubling gains half of what the one before did."""
    before, last = sizes[-2:]
    gain = float(np.mean(scores[:, -2, 0] - scores[:, -1, 0]))
    change = points(float(np.mean(scores[:, -1, 1] - scores[:, -2, 1])))
    said = f"From {before:,} to {count(last, noun)}, the loss on unseen {term}s"
    loss = float(np.mean(scores[:, -1, 0]))
    if gain < -_NEGLIGIBLE_FALL * loss:
        return f"{said} rises by {-gain:.3g} (accuracy {change}): too few {noun}s to say what more would bring."
    if gain < _NEGLIGIBLE_FALL * loss:
        return f"{said} hardly changes (accuracy {change}): more {noun}s are likely to gain little."
    falls = f"{said} falls by {gain:.3g} (accuracy {change})."
    steady = np.all(scores[:, -2, 0] > scores[:, -1, 0]) and np.all(np.diff(np.mean(scores[:, :, 0], axis=0)) < 0)
    # A fall by more than a fifth is not yet on the way on which each doubling gains half of the one before.
    if not steady or gain > 0.2 * loss:
        return f"{falls} More {noun}s should help; these are too few to say how much."
    return f"{falls} Twice as many {noun}s should lower it by about half as much again, {0.5 * gain:.3g}."


# ---------------------------------------------------------------------------------------------------------------------
# How the settings of a fit were chosen, and the plain distance beside the learned one, on held-out judgements.


_PLAIN_NAMES = {
    "euclidean": "plain distance",
    "standardized": "plain distance, standardized columns",
    "metric": "given metric",
}


def _held_out(fit: Fit) -> dict[str, Any] | None:
    """The accuracy and the loss of the most frequent answer, of the plain distance and of the learned one."""
    found = fit.baseline
    if found is None:
        return None
    names = {"majority": "most frequent answer", "plain": _PLAIN_NAMES[found.plain], "learned": "learned metric"}
    is_plain = fit.choice is not None and fit.choice.is_plain
    if is_plain:
        names["learned"] = "the same, with calibrated scale"
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
    how, change, advice = "not ", "higher by", " Use the plain distance, or collect more judgements."
    if found.gain > 0.0:
        how, change, advice = ("", "lower by", "") if found.is_better else ("not clearly ", "lower by only", "")
    return (
        f"The learned metric is {how}better than the plain distance: {judged}, its loss is {change} "
        f"{abs(found.gain):.3f} (standard error {found.standard_error:.3f}).{advice}"
    )


def _choice(fit: Fit) -> dict[str, Any] | None:
    """What was chosen, and all that was tried."""
    found = fit.choice
    if found is None:
        return None
    return {**vars(found), "sentence": found.sentence, "table": [each._asdict() for each in found.table]}


# ---------------------------------------------------------------------------------------------------------------------
# What the metric weighs: its spectrum, what each rank costs, its directions and its matrix.


_LOADING_COLUMNS = 8  # columns of loadings that a page has room for
_MOST_FEATURES = 30  # rows of loadings on one screen
_MOST_MATRIX_FEATURES = 10  # so that every entry has room for its number

_FIRST_RANKS = 10  # of a table

_MOST = 0.9  # "carry most of the distance"
_NEGLIGIBLE_ACCURACY = 0.005  # of the labels
_NEGLIGIBLE_LOSS = 0.1  # of the loss


def _spectrum(metric: Metric) -> dict[str, Any]:
    """The mean squared distance along each direction, which no unit changes, and the eigenvalues of M in its units."""
    found = metric.directions()
    cumulative = np.minimum(np.cumsum(found.shares), 1.0)
    rows = records({"value": found.values, "share": found.shares, "cumulative": cumulative})
    return {"rows": rows, "eigenvalues_in_units": metric.eigenvalues.tolist(), "reading": _spectrum_reading(rows)}


def _truncation(fit: Fit, judgements: Judgements, *, is_training: bool, seed: int) -> dict[str, Any]:
    """What keeping directions 1 to k costs on these pairs; refitted where they are those of the fit."""
    rank = fit.metric.rank
    used = _affordable(judgements, _MOST_NUMBERS, rank + 1.0, seed)
    refits = is_training and len(used) * _work_of_fit(fit) * rank / 3.0 <= 2.0 * _LIMIT
    is_rough = len(fit.metric.factor) > _FEW_FEATURES
    path = questions.truncation_of(fit, used, scale="data", refits=refits, is_rough=is_rough)
    names = ("k", "loss", "lost", "bound", "accuracy", "refit_loss", "refit_accuracy")
    # All ranks up to the first ones, and as many again in equal ratios up to the whole.
    later = np.geomspace(_FIRST_RANKS, max(rank, _FIRST_RANKS), _FIRST_RANKS + 1).round().astype(int).tolist()
    rows = [
        {"cut_off": step.gamma, **{name: getattr(step, name) for name in names}}
        for step in (path[k] for k in sorted({*range(_FIRST_RANKS), *later}) if k <= rank)
        if not refits or step.refit_loss is not None
    ]
    reading = f"All of these {_noun_of(fit)}s have the same label."
    if _has_sides(used):
        reading = _truncation_reading(path, refits)
    if fit.settings.class_weight is not None:
        reading += " Labels count with the class weights of the fit."
    return {"rows": rows, "n_pairs": len(used), "refitted": refits, "reading": reading}


def _directions(fit: Fit) -> dict[str, Any]:
    """The directions of M, each a score that weighs the columns, in their own standard deviations."""
    names, found = fit.metric.column_names, fit.metric.directions()
    weights, shares = found.columns[:, :_LOADING_COLUMNS], found.shares[:_LOADING_COLUMNS]
    unit = loadings(weights, np.array(fit.statistics.column_scales))
    importance = unit**2 @ shares
    shown = np.sort(np.argsort(-importance, kind="stable")[:_MOST_FEATURES])
    reading = ZERO
    if fit.metric.rank > 0:
        first = unit[:, 0]
        order = np.argsort(-np.abs(first), kind="stable")
        named = [index for index in order[:3] if abs(first[index]) >= 0.35] or order[:1].tolist()
        words = with_and([f"{short(names[index])} ({signed(float(first[index]))})" for index in named])
        largest = "largest loading is" if len(named) == 1 else "largest loadings are"
        share = percent(float(shares[0]))
        reading = f"Direction 1 explains {share} of the mean squared distance; its {largest} {words}."
    return {
        "features": [names[index] for index in shown],
        "columns": shown,
        "n_features": len(names),
        "n_directions": fit.metric.rank,
        "left_out_share": max(1.0 - float(importance[shown].sum()) / (float(importance.sum()) or 1.0), 0.0),
        "rows": [
            {"share": share, "loadings": unit[shown, index], "weights": weights[shown, index]}
            for index, share in enumerate(shares)
        ],
        "reading": reading,
    }


def _matrix(fit: Fit) -> dict[str, Any]:
    """M with each column measured in its own root mean square difference, largest diagonal first; and M itself."""
    names, whole, scales = fit.metric.column_names, fit.metric.matrix, np.array(fit.statistics.column_scales)
    scaled = whole * np.outer(scales, scales)
    shown = np.argsort(-np.diag(scaled), kind="stable")[:_MOST_MATRIX_FEATURES]
    entries = scaled[np.ix_(shown, shown)]
    return {
        "features": [names[index] for index in shown],
        "columns": shown,
        "n_features": len(names),
        "largest": float(np.max(np.abs(entries), initial=0.0)) or 1.0,
        "scaled": entries,
        "scales": scales,
        "all_features": names,
        "raw": whole if len(names) <= 500 else None,  # a larger matrix is not written out
        "reading": _matrix_reading(fit.metric, scaled),
    }


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
    rank, whole, start = len(path) - 1, path[-1], "refit_" if refitted else ""
    if rank == 0:
        return ZERO
    if rank == 1:
        return "The metric has one direction only, so it can't be truncated."
    for k in range(1, rank):
        accuracy, loss = (getattr(path[k], f"{start}{name}") for name in ("accuracy", "loss"))
        if accuracy is None or accuracy < whole.accuracy - _NEGLIGIBLE_ACCURACY:
            continue
        if loss <= (1.0 + _NEGLIGIBLE_LOSS) * whole.loss:
            change = points(accuracy - whole.accuracy)
            compared = "the same as" if change.startswith("±") else f"{change} compared with"
            kept = f"Truncated to rank {k}{' and refitted' if refitted else ''}"
            return f"{kept}, the metric has an accuracy of {percent(accuracy)} ({compared} rank {rank})."
    both = "Both" if rank == 2 else f"All {rank:,}"
    return f"{both} directions matter: with one fewer, accuracy or loss is worse."


def _matrix_reading(metric: Metric, scaled: FloatArray) -> str:
    if metric.rank == 0:
        return ZERO
    names, first = metric.column_names, int(np.argmax(np.diag(scaled)))
    most = float(scaled[first, first])
    words = f"A typical difference in {short(names[first])} alone adds {most:.3g} to the squared distance"
    if metric.thresholds and metric.thresholds[0] > 0:
        which = "threshold" if len(metric.thresholds) == 1 else "lowest threshold"
        words += f", {most / metric.thresholds[0]:.3g} times the {which}"
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
ANOTHER_LEVEL = "given another level than the one that their distance lies in"
_CHANCE = (
    "On these labels, the metric is not clearly better than chance. Check the labels, which of them means far, and "
    "whether the columns are informative, or label more pairs."
)


def _shared_points(ids: NDArray[np.object_] | None, groups: Any, judgements: Judgements) -> NDArray[Any] | None:
    """Which pairs depend on each other: as was said, or by the ids of their points, or as the data show."""
    if groups is None and ids is not None and ids.shape[1] > 1 and share_points(ids.astype(str)):
        return ids.astype(str)
    found = resolve_groups(groups, judgements.data)
    return found if share_points(found) else None


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
    texts: NDArray[np.object_] = np.vectorize(str, otypes=[object])(found.reshape(n, -1))
    return texts


def _wrong_labels(
    judged: _Judged, ids: NDArray[np.object_] | None, *, is_chance: bool
) -> tuple[dict[str, Any], IndexArray]:
    """The share of wrong labels with its interval and the most suspicious pairs; and the row numbers of all suspects.

    Where the model can be trusted with how probably each label is wrong, that is shown; elsewhere
    the labels that contradict the metric.
    """
    fit, errors, doubt, reason = judged.fit, judged.errors, judged.doubt, None
    if fit.metric.rank == 0 or is_chance:
        why = "is zero" if fit.metric.rank == 0 else "is not clearly better than chance"
        reason = f"The metric {why}, so it can't tell wrong {fit.kind.term}s from right ones."
    elif fit.settings.class_weight is not None:
        reason = "Class weights move the threshold on purpose, so a label on its other side need not be wrong."
    if reason is not None:
        return {"reason": reason, "doubt": None, "kind": None, "rows": []}, np.array([], dtype=np.intp)
    if fit.is_separable or fit.alpha > 0:  # the scale of the margins is not that of the noise
        errors = None
    if errors is not None and errors.share is None:
        doubt, errors = errors.reason, None
    part, doubtful, listed = _contradictions(judged, doubt) if errors is None else _probabilities(judged, errors)
    found = {
        "reason": None,
        "doubt": doubt,
        "on_other_scale": False,
        **part,
        "n_doubtful": len(doubtful),
        "id_columns": 0 if ids is None else ids.shape[1],
        "rows": [_suspicious_row(judged, index, ids, errors) for index in listed.tolist()],
    }
    # Contradictions are not proven wrong, so the map shows the listed ones only.
    return found, judged.judgements.numbers[listed if errors is None else doubtful]


def _noise_check(fit: Fit, judgements: Judgements, seed: int, groups: NDArray[Any] | None = None) -> dict[str, Any]:
    """Labels observed against labels expected, by margin; `groups` of all pairs that were given."""
    if not _has_sides(judgements):
        return {"reason": f"All of these {_noun_of(fit)}s have the same label."}
    used = _affordable(judgements, 0.5 * _LIMIT, _work_of_errors(fit), seed)
    own = None if groups is None else groups[used.numbers]
    try:
        check = questions.check_noise_model(fit, used, groups=questions.units_with_comparisons(own, used))
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


def _probabilities(judged: _Judged, errors: LabelErrors) -> tuple[dict[str, Any], IndexArray, IndexArray]:
    """The share of wrong labels, which are more probably wrong than right, and those to list in their order."""
    noun, term, suspects = judged.noun, judged.fit.kind.term, np.flatnonzero(errors.probability > 0.5)
    part = _with_ends("share", errors.share or 0.0, errors.share_low or 0.0, errors.share_high or 0.0)
    are, likely, wrong = f"{term}s are wrong", "wrong than right", ": they contradict the distances"
    if errors.meaning == "flipped":
        likely, wrong = "flipped than not", ": at least that many were flipped, whatever the distance"
    elif judged.scored.is_graded:
        are, wrong = f"{noun}s were {ANOTHER_LEVEL}", ""
    elif noun != "comparison":
        wrong = f": they contradict the side of the threshold on which their {noun}s lie"
    found = f"About {percent(part['share'])} of the {are} ({_interval(part, 'share')}){wrong}"
    reading = f"{found}. {count(len(suspects), term)} {'is' if len(suspects) == 1 else 'are'} more likely {likely}."
    # The fit that finds wrong labels allows for flips: its margins may differ notably from those of the fit.
    scored, is_other = fitting.score(judged.fit, judged.judgements), False
    if not scored.is_graded:
        changes = np.median(np.abs(errors.margin - scored.margin))
        is_other = bool(changes > 0.25 * np.median(np.abs(scored.margin)))
    listed = errors.order[:_MOST_SUSPICIOUS]
    listed = listed[errors.probability[listed] >= 0.1]
    return {"kind": "probability", **part, "reading": reading, "on_other_scale": is_other}, suspects, listed


def _contradictions(judged: _Judged, doubt: str | None) -> tuple[dict[str, Any], IndexArray, IndexArray]:
    """The share of labels that contradict the metric, which do, and those to list in their order.

    A level does if it is not even next to the most probable one or, of two levels, if it is the other one.
    """
    scored, judgements, term = judged.scored, judged.judgements, judged.fit.kind.term
    judge = "a fit that has not seen them" if judged.source == "out-of-fold" else "the metric"
    said, is_off = f"{term}s contradict {judge}", ~scored.is_right
    if scored.is_graded:
        said = "labels are more than one level from the most probable one"
        is_off = np.abs(scored.predicted - judgements.codes) > (1 if judgements.n_levels > 2 else 0)
    part = judged.share("share", is_off)
    reading = f"{percent(part['share'])} of the {said} ({_interval(part, 'share')})."
    if doubt is not None:
        reading += f" How many {term}s are wrong can't be told: {doubt}."
    if part["share"] > 0:
        reading += " They are wrong if the metric is right; the least probable ones come first."
    order = np.argsort(-scored.losses, kind="stable")
    found = order[is_off[order]]
    return {"kind": "contradiction", **part, "reading": reading}, found, found[:_MOST_SUSPICIOUS]


def _suspicious_row(
    judged: _Judged, index: int, ids: NDArray[np.object_] | None, errors: LabelErrors | None
) -> dict[str, Any]:
    judgements, scored, number = judged.judgements, judged.scored, int(judged.judgements.numbers[index])
    margin = float(scored.margins[index].mean())
    return {
        "row": number,
        "ids": [] if ids is None else ids[number].tolist(),
        "label": str(judgements.labels[index]),
        "predicted": judged.labels[scored.predicted[index]],
        "probability_wrong": None if errors is None else float(errors.probability[index]),
        "error": None if errors is None else float(errors.error[index]),
        "probability_of_label": float(np.exp(-scored.losses[index])),
        "margin": margin if errors is None or scored.is_graded else float(errors.margin[index]),
        "squared_distance": margin + float(judged.thresholds[index]),
    }


# ---------------------------------------------------------------------------------------------------------------------
# Confidence intervals, or why there are none.


def _intervals(fit: Fit, training: Judgements | None, seed: int, groups: NDArray[Any] | None) -> dict[str, Any]:
    """Intervals for the threshold, the flip rate, each direction and, of few columns, each entry of M."""
    names, d = fit.metric.column_names, len(fit.metric.factor)
    if fit.is_metric_alone:
        return {
            "reason": "Intervals are for the optimum of a fit; this metric was truncated, or stored without its fit. "
            "Fit with the rank that you want."
        }
    if training is None:
        return {
            "reason": "Intervals need the pairs of the fit, which a model file does not hold and which were not given. "
            "Give those pairs and labels."
        }
    if len(training) * packed_size(d) ** 2 > 5.0 * _LIMIT:
        return {
            "reason": "Intervals for this many pairs and columns take long, so they are left out here: compute them "
            "with closefar.confidence."
        }
    refits = questions.JACKKNIFE_PARTS * len(training) * _work_of_fit(fit) <= _LIMIT
    try:
        units = questions.units_with_comparisons(groups, training)
        method = "auto" if refits else "sandwich"
        intervals = questions.confidence(fit, training, groups=units, random_state=seed, method=method)
    except ValueError as error:  # says why there are none
        return {"reason": sentence(words_of(error))}
    if not intervals.valid:
        said = [] if intervals.method == "none" else ["No interval would be valid."]
        return {"reason": joined([*said, *intervals.flaws])}
    thresholds, directions = _interval_rows(intervals.thresholds), _interval_rows(intervals.directions)
    flips = [] if intervals.flip_rate is None else _interval_rows(intervals.flip_rate)
    is_relative = not thresholds  # the scale of M is that of the noise of the comparisons
    entries = _interval_rows(intervals.relative_matrix if is_relative else intervals.matrix)
    shown = [(i, j) for i in range(d) for j in range(i, d)] if d <= 6 else []  # 21 entries
    said = []
    if thresholds:
        ends = with_and([f"{row['low']:.3g} and {row['high']:.3g}" for row in thresholds])
        said.append(f"the {'threshold lies' if len(thresholds) == 1 else 'thresholds lie'} between {ends}")
    whose = ["the labels are flipped"]
    if len(flips) == 2:
        whose = ["close pairs are called far", "far pairs are called close"]
    for row, words in zip(flips, whose, strict=False):
        said.append(f"{percent(row['low'])} to {percent(row['high'])} of {words}")
    clear = sum(row["low"] > 0 for row in directions)
    along = f"along {clear} of {len(directions)} directions the mean squared distance is clearly above zero."
    return {
        "reason": None,
        **{name: getattr(intervals, name) for name in ("method", "valid", "level", "statement")},
        "thresholds": thresholds,
        "flip_rates": flips,
        "directions": directions[:20],  # as many as the spectrum has bars
        "n_directions": len(directions),
        "entries": [{"left": names[i], "right": names[j], **entries[i * d + j]} for i, j in shown],
        "entries_of": "M / tr M" if is_relative else "M",
        "reading": f"With {intervals.level:.0%} confidence {', '.join(said)}{'; ' if said else ''}{along}",
    }


def _interval_rows(interval: questions.Interval) -> list[dict[str, float]]:
    names = ("estimate", "standard_error", "low", "high")
    return records({name: np.ravel(getattr(interval, name)) for name in names})


# ---------------------------------------------------------------------------------------------------------------------
# What a report shows of the comparisons of a mixed fit, and of annotators.


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
    names = {"judgements": "n", "strictness_low": "low", "strictness_high": "high"}
    columns: dict[str, Any] = {"flip_rate": [None] * len(table)}
    columns |= {names.get(name, name): column for name, column in table.to_dict().items()}
    columns["annotator"] = list(map(str, table.names))
    columns["is_doubtful"] = [verdict.is_doubtful for verdict in table.verdicts]
    order = sorted(records(columns), key=lambda row: (not row["is_doubtful"], -abs(row["strictness"])))
    rows = order[:60]  # which a page has room for
    doubtful = [short(row["annotator"]) for row in order if row["is_doubtful"]]
    said = "Nobody stands out for answers that do not depend on the distance."
    if doubtful:
        others = len(doubtful) - _ANNOTATORS_NAMED
        more = [f"{others:,} others"] if others > 0 else []
        said = f"To look at: {with_and([*doubtful[:_ANNOTATORS_NAMED], *more])}."
    spread = f"The strictness of {count(len(table), 'annotator')} has a standard deviation of {table.width:.3g}."
    return {
        "rows": rows,
        "n": len(table),
        "n_doubtful": len(doubtful),
        "n_left_out": len(order) - len(rows),
        "width": table.width,
        "reach": float(np.max(np.abs(table.strictness_interval()), initial=0.0)) or 1.0,
        "has_flips": table.flip_rates is not None,
        "has_kappa": bool(np.any(np.isfinite(table.kappa))),
        "reading": f"{spread} {said}",
    }


# ---------------------------------------------------------------------------------------------------------------------
# The answer in a sentence, the key figures, and the certificate in words.


_ACCURACY = {"out-of-fold": "Cross-validated accuracy", "given": "Accuracy", "in-sample": "Training accuracy"}


def _answer(facts: dict[str, Any]) -> str:
    """Give the accuracy beside its baseline, and the share of wrong labels."""
    quality, pairs = facts["quality"], facts["pairs"]
    baseline = f"baseline {percent(quality['baseline'])}, {_baseline(quality)}"
    if facts["fit"]["rank"] == 0:
        sides = "close from far" if pairs["kind"] == Kind.CLOSE_FAR else "the answers"
        return f"No direction separates {sides}: the metric is zero, and its accuracy is the {baseline}."
    shown, unit, accuracy = count(pairs["n_pairs"], pairs["noun"]), pairs["unseen"], percent(quality["accuracy"])
    where = f"on {shown}: {accuracy}"
    if quality["known"] is not None:
        known = f"{percent(quality['known']['accuracy'])} for new {pairs['noun']}s of known {unit}s"
        where = f"for new {unit}s: {accuracy} on {shown}; {known}"
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
    if quality["auc"] is not None:
        found.append(("ROC AUC", f"{quality['auc']:.3f}", "0.5 is chance, 1 is perfect"))
    elif kind != Kind.COMPARISONS:
        found.append(("ROC AUC", "none", "nothing to separate"))
    name = "Rated as another level" if kind == Kind.LEVELS else f"Wrong {pairs['term']}s"
    if wrong["reason"] is not None:
        found.append((name, "unknown", "can't be estimated here"))
    else:
        if wrong["kind"] == "contradiction":
            name = "Labels far off" if kind == Kind.LEVELS else f"Contradicting {pairs['term']}s"
        found.append((name, percent(wrong["share"]), _interval(wrong, "share")))
    thresholds, n_levels = fit["thresholds"], len(pairs["labels"])
    if thresholds:
        name = "Threshold τ" if len(thresholds) == 1 else "Thresholds"
        found.append((name, ", ".join(map(digits, thresholds)), "of the squared distance"))
    found.append(("Rank of M", f"{fit['rank']} of {fit['n_features']}", "directions used"))
    is_alone = facts["certificate"]["outcome"] in ("truncated", "unknown")  # a metric without its fit
    name = f"{'Evaluated' if is_alone else 'Training'} {noun}s"
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
    certificate, term, is_bounded = fit.certificate, fit.kind.term, fit.settings.fit_origin and fit.alpha == 0
    others = f"metric {'up to a thousand times the size of this one' if is_bounded else 'of any rank'}"
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
    wrong, term = facts["wrong_labels"], facts["pairs"]["term"]
    if facts["quality"]["is_chance"]:
        return "this is not clearly better than chance"
    if wrong["kind"] != "probability":
        return f"how many {term}s are wrong can't be estimated"
    are = f"pairs were {ANOTHER_LEVEL}" if facts["pairs"]["kind"] == Kind.LEVELS else f"{term}s are wrong"
    return f"about {percent(wrong['share'])} of the {are}"


# ---------------------------------------------------------------------------------------------------------------------
# What to do with the model next, as code that runs as it stands.


def _next_steps(metric: Metric, provenance: Provenance) -> list[dict[str, str]]:
    """Return a title, a language and code for each."""
    model, steps = provenance.model or "model.closefar", []
    if provenance.is_command_line:
        steps.append({"title": "On the command line", "language": "shell", "code": _commands(provenance, model)})
        kind, option, rows = ("points", "", "") if provenance.points else ("pairs", ", labelled=False", "[:, 0]")
        code = (
            f"from closefar.learners import Model\nfrom closefar.tables import Source, read_{kind}\n\n"
            f"model = Model.load({model!r})\nmetric = model.metric\n"
            f"source = model.source(Source({kind}={provenance.files.get(kind)!r}))\n"
            "# Categories are encoded as in the fit.\n"
            f"points = read_{kind}(source, encoding=model.encoding{option}).data{rows}"
        )
    else:
        save = "" if provenance.model else f"learner.metric_.save({model!r})  # the learner of this report\n"
        code = (
            f"import numpy as np\nimport closefar as cf\n\n{save}metric = cf.load({model!r})\n"
            f"points = np.zeros((2, {len(metric.factor)}))  # put yours here, with the columns of metric.column_names"
        )
    code += f"\n\n{_code_for_points(metric)}"
    return [*steps, {"title": "In Python", "language": "python", "code": code}]


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


def _commands(provenance: Provenance, model: str) -> str:
    files = {name: f"--{name} {shlex.quote(file)}" for name, file in provenance.files.items()}
    model = f"--model {shlex.quote(model)}"
    judged = [files[name] for name in files if name in ("points", "pairs" if "pairs" in files else "comparisons")]
    commands = [f"closefar predict {model} {' '.join(judged)} --out predicted.csv"]
    if "points" in files:
        commands.append(f"closefar transform {model} {files['points']} --out mapped.csv")
    return "\n".join([*commands, f"closefar evaluate {model} {' '.join(files.values())}"])
