"""Values that are missing: None, NaN, NaT, pandas' NA, an empty string."""

from __future__ import annotations

from typing import Any

__all__ = ["is_missing"]


def is_missing(value: Any) -> bool:
    """Whether there is no value."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # NA is neither equal to itself nor different
        return True
