"""Replacement of a register's acceptors that are gone for good, by live members."""

import asyncio
from contextlib import suppress

import structlog

from sbon_node.context import Context
from sbon_node.overlay.presence import AS_ACCEPTOR
from sbon_node.ownership.consensus.states import Acceptor, Configuration, chosen
from sbon_node.ownership.store.acceptor_store import AcceptorStore
from sbon_node.ownership.store.query_keys import ranked_as
from sbon_node.ownership.store.registers import Registers
from sbon_protocol.errors import SbonError

log = structlog.get_logger()


class Repair:
    """Looks after the registers of which this node is an acceptor.

    An acceptor is gone for good if its node has left, came back without its disk, or has been dead or unknown for
    ``control.replace_s``. The first live acceptor of a register replaces it. It also adds acceptors while there are fewer than
    three and more members. Two nodes that replace at once do no harm. Nothing is sent while all acceptors are in place.
    """

    def __init__(self, context: Context, store: AcceptorStore, registers: Registers) -> None:
        self._context, self._store, self._registers = context, store, registers
        self._missed = context.presence.watch(AS_ACCEPTOR)
        self._instances: dict[str, str] = {}
        self._replaced = asyncio.Event()

    async def run(self) -> None:
        """Look after the registers for ever, and at once after a member came back without its disk, or left."""
        self._instances = {member.name: member.instance for member in self._context.membership.members()}
        self._context.membership.listen(self._member_changed)
        while True:
            pause_s = self._context.settings.repair_s * self._context.rng.uniform(0.5, 1.0)
            with suppress(TimeoutError):
                async with self._context.clock.timeout(pause_s):
                    await self._replaced.wait()
            self._replaced.clear()
            self._watch()
            for key in sorted(self._store.states):
                await self._look_after(key)
            for key in self._registers.behind():
                await self._settle(key)

    async def _settle(self, key: str) -> None:
        try:
            await self._registers.settle(key)
        except SbonError as error:
            log.info("register-not-settled", key=key, code=error.code, reason=str(error))

    async def hand_over(self) -> list[str]:
        """Replace this node, which is about to leave, as an acceptor; return the keys that no other node can take."""
        me, left = self._store.me, []
        alive = [one for one in self._registers.candidates(alive=True) if one != me]
        for key in sorted(self._store.states):
            configuration = self._registers.configuration(key)
            if configuration is None or me not in configuration.members:
                continue
            staying = [one for one in configuration.acceptors if one in alive]
            try:
                if not alive:
                    raise SbonError("no-majority", "there is no other node")
                await self._registers.move(key, chosen(ranked_as(key), alive, staying))
            except SbonError as error:
                log.info("register-not-handed-over", key=key, code=error.code, reason=str(error))
                left.append(key)
        return left

    def _member_changed(self, name: str, change: str) -> None:
        """Wake up for an acceptor that is certainly gone; the others have time to come back."""
        member = self._context.membership.get(name)
        if member is None:
            return
        instance = self._instances.get(name)
        self._instances[name] = member.instance
        if change == "left" or (instance and member.instance and instance != member.instance):
            self._replaced.set()

    def _watch(self) -> None:
        """Note since when nodes of acceptors are dead, or unknown: a node that has just started may not have met them yet."""
        nodes = {one.node for state in self._store.states.values() for one in state.configuration.members}
        self._missed.keep(nodes)
        for node in sorted(nodes):
            self._missed.gone(node)

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
        staying = [one for one in configuration.acceptors if not self._missed.gone(one.node, one.instance)]
        alive = self._registers.candidates(alive=True)
        if next((one for one in staying if one in alive), None) != self._store.me:
            return None
        if configuration.joining:
            return configuration.joining
        wanted = chosen(ranked_as(key), alive, staying)
        if len(wanted) < len(configuration.acceptors):
            return None  # Fewer copies than now, as long as no other node is there.
        return wanted if set(wanted) != set(configuration.acceptors) else None
