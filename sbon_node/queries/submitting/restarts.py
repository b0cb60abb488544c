"""Queries that begin anew from their sources, since a part of them was lost with the nodes that had it.

All parts are new, under a new uid: whatever follows a lost operator has shown rows that cannot be repeated alike, and the frames
that its inputs have been read by others are deleted. The old query fails first, and its record says that a restart is due. The
leader of that record submits the query again, until it is accepted or refused for good. A source must still have frame 1.
"""

from __future__ import annotations

from functools import partial

import msgspec
import structlog

from sbon_node.base.tasks import Tasks, check_cancelled
from sbon_node.context import PASSING, Context, backoff_of
from sbon_node.model.records import QueryRecord
from sbon_node.ownership.queries import Records
from sbon_node.queries.describing.lookup import QueryLookup
from sbon_node.queries.driving.holder import QueryHolder
from sbon_node.queries.driving.record_steps import restarted, sink_of_restart
from sbon_node.queries.submitting.submit import Submitter
from sbon_protocol.api.queries import Accepted, QueryInfo, Submission
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

WAITS = PASSING | {"node-away", "unknown-node", "peer-unreachable", "no-majority", "too-many-queries"}
"""Codes of refusals that pass once nodes are back, or have room."""


class Restarts:
    """Looks from time to time for lost queries that this node drives, and submits them again."""

    def __init__(self, context: Context, records: Records, book: QueryHolder, lookup: QueryLookup, submitter: Submitter) -> None:
        self._context, self._records, self._book, self._lookup, self._submitter = context, records, book, lookup, submitter
        self._tasks = Tasks()

    def start(self) -> None:
        self._tasks.start("looks", self._run())

    async def close(self) -> None:
        await self._tasks.close()

    async def _run(self) -> None:
        while True:
            await self._context.clock.sleep(self._context.settings.drive_s * self._context.rng.uniform(0.5, 1.0))
            for record in self._book.records():
                if record.restart_due and self._book.leader(record.id) == self._context.name:
                    self._tasks.start(f"restart {record.id}", self._restart(record.id))

    async def _restart(self, query: str) -> None:
        """Submit the query again; retry while nodes are away, and a few times after other errors."""
        tries, backoff = 0, backoff_of(self._context.settings)
        while True:
            try:
                record = await self._book.read(query)
                if not record.restart_due or record.submission is None:
                    return
                uid = await self._successor(record) or await self._submit(record, record.submission)
                await self._records.change(query, partial(restarted, uid=uid))
                log.warning("query-restarted", query=query, successor=uid)
                return
            except SbonError as error:
                check_cancelled()
                tries += error.code not in WAITS
                log.warning("restart-waits", query=query, code=error.code, reason=str(error))
                if tries >= self._context.settings.resume_tries:
                    await self._records.change(query, partial(restarted, uid="", reason=str(error)))
                    return
            await self._context.clock.sleep(backoff.next_s())

    async def _successor(self, record: QueryRecord) -> str:
        """Return the uid under which an earlier leader has submitted it again; empty if none has."""
        try:
            info: QueryInfo = (await self._lookup.show(record.called))[0]
        except SbonError as error:
            if error.code != "unknown-query":
                raise
            return ""
        return info.uid if info.restarted_from == record.id else ""

    async def _submit(self, record: QueryRecord, submission: Submission) -> str:
        sink = sink_of_restart(submission.sink, record.restarts + 1)
        async for event in self._submitter.submit(msgspec.structs.replace(submission, sink=sink), record):
            if isinstance(event, Accepted):
                return event.query.uid
        raise SbonError("internal", "the submission ended without an answer", where=record.id)
