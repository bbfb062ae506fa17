"""Judging pairs and triplets in the browser: a local server, one file of judgements, and a fit that keeps up."""

from __future__ import annotations

from closefar.label.leaves import make_leaves
from closefar.label.server.opening import open_server
from closefar.label.server.sessions import Address, check_names
from closefar.label.server.site import Site, Tls, plan_site
from closefar.label.storage.points import read_label_points
from closefar.label.task import ANSWERS, Purpose, Task, TaskKind

__all__ = [
    "ANSWERS",
    "Address",
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
