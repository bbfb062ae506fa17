"""The directions of a metric, in the order used everywhere."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from closefar.arrays import FloatArray

__all__ = ["Directions"]


class Directions(NamedTuple):
    """Columns D with M = D D', longest first, and their squared lengths, in the scale in which they are orthogonal.

    In the scale of the training pairs, the squared length of a direction is the mean squared
    distance along it; for points around an origin, their variance.
    """

    columns: FloatArray
    values: FloatArray
    is_data_scale: bool
    measure: str = "mean squared distance"  # what the values are, and are shares of

    @property
    def shares(self) -> FloatArray:
        """The share of each value in their sum."""
        return self.values / max(float(self.values.sum()), np.finfo(float).tiny)
