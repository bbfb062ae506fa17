"""Judging pairs and triplets in the browser: a local server, one file of judgements, and a fit that keeps up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from closefar.label.site import Address, Site, Tls, check_names, plan_site
from closefar.label.task import ANSWERS, LabelPoints, Method, Purpose, Task, TaskKind, make_leaves, read_label_points

if TYPE_CHECKING:
    from closefar.label.server import LabelServer

__all__ = ["Address", "Site", "Tls", "check_names", "plan_site"]
__all__ += ["ANSWERS", "LabelPoints", "LabelServer", "Method", "Purpose", "Task", "TaskKind"]
__all__ += ["make_leaves", "read_label_points"]


def __getattr__(name: str) -> Any:
    """The server is loaded when it is asked for, since it needs an extra."""
    if name != "LabelServer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from closefar.label.server import LabelServer
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package == "closefar":
            raise
        raise ImportError(f"closefar label needs {package}: run pip install 'closefar[label]'.") from error
    return LabelServer
