"""All that a node needs for backups of sources, wired together: those of its own at other nodes, and those that it keeps."""

from __future__ import annotations

from sbon_node.base.tasks import Tasks
from sbon_node.connectors.sources.backup import RowsBackup
from sbon_node.hosting.sources import SourceHost
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.hosting.standby.source_keeper import SourceBackupKeeper
from sbon_node.hosting.standby.source_owner import SourceBackup, SourceBackupParts
from sbon_node.model.records import SourceRegister
from sbon_node.ownership.catalogue import Catalogue
from sbon_node.ownership.sources import SourceRegisters
from sbon_node.ownership.store.registers import Registers
from sbon_node.workflow.context import Context
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.durability import REPLICATED


class NodeSourceBackups:
    """The backups of sources in which this node takes part."""

    def __init__(
        self, context: Context, catalogue: Catalogue, registers: Registers, settings: BackupSettings, sources: SourceHost
    ) -> None:
        self.registers = SourceRegisters(context, registers, catalogue)
        self.keeper = SourceBackupKeeper(context, catalogue, self.registers, settings, sources.check_here, sources.go_on)
        self._parts = SourceBackupParts(context, self.registers, settings, self._moved)
        self._sources = sources
        self._known: dict[str, SourceBackup] = {}
        self._tasks = Tasks()
        sources.backups = self

    def start(self) -> None:
        self.keeper.start()
        self._tasks.start("check", self._check())
        self._tasks.start("registers", self.registers.run())

    async def _check(self) -> None:
        """Look for ever whether this node's replicated sources are still its own, and their backups there."""
        context, settings = self._parts.context, self._parts.settings
        while True:
            await context.clock.sleep(settings.own_s * context.rng.uniform(0.5, 1.0))
            for source_id in [one for one in self._known if one in context.outbox.streams()]:
                if (backup := self._known.get(source_id)) is not None:
                    await backup.check()

    async def stop(self) -> None:
        """Store nothing more, and take over nothing more."""
        await self.keeper.close()
        await self._tasks.close()

    def attach(self, source: SourceDeclaration) -> None:
        self.registers.attach(source.id)

    def of(self, source: SourceDeclaration) -> RowsBackup | None:
        if source.durability != REPLICATED:
            return None
        backup = self._known[source.id] = SourceBackup(source, self._parts)
        return backup

    def close(self, source_id: str) -> None:
        self._known.pop(source_id, None)

    def kept(self) -> list[str]:
        return self.keeper.kept()

    def _moved(self, source: SourceDeclaration, register: SourceRegister) -> None:
        self._sources.moved(source, register.host, register.epoch)
