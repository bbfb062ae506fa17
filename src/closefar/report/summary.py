"""All that a report shows, in one dict."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import date
from importlib.metadata import version
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from closefar.arrays import IndexArray
from closefar.fitting import Fit, Fitted
from closefar.judgements import Judgements, Kind, SharedPointsWarning
from closefar.model import in_data_scale
from closefar.plain import plain
from closefar.questions import describe_evidence
from closefar.questions import summarize as summary_of
from closefar.report.agreement import calibration, distances, quality, roc
from closefar.report.answer import answer, certificate_words, key_figures
from closefar.report.certainty import intervals
from closefar.report.choosing import baseline, choice
from closefar.report.doubts import caveat, noise_check, problems, read_ids, shared_points, wrong_labels
from closefar.report.evidence import Judged, is_training, judge
from closefar.report.growth import learning_curve
from closefar.report.kinds import annotators, comparisons
from closefar.report.maps import distinct_points, pair_map, point_map
from closefar.report.provenance import Provenance
from closefar.report.shape import directions, matrix, spectrum, truncation
from closefar.report.usage import next_steps
from closefar.report.wording import count, listed, percent

__all__ = ["DEFAULT_TITLE", "N_PARTS", "summarize"]

N_PARTS = 5  # of which `watch` is told
DEFAULT_TITLE = "Learned distance metric"

_ORDERED_HERE = (
    "The model file does not say how its training pairs vary, so directions are numbered by the mean squared distance "
    "that they explain on the pairs given; transform has them in another order. Fit again to have one order."
)

Watch = Callable[[str], None]


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
    n_bootstrap: int | None = None,
    watch: Watch | None = None,
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
    n_bootstrap : int, optional
        Compute the intervals from so many bootstrap refits; by default as `confidence` chooses.
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
    tell, provenance = watch or _say_nothing, provenance or Provenance()
    seed = int(check_random_state(random_state).randint(2**31))
    given = fit.read_or_training(X, y, sample_weight)
    texts = read_ids(ids, len(given))
    dependent = shared_points(texts, groups, given)
    shown, training = _with_training(fit, given.counted(), is_of_fit=X is None)
    # Most matrices here are small: more threads then wait for each other, and ten times as long where others run.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", SharedPointsWarning)  # the report says it
        fit = _with_ordered_directions(fit, shown)
        facts = _facts(fit, shown, training, texts, dependent, provenance, seed, n_bootstrap, tell)
    facts = {**_headline(title, facts, provenance), **facts}
    return cast("dict[str, Any]", plain(_in_words_of(provenance, facts), finite=True))


def _facts(
    fit: Fit,
    shown: Judgements,
    training: Judgements | None,
    ids: Any,
    groups: NDArray[Any] | None,
    provenance: Provenance,
    seed: int,
    n_bootstrap: int | None,
    tell: Watch,
) -> dict[str, Any]:
    metric, is_of_fit = fit.metric, shown is training
    names, scales = list(metric.column_names), np.array(fit.statistics.column_scales)
    facts: dict[str, Any] = {"version": version("closefar")}

    tell("cross-validation")
    judged = judge(fit, shown, has_seen=is_of_fit, seed=seed, groups=groups)
    facts["pairs"] = _pairs(fit, judged, shown)
    facts["quality"] = quality(judged, metric, facts["pairs"]["labels"])
    facts["distances"] = distances(judged, metric, facts["pairs"]["labels"])
    is_chance = facts["quality"]["is_chance"]
    facts["choice"], facts["baseline"] = choice(fit), baseline(fit)
    facts["calibration"] = calibration(judged, caveat=caveat(fit))
    facts["roc"] = roc(judged, metric)
    facts["wrong_labels"], suspects = wrong_labels(judged.label_by_label, fit, ids, is_chance=is_chance)
    tell("truncation")
    facts["spectrum"] = spectrum(metric)
    facts["truncation"] = truncation(fit, shown, is_training=is_of_fit, seed=seed)
    facts["directions"] = directions(metric, names, scales)
    facts["matrix"] = matrix(metric, names, scales)
    facts["pair_map"], facts["point_map"] = _maps(fit, shown, suspects, groups, provenance, seed)
    tell("noise check")
    facts["noise_check"] = noise_check(fit, shown, seed, groups)
    tell("learning curve")
    facts["learning_curve"] = learning_curve(fit, shown if training is None else training, seed)
    if judged.unseen != "pair" and facts["learning_curve"]["reason"] is None:
        facts["learning_curve"]["reading"] += f" This holds for new {judged.noun}s of known {judged.unseen}s."
    tell("intervals")
    own = groups[shown.numbers] if groups is not None and is_of_fit else None
    facts["intervals"] = intervals(fit, training, names, n_bootstrap=n_bootstrap, seed=seed, groups=own)
    facts["annotators"] = annotators(fit)
    facts["comparisons"] = comparisons(fit)
    facts["evidence"] = describe_evidence(fit)
    facts["problems"] = problems(fit, facts["noise_check"], is_chance=is_chance, groups=groups if is_of_fit else None)
    facts["certificate"] = _certificate(fit)
    facts["fit"] = _fit(fit, provenance)
    facts["next_steps"] = next_steps(metric, provenance)
    facts["sentence"] = answer(facts)
    facts["key_figures"] = key_figures(facts)
    return facts


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
    counts = ", ".join(parts)
    named = [("Data", listed(files)), ("Model", provenance.model), ("Date", date.today().isoformat())]
    return {
        "title": title or (f"{DEFAULT_TITLE}: {listed(files)}" if files else DEFAULT_TITLE),
        "is_command_line": provenance.is_command_line,
        "about": [{"name": name, "value": value} for name, value in [*named, ("Size", counts)] if value],
    }


def _in_words_of(provenance: Provenance, facts: dict[str, Any]) -> dict[str, Any]:
    """Advice as the reader's tool has it; nothing that may hold a name of the user's without quotes."""
    found = {**facts, "problems": [provenance.say(problem) for problem in facts["problems"]]}
    for part, names in {
        "calibration": ("reading",),
        "choice": ("sentence",),
        "certificate": ("advice", "status"),
        "intervals": ("reason", "statement"),
        "learning_curve": ("reason",),
        "noise_check": ("reason", "reading", "advice"),
        "wrong_labels": ("reason", "doubt", "reading"),
    }.items():
        if facts[part] is None:
            continue
        said = {name: provenance.say(facts[part][name]) for name in names if facts[part].get(name)}
        found[part] = {**facts[part], **said}
    return found


def _maps(
    fit: Fit,
    shown: Judgements,
    suspects: IndexArray,
    groups: NDArray[Any] | None,
    provenance: Provenance,
    seed: int,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The map of the pairs, and that of their points where they are known."""
    metric, strongest = fit.metric, fit.metric.directions()
    of_pairs = pair_map(metric, strongest, shown, suspects, seed)
    known = distinct_points(shown, groups, seed)
    if known is None:
        return of_pairs, {"reason": "The points themselves are not known, only their differences."}
    importance = np.sum(metric.factor**2, axis=1) * np.array(fit.statistics.column_scales) ** 2
    categories = provenance.categories
    return of_pairs, point_map(metric, strongest, *known, importance=importance, categories=categories, seed=seed)


