"""Operators that follow their present host, to go on here: copied, started, settled, and activated once the register says so.

Until it has said that it is ready, a follower may be forgotten at any time. After that only the register decides: its host may
have made this node the next one although the answer to it was lost.
"""

import shutil
from collections.abc import Iterable, Iterator, Sized
from enum import StrEnum
from functools import partial

import msgspec
import structlog

from sbon_node.base.caller_checks import CallerChecks
from sbon_node.base.tasks import Tasks, check_cancelled
from sbon_node.context import Context, logged, until_passed
from sbon_node.engine.alignment import Cut
from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.copies.listing import CopyLimits
from sbon_node.engine.copies.receiver import CopyReceiver
from sbon_node.engine.copies.sender import CopySender
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.engine.interface import MovingEngine
from sbon_node.engine.settings import EngineSettings
from sbon_node.hosting.components import HostedComponent, HostedOperator, acceptors_of, checkpoint_of, starting_here
from sbon_node.hosting.moving.departures import Departures, present
from sbon_node.hosting.moving.ends import Arrival, Copied, FollowerStarter, Frozen, Position, StoredArrival
from sbon_node.hosting.operators.host import OperatorHost
from sbon_node.model.frames import Frame
from sbon_node.model.records import MoveLease, OperatorRegister
from sbon_node.net.peers import Caller
from sbon_node.ownership.acceptors import OVER, RecordAcceptors
from sbon_node.ownership.operators import OperatorRegisters, hosted_by
from sbon_node.streams.links.channel import race
from sbon_node.streams.outbox.copies import StreamState
from sbon_node.streams.outbox.ledger import Tail
from sbon_node.streams.outbox.outbox import Outbox
from sbon_protocol.api.nodes import ARRIVAL
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.api.queries import OperatorInfo
from sbon_protocol.api.query_ids import uid_of
from sbon_protocol.api.states import arrival_states, move_states
from sbon_protocol.api.states.arrival_states import ArrivalEvent, ArrivalInstruction
from sbon_protocol.api.states.operator_states import SET_ASIDE, OperatorState
from sbon_protocol.api.subscribers import BACKUP, attempt_of, component_of
from sbon_protocol.calls import DestroyComponents
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.messages import Hello
from sbon_protocol.moving import (
    AbandonOperator,
    ActivateOperator,
    ComponentHost,
    FollowOperator,
    FollowStep,
    LocateComponent,
    OperatorFollowed,
    PrepareOperator,
    SettleOperator,
)

log = structlog.get_logger()

# -- Requests about an operator that moves are served by its register: its host may move it, and the move's target follow it


class HostCheck:
    """Reads registers for callers that say they host or follow an operator, a bounded number at once.

    The caller may not name the register's acceptors: they could be its accomplices.
    """

    def __init__(self, context: Context, registers: OperatorRegisters, settings: MigrationSettings) -> None:
        self._context, self._registers = context, registers
        self._checks = CallerChecks(settings.checks, "migration.checks")

    async def may_move(self, spec: OperatorSpec, attempt: str, caller: Caller) -> None:
        """Raise ``not-owner`` unless the caller hosts the operator in its epoch, and moves it here in this attempt."""
        register = await self.hosts_in(spec, caller)
        me = self._context.membership.expected(self._context.name)
        if register.move != MoveLease(attempt=attempt, target=me.node, instance=me.instance):
            raise self._refused(f"its register has no move {attempt} to {me.node}", spec.id, caller)

    async def may_follow(self, follower: str, hello: Hello) -> None:
        """Raise ``not-owner`` unless the subscriber's operator moves to the node in that attempt, or has its backup there."""
        operator, attempt = component_of(follower), attempt_of(follower)
        register = await self._read(uid_of(operator), operator, hello)
        if attempt == BACKUP:
            if (register.backup, register.backup_instance) != (hello.node, hello.instance):
                raise self._refused(f"its register does not name {hello.node} as the backup", operator, hello)
            return
        if register.move != MoveLease(attempt=attempt, target=hello.node, instance=hello.instance):
            raise self._refused(f"its register has no move {attempt} to {hello.node}", operator, hello)

    async def hosts_in(self, spec: OperatorSpec, caller: Caller) -> OperatorRegister:
        """Return the operator's register; raise ``not-owner`` unless the caller hosts it in its epoch."""
        register = await self._read(spec.query, spec.id, caller)
        if not hosted_by(register, caller.node, caller.instance) or register.epoch != spec.epoch:
            raise self._refused(f"{caller.node} does not host it in epoch {spec.epoch}", spec.id, caller)
        return register

    async def is_host(self, operator: str, caller: Caller) -> None:
        """Raise ``not-owner`` unless the caller hosts the operator."""
        if not hosted_by(await self._read(uid_of(operator), operator, caller), caller.node, caller.instance):
            raise self._refused(f"{caller.node} does not host it", operator, caller)

    async def _read(self, query: str, operator: str, caller: Caller | Hello) -> OperatorRegister:
        with self._checks.one(caller.node, operator):
            try:
                return await self._registers.read(query, operator)
            except SbonError as error:
                if error.code in ("record-unknown", "not-owner"):
                    raise self._refused(error.message, operator, caller) from error
                raise

    def _refused(self, reason: str, operator: str, caller: Caller | Hello) -> SbonError:
        self._context.counters.refuse("move-refused", peer=caller.node, operator=operator, reason=reason)
        return SbonError("not-owner", reason, where=operator, hint="ask the node that hosts it to move it")


