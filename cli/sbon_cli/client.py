"""A small typed client of a node, for commands and tests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

from sbon.http import Answer, Http
from sbon.model import Finished, Rows
from sbon.requests import ANSWER_S, DEFAULT_API, PLANNING_S, Ask, base_url, unreachable
from sbon_cli import endpoints
from sbon_cli.terminal.waiting import waiting
from sbon_node.connectors.sources.push import Pushed
from sbon_node.errors import SbonError
from sbon_node.events import Kind, Level, NodeEvent
from sbon_node.explain.placement_explanation import PlacementExplanation
from sbon_node.explain.plan_explanation import Explanation
from sbon_node.logging.levels import LogLevels
from sbon_node.model.catalogue import SourceDeclaration, StreamDeclaration
from sbon_node.model.nodes import MemberInfo, NodeStatus, PairInfo, RttRequest
from sbon_node.model.queries import Accepted, Progress, QueryInfo, QuerySpec, Submission
from sbon_node.model.streams import StreamInfo
from sbon_node.model.usage import QueryUsage
from sbon_node.operations.debug_dump_types import DebugDump
from sbon_node.operations.examination import Examination
from sbon_node.operations.readiness import UNREADY, Readiness, unready
from sbon_node.queries.listing import UNANSWERED_HEADER, QueryList, unanswered_of

R = TypeVar("R")


class Client:
    """A client of one node. Every method raises :class:`SbonError`: the node's own error, or ``node-unreachable``."""

    def __init__(self, api: str = DEFAULT_API, *, patience_s: float | None = None) -> None:
        """Set the address; ``patience_s`` is the longest wait for a plain answer, in place of the defaults above."""
        self.api = api
        self.host = urlsplit(base_url(api)).hostname or ""
        self._http = Http(api)
        self._patience_s = patience_s

    def ask(self, ask: Ask[R], within_s: float = ANSWER_S) -> R:
        return ask.decoded(self._answer(ask, within_s).body)

    def _answer(self, ask: Ask[Any], within_s: float) -> Answer:
        if self._patience_s is not None:
            within_s = self._patience_s
        path = ask.path.partition("?")[0]
        slow = "; where its engine has to start first, that takes some seconds" if path.startswith("/v1/explain") else ""
        with waiting(f"{ask.method} {path} at {self.api}{slow}"):
            return self._http.answer(ask, within_s)

    def events(self, ask: Ask[R], idle: Callable[[], None] = lambda: None) -> Iterator[R]:
        """Yield the events of a response; call ``idle`` after each ``api.keepalive_s`` without an event.

        Raises the problem at a stream's end, and ``node-unreachable`` if the stream breaks.
        """
        return self._http.events(ask, idle)

    def readiness(self) -> Readiness:
        """Return whether the node can do its work, with the worst reason against it first."""
        try:
            return self.ask(endpoints.ready())
        except SbonError as error:
            if error.code not in UNREADY:
                raise
            return unready(error)

    def examine(self) -> Examination:
        return self.ask(endpoints.examine())

    def debug_dump(self) -> DebugDump:
        return self.ask(endpoints.debug_dump())

    def metrics(self) -> bytes:
        """Return the metrics in Prometheus' format."""
        return self._http.answer(Ask("GET", "/metrics", type(None))).body

    def log_levels(self) -> LogLevels:
        return self.ask(endpoints.log_levels())

    def set_log_levels(self, levels: LogLevels) -> LogLevels:
        return self.ask(endpoints.set_log_levels(levels))

    def ready(self) -> bool:
        """Whether the node is reachable and has started."""
        try:
            return self.readiness().ready
        except SbonError as error:
            if error.code == "node-unreachable":
                return False
            raise

    def status(self) -> NodeStatus:
        return self.ask(endpoints.status())

    def members(self, near: str = "", within_ms: float | None = None) -> list[MemberInfo]:
        return self.ask(endpoints.members(near, within_ms))

    def node_events(self, kinds: Collection[Kind] = (), level: Level = "info") -> Iterator[NodeEvent]:
        """Yield events at the node from now on, without end; of all kinds by default."""
        return self.events(endpoints.events(kinds, level))

    def rtt(self, question: RttRequest) -> list[PairInfo]:
        return self.ask(endpoints.rtt(question))

    def join(self, *addresses: str) -> int:
        return self.ask(endpoints.join(addresses)).members

    def drain(self) -> None:
        self.ask(endpoints.drain())

    def leave(self, *, force: bool = False) -> None:
        self.ask(endpoints.leave(force=force))

    def streams(self) -> list[StreamInfo]:
        return self.ask(endpoints.streams())

    def stream(self, name: str) -> StreamInfo:
        return self.ask(endpoints.stream(name))

    def create_stream(self, declaration: StreamDeclaration) -> StreamInfo:
        return self.ask(endpoints.create_stream(declaration))

    def attach_source(self, source: SourceDeclaration) -> StreamInfo:
        return self.ask(endpoints.attach_source(source))

    def detach_source(self, stream: str, source: str) -> StreamInfo:
        return self.ask(endpoints.detach_source(stream, source))

    def drop_stream(self, name: str) -> None:
        self.ask(endpoints.drop_stream(name))

    def push(self, name: str, body: bytes, media_type: str, *, source: str = "", key: str = "") -> Pushed:
        """Post rows to the stream's source at this node; they are durable when it returns."""
        return self.ask(endpoints.push(name, source, body, media_type, key))

    def queries(self) -> QueryList:
        """Return all queries; ``unanswered`` of the list names the members that may hold more."""
        ask = endpoints.queries()
        answer = self._answer(ask, ANSWER_S)
        return QueryList(ask.decoded(answer.body), unanswered_of(answer.headers.get(UNANSWERED_HEADER, "")))

    def query(self, query_id: str) -> QueryInfo:
        return self.ask(endpoints.query(query_id))

    def stop_query(self, query_id: str) -> QueryInfo:
        return self.ask(endpoints.stop_query(query_id))

    def query_usage(self, query_id: str) -> QueryUsage:
        return self.ask(endpoints.query_usage(query_id))

    def explain(self, question: QuerySpec) -> Explanation:
        """Explain a query; wait as long as an engine may take to start."""
        return self.ask(endpoints.explain(question), PLANNING_S)

    def explain_query(self, query_id: str) -> Explanation:
        return self.ask(endpoints.explain_query(query_id))

    def explain_placement(self, question: QuerySpec) -> PlacementExplanation:
        """Explain a placement; wait as long as an engine may take to start."""
        return self.ask(endpoints.explain_placement(question), PLANNING_S)

    def explain_query_placement(self, query_id: str) -> PlacementExplanation:
        return self.ask(endpoints.explain_query_placement(query_id), PLANNING_S)

    def submit(self, submission: Submission) -> Iterator[Progress | Accepted]:
        """Yield the steps of a submission; the last is :class:`Accepted`."""
        return self.events(endpoints.submit(submission))

    def submitted(self, submission: Submission) -> QueryInfo:
        """Submit a query, and wait until it runs."""
        for event in self.submit(submission):
            if isinstance(event, Accepted):
                return event.query
        raise unreachable(self.api, "the connection ended before the query was accepted")

    def rows(
        self, query_id: str, after: dict[str, int] | None = None, idle: Callable[[], None] = lambda: None
    ) -> Iterator[Rows | Finished]:
        """Yield frames after those numbers, until the query is over or the connection is lost; ``idle`` as in
        :meth:`events`.
        """
        return self.events(endpoints.rows(query_id, after or {}), idle)

    def acknowledge(self, query_id: str, numbers: dict[str, int]) -> None:
        self.ask(endpoints.acknowledge(query_id, numbers))
