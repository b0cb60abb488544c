"""The backups of this node's operators, as their ports know them, and of its sources, as their host does."""

from __future__ import annotations

from typing import Protocol

from sbon_node.connectors.sources.runner import RowsBackup
from sbon_node.ownership.consensus.states import Acceptor
from sbon_node.streams.port import Backup
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.durability import BackupInfo
from sbon_protocol.api.operators import OperatorSpec


class Backups(Protocol):
    """The backups at other nodes of this node's operators."""

    def of(self, spec: OperatorSpec, acceptors: tuple[Acceptor, ...]) -> Backup | None:
        """Return the backup for an operator whose port is opened; None for an operator that has none."""
        ...

    def begin(self, operator: str) -> None:
        """Find a backup for an operator that this node hosts, and give it what was shown before."""
        ...

    def info(self, operator: str) -> BackupInfo | None:
        """Return how current the backup of an operator is; None for an operator that has none."""
        ...

    async def close(self, operator: str) -> None:
        """Store nothing more for now: the operator's port is closed."""
        ...

    def drop(self, operator: str) -> None:
        """Tell the backup that it is not needed any more: the operator is over."""
        ...

    def forget(self, operator: str) -> None:
        """Forget an operator that this node does not host any more; another node may need its backup."""
        ...


class _NoBackups:
    def of(self, spec: OperatorSpec, acceptors: tuple[Acceptor, ...]) -> Backup | None:
        return None

    def begin(self, operator: str) -> None: ...

    def info(self, operator: str) -> BackupInfo | None:
        return None

    async def close(self, operator: str) -> None: ...

    def drop(self, operator: str) -> None: ...

    def forget(self, operator: str) -> None: ...


NO_BACKUPS: Backups = _NoBackups()


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
