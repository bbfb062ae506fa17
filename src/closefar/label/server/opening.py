"""The way in for the command line: the server, or which extra is missing for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from closefar.label.server.site import Site
from closefar.label.storage.points import LabelPoints
from closefar.label.task import Task

if TYPE_CHECKING:
    from closefar.label.server.serving import LabelServer

_PACKAGES = ("anyio", "h11", "jinja2", "starlette", "uvicorn")


def open_server(
    path: Path, task: Task, points: LabelPoints, site: Site, port: int | None = None, **options: Any
) -> LabelServer:
    """Return a server that listens; see `LabelServer`."""
    try:
        from closefar.label.server.serving import LabelServer
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        raise ImportError(
            f"closefar label needs {(error.name or '').partition('.')[0]}: run pip install 'closefar[label]'."
        ) from error
    return LabelServer(path, task, points, site, port, **options)
