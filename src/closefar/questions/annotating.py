"""What a fit knows of the annotators of judgements, and of the noise of comparisons."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from closefar.arrays import FloatArray
from closefar.fitting import Fit
from closefar.judgements import Judgements, Kind
from closefar.judgements.annotators import read_annotators

__all__ = ["Strictness", "annotator_rates", "comparison_noise_of", "read_for", "strictness_in"]


@dataclass(frozen=True, eq=False)
class Strictness:
    """What each annotator adds to the thresholds, and the standard deviation of that among annotators."""

    by_annotator: FloatArray
    width: float


def strictness_in(fit: Fit, judgements: Judgements) -> Strictness | None:
    """The strictness of the annotators of these judgements; None if they have none."""
    table = fit.annotators
    if table is None or judgements.annotators is None:
        return None
    return Strictness(table.strictness, table.width)


def annotator_rates(fit: Fit, judgements: Judgements) -> Any:
    """The flip rate of each judgement, attached comparisons last; None if annotators have no rates of their own."""
    table = fit.annotators
    if table is None or judgements.annotators is None or table.flip_rates is None:
        return None
    rates = np.asarray(table.flip_rates)[judgements.annotators.codes]
    others = judgements.comparisons
    return rates if others is None else np.append(rates, np.full(len(others), fit.metric.one_flip_rate))


def comparison_noise_of(fit: Fit) -> float:
    """The noise of comparisons relative to that of pairs; one where there is only one of them."""
    return 1.0 if fit.comparison_noise is None else fit.comparison_noise.value


def read_for(
    fit: Fit, X: Any, y: Any = None, sample_weight: Any = None, annotators: Any = None, comparisons: Any = None
) -> Judgements:
    """Validate judgements for a question, or return those of training; a fit with annotators needs theirs."""
    if X is None:
        if annotators is not None or comparisons is not None:
            raise ValueError("annotators and comparisons must be given with their pairs; got no pairs. Pass them, too.")
        return fit.training()
    judgements = fit.read(X, y, sample_weight)
    if isinstance(X, Judgements):
        return judgements
    if judgements.kind is Kind.COMPARISONS and (annotators is not None or comparisons is not None):
        raise ValueError("annotators and comparisons belong to pairs; got them with comparisons alone. Leave them out.")
    if fit.annotators is not None and annotators is None:
        raise ValueError(
            "this fit has annotators, so their ids must be given with pairs and labels; got none. Pass annotators=ids."
        )
    if fit.annotators is None and annotators is not None:
        raise ValueError("this fit has no annotators; got annotators. Leave them out, or fit with annotators=ids.")
    if fit.annotators is not None:
        known = read_annotators(annotators, len(judgements), fit.annotators.names)
        judgements = replace(judgements, annotators=known)
    return judgements if comparisons is None else judgements.with_comparisons(fit.columns, comparisons)
