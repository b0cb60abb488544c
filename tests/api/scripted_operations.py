"""Scripted answers to the operators' requests of a node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace as Part
from typing import Any

import msgspec

from sbon_node.net.counters import Flow
from sbon_node.operations.examination import CheckResult, Examination
from sbon_node.operations.metrics_snapshot import DiskMetrics, LinkMetrics, NodeMetrics
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.durability import BackupInfo
from sbon_protocol.api.moves import DrainStep, MoveProgress, NodeDrained
from sbon_protocol.api.nodes import DebugDump, DiskPart, NodeStatus, ProcessMemory, Readiness, Reason, Resources
from sbon_protocol.api.operators import OperatorStats
from sbon_protocol.api.queries import OperatorInfo
from sbon_protocol.api.streams import SourceInfo
from sbon_protocol.api.usage import OutboxCount

WELL = CheckResult(check="java", verdict="ok", message="version 17")
ALONE = Reason(code="alone", weight="impaired", message="no other member can be reached", hint="look at them")

RESOURCES = Resources(
    processes=(
        ProcessMemory(kind="jvm", pid=2, resident_bytes=600 * 2**20, proportional_bytes=500 * 2**20, threads=80),
        ProcessMemory(kind="daemon", pid=1, resident_bytes=100 * 2**20, proportional_bytes=90 * 2**20, threads=20),
    ),
    disk=(
        DiskPart(kind="stream", name="flights/jfk", bytes=3 * 2**20),
        DiskPart(kind="outbox-free", name="", bytes=2 * 2**20),
    ),
)


def source_report(name: str, **counts: int) -> SourceInfo:
    source = SourceDeclaration(stream="flights", name=name, node="a", connector="file", options={})
    return SourceInfo(source=source, state="running", **counts)


def figures(sources: int = 1) -> NodeMetrics:
    """Return figures in which every number is different."""
    operator = OperatorInfo(
        id="q1.1",
        node="a",
        fragment="SELECT 1",
        state="running",
        stats=OperatorStats(rows_in=101, rows_out=102, bytes_in=103, bytes_out=104, batches=105, batch_ms=1060.0),
        skipped=107,
        durability="replicated",
        backup=BackupInfo(state="behind", node="b", batch=7, age_s=1.5),
    )
    return NodeMetrics(
        version="1.2.3",
        members={"alive": 2, "away": 1},
        health=3,
        coordinate=Coordinate(vector=(1.0, 2.0), height=4.0, error=0.25, load=6.0),
        neighbours=7,
        traffic={
            ("datagram", "sent", "ping"): Flow(8, 9),
            ("datagram", "received", "ack"): Flow(10, 11),
            ("frame", "sent", "data"): Flow(12, 13),
        },
        refused={"datagram-malformed": 14},
        outbox=OutboxCount(
            shown_frames=15,
            shown_rows=16,
            shown_bytes=17,
            sent_frames=18,
            sent_rows=19,
            sent_bytes=20,
            sources=21,
            operators=22,
            paused=23,
            unreceived_bytes=24,
            subscriptions=26,
            failed_subscriptions=1,
        ),
        served=27,
        outstanding_bytes=28,
        links=LinkMetrics({"connected": 29}, 30, 31, 32),
        sources=[
            source_report(f"s{number}", rows=33, bytes=34, late=35, bad=36, too_large=37, dropped=38) for number in range(sources)
        ],
        operators=[("q1", operator)],
        sinks={"paused": 39},
        queries={"running": 40},
        queries_failed=51,
        query_reasons={"sink-paused": 52},
        queries_without_record={"lost": 53},
        behind_s={"q1": 54.5},
        engine="failed: no Java",
        engine_starts=41,
        engine_replacements=2,
        engine_replacement_s=3.5,
        engine_recovery_s=7.25,
        pairs_measured=42,
        pairs_failed=43,
        pairs_under_way=44,
        pairs_known=45,
        disk=DiskMetrics(free_bytes=46, free_inodes=47, outbox_bytes=48, dead_letter_bytes=49),
        tasks=50,
    )


@dataclass
class ScriptedOperations:
    """``stays`` cannot move when the node is drained."""

    told: Readiness = field(default_factory=lambda: Readiness(ready=True))
    examination: Examination = field(default_factory=lambda: Examination(node="a", findings=(WELL,)))
    stays: tuple[str, ...] = ()
    drained: bool = False
    config: dict[str, object] = field(default_factory=lambda: {"node": {"name": "a"}})
    node: Any = None
    """The scripted node, which answers what it knows."""

    @property
    def usage(self) -> Any:
        return Part(points=self.node.usage)

    @property
    def distances(self) -> Any:
        return Part(members=self.node.members, rtt=self.node.rtt)

    def status(self) -> NodeStatus:
        status: NodeStatus = self.node.status()
        return status

    def metrics_snapshot(self) -> NodeMetrics:
        return figures()

    def readiness(self) -> Readiness:
        return self.told

    async def examine(self, *, everywhere: bool = False) -> Examination:
        other = (msgspec.structs.replace(WELL, node="b"),) if everywhere else ()
        return msgspec.structs.replace(self.examination, findings=(*self.examination.findings, *other))

    async def debug_dump(self) -> DebugDump:
        return DebugDump(
            versions={"sbon": "1.2.3"}, config=self.config, tasks=("membership\n",), threads=("main",), log=("up",), engine_log=()
        )

    async def resources(self) -> Resources:
        return RESOURCES

    async def drain(self, *, dry_run: bool = False) -> AsyncIterator[DrainStep | NodeDrained]:
        if dry_run:
            yield DrainStep(query="q", operator="q-abcdef.b0", step="planned", target="paris")
        else:
            self.drained = True
            yield DrainStep(query="q", operator="q-abcdef.b0", step="waiting")
            for copied in (512, 1024):
                progress = MoveProgress(copied_bytes=copied, total_bytes=1024)
                yield DrainStep(query="q", operator="q-abcdef.b0", step="copying", target="paris", progress=progress)
            yield DrainStep(query="q", operator="q-abcdef.b0", step="moved", target="paris")
            for line in self.stays:
                yield DrainStep(query="q", operator="q-abcdef.b1", step="stays", reason=line)
        yield NodeDrained(node="a", has_left=not dry_run and not self.stays, moved=() if dry_run else ("q.b0",), stays=self.stays)


def not_ready(*reasons: Reason) -> Readiness:
    return msgspec.structs.replace(Readiness(ready=False), reasons=reasons)
