"""Full exchanges of membership tables over TCP: joining, and healing what gossip has missed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import structlog

from sbon_node.clock import Clock
from sbon_node.errors import SbonError
from sbon_node.membership.settings import MembershipSettings
from sbon_node.membership.table import Table
from sbon_node.net.peers import Caller, Identity, Peers, PeerServer
from sbon_node.net.transport import Address
from sbon_protocol.calls import Members, SyncMembers
from sbon_protocol.messages import Member

log = structlog.get_logger()


class Exchanges:
    """Of one node; ``take`` is given whatever others know."""

    def __init__(
        self,
        identity: Identity,
        table: Table,
        take: Callable[[tuple[Member, ...]], None],
        *,
        peers: Peers,
        server: PeerServer,
        clock: Clock,
        rng: random.Random,
        settings: MembershipSettings,
    ) -> None:
        self._identity, self._table, self._take = identity, table, take
        self._peers, self._clock, self._rng, self._settings = peers, clock, rng, settings
        server.handle(SyncMembers, self._synced)

    async def join(self, seeds: Sequence[Address]) -> int:
        """Joins through the first seed that answers; returns how many members can be talked to then, this one included.

        A seed that is this node itself is passed over, so that all nodes may be given the same list; alone it founds a cluster.
        Raises :class:`SbonError`: ``join-failed`` with a line for each seed; or what a living one refused with (``name-taken``,
        ``wrong-cluster``, ``version``), which no other seed would change.
        """
        reasons: list[str] = []
        selves = 0
        for seed in seeds:
            try:
                if not await self._exchange(seed, joining=True):
                    selves += 1
                    continue
            except SbonError as error:
                if error.code != "peer-unreachable":
                    raise
                reasons.append(f"{seed}: {error.message}")
            else:
                return self._table.living()
        if selves and not reasons:
            return self._table.living()
        where = ", ".join(str(seed) for seed in seeds)
        raise SbonError("join-failed", "no node answers", where=where, hint="is one running there?", details=tuple(reasons))

    async def run(self) -> None:
        """With a random member now and then, sometimes with one that is thought dead: so partitions heal."""
        while True:
            await self._clock.sleep(self._settings.sync_interval_s * self._rng.uniform(0.5, 1.5))
            lost = self._table.names(frozenset({"dead", "away"}))
            there = self._table.names()
            name = self._rng.choice(lost) if lost and (not there or self._rng.random() < 0.3) else None
            name = name or (self._rng.choice(there) if there else None)
            row = self._table.get(name) if name else None
            if row is None:
                continue
            try:
                await self._exchange(Address(row.member.address.host, row.member.address.port), joining=False)
            except SbonError as error:
                log.debug("sync-failed", member=name, reason=str(error))

    async def _exchange(self, address: Address, *, joining: bool) -> bool:
        """Exchanges tables with whoever is there; False where that is this node itself."""
        call = SyncMembers(members=tuple(self._table.everyone()), joining=joining)
        reply: Members = await self._peers.call(address, call)
        if reply.members and (reply.members[0].name, reply.members[0].instance) == (self._identity.node, self._identity.instance):
            return False
        self._take(reply.members)
        return True

    async def _synced(self, call: SyncMembers, caller: Caller) -> Members:
        if call.joining:
            own = next((m for m in call.members if m.name == caller.node), None)
            if own is not None and self._table.conflicts(own):
                hint = "choose another name, use the data directory it had before, or have the other one leave"
                raise SbonError("name-taken", f"another node is called {own.name!r}", where="name", hint=hint)
        self._take(call.members)
        return Members(members=tuple(self._table.everyone()))
