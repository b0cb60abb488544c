"""All that a node needs for moves of operators, wired together: those that leave it, those that come, and their copies."""

from __future__ import annotations

import shutil

from sbon_node.context import Context
from sbon_node.engine.copies.listing import CopyLimits
from sbon_node.engine.copies.receiver import CopyReceiver
from sbon_node.engine.copies.sender import CopySender
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.engine.interface import MovingEngine
from sbon_node.engine.settings import EngineSettings
from sbon_node.hosting.moving.arrivals import Arrivals
from sbon_node.hosting.moving.departures import Departures
from sbon_node.hosting.moving.host_check import HostCheck
from sbon_node.hosting.moving.starter import Arrival, FollowerStarter
from sbon_node.hosting.operators.host import OperatorHost
from sbon_node.ownership.acceptors import RecordAcceptors
from sbon_node.ownership.operators import OperatorRegisters


class Moves:
    """The moves in which this node takes part."""

    def __init__(
        self,
        engine_settings: EngineSettings,
        settings: MigrationSettings,
        context: Context,
        sender: CopySender,
        operators: OperatorHost,
        engine: MovingEngine,
        owners: OperatorRegisters,
        records: RecordAcceptors,
        arriving: dict[str, Arrival],
    ) -> None:
        context.server.on_copy(sender.serve)
        receiver = self.receiver = CopyReceiver(
            context.peers,
            clock=context.clock,
            executor=context.executor,
            settings=settings,
            limits=CopyLimits(engine_settings.copy_max_files, engine_settings.copy_max_bytes),
            rng=context.rng,
        )
        self._copies = context.data_dir / "copies"
        self.departures = Departures(context, operators, engine, sender, owners, engine_settings, settings)
        self.host_check = HostCheck(context, owners, settings)
        starter = self.starter = FollowerStarter(context, operators.ports, engine, receiver, engine_settings, settings)
        self.arrivals = Arrivals(context, operators, engine, starter, owners, records, settings, self.host_check, arriving)

    def start(self) -> None:
        """Go on with moves of an earlier run, as far as they may be committed; its copies are of no use any more."""
        shutil.rmtree(self._copies, ignore_errors=True)
        self.arrivals.start()

    async def close(self) -> None:
        await self.departures.close()
        await self.arrivals.close()
