"""Everything that packages above the streams share: their settings, the parts below them, and retries."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec
import structlog
from msgspec import Meta

from sbon_node.base.backoff import Backoff
from sbon_node.base.clock import Clock
from sbon_node.base.drain_mark import Drained
from sbon_node.base.events import Bus
from sbon_node.base.executors import Executor
from sbon_node.base.failpoints import Failpoints
from sbon_node.base.store import RecordStore
from sbon_node.base.tasks import check_cancelled
from sbon_node.connectors.interface import AWAY
from sbon_node.model.servers import MOST_SPEED
from sbon_node.net.counters import Counters
from sbon_node.net.peers import Peers, PeerServer
from sbon_node.net.transport import Transport
from sbon_node.overlay.assemble import Overlay
from sbon_node.overlay.directory.view import FullView
from sbon_node.overlay.membership.service import Membership
from sbon_node.overlay.presence import Presence
from sbon_node.planning.process.planner import Planner
from sbon_node.streams.links.publisher import Publisher
from sbon_node.streams.links.shared import SharedConnections
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.base import Call
from sbon_protocol.errors import SbonError

LOOK_S, MISSES = 5.0, 3
"""Pause between two looks at whether a node that is to answer is still there, in seconds, and looks in a row without it."""
UNREACHABLE = frozenset({"peer-unreachable", "node-away", "unknown-node"})
"""Codes of :meth:`Context.ask` for a node that does not answer."""
log = structlog.get_logger()

Reply = TypeVar("Reply", bound=msgspec.Struct)
T = TypeVar("T")


class ControlSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timeouts of calls between peers, and limits of what nodes keep for each other."""

    call_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """wait for a peer's short answer; seconds; raise it on very slow links"""

    start_timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 240.0
    """wait for an operator to run, engine start included; then the query is placed without that node; seconds; longer than
    engine.start_timeout_s"""
    reservation_s: Annotated[float, Meta(gt=0, le=3600)] = 300.0
    """lifetime of a reservation whose operator has not started; seconds"""
    reserved_share: Annotated[float, Meta(gt=0, le=1)] = 0.5
    """share of engine.max_operators that another node may hold reserved while others ask for capacity; they get the excess;
    all nodes that are no members count as one"""
    reserved_s: Annotated[float, Meta(gt=0, le=3600)] = 15.0
    """time for which a node may hold more than that share, to start a query; seconds"""
    placement_rounds: Annotated[int, Meta(ge=1, le=20)] = 5
    """placements tried when a chosen node refuses after all; then the query is refused"""
    explain_s: Annotated[float, Meta(gt=0, le=3600)] = 15.0
    """time limit of the strategies that an explanation compares; it lists those that did not finish; seconds"""
    retry_s: Annotated[float, Meta(gt=0, le=600)] = 1.0
    """pause before asking an unreachable peer again; seconds"""
    retry_max_s: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """longest such pause, for hosts that must learn of a query's end; seconds"""
    sync_interval_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    """pause between catalogue comparisons with a random member; at rest eight times that; seconds"""
    max_queries: Annotated[int, Meta(ge=1, le=2048)] = 1000
    """query records one node holds, finished ones included; the oldest over ones go"""
    max_registers: Annotated[int, Meta(ge=1, le=65_536)] = 8192
    """replicated registers of which one node keeps a copy; more are refused"""
    checks: Annotated[int, Meta(ge=1, le=65_536)] = 64
    """records and registers of queries that this node reads at once, to see whether a caller may end its components, and
    whether one may read its streams; more callers try again"""
    max_forgotten: Annotated[int, Meta(ge=1, le=1_048_576)] = 16_384
    """ended queries whose uids one node remembers, so that no late message revives their records or sinks; also registers
    that others keep instead of this node; the oldest go"""
    documents_mb: Annotated[int, Meta(ge=1, le=1_048_576)] = 512
    """texts, plans and placements of queries that one node keeps beside its registers; more are refused; megabytes"""
    repair_s: Annotated[float, Meta(gt=0, le=86_400)] = 30.0
    """pause between checks that the keepers of a register are still there; seconds"""
    replace_s: Annotated[float, Meta(gt=0, le=1e9)] = 3600.0
    """time for which a keeper of a register is dead before another node replaces it; seconds"""
    drive_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    """pause between checks whether a query recorded here needs work, without messages; seconds"""
    sink_failover_s: Annotated[float, Meta(ge=0, le=86_400)] = 5.0
    """seconds for which the node of a sink is lost before another node takes the sink over, where the user allows that
    (--sink-failover)"""
    takeover_s: Annotated[float, Meta(gt=0, le=86_400)] = 10.0
    """time for which a node that places a query is gone before another node ends the query; seconds"""
    orphan_check_s: Annotated[float, Meta(gt=0, le=86_400)] = 60.0
    """pause after which a host asks again whether the queries of its components live; seconds"""
    resume_tries: Annotated[int, Meta(ge=1, le=1000)] = 5
    """starts of an operator after a restart; if all fail, its query does"""
    max_sinks: Annotated[int, Meta(ge=1, le=4096)] = 256
    """sinks one node hosts; more are refused"""
    follow_bytes: Annotated[int, Meta(ge=1, le=4 * 2**20)] = 2**20
    """bytes of rows in one answer to a follower at another node, one frame at least; raise it for fast links over long
    distances"""
    follower_grace_s: Annotated[float, Meta(gt=0, le=1e6)] = 60.0
    """seconds after which a follower beside a query's first sink is given up once it has left, with what is kept for it;
    raise it if terminals lose their connections for long"""
    follow_wait_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """time for which such a follower's call waits for rows before it is repeated; seconds"""
    relayed_followers: Annotated[int, Meta(ge=1, le=4096)] = 16
    """followers of queries at other nodes that wait for rows at once, the others in turn; keep it below net.max_requests"""
    max_inputs: Annotated[int, Meta(ge=1, le=4096)] = 1024
    """streams one operator or sink may take; more are refused"""
    max_streams: Annotated[int, Meta(ge=1, le=2048)] = 1024
    """streams in the catalogue; more are refused"""
    kept_events: Annotated[int, Meta(ge=0, le=4096)] = 256
    """last events of members, placements and queries kept for later listeners"""
    history_interval_s: Annotated[float, Meta(gt=0, le=3600)] = 2.0
    """pause between points of the history of this node and of its queries; seconds"""
    history_points: Annotated[int, Meta(ge=2, le=100_000)] = 300
    """newest points kept of each history; with 2 s between them ten minutes"""
    history_queries: Annotated[int, Meta(ge=0, le=2048)] = 8
    """queries that get a point at a time, in turn; each point asks the hosts of the query's components"""
    measure_interval_s: Annotated[float, Meta(gt=0, le=86_400)] = 30.0
    """pause between rounds that remember measurements of running operators; seconds"""
    max_measurements: Annotated[int, Meta(ge=0, le=65_536)] = 4096
    """operators whose measurements one node remembers, for later plans; the oldest go"""
    measurement_age_s: Annotated[float, Meta(gt=0, le=1e9)] = 86_400.0
    """older measurements do not count in a plan; seconds; lower it where streams change"""
    bandwidth_bytes_s: Annotated[float, Meta(gt=0, le=1e12)] = 125_000_000.0
    """throughput that operators of this node may use; bytes a second; set it to the site's uplink"""
    cores: Annotated[float, Meta(ge=0, le=4096)] = 0.0
    """cores operators may reserve; 0 takes the machine's, or its container's"""
    speed: Annotated[float, Meta(ge=0, le=MOST_SPEED)] = 0.0
    """speed of a core, relative to a Xeon core of 2.8 GHz; 0 measures it when the node starts"""
    max_load: Annotated[float, Meta(gt=0, le=1e6)] = 4.0
    """load, runnable processes per core, from which this node takes no further operator while another member has less than half
    of it"""
    memory_mb: Annotated[float, Meta(ge=0, le=1e8)] = 0.0
    """memory operators may reserve; megabytes; 0 takes 3/4 of the machine's, or its container's"""

    @property
    def component_timeout_s(self) -> float:
        """Timeout of a call within another, whose caller waits ``call_timeout_s`` and still gets a partial answer."""
        return self.call_timeout_s / 3


