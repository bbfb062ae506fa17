"""Points that pairs refer to by index: an array of numbers, each point once."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from closefar.arrays import Array, is_foreign, is_tensor, shared_with_torch, to_numpy
from closefar.judgements.frames import check_frame_columns

__all__ = ["checked_points", "checked_tensor"]

_NUMBER_KINDS = "biuf"


def checked_points(points: Any) -> Array:
    """Return points as an array of shape (n_points, d): itself, a memory map, a tensor, or a copy of anything else."""
    check_frame_columns(points)
    array: Array
    points = shared_with_torch(points)
    if is_tensor(points):
        points = checked_tensor(points, "points")
        array = points if points.is_floating_point() or points.is_complex() else points.double()
    elif isinstance(points, np.ndarray) and points.dtype != object:
        array = np.asarray(points)  # also of a memory map, which stays one
    else:
        array = check_array(
            to_numpy(points) if is_foreign(points) else points,
            dtype=(np.float64, np.float32),
            ensure_all_finite=False,
            ensure_min_samples=0,
            ensure_min_features=0,
            input_name="points",
        )
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"points must have shape (n_points, d), with at least one column; got {tuple(array.shape)}.")
    if array.is_complex() if is_tensor(array) else array.dtype.kind not in _NUMBER_KINDS:
        raise ValueError(f"points must hold real numbers; got an array of {array.dtype}. Convert it to floats.")
    return array


def checked_tensor(values: Any, name: str) -> Any:
    """Return a tensor without its gradients, which passes do not keep; refuse one that is sparse, or elsewhere."""
    if str(values.layout) != "torch.strided":
        raise ValueError(f"{name} must be a dense tensor; got one of {values.layout}. Convert it with to_dense().")
    if values.device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"{name} must be on the processor or on a CUDA device; got a tensor on {values.device}. Copy it with cpu()."
        )
    return values.detach()
