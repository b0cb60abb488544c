"""Interface of the HTTP API to a node's operations. The daemon's node has one; tests have their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from sbon_node.model.moves import DrainStep, NodeDrained
from sbon_node.operations.debug_dump_types import DebugDump
from sbon_node.operations.examination import Examination
from sbon_node.operations.metrics_snapshot import NodeMetrics
from sbon_node.operations.readiness import Readiness
from sbon_node.operations.resource_types import Resources


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
