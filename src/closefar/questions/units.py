"""The groups or points of judgements, attached comparisons included."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import LEGS, FloatArray, as_float64, is_indexed, to_numpy
from closefar.judgements import Judgements, find_points, resolve_groups
from closefar.judgements.shared_points import warn_of_points

__all__ = ["points_of_legs", "units_of_all", "units_with_comparisons"]


def units_of_all(groups: Any, judgements: Judgements, *, stacklevel: int = 2) -> NDArray[Any] | None:
    """Validate the groups of dependent judgements, or find the points that they share.

    Where comparisons are attached to pairs, groups are one id for each pair and then each comparison; points are
    found in both, and an id that a row has twice fills its columns up to those of the longest.
    """
    others = judgements.comparisons
    if others is None:
        return resolve_groups(groups, judgements.data, stacklevel=stacklevel + 1)
    n = len(judgements) + len(others)
    if groups is not None:
        ids = np.asarray(groups)
        if ids.ndim not in (1, 2) or len(ids) != n:
            raise ValueError(
                f"groups of pairs with comparisons must hold one id for each of the {len(judgements)} pairs and then "
                f"each of the {len(others)} comparisons; got shape {ids.shape}."
            )
        return ids
    if not judgements.are_pairs or (find_points(judgements.data) is None and find_points(others.data) is None):
        return None
    parts = [_points(each) for each in (judgements, others)]
    widest = max(part.shape[1] for part in parts)
    stacked = np.concatenate([part.reshape(-1, part.shape[2]) for part in parts])
    numbers = np.unique(stacked, axis=0, return_inverse=True)[1].ravel()
    n_first = parts[0].shape[0] * parts[0].shape[1]
    both = zip(np.split(numbers, [n_first]), parts, strict=True)
    own: list[NDArray[np.intp]] = [ids.reshape(part.shape[0], part.shape[1]) for ids, part in both]
    found = np.concatenate([np.column_stack([ids, *[ids[:, -1]] * (widest - ids.shape[1])]) for ids in own])
    if not is_indexed(judgements.data):
        warn_of_points(found, "standard errors are by point", stacklevel=stacklevel + 1)
    return found


def units_with_comparisons(groups: NDArray[Any] | None, judgements: Judgements) -> NDArray[Any] | None:
    """Groups of pairs and comparisons, where those of the pairs alone may be given.

    Comparisons then depend on each other by their points, if the pairs do, and otherwise not at all.
    """
    others = judgements.comparisons
    if groups is None or others is None or len(groups) > len(judgements):
        return groups
    if groups.ndim == 2:
        return units_of_all(None, judgements)
    return np.append(groups.astype(str), [f"comparison {number}" for number in range(len(others))])


def _points(judgements: Judgements) -> FloatArray:
    """The points of each judgement, (n, 2 to 4, d)."""
    return np.stack([_column(judgements, place) for place in range(int(judgements.data.shape[1]))], axis=1)


def _column(judgements: Judgements, place: int) -> FloatArray:
    return to_numpy(as_float64(judgements.data[:, place, :])) + 0.0


def points_of_legs(judgements: Judgements) -> tuple[FloatArray, FloatArray]:
    """Both points of each pair or, of comparisons, of each leg: near, far, near, far and so on."""
    sides = zip(*LEGS.get(int(judgements.data.shape[1]), ((0, 1),)), strict=True)
    starts, ends = (np.stack([_column(judgements, place) for place in side], axis=1) for side in sides)
    return starts.reshape(-1, judgements.n_columns), ends.reshape(-1, judgements.n_columns)
