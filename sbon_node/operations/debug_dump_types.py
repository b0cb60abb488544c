"""Types of a debug dump."""

from __future__ import annotations

from typing import Any

import msgspec


class DebugDump(msgspec.Struct, frozen=True, kw_only=True):
    """A debug dump without secrets.

    ``log`` holds the last lines of the node's log, ``engine_log`` the end of the engine's.
    """

    versions: dict[str, str]
    config: dict[str, Any]
    tasks: tuple[str, ...]
    threads: tuple[str, ...]
    log: tuple[str, ...]
    engine_log: tuple[str, ...]
