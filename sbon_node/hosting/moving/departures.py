"""Moves of operators away from this node: begun, driven, watched, and resumed after a restart.

:mod:`sbon_protocol.api.states.move_states` decides: its table names the instructions that follow an event. Here they are carried
out.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import Literal, TypeVar

import msgspec
import structlog

from sbon_node.base.events import OperatorChanged
from sbon_node.base.tasks import Tasks
from sbon_node.context import Context, backoff_of, logged, until_passed
from sbon_node.engine.copies.sender import CopySender
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.engine.interface import MovingEngine
from sbon_node.engine.settings import EngineSettings
from sbon_node.hosting.components import HostedOperator, copies_of, delete_copies
from sbon_node.hosting.moving.ends import Frozen, Origin, Position
from sbon_node.hosting.operators.host import OperatorHost, forget_departure
from sbon_node.model.records import MoveLease
from sbon_node.net.peers import Caller
from sbon_node.overlay.presence import AS_FOLLOWER
from sbon_node.ownership.acceptors import OVER, QUERY_OVER
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.streams.outbox.signals import Signal
from sbon_protocol.api.moves import MoveProgress
from sbon_protocol.api.queries import MoveInfo
from sbon_protocol.api.query_ids import name_of
from sbon_protocol.api.states import move_states
from sbon_protocol.api.states.move_states import LIFECYCLE, MoveEvent, MoveInstruction, MoveState
from sbon_protocol.base import Call
from sbon_protocol.calls import AskNode, NodeAnswer
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import BrokenInvariantError, SbonError
from sbon_protocol.moving import (
    AbandonOperator,
    ActivateOperator,
    CancelMove,
    FollowOperator,
    MoveHow,
    MoveOperator,
    OperatorFollowed,
    OperatorMove,
    PrepareOperator,
    SettleOperator,
)

T = TypeVar("T")

log = structlog.get_logger()

CANCELLED = "move-cancelled"
"""Code of a move that a user has given up."""
PIECE_BYTES, PIECE_FRAMES = 2**20, 1024
"""Most bytes and frames that one call hands over, but at least one frame. No settings, since the call is one frame of the wire,
whose size no node can change."""


class StoredDeparture(msgspec.Struct, frozen=True, kw_only=True):
    """A move that may be committed, as its origin stores it: after a restart its register tells."""

    lease: MoveLease


class Departure:
    """One move, while it is under way and as long as its end is remembered; ``resumed`` after a restart, when it is committed."""

    def __init__(
        self, hosted: HostedOperator, lease: MoveLease, how: MoveHow = "follow", *, why: str = "", resumed: bool = False
    ) -> None:
        self.hosted, self.lease, self.how, self.why = hosted, lease, how, why
        stops = how == move_states.STOP
        first: MoveState = move_states.SWITCHING if resumed else move_states.STOPPING if stops else move_states.COPYING
        self.state = OperatorMove(step=first, attempt=lease.attempt, progress=MoveProgress())
        self.changed = Signal()
        self.origin: Origin | None = None
        """The operator here; None until the move is registered."""
        self.halted: Position | None = None
        self.frozen: Frozen | None = None
        self.copied_s = self.frozen_s = 0.0
        """When the target was seen to follow, and when the operator was halted."""
        self.failure: SbonError | None = None
        """Why it was given up; ``where`` is the target for failures of the target's."""
        self._unwanted: SbonError | None = None

    @property
    def is_over(self) -> bool:
        return self.state.step in move_states.OVER

    @property
    def progress(self) -> MoveProgress:
        return decode_record(self.state.progress, MoveProgress)

    def info(self) -> MoveInfo:
        """Return the move as users see it."""
        return MoveInfo(target=self.lease.target, step=self.state.step, progress=self.progress)

    def withdraw(self, why: SbonError) -> None:
        """Let the move be given up, unless its commit has begun."""
        self._unwanted = why

    def note(self, progress: object) -> None:
        """Remember the progress that the target has reported, for the next :meth:`receive`."""
        self.state = msgspec.structs.replace(self.state, progress=decode_record(progress, MoveProgress))

    def receive(self, event: MoveEvent, now_s: float) -> tuple[StrEnum, ...]:
        """Go to the step that the event chooses, or a withdrawal in its place; return the next instructions.

        :attr:`failure` has the reason for an event that gives the move up.
        """
        if self._unwanted is not None and self.failure is None and self.takes(MoveEvent.CANCELLED):
            event, self.failure = MoveEvent.CANCELLED, self._unwanted
        row = LIFECYCLE.on(self.state.step, event, self.hosted.spec.id, self.how)
        state = msgspec.structs.replace(self.state, step=row.after)
        if self.failure is not None:
            reason = str(self.failure).removeprefix(f"{self.hosted.spec.id}: ")[:500]
            state = msgspec.structs.replace(state, code=self.failure.code, reason=reason)
        if row.after in move_states.OVER and self.frozen_s:
            state = msgspec.structs.replace(state, pause_ms=round((now_s - self.frozen_s) * 1000))
        self.state = state
        self.changed.notify()
        return row.instructions

    def takes(self, event: MoveEvent) -> bool:
        """Return whether the event may happen now."""
        return LIFECYCLE.chosen(self.state.step, event, self.how) is not None


