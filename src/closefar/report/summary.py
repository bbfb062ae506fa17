"""All that a report shows, in one dict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, cast

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from closefar import __version__
from closefar.learner import LinearMetricLearner
from closefar.plain import plain
from closefar.report.agreement import calibration, distances, quality, roc
from closefar.report.answer import answer, certificate_words, key_figures
from closefar.report.certainty import intervals
from closefar.report.doubts import caveat, noise_check, problems, read_ids, shared_points, wrong_labels
from closefar.report.evidence import Pairs, is_training, judge, without_names
from closefar.report.growth import learning_curve
from closefar.report.shape import directions, matrix, spectrum, truncation
from closefar.report.usage import next_steps

__all__ = ["DEFAULT_BOOTSTRAP", "DEFAULT_TITLE", "N_PARTS", "summarize"]

N_PARTS = 5  # of which `watch` is told
DEFAULT_TITLE = "A distance learned from close/far labels"
DEFAULT_BOOTSTRAP = 40  # about a second for 15,000 pairs of ten columns

Watch = Callable[[str], None]


def summarize(
    learner: LinearMetricLearner,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    *,
    title: str = DEFAULT_TITLE,
    ids: Any = None,
    random_state: Any = 0,
    n_bootstrap: int = DEFAULT_BOOTSTRAP,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Return what the report shows, as numbers, strings, lists, dicts and None, which JSON can hold.

    A part that does not exist for this fit has a `reason` that says why; a number that does
    not exist is None.

    Parameters
    ----------
    learner : LinearMetricLearner or LinearMetricLearnerCV
        Fitted.
    X, y, sample_weight : optional
        Pairs, labels and weights as for `learner.fit`.  By default those of the fit, each judged
        by a fit that has not seen it; so are these if they turn out to be those of the fit.
        Others are judged by the learner itself.
    title : str
        The headline.
    ids : array of shape (n,) or (n, 2), optional
        A name for each pair, or for each of its points, to show suspicious pairs by; else they
        are shown by their row numbers, from 0.
    random_state : int, RandomState or None, default=0
        Chooses folds, samples and refits; an int gives the same report each time.
    n_bootstrap : int
        Refits behind the intervals, where those need any.
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
    chosen = cast("LinearMetricLearner", getattr(learner, "best_estimator_", learner))
    check_is_fitted(chosen)
    tell = watch or _say_nothing
    seed = int(check_random_state(random_state).randint(2**31))
    shown, training = _pairs(chosen, X, y, sample_weight)
    names = list(chosen.metric_.column_names)
    texts = read_ids(ids, _n_given(chosen, X))
    # Most matrices here are small: more threads then wait for each other, and ten times as long where others run.
    with threadpool_limits(1):
        facts = _facts(without_names(chosen), shown, training, names, texts, title, seed, n_bootstrap, tell)
    return cast("dict[str, Any]", plain(facts, finite=True))


def _facts(
    learner: LinearMetricLearner,
    shown: Pairs,
    training: Pairs | None,
    names: list[str],
    ids: Any,
    title: str,
    seed: int,
    n_bootstrap: int,
    tell: Watch,
) -> dict[str, Any]:
    metric = learner.metric_
    is_of_fit = shown is training
    labels = [str(label) for label in learner.classes_]
    scales = np.array(learner.fit_statistics_.column_scales)
    facts: dict[str, Any] = {"title": title, "version": __version__}

    tell("judging pairs")
    judged = judge(learner, shown, has_seen=is_of_fit, seed=seed)
    facts["pairs"] = {
        "source": judged.source,
        "words": judged.words + shared_points(ids),
        "n_pairs": len(judged.pairs),
        "n_given": len(shown),
        "n_fitted": learner.fit_statistics_.n_pairs,
        "labels": labels,
        "noun": shown.noun,
        "weighted": shown.sample_weight is not None,
    }
    facts["quality"] = quality(judged, metric, labels)
    facts["distances"] = distances(judged, metric)
    is_chance = facts["quality"]["is_chance"]
    facts["calibration"] = calibration(judged, caveat=caveat(learner))
    facts["roc"] = roc(judged, metric)
    facts["wrong_labels"] = wrong_labels(judged, learner, ids, is_chance=is_chance)
    tell("truncating")
    facts["spectrum"] = spectrum(metric, shown)
    facts["truncation"] = truncation(learner, shown, is_training=is_of_fit, seed=seed)
    facts["directions"] = directions(metric, shown, names, scales)
    facts["matrix"] = matrix(metric, names, scales)
    tell("checking the noise")
    facts["noise_check"] = noise_check(learner, shown, seed)
    tell("learning from fewer pairs")
    facts["learning_curve"] = learning_curve(learner, shown if training is None else training, seed)
    tell("intervals")
    facts["intervals"] = intervals(learner, training, names, n_bootstrap=n_bootstrap, seed=seed)
    facts["problems"] = problems(learner, facts["noise_check"], is_chance=is_chance)
    facts["certificate"] = _certificate(learner)
    facts["fit"] = _fit(learner)
    facts["next_steps"] = next_steps(of_points=metric.origin is not None)
    facts["sentence"] = answer(facts)
    facts["key_figures"] = key_figures(facts)
    return facts


def _certificate(learner: LinearMetricLearner) -> dict[str, Any]:
    has_free_origin = learner.fit_origin and learner.alpha == 0
    words = certificate_words(learner.certificate_, has_flips=learner.flip_rate_ > 0, has_free_origin=has_free_origin)
    return {**asdict(learner.certificate_), **words}


def _fit(learner: LinearMetricLearner) -> dict[str, Any]:
    metric = learner.metric_
    return {
        **asdict(learner.fit_statistics_),
        "noise": metric.noise.name,
        "flip_rate": metric.flip_rate,
        "threshold": metric.threshold,
        "rank": metric.rank,
        "n_features": len(metric.factor),
        "origin": metric.origin,
        "parameters": {name: _text(value) for name, value in learner.get_params().items()},
        "summary": learner.summary(),
    }


def _pairs(learner: LinearMetricLearner, X: Any, y: Any, sample_weight: Any) -> tuple[Pairs, Pairs | None]:
    """The pairs to show, and those of the fit where they are known: the same object where they are the same pairs."""
    if X is None:
        training = Pairs.read(learner, *learner.given_or_training())
        return training, training
    shown = Pairs.read(learner, X, y, sample_weight)
    if is_training(learner, shown):
        return shown, shown
    try:
        given = learner.given_or_training()
    except ValueError:  # copied or loaded without them
        return shown, None
    return shown, Pairs.read(learner, *given)


def _n_given(learner: LinearMetricLearner, X: Any) -> int:
    return len(learner.given_or_training()[0] if X is None else X)


def _text(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _say_nothing(_: str) -> None:
    pass
