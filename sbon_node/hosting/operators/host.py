"""The operators that this node hosts: reserved, instantiated, resumed after a restart, destroyed."""

import asyncio
import shutil
from collections.abc import Callable, Container, Sequence
from functools import partial

import msgspec
import structlog

from sbon_node.base.disk import named_errors
from sbon_node.base.events import OperatorChanged
from sbon_node.base.store import Kind
from sbon_node.base.tasks import Tasks
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.context import Context, until_passed
from sbon_node.engine.interface import Engine, MovingEngine
from sbon_node.hosting.components import (
    ORPHANED_S,
    HostedComponent,
    HostedOperator,
    acceptors_of,
    checkpoint_of,
    spill_of,
    sweep,
    sweep_again,
)
from sbon_node.hosting.machine.capacity import Reservations
from sbon_node.hosting.operators.ports import OperatorPorts, trim_letters
from sbon_node.hosting.operators.room import Room
from sbon_node.model.records import OperatorRegister
from sbon_node.net.peers import Caller
from sbon_node.ownership.acceptors import RecordAcceptors, check_epoch, claim, report
from sbon_node.planning.process.planner import CLIENT
from sbon_node.streams.links.link import Link
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.port import NodePort
from sbon_node.streams.watermark import shown_watermark
from sbon_protocol.api.durability import LOCAL, BackupInfo
from sbon_protocol.api.nodes import CapacityUse, NodeCapacity
from sbon_protocol.api.operators import Needs, OperatorSpec, OperatorStats
from sbon_protocol.api.queries import ENGINE_STARTS, OperatorInfo
from sbon_protocol.api.query_ids import name_of
from sbon_protocol.api.states import operator_states
from sbon_protocol.api.states.backup_states import MISSING
from sbon_protocol.api.states.operator_states import LIFECYCLE, SET_ASIDE, OperatorState
from sbon_protocol.api.subscribers import component_of, is_follower
from sbon_protocol.api.usage import SpillCount
from sbon_protocol.calls import DestroyComponents, InstantiateOperator, ReserveOperator
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError

log = structlog.get_logger()


