"""Judging pairs and triplets in the browser: a local server, one file of judgements, and a fit that keeps up."""

from __future__ import annotations

from closefar.label.site import Address, Site, Tls, check_names, open_server, plan_site
from closefar.label.task import ANSWERS, LabelPoints, Purpose, Task, TaskKind, make_leaves, read_label_points

__all__ = [
    "ANSWERS",
    "Address",
    "LabelPoints",
    "Purpose",
    "Site",
    "Task",
    "TaskKind",
    "Tls",
    "check_names",
    "make_leaves",
    "open_server",
    "plan_site",
    "read_label_points",
]
