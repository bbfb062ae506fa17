"""Quasi-separable fits: the optimum lies at infinity although the metric does not get every label right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from closefar.arrays import Array, FloatArray, as_float64
from closefar.fitting.identifiability import name_columns
from closefar.fitting.likelihoods import is_plain
from closefar.fitting.solved import Solved
from closefar.judgements import Kind
from closefar.model.factors import root_of
from closefar.rows import Coordinates, LegRows
from closefar.solve import Certificate, Outcome, find_free_directions, find_recession

__all__ = ["named_if_infinite"]

_ROUNDING = 1e-6
_MAY_BE_INFINITE = (Outcome.CONVERGED, Outcome.RESTRICTED, Outcome.STALLED, Outcome.UNFINISHED)


def named_if_infinite(
    certificate: Certificate, solved: Solved, coordinates: Coordinates, names: Sequence[str]
) -> Certificate:
    """Return the certificate, naming the columns along which M grows without bound, if any."""
    if certificate.outcome not in _MAY_BE_INFINITE:
        return certificate
    found = _found(solved)
    if found is None:
        return certificate
    named = name_columns(names, _involved(*found, coordinates))
    is_compared = solved.judgements.kind is Kind.COMPARISONS
    labels, collect = ("comparisons", "collect more comparisons") if is_compared else ("labels", "label more pairs")
    advice = (
        f"{named} explains some {labels} without exception, so the likelihood has no finite maximum: M grows without "
        "bound along it, and its size there (hence the probabilities of pairs that differ in it) is arbitrary. "
        f"Set alpha > 0 (try 0.01), or {collect} that differ in it."
    )
    return replace(certificate, outcome=Outcome.QUASI_SEPARABLE, advice=advice)


def _found(solved: Solved) -> tuple[FloatArray, float] | None:
    """The direction in which M and tau can grow; of kinds other than close/far, only one in which M alone can."""
    rows, judgements = solved.rows, solved.judgements
    if is_plain(judgements) and not isinstance(rows, LegRows):
        return find_recession(rows, judgements.signs_in(rows), solved.in_doubt)
    if judgements.kind is Kind.COMPARISONS:
        signs = judgements.signs_in(rows)
    else:
        signs = rows.map(partial(_helped, n_levels=judgements.n_levels), judgements.codes_in(rows))
    legs, signs = (rows.legs, rows.leg_signs(signs)) if isinstance(rows, LegRows) else (rows, signs)
    free = find_free_directions(legs, signs)
    return None if free is None else (free, 0.0)


def _helped(codes: Array, n_levels: int) -> Array:
    """+1 for judgements that a larger margin makes likelier for ever, -1 for the others."""
    return 2.0 * as_float64((codes == n_levels - 1) | (codes == n_levels)) - 1.0


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