def check_tail(spec: OperatorSpec, tail: Tail, field: str = "tail") -> None:
    """Raise :class:`ProtocolError` unless the tail has an offset for each input of the operator."""
    _check_width(spec, f"{field}.offsets", tail.offsets)


def check_cut(spec: OperatorSpec, cut: Cut, batches: Iterable[Sized] = ()) -> None:
    """Raise :class:`ProtocolError` unless the cut and each of the batches after it have an entry for each input."""
    _check_width(spec, "cut.offsets", cut.offsets)
    for batch in batches:
        _check_width(spec, "batches", batch)


def check_stream(spec: OperatorSpec, stream: StreamState, *, max_subscribers: int) -> None:
    """Raise :class:`ProtocolError` for a tail of another width than the inputs, or for too many subscriptions."""
    check_tail(spec, stream.tail, "stream.tail")
    if (count := len(stream.subscriptions)) > max_subscribers:
        raise ProtocolError("invalid", f"stream.subscriptions: {count} entries, at most {max_subscribers} are allowed")


def _check_width(spec: OperatorSpec, field: str, inputs: Sized) -> None:
    if len(inputs) != len(spec.inputs):
        raise ProtocolError("invalid", f"{field}: {len(inputs)} entries, {spec.id} has {len(spec.inputs)} inputs")


# -- Followers ---------------------------------------------------------------------------------------------------------


