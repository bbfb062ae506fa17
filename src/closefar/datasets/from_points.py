"""Labelled pairs made from points: by index, as many as are asked for, or as a precision needs."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from closefar.arrays import BoolArray, IndexArray
from closefar.judgements import Tuples

Relation = Callable[[NDArray[Any], NDArray[Any]], Any]

# Pairs of the same points depend on each other: in simulations with classes of points, the loss on new points fell by
# less than 0.001 once each point was in 40 pairs.
_PAIRS_PER_POINT = 20

_FEWEST_PAIRS = 100


@dataclass(frozen=True)
class PairCount:
    """How many pairs a precision needs, and why.

    Attributes
    ----------
    n_pairs : int
    precision : float
        The expected excess loss asked for.
    expected : float
        The expected excess loss of this many independent pairs.
    sentence : str
        The number and the reason for it.
    """

    n_pairs: int
    precision: float
    expected: float
    sentence: str


def count_pairs(n_points: int, n_features: int, precision: float = 0.001) -> PairCount:
    """Say how many pairs of these points a fit needs for an expected excess loss of `precision`.

    The loss of a fit with p parameters to N independent pairs exceeds the smallest possible one by p / (2N) on
    average, so N = p / (2 precision); p = d (d + 1) / 2 + 1 for M and the threshold.  Pairs of the
    same points are not independent: beyond 20 pairs per point, further pairs add little, so there are
    no more than that, and no more than all n (n - 1) / 2.  A penalty or a limited rank needs fewer pairs,
    very unequal classes need more; `closefar.plan_sample_size` plans from a first fit.

    Parameters
    ----------
    n_points, n_features : int
        At least 2 points, and at least one column.
    precision : float, default=0.001
        The expected excess loss per label on new pairs, in nats.

    Returns
    -------
    PairCount

    Examples
    --------
    >>> import closefar as cf
    >>> count = cf.datasets.count_pairs(5000, 8, precision=0.002)
    >>> count.n_pairs
    9250
    >>> print(count.sentence)
    9,250 pairs: with 37 parameters (8 columns) their expected excess loss is 0.002 nats per label.
    """
    if not (isinstance(precision, numbers.Real) and 0 < float(precision) < math.inf):
        raise ValueError(f"precision must be a finite number > 0, the excess loss per label; got {precision!r}.")
    if n_points < 2 or n_features < 1:
        raise ValueError(f"there must be 2 points and one column at least; got {n_points} and {n_features}.")
    n_parameters = n_features * (n_features + 1) // 2 + 1
    wanted = max(math.ceil(n_parameters / (2.0 * float(precision))), _FEWEST_PAIRS)
    most, all_pairs = _PAIRS_PER_POINT * n_points, n_points * (n_points - 1) // 2
    n_pairs = min(wanted, most, all_pairs)
    expected = n_parameters / (2.0 * n_pairs)
    parameters = f"with {n_parameters:,} parameters ({n_features:,} column{'s' if n_features > 1 else ''})"
    if n_pairs == wanted:
        sentence = f"{n_pairs:,} pairs: {parameters} their expected excess loss is {expected:.2g} nats per label."
    else:
        limit = "all of them" if n_pairs == all_pairs else f"{_PAIRS_PER_POINT} per point, beyond which more add little"
        sentence = (
            f"{n_pairs:,} pairs of {n_points:,} points, {limit}: {parameters} a precision of {float(precision):.2g} "
            f"nats per label would need {wanted:,}. More points, a penalty or a limited rank come closer to it."
        )
    return PairCount(n_pairs, float(precision), expected, sentence)


def pairs_from_points(
    X: Any,
    relation: Any,
    n_pairs: int | str | None = None,
    *,
    precision: float = 0.001,
    random_state: Any = None,
    return_indices: bool = False,
    verbose: bool = True,
) -> tuple[Any, ...]:
    """Make labelled pairs from points.

    Parameters
    ----------
    X : array or frame of shape (n, d)
    relation : array of n class labels, or callable
        Points of the same class are close, others far.  A callable receives two arrays of
        points, one pair per row, and returns which pairs are far (booleans, or labels -1
        and +1).
    n_pairs : int or "auto", optional
        By default the points are partitioned at random into n // 2 disjoint pairs, which
        are independent if the points are (the paper's section "Limitations").  A number
        means that many random pairs of two different points, which share points and
        are not independent.  "auto" means as many as `precision` needs, by `count_pairs`, all different.
    precision : float, default=0.001
        With n_pairs="auto": the expected excess loss per label on new pairs, in nats.
    random_state : int, RandomState or None
    return_indices : bool
        Also return the (n_pairs, 2) row numbers of the two points.
    verbose : bool, default=True
        With n_pairs="auto", print how many pairs there are, and why.

    Returns
    -------
    pairs : Tuples
        Pairs by index, which act as an array of shape (n_pairs, 2, d).
    labels : array of shape (n_pairs,)
        -1 close, +1 far.

    Examples
    --------
    >>> import numpy as np
    >>> import closefar as cf
    >>> points = np.random.default_rng(0).standard_normal((500, 3))
    >>> pairs, labels = cf.datasets.pairs_from_points(points, points[:, 0] > 0, "auto", random_state=0)
    3,500 pairs: with 7 parameters (3 columns) their expected excess loss is 0.001 nats per label.
    >>> pairs.shape
    (3500, 2, 3)
    """
    shape = np.shape(X)
    if len(shape) != 2 or shape[0] < 2:
        raise ValueError(f"X must be an (n, d) array of at least 2 points; got shape {shape}.")
    n = shape[0]
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    if isinstance(n_pairs, str) and n_pairs == "auto":
        count = count_pairs(n, shape[1], precision)
        if verbose:
            print(count.sentence)
        n_pairs = count.n_pairs
        indices = _distinct(n, n_pairs, rng)
    elif n_pairs is None:
        indices = rng.permutation(n)[: n // 2 * 2].reshape(-1, 2)
    elif isinstance(n_pairs, numbers.Integral) and n_pairs >= 1:
        indices = _random(n, int(n_pairs), rng)
    else:
        raise ValueError(f'n_pairs must be None, "auto" or a whole number >= 1; got {n_pairs!r}.')
    pairs = Tuples(X, indices)
    labels = np.where(_are_far(relation, pairs, n), 1, -1)
    return (pairs, labels, indices) if return_indices else (pairs, labels)


def _random(n: int, n_pairs: int, rng: np.random.Generator) -> IndexArray:
    """Random pairs of two different points."""
    left = rng.integers(n, size=n_pairs)
    return np.column_stack([left, (left + rng.integers(1, n, size=n_pairs)) % n])


def _distinct(n: int, n_pairs: int, rng: np.random.Generator) -> IndexArray:
    """Random pairs of two different points, none of which occurs twice."""
    numbers = rng.choice(n * (n - 1) // 2, n_pairs, replace=False)
    right = np.floor((1.0 + np.sqrt(1.0 + 8.0 * numbers)) / 2.0).astype(np.int64)
    right -= right * (right - 1) // 2 > numbers  # the root is rounded
    right += right * (right + 1) // 2 <= numbers
    return np.column_stack([numbers - right * (right - 1) // 2, right])


def _are_far(relation: Any, pairs: Tuples, n: int) -> BoolArray:
    if callable(relation):
        answer = np.asarray(relation(pairs[:, 0], pairs[:, 1]))
        if answer.dtype != bool and not np.all(np.isin(answer, (-1, 1))):
            raise ValueError(f"relation must return booleans (far or not) or labels -1 and +1; got {answer[:5]!r}.")
        far: BoolArray = answer if answer.dtype == bool else answer == 1
    else:
        classes = np.asarray(relation)
        if classes.shape != (n,):
            raise ValueError(f"relation must be a callable or one class label per point; got shape {classes.shape}.")
        far = classes[pairs.index[:, 0]] != classes[pairs.index[:, 1]]
    if far.shape != (len(pairs),):
        raise ValueError(f"relation must return one value per pair; got shape {far.shape} for {len(pairs)} pairs.")
    return far
