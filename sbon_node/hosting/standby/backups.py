"""A node's part in backups: those of its own operators and sources at other nodes, and those that it keeps, wired together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import msgspec

from sbon_node.base.tasks import Tasks
from sbon_node.connectors.sources.runner import RowsBackup
from sbon_node.context import Context
from sbon_node.engine.copies.listing import CopyLimits
from sbon_node.engine.interface import MovingEngine
from sbon_node.engine.settings import EngineSettings
from sbon_node.hosting.moving.moves import Moves
from sbon_node.hosting.operators import OperatorHost
from sbon_node.hosting.sources import SourceHost
from sbon_node.hosting.standby.followers import BackupFollowers
from sbon_node.hosting.standby.keeper import BackupKeeper
from sbon_node.hosting.standby.operator import BackupParts, OperatorBackup, OperatorKeeper
from sbon_node.hosting.standby.rehearsal import Rehearsals
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.hosting.standby.source import SourceBackup, SourceBackupParts, SourceKeeper
from sbon_node.hosting.sweep import checkpoint_of
from sbon_node.model.records import SourceRegister
from sbon_node.ownership.catalogue import Catalogue
from sbon_node.ownership.consensus.states import Acceptor
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.ownership.sources import SourceRegisters
from sbon_node.ownership.store.registers import Registers
from sbon_node.streams.port import Backup
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.durability import HOT, LOCAL, REPLICATED, BackupInfo
from sbon_protocol.api.operators import OperatorSpec

B = TypeVar("B", OperatorBackup, SourceBackup)


class _Backups(ABC, Generic[B]):
    """Backups of this node's operators or sources, which look from time to time whether they are still needed."""

    keeper: BackupKeeper[Any, Any]
    """The backups of other nodes' operators or sources."""

    def __init__(self, context: Context, settings: BackupSettings) -> None:
        self._context, self._settings = context, settings
        self._known: dict[str, B] = {}
        self._tasks = Tasks()

    @abstractmethod
    async def _look(self, backed: str, backup: B) -> None:
        """Look whether this node still hosts it, and whether its backup is there."""

    def start(self) -> None:
        self.keeper.start()
        self._tasks.start("check", self._check())

    async def stop(self) -> None:
        """Store nothing more, and take over nothing more."""
        await self.keeper.close()
        await self._tasks.close()

    async def _check(self) -> None:
        """Look after the backups of what runs here, for ever."""
        while True:
            await self._context.clock.sleep(self._settings.own_s * self._context.rng.uniform(0.5, 1.0))
            for backed in [one for one in self._known if one in self._context.outbox.streams()]:
                if (backup := self._known.get(backed)) is not None:
                    await self._look(backed, backup)


class NodeBackups(_Backups[OperatorBackup]):
    """The backups of operators: as :class:`sbon_node.hosting.standby.interface.Backups`, and as a keeper."""

    def __init__(
        self,
        context: Context,
        operators: OperatorHost,
        moves: Moves,
        engine: MovingEngine,
        owners: OperatorRegisters,
        settings: BackupSettings,
        engine_settings: EngineSettings,
    ) -> None:
        super().__init__(context, settings)
        self._parts = BackupParts(context, operators, engine, moves.sender, owners, settings, self._tasks)
        self._operators = operators
        self._stuck_since: dict[str, float] = {}
        """Since when the engine has not run, by operators that wait for it."""
        limits = CopyLimits(engine_settings.copy_max_files, engine_settings.copy_max_bytes)
        self._rehearsals = Rehearsals(engine, context.clock, checkpoint_of(context, ""), settings.rehearse_s)
        self._engine, self.followers = engine, BackupFollowers(context, engine, moves.starter, settings)
        self.keeper: OperatorKeeper = OperatorKeeper(
            context, operators, moves.receiver, owners, settings, moves.host_check, self._warm, limits, self.followers
        )
        operators.ports.backups = self

    async def _warm(self, spec: OperatorSpec) -> None:
        """Prepare the engine for an operator; a follower of a hot one does the rest."""
        await (self._engine.start() if spec.durability == HOT else self._rehearsals.rehearse(spec))

    async def _look(self, backed: str, backup: OperatorBackup) -> None:
        """Yield an operator, too, that the engine has not run for long."""
        if await backup.check():
            self.begin(backed)
        if (known := self._known.get(backed)) is not None and self._is_stuck(backed):
            await known.yield_operator()

    def _is_stuck(self, operator: str) -> bool:
        """Return whether the engine has not run at all for so long, though an operator waits for it."""
        now_s = self._context.clock.now()
        if self._engine.status == "running" or self._operators.is_running(operator):
            self._stuck_since.pop(operator, None)
            return False
        return now_s - self._stuck_since.setdefault(operator, now_s) >= self._settings.yield_after_s

    # -- of this node's operators -------------------------------------------------------------------------------------

    def of(self, spec: OperatorSpec, acceptors: tuple[Acceptor, ...]) -> Backup | None:
        if spec.durability == LOCAL:
            return None
        backup = self._known[spec.id] = OperatorBackup(spec, acceptors, self._parts)
        return backup

    def begin(self, operator: str) -> None:
        backup = self._known.get(operator)
        if backup is not None:
            self._tasks.start(f"prepare {operator}", backup.prepare())

    def info(self, operator: str) -> BackupInfo | None:
        backup = self._known.get(operator)
        return (
            None
            if backup is None
            else msgspec.structs.replace(backup.info(), recovered=self.keeper.recovered.get(operator, "")[:MAX_REASON])
        )

    async def close(self, operator: str) -> None:
        await self._tasks.stop(f"prepare {operator}")
        backup = self._known.get(operator)
        if backup is not None:
            await backup.close()

    def drop(self, operator: str) -> None:
        backup = self._known.get(operator)
        if backup is not None:
            backup.drop()

    def forget(self, operator: str) -> None:
        self._known.pop(operator, None)
        self._stuck_since.pop(operator, None)
        self.keeper.recovered.pop(operator, None)


class NodeSourceBackups(_Backups[SourceBackup]):
    """The backups of sources: as :class:`sbon_node.hosting.standby.interface.SourceBackups`, and as a keeper."""

    def __init__(
        self, context: Context, catalogue: Catalogue, registers: Registers, settings: BackupSettings, sources: SourceHost
    ) -> None:
        super().__init__(context, settings)
        self.registers = SourceRegisters(context, registers, catalogue)
        self.keeper: SourceKeeper = SourceKeeper(context, catalogue, self.registers, settings, sources.check_here, sources.go_on)
        self._parts = SourceBackupParts(context, self.registers, settings, self._moved)
        self._sources = sources
        sources.backups = self

    def start(self) -> None:
        super().start()
        self._tasks.start("registers", self.registers.run())

    async def _look(self, backed: str, backup: SourceBackup) -> None:
        await backup.check()

    # -- of this node's sources ---------------------------------------------------------------------------------------

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
