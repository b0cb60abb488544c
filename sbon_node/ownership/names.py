"""Names of queries: a register for each name points to the only query that may live under it."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from sbon_node.ownership.consensus.changes import Verdict
from sbon_node.ownership.consensus.states import ACCEPTORS, Acceptor, State, chosen, ranked
from sbon_node.ownership.queries import Records
from sbon_node.ownership.registered import MessagePacked, Registered
from sbon_node.ownership.store.registers import Registers
from sbon_protocol.api.states.query_states import LIVE
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

NAME = "name/"
"""Keys of the registers of names begin with it."""
AMONG = 2 * ACCEPTORS
"""Members in the register's order, of which at most one may be silent where no node knows the name: nodes that joined since may
precede its acceptors."""


class NameRecord(msgspec.Struct, frozen=True):
    """The value of a name's register: the query that has the name, and the node that took its submission."""

    uid: str
    submitter: str = msgspec.field(name="holder")


FORM = MessagePacked(
    NameRecord,
    missing=lambda key: SbonError("record-unknown", "no node that answers has its register", where=key),
    deleted=lambda key: SbonError("record-unknown", "its register was deleted", where=key),
)

IsOver = Callable[[NameRecord], Awaitable[bool]]
"""Returns whether a query that no node has a record of is known to be over, or never to have run."""


class QueryNames:
    """Gives names to queries. A name is free again once its query is over."""

    def __init__(self, registers: Registers, records: Records, is_over: IsOver) -> None:
        self._registers, self._records, self._is_over = registers, records, is_over

    async def take(self, name: str, record: NameRecord, found: Awaitable[State | None]) -> None:
        """Let ``name`` point to the query, whose record exists; ``found`` is what :meth:`look_up` returns.

        Raises ``query-exists`` if another query has it and may live, ``no-majority`` if that cannot be known now.
        """
        key, state = f"{NAME}{name}", await found
        if state is None:
            outcome = await self._registers.create(key, msgspec.msgpack.encode(record), chosen(key, self._registers.candidates()))
            if outcome.verdict == Verdict.APPLIED:
                return
            state = outcome.state

        async def named(current: NameRecord) -> NameRecord:
            await self._check_free(name, current, record)
            return record

        known = None if state is None else await FORM.unpacked(key, state)
        await Registered(self._registers, FORM).change(key, named, known)

    async def look_up(self, name: str) -> State | None:
        """Return the state of a name's register, None for a name that was never used; prepare its change.

        A new register has its first acceptors by rendezvous among all members, alive or not, so that no two sides of a partition
        can both have a majority.
        """
        key, members = f"{NAME}{name}", self._registers.candidates()
        prepared, found = await asyncio.gather(self._prepared(key, chosen(key, members)), self._registers.find(key))
        if prepared is not None:
            return prepared
        if found.configuration is not None:
            return await self._registers.read(key)
        first = [one.node for one in ranked(key, members)[:AMONG]]
        silent = [node for node in found.silent if node in first]
        if len(silent) > 1:
            message = f"no answer from {', '.join(silent)}, which may know a query of this name"
            raise SbonError("no-majority", message, where="name", hint="start them again, or submit the query without a name")
        return None

    async def _prepared(self, key: str, acceptors: tuple[Acceptor, ...]) -> State | None:
        """Prepare the creation of the register while the members are still asked for it."""
        try:
            return await self._registers.prepare(key, acceptors)
        except SbonError as error:
            log.info("name-not-prepared", key=key, code=error.code, reason=str(error))
            return None

    async def _check_free(self, name: str, current: NameRecord, record: NameRecord) -> None:
        if current.uid == record.uid:
            return
        known = await self._records.read(current.uid)
        if known.state in LIVE if known is not None else not await self._is_over(current):
            raise SbonError("query-exists", f"there is a query {name!r} already", where="name", hint="choose another name")
