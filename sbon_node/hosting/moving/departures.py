"""Moves of operators away from this node: begun, driven, watched, and resumed after a restart.

Until the operator's register names the target, any failure gives the move up and the operator goes on here. Only this node asks
for that change. So it may let a frozen operator go on at any time before it has asked, and after that once it has read that the
change has not happened, or has made it impossible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec
import structlog

from sbon_node.base.events import OperatorChanged
from sbon_node.base.tasks import Tasks
from sbon_node.context import Context, backoff_of, until_passed
from sbon_node.engine.copies.sender import CopySender
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.engine.interface import MovingEngine
from sbon_node.engine.settings import EngineSettings
from sbon_node.hosting.moving.ends import Frozen, Origin
from sbon_node.hosting.moving.pursuit import Position
from sbon_node.hosting.operators.host import OperatorHost, forget_departure
from sbon_node.hosting.operators.hosted_operator import HostedOperator
from sbon_node.hosting.sweep import copies_of, delete_copies
from sbon_node.model.records import MoveLease
from sbon_node.net.peers import Caller
from sbon_node.overlay.presence import AS_FOLLOWER
from sbon_node.ownership.acceptors import OVER, QUERY_OVER
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.streams.outbox.signals import Signal
from sbon_protocol.api.measures import MeasureSums
from sbon_protocol.api.moves import MoveProgress
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.api.queries import MoveInfo
from sbon_protocol.api.query_ids import name_of
from sbon_protocol.api.states import move_states
from sbon_protocol.api.states.move_states import MoveState
from sbon_protocol.base import Call
from sbon_protocol.calls import AskNode, NodeAnswer
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError
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
        self.hosted, self.lease, self.why = hosted, lease, why
        self.stops = how == "stop"
        """Whether the operator stops before its state is copied."""
        first: MoveState = move_states.SWITCHING if resumed else move_states.STOPPING if self.stops else move_states.COPYING
        self.state = OperatorMove(step=first, attempt=lease.attempt, progress=MoveProgress())
        self.changed = Signal()
        self.frozen_s = 0.0
        self.failure: SbonError | None = None
        """Why it was given up; ``where`` is the target for failures of the target's."""
        self._unwanted: SbonError | None = None

    @property
    def is_over(self) -> bool:
        return self.state.step in move_states.OVER

    def moved(self, spec: OperatorSpec, origin: str, now_ms: int) -> OperatorSpec:
        """Return the specification for the target, with this move."""
        return spec.moved_from(origin, now_ms, self.why)

    def info(self) -> MoveInfo:
        """Return the move as users see it."""
        return MoveInfo(target=self.lease.target, step=self.state.step, progress=self.progress)

    @property
    def progress(self) -> MoveProgress:
        return decode_record(self.state.progress, MoveProgress)

    def paused_ms(self, now_s: float) -> int:
        """Return the time since the operator has been frozen; 0 before."""
        return round((now_s - self.frozen_s) * 1000) if self.frozen_s else 0

    def not_level(self, after_s: float) -> SbonError:
        """Return the error of a target that has not caught up in time."""
        hint = "choose a node with more free cores, or raise migration.follow_s"
        reason = f"it is {self.progress.frames_behind} frames behind after {after_s:g} s"
        return SbonError("not-level", reason, where=self.lease.target, hint=hint)

    def event(self, origin: str, change: str, reason: str) -> partial[OperatorChanged]:
        """Return the event that the origin publishes: ``moving``, ``moved`` or ``move-given-up``."""
        spec, target = self.hosted.spec, self.lease.target
        host, was = (target, origin) if change == move_states.MOVED else (origin, "")
        return partial(
            OperatorChanged,
            query=name_of(spec.query),
            operator=spec.id,
            change=change,
            host=host,
            was=was,
            target=target,
            reason=reason,
        )

    def withdraw(self, why: SbonError) -> None:
        """Let the move be given up, unless its commit has begun."""
        self._unwanted = why

    def check_wanted(self) -> None:
        """Raise the reason if it was withdrawn."""
        if self._unwanted is not None:
            raise self._unwanted

    def give_up(self, error: SbonError, now_s: float) -> None:
        """End the move, since the operator goes on at its origin, and remember why."""
        self.failure = error
        reason = str(error).removeprefix(f"{self.hosted.spec.id}: ")[:500]
        paused_ms = self.paused_ms(now_s)
        step = move_states.GIVEN_UP
        self.enter(msgspec.structs.replace(self.state, step=step, pause_ms=paused_ms, code=error.code, reason=reason))

    def enter(self, state: OperatorMove) -> None:
        move_states.LIFECYCLE.check(self.state.step, state.step, self.hosted.spec.id)
        self.state = state
        self.changed.notify()


