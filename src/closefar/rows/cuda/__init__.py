"""Fused passes on NVIDIA GPUs; importing this needs Triton."""

from closefar.rows.cuda.fused import FusedRows, fused_rows
from closefar.rows.cuda.fused_graph import FusedGraph, fused_graph
from closefar.rows.cuda.terms import fused_terms

__all__ = ["FusedGraph", "FusedRows", "fused_graph", "fused_rows", "fused_terms"]
