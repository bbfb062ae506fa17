"""What a fit knows of the annotators of judgements, and judgements that are read for a question."""

from __future__ import annotations

from typing import Any

import numpy as np

from closefar.arrays import FloatArray
from closefar.fitting import AnnotatorTable, Fit
from closefar.judgements import Judgements, Kind

__all__ = ["annotator_rates", "read_for", "table_of"]


def table_of(fit: Fit, judgements: Judgements) -> AnnotatorTable | None:
    """What the fit knows of the annotators of these judgements; None if they have none."""
    return None if judgements.annotators is None else fit.annotators


def annotator_rates(fit: Fit, judgements: Judgements) -> FloatArray | None:
    """The flip rate of each judgement, attached comparisons last; None if annotators have no rates of their own."""
    table = fit.annotators
    if table is None or judgements.annotators is None or table.flip_rates is None:
        return None
    rates = table.flip_rates[judgements.annotators.codes]
    others = judgements.comparisons
    return rates if others is None else np.append(rates, np.full(len(others), fit.metric.one_flip_rate))


def read_for(
    fit: Fit, X: Any, y: Any = None, sample_weight: Any = None, annotators: Any = None, comparisons: Any = None
) -> Judgements:
    """Validate judgements for a question, or return those of training; a fit with annotators needs theirs."""
    if X is None:
        if annotators is not None or comparisons is not None:
            raise ValueError("annotators and comparisons must be given with their pairs; got no pairs. Pass them, too.")
        return fit.training()
    if isinstance(X, Judgements):
        return X
    if fit.kind is Kind.COMPARISONS and (annotators is not None or comparisons is not None):
        raise ValueError("annotators and comparisons belong to pairs; got them with comparisons alone. Leave them out.")
    if fit.annotators is not None and annotators is None:
        raise ValueError(
            "this fit has annotators, so their ids must be given with pairs and labels; got none. Pass annotators=ids."
        )
    if fit.annotators is None and annotators is not None:
        raise ValueError("this fit has no annotators; got annotators. Leave them out, or fit with annotators=ids.")
    return fit.read(X, y, sample_weight, annotators=annotators, comparisons=comparisons)
