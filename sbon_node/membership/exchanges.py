"""Membership over TCP: joining, part by part of another's table; and asking a member that does not answer datagrams."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from sbon_node.errors import SbonError
from sbon_node.membership.settings import MembershipSettings
from sbon_node.membership.table import GONE, Table
from sbon_node.net.peers import Caller, Identity, Peers, PeerServer
from sbon_node.net.transport import Address
from sbon_protocol.calls import CheckMember, Members, SyncMembers
from sbon_protocol.messages import Member

log = structlog.get_logger()

PART_MEMBERS = 256
"""Of a table in one answer: some 40 kB."""
MAX_PARTS = 128


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
        settings: MembershipSettings,
    ) -> None:
        self._identity, self._table, self._take = identity, table, take
        self._peers, self._settings = peers, settings
        server.handle(SyncMembers, self._synced)
        server.handle(CheckMember, self._checked)

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
                if not await self._exchange(seed):
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

    async def check(self, member: Member) -> Member | None:
        """What the member says of itself over TCP; None where it says nothing, or somebody else does."""
        address = Address(member.address.host, member.address.port)
        try:
            reply: Members = await self._peers.call(address, CheckMember(member), timeout_s=self._settings.stand_still_s)
        except SbonError as error:
            log.debug("check-failed", member=member.name, reason=str(error))
            return None
        return next((found for found in reply.members if found.name == member.name), None)

    async def _exchange(self, address: Address) -> bool:
        """Tells whoever is there of this node, and takes its table; False where that is this node itself."""
        after = ""
        for _ in range(MAX_PARTS):
            call = SyncMembers(members=(self._table.own,), joining=True, after=after)
            reply: Members = await self._peers.call(address, call)
            if not reply.members:
                break
            if (reply.members[0].name, reply.members[0].instance) == (self._identity.node, self._identity.instance):
                return False
            self._take(reply.members)
            last = reply.members[-1].name
            if not reply.more or last <= after:
                break
            after = last
        return True

    async def _synced(self, call: SyncMembers, caller: Caller) -> Members:
        """The first part begins with this node and what it knows of the caller, who may be starting anew."""
        own = next((m for m in call.members if m.name == caller.node), None)
        if call.joining and own is not None and self._table.conflicts(own):
            hint = "choose another name, use the data directory it had before, or have the other one leave"
            raise SbonError("name-taken", f"another node is called {own.name!r}", where="name", hint=hint)
        known = self._table.get(caller.node)
        self._take(call.members)
        first = (self._table.own, *(() if known is None else (known.member,))) if not call.after else (self._table.own,)
        rest = [row.member for row in self._table.rows() if row.member.name > call.after and row.member.state not in GONE]
        return Members(members=(*first, *rest[:PART_MEMBERS]), more=len(rest) > PART_MEMBERS)

    async def _checked(self, call: CheckMember, caller: Caller) -> Members:
        if call.member.name == self._identity.node:
            self._take((call.member,))
        return Members(members=(self._table.own,))
