"""A node's part in backups: those of its own operators at other nodes, and those that it keeps, wired together."""

from __future__ import annotations

import msgspec

from sbon_node.base.tasks import Tasks
from sbon_node.engine.copies.listing import CopyLimits
from sbon_node.engine.interface import MovingEngine
from sbon_node.engine.settings import EngineSettings
from sbon_node.hosting.moving.moves import Moves
from sbon_node.hosting.operators import OperatorHost
from sbon_node.hosting.standby.followers import BackupFollowers
from sbon_node.hosting.standby.keeper import BackupKeeper
from sbon_node.hosting.standby.owner import BackupParts, OperatorBackup
from sbon_node.hosting.standby.rehearsal import Rehearsals
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.hosting.sweep import checkpoint_of
from sbon_node.ownership.consensus.states import Acceptor
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.streams.port_output import Backup
from sbon_node.workflow.context import Context
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.durability import HOT, LOCAL, BackupInfo
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.api.subscribers import BACKUP


class NodeBackups:
    """The backups in which this node takes part: as :class:`sbon_node.hosting.standby.interface.Backups`, and as a keeper."""

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
        self._tasks = Tasks()
        self._known: dict[str, OperatorBackup] = {}
        self._parts = BackupParts(
            context,
            engine,
            moves.sender,
            owners,
            settings,
            lambda spec: {one.stream: operators.ports.lineages.of(spec.id, one.stream) for one in spec.inputs},
            operators.ports.present,
            operators.ports.measures.sums,
            operators.fence,
            self._tasks,
            self._pin,
        )
        self._ports, self._operators = operators.ports, operators
        self._stuck_since: dict[str, float] = {}
        """Since when the engine has not run, by operators that wait for it."""
        limits = CopyLimits(engine_settings.copy_max_files, engine_settings.copy_max_bytes)
        self._rehearsals = Rehearsals(engine, context.clock, checkpoint_of(context, ""), settings.rehearse_s)
        self._engine, self.followers = engine, BackupFollowers(context, operators, engine, moves.starter, settings)
        self.keeper = BackupKeeper(
            context, operators, moves.receiver, owners, settings, moves.host_check, self._warm, limits, self.followers
        )
        operators.ports.backups = self

    async def _warm(self, spec: OperatorSpec) -> None:
        """Prepare the engine for an operator; a follower of a hot one does the rest."""
        await (self._engine.start() if spec.durability == HOT else self._rehearsals.rehearse(spec))

    def start(self) -> None:
        self.keeper.start()
        self._tasks.start("check", self._check())

    async def _check(self) -> None:
        """Look in the registers for ever whether this node's replicated operators are still its own.

        Those that its engine has not run for long are yielded to their backups.
        """
        context, settings = self._parts.context, self._parts.settings
        while True:
            await context.clock.sleep(settings.own_s * context.rng.uniform(0.5, 1.0))
            for operator in [one for one in self._known if one in context.outbox.streams()]:
                if (backup := self._known.get(operator)) is not None and await backup.check():
                    self.begin(operator)
                if (backup := self._known.get(operator)) is not None and self._is_stuck(operator):
                    await backup.yield_operator()

    def _is_stuck(self, operator: str) -> bool:
        """Return whether the engine has not run at all for so long, though an operator waits for it."""
        now_s = self._parts.context.clock.now()
        if self._engine.status == "running" or self._operators.is_running(operator):
            self._stuck_since.pop(operator, None)
            return False
        return now_s - self._stuck_since.setdefault(operator, now_s) >= self._parts.settings.yield_after_s

    async def stop(self) -> None:
        """Store nothing more, and take over nothing more."""
        await self.keeper.close()
        await self._tasks.close()

    def _pin(self, operator: str, pinned: bool) -> None:
        port = self._ports.open.get(operator)
        if port is not None:
            port.pin(pinned, BACKUP)

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
