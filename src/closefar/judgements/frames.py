"""Frames of pandas, polars and others, by what they have in common: columns with names and types."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["check_frame_columns", "names_of_frame"]

_NUMBER_KINDS = "biuf"


def names_of_frame(frame: Any) -> tuple[str, ...] | None:
    """The names of the columns, if this is a frame and all of them are strings."""
    names = tuple(getattr(frame, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None


def check_frame_columns(frame: Any) -> None:
    """Name the first column of a frame that does not hold numbers."""
    if not (hasattr(frame, "columns") and hasattr(frame, "dtypes")):
        return
    for index, (name, dtype) in enumerate(zip(frame.columns, frame.dtypes, strict=True)):
        if getattr(dtype, "kind", "-") in _NUMBER_KINDS or str(dtype) in ("Boolean", "Null"):
            continue
        if hasattr(dtype, "is_numeric") and dtype.is_numeric():
            continue
        column = np.asarray(frame.iloc[:, index] if hasattr(frame, "iloc") else frame[name])
        if column.dtype.kind == "O" and all(isinstance(value, (int, float, np.number)) for value in column):
            continue
        example = f" (first value {column[0]!r})" if len(column) else ""
        raise ValueError(
            f"columns must hold numbers; column {name!r} has type {dtype}{example}. "
            "Encode it (for instance one-hot) or leave it out."
        )
