"""The backups of this node's sources, as the host of sources knows them."""

from __future__ import annotations

from typing import Protocol

from sbon_node.connectors.sources.backup import RowsBackup
from sbon_protocol.api.catalogue import SourceDeclaration


class SourceBackups(Protocol):
    """The backups at other nodes of this node's sources, and those that it keeps."""

    def attach(self, source: SourceDeclaration) -> None:
        """Prepare for a replicated source that is about to be attached here, before the catalogue has it."""
        ...

    def of(self, source: SourceDeclaration) -> RowsBackup | None:
        """Return the backup for a source that is about to run; None for a local one."""
        ...

    def close(self, source_id: str) -> None:
        """Forget the backup of a source that does not run any more; ignore an unknown one."""
        ...

    def kept(self) -> list[str]:
        """Return the sources of other nodes of which this node keeps a backup."""
        ...


class _NoSourceBackups:
    def attach(self, source: SourceDeclaration) -> None: ...

    def of(self, source: SourceDeclaration) -> RowsBackup | None:
        return None

    def close(self, source_id: str) -> None: ...

    def kept(self) -> list[str]:
        return []


NO_SOURCE_BACKUPS: SourceBackups = _NoSourceBackups()
