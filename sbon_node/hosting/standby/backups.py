"""A node's part in backups: those of its own operators and sources at other nodes, and those that it keeps, wired together."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

from sbon_node.base.tasks import Tasks
from sbon_node.context import Context
from sbon_node.engine.copies.listing import CopyLimits
from sbon_node.engine.interface import MovingEngine
from sbon_node.engine.settings import EngineSettings
from sbon_node.hosting.components import checkpoint_of
from sbon_node.hosting.moving.arrivals import Moves
from sbon_node.hosting.operators.host import OperatorHost
from sbon_node.hosting.standby.followers import BackupFollowers, Rehearsals
from sbon_node.hosting.standby.keeper import BackupKeeper, KeptOperator
from sbon_node.hosting.standby.operator import OperatorBackup, OperatorBackups, OperatorKeeper
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.hosting.standby.source import SourceBackup, SourceBackups, SourceKeeper
from sbon_node.ownership.catalogue import Catalogue
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.ownership.sources import SourceRegisters
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.durability import HOT
from sbon_protocol.api.operators import OperatorSpec

B = TypeVar("B", OperatorBackup, SourceBackup)


class _Backups(ABC, Generic[B]):
    """The ``known`` backups of this node's operators or sources, and a keeper of those of other nodes."""

    keeper: BackupKeeper[Any, Any]
    """The backups of other nodes' operators or sources."""

    def __init__(self, context: Context, settings: BackupSettings, known: Mapping[str, B], tasks: Tasks) -> None:
        self._context, self._settings, self._tasks = context, settings, tasks
        self._known: Mapping[str, B] = known

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
    """A node's part in the backups of operators; the keeper's are ``kept``."""

    def __init__(
        self,
        context: Context,
        own: OperatorBackups,
        operators: OperatorHost,
        moves: Moves,
        engine: MovingEngine,
        owners: OperatorRegisters,
        settings: BackupSettings,
        engine_settings: EngineSettings,
        kept: dict[str, KeptOperator],
    ) -> None:
        super().__init__(context, settings, own.known, own.tasks)
        self._own, self._operators = own, operators
        limits = CopyLimits(engine_settings.copy_max_files, engine_settings.copy_max_bytes)
        self._rehearsals = Rehearsals(engine, context.clock, checkpoint_of(context, ""), settings.rehearse_s)
        self._engine, self.followers = engine, BackupFollowers(context, engine, moves.starter, settings)
        keeping = (settings, moves.host_check, self._warm, limits, self.followers, kept, own.recovered)
        self.keeper: OperatorKeeper = OperatorKeeper(context, operators, moves.receiver, owners, *keeping)

    async def _warm(self, spec: OperatorSpec) -> None:
        """Prepare the engine for an operator; a follower of a hot one does the rest."""
        await (self._engine.start() if spec.durability == HOT else self._rehearsals.rehearse(spec))

    async def _look(self, backed: str, backup: OperatorBackup) -> None:
        """Yield an operator, too, that the engine has not run for long."""
        if await backup.check():
            self._own.begin(backed)
        if (known := self._known.get(backed)) is not None and self._is_stuck(backed):
            await known.yield_operator()

    def _is_stuck(self, operator: str) -> bool:
        """Return whether the engine has not run at all for so long, though an operator waits for it."""
        now_s, stuck_since_s = self._context.clock.now(), self._own.stuck_since_s
        if self._engine.status == "running" or self._operators.is_running(operator):
            stuck_since_s.pop(operator, None)
            return False
        return now_s - stuck_since_s.setdefault(operator, now_s) >= self._settings.yield_after_s


class NodeSourceBackups(_Backups[SourceBackup]):
    """A node's part in the backups of sources."""

    def __init__(
        self,
        context: Context,
        own: SourceBackups,
        catalogue: Catalogue,
        registers: SourceRegisters,
        settings: BackupSettings,
        check: Callable[[SourceDeclaration], bool],
        go_on: Callable[[SourceDeclaration], Awaitable[None]],
    ) -> None:
        """Create it; ``check`` and ``go_on`` are those of :class:`SourceKeeper`."""
        super().__init__(context, settings, own.known, Tasks())
        self.registers = registers
        self.keeper: SourceKeeper = SourceKeeper(context, catalogue, registers, settings, check, go_on)

    def start(self) -> None:
        super().start()
        self._tasks.start("registers", self.registers.run())

    async def _look(self, backed: str, backup: SourceBackup) -> None:
        await backup.check()
