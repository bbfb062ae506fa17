"""Unit-free coordinates of the solver, in which the rows, or at least their columns, have unit second moment.

Under z -> Uz the optimum maps to U^-T M U^-1 (section "Invariance to Changes in Unit
of Input"), so the solver may choose its units.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import Array, FloatArray, IndexArray, as_float64, like

__all__ = ["ENORMOUS", "Coordinates"]

# Rows this many times as long as a typical row are in another unit, or wrong.
ENORMOUS = 1e4

_WELL_CONDITIONED = 1e6


@dataclass(frozen=True)
class Coordinates:
    """The map ``w = transform' z + offset`` from rows to unit-free coordinates.

    With a learned origin, `offset` centres the rows and a constant 1 is appended to w;
    otherwise it is None.  `null_directions` are the combinations of columns, each divided by its
    root mean square (with an origin, its standard deviation), that do not vary; `scales` are
    those root mean squares.  `enormous` are the numbers of rows that are more than `ENORMOUS`
    times as long as a typical row.
    """

    transform: FloatArray
    offset: FloatArray | None
    null_directions: FloatArray
    scales: FloatArray
    enormous: IndexArray = field(default_factory=lambda: np.arange(0))

    @property
    def has_constant(self) -> bool:
        return self.offset is not None

    @property
    def n_directions(self) -> int:
        """The length of w, which excludes directions of z that do not vary."""
        return int(self.transform.shape[1]) + int(self.has_constant)

    @property
    def condition(self) -> float:
        """The largest root mean square of the scaled columns along a direction, divided by the smallest."""
        lengths = np.linalg.norm(self.scales[:, None] * self.transform, axis=0)
        return float(lengths.max(initial=1.0) / lengths.min(initial=1.0))

    def apply(self, block: Array) -> Array:
        """Map rows, each a column of the block, to coordinates."""
        block = as_float64(block)
        mapped = like(block, self.transform).T @ block
        if self.offset is None:
            return mapped
        xp = array_namespace(block)
        return xp.concat([mapped + like(block, self.offset)[:, None], xp.ones_like(mapped[:1, :])])

    def to_units(self, factor: FloatArray) -> FloatArray:
        """Map a factor back to the user's units; with a learned origin, for (z, 1)."""
        if self.offset is None:
            return self.transform @ factor
        return np.vstack([self.transform @ factor[:-1], self.offset @ factor[:-1] + factor[-1]])

    def from_units(self, factor: FloatArray) -> FloatArray | None:
        """Map a factor in the user's units to coordinates; None if the rows are needed to do that accurately."""
        varies = np.any(self.transform != 0.0, axis=1)
        scaled = self.scales[varies, None] * self.transform[varies]
        if self.has_constant or scaled.shape[0] != scaled.shape[1] or np.linalg.cond(scaled, 1) > _WELL_CONDITIONED:
            return None
        return np.asarray(np.linalg.solve(scaled, self.scales[varies, None] * factor[varies]), dtype=np.float64)
