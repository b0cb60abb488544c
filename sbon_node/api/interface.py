"""Interface of the HTTP API to its node. The daemon's node implements it; tests have implementations of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from sbon_node.base.events import Bus
from sbon_node.connectors.sources.push import Post
from sbon_node.operations.examination import Examination
from sbon_node.operations.metrics_snapshot import NodeMetrics
from sbon_node.queries.listing import QueryList
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration, ViewDeclaration
from sbon_protocol.api.delivery import Finished, Rows
from sbon_protocol.api.explanations import Explanation, PlacementExplanation
from sbon_protocol.api.moves import DrainStep, MoveCancelled, Moved, MoveRequest, Moving, NodeDrained
from sbon_protocol.api.nodes import (
    DebugDump,
    MachineUsagePoint,
    MemberInfo,
    NodeStatus,
    PairInfo,
    Readiness,
    Resources,
    RttRequest,
)
from sbon_protocol.api.queries import (
    Accepted,
    LinkInfo,
    OperatorInfo,
    Progress,
    QueryInfo,
    QuerySpec,
    SinkInfo,
    SinkRequest,
    SinkSpec,
    Submission,
)
from sbon_protocol.api.states.query_states import QueryState
from sbon_protocol.api.streams import Pushed, SourceInfo, StreamInfo
from sbon_protocol.api.usage import LinkUsage, QueryUsage

__all__ = [
    "Accepted",
    "Explanation",
    "Finished",
    "LinkInfo",
    "LinkUsage",
    "MachineUsagePoint",
    "MemberInfo",
    "NodeInterface",
    "NodeStatus",
    "OperatorInfo",
    "PairInfo",
    "PlacementExplanation",
    "Post",
    "Progress",
    "Pushed",
    "QueryInfo",
    "QueryList",
    "QuerySpec",
    "QueryState",
    "QueryUsage",
    "Rows",
    "RttRequest",
    "SinkInfo",
    "SinkRequest",
    "SinkSpec",
    "SourceInfo",
    "StreamInfo",
    "Submission",
]


class SinksInterface(Protocol):
    """The further sinks of queries. Errors are those of :class:`NodeInterface`."""

    async def add(self, query: str, request: SinkRequest) -> SinkInfo:
        """Add a sink to a query that runs, and return it once it is open; a refusal leaves nothing behind."""
        ...

    async def remove(self, query: str, sink: str) -> SinkInfo:
        """Remove a further sink; what it has delivered stays."""
        ...


class NodeInterface(Protocol):
    """Every method raises :class:`sbon_protocol.errors.SbonError` for what it refuses."""

    bus: Bus
    """Events of the node."""

    @property
    def operations(self) -> OperationsInterface:
        """Health, metrics and other operations of the node."""
        ...

    def status(self) -> NodeStatus: ...

    def usage(self, after_ms: int = -1) -> list[MachineUsagePoint]:
        """Processor and memory of this node and its engine over the last hour or so, the oldest first."""
        ...

    def members(self, near: str = "", within_ms: float | None = None) -> list[MemberInfo]:
        """Return all members by name; or by distance from ``near``, or from this node if only a bound is given."""
        ...

    async def rtt(self, question: RttRequest) -> list[PairInfo]:
        """Return the round-trip times of pairs; measure them as requested."""
        ...

    async def join(self, addresses: tuple[str, ...]) -> int:
        """Join through any of the addresses; return the number of members known afterwards."""
        ...

    async def leave(self, *, force: bool = False) -> None:
        """Leave for good: notify the others, then stop the daemon. Refused while queries need the node, unless forced."""
        ...

    async def create_stream(self, declaration: StreamDeclaration) -> None: ...

    async def create_view(self, view: ViewDeclaration) -> None: ...

    async def attach_source(self, source: SourceDeclaration) -> None:
        """Attach at the node the declaration names (empty: this one), whichever node is asked."""
        ...

    async def detach_source(self, stream: str, source: str) -> None:
        """Remove the source, with its stored data, from a stream that no query reads, whichever node it is on."""
        ...

    async def streams(self) -> list[StreamInfo]: ...

    async def stream(self, name: str) -> StreamInfo: ...

    async def push(self, stream: str, source: str, post: Post) -> Pushed:
        """Pass rows to a source of the stream that accepts them (empty: the only one here, else anywhere); they are durable on
        return.
        """
        ...

    async def drop_stream(self, name: str) -> None: ...

    def submit(self, submission: Submission) -> AsyncIterator[Progress | Accepted]:
        """Plan, place and start a query, and yield its steps; a refusal leaves nothing behind."""
        ...

    async def explain(self, question: QuerySpec) -> Explanation:
        """The plan and placement a submission would get now; changes nothing."""
        ...

    async def explain_query(self, query_id: str) -> Explanation:
        """Return the plan and placement of a query of the cluster, with its measurements."""
        ...

    async def explain_placement(self, question: QuerySpec) -> PlacementExplanation:
        """Return the placement a submission would get, its reasons and its alternatives; change nothing."""
        ...

    async def explain_query_placement(self, query_id: str) -> PlacementExplanation:
        """Compare the current placement of a query of the cluster with the one that would be chosen now."""
        ...

    async def queries(self) -> QueryList:
        """Return every query of the cluster, whichever node holds its record, and the nodes that did not answer."""
        ...

    async def query(self, query_id: str) -> QueryInfo: ...

    async def stop_query(self, query_id: str) -> QueryInfo: ...

    def move_operator(self, query_id: str, request: MoveRequest) -> AsyncIterator[Moving | Moved]:
        """Move an operator of a query to another node with its state, and yield the steps; a refusal changes nothing."""
        ...

    async def cancel_move(self, query_id: str, operator: str) -> MoveCancelled:
        """Give up the move of an operator, which goes on where it is; refused without a move, and once it is being committed."""
        ...

    async def query_usage(self, query_id: str, after_ms: int = -1) -> QueryUsage: ...

    @property
    def sinks(self) -> SinksInterface:
        """Sinks that are added to queries while these run."""
        ...

    def follow(self, query_id: str, after: dict[str, int], sink: str = "", word: str = "") -> AsyncIterator[Rows | Finished]:
        """Rows of a ``follow`` sink at any node, from the frames after those numbers by stream (all retained, if none).

        One follower at a time: a second one is refused with ``already-followed``, wherever it is. With ``any`` as ``sink`` it
        gets a further sink of its own, which its rows name. Its secret ``word`` lets a reader acknowledge its rows.
        """
        ...

    async def acknowledge(self, query_id: str, numbers: dict[str, int], sink: str = "", word: str = "") -> None:
        """The follower of that ``word`` has durably taken all frames up to these numbers; they may be forgotten upstream."""
        ...


# -- Interface of the HTTP API to a node's operations. The daemon's node has one; tests have their own ----------------


class OperationsInterface(Protocol):
    """Implemented by :class:`sbon_node.operations.service.Operations`."""

    def metrics_snapshot(self) -> NodeMetrics:
        """Return the metrics snapshot."""
        ...

    def readiness(self) -> Readiness:
        """Whether it can do its work, and why not."""
        ...

    async def examine(self, *, everywhere: bool = False) -> Examination:
        """Examine the machine, the node, and its reachability by peers, and with ``everywhere`` all other nodes."""
        ...

    async def debug_dump(self) -> DebugDump:
        """For a debug dump, without secrets."""
        ...

    async def resources(self) -> Resources:
        """Memory by process, and disk by purpose."""
        ...

    def drain(self, *, dry_run: bool = False) -> AsyncIterator[DrainStep | NodeDrained]:
        """Move its operators to other nodes and leave, or stay drained with what cannot move; yields the steps and the end."""
        ...
