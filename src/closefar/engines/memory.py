"""Memory of workers: blocks of rows are computed with in temporary arrays, whose memory should be used again."""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache

__all__ = ["reuse_memory"]

# Parameters of glibc's mallopt, and bytes: arrays up to this size are taken from memory that was used before, and so
# much of it is kept.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_REUSED = 1 << 25


@lru_cache(maxsize=1)
def reuse_memory() -> None:
    """Undo what Dask sets for its workers, which gives memory back at once: each temporary array would be mapped anew.

    Passes over the rows would take up to three times as long.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc alone
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _REUSED)
        mallopt(_M_TRIM_THRESHOLD, _REUSED)