class World(NamedTuple):
    """The node's environment, real or simulated."""

    transport: Transport
    clock: Clock
    rng: random.Random
    counters: Counters
    failpoint: Failpoints
    executor: Executor
    computing: Executor
    planner: Planner


class Disk(NamedTuple):
    """The open files of a node's data directory."""

    folder: Path
    store: RecordStore
    outbox: Outbox


@dataclass(frozen=True, slots=True)
class Context:
    """The packages below, assembled once. ``name`` is this node's."""

    name: str
    data_dir: Path
    clock: Clock
    rng: random.Random
    settings: ControlSettings
    stream_settings: StreamSettings
    store: RecordStore
    outbox: Outbox
    publisher: Publisher
    peers: Peers
    connections: SharedConnections
    server: PeerServer
    membership: Membership
    presence: Presence
    directory: FullView
    counters: Counters
    failpoint: Failpoints
    executor: Executor
    computing: Executor
    planner: Planner
    bus: Bus
    drained: Drained

    async def ask(self, node: str, call: Call, reply: type[Reply], *, timeout_s: float | None = None) -> Reply:
        """Call a member by name; raise :class:`SbonError` if it refuses or is unreachable."""
        answer = await self._call(node, call, timeout_s)
        if not isinstance(answer, reply):
            raise TypeError(f"{type(call).__name__} is answered by {type(answer).__name__}, not {reply.__name__}")
        return answer

    async def call(self, node: str, call: Call, *, timeout_s: float | None = None) -> None:
        """Call a member as :meth:`ask` does, for calls whose reply is empty."""
        await self._call(node, call, timeout_s)

    async def call_while_there(self, node: str, call: Call, *, timeout_s: float) -> None:
        """As :meth:`call`, for a long time limit: ``peer-unreachable`` soon after membership has begun to miss the node."""
        calling, missed = asyncio.ensure_future(self.call(node, call, timeout_s=timeout_s)), 0
        try:
            while missed < MISSES:
                looking = asyncio.ensure_future(self.clock.sleep(LOOK_S))
                await asyncio.wait({calling, looking}, return_when=asyncio.FIRST_COMPLETED)
                looking.cancel()
                if calling.done():
                    return calling.result()
                missed = missed + 1 if self.presence.away(node) else 0
            raise SbonError("peer-unreachable", f"{node} {self.presence.absence(node)}", where=node)
        finally:
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)

    async def _call(self, node: str, call: Call, timeout_s: float | None) -> object:
        limit = self.settings.call_timeout_s if timeout_s is None else timeout_s
        self.failpoint("ask")
        try:
            address, expected = self.membership.address_of(node), self.membership.expected(node)
            return await self.peers.call(address, call, timeout_s=limit, expected=expected)
        finally:
            self.failpoint("answer")


