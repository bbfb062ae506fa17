"""Intervals, and where the parameters that they are about may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from closefar.arrays import FloatArray

__all__ = ["Interval", "Reach", "from_zero", "mapped", "of_complement", "only", "wald"]


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


def mapped(interval: Interval, function: Callable[[Any], Any], standard_error: Any = None) -> Interval:
    """The interval of an increasing function."""
    error = interval.standard_error if standard_error is None else standard_error
    return Interval(function(interval.estimate), error, function(interval.low), function(interval.high))


def only(interval: Interval) -> Interval:
    """The interval of the only number."""
    return Interval(*(each[0] for each in (interval.estimate, interval.standard_error, interval.low, interval.high)))


def from_zero(interval: Interval) -> Interval:
    """The part of an interval that is not negative."""
    low, high = np.maximum(interval.low, 0.0), np.maximum(interval.high, 0.0)
    return Interval(interval.estimate, interval.standard_error, low, high)


def of_complement(interval: Interval) -> Interval:
    """The interval of one minus the number."""
    return Interval(1.0 - interval.estimate, interval.standard_error, 1.0 - interval.high, 1.0 - interval.low)


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
