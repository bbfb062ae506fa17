"""Fits whose optimum lies at infinity though not every label is right: they are called that, and the columns named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from closefar.fitting.identifiability import name_columns
from closefar.model import Scored
from closefar.model.factors import root_of
from closefar.rows import BlockRows, Coordinates
from closefar.solve import Certificate, Outcome, find_recession

__all__ = ["named_if_infinite"]

_MAY_BE_INFINITE = (Outcome.CONVERGED, Outcome.RESTRICTED, Outcome.STALLED, Outcome.UNFINISHED)


def named_if_infinite(
    certificate: Certificate, scored: Scored, rows: BlockRows, coordinates: Coordinates, names: Sequence[str]
) -> Certificate:
    """The certificate, which names the columns along which M grows without bound, if there are such."""
    if certificate.outcome not in _MAY_BE_INFINITE:
        return certificate
    found = find_recession(rows, scored.judgements.signs, scored.in_doubt)
    if found is None:
        return certificate
    factor = coordinates.to_units(root_of(found[0]).T)
    lengths = coordinates.scales * np.linalg.norm(factor, axis=1)
    advice = (
        f"{name_columns(names, lengths)} explains some labels without a single exception, so the likelihood has no "
        "finite maximum: M grows along it without bound, and its size there (hence the probabilities of pairs that "
        "differ in it) is arbitrary. Set alpha > 0 (try 0.01), or label more pairs that differ in it."
    )
    return replace(certificate, outcome=Outcome.QUASI_SEPARABLE, advice=advice)