def of_target(target: str, error: SbonError) -> SbonError:
    """Return an error of the target's as one that names it."""
    return SbonError(error.code, error.message, where=target, hint=error.hint)


async def send_stream(context: Context, departure: Departure, settle_s: float, sums: Callable[[str], MeasureSums | None]) -> None:
    """Send the stream in pieces; frames that all readers acknowledge meanwhile are left out of the next ones.

    After the last piece the target comes to rest again, which takes up to ``settle_s`` seconds if its engine has died meanwhile.
    Raises :class:`SbonError` that names the target. ``sums`` are the operator's measures, which go with the last piece.
    """
    spec, lease, outbox = departure.hosted.spec, departure.lease, context.outbox
    after, more = 0, True
    while more:
        stream = outbox.handover.export(spec.id, cut_off=True)
        after = max(after, stream.trimmed)
        frames = outbox.read(spec.id, after, PIECE_BYTES)[:PIECE_FRAMES]
        after = frames[-1].number if frames else stream.tail.last
        more = after < stream.tail.last
        measures = None if more else sums(spec.id)
        call = ActivateOperator(spec.id, lease.attempt, spec.epoch + 1, stream, tuple(frames), more, measures)
        try:
            await context.call(lease.target, call, timeout_s=context.settings.call_timeout_s + (0.0 if more else settle_s))
        except SbonError as error:
            raise of_target(lease.target, error) from error


class Abandonment:
    """Tells other nodes, in the background, that an attempt is over: each until it has answered, at most ``tries`` times.

    The target forgets the follower then, and the hosts of its inputs what it has subscribed to. Both would do so by themselves, a
    while later: a follower looks at its register, and its subscriptions end with its connections.
    """

    def __init__(self, context: Context, tries: int) -> None:
        self._context, self._tries, self._tasks = context, tries, Tasks()

    async def close(self) -> None:
        await self._tasks.close()

    def tell(self, spec: OperatorSpec, attempt: str, target: str, is_due: Callable[[], bool]) -> None:
        """Tell the target and the nodes of the operator's inputs, for as long as it ``is_due``."""
        nodes = dict.fromkeys(node for node in (target, *(one.node for one in spec.inputs)))
        call = AbandonOperator(operator=spec.id, attempt=attempt)
        for node in nodes:
            self._tasks.start(f"abandon {attempt} {node}", self._tell(node, call, is_due))

    async def _tell(self, node: str, call: AbandonOperator, is_due: Callable[[], bool]) -> None:
        context, backoff = self._context, backoff_of(self._context.settings)
        instance = context.membership.expected(node).instance
        for tried in range(self._tries):
            if tried:
                await context.clock.sleep(backoff.next_s())
            if not is_due() or context.presence.gone(AS_FOLLOWER, node, instance):
                return
            try:
                await context.call(node, call)
                return
            except SbonError as error:
                log.info("abandon-not-sent", node=node, operator=call.operator, reason=str(error))
        log.warning("abandon-given-up", node=node, operator=call.operator, tries=self._tries)


