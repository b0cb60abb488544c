"""What a node counts, at one moment: the snapshot that metrics are made of."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from sbon_node.connectors.source_runner import SourceReport
from sbon_node.control.context import Context
from sbon_node.control.operators import OperatorHost
from sbon_node.control.queries import QueryBook
from sbon_node.control.report import OperatorInfo
from sbon_node.control.sinks import SinkHost
from sbon_node.control.sources import SourceHost
from sbon_node.directory.measuring import Measurer
from sbon_node.engine.interface import Engine
from sbon_node.net.traffic import Carrier, Direction, Flow
from sbon_node.space.coordinate import Coordinate
from sbon_node.space.local import LocalCoordinate
from sbon_node.streams.counts import OutboxCount
from sbon_node.streams.link import Link
from sbon_node.streams.publisher import Publisher


class LinkFigures(NamedTuple):
    """Links that bring streams to this node, together; ``credit_bytes`` is what they may hold, ``held_bytes`` what they do."""

    states: dict[str, int]
    credit_bytes: int
    held_bytes: int
    spilled_bytes: int


class DiskFigures(NamedTuple):
    """Of the file system the data directory is on, and of files in it."""

    free_bytes: int
    free_inodes: int
    outbox_bytes: int
    dead_letter_bytes: int


class NodeFigures(NamedTuple):
    """States, kinds and codes are mapped to how many there are of each; operators come with their query."""

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
    links: LinkFigures
    sources: list[SourceReport]
    operators: list[tuple[str, OperatorInfo]]
    sinks: int
    queries: dict[str, int]
    engine: str
    engine_starts: int
    pairs_measured: int
    pairs_failed: int
    pairs_under_way: int
    pairs_known: int
    disk: DiskFigures
    tasks: int


class Rooms(NamedTuple):
    """What of a node is looked at."""

    context: Context
    engine: Engine
    space: LocalCoordinate
    measurer: Measurer
    publisher: Publisher
    sources: SourceHost
    operators: OperatorHost
    sinks: SinkHost
    book: QueryBook


def figures_of(rooms: Rooms) -> NodeFigures:
    """Nothing is counted for its sake, and nobody is asked. Raises ``OSError`` where the data directory is gone."""
    context = rooms.context
    return NodeFigures(
        version=version("sbon"),
        members=dict(Counter(member.state for member in context.membership.members())),
        health=context.membership.health,
        coordinate=rooms.space.coordinate,
        neighbours=len(rooms.space.neighbours()),
        traffic=context.counters.traffic.snapshot(),
        refused=context.counters.snapshot(),
        outbox=context.outbox.counts(),
        served=rooms.publisher.connections,
        outstanding_bytes=rooms.publisher.outstanding_bytes,
        links=_of_links([*rooms.operators.links(), *rooms.sinks.links()]),
        sources=rooms.sources.reports(),
        operators=rooms.operators.all(),
        sinks=len(rooms.sinks.parts()),
        queries=dict(Counter(record.state for record in rooms.book.held())),
        engine=rooms.engine.status,
        engine_starts=rooms.engine.starts,
        pairs_measured=rooms.measurer.measured,
        pairs_failed=rooms.measurer.failed,
        pairs_under_way=rooms.measurer.under_way,
        pairs_known=len(rooms.measurer.fresh()),
        disk=disk_figures(context.data_dir),
        tasks=len(asyncio.all_tasks()),
    )


def disk_figures(data_dir: Path) -> DiskFigures:
    """Raises ``OSError`` where there is no such folder."""
    system = os.statvfs(data_dir)
    return DiskFigures(
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
        except FileNotFoundError:  # it may go at any moment
            continue
    return total


def _of_links(links: list[Link]) -> LinkFigures:
    return LinkFigures(
        states=dict(Counter(link.state for link in links)),
        credit_bytes=sum(link.inbox.capacity_bytes for link in links),
        held_bytes=sum(link.inbox.held_bytes for link in links),
        spilled_bytes=sum(link.inbox.spill.bytes for link in links if link.inbox.spill is not None),
    )
