"""Questions about queries whose records other nodes hold: any node answers for all."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, TypeVar

import structlog

from sbon_node.control.context import Context
from sbon_node.control.records import LIVE
from sbon_node.control.report import Bill, QueryInfo
from sbon_node.errors import SbonError
from sbon_protocol.calls import ListQueries, QueryDescription, QueryRecords, ShowQuery, StopQuery
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError

log = structlog.get_logger()

T = TypeVar("T")


class Answer(NamedTuple):
    """``queries`` is None where the node did not answer."""

    node: str
    queries: list[QueryInfo] | None


class Questions:
    """Finds the holder of a query's record by asking every member, and passes the question on."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def all(self) -> list[QueryInfo]:
        """Those of the nodes that answer."""
        answers = await asyncio.gather(*(self._ask(node) for node in self._reachable()))
        return [info for answer in answers for info in answer.queries or ()]

    async def show(self, query: str) -> tuple[QueryInfo, Bill]:
        answer = await self._context.ask(await self._holder(query), ShowQuery(query=query), QueryDescription)
        return _decoded(answer.query, tuple[QueryInfo, Bill])

    async def stop(self, query: str) -> QueryInfo:
        timeout_s = self._context.settings.call_timeout_s * 6
        answer = await self._context.ask(await self._holder(query), StopQuery(query=query), QueryDescription, timeout_s=timeout_s)
        return _decoded(answer.query, QueryInfo)

    async def check_unread(self, stream: str) -> None:
        """Raises ``stream-in-use`` where a live query reads it, ``peer-unreachable`` where one may: where a member, be it away or
        dead, does not answer. Those who have left for good hold no queries."""
        members = [member.name for member in self._context.membership.members() if member.state != "left"]
        answers = await asyncio.gather(*(self._ask(node) for node in members))
        users = [info.id for answer in answers for info in answer.queries or () if info.state in LIVE and stream in info.streams]
        if users:
            raise SbonError("stream-in-use", f"{stream} is read by {', '.join(users)}", where="stream", hint="stop them first")
        silent = [answer.node for answer in answers if answer.queries is None]
        if silent:
            hint = "try again when it is back, or has left for good"
            raise SbonError(
                "peer-unreachable", f"no answer from {', '.join(silent)}: a query there may read it", where=stream, hint=hint
            )

    async def _holder(self, query: str) -> str:
        """The first node that says it holds the record; nobody is waited for then, nor asked where this one holds it."""
        own = await self._ask(self._context.name)
        if any(info.id == query for info in own.queries or ()):
            return own.node
        asking = [asyncio.ensure_future(self._ask(node)) for node in self._context.membership.alive()]
        silent = []
        try:
            for answered in asyncio.as_completed(asking):
                answer = await answered
                if answer.queries is None:
                    silent.append(answer.node)
                elif any(info.id == query for info in answer.queries):
                    return answer.node
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        details = tuple(f"no answer from {node}" for node in sorted(silent))
        raise SbonError(
            "unknown-query", f"there is no query {query!r}", where="query", hint="see: sbon query list", details=details
        )

    def _reachable(self) -> list[str]:
        return sorted({self._context.name, *self._context.membership.alive()})

    async def _ask(self, node: str) -> Answer:
        try:
            answer = await self._context.ask(node, ListQueries(), QueryRecords, timeout_s=self._context.settings.part_timeout_s)
            return Answer(node, [decode_record(value, QueryInfo) for value in answer.queries])
        except (SbonError, ProtocolError) as error:
            log.info("queries-not-listed", node=node, reason=str(error))
            return Answer(node, None)


def _decoded(value: object, type_: type[T]) -> T:
    try:
        return decode_record(value, type_)
    except ProtocolError as error:
        raise SbonError("bad-answer", str(error), where="query", hint="do all nodes run the same version?") from error
