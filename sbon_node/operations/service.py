"""Requests of a node's operator beside queries: status, metrics, readiness, examination, draining."""

import os
from collections.abc import AsyncIterator
from functools import partial
from importlib.metadata import version

import msgspec

from sbon_node.adaptation.drain import Draining
from sbon_node.config.config import Config
from sbon_node.hosting.machine.machine_resources import Machine
from sbon_node.operations.debug_dump import collect_debug_dump, tasks
from sbon_node.operations.disk_usage import disk_usage, process_memory
from sbon_node.operations.distances import Distances
from sbon_node.operations.doctor import Doctor, Reach
from sbon_node.operations.examination import Examination
from sbon_node.operations.machine_usage import MachineUsageHistory
from sbon_node.operations.metrics_snapshot import Components, NodeMetrics, disk_metrics, metrics_of
from sbon_node.operations.readiness import ALONE, Condition, readiness_of
from sbon_node.overlay.space.load import per_core
from sbon_protocol.api.moves import DrainStep, NodeDrained
from sbon_protocol.api.nodes import DebugDump, NodeStatus, Readiness, Reason, Resources
from sbon_protocol.api.states import operator_states, source_states
from sbon_protocol.errors import SbonError
from sbon_protocol.messages import MAX_REASONS


def status_of(config: Config, components: Components) -> NodeStatus:
    """Return the present status of the node."""
    context, operators = components.context, components.hosting.operators
    own = context.membership.get(context.name)
    assert own is not None
    coordinate = components.overlay.space.coordinate
    return NodeStatus(
        name=context.name,
        cluster=config.node.cluster,
        address=str(own.address),
        api=str(own.api),
        version=version("sbon"),
        engine=components.hosting.engine.status,
        coordinate=coordinate.vector,
        height=coordinate.height,
        error=coordinate.error,
        load=coordinate.load,
        load_per_core=per_core(coordinate.load, config.space.load_weight_ms),
        members=context.membership.others_alive + 1,
        operators=operators.hosted(),
        capacity=operators.capacity(),
        drained=bool(context.drained),
        ready=own.meta.ready,
        reasons=own.meta.reasons,
        counters=context.counters.snapshot(),
    )


LOOK_S, CHANGED_S = 5.0, 15.0
"""Pauses between two looks at this node's readiness, and after a change: each costs all members a message."""


class Operations:
    """Answers for those who run a node, and work at their request. Errors are :class:`SbonError`."""

    def __init__(self, config: Config, components: Components, draining: Draining, machine: Machine) -> None:
        self._config, self._components = config, components
        self._draining = draining
        self.distances = Distances(components.context, config.space.load_weight_ms)
        self.usage = MachineUsageHistory(components.context, machine, components.hosting.engine)
        self.reach = Reach(components.context)
        self.doctor = Doctor(config, components.context, self.reach, self.readiness, machine.load)

    def status(self) -> NodeStatus:
        return status_of(self._config, self._components)

    def metrics_snapshot(self) -> NodeMetrics:
        return metrics_of(self._components)

    def readiness(self) -> Readiness:
        """Return whether the node can do its work, and why not."""
        components, membership = self._components, self._components.context.membership
        try:
            disk = disk_metrics(components.context.data_dir)
        except OSError as error:
            message = f"the data directory cannot be used: {error}"
            return Readiness(ready=False, reasons=(Reason(code="data-dir", weight="unready", message=message),))
        operators = [described for _, described in components.hosting.operators.all()]
        sources = components.hosting.sources.reports()
        failed = [f"{one.id}: {one.reason}" for one in operators if one.state == operator_states.FAILED]
        failed += [f"{one.source.id}: {one.state}" for one in sources if one.state.startswith(source_states.FAILED)]
        trouble = components.context.store.trouble()
        lost = any(member.state in ("away", "dead") for member in membership.members())
        return readiness_of(
            Condition(
                engine=components.hosting.engine.status,
                free_bytes=disk.free_bytes,
                free_inodes=disk.free_inodes,
                alone=not membership.others_alive and (lost or bool(self._config.node.join)),
                drained=bool(components.context.drained),
                failed=tuple(failed),
                quarantined=tuple(operator.id for operator in operators if operator.state == operator_states.QUARANTINED),
                waiting=tuple(components.hosting.operators.states.waiting()),
                unstored="" if trouble is None else f"{trouble.message} ({trouble.where})",
            )
        )

    async def spread_readiness(self) -> None:
        """Announce this node's readiness, from now on, whenever it has changed."""
        context = self._components.context
        while True:
            before = context.membership.own_meta
            self.announce_readiness()
            await context.clock.sleep(CHANGED_S if context.membership.own_meta != before else LOOK_S)

    def announce_readiness(self) -> None:
        """Let the other members know whether this node can work, and why not."""
        membership, now = self._components.context.membership, self.readiness()
        # A node that is alone has nobody to say that to.
        codes = dict.fromkeys(reason.code for reason in now.reasons if reason.code != ALONE)
        reasons = tuple(codes)[:MAX_REASONS]
        membership.describe(msgspec.structs.replace(membership.own_meta, ready=now.ready, reasons=reasons))

    async def examine(self, *, everywhere: bool = False) -> Examination:
        """Examine the machine, the node, and its reachability by peers, and with ``everywhere`` all other nodes."""
        return await self.doctor.examine(everywhere=everywhere)

    async def debug_dump(self) -> DebugDump:
        """Return what a debug dump has of this node, without secrets."""
        context = self._components.context
        dump = await context.executor(partial(collect_debug_dump, self._config, context.data_dir))
        return msgspec.structs.replace(dump, tasks=tasks())

    async def resources(self) -> Resources:
        """Return memory by process, and disk by purpose. Raises ``data-dir``."""
        context = self._components.context
        stored = context.outbox.stored()

        def collect() -> Resources:
            try:
                disk = disk_usage(context.data_dir, stored)
            except OSError as error:
                raise SbonError("data-dir", f"the data directory cannot be used: {error}", where=str(context.data_dir)) from error
            return Resources(processes=tuple(process_memory(os.getpid())), disk=tuple(disk))

        return await context.executor(collect)

    def drain(self, *, dry_run: bool = False) -> AsyncIterator[DrainStep | NodeDrained]:
        """Move its operators to other nodes and leave, or stay drained with what cannot move; yield the steps and the end."""
        return self._draining.drain(dry_run=dry_run)

    async def before_stop(self) -> None:
        """Move everything off this node and leave, where ``node.drain_on_stop`` says so, before its process stops."""
        if self._config.node.drain_on_stop:
            await self._draining.before_stop()