def _pairs(fit: Fit, judged: Judged, shown: Judgements) -> dict[str, Any]:
    return {
        "source": judged.source,
        "unseen": judged.unseen,
        "words": judged.words,
        "n_pairs": len(judged.judgements),
        "n_given": len(shown),
        "kind": str(fit.kind),
        "share_far": shown.mean(shown.is_far) if fit.kind is Kind.CLOSE_FAR else None,
        "n_fitted": fit.statistics.n_pairs,
        "labels": _labels(fit),
        "noun": judged.noun,
        "term": fit.kind.term,
        "weighted": shown.sample_weight is not None,
    }


def _labels(fit: Fit) -> list[str]:
    """The labels, closest first."""
    if fit.sides.is_graded:
        return [str(level) for level in fit.sides.classes.tolist()]
    return [str(fit.sides.close), str(fit.sides.far)]


def _certificate(fit: Fit) -> dict[str, Any]:
    return {**asdict(fit.certificate), "status": fit.certificate.status, **certificate_words(fit)}


def _fit(fit: Fit, provenance: Provenance) -> dict[str, Any]:
    metric, parameters = fit.metric, fit.settings.parameters
    if fit.kind is Kind.CLOSE_FAR:
        parameters = {**parameters, "far_label": fit.sides.far}
    return {
        **asdict(fit.statistics),
        "noise": metric.noise.name,
        "flip_rate": metric.flip_rate,
        "threshold": metric.threshold,
        "thresholds": list(metric.thresholds),
        "rank": metric.rank,
        "n_features": len(metric.factor),
        "origin": metric.origin,
        "alpha": fit.alpha,
        "prior": fit.prior if isinstance(fit.prior, str) else "metric",
        "scale": fit.known.scale,
        "engine": fit.engine,
        "parameters": {name: _text(value) for name, value in parameters.items()},
        "summary": summary_of(fit, provenance.say),
    }


def _with_training(fit: Fit, shown: Judgements, *, is_of_fit: bool) -> tuple[Judgements, Judgements | None]:
    """The pairs to show, and those of the fit where they are known: the same object where they are the same pairs."""
    if is_of_fit or is_training(fit, shown):
        return shown, shown
    return shown, None if fit.judgements is None else fit.training().counted()


def _with_ordered_directions(fit: Fit, shown: Judgements) -> Fit:
    """The fit, its directions ordered by these pairs where its metric does not know those that it was learned from."""
    if fit.metric.data_factor is not None or fit.metric.rank == 0:
        return fit
    metric = in_data_scale(fit.metric, shown.data, shown.weights)
    return replace(fit, metric=metric, problems=(*fit.problems, _ORDERED_HERE))


def _text(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _say_nothing(_: str) -> None:
    pass
