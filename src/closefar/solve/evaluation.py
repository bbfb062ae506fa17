"""What likelihoods are evaluated to: sums over rows, and arrays of one number per row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.solve.curvature import Curvature

__all__ = ["Evaluation", "Losses", "Terms"]


class Terms(NamedTuple):
    """The likelihood of some of the rows: sums over them, and arrays of one number per row.

    `slopes` are the derivatives of the loss in the thresholds.  `margin_gradient` is the derivative in the
    squared distance of each row, so that dR/dM is the sum of these times F_i.  Second derivatives are
    included on request: `curvature` in the squared distance of each row, `crosses` in it and each
    threshold, and `curvatures`, the sums of those in two thresholds; a loss that depends only on q - tau
    needs only the first.
    """

    loss: float
    slopes: FloatArray
    least_margin: float
    margin_gradient: Array
    curvature: Array = None
    crosses: tuple[Array, ...] = ()
    curvatures: FloatArray | None = None


class Losses(NamedTuple):
    """The losses and derivatives at the margins of some of the rows; see `Terms`."""

    loss: float
    least_margin: float
    margin_gradient: Array
    curvature: Array


@dataclass(frozen=True)
class Evaluation:
    """The risk at given squared distances and thresholds, with its derivatives; see `Terms`.

    `second` is None if only first derivatives were requested.
    """

    loss: float
    slopes: FloatArray
    least_margin: float
    margin_gradient: Array
    second: Curvature | None

    @property
    def curvature(self) -> Curvature:
        if self.second is None:
            raise ValueError("curvature needs second derivatives; got an evaluation of order 1. Use order=2.")
        return self.second

    def mapped(self, function: Callable[[Array], Array]) -> Evaluation:
        """The same with a function of each array of one number per row, always in the same order."""
        margin_gradient = function(self.margin_gradient)
        second = None if self.second is None else self.second.mapped(function)
        return replace(self, margin_gradient=margin_gradient, second=second)

    @classmethod
    def joined(cls, parts: Sequence[Evaluation]) -> Evaluation:
        """The sums of those of several sets of rows; the arrays are the first one's."""
        seconds = [part.second for part in parts if part.second is not None]
        thresholds = np.sum([each.thresholds for each in seconds], axis=0)
        return cls(
            loss=sum(part.loss for part in parts),
            slopes=np.sum([part.slopes for part in parts], axis=0),
            least_margin=min(part.least_margin for part in parts),
            margin_gradient=parts[0].margin_gradient,
            second=seconds[0].with_thresholds(thresholds) if seconds else None,
        )
