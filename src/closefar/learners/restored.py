"""Fits restored from model files."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from closefar.fitting import (
    AnnotatorTable,
    AnnotatorVerdict,
    Baseline,
    Choice,
    ComparisonNoise,
    Fit,
    FitStatistics,
    Scorer,
    Settings,
    Tried,
    count_parameters,
    measured_statistics,
)
from closefar.judgements import Columns, Judgements, Kind, Sides
from closefar.learners.comparisons import ComparisonMetricLearner
from closefar.learners.fitting_learner import FittingLearner
from closefar.learners.linear import LinearMetricLearner
from closefar.learners.ordinal import OrdinalMetricLearner
from closefar.model import Metric
from closefar.rows import column_scales, rows_of
from closefar.solve import Certificate, Outcome
from closefar.tables import Pairs, labels_of, others_of

__all__ = ["judgements_for", "known_facts", "learner_of", "metric_alone", "restore_fit"]

_LEARNERS: dict[Kind, type[FittingLearner]] = {
    Kind.CLOSE_FAR: LinearMetricLearner,
    Kind.LEVELS: OrdinalMetricLearner,
    Kind.COMPARISONS: ComparisonMetricLearner,
}

_OF_ANNOTATORS = ("strictness", "strictness_errors", "agreement", "kappa", "information")

# The settings that may be chosen, and arguments of `fit`.
_CHOSEN = ("noise", "alpha", "prior", "rank", "flip_rate", "scale", "shifts", "price", "whitens")
_OF_FIT = ("comparison_noise", "strictness_width")

_SEEN_BEFORE = (
    "These are the training pairs of the metric before truncation, so the figures are better than for new pairs."
)


def known_facts(settings: Settings) -> dict[str, Any]:
    """The settings of a fit that its parameters do not say."""
    return {name: getattr(settings, name) for name in (*_CHOSEN, *_OF_FIT)}


def learner_of(kind: Kind, parameters: dict[str, Any], classes: tuple[str, ...]) -> FittingLearner:
    """Build the learner of a kind of judgement, with these of its parameters that it has."""
    known = _LEARNERS[kind]().get_params()
    given = {**parameters, "levels": list(classes), "far_label": classes[-1] if classes else None}
    return _LEARNERS[kind](**{name: value for name, value in given.items() if name in known})


def judgements_for(columns: Columns, sides: Sides, table: Pairs) -> Judgements:
    """Validate the judgements of a table, which must have the columns and the labels of a fit."""
    given = (table.data, labels_of(table), table.weights)
    if table.are_comparisons:
        return Judgements.read_comparisons(columns, *given, fitting=False)
    others = others_of(table)
    compared = others.pop("comparisons", None)
    read = Judgements.read_more(columns, *given, sides=sides, **others)
    return read if compared is None else read.with_comparisons(columns, compared)


def restore_fit(metric: Metric, classes: tuple[str, ...], facts: dict[str, Any], beside: dict[str, Metric]) -> Fit:
    """Build the fit of a metric, without the pairs that it was fitted to; `beside` are other metrics of its file."""
    statistics = _restored(FitStatistics, facts["statistics"])
    _check(len(statistics.column_scales) == len(metric.factor), "column_scales")
    _check(facts["rank"] is None or isinstance(facts["rank"], int), "rank")
    kind = Kind(facts["kind"])
    _check(set(facts["parameters"]) <= set(LinearMetricLearner().get_params()), "parameters")
    settings, known = _settings(kind, facts, classes, beside)
    return Fit(
        settings=settings,
        known=known,
        metric=metric,
        certificate=_restored(Certificate, facts["certificate"]),
        history=(),
        n_iter=facts["n_iter"],
        statistics=statistics,
        problems=tuple(str(problem) for problem in facts["problems"]),
        rank=facts["rank"],
        sides=Sides.in_order(classes),
        columns=Columns(len(metric.factor), metric.feature_names),
        judgements=None,
        kind=kind,
        comparison_noise=_comparison_noise(facts["comparison_noise"]),
        annotators=_annotators(facts["annotators"]),
        choice=_choice(facts["choice"]),
        baseline=_baseline(facts["baseline"], beside.get("plain")),
        engine=str(facts["engine"]),
    )


def metric_alone(
    metric: Metric,
    classes: tuple[str, ...],
    outcome: Outcome,
    before: Fit | None,
    table: Pairs,
    *,
    is_known: bool,
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


def _settings(
    kind: Kind, facts: dict[str, Any], classes: tuple[str, ...], beside: dict[str, Metric]
) -> tuple[Settings, Settings]:
    """The settings as given, and with what was chosen."""
    given, known = _objects(facts["parameters"], beside), _objects(facts["known"], beside)
    numbers = (known["alpha"], known["scale"], *known["shifts"])
    _check(all(isinstance(number, int | float) for number in numbers), "known")
    known["shifts"] = tuple(known["shifts"])
    settings = Settings.of(learner_of(kind, given, classes), **{name: known[name] for name in _OF_FIT})
    return settings, settings.but(**{name: known[name] for name in _CHOSEN})


def _objects(values: dict[str, Any], beside: dict[str, Metric]) -> dict[str, Any]:
    """Settings from a file, with the objects that it names."""
    found = dict(values)
    if isinstance(found["flip_rate"], list):
        found["flip_rate"] = tuple(found["flip_rate"])
    if found["prior"] == "metric":
        found["prior"] = beside["prior"]
    return found


def _comparison_noise(values: dict[str, Any] | None) -> ComparisonNoise | None:
    if values is None:
        return None
    interval = values["interval"]
    return ComparisonNoise(float(values["value"]), interval and (float(interval[0]), float(interval[1])))


def _annotators(values: dict[str, Any] | None) -> AnnotatorTable | None:
    if values is None:
        return None
    columns = {name: np.array(values[name]) for name in ("judgements", *_OF_ANNOTATORS)}
    _check({column.shape for column in columns.values()} == {(len(values["names"]),)}, "annotators")
    rates = values["flip_rates"]
    return AnnotatorTable(
        names=tuple(values["names"]),
        flip_rates=None if rates is None else np.array(rates, dtype=np.float64),
        verdicts=tuple(map(AnnotatorVerdict, values["verdicts"])),
        width=float(values["width"]),
        **columns,
    )


def _choice(values: dict[str, Any] | None) -> Choice | None:
    if values is None:
        return None
    table = tuple(Tried(*each) for each in values["table"])
    for each in table:
        _check(all(isinstance(number, int | float) for number in (each.alpha, each.flip_rate, *each[5:])), "choice")
    choice: Choice = _restored(Choice, {**values, "table": table})
    return choice


def _baseline(values: dict[str, Any] | None, plain: Metric | None) -> Baseline | None:
    if values is None:
        return None
    baseline: Baseline = _restored(Baseline, {**values, "metric": plain})
    return baseline


_KINDS: dict[str, Any] = {
    "float": (int, float),
    "float | None": (int, float, type(None)),
    "int": int,
    "int | None": (int, type(None)),
    "bool": bool,
    "str": str,
    "tuple[float, ...]": list,
    "Outcome": str,
    "tuple[Tried, ...]": tuple,
    "Metric | None": (Metric, type(None)),
}
_CONVERSIONS: dict[str, Any] = {"tuple[float, ...]": tuple, "Outcome": Outcome}


def _restored(kind: Any, values: dict[str, Any]) -> Any:
    """Build a dataclass of plain values from JSON; each value must have the type of its field."""
    restored = {}
    for field in fields(kind):
        value, type_name = values[field.name], str(field.type)
        _check(isinstance(value, _KINDS[type_name]), field.name)
        restored[field.name] = _CONVERSIONS.get(type_name, _as_it_is)(value)
    return kind(**restored)


def _as_it_is(value: Any) -> Any:
    return value


def _check(is_right: bool, name: str) -> None:
    if not is_right:
        raise ValueError(f"its {name} has the wrong type")
