"""Query lookup: any node answers questions about queries whose records other nodes hold."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeVar

import msgspec
import structlog

from sbon_node.context import Context
from sbon_node.model.records import QueryRecord
from sbon_node.ownership.acceptors import in_turn
from sbon_node.ownership.names import NameRecord
from sbon_node.ownership.store.registers import UNDECIDED
from sbon_protocol.api.queries import ForeignComponent, OperatorInfo, QueryInfo, QueryList, SinkSpec, Unanswered
from sbon_protocol.api.query_ids import name_of
from sbon_protocol.api.states.lifecycle import LOST, UNREACHABLE
from sbon_protocol.api.states.query_states import LIVE, QueryState
from sbon_protocol.api.usage import QueryUsage
from sbon_protocol.calls import CheckQueries, ListQueries, QueriesChecked, QueryDescription, QueryRecords, ShowQuery, StopQuery
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError, did_you_mean

log = structlog.get_logger()
T = TypeVar("T")
NO_HISTORY = 2**53
"""Later than every point."""


class Answer(NamedTuple):
    """A node's answer, None for ``queries`` without one; ``components`` are its parts of queries whose records others hold."""

    node: str
    queries: list[QueryInfo] | None
    components: tuple[ForeignComponent, ...] = ()


class QueryAcceptors(NamedTuple):
    """A query's uid, and the acceptors of its record that may answer for it, the best first."""

    uid: str
    nodes: tuple[str, ...]


