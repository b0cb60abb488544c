"""The work that a record asks of its acceptors, done by the first of them that lives: the query's leader.

The choice of the leader matters for liveness alone. Safety comes from the register: a majority decides each change, and all
other work may be done twice. So a node leads by what it knows, without asking, and two may lead for a while.
"""

from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any

import structlog

from sbon_node.base.tasks import Tasks
from sbon_node.context import Context, backoff_of
from sbon_node.model.records import QueryRecord
from sbon_node.overlay.presence import AS_SUBMITTER
from sbon_node.ownership.consensus.states import Acceptor
from sbon_node.ownership.queries import Records
from sbon_protocol.api.states import query_states
from sbon_protocol.api.states.query_states import LIVE
from sbon_protocol.errors import SbonError

log = structlog.get_logger()


@dataclass(frozen=True)
class Work:
    """The work that the duties ask of a query's leader, by the query's uid."""

    is_submitting: Callable[[str], bool]
    begin: Callable[[str], None]
    """Begin the usage history of a query that runs."""
    end: Callable[[str], None]
    """End what this node does for a query while it leads it."""
    clean: Callable[[str], Coroutine[Any, Any, None]]
    """Ask every host to delete its components, until all have answered."""
    give_up: Callable[[str, str], Coroutine[Any, Any, None]]
    """End a query, whose submitter is gone, for a reason."""


class Duties:
    """Looks after this node's records at its start, every ``control.drive_s``, and when a member changes.

    A leader ends a query that was being placed when its submitter died, has hosts delete the components of a query that is over,
    and forgets refused submissions. A submitter that is gone gets ``control.takeover_s`` to come back; one that came back without
    its disk or was restarted is certain not to go on.
    """

    def __init__(self, context: Context, records: Records, tasks: Tasks, work: Work, most: int) -> None:
        self._context, self._records, self._tasks, self._work, self._most = context, records, tasks, work, most
        self._submitters = context.presence.watch(AS_SUBMITTER)
        self._led: dict[str, None] = {}

    def start(self) -> None:
        """Look after all records at once, and catch up with what other acceptors have decided meanwhile."""
        for record in self._records.all():
            self._look_after(record)
        self._tasks.start("refresh", self._refresh(self._records.unfinished()))
        self._tasks.start("lead", self._run())
        self._context.membership.listen(self._member_changed)

    def leader_of(self, query: str) -> str:
        """Return the first acceptor that lives, as far as this node knows; this node for a record that it does not know."""
        living = (one.node for one in self._records.acceptors(query) if self._context.presence.has(one.node, one.instance))
        return next(living, self._context.name)

    def leads(self, query: str) -> bool:
        return self.leader_of(query) == self._context.name

    async def _run(self) -> None:
        settings, known = self._context.settings, self._incarnations()
        changed: dict[str, None] = {}
        while True:
            await self._context.clock.sleep(settings.drive_s * self._context.rng.uniform(0.5, 1.0))
            before, known = known, self._incarnations()
            changed.update((name, None) for name, one in known.items() if before.get(name) != one)
            if "refresh" not in self._tasks:
                # A change that this node has read, but not accepted, would be undone for it by a restart.
                queries = dict.fromkeys((*self._shared_with(changed), *self._records.behind()))
                changed = {}
                if queries:
                    self._tasks.start("refresh", self._refresh(list(queries)))
            self._look_after_all()

    def _incarnations(self) -> dict[str, int]:
        """Return the members' incarnations, which grow when one restarts, or refutes that it is suspected or dead."""
        return {member.name: member.incarnation for member in self._context.membership.members()}

    def _shared_with(self, names: Collection[str]) -> list[str]:
        """Return unfinished queries of which one of these nodes may have missed a change; all, if it is this node."""
        queries = self._records.unfinished() if names else []
        if self._context.name in names:
            return queries
        return [query for query in queries if any(one.node in names for one in self._records.acceptors(query))]

    def _member_changed(self, name: str, change: str) -> None:
        if change in ("died", "went-away", "left", "joined", "returned"):
            self._look_after_all()

    def _look_after_all(self) -> None:
        records = self._records.all()
        placing = {record.id for record in records if record.state == query_states.PLACING}
        self._submitters.keep(placing)
        for record in records:
            self._look_after(record)
        ended = [record.id for record in records if record.state not in LIVE and record.cleaned]
        for query in ended[: max(0, len(records) - self._most)]:
            self._tasks.start(f"forget {query}", self._forget(query))

    def _look_after(self, record: QueryRecord) -> None:
        query = record.id
        if record.withdrawn:
            self._tasks.start(f"forget {query}", self._forget(query))
        leads = self.leads(query)
        if query in self._led and not (leads and record.state in LIVE):
            del self._led[query]
            self._work.end(query)
        if not leads:
            return
        if record.state == query_states.RUNNING and query not in self._led:
            self._led[query] = None
            self._work.begin(query)
        elif record.state == query_states.PLACING and (reason := self._abandoned(record)):
            self._tasks.start(f"undo {query}", self._work.give_up(query, reason))
        elif record.state not in LIVE and not record.cleaned:
            self._tasks.start(f"clean {query}", self._work.clean(query))

    def _abandoned(self, record: QueryRecord) -> str:
        """Return why nobody goes on to place the query; empty while its submitter may."""
        submitter = Acceptor(record.submitter, record.submitter_instance)
        if submitter.node == self._context.name:
            same = self._context.presence.has(submitter.node, submitter.instance)
            return "" if same and self._work.is_submitting(record.id) else "the node restarted while the query was being placed"
        gone = self._submitters.gone(submitter.node, submitter.instance, record.id)
        if not gone:
            return ""
        self._submitters.forget(record.id)
        what = "lost its data" if gone == "lost-disk" else "was gone"
        return f"{submitter.node} {what} while the query was being placed"

    async def _refresh(self, queries: list[str]) -> None:
        """Bring records up to date at all acceptors; retry while some are unreachable."""
        backoff = backoff_of(self._context.settings)
        while queries := [query for query in queries if not await self._refreshed(query)]:
            await self._context.clock.sleep(backoff.next_s())

    async def _refreshed(self, query: str) -> bool:
        try:
            await self._records.refresh(query)
        except SbonError as error:
            log.info("record-not-refreshed", query=query, code=error.code, reason=str(error))
            return False
        return True

    async def _forget(self, query: str) -> None:
        backoff = backoff_of(self._context.settings)
        while not await self._records.forget(query):
            await self._context.clock.sleep(backoff.next_s())
