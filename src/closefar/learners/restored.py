"""Fits restored from model files."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from closefar.fitting import Fit, FitStatistics, PenaltyChoice, PenaltyScore, Settings, count_parameters
from closefar.judgements import Columns, Judgements, Sides
from closefar.learners.linear import LinearMetricLearner
from closefar.model import Metric, Scored
from closefar.rows import column_scales, rows_of
from closefar.solve import Certificate, Outcome
from closefar.tables import Pairs

__all__ = ["metric_alone", "restore_fit"]

_SEEN_BEFORE = (
    "These are the training pairs of the metric before truncation, so the figures are better than for new pairs."
)


def restore_fit(metric: Metric, classes: tuple[str, str], facts: dict[str, Any]) -> Fit:
    """Build the fit of a metric, without the pairs that it was fitted to."""
    statistics = _restored(FitStatistics, {**_UNKNOWN, **facts["statistics"]})
    _check(len(statistics.column_scales) == len(metric.factor), "column_scales")
    _check(facts["rank"] is None or isinstance(facts["rank"], int), "rank")
    chosen_alpha = facts.get("chosen_alpha")
    _check(chosen_alpha is None or isinstance(chosen_alpha, int | float), "chosen_alpha")
    return Fit(
        settings=Settings.of(LinearMetricLearner(**facts["parameters"])),
        metric=metric,
        certificate=_certificate(facts["certificate"]),
        history=(),
        n_iter=facts["n_iter"],
        statistics=statistics,
        problems=tuple(str(problem) for problem in facts["problems"]),
        rank=facts["rank"],
        sides=Sides.of(*classes),
        columns=Columns(len(metric.factor), metric.feature_names),
        judgements=None,
        chosen_alpha=chosen_alpha,
        penalty_choice=_penalty_choice(facts.get("penalty_choice")),
        engine=str(facts.get("engine", "")),
    )


def metric_alone(
    metric: Metric,
    classes: tuple[str, str],
    outcome: Outcome,
    before: Fit | None,
    table: Pairs,
    *,
    is_known: bool,
) -> Fit:
    """Build a fit for a metric that was truncated, or stored without its fit, from labelled pairs.

    `before` is the fit before truncation; `is_known` says whether these are its pairs.
    """
    sides, columns = Sides.of(*classes), Columns(len(metric.factor), metric.feature_names)
    given = Judgements.read_more(columns, table.data, table.labels, table.weights, sides=sides).counted()
    scored, has_origin = Scored.by(metric, given), metric.origin is not None
    if before is None:
        learner = LinearMetricLearner(noise=metric.noise, fit_origin=has_origin, flip_rate=metric.one_flip_rate)
        settings, scales = Settings.of(learner), column_scales(rows_of(given.data), given.shares, centred=has_origin)
    else:
        settings, scales = before.settings, np.array(before.statistics.column_scales)
    n_parameters = count_parameters(len(metric.factor), metric.rank or None)
    return Fit(
        settings=settings,
        metric=metric,
        certificate=Certificate.without_fit(outcome, scored.loss, metric.rank),
        history=(),
        n_iter=0,
        statistics=FitStatistics.of(scored, scales, n_parameters),
        problems=(_SEEN_BEFORE,) if is_known else (),
        rank=metric.rank,
        sides=sides,
        columns=columns,
        judgements=None,
    )


# Values that files of earlier versions do not contain.
_UNKNOWN = {"n_parameters": 1, "uncertain_labels": float("nan")}


def _certificate(values: dict[str, Any]) -> Certificate:
    """Build the certificate; in files of earlier versions the outcome and the advice are only in the status."""
    outcome, _, advice = values["status"].partition(": ")
    certificate: Certificate = _restored(Certificate, {"outcome": outcome, "advice": advice, **values})
    return certificate


def _penalty_choice(values: dict[str, Any] | None) -> PenaltyChoice | None:
    if values is None:
        return None
    choice = PenaltyChoice(**{**values, "table": tuple(PenaltyScore(*score) for score in values["table"])})
    _check(isinstance(choice.alpha, float) and isinstance(choice.alpha_scale, int | float | str), "penalty_choice")
    return choice


_KINDS: dict[str, Any] = {
    "float": (int, float),
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