class QueryLookup:
    """Finds the acceptors of a query's record by asking every member, and forwards the request to one of them."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def all(self) -> QueryList:
        """Return the queries of all nodes that answer, each as the acceptor with the newest state knows it; the oldest first.

        For queries whose record no node that answers has, return what the hosts of their components know. Raise
        ``nodes-unreachable`` if no node answers, this one included.
        """
        answers = await self._ask_all()
        answered = frozenset(answer.node for answer in answers if answer.queries is not None)
        if not answered:
            message = f"no node answers, not even the one asked: {', '.join(map(str, self._unanswered(answers)))}"
            raise SbonError(
                "nodes-unreachable", message, hint="lessen the load of their machines, or raise control.call_timeout_s"
            )
        known = [_marked(info, answered) for info in _newest_states(answers)]
        lost = [self._without_record(query, parts, answered) for query, parts in (await self._orphans(answers)).items()]
        oldest_first = sorted([*_newest(known), *lost], key=lambda info: (not info.submitted_ms, info.submitted_ms, info.id))
        return QueryList(oldest_first, self._unanswered(answers))

    async def is_over(self, name: NameRecord) -> bool:
        """Return whether the query of that record is known to be over, or was never accepted.

        It may live while a node hosts parts of it, and while its submitter does not answer, unless another member remembers its
        end.
        """
        answers = await self._ask_all(name.uid)
        known = [info.state for answer in answers for info in answer.queries or () if info.uid == name.uid]
        if known:
            return not any(state in LIVE for state in known)
        if any(component.query == name.uid for answer in answers for component in answer.components):
            return False
        if not any(answer.node == name.submitter and answer.queries is None for answer in answers):
            return True
        return any(await asyncio.gather(*(self._remembers_end(name.uid, answer) for answer in answers)))

    async def _remembers_end(self, uid: str, answer: Answer) -> bool:
        """Return whether a member that has answered was an acceptor of the query's record, and knows that it is over."""
        if answer.queries is None:
            return False
        call, timeout_s = CheckQueries(queries=(uid,)), self._context.settings.component_timeout_s
        try:
            checked = await self._context.ask(answer.node, call, QueriesChecked, timeout_s=timeout_s)
        except SbonError as error:
            log.info("end-not-asked", query=uid, node=answer.node, code=error.code, reason=str(error))
            return False
        return uid in (*checked.over, *checked.refused)

    async def show(self, query: str, history_after_ms: int = NO_HISTORY) -> tuple[QueryInfo, QueryUsage]:
        """Return the query with its network usage and the history points later than ``history_after_ms``."""
        acceptors = await self.acceptors(query)
        answer = await self._first(acceptors, ShowQuery(query=acceptors.uid, history_after_ms=history_after_ms))
        return decoded(answer.query, tuple[QueryInfo, QueryUsage])

    async def query(self, query: str) -> QueryInfo:
        return (await self.show(query))[0]

    async def usage(self, query: str, after_ms: int = -1) -> QueryUsage:
        """Return the network usage of the query, with the points of its history later than ``after_ms``."""
        return (await self.show(query, after_ms))[1]

    async def stop(self, query: str) -> QueryInfo:
        acceptors = await self.acceptors(query, lost=True)
        answer = await self._first(acceptors, StopQuery(query=acceptors.uid), timeout_s=self._context.settings.call_timeout_s * 6)
        return decoded(answer.query, QueryInfo)

    async def _first(
        self, acceptors: QueryAcceptors, call: ShowQuery | StopQuery, timeout_s: float | None = None
    ) -> QueryDescription:
        """Return the answer of the first acceptor that gives one, the leader first; else raise the last error."""

        async def ask(node: str) -> QueryDescription:
            return await self._context.ask(node, call, QueryDescription, timeout_s=timeout_s)

        return await in_turn(self._context, acceptors.nodes, ask, tells_more=lambda error: error.code in UNDECIDED)

    async def check_unread(self, stream: str) -> None:
        """Raise ``stream-in-use`` if a live query reads the stream, ``peer-unreachable`` if one may.

        A query may read it if a member does not answer, even if that member is away or dead. Nodes that have left for good hold
        no queries.
        """
        answers = await self._ask_all()
        users = sorted({info.id for info in _newest_states(answers) if info.state in LIVE and stream in info.streams})
        if users:
            raise SbonError("stream-in-use", f"{stream} is read by {', '.join(users)}", where="stream", hint="stop them first")
        unanswered = [answer.node for answer in answers if answer.queries is None]
        if unanswered:
            hint = "try again when it is back, or has left for good"
            raise SbonError(
                "peer-unreachable", f"no answer from {', '.join(unanswered)}: a query there may read it", where=stream, hint=hint
            )

    async def acceptors(self, query: str, *, lost: bool = False) -> QueryAcceptors:
        """Return the acceptors of a query's record, by uid or name; with ``lost``, acceptors that have lost it count.

        The others are not waited for, nor asked if this node keeps it, unless ``query`` names a query that is over: a newer one
        may have that name.
        """
        own = await self._ask(self._context.name, query)
        if (found := next((info for info in own.queries or () if _is_it(info, query)), None)) is not None:
            return _acceptors_of(found, own.node)
        asking = [asyncio.ensure_future(self._ask(node, query)) for node in self._members() if node != self._context.name]
        answers = [own]
        try:
            for answered in asyncio.as_completed(asking):
                answer = await answered
                answers.append(answer)
                if (found := next((info for info in answer.queries or () if _is_it(info, query)), None)) is not None:
                    return _acceptors_of(found, answer.node)
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        over = [(info.submitted_ms, answer.node, info) for answer in answers for info in answer.queries or () if info.id == query]
        if over:
            _, node, info = max(over, key=lambda one: one[:2])
            return _acceptors_of(info, node)
        answered_nodes = frozenset(answer.node for answer in answers if answer.queries is not None)
        for uid, components in (await self._orphans(answers)).items():
            if query in (uid, name_of(uid)):
                return self._without_acceptors(components, answered_nodes, lost=lost)
        raise await self._not_found(query, answers)

    def _without_acceptors(self, components: list[ForeignComponent], answered: frozenset[str], *, lost: bool) -> QueryAcceptors:
        """Return the acceptors of a query whose record is lost, for its end; raise why it cannot be asked for otherwise."""
        uid, acceptors = components[0].query, components[0].acceptors
        hosts = ", ".join(sorted({component.node for component in components}))
        if not _have_majority(acceptors, answered):
            silent = [node for node in acceptors if node not in answered]
            raise SbonError(
                "holder-unreachable",
                f"no answer from {self._all_shown(silent)}, which keep the record of {name_of(uid)!r}; parts are at {hosts}",
                where="query",
                hint=f"start {' and '.join(silent)} again, or restore the network; until then only its rows are available",
            )
        if lost:
            return QueryAcceptors(uid, tuple(node for node in acceptors if node in answered))
        message = f"{', '.join(acceptors)} have lost the record of {name_of(uid)!r}; parts of it are at {hosts}"
        hint = f"end them with: sbon query stop {name_of(uid)}; then submit the query again"
        raise SbonError("record-lost", message, where="query", hint=hint)

    async def _not_found(self, query: str, answers: list[Answer]) -> SbonError:
        unanswered = self._unanswered(answers)
        if not unanswered:
            known = {info.id for answer in await self._ask_all() for info in answer.queries or ()}
            hint = did_you_mean(query, known, "see: sbon query list")
            return SbonError("unknown-query", f"there is no query {query!r}", where="query", hint=hint)
        message = (
            f"no node that answers has the query {query!r}; no answer from {', '.join(map(str, unanswered))}: it may be there"
        )
        names = " and ".join(answer.node for answer in unanswered)
        hint = f"start {names} again, or restore the network to them; or check the name: sbon query list"
        return SbonError("unknown-query", message, where="query", hint=hint, details=tuple(map(str, unanswered)))

    async def _orphans(self, answers: Iterable[Answer]) -> dict[str, list[ForeignComponent]]:
        """Return components by query, in order, of whose query no node that answers has the record.

        The acceptors are asked twice, because a submission or an ending may have been in progress.
        """
        known = {info.uid for answer in answers for info in answer.queries or ()}
        candidates: dict[str, list[ForeignComponent]] = {}
        components = (component for answer in answers for component in answer.components)
        for component in sorted(components, key=lambda component: (component.query, component.component)):
            if component.query not in known:
                candidates.setdefault(component.query, []).append(component)
        again = await asyncio.gather(*(self._is_recorded(query, parts[0].acceptors) for query, parts in candidates.items()))
        return {query: parts for (query, parts), recorded in zip(candidates.items(), again, strict=True) if not recorded}

    async def _is_recorded(self, query: str, acceptors: Iterable[str]) -> bool:
        present = [node for node in acceptors if not self._context.presence.away(node)]
        return any(answer.queries for answer in await asyncio.gather(*(self._ask(node, query) for node in present)))

    def _without_record(self, query: str, components: list[ForeignComponent], answered: frozenset[str]) -> QueryInfo:
        """Describe a query by its components' hosts: its acceptors do not answer, or have lost the record."""
        acceptors, sink = components[0].acceptors, f"{query}.sink"
        lost = _have_majority(acceptors, answered)
        consumer = next((component.node for component in components if component.component == sink), "")
        left = ", ".join(f"{component.component} at {component.node}" for component in components)
        if lost:
            stop = f"sbon query stop {name_of(query)}"
            reason = f"{', '.join(acceptors)} have lost its record; left are {left}, which end with: {stop}"
        else:
            silent = [node for node in acceptors if node not in answered]
            reason = f"no answer from {self._all_shown(silent)}, which keep its record; there are {left}"
        state: QueryState = LOST if lost else UNREACHABLE
        operators = tuple(
            OperatorInfo(id=component.component, node=component.node, fragment="", state=state, stats=None)
            for component in components
            if component.component != sink
        )
        return QueryInfo(
            id=name_of(query),
            uid=query,
            sql="",
            state=state,
            reason=reason,
            node=next(iter(acceptors), ""),
            acceptors=acceptors,
            consumer=consumer,
            operators=operators,
        )

    def _all_shown(self, nodes: Iterable[str]) -> str:
        return ", ".join(str(Unanswered(node, self._state(node))) for node in nodes)

    def _state(self, node: str) -> str:
        member = self._context.membership.get(node)
        return member.state if member is not None else "unknown"

    def _unanswered(self, answers: Iterable[Answer]) -> list[Unanswered]:
        return sorted(Unanswered(answer.node, self._state(answer.node)) for answer in answers if answer.queries is None)

    def _members(self) -> list[str]:
        """Return all members by name, this node included; nodes that have left for good hold nothing."""
        return [member.name for member in self._context.membership.members() if member.state != "left"]

    async def _ask_all(self, query: str = "") -> list[Answer]:
        return await asyncio.gather(*(self._ask(node, query) for node in self._members()))

    async def _ask(self, node: str, query: str = "") -> Answer:
        return await ask_for_queries(self._context, node, query)