def present(one: T | None) -> T:
    """Return what an earlier instruction of the move has left."""
    if one is None:
        raise BrokenInvariantError("the instructions of a move are out of order")
    return one


@contextmanager
def of_target(departure: Departure) -> Iterator[None]:
    """Let errors of the target's name it."""
    try:
        yield
    except SbonError as error:
        raise SbonError(error.code, error.message, where=departure.lease.target, hint=error.hint) from error


class MoveDriver:
    """Carries out the instructions of moves. ``is_newest``: whether no later move of a departure's operator is known."""

    def __init__(
        self,
        context: Context,
        operators: OperatorHost,
        engine: MovingEngine,
        sender: CopySender,
        owners: OperatorRegisters,
        settings: EngineSettings,
        migration: MigrationSettings,
        is_newest: Callable[[Departure], bool],
    ) -> None:
        self._context, self._operators, self._engine, self._sender = context, operators, engine, sender
        self._owners, self._settings, self._migration, self._is_newest = owners, settings, migration, is_newest
        self._tasks = Tasks()
        self._carry_out: dict[StrEnum, Callable[[Departure], Awaitable[MoveEvent | None]]] = {
            MoveInstruction.REGISTER: self._register,
            MoveInstruction.ASK_TARGET: self._ask_for_room,
            MoveInstruction.HALT: self._halt,
            MoveInstruction.REST: self._rest,
            MoveInstruction.PREPARE_TARGET: self._prepare,
            MoveInstruction.ASK_PROGRESS: self._ask_progress,
            MoveInstruction.WAIT_FOR_COPY: lambda _: self._wait(self._migration.copy_poll_s),
            MoveInstruction.FORGET_COPY: self._forget_copy,
            MoveInstruction.PURSUE: self._pursue,
            MoveInstruction.WAIT_FOR_TARGET: lambda _: self._wait(self._migration.follow_poll_s),
            MoveInstruction.REPEAT_LAST: self._repeat_last,
            MoveInstruction.STORE: self._store,
            MoveInstruction.SETTLE_TARGET: self._settle,
            MoveInstruction.COMMIT: self._commit,
            MoveInstruction.READ_REGISTER: partial(self._commit, again=True),
            MoveInstruction.ANNOUNCE: self._announce,
            MoveInstruction.DEPART: self._depart,
            MoveInstruction.HAND_OVER: self._hand_over,
            MoveInstruction.LEAVE: self._leave,
            MoveInstruction.THAW: self._thaw,
            MoveInstruction.ABANDON: self._abandon,
        }

    async def close(self) -> None:
        await self._tasks.close()

    async def drive(self, departure: Departure, event: MoveEvent) -> None:
        """Carry out the instructions that follow the event, and those that follow their outcome, until there are none."""
        outcome: MoveEvent | None = event
        defect: Exception | None = None
        while outcome is not None:
            instructions, outcome = departure.receive(outcome, self._context.clock.now()), None
            try:
                for instruction in instructions:
                    outcome = await self._carry_out[instruction](departure)
            except Exception as error:
                if not departure.takes(MoveEvent.FAILED):
                    raise
                departure.failure, outcome = error if isinstance(error, SbonError) else None, MoveEvent.FAILED
                if departure.failure is None:
                    reason, defect = f"{type(error).__name__}: {error}", error
                    departure.failure = SbonError("internal", reason, where=departure.hosted.spec.id)
        if defect is not None:
            raise defect

    # -- until the target follows -------------------------------------------------------------------------------------

    async def _register(self, departure: Departure) -> Literal[MoveEvent.REGISTERED]:
        context, spec, lease = self._context, departure.hosted.spec, departure.lease
        self._publish(departure, "moving")
        port = self._operators.ports.open.get(spec.id)
        if port is None:  # It has ended since the move was asked for.
            raise SbonError("operator-stopped", "it does not run here any more", where=spec.id)
        departure.origin = Origin(
            spec.id,
            engine=self._engine,
            port=port,
            outbox=context.outbox,
            copies=copies_of(context, lease.attempt),
            executor=context.executor,
            settings=self._settings,
            migration=self._migration,
        )
        await self._owners.begin_move(spec.query, spec.id, spec.epoch, lease)
        return MoveEvent.REGISTERED

    async def _ask_for_room(self, departure: Departure) -> Literal[MoveEvent.ACCEPTED]:
        target, needs = departure.lease.target, departure.hosted.spec.needs
        call = AskNode(**msgspec.structs.asdict(needs), starts_engine=True)
        with of_target(departure):
            answer = await self._context.ask(target, call, NodeAnswer, timeout_s=self._context.settings.start_timeout_s)
        if not answer.accepted:
            raise SbonError("no-capacity", answer.reason, where=target, hint="choose another node")
        return MoveEvent.ACCEPTED

    async def _prepare(self, departure: Departure) -> Literal[MoveEvent.PREPARED]:
        context, spec, lease, ports = self._context, departure.hosted.spec, departure.lease, self._operators.ports
        prepared = await present(departure.origin).prepare()
        receiver = context.membership.expected(lease.target)
        self._sender.offer(lease.attempt, spec.id, receiver, prepared.folder, prepared.manifest.files)
        await self._call_target(
            departure,
            PrepareOperator(
                attempt=lease.attempt,
                spec=ports.present(spec).moved_from(context.name, context.clock.wall_ms(), departure.why),
                acceptors=departure.hosted.acceptors,
                tail=prepared.tail,
                batch=prepared.manifest.batch,
                cut=prepared.manifest.cut,
                lineages={one.stream: ports.lineages.of(spec.id, one.stream) for one in spec.inputs},
            ),
        )
        return MoveEvent.PREPARED

    async def _ask_progress(self, departure: Departure) -> Literal[MoveEvent.PART_COPIED, MoveEvent.COPIED, MoveEvent.STARTED]:
        followed = await self._ask_follower(departure)
        departure.note(followed.progress)
        departure.copied_s = self._context.clock.now()
        if followed.step == move_states.FOLLOWING:
            return MoveEvent.STARTED
        return MoveEvent.COPIED if followed.step == move_states.STARTING else MoveEvent.PART_COPIED

    async def _wait(self, pause_s: float) -> Literal[MoveEvent.WAITED]:
        await self._context.clock.sleep(pause_s)
        return MoveEvent.WAITED

    async def _forget_copy(self, departure: Departure) -> None:
        """Let the inputs go, and delete the copy, however long that takes."""
        attempt = departure.lease.attempt
        self._sender.withdraw(attempt)
        if departure.origin is not None:
            departure.origin.unpin()
        self._tasks.start(f"forget copy {attempt}", delete_copies(self._context, attempt))

    # -- until both rest at the same position -------------------------------------------------------------------------

    async def _pursue(self, departure: Departure) -> Literal[MoveEvent.BEHIND, MoveEvent.LEVEL]:
        followed = await self._ask_follower(departure, present(departure.origin).position())
        departure.note(followed.progress)
        if followed.level:
            return MoveEvent.LEVEL
        if self._context.clock.now() - departure.copied_s > (limit_s := self._migration.follow_s):
            hint = "choose a node with more free cores, or raise migration.follow_s"
            reason = f"it is {departure.progress.frames_behind} frames behind after {limit_s:g} s"
            raise SbonError("not-level", reason, where=departure.lease.target, hint=hint)
        return MoveEvent.BEHIND

    async def _halt(self, departure: Departure) -> None:
        departure.frozen_s = self._context.clock.now()
        self._context.failpoint("freeze")
        departure.halted = present(departure.origin).halt()

    async def _repeat_last(self, departure: Departure) -> None:
        await self._ask_follower(departure, departure.halted, halts=True)

    async def _rest(self, departure: Departure) -> Literal[MoveEvent.STOPPED]:
        departure.frozen = await present(departure.origin).freeze()
        self._context.failpoint("freeze")
        return MoveEvent.STOPPED

    async def _store(self, departure: Departure) -> None:
        self._context.store.put("departure", departure.hosted.spec.id, StoredDeparture(lease=departure.lease), sync=True)

    async def _settle(self, departure: Departure) -> Literal[MoveEvent.SETTLED]:
        spec, lease, frozen = departure.hosted.spec, departure.lease, present(departure.frozen)
        call = SettleOperator(operator=spec.id, attempt=lease.attempt, cut=frozen.cut, stream=frozen.stream)
        await self._call_target(departure, call, timeout_s=self._settings.settle_s)
        if self._context.membership.expected(lease.target).instance != lease.instance:
            raise SbonError("wrong-node", f"{lease.target} has lost its data since the move began", where=lease.target)
        return MoveEvent.SETTLED

    # -- the register decides -----------------------------------------------------------------------------------------

    async def _commit(
        self, departure: Departure, *, again: bool = False
    ) -> Literal[MoveEvent.COMMITTED, MoveEvent.SUPERSEDED, MoveEvent.UNANSWERED]:
        """Change the register; ``again``, after an unknown outcome, end the move there unless it has changed."""
        spec, lease, owners = departure.hosted.spec, departure.lease, self._owners
        try:
            if again:
                await self._context.clock.sleep(self._context.settings.retry_s)
                is_committed = not await owners.end_move(spec.query, spec.id, lease)
            else:
                is_committed = await owners.commit_move(spec.query, spec.id, spec.epoch, lease)
        except SbonError as error:
            (log.info if again else log.warning)("move-uncertain", operator=spec.id, code=error.code, reason=str(error))
            return MoveEvent.UNANSWERED
        if is_committed:
            return MoveEvent.COMMITTED
        reason = "its register was changed, or could not be changed in time"
        departure.failure = SbonError("move-superseded", reason, where=spec.id, hint="try again")
        return MoveEvent.SUPERSEDED

    # -- after the commit ---------------------------------------------------------------------------------------------

    async def _announce(self, departure: Departure) -> None:
        spec, last = departure.hosted.spec, present(departure.frozen).stream.tail.last
        log.info("operator-moves", operator=spec.id, target=departure.lease.target, epoch=spec.epoch + 1, last=last)
        self._publish(departure, move_states.MOVED)

    async def _depart(self, departure: Departure) -> None:
        self._operators.depart(departure.hosted.spec.id)

    async def _hand_over(self, departure: Departure) -> Literal[MoveEvent.HANDED_OVER]:
        spec, backoff = departure.hosted.spec, backoff_of(self._context.settings)
        while spec.id in self._context.outbox.streams():  # It is dropped once the target has it.
            try:
                await self._activate(departure)
                break
            except SbonError as error:
                log.info("handover-waits", operator=spec.id, code=error.code, reason=str(error))
            await self._context.clock.sleep(backoff.next_s())
        return MoveEvent.HANDED_OVER

    async def _activate(self, departure: Departure) -> None:
        """Send the stream in pieces; frames that all readers acknowledge meanwhile are left out of the next ones.

        After the last piece the target comes to rest again, which takes up to ``settle_s`` seconds if its engine has died
        meanwhile. The operator's measures go with that piece.
        """
        spec, lease, outbox = departure.hosted.spec, departure.lease, self._context.outbox
        after, more = 0, True
        while more:
            stream = outbox.handover.export(spec.id, cut_off=True)
            after = max(after, stream.trimmed)
            frames = outbox.read(spec.id, after, PIECE_BYTES)[:PIECE_FRAMES]
            after = frames[-1].number if frames else stream.tail.last
            more = after < stream.tail.last
            measures = None if more else self._operators.ports.measures.sums(spec.id)
            call = ActivateOperator(spec.id, lease.attempt, spec.epoch + 1, stream, tuple(frames), more, measures)
            await self._call_target(departure, call, timeout_s=0.0 if more else self._settings.settle_s)

    async def _leave(self, departure: Departure) -> None:
        operator = departure.hosted.spec.id

        async def forget() -> None:
            # First, so that it does not outlast the operator: after a crash the register says that this node is not its host.
            self._context.store.delete("departure", operator)
            await self._operators.leave(operator)

        await until_passed(self._context, forget, logged("departed-not-deleted", operator=operator))

    # -- given up -----------------------------------------------------------------------------------------------------

    async def _thaw(self, departure: Departure) -> None:
        if departure.origin is not None:
            departure.origin.thaw()

    async def _abandon(self, departure: Departure) -> None:
        """Delete the move from the register, too, where it holds up others of the query, unless the next move replaces it."""
        context, operators = self._context, self._operators
        spec, lease, state, backoff = departure.hosted.spec, departure.lease, departure.state, backoff_of(context.settings)
        log.info("move-given-up", operator=spec.id, target=lease.target, code=state.code, reason=str(departure.failure))
        self._publish(departure, "move-given-up", state.reason)
        nodes = dict.fromkeys((lease.target, *(one.node for one in operators.ports.present(spec).inputs)))
        for node in nodes:
            self._tasks.start(f"abandon {lease.attempt} {node}", self._tell_abandoned(departure, node))
        while operators.get(spec.id) is not None and self._is_newest(departure):
            try:
                context.store.delete("departure", spec.id)
                await self._owners.end_move(spec.query, spec.id, lease)
                return
            except SbonError as error:
                log.info("move-not-ended", operator=spec.id, code=error.code, reason=str(error))
                if error.code in OVER:
                    return
            await context.clock.sleep(backoff.next_s())

    async def _tell_abandoned(self, departure: Departure, node: str) -> None:
        """Tell the target, or the host of an input, that the attempt is over, until it has answered, or for so many tries.

        The target forgets the follower then, and the hosts of the inputs what it has subscribed to. Both would do so by
        themselves, a while later: a follower looks at its register, and its subscriptions end with its connections.
        """
        context, tries, backoff = self._context, self._migration.abandon_tries, backoff_of(self._context.settings)
        call = AbandonOperator(operator=departure.hosted.spec.id, attempt=departure.lease.attempt)
        instance = context.membership.expected(node).instance
        for tried in range(tries):
            if tried:
                await context.clock.sleep(backoff.next_s())
            if self._operators.get(call.operator) is None or context.presence.gone(AS_FOLLOWER, node, instance):
                return
            try:
                await context.call(node, call)
                return
            except SbonError as error:
                log.info("abandon-not-sent", node=node, operator=call.operator, reason=str(error))
        log.warning("abandon-given-up", node=node, operator=call.operator, tries=tries)

    # -- shared by instructions ---------------------------------------------------------------------------------------

    async def _ask_follower(
        self, departure: Departure, origin: Position | None = None, *, halts: bool = False
    ) -> OperatorFollowed:
        operator, (cut, batches, before) = departure.hosted.spec.id, origin or (None, (), ())
        call = FollowOperator(
            operator=operator, attempt=departure.lease.attempt, cut=cut, batches=batches, halts=halts, before=before
        )
        with of_target(departure):
            return await self._context.ask(departure.lease.target, call, OperatorFollowed)

    async def _call_target(self, departure: Departure, call: Call, *, timeout_s: float = 0.0) -> None:
        with of_target(departure):
            limit_s = timeout_s + self._context.settings.call_timeout_s
            await self._context.call(departure.lease.target, call, timeout_s=limit_s)

    def _publish(self, departure: Departure, change: str, reason: str = "") -> None:
        """Publish ``moving``, ``moved`` or ``move-given-up``."""
        spec, target, me = departure.hosted.spec, departure.lease.target, self._context.name
        host, was = (target, me) if change == move_states.MOVED else (me, "")
        event = partial(OperatorChanged, query=name_of(spec.query), operator=spec.id, change=change, host=host, was=was)
        self._context.bus.publish("placement", partial(event, target=target, reason=reason))


