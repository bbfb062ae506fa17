"""Quasi-separable fits: the optimum lies at infinity although the metric does not get every label right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from closefar.arrays import FloatArray
from closefar.fitting.identifiability import name_columns
from closefar.fitting.solved import Solved
from closefar.model.factors import root_of
from closefar.rows import Coordinates, LegRows
from closefar.solve import Certificate, Outcome, find_recession

__all__ = ["named_if_infinite"]

_ROUNDING = 1e-6
_MAY_BE_INFINITE = (Outcome.CONVERGED, Outcome.RESTRICTED, Outcome.STALLED, Outcome.UNFINISHED)


def named_if_infinite(
    certificate: Certificate, solved: Solved, coordinates: Coordinates, names: Sequence[str]
) -> Certificate:
    """Return the certificate, naming the columns along which M grows without bound, if any."""
    if certificate.outcome not in _MAY_BE_INFINITE:
        return certificate
    assert not isinstance(solved.rows, LegRows)
    found = find_recession(solved.rows, solved.judgements.signs_in(solved.rows), solved.in_doubt)
    if found is None:
        return certificate
    named = name_columns(names, _involved(*found, coordinates))
    advice = (
        f"{named} explains some labels without exception, so the likelihood has no finite maximum: M grows without "
        "bound along it, and its size there (hence the probabilities of pairs that differ in it) is arbitrary. "
        "Set alpha > 0 (try 0.01), or label more pairs that differ in it."
    )
    return replace(certificate, outcome=Outcome.QUASI_SEPARABLE, advice=advice)


def _involved(matrix: FloatArray, threshold: float, coordinates: Coordinates) -> FloatArray:
    """The contribution of each column to the growth of M; only columns that explain those labels alone, if any do."""
    if threshold == 0.0:  # the matrix is a projection, and every direction in its range explains them
        columns = np.linalg.pinv(coordinates.scales[:, None] * coordinates.transform)
        lengths: FloatArray = np.linalg.norm(columns, axis=0)
        is_within = np.linalg.norm(columns - matrix @ columns, axis=0) <= _ROUNDING * lengths
        if np.any(is_within & (lengths > 0.0)):
            return np.asarray(is_within * lengths)
    factor = coordinates.to_units(root_of(matrix).T)
    involved: FloatArray = coordinates.scales * np.linalg.norm(factor, axis=1)
    return involved