class OperatorHost:
    """This node's operators, from reservation to destruction. Refuses those beyond its capacity or its allow-list."""

    def __init__(
        self,
        context: Context,
        engine: MovingEngine,
        room: Room,
        connectors: ConnectorSettings,
        records: RecordAcceptors,
        *,
        arriving: Container[str],
        backed: Container[str],
    ) -> None:
        """Create them beside operators of other nodes: those ``arriving``, to go on here, and those ``backed`` by this node."""
        self._context, self._engine, self._connectors = context, engine, connectors
        self._records, self._room, self.ports, self._reservations = records, room, room.ports, room.reservations
        self._hosted = context.store.all("operator", HostedOperator)
        self._stored = tuple(self._hosted)
        self._orphaned, self._swept_s = dict.fromkeys(self._stored), 0.0
        """Operators to whose checkpoints an engine process of the earlier daemon may write until the time ``_swept_s``."""
        self.states = HostedStates()
        self._starting: dict[str, None] = {}
        self._checks = OperatorChecks(context, self._reservations, self._hosted)
        self._fenced: dict[str, None] = {}
        """Operators that this node may not host any more, until it has claimed them anew."""
        self._departed: dict[str, None] = {}
        """Operators that another node hosts, whose streams are still here."""
        self.arriving, self.backed = arriving, backed
        self._takers: list[Callable[[HostedOperator], bool]] = []
        self._tasks = Tasks(self._resume_broken)
        for operator, hosted in self._hosted.items():
            self._reservations.keep(operator, hosted.spec.needs, hosted.submitter)
            self.states.begin_operator(operator, "waits for its record")
        self.ports.on_fenced(self.fence)
        context.server.handle(ReserveOperator, self._reserve)
        context.server.handle(InstantiateOperator, self._instantiate)

    def start(self) -> None:
        """Resume operators of an earlier run, each once its query's record confirms it; delete the remains of others."""
        self._tasks.start("measures", self.ports.measures.run())
        self._tasks.start("sweep", until_passed(self._context, self._sweep, partial(self._waits, "sweep")))
        if self._orphaned:
            self._swept_s = self._context.clock.now() + ORPHANED_S
            self._tasks.start("sweep again", sweep_again(self._context, tuple(self._orphaned), self._is_kept))
        for operator in self._stored:
            if (hosted := self._hosted.get(operator)) is not None:
                self._tasks.start(f"resume {operator}", self._resume(hosted))

    async def close(self) -> None:
        """Stop every operator after a committed batch; all stay on disk. Accept no new operators meanwhile."""
        self._checks.is_closed = True
        await self._tasks.close()
        await self._engine.close()
        for operator in list(self.ports.open):
            await self.ports.disconnect(operator)

    def engine_state(self, operator: str, state: OperatorState, reason: str) -> None:
        """Handle a state report of the engine.

        Reports a permanent failure to the query's record, unless the caller that starts the operator receives the failure itself.
        """
        log.info("operator", operator=operator, state=state, reason=reason)
        hosted = self._hosted.get(operator)
        if hosted is None or operator in self._departed:
            return
        if state == operator_states.FAILED and self.ports.is_fenced(operator):
            self.fence(operator)
        if operator in self._fenced:
            return
        self.states.enter(operator, state, reason)
        self._notify(hosted, state, reason)
        if state == operator_states.FAILED and operator not in self._starting:
            self._tasks.start(f"report {operator}", self._report_failure(hosted, reason))

    def _notify(self, hosted: HostedOperator, change: str, reason: str = "") -> None:
        spec, host = hosted.spec, self._context.name
        changed = partial(OperatorChanged, query=name_of(spec.query), operator=spec.id, change=change, host=host, reason=reason)
        self._context.bus.publish("placement", changed)

    def describe(self, query: str) -> list[OperatorInfo]:
        """Return the operators of a query, shared ones too; those that have left are the business of their new hosts."""
        return self._described([one for _, one in sorted(self._hosted.items()) if query in (one.spec.query, *one.referring)])

    def all(self) -> list[tuple[str, OperatorInfo]]:
        """Return every operator of this node with its query's name."""
        known = sorted(self._hosted.values(), key=lambda hosted: (hosted.spec.query, hosted.spec.id))
        return [(name_of(hosted.spec.query), one) for hosted, one in zip(known, self._described(known), strict=True)]

    def _described(self, known: Sequence[HostedOperator]) -> list[OperatorInfo]:
        described = [operator_info(self._context, self._engine, self.ports, h, *self.states.of(h.spec.id)) for h in known]
        return self._room.with_core_times(described)

    def links(self) -> list[Link]:
        """Links that bring rows to this node's operators."""
        return [link for port in self.ports.open.values() for link in port.links]

    def components(self) -> list[HostedComponent]:
        """Return every operator of this node, once for each query that it is kept for."""
        return [
            HostedComponent(reader.query, operator, reader.acceptors)
            for operator, hosted in sorted(self._hosted.items())
            for reader in hosted.readers
        ]

    def promised(self) -> tuple[str, ...]:
        """Return operators with a reservation that are not yet instantiated."""
        return self._reservations.promised(self._context.clock.now())

    def free(self) -> Needs:
        """Return the free capacity; negative where operators hold more than there is: after a restart, or the loss of a host."""
        return self._reservations.free(self._context.clock.now())

    def capacity(self) -> NodeCapacity:
        return self._reservations.report(self._context.clock.now())

    def stored(self) -> list[HostedOperator]:
        """Return the operators of this node by their ids, as they were stored last."""
        return [self._hosted[operator] for operator in self.hosted()]

    def hosted(self) -> tuple[str, ...]:
        return tuple(sorted(self._hosted))

    def epochs(self) -> dict[str, int]:
        return {operator: hosted.spec.epoch for operator, hosted in self._hosted.items()}

    def reserved_by_others(self, call: DestroyComponents, caller: str) -> bool:
        """Return whether another node has reserved capacity for operators of the query."""
        return any(owner != caller for owner in self._reservations.owners(call.query, call.components).values())

    def release(self, call: DestroyComponents, caller: str = "") -> None:
        """Release capacity that the caller has reserved for the query; without a caller, that of any node."""
        for operator, owner in self._reservations.owners(call.query, call.components).items():
            if caller in ("", owner):
                self._reservations.release(operator, owner)

    async def destroy(self, call: DestroyComponents) -> None:
        """Remove operators of a query, with streams, checkpoints and reservations; leave those of other queries alone."""
        self.release(call)
        for operator in call.components:
            hosted = self._hosted.get(operator)
            if hosted is not None and hosted.spec.query == call.query:
                self.ports.backups.drop(operator)
                for task in ("claim", "resume", "report"):
                    await self._tasks.stop(f"{task} {operator}")
                await self._engine.destroy(operator)
                await self._forget(operator, hosted.submitter)

    async def _forget(self, operator: str, submitter: str, *, moved: bool = False) -> None:
        await self.ports.disconnect(operator, unsubscribe=not moved)
        self._departed.pop(operator, None)
        self.states.forget(operator)
        self._reservations.release(operator, submitter)
        if operator in self._hosted:
            self.ports.forget(operator)
            self._context.outbox.drop_stream(operator, moved=moved)
            shutil.rmtree(checkpoint_of(self._context, operator), ignore_errors=True)
            shutil.rmtree(spill_of(self._context, operator), ignore_errors=True)
            self._context.store.delete("operator", operator)
            self._notify(self._hosted.pop(operator), "ended")

    async def _reserve(self, call: ReserveOperator, caller: Caller) -> None:
        self._checks.check_open()
        if call.operator in self._starting:
            raise SbonError("operator-exists", "an operator of that id has not ended yet", where=call.operator)
        now, hold_s = self._context.clock.now(), min(call.hold_s, self._context.settings.reservation_s)
        needs = Needs(cores=call.cores, memory_mb=call.memory_mb, bandwidth_bytes_s=call.bandwidth_bytes_s)
        self._reservations.reserve(call.operator, needs, now, now + hold_s, caller.node, holder=self._room.holder(caller))

    async def _instantiate(self, call: InstantiateOperator, caller: Caller) -> None:
        """Instantiate a reserved operator. A request after the query's end has no reservation and is refused."""
        spec: OperatorSpec = decode_record(call.spec, OperatorSpec)
        check_epoch(spec.epoch, spec.id)
        hosted = HostedOperator(spec=spec, acceptors=acceptors_of(call.acceptors, spec.id))
        await self._checks.confirm(hosted, caller)
        self._hosted[spec.id] = hosted
        self.states.begin_operator(spec.id)
        try:
            self.keep(hosted)
            await self._run(hosted)
        except BaseException:
            if self._hosted.get(spec.id) is hosted:
                await self._engine.destroy(spec.id)
                await self._forget(spec.id, hosted.submitter)
            raise

    # -- operators that come from another node, or go to one -----------------------------------------------------------

    def get(self, operator: str) -> HostedOperator | None:
        return self._hosted.get(operator)

    def keep(self, hosted: HostedOperator) -> None:
        """Store an operator of this node with other references."""
        self._context.store.put("operator", hosted.spec.id, hosted)
        self._hosted[hosted.spec.id] = hosted

    def is_running(self, operator: str) -> bool:
        is_here = operator in self.ports.open and operator not in self._departed
        return is_here and self.states.of(operator)[0] == operator_states.RUNNING

    def check_running(self, operator: str) -> None:
        """Raise ``not-movable`` for an operator that does not run."""
        if not self.is_running(operator):
            state, reason = self.states.of(operator)
            raise SbonError("not-movable", f"it is {state}{reason and ': '}{reason}", where=operator, hint="try again later")

    async def admit(self, hosted: HostedOperator, caller: Caller, use: CapacityUse, kind: Kind, record: msgspec.Struct) -> None:
        """Hold capacity for an operator that may come, after the same checks as for a new one, and store its ``record``."""
        spec, now = hosted.spec, self._context.clock.now()
        if spec.id in self._orphaned and now < self._swept_s:
            reason = "an engine of before this node's restart may still write to it"
            raise SbonError("checkpoint-in-use", reason, where=spec.id, hint="try again in a minute")
        self._checks.check_open()
        self._checks.check_new(spec.id)
        deadline, holder = now + self._context.settings.reservation_s, self._room.holder(caller)
        self._reservations.reserve(spec.id, spec.needs, now, deadline, hosted.submitter, holder=holder, use=use)
        try:
            await self._checks.confirm(hosted, caller)
            self._context.store.put(kind, spec.id, record)
        except BaseException:
            self._reservations.release(spec.id, hosted.submitter)
            raise

    def expect(self, hosted: HostedOperator, use: CapacityUse) -> None:
        """Hold the capacity of an operator that was admitted before a restart."""
        self._reservations.keep(hosted.spec.id, hosted.spec.needs, hosted.submitter, use=use)
        self._orphaned[hosted.spec.id] = None

    def dismiss(self, hosted: HostedOperator) -> None:
        """Release the capacity of an operator that does not come."""
        self._reservations.release(hosted.spec.id, hosted.submitter)

    async def adopt(self, hosted: HostedOperator, register: OperatorRegister, *, runs: bool) -> None:
        """Host an operator whose stream and checkpoint are here for the queries of its register, started unless it ``runs``."""
        self.keep(hosted := hosted.kept_for(register.queries))
        self._reservations.keep(hosted.spec.id, hosted.spec.needs, hosted.submitter)
        self.states.begin_operator(hosted.spec.id)
        if runs:
            self.ports.backups.begin(hosted.spec.id)
            self.engine_state(hosted.spec.id, operator_states.RUNNING, "")
        else:
            self._tasks.start(f"resume {hosted.spec.id}", self._resume(hosted))

    def fence(self, operator: str) -> None:
        """Stop an operator that may belong to another node by now; it goes on once this node has claimed it anew."""
        hosted = self._hosted.get(operator)
        if hosted is not None and operator not in self._departed and operator not in self._fenced:
            self._fenced[operator] = None
            self._tasks.start(f"claim {operator}", self._claim_again(hosted))

    async def _claim_again(self, hosted: HostedOperator) -> None:
        operator = hosted.spec.id
        try:
            await self._tasks.stop(f"resume {operator}")
            await self._engine.destroy(operator)
            await self.ports.disconnect(operator)
        finally:
            del self._fenced[operator]
        self.states.enter(operator, operator_states.STARTING, "another node may host it by now")
        await self._resume(hosted)

    def on_lost(self, takes: Callable[[HostedOperator], bool]) -> None:
        """Have ``takes`` asked for each operator that another node owns when this one resumes it.

        It returns whether it looks after the operator from now on; one that nobody takes is removed.
        """
        self._takers.append(takes)

    def depart(self, operator: str) -> None:
        """Ignore what becomes of an operator that another node hosts; its stream stays until :meth:`leave`."""
        self._departed[operator] = None

    async def leave(self, operator: str) -> None:
        """Forget an operator that goes on at another node; its readers look for it there."""
        if (hosted := self._hosted.get(operator)) is not None:
            await self._engine.destroy(operator)
            await self._forget(operator, hosted.submitter, moved=True)

    async def _resume(self, hosted: HostedOperator) -> None:
        context, spec = self._context, hosted.spec
        try:
            epoch = await claim(context, self._records, hosted.acceptors, hosted.claim())
        except SbonError as error:
            if error.code == "not-owner" and any(takes(hosted) for takes in self._takers):
                return
            log.info("operator-given-up", operator=spec.id, reason=str(error))
            is_elsewhere = error.code == "not-owner"

            async def give_up() -> None:
                forget_departure(context, spec.id)
                await self._forget(spec.id, hosted.submitter, moved=is_elsewhere)

            await until_passed(context, give_up, partial(self._waits, spec.id))
            return
        hosted = msgspec.structs.replace(self._hosted[spec.id], spec=msgspec.structs.replace(spec, epoch=epoch))

        async def attempt() -> None:
            self.keep(hosted)
            forget_departure(context, spec.id)
            await self._run(hosted)

        try:
            await until_passed(context, attempt, partial(self._waits, spec.id))
        except SbonError as error:
            log.warning("operator-not-resumed", operator=spec.id, code=error.code, reason=str(error))
            self.states.enter(spec.id, operator_states.FAILED, str(error))
            await self._report_failure(hosted, str(error))

    def _waits(self, operator: str, error: SbonError) -> None:
        log.warning("operator-waits", operator=operator, code=error.code, reason=str(error))
        if operator in self._hosted:
            self.states.enter(operator, operator_states.STARTING, str(error))

    def _is_kept(self, operator: str) -> bool:
        """Return whether the checkpoint of an operator stays."""
        return operator in self._hosted or operator in self.arriving or operator in self.backed

    async def _sweep(self) -> None:
        sweep(self._context, self._is_kept, self.ports.open)
        trim_letters(self.ports.letters_folder, self._connectors)

    def _resume_broken(self, task: str, error: BaseException) -> None:
        """Report our own broken invariant to the query's record and in this node's log."""
        operator = task.removeprefix("resume ")
        if operator != task:
            self.engine_state(operator, operator_states.FAILED, f"{type(error).__name__}: {error}")

    async def _run(self, hosted: HostedOperator) -> None:
        """Open the operator's stream, connect its inputs, and run it in the engine."""
        context, spec = self._context, hosted.spec
        self._starting[spec.id] = None
        try:
            context.outbox.open_stream(spec.id, "operator", finite=False, epoch=spec.epoch)
            if not context.outbox.latest(spec.id):
                # The first subscriber must not cause the deletion of frames that another has yet to read.
                for reader in spec.readers:
                    context.outbox.subscribe(spec.id, reader, 1)
            checkpoint = checkpoint_of(self._context, spec.id)
            port = await self.ports.connect(spec, hosted.acceptors)
            with named_errors(checkpoint):
                checkpoint.mkdir(parents=True, exist_ok=True)
            self.ports.backups.begin(spec.id)
            await self._engine.instantiate(spec, port, checkpoint)
        finally:
            del self._starting[spec.id]

    async def _report_failure(self, hosted: HostedOperator, reason: str) -> None:
        """Report its end to all queries that read it."""
        reports = [(one.acceptors, hosted.failure(one.query, reason)) for one in hosted.readers]

        def matters() -> bool:
            return hosted.spec.id in self._hosted

        await asyncio.gather(*(report(self._context, self._records, *one, matters) for one in reports))


