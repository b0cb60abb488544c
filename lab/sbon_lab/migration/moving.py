"""An operator that moves between hosts while rows arrive: two nodes with an engine, a third with its sources and its consumer.

Streams, engines and the two ends of a move (:mod:`sbon_node.hosting.moving.ends`) are the real ones. The messages between nodes
and the change of the operator's record are left out: the steps of a move are calls here, and readers learn of it at once.
"""

import asyncio
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from sbon_lab.bench.sites import Site
from sbon_lab.migration.feed import EVERY_S, SCHEMA, Feed, table_of
from sbon_lab.migration.kinds import Answers, Kind
from sbon_node.base.clock import Clock
from sbon_node.base.executors import in_thread
from sbon_node.base.tasks import Tasks
from sbon_node.engine.checkpoint_copy import copy_checkpoint, install_checkpoint
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.adapter import SparkEngine
from sbon_node.hosting.moving.ends import Frozen, Origin, Target
from sbon_node.model.frames import END_WATERMARK_MS, FrameDraft
from sbon_node.streams.links.link import Link
from sbon_node.streams.payload import unpack
from sbon_node.streams.port import Following, NodePort, PortInput
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.operators import InputSpec, OperatorSpec, StateProvider, TimeBuckets
from sbon_protocol.api.states import operator_states
from sbon_protocol.errors import SbonError

POLL_S = 0.02
CONSUMER = "consumer"
_ALL = 2**40


class Host:
    """An engine, with the checkpoints of its operators in ``folder``."""

    def __init__(self, name: str, folder: Path, clock: Clock, settings: EngineSettings) -> None:
        self.name, self.folder, self.settings = name, folder, settings
        folder.mkdir()
        self._failures: dict[str, str] = {}
        self.engine = SparkEngine(settings, folder, clock, self._told)

    def check_operator(self, operator: str) -> None:
        """Raise ``engine-failed`` if the operator has failed here."""
        if operator in self._failures:
            raise SbonError("engine-failed", self._failures[operator], where=operator)

    def forget(self, operator: str) -> None:
        """Forget that the operator has failed here: its readers fence a host that it has left."""
        self._failures.pop(operator, None)

    def _told(self, operator: str, state: str, reason: str) -> None:
        if state in (operator_states.FAILED, operator_states.QUARANTINED):
            self._failures[operator] = reason


@dataclass
class Place:
    """The operator at one host, in one epoch."""

    host: Host
    site: Site
    port: NodePort
    checkpoint: Path
    epoch: int


@dataclass
class Move:
    """A move under way, with its target nearly level."""

    origin: Origin
    target: Target
    place: Place
    copied_bytes: int
    level_s: float


class Arrival(NamedTuple):
    """A frame at the consumer."""

    at_s: float
    number: int
    watermark_ms: int
    rows: int


