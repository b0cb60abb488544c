"""A client with a method for each request of the API; :class:`.connection.Connection` is more convenient for most programs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Self
from urllib.parse import urlsplit

from sbon_protocol.errors import SbonError

from . import endpoints
from .following import Elsewhere
from .http import Http
from .model import (
    Accepted,
    DrainStep,
    Explanation,
    Finished,
    Listing,
    MemberInfo,
    MoveCancelled,
    Moved,
    Moving,
    NodeDrained,
    NodeStatus,
    PairInfo,
    PlacementExplanation,
    Progress,
    Pushed,
    QueryInfo,
    QueryList,
    QuerySpec,
    QueryUsage,
    Reader,
    Readiness,
    Rows,
    RttRequest,
    SinkInfo,
    SinkRequest,
    SourceDeclaration,
    StreamDeclaration,
    StreamInfo,
    Submission,
    ViewDeclaration,
)
from .readiness import UNREADY, unready
from .requests import DEFAULT_API, base_url, not_accepted


class Client(Http):
    """A client of one node. Every method raises :class:`SbonError`: the node's own error, or ``node-unreachable``."""

    def __init__(self, api: str = DEFAULT_API) -> None:
        super().__init__(api)
        self.host = urlsplit(base_url(api)).hostname or ""

    def readiness(self) -> Readiness:
        """Return whether the node can do its work, with the worst reason against it first."""
        try:
            return self.ask(endpoints.ready())
        except SbonError as error:
            if error.code not in UNREADY:
                raise
            return unready(error)

    def ready(self) -> bool:
        """Whether the node is reachable and has started."""
        try:
            return self.readiness().ready
        except SbonError as error:
            if error.code == "node-unreachable":
                return False
            raise

    def metrics(self) -> bytes:
        """Return the metrics in Prometheus' format."""
        return self.answer(endpoints.metrics()).body

    def status(self) -> NodeStatus:
        return self.ask(endpoints.status())

    def members(self, near: str = "", within_ms: float | None = None) -> Listing[MemberInfo]:
        """Return all members, or those within a round-trip time of the node ``near``."""
        members = self.ask(endpoints.members(near, within_ms))
        return Listing(members)

    def rtt(self, question: RttRequest) -> Listing[PairInfo]:
        pairs = self.ask(endpoints.rtt(question))
        return Listing(pairs)

    def join(self, *addresses: str) -> int:
        """Join the cluster of the nodes at these addresses; return the number of its known members."""
        return self.ask(endpoints.join(addresses)).members

    def drain(self, *, dry_run: bool = False) -> Iterator[DrainStep | NodeDrained]:
        """Yield the steps of operators that leave the node, which takes no part in queries any more; then the end."""
        return self.events(endpoints.drain(dry_run=dry_run))

    def leave(self, *, force: bool = False) -> None:
        self.ask(endpoints.leave(force=force))

    def streams(self) -> Listing[StreamInfo]:
        streams = self.ask(endpoints.streams())
        return Listing(streams)

    def stream(self, name: str) -> StreamInfo:
        return self.ask(endpoints.stream(name))

    def create_stream(self, declaration: StreamDeclaration) -> StreamInfo:
        return self.ask(endpoints.create_stream(declaration))

    def create_view(self, view: ViewDeclaration) -> StreamInfo:
        return self.ask(endpoints.create_view(view))

    def attach_source(self, source: SourceDeclaration) -> StreamInfo:
        return self.ask(endpoints.attach(source))

    def detach_source(self, stream: str, source: str) -> StreamInfo:
        return self.ask(endpoints.detach(stream, source))

    def drop_stream(self, name: str) -> None:
        self.ask(endpoints.drop_stream(name))

    def push(self, name: str, body: bytes, media_type: str, *, source: str = "", key: str = "") -> Pushed:
        """Post rows to the stream's source at this node; they are durable when it returns."""
        return self.ask(endpoints.push(name, body, media_type, source, key))

    def queries(self) -> QueryList:
        """Return all queries; ``unanswered`` of the list names the members that may hold more."""
        return endpoints.query_list(*self.answer(endpoints.queries()))

    def query(self, query_id: str) -> QueryInfo:
        return self.ask(endpoints.query(query_id))

    def stop_query(self, query_id: str) -> QueryInfo:
        return self.ask(endpoints.stop(query_id))

    def move_operator(self, query_id: str, operator: str, to: str, how: str = "follow") -> Iterator[Moving | Moved]:
        """Yield the steps of a move of an operator to another node; the last is :class:`Moved`."""
        return self.events(endpoints.move(query_id, operator, to, how))

    def cancel_move(self, query_id: str, operator: str) -> MoveCancelled:
        """Give up the move of an operator, which goes on where it is."""
        return self.ask(endpoints.cancel_move(query_id, operator))

    def query_usage(self, query_id: str) -> QueryUsage:
        return self.ask(endpoints.query_usage(query_id))

    def explain(self, question: QuerySpec) -> Explanation:
        """Explain a query; wait as long as an engine may take to start."""
        return self.ask(endpoints.explain(question))

    def explain_query(self, query_id: str) -> Explanation:
        return self.ask(endpoints.explain_query(query_id))

    def explain_placement(self, question: QuerySpec) -> PlacementExplanation:
        """Explain a placement; wait as long as an engine may take to start."""
        return self.ask(endpoints.explain_placement(question))

    def explain_query_placement(self, query_id: str) -> PlacementExplanation:
        return self.ask(endpoints.explain_query_placement(query_id))

    def submit(self, submission: Submission) -> Generator[Progress | Accepted, None, None]:
        """Yield the steps of a submission; the last is :class:`Accepted`."""
        return self.events(endpoints.submit(submission))

    def submitted(self, submission: Submission) -> QueryInfo:
        """Submit a query, and wait until it runs."""
        for event in self.submit(submission):
            if isinstance(event, Accepted):
                return event.query
        raise not_accepted(self.api)

    def add_sink(self, query_id: str, request: SinkRequest) -> SinkInfo:
        """Add a sink to a query that runs; it is open on return."""
        return self.ask(endpoints.add_sink(query_id, request))

    def remove_sink(self, query_id: str, sink: str) -> SinkInfo:
        """Remove a further sink of a query; what it has delivered stays."""
        return self.ask(endpoints.remove_sink(query_id, sink))

    def rows(
        self, query_id: str, after: dict[str, int] | None = None, idle: Callable[[], None] = lambda: None, sink: str = ""
    ) -> Iterator[Reader | Rows | Finished]:
        """Yield frames after those numbers, until the query is over or the connection is lost; ``idle`` as in :meth:`events`.

        They are those of the first sink, of a further ``sink``, or, with ``any``, of one of its own, which they name.
        """
        return self.events(endpoints.rows(query_id, after or {}, sink), idle)

    def acknowledge(self, query_id: str, numbers: dict[str, int], reader: str, sink: str = "") -> None:
        self.ask(endpoints.acknowledge(query_id, numbers, reader, sink))

    def at(self, elsewhere: Elsewhere) -> Self:
        """Return a client of that node, or this client if its node is the same.

        Raises ``unknown-node`` and ``consumer-unreachable``.
        """
        if not elsewhere.name or self.status().name == elsewhere.name:
            return self
        member = elsewhere.member(self.members())
        client = type(self)(f"http://{member.api}")
        try:
            elsewhere.check(member, client._own_name())
        except SbonError:
            client.close()
            raise
        return client

    def _own_name(self) -> str | SbonError:
        try:
            return self.status().name
        except SbonError as error:
            return error
