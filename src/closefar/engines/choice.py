"""The engine that suits data in partitions: the cluster of a Dask client, or this process."""

from __future__ import annotations

import sys
from typing import Any

from closefar.engines.engine import Engine, LocalEngine


def engine_for(client: Any = None) -> Engine:
    """Return the engine of this client or, if None is given, of the current one; without one it is this process.

    An engine is returned as it is.
    """
    if isinstance(client, Engine):
        return client
    client = _current_client() if client is None else client
    if client is None:
        return LocalEngine()
    from closefar.engines.dask_engine import DaskEngine  # distributed is needed only here

    return DaskEngine(client)


def _current_client() -> Any:
    """The client that was made last, if any; without one, distributed need not even be imported."""
    if "distributed" not in sys.modules:
        return None
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        return None