class HostedStates:
    """The latest state and reason of each operator, by id."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[OperatorState, str]] = {}

    def begin_operator(self, operator: str, reason: str = "") -> None:
        self._states[operator] = (LIFECYCLE.initial, reason)

    def enter(self, operator: str, state: OperatorState, reason: str) -> None:
        """Change the state; raise :class:`BrokenInvariantError` for a forbidden transition."""
        before, _ = self.of(operator)
        LIFECYCLE.check_transition(before, state, operator)
        self._states[operator] = (state, reason)

    def of(self, operator: str) -> tuple[OperatorState, str]:
        return self._states.get(operator, (LIFECYCLE.initial, ""))

    def forget(self, operator: str) -> None:
        self._states.pop(operator, None)

    def waiting(self) -> list[str]:
        """Return operators that wait for a repair, with the reason; operators that only wait for rows are left out."""
        return [f"{one}: {why}" for one, (state, why) in sorted(self._states.items()) if why and state not in SET_ASIDE]


class OperatorChecks:
    """Admits operators beside those that are ``hosted``, until it ``is_closed``."""

    def __init__(self, context: Context, reservations: Reservations, hosted: Container[str]) -> None:
        self._context, self._reservations, self._hosted = context, reservations, hosted
        self._checked: dict[str, None] = {}
        self.is_closed = False

    async def confirm(self, hosted: HostedOperator, caller: Caller) -> None:
        """Check an operator for which capacity is reserved, and hold the capacity until it ends here."""
        spec = hosted.spec
        self.check_open()
        if len(spec.inputs) > self._context.settings.max_inputs:
            raise SbonError("too-many-inputs", f"{len(spec.inputs)} inputs", where=spec.id, hint="raise control.max_inputs")
        if spec.id in self._checked:
            raise SbonError("operator-exists", f"{spec.id} runs here already", where=self._context.name)
        self.check_new(spec.id)
        self._reservations.check_reserved(spec.id, spec.needs, self._context.clock.now(), hosted.submitter)
        await self._check_fragment(spec, caller)
        self.check_open()
        self.check_new(spec.id)
        self._reservations.confirm(spec.id, spec.needs, self._context.clock.now(), hosted.submitter)

    def check_open(self) -> None:
        """Raise ``node-away`` or ``node-drained`` if this node takes no operators."""
        if self.is_closed:
            raise SbonError("node-away", "this node is going away", where=self._context.name)
        self._context.drained.check()

    def check_new(self, operator: str) -> None:
        """Raise ``operator-exists`` for an operator of this node."""
        if operator in self._hosted:
            raise SbonError("operator-exists", f"{operator} runs here already", where=self._context.name)

    async def _check_fragment(self, spec: OperatorSpec, caller: Caller) -> None:
        """Check the fragment against the allow-list. Each reservation allows one check at a time, which bounds their number."""
        CLIENT.set(caller.node)
        self._checked[spec.id] = None
        try:
            await self._context.planner.check_fragment(spec.fragment, len(spec.views()))
        finally:
            del self._checked[spec.id]


def forget_departure(context: Context, operator: str) -> None:
    """Forget a stored move of an operator that was claimed after a restart, or whose query is over: it moves no more."""
    if context.store.get("departure", operator, msgspec.Raw) is not None:
        context.store.delete("departure", operator)


def operator_info(
    context: Context, engine: Engine, ports: OperatorPorts, hosted: HostedOperator, state: OperatorState, reason: str
) -> OperatorInfo:
    """Return the description of an operator in that state."""
    operator, outbox = hosted.spec.id, context.outbox
    watermark_ms, ended = _promised(outbox, operator)
    port, letters, held_back = ports.open.get(operator), ports.letters.get(operator), False
    if state == operator_states.STARTING:
        reason = reason or (ENGINE_STARTS if engine.status == "starting" else "")
    elif port is not None and not reason:
        reason = _held_back(outbox, port)
        held_back = reason != ""
    return OperatorInfo(
        id=operator,
        node=context.name,
        fragment=hosted.spec.fragment,
        state=state,
        reason=reason,
        held_back=held_back,
        epoch=hosted.spec.epoch,
        durability=hosted.spec.durability,
        backup=ports.backups.info(operator) or (BackupInfo(state=MISSING) if hosted.spec.durability != LOCAL else None),
        stats=engine.stats(operator) if port is None else _since_it_began(engine.stats(operator), port),
        spilled=port.spilled if port is not None else SpillCount(),
        watermark_ms=watermark_ms,
        ended=ended,
        skipped=letters.rows if letters is not None else 0,
        dead_letters=letters.path if letters is not None else "",
        measures=ports.described(operator),
        past_moves=hosted.spec.past_moves,
        queries=tuple(one.query for one in hosted.readers) if hosted.references else (),
    )


def _since_it_began(stats: OperatorStats, port: NodePort) -> OperatorStats:
    """Return the engine's statistics with counts that go on over restarts and moves."""
    return msgspec.structs.replace(stats, **msgspec.structs.asdict(port.meter.totals))


