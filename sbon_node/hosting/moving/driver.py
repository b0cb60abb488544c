"""One move of an operator away from this node, from the copy of the state to the handover: its host drives it.

Until the operator's register names the target, any failure gives the move up and the operator goes on here. Only this node asks
for that change. So it may let a frozen operator go on at any time before it has asked, and after that once it has read that the
change has not happened, or has made it impossible.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import structlog

from sbon_node.base.tasks import Tasks
from sbon_node.engine.copies.sender import CopySender
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.engine.interface import MovingEngine
from sbon_node.engine.settings import EngineSettings
from sbon_node.hosting.moving.abandoning import Abandonment
from sbon_node.hosting.moving.departure import Departure, StoredDeparture, of_target
from sbon_node.hosting.moving.ends import Frozen, Origin
from sbon_node.hosting.moving.handover import send_stream
from sbon_node.hosting.moving.pursuit import Position
from sbon_node.hosting.operators import OperatorHost
from sbon_node.hosting.sweep import copies_of, delete_copies
from sbon_node.ownership.acceptors import OVER
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.workflow.context import Context
from sbon_node.workflow.retry import backoff_of, until_passed
from sbon_protocol.api.moves import MoveProgress
from sbon_protocol.api.states import move_states
from sbon_protocol.calls import AskNode, NodeAnswer
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError
from sbon_protocol.messages import Call
from sbon_protocol.moving import FollowOperator, OperatorFollowed, PrepareOperator, SettleOperator

log = structlog.get_logger()


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