class Departures:
    """The moves that this node drives."""

    def __init__(
        self,
        context: Context,
        operators: OperatorHost,
        engine: MovingEngine,
        sender: CopySender,
        owners: OperatorRegisters,
        settings: EngineSettings,
        migration: MigrationSettings,
    ) -> None:
        self._context, self._operators, self._settings = context, operators, settings
        self._remembered = migration.remembered
        self._known: dict[str, Departure] = {}
        """By attempt."""
        self._driver = MoveDriver(context, operators, engine, sender, owners, settings, migration, self._is_newest)
        self._tasks = Tasks()
        context.server.handle(MoveOperator, self._handle)
        context.server.handle(CancelMove, self._handle_cancel)
        operators.on_lost(self._resume)

    async def close(self) -> None:
        await self._tasks.close()
        await self._driver.close()

    async def _handle(self, call: MoveOperator, caller: Caller) -> OperatorMove:
        return await self.move(call, call.why or "a user moved it")

    async def move(self, call: MoveOperator, why: str = "") -> OperatorMove:
        """Begin the move, or return how far it is: after ``wait_s`` seconds, or at once when it is over. ``why`` is for users.

        Raises :class:`SbonError` for a move that cannot begin now; nothing has changed then.
        """
        departure = self._known.get(call.attempt)
        if departure is None:
            if not call.start:
                raise SbonError("move-unknown", "no such move is known here", where=call.operator, hint="see where it runs now")
            departure = self._begin(call, why)
        await self._until_over(departure, min(call.wait_s, self._context.settings.call_timeout_s))
        return departure.state

    async def _until_over(self, departure: Departure, limit_s: float) -> None:
        """Wait until the move is over, or for so long."""
        try:
            async with self._context.clock.timeout(limit_s):
                while not departure.is_over:
                    await departure.changed.wait()
        except TimeoutError:
            pass

    def _begin(self, call: MoveOperator, why: str) -> Departure:
        context, operator = self._context, call.operator
        hosted = self._operators.get(operator)
        if hosted is None or hosted.spec.query != call.query:
            raise SbonError("operator-unknown", f"{context.name} does not host it", where=operator)
        if call.target == context.name:
            raise SbonError("already-there", f"it runs at {context.name} already", where=operator)
        if away := context.presence.away(call.target):
            raise SbonError("node-away", f"{call.target} {away}", where=call.target, hint="choose another node")
        if self._under_way(operator) is not None:
            raise SbonError("move-under-way", "another move of it is under way", where=operator, hint="try again later")
        self._operators.check_running(operator)
        instance = context.membership.expected(call.target).instance
        departure = Departure(hosted, MoveLease(attempt=call.attempt, target=call.target, instance=instance), call.how, why=why)
        self._known[call.attempt] = departure
        for attempt in [attempt for attempt, one in self._known.items() if one.is_over][: -self._remembered]:
            del self._known[attempt]
        self._tasks.start(_task(departure), self._driver.drive(departure, MoveEvent.BEGUN))
        return departure

    # -- known moves --------------------------------------------------------------------------------------------------

    def states(self) -> dict[str, OperatorMove]:
        """Return how far each known move is, by attempt, the oldest first."""
        return {attempt: departure.state for attempt, departure in self._known.items()}

    def under_way(self, operator: str) -> MoveInfo | None:
        """Return the move of an operator of this node, for users; None while there is none."""
        departure = self._under_way(operator)
        return None if departure is None else departure.info()

    def failure(self, attempt: str) -> SbonError | None:
        """Return why a move was given up, with the target's name as ``where`` if the target has failed; else None."""
        departure = self._known.get(attempt)
        return None if departure is None else departure.failure

    def newest(self, operator: str) -> Departure | None:
        """Return the newest move of an operator, under way or remembered."""
        return next((one for one in reversed(self._known.values()) if one.hosted.spec.id == operator), None)

    def _under_way(self, operator: str) -> Departure | None:
        moves = (one for one in self._known.values() if one.hosted.spec.id == operator and not one.is_over)
        return next(moves, None)

    def _is_newest(self, departure: Departure) -> bool:
        """Return whether no later move of the operator is known."""
        return self.newest(departure.hosted.spec.id) in (departure, None)

    # -- moves that nobody wants any more -----------------------------------------------------------------------------

    async def _handle_cancel(self, call: CancelMove, caller: Caller) -> OperatorMove:
        """Let a move be given up, and return how far it is: after ``wait_s`` seconds, or at once when it is over."""
        departure = self._known.get(call.attempt) if call.attempt else self._under_way(call.operator)
        if departure is None or (departure.hosted.spec.query, departure.hosted.spec.id) != (call.query, call.operator):
            raise SbonError("move-unknown", "no move of it is under way", where=call.operator, hint="see sbon query show")
        if not (departure.is_over or departure.takes(MoveEvent.CANCELLED)):
            reason = f"its move to {departure.lease.target} is being committed: it is too late to cancel it"
            raise SbonError("move-committed", reason, where=call.operator, hint="move it back when it runs there")
        departure.withdraw(SbonError(CANCELLED, "a user has cancelled the move", where=call.operator))
        await self._until_over(departure, min(call.wait_s, self._context.settings.call_timeout_s))
        return departure.state

    async def withdraw(self, operator: str, why: SbonError) -> OperatorMove | None:
        """Give up the move of an operator that goes on here, unless it may be committed; return its end.

        If it does not end in time, return how far it is; None if there is no move.
        """
        departure = self._under_way(operator)
        if departure is None:
            return None
        departure.withdraw(why)
        await self._until_over(departure, 2 * (self._settings.settle_s + self._context.settings.call_timeout_s))
        if not departure.is_over:
            log.warning("move-not-withdrawn", operator=operator, step=departure.state.step)
        return departure.state

    async def end_with_query(self, query: str, operators: Iterable[str]) -> None:
        """Stop the moves of operators that end here with their query; leave those of other queries alone."""
        named = tuple(operators)
        ending = [one for one in self._known.values() if one.hosted.spec.query == query and one.hosted.spec.id in named]
        for departure in ending:
            await self._tasks.stop(_task(departure))
            if not departure.is_over:
                departure.failure = SbonError(QUERY_OVER, "its query is over")
                await self._driver.drive(departure, MoveEvent.QUERY_ENDED)
        hosted = [one for one in map(self._operators.get, named) if one is not None and one.spec.query == query]
        for operator in dict.fromkeys([*(one.hosted.spec.id for one in ending), *(one.spec.id for one in hosted)]):
            forget_departure(self._context, operator)

    # -- after a restart ----------------------------------------------------------------------------------------------

    def _resume(self, hosted: HostedOperator) -> bool:
        """Hand over an operator that this node has lost to the target of a stored move; return False if there is none."""
        stored = self._context.store.get("departure", hosted.spec.id, StoredDeparture)
        if stored is None:
            return False
        departure = self._known[stored.lease.attempt] = Departure(hosted, stored.lease, resumed=True)
        self._tasks.start(_task(departure), self._driver.drive(departure, MoveEvent.RESUMED))
        return True


def _task(departure: Departure) -> str:
    return f"move {departure.hosted.spec.id} {departure.lease.attempt}"
