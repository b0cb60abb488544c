"""Questions about queries whose records other nodes hold: any node answers for all."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import structlog

from sbon_node.control.context import Context
from sbon_node.control.report import Bill, QueryInfo
from sbon_node.errors import SbonError
from sbon_protocol.calls import ListQueries, QueryDescription, QueryRecords, ShowQuery, StopQuery
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError

log = structlog.get_logger()

T = TypeVar("T")


class Questions:
    """Finds the holder of a query's record by asking every member, and passes the question on."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def all(self) -> list[QueryInfo]:
        return [info for _, infos in await self._ask_all() for info in infos]

    async def show(self, query: str) -> tuple[QueryInfo, Bill]:
        answer = await self._context.ask(await self._holder(query), ShowQuery(query=query), QueryDescription)
        return _decoded(answer.query, tuple[QueryInfo, Bill])

    async def stop(self, query: str) -> QueryInfo:
        timeout_s = self._context.settings.call_timeout_s * 6
        answer = await self._context.ask(await self._holder(query), StopQuery(query=query), QueryDescription, timeout_s=timeout_s)
        return _decoded(answer.query, QueryInfo)

    async def _holder(self, query: str) -> str:
        for node, infos in await self._ask_all():
            if any(info.id == query for info in infos):
                return node
        raise SbonError("unknown-query", f"there is no query {query!r}", where="query", hint="see: sbon query list")

    async def _ask_all(self) -> list[tuple[str, list[QueryInfo]]]:
        nodes = sorted({self._context.name, *self._context.membership.alive()})
        return list(zip(nodes, await asyncio.gather(*(self._ask(node) for node in nodes)), strict=True))

    async def _ask(self, node: str) -> list[QueryInfo]:
        try:
            answer = await self._context.ask(node, ListQueries(), QueryRecords)
            return [decode_record(value, QueryInfo) for value in answer.queries]
        except (SbonError, ProtocolError) as error:
            log.info("queries-not-listed", node=node, reason=str(error))
            return []


def _decoded(value: object, type_: type[T]) -> T:
    try:
        return decode_record(value, type_)
    except ProtocolError as error:
        raise SbonError("bad-answer", str(error), where="query", hint="do all nodes run the same version?") from error
