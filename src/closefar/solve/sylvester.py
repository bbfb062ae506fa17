"""A model of the Hessian in the factor A of M = A A' that is cheap to invert."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closefar.arrays import FloatArray
from closefar.solve.factored import Place

__all__ = ["Model"]


@dataclass(frozen=True)
class Model:
    """H[D] = 4 c D A'A + 2 (dR/dM + alpha I) D: a Sylvester equation, diagonal in the eigenvectors of A'A and dR/dM.

    The first part is the curvature of the loss for uncorrelated coordinates, c its sum; the second is that of M in A.
    Without a known dR/dM (`values` and `vectors` of dR/dM + alpha I) the second part is a multiple of the identity.
    If the rank is limited, its negative curvature is real; otherwise it is only that new columns are missing.
    """

    alpha: float
    is_limited: bool
    values: FloatArray | None = None
    vectors: FloatArray | None = None

    def inverse(self, place: Place, right: FloatArray) -> FloatArray:
        """Solve H[D] = right."""
        if right.shape[1] == 0:
            return right
        lengths, turn = np.linalg.eigh(place.factor.T @ place.factor)
        on_columns = 4.0 * place.curvature * np.maximum(lengths, 1e-4 * lengths[-1]) + 1e-12
        least = 2.0 * self.alpha + (1e-3 if self.alpha == 0.0 else 0.0)
        if self.values is None or self.vectors is None:
            scaled: FloatArray = ((right @ turn) / (on_columns + least)) @ turn.T
            return scaled
        bend = 2.0 * self.values[:, None]
        if self.is_limited:
            denominator = np.maximum(on_columns + bend, 0.1 * on_columns)
        else:
            denominator = on_columns + np.maximum(bend, 0.02 * least)
        solved: FloatArray = self.vectors @ ((self.vectors.T @ (right @ turn)) / denominator) @ turn.T
        return solved
