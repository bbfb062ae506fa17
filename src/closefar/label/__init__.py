"""Judging pairs and triplets in the browser: a local server, one file of judgements, and a fit that keeps up."""

from __future__ import annotations

from closefar.label.task import ANSWERS, Purpose, Task

__all__ = ["ANSWERS", "Purpose", "Task"]
