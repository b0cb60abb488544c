"""Query lookup: any node answers questions about queries whose records other nodes hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from sbon_node.errors import SbonError
from sbon_node.model.queries import ForeignComponent, OperatorInfo, QueryInfo
from sbon_node.model.states.lifecycle import LOST, UNREACHABLE
from sbon_node.model.states.query_states import LIVE, QueryState
from sbon_node.model.usage import QueryUsage
from sbon_node.queries.listing import QueryList, Unanswered
from sbon_node.workflow.context import Context
from sbon_protocol.calls import ListQueries, QueryDescription, QueryRecords, ShowQuery, StopQuery
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError

T = TypeVar("T")
NO_HISTORY = 2**53
"""Later than every point."""


class Answer(NamedTuple):
    """A node's answer: None for ``queries`` if it did not answer.

    ``components`` are the parts it hosts of queries whose records other nodes hold.
    """

    node: str
    queries: list[QueryInfo] | None
    components: tuple[ForeignComponent, ...] = ()


class QueryLookup:
    """Finds the holder of a query's record by asking every member, and forwards the request."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def all(self) -> QueryList:
        """Return the queries of all nodes that answer.

        For queries whose holder does not answer or has lost the record, return what the hosts of their parts know.
        """
        answers = await self._ask_all()
        known = [info for answer in answers for info in answer.queries or ()]
        names = {info.id for info in known}
        orphans = {query: components for query, components in self._orphans(answers).items() if query not in names}
        lost = [self._without_record(query, components, lost=False) for query, components in orphans.items()]
        lost += [
            self._without_record(query, components, lost=True) for query, components in (await self._forgotten(answers)).items()
        ]
        return QueryList([*known, *lost], self._unanswered(answers))

    async def is_taken(self, query: str) -> bool:
        """Return whether a query of that name exists.

        It exists if an answering node holds it, or hosts parts of such a query whose holder does not answer.
        """
        answers = await self._ask_all(query)
        left = (*self._orphans(answers), *await self._forgotten(answers))
        return query in left or any(info.id == query for answer in answers for info in answer.queries or ())

    async def show(self, query: str, history_after_ms: int = NO_HISTORY) -> tuple[QueryInfo, QueryUsage]:
        """Return the query with its network usage and the history points later than ``history_after_ms``."""
        call = ShowQuery(query=query, history_after_ms=history_after_ms)
        answer = await self._context.ask(await self._holder(query), call, QueryDescription)
        return _decoded(answer.query, tuple[QueryInfo, QueryUsage])

    async def stop(self, query: str) -> QueryInfo:
        """Stop the query; if its record is lost, its holder ends the components that are left."""
        timeout_s = self._context.settings.call_timeout_s * 6
        holder = await self._holder(query, lost=True)
        answer = await self._context.ask(holder, StopQuery(query=query), QueryDescription, timeout_s=timeout_s)
        return _decoded(answer.query, QueryInfo)

    async def check_unread(self, stream: str) -> None:
        """Raise ``stream-in-use`` if a live query reads the stream, ``peer-unreachable`` if one may.

        A query may read it if a member does not answer, even if that member is away or dead. Nodes that have left for good hold
        no queries.
        """
        answers = await self._ask_all()
        users = [info.id for answer in answers for info in answer.queries or () if info.state in LIVE and stream in info.streams]
        if users:
            raise SbonError("stream-in-use", f"{stream} is read by {', '.join(users)}", where="stream", hint="stop them first")
        unanswered = [answer.node for answer in answers if answer.queries is None]
        if unanswered:
            hint = "try again when it is back, or has left for good"
            raise SbonError(
                "peer-unreachable", f"no answer from {', '.join(unanswered)}: a query there may read it", where=stream, hint=hint
            )

    async def _holder(self, query: str, *, lost: bool = False) -> str:
        """Return the first node that says it holds the record, without waiting for the others.

        No other node is asked if this node holds it. With ``lost``, a holder that has lost the record counts.
        """
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
        if (components := (await self._forgotten(answers)).get(query)) is not None:
            hosts, holder = ", ".join(sorted({component.node for component in components})), components[0].holder
            if lost:
                return holder
            hint = f"end them with: sbon query stop {query}; then submit the query again"
            message = f"{holder} has lost the record of {query!r}; parts of it are at {hosts}"
            raise SbonError("record-lost", message, where="query", hint=hint)
        raise self._not_found(query, answers)

    def _not_found(self, query: str, answers: list[Answer]) -> SbonError:
        if (components := self._orphans(answers).get(query)) is not None:
            hosts, holder = ", ".join(sorted({component.node for component in components})), components[0].holder
            return SbonError(
                "holder-unreachable",
                f"no answer from {self._shown(holder)}, which holds the record of {query!r}; parts of it are at {hosts}",
                where="query",
                hint=f"start {holder} again, or restore the network to it; until then only the query's rows are available",
            )
        unanswered = self._unanswered(answers)
        if not unanswered:
            return SbonError("unknown-query", f"there is no query {query!r}", where="query", hint="see: sbon query list")
        message = (
            f"no node that answers has the query {query!r}; no answer from {', '.join(map(str, unanswered))}: it may be there"
        )
        names = " and ".join(answer.node for answer in unanswered)
        hint = f"start {names} again, or restore the network to them; or check the name: sbon query list"
        return SbonError("unknown-query", message, where="query", hint=hint)

    def _orphans(self, answers: Iterable[Answer]) -> dict[str, list[ForeignComponent]]:
        """Return parts by query, in order, whose query holder did not answer."""
        answered = {answer.node for answer in answers if answer.queries is not None}
        return _by_query(answers, lambda component: component.holder not in answered)

    async def _forgotten(self, answers: Iterable[Answer]) -> dict[str, list[ForeignComponent]]:
        """Return parts by query whose holder answers but does not know the query.

        The holder is asked twice, because a submission or an ending may have been in progress.
        """
        known = {answer.node: {info.id for info in answer.queries} for answer in answers if answer.queries is not None}
        candidates = _by_query(answers, lambda component: component.query not in known.get(component.holder, {component.query}))
        again = await asyncio.gather(*(self._ask(components[0].holder, query) for query, components in candidates.items()))
        return {
            query: components
            for (query, components), answer in zip(candidates.items(), again, strict=True)
            if answer.queries == []
        }

    def _without_record(self, query: str, components: list[ForeignComponent], *, lost: bool) -> QueryInfo:
        """Describe a query by its parts' hosts: its holder does not answer, or has ``lost`` the record."""
        holder, sink = components[0].holder, f"{query}.sink"
        consumer = next((component.node for component in components if component.component == sink), "")
        left = ", ".join(f"{component.component} at {component.node}" for component in components)
        if lost:
            reason = f"{holder} has lost its record; left are {left}, which end with: sbon query stop {query}"
        else:
            reason = f"no answer from {self._shown(holder)}, which holds its record; there are {left}"
        state: QueryState = LOST if lost else UNREACHABLE
        operators = tuple(
            OperatorInfo(id=component.component, node=component.node, fragment="", state=state, stats=None)
            for component in components
            if component.component != sink
        )
        return QueryInfo(id=query, sql="", state=state, reason=reason, node=holder, consumer=consumer, operators=operators)

    def _shown(self, node: str) -> str:
        return str(Unanswered(node, self._state(node)))

    def _state(self, node: str) -> str:
        member = self._context.membership.get(node)
        return member.state if member is not None else "unknown"

    def _unanswered(self, answers: Iterable[Answer]) -> list[Unanswered]:
        return sorted(Unanswered(answer.node, self._state(answer.node)) for answer in answers if answer.queries is None)

    def _members(self) -> list[str]:
        """Return all members by name, this node included.

        Nodes that have left for good are left out, because they hold nothing.
        """
        return [member.name for member in self._context.membership.members() if member.state != "left"]

    async def _ask_all(self, query: str = "") -> list[Answer]:
        return await asyncio.gather(*(self._ask(node, query) for node in self._members()))

    async def _ask(self, node: str, query: str = "") -> Answer:
        """Ask a node for all queries, or for one ``query``."""
        call, timeout_s = ListQueries(query=query), self._context.settings.component_timeout_s
        try:
            answer = await self._context.ask(node, call, QueryRecords, timeout_s=timeout_s)
            queries: list[QueryInfo] = [decode_record(value, QueryInfo) for value in answer.queries]
            components: list[ForeignComponent] = [decode_record(value, ForeignComponent) for value in answer.components]
            return Answer(node, queries, tuple(component for component in components if component.node == node))
        except (SbonError, ProtocolError) as error:
            self._context.counters.refuse("queries-not-listed", node=node, reason=str(error))
            return Answer(node, None)


def _by_query(answers: Iterable[Answer], chosen: Callable[[ForeignComponent], bool]) -> dict[str, list[ForeignComponent]]:
    """Return the chosen parts by query, in order."""
    by_query: dict[str, list[ForeignComponent]] = {}
    for component in sorted(
        (component for answer in answers for component in answer.components),
        key=lambda component: (component.query, component.component),
    ):
        if chosen(component):
            by_query.setdefault(component.query, []).append(component)
    return by_query


def _decoded(value: object, type_: type[T]) -> T:
    try:
        return decode_record(value, type_)
    except ProtocolError as error:
        raise SbonError("bad-answer", str(error), where="query", hint="do all nodes run the same version?") from error
