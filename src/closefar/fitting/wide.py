"""Many columns, compared with the pairs: when a penalty decides what is learned, and which one usually suits.

A penalty in the scale of the data shrinks all directions alike.  With many columns those in which the data hardly vary
are most of the noise, so that they have to be shrunk more.
"""

from __future__ import annotations

import math

import numpy as np

from closefar.fitting.statistics import count_parameters
from closefar.judgements import Judgements, effective_number
from closefar.rows import column_scales, judged_rows

__all__ = ["MANY_COLUMNS", "is_wide", "number_of", "usual_penalty"]

# From this many columns on, and with fewer pairs per parameter than this.
MANY_COLUMNS = 64
_PER_PARAMETER = 10.0

# From simulations: the best alpha is about 0.3 sqrt(d / n) in every scale, and the best ratio of the mean variance,
# added to all directions, to the second moment about 0.06 d^2 / n.
_ALPHA = 0.3
_RATIO, _LEAST_RATIO, _LARGEST_RATIO = 0.06, 1.0, 9.0

# Columns whose root mean squares differ by more than this do not have the same unit.
_SAME_UNIT = 1000.0


def is_wide(n_pairs: float, n_columns: int, rank: int | None = None) -> bool:
    """Whether the columns are so many, compared with the pairs, that a penalty decides what is learned."""
    return n_columns >= MANY_COLUMNS and n_pairs < _PER_PARAMETER * count_parameters(n_columns, rank)


def number_of(judgements: Judgements) -> float:
    """The effective number of judgements, those of comparisons that are fitted with pairs included."""
    return judgements.effective_number if judgements.comparisons is None else effective_number(judgements.all_weights)


def usual_penalty(judgements: Judgements, *, has_origin: bool = False) -> tuple[float, list[float | str]]:
    """Return the alpha that is usually best with many columns, and the scales to try, the usually better one first.

    Columns that have the same unit (embeddings, pixels) are shrunk in that unit, others each in its own.
    """
    rows = judged_rows(judgements)
    lengths = column_scales(rows, judgements.shares_in(rows), centred=has_origin)
    lengths = lengths[lengths > 0]
    n, d = number_of(judgements), max(len(lengths), 1)
    ratio = float(np.clip(_RATIO * d**2 / n, _LEAST_RATIO, _LARGEST_RATIO))
    blend = round(ratio / (1.0 + ratio), 2)
    has_one_unit = lengths.max(initial=0.0) <= _SAME_UNIT * lengths.min(initial=np.inf)
    return _ALPHA * math.sqrt(d / n), [f"units:{blend:g}" if has_one_unit else blend, "data"]
