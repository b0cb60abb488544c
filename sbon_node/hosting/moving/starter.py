"""Followers of this node: each is started from a copy of its host's checkpoint, watched, and removed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from sbon_node.context import Context
from sbon_node.engine.alignment import Cut
from sbon_node.engine.copies.receiver import CopyReceiver, CopySource
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.engine.interface import MovingEngine
from sbon_node.engine.manifest import Manifest
from sbon_node.engine.settings import EngineSettings
from sbon_node.hosting.moving.ends import Frozen, Target
from sbon_node.hosting.operators.hosted_operator import HostedOperator
from sbon_node.hosting.operators.ports import OperatorPorts
from sbon_node.hosting.sweep import checkpoint_of, copy_to, spill_of
from sbon_node.streams.outbox.ledger import Tail
from sbon_node.streams.port import Following
from sbon_protocol.api.moves import MoveProgress
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.errors import SbonError


class Copied(NamedTuple):
    """The state of the operator at its host after the copied ``batch``, and the ``lineages`` of its inputs."""

    lineages: dict[str, int]
    tail: Tail
    batch: int
    cut: Cut


class StoredArrival(msgspec.Struct, frozen=True, kw_only=True):
    """A follower as this node stores it; ``is_ready`` once it may be the operator's next host."""

    attempt: str
    origin: str
    hosted: HostedOperator
    is_ready: bool = False


class Arrival:
    """A follower of this node. After a restart it has no ``target``: it goes on from its checkpoint, or not at all."""

    def __init__(self, stored: StoredArrival, now_s: float) -> None:
        self.stored, self.heard_s = stored, now_s
        self.target: Target | None = None
        self.follows = self.is_live = self.is_settling = self.is_ending = False
        self.progress = MoveProgress()
        self.failure: SbonError | None = None
        self.frozen: Frozen | None = None
        self.going_live, self.ended = asyncio.Lock(), asyncio.Event()

    @property
    def spec(self) -> OperatorSpec:
        return self.stored.hosted.spec


class FollowerStarter:
    """Starts and removes followers on this node."""

    def __init__(
        self,
        context: Context,
        ports: OperatorPorts,
        engine: MovingEngine,
        receiver: CopyReceiver,
        settings: EngineSettings,
        migration: MigrationSettings,
    ) -> None:
        self._context, self._ports, self._engine, self._receiver = context, ports, engine, receiver
        self._settings, self._migration = settings, migration

    async def start(self, arrival: Arrival, base: Copied) -> None:
        """Fetch the checkpoint, and start the follower from it."""
        context, spec, stored = self._context, arrival.spec, arrival.stored
        membership = context.membership
        checkpoint, copied = checkpoint_of(context, spec.id), copy_to(context, spec.id)
        source = CopySource(
            spec.id, stored.attempt, partial(membership.address_of, stored.origin), partial(membership.expected, stored.origin)
        )

        def report(progress: MoveProgress) -> None:
            arrival.progress = progress
            context.failpoint("copy")

        await context.executor(partial(shutil.rmtree, checkpoint, ignore_errors=True))
        try:
            files = await self._receiver.receive(source, copied / "received", copied / "checkpoint", report)
            following = Following(stored.attempt, base.tail)
            target = arrival.target = await self.connect(stored.hosted, base.lineages, following)
            await target.follow(copied / "checkpoint", Manifest(batch=base.batch, cut=base.cut, files=files))
            arrival.follows = True
        finally:
            await context.executor(partial(shutil.rmtree, copied, ignore_errors=True))

    async def connect(self, hosted: HostedOperator, lineages: Mapping[str, int], following: Following) -> Target:
        """Return the target of a follower whose inputs have these ``lineages``, with its port open."""
        context, spec, ports = self._context, hosted.spec, self._ports
        for stream, lineage in lineages.items():
            if lineage:
                ports.lineages.learner(spec.id, stream)(lineage)
        return Target(
            spec,
            engine=self._engine,
            port=await ports.connect(spec, hosted.acceptors, following=following),
            outbox=context.outbox,
            checkpoint=checkpoint_of(context, spec.id),
            clock=context.clock,
            executor=context.executor,
            settings=self._settings,
            migration=self._migration,
        )

    def failure(self, operator: str) -> SbonError | None:
        """Return why a follower cannot read one of its inputs any more."""
        port = self._ports.open.get(operator)
        return next((link.failure for link in port.links if link.failure is not None), None) if port is not None else None

    async def failed(self, operator: str, other: Callable[[], SbonError | None] = lambda: None) -> None:
        """Wait until a follower cannot read, or there is an ``other`` failure, and raise it."""
        while (failure := other() or self.failure(operator)) is None:
            await self._context.clock.sleep(self._context.settings.retry_s)
        raise failure

    async def stop(self, operator: str) -> None:
        await self._engine.destroy(operator)
        await self._ports.disconnect(operator, unsubscribe=True)

    async def delete(self, operator: str) -> None:
        """Delete what a follower that has stopped has here."""
        context = self._context
        self._ports.forget(operator)
        for folder in (checkpoint_of(context, operator), spill_of(context, operator), copy_to(context, operator)):
            await context.executor(partial(shutil.rmtree, folder, ignore_errors=True))
