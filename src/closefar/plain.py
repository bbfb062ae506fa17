"""Values as JSON knows them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

__all__ = ["plain"]


def plain(value: Any, *, finite: bool = False) -> Any:
    """Return the same value in numbers, strings, lists and dicts; `finite` makes None of nan and infinity."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(name): plain(item, finite=finite) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, finite=finite) for item in value]
    return None if finite and isinstance(value, float) and not math.isfinite(value) else value