async def ask_for_queries(context: Context, node: str, query: str = "") -> Answer:
    """Ask a node for all queries, or for one ``query``, by uid or name."""
    try:
        answer = await context.ask(node, ListQueries(query=query), QueryRecords, timeout_s=context.settings.component_timeout_s)
        queries: list[QueryInfo] = [decode_record(value, QueryInfo) for value in answer.queries]
        components: list[ForeignComponent] = [decode_record(value, ForeignComponent) for value in answer.components]
        return Answer(node, queries, tuple(component for component in components if component.node == node))
    except (SbonError, ProtocolError) as error:
        context.counters.refuse("queries-not-listed", node=node, reason=str(error))
        return Answer(node, None)


def _acceptors_of(info: QueryInfo, node: str) -> QueryAcceptors:
    nodes = dict.fromkeys(one for one in (info.node, node, *info.acceptors) if one)
    return QueryAcceptors(info.uid, tuple(nodes))


def _have_majority(acceptors: Collection[str], answered: Collection[str]) -> bool:
    return 2 * sum(node in answered for node in acceptors) > len(acceptors)


def _newest_states(answers: Iterable[Answer]) -> list[QueryInfo]:
    """Return each query in its newest state, of equal ones that of its leader."""
    newest: dict[str, tuple[tuple[int, bool], QueryInfo]] = {}
    for answer in answers:
        for info in answer.queries or ():
            order = info.version, info.node == answer.node
            if info.uid not in newest or order > newest[info.uid][0]:
                newest[info.uid] = order, info
    return [info for _, info in newest.values()]