class Arrivals:
    """The followers of this node, by operator; ``known`` is filled with them."""

    def __init__(
        self,
        context: Context,
        operators: OperatorHost,
        engine: MovingEngine,
        starter: FollowerStarter,
        registers: OperatorRegisters,
        records: RecordAcceptors,
        migration: MigrationSettings,
        host_check: HostCheck,
        known: dict[str, Arrival],
    ) -> None:
        self._context, self._operators, self._engine = context, operators, engine
        self._registers, self._records, self._starter, self._host_check = registers, records, starter, host_check
        self._silence_s, self._tasks, self._known = migration.silence_s, Tasks(), known
        now_s = context.clock.now()
        self._known.update((one, Arrival(stored, now_s)) for one, stored in context.store.all("arrival", StoredArrival).items())
        for arrival in self._known.values():
            operators.expect(arrival.stored.hosted, ARRIVAL)
        handle = context.server.handle
        handle(PrepareOperator, self._prepare)
        handle(FollowOperator, self._follow)
        handle(SettleOperator, self._settle)
        handle(ActivateOperator, self._activate)
        handle(AbandonOperator, self._abandon)

    def start(self) -> None:
        """Go on with those of an earlier run that are ready, and forget the others."""
        for operator, arrival in list(self._known.items()):
            if self._operators.get(operator) is not None:
                self._context.store.delete("arrival", operator)
                del self._known[operator]
            elif arrival.stored.is_ready:
                self._tasks.start(_task(arrival), self._watch(arrival))
            else:
                self._tasks.start(_task(arrival), self._forget(arrival, ArrivalEvent.SILENT))

    async def close(self) -> None:
        await self._tasks.close()

    def engine_state(self, operator: str, state: OperatorState, reason: str) -> None:
        """Note that a follower has failed; its host gives the move up then."""
        arrival = self._known.get(operator)
        if arrival is not None and state in SET_ASIDE:
            arrival.failure = self._starter.failure(operator) or SbonError("engine-failed", reason, where=operator)

    def components(self) -> Iterator[HostedComponent]:
        for operator, arrival in sorted(self._known.items()):
            yield HostedComponent(arrival.spec.query, operator, arrival.stored.hosted.acceptors)

    def describe(self, query: str) -> list[OperatorInfo]:
        """Return the followers of a query: what users see if the register names this node before it has the stream."""
        me = self._context.name
        return [
            starting_here(arrival.spec, me, f"waits for its stream from {arrival.stored.origin}", self._engine.stats(operator))
            for operator, arrival in sorted(self._known.items())
            if arrival.spec.query == query
        ]

    async def destroy(self, call: DestroyComponents) -> None:
        """Forget the followers among the components of a query that is over."""
        for operator in call.components:
            arrival = self._known.get(operator)
            if arrival is not None and arrival.spec.query == call.query:
                await self._forget(arrival, ArrivalEvent.GIVEN_UP)

    # -- following ----------------------------------------------------------------------------------------------------

    async def _prepare(self, call: PrepareOperator, caller: Caller) -> None:
        spec: OperatorSpec = decode_record(call.spec, OperatorSpec)
        tail: Tail = decode_record(call.tail, Tail)
        cut: Cut = decode_record(call.cut, Cut)
        check_tail(spec, tail)
        check_cut(spec, cut)
        hosted = HostedOperator(spec=spec, acceptors=acceptors_of(call.acceptors, spec.id))
        if spec.id in self._operators.backed:
            raise SbonError("keeps-backup", f"{self._context.name} keeps its backup", where=spec.id, hint="choose another node")
        if not self._has_begun(spec.id, call.attempt, caller):
            await self._host_check.may_move(spec, call.attempt, caller)
        if self._has_begun(spec.id, call.attempt, caller):
            return
        if (known := self._known.get(spec.id)) is not None:
            await self._replace(known, caller)
        stored = StoredArrival(attempt=call.attempt, origin=caller.node, hosted=hosted)
        arrival = self._known[spec.id] = Arrival(stored, self._context.clock.now())
        try:
            await self._operators.admit(hosted, caller, ARRIVAL, "arrival", stored)
        except BaseException:
            if self._known.get(spec.id) is arrival:
                del self._known[spec.id]
            raise
        self._tasks.start(_task(arrival), self._arrive(arrival, Copied(call.lineages, tail, call.batch, cut)))

    def _has_begun(self, operator: str, attempt: str, caller: Caller) -> bool:
        known = self._known.get(operator)
        return known is not None and (known.stored.attempt, known.stored.origin) == (attempt, caller.node)

    async def _replace(self, known: Arrival, caller: Caller) -> None:
        """Forget the follower of an earlier move, unless that may still be under way."""
        is_his = known.stored.origin == caller.node and not known.stored.is_ready
        event = ArrivalEvent.REPLACED if is_his else await self._seen(known)
        if event is None:
            message = f"it moves here from {known.stored.origin} already"
            raise SbonError("move-under-way", message, where=known.spec.id, hint="try again later")
        await self._forget(known, event)
        if known.spec.id in self._known:
            raise SbonError("move-under-way", "another move begins here", where=known.spec.id, hint="try again later")

    async def _arrive(self, arrival: Arrival, copied: Copied) -> None:
        try:
            await self._starter.start(arrival, copied)
        except SbonError as error:
            log.info("follower-failed", operator=arrival.spec.id, code=error.code, reason=str(error))
            arrival.failure = error
        except Exception as error:
            log.exception("follower-failed", operator=arrival.spec.id)
            arrival.failure = SbonError("internal", f"{type(error).__name__}: {error}", where=arrival.spec.id)
        check_cancelled()
        await self._watch(arrival)

    async def _watch(self, arrival: Arrival) -> None:
        """Forget the follower once nobody moves the operator here any more."""
        while (event := await self._seen(arrival)) is None:
            await self._context.clock.sleep(self._context.settings.retry_max_s)
        await self._forget(arrival, event)

    async def _seen(self, arrival: Arrival) -> ArrivalEvent | None:
        """Return why it is not needed any more."""
        stored, is_silent = arrival.stored, self._context.clock.now() - arrival.heard_s > self._silence_s
        if not stored.is_ready:
            return ArrivalEvent.SILENT if is_silent and arrival.takes(ArrivalEvent.SILENT) else None
        call = LocateComponent(query=arrival.spec.query, component=arrival.spec.id)
        try:
            host = await self._records.ask(arrival.spec.query, stored.hosted.acceptors, call, ComponentHost)
        except SbonError as error:
            return ArrivalEvent.NOT_NAMED if error.code in OVER else None
        return ArrivalEvent.NOT_NAMED if host.node != self._context.name and host.move != stored.attempt else None

    def _named(self, operator: str, attempt: str, caller: Caller) -> Arrival:
        """Return the follower of that attempt; raise its failure before it is ready, or ``move-unknown``."""
        arrival = self._known.get(operator)
        named = (attempt, caller.node)
        if arrival is None or arrival.state in arrival_states.ENDS or (arrival.stored.attempt, arrival.stored.origin) != named:
            raise SbonError("move-unknown", f"{self._context.name} follows it in no such move", where=operator)
        arrival.heard_s = self._context.clock.now()
        failure = arrival.failure or self._starter.failure(operator)
        if failure is not None and not arrival.stored.is_ready:
            raise failure
        return arrival

    async def _follow(self, call: FollowOperator, caller: Caller) -> OperatorFollowed:
        arrival = self._named(call.operator, call.attempt, caller)
        progress = arrival.progress
        if arrival.target is None or arrival.state == arrival_states.COPYING:
            has_all = 0 < progress.total_bytes <= progress.copied_bytes
            step: FollowStep = move_states.STARTING if has_all else move_states.COPYING
            return OperatorFollowed(step=step, progress=progress)
        if call.cut is None:
            return OperatorFollowed(step=move_states.FOLLOWING, progress=progress)
        target = arrival.target
        cut: Cut = decode_record(call.cut, Cut)
        check_cut(arrival.spec, cut, (*call.batches, *([call.before] if call.before else [])))
        position, level = Position(cut, call.batches, call.before), False
        if call.halts:
            target.repeat(position)
        else:
            level = target.reach(position)
        progress = msgspec.structs.replace(progress, frames_behind=target.frames_behind())
        return OperatorFollowed(step=move_states.FOLLOWING, progress=progress, level=level)

    async def _settle(self, call: SettleOperator, caller: Caller) -> None:
        arrival = self._named(call.operator, call.attempt, caller)
        if arrival.target is None or not arrival.takes(ArrivalEvent.HALTED):
            raise SbonError("move-unknown", "it does not follow", where=call.operator)
        frozen = Frozen(cut=decode_record(call.cut, Cut), stream=decode_record(call.stream, StreamState))
        check_cut(arrival.spec, frozen.cut)
        check_stream(arrival.spec, frozen.stream, max_subscribers=self._context.stream_settings.max_subscribers)
        arrival.receive(ArrivalEvent.HALTED)
        try:
            await race(arrival.target.settle(frozen), self._starter.failed(call.operator))
            checkpoint = BatchLog(checkpoint_of(self._context, call.operator), fsync=self._context.stream_settings.fsync)
            await self._context.executor(checkpoint.sync)
            _check_wanted(arrival)
            ready = msgspec.structs.replace(arrival.stored, is_ready=True)
            self._context.store.put("arrival", call.operator, ready, sync=True)
            arrival.stored, arrival.frozen = ready, frozen
            arrival.receive(ArrivalEvent.SETTLED)
        finally:
            arrival.heard_s = self._context.clock.now()
            if arrival.takes(ArrivalEvent.NOT_SETTLED):
                arrival.receive(ArrivalEvent.NOT_SETTLED)

    # -- going on here ------------------------------------------------------------------------------------------------

    async def _activate(self, call: ActivateOperator, caller: Caller) -> None:
        known = self._operators.get(call.operator)
        if known is not None and known.spec.epoch >= call.epoch and call.operator not in self._known:
            return
        arrival = self._named(call.operator, call.attempt, caller)
        stream: StreamState = decode_record(call.stream, StreamState)
        check_stream(arrival.spec, stream, max_subscribers=self._context.stream_settings.max_subscribers)
        if call.operator not in self._context.outbox.streams():
            frames: list[Frame] = [decode_record(frame, Frame) for frame in call.frames]
            own_ms = partial(self._context.membership.clocks.own_ms, name=caller.node)
            dated = [msgspec.structs.replace(frame, born_ms=own_ms(frame.born_ms)) for frame in frames]
            self._context.outbox.handover.take(call.operator, stream, dated)
        if call.more:
            return
        async with arrival.activation:
            if arrival.state not in arrival_states.ENDS:
                self._operators.ports.measures.take(call.operator, call.measures)
                if not arrival.takes(ArrivalEvent.ACTIVATED):
                    raise SbonError("not-settled", "it has not come to rest here", where=call.operator)
                await self._drive(arrival, stream, call.epoch)
                await self._tasks.stop(_task(arrival))

    async def _drive(self, arrival: Arrival, stream: StreamState, epoch: int) -> None:
        """Host the operator from now on, if its register says so: carry out instructions until there are none."""
        outcome: ArrivalEvent | None = ArrivalEvent.ACTIVATED
        while outcome is not None:
            instructions, outcome = arrival.receive(outcome), None
            for instruction in instructions:
                outcome = await self._carry_out(instruction, arrival, stream, epoch)
                _check_wanted(arrival)

    async def _carry_out(self, instruction: StrEnum, arrival: Arrival, stream: StreamState, epoch: int) -> ArrivalEvent | None:
        operator = arrival.spec.id
        match instruction:
            case ArrivalInstruction.READ_REGISTER:
                register = arrival.register = await self._registers.read(arrival.spec.query, operator)
                me = self._context.membership.expected(self._context.name)
                if (register.host, register.instance, register.epoch) != (me.node, me.instance, epoch):
                    raise SbonError("not-owner", f"{operator} belongs to {register.host}", where=operator)
                failure = arrival.failure or self._starter.failure(operator)
                runs = arrival.target is not None and failure is None
                return ArrivalEvent.NAMED if runs else ArrivalEvent.NAMED_STOPPED
            case ArrivalInstruction.GO_LIVE:
                await present(arrival.target).go_live(present(arrival.frozen), stream, epoch)
                return ArrivalEvent.ADOPTED
            case ArrivalInstruction.RECOVER:
                await self._engine.destroy(operator)
                await self._operators.ports.disconnect(operator)
                arrival.target = arrival.failure = None
                _check_wanted(arrival)
                self._adopt(operator, stream, epoch)
                return ArrivalEvent.ADOPTED
            case ArrivalInstruction.HOST:
                spec = msgspec.structs.replace(self._operators.ports.present(arrival.spec), epoch=epoch)
                hosted, runs = msgspec.structs.replace(arrival.stored.hosted, spec=spec), arrival.target is not None
                await self._operators.adopt(hosted, present(arrival.register), runs=runs)
                self._context.store.delete("arrival", operator)
                self._known.pop(operator, None)
                log.info("operator-moved", operator=operator, origin=arrival.stored.origin, epoch=epoch, last=stream.tail.last)
                return ArrivalEvent.HOSTED
        return None

    def _adopt(self, operator: str, stream: StreamState, epoch: int) -> None:
        """Adopt the stream as of the checkpoint, which has come to rest before."""
        if operator in self._context.outbox.streams():
            return
        checkpoint = BatchLog(checkpoint_of(self._context, operator))
        commits = checkpoint.commits()
        if not commits:
            hint = "restore the node's data directory, or stop the query"
            raise SbonError("checkpoint-mismatch", "the copied checkpoint has no batch any more", where=operator, hint=hint)
        batch, adopt = commits[-1], self._context.outbox.handover.adopt
        adopt(operator, stream, batch=batch, offsets=checkpoint.read_offsets(batch), epoch=epoch)

    # -- giving up ----------------------------------------------------------------------------------------------------

    async def _abandon(self, call: AbandonOperator, caller: Caller) -> None:
        """Forget what there is of the follower, for the operator's host alone."""
        has_begun, outbox = self._has_begun(call.operator, call.attempt, caller), self._context.outbox
        if not has_begun and not subscriptions_of(outbox, call.operator, call.attempt):
            return
        await self._host_check.is_host(call.operator, caller)
        for stream, subscriber in subscriptions_of(outbox, call.operator, call.attempt):
            outbox.unsubscribe(stream, subscriber)
        if self._has_begun(call.operator, call.attempt, caller):
            await self._forget(self._known[call.operator], ArrivalEvent.GIVEN_UP)

    async def _forget(self, arrival: Arrival, event: ArrivalEvent) -> None:
        """Delete the follower with all it has here; that goes on if the caller leaves."""
        if self._known.get(arrival.spec.id) is arrival and ArrivalInstruction.DELETE in arrival.receive(event):
            self._tasks.start(f"forget {_task(arrival)}", self._delete(arrival))
            await arrival.ended.wait()

    async def _delete(self, arrival: Arrival) -> None:
        waits = logged("follower-not-deleted", operator=arrival.spec.id)
        try:
            await until_passed(self._context, partial(self._try_to_delete, arrival), waits)
        finally:
            arrival.ended.set()

    async def _try_to_delete(self, arrival: Arrival) -> None:
        context, operator = self._context, arrival.spec.id
        if arrival.has_stream and operator in context.outbox.streams():
            context.outbox.drop_stream(operator)
        context.outbox.handover.discard(operator)
        await self._tasks.stop(_task(arrival))
        await self._starter.stop(operator)
        self._operators.dismiss(arrival.stored.hosted)
        await self._starter.delete(operator)
        context.store.delete("arrival", operator)
        self._known.pop(operator, None)
        arrival.receive(ArrivalEvent.DELETED)


