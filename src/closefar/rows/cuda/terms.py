"""The likelihood at known squared distances, in one kernel and in double precision."""

from __future__ import annotations

from closefar.arrays import Array
from closefar.noise import Noise
from closefar.rows.cuda.fused_source import has_kernel
from closefar.rows.cuda.kernels import KINDS
from closefar.rows.cuda.launch import run_terms
from closefar.rows.source import MarginTerms

__all__ = ["fused_terms"]


def fused_terms(
    noise: Noise, squared: Array, signs: Array, weights: Array, threshold: float, order: int
) -> MarginTerms | None:
    """Return the terms of all rows; None if there is no kernel for this noise."""
    if not has_kernel(noise):
        return None
    given = None if weights.stride(0) == 0 else weights
    return run_terms(squared.contiguous(), signs, given, threshold, KINDS[noise.name], order)
