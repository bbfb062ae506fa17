"""Fits restored from model files."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from closefar.fitting import (
    AnnotatorTable,
    AnnotatorVerdict,
    ComparisonNoise,
    Fit,
    FitStatistics,
    PenaltyChoice,
    PenaltyScore,
    Scorer,
    Settings,
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

__all__ = ["judgements_for", "learner_of", "metric_alone", "restore_fit"]

_LEARNERS: dict[Kind, type[FittingLearner]] = {
    Kind.CLOSE_FAR: LinearMetricLearner,
    Kind.LEVELS: OrdinalMetricLearner,
    Kind.COMPARISONS: ComparisonMetricLearner,
}

_OF_ANNOTATORS = ("strictness", "strictness_errors", "agreement", "kappa", "information")
_SEEN_BEFORE = (
    "These are the training pairs of the metric before truncation, so the figures are better than for new pairs."
)


def learner_of(kind: Kind, parameters: dict[str, Any], classes: tuple[str, ...]) -> FittingLearner:
    """Build the learner of a kind of judgement, with these of its parameters that it has."""
    known = _LEARNERS[kind]().get_params()
    given = {**parameters, "levels": list(classes), "far_label": classes[-1] if classes else None}
    if isinstance(given.get("flip_rate"), list):  # two rates, from a file
        given["flip_rate"] = tuple(given["flip_rate"])
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


def restore_fit(metric: Metric, classes: tuple[str, ...], facts: dict[str, Any]) -> Fit:
    """Build the fit of a metric, without the pairs that it was fitted to."""
    statistics = _restored(FitStatistics, {**_UNKNOWN, **facts["statistics"]})
    _check(len(statistics.column_scales) == len(metric.factor), "column_scales")
    _check(facts["rank"] is None or isinstance(facts["rank"], int), "rank")
    chosen_alpha = facts.get("chosen_alpha")
    _check(chosen_alpha is None or isinstance(chosen_alpha, int | float), "chosen_alpha")
    kind = Kind(facts.get("kind", Kind.CLOSE_FAR))
    _check(set(facts["parameters"]) <= set(LinearMetricLearner().get_params()), "parameters")
    return Fit(
        settings=Settings.of(learner_of(kind, facts["parameters"], classes)),
        metric=metric,
        certificate=_certificate(facts["certificate"]),
        history=(),
        n_iter=facts["n_iter"],
        statistics=statistics,
        problems=tuple(str(problem) for problem in facts["problems"]),
        rank=facts["rank"],
        sides=Sides.in_order(classes),
        columns=Columns(len(metric.factor), metric.feature_names),
        judgements=None,
        kind=kind,
        comparison_noise=_comparison_noise(facts.get("comparison_noise")),
        annotators=_annotators(facts.get("annotators")),
        chosen_alpha=chosen_alpha,
        penalty_choice=_penalty_choice(facts.get("penalty_choice")),
        engine=str(facts.get("engine", "")),
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
        parameters = {"noise": metric.noise, "fit_origin": has_origin, "flip_rate": metric.flip_rate}
        settings = Settings.of(learner_of(given.kind, parameters, classes))
        scales = column_scales(rows_of(given.data), given.shares, centred=has_origin)
    else:
        settings, scales = before.settings, np.array(before.statistics.column_scales)
    n_thresholds = len(metric.thresholds)
    n_parameters = count_parameters(len(metric.factor), metric.rank or None, n_thresholds=n_thresholds)
    return Fit(
        settings=settings,
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


# Values that files of earlier versions do not contain.
_UNKNOWN = {
    "n_parameters": 1,
    "uncertain_labels": float("nan"),
    "level_shares": [],
    "n_comparisons": 0,
    "comparison_accuracy": None,
}


def _certificate(values: dict[str, Any]) -> Certificate:
    """Build the certificate; in files of earlier versions the outcome and the advice are only in the status."""
    outcome, _, advice = values["status"].partition(": ")
    certificate: Certificate = _restored(Certificate, {"outcome": outcome, "advice": advice, **values})
    return certificate


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


def _penalty_choice(values: dict[str, Any] | None) -> PenaltyChoice | None:
    if values is None:
        return None
    choice = PenaltyChoice(**{**values, "table": tuple(PenaltyScore(*score) for score in values["table"])})
    _check(isinstance(choice.alpha, float) and isinstance(choice.alpha_scale, int | float | str), "penalty_choice")
    return choice


_KINDS: dict[str, Any] = {
    "float": (int, float),
    "float | None": (int, float, type(None)),
    "int": int,
    "bool": bool,
    "str": str,
    "tuple[float, ...]": list,
    "Outcome": str,
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