class MoveDriver:
    """Drives moves of this node's operators. ``is_newest`` says whether no later move of a departure's operator is known."""

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
        self._abandonment = Abandonment(context, migration.abandon_tries)
        self._tasks = Tasks()

    async def close(self) -> None:
        await self._tasks.close()
        await self._abandonment.close()

    async def drive(self, departure: Departure) -> None:
        """Move the operator, or give the move up."""
        spec, lease = departure.hosted.spec, departure.lease
        self._notify(departure, "moving")
        port = self._operators.ports.open.get(spec.id)
        if port is None:  # It has ended since the move was asked for.
            await self._give_up(departure, SbonError("operator-stopped", "it does not run here any more", where=spec.id))
            return
        origin = Origin(
            spec.id,
            engine=self._engine,
            port=port,
            outbox=self._context.outbox,
            copies=copies_of(self._context, departure.lease.attempt),
            executor=self._context.executor,
            settings=self._settings,
            migration=self._migration,
        )
        try:
            try:
                await self._owners.begin_move(spec.query, spec.id, spec.epoch, lease)
                frozen = await self._stop(departure, origin) if departure.stops else None
                await self._follow(departure, origin)
            finally:
                self._forget_copy(lease.attempt, origin)
            frozen = frozen or await self._freeze(departure, origin)
            await self._settle(departure, frozen)
            departure.check_wanted()
        except SbonError as error:
            origin.thaw()
            await self._give_up(departure, error)
            return
        except Exception as error:
            origin.thaw()
            await self._give_up(departure, SbonError("internal", f"{type(error).__name__}: {error}", where=spec.id))
            raise
        if not await self._commit(departure):
            origin.thaw()
            reason = "its register was changed, or could not be changed in time"
            await self._give_up(departure, SbonError("move-superseded", reason, where=spec.id, hint="try again"))
            return
        log.info("operator-moves", operator=spec.id, target=lease.target, epoch=spec.epoch + 1, last=frozen.stream.tail.last)
        self._notify(departure, move_states.MOVED)
        await self.hand_over(departure)

    async def _follow(self, departure: Departure, origin: Origin) -> None:
        """Copy the state, and wait until the target has caught up."""
        spec, lease = departure.hosted.spec, departure.lease
        prepared = await origin.prepare()
        receiver = self._context.membership.expected(lease.target)
        self._sender.offer(lease.attempt, spec.id, receiver, prepared.folder, prepared.manifest.files)
        inputs = {one.stream: self._operators.ports.lineages.of(spec.id, one.stream) for one in spec.inputs}
        await self._ask_target(
            departure,
            PrepareOperator(
                attempt=lease.attempt,
                spec=departure.moved(self._operators.ports.present(spec), self._context.name, self._context.clock.wall_ms()),
                acceptors=departure.hosted.acceptors,
                tail=prepared.tail,
                batch=prepared.manifest.batch,
                cut=prepared.manifest.cut,
                lineages=inputs,
            ),
        )
        copied_s: float | None = None
        while True:
            departure.check_wanted()
            copied = copied_s is not None
            followed = await self._ask_follower(departure, origin.position() if copied else None)
            if followed.step == move_states.FOLLOWING and copied_s is None:
                copied_s = self._context.clock.now()
                self._forget_copy(lease.attempt, origin)
            departure.enter(
                msgspec.structs.replace(
                    departure.state,
                    step=move_states.SETTLING if copied and departure.stops else followed.step,
                    progress=decode_record(followed.progress, MoveProgress),
                )
            )
            if followed.level:
                return
            if copied_s is not None and self._context.clock.now() - copied_s > self._migration.follow_s:
                raise departure.not_level(self._migration.follow_s)
            await self._context.clock.sleep(self._migration.follow_poll_s if copied else self._migration.copy_poll_s)

    async def _stop(self, departure: Departure, origin: Origin) -> Frozen:
        """Let the operator come to rest before its state is copied, once the target's engine runs.

        Unless the target would refuse it anyway.
        """
        target, needs = departure.lease.target, departure.hosted.spec.needs
        call = AskNode(
            cores=needs.cores, memory_mb=needs.memory_mb, bandwidth_bytes_s=needs.bandwidth_bytes_s, starts_engine=True
        )
        try:
            answer = await self._context.ask(target, call, NodeAnswer, timeout_s=self._context.settings.start_timeout_s)
        except SbonError as error:
            raise of_target(target, error) from error
        if not answer.accepted:
            raise SbonError("no-capacity", answer.reason, where=target, hint="choose another node")
        return await self._freeze(departure, origin)

    async def _freeze(self, departure: Departure, origin: Origin) -> Frozen:
        """Let the operator come to rest here; its follower goes there meanwhile."""
        departure.frozen_s = self._context.clock.now()
        self._context.failpoint("freeze")
        halted = origin.halt()
        if not departure.stops:
            departure.enter(msgspec.structs.replace(departure.state, step=move_states.SETTLING))
            await self._ask_follower(departure, halted, halts=True)
        frozen = await origin.freeze()
        self._context.failpoint("freeze")
        return frozen

    async def _settle(self, departure: Departure, frozen: Frozen) -> None:
        """Wait until the target rests where the operator does here."""
        spec, lease = departure.hosted.spec, departure.lease
        self._context.store.put("departure", spec.id, StoredDeparture(lease=lease), sync=True)
        call = SettleOperator(operator=spec.id, attempt=lease.attempt, cut=frozen.cut, stream=frozen.stream)
        await self._ask_target(departure, call, timeout_s=self._settings.settle_s)
        if self._context.membership.expected(lease.target).instance != lease.instance:
            raise SbonError("wrong-node", f"{lease.target} has lost its data since the move began", where=lease.target)

    async def _commit(self, departure: Departure) -> bool:
        """Return whether the register names the target; wait for as long as that cannot be known."""
        spec, lease = departure.hosted.spec, departure.lease
        departure.enter(msgspec.structs.replace(departure.state, step=move_states.SWITCHING))
        try:
            return await self._owners.commit_move(spec.query, spec.id, spec.epoch, lease)
        except SbonError as error:
            log.warning("move-uncertain", operator=spec.id, code=error.code, reason=str(error))
        while True:
            await self._context.clock.sleep(self._context.settings.retry_s)
            try:
                return not await self._owners.end_move(spec.query, spec.id, lease)
            except SbonError as error:
                log.info("move-uncertain", operator=spec.id, code=error.code, reason=str(error))

    async def _give_up(self, departure: Departure, error: SbonError) -> None:
        """Forget the move, and let others forget it: the operator goes on here."""
        spec, lease = departure.hosted.spec, departure.lease
        log.info("move-given-up", operator=spec.id, target=lease.target, code=error.code, reason=str(error))
        departure.give_up(error, self._context.clock.now())
        self._notify(departure, "move-given-up", departure.state.reason)
        present, known = self._operators.ports.present(spec), self._operators
        self._abandonment.tell(present, lease.attempt, lease.target, lambda: known.get(spec.id) is not None)
        await self._end(departure)

    async def _end(self, departure: Departure) -> None:
        """Delete the move here and from the register, where it holds up others of the query, unless the next move replaces it."""
        spec, backoff = departure.hosted.spec, backoff_of(self._context.settings)
        while self._operators.get(spec.id) is not None and self._is_newest(departure):
            try:
                self._context.store.delete("departure", spec.id)
                await self._owners.end_move(spec.query, spec.id, departure.lease)
                return
            except SbonError as error:
                log.info("move-not-ended", operator=spec.id, code=error.code, reason=str(error))
                if error.code in OVER:
                    return
            await self._context.clock.sleep(backoff.next_s())

    # -- after the commit ---------------------------------------------------------------------------------------------

    async def hand_over(self, departure: Departure) -> None:
        """Give the stream to the new host, again and again, then forget the operator."""
        spec, backoff = departure.hosted.spec, backoff_of(self._context.settings)
        self._operators.depart(spec.id)
        while spec.id in self._context.outbox.streams():  # It is dropped once the target has it.
            try:
                await self._activate(departure)
                break
            except SbonError as error:
                log.info("handover-waits", operator=spec.id, code=error.code, reason=str(error))
            await self._context.clock.sleep(backoff.next_s())
        departure.enter(
            msgspec.structs.replace(
                departure.state, step=move_states.MOVED, pause_ms=departure.paused_ms(self._context.clock.now())
            )
        )

        async def forget() -> None:
            await self._operators.leave(spec.id)
            self._context.store.delete("departure", spec.id)

        def waits(error: SbonError) -> None:
            log.warning("departed-not-deleted", operator=spec.id, code=error.code, reason=str(error))

        await until_passed(self._context, forget, waits)

    async def _activate(self, departure: Departure) -> None:
        await send_stream(self._context, departure, self._settings.settle_s, self._operators.ports.measures.sums)

    async def _ask_follower(self, departure: Departure, origin: Position | None, *, halts: bool = False) -> OperatorFollowed:
        operator, (cut, batches, before) = departure.hosted.spec.id, origin or (None, (), ())
        call = FollowOperator(
            operator=operator, attempt=departure.lease.attempt, cut=cut, batches=batches, halts=halts, before=before
        )
        try:
            return await self._context.ask(departure.lease.target, call, OperatorFollowed)
        except SbonError as error:
            raise of_target(departure.lease.target, error) from error

    async def _ask_target(self, departure: Departure, call: Call, *, timeout_s: float = 0.0) -> None:
        limit_s = timeout_s + self._context.settings.call_timeout_s
        try:
            await self._context.call(departure.lease.target, call, timeout_s=limit_s)
        except SbonError as error:
            raise of_target(departure.lease.target, error) from error

    def _notify(self, departure: Departure, change: str, reason: str = "") -> None:
        """Publish ``moving``, ``moved`` or ``move-given-up``."""
        self._context.bus.publish("placement", departure.event(self._context.name, change, reason))

    def _forget_copy(self, attempt: str, origin: Origin) -> None:
        """Let the inputs go, and delete the copy, however long that takes: the target has both, or the move is given up."""
        self._sender.withdraw(attempt)
        origin.unpin()
        self._tasks.start(f"forget copy {attempt}", delete_copies(self._context, attempt))


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
        self._tasks.start(_task(departure), self._driver.drive(departure))
        return departure

    # -- what is known of them ----------------------------------------------------------------------------------------

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
        if departure.state.step == move_states.SWITCHING:
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
                state = msgspec.structs.replace(
                    departure.state, step=move_states.GIVEN_UP, code=QUERY_OVER, reason="its query is over"
                )
                departure.enter(state)
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
        self._tasks.start(_task(departure), self._driver.hand_over(departure))
        return True


def _task(departure: Departure) -> str:
    return f"move {departure.hosted.spec.id} {departure.lease.attempt}"