class MovingOperator:
    """One operator of ``kind``, from :meth:`open` to :meth:`close`; a frame of each source arrives every 50 ms until :meth:`end`.

    All waiting ends after ``patience_s`` seconds with a ``TimeoutError``.
    """

    def __init__(
        self,
        name: str,
        kind: Kind,
        folder: Path,
        host: Host,
        feed: Feed,
        clock: Clock,
        *,
        patience_s: float,
        state_provider: StateProvider = "hdfs",
        buckets: tuple[TimeBuckets, ...] = (),
    ) -> None:
        self.name, self.kind, self.feed = name, kind, feed
        self.written_s: list[float] = []
        """When each frame of the sources arrived."""
        self.arrivals: list[Arrival] = []
        self.payloads: list[bytes] = []
        self.streams = [f"{name}.s{view}" for view in range(kind.inputs)]
        self._folder, self._clock, self._patience_s, self._first = folder, clock, patience_s, host
        self._settings = StreamSettings(reconnect_s=POLL_S)
        self._tasks, self._places, self._ended = Tasks(self._task_failed), list[Place](), False
        self._failure: BaseException | None = None
        folder.mkdir()
        self.near = Site("near", folder, clock)
        inputs = tuple(
            InputSpec(stream=stream, node="near", schema=SCHEMA, view=view, event_time="ts" if kind.has_state else "")
            for view, stream in enumerate(self.streams)
        )
        self.spec = OperatorSpec(
            id=name,
            query="q",
            fragment=kind.fragment,
            inputs=inputs,
            schema=(),
            state_provider=state_provider,
            buckets=buckets,
        )

    async def open(self) -> None:
        """Start the operator at its first host, and the sources."""
        await self.near.start()
        for stream in self.streams:
            self.near.outbox.open_stream(stream, "source")
        for draft in self.feed.state_drafts():
            self.near.outbox.write_source(self.streams[0], [draft], b"")
        self.at = await self._place(self._first, 1, None)
        self.at.site.outbox.open_stream(self.name, "operator", epoch=1)
        self.at.site.outbox.subscribe(self.name, CONSUMER, 1)
        self.at.checkpoint.mkdir(parents=True)
        await self.at.host.engine.instantiate(self.spec, self.at.port, self.at.checkpoint)
        self._link = self._consumer()
        self._link.start()
        self._tasks.start("feed", self._feed())
        self._tasks.start("consume", self._consume())

    # -- moving -------------------------------------------------------------------------------------------------------

    async def follow(self, host: Host) -> Move:
        """Let ``host`` follow until it is nearly level."""
        at, began_s = self.at, self._clock.now()
        origin = Origin(
            self.name,
            engine=at.host.engine,
            port=at.port,
            outbox=at.site.outbox,
            copies=at.host.folder / "copies",
            executor=in_thread,
            settings=at.host.settings,
            migration=MigrationSettings(),
        )
        prepared = await origin.prepare()
        place = await self._place(host, at.epoch + 1, Following(f"{at.epoch + 1}", prepared.tail))
        target = Target(
            self.spec,
            engine=host.engine,
            port=place.port,
            outbox=place.site.outbox,
            checkpoint=place.checkpoint,
            clock=self._clock,
            executor=in_thread,
            settings=host.settings,
            migration=MigrationSettings(),
        )
        await target.follow(prepared.folder, prepared.manifest)
        await origin.followed()
        await self.until(lambda: target.reach(origin.position()))
        copied_bytes = sum(file.bytes for file in prepared.manifest.files)
        return Move(origin, target, place, copied_bytes, self._clock.now() - began_s)

    async def settle(self, move: Move) -> Frozen:
        """Let the origin stop, and the target come to rest where it has."""
        move.target.repeat(move.origin.halt())
        frozen = await move.origin.freeze()
        await move.target.settle(frozen)
        return frozen

    async def switch(self, move: Move, frozen: Frozen) -> None:
        """Let the target go on, and the readers find it; the origin ends."""
        outbox = self.at.site.outbox
        stream = outbox.handover.export(self.name)
        frames = outbox.read(self.name, stream.trimmed, _ALL)
        move.place.site.outbox.handover.take(self.name, stream, frames)
        await move.target.go_live(frozen, stream, move.place.epoch)
        before, self.at = self.at, move.place
        await before.site.disconnect()
        await self._leave(before)

    async def give_up(self, move: Move) -> None:
        """Go on at the frozen origin; the target ends."""
        move.origin.thaw()
        await self._leave(move.place, unsubscribe=True)

    async def move(self, host: Host) -> tuple[Move, Frozen]:
        """Follow, settle and switch."""
        move = await self.follow(host)
        frozen = await self.settle(move)
        await self.switch(move, frozen)
        return move, frozen

    async def stop_copy_start(self, host: Host) -> int:
        """Stop the operator, copy its checkpoint, and start it at ``host``; return the number of its last frame before."""
        at = self.at
        place = await self._place(host, at.epoch + 1, None)
        await at.host.engine.destroy(self.name)
        await at.port.close()
        outbox = at.site.outbox
        state, copy = outbox.handover.export(self.name), at.host.folder / "copies" / self.name
        manifest = await asyncio.to_thread(
            copy_checkpoint, at.checkpoint, state.tail.batch, copy, max_files=host.settings.copy_max_files, max_bytes=_ALL
        )
        await asyncio.to_thread(install_checkpoint, copy, manifest, place.checkpoint)
        frames, tail = outbox.read(self.name, state.trimmed, _ALL), state.tail
        handover = place.site.outbox.handover
        handover.take(self.name, state, frames)
        handover.adopt(self.name, state, batch=tail.batch, offsets=tail.offsets, epoch=place.epoch)
        self.at = place
        await at.site.disconnect()
        await host.engine.instantiate(self.spec, place.port, place.checkpoint)
        await self._leave(at)
        await asyncio.to_thread(shutil.rmtree, copy)
        return tail.last

    async def _leave(self, place: Place, *, unsubscribe: bool = False) -> None:
        self._places.remove(place)
        await place.host.engine.destroy(self.name)
        await place.port.close(unsubscribe=unsubscribe)
        await place.site.close()
        await asyncio.to_thread(shutil.rmtree, place.checkpoint, ignore_errors=True)

    async def _place(self, host: Host, epoch: int, following: Following | None) -> Place:
        name = f"{self.name}.{epoch}"
        site = Site(f"{host.name}-{epoch}", self._folder, self._clock)
        await site.start()
        host.forget(self.name)
        port = NodePort(
            self.name,
            [PortInput(stream=stream, locate=lambda: self.near.address) for stream in self.streams],
            outbox=site.outbox,
            peers=site.connections,
            clock=self._clock,
            settings=self._settings,
            rng=random.Random(epoch),
            epoch=epoch if following is None else epoch - 1,
            following=following,
        )
        self._places.append(Place(host, site, port, host.folder / "operators" / name, epoch))
        return self._places[-1]

    # -- sources and consumer -----------------------------------------------------------------------------------------

    def _consumer(self) -> Link:
        return Link(
            self.name,
            CONSUMER,
            locate=lambda: self.at.site.address,
            peers=self.near.connections,
            clock=self._clock,
            settings=self._settings,
            rng=random.Random(1),
        )

    async def _feed(self) -> None:
        due_s = self._clock.now()
        while not self._ended:
            for view, stream in enumerate(self.streams):
                self.near.outbox.write_source(stream, [self.feed.draft(len(self.written_s), view)], b"")
            self.written_s.append(self._clock.now())
            due_s += EVERY_S
            await self._clock.sleep(max(0.0, due_s - self._clock.now()))
        for stream in self.streams:
            end = FrameDraft(payload=b"", rows=0, watermark_ms=END_WATERMARK_MS, ended=True)
            self.near.outbox.write_source(stream, [end], b"")

    async def _consume(self) -> None:
        number, ended = 0, False
        while not ended:
            await self._link.wait(number)
            now_s = self._clock.now()
            for frame in self._link.inbox.frames(number, self._link.inbox.received):
                number, ended = frame.number, frame.ended
                self.arrivals.append(Arrival(now_s, number, frame.watermark_ms, frame.rows))
                if frame.payload:
                    self.payloads.append(frame.payload)
            self._link.acknowledge(number)

    async def end(self) -> tuple[int, int]:
        """End the sources, and wait for the operator's end; return the missing and the superfluous rows."""
        self._ended = True
        await self.until(lambda: bool(self.arrivals) and self.arrivals[-1].watermark_ms == END_WATERMARK_MS)
        return await asyncio.to_thread(self._wrong_rows)

    def _wrong_rows(self) -> tuple[int, int]:
        frames, state = range(len(self.written_s)), [row for rows in self.feed.state() for row in rows]
        inputs = [
            table_of([*(() if view else state), *(row for number in frames for row in self.feed.frame(number, view))])
            for view in range(self.kind.inputs)
        ]
        found = pa.concat_tables(pa.Table.from_batches([unpack(payload)]) for payload in self.payloads)
        return Answers(self.kind, inputs, self.feed.delay_ms).wrong(found)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; raise at once if the operator fails, or its consumer."""
        async with self._clock.timeout(self._patience_s):
            while not condition():
                if self._failure is not None:
                    raise self._failure
                for place in self._places:
                    place.host.check_operator(self.name)
                await self._clock.sleep(POLL_S)

    def _task_failed(self, task: str, error: BaseException) -> None:
        self._failure = error

    async def close(self) -> None:
        await self._tasks.close()
        await self._link.close()
        for place in list(self._places):
            await self._leave(place)
        await self.near.close()
