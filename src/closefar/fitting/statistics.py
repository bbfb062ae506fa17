"""What a fit says of its training pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closefar.arrays import FloatArray
from closefar.model.scored import Scored
from closefar.noise import with_flips

__all__ = ["FitStatistics"]


@dataclass(frozen=True)
class FitStatistics:
    """Figures of the training pairs, weighted as in the fit.

    `null_loss` is the loss of the best constant probability; `wrong_share` the expected
    share of labels on the wrong side of the threshold, under the fitted noise; `column_scales`
    the root mean square of each column of the differences (with a learned origin, its standard
    deviation).
    """

    n_pairs: int
    share_far: float
    null_loss: float
    accuracy: float
    wrong_share: float
    column_scales: tuple[float, ...]

    @classmethod
    def of(cls, scored: Scored, column_scales: FloatArray) -> FitStatistics:
        wrong = with_flips(scored.noise.cdf(-np.abs(scored.margin)), scored.flip_rate)
        return cls(
            n_pairs=len(scored),
            share_far=scored.share_far,
            null_loss=scored.null_loss,
            accuracy=scored.accuracy,
            wrong_share=scored.judgements.mean(wrong),
            column_scales=tuple(column_scales.tolist()),
        )
