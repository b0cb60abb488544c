"""The backup of a replicated source, as the source's runner uses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from sbon_node.model.frames import FrameDraft
from sbon_protocol.api.durability import BackupInfo

Waits = Callable[[str], None]
"""Called with the reason for which the source has to wait."""


class RowsBackup(Protocol):
    """Another node, which stores rows before their source shows or confirms them.

    Both calls last as long as it takes. They raise ``fenced`` if another node hosts the source.
    """

    async def begin(self, waits: Waits) -> int:
        """Return the epoch in which this node hosts the source."""
        ...

    async def store(self, drafts: Sequence[FrameDraft], position: bytes, waits: Waits) -> None:
        """Store the next frames of the source's stream, and the position after them."""
        ...

    def info(self) -> BackupInfo: ...
