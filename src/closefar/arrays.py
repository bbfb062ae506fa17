"""The two kinds of array in type annotations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "FloatArray"]

# An array of any namespace that array-api-compat knows: NumPy, torch, CuPy, array-api-strict.
Array = Any

FloatArray = NDArray[np.float64]
