"""Membership over TCP: joining, exchange of tables in parts, and checks of members that do not answer datagrams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import structlog

from sbon_node.base.clock import Clock
from sbon_node.net.peers import Caller, Expected, Identity, Peers, PeerServer
from sbon_node.net.transport import Address, NameUnresolvedError
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_node.overlay.membership.table import GONE, LOST, Row, Table
from sbon_protocol.calls import CheckMember, Members, SyncMembers
from sbon_protocol.errors import SbonError
from sbon_protocol.messages import Endpoint, Member

log = structlog.get_logger()

PART_MEMBERS = 256
"""Members of a table in one answer: some 40 kB."""
MAX_PARTS = 128


SETTLE_S = 0.05


class Taker(Protocol):
    """Receives the records of other nodes, see :class:`~sbon_node.overlay.membership.service.Membership`."""

    def take(self, members: tuple[Member, ...], *, asked: bool) -> None: ...

    def vouch(self, member: Member) -> None: ...

    def bury(self, member: Member) -> None: ...

    def unsettled(self) -> bool: ...


class Exchanges:
    """One node's exchanges; ``taker`` receives the records of other nodes."""

    def __init__(
        self,
        identity: Identity,
        table: Table,
        taker: Taker,
        *,
        peers: Peers,
        server: PeerServer,
        settings: MembershipSettings,
        clock: Clock,
    ) -> None:
        self._identity, self._table, self._taker = identity, table, taker
        self._peers, self._settings, self._clock = peers, settings, clock
        server.handle(SyncMembers, self._synced)
        server.handle(CheckMember, self._checked)

    async def join(self, seeds: Sequence[Address]) -> int:
        """Join through the first seed that answers; return how many members are reachable then, this one included.

        A seed that is this node itself is skipped, so that all nodes may have the same list; alone it founds a cluster. Raises
        :class:`SbonError`: ``join-failed`` with a line for each seed; or the refusal of a living seed (``name-taken``,
        ``wrong-cluster``, ``version``), which no other seed would change.
        """
        unreachable: list[SbonError] = []
        selves = 0
        for seed in seeds:
            try:
                if not await self._exchange(seed):
                    selves += 1
                    continue
            except SbonError as error:
                if error.code != "peer-unreachable":
                    raise
                unreachable.append(error)
            else:
                await self._settle()
                return self._table.living()
        if selves and not unreachable:
            return self._table.living()
        raise _join_failed(seeds, unreachable)

    async def _settle(self) -> None:
        """Wait up to two pings' time for answers of the nodes in the table; they become members by answering."""
        until = self._clock.now() + 2 * self._settings.probe_timeout_s
        while self._taker.unsettled() and self._clock.now() < until:
            await self._clock.sleep(SETTLE_S)

    async def check(self, member: Member, *, any_instance: bool = False) -> Member | None:
        """Return the member's own record over TCP; None without an answer, or if another node answers.

        Another instance of that name is another node, unless ``any_instance``.
        """
        address = Address(member.address.host, member.address.port)
        try:
            limit_s = self._settings.stand_still_s
            who = Expected(member.name, "" if any_instance else member.instance)
            reply: Members = await self._peers.call(address, CheckMember(member), timeout_s=limit_s, expected=who)
        except SbonError as error:
            log.debug("check-failed", member=member.name, reason=str(error))
            return None
        record = next((other for other in reply.members if other.name == member.name), None)
        return record if record is not None and record.address == member.address else None

    async def succeed(self, member: Member) -> None:
        """Replace a member by another instance that answers at its address, where the member itself can run no more."""
        record = await self.check(member, any_instance=True)
        if record is not None and record.instance != member.instance:
            self._taker.bury(member)
            self._taker.vouch(record)

    async def _exchange(self, address: Address) -> bool:
        """Send this node's record and fetch the other's table; False if the address is this node's own."""
        after = ""
        for _ in range(MAX_PARTS):
            call = SyncMembers(members=(self._table.own,), joining=True, after=after, replace=self._settings.replace)
            reply: Members = await self._peers.call(address, call)
            if not reply.members:
                break
            first = reply.members[0]
            if (first.name, first.instance) == (self._identity.node, self._identity.instance):
                return False
            if not self._peers.reached(address, first.name, first.instance):
                raise SbonError(
                    "peer-unreachable", f"it says that it is {first.name}, and was reached as another", where=str(address)
                )
            if first.address == Endpoint(*address):
                self._taker.vouch(first)
            self._taker.take(reply.members, asked=True)
            last = reply.members[-1].name
            if not reply.more or last <= after:
                break
            after = last
        return True

    async def _is_there(self, own: Member) -> bool:
        """Return whether this very instance answers at the address, so that the node there before is gone."""
        record = await self.check(own)
        return record is not None and record.instance == own.instance

    async def _check_name(self, own: Member, *, replace: bool) -> None:
        """Raise ``name-taken`` if the joining node's name belongs to another data directory.

        The word to ``replace`` it gives the name to the joining node, if the other one is dead or away, or if the joining node
        answers at its address. Queries count the other one as gone for good from then on.
        """
        known = self._table.member(own.name)
        if known is None or known.instance == own.instance or known.state == "left":
            return
        row = self._table.get(own.name)
        if row is None or not replace:
            raise self._name_taken(own, row)
        if known.state not in LOST and not (known.address == own.address and await self._is_there(own)):
            raise self._name_taken(own, row)
        self._taker.bury(known)

    def _name_taken(self, own: Member, row: Row | None) -> SbonError:
        if row is None:  # The name is this node's own.
            hint = "choose another name"
            return SbonError("name-taken", f"the node that was asked to join is called {own.name!r}", where="name", hint=hint)
        known, seconds, dead_s = row.member, self._clock.now() - row.since, self._settings.declared_dead_s
        there = f"{known.state} for {seconds:.0f} s at {known.address.host}:{known.address.port}"
        if row.predecessor == own.instance:
            message = f"a node with another data directory has taken the name {own.name!r} over, {there}"
            hint = "to have the name back, stop that node and start this one with --replace; or choose another name"
            hint += " and an empty data directory"
        elif known.state in LOST:
            message = f"the name {own.name!r} belongs to a node with another data directory, {there}"
            hint = "start it on that data directory; if that is lost, with --replace, and queries count the old node as gone"
        else:
            message = f"another node is called {own.name!r}, {there}; if it has died, that is known in at most {dead_s:.0f} s"
            hint = "choose another name, use the data directory it had before, or have the other one leave"
        return SbonError("name-taken", message, where="name", hint=hint)

    async def _synced(self, call: SyncMembers, caller: Caller) -> Members:
        """Serve a part of the table. The first begins with this node and its record of the caller, which may have restarted."""
        own = next((m for m in call.members if m.name == caller.node), None)
        if call.joining and own is not None:
            await self._check_name(own, replace=call.replace)
        known = self._table.get(caller.node)
        self._taker.take(call.members, asked=False)
        first = (self._table.own, *(() if known is None else (known.member,))) if not call.after else (self._table.own,)
        rest = [row.member for row in self._table.rows() if row.member.name > call.after and row.member.state not in GONE]
        return Members(members=(*first, *rest[:PART_MEMBERS]), more=len(rest) > PART_MEMBERS)

    async def _checked(self, call: CheckMember, caller: Caller) -> Members:
        if call.member.name == self._identity.node:
            self._taker.take((call.member,), asked=False)
        return Members(members=(self._table.own,))


def _join_failed(seeds: Sequence[Address], unreachable: Sequence[SbonError]) -> SbonError:
    """Return the error of a join through seeds none of which answers: a name without an address is a slip, not an absent node."""
    message, hint = "no node answers", "is one running there?"
    if all(isinstance(error.__cause__, NameUnresolvedError) for error in unreachable):
        message = unreachable[0].message if len(unreachable) == 1 else "none of the names can be resolved"
        hint = unreachable[0].hint
    details = tuple(f"{error.where}: {error.message}" for error in unreachable)
    return SbonError("join-failed", message, where=", ".join(map(str, seeds)), hint=hint, details=details)
