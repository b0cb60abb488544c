"""Questions about queries whose records other nodes hold: any node answers for all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import structlog

from sbon_node.control.context import Context
from sbon_node.control.query_list import QueryList, Unanswered
from sbon_node.control.records import LIVE
from sbon_node.control.report import Bill, ForeignPart, QueryInfo
from sbon_node.errors import SbonError
from sbon_protocol.calls import ListQueries, QueryDescription, QueryRecords, ShowQuery, StopQuery
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError

log = structlog.get_logger()

T = TypeVar("T")


class Answer(NamedTuple):
    """``queries`` is None where the node did not answer; ``parts`` are those it hosts of queries whose records others hold."""

    node: str
    queries: list[QueryInfo] | None
    parts: tuple[ForeignPart, ...] = ()


class Questions:
    """Finds the holder of a query's record by asking every member, and passes the question on."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def all(self) -> QueryList:
        """Those of the nodes that answer; and those whose record's holder does not, as far as their parts' hosts tell."""
        answers = await self._ask_all()
        known = [info for answer in answers for info in answer.queries or ()]
        names = {info.id for info in known}
        lost = [self._lost(query, parts) for query, parts in self._orphans(answers).items() if query not in names]
        return QueryList([*known, *lost], self._unanswered(answers))

    async def is_taken(self, query: str) -> bool:
        """Whether a node that answers holds a query of that name, or hosts parts of one whose record's holder does not."""
        answers = await self._ask_all(query)
        return query in self._orphans(answers) or any(info.id == query for answer in answers for info in answer.queries or ())

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
        answers = await self._ask_all()
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
        own = await self._ask(self._context.name, query)
        if any(info.id == query for info in own.queries or ()):
            return own.node
        asking = [asyncio.ensure_future(self._ask(node, query)) for node in self._members() if node != self._context.name]
        answers = [own]
        try:
            for answered in asyncio.as_completed(asking):
                answer = await answered
                answers.append(answer)
                if any(info.id == query for info in answer.queries or ()):
                    return answer.node
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        raise self._not_found(query, answers)

    def _not_found(self, query: str, answers: list[Answer]) -> SbonError:
        if (parts := self._orphans(answers).get(query)) is not None:
            hosts, holder = ", ".join(sorted({part.node for part in parts})), parts[0].holder
            return SbonError(
                "holder-unreachable",
                f"no answer from {self._shown(holder)}, which holds the record of {query!r}; parts of it are at {hosts}",
                where="query",
                hint=f"start {holder} again, or mend the way to it; until then nothing but the query's rows can be had",
            )
        unanswered = self._unanswered(answers)
        if not unanswered:
            return SbonError("unknown-query", f"there is no query {query!r}", where="query", hint="see: sbon query list")
        message = (
            f"no node that answers has the query {query!r}; no answer from {', '.join(map(str, unanswered))}: it may be there"
        )
        names = " and ".join(one.node for one in unanswered)
        hint = f"start {names} again, or mend the way there; or is the name another? see: sbon query list"
        return SbonError("unknown-query", message, where="query", hint=hint)

    def _orphans(self, answers: Iterable[Answer]) -> dict[str, list[ForeignPart]]:
        """By query, in order: parts whose record's holder did not answer. One that did, and does not know the query, has ended
        it."""
        answered = {answer.node for answer in answers if answer.queries is not None}
        found: dict[str, list[ForeignPart]] = {}
        for part in sorted((part for answer in answers for part in answer.parts), key=lambda part: (part.query, part.part)):
            if part.holder not in answered:
                found.setdefault(part.query, []).append(part)
        return found

    def _lost(self, query: str, parts: list[ForeignPart]) -> QueryInfo:
        holder = parts[0].holder
        consumer = next((part.node for part in parts if part.part == f"{query}.sink"), "")
        reason = f"no answer from {self._shown(holder)}, which holds its record"
        return QueryInfo(id=query, sql="", state="unreachable", reason=reason, node=holder, consumer=consumer)

    def _shown(self, node: str) -> str:
        return str(Unanswered(node, self._state(node)))

    def _state(self, node: str) -> str:
        member = self._context.membership.get(node)
        return member.state if member is not None else "unknown"

    def _unanswered(self, answers: Iterable[Answer]) -> list[Unanswered]:
        return sorted(Unanswered(one.node, self._state(one.node)) for one in answers if one.queries is None)

    def _members(self) -> list[str]:
        """All but those who have left for good, who hold nothing: by name, this one among them."""
        return [member.name for member in self._context.membership.members() if member.state != "left"]

    async def _ask_all(self, query: str = "") -> list[Answer]:
        return await asyncio.gather(*(self._ask(node, query) for node in self._members()))

    async def _ask(self, node: str, query: str = "") -> Answer:
        """For all, or for one ``query``."""
        call, timeout_s = ListQueries(query=query), self._context.settings.part_timeout_s
        try:
            answer = await self._context.ask(node, call, QueryRecords, timeout_s=timeout_s)
            queries: list[QueryInfo] = [decode_record(value, QueryInfo) for value in answer.queries]
            parts: list[ForeignPart] = [decode_record(value, ForeignPart) for value in answer.parts]
            return Answer(node, queries, tuple(part for part in parts if part.node == node))
        except (SbonError, ProtocolError) as error:
            log.info("queries-not-listed", node=node, reason=str(error))
            return Answer(node, None)


def _decoded(value: object, type_: type[T]) -> T:
    try:
        return decode_record(value, type_)
    except ProtocolError as error:
        raise SbonError("bad-answer", str(error), where="query", hint="do all nodes run the same version?") from error
