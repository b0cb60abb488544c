"""Replacement of a register's acceptors that are gone for good, by live members."""

from __future__ import annotations

import structlog

from sbon_node.errors import SbonError
from sbon_node.registers.states import Acceptor, Configuration
from sbon_node.replication.acceptor_store import AcceptorStore
from sbon_node.replication.registers import Registers
from sbon_node.replication.rendezvous import chosen
from sbon_node.workflow.context import Context

log = structlog.get_logger()


class Repair:
    """Looks after the registers of which this node is an acceptor.

    An acceptor is gone for good if its node has left, came back without its disk, or has been dead for ``control.replace_s``. The
    first live acceptor of a register replaces it. It also adds acceptors while there are fewer than three and more members. Two
    nodes that replace at once do no harm. Nothing is sent while all acceptors are in place.
    """

    def __init__(self, context: Context, store: AcceptorStore, registers: Registers) -> None:
        self._context, self._store, self._registers = context, store, registers
        self._dead_since: dict[str, float] = {}

    async def run(self) -> None:
        while True:
            await self._context.clock.sleep(self._context.settings.repair_s * self._context.rng.uniform(0.5, 1.0))
            self._watch()
            for key in sorted(self._store.states):
                await self._look_after(key)

    def _watch(self) -> None:
        """Note since when nodes are dead."""
        now = self._context.clock.now()
        dead = [member.name for member in self._context.membership.members() if member.state == "dead"]
        self._dead_since = {name: self._dead_since.get(name, now) for name in dead}

    async def _look_after(self, key: str) -> None:
        state = self._store.state(key)
        if state is None or (acceptors := self._wanted(key, state.configuration)) is None:
            return
        try:
            await self._registers.move(key, acceptors)
        except SbonError as error:
            log.info("acceptors-not-replaced", key=key, code=error.code, reason=str(error))
        else:
            log.info("acceptors-replaced", key=key, acceptors=[one.node for one in acceptors])

    def _wanted(self, key: str, configuration: Configuration) -> tuple[Acceptor, ...] | None:
        """Return the acceptors that the register should have; None if it has them, or another node sees to it."""
        staying = [one for one in configuration.acceptors if not self._gone(one)]
        alive = self._registers.candidates(alive=True)
        if next((one for one in staying if one in alive), None) != self._store.me:
            return None
        if configuration.joining:
            return configuration.joining
        wanted = chosen(key, alive, staying)
        return wanted if set(wanted) != set(configuration.acceptors) else None

    def _gone(self, acceptor: Acceptor) -> bool:
        member = self._context.membership.get(acceptor.node)
        if member is None or member.state == "left" or member.instance not in ("", acceptor.instance):
            return True
        since = self._dead_since.get(acceptor.node)
        return since is not None and self._context.clock.now() - since >= self._context.settings.replace_s
