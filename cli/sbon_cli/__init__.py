"""Python interface of sbon: :func:`connect`, :func:`connect_async`, :class:`LocalCluster`, each loaded at its first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sbon import AsyncConnection, AsyncQuery, Connection, Query, SbonError, SinkSpec, connect, connect_async
    from sbon_cli.local.cluster import LocalCluster

__all__ = [
    "AsyncConnection",
    "AsyncQuery",
    "Connection",
    "LocalCluster",
    "Query",
    "SbonError",
    "SinkSpec",
    "connect",
    "connect_async",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("sbon_cli.local.cluster" if name == "LocalCluster" else "sbon"), name)
