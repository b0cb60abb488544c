"""sbon from Python: :func:`connect`, :func:`connect_async`, :class:`LocalCluster`. Each is loaded when it is first asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sbon_cli.async_connection import AsyncConnection, AsyncQuery, connect_async
    from sbon_cli.connection import Connection, Query, connect
    from sbon_cli.local_cluster import LocalCluster
    from sbon_node.errors import SbonError

__all__ = ["AsyncConnection", "AsyncQuery", "Connection", "LocalCluster", "Query", "SbonError", "connect", "connect_async"]

_ROOMS = {
    **dict.fromkeys(("AsyncConnection", "AsyncQuery", "connect_async"), "sbon_cli.async_connection"),
    **dict.fromkeys(("Connection", "Query", "connect"), "sbon_cli.connection"),
    "LocalCluster": "sbon_cli.local_cluster",
    "SbonError": "sbon_node.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_ROOMS[name]), name)
