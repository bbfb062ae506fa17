"""The likelihood of judgements, by their kind."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import Array
from closefar.judgements import Judgements, Kind
from closefar.noise import Noise
from closefar.rows import Rows
from closefar.solve import Centred, CloseFar, Compared, Graded, Likelihood

__all__ = ["is_plain", "likelihood_of"]


def is_plain(judgements: Judgements) -> bool:
    """Whether these are close/far labels, or two levels, alone, without annotators or comparisons."""
    return judgements.n_thresholds == 1 and judgements.annotators is None and judgements.comparisons is None


def likelihood_of(
    judgements: Judgements,
    rows: Rows,
    noise: Noise,
    *,
    lengths: Array = None,
    price: float = 0.0,
    width: float = np.inf,
    turned: Collection[Kind] = (),
) -> Likelihood:
    """Return the likelihood of judgements whose rows these are, in the order of `judged_rows`.

    `lengths` are those of a centre (`Centred`), `price` is that of its multiple, and `width` that of the prior on
    the strictness of annotators.
    Judgements of the kinds in `turned` say the opposite: close for far, the last level for the first, the other order
    of a comparison.
    """
    found = _uncentred(judgements, rows, noise, width, turned)
    return found if lengths is None else Centred(found, lengths, price)


def _uncentred(judgements: Judgements, rows: Rows, noise: Noise, width: float, turned: Collection[Kind]) -> Likelihood:
    shares = judgements.shares_in(rows)
    if is_plain(judgements) or (judgements.kind is Kind.COMPARISONS and judgements.annotators is None):
        signs = judgements.signs_in(rows)
        signs = -signs if judgements.kind in turned else signs
        is_compared = judgements.kind is Kind.COMPARISONS
        return Compared(noise, signs, shares) if is_compared else CloseFar(noise, signs, shares)
    n_levels, codes = judgements.n_levels, judgements.codes_in(rows)
    if turned:
        codes = rows.map(lambda codes: _turned(codes, n_levels, turned), codes)
    if judgements.annotators is None:
        return Graded(noise, codes, shares, n_levels)
    precision = 1.0 / (width**2 * judgements.total_weight)
    n_groups = len(judgements.annotators.names)
    return Graded(noise, codes, shares, n_levels, judgements.groups_in(rows), n_groups, precision)


def _turned(codes: Array, n_levels: int, turned: Collection[Kind]) -> Array:
    """The opposite codes: K - 1 - k of levels, K + 1 for K of comparisons, and the reverse."""
    of_pairs = n_levels - 1 - codes if set(turned) - {Kind.COMPARISONS} else codes
    of_comparisons = 2 * n_levels + 1 - codes if Kind.COMPARISONS in turned else codes
    return array_namespace(codes).where(codes < n_levels, of_pairs, of_comparisons)
