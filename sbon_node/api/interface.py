"""What the HTTP API asks of its node. The daemon's node object implements it; tests may bring another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from sbon_node.api.operations_interface import OperationsInterface
from sbon_node.connectors.sources.push import Post, Pushed
from sbon_node.events import Bus
from sbon_node.explain.placement_explanation import PlacementExplanation
from sbon_node.explain.plan_explanation import Explanation
from sbon_node.model.catalogue import SourceDeclaration, StreamDeclaration
from sbon_node.model.delivery import Finished, Rows
from sbon_node.model.nodes import MachineUsagePoint, MemberInfo, NodeStatus, PairInfo, RttRequest
from sbon_node.model.queries import Accepted, LinkInfo, OperatorInfo, Progress, QueryInfo, QuerySpec, SinkSpec, Submission
from sbon_node.model.states.query_states import QueryState
from sbon_node.model.streams import SourceInfo, StreamInfo
from sbon_node.model.usage import LinkUsage, QueryUsage
from sbon_node.queries.listing import QueryList

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
    "SinkSpec",
    "SourceInfo",
    "StreamInfo",
    "Submission",
]


class NodeInterface(Protocol):
    """Every method raises :class:`sbon_node.errors.SbonError` for what it refuses."""

    bus: Bus
    """Tells what happens at the node."""

    @property
    def operations(self) -> OperationsInterface:
        """For whoever runs the node."""
        ...

    def status(self) -> NodeStatus: ...

    def usage(self, after_ms: int = -1) -> list[MachineUsagePoint]:
        """Processor and memory of this node and its engine over the last hour or so, the oldest first."""
        ...

    def members(self, near: str = "", within_ms: float | None = None) -> list[MemberInfo]:
        """Everyone by name; or by distance from ``near``, or from this node where only a bound is given."""
        ...

    async def rtt(self, question: RttRequest) -> list[PairInfo]:
        """What is known of the ways between nodes, measured where it is to be."""
        ...

    async def join(self, addresses: tuple[str, ...]) -> int:
        """Joins through any of the addresses; returns the number of members known afterwards."""
        ...

    async def leave(self, *, force: bool = False) -> None:
        """Leaves for good: tells the others, then the daemon stops. Refused while queries need the node, unless forced."""
        ...

    async def create_stream(self, declaration: StreamDeclaration) -> None: ...

    async def attach_source(self, source: SourceDeclaration) -> None:
        """Attaches at the node the declaration names (empty: this one), wherever this is asked."""
        ...

    async def detach_source(self, stream: str, source: str) -> None:
        """Takes a source of that name away from a stream that no query reads, with what it keeps, wherever it lives."""
        ...

    async def streams(self) -> list[StreamInfo]: ...

    async def stream(self, name: str) -> StreamInfo: ...

    async def push(self, stream: str, source: str, post: Post) -> Pushed:
        """Hands rows to a source of the stream at this node that takes them (empty: the only one); they are durable then."""
        ...

    async def drop_stream(self, name: str) -> None: ...

    def submit(self, submission: Submission) -> AsyncIterator[Progress | Accepted]:
        """Plans, places and starts a query, telling what it does; where it is refused, nothing is left behind."""
        ...

    async def explain(self, question: QuerySpec) -> Explanation:
        """The plan and placement a submission would get now; changes nothing."""
        ...

    async def explain_query(self, query_id: str) -> Explanation:
        """Those of a query of the cluster, with what is measured."""
        ...

    async def explain_placement(self, question: QuerySpec) -> PlacementExplanation:
        """Where a submission's operators would go, why, and what else there is; changes nothing."""
        ...

    async def explain_query_placement(self, query_id: str) -> PlacementExplanation:
        """The placement of a query of the cluster as it stands, against what would be chosen now."""
        ...

    async def queries(self) -> QueryList:
        """Every query of the cluster, whichever node holds its record, and who did not answer."""
        ...

    async def query(self, query_id: str) -> QueryInfo: ...

    async def stop_query(self, query_id: str) -> QueryInfo: ...

    async def query_usage(self, query_id: str, after_ms: int = -1) -> QueryUsage: ...

    def follow(self, query_id: str, after: dict[str, int]) -> AsyncIterator[Rows | Finished]:
        """Rows of a ``follow`` sink at this node, from the frames after those numbers by stream (all retained, if none).

        One follower at a time: a second one is refused with ``already-followed``. A sink at another node is refused with
        ``not-followable``: its rows are to be had there alone.
        """
        ...

    async def acknowledge(self, query_id: str, numbers: dict[str, int]) -> None:
        """The follower has durably taken all frames up to these numbers; they may be forgotten upstream."""
        ...
