"""Python API of sbon: :func:`connect`, :func:`connect_async`, :class:`LocalCluster`, each loaded at its first use.

The types of answers are in :mod:`sbon.model`. The package imports nothing of the node.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sbon_protocol.errors import SbonError

    from .async_connection import AsyncConnection, AsyncQuery, connect_async
    from .client import Client
    from .connection import Connection, Query, connect
    from .local.cluster import LocalCluster
    from .local.node import LocalNode
    from .model import SinkSpec

__all__ = ["AsyncConnection", "AsyncQuery", "Client", "Connection", "LocalCluster", "LocalNode", "Query", "SbonError"]
__all__ += ["SinkSpec", "connect", "connect_async"]

_MODULES = {
    **dict.fromkeys(("AsyncConnection", "AsyncQuery", "connect_async"), f"{__name__}.async_connection"),
    **dict.fromkeys(("Connection", "Query", "connect"), f"{__name__}.connection"),
    "Client": f"{__name__}.client",
    "LocalCluster": f"{__name__}.local.cluster",
    "LocalNode": f"{__name__}.local.node",
    "SbonError": "sbon_protocol.errors",
    "SinkSpec": f"{__name__}.model",
}


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