def _marked(info: QueryInfo, answered: Collection[str]) -> QueryInfo:
    """Mark a query as stale if too few of its acceptors have answered."""
    if not info.acceptors or _have_majority(info.acceptors, answered) or info.state not in LIVE:
        return info
    silent = ", ".join(node for node in info.acceptors if node not in answered)
    return stale(info, f"no answer from {silent}, which keep its record")


def _is_it(info: QueryInfo, query: str) -> bool:
    """Return whether this is the query of that uid, or the live one of that name."""
    return info.uid == query or (info.id == query and info.state in LIVE)


def _newest(known: Iterable[QueryInfo]) -> list[QueryInfo]:
    """Return one query of each name: the live one, or else the newest. The others are shown by their uids."""
    the_newest_last = sorted(known, key=lambda info: (info.state in LIVE, info.submitted_ms))
    return list({info.id: info for info in the_newest_last}.values())


def decoded(value: object, type_: type[T], where: str = "query") -> T:
    """Return the peer's record; raise ``bad-answer`` if it is not valid."""
    try:
        return decode_record(value, type_)
    except ProtocolError as error:
        raise SbonError("bad-answer", str(error), where=where, hint="do all nodes run the same version?") from error


# -- Summaries for lists: everything that a query's leader knows without requests -------------------------------------

SUMMARY_BYTES = 300
"""Most bytes of a query's text, and of its reason, in a list: a list of all records must fit a message."""


def summary_of(context: Context, record: QueryRecord, nodes: Iterable[str], counted: int | None, trouble: str = "") -> QueryInfo:
    """Return the summary; ``nodes`` are its hosts, ``counted`` the rows at the last count, ``trouble`` why it may wait."""
    return QueryInfo(
        id=record.called,
        uid=record.id,
        sql=_cut(record.sql),
        state=record.state,
        reason=_cut(record.reason or _missing(context, record, nodes) or trouble),
        submitted_ms=record.submitted_ms,
        node=context.name,
        consumer=record.consumer,
        sink=SinkSpec(kind=record.sink.kind),
        **record.goal_options(),
        adapt=record.adapt,
        durability=record.durability,
        streams=record.streams,
        rows=record.last.rows if record.last is not None else counted,
    )


def stale(info: QueryInfo, why: str) -> QueryInfo:
    """Return a description that may have changed since, and says so."""
    reason = f"may be stale: {why}"
    return msgspec.structs.replace(info, stale=True, reason=f"{info.reason}; {reason}" if info.reason else reason)


def _missing(context: Context, record: QueryRecord, nodes: Iterable[str]) -> str:
    """Return the nodes that the query needs and that are missing as far as this node knows, and since when."""
    if record.state not in LIVE:
        return ""
    sources = (planned.source.node for planned in record.plan.sources)
    needed = sorted({*sources, *nodes, record.consumer} - {context.name})
    return "; ".join(f"{name} {why}" for name in needed if (why := context.presence.absence(name)))


def _cut(text: str) -> str:
    encoded = text.encode()
    return text if len(encoded) <= SUMMARY_BYTES else encoded[: SUMMARY_BYTES - 3].decode(errors="ignore") + "…"


# -- Lists of queries, and the members that did not answer ------------------------------------------------------------

UNANSWERED_HEADER = "Sbon-Unanswered"
MAX_NAMED = 100
"""Most members that the header names, because a response's header is bounded."""


def header_of(unanswered: Iterable[Unanswered]) -> str:
    """Return ``new-york=dead, paris=away``; names and states contain neither separator."""
    return ", ".join(f"{answer.node}={answer.state}" for answer in tuple(unanswered)[:MAX_NAMED])