def _held_back(outbox: Outbox, port: NodePort) -> str:
    """Return why a healthy operator takes no batch of its available input."""
    if port.operator in outbox.streams() and outbox.pressure(port.operator):
        return "held back: its subscribers have not received what there is"
    return f"{', '.join(port.held)} ahead of its other inputs" if port.held else ""


def _promised(outbox: Outbox, operator: str) -> tuple[int | None, bool]:
    """Return its output's watermark, as shown to users, and whether it has ended; None while the stream is not open."""
    if operator not in outbox.streams():
        return None, False
    return shown_watermark(outbox.watermark_ms(operator)), outbox.ended(operator)


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """One link of an operator: ``stream`` comes from ``node``, or with ``reads`` false goes to ``component`` there.

    ``rate_bytes_s`` is measured, None before the first measurement.
    """

    stream: str
    component: str
    node: str
    reads: bool
    rate_bytes_s: float | None


async def neighbours(context: Context, operators: OperatorHost, operator: str) -> tuple[Neighbour, ...]:
    """Return the links of an operator of this node, inputs first; their nodes are those where the others are now.

    Raises :class:`SbonError` ``operator-unknown``, and as :meth:`ReaderHosts.node_of`.
    """
    hosted, measures = operators.get(operator), operators.ports.described(operator)
    if hosted is None or measures is None:
        raise SbonError("operator-unknown", "it does not run here", where=operator)
    spec = operators.ports.present(hosted.spec)
    found = [
        Neighbour(stream=one.stream, component=one.stream, node=one.node, reads=True, rate_bytes_s=read.bytes_s)
        for one, read in zip(spec.inputs, measures.inputs, strict=True)
    ]
    readers = {component_of(name): name for name in context.outbox.link_counts(operator).links if not is_follower(name)}
    for component, subscriber in sorted(readers.items()):
        node = await operators.ports.readers.node_of(hosted, subscriber)
        found.append(Neighbour(stream=operator, component=component, node=node, reads=False, rate_bytes_s=measures.bytes_out_s))
    return tuple(found)
