"""The report: a fitted learner and its labelled pairs in one dict, and that dict as a page, as JSON and as text."""

from closefar.report.facts import N_PARTS, Provenance, summarize
from closefar.report.page import check_report, encode_report, render, write_report

__all__ = ["N_PARTS", "Provenance", "check_report", "encode_report", "render", "summarize", "write_report"]