def _check_wanted(arrival: Arrival) -> None:
    if arrival.state in arrival_states.ENDS:
        raise SbonError("move-unknown", "the move was given up meanwhile", where=arrival.spec.id)


def _task(arrival: Arrival) -> str:
    return f"arrive {arrival.spec.id} {arrival.stored.attempt}"


def subscriptions_of(outbox: Outbox, operator: str, attempt: str) -> list[tuple[str, str]]:
    """Return streams of this node and names under which the operator's follower subscribes to them."""
    return [
        (stream, subscriber)
        for stream in outbox.streams()
        for subscriber in outbox.link_counts(stream).links
        if component_of(subscriber) == operator and attempt_of(subscriber) == attempt
    ]


class Moves:
    """The moves in which this node takes part."""

    def __init__(
        self,
        engine_settings: EngineSettings,
        settings: MigrationSettings,
        context: Context,
        sender: CopySender,
        operators: OperatorHost,
        engine: MovingEngine,
        owners: OperatorRegisters,
        records: RecordAcceptors,
        arriving: dict[str, Arrival],
    ) -> None:
        context.server.on_copy(sender.serve)
        receiver = self.receiver = CopyReceiver(
            context.peers,
            clock=context.clock,
            executor=context.executor,
            settings=settings,
            limits=CopyLimits(engine_settings.copy_max_files, engine_settings.copy_max_bytes),
            rng=context.rng,
        )
        self._copies = context.data_dir / "copies"
        self.departures = Departures(context, operators, engine, sender, owners, engine_settings, settings)
        self.host_check = HostCheck(context, owners, settings)
        starter = self.starter = FollowerStarter(context, operators.ports, engine, receiver, engine_settings, settings)
        self.arrivals = Arrivals(context, operators, engine, starter, owners, records, settings, self.host_check, arriving)

    def start(self) -> None:
        """Go on with moves of an earlier run, as far as they may be committed; its copies are of no use any more."""
        shutil.rmtree(self._copies, ignore_errors=True)
        self.arrivals.start()

    async def close(self) -> None:
        await self.departures.close()
        await self.arrivals.close()
