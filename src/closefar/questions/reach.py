"""Intervals, and where the parameters that they are about may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from closefar.arrays import FloatArray

__all__ = ["Interval", "Reach", "wald"]


@dataclass(frozen=True, eq=False)
class Interval:
    """An estimate, its standard error, and the two ends of its confidence interval, as numbers or arrays.

    The estimate is the fit's own and need not be in the middle: with few labels it is biased, and on
    the boundary of the positive semidefinite matrices it can err to one side only.
    """

    estimate: Any
    standard_error: Any
    low: Any
    high: Any

    def mapped(self, function: Callable[[Any], Any], standard_error: Any = None) -> Interval:
        """The interval of an increasing function."""
        error = self.standard_error if standard_error is None else standard_error
        return Interval(function(self.estimate), error, function(self.low), function(self.high))

    def item(self) -> Interval:
        """The interval of the only number."""
        return Interval(*(each[0] for each in (self.estimate, self.standard_error, self.low, self.high)))

    def from_zero(self) -> Interval:
        """The part of the interval that is not negative."""
        return Interval(self.estimate, self.standard_error, np.maximum(self.low, 0.0), np.maximum(self.high, 0.0))

    def of_complement(self) -> Interval:
        """The interval of one minus the number."""
        return Interval(1.0 - self.estimate, self.standard_error, 1.0 - self.high, 1.0 - self.low)


@dataclass(frozen=True, eq=False)
class Reach:
    """Where the parameters may be: a centre, and a covariance root @ root.T around it.

    `shift` is the centre minus the parameters of the fit, and an interval extends `quantile` standard
    errors to either side of the centre.
    """

    shift: FloatArray
    root: FloatArray
    quantile: float


def wald(reaches: tuple[Reach, ...], estimate: Any, gradients: FloatArray) -> Interval:
    """The interval of numbers with these gradients in the parameters; it is unbounded without any reach."""
    shape = np.shape(estimate)
    error, low, high = np.zeros(shape), np.array(estimate, dtype=float), np.array(estimate, dtype=float)
    for reach in reaches:
        centre = estimate + np.reshape(gradients @ reach.shift, shape)
        errors = np.linalg.norm(gradients @ reach.root, axis=1).reshape(shape)
        error = np.maximum(error, errors)
        low = np.minimum(low, centre - reach.quantile * errors)
        high = np.maximum(high, centre + reach.quantile * errors)
    if not reaches:
        error, low, high = np.full(shape, np.inf), np.full(shape, -np.inf), np.full(shape, np.inf)
    return Interval(estimate, error[()], low[()], high[()])