def assemble(
    name: str, world: World, disk: Disk, overlay: Overlay, settings: ControlSettings, stream_settings: StreamSettings
) -> Context:
    """Put together what all packages above share, and what serves and reads streams."""
    return Context(
        name=name,
        data_dir=disk.folder,
        clock=world.clock,
        rng=world.rng,
        settings=settings,
        stream_settings=stream_settings,
        store=disk.store,
        outbox=disk.outbox,
        publisher=Publisher(disk.outbox, world.clock, stream_settings, world.failpoint),
        peers=overlay.peers,
        connections=SharedConnections(overlay.peers, stream_settings),
        server=overlay.server,
        membership=overlay.membership,
        presence=overlay.presence,
        directory=overlay.directory,
        counters=world.counters,
        failpoint=world.failpoint,
        executor=world.executor,
        computing=world.computing,
        planner=world.planner,
        bus=Bus(name, world.clock.wall_ms, keep=settings.kept_events),
        drained=Drained(disk.store),
    )


# -- Retries with growing pauses for temporary errors; permanent errors are raised ----------------------------------------------

PASSING = frozenset(
    {"checkpoint-in-use", "disk-full", "disk-error", "store-busy", "engine-failed", "java-missing", "no-capacity", AWAY}
)
"""Codes of errors of this node or its peers, independent of the request."""

FINAL = frozenset({"checkpoint-mismatch", "checkpoint-unreadable", "fenced", "forbidden-sql", "outbox-corrupt", "sink-lost"})
"""Codes of errors that no retry cures. Other codes are retried ``control.resume_tries`` times."""


def backoff_of(settings: ControlSettings) -> Backoff:
    """Return the growing pauses between the tries of an action that has failed."""
    return Backoff(settings.retry_s, settings.retry_max_s)


def logged(event: str, **fields: str) -> Callable[[SbonError], None]:
    """Return a function that logs each error because of which :func:`until_passed` tries again."""
    return lambda error: log.warning(event, **fields, code=error.code, reason=str(error))


async def until_passed(context: Context, attempt: Callable[[], Awaitable[T]], waits: Callable[[SbonError], None]) -> T:
    """Repeat ``attempt`` until it succeeds; ``waits`` receives each temporary error, permanent ones are raised."""
    tries, backoff = 0, backoff_of(context.settings)
    while True:
        try:
            return await attempt()
        except SbonError as error:
            check_cancelled()
            tries += error.code not in PASSING
            if error.code in FINAL or tries >= context.settings.resume_tries:
                raise
            waits(error)
        await context.clock.sleep(backoff.next_s())
