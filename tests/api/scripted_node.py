"""A node that answers by script, for tests of the HTTP API and of the commands that talk to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace as Part
from typing import Any

import msgspec

from sbon_node.base.events import Bus
from sbon_node.connectors.sources.push import Post
from sbon_node.net.transport import Address
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration, ViewDeclaration
from sbon_protocol.api.columns import Column
from sbon_protocol.api.delivery import Finished, Rows
from sbon_protocol.api.explanations import ExplainedComponent, ExplainedLink, Explanation, Flow, PlacementExplanation
from sbon_protocol.api.moves import MoveCancelled, Moved, MoveProgress, MoveRequest, Moving
from sbon_protocol.api.nodes import MachineUsagePoint, MemberInfo, NodeStatus, PairInfo, RttRequest
from sbon_protocol.api.operators import OperatorStats
from sbon_protocol.api.queries import (
    Accepted,
    LinkInfo,
    MoveInfo,
    OperatorInfo,
    Progress,
    QueryInfo,
    QueryList,
    QueryProgress,
    QuerySpec,
    SinkInfo,
    SinkRequest,
    SinkSpec,
    Submission,
    Unanswered,
)
from sbon_protocol.api.streams import Pushed, SourceInfo, StreamInfo
from sbon_protocol.api.usage import LinkUsage, QueryUsage
from sbon_protocol.errors import SbonError
from tests.api.explained_placement import explained_placement
from tests.api.scripted_operations import ScriptedOperations

WAIT = Finished(state="running")
"""In a script: nothing more comes."""
STREAM = StreamDeclaration(name="flights", schema=(Column("ts", "timestamp"), Column("delay", "int")), event_time="ts")


def explanation(query: str, strategy: str, consumer: str) -> Explanation:
    """One operator at ``b`` over one source there; measured where the query runs."""
    measured = Flow(rows_s=30.0, bytes_s=600.0, row_bytes=20.0, selectivity=0.25) if query else Flow()
    parts = (
        ExplainedComponent(id=f"{query}.sink", kind="sink", node=consumer, state="running", reads=("o1",)),
        ExplainedComponent(
            id="o1",
            kind="operator",
            node="b",
            state="running",
            reads=("source/flights@1/jfk",),
            fragment="SELECT 1",
            measured=measured,
        ),
        ExplainedComponent(
            id="source/flights@1/jfk", kind="source", node="b", state="running", estimated=Flow(rows_s=120.0), late=7
        ),
    )
    link = ExplainedLink(
        stream="o1", source_node="b", target="sink", target_node=consumer, latency_ms=50.0, bytes_s=4e4, usage=2000.0
    )
    return Explanation(
        query=query,
        sql="SELECT 1",
        state="running" if query else "planned",
        strategy=strategy,
        consumer=consumer,
        components=parts,
        links=(link,),
        usage=2000.0,
        baseline_usage=8000.0,
    )


@dataclass
class ScriptedSinks:
    """Further sinks of ``q1``, as a node has them."""

    added: list[tuple[str, SinkRequest]] = field(default_factory=list)
    removed: list[tuple[str, str]] = field(default_factory=list)
    shown: tuple[SinkInfo, ...] = ()

    async def add(self, query: str, request: SinkRequest) -> SinkInfo:
        self.added.append((query, request))
        if request.begin == "earliest":
            raise SbonError("not-retained", "the first 7 frames are gone", where="q1.b0", hint="begin with --from now")
        return SinkInfo(id="sink2", node=request.consumer or "a", sink=request.sink, state="running", begins_after=1200)

    async def remove(self, query: str, sink: str) -> SinkInfo:
        self.removed.append((query, sink))
        if sink != "sink2":
            raise SbonError("unknown-sink", f"{query} has no further sink {sink!r}", where="sink", hint="it has: sink2")
        return SinkInfo(id=sink, node="a", sink=SinkSpec(), state="running")


@dataclass
class ScriptedNode:
    """Answers what a node would. ``script`` are the events of each following in turn; ``None`` cuts all connections, and for a
    number of seconds nothing comes."""

    script: list[list[Rows | Finished | SbonError | float | None]] = field(default_factory=list)
    state: str = "running"
    reason: str = ""
    sources: tuple[SourceInfo, ...] = ()
    progress: QueryProgress | None = None
    sink: SinkSpec = field(default_factory=SinkSpec)
    lost: list[QueryInfo] = field(default_factory=list)
    unanswered: list[Unanswered] = field(default_factory=list)
    """Queries and nodes that a list of queries has beside the existing query."""
    refuse_submit: SbonError | None = None
    withholds: bool = False
    """Whether it accepts no query, nor refuses one."""
    refuse_detach: SbonError | None = None
    delay_s: float = 0.0
    """Which listing members takes."""
    declared: list[StreamDeclaration] = field(default_factory=list)
    views: list[ViewDeclaration] = field(default_factory=list)
    refuse_views: list[SbonError] = field(default_factory=list)
    missing: set[str] = field(default_factory=lambda: {"none"})
    """Names of streams that do not exist, or not until they are created; all others do."""
    attached: list[SourceDeclaration] = field(default_factory=list)
    described: list[str] = field(default_factory=list)
    """Streams whose description was asked."""
    pushed: list[bytes] = field(default_factory=list)
    submitted: list[Submission] = field(default_factory=list)
    asked: list[QuerySpec] = field(default_factory=list)
    acknowledged: list[dict[str, int]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    followed: list[str] = field(default_factory=list)
    acknowledged_sinks: list[str] = field(default_factory=list)
    """The sinks that were followed, and those of acknowledgements."""
    sinks: ScriptedSinks = field(default_factory=lambda: ScriptedSinks())
    refuse_acknowledgements: list[SbonError] = field(default_factory=list)
    consumer: str = "a"
    consumer_api: str = "a:7480"
    move: MoveInfo | None = None
    consumer_state: str = "alive"
    source_state: str = "running"
    source_trouble: str = ""
    refuse_streams: SbonError | None = None
    after: list[dict[str, int]] = field(default_factory=list)
    sought: list[tuple[str, float | None]] = field(default_factory=list)
    rtts: list[RttRequest] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    """Queries whose state was asked."""
    operations: ScriptedOperations = field(default_factory=ScriptedOperations)
    cut: Callable[[], None] = lambda: None
    cut_from_outside: Callable[[], object] = lambda: None
    tell: Callable[..., object] = lambda kind, made: None
    """As ``cut`` and ``bus.publish``, for other threads than the node's."""
    bus: Bus = field(default_factory=lambda: Bus("a", lambda: 0))

    def __post_init__(self) -> None:
        self.operations.node = self

    # -- the same answers under the names of a node's parts -----------------------------------------------------------

    @property
    def queries(self) -> Any:
        declarations = Part(
            create_stream=self.create_stream, create_view=self.create_view, detach=self.detach_source, drop=self.drop_stream
        )
        return Part(
            lookup=Part(all=self.listed, query=self.query, usage=self.query_usage, stop=self.stop_query),
            declarations=declarations,
            explainer=Part(plan=self.explain, query=self.explain_query),
            placement_explainer=Part(plan=self.explain_placement, query=self.explain_query_placement),
            sinks=self.sinks,
            follows=Part(follow=self.follow, acknowledge=self.acknowledge),
        )

    @property
    def submitting(self) -> Any:
        return Part(submitter=Part(submit=self.submit))

    @property
    def hosting(self) -> Any:
        return Part(sources=Part(all=self.streams, describe=self.stream, attach=self.attach_source), pushes=Part(push=self.push))

    @property
    def adaptation(self) -> Any:
        requested = Part(move=self.move_operator, cancel=self.cancel_move)
        return Part(requested=requested, leaving=Part(leave_and_stop=self.leave))

    @property
    def membership(self) -> Any:
        return Part(join=self.join)

    # -- answers ------------------------------------------------------------------------------------------------------

    def status(self) -> NodeStatus:
        return NodeStatus(
            name="a",
            cluster="c",
            address="127.0.0.1:7400",
            api="127.0.0.1:7480",
            version="0",
            engine="idle",
            coordinate=(0.0, 1.5, 2.0),
            height=1.0,
            error=0.5,
            load=21.0,
            load_per_core=0.42,
            members=1,
            operators=(),
            counters={"bad-datagram": 3},
        )

    def usage(self, after_ms: int = -1) -> list[MachineUsagePoint]:
        return [MachineUsagePoint(at_ms=5000 * n, cores=0.25, memory_bytes=80_000_000) for n in (1, 2) if 5000 * n > after_ms]

    def members(self, near: str = "", within_ms: float | None = None) -> list[MemberInfo]:
        found = []
        time.sleep(self.delay_s)
        self.sought.append((near, within_ms))
        for name, rtt_ms in (("a", None), ("b", 91.25)):
            found.append(
                MemberInfo(
                    name=name,
                    state=self.consumer_state if name == self.consumer else "alive",
                    address=f"{name}:7400",
                    api=self.consumer_api if name == self.consumer else f"{name}:7480",
                    incarnation=1,
                    coordinate=(1.0, 2.0, 3.0) if name == "a" else (61.0, 2.0, 83.0),
                    height_ms=4.0,
                    load_ms=0.5,
                    load_per_core=0.01,
                    rtt_ms=rtt_ms,
                    measured=True,
                    distance_ms=None if rtt_ms is None else 100.0,
                    ready=name == "a",
                    reasons=() if name == "a" else ("low-disk", "drained"),
                )
            )
        return found

    async def rtt(self, question: RttRequest) -> list[PairInfo]:
        self.rtts.append(question)
        found = []
        for a, b in question.pairs:
            known = PairInfo(a=a, b=b or "a", coordinates_ms=98.5, estimate_ms=98.5, estimate_source="coordinates")
            if a == "dead":
                known = msgspec.structs.replace(known, code="no-answer", reason="dead did not answer 3 pings", where="dead")
            elif not question.cached:
                known = msgspec.structs.replace(
                    known, measured_ms=91.25, age_s=1.5, by=a, estimate_ms=91.25, estimate_source="measured"
                )
            found.append(known)
        return found

    async def join(self, addresses: Sequence[Address]) -> int:
        if "dead:1" in map(str, addresses):
            raise SbonError("join-failed", "no node answers at dead:1", where="addresses")
        return 2

    async def leave(self, *, force: bool = False) -> None:
        self.stopped.append("node, by force" if force else "node")

    async def create_stream(self, declaration: StreamDeclaration) -> None:
        self.declared.append(declaration)
        self.missing.discard(declaration.name)

    async def create_view(self, view: ViewDeclaration) -> None:
        if self.refuse_views:
            raise self.refuse_views.pop()
        self.views.append(view)
        self.missing.discard(view.name)

    async def attach_source(self, source: SourceDeclaration) -> None:
        self.attached.append(source)

    async def push(self, stream: str, source: str, post: Post) -> Pushed:
        self.pushed.append(b"".join([part async for part in post.body]))
        return Pushed(source=source or "posts", rows=self.pushed[-1].count(b"\n"))

    async def detach_source(self, stream: str, source: str) -> None:
        if self.refuse_detach is not None:
            raise self.refuse_detach
        self.stopped.append(f"{stream}/{source}")

    async def streams(self) -> list[StreamInfo]:
        if self.refuse_streams is not None:
            raise self.refuse_streams
        return [await self.stream("flights")]

    async def stream(self, name: str) -> StreamInfo:
        self.described.append(name)
        if name in self.missing:
            raise SbonError("unknown-stream", f"there is no stream {name!r}", hint="see: sbon stream list")
        source = SourceDeclaration(stream=name, name="jfk", node="a", connector="file")
        view = next((one for one in reversed(self.views) if one.name == name), None)
        declaration = STREAM if view is None else msgspec.structs.replace(STREAM, name=name, sql=view.sql)
        entry = CatalogEntry(declaration=declaration, sources=(source,))
        told = SourceInfo(source=source, state=self.source_state, trouble=self.source_trouble, rows=12, rows_s=2.5, late=34)
        return StreamInfo(entry=entry, sources=(told,))

    async def drop_stream(self, name: str) -> None:
        self.stopped.append(name)
        if any(view.name == name for view in self.views):
            self.missing.add(name)

    async def submit(self, submission: Submission) -> AsyncIterator[Progress | Accepted]:
        self.submitted.append(submission)
        yield Progress(step="placing", message="placing 1 operator [by relaxation]", query="q1")
        if self.refuse_submit is not None:
            raise self.refuse_submit
        if self.withholds:
            await asyncio.Event().wait()
        yield Accepted(query=await self.query("q1"))

    async def explain(self, question: QuerySpec) -> Explanation:
        self.asked.append(question)
        if self.refuse_submit is not None:
            raise self.refuse_submit
        return explanation("", question.strategy, question.consumer or "a")

    async def explain_query(self, query_id: str) -> Explanation:
        await self.query(query_id)
        return explanation(query_id, "relaxation", self.consumer)

    async def explain_placement(self, question: QuerySpec) -> PlacementExplanation:
        self.asked.append(question)
        if self.refuse_submit is not None:
            raise self.refuse_submit
        return explained_placement("", question)

    async def explain_query_placement(self, query_id: str) -> PlacementExplanation:
        await self.query(query_id)
        return explained_placement(query_id, QuerySpec(sql="SELECT 1", strategy="consumer", max_delay_ms=40.0))

    async def listed(self) -> QueryList:
        return QueryList([await self.query("q1"), *self.lost], self.unanswered)

    async def query(self, query_id: str) -> QueryInfo:
        self.shown.append(query_id)
        if query_id != "q1":
            raise SbonError("unknown-query", f"there is no query {query_id!r}")
        link = LinkInfo(stream="o1", source_node="b", target="sink", target_node="a", rows=3, bytes=4096, latency_ms=45.5)
        stats = OperatorStats(rows_in=12, rows_out=3, rows_out_s=0.5)
        operator = OperatorInfo(id="o1", node="b", fragment="SELECT 1", state="running", stats=stats, move=self.move)
        state: Any = self.state
        return QueryInfo(
            id="q1",
            sql="SELECT *\nFROM flights",
            state=state,
            reason=self.reason,
            consumer=self.consumer,
            sink=self.sink,
            sinks=self.sinks.shown,
            operators=(operator,),
            links=(link,),
            rows=3,
            sources=self.sources,
            progress=self.progress,
        )

    async def stop_query(self, query_id: str) -> QueryInfo:
        self.stopped.append(query_id)
        self.state = "stopped"
        return await self.query(query_id)

    async def move_operator(self, query_id: str, request: MoveRequest) -> AsyncIterator[Moving | Moved]:
        info = await self.query(query_id)
        if request.to == "full":
            raise SbonError("no-capacity", "0.05 cores free, 0.10 needed", where=request.operator)
        if request.how == "stop":
            yield Moving(step="stopping")
        for copied in (512, 1024):
            yield Moving(step="copying", progress=MoveProgress(copied_bytes=copied, total_bytes=1024))
        if request.how == "follow":
            yield Moving(step="following", progress=MoveProgress(copied_bytes=1024, total_bytes=1024, frames_behind=3))
        yield Moved(query=info.id, operator=request.operator, origin="b", node=request.to, copied_bytes=1024, pause_ms=250)

    async def cancel_move(self, query_id: str, operator: str) -> MoveCancelled:
        if operator == "committed":
            raise SbonError("move-committed", "its move to paris is being committed: it is too late to cancel it", where=operator)
        return MoveCancelled(query=query_id, operator=operator, node="b")

    async def query_usage(self, query_id: str, after_ms: int = -1) -> QueryUsage:
        line = LinkUsage(stream="o1", source_node="b", target_node="a", bytes=1000, latency_ms=50.0, byte_ms=50_000.0)
        whole = LinkUsage(stream="s", source_node="b", target_node="a", bytes=4000, latency_ms=50.0, byte_ms=200_000.0)
        return QueryUsage(
            query="q1", strategy="relaxation", links=(line,), baseline=(whole,), byte_ms=50_000.0, baseline_byte_ms=200_000.0
        )

    async def follow(
        self, query_id: str, after: dict[str, int], sink: str = "", word: str = ""
    ) -> AsyncIterator[Rows | Finished]:
        self.words.append(word)
        self.after.append(after)
        self.followed.append(sink)
        sent: dict[str, int] = {}
        for event in self.script.pop(0) if self.script else []:
            if event is None:
                await self.all_acknowledged(sent)
                self.cut()
                await asyncio.Event().wait()
            elif isinstance(event, SbonError):
                raise event
            elif isinstance(event, float):
                await asyncio.sleep(event)
            elif event == WAIT:
                await asyncio.Event().wait()
            elif event == Finished(state="finished"):
                await self.all_acknowledged(sent)
                yield event
            else:
                if isinstance(event, Rows):
                    sent[event.stream] = event.number
                yield event

    async def all_acknowledged(self, sent: dict[str, int]) -> None:
        async with asyncio.timeout(30):
            while not all(any(a.get(s, 0) >= number for a in self.acknowledged) for s, number in sent.items()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def acknowledge(self, query_id: str, numbers: dict[str, int], sink: str = "", word: str = "") -> None:
        if word != self.words[-1]:
            raise SbonError("not-the-reader", "only who reads the rows acknowledges them")
        if self.refuse_acknowledgements:
            raise self.refuse_acknowledgements.pop(0)
        self.acknowledged.append(numbers)
        self.acknowledged_sinks.append(sink)
