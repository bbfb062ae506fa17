"""The fit in a model file: its facts in JSON, and the fit that is restored from them."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from closefar.errors import command_words
from closefar.fitting import (
    AnnotatorTable,
    Baseline,
    Choice,
    ComparisonNoise,
    Fit,
    FitStatistics,
    Scorer,
    Settings,
    count_parameters,
    measured_statistics,
)
from closefar.judgements import Columns, Judgements, Kind, Sides
from closefar.learners.base import MetricLearner
from closefar.learners.linear import ComparisonMetricLearner, LinearMetricLearner, OrdinalMetricLearner
from closefar.model import Metric
from closefar.model.modelfile import check
from closefar.plain import plain
from closefar.questions import summarize
from closefar.rows import column_scales, rows_of
from closefar.solve import Certificate, Outcome
from closefar.tables import Pairs, labels_of, others_of

_LEARNERS: dict[Kind, type[MetricLearner]] = {
    Kind.CLOSE_FAR: LinearMetricLearner,
    Kind.LEVELS: OrdinalMetricLearner,
    Kind.COMPARISONS: ComparisonMetricLearner,
}

# The settings that may be chosen, and arguments of `fit`.
_CHOSEN = ("noise", "alpha", "prior", "rank", "flip_rate", "scale", "shifts", "price", "whitens")
_OF_FIT = ("comparison_noise", "strictness_width")

_SEEN_BEFORE = (
    "These are the training pairs of the metric before truncation, so the figures are better than for new pairs."
)


@dataclass(frozen=True)
class StoredFit:
    """What a model file tells about a fit: each field is written to JSON, and read and checked by its type."""

    kind: Kind
    certificate: Certificate
    statistics: FitStatistics
    n_iter: int
    rank: int | None
    comparison_noise: ComparisonNoise | None
    annotators: AnnotatorTable | None
    choice: Choice | None
    baseline: Baseline | None
    engine: str
    problems: tuple[str, ...]
    parameters: dict[str, Any]
    known: dict[str, Any]
    fingerprint: str
    summary: str


_AS_IN_FIT = {each.name for each in fields(StoredFit)} & {each.name for each in fields(Fit)} - {"known"}


def store_fit(fit: Fit, fingerprint: str) -> dict[str, Any]:
    """Return the facts of a fit as JSON has them; its other metrics are arrays of the file."""
    stored = StoredFit(
        **{name: getattr(fit, name) for name in _AS_IN_FIT},
        parameters={**fit.settings.parameters, "device": None, "far_label": fit.sides.far, **_named(fit.settings)},
        known={name: getattr(fit.known, name) for name in (*_CHOSEN, *_OF_FIT)} | _named(fit.known),
        fingerprint=fingerprint,
        summary=command_words(summarize(fit)),
    )
    if fit.baseline is not None:
        stored = replace(stored, baseline=replace(fit.baseline, metric=None))
    facts: dict[str, Any] = plain(stored)
    facts["certificate"]["status"] = str(fit.certificate.status)
    return facts


def metrics_beside(fit: Fit) -> dict[str, Metric]:
    """The plain distance, and what M was shrunk to, where it is a metric."""
    plain_distance = None if fit.baseline is None else fit.baseline.metric
    prior = fit.settings.prior
    found = {"plain": plain_distance, "prior": prior if isinstance(prior, Metric) else None}
    return {name: metric for name, metric in found.items() if metric is not None}


def classes_of(fit: Fit) -> tuple[str, ...]:
    """The words of the labels from closest to farthest; comparisons have none."""
    if not fit.metric.thresholds:
        return ()
    levels = fit.sides.classes.tolist() if fit.sides.is_graded else (fit.sides.close, fit.sides.far)
    return tuple(map(str, levels))


def restore_fit(metric: Metric, classes: tuple[str, ...], facts: dict[str, Any], beside: dict[str, Metric]) -> Fit:
    """Build the fit of a metric, without the pairs that it was fitted to; `beside` are other metrics of its file."""
    stored: StoredFit = _restored(StoredFit, facts, "fit")
    check(len(stored.statistics.column_scales) == len(metric.factor), "column_scales")
    check(set(stored.parameters) <= set(LinearMetricLearner().get_params()), "parameters")
    given, known = _objects(stored.parameters, beside), _objects(stored.known, beside)
    check(all(isinstance(each, int | float) for each in (known["alpha"], known["scale"], *known["shifts"])), "known")
    known["shifts"] = tuple(known["shifts"])
    settings = Settings.of(learner_of(stored.kind, given, classes), **{name: known[name] for name in _OF_FIT})
    if stored.baseline is not None:
        stored = replace(stored, baseline=replace(stored.baseline, metric=beside.get("plain")))
    return Fit(
        **{name: getattr(stored, name) for name in _AS_IN_FIT},
        settings=settings,
        known=settings.but(**{name: known[name] for name in _CHOSEN}),
        metric=metric,
        history=(),
        sides=Sides.in_order(classes),
        columns=Columns(len(metric.factor), metric.feature_names),
        judgements=None,
    )


def metric_alone(
    metric: Metric, classes: tuple[str, ...], outcome: Outcome, before: Fit | None, table: Pairs, *, is_known: bool
) -> Fit:
    """Build a fit for a metric that was truncated, or stored without its fit, from labelled pairs.

    `before` is the fit before truncation; `is_known` says whether these are its pairs.
    """
    sides, columns = Sides.in_order(classes), Columns(len(metric.factor), metric.feature_names)
    given = replace(judgements_for(columns, sides, table), annotators=None, comparisons=None).counted()
    has_origin, squared, scorer = metric.origin is not None, metric.measure(given.data), Scorer(metric)
    if before is None:
        parameters = {"noise": metric.noise, "alpha": 0.0, "fit_origin": has_origin, "flip_rate": metric.flip_rate}
        settings = known = Settings.of(learner_of(given.kind, parameters, classes))
        scales = column_scales(rows_of(given.data), given.shares, centred=has_origin)
    else:
        settings, known, scales = before.settings, before.known, np.array(before.statistics.column_scales)
    n_thresholds = len(metric.thresholds)
    n_parameters = count_parameters(len(metric.factor), metric.rank or None, n_thresholds=n_thresholds)
    return Fit(
        settings=settings,
        known=known,
        metric=metric,
        certificate=Certificate.without_fit(outcome, scorer.score(given, squared).loss, metric.rank),
        history=(),
        n_iter=0,
        statistics=measured_statistics(given, squared, scorer, scales, n_parameters),
        problems=(_SEEN_BEFORE,) if is_known else (),
        rank=metric.rank,
        sides=sides,
        columns=columns,
        judgements=None,
        kind=given.kind,
    )


def judgements_for(columns: Columns, sides: Sides, table: Pairs) -> Judgements:
    """Validate the judgements of a table, which must have the columns and the labels of a fit."""
    given = (table.data, labels_of(table), table.weights)
    if table.are_comparisons:
        return Judgements.read_comparisons(columns, *given, fitting=False)
    others = others_of(table)
    compared = others.pop("comparisons", None)
    read = Judgements.read_more(columns, *given, sides=sides, **others)
    return read if compared is None else read.with_comparisons(columns, compared)


def learner_of(kind: Kind, parameters: dict[str, Any], classes: tuple[str, ...]) -> MetricLearner:
    """Build the learner of a kind of judgement, with these of its parameters that it has."""
    known = _LEARNERS[kind]().get_params()
    given = {**parameters, "levels": list(classes), "far_label": classes[-1] if classes else None}
    return _LEARNERS[kind](**{name: value for name, value in given.items() if name in known})


def _named(settings: Settings) -> dict[str, Any]:
    """The settings that may be objects, by their names; a metric is an array of the file."""
    noise, prior = settings.noise, settings.prior
    return {
        "noise": noise if isinstance(noise, str) else noise.name,
        "prior": "metric" if isinstance(prior, Metric) else prior,
    }


def _objects(values: dict[str, Any], beside: dict[str, Metric]) -> dict[str, Any]:
    """Settings from a file, with the objects that it names."""
    found = dict(values)
    if isinstance(found["flip_rate"], list):
        found["flip_rate"] = tuple(found["flip_rate"])
    if found["prior"] == "metric":
        found["prior"] = beside["prior"]
    return found


def _restored(kind: Any, value: Any, name: str) -> Any:
    """Build a value of a type from JSON, field by field; JSON that does not fit the type is refused."""
    origin, of = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if type(None) in of:
        return None if value is None else _restored(of[0], value, name)
    if origin is np.ndarray:
        array = np.array(value, dtype=get_args(of[1])[0])
        check(array.ndim == 1, name)
        return array
    if origin is tuple:
        check(isinstance(value, list), name)
        kinds = of[:1] * len(value) if of[-1] is Ellipsis else of
        return tuple(_restored(each, item, name) for each, item in zip(kinds, value, strict=True))
    if is_dataclass(kind):
        found = {field: _restored(each, value[field], field) for field, each in get_type_hints(kind).items()}
        columns = [column for column in found.values() if isinstance(column, np.ndarray)]
        check(all(len(column) == len(found["names"]) for column in columns), name)
        return kind(**found)  # type: ignore[operator]
    if issubclass(kind, tuple):
        hints = get_type_hints(kind).items()
        return kind(*(_restored(each, item, field) for (field, each), item in zip(hints, value, strict=True)))
    if issubclass(kind, Enum):
        return kind(value)
    check(isinstance(value, (int, float) if kind is float else origin or kind), name)
    return value
