"""What a node tells of its inside, for a debug dump."""

from __future__ import annotations

from typing import Any

import msgspec


class Inside(msgspec.Struct, frozen=True, kw_only=True):
    """Secrets are hidden in all of it. ``log`` are the last lines, ``engine_log`` the end of the engine's."""

    versions: dict[str, str]
    config: dict[str, Any]
    tasks: tuple[str, ...]
    threads: tuple[str, ...]
    log: tuple[str, ...]
    engine_log: tuple[str, ...]
