"""Fused passes on NVIDIA GPUs; importing this needs Triton."""

from closefar.rows.cuda.fused import FusedRows, fused_rows

__all__ = ["FusedRows", "fused_rows"]
