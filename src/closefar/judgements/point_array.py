"""Points that pairs refer to by index: an array of numbers, each point once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from closefar.judgements.frames import check_frame_columns

__all__ = ["checked_points"]

_NUMBER_KINDS = "biuf"


def checked_points(points: Any) -> NDArray[Any]:
    """Return points as an array of shape (n_points, d): itself, a memory map, or a copy of anything else."""
    check_frame_columns(points)
    if isinstance(points, np.ndarray) and points.dtype != object:
        array = np.asarray(points)  # also of a memory map, which stays one
    else:
        array = check_array(
            points,
            dtype=(np.float64, np.float32),
            ensure_all_finite=False,
            ensure_min_samples=0,
            ensure_min_features=0,
            input_name="points",
        )
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"points must have shape (n_points, d), with at least one column; got {array.shape}.")
    if array.dtype.kind not in _NUMBER_KINDS:
        raise ValueError(f"points must hold real numbers; got an array of {array.dtype}. Convert it to floats.")
    return array
