"""Metrics snapshot: all counters of a node at one moment."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from sbon_node.context import Context
from sbon_node.hosting.assemble import Hosting
from sbon_node.net.counters import Carrier, Direction, Flow
from sbon_node.overlay.assemble import Overlay
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_node.queries.assemble import Queries
from sbon_node.queries.describing.waits import ReasonKind
from sbon_node.streams.links.link import Link
from sbon_protocol.api.queries import OperatorInfo
from sbon_protocol.api.query_ids import name_of
from sbon_protocol.api.streams import SourceInfo
from sbon_protocol.api.subscribers import is_follower, query_of
from sbon_protocol.api.usage import OutboxCount
from sbon_protocol.errors import SbonError


class LinkMetrics(NamedTuple):
    """Sums over the links that bring streams here; ``credit_bytes`` is their limit, ``buffered_bytes`` their use."""

    states: dict[str, int]
    credit_bytes: int
    buffered_bytes: int
    spilled_bytes: int


class DiskMetrics(NamedTuple):
    """Space of the data directory's file system, and files in it."""

    free_bytes: int
    free_inodes: int
    outbox_bytes: int
    dead_letter_bytes: int


class NodeMetrics(NamedTuple):
    """Metrics of a node. States, kinds and codes map to their counts; operators come with their query."""

    version: str
    members: dict[str, int]
    health: int
    coordinate: Coordinate
    neighbours: int
    traffic: Mapping[tuple[Carrier, Direction, str], Flow]
    refused: dict[str, int]
    outbox: OutboxCount
    served: int
    outstanding_bytes: int
    links: LinkMetrics
    sources: list[SourceInfo]
    operators: list[tuple[str, OperatorInfo]]
    sinks: dict[str, int]
    queries: dict[str, int]
    queries_failed: int
    query_reasons: dict[ReasonKind, int]
    queries_without_record: dict[str, int]
    behind_s: dict[str, float]
    """By query, the age of the oldest rows here that a part of it has yet to finish with; empty if the disk is broken."""
    engine: str
    engine_starts: int
    engine_replacements: int
    engine_replacement_s: float
    engine_recovery_s: float
    pairs_measured: int
    pairs_failed: int
    pairs_under_way: int
    pairs_known: int
    disk: DiskMetrics | None
    """None if the data directory is gone."""
    tasks: int


class Components(NamedTuple):
    """Parts of a node of which its operator hears."""

    context: Context
    overlay: Overlay
    hosting: Hosting
    queries: Queries


def metrics_of(components: Components) -> NodeMetrics:
    """Take a snapshot of existing counters, without requests. A broken disk leaves out what only the disk knows."""
    context = components.context
    return NodeMetrics(
        version=version("sbon"),
        members=dict(Counter(member.state for member in context.membership.members())),
        health=context.membership.health,
        coordinate=components.overlay.space.coordinate,
        neighbours=len(components.overlay.space.neighbours()),
        traffic=context.counters.traffic.snapshot(),
        refused=context.counters.snapshot(),
        outbox=context.outbox.counts(),
        served=context.publisher.connections,
        outstanding_bytes=context.publisher.outstanding_bytes,
        links=_of_links([*components.hosting.operators.links(), *components.hosting.sinks.open.links()]),
        sources=components.hosting.sources.reports(),
        operators=components.hosting.operators.all(),
        sinks=components.hosting.sinks.open.states(one.component for one in components.hosting.sinks.components()),
        queries=dict(Counter(record.state for record in components.queries.leader.records())),
        queries_failed=components.queries.leader.failures,
        query_reasons=components.queries.leader.reasons.counts(components.queries.leader.running()),
        queries_without_record=components.hosting.orphans.without_record(),
        behind_s=_behind_s(context),
        engine=components.hosting.engine.status,
        engine_starts=components.hosting.engine.starts,
        engine_replacements=components.hosting.engine.replacements,
        engine_replacement_s=components.hosting.engine.replacement_s,
        engine_recovery_s=components.hosting.engine.recovery_s,
        pairs_measured=components.overlay.measurer.measured,
        pairs_failed=components.overlay.measurer.failed,
        pairs_under_way=components.overlay.measurer.under_way,
        pairs_known=len(components.overlay.measurer.fresh()),
        disk=_disk(context.data_dir),
        tasks=len(asyncio.all_tasks()),
    )


def _behind_s(context: Context) -> dict[str, float]:
    try:
        return behind_s(context.outbox.oldest_waiting_ms(), context.clock.wall_ms())
    except SbonError:  # readiness and the log say that the disk is broken
        return {}


def behind_s(oldest_ms: Mapping[str, int], now_ms: int) -> dict[str, float]:
    """Return by query how long its rows have waited for the slowest of its subscribers; followers do not count."""
    behind: dict[str, float] = {}
    for subscriber, born_ms in sorted(oldest_ms.items()):
        if not is_follower(subscriber):
            query = name_of(query_of(subscriber))
            behind[query] = max(behind.get(query, 0.0), (now_ms - born_ms) / 1000)
    return behind


def _disk(data_dir: Path) -> DiskMetrics | None:
    try:
        return disk_metrics(data_dir)
    except OSError:  # readiness says so
        return None


def disk_metrics(data_dir: Path) -> DiskMetrics:
    """Return the disk metrics; raise ``OSError`` if there is no such folder."""
    system = os.statvfs(data_dir)
    return DiskMetrics(
        free_bytes=system.f_bavail * system.f_frsize,
        free_inodes=system.f_favail,
        outbox_bytes=_size((data_dir / "outbox.db", data_dir / "outbox.db-wal")),
        dead_letter_bytes=_size((data_dir / "dead-letters").glob("*")),
    )


def _size(files: Iterable[Path]) -> int:
    total = 0
    for file in files:
        try:
            total += file.stat().st_size
        except FileNotFoundError:  # it may disappear at any moment
            continue
    return total


def _of_links(links: list[Link]) -> LinkMetrics:
    return LinkMetrics(
        states=dict(Counter(link.state for link in links)),
        credit_bytes=sum(link.inbox.capacity_bytes for link in links),
        buffered_bytes=sum(link.inbox.buffered_bytes for link in links),
        spilled_bytes=sum(link.inbox.spill.bytes for link in links if link.inbox.spill is not None),
    )
