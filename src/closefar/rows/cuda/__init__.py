"""Fused passes on NVIDIA GPUs; importing this needs Triton."""

from closefar.rows.cuda.fused import FusedGraph, FusedRows, fused_graph, fused_rows, fused_terms

__all__ = ["FusedGraph", "FusedRows", "fused_graph", "fused_rows", "fused_terms"]
